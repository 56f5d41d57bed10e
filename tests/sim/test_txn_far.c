/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coordinators whose places are far, as those of an elastic cluster's clients: at each moment of a transaction one
 * dies, and who needs places takes his over, finishes what was left, and may die of it at any moment as well.
 * All of the transaction has happened or nothing, and no lock stays held.
 */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "fabric/sim/inner.h"
#include "txn/db.h"

#define US      1000ull
#define NODES   5u
#define HOME    0u /* has the places, and no records */
#define KEYS    2u
#define LAST_NS 30000ull
#define STEP_NS 300ull

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_db_server *server[NODES];
	struct vb_coordinator *a, *b; /* a: far, from node 3; b: near, at node 1 */
	uint64_t value[KEYS];
	int err;
	bool told;
};

#define must(call) assert_int_equal(call, 0)

/* On nodes 1 and 2. */
static uint64_t key_of(unsigned i)
{
	return (uint64_t)(1 + i) << 48 | 1;
}

#define BOUND "bound=25us"
static const char *bound = BOUND;

static void open_world_by(struct world *w, const char *cc, const char *hybrid, uint64_t seed,
			  uint32_t copies)
{
	char options[64];
	const struct vb_fabric_params fp = {.fabric = "sim",
					    .options = options,
					    .nodes = NODES,
					    .node_bytes = 1 << 20,
					    .seed = 1 + seed};
	/* One coordinator on a node: who needs a second one at HOME has to take over the first one's places. */
	const struct vb_db_params dp = {.cc = cc,
					.hybrid = hybrid,
					.coordinators = 1,
					.items_max = 8,
					.bytes_max = 256,
					.record_bytes_max = 64,
					.lease_ns = 200 * US,
					.copies = copies};
	const struct vb_table_params tp = {
		.name = "t", .record_bytes = 8, .records = 64, .partition = VB_PARTITION_TOP16};
	uint64_t record = 1;

	memset(w, 0, sizeof(*w));
	snprintf(options, sizeof(options), "profile=cx5,%s,scope=nic", bound);
	must(vb_fabric_open(&fp, &w->f));
	must(vb_db_open(w->f, &dp, &w->db));
	must(vb_table_open(w->db, &tp, &w->t));
	for (unsigned i = 0; i < KEYS; i++)
		must(vb_table_load(w->t, key_of(i), &record));
	for (uint16_t n = 0; n < NODES; n++)
		must(vb_db_server_start(w->db, n, &w->server[n]));
	must(vb_coordinator_open_far(w->db, HOME, 3, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

static void open_world(struct world *w, const char *cc, uint64_t seed, uint32_t copies)
{
	open_world_by(w, cc, NULL, seed, copies);
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	for (uint16_t n = 0; n < NODES; n++)
		vb_db_server_stop(w->server[n]);
	must(vb_db_close(w->db));
	must(vb_fabric_close(w->f));
}

/* Each record becomes `to`. */
static int write_all(struct world *w, struct vb_coordinator *me, uint64_t to)
{
	int err = vb_txn_begin(me);

	for (unsigned i = 0; i < KEYS && err == 0; i++) {
		uint64_t *record;

		err = vb_txn_update(me, w->t, key_of(i), (void **)&record);
		if (err == 0)
			*record = to;
	}
	return err == 0 ? vb_txn_commit(me) : err;
}

static void writes(void *arg)
{
	struct world *w = arg;

	w->err = write_all(w, w->a, 7);
	w->told = true;
}

struct writer {
	struct world *w;
	struct vb_coordinator *me;
	uint64_t to;
	unsigned tries;
	int err;
	bool done;
};

static void writes_as(void *arg)
{
	struct writer *by = arg;

	for (unsigned i = 0; i <= by->tries; i++) {
		by->err = write_all(by->w, by->me, by->to);
		if (by->err != -EAGAIN)
			break;
		if (vb_ep_sleep(by->me->ep, 10 * US) != 0)
			break;
	}
	by->done = true;
}

/* What stands in all records, which are its own to write by then. */
static int take_all(struct vb_coordinator *me, void *arg)
{
	struct world *w = arg;
	int err = 0;

	for (unsigned i = 0; i < KEYS && err == 0; i++) {
		uint64_t *record;

		err = vb_txn_update(me, w->t, key_of(i), (void **)&record);
		if (err == 0)
			w->value[i] = *record;
	}
	return err;
}

static const struct vb_task_params task_params = {.name = "far"};

/* As a process that is killed: what it has posted may land, and its home says that it is no more. */
static void dies(struct vb_coordinator **me, struct vb_task *task, bool is_over)
{
	if (!is_over)
		vb_task_kill(task);
	vb_coordinator_bury(*me);
	*me = NULL;
}

static unsigned midst; /* so many heirs died before they were through */

struct adopter {
	struct world *w;
	struct vb_coordinator *me;
	int err;
	bool done;
};

static void adopts(void *arg)
{
	struct adopter *it = arg;

	it->err = vb_coordinator_open_far(it->w->db, HOME, 4, &it->me);
	it->done = true;
}

static uint64_t word_at(const struct world *w, vb_addr at)
{
	return *(const uint64_t *)vb_local(w->f, at, 8);
}

/* The word of each record's lock. */
static bool is_held(struct world *w, unsigned i)
{
	vb_addr at = vb_table_find(w->t, (uint16_t)(1 + i), key_of(i));
	const unsigned char *tuple = vb_local(w->f, at, w->t->layout.bytes);
	uint64_t word = vb_tuple_word(tuple, w->t->layout.lock_at);

	return w->db->cc->whose(word).shown != 0;
}

static void writes_at_last(struct world *w, struct vb_coordinator *me)
{
	int err;

	for (unsigned tries = 0; (err = write_all(w, me, 50)) == -EAGAIN && tries < 100; tries++)
		must(vb_ep_sleep(me->ep, 10 * US));
	must(err);
}

static void look(struct world *w, struct vb_coordinator *me, bool *did)
{
	must(vb_txn_run(me, take_all, w, 0));
	*did = w->value[0] == 7;
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(w->value[i], *did ? 7 : 1);
	if (w->told && w->err != -VB_EUNKNOWN)
		assert_int_equal(*did, w->err == 0);
}

static struct vb_coordinator *owner_of(struct world *w, uint32_t place)
{
	const struct vb_place_head *head = vb_local(w->f, vb_db_place(w->db, place), sizeof(*head));
	struct sim_ep *e = sim_find_peer(vb_container_of(w->f, struct sim, base), head->owner);

	return e != NULL ? e->base.user : NULL;
}

/* It adopts the places, and dies step_ns after it has made them its own; false: it was through before. */
static bool adopts_and_dies(struct world *w, uint32_t place, uint64_t step_ns)
{
	struct adopter heir = {.w = w};
	struct vb_coordinator *me;
	struct vb_task *task;
	bool was_done;

	must(vb_task_spawn(w->b->ep->sched, adopts, &heir, &task_params, &task));
	while ((me = owner_of(w, place)) == NULL)
		must(vb_ep_sleep(w->b->ep, US / 10));
	must(vb_ep_sleep(w->b->ep, step_ns));
	was_done = heir.done;
	dies(&me, task, was_done);
	return !was_done;
}

/* It dies at_ns after its begin (lost: with what it has under way to its home); so do `more` who adopt its places, one after the other.  Who comes then adopts them,
 * too.  Has it happened? */
static bool falls(const char *cc, uint64_t at_ns, bool lost, unsigned more, uint64_t first_ns,
		  uint64_t step_ns, uint32_t copies)
{
	struct vb_task *task;
	struct adopter heir;
	struct world w;
	uint32_t place;
	bool did;

	open_world(&w, cc, at_ns + step_ns, copies);
	place = w.a->lane[0].place;
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &task_params, &task));
	must(vb_ep_sleep(w.b->ep, at_ns));
	if (lost)
		vb_sim_lose_sent(w.f, 3, 1u << HOME);
	dies(&w.a, task, w.told);
	for (unsigned i = 0; i < more; i++)
		midst += adopts_and_dies(&w, place, i == 0 ? first_ns : step_ns);
	heir = (struct adopter){.w = &w};
	adopts(&heir);
	must(heir.err);
	assert_int_equal(heir.me->lane[0].place, place);
	/* What had been committed is in place, and free, for nobody else has looked. */
	if (w.told && w.err == 0)
		for (unsigned i = 0; i < KEYS; i++)
			assert_false(is_held(&w, i));
	look(&w, heir.me, &did);
	look(&w, w.b, &did);
	writes_at_last(&w, heir.me);
	writes_at_last(&w, w.b);
	assert_int_equal(heir.me->lost_locks + heir.me->lost_writes + w.b->lost_locks, 0);
	vb_coordinator_close(heir.me);
	close_world(&w);
	return did;
}

static const char *const ccs[] = {"no-wait", "wound-wait-sx", "silo",      "sundial",
				  "mvcc",    "maat",          "to-cascade"};

static void at_each_moment(uint32_t copies, bool lost)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++) {
		unsigned did = 0, n = 0;

		for (uint64_t at = STEP_NS; at <= LAST_NS; at += STEP_NS, n++)
			did += falls(ccs[i], at, lost, 0, 0, 0, copies);
		assert_true(did > 0 && did < n);
	}
}

