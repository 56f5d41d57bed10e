/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where records lie, and how they are found.
 *
 * A *tuple* is a record and its metadata side by side (RCC section 3.2, RCBench section 3):
 *
 *	 0    8          16            16+m   24+m    32+m   40+m
 *	+-----+----------+-------------+------+---------+------+-----------------+
 *	| key | reserved | meta, m     | lock | version | seal | record ...      |
 *	+-----+----------+-------------+------+---------+------+-----------------+
 *
 *	key        whose tuple this is: what a stale address is found out by
 *	meta       the protocol's own words, m = 16 * n bytes (`meta_bytes` in its ops)
 *	lock       the protocol's lock word, 16-byte aligned with version behind it
 *	version    of the record: unique among the versions of the key.  Bit 0 belongs to the protocol, bit 1
 *	           says that there is no record (not yet inserted, or deleted)
 *	seal       a hash of version and record, where the database is *sealed*
 *
 * version, seal and record are written with one WRITE; the lock word only by atomics.
 *
 * A protocol that keeps several versions of a record has tuples with as many *slots*, each with a version,
 * a seal and a record of its own, one behind the other; a version of 0 says that the slot was never
 * written.  Its versions grow, and each takes the place of the oldest.  Slots are filled in turn, so the
 * oldest lies behind the newest.  Who reads a version while another takes its place finds it torn, or
 * finds the other.
 *
 * Whole reads.  A READ of a tuple may be torn: at 16 bytes, or at 8, and in any order.  A reader
 * that has no lock tells a whole record from a torn one in one of two ways:
 *
 *	sealed     the seal of what it read is right.  A torn one passes with a chance of 2^-64.  Costs the hash:
 *	           about 5 ns for 64 bytes and 50 ns for 1 KB, at the writer and at each reader
 *	otherwise  it reads the lock word (or the version) before the READ of the tuple is posted, and once more
 *	           after it has completed: nobody held the lock at the first look, and nobody has changed the
 *	           version until the second, so nobody wrote in between.  Costs two loads where verbs complete at
 *	           once; elsewhere it would be two round trips
 *
 * So a database is sealed wherever verbs do not complete at once; and everywhere where what was written may be
 * undone, for that brings a version back:
 *
 *	R   version: 3   READ: half of version 3,                 half of version 8                  version: 3
 *	W                                          WRITE version 8                  undo: WRITE 3
 *
 * The *index* of a table on a node is a three-way cuckoo hash table of 16-byte slots
 * (store/index.c); at most three READs find a key's address.  Only the node's server changes it.
 */
#ifndef VB_STORE_STORE_H
#define VB_STORE_STORE_H

#include <verbena/txn.h>

#include "store/access.h"

#define VB_VERSION_ABSENT 2u /* bit: no record */
#define VB_VERSION_NONE   2u /* of a tuple that never had a record */
#define VB_VERSION_LOADED 4u /* of what vb_table_load put there */

struct vb_tuple_layout {
	uint32_t meta_bytes, record_bytes;
	uint32_t lock_at;
	uint32_t version_at, seal_at, record_at; /* in the first slot */
	uint32_t slots, slot_bytes;              /* from one slot to the next */
	uint32_t one_bytes;                      /* up to the end of the first slot */
	uint32_t blind_bytes;                    /* that are read where no record is wanted */
	uint32_t bytes;
	uint32_t beside_at; /* what its table has beside each tuple: the key map of a range */
	uint32_t stride;    /* from one tuple to the next */
};
#define VB_TUPLE_KEY_AT      0u
#define VB_TUPLE_RESERVED_AT 8u
#define VB_TUPLE_META_AT     16u

#define VB_SLOTS_MAX 8u
#define VB_SLOT_HEAD 16u /* version and seal, before the record */

void vb_tuple_layout_init(struct vb_tuple_layout *l, uint32_t meta_bytes, uint32_t slots,
			  uint32_t record_bytes);
/* So many bytes beside each tuple, in whole words. */
void vb_tuple_layout_beside(struct vb_tuple_layout *l, uint32_t bytes);

/* The largest record, in whole words, whose tuple one READ brings on every fabric. */
uint32_t vb_tuple_record_most(uint32_t meta_bytes, uint32_t slots);

