/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Explores one seed of a transaction protocol: a small cluster in the simulator, a few coordinators
 * that fight for a few records, an adversary, the checkers.  Everything is drawn from the seed.
 *
 *	safety     faults are on: coordinators die at any verb and are replaced, stand still for leases, lose
 *	           answers; nodes go with their memory, where logs have copies; servers stand still; READs and WRITEs are torn, verbs delayed, nodes cut off.
 *	           Transactions move money between accounts, add it up, create and delete notes, write without
 *	           reading, make calls at random beside a model, scan what others insert into, give up on purpose;
 *	           declared or as they go;
 *	           some at less than serializable, read-only, or with a deadline.
 *	liveness   faults are off.  Every coordinator that is alive must commit a number of transactions within a
 *	           bound of virtual time, whatever the dead have left behind.
 *	           Where a seed has more in store than is survived (beyond.c), it need only be told, in time.
 *	judgement  every node is swept for locks of the dead.  Then no word of any tuple may be held; the history
 *	           must be serializable (strictly, if the protocol says so), each transaction at the level that it
 *	           was begun at; what was committed must be in place;
 *	           the money must be all there, and in each note what its transaction asked for.
 */
#ifndef VB_CHECK_TXN_EXPLORE_H
#define VB_CHECK_TXN_EXPLORE_H

#include "check/txn/serial.h"
#include "fabric/sim/sim.h"
#include "txn/protocol.h"

enum vb_txn_rule {
	VB_TXN_RULE_NOT_SERIALIZABLE, /* the checker found an anomaly: its name is in the story */
	VB_TXN_RULE_TORN_READ,        /* a transaction was given a record that was never written */
	VB_TXN_RULE_LOST_WRITE,       /* what was committed is not in place */
	VB_TXN_RULE_MONEY,            /* the total has changed */
	VB_TXN_RULE_LEAKED_LOCK,      /* a lock that nobody will give back */
	VB_TXN_RULE_STUCK,            /* somebody does not get on */
	VB_TXN_RULE_CONTENTS,         /* a record is not what its version's transaction asked for */
	VB_TXN_RULE_REFUSED,     /* a commit was refused: what it would write may not be written */
	VB_TXN_RULE_LOST_LOCK,   /* a lock was not its holder's any more when he let it go */
	VB_TXN_RULE_NEEDLESS,    /* somebody was recovered although nothing was wrong */
	VB_TXN_RULE_WRONG_ERROR, /* a call returned what it may not */
	VB_TXN_RULE_WRONG_WAIT, /* somebody waited, or ended, for whom its protocol says it does not */
	VB_TXN_RULE_HELD_AGAIN, /* two transactions had a lock by the same word */
	VB_TXN_RULE_UNASKED,    /* it has committed, and a server concerned has not said yes */
	VB_TXN_RULES
};
extern const char *const vb_txn_rule_names[VB_TXN_RULES];

#define VB_TXN_EXPLORE_COORDINATORS_MAX 10u

