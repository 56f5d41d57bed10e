/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric tcp: its options and caps, and the carrier's calls. */
#define VB_LOG_ROOM "tcp"
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/inner.h"

#define EVENTS    64
#define DIRECT    2u  /* so many connections are read without asking which have something */
#define LOOKS_ALL 64u /* and so often everything is asked for all the same */
#define CONTROLS  (64u * (AM_HEADER + NET_CONTROL_MAX))

extern const struct vb_fabric_ops vb_fabric_tcp;

static const struct vb_opt tcp_table[] = {
	AM_OPTIONS(struct tcp_options, "20ms"),
	VB_OPT_CHOICE(struct tcp_options, seal, "seal", VB_SEALING_NAMES, "auto",
		      "whether frames are encrypted and authenticated; auto: unless this process "
		      "binds to loopback"),
	VB_OPT_STRING(struct tcp_options, bind, "bind", "ADDRESS", NULL,
		      "address or interface to listen at; default: the cluster's address"),
	VB_OPT_STRING(struct tcp_options, servers, "servers", "LIST", NULL,
		      "an elastic cluster: its servers, HOST:PORT+HOST:PORT..., or a file with a "
		      "line for each"),
	VB_OPT_SIZE(struct tcp_options, serve, "serve", "0", 0, TCP_SERVERS_MAX,
		    "which of the servers this process is, from 1 on; 0: a client"),
	VB_OPT_STRING(struct tcp_options, key, "key", "FILE", NULL,
		      "the key file of the servers and clients"),
	VB_OPT_SIZE(struct tcp_options, clients, "clients", "1024", 1, 65536,
		    "how many clients a server has at a time"),
	VB_OPT_TIME(struct tcp_options, patience_ns, "patience", "30s", 1 * AM_MS, 3600 * AM_S,
		    "how long a client waits for a server when it opens the fabric"),
	VB_OPT_TIME(struct tcp_options, linger_ns, "linger", "5s", 10 * AM_MS, 3600 * AM_S,
		    "how long a server keeps the place of a client that it has lost"),
	VB_OPT_TIME(
		struct tcp_options, settle_ns, "settle", "1s", 0, 7200 * AM_S,
		"so long a server that begins is there for nobody, and no lock's grant is longer; "
		"0: it does not wait, and any lease is granted, which needs fresh"),
	VB_OPT_STRING(struct tcp_options, fresh, "fresh", "FILE", NULL,
		      "with settle=0: a server makes this file when it begins, and does not begin "
		      "where it is"),
	VB_OPT_STRING(
		struct tcp_options, state, "state", "DIR", NULL,
		"a server's memory, and what it knows of its clients, are in a file there, and are "
		"as they were when it begins again on the same boot of the machine"),
	VB_OPT_END};

/* ---- opening ---- */

static int derive(struct tcp_via *t)
{
	const struct vb_cluster *cluster = t->w->f->cluster;
	uint8_t alone[VB_SEAL_KEY];
	const uint8_t *of = alone;

	_Static_assert(crypto_kdf_KEYBYTES == VB_SEAL_KEY, "the run's secret is a key");
	if (t->o.list != NULL)
		of = t->o.list->key;
	else if (cluster != NULL)
		of = vb_cluster_secret(cluster);
	else
		randombytes_buf(alone, sizeof(alone));
	return crypto_kdf_derive_from_key(t->psk, sizeof(t->psk), 1, "vb_tcp_1", of) == 0 ? 0
											  : -EINVAL;
}

/* Where this process listens; *loopback: nothing of the fabric leaves the machine. */
static int find_here(struct tcp_via *t, bool *loopback)
{
	const struct vb_cluster *cluster = t->w->f->cluster;
	const char *bind = cluster != NULL ? vb_cluster_bind(cluster) : "127.0.0.1";
	const struct tcp_servers *list = t->o.list;
	int err = 0;

	if (list == NULL || t->o.bind != NULL)
		err = tcp_address_find(&t->here, t->o.bind != NULL ? t->o.bind : bind);
	else if (!net_is_client(t->w->f))
		t->here = list->at[t->w->f->host];
	if (err == 0 && list != NULL && !net_is_client(t->w->f))
		tcp_address_set_port(&t->here, (uint16_t)atoi(list->name[t->w->f->host].port));
	*loopback = err == 0 && (list == NULL || !net_is_client(t->w->f)) &&
		    tcp_address_is_loopback(&t->here);
	if (net_is_client(t->w->f)) {
		*loopback = true;
		for (uint32_t i = 0; i < list->n; i++)
			*loopback &= list->at[i].len == 0 || tcp_address_is_loopback(&list->at[i]);
	}
	return err;
}

