/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The root's side.  Anybody may knock; whoever does not say the right thing in time is refused and
 * named in the log, and the root goes on waiting for those who belong here.  Ranks are given out
 * when all have come: first to those who want a certain one, the rest in order of arrival.
 */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <netinet/in.h>
#include <stdarg.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/opt.h"

#define ACCEPT_ROUND 16
#define LOGGED_MAX   20 /* refusals a second; a flood is not to fill the disk */
#define NO_FDS_NS    100000000ull

static bool is_pending(const struct cluster_conn *k)
{
	return k->phase == CONN_HELLO || k->phase == CONN_PROOF || k->phase == CONN_JOIN;
}

static void log_refusal(struct vb_cluster *c, const char *text)
{
	uint64_t second = cluster_now() / 1000000000ull;

	if (second != c->refusals_second) {
		if (c->refusals > LOGGED_MAX)
			vb_warn("%llu more refusals within a second",
				(unsigned long long)(c->refusals - LOGGED_MAX));
		c->refusals_second = second;
		c->refusals = 0;
	}
	if (c->refusals++ < LOGGED_MAX)
		vb_warn("refused: %s", text);
}

void root_refuse(struct vb_cluster *c, struct cluster_conn *k, int err, const char *fmt, ...)
{
	char text[CL_TEXT + 1];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	log_refusal(c, text);
	conn_refuse(k, err, text);
}

/* ---- who may come in ---- */

static void take_hello(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	uint32_t flags;
	uint8_t *to;

	if (f->type != CL_HELLO || cl_get_hello(f, &flags) != 0) {
		conn_break(k, "does not speak Verbena's cluster protocol");
		return;
	}
	if (!proof_choose(c, k, flags)) {
		root_refuse(c, k, -EPROTO,
			    "%s and the root do not agree whether frames are sealed, and one "
			    "says " VB_SEALING_NEVER_NAME
			    ": give every process the same option seal",
			    k->peer);
		return;
	}
	to = conn_room(k, CL_CONTROL_MAX);
	if (to != NULL)
		conn_put(k, cl_put_mode(to, (uint32_t)k->mode));
	if (proof_begin(c, k, true) == 0)
		k->phase = CONN_PROOF;
}

static void take_proof(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	int rc;

	if (f->type != CL_PROOF) {
		conn_break(k, "did not prove that it has the key");
		return;
	}
	rc = proof_step(k, f->payload, f->bytes);
	if (rc == 1)
		k->phase = CONN_JOIN;
	else if (rc == -EACCES)
		root_refuse(c, k, -EACCES,
			    "%s has another key than the root, or one of the two has none: give "
			    "every process the same key file",
			    k->peer);
}

/* "rank 2 (host, pid 7, 127.0.0.1:4711)", or without a rank that it wants. */
static void say_joiner(const struct cluster_conn *k, char *to, size_t size)
{
	char rank[24] = "a process";

	if (k->wanted != VB_CLUSTER_ANY_RANK)
		snprintf(rank, sizeof(rank), "rank %u", k->wanted);
	snprintf(to, size, "%s (%s, pid %u, %s)", rank, k->who.host, k->who.pid, k->peer);
}

static uint32_t count_joined(const struct vb_cluster *c)
{
	uint32_t n = 0;

	vb_list_for_each (it, &c->conns)
		n += vb_container_of(it, struct cluster_conn, link)->phase == CONN_JOINED;
	return n;
}

static struct cluster_conn *who_wants(const struct vb_cluster *c, uint32_t rank)
{
	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		if (k->phase == CONN_JOINED && k->wanted == rank)
			return k;
	}
	return NULL;
}

/* Ranks for all who have joined; those that nobody has stay free (conn NULL). */
static void assign(struct vb_cluster *c)
{
	uint32_t next = 1;

	for (uint32_t r = 1; r < c->hosts; r++)
		c->peers[r].conn = who_wants(c, r);
	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		if (k->phase != CONN_JOINED || k->wanted != VB_CLUSTER_ANY_RANK)
			continue;
		while (next < c->hosts && c->peers[next].conn != NULL)
			next++;
		vb_assert(next < c->hosts);
		c->peers[next].conn = k;
	}
}

