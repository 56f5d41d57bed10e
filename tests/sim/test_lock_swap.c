/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The way into a queue where there are no masked atomics: the swap is a CAS loop, and others may change
 * the word before each of its CASes.  A deadline, or who cancels the task, ends that; a try gives up.
 */
#include "sim_test.h"

#include <errno.h>

#include "base/log.h"
#include "lock/lock.h"
#include "lock/rma_rw/rma_rw.h"

#define PATIENCE_NS 100000ull
#define CANCEL_NS   50000ull
/* A CAS that is under way when time is over. */
#define SLACK_NS 10000ull

struct scene {
	struct vb_lock_space *space;
	unsigned offset;  /* of the word in its lock's entry */
	uint64_t resting; /* what it holds in the end */
	unsigned waiting; /* who has not given up yet */
	unsigned done;
};

static struct vb_lock_client *client(struct scene *s, uint16_t node)
{
	struct vb_lock_client *me;

	assert_int_equal(vb_lock_client_open(s->space, node, &me), 0);
	return me;
}

/* Changes the word as fast as it can while anybody waits: between any READ and any CAS. */
static void restless_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 0);
	vb_addr at = vb_lock_entry(s->space, 0) + s->offset;

	for (uint64_t v = 1; s->waiting > 0; v++)
		assert_int_equal(vb_write(me->ep, at, &v, sizeof(v)), 0);
	assert_int_equal(vb_write(me->ep, at, &s->resting, sizeof(s->resting)), 0);
	vb_lock_client_close(me);
	s->done++;
}

static void gives_up(struct scene *s, uint16_t node, uint64_t timeout_ns, int expect)
{
	struct vb_lock_client *me = client(s, node);
	uint64_t due = expect == -ECANCELED ? CANCEL_NS : vb_ep_now(me->ep) + timeout_ns;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, timeout_ns, &g), expect);
	assert_in_range(vb_ep_now(me->ep), due, due + SLACK_NS);
	assert_true(me->ep->count[VB_OP_CAS64] > 10);
	s->waiting--;
	vb_lock_client_close(me);
	s->done++;
}

static void hurried_body(void *arg)
{
	gives_up(arg, 1, PATIENCE_NS, -ETIMEDOUT);
}

static void cancelled_body(void *arg)
{
	gives_up(arg, 2, VB_FOREVER_NS, -ECANCELED);
}

/* The lock is as good as new: who gave up has left nothing, or a place that its client handed on. */
static void comes_later_body(void *arg)
{
	struct scene *s = arg;
	struct vb_lock_client *me = client(s, 1);
	struct vb_grant g;

	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE_NS, &g), 0);
		assert_int_equal(vb_lock_release(me, &g), 0);
	}
	vb_lock_client_close(me);
	s->done++;
}

static void no_way_in(const char *lock, const char *options, unsigned offset)
{
	struct vb_lock_space_params p = {
		.lock = lock, .options = options, .locks = 1, .fencing = false};
	struct vb_fabric *f = cluster("profile=plain64", 3, 1);
	struct scene s = {.offset = offset, .waiting = 2};
	struct vb_task *t;

	assert_int_equal(vb_lock_space_open(f, &p, &s.space), 0);
	spawn(restless_body, &s);
	spawn(hurried_body, &s);
	assert_int_equal(vb_task_spawn(vb_sched_self(), cancelled_body, &s, NULL, &t), 0);
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, CANCEL_NS), -ETIMEDOUT);
	vb_task_cancel(t);
	run_all();
	assert_int_equal(s.done, 3);
	spawn(comes_later_body, &s);
	run_all();
	assert_int_equal(s.done, 4);
	vb_lock_space_close(s.space);
	vb_fabric_close(f);
	vb_sched_destroy(vb_sched_self());
}

static void test_mcs(void **state)
{
	no_way_in("mcs", NULL, 0);
}

/* The tail of group 1. */
static void test_rma_rw_group(void **state)
{
	no_way_in("rma-rw", "group=3", 8);
}

/* The root: who is first in its group has a place, and goes on for whoever gave up. */
static void test_rma_rw_root(void **state)
{
	no_way_in("rma-rw", "group=1", 0);
}

/* ---- the WRITE before the swap ---- */

#define OTHERS 3u
#define ROUNDS 601u

static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	struct vb_fabric *f;
	bool lost;
} link_;

/* Its first WRITE is given up early, and lands late. */
static int lose_a_write(struct vb_ep *ep, struct vb_batch *batch)
{
	int err;

	if (link_.lost || batch->verbs[0].op != VB_OP_WRITE)
		return link_.real->post(ep, batch);
	link_.lost = true;
	vb_sim_set_faults(link_.f,
			  &(struct vb_sim_faults){.early = 1.0, .lose_ops = 1u << VB_OP_WRITE});
	err = link_.real->post(ep, batch);
	vb_sim_set_faults(link_.f, &(struct vb_sim_faults){0});
	return err;
}

struct one {
	struct vb_lock_client *me;
	uint64_t at_ns, timeout_ns;
	unsigned rounds;
	int err; /* -1: it has not come to its end */
};

static void one_body(void *arg)
{
	struct one *o = arg;
	struct vb_grant g;
	int err = 0;

	vb_ep_sleep_until(o->me->ep, o->at_ns);
	for (unsigned i = 0; i < o->rounds && err == 0; i++) {
		err = vb_lock_acquire(o->me, 1, VB_EXCLUSIVE, o->timeout_ns, &g);
		if (err == 0)
			err = vb_ep_sleep(o->me->ep, 500);
		if (err == 0)
			err = vb_lock_release(o->me, &g);
	}
	o->err = err;
}

