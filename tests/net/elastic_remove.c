/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Removing lock spaces of an elastic cluster: who uses one is known where its locks are, whatever the server of node 0
 * knows, or has lost, or has come to know since.
 */
#include <sys/stat.h>

#include "elastic.h"
#include "fabric/net/state.h"

#define LOCKS 2 /* the second is on node 1 */

static uint16_t nodes = 2;

static struct vb_lock_space_params locks(void)
{
	return (struct vb_lock_space_params){.lock = "cas", .locks = LOCKS, .servers = nodes};
}

/* Opens the space and closes it, and removes it: as word[0] says. */
static void remover(struct world *w)
{
	const struct vb_lock_space_params p = locks();
	int want = (int)get(&w->b->word[0]);
	struct vb_lock_space *space;
	struct vb_fabric *f;
	char said[512] = "";
	int err;

	MUST_BE(0, open_client(w, &f));
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_space_close(space));
	vb_log_capture_begin(said, sizeof(said));
	err = vb_lock_space_remove(f, "locks");
	vb_log_capture_end();
	MUST_BE(want, err);
	MUST(want == 0 || strstr(said, "'lock:locks' is in use: process ") != NULL);
	MUST_BE(0, vb_fabric_close(f));
}

static void removal(struct world *w, int err)
{
	set(&w->b->word[0], (uint64_t)err);
	ended(client(w, remover));
}

/* ---- the server of node 0 is another one ---- */

static void outlives(struct world *w)
{
	const struct vb_lock_space_params p = locks();
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant g, other;
	struct vb_fabric *f;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_client_open(space, 1, &me));
	MUST_BE(0, vb_lock_acquire(me, 1, VB_EXCLUSIVE, WAIT_NS, &g));
	set(&w->b->step[0], 1);
	while (get(&w->b->step[1]) == 0)
		MUST_BE(0, vb_ep_sleep(me->ep, MS));
	/* It goes on as if nothing had been. */
	MUST_BE(0, vb_lock_release(me, &g));
	MUST_BE(0, vb_lock_acquire(me, 1, VB_EXCLUSIVE, WAIT_NS, &other));
	MUST_BE(0, vb_lock_release(me, &other));
	vb_lock_client_close(me);
	MUST_BE(0, vb_lock_space_close(space));
	MUST_BE(0, vb_fabric_close(f));
}

static void test_outlived(void **state)
{
	struct world w;
	pid_t pid;

	(void)state;
	nodes = 2;
	world_open(&w, 2, ",bound=500ms");
	servers_start(&w, NULL);
	pid = client(&w, outlives);
	await(get(&w.b->step[0]));
	server_kill(&w, 0);
	forget_marks(&w);
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	removal(&w, -EBUSY);
	set(&w.b->step[1], 1);
	ended(pid);
	removal(&w, 0);
	world_close(&w);
}

/* ---- a server that has no node 0 ---- */

static void opens_own(struct world *w, struct vb_fabric *f)
{
	const struct vb_lock_space_params p = locks();
	struct vb_lock_space *space;

	(void)w;
	if (net_of(f)->host == 1)
		MUST_BE(0, vb_lock_space_open_own(f, &p, &space));
}

static void test_own_part(void **state)
{
	struct world w;

	(void)state;
	nodes = 2;
	world_open(&w, 2, ",bound=500ms");
	servers_start(&w, opens_own);
	removal(&w, -EBUSY);
	/* Its process has ended, and one that serves nothing is there. */
	server_kill(&w, 1);
	forget_marks(&w);
	server_start(&w, 1, NULL);
	await(get(&w.b->server[1].up));
	removal(&w, 0);
	world_close(&w);
}

/* ---- one that opens without end ---- */