static inline uint64_t vb_tuple_word(const void *tuple, uint32_t at)
{
	uint64_t w;

	memcpy(&w, (const char *)tuple + at, 8);
	return w;
}

static inline void vb_tuple_set_word(void *tuple, uint32_t at, uint64_t w)
{
	memcpy((char *)tuple + at, &w, 8);
}

/* What lies at version_at, seal_at and record_at in the first slot lies so much further in this one. */
static inline uint32_t vb_slot_behind(const struct vb_tuple_layout *l, unsigned slot)
{
	return slot * l->slot_bytes;
}

static inline uint64_t vb_slot_version(const struct vb_tuple_layout *l, const void *tuple,
				       unsigned slot)
{
	return vb_tuple_word(tuple, l->version_at + vb_slot_behind(l, slot));
}

/* The slot of the newest version, while nobody writes. */
static inline unsigned vb_tuple_newest(const struct vb_tuple_layout *l, const void *tuple)
{
	unsigned newest = 0;

	for (unsigned i = 1; i < l->slots; i++)
		if (vb_slot_version(l, tuple, i) > vb_slot_version(l, tuple, newest))
			newest = i;
	return newest;
}

/* Of the first slot. */
uint64_t vb_tuple_seal(const struct vb_tuple_layout *l, const void *tuple);
/* Is the record that of the version?  Only in a sealed database. */
static inline bool vb_tuple_whole(const struct vb_tuple_layout *l, const void *tuple)
{
	return vb_tuple_word(tuple, l->seal_at) == vb_tuple_seal(l, tuple);
}

/*
 * The header of a region, which several processes may come to at the same time: who finds its magic
 * word 0 fills it, or whose filler was killed.  1: fill the header, with the same stores as anybody
 * else, then say vb_header_filled; 0: it is filled; -ETIMEDOUT: somebody who lives has begun to fill it
 * and does not come to an end.
 */
int vb_header_claim(uint64_t *magic);
void vb_header_filled(uint64_t *magic, uint64_t value);
/* From afar: waits until it is filled, and reads the layout that stands behind the magic.  -ETIMEDOUT (not said), or
 * the fabric's error. */
#define VB_HEADER_PATIENCE_NS 10000000000ull
int vb_header_read(struct vb_fabric *f, vb_addr header, uint64_t magic, uint64_t *layout);

/* ---- the index ---- */

struct vb_slot {
	uint64_t key;
	uint64_t ref; /* 0: empty; offset of the tuple (48), check of key and offset (16) */
};
_Static_assert(sizeof(struct vb_slot) == 16, "a slot is read whole where 16 bytes are");

#define VB_INDEX_WAYS 3u

/* In the node's memory, at the start of the table's region; only the node's server writes it. */
struct vb_table_header {
	uint64_t magic, layout;   /* hash of what every process must agree on */
	uint64_t room, tuples;    /* tuples there is room for, and in use */
	uint64_t index_at, slots; /* offset in the segment */
	uint64_t generation;      /* of the index: how often it was resized */
	uint64_t moves;           /* odd while a key moves from one slot to another, or the index */
	uint64_t keys;
	uint64_t hidden; /* keys that ever were: store/places.h */
	uint64_t unused[6];
};
_Static_assert(sizeof(struct vb_table_header) == 128, "two lines");

/* What a process knows about a node's index; it may be behind by a resize. */
struct vb_index_view {
	vb_addr at;
	uint64_t slots, generation;
};

uint64_t vb_index_slot_of(uint64_t key, unsigned way, uint64_t slots);
uint64_t vb_index_ref(uint64_t key, uint64_t offset);
/* Of a slot that holds the key: the tuple's offset, else 0. */
uint64_t vb_index_match(const struct vb_slot *s, uint64_t key);

/* The owner's side, on its own memory.  Single writer; remote readers may read at any time. */
struct vb_index {
	struct vb_table_header *header;
	char *segment; /* of the node */
	/* Makes room for n slots: offset of zeroed memory, or 0. */
	uint64_t (*more)(void *ctx, uint64_t generation, uint64_t slots);
	void *ctx;
	uint64_t kicks, resizes;
};
uint64_t vb_index_find(const struct vb_index *x, uint64_t key);
/* -EEXIST, -ENOSPC: no memory for a larger one. */
int vb_index_insert(struct vb_index *x, uint64_t key, uint64_t offset);
/* A reader that does not know of a larger index yet still finds the key, if it was there when the
 * index became larger: nobody may use its tuple for another key. */