/*
 * rma-rw clears its group's `next` on the way to the root.  That WRITE is lost, the deadline ends the swap
 * behind it, and the place's proxy goes the same way again: the WRITE must not land over the name that the
 * group behind has written then.
 */
static bool clears_late(uint64_t seed)
{
	const struct vb_lock_space_params p = {
		.lock = "rma-rw", .options = "successor_wait=20ms", .locks = 4};
	struct vb_fabric *f = cluster("profile=plain64", 2 + OTHERS + 1, seed);
	struct one hurried, other[OTHERS], last,
		*all[] = {&hurried, &other[0], &other[1], &other[2], &last};
	struct vb_lock_space *space;

	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(all); i++) {
		*all[i] = (struct one){.timeout_ns = VB_FOREVER_NS, .rounds = 1, .err = -1};
		assert_int_equal(vb_lock_client_open(space, (uint16_t)(1 + i), &all[i]->me), 0);
	}
	hurried.timeout_ns = 3000;
	hurried.at_ns = vb_lock_now(hurried.me) + 20000 + seed * 137 % 20000;
	link_.f = f;
	link_.real = hurried.me->ep->ops;
	link_.ops = *link_.real;
	link_.ops.post = lose_a_write;
	link_.lost = false;
	hurried.me->ep->ops = &link_.ops;
	for (unsigned i = 0; i < OTHERS; i++) {
		other[i].rounds = ROUNDS;
		spawn(one_body, &other[i]);
	}
	spawn(one_body, &hurried);
	(void)vb_sched_run(vb_sched_self(), NULL, now() + 60000000);
	spawn(one_body, &last);
	(void)vb_sched_run(vb_sched_self(), NULL, now() + 60000000);
	for (unsigned i = 1; i < VB_ARRAY_SIZE(all) && hurried.err == -ETIMEDOUT; i++)
		assert_int_equal(all[i]->err, 0);
	hurried.me->ep->ops = link_.real;
	vb_sched_kill_all(vb_sched_self());
	for (unsigned i = 0; i < VB_ARRAY_SIZE(all); i++)
		vb_lock_client_bury(all[i]->me);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	vb_sched_destroy(vb_sched_self());
	return hurried.err == -ETIMEDOUT && link_.lost;
}

static void test_rma_rw_clears_late(void **state)
{
	unsigned n = 0;
	char said[8192];

	vb_log_capture_begin(said, sizeof(said));
	for (uint64_t seed = 200; seed < 230; seed++)
		n += clears_late(seed);
	vb_log_capture_end();
	assert_true(n > 5);
}

/* ---- a try that others go before ---- */

static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	struct vb_lock_client *other;
	unsigned comes, cases;
} crowd;

/* Somebody else comes and goes between the look and the CAS. */
static int cas_behind_another(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value,
			      uint64_t *old)
{
	struct vb_grant g;
	int err;

	if (crowd.comes > 0) {
		crowd.comes--;
		assert_int_equal(vb_lock_acquire(crowd.other, 0, VB_SHARED, VB_FOREVER_NS, &g), 0);
		assert_int_equal(vb_lock_release(crowd.other, &g), 0);
	}
	crowd.cases++;
	ep->ops = crowd.real;
	err = vb_cas64(ep, a, expect, value, old);
	ep->ops = &crowd.ops;
	return err;
}

/* What a reader's try came to that lost so often, and after how many verbs. */
static int try_behind(unsigned others, unsigned *verbs)
{
	struct vb_lock_space_params p = {.lock = "rma-rw", .options = "t_r=1", .locks = 1};
	struct scene s = {0};
	struct vb_fabric *f = cluster("profile=cx5", 2, 1);
	struct vb_lock_client *me;
	struct vb_grant g;
	uint64_t reads;
	int err;

	assert_int_equal(vb_lock_space_open(f, &p, &s.space), 0);
	me = client(&s, 1);
	crowd.other = client(&s, 1);
	crowd.comes = others;
	crowd.cases = 0;
	crowd.real = me->ep->ops;
	crowd.ops = *crowd.real;
	crowd.ops.cas64 = cas_behind_another;
	me->ep->ops = &crowd.ops;
	reads = me->ep->count[VB_OP_READ];
	err = vb_lock_try(me, 0, VB_SHARED, &g);
	*verbs = crowd.cases + (unsigned)(me->ep->count[VB_OP_READ] - reads);
	me->ep->ops = crowd.real;
	if (err == 0)
		assert_int_equal(vb_lock_release(me, &g), 0);
	vb_lock_client_close(me);
	vb_lock_client_close(crowd.other);
	vb_lock_space_close(s.space);
	vb_fabric_close(f);
	vb_sched_destroy(vb_sched_self());
	return err;
}

/* Each loss is another's success: after a few it is told that the lock is not to be had, and has not taken
 * more verbs than it may. */
static void test_rma_rw_try_loses(void **state)
{
	unsigned before = 0, verbs;

	for (unsigned others = 0; others < 4; others++) {
		assert_int_equal(try_behind(others, &verbs), 0);
		assert_in_range(verbs, before + 1, RW_TRY_VERBS);
		before = verbs;
	}
	assert_int_equal(try_behind(100, &verbs), -EAGAIN);
	assert_int_equal(crowd.comes, 96);
	assert_in_range(verbs, before, RW_TRY_VERBS);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_mcs),
		cmocka_unit_test(test_rma_rw_group),
		cmocka_unit_test(test_rma_rw_root),
		cmocka_unit_test(test_rma_rw_clears_late),
		cmocka_unit_test(test_rma_rw_try_loses),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
