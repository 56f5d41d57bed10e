/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Agents of the lock table that are followed by others, in virtual time: what becomes of grants then,
 * and that no request ends what it is not about.
 */
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sim_test.h"

#include "base/log.h"
#include "lock/table/table.h"

#define US      1000ull
#define MS      1000000ull
#define LEASE   (100 * MS)
#define CLIENTS 3
/* Hundreds of agents begin here, which is quicker with no more room than is used. */
#define FEW     "requests=256"
#define WORKERS 2

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server[WORKERS];
	struct vb_lock_client *c[CLIENTS];
};

static void start(struct world *w, unsigned workers)
{
	for (unsigned i = 0; i < workers; i++)
		assert_int_equal(vb_lock_server_start(w->space, 0, i, workers, &w->server[i]), 0);
}

static void bury(struct world *w)
{
	for (unsigned i = 0; i < WORKERS; i++) {
		if (w->server[i] != NULL)
			vb_lock_server_bury(w->server[i]);
		w->server[i] = NULL;
	}
}

static void open_world(struct world *w, const char *options, unsigned workers)
{
	struct vb_lock_space_params p = {
		.lock = "table", .options = options, .locks = 100, .lease_ns = LEASE};

	*w = (struct world){.f = cluster("profile=cx5", 1 + CLIENTS, 1)};
	assert_int_equal(vb_lock_space_open(w->f, &p, &w->space), 0);
	start(w, workers);
	for (uint16_t i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_lock_client_open(w->space, 1 + i, &w->c[i]), 0);
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w->c[i]);
	for (unsigned i = 0; i < WORKERS; i++)
		vb_lock_server_stop(w->server[i]);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

static int takes(struct world *w, unsigned i, uint64_t lock, struct vb_grant *g)
{
	return vb_lock_acquire(w->c[i], lock, VB_EXCLUSIVE, 3 * LEASE, g);
}

static void both(const struct world *w, const struct vb_grant *a, const struct vb_grant *b)
{
	if (vb_lock_valid(w->c[0], a) && vb_lock_valid(w->c[1], b))
		fail_msg("two hold lock %d", (int)a->lock);
}

/* A call in the background. */
struct call {
	struct world *w;
	unsigned i;
	uint64_t lock;
	struct vb_grant g;
	int err;
	bool done;
};

static void take_body(void *arg)
{
	struct call *c = arg;

	c->err = takes(c->w, c->i, c->lock, &c->g);
	c->done = true;
}

/* ---- too late ---- */

/*
 * The first client is stopped just when it tells the second agent of its grant, which that one gives
 * to another when its grace period is over.  The third agent is told nothing of that, and hears of the
 * old grant first.
 */
static void test_told_too_late(void **state)
{
	struct call his, more;
	struct vb_grant mine;
	struct world w;
	uint64_t begun;

	open_world(&w, FEW, 1);
	assert_int_equal(takes(&w, 0, 1, &mine), 0);
	bury(&w);
	start(&w, 1);
	begun = now();
	his = (struct call){.w = &w, .i = 1, .lock = 1};
	spawn(take_body, &his);
	vb_task_sleep_until(begun + LEASE - 5 * MS);
	assert_true(vb_lock_valid(w.c[0], &mine));
	vb_sim_ep_pause(w.c[0]->ep, begun + LEASE + 20 * MS);
	more = (struct call){.w = &w, .i = 0, .lock = 2};
	spawn(take_body, &more);
	vb_task_sleep_until(begun + LEASE + 10 * MS);
	assert_true(his.done && his.err == 0);
	assert_false(more.done);
	bury(&w);
	start(&w, 1);
	while (!more.done) {
		vb_task_sleep_until(now() + 100 * US);
		both(&w, &mine, &his.g);
	}
	assert_true(vb_lock_valid(w.c[1], &his.g));
	assert_int_equal(more.err, -ETIMEDOUT);
	assert_int_equal(vb_lock_release(w.c[0], &mine), -VB_ELOST);
	close_world(&w);
}

/* The second agent stands still when it is told, until its grace period is over: it may have granted the
 * lock before it hears of it, and does not believe it; nor does the client, if it still listens. */
