/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TATP with a lock for each row: the trace that ShiftLock (section 4.4) replays.
 *
 * The population follows TATP's description: each subscriber has 1 to 4 rows of access information
 * and as many of special facilities, of four types, and each of these facilities 0 to 3 rows of
 * call forwarding, which start at 0, 8 or 16 o'clock and last for 1 to 8 hours.  Call forwarding
 * comes and goes, and its rows are hashed into 4 locks for 5 subscribers.  Half of the possible
 * rows are there, which is where inserts and deletes balance each other, and so they stay.
 *
 *	0         1 .. 4      5 ..           then                  then               at the end
 *	no lock   the tables  subscribers    access information    special facility   call forwarding
 *
 * A transaction whose row is not there takes no lock and does not appear in a trace; another one is
 * drawn.  The locks on whole tables have numbers because ShiftLock's trace has them; nothing takes
 * them.
 */
#define VB_LOG_ROOM "trace"
#include "workload/tatp.h"
#include "workload/traces.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

#define FIRST_ROW  5u
#define POPULATION 0x746174700000ull
#define DRAWS      64u /* until a row is there: one of 8 draws or so has none */

struct tatp_opts {
	uint64_t subscribers;
	bool spec_destinations;
};

#define O struct tatp_opts
static const struct vb_opt table[] = {
	VB_OPT_SIZE(O, subscribers, "subscribers", "100k", 5, 10000000, "subscribers"),
	VB_OPT_FLAG(
		O, spec_destinations, "spec-destinations",
		"get-new-destination locks the forwarding that ends after the hour that it asks "
		"for, as TATP says, and not the one that has ended by then, as ShiftLock's trace"),
	VB_OPT_END};
#undef O

struct subscriber {
	uint32_t access_first, facility_first; /* lock of the first row */
	uint8_t access, facility;              /* bit per type: has a row */
	/* By type of facility: bit per start, and three bits each for 1 less than the hours. */
	uint16_t forwarding[TATP_TYPES];
};

struct tatp {
	uint32_t n, run; /* subscribers; the A of NURand */
	uint32_t forwarding_first, forwarding_locks;
	bool spec_destinations;
	struct subscriber s[];
};

/* Of access information, and of special facilities. */
static uint8_t draw_rows(struct vb_rng *rng, uint32_t *locks)
{
	unsigned bits = vb_tatp_draw_some(rng, 1, TATP_TYPES);

	*locks += (unsigned)__builtin_popcount(bits);
	return (uint8_t)bits;
}

static uint32_t populate(struct tatp *own, uint64_t seed)
{
	uint32_t locks = FIRST_ROW + own->n;
	struct vb_rng rng;

	vb_rng_seed(&rng, seed, POPULATION);
	for (uint32_t i = 0; i < own->n; i++) {
		own->s[i].access_first = locks;
		own->s[i].access = draw_rows(&rng, &locks);
	}
	for (uint32_t i = 0; i < own->n; i++) {
		own->s[i].facility_first = locks;
		own->s[i].facility = draw_rows(&rng, &locks);
		for (unsigned t = 0; t < TATP_TYPES; t++)
			own->s[i].forwarding[t] = (own->s[i].facility >> t & 1) != 0
							  ? vb_tatp_draw_forwarding(&rng)
							  : 0;
	}
	return locks;
}

static int init(struct vb_trace *t)
{
	const struct tatp_opts *o = t->options;
	struct tatp *own = calloc(1, sizeof(*own) + o->subscribers * sizeof(own->s[0]));

	t->own = own;
	if (own == NULL)
		return vb_fail(-ENOMEM, "no memory for %u subscribers", (unsigned)o->subscribers);
	own->n = (uint32_t)o->subscribers;
	own->run = vb_tatp_run(own->n);
	own->spec_destinations = o->spec_destinations;
	own->forwarding_first = populate(own, t->p.seed);
	own->forwarding_locks = own->n / 5 * 4;
	t->locks = own->forwarding_first + own->forwarding_locks;
	t->types = vb_tatp_types;
	t->n_types = VB_TATP_KINDS;
	t->modes = 1u << VB_SHARED | 1u << VB_EXCLUSIVE;
	t->think_ns = 2800; /* ShiftLock section 4.4 */
	t->locks_max = 2 + TATP_TYPES;
	return 0;
}

static void fini(struct vb_trace *t)
{
	free(t->own);
}

/* Rows lie one after the other in the order of their types. */
static uint64_t row_lock(uint32_t first, uint8_t rows, unsigned type)
{
	return first + (unsigned)__builtin_popcount(rows & ((1u << type) - 1));
}

static uint64_t forwarding_lock(const struct tatp *own, uint32_t s, unsigned type, unsigned start)
{
	uint64_t key = ((uint64_t)s * TATP_TYPES + type) * TATP_STARTS + start + 1;

	/* The finalizer of splitmix64. */
	key = (key ^ key >> 30) * 0xbf58476d1ce4e5b9ull;
	key = (key ^ key >> 27) * 0x94d049bb133111ebull;
	return own->forwarding_first + (key ^ key >> 31) % own->forwarding_locks;
}

