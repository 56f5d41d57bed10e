/* SPDX-License-Identifier: Apache-2.0 */
/* Boards and the wait-for graph: cycles that are made up, and one of real clients on shared
 * memory. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <stdlib.h>

#include "check/lock/waits.h"
#include "lab/watch/dump.h"
#include "task/task.h"

#define CLIENTS 8

/* ---- made up ---- */

struct scene {
	struct vb_board_view view;
	struct vb_board_slot slot[CLIENTS];
	uint16_t node[CLIENTS];
	bool alive[CLIENTS];
};

static void scene_init(struct scene *s)
{
	*s = (struct scene){0};
	s->view = (struct vb_board_view){
		.now_ns = 1000, .n = CLIENTS, .node = s->node, .alive = s->alive, .slot = s->slot};
	snprintf(s->view.head.protocol, sizeof(s->view.head.protocol), "mcs");
	for (unsigned i = 0; i < CLIENTS; i++) {
		s->slot[i].peer = i + 1;
		s->slot[i].index = i;
		s->alive[i] = true;
	}
}

static void holds(struct scene *s, unsigned i, unsigned k, uint64_t lock, enum vb_mode mode)
{
	s->slot[i].held[k] = (struct vb_board_lock){lock + 1, (uint64_t)mode, 10};
}

static void waits(struct scene *s, unsigned i, uint64_t lock, enum vb_mode mode)
{
	s->slot[i].wait = (struct vb_board_lock){lock + 1, (uint64_t)mode, 20};
}

static unsigned cycles_of(const struct scene *before, const struct scene *s)
{
	struct vb_waits w;
	unsigned n;

	assert_int_equal(vb_waits_find(&before->view, &s->view, &w), 0);
	n = w.n_cycles;
	vb_waits_free(&w);
	return n;
}

static void test_two(void **state)
{
	struct scene s;
	struct vb_waits w;

	scene_init(&s);
	holds(&s, 2, 0, 7, VB_EXCLUSIVE);
	holds(&s, 5, 3, 9, VB_EXCLUSIVE);
	waits(&s, 2, 9, VB_EXCLUSIVE);
	assert_int_equal(cycles_of(&s, &s), 0);
	waits(&s, 5, 7, VB_SHARED);
	assert_int_equal(vb_waits_find(&s.view, &s.view, &w), 0);
	assert_int_equal(w.n_cycles, 1);
	assert_int_equal(w.cycle[0], 2);
	assert_int_equal(w.next[2], 5);
	assert_int_equal(w.next[5], 2);
	assert_int_equal(w.n_holds, 2);
	assert_int_equal(w.n_waits, 2);
	vb_waits_free(&w);
	/* One of the two has gone: nobody waits for what it waits for. */
	s.alive[5] = false;
	assert_int_equal(cycles_of(&s, &s), 0);
}

static void test_modes(void **state)
{
	struct scene s;

	scene_init(&s);
	holds(&s, 0, 0, 1, VB_SHARED);
	holds(&s, 1, 0, 2, VB_INTENT_EXCLUSIVE);
	waits(&s, 0, 2, VB_INTENT_SHARED);
	waits(&s, 1, 1, VB_SHARED);
	assert_int_equal(cycles_of(&s, &s), 0);
	waits(&s, 0, 2, VB_SHARED);
	waits(&s, 1, 1, VB_INTENT_EXCLUSIVE);
	assert_int_equal(cycles_of(&s, &s), 1);
}

/* Two readers that both want to write: each waits for the other, and neither for itself. */
static void test_conversions(void **state)
{
	struct scene s;

	scene_init(&s);
	holds(&s, 0, 0, 1, VB_SHARED);
	waits(&s, 0, 1, VB_EXCLUSIVE);
	assert_int_equal(cycles_of(&s, &s), 0);
	holds(&s, 1, 0, 1, VB_SHARED);
	assert_int_equal(cycles_of(&s, &s), 0);
	waits(&s, 1, 1, VB_EXCLUSIVE);
	assert_int_equal(cycles_of(&s, &s), 1);
}

