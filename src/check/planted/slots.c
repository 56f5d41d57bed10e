/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:one-slot-patience.  dslr whose waiters know of one lease only: they take the lock away
 * from a holder whose ticket has several slots as soon as two leases have passed.
 */
#include "check/planted/planted.h"

#include "lock/dslr/dslr.h"

static int open_impatient(struct vb_lock_space *s)
{
	int err = dslr_open(s);

	((struct dslr_options *)s->options)->patience_slots = 1;
	return err;
}

const struct vb_lock_ops vb_planted_one_slot_patience = {
	.name = "planted:one-slot-patience",
	.summary = "dslr whose waiters count two leases, however long the holder's is",
	.source = "planted bug",
	.planted = "mode-conflict",
	.open = open_impatient,
	DSLR_LOCK,
};
