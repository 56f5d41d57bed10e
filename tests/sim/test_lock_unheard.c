/* SPDX-License-Identifier: Apache-2.0 */
/* Requests to a lock's server that never come, where those behind them do. */
#include "sim_test.h"

#include <errno.h>

#include "base/log.h"
#include "fabric/hook/hooks.h"
#include "lock/lock.h"

#define US    1000ull
#define MS    1000000ull
#define LEASE (10 * MS)

#define must(call) assert_int_equal(call, 0)

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;
};

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned lose, lost; /* messages */
} lossy;

static int post_lossy(struct vb_ep *ep, struct vb_batch *b)
{
	if (lossy.lose == 0 || b->verbs[0].op != VB_OP_SEND)
		return lossy.real->post(ep, b);
	lossy.lose--;
	lossy.lost++;
	for (unsigned i = 0; i < b->n; i++)
		b->verbs[i].status = 0;
	return 0;
}

/* Who holds a lock asks for another, gives up, and only that it gives up is heard: the server's last word
 * to it was of what it holds, and is not the answer to this. */
static void test_only_the_end_is_heard(void **state)
{
	static const char *const locks[] = {"traditional", "traditional-ro"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(locks); i++) {
		struct vb_lock_space_params p = {.lock = locks[i], .locks = 100, .lease_ns = LEASE};
		struct vb_grant mine, other, his;
		struct world w = {.f = cluster("profile=cx5", 2, 1)};

		must(vb_hook_count(w.f, &w.f));
		must(vb_lock_space_open(w.f, &p, &w.space));
		must(vb_lock_server_start(w.space, 0, 0, 1, &w.server));
		must(vb_lock_client_open(w.space, 1, &w.a));
		must(vb_lock_client_open(w.space, 1, &w.b));
		lossy.real = w.a->ep->ops;
		lossy.ops = *lossy.real;
		lossy.ops.post = post_lossy;
		must(vb_lock_acquire(w.a, 1, VB_EXCLUSIVE, MS, &mine));
		w.a->ep->ops = &lossy.ops;
		lossy.lose = 1;
		lossy.lost = 0;
		assert_int_equal(vb_lock_acquire(w.a, 2, VB_EXCLUSIVE, 20 * US, &other),
				 -ETIMEDOUT);
		assert_int_equal(lossy.lost, 1);
		must(vb_lock_try(w.b, 2, VB_EXCLUSIVE, &his));
		must(vb_lock_release(w.b, &his));
		assert_true(vb_lock_valid(w.a, &mine));
		must(vb_lock_release(w.a, &mine));
		vb_lock_client_close(w.a);
		vb_lock_client_close(w.b);
		vb_lock_server_stop(w.server);
		vb_lock_space_close(w.space);
		vb_fabric_close(w.f);
		vb_sched_destroy(vb_sched_self());
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_only_the_end_is_heard),
	};

	return cmocka_run_group_tests_name("lock_unheard", tests, NULL, NULL);
}
