/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a concurrency-control protocol is.
 *
 * A protocol is one file in src/cc with one `const struct vb_cc_ops`.  It consists of *stages*:
 * functions that do one step (lock, validate, ...) for a number of tuples, written once and run in
 * two places:
 *
 *	one-sided   in the coordinator's task, with verbs
 *	by RPC      in the task of the server of the tuples' node, on behalf of the coordinator,
 *	            with that node's own memory near (RCC section 4)
 *
 * The *hybrid code* (RCC section 5) says which, stage by stage.  Both work on the same words
 * with the same atomics, so every mixture is right if one is.  What a stage learns and what it
 * needs is in the items, which travel to the server and back.
 *
 * A stage never waits for another transaction: it says VB_ITEM_WAIT for an item and is run again
 * for it, after a pause and a look at whether the transaction may still wait.
 */
#ifndef VB_TXN_PROTOCOL_H
#define VB_TXN_PROTOCOL_H

#include <string.h>

#include "store/store.h"

/*
 * Timestamps, which name transactions (RCC section 4.3):
 *
 *	63                    18 17                    2 1     0
 *	+----------------------+-----------------------+-------+
 *	| clock, units of 2 us | place of coordinator  | state |
 *	+----------------------+-----------------------+-------+
 *
 * The clock is the coordinator's own, pushed on by every larger one that a stage brings back (in
 * the version of a record or in a word that was in the way), and larger with every transaction of
 * one place, whichever coordinator has it; 2^46 of its units are 4.5 years.  How far it may run
 * ahead of time: txn/lane.c.  Smaller is older.  A *place* is where a coordinator's
 * transaction states lie (txn/db.h).  In the words of tuples the state bits are the protocol's; in
 * a transaction's status word they are its state.
 */
#define VB_TS_CLOCK_SHIFT 11u /* of ns */
#define VB_TS_PLACE_SHIFT 2u
#define VB_TS_PLACE_BITS  16u
#define VB_TS_STATE       3u
#define VB_TS_FIRST_CLOCK 1u

static inline uint64_t vb_ts_make(uint64_t clock, uint32_t place)
{
	return clock << (VB_TS_PLACE_SHIFT + VB_TS_PLACE_BITS) | (uint64_t)place
									 << VB_TS_PLACE_SHIFT;
}

static inline uint32_t vb_ts_place(uint64_t ts)
{
	return ts >> VB_TS_PLACE_SHIFT & ((1u << VB_TS_PLACE_BITS) - 1);
}

static inline uint64_t vb_ts_clock(uint64_t ts)
{
	return ts >> (VB_TS_PLACE_SHIFT + VB_TS_PLACE_BITS);
}

/* What a status word, a version, or a lock word that is a timestamp, is without its state. */
static inline uint64_t vb_ts_name(uint64_t word)
{
	return word & ~(uint64_t)VB_TS_STATE;
}

#define VB_PLACES_EACH 4u /* of a coordinator */
#define VB_PLACES_TXN  2u /* of those, for transactions; the others recover */

/* Who rolls a transaction forward holds its tuples by a younger name of its own: when the version that it
 * writes is from, its name does not say. */
static inline bool vb_ts_mends(uint64_t ts)
{
	return vb_ts_place(ts) % VB_PLACES_EACH >= VB_PLACES_TXN;
}

/* States in a status word.  One word has the transaction's name and its state, so that a wound or a
 * recovery cannot hit the next transaction of the place. */
enum vb_txn_state {
	/* Rolled back by another; the name is never used again. */
	VB_TS_RECOVERED = 0,
	VB_TS_RUNNING = 1,
	VB_TS_COMMITTED = 2,
	VB_TS_ABORTED = 3,
};

extern const char *const vb_txn_cause_names[VB_TXN_CAUSES];

