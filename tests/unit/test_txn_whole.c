/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a transaction is given while it runs is whole: also when it is so late that others, who were in
 * time, have taken its lock over and written between its lock and the end of its READ.  The verbs of A are
 * the fabric's but for that READ, which is done in two parts, and B comes in between.
 */
#include "txn_api.h"

#include "cc/protocols.h"

#define KEY 2
#define NEW 777
/* Of B, until it may write: four, and more where it is itself too late for its lease. */
#define LOOKS_MOST 100

static const struct kind kinds_here[] = {
	{&vb_cc_no_wait, NULL, "shm"},      {&vb_cc_no_wait_sx, NULL, "shm"},
	{&vb_cc_bounded_wait, NULL, "shm"}, {&vb_cc_bounded_wait_sx, NULL, "shm"},
	{&vb_cc_wait_die, NULL, "shm"},
};
/* They read what they write under its lock. */
static const struct kind kinds_that_lock[] = {
	{&vb_cc_to, NULL, "shm"},
	{&vb_cc_to_cascade, NULL, "shm"},
	{&vb_cc_mvcc_rcc, NULL, "shm"},
};

static struct {
	struct world *w;
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	unsigned looks; /* of B, in A's next READ */
	bool written;
} between;

/* B wants to write: 0 if it has. */
static int write_new(struct vb_coordinator *b, struct vb_table *t)
{
	int err;

	must(vb_txn_begin(b));
	err = vb_txn_write(b, t, KEY, &(struct record){.value = NEW, .other = NEW});
	return err == 0 ? vb_txn_commit(b) : err;
}

/* B finds A's lock so often, each time as much later as others must wait for A; and then goes on, if it may. */
static void come_between(void)
{
	struct vb_coordinator *b = between.w->b;

	for (unsigned i = 0; i < between.looks && !between.written; i++) {
		if (i > 0)
			must(vb_ep_sleep(b->ep, b->db->suspect_ns + 1000000));
		between.written = write_new(b, between.w->t) == 0;
	}
	between.looks = 0;
}

static int read_in_two(struct vb_ep *ep, vb_addr at, void *to, uint32_t bytes)
{
	const struct vb_tuple_layout *l = &between.w->t->layout;
	uint32_t first = l->record_at + 8;
	int err;

	if (bytes != l->bytes || between.looks == 0)
		return between.real->read(ep, at, to, bytes);
	err = between.real->read(ep, at, to, first);
	come_between();
	return err ? err : between.real->read(ep, at + first, (char *)to + first, bytes - first);
}

/* A reads, so late at last that B has written between the two halves of what A gets. */
static void read_late(void **state, const struct vb_txn_params *p, unsigned looks_before)
{
	struct record r = {0};
	struct world w;

	open_usual(&w, state, SHORT_NS);
	memset(&between, 0, sizeof(between));
	between.w = &w;
	between.real = w.a->ep->ops;
	between.ops = *between.real;
	between.ops.read = read_in_two;
	w.a->ep->ops = &between.ops;
	must(vb_txn_begin_with(w.a, p));
	if (looks_before > 0) {
		between.looks = looks_before;
		must(vb_txn_read(w.a, w.t, KEY, &r));
		assert_int_equal(r.value, FIRST + KEY);
		must(vb_ep_sleep(w.b->ep, w.db->suspect_ns + 1000000));
	}
	between.looks = 4 - looks_before;
	assert_int_equal(vb_txn_read(w.a, w.t, KEY, &r), -EAGAIN);
	assert_true(between.written);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_TIMEOUT);
	w.a->ep->ops = between.real;
	assert_int_equal(value_of(w.a, w.t, KEY), NEW);
	close_world(&w);
}

static void stands_still_in_a_read(void **state)
{
	read_late(state, &(struct vb_txn_params){0}, 0);
}

/* The lock word is the same at each of its reads, so B has known it since the first one. */
static void reads_again(void **state)
{
	read_late(state, &(struct vb_txn_params){.isolation = VB_READ_COMMITTED}, 1);
}

