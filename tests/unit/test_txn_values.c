/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of any size: against a model, for every protocol, one-sided and by RPC; that a value is
 * never half of one and half of another; and what is refused.
 */
#include "txn_api.h"

#include "base/rng.h"
#include "txn/db.h"

#define BYTES_MAX 300u
#define KEYS      6
#define ROUNDS    60

static struct vb_values *open_values(struct world *w)
{
	const struct vb_values_params p = {.name = "text",
					   .bytes_max = BYTES_MAX,
					   .inline_bytes = 24,
					   .piece_bytes = 40,
					   .records = 32};
	struct vb_values *v;

	must(vb_values_open(w->db, &p, &v));
	return v;
}

static void open_with_values(struct world *w, void **state, uint64_t lease_ns, struct vb_values **v)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, lease_ns);

	p.items_max = 64;
	p.bytes_max = 4096;
	open_world(w, k->fabric, &p);
	*v = open_values(w);
}

/* Every byte says which value it is of. */
static void write_value(unsigned char *value, uint32_t bytes, unsigned char of)
{
	for (uint32_t i = 0; i < bytes; i++)
		value[i] = (unsigned char)(of + i);
}

struct model {
	bool there;
	uint32_t bytes;
	unsigned char of;
};

static void is_as_the_model(struct world *w, struct vb_values *v, uint64_t key,
			    const struct model *m)
{
	unsigned char is[BYTES_MAX], should[BYTES_MAX];
	uint32_t bytes = 0;
	int err;

	do {
		must(vb_txn_begin(w->b));
		err = vb_values_get(w->b, v, key, is, sizeof(is), &bytes);
		if (err == 0 || err == -ENOENT) {
			int end = vb_txn_commit(w->b);

			err = end != 0 ? end : err;
		}
	} while (err == -EAGAIN);
	assert_int_equal(err, m->there ? 0 : -ENOENT);
	if (!m->there)
		return;
	assert_int_equal(bytes, m->bytes);
	write_value(should, m->bytes, m->of);
	assert_memory_equal(is, should, m->bytes);
}

static void against_a_model(void **state)
{
	struct model model[KEYS] = {0};
	unsigned char value[BYTES_MAX];
	struct vb_values *v;
	struct vb_rng r;
	struct world w;

	open_with_values(&w, state, LONG_NS, &v);
	vb_rng_seed(&r, 1, 1);
	for (unsigned round = 0; round < ROUNDS; round++) {
		uint64_t key = vb_rng_below(&r, KEYS);
		struct model *m = &model[key];
		int err;

		if (vb_rng_chance(&r, 0.25)) {
			do {
				must(vb_txn_begin(w.a));
				err = vb_values_remove(w.a, v, key);
				if (err == 0 || err == -ENOENT) {
					int end = vb_txn_commit(w.a);

					err = end != 0 ? end : err;
				}
			} while (err == -EAGAIN);
			assert_int_equal(err, m->there ? 0 : -ENOENT);
			m->there = false;
		} else {
			*m = (struct model){.there = true,
					    .bytes = (uint32_t)vb_rng_below(&r, BYTES_MAX + 1),
					    .of = (unsigned char)round};
			write_value(value, m->bytes, m->of);
			alone(w.a, vb_values_put(w.a, v, key, value, m->bytes));
		}
		is_as_the_model(&w, v, key, m);
	}
	for (uint64_t key = 0; key < KEYS; key++)
		is_as_the_model(&w, v, key, &model[key]);
	vb_values_close(v);
	close_world(&w);
}

struct half {
	bool put; /* A's value is there */
	int err;  /* of B */
};

/* A puts another value while B is between the record and the pieces: B gets one of the two or
 * aborts. */
static struct half put_in_between(struct world *w, struct vb_values *v)
{
	unsigned char one[BYTES_MAX], two[BYTES_MAX], is[BYTES_MAX];
	struct half h = {0};
	uint32_t bytes;

