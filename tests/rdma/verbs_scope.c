/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Why a host's own words are reached through its card: most cards' atomics are atomic only among
 * themselves.  A thread that takes the shortcut and adds with the CPU while the card adds to the
 * same word loses updates, and this test sees it; the same two adders through the fabric lose none.
 */
#include <pthread.h>

#include "verbs_test.h"

#define ADDS     1000u
#define ROUNDS   60u
#define BATCH    16u
#define NODE_MIB (1u << 20)

struct adder {
	struct vb_fabric *f;
	vb_addr at;
	uint64_t *word;
	uint64_t added;
	bool stop;
	int err;
};

static void *add_by_cpu(void *arg)
{
	struct adder *a = arg;

	while (!__atomic_load_n(&a->stop, __ATOMIC_ACQUIRE)) {
		__atomic_fetch_add(a->word, 1, __ATOMIC_SEQ_CST);
		a->added++;
	}
	return NULL;
}

static int add_by_card(struct vb_fabric *f, vb_addr at, unsigned n)
{
	struct vb_verb v[BATCH];
	struct vb_ep *ep;
	int err = vb_ep_open(f, 0, &ep);

	if (err != 0)
		return err;
	for (unsigned done = 0; done < n && err == 0; done += BATCH) {
		for (unsigned i = 0; i < BATCH; i++)
			v[i] = (struct vb_verb){.op = VB_OP_FAA64,
						.flags = VB_SIGNALLED,
						.addr = at,
						.compare.lo = 1};
		err = vb_post_wait(ep, v, BATCH);
	}
	vb_ep_close(ep);
	return err;
}

static void *add_by_fabric(void *arg)
{
	struct adder *a = arg;

	a->err = add_by_card(a->f, a->at, ADDS);
	vb_sched_destroy(vb_sched_self());
	return NULL;
}

static void begin(struct adder *a)
{
	struct vb_fabric_params p = {.fabric = "verbs", .nodes = 1, .node_bytes = NODE_MIB};
	bool fresh;

	verbs_test_need_device();
	*a = (struct adder){0};
	p.options = verbs_test_options(false, "");
	assert_int_equal(vb_fabric_open(&p, &a->f), 0);
	assert_int_equal(vb_region(a->f, 0, "word", 64, &a->at, &fresh), 0);
	a->word = vb_local(a->f, a->at, 64);
	assert_non_null(a->word);
}

/* The word as everybody sees it at the end. */
static uint64_t word(struct adder *a)
{
	struct vb_ep *ep;
	uint64_t v = 0;

	assert_int_equal(vb_ep_open(a->f, 0, &ep), 0);
	assert_int_equal(vb_read64(ep, a->at, &v), 0);
	vb_ep_close(ep);
	return v;
}

static void test_shortcut_loses(void **state)
{
	uint64_t expected = 0, lost = 0;
	struct adder a;

	(void)state;
	begin(&a);
	if (a.f->caps.flags & VB_CAP_CPU_ATOMICS) {
		vb_fabric_close(a.f);
		print_message("this device's atomics are the CPU's too\n");
		skip();
	}
	for (unsigned round = 0; round < ROUNDS && lost == 0; round++) {
		pthread_t thread;

		a.stop = false;
		a.added = 0;
		assert_int_equal(pthread_create(&thread, NULL, add_by_cpu, &a), 0);
		a.err = add_by_card(a.f, a.at, ADDS / BATCH * BATCH);
		__atomic_store_n(&a.stop, true, __ATOMIC_RELEASE);
		pthread_join(thread, NULL);
		assert_int_equal(a.err, 0);
		expected += a.added + ADDS / BATCH * BATCH;
		lost = expected - word(&a);
	}
	print_message("%llu of %llu updates were lost\n", (unsigned long long)lost,
		      (unsigned long long)expected);
	assert_true(lost > 0);
	vb_fabric_close(a.f);
}

static void test_fabric_loses_none(void **state)
{
	const unsigned each = (ADDS + BATCH - 1) / BATCH * BATCH;
	struct adder a;
	pthread_t thread;

	(void)state;
	begin(&a);
	assert_int_equal(pthread_create(&thread, NULL, add_by_fabric, &a), 0);
	assert_int_equal(add_by_card(a.f, a.at, ADDS), 0);
	pthread_join(thread, NULL);
	assert_int_equal(a.err, 0);
	assert_int_equal(word(&a), 2 * each);
	vb_fabric_close(a.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shortcut_loses),
		cmocka_unit_test(test_fabric_loses_none),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
