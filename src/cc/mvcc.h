/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of cc/mvcc.c, which its published and its planted variants build on, and what cc/mvcc_rcc.c has in
 * common with it. */
#ifndef VB_CC_MVCC_H
#define VB_CC_MVCC_H

#include "txn/protocol.h"

#define MVCC_SLOTS 4u
#define MVCC_META  16u
#define MVCC_HELD  1ull
/* In the version word of an unsealed slot: the record is being written. */
#define MVCC_WRITING 1ull

enum { MVCC_READ, MVCC_LOCK, MVCC_COMMIT, MVCC_RELEASE, MVCC_STAGES };

/* The slot of the newest version that is older than ts, but for one that is being written; MVCC_SLOTS:
 * there is none. */
unsigned mvcc_newest_before(const uint64_t *version, uint64_t ts);
void mvcc_read(struct vb_stage *s, struct vb_item **items, unsigned n);
void mvcc_lock(struct vb_stage *s, struct vb_item **items, unsigned n);
void mvcc_commit(struct vb_stage *s, struct vb_item **items, unsigned n);
void mvcc_release(struct vb_stage *s, struct vb_item **items, unsigned n);
int mvcc_access(struct vb_txn *t, struct vb_item **items, unsigned n);
int mvcc_write(struct vb_txn *t, struct vb_item **items, unsigned n);
int mvcc_prepare(struct vb_txn *t);
uint64_t mvcc_unlocked(uint64_t version, uint64_t was);
uint64_t mvcc_locked(uint64_t ts, uint64_t was);
struct vb_word_name mvcc_whose(uint64_t word);
extern const struct vb_cc_word mvcc_words[1];

#define MVCC_STAGE_TABLE(read_fn, lock_fn)                                                         \
	{                                                                                          \
		[MVCC_READ] = {.name = "read",                                                     \
			       .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                         \
			       .run = read_fn},                                                    \
		[MVCC_LOCK] = {.name = "lock", .run = lock_fn},                                    \
		[MVCC_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = mvcc_commit},  \
		[MVCC_RELEASE] = {.name = "release", .run = mvcc_release},                         \
	}

#define MVCC_OPS(table, more)                                                                      \
	.caps = VB_CC_NEVER_WAITS | (more), .meta_bytes = MVCC_META, .words = mvcc_words,          \
	.n_words = VB_ARRAY_SIZE(mvcc_words), .slots = MVCC_SLOTS, .stages = table,                \
	.n_stages = MVCC_STAGES, .commit = MVCC_COMMIT, .release = MVCC_RELEASE,                   \
	.read = mvcc_access, .write = mvcc_write, .prepare = mvcc_prepare,                         \
	.unlocked = mvcc_unlocked, .locked = mvcc_locked, .whose = mvcc_whose

#endif
