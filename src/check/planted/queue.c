/* SPDX-License-Identifier: Apache-2.0 */
/*
 * planted:readers-jump     traditional-ro whose server forgets to count: while readers hold the lock,
 *                          others are let in past waiting writers without end, although at most ten
 *                          are promised
 * planted:clean-slate      traditional whose next server takes all locks for free, also those that
 *                          the one before it has granted
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
	.server_open = trad_server_open,
	.serve = jump_serve,
};

static void clean_serve(struct vb_lock_server *s, const struct vb_msg *request)
{
	trad_serve(s, request, 0);
}

static int clean_open(struct vb_lock_server *s)
{
	for (uint64_t lock = 0; lock < s->space->locks; lock++) {
		struct vb_served_entry *e;

		if (!vb_served_mine(s, lock))
			continue;
		e = vb_local(s->space->fabric, vb_lock_entry(s->space, lock), sizeof(*e));
		e->readers = e->elders = 0;
	}
	return trad_server_open(s);
}

const struct vb_lock_ops vb_planted_clean_slate = {
	.name = "planted:clean-slate",
	.summary = "a server that takes what the one before it has granted for free",
	.source = "planted bug",
	.planted = "mode-conflict",
	TRAD_LOCK,
	.options = trad_ro_options,
	.server_open = clean_open,
	.serve = clean_serve,
};