static void told_after_the_grace(uint64_t late_ns)
{
	struct vb_grant mine, his;
	struct call more;
	struct world w;
	uint64_t begun;

	/* By messages: a lane would have the next request by then. */
	open_world(&w, FEW ",slots=0", 1);
	assert_int_equal(takes(&w, 0, 1, &mine), 0);
	bury(&w);
	start(&w, 1);
	begun = now();
	assert_int_equal(vb_lock_try(w.c[1], 1, VB_EXCLUSIVE, &his), -EAGAIN);
	vb_task_sleep_until(begun + LEASE - 5 * MS);
	assert_true(vb_lock_valid(w.c[0], &mine));
	vb_sim_ep_pause(w.server[0]->ep, begun + LEASE + late_ns);
	more = (struct call){.w = &w, .i = 0, .lock = 2};
	spawn(take_body, &more);
	vb_task_sleep_until(begun + LEASE + 30 * MS);
	assert_int_equal(vb_lock_try(w.c[1], 1, VB_EXCLUSIVE, &his), 0);
	while (!more.done)
		vb_task_sleep_until(now() + 100 * US);
	assert_false(vb_lock_valid(w.c[0], &mine));
	assert_int_equal(vb_lock_release(w.c[0], &mine), -VB_ELOST);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	close_world(&w);
}

static void test_told_after_the_grace(void **state)
{
	told_after_the_grace(600 * US);
	told_after_the_grace(20 * MS);
}

/* ---- over a server ---- */

static char dir[64], file[96];

static void keep_files(struct world *w, bool keep)
{
	((struct vb_locktab_options *)w->space->options)->persist = keep ? dir : NULL;
}

/* He asks for a lock until he has it, never beside me.  His token. */
static uint64_t guarded(struct world *w, const struct vb_grant *mine)
{
	struct call his = {.w = w, .i = 1, .lock = mine->lock};

	spawn(take_body, &his);
	while (!his.done) {
		vb_task_sleep_until(now() + 100 * US);
		if (his.done && his.err == 0)
			both(w, mine, &his.g);
	}
	assert_int_equal(his.err, 0);
	assert_int_equal(vb_lock_release(w->c[1], &his.g), 0);
	return his.g.token;
}

/* He cannot have it, and I have another lease from now. */
static void kept(struct world *w, struct vb_grant *mine)
{
	struct vb_grant none;

	/* Any call tells the agent of it. */
	assert_int_equal(vb_lock_try(w->c[0], 50, VB_EXCLUSIVE, &none), -EAGAIN);
	assert_true(vb_lock_valid(w->c[0], mine));
	assert_int_equal(vb_lock_try(w->c[1], mine->lock, VB_EXCLUSIVE, &none), -EAGAIN);
}

/* Who calls each of many agents keeps what the first has granted, for longer than a lease. */
static void kept_over_many(void)
{
	struct vb_grant mine;
	struct world w;
	uint64_t end;

	open_world(&w, FEW, 1);
	assert_int_equal(takes(&w, 0, 1, &mine), 0);
	end = mine.valid_until_ns;
	for (unsigned i = 0; i < 4; i++) {
		bury(&w);
		start(&w, 1);
		vb_task_sleep_until(now() + LEASE / 3);
		kept(&w, &mine);
	}
	assert_true(vb_lock_now(w.c[0]) > end);
	assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
	close_world(&w);
}

struct late {
	struct vb_lock_client *to;
	struct vb_ep *ep;
	uint64_t at_ns;
	uint64_t ticket;
	int err;
};

/* The last that the first agent said before it died, to the request after the last. */
static void say_late(void *arg)
{
	const struct late *l = arg;
	const struct vb_locktab_client *t = l->to->priv;
	struct vb_locktab_answer_slot slot = {
		.answer = {.number = t->number, .ticket = l->ticket, .err = l->err}};
	unsigned lane = vb_locktab_lane(t->number);
	struct vb_msg m = {.imm = lane};
	struct vb_verb v = {.op = VB_OP_WRITE_NOTIFY,
			    .addr = t->answer_at + lane * VB_LOCKTAB_LANE_BYTES,
			    .buf = &slot,
			    .len = sizeof(slot),
			    .peer = l->to->ep->self,
			    .msg = &m};
	struct vb_batch b = {.verbs = &v, .n = 1};

	slot.seal = vb_locktab_seal_answer(&slot.answer, l->to->ep->self);
	vb_task_sleep_until(l->at_ns);
	(void)vb_post(l->ep, &b);
}

