/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stacks: mapped with a guard below, kept for the next task when theirs has ended.
 *
 * New stacks are coloured: their upper ends differ by multiples of 256 bytes.  Else the hottest
 * lines of all tasks would lie at the same page offset and fight for the same few sets of the
 * first-level cache.
 */
#include <errno.h>
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

static struct vb_task *stack_map(struct vb_sched *s, unsigned stack_class)
{
	size_t bytes = class_bytes(stack_class);
	char *p = mmap(NULL, GUARD_BYTES + bytes, PROT_READ | PROT_WRITE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
	struct vb_task *t;
	char *top;

	if (p == MAP_FAILED || mprotect(p, GUARD_BYTES, PROT_NONE) != 0) {
		vb_error("no stack for a task of %zu bytes (%u tasks alive): %m; "
			 "vm.max_map_count allows about half its value of tasks",
			 bytes, s->tasks);
		if (p != MAP_FAILED)
			munmap(p, GUARD_BYTES + bytes);
		return NULL;
	}
	top = p + GUARD_BYTES + bytes - s->colour++ % COLOURS * COLOUR_BYTES;
	t = (struct vb_task *)((uintptr_t)(top - sizeof(*t)) & ~(uintptr_t)(VB_CACHELINE - 1));
	t->mapping = p;
	t->stack_class = (uint8_t)stack_class;
	return t;
}

static void stack_unmap(struct vb_task *t)
{
	munmap(t->mapping, GUARD_BYTES + class_bytes(t->stack_class));
}

struct vb_task *vb_stack_get(struct vb_sched *s, unsigned stack_class)
{
	struct vb_stack_pool *pool = &s->pools[stack_class];
	struct vb_task *t;
	char *bottom;

	if (!vb_list_empty(&pool->free)) {
		t = vb_container_of(pool->free.prev, struct vb_task, link); /* the warmest */
		vb_list_remove(&t->link);
		pool->n--;
	} else {
		t = stack_map(s, stack_class);
		if (t == NULL)
			return NULL;
	}
	bottom = t->mapping + GUARD_BYTES;
	vb_fiber_init(&t->fiber, bottom, (size_t)((char *)t - bottom));
	return t;
}

void vb_stack_put(struct vb_sched *s, struct vb_task *t)
{
	struct vb_stack_pool *pool = &s->pools[t->stack_class];

	vb_fiber_destroy(&t->fiber);
	if (pool->n >= VB_STACK_POOL_MAX) {
		stack_unmap(t);
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
		struct vb_list *it;

		while ((it = vb_list_pop(&s->pools[c].free)) != NULL)
			stack_unmap(vb_container_of(it, struct vb_task, link));
		s->pools[c].n = 0;
	}
}
