/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The word of DSLR (seed 000, figure 3) and its options, shared by our version and the published one.
 *
 *	 63          48 47          32 31          16 15           0
 *	+--------------+--------------+--------------+--------------+
 *	| n_X          | n_S          | max_X        | max_S        |
 *	+--------------+--------------+--------------+--------------+
 *	  now serving: exclusive, shared   next ticket: exclusive, shared
 */
#ifndef VB_LOCK_DSLR_H
#define VB_LOCK_DSLR_H

#include "lock/lock.h"

#define DSLR_ONE_MAX_S 1ull
#define DSLR_ONE_MAX_X (1ull << 16)
#define DSLR_ONE_N_S   (1ull << 32)
#define DSLR_ONE_N_X   (1ull << 48)
#define DSLR_N_MASK    0xffffffff00000000ull

static inline uint32_t dslr_max_s(uint64_t w)
{
	return w & 0xffff;
}

static inline uint32_t dslr_max_x(uint64_t w)
{
	return w >> 16 & 0xffff;
}

static inline uint32_t dslr_n_s(uint64_t w)
{
	return w >> 32 & 0xffff;
}

static inline uint32_t dslr_n_x(uint64_t w)
{
	return (uint32_t)(w >> 48);
}

static inline uint64_t dslr_word(uint32_t n_x, uint32_t n_s, uint32_t max_x, uint32_t max_s)
{
	return (uint64_t)n_x << 48 | (uint64_t)n_s << 32 | (uint64_t)max_x << 16 | max_s;
}

/* The turn of a ticket (the word before our FAA) has come in `w`. */
static inline bool dslr_is_turn(uint64_t w, uint64_t ticket, enum vb_mode mode)
{
	return dslr_n_x(w) == dslr_max_x(ticket) &&
	       (mode == VB_SHARED || dslr_n_s(w) == dslr_max_s(ticket));
}

struct dslr_options {
	uint64_t count_max;
	uint64_t omega_ns;
	uint64_t backoff_base_ns, backoff_cap_ns;
};
extern const struct vb_opt dslr_option_table[];

/* Waiters ahead of a ticket, times omega (seed 000 section 4.6), but never so long that half a lease
 * passes without a look. */
uint64_t dslr_poll_interval_ns(const struct vb_lock_space *s, uint64_t w, uint64_t ticket);

#endif
