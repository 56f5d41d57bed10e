/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who tries again under the name that it had, just when another is about to roll it back.
 *
 * Protocols of ages keep a transaction's name when it is tried again, and with it its lock words.  A
 * mender that has found the holder standing still looks once more whether it has tried again
 * (recover.c, has_moved) and then sets the status word by a CAS.  Between the two the holder may have
 * begun anew: then its next try is rolled back, and not the one that was meant.  Here the mender stands
 * still there for a while, and a little longer each time, until the next try has been met in all that
 * it does.  Whatever is met: the records must be what the commits that were told have made of them, a
 * reader must see one moment, and nothing may stay locked.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "txn/db.h"

#define US      1000ull
#define STEP_NS 300ull
#define KEYS    2
#define LOADED  100

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server[2];
	struct vb_coordinator *a, *b; /* the holder and the mender, at nodes 0 and 1 */
	bool a_writes, done;
	bool same_name;    /* of the next try */
	uint64_t stand_ns; /* how long b stands still */
	uint64_t took_ns;  /* until a's next try had ended */
	enum vb_txn_cause cause;
	unsigned written; /* commits that wrote */
};

/* What became of the next try. */
struct met {
	unsigned committed, recovered;
};

#define must(call) assert_int_equal(call, 0)

static void open_world(struct world *w, const char *cc, const char *hybrid)
{
	const struct vb_fabric_params fp = {
		.fabric = "sim",
		.options = "bound=50us",
		.nodes = 2,
		.node_bytes = 4 << 20,
		.seed = 1,
	};
	const struct vb_db_params dp = {
		.cc = cc, .hybrid = hybrid, .coordinators = 2, .lease_ns = 200 * US};
	const struct vb_table_params tp = {.name = "t", .record_bytes = 8, .records = 16};

	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	for (uint64_t key = 0; key < KEYS; key++)
		must(vb_table_load(w->t, key, &(uint64_t){LOADED}));
	for (uint16_t i = 0; i < 2; i++)
		must(vb_db_server_start(w->db, i, &w->server[i]));
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	for (uint16_t i = 0; i < 2; i++)
		vb_db_server_stop(w->server[i]);
	must(vb_db_close(w->db));
	must(vb_fabric_close(w->f));
}

static void wait_ns(struct vb_coordinator *me, uint64_t ns)
{
	must(vb_ep_sleep(me->ep, ns));
}

/* Adds one to each record, or reads them; 0 or -EAGAIN. */
static int body(struct world *w, struct vb_coordinator *me, bool writes, uint64_t value[KEYS])
{
	int err = 0;

	for (uint64_t key = 0; key < KEYS && err == 0; key++) {
		uint64_t *record;

		if (!writes) {
			err = vb_txn_read(me, w->t, key, &value[key]);
			continue;
		}
		err = vb_txn_update(me, w->t, key, (void **)&record);
		if (err == 0)
			value[key] = ++*record;
	}
	return err;
}

static int run(struct world *w, struct vb_coordinator *me, bool writes)
{
	uint64_t value[KEYS];
	int err = vb_txn_begin(me);

	if (err == 0)
		err = body(w, me, writes, value);
	if (err == 0)
		err = vb_txn_commit(me);
	assert_true(err == 0 || err == -EAGAIN);
	if (err == 0)
		assert_int_equal(value[0], value[1]);
	w->written += err == 0 && writes;
	return err;
}

/* a, whose time is over, tries again while b stands still: once, and then until it has committed. */
static void try_again(void *arg)
{
	struct world *w = arg;
	uint64_t verbs = vb_sim_verbs(w->f), name = w->a->txn.ts, begin;

	/* Both of b's READs have happened. */
	while (vb_sim_verbs(w->f) < verbs + 2)
		wait_ns(w->a, 20);
	begin = vb_sim_now(w->f);
	vb_sim_ep_pause(w->b->ep, begin + w->stand_ns);
	assert_int_equal(vb_txn_commit(w->a), -EAGAIN);
	assert_int_equal(vb_txn_cause(w->a), VB_TXN_TIMEOUT);
	(void)run(w, w->a, w->a_writes);
	w->cause = vb_txn_cause(w->a);
	w->same_name = w->a->txn.ts == name;
	w->took_ns = vb_sim_now(w->f) - begin;
	while (w->cause != VB_TXN_COMMITTED && run(w, w->a, w->a_writes) != 0)
		wait_ns(w->a, 5 * US);
	w->done = true;
}

