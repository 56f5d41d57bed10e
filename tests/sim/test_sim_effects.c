/* SPDX-License-Identifier: Apache-2.0 */
/* The effects of the profiles that have some (doc/model.md): as fast as the parameter says, and off as without. */
#include <stdio.h>

#include "model_test.h"

#define CX3_NONE "without=atomics-unit+answer-wire+port-wire+core+outstanding+own-node"
#define NONE     CX3_NONE "+messages+in-order+busy-word"

/* Within two per cent above, for filling and draining. */
#define assert_rate(ps, want) assert_in_range(ps, want, (want)*102 / 100 + 1)

static void test_one_unit_takes_up_a_cards_atomics(void **state)
{
	const struct vb_sim_profile *cx5 = profile_named("cx5-card"),
				    *cx3 = profile_named("cx3-card");

	assert_rate(rate_ps("profile=cx5-card", VB_OP_FAA64, 8, 0, false),
		    1000 * cx5->atomics_unit_ns);
	assert_rate(rate_ps("profile=cx5-card", VB_OP_MFAA128, 16, 0, false),
		    1000 * cx5->atomics_unit_ns);
	assert_rate(rate_ps("profile=cx3-card", VB_OP_FAA64, 8, 0, false),
		    1000 * cx3->atomics_unit_ns);
	/* READs pass by it. */
	assert_rate(rate_ps("profile=cx5-card", VB_OP_READ, 8, 8, false), 1000 * cx5->inbound_ns);
	assert_int_equal(rate_ps("profile=cx5-card,without=atomics-unit", VB_OP_FAA64, 8, 0, false),
			 rate_ps("profile=cx5", VB_OP_FAA64, 8, 0, false));
	assert_int_equal(rate_ps("profile=cx3-card," CX3_NONE, VB_OP_FAA64, 8, 0, false),
			 rate_ps("profile=cx3", VB_OP_FAA64, 8, 0, false));
}

/* Every other client wants one hot word, the others a cold one each: ns until the last of either is done. */
static void beside(const char *options, uint64_t *hot_ns, uint64_t *cold_ns)
{
	struct vb_fabric *f = cluster(options, 5, 1);
	struct load l[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++) {
		l[i] = (struct load){.ep = endpoint(f, (uint16_t)(1 + i % 4)),
				     .a = word(0, i % 2 ? i : 0),
				     .n = EACH,
				     .op = VB_OP_FAA64};
		spawn(hammer, &l[i]);
	}
	run_all();
	*hot_ns = *cold_ns = 0;
	for (unsigned i = 0; i < CLIENTS; i++) {
		uint64_t *last = i % 2 ? cold_ns : hot_ns;

		if (l[i].done_ns > *last)
			*last = l[i].done_ns;
		vb_ep_close(l[i].ep);
	}
	vb_fabric_close(f);
}

/* In order, who wants another word waits behind those that wait for the hot one; or he passes them. */
static void test_a_hot_word_beside_cold_ones(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	uint64_t alone = EACH * (path(p) + p->atomic64_ns), hot, cold, busy;

	busy = EACH * (CLIENTS / 2 - 1) * p->word_ns;
	beside("profile=cx5-card,without=in-order", &hot, &cold);
	assert_true(cold < 2 * alone && hot > busy);
	beside("profile=cx5-card", &hot, &cold);
	assert_true(cold > busy && hot > busy);
	/* The unit is not what keeps the order. */
	beside("profile=cx5-card,without=atomics-unit", &hot, &cold);
	assert_true(cold > busy && hot > busy);
	/* READs pass. */
	assert_rate(rate_ps("profile=cx5-card", VB_OP_READ, 0, 8, false), 1000 * p->inbound_ns);
}

