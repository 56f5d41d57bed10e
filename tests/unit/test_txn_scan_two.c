/* SPDX-License-Identifier: Apache-2.0 */
/* Scans beside inserts and deletes of another transaction, for every protocol, one-sided and by RPC. */
#include "txn_scan.h"

/* ---- phantoms ---- */

/* 0: it has got so far. */
static int looks_at_all(struct vb_coordinator *me, struct vb_table *t,
			const struct vb_txn_params *p)
{
	must(vb_txn_begin_with(me, p));
	return gives(me, t, all_keys, 99, keys, N_KEYS);
}

/* Each looks at everything, and then inserts a key that nobody has looked for; which have committed. */
static unsigned both_insert(struct world *w, enum vb_isolation isolation, uint64_t of_a,
			    uint64_t of_b)
{
	/* At a snapshot nobody waits. */
	const struct vb_txn_params p = {
		.isolation = isolation,
		.timeout_ns = isolation == VB_SNAPSHOT ? 0 : SOON_NS,
	};
	int a = looks_at_all(w->a, w->t, &p), b = looks_at_all(w->b, w->t, &p);

	a = a == 0 ? add(w->a, w->t, of_a) : a;
	b = b == 0 ? add(w->b, w->t, of_b) : b;
	a = a == 0 ? vb_txn_commit(w->a) : a;
	b = b == 0 ? vb_txn_commit(w->b) : b;
	vb_txn_abort(w->a);
	vb_txn_abort(w->b);
	assert_true(a == 0 || a == -EAGAIN || a == -ETIMEDOUT);
	assert_true(b == 0 || b == -EAGAIN || b == -ETIMEDOUT);
	tick(w->b);
	return (a == 0) + (b == 0) * 2u;
}

static void no_phantoms(void **state)
{
	/* In one range, and in two; where there was nothing, and beside others. */
	static const uint64_t pairs[][2] = {{28, 29}, {28, 60}, {3, 0}, {8, 62}};
	struct world w;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(pairs); i++) {
		unsigned committed;

		open_keys(&w, state);
		committed = both_insert(&w, VB_SERIALIZABLE, pairs[i][0], pairs[i][1]);
		assert_int_not_equal(committed, 3);
		alone(w.a, vb_txn_insert(w.a, w.t, 50, &(struct record){.value = FIRST + 50}));
		close_world(&w);
	}
}

/* A looks twice, B inserts in between. */
static void stays_as_it_was(void **state)
{
	const struct vb_txn_params soon = {.timeout_ns = SOON_NS};
	struct vb_txn_row row[32];
	unsigned first, second;
	struct world w;
	int a, b;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	must(vb_txn_scan(w.a, w.t, &all_keys, row, 32, &first));
	tick(w.b);
	must(vb_txn_begin_with(w.b, &soon));
	b = add(w.b, w.t, 28);
	b = b == 0 ? vb_txn_commit(w.b) : b;
	vb_txn_abort(w.b);
	a = vb_txn_scan(w.a, w.t, &all_keys, row, 32, &second);
	a = a == 0 ? vb_txn_commit(w.a) : a;
	vb_txn_abort(w.a);
	/* Who commits has seen the same twice, and one of the two gets on. */
	if (a == 0)
		assert_int_equal(first, second);
	assert_true(a == 0 || b == 0);
	close_world(&w);
}

