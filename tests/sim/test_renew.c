/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vb_lock_renew, of every lock: who can; that a hold which is renewed in time lasts and keeps the
 * others out; that one which is over stays over; what a renewal comes to whose answer is lost, whose
 * server is gone, or whose task is cancelled.  And vb_lock_keep_start, which renews by itself.
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

static const struct vb_sim_faults none, lose = {.lose = 1.0};

#define must(call) assert_int_equal(call, 0)

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b, *c;
};

static void open_world(struct world *w, const char *lock)
{
	const struct vb_lock_space_params p = {
		.lock = lock, .locks = 100, .lease_ns = LEASE, .fencing = true};

	*w = (struct world){.f = cluster("profile=cx5,bound=50us", 2, 1)};
	must(vb_lock_space_open(w->f, &p, &w->space));
	must(vb_lock_server_start(w->space, 0, 0, 1, &w->server));
	must(vb_lock_client_open(w->space, 1, &w->a));
	must(vb_lock_client_open(w->space, 1, &w->b));
	must(vb_lock_client_open(w->space, 1, &w->c));
}

static void close_world(struct world *w)
{
	vb_lock_client_close(w->a);
	vb_lock_client_close(w->b);
	vb_lock_client_close(w->c);
	vb_lock_server_stop(w->server);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

static void pause_for(struct vb_lock_client *me, uint64_t ns)
{
	must(vb_ep_sleep(me->ep, ns));
}

/* How long readers hold, where that differs. */
static uint64_t lease_of(const struct vb_grant *g, struct vb_lock_client *me)
{
	return g->valid_until_ns - vb_lock_now(me);
}

/* Each lock whose grants in this mode have leases, that can be renewed. */
#define FOR_EACH_THAT_RENEWS(w, g, mode)                                                           \
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++)                       \
		if ((*l)->renew != NULL && begin(&(w), *l, &(g), mode))

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

/* ---- who can ---- */

static void test_who_can(void **state)
{
	static const enum vb_mode modes[] = {VB_EXCLUSIVE, VB_SHARED};
	unsigned can = 0, cannot = 0, need_not = 0;

	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		for (unsigned m = 0; m < VB_ARRAY_SIZE(modes); m++) {
			char said[512] = "";
			struct vb_grant g, was;
			uint64_t asked, lease;
			struct world w;
			int err;

			open_world(&w, (*l)->name);
			asked = vb_lock_now(w.a);
			must(vb_lock_acquire(w.a, 5, modes[m], VB_FOREVER_NS, &g));
			lease = g.valid_until_ns - asked;
			pause_for(w.a, 10 * US);
			was = g;
			asked = vb_lock_now(w.a);
			vb_log_capture_begin(said, sizeof(said));
			err = vb_lock_renew(w.a, &g, MS);
			vb_log_capture_end();
			assert_true(vb_lock_valid(w.a, &g));
			assert_int_equal(g.token, was.token);
			assert_int_equal(g.mode, was.mode);
			if (was.valid_until_ns == VB_FOREVER_NS) {
				need_not++;
				must(err);
				assert_int_equal(g.valid_until_ns, VB_FOREVER_NS);
			} else if ((*l)->renew != NULL) {
				can++;
				must(err);
				assert_true(g.valid_until_ns >= was.valid_until_ns + 10 * US);
				/* From when it was asked, as a grant's. */
				assert_true(g.valid_until_ns - asked <= lease + US / 2);
			} else {
				cannot++;
				assert_int_equal(err, -EOPNOTSUPP);
				assert_non_null(strstr(said, "cannot renew a lease"));
				assert_int_equal(g.valid_until_ns, was.valid_until_ns);
			}
			must(vb_lock_release(w.a, &g));
			close_world(&w);
		}
	}
	assert_int_equal(can, 9);
	assert_true(cannot >= 6 && need_not >= 10);
}

static void test_not_held(void **state)
{
	char said[512] = "";
	struct vb_grant g, copy;
	struct world w;

	begin(&w, vb_lock_find("table"), &g, VB_EXCLUSIVE);
	copy = g;
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_renew(w.b, &g, MS), -EINVAL);
	assert_non_null(strstr(said, "a renewal of lock 5"));
	must(vb_lock_release(w.a, &g));
	assert_int_equal(vb_lock_renew(w.a, &g, MS), -EINVAL);
	assert_int_equal(vb_lock_renew(w.a, &copy, MS), -EINVAL);
	vb_log_capture_end();
	close_world(&w);
}

