/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two-phase commit by votes: who is asked, what is counted, and what a vote that is no, late or missing does.
 */
#include "cc/protocols.h"
#include "txn_api.h"

#define HERE  2 /* keys of node 0, where w.a is, and of node 1 */
#define THERE 3
#define AFTER 7

#define TIMEOUT_NS 100000ull
#define NAP_NS     400000ull

static void open_votes(struct world *w, void **state)
{
	open_usual(w, state, LONG_NS);
	assert_int_equal(vb_table_node(w->t, HERE), 0);
	assert_int_equal(vb_table_node(w->t, THERE), 1);
}

static bool by_agents(void **state)
{
	const struct kind *k = *state;

	return k->hybrid != NULL;
}

static uint64_t votes_in(struct world *w)
{
	uint64_t word;

	must(vb_read64(w->a->ep, vb_vote_word(w->db, w->a->txn.ts), &word));
	return word;
}

static int write_key(struct world *w, uint64_t key)
{
	return vb_txn_write(w->a, w->t, key, &(struct record){.value = AFTER});
}

/* ---- what is counted ---- */

/* Every multiset of up to six votes of three transactions, and nos. */
static void only_ours_count(void **state)
{
	static const uint64_t clock[] = {
		1, 2, 3, (1ull << 46) - 3, (1ull << 46) - 2, (1ull << 46) - 1};
	const unsigned most = 6;

	(void)state;
	for (unsigned far = 0; far <= 3; far += 3)
		for (unsigned code = 0; code < 7 * 7 * 7 * 7; code++) {
			const unsigned n[] = {code % 7, code / 7 % 7, code / 49 % 7, code / 343};
			const unsigned all = n[0] + n[1] + n[2] + n[3];
			const uint64_t ours = vb_ts_make(clock[far + 2], 9);
			uint64_t sum = n[3] * vb_vote(ours, false);

			for (unsigned i = 0; i < 3; i++)
				sum += n[i] * vb_vote(vb_ts_make(clock[far + i], 9), true);
			for (unsigned of = 1; of <= most && all <= most; of++)
				assert_int_equal(vb_votes_say(ours, of, sum),
						 all < of                  ? 0
						 : all == of && n[2] == of ? 1
									   : -1);
		}
	/* So many may be asked at once. */
	for (unsigned of = 1; of <= VB_CALLS_MAX; of++) {
		const uint64_t last = vb_ts_make((1ull << 46) - 1, 0);

		assert_int_equal(vb_votes_say(last, of, of * vb_vote(last, true)), 1);
		assert_int_equal(vb_votes_say(last, of, (of - 1) * vb_vote(last, true) + 1), -1);
	}
}

/* A vote names all of the clock: names that differ in any bit of it are not taken for each other. */
static void whole_names(void **state)
{
	const uint64_t clock = 0x2aaaaaaaaaaaull;

	(void)state;
	for (unsigned bit = 0; bit < 46; bit++) {
		const uint64_t ours = vb_ts_make(clock, 9),
			       other = vb_ts_make(clock ^ 1ull << bit, 9);

		for (unsigned of = 1; of <= VB_CALLS_MAX; of++)
			assert_int_equal(
				vb_votes_say(ours, of,
					     (of - 1) * vb_vote(ours, true) + vb_vote(other, true)),
				-1);
	}
}

/* ---- who is asked ---- */

