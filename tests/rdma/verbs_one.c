/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric `verbs` in one process: what the generic suite does not reach.  Long verbs, full
 * queues, doorbells and completions counted, refused accesses, a connection that breaks and comes
 * back, notifications, datagrams.
 */
#include "verbs_test.h"

#if !VB_HAVE_IBVERBS
int main(void)
{
	const struct CMUnitTest tests[] = {{"verbs-one", NULL, NULL, NULL, NULL}};

	(void)tests;
	puts("1..1\nok 1 - verbs-one # SKIP built without libibverbs' headers (libibverbs-dev)");
	return 0;
}
#else
#include "base/log.h"
#include "fabric/verbs/inner.h"

#define BYTES     (256u << 10)
#define LONG_NS   60000000000ull
#define TASKS     8
#define VERBS_MAX 65536u

struct here {
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at;
};

static void begin(struct here *h, const char *options)
{
	struct vb_fabric_params p = {.fabric = "verbs", .nodes = 2, .node_bytes = 1 << 20};
	bool fresh;

	verbs_test_need_device();
	p.options = verbs_test_options(false, options);
	assert_int_equal(vb_fabric_open(&p, &h->f), 0);
	assert_int_equal(vb_ep_open(h->f, 0, &h->ep), 0);
	assert_int_equal(vb_region(h->f, 1, "test", BYTES, &h->at, &fresh), 0);
}

static void end(struct here *h)
{
	vb_ep_close(h->ep);
	vb_fabric_close(h->f);
}

static uint64_t word(struct here *h, vb_addr a)
{
	uint64_t v = 0;

	assert_int_equal(vb_read64(h->ep, a, &v), 0);
	return v;
}

static struct vb_fabric_stats stats(struct here *h)
{
	struct vb_fabric_stats s = {0};

	h->f->ops->stats(h->f, &s);
	return s;
}

/* ---- lengths ---- */

static void test_lengths(void **state)
{
	static const uint32_t lengths[] = {0,   1,    64,   65,    128,   160,
					   161, 4095, 4096, 12345, 65535, 65536};
	static uint8_t out[VERBS_MAX + 4], in[VERBS_MAX + 4];
	struct here h;

	(void)state;
	begin(&h, "");
	for (unsigned i = 0; i < sizeof(out); i++)
		out[i] = (uint8_t)(i * 7 + i / 251);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(lengths); i++) {
		for (unsigned shift = 0; shift < 3; shift++) {
			vb_addr a = h.at + 4096 * shift + 13 * shift;

			memset(in, 0xaa, sizeof(in));
			assert_int_equal(vb_write(h.ep, a, out + shift, lengths[i]), 0);
			assert_int_equal(vb_read(h.ep, a, in, lengths[i]), 0);
			assert_memory_equal(in, out + shift, lengths[i]);
			assert_int_equal(in[lengths[i]], 0xaa);
		}
	}
	assert_int_equal(vb_write(h.ep, h.at, out, VERBS_MAX + 1), -EINVAL);
	assert_int_equal(vb_read(h.ep, h.at, in, VERBS_MAX + 1), -EINVAL);
	end(&h);
}

struct reader {
	struct here *h;
	unsigned number;
	int err;
};

static void long_body(void *arg)
{
	struct reader *me = arg;
	uint8_t *buf = malloc(VERBS_MAX), *seen = malloc(VERBS_MAX);
	struct vb_ep *ep;

	me->err = buf != NULL && seen != NULL ? vb_ep_open(me->h->f, 0, &ep) : -ENOMEM;
	if (me->err == 0) {
		for (unsigned i = 0; i < 6 && me->err == 0; i++) {
			/* Two own 16 KiB areas per task. */
			vb_addr a = me->h->at + (2 * me->number + i % 2) * 16384;

			memset(buf, (int)(me->number * 16 + i), 16384);
			me->err = vb_write(ep, a, buf, 16384);
			if (me->err == 0)
				me->err = vb_read(ep, a, seen, 16384);
			if (me->err == 0 && memcmp(buf, seen, 16384) != 0)
				me->err = -EIO;
		}
		vb_ep_close(ep);
	}
	free(buf);
	free(seen);
}

