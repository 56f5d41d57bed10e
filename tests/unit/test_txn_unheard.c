/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Each answer of a transaction is lost once: what was asked has happened, or has not, and nobody says which.  The
 * transaction commits or does not, whole; and whatever it has asked for is given back when it ends,
 * not by those who find it in their way some leases later.  And each doorbell of a transaction is refused
 * once, and those behind it are not.  Of calvin, the servers' too.
 */
#include "fabric/hook/hooks.h"
#include "txn/db.h"
#include "txn_api.h"

#include "cc/protocols.h"

#define KEYS  4u
#define AFTER 7

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned before; /* so many batches are answered, the next one is not */
	bool armed;
	bool refused;  /* it is refused; */
	bool dropped;  /* or it does not happen, and nobody says so; else it happens all the same */
	vb_addr place; /* the answers of a place's own word are all lost; 0: of none */
} unheard;

static int answer_nothing(struct vb_batch *b, int err)
{
	for (unsigned i = 0; i < b->n; i++)
		b->verbs[i].status = err;
	return 0;
}

static int post_unheard(struct vb_ep *ep, struct vb_batch *b)
{
	vb_addr at = b->verbs[0].addr;

	if (unheard.place != 0 && at == unheard.place) {
		if (!unheard.dropped)
			must(vb_post_wait(ep->lower, b->verbs, b->n));
		return answer_nothing(b, -VB_EUNKNOWN);
	}
	if (!unheard.armed || unheard.before > 0) {
		unheard.before -= unheard.armed;
		return unheard.real->post(ep, b);
	}
	unheard.armed = false;
	if (unheard.refused)
		return answer_nothing(b, -VB_EPEERGONE);
	if (unheard.dropped)
		return answer_nothing(b, -VB_EUNKNOWN);
	must(vb_post_wait(ep->lower, b->verbs, b->n));
	return answer_nothing(b, -VB_EUNKNOWN);
}

static void open_unheard_db(struct world *w, void **state, const struct vb_db_params *p)
{
	open_hooked(w, state, p);
	memset(&unheard, 0, sizeof(unheard));
	unheard.real = w->a->ep->ops;
	unheard.ops = *unheard.real;
	unheard.ops.post = post_unheard;
	w->a->ep->ops = &unheard.ops;
	for (uint16_t i = 0; i < NODES && vb_cc_sequenced(w->db->cc); i++)
		vb_db_server_ep(w->server[i])->ops = &unheard.ops;
}

static void open_unheard(struct world *w, void **state, uint64_t lease_ns)
{
	const struct vb_db_params p = usual_db(*state, lease_ns);

	open_unheard_db(w, state, &p);
}

/* Words by which somebody holds the record. */
static unsigned held(struct world *w, uint64_t key)
{
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	const void *tuple = vb_local(w->f, vb_table_find(w->t, vb_table_node(w->t, key), key),
				     w->t->layout.bytes);

	return vb_words_named(w->db->cc, tuple, named);
}

static void assert_none_held(struct world *w)
{
	for (uint64_t key = 0; key < KEYS; key++)
		assert_int_equal(held(w, key), 0);
}

/* The first half of the keys is read, and the second written; all but the commit. */
static int prepare(struct world *w, uint64_t value)
{
	struct vb_txn_key all[KEYS];
	struct record r, *mine;
	int err = vb_txn_begin(w->a);

	for (uint64_t key = 0; key < KEYS; key++)
		all[key] = (struct vb_txn_key){w->t, key, key >= KEYS / 2};
	if (err == 0 && vb_cc_sequenced(w->db->cc))
		err = vb_txn_declare(w->a, all, KEYS);
	for (uint64_t key = 0; key < KEYS / 2 && err == 0; key++)
		err = vb_txn_read(w->a, w->t, key, &r);
	for (uint64_t key = KEYS / 2; key < KEYS && err == 0; key++) {
		err = vb_txn_update(w->a, w->t, key, (void **)&mine);
		if (err == 0)
			mine->value = value;
	}
	return err;
}

static int transact(struct world *w, uint64_t value)
{
	int err = prepare(w, value);

	if (err == 0)
		err = vb_txn_commit(w->a);
	/* Whatever it has not heard behind its commit point. */
	if (err == 0) {
		assert_int_equal(vb_txn_cause(w->a), VB_TXN_COMMITTED);
		assert_int_equal(vb_txn_error(w->a), 0);
	}
	return err;
}

