/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calls on rings, in a share of the seeds.  A client's acquires and releases are started on a ring that it shares
 * with others (vb_lock_acquire_start, vb_lock_release_start), waited for, and cancelled now and then; a task takes the
 * completions off each ring, as its thread does.  Of those seeds some have verbs that are complete when they are
 * posted, those to the client's own node or all, so that calls end, or begin, on their starter's stack: there clients
 * die and stand still between two of their verbs, and others' verbs come between them.
 *
 *	at once     whoever starts what ends at once waits for verbs, and for no other client
 *	later       whatever does not is begun in no time at all
 *	once        a call that was started ends once, and not when its starter has had its end
 *	alone       its client has no other call meanwhile (a task on a ring of the same thread looks for that)
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "check/draw.h"
#include "check/lock/explore_inner.h"
#include "task/ring.h"

#define RING_STREAM 0x72696e67
#define SLOT_STREAM 0x72690000

/* Of the seeds, and between two looks of the task that tries clients. */
#define SHARE   0.2
#define LOOK_NS 4000u

/* ---- what is drawn ---- */

/* Nothing is lost, late or cut off where there is no wire. */
static void draw_memory(struct vb_rng *r, const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0, 0.01, 0.1};
	struct vb_sim_faults *f = &d->faults;

	d->loses = false;
	f->lose = f->early = f->deaf = f->partition = f->refuse = f->nic_stall = 0;
	f->lose_ops = 0;
	f->deaf_max_ns = f->partition_max_ns = f->nic_stall_max_ns = 0;
	/* A message that is not sent may cost a recovery. */
	if (!(ops->caps & VB_LOCK_SURVIVES))
		d->near.full = vb_draw_one_of(r, chances, 3);
}

/* Of planted bugs the seeds that find them stay what they are. */
void explore_draw_rings(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double uses[] = {0.5, 0.9, 1}, turns[] = {0.1, 0.3, 0.7};
	struct vb_rng r;
	uint64_t how;

	vb_rng_seed(&r, d->seed, RING_STREAM);
	if (ops->planted != NULL || d->never_back || d->too_late != 0 || !vb_rng_chance(&r, SHARE))
		return;
	d->p_ring = vb_draw_one_of(&r, uses, 3);
	d->rings = (unsigned)vb_draw_between(&r, 1, 3);
	d->ring_depth = d->clients + DEATHS_MAX + 2;
	if (vb_rng_chance(&r, 0.2))
		d->ring_depth = (unsigned)vb_draw_between(&r, 2, 6);
	d->p_quit = vb_rng_chance(&r, 0.4) ? 0.1 : 0;
	d->intrudes = vb_rng_chance(&r, 0.4);
	how = vb_rng_below(&r, 4);
	if (ops->release_now == NULL || how == 0)
		return;
	d->ends_at_once = true;
	/* Where words are at several nodes it must not be taken for near. */
	d->near.all = how == 1 || (ops->try_verbs != 0 && how == 2);
	d->near.turn = vb_draw_one_of(&r, turns, 3);
	d->near.turn_max_ns = vb_draw_spread(&r, 100, 6);
	if (d->near.all)
		draw_memory(&r, ops, d);
}

void explore_tell_rings(FILE *to, const struct vb_explore_draw *d)
{
	if (d->p_ring == 0)
		return;
	vb_draw_tell_chance(to, "call on a ring", d->p_ring, 0);
	fprintf(to, ", %u rings for %u calls%s", d->rings, d->ring_depth,
		d->intrudes ? ", clients tried meanwhile" : "");
	vb_draw_tell_chance(to, "cancel on a ring", d->p_quit, 0);
	if (!d->ends_at_once)
		return;
	fprintf(to, ", %s verbs at once", d->near.all ? "all" : "near");
	vb_draw_tell_chance(to, "turn behind", d->near.turn, d->near.turn_max_ns);
	vb_draw_tell_chance(to, "no room", d->near.full, 0);
}

/* ---- where completions come ---- */

static struct vb_rng *rng_of(const struct slot *s)
{
	return &s->x->ring_rng[s->index];
}

static const struct explore_ring *ring_of(const struct slot *s)
{
	return &s->x->ring[s->index % s->x->d->rings];
}

static void *tag_of(const struct slot *s)
{
	return (void *)(uintptr_t)(s->started_call.number << 8 | s->index);
}

