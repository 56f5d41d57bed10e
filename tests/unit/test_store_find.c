/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Lookups from afar while the owner inserts, moves and deletes keys and makes the index larger: on
 * shm with verbs that are torn and late, on the simulator with the same as faults, and on shm with
 * the owner on a thread of its own, so that READs fall between its single stores.
 *
 * A key that is there all the time is always found, at its address; one that never is, never; one
 * that comes and goes is found at its own address or not at all, and is found if it was there from
 * before the lookup until after it.
 */
#include <errno.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "base/rng.h"
#include "fabric/hook/hooks.h"
#include "fabric/sim/sim.h"
#include "store/store.h"

#define NODES          2u
#define READERS        3u
#define STABLE         40u /* keys that are always there */
#define RESIZES        3u  /* of each node's index */
#define CHURN          6000u
#define KEYS_MAX       3000u
#define LOOKUPS        48u /* more than vb_store_find takes at a time */
#define OFFSET_OF(key) (4096 + (key)*96)

/* What the owner says of a key that comes and goes: changes is odd while it is at it. */
struct state {
	uint64_t changes;
	bool there;
};

struct world {
	struct vb_fabric *fabric;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_rng rng; /* the owner's */
	struct state state[KEYS_MAX];
	unsigned pool; /* keys below this number may be there */
	bool over;
	void (*pause)(struct world *w);
	uint64_t hits, misses, surely; /* of keys that come and go; found because they had to be */
	uint64_t rounds[READERS];
};

static struct world *world;

/* ---- the owner ---- */

static struct vb_index *index_of(uint64_t key)
{
	return &world->table->node[vb_table_node(world->table, key)].index;
}

/* STABLE keys first, then those that come and go, and far away those that never come. */
static uint64_t moving_key(unsigned number)
{
	return STABLE + number;
}

static uint64_t absent_key(unsigned number)
{
	return (1u << 20) + number;
}

static int change(unsigned number)
{
	struct state *s = &world->state[number];
	uint64_t key = moving_key(number);
	int err = 0;

	__atomic_store_n(&s->changes, s->changes + 1, __ATOMIC_SEQ_CST);
	if (s->there)
		err = vb_index_delete(index_of(key), key) ? 0 : -ENOENT;
	else
		err = vb_index_insert(index_of(key), key, OFFSET_OF(key));
	__atomic_store_n(&s->there, !s->there, __ATOMIC_SEQ_CST);
	__atomic_store_n(&s->changes, s->changes + 1, __ATOMIC_SEQ_CST);
	return err;
}

static bool is_full(const struct vb_index *x)
{
	return x->header->keys * 100 > x->header->slots * 86;
}

/* One more key, of those that are not there. */
static int add_one(void)
{
	unsigned number = 0;

	while (number < world->pool && world->state[number].there)
		number++;
	if (number == KEYS_MAX)
		return -E2BIG;
	if (number == world->pool)
		__atomic_store_n(&world->pool, number + 1, __ATOMIC_SEQ_CST);
	return change(number);
}

/* Inserts and deletes in indexes that are nearly full: there most inserts move keys. */
static int churn(unsigned changes)
{
	int err = 0;

	while (err == 0 &&
	       !(is_full(&world->table->node[0].index) && is_full(&world->table->node[1].index))) {
		err = add_one();
		world->pause(world);
	}
	/* Some that are not there, to come for those that go. */
	__atomic_store_n(&world->pool, world->pool * 5 / 4, __ATOMIC_SEQ_CST);
	for (unsigned n = 0; n < changes && err == 0; n++) {
		unsigned number = (unsigned)vb_rng_below(&world->rng, world->pool), steps = 0;

		/* An index that has become larger is full again before anything is deleted. */
		while (world->state[number].there != is_full(index_of(moving_key(number))) &&
		       steps++ < world->pool)
			number = (number + 1) % world->pool;
		err = steps < world->pool ? change(number) : add_one();
		world->pause(world);
	}
	return err;
}

/* Inserts without deletes, until both indexes are larger. */
static int grow(uint64_t resizes)
{
	int err = 0;

	while (err == 0 && (world->table->node[0].index.resizes < resizes ||
			    world->table->node[1].index.resizes < resizes)) {
		err = add_one();
		world->pause(world);
	}
	return err;
}

/* Mostly while the index is small: then a key is moved often.  0, or the first error. */
static int own(void)
{
	int err = churn(CHURN);

	for (unsigned i = 1; i <= RESIZES && err == 0; i++) {
		err = grow(i);
		if (err == 0)
			err = churn(CHURN / 8);
	}
	__atomic_store_n(&world->over, true, __ATOMIC_SEQ_CST);
	return err;
}

static void owner_task(void *arg)
{
	assert_int_equal(own(), 0);
}

static void *owner_thread(void *arg)
{
	*(int *)arg = own();
	return NULL;
}

/* ---- readers ---- */

