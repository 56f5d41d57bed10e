/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What verbs on shared memory cost: ns per verb next to the bare CPU instruction on the same word.
 *
 * All cases take turns, round after round, so that a change of the machine's speed hits them all;
 * the table shows the median over the rounds, the least, and the median of the ratios to the
 * baseline of the same round.  The last lines are messages: to oneself, and to and fro between two
 * processes.
 */
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/fabric.h"

#define ROUNDS     31
#define STEPS      100000u
#define ROUNDTRIPS 2000u

static struct vb_ep *ep;
static vb_addr word;
static void *bare;
static uint64_t sink;

static void must(int err)
{
	if (err != 0) {
		fprintf(stderr, "bench_fabric: unexpected error: %s\n", vb_strerror(err));
		exit(1);
	}
}

/* ---- the CPU alone ---- */

static void bare_xadd(void)
{
	uint64_t *w = bare, sum = 0;

	for (unsigned i = 0; i < STEPS; i++)
		sum += __atomic_fetch_add(w, 1, __ATOMIC_SEQ_CST);
	sink += sum;
}

static void bare_cas(void)
{
	uint64_t *w = bare, expect = __atomic_load_n(w, __ATOMIC_RELAXED);

	for (unsigned i = 0; i < STEPS; i++) {
		__atomic_compare_exchange_n(w, &expect, expect + 1, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		expect++;
	}
}

static void bare_cas128(void)
{
	unsigned __int128 *w = bare, expect = *w, sum = 0;

	for (unsigned i = 0; i < STEPS; i++) {
		sum += __sync_val_compare_and_swap(w, expect, expect + 1);
		expect++;
	}
	sink += (uint64_t)sum;
}

static void bare_load(void)
{
	uint64_t *w = bare, sum = 0;

	for (unsigned i = 0; i < STEPS; i++)
		sum += __atomic_load_n(w, __ATOMIC_SEQ_CST);
	sink += sum;
}

/* ---- through the fabric ---- */

static void fabric_faa(void)
{
	struct vb_ep *e = ep;
	uint64_t old, sum = 0;
	vb_addr a = word;

	for (unsigned i = 0; i < STEPS; i++) {
		must(vb_faa64(e, a, 1, &old));
		sum += old;
	}
	sink += sum;
}

static void fabric_faa_posted(void)
{
	uint64_t old;

	for (unsigned i = 0; i < STEPS; i++)
		must(vb_faa64_slow(ep, word, 1, 0, &old));
}

static void fabric_cas(void)
{
	uint64_t expect, old;

	must(vb_read64(ep, word, &expect));
	for (unsigned i = 0; i < STEPS; i++) {
		must(vb_cas64(ep, word, expect, expect + 1, &old));
		expect++;
	}
}

static void fabric_mcas(void)
{
	uint64_t old;

	for (unsigned i = 0; i < STEPS; i++)
		must(vb_mcas64(ep, word, 0, 0, i, UINT32_MAX, &old));
}

static void fabric_mfaa64(void)
{
	uint64_t old;

	for (unsigned i = 0; i < STEPS; i++)
		must(vb_mfaa64(ep, word, 1, 0x8000800080008000ull, &old));
}

static void fabric_mcas128(void)
{
	struct vb_u128 old, zero = {0}, ones = {UINT64_MAX, UINT64_MAX};

	for (unsigned i = 0; i < STEPS; i++)
		must(vb_mcas128(ep, word, zero, zero, (struct vb_u128){i, i}, ones, &old));
}

static void fabric_mfaa128(void)
{
	struct vb_u128 old, one = {1, 1}, bounds = {1ull << 63, 1ull << 63};

	for (unsigned i = 0; i < STEPS; i++)
		must(vb_mfaa128(ep, word, one, bounds, &old));
}

static void fabric_read(void)
{
	struct vb_ep *e = ep;
	uint64_t v, sum = 0;
	vb_addr a = word;

	for (unsigned i = 0; i < STEPS; i++) {
		must(vb_read64(e, a, &v));
		sum += v;
	}
	sink += sum;
}

static void fabric_write(void)
{
	for (uint64_t i = 0; i < STEPS; i++)
		must(vb_write(ep, word, &i, sizeof(i)));
}

static void fabric_send(void)
{
	struct vb_msg m = {.len = 8};

	for (unsigned i = 0; i < STEPS; i++) {
		must(vb_send_wait(ep, ep->self, &m));
		must(vb_ep_recv(ep, &m));
	}
}

struct bench_case {
	const char *name;
	void (*run)(void);
	int baseline; /* index, or -1 */
	double ns[ROUNDS], ratio[ROUNDS];
};

static struct bench_case cases[] = {
	{"lock xadd, bare", bare_xadd, -1, {0}, {0}},
	{"lock cmpxchg, bare", bare_cas, -1, {0}, {0}},
	{"lock cmpxchg16b, bare", bare_cas128, -1, {0}, {0}},
	{"load, bare", bare_load, -1, {0}, {0}},
	{"vb_faa64", fabric_faa, 0, {0}, {0}},
	{"vb_faa64 as a posted batch", fabric_faa_posted, 0, {0}, {0}},
	{"vb_cas64", fabric_cas, 1, {0}, {0}},
	{"vb_mcas64, half a word", fabric_mcas, 1, {0}, {0}},
	{"vb_mfaa64, 4 fields", fabric_mfaa64, 1, {0}, {0}},
	{"vb_mcas128", fabric_mcas128, 2, {0}, {0}},
	{"vb_mfaa128", fabric_mfaa128, 2, {0}, {0}},
	{"vb_read64", fabric_read, 3, {0}, {0}},
	{"vb_write of 8 bytes", fabric_write, 0, {0}, {0}},
	{"vb_send_wait + vb_ep_recv", fabric_send, 0, {0}, {0}},
};
#define CASES VB_ARRAY_SIZE(cases)

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *v)
{
	qsort(v, ROUNDS, sizeof(*v), by_value);
	return v[ROUNDS / 2];
}

