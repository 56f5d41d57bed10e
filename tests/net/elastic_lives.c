/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Clients of an elastic cluster that come and go, orderly or not: they leave nothing at the server, and
 * whoever waits for a lock of theirs gets it.
 */
#include "elastic.h"

#define LEASE_NS (250 * MS)
#define LOCKS    256
#define PATIENT  ",bound=100ms" /* what such a lease allows */

static struct vb_lock_space_params locks(const char *lock)
{
	return (struct vb_lock_space_params){
		.lock = lock, .locks = LOCKS, .lease_ns = LEASE_NS, .fencing = true};
}

static const char *lock_name;

static void serve_locks(struct world *w, struct vb_fabric *f)
{
	struct vb_lock_space_params p = locks(lock_name);
	struct vb_lock_server *server;
	struct vb_lock_space *space;

	(void)w;
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_server_start(space, 0, 0, 1, &server));
}

static void open_locks(struct world *w, const char *lock, struct vb_fabric **f,
		       struct vb_lock_space **space, struct vb_lock_client **me)
{
	struct vb_lock_space_params p = locks(lock);

	MUST_BE(0, open_client(w, f));
	MUST_BE(0, vb_lock_space_open(*f, &p, space));
	MUST_BE(0, vb_lock_client_open(*space, 0, me));
}

static void close_locks(struct vb_fabric *f, struct vb_lock_space *space, struct vb_lock_client *me)
{
	vb_lock_client_close(me);
	MUST_BE(0, vb_lock_space_close(space));
	MUST_BE(0, vb_fabric_close(f));
}

/* On a machine that is busy an answer comes too late; these locks recover from that. */
static void take(struct vb_lock_client *me, uint64_t lock, struct vb_grant *g)
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	int err;

	while ((err = vb_lock_acquire(me, lock, VB_EXCLUSIVE, WAIT_NS, g)) == -VB_EUNKNOWN &&
	       vb_clock_gettime_ns() < end)
		;
	MUST_BE(0, err);
}

/* ---- hundreds ---- */

#define AT_ONCE 8u
#define WARM    32u
#define LIVES   240u
/*
 * What grows with lives grows by malloc's smallest piece, 32 bytes, for each life of a kind at least, and those who are
 * killed are a third.  What the busiest moment has left (a buffer of 512 bytes, pieces a little larger than was asked
 * for) is less.
 */
#define KEPT_MORE (32u * LIVES / 3)

/* Each third is killed with a lock in its hands, and an endpoint more than that has. */
static void live(struct world *w, unsigned i)
{
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant g;
	struct vb_ep *more;

	open_locks(w, lock_name, &f, &space, &me);
	MUST_BE(0, vb_ep_open(f, 0, &more));
	take(me, add(&w->b->word[1]) % LOCKS, &g); /* nobody waits for the dead */
	if (i % 3 == 0) {
		add(&w->b->step[0]);
		for (;;)
			pause();
	}
	(void)vb_lock_release(me, &g); /* it may be lost by now */
	vb_ep_close(more);
	close_locks(f, space, me);
	_exit(0);
}

/* Eight at a time: most of a life is waiting. */
static void lives(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < n; i += AT_ONCE) {
		pid_t pid[AT_ONCE];
		unsigned doomed = 0;

		set(&w->b->step[0], 0);
		for (unsigned j = 0; j < AT_ONCE; j++) {
			pid[j] = child();
			if (pid[j] == 0)
				live(w, i + j);
			doomed += (i + j) % 3 == 0;
		}
		await(get(&w->b->step[0]) == doomed);
		for (unsigned j = 0; j < AT_ONCE; j++) {
			if ((i + j) % 3 != 0) {
				ended(pid[j]);
				continue;
			}
			assert_int_equal(kill(pid[j], SIGKILL), 0);
			assert_int_equal(waitpid(pid[j], NULL, 0), pid[j]);
		}
	}
	/* Those who were killed are given up in the end, the others at once. */
	await(get(&w->b->server[0].members) == 0 && get(&w->b->server[0].open) == 0);
	look_again(w, 0);
}