/* At the levels that promise nothing of it, and say so. */
static void phantoms_at_weak_levels(void **state)
{
	const struct kind *k = *state;
	struct vb_txn_row row[32];
	unsigned n;
	struct world w;

	for (unsigned level = 0; level < VB_ISOLATIONS; level++) {
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)level};

		if (level == VB_SERIALIZABLE || !vb_cc_offers(k->ops, p.isolation))
			continue;
		open_keys(&w, state);
		if (level == VB_SNAPSHOT) {
			/* What was loaded is in every snapshot.  Each is in no other's way. */
			assert_int_equal(both_insert(&w, VB_SNAPSHOT, 28, 60), 3);
			close_world(&w);
			continue;
		}
		must(vb_txn_begin_with(w.a, &p));
		must(gives(w.a, w.t, (struct vb_txn_range){24, 63, false}, 99, KEYS(40)));
		alone(w.b, add(w.b, w.t, 28));
		/* A scan by timestamps is of A's, at every level, and B is younger. */
		if (!(k->ops->caps & VB_CC_READ_LOCKS)) {
			assert_int_equal(vb_txn_scan(w.a, w.t,
						     &(struct vb_txn_range){24, 63, false}, row, 32,
						     &n),
					 -EAGAIN);
			assert_int_equal(vb_txn_cause(w.a), VB_TXN_CHANGED);
			close_world(&w);
			continue;
		}
		must(vb_txn_scan(w.a, w.t, &(struct vb_txn_range){24, 63, false}, row, 32, &n));
		assert_int_equal(n, 2);
		must(vb_txn_commit(w.a));
		close_world(&w);
	}
}

/* What B then commits may be in the past of A, by timestamps too. */
static void begin_b_first(struct world *w, const struct vb_txn_params *p)
{
	must(vb_txn_begin(w->b));
	tick(w->b);
	must(vb_txn_begin_with(w->a, p));
}

/* A declares 5 and B deletes it: no scan gives it, the first or another. */
static void declared_and_deleted(void **state)
{
	const struct vb_txn_params committed = {.isolation = VB_READ_COMMITTED};
	const struct vb_txn_range four = {4, 7, false};
	const struct kind *k = *state;
	struct world w;
	const void *r;

	if (!vb_cc_offers(k->ops, VB_READ_COMMITTED))
		return;
	open_keys(&w, state);
	begin_b_first(&w, &committed);
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, 5, false}, 1));
	must(vb_txn_delete(w.b, w.t, 5));
	must(vb_txn_commit(w.b));
	must(gives(w.a, w.t, four, 99, NULL, 0));
	must(gives(w.a, w.t, four, 99, NULL, 0));
	assert_int_equal(vb_txn_get(w.a, w.t, 5, &r), -ENOENT);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* A declares 28, which is not there, and B inserts it. */
static void declared_absent(void **state)
{
	const struct vb_txn_range four = {28, 31, false};
	const struct kind *k = *state;
	struct world w;

	for (unsigned level = VB_REPEATABLE_READ; level <= VB_READ_COMMITTED; level++) {
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)level};

		if (!vb_cc_offers(k->ops, p.isolation))
			continue;
		open_keys(&w, state);
		begin_b_first(&w, &p);
		must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, 28, false}, 1));
		must(add(w.b, w.t, 28));
		must(vb_txn_commit(w.b));
		must(gives(w.a, w.t, four, 99, KEYS(28)));
		must(gives(w.a, w.t, four, 99, KEYS(28)));
		must(vb_txn_commit(w.a));
		close_world(&w);
	}
}

