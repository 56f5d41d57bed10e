/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Regions that come and go.  A host knows which processes hold a region of its first node, and under which number each
 * of them asked to; the others ask it, as for a region (region.c).  Its further nodes go with that one: a space that has
 * locks there has some on the first.
 *
 *	HOLD {number, bytes, name}   ->  found or made; held by (asker, number)
 *	LET_GO {held number}         ->  not any more
 *	USED {name}                  ->  does anybody hold it?
 *	TAKE {name, peer, dead peer} ->  the peer removes it, if nobody holds it
 *	REMOVE {node, id}            ->  of who has the node: zeros, and free; unless somebody holds it
 *	ANSWER {number, error, offset}   <-
 *
 * Each is one step under the engine, and the same again when it is asked again.  A process that ends holds nothing:
 * an elastic server hears of that when it gives the process's place away, and drops what it held; in a cluster that
 * begins together its end is looked at when somebody takes a region.  If an answer is lost for good, the number is
 * let go; where that is lost, too, the region stays in use until the asker ends.
 */
#define VB_LOG_ROOM "net"
#include <inttypes.h>
#include <sys/mman.h>

#include "base/log.h"
#include "fabric/net/core.h"
#include "fabric/net/state.h"

#define LET_GO_NS  1000000000ull /* a closing process waits no longer */
#define HOLDS_ROOM 16u

/* ---- the owner's side; engine held ---- */

/* 0: there is, and *again: it is held under that number; -EMFILE. */
static int hold_room(const struct net_core *c, uint32_t host, uint32_t number, bool *again)
{
	unsigned n = 0;

	*again = false;
	for (unsigned i = 0; i < c->n_holds; i++) {
		n += c->hold[i].host == host;
		*again |= c->hold[i].host == host && c->hold[i].number == number;
	}
	return *again || (n < NET_HOLDS_EACH && c->n_holds < NET_HOLDS_MAX) ? 0 : -EMFILE;
}

static int hold(struct net_fabric *f, uint64_t id, uint32_t host, uint32_t number)
{
	struct net_core *c = f->core;
	struct net_hold *more;

	if (c->n_holds == c->holds_room) {
		more = realloc(c->hold, (2 * c->holds_room + HOLDS_ROOM) * sizeof(*more));
		if (more == NULL)
			return -ENOMEM;
		c->hold = more;
		c->holds_room = 2 * c->holds_room + HOLDS_ROOM;
	}
	c->hold[c->n_holds++] = (struct net_hold){.id = id, .host = host, .number = number};
	net_state_holds(f);
	return 0;
}

static void asked_to_hold(struct net_fabric *f, uint32_t from, const struct control_ask *q,
			  struct control_answer *a)
{
	struct net_region_entry *r;
	bool fresh = false, again;
	int err = hold_room(f->core, from, q->number, &again), told;

	/* Before it is made. */
	if (err == 0)
		err = net_region_get(f, q, from, &r, &fresh);
	a->err = err;
	if (err != 0 && err != -EINVAL)
		return;
	if (r->by != VB_PEER_NONE) {
		a->err = -EALREADY;
		a->offset = r->by;
		return;
	}
	told = again ? 0 : hold(f, r->id, from, q->number);
	a->err = told != 0 ? told : err;
	a->offset = r->offset;
	a->fresh = fresh;
}

/* The last one comes to its place, and is nobody's until all of it has. */
static void drop(struct net_fabric *f, struct net_hold *h)
{
	const struct net_hold *last = &f->core->hold[--f->core->n_holds];

	__atomic_store_n(&h->host, NET_NOBODY, __ATOMIC_RELEASE);
	h->id = last->id;
	h->number = last->number;
	__atomic_store_n(&h->host, last->host, __ATOMIC_RELEASE);
	net_state_holds(f);
}

static void let_go(struct net_fabric *f, uint32_t from, uint64_t number)
{
	struct net_core *c = f->core;

	for (unsigned i = 0; i < c->n_holds; i++)
		if (c->hold[i].host == from && c->hold[i].number == number)
			drop(f, &c->hold[i--]);
}

void net_hold_disown(struct net_fabric *f, uint32_t host)
{
	struct net_core *c = f->core;

	for (unsigned i = 0; i < c->n_holds; i++)
		if (c->hold[i].host == host)
			drop(f, &c->hold[i--]);
	for (uint32_t n = 0; n < f->local_nodes; n++) {
		struct net_node *d = &c->node[n];

		for (unsigned i = 0; i < d->used; i++)
			if (d->region[i].maker == host)
				d->region[i].maker = NET_NOBODY;
	}
}

void net_hold_drop_strange(struct net_fabric *f)
{
	struct net_core *c = f->core;

	for (unsigned i = 0; i < c->n_holds; i++)
		if (c->hold[i].host >= net_hosts_max(f))
			drop(f, &c->hold[i--]);
}

