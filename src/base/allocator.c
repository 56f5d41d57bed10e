/* SPDX-License-Identifier: Apache-2.0 */
/* vb_allocator_set. */
#define VB_LOG_ROOM "base"
#include <errno.h>

#include <verbena/verbena.h>

#include "base/alloc.h"
#include "base/log.h"

int vb_allocator_set(const struct vb_allocator *a)
{
	if (a != NULL && (a->alloc == NULL || a->alloc_zeroed == NULL || a->resize == NULL ||
			  a->alloc_aligned == NULL || a->release == NULL))
		return vb_fail(-EINVAL, "an allocator without %s: it needs all five functions",
			       a->alloc == NULL          ? "alloc"
			       : a->alloc_zeroed == NULL ? "alloc_zeroed"
			       : a->resize == NULL       ? "resize"
			       : a->release == NULL      ? "release"
							 : "alloc_aligned");
	if (!vb_alloc_use(a))
		return vb_fail(-EBUSY,
			       "the library has had memory already, which goes back where it came "
			       "from: set the allocator before any other call");
	return 0;
}
