/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table's agents, in virtual time: those that stop, come late, say nothing, and have many
 * clients that say nothing.
 */
#include "sim_test.h"

#include "base/log.h"
#include "lock/table/table.h"

#define US      1000ull
#define MS      1000000ull
#define CLIENTS 4
#define LOCKS   1000
#define ASK_FOR (200 * MS)

struct world {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *c[CLIENTS];
};

static void start(struct world *w)
{
	assert_int_equal(vb_lock_server_start(w->space, 0, 0, 1, &w->server), 0);
}

static void stop(struct world *w)
{
	vb_lock_server_stop(w->server);
	w->server = NULL;
}

static void open_world(struct world *w, const char *options, uint64_t lease_ns)
{
	struct vb_lock_space_params p = {
		.lock = "table", .options = options, .locks = LOCKS, .lease_ns = lease_ns};

	*w = (struct world){.f = cluster("profile=cx5", 2, 1)};
	assert_int_equal(vb_lock_space_open(w->f, &p, &w->space), 0);
	start(w);
	for (unsigned i = 0; i < CLIENTS; i++)
		assert_int_equal(vb_lock_client_open(w->space, 1, &w->c[i]), 0);
}

static void close_world(struct world *w)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_lock_client_close(w->c[i]);
	vb_lock_server_stop(w->server);
	vb_lock_space_close(w->space);
	vb_fabric_close(w->f);
	vb_sched_destroy(vb_sched_self());
}

static int acquire(struct world *w, unsigned i, uint64_t lock, enum vb_mode mode,
		   struct vb_grant *g)
{
	return vb_lock_acquire(w->c[i], lock, mode, 100 * MS, g);
}

/* It runs on, and serves nobody any more: what a stopped machine looks like. */
static void silence(struct world *w)
{
	w->server->stop = true;
	vb_task_cancel(w->server->task);
	while (w->server->task != NULL)
		vb_task_yield();
}

static void start_later(void *arg)
{
	vb_task_sleep_until(now() + 100 * MS);
	start(arg);
}

/* ---- coming late ---- */

/* Stopped with a grant held, and another 100 ms later: what is held is kept, and who asks is
 * served, as after a death. */
static void test_planned_stop(void **state)
{
	struct vb_grant g, h;
	uint64_t begun;
	struct world w;

	open_world(&w, "ask_for=2s", 500 * MS);
	assert_int_equal(acquire(&w, 0, 1, VB_EXCLUSIVE, &g), 0);
	stop(&w);
	spawn(start_later, &w);
	begun = now();
	assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	assert_in_range(now() - begun, 100 * MS, 110 * MS);
	assert_int_equal(vb_lock_acquire(w.c[0], 2, VB_EXCLUSIVE, 3000 * MS, &h), 0);
	assert_int_equal(vb_lock_release(w.c[0], &h), 0);
	close_world(&w);
}

/* Nobody comes: the caller's deadline holds, and without one `ask_for`. */
static void test_stopped_for_good(void **state)
{
	char said[512] = "";
	struct vb_grant g;
	uint64_t begun;
	struct world w;

	open_world(&w, "ask_for=200ms", 500 * MS);
	stop(&w);
	vb_log_capture_begin(said, sizeof(said));
	begun = now();
	assert_int_equal(vb_lock_acquire(w.c[0], 2, VB_EXCLUSIVE, VB_FOREVER_NS, &g),
			 -VB_EPEERGONE);
	assert_in_range(now() - begun, ASK_FOR, ASK_FOR + 2 * MS);
	assert_non_null(strstr(said, "is gone"));
	/* Nobody was asked: nothing has to be taken back. */
	begun = now();
	assert_int_equal(acquire(&w, 0, 2, VB_EXCLUSIVE, &g), -ETIMEDOUT);
	assert_in_range(now() - begun, 100 * MS, 101 * MS);
	vb_log_capture_end();
	close_world(&w);
}

static void start_second(void *arg)
{
	struct world *w = arg;
	struct vb_lock_server *second;

	vb_task_sleep_until(now() + 50 * MS);
	assert_int_equal(vb_lock_server_start(w->space, 0, 1, 2, &second), 0);
	vb_task_sleep_until(now() + 2000 * MS);
	vb_lock_server_stop(second);
}

