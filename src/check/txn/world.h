/* SPDX-License-Identifier: Apache-2.0 */
/* Inside the exploration of transactions: see explore.h.  explore.c runs it, lives.c are
 * its coordinators and servers.c its servers, bodies.c, calls.c and scans.c are what the coordinators do, beside.c is
 * another database on the same nodes, homes.c nodes that go with their memory, judge.c is what is said of it in the end, words.c
 * of its lock words, votes.c of its votes, beyond.c what is not. */
#ifndef VB_CHECK_TXN_WORLD_H
#define VB_CHECK_TXN_WORLD_H

#include <stdio.h>

#include "check/txn/explore.h"
#include "txn/db.h"

#define TXN_DEATHS_MAX        40u
#define TXN_SERVER_DEATHS_MAX 16u
#define TXN_UNFINISHED_MAX    4u /* closed coordinators that could not give their places up */
#define TXN_NODES_MAX         3u
#define TXN_HOMES_MAX         4u
#define TXN_PLACES            ((TXN_NODES_MAX + TXN_HOMES_MAX) * (TXN_DEATHS_MAX + 16) * VB_PLACES_EACH)
#define TXN_MONEY             1000        /* of each account at the beginning */
#define TXN_BESIDE_MONEY      (1ll << 40) /* of each in the database beside */
#define TXN_OPS_MAX           192u

struct txn_world;
struct txn_place;

enum txn_life { TXN_RUNS, TXN_DIED, TXN_LEFT, TXN_CANCELLED, TXN_DONE };

/* What a coordinator has asked to commit and does not know the fate of. */
struct txn_pending {
	bool there;
	bool happened;   /* that was seen */
	uint64_t ts;     /* its name */
	uint64_t number; /* of the try */
	uint32_t place;
	struct vb_history_txn txn;
	struct vb_history_op op[TXN_OPS_MAX];
};

/* What stands in a version of a note, as its transaction asked for. */
struct txn_version {
	uint64_t key, version;
	int64_t money;
};

/* A lock word that a transaction has had: see words.c. */
struct txn_held {
	vb_addr at;
	uint64_t word, ts;
	const struct vb_table *table;
	uint64_t key;
};

/* Nodes, as bits, whose servers have said yes to the last name of a place that was voted on: see votes.c. */
struct txn_votes {
	uint64_t ts;
	uint32_t nodes;
};

/* What a transaction knows of a note: see calls.c. */
enum txn_note_state { TXN_NOTE_NEW, TXN_NOTE_KNOWN, TXN_NOTE_THERE, TXN_NOTE_NONE };

struct txn_note {
	enum txn_note_state state;
	int64_t money;
};
#define TXN_NOTES_MAX 8u

/* The ordered table: see scans.c. */
#define TXN_LINE_KEYS   1536u
#define TXN_LINE_SCARCE 8u  /* so many are asked for where there is not room for all */
#define TXN_SCANS_MAX   4u  /* of a transaction */
#define TXN_OWN_MAX     32u /* keys near the line's end at a time */

/* The word in its way. */
struct txn_wait {
	vb_addr at;
	uint64_t word; /* 0: it does not wait */
	uint64_t since_ns;
};
#define TXN_SERVER_WAITS_NS 100000ull /* more than a server tries again by itself (txn/serve.c) */

struct txn_slot {
	struct txn_world *w;
	unsigned index;
	struct vb_rng rng, goings; /* what it does; when it goes, and how long it thinks */
	struct vb_rng ways;        /* how its transactions are begun */
	struct vb_task *supervisor, *life;
	struct vb_coordinator *me;
	bool started, safe;
	enum txn_life end;
	unsigned attempts, commits;
	uint64_t begin_ns; /* of the transaction, on the simulator's clock */
	const char *doing; /* for the story of who is stuck */
	struct txn_pending pending;
	struct txn_wait wait;
	bool was_late; /* the last try, by what others wait */
	bool on_edge;  /* it commits just before its lease ends, and then stands still */
	bool modelled; /* the transaction is one of calls.c */
	struct txn_note model[TXN_NOTES_MAX];
	/* What the scans of the transaction have gone through, and what it has made of its keys, by their last
	 * bits: see scans.c. */
	struct vb_txn_range gone_through[TXN_SCANS_MAX];
	unsigned n_gone_through;
	int8_t own[TXN_OWN_MAX];
};

