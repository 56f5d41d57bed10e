/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections: what comes is read, proved and taken apart; what leaves is gathered, sealed and written.
 *
 * A connection that is of no use any more is marked (TCP_DEAD) and closed when nothing of it is on the
 * stack (tcp_conn_reap): a message that is being taken apart may be what ends it.
 */
#define VB_LOG_ROOM "tcp"
#include <inttypes.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/tcp/inner.h"

#define READS            16u /* of one connection in one look: then the others have their turn */
#define REFUSED_AGAIN_NS 10000000000ull

static const char unread[] = "it does not read what it is sent";

/* ---- beginning and end ---- */

int tcp_conn_new(struct tcp_via *t, int fd, bool accepted, struct tcp_conn **out)
{
	struct epoll_event e = {.events = EPOLLIN | (accepted ? 0 : EPOLLOUT)};
	struct tcp_conn *c = calloc(1, sizeof(*c));
	int err = 0;

	if (c == NULL) {
		close(fd);
		return vb_fail(-ENOMEM, "no memory for a connection");
	}
	c->t = t;
	c->fd = fd;
	c->accepted = accepted;
	c->wants_room = !accepted;
	c->events = e.events;
	c->state = accepted ? TCP_SHAKING : TCP_CONNECTING;
	c->until_ns = vb_clock_ns() + TCP_SHAKE_NS;
	vb_list_init(&c->link);
	vb_list_init(&c->in_push);
	e.data.ptr = c;
	if (accepted)
		err = tcp_shake_begin(c);
	if (err == 0 && epoll_ctl(t->w->f->fd, EPOLL_CTL_ADD, fd, &e) != 0)
		err = vb_fail(-errno, "a connection cannot be waited for: %s", strerror(errno));
	if (err != 0) {
		tcp_shake_end(c);
		close(fd);
		free(c);
		return err;
	}
	vb_list_push(&t->conns, &c->link);
	t->half += accepted;
	am_due(t->w, c->until_ns);
	*out = c;
	return 0;
}

static void conn_free(struct tcp_conn *c)
{
	vb_list_remove(&c->link);
	vb_list_remove(&c->in_push);
	/* A child that was forked meanwhile may hold it, too: to close it does not end what epoll tells. */
	(void)epoll_ctl(c->t->w->f->fd, EPOLL_CTL_DEL, c->fd, NULL);
	close(c->fd);
	tcp_shake_end(c);
	vb_seal_free(c->seal);
	vb_buf_free(&c->raw);
	vb_buf_free(&c->in);
	vb_buf_free(&c->text);
	vb_buf_free(&c->out);
	free(c);
}

void tcp_conn_drop(struct tcp_conn *c)
{
	struct tcp_via *t = c->t;

	if (c->state == TCP_DEAD)
		return;
	t->open -= c->state == TCP_OPEN;
	t->half -= c->accepted && c->state == TCP_SHAKING;
	t->held -= c->held;
	c->held = false;
	c->state = TCP_DEAD;
	t->dead = true;
	if (c->host != NULL && c->host->via == c)
		c->host->via = NULL;
}

/* Who is refused may go on for ever: a line for many. */
static void refused(struct tcp_conn *c, struct tcp_refusals *r, const char *what, const char *why)
{
	uint64_t now = vb_clock_gettime_ns();
	char from[TCP_ADDRESS_TEXT];

	r->all++;
	r->untold++;
	if (now < r->again_ns)
		return;
	tcp_address_say(&c->peer, from);
	vb_warn("refused %s %s: %s; %" PRIu64 " since the last such line, %" PRIu64 " in all", what,
		from, why, r->untold, r->all);
	r->untold = 0;
	r->again_ns = now + REFUSED_AGAIN_NS;
}

