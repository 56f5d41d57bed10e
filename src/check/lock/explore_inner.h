/* SPDX-License-Identifier: Apache-2.0 */
/* What the run of a seed (explore.c) and the life of one of its clients (explore_client.c)
 * share. */
#ifndef VB_CHECK_LOCK_EXPLORE_INNER_H
#define VB_CHECK_LOCK_EXPLORE_INNER_H

#include "check/lock/explore.h"
#include "check/planted/planted.h"

/* Per seed; then nobody dies any more. */
#define DEATHS_MAX 48

/* Per seed; then all servers stay. */
#define SERVER_ENDS_MAX 12

/* Verbs one after the other for which a call that may not wait takes its time. */
#define EXPLORE_PROMPT_VERBS 4

#define SERVERS_MAX 2
#define WORKERS_MAX 2

/* The default of ask_for, of locks that a server keeps. */
#define EXPLORE_ASK_FOR_NS 2000000000ull
/* For how many of these an acquire may take to learn that its server is gone. */
#define EXPLORE_TOLD 3

/* The path of a folder for files. */
#define EXPLORE_FOLDER 256

enum life_end { LIFE_RUNS, LIFE_DIED, LIFE_CANCELLED, LIFE_CLOSED, LIFE_DONE };

/* A hold that is kept (explore_keep.c), and its client's last lease. */
struct kept {
	struct vb_ring *ring; /* of the last keep; NULL: none */
	bool on;              /* it is kept, until it tells of its end */
	bool stopped;         /* it was cancelled */
	bool wanted;          /* the renewal that is under way */
	int result;
	unsigned renewals;
	uint64_t told_ns, until_ns; /* when it was told of its lease, and how long that lasts */
	uint64_t ended_ns;          /* when it was told of the end, or stopped */
	uint64_t saw; /* writes, when it came to the store, or after its own last one */
	struct vb_planted_kept planted;
};

/* What a lock guards: it remembers the largest token that it has seen. */
struct explore_store {
	uint64_t token, writes;
	uint64_t prompt; /* of them: not late */
	unsigned writer; /* the last */
};

/* A call that was started on a ring (explore_ring.c), and its client's last one. */
struct started_call {
	uint64_t number, died; /* of the life's calls; up to which they have died */
	uint64_t id, begun_ns;
	uint64_t quit_ns; /* when it was cancelled, and not its client's life; 0: it was not */
	bool at_once;     /* it ends, or begins, on the starter's stack */
	bool starts;      /* that is under way */
	bool open, done;  /* it has not ended, as far as its starter knows; its end has been told */
	int result;
};

struct explore_ring {
	struct explore *x;
	struct vb_ring *ring;
};

struct slot {
	struct explore *x;
	unsigned index;
	struct vb_rng rng;
	struct vb_task *supervisor;
	struct vb_task *life; /* NULL: none that may be cancelled */
	struct vb_lock_client *client;
	bool started; /* the life has run */
	enum life_end end;
	unsigned attempts, cycles; /* done so far */
	bool safe;                 /* the attempts are done: waits for the liveness phase */
	bool gave_up;              /* the last attempt, at its deadline */
	uint64_t releases_since_ns;
	uint64_t releases_from; /* how often anybody had asked by then */
	bool releases_shared;
	struct kept kept;
	struct started_call started_call;
	struct vb_grant old;   /* a copy of the last one that was released; claim NULL: none */
	uint64_t releases;     /* the lock that it is giving back, alone as yet; + 1 */
	uint64_t cancelled_ns; /* when the present life was; 0: it was not */
	bool holds_one;        /* asks for a second lock */
	uint64_t age;          /* of a transaction that was turned down; 0: none */
	uint64_t oldest_other; /* of the others' ages when it asked */
	/* For the story of who is stuck. */
	uint64_t asks_since_ns, asks_lock;
	enum vb_mode asks_mode;
	bool asks;
};

/* A lock space and its clients; of some seeds another is beside it, which has nothing to do with it
 * but the fabric. */
