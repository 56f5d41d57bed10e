/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link that is down for a moment: its verbs are refused, which is to say that they are not executed.
 * Wherever in an acquire and its release that is, the client has been told the truth, and the lock is
 * not lost.
 */
#include "sim_test.h"

#include <errno.h>
#include <limits.h>

#include "base/log.h"
#include "lock/lock.h"

/* Verbs that a hold posts, most of them while it waits; and for how many of them a link is down. */
#define POSTS 16
#define DOWN  3

/* One endpoint's link. */
static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	unsigned posted, first, n; /* which of its posts are refused */
	uint64_t down_ns;          /* or for how long from the first-th on; then n is UINT_MAX */
	uint64_t until_ns;
	unsigned refused, swallows; /* so many of its posts get lost when it is there again */
} link_;

static int end_with(struct vb_batch *batch, int status)
{
	batch->pending = 0;
	for (unsigned i = 0; i < batch->n; i++)
		batch->verbs[i].status = status;
	return 0;
}

static int post_over_it(struct vb_ep *ep, struct vb_batch *batch)
{
	unsigned k = link_.posted++;

	if (k == link_.first)
		link_.until_ns = now() + link_.down_ns;
	if (k < link_.first || k - link_.first >= link_.n ||
	    (link_.down_ns != 0 && now() >= link_.until_ns)) {
		if (link_.swallows == 0)
			return link_.real->post(ep, batch);
		link_.swallows--;
		return end_with(batch, 0);
	}
	link_.refused++;
	return end_with(batch, -VB_EPEERGONE);
}

struct story {
	enum vb_mode mode;
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server; /* NULL: it has none */
	struct vb_lock_client *me, *other, *third;
	int others, got, released, after;
	bool tries;
	const char *options;
	uint64_t relink_ns, down_ns, got_ns;
};

static void story_open(struct story *s, const char *lock)
{
	const struct vb_lock_space_params p = {.lock = lock, .options = s->options, .locks = 4};

	s->f = cluster("profile=cx5", 4, 1);
	s->f->caps.relink_ns = s->relink_ns;
	assert_int_equal(vb_lock_space_open(s->f, &p, &s->space), 0);
	if (s->space->ops->caps & VB_LOCK_SERVER)
		assert_int_equal(vb_lock_server_start(s->space, 0, 0, 1, &s->server), 0);
	assert_int_equal(vb_lock_client_open(s->space, 1, &s->me), 0);
	assert_int_equal(vb_lock_client_open(s->space, 2, &s->other), 0);
	assert_int_equal(vb_lock_client_open(s->space, 3, &s->third), 0);
	s->others = 0;
	s->got = s->released = s->after = -1;
}

static void story_close(struct story *s)
{
	s->me->ep->ops = link_.real;
	vb_lock_server_stop(s->server);
	vb_sched_kill_all(vb_sched_self());
	vb_lock_client_bury(s->me);
	vb_lock_client_bury(s->other);
	vb_lock_client_bury(s->third);
	vb_lock_space_close(s->space);
	vb_fabric_close(s->f);
	vb_sched_destroy(vb_sched_self());
}

static void is_in_the_way(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->other, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g), 0);
	vb_ep_sleep(s->other->ep, 20000);
	s->others = vb_lock_release(s->other, &g);
}

static void holds(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	if (s->tries)
		s->got = vb_lock_try(s->me, 1, s->mode, &g);
	else
		s->got = vb_lock_acquire(s->me, 1, s->mode, VB_FOREVER_NS, &g);
	s->got_ns = now();
	if (s->got == 0)
		s->released = vb_lock_release(s->me, &g);
}

