/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The state of a server of an elastic cluster in a file (option `state`), so that who begins again after the process
 * has ended, however it has, is the same server: with its memory, the regions in it, its id, the places of its clients
 * and the boxes of their endpoints with all letters in them.  Nobody else sees more than a connection that was lost.
 *
 *	DIR         locked (flock) while a server has it
 *	DIR/state   mapped: head | ids of servers | directories | holds | members | boxes | letters | the nodes' memory
 *
 * What a process has stored in a shared mapping is the kernel's when the process dies: nothing of it is lost, and of
 * several stores the first ones are there.  So each change is published by its last store: a region by the count of
 * its directory, a member and a box by `used`, a letter by its box's `end`.  All of it is written under the engine.
 *
 * The kernel's own end is another matter: then pages are on the disk or not, in any order, and all times in them were
 * of a clock that has begun anew.  So a file of another boot is not believed, and the server comes back empty; nor is
 * one of a server that had not waited for `settle` to its end.
 *
 * The file is allocated when it is made, not when it is written to: a full disk is -ENOSPC then, and no SIGBUS later.
 */
#ifndef VB_FABRIC_NET_STATE_H
#define VB_FABRIC_NET_STATE_H

#include "fabric/net/elastic.h"

#define NET_STATE_RINGS 1024u /* boxes that have letters at a time */

struct net_state_head;

struct net_state_member {
	uint8_t id[NET_ID];
	uint64_t number;
	uint32_t used;
	uint32_t pad;
};

struct net_state_box {
	uint32_t place, client, asked, taken, begin, ring; /* ring: from 1 on; 0: none */
	uint32_t node, end;
	uint32_t used;
	uint32_t pad;
};

struct net_state {
	int lock_fd;
	bool resumed; /* as it was; else empty */
	bool clock_held;
	uint8_t *map;
	size_t bytes;
	struct net_state_head *head;
	struct net_state_member *member; /* [clients] */
	struct net_state_box *box;       /* [NET_CLIENTS_MAX], by client number modulo */
	struct vb_msg (*ring)[NET_RING]; /* [NET_STATE_RINGS] */
	bool ring_used[NET_STATE_RINGS];
};

/* Opens it or makes it, for f->local_nodes nodes: f->memory, f->core's directories and what f->elastic has of servers
 * lie in it then.  Said: -EBUSY: another server has it; -EPROTO: it is another's; -ENOSPC, -EACCES, -errno. */
int net_state_open(struct net_fabric *f);
/* It stays as it is, for who begins next. */
void net_state_close(struct net_fabric *f);
/* Nobody can hold what a former server has granted, unless it is in the file. */
void net_state_settled(struct net_fabric *f);

static inline bool net_state_resumed(const struct net_fabric *f)
{
	return f->elastic != NULL && f->elastic->state != NULL && f->elastic->state->resumed;
}

static inline bool net_state_is(const struct net_fabric *f)
{
	return f->elastic != NULL && f->elastic->state != NULL;
}

/* What has been changed is to be found by the next one; without a state they do nothing. */
void net_state_holds(struct net_fabric *f);
void net_state_member(struct net_fabric *f, uint32_t place);
void net_state_number(struct net_fabric *f);
void net_state_box(struct net_fabric *f, const struct net_box *b);
void net_state_box_gone(struct net_fabric *f, const struct net_box *b);
/* Room for the letters of a box; false: there is none. */
bool net_state_ring_take(struct net_fabric *f, struct net_box *b);
void net_state_ring_give(struct net_fabric *f, struct net_box *b);

#endif