static void one_dies(void **state)
{
	(void)state;
	at_each_moment(0, false);
	at_each_moment(0, true);
	at_each_moment(1, false);
}

/* The first heir in the midst of what it finishes, or before; the second at each moment of finishing that. */
static void heirs_die(void **state)
{
	(void)state;
	midst = 0;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++)
		for (uint64_t at = 10 * US; at <= 14 * US; at += 4 * US)
			for (uint64_t first = 10 * US; first <= 70 * US; first += 30 * US)
				for (uint64_t step = US; step <= 141 * US; step += 7 * US)
					(void)falls(ccs[i], at, false, 2, first, step, 0);
	assert_true(midst > 0);
}

/* ---- who is only cut off ---- */

struct cut {
	struct world *w;
	uint64_t until_ns;
	bool passed;
};

/* It has committed, and stands still before it writes. */
static void stands_still(void *ctx, const struct vb_txn *t)
{
	struct cut *c = ctx;

	if (t->me != c->w->a || c->until_ns == 0)
		return;
	c->passed = true;
	vb_sim_ep_pause(t->me->ep, c->until_ns);
}

static void nothing(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

static void ends(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)ctx;
	(void)t;
	(void)committed;
}

/* Others have its place, and have written what it wrote: nothing of it comes later, whenever it goes on. */
static void cut_off_for(uint64_t ns)
{
	struct vb_place_head *head;
	struct vb_task *task;
	struct adopter heir;
	struct world w;
	struct cut c = {.w = &w};
	const struct vb_txn_watch watch = {.ctx = &c,
					   .prepared = nothing,
					   .passed = stands_still,
					   .ended = ends,
					   .unknown = nothing};

	open_world(&w, "no-wait", ns, 0);
	w.db->watch = &watch;
	c.until_ns = vb_sim_now(w.f) + ns;
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &task_params, &task));
	while (!c.passed)
		must(vb_ep_sleep(w.b->ep, US / 10));
	/* Its home says that it is no more: as of an endpoint that is not there. */
	head = vb_local(w.f, vb_db_place(w.db, w.a->lane[0].place), sizeof(*head));
	head->owner = vb_peer_make(3, 0xffffff);
	heir = (struct adopter){.w = &w};
	adopts(&heir);
	must(heir.err);
	writes_at_last(&w, heir.me);
	while (!w.told)
		must(vb_ep_sleep(w.b->ep, US));
	must(vb_ep_sleep(w.b->ep, 100 * US));
	must(vb_txn_run(w.b, take_all, &w, 0));
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(w.value[i], 50);
	w.db->watch = NULL;
	vb_coordinator_bury(w.a);
	w.a = NULL;
	vb_coordinator_close(heir.me);
	close_world(&w);
}