/* The first agent's answer comes when its client asks another already: if it counts, that one hears of
 * the grant with the next call. */
static void granted_by_the_first(void)
{
	unsigned granted = 0;

	for (uint64_t at = 190 * US; at < 220 * US; at += 200) {
		struct vb_grant mine;
		struct late late;
		struct world w;

		open_world(&w, FEW, 1);
		assert_int_equal(takes(&w, 0, 2, &mine), 0);
		assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
		bury(&w);
		start(&w, 1);
		late = (struct late){
			.to = w.c[0], .ep = endpoint(w.f, 2), .at_ns = now() + at, .ticket = 1};
		spawn(say_late, &late);
		if (vb_lock_try(w.c[0], 1, VB_EXCLUSIVE, &mine) == 0) {
			granted++;
			kept(&w, &mine);
			assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
		}
		vb_task_sleep_until(now() + MS);
		vb_ep_close(late.ep);
		close_world(&w);
	}
	assert_in_range(granted, 50, 149);
}

/* The same where the first has refused, and the second, which knows all that the first knew, has granted
 * by then: whoever is told that it has not got the lock has not. */
static void refused_by_the_first(void)
{
	unsigned refused = 0;

	for (uint64_t at = 190 * US; at < 220 * US; at += 200) {
		struct vb_grant mine, his;
		struct late late;
		struct world w;

		open_world(&w, FEW, 1);
		keep_files(&w, true);
		bury(&w);
		start(&w, 1);
		vb_task_sleep_until(now() + 2 * LEASE);
		assert_int_equal(takes(&w, 0, 2, &mine), 0);
		assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
		bury(&w);
		start(&w, 1);
		late = (struct late){
			.to = w.c[0], .ep = endpoint(w.f, 2), .at_ns = now() + at, .err = -EAGAIN};
		spawn(say_late, &late);
		if (vb_lock_try(w.c[0], 1, VB_EXCLUSIVE, &mine) == 0) {
			assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
		} else {
			refused++;
			assert_int_equal(vb_lock_try(w.c[1], 1, VB_EXCLUSIVE, &his), 0);
			assert_int_equal(vb_lock_release(w.c[1], &his), 0);
		}
		vb_task_sleep_until(now() + MS);
		vb_ep_close(late.ep);
		close_world(&w);
		assert_int_equal(unlink(file), 0);
	}
	assert_in_range(refused, 5, 149);
}

/* And where it has converted, while the second is told of the mode before: another who shares with that
 * one is then not beside who believes that nobody is. */
static void converted_by_the_first(void)
{
	unsigned converted = 0;

	for (uint64_t at = 190 * US; at < 260 * US; at += 400) {
		struct vb_grant mine, his;
		struct late late;
		struct world w;

		open_world(&w, FEW, 1);
		assert_int_equal(vb_lock_acquire(w.c[0], 1, VB_SHARED, LEASE, &mine), 0);
		bury(&w);
		start(&w, 1);
		late = (struct late){
			.to = w.c[0], .ep = endpoint(w.f, 2), .at_ns = now() + at, .ticket = 2};
		spawn(say_late, &late);
		if (vb_lock_convert(w.c[0], &mine, VB_EXCLUSIVE, 3 * LEASE) == 0) {
			converted++;
			/* It has it at the second agent, or it has been told of none. */
			vb_task_sleep_until(now() + 10 * US);
			assert_int_equal(vb_lock_try(w.c[1], 1, VB_SHARED, &his), -EAGAIN);
			vb_task_sleep_until(mine.valid_until_ns - 5 * US);
			assert_int_equal(vb_lock_try(w.c[1], 1, VB_SHARED, &his), -EAGAIN);
		}
		(void)vb_lock_release(w.c[0], &mine);
		vb_task_sleep_until(now() + MS);
		vb_ep_close(late.ep);
		close_world(&w);
	}
	assert_true(converted > 0);
}

/* The second agent dies in its grace period: its file does not have what the first has granted, which
 * kept none, and nobody was told of the rest. */
