/* SPDX-License-Identifier: Apache-2.0 */
/*
 * In which order locks are granted where that is decided by thresholds: readers that pass in a
 * server's queue, writers in a row in shiftlock, groups of nodes and readers' turns in rma-rw.
 * Clients come one after the other while the first one holds the lock; who is granted when is
 * written down, and compared.
 */
#include "sim_test.h"

#define VB_LOG_ROOM "test"
#include "base/log.h"
#include "lock/lock.h"

#define NODES    6
#define ACTORS   8
#define APART_NS 20000 /* from one arrival to the next: each stands in its queue before the next */
#define HOLD_NS  4000  /* longer than a look: readers who are let in together are inside together */
#define LONG_NS  (ACTORS * APART_NS + 100000)
#define LEASE_NS 1000000000

/* One who comes: its node, its mode and its name in the order of grants. */
struct actor {
	char name;
	uint16_t node;
	enum vb_mode mode;
	uint64_t hold_ns;
	/* */
	struct order *o;
	unsigned at;
};

struct order {
	const char *lock, *options;
	struct vb_lock_space *space;
	struct actor actor[ACTORS];
	unsigned actors, inside, most_inside;
	char granted[ACTORS + 1];
	unsigned n;
	uint64_t over_ns; /* the last release */
};

/* Where messages are refused: each time that one is sent it is only at the second attempt that it leaves. */
static struct {
	bool on, again;
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned refused;
} refusal;

static int post_refused(struct vb_ep *ep, struct vb_batch *b)
{
	if (b->n == 1 && b->verbs->op == VB_OP_SEND && !(b->verbs->flags & VB_SIGNALLED)) {
		refusal.again = !refusal.again;
		if (refusal.again) {
			b->verbs->status = refusal.refused++ % 2 ? -EAGAIN : -VB_EPEERGONE;
			return 0;
		}
	}
	return refusal.real->post(ep, b);
}

static void act(void *arg)
{
	struct actor *a = arg;
	struct vb_lock_client *me;
	struct vb_grant g;

	assert_int_equal(vb_lock_client_open(a->o->space, a->node, &me), 0);
	if (refusal.on) {
		refusal.real = me->ep->ops == &refusal.ops ? refusal.real : me->ep->ops;
		refusal.ops = *refusal.real;
		refusal.ops.post = post_refused;
		me->ep->ops = &refusal.ops;
	}
	assert_int_equal(vb_ep_sleep(me->ep, APART_NS * (a->at + 1)), 0);
	assert_int_equal(vb_lock_acquire(me, 0, a->mode, VB_FOREVER_NS, &g), 0);
	a->o->granted[a->o->n++] = a->name;
	if (++a->o->inside > a->o->most_inside)
		a->o->most_inside = a->o->inside;
	assert_int_equal(vb_ep_sleep(me->ep, a->hold_ns), 0);
	a->o->inside--;
	assert_int_equal(vb_lock_release(me, &g), 0);
	a->o->over_ns = vb_ep_now(me->ep);
	vb_lock_client_close(me);
}

/* Readers who are let in together see it in any order. */
static void sort_readers(struct order *o)
{
	for (unsigned pass = 0; pass < o->n; pass++) {
		for (unsigned i = 0; i + 1 < o->n; i++) {
			char a = o->granted[i], b = o->granted[i + 1];

			if (a < b || o->actor[a - 'a'].mode != VB_SHARED ||
			    o->actor[b - 'a'].mode != VB_SHARED)
				continue;
			o->granted[i] = b;
			o->granted[i + 1] = a;
		}
	}
}

/* "W1 R2": a writer of node 1, a reader of node 2.  The first one holds until all have come. */
static void expect_order(const char *lock, const char *options, const char *who, const char *order,
			 unsigned most_inside)
{
	const struct vb_lock_space_params p = {
		.lock = lock, .options = options, .locks = 1, .lease_ns = LEASE_NS};
	struct vb_fabric *f = cluster("profile=cx5", NODES, 1);
	struct order o = {.lock = lock, .options = options};
	struct vb_lock_server *server;

	assert_int_equal(vb_lock_space_open(f, &p, &o.space), 0);
	assert_int_equal(vb_lock_server_start(o.space, 0, 0, 1, &server), 0);
	for (; *who; who += who[2] ? 3 : 2) {
		unsigned i = o.actors++;

		o.actor[i] = (struct actor){.name = (char)('a' + i),
					    .node = (uint16_t)(who[1] - '0'),
					    .mode = who[0] == 'R' ? VB_SHARED : VB_EXCLUSIVE,
					    .hold_ns = i ? HOLD_NS : LONG_NS,
					    .o = &o,
					    .at = i};
		spawn(act, &o.actor[i]);
	}
	run_all();
	sort_readers(&o);
	if (strcmp(o.granted, order) != 0 || o.most_inside != most_inside)
		fail_msg("%s, %s: granted %s, %u at a time; not %s, %u", lock,
			 options ? options : "defaults", o.granted, o.most_inside, order,
			 most_inside);
	assert_true(o.over_ns < LEASE_NS); /* no recovery was needed */
	vb_lock_server_stop(server);
	vb_lock_space_close(o.space);
	vb_fabric_close(f);
}