enum vb_item_flags {
	VB_ITEM_READ = 1 << 0,
	VB_ITEM_WRITE = 1 << 1,
	/* The record need not be fetched: it will be replaced. */
	VB_ITEM_BLIND = 1 << 2,
	/* Image and version are there. */
	VB_ITEM_FETCHED = 1 << 3,
	/* This transaction holds it exclusively: `held` is the lock word; or shared, in `slot`. */
	VB_ITEM_HELD_X = 1 << 4,
	VB_ITEM_HELD_S = 1 << 5,
	/* A lock was asked for and the answer was lost: exclusive, shared. */
	VB_ITEM_MAYBE = 1 << 6,
	VB_ITEM_MAYBE_S = 1 << 7,
	/* ... by a call whose answer was lost: the server is asked to undo it. */
	VB_ITEM_ASKED = 1 << 8,
	/* On its way to a server: the image must come back. */
	VB_ITEM_WANTED = 1 << 9,
	/* When it was let go, its lock word was another's. */
	VB_ITEM_LOST = 1 << 10,
	/* `fetched` is there: only where somebody watches. */
	VB_ITEM_NOTED = 1 << 11,
	/* It was read, and its lock given back, or none was taken: others may write it. */
	VB_ITEM_LET_GO = 1 << 12,
	/* ... and a call has given what was read: the next one reads the key anew. */
	VB_ITEM_GIVEN = 1 << 13,
};

/* seen_slot: the reserved word. */
#define VB_SEEN_RESERVED 255u
/* status: not now; other values are 0 or an enum vb_txn_cause. */
#define VB_ITEM_WAIT 100

/* A tuple of a transaction. */
struct vb_item {
	struct vb_table *table;
	uint64_t key;
	vb_addr at;
	uint16_t flags;
	/* Of a shared lock of ours, from 1. */
	uint8_t slot;
	uint8_t status;
	/* Where `seen` was: 0: in the lock word; else in this slot of the meta words, from 1. */
	uint8_t seen_slot;
	/* The slot of the tuple that the commit writes. */
	uint8_t to_slot;
	/* The word that is in the way. */
	uint64_t seen;
	/* The version that was fetched. */
	uint64_t version;
	/* The version in the image when it came: the engine's, for histories. */
	uint64_t fetched;
	/* sundial: until when the version is good.  to-cascade: by what word somebody held the record who had
	 * yet to commit what was read of it; else 0. */
	uint64_t lease;
	/* The lock word that is ours. */
	uint64_t held;
	/* The version that the commit gives it. */
	uint64_t next;
	/* The tuple as it was fetched, with the record as it shall be.  Of several versions, the one
	 * that the transaction has stands in the first slot: see vb_item_take_slot.  Before it lies what
	 * is the protocol's own: see vb_item_own. */
	unsigned char *image;
};

struct vb_db;

/* A stage has at most so many items at a time: four verbs for each fit in a doorbell. */
#define VB_STAGE_ITEMS (VB_BATCH_MAX / 4)

/* Where and for whom a stage runs. */
struct vb_stage {
	struct vb_db *db;
	struct vb_acc *acc;
	uint64_t ts;
	/* sundial; in and out. */
	uint64_t commit_ts;
	/* Of VB_CC_SNAPSHOTS: what is read is as it was at this time, and `ts` has yet to be given or is only
	 * that of what is written (txn/snapshot.c); 0: it is read at `ts`. */
	uint64_t snapshot;
	/* Out: the largest timestamp that it has come across, but for versions and words in the way. */
	uint64_t saw;
	/* Out: the fabric's, with status VB_TXN_FABRIC. */
	int err;
	/* At the server: the coordinator may have been given up meanwhile. */
	bool for_other;
	/* The commit stage posts and does not wait. */
	bool passive;
	/* What has to wait has done so for as long as it may: see VB_CC_BOUNDED. */
	bool impatient;
	/* enum vb_isolation: what is promised of what is read, for VB_CC_SHORT_READS without
	 * VB_CC_READ_LOCKS.  Of what has to be of one moment that is VB_SERIALIZABLE, whatever the
	 * transaction has asked for. */
	uint8_t isolation;
};

enum vb_stage_flags {
	/* Brings the image. */
	VB_STAGE_FETCHES = 1 << 0,
	/* Needs the record. */
	VB_STAGE_WRITES = 1 << 1,
	/* A key without a tuple gets one. */
	VB_STAGE_MAKES = 1 << 2,
	/* Brings keys in place of tuples: the engine's own (txn/scan.c). */
	VB_STAGE_LISTS = 1 << 3,
	/* By RPC nothing comes back but a vote of each server, by one atomic: yes if no item has a status (txn/vote.c).
	 * It takes nothing. */
	VB_STAGE_VOTES = 1 << 4,
};