static void test_rings(void **state)
{
	struct scene s;

	scene_init(&s);
	/* Five in a ring, one behind them, and two of their own. */
	for (unsigned i = 0; i < 5; i++) {
		holds(&s, i, 0, i, VB_EXCLUSIVE);
		waits(&s, i, (i + 1) % 5, VB_EXCLUSIVE);
	}
	waits(&s, 5, 0, VB_EXCLUSIVE);
	for (unsigned i = 6; i < 8; i++) {
		holds(&s, i, 0, i, VB_EXCLUSIVE);
		waits(&s, i, 13 - i, VB_EXCLUSIVE);
	}
	assert_int_equal(cycles_of(&s, &s), 2);
}

static void waits_since(struct scene *s, unsigned i, uint64_t lock, enum vb_mode mode,
			uint64_t since_ns)
{
	s->slot[i].wait = (struct vb_board_lock){lock + 1, (uint64_t)mode, since_ns};
}

/* One holds 1 shared and wants 2; the next wants 1; a third holds 2 and wants 1 shared, which it
 * could have beside the first but for the one ahead of it. */
static void queue_scene(struct scene *s, const char *protocol, uint64_t second_ns,
			uint64_t third_ns)
{
	scene_init(s);
	snprintf(s->view.head.protocol, sizeof(s->view.head.protocol), "%s", protocol);
	holds(s, 0, 0, 1, VB_SHARED);
	holds(s, 2, 0, 2, VB_EXCLUSIVE);
	waits(s, 0, 2, VB_EXCLUSIVE);
	waits_since(s, 1, 1, VB_EXCLUSIVE, second_ns);
	waits_since(s, 2, 1, VB_SHARED, third_ns);
}

static void test_through_a_queue(void **state)
{
	static const char *const queues[] = {"table", "ncosed", "traditional"};
	/* Nobody stands in line; or readers may pass writers. */
	static const char *const others[] = {"cas", "rma-rw", "traditional-ro"};
	struct scene s;
	struct vb_waits w;

	for (unsigned i = 0; i < 3; i++) {
		queue_scene(&s, queues[i], 1000000, 2000000);
		assert_int_equal(vb_waits_find(&s.view, &s.view, &w), 0);
		assert_int_equal(w.n_cycles, 1);
		assert_int_equal(w.next[0], 2);
		assert_int_equal(w.next[2], 1);
		assert_int_equal(w.next[1], 0);
		vb_waits_free(&w);
		/* The other came first, or nearly at the same time, or wants no more than others. */
		queue_scene(&s, queues[i], 2000000, 1000000);
		assert_int_equal(cycles_of(&s, &s), 0);
		queue_scene(&s, queues[i], 1000000, 1010000);
		assert_int_equal(cycles_of(&s, &s), 0);
		queue_scene(&s, queues[i], 1000000, 2000000);
		waits_since(&s, 1, 1, VB_SHARED, 1000000);
		assert_int_equal(cycles_of(&s, &s), 0);
		/* Who has gone stands in nobody's way. */
		queue_scene(&s, queues[i], 1000000, 2000000);
		s.alive[1] = false;
		assert_int_equal(cycles_of(&s, &s), 0);
		queue_scene(&s, others[i], 1000000, 2000000);
		assert_int_equal(cycles_of(&s, &s), 0);
	}
}

/* Who converts is ahead of all who wait, however late it came, and waits for none of them. */
static void test_conversion_ahead(void **state)
{
	struct scene s;

	scene_init(&s);
	snprintf(s.view.head.protocol, sizeof(s.view.head.protocol), "table");
	/* 0 and 3 hold 1 intent-shared; 0 converts to exclusive, which waits for 3; 3 waits for 2,
	 * whose intent-shared would do beside both, but not beside what 0 wants. */
	holds(&s, 0, 0, 1, VB_INTENT_SHARED);
	holds(&s, 3, 0, 1, VB_INTENT_SHARED);
	holds(&s, 2, 0, 2, VB_EXCLUSIVE);
	waits_since(&s, 0, 1, VB_EXCLUSIVE, 2000000);
	waits_since(&s, 3, 2, VB_EXCLUSIVE, 1500000);
	waits_since(&s, 2, 1, VB_INTENT_SHARED, 1000000);
	assert_int_equal(cycles_of(&s, &s), 1);
	/* To a mode that is in nobody's way; 2 would be granted. */
	waits_since(&s, 0, 1, VB_INTENT_EXCLUSIVE, 2000000);
	assert_int_equal(cycles_of(&s, &s), 0);
}

