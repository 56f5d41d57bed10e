/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: a hierarchical wheel that keeps the exact order (time, order of arming).
 *
 * The simulator's speed rests on this: every simulated verb arms and fires about two timers.  A
 * heap would cost O(log n) cache lines and mispredicted branches for each; here arming, moving and
 * disarming are a list operation, and a timer a few us ahead is dealt out once or twice on its way.
 * Nothing is allocated and there is no bound on how many are armed.
 *
 * Times are read as numbers of 6-bit digits.  `base` is the wheel's own time, never after the
 * scheduler's.  A timer lies at the level of the highest digit in which it differs from base, in
 * the slot of its own digit there:
 *
 *	base  ... 12 | 40 | 07
 *	timer ... 12 | 40 | 31   level 0, slot 31: a slot of level 0 is one ns
 *	timer ... 12 | 55 | 02   level 1, slot 55: 64 ns
 *	timer ... 30 | 00 | 60   level 2, slot 30: 4096 ns
 *
 * So everything at a level comes before everything at the levels above, and the earliest slot is
 * found by two bit scans.  When base enters a slot of level 1 or more, its timers are dealt out to the
 * levels below, also one that is alone there: left behind, it would come after all that are armed
 * later, for as long as one of them is.  But for one that is due, which fires from where it is.
 *
 * Ties fire in the order of arming, because timers of the same time always share a list (the place
 * depends on base and time alone), lists are first in, first out, and dealing out keeps the order.
 */
#include "task/inner.h"

void vb_wheel_init(struct vb_wheel *w)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(w->slots); i++)
		vb_list_init(&w->slots[i]);
}

static inline void wheel_insert(struct vb_wheel *w, struct vb_timer *t)
{
	/* What is overdue is due at base: it fires next, after what was armed before it. */
	uint64_t at = t->at_ns > w->base ? t->at_ns : w->base;
	uint64_t differs = (at ^ w->base) | 1;
	unsigned level = (63 - (unsigned)__builtin_clzll(differs)) / VB_WHEEL_BITS;
	unsigned digit = at >> level * VB_WHEEL_BITS & (VB_WHEEL_SLOTS - 1);
	unsigned slot = level * VB_WHEEL_SLOTS + digit;

	w->levels |= 1u << level;
	w->occupied[level] |= 1ull << digit;
	t->slot = slot + 1;
	vb_list_push(&w->slots[slot], &t->link);
}

static inline void wheel_slot_emptied(struct vb_wheel *w, unsigned slot)
{
	unsigned level = slot / VB_WHEEL_SLOTS;

	w->occupied[level] &= ~(1ull << slot % VB_WHEEL_SLOTS);
	if (w->occupied[level] == 0)
		w->levels &= ~(1u << level);
}

static inline void wheel_remove(struct vb_wheel *w, struct vb_timer *t)
{
	unsigned slot = t->slot - 1;

	t->link.prev->next = t->link.next;
	t->link.next->prev = t->link.prev;
	t->slot = 0;
	if (vb_list_empty(&w->slots[slot]))
		wheel_slot_emptied(w, slot);
}

/* base enters a slot: its timers move to the levels below. */
static void wheel_deal_out(struct vb_wheel *w, unsigned slot, uint64_t start)
{
	struct vb_list *head = &w->slots[slot], *it = head->next;

	w->base = start;
	vb_list_init(head);
	wheel_slot_emptied(w, slot);
	while (it != head) {
		struct vb_timer *t = vb_container_of(it, struct vb_timer, link);

		it = it->next;
		wheel_insert(w, t);
	}
}

/* The first timer in order, if it is due at limit_ns or before; else NULL, and *next_ns is when to
 * look again at the latest. */
static inline struct vb_timer *wheel_first(struct vb_wheel *w, uint64_t limit_ns, uint64_t *next_ns)
{
	while (w->levels != 0) {
		unsigned level = (unsigned)__builtin_ctz(w->levels);
		uint64_t digit = (uint64_t)__builtin_ctzll(w->occupied[level]);
		unsigned shift = level * VB_WHEEL_BITS,
			 slot = level * VB_WHEEL_SLOTS + (unsigned)digit;
		struct vb_list *head = &w->slots[slot];
		struct vb_timer *t = vb_container_of(head->next, struct vb_timer, link);
		bool alone = level == 0 || t->link.next == head;
		uint64_t above, start;

		/* The first, wherever it would be dealt to. */
		if (alone && t->at_ns <= limit_ns) {
			*next_ns = t->at_ns;
			return t;
		}
		/* The digits above this level are those of base, the ones below are zero. */
		above = shift + VB_WHEEL_BITS < 64 ? ~0ull << (shift + VB_WHEEL_BITS) : 0;
		start = (w->base & above) | digit << shift;
		if (start > limit_ns) {
			*next_ns = alone ? t->at_ns : start;
			return NULL;
		}
		wheel_deal_out(w, slot, start);
	}
	*next_ns = VB_FOREVER;
	return NULL;
}

uint64_t vb_wheel_next(struct vb_wheel *w, uint64_t limit_ns)
{
	uint64_t next;

	wheel_first(w, limit_ns, &next);
	return next;
}

uint64_t vb_sched_next_timer(struct vb_sched *s)
{
	struct vb_wheel *w = &s->wheel;
	uint64_t next = VB_FOREVER;
	unsigned level, slot;

	if (w->levels == 0)
		return VB_FOREVER;
	level = (unsigned)__builtin_ctz(w->levels);
	slot = level * VB_WHEEL_SLOTS + (unsigned)__builtin_ctzll(w->occupied[level]);
	vb_list_for_each (it, &w->slots[slot]) {
		const struct vb_timer *t = vb_container_of(it, struct vb_timer, link);

		next = t->at_ns < next ? t->at_ns : next;
	}
	return next;
}

void vb_timer_arm(struct vb_sched *s, struct vb_timer *t, uint64_t at_ns)
{
	struct vb_wheel *w = &s->wheel;

	if (t->slot != 0)
		wheel_remove(w, t);
	t->at_ns = at_ns;
	t->seq = w->seq++;
	wheel_insert(w, t);
}

void vb_timer_disarm(struct vb_sched *s, struct vb_timer *t)
{
	if (t->slot != 0)
		wheel_remove(&s->wheel, t);
}

void vb_wheel_fire(struct vb_sched *s)
{
	struct vb_wheel *w = &s->wheel;
	uint64_t now = s->face.now_ns, end = w->seq, next;
	struct vb_timer *t;

	while ((t = wheel_first(w, now, &next)) != NULL) {
		if (t->seq >= end)
			return;
		wheel_remove(w, t);
		if (t->at_ns > w->base)
			w->base = t->at_ns;
		t->fire(t);
	}
	w->base = now;
}