void tcp_conn_fail(struct tcp_conn *c, const char *why)
{
	struct am_host *h = c->host;
	char buf[64];

	if (c->state == TCP_DEAD)
		return;
	if (c->state == TCP_OPEN) {
		/* Its host is told first: it unlinks, which drops the connection. */
		am_failed(h, why);
		if (h->via != c)
			tcp_conn_drop(c);
		return;
	}
	if (c->accepted)
		refused(c, &c->t->refused, "a connection from", why);
	else
		vb_info("no connection to %s: %s", am_host_name(h, buf), why);
	if (!c->accepted && c->t->w->f->elastic != NULL)
		c->t->w->f->elastic->why = why;
	tcp_conn_drop(c);
}

/* It has brought what an honest end of it never sends: so it is said where losses are not. */
static void spoilt(struct tcp_conn *c, const char *why)
{
	refused(c, &c->t->spoilt, "what came over the connection with", why);
	tcp_conn_fail(c, why);
}

void tcp_conn_reap(struct tcp_via *t)
{
	if (!t->dead)
		return;
	t->dead = false;
	vb_list_for_each (it, &t->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (c->state == TCP_DEAD)
			conn_free(c);
	}
}

void tcp_conn_free_all(struct tcp_via *t)
{
	vb_list_for_each (it, &t->conns)
		conn_free(vb_container_of(it, struct tcp_conn, link));
}

/* ---- writing ---- */

static void tell_epoll(struct tcp_conn *c)
{
	struct epoll_event e = {.events =
					(c->held ? 0u : EPOLLIN) | (c->wants_room ? EPOLLOUT : 0u),
				.data.ptr = c};

	if (c->events == e.events)
		return;
	c->events = e.events;
	if (epoll_ctl(c->t->w->f->fd, EPOLL_CTL_MOD, c->fd, &e) != 0)
		tcp_conn_fail(c, "it cannot be waited for");
}

static bool seal_all(struct tcp_conn *c)
{
	size_t bytes;

	while ((bytes = vb_buf_bytes(&c->text)) > 0) {
		if (bytes > VB_SEAL_MAX)
			bytes = VB_SEAL_MAX;
		if (!vb_buf_reserve(&c->out, bytes + VB_SEAL_MORE))
			return false;
		c->out.end += vb_seal_put(c->seal, c->out.at + c->out.end,
					  c->text.at + c->text.begin, bytes);
		vb_buf_take(&c->text, bytes);
	}
	return true;
}

void tcp_conn_push(struct tcp_conn *c)
{
	if (c->state == TCP_DEAD)
		return;
	if (c->seal != NULL && !seal_all(c)) {
		tcp_conn_fail(c, "there was no memory for what it is sent");
		return;
	}
	while (vb_buf_bytes(&c->out) > 0) {
		ssize_t n = send(c->fd, c->out.at + c->out.begin, vb_buf_bytes(&c->out),
				 MSG_DONTWAIT | MSG_NOSIGNAL);

		if (n >= 0) {
			c->t->w->f->stats.writes++;
			vb_buf_take(&c->out, (size_t)n);
			if (vb_unlikely(c->held))
				c->wrote_ns = vb_clock_ns();
		} else if (errno == EAGAIN) {
			break;
		} else if (errno != EINTR) {
			tcp_conn_fail(c, strerrordesc_np(errno));
			return;
		}
	}
	c->wants_room = vb_buf_bytes(&c->out) > 0;
	tell_epoll(c);
}

static bool is_client(const struct tcp_conn *c)
{
	return c->accepted && c->from == TCP_CLIENT;
}

/* What it was sent and has not read, as far as it is here. */
static size_t owed(const struct tcp_conn *c)
{
	return vb_buf_bytes(&c->text) + vb_buf_bytes(&c->out);
}

