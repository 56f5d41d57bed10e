/* SPDX-License-Identifier: Apache-2.0 */
/*
 * How long a segment lives: as long as somebody uses it, whoever created it and however the others
 * went.  While it lives there is one of its name and one memory; what of its locks, shm_restart.c asks.
 */
#include <fcntl.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/ptrace.h>

#include "actors.h"

/* ---- who stays when the creator goes ---- */

static bool says(const char *said, pid_t pid)
{
	char text[32];
	size_t n = (size_t)snprintf(text, sizeof(text), "%d", (int)pid);
	const char *at = said;

	while ((at = strstr(at, text)) != NULL) {
		bool begins = at == said || at[-1] < '0' || at[-1] > '9';

		if (begins && (at[n] < '0' || at[n] > '9'))
			return true;
		at += n;
	}
	return false;
}

static void creator_goes(bool killed)
{
	struct actor c = enter(NULL), b = enter(NULL), d = enter(NULL);
	struct vb_fabric *f = NULL;
	char said[512];
	pid_t pid = c.pid;

	assert_int_equal(tell(&c, 'c'), 0);
	assert_int_equal(tell(&c, 'i'), 0);
	assert_int_equal(tell(&b, 'a'), 0);
	assert_int_equal(tell(&b, 'i'), 1);
	if (killed) {
		kill_actor(&c);
	} else {
		assert_int_equal(tell(&c, 'x'), 0);
		leave(&c);
	}
	assert_true(segment_exists(name));
	/* No second one of that name, and the log names who uses it. */
	assert_int_equal(open_said('c', &f, said, sizeof(said)), -EBUSY);
	assert_null(f);
	assert_true(says(said, b.pid));
	assert_false(says(said, pid));
	/* New ones come in, by either way, and find the same memory. */
	assert_int_equal(tell(&d, 'a'), 0);
	assert_int_equal(tell(&d, 'i'), 2);
	c = enter(NULL);
	assert_int_equal(tell(&c, 'o'), 0);
	assert_int_equal(tell(&c, 'i'), 3);
	assert_int_equal(tell(&b, 'x'), 0);
	assert_int_equal(tell(&d, 'x'), 0);
	assert_int_equal(tell(&c, 'i'), 4);
	assert_true(segment_exists(name));
	/* The last one takes the name with it, and the next one begins anew. */
	assert_int_equal(tell(&c, 'x'), 0);
	assert_false(segment_exists(name));
	assert_int_equal(tell(&d, 'o'), 0);
	assert_int_equal(tell(&d, 'i'), 0);
	assert_int_equal(tell(&d, 'x'), 0);
	leave(&b);
	leave(&c);
	leave(&d);
}

static void test_creator_closes(void **state)
{
	(void)state;
	creator_goes(false);
}

static void test_creator_is_killed(void **state)
{
	(void)state;
	creator_goes(true);
}

/* Three go in turn, each by closing or by SIGKILL.  Bit i of `kills`: the ith is killed. */
static void three_go(unsigned kills)
{
	struct actor a[3] = {enter(NULL), enter(NULL), enter(NULL)}, late = enter(NULL);
	struct vb_fabric *f = NULL;
	char said[512];

	assert_int_equal(tell(&a[2], 'o'), 0);
	assert_int_equal(tell(&a[1], 'o'), 0);
	assert_int_equal(tell(&a[0], 'a'), 0);
	assert_int_equal(tell(&a[0], 'i'), 0);
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(tell(&late, 'o'), 0);
		assert_int_equal(tell(&late, 'i'), i + 1);
		assert_int_equal(tell(&late, 'x'), 0);
		assert_true(segment_exists(name));
		if (kills & 1u << i) {
			kill_actor(&a[i]);
		} else {
			assert_int_equal(tell(&a[i], 'x'), 0);
			leave(&a[i]);
		}
	}
	leave(&late);
	/* Who was killed last could not remove it. */
	assert_int_equal(segment_exists(name), (kills & 4) != 0);
	assert_int_equal(open_said('a', &f, said, sizeof(said)), -ENOENT);
	if (kills & 4)
		assert_non_null(strstr(said, "left over"));
	assert_int_equal(open_said('o', &f, said, sizeof(said)), 0);
	assert_int_equal(strstr(said, "taking it over") != NULL, (kills & 4) != 0);
	assert_int_equal(*word_of(f), 0);
	vb_fabric_close(f);
	assert_false(segment_exists(name));
}

static void test_all_go(void **state)
{
	(void)state;
	for (unsigned kills = 0; kills < 8; kills++)
		three_go(kills);
}