static void measure(void)
{
	for (unsigned r = 0; r < ROUNDS; r++) {
		for (unsigned i = 0; i < CASES; i++) {
			struct bench_case *c = &cases[i];
			uint64_t start = vb_clock_ns();

			c->run();
			c->ns[r] = (double)(vb_clock_ns() - start) / STEPS;
			if (c->baseline >= 0)
				c->ratio[r] = c->ns[r] / cases[c->baseline].ns[r];
		}
	}
	printf("%-30s %10s %10s %8s  %s\n", "", "median ns", "least ns", "ratio", "to");
	for (unsigned i = 0; i < CASES; i++) {
		struct bench_case *c = &cases[i];
		double mid = median(c->ns);

		printf("%-30s %10.2f %10.2f", c->name, mid, c->ns[0]);
		if (c->baseline >= 0)
			printf(" %8.2f  %s", median(c->ratio), cases[c->baseline].name);
		printf("\n");
	}
}

/* ---- two processes ---- */

static int wait_message(struct vb_msg *m)
{
	while (vb_ep_recv(ep, m) == -EAGAIN) {
		int err = vb_ep_wait(ep, vb_ep_now(ep) + 5000000000ull);

		if (err != 0)
			return err;
	}
	return 0;
}

/* Answers whatever comes until it is killed. */
static void echo(struct vb_fabric *f, int tell)
{
	struct vb_msg m;

	vb_fabric_after_fork(f);
	must(vb_ep_open(f, 0, &ep));
	if (write(tell, &ep->self, sizeof(ep->self)) != sizeof(ep->self))
		_exit(1);
	while (wait_message(&m) == 0)
		(void)vb_send(ep, m.from, &m);
	_exit(0);
}

static void pingpong(struct vb_fabric *f)
{
	struct vb_msg m = {.len = 0};
	double ns[ROUNDS];
	vb_peer other;
	int pipes[2];
	pid_t pid;

	must(pipe(pipes) != 0 ? -errno : 0);
	fflush(stdout);
	pid = fork();
	if (pid == 0)
		echo(f, pipes[1]);
	must(read(pipes[0], &other, sizeof(other)) == sizeof(other) ? 0 : -EIO);
	for (unsigned r = 0; r < ROUNDS; r++) {
		uint64_t start = vb_clock_ns();

		for (unsigned i = 0; i < ROUNDTRIPS; i++) {
			must(vb_send_wait(ep, other, &m));
			must(wait_message(&m));
		}
		ns[r] = (double)(vb_clock_ns() - start) / ROUNDTRIPS;
	}
	kill(pid, SIGKILL);
	waitpid(pid, NULL, 0);
	printf("%-30s %10.0f", "round trip to another process", median(ns));
	printf(" %10.0f\n", ns[0]);
}

int main(void)
{
	struct vb_fabric_params p = {.fabric = "shm", .node_bytes = 1 << 20};
	struct vb_fabric *f;
	bool fresh;

	must(vb_fabric_open(&p, &f));
	must(vb_region(f, 0, "bench", 64, &word, &fresh));
	must(vb_ep_open(f, 0, &ep));
	bare = vb_local(f, word, 16);
	measure();
	pingpong(f);
	vb_ep_close(ep);
	vb_fabric_close(f);
	__asm__ __volatile__("" : : "r"(sink)); /* the sum is needed, or the loads are not */
	return 0;
}
