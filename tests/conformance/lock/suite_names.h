/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks by name, with every lock and on every fabric: a part of the case `reopening`, whose actors each
 * open the directory themselves.
 */
#ifndef TEST_LOCK_SUITE_NAMES_H
#define TEST_LOCK_SUITE_NAMES_H

#include <verbena/names.h>

#include "base/log.h"
#include "world.h"

#define NAMED_ROUNDS 12
#define NAMED        3

static const char *const named[NAMED] = {"orders", "orders/7", "payments"};
/* 1 + the lock of each, on the board. */
#define NAMED_STEP(i) (&w->b->step[8 + (i)])

static int collect(void *user, uint64_t lock, const void *name, size_t bytes)
{
	(void)lock;
	for (unsigned i = 0; i < NAMED; i++)
		if (bytes == strlen(named[i]) && memcmp(name, named[i], bytes) == 0)
			*(unsigned *)user |= 1u << i;
	return 0;
}

/* Every actor is told the same lock of a name, and of three names three. */
static void agree_on_names(struct world *w, struct vb_lock_client *me, struct vb_names *d,
			   uint64_t lock[NAMED])
{
	unsigned listed = 0;
	uint64_t other;

	for (unsigned i = 0; i < NAMED; i++) {
		uint32_t none = 0;

		lock[i] = WORLD_LOCKS;
		EXPECT_ERR(w, 0, vb_names_lock(d, me, named[i], strlen(named[i]), &lock[i]));
		EXPECT(w, lock[i] < WORLD_LOCKS);
		EXPECT(w, i == 0 || (lock[i] != lock[0] && (i == 1 || lock[i] != lock[1])));
		__atomic_compare_exchange_n(NAMED_STEP(i), &none, (uint32_t)(lock[i] + 1), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
		EXPECT(w, board_get(NAMED_STEP(i)) == lock[i] + 1);
	}
	EXPECT_ERR(w, -ENOENT, vb_names_find(d, me, "nobody's", 8, &other));
	EXPECT_ERR(w, 0, vb_names_each(d, me, collect, &listed));
	EXPECT(w, listed == (1u << NAMED) - 1);
}

static void use_names(struct world *w, struct vb_lock_client *me,
		      int (*use)(struct world *w, struct vb_lock_client *me, uint64_t lock))
{
	struct vb_names *d = NULL, *other = NULL;
	uint64_t lock[NAMED] = {0};
	struct vb_grant g;

	EXPECT_ERR(w, 0, vb_names_open(w->space, &(struct vb_names_params){.bytes = 20}, &d));
	vb_log_mute();
	EXPECT_ERR(w, -EINVAL,
		   vb_names_open(w->space, &(struct vb_names_params){.bytes = 21}, &other));
	vb_log_unmute();
	agree_on_names(w, me, d, lock);
	for (unsigned r = 0; r < NAMED_ROUNDS; r++) {
		EXPECT_ERR(w, 0,
			   vb_lock_acquire(me, lock[r % NAMED], VB_EXCLUSIVE, PATIENCE_NS, &g));
		EXPECT_ERR(w, 0, use(w, me, lock[r % NAMED]));
		EXPECT_ERR(w, 0, vb_lock_release(me, &g));
	}
	vb_names_close(d);
}

/* What n actors that used them have left in their cells. */
static void check_names(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < NAMED; i++)
		assert_int_equal(world_cell(w, board_get(NAMED_STEP(i)) - 1),
				 n * NAMED_ROUNDS / NAMED);
}

#endif
