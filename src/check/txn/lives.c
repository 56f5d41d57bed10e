/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who runs transactions.
 *
 * Each coordinator is a *slot*: a supervisor task, which lives as long as the run, and below it
 * *lives*, one after the other.  A life is the task that calls transactions.  It ends when the
 * simulator kills it, or when it has closed its coordinator (the supervisor then opens another),
 * when it is cancelled (the next life goes on with the same one), or when it has done everything.
 */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>

#include "base/log.h"
#include "check/campaign.h"
#include "check/txn/world.h"

#define SLOT_STREAM   0x51090000
#define GOINGS_STREAM 0x510b0000
#define WAYS_STREAM   0x77617900
#define CANCEL_STREAM 0x63616e63

static void end_life(struct txn_slot *s, enum txn_life end)
{
	s->life = NULL;
	s->end = end;
	vb_task_wake(s->supervisor);
}

static void wait_for_liveness(struct txn_slot *s)
{
	struct txn_world *w = s->w;

	if (!s->safe) {
		s->safe = true;
		if (++w->n_safe == w->d->coordinators)
			w->all_safe = true;
	}
	while (!w->live && vb_task_suspend(VB_FOREVER) == 0)
		;
}

static bool leaves(struct txn_slot *s)
{
	const struct txn_world *w = s->w;

	return w->d->p_leave > 0 && !w->live && w->err == 0 && !txn_cancelled() &&
	       w->n_unfinished < TXN_UNFINISHED_MAX && vb_rng_chance(&s->goings, w->d->p_leave);
}

/* Nobody cancels it over that.  It may die, or be unable to give its place up. */
static void leave(struct txn_slot *s)
{
	struct txn_world *w = s->w;
	uint32_t place = s->me->lane[0].place;
	const struct vb_place_head *head;

	s->life = NULL;
	txn_count(w, s->me);
	vb_coordinator_close(s->me);
	s->me = NULL;
	w->out->leavings++;
	head = vb_local(w->fabric, vb_db_place(w->db, place), sizeof(*head));
	w->n_unfinished += head->owner != 0;
	end_life(s, TXN_LEFT);
}

/* From a node that is gone to others, sooner or later. */
static bool flees(struct txn_slot *s)
{
	return txn_is_outcast(s) && !txn_cancelled() &&
	       (s->me->fenced || s->w->live || vb_rng_chance(&s->goings, 0.2));
}

/* Where logical time has ended, or more went wrong than is survived, it was told, and that is all that can
 * be had. */
static bool is_over(const struct txn_slot *s, int err)
{
	return err == 0 || txn_is_beyond(s->w) || (err == -EOVERFLOW && s->w->d->time_left != 0);
}

/* Others work there meanwhile, and may sweep it, too. */
static void sweep_a_node(struct txn_slot *s)
{
	struct txn_world *w = s->w;
	uint64_t freed;
	int err;

	if (w->d->p_sweep == 0 || w->live || w->err != 0 || txn_cancelled() ||
	    !vb_rng_chance(&s->goings, w->d->p_sweep))
		return;
	s->doing = "sweep";
	err = vb_db_recover(s->me, (uint16_t)vb_rng_below(&s->goings, w->d->nodes), &freed);
	txn_stay_alive(s);
	s->doing = NULL;
	w->out->sweeps++;
	/* It may have stood still itself. */
	if (err != 0 && !txn_may_fail(s, err) && (w->d->calm || err != -VB_ETOOLATE))
		txn_wrong(s, "vb_db_recover", err);
}

/* Does the first phase go on?  Whoever has stopped it is not waited for. */
static bool goes_on(struct txn_world *w)
{
	w->all_safe |= vb_campaign_stopped(w->stop);
	return !w->live && w->err == 0;
}

static void life_body(void *arg)
{
	struct txn_slot *s = arg;
	struct txn_world *w = s->w;

	s->started = true;
	while (goes_on(w) && s->attempts < w->d->attempts && !txn_cancelled()) {
		s->attempts++;
		if (txn_attempt(s) == -VB_EUNKNOWN)
			w->out->unknown++;
		sweep_a_node(s);
		if (leaves(s) || flees(s)) {
			leave(s);
			return;
		}
	}
	if (txn_cancelled()) {
		end_life(s, TXN_CANCELLED);
		return;
	}
	wait_for_liveness(s);
	if (vb_sim_ep_dead(s->me->ep))
		vb_task_die();
	s->safe = true;
	if (flees(s)) {
		leave(s);
		return;
	}
	while (w->err == 0 && s->commits < w->d->commits)
		s->commits += is_over(s, txn_attempt(s));
	if (w->err == 0) {
		txn_count(w, s->me);
		vb_coordinator_close(s->me);
		s->me = NULL;
	}
	end_life(s, TXN_DONE);
}

static void stop_deaths(struct txn_world *w)
{
	w->faults.die = 0;
	if (!w->live)
		vb_sim_set_faults(w->fabric, &w->faults);
}

