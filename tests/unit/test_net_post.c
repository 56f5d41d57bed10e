/* SPDX-License-Identifier: Apache-2.0 */
/* The network core's posting: what reaches the transport, when its doorbell rings, and what callers
 * hear of verbs that end well, ill, late or not at all. */
#include "net_fake.h"

#define MINE   vb_addr_make(3, 128) /* host 0, this one */
#define THEIRS vb_addr_make(1, 128) /* host 1 */
#define OTHERS vb_addr_make(2, 128) /* host 2 */

static struct vb_ep *ep;

static void open_all(void)
{
	fake_open();
	ep = fake_ep(0);
}

static int teardown(void **state)
{
	if (ep != NULL)
		vb_ep_close(ep);
	ep = NULL;
	return fake_teardown(state);
}

#define POST(test) cmocka_unit_test_setup_teardown(test, fake_reset, teardown)

/* ---- a verb that its own task awaits ---- */

struct run {
	struct vb_verb v;
	int rc;
	bool over;
};

static void run_body(void *arg)
{
	struct run *r = arg;

	r->rc = vb_verb_run(ep, &r->v);
	r->over = true;
}

static void start_later(struct run *r, struct vb_verb v)
{
	struct vb_task *t;

	*r = (struct run){.v = v};
	assert_int_equal(vb_task_spawn(ep->sched, run_body, r, NULL, &t), 0);
}

static void start(struct run *r, struct vb_verb v)
{
	start_later(r, v);
	vb_task_yield();
}

/* Its end is certain: wakes come within a few rounds. */
static int result(struct run *r)
{
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;

	while (!r->over && vb_clock_ns() < end)
		vb_task_yield();
	assert_true(r->over);
	return r->rc;
}

static const struct vb_verb atomics[] = {
	{.op = VB_OP_CAS64, .compare.lo = 5, .swap.lo = 9},
	{.op = VB_OP_FAA64, .compare.lo = 4},
	{.op = VB_OP_MCAS64,
	 .compare.lo = 5,
	 .compare_mask.lo = 0xff,
	 .swap.lo = 9,
	 .swap_mask.lo = 0xff},
	{.op = VB_OP_MFAA64, .compare.lo = 4, .compare_mask.lo = 1ull << 63},
	{.op = VB_OP_MCAS128,
	 .compare.lo = 5,
	 .compare_mask.lo = 0xff,
	 .swap.lo = 9,
	 .swap_mask.lo = 0xff},
	{.op = VB_OP_MFAA128, .compare.lo = 4, .compare_mask.hi = 1ull << 63},
};

static struct vb_verb at(const struct vb_verb *v, vb_addr a)
{
	struct vb_verb copy = *v;

	copy.addr = a;
	return copy;
}

/* ---- tests ---- */

/* Every atomic finds 5 and leaves 9, at another host by the wire, here by the CPU. */
static void atomics_complete(void **state)
{
	(void)state;
	open_all();
	for (unsigned i = 0; i < VB_ARRAY_SIZE(atomics); i++) {
		struct vb_fabric_stats before = fake_stats(), after;
		struct vb_verb v = at(&atomics[i], MINE);
		struct run r;

		*(uint64_t *)fake_at(THEIRS) = *(uint64_t *)fake_at(MINE) = 5;
		start(&r, at(&atomics[i], THEIRS));
		assert_int_equal(fake.flying, 1);
		assert_true(fake.flight[0]->rung);
		assert_false(r.over);
		fake_end(0, 0, true);
		assert_int_equal(result(&r), 0);
		assert_int_equal(r.v.old.lo, 5);
		assert_int_equal(fake_word(THEIRS), 9);
		assert_int_equal(vb_verb_run(ep, &v), 0);
		assert_int_equal(v.old.lo, 5);
		assert_int_equal(fake_word(MINE), 9);
		after = fake_stats();
		assert_int_equal(after.posted - before.posted, 1);
		assert_int_equal(after.doorbells - before.doorbells, 1);
		assert_int_equal(after.completions - before.completions, 1);
	}
}

