/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explores one seed: a small cluster in the simulator, a few clients that fight for a few locks, an
 * adversary, the auditor.  Everything is drawn from the seed, so that it says what happened: the
 * same seed gives the same run, verb by verb.
 *
 *   safety     faults are on.  Clients acquire (with and without deadlines), try, are cancelled in
 *              the middle, give up in queues, hold one lock or two, for long sometimes; where the
 *              lock survives it they die and are replaced, stand still for leases, lose answers.
 *              The auditor judges.
 *   liveness   faults are off.  Every client that is alive must complete its cycles of acquire and
 *              release within a bound of virtual time; who does not is stuck.
 *
 * A lock with intention modes is driven in all modes and converted; one with a deadlock policy is
 * asked for two locks in any order, under each policy.
 *
 * A lock with longer leases is asked for some, and held for as long; one with update locks, but
 * without intention modes, is held so and upgraded.
 *
 * Clients close in the middle of the run, also while a place of theirs stands in a queue,
 * and open anew.
 *
 * Which faults a lock must stand depends on what it promises: only one with VB_LOCK_SURVIVES meets
 * death, partitions and pauses above a lease.  All meet lost answers.  A lock that survives nobody may
 * be lost by an outcome that stays unknown, and nobody is called stuck then; but it may never have
 * two holders.
 */
#ifndef VB_CHECK_LOCK_EXPLORE_H
#define VB_CHECK_LOCK_EXPLORE_H

#include "check/lock/audit.h"
#include "check/lock/history.h"
#include "fabric/sim/sim.h"

#define VB_EXPLORE_CLIENTS_MIN 3
#define VB_EXPLORE_CLIENTS_MAX 16
#define VB_EXPLORE_LOCKS_MAX   3
#define VB_EXPLORE_RINGS_MAX   3

/* Closed clients whose places stand in queues, per seed; then nobody closes any more. */
#define VB_EXPLORE_GHOSTS_MAX 64

/* What a seed has drawn. */
struct vb_explore_draw {
	uint64_t seed;
	const struct vb_sim_profile *profile;
	unsigned clients, locks, servers, client_nodes, workers;
	bool colocated; /* clients on the servers' nodes too */
	bool orderly;   /* nothing that a lease lock must recover from: bypass is judged */
	bool loses; /* answers are lost although the lock survives nobody: what is unknown then may be
		     * lost for good */
	uint32_t near_wrap; /* counters begin up to so many steps before they come round; 0: at 0 */
	uint32_t round_tickets; /* ... or after so many steps again and again; 0: as they do */
	uint64_t claims_from;   /* ... and the numbers of clients' claims behind this */
	bool fencing;
	uint64_t bound_ns; /* of a verb */
	uint64_t lease_ns;
	uint32_t drift_ppm;
	double read_ratio;
	unsigned attempts; /* a client, in the safety phase */
	unsigned cycles;   /* a client, in the liveness phase */
	uint64_t think_max_ns, hold_max_ns;
	double p_try, p_timeout, p_two, p_long; /* long: holds past the lease */
	double p_edge;                          /* holds until just before its end */
	unsigned leases;                        /* of the longest grant; 1: all are the same */
	double p_leases, p_hold_on;             /* asks for more than one; holds for as long */
	double p_renew;                         /* renews the lease, some times */
	double p_holder;                        /* asks who holds what it holds */
	double p_update, p_upgrade;             /* asks for an update lock, and converts it */
	unsigned timeout_octaves;               /* above 1 us, of the longest deadline */
	uint64_t begins_ns;                     /* the time at which the clients begin */
	uint64_t cancel_every_ns;               /* 0: nobody is cancelled */
	/* Servers stop and are started again, or die and others begin in their place: after up to so
	 * long, while nobody answers for up to so long; 0: they stay. */
	uint64_t serve_max_ns, away_max_ns;
	bool servers_die;
	/* The next end comes within half a lease; all of a node end together, and those who follow are
	 * one or two. */
	double p_soon;
	bool recounts;
	/* They keep files, some in several places; die in a write; the disk is full; all of a node
	 * end together, and its segment is gone then, in some because the machine crashes. */
	bool keeps_files, moves_files, loses_segment, crashes;
	double p_torn, p_full;
	/* Beyond what can be survived: the first that dies is the last, nobody takes its place; or verbs come
	 * up to so many times later than the fabric says, 0: in time.  One of both for sure. */
	bool never_back;
	unsigned too_late;
	bool beyond;
	uint64_t ask_for_ns;  /* then: how long each request is repeated */
	uint64_t patience_ns; /* of a release, for its successor's name; 0: the default */
	double p_close; /* closes after an attempt, and opens anew; more often where it gave up */
	uint64_t safety_ns, liveness_ns; /* bounds of the phases */
	uint64_t alone_ns;  /* a release that meets nobody, where CASes are lost; 0: not judged */
	uint64_t prompt_ns; /* who may not wait comes back within that; 0: not judged */
	char options[160];  /* the protocol's */
	bool all_modes;     /* of those with intention modes: every one */
	bool any_order;     /* two locks in any order: a deadlock policy helps */
	bool keeps_age;     /* of a transaction that was turned down */
	double p_convert, p_end; /* ... at the end of some locks, release them at once */
	double p_path;           /* asks for a lock and intention locks on those above it */
	/* Keeps what it holds, for up to so many leases; writes arrive up to so much later.  0 leases: it is
	 * refused. */
	double p_keep;
	unsigned keep_leases;
	uint64_t keep_late_ns;
	/* Calls on rings that clients share, of so many places; cancels them; others try clients meanwhile.
	 * Verbs that are complete when they are posted. */
	double p_ring, p_quit;
	unsigned rings, ring_depth;
	bool intrudes, ends_at_once;
	struct vb_sim_near near;
	struct vb_sim_faults faults;
	/* The protocol of another space on the same nodes, whose clients meet the same faults; NULL:
	 * there is none. */
	const struct vb_lock_ops *beside;
	const struct vb_lock_ops *ops;
};

