/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One seed, one trace: in this process, in another one with other addresses, and with thousands of
 * tasks; another seed, another trace.
 */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "sim_test.h"

struct actor {
	struct vb_ep *ep;
	struct actor *all;
	struct vb_rng rng;
	unsigned n, clients;
};

/* A bit of everything: verbs of every kind, batches, messages, sleeps. */
static void act(struct actor *a)
{
	uint64_t r = vb_rng_next(&a->rng), buf[16] = {r}, old;
	vb_addr w = word((uint16_t)(r >> 8) % 3, 2 * (r >> 16 & 63));
	struct vb_u128 x = {r, r >> 1}, m = {UINT64_MAX, 0xff}, o;
	struct vb_msg msg = {.subject = r, .tag = 1};

	switch (r % 8) {
	case 0:
		(void)vb_faa64(a->ep, w, r, &old);
		break;
	case 1:
		(void)vb_cas64(a->ep, w, 0, r, &old);
		break;
	case 2:
		(void)vb_mcas128(a->ep, w, x, m, x, m, &o);
		break;
	case 3:
		(void)vb_mfaa128(a->ep, w, x, m, &o);
		break;
	case 4:
		(void)vb_write(a->ep, w, buf, sizeof(buf));
		break;
	case 5:
		(void)vb_read(a->ep, w, buf, sizeof(buf));
		break;
	case 6:
		(void)vb_send(a->ep, a->all[(r >> 24) % a->clients].ep->self, &msg);
		break;
	default:
		(void)vb_ep_wait(a->ep, vb_ep_now(a->ep) + r % 4096);
		while (vb_ep_recv(a->ep, &msg) == 0)
			a->rng.s[0] ^= msg.subject;
	}
}

static void actor_main(void *arg)
{
	struct actor *a = arg;

	for (unsigned i = 0; i < a->n; i++)
		act(a);
}

static const struct vb_sim_faults everything = {
	.die = 0.0005,
	.pause = 0.01,
	.pause_max_ns = 100000,
	.delay = 0.05,
	.delay_max_ns = 20000,
	.tear = 0.2,
	.lose = 0.01,
	.nic_stall = 0.01,
	.nic_stall_max_ns = 50000,
	.partition = 0.01,
	.partition_max_ns = 300000,
	.drift_max_ppb = 100000,
};

static uint64_t play_on(const char *options, uint64_t seed, unsigned clients, unsigned n,
			bool faults, uint64_t *verbs)
{
	struct vb_fabric *f = cluster(options, 4, seed);
	struct actor *a = calloc(clients, sizeof(*a));
	uint64_t hash;

	assert_non_null(a);
	if (faults)
		vb_sim_set_faults(f, &everything);
	for (unsigned i = 0; i < clients; i++) {
		a[i] = (struct actor){
			.ep = endpoint(f, (uint16_t)(i % 4)), .all = a, .n = n, .clients = clients};
		vb_sim_ep_mortal(a[i].ep, i % 2 == 0);
		vb_rng_seed(&a[i].rng, seed, i);
		spawn(actor_main, &a[i]);
	}
	run_all();
	hash = vb_sim_trace_hash(f);
	*verbs = vb_sim_verbs(f);
	for (unsigned i = 0; i < clients; i++)
		vb_ep_close(a[i].ep);
	vb_fabric_close(f);
	free(a);
	return hash;
}

static uint64_t play(uint64_t seed, unsigned clients, unsigned n, bool faults, uint64_t *verbs)
{
	return play_on(NULL, seed, clients, n, faults, verbs);
}

static void test_one_seed_one_trace(void **state)
{
	for (unsigned faults = 0; faults < 2; faults++) {
		uint64_t v1, v2, v3, first = play(5, 40, 200, faults, &v1);
		void *shift = malloc(12345);

		assert_int_equal(play(5, 40, 200, faults, &v2), first);
		assert_int_equal(v1, v2);
		assert_true(v1 > 1000);
		assert_int_not_equal(play(6, 40, 200, faults, &v3), first);
		free(shift);
	}
}

/* A profile with effects is the one without them when they are off, verb by verb, and repeats itself
 * when they are on. */
static void test_effects_off_are_as_before(void **state)
{
	static const char on[] = "profile=cx5-card";
	static const char off[] = "profile=cx5-card,without=port-wire+own-node+core+outstanding+in-"
				  "order+atomics-unit+"
				  "messages+answer-wire+busy-word";

	for (unsigned faults = 0; faults < 2; faults++) {
		uint64_t verbs, more, plain = play(7, 40, 200, faults, &verbs);
		uint64_t hash = play_on(off, 7, 40, 200, faults, &more);

		assert_int_equal(hash, plain);
		assert_int_equal(more, verbs);
		hash = play_on(on, 7, 40, 200, faults, &verbs);
		assert_int_not_equal(hash, plain);
		assert_int_equal(play_on(on, 7, 40, 200, faults, &more), hash);
		assert_int_equal(more, verbs);
	}
}

/* The addresses of another process differ (address space layout is random), the trace does not. */
static void test_another_process_agrees(void **state)
{
	uint64_t v, mine = play(7, 40, 200, true, &v);
	unsigned long theirs = 0;
	char self[4096] = {0}, command[4200];
	FILE *p;

	assert_true(readlink("/proc/self/exe", self, sizeof(self) - 1) > 0);
	snprintf(command, sizeof(command), "'%s' play 7", self);
	p = popen(command, "r");
	assert_non_null(p);
	assert_int_equal(fscanf(p, "%lx", &theirs), 1);
	assert_int_equal(pclose(p), 0);
	assert_int_equal(theirs, mine);
}

/* What a compiler or an optimisation level may not change.  The numbers are the simulator's own: a
 * change of the model, of a profile or of what `play` draws changes them, and should be one on
 * purpose. */
static void test_the_trace_of_a_known_seed(void **state)
{
	uint64_t v, hash = play(1, 10, 100, true, &v);

	assert_int_equal(v, 867);
	assert_int_equal(hash, 0xcebb2ce569d9cd92ull);
}

static void test_five_thousand_tasks(void **state)
{
	uint64_t verbs, again;
	uint64_t hash = play(3, 5000, 4, false, &verbs);

	assert_in_range(verbs, 5000 * 4 / 2, 5000 * 4);
	assert_int_equal(play(3, 5000, 4, false, &again), hash);
	assert_int_equal(again, verbs);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_seed_one_trace),
		cmocka_unit_test(test_effects_off_are_as_before),
		cmocka_unit_test(test_another_process_agrees),
		cmocka_unit_test(test_the_trace_of_a_known_seed),
		cmocka_unit_test(test_five_thousand_tasks),
	};

	if (argc == 3 && strcmp(argv[1], "play") == 0) {
		uint64_t v;

		printf("%lx\n", (unsigned long)play(strtoull(argv[2], NULL, 0), 40, 200, true, &v));
		return 0;
	}
	return cmocka_run_group_tests(tests, NULL, NULL);
}
