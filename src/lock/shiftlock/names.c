/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Short names for clients, for ShiftLock's entry in one word: its tail has room for few of them.
 *
 * A client's endpoint is named by a number that grows with every endpoint ever opened.  The word
 * has room only for as many clients as are open on a node at a time.  So each takes the lowest
 * free *place* of its node when it is opened, and gives it back when it is closed.  The word names
 * node and place; a table on the node says which client has the place, for others that must send
 * it a message.
 *
 *	region "names:SPACE:k" on each node: words, 0 = free, else the vb_peer of the place's client
 *
 * The table is made piece by piece, each as long as all before it: most nodes have few clients.
 *
 * The place of a client that has died is given to another once its last verbs have landed or never
 * will.  A word may still name it then.  A client that finds its own place in the tail takes it
 * for an attempt of its own whose answer was lost: nobody will hand over from there, and the
 * recovery clears it away.  A SUCCESSOR that was meant for the former client of a place and
 * reaches the present one does no harm: of the generation in which it was sent nobody behind that
 * tail will hold the lock, and with any other it is dropped.
 */
#define VB_LOG_ROOM "shiftlock"
#include "lock/shiftlock/shiftlock.h"

#include <errno.h>

#include "base/log.h"

#define FIRST_PIECE 512u
#define PIECES_KEPT 64u

struct sl_names {
	/* As in the wide tail, with the place for the client's number. */
	vb_peer name;
	/* The word of the table that has the name; 0: none. */
	vb_addr at;
	/* Pieces of other nodes' tables, as last asked for; key is node << 8 | piece, + 1. */
	struct {
		uint32_t key;
		vb_addr at;
	} kept[PIECES_KEPT];
};

static uint32_t places(const struct vb_lock_space *s)
{
	return 1u << sl_plain_client_bits(s);
}

/* The first place of piece k. */
static uint32_t piece_start(unsigned k)
{
	return k == 0 ? 0 : FIRST_PIECE << (k - 1);
}

static uint32_t piece_length(const struct vb_lock_space *s, unsigned k)
{
	uint32_t start = piece_start(k), length = k == 0 ? FIRST_PIECE : start;

	return start + length <= places(s) ? length : places(s) - start;
}

static unsigned piece_of(uint32_t place)
{
	return place < FIRST_PIECE ? 0 : 32u - (unsigned)__builtin_clz(place / FIRST_PIECE);
}

static int find_piece(struct vb_lock_client *me, uint16_t node, unsigned k, vb_addr *out)
{
	const struct vb_lock_space *s = me->space;
	char name[VB_LOCK_REGION];
	bool fresh;

	vb_lock_part_region(VB_LOCK_PLACES, s->name, k, name);
	return vb_region(s->fabric, node, name, 8ull * piece_length(s, k), out, &fresh);
}

/* ---- a place of one's own ---- */

static bool is_free(const struct vb_lock_client *me, uint64_t word)
{
	return word == VB_PEER_NONE || !vb_peer_alive(me->ep->fabric, word);
}

/* 0: taken.  -EAGAIN: none is free here. */
static int take_in(struct vb_lock_client *me, struct sl_names *n, unsigned k)
{
	const struct vb_lock_space *s = me->space;
	uint32_t length = piece_length(s, k);
	uint64_t words[64], seen;
	vb_addr at;
	int err = find_piece(me, me->node, k, &at);

	for (uint32_t i = 0; err == 0 && i < length; i++) {
		bool unsure = false;

		if (i % 64 == 0)
			err = vb_read(me->ep, at + 8 * i, words,
				      8 * (length - i < 64 ? length - i : 64));
		if (err || !is_free(me, words[i % 64]))
			continue;
		err = vb_lock_change(me, at + 8 * i, words[i % 64], me->ep->self, &seen, &unsure);
		if (err || (seen != words[i % 64] && seen != me->ep->self))
			continue;
		n->at = at + 8 * i;
		n->name = (me->node + 1ull) << VB_PEER_CLIENT_BITS | (piece_start(k) + i);
		if (words[i % 64] != VB_PEER_NONE)
			vb_lock_let_land(me);
		return 0;
	}
	return err ? err : -EAGAIN;
}

int sl_names_open(struct vb_lock_client *me)
{
	struct sl_names *n;
	int err = -EAGAIN;

	if (!sl_is_plain(me->space))
		return 0;
	n = calloc(1, sizeof(*n));
	if (n == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock client");
	me->priv = n;
	for (unsigned k = 0; err == -EAGAIN && piece_start(k) < places(me->space); k++)
		err = take_in(me, n, k);
	if (err != -EAGAIN)
		return err;
	return vb_fail(-ENOSPC,
		       "without 128-bit masked atomics 'shiftlock' has room for %u clients at a "
		       "time on each of %u nodes; close some, or use another lock",
		       places(me->space), me->space->fabric->nodes);
}

void sl_names_close(struct vb_lock_client *me)
{
	struct sl_names *n = me->priv;
	bool unsure = false;
	uint64_t seen;

	/* If it does not get through, the place is free once this endpoint is gone. */
	if (n != NULL && n->at != 0)
		(void)vb_lock_change(me, n->at, me->ep->self, VB_PEER_NONE, &seen, &unsure);
}

/* ---- in the word ---- */

vb_peer sl_plain_name(const struct vb_lock_client *me)
{
	return ((const struct sl_names *)me->priv)->name;
}

int sl_names_find(struct vb_lock_client *me, vb_peer name, vb_peer *out)
{
	struct sl_names *n = me->priv;
	uint32_t place = vb_peer_client(name);
	uint16_t node = vb_peer_node(name);
	unsigned k = piece_of(place);
	uint32_t key = ((uint32_t)node << 8 | k) + 1, slot = key % PIECES_KEPT;

	if (n->kept[slot].key != key) {
		int err = find_piece(me, node, k, &n->kept[slot].at);

		if (err)
			return err;
		n->kept[slot].key = key;
	}
	for (unsigned asks = 1;; asks++) {
		int err =
			vb_read64(me->ep, n->kept[slot].at + 8ull * (place - piece_start(k)), out);

		if (err != -VB_EUNKNOWN || asks == VB_LOCK_ASKS)
			return err;
	}
}