int tcp_conn_send(struct tcp_conn *c, const uint8_t *bytes, size_t n)
{
	struct vb_buf *to = c->seal != NULL ? &c->text : &c->out;

	if (owed(c) + n > (is_client(c) ? TCP_OWED_MAX : c->t->backlog)) {
		spoilt(c, unread);
		return -EPIPE;
	}
	if (!vb_buf_reserve(to, n)) {
		tcp_conn_fail(c, "there was no memory for what it is sent");
		return -EPIPE;
	}
	memcpy(to->at + to->end, bytes, n);
	to->end += n;
	if (!c->pushing) {
		c->pushing = true;
		vb_list_push(&c->t->push, &c->in_push);
	}
	return 0;
}

/* ---- those that do not read ---- */

/* True: nothing more of it is executed now. */
static bool hold(struct tcp_conn *c)
{
	struct tcp_via *t = c->t;

	if (vb_likely(!is_client(c) || owed(c) <= TCP_OWED))
		return false;
	if (c->held)
		return true;
	c->held = true;
	t->held++;
	c->wrote_ns = vb_clock_ns();
	am_due(t->w, c->wrote_ns + t->o.am.silence_ns);
	tell_epoll(c);
	return true;
}

bool tcp_conn_can_resume(const struct tcp_via *t)
{
	if (vb_likely(t->held == 0))
		return false;
	vb_list_for_each (it, &t->conns) {
		const struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (c->held && owed(c) <= TCP_OWED)
			return true;
	}
	return false;
}

void tcp_conn_resume(struct tcp_via *t)
{
	if (vb_likely(t->held == 0))
		return;
	vb_list_for_each (it, &t->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (!c->held || owed(c) > TCP_OWED)
			continue;
		c->held = false;
		t->held--;
		tell_epoll(c);
		tcp_conn_take(c);
	}
}

uint64_t tcp_conn_tick(struct tcp_via *t, uint64_t now)
{
	uint64_t due = VB_FOREVER, end;

	if (vb_likely(t->held == 0))
		return VB_FOREVER;
	vb_list_for_each (it, &t->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (!c->held)
			continue;
		end = c->wrote_ns + t->o.am.silence_ns;
		if (now >= end)
			spoilt(c, unread);
		else if (end < due)
			due = end;
	}
	return due;
}

/* ---- taking apart ---- */

/* Messages at the front of b. */
static void take_messages(struct tcp_conn *c, struct vb_buf *b)
{
	struct am_header h;
	const char *why;
	size_t n;

	c->missing = 0;
	while (c->state == TCP_OPEN && !c->host->failed && vb_buf_bytes(b) >= AM_HEADER &&
	       !hold(c)) {
		if (am_header_get(b->at + b->begin, AM_HEADER, &h, &why) != 0) {
			spoilt(c, why);
			return;
		}
		/* A client does not know which place is its own. */
		if (c->accepted && c->from == TCP_CLIENT)
			h.host = c->host->rank;
		/* A member speaks for itself only. */
		if (h.host != c->host->rank) {
			spoilt(c, "it speaks for another host");
			return;
		}
		n = AM_HEADER + (size_t)h.bytes;
		if (vb_buf_bytes(b) < n) {
			c->missing = n - vb_buf_bytes(b);
			return;
		}
		am_message(c->t->w, &h, b->at + b->begin + AM_HEADER);
		vb_buf_take(b, n);
	}
}

static void take_records(struct tcp_conn *c)
{
	int rc = 1;

	take_messages(c, &c->in); /* of records that were opened before it was held */
	while (c->state == TCP_OPEN && !c->host->failed && !c->held &&
	       (rc = vb_seal_get(c->seal, &c->raw, &c->in)) == 1)
		take_messages(c, &c->in);
	if (rc == -EBADMSG)
		spoilt(c, "a frame is not as the other end has sealed it");
	else if (rc < 0)
		tcp_conn_fail(c, "there was no memory for a message");
}

void tcp_conn_take(struct tcp_conn *c)
{
	if (c->seal != NULL)
		take_records(c);
	else
		take_messages(c, &c->raw);
}