/* It writes, and others have set the lock back and written before it has all that it is given. */
static void stands_still_in_an_update(void **state)
{
	struct record *r = NULL;
	struct world w;
	int err;

	open_usual(&w, state, SHORT_NS);
	memset(&between, 0, sizeof(between));
	between.w = &w;
	between.real = w.a->ep->ops;
	between.ops = *between.real;
	between.ops.read = read_in_two;
	w.a->ep->ops = &between.ops;
	must(vb_txn_begin(w.a));
	tick(w.b);
	between.looks = LOOKS_MOST;
	err = vb_txn_update(w.a, w.t, KEY, (void **)&r);
	assert_true(between.written);
	if (err == 0)
		assert_int_equal(r->value == NEW, r->other == NEW);
	else
		assert_int_equal(err, -EAGAIN);
	w.a->ep->ops = between.real;
	vb_txn_abort(w.a);
	assert_int_equal(value_of(w.a, w.t, KEY), NEW);
	close_world(&w);
}

/* ---- a value that is put ---- */

static struct {
	struct vb_values *v;
	bool armed, done;
} other;

/* B puts the value that A has not found, where A lets go of what it knows of that. */
static int cas_and_more(struct vb_ep *ep, vb_addr at, uint64_t expect, uint64_t value,
			uint64_t *old)
{
	int err = between.real->cas64(ep, at, expect, value, old);

	if (other.armed && expect == between.w->a->txn.ts && value == 0) {
		other.armed = false;
		alone(between.w->b, vb_values_put(between.w->b, other.v, 4, "b", 1));
		other.done = true;
	}
	return err;
}

/* That there is none stays so until it is put, at every level. */
static void put_is_one_call(void **state)
{
	const struct vb_values_params tp = {.name = "text",
					    .bytes_max = 40,
					    .inline_bytes = 20,
					    .piece_bytes = 20,
					    .records = 16};
	const struct kind *k = *state;
	char value[40], got[40];
	struct world w;
	uint32_t bytes;

	memset(value, 'a', sizeof(value));
	for (unsigned level = 0; level < VB_ISOLATIONS; level++) {
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)level};

		if (!vb_cc_offers(k->ops, p.isolation))
			continue;
		open_usual(&w, state, LONG_NS);
		must(vb_values_open(w.db, &tp, &other.v));
		between.w = &w;
		between.real = w.a->ep->ops;
		between.ops = *between.real;
		between.ops.cas64 = cas_and_more;
		w.a->ep->ops = &between.ops;
		must(vb_txn_begin_with(w.a, &p));
		other.armed = true;
		other.done = false;
		must(vb_values_put(w.a, other.v, 4, value, sizeof(value)));
		other.armed = false;
		assert_false(other.done);
		w.a->ep->ops = between.real;
		must(vb_txn_commit(w.a));
		alone(w.b, vb_values_get(w.b, other.v, 4, got, sizeof(got), &bytes));
		assert_int_equal(bytes, sizeof(value));
		assert_memory_equal(got, value, sizeof(value));
		vb_values_close(other.v);
		close_world(&w);
	}
}

static size_t add(struct CMUnitTest *tests, char (*names)[96], size_t n, const struct kind *k,
		  const struct case_for_all *c)
{
	snprintf(names[n], sizeof(names[n]), "%s: %s", k->ops->name, c->name);
	tests[n] = (struct CMUnitTest){
		.name = names[n], .test_func = c->run, .initial_state = (void *)(uintptr_t)k};
	return n + 1;
}

int main(void)
{
	static const struct case_for_all cases[] = {
		{"stands still in a read", stands_still_in_a_read},
		{"reads again", reads_again},
		{"a put is one call", put_is_one_call},
	};
	static const struct case_for_all update = {"stands still in an update",
						   stands_still_in_an_update};
	static struct CMUnitTest tests[VB_ARRAY_SIZE(kinds_here) * VB_ARRAY_SIZE(cases) +
				       VB_ARRAY_SIZE(kinds_that_lock)];
	size_t n = 0;

	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds_here); i++)
		for (size_t j = 0; j < VB_ARRAY_SIZE(cases); j++)
			n = add(tests, test_names, n, &kinds_here[i], &cases[j]);
	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds_that_lock); i++)
		n = add(tests, test_names, n, &kinds_that_lock[i], &update);
	return _cmocka_run_group_tests("transactions: what is given is whole", tests, n, NULL,
				       NULL);
}