struct lookup {
	struct vb_find f;
	struct vb_find *p;
	uint64_t changes;
	bool there;
	enum { ALWAYS, NEVER, MOVING } kind;
	unsigned number;
};

struct reader {
	unsigned id;
	struct vb_ep *ep;
	struct vb_rng rng;
	struct vb_acc *acc;
	struct lookup lookup[LOOKUPS];
};

static void choose(struct reader *r, struct lookup *l)
{
	l->kind = (unsigned)vb_rng_below(&r->rng, 3);
	switch (l->kind) {
	case ALWAYS:
		l->f.key = vb_rng_below(&r->rng, STABLE);
		break;
	case NEVER:
		l->f.key = absent_key((unsigned)vb_rng_below(&r->rng, KEYS_MAX));
		break;
	case MOVING:
		l->number = (unsigned)vb_rng_below(&r->rng,
						   __atomic_load_n(&world->pool, __ATOMIC_SEQ_CST));
		l->f.key = moving_key(l->number);
		l->changes = __atomic_load_n(&world->state[l->number].changes, __ATOMIC_SEQ_CST);
		l->there = __atomic_load_n(&world->state[l->number].there, __ATOMIC_SEQ_CST);
		break;
	}
	l->f.table = world->table;
}

static void check(const struct lookup *l)
{
	vb_addr right = vb_addr_make(vb_table_node(world->table, l->f.key), OFFSET_OF(l->f.key));
	bool still;

	switch (l->kind) {
	case ALWAYS:
		assert_int_equal(l->f.at, right);
		break;
	case NEVER:
		assert_int_equal(l->f.at, 0);
		break;
	case MOVING:
		still = (l->changes & 1) == 0 &&
			l->changes ==
				__atomic_load_n(&world->state[l->number].changes, __ATOMIC_SEQ_CST);
		if (l->f.at != 0 || (still && l->there))
			assert_int_equal(l->f.at, right);
		__atomic_fetch_add(l->f.at != 0 ? &world->hits : &world->misses, 1,
				   __ATOMIC_RELAXED);
		if (still && l->there)
			__atomic_fetch_add(&world->surely, 1, __ATOMIC_RELAXED);
		break;
	}
}

static void reader_task(void *arg)
{
	struct reader *r = arg;
	struct vb_find *f[LOOKUPS];

	while (!__atomic_load_n(&world->over, __ATOMIC_SEQ_CST)) {
		/* One key alone, or many with one doorbell. */
		unsigned n = vb_rng_chance(&r->rng, 0.5)
				     ? 1
				     : 1 + (unsigned)vb_rng_below(&r->rng, LOOKUPS);
		int err;

		for (unsigned i = 0; i < n; i++) {
			choose(r, &r->lookup[i]);
			f[i] = &r->lookup[i].f;
		}
		err = vb_store_find(r->acc, f, n);
		/* A machine that gives us no core in time: a deferred verb that is late is not
		 * done. */
		if (err == -VB_EUNKNOWN && !(world->fabric->caps.flags & VB_CAP_VIRTUAL))
			continue;
		assert_int_equal(err, 0);
		for (unsigned i = 0; i < n; i++)
			check(&r->lookup[i]);
		world->rounds[r->id]++;
		vb_task_yield();
	}
}

/* ---- fabrics ---- */

static void nap(struct world *w)
{
	/* Mostly in a row; now and then so long that a lookup can come to an end. */
	if (vb_rng_chance(&w->rng, 0.3)) {
		struct vb_sched *s = vb_sched_self();
		uint64_t most = vb_rng_chance(&w->rng, 0.3) ? 100000 : 4000;

		(void)vb_task_sleep_until(vb_sched_now(s) + vb_rng_below(&w->rng, most));
	}
}

static void spin(struct world *w)
{
	if (vb_rng_chance(&w->rng, 0.5)) {
		uint64_t end = vb_clock_ns() + vb_rng_below(&w->rng, 40000);

		while (vb_clock_ns() < end)
			;
	}
}

static struct vb_fabric *open_fabric(const char *name, uint64_t seed)
{
	struct vb_fabric_params p = {.fabric = name,
				     .nodes = NODES,
				     .node_bytes = 8u << 20,
				     .endpoints = 16,
				     .seed = seed};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	return f;
}

static struct vb_fabric *open_deferred(uint64_t seed)
{
	struct vb_defer_params how = {.chance = 0.8, .max_delay_ns = 5000, .seed = seed};
	struct vb_fabric *f;

	assert_int_equal(vb_hook_defer(open_fabric("shm", seed), &how, &f), 0);
	return f;
}

static struct vb_fabric *open_sim(uint64_t seed)
{
	struct vb_sim_faults faults = {.tear = 0.3,
				       .delay = 0.5,
				       .delay_max_ns = 20000,
				       .nic_stall = 0.01,
				       .nic_stall_max_ns = 20000};
	struct vb_fabric *f = open_fabric("sim", seed);