static void test_server_queue(void **state)
{
	(void)state;
	/* A writer between two readers keeps them apart. */
	expect_order("traditional", NULL, "R1 W1 R2 R3 W2 R1", "abcdef", 2);
	expect_order("traditional", NULL, "W1 R1 R2 W2 R3 R3", "abcdef", 2);
	/* Those who come while readers hold are let in at once. */
	expect_order("traditional-ro", NULL, "R1 W1 R2 R3 W2 R1", "acdfbe", 2);
	expect_order("traditional-ro", "readers_pass=2", "R1 W1 R2 R3 W2 R1", "acdbef", 2);
	expect_order("traditional-ro", "readers_pass=0", "R1 W1 R2 R3 W2 R1", "abcdef", 2);
	/* Those who wait are, when the lock comes to be shared: d passes nobody, f and g pass e. */
	expect_order("traditional-ro", NULL, "W1 W2 R1 R2 W3 R3 R4", "abcdfge", 4);
	expect_order("traditional-ro", "readers_pass=1", "W1 W2 R1 R2 W3 R3 R4", "abcdfeg", 3);
}

/* The readers' turn comes after N writers, and the auditor is told how many may pass a reader. */
static void test_shiftlock_writers(void **state)
{
	static const struct {
		const char *options, *order;
		unsigned passed;
	} cases[] = {
		{"max_writers=1", "abdcef", 0},
		{"max_writers=2", "acbdef", 1},
		{"max_writers=3", "acebdf", 2},
		{NULL, "acefbd", 15},
		{"max_writers=4g", "acefbd", 3999999999u},
	};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		const struct vb_lock_space_params p = {
			.lock = "shiftlock", .options = cases[i].options, .locks = 1};
		struct vb_lock_space *space;
		struct vb_fabric *f;

		expect_order("shiftlock", cases[i].options, "W1 R2 W1 R3 W1 W1", cases[i].order, 2);
		f = cluster("profile=cx5", NODES, 1);
		assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
		assert_int_equal(space->ops->bypass_bound_of(space, 6, VB_SHARED), cases[i].passed);
		vb_lock_space_close(space);
		vb_fabric_close(f);
	}
}

/* One that is told once is told again where the message has not left: it is not left to a recovery, though
 * the queue may be joined in another order. */
static void test_shiftlock_refused(void **state)
{
	(void)state;
	refusal.on = true;
	refusal.refused = 0;
	expect_order("shiftlock", NULL, "W1 W2 W3 W4", "abcd", 1);
	expect_order("shiftlock", "max_writers=1", "W1 R2 W1 R3 W1 W1", "abdcef", 2);
	refusal.on = false;
	assert_true(refusal.refused >= 6);
}

static void test_rma_groups(void **state)
{
	(void)state;
	/* Inside the group t_l times, then the other group has its turn. */
	expect_order("rma-rw", "t_l=1", "W1 W1 W1 W2 W2 W1", "abdecf", 1);
	expect_order("rma-rw", "t_l=0", "W1 W1 W2 W1 W2", "acbed", 1);
	expect_order("rma-rw", "t_l=2", "W1 W1 W1 W2 W2 W1", "abcdef", 1);
	/* Two nodes to a group: 2 and 3 are one. */
	expect_order("rma-rw", "group=2,t_l=1", "W2 W3 W2 W4", "abdc", 1);
	/* One group: the order in which they came. */
	expect_order("rma-rw", "group=6,t_l=0", "W1 W1 W2 W1 W2", "abcde", 1);
}

static void test_rma_turns(void **state)
{
	(void)state;
	/* The readers' turn comes after t_w writers, and all who wait are in, however short it
	 * is. */
	expect_order("rma-rw", "t_w=2,t_l=9", "W1 R2 W1 R3 W1 W1", "acbdef", 2);
	expect_order("rma-rw", "t_w=1,t_l=9", "W1 R2 W1 R3 W1", "abdce", 2);
	expect_order("rma-rw", NULL, "W1 R2 W1 R3 W1", "acebd", 2);
	/* A writer keeps readers out from when it is there, not from when they are gone. */
	expect_order("rma-rw", NULL, "R1 W2 R1 R3", "abcd", 2);
	/* Too many for one turn, and no writer: the next turn begins at once. */
	expect_order("rma-rw", "t_r=1,t_dc=6", "R1 R2 R3 R4", "abcd", 2);
}

static void test_rma_shape(void **state)
{
	static const char *const other[] = {"t_r=9", "t_w=9", "t_l=9", "group=3,t_dc=3", "t_dc=6"};
	struct vb_lock_space_params p = {.lock = "rma-rw", .locks = 2};
	struct vb_fabric *f = cluster("profile=cx5", NODES, 1);
	struct vb_lock_space *space, *second;
	char said[256];

	(void)state;
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(space->stride, 8 * (1 + 2 * NODES + NODES));
	/* Who counts differently must not come in. */
	for (unsigned i = 0; i < VB_ARRAY_SIZE(other); i++) {
		p.options = other[i];
		vb_log_capture_begin(said, sizeof(said));
		assert_int_equal(vb_lock_space_open(f, &p, &second), -EINVAL);
		vb_log_capture_end();
	}
	p.options = "group=1,t_dc=1,t_r=4000";
	assert_int_equal(vb_lock_space_open(f, &p, &second), 0);
	vb_lock_space_close(second);
	vb_lock_space_close(space);
	vb_fabric_close(f);
	f = cluster("profile=cx5", 65, 1);
	p.options = "group=1";
	vb_log_capture_begin(said, sizeof(said));
	assert_int_equal(vb_lock_space_open(f, &p, &space), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(said, "group="));
	p.options = NULL;
	assert_int_equal(vb_lock_space_open(f, &p, &space), 0);
	assert_int_equal(space->stride, 8 * (1 + 2 * 33 + 33));
	vb_lock_space_close(space);
	vb_fabric_close(f);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_server_queue), cmocka_unit_test(test_shiftlock_writers),
		cmocka_unit_test(test_rma_groups),   cmocka_unit_test(test_rma_turns),
		cmocka_unit_test(test_rma_shape),    cmocka_unit_test(test_shiftlock_refused),
	};

	return cmocka_run_group_tests_name("lock order", tests, NULL, NULL);
}
