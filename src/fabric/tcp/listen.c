/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sockets: listening, being called and calling.
 *
 * Whoever can reach the port may knock.  Beyond TCP_HALF_MAX connections that have proved nothing, one is
 * closed for each new one: by lot, of the address that has most.  So a flood from one address keeps
 * nobody else out, and one from many lets everybody in who tries again.
 *
 * Who calls in vain calls again after an eighth of `retry`, then a quarter, a half, and `retry`.
 */
#define VB_LOG_ROOM "tcp"
#include <fcntl.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/net/state.h"
#include "fabric/tcp/inner.h"

#define BACKLOG 128
#define ACCEPTS 16u /* in one look */
#define DEAF_NS 100000000ull

/* Options that a kernel lacks make the end of a dead machine come later, and nothing else. */
void tcp_tune(int fd, uint64_t silence_ns)
{
	int one = 1, two = 2, seconds = (int)((silence_ns + 999999999) / 1000000000);
	unsigned user_ms = (unsigned)(silence_ns / 1000000) + 1000;

	(void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
	(void)setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &seconds, sizeof(seconds));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &one, sizeof(one));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &two, sizeof(two));
	(void)setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &user_ms, sizeof(user_ms));
}

static int wait_for_calls(struct tcp_via *t)
{
	struct epoll_event e = {.events = EPOLLIN, .data.ptr = t};

	return epoll_ctl(t->w->f->fd, EPOLL_CTL_ADD, t->listener, &e) == 0 ? 0 : -errno;
}

/* A server of this name may have been here until a moment ago.  The wait begins when nobody else can be: the kernel
 * lets one listen at a port, and this process does; merely bound to it there could be two, of which the other
 * one listens first, grants, dies, and leaves the port to who has waited beside it.  Who connects meanwhile gets no
 * answer yet. */
static void settle(uint64_t ns)
{
	uint64_t until = vb_clock_gettime_ns() + ns, now;

	while ((now = vb_clock_gettime_ns()) < until) {
		struct timespec left = {.tv_sec = (time_t)((until - now) / 1000000000),
					.tv_nsec = (long)((until - now) % 1000000000)};

		(void)nanosleep(&left, NULL);
	}
}

/* A server that grants any lease leaves word that it was here.  Who begins again does not know how long what was
 * granted may last, so it does not begin, whatever `settle` says by then.  The file is made when the port is ours: of
 * two that begin at once one makes it. */
static int mark(const struct tcp_via *t)
{
	const char *path = t->o.fresh;
	int fd;

	if (path == NULL)
		return 0;
	if (t->o.settle_ns != 0)
		return access(path, F_OK) != 0 && errno == ENOENT ? 0 : -EEXIST;
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return -errno;
	(void)fsync(fd);
	close(fd);
	return 0;
}

static int begin_fresh(const struct tcp_via *t)
{
	int err = mark(t);

	if (err == -EEXIST)
		return vb_fail(err,
			       "%s is there (option fresh): a server with settle=0 was here, and "
			       "what it has granted may still be held; remove it when the longest "
			       "lease is over",
			       t->o.fresh);
	if (err != 0)
		return vb_fail(err, "the file %s (option fresh) cannot be made: %s", t->o.fresh,
			       strerror(-err));
	return 0;
}

int tcp_listen(struct tcp_via *t)
{
	char at[TCP_ADDRESS_TEXT];
	int one = 1, err;

	tcp_address_say(&t->here.sa, at);
	t->listener = socket(t->here.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (t->listener < 0)
		return vb_fail(-errno, "no socket: %s", strerror(errno));
	/* A server that begins again takes its port from connections that linger. */
	if (t->w->f->elastic != NULL)
		(void)setsockopt(t->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
	if ((t->here.sa.ss_family == AF_INET6 &&
	     setsockopt(t->listener, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof(one)) != 0) ||
	    bind(t->listener, (const struct sockaddr *)&t->here.sa, t->here.len) != 0 ||
	    listen(t->listener, BACKLOG) != 0 ||
	    getsockname(t->listener, (struct sockaddr *)&t->here.sa, &t->here.len) != 0)
		return vb_fail(-errno, "cannot listen at %s: %s", at, strerror(errno));
	/* Who goes on with what it has granted need not wait for anybody. */
	if (t->w->f->elastic != NULL && !net_state_resumed(t->w->f)) {
		err = begin_fresh(t);
		if (err != 0)
			return err;
		settle(t->o.settle_ns);
		net_state_settled(t->w->f);
	}
	err = wait_for_calls(t);
	return err == 0 ? 0 : vb_fail(err, "no descriptor to wait on: %s", strerror(-err));
}

/* ---- being called ---- */

static bool is_half(const struct tcp_conn *c)
{
	return c->accepted && c->state == TCP_SHAKING;
}

static unsigned halves_from(const struct tcp_via *t, const struct sockaddr_storage *peer)
{
	unsigned n = 0;

	vb_list_for_each (it, &t->conns) {
		const struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		n += is_half(c) && tcp_address_same_owner(&c->peer, peer);
	}
	return n;
}

/* One of those that have proved nothing, of an address that has most of them. */
static struct tcp_conn *by_lot(struct tcp_via *t)
{
	unsigned most = 0, lot = 0;

	/* The second time round `lot` of them are left to pass by. */
	for (unsigned round = 0; round < 2; round++) {
		unsigned of_most = 0;

		vb_list_for_each (it, &t->conns) {
			struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);
			unsigned n = is_half(c) ? halves_from(t, &c->peer) : 0;

			if (n > most) {
				most = n;
				of_most = 0;
			}
			if (n == 0 || n < most)
				continue;
			if (round == 1 && of_most == lot)
				return c;
			of_most++;
		}
		lot = randombytes_uniform(of_most);
	}
	return NULL;
}

static void no_descriptors(struct tcp_via *t)
{
	vb_warn("no connection can be accepted: %s; tried again in %llu ms", strerror(errno),
		DEAF_NS / 1000000);
	(void)epoll_ctl(t->w->f->fd, EPOLL_CTL_DEL, t->listener, NULL);
	t->deaf = true;
	t->listen_ns = vb_clock_ns() + DEAF_NS;
	am_due(t->w, t->listen_ns);
}

void tcp_accept(struct tcp_via *t)
{
	for (unsigned i = 0; i < ACCEPTS; i++) {
		struct sockaddr_storage peer = {0};
		socklen_t len = sizeof(peer);
		struct tcp_conn *c;
		int fd = accept4(t->listener, (struct sockaddr *)&peer, &len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS)
				no_descriptors(t);
			return;
		}
		tcp_tune(fd, t->o.am.silence_ns);
		if (tcp_conn_new(t, fd, true, &c) != 0)
			return;
		c->peer = peer;
		if (t->half > TCP_HALF_MAX)
			tcp_conn_fail(by_lot(t), "too many have proved nothing");
	}
}

