/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Whose CPU it is.  Without `cores` each client has one of its own, and each server `handlers`.  With it the
 * endpoints of a node share so many, in turn as they are opened, as the coroutines of a thread share theirs; a
 * server has `handlers` of them, from its own on.
 *
 * A core does one thing after the other in the order in which they come up: a doorbell (post_ns), a completion
 * that it finds (poll_ns), going over to another client (switch_ns), a server's request (handler_ns).  So work
 * is never lost and never overtaken; a client that goes on may find what came up meanwhile before its doorbell.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include <stdlib.h>

#include "base/log.h"

int sim_cores_open(struct sim *s)
{
	if (s->cores == 0)
		return 0;
	if (s->p.switch_ns == 0)
		return vb_fail(-EINVAL,
			       "cores: profile '%s' has no cores that clients share (effect core)",
			       s->p.name);
	if (s->handlers > s->cores)
		return vb_fail(
			-EINVAL,
			"handlers: %u server threads, and a node has %u cores: raise `cores`",
			s->handlers, s->cores);
	s->node_cores = calloc(s->base.nodes, sizeof(s->node_cores[0]));
	for (unsigned i = 0; s->node_cores != NULL && i < s->base.nodes; i++) {
		struct sim_cores *c = &s->node_cores[i];

		c->free_ns = calloc(s->cores, sizeof(c->free_ns[0]));
		c->last = calloc(s->cores, sizeof(c->last[0]));
		if (c->free_ns == NULL || c->last == NULL)
			return vb_fail(-ENOMEM, "no memory for %u cores on each node", s->cores);
	}
	return s->node_cores != NULL
		       ? 0
		       : vb_fail(-ENOMEM, "no memory for the cores of %u nodes", s->base.nodes);
}

void sim_cores_close(struct sim *s)
{
	for (unsigned i = 0; s->node_cores != NULL && i < s->base.nodes; i++) {
		free(s->node_cores[i].free_ns);
		free(s->node_cores[i].last);
	}
	free(s->node_cores);
}

void sim_cores_forget(struct sim *s)
{
	for (unsigned i = 0; s->node_cores != NULL && i < s->base.nodes; i++)
		memset(s->node_cores[i].free_ns, 0, s->cores * sizeof(uint64_t));
}

static struct sim_cores *cores_of(const struct sim_ep *ep)
{
	return &ep->sim->node_cores[vb_peer_node(ep->base.self)];
}

void sim_cores_attach(struct sim_ep *ep)
{
	struct sim_cores *c;

	ep->cpu_free_ns = ep->own_cpu_ns;
	if (ep->sim->cores == 0)
		return;
	c = cores_of(ep);
	ep->cpu_free_ns = c->free_ns;
	ep->cpu = ep->first_cpu = c->next++ % ep->sim->cores;
}

uint64_t sim_core_turn(struct sim_ep *ep, bool resumes)
{
	const struct vb_sim_profile *p = &ep->sim->p;
	uint64_t *free_ns = &ep->cpu_free_ns[ep->cpu], now = sim_now(ep->sim);
	vb_peer *last = &cores_of(ep)->last[ep->cpu];

	*free_ns = sim_max(now - sim_min(now, p->poll_ns), *free_ns) + p->poll_ns;
	if (resumes && *last != ep->base.self) {
		*free_ns += p->switch_ns;
		*last = ep->base.self;
	}
	return *free_ns;
}

bool sim_server_turn(struct sim_ep *ep)
{
	struct sim *s = ep->sim;
	unsigned cpus = s->cores != 0 ? s->cores : SIM_HANDLERS_MAX, cpu = ep->first_cpu;
	uint64_t now = sim_now(s);

	if (ep->turns == 0) {
		for (unsigned i = 1; i < s->handlers; i++) {
			unsigned other = (ep->first_cpu + i) % cpus;

			if (ep->cpu_free_ns[other] < ep->cpu_free_ns[cpu])
				cpu = other;
		}
		if (ep->cpu_free_ns[cpu] > now && s->cores == 0) {
			vb_timer_arm(s->sched, &ep->cpu_timer, ep->cpu_free_ns[cpu]);
			return false;
		}
		/* On shared cores what comes up later stands behind it: else clients would always be
		 * first.  A thread works on all that is there, its share of it. */
		ep->turns = s->cores == 0 ? 1 : (ep->inbox_n + s->handlers - 1) / s->handlers;
		ep->cpu = cpu;
		ep->turn_ns = sim_max(now, ep->cpu_free_ns[cpu]);
		ep->cpu_free_ns[cpu] = ep->turn_ns + ep->turns * s->p.handler_ns;
	}
	if (ep->turn_ns > now) {
		vb_timer_arm(s->sched, &ep->cpu_timer, ep->turn_ns);
		return false;
	}
	ep->turns--;
	return true;
}