static void test_hundreds(void **state)
{
	struct shown before, after;
	struct world w;

	/* One thread: a second one that happens to shake hands now and then has memory of its own for that, 5 KB. */
	world_open(&w, 1, PATIENT ",linger=100ms,helper=0");
	lock_name = "shiftlock";
	servers_start(&w, serve_locks);
	lives(&w, WARM);
	before = w.b->server[0];
	lives(&w, LIVES);
	after = w.b->server[0];
	print_message("after %u and %u clients: %u and %u descriptors, %llu and %llu bytes\n", WARM,
		      WARM + LIVES, before.descriptors, after.descriptors,
		      (unsigned long long)before.kept, (unsigned long long)after.kept);
	assert_int_equal(before.boxes, 0);
	assert_int_equal(after.boxes, 0);
	assert_int_equal(after.descriptors, before.descriptors);
	/* What is kept does not grow with them. */
	assert_true(after.kept < before.kept + KEPT_MORE);
	world_close(&w);
	(void)state;
}

/* ---- places ---- */

static void test_places(void **state)
{
	struct world w;
	pid_t pid, other;

	world_open(&w, 1, ",clients=1,linger=600s");
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		bool fresh;
		vb_addr a;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_region(f, 0, "word", 64, &a, &fresh));
		MUST(fresh);
		add(&w.b->step[0]);
		while (!get(&w.b->step[1]))
			usleep(1000);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	other = child();
	if (other == 0) {
		struct vb_fabric *f;
		bool fresh;
		vb_addr a;

		MUST_BE(-ETIMEDOUT, open_client_as(&w, w.key, ",patience=300ms", &f));
		add(&w.b->step[1]);
		MUST_BE(0, open_client(&w, &f));
		/* The same question, of the same number, by who has the same place now. */
		MUST_BE(0, vb_region(f, 0, "word", 64, &a, &fresh));
		MUST(!fresh);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	ended(other);
	world_close(&w);
	(void)state;
}

/* ---- members that flood ---- */

#define PIECES      64u
#define PIECE_BYTES (512u << 10)

/* Many long verbs at once by who looks at nothing that comes, and has no helper for it. */
static void flood(struct world *w, enum vb_op op, bool leaves_out)
{
	static uint8_t buffer[PIECE_BYTES];
	static struct vb_verb v[PIECES];
	static struct vb_batch b[PIECES];
	struct vb_fabric *f;
	struct vb_ep *ep;
	vb_addr at;
	bool fresh;

	MUST_BE(0, open_client_as(w, w->key, ",window=1024,helper=0,coalesce=no", &f));
	MUST_BE(0, vb_ep_open(f, 0, &ep));
	MUST_BE(0, vb_region(f, 0, "flood", PIECE_BYTES, &at, &fresh));
	pthread_mutex_lock(&net_of(f)->engine);
	am_of(net_of(f))->host[0].next_number += leaves_out;
	pthread_mutex_unlock(&net_of(f)->engine);
	for (unsigned i = 0; i < PIECES; i++) {
		v[i] = (struct vb_verb){.op = (uint8_t)op,
					.flags = VB_SIGNALLED,
					.addr = at,
					.len = PIECE_BYTES,
					.buf = buffer};
		b[i] = (struct vb_batch){.verbs = &v[i], .n = 1};
		(void)vb_post(ep, &b[i]);
	}
	add(&w->b->step[0]);
	while (!get(&w->b->step[1]))
		usleep(1000);
	_exit(0);
}

/* Its connection ends, which the log tells, and at no time does the server keep more for it than one message and what
 * it may owe. */
static void flooded(enum vb_op op, bool leaves_out)
{
	uint64_t before, kept, most = 0;
	struct world w;
	pid_t pid;

	world_open(&w, 1, ",bound=10s,linger=100ms");
	servers_start(&w, NULL);
	look_again(&w, 0);
	before = get(&w.b->server[0].kept);
	pid = child();
	if (pid == 0)
		flood(&w, op, leaves_out);
	/* It may be over before anybody has looked. */
	await(get(&w.b->server[0].open) == 1 || get(&w.b->server[0].strange) > 0);
	await(((kept = get(&w.b->server[0].kept)) > most ? (most = kept) : most) != 0 &&
	      get(&w.b->server[0].open) == 0);
	look_again(&w, 0);
	print_message("a member that floods makes a server keep %lld bytes for a while\n",
		      (long long)(most - before));
	assert_true(most - before < 6u << 20);
	assert_true(get(&w.b->server[0].strange) > 0);
	set(&w.b->step[1], 1);
	ended(pid);
	await(get(&w.b->server[0].members) == 0);
	world_close(&w);
}

