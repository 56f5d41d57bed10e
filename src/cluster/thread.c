/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The cluster's thread: it alone touches the sockets, so that signs of life and deaths get through
 * whatever the program's threads do.
 */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"

#define PING_LEAST_NS 1000000ull
#define PING_MOST_NS  1000000000ull
#define NAP_NS        10000000000ull /* without anything to wait for */

static uint64_t ping_interval(const struct vb_cluster *c)
{
	uint64_t ns = c->silence_ns / 4;

	return ns < PING_LEAST_NS ? PING_LEAST_NS : ns > PING_MOST_NS ? PING_MOST_NS : ns;
}

static void lost(struct vb_cluster *c, struct cluster_conn *k)
{
	if (c->is_root)
		root_lost(c, k);
	else
		member_lost(c, k);
}

/* ---- timers ---- */

static void sooner(uint64_t *first, uint64_t at)
{
	if (at < *first)
		*first = at;
}

/* One connection's; when it is to be looked at again. */
static uint64_t conn_timers(struct vb_cluster *c, struct cluster_conn *k, uint64_t now)
{
	bool joined = k->phase == CONN_GOING || k->phase == CONN_WAITING;
	uint64_t first = k->deadline_ns, silent_at = k->heard_ns + c->silence_ns;

	if (!joined || c->parting)
		return first;
	if (!c->is_root) {
		if (!k->pinging && now >= k->pinged_ns + ping_interval(c))
			conn_ping(k);
		if (!k->pinging)
			sooner(&first, k->pinged_ns + ping_interval(c));
	}
	if (k->phase == CONN_GOING) {
		cluster_set_suspect(c, k->rank, now >= silent_at);
		if (now < silent_at)
			sooner(&first, silent_at);
	}
	return first;
}

static uint64_t timers(struct vb_cluster *c, uint64_t now)
{
	uint64_t first = now + NAP_NS, by = c->open_by_ns;

	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		/* A member that waits leaves it to the root to say who is missing. */
		if (!c->is_root && k->phase == CONN_WAITING)
			by = cluster_later(by, CL_PARTING_NS);
		if (now >= k->deadline_ns)
			lost(c, k);
		else
			sooner(&first, conn_timers(c, k, now));
	}
	if (!c->open_done && now >= by) {
		if (c->is_root)
			root_gives_up(c);
		else
			member_gives_up(c);
	}
	if (!c->is_root && !c->open_done && vb_list_empty(&c->conns)) {
		if (now >= c->retry_ns)
			member_seek(c);
		sooner(&first, c->retry_ns);
	}
	if (!c->open_done)
		sooner(&first, by);
	if (now < c->accept_after_ns)
		sooner(&first, c->accept_after_ns);
	steps_look(c, now);
	sooner(&first, steps_deadline(c));
	return first;
}

/* ---- the end ---- */

static void say_goodbye(struct vb_cluster *c)
{
	struct cluster_bulk b = {.kind = BULK_GOODBYE};

	c->parting = true;
	if (c->listen_fd >= 0)
		close(c->listen_fd);
	c->listen_fd = -1;
	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		if (k->phase == CONN_GOING) {
			k->deadline_ns =
				cluster_now() +
				(c->silence_ns > CL_PARTING_NS ? c->silence_ns : CL_PARTING_NS);
			if (conn_bulk(k, &b) != 0)
				conn_free(c, k);
		} else if (k->phase != CONN_LEAVING) {
			conn_free(c, k);
		}
	}
}

/* What is to be sent has left: nothing more comes from here.  The other side closes then, and only
 * then do we, because closing with unread bytes would tear up what is on its way. */
static void shut_if_done(struct cluster_conn *k)
{
	if (k->shut || conn_wants_write(k))
		return;
	if (k->phase != CONN_LEAVING && !k->said_goodbye)
		return;
	k->shut = true;
	if (shutdown(k->fd, SHUT_WR) != 0)
		k->eof = true;
}

/* ---- sockets ---- */