static void only_cut_off(void **state)
{
	(void)state;
	for (uint64_t us = 1; us < 600; us += 3)
		cut_off_for(us * US);
}

static bool is_committed(const struct world *w, const struct vb_coordinator *me, unsigned lane)
{
	const uint64_t status = word_at(w, vb_status_word(w->db, me->lane[lane].place));

	return (status & VB_TS_STATE) == VB_TS_COMMITTED;
}

static void taken_for_gone(struct vb_coordinator *me, uint64_t until_ns)
{
	vb_sim_ep_pause(me->ep, until_ns);
	vb_sim_ep_disown(me->ep, HOME);
}

/* The nearest coordinator of another node, which dies when it has committed. */
static void dies_committed(struct world *w)
{
	struct vb_coordinator *d;
	struct vb_task *task;
	struct writer by = {.w = w, .to = 7};

	must(vb_coordinator_open(w->db, 2, &d));
	by.me = d;
	must(vb_task_spawn(d->ep->sched, writes_as, &by, &task_params, &task));
	while (!is_committed(w, d, 0) && !is_committed(w, d, 1))
		must(vb_ep_sleep(w->b->ep, US / 20));
	assert_false(by.done);
	dies(&d, task, false);
}

/* In the name of a place for recovery it is past its commit point. */
static bool mends(const struct world *w)
{
	return is_committed(w, w->a, VB_PLACES_TXN) || is_committed(w, w->a, VB_PLACES_TXN + 1);
}

