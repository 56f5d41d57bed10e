/* SPDX-License-Identifier: Apache-2.0 */
/* RMA-RW's counters: readers come and go, writers bar them and let them in.  See rma_rw.h. */
#define VB_LOG_ROOM "lock"
#include "lock/rma_rw/rma_rw.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"

/* A try gives up when the counter has changed under it so often. */
#define TRY_CASES 4

static vb_addr my_counter(const struct vb_lock_client *me, const struct vb_claim *c)
{
	return rw_counter(me, c, me->node / rw_options_of(me)->counter_nodes);
}

int rw_read_entry(struct vb_lock_client *me, struct vb_claim *c, uint64_t *words)
{
	const struct rw_options *o = rw_options_of(me);

	return vb_read(me->ep, c->entry, words, 8 * (1 + 2 * o->groups + o->counters));
}

bool rw_has_writers(const struct rw_options *o, const uint64_t *words)
{
	bool any = words[0] != 0;

	for (uint32_t g = 0; g < o->groups; g++)
		any |= words[1 + 2 * g] != 0;
	return any;
}

/* What an answer that was lost leaves behind, or a link that stayed down. */
static int left_behind(const struct vb_claim *c, int err, const char *what)
{
	if (err != -VB_EUNKNOWN)
		return err;
	return vb_fail(err, "lock %" PRIu64 ": %s (%s); the lock may be lost", c->lock, what,
		       vb_strerror(err));
}

/* ---- readers ---- */

static int reader_granted(struct vb_claim *c)
{
	c->queued = false;
	return vb_lock_grant(c, VB_FOREVER_NS, 0);
}

/* The CAS fails if since the READ a writer has barred the counter, or a reader has begun the next
 * turn. */
int rw_begin_turn(struct vb_lock_client *me, struct vb_claim *c, vb_addr counter, uint64_t seen)
{
	uint64_t old;

	(void)c;
	return vb_cas64(me->ep, counter, seen, rw_next_turn(seen), &old);
}

/* There is no bar, but no room in this turn.  A writer that waits will begin the next turn; if
 * there is none, we do. */
static int turn_if_free(struct vb_lock_client *me, struct vb_claim *c, rw_turn_fn *turn)
{
	const struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	const struct rw_options *o = rw_options_of(me);
	uint64_t words[RW_WORDS_MAX], w;
	vb_addr at = my_counter(me, c);
	int err = rw_read_entry(me, c, words);

	if (err || rw_has_writers(o, words))
		return err;
	w = words[(at - c->entry) / 8];
	if (w & RW_BAR || (w & RW_TURN_MASK) != p->turn)
		return 0;
	VB_SOMETIMES(200, "rma-rw: a reader begins the next turn itself");
	return turn(me, c, at, w);
}

int rw_reader_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		     rw_turn_fn *turn)
{
	const struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	vb_addr at = my_counter(me, c);
	unsigned refused = 0;
	uint64_t w;
	int err;

	vb_phase(me, VB_PHASE_WW);
	for (;;) {
		me->retries++;
		err = vb_read64(me->ep, at, &w);
		if (err == 0 && (w & RW_TURN_MASK) != p->turn)
			return reader_granted(c);
		if (err == 0 && !(w & RW_BAR))
			err = turn_if_free(me, c, turn);
		/* After a lost answer look again; a CAS of ours is not left under way. */
		if (err == -VB_EUNKNOWN)
			vb_lock_let_land(me);
		else if (err && !vb_lock_ask_again(me, err, &refused))
			return vb_lock_unknown_if_refused(err);
		refused = err == 0 ? 0 : refused;
		err = vb_poll_rest(me, until_ns);
		if (err)
			return err;
	}
}

/*
 * ---- how many may read ----
 *
 * A counter has room for RW_READERS_MAX readers, on whichever of its nodes they are.  Each node
 * has its share, and a word behind the entries (on server `node mod servers`) that counts the
 * clients open there.  A client that finds no more than the share when it is opened, or at a later
 * look, may read: all that are open then may.  A client that dies stays counted, as it stays in
 * the counters.
 */
struct rw_client {
	bool may_read;
};

static vb_addr open_clients(const struct vb_lock_client *me)
{
	const struct vb_lock_space *s = me->space;
	uint16_t server = me->node % s->servers;
	uint64_t mine = (s->locks + s->servers - 1 - server) / s->servers;

	return s->base[server] + mine * s->stride + 8ull * (me->node / s->servers);
}

uint64_t rw_node_bytes(const struct vb_lock_space *space)
{
	return 8ull * ((space->fabric->nodes + space->servers - 1u) / space->servers);
}

static uint64_t readers_most(const struct vb_lock_client *me)
{
	return RW_READERS_MAX / rw_options_of(me)->counter_nodes;
}

