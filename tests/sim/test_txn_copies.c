/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator's node goes with its memory, at every moment of a transaction, and so do one or two of the copies of
 * its log, before, with it or after; or it is only taken for gone and runs on.  Two others, who want what it held,
 * find that its transaction has happened, or has not: both the same, at every record, and what it was told itself.
 */
#include <errno.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "txn/copies.h"

#define US    1000ull
#define NODES 6u
#define HOME  0u /* its copies: 1 and 2 */
#define KEYS  2u
#define MENDS 5u /* its copies: 0 and 1 */
/* More than the transaction takes; each step is less than a verb does. */
#define LAST_NS  24000ull
#define STEP_NS  300ull
#define BOUND_NS (25 * US)

enum { BEFORE = 1, WITH, AFTER };
struct fall {
	const char *cc;
	uint64_t at_ns;
	uint8_t copy[2]; /* when its node goes; 0: it stays */
	uint8_t lost;    /* of what it has under way, to these nodes */
	bool runs_on;    /* ... when it has stood still for that long */
	uint64_t stands_ns;
	bool at_log,
		at_writes; /* not at_ns, but when it is about to write its log, or its records */
	bool two;          /* wait for it at the same time */
	uint64_t
		mender_ns; /* before them another did, whose node went when it had waited so long; 0: none */
	bool resident; /* the first one lives at the node of a copy, which is only taken for gone */
	double lose;   /* of what is read meanwhile */
	uint64_t seed;
	uint64_t bound_ns; /* 0: BOUND_NS */
};

struct seen {
	struct world *w;
	struct vb_coordinator *me;
	bool done;
	uint64_t value[KEYS];
};

struct world {
	const struct fall *fall;
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server[NODES];
	struct vb_coordinator *a;
	struct vb_txn_watch watch;
	struct seen seen[2];
	bool falls, told;
	bool strikes; /* what its next log is answered is given up early */
	int err;
};

#define must(call) assert_int_equal(call, 0)

/* On nodes of their own. */
static uint64_t key_of(unsigned i)
{
	return (uint64_t)(3 + i) << 48 | 1;
}

static void open_world(struct world *w, const struct fall *fall, uint32_t copies)
{
	const uint64_t bound_ns = fall->bound_ns != 0 ? fall->bound_ns : BOUND_NS;
	char options[64];
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = options,
					    .nodes = NODES,
					    .node_bytes = 4 << 20,
					    .seed = 1 + fall->at_ns + fall->seed};
	const struct vb_db_params dp = {.cc = fall->cc,
					.coordinators = 2,
					.items_max = 8,
					.bytes_max = 256,
					.record_bytes_max = 64,
					.lease_ns = 8 * bound_ns,
					.copies = copies};
	const struct vb_table_params tp = {
		.name = "t", .record_bytes = 8, .records = 64, .partition = VB_PARTITION_TOP16};
	uint64_t record = 1;

	memset(w, 0, sizeof(*w));
	w->fall = fall;
	snprintf(options, sizeof(options), "profile=cx5,bound=%" PRIu64 "ns,scope=nic", bound_ns);
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	for (unsigned i = 0; i < KEYS; i++)
		must(vb_table_load(w->t, key_of(i), &record));
	for (uint16_t n = 3; n < MENDS; n++)
		must(vb_db_server_start(w->db, n, &w->server[n]));
	must(vb_coordinator_open(w->db, HOME, &w->a));
	for (unsigned i = 0; i < 2; i++) {
		w->seen[i].w = w;
		must(vb_coordinator_open(w->db,
					 i == 0 && fall->resident ? HOME + 1 : (uint16_t)(3 + i),
					 &w->seen[i].me));
	}
}

static void close_world(struct world *w)
{
	vb_coordinator_bury(w->a);
	for (unsigned i = 0; i < 2; i++)
		vb_coordinator_close(w->seen[i].me);
	for (uint16_t n = 3; n < MENDS; n++)
		vb_db_server_stop(w->server[n]);
	must(vb_db_close(w->db));
	vb_fabric_close(w->f);
}

