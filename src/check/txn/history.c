/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording histories: see history.h.
 *
 * Everything lies in one shared mapping, so that a parent sees what a forked worker appended.  A
 * record is the transaction, its operations and the number of records so far; `used` is stored
 * when the record is complete, with release.  So a writer that is killed in the middle of a record
 * leaves the whole ones, and their number is found at the end of the last.
 */
#define VB_LOG_ROOM "check"
#include "check/txn/history.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"

struct vb_history {
	size_t mapped, room;
	enum vb_level level;
	_Atomic uint64_t used;
	unsigned char data[] VB_ALIGNED(VB_CACHELINE);
};

const char *const vb_level_names[VB_LEVELS] = {
	[VB_LEVEL_NONE] = "none",
	[VB_LEVEL_READ_COMMITTED] = "read-committed",
	[VB_LEVEL_REPEATABLE_READ] = "repeatable-read",
	[VB_LEVEL_SNAPSHOT] = "snapshot",
	[VB_LEVEL_SERIALIZABLE] = "serializable",
	[VB_LEVEL_STRICT] = "strict-serializable",
};

int vb_history_open(size_t bytes, struct vb_history **out)
{
	size_t mapped = sizeof(struct vb_history) + bytes;
	struct vb_history *h;

	if (mapped < bytes)
		return vb_fail(-ENOMEM, "a history of %zu bytes does not fit in memory", bytes);
	h = mmap(NULL, mapped, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (h == MAP_FAILED)
		return vb_fail(-ENOMEM, "no memory for a history of %zu MiB: %s", bytes >> 20,
			       strerror(errno));
	h->mapped = mapped;
	h->room = bytes;
	*out = h;
	return 0;
}

void vb_history_close(struct vb_history *h)
{
	if (h != NULL)
		munmap(h, h->mapped);
}

static size_t record_bytes(uint32_t n_ops)
{
	return sizeof(struct vb_history_txn) + n_ops * sizeof(struct vb_history_op) +
	       sizeof(uint64_t);
}

bool vb_history_add(struct vb_history *h, const struct vb_history_txn *t,
		    const struct vb_history_op *ops)
{
	uint64_t used = atomic_load_explicit(&h->used, memory_order_relaxed);
	size_t bytes = record_bytes(t->n_ops);
	unsigned char *p = h->data + used;
	uint64_t count;

	vb_assert(t->n_ops <= VB_HISTORY_OPS_MAX);
	if (h->room - used < bytes)
		return false;
	count = vb_history_count(h) + 1;
	memcpy(p, t, sizeof(*t));
	if (t->n_ops > 0)
		memcpy(p + sizeof(*t), ops, t->n_ops * sizeof(*ops));
	memcpy(p + bytes - sizeof(count), &count, sizeof(count));
	atomic_store_explicit(&h->used, used + bytes, memory_order_release);
	return true;
}

bool vb_history_next(const struct vb_history *h, uint64_t *at, const struct vb_history_txn **t,
		     const struct vb_history_op **ops)
{
	const unsigned char *p = h->data + *at;

	if (*at >= atomic_load_explicit(&h->used, memory_order_acquire))
		return false;
	*t = (const struct vb_history_txn *)p;
	*ops = (const struct vb_history_op *)(p + sizeof(**t));
	*at += record_bytes((*t)->n_ops);
	return true;
}

uint64_t vb_history_count(const struct vb_history *h)
{
	uint64_t used = atomic_load_explicit(&h->used, memory_order_acquire), count;

	if (used == 0)
		return 0;
	memcpy(&count, h->data + used - sizeof(count), sizeof(count));
	return count;
}

void vb_history_claim(struct vb_history *h, enum vb_level level)
{
	h->level = level;
}

enum vb_level vb_history_claimed(const struct vb_history *h)
{
	return h->level;
}
