/* SPDX-License-Identifier: Apache-2.0 */
/* A value that is put is put in one, whatever others do meanwhile.  The verbs of A are the fabric's, and B
 * comes in between. */
#include "txn_api.h"

#include "cc/protocols.h"

static const struct kind kinds_here[] = {
	{&vb_cc_no_wait, NULL, "shm"},      {&vb_cc_no_wait_sx, NULL, "shm"},
	{&vb_cc_bounded_wait, NULL, "shm"}, {&vb_cc_bounded_wait_sx, NULL, "shm"},
	{&vb_cc_wait_die, NULL, "shm"},
};

static struct {
	struct world *w;
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
} between;

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
	char value[40], got[40];
	struct world w;
	uint32_t bytes;

	memset(value, 'a', sizeof(value));
	for (unsigned level = 0; level < VB_ISOLATIONS; level++) {
		const struct vb_txn_params p = {.isolation = (enum vb_isolation)level};

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

int main(void)
{
	static const struct case_for_all cases[] = {
		{"a put is one call", put_is_one_call},
	};
	static struct CMUnitTest tests[VB_ARRAY_SIZE(kinds_here) * VB_ARRAY_SIZE(cases)];
	size_t n = 0;

	for (size_t i = 0; i < VB_ARRAY_SIZE(kinds_here); i++)
		for (size_t j = 0; j < VB_ARRAY_SIZE(cases); j++, n++) {
			snprintf(test_names[n], sizeof(test_names[n]), "%s: %s",
				 kinds_here[i].ops->name, cases[j].name);
			tests[n] = (struct CMUnitTest){.name = test_names[n],
						       .test_func = cases[j].run,
						       .initial_state = (void *)&kinds_here[i]};
		}
	return _cmocka_run_group_tests("transactions: what is put is whole", tests, n, NULL, NULL);
}