/* What is there has to be what was asked for. */
static void test_other_sizes(void **state)
{
	struct vb_fabric_params p = params('c');
	struct vb_fabric *f, *g = NULL;

	(void)state;
	p.nodes = 2;
	assert_int_equal(vb_fabric_open(&p, &f), 0);
	p = params('o');
	p.nodes = 3;
	assert_int_equal(vb_fabric_open(&p, &g), -EPROTO);
	p.nodes = 2;
	p.node_bytes = 2 << 20;
	assert_int_equal(vb_fabric_open(&p, &g), -EPROTO);
	p.node_bytes = 1 << 20;
	p.endpoints = 17;
	assert_int_equal(vb_fabric_open(&p, &g), -EPROTO);
	assert_null(g);
	p.node_bytes = 1 << 19;
	p.endpoints = 3;
	assert_int_equal(vb_fabric_open(&p, &g), 0);
	assert_int_equal(g->node_bytes, 1 << 20);
	p.attach = true;
	assert_int_equal(vb_fabric_open(&p, &f), -EINVAL); /* one of the two */
	vb_fabric_close(f);
	assert_true(segment_exists(name));
	vb_fabric_close(g);
	p = params('o');
	p.fabric = "sim";
	assert_int_equal(vb_fabric_open(&p, &g), -EINVAL);
	p = params('o');
	p.name = NULL;
	assert_int_equal(vb_fabric_open(&p, &g), -EINVAL);
}

/* ---- at once ---- */

static void test_race(void **state)
{
	enum { RACERS = 4 };

	(void)state;
	for (unsigned round = 0; round < 20; round++) {
		struct actor a[RACERS];
		unsigned seen = 0;

		for (unsigned i = 0; i < RACERS; i++)
			a[i] = enter(NULL);
		for (unsigned i = 0; i < RACERS; i++)
			assert_int_equal(write(a[i].in, "oi", 2), 2);
		for (unsigned i = 0; i < RACERS; i++) {
			int64_t answer[2];

			assert_int_equal(read(a[i].out, &answer[0], 8), 8);
			assert_int_equal(read(a[i].out, &answer[1], 8), 8);
			assert_int_equal(answer[0], 0);
			assert_in_range(answer[1], 0, RACERS - 1);
			seen |= 1u << answer[1];
		}
		assert_int_equal(seen, (1u << RACERS) - 1); /* all of one word */
		for (unsigned i = 0; i < RACERS; i++)
			assert_int_equal(write(a[i].in, "x", 1), 1);
		for (unsigned i = 0; i < RACERS; i++)
			leave(&a[i]);
		/* Of those who go at once the last to look sees that he is the last. */
		assert_false(segment_exists(name));
	}
}

/* In memory that all have by other ways. */
struct ring {
	uint64_t inside; /* who is */
	uint64_t rounds, clashes;
};

static bool gone(uint64_t pid)
{
	return pid == 0 || kill((pid_t)pid, 0) != 0;
}