/* ---- calling ---- */

int tcp_dial(struct tcp_via *t, struct am_host *h)
{
	struct tcp_peer *p = &t->peer[h->rank];
	unsigned shift = p->tries < 3 ? 3 - p->tries : 0;
	uint64_t retry_ns = t->o.am.retry_ns >> shift;
	struct tcp_conn *c;
	char buf[64];
	int fd, err;

	if (p->address.len == 0 &&
	    tcp_address_get(&p->address, h->address, h->address_bytes) != 0 && t->name == NULL)
		return vb_fail(-EPROTO, "%s has sent an address that is none",
			       am_host_name(h, buf));
	/* The first time it has just been looked up. */
	if (t->name != NULL && (p->tries > 0 || p->address.len == 0))
		tcp_name_look(t, h->rank);
	p->tries++;
	p->again_ns = vb_clock_ns() + retry_ns;
	am_due(t->w, p->again_ns);
	if (p->address.len == 0)
		return -EHOSTUNREACH;
	fd = socket(p->address.sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0)
		return vb_fail(-errno, "no socket: %s", strerror(errno));
	tcp_tune(fd, t->o.am.silence_ns);
	err = tcp_conn_new(t, fd, false, &c);
	if (err != 0)
		return err;
	c->host = h;
	c->peer = p->address.sa;
	c->from = t->w->f->host;
	if (net_is_client(t->w->f)) {
		c->from = TCP_CLIENT;
		memcpy(c->id, t->w->f->elastic->id, NET_ID);
	}
	c->to = h->rank;
	c->mode = !t->sealed                                       ? VB_SEAL_PLAIN
		  : t->here.flags & p->address.flags & TCP_HAS_AES ? VB_SEAL_AES
								   : VB_SEAL_CHACHA;
	h->via = c;
	if (connect(fd, (const struct sockaddr *)&p->address.sa, p->address.len) != 0 &&
	    errno != EINPROGRESS) {
		tcp_conn_fail(c, strerrordesc_np(errno));
		return -EHOSTUNREACH;
	}
	return 0;
}

/* ---- time ---- */

static uint64_t min64(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

static uint64_t call_again(struct tcp_via *t, uint64_t now)
{
	struct am_wire *w = t->w;
	uint64_t due = VB_FOREVER;

	/* Those of lower ranks call us, and nobody calls a client. */
	for (uint32_t i = net_is_client(w->f) ? 0 : w->f->host; i < w->f->hosts && !w->closing;
	     i++) {
		struct am_host *h = &w->host[i];

		if (h->state != AM_DOWN || h->via != NULL || h->address == NULL ||
		    (i == w->f->host && w->o.local == AM_LOCAL_CPU))
			continue;
		if (now >= t->peer[i].again_ns)
			(void)tcp_dial(t, h);
		else
			due = min64(due, t->peer[i].again_ns);
	}
	return due;
}

static uint64_t end_handshakes(struct tcp_via *t, uint64_t now)
{
	uint64_t due = VB_FOREVER;

	vb_list_for_each (it, &t->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (c->state != TCP_CONNECTING && c->state != TCP_SHAKING)
			continue;
		if (now >= c->until_ns)
			tcp_conn_fail(c, "it has taken too long to prove itself");
		else
			due = min64(due, c->until_ns);
	}
	return due;
}

uint64_t tcp_listen_tick(struct tcp_via *t, uint64_t now)
{
	uint64_t due = end_handshakes(t, now);

	due = min64(due, call_again(t, now));
	if (t->deaf && now >= t->listen_ns) {
		t->deaf = wait_for_calls(t) != 0;
		t->listen_ns = now + DEAF_NS;
	}
	return t->deaf ? min64(due, t->listen_ns) : due;
}