static void test_how_long_a_word_is_busy(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	static const char off[] = "profile=cx5-card,without=busy-word";

	assert_true(p->word_ns != p->word64_busy_ns && p->word_ns != p->word128_busy_ns);
	assert_rate(rate_ps("profile=cx5-card", VB_OP_FAA64, 0, 0, false), 1000 * p->word_ns);
	assert_rate(rate_ps("profile=cx5-card", VB_OP_MFAA128, 0, 0, false), 1000 * p->word_ns);
	assert_rate(rate_ps(off, VB_OP_FAA64, 0, 0, false), 1000 * p->word64_busy_ns);
	assert_rate(rate_ps(off, VB_OP_MFAA128, 0, 0, false), 1000 * p->word128_busy_ns);
}

/* What a link needs for so many bytes, and the heads of their packets. */
static uint64_t on_wire(uint64_t byte_ps, uint64_t bytes)
{
	return byte_ps * (bytes + 30 * ((bytes + 4095) / 4096));
}

static void test_answers_take_the_wire_of_who_answers(void **state)
{
	const struct vb_sim_profile *cx5 = profile_named("cx5-card"),
				    *cx3 = profile_named("cx3-card");

	assert_rate(rate_ps("profile=cx5-card", VB_OP_READ, 4096, 1024, false),
		    on_wire(cx5->answer_byte_ps, 1024));
	assert_rate(rate_ps("profile=cx5-card,without=atomics-unit+port-wire", VB_OP_READ, 4096,
			    4096, false),
		    on_wire(cx5->answer_byte_ps, 4096));
	assert_rate(rate_ps("profile=cx3-card", VB_OP_READ, 4096, 1024, false),
		    on_wire(cx3->answer_byte_ps, 1024));
	/* Small ones leave faster than requests come. */
	assert_rate(rate_ps("profile=cx5-card", VB_OP_READ, 64, 64, false), 1000 * cx5->inbound_ns);
	/* Off, what a card answers costs no wire, as ever. */
	assert_int_equal(rate_ps("profile=cx5-card," NONE, VB_OP_READ, 4096, 1024, false),
			 rate_ps("profile=cx5", VB_OP_READ, 4096, 1024, false));
	assert_rate(rate_ps("profile=cx5-card,without=answer-wire", VB_OP_READ, 4096, 1024, false),
		    on_wire(cx5->port_byte_ps, 1024) / 4);
}

/* Four nodes send to one, or one READs from four: its port has them one after the other. */
static void test_a_port_takes_what_comes_in_turn(void **state)
{
	const struct vb_sim_profile *cx5 = profile_named("cx5-card");

	assert_rate(rate_ps("profile=cx5-card", VB_OP_WRITE, 4096, 4096, false),
		    on_wire(cx5->port_byte_ps, 4096));
	assert_rate(rate_ps("profile=cx5-card", VB_OP_READ, 4096, 4096, true),
		    on_wire(cx5->port_byte_ps, 4096));
	assert_rate(rate_ps("profile=cx5-card,without=port-wire", VB_OP_READ, 4096, 4096, true),
		    on_wire(cx5->answer_byte_ps, 4096) / 4);
	assert_int_equal(rate_ps("profile=cx5-card,without=port-wire+answer-wire", VB_OP_WRITE,
				 4096, 4096, false),
			 rate_ps("profile=cx5", VB_OP_WRITE, 4096, 4096, false));
}

