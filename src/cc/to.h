/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of cc/to.c, which its published variant and cc/to_cascade.c build on. */
#ifndef VB_CC_TO_H
#define VB_CC_TO_H

#include "txn/protocol.h"

#define TO_META 16u
/* In the version word of an unsealed tuple: the record is being written. */
#define TO_WRITING 1ull

enum { TO_READ, TO_LOCK, TO_COMMIT, TO_RELEASE, TO_STAGES };

/* Has a reader to wait for who holds the record by this word, while it is at this version? */
typedef bool to_awaits(const struct vb_stage *s, uint64_t lock, uint64_t version);

bool to_is_older(const struct vb_stage *s, uint64_t lock);
void to_read_items(struct vb_stage *s, struct vb_item **items, unsigned n, to_awaits *awaits);
void to_lock(struct vb_stage *s, struct vb_item **items, unsigned n);
void to_commit(struct vb_stage *s, struct vb_item **items, unsigned n);
void to_release(struct vb_stage *s, struct vb_item **items, unsigned n);
int to_read(struct vb_txn *t, struct vb_item **items, unsigned n);
int to_write(struct vb_txn *t, struct vb_item **items, unsigned n);
int to_prepare(struct vb_txn *t);
uint64_t to_free_word(const struct vb_item *it);
uint64_t to_unlocked(uint64_t version, uint64_t was);
uint64_t to_locked(uint64_t ts, uint64_t was);
extern const struct vb_cc_word to_words[1];

#define TO_STAGE_TABLE(read_fn)                                                                    \
	{                                                                                          \
		[TO_READ] = {.name = "read",                                                       \
			     .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                           \
			     .run = read_fn},                                                      \
		[TO_LOCK] = {.name = "lock",                                                       \
			     .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                           \
			     .run = to_lock},                                                      \
		[TO_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = to_commit},      \
		[TO_RELEASE] = {.name = "release", .run = to_release},                             \
	}

#define TO_OPS(table)                                                                              \
	.meta_bytes = TO_META, .words = to_words, .n_words = VB_ARRAY_SIZE(to_words),              \
	.stages = table, .n_stages = TO_STAGES, .commit = TO_COMMIT, .release = TO_RELEASE,        \
	.read = to_read, .write = to_write, .prepare = to_prepare, .unlocked = to_unlocked,        \
	.locked = to_locked, .whose = vb_ts_named

#endif