static void tell_everything(struct vb_cluster *c, struct cluster_conn *k)
{
	struct cl_start s = {.rank = k->rank, .hosts = c->hosts, .clock = vb_clock};
	uint8_t *to;

	for (uint32_t r = 0; r < c->hosts; r++) {
		struct cl_member m = {.rank = r, .who = c->peers[r].who};

		to = conn_room(k, CL_CONTROL_MAX);
		if (to == NULL)
			return;
		conn_put(k, cl_put_member(to, &m));
	}
	for (unsigned i = 0; i < CL_SECRET; i++)
		s.secret[i] = c->secret[i] ^ k->mask[i];
	to = conn_room(k, CL_CONTROL_MAX);
	if (to != NULL)
		conn_put(k, cl_put_start(to, &s));
}

static void start(struct vb_cluster *c)
{
	assign(c);
	for (uint32_t r = 1; r < c->hosts; r++) {
		c->peers[r].conn->rank = r;
		cluster_set_peer(c, r, &c->peers[r].conn->who);
	}
	for (uint32_t r = 1; r < c->hosts; r++) {
		struct cluster_conn *k = c->peers[r].conn;

		tell_everything(c, k);
		k->phase = CONN_GOING;
		k->heard_ns = cluster_now();
	}
	c->started = true;
	c->same_clock = true;
	cluster_open_ends(c, 0, "all %u processes have come", c->hosts);
}

/* Refuses who differs and remembers why, for when nobody better comes. */
static void refuse_difference(struct vb_cluster *c, struct cluster_conn *k, const char *text)
{
	snprintf(c->difference, sizeof(c->difference), "%s", text);
	root_refuse(c, k, -EPROTO, "%s", text);
}

static bool agrees(struct vb_cluster *c, struct cluster_conn *k, const struct cl_join *j)
{
	struct cluster_conn *other;
	char who[200], them[200], text[CL_TEXT + 1];

	say_joiner(k, who, sizeof(who));
	if (j->hosts != c->hosts) {
		snprintf(text, sizeof(text), "hosts: %s has %u, the root has %u", who, j->hosts,
			 c->hosts);
		refuse_difference(c, k, text);
	} else if (cl_config_differs(c->config, c->config_bytes, j->config, j->config_bytes, who,
				     text, sizeof(text))) {
		refuse_difference(c, k, text);
	} else if (j->wanted != VB_CLUSTER_ANY_RANK && j->wanted >= c->hosts) {
		root_refuse(c, k, -EPROTO, "%s: there are ranks 0 to %u only", who, c->hosts - 1);
	} else if (c->started || count_joined(c) + 1 == c->hosts) {
		root_refuse(c, k, -EBUSY, "%s: the cluster is complete, all %u processes have come",
			    who, c->hosts);
	} else if (k->wanted != VB_CLUSTER_ANY_RANK && (other = who_wants(c, k->wanted)) != NULL) {
		say_joiner(other, them, sizeof(them));
		snprintf(text, sizeof(text), "%s: its rank is that of %s, who was here first", who,
			 them);
		refuse_difference(c, k, text);
	} else {
		return true;
	}
	return false;
}

static void take_join(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_join j;

	if (f->type != CL_JOIN || cl_get_join(f, &j) != 0) {
		conn_break(k, "did not say who it is");
		return;
	}
	k->who = j.who;
	/* Rank 0 is taken for "any": it is what a parameter that nobody set has. */
	k->wanted = j.wanted == 0 ? VB_CLUSTER_ANY_RANK : j.wanted;
	if (!agrees(c, k, &j))
		return;
	k->phase = CONN_JOINED;
	k->deadline_ns = VB_FOREVER;
	vb_debug("%s (%s, pid %u) has come", k->peer, k->who.host, k->who.pid);
	if (count_joined(c) + 1 == c->hosts)
		start(c);
}

/* ---- members ---- */

static void part_is_whole(struct vb_cluster *c, struct cluster_conn *k)
{
	struct cluster_blob *blob = k->in.blob;

	k->in.on = false;
	k->in.blob = NULL;
	steps_came(c, k->rank, &k->in.part, blob);
}

static void take_part(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	struct cl_part *p = &k->in.part;

	if (k->in.on || cl_get_part(f, p) != 0 || p->seq != k->next_seq) {
		conn_break(k, "sent a part that is out of turn");
		return;
	}
	k->next_seq++;
	k->in.on = true;
	k->in.left = p->bytes;
	k->in.at = 0;
	if (steps_wanted(c, p->seq)) {
		k->in.blob = cluster_blob_new(NULL, p->bytes);
		if (k->in.blob == NULL)
			p->err = -ENOMEM; /* of this process: the step fails with its name */
	}
	if (p->bytes == 0)
		part_is_whole(c, k);
}

