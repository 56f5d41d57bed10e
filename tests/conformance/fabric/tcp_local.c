/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One process with both nodes, whose own memory the CPU reaches by itself: the generic suite; and
 * what a process does with messages that no member of its cluster has sent.
 */
#include "fabric/fabric.h"

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	p->fabric = "tcp";
	return vb_fabric_open(p, out);
}

#include "fabric_suite.h"
#include "base/log.h"

#include "fabric/net/am/am.h"

#define FORGED 12

struct forgery {
	struct net_fabric *f;
	struct am_wire *w;
	vb_addr a;
	uint8_t body[256];
	uint32_t bytes;
	struct am_header h; /* a good one */
};

static uint64_t word_of(struct forgery *g)
{
	return *(uint64_t *)vb_local(&g->f->f, g->a, 8);
}

/* As if it had come from the network. */
static void arrive(struct forgery *g, const struct am_header *h, const uint8_t *body,
		   uint32_t bytes)
{
	uint8_t wire[AM_HEADER];

	am_header_put(wire, h);
	pthread_mutex_lock(&g->f->engine);
	(void)am_came(g->w, wire, sizeof(wire), (void *)body, bytes, false);
	am_tend(g->w);
	pthread_mutex_unlock(&g->f->engine);
}

static void forge_begin(struct forgery *g)
{
	struct vb_verb v = {.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .compare.lo = 1};
	struct vb_fabric_params p = {.fabric = "tcp",
				     .nodes = 2,
				     .node_bytes = 4096,
				     .options = "local=wire,helper=0,bound=10s"};
	struct vb_fabric *f;
	bool fresh;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_int_equal(vb_region(f, 0, "word", 64, &g->a, &fresh), 0);
	g->f = net_of(f);
	g->w = am_of(g->f);
	v.addr = g->a;
	am_verb_put(g->body, &v, vb_peer_make(0, 1));
	g->bytes = am_verb_bytes(&v);
	g->h = (struct am_header){.kind = AM_VERBS,
				  .session = g->w->session,
				  .epoch = g->w->host[0].from_epoch,
				  .number = g->w->host[0].expected,
				  .clock = UINT64_MAX,
				  .verbs = 1,
				  .bytes = g->bytes};
}

/* Each wrong in one thing; none is executed, and the sender that is right is not disturbed. */
static void test_strangers(void **state)
{
	struct forgery g;
	struct am_header h[FORGED];
	struct am_wire *w;
	uint8_t bad[256];

	forge_begin(&g);
	w = g.w;
	for (unsigned i = 0; i < FORGED; i++)
		h[i] = g.h;
	h[0].session ^= 1;
	h[1].host = 1;
	h[2].host = UINT32_MAX;
	h[3].bytes--;
	h[4].epoch++;
	h[5].number--;           /* has been executed */
	h[6].clock = 1;          /* over */
	h[7].kind = 0;           /* unknown */
	h[8].flags = 2;          /* unknown */
	h[9].verbs = 2;          /* there is one */
	h[10].kind = AM_ANSWER;  /* to nothing that we have asked */
	h[11].kind = AM_CONTROL; /* means nothing */
	for (unsigned i = 0; i < FORGED; i++) {
		uint64_t next = w->host[0].expected;

		/* Those that are of the session use up a number; nobody else's verbs do. */
		if (h[i].number == g.h.number)
			h[i].number = next;
		arrive(&g, &h[i], g.body, g.bytes);
		assert_int_equal(word_of(&g), 0);
		if (i != 6 && i != 9)
			assert_true(w->host[0].expected == next);
	}
	memcpy(bad, g.body, sizeof(bad));
	bad[0] = VB_OP_COUNT;
	h[0] = g.h;
	h[0].number = w->host[0].expected;
	arrive(&g, &h[0], bad, g.bytes);
	assert_int_equal(word_of(&g), 0);
	/* And the good one is. */
	h[0].number = w->host[0].expected;
	arrive(&g, &h[0], g.body, g.bytes);
	assert_int_equal(word_of(&g), 1);
	vb_fabric_close(&g.f->f);
}