/* What was not so in the earlier view is no deadlock yet. */
static void test_in_motion(void **state)
{
	struct scene before, s;

	scene_init(&s);
	for (unsigned i = 0; i < 3; i++) {
		holds(&s, i, 0, i, VB_EXCLUSIVE);
		waits(&s, i, (i + 1) % 3, VB_EXCLUSIVE);
	}
	scene_init(&before);
	memcpy(before.slot, s.slot, sizeof(s.slot));
	assert_int_equal(cycles_of(&before, &s), 1);
	before.slot[1].wait.since_ns--;
	assert_int_equal(cycles_of(&before, &s), 0);
	before.slot[1].wait.since_ns++;
	before.slot[2].held[0].since_ns--;
	assert_int_equal(cycles_of(&before, &s), 0);
	before.slot[2].held[0].since_ns++;
	before.slot[0].peer = 99;
	assert_int_equal(cycles_of(&before, &s), 0);
}

/* ---- real ---- */

#define TIMEOUT_NS 60000000000ull

struct philosopher {
	struct vb_lock_client *me;
	uint64_t first, second;
	struct vb_task *task;
	bool done;
	int err;
};

static void eat(void *arg)
{
	struct philosopher *p = arg;
	struct vb_grant a, b;

	p->err = vb_lock_acquire(p->me, p->first, VB_EXCLUSIVE, TIMEOUT_NS, &a);
	assert_int_equal(p->err, 0);
	vb_task_yield();
	p->err = vb_lock_acquire(p->me, p->second, VB_EXCLUSIVE, TIMEOUT_NS, &b);
	if (p->err == 0)
		vb_lock_release(p->me, &b);
	vb_lock_release(p->me, &a);
	p->done = true;
}

static void view_of(struct vb_ep *ep, char *text, size_t bytes, unsigned *cycles)
{
	struct vb_board_view v;
	struct vb_waits w;
	FILE *to = fmemopen(text, bytes, "w");

	assert_non_null(to);
	assert_int_equal(vb_board_view(ep, "locks", &v), 0);
	assert_int_equal(vb_waits_find(&v, &v, &w), 0);
	vb_dump_print(to, "locks", &w, 10);
	fclose(to);
	*cycles = w.n_cycles;
	vb_waits_free(&w);
	vb_board_view_free(&v);
}

static void look_and_end(struct philosopher *p, struct vb_ep *ep)
{
	char text[4096];
	unsigned cycles = 0;

	for (unsigned i = 0; i < 1000 && cycles == 0; i++) {
		(void)vb_ep_sleep(ep, 100000);
		view_of(ep, text, sizeof(text), &cycles);
	}
	assert_int_equal(cycles, 1);
	assert_non_null(strstr(text, "cycle of 2"));
	assert_non_null(strstr(text, "waits for lock 3 (exclusive"));
	assert_non_null(strstr(text, "waits for lock 4 (exclusive"));
	/* One gives up, and the other goes on. */
	vb_task_cancel(p[0].task);
	while (!p[0].done || !p[1].done)
		(void)vb_ep_sleep(ep, 100000);
	assert_int_equal(p[0].err, -ECANCELED);
	assert_int_equal(p[1].err, 0);
	view_of(ep, text, sizeof(text), &cycles);
	assert_int_equal(cycles, 0);
	assert_non_null(strstr(text, "2 clients, 0 locks held or awaited"));
}