static void who_votes(void **state)
{
	struct world w;
	uint64_t was, yes;
	uint64_t word;

	open_votes(&w, state);
	/* Nothing is written on another node. */
	must(vb_txn_begin(w.a));
	was = votes_in(&w);
	must(vb_txn_read(w.a, w.t, THERE, &(struct record){0}));
	must(write_key(&w, HERE));
	must(vb_txn_commit(w.a));
	assert_int_equal(votes_in(&w), was);
	/* Of what is, those who were asked; of each node one vote. */
	for (unsigned i = 0; i < 2; i++) {
		must(vb_txn_begin(w.a));
		was = votes_in(&w);
		yes = vb_vote(w.a->txn.ts, true);
		must(write_key(&w, THERE));
		must(write_key(&w, THERE + 2));
		if (i > 0)
			must(vb_txn_read(w.a, w.t, HERE, &(struct record){0}));
		must(vb_txn_commit(w.a));
		word = votes_in(&w);
		assert_int_equal(word - was, by_agents(state) ? (i + 1) * yes : 0);
	}
	assert_int_equal(value_of(w.b, w.t, THERE), AFTER);
	/* What was read and let go nobody is asked about. */
	must(vb_txn_begin_with(w.a, &(struct vb_txn_params){.isolation = VB_READ_COMMITTED}));
	was = votes_in(&w);
	must(vb_txn_read(w.a, w.t, HERE, &(struct record){0}));
	must(write_key(&w, THERE));
	must(vb_txn_commit(w.a));
	yes = vb_vote(w.a->txn.ts, true);
	assert_int_equal(votes_in(&w) - was, by_agents(state) ? yes : 0);
	close_world(&w);
}

/* Each vote is asked for and had before the next, and all of them count. */
static void one_at_a_time(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct world w;
	uint64_t was;

	p.no_outstanding = true;
	open_world(&w, k->fabric, &p);
	must(vb_txn_begin(w.a));
	was = votes_in(&w);
	must(write_key(&w, THERE));
	must(write_key(&w, HERE));
	must(vb_txn_commit(w.a));
	assert_int_equal(votes_in(&w) - was, by_agents(state) ? 2 * vb_vote(w.a->txn.ts, true) : 0);
	assert_int_equal(value_of(w.b, w.t, THERE), AFTER);
	assert_int_equal(value_of(w.b, w.t, HERE), AFTER);
	close_world(&w);
}

/* ---- no ---- */

static void set_word(struct world *w, vb_addr at, uint64_t from, uint64_t to)
{
	uint64_t old;

	must(vb_cas64(w->b->ep, at, from, to, &old));
	assert_int_equal(old, from);
}

/* An agent does not find the lock, but nobody's or another's; be it of what is only read. */
static void no_lock_no_commit(void **state)
{
	for (unsigned k = 0; k < 4; k++) {
		const bool reads = k & 1, nobodys = k & 2;
		struct vb_item *it;
		struct world w;
		uint64_t ts;
		vb_addr at;

		open_votes(&w, state);
		must(vb_txn_begin(w.a));
		ts = w.a->txn.ts;
		must(write_key(&w, THERE + 2));
		if (reads)
			must(vb_txn_read(w.a, w.t, THERE, &(struct record){0}));
		else
			must(write_key(&w, THERE));
		it = &w.a->txn.item[1];
		at = it->at + (reads ? VB_TUPLE_META_AT + (it->slot - 1u) * 8u
				     : vb_item_layout(it)->lock_at);
		set_word(&w, at, ts, nobodys ? 0 : ts + 4);
		assert_int_equal(vb_txn_commit(w.a), -EAGAIN);
		assert_int_equal(vb_txn_cause(w.a), VB_TXN_RECOVERED);
		if (!nobodys)
			set_word(&w, at, ts + 4, 0);
		assert_int_equal(value_of(w.b, w.t, THERE), FIRST + THERE);
		assert_int_equal(value_of(w.b, w.t, THERE + 2), FIRST + THERE + 2);
		close_world(&w);
	}
}

/* ---- late ---- */

static struct {
	const struct vb_cc_ops *real;
	struct vb_cc_ops ops;
	struct vb_stage_ops stages[VB_STAGES_MAX];
	bool nap; /* of node 1's server, behind its next look */
	/* From then on it is dead to all. */
	bool dies;
	const struct vb_fabric_ops *fabric;
	struct vb_fabric_ops without;
} slow;

static bool nobody_lives(struct vb_fabric *f, vb_peer peer)
{
	(void)f;
	(void)peer;
	return false;
}

static void die(struct vb_fabric *f)
{
	slow.fabric = f->ops;
	slow.without = *f->ops;
	slow.without.peer_alive = nobody_lives;
	f->ops = &slow.without;
}