/* Of a node. */
struct txn_server {
	struct txn_world *w;
	uint16_t node;
	struct vb_db_server *is; /* NULL: it is dead, and its keeper will start another */
	struct vb_task *keeper;
};

struct txn_world {
	const struct vb_cc_ops *cc;
	const struct vb_txn_draw *d;
	struct vb_txn_explored *out;
	struct vb_fabric *fabric;
	struct vb_sched *sched;
	struct vb_db *db;
	struct vb_table *account, *note, *line; /* line: NULL where the seed has no scans */
	uint64_t line_end;
	struct txn_place *place;     /* of its keys, where places are given to others: places.c */
	struct vb_sim_faults faults; /* as they are now */
	const volatile bool *stop;   /* NULL: never */
	struct txn_server server[TXN_NODES_MAX + TXN_HOMES_MAX];
	struct vb_db_server *dead_server[TXN_SERVER_DEATHS_MAX + TXN_NODES_MAX + TXN_HOMES_MAX];
	unsigned n_dead_servers, n_unfinished;
	struct vb_coordinator *dead[TXN_DEATHS_MAX + VB_TXN_EXPLORE_COORDINATORS_MAX];
	/* Of those that died over a commit: what they had asked for. */
	struct txn_pending last[TXN_DEATHS_MAX + VB_TXN_EXPLORE_COORDINATORS_MAX];
	unsigned n_dead, n_last, n_safe;
	bool gone[TXN_HOMES_MAX]; /* the nodes behind those that have records: homes.c */
	unsigned n_gone;
	bool all_safe, live;
	int err;
	bool wrong; /* err is what a call returned */
	/* Of each place: whoever had it has not heard of all releases, or died: what it held may stand. */
	bool keeps[TXN_PLACES];
	struct txn_votes votes[TXN_PLACES];
	uint64_t next_id;
	uint64_t longest_ns; /* of a try, from begin to end */
	struct vb_history *history;
	struct vb_txn_watch watch;
	struct vb_table stranger; /* of no database of ours */
	struct vb_store strange;
	struct txn_version *ledger;
	size_t n_ledger, ledger_room;
	struct txn_held *words;
	size_t n_words, words_room;
	uint64_t next_money;
	FILE *stories;
	char *story_text;
	size_t story_size;
	struct txn_slot slot[VB_TXN_EXPLORE_COORDINATORS_MAX];
	struct txn_beside *beside; /* NULL: nothing is */
};

/* What the protocol promises. */
static inline enum vb_level txn_level(const struct txn_world *w)
{
	if (w->d->p_skew > 0)
		return VB_LEVEL_SNAPSHOT;
	return w->cc->caps & VB_CC_STRICT ? VB_LEVEL_STRICT : VB_LEVEL_SERIALIZABLE;
}

/* Does a server take locks for others? */
static inline bool txn_servers_lock(const struct txn_world *w)
{
	return strchr(w->d->hybrid, '1') != NULL || vb_cc_sequenced(w->cc);
}

/* Nobody may be recovered sooner. */
static inline uint64_t txn_patience(const struct txn_world *w)
{
	return w->d->lease_ns + 2 * w->fabric->caps.verb_bound_ns;
}

/* Notes a violation with its story. */
void txn_found(struct txn_world *w, enum vb_txn_rule rule, const char *format, ...) VB_PRINTF(3, 4);
/* A call returned what it may not: that is found, and ends the seed. */
void txn_wrong(struct txn_slot *s, const char *call, int err);

/* What a coordinator that goes has counted. */
void txn_count(struct txn_world *w, const struct vb_coordinator *me);

/* lives.c */
int txn_lives_start(struct txn_world *w);
void txn_lives_heal(struct txn_world *w);
void txn_on_death(struct vb_ep *ep, void *arg);
static inline bool txn_cancelled(void)
{
	return vb_task_cancelled(vb_task_self());
}

/* A call may end so, because of what the seed has drawn. */
bool txn_may_fail(const struct txn_slot *s, int err);
/* The dead do nothing more, not even what needs no verb. */
void txn_stay_alive(const struct txn_slot *s);

/* beside.c: 0 where the seed has none */
int txn_beside_start(struct txn_world *w);
struct vb_db *txn_beside_db(const struct txn_world *w);
void txn_beside_judge(struct txn_world *w);
void txn_beside_stop(struct txn_world *w);
void txn_beside_bury(struct txn_world *w);
/* Is that money of the database beside? */
static inline bool txn_beside_has(int64_t money)
{
	return money > TXN_BESIDE_MONEY / 2;
}

