/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database, its coordinators and its servers, as the files of this room see them.
 *
 *	server.c       the server of a node is started and stopped
 *	serve.c        what it does
 *	coordinator.c  coordinators come to their places, and give them up
 *	adopt.c        places of processes that have no node, and of those who are gone
 *	values.c       transactions of numbers
 *	scan.c         reads of all keys of an interval
 *	txn.c          a transaction's items, from begin to commit or abort
 *	sweep.c        recovery of a whole node
 *	install.c      writes that are in place before the commit point, and what undoes them
 *	sequence.c     a transaction's place in an order that is agreed on before it begins: epoch.h
 *	commit.c       the log, the commit point, what follows it
 *	copies.c       copies of the log on other nodes
 *	recover.c      transactions of coordinators that do not move
 *	reads.c        reads that are over before the commit
 *	snapshot.c     snapshots, and what those who write owe them
 *	stage.c        running a stage: here, or by RPC; waiting
 *	suspect.c      lock words that stand in the way
 *	lane.c         names of places, and their status words
 *	words.c        the words of a tuple that name somebody
 *	call.c         the coordinator's side of RPC
 *	vote.c         votes, which come by one atomic
 *	db.c           opening: sizes, regions, what every process must agree on
 *	parts.c        whether what the servers have of it belongs together
 *	epoch.c, queue.c, buffers.c   what that order takes of a server, and of memory: epoch.h
 *
 * Each calls those below it, and none above.
 *
 * On each node the database is one region:
 *
 *	header (struct vb_db_header) | place 0 | place 1 | ... | inbox 0 | ... | outbox 0.0 | ...
 *	                                                       | copies of other nodes' places, if any: copies.c
 *
 * A *place* holds the status word and the log of one transaction at a time.  A coordinator has
 * four.  It uses two in turn, so that the writes of one transaction may still be on their way while
 * the next runs (passive_ack), and the other two, whose logs have room for one record, in turn for
 * what it recovers: what is done in the name of the one is still logged there while the other
 * begins.  An *inbox* is where one coordinator, of any node, puts what it asks this node's server;
 * an *outbox* is where one node's server puts what it answers one of this node's coordinators.
 */
#ifndef VB_TXN_DB_H
#define VB_TXN_DB_H

#include "base/rng.h"
#include "fabric/opened.h"
#include "rpc/mail.h"
#include "txn/protocol.h"

struct vb_db_header {
	uint64_t magic, layout;
	vb_peer server; /* of the node; 0: none */
	uint64_t part;  /* drawn when this was made; 0 where nothing comes back: parts.c */
	uint64_t whole; /* of all nodes' parts, since they were first there together; else 0 */
	uint64_t unused[3];
};
_Static_assert(sizeof(struct vb_db_header) == 64, "one line");
#define VB_DB_MAGIC 0x33304e5854424456ull /* "VDBTXN03" */

struct vb_place_head {
	uint64_t status; /* timestamp | enum vb_txn_state; changed by atomics only */
	uint64_t owner;  /* the coordinator's endpoint; 0: the place is free */
	uint64_t clock;  /* of a coordinator's first place: what its places are named is below it */
	uint64_t tries;  /* again, under the name of the last one */
	union {
		/* cc/maat.c: the interval of the transaction.  upper: changed by atomics only */
		struct {
			uint64_t upper, lower;
		};
		/* vote.c; changed by atomics only */
		uint64_t votes;
	};
	uint64_t log_bytes, log_seal; /* the log follows: what copies.c writes of a place */
};
_Static_assert(sizeof(struct vb_place_head) == 64, "one line");

/* In a log: what the commit does to one tuple; where writes are in place before it, what undoes them. */
struct vb_log_entry {
	vb_addr at;
	uint64_t held; /* the lock word while the transaction has it */
	uint64_t next; /* the version that it gets */
	uint64_t was;  /* ... and that which it had */
	uint16_t table;
	uint8_t by_server; /* it is the node's server that writes it, for the coordinator */
	uint8_t to_slot;
	uint32_t bytes; /* of record behind this, padded to 8 */
};
_Static_assert(sizeof(struct vb_log_entry) == 40, "its record is aligned");

struct vb_txn_watch;

