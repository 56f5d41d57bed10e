/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What include/verbena/txn.h says of ordered tables and of scans, for every protocol, one-sided and by RPC.
 */
#include "txn_api.h"

#include "store/ordered.h"

#define LINE_RECORDS 512
#define LINE_ITEMS   256
#define SOON_NS      5000000ull /* a transaction that waits for so long gives up */

static struct vb_table_params line(uint32_t shift)
{
	return (struct vb_table_params){.name = "line",
					.record_bytes = sizeof(struct record),
					.records = LINE_RECORDS,
					.ordered = true,
					.range_shift = shift};
}

/* Keys that lie a little apart, in ranges of four. */
static const uint64_t keys[] = {1, 2, 5, 9, 10, 11, 20, 21, 22, 23, 40};
#define N_KEYS VB_ARRAY_SIZE(keys)

static void open_line(struct world *w, void **state, const struct vb_table_params *lp,
		      uint64_t step, uint64_t n)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);

	p.items_max = LINE_ITEMS;
	p.bytes_max = LINE_ITEMS * sizeof(struct record);
	*w = (struct world){0};
	open_fabric(&w->f, k->fabric, on_verbs(k->fabric) ? 4 << 20 : 16 << 20);
	must(vb_db_open(w->f, &p, &w->db));
	must(vb_table_open(w->db, lp, &w->t));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t key = step != 0 ? i * step : keys[i];

		must(vb_table_load(w->t, key, &(struct record){.value = FIRST + key}));
	}
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

static void open_keys(struct world *w, void **state)
{
	const struct vb_table_params lp = line(2);

	open_line(w, state, &lp, 0, N_KEYS);
}

/* Exactly these keys, each with its own record. */
static int gives(struct vb_coordinator *me, struct vb_table *t, struct vb_txn_range range,
		 unsigned room, const uint64_t *expect, unsigned n_expect)
{
	struct vb_txn_row row[LINE_ITEMS];
	unsigned n = 999;
	int err = vb_txn_scan(me, t, &range, row, room, &n);

	if (err)
		return err;
	assert_int_equal(n, n_expect);
	for (unsigned i = 0; i < n; i++) {
		const struct record *r = row[i].record;

		assert_int_equal(row[i].key, expect[i]);
		assert_int_equal(r->value, FIRST + expect[i]);
	}
	return 0;
}

#define KEYS(...)                                                                                  \
	(const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

static const struct vb_txn_range all_keys = {0, 63, false}, all_down = {0, 63, true};

static int add(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	return vb_txn_insert(me, t, key, &(struct record){.value = FIRST + key});
}

/* ---- what is given ---- */

static void gives_what_is_there(void **state)
{
	struct world w;
	unsigned n = 7;

	open_keys(&w, state);
	alone(w.a, gives(w.a, w.t, all_keys, 99, keys, N_KEYS));
	alone(w.b, gives(w.b, w.t, all_down, 99, KEYS(40, 23, 22, 21, 20, 11, 10, 9, 5, 2, 1)));
	/* Both ends are included, and may be the same key. */
	alone(w.a,
	      gives(w.a, w.t, (struct vb_txn_range){2, 20, false}, 99, KEYS(2, 5, 9, 10, 11, 20)));
	alone(w.a,
	      gives(w.a, w.t, (struct vb_txn_range){2, 20, true}, 99, KEYS(20, 11, 10, 9, 5, 2)));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){9, 9, true}, 99, KEYS(9)));
	/* No more than there is room for. */
	alone(w.a, gives(w.a, w.t, all_keys, 4, KEYS(1, 2, 5, 9)));
	alone(w.a, gives(w.a, w.t, all_down, 3, KEYS(40, 23, 22)));
	alone(w.a, gives(w.a, w.t, all_keys, 0, NULL, 0));
	/* Nothing there, and nothing that could be. */
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){24, 39, false}, 99, NULL, 0));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){9, 8, false}, 99, NULL, 0));
	/* *n is written on success alone. */
	must(vb_txn_begin(w.a));
	vb_txn_abort(w.a);
	refused(vb_txn_scan(w.a, w.t, &all_keys, (struct vb_txn_row[1]){{0}}, 1, &n), -EINVAL);
	assert_int_equal(n, 7);
	close_world(&w);
}