/* NULL: a client for which there is no place. */
static struct am_host *who_calls(struct tcp_conn *c)
{
	struct am_wire *w = c->t->w;
	uint32_t rank = c->from;

	if (rank == TCP_CLIENT)
		rank = net_elastic_place(w->f, c->id);
	return rank != NET_NOBODY ? &w->host[rank] : NULL;
}

/* Both have proved themselves. */
static void proved(struct tcp_conn *c)
{
	struct am_wire *w = c->t->w;
	struct am_host *h = c->accepted ? who_calls(c) : c->host;

	if (h == NULL) {
		tcp_conn_fail(c, "each place for a client has one (option clients)");
		return;
	}
	c->t->half -= c->accepted;
	c->state = TCP_OPEN;
	c->t->open++;
	if (c->accepted && (h->state == AM_GONE || w->closing)) {
		tcp_conn_drop(c);
		return;
	}
	c->host = h;
	/* To oneself the end that has connected is for sending. */
	if (c->accepted && h->rank == w->f->host)
		return;
	if (c->accepted) {
		if (h->via != NULL)
			am_break(h, "it has connected anew");
		h->via = c;
	}
	c->t->peer[h->rank].tries = 0;
	if (am_linked(h) != 0)
		am_failed(h, "there was no memory for its greeting");
}

static void shake(struct tcp_conn *c)
{
	int rc = tcp_shake_step(c);

	tcp_conn_push(c);
	if (c->state != TCP_SHAKING || rc == 0)
		return;
	if (rc < 0) {
		tcp_conn_fail(c, c->why);
		return;
	}
	proved(c);
	if (c->state == TCP_OPEN)
		tcp_conn_take(c); /* what came right behind */
}

/* ---- reading ---- */

bool tcp_conn_read(struct tcp_conn *c)
{
	bool any = false;

	for (unsigned i = 0;
	     i < READS && !c->held && (c->state == TCP_OPEN || c->state == TCP_SHAKING); i++) {
		struct vb_buf *b = &c->raw;
		size_t room;
		ssize_t n;

		if (!vb_buf_reserve(b, c->missing > 0 && c->seal == NULL ? c->missing : TCP_READ)) {
			tcp_conn_fail(c, "there was no memory for what came");
			return any;
		}
		room = b->room - b->end;
		n = recv(c->fd, b->at + b->end, room, MSG_DONTWAIT);
		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0 && errno == EAGAIN)
			return any;
		if (n <= 0) {
			tcp_conn_fail(c, n == 0 ? "the other side has closed it"
						: strerrordesc_np(errno));
			return true;
		}
		any = true;
		b->end += (size_t)n;
		if (c->state == TCP_SHAKING)
			shake(c);
		else
			tcp_conn_take(c);
		if ((size_t)n < room || (c->host != NULL && c->host->failed))
			return any;
	}
	return any;
}

static void connected(struct tcp_conn *c)
{
	int err = 0;
	socklen_t len = sizeof(err);

	if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &len) != 0)
		err = errno;
	if (err != 0) {
		tcp_conn_fail(c, strerrordesc_np(err));
		return;
	}
	c->state = TCP_SHAKING;
	if (tcp_shake_begin(c) != 0)
		tcp_conn_fail(c, "there was no memory for its handshake");
	else
		shake(c);
}

void tcp_conn_event(struct tcp_conn *c, uint32_t events)
{
	if (c->state == TCP_CONNECTING) {
		if (events & (EPOLLOUT | EPOLLERR | EPOLLHUP))
			connected(c);
		return;
	}
	if (events & EPOLLOUT)
		tcp_conn_push(c);
	if (c->held && (events & (EPOLLERR | EPOLLHUP))) {
		tcp_conn_fail(c, "the other side has closed it");
		return;
	}
	if (events & (EPOLLIN | EPOLLERR | EPOLLHUP))
		(void)tcp_conn_read(c);
}