static void comes_after(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->after = vb_lock_acquire(s->third, 1, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	if (s->after == 0)
		s->after = vb_lock_release(s->third, &g);
}

/* Its link is down for n posts from the first-th on. */
static void break_link(struct story *s, unsigned first, unsigned n)
{
	link_.real = s->me->ep->ops;
	link_.ops = *link_.real;
	link_.ops.post = post_over_it;
	link_.posted = link_.refused = link_.swallows = 0;
	link_.down_ns = s->down_ns;
	link_.first = first;
	link_.n = n;
	s->me->ep->ops = &link_.ops;
}

/* busy: somebody else holds when it asks. */
static void hold_over(struct story *s, const char *lock, bool busy, unsigned first, unsigned n)
{
	story_open(s, lock);
	break_link(s, first, n);
	if (busy)
		spawn(is_in_the_way, s);
	(void)vb_sched_run(vb_sched_self(), NULL, now() + 5000);
	spawn(holds, s);
	(void)vb_sched_run(vb_sched_self(), NULL, now() + 10000000000);
	spawn(comes_after, s);
	(void)vb_sched_run(vb_sched_self(), NULL, now() + 1000000000);
}

/* Told that it has the lock, and gave it back; or that it has not, and nothing stands in its name. */
static bool is_well(const struct story *s)
{
	if (s->after != 0 || s->others != 0)
		return false;
	if (s->got == 0)
		return s->released == 0;
	return s->got == -VB_EPEERGONE || (s->tries && s->got == -EAGAIN);
}

static const struct {
	const char *lock;
	enum vb_mode mode;
} holders[] = {
	{"cas", VB_EXCLUSIVE},           {"cas-backoff", VB_EXCLUSIVE},
	{"retry-on-fail", VB_EXCLUSIVE}, {"retry-on-fail", VB_SHARED},
	{"drtm", VB_EXCLUSIVE},          {"drtm", VB_SHARED},
	{"mcs", VB_EXCLUSIVE},           {"ncosed", VB_EXCLUSIVE},
	{"ncosed", VB_SHARED},           {"rma-rw", VB_EXCLUSIVE},
	{"rma-rw", VB_SHARED},
};

static void test_anywhere(void **state)
{
	unsigned denied = 0, granted = 0;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(holders); i++) {
		for (unsigned how = 0; how < 4; how++) {
			for (unsigned first = 0; first < POSTS; first++) {
				struct story s = {.mode = holders[i].mode, .tries = how & 2};

				hold_over(&s, holders[i].lock, how & 1, first, DOWN);
				if (!is_well(&s))
					fail_msg(
						"%s, %s, %s, verb %u refused: got %d, released %d, "
						"the next one %d",
						holders[i].lock, vb_lock_mode_name(s.mode),
						how & 1 ? "busy" : "free", first, s.got, s.released,
						s.after);
				denied += link_.refused > 0 && s.got != 0;
				granted += link_.refused > 0 && s.got == 0;
				story_close(&s);
			}
		}
	}
	assert_true(denied >= 60 && granted >= 50);
}

/* A link that stays down: the outcome is unknown, and told so. */
static void test_for_good(void **state)
{
	const unsigned ever = 100000;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(holders); i++) {
		char said[4096];

		for (unsigned first = 0; first < POSTS; first++) {
			struct story s = {.mode = holders[i].mode};

			vb_log_capture_begin(said, sizeof(said));
			hold_over(&s, holders[i].lock, true, first, ever);
			vb_log_capture_end();
			if (s.got == 0)
				assert_true(s.released == -VB_EUNKNOWN || s.released == 0 ||
					    s.released == -VB_ELOST);
			else if (s.got == -1) /* waits in a queue that is broken */
				assert_true(s.space->ops->caps & VB_LOCK_MESSAGES);
			else
				assert_true(s.got == -VB_EUNKNOWN || s.got == -VB_EPEERGONE);
			/* What is not granted, for sure, is in nobody's way. */
			if (s.got == -VB_EPEERGONE || s.released == 0)
				assert_true(s.after == 0 && s.others == 0);
			story_close(&s);
		}
	}
}

static void comes_in(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->other, 1, VB_SHARED, VB_FOREVER_NS, &g), 0);
	vb_ep_sleep(s->other->ep, 100000);
	s->others = vb_lock_release(s->other, &g);
}

/* A try of rma-rw that has the root and finds that a reader has come in gives the root back; then the link
 * goes down for good.  It is not told that it was not granted, for then nothing would be in others' way. */
static void test_try_withdraws(void **state)
{
	unsigned unknown = 0;
	char said[8192];

	(void)state;
	for (unsigned first = 4; first < 9; first++) {
		for (uint64_t off = 0; off < 16000; off += 500) {
			struct story s = {.mode = VB_EXCLUSIVE, .tries = true};

			vb_log_capture_begin(said, sizeof(said));
			story_open(&s, "rma-rw");
			break_link(&s, first, 100000);
			spawn(holds, &s);
			(void)vb_sched_run(vb_sched_self(), NULL, now() + off);
			spawn(comes_in, &s);
			(void)vb_sched_run(vb_sched_self(), NULL, now() + 40000000);
			spawn(comes_after, &s);
			(void)vb_sched_run(vb_sched_self(), NULL, now() + 40000000);
			vb_log_capture_end();
			if (s.got == -VB_EPEERGONE || s.got == -EAGAIN)
				assert_int_equal(s.after, 0);
			unknown += s.got == -VB_EUNKNOWN && s.after != 0;
			story_close(&s);
		}
	}
	assert_true(unknown > 0);
}

