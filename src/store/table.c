/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Tables: the layout of their tuples, and what the owner of a node does with them.
 *
 * On each node a table is one region:
 *
 *	header (struct vb_table_header) | tuple 0 | tuple 1 | ... | slots of the index
 *
 * A key that is inserted gets the next tuple, first without a record; so does a key that somebody
 * looked for in vain, because that there is no record is something that he has read, and that must
 * be locked or validated like any other.  When there is little room left, places of keys that have no record
 * are given to others (store/places.h).
 */
#define VB_LOG_ROOM "store"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <time.h>
#include <xxhash.h>

#include "base/log.h"
#include "fabric/opened.h"
#include "store/places.h"

#define STRIDE 32u

void vb_tuple_layout_init(struct vb_tuple_layout *l, uint32_t meta_bytes, uint32_t slots,
			  uint32_t record_bytes)
{
	vb_assert(meta_bytes % 16 == 0 && slots > 0 && slots <= VB_SLOTS_MAX);
	l->meta_bytes = meta_bytes;
	l->record_bytes = record_bytes;
	l->lock_at = VB_TUPLE_META_AT + meta_bytes;
	l->version_at = l->lock_at + 8;
	l->seal_at = l->lock_at + 16;
	l->record_at = l->version_at + VB_SLOT_HEAD;
	l->slots = slots;
	l->slot_bytes = VB_SLOT_HEAD + (record_bytes + 7) / 8 * 8;
	l->one_bytes = l->record_at + record_bytes;
	l->bytes = l->one_bytes + vb_slot_behind(l, slots - 1);
	/* Of several versions, which one it is that counts is seen from all of them. */
	l->blind_bytes = slots == 1 ? l->record_at : l->bytes;
	vb_tuple_layout_beside(l, 0);
}

void vb_tuple_layout_beside(struct vb_tuple_layout *l, uint32_t bytes)
{
	l->beside_at = (l->bytes + 7) / 8 * 8;
	l->stride = (l->beside_at + bytes + STRIDE - 1) / STRIDE * STRIDE;
}

uint32_t vb_tuple_record_most(uint32_t meta_bytes, uint32_t slots)
{
	uint32_t each = (VB_LEN_MAX - VB_TUPLE_META_AT - meta_bytes - 8) / slots, most;

	most = (each - VB_SLOT_HEAD) / 8 * 8;
	return most < VB_RECORD_BYTES_MAX ? most : VB_RECORD_BYTES_MAX;
}

uint64_t vb_tuple_seal(const struct vb_tuple_layout *l, const void *tuple)
{
	return XXH3_64bits_withSeed((const char *)tuple + l->record_at, l->record_bytes,
				    vb_tuple_word(tuple, l->version_at));
}

uint64_t vb_table_slots(uint64_t room)
{
	return room * 4 / 3 + VB_INDEX_WAYS;
}

uint64_t vb_table_room(const struct vb_table_params *p, uint16_t nodes)
{
	uint64_t each = (p->records + nodes - 1) / nodes;

	/* What partitions differ by, and keys that are looked for in vain. */
	return each + each / 16 + 64;
}

static uint64_t table_bytes(const struct vb_table *t)
{
	return sizeof(struct vb_table_header) + t->room * t->layout.stride +
	       t->slots * sizeof(struct vb_slot);
}

uint64_t vb_store_table_bytes(const struct vb_table_params *p, uint32_t meta_bytes, uint32_t slots,
			      uint32_t beside, uint16_t nodes)
{
	struct vb_table t = {.room = vb_table_room(p, nodes)};

	t.slots = vb_table_slots(t.room);
	vb_tuple_layout_init(&t.layout, meta_bytes, slots, p->record_bytes);
	vb_tuple_layout_beside(&t.layout, beside);
	return table_bytes(&t) + 128;
}