static void never_two_without_a_call(void)
{
	for (unsigned agents = 1; agents <= 3; agents++) {
		struct vb_grant mine;
		struct world w;

		open_world(&w, FEW, 1);
		assert_int_equal(takes(&w, 0, 1, &mine), 0);
		keep_files(&w, true);
		for (unsigned i = 0; i < agents; i++) {
			bury(&w);
			start(&w, 1);
			vb_task_sleep_until(now() + 10 * MS);
		}
		guarded(&w, &mine);
		close_world(&w);
		assert_int_equal(unlink(file), 0);
	}
}

static void test_grant_over_a_server(void **state)
{
	kept_over_many();
	granted_by_the_first();
	refused_by_the_first();
	converted_by_the_first();
	never_two_without_a_call();
}

#define ROOM 16u

/* More clients have asked an agent over time than it has room for at once, and its file has the names of
 * all.  What the next one has no room for it does not take for nothing. */
static void test_more_names_than_room(void **state)
{
	struct vb_lock_client *c[ROOM + 2];
	struct vb_grant mine, his;
	struct world w;
	char options[128];

	snprintf(options, sizeof(options), "requests=%u,ask_for=2ms,persist=%s", ROOM, dir);
	open_world(&w, options, 1);
	for (unsigned i = 0; i < ROOM + 2; i++)
		assert_int_equal(vb_lock_client_open(w.space, (uint16_t)(1 + i % CLIENTS), &c[i]),
				 0);
	for (unsigned i = 0; i < ROOM; i++) {
		assert_int_equal(vb_lock_acquire(c[i], 2, VB_EXCLUSIVE, LEASE, &mine), 0);
		assert_int_equal(vb_lock_release(c[i], &mine), 0);
	}
	/* The first of them are forgotten, so that there is room. */
	vb_task_sleep_until(now() + 10 * MS);
	assert_int_equal(vb_lock_acquire(c[ROOM], 1, VB_EXCLUSIVE, LEASE, &mine), 0);
	bury(&w);
	start(&w, 1);
	vb_task_sleep_until(now() + 10 * MS);
	assert_true(vb_lock_valid(c[ROOM], &mine));
	assert_int_equal(vb_lock_try(c[ROOM + 1], 1, VB_EXCLUSIVE, &his), -EAGAIN);
	for (unsigned i = 0; i < ROOM + 2; i++)
		vb_lock_client_close(c[i]);
	close_world(&w);
	assert_int_equal(unlink(file), 0);
}

static void lose_segment(struct world *w)
{
	size_t bytes = VB_LOCK_WORKERS_MAX * sizeof(struct vb_locktab_life);

	memset(vb_local(w->f, w->space->base[0], bytes), 0, bytes);
}

/* With a file, and without what the segment knew: as with nothing, and larger tokens. */
static void test_without_the_segment(void **state)
{
	for (unsigned calls = 0; calls < 2; calls++) {
		struct vb_grant mine;
		struct world w;

		open_world(&w, FEW, 1);
		vb_lock_server_stop(w.server[0]);
		keep_files(&w, true);
		start(&w, 1);
		for (unsigned i = 0; i < 10; i++) {
			assert_int_equal(takes(&w, 0, 1, &mine), 0);
			if (i < 9)
				assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
		}
		bury(&w);
		lose_segment(&w);
		start(&w, 1);
		vb_task_sleep_until(now() + LEASE / 2);
		if (calls)
			kept(&w, &mine);
		assert_true(guarded(&w, &mine) > mine.token);
		close_world(&w);
		assert_int_equal(unlink(file), 0);
	}
}

/* ---- less ---- */

/* The agent does what the first client asks next, and its answer is lost. */
static void converts_unheard(struct world *w, const struct vb_grant *g, enum vb_mode mode)
{
	struct vb_lock_client *me = w->c[0];
	const struct vb_locktab_client *t = me->priv;
	const struct vb_locktab_ask ask = {.number = t->number + VB_LOCKTAB_STRIDE,
					   .kind = VB_LOCKTAB_CONVERT,
					   .flags = VB_LOCKTAB_BOUNDED,
					   .lock = g->lock,
					   .ref = g->token,
					   .mode = (uint8_t)mode};
	struct vb_locktab_answer answer;
	vb_peer agent;

	assert_int_equal(vb_lock_server_seek(me, g->lock, &agent), 0);
	vb_locktab_send_ask(me, 0, agent, &ask);
	vb_task_sleep_until(now() + 100 * US);
	assert_int_equal(vb_locktab_take_answer(me, ask.number, &answer), 0);
	assert_int_equal(answer.err, 0);
}

