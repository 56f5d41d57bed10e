/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks: mapped with a guard below (of very many tasks in virtual time: in slabs, see inner.h), kept for
 * the next task when theirs has ended.
 *
 * New stacks are coloured: their upper ends differ by multiples of 256 bytes.  Else the hottest
 * lines of all tasks would lie at the same page offset and fight for the same few sets of the
 * first-level cache.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define VB_LOG_ROOM "task"
#include "base/log.h"
#include "task/inner.h"

/* Also catches a frame of a few pages that skips the first one. */
#define GUARD_BYTES 16384

#define COLOURS      16
#define COLOUR_BYTES 256

#define DEFAULT_BYTES (64u << 10)

/* Instrumented frames are several times as large. */
#if defined(VB_ASAN) || defined(VB_TSAN)
#define STACK_SCALE 4
#else
#define STACK_SCALE 1
#endif

static size_t class_bytes(unsigned stack_class)
{
	return (size_t)1 << (VB_STACK_MIN_LOG2 + stack_class);
}

int vb_stack_class(size_t bytes)
{
	size_t need = (bytes != 0 ? bytes : DEFAULT_BYTES) * STACK_SCALE;

	for (int c = 0; c < VB_STACK_CLASSES; c++)
		if (need <= class_bytes((unsigned)c))
			return c;
	return vb_fail(-EINVAL, "a task's stack of %zu bytes is above the largest, %zu", bytes,
		       class_bytes(VB_STACK_CLASSES - 1) / STACK_SCALE);
}

/* The task at the upper end of a new stack. */
static struct vb_task *stack_begin(struct vb_sched *s, char *bottom, unsigned stack_class)
{
	char *top = bottom + class_bytes(stack_class) - s->colour++ % COLOURS * COLOUR_BYTES;
	struct vb_task *t =
		(void *)((uintptr_t)(top - sizeof(*t)) & ~(uintptr_t)(VB_CACHELINE - 1));

	t->bottom = bottom;
	t->unguarded = false;
	t->stack_class = (uint8_t)stack_class;
	return t;
}

/* Address space with a guard behind its first `before` bytes.  NULL: there is none, said. */
static char *map_guarded(const struct vb_sched *s, size_t before, size_t bytes)
{
	size_t all = before + GUARD_BYTES + bytes;
	char *p = mmap(NULL, all, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);

	if (p != MAP_FAILED && mprotect(p + before, GUARD_BYTES, PROT_NONE) == 0)
		return p;
	vb_error("no stack for a task (%zu bytes, %u tasks alive): %m; "
		 "vm.max_map_count allows about half its value of tasks",
		 bytes, s->tasks);
	if (p != MAP_FAILED)
		munmap(p, all);
	return NULL;
}

static struct vb_slab *slab_map(const struct vb_sched *s, unsigned stack_class)
{
	size_t page = (size_t)sysconf(_SC_PAGESIZE);
	size_t bytes = VB_SLAB_STACKS * class_bytes(stack_class);
	char *p = map_guarded(s, page, bytes);
	struct vb_slab *slab = (struct vb_slab *)p;

	if (p == NULL)
		return NULL;
	/* Of each stack a page or two are touched. */
	(void)madvise(p, page + GUARD_BYTES + bytes, MADV_NOHUGEPAGE);
	*slab = (struct vb_slab){.bytes = page + GUARD_BYTES + bytes,
				 .next = p + page + GUARD_BYTES,
				 .unused = VB_SLAB_STACKS};
	return slab;
}

static void slab_unmap(struct vb_slab *slab)
{
	munmap(slab, slab->bytes);
}

static struct vb_task *stack_of_slab(struct vb_sched *s, unsigned stack_class)
{
	struct vb_stack_pool *pool = &s->pools[stack_class];
	struct vb_slab *slab = pool->slab;
	struct vb_task *t;

	if (slab == NULL)
		slab = pool->slab = slab_map(s, stack_class);
	if (slab == NULL)
		return NULL;
	t = stack_begin(s, slab->next, stack_class);
	t->unguarded = true;
	t->slab = slab;
	t->canary = VB_STACK_CANARY;
	slab->next += class_bytes(stack_class);
	slab->given++;
	if (--slab->unused == 0)
		pool->slab = NULL;
	return t;
}

static struct vb_task *stack_map(struct vb_sched *s, unsigned stack_class)
{
	char *p;

	if (s->face.is_virtual && s->guarded >= s->guarded_most)
		return stack_of_slab(s, stack_class);
	p = map_guarded(s, 0, class_bytes(stack_class));
	if (p == NULL)
		return NULL;
	s->guarded++;
	return stack_begin(s, p + GUARD_BYTES, stack_class);
}

/* Of a slab only the memory goes, until it is the last one's turn. */
static void stack_unmap(struct vb_sched *s, struct vb_task *t)
{
	size_t bytes = class_bytes(t->stack_class);
	struct vb_slab *slab = t->slab;

	if (!t->unguarded) {
		s->guarded--;
		munmap(t->bottom - GUARD_BYTES, GUARD_BYTES + bytes);
	} else if (--slab->given == 0 && slab->unused == 0) {
		slab_unmap(slab);
	} else {
		(void)madvise(t->bottom, bytes, MADV_DONTNEED);
	}
}

struct vb_task *vb_stack_get(struct vb_sched *s, unsigned stack_class)
{
	struct vb_stack_pool *pool = &s->pools[stack_class];
	struct vb_task *t;

	if (!vb_list_empty(&pool->free)) {
		t = vb_container_of(pool->free.prev, struct vb_task, link); /* the warmest */
		vb_list_remove(&t->link);
		pool->n--;
	} else {
		t = stack_map(s, stack_class);
		if (t == NULL)
			return NULL;
	}
	vb_fiber_init(&t->fiber, t->bottom, (size_t)((char *)t - t->bottom));
	return t;
}

void vb_stack_put(struct vb_sched *s, struct vb_task *t)
{
	struct vb_stack_pool *pool = &s->pools[t->stack_class];

	vb_stack_check(t);
	vb_fiber_destroy(&t->fiber);
	if (pool->n >= VB_STACK_POOL_MAX) {
		stack_unmap(s, t);
		return;
	}
	pool->n++;
	vb_list_push(&pool->free, &t->link);
}

int vb_task_reserve(struct vb_sched *s)
{
	int stack_class = vb_stack_class(0);
	struct vb_stack_pool *pool = &s->pools[stack_class];
	struct vb_task *t;

	if (!vb_list_empty(&pool->free))
		return 0;
	t = stack_map(s, (unsigned)stack_class);
	if (t == NULL)
		return -ENOMEM;
	pool->n++;
	vb_list_push(&pool->free, &t->link);
	return 0;
}

void vb_stack_trim(struct vb_sched *s)
{
	for (unsigned c = 0; c < VB_STACK_CLASSES; c++) {
		struct vb_stack_pool *pool = &s->pools[c];
		struct vb_list *it;

		while ((it = vb_list_pop(&pool->free)) != NULL)
			stack_unmap(s, vb_container_of(it, struct vb_task, link));
		pool->n = 0;
		if (pool->slab == NULL)
			continue;
		pool->slab->unused = 0;
		if (pool->slab->given == 0)
			slab_unmap(pool->slab);
		pool->slab = NULL;
	}
}

void vb_stack_torn(void)
{
	vb_error("a task has overflowed its stack, into that of another task");
	abort();
}
