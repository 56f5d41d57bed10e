/* SPDX-License-Identifier: Apache-2.0 */
/* Opening and closing a fabric of active messages: connecting all hosts, control messages. */
#define VB_LOG_ROOM "net"
#include <poll.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/am/am.h"

#define CONNECT_NS 30000000000ull

/* ---- opening ---- */

bool am_local_cpu(const struct net_fabric *f)
{
	return am_of(f)->o.local == AM_LOCAL_CPU;
}

static int deliver(void *ctx, uint32_t client, const struct vb_msg *m)
{
	am_of(ctx)->letters++;
	return net_deliver(ctx, client, m);
}

static uint64_t now(void)
{
	return vb_clock_ns();
}

static uint64_t session_of(const struct net_fabric *f)
{
	uint64_t id = 0;

	if (f->elastic != NULL)
		return f->elastic->p.session;
	if (f->cluster != NULL)
		return vb_cluster_number(f->cluster, "vb_am_id");
	if (getrandom(&id, sizeof(id), 0) != sizeof(id))
		vb_debug("no random session number");
	return id;
}

static void init_host(struct am_wire *w, uint32_t rank)
{
	struct am_host *h = &w->host[rank];

	h->wire = w;
	h->rank = rank;
	vb_list_init(&h->queue);
	vb_list_init(&h->flight);
	vb_list_init(&h->parked);
	vb_list_init(&h->held);
	vb_list_init(&h->in_dirty);
}

static int wire_new(struct net_fabric *f, const struct am_carrier *c, const void *options)
{
	struct am_wire *w = calloc(1, sizeof(*w));

	if (w != NULL)
		w->host = calloc(net_hosts_max(f), sizeof(*w->host));
	if (w == NULL || w->host == NULL) {
		free(w);
		return vb_fail(-ENOMEM, "no memory for %u hosts", f->hosts);
	}
	f->wire = w;
	f->fd = -1;
	w->f = f;
	w->carrier = c;
	memcpy(&w->o, options, sizeof(w->o));
	w->timer_fd = -1;
	w->due_ns = VB_FOREVER;
	w->session = session_of(f);
	vb_list_init(&w->dirty);
	vb_list_init(&w->pool);
	vb_list_init(&w->messages);
	vb_list_init(&w->ins);
	w->hosts = f->hosts;
	for (uint32_t i = 0; i < f->hosts; i++)
		init_host(w, i);
	w->owner = (struct am_owner){.memory = f->memory,
				     .node_bytes = f->f.node_bytes,
				     .nodes = f->f.nodes,
				     .hosts = f->hosts,
				     .host = f->host,
				     .deliver = deliver,
				     .ctx = f,
				     .now = now};
	return 0;
}

/* What threads sleep on: the carrier adds its own descriptors. */
static int open_descriptor(struct am_wire *w)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = NULL};

	w->timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC);
	w->f->fd = epoll_create1(EPOLL_CLOEXEC);
	if (w->timer_fd < 0 || w->f->fd < 0 ||
	    epoll_ctl(w->f->fd, EPOLL_CTL_ADD, w->timer_fd, &e) != 0)
		return vb_fail(-errno, "no descriptor to wait on: %s", strerror(errno));
	return 0;
}

int am_open(struct net_fabric *f, const struct am_carrier *c, const void *options, void *address,
	    size_t *bytes)
{
	int err = wire_new(f, c, options);

	if (err != 0)
		return err;
	am_set_caps(am_of(f));
	err = open_descriptor(am_of(f));
	if (err == 0)
		err = c->open(am_of(f), options, address, bytes);
	if (err != 0)
		am_close(f);
	return err;
}

/* ---- connecting ---- */

static int keep_address(struct am_host *h, const void *data, size_t bytes)
{
	char buf[64];

	if (data == NULL || bytes == 0 || bytes > NET_ADDRESS_MAX)
		return vb_fail(-EPROTO, "%s has sent no address", am_host_name(h, buf));
	h->address = malloc(bytes);
	if (h->address == NULL)
		return vb_fail(-ENOMEM, "no memory for an address of %zu bytes", bytes);
	memcpy(h->address, data, bytes);
	h->address_bytes = bytes;
	return 0;
}

static bool wanted(const struct am_wire *w, uint32_t rank)
{
	return rank != w->f->host || w->o.local == AM_LOCAL_WIRE;
}