uint16_t vb_table_node(const struct vb_table *t, uint64_t key)
{
	uint16_t nodes;

	if (t == NULL)
		return 0;
	nodes = t->store->nodes;
	if (t->partition == VB_PARTITION_TOP16)
		return (uint16_t)((key >> 48) % nodes);
	if (t->group > 1)
		key /= t->group;
	switch (t->partition) {
	case VB_PARTITION_MOD:
		return (uint16_t)(key % nodes);
	case VB_PARTITION_TOP16:
	case VB_PARTITION_HASH:
		break;
	}
	return (uint16_t)(XXH3_64bits(&key, sizeof(key)) % nodes);
}

uint32_t vb_table_record_bytes(const struct vb_table *t)
{
	return t != NULL ? t->layout.record_bytes : 0;
}

/* ---- at the owner ---- */

#define FILLED_WITH_NS 5000000000ull
#define LOOK_NS        50000
#define AFAR_LOOK_NS   1000000
/* While it is filled, a header's magic is the process that does it: less than any magic. */
#define PROCESS_MOST (1ull << 54)

/* Nobody fills it, or somebody who was killed meanwhile: what he wrote is written again. */
static bool to_be_filled(uint64_t magic)
{
	return magic == 0 || (magic < PROCESS_MOST && !vb_process_alive(magic));
}

int vb_header_claim(uint64_t *magic)
{
	uint64_t self = vb_process_self(), until = vb_clock_gettime_ns() + FILLED_WITH_NS;
	struct timespec pause = {.tv_nsec = LOOK_NS};
	uint64_t was = __atomic_load_n(magic, __ATOMIC_ACQUIRE);

	while (was < PROCESS_MOST) {
		if (to_be_filled(was)) {
			if (__atomic_compare_exchange_n(magic, &was, self, false, __ATOMIC_ACQ_REL,
							__ATOMIC_ACQUIRE))
				return 1;
			continue;
		}
		if (vb_clock_gettime_ns() > until)
			return -ETIMEDOUT;
		nanosleep(&pause, NULL);
		was = __atomic_load_n(magic, __ATOMIC_ACQUIRE);
	}
	return 0;
}

void vb_header_filled(uint64_t *magic, uint64_t value)
{
	__atomic_store_n(magic, value, __ATOMIC_RELEASE);
}

int vb_header_read(struct vb_fabric *f, vb_addr header, uint64_t magic, uint64_t *layout)
{
	uint64_t until = vb_clock_gettime_ns() + VB_HEADER_PATIENCE_NS, word = 0;
	struct vb_ep *ep;
	int err = vb_ep_open(f, vb_addr_node(header), &ep);

	if (err != 0)
		return err;
	for (;;) {
		err = vb_read64(ep, header, &word);
		/* The magic was written last. */
		if (err == 0 && word == magic)
			err = vb_read64(ep, header + sizeof(uint64_t), layout);
		else if (err == 0)
			err = -ETIMEDOUT;
		/* A READ that comes too late to a node that is busy is told as lost. */
		if ((err != -ETIMEDOUT && err != -VB_EUNKNOWN) || vb_clock_gettime_ns() > until)
			break;
		err = vb_ep_sleep(ep, AFAR_LOOK_NS);
		if (err != 0)
			break;
	}
	vb_ep_close(ep);
	return err;
}

static uint64_t more_slots(void *ctx, uint64_t generation, uint64_t slots)
{
	struct vb_table_node *n = ctx;
	struct vb_fabric *f = n->fabric;
	uint16_t node = vb_addr_node(n->header);
	char name[VB_REGION_NAME];
	vb_addr at;
	bool fresh;

	snprintf(name, sizeof(name), "index:%016" PRIx64,
		 XXH64(n->region, strlen(n->region), generation));
	if (vb_region(f, node, name, slots * sizeof(struct vb_slot), &at, &fresh) != 0)
		return 0;
	/* An owner that died over a resize may have filled a part of it. */
	if (!fresh)
		memset(n->index.segment + vb_addr_offset(at), 0, slots * sizeof(struct vb_slot));
	return vb_addr_offset(at);
}