	write_value(one, BYTES_MAX, 1);
	write_value(two, 100, 101);
	alone(w->a, vb_values_put(w->a, v, 3, one, BYTES_MAX));
	must(vb_txn_begin(w->b));
	h.err = vb_values_get(w->b, v, 3, is, 10, &bytes);
	tick(w->a);
	must(vb_txn_begin(w->a));
	if (vb_values_put(w->a, v, 3, two, 100) == 0)
		h.put = vb_txn_commit(w->a) == 0;
	else
		vb_txn_abort(w->a);
	if (h.err == 0)
		h.err = vb_values_get(w->b, v, 3, is, sizeof(is), &bytes);
	if (h.err == 0)
		h.err = vb_txn_commit(w->b);
	if (h.err != 0) {
		assert_int_equal(h.err, -EAGAIN);
		return h;
	}
	assert_true(bytes == BYTES_MAX || (bytes == 100 && h.put));
	assert_memory_equal(is, bytes == 100 ? two : one, bytes);
	return h;
}

/*
 * Who holds what it has read keeps A out, and gets the value that it had begun with; but where A waits
 * for it (wound-wait: it is the younger), it does so for a whole lease, and B's is over before.  Else
 * A's is there, and B is told, or still gets the versions of its time.  On a machine with other work a lease may be over before that: once in
 * so many rounds it is not.
 */
static void never_half(void **state)
{
	const struct kind *k = *state;
	bool holds = k->ops->caps & VB_CC_READ_LOCKS, reached = false;
	int told = k->ops->slots > 1 || (holds && !(k->ops->caps & VB_CC_STATUS)) ? 0 : -EAGAIN;
	struct vb_values *v;
	struct world w;

	open_with_values(&w, state, SHORT_NS, &v);
	for (unsigned round = 0; round < 50 && !reached; round++) {
		struct half h = put_in_between(&w, v);

		reached = h.put == !holds && h.err == told;
	}
	assert_true(reached);
	vb_values_close(v);
	close_world(&w);
}

/* Whoever opens it with another bytes_max would look for the pieces under other keys. */
static void another_bytes_max(void **state)
{
	const struct kind *k = *state;
	struct vb_values_params p = {.name = "second",
				     .bytes_max = 600,
				     .inline_bytes = 40,
				     .piece_bytes = 64,
				     .records = 32,
				     .pieces = 640};
	struct vb_db_params d = usual_db(k, LONG_NS);
	unsigned char value[500], is[500];
	struct vb_values *first, *none;
	struct vb_coordinator *c;
	uint32_t bytes;
	struct vb_db *db;
	struct vb_table *t;
	struct world w;

	d.items_max = 64;
	d.bytes_max = 4096;
	open_world(&w, k->fabric, &d);
	must(vb_values_open(w.db, &p, &first));
	must(vb_db_open(w.f, &d, &db));
	must(vb_table_open(db, &usual_table, &t));
	p.bytes_max = 1200;
	refused(vb_values_open(db, &p, &none), -EINVAL);
	p.bytes_max = 600;
	write_value(value, sizeof(value), 3);
	alone(w.a, vb_values_put(w.a, first, 7, value, sizeof(value)));
	/* What it has stays there when nobody has it open, for whoever opens it then. */
	vb_values_close(first);
	must(vb_values_open(db, &p, &none));
	must(vb_coordinator_open(db, 1, &c));
	alone(c, vb_values_get(c, none, 7, is, sizeof(is), &bytes));
	assert_int_equal(bytes, sizeof(value));
	assert_memory_equal(is, value, sizeof(value));
	vb_coordinator_close(c);
	vb_values_close(none);
	vb_db_close(db);
	close_world(&w);
}

