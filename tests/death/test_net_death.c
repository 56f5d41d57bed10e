/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 and SIGSTOP of clients and of the lock server, on a network fabric.
 *
 *	test_net_death FABRIC
 *
 * A lock that survives its clients is had again within its stated time (with a factor for a machine
 * with other work), by one at a time, with tokens that grow; whoever was stopped past its lease is
 * told, and its late release harms nobody.  One that does not survive stalls: its survivors time
 * out.  When the server dies every call ends with an error, and when it was only stopped things go
 * on.
 */
#include "net_procs.h"
#include "side_by_side.h"

/* Most of their time they wait.  What they share is a device, where the fabric has one. */
#define AT_ONCE 4

static const char *fabric;

static void scene_open(struct procs *w, const struct vb_lock_ops *ops, unsigned actors)
{
	*w = (struct procs){.fabric = fabric, .ops = ops};
	procs_open(w, actors);
}

/* For ever, until the test ends this process. */
static void linger(struct vb_lock_client *me)
{
	for (;;)
		vb_ep_sleep(me->ep, 1000 * MS);
}

/* ---- a holder is killed ---- */

enum { HELD, ASKED, DEAD, GRANTED };

static void doomed_holder(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;

	EXPECT_ERR(w, 0, procs_take(w, me, 0, PATIENCE_NS, &g));
	board_add(&w->b->step[HELD]);
	linger(me);
}

static void heir(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;
	int err;

	AWAIT(w, me, HELD);
	board_add(&w->b->step[ASKED]);
	if (survives(w)) {
		EXPECT_ERR(w, 0, procs_take(w, me, 0, recovery_bound(w), &g));
		EXPECT_ERR(w, 0, procs_give_back(w, me, &g));
	} else {
		EXPECT_ERR(w, -ETIMEDOUT, procs_take(w, me, 0, 300 * MS, &g));
		AWAIT(w, me, DEAD);
		EXPECT_ERR(w, -EAGAIN, vb_lock_try(me, 0, VB_EXCLUSIVE, &g));
	}
	/* The other locks, one for each heir, are none the worse for it.  On a machine that was
	 * busy for longer than the bound an answer is lost, and nothing that does not survive can
	 * be said to be free afterwards. */
	err = procs_take(w, me, 1 + w->rank % 3, PATIENCE_NS, &g);
	if (err == -VB_EUNKNOWN && !survives(w) && w->took_ns >= LATE_NS)
		return;
	EXPECT_ERR(w, 0, err);
	EXPECT_ERR(w, 0, procs_give_back(w, me, &g));
}

static void holder_killed(const struct vb_lock_ops *ops)
{
	static const actor_fn actors[] = {doomed_holder, heir, heir};
	struct procs w;

	scene_open(&w, ops, 3);
	procs_start(&w, actors);
	if (procs_reached(&w, ASKED, 2)) {
		usleep(20000); /* most of the time they are in the queue now */
		procs_kill(&w, 1);
		board_add(&w.b->step[DEAD]);
		procs_reached(&w, 7, 2);
	}
	procs_close(&w);
}

/* ---- one in the queue is killed ---- */

/* On a machine that was busy for longer than the lease it is lost, and where the queue does not
 * survive it may be that the dead, who may stand behind anybody, cannot be told: that is said, and
 * is not the matter here. */
static void give_back_beside_dead(struct procs *w, struct vb_lock_client *me, struct vb_grant *g)
{
	int err = procs_give_back(w, me, g);

	if (err != (survives(w) ? -VB_ELOST : -VB_EUNKNOWN))
		EXPECT_ERR(w, 0, err);
}

static void patient_holder(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;

	EXPECT_ERR(w, 0, procs_take(w, me, 0, PATIENCE_NS, &g));
	board_add(&w->b->step[HELD]);
	AWAIT(w, me, DEAD);
	give_back_beside_dead(w, me, &g);
}

static void doomed_waiter(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;

	AWAIT(w, me, HELD);
	board_add(&w->b->step[ASKED]);
	if (procs_take(w, me, 0, PATIENCE_NS, &g) == 0)
		board_add(&w->b->step[GRANTED]);
	linger(me);
}

static void next_waiter(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;
	int err;

	AWAIT(w, me, ASKED);
	vb_ep_sleep(me->ep, 10 * MS);
	board_add(&w->b->step[ASKED]);
	err = procs_take(w, me, 0, survives(w) ? recovery_bound(w) : 1000 * MS, &g);
	/* A queue that does not survive is broken where the dead stood in it. */
	if (survives(w) || err != -ETIMEDOUT)
		EXPECT_ERR(w, 0, err);
	if (err == 0)
		give_back_beside_dead(w, me, &g);
}

static void waiter_killed(const struct vb_lock_ops *ops)
{
	static const actor_fn actors[] = {patient_holder, doomed_waiter, next_waiter};
	struct procs w;

	scene_open(&w, ops, 3);
	procs_start(&w, actors);
	if (procs_reached(&w, ASKED, 2)) {
		usleep(20000);
		procs_kill(&w, 2);
		board_add(&w.b->step[DEAD]);
		procs_reached(&w, 7, 2);
	}
	procs_close(&w);
}

