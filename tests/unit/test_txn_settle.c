/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator passes its commit point and its commit stage does nothing.  Before its place is used
 * again what it has committed is put in place, whatever is in the way: a server that answers late, a
 * task that has been cancelled, and answers that are lost.
 */
#include "fabric/hook/hooks.h"
#include "txn/db.h"
#include "txn_api.h"

#define KEYS     3u
#define AFTER    7
#define LEASE_NS 30000000ull

static void do_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
}

/* Coordinator a has committed to these records, and nothing of it is there. */
static void leave(struct world *w)
{
	const struct record after = {.value = AFTER};
	const struct vb_cc_ops *cc = w->db->cc;
	struct vb_stage_ops stages[VB_STAGES_MAX];
	struct vb_cc_ops mute = *cc;

	memcpy(stages, cc->stages, cc->n_stages * sizeof(stages[0]));
	stages[cc->commit].run = do_nothing;
	mute.stages = stages;
	must(vb_txn_begin(w->a));
	for (uint64_t key = 0; key < KEYS; key++)
		must(vb_txn_write(w->a, w->t, key, &after));
	w->db->cc = &mute;
	must(vb_txn_commit(w->a));
	w->db->cc = cc;
}

static void assert_all_there(struct world *w)
{
	for (uint64_t key = 0; key < KEYS; key++)
		assert_int_equal(value_of(w->b, w->t, key), AFTER);
}

/* Of the place that was left, not of the other one. */
static int begin_over_it(struct world *w)
{
	must(vb_txn_begin(w->a));
	vb_txn_abort(w->a);
	return vb_txn_begin(w->a);
}

/* ---- a server that answers late ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	uint64_t until_ns; /* a keeper may run the servers meanwhile */
} late;

static void late_until(uint64_t ns)
{
	__atomic_store_n(&late.until_ns, ns, __ATOMIC_RELAXED);
}

static int recv_late(struct vb_ep *ep, struct vb_msg *out)
{
	while (vb_ep_now(ep) < __atomic_load_n(&late.until_ns, __ATOMIC_RELAXED))
		if (vb_ep_sleep(ep, 1000000) != 0)
			return -EAGAIN;
	return late.real->recv(ep, out);
}

static void make_late(struct world *w, uint64_t ns)
{
	struct vb_ep *ep[NODES];

	for (unsigned i = 0; i < NODES; i++) {
		ep[i] = vb_db_server_ep(w->server[i]);
		late.real = ep[i]->ops == &late.ops ? late.real : ep[i]->ops;
	}
	late.ops = *late.real;
	late.ops.recv = recv_late;
	late_until(vb_ep_now(w->b->ep) + ns);
	for (unsigned i = 0; i < NODES; i++)
		ep[i]->ops = &late.ops;
}

/* Where verbs have a bound no server is asked; nor by whom none was asked to write, or what is committed is in
 * place before it is. */
static bool on_shm(void **state)
{
	return strcmp(fabric_of(state), "shm") == 0;
}

static bool asks(void **state)
{
	const struct kind *k = *state;

	return on_shm(state) && k->hybrid != NULL && !vb_cc_installs(k->ops);
}

static void late_server(void **state)
{
	struct world w;

	if (!on_shm(state))
		return;
	open_usual(&w, state, LEASE_NS);
	leave(&w);
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	make_late(&w, 6 * w.db->suspect_ns);
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	assert_int_equal(vb_cc_installs(w.db->cc) ? w.a->recovered : w.a->rolled_forward, KEYS);
	assert_all_there(&w);
	close_world(&w);
}

static void silent_server(void **state)
{
	struct world w;

	if (!on_shm(state))
		return;
	open_usual(&w, state, LEASE_NS);
	leave(&w);
	w.db->patience_ns = 2 * w.db->suspect_ns;
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	make_late(&w, LONG_NS);
	if (!asks(state)) {
		must(vb_txn_begin(w.a));
		vb_txn_abort(w.a);
	} else {
		refused(vb_txn_begin(w.a), -ETIMEDOUT);
	}
	late_until(0);
	w.db->patience_ns = LONG_NS;
	must(begin_over_it(&w));
	vb_txn_abort(w.a);
	assert_all_there(&w);
	close_world(&w);
}