/* Each record becomes 7. */
static int write_all(struct vb_coordinator *me, struct vb_table *t)
{
	int err = vb_txn_begin(me);

	for (unsigned i = 0; i < KEYS && err == 0; i++) {
		uint64_t *record;

		err = vb_txn_update(me, t, key_of(i), (void **)&record);
		if (err == 0)
			*record = 7;
	}
	return err == 0 ? vb_txn_commit(me) : err;
}

static void writes(void *arg)
{
	struct world *w = arg;

	w->err = write_all(w->a, w->t);
	w->told = true;
}

/* Takes what stands in all records, and moves them on by a hundred. */
static int take_all(struct vb_coordinator *me, void *arg)
{
	struct seen *s = arg;
	int err = 0;

	for (unsigned i = 0; i < KEYS && err == 0; i++) {
		uint64_t *record;

		err = vb_txn_update(me, s->w->t, key_of(i), (void **)&record);
		if (err != 0)
			break;
		s->value[i] = *record;
		*record += 100;
	}
	return err;
}

/* Sees what they are, and changes nothing. */
static int look_at_all(struct vb_coordinator *me, void *arg)
{
	return take_all(me, arg) == 0 ? -ECANCELED : -EAGAIN;
}

static void looks(void *arg)
{
	struct seen *s = arg;

	while (vb_txn_run(s->me, look_at_all, s, 0) != 0)
		;
}

static void waits(void *arg)
{
	struct seen *s = arg;
	int err;

	do
		err = vb_txn_run(s->me, take_all, s, 0);
	while (err == -VB_EPEERGONE || err == -VB_EUNKNOWN);
	must(err);
	s->done = true;
}

static void go(struct world *w, uint8_t when)
{
	for (unsigned i = 0; i < 2; i++) {
		const uint16_t node = (uint16_t)(HOME + 1 + i);

		if (w->fall->copy[i] == when && i == 0 && w->fall->resident)
			vb_sim_disown_node(w->f, node);
		else if (w->fall->copy[i] == when)
			vb_sim_lose_node(w->f, node);
	}
}

static void fall_down(struct world *w, struct vb_task *task)
{
	if (w->fall->runs_on) {
		vb_sim_disown_node(w->f, HOME);
		vb_sim_ep_pause(w->a->ep, vb_sim_now(w->f) + w->fall->stands_ns);
		return;
	}
	vb_sim_lose_sent(w->f, HOME, w->fall->lost);
	vb_sim_lose_node(w->f, HOME);
	if (!w->told)
		vb_task_kill(task);
	vb_coordinator_bury(w->a);
	w->a = NULL;
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	const struct vb_sim_faults early = {.early = 1, .lose_ops = 1u << VB_OP_WRITE};
	struct world *w = ctx;

	if (t->me == w->a && w->strikes) {
		vb_sim_set_faults(w->f, &early);
		w->strikes = false;
	}
	if (t->me == w->a && w->falls && w->fall->at_log)
		fall_down(w, NULL);
}

static void on_passed(void *ctx, const struct vb_txn *t)
{
	struct world *w = ctx;

	if (t->me == w->a && w->falls && w->fall->at_writes)
		fall_down(w, NULL);
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

static void watch(struct world *w)
{
	w->watch = (struct vb_txn_watch){.ctx = w,
					 .prepared = on_prepared,
					 .passed = on_passed,
					 .ended = on_ended,
					 .unknown = on_unknown};
	w->db->watch = &w->watch;
	w->falls = true;
}

/* As one after the other, the transaction among them or not: what stands there in the end. */
static bool judge(struct world *w, unsigned n, const uint64_t last[KEYS])
{
	const bool did = last[0] % 100 == 7;
	unsigned behind = 0;

	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 1; k < KEYS; k++)
			assert_int_equal(w->seen[i].value[k], w->seen[i].value[0]);
		behind += w->seen[i].value[0] % 100 == 7;
	}
	if (n == 2)
		assert_int_not_equal(w->seen[0].value[0], w->seen[1].value[0]);
	assert_true(did || behind == 0);
	for (unsigned k = 0; k < KEYS; k++)
		assert_int_equal(last[k], did ? 7 + 100 * behind : 1 + 100 * n);
	if (w->told && w->err != -VB_EUNKNOWN)
		assert_int_equal(did, w->err == 0);
	return did;
}

