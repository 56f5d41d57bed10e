/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Which of two servers of one name is the later one.  A name may move to another machine while the server that had it
 * lives on behind a cut link, with clients that reach it still: each of the two would grant what the other has granted.
 * No process can know of both unless it hears of them, so whoever hears tells:
 *
 *	born      each server has a number that grows from one to the next: the calendar at its beginning (fabric/born.h).
 *	          Its card says it; who knows of a later one refuses the earlier, whichever of them it met first
 *	EARLIER   the card that a server gets from anybody says the largest number that is known of its name: one that
 *	          is told of a larger one than its own *stops*: its nodes are gone for everybody, itself included
 *	LATER     over each connection go, first and whenever one has grown, the numbers that are known of all servers:
 *	          so a client that reaches the earlier one hears of the later one from any server that has met that,
 *	          gives the earlier one up, and tells it.  None is dropped while its connection lives: tcp, which alone
 *	          has servers that come and go, takes a message or ends the connection, and over the next one all is told
 *
 * So the two go on beside each other as long as nobody at all reaches the one and somebody who has heard of the other.
 * That cannot be helped without a majority that each server has to ask (doc/elastic.md).
 *
 * A server whose machine's calendar is behind by more than what lies between the two takes itself for the earlier one:
 * it stops, and says why.
 */
#define VB_LOG_ROOM "net"
#include <inttypes.h>
#include <time.h>

#include "base/log.h"
#include "fabric/born.h"
#include "fabric/net/elastic.h"

#define EACH 8u

struct control_later {
	uint8_t kind, version;
	uint16_t first, n, pad;
	uint64_t born[EACH]; /* of the servers from `first` on; 0: not known */
};
_Static_assert(sizeof(struct control_later) <= NET_CONTROL_MAX, "it fits");
_Static_assert(sizeof(struct control_later) != sizeof(struct control_letter) &&
		       sizeof(struct control_later) != sizeof(struct control_ask) &&
		       sizeof(struct control_later) != sizeof(struct control_take) &&
		       sizeof(struct control_later) != sizeof(struct control_count) &&
		       sizeof(struct control_later) != sizeof(struct control_answer),
	       "what comes is told apart by its size, too");

uint64_t net_later_now(void)
{
	struct timespec now;

	(void)clock_gettime(CLOCK_REALTIME, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int net_later_begin(struct net_fabric *f)
{
	struct net_elastic *e = f->elastic;

	if (net_is_client(f))
		return 0;
	/* Only of a state. */
	if (e->later[f->host] > e->born)
		return vb_fail(-ESTALE,
			       "the state in %s (option state) is that of a server in whose name "
			       "another one has begun since, and which has stopped: remove it when "
			       "the longest lease is over, and begin only if that one has ended",
			       e->p.state);
	e->later[f->host] = e->born;
	for (uint32_t n = 0; n < f->local_nodes; n++)
		memcpy(f->memory + n * f->f.node_bytes + VB_BORN_AT, &e->born, sizeof(e->born));
	return 0;
}

/* ---- what becomes of the earlier one ---- */

void net_later_replaced(struct net_fabric *f, uint32_t host)
{
	struct net_former *former = &f->elastic->former[host];

	memcpy(former->id[former->n++ % NET_FORMER], f->elastic->seen[host], NET_ID);
	net_hold_disown(f, host);
	if (!f->elastic->met[host])
		return; /* nothing that it had was known here */
	vb_warn("server %u has begun again, and lost what it had: this process goes on with it, "
		"but reaches its nodes' memory no more",
		net_elastic_number(f, host));
	net_host_is_anew(f, host);
	/* The number of this process's place is the new one's to say, whoever was the first to tell of it. */
	f->elastic->met[host] = false;
}

/* ---- telling ---- */

void net_later_tell(struct net_fabric *f, uint32_t host)
{
	const struct net_elastic *e = f->elastic;

	for (uint32_t at = 0; at < f->hosts; at += EACH) {
		struct control_later m = {
			.kind = CONTROL_LATER, .version = CONTROL_VERSION, .first = (uint16_t)at};

		for (m.n = 0; m.n < EACH && at + m.n < f->hosts; m.n++)
			m.born[m.n] = e->later[at + m.n];
		(void)f->t->control(f, host, &m, sizeof(m));
	}
}

static void tell_all(struct net_fabric *f)
{
	const struct net_elastic *e = f->elastic;

	for (uint32_t h = 0; h < f->hosts; h++)
		if (h != f->host && e->up[h])
			net_later_tell(f, h);
	for (uint32_t i = 0; !net_is_client(f) && i < e->p.clients; i++)
		if (e->member[i].used && e->member[i].live)
			net_later_tell(f, f->hosts + i);
}

/* ---- being told ---- */

static void stop(struct net_fabric *f, uint64_t later)
{
	struct net_elastic *e = f->elastic;

	if (e->replaced)
		return;
	e->replaced = true;
	/* In its state, if it has one: it does not begin again with that where nobody would tell it. */
	e->later[f->host] = later;
	vb_error("another server has begun in the name of this one, server %u, %" PRIu64
		 " ms after it (or this machine's calendar is behind, and this one is the later): "
		 "this one grants nothing any more, and nobody reaches its nodes; end it",
		 net_elastic_number(f, f->host), (later - e->born) / 1000000);
	/* No transport has a connection to itself. */
	f->core->host[f->host].told = true;
	for (uint32_t h = 0; h < f->hosts; h++)
		net_host_is_gone(f, h);
	/* Not here: what has brought it is on the stack. */
	for (uint32_t i = 0; i < e->p.clients; i++)
		if (e->member[i].used)
			e->member[i].until_ns = 0;
	f->t->due(f, 0);
}

bool net_later_heard_of_us(struct net_fabric *f, uint64_t born)
{
	if (net_is_client(f) || born <= f->elastic->born)
		return f->elastic->replaced;
	stop(f, born);
	return true;
}

static void heard(struct net_fabric *f, uint32_t server, uint64_t born)
{
	static const uint8_t none[NET_ID];
	struct net_elastic *e = f->elastic;

	if (born <= e->later[server])
		return;
	if (server == f->host) {
		(void)net_later_heard_of_us(f, born);
		return;
	}
	e->later[server] = born;
	/* Before it is given up here, the earlier one, too, if there is a connection to it. */
	tell_all(f);
	if (memcmp(e->seen[server], none, NET_ID) == 0)
		return;
	if (e->home[server].eps != 0) {
		net_home_gone(f, server, "another one has begun in its place");
	} else {
		net_later_replaced(f, server);
		memset(e->seen[server], 0, NET_ID);
	}
}

bool net_later_control(struct net_fabric *f, const void *data, size_t bytes)
{
	struct control_later m;

	if (bytes != sizeof(m))
		return false;
	memcpy(&m, data, sizeof(m));
	if (m.kind != CONTROL_LATER || m.n > EACH || m.first + m.n > f->hosts)
		return false;
	for (uint32_t i = 0; i < m.n; i++)
		heard(f, m.first + i, m.born[i]);
	return true;
}

const char *net_later_greeted(struct net_fabric *f, uint32_t server, uint64_t born)
{
	struct net_elastic *e = f->elastic;

	if (born == 0)
		return "it does not say when it has begun";
	if (born < e->later[server])
		return "another one has begun in its place";
	if (born == e->later[server])
		return NULL;
	e->later[server] = born;
	tell_all(f);
	return NULL;
}
