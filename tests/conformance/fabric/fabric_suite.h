/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What every fabric must do, as one body.  A fabric's test is a stub: it defines
 *
 *	static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out);
 *
 * before it includes this file, and suite_main() is its main.  Each check gets a fresh fabric of
 * two nodes and says what is wrong, or NULL; that lets planted.c run the same checks on broken
 * fabrics and demand that they are caught.
 */
#ifndef FABRIC_SUITE_H
#define FABRIC_SUITE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "fabric/fabric.h"

#define SUITE_BYTES  4096u
#define SUITE_GUARD  (1 << 20) /* node_bytes */
#define SUITE_RUN_NS 60000000000ull

struct suite {
	struct vb_fabric *f;
	struct vb_ep *ep;
	struct vb_ep *to; /* a second one, for checks that want it; closed if a check leaves it */
	vb_addr a, b;     /* SUITE_BYTES of zeroes on node 0 and on node 1 */
	struct vb_rng rng;
};

typedef const char *(*suite_check)(struct suite *s);

struct suite_case {
	const char *name;
	suite_check check;
};

#define SUITE_TEXT2(x) #x
#define SUITE_TEXT(x)  SUITE_TEXT2(x)
#define want(cond)                                                                                 \
	do {                                                                                       \
		if (!(cond))                                                                       \
			return __FILE__ ":" SUITE_TEXT(__LINE__) ": " #cond;                       \
	} while (0)

static inline uint64_t suite_word(struct suite *s, vb_addr a)
{
	uint64_t v = 0;

	if (vb_read64(s->ep, a, &v) != 0)
		return 0xdeadull << 48;
	return v;
}

static inline int suite_set(struct suite *s, vb_addr a, uint64_t lo, uint64_t hi)
{
	struct vb_u128 v = {lo, hi};

	return vb_write(s->ep, a, &v, sizeof(v));
}

static inline struct vb_u128 suite_pair(struct suite *s, vb_addr a)
{
	struct vb_u128 v = {0};

	if (vb_read(s->ep, a, &v, sizeof(v)) != 0)
		v.hi = 0xdeadull << 48;
	return v;
}

/* Bits in clusters, so that masks and fields of all widths come up. */
static inline uint64_t suite_bits(struct suite *s)
{
	switch (vb_rng_below(&s->rng, 4)) {
	case 0:
		return vb_rng_next(&s->rng);
	case 1:
		return vb_rng_next(&s->rng) & vb_rng_next(&s->rng) & vb_rng_next(&s->rng);
	case 2:
		return vb_rng_chance(&s->rng, 0.5) ? UINT64_MAX : 0;
	default:
		return UINT64_MAX << vb_rng_below(&s->rng, 64) >> vb_rng_below(&s->rng, 64);
	}
}

#include "suite_verbs.h"
#include "suite_order.h"
#include "suite_race.h"
#include "suite_messages.h"

static const struct suite_case suite_cases[] = {
	{"read-write", check_read_write},
	{"cas", check_cas},
	{"faa", check_faa},
	{"masked-cas-64", check_mcas64},
	{"masked-faa-64", check_mfaa64},
	{"masked-cas-128", check_mcas128},
	{"masked-faa-128", check_mfaa128},
	{"swap", check_swap},
	{"bounds", check_bounds},
	{"alignment", check_alignment},
	{"regions", check_regions},
	{"listed", check_listed},
	{"clock", check_clock},
	{"write-then-read", check_write_then_read},
	{"write-order", check_write_order},
	{"fence", check_fence},
	{"awaited-before", check_awaited_before},
	{"unsignalled", check_unsignalled},
	{"batches", check_batches},
	{"not-after", check_not_after},
	{"atomicity", check_atomicity},
	{"whole-pairs", check_whole_pairs},
	{"one-sees-the-other", check_one_sees_the_other},
	{"neighbours", check_neighbours},
	{"send-order", check_send_order},
	{"ring-full", check_ring_full},
	{"notify", check_notify},
	{"waiting", check_waiting},
	{"closed-peer", check_closed_peer},
};
#define SUITE_CASES VB_ARRAY_SIZE(suite_cases)

/* Runs one check on a fresh fabric. */
static inline const char *suite_run(int (*open)(struct vb_fabric_params *, struct vb_fabric **),
				    suite_check check)
{
	struct vb_fabric_params p = {
		.nodes = 2, .node_bytes = SUITE_GUARD, .endpoints = 64, .seed = 7};
	struct suite s = {0};
	const char *why;
	bool fresh;

	vb_rng_seed(&s.rng, 1, 1);
	want(open(&p, &s.f) == 0);
	want(vb_region(s.f, 0, "suite", SUITE_BYTES, &s.a, &fresh) == 0 && fresh);
	want(vb_region(s.f, 1, "suite", SUITE_BYTES, &s.b, &fresh) == 0 && fresh);
	want(vb_ep_open(s.f, 0, &s.ep) == 0);
	why = check(&s);
	vb_ep_close(s.to);
	vb_ep_close(s.ep);
	vb_fabric_close(s.f);
	return why;
}

#ifndef SUITE_PLANTED
static void suite_test(void **state)
{
	const struct suite_case *c = *state;
	const char *why = suite_run(suite_open, c->check);

	if (why != NULL)
		fail_msg("%s: %s", c->name, why);
}

static int suite_main(const char *name)
{
	struct CMUnitTest tests[SUITE_CASES];

	for (unsigned i = 0; i < SUITE_CASES; i++)
		tests[i] = (struct CMUnitTest){.name = suite_cases[i].name,
					       .test_func = suite_test,
					       .initial_state = (void *)&suite_cases[i]};
	return _cmocka_run_group_tests(name, tests, SUITE_CASES, NULL, NULL);
}
#endif

#endif
