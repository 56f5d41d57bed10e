/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock servers of a seed: they stand still, stop and are started again, or die in the middle of
 * whatever they do and others begin in their place.  What a server had in its own memory is gone
 * then; what is in the segment, and in its file, the next one finds.
 */
#define VB_LOG_ROOM "check"
#include "base/log.h"
#include "check/draw.h"
#include "check/lock/explore_inner.h"

#define ENDS_STREAM 0x656e6473
/* Of the draws. */
#define SOON_STREAM 0x736f6f6e

/* ---- what is drawn ---- */

/* A grant of the first of several that follow each other within its lease; what was granted by two comes
 * to one.  Only the lock table lets others serve in another number, and needs the segment for it. */
void explore_draw_ends(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, SOON_STREAM);
	if (d->serve_max_ns == 0 || d->never_back)
		return;
	d->crashes = d->loses_segment && vb_rng_chance(&r, 0.6);
	if (vb_rng_chance(&r, 0.4))
		d->p_soon = vb_rng_chance(&r, 0.5) ? 0.3 : 0.7;
	d->recounts = (ops->caps & VB_LOCK_INTENT) && !d->loses_segment && vb_rng_chance(&r, 0.25);
}

void explore_tell_ends(FILE *to, const struct vb_explore_draw *d)
{
	vb_draw_tell_chance(to, "another end soon", d->p_soon, 0);
	if (d->crashes)
		fprintf(to, ", its machine crashes");
	if (d->recounts)
		fprintf(to, ", all of a node at once, and one or two follow");
}

/* ---- their lives ---- */

static struct vb_lock_server **place(struct explore *x, unsigned node, unsigned worker)
{
	return &x->servers[node * WORKERS_MAX + worker];
}

static int start(struct explore *x, unsigned node, unsigned worker)
{
	struct vb_lock_server *server;
	int err;

	explore_choose_folder(x);
	x->begins_on = node;
	x->begins = true;
	err = vb_lock_server_start(x->space, (uint16_t)node, worker, x->workers[node], &server);
	x->begins = false;
	if (err != 0 || server == NULL)
		return err;
	*place(x, node, worker) = server;
	vb_sim_ep_stalls(server->ep, x->d->faults.stall > 0);
	return 0;
}

static void end(struct explore *x, unsigned node, unsigned worker)
{
	struct vb_lock_server *server = *place(x, node, worker);

	*place(x, node, worker) = NULL;
	x->result->servers_gone++;
	x->murky = true;
	if (x->d->servers_die)
		vb_lock_server_bury(server);
	else
		vb_lock_server_stop(server);
}

static uint64_t draw_serve_ns(const struct explore *x, struct vb_rng *r)
{
	const struct vb_explore_draw *d = x->d;

	if (d->p_soon > 0 && vb_rng_chance(r, d->p_soon))
		return vb_rng_below(r, d->lease_ns / 2);
	return vb_rng_below(r, d->serve_max_ns);
}

/* Sleeps until the next end is due, or a server has died in a write.  Which one ends: of a node, a
 * worker. */
static unsigned await_end(struct explore *x, struct vb_rng *r, unsigned *worker)
{
	unsigned i = (unsigned)vb_rng_below(r, x->d->servers * x->d->workers);
	uint64_t due = vb_sched_now(x->sched) + draw_serve_ns(x, r);
	unsigned node = i / x->d->workers;

	*worker = i % x->d->workers;
	x->ends_soon = true;
	while (x->fallen == NULL && vb_sched_now(x->sched) < due)
		vb_task_suspend(due);
	x->ends_soon = false;
	if (x->fallen != NULL) {
		node = x->fallen->node;
		*worker = x->fallen->worker;
	}
	return node;
}

/* A server that cannot write its file does not begin: later it can. */
static int start_again(struct explore *x, unsigned node, unsigned worker, struct vb_rng *r)
{
	int err = start(x, node, worker);

	while (x->d->p_full > 0 && err == -ENOSPC && !x->over) {
		vb_task_sleep_until(vb_sched_now(x->sched) + 1 +
				    vb_rng_below(r, x->d->away_max_ns));
		err = start(x, node, worker);
	}
	return err;
}

/* Those of a node from one worker to another end, and after a while others begin. */
static int end_some(struct explore *x, unsigned node, unsigned first, unsigned last,
		    struct vb_rng *r)
{
	const struct vb_explore_draw *d = x->d;
	int err = 0;

	for (unsigned i = first; i <= last; i++)
		end(x, node, i);
	x->fallen = NULL;
	if (d->never_back)
		return 0;
	vb_task_sleep_until(vb_sched_now(x->sched) + vb_rng_below(r, d->away_max_ns));
	if (d->loses_segment)
		explore_lose_segment(x, (uint16_t)node);
	if (d->crashes)
		explore_crash(x, node);
	if (d->recounts) {
		x->workers[node] = 1 + (unsigned)vb_rng_below(r, WORKERS_MAX);
		last = x->workers[node] - 1;
	}
	for (unsigned i = first; i <= last && err == 0 && !x->over; i++)
		err = start_again(x, node, i, r);
	return err;
}

/* One after the other, each back before the next one goes; all of a node where its segment is lost, or
 * where others follow in another number.  Who begins in the liveness phase is the last. */
static void ends_body(void *arg)
{
	struct explore *x = arg;
	const struct vb_explore_draw *d = x->d;
	struct vb_rng r;
	int err = 0;

	vb_rng_seed(&r, d->seed, ENDS_STREAM);
	for (unsigned n = 0; n < SERVER_ENDS_MAX && x->err == 0 && err == 0; n++) {
		unsigned worker, node = await_end(x, &r, &worker);
		bool all = d->loses_segment || d->recounts;

		if ((x->live && x->fallen == NULL) || x->err != 0)
			return;
		err = end_some(x, node, all ? 0 : worker, all ? x->workers[node] - 1 : worker, &r);
		if (d->never_back)
			return;
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
	for (unsigned i = 0; i < x->d->servers * x->d->workers && err == 0; i++) {
		x->workers[i / x->d->workers] = x->d->workers;
		err = start(x, i / x->d->workers, i % x->d->workers);
	}
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