/* A refused open leaves neither table behind: not its name, its turn, nor its size. */
static void nothing_behind(void **state)
{
	struct vb_values_params p = {.name = "second", .bytes_max = 600, .records = 32};
	struct vb_db_params d = usual_db(*state, LONG_NS);
	struct vb_values *v, *none;
	struct vb_table *t;
	struct world w;
	unsigned before;

	d.items_max = 64;
	d.bytes_max = 4096;
	open_world(&w, fabric_of(state), &d);
	before = w.db->store.n_tables;
	/* The pieces are larger than record_bytes_max; then they do not fit into the segments. */
	p.inline_bytes = 24;
	p.piece_bytes = 80;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	assert_int_equal(w.db->store.n_tables, before);
	p.inline_bytes = 40;
	p.piece_bytes = 64;
	p.pieces = 10000000;
	refused(vb_values_open(w.db, &p, &none), -ENOSPC);
	assert_int_equal(w.db->store.n_tables, before);
	p.pieces = 640;
	must(vb_values_open(w.db, &p, &v));
	assert_int_equal(w.db->store.n_tables, before + 2);
	must(vb_table_open(
		w.db, &(struct vb_table_params){.name = "next", .record_bytes = 8, .records = 8},
		&t));
	vb_values_close(v);
	close_world(&w);
}

static void what_is_refused(void **state)
{
	struct vb_values_params p = {.name = "more", .bytes_max = 100, .records = 8};
	unsigned char value[BYTES_MAX + 1] = {0};
	struct vb_values *v, *none;
	struct world w;
	uint32_t bytes;

	open_with_values(&w, state, LONG_NS, &v);
	p.bytes_max = 0;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.bytes_max = (1u << 20) + 1;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.bytes_max = 100;
	p.name = "a name of twenty-seven char";
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.name = "";
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.name = NULL;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.name = "more";
	p.partition = VB_PARTITION_TOP16;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	must(vb_txn_begin(w.a));
	refused(vb_values_put(w.a, v, 1, value, BYTES_MAX + 1), -E2BIG);
	refused(vb_values_put(w.a, v, UINT64_MAX, value, 1), -EINVAL);
	/* A value has seven pieces at most: those of a larger key would be other keys'. */
	refused(vb_values_put(w.a, v, UINT64_MAX / 7, value, 1), -EINVAL);
	refused(vb_values_get(w.a, v, UINT64_MAX / 7, value, 1, &bytes), -EINVAL);
	refused(vb_values_remove(w.a, v, UINT64_MAX / 7), -EINVAL);
	must(vb_values_put(w.a, v, UINT64_MAX / 7 - 1, value, BYTES_MAX));
	assert_int_equal(vb_values_remove(w.a, v, 9), -ENOENT);
	must(vb_values_put(w.a, v, 1, value, BYTES_MAX));
	must(vb_txn_commit(w.a));
	vb_values_close(v);
	close_world(&w);
}

/* No more than there is room for, in the record or in its pieces; and how long the value is. */
static void a_part(void **state)
{
	static const uint32_t sizes[] = {0, 1, 24, 25, 64, 65, 150, BYTES_MAX};
	unsigned char value[BYTES_MAX], is[BYTES_MAX + 1];
	struct vb_values *v;
	struct world w;

	open_with_values(&w, state, LONG_NS, &v);
	write_value(value, BYTES_MAX, 3);
	alone(w.a, vb_values_put(w.a, v, 7, value, BYTES_MAX));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		uint32_t bytes = 0;

		memset(is, 0xee, sizeof(is));
		alone(w.b, vb_values_get(w.b, v, 7, is, sizes[i], &bytes));
		assert_int_equal(bytes, BYTES_MAX);
		assert_memory_equal(is, value, sizes[i]);
		for (uint32_t k = sizes[i]; k < sizeof(is); k++)
			assert_int_equal(is[k], 0xee);
	}
	vb_values_close(v);
	close_world(&w);
}

static int look_for(struct vb_coordinator *me, struct vb_table *t, uint64_t key, bool *there)
{
	unsigned char piece[64];
	int err = vb_txn_read(me, t, key, piece);

	*there = err == 0;
	return err == -ENOENT ? 0 : err;
}

/* Of all values with small keys. */
static unsigned pieces_there(struct world *w)
{
	struct vb_table *more = w->db->store.table[w->db->store.n_tables - 1];
	unsigned n = 0;

	for (uint64_t key = 0; key < 64; key++) {
		bool there = false;

		alone(w->b, look_for(w->b, more, key, &there));
		n += there;
	}
	return n;
}

