/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The home of a client of an elastic cluster goes: whoever waits for what comes from there hears of it in time, or goes on
 * when it is back.
 */
#include "elastic.h"

#define LOCKS     16
#define LINGER_NS (300 * MS)
#define PATIENT   ",bound=100ms,linger=300ms"
/* linger; and silence, and a second, where the connection stands. */
#define BOUND_NS (2300 * MS)
/* What a busy machine takes besides. */
#define SLACK_NS (5000 * MS)

static const char *lock_name;

/* Such a lease that nobody gets a lock by the end of one. */
static struct vb_lock_space_params locks(void)
{
	return (struct vb_lock_space_params){
		.lock = lock_name, .locks = LOCKS, .lease_ns = 200000 * MS};
}

static void serve_locks(struct world *w, struct vb_fabric *f)
{
	struct vb_lock_space_params p = locks();
	struct vb_lock_server *server;
	struct vb_lock_space *space;

	(void)w;
	if (net_of(f)->host != 0)
		return;
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_server_start(space, 0, 0, 1, &server));
}

struct party {
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant g;
};

static void come(struct world *w, struct party *p, uint16_t home, const char *more)
{
	struct vb_lock_space_params sp = locks();

	MUST_BE(0, open_client_as(w, w->key, more, &p->f));
	MUST_BE(0, vb_lock_space_open(p->f, &sp, &p->space));
	MUST_BE(0, vb_lock_client_open(p->space, home, &p->me));
}

static void go(struct party *p)
{
	vb_lock_client_close(p->me);
	MUST_BE(0, vb_lock_space_close(p->space));
	MUST_BE(0, vb_fabric_close(p->f));
}

static bool is_asked(const char *lock)
{
	return strcmp(lock, "rpc") == 0 || strcmp(lock, "traditional") == 0 ||
	       strcmp(lock, "table") == 0;
}

/* Has the lock until step[2]; its home stays. */
static pid_t holder(struct world *w)
{
	pid_t pid = child();
	struct party p;

	if (pid != 0)
		return pid;
	come(w, &p, 0, "");
	MUST_BE(0, vb_lock_acquire(p.me, 0, VB_EXCLUSIVE, WAIT_NS, &p.g));
	add(&w->b->step[0]);
	while (!get(&w->b->step[2]))
		MUST_BE(0, vb_ep_sleep(p.me->ep, MS));
	(void)vb_lock_release(p.me, &p.g);
	go(&p);
	_exit(0);
}

/* Waits for it without end.  Of those that ask a server some have no answer for longer than they ask before it is known
 * that none can come. */
static pid_t waiter(struct world *w, const char *more, bool lost)
{
	pid_t pid = child();
	struct party p;
	int err;

	if (pid != 0)
		return pid;
	come(w, &p, 1, more);
	add(&w->b->step[1]);
	err = vb_lock_acquire(p.me, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &p.g);
	set(&w->b->word[0], vb_clock_gettime_ns());
	if (lost && is_asked(lock_name) && err == -VB_EUNKNOWN)
		err = -VB_EPEERGONE;
	MUST_BE(lost ? -VB_EPEERGONE : 0, err);
	if (!lost)
		(void)vb_lock_release(p.me, &p.g);
	go(&p);
	_exit(0);
}

static void home_goes(const char *lock, int how)
{
	pid_t has, waits;
	struct world w;
	uint64_t gone;

	world_open(&w, 2, PATIENT);
	lock_name = lock;
	servers_start(&w, serve_locks);
	has = holder(&w);
	await(get(&w.b->step[0]));
	waits = waiter(&w, "", true);
	await(get(&w.b->step[1]));
	usleep(100000);
	gone = vb_clock_gettime_ns();
	assert_int_equal(kill(w.pid[1], how), 0);
	ended(waits);
	assert_true(get(&w.b->word[0]) >= gone);
	assert_true(get(&w.b->word[0]) - gone < BOUND_NS + SLACK_NS);
	print_message("%s: told after %llu ms\n", lock,
		      (unsigned long long)(get(&w.b->word[0]) - gone) / MS);
	add(&w.b->step[2]);
	ended(has);
	if (how == SIGSTOP)
		assert_int_equal(kill(w.pid[1], SIGCONT), 0);
	else
		server_kill(&w, 1);
	world_close(&w);
}

static void test_home_dies(void **state)
{
	static const char *const lock[] = {"mcs", "ncosed",      "rma-rw", "shiftlock",
					   "rpc", "traditional", "table"};

	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(lock); i++)
		home_goes(lock[i], SIGKILL);
}

/* Its kernel goes on to answer for it. */
static void test_home_stops(void **state)
{
	(void)state;
	home_goes("mcs", SIGSTOP);
	home_goes("rpc", SIGSTOP);
}

/* Sooner than it gives clients up. */
static void test_home_returns(void **state)
{
	pid_t has, waits;
	struct world w;

	world_open(&w, 2, PATIENT ",linger=100s");
	lock_name = "mcs";
	servers_start(&w, serve_locks);
	has = holder(&w);
	await(get(&w.b->step[0]));
	waits = waiter(&w, ",silence=200ms", false);
	await(get(&w.b->step[1]));
	usleep(100000);
	assert_int_equal(kill(w.pid[1], SIGSTOP), 0);
	usleep(1500000);
	assert_int_equal(kill(w.pid[1], SIGCONT), 0);
	add(&w.b->step[2]);
	ended(waits);
	ended(has);
	world_close(&w);
	(void)state;
}

/* ---- endpoints ---- */

/* At a server that is not there one is refused when a connection should be there again. */
static void test_open_without(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 2, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;
		uint64_t begun;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 1, &ep));
		vb_ep_close(ep);
		add(&w.b->step[0]);
		while (!get(&w.b->step[1]))
			usleep(1000);
		begun = vb_clock_gettime_ns();
		MUST_BE(-VB_EPEERGONE, vb_ep_open(f, 1, &ep));
		MUST(vb_clock_gettime_ns() - begun <
		     f->caps.relink_ns + net_of(f)->wait_ns + SLACK_NS);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	server_kill(&w, 1);
	add(&w.b->step[1]);
	ended(pid);
	world_close(&w);
	(void)state;
}

/* A number whose asker has given up is nobody's. */
static void test_late_number(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep, *none;
		uint64_t patience;

		MUST_BE(0, open_client_as(&w, w.key, ",silence=100s", &f));
		patience = net_of(f)->core->answer_ns;
		net_of(f)->core->answer_ns = 50 * MS;
		MUST_BE(0, kill(w.pid[0], SIGSTOP));
		MUST_BE(-ETIMEDOUT, vb_ep_open(f, 0, &none));
		MUST_BE(0, kill(w.pid[0], SIGCONT));
		net_of(f)->core->answer_ns = patience;
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		add(&w.b->step[0]);
		while (!get(&w.b->step[1]))
			MUST_BE(0, vb_ep_sleep(ep, MS));
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	look_again(&w, 0);
	assert_int_equal(get(&w.b->server[0].boxes), 1);
	add(&w.b->step[1]);
	ended(pid);
	world_close(&w);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_home_dies),    cmocka_unit_test(test_home_stops),
		cmocka_unit_test(test_home_returns), cmocka_unit_test(test_open_without),
		cmocka_unit_test(test_late_number),
	};

	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