struct vb_txn_draw {
	uint64_t seed;
	const struct vb_sim_profile *profile;
	bool global; /* the CPU's atomics and the NIC's know of each other */
	unsigned nodes, coordinators, accounts, notes, record_bytes;
	unsigned attempts; /* of each coordinator, in the safety phase */
	unsigned commits;  /* in the liveness phase */
	uint64_t bound_ns, lease_ns, think_max_ns;
	uint32_t drift_ppm;
	char hybrid[VB_CODE_BYTES];
	bool doorbell, outstanding, passive_ack, cache;
	bool memory; /* verbs complete at once, as on shared memory, and records have no seals */
	bool recovery;
	bool calm; /* nothing that a lease must recover from */
	/* Counters begin just before they come round, clocks as far ahead of time as they may be, and
	 * logical time ends after so many leases; 0: it does not. */
	bool wraps, ahead;
	uint64_t time_left;
	double p_leave; /* to close the coordinator, after a transaction */
	double p_slow;  /* to think for up to slow_ns */
	double p_edge;  /* to commit just before the lease ends, and to stand still then */
	double p_sweep; /* to sweep a node, after a transaction */
	bool beside;    /* another database on the same nodes: beside.c */
	/* Copies of each log, and nodes without records, which go (homes.c): when a coordinator there dies, and now and
	 * then (0: never) only in the eyes of others; or so, while others give up what stands still at its commit. */
	unsigned copies, homes;
	double p_lose;
	uint64_t cut_every_ns;
	double p_waylay;
	bool far; /* coordinators reach their places by verbs alone, from another node */
	/* Now and then (0: never) one's home says that it is no more, and it runs on. */
	uint64_t disown_every_ns;
	bool tight; /* no more places than coordinators */
	/* More than can be survived: what still holds is in beyond.c. */
	bool never_back; /* a server that dies never returns */
	bool forgotten;  /* the memory of a coordinator that dies is gone */
	unsigned
		too_late; /* verbs come that many times later than the fabric says; 0: as it says */
	uint64_t slow_ns, cancel_every_ns, server_gone_ns;
	double p_audit, p_note, p_blind, p_abort, p_declare, p_wide, p_calls, p_scan;
	unsigned line_shift; /* of the ordered table's ranges */
	bool scarce;         /* it has not room for all keys, whose places are given to others */
	/* To be begun at less than serializable; with a deadline. */
	double p_weak, p_hurry;
	/* Of an audit, to read a snapshot; and how old that is (0: a lease). */
	double p_snapshot;
	/* Of one that may write, to be begun at snapshot isolation; if any is, all are judged at that. */
	double p_skew;
	uint64_t lag_ns;
	uint64_t wait_ns;  /* of who waits for a bounded time; else 0 */
	uint32_t hot_from; /* of whose records have a temperature; else 0 */
	uint64_t safety_ns, liveness_ns;
	struct vb_sim_faults faults;
};

/* How long a try takes at most where more goes wrong than is survived, in suspect times, of which each is
 * less than two leases: until it is known that a call is not answered, nor the release behind it, and what
 * the last one has left is settled; and as much again for the others' turns. */
#define VB_TXN_TRY_MOST 32u

static inline bool vb_txn_draw_is_beyond(const struct vb_txn_draw *d)
{
	return d->never_back || d->forgotten || d->too_late != 0;
}

/* hybrid: a code, or NULL: drawn, unless the protocol has but one. */
void vb_txn_draw(const struct vb_cc_ops *cc, uint64_t seed, const char *hybrid,
		 struct vb_txn_draw *out);
/* Its logs have copies, and nodes may go, if that can be in the seed, though it has not drawn so. */
void vb_txn_draw_copies(const struct vb_cc_ops *cc, const char *hybrid, struct vb_txn_draw *d);
/* Coordinators have their places at another node, if that can be in the seed. */
void vb_txn_draw_far(const struct vb_cc_ops *cc, struct vb_txn_draw *d);
/* The bounds of both phases, from the rest. */
void vb_txn_draw_bounds(struct vb_txn_draw *d);
void vb_txn_draw_describe(const struct vb_txn_draw *d, FILE *to);

struct vb_txn_explored {
	bool orderly; /* nothing was wrong, and nobody took long: nobody may be recovered */
	uint64_t server_deaths, leavings, cancels, sweeps, homes_lost, homes_disowned, disowned;
	uint64_t commits, aborts[VB_TXN_CAUSES], deaths, unknown, recovered, rolled_forward;
	uint64_t places_given;  /* of one key to another */
	uint64_t places_anew;   /* keys that had lost theirs and were found in a new one */
	uint64_t scans, unseen; /* unseen: keys in what they went through that nobody had touched */
	uint64_t unknown_commits; /* whose commit point nobody has heard the end of */
	uint64_t verbs, virtual_ns, trace_hash;
	uint64_t found[VB_TXN_RULES], violations;
	uint64_t excused; /* of rules that do not hold in the seed */
	enum vb_anomaly anomaly;
	char *stories; /* free(); NULL: none */
};

/* 0: explored, what was found is in *out.  -error, said: it could not be. */
int vb_txn_explore(const struct vb_cc_ops *cc, const struct vb_txn_draw *d,
		   struct vb_txn_explored *out);
/* The same, and writes the history that was judged as JSON lines (NULL: nowhere).  -ECANCELED: *stop has
 * come (NULL: never). */
int vb_txn_explore_to(const struct vb_cc_ops *cc, const struct vb_txn_draw *d, FILE *history,
		      const volatile bool *stop, struct vb_txn_explored *out);

#endif