static void vote_slowly(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	slow.real->stages[1].run(s, items, n);
	if (!slow.nap || !s->for_other || s->acc->node != 1)
		return;
	slow.nap = false;
	if (slow.dies)
		die(s->db->fabric);
	(void)vb_ep_sleep(s->acc->ep, NAP_NS);
}

static void make_slow(struct world *w)
{
	slow.real = w->db->cc;
	slow.ops = *slow.real;
	memcpy(slow.stages, slow.real->stages, slow.real->n_stages * sizeof(slow.stages[0]));
	assert_true(slow.stages[1].flags & VB_STAGE_VOTES);
	slow.stages[1].run = vote_slowly;
	slow.ops.stages = slow.stages;
	slow.nap = true;
	slow.dies = false;
	w->db->cc = &slow.ops;
}

static int write_both(struct world *w, uint64_t timeout_ns)
{
	must(vb_txn_begin_with(w->a, &(struct vb_txn_params){.timeout_ns = timeout_ns}));
	must(write_key(w, HERE));
	must(write_key(w, THERE));
	return vb_txn_commit(w->a);
}

/*
 * Node 1's agent says yes to the first transaction when that has given up.  The next one of the same place has the
 * vote of node 0's agent by then, and that late one, which are two.
 */
static void a_late_vote(void **state)
{
	struct world w;
	uint64_t was;
	uint32_t place;

	open_votes(&w, state);
	make_slow(&w);
	must(vb_txn_begin(w.a));
	was = votes_in(&w);
	place = vb_ts_place(w.a->txn.ts);
	vb_txn_abort(w.a);
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	assert_int_equal(write_both(&w, TIMEOUT_NS), -ETIMEDOUT);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_TIMEOUT);
	assert_int_equal(vb_ts_place(w.a->txn.ts), place);
	assert_int_equal(votes_in(&w) - was, vb_vote(w.a->txn.ts, true));
	was = votes_in(&w);
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	assert_int_equal(write_both(&w, 0), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_RECOVERED);
	assert_int_equal(vb_ts_place(w.a->txn.ts), place);
	assert_true(votes_in(&w) - was != 2 * vb_vote(w.a->txn.ts, true));
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	must(write_both(&w, 0));
	assert_int_equal(value_of(w.b, w.t, THERE), AFTER);
	w.db->cc = slow.real;
	close_world(&w);
}

/* ---- none ---- */

/* Who is asked for a vote and is not there: nothing is decided. */
static void a_server_that_is_gone(void **state)
{
	struct world w;

	open_votes(&w, state);
	must(write_both(&w, 0)); /* the server is known */
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, THERE, &(struct record){.value = AFTER + 1}));
	vb_db_server_stop(w.server[1]);
	w.server[1] = NULL;
	assert_int_equal(vb_txn_commit(w.a), -VB_EPEERGONE);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_FABRIC);
	must(vb_db_server_start(w.db, 1, &w.server[1]));
	assert_int_equal(value_of(w.b, w.t, THERE), AFTER);
	must(write_both(&w, 0));
	close_world(&w);
}

/* Or that dies while it is waited for: long before the lease ends. */
static void a_server_that_dies(void **state)
{
	struct world w;
	uint64_t begin;

	open_votes(&w, state);
	make_slow(&w);
	slow.dies = true;
	begin = vb_ep_now(w.a->ep);
	assert_int_equal(write_both(&w, 0), -VB_EPEERGONE);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_FABRIC);
	assert_true(vb_ep_now(w.a->ep) - begin < NAP_NS);
	w.f->ops = slow.fabric;
	(void)vb_ep_sleep(w.a->ep, 2 * NAP_NS);
	assert_int_equal(value_of(w.b, w.t, THERE), FIRST + THERE);
	w.db->cc = slow.real;
	close_world(&w);
}

static int post_unheard(struct vb_ep *ep, struct vb_batch *b)
{
	must(vb_post_wait(ep->lower, b->verbs, b->n));
	for (unsigned i = 0; i < b->n; i++)
		if (b->verbs[i].op == VB_OP_SEND)
			b->verbs[i].status = -VB_EUNKNOWN;
	return 0;
}