/*
 * It finishes what a dead one had committed, and stands still in that, as its home says that it is no more.  When it
 * goes on its places are another's, and a lock that it took over then would stand there for nobody.
 */
static void mender_cut_off(const char *cc, uint64_t ns, uint64_t for_ns)
{
	struct vb_task *task;
	struct adopter heir;
	struct world w;
	struct writer by = {.w = &w, .to = 9};
	uint64_t until;

	open_world(&w, cc, ns, 0);
	dies_committed(&w);
	by.me = w.a;
	by.tries = 1000;
	must(vb_task_spawn(w.a->ep->sched, writes_as, &by, &task_params, &task));
	while (!mends(&w))
		must(vb_ep_sleep(w.b->ep, US / 20));
	must(vb_ep_sleep(w.b->ep, ns));
	until = vb_sim_now(w.f) + for_ns;
	taken_for_gone(w.a, until);
	heir = (struct adopter){.w = &w};
	adopts(&heir);
	must(heir.err);
	while (vb_sim_now(w.f) < until + 200 * US)
		must(vb_ep_sleep(w.b->ep, US));
	for (unsigned i = 0; i < 2; i++) {
		must(vb_txn_run(w.b, take_all, &w, 0));
		for (unsigned k = 0; k < KEYS; k++)
			assert_int_equal(w.value[k], 7);
	}
	assert_int_equal(w.b->lost_writes + heir.me->lost_writes, 0);
	dies(&w.a, task, by.done);
	vb_coordinator_close(heir.me);
	close_world(&w);
}

static void menders_cut_off(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(ccs); i++)
		for (uint64_t ns = 0; ns < 4000 && !vb_cc_installs(vb_cc_find(ccs[i])); ns += 400) {
			mender_cut_off(ccs[i], ns, 3000 * US);
			mender_cut_off(ccs[i], ns, 300 * US);
		}
}

struct stop {
	struct vb_coordinator *who;
	uint64_t until_ns;
};

static void before_its_log(void *ctx, const struct vb_txn *t)
{
	struct stop *s = ctx;

	if (t->me != s->who)
		return;
	s->who = NULL;
	taken_for_gone(t->me, s->until_ns);
}

/*
 * It stands still before its log, its home says that it is no more, and its heir has committed in the same place and
 * dies.  Then it goes on, and the home goes: the copies have the heir's log, and not its own.
 */