/* The first host with which not both directions work; NULL: all do, and our part is sent. */
static struct am_host *missing(struct am_wire *w)
{
	for (uint32_t i = 0; i < w->f->hosts; i++) {
		struct am_host *h = &w->host[i];

		if (wanted(w, i) && (h->state != AM_UP || !h->welcomed))
			return h;
	}
	return NULL;
}

/* Some connection is being made, or greeted over. */
static bool under_way(const struct am_wire *w)
{
	for (uint32_t i = 0; i < w->f->hosts; i++)
		if (w->host[i].via != NULL && w->host[i].state != AM_UP &&
		    w->host[i].state != AM_GONE)
			return true;
	return false;
}

/*
 * A server waits for nobody; a client for the first server that tells it what nodes there are.  And then, a
 * little, for those that it is about to reach: until then what it sends them is refused, and a lock that
 * tells its successor once, and leaves what is lost to its recovery, would need one at every start.
 */
static int meet_elastic(struct am_wire *w)
{
	const struct net_elastic *e = w->f->elastic;
	uint64_t until = vb_clock_ns() + e->p.patience_ns, all_until = 0;
	struct pollfd p = {.fd = w->f->fd, .events = POLLIN};

	am_due(w, 0);
	for (;;) {
		bool any = am_look(w);

		if (e->refused && !e->shaped)
			return vb_fail(-EPROTO, "no server of %s takes this client: %s", e->p.named,
				       e->why);
		if (e->shaped && all_until == 0)
			all_until = vb_clock_ns() +
				    (w->o.bound_ns > w->o.retry_ns ? w->o.bound_ns : w->o.retry_ns);
		if (e->shaped &&
		    (!net_is_client(w->f) || !under_way(w) || vb_clock_ns() > all_until))
			return 0;
		if (!e->shaped && vb_clock_ns() > until)
			return vb_fail(-ETIMEDOUT,
				       "no server of %s has let this client in within %llu ms "
				       "(option patience): %s",
				       e->p.named, e->p.patience_ns / AM_MS,
				       e->why != NULL ? e->why : "there was no answer");
		if (!any && am_arm(w->f) == 0)
			(void)poll(&p, 1, 10);
	}
}

static int meet(struct am_wire *w)
{
	uint64_t until = vb_clock_ns() + CONNECT_NS;
	struct pollfd p = {.fd = w->f->fd, .events = POLLIN};
	struct am_host *h;
	char buf[64];

	while ((h = missing(w)) != NULL || !w->carrier->idle(w)) {
		for (uint32_t i = 0; i < w->f->hosts; i++) {
			struct am_host *g = &w->host[i];

			if (wanted(w, i) && g->state == AM_DOWN &&
			    vb_clock_ns() >= g->retry_at_ns && am_greet(g) == -ENOMEM)
				return -ENOMEM;
		}
		if (vb_clock_ns() > until)
			return vb_fail(-ETIMEDOUT, "no connection with %s within %llu s",
				       h != NULL ? am_host_name(h, buf) : "some host",
				       CONNECT_NS / AM_S);
		if (h != NULL && w->f->cluster != NULL && !vb_cluster_alive(w->f->cluster, h->rank))
			return vb_fail(-VB_EPEERGONE, "%s has gone while the fabric was opened",
				       am_host_name(h, buf));
		if (!am_look(w) && am_arm(w->f) == 0)
			(void)poll(&p, 1, 10);
	}
	return 0;
}

int am_connect(struct net_fabric *f, const struct vb_cluster_parts *addresses)
{
	struct am_wire *w = am_of(f);
	int err = 0;

	if (addresses->n != f->hosts)
		return vb_fail(-EPROTO, "%u addresses of %u hosts", addresses->n, f->hosts);
	for (uint32_t i = 0; i < f->hosts && err == 0; i++)
		err = keep_address(&w->host[i], addresses->data[i], addresses->bytes[i]);
	if (err != 0)
		return err;
	pthread_mutex_lock(&f->engine);
	err = f->elastic != NULL ? meet_elastic(w) : meet(w);
	pthread_mutex_unlock(&f->engine);
	return err == 0 ? am_helper_start(w) : err;
}

/* ---- closing ---- */

static bool quiet(struct am_wire *w)
{
	for (uint32_t i = 0; i < w->hosts; i++) {
		struct am_host *h = &w->host[i];

		if (h->flying > 0 || h->queued > 0 || h->open != NULL || !vb_list_empty(&h->parked))
			return false;
	}
	return w->carrier->idle(w);
}