static int read_now(struct world *w, uint64_t key, struct record *r)
{
	int err = 0;

	if (vb_cc_sequenced(w->db->cc))
		err = vb_txn_declare(w->b, &(struct vb_txn_key){w->t, key, false}, 1);
	return err ? err : vb_txn_read(w->b, w->t, key, r);
}

static uint64_t value_now(struct world *w, uint64_t key)
{
	struct record r = {0};

	alone(w->b, read_now(w, key, &r));
	return r.value;
}

/* All of it, or nothing, as the commit has said; and nobody is asked to wait. */
static uint64_t look(struct world *w, int err, uint64_t before, uint64_t after)
{
	uint64_t value;

	/* A server may still be at it; a lease is a million times as long. */
	must(vb_ep_sleep(w->b->ep, 20000));
	assert_none_held(w);
	assert_int_not_equal(vb_txn_cause(w->a), VB_TXN_RECOVERED);
	value = value_now(w, KEYS - 1);
	if (err == 0)
		assert_int_equal(value, after);
	else if (err == -EAGAIN)
		assert_int_equal(value, before);
	else
		assert_int_equal(err, -VB_EUNKNOWN);
	assert_true(value == before || value == after);
	for (uint64_t key = KEYS / 2; key < KEYS; key++)
		assert_int_equal(value_now(w, key), value);
	return value;
}

/* Before a place of its is used again nothing is left of what it had. */
static void use_its_places(struct world *w)
{
	for (unsigned i = 0; i < VB_PLACES_TXN; i++) {
		must(vb_txn_begin(w->a));
		vb_txn_abort(w->a);
	}
}

/* Each of them twice in a row: who has just failed may go another way. */
static void each_answer(void **state)
{
	unsigned failed = 0, k;
	uint64_t value = AFTER;
	struct world w;
	int err;

	open_unheard(&w, state, LONG_NS);
	must(transact(&w, AFTER));
	for (k = 0;; k++) {
		unheard.before = k / 2;
		unheard.armed = true;
		err = transact(&w, AFTER + 1 + k);
		if (unheard.armed)
			break;
		failed += err != 0;
		/* A server that did not hear whether it had written has said so. */
		if (vb_cc_sequenced(w.db->cc) && vb_txn_lane(w.a)->unacknowledged) {
			for (uint64_t key = 0; key < KEYS / 2; key++)
				assert_int_equal(held(&w, key), 0);
			use_its_places(&w);
		}
		value = look(&w, err, value, AFTER + 1 + k);
	}
	unheard.armed = false;
	must(err);
	assert_true(failed > 0 && k > 8);
	close_world(&w);
}

/* What does not come is lost: of what was only read nothing is left when the transaction ends, and of what was to be
 * written nothing when its place is used again.  Nobody has met any of it. */
static void each_doorbell_lost(void **state)
{
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	unsigned failed = 0, k;
	uint64_t value = AFTER, now;
	struct world w;
	int err;

	open_unheard_db(&w, state, &p);
	must(transact(&w, AFTER));
	unheard.dropped = true;
	for (k = 0;; k++) {
		unheard.before = k;
		unheard.armed = true;
		err = transact(&w, AFTER + 1 + k);
		if (unheard.armed)
			break;
		failed += err != 0;
		for (uint64_t key = 0; key < KEYS / 2 && !vb_txn_lane(w.a)->unknown; key++)
			assert_int_equal(held(&w, key), 0);
		use_its_places(&w);
		assert_none_held(&w);
		now = value_now(&w, KEYS - 1);
		assert_int_equal(now, err == 0 ? AFTER + 1 + k : value);
		value = now;
	}
	unheard.armed = false;
	must(err);
	assert_true(failed > 0 && k > 4);
	close_world(&w);
}