static void get_new_destination(struct vb_trace_client *c, uint32_t s)
{
	const struct tatp *own = c->t->own;
	const struct subscriber *who = &own->s[s];
	unsigned type = (unsigned)vb_rng_below(&c->rng, TATP_TYPES);
	unsigned start = (unsigned)vb_rng_below(&c->rng, TATP_STARTS);
	unsigned hour = 1 + (unsigned)vb_rng_below(&c->rng, TATP_DAY_HOURS);

	if ((who->facility >> type & 1) == 0)
		return;
	vb_trace_add(c, row_lock(who->facility_first, who->facility, type), VB_SHARED);
	for (unsigned i = 0; i <= start; i++) {
		bool later = hour < vb_tatp_end_hour(who->forwarding[type], i);

		if ((who->forwarding[type] >> i & 1) != 0 && later == own->spec_destinations)
			vb_trace_add(c, forwarding_lock(own, s, type, i), VB_SHARED);
	}
}

/* Reads the subscriber, for an insert also all of its facilities, and writes one row of forwarding:
 * an insert where there is none, a delete where there is. */
static void change_forwarding(struct vb_trace_client *c, uint32_t s, bool insert)
{
	const struct tatp *own = c->t->own;
	const struct subscriber *who = &own->s[s];
	unsigned type = (unsigned)vb_rng_below(&c->rng, TATP_TYPES);
	unsigned start = (unsigned)vb_rng_below(&c->rng, TATP_STARTS);
	bool there = (who->forwarding[type] >> start & 1) != 0;

	vb_trace_add(c, FIRST_ROW + s, VB_SHARED);
	for (unsigned t = 0; insert && t < TATP_TYPES; t++)
		if ((who->facility >> t & 1) != 0)
			vb_trace_add(c, row_lock(who->facility_first, who->facility, t), VB_SHARED);
	if ((who->facility >> type & 1) != 0 && there != insert)
		vb_trace_add(c, forwarding_lock(own, s, type, start), VB_EXCLUSIVE);
}

static void get_access_data(struct vb_trace_client *c, uint32_t s)
{
	const struct subscriber *who = &((const struct tatp *)c->t->own)->s[s];
	unsigned type = (unsigned)vb_rng_below(&c->rng, TATP_TYPES);

	if ((who->access >> type & 1) != 0)
		vb_trace_add(c, row_lock(who->access_first, who->access, type), VB_SHARED);
}

static void update_subscriber(struct vb_trace_client *c, uint32_t s)
{
	const struct subscriber *who = &((const struct tatp *)c->t->own)->s[s];
	unsigned type = (unsigned)vb_rng_below(&c->rng, TATP_TYPES);

	vb_trace_add(c, FIRST_ROW + s, VB_EXCLUSIVE);
	if ((who->facility >> type & 1) != 0)
		vb_trace_add(c, row_lock(who->facility_first, who->facility, type), VB_EXCLUSIVE);
}

static void draw(struct vb_trace_client *c)
{
	const struct tatp *own = c->t->own;
	uint32_t s = (uint32_t)vb_trace_nurand(&c->rng, own->run, own->n);

	c->txn.type = vb_trace_draw_type(&c->rng, vb_tatp_percent);
	switch (c->txn.type) {
	case VB_TATP_SUBSCRIBER_DATA:
		vb_trace_add(c, FIRST_ROW + s, VB_SHARED);
		break;
	case VB_TATP_NEW_DESTINATION:
		get_new_destination(c, s);
		break;
	case VB_TATP_ACCESS_DATA:
		get_access_data(c, s);
		break;
	case VB_TATP_UPDATE_SUBSCRIBER:
		update_subscriber(c, s);
		break;
	case VB_TATP_UPDATE_LOCATION:
		vb_trace_add(c, FIRST_ROW + s, VB_EXCLUSIVE);
		break;
	default:
		change_forwarding(c, s, c->txn.type == VB_TATP_INSERT_FORWARDING);
		break;
	}
}

static void next(struct vb_trace_client *c)
{
	for (unsigned i = 0; i < DRAWS && c->txn.n == 0; i++)
		draw(c);
	if (c->txn.n == 0) { /* once in 10^49 times */
		c->txn.type = VB_TATP_SUBSCRIBER_DATA;
		vb_trace_add(c, FIRST_ROW, VB_SHARED);
	}
}

const struct vb_trace_ops vb_trace_tatp = {
	.name = "tatp",
	.summary = "TATP with a lock for each row: few locks, mostly shared",
	.source = "ShiftLock section 4.4",
	.options = table,
	.options_bytes = sizeof(struct tatp_opts),
	.init = init,
	.fini = fini,
	.next = next,
};
