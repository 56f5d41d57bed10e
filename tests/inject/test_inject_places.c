/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Places in queues that are given up while there is no memory for who would stand there instead:
 * the first has a stack that was kept for it, for the next the call waits itself.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include <verbena/lock.h>

#include "base/log.h"
#include "inject.h"
#include "lock/lock.h"

#define MS       1000000ull
#define SHORT_NS (2 * MS)
#define HELD_NS  (50 * MS)
#define LEASE_NS (1000 * MS)
#define PLACES   2

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
	bool memory_comes;
	bool done;
};

static const struct vb_task_params daemon_params = {.name = "holder", .daemon = true};

/* Holds the locks for a while; then memory comes, or the locks. */
static void holder(void *arg)
{
	struct world *w = arg;
	struct vb_grant grant[PLACES];

	assert_int_equal(vb_lock_client_open(w->space, 0, &w->a), 0);
	for (uint64_t i = 0; i < PLACES; i++)
		assert_int_equal(vb_lock_acquire(w->a, i, VB_EXCLUSIVE, 0, &grant[i]), 0);
	vb_ep_sleep(w->a->ep, HELD_NS);
	if (w->memory_comes) {
		inject_disarm();
		vb_ep_sleep(w->a->ep, HELD_NS);
	}
	for (uint64_t i = 0; i < PLACES; i++)
		assert_int_equal(vb_lock_release(w->a, &grant[i]), 0);
	vb_lock_client_close(w->a);
	w->done = true;
}

static void begin(struct world *w, const char *lock, bool memory_comes)
{
	*w = (struct world){.memory_comes = memory_comes};
	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.fabric = "sim",
								   .node_bytes = 1 << 20,
								   .endpoints = 8},
					&w->f),
			 0);
	assert_int_equal(vb_lock_space_open(w->f,
					    &(struct vb_lock_space_params){.lock = lock,
									   .locks = PLACES,
									   .lease_ns = LEASE_NS},
					    &w->space),
			 0);
	assert_int_equal(vb_lock_server_start(w->space, 0, 0, 1, &w->server), 0);
	assert_int_equal(vb_lock_client_open(w->space, 0, &w->b), 0);
	assert_int_equal(vb_task_spawn(vb_sched_self(), holder, w, &daemon_params, NULL), 0);
	vb_ep_sleep(w->b->ep, MS);
}

static void end(struct world *w)
{
	struct vb_grant grant;

	inject_disarm();
	while (!w->done)
		vb_ep_sleep(w->b->ep, MS);
	for (uint64_t i = 0; i < PLACES; i++) {
		assert_int_equal(vb_lock_acquire(w->b, i, VB_EXCLUSIVE, VB_FOREVER_NS, &grant), 0);
		assert_int_equal(vb_lock_release(w->b, &grant), 0);
	}
	vb_lock_client_close(w->b);
	vb_lock_server_stop(w->server);
	assert_int_equal(vb_lock_space_close(w->space), 0);
	assert_int_equal(vb_fabric_close(w->f), 0);
	vb_sched_destroy(vb_sched_self()); /* and the stacks that it keeps */
}

/* No mapping from now on: how long the second place is waited for, and what comes of it. */
static uint64_t give_up_twice(struct world *w, char *log, size_t size, int *err)
{
	const struct inject_plan none = {.how = INJECT_FROM, .at = 1, .classes = INJECT_MAP};
	struct vb_grant grant;
	uint64_t before = vb_lock_now(w->b), after;

	inject_arm(&none);
	assert_int_equal(vb_lock_acquire(w->b, 0, VB_EXCLUSIVE, SHORT_NS, &grant), -ETIMEDOUT);
	after = vb_lock_now(w->b);
	assert_in_range(after - before, SHORT_NS, 2 * SHORT_NS);
	assert_int_equal(inject_failed(), 0); /* a stack was kept */
	vb_log_capture_begin(log, size);
	*err = vb_lock_acquire(w->b, 1, VB_EXCLUSIVE, SHORT_NS, &grant);
	vb_log_capture_end();
	assert_true(inject_failed() > 1); /* it has been tried again */
	before = after;
	after = vb_lock_now(w->b);
	if (*err == 0)
		assert_int_equal(vb_lock_release(w->b, &grant), 0);
	return after - before;
}

static void lock_comes(void **state)
{
	char log[1024];
	struct world w;
	uint64_t took;
	int err;

	begin(&w, *state, false);
	took = give_up_twice(&w, log, sizeof(log), &err);
	assert_int_equal(err, 0);
	assert_in_range(took, HELD_NS / 2, 2 * HELD_NS);
	assert_non_null(strstr(log, "no memory for who would wait for lock 1"));
	end(&w);
}

static void memory_comes(void **state)
{
	char log[1024];
	struct world w;
	uint64_t took;
	int err;

	begin(&w, *state, true);
	took = give_up_twice(&w, log, sizeof(log), &err);
	assert_int_equal(err, -ETIMEDOUT);
	assert_in_range(took, HELD_NS / 2, HELD_NS + HELD_NS / 2);
	assert_false(w.done);
	end(&w);
}

/* Locks whose places cannot be left at once. */
static bool has_places(const struct vb_lock_ops *ops)
{
	return ops->resume != NULL;
}

int main(void)
{
	static struct CMUnitTest tests[64];
	static char names[64][48];
	size_t n = 0;

	for (const struct vb_lock_ops *const *l = vb_locks; *l != NULL; l++)
		for (unsigned i = 0; i < 2 && has_places(*l); i++) {
			snprintf(names[n], sizeof(names[n]), "%s, %s", (*l)->name,
				 i ? "memory comes" : "the lock comes");
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = i ? memory_comes : lock_comes,
						       .initial_state = (void *)(*l)->name};
			n++;
		}
	return _cmocka_run_group_tests("places", tests, n, NULL, NULL);
}
