/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Named regions.  The host of a node decides where a region lies; the others ask it.
 *
 *	asker                                   owner
 *	  ASK {number, node, bytes, name}  ->     found, or made at the end of what is taken
 *	  ANSWER {number, error, offset}   <-
 *
 *	LIST {number, node, id}          ->     looked up
 *	NAMED {number, error, the first region with a greater id, how many such there are}   <-
 *
 * All ride on the transport's control messages.  An owner answers when it looks at its engine:
 * while its thread awaits something, or by the transport's helper.
 *
 * Who made a region is kept with it, so that its maker hears "fresh" however often he has to ask (ask.c).
 */
#define VB_LOG_ROOM "net"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/net/core.h"

_Static_assert(sizeof(struct control_answer) <= NET_CONTROL_MAX, "an answer fits");

struct control_named {
	uint8_t kind, version, pad[2];
	uint32_t number;
	int32_t err;
	uint32_t count;
	uint64_t bytes, id;
	char name[NET_REGION_NAME];
};
_Static_assert(sizeof(struct control_named) <= NET_CONTROL_MAX, "a name fits");
_Static_assert(sizeof(((struct vb_region_info *)0)->name) >= NET_REGION_NAME, "here, too");
_Static_assert(sizeof(struct control_named) != sizeof(struct control_ask),
	       "what comes is told apart by its size, too");

int net_region_get(struct net_fabric *f, const struct control_ask *q, uint32_t from,
		   struct net_region_entry **out, bool *fresh)
{
	struct net_node *d = &f->core->node[q->node / f->hosts];
	struct vb_span spans[NET_REGIONS];
	struct net_region_entry *r;
	uint64_t at;

	for (unsigned i = 0; i < d->used; i++) {
		r = &d->region[i];
		if (strcmp(r->name, q->name) == 0) {
			*out = r;
			*fresh = r->maker == from && r->number == q->number;
			return r->bytes == q->bytes ? 0 : -EINVAL;
		}
		spans[i] = (struct vb_span){.at = r->offset, .bytes = r->bytes};
	}
	at = vb_span_fit(spans, d->used, NET_REGION_START, q->bytes);
	if (d->used == NET_REGIONS || at > f->f.node_bytes || q->bytes > f->f.node_bytes - at)
		return -ENOSPC;
	r = &d->region[d->used];
	*r = (struct net_region_entry){.maker = from,
				       .number = q->number,
				       .bytes = q->bytes,
				       .offset = at,
				       .id = ++d->made};
	snprintf(r->name, sizeof(r->name), "%s", q->name);
	/* Whole, should this process end here and a next one find it (state.h). */
	__atomic_store_n(&d->used, d->used + 1, __ATOMIC_RELEASE);
	*out = r;
	*fresh = true;
	return 0;
}

/*
 * The last one takes its place.  Each store is one that a next process may find the last of this one (state.h): then
 * the place has no name, or the last one stands twice.
 */
void net_region_take_out(struct net_node *d, struct net_region_entry *r)
{
	const struct net_region_entry *last = &d->region[d->used - 1];

	if (r != last) {
		__atomic_store_n(&r->name[0], '\0', __ATOMIC_RELEASE);
		memcpy(r->name + 1, last->name + 1, sizeof(r->name) - 1);
		r->bytes = last->bytes;
		r->offset = last->offset;
		r->id = last->id;
		r->by = last->by;
		r->maker = last->maker;
		r->number = last->number;
		__atomic_store_n(&r->name[0], last->name[0], __ATOMIC_RELEASE);
	}
	__atomic_store_n(&d->used, d->used - 1, __ATOMIC_RELEASE);
}

void net_region_mend(struct net_node *d)
{
	for (unsigned i = 0; i < d->used; i++) {
		struct net_region_entry *r = &d->region[i];

		if (r->name[0] == '\0' || (i + 1 < d->used && r->id == d->region[d->used - 1].id)) {
			net_region_take_out(d, r);
			i--; /* who has come in its place */
		}
	}
}

/* ---- the owner's side ---- */

static void asked(struct net_fabric *f, uint32_t from, const struct control_ask *q)
{
	struct control_answer a = {
		.kind = CONTROL_ANSWER, .version = CONTROL_VERSION, .number = q->number};
	struct net_region_entry *r = NULL;
	bool fresh = false;

	if (q->node >= f->f.nodes || net_host_of_node(f, q->node) != f->host || q->bytes == 0 ||
	    q->name[0] == '\0' || memchr(q->name, '\0', sizeof(q->name)) == NULL)
		a.err = -EPROTO;
	else
		a.err = net_region_get(f, q, from, &r, &fresh);
	if (r != NULL)
		a.offset = r->offset;
	a.fresh = fresh;
	/* For want of room: it will ask again. */
	(void)f->t->control(f, from, &a, sizeof(a));
}