static int begin(struct tcp_via *t)
{
	bool loopback;
	int err = find_here(t, &loopback);

	if (err != 0)
		return err;
	t->sealed = t->o.seal == VB_SEALING_ALWAYS || (t->o.seal == VB_SEALING_AUTO && !loopback);
	if (!loopback && !t->sealed)
		vb_warn("frames are neither encrypted nor authenticated (option seal): whoever is "
			"between two processes can read and change what they send");
	t->here.flags = vb_seal_has_aes() ? TCP_HAS_AES : 0;
	t->ssl = vb_shake_context();
	if (t->ssl == NULL)
		return vb_fail(-ENOMEM, "OpenSSL does not start");
	err = derive(t);
	return err == 0 && !net_is_client(t->w->f) ? tcp_listen(t) : err;
}

static void carrier_close(struct am_wire *w);

static int carrier_open(struct am_wire *w, const void *options, void *address, size_t *bytes)
{
	struct tcp_via *t = calloc(1, sizeof(*t));
	int err;

	if (t == NULL)
		return vb_fail(-ENOMEM, "no memory for TCP's state");
	w->via = t;
	t->w = w;
	t->listener = -1;
	vb_list_init(&t->conns);
	vb_list_init(&t->push);
	memcpy(&t->o, options, sizeof(t->o));
	/* An honest host owes answers to a window of messages, and has one of its own under way. */
	t->backlog = (size_t)(2 * t->o.am.window + 2) * (AM_HEADER + AM_BODY_MAX) + CONTROLS;
	t->peer = calloc(net_hosts_max(w->f), sizeof(*t->peer));
	if (t->o.list != NULL)
		t->name = calloc(w->f->hosts, sizeof(*t->name));
	if (t->name != NULL)
		memcpy(t->name, t->o.list->name, w->f->hosts * sizeof(*t->name));
	if (t->peer == NULL || (t->o.list != NULL && t->name == NULL) || sodium_init() < 0)
		err = vb_fail(-ENOMEM, "no memory for %u hosts", w->f->hosts);
	else
		err = begin(t);
	t->o.list = NULL; /* it ends with the call */
	if (err != 0) {
		carrier_close(w);
		return err;
	}
	tcp_address_put(address, &t->here);
	*bytes = TCP_ADDRESS;
	return 0;
}

static void carrier_close(struct am_wire *w)
{
	struct tcp_via *t = tcp_of(w);

	if (t == NULL)
		return;
	tcp_conn_free_all(t);
	if (t->listener >= 0)
		close(t->listener);
	vb_shake_context_free(t->ssl);
	sodium_memzero(t->psk, sizeof(t->psk));
	tcp_names_free(t);
	free(t->peer);
	free(t);
	w->via = NULL;
}

/* ---- connections ---- */

static int carrier_link(struct am_host *h)
{
	struct tcp_via *t = tcp_of(h->wire);

	/* Under way, or the other's to begin. */
	if (h->via != NULL || (h->rank < h->wire->f->host && !net_is_client(h->wire->f)))
		return -EINPROGRESS;
	if (vb_clock_ns() < t->peer[h->rank].again_ns)
		return -EINPROGRESS;
	return tcp_dial(t, h) == 0 ? -EINPROGRESS : -EHOSTUNREACH;
}

static void carrier_unlink(struct am_host *h)
{
	struct tcp_via *t = tcp_of(h->wire);
	struct tcp_peer *p = &t->peer[h->rank];
	struct tcp_conn *c = h->via;

	if (c == NULL)
		return;
	/* What has been answered already is on its way when the connection ends; so is our HELLO: whom we refuse
	 * learns from it what differs. */
	if (h->wire->closing || h->greeting)
		tcp_conn_push(c);
	tcp_conn_drop(c);
	p->again_ns = vb_clock_ns() + (t->o.am.retry_ns >> 3);
	am_due(t->w, p->again_ns);
}

/* ---- moving messages ---- */

static int carrier_send(struct am_msg *m)
{
	struct tcp_conn *c = m->host->via;
	int err = c == NULL ? -EPIPE : tcp_conn_send(c, m->buffer, AM_HEADER + (size_t)m->bytes);

	am_sent(m);
	return err;
}

static void carrier_push(struct am_wire *w)
{
	struct tcp_via *t = tcp_of(w);
	struct vb_list *it;

	while ((it = vb_list_pop(&t->push)) != NULL) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, in_push);

		c->pushing = false;
		tcp_conn_push(c);
	}
	tcp_conn_reap(t);
}

