/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of cc/to_cascade.c, which its published variant and planted bugs build on. */
#ifndef VB_CC_TO_CASCADE_H
#define VB_CC_TO_CASCADE_H

#include "cc/to.h"

enum {
	TO_CASCADE_READ = TO_READ,
	TO_CASCADE_LOCK = TO_LOCK,
	TO_CASCADE_INSTALL,
	TO_CASCADE_DEPEND,
	TO_CASCADE_RELEASE,
	TO_CASCADE_UNDO,
	TO_CASCADE_STAGES
};

/* What has become of who had written what an item was read as: word and version of the record now, and the
 * status word of that one's place. */
struct to_cascade_look {
	struct {
		uint64_t lock, version;
	} now;
	uint64_t status;
};

/* Sets the item's status: 0, VB_ITEM_WAIT for `seen`, or VB_TXN_CASCADE. */
typedef void to_cascade_judge(struct vb_item *it, const struct to_cascade_look *l);

void to_cascade_read(struct vb_stage *s, struct vb_item **items, unsigned n);
void to_cascade_lock(struct vb_stage *s, struct vb_item **items, unsigned n);
void to_cascade_install(struct vb_stage *s, struct vb_item **items, unsigned n);
void to_cascade_depend(struct vb_stage *s, struct vb_item **items, unsigned n);
void to_cascade_look_at(struct vb_stage *s, struct vb_item **items, unsigned n,
			to_cascade_judge *judge);
void to_cascade_release(struct vb_stage *s, struct vb_item **items, unsigned n);
int to_cascade_decide(struct vb_txn *t);

#define TO_CASCADE_STAGE_TABLE(depend_fn, undo_fn)                                                 \
	{                                                                                          \
		[TO_CASCADE_READ] = {.name = "read",                                               \
				     .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                   \
				     .run = to_cascade_read},                                      \
		[TO_CASCADE_LOCK] = {.name = "lock",                                               \
				     .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                   \
				     .run = to_cascade_lock},                                      \
		[TO_CASCADE_INSTALL] = {.name = "install",                                         \
					.flags = VB_STAGE_WRITES,                                  \
					.run = to_cascade_install},                                \
		[TO_CASCADE_DEPEND] = {.name = "depend", .run = depend_fn},                        \
		[TO_CASCADE_RELEASE] = {.name = "release", .run = to_cascade_release},             \
		[TO_CASCADE_UNDO] = {.name = "undo", .flags = VB_STAGE_WRITES, .run = undo_fn},    \
	}

#define TO_CASCADE_OPS(table)                                                                      \
	.caps = VB_CC_WAITS_OLDER | VB_CC_INSTALLS | VB_CC_STATUS, .meta_bytes = TO_META,          \
	.words = to_words, .n_words = VB_ARRAY_SIZE(to_words), .stages = table,                    \
	.n_stages = TO_CASCADE_STAGES, .commit = TO_CASCADE_RELEASE,                               \
	.release = TO_CASCADE_RELEASE, .install = TO_CASCADE_INSTALL, .undo = TO_CASCADE_UNDO,     \
	.read = to_read, .write = to_write, .prepare = to_prepare, .unlocked = to_unlocked,        \
	.locked = to_locked, .whose = vb_ts_named

#endif
