/* SPDX-License-Identifier: Apache-2.0 */
/* Which protocols there are, and the search by name. */
#define VB_LOG_ROOM "lock"
#include "lock/protocols.h"

#include <errno.h>
#include <string.h>

#include "base/log.h"
#include "lock/lock.h"

const struct vb_lock_ops *const vb_locks[] = {
	&vb_lock_cas,    &vb_lock_cas_backoff, &vb_lock_retry_on_fail,
	&vb_lock_drtm,   &vb_lock_mcs,         &vb_lock_ncosed,
	&vb_lock_dslr,   &vb_lock_dslr_update, &vb_lock_shiftlock,
	&vb_lock_rpc,    &vb_lock_traditional, &vb_lock_traditional_ro,
	&vb_lock_rma_rw, &vb_lock_table,       NULL,
};

const struct vb_lock_ops *const vb_locks_published[] = {
	&vb_lock_dslr_as_published,
	&vb_lock_shiftlock_as_published,
	NULL,
};

#define REGISTERED_MAX 4
static const struct vb_lock_ops *const *registered[REGISTERED_MAX];
static unsigned n_registered;

void vb_lock_register(const struct vb_lock_ops *const *more)
{
	for (unsigned i = 0; i < n_registered; i++)
		if (registered[i] == more)
			return;
	vb_assert(n_registered < REGISTERED_MAX);
	registered[n_registered++] = more;
}

static const struct vb_lock_ops *find_in(const struct vb_lock_ops *const *list, const char *name)
{
	for (; *list; list++)
		if (!strcmp((*list)->name, name))
			return *list;
	return NULL;
}

const struct vb_lock_ops *vb_lock_find(const char *name)
{
	const struct vb_lock_ops *ops = find_in(vb_locks, name);

	if (!ops)
		ops = find_in(vb_locks_published, name);
	for (unsigned i = 0; !ops && i < n_registered; i++)
		ops = find_in(registered[i], name);
	return ops;
}

int vb_lock_unknown(const char *name)
{
	const char *names[64];
	size_t n = 0;
	char hint[VB_HINT_BYTES];

	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++)
		names[n++] = (*l)->name;
	for (const struct vb_lock_ops *const *l = vb_locks_published; *l; l++)
		names[n++] = (*l)->name;
	return vb_fail(-EINVAL, "no lock is called '%s'%s; `verbena list` shows them all", name,
		       vb_did_you_mean(hint, name, names, n));
}