static void listed(struct net_fabric *f, uint32_t from, const struct control_ask *q)
{
	struct control_named a = {
		.kind = CONTROL_NAMED, .version = CONTROL_VERSION, .number = q->number};

	if (q->node >= f->f.nodes || net_host_of_node(f, q->node) != f->host) {
		a.err = -EPROTO;
	} else {
		const struct net_node *d = &f->core->node[q->node / f->hosts];

		const struct net_region_entry *next = NULL;

		for (unsigned i = 0; i < d->used; i++) {
			const struct net_region_entry *r = &d->region[i];

			if (r->id <= q->bytes)
				continue;
			a.count++;
			if (next == NULL || r->id < next->id)
				next = r;
		}
		if (next != NULL) {
			a.bytes = next->bytes;
			a.id = next->id;
			memcpy(a.name, next->name, sizeof(a.name));
		}
	}
	(void)f->t->control(f, from, &a, sizeof(a));
}

static struct net_ask *ask_of(struct net_fabric *f, uint32_t from, uint32_t number, bool named)
{
	vb_list_for_each (it, &f->core->asks) {
		struct net_ask *ask = vb_container_of(it, struct net_ask, link);

		if (ask->number == number && ask->host == from && (ask->named != NULL) == named)
			return ask;
	}
	return NULL;
}

static void ask_ends(struct net_fabric *f, struct net_ask *ask, int32_t err)
{
	ask->err = err <= 0 ? err : -EPROTO;
	ask->answered = true;
	vb_list_remove(&ask->link);
	net_done(f, ask->thread, &ask->batch, 1);
}

static void answered(struct net_fabric *f, uint32_t from, const struct control_answer *a)
{
	struct net_ask *ask = ask_of(f, from, a->number, false);

	if (ask == NULL)
		return;
	ask->offset = a->offset;
	ask->fresh = a->fresh;
	ask_ends(f, ask, a->err);
}

static void named(struct net_fabric *f, uint32_t from, const struct control_named *a)
{
	struct net_ask *ask = ask_of(f, from, a->number, true);
	bool sane = a->count <= NET_REGIONS && memchr(a->name, '\0', sizeof(a->name)) != NULL;

	if (ask == NULL)
		return;
	if (sane) {
		ask->count = a->count;
		ask->named->bytes = a->bytes;
		ask->named->id = a->id;
		memcpy(ask->named->name, a->name, sizeof(a->name));
	}
	ask_ends(f, ask, a->err != 0 || sane ? a->err : -EPROTO);
}

bool net_region_control(struct net_fabric *f, uint32_t from_host, const void *data, size_t bytes)
{
	const uint8_t *head = data;
	struct control_answer a;
	struct control_named n;
	struct control_ask q;

	if (bytes == sizeof(q) && head[0] == CONTROL_ASK) {
		memcpy(&q, data, sizeof(q));
		asked(f, from_host, &q);
	} else if (bytes == sizeof(q) && head[0] == CONTROL_LIST) {
		memcpy(&q, data, sizeof(q));
		listed(f, from_host, &q);
	} else if (bytes == sizeof(n) && head[0] == CONTROL_NAMED) {
		memcpy(&n, data, sizeof(n));
		named(f, from_host, &n);
	} else if (bytes == sizeof(a) && head[0] == CONTROL_ANSWER) {
		memcpy(&a, data, sizeof(a));
		answered(f, from_host, &a);
	} else {
		return false;
	}
	return true;
}

/* ---- the asker's side ---- */

int net_region_say(struct net_fabric *f, int err, uint16_t node, const char *name, uint64_t bytes)
{
	uint32_t host = net_host_of_node(f, node);

	switch (err) {
	case -ENOSPC:
		return vb_fail(err,
			       "region '%s' of %" PRIu64
			       " bytes does not fit on node %u (of %" PRIu64
			       " bytes and %d regions); open the fabric with larger nodes",
			       name, bytes, node, f->f.node_bytes, NET_REGIONS);
	case -EMFILE:
		return vb_fail(
			-ENOSPC,
			"'%s': process %u, where node %u lives, knows of %u lock spaces that "
			"a process has open, each as often as it was opened, and of %u in "
			"all: close some",
			name, host, node, NET_HOLDS_EACH, NET_HOLDS_MAX);
	case -ETIMEDOUT:
		return vb_fail(err,
			       "process %u, where node %u lives, has not answered within %" PRIu64
			       " s: it is stopped, or its thread awaits nothing",
			       host, node, f->core->answer_ns / 1000000000);
	case -VB_EPEERGONE:
		return vb_fail(err,
			       "region '%s' of node %u: process %u, where it lives, is gone or "
			       "cannot be reached",
			       name, node, host);
	case -EAGAIN:
		return vb_fail(err,
			       "process %u, where node %u lives, has taken no control message for "
			       "%" PRIu64
			       " s: it is stopped or does not look at the network, or the way to "
			       "it is broken",
			       host, node, f->core->answer_ns / 1000000000);
	default:
		return vb_fail(err, "region '%s' of node %u, asked of process %u: %s", name, node,
			       host, vb_strerror(err));
	}
}