static void prefixes(void **state)
{
	struct vb_txn_range all = vb_txn_prefix(77, 64), end = vb_txn_prefix(UINT64_MAX, 2);
	struct world w;

	open_keys(&w, state);
	alone(w.a, gives(w.a, w.t, vb_txn_prefix(10, 2), 99, KEYS(9, 10, 11)));
	alone(w.a, gives(w.a, w.t, vb_txn_prefix(16, 4), 99, KEYS(20, 21, 22, 23)));
	alone(w.a, gives(w.a, w.t, vb_txn_prefix(5, 0), 99, KEYS(5)));
	assert_true(all.least == 0 && all.most == UINT64_MAX && !all.descending);
	/* The last keys that there are. */
	must(vb_txn_begin(w.a));
	must(vb_txn_insert(w.a, w.t, UINT64_MAX, &(struct record){.value = FIRST + UINT64_MAX}));
	must(gives(w.a, w.t, end, 99, KEYS(UINT64_MAX)));
	end.descending = true;
	must(gives(w.a, w.t, end, 99, KEYS(UINT64_MAX)));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 3, true}, 99, KEYS(2, 1)));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static int go_on(struct vb_coordinator *me, struct vb_table *t, bool down)
{
	struct vb_txn_range left = down ? all_down : all_keys;
	struct vb_txn_row row[2];
	unsigned n, sum = 0;
	int err;

	do {
		err = vb_txn_scan(me, t, &left, row, 2, &n);
		for (unsigned i = 0; i < n && err == 0; i++, sum++)
			assert_int_equal(row[i].key, keys[down ? N_KEYS - 1 - sum : sum]);
		if (err == 0 && n == 2 && down)
			left.most = row[1].key - 1;
		else if (err == 0 && n == 2)
			left.least = row[1].key + 1;
	} while (err == 0 && n == 2);
	if (err == 0)
		assert_int_equal(sum, N_KEYS);
	return err;
}

static void goes_on_behind(void **state)
{
	struct world w;

	open_keys(&w, state);
	alone(w.a, go_on(w.a, w.t, false));
	alone(w.a, go_on(w.a, w.t, true));
	close_world(&w);
}

/* A range of 256 keys of which 150 are there comes in three answers. */
static void more_than_an_answer(void **state)
{
	const struct vb_table_params lp = line(8);
	uint64_t up[150], down[150];
	struct world w;

	_Static_assert(VB_SCAN_KEYS * 2 < 150, "three answers");
	for (unsigned i = 0; i < 150; i++)
		up[i] = down[149 - i] = i;
	open_line(&w, state, &lp, 1, 150);
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){0, 400, false}, 200, up, 150));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){0, 400, true}, 200, down, 150));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){0, 63, false}, 200, up, 64));
	alone(w.a, gives(w.a, w.t, (struct vb_txn_range){3, 140, false}, 70, up + 3, 70));
	close_world(&w);
}

static void sees_its_own(void **state)
{
	struct world w;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, false}, 99, KEYS(1, 2, 5, 9, 10, 11)));
	must(vb_txn_insert(w.a, w.t, 4, &(struct record){.value = FIRST + 4}));
	must(vb_txn_delete(w.a, w.t, 9));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, false}, 99, KEYS(1, 2, 4, 5, 10, 11)));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, true}, 2, KEYS(11, 10)));
	must(vb_txn_insert(w.a, w.t, 9, &(struct record){.value = FIRST + 9}));
	must(vb_txn_delete(w.a, w.t, 4));
	must(gives(w.a, w.t, (struct vb_txn_range){0, 11, false}, 99, KEYS(1, 2, 5, 9, 10, 11)));
	/* Behind the scan, of what it has given. */
	must(vb_txn_write(w.a, w.t, 5, &(struct record){.value = FIRST + 5, .other = 8}));
	must(vb_txn_insert(w.a, w.t, 30, &(struct record){.value = FIRST + 30}));
	must(vb_txn_delete(w.a, w.t, 40));
	must(vb_txn_commit(w.a));
	tick(w.a);
	alone(w.b, gives(w.b, w.t, (struct vb_txn_range){21, 63, false}, 99, KEYS(21, 22, 23, 30)));
	/* One that is given up leaves nothing, but keys that have no record. */
	must(vb_txn_begin(w.a));
	must(vb_txn_insert(w.a, w.t, 31, &(struct record){.value = FIRST + 31}));
	must(vb_txn_delete(w.a, w.t, 30));
	vb_txn_abort(w.a);
	tick(w.a);
	alone(w.b, gives(w.b, w.t, (struct vb_txn_range){24, 63, true}, 99, KEYS(30)));
	close_world(&w);
}