/* Of one that ends of its own, too: refused or lost once, what lets go is asked again. */
static void each_release_again(void **state)
{
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct world w;

	p.no_doorbell = true;
	open_unheard_db(&w, state, &p);
	for (unsigned i = 0; i < 2; i++) {
		unheard.refused = i == 0;
		unheard.dropped = i == 1;
		for (unsigned k = 0;; k++) {
			must(prepare(&w, AFTER));
			unheard.before = k;
			unheard.armed = true;
			vb_txn_abort(w.a);
			assert_none_held(&w);
			if (unheard.armed)
				break;
		}
		unheard.armed = false;
	}
	assert_int_equal(value_now(&w, KEYS - 1), FIRST + KEYS - 1);
	close_world(&w);
}

/* Nobody says whether the commit point was passed.  What was read is held until that is known, and no longer. */
static void read_until_learned(void **state)
{
	bool reads_lock = ((const struct kind *)*state)->ops->caps & VB_CC_READ_LOCKS;
	struct world w;

	for (unsigned dropped = 0; dropped < 2; dropped++) {
		open_unheard(&w, state, SHORT_NS);
		must(transact(&w, AFTER));
		must(prepare(&w, AFTER + 1));
		unheard.dropped = dropped;
		unheard.place = vb_status_word(w.db, vb_txn_lane(w.a)->place);
		assert_int_equal(vb_txn_commit(w.a), -VB_EUNKNOWN);
		unheard.place = 0;
		assert_true(!reads_lock || held(&w, 0) != 0);
		use_its_places(&w);
		assert_none_held(&w);
		assert_int_equal(value_now(&w, KEYS - 1), dropped ? AFTER : AFTER + 1);
		close_world(&w);
	}
}

/* What it has left, of its own and for others to find; then all of it or nothing is there, as was said. */
static uint64_t settled(struct world *w, int err, uint64_t before, uint64_t after)
{
	uint64_t value, freed;

	use_its_places(w);
	for (uint16_t node = 0; node < NODES; node++)
		must(vb_db_recover(w->b, node, &freed));
	assert_none_held(w);
	value = value_now(w, KEYS - 1);
	if (err != -VB_EUNKNOWN)
		assert_int_equal(value, err == 0 ? after : before);
	assert_true(value == before || value == after);
	for (uint64_t key = KEYS / 2; key < KEYS; key++)
		assert_int_equal(value_now(w, key), value);
	return value;
}

/* A link is down for a moment: what is asked then is refused, and what is asked behind it is not.  In one
 * doorbell they are refused together; here each verb has its own. */
static void each_doorbell_refused(void **state)
{
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	unsigned failed = 0, finished = 0, k;
	uint64_t value = AFTER;
	struct world w;
	int err;

	p.no_doorbell = true;
	open_unheard_db(&w, state, &p);
	must(transact(&w, AFTER));
	unheard.refused = true;
	for (k = 0;; k++) {
		unheard.before = k;
		unheard.armed = true;
		err = transact(&w, AFTER + 1 + k);
		if (unheard.armed)
			break;
		failed += err != 0;
		finished += err == 0 && vb_txn_lane(w.a)->unacknowledged;
		for (uint64_t key = 0; key < KEYS / 2 && !vb_txn_lane(w.a)->unknown; key++)
			assert_int_equal(held(&w, key), 0);
		value = settled(&w, err, value, AFTER + 1 + k);
	}
	unheard.armed = false;
	must(err);
	/* Behind the commit point, too. */
	assert_true(failed > 0 && finished > 0);
	close_world(&w);
}

/*
 * Nobody says whether the commit point was passed.  It was; but when that is known the coordinator
 * cannot finish what it has begun (here it does not know the table; it may also have no memory).  It
 * finishes it when it can, and does not use the place before that.
 */
static void finished_when_it_can(void **state)
{
	char said[1024] = "";
	struct record *mine;
	unsigned tables;
	struct world w;
	int err = 0;

	open_unheard(&w, state, SHORT_NS);
	must(transact(&w, AFTER));
	must(vb_txn_begin(w.a));
	for (uint64_t key = KEYS / 2; key < KEYS; key++) {
		must(vb_txn_update(w.a, w.t, key, (void **)&mine));
		mine->value = AFTER + 1;
	}
	unheard.place = vb_db_place(w.db, vb_txn_lane(w.a)->place);
	assert_int_equal(vb_txn_commit(w.a), -VB_EUNKNOWN);
	unheard.place = 0;
	tables = w.db->store.n_tables;
	w.db->store.n_tables = 0;
	vb_log_capture_begin(said, sizeof(said));
	/* It has another place, which may be used. */
	for (unsigned i = 0; i < VB_PLACES_TXN && err == 0; i++) {
		err = vb_txn_begin(w.a);
		vb_txn_abort(w.a);
	}
	vb_log_capture_end();
	assert_int_equal(err, -EPROTO);
	w.db->store.n_tables = tables;
	use_its_places(&w);
	assert_none_held(&w);
	for (uint64_t key = KEYS / 2; key < KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), AFTER + 1);
	close_world(&w);
}