/* Answers leave in the order in which they are ready, each its wire time behind the one before. */
static void test_answers_stand_in_a_queue(void **state)
{
	enum { N = 40, LEN = 1024 };
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card,without=outstanding", 2, 1);
	struct vb_ep *ep = endpoint(f, 1);
	static char buf[N][LEN];
	struct vb_verb v[N];
	uint64_t start = now();

	for (unsigned i = 0; i < N; i++)
		v[i] = (struct vb_verb){.op = VB_OP_READ,
					.flags = VB_SIGNALLED,
					.addr = word(0, 0),
					.buf = buf[i],
					.len = LEN};
	assert_int_equal(vb_post_wait(ep, v, N), 0);
	assert_in_range(now() - start,
			path(p) + p->read_ns + (LEN - 1) / 64 * p->line_ns +
				(N - 1) * on_wire(p->answer_byte_ps, LEN) / 1000,
			path(p) + p->read_ns + (LEN - 1) / 64 * p->line_ns +
				(N - 1) * on_wire(p->answer_byte_ps, LEN) / 1000 + 2);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* What a node sends of its own and what it answers go by one link. */
static void test_requests_and_answers_share_a_link(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card", 5, 1);
	static char buf[4096];
	struct load l[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++) {
		uint16_t other = (uint16_t)(1 + i % 4);
		bool writes = i % 8 < 4;

		l[i] = (struct load){.ep = endpoint(f, writes ? 0 : other),
				     .a = vb_addr_make(writes ? other : 0, 4096 + 4096 * i),
				     .n = EACH,
				     .op = writes ? VB_OP_WRITE : VB_OP_READ,
				     .len = 4096,
				     .buf = buf};
		spawn(hammer, &l[i]);
	}
	run_all();
	assert_rate(now() * 1000 / (CLIENTS * EACH), on_wire(p->answer_byte_ps, 4096));
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_ep_close(l[i].ep);
	vb_fabric_close(f);
}

/* ---- messages between clients ---- */

/* ns until the message has been acknowledged, or with `unsignalled`, until the client that sent it
 * goes on. */
static uint64_t sent(struct vb_ep *ep, struct vb_ep *to, bool unsignalled)
{
	struct vb_msg m = {.tag = 1};
	uint64_t before;

	assert_int_equal(vb_ep_sleep(ep, 100000), 0);
	before = now();
	assert_int_equal(unsignalled ? vb_send(ep, to->self, &m) : vb_send_wait(ep, to->self, &m),
			 0);
	return now() - before;
}

/* ns from when a client sends until the other has it. */
static uint64_t heard(struct vb_ep *ep, struct vb_ep *to)
{
	struct vb_msg m = {.tag = 1};
	uint64_t before;

	assert_int_equal(vb_ep_sleep(ep, 100000), 0);
	while (vb_ep_recv(to, &m) == 0)
		;
	assert_int_equal(vb_ep_sleep(ep, 100000), 0);
	before = now();
	assert_int_equal(vb_send(ep, to->self, &m), 0);
	while (vb_ep_recv(to, &m) != 0)
		assert_int_equal(vb_ep_wait(to, VB_FOREVER), 0);
	return now() - before;
}

static void test_what_a_message_between_clients_costs(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card", 3, 1);
	struct vb_ep *a = endpoint(f, 0), *b = endpoint(f, 1), *c = endpoint(f, 2);
	uint64_t way = path(p) - p->one_way_ns + p->write_ns, start, o;

	/* A connection first, where the latest was to somebody else; and the client stands still,
	 * whether it asks to be told or not. */
	assert_int_equal(sent(a, b, false), path(p) + p->write_ns + p->connect_ns);
	assert_int_equal(sent(a, b, false), path(p) + p->write_ns);
	assert_int_equal(sent(a, c, true), path(p) + p->write_ns + p->connect_ns);
	assert_int_equal(sent(a, c, true), path(p) + p->write_ns);
	assert_int_equal(sent(c, a, true), path(p) + p->write_ns + p->connect_ns);
	/* Heard later than it is acknowledged. */
	assert_int_equal(heard(a, b), way + p->connect_ns + p->hear_ns);
	assert_int_equal(heard(a, b), way + p->hear_ns);
	/* Who has heard gives the card a buffer before he does anything else. */
	start = now();
	assert_int_equal(vb_faa64(b, word(0, 0), 1, &o), 0);
	assert_int_equal(now() - start, path(p) + p->atomic64_ns + p->recv_ns);
	vb_ep_close(c);
	vb_ep_close(b);
	vb_ep_close(a);
	vb_fabric_close(f);
}

static void test_messages_off_and_of_servers_cost_nothing_more(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card,without=messages", 2, 1);
	struct vb_ep *a = endpoint(f, 0), *b = endpoint(f, 1);

	assert_int_equal(sent(a, b, false), path(p) + p->write_ns);
	assert_int_equal(sent(a, b, true), 0);
	assert_int_equal(heard(a, b), path(p) - p->one_way_ns + p->write_ns);
	vb_ep_close(b);
	vb_ep_close(a);
	vb_fabric_close(f);
	/* One parameter alone. */
	f = cluster("profile=cx5-card,without=hear_ns", 2, 1);
	a = endpoint(f, 0);
	b = endpoint(f, 1);
	assert_int_equal(sent(a, b, false), path(p) + p->connect_ns + p->write_ns);
	vb_ep_close(b);
	vb_ep_close(a);
	vb_fabric_close(f);
	/* Requests, and what answers them. */
	assert_int_equal(rpc_ns("profile=cx5-card", 64, 10),
			 rpc_ns("profile=cx5-card,without=messages", 64, 10));
	assert_int_equal(rpc_ns("profile=cx5-card", 1, 3), rpc_ns("profile=cx5", 1, 3));
}

/* Whom a message is for may be gone when he would hear it, and who has sent it, too. */
static void test_messages_of_and_to_the_gone(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card", 2, 1);
	struct vb_ep *a = endpoint(f, 0), *b = endpoint(f, 1), *c = endpoint(f, 1);
	struct vb_msg m = {.imm = 9};

	assert_int_equal(vb_send_wait(a, b->self, &m), 0);
	assert_int_equal(vb_ep_recv(b, &m), -EAGAIN);
	vb_ep_close(b);
	assert_int_equal(vb_send_wait(a, c->self, &m), 0);
	vb_ep_close(a);
	assert_int_equal(vb_ep_sleep(c, p->hear_ns), 0);
	assert_int_equal(vb_ep_recv(c, &m), 0);
	assert_int_equal(m.imm, 9);
	assert_int_equal(vb_send_wait(c, m.from, &m), -VB_EPEERGONE);
	vb_ep_close(c);
	vb_fabric_close(f);
}

/* ---- cores ---- */

static void test_clients_of_a_core_take_turns(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	uint64_t turn = 1000 * (p->post_ns + p->poll_ns + p->switch_ns), one, many;
	struct vb_fabric *f = cluster("profile=cx5-card,cores=2", 2, 1);
	struct vb_ep *ep = endpoint(f, 1);

	/* A core comes to a client, and stays with it. */
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(0, 2)}),
			 path(p) + p->atomic64_ns + p->switch_ns);
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(0, 2)}),
			 path(p) + p->atomic64_ns);
	vb_ep_close(ep);
	vb_fabric_close(f);

	one = rate_ps("profile=cx5-card,cores=1", VB_OP_READ, 8, 8, true);
	many = rate_ps("profile=cx5-card,cores=4", VB_OP_READ, 8, 8, true);
	assert_rate(one, turn);
	assert_rate(many, turn / 4);
	assert_rate(rate_ps("profile=cx5-card", VB_OP_READ, 8, 8, true), 1000 * p->outbound_ns);
}