static void log_cut_off(const char *cc, const char *hybrid, uint32_t copies, uint64_t after_ns)
{
	struct vb_task *task, *next;
	struct adopter heir;
	struct world w;
	struct stop s = {0};
	struct writer by = {.w = &w, .to = 50};
	const struct vb_txn_watch watch = {
		.ctx = &s, .prepared = before_its_log, .ended = ends, .unknown = nothing};

	open_world_by(&w, cc, hybrid, after_ns, copies);
	w.db->watch = &watch;
	s = (struct stop){.who = w.a, .until_ns = vb_sim_now(w.f) + 2000 * US};
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &task_params, &task));
	while (s.who != NULL)
		must(vb_ep_sleep(w.b->ep, US / 10));
	heir = (struct adopter){.w = &w};
	adopts(&heir);
	must(heir.err);
	/* Before it goes on: what it holds is set back. */
	while (write_all(&w, w.b, 7) != 0)
		must(vb_ep_sleep(w.b->ep, 10 * US));
	assert_true(vb_sim_now(w.f) + 50 * US < s.until_ns);
	must(vb_ep_sleep(w.b->ep, s.until_ns - vb_sim_now(w.f) - after_ns));
	by.me = heir.me;
	must(vb_task_spawn(heir.me->ep->sched, writes_as, &by, &task_params, &next));
	while (!is_committed(&w, heir.me, heir.me->current))
		must(vb_ep_sleep(w.b->ep, US / 20));
	assert_false(by.done);
	dies(&heir.me, next, false);
	vb_sim_lose_node(w.f, HOME);
	must(vb_ep_sleep(w.b->ep, 50 * US));
	must(vb_txn_run(w.b, take_all, &w, 0));
	for (unsigned i = 0; i < KEYS; i++)
		assert_int_equal(w.value[i], 50);
	w.db->watch = NULL;
	dies(&w.a, task, w.told);
	close_world(&w);
}

static void logs_cut_off(void **state)
{
	(void)state;
	for (uint64_t ns = 6 * US; ns < 40 * US; ns += 2 * US) {
		log_cut_off("no-wait", NULL, 1, ns);
		log_cut_off("no-wait", "0001", 1, ns);
		log_cut_off("silo", NULL, 2, ns);
		log_cut_off("silo", "000001", 2, ns);
	}
}

static void thrice(void *arg)
{
	struct writer *by = arg;

	for (by->to = 5; by->to <= 7 && by->err == 0; by->to++)
		by->err = write_all(by->w, by->me, by->to);
	by->done = true;
}

static void loses_its_log(void *ctx, const struct vb_txn *t)
{
	const struct vb_sim_faults early = {.early = 1, .lose_ops = 1u << VB_OP_WRITE};
	struct stop *s = ctx;

	if (t->me == s->who)
		vb_sim_set_faults(t->me->db->fabric, &early);
	s->who = NULL;
}

/* The answer of a log is lost, and it lands as late as it may: not on the log of the next in that place, which is the
 * third, and all that is left of that when its coordinator dies past its commit point. */
static void log_is_late(void **state)
{
	const struct vb_sim_faults none = {0};

	(void)state;
	bound = "bound=50us";
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct vb_task *task;
		struct adopter heir;
		struct world w;
		struct stop s = {0};
		struct writer by = {.w = &w};
		const struct vb_txn_watch watch = {
			.ctx = &s, .prepared = loses_its_log, .ended = ends, .unknown = nothing};
		uint64_t name;
		unsigned first;
		vb_addr status;
		bool did;

		open_world(&w, "no-wait", seed, 0);
		w.db->watch = &watch;
		s.who = by.me = w.a;
		must(vb_task_spawn(w.a->ep->sched, thrice, &by, &task_params, &task));
		while (s.who != NULL)
			must(vb_ep_sleep(w.b->ep, US / 20));
		first = w.a->current;
		name = vb_ts_name(w.a->lane[first].status);
		while (!w.a->lane[first].log_late)
			must(vb_ep_sleep(w.b->ep, US / 20));
		vb_sim_set_faults(w.f, &none);
		status = vb_status_word(w.db, w.a->lane[first].place);
		while (vb_ts_name(word_at(&w, status)) == name || !is_committed(&w, w.a, first))
			must(vb_ep_sleep(w.b->ep, US / 20));
		assert_false(by.done);
		dies(&w.a, task, false);
		w.db->watch = NULL;
		heir = (struct adopter){.w = &w};
		adopts(&heir);
		must(heir.err);
		look(&w, heir.me, &did);
		assert_true(did);
		vb_coordinator_close(heir.me);
		close_world(&w);
	}
	bound = BOUND;
}

/* It cannot name a transaction, for the answer of its clock is lost, and leaves its places: that verb does not land on
 * the next one's clock. */