static void run_tasks(struct here *h, void (*body)(void *), struct reader *r, unsigned n)
{
	struct vb_sched *s = h->ep->sched;

	for (unsigned i = 0; i < n; i++) {
		r[i] = (struct reader){.h = h, .number = i, .err = 1};
		assert_int_equal(vb_task_spawn(s, body, &r[i], NULL, NULL), 0);
	}
	assert_int_equal(vb_sched_run(s, NULL, vb_sched_now(s) + LONG_NS), 0);
	for (unsigned i = 0; i < n; i++)
		assert_int_equal(r[i].err, 0);
}

/* Eight tasks want 32 pieces at a time of a pool that has 32. */
static void test_small_pool(void **state)
{
	struct reader r[TASKS];
	struct here h;

	(void)state;
	begin(&h, "bounce=131072");
	run_tasks(&h, long_body, r, TASKS);
	assert_true(stats(&h).waits > 0);
	end(&h);
}

/* ---- queues and doorbells ---- */

/* More than a queue holds, and nobody waits for any of it. */
static void test_queue_full(void **state)
{
	struct vb_verb v[VB_BATCH_MAX];
	struct here h;

	(void)state;
	begin(&h, "depth=64");
	for (unsigned round = 0; round < 40; round++) {
		struct vb_batch b = {.verbs = v, .n = VB_BATCH_MAX};

		for (unsigned i = 0; i < VB_BATCH_MAX; i++)
			v[i] = (struct vb_verb){
				.op = VB_OP_FAA64, .addr = h.at + 8 * (i % 4), .compare.lo = 1};
		assert_true(vb_post(h.ep, &b) >= 0);
	}
	for (unsigned i = 0; i < 4; i++)
		assert_int_equal(word(&h, h.at + 8 * i), 40 * VB_BATCH_MAX / 4);
	assert_true(stats(&h).waits > 0);
	end(&h);
}

static void chain(struct here *h, unsigned n)
{
	struct vb_verb v[16];

	for (unsigned i = 0; i < n; i++)
		v[i] = (struct vb_verb){.op = VB_OP_FAA64,
					.flags = VB_SIGNALLED,
					.addr = h->at + 8 * i,
					.compare.lo = 1};
	assert_int_equal(vb_post_wait(h->ep, v, n), 0);
}

/* What the batches are for, in numbers. */
static void test_doorbells(void **state)
{
	struct vb_fabric_stats s[3], z;
	static const char *const how[] = {"", "doorbell=each", "doorbell=each,signal=all"};

	(void)state;
	for (unsigned k = 0; k < 3; k++) {
		struct here h;

		begin(&h, how[k]);
		z = stats(&h);
		for (unsigned i = 0; i < 50; i++)
			chain(&h, 16);
		s[k] = stats(&h);
		assert_int_equal(s[k].posted - z.posted, 50 * 16);
		s[k].doorbells -= z.doorbells;
		s[k].completions -= z.completions;
		assert_int_equal(word(&h, h.at), 50);
		end(&h);
	}
	assert_int_equal(s[0].doorbells, 50);
	assert_int_equal(s[0].completions, 50);
	assert_int_equal(s[1].doorbells, 50 * 16);
	assert_int_equal(s[2].doorbells, 50 * 16);
	assert_int_equal(s[2].completions, 50 * 16);
}

static void add_body(void *arg)
{
	struct reader *me = arg;
	struct vb_ep *ep;
	uint64_t old;

	me->err = vb_ep_open(me->h->f, 0, &ep);
	if (me->err != 0)
		return;
	for (unsigned i = 0; i < 50 && me->err == 0; i++)
		me->err = vb_faa64(ep, me->h->at, 1, &old);
	vb_ep_close(ep);
}

