/* SPDX-License-Identifier: Apache-2.0 */
/* What the processes of a load have in common. */
#include <sys/mman.h>

#include "workload/load.h"

void *vb_load_share(struct vb_load *l, size_t bytes)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (shared == MAP_FAILED)
		return NULL;
	l->shared = shared;
	l->shared_bytes = bytes;
	return shared;
}

void vb_load_unshare(struct vb_load *l)
{
	if (l->shared != NULL)
		munmap(l->shared, l->shared_bytes);
	l->shared = NULL;
}
