/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where verbs complete at once a record has no seal: who reads it without its lock must find out that
 * it was written meanwhile.  A READ is cut in two, and another's whole transaction comes between
 * the halves, whichever of them is read first; or a WRITE is, and another's READ; or both are.
 */
#include <pthread.h>
#include <semaphore.h>

#include "txn/db.h"
#include "txn_api.h"

#include "cc/to_cascade.h"

#define KEY 3

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct world *w;
	vb_addr from, end; /* of the tuple */
	uint32_t cut;      /* bytes of it before the other comes */
	bool armed, undone, second_first, to_write;
	bool older; /* the other, which has begun before */
	struct half *rest;
	struct vb_txn_params reader;
	int err; /* the other's */
	struct record seen;
} torn;

/* The others' turn: once, and with their own endpoints. */
static bool is_torn(vb_addr a, uint32_t len)
{
	if (!torn.armed || a > torn.from + torn.cut || a + len <= torn.from + torn.cut ||
	    a + len > torn.end)
		return false;
	torn.armed = false;
	return true;
}

static void write_between(void)
{
	struct world *w = torn.w;
	struct record r = {.value = torn.cut, .other = torn.cut};

	torn.err = torn.older ? 0 : vb_txn_begin(w->b);
	if (torn.err == 0)
		torn.err = vb_txn_write(w->b, w->t, KEY, &r);
	if (torn.err == 0)
		torn.err = vb_txn_commit(w->b);
}

/* The second half of a READ. */
struct half {
	struct vb_ep *ep;
	vb_addr at;
	void *to;
	uint32_t len;
	int err;
};

static void read_half(struct half *h)
{
	h->err = torn.real->read(h->ep, h->at, h->to, h->len);
}

/* The other does not commit: what it has put in place, and has been read, it takes back. */
static struct vb_cc_ops undoes;

static int undo_instead(struct vb_txn *t)
{
	if (t->me != torn.w->b || torn.rest == NULL)
		return to_cascade_decide(t);
	read_half(torn.rest);
	torn.rest = NULL;
	return vb_txn_doom(t, VB_TXN_LOCKED, 0);
}

static int read_torn(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	uint32_t first = (uint32_t)(torn.from + torn.cut - a);
	struct half second = {ep, a + first, (char *)buf + first, len - first, 0};
	int err;

	if (!is_torn(a, len))
		return torn.real->read(ep, a, buf, len);
	if (torn.second_first) {
		read_half(&second);
		write_between();
		err = first != 0 ? torn.real->read(ep, a, buf, first) : 0;
		return err != 0 ? err : second.err;
	}
	err = first != 0 ? torn.real->read(ep, a, buf, first) : 0;
	torn.rest = torn.undone ? &second : NULL;
	write_between();
	if (torn.rest != NULL || !torn.undone)
		read_half(&second);
	torn.rest = NULL;
	return err != 0 ? err : second.err;
}

static void read_between(void)
{
	struct world *w = torn.w;

	torn.err = vb_txn_begin_with(w->b, &torn.reader);
	if (torn.err == 0)
		torn.err = vb_txn_read(w->b, w->t, KEY, &torn.seen);
	vb_txn_abort(w->b);
}

static int write_torn(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	uint32_t first = (uint32_t)(torn.from + torn.cut - a);
	int err;

	if (!is_torn(a, len))
		return torn.real->write(ep, a, buf, len);
	err = first != 0 ? torn.real->write(ep, a, buf, first) : 0;
	read_between();
	return err != 0 ? err
			: torn.real->write(ep, a + first, (const char *)buf + first, len - first);
}

/* The protocols that read what others may be writing. */
static bool reads_unlocked(const struct kind *k)
{
	return k->hybrid == NULL && !(k->ops->caps & VB_CC_READ_LOCKS);
}

static void open_torn(struct world *w, void **state)
{
	const struct record first = {.value = 1, .other = 1};
	uint32_t node;

	open_usual(w, state, SHORT_NS);
	alone(w->b, vb_txn_write(w->b, w->t, KEY, &first));
	node = vb_table_node(w->t, KEY);
	torn.w = w;
	torn.from = vb_table_find(w->t, (uint16_t)node, KEY);
	torn.end = torn.from + w->t->layout.bytes;
	torn.real = w->a->ep->ops;
	torn.ops = *torn.real;
	torn.ops.read = read_torn;
	torn.ops.write = write_torn;
	w->a->ep->ops = &torn.ops;
}