struct vb_stage_ops {
	const char *name;
	uint32_t flags;
	/* For each item: status 0, VB_ITEM_WAIT, or why the transaction must abort. */
	void (*run)(struct vb_stage *s, struct vb_item **items, unsigned n);
};

#define VB_STAGES_MAX 6u
/* A hybrid code, with the log's digit and its end. */
#define VB_CODE_BYTES (VB_STAGES_MAX + 2)

enum vb_cc_caps {
	/* Strictly serializable. */
	VB_CC_STRICT = 1 << 0,
	/* Needs the status word even without recovery. */
	VB_CC_STATUS = 1 << 1,
	/* A transaction that is tried again keeps its timestamp. */
	VB_CC_AGE = 1 << 2,
	/* Readers hold together. */
	VB_CC_SHARED = 1 << 3,
	/* A transaction that waits looks neither at its own status nor at the time. */
	VB_CC_BLIND_WAIT = 1 << 4,
	/* What was read is held until the commit, and let go by release. */
	VB_CC_READ_LOCKS = 1 << 5,
	/* Versions and lock words are not timestamps: no clock is pushed on. */
	VB_CC_LOGICAL = 1 << 6,
	/* Nobody waits for another's lock. */
	VB_CC_NEVER_WAITS = 1 << 7,
	/* An older transaction waits for younger ones only; a younger one ends for older ones only. */
	VB_CC_WAIT_DIE = 1 << 8,
	/* It offers repeatable read and read committed.  With VB_CC_READ_LOCKS what was read may be released
	 * by itself, before the commit; without, a stage that reads heeds `isolation`. */
	VB_CC_SHORT_READS = 1 << 9,
	/* Whoever waits, for whomever, does so for a bounded time only (vb_db_params.wait_ns). */
	VB_CC_BOUNDED = 1 << 10,
	/* It offers snapshots: versions are the names of those who have written them, what is written is
	 * locked before the commit, and a stage that fetches heeds `snapshot`. */
	VB_CC_SNAPSHOTS = 1 << 11,
	/* Whoever waits does so for an older one, or for who rolls one forward. */
	VB_CC_WAITS_OLDER = 1 << 12,
	/* What it writes is in place before it is decided: see txn/install.c. */
	VB_CC_INSTALLS = 1 << 13,
	/* Whoever waits holds no lock word, and waits for one, or for a reader's word and has none that comes
	 * behind (vb_item_is_before). */
	VB_CC_IN_ORDER = 1 << 14,
	/* Records have a temperature (vb_db_params.hot_from). */
	VB_CC_HEATS = 1 << 15,
	/* All that a transaction touches is declared in one call, and then locked by the servers in an order that
	 * they have agreed on before (txn/epoch.h): by `grant`, one of the stages, which no coordinator runs for
	 * what it does not hold. */
	VB_CC_SEQUENCED = 1 << 16,
	/* Of VB_CC_LOGICAL: there is a last time, of which sundial's words tell. */
	VB_CC_TIME_ENDS = 1 << 17,
	/* What others must know of a transaction stands in its node's memory beside status word and log: these have no
	 * copies, and are not another process's. */
	VB_CC_AT_HOME = 1 << 18,
	/* Of VB_STAGE_VOTES: a vote does not say whose it is (txn/vote.c). */
	VB_CC_NAMELESS_VOTES = 1 << 19,
};

struct vb_txn;

/* What stands in a word of a tuple.  By a word of the first three kinds somebody is in the way of others:
 * recovery and checkers look at those, and at no data. */
enum vb_word_kind {
	VB_WORD_LOCK,   /* the lock word: whose it is says `whose` */
	VB_WORD_READER, /* the timestamp of a transaction that reads; 0: nobody's */
	VB_WORD_WAITER, /* the same of one that waits */
	VB_WORD_DATA,   /* names nobody */
};