struct explore {
	struct explore *beside; /* NULL: none */
	const struct vb_lock_ops *ops;
	const struct vb_explore_draw *d;
	struct vb_explore_result *result;
	struct vb_fabric *fabric;
	struct vb_sched *sched;
	struct vb_lock_space *space;
	struct vb_audit *audit;
	struct vb_lock_history *history; /* NULL: none is wanted */
	const volatile bool *stop;       /* NULL: never */
	/* By node and worker, WORKERS_MAX to each node; NULL: there is none, or none at the moment. */
	struct vb_lock_server *servers[SERVERS_MAX * WORKERS_MAX];
	unsigned workers[SERVERS_MAX]; /* of each node, at present */
	/* Who ends them; waits for the next end; one that has died already, in the middle of a
	 * write, and is to be buried. */
	struct vb_task *ends;
	bool ends_soon;
	struct vb_lock_server *fallen;
	/* Where they keep files, the other place, and what the disk does. */
	char folder[2][EXPLORE_FOLDER];
	struct vb_rng disk;
	bool disk_is_bad;
	uint64_t full_until_ns;
	/* Of each server node's machine, how often it has crashed; the one on which a server begins. */
	unsigned boots[SERVERS_MAX];
	unsigned begins_on;
	/* One is about to; and no more will. */
	bool begins, over;
	struct vb_lock_client *dead[DEATHS_MAX];
	unsigned n_dead;
	struct vb_ring *rings[DEATHS_MAX]; /* of the dead */
	unsigned n_rings;
	struct vb_lock_watch watch;          /* ... of holds that are kept, before ... */
	const struct vb_lock_watch *watched; /* ... whoever watches else */
	struct explore_store store[VB_EXPLORE_LOCKS_MAX];
	struct vb_rng keep_rng[VB_EXPLORE_CLIENTS_MAX];
	struct explore_ring ring[VB_EXPLORE_RINGS_MAX]; /* which the clients share */
	struct vb_rng ring_rng[VB_EXPLORE_CLIENTS_MAX];
	unsigned n_safe;
	uint64_t asked;           /* how often anybody has */
	bool all_safe;            /* every slot has done its attempts, or gone wrong */
	unsigned n_met, meetings; /* at the present meeting; meetings so far */
	bool live;                /* the liveness phase has begun */
	uint32_t forsaken;        /* bit i: lock i may be lost for good, and may be so */
	bool murky;               /* a grant may have outlived its client's transaction */
	int err;                  /* what a call returned that it may not */
	bool wrong;               /* ... and that is found; otherwise memory has run out */
	struct slot slots[VB_EXPLORE_CLIENTS_MAX];
};

static inline bool lossy(const struct explore *x)
{
	return !x->d->orderly || x->d->loses;
}

static inline bool survives(const struct explore *x)
{
	return (x->ops->caps & VB_LOCK_SURVIVES) != 0;
}

/* The dead do nothing more, not even what needs no verb. */
static inline void stay_alive(const struct vb_lock_client *me)
{
	if (vb_sim_ep_dead(me->ep))
		vb_task_die();
}

/* Whoever gives up may leave a place in a queue, and nobody hears what becomes of that: of a lost answer, say. */
static inline bool explore_leaves_places(const struct vb_lock_ops *ops)
{
	return (ops->caps & VB_LOCK_MESSAGES) != 0 || ops->resume != NULL;
}

/* What a seed does to answers and links (explore_draw_loss.c): some are lost, those of one kind of
 * verb alone; clients that hear nothing, links that are cut; such that refuse verbs meanwhile. */