/* Who has begun to roll it forward, in the name of a place of its own. */
static void mender_goes(struct world *w)
{
	static const struct vb_task_params params = {.name = "mender"};
	struct seen s = {.w = w};
	struct vb_task *task;

	must(vb_coordinator_open(w->db, MENDS, &s.me));
	must(vb_task_spawn(s.me->ep->sched, looks, &s, &params, &task));
	must(vb_ep_sleep(w->seen[0].me->ep, w->fall->mender_ns));
	vb_sim_lose_node(w->f, MENDS);
	vb_task_kill(task);
	vb_coordinator_bury(s.me);
}

static bool happened(const struct fall *fall)
{
	static const struct vb_task_params params = {.name = "copies"};
	const unsigned n = fall->two ? 2 : 1;
	struct vb_task *task, *other;
	struct world w;
	struct seen last;
	uint64_t began;
	bool did;

	open_world(&w, fall, 2);
	must(write_all(w.a, w.t));
	for (unsigned i = 0; i < KEYS; i++)
		w.seen[0].value[i] = 0;
	must(vb_txn_run(w.seen[0].me, take_all, &w.seen[0], 0));
	must(vb_txn_begin(w.seen[0].me));
	for (unsigned i = 0; i < KEYS; i++) {
		uint64_t one = 1;

		must(vb_txn_write(w.seen[0].me, w.t, key_of(i), &one));
	}
	must(vb_txn_commit(w.seen[0].me));
	watch(&w);
	go(&w, BEFORE);
	began = vb_ep_now(w.seen[0].me->ep);
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &params, &task));
	must(vb_ep_sleep(w.seen[0].me->ep, fall->at_ns));
	go(&w, WITH);
	if (!fall->at_log && !fall->at_writes)
		fall_down(&w, task);
	if (fall->mender_ns != 0)
		mender_goes(&w);
	vb_sim_set_faults(
		w.f, &(struct vb_sim_faults){.lose = fall->lose, .lose_ops = 1u << VB_OP_READ});
	for (unsigned i = 0; i < n; i++)
		must(vb_task_spawn(w.seen[i].me->ep->sched, waits, &w.seen[i], &params, &other));
	must(vb_ep_sleep(w.seen[0].me->ep, 260 * US));
	go(&w, AFTER);
	while (!(w.seen[0].done && (n == 1 || w.seen[1].done)) || (fall->runs_on && !w.told)) {
		must(vb_ep_sleep(w.seen[0].me->ep, 10 * US));
		assert_true(vb_ep_now(w.seen[0].me->ep) - began < 20000 * US);
	}
	vb_sim_set_faults(w.f, &(struct vb_sim_faults){0});
	/* Nothing comes later. */
	must(vb_ep_sleep(w.seen[0].me->ep, 1000 * US));
	last = w.seen[0];
	must(vb_txn_run(last.me, take_all, &last, 0));
	did = judge(&w, n, last.value);
	if (w.a != NULL && w.a->fenced)
		assert_int_equal(vb_txn_begin(w.a), -VB_EPEERGONE);
	close_world(&w);
	return did;
}

static const char *const ccs[] = {"no-wait", "wound-wait-sx", "silo",      "sundial",
				  "mvcc",    "maat",          "to-cascade"};

/* At each moment; it happens sooner or later, and not from the first. */
static void at_each_moment(struct fall fall)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		unsigned did = 0, n = 0;

		fall.cc = ccs[i];
		for (fall.at_ns = STEP_NS; fall.at_ns <= LAST_NS; fall.at_ns += STEP_NS) {
			did += happened(&fall);
			n++;
		}
		assert_true(did > 0 && did < n);
	}
}

static void with_its_memory(void **state)
{
	(void)state;
	at_each_moment((struct fall){.two = false});
	at_each_moment((struct fall){.two = true});
	for (uint8_t to = 1; to < NODES; to++)
		at_each_moment((struct fall){.two = true, .lost = (uint8_t)(1u << to)});
}

