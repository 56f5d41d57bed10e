/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Connections that break again and again, with messages under way: no receive buffer is lost, and
 * nothing else runs out.  VERBENA_BREAKS says how often (default 300); the tests of a release take
 * 10,000.
 */
#include "verbs_test.h"

#if !VB_HAVE_IBVERBS
int main(void)
{
	puts("1..1\nok 1 - verbs-breaks # SKIP built without libibverbs' headers (libibverbs-dev)");
	return 0;
}
#else
#include "base/log.h"
#include "fabric/verbs/inner.h"

#define BREAKS_INIT 300
#define LONG_NS     60000000000ull
#define MESSAGES    8

struct here {
	struct vb_fabric *f;
	struct verbs *w;
	struct vb_ep *ep, *to;
	vb_addr at;
};

static void begin(struct here *h)
{
	struct vb_fabric_params p = {.fabric = "verbs", .nodes = 2, .node_bytes = 1 << 20};
	bool fresh;

	verbs_test_need_device();
	p.options = verbs_test_options(false, "lanes=2");
	assert_int_equal(vb_fabric_open(&p, &h->f), 0);
	h->w = verbs_of(net_of(h->f));
	assert_int_equal(vb_ep_open(h->f, 0, &h->ep), 0);
	assert_int_equal(vb_ep_open(h->f, 1, &h->to), 0);
	assert_int_equal(vb_region(h->f, 1, "test", 4096, &h->at, &fresh), 0);
}

static void take_all(struct here *h)
{
	struct vb_msg m;

	while (vb_ep_recv(h->to, &m) == 0)
		continue;
}

static void post_unheard(struct here *h, struct vb_verb v)
{
	struct vb_batch b = {.verbs = &v, .n = 1};

	(void)vb_post(h->ep, &b);
}

static void break_off(struct here *h)
{
	struct net_fabric *f = net_of(h->f);
	uint64_t data = 1;

	for (unsigned i = 0; i < MESSAGES; i++) {
		struct vb_msg m = {.imm = i};

		post_unheard(h, (struct vb_verb){.op = VB_OP_SEND, .peer = h->to->self, .msg = &m});
	}
	post_unheard(h, (struct vb_verb){.op = VB_OP_WRITE, .addr = h->at, .buf = &data, .len = 8});
	pthread_mutex_lock(&f->engine);
	f->t->flush(f);
	verbs_break(h->w, &h->w->hosts[0], VERBS_DOWN);
	verbs_done_flush(h->w);
	pthread_mutex_unlock(&f->engine);
}

/* Looks now, not at the next tick. */
static void hurry(struct here *h)
{
	struct net_fabric *f = net_of(h->f);

	pthread_mutex_lock(&f->engine);
	h->w->tick_ns = 0;
	pthread_mutex_unlock(&f->engine);
	assert_int_equal(vb_ep_sleep(h->ep, 10000), 0);
}

static void come_back(struct here *h)
{
	uint64_t until = vb_ep_now(h->ep) + LONG_NS, v;
	int err;

	while ((err = vb_read64(h->ep, h->at, &v)) == -VB_EPEERGONE && vb_ep_now(h->ep) < until)
		hurry(h);
	assert_int_equal(err, 0);
	take_all(h);
}

/* Those that came in the last two laps. */
static uint32_t buffers_in_use(const struct verbs *w)
{
	uint32_t n = 0;

	for (uint32_t at = 0; at < w->n_recvs + w->n_spares; at++) {
		uint64_t turn = w->recv_turn[at];

		n += turn != 0 && turn != UINT64_MAX && w->recv_turns - turn <= 2 * w->n_recvs;
	}
	return n;
}

static void test_breaks(void **state)
{
	const char *wanted = getenv("VERBENA_BREAKS");
	unsigned long n = wanted != NULL ? strtoul(wanted, NULL, 10) : BREAKS_INIT;
	uint64_t start = vb_clock_gettime_ns(), until;
	struct here h;

	(void)state;
	begin(&h);
	for (unsigned long i = 0; i < n; i++) {
		break_off(&h);
		come_back(&h);
	}
	until = vb_ep_now(h.ep) + LONG_NS;
	for (unsigned i = 0;
	     (h.w->n_dying > 0 || h.w->doubt || i < 4 * h.w->n_recvs) && vb_ep_now(h.ep) < until;
	     i++) {
		assert_int_equal(vb_send_wait(h.ep, h.to->self, &(struct vb_msg){.imm = i}), 0);
		take_all(&h);
	}
	print_message("# %lu breaks in %.1f s\n", n, (double)(vb_clock_gettime_ns() - start) / 1e9);
	assert_int_equal(h.w->n_dying, 0);
	assert_false(h.w->doubt);
	assert_int_equal(h.w->recvs_lost, 0);
	assert_int_equal(buffers_in_use(h.w), h.w->n_recvs);
	assert_int_equal(h.w->hosts[0].state, VERBS_UP);
	vb_ep_close(h.to);
	vb_ep_close(h.ep);
	vb_fabric_close(h.f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_breaks)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
