/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lookup says that there is no such key only if nothing moved while it looked.  The owner moves a
 * key between two READs of the reader, by hand, so that each of its slots is looked at while the key
 * is in another; or begins to move one and never ends.
 */
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

#include <cmocka.h>

#include "base/log.h"
#include "store/access.h"
#include "store/store.h"
#include "txn/db.h"

#define KEY    5
#define OFFSET 4096
#define LAST   (VB_INDEX_WAYS - 1)

static struct {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_ep *ep;
	struct vb_acc acc;
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned looks; /* at the header */
	unsigned slots; /* READs of slots since the last of them, or since the beginning */
} w;

static struct vb_table_header *header(void)
{
	return w.t->node[0].index.header;
}

static struct vb_slot *slot(unsigned way)
{
	struct vb_index *x = &w.t->node[0].index;

	return (struct vb_slot *)(x->segment + x->header->index_at) +
	       vb_index_slot_of(KEY, way, x->header->slots);
}

static void put(unsigned way, uint64_t ref)
{
	*slot(way) = (struct vb_slot){.key = KEY, .ref = ref};
}

/* As vb_index_insert does when it needs the room. */
static void move(unsigned from, unsigned to)
{
	header()->moves++;
	put(to, slot(from)->ref);
	put(from, 0);
	header()->moves++;
}

/* The key is away from each slot when it is read: on the way past, and at the first careful look. */
static int hooked_read(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	int err = w.real->read(ep, a, buf, len);

	if (len == sizeof(struct vb_slot)) {
		if (w.looks <= 1 && ++w.slots == 1)
			move(LAST, 0);
		return err;
	}
	w.slots = 0;
	if (++w.looks == 1)
		move(0, LAST);
	return err;
}

static void open_all(const char *fabric)
{
	const struct vb_fabric_params fp = {
		.fabric = fabric, .nodes = 1, .node_bytes = 8u << 20, .endpoints = 16};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};
	const struct vb_db_params dp = {.cc = "no-wait", .coordinators = 1};

	memset(&w, 0, sizeof(w));
	assert_int_equal(vb_fabric_open(&fp, &w.f), 0);
	assert_int_equal(vb_db_open(w.f, &dp, &w.db), 0);
	assert_int_equal(vb_table_open(w.db, &tp, &w.t), 0);
	assert_int_equal(vb_ep_open(w.f, 0, &w.ep), 0);
	vb_acc_init(&w.acc, w.ep, true, true);
	for (unsigned a = 0; a < VB_INDEX_WAYS; a++)
		for (unsigned b = a + 1; b < VB_INDEX_WAYS; b++)
			assert_ptr_not_equal(slot(a), slot(b));
}

static void close_all(void)
{
	vb_ep_close(w.ep);
	vb_db_close(w.db);
	vb_fabric_close(w.f);
}

/* Both looks at the header find that nothing is on the move, but something has been. */
static void moved_behind_its_back(void **state)
{
	struct vb_find f = {0}, *p = &f;

	(void)state;
	open_all("shm");
	f = (struct vb_find){.table = w.t, .key = KEY};
	put(LAST, vb_index_ref(KEY, OFFSET));
	w.real = w.ep->ops;
	w.ops = *w.real;
	w.ops.read = hooked_read;
	w.ep->ops = &w.ops;
	assert_int_equal(vb_store_find(&w.acc, &p, 1), 0);
	assert_int_equal(vb_addr_offset(f.at), OFFSET);
	/* Twice for the look in vain, and twice for the one that told. */
	assert_int_equal(w.looks, 4);
	close_all();
}

static void moves_without_end(void **state)
{
	struct vb_find f = {0}, *p = &f;
	char said[256] = "";

	(void)state;
	open_all("sim");
	f = (struct vb_find){.table = w.t, .key = KEY};
	header()->moves++;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_store_find(&w.acc, &p, 1), -VB_EUNKNOWN);
	vb_log_capture_end();
	assert_non_null(strstr(said, "does not come to rest"));
	/* What is there is there, whatever moves. */
	put(1, vb_index_ref(KEY, OFFSET));
	assert_int_equal(vb_store_find(&w.acc, &p, 1), 0);
	assert_int_equal(vb_addr_offset(f.at), OFFSET);
	put(1, 0);
	header()->moves++;
	assert_int_equal(vb_store_find(&w.acc, &p, 1), 0);
	assert_int_equal(f.at, 0);
	close_all();
}