/* ---- a holder is stopped for longer than its lease ---- */

enum { STOPPED = 2, TAKEN, AWAKE };

static void stopped_holder(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;

	EXPECT_ERR(w, 0, procs_take(w, me, 0, PATIENCE_NS, &g));
	board_add(&w->b->step[HELD]);
	AWAIT(w, me, AWAKE);
	if (survives(w)) {
		EXPECT(w, !vb_lock_valid(me, &g));
		EXPECT_ERR(w, -VB_ELOST, procs_give_back(w, me, &g));
	} else {
		EXPECT(w, vb_lock_valid(me, &g));
		EXPECT_ERR(w, 0, procs_give_back(w, me, &g));
	}
	board_add(&w->b->step[GRANTED + 2]);
	EXPECT_ERR(w, 0, procs_take(w, me, 0, recovery_bound(w) + PATIENCE_NS, &g));
	EXPECT_ERR(w, 0, procs_give_back(w, me, &g));
}

static void quick_rival(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;
	int err;

	AWAIT(w, me, STOPPED);
	if (!survives(w)) {
		/* Without a lease there is nothing to outlast. */
		EXPECT_ERR(w, -ETIMEDOUT, procs_take(w, me, 0, LEASE_NS, &g));
		board_add(&w->b->step[TAKEN]);
		AWAIT(w, me, AWAKE);
		EXPECT_ERR(w, 0, procs_take(w, me, 0, PATIENCE_NS, &g));
		EXPECT_ERR(w, 0, procs_give_back(w, me, &g));
		return;
	}
	EXPECT_ERR(w, 0, procs_take(w, me, 0, recovery_bound(w), &g));
	board_add(&w->b->step[TAKEN]);
	/* The late release comes while we hold: ours stays. */
	AWAIT(w, me, GRANTED + 2);
	err = procs_give_back(w, me, &g);
	if (vb_lock_now(me) < g.valid_until_ns || err != -VB_ELOST)
		EXPECT_ERR(w, 0, err);
}

static void holder_stopped(const struct vb_lock_ops *ops)
{
	static const actor_fn actors[] = {stopped_holder, quick_rival};
	struct procs w;

	scene_open(&w, ops, 2);
	procs_start(&w, actors);
	if (procs_reached(&w, HELD, 1)) {
		procs_signal(&w, 1, SIGSTOP);
		board_add(&w.b->step[STOPPED]);
		procs_reached(&w, TAKEN, 1);
		procs_signal(&w, 1, SIGCONT);
		board_add(&w.b->step[AWAKE]);
		procs_reached(&w, 7, 2);
	}
	procs_close(&w);
}

/* ---- the server is killed ---- */

/* What a call may say when the server is gone. */
static bool is_clear(int err)
{
	return err == -VB_EPEERGONE || err == -VB_EUNKNOWN || err == -VB_ELOST;
}

/* A call that needs the server ends with an error, soon: once a verb's time is up. */
static void orphan_calls(struct procs *w, struct vb_lock_client *me)
{
	for (unsigned i = 0; i < 3; i++) {
		uint64_t begun = vb_clock_gettime_ns();
		struct vb_grant g;
		int err = vb_lock_acquire(me, 2, VB_EXCLUSIVE, PATIENCE_NS, &g);

		if (!is_clear(err))
			procs_fail(w, "acquire without a server: %s", err ? vb_strerror(err) : "0");
		if (vb_clock_gettime_ns() - begun > 20 * BOUND_NS + BUSY_NS)
			procs_fail(w, "acquire without a server took %" PRIu64 " ms",
				   (vb_clock_gettime_ns() - begun) / MS);
	}
}

static void orphan_holder(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;
	int err;

	EXPECT_ERR(w, 0, procs_take(w, me, 0, PATIENCE_NS, &g));
	board_add(&w->b->step[HELD]);
	AWAIT(w, me, DEAD);
	err = procs_give_back(w, me, &g);
	/* Where the lock is handed from client to client nobody need notice. */
	EXPECT(w, err == 0 || is_clear(err));
	orphan_calls(w, me);
}

static void orphan_waiter(struct procs *w, struct vb_lock_client *me)
{
	struct vb_grant g;
	int err;

	AWAIT(w, me, HELD);
	board_add(&w->b->step[ASKED]);
	err = procs_take(w, me, 0, 4 * BUSY_NS, &g);
	EXPECT(w, err == 0 || err == -ETIMEDOUT || is_clear(err));
	if (err == 0) {
		err = procs_give_back(w, me, &g);
		EXPECT(w, err == 0 || is_clear(err));
	}
	/* On a busy machine a verb's time may be up before the server is. */
	AWAIT(w, me, DEAD);
	orphan_calls(w, me);
}