/* ---- in time, and too late ---- */

static void hold_for_long(enum vb_mode mode)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, mode)
	{
		const uint64_t token = g.token;
		uint64_t begun = now();

		for (unsigned i = 0; i < 12; i++) {
			pause_for(w.a, lease_of(&g, w.a) / 2);
			must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
			assert_true(vb_lock_valid(w.a, &g));
			assert_int_equal(vb_lock_try(w.b, 5, VB_EXCLUSIVE, &his), -EAGAIN);
		}
		assert_true(now() - begun > 2 * LEASE || mode == VB_SHARED);
		must(vb_lock_release(w.a, &g));
		/* Nothing of what was renewed is left but a lease that readers do not give back. */
		must(vb_lock_acquire(
			w.b, 5, VB_EXCLUSIVE,
			w.space->ops->caps & VB_LOCK_READ_LEASE ? 2 * LEASE : LEASE / 2, &his));
		assert_true(his.token > token);
		must(vb_lock_release(w.b, &his));
		close_world(&w);
	}
}

static void test_held_for_long(void **state)
{
	hold_for_long(VB_EXCLUSIVE);
}

static void test_read_for_long(void **state)
{
	hold_for_long(VB_SHARED);
}

/* Nobody has come for it, and it is over all the same; then somebody has. */
static void over_stays_over(enum vb_mode mode)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, mode)
	{
		int err;

		pause_for(w.a, lease_of(&g, w.a));
		assert_int_equal(vb_lock_renew(w.a, &g, VB_FOREVER_NS), -VB_ELOST);
		assert_false(vb_lock_valid(w.a, &g));
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 4 * LEASE, &his));
		assert_int_equal(vb_lock_renew(w.a, &g, VB_FOREVER_NS), -VB_ELOST);
		assert_true(vb_lock_valid(w.b, &his));
		err = vb_lock_release(w.a, &g);
		assert_int_equal(err, -VB_ELOST);
		must(vb_lock_release(w.b, &his));
		close_world(&w);
	}
}

static void test_over_stays_over(void **state)
{
	over_stays_over(VB_EXCLUSIVE);
	over_stays_over(VB_SHARED);
}

/* It is asked for in time, and has been given to somebody else where the lock is kept. */
static void lost_meanwhile(enum vb_mode mode)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, mode)
	{
		pause_for(w.a, 2 * LEASE);
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 4 * LEASE, &his));
		/* As a client would have it that has just been told. */
		g.claim->valid_until_ns = g.valid_until_ns = vb_lock_now(w.a) + LEASE;
		assert_true(vb_lock_valid(w.a, &g));
		assert_int_equal(vb_lock_renew(w.a, &g, VB_FOREVER_NS), -VB_ELOST);
		assert_false(vb_lock_valid(w.a, &g));
		assert_true(vb_lock_valid(w.b, &his));
		assert_int_equal(vb_lock_release(w.a, &g), -VB_ELOST);
		must(vb_lock_release(w.b, &his));
		close_world(&w);
	}
}

static void test_lost_meanwhile(void **state)
{
	lost_meanwhile(VB_EXCLUSIVE);
	lost_meanwhile(VB_SHARED);
}

/* ---- readers ---- */

/* One reader renews, one is dead, one comes and goes: a writer waits for the first, and for no dead one
 * longer than two leases. */
static void test_readers(void **state)
{
	struct vb_grant g, dead, other, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_SHARED)
	{
		const uint64_t lease = lease_of(&g, w.a);

		must(vb_lock_acquire(w.b, 5, VB_SHARED, VB_FOREVER_NS, &dead));
		vb_lock_abandon(w.b, &dead);
		for (unsigned i = 0; i < 10; i++) {
			pause_for(w.a, lease / 3);
			must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
			if (w.space->ops->caps & VB_LOCK_READ_LEASE)
				continue;
			must(vb_lock_acquire(w.c, 5, VB_SHARED, VB_FOREVER_NS, &other));
			must(vb_lock_release(w.c, &other));
		}
		assert_int_equal(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, lease / 4, &his),
				 -ETIMEDOUT);
		must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
		must(vb_lock_release(w.a, &g));
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 2 * lease, &his));
		must(vb_lock_release(w.b, &his));
		close_world(&w);
	}
}