/* A link that is there again after a while refuses until it has been made anew; the fabric says how long
 * that may be. */
static void test_made_anew(void **state)
{
	unsigned through = 0;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(holders); i++) {
		for (unsigned first = 0; first < 6; first++) {
			struct story s = {.mode = holders[i].mode,
					  .relink_ns = 40000000,
					  .down_ns = 39000000};

			hold_over(&s, holders[i].lock, first & 1, first, UINT_MAX);
			if (!is_well(&s))
				fail_msg("%s, %s, from verb %u on: got %d, released %d, the next "
					 "one %d",
					 holders[i].lock, vb_lock_mode_name(s.mode), first, s.got,
					 s.released, s.after);
			through += s.got == 0 && link_.refused > VB_LOCK_ASKS;
			story_close(&s);
		}
	}
	assert_true(through >= 11);
}

/* Who asks a server waits for an answer for longer each time that none came; a request that was refused has
 * not been waited for. */
static void test_refused_is_not_waited_for(void **state)
{
	/* Each for some twenty requests of its own. */
	static const struct {
		const char *lock;
		uint64_t down_ns;
	} served[] = {{"rpc", 2000000}, {"traditional", 50000000}, {"traditional-ro", 50000000}};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(served); i++) {
		struct story s = {.mode = VB_EXCLUSIVE};

		story_open(&s, served[i].lock);
		spawn(holds, &s);
		(void)vb_sched_run(vb_sched_self(), NULL, now() + s.space->lease_ns);
		assert_int_equal(s.released, 0);
		s.down_ns = served[i].down_ns;
		break_link(&s, 0, UINT_MAX);
		link_.swallows = 1;
		s.got = -1;
		spawn(holds, &s);
		(void)vb_sched_run(vb_sched_self(), NULL, now() + 12 * s.space->lease_ns);
		assert_int_equal(s.got, 0);
		assert_int_equal(link_.swallows, 0);
		assert_in_range(link_.refused, 10, 40);
		assert_in_range(s.got_ns - link_.until_ns, 1, s.space->lease_ns / 2);
		story_close(&s);
	}
}

/* ---- a server that has done what it was asked, and dies before anybody hears of it ---- */

static bool deaf;

static int hears(struct vb_ep *ep, struct vb_msg *out)
{
	int err = link_.real->recv(ep, out);

	return err == 0 && deaf ? link_.real->recv(ep, out) : err;
}

static void gives_back(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->got = vb_lock_acquire(s->me, 1, VB_SHARED, VB_FOREVER_NS, &g);
	deaf = true;
	s->released = vb_lock_release(s->me, &g);
}

static void reads_on(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	s->others = vb_lock_acquire(s->other, 1, VB_SHARED, VB_FOREVER_NS, &g);
}

/* Readers of a group have one ticket.  A release that the next server is told again would give back what
 * another reader holds, and let a writer in beside it. */
static void test_released_once(void **state)
{
	static const char *const served[] = {"rpc", "traditional", "traditional-ro"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(served); i++) {
		struct story s = {0};
		uint64_t begun, lease;
		struct vb_grant g;
		char said[256];

		story_open(&s, served[i]);
		lease = s.space->lease_ns;
		break_link(&s, 0, 0);
		link_.ops.recv = hears;
		deaf = false;
		begun = now();
		spawn(reads_on, &s);
		(void)vb_sched_run(vb_sched_self(), NULL, now() + 20000);
		spawn(gives_back, &s);
		(void)vb_sched_run(vb_sched_self(), NULL, now() + 50000);
		assert_true(s.others == 0 && s.got == 0 && s.released == -1);
		vb_log_capture_begin(said, sizeof(said));
		vb_lock_server_bury(s.server);
		assert_int_equal(vb_lock_server_start(s.space, 0, 0, 1, &s.server), 0);
		/* Whoever comes finds the new one, for all clients of the space. */
		vb_lock_server_forget(s.space, 0);
		assert_int_equal(vb_lock_try(s.third, 1, VB_EXCLUSIVE, &g), -EAGAIN);
		deaf = false;
		(void)vb_sched_run(vb_sched_self(), NULL, begun + lease / 2);
		vb_log_capture_end();
		assert_int_equal(s.released, -VB_EUNKNOWN);
		assert_int_equal(vb_lock_try(s.third, 1, VB_EXCLUSIVE, &g), -EAGAIN);
		assert_true(now() < begun + lease);
		story_close(&s);
	}
}