struct vb_db {
	struct vb_store store; /* first */
	struct vb_fabric *fabric;
	const struct vb_cc_ops *cc;
	char name[64];
	uint32_t rpc_stages; /* bit i: stage i runs by RPC */
	bool fetch_by_rpc;   /* the first of those that fetch does */
	bool log_by_rpc;     /* and so the copies of logs are written */
	uint32_t coordinators, items_max, bytes_max;
	uint32_t place_bytes, small_bytes; /* of a place for transactions, and for recovery */
	uint32_t call_bytes;
	uint32_t copies; /* of each log: copies.c */
	uint64_t copies_at, copy_bytes;
	bool copy_readers; /* who reads leaves words in tuples, which others may take from it */
	/* Of VB_CC_SEQUENCED: see epoch.h. */
	uint32_t request_bytes, batch_bytes, forward_bytes;
	uint64_t sequence_at;
	uint64_t lease_ns, suspect_ns;
	uint64_t wait_ns;  /* of VB_CC_BOUNDED; else 0 */
	uint32_t hot_from; /* of VB_CC_HEATS; else 0 */
	uint64_t look_ns;  /* between two looks of who waits for a lock */
	uint64_t epoch_ns; /* the location cache has nothing that is two of these old */
	/* Of VB_CC_SNAPSHOTS: who writes has its locks so long after it was named; and so far back, and the
	 * error of its clock, goes who reads a snapshot.  0: there are none. */
	uint64_t snapshot_lag_ns, snapshot_back_ns;
	uint64_t patience_ns; /* with a server that lives and does not answer; see call.c */
	bool recovery, doorbell, outstanding, passive_ack;
	bool status; /* transactions have status words */
	struct vb_cache *cache;
	vb_addr *region;                  /* of each node */
	vb_peer *server;                  /* of each node, as last heard; 0: unknown */
	bool *told;                       /* of each node: that it is gone; atomic */
	const struct vb_txn_watch *watch; /* NULL: nobody */
	bool timing;                      /* coordinators time their stages */
	struct vb_opened opened;
};

/* parts.c: on fabrics whose servers may begin again; elsewhere they do nothing. */
/* For a part that is made now.  0, or -EIO, said. */
int vb_parts_draw(const struct vb_db *db, uint64_t *part);
/* The regions of all nodes are there.  0: those parts that are made belong together; -ESTALE, said; or the fabric's
 * error. */
int vb_parts_join(struct vb_db *db);
/* There is none on the node, though its server is there: -ESTALE, said, if there was one; else 0. */
int vb_parts_missing(struct vb_db *db, uint16_t node, const char *region, uint64_t bytes);
/* With it open: -VB_EPEERGONE, said, if a node is gone.  The other one says so once for each. */
int vb_parts_gone(const struct vb_db *db);
void vb_parts_tell_gone(struct vb_db *db);

/* place: (node * coordinators + number) * VB_PLACES_EACH + lane. */
/* About how much of vb_db_node_bytes comes into use where memory comes with its first touch: of a mailbox a
 * page, as long as no stage runs by RPC. */
uint64_t vb_db_node_touched(const struct vb_db_params *p, uint16_t nodes);
vb_addr vb_db_place(const struct vb_db *db, uint32_t place);
/* Of the place's log: copies.c. */
vb_addr vb_copy_at(const struct vb_db *db, uint32_t place, unsigned i);
uint32_t vb_db_place_bytes(const struct vb_db *db, uint32_t place);
vb_addr vb_db_inbox(const struct vb_db *db, uint16_t node, uint16_t from, uint32_t coordinator);
vb_addr vb_db_outbox(const struct vb_db *db, uint16_t node, uint32_t coordinator, uint16_t from);

/* ---- transactions ---- */

enum vb_txn_phase { VB_TXN_NONE, VB_TXN_OPEN, VB_TXN_OVER };

/* Of what it writes: nothing is in place, all of it is, or nobody can say. */
enum vb_txn_installed { VB_TXN_NOT_INSTALLED, VB_TXN_INSTALLED, VB_TXN_PERHAPS_INSTALLED };

struct vb_txn {
	struct vb_coordinator *me;
	uint64_t ts, commit_ts; /* 0 as long as it has no name: see snapshot.c */
	uint64_t snapshot;      /* the time at which it reads, if that is not ts; else 0 */
	uint64_t named_ns;      /* no later than ts; of VB_CC_SNAPSHOTS and VB_CC_INSTALLS */
	uint64_t saw;           /* the largest timestamp that its stages have come across */
	uint64_t version; /* of what it writes: a try that keeps its name has one of its own */
	uint64_t begin_ns, deadline_ns;
	uint64_t give_up_ns;  /* of the stage that runs, where waiting is bounded; else 0 */
	uint64_t write_by_ns; /* a lease after the commit point; 0: whenever */
	uint8_t phase;        /* enum vb_txn_phase */
	uint8_t cause;        /* enum vb_txn_cause */
	uint8_t isolation;    /* enum vb_isolation */
	uint8_t installed;    /* enum vb_txn_installed */
	bool read_only;
	bool hurried; /* deadline_ns is the caller's, and not its lease's end */
	bool whole;   /* several reads are one: none of them is over before all are */
	int error;
	bool passive; /* its commit stage does not wait */
	bool tainted; /* a verb's outcome is unknown: the name must not be used again */
	bool kept;    /* not all that it held is known to be let go */
	unsigned n;
	uint32_t bytes;
	struct vb_item *item;
	unsigned char *image;  /* the next item's */
	struct vb_item **some; /* room for n pointers */
	void *own;             /* the protocol's */
};

