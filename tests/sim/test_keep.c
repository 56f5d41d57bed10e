/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What vb_lock_keep_start promises, word by word, where what a renewal comes to is told by the test: when it is
 * asked for, how often, what is told of it and when; whose the client is meanwhile; and that nobody else's lease
 * suffers from one that is kept.
 */
#include "sim_test.h"

#include <errno.h>
#include <verbena/async.h>

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "lock/claim.h"
#include "lock/protocols.h"

#define US    1000ull
#define MS    1000000ull
#define LEASE (10 * MS)

#define must(call) assert_int_equal(call, 0)

/* A space's renewals: so many of them come to `err`, and the protocol's own after them. */
static struct {
	struct vb_lock_ops ops;
	const struct vb_lock_ops *real;
	int err;
	unsigned fail, asked;
	bool waits; /* until the time is over, where they fail */
	uint64_t due_ns;
} script;

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b, *c;
	struct vb_ring *ring;
};

static void open_world(struct world *w, const char *lock)
{
	const struct vb_lock_space_params p = {
		.lock = lock, .locks = 100, .lease_ns = LEASE, .fencing = true};
	const struct vb_ring_params rp = {.depth = 2};

	*w = (struct world){.f = cluster("profile=cx5,bound=50us", 2, 1)};
	must(vb_lock_space_open(w->f, &p, &w->space));
	must(vb_lock_server_start(w->space, 0, 0, 1, &w->server));
	must(vb_lock_client_open(w->space, 1, &w->a));
	must(vb_lock_client_open(w->space, 1, &w->b));
	must(vb_lock_client_open(w->space, 1, &w->c));
	must(vb_ring_open(&rp, &w->ring));
}

static void close_world(struct world *w)
{
	must(vb_ring_close(w->ring));
	vb_lock_client_close(w->a);
	vb_lock_client_close(w->b);
	vb_lock_client_close(w->c);
	vb_lock_server_stop(w->server);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

static uint64_t left_of(const struct vb_grant *g, struct vb_lock_client *me)
{
	return g->claim->valid_until_ns - vb_lock_now(me);
}

/* Held by a; false: without a lease, and closed again. */
static bool begin(struct world *w, const struct vb_lock_ops *l, struct vb_grant *g,
		  enum vb_mode mode)
{
	open_world(w, l->name);
	must(vb_lock_acquire(w->a, 5, mode, VB_FOREVER_NS, g));
	if (g->valid_until_ns != VB_FOREVER_NS)
		return true;
	must(vb_lock_release(w->a, g));
	close_world(w);
	return false;
}

/* Each lock that renews, in each mode that has a lease there. */
#define FOR_EACH_THAT_RENEWS(w, g)                                                                 \
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++)                       \
		for (enum vb_mode m = VB_SHARED; m <= VB_EXCLUSIVE; m++)                           \
			if ((m == VB_SHARED || m == VB_EXCLUSIVE) && (*l)->renew != NULL &&        \
			    begin(&(w), *l, &(g), m))

static void keep(struct world *w, struct vb_grant *g, uint64_t *id)
{
	assert_int_equal(vb_lock_keep_start(w->ring, w->a, g, w, id), VB_STARTED);
}

/* Keeps it, for so long and not longer: 1, or how it ended. */
static int keep_for(struct world *w, uint64_t ns)
{
	struct vb_completion done;
	int err = vb_ring_wait(w->ring, ns);

	if (err == -ETIMEDOUT)
		return 1;
	must(err);
	assert_int_equal(vb_ring_reap(w->ring, &done, 1), 1);
	assert_ptr_equal(done.tag, w);
	/* Once. */
	assert_int_equal(vb_ring_reap(w->ring, &done, 1), 0);
	return done.result;
}

/* ---- renewals that the test tells ---- */

static int scripted(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	uint64_t begun = vb_ep_now(me->ep);
	int err;

	if (script.asked++ == 0 || script.fail == 0) {
		assert_true(begun >= script.due_ns);
		assert_true(begun <= script.due_ns + US);
	}
	/* Not beyond what the client is promised to be told before. */
	assert_true(until_ns <= c->valid_until_ns);
	if (script.fail > 0) {
		script.fail--;
		if (script.waits && until_ns > begun)
			must(vb_ep_sleep(me->ep, until_ns - begun));
		return script.err;
	}
	err = script.real->renew(me, c, until_ns);
	begun = vb_ep_now(me->ep);
	script.due_ns = begun + (c->valid_until_ns - begun) / 2;
	return err;
}

