/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How many verbs the simulator executes per second of CPU time, and what a simulated client costs
 * in memory: clients in a closed loop of fetch-and-adds on random 16-byte locks.
 *
 *	bench_sim [CLIENTS [LOCKS [VERBS]]]
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fabric/sim/sim.h"

struct client {
	struct vb_ep *ep;
	struct vb_rng rng;
	uint64_t locks, verbs;
	uint64_t *resident; /* the first one notes it when all have begun */
	vb_addr base;
};

static uint64_t resident_bytes(void)
{
	unsigned long size = 0, resident = 0;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f == NULL || fscanf(f, "%lu %lu", &size, &resident) != 2)
		resident = 0;
	if (f != NULL)
		fclose(f);
	return (uint64_t)resident * 4096;
}

static void client_main(void *arg)
{
	struct client *c = arg;
	uint64_t old;

	for (uint64_t i = 0; i < c->verbs; i++) {
		if (i == 1 && c->resident != NULL)
			*c->resident = resident_bytes();
		if (vb_faa64(c->ep, c->base + 16 * vb_rng_below(&c->rng, c->locks), 1, &old) != 0)
			abort();
	}
}

static uint64_t cpu_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

static int run(unsigned clients, uint64_t locks, uint64_t verbs)
{
	struct vb_fabric_params p = {.fabric = "sim",
				     .nodes = 6,
				     .node_bytes = locks * 16 + (1 << 20),
				     .endpoints = clients,
				     .seed = 1};
	struct client *c = calloc(clients, sizeof(*c));
	uint64_t before, began = 0, start, took;
	struct vb_fabric *f;
	vb_addr base;
	bool fresh;

	if (c == NULL || vb_fabric_open(&p, &f) != 0)
		return 1;
	if (vb_region(f, 0, "locks", locks * 16, &base, &fresh) != 0)
		return 1;
	before = resident_bytes();
	for (unsigned i = 0; i < clients; i++) {
		c[i] = (struct client){.locks = locks, .verbs = 2, .base = base};
		vb_rng_seed(&c[i].rng, 1, i);
		if (vb_ep_open(f, (uint16_t)(1 + i % 5), &c[i].ep) != 0)
			return 1;
	}
	/* Once round on the first page: the tasks' stacks are touched, most of the locks are not.
	 */
	for (unsigned i = 0; i < clients; i++) {
		c[i].locks = locks < 256 ? locks : 256;
		c[i].resident = i == 0 ? &began : NULL;
		if (vb_task_spawn(vb_sched_self(), client_main, &c[i], NULL, NULL) != 0)
			return 1;
	}
	if (vb_sched_run(vb_sched_self(), NULL, VB_FOREVER) != 0)
		return 1;
	for (unsigned i = 0; i < clients; i++) {
		c[i].locks = locks;
		c[i].verbs = verbs / clients;
		c[i].resident = NULL;
		if (vb_task_spawn(vb_sched_self(), client_main, &c[i], NULL, NULL) != 0)
			return 1;
	}
	start = cpu_ns();
	if (vb_sched_run(vb_sched_self(), NULL, VB_FOREVER) != 0)
		return 1;
	took = cpu_ns() - start;
	printf("%5u clients, %9lu locks: %6.2f M verbs per CPU second, %6.1f ns a verb, %lu bytes "
	       "a client, "
	       "trace %016lx\n",
	       clients, (unsigned long)locks,
	       (double)(vb_sim_verbs(f) - 2 * clients) * 1e3 / (double)took,
	       (double)took / (double)(vb_sim_verbs(f) - 2 * clients),
	       (unsigned long)((began - before) / clients), (unsigned long)vb_sim_trace_hash(f));
	for (unsigned i = 0; i < clients; i++)
		vb_ep_close(c[i].ep);
	vb_fabric_close(f);
	free(c);
	return 0;
}

int main(int argc, char **argv)
{
	uint64_t clients = 0, locks = 10000000, verbs = 4000000;
	static const unsigned some[] = {1, 24, 240, 1000, 5000};

	if ((argc > 1 && vb_parse_size(argv[1], &clients) != 0) ||
	    (argc > 2 && vb_parse_size(argv[2], &locks) != 0) ||
	    (argc > 3 && vb_parse_size(argv[3], &verbs) != 0) || locks == 0 || clients > 60000) {
		fprintf(stderr, "usage: bench_sim [CLIENTS [LOCKS [VERBS]]]\n");
		return 2;
	}
	if (clients > 0)
		return run((unsigned)clients, locks, verbs);
	/* A process each, so that no client gets a stack that another one has paid for. */
	for (size_t i = 0; i < VB_ARRAY_SIZE(some); i++) {
		pid_t child = fork();
		int status = 1;

		if (child == 0)
			exit(run(some[i], locks, verbs));
		if (child < 0 || waitpid(child, &status, 0) != child || status != 0)
			return 1;
	}
	return 0;
}
