/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What calls on a ring cost: a lock that is free, beside the blocking call; thousands that wait in one
 * thread, in memory and processor time; and how late a thread that sleeps in poll() learns that it
 * has the lock, beside one that sleeps in vb_lock_acquire.
 *
 * usage: bench_ring [FABRIC [WAITERS [LOCK]]]	(shm, 10000, mcs)
 *
 * Pairs are measured in turn, each kind as often first as second, and most of them fit between two
 * interruptions, so that a change of the machine's speed hits both; what is printed are medians, of the
 * ratio that of the pairs'.
 */
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <verbena/async.h>

#include "base/clock.h"

#define ROUNDS    401
#define CYCLES    1000
#define REMOTE    20 /* cycles, where one takes longer than a microsecond */
#define WAKE_UPS  200
#define LOCKS     16
#define THE_LOCK  0 /* of the wake-ups */
#define FREE_LOCK 1
#define HELD_LOCK 2 /* the thousands' */
#define REST_NS   2000000
#define LOOK_MS   2000
#define LEASE_NS  3600000000000ull

static struct vb_lock_space *space;
static struct vb_ring *ring;

static int must(int err, const char *what)
{
	if (err >= 0)
		return err;
	fprintf(stderr, "bench_ring: %s: %s\n", what, vb_strerror(err));
	exit(1);
}

static struct vb_lock_client *client(void)
{
	struct vb_lock_client *c;

