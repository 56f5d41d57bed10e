/* SPDX-License-Identifier: Apache-2.0 */
/* The endpoints of an elastic cluster's client, which have their home at a server.  See elastic.h. */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/elastic.h"

#define REPORT_EACH 8u /* letters: until then the home keeps them */
#define REPORT_NS   1000000ull
#define TELL_NS                                                                                    \
	100000000ull /* fewer are told by then: a home with a state has room for few boxes with letters */
#define LIVES_NS 200000000ull /* who is asked for is alive until his home has said otherwise */

static uint32_t home_of(const struct net_fabric *f, const struct net_ep *e)
{
	return net_host_of_node(f, vb_peer_node(e->ep.self));
}

static int tell(struct net_fabric *f, struct net_ep *e, enum net_control_kind kind)
{
	uint32_t head = __atomic_load_n(&e->head, __ATOMIC_ACQUIRE);
	const struct control_count c = {
		.kind = (uint8_t)kind,
		.version = CONTROL_VERSION,
		.node = vb_peer_node(e->ep.self),
		.client = e->client,
		.came = e->tail,
		.taken = head,
	};
	int err = f->t->control(f, home_of(f, e), &c, sizeof(c));

	if (err == 0) {
		e->told_tail = e->tail;
		e->told_head = head;
	}
	return err;
}

/* ---- letters ---- */

/* Half of what may be under way is not known to be taken: the home may soon have to stop. */
static bool is_owed(const struct net_ep *e)
{
	return e->tail - e->told_head >= NET_RING / 2 &&
	       __atomic_load_n(&e->head, __ATOMIC_ACQUIRE) - e->told_head >= REPORT_EACH;
}

static void report_in(struct net_fabric *f, uint64_t ns)
{
	uint64_t at = vb_clock_ns() + ns;

	if (at >= f->elastic->report_ns)
		return;
	f->elastic->report_ns = at;
	f->t->due(f, at);
}

void net_away_letter(struct net_fabric *f, uint32_t from, const struct control_letter *l)
{
	struct net_ep *e = net_ep_find(f, l->client);

	if (e == NULL || e->ep.self != vb_peer_make(l->node, l->client) || home_of(f, e) != from ||
	    l->number != e->tail || net_ep_put(e, &l->msg) != 0)
		return;
	if (e->tail - e->told_tail >= REPORT_EACH)
		(void)tell(f, e, CONTROL_TAKEN);
	/* What is taken from now on nobody here is told of. */
	if (e->tail - e->told_head >= NET_RING / 2)
		report_in(f, REPORT_NS);
	else if (f->elastic->report_ns == VB_FOREVER && e->tail != e->told_tail)
		report_in(f, TELL_NS);
}

void net_away_report(struct net_fabric *f)
{
	struct net_elastic *a = f->elastic;
	uint64_t again_ns = VB_FOREVER;

	vb_list_for_each (it, &a->away) {
		struct net_ep *e = vb_container_of(it, struct net_ep, in_away);

		if (is_owed(e) || e->tail != e->told_tail)
			(void)tell(f, e, CONTROL_TAKEN);
		if (e->tail - e->told_head >= NET_RING / 2)
			again_ns = REPORT_NS;
		else if (e->tail != e->told_tail && again_ns == VB_FOREVER)
			again_ns = TELL_NS; /* no connection, or no room */
	}
	a->report_ns = again_ns != VB_FOREVER ? vb_clock_ns() + again_ns : VB_FOREVER;
}

void net_away_tell_all(struct net_fabric *f, uint32_t host)
{
	const struct control_count all = {.kind = CONTROL_HAVE_ALL, .version = CONTROL_VERSION};

	vb_list_for_each (it, &f->elastic->away) {
		struct net_ep *e = vb_container_of(it, struct net_ep, in_away);

		if (home_of(f, e) == host && tell(f, e, CONTROL_HAVE) != 0)
			return; /* the connection is lost again: all of it over the next one */
	}
	(void)f->t->control(f, host, &all, sizeof(all));
}

/* ---- opening and closing ---- */

/* An answer may be on its way, with a number that nobody will use.  This comes behind all copies of the question; if it
 * does not arrive, the next reconnection counts our endpoints, and the number is none of theirs. */
static void unask(struct net_fabric *f, const struct net_ask *ask)
{
	const struct control_count c = {
		.kind = CONTROL_UNASK, .version = CONTROL_VERSION, .client = ask->number};

	pthread_mutex_lock(&f->engine);
	(void)f->t->control(f, ask->host, &c, sizeof(c));
	f->t->flush(f);
	pthread_mutex_unlock(&f->engine);
}

int net_away_draw(struct net_fabric *f, uint16_t node, uint32_t *client, uint32_t *turn)
{
	const struct control_ask q = {
		.kind = CONTROL_NUMBER, .version = CONTROL_VERSION, .node = node};
	/* A connection that is lost is there again, or found to be lost again, by then. */
	struct net_ask ask = {.host = net_host_of_node(f, node),
			      .unreached_ns = f->f.caps.relink_ns + f->wait_ns};
	int err;

	pthread_mutex_lock(&f->engine);
	*turn = f->elastic->turn[ask.host];
	pthread_mutex_unlock(&f->engine);
	err = net_ask(f, &q, &ask);
	if (err == 0)
		err = ask.err;
	else
		unask(f, &ask);
	if (err == 0 && (ask.offset == 0 || ask.offset >> VB_PEER_CLIENT_BITS != 0))
		err = -EPROTO;
	if (err != 0)
		return vb_fail(err, "an endpoint with its home at node %u, asked of server %u: %s",
			       node, net_elastic_number(f, ask.host), vb_strerror(err));
	*client = (uint32_t)ask.offset;
	return 0;
}

void net_away_opened(struct net_fabric *f, struct net_ep *e, uint32_t turn)
{
	uint32_t host = home_of(f, e);

	vb_list_push(&f->elastic->away, &e->in_away);
	if (f->elastic->home[host].eps++ == 0)
		f->t->due(f, 0);
	/* Over a new connection the others have been told already, and it was not among them. */
	if (turn != f->elastic->turn[host])
		(void)tell(f, e, CONTROL_HAVE);
	f->t->flush(f);
}

void net_away_closed(struct net_fabric *f, struct net_ep *e)
{
	vb_list_remove(&e->in_away);
	f->elastic->home[home_of(f, e)].eps--;
	/* If it does not arrive, the home hears of it by the next reconnection. */
	(void)tell(f, e, CONTROL_GIVE_BACK);
	f->t->flush(f);
}

bool net_away_lives(struct net_fabric *f, vb_peer peer)
{
	const struct control_ask q = {.kind = CONTROL_LIVES,
				      .version = CONTROL_VERSION,
				      .node = vb_peer_node(peer),
				      .bytes = peer};
	struct net_ask ask = {.host = net_host_of_node(f, vb_peer_node(peer)),
			      .patience_ns = LIVES_NS};

	return net_ask(f, &q, &ask) != 0 || ask.err != 0 || ask.fresh;
}
