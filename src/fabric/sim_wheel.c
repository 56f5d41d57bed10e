/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The simulator's events: a wheel of one slot per ns, with a bitmap to find the next one.
 *
 * A verb takes a few us and has two events, so nearly all of them are less than a turn of the wheel
 * ahead and cost a list insertion, not a heap's logarithm; one timer of the scheduler stands for
 * all. A slot never holds two times: an event is put in only if it is less than a turn ahead, and
 * its slot is emptied when its time comes.  Events at the same ns happen in the order in which they
 * were put.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim_inner.h"

#include <stdlib.h>

#include "base/log.h"

#define MASK  (SIM_WHEEL_SLOTS - 1)
#define WORDS (SIM_WHEEL_SLOTS / 64)

static void wheel_tick(struct vb_timer *t);

int sim_wheel_init(struct sim *s)
{
	s->wheel.slot = calloc(SIM_WHEEL_SLOTS, sizeof(s->wheel.slot[0]));
	if (s->wheel.slot == NULL)
		return vb_fail(-ENOMEM, "no memory for the simulator's events");
	s->wheel.tick.fire = wheel_tick;
	return 0;
}

void sim_wheel_destroy(struct sim *s)
{
	if (s->wheel.tick.fire != NULL)
		vb_timer_disarm(s->sched, &s->wheel.tick);
	for (unsigned c = 0; c < s->n_chunks; c++) {
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			struct sim_op *op = &s->chunks[c][i];

			vb_timer_disarm(s->sched, &op->far);
			free(op->big);
		}
		free(s->chunks[c]);
	}
	free(s->chunks);
	free(s->wheel.slot);
}

/* The first taken slot at or after i, going round; the wheel must not be empty. */
static unsigned next_taken(const struct sim_wheel *w, unsigned i)
{
	unsigned word = i / 64;
	uint64_t bits = w->bits[word] & (~0ull << (i % 64));

	for (unsigned turns = 0; bits == 0; turns++) {
		unsigned group = ++word % WORDS / 64;
		uint64_t groups;

		vb_assert(turns <= WORDS / 64);
		word %= WORDS;
		groups = w->summary[group] & (~0ull << (word % 64));
		word = group * 64 + 63;
		if (groups != 0) {
			word = group * 64 + (unsigned)__builtin_ctzll(groups);
			bits = w->bits[word];
		}
	}
	return word * 64 + (unsigned)__builtin_ctzll(bits);
}

static bool wheel_empty(const struct sim_wheel *w)
{
	uint64_t any = 0;

	for (unsigned i = 0; i < SIM_WHEEL_SLOTS / 4096; i++)
		any |= w->summary[i];
	return any == 0;
}

static void wheel_arm(struct sim *s, uint64_t now)
{
	unsigned from = (unsigned)((now + 1) & MASK);

	if (wheel_empty(&s->wheel))
		return;
	vb_timer_arm(s->sched, &s->wheel.tick,
		     now + 1 + ((next_taken(&s->wheel, from) - from) & MASK));
}

static void wheel_tick(struct vb_timer *t)
{
	struct sim *s = vb_container_of(t, struct sim, wheel.tick);
	uint64_t now = sim_now(s);
	unsigned i = (unsigned)(now & MASK);
	struct sim_op *last = s->wheel.slot[i], *op, *next;

	vb_assert(last != NULL && last->at_ns == now);
	s->wheel.slot[i] = NULL;
	s->wheel.bits[i / 64] &= ~(1ull << (i % 64));
	if (s->wheel.bits[i / 64] == 0)
		s->wheel.summary[i / 4096] &= ~(1ull << (i / 64 % 64));
	s->wheel.ticking = true;
	next = last->next;
	do {
		op = next;
		next = op->next;
		sim_event(s, op);
	} while (op != last);
	s->wheel.ticking = false;
	wheel_arm(s, now);
}

static void far_fire(struct vb_timer *t)
{
	struct sim_op *op = vb_container_of(t, struct sim_op, far);

	sim_event(op->ep->sim, op);
}

void sim_at(struct sim *s, struct sim_op *op, enum sim_stage stage, uint64_t at_ns)
{
	struct sim_wheel *w = &s->wheel;
	uint64_t now = sim_now(s);
	struct sim_op *last;
	unsigned i;

	at_ns = sim_max(at_ns, now + 1);
	op->stage = (uint8_t)stage;
	op->at_ns = at_ns;
	if (vb_unlikely(at_ns - now >= SIM_WHEEL_SLOTS)) {
		vb_timer_arm(s->sched, &op->far, at_ns);
		return;
	}
	i = (unsigned)(at_ns & MASK);
	last = w->slot[i];
	if (last == NULL) {
		op->next = op;
		w->bits[i / 64] |= 1ull << (i % 64);
		w->summary[i / 4096] |= 1ull << (i / 64 % 64);
	} else {
		op->next = last->next;
		last->next = op;
	}
	w->slot[i] = op;
	if (!w->ticking && (!vb_timer_armed(&w->tick) || at_ns < w->tick.at_ns))
		vb_timer_arm(s->sched, &w->tick, at_ns);
}

/* ---- the pool ---- */

static int pool_grow(struct sim *s)
{
	struct sim_op *chunk;

	if (s->n_chunks == s->max_chunks) {
		unsigned max = s->max_chunks == 0 ? 16 : 2 * s->max_chunks;
		struct sim_op **chunks = realloc(s->chunks, max * sizeof(chunks[0]));

		if (chunks == NULL)
			return -ENOMEM;
		s->chunks = chunks;
		s->max_chunks = max;
	}
	chunk = calloc(SIM_POOL_CHUNK, sizeof(chunk[0]));
	if (chunk == NULL)
		return -ENOMEM;
	s->chunks[s->n_chunks++] = chunk;
	for (unsigned i = SIM_POOL_CHUNK; i-- > 0;) {
		chunk[i].far.fire = far_fire;
		chunk[i].next = s->free_ops;
		s->free_ops = &chunk[i];
	}
	return 0;
}

struct sim_op *sim_op_get(struct sim *s, struct sim_ep *ep)
{
	struct sim_op *op;

	if (vb_unlikely(s->free_ops == NULL) && pool_grow(s) != 0) {
		vb_error("no memory for another verb in flight");
		return NULL;
	}
	op = s->free_ops;
	s->free_ops = op->next;
	op->ep = ep;
	ep->ops++;
	return op;
}

void sim_op_put(struct sim *s, struct sim_op *op)
{
	if (vb_unlikely(op->big != NULL)) {
		free(op->big);
		op->big = NULL;
	}
	op->ep->ops--;
	op->ep = NULL;
	op->verb = NULL;
	op->batch = NULL;
	op->next = s->free_ops;
	s->free_ops = op;
}

void sim_ops_detach(struct sim *s, const struct sim_ep *ep)
{
	for (unsigned c = 0; c < s->n_chunks; c++) {
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			struct sim_op *op = &s->chunks[c][i];

			if (op->ep != ep || op->batch == NULL)
				continue;
			/* Who closes may have killed his tasks: their stacks are gone. */
			if (!ep->closed) {
				op->batch->pending = 0;
				if (op->batch->waiter != NULL)
					vb_task_wake(op->batch->waiter);
			}
			op->verb = NULL;
			op->batch = NULL;
		}
	}
}