	vb_sim_set_faults(f, &faults);
	return f;
}

static void open_world(struct vb_fabric *fabric, uint64_t seed, void (*pause)(struct world *w))
{
	/* As small as a table can be: an index that is soon full. */
	struct vb_table_params params = {.name = "t", .record_bytes = 8, .records = 1};
	struct vb_db_params db = {.cc = "no-wait", .coordinators = 1};

	world = calloc(1, sizeof(*world));
	assert_non_null(world);
	world->fabric = fabric;
	world->pause = pause;
	world->pool = 200;
	vb_rng_seed(&world->rng, seed, 1);
	assert_int_equal(vb_db_open(fabric, &db, &world->db), 0);
	assert_int_equal(vb_table_open(world->db, &params, &world->table), 0);
	for (uint64_t key = 0; key < STABLE; key++)
		assert_int_equal(vb_index_insert(index_of(key), key, OFFSET_OF(key)), 0);
}

static void open_readers(struct reader *r, uint64_t seed)
{
	struct vb_task *t;

	for (unsigned i = 0; i < READERS; i++, r++) {
		*r = (struct reader){.id = i};
		vb_rng_seed(&r->rng, seed, 100 + i);
		assert_int_equal(vb_ep_open(world->fabric, (uint16_t)(i % NODES), &r->ep), 0);
		r->acc = malloc(sizeof(*r->acc));
		assert_non_null(r->acc);
		/* With and without doorbell batching and outstanding requests. */
		vb_acc_init(r->acc, r->ep, i != 1, i != 2);
		assert_int_equal(vb_task_spawn(vb_sched_self(), reader_task, r, NULL, &t), 0);
	}
}

/* What the run was for has happened. */
static void check_run(struct reader *r)
{
	const struct vb_table_node *n = world->table->node;

	for (unsigned i = 0; i < READERS; i++)
		assert_int_not_equal(world->rounds[i], 0);
	assert_int_not_equal(world->hits, 0);
	assert_int_not_equal(world->misses, 0);
	assert_int_not_equal(world->surely, 0);
	for (unsigned i = 0; i < NODES; i++) {
		struct vb_find f = {.table = world->table, .key = absent_key(i)}, *p = &f;

		assert_true(n[i].index.resizes >= RESIZES);
		assert_true(n[i].index.kicks > 500);
		/* Who looked in vain knows the index that there is now. */
		assert_int_equal(vb_store_find(r->acc, &p, 1), 0);
		assert_int_equal(f.at, 0);
		assert_int_equal(vb_table_node(world->table, f.key), i);
		assert_int_equal(n[i].view.slots, n[i].index.header->slots);
		assert_int_equal(n[i].view.generation, n[i].index.header->generation);
		assert_int_equal(vb_addr_offset(n[i].view.at), n[i].index.header->index_at);
	}
}

static void close_world(struct reader *r)
{
	for (unsigned i = 0; i < READERS; i++) {
		vb_ep_close(r[i].ep);
		free(r[i].acc);
	}
	vb_db_close(world->db);
	vb_fabric_close(world->fabric);
	free(world);
	world = NULL;
}

static void run(struct vb_fabric *fabric, uint64_t seed)
{
	static struct reader readers[READERS];
	struct vb_task *t;

	open_world(fabric, seed, nap);
	open_readers(readers, seed);
	assert_int_equal(vb_task_spawn(vb_sched_self(), owner_task, NULL, NULL, &t), 0);
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER), 0);
	check_run(readers);
	close_world(readers);
}

static void run_thread(struct vb_fabric *fabric, uint64_t seed)
{
	static struct reader readers[READERS];
	pthread_t owner;
	int err = -1;

	open_world(fabric, seed, spin);
	open_readers(readers, seed);
	assert_int_equal(pthread_create(&owner, NULL, owner_thread, &err), 0);
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER), 0);
	assert_int_equal(pthread_join(owner, NULL), 0);
	assert_int_equal(err, 0);
	check_run(readers);
	close_world(readers);
}

static void shm_deferred(void **state)
{
	for (uint64_t seed = 1; seed <= 4; seed++)
		run(open_deferred(seed), seed);
}

static void sim_with_faults(void **state)
{
	for (uint64_t seed = 1; seed <= 10; seed++)
		run(open_sim(seed), seed);
}

static void owner_on_a_thread(void **state)
{
	for (uint64_t seed = 1; seed <= 3; seed++)
		run_thread(open_fabric("shm", seed), seed);
}

static void owner_on_a_thread_deferred(void **state)
{
	for (uint64_t seed = 1; seed <= 3; seed++)
		run_thread(open_deferred(seed), seed);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(shm_deferred),
		cmocka_unit_test(sim_with_faults),
		cmocka_unit_test(owner_on_a_thread),
		cmocka_unit_test(owner_on_a_thread_deferred),
	};

	return cmocka_run_group_tests_name("store_find", tests, NULL, NULL);
}
