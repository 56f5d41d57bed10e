/* SPDX-License-Identifier: Apache-2.0 */
/* Endpoints: opened by the provider, and closed when what is under way has left. */
#define VB_LOG_ROOM "own"
#include <sched.h>

#include "base/log.h"
#include "fabric/own/inner.h"

int own_recv(struct vb_ep *ep, struct vb_msg *out)
{
	struct own_ep *e = (struct own_ep *)ep;

	if (!own_ep_take_message(e))
		return -EAGAIN;
	e->have = false;
	*out = e->message;
	return 0;
}

static void ep_free(struct own_ep *e)
{
	free(e->free);
	free(e->place);
	free(e->built);
	free(e);
}

static struct own_ep *ep_new(uint32_t places)
{
	struct own_ep *e = calloc(1, sizeof(*e));

	if (e == NULL)
		return NULL;
	e->free = calloc(places, sizeof(*e->free));
	e->place = calloc(places, sizeof(*e->place));
	e->built = calloc(places, sizeof(*e->built));
	if (e->free == NULL || e->place == NULL || e->built == NULL) {
		ep_free(e);
		return NULL;
	}
	e->n_places = e->n_free = places;
	for (uint32_t i = 0; i < places; i++)
		e->free[i] = places - 1 - i;
	vb_list_init(&e->in_thread);
	vb_list_init(&e->in_busy);
	return e;
}

static void close_provided(struct own_fabric *f, void *ep)
{
	pthread_mutex_lock(&f->opening);
	f->p.ep_close(f->p.ctx, ep);
	pthread_mutex_unlock(&f->opening);
}

static int open_provided(struct own_fabric *f, uint16_t node, struct vb_provider_endpoint *at)
{
	const char *wrong;
	int err;

	*at = (struct vb_provider_endpoint){0};
	pthread_mutex_lock(&f->opening);
	err = f->p.ep_open(f->p.ctx, node, at);
	pthread_mutex_unlock(&f->opening);
	if (err != 0)
		return vb_fail(err < 0 ? err : -EINVAL, "'%s' opens no endpoint at node %u: %s",
			       f->p.name, node, vb_strerror(err));
	wrong = own_endpoint_wrong(at);
	if (wrong == NULL)
		return 0;
	close_provided(f, at->ep);
	return vb_fail(-EINVAL, "'%s' has opened an endpoint with %s", f->p.name, wrong);
}

int own_ep_open(struct vb_fabric *fabric, uint16_t node, struct vb_ep **out)
{
	struct own_fabric *f = own_of(fabric);
	struct vb_provider_endpoint at;
	struct own_thread *t;
	struct own_ep *e;
	uint32_t places;
	int err = own_thread_get(&t);

	if (err != 0)
		return err;
	err = open_provided(f, node, &at);
	if (err != 0) {
		own_thread_put(t);
		return err;
	}
	places = at.buffer_bytes / VB_PROVIDER_VERB_BYTES < OWN_PLACES_MAX
			 ? (uint32_t)(at.buffer_bytes / VB_PROVIDER_VERB_BYTES)
			 : OWN_PLACES_MAX;
	e = ep_new(places);
	if (e == NULL) {
		close_provided(f, at.ep);
		own_thread_put(t);
		return vb_fail(-ENOMEM, "no memory for an endpoint");
	}
	vb_ep_init(&e->ep, fabric, vb_peer_make(node, at.client));
	e->at = at;
	e->p = &f->p;
	e->thread = t;
	vb_list_push(&t->eps, &e->in_thread);
	*out = &e->ep;
	return 0;
}

/* What is under way leaves before the endpoint does: a release that nobody waits for, say. */
void own_ep_close(struct vb_ep *ep)
{
	struct own_ep *e = (struct own_ep *)ep;

	while (e->n_free < e->n_places && !e->broken) {
		if (own_ep_take_ends(e))
			continue;
		own_ep_look_for_lost(e, vb_clock_ns());
		sched_yield();
	}
	vb_list_remove(&e->in_busy);
	vb_list_remove(&e->in_thread);
	own_thread_put(e->thread);
	close_provided(own_of(ep->fabric), e->at.ep);
	ep_free(e);
}
