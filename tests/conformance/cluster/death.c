/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Processes that die, leave or stop: who is told what, and what becomes of the calls that wait.
 *
 * The parent kills and stops when the processes have said (procs_mark) that they are where it wants
 * them; a killed process is waited for by its effects, never by time.
 */
#include "procs.h"

#define MEMBERS 3
#define SHORT   1000000000ull /* silence: short, for tests in which somebody is stopped */

enum { READY, SEEN, GO };

struct told {
	uint32_t ranks[8]; /* atomic: 0, 1 left, 2 died */
};

static void note(void *ctx, uint32_t rank, bool died)
{
	struct told *t = ctx;

	__atomic_add_fetch(&t->ranks[rank], died ? 2 : 1, __ATOMIC_SEQ_CST);
}

static uint32_t told_of(struct told *t, uint32_t rank)
{
	return __atomic_load_n(&t->ranks[rank], __ATOMIC_SEQ_CST);
}

/* ---- a member dies while nothing is under way ---- */

static void idle_death(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct told told = {0};
	struct vb_cluster_parts parts;

	vb_cluster_on_gone(c, 3, note, &told);
	procs_must(vb_cluster_barrier(c) == 0);
	procs_mark(w, READY);
	if (me == 1)
		pause();
	procs_until(told_of(&told, 1) != 0);
	procs_must(told_of(&told, 1) == 2);
	procs_must(!vb_cluster_alive(c, 1) && vb_cluster_alive(c, 2 - me));
	procs_must(vb_cluster_first_dead(c) == 1);
	/* A listener that comes later is told too. */
	struct told later = {0};
	vb_cluster_on_gone(c, 4, note, &later);
	procs_until(told_of(&later, 1) == 2);
	vb_cluster_on_gone(c, 4, NULL, NULL);
	/* What needs everybody fails with the name; what does not goes on. */
	char text[1024];
	vb_log_capture_begin(text, sizeof(text));
	procs_must(vb_cluster_barrier(c) == -VB_EPEERGONE);
	procs_must(strstr(text, "rank 1 (") != NULL && strstr(text, "died") != NULL);
	procs_must(vb_cluster_gather(c, "all", "x", 1, VB_CLUSTER_TO_ALL, false, 0, &parts) ==
		   -VB_EPEERGONE);
	vb_log_capture_end();
	procs_must(vb_cluster_gather(c, "some", "x", 1, VB_CLUSTER_TO_ALL, true, 0, &parts) == 0);
	procs_must(parts.n == MEMBERS && parts.data[1] == NULL && parts.bytes[1] == 0);
	procs_must(parts.bytes[0] == 1 && parts.bytes[2] == 1);
	vb_cluster_parts_free(&parts);
	vb_cluster_on_gone(c, 3, NULL, NULL);
	vb_cluster_close(c);
}

static void test_idle_death(void **state)
{
	struct procs w = {.params.hosts = MEMBERS};

	procs_begin(&w);
	for (unsigned i = 0; i < MEMBERS; i++)
		procs_start(&w, i, idle_death);
	assert_true(procs_reached(&w, READY, MEMBERS));
	procs_kill(&w, 1);
	procs_join(&w, 0);
	procs_said(&w, 0, "rank 1 (");
	procs_said(&w, 0, "is dead: its connection ended without a goodbye");
	procs_end(&w);
}

/* ---- a member dies while the others wait for it ---- */

static void waited_for(struct procs *w, unsigned me, bool partial)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	char text[1024] = "";
	int err;

	procs_must(vb_cluster_barrier(c) == 0);
	procs_mark(w, READY);
	if (me == 2)
		pause();
	vb_log_capture_begin(text, sizeof(text));
	err = vb_cluster_gather(c, "wait", &me, sizeof(me), VB_CLUSTER_TO_ALL, partial, 0, &parts);
	vb_log_capture_end();
	if (partial) {
		procs_must(err == 0 && parts.data[2] == NULL && *(unsigned *)parts.data[1] == 1);
		vb_cluster_parts_free(&parts);
	} else {
		procs_must(err == -VB_EPEERGONE && strstr(text, "rank 2 (") != NULL);
	}
	vb_cluster_close(c);
}

