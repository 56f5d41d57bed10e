/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Death by SIGKILL at any instruction of a SEND, and of what changes the segment's tables.
 *
 * Twice: at random moments, hundreds of times, beside a sender that survives and whose messages
 * must all arrive; and one instruction after the other, by single-stepping the victim (where the
 * machine allows that), so that no window is missed.
 */
#include <sys/mman.h>
#include <sys/ptrace.h>

#include "fabric/shm/inner.h"
#include "procs.h"

/* STEPS_MAX, TABLE_STEPS: places tried; of longer paths every n-th instruction. */
#if defined(VB_TSAN) || defined(VB_ASAN)
#define KILLS       100
#define STEPS_MAX   40
#define TABLE_STEPS 8
#else
#define KILLS       300
#define STEPS_MAX   300
#define TABLE_STEPS 25
#endif

static struct vb_fabric *f;
static struct vb_ep *ep, *other;

static int setup(void **state)
{
	struct vb_fabric_params p = {.node_bytes = 1 << 20, .endpoints = 16, .options = "ring=32"};

	(void)state;
	return vb_fabric_open(&p, &f) != 0 || vb_ep_open(f, 0, &ep) != 0;
}

static int teardown(void **state)
{
	(void)state;
	vb_ep_close(other);
	other = NULL;
	vb_ep_close(ep);
	vb_fabric_close(f);
	return 0;
}

enum { TAG_VICTIM = 1, TAG_SURVIVOR };

static struct vb_msg message(uint16_t tag, uint32_t n)
{
	struct vb_msg m = {.tag = tag, .imm = n, .len = VB_MSG_DATA};

	memset(m.data, (int)(n & 0xff), VB_MSG_DATA);
	return m;
}

static void assert_whole(const struct vb_msg *m)
{
	assert_int_equal(m->len, VB_MSG_DATA);
	for (unsigned i = 0; i < VB_MSG_DATA; i++)
		assert_int_equal(m->data[i], m->imm & 0xff);
}

/* ---- at random moments ---- */

static void body_victim(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_ep *mine;

	(void)number;
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	for (uint32_t i = 0;; i++) {
		struct vb_msg m = message(TAG_VICTIM, i);

		(void)vb_send(mine, *(vb_peer *)arg, &m);
	}
}

static void body_survivor(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_ep *mine;

	(void)number;
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	for (uint32_t i = 0;; i++) {
		struct vb_msg m = message(TAG_SURVIVOR, i);

		child_must(send_all(mine, *(vb_peer *)arg, &m) == 0);
	}
}

/* Takes messages until `n` of the survivor's have come. */
static void take_survivors(uint32_t *next, unsigned n)
{
	struct vb_msg m;

	while (n > 0) {
		assert_int_equal(take(ep, &m), 0);
		assert_whole(&m);
		if (m.tag != TAG_SURVIVOR)
			continue;
		assert_int_equal(m.imm, (*next)++);
		n--;
	}
}

/* The system gives back the mutex of a process that died in it: qemu-user does not. */
static bool mutexes_come_back(void)
{
	pthread_mutex_t *m =
		mmap(NULL, sizeof(*m), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t a;
	bool back;
	pid_t pid;

	assert_ptr_not_equal(m, MAP_FAILED);
	pthread_mutexattr_init(&a);
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	assert_int_equal(pthread_mutex_init(m, &a), 0);
	pid = fork_child();
	if (pid == 0)
		_exit(pthread_mutex_lock(m));
	assert_int_equal(waitpid(pid, NULL, 0), pid);
	back = pthread_mutex_trylock(m) == EOWNERDEAD;
	if (back) /* it is ours, and known to be */
		assert_int_equal(pthread_mutex_consistent(m) | pthread_mutex_unlock(m), 0);
	munmap(m, sizeof(*m));
	return back;
}

static void test_random_kills(void **state)
{
	uint32_t next = 0;
	struct vb_rng rng;
	pid_t survivor;

	(void)state;
	if (!mutexes_come_back()) {
		print_message(
			"skipped: a mutex whose owner has died stays locked here (qemu-user)\n");
		skip();
	}
	survivor = start_child(f, 0, body_survivor, &ep->self);
	vb_rng_seed(&rng, 11, 11);
	for (unsigned i = 0; i < KILLS; i++) {
		pid_t victim = start_child(f, 0, body_victim, &ep->self);

		take_survivors(&next, 1 + (unsigned)vb_rng_below(&rng, 60));
		kill_child(victim);
		if (i % 2 == 0)
			vb_shm_mark_dead(f, victim);
		take_survivors(&next, 40); /* more than a ring: everything from before is out */
	}
	kill_child(survivor);
}

/* ---- one instruction after the other ---- */

static bool traced_stop(pid_t pid, int signal)
{
	int status;

	return waitpid(pid, &status, 0) == pid && WIFSTOPPED(status) && WSTOPSIG(status) == signal;
}

/* Starts a child that stops before and after what it is to do; NULL-like 0 if there is no tracing.
 */
static pid_t start_traced(child_body body, void *arg)
{
	pid_t pid = start_child(f, 0, body, arg);
	int status;

	if (waitpid(pid, &status, 0) == pid && WIFSTOPPED(status))
		return pid;
	return 0; /* it has ended: no tracing here */
}

/* Steps until the child stops itself again; the number of instructions, at most `max`. */
static unsigned step(pid_t pid, unsigned max)
{
	for (unsigned n = 0; n < max; n++) {
		if (ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) != 0 || !traced_stop(pid, SIGTRAP))
			return n;
	}
	return max;
}

