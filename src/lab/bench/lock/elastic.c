/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The benchmark as a client of servers that run (verbena serve, doc/elastic.md): each worker process is a client
 * of its own, with a fabric of its own, and takes locks of a space that is there.
 *
 * The parent opens nothing on the network, for who has is not to be forked.  What a worker learns of the space it
 * shows to the parent.  The first worker opens before the others, so that what is wrong is said once.
 *
 * The auditor is that of the workers of shm, in memory that all share, by the machine's clock.  Grants of clients
 * that are not of this run it does not see.
 */
#define VB_LOG_ROOM "bench"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/servers.h"
#include "lab/bench/lock/lock.h"
#include "lab/serve/serve.h"

#define EACH_MAX 1000u /* clients of a process: a server gives one 1024 endpoints */

/* ---- what was asked for ---- */

/* Said by the space, or what such a run has not. */
static int refuse_others(const struct vb_bench_opts *o)
{
	const struct {
		bool said;
		const char *name, *why;
	} others[] = {
		{o->lock != NULL, "lock", "--space says it"},
		{o->locks != 0, "locks", "--space says it"},
		{o->lease_ns != 0, "lease", "--space says it"},
		{o->fencing, "fencing", "--space says it"},
		{o->lock_options != NULL, "lock-options", "--space says it"},
		{o->server_threads != 1, "server-threads", "the servers run already"},
		{o->visible, "visible", "what `verbena serve` serves is not"},
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(others); i++)
		if (others[i].said)
			return vb_fail(-EINVAL, "leave out --%s: %s", others[i].name,
				       others[i].why);
	if (o->fabric != VB_BENCH_SHM && o->fabric != VB_BENCH_TCP)
		return vb_fail(-EINVAL,
			       "--fabric %s: the servers of an elastic cluster are reached by tcp",
			       vb_bench_fabric_names[o->fabric]);
	return 0;
}

int vb_bench_elastic_plan(struct vb_bench_plan *p)
{
	struct vb_bench_opts *o = &p->o;
	static struct vb_serve_spaces spaces;
	const struct vb_serve_space *s = &spaces.space[0];
	int err = refuse_others(o), hosts;

	if (err != 0)
		return err;
	if (o->space == NULL)
		return vb_fail(-EINVAL, "which lock space of the servers? --space says it, in the "
					"words of `verbena serve`: NAME:lock=PROTOCOL,...");
	hosts = vb_bench_servers_count(o->servers_said, o->key);
	if (hosts < 0)
		return hosts;
	spaces.n = 0;
	err = vb_serve_space_read(&spaces, o->space);
	if (err != 0)
		return err;
	p->space_options = vb_serve_space_options(s);
	if (p->space_options == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock space");
	strcpy(p->space_name, s->name);
	p->drift_ppm = (uint32_t)s->drift_ppm;
	p->hosts = (unsigned)hosts;
	o->elastic = o->servers_said;
	o->fabric = VB_BENCH_TCP;
	o->lock = s->lock;
	o->lock_options = p->space_options;
	o->locks = s->locks;
	o->servers = s->servers;
	o->lease_ns = s->lease_ns;
	o->fencing = s->fencing;
	return 0;
}

int vb_bench_elastic_plan_nodes(struct vb_bench_plan *p)
{
	struct vb_bench_opts *o = &p->o;

	/* As far as is known before a server has told. */
	o->nodes = p->hosts > o->servers ? p->hosts : o->servers;
	if (o->clients < o->cluster.procs)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " clients in %" PRIu64
			       " processes: each process needs a client",
			       o->clients, o->cluster.procs);
	if (o->clients > EACH_MAX * o->cluster.procs)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " clients in %" PRIu64 " processes: one has %u at most; "
			       "give more --procs",
			       o->clients, o->cluster.procs, EACH_MAX);
	return 0;
}

/* ---- in a worker ---- */

static void await_first(const struct vb_bench_learnt *learnt)
{
	struct timespec nap = {.tv_nsec = 1000000};

	/* If the first fails the parent ends us. */
	while (!__atomic_load_n(&learnt->ready, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
}

int vb_bench_elastic_open(struct vb_bench_lock_run *u, unsigned worker)
{
	struct vb_bench_opts *o = &u->plan->o;
	int err;

	if (worker != 0)
		await_first(u->learnt);
	err = vb_bench_servers_open(o->elastic, o->key, o->fabric_options, &u->run.fabric);
	if (err == 0)
		err = vb_bench_servers_have(u->run.fabric, o->elastic, VB_NAMED_LOCKS, "lock space",
					    u->plan->space_name);
	if (err == 0)
		o->nodes = u->run.fabric->nodes;
	return err;
}

void vb_bench_elastic_show(struct vb_bench_lock_run *u, unsigned worker)
{
	struct vb_bench_learnt *l = u->learnt;

	if (worker != 0)
		return;
	l->nodes = u->plan->o.nodes;
	l->lease_ns = u->plan->o.lease_ns;
	l->stall_ns = u->run.stall_ns;
	l->close_ns = u->run.close_ns;
	l->portable = u->r->portable;
	__atomic_store_n(&l->ready, 1, __ATOMIC_RELEASE);
}

/* ---- in the parent ---- */

int vb_bench_elastic_begin(struct vb_bench_lock_run *u)
{
	u->learnt = vb_bench_share(sizeof(*u->learnt));
	return u->learnt != NULL ? 0 : vb_fail(-ENOMEM, "no memory to share with workers");
}

void vb_bench_elastic_learn(struct vb_bench_lock_run *u)
{
	const struct vb_bench_learnt *l = u->learnt;

	u->plan->o.nodes = l->nodes;
	u->plan->o.lease_ns = l->lease_ns;
	u->run.stall_ns = l->stall_ns;
	u->run.close_ns = l->close_ns;
	u->r->portable = l->portable;
}

void vb_bench_elastic_end(struct vb_bench_lock_run *u)
{
	vb_bench_unshare(u->learnt, sizeof(*u->learnt));
	u->learnt = NULL;
}
