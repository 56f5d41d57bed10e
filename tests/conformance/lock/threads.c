/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Threads of one process, each with its scheduler and client, on one lock: plain counters that only
 * the lock protects.  Under the thread sanitizer this also asks whether a grant makes visible what
 * the last holder wrote.
 */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "lock/lock.h"

#define THREADS  4
#define CYCLES   400
#define LEASE_NS 2000000000ull /* nobody is to lose a lock because the machine is busy */

struct crowd {
	struct vb_lock_space *space;
	/* What the lock protects, and nothing else does. */
	uint64_t written, sum_read;
	int err[THREADS];
};

struct member {
	struct crowd *crowd;
	unsigned index;
};

static int cycle(struct crowd *c, struct vb_lock_client *me, unsigned i)
{
	enum vb_mode mode = i % 3 == 0 ? VB_SHARED : VB_EXCLUSIVE;
	struct vb_grant g;
	int err = vb_lock_acquire(me, 0, mode, VB_FOREVER_NS, &g);

	if (err)
		return err;
	if (g.mode == VB_EXCLUSIVE) {
		c->written++;
		c->sum_read += c->written;
	} else if (me->space->ops->caps & VB_LOCK_READ_LEASE) {
		/* What ends by the clock orders nothing that the sanitizer could see. */
		err = vb_lock_release(me, &g);
		return err == -VB_ELOST ? 0 : err;
	} else if (c->sum_read != c->written * (c->written + 1) / 2) {
		err = -EILSEQ;
	}
	return err ? err : vb_lock_release(me, &g);
}

static void *member_body(void *arg)
{
	struct member *m = arg;
	struct crowd *c = m->crowd;
	struct vb_lock_client *me;
	int err = vb_lock_client_open(c->space, 0, &me);

	for (unsigned i = 0; err == 0 && i < CYCLES; i++)
		err = cycle(c, me, m->index + i);
	if (err == 0)
		vb_lock_client_close(me);
	c->err[m->index] = err;
	vb_sched_destroy(vb_sched_self());
	return NULL;
}

static unsigned exclusive_cycles(const struct vb_lock_ops *ops)
{
	unsigned n = 0;

	for (unsigned t = 0; t < THREADS; t++)
		for (unsigned i = 0; i < CYCLES; i++)
			n += (t + i) % 3 != 0 || !(ops->caps & VB_LOCK_SHARED);
	return n;
}

static void test_lock(void **state)
{
	const struct vb_lock_ops *ops = *state;
	const struct vb_fabric_params fp = {
		.fabric = "shm", .node_bytes = 1 << 20, .endpoints = 32};
	const struct vb_lock_space_params sp = {
		.lock = ops->name, .locks = 1, .lease_ns = LEASE_NS};
	struct vb_lock_server *server;
	struct vb_fabric *fabric;
	struct crowd c = {0};
	struct member m[THREADS];
	pthread_t threads[THREADS];

	assert_int_equal(vb_fabric_open(&fp, &fabric), 0);
	assert_int_equal(vb_lock_space_open(fabric, &sp, &c.space), 0);
	assert_int_equal(vb_lock_server_thread_start(c.space, 0, &server), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		m[i] = (struct member){.crowd = &c, .index = i};
		assert_int_equal(pthread_create(&threads[i], NULL, member_body, &m[i]), 0);
	}
	for (unsigned i = 0; i < THREADS; i++) {
		pthread_join(threads[i], NULL);
		assert_int_equal(c.err[i], 0);
	}
	vb_lock_server_stop(server);
	assert_int_equal(c.written, exclusive_cycles(ops));
	assert_int_equal(c.sum_read, c.written * (c.written + 1) / 2);
	vb_lock_space_close(c.space);
	vb_fabric_close(fabric);
}

int main(void)
{
	struct CMUnitTest tests[16];
	size_t n = 0;

	for (const struct vb_lock_ops *const *l = vb_locks; *l; l++)
		tests[n++] = (struct CMUnitTest){
			.name = (*l)->name, .test_func = test_lock, .initial_state = (void *)*l};
	return _cmocka_run_group_tests("threads", tests, n, NULL, NULL);
}
