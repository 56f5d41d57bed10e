/* SPDX-License-Identifier: Apache-2.0 */
/* The ordered index beside a sorted array, and what must hold of every B+tree after each
 * operation. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/rng.h"
#include "store/ordered.h"

#define KEYS_MAX 20000u

static struct vb_ordered *tree;
static uint64_t model[KEYS_MAX];
static size_t n_model;
static struct vb_rng rng;

static int setup(void **state)
{
	n_model = 0;
	vb_rng_seed(&rng, 1, 0);
	return vb_ordered_open(0, &tree);
}

static int teardown(void **state)
{
	vb_ordered_close(tree);
	tree = NULL;
	return 0;
}

/* ---- what must hold ---- */

struct tour {
	const struct vb_ordered_node *last; /* leaf that was met before */
	uint64_t nodes, keys;
};

/* Keys of x are in [low, high]; all leaves are equally deep, and linked in order. */
static void check_node(struct tour *t, const struct vb_ordered_node *x, unsigned level,
		       uint64_t low, uint64_t high)
{
	bool root = x == tree->root;

	t->nodes++;
	assert_int_equal(x->level, level);
	if (level == 0) {
		assert_in_range(x->n, root ? 0 : VB_ORDERED_LEAF_MIN, VB_ORDERED_LEAF_MAX);
		for (unsigned i = 0; i < x->n; i++) {
			assert_true(x->leaf.key[i] >= low && x->leaf.key[i] <= high);
			assert_true(i == 0 || x->leaf.key[i - 1] < x->leaf.key[i]);
			assert_int_equal(x->leaf.key[i], model[t->keys + i]);
		}
		assert_ptr_equal(x->leaf.prev, t->last);
		if (t->last != NULL)
			assert_ptr_equal(t->last->leaf.next, x);
		t->last = x;
		t->keys += x->n;
		return;
	}
	assert_in_range(x->n, root ? 2 : VB_ORDERED_INNER_MIN, VB_ORDERED_INNER_MAX);
	for (unsigned i = 0; i < x->n; i++) {
		uint64_t from = i == 0 ? low : x->inner.key[i - 1];
		uint64_t to = i == x->n - 1 ? high : x->inner.key[i] - 1;

		assert_true(from >= low && from <= to && to <= high);
		check_node(t, x->inner.child[i], level - 1, from, to);
	}
}

static void check_tree(void)
{
	struct tour t = {0};
	unsigned spares = 0;

	check_node(&t, tree->root, tree->root->level, 0, UINT64_MAX);
	assert_null(t.last->leaf.next);
	assert_int_equal(t.keys, n_model);
	assert_int_equal(vb_ordered_count(tree), n_model);
	for (const struct vb_ordered_node *x = tree->spare; x != NULL; x = x->leaf.next)
		spares++;
	assert_int_equal(spares, tree->spares);
	assert_true(spares <= tree->root->level + 2);
	assert_int_equal(tree->nodes, t.nodes + spares);
	/* What the header says that a key takes, and the root, and what is in reserve. */
	assert_true((double)(t.nodes - 1) * 512 <= (double)n_model * 18.3 + 512);
}

/* ---- the model ---- */