/* It is not known that they have been asked: nobody is waited for, and what they say counts for nobody. */
static void unheard(void **state)
{
	const struct vb_db_params p = usual_db(*state, LONG_NS);
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops deaf;
	struct world w;
	uint64_t was;
	int err;

	open_hooked(&w, state, &p);
	must(vb_txn_begin(w.a));
	must(write_key(&w, HERE));
	must(write_key(&w, THERE));
	was = votes_in(&w);
	real = w.a->ep->ops;
	deaf = *real;
	deaf.post = post_unheard;
	w.a->ep->ops = &deaf;
	err = vb_txn_commit(w.a);
	w.a->ep->ops = real;
	assert_int_equal(err, -VB_EUNKNOWN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_FABRIC);
	assert_true(vb_ep_now(w.a->ep) - w.a->txn.begin_ns < NAP_NS);
	(void)vb_ep_sleep(w.a->ep, NAP_NS);
	assert_int_equal(votes_in(&w) - was, 2 * vb_vote(w.a->txn.ts, true));
	assert_int_equal(value_of(w.b, w.t, THERE), FIRST + THERE);
	for (unsigned i = 0; i < VB_PLACES_TXN; i++)
		must(write_both(&w, 0));
	close_world(&w);
}

/* All have voted before the coordinator looks for the first time: it knows what the word was before it asked. */
static int post_and_nap(struct vb_ep *ep, struct vb_batch *b)
{
	must(vb_post_wait(ep->lower, b->verbs, b->n));
	if (b->verbs[b->n - 1].op == VB_OP_SEND)
		(void)vb_ep_sleep(ep->lower, NAP_NS);
	return 0;
}

static void heard_before_the_look(void **state)
{
	const struct vb_db_params p = usual_db(*state, LONG_NS);
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops slow_to_look;
	struct world w;

	open_hooked(&w, state, &p);
	real = w.a->ep->ops;
	slow_to_look = *real;
	slow_to_look.post = post_and_nap;
	w.a->ep->ops = &slow_to_look;
	must(write_both(&w, 0));
	w.a->ep->ops = real;
	assert_int_equal(value_of(w.b, w.t, THERE), AFTER);
	close_world(&w);
}

/* Or that cannot vote on what it is asked about, and says why. */
static void a_server_that_refuses(void **state)
{
	char said[1024] = "";
	unsigned tables;
	struct world w;
	int err;

	open_votes(&w, state);
	must(write_both(&w, 0));
	must(vb_txn_begin_with(w.a, &(struct vb_txn_params){.timeout_ns = 1000 * TIMEOUT_NS}));
	must(vb_txn_write(w.a, w.t, THERE, &(struct record){.value = AFTER + 1}));
	tables = w.db->store.n_tables;
	w.db->store.n_tables = 0;
	vb_log_capture_begin(said, sizeof(said));
	err = vb_txn_commit(w.a);
	vb_log_capture_end();
	w.db->store.n_tables = tables;
	assert_int_equal(err, -EPROTO);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_FABRIC);
	assert_non_null(strstr(said, "the server of node 1 refuses what it was asked: it has not "
				     "opened that table"));
	assert_int_equal(value_of(w.b, w.t, THERE), AFTER);
	must(write_both(&w, 0));
	close_world(&w);
}

struct waits {
	struct world *w;
	int err;
};

static void wait_body(void *arg)
{
	struct waits *x = arg;

	x->err = write_both(x->w, 0);
}

