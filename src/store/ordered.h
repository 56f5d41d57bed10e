/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An ordered index: the keys of a node's part of a table in order, for reads of a range.
 *
 * It lies in the owner's own memory, and the owner's server alone uses it, from one thread: nobody
 * reads it from afar.  It has keys only; where their tuples are is the cuckoo index's matter
 * (store/index.c).
 *
 * A B+tree.  All nodes have 512 bytes, eight lines, and but for the root all are at least half
 * full:
 *
 *	leaf    | n, level | next | prev | key 0 .. key 60              |    30 to 61 keys
 *	inner   | n, level | key 0 .. key 30 | child 0 .. child 31      |    16 to 32 children
 *
 * Memory.  A leaf has at least 30 keys and there are at most 1/15 as many inner nodes as leaves, so
 * a key takes at most 512 / 30 * 16 / 15 = 18.2 bytes, and 8.7 where all nodes are full.  In the
 * long run random inserts fill nodes to ln 2, which makes 12.7 bytes a key; ascending inserts,
 * whose splits leave a half behind, 17.6.  To this come, for the whole index, the root, a node in
 * reserve for each level of the tree and one more, and what malloc adds to a node (16 bytes with
 * glibc, and what aligning it leaves).  What deletes no longer need is given back.
 */
#ifndef VB_STORE_ORDERED_H
#define VB_STORE_ORDERED_H

#include <stddef.h>
#include <stdint.h>

#define VB_ORDERED_LEAF_MAX   61u
#define VB_ORDERED_LEAF_MIN   30u
#define VB_ORDERED_INNER_MAX  32u
#define VB_ORDERED_INNER_MIN  16u
#define VB_ORDERED_LEVELS_MAX 16u /* 30 * 16^15 keys are more than there are */

struct vb_ordered_node {
	uint32_t n;     /* keys of a leaf, children of an inner node */
	uint32_t level; /* 0: a leaf */
	union {
		struct {
			struct vb_ordered_node *next, *prev;
			uint64_t key[VB_ORDERED_LEAF_MAX];
		} leaf;
		struct {
			/* key[i] is above all of child[i], and not above any of child[i + 1]. */
			uint64_t key[VB_ORDERED_INNER_MAX - 1];
			struct vb_ordered_node *child[VB_ORDERED_INNER_MAX];
		} inner;
	};
};
_Static_assert(sizeof(struct vb_ordered_node) == 512, "eight lines");

struct vb_ordered {
	struct vb_ordered_node *root;
	struct vb_ordered_node *spare; /* nodes in reserve, by leaf.next */
	unsigned spares;
	uint64_t keys, nodes; /* nodes: with those in reserve */
	uint64_t bytes_max;
};

/* bytes_max: most memory that its nodes may take; 0: as much as there is.  -ENOMEM. */
int vb_ordered_open(uint64_t bytes_max, struct vb_ordered **out);
void vb_ordered_close(struct vb_ordered *o);

/* -EEXIST, -ENOMEM: nothing has changed. */
int vb_ordered_insert(struct vb_ordered *o, uint64_t key);
/* -ENOENT. */
int vb_ordered_delete(struct vb_ordered *o, uint64_t key);
/* 0, -ENOENT. */
int vb_ordered_find(const struct vb_ordered *o, uint64_t key);

/* The smallest key that is at least `from`; the smallest above `after`; the largest that is at most
 * `upto`.  -ENOENT: there is none. */
int vb_ordered_first(const struct vb_ordered *o, uint64_t from, uint64_t *key);
int vb_ordered_next(const struct vb_ordered *o, uint64_t after, uint64_t *key);
int vb_ordered_last(const struct vb_ordered *o, uint64_t upto, uint64_t *key);

/* The keys from `from` to `to`, both included, in order, at most `limit` of them; returns how many.
 * Who wants more goes on behind the last one. */
size_t vb_ordered_scan(const struct vb_ordered *o, uint64_t from, uint64_t to, uint64_t *keys,
		       size_t limit);

static inline uint64_t vb_ordered_count(const struct vb_ordered *o)
{
	return o->keys;
}

/* Memory that its nodes take now. */
static inline uint64_t vb_ordered_bytes(const struct vb_ordered *o)
{
	return o->nodes * sizeof(struct vb_ordered_node);
}

#endif
