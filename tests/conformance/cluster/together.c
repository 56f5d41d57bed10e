/* SPDX-License-Identifier: Apache-2.0 */
/* Processes that find each other: ranks, names, gathers, barriers, and leaving. */
#include "procs.h"

static void fill(uint8_t *data, size_t n, unsigned rank, unsigned round)
{
	for (size_t i = 0; i < n; i++)
		data[i] = (uint8_t)(i * 7 + rank * 31 + round);
}

static size_t size_of(unsigned rank, unsigned round)
{
	static const size_t sizes[] = {0, 1, 13, 65535, 65536, 65537, 3 * 65536 + 1, 3000001};

	return sizes[(rank + round) % (sizeof(sizes) / sizeof(sizes[0]))];
}

static void gather_once(struct vb_cluster *c, unsigned round, enum vb_cluster_to to)
{
	uint32_t me = vb_cluster_rank(c), n = vb_cluster_hosts(c);
	struct vb_cluster_parts parts;
	uint8_t *mine = malloc(size_of(me, round) + 1), *theirs = malloc(3000001);
	char what[32];

	procs_must(mine != NULL && theirs != NULL);
	fill(mine, size_of(me, round), me, round);
	snprintf(what, sizeof(what), "round %u", round);
	procs_must(vb_cluster_gather(c, what, mine, size_of(me, round), to, false, 0, &parts) == 0);
	if (to == VB_CLUSTER_TO_ROOT && me != 0) {
		procs_must(parts.n == 0);
	} else {
		procs_must(parts.n == n);
		for (uint32_t r = 0; r < n; r++) {
			procs_must(parts.data[r] != NULL && parts.bytes[r] == size_of(r, round));
			fill(theirs, parts.bytes[r], r, round);
			procs_must(memcmp(theirs, parts.data[r], parts.bytes[r]) == 0);
		}
	}
	vb_cluster_parts_free(&parts);
	procs_must(parts.n == 0);
	free(mine);
	free(theirs);
}

static void gathers(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	char name[64];

	for (uint32_t r = 0; r < vb_cluster_hosts(c); r++) {
		snprintf(name, sizeof(name), "rank %u (", r);
		procs_must(strncmp(vb_cluster_name(c, r), name, strlen(name)) == 0);
		procs_must(vb_cluster_alive(c, r) && !vb_cluster_suspect(c, r));
	}
	snprintf(name, sizeof(name), ", pid %d)", (int)getpid());
	procs_must(strstr(vb_cluster_name(c, me), name) != NULL);
	procs_must(vb_cluster_local_hosts(c) == vb_cluster_hosts(c));
	procs_must(strcmp(vb_cluster_bind(c), "127.0.0.1") == 0);
	procs_must(me != 0 || vb_cluster_port(c) == w->port);
	for (unsigned round = 0; round < 9; round++)
		gather_once(c, round, round % 3 == 2 ? VB_CLUSTER_TO_ROOT : VB_CLUSTER_TO_ALL);
	procs_must(vb_cluster_first_dead(c) == -1);
	vb_cluster_close(c);
}

static void test_gathers(void **state)
{
	for (unsigned n = 1; n <= 8; n = n < 3 ? n + 1 : n + 5) {
		struct procs w = {0};

		procs_run(&w, n, gathers);
	}
}

/* Nobody is past barrier k while somebody has not come to it. */
static void barriers(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	uint32_t n = vb_cluster_hosts(c);

	for (unsigned k = 0; k < 20; k++) {
		if ((me + k) % n == 0)
			usleep(2000);
		procs_mark(w, k);
		procs_must(vb_cluster_barrier(c) == 0);
		procs_must(__atomic_load_n(&w->shared->marks[k], __ATOMIC_SEQ_CST) == n);
	}
	vb_cluster_close(c);
}

static void test_barriers(void **state)
{
	struct procs w = {0};

	procs_run(&w, 5, barriers);
}

/* All clocks are one, the secret is one, and a member's own ones are not of its making. */
static void clocks(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct {
		struct vb_clock clock;
		uint8_t secret[32];
	} mine = {.clock = vb_clock}, *root;
	struct vb_cluster_parts parts;
	uint64_t error = 1;
	int64_t offset = 1;

	vb_cluster_clock(c, &offset, &error);
	procs_must(offset == 0 && error == 0);
	memcpy(mine.secret, vb_cluster_secret(c), 32);
	procs_must(vb_cluster_gather(c, "clock", &mine, sizeof(mine), VB_CLUSTER_TO_ALL, false, 0,
				     &parts) == 0);
	root = parts.data[0];
	procs_must(memcmp(root, &mine, sizeof(mine)) == 0);
	for (unsigned i = 0, zero = 0; i < 32; i++) {
		zero += mine.secret[i] == 0;
		procs_must(zero < 16);
	}
	vb_cluster_parts_free(&parts);
	vb_cluster_close(c);
}