/* Words in a row, between a tuple's key and its lock word. */
struct vb_cc_word {
	uint16_t at;  /* in the tuple */
	uint8_t kind; /* enum vb_word_kind */
	uint8_t n;
};

/* The transaction that a word names, which need not have room for its whole timestamp.  shown: the bits
 * of ts that it has, all of the place among them; 0: it names nobody. */
struct vb_word_name {
	uint64_t ts, shown;
};

struct vb_cc_ops {
	const char *name, *summary, *source;
	/* enum vb_cc_caps. */
	uint32_t caps;
	/* enum vb_cap_flags of the fabric: cannot run without. */
	uint32_t needs;
	/* Of a tuple; a multiple of 16. */
	uint32_t meta_bytes;
	/* What stands in the words before the lock word; those that are not here are not used. */
	const struct vb_cc_word *words;
	unsigned n_words;
	/* Versions of a record that a tuple keeps; 0: 1.  If there are more, then versions of a record grow. */
	unsigned slots;
	const struct vb_stage_ops *stages;
	unsigned n_stages;
	/*
	 * Memory of the protocol's own, which the engine has and zeroes: of an item (a multiple of 16, up to
	 * VB_ITEM_OWN_MAX), from when it is made; of a transaction, from its begin; of a coordinator, from
	 * its opening, for all of its transactions.  That of an item is there in every stage, by RPC as
	 * well; of a commit stage that a recovery runs it is zero.  The others are for read, write and
	 * prepare.
	 */
	uint32_t item_bytes, txn_bytes, coordinator_bytes;
	/* Of the stages, those which the engine runs by itself.  The last two of VB_CC_INSTALLS: `install` puts in
	 * place what is written, and lets nothing go; `undo` writes what the item has, and lets it go, as the commit
	 * stage of the others does; `commit` then has nothing left to write. */
	unsigned commit, release, install, undo, grant;
	/* A name for another protocol with one hybrid code: that code, and whose it is.  NULL: it takes any. */
	const char *code, *code_of;

	/* Makes the items readable, or writable.  0 or -EAGAIN, from vb_txn_stage. */
	int (*read)(struct vb_txn *t, struct vb_item **items, unsigned n);
	int (*write)(struct vb_txn *t, struct vb_item **items, unsigned n);
	/* Runs what must be done before the transaction may commit. */
	int (*prepare)(struct vb_txn *t);
	/* Decides whether it commits; what VB_CC_INSTALLS writes is in place.  0, -EAGAIN: it must end, or the
	 * error that leaves it unknown.  NULL: vb_txn_point. */
	int (*decide)(struct vb_txn *t);

	/*
	 * The lock word: of a tuple with that version that nobody holds; while the transaction `ts`
	 * holds it; and who holds it by that word.  `was`: the word before.  A held word names one
	 * lock: once it was let go it never comes back, but for the same transaction's where it lets go
	 * of what it has read (txn/reads.c).
	 */
	uint64_t (*unlocked)(uint64_t version, uint64_t was);
	uint64_t (*locked)(uint64_t ts, uint64_t was);
	struct vb_word_name (*whose)(uint64_t word);
	/* A protocol that is wrong: the rule (check/txn/explore.h) or the anomaly
	 * (check/txn/serial.h) by which the checkers must find it. */
	const char *planted;
};

/* May a transaction be begun so, where the database has what it needs? */
static inline bool vb_cc_offers(const struct vb_cc_ops *cc, enum vb_isolation isolation)
{
	if (isolation == VB_SERIALIZABLE)
		return true;
	return cc->caps & (isolation == VB_SNAPSHOT ? VB_CC_SNAPSHOTS : VB_CC_SHORT_READS);
}

static inline bool vb_cc_installs(const struct vb_cc_ops *cc)
{
	return cc->caps & VB_CC_INSTALLS;
}

/* If not, its logs can have copies (txn/copies.c), and a coordinator's places be another process's (txn/adopt.c): what
 * stands there is changed by atomics and logs alone, and its status word says whether it is committed. */
static inline bool vb_cc_at_home(const struct vb_cc_ops *cc)
{
	return cc->caps & VB_CC_AT_HOME;
}

static inline bool vb_cc_sequenced(const struct vb_cc_ops *cc)
{
	return cc->caps & VB_CC_SEQUENCED;
}

