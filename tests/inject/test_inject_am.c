/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Active messages for which there is no memory, at either side: what was not sent or not executed takes
 * with it what comes behind it.  One process, which reaches its own memory through UCX.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "fabric/fabric.h"
#include "fabric/net/am/am.h"
#include "inject.h"

#define LONG_BYTES 16000 /* more than a message has room for at first */

static const struct inject_plan none = {.how = INJECT_FROM, .at = 1, .classes = INJECT_MEMORY};
static const struct inject_plan none_once = {.how = INJECT_ONCE, .at = 1, .classes = INJECT_MEMORY};

struct world {
	struct vb_fabric *f;
	struct am_wire *w;
	struct vb_ep *ep;
	vb_addr a;
	uint8_t *there;
};

static void begin(struct world *w)
{
	bool fresh;

	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
								   .nodes = 2,
								   .node_bytes = 64 << 10,
								   .options = "local=wire,helper=0,"
									      "bound=2s,retry=1ms"},
					&w->f),
			 0);
	assert_int_equal(vb_region(w->f, 0, "bytes", 2 * LONG_BYTES, &w->a, &fresh), 0);
	assert_int_equal(vb_ep_open(w->f, 0, &w->ep), 0);
	w->w = am_of(net_of(w->f));
	w->there = vb_local(w->f, w->a, 2 * LONG_BYTES);
}

/* Verbs come through again, perhaps over another connection. */
static void end(struct world *w)
{
	uint64_t until = vb_ep_now(w->ep) + 20000000000ull, old;
	int err;

	while ((err = vb_faa64(w->ep, w->a, 1, &old)) != 0 && vb_ep_now(w->ep) < until)
		(void)vb_ep_sleep(w->ep, 1000000);
	assert_int_equal(err, 0);
	vb_ep_close(w->ep);
	assert_int_equal(vb_fabric_close(w->f), 0);
}

/* A long WRITE, as a record's, and behind it the one that frees its lock. */
static void post_behind(void **state)
{
	static uint8_t bytes[LONG_BYTES];
	uint64_t one = 1;
	struct vb_verb v[] = {
		{.op = VB_OP_WRITE, .flags = VB_SIGNALLED, .buf = bytes, .len = sizeof(bytes)},
		{.op = VB_OP_WRITE, .flags = VB_SIGNALLED, .buf = &one, .len = sizeof(one)}};
	struct vb_batch b = {.verbs = v, .n = 2};
	struct world w;

	begin(&w);
	memset(bytes, 7, sizeof(bytes));
	v[0].addr = w.a + 64;
	v[1].addr = w.a;
	inject_arm(&none_once);
	(void)vb_post(w.ep, &b);
	inject_disarm();
	assert_int_equal(inject_failed(), 1);
	(void)vb_wait(w.ep, &b);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(v[i].status,
				 -VB_EUNKNOWN); /* net/am/flight.c, "What did not happen" */
	assert_int_equal(w.there[64], 0);
	assert_int_equal(w.there[0], 0);
	end(&w);
}

/* As if it had come from the network. */
static void arrive(struct world *w, const struct am_header *h, const uint8_t *body)
{
	uint8_t wire[AM_HEADER];

	am_header_put(wire, h);
	(void)am_came(w->w, wire, sizeof(wire), (void *)body, h->bytes, false);
}

static struct am_header of_verb(struct world *w, const struct vb_verb *v, uint8_t *body)
{
	const struct am_host *h = &w->w->host[0];

	am_verb_put(body, v, vb_peer_make(0, 1));
	return (struct am_header){.kind = AM_VERBS,
				  .session = w->w->session,
				  .epoch = h->from_epoch,
				  .number = h->expected,
				  .clock = UINT64_MAX,
				  .verbs = 1,
				  .bytes = am_verb_bytes(v)};
}

/* Nothing of the connection is executed behind what could not be, be it early, next or late. */
static void came_behind(void **state)
{
	const struct vb_verb read = {.op = VB_OP_READ, .flags = VB_SIGNALLED, .len = LONG_BYTES};
	const struct vb_verb add = {.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .compare.lo = 1};
	struct vb_verb v[] = {read, add, add};
	struct am_header h[3];
	uint8_t body[3][256];
	struct world w;

	begin(&w);
	for (unsigned i = 0; i < 3; i++) {
		v[i].addr = w.a;
		h[i] = of_verb(&w, &v[i], body[i]);
		h[i].number += i;
	}
	pthread_mutex_lock(&net_of(w.f)->engine);
	arrive(&w, &h[1], body[1]); /* held until its turn */
	inject_arm(&none);
	arrive(&w, &h[0], body[0]);
	inject_disarm();
	assert_true(inject_failed() > 0);
	arrive(&w, &h[2], body[2]);
	assert_int_equal(*(uint64_t *)w.there, 0);
	am_tend(w.w);
	pthread_mutex_unlock(&net_of(w.f)->engine);
	assert_int_equal(*(uint64_t *)w.there, 0);
	end(&w);
}

/* The same when there is none to hold what is early. */
static void none_to_hold(void **state)
{
	struct vb_verb v = {.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .compare.lo = 1};
	uint8_t body[256];
	struct am_header h;
	struct world w;

	begin(&w);
	v.addr = w.a;
	h = of_verb(&w, &v, body);
	h.number++;
	pthread_mutex_lock(&net_of(w.f)->engine);
	inject_arm(&none);
	arrive(&w, &h, body);
	inject_disarm();
	assert_true(inject_failed() > 0);
	h.number--;
	arrive(&w, &h, body);
	assert_int_equal(*(uint64_t *)w.there, 0);
	am_tend(w.w);
	pthread_mutex_unlock(&net_of(w.f)->engine);
	end(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(post_behind),
		cmocka_unit_test(came_behind),
		cmocka_unit_test(none_to_hold),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
