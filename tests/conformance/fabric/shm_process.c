/* SPDX-License-Identifier: Apache-2.0 */
/* Shared memory between processes: atomicity, messages, regions, attaching, the endpoints of the
 * dead. */
#include "procs.h"

#define CHILDREN 4
#define OPS      4000

static struct vb_fabric *f;
static struct vb_ep *ep;

static int setup(void **state)
{
	struct vb_fabric_params p = {.nodes = 2, .node_bytes = 1 << 20, .endpoints = 16};

	(void)state;
	return vb_fabric_open(&p, &f) != 0 || vb_ep_open(f, 0, &ep) != 0;
}

static int teardown(void **state)
{
	(void)state;
	vb_ep_close(ep);
	vb_fabric_close(f);
	return 0;
}

/* ---- atomicity ---- */

static void body_atomics(struct vb_fabric *fab, unsigned number, void *arg)
{
	const uint64_t bounds = 0x8000800080008000ull;
	vb_addr a = *(vb_addr *)arg;
	struct vb_u128 pair, ones = {1, 1ull << 32}, zero = {0};
	uint64_t old, expect = 0;
	struct vb_ep *mine;

	child_must(vb_ep_open(fab, (uint16_t)(number % 2), &mine) == 0);
	for (unsigned i = 0; i < OPS; i++) {
		child_must(vb_faa64(mine, a, 1, &old) == 0);
		child_must(vb_mfaa64(mine, a + 8, 0xffff000100010001ull, bounds, &old) == 0);
		child_must(vb_mfaa128(mine, a + 16, ones, zero, &pair) == 0);
		/* One half of a pair through 64-bit atomics, the other through 128-bit ones. */
		child_must(vb_faa64(mine, a + 32, 1, &old) == 0);
		child_must(vb_mfaa128(mine, a + 32, (struct vb_u128){0, 1}, zero, &pair) == 0);
		do {
			old = expect;
			child_must(vb_cas64(mine, a + 48, old, old + 1, &expect) == 0);
		} while (expect != old);
	}
	vb_ep_close(mine);
}

static void test_atomics(void **state)
{
	const uint64_t n = CHILDREN * OPS;
	pid_t pids[CHILDREN];
	uint64_t v[7];
	vb_addr a;
	bool fresh;

	(void)state;
	assert_int_equal(vb_region(f, 1, "words", 64, &a, &fresh), 0);
	for (unsigned i = 0; i < CHILDREN; i++)
		pids[i] = start_child(f, i, body_atomics, &a);
	for (unsigned i = 0; i < CHILDREN; i++)
		end_child(pids[i]);
	assert_int_equal(vb_read(ep, a, v, sizeof(v)), 0);
	assert_int_equal(v[0], n);
	assert_int_equal(v[1], (uint64_t)(uint16_t)-n << 48 | n << 32 | n << 16 | n);
	assert_int_equal(v[2], n);
	assert_int_equal(v[3], n << 32);
	assert_int_equal(v[4], n);
	assert_int_equal(v[5], n);
	assert_int_equal(v[6], n);
}

/* ---- messages ---- */

static void body_sender(struct vb_fabric *fab, unsigned number, void *arg)
{
	vb_peer to = *(vb_peer *)arg;
	struct vb_ep *mine;
	struct vb_msg m;

	child_must(vb_ep_open(fab, 1, &mine) == 0);
	for (uint32_t i = 0; i < OPS; i++) {
		m = (struct vb_msg){.tag = (uint16_t)number, .imm = i, .len = VB_MSG_DATA};
		memset(m.data, (int)(i & 0xff), VB_MSG_DATA);
		child_must(send_all(mine, to, &m) == 0);
	}
	vb_ep_close(mine);
}

static void test_messages(void **state)
{
	uint32_t next[CHILDREN] = {0};
	pid_t pids[CHILDREN];
	struct vb_msg m;

	(void)state;
	for (unsigned i = 0; i < CHILDREN; i++)
		pids[i] = start_child(f, i, body_sender, &ep->self);
	for (unsigned n = 0; n < CHILDREN * OPS; n++) {
		assert_int_equal(take(ep, &m), 0);
		assert_true(m.tag < CHILDREN);
		assert_int_equal(m.imm, next[m.tag]++);
		for (unsigned j = 0; j < VB_MSG_DATA; j++)
			assert_int_equal(m.data[j], m.imm & 0xff);
	}
	assert_int_equal(vb_ep_recv(ep, &m), -EAGAIN);
	for (unsigned i = 0; i < CHILDREN; i++)
		end_child(pids[i]);
}