int rw_client_open(struct vb_lock_client *me)
{
	struct rw_client *r = calloc(1, sizeof(*r));
	unsigned asks = 0;
	uint64_t before;
	int err;

	if (r == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock client");
	err = vb_lock_faa(me, open_clients(me), 1, &before);
	/* The link may be down for a moment.  Without an answer we may be counted twice, and one
	 * place is lost. */
	while ((err == -VB_EUNKNOWN || err == -VB_EPEERGONE) && ++asks < vb_lock_asks(me->space)) {
		vb_lock_let_land(me);
		err = vb_lock_faa(me, open_clients(me), 1, &before);
	}
	if (err) {
		free(r);
		return vb_fail(err, "a client of '%s' cannot be counted on node %u: %s",
			       me->space->ops->name, me->node, vb_strerror(err));
	}
	r->may_read = before < readers_most(me);
	me->priv = r;
	return 0;
}

void rw_client_close(struct vb_lock_client *me)
{
	uint64_t before;

	/* If the answer is lost, a place may be lost. */
	if (me->priv != NULL)
		(void)vb_lock_faa(me, open_clients(me), (uint64_t)-1, &before);
}

static int check_client(const struct vb_lock_client *me)
{
	struct rw_client *r = me->priv;
	uint64_t open;
	int err;

	if (vb_likely(r->may_read))
		return 0;
	err = vb_read64(me->ep, open_clients(me), &open);
	if (err)
		return err;
	r->may_read = open <= readers_most(me);
	if (r->may_read)
		return 0;
	return vb_fail(-ENOSPC,
		       "%" PRIu64 " clients of node %u are open: rma-rw counts at most %" PRIu64
		       " readers a node; close some, or take a smaller t_dc=",
		       open, me->node, readers_most(me));
}

int rw_reader_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		      rw_turn_fn *turn)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	uint64_t old;
	int err = check_client(me);

	if (err)
		return err;
	err = vb_lock_faa(me, my_counter(me, c), RW_ARRIVED, &old);
	if (err)
		return left_behind(c, err, "a reader may be counted for good");
	if (!(old & RW_BAR) && rw_arrived(old) < rw_options_of(me)->t_r)
		return reader_granted(c);
	p->turn = old & RW_TURN_MASK;
	p->stage = RW_TURN_WAIT;
	vb_lock_mark_queued(me, c);
	return rw_reader_resume(me, c, until_ns, turn);
}

/* A CAS, since a reader that is not let in must not be counted. */
int rw_reader_try(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct rw_options *o = rw_options_of(me);
	uint64_t words[RW_WORDS_MAX], w, seen, next;
	vb_addr at = my_counter(me, c);
	int err = check_client(me);

	if (err == 0)
		err = vb_read64(me->ep, at, &w);
	for (unsigned n = 0; n < TRY_CASES && err == 0 && !(w & RW_BAR); n++) {
		next = w;
		if (rw_arrived(w) >= o->t_r) {
			err = rw_read_entry(me, c, words);
			if (err || rw_has_writers(o, words))
				break;
			next = rw_next_turn(w);
		}
		err = vb_lock_refusal(
			vb_cas64_before(me->ep, at, w, next + RW_ARRIVED, VB_FOREVER, &seen));
		if (err == 0 && seen == w)
			return reader_granted(c);
		w = seen;
	}
	return err ? err : -EAGAIN;
}

int rw_reader_release(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t old;
	int err = vb_lock_add(me, my_counter(me, c), RW_DEPARTED, &old);

	return left_behind(c, err, "a reader could not count itself out");
}

/* ---- writers ---- */

/* All of them; those that are refused again and again.  One that stays unknown counts for more than
 * one that is refused, which has done nothing. */
static int post_all(struct vb_lock_client *me, struct vb_verb *v, unsigned n)
{
	unsigned refused = 0, failed = 0;
	int err;

	for (unsigned i = 0; i < n; i++)
		v[i].not_after_ns = VB_FOREVER;
	err = vb_lock_refusal(vb_post_wait(me->ep, v, n));
	if (vb_likely(err == 0))
		return 0;
	for (unsigned i = 0; i < n; i++)
		failed += v[i].status != 0;
	/* Nothing was posted. */
	if (failed == 0)
		return vb_lock_unknown_if_refused(err);
	while (vb_lock_ask_again(me, err, &refused)) {
		err = 0;
		for (unsigned i = 0; i < n; i++) {
			if (vb_lock_refusal(v[i].status) == -VB_EPEERGONE)
				(void)vb_verb_run(me->ep, &v[i]);
			if (v[i].status != 0 && err != -VB_EUNKNOWN)
				err = vb_lock_refusal(v[i].status);
		}
	}
	return vb_lock_unknown_if_refused(err);
}

