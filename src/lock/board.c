/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "lock"
#include "lock/board.h"

#include <inttypes.h>
#include <unistd.h>

#include "base/log.h"

#define MAGIC 0x6472616f62627631ull

/* One writer, readers anywhere: each word is whole. */
#define set(p, v) __atomic_store_n(p, v, __ATOMIC_RELEASE)

/* What clients of different machines can compare. */
static uint64_t now_of(struct vb_ep *ep)
{
	uint64_t error_ns;

	return vb_ep_common_now(ep, &error_ns);
}

/* ---- the client's side ---- */

static void write_header(struct vb_board_header *h, const struct vb_lock_space *s)
{
	snprintf(h->protocol, sizeof(h->protocol), "%s", s->ops->name);
	h->locks = s->locks;
	set(&h->magic, MAGIC);
}

/* A slot that is free, or whose client has died without leaving it. */
static struct vb_board_slot *take_slot(struct vb_lock_client *me, struct vb_board_slot *slots)
{
	for (unsigned i = 0; i < VB_BOARD_SLOTS; i++) {
		uint64_t peer = __atomic_load_n(&slots[i].peer, __ATOMIC_ACQUIRE);

		if (peer != 0 && vb_peer_alive(me->ep->fabric, peer))
			continue;
		if (__atomic_compare_exchange_n(&slots[i].peer, &peer, me->ep->self, false,
						__ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
			return &slots[i];
	}
	return NULL;
}

int vb_board_join(struct vb_lock_client *me)
{
	struct vb_lock_space *s = me->space;
	struct vb_board_header *head;
	struct vb_board_slot *slot;
	char name[VB_LOCK_REGION];
	vb_addr at;
	bool fresh;
	int err;

	if (!s->visible)
		return 0;
	vb_lock_part_region(VB_LOCK_BOARD, s->name, 0, name);
	err = vb_region(s->fabric, me->node, name, VB_BOARD_BYTES, &at, &fresh);
	if (err)
		return err;
	head = vb_local(s->fabric, at, VB_BOARD_BYTES);
	if (head == NULL)
		return 0; /* a client away from its node has nowhere to write */
	/* Its maker may have been killed before it wrote the header: we write the same. */
	if (fresh || __atomic_load_n(&head->magic, __ATOMIC_ACQUIRE) != MAGIC)
		write_header(head, s);
	slot = take_slot(me, (struct vb_board_slot *)(head + 1));
	if (slot == NULL) {
		me->unseen = &head->unseen;
		__atomic_fetch_add(me->unseen, 1, __ATOMIC_RELAXED);
		return 0;
	}
	memset((char *)slot + sizeof(slot->peer), 0, sizeof(*slot) - sizeof(slot->peer));
	slot->pid = (uint64_t)getpid();
	slot->index = me->index;
	me->board = slot;
	return 0;
}

void vb_board_leave(struct vb_lock_client *me)
{
	if (me->board != NULL)
		set(&me->board->peer, 0);
	me->board = NULL;
	if (me->unseen != NULL)
		__atomic_fetch_sub(me->unseen, 1, __ATOMIC_RELAXED);
	me->unseen = NULL;
}

/* since_ns is changed first and the lock last: an observer that sees the lock sees since when. */
static void put(struct vb_board_lock *l, uint64_t lock, enum vb_mode mode, uint64_t now)
{
	set(&l->lock1, 0);
	set(&l->mode, (uint64_t)mode);
	set(&l->since_ns, now);
	set(&l->lock1, lock + 1);
}

void vb_board_waits(struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	set(&me->board->index, me->index);
	put(&me->board->wait, lock, mode, now_of(me->ep));
}

static struct vb_board_hot *hot_of(struct vb_board_slot *b, uint64_t lock1)
{
	struct vb_board_hot *least = &b->hot[0];

	for (unsigned i = 0; i < VB_BOARD_HOT; i++) {
		if (b->hot[i].lock1 == lock1)
			return &b->hot[i];
		if (b->hot[i].wait_ns < least->wait_ns)
			least = &b->hot[i];
	}
	set(&least->lock1, 0);
	set(&least->times, 0);
	set(&least->longest_ns, 0);
	set(&least->owed_ns, least->wait_ns);
	set(&least->lock1, lock1);
	return least;
}

static void count_wait(struct vb_board_slot *b, uint64_t lock1, uint64_t waited)
{
	struct vb_board_hot *h = hot_of(b, lock1);

	set(&h->times, h->times + 1);
	set(&h->wait_ns, h->wait_ns + waited);
	if (waited > h->longest_ns)
		set(&h->longest_ns, waited);
	set(&b->acquires, b->acquires + 1);
	set(&b->wait_ns, b->wait_ns + waited);
	if (waited > b->longest_ns)
		set(&b->longest_ns, waited);
}

/* Where the lock is listed as held, or room for one, or NULL. */
static struct vb_board_lock *held_of(struct vb_board_slot *b, uint64_t lock1)
{
	struct vb_board_lock *room = NULL;

	for (unsigned i = 0; i < VB_BOARD_HELD; i++) {
		if (b->held[i].lock1 == lock1)
			return &b->held[i];
		if (room == NULL && b->held[i].lock1 == 0)
			room = &b->held[i];
	}
	return room;
}

void vb_board_ends(struct vb_lock_client *me, const struct vb_claim *c)
{
	struct vb_board_slot *b = me->board;
	uint64_t now = now_of(me->ep);

	if (c != NULL) {
		struct vb_board_lock *h = held_of(b, c->lock + 1);

		if (h != NULL)
			put(h, c->lock, c->mode, now);
		else
			set(&b->unseen, b->unseen + 1);
		/* The common time may have been corrected meanwhile. */
		count_wait(b, c->lock + 1, now > b->wait.since_ns ? now - b->wait.since_ns : 0);
	}
	set(&b->wait.lock1, 0);
}

void vb_board_gives_up(struct vb_lock_client *me, uint64_t lock)
{
	struct vb_board_lock *h = held_of(me->board, lock + 1);

	if (h != NULL && h->lock1 == lock + 1)
		set(&h->lock1, 0);
	else if (me->board->unseen != 0)
		set(&me->board->unseen, me->board->unseen - 1);
}

/* ---- the observer's side ---- */

static int read_board(struct vb_ep *ep, uint16_t node, vb_addr at, struct vb_board_view *out)
{
	struct vb_board_header head;
	int err = vb_read(ep, at, &head, sizeof(head));

	if (err || head.magic != MAGIC)
		return err;
	head.protocol[sizeof(head.protocol) - 1] = '\0';
	head.unseen += out->head.unseen;
	out->head = head;
	at += sizeof(head);
	for (unsigned i = 0; i < VB_BOARD_SLOTS && err == 0; i++) {
		struct vb_board_slot *s = &out->slot[out->n];

		err = vb_read(ep, at + i * sizeof(*s), s, sizeof(*s));
		if (err || s->peer == 0)
			continue;
		out->node[out->n] = node;
		out->alive[out->n] = vb_peer_alive(ep->fabric, s->peer);
		out->n++;
	}
	return err;
}

/* The names of spaces that show something, each once. */
struct shown {
	char text[256];
	size_t len;
};

static int note_shown(void *user, const struct vb_named *named)
{
	const char *begin = vb_lock_part_begin(VB_LOCK_BOARD);
	struct shown *s = user;
	char name[80];

	if (named->kind != VB_NAMED_PART || strncmp(named->name, begin, strlen(begin)) != 0)
		return 0;
	snprintf(name, sizeof(name), "'%s'", named->name + strlen(begin));
	if (strstr(s->text, name) == NULL && s->len + strlen(name) + 3 < sizeof(s->text))
		s->len += (size_t)snprintf(s->text + s->len, sizeof(s->text) - s->len, "%s %s",
					   s->len > 0 ? "," : ":", name);
	return 0;
}

/* The error of a space that shows nothing: it, and those that do. */
static int none_shown(struct vb_fabric *f, const char *space)
{
	struct shown s = {.len = 0};

	for (uint16_t node = 0; node < f->nodes; node++)
		(void)vb_fabric_each(f, node, note_shown, &s);
	return vb_fail(-ENOENT,
		       "no client has shown what it holds in a lock space '%s'; open the space as "
		       "visible (bench lock --visible), or look at one that is%s",
		       space, s.len > 0 ? s.text : ": here there is none");
}

int vb_board_view(struct vb_ep *ep, const char *space, struct vb_board_view *out)
{
	struct vb_fabric *f = ep->fabric;
	size_t most = (size_t)f->nodes * VB_BOARD_SLOTS;
	unsigned boards = 0;
	char name[VB_LOCK_REGION];
	int err = 0;

	*out = (struct vb_board_view){
		.now_ns = now_of(ep),
		.node = calloc(most, sizeof(*out->node)),
		.alive = calloc(most, sizeof(*out->alive)),
		.slot = calloc(most + 1, sizeof(*out->slot)),
	};
	if (out->node == NULL || out->alive == NULL || out->slot == NULL)
		err = vb_fail(-ENOMEM, "no memory for the boards of %u nodes", f->nodes);
	vb_lock_part_region(VB_LOCK_BOARD, space, 0, name);
	for (uint16_t node = 0; node < f->nodes && err == 0; node++) {
		vb_addr at;

		err = vb_region_find(f, node, name, VB_BOARD_BYTES, &at);
		if (err == 0) {
			boards++;
			err = read_board(ep, node, at, out);
		} else if (err == -ENOENT) {
			err = 0;
		}
	}
	if (err == 0 && boards == 0)
		err = none_shown(f, space);
	if (err)
		vb_board_view_free(out);
	return err;
}

void vb_board_view_free(struct vb_board_view *v)
{
	free(v->node);
	free(v->alive);
	free(v->slot);
	*v = (struct vb_board_view){0};
}
