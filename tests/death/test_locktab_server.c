/* SPDX-License-Identifier: Apache-2.0 */
/*
 * kill -9 of the lock table's server agent, and another in its place: with its file, and with
 * nothing.
 *
 * Nobody may be granted what somebody else still holds, tokens must grow, holders who are heard
 * of in the grace period keep what they hold, and the others get on again in a bounded time.
 */
#include <fcntl.h>
#include <sys/stat.h>

#include "procs.h"
#include "lock/table/table.h"

#define LEASE_NS    (1200 * MS) /* of the first play */
#define PATIENCE_NS (30000 * MS)
#define PLAYS       8
#define FILE_NAME   "locks.0.0"

static char dir[64];

static void remove_files(void)
{
	char path[128];

	snprintf(path, sizeof(path), "%s/" FILE_NAME, dir);
	(void)unlink(path);
	snprintf(path, sizeof(path), "%s/" FILE_NAME ".new", dir);
	(void)unlink(path);
}

static void open_procs(struct procs *w, bool persist, uint64_t lease_ns)
{
	char options[128];
	struct vb_lock_space_params sp = {.lock = "table",
					  .options = options,
					  .locks = PROCS_LOCKS,
					  .lease_ns = lease_ns,
					  .fencing = true};

	snprintf(options, sizeof(options), "ask_for=20s,wait=20s%s%s", persist ? ",persist=" : "",
		 persist ? dir : "");
	procs_begin(w, &sp);
	remove_files();
	procs_start_server(w);
}

static void kill_server(struct procs *w)
{
	kill(w->server, SIGKILL);
	assert_true(procs_wait(w, w->server, PATIENCE_NS));
}

/* ---- one holder, one server that dies ---- */

struct scene {
	bool persist;
	bool torn;  /* the file's end is, after the death */
	bool calls; /* the holder calls the new server, in its grace period if it has one */
	uint64_t lease_ns;
};

/* With its file the new server goes on at once; without it would take a lease. */
static bool knows(const struct scene *s)
{
	return s->persist && !s->torn;
}

/* Still, for certain?  On a busy machine a lease may be over before it is looked at. */
static bool is_kept(const struct procs *w, const struct vb_lock_client *me)
{
	return vb_lock_now(me) < __atomic_load_n(&w->b->kept_until_ns, __ATOMIC_SEQ_CST);
}

static bool may_be_kept(const struct scene *s)
{
	return s->calls || knows(s);
}

/* Holds lock 0 exclusively and lock 1 shared over the death of the server. */
static void holder(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	const struct scene *s = arg;
	struct vb_grant g[2], other;
	uint64_t begin = vb_lock_now(me);
	int err = vb_lock_acquire(me, 0, VB_EXCLUSIVE, PATIENCE_NS, &g[0]);

	if (err == 0)
		err = vb_lock_acquire(me, 1, VB_SHARED, PATIENCE_NS, &g[1]);
	if (err) {
		procs_fail(w->b, "the holder was not granted: %s", vb_strerror(err));
		return;
	}
	procs_judge(w, me, &g[0]);
	board_add(&w->b->step[0]);
	while (board_get(&w->b->step[1]) == 0)
		vb_ep_sleep(me->ep, MS);
	if (s->calls) {
		uint64_t until;

		vb_ep_sleep(me->ep, knows(s) ? 0 : s->lease_ns / 2);
		/* Any call to the agent tells it what we hold. */
		until = vb_lock_now(me) + s->lease_ns;
		err = vb_lock_try(me, 2, VB_EXCLUSIVE, &other);
		/* It has been heard before its lease, and any grace period, was over. */
		if (vb_lock_now(me) < begin + s->lease_ns)
			__atomic_store_n(&w->b->kept_until_ns, until, __ATOMIC_SEQ_CST);
		if (err == 0)
			err = vb_lock_release(me, &other);
		if (err != 0 && err != -EAGAIN)
			procs_fail(w->b, "a call to the new server: %s", vb_strerror(err));
	}
	board_add(&w->b->step[2]);
	while (board_get(&w->b->step[3]) == 0)
		vb_ep_sleep(me->ep, MS);
	__atomic_store_n(&w->b->held[me->index][0], 0, __ATOMIC_SEQ_CST);
	err = vb_lock_release(me, &g[0]);
	if (err == 0 ? !may_be_kept(s) : err != -VB_ELOST || is_kept(w, me))
		procs_fail(w->b, "release of lock 0: %s", err ? vb_strerror(err) : "0");
	(void)vb_lock_release(me, &g[1]);
}

/* Takes lock 2, which nobody holds; then shares lock 1 with the holder. */
static void newcomer(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	const struct scene *s = arg;
	uint64_t begin, took;
	struct vb_grant g;
	int err;

	while (board_get(&w->b->step[2]) == 0)
		vb_ep_sleep(me->ep, MS);
	begin = __atomic_load_n(&w->b->victim, __ATOMIC_SEQ_CST);
	err = vb_lock_acquire(me, 2, VB_EXCLUSIVE, PATIENCE_NS, &g);
	took = vb_lock_now(me) - begin;
	if (err) {
		procs_fail(w->b, "the newcomer was not granted: %s", vb_strerror(err));
		return;
	}
	procs_judge(w, me, &g);
	procs_give_back(w, me, &g);
	if (!knows(s) && took < s->lease_ns)
		procs_fail(w->b, "a new grant %" PRIu64 " ms after the death", took / MS);
	if (knows(s) && took >= s->lease_ns)
		return; /* by the server or by a busy machine: another play tells */
	err = vb_lock_acquire(me, 1, VB_SHARED, PATIENCE_NS, &g);
	if (err == 0)
		err = vb_lock_release(me, &g);
	if (err)
		procs_fail(w->b, "sharing with the holder: %s", vb_strerror(err));
	/* What the holder still has nobody gets. */
	err = vb_lock_try(me, 0, VB_EXCLUSIVE, &g);
	if (is_kept(w, me))
		board_add(&w->b->judged);
	if (err == 0 ? board_get(&w->b->judged) != 0 : err != -EAGAIN)
		procs_fail(w->b, "the held lock: %s", err ? vb_strerror(err) : "granted");
	if (err == 0)
		procs_give_back(w, me, &g);
}