static void clock_is_late(void **state)
{
	const struct vb_sim_faults early = {.early = 1, .lose_ops = 1u << VB_OP_CAS64}, none = {0};
	unsigned lost = 0;

	(void)state;
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct vb_coordinator *next;
		struct world w;

		open_world(&w, "no-wait", seed, 0);
		vb_sim_set_faults(w.f, &early);
		lost += vb_txn_begin(w.a) == -VB_EUNKNOWN;
		vb_sim_set_faults(w.f, &none);
		vb_coordinator_close(w.a);
		w.a = NULL;
		must(vb_coordinator_open_far(w.db, HOME, 4, &next));
		must(write_all(&w, next, 7));
		vb_coordinator_close(next);
		close_world(&w);
	}
	assert_true(lost > 50);
}

/* Until a few of its units before the clock is not ahead of time any more. */
static void before_its_time(struct vb_coordinator *me, uint64_t clock)
{
	uint64_t then_ns = ((clock - 2) << VB_TS_CLOCK_SHIFT) - (uint64_t)me->common_ns;

	must(vb_ep_sleep(me->ep, then_ns - vb_ep_now(me->ep)));
}

/*
 * The clock that a dead one has left is ahead of time, and that of who comes next stands at the very end of it, so that
 * at its close there is nothing to ask for again, which would have the lost verb come to nothing.  Whoever follows is
 * named a little later, and asks for more than that verb did.
 */
static void clock_is_late_at_its_end(void **state)
{
	const struct vb_sim_faults early = {.early = 1, .lose_ops = 1u << VB_OP_CAS64}, none = {0};
	unsigned lost = 0;

	(void)state;
	bound = "bound=50us";
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct vb_coordinator *heir, *next;
		struct world w;
		uint64_t freed;

		open_world(&w, "no-wait", seed, 0);
		must(write_all(&w, w.a, 5));
		dies(&w.a, NULL, true);
		must(vb_db_recover(w.b, HOME, &freed));
		must(vb_coordinator_open_far(w.db, HOME, 4, &heir));
		assert_int_equal(heir->clock, heir->clock_end);
		before_its_time(heir, heir->clock);
		vb_sim_set_faults(w.f, &early);
		lost += vb_txn_begin(heir) == -VB_EUNKNOWN && heir->clock_asked != 0 &&
			heir->clock == heir->clock_end;
		vb_sim_set_faults(w.f, &none);
		vb_coordinator_close(heir);
		must(vb_coordinator_open_far(w.db, HOME, 4, &next));
		must(write_all(&w, next, 7));
		vb_coordinator_close(next);
		close_world(&w);
	}
	bound = BOUND;
	assert_true(lost > 50);
}

/* Who has not opened the table cannot finish the commit: it is left to who has. */
static void without_the_table(void **state)
{
	struct adopter heir = {0};
	struct vb_task *task;
	struct world w;
	bool did;

	(void)state;
	open_world(&w, "no-wait", 1, 0);
	must(vb_task_spawn(w.a->ep->sched, writes, &w, &task_params, &task));
	while ((w.a->lane[0].status & VB_TS_STATE) != VB_TS_COMMITTED &&
	       (w.a->lane[1].status & VB_TS_STATE) != VB_TS_COMMITTED)
		must(vb_ep_sleep(w.b->ep, US / 10));
	assert_false(w.told);
	dies(&w.a, task, false);
	heir.w = &w;
	w.db->store.n_tables = 0;
	adopts(&heir);
	w.db->store.n_tables = 1;
	assert_int_equal(heir.err, -EPROTO);
	adopts(&heir);
	must(heir.err);
	look(&w, heir.me, &did);
	assert_true(did);
	vb_coordinator_close(heir.me);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(one_dies),          cmocka_unit_test(heirs_die),
		cmocka_unit_test(only_cut_off),      cmocka_unit_test(menders_cut_off),
		cmocka_unit_test(logs_cut_off),      cmocka_unit_test(log_is_late),
		cmocka_unit_test(clock_is_late),     cmocka_unit_test(clock_is_late_at_its_end),
		cmocka_unit_test(without_the_table),
	};

	if (vb_log_levels("off") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
