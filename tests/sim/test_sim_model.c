/* SPDX-License-Identifier: Apache-2.0 */
/* The NIC's model: what a verb costs, where verbs queue, in which order they take effect. */
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "child.h"
#include "model_test.h"

static void test_a_verb_costs_the_sum_of_its_terms(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep = endpoint(f, 1), *to = endpoint(f, 0);
	struct vb_msg m = {.tag = 1};
	char buf[4096] = {0};
	vb_addr a = word(0, 2);

	assert_int_equal(
		timed(ep, (struct vb_verb){.op = VB_OP_READ, .addr = a, .buf = buf, .len = 8}),
		path(p) + p->read_ns);
	assert_int_equal(
		timed(ep, (struct vb_verb){.op = VB_OP_WRITE, .addr = a, .buf = buf, .len = 64}),
		path(p) + p->write_ns);
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = a, .compare.lo = 1}),
			 path(p) + p->atomic64_ns);
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_MFAA128, .addr = a}),
			 path(p) + p->atomic128_ns);
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_SEND, .peer = to->self, .msg = &m}),
			 path(p) + p->write_ns);
	/* Further lines, on the way there or back. */
	assert_int_equal(
		timed(ep, (struct vb_verb){.op = VB_OP_READ, .addr = a, .buf = buf, .len = 4096}),
		path(p) + p->read_ns + 63 * p->line_ns);
	assert_int_equal(
		timed(ep, (struct vb_verb){.op = VB_OP_WRITE, .addr = a, .buf = buf, .len = 65}),
		path(p) + p->write_ns + p->line_ns);
	/* One's own node is as far as any other. */
	assert_int_equal(timed(ep, (struct vb_verb){.op = VB_OP_FAA64, .addr = word(1, 2)}),
			 path(p) + p->atomic64_ns);
	vb_ep_close(to);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* Facts of ShiftLock's testbed that the profile must reproduce. */
static void test_cx5_agrees_with_its_sources(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");

	assert_int_equal(path(p) + p->atomic128_ns, 2050);
	assert_true(path(p) + p->read_ns <= 2000);
	assert_true(p->atomic128_ns > p->atomic64_ns && p->word128_busy_ns > p->word64_busy_ns);
}