void txn_on_death(struct vb_ep *ep, void *arg)
{
	struct txn_world *w = arg;
	struct txn_slot *s = NULL;

	if (txn_server_died(w, ep))
		return;
	for (unsigned i = 0; i < w->d->coordinators; i++)
		if (w->slot[i].me != NULL && w->slot[i].me->ep == ep)
			s = &w->slot[i];
	vb_assert(s != NULL);
	w->out->deaths++;
	txn_keep_pending(s);
	if (s->life != NULL && !s->started)
		vb_task_kill(s->life);
	txn_count(w, s->me);
	for (unsigned i = 0; i < VB_PLACES_TXN; i++)
		w->keeps[s->me->lane[i].place] = true;
	txn_beyond_died(w, s->me);
	txn_home_died(s);
	w->dead[w->n_dead++] = s->me;
	s->me = NULL;
	s->doing = NULL;
	if (w->n_dead >= TXN_DEATHS_MAX)
		stop_deaths(w);
	end_life(s, TXN_DIED);
}

#define CLOCK_AHEAD (1ull << 31) /* txn/lane.c: further a clock does not go */

/* So that everything comes round within the run. */
static void wrap_counters(struct txn_slot *s)
{
	struct vb_coordinator *me = s->me;
	uint64_t far;

	me->txn_stamp = -(uint32_t)(1 + vb_rng_below(&s->goings, 200));
	me->mail.next_request = (1ull << 63) - 1 - vb_rng_below(&s->goings, 200);
	if (!s->w->d->ahead)
		return;
	far = ((vb_ep_now(me->ep) + (uint64_t)me->common_ns) >> VB_TS_CLOCK_SHIFT) + CLOCK_AHEAD -
	      vb_rng_below(&s->goings, 1000);
	if (far > me->clock)
		me->clock = far;
}

static int open_coordinator(struct txn_slot *s)
{
	struct txn_world *w = s->w;
	const uint16_t home = txn_home(s);
	int err = w->d->far ? vb_coordinator_open_far(w->db, home,
						      (uint16_t)((home + 1u) % w->d->nodes), &s->me)
			    : vb_coordinator_open(w->db, home, &s->me);

	if (err) {
		s->me = NULL;
		return err;
	}
	s->me->index = s->index;
	if (w->d->wraps)
		wrap_counters(s);
	vb_sim_ep_mortal(s->me->ep, !w->live);
	return 0;
}

static void slot_body(void *arg)
{
	static const struct vb_task_params params = {.name = "coordinator", .daemon = true};
	struct txn_slot *s = arg;
	struct txn_world *w = s->w;

	while (s->end != TXN_DONE) {
		int err;

		if (s->end == TXN_DIED && !w->live)
			vb_task_sleep_until(vb_sched_now(w->sched) +
					    vb_rng_below(&s->rng, 2 * w->d->lease_ns));
		if (s->end == TXN_LEFT && !w->live)
			vb_task_sleep_until(vb_sched_now(w->sched) +
					    vb_rng_below(&s->goings, w->d->lease_ns));
		s->end = TXN_RUNS;
		s->started = false;
		err = s->me == NULL ? open_coordinator(s) : 0;
		/* Several come for the same places, and some of them die. */
		if ((err == -VB_EUNKNOWN || (err == -ENOSPC && w->d->tight) ||
		     (err == -VB_EPEERGONE && (w->d->copies != 0 || w->d->far))) &&
		    !w->d->calm) {
			s->end = TXN_DIED;
			vb_task_sleep_until(vb_sched_now(w->sched) + w->d->bound_ns);
			continue;
		}
		if (err == 0)
			err = vb_task_spawn(w->sched, life_body, s, &params, &s->life);
		if (err) {
			txn_wrong(s, "vb_coordinator_open", err);
			return;
		}
		while (s->end == TXN_RUNS)
			vb_task_suspend(VB_FOREVER);
	}
}

/* Cancels whoever it meets. */
static void cancel_body(void *arg)
{
	struct txn_world *w = arg;
	struct vb_rng r;

	vb_rng_seed(&r, w->d->seed, CANCEL_STREAM);
	while (!w->live) {
		struct txn_slot *s = &w->slot[vb_rng_below(&r, w->d->coordinators)];

		vb_task_sleep_until(vb_sched_now(w->sched) +
				    vb_rng_below(&r, 2 * w->d->cancel_every_ns));
		if (w->live || s->life == NULL || s->safe)
			continue;
		vb_task_cancel(s->life);
		w->out->cancels++;
	}
}

int txn_lives_start(struct txn_world *w)
{
	static const struct vb_task_params params = {.name = "supervisor"},
					   canceller = {.name = "canceller", .daemon = true};
	struct vb_task *t;
	int err = 0;

	for (unsigned i = 0; i < w->d->coordinators && err == 0; i++) {
		struct txn_slot *s = &w->slot[i];

		s->w = w;
		s->index = i;
		vb_rng_seed(&s->rng, w->d->seed, SLOT_STREAM + i);
		vb_rng_seed(&s->goings, w->d->seed, GOINGS_STREAM + i);
		vb_rng_seed(&s->ways, w->d->seed, WAYS_STREAM + i);
		err = vb_task_spawn(w->sched, slot_body, s, &params, &s->supervisor);
	}
	if (err == 0)
		err = txn_homes_start(w);
	if (err == 0 && w->d->cancel_every_ns != 0)
		err = vb_task_spawn(w->sched, cancel_body, w, &canceller, &t);
	return err;
}

void txn_lives_heal(struct txn_world *w)
{
	for (unsigned i = 0; i < w->d->coordinators; i++) {
		struct txn_slot *s = &w->slot[i];

		if (s->me != NULL)
			vb_sim_ep_mortal(s->me->ep, false);
		if (s->life != NULL)
			vb_task_wake(s->life);
	}
}