/* Somebody who wants to know what transactions did: a history. */
struct vb_txn_watch {
	void *ctx;
	/* Before the commit point; then exactly one of ended and unknown follows, or the coordinator
	 * has died. */
	void (*prepared)(void *ctx, const struct vb_txn *t);
	/* Behind the commit point, before anything is written.  May be NULL. */
	void (*passed)(void *ctx, const struct vb_txn *t);
	void (*ended)(void *ctx, const struct vb_txn *t, bool committed);
	void (*unknown)(void *ctx, const struct vb_txn *t);
	/* A stage has found it held (it->seen), and so waits or ends (it->status).  May be NULL. */
	void (*met)(void *ctx, const struct vb_txn *t, const struct vb_item *it);
	/* A lock was set back that a transaction of this place had left behind.  May be NULL. */
	void (*left)(void *ctx, const struct vb_coordinator *by, uint32_t place, uint64_t word);
	/* A key of a table has lost its place, or got one that was another's: that there is no record has this
	 * version there.  Of the servers of this process.  May be NULL. */
	void (*placed)(void *ctx, const struct vb_table *t, uint64_t key, uint64_t version,
		       bool given);
	/* The server of a node is about to vote on the transaction.  Of the servers of this process.  May be NULL. */
	void (*voted)(void *ctx, uint64_t ts, uint16_t node, bool yes);
	/* A sweep is about to give a dead one's place up: the status word says, for the last time, what
	 * has become of its transaction.  May be NULL. */
	void (*given_up)(void *ctx, uint32_t place, uint64_t status);
};

/* What shows whether a place moves. */
struct vb_pulse {
	uint64_t status, tries;
};

/* A lock word that was in the way, and since when. */
struct vb_suspect {
	vb_addr at;
	uint64_t word, since_ns, seen_ns;
	uint64_t status; /* of its holder */
	uint64_t tries;
	bool asked; /* status is known, and has been since since_ns */
	bool left;  /* the place has gone on while the word stood */
	bool ripe;  /* it has stood still: to be recovered when the transaction has ended */
	struct vb_table *table;
	uint16_t reader_at; /* offset in the tuple if it is a reader's word, else 0 */
};
#define VB_SUSPECTS 16u

/* What is timed: the stages, the commit point with the log in its place, and the log's copies. */
enum { VB_TIMED_POINT = VB_STAGES_MAX, VB_TIMED_LOG, VB_TIMED_MAX };

struct vb_stage_time {
	uint64_t ns, runs, items; /* as far as stages are timed */
	uint64_t ended;           /* transactions that had to end by what it found */
};

/* Of a log. */
#define VB_COPIES_MAX 3u

/* Memory and verbs of the transactions of one place. */
struct vb_lane {
	uint32_t place;
	uint64_t status; /* what the status word should be */
	/* Its log is written there: the place itself; or, where that is far, what of log_due bytes goes there before
	 * the status word's next change (lane.c). */
	struct vb_place_head *head, *far_head;
	uint32_t log_due;
	/* One may land there yet; and its copies are not written later than that (0: whenever). */
	bool log_late;
	uint64_t log_by_ns;
	uint64_t tries_were;
	struct vb_acc acc;
	struct vb_item *item;
	/* Of images, behind room for what is the protocol's own of the first.  All zeros at first: who never
	 * fills it never has its pages. */
	unsigned char *arena;
	unsigned char *memory; /* that it lies in */
	bool in_flight;        /* the last commit's writes are on their way */
	bool unacknowledged;   /* they have not, or perhaps not, arrived; or those that undo it */
	bool unknown;          /* whether the last transaction is committed: the answer was lost */
	bool late; /* a verb to its status word may land yet, and means the name that it has */
	/* copies.c: what each says, as we believe, if that is known; those that are gone; a verb to one may land yet,
	 * and means the name that it has. */
	uint64_t copy[VB_COPIES_MAX];
	bool copies_known, copies_late;
	uint8_t copies_gone;
	unsigned n_items; /* of `item`, as long as `unknown` */
};

