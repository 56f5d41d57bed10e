/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One hot lock, taken exclusively by processes that do nothing else.  The locks run through the
 * driver of `verbena bench lock`; pthread's robust mutex and rwlock get a driver of the same shape:
 * forked processes, a start barrier, counters in shared memory.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "base/opt.h"
#include "lab/bench/engine/process.h"
#include "lab/reap.h"
#include "lab/run.h"

#define PROCS_MAX 64
#define LOCKS_MAX 64

struct rival {
	struct vb_floor_rivals locks;
	uint32_t go, stop;
	struct {
		uint64_t cycles;
	} VB_ALIGNED(64) count[PROCS_MAX];
};

VB_NORETURN static void rival_worker(struct rival *r, unsigned index, bool rwlock, pid_t parent)
{
	struct timespec nap = {.tv_nsec = 100000};

	vb_bench_child(parent);
	while (!__atomic_load_n(&r->go, __ATOMIC_ACQUIRE))
		nanosleep(&nap, NULL);
	while (!__atomic_load_n(&r->stop, __ATOMIC_RELAXED)) {
		if (rwlock) {
			pthread_rwlock_wrlock(&r->locks.rwlock);
			pthread_rwlock_unlock(&r->locks.rwlock);
		} else {
			pthread_mutex_lock(&r->locks.mutex);
			pthread_mutex_unlock(&r->locks.mutex);
		}
		__atomic_store_n(&r->count[index].cycles, r->count[index].cycles + 1,
				 __ATOMIC_RELAXED);
	}
	_exit(0);
}

/* Cycles per second of `procs` processes. */
static int rival_run(unsigned procs, uint64_t span_ns, bool rwlock, double *out)
{
	struct rival *r = vb_bench_share(sizeof(*r));
	pid_t pids[PROCS_MAX], parent = getpid();
	struct vb_reap_stop stop;
	uint64_t start, cycles = 0;
	int err = 0, end;
	unsigned n = 0;

	if (r == NULL)
		return vb_fail(-ENOMEM, "no memory for the counters of %u processes", procs);
	vb_floor_rivals_init(&r->locks);
	stop = (struct vb_reap_stop){.flag = &r->stop};
	for (; n < procs && err == 0; n += err == 0) {
		pids[n] = fork();
		if (pids[n] == 0)
			rival_worker(r, n, rwlock, parent);
		if (pids[n] < 0)
			err = vb_fail(-errno, "cannot fork process %u: %s", n, strerror(errno));
	}
	start = vb_clock_gettime_ns();
	stop.at_ns = start + span_ns;
	__atomic_store_n(&r->go, 1, __ATOMIC_RELEASE);
	end = vb_reap_stop(pids, n, "of rivals for one lock", &stop);
	for (unsigned i = 0; i < n; i++)
		cycles += __atomic_load_n(&r->count[i].cycles, __ATOMIC_RELAXED);
	vb_bench_unshare(r, sizeof(*r));
	*out = stop.set_ns > start ? (double)cycles * 1e9 / (double)(stop.set_ns - start) : 0;
	return err != 0 ? err : end;
}

/* Each lock and each rival in turn, so often that every one has its median. */
static int contest(struct vb_floor *f, const char *section, unsigned procs)
{
	unsigned repeat = f->o.repeat < 3 ? (unsigned)f->o.repeat : 3, n = 0;
	double lock[LOCKS_MAX][3], mutex[3], rwlock[3];
	unsigned locks = 0;
	double base;
	char name[64];
	int err = 0;

	while (vb_locks[locks] != NULL && locks < LOCKS_MAX)
		locks++;
	while (n < repeat && err == 0 && !vb_interrupted) {
		err = rival_run(procs, f->o.span_ns, false, &mutex[n]);
		if (err == 0)
			err = rival_run(procs, f->o.span_ns, true, &rwlock[n]);
		for (unsigned i = 0; i < locks && err == 0; i++)
			err = f->hot_lock(vb_locks[i], procs, f->o.span_ns, f->o.seed, &lock[i][n]);
		n += err == 0 && !vb_interrupted; /* a round that was cut does not count */
	}
	if (err || n == 0)
		return err;
	base = vb_floor_median(mutex, n) / 1000;
	snprintf(name, sizeof(name), "pthread_rwlock, %u processes", procs);
	vb_floor_add(f, section, name, "kops/s", vb_floor_median(rwlock, n) / 1000,
		     "pthread_mutex, robust", base);
	for (unsigned i = 0; i < locks; i++) {
		snprintf(name, sizeof(name), "%s, %u processes", vb_locks[i]->name, procs);
		vb_floor_add(f, section, name, "kops/s", vb_floor_median(lock[i], n) / 1000,
			     "pthread_mutex, robust", base);
	}
	return 0;
}

int vb_floor_hot(struct vb_floor *f)
{
	return contest(f, "hot", 2);
}

int vb_floor_oversubscribed(struct vb_floor *f)
{
	long cores = sysconf(_SC_NPROCESSORS_ONLN);
	unsigned procs = cores > 0 && cores * 2 < PROCS_MAX ? (unsigned)cores * 2 : PROCS_MAX;

	return contest(f, "oversubscribed", procs < 4 ? 4 : procs);
}