/* Verbs of several tasks leave with one doorbell. */
static void test_coalescing(void **state)
{
	struct reader r[TASKS];
	struct vb_fabric_stats s, z;
	struct here h;

	(void)state;
	begin(&h, "");
	z = stats(&h);
	run_tasks(&h, add_body, r, TASKS);
	s = stats(&h);
	assert_int_equal(s.posted - z.posted, 50 * TASKS);
	assert_true(s.doorbells - z.doorbells < 50 * TASKS / 2);
	assert_int_equal(word(&h, h.at), 50 * TASKS);
	end(&h);
}

/* ---- refused accesses, and the way back ---- */

static void come_back(struct here *h)
{
	uint64_t until = vb_ep_now(h->ep) + LONG_NS, v;
	int err;

	while ((err = vb_read64(h->ep, h->at, &v)) == -VB_EPEERGONE && vb_ep_now(h->ep) < until)
		assert_int_equal(vb_ep_sleep(h->ep, 1000000), 0);
	assert_int_equal(err, 0);
}

static void batch_of_three(struct here *h, struct vb_verb *v)
{
	for (unsigned i = 0; i < 3; i++)
		v[i] = (struct vb_verb){
			.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = h->at, .compare.lo = 1};
}

static void test_wrong_key(void **state)
{
	struct vb_verb v[3];
	struct verbs *w;
	struct here h;
	uint32_t key;

	(void)state;
	begin(&h, "");
	w = verbs_of(net_of(h.f));
	key = w->hosts[0].rkey;
	w->hosts[0].rkey ^= 0x5a;
	batch_of_three(&h, v);
	assert_int_equal(vb_post_wait(h.ep, v, 3), -VB_EACCESS);
	assert_int_equal(v[0].status, -VB_EACCESS);
	/* They stood behind it on the same connection: nobody knows. */
	assert_int_equal(v[1].status, -VB_EUNKNOWN);
	assert_int_equal(v[2].status, -VB_EUNKNOWN);
	w->hosts[0].rkey = key;
	come_back(&h);
	assert_int_equal(word(&h, h.at), 0);
	chain(&h, 16);
	assert_int_equal(word(&h, h.at), 1);
	end(&h);
}

static void test_out_of_bounds(void **state)
{
	uint8_t buf[16] = {0};
	struct verbs *w;
	struct here h;

	(void)state;
	begin(&h, "lanes=2");
	w = verbs_of(net_of(h.f));
	w->hosts[0].base += 1u << 30;
	assert_int_equal(vb_read(h.ep, h.at, buf, sizeof(buf)), -VB_EACCESS);
	w->hosts[0].base -= 1u << 30;
	come_back(&h);
	assert_int_equal(vb_write(h.ep, h.at, buf, sizeof(buf)), 0);
	end(&h);
}

/* A broken connection: what is built and not rung has not happened, and everything ends.  Again and
 * again, under load. */
static void test_breaks(void **state)
{
	struct here h;

	(void)state;
	begin(&h, "lanes=2");
	for (unsigned round = 0; round < 10; round++) {
		struct vb_verb v[VB_BATCH_MAX];
		struct vb_batch b = {.verbs = v, .n = VB_BATCH_MAX};
		struct net_fabric *f = net_of(h.f);
		struct verbs *w = verbs_of(f);

		for (unsigned i = 0; i < VB_BATCH_MAX; i++)
			v[i] = (struct vb_verb){.op = VB_OP_FAA64,
						.flags = VB_SIGNALLED,
						.addr = h.at,
						.compare.lo = 1};
		assert_true(vb_post(h.ep, &b) >= 0);
		pthread_mutex_lock(&f->engine);
		if (round % 2 == 1) /* else it has not left yet */
			f->t->flush(f);
		verbs_break(w, &w->hosts[0], VERBS_DOWN);
		verbs_done_flush(w);
		pthread_mutex_unlock(&f->engine);
		(void)vb_wait(h.ep, &b);
		for (unsigned i = 0; i < VB_BATCH_MAX; i++)
			assert_true(v[i].status == 0 || v[i].status == -VB_EUNKNOWN ||
				    v[i].status == -VB_EPEERGONE);
		come_back(&h);
		assert_int_equal(w->n_asked, 0);
	}
	end(&h);
}

