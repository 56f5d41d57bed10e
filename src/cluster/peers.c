/* SPDX-License-Identifier: Apache-2.0 */
/* The processes of a cluster: who they are, who is suspect, who is gone. */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"

void cluster_set_peer(struct vb_cluster *c, uint32_t rank, const struct cl_identity *who)
{
	struct cluster_peer *p = &c->peers[rank];

	p->who = *who;
	p->known = true;
	p->local = who->machine[0] != '\0' && strcmp(who->machine, c->me.machine) == 0;
	snprintf(p->name, sizeof(p->name), "rank %u (%s, pid %u)", rank, who->host, who->pid);
	c->members_known++;
}

bool vb_cluster_alive(const struct vb_cluster *c, uint32_t rank)
{
	return c != NULL && rank < c->hosts &&
	       __atomic_load_n(&c->peers[rank].state, __ATOMIC_ACQUIRE) == PEER_ALIVE;
}

bool vb_cluster_suspect(const struct vb_cluster *c, uint32_t rank)
{
	return rank < c->hosts && __atomic_load_n(&c->peers[rank].suspect, __ATOMIC_ACQUIRE) != 0;
}

int vb_cluster_first_dead(const struct vb_cluster *c)
{
	return __atomic_load_n(&c->first_dead, __ATOMIC_ACQUIRE);
}

/* ---- who is gone ---- */

static void tell_members(struct vb_cluster *c, enum cl_type type, uint32_t rank, bool flag)
{
	struct cl_about a = {.rank = rank, .flag = flag};

	for (uint32_t r = 1; r < c->hosts; r++) {
		struct cluster_conn *k = c->peers[r].conn;
		uint8_t *to;

		if (r == rank || k == NULL || k->phase != CONN_GOING)
			continue;
		to = conn_room(k, CL_CONTROL_MAX);
		if (to != NULL)
			conn_put(k, cl_put_about(to, type, &a));
	}
}

void cluster_gone(struct vb_cluster *c, uint32_t rank, bool died)
{
	int nobody = -1;
	char text[CL_NAME + 64];

	if (!vb_cluster_alive(c, rank))
		return;
	__atomic_store_n(&c->peers[rank].state, died ? PEER_DIED : PEER_LEFT, __ATOMIC_RELEASE);
	__atomic_store_n(&c->peers[rank].suspect, 0, __ATOMIC_RELEASE);
	c->peers[rank].conn = NULL;
	if (died)
		__atomic_compare_exchange_n(&c->first_dead, &nobody, (int)rank, false,
					    __ATOMIC_ACQ_REL, __ATOMIC_RELAXED);
	c->gone[c->n_gone] = rank;
	__atomic_store_n(&c->n_gone, c->n_gone + 1, __ATOMIC_RELEASE);
	if (c->is_root) {
		tell_members(c, CL_GONE, rank, died);
	} else if (rank == 0) {
		snprintf(text, sizeof(text), "%s, the root, %s", c->peers[0].name,
			 died ? "died" : "has left");
		cluster_calls_fail(c, -VB_EPEERGONE, text);
	}
}

void cluster_set_suspect(struct vb_cluster *c, uint32_t rank, bool on)
{
	char span[16];

	if (!vb_cluster_alive(c, rank) || vb_cluster_suspect(c, rank) == on)
		return;
	__atomic_store_n(&c->peers[rank].suspect, on, __ATOMIC_RELEASE);
	vb_warn("%s %s %s", c->peers[rank].name,
		on ? "is suspect: no sign of life for" : "is back, after more than",
		vb_format_ns(span, sizeof(span), (double)c->silence_ns));
	if (c->is_root)
		tell_members(c, CL_SUSPECT, rank, on);
	else if (rank == 0 && on)
		cluster_calls_fail(c, -ETIMEDOUT, "the root gives no sign of life");
}

void vb_cluster_on_gone(struct vb_cluster *c, unsigned slot,
			void (*fn)(void *ctx, uint32_t rank, bool died), void *ctx)
{
	vb_assert(slot < CL_SLOTS);
	pthread_mutex_lock(&c->tell_lock);
	/* Those who are gone already are told of too, from the beginning. */
	c->slots[slot] = (struct cluster_slot){.fn = fn, .ctx = ctx};
	pthread_mutex_unlock(&c->tell_lock);
	cluster_wake(c);
}