/* It stood still behind its look at the time, and a writer has come and gone: that others read again is nothing
 * to it. */
static void test_others_read_meanwhile(void **state)
{
	struct vb_grant g, his, other;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_SHARED)
	{
		pause_for(w.a, lease_of(&g, w.a));
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 4 * LEASE, &his));
		must(vb_lock_release(w.b, &his));
		must(vb_lock_acquire(w.c, 5, VB_SHARED, VB_FOREVER_NS, &other));
		assert_int_equal(w.space->ops->renew(w.a, g.claim, VB_FOREVER_NS), -VB_ELOST);
		assert_true(vb_lock_valid(w.c, &other));
		must(vb_lock_release(w.c, &other));
		assert_int_equal(vb_lock_release(w.a, &g), -VB_ELOST);
		close_world(&w);
	}
}

/* ---- answers that are lost ---- */

static int renew_unheard(struct world *w, struct vb_lock_client *me, struct vb_grant *g)
{
	char said[1024] = "";
	int err;

	vb_log_capture_begin(said, sizeof(said));
	vb_sim_set_faults(w->f, &lose);
	err = vb_lock_renew(me, g, 100 * US);
	vb_sim_set_faults(w->f, &none);
	vb_log_capture_end();
	return err;
}

/* So many times, within a lease. */
static unsigned tries(const struct world *w)
{
	return w->space->ops->caps & VB_LOCK_READ_LEASE ? 2 : 4;
}

/* As before, and it can be repeated.  Some get through all the same. */
static void test_lost_answer(void **state)
{
	static const enum vb_mode modes[] = {VB_EXCLUSIVE, VB_SHARED};
	unsigned unheard = 0;

	for (unsigned m = 0; m < VB_ARRAY_SIZE(modes); m++) {
		struct vb_grant g, his;
		struct world w;

		FOR_EACH_THAT_RENEWS(w, g, modes[m])
		{
			struct vb_grant was = g;
			int err = 0;

			for (unsigned i = 0; i < tries(&w) && err == 0; i++) {
				was = g;
				err = renew_unheard(&w, w.a, &g);
			}
			if (err != 0) {
				assert_true(err == -ETIMEDOUT || err == -VB_EUNKNOWN);
				assert_int_equal(g.valid_until_ns, was.valid_until_ns);
				unheard++;
			}
			assert_true(vb_lock_valid(w.a, &g));
			must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
			assert_true(g.valid_until_ns > was.valid_until_ns);
			must(vb_lock_release(w.a, &g));
			must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 4 * LEASE, &his));
			must(vb_lock_release(w.b, &his));
			close_world(&w);
		}
	}
	assert_true(unheard >= 3);
}

/* Whatever was done of a reader's renewal, another reader is counted. */
static void test_lost_answer_of_a_reader(void **state)
{
	struct vb_grant g, other, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_SHARED)
	{
		const uint64_t lease = lease_of(&g, w.a);

		must(vb_lock_acquire(w.b, 5, VB_SHARED, VB_FOREVER_NS, &other));
		for (unsigned i = 0; i < tries(&w); i++)
			(void)renew_unheard(&w, w.a, &g);
		if (w.space->ops->caps & VB_LOCK_READ_LEASE) {
			must(vb_lock_renew(w.b, &other, VB_FOREVER_NS));
			(void)vb_lock_release(w.a, &g);
		} else if (vb_lock_valid(w.a, &g)) {
			must(vb_lock_release(w.a, &g));
		}
		assert_true(vb_lock_valid(w.b, &other));
		assert_int_equal(vb_lock_try(w.c, 5, VB_EXCLUSIVE, &his), -EAGAIN);
		must(vb_lock_release(w.b, &other));
		must(vb_lock_acquire(w.c, 5, VB_EXCLUSIVE, 4 * lease, &his));
		must(vb_lock_release(w.c, &his));
		close_world(&w);
	}
}

