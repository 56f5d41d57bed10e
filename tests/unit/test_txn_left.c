/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator passes its commit point, and then nothing of it reaches any record: its commit
 * stage does nothing, and its client is gone.  Others finish what it has left, from its log, which
 * they read with verbs; also where it is longer than what any fabric moves with one verb.  On shm
 * nobody rolls forward while the owner's process lives.
 */
#include <xxhash.h>

#include "txn/db.h"
#include "txn_api.h"

#define LEFT_KEYS  6u
#define LARGE_KEYS 18u
#define LARGE      (60u << 10) /* more than 1 MiB together: the most of a READ on sim */

static uint8_t large[LARGE];

/* The protocol with a commit stage that does nothing, here or at a server. */
static struct vb_cc_ops mute;
static struct vb_stage_ops stages[VB_STAGES_MAX];

static void do_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct vb_db *db = t->me->db;

	(void)ctx;
	mute = *db->cc;
	memcpy(stages, mute.stages, mute.n_stages * sizeof(stages[0]));
	stages[mute.commit].run = do_nothing;
	mute.stages = stages;
	db->cc = &mute;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)t;
	*(bool *)ctx = committed;
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

/* Coordinator a of the world has committed to these records, and is gone. */
static void leave(struct world *w, struct vb_table *t, unsigned keys, const void *record)
{
	const struct vb_cc_ops *cc = w->db->cc;
	bool committed = false;
	struct vb_txn_watch watch = {.ctx = &committed,
				     .prepared = on_prepared,
				     .ended = on_ended,
				     .unknown = on_unknown};

	must(vb_txn_begin(w->a));
	for (uint64_t key = 0; key < keys; key++)
		must(vb_txn_write(w->a, t, key, record));
	w->db->watch = &watch;
	must(vb_txn_commit(w->a));
	w->db->watch = NULL;
	w->db->cc = cc;
	assert_true(committed);
	vb_coordinator_bury(w->a);
	w->a = NULL;
}

static void recover_all(struct world *w, unsigned keys)
{
	uint64_t freed;

	for (uint16_t node = 0; node < NODES; node++)
		must(vb_db_recover(w->b, node, &freed));
	assert_int_equal(w->b->rolled_forward, keys);
}

static void finished_by_others(void **state)
{
	const struct record after = {.value = 7};
	struct world w;

	open_usual(&w, state, SHORT_NS);
	leave(&w, w.t, LEFT_KEYS, &after);
	recover_all(&w, LEFT_KEYS);
	for (uint64_t key = 0; key < LOADED; key++)
		assert_int_equal(value_of(w.b, w.t, key), key < LEFT_KEYS ? 7 : FIRST + key);
	close_world(&w);
}

static int find_large(struct vb_coordinator *me, struct vb_table *t, uint64_t key, bool *same)
{
	const void *here;
	int err = vb_txn_get(me, t, key, &here);

	*same = err == 0 && memcmp(here, large, LARGE) == 0;
	return err;
}

static void long_log(void **state)
{
	const struct vb_table_params tp = {
		.name = "large", .record_bytes = LARGE, .records = LARGE_KEYS};
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct world w = {0};
	bool same = false;

	p.coordinators = 2;
	p.items_max = LARGE_KEYS;
	p.record_max = LARGE;
	p.bytes_max = LARGE_KEYS * LARGE;
	open_fabric(&w.f, fabric_of(state),
		    vb_db_node_bytes(&p, NODES) + vb_table_node_bytes(&p, &tp, NODES));
	must(vb_db_open(w.f, &p, &w.db));
	must(vb_table_open(w.db, &tp, &w.t));
	for (uint64_t key = 0; key < LARGE_KEYS; key++)
		must(vb_table_load(w.t, key, large));
	start_servers(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	must(vb_coordinator_open(w.db, 1, &w.b));
	for (unsigned i = 0; i < LARGE; i++)
		large[i] = (uint8_t)(i * 7 + i / 256);
	leave(&w, w.t, LARGE_KEYS, large);
	recover_all(&w, LARGE_KEYS);
	for (uint64_t key = 0; key < LARGE_KEYS; key++) {
		alone(w.b, find_large(w.b, w.t, key, &same));
		assert_true(same);
	}
	memset(large, 0, LARGE);
	close_world(&w);
}

/* ---- what does not bear its seal is no log ---- */

enum spoiled { RECORD, NEXT, SHORTER, SEAL, ANOTHERS, SPOILS };

static void spoil(struct world *w, uint32_t place, enum spoiled how)
{
	struct vb_place_head *head = vb_local(w->f, vb_db_place(w->db, place), w->db->place_bytes);
	struct vb_log_entry *first = (void *)(head + 1);
	unsigned char *log = (unsigned char *)first;
	uint64_t name = head->status & ~(uint64_t)VB_TS_STATE;

	assert_int_equal(head->status & VB_TS_STATE, VB_TS_COMMITTED);
	assert_int_equal(head->log_bytes, LEFT_KEYS * (sizeof(*first) + sizeof(struct record)));
	assert_int_equal(head->log_seal, XXH3_64bits_withSeed(log, head->log_bytes, name));
	switch (how) {
	case RECORD:
		log[head->log_bytes - 1] ^= 1;
		break;
	case NEXT:
		first->next += 4;
		break;
	case SHORTER:
		head->log_bytes -= sizeof(*first) + sizeof(struct record);
		break;
	case SEAL:
		head->log_seal ^= 1ull << 63;
		break;
	default: /* whole, and of the same place's next transaction */
		head->log_seal = XXH3_64bits_withSeed(log, head->log_bytes,
						      vb_ts_make(vb_ts_clock(name) + 1, place));
	}
}

/* Half of one log and half of the next, or all of the next: nothing of it may reach a record. */
static void wrong_seal(void **state)
{
	const struct record after = {.value = 7}, later = {.value = 8};

	for (enum spoiled how = RECORD; how < SPOILS; how++) {
		uint64_t freed;
		struct world w;
		uint32_t place;

		open_usual(&w, state, SHORT_NS);
		/* The place of the transaction that begins next. */
		place = w.a->lane[(w.a->current + 1) % VB_PLACES_TXN].place;
		leave(&w, w.t, LEFT_KEYS, &after);
		spoil(&w, place, how);
		for (uint16_t node = 0; node < NODES; node++)
			must(vb_db_recover(w.b, node, &freed));
		assert_int_equal(w.b->rolled_forward, 0);
		for (uint64_t key = 0; key < LOADED; key++)
			assert_int_equal(value_of(w.b, w.t, key), FIRST + key);
		alone(w.b, vb_txn_write(w.b, w.t, 0, &later));
		assert_int_equal(value_of(w.b, w.t, 0), 8);
		close_world(&w);
	}
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"finished by others", finished_by_others},
		{"from a log longer than a verb", long_log},
		{"a log without its seal", wrong_seal},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: what is left", tests, n, NULL, NULL);
}