static inline unsigned vb_cc_slots(const struct vb_cc_ops *cc)
{
	return cc->slots != 0 ? cc->slots : 1;
}

#define VB_NO_PLACE UINT32_MAX

/* Of a word that is a timestamp. */
static inline struct vb_word_name vb_ts_named(uint64_t word)
{
	return (struct vb_word_name){.ts = word & ~(uint64_t)VB_TS_STATE,
				     .shown = word != 0 ? ~(uint64_t)VB_TS_STATE : 0};
}

static inline uint32_t vb_name_place(struct vb_word_name name)
{
	return name.shown != 0 ? vb_ts_place(name.ts) : VB_NO_PLACE;
}

/* May it be that transaction's? */
static inline bool vb_name_fits(struct vb_word_name name, uint64_t ts)
{
	return name.shown != 0 && ((name.ts ^ ts) & name.shown) == 0;
}

/* A word of a tuple that names somebody. */
struct vb_named_word {
	uint64_t word;
	uint32_t place;
	uint16_t at;  /* in the tuple */
	uint8_t kind; /* enum vb_word_kind */
};
/* In a tuple at most: the header before the version has so many words. */
#define VB_NAMED_WORDS_MAX 32u

/* All of a tuple, of which at least what comes before the version is there, the lock word last; how
 * many. */
unsigned vb_words_named(const struct vb_cc_ops *cc, const void *tuple,
			struct vb_named_word out[VB_NAMED_WORDS_MAX]);

/* All protocols, in the order of `verbena list`; those of VB_CC_SEQUENCED; those as their papers print them; and
 * by name. */
extern const struct vb_cc_ops *const vb_ccs[];
extern const struct vb_cc_ops *const vb_ccs_declared[];
extern const struct vb_cc_ops *const vb_ccs_published[];
const struct vb_cc_ops *vb_cc_find(const char *name);
/* The stages that run by RPC, as bits, of a hybrid code in digits, and above them whether copies of the log are
 * written by RPC.  -EINVAL: it is none of this protocol's; or_say: what the log offers beside. */
int vb_cc_code(const struct vb_cc_ops *cc, const char *code, const char *or_say, uint32_t *by_rpc);
/* May it run so?  code: digits, or a word that stands for some; NULL: nothing was asked for. */
static inline bool vb_cc_takes(const struct vb_cc_ops *cc, const char *code)
{
	/* Behind it may stand the log's digit. */
	return cc->code == NULL || code == NULL ||
	       (strncmp(code, cc->code, cc->n_stages) == 0 && strspn(code, "01") == strlen(code));
}
/* Adds a NULL-terminated list to what vb_cc_find finds; for tests and planted bugs. */
void vb_cc_register(const struct vb_cc_ops *const *more);

/* Runs a stage for some items, here or at their owners as the hybrid code says, and again as long
 * as it says VB_ITEM_WAIT.  0, or -EAGAIN with the cause noted: the transaction must end. */
int vb_txn_stage(struct vb_txn *t, unsigned stage, struct vb_item **items, unsigned n);
/* The same for all of the transaction's items that have every flag of `all` and none of `none`. */
int vb_txn_stage_all(struct vb_txn *t, unsigned stage, uint16_t all, uint16_t none);
/* The status word, from running to committed.  0, -EAGAIN: it has been wounded or recovered, or the error that
 * leaves it unknown. */
int vb_txn_point(struct vb_txn *t);
/* Gives the locks of items back that were only read.  0, or -EAGAIN. */
int vb_txn_let_go(struct vb_txn *t, struct vb_item **items, unsigned n);

#define VB_ITEM_OWN_MAX 64u

/* The protocol's own memory, of which it has asked for item_bytes. */
static inline void *vb_item_own(const struct vb_item *it, uint32_t item_bytes)
{
	return it->image - item_bytes;
}

void *vb_txn_own(const struct vb_txn *t);
void *vb_txn_coordinator_own(const struct vb_txn *t);

