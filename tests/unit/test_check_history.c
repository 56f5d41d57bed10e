/* SPDX-License-Identifier: Apache-2.0 */
/* Histories: what was appended is read back, also by the parent of a writer that was killed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check/txn/history.h"
#include "child.h"

#define OPS_MAX 64u

/* The n-th transaction of a made-up history: it says in every field which one it is. */
static struct vb_history_txn make(uint64_t n, struct vb_history_op *ops)
{
	struct vb_history_txn t = {
		.id = n * 7,
		.begin_ns = n * 100,
		.end_ns = n * 100 + 50,
		.n_ops = (uint32_t)(n % OPS_MAX),
		.client = (uint16_t)n,
		.outcome = (uint8_t)(n % 3),
		.type = (uint8_t)(n % 5),
	};

	for (uint32_t i = 0; i < t.n_ops; i++)
		ops[i] = (struct vb_history_op){
			.key = n * 1000 + i,
			.version = n + 8,
			.prev = n + 7,
			.table = (uint16_t)i,
			.kind = (uint8_t)((n + i) % 2),
			.absent = (uint8_t)(i % 3 == 0),
		};
	return t;
}

static bool append(struct vb_history *h, uint64_t n)
{
	struct vb_history_op ops[OPS_MAX] = {0};
	struct vb_history_txn t = make(n, ops);

	return vb_history_add(h, &t, ops);
}

/* The history is make(0), make(1), ...; how many of them. */
static uint64_t read_back(const struct vb_history *h)
{
	struct vb_history_op expect_ops[OPS_MAX];
	const struct vb_history_op *ops;
	const struct vb_history_txn *t;
	uint64_t at = 0, n = 0;

	while (vb_history_next(h, &at, &t, &ops)) {
		struct vb_history_txn expect = make(n++, expect_ops);

		assert_memory_equal(t, &expect, sizeof(expect));
		if (t->n_ops > 0)
			assert_memory_equal(ops, expect_ops, t->n_ops * sizeof(*ops));
	}
	return n;
}

static void test_empty(void **state)
{
	struct vb_history *h;

	assert_int_equal(vb_history_open(4096, &h), 0);
	assert_int_equal(vb_history_count(h), 0);
	assert_int_equal(read_back(h), 0);
	vb_history_close(h);
	vb_history_close(NULL);
}

static void test_what_is_added_is_read(void **state)
{
	struct vb_history *h;

	assert_int_equal(vb_history_open(16 << 20, &h), 0);
	for (uint64_t n = 0; n < 5000; n++) {
		assert_true(append(h, n));
		assert_int_equal(vb_history_count(h), n + 1);
	}
	assert_int_equal(read_back(h), 5000);
	vb_history_close(h);
}

static void test_full(void **state)
{
	struct vb_history *h;
	uint64_t n = 0;

	assert_int_equal(vb_history_open(10000, &h), 0);
	while (append(h, n))
		n++;
	assert_true(n > 10);
	assert_int_equal(vb_history_count(h), n);
	assert_int_equal(read_back(h), n);
	/* What did not fit left nothing, and what is small enough still does. */
	assert_false(append(h, n));
	assert_int_equal(read_back(h), n);
	vb_history_close(h);

	assert_int_equal(vb_history_open(0, &h), 0);
	assert_false(append(h, 0));
	vb_history_close(h);
}

static void test_largest_transaction(void **state)
{
	struct vb_history_op *ops = calloc(VB_HISTORY_OPS_MAX, sizeof(*ops));
	struct vb_history_txn t = {.id = 1, .n_ops = VB_HISTORY_OPS_MAX};
	const struct vb_history_op *read_ops;
	const struct vb_history_txn *read;
	struct vb_history *h;
	uint64_t at = 0;

	assert_non_null(ops);
	ops[VB_HISTORY_OPS_MAX - 1].key = 99;
	assert_int_equal(vb_history_open(1 << 20, &h), 0);
	assert_true(vb_history_add(h, &t, ops));
	assert_true(vb_history_next(h, &at, &read, &read_ops));
	assert_int_equal(read->n_ops, VB_HISTORY_OPS_MAX);
	assert_int_equal(read_ops[VB_HISTORY_OPS_MAX - 1].key, 99);
	assert_false(vb_history_next(h, &at, &read, &read_ops));
	vb_history_close(h);
	free(ops);
}

static void test_too_large_to_map(void **state)
{
	struct vb_history *h = NULL;

	assert_int_equal(vb_history_open(SIZE_MAX, &h), -ENOMEM);
	assert_int_equal(vb_history_open(SIZE_MAX / 2, &h), -ENOMEM);
	assert_null(h);
}

/* The parent sees whole records, and goes on where the child was killed. */
static void test_writer_killed(void **state)
{
	struct vb_history *h;
	uint64_t n;
	pid_t pid;

	assert_int_equal(vb_history_open(256 << 20, &h), 0);
	pid = fork_child();
	assert_true(pid >= 0);
	if (pid == 0) {
		for (n = 0; append(h, n); n++)
			;
		pause();
		_exit(0);
	}
	while (vb_history_count(h) < 1000)
		usleep(100);
	assert_int_equal(kill(pid, SIGKILL), 0);
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	n = vb_history_count(h);
	assert_true(n >= 1000);
	assert_int_equal(read_back(h), n);
	if (append(h, n))
		n++;
	assert_int_equal(read_back(h), n);
	vb_history_close(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_empty),
		cmocka_unit_test(test_what_is_added_is_read),
		cmocka_unit_test(test_full),
		cmocka_unit_test(test_largest_transaction),
		cmocka_unit_test(test_too_large_to_map),
		cmocka_unit_test(test_writer_killed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