/* ---- requests that never come ---- */

/* What an endpoint sends before then gets lost. */
static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	uint64_t until_ns;
	unsigned lost;
} silence;

static int post_after_it(struct vb_ep *ep, struct vb_batch *batch)
{
	if (batch->verbs[0].op != VB_OP_SEND || vb_ep_now(ep) >= silence.until_ns)
		return silence.real->post(ep, batch);
	silence.lost++;
	batch->pending = 0;
	for (unsigned i = 0; i < batch->n; i++)
		batch->verbs[i].status = 0;
	return 0;
}

/* Nothing of it reaches who keeps the lock but that it is given up: what is held is as it was before. */
static unsigned never_asked(enum vb_mode mode)
{
	unsigned unheard = 0;
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, mode)
	{
		char said[1024] = "";
		int err;

		silence.real = w.a->ep->ops;
		silence.ops = *silence.real;
		silence.ops.post = post_after_it;
		silence.until_ns = vb_ep_now(w.a->ep) + 100 * US;
		silence.lost = 0;
		w.a->ep->ops = &silence.ops;
		vb_log_capture_begin(said, sizeof(said));
		err = vb_lock_renew(w.a, &g, 100 * US);
		vb_log_capture_end();
		w.a->ep->ops = silence.real;
		assert_int_equal(err, silence.lost ? -ETIMEDOUT : 0);
		unheard += err != 0;
		pause_for(w.a, 100 * US);
		assert_true(vb_lock_valid(w.a, &g));
		assert_int_equal(vb_lock_try(w.b, 5, VB_EXCLUSIVE, &his), -EAGAIN);
		must(vb_lock_release(w.a, &g));
		close_world(&w);
	}
	return unheard;
}

static void test_never_asked(void **state)
{
	assert_int_equal(never_asked(VB_EXCLUSIVE), 3);
	assert_int_equal(never_asked(VB_SHARED), 3);
}

/* ---- servers ---- */

static void test_without_a_server(void **state)
{
	struct vb_grant g;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_EXCLUSIVE)
	{
		char said[1024] = "";
		uint64_t begun;
		int err;

		vb_lock_server_stop(w.server);
		vb_log_capture_begin(said, sizeof(said));
		begun = now();
		err = vb_lock_renew(w.a, &g, VB_FOREVER_NS);
		assert_true(err == -VB_EPEERGONE || err == -ETIMEDOUT);
		/* No longer than the lease, and the first wait for an answer. */
		assert_true(now() - begun < LEASE + LEASE / 2);
		err = vb_lock_release(w.a, &g);
		assert_true(err == -VB_EUNKNOWN || err == -VB_ELOST);
		vb_log_capture_end();
		must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
		close_world(&w);
	}
}

/* By the server that has taken the place of the one that granted; some learn of it by a refusal. */
static void test_another_server(void **state)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_EXCLUSIVE)
	{
		char said[512] = "";
		int err;

		vb_lock_server_stop(w.server);
		must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
		vb_log_capture_begin(said, sizeof(said));
		err = vb_lock_renew(w.a, &g, VB_FOREVER_NS);
		vb_log_capture_end();
		assert_true(err == 0 || err == -VB_EPEERGONE);
		for (unsigned i = 0; i < 8; i++) {
			must(vb_lock_renew(w.a, &g, VB_FOREVER_NS));
			pause_for(w.a, LEASE / 2);
			assert_true(vb_lock_valid(w.a, &g));
		}
		assert_int_equal(vb_lock_try(w.b, 5, VB_EXCLUSIVE, &his), -EAGAIN);
		must(vb_lock_release(w.a, &g));
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 4 * LEASE, &his));
		must(vb_lock_release(w.b, &his));
		close_world(&w);
	}
}

/* ---- cancelled ---- */

struct renewer {
	struct world *w;
	struct vb_grant g;
	int err;
	bool done;
};

static void renewer_body(void *arg)
{
	struct renewer *r = arg;

	must(vb_lock_acquire(r->w->b, 7, VB_SHARED, VB_FOREVER_NS, &r->g));
	/* Nobody answers: it waits until it is cancelled. */
	vb_lock_server_stop(r->w->server);
	r->err = vb_lock_renew(r->w->b, &r->g, VB_FOREVER_NS);
	r->done = true;
}