/* He shares what I have given up, unheard; the agent after that one is told by me first, and must not
 * turn him down for it. */
static void test_less_is_told(void **state)
{
	struct vb_grant mine, his, none;
	struct world w;

	open_world(&w, FEW, 1);
	assert_int_equal(takes(&w, 0, 1, &mine), 0);
	converts_unheard(&w, &mine, VB_SHARED);
	assert_int_equal(vb_lock_acquire(w.c[1], 1, VB_SHARED, LEASE, &his), 0);
	bury(&w);
	start(&w, 1);
	assert_int_equal(vb_lock_convert(w.c[0], &mine, VB_SHARED, VB_FOREVER_NS), 0);
	assert_true(vb_lock_valid(w.c[0], &mine));
	assert_true(vb_lock_valid(w.c[1], &his));
	assert_int_equal(vb_lock_try(w.c[1], 50, VB_EXCLUSIVE, &none), -EAGAIN);
	assert_true(vb_lock_valid(w.c[1], &his));
	assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
	assert_int_equal(vb_lock_try(w.c[2], 1, VB_EXCLUSIVE, &none), -EAGAIN);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	close_world(&w);
}

/* Nobody answers any more: I do not believe that I am alone, and give back what there is. */
static void test_less_is_unknown(void **state)
{
	struct vb_grant mine, his;
	struct world w;

	open_world(&w, FEW ",ask_for=20ms", 1);
	assert_int_equal(takes(&w, 0, 1, &mine), 0);
	converts_unheard(&w, &mine, VB_SHARED);
	assert_int_equal(vb_lock_acquire(w.c[1], 1, VB_SHARED, LEASE, &his), 0);
	bury(&w);
	vb_log_mute();
	assert_int_equal(vb_lock_convert(w.c[0], &mine, VB_SHARED, VB_FOREVER_NS), -VB_EUNKNOWN);
	vb_log_unmute();
	assert_true(vb_lock_now(w.c[0]) < mine.valid_until_ns);
	assert_false(vb_lock_valid(w.c[0], &mine));
	assert_true(vb_lock_valid(w.c[1], &his));
	/* Less is held, whatever has become of it, and I may ask for that. */
	assert_int_equal(vb_lock_convert(w.c[0], &mine, VB_SHARED, VB_FOREVER_NS), 0);
	assert_int_equal(mine.mode, VB_SHARED);
	assert_true(vb_lock_valid(w.c[0], &mine));
	start(&w, 1);
	assert_int_equal(vb_lock_release(w.c[0], &mine), 0);
	assert_true(vb_lock_valid(w.c[1], &his));
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	close_world(&w);
}

/* ---- not its own ---- */

/* Of two agents the first stands still, and reads in the mailbox, late, what the second was asked for
 * meanwhile. */
static void test_not_its_end(void **state)
{
	struct vb_grant kept, his, end[2], none;
	struct world w;

	open_world(&w, FEW ",ask_for=2ms", 2);
	assert_int_equal(takes(&w, 0, 0, &kept), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(takes(&w, 0, 1 + 2 * i, &end[i]), 0);
	vb_sim_ep_pause(w.server[0]->ep, now() + 20 * MS);
	assert_int_equal(takes(&w, 0, 2, &none), -VB_EUNKNOWN);
	assert_int_equal(vb_lock_release_all(w.c[0], end, 2), 0);
	vb_task_sleep_until(now() + 30 * MS);
	assert_int_equal(vb_lock_try(w.c[1], 0, VB_EXCLUSIVE, &his), -EAGAIN);
	assert_true(vb_lock_valid(w.c[0], &kept));
	assert_int_equal(vb_lock_release(w.c[0], &kept), 0);
	close_world(&w);
}

/* What two agents have granted comes to one, which is asked for the end of what the first had. */
static void test_end_of_fewer_agents(void **state)
{
	struct vb_grant kept, end[2];
	struct world w;

	open_world(&w, FEW, 2);
	assert_int_equal(takes(&w, 0, 1, &kept), 0);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(takes(&w, 0, 2 * i, &end[i]), 0);
	bury(&w);
	start(&w, 1);
	vb_task_sleep_until(now() + LEASE / 2);
	assert_int_equal(vb_lock_release_all(w.c[0], end, 2), 0);
	assert_true(vb_lock_valid(w.c[0], &kept));
	guarded(&w, &kept);
	close_world(&w);
}

/* What two agents have granted comes to one, and both have called theirs the same. */
static void test_same_tickets(void **state)
{
	struct vb_grant kept, end;
	struct world w;

	open_world(&w, FEW, 2);
	assert_int_equal(takes(&w, 0, 0, &kept), 0);
	assert_int_equal(takes(&w, 0, 1, &end), 0);
	assert_int_equal(kept.token, end.token);
	bury(&w);
	start(&w, 1);
	vb_task_sleep_until(now() + LEASE / 2);
	assert_int_equal(vb_lock_release(w.c[0], &end), 0);
	assert_true(vb_lock_valid(w.c[0], &kept));
	guarded(&w, &kept);
	close_world(&w);
}

/* ---- a look that is refused ---- */

static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	bool down;
	unsigned refused;
} link_;

