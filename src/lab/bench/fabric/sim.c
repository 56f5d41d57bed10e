/* SPDX-License-Identifier: Apache-2.0 */
/* How fast the simulator is, what a simulated client costs, and what a switch costs. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/run.h"
#include "fabric/sim/sim.h"

#define CLIENTS  240u
#define VERBS    2000000u
#define CROWD    5000u
#define SWITCHES 2000000u

struct looper {
	struct vb_ep *ep;
	struct vb_rng rng;
	vb_addr base;
	uint64_t words;
	unsigned verbs;
	int err;
};

static void faa_loop(void *arg)
{
	struct looper *l = arg;
	uint64_t old;

	while (l->verbs-- > 0 && l->err == 0)
		l->err = vb_faa64(l->ep, l->base + 8 * vb_rng_below(&l->rng, l->words), 1, &old);
}

/* Millions of verbs per second of wall time, by 240 clients on words of their choice. */
static int sim_rate(uint64_t seed, double *out)
{
	const struct vb_fabric_params p = {.fabric = "sim", .nodes = 6, .seed = seed};
	const struct vb_task_params params = {.name = "looper"};
	struct looper *l = calloc(CLIENTS, sizeof(*l));
	struct vb_fabric *f = NULL;
	uint64_t start = 0;
	vb_addr at = 0;
	bool fresh;
	int err;

	if (l == NULL)
		return vb_fail(-ENOMEM, "no memory for %u simulated clients", CLIENTS);
	err = vb_fabric_open(&p, &f);
	if (err == 0)
		err = vb_region(f, 0, "words", 1 << 20, &at, &fresh);
	for (unsigned i = 0; i < CLIENTS && err == 0; i++) {
		struct vb_task *task;

		l[i].base = at;
		l[i].words = (1 << 20) / 8;
		l[i].verbs = VERBS / CLIENTS;
		vb_rng_seed(&l[i].rng, seed, i);
		err = vb_ep_open(f, (uint16_t)(1 + i % 5), &l[i].ep);
		if (err == 0)
			err = vb_task_spawn(l[i].ep->sched, faa_loop, &l[i], &params, &task);
	}
	if (err == 0) {
		start = vb_clock_gettime_ns();
		err = vb_sched_run(vb_sched_self(), (const bool *)&vb_interrupted, VB_FOREVER);
	}
	if (err == 0)
		*out = (double)vb_sim_verbs(f) * 1e3 / (double)(vb_clock_gettime_ns() - start);
	for (unsigned i = 0; i < CLIENTS; i++) {
		if (err == 0 && l[i].err != 0)
			err = vb_fail(l[i].err, "a simulated verb failed: %s",
				      vb_strerror(l[i].err));
		if (l[i].ep != NULL && !vb_interrupted)
			vb_ep_close(l[i].ep);
	}
	if (f != NULL && !vb_interrupted)
		vb_fabric_close(f);
	free(l);
	return err;
}

static uint64_t resident_bytes(void)
{
	FILE *f = fopen("/proc/self/statm", "re");
	unsigned long long size, resident = 0;

	if (f == NULL)
		return 0;
	if (fscanf(f, "%llu %llu", &size, &resident) != 2)
		resident = 0;
	fclose(f);
	return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

struct member {
	struct vb_lock_client *client;
	int err;
};

static void one_cycle(void *arg)
{
	struct member *m = arg;
	struct vb_grant g;

	m->err = vb_lock_acquire(m->client, m->client->index, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	if (m->err == 0)
		m->err = vb_lock_release(m->client, &g);
	/* Stays, with its stack, until everybody has been counted. */
	while (vb_task_suspend(VB_FOREVER) == 0)
		;
}

static int open_crowd(struct vb_lock_space *space, struct member *m, struct vb_task **task)
{
	const struct vb_task_params params = {.name = "member", .daemon = true};

	for (unsigned i = 0; i < CROWD; i++) {
		int err = vb_lock_client_open(space, (uint16_t)(1 + i % 5), &m[i].client);

		if (err)
			return err;
		m[i].client->index = i;
		err = vb_task_spawn(m[i].client->ep->sched, one_cycle, &m[i], &params, &task[i]);
		if (err)
			return err;
	}
	return 0;
}

/* KiB that one client with its task, stack, endpoint and claims adds to the process. */
static int sim_memory(uint64_t seed, double *out)
{
	const struct vb_fabric_params p = {
		.fabric = "sim", .nodes = 6, .seed = seed, .endpoints = CROWD + 16};
	const struct vb_lock_space_params sp = {.lock = "dslr", .locks = CROWD};
	struct member *m = calloc(CROWD, sizeof(*m));
	struct vb_task **task = calloc(CROWD, sizeof(struct vb_task *));
	struct vb_fabric *f = NULL;
	struct vb_lock_space *space = NULL;
	struct vb_sched *s;
	uint64_t before = 0;
	int err = m == NULL || task == NULL ? -ENOMEM : vb_fabric_open(&p, &f);

	malloc_trim(0);
	before = resident_bytes();
	if (err == 0)
		err = vb_lock_space_open(f, &sp, &space);
	if (err == 0)
		err = open_crowd(space, m, task);
	if (err == 0) {
		s = vb_sched_self();
		vb_task_sleep_until(vb_sched_now(s) + 1000000);
		*out = (double)(resident_bytes() - before) / 1024 / CROWD;
	}
	for (unsigned i = 0; m != NULL && i < CROWD; i++) {
		if (task != NULL && task[i] != NULL)
			vb_task_kill(task[i]);
		vb_lock_client_close(m[i].client);
	}
	vb_lock_space_close(space);
	vb_fabric_close(f);
	free(m);
	free(task);
	return err;
}

int vb_floor_sim(struct vb_floor *f)
{
	double rate[VB_FLOOR_REPEATS], kib = 0;
	unsigned n = 0;
	int err = 0;

	for (; n < f->o.repeat && err == 0 && !vb_interrupted; n++)
		err = sim_rate(f->o.seed, &rate[n]);
	if (err || vb_interrupted)
		return err;
	vb_floor_add(f, "sim", "verbs, 240 clients", "M/s", vb_floor_median(rate, n), "wanted", 4);
	err = sim_memory(f->o.seed, &kib);
	if (err == 0)
		vb_floor_add(f, "sim", "memory of a client", "KiB", kib, NULL, 0);
	return err;
}

static void yielder(void *arg)
{
	unsigned *left = arg;

	while (*left > 0) {
		--*left;
		vb_task_yield();
	}
}

int vb_floor_switch(struct vb_floor *f)
{
	const struct vb_task_params params = {.name = "yielder"};
	double ns[VB_FLOOR_REPEATS];
	unsigned n = 0;

	for (; n < f->o.repeat && (n == 0 || !vb_interrupted); n++) {
		struct vb_sched *s = vb_sched_self();
		unsigned left = SWITCHES;
		uint64_t start, switches;
		struct vb_task *t;

		for (unsigned i = 0; i < 2; i++) {
			int err = vb_task_spawn(s, yielder, &left, &params, &t);

			if (err)
				return err;
		}
		switches = vb_sched_switches(s);
		start = vb_clock_gettime_ns();
		vb_sched_run(s, NULL, VB_FOREVER);
		ns[n] = (double)(vb_clock_gettime_ns() - start) /
			(double)(vb_sched_switches(s) - switches);
	}
	vb_floor_add(f, "switch", "one switch", "ns", vb_floor_median(ns, n), NULL, 0);
	return 0;
}
