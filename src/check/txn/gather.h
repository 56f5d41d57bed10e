/* SPDX-License-Identifier: Apache-2.0 */
/* What a transaction has read and written so far, as its history has it. */
#ifndef VB_CHECK_TXN_GATHER_H
#define VB_CHECK_TXN_GATHER_H

#include "check/txn/history.h"

struct vb_txn;

/* Of as many items as have room among `most` operations, two each; how many operations they are. */
unsigned vb_history_gather(const struct vb_txn *t, struct vb_history_op *op, unsigned most);

/* The level that it was begun at; NONE: the one that its protocol promises. */
enum vb_level vb_history_gather_level(const struct vb_txn *t);

#endif