void explore_draw_losses(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_draw_kinds(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_draw_links(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_draw_refusals(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
/* Beyond what can be survived (beyond.c): what is drawn and told of it, ... */
void explore_draw_never_back(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_draw_too_late(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_tell_beyond(FILE *to, const struct vb_explore_draw *d);
/* ... the bound that holds, and the one that the fabric gives; behind the faults waits for what is late, ... */
uint64_t explore_true_bound_ns(const struct vb_explore_draw *d);
void explore_beyond_fabric(struct explore *x);
void explore_let_land(struct explore *first);
/* ... the rules that are not judged: bit i is rule i; and whether a cycle has come to no more than to be
 * told that its server is gone. */
unsigned explore_forgiven(const struct vb_explore_draw *d);
bool explore_is_told(struct slot *s, int err);
/* An option of a protocol, NULL: it has none of that name; and adds to those that are drawn
 * (explore_options.c). */
const struct vb_opt *explore_option(const struct vb_lock_ops *ops, const char *name);
void explore_add_option(struct vb_explore_draw *d, const char *fmt, ...) VB_PRINTF(2, 3);
/* In what order servers end, and how many follow (explore_servers.c). */
void explore_draw_ends(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_tell_ends(FILE *to, const struct vb_explore_draw *d);
/* What the space beside the first one has drawn (explore_draw.c). */
void explore_draw_beside(const struct vb_explore_draw *first, struct vb_explore_draw *d);
/* Starts every server of the space (explore_servers.c), and who ends them and starts others. */
int explore_start_servers(struct explore *x);
void explore_stop_servers(struct explore *x);
/* Where they keep their files, if they do; where the next one that begins does; what a node's
 * segment knows of those before is gone (explore_files.c). */
int explore_open_files(struct explore *x);
void explore_close_files(struct explore *x);
void explore_choose_folder(struct explore *x);
void explore_lose_segment(struct explore *x, uint16_t node);
/* The machine has crashed: what had not been brought to the disk is there in part, or is not. */
void explore_crash(struct explore *x, unsigned node);
/* Entries that are about to come round (explore_wrap.c). */
void explore_wrap(struct explore *x);
/* A call returned what it may not: that is found, and ends the seed. */
void explore_go_wrong(struct slot *s, const char *call, int err);
/* It did what its answer does not say: that ends the seed, too. */
void explore_answer_is_wrong(struct slot *s, int err, uint64_t lock, const char *text);
/* Judges whether a call has come back soon after its time was over, or its task was cancelled; of a
 * try, which may wait for nobody, soon after it began (explore_times.c). */
void explore_judge_call_time(struct slot *s, const char *call, uint64_t begun_ns,
			     uint64_t timeout_ns);
void explore_judge_try_time(struct slot *s, uint64_t begun_ns);
void explore_judge_path_time(struct slot *s, unsigned locks, uint64_t begun_ns,
			     uint64_t timeout_ns);
/* Around a release.  Where the only answers that are lost are those of CASes, which can be looked
 * into, one that meets nobody must know what came of it. */
void explore_release_begins(struct slot *s, const struct vb_grant *g);
void explore_judge_release(struct slot *s, int err);
/* A call has come back: is anything of it under way that may yet change the lock? */
void explore_judge_adrift(struct slot *s, const struct vb_lock_client *me, const char *call);
/* Somebody asks for a lock that others may be giving back. */
void explore_meet_releases(struct explore *x, uint64_t lock);
/* One of the attempts of the first phase, in which everything may fail. */
void explore_attempt(struct slot *s, struct vb_lock_client *me);
/* One cycle of the liveness phase: true when it came to a grant and its release. */
bool explore_cycle(struct slot *s, struct vb_lock_client *me);

/* ---- explore_keep.c ---- */

void explore_draw_keeps(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_tell_keeps(FILE *to, const struct vb_explore_draw *d);
/* From now on it is known who renews. */
void explore_watch_keeps(struct explore *x);
/* What is held is kept for some leases, in some seeds, and what the lock guards written meanwhile. */
void explore_keep_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g);
/* A renewal waits no longer than until then, its lease's end, by its client's clock; and for a verb. */
void explore_judge_renewal_time(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
				uint64_t end_ns);
/* Its client has died. */
void explore_lose_keep(struct slot *s);
/* Every keep has told of its end, and told it once; before the stories are told. */
void explore_judge_keeps(struct explore *x);
/* Behind the last task. */
void explore_bury_keeps(struct explore *x);

/* ---- explore_ring.c ---- */

void explore_draw_rings(const struct vb_lock_ops *ops, struct vb_explore_draw *d);
void explore_tell_rings(FILE *to, const struct vb_explore_draw *d);
/* The rings of the seed, and who takes completions off them. */
int explore_open_rings(struct explore *x);
void explore_bury_rings(struct explore *x);
/* As vb_lock_acquire_for, and vb_lock_release: on a ring or not. */
int explore_acquire(struct slot *s, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
		    uint64_t hold_ns, uint64_t timeout_ns, struct vb_grant *g);
int explore_release(struct slot *s, struct vb_lock_client *me, struct vb_grant *g);
/* Its client has died. */
void explore_lose_call(struct slot *s);

/* ---- explore_holder.c ---- */

/* Whether that may be told of a lock that `me` holds so. */
bool explore_tells_of(const struct vb_holder *h, const struct vb_grant *g,
		      const struct vb_lock_client *me);

#endif