static void and_a_copy(void **state)
{
	(void)state;
	for (uint8_t when = BEFORE; when <= AFTER; when++)
		for (unsigned i = 0; i < 2; i++) {
			struct fall fall = {.two = true};

			fall.copy[i] = when;
			at_each_moment(fall);
			/* The other one has half of it, or nothing. */
			fall.lost = (uint8_t)(1u << (HOME + 2 - i));
			at_each_moment(fall);
		}
}

static void only_cut_off(void **state)
{
	(void)state;
	at_each_moment((struct fall){.runs_on = true, .stands_ns = 240 * US});
	at_each_moment((struct fall){.runs_on = true, .stands_ns = 700 * US, .two = true});
	/* By then they have written all of it. */
	at_each_moment((struct fall){.runs_on = true, .stands_ns = 1500 * US, .two = true});
}

/* Others seal its place some 250 us after they have met its locks, and act by that 250 us later. */
static void comes_back(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++)
		for (unsigned two = 0; two < 2; two++) {
			unsigned did = 0, n = 0;

			for (uint64_t us = 10; us < 800; us += us < 245 || us > 275 ? 10 : 1, n++)
				did += happened(&(struct fall){.cc = ccs[i],
							       .at_ns = LAST_NS,
							       .runs_on = true,
							       .two = two,
							       .stands_ns = us * US,
							       .at_log = true});
			assert_true(did > 0 && did < n);
			for (uint64_t us = 10; us < 800; us += 10)
				assert_true(happened(&(struct fall){.cc = ccs[i],
								    .at_ns = LAST_NS,
								    .runs_on = true,
								    .two = two,
								    .stands_ns = us * US,
								    .at_writes = true}));
		}
}

/* It has committed; who finishes it goes with his node in the midst of that, and the next one finishes both. */
static void the_mender_too(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++)
		for (uint64_t us = 500; us < 700; us++)
			assert_true(happened(&(struct fall){.cc = ccs[i],
							    .at_ns = LAST_NS,
							    .runs_on = true,
							    .stands_ns = 4000 * US,
							    .at_writes = true,
							    .mender_ns = us * US}));
}

/* It has committed when the node of a copy is taken for gone.  Who lives there finds that copy without the log, and
 * loses what he reads of the other one. */
static void from_a_copy_that_is_cut_off(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++)
		for (uint64_t seed = 1; seed <= 100; seed++)
			assert_true(happened(&(struct fall){.cc = ccs[i],
							    .at_ns = LAST_NS,
							    .runs_on = true,
							    .stands_ns = 4000 * US,
							    .at_writes = true,
							    .copy = {BEFORE},
							    .resident = true,
							    .lose = 0.2,
							    .seed = seed}));
}

/* Of a transaction of its own. */
static int take_one(struct vb_coordinator *me, void *arg)
{
	struct seen *s = arg;
	const uint64_t key = key_of((unsigned)(s - s->w->seen));
	uint64_t *record;
	int err = vb_txn_update(me, s->w->t, key, (void **)&record);

	if (err == 0)
		s->value[0] = *record;
	return err;
}

static void take_until(struct seen *s)
{
	const uint64_t end = vb_ep_now(s->me->ep) + 20000 * US;
	int err;

	while ((err = vb_txn_run(s->me, take_one, s, 1)) != 0 && vb_ep_now(s->me->ep) < end)
		;
	must(err);
}

static uint64_t recovered_twice(const struct fall *fall)
{
	static const struct vb_task_params params = {.name = "copies"};
	struct vb_task *task;
	struct world w;

	open_world(&w, fall, 2);
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &params, &task));
	must(vb_ep_sleep(w.seen[0].me->ep, fall->at_ns));
	if (!w.told)
		vb_task_kill(task);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	take_until(&w.seen[0]);
	vb_sim_lose_node(w.f, HOME);
	take_until(&w.seen[1]);
	assert_int_equal(w.seen[0].value[0], w.seen[1].value[0]);
	close_world(&w);
	return w.seen[0].value[0];
}