/* The level of those that read: the next one that the protocol offers. */
static bool next_level(void **state, unsigned *level)
{
	const struct kind *k = *state;

	while (*level < VB_ISOLATIONS &&
	       (*level == VB_SNAPSHOT || !vb_cc_offers(k->ops, (enum vb_isolation) * level)))
		++*level;
	torn.reader.isolation = (enum vb_isolation) * level;
	return *level < VB_ISOLATIONS;
}

/* What will be written is read in another way, and by some protocols under its lock. */
static int read_it(struct world *w, struct record *r)
{
	struct record *mine;
	int err;

	if (!torn.to_write)
		return vb_txn_read(w->a, w->t, KEY, r);
	err = vb_txn_update(w->a, w->t, KEY, (void **)&mine);
	if (err == 0)
		*r = *mine;
	return err;
}

static void reads_at_level(void **state)
{
	struct record r;
	struct world w;
	unsigned met = 0;

	open_torn(&w, state);
	for (torn.cut = VB_TUPLE_KEY_AT; torn.cut < w.t->layout.bytes; torn.cut += 8) {
		int err;

		if (torn.older) {
			must(vb_txn_begin(w.b));
			tick(w.a);
		}
		must(vb_txn_begin_with(w.a, &torn.reader));
		torn.armed = true;
		err = read_it(&w, &r);
		assert_true(!torn.armed || torn.to_write);
		if (torn.armed && torn.older)
			vb_txn_abort(w.b);
		torn.armed = false;
		met += torn.err == 0;
		if (err == 0)
			assert_int_equal(r.value, r.other);
		else
			assert_int_equal(err, -EAGAIN);
		vb_txn_abort(w.a);
	}
	/* It was written between, and not only refused. */
	assert_true(met > 0 || torn.to_write || torn.older);
	close_world(&w);
}

static void reads(void **state)
{
	for (unsigned level = 0; next_level(state, &level); level++) {
		for (unsigned way = 0; way < 8; way++) {
			torn.second_first = way & 1;
			torn.to_write = way & 2;
			torn.older = way & 4;
			reads_at_level(state);
		}
		torn.second_first = torn.to_write = torn.older = false;
	}
}

/* Another writes between, and does not commit. */
static void reads_and_undone(void **state)
{
	const struct kind *k = *state;
	unsigned met = 0;
	struct record r;
	struct world w;

	if (!vb_cc_installs(k->ops))
		return;
	open_torn(&w, state);
	undoes = *w.db->cc;
	undoes.decide = undo_instead;
	w.db->cc = &undoes;
	torn.undone = true;
	torn.reader = (struct vb_txn_params){0};
	for (torn.cut = VB_TUPLE_KEY_AT; torn.cut < w.t->layout.bytes; torn.cut += 8) {
		int err;

		tick(w.a);
		must(vb_txn_begin(w.a));
		torn.armed = true;
		err = vb_txn_read(w.a, w.t, KEY, &r);
		assert_false(torn.armed);
		met += torn.err == -EAGAIN && w.b->txn.installed == VB_TXN_INSTALLED;
		if (err == 0)
			assert_true(r.value == 1 && r.other == 1);
		else
			assert_int_equal(err, -EAGAIN);
		vb_txn_abort(w.a);
	}
	assert_true(met > 0);
	torn.undone = false;
	close_world(&w);
}

static void writes_at_level(void **state)
{
	struct world w;
	unsigned met = 0;

	open_torn(&w, state);
	for (torn.cut = w.t->layout.record_at; torn.cut < w.t->layout.bytes; torn.cut += 8) {
		struct record r = {.value = torn.cut, .other = torn.cut};

		torn.armed = true;
		alone(w.a, vb_txn_write(w.a, w.t, KEY, &r));
		assert_false(torn.armed);
		met++;
		if (torn.err == 0)
			assert_int_equal(torn.seen.value, torn.seen.other);
		else
			assert_int_equal(torn.err, -EAGAIN);
	}
	assert_true(met > 0);
	close_world(&w);
}

static void writes(void **state)
{
	for (unsigned level = 0; next_level(state, &level); level++)
		writes_at_level(state);
}

/* ---- both are torn: the second half of the READ, the rest of the writer, the first half ---- */

static struct {
	struct world *w;
	struct vb_fabric_ops writes, reads;
	vb_addr cut;
	sem_t half_written, goes_on;
	pthread_t writer;
	bool to_tear, to_read, joined;
	int err; /* the writer's */
} both;