/* What is refused is counted, and said again later, not once and never again and not each time. */
static void test_refused_is_said(void **state)
{
	struct forgery g;
	char text[512] = "";

	forge_begin(&g);
	g.h.session ^= 1;
	vb_log_capture_begin(text, sizeof(text));
	arrive(&g, &g.h, g.body, g.bytes);
	assert_non_null(strstr(text, "1 since the last such line, 1 in all"));
	text[0] = '\0';
	for (unsigned i = 0; i < 1000; i++)
		arrive(&g, &g.h, g.body, g.bytes);
	assert_string_equal(text, "");
	g.w->refused_again_ns = 0; /* ten seconds later */
	arrive(&g, &g.h, g.body, g.bytes);
	assert_non_null(strstr(text, "1001 since the last such line, 1002 in all"));
	vb_log_capture_end();
	vb_fabric_close(&g.f->f);
}

/* Ahead of their turn: held, in any order, as many as the window allows, and executed in order. */
static void test_turns(void **state)
{
	const unsigned order[] = {3, 1, 2, 2, 4, 0};
	struct forgery g;
	struct am_header h;
	uint64_t first;

	forge_begin(&g);
	first = g.w->host[0].expected;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(order); i++) {
		assert_int_equal(word_of(&g), 0);
		h = g.h;
		h.number = first + order[i];
		arrive(&g, &h, g.body, g.bytes);
	}
	assert_int_equal(word_of(&g), 5);
	assert_true(g.w->host[0].expected == first + 5 && g.w->host[0].held_n == 0);
	for (unsigned i = 0; i < 2 * g.w->o.window; i++) {
		h.number = first + 6 + i;
		arrive(&g, &h, g.body, g.bytes);
	}
	assert_int_equal(g.w->host[0].held_n, g.w->o.window);
	assert_int_equal(word_of(&g), 5);
	vb_fabric_close(&g.f->f);
}

#define HERE_0  1000000000000ull
#define THERE_0 5000000000000ull

/* The other's clock when ours shows `here`. */
static uint64_t other(uint64_t here, int64_t ppm)
{
	return THERE_0 + (uint64_t)((__int128)(here - HERE_0) * (1000000 + ppm) / 1000000);
}

/* What is said of another's clock never runs ahead of it, whatever the two do within the bound. */
static void test_clock(void **state)
{
	static const int64_t drifts_ppm[] = {-190, 0, 190};
	struct vb_rng rng;

	vb_rng_seed(&rng, 11, 1);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(drifts_ppm); i++) {
		struct am_host h = {0};
		uint64_t here = HERE_0;

		for (unsigned j = 0; j < 2000; j++) {
			/* Its clock when the answer left, then the way to us. */
			uint64_t way = vb_rng_below(&rng, 3000000), ask, truth;

			am_clock_saw(&h, other(here, drifts_ppm[i]), here + way);
			ask = here + way / 2 + vb_rng_below(&rng, 20000000);
			truth = other(ask, drifts_ppm[i]);
			assert_true(am_clock_there(&h, ask) <= truth);
			/* After some answers it is not far behind either. */
			if (j > 100)
				assert_true(am_clock_there(&h, ask) + 1000000 > truth);
			here += way + vb_rng_below(&rng, 10000000);
		}
		/* It stood still for long (a machine that was suspended): soon believed. */
		for (unsigned j = 0; j < 300; j++) {
			am_clock_saw(&h, 1000000ull * j, here);
			here += 10000000;
		}
		assert_true(am_clock_there(&h, here) <= 3000000000ull);
	}
}

static void test_options(void **state)
{
	static const char *const wrong[] = {
		"seal=nosuch", "local=disk", "bound=0",   "window=0",
		"window=5000", "nosuch=1",   "helper=1h",
	};
	char said[300];

	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		struct vb_fabric_params p = {.fabric = "tcp", .options = wrong[i]};
		struct vb_fabric *f = NULL;

		vb_log_capture_begin(said, sizeof(said));
		said[0] = '\0';
		assert_true(vb_fabric_open(&p, &f) < 0);
		vb_log_capture_end();
		assert_null(f);
		assert_true(said[0] != '\0');
	}
}

static int run_others(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_strangers), cmocka_unit_test(test_refused_is_said),
		cmocka_unit_test(test_turns),     cmocka_unit_test(test_clock),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void)
{
	int failed = suite_main("fabric tcp_local");

	return run_others() != 0 ? 1 : failed;
}