/* -EBUSY and a process that holds it, or 0. */
static int check_free(struct net_fabric *f, const struct net_region_entry *r, uint64_t *who)
{
	const struct net_core *c = f->core;

	for (unsigned i = 0; i < c->n_holds; i++) {
		uint32_t host = c->hold[i].host;

		if (c->hold[i].id != r->id ||
		    (host < f->hosts && host != f->host &&
		     __atomic_load_n(&c->host[host].gone, __ATOMIC_ACQUIRE)))
			continue;
		*who = host;
		return -EBUSY;
	}
	return 0;
}

/* NULL: there is none. */
static struct net_region_entry *find(struct net_fabric *f, const char *name)
{
	struct net_node *d = &f->core->node[0];

	for (unsigned i = 0; i < d->used; i++)
		if (strcmp(d->region[i].name, name) == 0)
			return &d->region[i];
	return NULL;
}

static void asked_whether_used(struct net_fabric *f, const struct control_ask *q,
			       struct control_answer *a)
{
	const struct net_region_entry *r = find(f, q->name);

	if (r != NULL)
		a->err = check_free(f, r, &a->offset);
}

static void asked_to_take(struct net_fabric *f, const struct control_ask *q, uint64_t was,
			  struct control_answer *a)
{
	struct net_region_entry *r = find(f, q->name);

	if (r == NULL) {
		a->err = -ENOENT;
	} else if (r->by == VB_PEER_NONE) {
		a->err = check_free(f, r, &a->offset);
	} else if (r->by != q->bytes && r->by != was) {
		a->err = -EALREADY;
		a->offset = r->by;
	}
	if (a->err == 0)
		r->by = q->bytes;
}

/* Ids are a node's own, and what is held is of the first one.  What is taken is held by nobody. */
static void remove_it(struct net_fabric *f, uint32_t local, uint64_t id, struct control_answer *a)
{
	struct net_node *d = &f->core->node[local];

	for (unsigned i = 0; i < d->used; i++) {
		struct net_region_entry *r = &d->region[i];

		if (r->id != id)
			continue;
		if (local == 0 && r->by == VB_PEER_NONE)
			a->err = check_free(f, r, &a->offset);
		if (a->err != 0)
			return;
		/* What a card has registered keeps its pages, and what a file has of them would come back. */
		vb_zero_pages(f->memory + local * f->f.node_bytes + r->offset, r->bytes,
			      f->pinned || net_state_is(f) ? 0 : MADV_DONTNEED);
		net_region_take_out(d, r);
		return;
	}
}

static void answer(struct net_fabric *f, uint32_t from, const struct control_ask *q, uint64_t was,
		   struct control_answer *a)
{
	bool named = q->kind == CONTROL_HOLD || q->kind == CONTROL_TAKE || q->kind == CONTROL_USED;

	*a = (struct control_answer){
		.kind = CONTROL_ANSWER, .version = CONTROL_VERSION, .number = q->number};
	if (q->node >= f->f.nodes || net_host_of_node(f, q->node) != f->host || q->bytes == 0 ||
	    (q->kind != CONTROL_REMOVE && q->node != f->host) ||
	    (q->kind == CONTROL_TAKE && q->node != 0) ||
	    (named && (q->name[0] == '\0' || memchr(q->name, '\0', sizeof(q->name)) == NULL)))
		a->err = -EPROTO;
	else if (q->kind == CONTROL_HOLD)
		asked_to_hold(f, from, q, a);
	else if (q->kind == CONTROL_LET_GO)
		let_go(f, from, q->bytes);
	else if (q->kind == CONTROL_TAKE)
		asked_to_take(f, q, was, a);
	else if (q->kind == CONTROL_USED)
		asked_whether_used(f, q, a);
	else
		remove_it(f, q->node / f->hosts, q->bytes, a);
}

bool net_hold_control(struct net_fabric *f, uint32_t from, const void *data, size_t bytes)
{
	const uint8_t kind = *(const uint8_t *)data;
	struct control_take t = {.was = VB_PEER_NONE};
	struct control_answer a;

	if (bytes != (kind == CONTROL_TAKE ? sizeof(t) : sizeof(t.ask)) ||
	    (kind != CONTROL_HOLD && kind != CONTROL_LET_GO && kind != CONTROL_TAKE &&
	     kind != CONTROL_REMOVE && kind != CONTROL_USED))
		return false;
	memcpy(&t, data, bytes);
	answer(f, from, &t.ask, t.was, &a);
	/* For want of room: it will ask again. */
	(void)f->t->control(f, from, &a, sizeof(a));
	return true;
}

/* ---- the asker's side ---- */

