/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A link that refuses one verb in ten, for as long as it is used: of a batch it does what stands before that verb
 * and nothing behind it.  A call may then say that it has done nothing; no release is left undone for it, and
 * nothing of a call that has said so stays in a lock's words.  Under locks without leases nobody would find that
 * out later.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "base/compiler.h"
#include "fabric/hook/hooks.h"
#include "lock/lock.h"

#define must(call) assert_int_equal(call, 0)
#define NODES      2
#define CLIENTS    5
#define LOCKS      2
#define ROUNDS     100
#define SEEDS      4
#define REFUSES    0.1
#define LONG_NS    20000000000ull /* in vain */

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *s;
	struct vb_lock_client *me[CLIENTS];
	unsigned first, done, granted, refused;
	int err; /* what a call said that it should not */
};

/* Until the link has let it through. */
#define until_through(call)                                                                        \
	do {                                                                                       \
		int err_ = -VB_EPEERGONE;                                                          \
                                                                                                   \
		for (unsigned i_ = 0; i_ < 100 && err_ == -VB_EPEERGONE; i_++)                     \
			err_ = (call);                                                             \
		must(err_);                                                                        \
	} while (0)

static void use(struct world *w, struct vb_lock_client *me, unsigned i)
{
	enum vb_mode mode = i / 2 % 2 == 0 ? VB_SHARED : VB_EXCLUSIVE;
	bool tries = i % 5 == 4;
	struct vb_grant g;
	int err = tries ? vb_lock_try(me, i % LOCKS, mode, &g)
			: vb_lock_acquire(me, i % LOCKS, mode, vb_ep_now(me->ep) + LONG_NS, &g);

	w->granted += err == 0;
	w->refused += err == -VB_EPEERGONE;
	if (err == 0) {
		vb_task_yield();
		err = vb_lock_release(me, &g);
	} else if (err == -VB_EPEERGONE || (tries && err == -EAGAIN)) {
		err = 0;
	}
	if (w->err == 0)
		w->err = err;
}

static void client_body(void *arg)
{
	struct world *w = arg;
	unsigned k = w->first++;

	for (unsigned i = 0; i < ROUNDS && w->err == 0; i++)
		use(w, w->me[k], i + k);
	w->done++;
}

/* bells: it says that its verbs are not done at once, so that several have one doorbell. */
static void open_world(struct world *w, const char *lock, const char *options, bool bells,
		       uint64_t seed)
{
	const struct vb_fabric_params fp = {
		.fabric = "shm", .nodes = NODES, .node_bytes = 4u << 20, .endpoints = 16};
	const struct vb_fault_params p = {.fail_before = REFUSES, .seed = seed};
	const struct vb_lock_space_params sp = {.lock = lock, .options = options, .locks = LOCKS};
	struct vb_fabric *lower;

	*w = (struct world){0};
	must(vb_fabric_open(&fp, &lower));
	must(vb_hook_fault(lower, &p, &w->f));
	if (bells)
		w->f->caps.flags &= ~(uint32_t)VB_CAP_INLINE;
	must(vb_lock_space_open(w->f, &sp, &w->s));
	for (uint16_t i = 0; i < CLIENTS; i++)
		until_through(vb_lock_client_open(w->s, i % NODES, &w->me[i]));
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w->me[i]);
	must(vb_lock_space_close(w->s));
	must(vb_fabric_close(w->f));
}

/* Nobody has the locks any more. */
static void are_free(struct world *w)
{
	struct vb_grant g;

	for (unsigned i = 0; i < LOCKS; i++) {
		until_through(vb_lock_try(w->me[0], i, VB_EXCLUSIVE, &g));
		must(vb_lock_release(w->me[0], &g));
	}
}

static void refused(const char *lock, const char *options, bool bells)
{
	static const struct vb_task_params params = {.name = "client"};
	unsigned granted = 0, all = 0;

	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct world w;

		open_world(&w, lock, options, bells, seed);
		for (unsigned i = 0; i < CLIENTS; i++) {
			struct vb_task *t;

			must(vb_task_spawn(vb_sched_self(), client_body, &w, &params, &t));
		}
		while (w.done < CLIENTS)
			vb_task_yield();
		if (w.err != 0)
			fail_msg("%s, seed %llu: %s", lock, (unsigned long long)seed,
				 vb_strerror(w.err));
		are_free(&w);
		granted += w.granted;
		all += w.refused;
		close_world(&w);
	}
	printf("%s: %u grants, %u calls refused\n", lock, granted, all);
	assert_true(granted > SEEDS * CLIENTS * ROUNDS / 2);
	assert_true(all > SEEDS * CLIENTS);
}

static void test_cas(void **state)
{
	(void)state;
	refused("cas", NULL, false);
}

static void test_retry_on_fail(void **state)
{
	(void)state;
	refused("retry-on-fail", NULL, false);
}

static void test_mcs(void **state)
{
	(void)state;
	refused("mcs", NULL, false);
}

static void test_ncosed(void **state)
{
	(void)state;
	refused("ncosed", NULL, false);
}

static void test_rma_rw(void **state)
{
	(void)state;
	refused("rma-rw", NULL, false);
	refused("rma-rw", "group=2", false);
}

/* The name behind a group at the root is cleared by the doorbell of the swap that enters it there: were the first
 * refused and the second done, nobody could hand the root on. */
static void test_rma_rw_at_the_root(void **state)
{
	(void)state;
	refused("rma-rw", NULL, true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_cas),    cmocka_unit_test(test_retry_on_fail),
		cmocka_unit_test(test_mcs),    cmocka_unit_test(test_ncosed),
		cmocka_unit_test(test_rma_rw), cmocka_unit_test(test_rma_rw_at_the_root),
	};

	return cmocka_run_group_tests_name("refused", tests, NULL, NULL);
}