bool vb_index_delete(struct vb_index *x, uint64_t key);
/* From afar the key is not found any more; it is again, and was not before. */
void vb_index_hide(struct vb_index *x, uint64_t key);
bool vb_index_show(struct vb_index *x, uint64_t key);
bool vb_index_is_hidden(const struct vb_index *x, uint64_t key);
/* By a new owner, whose predecessor may have died at any instruction. */
void vb_index_repair(struct vb_index *x);

/* ---- tables ---- */

/* What all tables of a database have in common. */
struct vb_store {
	struct vb_fabric *fabric;
	uint16_t nodes;       /* that have keys, the first ones of the fabric */
	const char *name;     /* of the database */
	const char *protocol; /* that the tuples are laid out for */
	uint32_t meta_bytes, slots;
	uint32_t record_bytes_max;
	bool sealed;
	/* The protocol's lock word of a tuple that nobody holds; was: the word before, 0 for a new
	 * tuple. */
	uint64_t (*unlocked)(uint64_t version, uint64_t was);
	/* Places are given to other keys (store/places.h): so long after they were hidden; 0: they are not.  Does
	 * nobody hold the tuple, and is all that is in it of a time before that one?  told: a key has lost its
	 * place, or got one that was another's, with that version; may be NULL. */
	uint64_t grace_ns;
	bool (*at_rest)(const struct vb_store *store, const struct vb_tuple_layout *l,
			const void *tuple, uint64_t common_ns);
	void (*told)(const struct vb_store *store, const struct vb_table *t, uint64_t key,
		     uint64_t version, bool given);
	struct vb_table *table[VB_TABLES_MAX];
	unsigned n_tables;
	bool opening; /* atomic: a call is at it, vb_store_open_begin */
};

#define VB_REGION_NAME 48u /* on any fabric, with its end */

struct vb_table_node {
	struct vb_fabric *fabric;
	char region[VB_REGION_NAME]; /* its name */
	vb_addr header;              /* of the region */
	struct vb_index_view view;
	struct vb_index
		index; /* where this process reaches the node's memory; header NULL elsewhere */
	/* Of an ordered table, where the node's server is ours: its keys, and of how many tuples. */
	struct vb_ordered *order;
	uint64_t in_order;
	struct vb_places
		*places; /* where the node's server is ours, as soon as it is short of room */
	bool loading;    /* atomic: a call of vb_table_load is at it */
};

struct vb_table {
	struct vb_store *store;
	char name[32];
	uint16_t id;
	uint64_t records;
	uint64_t asked, room,
		slots; /* of each node: tuples that were asked for, and that there are */
	enum vb_partition partition;
	uint64_t group; /* so many keys in a row lie on one node; 1 */
	struct vb_tuple_layout layout;
	struct vb_table_node *node;
	struct vb_table *ranges;    /* of an ordered table, that of its ranges; else NULL */
	struct vb_table *ranges_of; /* of a table of ranges, that whose they are; else NULL */
	unsigned range_shift;       /* of both */
};

/* Slots of an index for so many keys: the load factor is at most 0.75. */
uint64_t vb_table_slots(uint64_t room);
uint64_t vb_table_room(const struct vb_table_params *p, uint16_t nodes);
/* Around a call that opens tables: 0, or -EBUSY, said: another thread is at it. */
int vb_store_open_begin(struct vb_store *store);
void vb_store_open_end(struct vb_store *store);
/* group: as in struct vb_table.  beside: bytes beside each tuple.  same: what else all who open it must agree
 * on. */
int vb_store_table_open(struct vb_store *store, const struct vb_table_params *p, uint64_t group,
			uint32_t beside, uint64_t same, struct vb_table **out);
/* What the parameters alone say against it. */
int vb_store_table_check(const struct vb_store *store, const struct vb_table_params *p);
/* Undoes the last open. */
void vb_store_table_undo(struct vb_store *store, struct vb_table *t);
uint64_t vb_store_table_bytes(const struct vb_table_params *p, uint32_t meta_bytes, uint32_t slots,
			      uint32_t beside, uint16_t nodes);