/* 0, and what the owner says stands in *ask; or what came between. */
static int ask_owner(struct net_fabric *f, struct control_ask *q, struct net_ask *ask)
{
	struct control_answer a;

	q->version = CONTROL_VERSION;
	ask->host = net_host_of_node(f, q->node);
	if (ask->host != f->host)
		return net_ask(f, q, ask);
	pthread_mutex_lock(&f->engine);
	q->number = ask->number = ++f->core->next_ask;
	answer(f, f->host, q, ask->was, &a);
	pthread_mutex_unlock(&f->engine);
	ask->err = a.err;
	ask->offset = a.offset;
	ask->fresh = a.fresh;
	return 0;
}

/* Of those of its host: the one whose regions are held. */
static bool is_first(const struct net_fabric *f, uint16_t node)
{
	return node < f->hosts;
}

void net_region_let_go(struct vb_fabric *fabric, const struct vb_region_held *held)
{
	struct net_fabric *f = net_of(fabric);
	struct control_ask q = {
		.kind = CONTROL_LET_GO, .node = vb_addr_node(held->at), .bytes = held->id};
	struct net_ask ask = {.patience_ns = LET_GO_NS, .unreached_ns = 1};

	if (is_first(f, q.node))
		(void)ask_owner(f, &q, &ask);
}

int net_region_hold(struct vb_fabric *fabric, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by)
{
	struct net_fabric *f = net_of(fabric);
	struct control_ask q = {.kind = CONTROL_HOLD, .node = node, .bytes = bytes};
	struct net_ask ask = {.was = 0};
	int err = net_region_check(name, bytes);

	if (err != 0)
		return err;
	if (!is_first(f, node))
		return net_region(fabric, node, name, bytes, &out->at, &out->fresh);
	memcpy(q.name, name, strlen(name));
	err = ask_owner(f, &q, &ask);
	*out = (struct vb_region_held){.at = vb_addr_make(node, 0), .id = ask.number};
	if (err != 0) {
		net_region_let_go(fabric, out);
		return net_region_say(f, err, node, name, bytes);
	}
	err = ask.err == -EINVAL ? -EEXIST : ask.err;
	if (err == -EALREADY)
		*by = ask.offset;
	if (err == -EALREADY)
		return err;
	if ((err == 0 || err == -EEXIST) && (ask.offset > fabric->node_bytes ||
					     (err == 0 && bytes > fabric->node_bytes - ask.offset)))
		err = -EPROTO;
	if (err != 0 && err != -EEXIST)
		return net_region_say(f, err, node, name, bytes);
	out->at = vb_addr_make(node, ask.offset);
	out->fresh = ask.fresh;
	return err;
}

static int in_use(const char *name, uint64_t host)
{
	return vb_fail(-EBUSY, "'%s' is in use: process %" PRIu64 " of the cluster has it open",
		       name, host);
}

int net_region_used(struct vb_fabric *fabric, uint16_t node, const char *name)
{
	struct net_fabric *f = net_of(fabric);
	struct control_ask q = {.kind = CONTROL_USED, .node = node, .bytes = 1};
	struct net_ask ask = {.was = 0};
	int err = net_region_check(name, 1);

	if (err != 0 || !is_first(f, node))
		return err;
	memcpy(q.name, name, strlen(name));
	err = ask_owner(f, &q, &ask);
	if (err == 0)
		err = ask.err;
	/* Its memory has gone with its process. */
	if (err == 0 || (err == -VB_EPEERGONE && net_memory_gone(f, ask.host)))
		return 0;
	return err == -EBUSY ? in_use(name, ask.offset) : net_region_say(f, err, node, name, 0);
}

int net_region_take(struct vb_fabric *fabric, const char *name, vb_peer me, vb_peer *by)
{
	struct net_fabric *f = net_of(fabric);
	struct control_ask q = {.kind = CONTROL_TAKE, .bytes = me};
	struct net_ask ask = {.was = *by};
	int err = net_region_check(name, me);

	if (err != 0)
		return err;
	memcpy(q.name, name, strlen(name));
	err = ask_owner(f, &q, &ask);
	if (err == 0)
		err = ask.err;
	if (err == -EALREADY)
		*by = ask.offset;
	if (err == 0 || err == -EALREADY || err == -ENOENT)
		return err;
	return err == -EBUSY ? in_use(name, ask.offset) : net_region_say(f, err, 0, name, 0);
}

int net_region_remove(struct vb_fabric *fabric, uint16_t node, uint64_t id)
{
	struct net_fabric *f = net_of(fabric);
	struct control_ask q = {.kind = CONTROL_REMOVE, .node = node, .bytes = id};
	struct net_ask ask = {.was = 0};
	int err = ask_owner(f, &q, &ask);

	if (err == 0)
		err = ask.err;
	if (err == 0 || err == -EBUSY)
		return err;
	return net_region_say(f, err, node, "(one that is being removed)", 0);
}