static void test_flood(void **state)
{
	(void)state;
	flooded(VB_OP_READ, false);
	flooded(VB_OP_WRITE, true);
}

/* What others send it comes on top; word[0]: how much was kept of that. */
static void send_much(struct world *w, unsigned i, struct vb_fabric *fab)
{
	static uint8_t bytes[65536];
	struct net_fabric *f = net_of(fab);
	uint64_t kept = 0;

	(void)i;
	pthread_mutex_lock(&f->engine);
	vb_list_for_each (it, &via_of(fab)->conns) {
		struct tcp_conn *c = vb_container_of(it, struct tcp_conn, link);

		if (get(&w->b->word[0]) != 0 || c->from != TCP_CLIENT || c->state != TCP_OPEN)
			continue;
		while (tcp_conn_send(c, bytes, sizeof(bytes)) == 0)
			kept += sizeof(bytes);
		set(&w->b->word[0], kept);
	}
	pthread_mutex_unlock(&f->engine);
}

static void test_flood_of_others(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, ",linger=100ms");
	server_each = send_much;
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;

		/* Its opening ends by what it is sent, or it is there until it is. */
		if (open_client_as(&w, w.key, ",patience=2s", &f) == 0) {
			while (get(&w.b->word[0]) == 0)
				usleep(1000);
			MUST_BE(0, vb_fabric_close(f));
		}
		_exit(0);
	}
	await(get(&w.b->word[0]) != 0);
	assert_true(get(&w.b->word[0]) <= TCP_OWED_MAX);
	assert_true(get(&w.b->word[0]) > TCP_OWED_MAX - 2 * 65536);
	ended(pid);
	look_again(&w, 0);
	assert_true(get(&w.b->server[0].strange) > 0);
	server_each = NULL;
	world_close(&w);
	(void)state;
}

/* ---- an orderly end ---- */

#define POSTS 40u

/* One message at a time: most of them wait for the answer to the one before when the fabric is closed. */
static void post_many(struct vb_ep *ep, vb_addr at, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_verb v = {.op = VB_OP_FAA64, .addr = at, .compare.lo = 1};
		struct vb_batch b = {.verbs = &v, .n = 1};

		MUST_BE(0, vb_post(ep, &b));
	}
}

static void open_at(struct world *w, const char *more, struct vb_fabric **f, struct vb_ep **ep,
		    vb_addr *at)
{
	bool fresh;

	MUST_BE(0, open_client_as(w, w->key, more, f));
	MUST_BE(0, vb_ep_open(*f, 0, ep));
	MUST_BE(0, vb_region(*f, 0, "word", 64, at, &fresh));
}

/* What nobody waits for has arrived when the fabric is closed. */
static void test_close_posted(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, ",bound=10s");
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		uint64_t old = 0;
		struct vb_ep *ep;
		vb_addr at;

		open_at(&w, ",window=1,coalesce=no", &f, &ep, &at);
		post_many(ep, at, POSTS);
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		open_at(&w, "", &f, &ep, &at);
		MUST_BE(0, vb_faa64(ep, at, 0, &old));
		MUST(old == POSTS);
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

/* While it waits for one server, which is stopped, it does not come back to another one. */
static void test_close_slow(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 2, ",bound=100ms,linger=600s");
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;
		uint64_t old;
		vb_addr at, there;
		bool fresh;

		open_at(&w, "", &f, &ep, &at);
		MUST_BE(0, vb_region(f, 1, "word", 64, &there, &fresh));
		MUST_BE(0, vb_faa64(ep, there, 1, &old));
		MUST_BE(0, kill(w.pid[0], SIGSTOP));
		post_many(ep, at, 1);
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	await(get(&w.b->server[1].members) == 0);
	look_again(&w, 1);
	assert_int_equal(get(&w.b->server[1].members), 0);
	assert_int_equal(kill(w.pid[0], SIGCONT), 0);
	world_close(&w);
	(void)state;
}

/* ---- a holder is killed ---- */