struct vb_coordinator {
	struct vb_db *db;
	struct vb_ep *ep;
	struct vb_mail mail;
	uint16_t node;
	uint32_t number; /* on the node */
	bool far;        /* its places are reached by verbs alone: adopt.c */
	bool adopts;     /* somebody else's, and has not finished what was left there */
	struct vb_txn txn;
	struct vb_lane lane[VB_PLACES_EACH];
	void *own;           /* the protocol's */
	uint32_t item_own;   /* bytes of it, of each item */
	unsigned current;    /* lane of the transaction */
	unsigned recovering; /* lane of the last recovery, less VB_PLACES_TXN */
	/* Of timestamps: the next one's, which is below what the first place's clock says (clock_asked: or will
	 * say, perhaps); and what makes vb_ep_now the common time. */
	uint64_t clock, clock_end, clock_asked;
	int64_t common_ns;
	uint64_t snapshot; /* the last one */
	bool fenced;       /* others have taken its node for gone: copies.c */
	bool keep_age;     /* the next transaction is the last one tried again */
	struct vb_rng rng;
	unsigned char *scratch; /* VB_CALLS_MAX calls on their way out */
	struct vb_list kept;    /* memory of recoveries under way */
	struct redo *owed; /* one that a link which is down has cut off, with its log (recover.c) */
	uint16_t *slot;    /* finds items by key: number + 1 */
	uint32_t *stamp;   /* in which transaction the slot was filled */
	uint32_t slot_mask, txn_stamp;
	struct vb_suspect suspect[VB_SUSPECTS];
	unsigned ripe; /* of them */
	struct vb_opened opened;
	uint32_t index; /* for whoever watches */
	uint8_t type;   /* of transaction, for whoever watches */
	/* Counted. */
	uint64_t
		lost_locks; /* that were another's when a commit let them go: never, if all is right */
	uint64_t lost_writes; /* of commits, whose locks were let go without them: the same */
	bool untold;          /* one of which no call has told */
	uint64_t commits, aborts[VB_TXN_CAUSES], recovered, rolled_forward, calls, waits;
	uint64_t agents; /* cc/votes.c: nodes with something that a transaction has touched */
	struct vb_stage_time timed[VB_TIMED_MAX];
};

static inline struct vb_lane *vb_txn_lane(struct vb_coordinator *me)
{
	return &me->lane[me->current];
}

/* The lane in whose name we recover now.  Its verbs are never left under way. */
static inline struct vb_lane *vb_recovery_lane(struct vb_coordinator *me)
{
	return &me->lane[VB_PLACES_TXN + me->recovering];
}

static inline vb_addr vb_status_word(const struct vb_db *db, uint32_t place)
{
	return vb_db_place(db, place) + offsetof(struct vb_place_head, status);
}

/* Of an item's image. */
static inline uint32_t vb_image_bytes(const struct vb_table *t)
{
	return (t->layout.bytes + 15) & ~15u;
}

/* Of VB_CC_INSTALLS: the tuple as it was when it was locked, behind the item's image. */
static inline unsigned char *vb_item_before(const struct vb_item *it)
{
	return it->image + vb_image_bytes(it->table);
}

/* Of the stages that write to tuples behind a log. */
static inline bool vb_db_server_writes(const struct vb_db *db)
{
	const struct vb_cc_ops *cc = db->cc;

	return db->rpc_stages &
	       (vb_cc_installs(cc) ? 1u << cc->install | 1u << cc->undo : 1u << cc->commit);
}

/* May a call be made on the table?  0, or what to say. */
VB_COLD int vb_txn_why_no_call(const struct vb_txn *t, const struct vb_table *table);
static inline bool vb_txn_may_call(const struct vb_txn *t, const struct vb_table *table)
{
	return t->phase == VB_TXN_OPEN && table != NULL && table->store == &t->me->db->store;
}
static inline int vb_txn_check_call(const struct vb_txn *t, const struct vb_table *table)
{
	return vb_likely(vb_txn_may_call(t, table)) ? 0 : vb_txn_why_no_call(t, table);
}
/* Reads up to VB_STAGE_ITEMS keys together: their items, or what to return. */
int vb_txn_read_keys(struct vb_txn *t, struct vb_table *table, const uint64_t *keys, unsigned n,
		     struct vb_item **out);
/* Ends it for that reason: what to return. */
int vb_txn_end_by(struct vb_txn *t, enum vb_txn_cause cause, int error);
/* Between the two, what is read is of one moment, at every level.  0, or why it ended. */
void vb_txn_begin_whole(struct vb_txn *t);
int vb_txn_end_whole(struct vb_txn *t);
/* Gives locks back after vb_txn_doom. */
void vb_txn_clean(struct vb_txn *t);
/* Lets the first n of t->some go, again and again until it is known that they are; else the transaction is `kept`. */
void vb_txn_release(struct vb_txn *t, struct vb_lane *lane, unsigned n);
/* The same, and what the call returns that had to end it. */
int vb_txn_fail(struct vb_txn *t);
int vb_txn_item(struct vb_txn *t, struct vb_table *table, uint64_t key, bool write,
		struct vb_item **out);

/* scan.c: the stage VB_STAGE_SCAN */
void vb_scan_list(uint16_t node, struct vb_item *item, unsigned n);

/* sequence.c: of VB_CC_SEQUENCED */
/* Waits for its turn, and has all of its items then.  0 or -EAGAIN. */
int vb_txn_sequence(struct vb_txn *t);
/* The servers of those items that may still give it something are told not to: before it lets go.  0 or the
 * fabric's error. */
int vb_txn_write_floors(struct vb_txn *t, struct vb_lane *lane, struct vb_item **items, unsigned n);
/* buffers.c: sets what of the database's sizes is for that; bytes in a node's region. */
uint64_t vb_seq_sizes(struct vb_db *db, uint16_t nodes);

/* install.c: of VB_CC_INSTALLS */
/* Puts in place what it writes.  0, or -EAGAIN. */
int vb_txn_install(struct vb_txn *t);
/* It has ended, and that is known to others since since_ns (0: it is not): what was there before is put back,
 * now or later. */
