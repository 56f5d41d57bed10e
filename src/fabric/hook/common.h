/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What all hooks share: an endpoint that stands on the lower one, and entries that pass on what a
 * hook does not touch.  Hooks leave the single-verb entries NULL: every verb goes through post.
 */
#ifndef VB_FABRIC_HOOK_COMMON_H
#define VB_FABRIC_HOOK_COMMON_H

#include "fabric/hook/hooks.h"

/* Fills in what every hook's fabric starts with; `size` is that of the hook's own struct. */
int vb_hook_make(struct vb_fabric *lower, const struct vb_fabric_ops *ops, size_t size,
		 struct vb_fabric **out);
/* Opens the lower endpoint and one of `size` bytes on top of it. */
int vb_hook_ep_make(struct vb_fabric *f, uint16_t node, size_t size, struct vb_ep **out);
/* -EOPNOTSUPP, said, unless the lower fabric's verbs complete inline. */
int vb_hook_needs_inline(const struct vb_fabric *lower, const char *hook);

/* What a verb is for; those for one node are ordered. */
static inline uint16_t vb_hook_node_of(const struct vb_verb *v)
{
	return v->op == VB_OP_SEND ? vb_peer_node(v->peer) : vb_addr_node(v->addr);
}

void vb_hook_close(struct vb_fabric *f);
void vb_hook_after_fork(struct vb_fabric *f);
int vb_hook_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out);
void vb_hook_ep_close(struct vb_ep *ep);
int vb_hook_recv(struct vb_ep *ep, struct vb_msg *out);
void vb_hook_waited(struct vb_ep *ep, struct vb_batch *batch);
bool vb_hook_peer_alive(struct vb_fabric *f, vb_peer peer);
int vb_hook_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   vb_addr *out, bool *fresh);
void *vb_hook_local(struct vb_fabric *f, vb_addr addr, uint64_t bytes);
void vb_hook_checkpoint(struct vb_ep *ep, bool before);
void vb_hook_serve(struct vb_ep *ep);

#endif
