/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are tried on the thread's own stack: who is told of them, and that the client has no other one meanwhile. */
#include "ring_world.h"

#include "lock/observe.h"

/* ---- who stands behind ---- */

/* No more than fits. */
static void fill(unsigned i)
{
	const struct vb_msg m = {.subject = 8, .tag = 9};
	int err;

	vb_log_mute();
	do
		err = vb_send_wait(w.client[2]->ep, w.client[i]->ep->self, &m);
	while (err == 0);
	vb_log_unmute();
	assert_int_equal(err, -EAGAIN);
}

/* Who has no room for a message is told when it has. */
static void test_no_room(void **state)
{
	int err;

	(void)state;
	open_world("shm", "mcs", 2);
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	assert_int_equal(acquire(1, HOT, VB_EXCLUSIVE), VB_STARTED);
	fill(1);
	vb_log_mute();
	err = release(0, NULL);
	vb_log_unmute();
	assert_true(err == 0 || err == VB_STARTED);
	for (unsigned left = err == 0 ? 1 : 2; left != 0; left--) {
		struct vb_completion done;

		assert_int_equal(vb_ring_wait(w.ring, 5000 * MS), 0);
		assert_int_equal(vb_ring_reap(w.ring, &done, 1), 1);
		assert_int_equal(done.result, 0);
	}
	assert_true(vb_lock_valid(w.client[1], &w.grant[1]));
	assert_int_equal(release(1, NULL), 0);
	close_world();
}

/* A reader that is counted behind a writer, and has told nobody yet. */
static void test_reader_behind(void **state)
{
	struct vb_msg m = {.imm = 1u << 25};
	uint64_t holder, seen;
	struct vb_ep *ep;

	(void)state;
	open_world("shm", "ncosed", 2);
	ep = w.client[1]->ep;
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	assert_int_equal(vb_faa64(ep, word_of(HOT), 1, &holder), 0);
	assert_int_equal(release(0, NULL), VB_STARTED);
	assert_int_equal(vb_ring_wait(w.ring, MS), -ETIMEDOUT);
	m.subject = word_of(HOT);
	ncosed_tell(holder, 0, &m);
	assert_int_equal(vb_send_wait(ep, w.client[0]->ep->self, &m), 0);
	expect(0, 0);
	assert_int_equal(vb_cas64(ep, word_of(HOT), 1, 0, &seen), 0);
	assert_int_equal(seen, 1);
	cycle(VB_EXCLUSIVE);
	close_world();
}

/* ---- one call at a time ---- */

static int starts_one(void *arg)
{
	(void)arg;
	return acquire(2, 3, VB_EXCLUSIVE) == VB_STARTED ? 0 : -EINVAL;
}

/* What a function has started that has ended at once. */
static void test_left_under_way(void **state)
{
	(void)state;
	/* In virtual time, where no keeper takes over. */
	open_world("sim", "mcs", 2);
	assert_int_equal(vb_lock_acquire(w.client[1], 3, VB_EXCLUSIVE, PATIENCE_NS, &w.grant[1]),
			 0);
	assert_int_equal(vb_ring_call(w.ring, starts_one, NULL, NULL, NULL), 0);
	vb_log_mute();
	assert_int_equal(vb_lock_try(w.client[2], 7, VB_EXCLUSIVE, &w.grant[0]), -EBUSY);
	assert_int_equal(acquire(2, 7, VB_EXCLUSIVE), -EBUSY);
	vb_log_unmute();
	assert_int_equal(vb_lock_release(w.client[1], &w.grant[1]), 0);
	expect(2, 0);
	assert_int_equal(vb_lock_release(w.client[2], &w.grant[2]), 0);
	close_world();
}

static struct {
	bool releases; /* client 0, on the thread's own stack */
	int err;
	unsigned turns;
} other;