	must(vb_lock_client_open(space, 0, &c), "open a client");
	return c;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(double *of, unsigned n)
{
	qsort(of, n, sizeof(of[0]), by_value);
	return of[n / 2];
}

/* What the call has ended with, at once or later. */
static int end_of(int err)
{
	struct vb_completion done;

	if (err != VB_STARTED)
		return err;
	must(vb_ring_wait(ring, VB_FOREVER_NS), "wait");
	must(vb_ring_reap(ring, &done, 1), "reap");
	return done.result;
}

/* ---- a lock that is free ---- */

static double cycle_ns(struct vb_lock_client *me, unsigned cycles, bool started)
{
	uint64_t begin = vb_clock_ns();
	struct vb_grant g;

	for (unsigned i = 0; i < cycles; i++) {
		if (started) {
			must(end_of(vb_lock_acquire_start(ring, me, FREE_LOCK, VB_EXCLUSIVE,
							  VB_FOREVER_NS, &g, NULL, NULL)),
			     "acquire");
			must(end_of(vb_lock_release_start(ring, me, &g, NULL, NULL)), "release");
		} else {
			must(vb_lock_acquire(me, FREE_LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g),
			     "acquire");
			must(vb_lock_release(me, &g), "release");
		}
	}
	return (double)(vb_clock_ns() - begin) / cycles;
}

static void free_lock(const char *when)
{
	static double ns[2][ROUNDS], ratio[ROUNDS];
	struct vb_lock_client *me = client();
	unsigned cycles = cycle_ns(me, REMOTE, false) > 1000 ? REMOTE : CYCLES;

	for (unsigned r = 0; r < ROUNDS; r++) {
		bool first = r % 2 != 0;

		ns[first][r] = cycle_ns(me, cycles, first);
		ns[!first][r] = cycle_ns(me, cycles, !first);
		ratio[r] = ns[true][r] / ns[false][r];
	}
	vb_lock_client_close(me);
	printf("a cycle of a free lock, %-22s blocking %8.0f ns, on a ring %8.0f ns, ratio %.2f\n",
	       when, median(ns[false], ROUNDS), median(ns[true], ROUNDS), median(ratio, ROUNDS));
}

/* ---- thousands that wait ---- */

static double resident_kib(void)
{
	long pages = 0, ignored;
	FILE *f = fopen("/proc/self/statm", "r");

	if (f == NULL || fscanf(f, "%ld %ld", &ignored, &pages) != 2)
		pages = 0;
	if (f != NULL)
		fclose(f);
	return (double)pages * (double)sysconf(_SC_PAGESIZE) / 1024;
}

static double processor_ms(void)
{
	struct rusage u;

	getrusage(RUSAGE_SELF, &u);
	return (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1e3 +
	       (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e3;
}

struct waiter {
	struct vb_lock_client *client;
	struct vb_grant grant;
	uint64_t id;
};

static void start_all(struct waiter *w, unsigned n)
{
	double before = resident_kib(), with_clients;
	uint64_t begin;

	for (unsigned i = 0; i < n; i++)
		w[i].client = client();
	with_clients = resident_kib();
	begin = vb_clock_ns();
	for (unsigned i = 0; i < n; i++)
		if (must(vb_lock_acquire_start(ring, w[i].client, HELD_LOCK, VB_EXCLUSIVE,
					       VB_FOREVER_NS, &w[i].grant, &w[i], &w[i].id),
			 "acquire") != VB_STARTED) {
			fprintf(stderr, "bench_ring: a held lock was granted\n");
			exit(1);
		}
	printf("%u that wait: started in %.1f us each; %.1f KiB for a client, %.1f KiB for its "
	       "waiting\n",
	       n, (double)(vb_clock_ns() - begin) / 1e3 / n, (with_clients - before) / n,
	       (resident_kib() - with_clients) / n);
}

static void look_on(void)
{
	struct pollfd fd = {.fd = vb_ring_fd(ring), .events = POLLIN};
	double before = processor_ms();

	must(vb_ring_arm(ring), "arm");
	if (poll(&fd, 1, LOOK_MS) != 0) {
		fprintf(stderr, "bench_ring: something has ended\n");
		exit(1);
	}
	printf("while they wait: %.2f %% of a processor\n",
	       (processor_ms() - before) / LOOK_MS * 100);
}

static void cancel_all(struct waiter *w, unsigned n)
{
	uint64_t begin = vb_clock_ns();

	for (unsigned i = 0; i < n; i++)
		must(vb_ring_cancel(ring, w[i].id), "cancel");
	for (unsigned i = 0; i < n;) {
		struct vb_completion done[64];

		must(vb_ring_wait(ring, VB_FOREVER_NS), "wait");
		i += (unsigned)must(vb_ring_reap(ring, done, 64), "reap");
	}
	printf("cancelled in %.1f us each\n", (double)(vb_clock_ns() - begin) / 1e3 / n);
}

/* ---- who sleeps is woken ---- */

static struct {
	struct vb_lock_client *holder;
	struct vb_grant held;
	sem_t hold, held_sem, block, blocked;
	uint64_t let_go_ns, woken_ns;
} wake;

/* Holds the lock while somebody begins to wait for it, and gives it back. */
static void *holds(void *arg)
{
	(void)arg;
	wake.holder = client();
	for (unsigned i = 0; i < 2 * WAKE_UPS; i++) {
		sem_wait(&wake.hold);
		must(vb_lock_acquire(wake.holder, THE_LOCK, VB_EXCLUSIVE, VB_FOREVER_NS,
				     &wake.held),
		     "hold");
		sem_post(&wake.held_sem);
		nanosleep(&(struct timespec){.tv_nsec = REST_NS}, NULL);
		wake.let_go_ns = vb_clock_ns();
		must(vb_lock_release(wake.holder, &wake.held), "let go");
	}
	vb_lock_client_close(wake.holder);
	return NULL;
}

static void *blocks(void *arg)
{
	struct vb_lock_client *me = client();
	struct vb_grant g;

	(void)arg;
	for (unsigned i = 0; i < WAKE_UPS; i++) {
		sem_wait(&wake.block);
		must(vb_lock_acquire(me, THE_LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g), "acquire");
		wake.woken_ns = vb_clock_ns();
		must(vb_lock_release(me, &g), "release");
		sem_post(&wake.blocked);
	}
	vb_lock_client_close(me);
	return NULL;
}

static void sleeps_in_poll(struct vb_lock_client *me)
{
	struct pollfd fd = {.fd = vb_ring_fd(ring), .events = POLLIN};
	struct vb_completion done;
	struct vb_grant g;
	int err = vb_lock_acquire_start(ring, me, THE_LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &g, NULL,
					NULL);

	if (err == VB_STARTED) {
		while (vb_ring_arm(ring) != -EAGAIN)
			poll(&fd, 1, -1);
		must(vb_ring_reap(ring, &done, 1), "reap");
		err = done.result;
	}
	wake.woken_ns = vb_clock_ns();
	must(err, "acquire");
	must(vb_lock_release(me, &g), "release");
}

static void wake_ups(const char *when)
{
	static double blocking[WAKE_UPS], asleep[WAKE_UPS];
	struct vb_lock_client *me = client();
	pthread_t holder, blocker;

	sem_init(&wake.hold, 0, 0);
	sem_init(&wake.held_sem, 0, 0);
	sem_init(&wake.block, 0, 0);
	sem_init(&wake.blocked, 0, 0);
	pthread_create(&holder, NULL, holds, NULL);
	pthread_create(&blocker, NULL, blocks, NULL);
	for (unsigned i = 0; i < 2 * WAKE_UPS; i++) {
		sem_post(&wake.hold);
		sem_wait(&wake.held_sem);
		if (i % 2 == 0) {
			sem_post(&wake.block);
			sem_wait(&wake.blocked);
			blocking[i / 2] = (double)(wake.woken_ns - wake.let_go_ns);
		} else {
			sleeps_in_poll(me);
			asleep[i / 2] = (double)(wake.woken_ns - wake.let_go_ns);
		}
	}
	pthread_join(holder, NULL);
	pthread_join(blocker, NULL);
	vb_lock_client_close(me);
	printf("from release to the next holder, %-12s blocking %8.1f us, asleep in poll() %8.1f "
	       "us\n",
	       when, median(blocking, WAKE_UPS) / 1e3, median(asleep, WAKE_UPS) / 1e3);
}

int main(int argc, char **argv)
{
	const char *name = argc > 1 ? argv[1] : "shm";
	unsigned waiters = argc > 2 ? (unsigned)atoi(argv[2]) : 10000;
	const struct vb_fabric_params fp = {
		.fabric = name, .node_bytes = 1ull << 30, .endpoints = waiters + 64};
	const struct vb_lock_space_params sp = {
		.lock = argc > 3 ? argv[3] : "mcs", .locks = LOCKS, .lease_ns = LEASE_NS};
	const struct vb_ring_params rp = {.depth = waiters + 64, .stack_bytes = 1 << 14};
	struct waiter *w = calloc(waiters, sizeof(*w));
	struct vb_lock_client *holder;
	struct vb_fabric *fabric;
	struct vb_grant held;

	if (w == NULL || waiters == 0)
		return 2;
	must(vb_fabric_open(&fp, &fabric), "fabric");
	must(vb_lock_space_open(fabric, &sp, &space), "lock space");
	must(vb_ring_open(&rp, &ring), "ring");
	holder = client();
	free_lock("nothing under way:");
	wake_ups("alone:");
	must(vb_lock_acquire(holder, HELD_LOCK, VB_EXCLUSIVE, VB_FOREVER_NS, &held), "hold");
	start_all(w, waiters);
	look_on();
	free_lock("while they wait:");
	wake_ups("beside them:");
	cancel_all(w, waiters);
	must(vb_lock_release(holder, &held), "let go");
	must(vb_ring_close(ring), "close the ring");
	for (unsigned i = 0; i < waiters; i++)
		vb_lock_client_close(w[i].client);
	vb_lock_client_close(holder);
	free(w);
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return 0;
}