static void init_tuple(const struct vb_table *t, char *tuple, uint64_t key, uint64_t version)
{
	const struct vb_tuple_layout *l = &t->layout;

	vb_tuple_set_word(tuple, VB_TUPLE_KEY_AT, key);
	vb_tuple_set_word(tuple, l->version_at, version);
	vb_tuple_set_word(tuple, l->lock_at, t->store->unlocked(version, 0));
	if (t->store->sealed)
		vb_tuple_set_word(tuple, l->seal_at, vb_tuple_seal(l, tuple));
}

vb_addr vb_table_find(struct vb_table *t, uint16_t node, uint64_t key)
{
	struct vb_table_node *n = &t->node[node];
	uint64_t offset = vb_index_find(&n->index, key);

	return offset != 0 ? vb_addr_make(node, offset) : 0;
}

/* A tuple that is not in the index yet; NULL: the table is full. */
static char *next_tuple(struct vb_table *t, struct vb_table_node *n, uint64_t *offset)
{
	struct vb_table_header *h = n->index.header;

	if (h->tuples == h->room)
		return NULL;
	*offset = vb_addr_offset(n->header) + sizeof(*h) + h->tuples * t->layout.stride;
	return n->index.segment + *offset;
}

static int no_larger_index(const struct vb_table *t, uint16_t node, int err)
{
	if (err == -ENOSPC)
		return vb_fail(err, "no memory on node %u for a larger index of table '%s'", node,
			       t->name);
	return err;
}

/*
 * Of several versions of the key before, all but the newest, which is that there is no record.  Nobody who may
 * still commit wants them; but who began before it was deleted, and has stood still until now, would find them to
 * be the new key's.  Gone before that has the place, so who sees the new key and has seen an old version sees
 * at his second look that it has changed.
 */
static void forget_versions(const struct vb_table *t, char *tuple)
{
	const struct vb_tuple_layout *l = &t->layout;
	const unsigned newest = vb_tuple_newest(l, tuple);

	for (unsigned i = 0; i < l->slots; i++)
		if (i != newest)
			__atomic_store_n(
				(uint64_t *)(void *)(tuple + l->version_at + vb_slot_behind(l, i)),
				0, __ATOMIC_RELEASE);
}

/* 1: the key has a place that was another's; 0: there is none. */
static int reuse(struct vb_table *t, uint16_t node, uint64_t key, vb_addr *out)
{
	struct vb_table_node *n = &t->node[node];
	uint64_t offset = vb_places_take(t, node);
	char *tuple = n->index.segment + offset;
	int err;

	if (offset == 0)
		return 0;
	forget_versions(t, tuple);
	/* Who is late may still read the place, and CAS its words: it gets another key, and goes on. */
	__atomic_store_n((uint64_t *)(void *)(tuple + VB_TUPLE_KEY_AT), key, __ATOMIC_RELEASE);
	err = t->ranges_of != NULL ? vb_ranges_draw_map(t, node, key, tuple) : 0;
	if (err == 0)
		err = vb_ranges_put(t, node, key);
	if (err == 0) {
		vb_ranges_note(t, node, key);
		err = no_larger_index(t, node, vb_index_insert(&n->index, key, offset));
	}
	if (err) {
		vb_ranges_drop(t, node, key);
		vb_places_back(t, node, offset);
		return err;
	}
	if (t->store->told != NULL)
		t->store->told(
			t->store, t, key,
			vb_slot_version(&t->layout, tuple, vb_tuple_newest(&t->layout, tuple)),
			true);
	*out = vb_addr_make(node, offset);
	return 1;
}