int net_region_check(const char *name, uint64_t bytes)
{
	if (*name != '\0' && strlen(name) < NET_REGION_NAME && bytes != 0)
		return 0;
	return vb_fail(-EINVAL,
		       "region '%.60s' of %" PRIu64
		       " bytes: a name of 1 to %d characters and a size are needed",
		       name, bytes, NET_REGION_NAME - 1);
}

int net_region(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
	       vb_addr *out, bool *fresh)
{
	struct net_fabric *f = net_of(fabric);
	struct control_ask q = {
		.kind = CONTROL_ASK, .version = CONTROL_VERSION, .node = node, .bytes = bytes};
	struct net_ask ask = {.host = net_host_of_node(f, node)};
	struct net_region_entry *r = NULL;
	int err = net_region_check(name, bytes);

	if (err != 0)
		return err;
	memcpy(q.name, name, strlen(name));
	if (ask.host == f->host) {
		pthread_mutex_lock(&f->engine);
		q.number = ++f->core->next_ask;
		err = net_region_get(f, &q, f->host, &r, &ask.fresh);
		ask.offset = r != NULL ? r->offset : 0;
		pthread_mutex_unlock(&f->engine);
	} else {
		err = net_thread_get(f, &ask.thread);
		if (err != 0)
			return err;
		err = net_ask_on_thread(f, &q, &ask);
		net_thread_put(ask.thread);
		if (err == 0)
			err = ask.err;
	}
	if (err == -EINVAL)
		err = -EEXIST; /* all that an owner finds wrong with a question of ours */
	if ((err == 0 || err == -EEXIST) && (ask.offset > fabric->node_bytes ||
					     (err == 0 && bytes > fabric->node_bytes - ask.offset)))
		err = -EPROTO;
	if (err != 0 && err != -EEXIST)
		return net_region_say(f, err, node, name, bytes);
	*out = vb_addr_make(node, ask.offset);
	*fresh = ask.fresh;
	return err;
}

/* ---- all of a node ---- */

static int regions_here(struct net_fabric *f, uint16_t node, struct vb_region_info *out,
			unsigned room)
{
	const struct net_node *d = &f->core->node[node / f->hosts];
	unsigned used;

	pthread_mutex_lock(&f->engine);
	used = d->used;
	for (unsigned i = 0; i < used && i < room; i++) {
		memcpy(out[i].name, d->region[i].name, sizeof(d->region[i].name));
		out[i].bytes = d->region[i].bytes;
		out[i].id = d->region[i].id;
	}
	pthread_mutex_unlock(&f->engine);
	return (int)used;
}

/* One by one, in the order in which they were made, so that none is left out that is there all the time, whatever
 * others are made and removed meanwhile; without room for any, how many there are. */
static int regions_there(struct net_fabric *f, uint16_t node, struct vb_region_info *out,
			 unsigned room)
{
	struct control_ask q = {.kind = CONTROL_LIST, .version = CONTROL_VERSION, .node = node};
	struct vb_region_info one = {0};
	struct net_ask ask = {.host = net_host_of_node(f, node), .named = &one};
	int err = net_thread_get(f, &ask.thread);
	unsigned n = 0;

	if (err != 0)
		return err;
	do {
		ask.answered = false;
		err = net_ask_on_thread(f, &q, &ask);
		if (err == 0)
			err = ask.err;
		if (err == 0 && ask.count > 0 && one.id <= q.bytes)
			err = -EPROTO;
		if (err != 0 || ask.count == 0 || n == room)
			break;
		q.bytes = one.id;
		out[n++] = one;
	} while (ask.count > 1 && n < room);
	net_thread_put(ask.thread);
	if (err != 0)
		return net_region_say(f, err, node, "(all)", 0);
	/* `count` is with the one that came last, if that is in out[]. */
	return (int)(n + ask.count - (n > 0 && ask.count > 0));
}

int net_regions(struct vb_fabric *fabric, uint16_t node, struct vb_region_info *out, unsigned room)
{
	struct net_fabric *f = net_of(fabric);

	return net_host_of_node(f, node) == f->host ? regions_here(f, node, out, room)
						    : regions_there(f, node, out, room);
}