/* What a value does not need any more is there for others. */
static void shorter_has_fewer_pieces(void **state)
{
	static const uint32_t sizes[] = {BYTES_MAX, 150, 65, 24};
	unsigned char value[BYTES_MAX];
	unsigned before = 64, now;
	struct vb_values *v;
	struct world w;

	open_with_values(&w, state, LONG_NS, &v);
	write_value(value, BYTES_MAX, 3);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		alone(w.a, vb_values_put(w.a, v, 1, value, sizes[i]));
		now = pieces_there(&w);
		assert_true(now < before);
		before = now;
	}
	assert_int_equal(now, 0);
	vb_values_close(v);
	close_world(&w);
}

/* A value that no transaction could read or write is said where its table is opened. */
static void largest_fits(void **state)
{
	struct vb_values_params p = {.name = "text", .bytes_max = 40 + 3 * 100, .records = 4};
	struct vb_db_params d = usual_db(*state, LONG_NS);
	unsigned char value[440] = {1};
	struct vb_values *v, *none;
	struct world w;

	p.inline_bytes = 40;
	p.piece_bytes = 100;
	d.record_bytes_max = 200;
	d.items_max = 4;
	d.bytes_max = 8 + 40 + 3 * 100;
	open_world(&w, fabric_of(state), &d);
	must(vb_values_open(w.db, &p, &v));
	alone(w.a, vb_values_put(w.a, v, 1, value, p.bytes_max));
	vb_values_close(v);
	p.name = "one record more";
	p.piece_bytes = 75; /* four */
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.name = "one byte more";
	p.piece_bytes = 151; /* two: 8 + 39 + 302 */
	p.inline_bytes = 39;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	close_world(&w);
}

/* What 0 means, and what the database has to have room for. */
static void sizes_of_values(void **state)
{
	struct vb_values_params p = {.name = "a", .bytes_max = 56 + 2 * 1016, .records = 4};
	const struct vb_values_params small = {.name = "e", .bytes_max = 20, .records = 4},
				      short_ = {.name = "f", .bytes_max = 100, .records = 4};
	struct vb_db_params d = usual_db(*state, LONG_NS);
	struct vb_values *v, *none;
	struct world w;

	d.record_bytes_max = 1016;
	d.bytes_max = 4096;
	open_db(&w, fabric_of(state), &d);
	must(vb_values_open(w.db, &p, &v));
	assert_int_equal(vb_table_record_bytes(w.db->store.table[1]), 8 + 56);
	assert_int_equal(vb_table_record_bytes(w.db->store.table[2]), 1016);
	/* As many pieces as all values may need. */
	assert_int_equal(w.db->store.table[2]->asked, 4 * 2 / NODES);
	vb_values_close(v);
	p.name = "b";
	p.inline_bytes = 1008;
	must(vb_values_open(w.db, &p, &v));
	vb_values_close(v);
	p.name = "c";
	p.inline_bytes = 1009; /* with 8 bytes before them one more than record_bytes_max */
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.name = "d";
	p.inline_bytes = 0;
	p.piece_bytes = 1017;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	/* Nobody needs more than the largest value has: no pieces, or one that is shorter. */
	must(vb_values_open(w.db, &small, &v));
	assert_int_equal(vb_table_record_bytes(w.db->store.table[5]), 8 + 20);
	assert_int_equal(w.db->store.n_tables, 6);
	vb_values_close(v);
	must(vb_values_open(w.db, &short_, &v));
	assert_int_equal(vb_table_record_bytes(w.db->store.table[6]), 8 + 56);
	assert_int_equal(vb_table_record_bytes(w.db->store.table[7]), 100 - 56);
	vb_values_close(v);
	close_world(&w);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"a part", a_part},
		{"a shorter value has fewer pieces", shorter_has_fewer_pieces},
		{"sizes", sizes_of_values},
		{"the largest fits", largest_fits},
		{"against a model", against_a_model},
		{"never half of one", never_half},
		{"what is refused", what_is_refused},
		{"another bytes_max", another_bytes_max},
		{"nothing behind", nothing_behind},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("values", tests, n, NULL, NULL);
}
