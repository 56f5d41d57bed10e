/* SPDX-License-Identifier: Apache-2.0 */
/* What a server's state has room for, and what of it is free. */
#include "elastic_state.h"
#include "fabric/net/state.h"

/* ---- more endpoints than boxes with letters ---- */

static void gets_one_each(struct world *w)
{
	struct vb_fabric *f, *second;
	static struct vb_ep *ep[NET_STATE_RINGS];
	struct vb_ep *from, *more;
	struct vb_msg m = {.tag = 7};

	MUST_BE(0, open_client(w, &f));
	MUST_BE(0, open_client(w, &second));
	MUST_BE(0, vb_ep_open(second, 0, &from));
	MUST_BE(0, vb_ep_open(second, 0, &more));
	for (unsigned i = 0; i < NET_STATE_RINGS; i++) {
		MUST_BE(0, vb_ep_open(f, 0, &ep[i]));
		UNTIL_0(from, vb_send_wait(from, ep[i]->self, &m));
	}
	/* They are idle with what they have, and somebody else has a message. */
	UNTIL_0(from, vb_send_wait(from, more->self, &m));
	while (vb_ep_recv(more, &m) != 0)
		MUST_BE(0, vb_ep_wait(more, vb_ep_now(more) + WAIT_NS));
	for (unsigned i = 0; i < NET_STATE_RINGS; i++) {
		while (vb_ep_recv(ep[i], &m) != 0)
			MUST_BE(0, vb_ep_wait(ep[i], vb_ep_now(ep[i]) + WAIT_NS));
		vb_ep_close(ep[i]);
	}
	vb_ep_close(from);
	vb_ep_close(more);
	MUST_BE(0, vb_fabric_close(second));
	MUST_BE(0, vb_fabric_close(f));
}

static void test_many_endpoints(void **unused)
{
	struct world w;

	(void)unused;
	state_open(&w, "");
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	ended(client(&w, gets_one_each));
	state_close(&w);
}

/* ---- one whose place is behind one that is free ---- */

static void leaves(struct world *w)
{
	struct vb_fabric *f;

	MUST_BE(0, open_client(w, &f));
	set(&w->b->step[0], 1);
	while (get(&w->b->step[1]) == 0)
		usleep(1000);
	MUST_BE(0, vb_fabric_close(f));
}

static void stays(struct world *w)
{
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t old;
	vb_addr at;
	bool fresh;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	MUST_BE(0, vb_ep_open(f, 0, &ep));
	MUST_BE(0, vb_region(f, 0, "word", 64, &at, &fresh));
	set(&w->b->step[2], 1);
	while (get(&w->b->step[3]) == 0)
		MUST_BE(0, vb_ep_sleep(ep, MS));
	UNTIL_0(ep, vb_faa64(ep, at, 1, &old));
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

static void test_place_before_is_free(void **unused)
{
	struct world w;
	pid_t first, second;

	(void)unused;
	state_open(&w, ",silence=30s,linger=30s");
	server_start(&w, 0, NULL);
	first = client(&w, leaves);
	await(get(&w.b->step[0]));
	second = client(&w, stays);
	await(get(&w.b->step[2]));
	set(&w.b->step[1], 1);
	ended(first);
	await(get(&w.b->server[0].members) == 1);
	again(&w, NULL);
	set(&w.b->step[3], 1);
	ended(second);
	state_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_place_before_is_free),
		cmocka_unit_test(test_many_endpoints),
	};

	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