/* While client 0 releases, it is that call's. */
static int calls_too(void *arg)
{
	struct vb_grant grant;

	(void)arg;
	for (unsigned n = 0; n < 1000 && !other.releases; n++)
		if (vb_ep_sleep(w.client[2]->ep, 1000) != 0)
			return -ECANCELED;
	if (!other.releases)
		return 0;
	other.turns++;
	vb_log_mute();
	other.err = vb_lock_try(w.client[0], 7, VB_EXCLUSIVE, &grant);
	vb_log_unmute();
	return other.err == 0 ? vb_lock_release(w.client[0], &grant) : 0;
}

/* The successor has no room for a message: who is at its handover gives others a turn. */
static void test_alone(void **state)
{
	const struct queue *q = &queues[2];
	uint64_t holder, name;
	int err;

	(void)state;
	open_world("shm", q->lock, 4);
	memset(&other, 0, sizeof(other));
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	stands_behind(q, &holder, &name);
	tells(q, holder, name);
	fill(1);
	assert_int_equal(vb_ring_call(w.ring, calls_too, NULL, &w.client[2], NULL), VB_STARTED);
	other.releases = true;
	vb_log_mute();
	err = release(0, NULL);
	vb_log_unmute();
	other.releases = false;
	assert_int_equal(err, 0);
	if (other.turns != 0)
		assert_int_equal(other.err, -EBUSY);
	expect(2, 0);
	close_world();
}

/* ---- who looks on ---- */

static struct {
	unsigned granted, releasing, released;
	int wrong; /* held and told twice, or told without an end */
} seen;

static void on_ask(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	(void)ctx, (void)me, (void)lock, (void)mode;
}

static void on_granted(void *ctx, struct vb_lock_client *me, const struct vb_claim *c)
{
	(void)ctx, (void)me, (void)c;
	seen.granted++;
}

static void on_not_granted(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	(void)ctx, (void)me, (void)lock, (void)err;
}

static void on_releasing(void *ctx, struct vb_lock_client *me, const struct vb_claim *c)
{
	(void)ctx, (void)me, (void)c;
	seen.wrong |= seen.releasing != seen.released;
	seen.releasing++;
}

static void on_released(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	(void)ctx, (void)me, (void)lock, (void)err;
	seen.released++;
}

static const struct vb_lock_watch watch = {.called = on_ask,
					   .queued = on_ask,
					   .granted = on_granted,
					   .not_granted = on_not_granted,
					   .releasing = on_releasing,
					   .released = on_released};

/* They hear once that it begins, and once that it has ended: also of one that is begun at once, and goes on in a task,
 * be it that there was no room for one at first. */
static void looked_at(const struct queue *q)
{
	uint64_t holder, name;

	open_world("shm", q->lock, 1);
	memset(&seen, 0, sizeof(seen));
	w.space->watch = &watch;
	assert_int_equal(acquire(0, HOT, VB_EXCLUSIVE), 0);
	w.space->watch = NULL;
	assert_int_equal(acquire(1, 3, VB_EXCLUSIVE), 0);
	assert_int_equal(acquire(2, 3, VB_EXCLUSIVE), VB_STARTED);
	w.space->watch = &watch;
	stands_behind(q, &holder, &name);
	vb_log_mute();
	assert_int_equal(release(0, NULL), -ENOSPC);
	vb_log_unmute();
	w.space->watch = NULL;
	assert_int_equal(vb_lock_release(w.client[1], &w.grant[1]), 0);
	expect(2, 0);
	assert_int_equal(vb_lock_release(w.client[2], &w.grant[2]), 0);
	w.space->watch = &watch;
	assert_int_equal(release(0, NULL), VB_STARTED);
	tells(q, holder, name);
	expect(0, 0);
	w.space->watch = NULL;
	assert_int_equal(seen.granted, 1);
	assert_int_equal(seen.releasing, 1);
	assert_int_equal(seen.released, 1);
	assert_false(seen.wrong);
	is_through(q, name);
	close_world();
}

static void test_looked_at(void **state)
{
	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(queues); i++)
		looked_at(&queues[i]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_no_room),        cmocka_unit_test(test_reader_behind),
		cmocka_unit_test(test_left_under_way), cmocka_unit_test(test_alone),
		cmocka_unit_test(test_looked_at),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