/* A new server makes the order from what is there.  That it is another is learned by a call to each that is
 * not answered. */
static void survives_its_server(void **state)
{
	static const struct vb_txn_range upper = {12, 63, false};
	int err = -VB_EPEERGONE;
	struct world w;

	open_keys(&w, state);
	alone(w.a, add(w.a, w.t, 33));
	alone(w.a, vb_txn_delete(w.a, w.t, 23));
	stop_servers(&w);
	start_servers(&w);
	assert_int_equal(w.t->node[0].order->keys + w.t->node[1].order->keys,
			 w.t->node[0].index.header->tuples + w.t->node[1].index.header->tuples);
	vb_log_mute();
	for (unsigned i = 0; i <= NODES && err == -VB_EPEERGONE; i++) {
		must(vb_txn_begin(w.b));
		err = gives(w.b, w.t, upper, 99, KEYS(20, 21, 22, 33, 40));
	}
	vb_log_unmute();
	must(err);
	must(vb_txn_commit(w.b));
	close_world(&w);
}

/* An owner died when it had taken a tuple for key 25 and not put it in the index: the next makes another. */
static void owner_died_over_a_key(void **state)
{
	static const struct vb_txn_range four = {24, 27, false};
	struct vb_table_node *n;
	int err = -VB_EPEERGONE;
	struct world w;
	char *tuple;

	open_keys(&w, state);
	stop_servers(&w);
	n = &w.t->node[vb_table_node(w.t, 25)];
	tuple = n->index.segment + vb_addr_offset(n->header) + sizeof(struct vb_table_header) +
		n->index.header->tuples * w.t->layout.stride;
	vb_tuple_set_word(tuple, VB_TUPLE_KEY_AT, 25);
	n->index.header->tuples++;
	start_servers(&w);
	vb_log_mute();
	for (unsigned i = 0; i <= NODES && err == -VB_EPEERGONE; i++) {
		must(vb_txn_begin(w.a));
		err = gives(w.a, w.t, all_keys, 99, keys, N_KEYS);
	}
	vb_log_unmute();
	must(err);
	must(vb_txn_commit(w.a));
	tick(w.a);
	alone(w.a, add(w.a, w.t, 25));
	alone(w.a, add(w.a, w.t, 26));
	alone(w.a, gives(w.a, w.t, four, 99, KEYS(25, 26)));
	close_world(&w);
}

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

/* ---- what a scan touches ---- */

/* Three records lie in two ranges; B holds the third. */
static void no_more_than_needed(void **state)
{
	const struct vb_txn_params patient = {.timeout_ns = LONG_NS};
	struct world w;

	open_keys(&w, state);
	must(vb_txn_begin(w.b));
	must(add(w.b, w.t, 8));
	tick(w.a);
	must(vb_txn_begin_with(w.a, &patient));
	must(gives(w.a, w.t, all_keys, 3, KEYS(1, 2, 5)));
	assert_int_equal(w.a->txn.n, 2 + 3);
	must(vb_txn_commit(w.a));
	vb_txn_abort(w.b);
	close_world(&w);
}

static uint64_t scan_ns(struct vb_coordinator *me, struct vb_table *t, unsigned room)
{
	uint64_t begin;

	must(vb_txn_begin(me));
	begin = vb_ep_now(me->ep);
	must(gives(me, t, (struct vb_txn_range){0, 63, false}, room, KEYS(63)));
	begin = vb_ep_now(me->ep) - begin;
	must(vb_txn_commit(me));
	tick(me);
	return begin;
}