void vb_txn_undo(struct vb_txn *t, struct vb_lane *lane, uint64_t since_ns);

/* reads.c */
/* At which level what is read now is read: see struct vb_stage. */
static inline uint8_t vb_txn_reads_at(const struct vb_txn *t)
{
	return t->whole ? VB_SERIALIZABLE : t->isolation;
}

/* Is what has been read of the item over before the commit, unless it is written? */
bool vb_txn_reads_short(const struct vb_txn *t, const struct vb_item *it);
/* A call has given what it has read of the item.  0 or -EAGAIN. */
int vb_txn_end_read(struct vb_txn *t, struct vb_item *it);
/* All that was read is let go, and was not given yet: it was declared; or has been.  0 or -EAGAIN. */
int vb_txn_end_declared(struct vb_txn *t);
int vb_txn_end_given(struct vb_txn *t);

/* words.c */
/* Of struct vb_store. */
bool vb_words_at_rest(const struct vb_store *store, const struct vb_tuple_layout *l,
		      const void *tuple, uint64_t common_ns);

/* snapshot.c */
/* The transaction that begins reads at a snapshot, and has no name yet. */
void vb_snapshot_take(struct vb_txn *t);
/* It is going to write, and so needs a name.  0 or -EAGAIN. */
int vb_snapshot_name(struct vb_txn *t);
/* It has all its locks: may it commit, or might somebody have read beside them?  0 or -EAGAIN. */
int vb_snapshot_in_time(struct vb_txn *t);

/* stage.c */
/* Of an address that is learned from now on. */
static inline uint32_t vb_txn_epoch(const struct vb_coordinator *me)
{
	return me->db->cache != NULL ? (uint32_t)(vb_ep_now(me->ep) / me->db->epoch_ns) : 0;
}

/* Ends the transaction's life with a cause; the first one counts.  -EAGAIN. */
int vb_txn_doom(struct vb_txn *t, enum vb_txn_cause cause, int error);
void vb_stage_run(struct vb_txn *t, struct vb_lane *lane, unsigned stage, struct vb_item **items,
		  unsigned n);
int vb_txn_place_items(struct vb_txn *t, struct vb_item **items, unsigned n);
int vb_txn_alive(struct vb_txn *t);
/* An item was fetched: for histories, and for our clock.  Somebody's lock is in its way. */
void vb_txn_note_fetched(struct vb_txn *t, struct vb_item *it);
void vb_txn_note_met(struct vb_txn *t, const struct vb_item *it);
/* Behind a stage that fetches under locks: was it over before the lease?  0 or -EAGAIN. */
int vb_txn_fetched_in_time(struct vb_txn *t, unsigned stage);
/* Its deadline has passed: 0, or -EAGAIN. */
int vb_txn_in_time(struct vb_txn *t);
/*
 * How long to pause at least before the last transaction is tried again.  One that has given up waiting, in a
 * circle perhaps, lets those who wait for what it had look first: taken back at once, it would be the same
 * circle again.
 */
static inline uint64_t vb_txn_least_pause(const struct vb_coordinator *me)
{
	return me->db->wait_ns != 0 && me->txn.cause == VB_TXN_TIMEOUT ? 2 * me->db->look_ns : 0;
}

/* From what the pause before its next try is drawn, when so many tries have taken so long together (txn/again.c). */
uint64_t vb_txn_pause_most(unsigned tries, uint64_t spent_ns);

/* For how long a stage may wait from now on, if that is bounded by less than the lease; else
 * UINT64_MAX. */
static inline uint64_t vb_txn_patience(const struct vb_txn *t)
{
	uint64_t until = t->hurried ? t->deadline_ns : UINT64_MAX, now;

	if (t->give_up_ns != 0 && t->give_up_ns < until)
		until = t->give_up_ns;
	if (vb_likely(until == UINT64_MAX))
		return until;
	now = vb_ep_now(t->me->ep);
	return until > now ? until - now : 0;
}

/* call.c */
#define VB_CALLS_MAX   8u   /* nodes asked at a time */
#define VB_STAGE_PLACE 255u /* the stage that only makes tuples */
#define VB_STAGE_SCAN  254u /* the stage that lists keys: scan.c */
#define VB_STAGE_LOG   253u /* no stage: a log for a copy, copies_call.c */
#define VB_SCAN_KEYS   64u  /* in an answer for a range */
extern const struct vb_stage_ops vb_scan_stage;
/* NULL: PLACE, LOG. */
static inline const struct vb_stage_ops *vb_stage_ops_of(const struct vb_db *db, unsigned stage)
{
	if (vb_unlikely(stage >= VB_STAGE_LOG))
		return stage == VB_STAGE_SCAN ? &vb_scan_stage : NULL;
	return &db->cc->stages[stage];
}
void vb_call_stage(struct vb_txn *t, unsigned stage, struct vb_item **items, unsigned n);
int vb_db_find_server(struct vb_coordinator *me, uint16_t node, vb_peer *out);
struct vb_wire_call;
/* What asks for what stands in buf: a WRITE into our inbox at the node, and behind it the message, whose answer comes
 * into the box. */