/* ns until a server on node 0 has answered, and clients of the same node have done their READs of another
 * (reads_ns); `reads` and `calls`, how many of either. */
static uint64_t shared_ns(const char *options, unsigned reads, unsigned calls, uint64_t *reads_ns)
{
	enum { N = 16 };
	struct vb_fabric *f = cluster(options, 3, 1);
	struct server s = {.ep = endpoint(f, 0), .want = N * calls};
	struct caller c[N];
	struct load l[N];
	char buf[8];
	uint64_t took;

	spawn(serve, &s);
	for (unsigned i = 0; i < N; i++) {
		l[i] = (struct load){.ep = endpoint(f, 0),
				     .a = vb_addr_make(2, 4096 + 8 * i),
				     .n = reads,
				     .op = VB_OP_READ,
				     .len = 8,
				     .buf = buf};
		spawn(hammer, &l[i]);
		c[i] = (struct caller){endpoint(f, 1), s.ep->self, calls};
		spawn(call, &c[i]);
	}
	run_all();
	took = now();
	*reads_ns = 0;
	for (unsigned i = 0; i < N; i++) {
		if (l[i].done_ns > *reads_ns)
			*reads_ns = l[i].done_ns;
		vb_ep_close(l[i].ep);
		vb_ep_close(c[i].ep);
	}
	vb_ep_close(s.ep);
	vb_fabric_close(f);
	return took;
}