static void test_cancelled(void **state)
{
	struct renewer r = {.err = 1};
	char said[1024] = "";
	struct vb_task *t;
	struct world w;

	open_world(&w, "table");
	r.w = &w;
	vb_log_capture_begin(said, sizeof(said));
	must(vb_task_spawn(vb_sched_self(), renewer_body, &r, NULL, &t));
	pause_for(w.a, 200 * US);
	assert_false(r.done);
	vb_task_cancel(t);
	pause_for(w.a, 200 * US);
	vb_log_capture_end();
	assert_true(r.done);
	assert_int_equal(r.err, -ECANCELED);
	assert_true(vb_lock_valid(w.b, &r.g));
	must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
	must(vb_lock_renew(w.b, &r.g, VB_FOREVER_NS));
	must(vb_lock_release(w.b, &r.g));
	close_world(&w);
}

/* ---- kept by a ring ---- */

static struct vb_ring *open_ring(void)
{
	struct vb_ring *ring;

	must(vb_ring_open(NULL, &ring));
	return ring;
}

/* Keeps it, for so long and not longer: 1, or how it ended. */
static int keep_for(struct vb_ring *ring, uint64_t ns)
{
	struct vb_completion done;
	int err = vb_ring_wait(ring, ns);

	if (err == -ETIMEDOUT)
		return 1;
	must(err);
	assert_int_equal(vb_ring_reap(ring, &done, 1), 1);
	assert_ptr_equal(done.tag, ring);
	return done.result;
}

static int keep(struct vb_ring *ring, struct world *w, struct vb_grant *g, uint64_t *id)
{
	return vb_lock_keep_start(ring, w->a, g, ring, id);
}

static void keep_for_long(enum vb_mode mode)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, mode)
	{
		struct vb_ring *ring = open_ring();
		const uint64_t token = g.token + 1;
		char said[1024] = "";
		uint64_t id;

		/* Who works may read it: it is not written. */
		g.token = token;
		assert_int_equal(keep(ring, &w, &g, &id), VB_STARTED);
		for (unsigned i = 0; i < 24; i++) {
			assert_int_equal(keep_for(ring, LEASE / 3), 1);
			assert_true(vb_lock_valid(w.a, &g));
			assert_int_equal(vb_lock_try(w.b, 5, VB_EXCLUSIVE, &his), -EAGAIN);
		}
		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(vb_lock_release(w.a, &g), -EBUSY);
		assert_int_equal(keep(ring, &w, &g, NULL), -EBUSY);
		vb_log_capture_end();
		must(vb_ring_cancel(ring, id));
		assert_int_equal(keep_for(ring, 0), -ECANCELED);
		assert_true(vb_lock_valid(w.a, &g) && g.token == token);
		must(vb_lock_release(w.a, &g));
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 2 * LEASE, &his));
		must(vb_lock_release(w.b, &his));
		must(vb_ring_close(ring));
		close_world(&w);
	}
}

static void test_kept(void **state)
{
	keep_for_long(VB_EXCLUSIVE);
	keep_for_long(VB_SHARED);
}

/* While an eighth of the lease is left at least; what is left is the client's to use. */
static void test_kept_no_longer(void **state)
{
	static const enum vb_mode modes[] = {VB_EXCLUSIVE, VB_SHARED};
	unsigned told = 0;

	for (unsigned m = 0; m < VB_ARRAY_SIZE(modes); m++) {
		struct vb_grant g;
		struct world w;

		FOR_EACH_THAT_RENEWS(w, g, modes[m])
		{
			struct vb_ring *ring = open_ring();
			uint64_t lease = lease_of(&g, w.a);
			char said[4096] = "";
			int err;

			assert_int_equal(keep(ring, &w, &g, NULL), VB_STARTED);
			assert_int_equal(keep_for(ring, 3 * lease), 1);
			vb_log_capture_begin(said, sizeof(said));
			if (w.space->ops->caps & VB_LOCK_SERVER)
				vb_lock_server_stop(w.server);
			else
				vb_sim_set_faults(w.f, &lose);
			err = keep_for(ring, lease);
			vb_sim_set_faults(w.f, &none);
			assert_true(err == -VB_EPEERGONE || err == -ETIMEDOUT ||
				    err == -VB_EUNKNOWN);
			assert_true(vb_lock_valid(w.a, &g));
			assert_true(lease_of(&g, w.a) >= lease / 8);
			pause_for(w.a, lease_of(&g, w.a));
			assert_false(vb_lock_valid(w.a, &g));
			assert_int_equal(keep(ring, &w, &g, NULL), -VB_ELOST);
			(void)vb_lock_release(w.a, &g);
			vb_log_capture_end();
			if (w.space->ops->caps & VB_LOCK_SERVER)
				must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
			must(vb_ring_close(ring));
			close_world(&w);
			told++;
		}
	}
	assert_int_equal(told, 9);
}