static size_t rank_of(uint64_t key)
{
	size_t low = 0, high = n_model;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (model[middle] < key)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool known(uint64_t key)
{
	size_t at = rank_of(key);

	return at < n_model && model[at] == key;
}

static void insert(uint64_t key)
{
	size_t at = rank_of(key);

	if (known(key)) {
		assert_int_equal(vb_ordered_insert(tree, key), -EEXIST);
		return;
	}
	assert_int_equal(vb_ordered_insert(tree, key), 0);
	assert_true(n_model < KEYS_MAX);
	memmove(&model[at + 1], &model[at], (n_model - at) * sizeof(model[0]));
	model[at] = key;
	n_model++;
}

static void delete (uint64_t key)
{
	size_t at = rank_of(key);

	if (!known(key)) {
		assert_int_equal(vb_ordered_delete(tree, key), -ENOENT);
		return;
	}
	assert_int_equal(vb_ordered_delete(tree, key), 0);
	n_model--;
	memmove(&model[at], &model[at + 1], (n_model - at) * sizeof(model[0]));
}

/* Everything that one can ask about a key. */
static void ask(uint64_t key)
{
	size_t at = rank_of(key), above = at + known(key);
	uint64_t got = 42;

	assert_int_equal(vb_ordered_find(tree, key), known(key) ? 0 : -ENOENT);
	if (at < n_model) {
		assert_int_equal(vb_ordered_first(tree, key, &got), 0);
		assert_int_equal(got, model[at]);
	} else {
		assert_int_equal(vb_ordered_first(tree, key, &got), -ENOENT);
	}
	if (above < n_model) {
		assert_int_equal(vb_ordered_next(tree, key, &got), 0);
		assert_int_equal(got, model[above]);
	} else {
		assert_int_equal(vb_ordered_next(tree, key, &got), -ENOENT);
	}
	if (above > 0) {
		assert_int_equal(vb_ordered_last(tree, key, &got), 0);
		assert_int_equal(got, model[above - 1]);
	} else {
		assert_int_equal(vb_ordered_last(tree, key, &got), -ENOENT);
	}
}

static void scan(uint64_t from, uint64_t to, size_t limit)
{
	static uint64_t keys[KEYS_MAX + 1];
	size_t at = rank_of(from), n = 0;

	while (at + n < n_model && model[at + n] <= to && n < limit)
		n++;
	memset(keys, 0xee, sizeof(keys[0]) * (limit + 1));
	assert_int_equal(vb_ordered_scan(tree, from, to, keys, limit), n);
	if (n > 0)
		assert_memory_equal(keys, &model[at], n * sizeof(keys[0]));
	/* Nothing behind what was found was touched. */
	assert_int_equal(keys[n], 0xeeeeeeeeeeeeeeee);
}

static void ask_around(uint64_t below)
{
	for (unsigned i = 0; i < 20; i++) {
		uint64_t from = vb_rng_below(&rng, below), to = vb_rng_below(&rng, below);

		ask(from);
		scan(from, to, vb_rng_below(&rng, 300));
		scan(from, from + vb_rng_below(&rng, 100), 1000);
	}
	ask(0);
	ask(UINT64_MAX);
	scan(0, UINT64_MAX, KEYS_MAX);
	if (n_model > 0)
		ask(model[vb_rng_below(&rng, n_model)]);
}

static void empty_it(uint64_t below)
{
	while (n_model > 0) {
		delete (model[vb_rng_below(&rng, n_model)]);
		if (n_model % 97 == 0 || n_model < 200)
			check_tree();
	}
	ask_around(below);
	assert_int_equal(tree->root->level, 0);
	assert_true(vb_ordered_bytes(tree) <= 8 * sizeof(struct vb_ordered_node));
}

/* ---- cases ---- */

static void empty(void **state)
{
	check_tree();
	ask(0);
	ask(5);
	ask(UINT64_MAX);
	scan(0, UINT64_MAX, 10);
	delete (5);
	check_tree();
}

static void extreme_keys(void **state)
{
	insert(0);
	insert(UINT64_MAX);
	insert(UINT64_MAX);
	check_tree();
	ask(0);
	ask(1);
	ask(UINT64_MAX - 1);
	ask(UINT64_MAX);
	scan(0, UINT64_MAX, 10);
	scan(UINT64_MAX, UINT64_MAX, 10);
	scan(UINT64_MAX, 0, 10);
	scan(0, 0, 0);
	delete (0);
	delete (UINT64_MAX);
	check_tree();
}

static void ascending(void **state)
{
	for (uint64_t key = 0; key < 6000; key++) {
		insert(key * 3);
		if (key % 31 == 0)
			check_tree();
	}
	check_tree();
	ask_around(20000);
	assert_int_equal(tree->root->level, 2);
	/* From the front, as a queue. */
	for (uint64_t key = 0; key < 6000; key++) {
		delete (key * 3);
		if (key % 31 == 0)
			check_tree();
	}
	check_tree();
	assert_int_equal(n_model, 0);
	ask_around(20000);
}

static void descending(void **state)
{
	for (uint64_t key = 6000; key > 0; key--) {
		insert(key * 3);
		if (key % 31 == 0)
			check_tree();
	}
	check_tree();
	ask_around(20000);
	for (uint64_t key = 6000; key > 0; key--) {
		delete (key * 3);
		if (key % 31 == 0)
			check_tree();
	}
	assert_int_equal(n_model, 0);
	ask_around(20000);
}

/* As TPC-C's orders: some districts, in each of which numbers ascend. */
static void clustered(void **state)
{
	uint64_t next[20] = {0};

	for (unsigned n = 0; n < 8000; n++) {
		uint64_t district = vb_rng_below(&rng, 20);

		insert(district << 32 | next[district]++);
		if (n % 53 == 0)
			check_tree();
	}
	check_tree();
	for (uint64_t district = 0; district < 20; district++) {
		uint64_t last;

		scan(district << 32, (district + 1) << 32, KEYS_MAX);
		scan(district << 32, district << 32 | 100, 20);
		assert_int_equal(vb_ordered_last(tree, (district + 1) << 32, &last), 0);
		ask(district << 32);
		ask(district << 32 | next[district]);
	}
	ask_around(20ull << 32);
	empty_it(20ull << 32);
}

static void at_random(void **state)
{
	for (uint64_t seed = 1; seed <= 10; seed++) {
		uint64_t below = seed % 2 ? 4000 : UINT64_MAX;

		vb_rng_seed(&rng, seed, 0);
		/* Grows, stays, shrinks. */
		for (unsigned n = 0; n < 12000; n++) {
			double grow = n < 5000 ? 0.9 : n < 9000 ? 0.5 : 0.2;

			if (vb_rng_chance(&rng, grow))
				insert(vb_rng_below(&rng, below));
			else if (n_model > 0 && vb_rng_chance(&rng, 0.9))
				delete (model[vb_rng_below(&rng, n_model)]);
			else
				delete (vb_rng_below(&rng, below));
			if (n % 61 == 0)
				check_tree();
			if (n % 601 == 0)
				ask_around(below);
		}
		empty_it(below);
	}
}

static void memory_at_random(void **state)
{
	for (unsigned n = 0; n < KEYS_MAX; n++)
		insert(vb_rng_next(&rng));
	check_tree();
	/* 12.7 bytes for each key. */
	assert_in_range(vb_ordered_bytes(tree) * 10 / n_model, 120, 135);
}

static void memory_ascending(void **state)
{
	for (unsigned n = 0; n < KEYS_MAX; n++)
		insert(n);
	check_tree();
	assert_in_range(vb_ordered_bytes(tree) * 10 / n_model, 165, 180);
}

static void no_memory(void **state)
{
	struct vb_ordered *unlimited = tree;
	unsigned refused = 0;
	char text[256];

	vb_log_capture_begin(text, sizeof(text));
	assert_int_equal(vb_ordered_open(100, &tree), -ENOMEM);
	for (unsigned nodes = 1; nodes < 60; nodes += 7) {
		n_model = 0;
		assert_int_equal(vb_ordered_open(nodes * sizeof(struct vb_ordered_node), &tree), 0);
		for (unsigned n = 0; n < 4000; n++) {
			uint64_t key = vb_rng_next(&rng);
			int err = vb_ordered_insert(tree, key);

			if (err == 0) {
				assert_int_equal(vb_ordered_delete(tree, key), 0);
				insert(key);
				continue;
			}
			assert_int_equal(err, -ENOMEM);
			assert_int_equal(vb_ordered_find(tree, key), -ENOENT);
			refused++;
			if (refused % 64 == 0)
				check_tree();
		}
		check_tree();
		assert_true(n_model >= VB_ORDERED_LEAF_MAX);
		assert_true(vb_ordered_bytes(tree) <= nodes * sizeof(struct vb_ordered_node));
		empty_it(UINT64_MAX);
		insert(1);
		check_tree();
		vb_ordered_close(tree);
	}
	vb_log_capture_end();
	assert_non_null(strstr(text, "that it may have"));
	assert_int_not_equal(refused, 0);
	tree = unlimited;
}

#define TREE(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
	const struct CMUnitTest tests[] = {
		TREE(empty),     TREE(extreme_keys), TREE(ascending),        TREE(descending),
		TREE(clustered), TREE(at_random),    TREE(memory_at_random), TREE(memory_ascending),
		TREE(no_memory),
	};

	return cmocka_run_group_tests_name("store_ordered", tests, NULL, NULL);
}