static void judge(struct world *w)
{
	for (uint64_t key = 0; key < KEYS; key++) {
		vb_addr at = vb_table_find(w->t, vb_table_node(w->t, key), key);
		const struct vb_tuple_layout *l = &w->t->layout;
		const unsigned char *tuple = vb_local(w->f, at, l->bytes);
		uint64_t value;

		memcpy(&value, tuple + l->record_at, 8);
		assert_int_equal(value, LOADED + w->written);
		for (uint32_t word = VB_TUPLE_RESERVED_AT; word < l->version_at; word += 8)
			assert_int_equal(vb_tuple_word(tuple, word), 0);
	}
}

/* b stands still for so long; for how long it would have to, to come behind all of it. */
static uint64_t meet(const char *cc, const char *hybrid, bool writes, uint64_t stand_ns,
		     struct met *m)
{
	static const struct vb_task_params params = {.name = "a"};
	struct world w = {.a_writes = writes, .stand_ns = stand_ns};
	uint64_t value[KEYS];
	struct vb_task *task;

	open_world(&w, cc, hybrid);
	must(vb_txn_begin(w.a));
	must(body(&w, w.a, writes, value));
	while (w.b->ripe == 0) {
		assert_int_equal(run(&w, w.b, true), -EAGAIN);
		wait_ns(w.b, 10 * US);
	}
	must(vb_task_spawn(w.a->ep->sched, try_again, &w, &params, &task));
	while (run(&w, w.b, true) != 0)
		wait_ns(w.b, 5 * US);
	while (!w.done)
		wait_ns(w.b, 5 * US);
	wait_ns(w.b, 2 * w.db->suspect_ns);
	judge(&w);
	assert_true(w.cause == VB_TXN_COMMITTED || w.cause == VB_TXN_RECOVERED);
	if (w.cause == VB_TXN_RECOVERED)
		assert_true(w.same_name);
	m->recovered += w.cause == VB_TXN_RECOVERED;
	m->committed += w.cause == VB_TXN_COMMITTED;
	close_world(&w);
	return w.took_ns;
}

static void all_moments(const struct vb_cc_ops *cc, const char *hybrid, bool writes)
{
	uint64_t stand_ns = 0, until;
	struct met m = {0};

	do {
		until = meet(cc->name, hybrid, writes, stand_ns, &m) + 5 * US;
		stand_ns += STEP_NS;
	} while (stand_ns < until);
	printf("# %s %s, %s: %u rolled back, %u committed\n", cc->name,
	       hybrid != NULL ? hybrid : "one-sided", writes ? "writes" : "reads", m.recovered,
	       m.committed);
	assert_true(m.recovered > 0);
	assert_true(m.committed > 0);
}

static void tried_again(void **state)
{
	const struct vb_cc_ops *cc = *state;

	for (unsigned i = 0; i < 4; i++)
		all_moments(cc, i & 1 ? "rpc" : NULL, i & 2);
}

int main(void)
{
	static struct CMUnitTest tests[16];
	size_t n = 0;

	/* Who waits for ever is not saved by those who recover him. */
	for (const struct vb_cc_ops *const *c = vb_ccs; *c != NULL; c++)
		if ((*c)->caps & VB_CC_AGE && !((*c)->caps & VB_CC_BLIND_WAIT))
			tests[n++] = (struct CMUnitTest){.name = (*c)->name,
							 .test_func = tried_again,
							 .initial_state = (void *)*c};
	return _cmocka_run_group_tests("again", tests, n, NULL, NULL);
}
