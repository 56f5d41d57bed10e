/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The ordered index: a B+tree (store/ordered.h has its layout).
 *
 * An insert that has to split takes all the nodes it may need before it changes anything: one for
 * each level and one for a new root.  So it fails before it begins or not at all.  A delete needs
 * none.
 */
#define VB_LOG_ROOM "store"
#include "store/ordered.h"

#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"

#define LEAF_MAX   VB_ORDERED_LEAF_MAX
#define LEAF_MIN   VB_ORDERED_LEAF_MIN
#define INNER_MAX  VB_ORDERED_INNER_MAX
#define INNER_MIN  VB_ORDERED_INNER_MIN
#define LEVELS_MAX VB_ORDERED_LEVELS_MAX

/* The way from the root to a leaf: at[l] is the node of level l, child[l] which of its children is
 * next. */
struct path {
	struct vb_ordered_node *at[LEVELS_MAX];
	unsigned child[LEVELS_MAX];
};

/* ---- memory ---- */

/* So that there are n nodes in reserve. */
static int reserve(struct vb_ordered *o, unsigned n)
{
	while (o->spares < n) {
		struct vb_ordered_node *x;

		if (o->bytes_max != 0 && vb_ordered_bytes(o) + sizeof(*x) > o->bytes_max)
			return vb_fail(-ENOMEM,
				       "an ordered index of %" PRIu64 " keys has all the %" PRIu64
				       " bytes that it may have",
				       o->keys, o->bytes_max);
		x = aligned_alloc(64, sizeof(*x));
		if (x == NULL)
			return vb_fail(-ENOMEM,
				       "no memory for an ordered index of more than %" PRIu64
				       " keys",
				       o->keys);
		x->leaf.next = o->spare;
		o->spare = x;
		o->spares++;
		o->nodes++;
	}
	return 0;
}

static struct vb_ordered_node *take(struct vb_ordered *o, unsigned level)
{
	struct vb_ordered_node *x = o->spare;

	vb_assert(x != NULL); /* reserve has seen to it */
	o->spare = x->leaf.next;
	o->spares--;
	memset(x, 0, sizeof(*x));
	x->level = level;
	return x;
}

static void give_back(struct vb_ordered *o, struct vb_ordered_node *x)
{
	free(x);
	o->nodes--;
}

/* What a tree of so many levels may want in reserve: a node for each, and a new root. */
static unsigned most_wanted(const struct vb_ordered *o)
{
	return o->root->level + 2;
}

static void trim(struct vb_ordered *o)
{
	while (o->spares > most_wanted(o)) {
		struct vb_ordered_node *x = o->spare;

		o->spare = x->leaf.next;
		o->spares--;
		give_back(o, x);
	}
}

int vb_ordered_open(uint64_t bytes_max, struct vb_ordered **out)
{
	struct vb_ordered *o = calloc(1, sizeof(*o));
	int err;

	if (o == NULL)
		return vb_fail(-ENOMEM, "no memory for an ordered index");
	o->bytes_max = bytes_max;
	err = reserve(o, 1);
	if (err) {
		free(o);
		return err;
	}
	o->root = take(o, 0);
	*out = o;
	return 0;
}

static void free_below(struct vb_ordered_node *x)
{
	if (x->level > 0)
		for (unsigned i = 0; i < x->n; i++)
			free_below(x->inner.child[i]);
	free(x);
}

void vb_ordered_close(struct vb_ordered *o)
{
	if (o == NULL)
		return;
	free_below(o->root);
	while (o->spare != NULL) {
		struct vb_ordered_node *x = o->spare;

		o->spare = x->leaf.next;
		free(x);
	}
	free(o);
}

/* ---- looking ---- */

/* How many of n keys in order are below `key`, or, with_equal, not above it. */
static unsigned rank(const uint64_t *keys, unsigned n, uint64_t key, bool with_equal)
{
	unsigned low = 0;

	while (n > 0) {
		unsigned half = n / 2;
		uint64_t k = keys[low + half];

		if (k < key || (with_equal && k == key)) {
			low += half + 1;
			n -= half + 1;
		} else {
			n = half;
		}
	}
	return low;
}