/* A coordinator dies, and its node does not: one of its records is recovered by its status word.  Then the node goes,
 * and the other one is recovered by the copies. */
static void by_home_and_by_copies(void **state)
{
	unsigned did = 0, n = 0;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++)
		for (uint64_t ns = STEP_NS; ns <= LAST_NS; ns += STEP_NS / 3, n++)
			did += recovered_twice(&(struct fall){.cc = ccs[i], .at_ns = ns}) == 7;
	assert_true(did > 0 && did < n);
}

/* Reads the first record, and writes the second. */
static void reads_and_writes(void *arg)
{
	struct world *w = arg;
	uint64_t *record;
	int err = vb_txn_begin(w->a);

	if (err == 0)
		err = vb_txn_get(w->a, w->t, key_of(0), (const void **)&record);
	if (err == 0)
		err = vb_txn_update(w->a, w->t, key_of(1), (void **)&record);
	if (err == 0)
		*record = 7;
	w->err = err == 0 ? vb_txn_commit(w->a) : err;
	w->told = true;
}

/* Reads what it has written, and writes what it has read. */
static int follow(struct vb_coordinator *me, void *arg)
{
	struct seen *s = arg;
	const uint64_t *written;
	uint64_t *read;
	int err = vb_txn_get(me, s->w->t, key_of(1), (const void **)&written);

	if (err == 0)
		s->value[1] = *written;
	if (err == 0)
		err = vb_txn_update(me, s->w->t, key_of(0), (void **)&read);
	if (err == 0)
		*read = 5;
	return err;
}

/* What it has read is in nobody's way for longer than its locks are, and who has read what it wrote need not ask it
 * what has become of that. */
static void who_reads_goes(void **state)
{
	static const struct vb_task_params params = {.name = "copies"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		const struct fall fall = {.cc = ccs[i]};
		unsigned did = 0, n = 0;

		for (uint64_t ns = STEP_NS; ns <= LAST_NS; ns += STEP_NS, n++) {
			struct vb_task *task;
			struct world w;
			int err;

			open_world(&w, &fall, 2);
			must(vb_task_spawn(w.a->ep->sched, reads_and_writes, &w, &params, &task));
			must(vb_ep_sleep(w.seen[0].me->ep, ns));
			fall_down(&w, task);
			while ((err = vb_txn_run(w.seen[0].me, follow, &w.seen[0], 1)) != 0) {
				must(vb_ep_sleep(w.seen[0].me->ep, US));
				assert_true(vb_sim_now(w.f) < 20000 * US);
			}
			did += w.seen[0].value[1] == 7;
			if (w.told && w.err == 0)
				assert_int_equal(w.seen[0].value[1], 7);
			close_world(&w);
		}
		assert_true(did > 0 && did < n);
	}
}

/* Its log is with both copies, and, where that has a second word, that too; its commit point has not come. */
static bool is_half_way(const struct world *w)
{
	const uint64_t told = vb_cc_installs(w->db->cc) ? COPY_FINAL : COPY_LOGGED;
	const uint32_t place = vb_txn_lane(w->a)->place;
	const uint64_t *status = vb_local(w->f, vb_status_word(w->db, place), 8);
	bool logged = (*status & VB_TS_STATE) == VB_TS_RUNNING;

	for (unsigned i = 0; i < 2; i++) {
		const uint64_t *word = vb_local(w->f, vb_copy_at(w->db, place, i), 8);

		logged &=
			vb_ts_clock(*word) == vb_ts_clock(*status) && (*word & COPY_STATE) == told;
	}
	return logged;
}

static void takes_one(void *arg)
{
	struct seen *s = arg;

	take_until(s);
	s->done = true;
}

/* Until its first record's finder has given it up by its status word, or so long: then its node goes. */
static uint64_t let_it_go(struct world *w, uint32_t place, uint64_t ns)
{
	const uint64_t *status = vb_local(w->f, vb_status_word(w->db, place), 8);
	uint64_t began = vb_sim_now(w->f);

	while (ns != 0 ? vb_sim_now(w->f) - began < ns : (*status & VB_TS_STATE) != VB_TS_RECOVERED)
		must(vb_ep_sleep(w->seen[0].me->ep, 50));
	vb_sim_lose_node(w->f, HOME);
	return vb_sim_now(w->f) - began;
}

