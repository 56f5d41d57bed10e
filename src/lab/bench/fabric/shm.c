/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on shared memory, beside the bare instructions and pthread's locks.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include "base/log.h"
#include "lab/run.h"

/* A slice is a few milliseconds: the thing and its baseline take turns within one time slice of the
 * machine's other users, and the ratio is the median over many such turns. */
#define VERBS  100000u
#define CYCLES 50000u
#define RPCS   500u

struct words {
	struct vb_fabric *fabric;
	struct vb_ep *ep;
	vb_addr at;      /* 64 bytes */
	uint64_t *local; /* the same */
};

static int words_open(struct words *w)
{
	const struct vb_fabric_params p = {.fabric = "shm", .node_bytes = 1 << 20, .endpoints = 8};
	bool fresh;
	int err = vb_fabric_open(&p, &w->fabric);

	w->ep = NULL;
	if (err)
		return err;
	err = vb_region(w->fabric, 0, "floor", 64, &w->at, &fresh);
	if (err == 0)
		err = vb_ep_open(w->fabric, 0, &w->ep);
	if (err) {
		vb_fabric_close(w->fabric);
		return err;
	}
	w->local = vb_local(w->fabric, w->at, 64);
	return 0;
}

static void words_close(struct words *w)
{
	vb_ep_close(w->ep);
	vb_fabric_close(w->fabric);
}

/* ns of each of n turns of a body. */
#define TIMED(n, ...)                                                                              \
	({                                                                                         \
		uint64_t start_ = vb_clock_gettime_ns();                                           \
		for (unsigned i_ = 0; i_ < (n); i_++) {                                            \
			__VA_ARGS__;                                                               \
		}                                                                                  \
		(double)(vb_clock_gettime_ns() - start_) / (n);                                    \
	})

static double verb_faa64(struct words *w)
{
	uint64_t old;

	return TIMED(VERBS, vb_faa64(w->ep, w->at, 1, &old));
}

static double bare_faa64(struct words *w)
{
	return TIMED(VERBS, __atomic_fetch_add(w->local, 1, __ATOMIC_SEQ_CST));
}

static double verb_faa128(struct words *w)
{
	const struct vb_u128 one = {1, 1}, bounds = {0, 0};
	struct vb_u128 old;

	return TIMED(VERBS, vb_mfaa128(w->ep, w->at + 16, one, bounds, &old));
}

static double verb_mcas128(struct words *w)
{
	const struct vb_u128 all = {UINT64_MAX, UINT64_MAX};
	struct vb_u128 seen = {0, 0}, next, old;

	vb_mcas128(w->ep, w->at + 16, seen, all, seen, all, &seen);
	return TIMED(VERBS, {
		next = (struct vb_u128){seen.lo + 1, seen.hi + 1};
		vb_mcas128(w->ep, w->at + 16, seen, all, next, all, &old);
		seen = next;
	});
}

/* One cmpxchg16b that succeeds: the instruction alone. */
static double bare_cas128(struct words *w)
{
#if defined(__x86_64__)
	unsigned __int128 *word = (unsigned __int128 *)(w->local + 2);
	unsigned __int128 seen = __sync_val_compare_and_swap(word, 0, 0);

	return TIMED(VERBS, {
		__sync_val_compare_and_swap(word, seen, seen + 1);
		seen++;
	});
#else
	return bare_faa64(w);
#endif
}

static void pair(struct vb_floor *f, struct words *w, const char *name,
		 double (*verb)(struct words *), const char *baseline,
		 double (*bare)(struct words *))
{
	double v[VB_FLOOR_REPEATS], b[VB_FLOOR_REPEATS];
	unsigned n = 0;

	for (; n < f->o.repeat && (n == 0 || !vb_interrupted); n++) {
		v[n] = verb(w);
		b[n] = bare(w);
	}
	vb_floor_add_turns(f, "faa", name, v, baseline, b, n);
}

int vb_floor_faa(struct vb_floor *f)
{
	struct words w;
	int err = words_open(&w);

	if (err)
		return err;
	pair(f, &w, "FAA, 64 bits", verb_faa64, "lock xadd", bare_faa64);
	if (w.fabric->caps.flags & VB_CAP_MASKED128) {
		pair(f, &w, "masked FAA, 128 bits", verb_faa128, "one cmpxchg16b", bare_cas128);
		pair(f, &w, "masked CAS, 128 bits", verb_mcas128, "one cmpxchg16b", bare_cas128);
	}
	words_close(&w);
	return 0;
}

/* ---- uncontended locks ---- */

struct rivals {
	pthread_rwlock_t rwlock;
	pthread_mutex_t mutex;
	uint64_t word;
	unsigned __int128 wide;
};

