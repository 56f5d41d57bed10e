/* SPDX-License-Identifier: Apache-2.0 */
/* The boxes of clients' endpoints, at the server that is their home.  See elastic.h. */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/state.h"

#define ROOM_FIRST 8u

_Static_assert((NET_RING & (NET_RING - 1)) == 0, "a box grows to it by doubling");

struct net_box *net_box_find(const struct net_fabric *f, uint32_t client)
{
	struct net_box *b = f->elastic->box[client % NET_CLIENTS_MAX];

	return b != NULL && b->client == client ? b : NULL;
}

static struct net_member *owner_of(const struct net_fabric *f, const struct net_box *b)
{
	return &f->elastic->member[b->place - f->hosts];
}

static void letters_free(struct net_fabric *f, struct net_box *b)
{
	if (b->ring == 0)
		free(b->letter);
	else if (f->elastic->state != NULL)
		net_state_ring_give(f, b);
	b->letter = NULL;
	b->room = 0;
}

static void box_free(struct net_fabric *f, struct net_box *b)
{
	owner_of(f, b)->n_boxes--;
	f->elastic->boxes--;
	f->elastic->box[b->client % NET_CLIENTS_MAX] = NULL;
	vb_list_remove(&b->link);
	net_state_box_gone(f, b);
	letters_free(f, b);
	free(b);
}

void net_box_free_all(struct net_fabric *f, struct net_member *m)
{
	vb_list_for_each (it, &m->boxes)
		box_free(f, vb_container_of(it, struct net_box, link));
}

/* 0, -ENOSPC, -ENOMEM; the number is free.  For a state it is there when the caller says so. */
static int box_new(struct net_fabric *f, uint32_t place, uint16_t node, uint32_t client,
		   struct net_box **out)
{
	struct net_member *m = &f->elastic->member[place - f->hosts];
	struct net_box *b;

	if (m->n_boxes == NET_BOXES_EACH)
		return -ENOSPC;
	b = calloc(1, sizeof(*b));
	if (b == NULL)
		return -ENOMEM;
	b->place = place;
	b->client = client;
	b->node = node;
	b->turn = m->turn;
	vb_list_init(&b->link);
	vb_list_push(&m->boxes, &b->link);
	m->n_boxes++;
	f->elastic->boxes++;
	f->elastic->box[client % NET_CLIENTS_MAX] = b;
	*out = b;
	return 0;
}

/* ---- letters ---- */

static void send_letters(struct net_fabric *f, struct net_box *b)
{
	struct control_letter l = {.kind = CONTROL_LETTER,
				   .version = CONTROL_VERSION,
				   .node = b->node,
				   .client = b->client};

	while (owner_of(f, b)->live && b->sent != b->end) {
		l.number = b->sent;
		l.msg = b->letter[b->sent & (b->room - 1)];
		/* For want of a connection: they are sent again over the next one. */
		if (f->t->control(f, b->place, &l, sizeof(l)) != 0)
			return;
		b->sent++;
	}
}

/* Twice the room; a power of two, so that numbers may wrap.  In a state it is all that there may ever be. */
static bool grow(struct net_fabric *f, struct net_box *b)
{
	uint32_t room = b->room != 0 ? 2 * b->room : ROOM_FIRST;
	struct vb_msg *more;

	if (f->elastic->state != NULL)
		return net_state_ring_take(f, b);
	more = malloc(room * sizeof(*more));
	if (more == NULL)
		return false;
	for (uint32_t i = b->begin; i != b->end; i++)
		more[i & (room - 1)] = b->letter[i & (b->room - 1)];
	free(b->letter);
	b->letter = more;
	b->room = room;
	return true;
}

int net_box_put(struct net_fabric *f, uint32_t client, const struct vb_msg *m)
{
	struct net_box *b = net_box_find(f, client);

	if (b == NULL)
		return -VB_EPEERGONE;
	if (b->end - b->taken >= NET_RING)
		return -EAGAIN;
	if (b->end - b->begin == b->room && !grow(f, b))
		return vb_fail(-EAGAIN, "no room for a message to a client");
	b->letter[b->end & (b->room - 1)] = *m;
	b->end++;
	net_state_box(f, b);
	send_letters(f, b);
	return 0;
}

/* Some came, of those some were taken; what a client says is compared with what it can have seen. */
static void taken(struct net_fabric *f, struct net_box *b, const struct control_count *c)
{
	if (c->came - b->begin > b->sent - b->begin || c->taken - b->taken > c->came - b->taken)
		return;
	b->begin = c->came;
	b->taken = c->taken;
	if (b->begin == b->end && b->room > ROOM_FIRST)
		letters_free(f, b);
	net_state_box(f, b);
}

/* ---- what clients say ---- */

/* NULL: that question was not put, or has given no number. */
static struct net_box *asked_by(const struct net_member *m, uint32_t question)
{
	vb_list_for_each (it, &m->boxes) {
		struct net_box *b = vb_container_of(it, struct net_box, link);

		if (b->asked == question)
			return b;
	}
	return NULL;
}