static void test_clocks(void **state)
{
	struct procs w = {0};

	procs_run(&w, 3, clocks);
}

/* Who has something open keeps its clock, and knows the difference to the root's. */
static void own_clock(struct procs *w, unsigned me)
{
	struct vb_clock before;
	struct vb_cluster *c;
	uint64_t error, wanted;
	int64_t offset;

	vb_clock_init();
	if (me == 2) {
		vb_clock.ns_base += 320000000;
		procs_must(vb_clock_hold(NULL) == 0);
	}
	before = vb_clock;
	c = procs_open(w, me);
	vb_cluster_clock(c, &offset, &error);
	procs_must(me == 1 || memcmp(&before, &vb_clock, sizeof(before)) == 0);
	/* Without a counter all go by the kernel's clock, whatever we wrote. */
	wanted = me == 2 && vb_clock.use_tsc ? 320000000 : 0;
	procs_must(wanted == 0 ? offset == 0 && error == 0 : error > 0);
	procs_must((uint64_t)-offset <= wanted + error && (uint64_t)-offset + error >= wanted);
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
	if (me == 2)
		vb_clock_let();
}

static void test_own_clock(void **state)
{
	struct procs w = {0};

	procs_run(&w, 3, own_clock);
}

/* A root that leaves at once: who is still asking it for the time is told, and does not look for it. */
static void asks_in_vain(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = procs_params(w, me);
	uint64_t began = vb_clock_gettime_ns();
	struct vb_cluster *c = NULL;
	int err;

	vb_clock_init();
	if (me == 1) {
		vb_clock.ns_base += 320000000;
		procs_must(vb_clock_hold(NULL) == 0);
	}
	err = procs_open_as(w, me, &p, &c);
	procs_must(err == 0 || (me == 1 && err == -VB_EPEERGONE));
	procs_must(vb_clock_gettime_ns() - began < PROCS_NS / 2);
	vb_cluster_close(c);
}

static void test_asks_in_vain(void **state)
{
	for (unsigned i = 0; i < 10; i++) {
		struct procs w = {0};

		procs_run(&w, 2, asks_in_vain);
	}
}

/* The same call in every process: whoever binds first is the root; the others get ranks as they
 * come. */
static void by_itself(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = {.hosts = 4, .meet = w->meet, .timeout_ns = PROCS_NS};
	struct vb_cluster *c = NULL;
	struct vb_cluster_parts parts;
	uint32_t rank, seen = 0;

	close(w->listening);
	procs_mark(w, 0);
	procs_must(procs_reached(w, 0, 4)); /* the parent's socket is closed in all of them */
	procs_must(vb_cluster_open(&p, &c) == 0);
	rank = vb_cluster_rank(c);
	procs_must(vb_cluster_gather(c, "ranks", &rank, sizeof(rank), VB_CLUSTER_TO_ALL, false, 0,
				     &parts) == 0);
	for (uint32_t r = 0; r < 4; r++)
		seen |= 1u << *(uint32_t *)parts.data[r];
	procs_must(seen == 15);
	vb_cluster_parts_free(&parts);
	vb_cluster_close(c);
}

static void test_by_itself(void **state)
{
	struct procs w = {0};

	procs_begin(&w);
	close(w.listening);
	w.listening = open("/dev/null", 0);
	for (unsigned i = 0; i < 4; i++)
		procs_start(&w, i, by_itself);
	procs_end(&w);
}

/* Members that come long before the root wait for it; and a wanted rank is given whoever comes
 * first. */
