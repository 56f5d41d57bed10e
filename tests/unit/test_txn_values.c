/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Values of any size: against a model, for every protocol, one-sided and by RPC; that a value is
 * never half of one and half of another; and what is refused.
 */
#include "txn_api.h"

#include "base/rng.h"

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
	close_world(&w);
	vb_values_close(v);
}

/* A puts another value while B is between the record and the pieces: B gets one of the two or
 * aborts.  Who waits for the other, in the one thread that they share, waits for its lease. */
static void never_half(void **state)
{
	unsigned char one[BYTES_MAX], two[BYTES_MAX], is[BYTES_MAX];
	struct vb_values *v;
	struct world w;
	uint32_t bytes;
	int err;

	open_with_values(&w, state, SHORT_NS, &v);
	write_value(one, BYTES_MAX, 1);
	write_value(two, 100, 101);
	alone(w.a, vb_values_put(w.a, v, 3, one, BYTES_MAX));
	must(vb_txn_begin(w.b));
	err = vb_values_get(w.b, v, 3, is, 10, &bytes);
	must(vb_txn_begin(w.a));
	if (vb_values_put(w.a, v, 3, two, 100) == 0)
		(void)vb_txn_commit(w.a);
	else
		vb_txn_abort(w.a);
	if (err == 0)
		err = vb_values_get(w.b, v, 3, is, sizeof(is), &bytes);
	if (err == 0)
		err = vb_txn_commit(w.b);
	if (err == 0) {
		assert_true(bytes == BYTES_MAX || bytes == 100);
		assert_memory_equal(is, bytes == 100 ? two : one, bytes);
	} else {
		assert_int_equal(err, -EAGAIN);
	}
	close_world(&w);
	vb_values_close(v);
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
	struct vb_values *first, *none;
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
	must(vb_values_open(db, &p, &none));
	vb_values_close(none);
	vb_values_close(first);
	vb_db_close(db);
	close_world(&w);
}

static void what_is_refused(void **state)
{
	struct vb_values_params p = {.name = "more", .bytes_max = 100, .records = 8};
	unsigned char value[BYTES_MAX + 1] = {0};
	struct vb_values *v, *none;
	struct world w;

	open_with_values(&w, state, LONG_NS, &v);
	p.bytes_max = 0;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.bytes_max = (1u << 20) + 1;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.bytes_max = 100;
	p.name = "a name of more than 26 bytes";
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	p.name = "more";
	p.partition = VB_PARTITION_TOP16;
	refused(vb_values_open(w.db, &p, &none), -EINVAL);
	must(vb_txn_begin(w.a));
	refused(vb_values_put(w.a, v, 1, value, BYTES_MAX + 1), -E2BIG);
	refused(vb_values_put(w.a, v, UINT64_MAX, value, 1), -EINVAL);
	must(vb_values_put(w.a, v, 1, value, BYTES_MAX));
	must(vb_txn_commit(w.a));
	close_world(&w);
	vb_values_close(v);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"against a model", against_a_model},
		{"never half of one", never_half},
		{"what is refused", what_is_refused},
		{"another bytes_max", another_bytes_max},
	};
	static const char *const fabrics[] = {"shm", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("values", tests, n, NULL, NULL);
}