static int add(struct vb_table *t, uint16_t node, uint64_t key, uint64_t version,
	       const void *record, vb_addr *out)
{
	struct vb_table_node *n = &t->node[node];
	uint64_t offset;
	char *tuple = next_tuple(t, n, &offset);
	int err;

	if (tuple == NULL)
		return vb_fail(-ENOSPC,
			       "table '%s' is full: its %" PRIu64
			       " places on node %u are taken by keys that have a record or were "
			       "looked for; open it with room for more %s",
			       t->name, t->room, node, t->ranges_of != NULL ? "ranges" : "records");
	if (record != NULL)
		memcpy(tuple + t->layout.record_at, record, t->layout.record_bytes);
	init_tuple(t, tuple, key, version);
	err = t->ranges_of != NULL ? vb_ranges_draw_map(t, node, key, tuple) : 0;
	if (err)
		return err;
	vb_ranges_note(t, node, key);
	/* Taken before it is in the index: an owner that dies in between leaves a gap, and no tuple
	 * that is given to two keys. */
	n->index.header->tuples++;
	err = vb_index_insert(&n->index, key, offset);
	if (err != 0)
		n->index.header->tuples--;
	err = no_larger_index(t, node, err);
	if (err)
		return err;
	*out = vb_addr_make(node, offset);
	return 0;
}

int vb_table_ensure(struct vb_table *t, uint16_t node, uint64_t key, const struct vb_store_now *now,
		    vb_addr *out)
{
	int used;

	*out = vb_table_find(t, node, key);
	if (*out != 0) {
		(void)vb_places_confirm(t, node, key, vb_addr_offset(*out));
		return 0;
	}
	vb_places_step(t, node, now);
	used = reuse(t, node, key, out);
	if (used != 0)
		return used < 0 ? used : 0;
	return add(t, node, key, VB_VERSION_NONE, NULL, out);
}

int vb_table_load(struct vb_table *t, uint64_t key, const void *record)
{
	struct vb_table_node *n;
	uint16_t node;
	vb_addr at;
	int err;

	if (vb_any_null(t, record))
		return -EINVAL;
	err = vb_fabric_check(t->store->fabric);
	if (err)
		return err;
	node = vb_table_node(t, key);
	n = &t->node[node];
	if (n->index.header == NULL)
		return vb_fail(-EXDEV,
			       "key %" PRIu64 " of table '%s' is on node %u, whose memory "
			       "is another process's: load it there",
			       key, t->name, node);
	/* Two at a time would give one tuple to both keys. */
	if (__atomic_exchange_n(&n->loading, true, __ATOMIC_ACQUIRE))
		return vb_fail(-EBUSY,
			       "table '%s': another thread is just loading a record of node %u: "
			       "they do so one at a time",
			       t->name, node);
	if (vb_table_find(t, node, key) != 0)
		err = vb_fail(-EEXIST,
			      "key %" PRIu64
			      " has its place in table '%s' already: it was loaded, or a "
			      "transaction has asked for it; load before the first one, or "
			      "insert it in one",
			      key, t->name);
	else
		err = add(t, node, key, VB_VERSION_LOADED, record, &at);
	__atomic_store_n(&n->loading, false, __ATOMIC_RELEASE);
	return err;
}

/* ---- opening ---- */

/* A table's number is how many there were before it: two at a time would have the same. */
int vb_store_open_begin(struct vb_store *store)
{
	if (!__atomic_exchange_n(&store->opening, true, __ATOMIC_ACQUIRE))
		return 0;
	return vb_fail(-EBUSY,
		       "database '%s': another thread is just opening a table of it: they do so "
		       "one at a time, in an order that is the same in every process",
		       store->name);
}

void vb_store_open_end(struct vb_store *store)
{
	__atomic_store_n(&store->opening, false, __ATOMIC_RELEASE);
}