void vb_explore_draw(const struct vb_lock_ops *ops, uint64_t seed, struct vb_explore_draw *out);
/* The same, and something goes beyond what can be survived, of a lock of which that can be said. */
void vb_explore_draw_beyond(const struct vb_lock_ops *ops, uint64_t seed,
			    struct vb_explore_draw *out);
bool vb_explore_goes_beyond(const struct vb_lock_ops *ops);
/* One line. */
void vb_explore_describe(const struct vb_explore_draw *d, FILE *to);

struct vb_explore_result {
	struct vb_audit_counts audit;
	uint64_t deaths, servers_gone, cancels, closes, timeouts, unknown, cycles;
	/* Holds that were kept, renewed for that, and lost. */
	uint64_t kept, kept_on, kept_lost;
	/* Calls that were started on rings, and of them those that have ended on their starter's stack. */
	uint64_t started, at_once;
	uint64_t verbs, virtual_ns, trace_hash;
	/* Beyond what can be survived: calls that were told of a server which is gone for good; verbs that
	 * changed something later than the fabric says; rules broken that were not judged for it. */
	uint64_t told, late_verbs, forgiven;
	unsigned ghosts; /* the most that there were at a time */
	bool has_violation;
	enum vb_audit_rule first_rule;
	char *stories; /* of the violations, for free(); NULL: none */
};

/* What came of going beyond, a part of a line; of a seed that does not, nothing. */
void vb_explore_tell_beyond(FILE *to, const struct vb_explore_draw *d,
			    const struct vb_explore_result *r);

/*
 * Runs the seed.  0: explored, violations are in *out.  -error: it could not be.
 */
int vb_explore_run(const struct vb_lock_ops *ops, const struct vb_explore_draw *d,
		   struct vb_explore_result *out);
/* The same, and `history` records it (for VB_EXPLORE_CLIENTS_MAX clients); NULL: nothing does.
 * -ECANCELED: *stop has come (NULL: never). */
int vb_explore_record(const struct vb_lock_ops *ops, const struct vb_explore_draw *d,
		      struct vb_lock_history *history, const volatile bool *stop,
		      struct vb_explore_result *out);

#endif