/* What a stage may read of its surroundings. */
bool vb_stage_sealed(const struct vb_stage *s);
/* Does one READ bring a tuple's lock word and the version behind it as they were at one moment? */
bool vb_stage_pair_whole(const struct vb_stage *s);
/* How long who waits pauses between two looks, at most. */
uint64_t vb_stage_look_ns(const struct vb_stage *s);
/* The status word of the transaction's place; there is one: vb_stage_has_place. */
vb_addr vb_stage_status_addr(const struct vb_stage *s, uint32_t place);

/* Is the place's status word gone with its node, and nobody's to ask? */
bool vb_stage_place_gone(const struct vb_stage *s, uint32_t place);

bool vb_stage_has_place(const struct vb_stage *s, uint32_t place);

/* A timestamp that is neither an item's version nor the word in its way: the clock follows it, too. */
static inline void vb_stage_saw(struct vb_stage *s, uint64_t ts)
{
	if (ts > s->saw)
		s->saw = ts;
}

/* Runs the verbs that were asked for; if one fails, every item ends with VB_TXN_FABRIC and false
 * comes back. */
bool vb_stage_go(struct vb_stage *s, struct vb_item **items, unsigned n);

/* ---- what most protocols' stages have in common ---- */

static inline vb_addr vb_item_word(const struct vb_item *it, uint32_t at)
{
	return it->at + at;
}

static inline const struct vb_tuple_layout *vb_item_layout(const struct vb_item *it)
{
	return &it->table->layout;
}

/* The order in which VB_CC_IN_ORDER waits: the same for all transactions, wherever a tuple lies. */
static inline bool vb_item_is_before(const struct vb_item *a, const struct vb_item *b)
{
	return a->table->id != b->table->id ? a->table->id < b->table->id : a->key < b->key;
}

/* The stage will want these tuples: said before its first verb (store/access.h). */
void vb_stage_hint(struct vb_stage *s, struct vb_item **items, unsigned n);
/* In the item's image, as the transaction has read or made it. */
static inline bool vb_item_has_record(const struct vb_item *it)
{
	return !(vb_tuple_word(it->image, vb_item_layout(it)->version_at) & VB_VERSION_ABSENT);
}

/* The version in this slot of the image becomes the item's. */
static inline void vb_item_take_slot(struct vb_item *it, unsigned slot)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);

	if (slot != 0)
		memcpy(it->image + l->version_at,
		       it->image + l->version_at + vb_slot_behind(l, slot),
		       l->one_bytes - l->version_at);
}

/* Moves the items that have every flag of `all` and none of `none` to the front: how many. */
static inline unsigned vb_items_to_front(struct vb_item **items, unsigned n, uint16_t all,
					 uint16_t none)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if ((it->flags & (all | none)) != all)
			continue;
		items[i] = items[m];
		items[m++] = it;
	}
	return m;
}

/* READ of the tuple with all its slots, or only of what comes before the record if that is not wanted and
 * there is one slot. */
void vb_stage_read_tuple(struct vb_stage *s, struct vb_item *it);
/* Is what was read the tuple of the item's key?  If not, its place has to be looked up again. */
bool vb_item_is_key(const struct vb_item *it);
/*
 * The commit stage of every protocol: WRITEs version (item->next), seal and record of each tuple, into
 * item->to_slot, and then sets its lock word from `held` to what `freed` says.  mark: where tuples have no seal,
 * and readers read what is locked, the version word has this bit while the record is being written;
 * 0: nobody reads then.
 */
void vb_stage_commit(struct vb_stage *s, struct vb_item **items, unsigned n, uint64_t mark,
		     uint64_t (*freed)(const struct vb_item *it));

/* That WRITE alone, for a protocol that writes at another time. */
void vb_stage_write_tuple(struct vb_stage *s, struct vb_item *it);
/* The install stage of every protocol: those WRITEs, of tuples that stay held, and have seals.  One that is not held
 * any more, which only a server looks at, ends with VB_TXN_RECOVERED. */
void vb_stage_install(struct vb_stage *s, struct vb_item **items, unsigned n);
/* ... and their commit stage: what is in place is let go.  Others may have done that already. */
void vb_stage_let_go(struct vb_stage *s, struct vb_item **items, unsigned n,
		     uint64_t (*freed)(const struct vb_item *it));

#endif