/* ---- messages ---- */

static int take(struct vb_ep *ep, struct vb_msg *m)
{
	uint64_t until = vb_ep_now(ep) + LONG_NS;
	int err;

	while ((err = vb_ep_recv(ep, m)) == -EAGAIN) {
		err = vb_ep_wait(ep, until);
		if (err != 0)
			return err;
	}
	return err;
}

/* A bare number rides on the WRITE itself. */
static void test_bare_notify(void **state)
{
	struct here h;
	struct vb_ep *to;

	(void)state;
	begin(&h, "");
	assert_int_equal(vb_ep_open(h.f, 1, &to), 0);
	for (unsigned i = 0; i < 200; i++) {
		struct vb_msg note = {.imm = i}, m;
		uint64_t data = i, seen = 0;
		struct vb_verb v = {.op = VB_OP_WRITE_NOTIFY,
				    .addr = h.at,
				    .buf = &data,
				    .len = sizeof(data),
				    .peer = to->self,
				    .msg = &note};
		struct vb_batch b = {.verbs = &v, .n = 1};

		assert_true(verbs_notify_is_bare(&v));
		assert_true(vb_post(h.ep, &b) >= 0);
		assert_int_equal(take(to, &m), 0);
		assert_int_equal(m.imm, i);
		assert_int_equal(vb_peer_client(m.from), 0);
		assert_int_equal(vb_read64(to, h.at, &seen), 0);
		assert_int_equal(seen, i);
	}
	vb_ep_close(to);
	end(&h);
}

/* All of them sent, part of them lost, the others come once. */
static void test_datagrams(void **state)
{
	unsigned came = 0, last = 0;
	struct here h;
	struct vb_ep *to;
	struct vb_msg m;

	(void)state;
	begin(&h, "rpc=ud,drop=0.5");
	assert_true(h.f->caps.flags & VB_CAP_DATAGRAM);
	assert_int_equal(vb_ep_open(h.f, 1, &to), 0);
	for (unsigned i = 1; i <= 200; i++) {
		struct vb_msg out = {.imm = i};
		struct vb_verb v = {
			.op = VB_OP_SEND, .flags = VB_DATAGRAM, .peer = to->self, .msg = &out};

		assert_int_equal(vb_verb_run(h.ep, &v), 0);
	}
	/* Behind them on the connection, which loses nothing. */
	assert_int_equal(vb_send_wait(h.ep, to->self, &(struct vb_msg){.imm = 1000}), 0);
	for (;;) {
		assert_int_equal(take(to, &m), 0);
		if (m.imm == 1000)
			break;
		assert_true(m.imm > last);
		last = m.imm;
		came++;
	}
	assert_in_range(came, 40, 160);
	assert_int_equal(stats(&h).dropped, 200 - came);
	vb_ep_close(to);
	end(&h);
}

/* What a peer gone mad could send: nothing of it is believed, and a new connection is as good as
 * ever. */
