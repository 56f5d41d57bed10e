/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A member's side: it goes to the root until it gets in, since the root may start later than it
 * does; only what will not change by waiting ends the attempts: another key, another version,
 * another configuration, a foreign program at the port.
 */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/opt.h"

/* The calibration of two processes of one machine differs by less, or one of them is wrong. */
#define CLOCK_PPM 1000

static void VB_PRINTF(3, 4) trouble(struct vb_cluster *c, int err, const char *fmt, ...)
{
	va_list args;

	va_start(args, fmt);
	vsnprintf(c->trouble, sizeof(c->trouble), fmt, args);
	va_end(args);
	c->trouble_err = err;
	c->retry_ns = cluster_now() + CL_RETRY_NS;
	vb_debug("%s; trying again", c->trouble);
}

/* ---- to the root ---- */

/* The address is this machine's and free: then this process is the root. */
static bool become_root(struct vb_cluster *c)
{
	char text[64];
	int fd;

	if (c->role != VB_CLUSTER_AUTO)
		return false;
	for (unsigned i = 0; i < c->n_meet_addrs; i++) {
		if (!address_is_ours(&c->meet_addrs[i]))
			continue;
		fd = address_listen(&c->meet_addrs[i], &c->port);
		if (fd >= 0) {
			c->listen_fd = fd;
			root_begin(c);
			return true;
		}
		if (fd != -EADDRINUSE && fd != -EADDRNOTAVAIL) {
			address_say(&c->meet_addrs[i], text, sizeof(text));
			cluster_open_ends(c, fd, "cannot listen at %s: %s", text, strerror(-fd));
			return true;
		}
	}
	return false;
}