static void server_killed(const struct vb_lock_ops *ops)
{
	static const actor_fn actors[] = {orphan_holder, orphan_waiter};
	struct procs w;

	scene_open(&w, ops, 2);
	procs_start(&w, actors);
	if (procs_reached(&w, ASKED, 1)) {
		usleep(20000);
		procs_kill(&w, 0);
		board_add(&w.b->step[DEAD]);
		procs_reached(&w, 7, 2);
	}
	procs_close(&w);
}

/* ---- the server is stopped for a while ---- */

#define AFTERWARDS 50

/* Takes and gives back, whatever comes of it; afterwards it must work again, on locks that have
 * been left alone where a lost answer may have cost the others. */
static void busy_client(struct procs *w, struct vb_lock_client *me)
{
	uint64_t end;
	struct vb_grant g;

	for (unsigned i = 0; !board_get(&w->b->step[AWAKE]); i++) {
		int err = procs_take(w, me, i % 2, LEASE_NS, &g);

		if (err == 0) {
			board_add(&w->b->step[HELD]);
			err = procs_give_back(w, me, &g);
		}
		EXPECT(w, err == 0 || err == -ETIMEDOUT || is_clear(err));
		vb_ep_sleep(me->ep, MS);
	}
	end = vb_clock_gettime_ns() + PATIENCE_NS;
	for (unsigned n = 0; n < AFTERWARDS;) {
		int err = procs_take(w, me, survives(w) ? n % 2 : 2 + n % 2, recovery_bound(w), &g);

		n += err == 0;
		if (err == 0)
			err = procs_give_back(w, me, &g);
		if (err == -VB_EUNKNOWN)
			board_add(&w->b->unknown);
		/* A lost answer may have cost the others these locks as well. */
		if (err == -ETIMEDOUT && !survives(w) && board_get(&w->b->unknown))
			err = -VB_EUNKNOWN;
		else if (is_clear(err))
			err = 0;
		EXPECT_ERR(w, 0, err);
		EXPECT(w, vb_clock_gettime_ns() < end);
		vb_ep_sleep(me->ep, MS);
	}
}

static void server_stopped(const struct vb_lock_ops *ops)
{
	static const actor_fn actors[] = {busy_client, busy_client};
	struct procs w;

	scene_open(&w, ops, 2);
	procs_start(&w, actors);
	if (procs_reached(&w, HELD, 20)) {
		procs_signal(&w, 0, SIGSTOP);
		usleep(2 * LEASE_NS / 1000);
		procs_signal(&w, 0, SIGCONT);
		board_add(&w.b->step[AWAKE]);
		procs_reached(&w, 7, 2);
	}
	procs_close(&w);
}

/* ---- all of them ---- */

static const struct scene {
	const char *name;
	void (*play)(const struct vb_lock_ops *ops);
} scenes[] = {
	{"a holder is killed", holder_killed},     {"a waiter is killed", waiter_killed},
	{"a holder is stopped", holder_stopped},   {"the server is killed", server_killed},
	{"the server is stopped", server_stopped},
};

struct turn {
	const struct scene *scene;
	const struct vb_lock_ops *ops;
};

static void play(void **state)
{
	const struct turn *t = *state;
	unsigned lost;

	do {
		lost = scenes_lost;
		t->scene->play(t->ops);
	} while (scenes_lost > lost);
}

int main(int argc, char **argv)
{
	static struct turn turns[VB_ARRAY_SIZE(scenes) * 64];
	static struct CMUnitTest tests[VB_ARRAY_SIZE(turns)];
	static char names[VB_ARRAY_SIZE(turns)][80];
	const char *absent = NULL;
	size_t n = 0;

	fabric = argc == 2 ? argv[1] : "";
	if (strcmp(fabric, "tcp") != 0 && strcmp(fabric, "ucx") != 0 &&
	    strcmp(fabric, "verbs") != 0) {
		fprintf(stderr, "usage: test_net_death tcp|ucx|verbs\n");
		return 2;
	}
	absent = vb_fabric_find(fabric)->absent();
	if (absent == NULL && strcmp(fabric, "verbs") == 0 &&
	    getenv("VERBENA_VERBS_DEVICE") == NULL)
		absent = "VERBENA_VERBS_DEVICE names no RDMA device";
	if (absent != NULL) {
		printf("SKIP death on %s: %s\n", fabric, absent);
		return 77;
	}
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		for (size_t i = 0; i < VB_ARRAY_SIZE(scenes); i++) {
			vb_assert(n < VB_ARRAY_SIZE(turns));
			turns[n] = (struct turn){&scenes[i], *l};
			snprintf(names[n], sizeof(names[n]), "%s, %s: %s", fabric, (*l)->name,
				 scenes[i].name);
			tests[n] = (struct CMUnitTest){
				.name = names[n], .test_func = play, .initial_state = &turns[n]};
			n++;
		}
	}
	return side_by_side("death on a network", tests, n,
			    strcmp(fabric, "verbs") != 0 ? AT_ONCE : 1);
}
