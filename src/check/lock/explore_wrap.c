/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that have been in use for long: entries whose counters come round a few steps from now.
 * Each is what a free lock's entry may look like.  Claims' numbers are set in explore.c.
 */
#define VB_LOG_ROOM "check"
#include "check/lock/explore_inner.h"
#include "lock/dslr/update.h"
#include "lock/rma_rw/rma_rw.h"
#include "lock/shiftlock/shiftlock.h"

static void wrap_dslr(const struct vb_lock_space *s, uint64_t *entry, uint32_t steps)
{
	uint32_t at = (uint32_t)((const struct dslr_options *)s->options)->count_max - steps;

	entry[0] = dslr_word(at, at, at, at);
}

/* Its era counts the resets. */
static void wrap_dslr_update(const struct vb_lock_space *s, uint64_t *entry, uint32_t steps)
{
	uint32_t at = (uint32_t)((const struct dslr_options *)s->options)->count_max - steps;

	entry[0] = upd_word(256 - (1 + steps % 3), at, at, at, at);
}

/* The wide entry's tokens are generation and count, which come round in years. */
static void wrap_shiftlock(const struct vb_lock_space *s, uint64_t *entry, uint32_t steps)
{
	const uint64_t gen = 256 - (1 + steps % 3), count = (1u << SL_PLAIN_COUNT_BITS) - steps;

	if (sl_is_plain(s))
		entry[0] = sl_plain_word(s, gen << SL_GEN_SHIFT | count);
}

static void wrap_rma_rw(const struct vb_lock_space *s, uint64_t *entry, uint32_t steps)
{
	const struct rw_options *o = s->options;

	for (uint32_t i = 0; i < o->counters; i++)
		entry[1 + 2 * o->groups + i] = RW_TURN_MASK + RW_TURN - (1 + steps % 8) * RW_TURN;
}

static const struct {
	const struct vb_opt *options; /* whoever has these has that entry */
	void (*wrap)(const struct vb_lock_space *s, uint64_t *entry, uint32_t steps);
} layouts[] = {
	{dslr_option_table, wrap_dslr},
	{dslr_update_option_table, wrap_dslr_update},
	{sl_option_table, wrap_shiftlock},
	{rw_option_table, wrap_rma_rw},
};

/* Fewer tickets than the options allow, for leases that are shorter than any user's.  One of both
 * counters may be about to come round, and the other at its beginning. */
static void begin_rounds(const struct explore *x)
{
	const struct vb_lock_space *s = x->space;
	const uint32_t last = x->d->round_tickets - 1, which = (uint32_t)(x->d->seed % 3);
	uint64_t *entry = vb_local(s->fabric, vb_lock_entry(s, 0), s->stride);
	const uint32_t w = which == 1 ? last : 0, r = which == 2 ? last : 0;

	((struct dslr_options *)s->options)->count_max = x->d->round_tickets;
	entry[0] = s->ops->options == dslr_update_option_table ? upd_word(0, w, r, w, r)
							       : dslr_word(w, r, w, r);
}

void explore_wrap(struct explore *x)
{
	const struct vb_lock_space *s = x->space;
	struct vb_rng r;

	vb_rng_seed(&r, x->d->seed, 0x77726170);
	if (x->d->round_tickets != 0)
		begin_rounds(x);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(layouts) && x->d->near_wrap; i++) {
		if (s->ops->options != layouts[i].options || s->ops->entry_bytes == 0)
			continue;
		for (uint64_t lock = 0; lock < s->locks; lock++)
			layouts[i].wrap(s, vb_local(s->fabric, vb_lock_entry(s, lock), s->stride),
					1 + (uint32_t)vb_rng_below(&r, x->d->near_wrap));
	}
}