static void transfers_complete(void **state)
{
	uint64_t word = 0x1122334455667788, back = 0;
	struct vb_msg m = {.tag = 3, .len = 1};
	struct run r;

	(void)state;
	open_all();
	start(&r, (struct vb_verb){.op = VB_OP_WRITE, .addr = THEIRS, .buf = &word, .len = 8});
	fake_end(0, 0, true);
	assert_int_equal(result(&r), 0);
	assert_int_equal(fake_word(THEIRS), word);
	start(&r, (struct vb_verb){.op = VB_OP_READ, .addr = THEIRS, .buf = &back, .len = 8});
	assert_int_equal(back, 0);
	fake_end(0, 0, true);
	assert_int_equal(result(&r), 0);
	assert_int_equal(back, word);
	start(&r, (struct vb_verb){.op = VB_OP_WRITE_NOTIFY,
				   .addr = OTHERS,
				   .peer = vb_peer_make(2, 77),
				   .msg = &m,
				   .buf = &word,
				   .len = 8});
	fake_end(0, 0, true);
	assert_int_equal(result(&r), 0);
	assert_int_equal(fake_word(OTHERS), word);
	start(&r, (struct vb_verb){.op = VB_OP_SEND, .peer = vb_peer_make(2, 77), .msg = &m});
	assert_int_equal(fake.flight[0]->host, 2);
	fake_end(0, -EAGAIN, false);
	assert_int_equal(result(&r), -EAGAIN);
	assert_int_equal(vb_write(ep, MINE, &word, 8), 0);
	back = 0;
	assert_int_equal(vb_read(ep, MINE, &back, 8), 0);
	assert_int_equal(back, word);
	assert_int_equal(fake.posts, 4);
}

/* With a transport that wants them all, also what goes to this host takes the wire. */
static void own_memory_by_wire(void **state)
{
	struct run r;

	(void)state;
	fake.local_cpu = false;
	open_all();
	start(&r, at(&atomics[1], MINE));
	assert_int_equal(fake.flying, 1);
	assert_int_equal(fake.flight[0]->host, 0);
	assert_int_equal(fake_word(MINE), 0);
	fake_end(0, 0, true);
	assert_int_equal(result(&r), 0);
	assert_int_equal(fake_word(MINE), 4);
}

/* A batch is over when the last of its signalled verbs is, in whatever order they end; the caller
 * gets the first error in the order of posting. */
static void batch_waits_for_all(void **state)
{
	static const uint64_t word = 7;
	struct vb_verb v[4];
	struct vb_batch b = {.verbs = v, .n = 4};

	(void)state;
	open_all();
	for (unsigned i = 0; i < 3; i++) {
		v[i] = at(&atomics[1], THEIRS);
		v[i].flags = VB_SIGNALLED;
	}
	v[3] = (struct vb_verb){
		.op = VB_OP_WRITE, .addr = OTHERS, .buf = (void *)&word, .len = sizeof(word)};
	assert_int_equal(vb_post(ep, &b), 1);
	assert_int_equal(b.pending, 3);
	assert_int_equal(fake.flying, 4);
	fake_end(2, -VB_EUNKNOWN, true);
	fake_end(1, -VB_EPEERGONE, false);
	assert_int_equal(b.pending, 1);
	fake_end(0, 0, true);
	assert_int_equal(b.pending, 0);
	assert_int_equal(vb_wait(ep, &b), -VB_EPEERGONE);
	assert_int_equal(v[0].status, 0);
	assert_int_equal(v[1].status, -VB_EPEERGONE);
	assert_int_equal(v[2].status, -VB_EUNKNOWN);
	assert_int_equal(fake_word(THEIRS), 8);
	/* The unsignalled one was nobody's to wait for. */
	assert_int_equal(fake.flying, 1);
	fake_end(0, 0, true);
	assert_int_equal(fake_word(OTHERS), word);
}

