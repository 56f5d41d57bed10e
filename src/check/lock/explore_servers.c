/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock servers of a seed: they stand still, stop and are started again, or die in the middle of
 * whatever they do and others begin in their place.  What a server had in its own memory is gone
 * then; what is in the segment, and in its file, the next one finds.
 */
#define VB_LOG_ROOM "check"
#include "base/log.h"
#include "check/lock/explore_inner.h"

#define ENDS_STREAM 0x656e6473

static unsigned count(const struct explore *x)
{
	return x->d->servers * x->d->workers;
}

static int start(struct explore *x, unsigned i)
{
	const struct vb_explore_draw *d = x->d;
	struct vb_lock_server *server;
	int err;

	explore_choose_folder(x);
	err = vb_lock_server_start(x->space, (uint16_t)(i / d->workers), i % d->workers, d->workers,
				   &server);
	if (err != 0 || server == NULL)
		return err;
	x->servers[i] = server;
	vb_sim_ep_stalls(server->ep, d->faults.stall > 0);
	return 0;
}

static void end(struct explore *x, unsigned i)
{
	struct vb_lock_server *server = x->servers[i];

	x->servers[i] = NULL;
	x->away++;
	x->result->servers_gone++;
	x->murky = true;
	if (x->d->servers_die)
		vb_lock_server_bury(server);
	else
		vb_lock_server_stop(server);
}

/* Sleeps until the next end is due, or a server has died in a write.  Which one ends. */
static unsigned await_end(struct explore *x, struct vb_rng *r)
{
	unsigned i = (unsigned)vb_rng_below(r, count(x));
	uint64_t due = vb_sched_now(x->sched) + vb_rng_below(r, x->d->serve_max_ns);

	x->ends_soon = true;
	while (x->fallen == NULL && vb_sched_now(x->sched) < due)
		vb_task_suspend(due);
	x->ends_soon = false;
	for (unsigned k = 0; k < count(x) && x->fallen != NULL; k++)
		if (x->servers[k] == x->fallen)
			i = k;
	return i;
}

/* A server that cannot write its file does not begin: later it can. */
static int start_again(struct explore *x, unsigned i, struct vb_rng *r)
{
	int err = start(x, i);

	while (x->d->p_full > 0 && err == -ENOSPC) {
		vb_task_sleep_until(vb_sched_now(x->sched) + 1 +
				    vb_rng_below(r, x->d->away_max_ns));
		err = start(x, i);
	}
	if (err == 0)
		x->away--;
	return err;
}

/* One after the other, each back before the next one goes; all of a node where its segment is lost.
 * Who begins in the liveness phase is the last. */
static void ends_body(void *arg)
{
	struct explore *x = arg;
	const struct vb_explore_draw *d = x->d;
	struct vb_rng r;
	int err = 0;

	vb_rng_seed(&r, d->seed, ENDS_STREAM);
	for (unsigned n = 0; n < SERVER_ENDS_MAX && x->err == 0 && err == 0; n++) {
		unsigned first = await_end(x, &r), last = first;

		if ((x->live && x->fallen == NULL) || x->err != 0)
			return;
		if (d->loses_segment) {
			first -= first % d->workers;
			last = first + d->workers - 1;
		}
		for (unsigned i = first; i <= last; i++)
			end(x, i);
		x->fallen = NULL;
		if (d->never_back)
			return;
		vb_task_sleep_until(vb_sched_now(x->sched) + vb_rng_below(&r, d->away_max_ns));
		if (d->loses_segment)
			explore_lose_segment(x, (uint16_t)(first / d->workers));
		for (unsigned i = first; i <= last && err == 0; i++)
			err = start_again(x, i, &r);
	}
	if (err != 0)
		explore_go_wrong(&x->slots[0], "vb_lock_server_start", err);
}

int explore_start_servers(struct explore *x)
{
	static const struct vb_task_params params = {.name = "server ends", .daemon = true};
	int err = 0;

	if (x->ops->serve == NULL)
		return 0;
	for (unsigned i = 0; i < count(x) && err == 0; i++)
		err = start(x, i);
	if (err == 0 && x->d->serve_max_ns != 0)
		err = vb_task_spawn(x->sched, ends_body, x, &params, &x->ends);
	x->disk_is_bad = true;
	return err;
}

void explore_stop_servers(struct explore *x)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(x->servers); i++) {
		if (x->fallen != NULL && x->servers[i] == x->fallen)
			vb_lock_server_bury(x->servers[i]);
		else
			vb_lock_server_stop(x->servers[i]);
	}
}
