/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Boost.Context's C entry points.  The library exports them but ships no C header for them.
 *
 * jump_fcontext stops the caller and goes on in `to`; it returns when somebody jumps back, with the
 * context of whoever did and the pointer he passed.  A context is good for one jump.
 */
#ifndef VB_TASK_FCONTEXT_H
#define VB_TASK_FCONTEXT_H

#include <stddef.h>

typedef void *fcontext_t;

typedef struct {
	fcontext_t fctx;
	void *data;
} transfer_t;

transfer_t jump_fcontext(fcontext_t to, void *vp);
/* The same, but `fn` is run first on the stack of `to`, with what jump_fcontext would return. */
transfer_t ontop_fcontext(fcontext_t to, void *vp, transfer_t (*fn)(transfer_t));
/* sp is the upper end of the stack. */
fcontext_t make_fcontext(void *sp, size_t size, void (*fn)(transfer_t));

#endif
