/* SPDX-License-Identifier: Apache-2.0 */
/* A traditional server's memory: clients found and forgotten, queues in order, growth, bound. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "lock/traditional/traditional.h"

#define KEEP 1000u

static struct trad_client *ask(struct trad_memory **m, vb_peer from, uint64_t lock, uint16_t tag,
			       uint64_t now)
{
	struct trad_client *c = trad_client_of(m, from, now, KEEP);

	if (c != NULL) {
		c->lock = lock;
		c->tag = tag;
		c->heard_ns = now;
	}
	return c;
}

/* The queue holds exactly these, forwards and backwards. */
static void expect_queue(struct trad_memory *m, uint64_t lock, const vb_peer *want, unsigned n)
{
	struct trad_queue *q = trad_queue_of(m, lock);
	uint32_t at, before = 0, readers = 0;

	if (n == 0) {
		assert_null(q);
		return;
	}
	assert_non_null(q);
	at = q->first;
	for (unsigned i = 0; i < n; i++) {
		struct trad_client *c = trad_at(m, at);

		assert_non_null(c);
		assert_true(c->from == want[i] && c->waits && c->lock == lock);
		assert_int_equal(c->prev, before);
		readers += trad_is_shared(c->tag);
		before = at;
		at = c->next;
	}
	assert_int_equal(at, 0);
	assert_int_equal(q->last, before);
	assert_int_equal(q->readers, readers);
}

/* The memory may move while the client is looked for: not two arguments of one call. */
static void push(struct trad_memory **m, vb_peer from, uint64_t lock, uint16_t tag, uint64_t now)
{
	struct trad_client *c = ask(m, from, lock, tag, now);

	trad_queue_push(*m, c);
}

static void leave(struct trad_memory **m, vb_peer from)
{
	struct trad_client *c = trad_client_of(m, from, 0, KEEP);

	trad_queue_remove(*m, c);
}

static void test_order(void **state)
{
	struct trad_memory *m = trad_memory_first();

	(void)state;
	for (vb_peer p = 1; p <= 4; p++)
		push(&m, p, 7, p == 3 ? TRAD_ACQUIRE_S : TRAD_ACQUIRE_X, 0);
	push(&m, 9, 8, TRAD_ACQUIRE_S, 0);
	expect_queue(m, 7, (vb_peer[]){1, 2, 3, 4}, 4);
	expect_queue(m, 8, (vb_peer[]){9}, 1);
	leave(&m, 2);
	leave(&m, 4);
	expect_queue(m, 7, (vb_peer[]){1, 3}, 2);
	leave(&m, 1);
	push(&m, 1, 7, TRAD_ACQUIRE_X, 0);
	expect_queue(m, 7, (vb_peer[]){3, 1}, 2);
	leave(&m, 9);
	expect_queue(m, 8, NULL, 0);
	free(m);
}

/* Growing moves everything and changes no order. */
static void test_growth(void **state)
{
	static vb_peer want[1000];
	struct trad_memory *m = trad_memory_first();
	uint32_t first_size;

	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		struct trad_client *c = ask(&m, i + 1, i % 2 ? 5 : 100 + i, TRAD_ACQUIRE_X, 0);

		if (i == 0)
			first_size = m->size;
		trad_queue_push(m, c);
		want[i / 2] = i % 2 ? i + 1 : want[i / 2];
	}
	assert_true(m->size > first_size);
	expect_queue(m, 5, want, 500);
	for (unsigned i = 0; i < 1000; i += 2)
		expect_queue(m, 100 + i, (vb_peer[]){i + 1}, 1);
	free(m);
}

static void test_bound(void **state)
{
	struct trad_memory *m = trad_memory_first();
	struct trad_client *c;
	vb_peer n = 0;

	(void)state;
	while ((c = ask(&m, n + 1, n % 3, TRAD_ACQUIRE_X, KEEP)) != NULL) {
		trad_queue_push(m, c);
		n++;
	}
	assert_int_equal(n, TRAD_CLIENTS_MAX - 1);
	/* Who is known still is; a new one has room when somebody has been silent for so long. */
	assert_non_null(trad_client_of(&m, 1, 2 * KEEP - 1, KEEP));
	assert_null(trad_client_of(&m, n + 1, 2 * KEEP - 1, KEEP));
	trad_client_of(&m, 4, 2 * KEEP, KEEP)->heard_ns = 2 * KEEP;
	assert_non_null(ask(&m, n + 1, 77, TRAD_ACQUIRE_X, 2 * KEEP));
	/* All the others are forgotten, also where they waited. */
	expect_queue(m, 0, (vb_peer[]){4}, 1);
	expect_queue(m, 1, NULL, 0);
	expect_queue(m, 2, NULL, 0);
	assert_true(m->size == TRAD_CLIENTS_MAX);
	for (vb_peer p = 1; p < 1000; p++)
		assert_non_null(ask(&m, p, 1, TRAD_ACQUIRE_X, 2 * KEEP));
	free(m);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),
		cmocka_unit_test(test_growth),
		cmocka_unit_test(test_bound),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