/* Nor if much of the lease was over when it began, and what a renewal waits for never comes. */
static void test_kept_from_the_middle(void **state)
{
	static const enum vb_mode modes[] = {VB_EXCLUSIVE, VB_SHARED};

	for (unsigned m = 0; m < VB_ARRAY_SIZE(modes); m++) {
		struct vb_grant g;
		struct world w;

		FOR_EACH_THAT_RENEWS(w, g, modes[m])
		{
			struct vb_ring *ring = open_ring();
			char said[4096] = "";
			uint64_t left;
			int err;

			/* What is left of a lease of drtm's is little more than a verb's bound. */
			if (w.space->ops->caps & VB_LOCK_SERVER) {
				pause_for(w.a, lease_of(&g, w.a) / 8 * 5);
				vb_sim_ep_pause(w.server->ep, now() + 4 * LEASE);
			} else {
				vb_sim_set_faults(w.f, &lose);
			}
			left = lease_of(&g, w.a);
			vb_log_capture_begin(said, sizeof(said));
			assert_int_equal(keep(ring, &w, &g, NULL), VB_STARTED);
			err = keep_for(ring, left);
			vb_sim_set_faults(w.f, &none);
			assert_true(err == -ETIMEDOUT || err == -VB_EUNKNOWN);
			assert_true(vb_lock_valid(w.a, &g));
			assert_true(lease_of(&g, w.a) >= left / 8);
			(void)vb_lock_release(w.a, &g);
			vb_log_capture_end();
			must(vb_ring_close(ring));
			close_world(&w);
		}
	}
}

/* Ended in a renewal that is done all the same: it is the client's, and nothing of it is left behind. */
static void keep_ends_in_a_renewal(enum vb_mode mode)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, mode)
	{
		struct vb_ring *ring = open_ring();
		uint64_t id, half = lease_of(&g, w.a) / 2;

		assert_int_equal(keep(ring, &w, &g, &id), VB_STARTED);
		if (w.space->ops->caps & VB_LOCK_SERVER)
			vb_sim_ep_pause(w.server->ep, now() + half + 200 * US);
		assert_int_equal(keep_for(ring, half + US / 2), 1);
		must(vb_ring_cancel(ring, id));
		assert_int_equal(keep_for(ring, 100 * US), -ECANCELED);
		assert_true(vb_lock_valid(w.a, &g));
		pause_for(w.a, w.space->ops->caps & VB_LOCK_SERVER ? 500 * US : 0);
		must(vb_lock_release(w.a, &g));
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, LEASE / 8, &his));
		must(vb_lock_release(w.b, &his));
		must(vb_ring_close(ring));
		close_world(&w);
	}
}

static void test_kept_until_a_renewal(void **state)
{
	keep_ends_in_a_renewal(VB_EXCLUSIVE);
	keep_ends_in_a_renewal(VB_SHARED);
}

