/* SPDX-License-Identifier: Apache-2.0 */
/* What hooks do besides passing things on: numbers, hashes, faults; that deferring does reorder. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/hook/hooks.h"

#define TRIALS 20000

static struct vb_fabric *f;
static struct vb_ep *ep;
static vb_addr a;

static struct vb_fabric *open_lower(const char *fabric)
{
	struct vb_fabric_params p = {.fabric = fabric, .node_bytes = 1 << 16, .endpoints = 8};
	struct vb_fabric *lower;

	assert_int_equal(vb_fabric_open(&p, &lower), 0);
	return lower;
}

static void ready(void)
{
	bool fresh;

	assert_int_equal(vb_region(f, 0, "words", 1024, &a, &fresh), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
}

static int teardown(void **state)
{
	(void)state;
	vb_ep_close(ep);
	vb_fabric_close(f);
	return 0;
}

static uint64_t word(vb_addr at)
{
	uint64_t v;

	assert_int_equal(vb_read64(ep, at, &v), 0);
	return v;
}

/* ---- count ---- */

static void count_on(const char *fabric)
{
	struct vb_count_totals t;
	struct vb_verb v[2] = {
		{.op = VB_OP_WRITE, .flags = VB_SIGNALLED, .addr = a, .len = 24},
		{.op = VB_OP_READ, .flags = VB_SIGNALLED, .len = 5},
	};
	uint64_t old, buf[3] = {0};
	struct vb_msg m = {.len = 0};

	assert_int_equal(vb_hook_count(open_lower(fabric), &f), 0);
	ready();
	v[0].addr = a;
	v[0].buf = buf;
	v[1].addr = vb_addr_make(0, f->node_bytes);
	v[1].buf = buf;
	assert_int_equal(vb_faa64(ep, a, 1, &old), 0);
	assert_int_equal(vb_faa64(ep, a + 4, 1, &old), -EINVAL);
	assert_int_equal(vb_post_wait(ep, v, 2), -VB_EACCESS);
	assert_int_equal(vb_send_wait(ep, ep->self, &m), 0);
	vb_hook_count_totals(f, &t);
	assert_int_equal(t.verbs[VB_OP_FAA64], 2);
	assert_int_equal(t.bytes[VB_OP_FAA64], 16);
	assert_int_equal(t.errors[VB_OP_FAA64], 1);
	assert_int_equal(t.verbs[VB_OP_WRITE], 1);
	assert_int_equal(t.bytes[VB_OP_WRITE], 24);
	assert_int_equal(t.errors[VB_OP_WRITE], 0);
	assert_int_equal(t.verbs[VB_OP_READ], 1);
	assert_int_equal(t.errors[VB_OP_READ], 1);
	assert_int_equal(t.bytes[VB_OP_SEND], sizeof(m));
	assert_int_equal(t.batches, 4);
	/* A simulated verb takes time, unless it is refused. */
	assert_int_equal(t.inline_batches, strcmp(fabric, "shm") == 0 ? 4 : 1);
	assert_int_equal(ep->count[VB_OP_FAA64], 2);
}

static void test_count_shm(void **state)
{
	(void)state;
	count_on("shm");
}

static void test_count_sim(void **state)
{
	(void)state;
	count_on("sim");
}

/* ---- trace ---- */

static uint64_t traced_run(const char *fabric, uint64_t add, char **text)
{
	size_t size;
	FILE *to = text != NULL ? open_memstream(text, &size) : NULL;
	uint64_t old, hash;

	assert_int_equal(vb_hook_trace(open_lower(fabric), to, &f), 0);
	ready();
	assert_int_equal(vb_faa64(ep, a, add, &old), 0);
	assert_int_equal(vb_cas64(ep, a, add, 7, &old), 0);
	assert_int_equal(vb_faa64(ep, a + 4, 1, &old), -EINVAL);
	hash = vb_hook_trace_hash(f);
	teardown(NULL);
	if (to != NULL)
		fclose(to);
	return hash;
}

static void trace_on(const char *fabric)
{
	char *text = NULL;
	uint64_t h = traced_run(fabric, 5, &text);

	assert_true(traced_run(fabric, 5, NULL) == h);
	assert_true(traced_run(fabric, 6, NULL) != h);
	assert_non_null(strstr(text, "faa64"));
	assert_non_null(strstr(text, "cas64"));
	assert_non_null(strstr(text, "-> 0x5\n")); /* what the CAS found */
	assert_non_null(strstr(text, vb_strerror(EINVAL)));
	free(text);
}

