/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A lock space is removed, on every fabric: a part of the case `reopening` of one lock, since what is removed
 * is the same with all (tests/unit/test_remove.c), and takes as long as verbs may be late.
 */
#ifndef TEST_LOCK_SUITE_REMOVE_H
#define TEST_LOCK_SUITE_REMOVE_H

#include "base/log.h"
#include "world.h"

static int count_extra(void *user, const struct vb_named *named)
{
	*(unsigned *)user += strcmp(named->name, "extra") == 0;
	return 0;
}

/* What is there of it on node 0, and on the last one. */
static unsigned extras(struct world *w)
{
	unsigned n = 0;

	if (vb_fabric_each(w->f, 0, count_extra, &n) != 0 ||
	    vb_fabric_each(w->f, (uint16_t)(w->f->nodes - 1), count_extra, &n) != 0)
		board_fail(w->b, __LINE__, "a node is not listed");
	return n;
}

static int remove_quietly(struct world *w)
{
	int err;

	vb_log_mute();
	err = vb_lock_space_remove(w->f, "extra");
	vb_log_unmute();
	return err;
}

/* Two actors: both have it open, one of them, none; then it is another. */
static void removing_actor(struct world *w, struct vb_lock_client *me, unsigned i)
{
	struct vb_lock_space_params p = {.lock = "cas", .name = "extra", .locks = 10};
	uint32_t *step = &w->b->step[12];
	struct vb_lock_client *other;
	struct vb_lock_space *s;
	struct vb_grant g;

	EXPECT_ERR(w, 0, vb_lock_space_open(w->f, &p, &s));
	EXPECT_ERR(w, 0, vb_lock_client_open(s, me->node, &other));
	EXPECT_ERR(w, 0, vb_lock_acquire(other, 3, VB_EXCLUSIVE, PATIENCE_NS, &g));
	EXPECT_ERR(w, 0, vb_lock_release(other, &g));
	vb_lock_client_close(other);
	board_add(&step[0]);
	AWAIT(w, me, &step[0], 2);
	EXPECT_ERR(w, -EBUSY, remove_quietly(w));
	board_add(&step[1]);
	AWAIT(w, me, &step[1], 2);
	if (i == 1) {
		EXPECT_ERR(w, 0, vb_lock_space_close(s));
		EXPECT_ERR(w, -EBUSY, remove_quietly(w));
		board_add(&step[2]);
		AWAIT(w, me, &step[2], 2);
	} else {
		AWAIT(w, me, &step[2], 1);
		EXPECT_ERR(w, -EBUSY, remove_quietly(w));
		EXPECT_ERR(w, 0, vb_lock_space_close(s));
		EXPECT(w, extras(w) > 0);
		EXPECT_ERR(w, 0, remove_quietly(w));
		EXPECT(w, extras(w) == 0);
		EXPECT_ERR(w, -ENOENT, remove_quietly(w));
		board_add(&step[2]);
	}
	p.locks = 20;
	EXPECT_ERR(w, 0, vb_lock_space_open(w->f, &p, &s));
	EXPECT_ERR(w, 0, vb_lock_space_close(s));
}

#endif