int rw_bar(struct vb_lock_client *me, struct vb_claim *c)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	const struct rw_options *o = rw_options_of(me);
	struct vb_verb v[RW_COUNTERS_MAX];
	unsigned n = 0;
	int err;

	for (uint32_t i = 0; i < o->counters; i++)
		v[i] = (struct vb_verb){.op = VB_OP_FAA64,
					.flags = VB_SIGNALLED,
					.addr = rw_counter(me, c, i),
					.compare = {.lo = RW_BAR}};
	err = post_all(me, v, o->counters);
	if (err)
		return left_behind(c, err, "a writer may have barred the readers");
	p->draining = 0;
	for (uint32_t i = 0; i < o->counters; i++) {
		uint64_t old = v[i].old.lo, in = rw_let_in(old, o->t_r);

		if (vb_unlikely(old & RW_BAR))
			return vb_fail(-VB_EUNKNOWN,
				       "lock %" PRIu64 " is lost: counter %u was barred already, "
				       "by a writer that has gone or by nobody",
				       c->lock, i);
		if ((int32_t)in == rw_departed(old))
			continue;
		p->draining |= 1ull << i;
		/* From here on the last reader to leave makes `departed` 0. */
		v[n++] = (struct vb_verb){.op = VB_OP_FAA64,
					  .flags = VB_SIGNALLED,
					  .addr = rw_counter(me, c, i),
					  .compare = {.lo = -(in + (in << RW_DEPARTED_BIT))}};
	}
	err = n ? post_all(me, v, n) : 0;
	return left_behind(c, err, "a writer has barred the readers");
}

int rw_drain(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	const struct rw_options *o = rw_options_of(me);
	uint64_t words[RW_COUNTERS_MAX];
	unsigned refused = 0;
	int err;

	vb_phase(me, VB_PHASE_WR);
	while (p->draining) {
		me->retries++;
		err = vb_read(me->ep, rw_counter(me, c, 0), words, 8 * o->counters);
		if (err && err != -VB_EUNKNOWN && !vb_lock_ask_again(me, err, &refused))
			return vb_lock_unknown_if_refused(err);
		refused = err == 0 ? 0 : refused;
		for (uint64_t left = err ? 0 : p->draining; left; left &= left - 1) {
			unsigned i = (unsigned)__builtin_ctzll(left);

			if (rw_departed(words[i]) == 0)
				p->draining &= ~(1ull << i);
		}
		if (!p->draining)
			break;
		err = vb_poll_rest(me, until_ns);
		if (err)
			return err;
	}
	return 0;
}

/* All counters; a READ whose answer was lost, or that was refused, has changed nothing. */
static int rw_look(struct vb_lock_client *me, struct vb_claim *c, uint64_t *words)
{
	unsigned n = rw_options_of(me)->counters, lost = 0, refused = 0;
	int err;

	do
		err = vb_read(me->ep, rw_counter(me, c, 0), words, 8 * n);
	while ((err == -VB_EUNKNOWN && ++lost < VB_LOCK_ASKS) ||
	       vb_lock_ask_again(me, err, &refused));
	return vb_lock_unknown_if_refused(err);
}

/*
 * Readers that come meanwhile make a CAS fail, each of them once: then all that are left out are
 * counted.  Nobody else changes a barred counter, except the readers that are still inside if a try
 * gives up.
 */
int rw_unbar(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct rw_options *o = rw_options_of(me);
	uint64_t words[RW_COUNTERS_MAX];
	struct vb_verb v[RW_COUNTERS_MAX];
	uint8_t which[RW_COUNTERS_MAX];
	unsigned n = 0, lost = 0;
	int err = rw_look(me, c, words);

	for (unsigned i = 0; i < o->counters; i++)
		which[n++] = (uint8_t)i;
	while (err == 0 && n > 0) {
		unsigned left = 0;

		for (unsigned k = 0; k < n; k++)
			v[k] = (struct vb_verb){.op = VB_OP_CAS64,
						.flags = VB_SIGNALLED,
						.addr = rw_counter(me, c, which[k]),
						.compare = {.lo = words[which[k]]},
						.swap = {.lo = rw_next_turn(words[which[k]])}};
		err = post_all(me, v, n);
		if (vb_unlikely(err == -VB_EUNKNOWN) && ++lost < VB_LOCK_ASKS) {
			VB_SOMETIMES(200, "rma-rw: a bar is lifted although the answer was lost");
			vb_lock_let_land(me);
			err = rw_look(me, c, words);
			/* The bars are ours: a counter without one has its next turn. */
			for (unsigned k = 0; k < n && err == 0; k++)
				if (words[which[k]] & RW_BAR)
					which[left++] = which[k];
			n = left;
			continue;
		}
		for (unsigned k = 0; k < n && err == 0; k++) {
			if (v[k].old.lo == words[which[k]])
				continue;
			VB_SOMETIMES(200, "rma-rw: a reader comes while a writer lets them in");
			words[which[k]] = v[k].old.lo;
			which[left++] = which[k];
		}
		n = left;
	}
	return left_behind(c, err, "a writer may have left the readers barred");
}