/* One agent of two is there already: who wants a lock waits for the other, and, since there was one
 * agent before, for its leases. */
static void test_half_of_two(void **state)
{
	struct vb_grant g;
	struct world w;

	open_world(&w, "ask_for=2s", 500 * MS);
	stop(&w);
	assert_int_equal(vb_lock_server_start(w.space, 0, 0, 2, &w.server), 0);
	spawn(start_second, &w);
	assert_int_equal(vb_lock_acquire(w.c[0], 2, VB_EXCLUSIVE, 1500 * MS, &g), 0);
	assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	assert_int_equal(vb_lock_acquire(w.c[0], 1, VB_EXCLUSIVE, 1500 * MS, &g), 0);
	assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	vb_task_sleep_until(now() + 3000 * MS);
	close_world(&w);
}

/* ---- many grants of one that is gone ---- */

enum fate { SILENT, STOPPED, FATES };

static void meet(struct world *w, enum fate fate)
{
	if (fate == SILENT)
		silence(w);
	else
		stop(w);
}

/* Closing with 64 grants, giving back some of many, undoing a path: one `ask_for` each, and not one
 * for each grant. */
static void test_many_grants(void **state)
{
	for (enum fate fate = SILENT; fate < FATES; fate++) {
		struct vb_grant g[64];
		char said[2048] = "";
		struct world w;
		uint64_t begun;

		open_world(&w, "ask_for=200ms", 60000 * MS);
		for (unsigned i = 0; i < 64; i++) {
			assert_int_equal(acquire(&w, 0, i, VB_SHARED, &g[i]), 0);
			assert_int_equal(acquire(&w, 1, i, VB_SHARED, &g[i]), 0);
		}
		meet(&w, fate);
		vb_log_capture_begin(said, sizeof(said));
		/* Not all that is held there: one after the other. */
		begun = now();
		assert_int_equal(vb_lock_release_all(w.c[1], g, 32), -VB_EUNKNOWN);
		assert_in_range(now() - begun, ASK_FOR, ASK_FOR + 2 * MS);
		begun = now();
		vb_lock_client_close(w.c[0]);
		w.c[0] = NULL;
		assert_in_range(now() - begun, ASK_FOR, ASK_FOR + 2 * MS);
		/* Another call asks again. */
		begun = now();
		assert_int_equal(vb_lock_release(w.c[1], &g[40]), -VB_EUNKNOWN);
		assert_in_range(now() - begun, ASK_FOR, ASK_FOR + 2 * MS);
		vb_log_capture_end();
		close_world(&w);
	}
}

struct late {
	struct world *w;
	enum fate fate;
};

static void meet_later(void *arg)
{
	struct late *l = arg;

	vb_task_sleep_until(now() + 30 * MS);
	meet(l->w, l->fate);
}

static void test_path_of_many(void **state)
{
	for (enum fate fate = SILENT; fate < FATES; fate++) {
		struct vb_grant g[VB_PATH_MAX], mine[8], leaf;
		uint64_t path[VB_PATH_MAX], begun;
		char said[2048] = "";
		struct late late;
		struct world w;
		int err;

		open_world(&w, "ask_for=200ms,wait=10s", 60000 * MS);
		for (unsigned i = 0; i < VB_PATH_MAX; i++)
			path[i] = i;
		/* Half of it is held already, and converted. */
		for (unsigned i = 0; i < 8; i++)
			assert_int_equal(acquire(&w, 0, i, VB_INTENT_SHARED, &mine[i]), 0);
		assert_int_equal(acquire(&w, 1, VB_PATH_MAX - 1, VB_EXCLUSIVE, &leaf), 0);
		late = (struct late){.w = &w, .fate = fate};
		spawn(meet_later, &late);
		vb_log_capture_begin(said, sizeof(said));
		begun = now();
		err = vb_lock_acquire_path(w.c[0], path, VB_PATH_MAX, VB_EXCLUSIVE, 100 * MS, g);
		assert_true(err == -ETIMEDOUT || err == -VB_EUNKNOWN || err == -VB_EPEERGONE);
		/* The deadline, and once more for saying that nobody waits any more. */
		assert_in_range(now() - begun, 100 * MS, 100 * MS + 2 * ASK_FOR);
		vb_log_capture_end();
		close_world(&w);
	}
}