static void rivals_init(struct rivals *r)
{
	pthread_rwlockattr_t ra;
	pthread_mutexattr_t ma;

	pthread_rwlockattr_init(&ra);
	pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&r->rwlock, &ra);
	pthread_rwlockattr_destroy(&ra);
	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&r->mutex, &ma);
	pthread_mutexattr_destroy(&ma);
	r->word = 0;
	r->wide = 0;
}

static double two_atomics(struct rivals *r)
{
	return TIMED(CYCLES, {
		__atomic_fetch_add(&r->word, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_sub(&r->word, 1, __ATOMIC_SEQ_CST);
	});
}

/* What a lock on 128-bit words stands on. */
static double two_atomics128(struct rivals *r)
{
#if defined(__x86_64__)
	unsigned __int128 seen = r->wide;

	return TIMED(CYCLES, {
		__sync_val_compare_and_swap(&r->wide, seen, seen + 1);
		__sync_val_compare_and_swap(&r->wide, seen + 1, seen);
	});
#else
	return two_atomics(r);
#endif
}

static double rwlock_cycle(struct rivals *r)
{
	return TIMED(CYCLES, {
		pthread_rwlock_wrlock(&r->rwlock);
		pthread_rwlock_unlock(&r->rwlock);
	});
}

static double mutex_cycle(struct rivals *r)
{
	return TIMED(CYCLES, {
		pthread_mutex_lock(&r->mutex);
		pthread_mutex_unlock(&r->mutex);
	});
}

static double lock_cycle(struct vb_lock_client *c, unsigned n, int *err)
{
	struct vb_grant g;

	return TIMED(n, {
		if (*err == 0)
			*err = vb_lock_acquire(c, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
		if (*err == 0)
			*err = vb_lock_release(c, &g);
	});
}

#define RIVALS 4
static const struct {
	const char *name;
	double (*cycle)(struct rivals *r);
	bool wide; /* for locks on 128-bit words only */
} rivals[RIVALS] = {
	{"two bare atomics", two_atomics, false},
	{"two bare cmpxchg16b", two_atomics128, true},
	{"pthread_rwlock, process-shared", rwlock_cycle, false},
	{"pthread_mutex, robust", mutex_cycle, false},
};

static int time_lock(struct vb_floor *f, struct vb_lock_client *c, const struct vb_lock_ops *ops)
{
	/* A lock whose every cycle goes through a server takes microseconds. */
	unsigned cycles = ops->serve != NULL && !(ops->caps & VB_LOCK_MESSAGES) ? RPCS : CYCLES;
	double v[VB_FLOOR_REPEATS], base[RIVALS][VB_FLOOR_REPEATS], copy[VB_FLOOR_REPEATS];
	struct rivals r;
	unsigned n = 0;
	int err = 0;

	rivals_init(&r);
	for (; n < f->o.repeat && err == 0 && (n == 0 || !vb_interrupted); n++) {
		v[n] = lock_cycle(c, cycles, &err);
		for (unsigned i = 0; i < RIVALS; i++)
			base[i][n] = rivals[i].cycle(&r);
	}
	pthread_rwlock_destroy(&r.rwlock);
	pthread_mutex_destroy(&r.mutex);
	if (err)
		return vb_fail(err, "'%s': %s", ops->name, vb_strerror(err));
	for (unsigned i = 0; i < RIVALS; i++) {
		if (rivals[i].wide && !((ops->needs | ops->wishes) & VB_CAP_MASKED128))
			continue;
		memcpy(copy, v, sizeof(copy));
		vb_floor_add_turns(f, "locks", ops->name, copy, rivals[i].name, base[i], n);
	}
	return 0;
}

static int one_lock(struct vb_floor *f, const struct vb_lock_ops *ops)
{
	const struct vb_fabric_params fp = {
		.fabric = "shm", .node_bytes = 1 << 20, .endpoints = 16};
	const struct vb_lock_space_params sp = {.lock = ops->name, .locks = 64};
	struct vb_fabric *fabric = NULL;
	struct vb_lock_space *space = NULL;
	struct vb_lock_server *server = NULL;
	struct vb_lock_client *client = NULL;
	int err = vb_fabric_open(&fp, &fabric);

	if (err == 0)
		err = vb_lock_space_open(fabric, &sp, &space);
	if (err == 0)
		err = vb_lock_server_thread_start(space, 0, &server);
	if (err == 0)
		err = vb_lock_client_open(space, 0, &client);
	if (err == 0)
		err = time_lock(f, client, ops);
	if (client != NULL)
		vb_lock_client_close(client);
	vb_lock_server_stop(server);
	if (space != NULL)
		vb_lock_space_close(space);
	if (fabric != NULL)
		vb_fabric_close(fabric);
	return err;
}

int vb_floor_locks(struct vb_floor *f)
{
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL && !vb_interrupted; l++) {
		int err = one_lock(f, *l);

		if (err)
			return err;
	}
	return 0;
}