/* What is unsignalled needs nothing of the caller after the post, and its doorbell waits for
 * nobody. */
static void unsignalled_leaves(void **state)
{
	uint64_t word = 42;
	struct vb_verb v = {.op = VB_OP_WRITE, .addr = THEIRS, .buf = &word, .len = 8};
	struct vb_batch b = {.verbs = &v, .n = 1};
	struct run other;

	(void)state;
	fake.coalesce = true;
	open_all();
	start_later(&other, at(&atomics[1], OTHERS)); /* ready: doorbells might wait */
	assert_int_equal(vb_post(ep, &b), 0);
	assert_int_equal(fake.flushes, 1);
	assert_true(fake.flight[0]->rung);
	memset(&v, 0xff, sizeof(v));
	word = 0;
	fake_end(0, 0, true);
	assert_int_equal(fake_word(THEIRS), 42);
	vb_task_yield();
	fake_end(0, 0, true);
	assert_int_equal(result(&other), 0);
}

#define TASKS 6u

/* Verbs of several tasks leave with one doorbell, at the end of the round. */
static void one_doorbell(void **state)
{
	struct run r[TASKS];
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;

	(void)state;
	fake.coalesce = true;
	open_all();
	for (unsigned i = 0; i < TASKS; i++)
		start_later(&r[i], at(&atomics[1], THEIRS));
	while (fake.flushes == 0 && vb_clock_ns() < end)
		vb_task_yield();
	assert_int_equal(fake.flying, TASKS);
	assert_int_equal(fake.posts, TASKS);
	/* The last of them may find nobody else ready, and rings for all. */
	assert_int_equal(fake.flushes, 1);
	assert_int_equal(fake_stats().posted, TASKS);
	for (unsigned i = 0; i < TASKS; i++) {
		assert_true(fake.flight[0]->rung);
		fake_end(0, 0, true);
	}
	for (unsigned i = 0; i < TASKS; i++)
		assert_int_equal(result(&r[i]), 0);
	assert_int_equal(fake_word(THEIRS), 4 * TASKS);
}

/* Without `coalesce` each post rings. */
static void a_doorbell_each(void **state)
{
	struct run r[2];

	(void)state;
	open_all();
	start_later(&r[0], at(&atomics[1], THEIRS));
	start(&r[1], at(&atomics[1], THEIRS));
	assert_int_equal(fake.flushes, 2);
	fake_end(0, 0, true);
	fake_end(0, 0, true);
	assert_int_equal(result(&r[0]), 0);
	assert_int_equal(result(&r[1]), 0);
}

static void spin_past(uint64_t ns)
{
	while (vb_ep_now(ep) <= ns)
		vb_cpu_relax();
}

/* Verbs with a time limit share the doorbell too; when it rings, it is the time of each that
 * counts. */
static void limits_share_a_doorbell(void **state)
{
	struct run r[TASKS];
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;

	(void)state;
	fake.coalesce = true;
	open_all();
	for (unsigned i = 0; i < TASKS; i++) {
		struct vb_verb v = at(&atomics[1], THEIRS);

		v.not_after_ns = vb_ep_now(ep) + FAKE_LONG_NS;
		start_later(&r[i], v);
	}
	while (fake.flushes == 0 && vb_clock_ns() < end)
		vb_task_yield();
	assert_int_equal(fake.flying, TASKS);
	assert_int_equal(fake.flushes, 1);
	for (unsigned i = 0; i < TASKS; i++)
		fake_end(0, 0, true);
	for (unsigned i = 0; i < TASKS; i++)
		assert_int_equal(result(&r[i]), 0);
	assert_int_equal(fake_word(THEIRS), 4 * TASKS);
}