static void test_trace_shm(void **state)
{
	(void)state;
	trace_on("shm");
}

static void test_trace_sim(void **state)
{
	(void)state;
	trace_on("sim");
}

/* ---- fault ---- */

static void open_fault(double before, double after, double drop)
{
	struct vb_fault_params p = {
		.fail_before = before, .fail_after = after, .drop_send = drop, .seed = 1};

	assert_int_equal(vb_hook_fault(open_lower("shm"), &p, &f), 0);
	ready();
}

static void test_fail_before(void **state)
{
	uint64_t old = 42, *local;

	(void)state;
	open_fault(1, 0, 0);
	local = vb_local(f, a, 8);
	assert_int_equal(vb_faa64(ep, a, 1, &old), -VB_EPEERGONE);
	assert_int_equal(old, 42);
	assert_int_equal(*local, 0);
}

/* Of a batch's verbs for one node: those up to the refused one happen, and none behind it, signalled or not; those
 * for the other node are none of it. */
static void test_refused_in_order(void **state)
{
	const struct vb_fabric_params fp = {
		.fabric = "shm", .nodes = 2, .node_bytes = 1 << 16, .endpoints = 8};
	const struct vb_fault_params p = {.fail_before = 0.2, .seed = 1};
	unsigned refused = 0, between = 0;
	struct vb_fabric *lower;
	uint64_t one = 1;
	vb_addr at[2];
	bool fresh;

	(void)state;
	assert_int_equal(vb_fabric_open(&fp, &lower), 0);
	assert_int_equal(vb_hook_fault(lower, &p, &f), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (uint16_t n = 0; n < 2; n++)
		assert_int_equal(vb_region(f, n, "words", 64, &at[n], &fresh), 0);
	for (unsigned t = 0; t < TRIALS / 20; t++) {
		struct vb_verb v[8];
		bool is[2] = {false, false};

		for (unsigned i = 0; i < 8; i++) {
			uint64_t *word = vb_local(f, at[i % 2] + i / 2 * 8, 8);

			*word = 0;
			v[i] = (struct vb_verb){.op = VB_OP_WRITE,
						.flags = i < 4 || i > 5 ? VB_SIGNALLED : 0,
						.addr = at[i % 2] + i / 2 * 8,
						.buf = &one,
						.len = 8};
		}
		(void)vb_post_wait(ep, v, 8);
		for (unsigned i = 0; i < 8; i++) {
			const uint64_t *word = vb_local(f, at[i % 2] + i / 2 * 8, 8);

			is[i % 2] |= v[i].status == -VB_EPEERGONE;
			assert_int_equal(v[i].status, is[i % 2] ? -VB_EPEERGONE : 0);
			assert_int_equal(*word, !is[i % 2]);
		}
		refused += is[0];
		between += is[0] != is[1];
	}
	assert_true(refused > TRIALS / 80 && between > TRIALS / 100);
}

static void test_fail_after(void **state)
{
	uint64_t old = 42, *local;

	(void)state;
	open_fault(0, 1, 0);
	local = vb_local(f, a, 8);
	assert_int_equal(vb_faa64(ep, a, 1, &old), -VB_EUNKNOWN);
	assert_int_equal(old, 42);
	assert_int_equal(*local, 1);
	assert_int_equal(vb_faa64(ep, a + 4, 1, &old), -EINVAL); /* that one is known */
}

static void test_drop_send(void **state)
{
	struct vb_msg m = {.imm = 1};

	(void)state;
	open_fault(0, 0, 1);
	assert_int_equal(vb_send(ep, ep->self, &m), 0);
	assert_int_equal(vb_ep_recv(ep, &m), -EAGAIN);
	assert_int_equal(vb_send_wait(ep, ep->self, &m), 0); /* signalled ones are told */
	assert_int_equal(vb_ep_recv(ep, &m), 0);
}

/* Chances are about as frequent as they should be, and what is said is what happened. */
static void test_fault_rates(void **state)
{
	unsigned failed = 0, unknown = 0;
	uint64_t old, *local;

	(void)state;
	open_fault(0.2, 0.1, 0);
	local = vb_local(f, a, 8);
	for (unsigned i = 0; i < TRIALS; i++) {
		int err = vb_faa64(ep, a, 1, &old);

		failed += err == -VB_EPEERGONE;
		unknown += err == -VB_EUNKNOWN;
	}
	assert_in_range(failed, TRIALS / 5 - 400, TRIALS / 5 + 400);
	assert_in_range(unknown, TRIALS * 8 / 100 - 300, TRIALS * 8 / 100 + 300);
	assert_int_equal(*local, TRIALS - failed);
}

static void test_fault_needs_inline(void **state)
{
	struct vb_fault_params p = {.seed = 1};
	struct vb_defer_params d = {.chance = 1};
	struct vb_fabric *lower = open_lower("sim"), *hook;

	(void)state;
	assert_int_equal(vb_hook_fault(lower, &p, &hook), -EOPNOTSUPP);
	assert_int_equal(vb_hook_defer(lower, &d, &hook), -EOPNOTSUPP);
	vb_fabric_close(lower);
}

/* ---- defer ---- */

static int setup_defer(void **state)
{
	struct vb_defer_params p = {.chance = 1, .max_delay_ns = 20000, .seed = 9};

	(void)state;
	assert_int_equal(vb_hook_defer(open_lower("shm"), &p, &f), 0);
	ready();
	assert_false(f->caps.flags & VB_CAP_INLINE);
	assert_true(f->caps.verb_bound_ns > p.max_delay_ns);
	return 0;
}

static struct vb_verb rw(enum vb_op op, vb_addr at, void *buf, uint32_t len, uint8_t flags)
{
	return (struct vb_verb){
		.op = op, .flags = VB_SIGNALLED | flags, .addr = at, .buf = buf, .len = len};
}

/* A WRITE overtakes the READ before it: not always, but it does. */
static void test_defer_overtakes(void **state)
{
	unsigned overtaken = 0, trials = 0;

	(void)state;
	for (uint64_t i = 1; i < TRIALS && (overtaken < 5 || overtaken == trials); i++) {
		uint64_t seen = 0;
		struct vb_verb v[] = {rw(VB_OP_READ, a, &seen, 8, 0), rw(VB_OP_WRITE, a, &i, 8, 0)};

		assert_int_equal(vb_post_wait(ep, v, 2), 0);
		assert_true(seen == i || seen == i - 1);
		overtaken += seen == i;
		trials++;
	}
	assert_true(overtaken >= 5 && overtaken < trials);
}

/* An unsignalled WRITE is not there yet when vb_post returns, and is soon. */
static void test_defer_delays(void **state)
{
	uint64_t *local = vb_local(f, a, 8), one = 1, until;
	struct vb_verb v = rw(VB_OP_WRITE, a, &one, 8, 0);
	struct vb_batch b = {.verbs = &v, .n = 1};
	unsigned late = 0;

	(void)state;
	v.flags = 0;
	for (unsigned i = 0; i < 100; i++) {
		__atomic_store_n(local, 0, __ATOMIC_SEQ_CST);
		assert_int_equal(vb_post(ep, &b), 1);
		late += __atomic_load_n(local, __ATOMIC_SEQ_CST) == 0;
		until = vb_ep_now(ep) + 20000000000ull;
		while (__atomic_load_n(local, __ATOMIC_SEQ_CST) == 0 && vb_ep_now(ep) < until)
			assert_int_equal(vb_ep_sleep(ep, 1000), 0);
		assert_int_equal(*local, 1);
	}
	assert_true(late > 50);
}

struct watcher {
	uint64_t *local;
	bool stop;
	unsigned torn, inside;
};

/* Looks at 32 bytes of four equal words whenever it gets to run. */
static void watch_body(void *arg)
{
	struct watcher *w = arg;

	while (!w->stop) {
		uint64_t v[4];

		for (unsigned i = 0; i < 4; i++)
			v[i] = __atomic_load_n(&w->local[i], __ATOMIC_SEQ_CST);
		w->torn += v[0] != v[3];
		w->inside += v[0] != v[1] || v[2] != v[3];
		vb_task_yield();
	}
}

/* A WRITE of 32 bytes is torn, and only in the middle. */
static void test_defer_tears(void **state)
{
	struct watcher w = {.local = vb_local(f, a, 32)};
	struct vb_sched *s = ep->sched;

	(void)state;
	assert_int_equal(vb_task_spawn(s, watch_body, &w, NULL, NULL), 0);
	for (uint64_t i = 1; i < TRIALS && w.torn < 5; i++)
		assert_int_equal(vb_write(ep, a, (uint64_t[]){i, i, i, i}, 32), 0);
	w.stop = true;
	assert_int_equal(vb_sched_run(s, NULL, vb_sched_now(s) + 20000000000ull), 0);
	assert_true(w.torn >= 5);
	assert_int_equal(w.inside, 0);
}

/* The queue's bound: more unsignalled verbs than it holds, and none is lost. */
static void test_defer_bound(void **state)
{
	enum { BATCHES = 40 };
	struct vb_verb v[VB_BATCH_MAX];
	struct vb_batch b = {.verbs = v, .n = VB_BATCH_MAX};

	(void)state;
	for (unsigned i = 0; i < BATCHES; i++) {
		for (unsigned j = 0; j < VB_BATCH_MAX; j++)
			v[j] = (struct vb_verb){.op = VB_OP_FAA64, .addr = a, .compare.lo = 1};
		assert_int_equal(vb_post(ep, &b), 1);
	}
	assert_int_equal(word(a), BATCHES * VB_BATCH_MAX);
}

/* One FAA that waits for its time when its thread goes, and the thread is back HELD_NS later. */
#define HELD_NS 150000000ull

static int held_up(const struct vb_defer_params *p)
{
	struct vb_verb v = {.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .compare.lo = 1};
	struct vb_batch b = {.verbs = &v, .n = 1};
	uint64_t until;

	assert_int_equal(vb_hook_defer(open_lower("shm"), p, &f), 0);
	ready();
	v.addr = a;
	/* One that was due while it was posted is not what is meant. */
	for (unsigned i = 0; i < TRIALS && b.pending == 0; i++) {
		*(uint64_t *)vb_local(f, a, 8) = 0;
		assert_int_equal(vb_post(ep, &b), 1);
	}
	assert_int_equal(b.pending, 1);
	until = vb_clock_ns() + HELD_NS;
	while (vb_clock_ns() < until)
		vb_cpu_relax();
	return vb_wait(ep, &b);
}

/* What is past the bound never happens, and its client is told. */
static void test_defer_late(void **state)
{
	const struct vb_defer_params p = {
		.chance = 1, .max_delay_ns = 20000, .late_ns = 1000000, .seed = 9};

	(void)state;
	assert_int_equal(held_up(&p), -VB_EUNKNOWN);
	assert_int_equal(*(uint64_t *)vb_local(f, a, 8), 0);
}

/* Where no bound is named, a busy machine loses nothing. */
static void test_defer_held_up(void **state)
{
	const struct vb_defer_params p = {.chance = 1, .max_delay_ns = 20000, .seed = 9};

	(void)state;
	assert_int_equal(held_up(&p), 0);
	assert_int_equal(word(a), 1);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_count_shm, teardown),
		cmocka_unit_test_teardown(test_count_sim, teardown),
		cmocka_unit_test(test_trace_shm),
		cmocka_unit_test(test_trace_sim),
		cmocka_unit_test_teardown(test_fail_before, teardown),
		cmocka_unit_test_teardown(test_refused_in_order, teardown),
		cmocka_unit_test_teardown(test_fail_after, teardown),
		cmocka_unit_test_teardown(test_drop_send, teardown),
		cmocka_unit_test_teardown(test_fault_rates, teardown),
		cmocka_unit_test(test_fault_needs_inline),
		cmocka_unit_test_setup_teardown(test_defer_overtakes, setup_defer, teardown),
		cmocka_unit_test_setup_teardown(test_defer_delays, setup_defer, teardown),
		cmocka_unit_test_setup_teardown(test_defer_tears, setup_defer, teardown),
		cmocka_unit_test_setup_teardown(test_defer_bound, setup_defer, teardown),
		cmocka_unit_test_teardown(test_defer_late, teardown),
		cmocka_unit_test_teardown(test_defer_held_up, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