/* A sweep has as much patience with a server as who begins over what it has left. */
static void swept_late(void **state)
{
	uint64_t freed;
	struct world w;

	if (!asks(state))
		return;
	open_usual(&w, state, LEASE_NS);
	leave(&w);
	vb_coordinator_bury(w.a);
	w.a = NULL;
	make_late(&w, 6 * w.db->suspect_ns);
	for (uint16_t node = 0; node < NODES; node++)
		must(vb_db_recover(w.b, node, &freed));
	assert_all_there(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	close_world(&w);
}

/* ---- a task that has been cancelled ---- */

struct cancelled {
	struct world *w;
	uint64_t took_ns;
	int err;
	bool over;
};

static void cancelled_body(void *arg)
{
	struct cancelled *c = arg;
	uint64_t begin;

	(void)vb_task_suspend(VB_FOREVER);
	begin = vb_ep_now(c->w->a->ep);
	c->err = begin_over_it(c->w);
	c->took_ns = vb_ep_now(c->w->a->ep) - begin;
	vb_txn_abort(c->w->a);
	c->over = true;
}

static void begin_cancelled(struct world *w, struct cancelled *c)
{
	static const struct vb_task_params params = {.name = "cancelled"};
	struct vb_task *task;

	*c = (struct cancelled){.w = w};
	must(vb_task_spawn(w->a->ep->sched, cancelled_body, c, &params, &task));
	must(vb_ep_sleep(w->b->ep, 1000));
	vb_task_cancel(task);
	while (!c->over)
		must(vb_ep_sleep(w->b->ep, 1000000));
}

/* Verbs of the commit stage that may still take effect are waited for all the same. */
static void cancelled_waits(void **state)
{
	struct cancelled c;
	struct world w;

	open_usual(&w, state, LEASE_NS);
	leave(&w);
	begin_cancelled(&w, &c);
	must(c.err);
	assert_true(c.took_ns >= w.db->suspect_ns);
	assert_all_there(&w);
	close_world(&w);
}

/* Nor is the place used again because nobody waits for the server any more. */
static void cancelled_while_silent(void **state)
{
	struct cancelled c;
	struct world w;

	if (!on_shm(state))
		return;
	open_usual(&w, state, LEASE_NS);
	leave(&w);
	make_late(&w, LONG_NS);
	begin_cancelled(&w, &c);
	assert_int_equal(c.err, asks(state) ? -ECANCELED : 0);
	late_until(0);
	must(begin_over_it(&w));
	vb_txn_abort(w.a);
	assert_all_there(&w);
	close_world(&w);
}

/* ---- answers that are lost ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct vb_fabric *f;
	vb_addr word;
	unsigned most, lost; /* so many in a row; the first verb takes effect */
	bool armed;
} cut;

static int post_cut(struct vb_ep *ep, struct vb_batch *b)
{
	struct vb_verb *v = &b->verbs[0];

	if (cut.armed && v->op == VB_OP_CAS64 && v->addr == cut.word) {
		uint64_t *word = vb_local(cut.f, v->addr, 8);

		cut.armed = false;
		if (*word == v->compare.lo)
			*word = v->swap.lo;
		cut.lost = cut.most;
	}
	if (cut.lost == 0)
		return cut.real->post(ep, b);
	cut.lost--;
	for (unsigned i = 0; i < b->n; i++)
		b->verbs[i].status = -VB_EUNKNOWN;
	return 0;
}

/* From the endpoint's next CAS of that word of the first record on. */
static void lose_answers(struct world *w, struct vb_ep *ep, uint32_t word_at, unsigned most)
{
	cut.f = w->f;
	cut.word = vb_table_find(w->t, 0, 0) + word_at;
	cut.most = most;
	cut.lost = 0;
	cut.real = ep->ops;
	cut.ops = *cut.real;
	cut.ops.post = post_cut;
	cut.armed = true;
	ep->ops = &cut.ops;
}

/* The first record's lock is taken over, and for longer than it is tried at once nobody says so. */
static void unanswered_take_over(void **state)
{
	struct vb_db_params p = usual_db(*state, LEASE_NS);
	struct world w;

	/* There no answer is lost. */
	if (on_shm(state))
		return;
	open_hooked(&w, state, &p);
	leave(&w);
	lose_answers(&w, w.a->ep, w.t->layout.lock_at, 100);
	vb_coordinator_close(w.a);
	w.a = NULL;
	assert_false(cut.armed);
	assert_int_equal(cut.lost, 0);
	assert_all_there(&w);
	close_world(&w);
}

