/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who waits long for a lock on shm leaves the core to others, whichever lock it is.  `cas`, `rpc` and
 * writers of `retry-on-fail` are not asked: they are what it costs to ask again at once.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "lock/lock.h"

#define WAIT_NS    150000000ull
#define VERBS_MOST 10000 /* a look each 100 us, and as many at once before that */

static uint64_t verbs(const struct vb_lock_client *c)
{
	/* Who gave up has a proxy wait in the queue, and a keeper may be running it. */
	VB_SCHED_INSIDE(c->ep->sched);
	uint64_t n = 0;

	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		n += c->ep->count[op];
	return n;
}

/* One holds, the other waits: the verbs of who waits.  A machine with other work gives it less time for
 * them, and so hides what it would do; but whoever rests has few on any machine. */
static uint64_t waits(const char *lock, enum vb_mode held, enum vb_mode wanted)
{
	const struct vb_fabric_params fp = {.fabric = "shm", .node_bytes = 4u << 20};
	const struct vb_lock_space_params sp = {
		.lock = lock, .locks = 10, .lease_ns = 60000000000ull};
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
	struct vb_lock_space *s;
	struct vb_grant g, other;
	struct vb_fabric *f;
	uint64_t n;

	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &sp, &s), 0);
	assert_int_equal(vb_lock_server_thread_start(s, 0, &server), 0);
	assert_int_equal(vb_lock_client_open(s, 0, &a), 0);
	assert_int_equal(vb_lock_client_open(s, 0, &b), 0);
	assert_int_equal(vb_lock_acquire(a, 5, held, VB_FOREVER_NS, &g), 0);
	n = verbs(b);
	assert_int_equal(vb_lock_acquire(b, 5, wanted, WAIT_NS, &other), -ETIMEDOUT);
	n = verbs(b) - n;
	assert_int_equal(vb_lock_release(a, &g), 0);
	vb_lock_client_close(a);
	vb_lock_client_close(b);
	vb_lock_server_stop(server);
	assert_int_equal(vb_lock_space_close(s), 0);
	assert_int_equal(vb_fabric_close(f), 0);
	return n;
}

static void test_rest(void **state)
{
	static const enum vb_mode modes[][2] = {
		{VB_EXCLUSIVE, VB_EXCLUSIVE}, {VB_EXCLUSIVE, VB_SHARED}, {VB_SHARED, VB_EXCLUSIVE}};
	int wrong = 0;

	(void)state;
	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++) {
		if (strcmp((*l)->name, "cas") == 0 || strcmp((*l)->name, "rpc") == 0)
			continue;
		for (unsigned i = 0; i < VB_ARRAY_SIZE(modes); i++) {
			/* Whose readers have a lease that ends by itself. */
			if ((*l)->caps & VB_LOCK_READ_LEASE && modes[i][0] == VB_SHARED)
				continue;
			if (strcmp((*l)->name, "retry-on-fail") == 0 && modes[i][1] == VB_EXCLUSIVE)
				continue;
			uint64_t n = waits((*l)->name, modes[i][0], modes[i][1]);

			if (n <= VERBS_MOST)
				continue;
			fprintf(stderr, "%s: %llu verbs for mode %d behind %d\n", (*l)->name,
				(unsigned long long)n, modes[i][1], modes[i][0]);
			wrong++;
		}
	}
	assert_int_equal(wrong, 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {cmocka_unit_test(test_rest)};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