/* When the home went, from when on its first record is waited for.  ns: when it is to go; 0: as the status word is
 * changed. */
static uint64_t recovered_as_it_goes(const char *cc, uint64_t ns)
{
	static const struct vb_task_params params = {.name = "copies"};
	const struct fall fall = {.cc = cc};
	struct vb_task *task;
	struct world w;
	uint32_t place;

	open_world(&w, &fall, 2);
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &params, &task));
	do
		must(vb_ep_sleep(w.seen[0].me->ep, 50));
	while (!is_half_way(&w));
	place = vb_txn_lane(w.a)->place;
	vb_task_kill(task);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	must(vb_task_spawn(w.seen[0].me->ep->sched, takes_one, &w.seen[0], &params, &task));
	ns = let_it_go(&w, place, ns);
	take_until(&w.seen[1]);
	while (!w.seen[0].done)
		must(vb_ep_sleep(w.seen[1].me->ep, US));
	assert_int_equal(w.seen[0].value[0], w.seen[1].value[0]);
	close_world(&w);
	return ns;
}

/* Who gives it up by its status word does so while its home goes: what the copies say is not left to the next one. */
static void by_home_as_it_goes(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		uint64_t at_ns = recovered_as_it_goes(ccs[i], 0);

		for (uint64_t ns = at_ns - 2 * US; ns < at_ns + 8 * US; ns += 100)
			(void)recovered_as_it_goes(ccs[i], ns);
	}
}

/* Is the record what the transaction has made of it, and nobody's? */
static bool is_in_place(const struct world *w, uint64_t key)
{
	const vb_addr at = vb_table_find(w->t, vb_table_node(w->t, key), key);
	const unsigned char *tuple = vb_local(w->f, at, w->t->layout.bytes);
	struct vb_named_word named[VB_NAMED_WORDS_MAX];

	return vb_words_named(w->db->cc, tuple, named) == 0;
}

/* Given up by its status word, and sealed as final, before its coordinator comes to its commit point. */
static void give_up_and_seal(struct world *w)
{
	const uint32_t place = vb_txn_lane(w->a)->place;
	const uint64_t ts = w->a->txn.ts;
	uint64_t status;

	must(vb_cas64(w->seen[0].me->ep, vb_status_word(w->db, place), ts | VB_TS_RUNNING, ts,
		      &status));
	assert_int_equal(status, ts | VB_TS_RUNNING);
	vb_sim_disown_node(w->f, HOME);
	must(vb_copies_seal(w->seen[0].me, place, &status));
	assert_int_equal(status, ts | VB_TS_COMMITTED);
}

/* A coordinator learns from the copies that it has committed after all.  What it cannot write any more then it
 * finishes before it gives its place up. */
static void told_by_the_copies(void **state)
{
	static const struct vb_task_params params = {.name = "copies"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		const struct fall fall = {
			.cc = ccs[i], .runs_on = true, .stands_ns = 400 * US, .at_writes = true};
		struct vb_task *task;
		struct world w;

		open_world(&w, &fall, 2);
		watch(&w);
		must(vb_task_spawn(w.a->ep->sched, writes, &w, &params, &task));
		do
			must(vb_ep_sleep(w.seen[0].me->ep, 50));
		while (!is_half_way(&w));
		vb_sim_ep_pause(w.a->ep, vb_sim_now(w.f) + 50 * US);
		give_up_and_seal(&w);
		while (!w.told)
			must(vb_ep_sleep(w.seen[0].me->ep, US));
		must(w.err);
		for (unsigned k = 0; k < KEYS; k++)
			assert_false(is_in_place(&w, key_of(k)));
		vb_coordinator_close(w.a);
		w.a = NULL;
		for (unsigned k = 0; k < KEYS; k++)
			assert_true(is_in_place(&w, key_of(k)));
		take_until(&w.seen[0]);
		assert_int_equal(w.seen[0].value[0], 7);
		close_world(&w);
	}
}