void vb_call_verbs(struct vb_coordinator *me, struct vb_wire_call *head, const void *buf,
		   uint16_t node, vb_peer server, struct vb_box *box, struct vb_msg *msg,
		   struct vb_verb v[2]);
/* The answer to what stands in the box: 0, -VB_EPEERGONE, -ECANCELED, or another error of the fabric's. */
int vb_call_await(struct vb_coordinator *me, struct vb_box *box, vb_peer server, uint16_t node,
		  struct vb_msg *out);
/* -EPROTO, and the log says why: an enum vb_wire_refusal. */
int vb_call_refused(uint16_t node, uint64_t why);
/* Has the node's server done all that it was asked before this?  0: it has, or there is none any
 * more that could; -ETIMEDOUT: it has not said so in patience_ns, and lives; -ECANCELED. */
int vb_call_is_done(struct vb_coordinator *me, uint16_t node, uint64_t patience_ns);

/* vote.c: of VB_STAGE_VOTES by RPC */
struct vb_ballot {
	uint64_t before; /* the vote word, when nobody had been asked */
	uint64_t until_ns;
	unsigned of;
	vb_peer voter[VB_CALLS_MAX];
};
/* What a vote adds to the word; and what it says that the word has grown by so much. */
uint64_t vb_vote(uint64_t ts, bool yes);
int vb_votes_say(uint64_t ts, unsigned of, uint64_t since);
vb_addr vb_vote_word(const struct vb_db *db, uint64_t ts);
/* The verb by which the server of a node gives its vote. */
void vb_vote_cast(const struct vb_db *db, uint16_t node, uint64_t ts, bool yes, struct vb_verb *v);
/* Is the name one of that coordinator's? */
bool vb_vote_is_of(const struct vb_db *db, uint64_t ts, uint16_t node, uint32_t coordinator);
/* Before anybody is asked.  0, or the fabric's error. */
int vb_ballot_open(struct vb_txn *t, struct vb_ballot *b);
/* 0: all have said yes.  -EAGAIN: not all have; -ETIMEDOUT; -VB_EPEERGONE: one is not there; -ECANCELED; another of
 * the fabric's. */
int vb_ballot_count(struct vb_txn *t, const struct vb_ballot *b);

/* What goes over the wire. */
struct vb_wire_item {
	uint64_t key;
	vb_addr at;
	uint64_t seen, version, lease, held, next;
	uint16_t table, flags;
	uint8_t slot, status, seen_slot, to_slot;
};
_Static_assert(sizeof(struct vb_wire_item) == 64, "one line");

struct vb_wire_call {
	uint64_t ts;        /* back: the largest that the stage saw */
	uint64_t commit_ts; /* of VB_CC_SNAPSHOTS: the snapshot */
	uint64_t seal; /* of the items, and of the request: an inbox holds the last call's only */
	uint32_t bytes;
	uint32_t coordinator;
	uint8_t n;
	uint8_t isolation; /* of struct vb_stage */
	uint16_t from_node;
	uint8_t stage;
	uint8_t patience_us; /* how long the server may wait for locks at most; 0: it is impatient */
	int16_t err;
};
_Static_assert(VB_STAGE_ITEMS <= UINT8_MAX, "n");
_Static_assert(sizeof(struct vb_wire_call) <= VB_MSG_DATA, "fits in a message");
/*
 * What a server cannot do is answered, too, without items: bytes is 0, err -EPROTO, and in the
 * seal's place stands why.
 */
enum vb_wire_refusal {
	VB_WIRE_NO_STAGE, /* a stage, node or coordinator that the server's database does not have */
	VB_WIRE_NO_TABLE,
	VB_WIRE_NOT_HERE, /* a key of another node */
	VB_WIRE_NO_SLOT,
	VB_WIRE_NO_RANGE,
	VB_WIRE_TOO_LONG,
	VB_WIRE_REFUSALS,
	VB_WIRE_SOUND = VB_WIRE_REFUSALS,
};
#define VB_TAG_CALL  1
#define VB_TAG_REPLY 1
#define VB_TAG_ASK   2 /* answered when everything before it is done; see vb_rpc_call */

uint64_t vb_wire_seal(const void *items, uint32_t bytes, uint64_t request);

/* What follows an item, in whole words: 0 behind its last byte, and not what memory held. */
void vb_wire_put(unsigned char *to, const void *from, uint32_t bytes);

/* Bytes of the protocol's own behind a struct vb_wire_item, before anything else. */
static inline uint32_t vb_wire_own(const struct vb_db *db, const struct vb_stage_ops *stage)
{
	return stage != NULL && !(stage->flags & VB_STAGE_LISTS) ? db->cc->item_bytes : 0;
}

static inline void vb_own_copy(void *to, const void *from, uint32_t own)
{
	if (vb_unlikely(own != 0))
		memcpy(to, from, own);
}