static void waited_for_all(struct procs *w, unsigned me)
{
	waited_for(w, me, false);
}

static void waited_for_some(struct procs *w, unsigned me)
{
	waited_for(w, me, true);
}

static void test_death_in_gather(void **state)
{
	procs_body bodies[] = {waited_for_all, waited_for_some};

	for (unsigned b = 0; b < 2; b++) {
		struct procs w = {.params.hosts = MEMBERS};

		procs_begin(&w);
		for (unsigned i = 0; i < MEMBERS; i++)
			procs_start(&w, i, bodies[b]);
		assert_true(procs_reached(&w, READY, MEMBERS));
		usleep(20000); /* the others may be in the gather already, or not */
		procs_kill(&w, 2);
		procs_end(&w);
	}
}

/* It dies with a large part half-way out: the root is stopped meanwhile, and 64 MiB do not fit into what
 * the kernel keeps for it. */
static void half_way(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	void *mine = calloc(1, VB_CLUSTER_PART_MAX);
	int err;

	procs_must(mine != NULL);
	procs_must(vb_cluster_barrier(c) == 0);
	procs_mark(w, READY);
	procs_must(procs_reached(w, GO, 1));
	procs_mark(w, SEEN);
	err = vb_cluster_gather(c, "large", mine, me == 1 ? VB_CLUSTER_PART_MAX : 1,
				VB_CLUSTER_TO_ROOT, false, 0, &parts);
	/* Rank 2 has given its byte and may know no more. */
	procs_must(err == -VB_EPEERGONE || (err == 0 && me == 2));
	if (err == 0)
		vb_cluster_parts_free(&parts);
	procs_until(!vb_cluster_alive(c, 1));
	procs_must(vb_cluster_gather(c, "rest", "", 0, VB_CLUSTER_TO_ALL, true, 0, &parts) == 0);
	vb_cluster_parts_free(&parts);
	free(mine);
	vb_cluster_close(c);
}

static void test_death_half_way(void **state)
{
	struct procs w = {.params.hosts = MEMBERS};

	procs_begin(&w);
	for (unsigned i = 0; i < MEMBERS; i++)
		procs_start(&w, i, half_way);
	assert_true(procs_reached(&w, READY, MEMBERS));
	procs_signal(&w, 0, SIGSTOP);
	procs_mark(&w, GO);
	assert_true(procs_reached(&w, SEEN, MEMBERS - 1));
	usleep(20000); /* how much of it is out by now decides nothing */
	procs_kill(&w, 1);
	procs_signal(&w, 0, SIGCONT);
	procs_end(&w);
}

/* ---- the root dies ---- */

static void root_dies(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct told told = {0};
	char text[1024];

	vb_cluster_on_gone(c, 0, note, &told);
	procs_must(vb_cluster_barrier(c) == 0);
	procs_mark(w, READY);
	if (me == 0)
		pause();
	vb_log_capture_begin(text, sizeof(text));
	procs_must(vb_cluster_barrier(c) == -VB_EPEERGONE);
	procs_must(strstr(text, "rank 0 (") != NULL);
	procs_must(vb_cluster_barrier(c) == -VB_EPEERGONE); /* and so do all later ones, at once */
	vb_log_capture_end();
	procs_until(told_of(&told, 0) == 2);
	procs_must(!vb_cluster_alive(c, 0) && vb_cluster_first_dead(c) == 0);
	vb_cluster_close(c);
}

static void test_root_dies(void **state)
{
	struct procs w = {.params.hosts = MEMBERS};

	procs_begin(&w);
	for (unsigned i = 0; i < MEMBERS; i++)
		procs_start(&w, i, root_dies);
	assert_true(procs_reached(&w, READY, MEMBERS));
	usleep(20000);
	procs_kill(&w, 0);
	procs_end(&w);
}

/* ---- leaving is not dying ---- */