static unsigned child_of(const struct vb_ordered_node *x, uint64_t key)
{
	return rank(x->inner.key, x->n - 1, key, true);
}

static struct vb_ordered_node *leaf_of(const struct vb_ordered *o, uint64_t key)
{
	struct vb_ordered_node *x = o->root;

	while (x->level > 0)
		x = x->inner.child[child_of(x, key)];
	return x;
}

static struct vb_ordered_node *walk(const struct vb_ordered *o, uint64_t key, struct path *p)
{
	struct vb_ordered_node *x = o->root;

	while (x->level > 0) {
		p->at[x->level] = x;
		p->child[x->level] = child_of(x, key);
		x = x->inner.child[p->child[x->level]];
	}
	p->at[0] = x;
	return x;
}

static bool has(const struct vb_ordered_node *leaf, unsigned at, uint64_t key)
{
	return at < leaf->n && leaf->leaf.key[at] == key;
}

int vb_ordered_find(const struct vb_ordered *o, uint64_t key)
{
	const struct vb_ordered_node *x = leaf_of(o, key);

	return has(x, rank(x->leaf.key, x->n, key, false), key) ? 0 : -ENOENT;
}

int vb_ordered_first(const struct vb_ordered *o, uint64_t from, uint64_t *key)
{
	return vb_ordered_scan(o, from, UINT64_MAX, key, 1) == 1 ? 0 : -ENOENT;
}

int vb_ordered_next(const struct vb_ordered *o, uint64_t after, uint64_t *key)
{
	return after == UINT64_MAX ? -ENOENT : vb_ordered_first(o, after + 1, key);
}

int vb_ordered_last(const struct vb_ordered *o, uint64_t upto, uint64_t *key)
{
	const struct vb_ordered_node *x = leaf_of(o, upto);
	unsigned at = rank(x->leaf.key, x->n, upto, true);

	if (at == 0) {
		/* All in front of this leaf are below; what is in front is not empty. */
		x = x->leaf.prev;
		if (x == NULL)
			return -ENOENT;
		at = x->n;
	}
	*key = x->leaf.key[at - 1];
	return 0;
}

size_t vb_ordered_scan(const struct vb_ordered *o, uint64_t from, uint64_t to, uint64_t *keys,
		       size_t limit)
{
	const struct vb_ordered_node *x = leaf_of(o, from);
	unsigned at = rank(x->leaf.key, x->n, from, false);
	size_t n = 0;

	for (; x != NULL; x = x->leaf.next, at = 0)
		for (; at < x->n; at++) {
			if (n == limit || x->leaf.key[at] > to)
				return n;
			keys[n++] = x->leaf.key[at];
		}
	return n;
}

/* ---- moving keys and children ---- */

static void open_gap(uint64_t *keys, unsigned n, unsigned at)
{
	memmove(&keys[at + 1], &keys[at], (n - at) * sizeof(keys[0]));
}

static void close_gap(uint64_t *keys, unsigned n, unsigned at)
{
	memmove(&keys[at], &keys[at + 1], (n - at - 1) * sizeof(keys[0]));
}

static void put_key(struct vb_ordered_node *leaf, uint64_t key)
{
	unsigned at = rank(leaf->leaf.key, leaf->n, key, false);

	open_gap(leaf->leaf.key, leaf->n, at);
	leaf->leaf.key[at] = key;
	leaf->n++;
}

/* A child as number `at`, at least 1, and the key that divides it from the one before. */
static void put_child(struct vb_ordered_node *x, unsigned at, uint64_t key,
		      struct vb_ordered_node *child)
{
	open_gap(x->inner.key, x->n - 1, at - 1);
	x->inner.key[at - 1] = key;
	memmove(&x->inner.child[at + 1], &x->inner.child[at],
		(x->n - at) * sizeof(x->inner.child[0]));
	x->inner.child[at] = child;
	x->n++;
}

