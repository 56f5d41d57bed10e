/* SPDX-License-Identifier: Apache-2.0 */
/* Verbs and uncontended locks on shared memory, beside the bare instructions and pthread's locks.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
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

	if (err == 0)
		err = vb_region(w->fabric, 0, "floor", 64, &w->at, &fresh);
	if (err == 0)
		err = vb_ep_open(w->fabric, 0, &w->ep);
	if (err == 0)
		w->local = vb_local(w->fabric, w->at, 64);
	return err;
}

static void words_close(struct words *w)
{
	vb_ep_close(w->ep);
	vb_fabric_close(w->fabric);
}

enum { FAA64, FAA128, CAS128, XADD, CMPXCHG16B };

/* One cmpxchg16b that succeeds: the instruction alone. */
static double bare_cas128(struct words *w)
{
#if defined(__x86_64__)
	unsigned __int128 *word = (unsigned __int128 *)(w->local + 2);
	unsigned __int128 seen = __sync_val_compare_and_swap(word, 0, 0);

	return VB_FLOOR_TIMED(VERBS, {
		__sync_val_compare_and_swap(word, seen, seen + 1);
		seen++;
	});
#else
	return VB_FLOOR_TIMED(VERBS, __atomic_fetch_add(w->local, 1, __ATOMIC_SEQ_CST));
#endif
}

static double verb_cas128(struct words *w)
{
	const struct vb_u128 all = {UINT64_MAX, UINT64_MAX};
	struct vb_u128 seen = {0, 0}, next, old;

	vb_mcas128(w->ep, w->at + 16, seen, all, seen, all, &seen);
	return VB_FLOOR_TIMED(VERBS, {
		next = (struct vb_u128){seen.lo + 1, seen.hi + 1};
		vb_mcas128(w->ep, w->at + 16, seen, all, next, all, &old);
		seen = next;
	});
}

static double turn(void *ctx, unsigned what)
{
	const struct vb_u128 one = {1, 1}, bounds = {0, 0};
	struct words *w = ctx;
	struct vb_u128 wide;
	uint64_t old;

	switch (what) {
	case FAA64:
		return VB_FLOOR_TIMED(VERBS, vb_faa64(w->ep, w->at, 1, &old));
	case FAA128:
		return VB_FLOOR_TIMED(VERBS, vb_mfaa128(w->ep, w->at + 16, one, bounds, &wide));
	case CAS128:
		return verb_cas128(w);
	case XADD:
		return VB_FLOOR_TIMED(VERBS, __atomic_fetch_add(w->local, 1, __ATOMIC_SEQ_CST));
	default:
		return bare_cas128(w);
	}
}

int vb_floor_faa(struct vb_floor *f)
{
	static const struct vb_floor_pair pairs[] = {
		{"FAA, 64 bits", FAA64, "lock xadd", XADD},
		{"masked FAA, 128 bits", FAA128, "one cmpxchg16b", CMPXCHG16B},
		{"masked CAS, 128 bits", CAS128, "one cmpxchg16b", CMPXCHG16B},
	};
	struct words w = {0};
	int err = words_open(&w);

	for (unsigned i = 0; i < VB_ARRAY_SIZE(pairs) && err == 0; i++)
		if (i == 0 || w.fabric->caps.flags & VB_CAP_MASKED128)
			err = vb_floor_turns(f, "faa", &pairs[i], turn, &w);
	words_close(&w);
	return err;
}

/* ---- uncontended locks ---- */

struct rivals {
	struct vb_floor_rivals locks;
	uint64_t word;
	unsigned __int128 wide;
};

static double two_atomics(struct rivals *r)
{
	return VB_FLOOR_TIMED(CYCLES, {
		__atomic_fetch_add(&r->word, 1, __ATOMIC_SEQ_CST);
		__atomic_fetch_sub(&r->word, 1, __ATOMIC_SEQ_CST);
	});
}

/* What a lock on 128-bit words stands on. */
static double two_atomics128(struct rivals *r)
{
#if defined(__x86_64__)
	unsigned __int128 seen = r->wide;

	return VB_FLOOR_TIMED(CYCLES, {
		__sync_val_compare_and_swap(&r->wide, seen, seen + 1);
		__sync_val_compare_and_swap(&r->wide, seen + 1, seen);
	});
#else
	return two_atomics(r);
#endif
}

static double rwlock_cycle(struct rivals *r)
{
	return VB_FLOOR_TIMED(CYCLES, {
		pthread_rwlock_wrlock(&r->locks.rwlock);
		pthread_rwlock_unlock(&r->locks.rwlock);
	});
}

static double mutex_cycle(struct rivals *r)
{
	return VB_FLOOR_TIMED(CYCLES, {
		pthread_mutex_lock(&r->locks.mutex);
		pthread_mutex_unlock(&r->locks.mutex);
	});
}

static double lock_cycle(struct vb_lock_client *c, unsigned n, int *err)
{
	struct vb_grant g;

	return VB_FLOOR_TIMED(n, {
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
	struct rivals r = {.word = 0};
	unsigned n = 0;
	int err = 0;

	vb_floor_rivals_init(&r.locks);
	for (; n < f->o.repeat && err == 0 && (n == 0 || !vb_interrupted); n++) {
		v[n] = lock_cycle(c, cycles, &err);
		for (unsigned i = 0; i < RIVALS; i++)
			base[i][n] = rivals[i].cycle(&r);
	}
	pthread_rwlock_destroy(&r.locks.rwlock);
	pthread_mutex_destroy(&r.locks.mutex);
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
	vb_lock_client_close(client);
	vb_lock_server_stop(server);
	vb_lock_space_close(space);
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