static void holder_killed(const char *lock)
{
	pid_t holder, heir;
	struct world w;

	world_open(&w, 1, PATIENT ",linger=300ms");
	lock_name = lock;
	servers_start(&w, serve_locks);
	holder = child();
	if (holder == 0) {
		struct vb_fabric *f;
		struct vb_lock_space *space;
		struct vb_lock_client *me;
		struct vb_grant g;

		open_locks(&w, lock, &f, &space, &me);
		take(me, 0, &g);
		set(&w.b->word[0], g.token);
		add(&w.b->step[0]);
		for (;;)
			pause();
	}
	await(get(&w.b->step[0]));
	heir = child();
	if (heir == 0) {
		struct vb_fabric *f;
		struct vb_lock_space *space;
		struct vb_lock_client *me;
		struct vb_grant g;

		open_locks(&w, lock, &f, &space, &me);
		add(&w.b->step[1]);
		take(me, 0, &g);
		MUST(g.token > get(&w.b->word[0]));
		(void)vb_lock_release(me, &g);
		close_locks(f, space, me);
		_exit(0);
	}
	await(get(&w.b->step[1]));
	assert_int_equal(kill(holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	ended(heir);
	await(get(&w.b->server[0].members) == 0);
	world_close(&w);
}

static void test_holder_killed(void **state)
{
	static const char *const lock[] = {"dslr",        "dslr-update",    "shiftlock", "rpc",
					   "traditional", "traditional-ro", "table"};

	(void)state;
	for (size_t i = 0; i < VB_ARRAY_SIZE(lock); i++)
		holder_killed(lock[i]);
}

/* What it had open can be removed, once the server has given it up. */
static void test_killed_has_nothing_open(void **state)
{
	pid_t holder, other;
	struct world w;

	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	holder = child();
	if (holder == 0) {
		struct vb_fabric *f;
		struct vb_lock_space *space;
		struct vb_lock_client *me;
		struct vb_grant g;

		open_locks(&w, "dslr", &f, &space, &me);
		take(me, 0, &g);
		add(&w.b->step[0]);
		for (;;)
			pause();
	}
	await(get(&w.b->step[0]));
	other = child();
	if (other == 0) {
		struct vb_fabric *f;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(-EBUSY, vb_lock_space_remove(f, "locks"));
		add(&w.b->step[1]);
		while (!get(&w.b->step[2]))
			usleep(1000);
		MUST_BE(0, vb_lock_space_remove(f, "locks"));
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[1]));
	assert_int_equal(kill(holder, SIGKILL), 0);
	assert_int_equal(waitpid(holder, NULL, 0), holder);
	await(get(&w.b->server[0].members) == 1);
	add(&w.b->step[2]);
	ended(other);
	world_close(&w);
	(void)state;
}

/* ---- a server begins again ---- */

#define SETTLE_NS (600 * MS)

/* Its holder hears that the server has gone, and who comes new waits until that grant is over. */
static void test_restart(void **state)
{
	pid_t holder, heir;
	struct world w;

	world_open(&w, 1, PATIENT ",settle=600ms");
	lock_name = "dslr";
	servers_start(&w, serve_locks);
	holder = child();
	if (holder == 0) {
		struct vb_fabric *f;
		struct vb_lock_space *space;
		struct vb_lock_client *me;
		struct vb_grant g, again;
		int err;

		open_locks(&w, lock_name, &f, &space, &me);
		take(me, 0, &g);
		set(&w.b->word[0], vb_clock_gettime_ns() + g.valid_until_ns - vb_lock_now(me));
		add(&w.b->step[0]);
		while (!vb_node_gone(f, 0))
			MUST_BE(0, vb_ep_sleep(me->ep, MS));
		err = vb_lock_release(me, &g);
		MUST(err == -VB_ELOST || err == -VB_EUNKNOWN);
		/* With a claim that stands nowhere. */
		MUST_BE(-VB_EPEERGONE, vb_lock_acquire(me, 1, VB_EXCLUSIVE, WAIT_NS, &again));
		vb_lock_client_close(me);
		MUST_BE(0, vb_lock_space_close(space));
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	assert_int_equal(kill(w.pid[0], SIGKILL), 0);
	assert_int_equal(waitpid(w.pid[0], NULL, 0), w.pid[0]);
	heir = child();
	if (heir == 0) {
		struct vb_fabric *f;
		struct vb_lock_space *space;
		struct vb_lock_client *me;
		struct vb_grant g;

		open_locks(&w, lock_name, &f, &space, &me);
		take(me, 0, &g);
		MUST(vb_clock_gettime_ns() >= get(&w.b->word[0]));
		(void)vb_lock_release(me, &g);
		close_locks(f, space, me);
		_exit(0);
	}
	server_start(&w, 0, serve_locks);
	ended(heir);
	ended(holder);
	world_close(&w);
	(void)state;
}

/* Waiting begins where the former server can grant no more: beside one that serves, or waits itself, nobody waits. */
static pid_t beside(struct world *w)
{
	pid_t pid = child();

	if (pid == 0) {
		struct vb_fabric *f;

		alarm(60); /* not for an hour */
		snprintf(w->more, sizeof(w->more), PATIENT ",settle=3600s");
		MUST_BE(-EADDRINUSE, open_server(w, 0, &f));
		_exit(0);
	}
	return pid;
}

static void test_settle_beside(void **state)
{
	pid_t one, other, first = 0;
	struct world w;
	int status = -1;

	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	ended(beside(&w));
	server_kill(&w, 0);
	forget_marks(&w);
	/* One of the two gets the port. */
	one = beside(&w);
	other = beside(&w);
	await((first = waitpid(one, &status, WNOHANG)) != 0 ||
	      (first = waitpid(other, &status, WNOHANG)) != 0);
	if (first == one)
		one = other;
	assert_int_equal(kill(one, SIGKILL), 0);
	assert_int_equal(waitpid(one, NULL, 0), one);
	assert_int_equal(status, 0);
	world_close(&w);
	(void)state;
}

/* A server that begins again has not been there before, whatever its options say, if it must not be. */
static void test_fresh(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, PATIENT);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		char options[300];

		snprintf(options, sizeof(options), "servers=%s,serve=1,key=%s,settle=0", w.list,
			 w.key);
		MUST_BE(-EINVAL,
			vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
								  .options = options,
								  .nodes = 1,
								  .node_bytes = NODE_BYTES},
				       &f));
		_exit(0);
	}
	ended(pid);
	servers_start(&w, NULL);
	server_kill(&w, 0);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;

		MUST_BE(-EEXIST, open_server(&w, 0, &f));
		/* Nor by waiting for less than it may have granted. */
		snprintf(w.more, sizeof(w.more), PATIENT ",settle=1ms");
		MUST_BE(-EEXIST, open_server(&w, 0, &f));
		_exit(0);
	}
	ended(pid);
	forget_marks(&w);
	servers_start(&w, NULL);
	world_close(&w);
	(void)state;
}

