/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs that are complete when they are posted: which, what may come between two of them, and who dies there. */
#include <errno.h>

#include "sim_test.h"

static struct vb_fabric *near_cluster(const struct vb_sim_near *near, uint64_t seed)
{
	struct vb_fabric *f = cluster(NULL, 2, seed);

	vb_sim_complete_near(f, near);
	return f;
}

/* What vb_post says of a batch of n FAAs, the first to node `at`, the others to the other one. */
static int post(struct vb_ep *ep, uint16_t at, uint16_t n)
{
	struct vb_verb v[2] = {
		{.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = word(at, 0), .compare.lo = 1},
		{.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = word(!at, 0), .compare.lo = 1}};
	struct vb_batch b = {.verbs = v, .n = n};
	int posted = vb_post(ep, &b);

	assert_int_equal(vb_wait(ep, &b), 0);
	return posted;
}

static void test_which(void **state)
{
	static const struct vb_sim_near own = {.all = false}, all = {.all = true};
	struct vb_msg m = {.subject = 1}, got;
	struct vb_fabric *f;
	struct vb_ep *ep, *to;
	uint64_t before;

	(void)state;
	f = near_cluster(&own, 1);
	assert_true(f->caps.flags & VB_CAP_NEAR_INLINE);
	ep = endpoint(f, 1);
	to = endpoint(f, 1);
	before = now();
	assert_int_equal(post(ep, 1, 1), 0);
	assert_int_equal(now(), before);
	assert_int_equal(post(ep, 0, 1), 1);
	assert_int_equal(post(ep, 1, 2), 1);
	assert_true(now() > before);
	assert_int_equal(vb_send(ep, to->self, &m), 0);
	assert_int_equal(vb_ep_recv(to, &got), -EAGAIN);
	vb_ep_close(ep);
	vb_ep_close(to);
	vb_fabric_close(f);

	f = near_cluster(&all, 1);
	assert_true(f->caps.flags & VB_CAP_INLINE);
	ep = endpoint(f, 1);
	to = endpoint(f, 0);
	before = now();
	assert_int_equal(post(ep, 0, 2), 0);
	assert_int_equal(vb_send_wait(ep, to->self, &m), 0);
	assert_int_equal(vb_ep_recv(to, &got), 0);
	assert_int_equal(now(), before);
	vb_ep_close(ep);
	vb_ep_close(to);
	vb_fabric_close(f);
}

static void test_no_room(void **state)
{
	static const struct vb_sim_near full = {.all = true, .full = 0.5};
	struct vb_fabric *f = near_cluster(&full, 1);
	struct vb_ep *ep = endpoint(f, 1), *to = endpoint(f, 0);
	struct vb_msg m = {.subject = 1}, got;
	unsigned sent = 0, received = 0;

	(void)state;
	for (unsigned i = 0; i < 100; i++) {
		int err = vb_send_wait(ep, to->self, &m);

		assert_true(err == 0 || err == -EAGAIN);
		sent += err == 0;
	}
	while (vb_ep_recv(to, &got) == 0)
		received++;
	assert_in_range(sent, 20, 80);
	assert_int_equal(received, sent);
	vb_ep_close(ep);
	vb_ep_close(to);
	vb_fabric_close(f);
}

/* ---- between two ---- */

#define ROUNDS 100u

struct adder {
	struct vb_ep *ep;
	unsigned done;
};

/* One READ and one WRITE: what comes between them is lost. */
static void add(void *arg)
{
	struct adder *a = arg;

	for (unsigned i = 0; i < ROUNDS; i++) {
		uint64_t value;

		assert_int_equal(vb_read64(a->ep, word(0, 0), &value), 0);
		value++;
		assert_int_equal(vb_write(a->ep, word(0, 0), &value, sizeof(value)), 0);
	}
	a->done++;
}

static uint64_t counted(double turn)
{
	const struct vb_sim_near near = {.turn = turn, .turn_max_ns = 1000};
	struct vb_fabric *f = near_cluster(&near, 3);
	struct adder a[2] = {{.ep = endpoint(f, 0)}, {.ep = endpoint(f, 0)}};
	uint64_t value;

	for (unsigned i = 0; i < 2; i++)
		spawn(add, &a[i]);
	run_all();
	assert_int_equal(a[0].done + a[1].done, 2);
	assert_int_equal(vb_read64(a[0].ep, word(0, 0), &value), 0);
	for (unsigned i = 0; i < 2; i++)
		vb_ep_close(a[i].ep);
	vb_fabric_close(f);
	return value;
}

static void test_turns(void **state)
{
	(void)state;
	assert_int_equal(counted(0), 2 * ROUNDS);
	assert_in_range(counted(0.3), ROUNDS, 2 * ROUNDS - 10);
}

/* ---- who dies ---- */

static void post_one(void *arg)
{
	post(arg, 0, 1);
}

/* Before its verb or behind it, and never in the middle. */
static void test_deaths(void **state)
{
	static const struct vb_sim_near own = {.all = false};
	static const struct vb_sim_faults dies = {.die = 1};
	struct vb_fabric *f = near_cluster(&own, 5);
	struct vb_ep *ep[100], *looks = endpoint(f, 0);
	uint64_t landed;

	(void)state;
	vb_sim_set_faults(f, &dies);
	for (unsigned i = 0; i < 100; i++) {
		ep[i] = endpoint(f, 0);
		vb_sim_ep_mortal(ep[i], true);
		spawn(post_one, ep[i]);
	}
	run_all();
	assert_int_equal(vb_read64(looks, word(0, 0), &landed), 0);
	assert_in_range(landed, 20, 80);
	for (unsigned i = 0; i < 100; i++) {
		assert_true(vb_sim_ep_dead(ep[i]));
		vb_ep_close(ep[i]);
	}
	vb_ep_close(looks);
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_which),
		cmocka_unit_test(test_no_room),
		cmocka_unit_test(test_turns),
		cmocka_unit_test(test_deaths),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
