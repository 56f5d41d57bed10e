/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints of a network fabric: opened, closed, and what they are asked. */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/elastic.h"

static struct net_ep *ep_new(struct net_fabric *f, struct net_thread *t, uint32_t client,
			     uint16_t node)
{
	struct net_ep *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return NULL;
	e->ring = malloc(NET_RING * sizeof(*e->ring));
	if (e->ring == NULL) {
		free(e);
		return NULL;
	}
	vb_ep_init(&e->ep, &f->f, vb_peer_make(node, client));
	e->thread = t;
	e->client = client;
	e->lane = client;
	vb_list_init(&e->in_thread);
	vb_list_init(&e->in_away);
	return e;
}

/* Makes it with that number, 0: one that is free, which goes to *client; NULL: there is none, or no memory. */
static struct net_ep *ep_enter(struct net_fabric *f, struct net_thread *t, uint16_t node,
			       uint32_t *client, uint32_t turn)
{
	struct net_ep *e = NULL;

	pthread_mutex_lock(&f->engine);
	if (*client == 0)
		*client = net_draw_number(f);
	if (*client != 0)
		e = ep_new(f, t, *client, node);
	if (e != NULL) {
		f->core->clients[*client % NET_CLIENTS_MAX] = e;
		f->core->open_clients++;
		if (net_is_client(f))
			net_away_opened(f, e, turn);
	}
	pthread_mutex_unlock(&f->engine);
	return e;
}

int net_ep_open(struct vb_fabric *fabric, uint16_t node, struct vb_ep **out)
{
	struct net_fabric *f = net_of(fabric);
	struct net_thread *t;
	struct net_ep *e = NULL;
	uint32_t client = 0, turn = 0;
	int err;

	if (net_host_of_node(f, node) != f->host && !net_is_client(f))
		return vb_fail(-EINVAL,
			       "node %u lives in process %u of the cluster, this is %u: an "
			       "endpoint is opened where its node is",
			       node, net_host_of_node(f, node), f->host);
	err = net_thread_get(f, &t);
	if (err != 0)
		return err;
	if (net_is_client(f))
		err = net_away_draw(f, node, &client, &turn);
	if (err != 0) {
		net_thread_put(t);
		return err;
	}
	e = ep_enter(f, t, node, &client, turn);
	if (e == NULL) {
		net_thread_put(t);
		return client == 0 ? vb_fail(-ENOSPC, "%d endpoints are open in this process",
					     NET_CLIENTS_MAX)
				   : vb_fail(-ENOMEM, "no memory for an endpoint");
	}
	vb_list_push(&t->eps, &e->in_thread);
	*out = &e->ep;
	return 0;
}

void net_ep_close(struct vb_ep *ep)
{
	struct net_ep *e = (struct net_ep *)ep;
	struct net_fabric *f = net_of(ep->fabric);

	pthread_mutex_lock(&f->engine);
	if (net_is_client(f))
		net_away_closed(f, e);
	f->core->clients[e->client % NET_CLIENTS_MAX] = NULL;
	f->core->open_clients--;
	pthread_mutex_unlock(&f->engine);
	vb_list_remove(&e->in_thread);
	net_thread_put(e->thread);
	free(e->ring);
	free(e);
}

int net_deliver(struct net_fabric *f, uint32_t client, const struct vb_msg *m)
{
	struct net_ep *e = net_ep_find(f, client);

	if (vb_unlikely(e == NULL))
		return f->elastic != NULL ? net_box_put(f, client, m) : -VB_EPEERGONE;
	return net_ep_put(e, m);
}

int net_recv(struct vb_ep *ep, struct vb_msg *out)
{
	struct net_ep *e = (struct net_ep *)ep;
	uint32_t head = e->head;

	if (head == __atomic_load_n(&e->tail, __ATOMIC_ACQUIRE))
		return -EAGAIN;
	*out = e->ring[head % NET_RING];
	__atomic_store_n(&e->head, head + 1, __ATOMIC_RELEASE);
	return 0;
}

uint64_t net_common_now(struct vb_ep *ep, uint64_t *error_ns)
{
	struct net_fabric *f = net_of(ep->fabric);
	int64_t offset_ns = 0;

	*error_ns = 0;
	if (f->elastic != NULL)
		return net_elastic_now(f, vb_ep_now(ep), error_ns);
	if (f->cluster != NULL)
		vb_cluster_clock(f->cluster, &offset_ns, error_ns);
	return vb_ep_now(ep) + (uint64_t)offset_ns;
}

/* Of who has begun again its server says who is there: most that are asked for had their homes at the one before.
 * Of others that would cost more than it tells. */
static bool is_elsewhere_alive(struct net_fabric *f, vb_peer peer)
{
	uint32_t host = net_host_of_node(f, vb_peer_node(peer));
	bool up;

	if (net_host_gone(f, (uint16_t)host))
		return false;
	if (!net_memory_gone(f, host))
		return true;
	/* Who cannot be asked does not say that anybody is dead. */
	pthread_mutex_lock(&f->engine);
	up = f->elastic->up[host];
	pthread_mutex_unlock(&f->engine);
	return !up || net_away_lives(f, peer);
}

/* Who cannot be reached just now may be stopped, or behind a cut link: only the cluster buries. */
bool net_peer_alive(struct vb_fabric *fabric, vb_peer peer)
{
	struct net_fabric *f = net_of(fabric);
	const struct net_ep *e;
	bool alive;

	if (peer == VB_PEER_NONE || vb_peer_node(peer) >= fabric->nodes)
		return false;
	if (net_host_of_node(f, vb_peer_node(peer)) != f->host && !net_is_client(f))
		return is_elsewhere_alive(f, peer);
	pthread_mutex_lock(&f->engine);
	e = net_ep_find(f, vb_peer_client(peer));
	alive = e != NULL && (!net_is_client(f) || e->ep.self == peer);
	if (f->elastic != NULL && !net_is_client(f))
		alive |= net_box_find(f, vb_peer_client(peer)) != NULL;
	pthread_mutex_unlock(&f->engine);
	return alive || (net_is_client(f) && net_away_lives(f, peer));
}

/* A client has no node of its own: one of a server that answers, for each client another one. */
int net_home(struct vb_fabric *fabric)
{
	struct net_fabric *f = net_of(fabric);

	return net_is_client(f) ? net_elastic_home(f) : -ENOENT;
}

/* Of a client whose home is gone: nothing comes there any more. */
bool net_ep_cut_off(const struct vb_ep *ep)
{
	const struct net_fabric *f = net_of(ep->fabric);

	return net_is_client(f) && net_host_gone(f, vb_peer_node(ep->self));
}

bool net_node_gone(struct vb_fabric *fabric, uint16_t node)
{
	struct net_fabric *f = net_of(fabric);

	return net_memory_gone(f, net_host_of_node(f, node));
}
