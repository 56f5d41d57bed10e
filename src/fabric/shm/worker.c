/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads that receive, and their bells.  A worker is claimed under the tables' mutex and freed by one
 * swap, by whoever finds first that its process is gone.  How a bell loses no wake-up is said in wait.c.
 */
#define VB_LOG_ROOM "shm"
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

/* ---- bells ---- */

bool shm_bell_awake(struct shm_fabric *f, uint32_t worker)
{
	if (!(__atomic_fetch_and(&f->workers[worker].bell, ~1u, __ATOMIC_SEQ_CST) & 1))
		return false;
	__atomic_fetch_sub(&f->h->workers_asleep, 1, __ATOMIC_RELAXED);
	return true;
}

void shm_ring_bell(struct shm_fabric *f, uint32_t worker)
{
	uint32_t *bell = &f->workers[worker].bell;
	uint32_t old = __atomic_fetch_add(bell, 2, __ATOMIC_SEQ_CST);

	if (vb_likely(!(old & 1)))
		return;
	if (shm_bell_awake(f, worker))
		(void)syscall(SYS_futex, bell, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* ---- workers ---- */

int shm_worker_claim(struct shm_fabric *f, uint32_t *worker)
{
	uint32_t n = f->h->endpoints;
	int err = shm_lock(f);

	if (err != 0)
		return err;
	for (uint32_t i = 0; i < 2 * n; i++) {
		struct shm_worker *w = &f->workers[i % n];
		shm_process owner = __atomic_load_n(&w->owner, __ATOMIC_RELAXED);

		if (owner != 0 && (i < n || shm_process_alive(owner)))
			continue;
		__atomic_store_n(&w->owner, shm_self(), __ATOMIC_RELAXED);
		if (owner == 0)
			__atomic_fetch_add(&f->h->workers_active, 1, __ATOMIC_RELAXED);
		else
			shm_bell_awake(f, i % n);
		*worker = i % n;
		shm_unlock(f);
		return 0;
	}
	shm_unlock(f);
	return vb_fail(-ENOSPC, "%u threads have endpoints open: open the fabric with more", n);
}

void shm_worker_free(struct shm_fabric *f, struct shm_worker *w, shm_process owner)
{
	if (__atomic_compare_exchange_n(&w->owner, &owner, 0, false, __ATOMIC_RELAXED,
					__ATOMIC_RELAXED)) {
		__atomic_fetch_sub(&f->h->workers_active, 1, __ATOMIC_RELAXED);
		shm_bell_awake(f, (uint32_t)(w - f->workers));
	}
}

void shm_worker_release(struct shm_fabric *f, uint32_t worker)
{
	shm_worker_free(f, &f->workers[worker], shm_self());
}
