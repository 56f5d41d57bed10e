/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TATP's kinds of transactions, their mix and its population, for its load and its lock trace.
 *
 * Each subscriber has 1 to 4 rows of access information and as many of special facilities, of four
 * types, and each of these facilities 0 to 3 rows of call forwarding, which start at 0, 8 or 16
 * o'clock and last for 1 to 8 hours.
 */
#ifndef VB_WORKLOAD_TATP_H
#define VB_WORKLOAD_TATP_H

#include "base/rng.h"

#define TATP_TYPES       4u /* of access information, and of special facilities */
#define TATP_STARTS      3u
#define TATP_START_HOURS 8u
#define TATP_DAY_HOURS   24u

enum vb_tatp_type {
	VB_TATP_SUBSCRIBER_DATA,
	VB_TATP_NEW_DESTINATION,
	VB_TATP_ACCESS_DATA,
	VB_TATP_UPDATE_SUBSCRIBER,
	VB_TATP_UPDATE_LOCATION,
	VB_TATP_INSERT_FORWARDING,
	VB_TATP_DELETE_FORWARDING,
	VB_TATP_KINDS
};
extern const char *const vb_tatp_types[VB_TATP_KINDS];
extern const unsigned vb_tatp_percent[VB_TATP_KINDS];

/* The A of NURand for so many subscribers (TATP, 1.4 "Non-uniform distribution"). */
static inline uint64_t vb_tatp_run(uint64_t subscribers)
{
	return subscribers <= 1000000 ? 65535 : subscribers <= 10000000 ? 1048575 : 2097151;
}

/* A bit for each of `least` to `of` neighbours, cyclically, of so many. */
static inline unsigned vb_tatp_draw_some(struct vb_rng *rng, unsigned least, unsigned of)
{
	unsigned n = least + (unsigned)vb_rng_below(rng, of - least + 1);
	unsigned first = (unsigned)vb_rng_below(rng, of), bits = 0;

	for (unsigned i = 0; i < n; i++)
		bits |= 1u << (first + i) % of;
	return bits;
}

/* A bit per start, and behind them three bits for each: one less than its hours. */
static inline uint16_t vb_tatp_draw_forwarding(struct vb_rng *rng)
{
	unsigned bits = vb_tatp_draw_some(rng, 0, TATP_STARTS);

	for (unsigned i = 0; i < TATP_STARTS; i++)
		bits |= (unsigned)vb_rng_below(rng, TATP_START_HOURS) << (TATP_STARTS + 3 * i);
	return (uint16_t)bits;
}

static inline unsigned vb_tatp_end_hour(uint16_t forwarding, unsigned start)
{
	return start * TATP_START_HOURS + 1 + (forwarding >> (TATP_STARTS + 3 * start) & 7);
}

#endif
