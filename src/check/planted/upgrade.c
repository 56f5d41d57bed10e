/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:eager-upgrade.  dslr-update whose update lock becomes exclusive as soon as its holder
 * wants to write, whether or not the readers before it have left.
 */
#include "check/planted/planted.h"

#include "lock/dslr/update.h"

static int convert_at_once(struct vb_lock_client *me, struct vb_claim *c, enum vb_mode mode,
			   uint64_t until_ns)
{
	(void)until_ns;
	if (vb_ep_now(me->ep) >= c->valid_until_ns)
		return -VB_ELOST;
	c->mode = mode;
	return 0;
}

const struct vb_lock_ops vb_planted_eager_upgrade = {
	.name = "planted:eager-upgrade",
	.summary = "dslr-update that converts without waiting for the readers before it",
	.source = "planted bug",
	.planted = "mode-conflict",
	DSLR_UPDATE_LOCK,
	.convert = convert_at_once,
};