static void hand_over(struct explore *x, const struct vb_completion *done)
{
	struct slot *s = &x->slots[(uintptr_t)done->tag & 0xff];
	struct started_call *c = &s->started_call;
	const uint64_t number = (uintptr_t)done->tag >> 8;

	/* What died with its client may have ended all the same. */
	if (number <= c->died)
		return;
	if (done->tag != tag_of(s) || !c->open || c->done) {
		explore_answer_is_wrong(s, -EPROTO, s->asks_lock,
					"what ended at once, or has ended, told of an end");
		return;
	}
	c->result = done->result;
	c->done = true;
	vb_task_wake(s->life);
}

static void pump_body(void *arg)
{
	struct explore_ring *r = arg;
	struct vb_completion done;

	while (vb_ring_next(r->ring, VB_FOREVER, &done) == 0)
		hand_over(r->x, &done);
}

/* ---- who tries a client that has a call under way ---- */

static bool is_under_way(const struct slot *s)
{
	const struct started_call *c = &s->started_call;

	return s->client != NULL && !vb_sim_ep_dead(s->client->ep) &&
	       (c->starts || (c->open && !c->done) || s->kept.on);
}

/* Also while what it holds is kept.  A call that has ended may not have been handed over yet: then it is by the
 * second turn. */
static void try_a_client(struct slot *s)
{
	const uint64_t number = s->started_call.number;
	struct vb_grant g;
	int err;

	if (!is_under_way(s))
		return;
	vb_log_mute();
	/* No lock: nobody has it by mistake. */
	err = vb_lock_try(s->client, UINT64_MAX, VB_SHARED, &g);
	vb_log_unmute();
	vb_task_yield();
	vb_task_yield();
	if (err == -EBUSY || !is_under_way(s) || s->started_call.number != number)
		return;
	explore_answer_is_wrong(s, err, s->asks_lock,
				"a client whose call is under way was free for another one");
}

static int intrude(void *arg)
{
	struct explore *x = arg;
	struct vb_rng r;

	vb_rng_seed(&r, x->d->seed, SLOT_STREAM + VB_EXPLORE_CLIENTS_MAX);
	while (!x->live && x->err == 0 &&
	       vb_task_sleep_until(vb_sched_now(x->sched) + 1 + vb_rng_below(&r, LOOK_NS)) == 0)
		for (unsigned i = 0; i < x->d->clients && !x->live; i++)
			try_a_client(&x->slots[i]);
	return 0;
}

/* ---- life ---- */

int explore_open_rings(struct explore *x)
{
	static const struct vb_task_params pump = {.name = "pump", .daemon = true};
	const struct vb_ring_params params = {.depth = x->d->ring_depth};
	struct vb_task *t;
	int err = 0;

	for (unsigned i = 0; i < x->d->rings && err == 0; i++) {
		struct explore_ring *r = &x->ring[i];

		r->x = x;
		err = vb_ring_open(&params, &r->ring);
		if (err == 0)
			err = vb_task_spawn(x->sched, pump_body, r, &pump, &t);
	}
	for (unsigned i = 0; i < x->d->clients && x->d->rings != 0; i++)
		vb_rng_seed(&x->ring_rng[i], x->d->seed, SLOT_STREAM + i);
	/* Its completion has the tag of a call that nobody has begun. */
	if (err == 0 && x->d->intrudes)
		err = vb_ring_call(x->ring[0].ring, intrude, x, NULL, NULL);
	return err == VB_STARTED ? 0 : err;
}

void explore_bury_rings(struct explore *x)
{
	for (unsigned i = 0; i < x->d->rings; i++)
		if (x->ring[i].ring != NULL)
			(void)vb_ring_bury(x->ring[i].ring);
}

void explore_lose_call(struct slot *s)
{
	struct started_call *c = &s->started_call;

	VB_SOMETIMES_IF(c->starts && c->at_once, 500,
			"dslr dslr-update shiftlock: a client dies in a call that ends at once");
	*c = (struct started_call){.number = c->number, .died = c->number};
}

/* ---- calls ---- */

/* By what it promises, and not by what its client says. */
static bool is_at_once(const struct slot *s, const struct vb_lock_client *me, uint64_t lock,
		       enum vb_mode mode)
{
	const struct vb_lock_ops *ops = s->x->ops;

	if (!s->x->d->ends_at_once || ops->release_now == NULL)
		return false;
	if (s->x->d->near.all)
		return mode == VB_SHARED || ops->try_verbs == 0;
	return ops->try_verbs == 0 && vb_addr_node(vb_lock_entry(s->x->space, lock)) == me->node;
}

static void begin(struct slot *s, const struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct started_call *c = &s->started_call;

	c->number++;
	s->x->result->started++;
	c->open = c->starts = true;
	c->done = false;
	c->at_once = is_at_once(s, me, lock, mode);
	c->begun_ns = vb_sched_now(s->x->sched);
	c->quit_ns = 0;
}