static short wanted_events(const struct cluster_conn *k)
{
	if (k->phase == CONN_CONNECTING)
		return POLLOUT;
	return conn_wants_write(k) ? POLLIN | POLLOUT : POLLIN;
}

static void serve(struct vb_cluster *c, struct cluster_conn *k, short events)
{
	if (k->phase == CONN_CONNECTING) {
		if (events != 0)
			member_connected(c, k);
	} else if (events & (POLLIN | POLLHUP | POLLERR)) {
		conn_read(c, k);
	}
	if (k->phase != CONN_CONNECTING && !k->eof && !k->broken) {
		conn_write(k);
		shut_if_done(k);
	}
	if (k->eof || k->broken)
		lost(c, k);
}

static nfds_t collect(struct vb_cluster *c, uint64_t now)
{
	nfds_t n = 0;

	c->polled[n++] = (struct pollfd){.fd = c->wake_fd, .events = POLLIN};
	c->polled[n++] = (struct pollfd){.fd = now >= c->accept_after_ns ? c->listen_fd : -1,
					 .events = POLLIN};
	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		conn_notice(c, k);
		c->polled_conns[n] = k;
		c->polled[n++] = (struct pollfd){.fd = k->fd, .events = wanted_events(k)};
	}
	return n;
}

static void look_at_sockets(struct vb_cluster *c, nfds_t n)
{
	uint64_t count;

	if (c->polled[0].revents != 0)
		(void)!read(c->wake_fd, &count, sizeof(count));
	/* Those that are accepted now are polled the next time. */
	for (nfds_t i = 2; i < n; i++)
		if (c->polled[i].revents != 0 || conn_wants_write(c->polled_conns[i]))
			serve(c, c->polled_conns[i], c->polled[i].revents);
	if (c->polled[1].revents != 0 && c->listen_fd >= 0)
		root_accept(c);
}

/* This process was held up: what the others said meanwhile has not been read yet, so nobody's
 * silence counts. */
static void forgive(struct vb_cluster *c)
{
	vb_list_for_each (it, &c->conns)
		vb_container_of(it, struct cluster_conn, link)->heard_ns = cluster_now();
}

static void tell(struct vb_cluster *c)
{
	uint32_t n = __atomic_load_n(&c->n_gone, __ATOMIC_ACQUIRE);

	pthread_mutex_lock(&c->tell_lock);
	for (unsigned i = 0; i < CL_SLOTS; i++) {
		struct cluster_slot *s = &c->slots[i];

		while (s->fn != NULL && s->next < n) {
			uint32_t r = c->gone[s->next++];

			s->fn(s->ctx, r,
			      __atomic_load_n(&c->peers[r].state, __ATOMIC_ACQUIRE) == PEER_DIED);
		}
	}
	pthread_mutex_unlock(&c->tell_lock);
}

static int sleep_ms(uint64_t now, uint64_t until)
{
	return until <= now ? 0 : (int)((until - now) / 1000000 + 1);
}

void *cluster_thread(void *arg)
{
	struct vb_cluster *c = arg;
	uint64_t now, until, back;
	nfds_t n;
	int ms;

	pthread_mutex_lock(&c->lock);
	for (;;) {
		if (c->closing && !c->parting)
			say_goodbye(c);
		if (c->parting && vb_list_empty(&c->conns))
			break;
		now = cluster_now();
		until = timers(c, now);
		n = collect(c, now);
		ms = sleep_ms(now, until);
		pthread_mutex_unlock(&c->lock);
		tell(c);
		if (poll(c->polled, n, ms) < 0 && errno != EINTR)
			vb_error("poll: %s", strerror(errno));
		pthread_mutex_lock(&c->lock);
		back = cluster_now();
		if (back - now > (uint64_t)ms * 1000000 + c->silence_ns / 2)
			forgive(c);
		look_at_sockets(c, n);
	}
	pthread_mutex_unlock(&c->lock);
	tell(c);
	return NULL;
}