/* What a server that begins again does not wait for is not granted. */
static void test_settle(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, PATIENT ",settle=200ms");
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_lock_space_params p = locks("dslr");
		struct vb_lock_space *space;
		struct vb_fabric *f;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(-EINVAL, vb_lock_space_open(f, &p, &space));
		/* Its readers give nothing back, and nobody waits for them. */
		p = locks("drtm");
		MUST_BE(-EOPNOTSUPP, vb_lock_space_open(f, &p, &space));
		/* This one knows no leases. */
		p = locks("mcs");
		MUST_BE(0, vb_lock_space_open(f, &p, &space));
		MUST_BE(0, vb_lock_space_close(space));
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

/* What malloc keeps of freed memory for a thread's next calls it counts as used: up to seven pieces of each size, which
 * were 20 to 33 KB more after any number of clients.  That can be turned off before a program begins only. */
static void without_caches(char **argv)
{
	const char *name = "GLIBC_TUNABLES", *want = "glibc.malloc.tcache_count=0";
	const char *is = getenv(name);

	if (is != NULL && strstr(is, want) != NULL)
		return;
	if (setenv(name, want, 1) != 0 || execv("/proc/self/exe", argv) != 0)
		perror("the test cannot be begun without malloc's caches");
	exit(1);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_hundreds),
		cmocka_unit_test(test_places),
		cmocka_unit_test(test_flood),
		cmocka_unit_test(test_flood_of_others),
		cmocka_unit_test(test_close_posted),
		cmocka_unit_test(test_close_slow),
		cmocka_unit_test(test_holder_killed),
		cmocka_unit_test(test_killed_has_nothing_open),
		cmocka_unit_test(test_restart),
		cmocka_unit_test(test_settle_beside),
		cmocka_unit_test(test_fresh),
		cmocka_unit_test(test_settle),
	};

	(void)argc;
	without_caches(argv);
	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