/* Who waits for a vote and is cancelled does not commit. */
static void cancelled(void **state)
{
	static const struct vb_task_params params = {.name = "waits"};
	struct world w;
	struct waits x = {.w = &w, .err = 1};
	struct vb_task *task;

	open_votes(&w, state);
	make_slow(&w);
	must(vb_task_spawn(vb_sched_self(), wait_body, &x, &params, &task));
	(void)vb_ep_sleep(w.b->ep, NAP_NS / 2);
	assert_int_equal(x.err, 1);
	vb_task_cancel(task);
	(void)vb_ep_sleep(w.b->ep, NAP_NS / 8);
	assert_int_equal(x.err, -ECANCELED);
	assert_int_equal(value_of(w.b, w.t, THERE), FIRST + THERE);
	w.db->cc = slow.real;
	(void)vb_ep_sleep(w.b->ep, NAP_NS);
	close_world(&w);
}

/* Asks node 1's server for a vote on w.a's transaction, which holds nothing there, as `me`. */
static void ask_as(struct world *w, struct vb_coordinator *me)
{
	const struct vb_wire_item item = {.key = THERE, .table = w->t->id, .flags = VB_ITEM_HELD_X};
	struct vb_wire_call head = {.ts = w->a->txn.ts,
				    .bytes = sizeof(item),
				    .coordinator = me->number,
				    .n = 1,
				    .from_node = me->node,
				    .stage = 1};
	struct vb_msg msg = {.tag = VB_TAG_CALL, .subject = 1ull << 63 | 1, .len = sizeof(head)};
	struct vb_verb v = {.op = VB_OP_SEND,
			    .flags = VB_SIGNALLED,
			    .peer = vb_db_server_ep(w->server[1])->self,
			    .msg = &msg};

	must(vb_write(me->ep, vb_db_inbox(w->db, 1, me->node, me->number), &item, sizeof(item)));
	head.seal = vb_wire_seal(&item, sizeof(item), msg.subject);
	memcpy(msg.data, &head, sizeof(head));
	must(vb_verb_run(me->ep, &v));
	(void)vb_ep_sleep(me->ep, NAP_NS);
}

/* A request in another's name would vote in his place; be he of the same node. */
static void names_of_its_own(void **state)
{
	struct vb_coordinator *beside;
	struct world w;
	uint64_t was;

	open_votes(&w, state);
	must(vb_coordinator_open(w.db, w.a->node, &beside));
	must(vb_txn_begin(w.a));
	was = votes_in(&w);
	ask_as(&w, w.b);
	ask_as(&w, beside);
	vb_coordinator_close(beside);
	assert_int_equal(votes_in(&w), was);
	ask_as(&w, w.a);
	assert_int_equal(votes_in(&w), was + vb_vote(w.a->txn.ts, false));
	vb_txn_abort(w.a);
	close_world(&w);
}

#define OF(name, k)                                                                                \
	{                                                                                          \
#name " " #k, name, NULL, NULL, &kind_##k                                          \
	}

int main(void)
{
	static struct kind kind_one_sided = {&vb_cc_votes, NULL, "sim"},
			   kind_agents = {&vb_cc_votes, "0100", "sim"},
			   kind_rpc = {&vb_cc_votes, "rpc", "sim"},
			   kind_shm = {&vb_cc_votes, "0100", "shm"};
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(only_ours_count),
		cmocka_unit_test(whole_names),
		OF(who_votes, one_sided),
		OF(who_votes, agents),
		OF(who_votes, rpc),
		OF(who_votes, shm),
		OF(one_at_a_time, one_sided),
		OF(one_at_a_time, agents),
		OF(one_at_a_time, rpc),
		OF(one_at_a_time, shm),
		OF(no_lock_no_commit, one_sided),
		OF(no_lock_no_commit, agents),
		OF(no_lock_no_commit, rpc),
		OF(no_lock_no_commit, shm),
		OF(a_late_vote, agents),
		OF(a_server_that_is_gone, agents),
		OF(a_server_that_is_gone, shm),
		OF(a_server_that_dies, agents),
		OF(unheard, agents),
		OF(heard_before_the_look, agents),
		OF(a_server_that_refuses, agents),
		OF(a_server_that_refuses, shm),
		OF(cancelled, agents),
		OF(names_of_its_own, agents),
	};

	return _cmocka_run_group_tests("transactions: votes", tests, VB_ARRAY_SIZE(tests), NULL,
				       NULL);
}
