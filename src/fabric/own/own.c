/* SPDX-License-Identifier: Apache-2.0 */
/* A fabric that the program provides: what it gives is held against the header, and becomes a fabric. */
#define VB_LOG_ROOM "own"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/opened.h"
#include "fabric/own/inner.h"

static void own_close(struct vb_fabric *fabric)
{
	struct own_fabric *f = own_of(fabric);

	own_raw_close(&f->control);
	pthread_mutex_destroy(&f->opening);
	free(f);
}

static void own_after_fork(struct vb_fabric *f)
{
	vb_error("the fabric '%s' does not survive a fork: its connections belong to the parent; "
		 "provide one in the child",
		 f->ops->name);
	abort();
}

static bool own_peer_alive(struct vb_fabric *fabric, vb_peer peer)
{
	const struct vb_provider *p = &own_of(fabric)->p;

	return peer != VB_PEER_NONE && vb_peer_node(peer) < p->nodes &&
	       p->alive(p->ctx, vb_peer_node(peer), vb_peer_client(peer));
}

static void *own_local(struct vb_fabric *fabric, vb_addr addr, uint64_t bytes)
{
	const struct vb_provider *p = &own_of(fabric)->p;
	const uint16_t node = vb_addr_node(addr);
	const uint64_t offset = vb_addr_offset(addr);
	uint8_t *base;

	if (p->local == NULL || node >= p->nodes || bytes > p->node_bytes ||
	    offset > p->node_bytes - bytes)
		return NULL;
	base = p->local(p->ctx, node);
	return base != NULL ? base + offset : NULL;
}

static int own_home(struct vb_fabric *fabric)
{
	return own_of(fabric)->p.home;
}

static uint64_t own_common_now(struct vb_ep *ep, uint64_t *error_ns)
{
	const struct vb_provider *p = &own_of(ep->fabric)->p;

	*error_ns = 0;
	return p->common_now != NULL ? p->common_now(p->ctx, error_ns) : vb_clock_gettime_ns();
}

/* The name is the provider's, and there is none to open it by. */
static const struct vb_fabric_ops own_ops = {
	.summary = "the program's own",
	.caps =
		{
			/* As of a cluster: what lies on another node is reached by verbs alone. */
			.flags = VB_CAP_PROCESSES | VB_CAP_CLUSTER,
			.rtt_ns = 2000, /* some network */
			.atomics = "CAS and FAA of the program's; no masked ones",
			.order = "what the interface promises",
		},
	.close = own_close,
	.after_fork = own_after_fork,
	.ep_open = own_ep_open,
	.ep_close = own_ep_close,
	.post = own_post,
	.recv = own_recv,
	.peer_alive = own_peer_alive,
	.region = own_region,
	.region_find = own_region_find,
	.regions = own_regions,
	.region_hold = own_region_hold,
	.region_let_go = own_region_let_go,
	.region_take = own_region_take,
	.region_remove = own_region_remove,
	.local = own_local,
	.home = own_home,
	.common_now = own_common_now,
};

static int check_numbers(const struct vb_provider *p)
{
	if (p->nodes == 0 || p->nodes > VB_FABRIC_NODES_MAX)
		return vb_fail(-EINVAL, "'%s' has %u nodes: 1 to %u are possible", p->name,
			       p->nodes, VB_FABRIC_NODES_MAX);
	if (p->home >= p->nodes)
		return vb_fail(-EINVAL, "'%s' is at home at node %u, and has 0 to %u", p->name,
			       p->home, p->nodes - 1u);
	if (p->node_bytes < OWN_NODE_LEAST || p->node_bytes > 1ull << VB_ADDR_OFFSET_BITS)
		return vb_fail(-EINVAL,
			       "'%s' lends %" PRIu64
			       " bytes of each node: 64 KiB to 256 TiB are possible",
			       p->name, p->node_bytes);
	if (p->verb_bound_ns > OWN_NS_MAX || p->end_ns > OWN_NS_MAX || p->end_ns == 0 ||
	    p->end_ns < p->verb_bound_ns)
		return vb_fail(-EINVAL,
			       "'%s' has a verb_bound_ns of %" PRIu64 " and an end_ns of %" PRIu64
			       ": at most 100 s, the second larger than 0 and no smaller than the "
			       "first",
			       p->name, p->verb_bound_ns, p->end_ns);
	return 0;
}

int own_provider_check(const struct vb_provider *p)
{
	const char *missing = p->ep_open == NULL    ? "ep_open"
			      : p->ep_close == NULL ? "ep_close"
			      : p->post == NULL     ? "post"
			      : p->poll == NULL     ? "poll"
			      : p->alive == NULL    ? "alive"
						    : NULL;

	if (p->bytes < sizeof(*p))
		return vb_fail(-EINVAL,
			       "a provider of %zu bytes, not %zu: `bytes` is "
			       "sizeof(struct vb_provider)",
			       p->bytes, sizeof(*p));
	if (p->name == NULL || p->name[0] == '\0' || strlen(p->name) >= OWN_NAME ||
	    vb_fabric_find(p->name) != NULL)
		return vb_fail(-EINVAL,
			       "a provider's name has 1 to %u characters, and is none of the "
			       "library's fabrics",
			       OWN_NAME - 1);
	if (missing != NULL)
		return vb_fail(-EINVAL, "'%s' has no function %s", p->name, missing);
	return check_numbers(p);
}

int vb_fabric_provide(const struct vb_provider *provider, struct vb_fabric **out)
{
	struct own_fabric *f;
	int err;

	if (vb_any_null(provider, out))
		return -EINVAL;
	err = own_provider_check(provider);
	if (err != 0)
		return err;
	f = calloc(1, sizeof(*f));
	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	f->p = *provider;
	snprintf(f->name, sizeof(f->name), "%s", provider->name);
	f->p.name = f->name;
	f->ops = own_ops;
	f->ops.name = f->name;
	f->f.ops = &f->ops;
	f->f.caps = own_ops.caps;
	f->f.caps.flags |= provider->recv != NULL ? VB_CAP_SEND : 0;
	f->f.caps.flags |= provider->local == NULL ? VB_CAP_NO_VIEW : 0;
	f->f.caps.verb_bound_ns = provider->verb_bound_ns;
	f->f.nodes = provider->nodes;
	f->f.node_bytes = provider->node_bytes;
	f->f.seed = provider->seed;
	f->f.no_keeper = provider->no_keeper;
	vb_clock_init();
	err = own_raw_open(&f->p, &f->control);
	if (err != 0) {
		free(f);
		return err;
	}
	pthread_mutex_init(&f->opening, NULL);
	vb_opened_init(&f->f);
	(void)vb_clock_hold(NULL);
	*out = &f->f;
	return 0;
}