static void leaves(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct told told = {0};
	struct vb_cluster_parts parts;
	char text[1024];

	vb_cluster_on_gone(c, 7, note, &told);
	procs_must(vb_cluster_barrier(c) == 0);
	if (me == 1) {
		vb_cluster_close(c);
		return;
	}
	procs_until(told_of(&told, 1) != 0);
	procs_must(told_of(&told, 1) == 1 && !vb_cluster_alive(c, 1));
	procs_must(vb_cluster_first_dead(c) == -1);
	/* A barrier is for those who are there; a gather of all parts is not. */
	procs_must(vb_cluster_barrier(c) == 0);
	vb_log_capture_begin(text, sizeof(text));
	procs_must(vb_cluster_gather(c, "all", "x", 1, VB_CLUSTER_TO_ALL, false, 0, &parts) ==
		   -VB_EPEERGONE);
	vb_log_capture_end();
	procs_must(strstr(text, "left") != NULL);
	procs_mark(w, READY);
	procs_must(procs_reached(w, READY, MEMBERS - 1));
	/* The root leaves; the other one's calls end. */
	if (me == 2) {
		procs_until(told_of(&told, 0) != 0);
		procs_must(told_of(&told, 0) == 1);
		procs_must(vb_cluster_barrier(c) == -VB_EPEERGONE);
	}
	vb_cluster_on_gone(c, 7, NULL, NULL);
	vb_cluster_close(c);
}

static void test_leaves(void **state)
{
	struct procs w = {0};

	procs_run(&w, MEMBERS, leaves);
}

/* The root goes as soon as it has its own result: the others still get theirs. */
static void root_hurries(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	size_t n = 5000000;
	uint8_t *mine = malloc(n);

	procs_must(mine != NULL);
	memset(mine, (int)me, n);
	procs_must(vb_cluster_gather(c, "last", mine, n, VB_CLUSTER_TO_ALL, false, 0, &parts) == 0);
	for (unsigned r = 0; r < MEMBERS; r++)
		procs_must(parts.bytes[r] == n && ((uint8_t *)parts.data[r])[n - 1] == r);
	vb_cluster_parts_free(&parts);
	free(mine);
	vb_cluster_close(c);
}

static void test_root_hurries(void **state)
{
	struct procs w = {0};

	procs_run(&w, MEMBERS, root_hurries);
}

/* ---- stopped ---- */