/* The same, backwards. */
static void drop_child(struct vb_ordered_node *x, unsigned at)
{
	close_gap(x->inner.key, x->n - 1, at - 1);
	memmove(&x->inner.child[at], &x->inner.child[at + 1],
		(x->n - at - 1) * sizeof(x->inner.child[0]));
	x->n--;
}

/* ---- inserting ---- */

/* The upper half of a full leaf in a new one. */
static struct vb_ordered_node *split_leaf(struct vb_ordered *o, struct vb_ordered_node *x)
{
	struct vb_ordered_node *right = take(o, 0);

	right->n = LEAF_MAX / 2;
	x->n -= right->n;
	memcpy(right->leaf.key, &x->leaf.key[x->n], right->n * sizeof(right->leaf.key[0]));
	right->leaf.prev = x;
	right->leaf.next = x->leaf.next;
	if (right->leaf.next != NULL)
		right->leaf.next->leaf.prev = right;
	x->leaf.next = right;
	return right;
}

/* The same of an inner node; *key divides the two and is in neither. */
static struct vb_ordered_node *split_inner(struct vb_ordered *o, struct vb_ordered_node *x,
					   uint64_t *key)
{
	struct vb_ordered_node *right = take(o, x->level);

	right->n = INNER_MAX / 2;
	x->n -= right->n;
	*key = x->inner.key[x->n - 1];
	memcpy(right->inner.key, &x->inner.key[x->n], (right->n - 1) * sizeof(right->inner.key[0]));
	memcpy(right->inner.child, &x->inner.child[x->n], right->n * sizeof(right->inner.child[0]));
	return right;
}

static void grow_root(struct vb_ordered *o, uint64_t key, struct vb_ordered_node *right)
{
	struct vb_ordered_node *root = take(o, o->root->level + 1);

	vb_assert(root->level < LEVELS_MAX);
	root->n = 2;
	root->inner.key[0] = key;
	root->inner.child[0] = o->root;
	root->inner.child[1] = right;
	o->root = root;
}

/* The node at level `level - 1` of the path was split: `right`, from `key` on, goes into the one
 * above. */
static void insert_above(struct vb_ordered *o, struct path *p, uint64_t key,
			 struct vb_ordered_node *right)
{
	for (unsigned level = 1; level <= o->root->level; level++) {
		struct vb_ordered_node *x = p->at[level], *upper;
		unsigned at = p->child[level] + 1;
		uint64_t divides;

		if (x->n < INNER_MAX) {
			put_child(x, at, key, right);
			return;
		}
		upper = split_inner(o, x, &divides);
		/* Behind the last child of the lower half belongs to the lower half. */
		if (at <= x->n)
			put_child(x, at, key, right);
		else
			put_child(upper, at - x->n, key, right);
		key = divides;
		right = upper;
	}
	grow_root(o, key, right);
}

int vb_ordered_insert(struct vb_ordered *o, uint64_t key)
{
	struct path p;
	struct vb_ordered_node *x = walk(o, key, &p), *right;
	int err;

	if (has(x, rank(x->leaf.key, x->n, key, false), key))
		return -EEXIST;
	if (x->n < LEAF_MAX) {
		put_key(x, key);
		o->keys++;
		return 0;
	}
	err = reserve(o, most_wanted(o));
	if (err)
		return err;
	right = split_leaf(o, x);
	put_key(key < right->leaf.key[0] ? x : right, key);
	insert_above(o, &p, right->leaf.key[0], right);
	o->keys++;
	return 0;
}

/* ---- deleting ---- */

static bool is_poor(const struct vb_ordered_node *x)
{
	return x->n < (x->level == 0 ? LEAF_MIN : INNER_MIN);
}