static void look_until_quiet(struct am_wire *w, uint64_t ns)
{
	uint64_t until = vb_clock_ns() + ns;
	struct pollfd p = {.fd = w->f->fd, .events = POLLIN};

	while (!quiet(w) && vb_clock_ns() < until) {
		am_flush(w->f);
		if (!am_look(w) && am_arm(w->f) == 0)
			(void)poll(&p, 1, 1);
	}
}

/* The last that a client says, when what it has posted has been answered and nothing connects any more.  Who has
 * not proved itself to a server has no place there. */
static void take_leave(struct am_wire *w)
{
	for (uint32_t i = 0; i < w->hosts; i++)
		if (!w->host[i].linked)
			am_break(&w->host[i], "the fabric is closed");
	net_elastic_leave(w->f);
	look_until_quiet(w, 1 * AM_S);
}

void am_close(struct net_fabric *f)
{
	struct am_wire *w = am_of(f);

	if (w == NULL)
		return;
	am_helper_stop(w);
	pthread_mutex_lock(&f->engine);
	if (w->via != NULL) {
		/* What is on its way arrives or is over by then. */
		look_until_quiet(w, f->wait_ns);
		w->closing = true;
		if (net_is_client(f))
			take_leave(w);
		for (uint32_t i = 0; i < w->hosts; i++)
			am_break(&w->host[i], "the fabric is closed");
		look_until_quiet(w, 1 * AM_S);
	}
	w->carrier->close(w);
	if (f->fd >= 0)
		close(f->fd);
	f->fd = -1;
	if (w->timer_fd >= 0)
		close(w->timer_fd);
	pthread_mutex_unlock(&f->engine);
	am_msg_free_all(w);
	am_in_free_all(w);
	for (uint32_t i = 0; i < f->hosts; i++)
		free(w->host[i].address);
	for (uint32_t i = 0; i < w->hosts; i++)
		am_past_free(&w->host[i]);
	free(w->host);
	free(w);
	f->wire = NULL;
}

/* ---- the rest ---- */

int am_control(struct net_fabric *f, uint32_t host, const void *data, size_t bytes)
{
	struct am_wire *w = am_of(f);
	struct am_host *h = &w->host[host];
	struct am_header head = {
		.kind = AM_CONTROL,
		.session = w->session,
		.host = f->host,
		.clock = vb_clock_ns(),
		.bytes = (uint32_t)bytes,
	};
	struct am_msg *m;

	w->hurries = true;
	/* What goes to a server waits until that has said who it is, and verbs flow: it may have begun again.  To leave
	 * a client need not wait for that. */
	if (!h->linked || h->failed ||
	    (f->elastic != NULL && host < f->hosts && h->state != AM_UP && !w->closing))
		return am_usable(h);
	if (h->controls >= AM_CONTROLS)
		return -EAGAIN;
	m = am_msg_get(h, AM_CONTROL);
	if (m == NULL || !am_msg_reserve(m, (uint32_t)bytes))
		return vb_fail(-ENOMEM, "no memory for a message");
	memcpy(m->buffer + AM_HEADER, data, bytes);
	m->bytes = (uint32_t)bytes;
	m->over = true;
	h->controls++;
	return am_msg_send(m, &head) == 0 ? 0 : -VB_EPEERGONE;
}

void am_host_gone(struct net_fabric *f, uint32_t host)
{
	struct am_host *h = &am_of(f)->host[host];

	h->state = AM_GONE;
	am_break(h, "the cluster says that it is gone");
	am_past_free(h);
}

void am_host_new(struct net_fabric *f, uint32_t host)
{
	struct am_wire *w = am_of(f);
	struct am_host *h = &w->host[host];

	if (h->dirty)
		vb_list_remove(&h->in_dirty);
	am_past_free(h);
	memset(h, 0, sizeof(*h));
	/* Places are given away from the lowest on; but of those that a state has, any before may be free. */
	for (uint32_t i = w->hosts; i < host; i++)
		init_host(w, i);
	init_host(w, host);
	if (host >= w->hosts)
		w->hosts = host + 1;
}

void am_due_at(struct net_fabric *f, uint64_t at_ns)
{
	am_due(am_of(f), at_ns);
}

uint64_t am_silent(struct net_fabric *f, uint32_t host, uint64_t since_ns, uint64_t now)
{
	struct am_wire *w = am_of(f);
	struct am_host *h = &w->host[host];

	if (h->heard_ns >= since_ns)
		return 0;
	if (now < since_ns + w->o.silence_ns)
		return since_ns + w->o.silence_ns;
	am_break(h, "it does not answer");
	return VB_FOREVER;
}
