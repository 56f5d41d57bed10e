/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:readers-jump.  traditional-ro whose server forgets to count: while readers hold the lock,
 * others are let in past waiting writers without end, although at most ten are promised.
 */
#include "check/planted/planted.h"

#include "lock/traditional/traditional.h"

static void jump_serve(struct vb_lock_server *s, const struct vb_msg *request)
{
	trad_serve(s, request, UINT64_MAX);
}

static unsigned jump_bypass(unsigned clients, enum vb_mode mode)
{
	(void)clients;
	return mode == VB_SHARED ? 0 : 10;
}

const struct vb_lock_ops vb_planted_readers_jump = {
	.name = "planted:readers-jump",
	.summary = "a server queue that lets any number of readers pass a waiting writer",
	.source = "planted bug",
	.planted = "bypass",
	TRAD_LOCK,
	.options = trad_ro_options,
	.bypass_bound = jump_bypass,
	.serve = jump_serve,
};