/* In time when it was posted, too late when the doorbell rings. */
static void too_late_at_the_doorbell(void **state)
{
	struct vb_verb v[3];
	struct vb_batch b = {.verbs = v, .n = 3};
	uint64_t end = vb_clock_ns() + FAKE_LONG_NS;
	struct run other;

	(void)state;
	fake.coalesce = true;
	open_all();
	for (unsigned i = 0; i < 3; i++) {
		v[i] = at(&atomics[1], THEIRS);
		v[i].flags = VB_SIGNALLED;
	}
	v[0].not_after_ns = vb_ep_now(ep) + 20000000;
	v[2].not_after_ns = v[0].not_after_ns + FAKE_LONG_NS;
	start_later(&other, at(&atomics[1], OTHERS));
	assert_int_equal(vb_post(ep, &b), 1);
	assert_int_equal(fake.flushes, 0);
	spin_past(v[0].not_after_ns);
	while (fake.flushes == 0 && vb_clock_ns() < end)
		vb_task_yield();
	assert_int_equal(fake.flushes, 1);
	assert_int_equal(fake.flying, 3);
	while (fake.flying > 0)
		fake_end(0, 0, true);
	assert_int_equal(vb_wait(ep, &b), -VB_ETOOLATE);
	assert_int_equal(v[0].status, -VB_ETOOLATE);
	assert_int_equal(v[1].status, 0);
	assert_int_equal(v[2].status, 0);
	assert_int_equal(fake_word(THEIRS), 8);
	assert_int_equal(result(&other), 0);
}

/* Whose time is over is not posted, here as little as elsewhere; the rest of its batch is. */
static void too_late(void **state)
{
	struct vb_verb v[4];
	struct vb_batch b = {.verbs = v, .n = 4};
	uint64_t old = 99;

	(void)state;
	open_all();
	for (unsigned i = 0; i < 4; i++) {
		v[i] = at(&atomics[1], i < 2 ? THEIRS : MINE);
		v[i].flags = VB_SIGNALLED;
		v[i].not_after_ns = i % 2 ? vb_ep_now(ep) - 1 : vb_ep_now(ep) + FAKE_LONG_NS;
	}
	assert_int_equal(vb_post(ep, &b), 1);
	assert_int_equal(b.pending, 1);
	assert_int_equal(fake.flying, 1);
	fake_end(0, 0, true);
	assert_int_equal(vb_wait(ep, &b), -VB_ETOOLATE);
	assert_int_equal(v[0].status, 0);
	assert_int_equal(v[1].status, -VB_ETOOLATE);
	assert_int_equal(v[2].status, 0);
	assert_int_equal(v[3].status, -VB_ETOOLATE);
	assert_int_equal(fake_word(THEIRS), 4);
	assert_int_equal(fake_word(MINE), 4);
	assert_int_equal(vb_faa64_before(ep, THEIRS, 1, vb_ep_now(ep) - 1, &old), -VB_ETOOLATE);
	assert_int_equal(old, 99);
	assert_int_equal(fake.posts, 1);
	assert_int_equal(fake_stats().posted, 1);
}