static void test_a_server_shares_its_cores(void **state)
{
	enum { READS = 200, CALLS = 100 };
	const struct vb_sim_profile *p = profile_named("cx5-card");
	uint64_t reads = 16 * READS * (p->post_ns + p->poll_ns + p->switch_ns);
	uint64_t calls = 16 * CALLS * (p->handler_ns + p->post_ns), took, read;

	/* Nothing is done at once, and neither keeps the other from its turns. */
	took = shared_ns("profile=cx5-card,cores=1", READS, CALLS, &read);
	assert_in_range(took, reads + calls, (reads + calls) * 102 / 100);
	assert_true(read > reads * 3 / 2);
	took = shared_ns("profile=cx5-card,cores=1", 1, CALLS, &read);
	assert_in_range(took, calls, calls * 102 / 100);
	took = shared_ns("profile=cx5-card", READS, CALLS, &read);
	assert_in_range(took, calls, calls * 102 / 100);
	/* Two threads of a server, on two cores. */
	took = shared_ns("profile=cx5-card,cores=2,handlers=2", 1, CALLS, &read);
	assert_in_range(took, calls / 2, calls * 53 / 100);
}

/* Of two servers on a node each has a core of its own as long as there is one. */
static void test_servers_of_a_node_have_their_cores(void **state)
{
	enum { N = 32, CALLS = 100 };
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card,cores=2", 2, 1);
	uint64_t calls = N * CALLS * (p->handler_ns + p->post_ns);
	struct server s[2];
	struct caller c[N];

	for (unsigned i = 0; i < 2; i++) {
		s[i] = (struct server){.ep = endpoint(f, 0), .want = N / 2 * CALLS};
		spawn(serve, &s[i]);
	}
	for (unsigned i = 0; i < N; i++) {
		c[i] = (struct caller){endpoint(f, 1), s[i % 2].ep->self, CALLS};
		spawn(call, &c[i]);
	}
	run_all();
	assert_in_range(now(), calls / 2, calls * 55 / 100);
	for (unsigned i = 0; i < N; i++)
		vb_ep_close(c[i].ep);
	for (unsigned i = 0; i < 2; i++)
		vb_ep_close(s[i].ep);
	vb_fabric_close(f);
}

static void test_options_that_need_an_effect(void **state)
{
	static const char *const wrong[] = {"profile=cx5,cores=2",
					    "profile=cx5-card,cores=2,handlers=3",
					    "profile=cx5-card,without=core,cores=2"};
	struct vb_fabric *f;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		struct vb_fabric_params p = {.fabric = "sim",
					     .options = wrong[i],
					     .nodes = 1,
					     .node_bytes = NODE_BYTES,
					     .endpoints = 1,
					     .seed = 1};

		assert_int_equal(vb_fabric_open(&p, &f), -EINVAL);
	}
}

/* ---- outstanding ---- */

/* ns that so many verbs of one client to one node take, in one doorbell; the op of each is ops[i % 2]. */
static uint64_t batch_ns(const char *options, const unsigned *ops, unsigned n)
{
	struct vb_fabric *f = cluster(options, 2, 1);
	struct vb_ep *ep = endpoint(f, 1);
	struct vb_verb v[VB_BATCH_MAX];
	uint64_t data[VB_BATCH_MAX] = {0}, start = now();

	for (unsigned i = 0; i < n; i++)
		v[i] = (struct vb_verb){.op = (uint8_t)ops[i % 2],
					.flags = VB_SIGNALLED,
					.addr = word(0, i),
					.buf = &data[i],
					.len = 8};
	assert_int_equal(vb_post_wait(ep, v, n), 0);
	start = now() - start;
	vb_ep_close(ep);
	vb_fabric_close(f);
	return start;
}