/* After a reconnection. */
static void has(struct net_fabric *f, uint32_t from, const struct control_count *c)
{
	struct net_box *b = net_box_find(f, c->client);

	/* Its connection broke between its number's drawing and its opening: then it was not counted. */
	if (b == NULL && c->came == 0 && c->node < f->f.nodes &&
	    net_host_of_node(f, c->node) == f->host && c->client != 0 &&
	    c->client >> VB_PEER_CLIENT_BITS == 0 &&
	    f->elastic->box[c->client % NET_CLIENTS_MAX] == NULL &&
	    f->core->clients[c->client % NET_CLIENTS_MAX] == NULL)
		(void)box_new(f, from, c->node, c->client, &b);
	if (b == NULL || b->place != from)
		return;
	b->turn = owner_of(f, b)->turn;
	taken(f, b, c);
	b->sent = b->begin;
	net_state_box(f, b);
}

void net_box_told(struct net_fabric *f, uint32_t from, const struct control_count *c)
{
	struct net_member *m = &f->elastic->member[from - f->hosts];
	struct net_box *b;

	if (c->kind == CONTROL_HAVE) {
		has(f, from, c);
		return;
	}
	if (c->kind == CONTROL_HAVE_ALL) {
		vb_list_for_each (it, &m->boxes) {
			b = vb_container_of(it, struct net_box, link);
			if (b->turn != m->turn)
				box_free(f, b);
			else
				send_letters(f, b);
		}
		return;
	}
	b = c->kind == CONTROL_UNASK ? asked_by(m, c->client) : net_box_find(f, c->client);
	if (b == NULL || b->place != from)
		return;
	if (c->kind != CONTROL_TAKEN)
		box_free(f, b);
	else
		taken(f, b, c);
}

/* The same number to who has asked before: the answer may have been lost. */
static int draw(struct net_fabric *f, uint32_t from, uint32_t question, uint64_t *out)
{
	struct net_member *m = &f->elastic->member[from - f->hosts];
	struct net_box *b = asked_by(m, question);
	uint32_t client;
	int err;

	if (b != NULL) {
		b->turn = m->turn;
		*out = b->client;
		return 0;
	}
	client = net_draw_number(f);
	if (client == 0)
		return -ENOSPC;
	err = box_new(f, from, 0, client, &b);
	if (err != 0)
		return err;
	b->asked = question;
	*out = client;
	return 0;
}

void net_box_asked(struct net_fabric *f, uint32_t from, const struct control_ask *q,
		   struct control_answer *a)
{
	uint32_t client = vb_peer_client(q->bytes);
	struct net_box *b;

	if (q->kind == CONTROL_LIVES) {
		a->fresh = net_ep_find(f, client) != NULL || net_box_find(f, client) != NULL;
		return;
	}
	if (from < f->hosts) {
		a->err = -EPROTO;
		return;
	}
	a->err = draw(f, from, q->number, &a->offset);
	if (a->err != 0)
		return;
	b = net_box_find(f, (uint32_t)a->offset);
	b->node = q->node;
	net_state_box(f, b);
}

/* ---- what a state has ---- */

static bool is_sane(const struct net_fabric *f, const struct net_state_box *was, uint32_t at)
{
	return was->place >= f->hosts && was->place - f->hosts < f->elastic->p.clients &&
	       f->elastic->member[was->place - f->hosts].used && was->client != 0 &&
	       was->client >> VB_PEER_CLIENT_BITS == 0 && was->client % NET_CLIENTS_MAX == at &&
	       was->node < f->f.nodes && was->ring <= NET_STATE_RINGS &&
	       was->end - was->begin <= (was->ring != 0 ? NET_RING : 0);
}

int net_box_resume(struct net_fabric *f)
{
	struct net_state *s = f->elastic->state;

	for (uint32_t i = 0; i < NET_CLIENTS_MAX; i++) {
		const struct net_state_box was = s->box[i];
		struct net_box *b;

		if (!was.used)
			continue;
		/* Its member has gone, and it was about to. */
		if (!is_sane(f, &was, i) || (was.ring != 0 && s->ring_used[was.ring - 1])) {
			s->box[i].used = 0;
			continue;
		}
		if (box_new(f, was.place, (uint16_t)was.node, was.client, &b) != 0)
			return vb_fail(-ENOMEM, "no memory for the clients of a state");
		b->turn = 0;
		b->asked = was.asked;
		b->taken = was.taken;
		b->begin = was.begin;
		b->ring = was.ring;
		/* Any of them may have come. */
		b->sent = b->end = was.end;
		if (b->ring != 0) {
			s->ring_used[b->ring - 1] = true;
			b->letter = s->ring[b->ring - 1];
			b->room = NET_RING;
		}
	}
	return 0;
}
