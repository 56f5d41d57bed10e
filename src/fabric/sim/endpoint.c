/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: who bears a name, and the messages that wait for him. */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include <stdlib.h>

#include "base/log.h"

void sim_ep_free(struct sim_ep *ep)
{
	struct sim *s = ep->sim;

	vb_timer_disarm(s->sched, &ep->cpu_timer);
	vb_timer_disarm(s->sched, &ep->death);
	s->eps[ep->slot] = NULL;
	free(ep->inbox);
	free(ep->flows);
	free(ep);
}

struct sim_ep *sim_find_peer(const struct sim *s, vb_peer peer)
{
	uint32_t slot = vb_peer_client(peer) & ((1u << s->slot_bits) - 1);
	struct sim_ep *ep = slot < s->n_slots ? s->eps[slot] : NULL;

	return ep != NULL && ep->base.self == peer && !ep->dead && !ep->closed && !ep->disowned
		       ? ep
		       : NULL;
}

bool sim_between_clients(const struct sim_ep *from, vb_peer to)
{
	const struct sim_ep *ep = sim_find_peer(from->sim, to);

	if (from->sim->own_ns != 0 && vb_peer_node(to) == vb_peer_node(from->base.self))
		return false;
	return !from->server && ep != NULL && !ep->server;
}

static bool inbox_room(struct sim_ep *ep)
{
	uint32_t size = 2 * ep->inbox_size;
	struct vb_msg *bigger;

	if (vb_likely(ep->inbox_n < ep->inbox_size))
		return true;
	if (size > SIM_INBOX_MAX)
		return false;
	bigger = malloc(size * sizeof(*bigger));
	if (bigger == NULL) {
		vb_error("no memory for a message to client %u: it is lost",
			 vb_peer_client(ep->base.self));
		return false;
	}
	for (uint32_t i = 0; i < ep->inbox_n; i++)
		bigger[i] = ep->inbox[(ep->inbox_head + i) & (ep->inbox_size - 1)];
	free(ep->inbox);
	ep->inbox = bigger;
	ep->inbox_size = size;
	ep->inbox_head = 0;
	return true;
}

bool sim_inbox_put(struct sim_ep *ep, const struct vb_msg *msg)
{
	if (!inbox_room(ep))
		return false;
	ep->inbox[(ep->inbox_head + ep->inbox_n++) & (ep->inbox_size - 1)] = *msg;
	vb_ep_wake(&ep->base);
	return true;
}

int sim_recv(struct vb_ep *vep, struct vb_msg *out)
{
	struct sim_ep *ep = sim_ep_of(vep);
	uint64_t *cpu = &ep->cpu_free_ns[ep->cpu];

	if (vb_unlikely(ep->dead))
		vb_task_die();
	if (ep->inbox_n == 0)
		return -EAGAIN;
	if (ep->server && !sim_server_turn(ep))
		return -EAGAIN;
	*out = ep->inbox[ep->inbox_head];
	ep->inbox_head = (ep->inbox_head + 1) & (ep->inbox_size - 1);
	ep->inbox_n--;
	if (vb_unlikely(ep->sim->cores != 0) && !ep->server)
		(void)sim_core_turn(ep, true);
	if (vb_unlikely(ep->sim->p.recv_ns != 0) && sim_between_clients(ep, out->from))
		*cpu = sim_max(*cpu, sim_now(ep->sim)) + ep->sim->p.recv_ns;
	return 0;
}