/* A connection has sixteen READs and atomics under way; the others wait, and what is behind them. */
static void test_so_many_answers_are_under_way(void **state)
{
	static const unsigned reads[] = {VB_OP_READ, VB_OP_READ},
			      mixed[] = {VB_OP_FAA64, VB_OP_READ},
			      writes[] = {VB_OP_WRITE, VB_OP_WRITE};
	static const char on[] = "profile=cx5-card", off[] = "profile=cx5-card,without=outstanding";
	const struct vb_sim_profile *p = profile_named("cx5-card");
	uint64_t trip = path(p) - p->post_ns - p->poll_ns + p->read_ns;
	unsigned max = (unsigned)p->answers_max;

	assert_int_equal(max, 16);
	assert_int_equal(batch_ns(on, reads, max), batch_ns(off, reads, max));
	assert_true(batch_ns(on, reads, max + 1) > batch_ns(off, reads, max + 1) + trip / 2);
	assert_true(batch_ns(on, mixed, max + 1) > batch_ns(off, mixed, max + 1) + trip / 2);
	assert_true(batch_ns(on, reads, 4 * max) > 4 * trip);
	assert_int_equal(batch_ns(on, writes, 4 * max), batch_ns(off, writes, 4 * max));
}

/* ---- the own node, and others that are further away ---- */

static void test_the_own_node_as_memory(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card,own=memory", 2, 1);
	struct vb_ep *ep = endpoint(f, 1), *next = endpoint(f, 1), *far = endpoint(f, 0);
	uint64_t here = p->post_ns + p->own_ns + p->poll_ns, x = 7;
	struct vb_verb write = {.op = VB_OP_WRITE, .addr = word(1, 4), .buf = &x, .len = 8};

	assert_int_equal(
		timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(1, 2), .compare.lo = 3}),
		here);
	assert_int_equal(peek(f, word(1, 2)), 3);
	assert_int_equal(timed(ep, write), here);
	assert_int_equal(peek(f, word(1, 4)), 7);
	/* Messages stay there, too, and are none of the card's. */
	assert_in_range(sent(ep, next, false), here, here + 1);
	assert_int_equal(sent(ep, next, true), 0);
	assert_int_equal(heard(ep, next), here);
	/* Others are as far as ever. */
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(0, 2)}),
			 path(p) + p->atomic64_ns);
	assert_int_equal(sent(ep, far, true), path(p) + p->write_ns + p->connect_ns);
	vb_ep_close(far);
	vb_ep_close(next);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* Nothing of it takes a queue or a wire of the card: as fast as the clients' CPUs. */
static void test_the_own_nodes_memory_has_no_queue(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5-card");
	struct vb_fabric *f = cluster("profile=cx5-card,own=memory", 1, 1);
	static char buf[4096];
	struct load l[CLIENTS];

	for (unsigned i = 0; i < CLIENTS; i++) {
		l[i] = (struct load){.ep = endpoint(f, 0),
				     .a = word(0, 0),
				     .n = EACH,
				     .op = i % 2 ? VB_OP_READ : VB_OP_FAA64,
				     .len = 8,
				     .buf = buf};
		spawn(hammer, &l[i]);
	}
	run_all();
	assert_int_equal(now(), EACH * (p->post_ns + p->own_ns + p->poll_ns));
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_ep_close(l[i].ep);
	vb_fabric_close(f);
}