/* A baton goes round more processes than there are cores: everybody sleeps until it comes. */
static void body_runner(struct vb_fabric *fab, unsigned number, void *arg)
{
	vb_peer home = *(vb_peer *)arg;
	struct vb_msg m = {.tag = (uint16_t)number};
	struct vb_ep *mine;
	vb_peer next;

	child_must(vb_ep_open(fab, 0, &mine) == 0);
	child_must(send_all(mine, home, &m) == 0); /* here I am */
	child_must(take(mine, &m) == 0);
	next = m.subject;
	do {
		child_must(take(mine, &m) == 0);
		m.imm++;
		child_must(send_all(mine, next, &m) == 0);
	} while (m.tag != 0);
	vb_ep_close(mine);
}

static void test_baton(void **state)
{
	enum { RUNNERS = 6, LAPS = 200 };
	vb_peer runner[RUNNERS + 1];
	pid_t pids[RUNNERS];
	struct vb_msg m;

	(void)state;
	for (unsigned i = 0; i < RUNNERS; i++)
		pids[i] = start_child(f, i, body_runner, &ep->self);
	for (unsigned i = 0; i < RUNNERS; i++) {
		assert_int_equal(take(ep, &m), 0);
		runner[m.tag] = m.from;
	}
	runner[RUNNERS] = ep->self;
	for (unsigned i = 0; i < RUNNERS; i++) {
		m = (struct vb_msg){.subject = runner[i + 1]};
		assert_int_equal(vb_send_wait(ep, runner[i], &m), 0);
	}
	m = (struct vb_msg){.imm = 0};
	for (unsigned lap = 1; lap <= LAPS; lap++) {
		m.tag = lap < LAPS; /* 0: the last lap */
		assert_int_equal(vb_send_wait(ep, runner[0], &m), 0);
		assert_int_equal(take(ep, &m), 0);
		assert_int_equal(m.imm, lap * RUNNERS);
	}
	for (unsigned i = 0; i < RUNNERS; i++)
		end_child(pids[i]);
}

/* ---- regions ---- */

#define NAMES 8

struct race {
	vb_addr at[CHILDREN][NAMES];
	unsigned fresh[NAMES]; /* how often */
};

static void body_regions(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct race *r = vb_local(fab, *(vb_addr *)arg, sizeof(*r));

	for (unsigned i = 0; i < NAMES; i++) {
		char name[16];
		bool fresh;

		snprintf(name, sizeof(name), "race-%u", i);
		child_must(vb_region(fab, 1, name, 100 + i, &r->at[number][i], &fresh) == 0);
		if (fresh)
			__atomic_fetch_add(&r->fresh[i], 1, __ATOMIC_SEQ_CST);
	}
}

static void test_region_race(void **state)
{
	pid_t pids[CHILDREN];
	struct race *r;
	vb_addr a;
	bool fresh;

	(void)state;
	assert_int_equal(vb_region(f, 0, "race", sizeof(*r), &a, &fresh), 0);
	r = vb_local(f, a, sizeof(*r));
	for (unsigned i = 0; i < CHILDREN; i++)
		pids[i] = start_child(f, i, body_regions, &a);
	for (unsigned i = 0; i < CHILDREN; i++)
		end_child(pids[i]);
	for (unsigned i = 0; i < NAMES; i++) {
		assert_int_equal(r->fresh[i], 1);
		for (unsigned j = 1; j < CHILDREN; j++)
			assert_true(r->at[j][i] == r->at[0][i]);
		for (unsigned j = 0; j < i; j++)
			assert_true(r->at[0][j] + 100 + j <= r->at[0][i] ||
				    r->at[0][i] + 100 + i <= r->at[0][j]);
	}
}

/* ---- attaching ---- */

static void body_attach(struct vb_fabric *none, unsigned number, void *arg)
{
	struct vb_fabric_params p = {.name = arg, .attach = true};
	struct vb_fabric *mine;
	struct vb_ep *e;
	struct vb_msg m;
	uint64_t old;
	vb_addr a;
	bool fresh;

	(void)none;
	(void)number;
	vb_sched_forget(); /* it was the parent's */
	child_must(vb_fabric_open(&p, &mine) == 0);
	child_must(mine->nodes == 3 && mine->node_bytes == 1 << 16 && mine->seed == 99);
	child_must(vb_ep_open(mine, 2, &e) == 0);
	child_must(vb_region(mine, 2, "shared", 64, &a, &fresh) == 0 && !fresh);
	child_must(vb_faa64(e, a, 1, &old) == 0 && old == 41);
	child_must(vb_read64(e, a + 8, &old) == 0); /* the parent's endpoint */
	m = (struct vb_msg){.subject = vb_ep_now(e)};
	child_must(send_all(e, old, &m) == 0);
	vb_ep_close(e);
	vb_fabric_close(mine);
}