/* A reader that leaves by a CAS may meet others as often as they come. */
static void judge_start(struct slot *s, const char *call, enum vb_mode mode)
{
	const struct started_call *c = &s->started_call;
	const struct explore *x = s->x;
	uint64_t took = vb_sched_now(x->sched) - c->begun_ns, enough = 0;
	char text[192];

	VB_SOMETIMES_IF(c->at_once && took > 0, 200,
			"once: others have a turn within a call that ends at once");
	if (c->at_once &&
	    (x->d->prompt_ns == 0 || (mode == VB_SHARED && x->ops->caps & VB_LOCK_LEAVE_RACES)))
		return;
	/* No message is sent again meanwhile. */
	if (c->at_once)
		enough = EXPLORE_PROMPT_VERBS * (x->d->bound_ns + x->d->faults.pause_max_ns);
	if (took <= enough)
		return;
	snprintf(text, sizeof(text),
		 "%s, called at %.3f us, had its caller wait for %.3f us, and %.3f us are enough",
		 call, (double)c->begun_ns / 1e3, (double)took / 1e3, (double)enough / 1e3);
	vb_audit_violation(x->audit, VB_AUDIT_OVERDUE, s->index, s->asks_lock, text);
}

static void quit(struct slot *s, bool own)
{
	struct started_call *c = &s->started_call;

	if (own)
		c->quit_ns = vb_sched_now(s->x->sched);
	VB_SOMETIMES(200, "ring: a call that is under way is cancelled");
	(void)vb_ring_cancel(ring_of(s)->ring, c->id);
}

/* For the end of what was started.  Whoever is cancelled cancels that, and waits for its end all the same. */
static int wait_for_end(struct slot *s, const struct vb_lock_client *me)
{
	struct started_call *c = &s->started_call;
	const uint64_t now = vb_sched_now(s->x->sched);
	uint64_t until = VB_FOREVER;
	bool shielded = false, told = false;

	if (s->x->d->p_quit > 0 && !s->x->live && vb_rng_chance(rng_of(s), s->x->d->p_quit))
		until = now + vb_rng_below(rng_of(s), 1 + 4 * s->x->d->bound_ns);
	while (!c->done) {
		int err = vb_task_suspend(until);

		stay_alive(me);
		if (c->done || told || err == 0)
			continue;
		told = true;
		quit(s, err == -ETIMEDOUT);
		until = VB_FOREVER;
		shielded = vb_task_shield(true);
	}
	if (told)
		vb_task_shield(shielded);
	return c->result;
}

static int end(struct slot *s, const struct vb_lock_client *me, const char *call, enum vb_mode mode,
	       int err)
{
	struct started_call *c = &s->started_call;

	stay_alive(me);
	c->starts = false;
	judge_start(s, call, mode);
	if (err == VB_STARTED)
		err = wait_for_end(s, me);
	else
		s->x->result->at_once += err == 0;
	c->open = false;
	return err;
}

static bool is_full(const struct slot *s, int err)
{
	/* Calls of the dead keep their places. */
	if (err != -ENOSPC || s->x->d->ring_depth >= s->x->d->clients + DEATHS_MAX)
		return false;
	VB_SOMETIMES(500, "ring: it is full");
	return true;
}

static bool uses_ring(const struct slot *s)
{
	return s->x->d->p_ring > 0 && vb_rng_chance(rng_of(s), s->x->d->p_ring);
}

int explore_acquire(struct slot *s, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode,
		    uint64_t hold_ns, uint64_t timeout_ns, struct vb_grant *g)
{
	int err;

	if (hold_ns != 0 || !uses_ring(s))
		return vb_lock_acquire_for(me, lock, mode, hold_ns, timeout_ns, g);
	begin(s, me, lock, mode);
	err = vb_lock_acquire_start(ring_of(s)->ring, me, lock, mode, timeout_ns, g, tag_of(s),
				    &s->started_call.id);
	err = end(s, me, "vb_lock_acquire_start", mode, err);
	return is_full(s, err) ? vb_lock_acquire_for(me, lock, mode, 0, timeout_ns, g) : err;
}

/* One that finds no room has left the lock held as before. */
int explore_release(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const enum vb_mode mode = g->mode;
	int err;

	if (!uses_ring(s))
		return vb_lock_release(me, g);
	begin(s, me, g->lock, mode);
	err = vb_lock_release_start(ring_of(s)->ring, me, g, tag_of(s), &s->started_call.id);
	err = end(s, me, "vb_lock_release_start", mode, err);
	s->started_call.quit_ns = 0;
	return is_full(s, err) ? vb_lock_release(me, g) : err;
}