int vb_store_table_check(const struct vb_store *store, const struct vb_table_params *p)
{
	if (p->name == NULL || p->name[0] == 0 || strlen(p->name) > 31)
		return vb_fail(-EINVAL, "a table's name has 1 to 31 characters");
	if (p->record_bytes == 0 || p->record_bytes > VB_RECORD_BYTES_MAX)
		return vb_fail(-EINVAL, "table '%s': records of %u bytes; 1 to %u are allowed",
			       p->name, p->record_bytes, VB_RECORD_BYTES_MAX);
	if (p->record_bytes > store->record_bytes_max)
		return vb_fail(-EINVAL,
			       "table '%s': records of %u bytes are larger than the database was "
			       "opened for (record_bytes_max is %u)",
			       p->name, p->record_bytes, store->record_bytes_max);
	if (p->records == 0 || p->records > 1ull << 40)
		return vb_fail(-EINVAL, "table '%s': room for %" PRIu64 " records; 1 to 2^40",
			       p->name, p->records);
	if ((unsigned)p->partition > VB_PARTITION_TOP16)
		return vb_fail(-EINVAL, "table '%s': no such partition", p->name);
	if (store->n_tables == VB_TABLES_MAX)
		return vb_fail(-EINVAL, "a database has at most %u tables", VB_TABLES_MAX);
	for (unsigned i = 0; i < store->n_tables; i++)
		if (!strcmp(store->table[i]->name, p->name))
			return vb_fail(-EINVAL, "a table is called '%s' already", p->name);
	return 0;
}

static uint64_t layout_hash(const struct vb_table *t, uint64_t same)
{
	char text[256];
	int n = snprintf(text, sizeof(text),
			 "%s/%s/%u/%u/%u/%u/%d/%d/%" PRIu64 "/%u/%" PRIu64 "/%" PRIu64,
			 t->store->protocol, t->name, t->id, t->layout.record_bytes,
			 t->layout.meta_bytes, t->layout.slots, (int)t->partition, t->store->sealed,
			 t->room, t->store->fabric->nodes, t->group, same);

	return XXH64(text, (size_t)n, 0) | 1;
}

/* Names have any characters, and together more than a region's may have: the hash tells tables apart, and
 * the rest is for who looks at the fabric. */
static void name_region(const struct vb_table *t, char out[VB_REGION_NAME])
{
	uint64_t hash =
		XXH64(t->name, strlen(t->name), XXH64(t->store->name, strlen(t->store->name), 0));

	snprintf(out, VB_REGION_NAME, "%.13s.%.13s:%016" PRIx64, t->store->name, t->name, hash);
}

#define TABLE_MAGIC 0x3130454c42415456ull /* "VTABLE01" */

static int differs(const struct vb_table *t, uint16_t node)
{
	return vb_fail(-EINVAL,
		       "table '%s' exists on node %u with other records or another protocol",
		       t->name, node);
}

/* Who has no node makes none: the servers do. */
static int join_node(struct vb_table *t, uint64_t same, uint16_t node)
{
	struct vb_table_node *n = &t->node[node];
	uint64_t layout = 0;
	int err = vb_region_made(n->fabric, node, n->region, table_bytes(t), VB_HEADER_PATIENCE_NS,
				 &n->header);

	if (err == 0)
		err = vb_header_read(n->fabric, n->header, TABLE_MAGIC, &layout);
	n->view = (struct vb_index_view){.at = n->header + sizeof(struct vb_table_header) +
					       t->room * t->layout.stride,
					 .slots = t->slots};
	if (err == -ENOENT || err == -ETIMEDOUT)
		return vb_fail(
			-ENOENT,
			"there is no table '%s' on node %u: its server opens it, and has not",
			t->name, node);
	if (err == -EINVAL || (err == 0 && layout != layout_hash(t, same)))
		return differs(t, node);
	return err;
}