static bool look_at_open(struct tcp_via *t)
{
	bool any = false;

	vb_list_for_each (it, &t->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (c->state == TCP_OPEN)
			any |= tcp_conn_read(c);
		t->look_all |=
			c->state == TCP_CONNECTING || c->state == TCP_SHAKING || c->wants_room;
	}
	return any;
}

static void look_at_all(struct tcp_via *t)
{
	struct epoll_event e[EVENTS];
	int n = epoll_wait(t->w->f->fd, e, EVENTS, 0);

	t->look_all = n == EVENTS; /* there may be more */
	t->looks = 0;
	for (int i = 0; i < n; i++) {
		if (e[i].data.ptr == t)
			tcp_accept(t);
		else if (e[i].data.ptr != NULL) /* not the timer, which the core looks at */
			tcp_conn_event(e[i].data.ptr, e[i].events);
	}
}

/* A spinning thread should find out with one call of the kernel that nothing has come.  And two that
 * always have something must not keep a third from connecting. */
static void carrier_look(struct am_wire *w)
{
	struct tcp_via *t = tcp_of(w);
	bool few = t->open > 0 && t->open <= DIRECT;
	bool found;

	tcp_conn_resume(t);
	found = few && look_at_open(t);
	/* What has ended the sleep, most likely; else somebody else has. */
	t->look_all |= t->slept && !found;
	t->slept = false;
	if (++t->looks >= LOOKS_ALL || !few || (!found && t->look_all))
		look_at_all(t);
}

static int carrier_arm(struct am_wire *w)
{
	struct tcp_via *t = tcp_of(w);

	tcp_conn_reap(t);
	t->slept = true;
	return vb_list_empty(&t->push) && !tcp_conn_can_resume(t) ? 0 : -EBUSY;
}

static bool carrier_idle(const struct am_wire *w)
{
	const struct tcp_via *t = tcp_of(w);

	vb_list_for_each (it, &t->conns) {
		const struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (c->state == TCP_OPEN && vb_buf_bytes(&c->text) + vb_buf_bytes(&c->out) > 0)
			return false;
	}
	return true;
}

static uint64_t carrier_tick(struct am_wire *w, uint64_t now)
{
	uint64_t unread = tcp_conn_tick(tcp_of(w), now), due = tcp_listen_tick(tcp_of(w), now);

	return unread < due ? unread : due;
}

static const struct am_carrier tcp_carrier = {
	.name = "tcp",
	.lasting = true,
	.open = carrier_open,
	.close = carrier_close,
	.link = carrier_link,
	.unlink = carrier_unlink,
	.send = carrier_send,
	.look = carrier_look,
	.push = carrier_push,
	.arm = carrier_arm,
	.idle = carrier_idle,
	.tick = carrier_tick,
};

/* ---- the fabric ---- */

static int transport_open(struct net_fabric *f, const void *options, void *address, size_t *bytes)
{
	f->spin_ns = net_spin_of_wake();
	return am_open(f, &tcp_carrier, options, address, bytes);
}

static const struct net_transport tcp_transport = {
	.name = "tcp",
	.open = transport_open,
	.level = true,
	AM_TRANSPORT,
};

static int fabric_open(const struct vb_fabric_params *p, const void *options,
		       struct vb_fabric **out)
{
	const struct tcp_options *o = options;

	if (o->servers != NULL)
		return tcp_open_elastic(p, o, &vb_fabric_tcp, &tcp_transport, out);
	if (o->serve != 0 || o->key != NULL)
		return vb_fail(-EINVAL,
			       "the options serve and key are an elastic cluster's: they need "
			       "servers=HOST:PORT+...");
	return net_open(p, options, &vb_fabric_tcp, &tcp_transport, out);
}

static const char *absent(void)
{
	return NULL;
}

const struct vb_fabric_ops vb_fabric_tcp = {
	.name = "tcp",
	.summary = "processes of any machines over TCP, closed to strangers",
	.options = tcp_table,
	.options_size = sizeof(struct tcp_options),
	.open = fabric_open,
	NET_FABRIC_OPS,
	.absent = absent,
	.caps =
		{
			.flags = AM_CAP_FLAGS,
			.verb_bound_ns = 20000000,
			.relink_ns = 220000000,
			.rtt_ns = 20000,
			.atomics = AM_CAP_ATOMICS,
			.order = AM_CAP_ORDER,
		},
};
