/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where a READ takes its time a whole transaction of another comes between any two of its halves,
 * whichever of them is read first, or so many that a version's place is the next one's.  Who has read that, and writes what follows from it, has the
 * record of one version and nothing of another, or does not commit: no increment is lost.
 */
#include "cc/mvcc.h"
#include "fabric/hook/hooks.h"
#include "txn/db.h"
#include "txn_api.h"

#define KEY 3

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct world *w;
	vb_addr cut; /* where the halves meet */
	bool armed, second_first;
	unsigned before; /* so many such READs are whole */
	unsigned between;
	uint64_t done; /* increments of the other */
} halves;

/* One more, by me: 0 or why not. */
static int increment(struct world *w, struct vb_coordinator *me, bool armed)
{
	struct record r;
	int err = vb_txn_begin(me);

	halves.armed = armed;
	if (err == 0)
		err = vb_txn_read(me, w->t, KEY, &r);
	halves.armed = false;
	if (err == 0) {
		assert_int_equal(r.value, r.other);
		r.value = r.other = r.value + 1;
		err = vb_txn_write(me, w->t, KEY, &r);
	}
	if (err == 0)
		err = vb_txn_commit(me);
	assert_true(err == 0 || err == -EAGAIN);
	return err;
}

static int read_in_halves(struct vb_ep *ep, struct vb_verb *v)
{
	struct vb_verb half[2] = {*v, *v};
	uint32_t first = (uint32_t)(halves.cut - v->addr);
	int err;

	half[0].len = first;
	half[1].addr += first;
	half[1].buf = (char *)v->buf + first;
	half[1].len -= first;
	halves.armed = false;
	err = vb_post_wait(ep->lower, &half[halves.second_first], 1);
	for (unsigned i = 0; i < halves.between; i++) {
		halves.done += increment(halves.w, halves.w->b, false) == 0;
		tick(halves.w->b);
	}
	return err ? err : vb_post_wait(ep->lower, &half[!halves.second_first], 1);
}

static int post_halves(struct vb_ep *ep, struct vb_batch *b)
{
	for (unsigned i = 0; i < b->n && halves.armed; i++) {
		struct vb_verb *v = &b->verbs[i];

		if (v->op != VB_OP_READ || v->addr >= halves.cut ||
		    v->addr + v->len <= halves.cut || halves.before-- > 0)
			continue;
		if (i > 0)
			must(vb_post_wait(ep->lower, b->verbs, i));
		v->status = read_in_halves(ep, v);
		must(v->status);
		if (i + 1u < b->n)
			must(vb_post_wait(ep->lower, v + 1, b->n - i - 1));
		return 0;
	}
	return halves.real->post(ep, b);
}

static void open_halves(struct world *w, void **state, const char *profile)
{
	const struct vb_fabric_params fp = {.fabric = fabric_of(state),
					    .options = profile,
					    .nodes = NODES,
					    .node_bytes = 16 << 20,
					    .endpoints = 32};
	struct vb_db_params p = usual_db(*state, LONG_NS);

	*w = (struct world){0};
	must(vb_fabric_open(&fp, &w->f));
	must(vb_hook_count(w->f, &w->f));
	must(vb_db_open(w->f, &p, &w->db));
	must(vb_table_open(w->db, &usual_table, &w->t));
	must(vb_table_load(w->t, KEY, &(struct record){.value = FIRST, .other = FIRST}));
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
	memset(&halves, 0, sizeof(halves));
	halves.w = w;
	halves.real = w->a->ep->ops;
	halves.ops = *halves.real;
	halves.ops.post = post_halves;
	w->a->ep->ops = &halves.ops;
}

/* Of the protocols that read what others may be writing. */
static bool reads_unlocked(void **state)
{
	const struct kind *k = *state;

	return k->hybrid == NULL && !(k->ops->caps & VB_CC_READ_LOCKS);
}

/* At each place of the tuple: increments that are mine. */
static uint64_t cut_everywhere(struct world *w, uint32_t whole, uint64_t *cuts)
{
	vb_addr tuple = vb_table_find(w->t, vb_table_node(w->t, KEY), KEY);
	uint64_t mine = 0;

	for (uint32_t at = whole; at < w->t->layout.bytes; at += whole)
		for (unsigned k = 0; k < 4; k++) {
			uint64_t before = halves.done;

			halves.cut = tuple + at;
			halves.before = k / 2;
			halves.second_first = k & 1;
			mine += increment(w, w->a, true) == 0;
			tick(w->b);
			*cuts += halves.done != before;
		}
	return mine;
}

static void cut_by(void **state, const char *profile, uint32_t whole, unsigned between)
{
	uint64_t mine = 0, cuts = 0;
	struct world w;

	if (!reads_unlocked(state))
		return;
	open_halves(&w, state, profile);
	assert_int_equal(!(w.f->caps.flags & VB_CAP_MASKED128), whole == 8);
	halves.between = between;
	/* The newest version stands at another place each time. */
	for (unsigned i = 0; i < between; i++) {
		mine += cut_everywhere(&w, whole, &cuts);
		mine += increment(&w, w.a, false) == 0;
	}
	assert_true(cuts > 4);
	assert_true(mine > between);
	assert_int_equal(value_of(w.b, w.t, KEY), FIRST + mine + halves.done);
	close_world(&w);
}

static void between_sixteens(void **state)
{
	cut_by(state, "profile=cx5", 16, 1);
}

static void until_its_place_is_anothers(void **state)
{
	cut_by(state, "profile=cx5", 16, MVCC_SLOTS);
}

/* Where no atomic is of 16 bytes, no READ is. */
static void between_words(void **state)
{
	cut_by(state, "profile=plain64", 8, 1);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"between any two sixteens", between_sixteens},
		{"until its place is another's", until_its_place_is_anothers},
		{"between any two words", between_words},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: READs in halves", tests, n, NULL, NULL);
}