static void test_garbage(void **state)
{
	uint64_t data[VERBS_RECV_BYTES / 8];
	struct net_fabric *f;
	struct verbs *w;
	struct vb_rng rng;
	struct vb_ep *to;
	struct vb_msg m;
	struct here h;

	(void)state;
	begin(&h, "");
	vb_rng_seed(&rng, 3, 3);
	f = net_of(h.f);
	w = verbs_of(f);
	vb_log_capture_begin((char[256]){""}, 256); /* it complains, at length */
	for (unsigned i = 0; i < 20000; i++) {
		uint32_t bytes = (uint32_t)vb_rng_below(&rng, VERBS_RECV_BYTES - VERBS_GRH);
		uint32_t imm = (uint32_t)vb_rng_next(&rng);

		for (unsigned k = 0; k < VB_ARRAY_SIZE(data); k++)
			data[k] = vb_rng_next(&rng);
		((uint8_t *)data)[0] = (uint8_t)(i % 4); /* the kinds that there are */
		if (i % 3 == 0)
			imm &= 0xff000000;
		if (i % 5 == 0)
			bytes = sizeof(m);
		pthread_mutex_lock(&f->engine);
		verbs_message_came(w, 0, (uint8_t *)data, bytes, imm);
		verbs_bare_came(w, 0, imm);
		verbs_datagram_came(w, w->ud->qp->qp_num, (uint8_t *)data, bytes, imm);
		pthread_mutex_unlock(&f->engine);
	}
	vb_log_capture_end();
	pthread_mutex_lock(&f->engine);
	verbs_break(w, &w->hosts[0], VERBS_DOWN);
	verbs_done_flush(w);
	pthread_mutex_unlock(&f->engine);
	come_back(&h);
	chain(&h, 16);
	assert_int_equal(word(&h, h.at), 1);
	assert_int_equal(vb_ep_open(h.f, 1, &to), 0);
	assert_int_equal(vb_send_wait(h.ep, to->self, &(struct vb_msg){.imm = 7}), 0);
	assert_int_equal(take(to, &m), 0);
	assert_int_equal(m.imm, 7);
	vb_ep_close(to);
	end(&h);
}

/* ---- options ---- */

/* The address of a port's GID leads back to the port and the GID. */
static void test_address(void **state)
{
	struct verbs_want want = {.gid = -1, .device = verbs_test_device(0)};
	struct vb_fabric_params p = {.fabric = "verbs", .nodes = 1, .node_bytes = 4096};
	struct verbs_choice first, again;
	char addr[64], options[80];
	struct vb_fabric *f;

	(void)state;
	verbs_test_need_device();
	assert_int_equal(verbs_choose(&want, &first), 0);
	if (first.gid == NULL || !first.gid->ipv4) {
		print_message("%s has no GID that is an IPv4 address\n", first.device.name);
		skip();
	}
	want.device = NULL;
	want.addr = verbs_gid_text(first.gid, addr, sizeof(addr));
	assert_int_equal(verbs_choose(&want, &again), 0);
	assert_string_equal(again.device.name, first.device.name);
	assert_int_equal(again.port->number, first.port->number);
	assert_int_equal(again.gid->index, first.gid->index);
	snprintf(options, sizeof(options), "addr=%s,mtu=256", addr);
	p.options = options;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	vb_fabric_close(f);
}

static void test_options(void **state)
{
	static const char *const wrong[] = {"gid=999", "gid=x", "addr=203.0.113.77",
					    "addr=nonsense"};
	struct vb_fabric_params p = {.fabric = "verbs", .nodes = 1, .node_bytes = 4096};
	struct vb_fabric *f;

	(void)state;
	verbs_test_need_device();
	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		p.options = verbs_test_options(false, wrong[i]);
		assert_int_not_equal(vb_fabric_open(&p, &f), 0);
	}
	p.options = "device=no-such-device";
	assert_int_equal(vb_fabric_open(&p, &f), -ENODEV);
	p.options = verbs_test_options(false, "retries=7"); /* for ever, on some devices */
	assert_int_equal(vb_fabric_open(&p, &f), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_lengths),       cmocka_unit_test(test_small_pool),
		cmocka_unit_test(test_queue_full),    cmocka_unit_test(test_doorbells),
		cmocka_unit_test(test_coalescing),    cmocka_unit_test(test_wrong_key),
		cmocka_unit_test(test_out_of_bounds), cmocka_unit_test(test_breaks),
		cmocka_unit_test(test_bare_notify),   cmocka_unit_test(test_datagrams),
		cmocka_unit_test(test_address),       cmocka_unit_test(test_garbage),
		cmocka_unit_test(test_options),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