static bool can_give(const struct vb_ordered_node *x)
{
	return x->n > (x->level == 0 ? LEAF_MIN : INNER_MIN);
}

/* The last of child number `at` becomes the first of the next. */
static void move_right(struct vb_ordered_node *x, unsigned at)
{
	struct vb_ordered_node *left = x->inner.child[at], *right = x->inner.child[at + 1];
	uint64_t *divides = &x->inner.key[at];

	if (left->level == 0) {
		open_gap(right->leaf.key, right->n, 0);
		right->leaf.key[0] = left->leaf.key[left->n - 1];
		*divides = right->leaf.key[0];
	} else {
		open_gap(right->inner.key, right->n - 1, 0);
		right->inner.key[0] = *divides;
		memmove(&right->inner.child[1], &right->inner.child[0],
			right->n * sizeof(right->inner.child[0]));
		right->inner.child[0] = left->inner.child[left->n - 1];
		*divides = left->inner.key[left->n - 2];
	}
	left->n--;
	right->n++;
}

/* The first of child number `at + 1` becomes the last of the one before. */
static void move_left(struct vb_ordered_node *x, unsigned at)
{
	struct vb_ordered_node *left = x->inner.child[at], *right = x->inner.child[at + 1];
	uint64_t *divides = &x->inner.key[at];

	if (left->level == 0) {
		left->leaf.key[left->n] = right->leaf.key[0];
		close_gap(right->leaf.key, right->n, 0);
		*divides = right->leaf.key[0];
	} else {
		left->inner.key[left->n - 1] = *divides;
		left->inner.child[left->n] = right->inner.child[0];
		*divides = right->inner.key[0];
		close_gap(right->inner.key, right->n - 1, 0);
		memmove(&right->inner.child[0], &right->inner.child[1],
			(right->n - 1) * sizeof(right->inner.child[0]));
	}
	left->n++;
	right->n--;
}

/* Child number `at` takes over all that the next one has. */
static void merge(struct vb_ordered *o, struct vb_ordered_node *x, unsigned at)
{
	struct vb_ordered_node *left = x->inner.child[at], *right = x->inner.child[at + 1];

	if (left->level == 0) {
		memcpy(&left->leaf.key[left->n], right->leaf.key,
		       right->n * sizeof(right->leaf.key[0]));
		left->leaf.next = right->leaf.next;
		if (left->leaf.next != NULL)
			left->leaf.next->leaf.prev = left;
	} else {
		left->inner.key[left->n - 1] = x->inner.key[at];
		memcpy(&left->inner.key[left->n], right->inner.key,
		       (right->n - 1) * sizeof(right->inner.key[0]));
		memcpy(&left->inner.child[left->n], right->inner.child,
		       right->n * sizeof(right->inner.child[0]));
	}
	left->n += right->n;
	drop_child(x, at + 1);
	give_back(o, right);
}

/* Child number `at` of x has one too few. */
static void enrich(struct vb_ordered *o, struct vb_ordered_node *x, unsigned at)
{
	if (at > 0 && can_give(x->inner.child[at - 1]))
		move_right(x, at - 1);
	else if (at + 1 < x->n && can_give(x->inner.child[at + 1]))
		move_left(x, at);
	else
		merge(o, x, at > 0 ? at - 1 : at);
}

int vb_ordered_delete(struct vb_ordered *o, uint64_t key)
{
	struct path p;
	struct vb_ordered_node *x = walk(o, key, &p), *root = o->root;
	unsigned at = rank(x->leaf.key, x->n, key, false);

	if (!has(x, at, key))
		return -ENOENT;
	close_gap(x->leaf.key, x->n, at);
	x->n--;
	o->keys--;
	for (unsigned level = 1; level <= root->level && is_poor(p.at[level - 1]); level++)
		enrich(o, p.at[level], p.child[level]);
	if (root->level > 0 && root->n == 1) {
		o->root = root->inner.child[0];
		give_back(o, root);
		trim(o);
	}
	return 0;
}
