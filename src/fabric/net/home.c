/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The servers at which a client has its endpoints.  What comes to those comes from there alone, so who waits for it has
 * to hear when that has ended, however it has: without a word (the machine is off), with the connections up (it is
 * stopped), for a moment or for good.
 *
 *	each second      asked what its clock shows; nothing came for `silence`: the connection is given up
 *	no connection    for `linger`, as the server has told it: then the server gives this client up as well, and
 *	                 what waits ends with -VB_EPEERGONE
 *
 * So a wait ends HOME_EACH_NS + silence + linger after the server's last sign of life at the latest.
 */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/elastic.h"

#define HOME_EACH_NS 1000000000ull

void net_home_gone(struct net_fabric *f, uint32_t host, const char *why)
{
	vb_warn("server %u: %s: its nodes are gone for this process, which has to open the fabric "
		"anew",
		net_elastic_number(f, host), why);
	net_host_is_gone(f, host);
	vb_list_for_each (it, &f->elastic->away) {
		struct net_ep *e = vb_container_of(it, struct net_ep, in_away);

		if (net_host_of_node(f, vb_peer_node(e->ep.self)) == host)
			net_ep_stir(e);
	}
}

void net_home_up(struct net_fabric *f, uint32_t host)
{
	struct net_home *h = &f->elastic->home[host];

	h->lost_ns = VB_FOREVER;
	h->asked_ns = 0;
	h->due_ns = 0;
	f->t->due(f, 0);
}

void net_home_down(struct net_fabric *f, uint32_t host)
{
	struct net_home *h = &f->elastic->home[host];

	if (h->lost_ns == VB_FOREVER)
		h->lost_ns = vb_clock_ns();
	f->t->due(f, 0);
}

/* It is connected; says when to look again. */
static uint64_t ask(struct net_fabric *f, uint32_t host, uint64_t now)
{
	const struct control_ask q = {
		.kind = CONTROL_CLOCK, .version = CONTROL_VERSION, .number = NET_CLOCK_UNREAD};
	struct net_home *h = &f->elastic->home[host];
	uint64_t due;

	if (h->asked_ns != 0) {
		due = f->t->silent(f, host, h->asked_ns, now);
		if (due != 0)
			return due;
		h->asked_ns = 0;
	}
	if (now < h->due_ns)
		return h->due_ns;
	h->due_ns = now + HOME_EACH_NS;
	if (f->t->control(f, host, &q, sizeof(q)) != 0)
		return h->due_ns;
	h->asked_ns = now;
	return f->t->silent(f, host, now, now);
}

static uint64_t tick(struct net_fabric *f, uint32_t host, uint64_t now)
{
	const struct net_home *h = &f->elastic->home[host];
	uint64_t end;

	if (h->eps == 0 || net_host_gone(f, (uint16_t)host))
		return VB_FOREVER;
	if (f->elastic->up[host])
		return ask(f, host, now);
	if (h->lost_ns == VB_FOREVER)
		return VB_FOREVER;
	end = h->lost_ns + h->linger_ns;
	if (now < end)
		return end;
	net_home_gone(f, host, "there was no connection with it for its option linger");
	return VB_FOREVER;
}

uint64_t net_home_tick(struct net_fabric *f, uint64_t now)
{
	uint64_t due = VB_FOREVER, at;

	for (uint32_t i = 0; i < f->hosts; i++) {
		at = tick(f, i, now);
		due = at < due ? at : due;
	}
	return due;
}