static void root_late(struct procs *w, unsigned me)
{
	struct vb_cluster_params p = {.hosts = 3, .meet = w->meet, .timeout_ns = PROCS_NS};
	struct vb_cluster *c = NULL;

	close(w->listening);
	p.role = me == 0 ? VB_CLUSTER_ROOT : VB_CLUSTER_MEMBER;
	p.rank = me == 1 ? VB_CLUSTER_ANY_RANK : me == 2 ? 1 : 0;
	if (me == 0) {
		procs_must(procs_reached(w, 0, 2));
		usleep(100000);
	}
	procs_mark(w, 0);
	procs_must(vb_cluster_open(&p, &c) == 0);
	procs_must(vb_cluster_rank(c) == (me == 1 ? 2u : me == 2 ? 1u : 0u));
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_root_late(void **state)
{
	struct procs w = {0};

	procs_begin(&w);
	close(w.listening);
	w.listening = open("/dev/null", 0);
	for (unsigned i = 0; i < 3; i++)
		procs_start(&w, i, root_late);
	procs_end(&w);
}

/* While one task waits in a barrier, the thread's others run: the other process comes only when
 * they have done their work. */
struct busy {
	struct procs *w;
	unsigned n;
};

static void busy_task(void *arg)
{
	struct busy *b = arg;

	while (++b->n < 1000)
		vb_task_yield();
	procs_mark(b->w, 0);
}

static void tasks_run(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct busy b = {.w = w};
	struct vb_task *task;

	if (me == 1)
		procs_must(procs_reached(w, 0, 1));
	else
		procs_must(vb_task_spawn(vb_sched_self(), busy_task, &b, NULL, &task) == 0);
	procs_must(vb_cluster_barrier(c) == 0);
	procs_must(me == 1 || b.n == 1000);
	vb_cluster_close(c);
}

static void test_tasks_run(void **state)
{
	struct procs w = {0};

	procs_run(&w, 2, tasks_run);
}

/* Who is at another step is named, at all processes. */
static void other_step(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	char text[1024];

	vb_log_capture_begin(text, sizeof(text));
	procs_must(vb_cluster_gather(c, me == 2 ? "dinner" : "lunch", "", 0, VB_CLUSTER_TO_ALL,
				     false, 0, &parts) == -EPROTO);
	vb_log_capture_end();
	procs_must(strstr(text, "'dinner'") != NULL && strstr(text, "'lunch'") != NULL);
	procs_must(strstr(text, "rank 2 (") != NULL);
	/* And the next step is everybody's again. */
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_other_step(void **state)
{
	struct procs w = {0};

	procs_run(&w, 3, other_step);
}

/* A part that is too big fails for all, with the name, and the count of steps stays right. */
static void too_big(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	size_t n = VB_CLUSTER_PART_MAX + 1;
	void *big = mmap(NULL, n, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	procs_must(big != MAP_FAILED);
	procs_must(vb_cluster_gather(c, "big", big, me == 1 ? n : 5, VB_CLUSTER_TO_ALL, false, 0,
				     &parts) == -E2BIG);
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_too_big(void **state)
{
	struct procs w = {0};

	procs_run(&w, 2, too_big);
}

/* The largest parts there are, while pings go on: with a silence that is shorter than their way,
 * nobody becomes suspect. */
static void largest(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	struct vb_cluster_parts parts;
	uint8_t *mine = malloc(VB_CLUSTER_PART_MAX);

	procs_must(mine != NULL);
	memset(mine, (int)me + 1, VB_CLUSTER_PART_MAX);
	procs_must(vb_cluster_gather(c, "largest", mine, VB_CLUSTER_PART_MAX, VB_CLUSTER_TO_ALL,
				     false, 0, &parts) == 0);
	for (unsigned r = 0; r < 2; r++) {
		procs_must(parts.bytes[r] == VB_CLUSTER_PART_MAX);
		for (size_t i = 0; i < VB_CLUSTER_PART_MAX; i += 4096)
			procs_must(((uint8_t *)parts.data[r])[i] == r + 1);
	}
	vb_cluster_parts_free(&parts);
	free(mine);
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_largest(void **state)
{
	struct procs w = {0};

	procs_run(&w, 2, largest);
}

/* The root sees everybody's notice, the members the root's; what counts is the last one. */
static void notices(struct procs *w, unsigned me)
{
	struct vb_cluster *c = procs_open(w, me);
	uint32_t notice[VB_CLUSTER_NOTICE / 4] = {0}, seen[VB_CLUSTER_NOTICE / 4];

	if (me != 0) {
		for (uint32_t i = 1; i <= 1000; i++) {
			notice[0] = i;
			notice[7] = me;
			vb_cluster_post(c, notice);
		}
		while (!vb_cluster_read(c, 0, seen) || seen[0] != 77)
			vb_task_yield();
		procs_must(!vb_cluster_read(c, 3 - me, seen) && seen[0] == 0);
	} else {
		for (uint32_t r = 1; r < 3; r++) {
			while (!vb_cluster_read(c, r, seen) || seen[0] != 1000)
				vb_task_yield();
			procs_must(seen[7] == r);
		}
		notice[0] = 77;
		vb_cluster_post(c, notice);
	}
	procs_must(vb_cluster_barrier(c) == 0);
	vb_cluster_close(c);
}

static void test_notices(void **state)
{
	struct procs w = {0};

	procs_run(&w, 3, notices);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gathers),      cmocka_unit_test(test_barriers),
		cmocka_unit_test(test_clocks),       cmocka_unit_test(test_own_clock),
		cmocka_unit_test(test_asks_in_vain), cmocka_unit_test(test_by_itself),
		cmocka_unit_test(test_root_late),    cmocka_unit_test(test_tasks_run),
		cmocka_unit_test(test_other_step),   cmocka_unit_test(test_too_big),
		cmocka_unit_test(test_largest),      cmocka_unit_test(test_notices),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
