/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What transactions read and wrote, as histories for the checker.
 *
 * A transaction is noted before its commit point, in a place of its client's, and goes into the
 * history when it has committed.  Both lie in shared memory: of a worker that is killed in between,
 * the parent finds what may have happened, and the checker finds out whether it did.  Aborted
 * transactions are not recorded: the name of one, and so the version that it would have written,
 * may be that of the next try.  Who reads a version that never came about has read one that nobody
 * wrote, which the checker tells.  Where transactions have a status word it says which of the
 * dead's have committed; only without one their outcome is left to the checker, who then has to
 * trust that a version is made once.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "check/txn/gather.h"

#define ID_WORKER_SHIFT 44u

/* Of a client: a transaction whose commit may have happened. */
struct prepared {
	struct vb_history_txn txn;
	uint64_t ts;
	uint64_t nth; /* of the history it is to become; 0: it is not on its way there */
	uint32_t place, valid;
	struct vb_history_op op[];
};

static struct prepared *prepared_of(const struct vb_tbench_recorder *r, unsigned client)
{
	return (struct prepared *)(r->prepared + client * r->each);
}

static size_t history_bytes(unsigned ops)
{
	/* And what the history adds to each. */
	return sizeof(struct vb_history_txn) + ops * sizeof(struct vb_history_op) + 8;
}

static uint32_t note_items(const struct vb_txn *t, struct vb_history_op *op)
{
	uint32_t n = 0;

	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *it = &t->item[i];
		struct vb_history_op base = {.key = it->key, .table = it->table->id};

		if (it->flags & VB_ITEM_READ && it->flags & VB_ITEM_NOTED) {
			op[n] = base;
			op[n].kind = VB_HISTORY_READ;
			op[n].version = it->fetched;
			op[n++].absent = (it->fetched & VB_VERSION_ABSENT) != 0;
		}
		if (it->flags & VB_ITEM_WRITE) {
			op[n] = base;
			op[n].kind = VB_HISTORY_WRITE;
			op[n].version = it->next;
			op[n].prev = it->fetched;
			op[n++].absent = (it->next & VB_VERSION_ABSENT) != 0;
		}
	}
	return n;
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct vb_tbench_recorder *r = ctx;
	unsigned client = t->me->index;
	struct prepared *p = prepared_of(r, client);

	p->txn = (struct vb_history_txn){
		.id = (uint64_t)r->worker << ID_WORKER_SHIFT | (uint64_t)client << 32 |
		      r->made[client]++,
		.begin_ns = t->begin_ns,
		.client = (uint16_t)(r->worker * r->clients + client),
		.type = t->me->type,
		.outcome = VB_HISTORY_UNKNOWN,
		.level = (uint8_t)vb_history_gather_level(t),
	};
	p->ts = t->ts;
	p->nth = 0;
	p->place = vb_txn_lane(t->me)->place;
	p->txn.n_ops = note_items(t, p->op);
	__atomic_store_n(&p->valid, 1, __ATOMIC_RELEASE);
}

/* Who dies behind vb_history_add has it in both places: `nth` says so. */
static void add(struct vb_tbench_recorder *r, struct prepared *p)
{
	__atomic_store_n(&p->nth, vb_history_count(r->history) + 1, __ATOMIC_RELEASE);
	if (!vb_history_add(r->history, &p->txn, p->op))
		__atomic_fetch_or(r->full, VB_BENCH_FULL_HISTORY, __ATOMIC_RELEASE);
	__atomic_store_n(&p->valid, 0, __ATOMIC_RELEASE);
	r->used += history_bytes(p->txn.n_ops);
	/* Soon full: the transactions that are under way still fit. */
	if (r->used > r->room)
		__atomic_fetch_or(r->full, VB_BENCH_FULL_HISTORY, __ATOMIC_RELEASE);
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	struct vb_tbench_recorder *r = ctx;
	struct prepared *p = prepared_of(r, t->me->index);

	if (!p->valid)
		return;
	if (!committed) {
		__atomic_store_n(&p->valid, 0, __ATOMIC_RELEASE);
		return;
	}
	p->txn.outcome = VB_HISTORY_COMMITTED;
	p->txn.end_ns = vb_ep_now(t->me->ep);
	add(r, p);
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	struct vb_tbench_recorder *r = ctx;
	struct prepared *p = prepared_of(r, t->me->index);

	/* It may yet happen: nothing comes after it for the time. */
	p->txn.end_ns = UINT64_MAX;
	add(r, p);
}

int vb_tbench_recorder_open(struct vb_tbench_recorder *r, const struct vb_tbench_plan *plan,
			    unsigned items, unsigned worker, unsigned clients, uint32_t *full)
{
	/* Every item may be read and written. */
	size_t each = sizeof(struct prepared) + 2 * (size_t)items * sizeof(struct vb_history_op);
	size_t reserve = clients * history_bytes(2 * items);
	size_t bytes = plan->o.history_bytes;

	*r = (struct vb_tbench_recorder){
		.worker = worker,
		.clients = clients,
		.each = each,
		.prepared_bytes = clients * each,
		.full = full,
		.watch = {.prepared = on_prepared, .ended = on_ended, .unknown = on_unknown},
	};
	if (bytes < 2 * reserve)
		return vb_fail(-EINVAL,
			       "--history-bytes %zu: %u clients with up to %u records in a "
			       "transaction need at least %zu",
			       bytes, clients, items, 2 * reserve);
	r->room = bytes - reserve;
	r->made = calloc(clients, sizeof(*r->made));
	r->prepared = mmap(NULL, r->prepared_bytes, PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (r->prepared == MAP_FAILED)
		r->prepared = NULL;
	if (r->prepared == NULL || r->made == NULL)
		return vb_fail(-ENOMEM, "no memory for the history of %u clients", clients);
	return vb_history_open(bytes, &r->history);
}

void vb_tbench_recorder_bury(struct vb_tbench_recorder *r, const struct vb_db *db)
{
	uint64_t count = r->history != NULL ? vb_history_count(r->history) : 0;
	const bool known = db != NULL && db->status; /* here, what has become of it */

	for (unsigned i = 0; r->history != NULL && i < r->clients; i++) {
		struct prepared *p = prepared_of(r, i);

		if (!__atomic_load_n(&p->valid, __ATOMIC_ACQUIRE))
			continue;
		if ((p->nth != 0 && p->nth <= count) ||
		    (known && !vb_tbench_has_committed(db, p->place, p->ts))) {
			__atomic_store_n(&p->valid, 0, __ATOMIC_RELEASE);
			continue;
		}
		p->txn.outcome = known ? VB_HISTORY_COMMITTED : VB_HISTORY_UNKNOWN;
		p->txn.end_ns = UINT64_MAX;
		add(r, p);
	}
}

void vb_tbench_recorder_close(struct vb_tbench_recorder *r)
{
	vb_history_close(r->history);
	if (r->prepared != NULL)
		munmap(r->prepared, r->prepared_bytes);
	free(r->made);
	*r = (struct vb_tbench_recorder){0};
}