static void take_data(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	if (!k->in.on || f->bytes > k->in.left) {
		conn_break(k, "sent more of a part than it had announced");
		return;
	}
	if (k->in.blob != NULL)
		memcpy(k->in.blob->data + k->in.at, f->payload, f->bytes);
	k->in.at += f->bytes;
	k->in.left -= f->bytes;
	if (k->in.left == 0)
		part_is_whole(c, k);
}

static void take_ping(struct cluster_conn *k, const struct cl_frame *f)
{
	uint64_t time;

	if (cl_get_ping(f, &time) != 0)
		conn_break(k, "sent a wrong ping");
	else
		conn_pong(k, time);
}

static void member_says(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	if (f->type == CL_GOODBYE) {
		k->heard_goodbye = true;
		cluster_gone(c, k->rank, false);
		k->phase = CONN_LEAVING;
		k->deadline_ns = cluster_now() + CL_PARTING_NS;
	} else if (c->closing) {
		return; /* nobody is here any more who could want it */
	} else if (f->type == CL_PING) {
		take_ping(k, f);
	} else if (f->type == CL_NOTICE) {
		conn_take_notice(c, k, f);
	} else if (f->type == CL_PART) {
		take_part(c, k, f);
	} else if (f->type == CL_DATA) {
		take_data(c, k, f);
	} else {
		conn_break(k, "sent a frame that is not for a member to send");
	}
}

void root_frame(struct vb_cluster *c, struct cluster_conn *k, const struct cl_frame *f)
{
	switch (k->phase) {
	case CONN_HELLO:
		take_hello(c, k, f);
		break;
	case CONN_PROOF:
		take_proof(c, k, f);
		break;
	case CONN_JOIN:
		take_join(c, k, f);
		break;
	case CONN_JOINED:
		if (f->type == CL_PING)
			take_ping(k, f);
		else
			conn_break(k, "did not wait for the others");
		break;
	case CONN_GOING:
		member_says(c, k, f);
		break;
	default:
		conn_break(k, "spoke out of turn");
	}
}

void root_lost(struct vb_cluster *c, struct cluster_conn *k)
{
	const char *why = k->why != NULL ? k->why : k->eof ? "closed the connection" : NULL;
	char text[CL_TEXT + 1];

	if (is_pending(k)) {
		snprintf(text, sizeof(text), "%s %s", k->peer,
			 why != NULL ? why : "said nothing for too long");
		log_refusal(c, text);
	} else if (k->phase == CONN_JOINED && !c->open_done) {
		vb_warn("%s (%s, pid %u) went away before all had come", k->peer, k->who.host,
			k->who.pid);
	} else if (k->phase == CONN_GOING) {
		if (!k->said_goodbye)
			vb_warn("%s is dead: its connection ended without a goodbye (%s)",
				c->peers[k->rank].name, why != NULL ? why : "timed out");
		cluster_gone(c, k->rank, !k->said_goodbye);
	}
	conn_free(c, k);
}

/* ---- coming and not coming ---- */

/* Who has the key is not put out for somebody who has not. */
static bool has_proved(const struct cluster_conn *k)
{
	return k->phase == CONN_JOIN;
}

static bool same_host(const struct cluster_conn *a, const struct cluster_conn *b)
{
	const char *port = strrchr(a->peer, ':');
	size_t n = port != NULL ? (size_t)(port - a->peer) + 1 : 0;

	return strncmp(a->peer, b->peer, n) == 0;
}

/* Those of one address that have proved as much. */
struct crowd {
	const struct cluster_conn *one;
	unsigned n;
};

static struct crowd *crowd_of(struct crowd *crowds, unsigned *n, const struct cluster_conn *k)
{
	for (unsigned i = 0; i < *n; i++)
		if (has_proved(crowds[i].one) == has_proved(k) && same_host(crowds[i].one, k))
			return &crowds[i];
	vb_assert(*n < CL_PENDING_MAX);
	crowds[*n] = (struct crowd){.one = k};
	return &crowds[(*n)++];
}

static bool goes_before(const struct crowd *a, const struct crowd *b)
{
	if (has_proved(a->one) != has_proved(b->one))
		return !has_proved(a->one);
	return a->n > b->n;
}

