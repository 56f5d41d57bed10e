/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a call of a client on a host costs, beside that of a thread's own: nothing at all on the host, a cycle of
 * a lock that is free, and as many from several threads at a time.
 *
 * usage: bench_host [FABRIC [THREADS]]	(shm, 4)
 *
 * Pairs are measured in turn, so that a change of the machine's speed hits both; what is printed are medians.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <verbena/host.h>

#include "base/clock.h"

#define ROUNDS      15
#define CYCLES      500
#define THREADS_MAX 64

static struct vb_lock_space *space;
static struct vb_host *host;

static int must(int err, const char *what)
{
	if (err >= 0)
		return err;
	fprintf(stderr, "bench_host: %s: %s\n", what, vb_strerror(err));
	exit(1);
}

static struct vb_lock_client *client(bool hosted)
{
	struct vb_lock_client *c;

	must(hosted ? vb_host_client_open(host, space, 0, &c) : vb_lock_client_open(space, 0, &c),
	     "open a client");
	return c;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double of[ROUNDS])
{
	qsort(of, ROUNDS, sizeof(of[0]), by_value);
	return of[ROUNDS / 2];
}

static int nothing(void *arg)
{
	(void)arg;
	return 0;
}

static double processor_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double call_ns(double *processor)
{
	double used = processor_ns();
	uint64_t begin = vb_clock_ns();

	for (unsigned i = 0; i < CYCLES; i++)
		must(vb_host_call(host, nothing, NULL), "call");
	*processor = (processor_ns() - used) / CYCLES;
	return (double)(vb_clock_ns() - begin) / CYCLES;
}

static double cycle_ns(struct vb_lock_client *me, uint64_t lock)
{
	uint64_t begin = vb_clock_ns();
	struct vb_grant g;

	for (unsigned i = 0; i < CYCLES; i++) {
		must(vb_lock_acquire(me, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &g), "acquire");
		must(vb_lock_release(me, &g), "release");
	}
	return (double)(vb_clock_ns() - begin) / CYCLES;
}

static void alone(void)
{
	double own[ROUNDS], hosted[ROUNDS], call[ROUNDS], used[ROUNDS];
	struct vb_lock_client *mine = client(false), *hosts = client(true);

	for (unsigned r = 0; r < ROUNDS; r++) {
		call[r] = call_ns(&used[r]);
		own[r] = cycle_ns(mine, 0);
		hosted[r] = cycle_ns(hosts, 0);
	}
	vb_lock_client_close(mine);
	vb_lock_client_close(hosts);
	printf("a function that does nothing, on the host: %8.0f ns, of processors %8.0f ns\n",
	       median(call), median(used));
	printf("a cycle of a free lock: own client %8.0f ns, on the host %8.0f ns\n", median(own),
	       median(hosted));
}

/* ---- several threads, a lock each ---- */

static struct {
	pthread_barrier_t at;
	double ns[2][ROUNDS]; /* as the first thread has seen them: own, hosted */
} crowd;

static void *cycles(void *arg)
{
	uintptr_t me = (uintptr_t)arg;
	struct vb_lock_client *c[2] = {client(false), client(true)};

	for (unsigned r = 0; r < 2 * ROUNDS; r++) {
		uint64_t begin;

		pthread_barrier_wait(&crowd.at);
		begin = vb_clock_ns();
		(void)cycle_ns(c[r % 2], 1 + me);
		pthread_barrier_wait(&crowd.at);
		if (me == 0)
			crowd.ns[r % 2][r / 2] = (double)(vb_clock_ns() - begin);
	}
	vb_lock_client_close(c[0]);
	vb_lock_client_close(c[1]);
	return NULL;
}

static void together(unsigned threads)
{
	pthread_t thread[THREADS_MAX];

	pthread_barrier_init(&crowd.at, NULL, threads);
	for (uintptr_t i = 0; i < threads; i++)
		if (pthread_create(&thread[i], NULL, cycles, (void *)i) != 0)
			must(-ENOMEM, "threads");
	for (unsigned i = 0; i < threads; i++)
		pthread_join(thread[i], NULL);
	printf("%u threads, a free lock each: own clients %8.1f cycles/ms, on the host %8.1f "
	       "cycles/ms\n",
	       threads, threads * CYCLES / median(crowd.ns[0]) * 1e6,
	       threads * CYCLES / median(crowd.ns[1]) * 1e6);
}

int main(int argc, char **argv)
{
	const struct vb_fabric_params fp = {.fabric = argc > 1 ? argv[1] : "shm"};
	const struct vb_lock_space_params sp = {.lock = "mcs", .locks = 1 + THREADS_MAX};
	unsigned threads = argc > 2 ? (unsigned)atoi(argv[2]) : 4;
	struct vb_fabric *fabric;

	if (threads < 1 || threads > THREADS_MAX)
		return 2;
	must(vb_fabric_open(&fp, &fabric), "fabric");
	must(vb_lock_space_open(fabric, &sp, &space), "lock space");
	must(vb_host_open(NULL, &host), "host");
	alone();
	together(threads);
	must(vb_host_close(host), "close the host");
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return 0;
}
