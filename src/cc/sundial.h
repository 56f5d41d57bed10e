/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of cc/sundial.c, which its published and its planted variants build on. */
#ifndef VB_CC_SUNDIAL_H
#define VB_CC_SUNDIAL_H

#include "txn/protocol.h"

#define SUNDIAL_RTS_BITS  44u
#define SUNDIAL_NAME_BITS 4u
#define SUNDIAL_RTS       ((1ull << SUNDIAL_RTS_BITS) - 1)
/* The last lease: at this one nothing is locked any more. */
#define SUNDIAL_LAST (SUNDIAL_RTS - 1)
_Static_assert(VB_TS_PLACE_BITS + SUNDIAL_NAME_BITS + SUNDIAL_RTS_BITS == 64, "one word");
_Static_assert(SUNDIAL_RTS_BITS + 2 <= 64, "a logical time fits in a version word");
/* In the version word of an unsealed tuple: the record is being written. */
#define SUNDIAL_WRITING 1ull

enum { SUNDIAL_READ, SUNDIAL_LOCK, SUNDIAL_RENEW, SUNDIAL_COMMIT, SUNDIAL_RELEASE, SUNDIAL_STAGES };

void sundial_read(struct vb_stage *s, struct vb_item **items, unsigned n);
void sundial_lock(struct vb_stage *s, struct vb_item **items, unsigned n);
void sundial_renew(struct vb_stage *s, struct vb_item **items, unsigned n);
void sundial_commit(struct vb_stage *s, struct vb_item **items, unsigned n);
void sundial_release(struct vb_stage *s, struct vb_item **items, unsigned n);
int sundial_access(struct vb_txn *t, struct vb_item **items, unsigned n);
int sundial_write(struct vb_txn *t, struct vb_item **items, unsigned n);
int sundial_prepare(struct vb_txn *t);
uint64_t sundial_unlocked(uint64_t version, uint64_t was);
uint64_t sundial_locked(uint64_t ts, uint64_t was);
struct vb_word_name sundial_whose(uint64_t word);

static inline uint64_t sundial_wts(uint64_t version)
{
	return version >> 2;
}

#define SUNDIAL_STAGE_TABLE(read_fn, lock_fn, renew_fn)                                            \
	{                                                                                          \
		[SUNDIAL_READ] = {.name = "read",                                                  \
				  .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                      \
				  .run = read_fn},                                                 \
		[SUNDIAL_LOCK] = {.name = "lock", .run = lock_fn},                                 \
		[SUNDIAL_RENEW] = {.name = "renew", .run = renew_fn},                              \
		[SUNDIAL_COMMIT] = {.name = "commit",                                              \
				    .flags = VB_STAGE_WRITES,                                      \
				    .run = sundial_commit},                                        \
		[SUNDIAL_RELEASE] = {.name = "release", .run = sundial_release},                   \
	}

/* Of who reads, writes and prepares in its own way. */
#define SUNDIAL_OPS_BUT_CALLS(table)                                                               \
	.stages = table, .n_stages = SUNDIAL_STAGES, .commit = SUNDIAL_COMMIT,                     \
	.release = SUNDIAL_RELEASE, .unlocked = sundial_unlocked, .locked = sundial_locked,        \
	.whose = sundial_whose

#define SUNDIAL_OPS(table)                                                                         \
	SUNDIAL_OPS_BUT_CALLS(table), .read = sundial_access, .write = sundial_write,              \
				      .prepare = sundial_prepare

#endif
