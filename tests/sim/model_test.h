/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the NIC's model share: a verb's path, crowds of clients, a server and who calls it. */
#ifndef MODEL_TEST_H
#define MODEL_TEST_H

#include "sim_test.h"

static inline uint64_t path(const struct vb_sim_profile *p)
{
	return p->post_ns + p->outbound_ns + 2 * p->one_way_ns + p->inbound_ns + p->poll_ns;
}

static inline uint64_t timed(struct vb_ep *ep, struct vb_verb v)
{
	uint64_t before = now();

	/* Long after whatever was before: no queue, no busy word. */
	assert_int_equal(vb_ep_sleep(ep, 100000), 0);
	before = now();
	assert_int_equal(vb_verb_run(ep, &v), 0);
	return now() - before;
}

/* Many clients that do the same, verb after verb: each on its node, to its address. */
struct load {
	struct vb_ep *ep;
	vb_addr a;
	unsigned n, op, len;
	char *buf;
	uint64_t done_ns;
};

static inline void hammer(void *arg)
{
	struct load *l = arg;

	for (unsigned i = 0; i < l->n; i++) {
		struct vb_verb v = {
			.op = (uint8_t)l->op,
			.addr = l->a,
			.compare.lo = 1,
			.buf = l->buf,
			.len = l->len,
		};

		assert_int_equal(vb_verb_run(l->ep, &v), 0);
	}
	l->done_ns = now();
}

enum { CLIENTS = 128, EACH = 100 };

/* ps per verb of the clients: from nodes 1 to 4 to node 0, or from node 0 to nodes 1 to 4; each to
 * an address of its own `stride` apart. */
static inline uint64_t rate_ps(const char *options, unsigned op, uint64_t stride, unsigned len,
			       bool out)
{
	struct vb_fabric *f = cluster(options, 5, 1);
	static char buf[4096];
	struct load l[CLIENTS];
	uint64_t took;

	for (unsigned i = 0; i < CLIENTS; i++) {
		uint16_t other = (uint16_t)(1 + i % 4);

		l[i] = (struct load){.ep = endpoint(f, out ? 0 : other),
				     .a = vb_addr_make(out ? other : 0, 4096 + i * stride),
				     .n = EACH,
				     .op = op,
				     .len = len,
				     .buf = buf};
		spawn(hammer, &l[i]);
	}
	run_all();
	took = now();
	if (op == VB_OP_FAA64 && stride == 0)
		assert_int_equal(peek(f, l[0].a), CLIENTS * EACH);
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_ep_close(l[i].ep);
	vb_fabric_close(f);
	return took * 1000 / (CLIENTS * EACH);
}

struct server {
	struct vb_ep *ep;
	unsigned served, want;
};

static inline void serve(void *arg)
{
	struct server *s = arg;
	struct vb_msg m;

	vb_ep_serve(s->ep);
	while (s->served < s->want) {
		while (vb_ep_recv(s->ep, &m) == 0) {
			s->served++;
			assert_int_equal(vb_send(s->ep, m.from, &m), 0);
		}
		if (s->served < s->want)
			assert_int_equal(vb_ep_wait(s->ep, VB_FOREVER), 0);
	}
}

struct caller {
	struct vb_ep *ep;
	vb_peer server;
	unsigned n;
};

static inline void call(void *arg)
{
	struct caller *c = arg;
	struct vb_msg m = {.tag = 3, .len = 1, .data = {42}}, r;

	for (unsigned i = 0; i < c->n; i++) {
		m.imm = i;
		assert_int_equal(vb_send(c->ep, c->server, &m), 0);
		while (vb_ep_recv(c->ep, &r) != 0)
			assert_int_equal(vb_ep_wait(c->ep, VB_FOREVER), 0);
		assert_int_equal(r.imm, i);
		assert_int_equal(r.data[0], 42);
		assert_int_equal(r.from, c->server);
	}
}

static inline uint64_t rpc_ns(const char *options, unsigned clients, unsigned each)
{
	struct vb_fabric *f = cluster(options, 5, 1);
	struct server s = {.ep = endpoint(f, 0), .want = clients * each};
	struct caller *c = test_calloc(clients, sizeof(*c));
	uint64_t took;

	spawn(serve, &s);
	for (unsigned i = 0; i < clients; i++) {
		c[i] = (struct caller){endpoint(f, (uint16_t)(1 + i % 4)), s.ep->self, each};
		spawn(call, &c[i]);
	}
	run_all();
	took = now();
	assert_int_equal(s.served, s.want);
	for (unsigned i = 0; i < clients; i++)
		vb_ep_close(c[i].ep);
	vb_ep_close(s.ep);
	vb_fabric_close(f);
	test_free(c);
	return took;
}

#endif