static void stopped(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	char text[1024];

	procs_must(vb_cluster_barrier(c) == 0);
	procs_mark(w, READY);
	if (me == 2) {
		procs_must(procs_reached(w, GO, 1)); /* it is stopped here */
	} else {
		procs_until(vb_cluster_suspect(c, 2));
		procs_must(vb_cluster_alive(c, 2) && vb_cluster_first_dead(c) == -1);
		procs_must(!vb_cluster_suspect(c, 1 - me));
		vb_log_capture_begin(text, sizeof(text));
		procs_must(vb_cluster_gather(c, "all", "", 0, VB_CLUSTER_TO_ALL, false, 0,
					     &parts) == -ETIMEDOUT);
		vb_log_capture_end();
		procs_must(strstr(text, "rank 2 (") != NULL);
		procs_must(vb_cluster_gather(c, "some", "x", 1, VB_CLUSTER_TO_ALL, true, 0,
					     &parts) == 0);
		procs_must(parts.data[2] == NULL && parts.bytes[1] == 1);
		vb_cluster_parts_free(&parts);
		procs_mark(w, SEEN);
		procs_until(!vb_cluster_suspect(c, 2));
	}
	if (me == 2) {
		/* Its steps of the same count are over; it is told so, and has caught up. */
		vb_log_capture_begin(text, sizeof(text));
		procs_must(vb_cluster_gather(c, "all", "", 0, VB_CLUSTER_TO_ALL, false, 0,
					     &parts) == -ETIMEDOUT);
		procs_must(vb_cluster_gather(c, "some", "y", 1, VB_CLUSTER_TO_ALL, true, 0,
					     &parts) == -ETIMEDOUT);
		vb_log_capture_end();
		procs_must(strstr(text, "was over before") != NULL);
	}
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_stopped(void **state)
{
	struct procs w = {.params = {.hosts = MEMBERS, .silence_ns = SHORT}};

	procs_begin(&w);
	for (unsigned i = 0; i < MEMBERS; i++)
		procs_start(&w, i, stopped);
	assert_true(procs_reached(&w, READY, MEMBERS));
	assert_int_equal(kill(w.pids[2], SIGSTOP), 0);
	assert_true(procs_reached(&w, SEEN, MEMBERS - 1));
	procs_mark(&w, GO);
	assert_int_equal(kill(w.pids[2], SIGCONT), 0);
	procs_end(&w);
}

static void root_stopped(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);

	procs_must(vb_cluster_barrier(c) == 0);
	procs_mark(w, READY);
	if (me != 0) {
		procs_must(vb_cluster_barrier(c) == -ETIMEDOUT);
		procs_must(vb_cluster_suspect(c, 0) && vb_cluster_alive(c, 0));
		procs_mark(w, SEEN);
		procs_until(!vb_cluster_suspect(c, 0));
	} else {
		procs_must(procs_reached(w, GO, 1));
		/* The others had come to this step before they gave it up. */
		(void)vb_cluster_barrier(c);
	}
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_root_stopped(void **state)
{
	struct procs w = {.params = {.hosts = MEMBERS, .silence_ns = SHORT}};

	procs_begin(&w);
	for (unsigned i = 0; i < MEMBERS; i++)
		procs_start(&w, i, root_stopped);
	assert_true(procs_reached(&w, READY, MEMBERS));
	assert_int_equal(kill(w.pids[0], SIGSTOP), 0);
	assert_true(procs_reached(&w, SEEN, MEMBERS - 1));
	procs_mark(&w, GO);
	assert_int_equal(kill(w.pids[0], SIGCONT), 0);
	procs_end(&w);
}

/* ---- late ---- */

/* Somebody lives and does not come: the call ends at its time, with the name. */
static void too_late(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	uint64_t begin = vb_clock_gettime_ns();
	char text[1024];

	procs_must(vb_cluster_barrier(c) == 0);
	if (me == 1) {
		procs_must(procs_reached(w, SEEN, MEMBERS - 1));
	} else {
		vb_log_capture_begin(text, sizeof(text));
		procs_must(vb_cluster_gather(c, "late", "", 0, VB_CLUSTER_TO_ALL, false, SHORT,
					     &parts) == -ETIMEDOUT);
		vb_log_capture_end();
		procs_must(vb_clock_gettime_ns() - begin >= SHORT);
		procs_must(strstr(text, "'late'") != NULL && strstr(text, "rank 1 (") != NULL);
		procs_mark(w, SEEN);
	}
	if (me == 1)
		procs_must(vb_cluster_gather(c, "late", "", 0, VB_CLUSTER_TO_ALL, false, SHORT,
					     &parts) == -ETIMEDOUT);
	/* With `partial` it is left out. */
	if (me != 1) {
		procs_must(vb_cluster_gather(c, "some", "x", 1, VB_CLUSTER_TO_ALL, true, 2 * SHORT,
					     &parts) == 0);
		procs_must(parts.data[1] == NULL && parts.bytes[0] == 1);
		vb_cluster_parts_free(&parts);
		procs_mark(w, GO);
	} else {
		procs_must(procs_reached(w, GO, MEMBERS - 1));
		procs_must(vb_cluster_gather(c, "some", "x", 1, VB_CLUSTER_TO_ALL, true, SHORT,
					     &parts) == -ETIMEDOUT);
	}
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_too_late(void **state)
{
	struct procs w = {0};

	procs_run(&w, MEMBERS, too_late);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idle_death),     cmocka_unit_test(test_death_in_gather),
		cmocka_unit_test(test_death_half_way), cmocka_unit_test(test_root_dies),
		cmocka_unit_test(test_leaves),         cmocka_unit_test(test_root_hurries),
		cmocka_unit_test(test_stopped),        cmocka_unit_test(test_root_stopped),
		cmocka_unit_test(test_too_late),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