static void test_effects_of_every_verb(void **state)
{
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep = endpoint(f, 1);
	struct vb_u128 old, one = {1, 2}, ones = {UINT64_MAX, UINT64_MAX}, none = {0, 0};
	vb_addr a = word(0, 0);
	uint64_t o;

	assert_int_equal(vb_faa64(ep, a, 5, &o), 0);
	assert_int_equal(o, 0);
	assert_int_equal(vb_cas64(ep, a, 5, 9, &o), 0);
	assert_int_equal(vb_cas64(ep, a, 5, 11, &o), 0);
	assert_int_equal(o, 9);
	assert_int_equal(vb_swap64(ep, a, 0xffff, VB_FOREVER, &o), 0);
	assert_int_equal(o, 9);
	/* Two fields of 16 bits: the carry out of the lower one is dropped. */
	assert_int_equal(vb_mfaa64(ep, a, 0x10001, 0x80008000, &o), 0);
	assert_int_equal(o, 0xffff);
	assert_int_equal(vb_read64(ep, a, &o), 0);
	assert_int_equal(o, 0x10000);
	assert_int_equal(vb_mcas64(ep, a, 0x10000, 0xf0000, 0xabcd, 0xff, &o), 0);
	assert_int_equal(peek(f, a), 0x100cd);
	assert_int_equal(vb_mcas128(ep, a, none, none, one, ones, &old), 0);
	assert_int_equal(old.lo, 0x100cd);
	assert_int_equal(vb_mcas128(ep, a, none, ones, none, ones, &old), 0);
	assert_true(vb_u128_eq(old, one));
	assert_int_equal(vb_mfaa128(ep, a, one, none, &old), 0);
	assert_int_equal(peek(f, a), 2);
	assert_int_equal(peek(f, a + 8), 4);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* ns per verb, of atomics to one node. */
static uint64_t rate(unsigned op, uint64_t stride)
{
	return rate_ps(NULL, op, stride, 0, false) / 1000;
}

static void test_a_word_serialises_its_atomics(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	uint64_t ns = rate(VB_OP_FAA64, 0);

	assert_in_range(ns, p->word64_busy_ns, p->word64_busy_ns * 101 / 100);
	ns = rate(VB_OP_MFAA128, 0);
	assert_in_range(ns, p->word128_busy_ns, p->word128_busy_ns * 101 / 100);
	/* Different words, one bucket: a false conflict. */
	ns = rate(VB_OP_FAA64, 4096);
	assert_in_range(ns, p->word64_busy_ns, p->word64_busy_ns * 101 / 100);
}

static void test_inbound_rate_is_the_plateau(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	uint64_t ns = rate(VB_OP_FAA64, 8);

	assert_in_range(ns, p->inbound_ns, p->inbound_ns * 110 / 100);
}

static void test_outbound_rate_is_shared_by_a_node(void **state)
{
	enum { N = 64 };
	const struct vb_sim_profile *p = profile_named("cx5");
	struct vb_fabric *f = cluster(NULL, N + 1, 1);
	struct vb_ep *ep = endpoint(f, 0);
	struct vb_verb v[N];
	uint64_t start = now();

	for (unsigned i = 0; i < N; i++)
		v[i] = (struct vb_verb){.op = VB_OP_FAA64,
					.flags = VB_SIGNALLED,
					.addr = word((uint16_t)(i + 1), 0)};
	assert_int_equal(vb_post_wait(ep, v, N), 0);
	/* One doorbell, one node's queue, everything else in parallel. */
	assert_int_equal(now() - start, path(p) + p->atomic64_ns + (N - 1) * p->outbound_ns);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

static void test_a_fence_waits_for_the_answers(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep = endpoint(f, 1);
	uint64_t x = 7, start = now();
	struct vb_verb v[3] = {
		{.op = VB_OP_FAA64, .addr = word(0, 0)},
		{.op = VB_OP_WRITE, .flags = VB_FENCE, .addr = word(0, 1), .buf = &x, .len = 8},
		{.op = VB_OP_READ, .flags = VB_SIGNALLED, .addr = word(0, 1), .buf = &x, .len = 8},
	};
	uint64_t got = 0;

	v[2].buf = &got;
	assert_int_equal(vb_post_wait(ep, v, 3), 0);
	assert_int_equal(got, 7);
	assert_true(now() - start >= path(p) + p->atomic64_ns + 2 * p->one_way_ns + p->read_ns);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

static void test_bad_verbs(void **state)
{
	struct vb_fabric *f = cluster("profile=plain64", 2, 1);
	struct vb_ep *ep = endpoint(f, 1), *gone = endpoint(f, 0);
	vb_peer dead = gone->self;
	struct vb_msg m = {0};
	struct vb_u128 z = {0, 0}, old;
	uint64_t o;

	assert_int_equal(vb_faa64(ep, word(0, 0) + 4, 1, &o), -EINVAL);
	assert_int_equal(vb_faa64(ep, vb_addr_make(0, NODE_BYTES), 1, &o), -VB_EACCESS);
	assert_int_equal(vb_faa64(ep, vb_addr_make(9, 64), 1, &o), -VB_EACCESS);
	assert_int_equal(vb_mcas64(ep, word(0, 0), 0, 0, 0, 0, &o), -EOPNOTSUPP);
	assert_int_equal(vb_mfaa128(ep, word(0, 0), z, z, &old), -EOPNOTSUPP);
	assert_int_equal(vb_send_wait(ep, VB_PEER_NONE, &m), -EINVAL);
	assert_true(vb_peer_alive(f, dead));
	vb_ep_close(gone);
	assert_false(vb_peer_alive(f, dead));
	assert_int_equal(vb_send_wait(ep, dead, &m), -VB_EPEERGONE);
	/* The next one in its place has another name. */
	gone = endpoint(f, 0);
	assert_int_not_equal(gone->self, dead);
	vb_ep_close(gone);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

static void test_regions(void **state)
{
	struct vb_fabric *f = cluster(NULL, 2, 1);
	vb_addr a, b;
	bool fresh;

	assert_int_equal(vb_region(f, 1, "x", 100, &a, &fresh), 0);
	assert_true(fresh && a % 64 == 0 && vb_addr_node(a) == 1);
	assert_int_equal(vb_region(f, 1, "x", 100, &b, &fresh), 0);
	assert_true(!fresh && a == b);
	assert_int_equal(vb_region(f, 1, "y", 8, &b, &fresh), 0);
	assert_true(fresh && b % 64 == 0 && b >= a + 100);
	assert_int_equal(vb_region(f, 1, "x", 101, &b, &fresh), -EINVAL);
	assert_int_equal(vb_region(f, 1, "z", NODE_BYTES, &b, &fresh), -ENOSPC);
	assert_non_null(vb_local(f, a, 100));
	assert_null(vb_local(f, vb_addr_make(1, NODE_BYTES - 4), 8));
	vb_fabric_close(f);
}

/* A region is as large as what was touched of it, page by page, whatever its size: thousands of simulated
 * clients have mailboxes that are mostly empty. */
static void test_memory_comes_when_touched(void **state)
{
	const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), bytes = 256ull << 20, step = 2 << 20;
	struct vb_fabric_params p = {.fabric = "sim",
				     .nodes = 1,
				     .node_bytes = bytes + (1 << 20),
				     .endpoints = 1,
				     .seed = 1};
	unsigned char *resident = calloc(bytes / page, 1);
	uint64_t touched = 0, there = 0;
	struct vb_fabric *f;
	char *memory;
	vb_addr a;
	bool fresh;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	assert_int_equal(vb_region(f, 0, "boxes", bytes, &a, &fresh), 0);
	memory = vb_local(f, a, bytes);
	for (uint64_t at = 0; at < bytes; at += step, touched++)
		memory[at] = 1;
	memory += page - (uintptr_t)memory % page;
	assert_int_equal(mincore(memory, bytes - page, resident), 0);
	for (uint64_t i = 0; i < bytes / page; i++)
		there += resident[i] & 1;
	assert_in_range(there, touched / 2, 2 * touched);
	free(resident);
	vb_fabric_close(f);
}

/* ---- messages ---- */

static void test_a_server_pays_for_requests(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	uint64_t one = p->post_ns + p->outbound_ns + p->one_way_ns + p->inbound_ns + p->write_ns +
		       p->poll_ns;
	uint64_t per = p->handler_ns + p->post_ns;

	assert_int_equal(rpc_ns(NULL, 1, 1), 2 * one + p->handler_ns);
	assert_in_range(rpc_ns(NULL, 64, 100) / 6400, per, per * 102 / 100);
	assert_in_range(rpc_ns("handlers=2", 64, 100) / 6400, per / 2, per * 53 / 100);
}

static void test_write_notify_comes_after_its_data(void **state)
{
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep = endpoint(f, 1), *to = endpoint(f, 0);
	struct vb_msg m = {.imm = 5}, got;
	uint64_t x = 77;
	struct vb_verb v = {.op = VB_OP_WRITE_NOTIFY,
			    .addr = word(0, 0),
			    .buf = &x,
			    .len = 8,
			    .peer = to->self,
			    .msg = &m};
	struct vb_batch b = {.verbs = &v, .n = 1};

	assert_int_equal(vb_post(ep, &b), 1);
	assert_int_equal(vb_ep_recv(to, &got), -EAGAIN);
	assert_int_equal(vb_ep_wait(to, VB_FOREVER), 0);
	assert_int_equal(vb_ep_recv(to, &got), 0);
	assert_int_equal(got.imm, 5);
	assert_int_equal(got.from, ep->self);
	assert_int_equal(peek(f, word(0, 0)), 77);
	vb_ep_close(to);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* Half of the clients are gone before what they posted lands; it lands nevertheless. */
static void test_closing_with_verbs_in_flight(void **state)
{
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *watcher = endpoint(f, 0);

	for (unsigned i = 0; i < 10; i++) {
		struct vb_ep *ep = endpoint(f, 1);
		struct vb_verb v = {.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = word(0, 0)};
		struct vb_batch b = {.verbs = &v, .n = 1};

		v.compare.lo = 1;
		assert_int_equal(vb_post(ep, &b), 1);
		vb_ep_close(ep);
	}
	assert_int_equal(vb_ep_sleep(watcher, 100000), 0);
	assert_int_equal(peek(f, word(0, 0)), 10);
	vb_ep_close(watcher);
	vb_fabric_close(f);
}

/* A forked child goes on with a copy of the memory, on its own. */
static void test_a_forked_child_goes_on_alone(void **state)
{
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep = endpoint(f, 1);
	struct vb_verb v = {.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = word(0, 1)};
	struct vb_batch b = {.verbs = &v, .n = 1};
	uint64_t old;
	pid_t child;
	int status;

	assert_int_equal(vb_faa64(ep, word(0, 0), 7, &old), 0);
	/* In flight while the child is made. */
	v.compare.lo = 1;
	assert_int_equal(vb_post(ep, &b), 1);
	child = fork_child();
	if (child == 0) {
		vb_fabric_after_fork(f);
		if (vb_ep_open(f, 1, &ep) != 0 || vb_faa64(ep, word(0, 0), 1, &old) != 0 ||
		    old != 7 || vb_ep_sleep(ep, 100000) != 0 || peek(f, word(0, 1)) != 0)
			_exit(1);
		vb_ep_close(ep);
		vb_fabric_close(f);
		_exit(0);
	}
	assert_true(child > 0);
	assert_int_equal(waitpid(child, &status, 0), child);
	assert_int_equal(status, 0);
	assert_int_equal(vb_wait(ep, &b), 0);
	assert_int_equal(peek(f, word(0, 0)), 7);
	assert_int_equal(peek(f, word(0, 1)), 1);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

static void test_compute_is_the_clients_own_time(void **state)
{
	const struct vb_sim_profile *p = profile_named("cx5");
	struct vb_fabric *f = cluster(NULL, 2, 1);
	struct vb_ep *ep = endpoint(f, 1);
	uint64_t start = now(), o;

	assert_int_equal(vb_sim_compute(ep, 5000), 0);
	assert_int_equal(now() - start, 5000);
	start = now();
	assert_int_equal(vb_faa64(ep, word(0, 0), 1, &o), 0);
	assert_int_equal(now() - start, path(p) + p->atomic64_ns);
	vb_ep_close(ep);
	vb_fabric_close(f);
}

/* ---- sources ---- */

/* Where a profile is like another one, its own numbers need sources of their own. */
static bool is_its_own(const struct vb_sim_profile *p, const struct vb_sim_param *param)
{
	return p->like == NULL ||
	       vb_sim_value(p, param) != vb_sim_value(profile_named(p->like), param);
}

static bool has_own_source(const struct vb_sim_profile *p, const char *param)
{
	for (const struct vb_sim_source *s = p->own; s->text != NULL; s++)
		if (s->param == NULL || strcmp(s->param, param) == 0)
			return true;
	return false;
}

static void test_every_number_has_its_source(void **state)
{
	for (unsigned i = 0; i < vb_sim_profile_count; i++) {
		const struct vb_sim_profile *p = &vb_sim_profiles[i];

		for (unsigned k = 0; k < vb_sim_param_count; k++) {
			const struct vb_sim_param *param = &vb_sim_params[k];
			const struct vb_sim_source *s = vb_sim_source_of(p, param->name);

			if (param->effect != NULL && vb_sim_value(p, param) == 0)
				continue;
			if (s == NULL || (is_its_own(p, param) && !has_own_source(p, param->name)))
				fail_msg("profile '%s': no source of %s", p->name, param->name);
			assert_true(strlen(s->text) > 5);
			assert_non_null(vb_sim_ground_names[s->ground]);
			/* What stands for all the rest claims nothing. */
			if (s->param == NULL)
				assert_true(s->ground == VB_SIM_ESTIMATE ||
					    s->ground == VB_SIM_CHOICE);
		}
		for (const struct vb_sim_source *s = p->own; s->text != NULL; s++) {
			bool known = s->param == NULL && s[1].text == NULL;

			for (unsigned k = 0; k < vb_sim_param_count && s->param != NULL; k++)
				known |= strcmp(vb_sim_params[k].name, s->param) == 0;
			if (!known)
				fail_msg("profile '%s': a source of '%s'", p->name, s->param);
		}
	}
}

/* The table of parameters has each field of a profile: none can come without a source. */
static void test_every_field_is_a_parameter(void **state)
{
	enum { FIRST = offsetof(struct vb_sim_profile, one_way_ns) };
	bool covered[sizeof(struct vb_sim_profile)] = {false};

	for (unsigned k = 0; k < vb_sim_param_count; k++)
		for (size_t b = 0; b < vb_sim_params[k].bytes; b++) {
			assert_false(covered[vb_sim_params[k].offset + b]);
			covered[vb_sim_params[k].offset + b] = true;
		}
	for (size_t b = 0; b < FIRST; b++)
		assert_false(covered[b]);
	/* Behind the last one there is only what aligns the struct. */
	for (size_t b = FIRST; b < offsetof(struct vb_sim_profile, masked128) + 1; b++)
		assert_true(covered[b]);
	assert_true(sizeof(struct vb_sim_profile) - offsetof(struct vb_sim_profile, masked128) <=
		    8);
}

/* What kept seeds stand on: so many profiles, in this order, without effects. */
static void test_what_explorations_draw_from(void **state)
{
	static const char *const drawn[] = {"cx5", "cx3", "plain64", "zero"};

	assert_int_equal(VB_SIM_PROFILES_DRAWN, VB_ARRAY_SIZE(drawn));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(drawn); i++) {
		assert_string_equal(vb_sim_profiles[i].name, drawn[i]);
		for (unsigned k = 0; k < vb_sim_param_count; k++)
			if (vb_sim_params[k].effect != NULL)
				assert_int_equal(
					vb_sim_value(&vb_sim_profiles[i], &vb_sim_params[k]), 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_a_verb_costs_the_sum_of_its_terms),
		cmocka_unit_test(test_cx5_agrees_with_its_sources),
		cmocka_unit_test(test_effects_of_every_verb),
		cmocka_unit_test(test_a_word_serialises_its_atomics),
		cmocka_unit_test(test_inbound_rate_is_the_plateau),
		cmocka_unit_test(test_outbound_rate_is_shared_by_a_node),
		cmocka_unit_test(test_a_fence_waits_for_the_answers),
		cmocka_unit_test(test_bad_verbs),
		cmocka_unit_test(test_regions),
		cmocka_unit_test(test_memory_comes_when_touched),
		cmocka_unit_test(test_a_server_pays_for_requests),
		cmocka_unit_test(test_write_notify_comes_after_its_data),
		cmocka_unit_test(test_closing_with_verbs_in_flight),
		cmocka_unit_test(test_a_forked_child_goes_on_alone),
		cmocka_unit_test(test_compute_is_the_clients_own_time),
		cmocka_unit_test(test_every_number_has_its_source),
		cmocka_unit_test(test_every_field_is_a_parameter),
		cmocka_unit_test(test_what_explorations_draw_from),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
