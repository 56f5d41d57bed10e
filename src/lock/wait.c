/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting between attempts, asking again after lost answers, and where a client's time goes. */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include <sched.h>

const char *const vb_phase_names[VB_PHASE_COUNT] = {"IA", "RT", "NP", "WP", "WR", "WW", "NS"};

void vb_phase_switch(struct vb_lock_client *me, enum vb_phase phase)
{
	struct vb_lock_timing *t = me->timing;
	uint64_t now = vb_sched_now_early(me->ep->sched);

	t->ns[t->call][t->phase] += now - t->since_ns;
	t->since_ns = now;
	t->phase = phase;
}

int vb_backoff_wait(struct vb_lock_client *me, struct vb_backoff *b, uint64_t until_ns)
{
	uint64_t now = vb_ep_now_early(me->ep);
	uint64_t span =
		b->n < 63 && b->base_ns <= b->cap_ns >> b->n ? b->base_ns << b->n : b->cap_ns;
	uint64_t wake;
	int err;

	if (now >= until_ns)
		return -ETIMEDOUT;
	if (b->n < 63)
		b->n++;
	wake = now + vb_rng_below(&me->rng, span + 1);
	err = vb_ep_sleep_until(me->ep, wake < until_ns ? wake : until_ns);
	if (err)
		return err;
	return wake >= until_ns ? -ETIMEDOUT : 0;
}

/* How often an answer may be lost in a row before the outcome is left unknown. */
#define CHANGE_ASKS 8

int vb_lock_change(struct vb_lock_client *me, struct vb_claim *c, uint64_t from, uint64_t to,
		   uint64_t *seen)
{
	int err = vb_cas64(me->ep, c->entry, from, to, seen);

	for (unsigned asks = 1; vb_unlikely(err == -VB_EUNKNOWN) && asks < CHANGE_ASKS; asks++) {
		uint64_t bound = vb_lock_stretch(me->space, me->ep->fabric->caps.verb_bound_ns);

		/* The lost verb may still be on its way.  Asking before the bound could see the
		 * word without it and then have it land behind our back. */
		if (vb_ep_sleep(me->ep, bound) != 0)
			break;
		me->retries++;
		err = vb_cas64(me->ep, c->entry, from, to, seen);
	}
	return err;
}

/* Polls after which a thread offers its core to other threads. With at least as many cores as
 * workers nobody takes it and that costs a system call now and then; with fewer, whoever we are
 * waiting for may be the one that needs it. */
#define POLLS_PER_OFFER 32

int vb_poll_pause(struct vb_lock_client *me, uint64_t until_ns)
{
	if (until_ns != VB_FOREVER && vb_ep_now(me->ep) >= until_ns)
		return -ETIMEDOUT;
	if (vb_task_cancelled(vb_task_self()))
		return -ECANCELED;
	vb_task_yield();
	if (!(me->ep->fabric->caps.flags & VB_CAP_VIRTUAL)) {
		if (++me->polls % POLLS_PER_OFFER == 0)
			sched_yield();
		else
			vb_cpu_relax();
	}
	return 0;
}