static void tear(void)
{
	char path[128];
	struct stat st;

	snprintf(path, sizeof(path), "%s/" FILE_NAME, dir);
	assert_int_equal(stat(path, &st), 0);
	assert_true(st.st_size > 64 + 64);
	assert_int_equal(truncate(path, st.st_size - 10), 0);
}

/* Whether it came to a judgement: the new server was in time, and something was known of the held lock when it
 * was looked at. */
static bool play_once(const struct scene *s)
{
	struct procs w;
	bool judged;
	pid_t a, b;

	open_procs(&w, s->persist, s->lease_ns);
	a = procs_spawn(&w, holder, s);
	b = procs_spawn(&w, newcomer, s);
	procs_step(&w, 0, 1);
	kill_server(&w);
	__atomic_store_n(&w.b->victim, vb_clock_ns(), __ATOMIC_SEQ_CST);
	if (s->torn)
		tear();
	procs_start_server(&w);
	board_add(&w.b->step[1]);
	procs_wait(&w, b, 2 * PATIENCE_NS);
	board_add(&w.b->step[3]);
	procs_wait(&w, a, 2 * PATIENCE_NS);
	judged = board_get(&w.b->judged) != 0;
	procs_close(&w);
	remove_files();
	return judged;
}

/* A machine that is too busy for one lease may not be for a longer one. */
static void play(struct scene s)
{
	s.lease_ns = LEASE_NS;
	for (unsigned i = 0; i < PLAYS; i++) {
		if (play_once(&s) || !s.calls)
			return;
		if (i % 2 != 0)
			s.lease_ns *= 2;
	}
	fail_msg("in none of %u plays was the new server there within the lease of who held",
		 PLAYS);
}

/* The new server knows nothing: no new grants for a lease, and those who call keep theirs and have
 * another lease from then. */
static void test_with_nothing(void **state)
{
	play((struct scene){.calls = true});
}

/* Who does not call loses what it had, and learns so. */
static void test_silent_holder(void **state)
{
	play((struct scene){0});
}

static void test_with_file(void **state)
{
	play((struct scene){.persist = true, .calls = true});
}

static void test_torn_file(void **state)
{
	play((struct scene){.persist = true, .torn = true, .calls = true});
}

/* ---- a storm ---- */

#define STORM_WORKERS 4
#define STORM_KILLS   8

static void storm_worker(struct procs *w, struct vb_lock_client *me, const void *arg)
{
	unsigned r = me->index;

	(void)arg;
	while (!board_get(&w->b->stop) && !board_get(&w->b->failed)) {
		enum vb_mode mode = r++ % 3 ? VB_SHARED : VB_EXCLUSIVE;
		struct vb_grant g;
		int err = vb_lock_acquire(me, r % PROCS_LOCKS, mode, PATIENCE_NS, &g);

		if (err == -VB_EUNKNOWN || err == -VB_EPEERGONE)
			continue;
		if (err) {
			procs_fail(w->b, "acquire: %s", vb_strerror(err));
			return;
		}
		procs_judge(w, me, &g);
		if (vb_lock_valid(me, &g))
			__atomic_add_fetch(&w->b->grants, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(&w->b->held[me->index][g.lock], 0, __ATOMIC_SEQ_CST);
		err = vb_lock_release(me, &g);
		if (err != 0 && err != -VB_ELOST && err != -VB_EUNKNOWN)
			procs_fail(w->b, "release: %s", vb_strerror(err));
	}
}

static void storm(bool persist)
{
	pid_t pid[STORM_WORKERS];
	uint64_t before = 0;
	struct procs w;

	open_procs(&w, persist, 25 * MS);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		pid[i] = procs_spawn(&w, storm_worker, NULL);
	for (unsigned k = 0; k < STORM_KILLS && !board_get(&w.b->failed); k++) {
		uint64_t end = vb_clock_ns() + PATIENCE_NS;

		/* Each life of a server is of use. */
		while (board_get(&w.b->grants) < before + 50 && !board_get(&w.b->failed)) {
			assert_true(vb_clock_ns() < end);
			usleep(1000);
		}
		kill_server(&w);
		before = board_get(&w.b->grants);
		procs_start_server(&w);
	}
	board_add(&w.b->stop);
	for (unsigned i = 0; i < STORM_WORKERS; i++)
		procs_wait(&w, pid[i], 2 * PATIENCE_NS);
	print_message("%u servers killed, %" PRIu64 " grants\n", STORM_KILLS, w.b->grants);
	procs_close(&w);
	remove_files();
}

static void test_storm(void **state)
{
	storm(false);
}

static void test_storm_with_file(void **state)
{
	storm(true);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_with_nothing), cmocka_unit_test(test_silent_holder),
		cmocka_unit_test(test_with_file),    cmocka_unit_test(test_torn_file),
		cmocka_unit_test(test_storm),        cmocka_unit_test(test_storm_with_file),
	};
	int failed;

	snprintf(dir, sizeof(dir), "/tmp/verbena-locktab-%d", (int)getpid());
	if (mkdir(dir, 0700) != 0)
		return 2;
	failed = cmocka_run_group_tests_name("lock table's server", tests, NULL, NULL);
	remove_files();
	(void)rmdir(dir);
	return failed;
}