void member_seek(struct vb_cluster *c)
{
	const struct cluster_addr *a;
	struct cluster_conn *k;
	char text[64];
	int fd;

	c->retry_ns = cluster_now() + CL_RETRY_NS;
	if (become_root(c))
		return;
	a = &c->meet_addrs[c->next_addr++ % c->n_meet_addrs];
	address_say(a, text, sizeof(text));
	fd = socket(a->sa.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
	if (fd < 0) {
		trouble(c, -ETIMEDOUT, "no socket: %s", strerror(errno));
		return;
	}
	if (connect(fd, (const struct sockaddr *)&a->sa, a->len) != 0 && errno != EINPROGRESS) {
		trouble(c, -ETIMEDOUT, "%s: %s", text, strerror(errno));
		close(fd);
		return;
	}
	k = conn_new(c, fd, text);
	if (k == NULL) {
		close(fd);
		trouble(c, -ENOMEM, "no memory for a connection");
		return;
	}
	k->phase = CONN_CONNECTING;
	k->beyond = !address_is_loopback(a);
	k->deadline_ns = cluster_now() + CL_HANDSHAKE_NS;
	address_tune(fd, c->silence_ns);
}

void member_connected(struct vb_cluster *c, struct cluster_conn *k)
{
	int error = 0;
	socklen_t n = sizeof(error);

	if (getsockopt(k->fd, SOL_SOCKET, SO_ERROR, &error, &n) != 0)
		error = errno;
	if (error != 0) {
		k->eof = true;
		k->why = strerror(error);
		return;
	}
	member_begin(c, k);
}

void member_begin(struct vb_cluster *c, struct cluster_conn *k)
{
	uint8_t *to = conn_room(k, CL_CONTROL_MAX);

	if (to == NULL)
		return;
	k->hello = proof_flags(c, k);
	conn_put(k, cl_put_hello(to, k->hello));
	k->phase = CONN_MODE;
	k->deadline_ns = cluster_now() + CL_HANDSHAKE_NS;
}

/* ---- getting in ---- */

static void take_mode(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	uint32_t mode;

	if (f->type != CL_MODE || cl_get_mode(f, &mode) != 0) {
		conn_break(k, "does not speak Verbena's cluster protocol");
		return;
	}
	if (!proof_accepts(c, k, mode)) {
		cluster_open_ends(c, -EPROTO,
				  "what listens at %s wants frames %s, and this process does not: "
				  "give every process the same option seal",
				  k->peer, vb_seal_mode_names[mode]);
		conn_break(k, "protects frames in another way");
		return;
	}
	k->phase = CONN_PROOF_ROOT;
	(void)proof_begin(c, k, false);
}

static void join(struct vb_cluster *c, struct cluster_conn *k)
{
	struct cl_join j = {.hosts = c->hosts,
			    .wanted = c->wanted,
			    .who = c->me,
			    .config = c->config,
			    .config_bytes = (uint32_t)c->config_bytes};
	uint8_t *to = conn_room(k, CL_JOIN_MAX);

	if (to != NULL)
		conn_put(k, cl_put_join(to, &j));
	k->phase = CONN_WAITING;
	k->deadline_ns = VB_FOREVER;
	k->heard_ns = cluster_now();
}

static void take_proof(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	int rc = f->type == CL_PROOF_ROOT ? proof_step(k, f->payload, f->bytes) : -EACCES;

	if (rc == 1) {
		join(c, k);
	} else if (rc == -EACCES) {
		cluster_open_ends(c, -EACCES,
				  "what listens at %s did not prove that it has our key: is it the "
				  "root of this cluster?",
				  k->peer);
		conn_break(k, "has another key");
	}
}

/* A root refuses another key and another version before it has proved itself.  So may anybody who has the
 * port: it is told as that, and no more is believed than that there is no getting in. */
static void take_unproven_refusal(struct vb_cluster *c, struct cluster_conn *k,
				  const struct cl_verdict *v)
{
	cluster_open_ends(c, v->err == -EACCES ? -EACCES : -EPROTO,
			  "what listens at %s, and has not proved that it is the root, refused: %s",
			  k->peer, v->text);
}

static void take_refusal(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_verdict v;

	if (cl_get_refuse(f, &v) != 0) {
		conn_break(k, "sent a refusal that is none");
		return;
	}
	if (k->phase != CONN_WAITING)
		take_unproven_refusal(c, k, &v);
	/* That one may be on its way out, and its address free or another's soon. */
	else if (v.err == -EBUSY)
		trouble(c, v.err, "the root at %s refused: %s", k->peer, v.text);
	else
		cluster_open_ends(c, v.err, "the root at %s refused: %s", k->peer, v.text);
	k->phase = CONN_LEAVING;
	k->deadline_ns = cluster_now();
}

static void take_member(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_member m;

	if (cl_get_member(f, &m) != 0 || m.rank >= c->hosts || c->peers[m.rank].known) {
		conn_break(k, "named a process that cannot be");
		return;
	}
	cluster_set_peer(c, m.rank, &m.who);
}

/*
 * The root's calibration, if this is the root's machine.  Where this process has something open that
 * goes by its own, it keeps that and asks for the time, as on another machine.  False: two counters of
 * one machine do not run at two speeds.
 */
static bool take_clock(struct vb_cluster *c, const struct vb_clock *clock)
{
	uint64_t ours, theirs;

	bool held = false;

	vb_clock_init();
	ours = vb_clock.mult;
	theirs = clock->mult;
	if (c->peers[0].local) {
		if (clock->use_tsc && vb_clock.use_tsc &&
		    (ours > theirs ? ours - theirs : theirs - ours) > ours / 1000000 * CLOCK_PPM)
			return false;
		held = c->same_clock = vb_clock_hold(clock) == 0;
	}
	c->clock_held = held || vb_clock_hold(NULL) == 0;
	return true;
}

static void take_start(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_start s;

	if (cl_get_start(f, &s) != 0 || s.hosts != c->hosts || s.rank == 0 ||
	    c->members_known != c->hosts) {
		conn_break(k, "sent a start that is none");
		return;
	}
	if (!take_clock(c, &s.clock)) {
		conn_break(k, "runs on this machine by another clock");
		return;
	}
	c->rank = s.rank;
	for (unsigned i = 0; i < CL_SECRET; i++)
		c->secret[i] = s.secret[i] ^ k->mask[i];
	c->peers[0].conn = k;
	c->started = true;
	k->phase = CONN_GOING;
	k->rank = 0;
	if (c->same_clock || c->samples >= CL_SAMPLES)
		cluster_open_ends(c, 0, "this is rank %u", c->rank);
}

/* ---- a member ---- */

/* Of all round trips the one that says most now: its half, and what the clocks drifted since. */
static void take_pong(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	uint64_t now = vb_clock_ns(), rtt, aged;
	struct cl_pong p;

	if (cl_get_pong(f, &p) != 0 || !k->pinging || p.yours != k->ping_time) {
		conn_break(k, "answered a ping that was not sent");
		return;
	}
	k->pinging = false;
	rtt = now > p.yours ? now - p.yours : 0;
	aged = c->rtt_ns + 2 * ((now - c->sampled_ns) / 1000000 * CL_DRIFT_PPM);
	if (c->samples == 0 || rtt <= aged) {
		c->rtt_ns = rtt;
		c->sampled_ns = now;
		c->offset_ns = (int64_t)(p.mine - (p.yours + rtt / 2));
	}
	if (c->samples < CL_SAMPLES)
		c->samples++;
	if (c->samples < CL_SAMPLES)
		conn_ping(k);
	else if (c->started && !c->open_done)
		cluster_open_ends(c, 0, "this is rank %u", c->rank);
}

/* The root answers those that it has let in: what it, or another, refused before is over. */
static void take_first_pongs(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	c->trouble_err = 0;
	c->trouble[0] = '\0';
	take_pong(c, k, f);
}

static void result_begins(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_result *r = &k->in.result;
	struct cluster_call *call;

	if (k->in.on || cl_get_result(f, r) != 0 || r->rank >= c->hosts) {
		conn_break(k, "sent a result that is none");
		return;
	}
	k->in.on = r->bytes > 0;
	k->in.left = r->bytes;
	k->in.at = 0;
	call = cluster_call_find(c, r->seq);
	if (call == NULL)
		return; /* given up meanwhile: what comes is dropped */
	if (call->parts.n == 0 || call->parts.data[r->rank] != NULL) {
		conn_break(k, "sent a result that nobody asked for");
		return;
	}
	call->parts.data[r->rank] = malloc(r->bytes > 0 ? r->bytes : 1);
	if (call->parts.data[r->rank] == NULL)
		call->verdict.err = -ENOMEM;
	else
		call->parts.bytes[r->rank] = r->bytes;
}

static void result_goes_on(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cluster_call *call = cluster_call_find(c, k->in.result.seq);
	uint32_t rank = k->in.result.rank;

	if (!k->in.on || f->bytes > k->in.left) {
		conn_break(k, "sent more of a result than it had announced");
		return;
	}
	/* A call that has ended meanwhile took its parts with it. */
	if (call != NULL && call->parts.data[rank] != NULL)
		memcpy((uint8_t *)call->parts.data[rank] + k->in.at, f->payload, f->bytes);
	k->in.at += f->bytes;
	k->in.left -= f->bytes;
	k->in.on = k->in.left > 0;
}

static void result_ends(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cluster_call *call;
	struct cl_verdict v;

	if (cl_get_end(f, &v) != 0) {
		conn_break(k, "sent an end that is none");
		return;
	}
	call = cluster_call_find(c, v.seq);
	if (call == NULL)
		return;
	if (v.err == 0 && call->verdict.err != 0) {
		v.err = call->verdict.err;
		snprintf(v.text, sizeof(v.text), "no memory for the parts of others");
	}
	cluster_call_ends(c, call, &v);
}

static void take_about(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_about a;

	if (cl_get_about(f, &a) != 0 || a.rank >= c->hosts || a.rank == c->rank || a.rank == 0) {
		conn_break(k, "sent word of a process that cannot be");
		return;
	}
	if (f->type == CL_GONE)
		cluster_gone(c, a.rank, a.flag);
	else
		cluster_set_suspect(c, a.rank, a.flag);
}

static void root_says(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	switch (f->type) {
	case CL_GOODBYE:
		k->heard_goodbye = true;
		cluster_gone(c, 0, false);
		cluster_open_ends(c, -VB_EPEERGONE, "the root at %s left before its time was known",
				  k->peer);
		k->phase = CONN_LEAVING;
		k->deadline_ns = cluster_now() + CL_PARTING_NS;
		break;
	case CL_PONG:
		take_pong(c, k, f);
		break;
	case CL_NOTICE:
		conn_take_notice(c, k, f);
		break;
	case CL_RESULT:
		result_begins(c, k, f);
		break;
	case CL_DATA:
		result_goes_on(c, k, f);
		break;
	case CL_END:
		result_ends(c, k, f);
		break;
	case CL_GONE:
	case CL_SUSPECT:
		take_about(c, k, f);
		break;
	default:
		conn_break(k, "sent a frame that is not for a root to send");
	}
}

void member_frame(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	if (f->type == CL_REFUSE && !c->started) {
		take_refusal(c, k, f);
		return;
	}
	switch (k->phase) {
	case CONN_MODE:
		take_mode(c, k, f);
		break;
	case CONN_PROOF_ROOT:
		take_proof(c, k, f);
		break;
	case CONN_WAITING:
		if (f->type == CL_MEMBER)
			take_member(c, k, f);
		else if (f->type == CL_START)
			take_start(c, k, f);
		else if (f->type == CL_PONG)
			take_first_pongs(c, k, f);
		else
			conn_break(k, "sent a frame before the start");
		break;
	case CONN_GOING:
		root_says(c, k, f);
		break;
	default:
		conn_break(k, "spoke out of turn");
	}
}

void member_lost(struct vb_cluster *c, struct cluster_conn *k)
{
	const char *why = k->why != NULL ? k->why : k->eof ? "closed the connection" : NULL;

	if (k->phase == CONN_GOING) {
		if (!k->said_goodbye)
			vb_warn("%s, the root, is dead: its connection ended without a goodbye "
				"(%s)",
				c->peers[0].name, why != NULL ? why : "timed out");
		cluster_gone(c, 0, !k->said_goodbye);
		cluster_open_ends(c, -VB_EPEERGONE, "the root at %s died", k->peer);
	} else if (k->starved && k->phase != CONN_LEAVING) {
		cluster_open_ends(c, -ENOMEM, "the root at %s: %s", k->peer, why);
	} else if (k->phase == CONN_WAITING) {
		cluster_open_ends(c, k->broken ? -EPROTO : -VB_EPEERGONE,
				  "the root at %s %s before all had come", k->peer,
				  why != NULL ? why : "went away");
	} else if (k->broken && k->phase != CONN_LEAVING) {
		cluster_open_ends(c, -EPROTO,
				  "what listens at %s %s: another program may have this port",
				  k->peer, why);
	} else if (k->phase != CONN_LEAVING) {
		trouble(c, -ETIMEDOUT, "%s: %s", k->peer,
			why != NULL ? why : "says nothing; another program may have this port");
	}
	conn_free(c, k);
}

/* What the root refused last is why, also where the time ended amid the next attempt. */
void member_gives_up(struct vb_cluster *c)
{
	struct cluster_conn *k = vb_container_of(c->conns.next, struct cluster_conn, link);
	bool under_way = !vb_list_empty(&c->conns) && c->trouble_err != -EBUSY;
	char span[16];

	vb_format_ns(span, sizeof(span), (double)c->timeout_ns);
	if (under_way && k->phase == CONN_WAITING) {
		cluster_open_ends(c, -ETIMEDOUT,
				  "got to the root at %s, but not all %u processes came within %s; "
				  "the root knows which",
				  k->peer, c->hosts, span);
		return;
	}
	if (under_way && k->phase == CONN_MODE)
		trouble(c, -ETIMEDOUT,
			"what listens at %s says nothing: another program may have this port",
			k->peer);
	cluster_open_ends(c, c->trouble_err != 0 ? c->trouble_err : -ETIMEDOUT,
			  "did not get into the cluster at %s within %s%s%s", c->meet, span,
			  c->trouble[0] != '\0' ? ": " : "", c->trouble);
}