/* beyond.c */
static inline bool txn_is_beyond(const struct txn_world *w)
{
	return vb_txn_draw_is_beyond(w->d);
}
/* Within which a verb takes effect or never does, whatever the fabric says. */
uint64_t txn_true_bound_ns(const struct vb_txn_draw *d);
/* After the fabric was opened; a coordinator has died; how long a try has taken when all faults had ended. */
void txn_beyond_open(struct txn_world *w);
void txn_beyond_died(struct txn_world *w, const struct vb_coordinator *me);
void txn_beyond_took(struct txn_slot *s, uint64_t ns);

/* homes.c: where the slot's next coordinator is; its coordinator's node is taken for gone; so is a place's; its
 * coordinator has died, or is about to log; takes homes for gone. */
uint16_t txn_home(const struct txn_slot *s);
bool txn_is_outcast(const struct txn_slot *s);
bool txn_place_is_gone(const struct txn_world *w, uint32_t place);
void txn_home_died(struct txn_slot *s);
void txn_home_prepared(struct txn_slot *s);
int txn_homes_start(struct txn_world *w);

/* servers.c */
int txn_servers_start(struct txn_world *w);
/* False: it was no server. */
bool txn_server_died(struct txn_world *w, const struct vb_ep *ep);
void txn_servers_heal(struct txn_world *w);
void txn_servers_stop(struct txn_world *w);
void txn_servers_bury(struct txn_world *w);

void txn_record_fill(struct txn_world *w, void *record, int64_t money);
/* What is in a record, which must be whole. */
int64_t txn_money_in(struct txn_slot *s, const char *table, uint64_t key, const void *record);
/* Calls at random, in a transaction; when one may commit; and in the end. */
int txn_random_calls(struct txn_slot *s);
void txn_calls_prepared(struct txn_slot *s, const struct vb_txn *t);
void txn_calls_judge(struct txn_world *w);
/* scans.c: opens the ordered table; a transaction that scans it; what the history says of that beside what the
 * engine does. */
int txn_line_open(struct txn_world *w);
int txn_scans(struct txn_slot *s);
unsigned txn_scans_gather(const struct txn_slot *s, const struct vb_txn *t,
			  struct vb_history_op *op, unsigned n, unsigned most);
/* places.c */
int txn_places_open(struct txn_world *w);
/* What a key of the line had when it lost its last place; what a version that was found means; the watcher. */
uint64_t txn_place_last(const struct txn_world *w, const struct vb_table *t, uint64_t key);
uint64_t txn_place_means(const struct txn_world *w, const struct vb_table *t, uint64_t key,
			 uint64_t version);
void txn_placed(void *ctx, const struct vb_table *t, uint64_t key, uint64_t version, bool given);
/* One transaction, drawn and tried until it ends.  0: committed, or given up on purpose. */
int txn_attempt(struct txn_slot *s);

/* waits.c: somebody's lock is in its way. */
/* ... and: it was left behind. */
void txn_waits_left(void *ctx, const struct vb_coordinator *by, uint32_t place, uint64_t word);
void txn_waits_met(void *ctx, const struct vb_txn *t, const struct vb_item *it);
/* The watcher that writes the history. */
void txn_watch_open(struct txn_world *w);
/* The slot's coordinator is dead: what it had asked to commit may have happened. */
void txn_keep_pending(struct txn_slot *s);
/* No verb of the dead is under way any more: what they had asked for has happened, or never will, and their
 * status words say which, or said so when their places were given up. */
void txn_settle_pending(struct txn_world *w);

/* Nobody may hold anything any more: `although` says why not. */
void txn_look_for_locks(struct txn_world *w, const char *although);
void txn_judge(struct txn_world *w);

/* words.c: the lock words that it has, or had; and whether any was had twice. */
void txn_words_note(struct txn_world *w, const struct vb_txn *t);
void txn_words_judge(struct txn_world *w);

/* votes.c: a server votes; a commit point was passed. */
void txn_voted(void *ctx, uint64_t ts, uint16_t node, bool yes);
/* What a commit has written down for others: logs.c. */
void txn_logs_judge(struct txn_world *w, const struct vb_txn *t);
void txn_votes_judge(struct txn_world *w, const struct vb_txn *t);

#endif