static void refused(void **state)
{
	static uint8_t buf[FAKE_VERB_BYTES + 8];
	struct vb_msg m = {.len = VB_MSG_DATA + 1};
	struct vb_verb v = {.op = VB_OP_SEND, .peer = vb_peer_make(1, 5), .msg = &m};
	uint64_t old;

	(void)state;
	fake.caps_without = VB_CAP_MASKED128 | VB_CAP_NOTIFY;
	open_all();
	FAKE_SAYS(vb_read(ep, vb_addr_make(1, FAKE_NODE_BYTES - 7), buf, 8), -VB_EACCESS,
		  "outside");
	FAKE_SAYS(vb_read(ep, vb_addr_make(1, (1ull << VB_ADDR_OFFSET_BITS) - 1), buf, 8),
		  -VB_EACCESS, "outside");
	FAKE_SAYS(vb_write(ep, vb_addr_make(FAKE_NODES, 0), buf, 8), -VB_EACCESS, "outside");
	FAKE_SAYS(vb_faa64(ep, vb_addr_make(0, FAKE_NODE_BYTES), 1, &old), -VB_EACCESS, "outside");
	FAKE_SAYS(vb_faa64(ep, vb_addr_make(1, 4), 1, &old), -EINVAL, "aligned");
	FAKE_SAYS(vb_write(ep, THEIRS, buf, FAKE_VERB_BYTES + 1), -EINVAL, "split");
	FAKE_SAYS(vb_mcas128(ep, THEIRS, (struct vb_u128){0}, (struct vb_u128){0},
			     (struct vb_u128){0}, (struct vb_u128){0}, &(struct vb_u128){0}),
		  -EOPNOTSUPP, "mcas128");
	FAKE_SAYS(vb_verb_run(ep, &v), -EINVAL, "message");
	m.len = 0;
	v.peer = VB_PEER_NONE;
	assert_int_equal(vb_verb_run(ep, &v), -VB_EPEERGONE);
	v.peer = vb_peer_make(FAKE_NODES, 5);
	assert_int_equal(vb_verb_run(ep, &v), -VB_EPEERGONE);
	v.op = VB_OP_WRITE_NOTIFY;
	v.addr = THEIRS;
	FAKE_SAYS(vb_verb_run(ep, &v), -EOPNOTSUPP, "write-notify");
	fake.f->f.caps.flags |= VB_CAP_NOTIFY;
	v.peer = vb_peer_make(2, 5);
	FAKE_SAYS(vb_verb_run(ep, &v), -EINVAL, "tells an endpoint of the node");
	assert_int_equal(fake.posts, 0);
	assert_int_equal(fake_stats().posted, 0);
}

/* A transport that takes nothing: the post fails as a whole, unless part of the batch is done. */
static void transport_refuses(void **state)
{
	struct vb_verb v[3];
	struct vb_batch b = {.verbs = v, .n = 2};

	(void)state;
	open_all();
	fake.post_err = -ENOMEM;
	for (unsigned i = 0; i < 3; i++) {
		v[i] = at(&atomics[1], i < 2 ? THEIRS : MINE);
		v[i].flags = i != 1 ? VB_SIGNALLED : 0;
	}
	assert_int_equal(vb_post(ep, &b), -ENOMEM);
	b.n = 3;
	assert_int_equal(vb_post(ep, &b), 0);
	assert_int_equal(b.pending, 0);
	assert_int_equal(vb_wait(ep, &b), -ENOMEM);
	assert_int_equal(v[0].status, -ENOMEM);
	assert_int_equal(v[2].status, 0);
	assert_int_equal(fake_word(MINE), 4);
	assert_int_equal(fake_stats().posted, 0);
	assert_int_equal(fake.flushes, 0);
}

/* An atomic in flight to a host that dies is unknown, whether it happened or not; what has not left
 * is known not to have happened; and afterwards nothing is posted to it. */
static void death_in_flight(void **state)
{
	struct vb_msg m = {.len = 1};
	struct vb_verb send = {.op = VB_OP_SEND, .peer = vb_peer_make(1, 5), .msg = &m};
	struct run r[VB_ARRAY_SIZE(atomics)], healthy;
	unsigned posts;

	(void)state;
	open_all();
	assert_true(vb_peer_alive(fake.fabric, vb_peer_make(1, 5)));
	for (unsigned i = 0; i < VB_ARRAY_SIZE(atomics); i++)
		start(&r[i], at(&atomics[i], THEIRS));
	start(&healthy, at(&atomics[1], OTHERS));
	assert_int_equal(fake.flying, VB_ARRAY_SIZE(atomics) + 1);
	fake_dies(1);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(atomics); i++)
		assert_int_equal(result(&r[i]), -VB_EUNKNOWN);
	assert_int_equal(fake.told_gone, 1 << 1);
	posts = fake.posts;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(atomics); i++) {
		struct vb_verb v = at(&atomics[i], vb_addr_make(4, 128)); /* its other node */

		assert_int_equal(vb_verb_run(ep, &v), -VB_EPEERGONE);
	}
	assert_int_equal(vb_verb_run(ep, &send), -VB_EPEERGONE);
	assert_int_equal(vb_send(ep, send.peer, &m), -VB_EPEERGONE);
	assert_int_equal(fake.posts, posts);
	assert_false(vb_peer_alive(fake.fabric, vb_peer_make(1, 5)));
	assert_true(vb_peer_alive(fake.fabric, vb_peer_make(2, 5)));
	/* The others do not notice. */
	assert_false(healthy.over);
	fake_end(0, 0, true);
	assert_int_equal(result(&healthy), 0);
}