static int refuse_one_read(struct vb_ep *ep, struct vb_batch *batch)
{
	if (!link_.down || batch->verbs[0].op != VB_OP_READ)
		return link_.real->post(ep, batch);
	link_.down = false;
	link_.refused++;
	batch->pending = 0;
	for (unsigned i = 0; i < batch->n; i++)
		batch->verbs[i].status = -VB_EPEERGONE;
	return 0;
}

/*
 * The first agent comes late to its lane, where a request to the second stands by then, and says that it
 * does not serve that lock.  The client forgets who serves, and its look at the header is refused: the
 * agent that has queued it lives all the same, and its answer counts.
 */
static void test_header_refused(void **state)
{
	struct vb_grant his, none;
	struct call mine;
	struct world w;

	open_world(&w, FEW ",ask_for=20ms", 2);
	assert_int_equal(takes(&w, 1, 1, &his), 0);
	vb_sim_ep_pause(w.server[0]->ep, now() + 60 * MS);
	assert_int_not_equal(vb_lock_acquire(w.c[0], 2, VB_EXCLUSIVE, VB_FOREVER_NS, &none), 0);
	link_.real = w.c[0]->ep->ops;
	link_.ops = *link_.real;
	link_.ops.post = refuse_one_read;
	link_.refused = 0;
	link_.down = true;
	w.c[0]->ep->ops = &link_.ops;
	mine = (struct call){.w = &w, .i = 0, .lock = 1};
	spawn(take_body, &mine);
	vb_task_sleep_until(now() + 25 * MS);
	assert_int_equal(vb_lock_release(w.c[1], &his), 0);
	while (!mine.done)
		vb_task_sleep_until(now() + 100 * US);
	assert_int_equal(link_.refused, 1);
	assert_int_equal(mine.err, 0);
	assert_int_equal(vb_lock_release(w.c[0], &mine.g), 0);
	w.c[0]->ep->ops = link_.real;
	vb_task_sleep_until(now() + 2 * LEASE);
	close_world(&w);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told_too_late),
		cmocka_unit_test(test_told_after_the_grace),
		cmocka_unit_test(test_grant_over_a_server),
		cmocka_unit_test(test_more_names_than_room),
		cmocka_unit_test(test_header_refused),
		cmocka_unit_test(test_less_is_told),
		cmocka_unit_test(test_less_is_unknown),
		cmocka_unit_test(test_without_the_segment),
		cmocka_unit_test(test_not_its_end),
		cmocka_unit_test(test_end_of_fewer_agents),
		cmocka_unit_test(test_same_tickets),
	};

	int failed;

	snprintf(dir, sizeof(dir), "/tmp/verbena-locktab-followed-%d", (int)getpid());
	snprintf(file, sizeof(file), "%s/locks.0.0", dir);
	if (mkdir(dir, 0700) != 0)
		return 2;
	if (argc > 1)
		cmocka_set_test_filter(argv[1]);
	failed = cmocka_run_group_tests(tests, NULL, NULL);
	(void)unlink(file);
	(void)rmdir(dir);
	return failed;
}