static void test_attach(void **state)
{
	const char *name = unique_name();
	struct vb_fabric_params p = {
		.name = name, .nodes = 3, .node_bytes = 1 << 16, .endpoints = 8, .seed = 99};
	struct vb_fabric *named;
	struct vb_ep *e;
	struct vb_msg m;
	uint64_t before;
	vb_addr a;
	bool fresh;
	pid_t pid;

	(void)state;
	assert_int_equal(vb_fabric_open(&p, &named), 0);
	assert_int_equal(vb_ep_open(named, 0, &e), 0);
	assert_int_equal(vb_region(named, 2, "shared", 64, &a, &fresh), 0);
	assert_int_equal(vb_write(e, a, (uint64_t[]){41, e->self}, 16), 0);
	before = vb_ep_now(e);
	pid = start_child(NULL, 0, body_attach, (void *)name);
	assert_int_equal(take(e, &m), 0);
	/* One clock for both: the message was sent between two readings of ours. */
	assert_true(m.subject >= before && m.subject <= vb_ep_now(e));
	end_child(pid);
	assert_true(segment_exists(name)); /* who attached does not remove it */
	vb_ep_close(e);
	vb_fabric_close(named);
	assert_false(segment_exists(name));
}

/* ---- the dead ---- */

/* Opens 15 endpoints, says so with the first one's name, and sleeps. */
static void body_hoarder(struct vb_fabric *fab, unsigned number, void *arg)
{
	struct vb_ep *mine[15];

	(void)number;
	for (unsigned i = 0; i < 15; i++)
		child_must(vb_ep_open(fab, 0, &mine[i]) == 0);
	child_must(send_all(mine[0], *(vb_peer *)arg, &(struct vb_msg){.tag = 1}) == 0);
	(void)vb_ep_wait(mine[0], VB_FOREVER);
	for (;;)
		pause();
}

static void test_dead_endpoints(void **state)
{
	struct vb_ep *more[15];
	struct vb_msg m;
	vb_peer gone;
	pid_t pid;

	(void)state;
	for (unsigned round = 0; round < 3; round++) {
		pid = start_child(f, 0, body_hoarder, &ep->self);
		assert_int_equal(take(ep, &m), 0);
		gone = m.from;
		assert_true(vb_peer_alive(f, gone));
		assert_int_equal(vb_send_wait(ep, gone, &m), 0);
		assert_int_equal(vb_ep_open(f, 0, &more[0]), -ENOSPC);
		kill_child(pid);
		if (round == 0) {
			/* The parent says that it is dead. */
			vb_shm_mark_dead(f, pid);
			assert_int_equal(vb_send_wait(ep, gone, &m), -VB_EPEERGONE);
		} else if (round == 1) {
			/* Somebody asks. */
			assert_false(vb_peer_alive(f, gone));
			assert_int_equal(vb_send_wait(ep, gone, &m), -VB_EPEERGONE);
		} else {
			/* Nobody tells: a sender finds out, at the latest when the ring is full. */
			int err = 0;

			for (unsigned i = 0; err == 0 && i < 1000; i++)
				err = vb_send_wait(ep, gone, &m);
			assert_int_equal(err, -VB_EPEERGONE);
		}
		/* Their slots serve again, under other names. */
		for (unsigned i = 0; i < 15; i++) {
			assert_int_equal(vb_ep_open(f, 0, &more[i]), 0);
			assert_true(more[i]->self != gone);
		}
		for (unsigned i = 0; i < 15; i++)
			vb_ep_close(more[i]);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup_teardown(test_atomics, setup, teardown),
		cmocka_unit_test_setup_teardown(test_messages, setup, teardown),
		cmocka_unit_test_setup_teardown(test_baton, setup, teardown),
		cmocka_unit_test_setup_teardown(test_region_race, setup, teardown),
		cmocka_unit_test_setup_teardown(test_attach, setup, teardown),
		cmocka_unit_test_setup_teardown(test_dead_endpoints, setup, teardown),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