/* ---- answers whose items do not come ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct vb_fabric *f;
	unsigned char was[4096];
	bool armed;
} unwritten;

/* The WRITE before the message changes nothing. */
static int post_unwritten(struct vb_ep *ep, struct vb_batch *b)
{
	struct vb_verb *v = &b->verbs[0];

	if (unwritten.armed && v->op == VB_OP_WRITE && v->len <= sizeof(unwritten.was)) {
		unwritten.armed = false;
		memcpy(unwritten.was, vb_local(unwritten.f, v->addr, v->len), v->len);
		v->buf = unwritten.was;
	}
	return unwritten.real->post(ep, b);
}

/* What stands there is the answer to another question. */
static void answer_without_items(void **state)
{
	struct record r = {0};
	uint64_t key = 0;
	struct world w;
	int err;

	if (((const struct kind *)*state)->hybrid == NULL)
		return;
	open_unheard(&w, state, SHORT_NS);
	while (vb_table_node(w.t, key) != 1)
		key++;
	assert_int_equal(value_of(w.a, w.t, key), FIRST + key);
	do
		key++;
	while (vb_table_node(w.t, key) != 1);
	unwritten.f = w.f;
	unwritten.real = vb_db_server_ep(w.server[1])->ops;
	unwritten.ops = *unwritten.real;
	unwritten.ops.post = post_unwritten;
	vb_db_server_ep(w.server[1])->ops = &unwritten.ops;
	must(vb_txn_begin(w.a));
	unwritten.armed = true;
	err = vb_txn_read(w.a, w.t, key, &r);
	/* Some protocols have a code of their own, and read one-sided. */
	if (strcmp(((const struct kind *)*state)->hybrid, "rpc") == 0)
		assert_false(unwritten.armed);
	assert_true(err == -VB_EUNKNOWN || (err == 0 && r.value == FIRST + key));
	if (err == 0)
		err = vb_txn_commit(w.a);
	else
		vb_txn_abort(w.a);
	unwritten.armed = false;
	assert_int_equal(value_of(w.a, w.t, key), FIRST + key);
	close_world(&w);
}

#ifndef PROTOCOL
static const struct kind sequenced[] = {
	{&vb_cc_calvin, NULL, "sim"},
	{&vb_cc_calvin, "rpc", "sim"},
};

/* Calvin is none of those that run what declares nothing.  How many tests there are, with those before. */
static size_t add_sequenced(const struct case_for_all *cases, size_t n_cases,
			    struct CMUnitTest *tests, size_t n)
{
	for (size_t k = 0; k < VB_ARRAY_SIZE(sequenced); k++)
		for (size_t i = 0; i < n_cases; i++, n++) {
			snprintf(test_names[n], sizeof(test_names[n]), "sim calvin%s: %s",
				 sequenced[k].hybrid != NULL ? " rpc" : "", cases[i].name);
			tests[n] = (struct CMUnitTest){.name = test_names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&sequenced[k]};
		}
	return n;
}
#endif

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"each doorbell is lost once", each_doorbell_lost},
		{"each release is asked again", each_release_again},
		{"read until it is learned", read_until_learned},
		{"each answer is lost once", each_answer},
		{"each doorbell is refused once", each_doorbell_refused},
		{"finished when it can be", finished_when_it_can},
		{"an answer without its items", answer_without_items},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

#ifndef PROTOCOL
	if (is_named(&vb_cc_calvin, argv + 2, argc - 2))
		n = add_sequenced(cases, 5, tests, n);
#endif
	return _cmocka_run_group_tests("transactions: answers unheard", tests, n, NULL, NULL);
}