static void test_real(void **state)
{
	struct vb_fabric_params fp = {.fabric = "shm", .node_bytes = 4u << 20, .endpoints = 8};
	struct vb_lock_space_params sp = {.lock = "cas", .locks = 8, .visible = true};
	struct philosopher p[2] = {{.first = 3, .second = 4}, {.first = 4, .second = 3}};
	struct vb_task_params tp = {.name = "philosopher"};
	struct vb_fabric *f;
	struct vb_lock_space *space;
	struct vb_ep *ep;

	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &sp, &space), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(vb_lock_client_open(space, 0, &p[i].me), 0);
		p[i].me->index = i;
		assert_int_equal(vb_task_spawn(ep->sched, eat, &p[i], &tp, &p[i].task), 0);
	}
	look_and_end(p, ep);
	for (unsigned i = 0; i < 2; i++)
		vb_lock_client_close(p[i].me);
	vb_ep_close(ep);
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

/* ---- more than a board shows ---- */

#define MORE 3u

static unsigned shown(const struct vb_board_slot *s)
{
	unsigned n = 0;

	for (unsigned i = 0; i < VB_BOARD_HELD; i++)
		n += s->held[i].lock1 != 0;
	return n;
}

static void expect_view(struct vb_ep *ep, unsigned clients, uint64_t unseen, unsigned held,
			uint64_t unseen_held)
{
	struct vb_board_view v;

	assert_int_equal(vb_board_view(ep, "locks", &v), 0);
	assert_int_equal(v.n, clients);
	assert_int_equal(v.head.unseen, unseen);
	assert_int_equal(shown(&v.slot[0]), held);
	assert_int_equal(v.slot[0].unseen, unseen_held);
	vb_board_view_free(&v);
}

/* 256 clients of a node and 32 locks of a client: the others are only counted, as long as they are there. */
static void test_only_counted(void **state)
{
	const struct vb_fabric_params fp = {
		.fabric = "shm", .node_bytes = 4u << 20, .endpoints = 2 * VB_BOARD_SLOTS};
	const struct vb_lock_space_params sp = {.lock = "cas", .locks = 64, .visible = true};
	struct vb_lock_client *c[VB_BOARD_SLOTS + MORE];
	struct vb_grant g[VB_BOARD_HELD + MORE];
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_ep *ep;

	(void)state;
	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &sp, &space), 0);
	assert_int_equal(vb_ep_open(f, 0, &ep), 0);
	for (unsigned i = 0; i < VB_BOARD_SLOTS + MORE; i++)
		assert_int_equal(vb_lock_client_open(space, 0, &c[i]), 0);
	expect_view(ep, VB_BOARD_SLOTS, MORE, 0, 0);
	for (unsigned i = 0; i < VB_BOARD_HELD + MORE; i++)
		assert_int_equal(vb_lock_try(c[0], i, VB_EXCLUSIVE, &g[i]), 0);
	expect_view(ep, VB_BOARD_SLOTS, MORE, VB_BOARD_HELD, MORE);
	assert_int_equal(vb_lock_release_all(c[0], g, VB_BOARD_HELD + MORE), 0);
	expect_view(ep, VB_BOARD_SLOTS, MORE, 0, 0);
	/* Who is not shown works as the others do. */
	assert_int_equal(vb_lock_try(c[VB_BOARD_SLOTS], 1, VB_EXCLUSIVE, &g[0]), 0);
	assert_int_equal(vb_lock_release(c[VB_BOARD_SLOTS], &g[0]), 0);
	for (unsigned i = VB_BOARD_SLOTS + MORE; i-- > 1;)
		vb_lock_client_close(c[i]);
	expect_view(ep, 1, 0, 0, 0);
	vb_lock_client_close(c[0]);
	vb_ep_close(ep);
	assert_int_equal(vb_lock_space_close(space), 0);
	assert_int_equal(vb_fabric_close(f), 0);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two),
		cmocka_unit_test(test_modes),
		cmocka_unit_test(test_conversions),
		cmocka_unit_test(test_rings),
		cmocka_unit_test(test_in_motion),
		cmocka_unit_test(test_through_a_queue),
		cmocka_unit_test(test_conversion_ahead),
		cmocka_unit_test(test_real),
		cmocka_unit_test(test_only_counted),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