static void goes_on(void)
{
	if (both.joined)
		return;
	sem_post(&both.goes_on);
	pthread_join(both.writer, NULL);
	both.joined = true;
}

static int write_half(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	uint32_t first = (uint32_t)(both.cut - a);
	int err;

	if (!both.to_tear || a > both.cut || a + len <= both.cut || a + len > torn.end)
		return torn.real->write(ep, a, buf, len);
	both.to_tear = false;
	err = first != 0 ? torn.real->write(ep, a, buf, first) : 0;
	sem_post(&both.half_written);
	sem_wait(&both.goes_on);
	return err != 0 ? err
			: torn.real->write(ep, a + first, (const char *)buf + first, len - first);
}

static int read_around(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	uint32_t first = (uint32_t)(both.cut - a);
	int err;

	if (!both.to_read || a > both.cut || a + len <= both.cut || a + len > torn.end)
		return torn.real->read(ep, a, buf, len);
	both.to_read = false;
	err = torn.real->read(ep, both.cut, (char *)buf + first, len - first);
	goes_on();
	return err != 0 || first == 0 ? err : torn.real->read(ep, a, buf, first);
}

static void *write_by_halves(void *arg)
{
	const struct record r = {.value = both.cut, .other = both.cut};
	struct vb_coordinator *c;

	(void)arg;
	both.err = vb_coordinator_open(both.w->db, 0, &c);
	if (both.err != 0)
		return NULL;
	c->ep->ops = &both.writes;
	tick(c);
	both.err = vb_txn_begin(c);
	if (both.err == 0)
		both.err = vb_txn_write(c, both.w->t, KEY, &r);
	if (both.err == 0)
		both.err = vb_txn_commit(c);
	vb_coordinator_close(c);
	sem_post(&both.half_written);
	return NULL;
}

/* While the first half is there, and its writer stands still with the lock.  False: it has written elsewhere. */
static bool read_then(struct world *w, uint32_t cut)
{
	/* It waits for the writer in vain, if it waits. */
	const struct vb_txn_params p = {.isolation = torn.reader.isolation, .timeout_ns = 2000000};
	bool torn_here;
	struct record r;
	int err;

	both.cut = torn.from + cut;
	both.to_tear = true;
	both.joined = false;
	assert_int_equal(pthread_create(&both.writer, NULL, write_by_halves, NULL), 0);
	sem_wait(&both.half_written);
	torn_here = !both.to_tear;
	must(vb_txn_begin_with(w->b, &p));
	both.to_read = true;
	err = vb_txn_read(w->b, w->t, KEY, &r);
	both.to_read = false;
	goes_on();
	assert_int_equal(both.err, 0);
	/* Of several versions it writes one, which the cut need not be in. */
	if (torn_here)
		sem_wait(&both.half_written);
	else
		sem_wait(&both.goes_on);
	if (err == 0)
		assert_int_equal(r.value, r.other);
	else
		assert_true(err == -EAGAIN || err == -ETIMEDOUT);
	vb_txn_abort(w->b);
	return torn_here;
}

static void reads_around_writes(void **state)
{
	for (unsigned level = 0; next_level(state, &level); level++) {
		unsigned met = 0;
		struct world w;

		open_usual(&w, state, LONG_NS);
		torn.from = vb_table_find(w.t, (uint16_t)vb_table_node(w.t, KEY), KEY);
		torn.end = torn.from + w.t->layout.bytes;
		torn.real = w.a->ep->ops;
		both.w = &w;
		both.writes = both.reads = *torn.real;
		both.writes.write = write_half;
		both.reads.read = read_around;
		w.b->ep->ops = &both.reads;
		must(sem_init(&both.half_written, 0, 0));
		must(sem_init(&both.goes_on, 0, 0));
		for (uint32_t cut = w.t->layout.record_at; cut < w.t->layout.bytes; cut += 8)
			met += read_then(&w, cut);
		assert_true(met > 0);
		sem_destroy(&both.half_written);
		sem_destroy(&both.goes_on);
		close_world(&w);
	}
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"a torn read", reads},
		{"a torn write", writes},
		{"a torn read of what is undone", reads_and_undone},
		{"a torn read around a torn write", reads_around_writes},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t all = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests), n = 0;

	for (size_t i = 0; i < all; i++)
		if (reads_unlocked(tests[i].initial_state))
			tests[n++] = tests[i];
	return _cmocka_run_group_tests("transactions: torn records", tests, n, NULL, NULL);
}
