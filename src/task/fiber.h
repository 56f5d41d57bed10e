/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the sanitizers must be told about stacks that we switch by hand.
 *
 * ASan keeps the bounds of the running stack and, for use-after-return, a fake stack per fiber;
 * TSan keeps a shadow of the call stack and a vector clock.  Without them everything here is empty.
 */
#ifndef VB_TASK_FIBER_H
#define VB_TASK_FIBER_H

#include <stddef.h>

#include "base/compiler.h"

#ifdef VB_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef VB_TSAN
#include <sanitizer/tsan_interface.h>
#endif

/* Never a call of its own: TSan would see a function entered on one fiber and left on another. */
#define VB_FIBER_INLINE static inline __attribute__((always_inline))

struct vb_fiber {
#ifdef VB_ASAN
	const void *bottom;
	size_t size;
	void *fake_stack;
#endif
#ifdef VB_TSAN
	void *tsan;
#endif
};

/* The thread's own stack; ASan tells its bounds at the first switch away from it. */
VB_FIBER_INLINE void vb_fiber_init_root(struct vb_fiber *f)
{
#ifdef VB_TSAN
	f->tsan = __tsan_get_current_fiber();
#endif
	(void)f;
}

VB_FIBER_INLINE void vb_fiber_init(struct vb_fiber *f, const void *bottom, size_t size)
{
#ifdef VB_ASAN
	f->bottom = bottom;
	f->size = size;
	f->fake_stack = NULL;
#endif
#ifdef VB_TSAN
	f->tsan = __tsan_create_fiber(0);
#endif
	(void)f, (void)bottom, (void)size;
}

/* The fiber is not running and never will again. */
VB_FIBER_INLINE void vb_fiber_destroy(struct vb_fiber *f)
{
#ifdef VB_ASAN
	/* Frames that were never left have red zones; the next owner of the stack must not hit
	 * them. */
	__asan_unpoison_memory_region(f->bottom, f->size);
#endif
#ifdef VB_TSAN
	__tsan_destroy_fiber(f->tsan);
	f->tsan = NULL;
#endif
	(void)f;
}

/* Right before the jump. */
VB_FIBER_INLINE void vb_fiber_leave(struct vb_fiber *from, struct vb_fiber *to)
{
#ifdef VB_ASAN
	__sanitizer_start_switch_fiber(&from->fake_stack, to->bottom, to->size);
#endif
#ifdef VB_TSAN
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
	(void)from, (void)to;
}

/* The same, for the last time: ASan frees the fake stack. */
VB_FIBER_INLINE void vb_fiber_leave_for_good(struct vb_fiber *to)
{
#ifdef VB_ASAN
	__sanitizer_start_switch_fiber(NULL, to->bottom, to->size);
#endif
#ifdef VB_TSAN
	__tsan_switch_to_fiber(to->tsan, 0);
#endif
	(void)to;
}

/* Right after the jump, on the new stack.  `from` is where we came from. */
VB_FIBER_INLINE void vb_fiber_arrive(struct vb_fiber *self, struct vb_fiber *from)
{
#ifdef VB_ASAN
	const void *bottom;
	size_t size;

	__sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &size);
	from->bottom = bottom;
	from->size = size;
#endif
	(void)self, (void)from;
}

#endif