static void tell(struct world *w, const struct vb_grant *g, unsigned fail, int err)
{
	memset(&script, 0, sizeof(script));
	script.real = w->space->ops;
	script.ops = *w->space->ops;
	script.ops.renew = scripted;
	script.fail = fail;
	script.err = err;
	script.due_ns = vb_lock_now(w->a) + left_of(g, w->a) / 2;
	w->space->ops = &script.ops;
}

/* Whenever half of what it had left is over: neither earlier, nor later. */
static void test_by_halves(void **state)
{
	struct vb_grant g;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		uint64_t id, lease = left_of(&g, w.a);

		must(vb_ep_sleep(w.a->ep, lease / 8));
		tell(&w, &g, 0, 0);
		keep(&w, &g, &id);
		assert_int_equal(keep_for(&w, 6 * lease), 1);
		assert_true(script.asked >= 10 && script.asked <= 14);
		must(vb_ring_cancel(w.ring, id));
		assert_int_equal(keep_for(&w, lease), -ECANCELED);
		w.space->ops = script.real;
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
}

static const int failures[] = {-ETIMEDOUT, -VB_EUNKNOWN, -VB_EPEERGONE, -EAGAIN};

/* What fails is tried again, whatever it was. */
static void test_tried_again(void **state)
{
	struct vb_grant g;
	struct world w;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(failures); i++) {
		FOR_EACH_THAT_RENEWS(w, g)
		{
			uint64_t id, lease = left_of(&g, w.a);

			tell(&w, &g, 3, failures[i]);
			script.due_ns = vb_lock_now(w.a) + lease / 2;
			keep(&w, &g, &id);
			/* The fourth comes late. */
			while (script.asked < 3)
				assert_int_equal(keep_for(&w, lease / 64), 1);
			w.space->ops = script.real;
			assert_int_equal(keep_for(&w, 2 * lease), 1);
			assert_true(vb_lock_valid(w.a, &g));
			must(vb_ring_cancel(w.ring, id));
			assert_int_equal(keep_for(&w, lease), -ECANCELED);
			must(vb_lock_release(w.a, &g));
			close_world(&w);
		}
	}
}

/* And told, if it fails on: a quarter before the end, with the grant as it was. */
static void test_told_of_it(void **state)
{
	struct vb_grant g;
	struct world w;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(failures); i++) {
		FOR_EACH_THAT_RENEWS(w, g)
		{
			const uint64_t until = g.valid_until_ns, left = left_of(&g, w.a);

			tell(&w, &g, UINT32_MAX, failures[i]);
			keep(&w, &g, NULL);
			assert_int_equal(keep_for(&w, left), failures[i]);
			w.space->ops = script.real;
			assert_true(script.asked >= 3 && script.asked <= 5);
			assert_true(vb_lock_valid(w.a, &g));
			assert_int_equal(g.valid_until_ns, until);
			assert_true(left_of(&g, w.a) >= left / 4 && left_of(&g, w.a) <= left / 2);
			/* The client's again. */
			must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
			must(vb_lock_release(w.a, &g));
			close_world(&w);
		}
	}
}

/* Nor later if a renewal waits for as long as it may. */
static void test_told_in_time(void **state)
{
	struct vb_grant g;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		const uint64_t left = left_of(&g, w.a);

		tell(&w, &g, UINT32_MAX, -ETIMEDOUT);
		script.waits = true;
		keep(&w, &g, NULL);
		assert_int_equal(keep_for(&w, left), -ETIMEDOUT);
		w.space->ops = script.real;
		assert_true(vb_lock_valid(w.a, &g));
		assert_true(left_of(&g, w.a) + US >= left / 4);
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
}

/* At once, and valid no longer, whatever time it seemed to have. */
static void test_told_of_a_loss(void **state)
{
	struct vb_grant g, copy;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		const uint64_t left = left_of(&g, w.a);

		copy = g;
		tell(&w, &g, UINT32_MAX, -VB_ELOST);
		keep(&w, &g, NULL);
		assert_int_equal(keep_for(&w, left / 2 + US), -VB_ELOST);
		w.space->ops = script.real;
		assert_int_equal(script.asked, 1);
		assert_false(vb_lock_valid(w.a, &g) || vb_lock_valid(w.a, &copy));
		assert_int_equal(vb_lock_keep_start(w.ring, w.a, &g, &w, NULL), -VB_ELOST);
		assert_int_equal(vb_lock_renew(w.a, &g, VB_FOREVER_NS), -VB_ELOST);
		(void)vb_lock_release(w.a, &g);
		close_world(&w);
	}
}

/* ---- what stays, whose it is, and the others ---- */