/* A delay is the profile's business no more than a cable is: any has it. */
static void test_a_delay_between_nodes(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	struct vb_fabric *f = cluster("profile=cx5,delay=1ms", 2, 1);
	struct vb_ep *ep = endpoint(f, 1), *to = endpoint(f, 0);

	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(0, 2)}),
			 path(p) + p->atomic64_ns + 1000000);
	assert_int_equal(sent(ep, to, false), path(p) + p->write_ns + 1000000);
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(1, 2)}),
			 path(p) + p->atomic64_ns);
	assert_int_equal(f->caps.verb_bound_ns, p->verb_bound_ns + 1000000);
	assert_int_equal(f->caps.rtt_ns, vb_sim_rtt_ns(p) + 1000000);
	vb_ep_close(to);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* But for messages, queues are all that effects add: a verb alone takes as long as without them. */
static void test_effects_cost_a_verb_alone_nothing(void **state)
{
	static const char *const cards[] = {"cx5-card", "cx4-card", "cx3-card"};
	static char buf[4096];

	for (unsigned c = 0; c < VB_ARRAY_SIZE(cards); c++) {
		const struct vb_sim_profile *p = profile_named(cards[c]);
		struct vb_fabric *f;
		struct vb_ep *ep;
		char text[64];

		snprintf(text, sizeof(text), "profile=%s", cards[c]);
		f = cluster(text, 2, 1);
		ep = endpoint(f, 1);
		assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_READ,
							    .addr = word(0, 2),
							    .buf = buf,
							    .len = 4096}),
				 path(p) + p->read_ns + 63 * p->line_ns);
		assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_WRITE,
							    .addr = word(0, 2),
							    .buf = buf,
							    .len = 4096}),
				 path(p) + p->write_ns + 63 * p->line_ns);
		assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(0, 2)}),
				 path(p) + p->atomic64_ns);
		vb_ep_close(ep);
		vb_fabric_close(f);
	}
}

static void test_what_can_be_switched_off(void **state)
{
	static const char *const wrong[] = {
		"profile=cx5-card,without=atomic-unit", "profile=cx5,without=atomics-unit",
		"profile=cx5-card,without=atomics-unit+atomics-unit",
		"profile=cx5-card,without=atomics-unit+", "profile=cx5-card,without=read_ns"};
	struct vb_fabric *f;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		struct vb_fabric_params p = {.fabric = "sim",
					     .options = wrong[i],
					     .nodes = 1,
					     .node_bytes = NODE_BYTES,
					     .endpoints = 1,
					     .seed = 1};

		assert_int_equal(vb_fabric_open(&p, &f), -EINVAL);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_unit_takes_up_a_cards_atomics),
		cmocka_unit_test(test_a_hot_word_beside_cold_ones),
		cmocka_unit_test(test_how_long_a_word_is_busy),
		cmocka_unit_test(test_answers_take_the_wire_of_who_answers),
		cmocka_unit_test(test_a_port_takes_what_comes_in_turn),
		cmocka_unit_test(test_answers_stand_in_a_queue),
		cmocka_unit_test(test_requests_and_answers_share_a_link),
		cmocka_unit_test(test_what_a_message_between_clients_costs),
		cmocka_unit_test(test_messages_off_and_of_servers_cost_nothing_more),
		cmocka_unit_test(test_messages_of_and_to_the_gone),
		cmocka_unit_test(test_clients_of_a_core_take_turns),
		cmocka_unit_test(test_a_server_shares_its_cores),
		cmocka_unit_test(test_servers_of_a_node_have_their_cores),
		cmocka_unit_test(test_options_that_need_an_effect),
		cmocka_unit_test(test_so_many_answers_are_under_way),
		cmocka_unit_test(test_the_own_node_as_memory),
		cmocka_unit_test(test_the_own_nodes_memory_has_no_queue),
		cmocka_unit_test(test_a_delay_between_nodes),
		cmocka_unit_test(test_effects_cost_a_verb_alone_nothing),
		cmocka_unit_test(test_what_can_be_switched_off),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