void vb_table_free(struct vb_table *t);

/* When something is done: by the owner's clock, and a time that is past by everybody's. */
struct vb_store_now {
	uint64_t ns, common_ns;
};

/* At the owner, by the node's server: the tuple of the key, made without a record if there is none.  -ENOSPC. */
int vb_table_ensure(struct vb_table *t, uint16_t node, uint64_t key, const struct vb_store_now *now,
		    vb_addr *out);
/* At the owner: 0 if there is none. */
vb_addr vb_table_find(struct vb_table *t, uint16_t node, uint64_t key);

/* ---- a copy of what is elsewhere: mirror.c ---- */

/* From here on vb_table_find finds the tuples of a node whose memory is another process's, in a copy as it is now, and
 * index.segment of the node is that copy's beginning.  For who looks while nobody writes; no transaction may run in
 * this process before vb_table_unmirror.  0, -ENOMEM, said, or the fabric's error. */
int vb_table_mirror(struct vb_table *t, uint16_t node, struct vb_ep *ep);
/* If there is one. */
void vb_table_unmirror(struct vb_table *t, uint16_t node);

/* ---- ordered tables: ranges.c ---- */

struct vb_ordered;

/* What is wrong with the parameters by which a table is ordered, or not. */
int vb_ranges_check(const struct vb_table_params *p);
unsigned vb_ranges_shift(const struct vb_table_params *p);
/* The table of its ranges; name: room for its name. */
struct vb_table_params vb_ranges_params(const struct vb_table_params *p, char name[32]);

/* The first key of the range: the key of the range's own tuple. */
static inline uint64_t vb_table_range(const struct vb_table *t, uint64_t key)
{
	return key >> t->range_shift << t->range_shift;
}

static inline uint64_t vb_table_range_end(const struct vb_table *t, uint64_t key)
{
	return vb_table_range(t, key) | ((1ull << t->range_shift) - 1);
}

/* At the owner, by the node's server.  The first: it has a new one.  -ENOMEM. */
int vb_table_order_anew(struct vb_table *t, uint16_t node);
/* The keys on the node that have a tuple, from `from` up, or down, to `to`, both included: how many, or
 * -ENOMEM.  There may be more if there are `most`. */
int vb_table_list(struct vb_table *t, uint16_t node, uint64_t from, uint64_t to, uint64_t *keys,
		  unsigned most);
void vb_table_order_close(struct vb_table_node *n);
/* The key is about to have a tuple: its range's map has it before anybody can find it. */
void vb_ranges_note(struct vb_table *t, uint16_t node, uint64_t key);
/* The tuple that it is about to have was another's: the order has that behind it.  -ENOMEM. */
int vb_ranges_put(struct vb_table *t, uint16_t node, uint64_t key);
/* It has no tuple any more. */
void vb_ranges_drop(struct vb_table *t, uint16_t node, uint64_t key);
/* The tuple of a range that nobody can find yet gets its map.  -ENOMEM. */
int vb_ranges_draw_map(struct vb_table *ranges, uint16_t node, uint64_t key, char *tuple);

/* ---- finding tuples from afar ---- */

struct vb_find {
	struct vb_table *table;
	uint64_t key;
	vb_addr at;    /* out; 0: no such key, at one moment during the call */
	uint16_t node; /* out */
};
/* Looks up n keys with READs, at most three rounds of them (more only for keys that are not there).
 */
int vb_store_find(struct vb_acc *a, struct vb_find **f, unsigned n);

/* The process's cache of addresses; what it says is a guess, which the tuple's own key confirms. */
struct vb_cache;
int vb_cache_open(uint32_t entries, struct vb_cache **out);
void vb_cache_close(struct vb_cache *c);
/* epoch: when it was learned, or is now; what is older than the epoch before is forgotten. */
vb_addr vb_cache_get(const struct vb_cache *c, const struct vb_table *t, uint64_t key,
		     uint32_t epoch);
void vb_cache_put(struct vb_cache *c, const struct vb_table *t, uint64_t key, vb_addr at,
		  uint32_t epoch);
void vb_cache_drop(struct vb_cache *c, const struct vb_table *t, uint64_t key);

#endif
