/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timers: a 4-ary heap ordered by (time, order of arming).
 *
 * The simulator's speed rests on this: every simulated verb arms and fires about two timers.  Keys
 * lie in the heap array, so a comparison reads only the array; four children share one or two cache
 * lines and halve the depth of a binary heap.  A timer knows its place, so it can be disarmed or
 * moved in O(log n) without a search.
 */
#include <errno.h>
#include <sys/mman.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

#define HEAP_BYTES ((size_t)VB_TIMERS_MAX * sizeof(struct vb_heap_entry))

int vb_heap_init(struct vb_heap *h)
{
	void *p = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (p == MAP_FAILED)
		return vb_fail(-ENOMEM, "no address space for the timers (%zu bytes): %m",
			       HEAP_BYTES);
	h->entries = p;
	h->n = 0;
	h->seq = 0;
	return 0;
}

void vb_heap_destroy(struct vb_heap *h)
{
	munmap(h->entries, HEAP_BYTES);
}

/* (time, order) as one number: compared without a branch that would be mispredicted half the time.
 */
static inline bool before(const struct vb_heap_entry *a, const struct vb_heap_entry *b)
{
	return ((unsigned __int128)a->at_ns << 64 | a->seq) <
	       ((unsigned __int128)b->at_ns << 64 | b->seq);
}

static inline void place(struct vb_heap_entry *entries, uint32_t i, struct vb_heap_entry e)
{
	entries[i] = e;
	e.timer->slot = i + 1;
}

/* Puts e where it belongs on the way from the hole i to the root. */
static inline void sift_up(struct vb_heap *h, uint32_t i, struct vb_heap_entry e)
{
	while (i > 0) {
		uint32_t parent = (i - 1) / 4;

		if (!before(&e, &h->entries[parent]))
			break;
		place(h->entries, i, h->entries[parent]);
		i = parent;
	}
	place(h->entries, i, e);
}

/* Puts e where it belongs on the way from the hole i to the leaves. */
static inline void sift_down(struct vb_heap *h, uint32_t i, struct vb_heap_entry e)
{
	struct vb_heap_entry *entries = h->entries;

	for (;;) {
		uint32_t child = 4 * i + 1, least;

		if (child + 4 <= h->n) {
			uint32_t a = child + before(&entries[child + 1], &entries[child]);
			uint32_t b = child + 2 + before(&entries[child + 3], &entries[child + 2]);

			least = before(&entries[b], &entries[a]) ? b : a;
		} else if (child < h->n) {
			least = child;
			while (++child < h->n)
				if (before(&entries[child], &entries[least]))
					least = child;
		} else {
			break;
		}
		if (!before(&entries[least], &e))
			break;
		place(entries, i, entries[least]);
		i = least;
	}
	place(entries, i, e);
}

static inline void refill(struct vb_heap *h, uint32_t i, struct vb_heap_entry e)
{
	if (i > 0 && before(&e, &h->entries[(i - 1) / 4]))
		sift_up(h, i, e);
	else
		sift_down(h, i, e);
}

static inline void remove_at(struct vb_heap *h, uint32_t i)
{
	h->entries[i].timer->slot = 0;
	h->n--;
	if (i < h->n)
		refill(h, i, h->entries[h->n]);
}

void vb_timer_arm(struct vb_sched *s, struct vb_timer *t, uint64_t at_ns)
{
	struct vb_heap *h = &s->heap;
	struct vb_heap_entry e = {.at_ns = at_ns, .seq = h->seq++, .timer = t};

	t->at_ns = at_ns;
	t->seq = e.seq;
	if (t->slot != 0) {
		refill(h, t->slot - 1, e);
		return;
	}
	vb_assert(h->n < VB_TIMERS_MAX);
	sift_up(h, h->n++, e);
}

void vb_timer_disarm(struct vb_sched *s, struct vb_timer *t)
{
	if (t->slot != 0)
		remove_at(&s->heap, t->slot - 1);
}

void vb_heap_fire(struct vb_sched *s)
{
	struct vb_heap *h = &s->heap;
	uint64_t end = h->seq;

	while (h->n > 0 && h->entries[0].at_ns <= s->face.now_ns && h->entries[0].seq < end) {
		struct vb_timer *t = h->entries[0].timer;

		remove_at(h, 0);
		t->fire(t);
	}
}