static bool is_stranger(const struct cluster_conn *k)
{
	return is_pending(k) || k->phase == CONN_LEAVING;
}

/*
 * Who makes room: one, by lot, of the address that has most connections open.  By lot, because who comes
 * often would put out everybody else if the oldest had to go: those who mean it need some time for their
 * proof.  (sshd's MaxStartups does the same.)
 */
static struct cluster_conn *draw_stranger(struct vb_cluster *c)
{
	struct crowd crowds[CL_PENDING_MAX], *most;
	struct cluster_conn *drawn = NULL;
	unsigned n = 0, ties = 0;

	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		if (is_stranger(k))
			crowd_of(crowds, &n, k)->n++;
	}
	most = &crowds[auth_draw_below(n)]; /* of equal ones any */
	for (unsigned i = 0; i < n; i++)
		if (goes_before(&crowds[i], most))
			most = &crowds[i];
	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		if (is_stranger(k) && crowd_of(crowds, &n, k) == most &&
		    auth_draw_below(++ties) == 0)
			drawn = k;
	}
	return drawn;
}

void root_make_room(struct vb_cluster *c)
{
	struct cluster_conn *k;
	unsigned n = 0;

	vb_list_for_each (it, &c->conns) {
		n += is_stranger(vb_container_of(it, struct cluster_conn, link));
	}
	if (n < CL_PENDING_MAX)
		return;
	k = draw_stranger(c);
	if (k->why == NULL)
		k->why = "made room for others who knock";
	root_lost(c, k);
}

/* Whoever cannot be asked is taken for a stranger's. */
static bool is_beyond(int fd)
{
	struct cluster_addr here = {.len = sizeof(here.sa)};

	return getsockname(fd, (struct sockaddr *)&here.sa, &here.len) != 0 ||
	       !address_is_loopback(&here);
}

void root_accept(struct vb_cluster *c)
{
	for (unsigned i = 0; i < ACCEPT_ROUND; i++) {
		struct cluster_addr from = {.len = sizeof(from.sa)};
		struct cluster_conn *k;
		char text[64];
		int fd = accept4(c->listen_fd, (struct sockaddr *)&from.sa, &from.len,
				 SOCK_CLOEXEC | SOCK_NONBLOCK);

		if (fd < 0) {
			if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
			    errno == ENOBUFS) {
				vb_warn("cannot accept a connection now: %s", strerror(errno));
				c->accept_after_ns = cluster_now() + NO_FDS_NS;
			}
			return;
		}
		root_make_room(c);
		address_say(&from, text, sizeof(text));
		k = conn_new(c, fd, text);
		if (k == NULL) {
			close(fd);
			return;
		}
		k->phase = CONN_HELLO;
		k->beyond = is_beyond(fd);
		k->deadline_ns = cluster_now() + CL_HANDSHAKE_NS;
		address_tune(fd, c->silence_ns);
	}
}

void root_begin(struct vb_cluster *c)
{
	c->is_root = true;
	c->rank = 0;
	c->clock_held = vb_clock_hold(NULL) == 0;
	auth_draw(c->secret, sizeof(c->secret));
	cluster_set_peer(c, 0, &c->me);
	if (c->hosts == 1)
		start(c);
}

void root_gives_up(struct vb_cluster *c)
{
	char text[CL_TEXT + 1], span[16];
	uint32_t there = count_joined(c) + 1;
	int n, err = c->difference[0] != '\0' ? -EPROTO : -ETIMEDOUT;

	assign(c);
	n = snprintf(text, sizeof(text), "only %u of %u processes came within %s; missing:", there,
		     c->hosts, vb_format_ns(span, sizeof(span), (double)c->timeout_ns));
	for (uint32_t r = 1; r < c->hosts && n < (int)sizeof(text) - 160; r++)
		if (c->peers[r].conn == NULL)
			n += snprintf(text + n, sizeof(text) - (size_t)n, " rank %u", r);
	if (c->difference[0] != '\0')
		snprintf(text + n, sizeof(text) - (size_t)n, "; refused: %s", c->difference);
	vb_list_for_each (it, &c->conns) {
		struct cluster_conn *k = vb_container_of(it, struct cluster_conn, link);

		if (k->phase == CONN_JOINED)
			conn_refuse(k, err, text);
	}
	cluster_open_ends(c, err, "%s", text);
}