/* Also what the client knows of it: a grant that is brought up to date has the token that it had. */
static void test_token_stays(void **state)
{
	struct vb_grant g;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		const uint64_t token = g.token;

		must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
		assert_int_equal(g.token, token);
		must(vb_lock_convert(w.a, &g, m, VB_FOREVER_NS));
		assert_int_equal(g.token, token);
		assert_true(vb_lock_valid(w.a, &g));
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
}

/* The caller's time, much of the lease though there is left; and what had no answer changes nothing. */
static void test_no_longer_than_asked(void **state)
{
	struct vb_grant g;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		const uint64_t until = g.valid_until_ns;
		uint64_t begun = vb_lock_now(w.a);
		char said[1024] = "";

		if (w.space->ops->caps & VB_LOCK_SERVER) {
			vb_sim_ep_pause(w.server->ep, now() + LEASE / 2);
			vb_log_capture_begin(said, sizeof(said));
			assert_int_equal(vb_lock_renew(w.a, &g, 200 * US), -ETIMEDOUT);
			vb_log_capture_end();
			assert_true(vb_lock_now(w.a) - begun >= 200 * US &&
				    vb_lock_now(w.a) - begun <= 300 * US);
			assert_true(vb_lock_valid(w.a, &g) && g.valid_until_ns == until);
		}
		must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
}

static void test_the_client_is_the_calls(void **state)
{
	struct vb_grant g, other, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		char said[4096] = "";
		uint64_t id, second;

		keep(&w, &g, &id);
		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(vb_lock_renew(w.a, &g, MS), -EBUSY);
		assert_int_equal(vb_lock_convert(w.a, &g, m, MS), -EBUSY);
		assert_int_equal(vb_lock_acquire(w.a, 7, m, MS, &other), -EBUSY);
		assert_int_equal(vb_lock_try(w.a, 7, m, &other), -EBUSY);
		assert_int_equal(vb_lock_release_start(w.ring, w.a, &g, NULL, NULL), -EBUSY);
		vb_lock_client_close(w.a);
		assert_true(vb_lock_valid(w.a, &g));
		/* What was refused has no place in the ring, whose depth is two. */
		must(vb_lock_acquire(w.b, 7, m, MS, &his));
		assert_int_equal(vb_lock_keep_start(w.ring, w.b, &his, &w, &second), VB_STARTED);
		must(vb_lock_acquire(w.c, 9, m, MS, &other));
		assert_int_equal(vb_lock_keep_start(w.ring, w.c, &other, &w, NULL), -ENOSPC);
		assert_int_equal(vb_lock_keep_start(NULL, w.c, &other, &w, NULL), -EINVAL);
		assert_int_equal(vb_lock_keep_start(w.ring, NULL, &other, &w, NULL), -EINVAL);
		assert_int_equal(vb_lock_keep_start(w.ring, w.c, NULL, &w, NULL), -EINVAL);
		must(vb_lock_release(w.c, &other));
		must(vb_ring_cancel(w.ring, id));
		assert_int_equal(keep_for(&w, LEASE), -ECANCELED);
		must(vb_lock_release(w.a, &g));
		must(vb_ring_cancel(w.ring, second));
		assert_int_equal(keep_for(&w, LEASE), -ECANCELED);
		must(vb_lock_release(w.b, &his));
		vb_log_capture_end();
		close_world(&w);
	}
}

/* The server looks after the leases of the dead, also where one that began before theirs goes on and on. */
static void test_the_dead_beside_it(void **state)
{
	struct vb_grant g, dead, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g)
	{
		uint64_t id, lease = left_of(&g, w.a);

		keep(&w, &g, &id);
		must(vb_lock_acquire(w.b, 7, m, VB_FOREVER_NS, &dead));
		vb_lock_abandon(w.b, &dead);
		must(vb_lock_acquire(w.c, 7, VB_EXCLUSIVE, 3 * lease, &his));
		assert_int_equal(keep_for(&w, 0), 1);
		must(vb_lock_release(w.c, &his));
		must(vb_ring_cancel(w.ring, id));
		assert_int_equal(keep_for(&w, lease), -ECANCELED);
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_halves),
		cmocka_unit_test(test_tried_again),
		cmocka_unit_test(test_told_of_it),
		cmocka_unit_test(test_told_in_time),
		cmocka_unit_test(test_told_of_a_loss),
		cmocka_unit_test(test_token_stays),
		cmocka_unit_test(test_no_longer_than_asked),
		cmocka_unit_test(test_the_client_is_the_calls),
		cmocka_unit_test(test_the_dead_beside_it),
	};

	return cmocka_run_group_tests_name("keep", tests, NULL, NULL);
}