/* Bytes of an item on its way to, or from, the server; own: as above. */
uint32_t vb_wire_bytes(const struct vb_table *t, const struct vb_stage_ops *stage, uint32_t own,
		       uint16_t flags, bool reply);

/* commit.c */
/* May every item be committed as it stands?  0 or -EAGAIN: no, and the log says why. */
int vb_txn_inspect(struct vb_txn *t);
void vb_txn_write_log(struct vb_txn *t, struct vb_lane *lane);
/* Of VB_CC_INSTALLS: what undoes it is with every copy.  0, or -EAGAIN: the transaction must end. */
int vb_txn_copy_undo(struct vb_txn *t, struct vb_lane *lane);
void vb_txn_write_back(struct vb_txn *t);
/* What was written, and was not held any more when it was let go. */
void vb_txn_count_lost(struct vb_coordinator *me, const struct vb_item *items, unsigned n);
/* 0, or the error for which nothing may be named over the lane's last transaction yet: what has
 * become of it is not known, or not in place. */
int vb_lane_settle(struct vb_coordinator *me, struct vb_lane *lane);

/* copies.c: of databases with copies */
/* Is the node that has the place known to be gone, to whoever is at node `self`?  Without copies that is nobody's
 * business. */
bool vb_copies_home_gone(const struct vb_db *db, uint16_t self, uint32_t place);
bool vb_copies_all_gone(const struct vb_db *db, uint32_t place);
/* A place is taken; before it is named anew. */
int vb_copies_open(struct vb_coordinator *me, struct vb_lane *lane);
void vb_copies_settle(struct vb_coordinator *me, struct vb_lane *lane);
/* The log that stands in the lane's place, by that name, is with every copy: 0, and the status word has the last say;
 * 1: others have decided that it never happens; or the error for which nobody knows yet. */
int vb_copies_log(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts);
/* Of VB_CC_INSTALLS, behind that: all of it is in place, and every copy says that it has happened.  As above. */
int vb_copies_decide(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts);
/* It ends, and has been logged but no more: true if from now on nobody has it happen, and nobody had begun to undo
 * it. */
bool vb_copies_give_up(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts);
/* The status word has said no to what the copies have, perhaps: 0: it has happened all the same, as lane->status says
 * then; 1; an error. */
int vb_copies_undo(struct vb_coordinator *me, struct vb_lane *lane, uint64_t ts);
/* The place's status word says that the name never commits: now the copies do, too, or *happened. */
int vb_copies_withdraw(struct vb_coordinator *me, uint32_t place, uint64_t name, bool *happened);
/* The place's home is gone: what its status word would have said for good. */
int vb_copies_seal(struct vb_coordinator *me, uint32_t place, uint64_t *status);

/* copies_call.c */
/* A server, asked with VB_STAGE_LOG; what stood in the coordinator's inbox.  VB_WIRE_SOUND: done, with c->err, and
 * in c->commit_ts what the copy's word says. */
enum vb_wire_refusal vb_copy_take(struct vb_db *db, struct vb_ep *ep, uint16_t node,
				  struct vb_wire_call *c, const unsigned char *payload);

/* serve.c; its endpoint, for tests that make it stand still */
struct vb_ep *vb_db_server_ep(struct vb_db_server *s);

/* Of one that is dead: nothing is given back, nobody is told.  Where nobody waits for its task any more. */
void vb_db_server_bury(struct vb_db_server *s);

/* suspect.c */
/* A word, in the recovery's name. */
int vb_recovery_read(struct vb_coordinator *me, enum vb_prim prim, vb_addr at, uint64_t *out);
int vb_recovery_cas(struct vb_coordinator *me, enum vb_prim prim, vb_addr at, uint64_t expect,
		    uint64_t value, uint64_t *old);
/* Whose place the word names; VB_NO_PLACE: nobody's. */
uint32_t vb_suspect_holder(const struct vb_db *db, const struct vb_suspect *s);
/* How its holder is now; the word is somebody's. */
int vb_suspect_look(struct vb_coordinator *me, const struct vb_suspect *s, struct vb_pulse *out);
/* Did the word's holder stand still until it was so?  Then that is noted in the suspect. */
bool vb_suspect_stood_still(const struct vb_db *db, struct vb_suspect *s,
			    const struct vb_pulse *now);
void vb_txn_suspect(struct vb_txn *t, const struct vb_item *it);

/* recover.c: no transaction of ours is under way */
/* A word that has stood for long enough.  0: it is free, or another's business by now; an error: it
 * stands as it did, for the next who meets it. */
int vb_txn_recover(struct vb_coordinator *me, struct vb_suspect s, uint64_t patience_ns);
void vb_txn_recover_ripe(struct vb_coordinator *me);
/* Does the word say for good what has become of its transaction? */
static inline bool vb_status_final(uint64_t status)
{
	uint64_t state = status & VB_TS_STATE;

	return state == VB_TS_COMMITTED || state == VB_TS_RECOVERED;
}