/* Room for one and 63 keys that have none: not one after the other. */
static void room_for_one(void **state)
{
	const struct vb_table_params lp = line(6);
	uint64_t one, many;
	struct world w;

	if (strcmp(fabric_of(state), "sim") != 0)
		return;
	open_line(&w, state, &lp, 1, 64);
	for (uint64_t key = 0; key < 63; key++)
		alone(w.a, vb_txn_delete(w.a, w.t, key));
	(void)scan_ns(w.a, w.t, 64);
	many = scan_ns(w.a, w.t, 64);
	one = scan_ns(w.a, w.t, 1);
	assert_in_range(one, 1, 3 * many);
	close_world(&w);
}

static void snapshots_count_no_ranges(void **state)
{
	const struct vb_txn_params p = {.isolation = VB_SNAPSHOT};
	const struct kind *k = *state;
	struct world w;

	if (!vb_cc_offers(k->ops, VB_SNAPSHOT))
		return;
	open_keys(&w, state);
	must(vb_txn_begin_with(w.a, &p));
	must(gives(w.a, w.t, all_keys, 3, KEYS(1, 2, 5)));
	assert_int_equal(w.a->txn.n, 3);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* More records are taken from the front than a transaction may read. */
static void queue(void **state)
{
	struct vb_txn_range rest = {0, UINT64_MAX, false};
	const struct vb_table_params lp = line(6);
	struct vb_txn_row row[1];
	struct world w;
	unsigned n;

	if (strcmp(fabric_of(state), "sim") != 0)
		return;
	open_line(&w, state, &lp, 1, LINE_ITEMS + 10);
	for (uint64_t key = 0; key < LINE_ITEMS; key++) {
		must(vb_txn_begin(w.a));
		must(vb_txn_scan(w.a, w.t, &rest, row, 1, &n));
		assert_true(n == 1 && row[0].key == key);
		must(vb_txn_delete(w.a, w.t, key));
		must(vb_txn_commit(w.a));
		tick(w.a);
		rest.least = key + 1;
	}
	alone(w.a, gives(w.a, w.t, rest, 1, KEYS(LINE_ITEMS)));
	must(vb_txn_begin(w.a));
	rest.least = 0;
	refused(vb_txn_scan(w.a, w.t, &rest, row, 1, &n), -E2BIG);
	close_world(&w);
}

/* ---- what is refused ---- */

static void not_ordered(void **state)
{
	struct vb_txn_row row[4];
	struct vb_table *plain;
	struct world w;
	unsigned n;

	open_keys(&w, state);
	must(vb_table_open(w.db, &usual_table, &plain));
	must(vb_txn_begin(w.a));
	refused(vb_txn_scan(w.a, plain, &all_keys, row, 4, &n), -EINVAL);
	must(gives(w.a, w.t, all_keys, 1, KEYS(1)));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static void too_wide(void **state)
{
	const struct vb_txn_range wide = {0, UINT64_MAX, false};
	struct vb_txn_row row[32];
	unsigned n;
	struct world w;

	open_keys(&w, state);
	must(vb_txn_begin(w.a));
	refused(vb_txn_scan(w.a, w.t, &wide, row, 32, &n), -E2BIG);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	assert_int_equal(vb_txn_scan(w.a, w.t, &all_keys, row, 32, &n), -EAGAIN);
	/* As far as it needs to go. */
	alone(w.a, gives(w.a, w.t, wide, N_KEYS, keys, N_KEYS));
	close_world(&w);
}

static void no_room_for_ranges(void **state)
{
	struct vb_table_params lp = line(1);
	struct world w;
	int err = 0;

	lp.ranges = 1;
	open_line(&w, state, &lp, 1, 4);
	vb_log_mute();
	for (uint64_t key = 10; key < LINE_RECORDS && err == 0; key += 2) {
		must(vb_txn_begin(w.a));
		err = add(w.a, w.t, key);
		err = err == 0 ? vb_txn_commit(w.a) : err;
	}
	vb_log_unmute();
	assert_int_equal(err, -ENOSPC);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	close_world(&w);
}

static void no_memory_for_order(void **state)
{
	static const struct vb_txn_range four = {0, 3, false};
	const struct vb_table_params lp = line(8);
	struct vb_txn_row row[4];
	struct world w;
	unsigned n;

	open_line(&w, state, &lp, 1, 4);
	alone(w.a, gives(w.a, w.t, four, 4, KEYS(0, 1, 2, 3)));
	w.t->node[0].order->bytes_max = vb_ordered_bytes(w.t->node[0].order);
	for (uint64_t key = 4; key < 256; key++)
		must(vb_table_load(w.t, key, &(struct record){.value = FIRST}));
	must(vb_txn_begin(w.a));
	refused(vb_txn_scan(w.a, w.t, &four, row, 4, &n), -ENOSPC);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_MISUSE);
	/* Nothing of it is half there. */
	w.t->node[0].order->bytes_max = 0;
	alone(w.a, gives(w.a, w.t, four, 4, KEYS(0, 1, 2, 3)));
	close_world(&w);
}

static void parameters(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct vb_table_params lp = line(2), plain = usual_table;
	struct vb_table *t;
	struct world w;

	open_keys(&w, state);
	/* Both tables, on every node. */
	plain.ordered = true;
	assert_true(vb_table_node_bytes(&p, &plain, NODES) >
		    vb_table_node_bytes(&p, &usual_table, NODES));
	lp.name = NULL;
	assert_int_equal(vb_table_node_bytes(&p, &lp, NODES),
			 vb_table_node_bytes(&p, (struct vb_table_params[1]){line(2)}, NODES));
	lp = line(2);
	plain.ordered = false;
	plain.range_shift = 2;
	refused(vb_table_open(w.db, &plain, &t), -EINVAL);
	plain.range_shift = 0;
	plain.ranges = 2;
	refused(vb_table_open(w.db, &plain, &t), -EINVAL);
	lp.range_shift = 33;
	lp.name = "other";
	refused(vb_table_open(w.db, &lp, &t), -EINVAL);
	lp = line(2);
	lp.name = "a name of twenty-five let";
	refused(vb_table_open(w.db, &lp, &t), -EINVAL);
	lp.name = NULL;
	refused(vb_table_open(w.db, &lp, &t), -EINVAL);
	/* With one character less; 64 keys to a range, which lie on one node. */
	lp = line(0);
	lp.name = "a name of twenty-four le";
	must(vb_table_open(w.db, &lp, &t));
	for (uint64_t key = 0; key < 256; key++)
		assert_int_equal(vb_table_node(t, key), key / 64 % NODES);
	lp.name = "by the top";
	lp.partition = VB_PARTITION_TOP16;
	must(vb_table_open(w.db, &lp, &t));
	assert_int_equal(vb_table_node(t, 1ull << 48), 1);
	assert_int_equal(vb_table_node(t, 2ull << 48 | 77), 0);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"gives what is there", gives_what_is_there},
		{"prefixes", prefixes},
		{"goes on behind the last", goes_on_behind},
		{"more keys than an answer has", more_than_an_answer},
		{"sees its own inserts and deletes", sees_its_own},
		{"survives its server", survives_its_server},
		{"an owner died over a key", owner_died_over_a_key},
		{"no phantoms", no_phantoms},
		{"stays as it was", stays_as_it_was},
		{"phantoms at weak levels", phantoms_at_weak_levels},
		{"declared and deleted", declared_and_deleted},
		{"declared absent", declared_absent},
		{"a scan is of one moment", scan_of_one_moment},
		{"inserts beside scans", inserts_beside_scans},
		{"a refused insert", refused_insert},
		{"no more than needed", no_more_than_needed},
		{"room for one", room_for_one},
		{"snapshots count no ranges", snapshots_count_no_ranges},
		{"a queue", queue},
		{"a table that is not ordered", not_ordered},
		{"too wide", too_wide},
		{"no room for ranges", no_room_for_ranges},
		{"no memory for the order", no_memory_for_order},
		{"parameters", parameters},
	};
	static const char *const fabrics[] = {"shm", "sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX + 1];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: scans", tests, n, NULL, NULL);
}