/* The first renewal after a restart may be refused, and so may one whose answer is lost. */
static void test_kept_over_a_restart(void **state)
{
	struct vb_grant g;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_EXCLUSIVE)
	{
		struct vb_ring *ring = open_ring();
		char said[4096] = "";
		uint64_t id;

		assert_int_equal(keep(ring, &w, &g, &id), VB_STARTED);
		vb_log_capture_begin(said, sizeof(said));
		for (unsigned i = 0; i < 4; i++) {
			vb_lock_server_stop(w.server);
			assert_int_equal(keep_for(ring, LEASE / 8), 1);
			must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
			assert_int_equal(keep_for(ring, 2 * LEASE), 1);
			assert_true(vb_lock_valid(w.a, &g));
		}
		vb_log_capture_end();
		must(vb_ring_cancel(ring, id));
		assert_int_equal(keep_for(ring, LEASE), -ECANCELED);
		must(vb_lock_release(w.a, &g));
		must(vb_ring_close(ring));
		close_world(&w);
	}
}

/* Somebody else has it where the lock is kept, as after a pause that was longer than the lease. */
static void test_kept_and_lost(void **state)
{
	struct vb_grant g, his;
	struct world w;

	FOR_EACH_THAT_RENEWS(w, g, VB_EXCLUSIVE)
	{
		struct vb_ring *ring = open_ring();
		uint64_t id;

		pause_for(w.a, 2 * LEASE);
		must(vb_lock_acquire(w.b, 5, VB_EXCLUSIVE, 4 * LEASE, &his));
		g.claim->valid_until_ns = g.valid_until_ns = vb_lock_now(w.a) + LEASE;
		assert_int_equal(keep(ring, &w, &g, NULL), VB_STARTED);
		assert_int_equal(keep_for(ring, LEASE), -VB_ELOST);
		assert_false(vb_lock_valid(w.a, &g));
		/* Cancelled when it is over, before a renewal has shown it. */
		g.claim->valid_until_ns = vb_lock_now(w.a) + LEASE;
		assert_int_equal(keep(ring, &w, &g, &id), VB_STARTED);
		g.claim->valid_until_ns = vb_lock_now(w.a);
		must(vb_ring_cancel(ring, id));
		assert_int_equal(keep_for(ring, LEASE), -VB_ELOST);
		assert_true(vb_lock_valid(w.b, &his));
		assert_int_equal(vb_lock_release(w.a, &g), -VB_ELOST);
		must(vb_lock_release(w.b, &his));
		must(vb_ring_close(ring));
		close_world(&w);
	}
}

static void test_not_kept(void **state)
{
	unsigned cannot = 0, need_not = 0;

	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		struct vb_ring *ring = open_ring();
		char said[512] = "";
		struct vb_grant g;
		struct world w;
		bool leased;
		int err;

		open_world(&w, (*l)->name);
		must(vb_lock_acquire(w.a, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g));
		leased = g.valid_until_ns != VB_FOREVER_NS;
		vb_log_capture_begin(said, sizeof(said));
		if (!leased || (*l)->renew == NULL) {
			err = keep(ring, &w, &g, NULL);
			assert_int_equal(err, leased ? -EOPNOTSUPP : 0);
			cannot += leased;
			need_not += !leased;
		}
		must(vb_lock_release(w.a, &g));
		assert_int_equal(keep(ring, &w, &g, NULL), -EINVAL);
		vb_log_capture_end();
		must(vb_ring_close(ring));
		close_world(&w);
	}
	assert_true(cannot >= 3 && need_not >= 5);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_who_can),
		cmocka_unit_test(test_not_held),
		cmocka_unit_test(test_held_for_long),
		cmocka_unit_test(test_read_for_long),
		cmocka_unit_test(test_over_stays_over),
		cmocka_unit_test(test_lost_meanwhile),
		cmocka_unit_test(test_others_read_meanwhile),
		cmocka_unit_test(test_readers),
		cmocka_unit_test(test_lost_answer),
		cmocka_unit_test(test_lost_answer_of_a_reader),
		cmocka_unit_test(test_never_asked),
		cmocka_unit_test(test_without_a_server),
		cmocka_unit_test(test_another_server),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_kept),
		cmocka_unit_test(test_kept_no_longer),
		cmocka_unit_test(test_kept_from_the_middle),
		cmocka_unit_test(test_kept_until_a_renewal),
		cmocka_unit_test(test_kept_over_a_restart),
		cmocka_unit_test(test_kept_and_lost),
		cmocka_unit_test(test_not_kept),
	};

	return cmocka_run_group_tests_name("renew", tests, NULL, NULL);
}