/* B takes 5 away and puts 12 there, in one transaction: A's scan gives one of the two. */
static void scan_of_one_moment(void **state)
{
	const struct vb_txn_params committed = {.isolation = VB_READ_COMMITTED};
	const struct kind *k = *state;
	struct world w;

	if (!vb_cc_offers(k->ops, VB_READ_COMMITTED))
		return;
	open_keys(&w, state);
	begin_b_first(&w, &committed);
	must(vb_txn_declare(w.a, &(struct vb_txn_key){w.t, 5, false}, 1));
	must(vb_txn_delete(w.b, w.t, 5));
	must(add(w.b, w.t, 12));
	must(vb_txn_commit(w.b));
	tick(w.b);
	must(gives(w.a, w.t, all_keys, 99, KEYS(1, 2, 9, 10, 11, 12, 20, 21, 22, 23, 40)));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* ---- inserts and scans ---- */

struct job {
	struct world *w;
	struct job *other;
	unsigned rounds, done, tries;
	unsigned met; /* scans, under way when an insert began or ended */
	bool scans, there, inside;
};

/* A key of eight comes and goes, or all eight are scanned. */
static int job_call(struct vb_coordinator *me, struct job *j)
{
	struct vb_txn_row row[8];
	unsigned n;

	if (j->scans)
		return vb_txn_scan(me, j->w->t, &(struct vb_txn_range){0, 7, false}, row, 8, &n);
	return j->there ? vb_txn_delete(me, j->w->t, 3) : add(me, j->w->t, 3);
}

static int job_try(struct vb_coordinator *me, void *arg)
{
	struct job *j = arg;
	bool meets = j->other->inside;
	int err;

	j->tries++;
	j->inside = true;
	err = job_call(me, j);
	j->inside = false;
	j->met += !j->scans && !j->there && (meets || j->other->inside);
	return err;
}

static void job_body(void *arg)
{
	struct job *j = arg;
	struct vb_coordinator *me;

	must(vb_coordinator_open(j->w->db, j->scans ? 1 : 0, &me));
	for (unsigned i = 0; i < j->rounds; i++) {
		must(vb_txn_run(me, job_try, j, 0));
		j->done++;
		j->there = !j->there;
		must(vb_ep_sleep(me->ep, 1000 + i % 7 * 500));
	}
	vb_coordinator_close(me);
}

/* Who waits for nobody else than one that gets on need not try again.  In virtual time. */
static void inserts_beside_scans(void **state)
{
	static const struct vb_task_params params = {.name = "job"};
	const struct vb_table_params lp = line(4);
	const struct kind *k = *state;
	struct job j[2];
	struct world w;

	if (strcmp(k->fabric, "sim") != 0 || !(k->ops->caps & VB_CC_BOUNDED))
		return;
	open_line(&w, state, &lp, 1, 8);
	for (unsigned i = 0; i < 2; i++) {
		struct vb_task *task;

		j[i] = (struct job){
			.w = &w, .scans = i, .there = true, .rounds = 100, .other = &j[1 - i]};
		must(vb_task_spawn(vb_sched_self(), job_body, &j[i], &params, &task));
	}
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(j[i].done, 100);
		assert_int_equal(j[i].tries, 100);
	}
	assert_true(j[0].met > 10);
	close_world(&w);
}

/* Both the key and its range are as if they had been looked for. */
static void refused_insert(void **state)
{
	const struct vb_txn_params committed = {.isolation = VB_READ_COMMITTED};
	const struct kind *k = *state;
	struct world w;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	assert_int_equal(add(w.a, w.t, 5), -EEXIST);
	assert_int_equal(w.a->txn.n, 2);
	for (unsigned i = 0; i < 2; i++) {
		assert_true(w.a->txn.item[i].flags & VB_ITEM_READ);
		assert_true(locks_writes_early(k) || !(w.a->txn.item[i].flags & VB_ITEM_WRITE));
	}
	/* What is refused takes back nothing that was done before. */
	must(add(w.a, w.t, 4));
	assert_int_equal(add(w.a, w.t, 5), -EEXIST);
	must(vb_txn_commit(w.a));
	tick(w.b);
	alone(w.b, gives(w.b, w.t, (struct vb_txn_range){4, 7, false}, 99, KEYS(4, 5)));
	if (vb_cc_offers(k->ops, VB_READ_COMMITTED)) {
		must(vb_txn_begin_with(w.a, &committed));
		assert_int_equal(add(w.a, w.t, 5), -EEXIST);
		alone(w.b, add(w.b, w.t, 6));
		must(vb_txn_commit(w.a));
	}
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"no phantoms", no_phantoms},
		{"stays as it was", stays_as_it_was},
		{"phantoms at weak levels", phantoms_at_weak_levels},
		{"declared and deleted", declared_and_deleted},
		{"declared absent", declared_absent},
		{"a scan is of one moment", scan_of_one_moment},
		{"inserts beside scans", inserts_beside_scans},
		{"a refused insert", refused_insert},
	};
	static const char *const fabrics[] = {"shm", "sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX + 1];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: two and their scans", tests, n, NULL, NULL);
}