/* Takes `w` for itself from nobody or from the dead. */
static bool take_word(uint64_t *w)
{
	uint64_t was = __atomic_load_n(w, __ATOMIC_SEQ_CST);

	return gone(was) && __atomic_compare_exchange_n(w, &was, (uint64_t)getpid(), false,
							__ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* Who was killed inside may still be on its way out when its segment has gone, and is there until it
 * has been waited for; but it writes no more.  False: somebody who is inside does. */
static bool goes_in(struct ring *r)
{
	uint64_t there = __atomic_load_n(&r->inside, __ATOMIC_SEQ_CST);

	while (!take_word(&r->inside)) {
		if (__atomic_load_n(&r->inside, __ATOMIC_SEQ_CST) != there)
			return false;
		sched_yield();
	}
	return true;
}

static void body_visitor(struct vb_fabric *none, unsigned number, void *arg)
{
	struct ring *r = arg;

	(void)none;
	(void)number;
	vb_sched_forget();
	for (;;) {
		struct vb_fabric_params p = params('o');
		struct vb_fabric *f;
		uint64_t *word;

		if (vb_fabric_open(&p, &f) != 0) {
			usleep(1000);
			continue;
		}
		word = word_of(f);
		child_must(word != NULL);
		while (!take_word(word))
			sched_yield();
		/* The lock in the segment keeps all others out. */
		if (!goes_in(r))
			__atomic_fetch_add(&r->clashes, 1, __ATOMIC_SEQ_CST);
		sched_yield();
		__atomic_store_n(&r->inside, 0, __ATOMIC_SEQ_CST);
		__atomic_fetch_add(&r->rounds, 1, __ATOMIC_SEQ_CST);
		__atomic_store_n(word, 0, __ATOMIC_SEQ_CST);
		vb_fabric_close(f);
	}
}

/* Visitors come, lock, go, and are killed anywhere: never are there two segments of one name. */
static void test_coming_and_going(void **state)
{
	enum { VISITORS = 3 };
	struct ring *r =
		mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pid_t pids[VISITORS];
	struct vb_fabric *f;
	struct vb_rng rng;
	char said[512];

	(void)state;
	assert_true(r != MAP_FAILED);
	vb_rng_seed(&rng, 7, 7);
	for (unsigned i = 0; i < VISITORS; i++)
		pids[i] = start_child(NULL, i, body_visitor, r);
	for (unsigned i = 0; i < 60 || r->rounds < 100; i++) {
		unsigned at = i % VISITORS;

		usleep((useconds_t)vb_rng_below(&rng, 10000));
		kill_child(pids[at]);
		pids[at] = start_child(NULL, at, body_visitor, r);
	}
	for (unsigned i = 0; i < VISITORS; i++)
		kill_child(pids[i]);
	assert_int_equal(r->clashes, 0);
	assert_int_equal(open_said('o', &f, said, sizeof(said)), 0);
	vb_fabric_close(f);
	munmap(r, 4096);
}

/* ---- killed at every system call ---- */

#define CALLS_MAX 400

/* Runs the child to its nth system call (from 0, its beginning) and kills it there; false if it
 * ended before. */
static bool kill_at(pid_t pid, unsigned n)
{
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_true(WIFSTOPPED(status));
	for (unsigned i = 0; i <= n; i++) {
		assert_int_equal(ptrace(PTRACE_SYSCALL, pid, 0, 0), 0);
		assert_int_equal(waitpid(pid, &status, 0), pid);
		if (WIFEXITED(status)) {
			assert_int_equal(WEXITSTATUS(status), 0);
			return false;
		}
		assert_true(WIFSTOPPED(status));
	}
	kill_child(pid);
	return true;
}

static void body_traced(struct vb_fabric *none, unsigned number, void *how)
{
	struct vb_fabric_params p = params(*(char *)how);
	struct vb_fabric *f;
	uint64_t *word;

	(void)none;
	(void)number;
	vb_sched_forget();
	if (ptrace(PTRACE_TRACEME, 0, 0, 0) != 0)
		_exit(77);
	raise(SIGSTOP);
	child_must(vb_fabric_open(&p, &f) == 0);
	word = word_of(f);
	child_must(word != NULL);
	__atomic_fetch_add(word, 1000, __ATOMIC_SEQ_CST);
	vb_fabric_close(f);
}

static bool can_trace(void)
{
	char how = 'o';
	pid_t pid = start_child(NULL, 0, body_traced, &how);
	int status;

	assert_int_equal(waitpid(pid, &status, 0), pid);
	if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
		return false;
	kill_child(pid);
	return true;
}

/* Alone: the name serves at once, with a new segment or the old one gone. */
static unsigned kill_alone(char how)
{
	unsigned n = 0;

	for (bool killed = true; killed && n < CALLS_MAX; n++) {
		struct vb_fabric *f = NULL;
		char said[512];

		killed = kill_at(start_child(NULL, 0, body_traced, &how), n);
		assert_int_equal(open_said(n % 2 ? 'o' : 'c', &f, said, sizeof(said)), 0);
		assert_int_equal(*word_of(f), 0);
		vb_fabric_close(f);
		assert_false(segment_exists(name));
	}
	return n;
}

/* Beside one who stays: the segment stays, and is the only one. */
static unsigned kill_beside(char how)
{
	struct vb_fabric *f, *g = NULL;
	struct vb_fabric_params p = params('c');
	unsigned n = 0;
	uint64_t *word;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	word = word_of(f);
	for (bool killed = true; killed && n < CALLS_MAX; n++) {
		char said[512];

		*word = n;
		killed = kill_at(start_child(NULL, 0, body_traced, &how), n);
		assert_true(*word % 1000 == n % 1000);
		assert_true(segment_exists(name));
		assert_int_equal(open_said(n % 2 ? 'o' : 'a', &g, said, sizeof(said)), 0);
		assert_true(*word_of(g) == *word);
		vb_fabric_close(g);
		assert_int_equal(open_said('c', &g, said, sizeof(said)), -EBUSY);
	}
	vb_fabric_close(f);
	assert_false(segment_exists(name));
	return n;
}

static void test_killed_at_each_call(void **state)
{
	(void)state;
	if (!can_trace())
		skip();
	assert_in_range(kill_alone('c'), 10, CALLS_MAX - 1);
	assert_in_range(kill_alone('o'), 10, CALLS_MAX - 1);
	assert_in_range(kill_beside('a'), 10, CALLS_MAX - 1);
	assert_in_range(kill_beside('o'), 10, CALLS_MAX - 1);
}

/* ---- stopped, forked, without descriptors ---- */

/* Somebody looks at what was left, has its lock, and is stopped there. */
static void test_stopped_remover(void **state)
{
	struct actor a = enter(NULL);
	struct vb_fabric *f = NULL;
	char path[300], said[512];
	int fd;

	(void)state;
	assert_int_equal(tell(&a, 'c'), 0);
	kill_actor(&a);
	snprintf(path, sizeof(path), "/dev/shm/verbena.%s", name);
	fd = open(path, O_RDWR | O_CLOEXEC);
	assert_int_equal(flock(fd, LOCK_EX | LOCK_NB), 0);
	assert_int_equal(open_said('a', &f, said, sizeof(said)), -EBUSY);
	assert_non_null(strstr(said, "stopped"));
	assert_int_equal(open_said('o', &f, said, sizeof(said)), -EBUSY);
	assert_int_equal(open_said('c', &f, said, sizeof(said)), -EBUSY);
	assert_null(f);
	close(fd);
	assert_int_equal(open_said('o', &f, said, sizeof(said)), 0);
	vb_fabric_close(f);
}

/* A daemon closes all descriptors that it does not know, and with them the lock. */
static void test_descriptors_closed(void **state)
{
	struct actor a = enter(NULL), b = enter(NULL);
	struct vb_fabric *f = NULL;
	char said[512];
	int64_t open_before;

	(void)state;
	assert_int_equal(tell(&a, 'c'), 0);
	assert_int_equal(tell(&a, 'i'), 0);
	assert_int_equal(tell(&a, 'C'), 0);
	open_before = tell(&a, 'N');
	assert_int_equal(open_said('c', &f, said, sizeof(said)), -EBUSY);
	assert_true(says(said, a.pid));
	assert_int_equal(tell(&b, 'o'), 0);
	assert_int_equal(tell(&b, 'i'), 1);
	assert_int_equal(tell(&b, 'x'), 0);
	assert_true(segment_exists(name));
	assert_int_equal(open_said('a', &f, said, sizeof(said)), 0);
	vb_fabric_close(f);
	assert_true(segment_exists(name));
	assert_int_equal(tell(&a, 'i'), 2);
	assert_int_equal(tell(&a, 'x'), 0);
	assert_false(segment_exists(name));
	assert_int_equal(tell(&a, 'N'), open_before); /* what took our number is not ours */
	leave(&a);
	leave(&b);
}

static void await_end(pid_t pid)
{
	for (unsigned i = 0; kill(pid, 0) == 0 && i < 3000; i++)
		usleep(10000);
}

static void child_stays(bool told)
{
	struct actor a = enter(NULL);
	struct vb_fabric *f = NULL;
	char said[512];
	pid_t child;
	int err = -EBUSY;

	assert_int_equal(tell(&a, 'c'), 0);
	child = (pid_t)tell(&a, told ? 'f' : 'F');
	assert_true(child > 0);
	while (told && (open_said('c', &f, said, sizeof(said)) != -EBUSY || !says(said, child)))
		usleep(1000);
	assert_int_equal(tell(&a, 'x'), 0);
	assert_true(segment_exists(name));
	assert_int_equal(open_said('c', &f, said, sizeof(said)), -EBUSY);
	if (told) {
		assert_true(says(said, child));
		assert_false(says(said, a.pid));
	}
	assert_int_equal(kill(child, SIGKILL), 0);
	leave(&a); /* its parent goes: init takes the child */
	await_end(child);
	for (unsigned i = 0; err == -EBUSY && i < 3000; i++)
		err = open_said('c', &f, said, sizeof(said));
	assert_int_equal(err, 0);
	vb_fabric_close(f);
}

static void test_children_stay(void **state)
{
	(void)state;
	child_stays(true);
	child_stays(false);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_creator_closes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_creator_is_killed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_all_go, setup, teardown),
		cmocka_unit_test_setup_teardown(test_other_sizes, setup, teardown),
		cmocka_unit_test_setup_teardown(test_race, setup, teardown),
		cmocka_unit_test_setup_teardown(test_coming_and_going, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_at_each_call, setup, teardown),
		cmocka_unit_test_setup_teardown(test_stopped_remover, setup, teardown),
		cmocka_unit_test_setup_teardown(test_descriptors_closed, setup, teardown),
		cmocka_unit_test_setup_teardown(test_children_stay, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
