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
	int err = vb_lock_server_start(x->space, (uint16_t)(i / d->workers), i % d->workers,
				       d->workers, &server);

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

/* One after the other, each back before the next one goes.  Who begins in the liveness phase is
 * the last. */
static void ends_body(void *arg)
{
	struct explore *x = arg;
	const struct vb_explore_draw *d = x->d;
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, ENDS_STREAM);
	for (unsigned n = 0; n < SERVER_ENDS_MAX && x->err == 0; n++) {
		unsigned i = (unsigned)vb_rng_below(&r, count(x));
		int err;

		vb_task_sleep_until(vb_sched_now(x->sched) + vb_rng_below(&r, d->serve_max_ns));
		if (x->live || x->err != 0)
			return;
		end(x, i);
		if (d->never_back)
			return;
		vb_task_sleep_until(vb_sched_now(x->sched) + vb_rng_below(&r, d->away_max_ns));
		err = start(x, i);
		if (err != 0) {
			explore_go_wrong(&x->slots[0], "vb_lock_server_start", err);
			return;
		}
		x->away--;
	}
}

int explore_start_servers(struct explore *x)
{
	static const struct vb_task_params params = {.name = "server ends", .daemon = true};
	struct vb_task *t;
	int err = 0;

	if (x->ops->serve == NULL)
		return 0;
	for (unsigned i = 0; i < count(x) && err == 0; i++)
		err = start(x, i);
	if (err == 0 && x->d->serve_max_ns != 0)
		err = vb_task_spawn(x->sched, ends_body, x, &params, &t);
	return err;
}

void explore_stop_servers(struct explore *x)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(x->servers); i++)
		vb_lock_server_stop(x->servers[i]);
}