/* ---- many who say nothing ---- */

#define SILENT_HOLDERS 90

/* An agent with room for 100 clients, 90 of which hold a lock and are not heard of: others still
 * come and go, and so they do when the leases of those have run out. */
static void test_silent_holders(void **state)
{
	struct vb_lock_client *silent[SILENT_HOLDERS], *c;
	struct vb_grant held[SILENT_HOLDERS], g;
	struct world w;

	open_world(&w, "ask_for=200ms,requests=100", 2000 * MS);
	for (unsigned i = 0; i < SILENT_HOLDERS; i++) {
		assert_int_equal(vb_lock_client_open(w.space, 1, &silent[i]), 0);
		assert_int_equal(vb_lock_acquire(silent[i], 100 + i, VB_SHARED, 100 * MS, &held[i]),
				 0);
	}
	for (unsigned i = 0; i < 400; i++) {
		assert_int_equal(vb_lock_client_open(w.space, 1, &c), 0);
		assert_int_equal(vb_lock_acquire(c, i % 100, VB_EXCLUSIVE, 100 * MS, &g), 0);
		assert_int_equal(vb_lock_release(c, &g), 0);
		vb_lock_client_close(c);
		if (i == 200)
			vb_task_sleep_until(now() + 3000 * MS);
	}
	for (unsigned i = 0; i < SILENT_HOLDERS; i++)
		vb_lock_client_close(silent[i]);
	close_world(&w);
}

/* ---- left unknown ---- */

struct left {
	struct world *w;
	unsigned i;
	unsigned *holders;
};

/* The first request waits when its agent stands still, and is left unknown; the first that the agent
 * sees then is what says that the second one is not wanted any more. */
static void leave_unknown(void *arg)
{
	const uint64_t path[] = {1};
	struct left *l = arg;
	struct vb_lock_client *me = l->w->c[l->i];
	struct vb_grant g;

	assert_int_equal(vb_lock_acquire_path(me, path, 1, VB_SHARED, 1000 * MS, &g), -VB_EUNKNOWN);
	assert_int_equal(vb_lock_acquire(me, 2, VB_SHARED, 100 * MS, &g), -ETIMEDOUT);
	assert_int_equal(vb_lock_acquire(me, 1, VB_EXCLUSIVE, 3000 * MS, &g), 0);
	assert_int_equal(++*l->holders, 1);
	vb_task_sleep_until(now() + 10 * MS);
	--*l->holders;
	assert_int_equal(vb_lock_release(me, &g), 0);
}

static void test_left_unknown(void **state)
{
	struct left left[2];
	unsigned holders = 1;
	struct vb_grant g;
	struct world w;

	open_world(&w, "ask_for=200ms", 5000 * MS);
	assert_int_equal(acquire(&w, 0, 1, VB_EXCLUSIVE, &g), 0);
	for (unsigned i = 0; i < 2; i++) {
		left[i] = (struct left){&w, 1 + i, &holders};
		spawn(leave_unknown, &left[i]);
	}
	vb_task_sleep_until(now() + 10 * MS);
	vb_sim_ep_pause(w.server->ep, now() + 400 * MS);
	vb_task_sleep_until(now() + 450 * MS);
	holders--;
	assert_int_equal(vb_lock_release(w.c[0], &g), 0);
	vb_task_sleep_until(now() + 1000 * MS);
	assert_int_equal(acquire(&w, 3, 1, VB_EXCLUSIVE, &g), 0);
	assert_int_equal(vb_lock_release(w.c[3], &g), 0);
	close_world(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_planned_stop), cmocka_unit_test(test_stopped_for_good),
		cmocka_unit_test(test_half_of_two),  cmocka_unit_test(test_many_grants),
		cmocka_unit_test(test_path_of_many), cmocka_unit_test(test_silent_holders),
		cmocka_unit_test(test_left_unknown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