static void stop_here(void)
{
	raise(SIGSTOP);
}

static void trace_me(void)
{
	if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
		_exit(0);
}

static void body_send_once(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_msg first = message(TAG_VICTIM, 0), second = message(TAG_VICTIM, 1);
	struct vb_ep *mine;

	(void)number;
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	child_must(vb_send_wait(mine, *(vb_peer *)arg, &first) == 0); /* warm: pages, bindings */
	trace_me();
	stop_here();
	(void)vb_send_wait(mine, *(vb_peer *)arg, &second);
	stop_here();
}

/* Sends itself something and takes it. */
static void body_receive_once(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_msg first = message(TAG_VICTIM, 0), m;
	struct vb_ep *mine;

	(void)number;
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	child_must(vb_send_wait(mine, *(vb_peer *)arg, &first) == 0);
	for (unsigned i = 0; i < 2; i++)
		child_must(vb_send_wait(mine, mine->self, &first) == 0);
	child_must(take(mine, &m) == 0);
	trace_me();
	stop_here();
	(void)vb_ep_recv(mine, &m);
	stop_here();
}

static void body_make_region(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_ep *mine;
	vb_addr a;
	bool fresh;

	(void)number;
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	vb_ep_close(mine);
	trace_me();
	stop_here();
	(void)vb_ep_open(fab, 0, &mine);
	(void)vb_region(fab, 0, arg, 64, &a, &fresh);
	stop_here();
}

/* How long the path is, and whether it can be walked at all. */
static unsigned length_of(child_body body, void *arg)
{
	pid_t pid = start_traced(body, arg);
	unsigned n;

	if (pid == 0)
		return 0;
	n = step(pid, 2000000);
	kill_child(pid);
	return n;
}

/* What comes is what the victim has sent, from its nth message on. */
static void assert_victims(const struct vb_msg *m, unsigned n)
{
	assert_whole(m);
	assert_int_equal(m->tag, TAG_VICTIM);
	assert_int_equal(m->imm, n);
}

static unsigned takes_of_victim(uint64_t ns)
{
	uint64_t until = vb_clock_ns() + ns;
	unsigned n = 0;
	struct vb_msg m;

	while (vb_clock_ns() < until)
		if (vb_ep_recv(ep, &m) == 0)
			assert_victims(&m, n++);
	return n;
}

static void test_every_instruction_of_send(void **state)
{
	unsigned length, came = 0;
	struct vb_msg m;

	(void)state;
	assert_int_equal(vb_ep_open(f, 0, &other), 0);
	length = length_of(body_send_once, &ep->self);
	while (vb_ep_recv(ep, &m) == 0)
		;
	for (unsigned at = 0, round = 0; at < length; at += 1 + length / STEPS_MAX, round++) {
		pid_t pid = start_traced(body_send_once, &ep->self);
		unsigned victims = 0;

		assert_true(pid > 0);
		(void)step(pid, at);
		kill_child(pid);
		/* Half of the times it is found to be half-way before the next one comes. */
		if (round % 2 == 0)
			victims = takes_of_victim(3000000);
		m = message(TAG_SURVIVOR, at);
		assert_int_equal(vb_send_wait(other, ep->self, &m), 0);
		for (;;) {
			assert_int_equal(take(ep, &m), 0);
			if (m.tag == TAG_SURVIVOR)
				break;
			assert_victims(&m, victims++);
		}
		assert_whole(&m);
		assert_int_equal(m.imm, at);
		assert_in_range(victims, 1, 2);
		came += victims == 2;
	}
	if (length == 0)
		skip();
	/* Killed early it did not come, killed late it did. */
	assert_true(came > 0 && came < length);
}