/* Both tasks are in one round: the second hears of the death before the doorbell that the first
 * left to the round's end. */
static void killer(void *arg)
{
	(void)arg;
	assert_int_equal(fake.flying, 1);
	assert_false(fake.flight[0]->rung);
	fake_dies(1);
}

static void death_before_doorbell(void **state)
{
	struct vb_task *t;
	struct run r;

	(void)state;
	fake.coalesce = true;
	open_all();
	start_later(&r, at(&atomics[0], THEIRS));
	assert_int_equal(vb_task_spawn(ep->sched, killer, NULL, NULL, &t), 0);
	assert_int_equal(result(&r), -VB_EPEERGONE);
}

/* Whoever has not been buried by the cluster may be stopped, or cut off, and come back. */
static void alive(void **state)
{
	vb_peer p = vb_peer_make(2, 9);

	(void)state;
	open_all();
	assert_true(vb_peer_alive(fake.fabric, p));
	fake_dies(2);
	assert_false(vb_peer_alive(fake.fabric, p));
	assert_false(vb_peer_alive(fake.fabric, VB_PEER_NONE));
	assert_false(vb_peer_alive(fake.fabric, vb_peer_make(FAKE_NODES, 1)));
	/* A rank beyond the cluster's is nobody's. */
	fake_dies(FAKE_HOSTS);
}

/* Completions found by another thread go through the inbox, which grows beyond what it begins
 * with. */
#define MANY 200u

static void *ender(void *arg)
{
	(void)arg;
	for (unsigned i = 0; i < MANY; i++)
		fake_end(0, 0, true);
	return NULL;
}

static void many_by_another_thread(void **state)
{
	static struct run r[MANY];
	pthread_t thread;

	(void)state;
	open_all();
	for (unsigned i = 0; i < MANY; i++)
		start_later(&r[i], at(&atomics[1], THEIRS));
	vb_task_yield();
	assert_int_equal(fake.flying, MANY);
	/* Nobody looks while they come: all of them lie in the inbox at once. */
	assert_int_equal(pthread_create(&thread, NULL, ender, NULL), 0);
	assert_int_equal(pthread_join(thread, NULL), 0);
	for (unsigned i = 0; i < MANY; i++)
		assert_false(r[i].over);
	for (unsigned i = 0; i < MANY; i++)
		assert_int_equal(result(&r[i]), 0);
	assert_int_equal(fake_word(THEIRS), 4 * MANY);
	assert_int_equal(fake_stats().completions, MANY);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		POST(atomics_complete),
		POST(transfers_complete),
		POST(own_memory_by_wire),
		POST(batch_waits_for_all),
		POST(unsignalled_leaves),
		POST(one_doorbell),
		POST(a_doorbell_each),
		POST(limits_share_a_doorbell),
		POST(too_late_at_the_doorbell),
		POST(too_late),
		POST(refused),
		POST(transport_refuses),
		POST(death_in_flight),
		POST(death_before_doorbell),
		POST(alive),
		POST(many_by_another_thread),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