static void takes_all(struct world *w)
{
	const struct vb_lock_space_params p = locks();
	struct vb_lock_space *space[NET_HOLDS_EACH + 1], *more;
	struct vb_fabric *f, *second;
	char said[512] = "";
	int err;

	MUST_BE(0, open_client(w, &f));
	for (unsigned i = 0; i < NET_HOLDS_EACH; i++)
		MUST_BE(0, vb_lock_space_open(f, &p, &space[i]));
	vb_log_capture_begin(said, sizeof(said));
	err = vb_lock_space_open(f, &p, &more);
	vb_log_capture_end();
	MUST_BE(-ENOSPC, err);
	MUST(strstr(said, "close some") != NULL);
	/* Others are not concerned. */
	MUST_BE(0, open_client(w, &second));
	MUST_BE(0, vb_lock_space_open(second, &p, &more));
	MUST_BE(0, vb_lock_space_close(more));
	MUST_BE(0, vb_fabric_close(second));
	MUST_BE(0, vb_lock_space_close(space[0]));
	MUST_BE(0, vb_lock_space_open(f, &p, &space[0]));
	for (unsigned i = 0; i < NET_HOLDS_EACH; i++)
		MUST_BE(0, vb_lock_space_close(space[i]));
	MUST_BE(0, vb_fabric_close(f));
}

static void test_takes_all(void **state)
{
	struct world w;

	(void)state;
	nodes = 1;
	world_open(&w, 1, "");
	servers_start(&w, NULL);
	ended(client(&w, takes_all));
	removal(&w, 0);
	world_close(&w);
}

/* ---- a server that dies while it gives a client up ---- */

static void come_back(struct world *w)
{
	const struct vb_lock_space_params p = locks();
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant g, other;
	struct vb_fabric *f;
	int err;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_client_open(space, 0, &me));
	MUST_BE(0, vb_lock_acquire(me, 0, VB_EXCLUSIVE, WAIT_NS, &g));
	set(&w->b->step[0], 1);
	raise(SIGSTOP);
	/* Whether it was given up or not is known to both. */
	while ((err = vb_lock_try(me, 1, VB_EXCLUSIVE, &other)) == -VB_EUNKNOWN ||
	       (err == -VB_EPEERGONE && !net_memory_gone(net_of(f), 0)))
		MUST_BE(0, vb_ep_sleep(me->ep, MS));
	MUST(err == 0 || err == -VB_EPEERGONE);
	set(&w->b->word[1], err == 0);
	set(&w->b->step[1], 1);
	while (get(&w->b->step[2]) == 0)
		MUST_BE(0, vb_ep_sleep(me->ep, MS));
	(void)vb_lock_release(me, &g);
	vb_lock_client_close(me);
	MUST_BE(0, vb_lock_space_close(space));
	MUST_BE(0, vb_fabric_close(f));
}

/* The next store to what the state says of members kills it. */
static void dies_at_member(struct world *w, unsigned i, struct vb_fabric *fabric)
{
	const struct net_state *s = net_of(fabric)->elastic->state;

	(void)i;
	if (get(&w->b->word[2]) != 1)
		return;
	MUST_BE(0,
		mprotect(s->member, (size_t)((uint8_t *)s->box - (uint8_t *)s->member), PROT_READ));
	signal(SIGSEGV, SIG_DFL);
	set(&w->b->word[2], 2);
}

static void test_dies_burying(void **state)
{
	struct world w;
	char path[64];
	pid_t pid;

	(void)state;
	nodes = 1;
	world_open(&w, 1, ",bound=500ms,linger=3s");
	w.states = true;
	snprintf(path, sizeof(path), "%s/s0", w.dir);
	assert_int_equal(mkdir(path, 0700), 0);
	server_each = dies_at_member;
	servers_start(&w, NULL);
	pid = client(&w, come_back);
	await(get(&w.b->step[0]));
	set(&w.b->word[2], 1);
	await(get(&w.b->word[2]) == 2);
	set(&w.b->cut[0], 1);
	assert_int_equal(waitpid(w.pid[0], NULL, 0), w.pid[0]);
	set(&w.b->server[0].up, 0);
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	assert_int_equal(kill(pid, SIGCONT), 0);
	await(get(&w.b->step[1]));
	/* Who goes on as its client uses the space, and who does not has been told. */
	removal(&w, get(&w.b->word[1]) ? -EBUSY : 0);
	set(&w.b->step[2], 1);
	ended(pid);
	server_each = NULL;
	snprintf(path, sizeof(path), "%s/s0/state", w.dir);
	assert_int_equal(unlink(path), 0);
	snprintf(path, sizeof(path), "%s/s0", w.dir);
	assert_int_equal(rmdir(path), 0);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_outlived),
		cmocka_unit_test(test_own_part),
		cmocka_unit_test(test_takes_all),
		cmocka_unit_test(test_dies_burying),
	};

	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