/* The endpoint whose place was that one's, opened again, or NULL: somebody is half-way in there. */
static struct vb_ep *open_again(vb_peer was)
{
	struct vb_ep *mine[16], *found = NULL;
	unsigned n = 0;
	char said[256];

	vb_log_capture_begin(said, sizeof(said));
	while (found == NULL && n < 16 && vb_ep_open(f, 0, &mine[n]) == 0) {
		if ((mine[n]->self ^ was) % 16 == 0)
			found = mine[n];
		else
			n++;
	}
	vb_log_capture_end();
	while (n > 0)
		vb_ep_close(mine[--n]);
	return found;
}

/* Every place of the ring is good. */
static void once_around(struct vb_ep *to)
{
	for (uint32_t i = 0; i < 33; i++) {
		struct vb_msg m = message(TAG_SURVIVOR, i);

		assert_int_equal(vb_send_wait(ep, to->self, &m), 0);
		assert_int_equal(take(to, &m), 0);
		assert_int_equal(m.tag, TAG_SURVIVOR);
		assert_int_equal(m.imm, i);
	}
}

/* Whoever is given an endpoint while a SEND to the one before it is under way hears nothing of it. */
static void test_reopened_at_every_instruction(void **state)
{
	unsigned length, again = 0;
	struct vb_msg m;
	vb_peer to;

	(void)state;
	/* A full ring would make the path a long one. */
	while (vb_ep_recv(ep, &m) == 0)
		;
	length = length_of(body_send_once, &ep->self);
	for (unsigned at = 0; at < length; at += 1 + length / STEPS_MAX) {
		struct vb_ep *next;
		bool under_way;
		pid_t pid;

		assert_int_equal(vb_ep_open(f, 0, &other), 0);
		to = other->self;
		pid = start_traced(body_send_once, &to);
		assert_true(pid > 0);
		/* The path may be shorter than the one that was measured. */
		under_way = step(pid, at) == at;
		vb_ep_close(other);
		other = NULL;
		other = next = open_again(to);
		if (under_way) {
			assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
			assert_true(traced_stop(pid, SIGSTOP));
		}
		if (next != NULL) {
			assert_int_equal(vb_ep_recv(next, &m), -EAGAIN);
			once_around(next);
		}
		again += next != NULL;
		kill_child(pid);
		vb_ep_close(other);
		other = NULL;
	}
	if (length == 0)
		skip();
	assert_true(again > 0);
}

/* Wherever a receiver was killed: whoever has its endpoint next gets what is sent to him. */
static void test_every_instruction_of_receive(void **state)
{
	unsigned length;
	struct vb_msg m;

	(void)state;
	length = length_of(body_receive_once, &ep->self);
	while (vb_ep_recv(ep, &m) == 0)
		;
	for (unsigned at = 0; at < length; at += 1 + length / STEPS_MAX) {
		pid_t pid = start_traced(body_receive_once, &ep->self);
		vb_peer was;

		assert_true(pid > 0);
		(void)step(pid, at);
		kill_child(pid);
		assert_int_equal(take(ep, &m), 0);
		was = m.from;
		other = open_again(was);
		assert_non_null(other);
		m = message(TAG_SURVIVOR, at);
		assert_int_equal(vb_send_wait(ep, other->self, &m), 0);
		assert_int_equal(take(other, &m), 0);
		assert_int_equal(m.tag, TAG_SURVIVOR);
		assert_int_equal(m.imm, at);
		vb_ep_close(other);
		other = NULL;
	}
	if (length == 0)
		skip();
}

static void test_every_instruction_of_tables(void **state)
{
	char name[32] = "walk";
	unsigned length = length_of(body_make_region, name);

	(void)state;
	for (unsigned at = 0, n = 0; at < length && n < TABLE_STEPS;
	     at += 1 + length / TABLE_STEPS, n++) {
		struct vb_ep *mine[15];
		vb_addr a, b;
		bool fresh;
		pid_t pid;

		snprintf(name, sizeof(name), "walk-%u", n);
		pid = start_traced(body_make_region, name);
		assert_true(pid > 0);
		(void)step(pid, at);
		kill_child(pid);
		/* Whatever it had locked or begun: regions and all endpoints are to be had. */
		assert_int_equal(vb_region(f, 0, name, 64, &a, &fresh), 0);
		assert_int_equal(vb_region(f, 0, name, 64, &b, &fresh), 0);
		assert_true(a == b && !fresh);
		for (unsigned i = 0; i < 15; i++)
			assert_int_equal(vb_ep_open(f, 0, &mine[i]), 0);
		for (unsigned i = 0; i < 15; i++)
			vb_ep_close(mine[i]);
	}
	if (length == 0)
		skip();
}

