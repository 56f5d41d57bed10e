/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The servers of an exploration.  Each node has a keeper, which starts another one some time after
 * its server has died.  What the dead one was asked is never answered, and what it did is half done;
 * the node's memory is still there.
 */
#define VB_LOG_ROOM "check"
#include "base/log.h"
#include "check/txn/world.h"

#define KEEPER_STREAM 0x6b656570

/* Of those without records only the copies of logs want one. */
static uint16_t served(const struct txn_world *w)
{
	bool homes = w->db != NULL && w->db->log_by_rpc;

	return (uint16_t)(w->d->nodes + (homes ? w->d->homes : 0));
}

static bool is_gone(const struct txn_server *s)
{
	return s->node >= s->w->d->nodes && s->w->gone[s->node - s->w->d->nodes];
}

static int start(struct txn_world *w, uint16_t node)
{
	int err = vb_db_server_start(w->db, node, &w->server[node].is);

	if (err)
		w->server[node].is = NULL;
	else
		vb_sim_ep_stalls(vb_db_server_ep(w->server[node].is), true);
	return err;
}

static void keeper_body(void *arg)
{
	struct txn_server *s = arg;
	struct txn_world *w = s->w;
	struct vb_rng r;

	vb_rng_seed(&r, w->d->seed, KEEPER_STREAM + s->node);
	for (;;) {
		if (s->is != NULL) {
			if (vb_task_suspend(VB_FOREVER) == -ECANCELED)
				return;
			continue;
		}
		if (w->d->never_back || is_gone(s)) {
			if (vb_task_suspend(VB_FOREVER) == -ECANCELED)
				return;
			continue;
		}
		if (!w->live)
			(void)vb_task_suspend(vb_sched_now(w->sched) +
					      vb_rng_below(&r, w->d->server_gone_ns));
		if (start(w, s->node) == 0)
			continue;
		/* The answer to its first word was lost. */
		if (vb_task_suspend(vb_sched_now(w->sched) + w->d->bound_ns) == -ECANCELED)
			return;
	}
}

int txn_servers_start(struct txn_world *w)
{
	static const struct vb_task_params params = {.name = "keeper", .daemon = true};
	int err = 0;

	for (uint16_t n = 0; n < served(w) && err == 0; n++) {
		struct txn_server *s = &w->server[n];

		s->w = w;
		s->node = n;
		err = start(w, n);
		if (err == 0 && w->d->faults.server_die > 0)
			err = vb_task_spawn(w->sched, keeper_body, s, &params, &s->keeper);
	}
	return err;
}

bool txn_server_died(struct txn_world *w, const struct vb_ep *ep)
{
	for (uint16_t n = 0; n < served(w); n++) {
		struct txn_server *s = &w->server[n];

		if (s->is == NULL || vb_db_server_ep(s->is) != ep)
			continue;
		w->out->server_deaths++;
		w->dead_server[w->n_dead_servers++] = s->is;
		s->is = NULL;
		if (w->n_dead_servers == TXN_SERVER_DEATHS_MAX) {
			w->faults.server_die = 0;
			if (!w->live)
				vb_sim_set_faults(w->fabric, &w->faults);
		}
		vb_task_wake(s->keeper);
		return true;
	}
	return false;
}

void txn_servers_heal(struct txn_world *w)
{
	for (uint16_t n = 0; n < served(w); n++)
		if (w->server[n].is == NULL && w->server[n].keeper != NULL)
			vb_task_wake(w->server[n].keeper);
}

void txn_servers_stop(struct txn_world *w)
{
	for (uint16_t n = 0; n < served(w); n++)
		vb_db_server_stop(w->server[n].is);
}

void txn_servers_bury(struct txn_world *w)
{
	for (unsigned i = 0; i < w->n_dead_servers; i++)
		vb_db_server_bury(w->dead_server[i]);
}
