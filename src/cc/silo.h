/* SPDX-License-Identifier: Apache-2.0 */
/* The stages of cc/silo.c, which its published and its planted variants build on. */
#ifndef VB_CC_SILO_H
#define VB_CC_SILO_H

#include "txn/protocol.h"

#define SILO_HELD 1ull

enum { SILO_READ, SILO_LOCK, SILO_VALIDATE, SILO_COMMIT, SILO_RELEASE, SILO_STAGES };

void silo_read(struct vb_stage *s, struct vb_item **items, unsigned n);
void silo_lock(struct vb_stage *s, struct vb_item **items, unsigned n);
void silo_validate(struct vb_stage *s, struct vb_item **items, unsigned n);
void silo_commit(struct vb_stage *s, struct vb_item **items, unsigned n);
void silo_release(struct vb_stage *s, struct vb_item **items, unsigned n);
int silo_access(struct vb_txn *t, struct vb_item **items, unsigned n);
int silo_write(struct vb_txn *t, struct vb_item **items, unsigned n);
int silo_prepare(struct vb_txn *t);
uint64_t silo_unlocked(uint64_t version, uint64_t was);
uint64_t silo_locked(uint64_t ts, uint64_t was);
struct vb_word_name silo_whose(uint64_t word);

#define SILO_STAGE_TABLE(read_fn, lock_fn, validate_fn)                                            \
	{                                                                                          \
		[SILO_READ] = {.name = "read",                                                     \
			       .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                         \
			       .run = read_fn},                                                    \
		[SILO_LOCK] = {.name = "lock", .run = lock_fn},                                    \
		[SILO_VALIDATE] = {.name = "validate", .run = validate_fn},                        \
		[SILO_COMMIT] = {.name = "commit", .flags = VB_STAGE_WRITES, .run = silo_commit},  \
		[SILO_RELEASE] = {.name = "release", .run = silo_release},                         \
	}

/* Of who reads and writes in its own way. */
#define SILO_OPS_BUT_CALLS(table)                                                                  \
	.stages = table, .n_stages = SILO_STAGES, .commit = SILO_COMMIT, .release = SILO_RELEASE,  \
	.unlocked = silo_unlocked, .locked = silo_locked, .whose = silo_whose

#define SILO_OPS(table) SILO_OPS_BUT_CALLS(table), .read = silo_access, .write = silo_write

#endif