/* The answer of a log is given up before it has landed, and it is sent again.  What lands late must not meet the
 * place's next log, by which that one is finished. */
static void late_log(void **state)
{
	static const struct vb_task_params params = {.name = "copies"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs) * 10; i++) {
		const struct fall fall = {.cc = ccs[i % VB_ARRAY_SIZE(ccs)],
					  .runs_on = true,
					  .stands_ns = 50000 * US,
					  .at_writes = true,
					  .seed = i,
					  .bound_ns = 200 * US};
		struct vb_task *task;
		struct world w;

		open_world(&w, &fall, 1);
		watch(&w);
		w.falls = false;
		w.strikes = true;
		must(vb_task_spawn(w.a->ep->sched, writes, &w, &params, &task));
		while (w.strikes)
			must(vb_ep_sleep(w.seen[0].me->ep, 50));
		must(vb_ep_sleep(w.seen[0].me->ep, 500));
		vb_sim_set_faults(w.f, &(struct vb_sim_faults){0});
		while (!w.told)
			must(vb_ep_sleep(w.seen[0].me->ep, 50));
		must(w.err);
		/* In the other place. */
		must(write_all(w.a, w.t));
		must(vb_txn_run(w.seen[1].me, take_all, &w.seen[1], 0));
		w.falls = true;
		must(vb_task_spawn(w.a->ep->sched, writes, &w, &params, &task));
		while (!vb_node_gone(w.f, HOME))
			must(vb_ep_sleep(w.seen[0].me->ep, US));
		take_until(&w.seen[0]);
		assert_int_equal(w.seen[0].value[0], 7);
		vb_task_kill(task);
		close_world(&w);
	}
}

/* A WRITE for each copy, and a CAS for each word that it hears; one round trip for each word, to all of them. */
static void costs(const char *cc, unsigned words)
{
	const struct fall none = {.cc = cc};
	uint64_t ns[3], writes_of[3], atomics_of[3], opened;
	struct vb_coordinator *other;

	for (uint32_t copies = 0; copies < 3; copies++) {
		struct world w;

		open_world(&w, &none, copies);
		for (unsigned i = 0; i < 4; i++) {
			const uint64_t *count = w.a->ep->count;

			ns[copies] = vb_ep_now(w.a->ep);
			writes_of[copies] = count[VB_OP_WRITE];
			atomics_of[copies] = count[VB_OP_CAS64];
			must(write_all(w.a, w.t));
			ns[copies] = vb_ep_now(w.a->ep) - ns[copies];
			writes_of[copies] = count[VB_OP_WRITE] - writes_of[copies];
			atomics_of[copies] = count[VB_OP_CAS64] - atomics_of[copies];
		}
		opened = vb_sim_now(w.f);
		must(vb_coordinator_open(w.db, HOME, &other));
		opened = vb_sim_now(w.f) - opened;
		vb_coordinator_close(other);
		/* What a dead one was writing may land yet. */
		assert_int_equal(opened >= BOUND_NS, copies > 0);
		if (copies > 0) {
			assert_int_equal(writes_of[copies], writes_of[0] + copies);
			assert_int_equal(atomics_of[copies], atomics_of[0] + copies * words);
			assert_in_range(ns[copies] - ns[0], 1, w.f->caps.rtt_ns * words * 5 / 4);
		}
		close_world(&w);
	}
}

static void what_it_costs(void **state)
{
	(void)state;
	costs("silo", 1);
	costs("maat", 1);
	costs("to-cascade", 2);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(with_its_memory),
		cmocka_unit_test(and_a_copy),
		cmocka_unit_test(only_cut_off),
		cmocka_unit_test(comes_back),
		cmocka_unit_test(the_mender_too),
		cmocka_unit_test(who_reads_goes),
		cmocka_unit_test(by_home_and_by_copies),
		cmocka_unit_test(from_a_copy_that_is_cut_off),
		cmocka_unit_test(by_home_as_it_goes),
		cmocka_unit_test(told_by_the_copies),
		cmocka_unit_test(late_log),
		cmocka_unit_test(what_it_costs),
	};

	if (vb_log_levels("off") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