/* Does the log say what is left to do, or only the lock words? */
static inline bool vb_log_decides(const struct vb_db *db, uint64_t status)
{
	bool undone = vb_cc_installs(db->cc) && !vb_ts_mends(status);

	return ((status & VB_TS_STATE) == VB_TS_COMMITTED) != undone;
}

/* Ends the recovery that a link which was down has cut off, if there is one.  0, or -VB_EPEERGONE: it is still
 * down, and nothing else can be recovered. */
int vb_recovery_pay(struct vb_coordinator *me);
/* Finishes what the last transaction of the lane has left to do, which nobody else writes to; its end is known.
 * 0, or the error for which it is not known to be in place. */
int vb_lane_finish(struct vb_coordinator *me, struct vb_lane *lane);
/* -VB_ELOST, once: it has found that a committed write is lost. */
static inline int vb_txn_tell_loss(struct vb_coordinator *me)
{
	if (vb_likely(!me->untold))
		return 0;
	me->untold = false;
	return -VB_ELOST;
}
/* A copy of the log that the transaction has left in its place: *log is NULL if it has none. */
int vb_recovery_log(struct vb_coordinator *me, uint32_t place, uint64_t ts, unsigned char **log,
		    uint32_t *bytes);
/* Its entry behind *at; NULL: there is no more.  `log` is what follows the head. */
const struct vb_log_entry *vb_log_next(const unsigned char *log, uint32_t bytes, uint32_t *at);
/* Memory (malloc's, NULL: there is none) that its coordinator frees if the task is killed. */
void *vb_recovery_keep(struct vb_coordinator *me, size_t bytes);
void vb_recovery_let_go(void *kept);
/* Frees what a task that was killed in a recovery has left. */
void vb_recover_drop_kept(struct vb_coordinator *me);

/* sweep.c: a place whose owner, `who`, is gone, or that `who` has adopted: nothing of its last transaction is left to
 * do.  *still is another if it has another owner by now. */
int vb_place_free(struct vb_coordinator *me, uint32_t place, vb_addr owner, uint64_t who,
		  uint64_t *still);

/* db.c: may coordinators have places that are far?  0, -EOPNOTSUPP: said. */
int vb_far_check(const struct vb_db *db);

/* adopt.c */
/* Takes places whose owner is gone: 0; -ENOSPC: there are none; -EAGAIN: another was quicker. */
int vb_adopt_number(struct vb_coordinator *me);
/* ... and finishes what was left there; its lanes and clock are open.  If that fails they are its own still. */
int vb_adopt_settle(struct vb_coordinator *me);

/* lane.c */
/* Until what is still under way has taken effect or never will: also in a task that is
 * cancelled. */
void vb_txn_wait_out(struct vb_coordinator *me, uint64_t ns);
/* The next timestamp is larger than this clock, unless it is beyond all reason. */
void vb_coordinator_saw(struct vb_coordinator *me, uint64_t clock);
int vb_coordinator_stamp(struct vb_coordinator *me, struct vb_lane *lane, uint64_t *ts);
/* 0; 1: others have changed the word; or an error.  What is due of a log goes there before. */
int vb_lane_status(struct vb_coordinator *me, struct vb_lane *lane, uint64_t to);
/* There are so many bytes of a log in lane->head, under that name. */
void vb_lane_log(struct vb_coordinator *me, struct vb_lane *lane, uint32_t bytes, uint64_t ts);
/* What is due of it is in its place.  0, or the fabric's error: it may be. */
int vb_lane_log_now(struct vb_coordinator *me, struct vb_lane *lane);
/* Before a name is given: by when its log is written to the copies. */
void vb_lane_log_by(const struct vb_coordinator *me, struct vb_lane *lane);
static inline bool vb_lane_log_over(const struct vb_coordinator *me, const struct vb_lane *lane)
{
	return lane->log_by_ns != 0 && vb_ep_now(me->ep) > lane->log_by_ns;
}

/* Before the lane's next log. */
void vb_lane_log_settle(struct vb_coordinator *me, struct vb_lane *lane);
/* The clock of its places, when it opens and closes. */
int vb_clock_open(struct vb_coordinator *me);
void vb_clock_close(struct vb_coordinator *me);
/* Names the next transaction, by old_ts if it is the last one tried again, and says that it runs:
 * 0 or the fabric's error. */
int vb_lane_name(struct vb_coordinator *me, struct vb_lane *lane, uint64_t old_ts);

/* coordinator.c */
/* With places at `node` that are reached by verbs alone, from an endpoint at `at`.  A client's endpoint is at its
 * home; in a simulation it may be elsewhere. */
int vb_coordinator_open_far(struct vb_db *db, uint16_t node, uint16_t at,
			    struct vb_coordinator **out);
void vb_coordinator_bury(struct vb_coordinator *me);
/* What the common time is ahead of the endpoint's. */
int64_t vb_coordinator_common(struct vb_ep *ep);

#endif