static int open_node(struct vb_table *t, uint64_t same, uint16_t node)
{
	struct vb_table_node *n = &t->node[node];
	struct vb_fabric *f = t->store->fabric;
	const struct vb_table_header fixed = {
		.layout = layout_hash(t, same),
		.room = t->room,
		.slots = t->slots,
	};
	uint64_t bytes = table_bytes(t);
	bool fresh;
	int err;

	name_region(t, n->region);
	n->fabric = f;
	if (f->caps.client)
		return join_node(t, same, node);
	err = vb_region(f, node, n->region, bytes, &n->header, &fresh);
	if (err == -ENOSPC)
		return vb_fail(err,
			       "table '%s' needs %" PRIu64
			       " bytes on node %u, whose segment has not so many left: give the "
			       "fabric more node_bytes, or the table fewer records",
			       t->name, bytes, node);
	if (err == -EINVAL)
		return vb_fail(err, "table '%s' exists on node %u with another size or protocol",
			       t->name, node);
	if (err)
		return err;
	if (fresh)
		vb_region_dense(f, n->header, bytes);
	n->view = (struct vb_index_view){
		.at = n->header + sizeof(fixed) + t->room * t->layout.stride, .slots = t->slots};
	n->index.segment = vb_local(f, vb_addr_make(node, 0), 1);
	if (n->index.segment == NULL)
		return 0;
	n->index.header = (void *)(n->index.segment + vb_addr_offset(n->header));
	n->index.more = more_slots;
	n->index.ctx = n;
	err = vb_header_claim(&n->index.header->magic);
	if (err == 1) {
		struct vb_table_header *h = n->index.header;

		h->layout = fixed.layout;
		h->room = fixed.room;
		h->slots = fixed.slots;
		h->index_at = vb_addr_offset(n->view.at);
		vb_header_filled(&h->magic, TABLE_MAGIC);
		return 0;
	}
	if (err)
		return vb_fail(err,
			       "who began to make table '%s' on node %u has not come to the end",
			       t->name, node);
	if (n->index.header->magic != TABLE_MAGIC || n->index.header->layout != fixed.layout)
		return differs(t, node);
	return 0;
}

int vb_store_table_open(struct vb_store *store, const struct vb_table_params *p, uint64_t group,
			uint32_t beside, uint64_t same, struct vb_table **out)
{
	struct vb_table *t;
	int err = vb_store_table_check(store, p);

	if (err)
		return err;
	t = calloc(1, sizeof(*t));
	if (t != NULL)
		t->node = calloc(store->fabric->nodes, sizeof(*t->node));
	if (t == NULL || t->node == NULL) {
		free(t);
		return vb_fail(-ENOMEM, "no memory for a table");
	}
	t->store = store;
	snprintf(t->name, sizeof(t->name), "%s", p->name);
	t->id = (uint16_t)store->n_tables;
	t->records = p->records;
	t->partition = p->partition;
	t->group = group;
	t->asked = (p->records + store->nodes - 1) / store->nodes;
	t->room = vb_table_room(p, store->nodes);
	t->slots = vb_table_slots(t->room);
	vb_tuple_layout_init(&t->layout, store->meta_bytes, store->slots, p->record_bytes);
	vb_tuple_layout_beside(&t->layout, beside);
	for (uint16_t node = 0; node < store->fabric->nodes && err == 0; node++)
		err = open_node(t, same, node);
	if (err) {
		vb_table_free(t);
		return err;
	}
	store->table[store->n_tables++] = t;
	*out = t;
	return 0;
}

void vb_store_table_undo(struct vb_store *store, struct vb_table *t)
{
	vb_assert(store->n_tables > 0 && store->table[store->n_tables - 1] == t);
	store->n_tables--;
	vb_table_free(t);
}

void vb_table_free(struct vb_table *t)
{
	if (t == NULL)
		return;
	for (uint16_t i = 0; t->node != NULL && i < t->store->fabric->nodes; i++) {
		vb_table_order_close(&t->node[i]);
		vb_places_forget(&t->node[i]);
	}
	free(t->node);
	free(t);
}
