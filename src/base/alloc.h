/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Memory of the library's own.  The build puts this file in front of each file of the library (src/meson.build), so
 * that all that asks for memory by the C library's names asks the program's allocator, if there is one
 * (vb_allocator_set), and nothing is forgotten: tests/cli/rooms.sh looks at what was built.
 *
 * What the C library has allocated goes back to it: (free)(text), in parentheses, is no macro's.
 */
#ifndef VB_BASE_ALLOC_H
#define VB_BASE_ALLOC_H

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

struct vb_allocator;

void *vb_malloc(size_t bytes);
void *vb_calloc(size_t n, size_t bytes);
void *vb_realloc(void *p, size_t bytes);
void *vb_aligned_alloc(size_t align, size_t bytes);
char *vb_strdup(const char *text);
void vb_free(void *p);

/* Copies it; NULL: the C library's.  false: some has been asked for already. */
bool vb_alloc_use(const struct vb_allocator *a);

#define malloc(bytes)               vb_malloc(bytes)
#define calloc(n, bytes)            vb_calloc(n, bytes)
#define realloc(p, bytes)           vb_realloc(p, bytes)
#define aligned_alloc(align, bytes) vb_aligned_alloc(align, bytes)
#define strdup(text)                vb_strdup(text)
#define free(p)                     vb_free(p)

#endif