/* A receiver that dies asleep, awake or half-way through a message costs its sender nothing more.
 */
static void body_receiver(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_msg m = message(TAG_VICTIM, 0);
	struct vb_ep *mine;

	(void)number;
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	child_must(vb_send_wait(mine, *(vb_peer *)arg, &m) == 0);
	for (;;)
		(void)take(mine, &m);
}

static void test_killed_receivers(void **state)
{
	struct vb_rng rng;
	struct vb_msg m;

	(void)state;
	vb_rng_seed(&rng, 12, 12);
	for (unsigned i = 0; i < 60; i++) {
		pid_t pid = start_child(f, 0, body_receiver, &ep->self);
		unsigned n = (unsigned)vb_rng_below(&rng, 200);
		vb_peer peer;
		int err = 0;

		assert_int_equal(take(ep, &m), 0);
		peer = m.from;
		for (unsigned j = 0; j < n; j++)
			assert_int_equal(send_all(ep, peer, &m), 0);
		kill_child(pid);
		for (unsigned j = 0; err != -VB_EPEERGONE && j < 100; j++) {
			err = vb_send_wait(ep, peer, &m);
			assert_true(err == 0 || err == -VB_EPEERGONE);
		}
		assert_int_equal(err, -VB_EPEERGONE);
		assert_false(vb_peer_alive(f, peer));
	}
}

/* Opens one while somebody else looks on, who may have sent something meanwhile. */
static void body_open_once(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_ep *mine;
	struct vb_msg m;

	(void)number;
	(void)arg;
	(void)vb_process_self(); /* warm */
	trace_me();
	stop_here();
	child_must(vb_ep_open(fab, 0, &mine) == 0);
	stop_here();
	child_must(vb_ep_recv(mine, &m) == -EAGAIN);
}

static bool steps_once(pid_t pid)
{
	return ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL) == 0 && traced_stop(pid, SIGTRAP);
}

/*
 * The only endpoint that is left is a dead one's, of whom nobody has heard that.  Once the ring has been
 * drained for the next one nothing gets in any more that is meant for the dead: not before any of the
 * instructions that are left.
 */
static void test_sent_while_claimed(void **state)
{
	unsigned before = 0, late = 0;
	struct vb_ep *rest[16];
	struct vb_msg m;
	struct shm_endpoint *e;
	uint32_t slot, n = 0;
	shm_process was;
	vb_peer dead;
	pid_t pid;

	(void)state;
	pid = start_child(f, 0, body_receiver, &ep->self);
	assert_int_equal(take(ep, &m), 0);
	dead = m.from;
	while (n < 14)
		assert_int_equal(vb_ep_open(f, 0, &rest[n++]), 0);
	kill_child(pid);
	e = shm_endpoint_find(shm_of(f), dead, &slot);
	assert_non_null(e);
	was = e->owner;
	assert_int_equal(vb_send_wait(ep, dead, &m), 0);
	pid = start_traced(body_open_once, NULL);
	while (pid != 0 && steps_once(pid)) {
		if (__atomic_load_n(&e->owner, __ATOMIC_RELAXED) == was) {
			before++;
			continue;
		}
		late++;
		assert_int_equal(vb_send_wait(ep, dead, &m), -VB_EPEERGONE);
	}
	if (pid != 0) {
		assert_true(before > 0 && late > 0);
		assert_int_equal(ptrace(PTRACE_CONT, pid, NULL, NULL), 0);
		end_child(pid);
	}
	while (n > 0)
		vb_ep_close(rest[--n]);
	if (pid == 0)
		skip();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_random_kills, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_instruction_of_send, setup, teardown),
		cmocka_unit_test_setup_teardown(test_reopened_at_every_instruction, setup,
						teardown),
		cmocka_unit_test_setup_teardown(test_every_instruction_of_receive, setup, teardown),
		cmocka_unit_test_setup_teardown(test_every_instruction_of_tables, setup, teardown),
		cmocka_unit_test_setup_teardown(test_killed_receivers, setup, teardown),
		cmocka_unit_test_setup_teardown(test_sent_while_claimed, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
