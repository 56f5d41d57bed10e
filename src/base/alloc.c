/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of the library's own: see alloc.h. */
#include "base/alloc.h"

#include <verbena/verbena.h>

#include "base/compiler.h"

static struct vb_allocator by; /* by.alloc is NULL: the C library's */
static bool used;              /* atomic */

bool vb_alloc_use(const struct vb_allocator *a)
{
	if (__atomic_load_n(&used, __ATOMIC_ACQUIRE))
		return false;
	by = a != NULL ? *a : (struct vb_allocator){.alloc = NULL};
	return true;
}

/* Whether the program has one.  Read before it is written: many threads share the line. */
static bool is_own(void)
{
	if (vb_unlikely(!__atomic_load_n(&used, __ATOMIC_RELAXED)))
		__atomic_store_n(&used, true, __ATOMIC_RELEASE);
	return by.alloc != NULL;
}

/* A program's allocator is asked for no piece of 0 bytes. */
static size_t some(size_t bytes)
{
	return bytes != 0 ? bytes : 1;
}

void *vb_malloc(size_t bytes)
{
	return is_own() ? by.alloc(by.ctx, some(bytes)) : (malloc)(bytes);
}

void *vb_calloc(size_t n, size_t bytes)
{
	size_t all;

	if (!is_own())
		return (calloc)(n, bytes);
	return __builtin_mul_overflow(n, bytes, &all) ? NULL : by.alloc_zeroed(by.ctx, some(all));
}

void *vb_realloc(void *p, size_t bytes)
{
	if (!is_own())
		return (realloc)(p, bytes);
	return p == NULL ? by.alloc(by.ctx, some(bytes)) : by.resize(by.ctx, p, some(bytes));
}

void *vb_aligned_alloc(size_t align, size_t bytes)
{
	return is_own() ? by.alloc_aligned(by.ctx, align, (some(bytes) + align - 1) & ~(align - 1))
			: (aligned_alloc)(align, bytes);
}

char *vb_strdup(const char *text)
{
	size_t bytes = strlen(text) + 1;
	char *copy = vb_malloc(bytes);

	if (copy != NULL)
		memcpy(copy, text, bytes);
	return copy;
}

void vb_free(void *p)
{
	if (p == NULL)
		return;
	if (is_own())
		by.release(by.ctx, p);
	else
		(free)(p);
}