/* The oldest has signed up for a record, and does not hear of it.  It gives up, and takes its name
 * back: nobody would mend that, and everybody else is younger. */
static void unanswered_waiter(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	const uint64_t *waiter;
	struct record r;
	struct world w;

	if (on_shm(state) || k->hybrid != NULL || strcmp(k->ops->name, "wait-die-fair") != 0)
		return;
	p.no_recovery = true;
	open_hooked(&w, state, &p);
	must(vb_txn_begin(w.b));
	must(vb_ep_sleep(w.a->ep, 100000));
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, 0, &(struct record){.value = AFTER}));
	lose_answers(&w, w.b->ep, VB_TUPLE_RESERVED_AT, 1);
	assert_int_equal(vb_txn_read(w.b, w.t, 0, &r), -VB_EUNKNOWN);
	assert_false(cut.armed);
	waiter = vb_local(w.f, cut.word, sizeof(*waiter));
	assert_int_equal(*waiter, 0);
	must(vb_txn_commit(w.a));
	assert_int_equal(value_of(w.a, w.t, 0), AFTER);
	close_world(&w);
}

/* ---- a link that hesitates ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	uint64_t until_ns; /* what is posted before is lost */
	vb_addr heard;     /* but not this word */
	unsigned held, lost;
} hiccup;

static int post_hiccup(struct vb_ep *ep, struct vb_batch *b)
{
	if (vb_ep_now(ep) >= hiccup.until_ns || b->verbs[0].addr == hiccup.heard)
		return hiccup.real->post(ep, b);
	hiccup.lost++;
	for (unsigned i = 0; i < b->n; i++)
		b->verbs[i].status = -VB_EUNKNOWN;
	return 0;
}

static void update_all(struct world *w, struct vb_coordinator *me)
{
	struct record *r;

	must(vb_txn_begin(me));
	for (uint64_t key = 0; key < KEYS; key++) {
		must(vb_txn_update(me, w->t, key, (void **)&r));
		r->value = AFTER;
	}
}

static void holds_body(void *arg)
{
	struct cancelled *c = arg;
	struct vb_coordinator *me = c->w->a;

	update_all(c->w, me);
	(void)vb_task_suspend(VB_FOREVER);
	hiccup.real = me->ep->ops;
	hiccup.ops = *hiccup.real;
	hiccup.ops.post = post_hiccup;
	hiccup.heard = vb_db_place(me->db, vb_txn_lane(me)->place);
	hiccup.held = 0;
	for (unsigned i = 0; i < me->txn.n; i++)
		hiccup.held += (me->txn.item[i].flags & (VB_ITEM_HELD_X | VB_ITEM_HELD_S)) != 0;
	hiccup.lost = 0;
	hiccup.until_ns = vb_ep_now(me->ep) + 3 * c->w->f->caps.verb_bound_ns;
	me->ep->ops = &hiccup.ops;
	vb_txn_abort(me);
	c->over = true;
}

/* What it holds goes back when the link is there again, and not only when somebody mends it. */
static void cancelled_over_a_hiccup(void **state)
{
	static const struct vb_task_params params = {.name = "holds"};
	struct vb_db_params p = usual_db(*state, LONG_NS);
	struct cancelled c;
	struct vb_task *task;
	struct world w;

	/* There no answer is lost. */
	if (on_shm(state))
		return;
	open_hooked(&w, state, &p);
	c = (struct cancelled){.w = &w};
	must(vb_task_spawn(w.a->ep->sched, holds_body, &c, &params, &task));
	must(vb_ep_sleep(w.b->ep, LEASE_NS));
	vb_task_cancel(task);
	while (!c.over)
		must(vb_ep_sleep(w.b->ep, LEASE_NS));
	assert_true(hiccup.lost >= hiccup.held);
	assert_false(w.a->txn.kept);
	update_all(&w, w.b);
	must(vb_txn_commit(w.b));
	assert_all_there(&w);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"a late server", late_server},
		{"a silent server", silent_server},
		{"a sweep waits for a late server", swept_late},
		{"a cancelled task waits", cancelled_waits},
		{"cancelled while a server is silent", cancelled_while_silent},
		{"a take-over that nobody answers", unanswered_take_over},
		{"a place in the line that nobody answers", unanswered_waiter},
		{"cancelled over a hiccup", cancelled_over_a_hiccup},
	};
	static const char *const fabrics[] = {"sim", "shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: places are settled", tests, n, NULL, NULL);
}