/* An owner died when it had filled a larger index in part, and the keys of that are gone since. */
static void nothing_of_an_older_resize(void **state)
{
	struct vb_index *x;
	char name[VB_REGION_NAME];
	struct vb_slot *old;
	uint64_t slots, key = KEY;
	vb_addr at;
	bool fresh;

	(void)state;
	open_all("shm");
	x = &w.t->node[0].index;
	slots = 2 * x->header->slots;
	snprintf(name, sizeof(name), "index:%016" PRIx64,
		 XXH64(w.t->node[0].region, strlen(w.t->node[0].region), 1));
	assert_int_equal(vb_region(w.f, 0, name, slots * sizeof(*old), &at, &fresh), 0);
	assert_true(fresh);
	old = vb_local(w.f, at, slots * sizeof(*old));
	for (unsigned way = 0; way < VB_INDEX_WAYS; way++)
		old[vb_index_slot_of(KEY, way, slots)] =
			(struct vb_slot){.key = KEY, .ref = vb_index_ref(KEY, OFFSET)};
	while (x->resizes == 0) {
		key++;
		assert_int_equal(vb_index_insert(x, key, OFFSET + 64 * key), 0);
	}
	assert_int_equal(x->header->slots, slots);
	assert_int_equal(x->header->index_at, vb_addr_offset(at));
	assert_int_equal(vb_index_find(x, KEY), 0);
	for (; key > KEY; key--)
		assert_int_equal(vb_index_find(x, key), OFFSET + 64 * key);
	close_all();
}

/* ---- where an owner dies that inserts ---- */

static struct {
	uint64_t (*more)(void *ctx, uint64_t generation, uint64_t slots);
	uint64_t tuples; /* taken before the insert that makes the index larger */
	bool loads, met;
} dies;

/* Here it would die: its key is in no index yet. */
static uint64_t more_seen(void *ctx, uint64_t generation, uint64_t slots)
{
	if (!dies.loads)
		return 0;
	assert_int_equal(header()->tuples, dies.tuples + 1);
	dies.met = true;
	return dies.more(ctx, generation, slots);
}

/* A tuple is taken before a key leads to it, and not given to another whatever becomes of its owner. */
static void taken_before_it_is_found(void **state)
{
	uint64_t record = 1, key = KEY;
	struct vb_index *x;

	(void)state;
	open_all("shm");
	x = &w.t->node[0].index;
	memset(&dies, 0, sizeof(dies));
	dies.more = x->more;
	x->more = more_seen;
	/* Keys without tuples, until there is no room for another. */
	while (vb_index_insert(x, ++key, OFFSET) == 0)
		;
	for (unsigned i = 0; i < 16 && !dies.met; i++) {
		dies.tuples = header()->tuples;
		dies.loads = true;
		assert_int_equal(vb_table_load(w.t, ++key, &record), 0);
		dies.loads = false;
		assert_int_equal(header()->tuples, dies.tuples + 1);
	}
	assert_true(dies.met);
	close_all();
}

/*
 * Threads write an entry of the location cache without order, so that it may have one word of each.  The key of
 * the tuple does not find that out: another table has the same keys, and a place that was freed its last one.
 */
static void an_entry_of_two(void **state)
{
	struct entry {
		uint64_t words[2];
	} a, b, *entry;
	struct vb_table one = {.id = 0}, other = {.id = 1};
	const vb_addr here = vb_addr_make(0, 4096), there = vb_addr_make(0, 8192);
	struct vb_cache *c;

	(void)state;
	assert_int_equal(vb_cache_open(1, &c), 0);
	entry = (void *)((uint64_t *)(void *)c + 1);
	vb_cache_put(c, &other, KEY, there, 7);
	b = *entry;
	vb_cache_put(c, &one, KEY, here, 7);
	a = *entry;
	assert_true(vb_cache_get(c, &one, KEY, 7) == here);
	for (unsigned i = 0; i < 2; i++) {
		entry->words[i] = b.words[i];
		assert_true(vb_cache_get(c, &one, KEY, 7) == 0);
		assert_true(vb_cache_get(c, &other, KEY, 7) == 0);
		*entry = a;
	}
	vb_cache_drop(c, &other, KEY);
	assert_true(vb_cache_get(c, &one, KEY, 7) == here);
	vb_cache_drop(c, &one, KEY);
	assert_true(vb_cache_get(c, &one, KEY, 7) == 0);
	/* Of a key that has moved: where it was, and when it was put elsewhere. */
	vb_cache_put(c, &one, KEY, here, 7);
	a = *entry;
	vb_cache_put(c, &one, KEY, there, 9);
	b = *entry;
	assert_true(vb_cache_get(c, &one, KEY, 9) == there);
	for (unsigned i = 0; i < 2; i++) {
		*entry = b;
		entry->words[i] = a.words[i];
		assert_true(vb_cache_get(c, &one, KEY, 9) == 0);
	}
	vb_cache_close(c);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(moved_behind_its_back),
		cmocka_unit_test(moves_without_end),
		cmocka_unit_test(nothing_of_an_older_resize),
		cmocka_unit_test(taken_before_it_is_found),
		cmocka_unit_test(an_entry_of_two),
	};

	return cmocka_run_group_tests_name("store_settled", tests, NULL, NULL);
}
