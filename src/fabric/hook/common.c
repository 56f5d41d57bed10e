/* SPDX-License-Identifier: Apache-2.0 */
/* The part of a hook that passes things on; see common.h. */
#define VB_LOG_ROOM "hook"
#include "fabric/hook/common.h"

#include "base/log.h"
#include "fabric/opened.h"

int vb_hook_make(struct vb_fabric *lower, const struct vb_fabric_ops *ops, size_t size,
		 struct vb_fabric **out)
{
	struct vb_fabric *f = calloc(1, size);

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for the hook '%s'", ops->name);
	*f = *lower;
	f->ops = ops;
	f->lower = lower;
	vb_opened_init(f);
	*out = f;
	return 0;
}

int vb_hook_needs_inline(const struct vb_fabric *lower, const char *hook)
{
	if (lower->caps.flags & VB_CAP_INLINE)
		return 0;
	return vb_fail(-EOPNOTSUPP,
		       "the hook '%s' needs a fabric whose verbs complete at once, '%s' is none",
		       hook, lower->ops->name);
}

void vb_hook_close(struct vb_fabric *f)
{
	vb_fabric_close(f->lower);
	free(f);
}

void vb_hook_after_fork(struct vb_fabric *f)
{
	f->lower->ops->after_fork(f->lower);
}

int vb_hook_ep_make(struct vb_fabric *f, uint16_t node, size_t size, struct vb_ep **out)
{
	struct vb_ep *lower, *ep = calloc(1, size);
	int err;

	if (ep == NULL)
		return vb_fail(-ENOMEM, "no memory for an endpoint");
	err = vb_ep_open(f->lower, node, &lower);
	if (err != 0) {
		free(ep);
		return err;
	}
	vb_ep_init(ep, f, lower->self);
	ep->lower = lower;
	ep->drift_ppb = lower->drift_ppb;
	ep->offset_ns = lower->offset_ns;
	*out = ep;
	return 0;
}

int vb_hook_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out)
{
	return vb_hook_ep_make(f, node, sizeof(struct vb_ep), out);
}

void vb_hook_ep_close(struct vb_ep *ep)
{
	vb_ep_close(ep->lower);
	free(ep);
}

int vb_hook_recv(struct vb_ep *ep, struct vb_msg *out)
{
	return vb_ep_recv(ep->lower, out);
}

void vb_hook_waited(struct vb_ep *ep, struct vb_batch *batch)
{
	if (ep->lower->ops->waited != NULL)
		ep->lower->ops->waited(ep->lower, batch);
}

bool vb_hook_peer_alive(struct vb_fabric *f, vb_peer peer)
{
	return vb_peer_alive(f->lower, peer);
}

int vb_hook_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   vb_addr *out, bool *fresh)
{
	return vb_region_or_other(f->lower, node, name, bytes, out, fresh);
}

void *vb_hook_local(struct vb_fabric *f, vb_addr addr, uint64_t bytes)
{
	return vb_local(f->lower, addr, bytes);
}

void vb_hook_checkpoint(struct vb_ep *ep, bool before)
{
	vb_ep_checkpoint(ep->lower, before);
}

void vb_hook_serve(struct vb_ep *ep)
{
	vb_ep_serve(ep->lower);
}