/* A release waits for its successor's message for no less than it takes to send it again and again. */
static void test_successor_is_awaited(void **state)
{
	static const char *const queues[] = {"mcs", "ncosed", "rma-rw"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(queues); i++) {
		unsigned refused = 0;

		for (unsigned first = 1; first < 6; first++) {
			struct story s = {.mode = VB_EXCLUSIVE, .options = "successor_wait=1ms"};

			hold_over(&s, queues[i], true, first, DOWN);
			if (!is_well(&s))
				fail_msg("%s, from verb %u on: got %d, released %d, the one "
					 "before %d",
					 queues[i], first, s.got, s.released, s.others);
			refused += s.got == 0 && link_.refused == DOWN;
			story_close(&s);
		}
		assert_true(refused >= 2);
	}
}

/* Behind a ticket, or a place in the entry: what a refused look has not shown is no answer. */
static void test_refused_looks(void **state)
{
	static const char *const tickets[] = {"dslr", "dslr-update", "shiftlock"};

	(void)state;
	for (unsigned i = 0; i < 4 * VB_ARRAY_SIZE(tickets); i++) {
		const char *lock = tickets[i / 4];
		bool good = i & 1;
		unsigned waited = 0, unknown = 0;

		for (unsigned first = 1; first < POSTS; first++) {
			struct story s = {.mode = i & 2 ? VB_SHARED : VB_EXCLUSIVE};

			hold_over(&s, lock, true, first, good ? DOWN : UINT_MAX);
			/* Its place stands, so it is not "not granted". */
			if (s.got != 0 && (good || s.got != -VB_EUNKNOWN))
				fail_msg("%s, %s, from verb %u on: got %d", lock,
					 vb_lock_mode_name(s.mode), first, s.got);
			waited += s.got == 0 && link_.refused > 0 && s.released == 0;
			unknown += s.got == -VB_EUNKNOWN;
			assert_int_equal(s.others, 0);
			story_close(&s);
		}
		assert_true(good ? waited > 0 : unknown > 0);
	}
}

static void converts(void *arg)
{
	struct story *s = arg;
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire(s->me, 1, VB_UPDATE, VB_FOREVER_NS, &g), 0);
	break_link(s, 1, s->tries ? DOWN : UINT_MAX);
	s->got = vb_lock_convert(s->me, &g, VB_EXCLUSIVE, VB_FOREVER_NS);
	if (s->got == 0)
		assert_true(g.mode == VB_EXCLUSIVE && vb_lock_valid(s->me, &g));
	s->released = vb_lock_release(s->me, &g);
}

/* The reader that it waits for leaves while its link is down. */
static void test_refused_conversion(void **state)
{
	(void)state;
	for (unsigned comes_back = 0; comes_back < 2; comes_back++) {
		struct story s = {.tries = comes_back};

		story_open(&s, "dslr-update");
		link_.real = s.me->ep->ops;
		spawn(comes_in, &s);
		(void)vb_sched_run(vb_sched_self(), NULL, now() + 10000);
		spawn(converts, &s);
		(void)vb_sched_run(vb_sched_self(), NULL, now() + 1000000000);
		assert_true(link_.refused >= DOWN);
		assert_int_equal(s.others, 0);
		assert_int_equal(s.got, comes_back ? 0 : -VB_EUNKNOWN);
		if (comes_back)
			assert_int_equal(s.released, 0);
		story_close(&s);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_anywhere),
		cmocka_unit_test(test_for_good),
		cmocka_unit_test(test_try_withdraws),
		cmocka_unit_test(test_made_anew),
		cmocka_unit_test(test_refused_is_not_waited_for),
		cmocka_unit_test(test_released_once),
		cmocka_unit_test(test_successor_is_awaited),
		cmocka_unit_test(test_refused_looks),
		cmocka_unit_test(test_refused_conversion),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
