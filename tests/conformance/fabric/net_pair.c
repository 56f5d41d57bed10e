/* SPDX-License-Identifier: Apache-2.0 */
/*
 * tcp and ucx (the argument) between processes: order, credits, long messages, dead, stopped and busy peers.
 *
 * Where a test is about time, the times are options; where it is not, they are so long that a
 * loaded machine does not matter.
 */
#include "crowd.h"

#include "base/rng.h"

static const char *fabric;

#define PATIENT "bound=10s,silence=25s"
#define GRACE   "grace=10s"
#define TASKS   16u
#define ADDS    100u

static bool is_ucx(void)
{
	return strcmp(fabric, "ucx") == 0;
}

/* ucx alone may lose answers (grace), and lets the receiver of a long message fetch it (eager). */
static const char *with(const char *options, const char *of_ucx)
{
	static char text[160];

	snprintf(text, sizeof(text), "%s%s%s", options, is_ucx() ? "," : "",
		 is_ucx() ? of_ucx : "");
	return text;
}

static void serve(struct crowd *c)
{
	crowd_await(c, 1);
}

static struct vb_verb faa(vb_addr a, uint8_t flags)
{
	return (struct vb_verb){.op = VB_OP_FAA64, .flags = flags, .addr = a, .compare.lo = 1};
}

/* Tries until the host can be reached again. */
static uint64_t read_at_last(struct crowd *c, vb_addr a)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS, word;

	while (vb_read64(c->ep, a, &word) != 0) {
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(c->ep, 10000000) == 0);
	}
	return word;
}

/* ---- order ---- */

/* Batches that are not waited for take effect in the order of their posting, short behind long
 * too. */
static void order_driver(struct crowd *c)
{
	static uint64_t big[8192]; /* beyond the eager limit: comes later than what is behind it */
	const uint32_t n = VB_ARRAY_SIZE(big);

	for (uint64_t i = 1; i <= 200; i++) {
		uint64_t last = 0, word = i, seen = 0;
		struct vb_verb w = {.op = VB_OP_WRITE, .addr = c->a[1], .buf = &word, .len = 8};
		struct vb_verb add = faa(c->a[1], 0), far[1], back[2];
		struct vb_batch first = {.verbs = &w, .n = 1}, second = {.verbs = &add, .n = 1};
		struct vb_batch third = {.verbs = far, .n = 1}, fourth = {.verbs = back, .n = 2};

		for (uint32_t j = 0; j < n; j++)
			big[j] = i * j;
		far[0] = (struct vb_verb){.op = VB_OP_WRITE,
					  .flags = VB_SIGNALLED,
					  .addr = c->a[1] + 64,
					  .buf = big,
					  .len = sizeof(big)};
		back[0] = (struct vb_verb){.op = VB_OP_READ,
					   .flags = VB_SIGNALLED,
					   .addr = c->a[1] + 64 + 8 * (n - 1),
					   .buf = &last,
					   .len = 8};
		back[1] = back[0];
		back[1].addr = c->a[1];
		back[1].buf = &seen;
		crowd_must(vb_post(c->ep, &first) >= 0);
		crowd_must(vb_post(c->ep, &second) >= 0);
		crowd_must(vb_post(c->ep, &third) == 1);
		crowd_must(vb_post(c->ep, &fourth) == 1);
		crowd_must(vb_wait(c->ep, &fourth) == 0 && vb_wait(c->ep, &third) == 0);
		crowd_must(last == i * (n - 1) && seen == i + 1);
	}
	crowd_step(c, 1);
}

static void test_order(void **state)
{
	const crowd_body bodies[] = {order_driver, serve};

	crowd_end(crowd_run(fabric, with(PATIENT ",coalesce=no", GRACE ",eager=8ki"), 2, bodies,
			    CROWD_MAX));
	crowd_end(crowd_run(fabric, with(PATIENT ",window=1", GRACE ",eager=8ki"), 2, bodies,
			    CROWD_MAX));
}

/* Of two hosts the one that is free answers first, for the batch that was posted last. */
static void replies_driver(struct crowd *c)
{
	struct vb_verb one = faa(c->a[1], VB_SIGNALLED), two = faa(c->a[2], VB_SIGNALLED), both[2];
	struct vb_batch first = {.verbs = &one, .n = 1}, second = {.verbs = &two, .n = 1};
	struct vb_batch mixed = {.verbs = both, .n = 2};

	crowd_await_computing(c, 1);
	crowd_must(vb_post(c->ep, &first) == 1);
	both[0] = one;
	both[1] = two;
	crowd_must(vb_post(c->ep, &mixed) == 1);
	crowd_must(vb_post(c->ep, &second) == 1);
	crowd_must(vb_wait(c->ep, &second) == 0 && two.old.lo == 1);
	crowd_must(first.pending == 1 && mixed.pending == 1 && both[1].old.lo == 0);
	crowd_step(c, 1);
	crowd_must(vb_wait(c->ep, &mixed) == 0 && vb_wait(c->ep, &first) == 0);
	crowd_must(one.old.lo == 0 && both[0].old.lo == 1);
	crowd_step(c, 2);
}

static void replies_busy(struct crowd *c)
{
	crowd_compute(c, 1);
	crowd_await(c, 2);
}

static void replies_free(struct crowd *c)
{
	crowd_await(c, 2);
}

static void test_replies(void **state)
{
	const crowd_body bodies[] = {replies_driver, replies_busy, replies_free};

	crowd_end(crowd_run(fabric, with(PATIENT ",helper=0", GRACE), 3, bodies, CROWD_MAX));
}

/* ---- credits ---- */

struct adder {
	struct crowd *c;
	unsigned done, unknown, gone;
};

static void add_body(void *arg)
{
	struct adder *me = arg;
	struct vb_ep *ep;
	uint64_t old;

	crowd_must(vb_ep_open(me->c->f, 0, &ep) == 0);
	for (unsigned i = 0; i < ADDS; i++) {
		struct vb_verb v[2] = {faa(me->c->a[1] + 8, 0), faa(me->c->a[1] + 16, 0)};
		struct vb_batch b = {.verbs = v, .n = 2};
		int err;

		crowd_must(vb_post(ep, &b) >= 0);
		err = vb_faa64(ep, me->c->a[1], 1, &old);
		crowd_must(err == 0 || err == -VB_EUNKNOWN || err == -VB_EPEERGONE);
		me->done += err == 0;
		me->unknown += err == -VB_EUNKNOWN;
		me->gone += err == -VB_EPEERGONE;
	}
	vb_ep_close(ep);
}

static void run_all(struct crowd *c, void (*body)(void *arg), struct adder *adders)
{
	for (unsigned i = 0; i < TASKS; i++) {
		adders[i] = (struct adder){.c = c};
		crowd_must(vb_task_spawn(c->ep->sched, body, &adders[i], NULL, NULL) == 0);
	}
	crowd_must(vb_sched_run(c->ep->sched, NULL, crowd_now() + 2 * CROWD_WAIT_NS) == 0);
}

static void add_all(struct crowd *c, struct adder *adders)
{
	run_all(c, add_body, adders);
}

/* One message at a time and one more that waits: posts wait for room, and nothing is lost. */
static void credits_driver(struct crowd *c)
{
	struct adder adders[TASKS];
	uint64_t word;

	add_all(c, adders);
	for (unsigned i = 0; i < 3; i++) {
		crowd_must(vb_read64(c->ep, c->a[1] + 8 * i, &word) == 0);
		crowd_must(word == TASKS * ADDS);
	}
	crowd_step(c, 1);
}

static void test_credits(void **state)
{
	const crowd_body bodies[] = {credits_driver, serve};
	struct crowd_page *page = crowd_run(
		fabric, with(PATIENT ",window=1,queue=1,coalesce=no", GRACE), 2, bodies, CROWD_MAX);

	assert_true(page->stats[0].waits > 0);
	assert_true(page->stats[0].dropped == 0);
	assert_true(page->stats[1].served >= 3 * TASKS * ADDS);
	crowd_end(page);
	/* What is collected while the window is used up leaves together. */
	page = crowd_run(fabric, with(PATIENT ",window=1", GRACE), 2, bodies, CROWD_MAX);
	assert_true(page->stats[0].posted >= 3 * TASKS * ADDS);
	assert_true(page->stats[0].doorbells < page->stats[0].posted / 3);
	crowd_end(page);
}

/* A peer that does not look: posts end in bounded time, and what they say of the verbs is true. */
static void full_driver(struct crowd *c)
{
	struct adder adders[TASKS];
	uint64_t done = 0, unknown = 0, gone = 0, word;

	crowd_stop(c, 1);
	add_all(c, adders);
	crowd_continue(c, 1);
	for (unsigned i = 0; i < TASKS; i++) {
		done += adders[i].done;
		unknown += adders[i].unknown;
		gone += adders[i].gone;
	}
	crowd_must(done + unknown + gone == TASKS * ADDS && unknown > 0);
	crowd_must(gone == 0 || !is_ucx());
	word = read_at_last(c, c->a[1]);
	crowd_must(word >= done && word <= done + unknown);
	crowd_step(c, 1);
}

static void test_full(void **state)
{
	const crowd_body bodies[] = {full_driver, serve};
	struct crowd_page *page =
		crowd_run(fabric,
			  is_ucx() ? "bound=2ms,grace=2ms,silence=60s,window=2,queue=2,coalesce=no"
				   : "bound=2ms,silence=300ms,window=2,queue=2,coalesce=no",
			  2, bodies, CROWD_MAX);

	assert_true(page->stats[0].dropped > 0);
	crowd_end(page);
}

/* ---- verbs with a time limit ---- */

#define LIMIT_NS 100000000ull

/* In time when it was posted, too late when the window lets its message go: it is not sent, while
 * what shares the message is. */
static void late_driver(struct crowd *c)
{
	struct vb_verb first = faa(c->a[1], VB_SIGNALLED), v[4];
	struct vb_batch one = {.verbs = &first, .n = 1}, two = {.verbs = v, .n = 4};
	struct vb_msg m = {.tag = 1};
	uint64_t limit, word;

	crowd_stop(c, 1);
	crowd_must(vb_post(c->ep, &one) == 1); /* takes the window */
	limit = vb_ep_now(c->ep) + LIMIT_NS;
	v[0] = faa(c->a[1], VB_SIGNALLED);
	v[1] = faa(c->a[1] + 8, 0);
	v[2] = (struct vb_verb){
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = vb_peer_make(1, 1), .msg = &m};
	v[0].not_after_ns = v[1].not_after_ns = v[2].not_after_ns = limit;
	v[3] = faa(c->a[1] + 16, VB_SIGNALLED);
	v[3].not_after_ns = limit + CROWD_WAIT_NS;
	crowd_must(vb_post(c->ep, &two) == 1);
	while (vb_ep_now(c->ep) <= limit)
		crowd_must(vb_ep_sleep_until(c->ep, limit + 1) == 0);
	crowd_continue(c, 1);
	crowd_must(vb_wait(c->ep, &one) == 0 && vb_wait(c->ep, &two) == -VB_ETOOLATE);
	crowd_must(v[0].status == -VB_ETOOLATE && v[2].status == -VB_ETOOLATE);
	crowd_must(v[3].status == 0 && v[3].old.lo == 0);
	for (unsigned i = 0; i < 3; i++)
		crowd_must(vb_read64(c->ep, c->a[1] + 8 * i, &word) == 0 && word == (i != 1));
	crowd_step(c, 1);
}

static void test_late(void **state)
{
	const crowd_body bodies[] = {late_driver, serve};
	struct crowd_page *page =
		crowd_run(fabric, with(PATIENT ",window=1", GRACE), 2, bodies, CROWD_MAX);

	assert_int_equal(page->stats[0].dropped, 1); /* the unsignalled one */
	crowd_end(page);
}

static void limited_body(void *arg)
{
	struct adder *me = arg;
	struct vb_ep *ep;
	uint64_t old;

	crowd_must(vb_ep_open(me->c->f, 0, &ep) == 0);
	for (unsigned i = 0; i < ADDS; i++)
		crowd_must(vb_faa64_before(ep, me->c->a[1], 1, vb_ep_now(ep) + CROWD_WAIT_NS,
					   &old) == 0);
	vb_ep_close(ep);
}

static void limited_driver(struct crowd *c)
{
	struct adder adders[TASKS];
	uint64_t word;

	run_all(c, limited_body, adders);
	crowd_must(vb_read64(c->ep, c->a[1], &word) == 0 && word == TASKS * ADDS);
	crowd_step(c, 1);
}

/* Verbs with a time limit share doorbells as others do. */
static void test_limited(void **state)
{
	const crowd_body bodies[] = {limited_driver, serve};
	struct crowd_page *page = crowd_run(fabric, with(PATIENT, GRACE), 2, bodies, CROWD_MAX);

	assert_true(page->stats[0].posted >= TASKS * ADDS);
	assert_true(page->stats[0].doorbells < page->stats[0].posted / 3);
	crowd_end(page);
}

/* ---- messages and what answers them ---- */

#define TALKS 200u

static void tell_other(struct crowd *c, uint16_t host)
{
	struct vb_msg m = {.tag = 1};
	struct vb_verb v = {
		.op = VB_OP_SEND, .flags = VB_SIGNALLED, .peer = vb_peer_make(host, 1), .msg = &m};

	crowd_must(vb_verb_run(c->ep, &v) == 0);
}

static void hear(struct crowd *c)
{
	struct vb_msg m;

	while (vb_ep_recv(c->ep, &m) != 0)
		crowd_must(vb_ep_wait(c->ep, crowd_now() + CROWD_WAIT_NS) == 0);
}

static void ask_body(void *arg)
{
	for (unsigned i = 0; i < TALKS; i++) {
		tell_other(arg, 1);
		hear(arg);
	}
}

static void reply_body(void *arg)
{
	for (unsigned i = 0; i < TALKS; i++) {
		hear(arg);
		tell_other(arg, 0);
	}
}

static void talk(struct crowd *c, void (*body)(void *arg))
{
	crowd_must(vb_task_spawn(c->ep->sched, body, c, NULL, NULL) == 0);
	crowd_must(vb_sched_run(c->ep->sched, NULL, crowd_now() + 2 * CROWD_WAIT_NS) == 0);
}

static void ask_driver(struct crowd *c)
{
	talk(c, ask_body);
	crowd_step(c, 1);
}

static void reply_driver(struct crowd *c)
{
	talk(c, reply_body);
	crowd_await(c, 1);
}

/* The word that a message has come leaves with the message that answers it: one write, and not two. */
static void test_one_write(void **state)
{
	const crowd_body bodies[] = {ask_driver, reply_driver};
	struct crowd_page *page = crowd_run(fabric, PATIENT, 2, bodies, CROWD_MAX);

	/* Each has sent 200 messages, and 200 answers to the other's. */
	for (unsigned i = 0; i < 2; i++) {
		assert_true(page->stats[i].served >= TALKS);
		assert_true(is_ucx() || page->stats[i].writes >= TALKS);
		assert_true(page->stats[i].writes <= TALKS + TALKS / 2);
	}
	crowd_end(page);
}

static void told_driver(struct crowd *c)
{
	tell_other(c, 1);
	crowd_step(c, 1);
}

static void hear_and_compute(struct crowd *c)
{
	hear(c);
	crowd_compute(c, 1);
}

/* Who has heard it, answers nothing and does not look again: the word that it has come leaves at once. */
static void test_heard(void **state)
{
	const crowd_body bodies[] = {told_driver, hear_and_compute};

	crowd_end(crowd_run(fabric, PATIENT ",helper=0", 2, bodies, CROWD_MAX));
}

/* ---- long messages ---- */

static void long_driver(struct crowd *c)
{
	const uint32_t sizes[] = {8191, 8192, 65536, 300001, 1u << 20};
	uint8_t *out = malloc(1u << 20), *in = malloc(1u << 20);
	struct vb_verb v;
	struct vb_rng rng;

	crowd_must(out != NULL && in != NULL);
	vb_rng_seed(&rng, 5, 1);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		for (uint32_t j = 0; j < sizes[i]; j++)
			out[j] = (uint8_t)vb_rng_next(&rng);
		memset(in, 0, sizes[i]);
		crowd_must(vb_write(c->ep, c->a[1] + 3, out, sizes[i]) == 0);
		crowd_must(vb_read(c->ep, c->a[1] + 3, in, sizes[i]) == 0);
		crowd_must(memcmp(in, out, sizes[i]) == 0);
	}
	v = (struct vb_verb){.op = VB_OP_WRITE, .addr = c->a[1], .buf = out, .len = (1u << 20) + 1};
	crowd_must(vb_verb_run(c->ep, &v) == -EINVAL);
	v.op = VB_OP_READ;
	crowd_must(vb_verb_run(c->ep, &v) == -EINVAL);
	crowd_step(c, 1);
	free(in);
	free(out);
}

static void test_long(void **state)
{
	const crowd_body bodies[] = {long_driver, serve};

	crowd_end(crowd_run(fabric, with(PATIENT, GRACE ",eager=8ki"), 2, bodies, CROWD_MAX));
	if (is_ucx()) {
		crowd_end(
			crowd_run(fabric, with(PATIENT, GRACE ",eager=1mi"), 2, bodies, CROWD_MAX));
		crowd_end(crowd_run(fabric, with(PATIENT, GRACE ",eager=0"), 2, bodies, CROWD_MAX));
	} else {
		crowd_end(crowd_run(fabric, PATIENT ",seal=always", 2, bodies, CROWD_MAX));
	}
}

/* ---- death ---- */

/* Killed with batches in flight and others collected: every verb ends, and says what is known. */
static void killed_driver(struct crowd *c)
{
	struct vb_verb v[4][3];
	struct vb_batch b[4];
	uint64_t begin, old, word;
	unsigned unknown = 0, gone = 0;

	crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == 0);
	crowd_must(!vb_node_gone(c->ep->fabric, vb_addr_node(c->a[1])));
	crowd_stop(c, 1);
	for (unsigned i = 0; i < 4; i++) {
		for (unsigned j = 0; j < 3; j++)
			v[i][j] = faa(c->a[1] + 8 * j, VB_SIGNALLED);
		b[i] = (struct vb_batch){.verbs = v[i], .n = 3};
		crowd_must(vb_post(c->ep, &b[i]) == 1);
	}
	begin = crowd_now();
	crowd_must(kill(c->page->pid[1], SIGKILL) == 0);
	for (unsigned i = 0; i < 4; i++) {
		crowd_must(vb_wait(c->ep, &b[i]) != 0);
		for (unsigned j = 0; j < 3; j++) {
			crowd_must(v[i][j].status == -VB_EUNKNOWN ||
				   v[i][j].status == -VB_EPEERGONE);
			unknown += v[i][j].status == -VB_EUNKNOWN;
			gone += v[i][j].status == -VB_EPEERGONE;
		}
	}
	/* Two messages of one batch each were on their way, the others waited for the window. */
	crowd_must(unknown == 6 && gone == 6);
	crowd_must(crowd_now() - begin <
		   10000000000ull); /* of the 20 s that bound and grace allow */
	begin = crowd_now();
	for (unsigned i = 0; i < 100; i++)
		crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == -VB_EPEERGONE);
	crowd_must(crowd_now() - begin < 5000000000ull);
	/* As soon as the cluster knows it. */
	while (!vb_node_gone(c->ep->fabric, vb_addr_node(c->a[1]))) {
		crowd_must(crowd_now() - begin < 60000000000ull);
		crowd_must(vb_ep_sleep(c->ep, 1000000) == 0);
	}
	/* The living are not concerned. */
	crowd_must(vb_read64(c->ep, c->a[2], &word) == 0);
	crowd_must(!vb_node_gone(c->ep->fabric, vb_addr_node(c->a[2])));
	crowd_step(c, 1);
}

static void test_killed(void **state)
{
	const crowd_body bodies[] = {killed_driver, serve, serve};

	crowd_end(crowd_run(fabric, with(PATIENT ",window=2,coalesce=no", GRACE), 3, bodies, 1));
}

/* ---- a peer that stands still ---- */

/* Stopped for longer than the bound, then continued, on the same connection: what it finds then
 * does not happen any more. */
static void stopped_driver(struct crowd *c)
{
	uint64_t old, done = 0, refused = 0;

	for (unsigned round = 0; round < 10; round++) {
		struct vb_verb v = faa(c->a[1], 0), late = faa(c->a[1], 0);
		struct vb_batch b = {.verbs = &v, .n = 1};
		struct vb_msg m = {.tag = 1};
		int err;

		crowd_stop(c, 1);
		crowd_must(vb_post(c->ep, &b) >= 0); /* an unsignalled one comes late as well */
		late.not_after_ns = vb_ep_now(c->ep) + CROWD_WAIT_NS;
		crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == -VB_EUNKNOWN);
		crowd_must(vb_verb_run(c->ep, &late) == -VB_EUNKNOWN);
		crowd_must(vb_send_wait(c->ep, vb_peer_make(1, 1), &m) == -VB_EUNKNOWN);
		crowd_continue(c, 1);
		/* With the first answer the connection is known to have brought all before it. */
		while ((err = vb_faa64(c->ep, c->a[1] + 8, 1, &old)) != 0)
			crowd_must(err == -VB_EUNKNOWN && ++refused < 10000);
		done++;
		crowd_must(read_at_last(c, c->a[1]) == 0);
	}
	crowd_step(c, 1);
}

#define STOPPED_NS 60000000ull

/* The same on a connection that loses nothing: its answers say that nothing has happened. */
static void answered_driver(struct crowd *c)
{
	for (unsigned round = 0; round < 5; round++) {
		struct vb_msg m = {.tag = 1};
		struct vb_verb plain = faa(c->a[1], 0), v[3];
		struct vb_batch first = {.verbs = &plain, .n = 1}, all = {.verbs = v, .n = 3};
		uint64_t until;

		(void)read_at_last(c, c->a[1]);
		crowd_stop(c, 1);
		v[0] = faa(c->a[1], VB_SIGNALLED);
		v[1] = faa(c->a[1], VB_SIGNALLED);
		v[1].not_after_ns = vb_ep_now(c->ep) + CROWD_WAIT_NS;
		v[2] = (struct vb_verb){.op = VB_OP_SEND,
					.flags = VB_SIGNALLED,
					.peer = vb_peer_make(1, 1),
					.msg = &m};
		crowd_must(vb_post(c->ep, &first) >= 0);
		crowd_must(vb_post(c->ep, &all) == 1);
		until = vb_ep_now(c->ep) + STOPPED_NS;
		while (vb_ep_now(c->ep) < until)
			crowd_must(vb_ep_sleep_until(c->ep, until) == 0);
		crowd_must(all.pending == 3);
		crowd_continue(c, 1);
		crowd_must(vb_wait(c->ep, &all) != 0);
		crowd_must(v[0].status == -VB_EUNKNOWN && v[1].status == -VB_ETOOLATE &&
			   v[2].status == -EAGAIN);
		crowd_must(read_at_last(c, c->a[1]) == 0);
	}
	crowd_step(c, 1);
}

static void test_stopped(void **state)
{
	const crowd_body bodies[] = {is_ucx() ? stopped_driver : answered_driver, serve};
	struct crowd_page *page = crowd_run(fabric, with("bound=20ms,silence=60s", "grace=20ms"), 2,
					    bodies, CROWD_MAX);

	/* The unsignalled FAA, two more and the message, each round. */
	assert_true(page->stats[1].refused >= (is_ucx() ? 40 : 20));
	crowd_end(page);
}

/* ---- one doorbell ---- */

#define HALF_NS        10000000ull /* of the bound */
#define TOGETHER       25u
#define ROUNDS_AT_MOST 1000u

static void rest_ns(struct crowd *c, uint64_t ns)
{
	uint64_t until = vb_ep_now(c->ep) + ns;

	while (vb_ep_now(c->ep) < until)
		crowd_must(vb_ep_sleep_until(c->ep, until) == 0);
}

/* A record is written and its lock let go, behind another's verb that has left no room for both.  True: the
 * lock was not let go. */
static bool together_once(struct crowd *c, uint64_t rest)
{
	static char other[8000], record[8352];
	const vb_addr lock = c->a[1], at = lock + 64, beside = lock + 32768;
	const uint64_t held = 1, none = 0;
	struct vb_verb first = faa(beside, VB_SIGNALLED), second, v[2];
	struct vb_batch one = {.verbs = &first, .n = 1}, two = {.verbs = &second, .n = 1},
			both = {.verbs = v, .n = 2};
	uint64_t word, written;

	while (vb_write(c->ep, lock, &held, 8) != 0 || vb_write(c->ep, at, &none, 8) != 0)
		rest_ns(c, HALF_NS);
	memset(record, 1, sizeof(record));
	crowd_stop(c, 1);
	crowd_must(vb_post(c->ep, &one) == 1); /* takes the window */
	second = (struct vb_verb){.op = VB_OP_WRITE,
				  .flags = VB_SIGNALLED,
				  .addr = beside,
				  .buf = other,
				  .len = sizeof(other)};
	crowd_must(vb_post(c->ep, &two) == 1);
	rest_ns(c, HALF_NS);
	v[0] = (struct vb_verb){.op = VB_OP_WRITE,
				.flags = VB_SIGNALLED,
				.addr = at,
				.buf = record,
				.len = sizeof(record)};
	v[1] = (struct vb_verb){.op = VB_OP_CAS64,
				.flags = VB_SIGNALLED,
				.addr = lock,
				.compare.lo = held,
				.swap.lo = 2};
	crowd_must(vb_post(c->ep, &both) == 1);
	rest_ns(c, rest);
	crowd_continue(c, 1);
	(void)vb_wait(c->ep, &both);
	(void)vb_wait(c->ep, &two);
	(void)vb_wait(c->ep, &one);
	while (vb_read64(c->ep, lock, &word) != 0 || vb_read64(c->ep, at, &written) != 0)
		rest_ns(c, HALF_NS);
	crowd_must(word == held || (word == 2 && written != 0));
	crowd_must((v[1].status == 0) == (word == 2));
	return word == held;
}

/* From when all of it is in time to when none of it is. */
static void together_driver(struct crowd *c)
{
	unsigned in_time = 0, late = 0, n = 0;

	while ((in_time < TOGETHER || late < TOGETHER) && n++ < ROUNDS_AT_MOST) {
		if (together_once(c, (n % 13) * (HALF_NS / 5)))
			late++;
		else
			in_time++;
	}
	crowd_must(in_time >= TOGETHER && late >= TOGETHER);
	crowd_step(c, 1);
}

/* Behind a verb that comes too late the later ones of its batch do not happen either. */
static void test_together(void **state)
{
	const crowd_body bodies[] = {together_driver, serve};

	crowd_end(crowd_run(fabric, with("bound=20ms,silence=60s,window=1", "grace=60s"), 2, bodies,
			    CROWD_MAX));
}

/* Stopped for so long that the connection is given up: posts fail at once, and work again by
 * themselves when it is back. */
static void silent_driver(struct crowd *c)
{
	uint64_t old, until = crowd_now() + CROWD_WAIT_NS, begin;
	int err;

	/* Who asks again for so long has it back: `retry`, and a bound. */
	crowd_must(c->f->caps.relink_ns == 70000000);
	for (unsigned round = 0; round < 3; round++) {
		uint64_t before = read_at_last(c, c->a[1]);

		crowd_stop(c, 1);
		while ((err = vb_faa64(c->ep, c->a[1], 1, &old)) != -VB_EPEERGONE)
			crowd_must(err == -VB_EUNKNOWN && crowd_now() < until);
		begin = crowd_now();
		for (unsigned i = 0; i < 100; i++)
			crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == -VB_EPEERGONE);
		crowd_must(crowd_now() - begin < 5000000000ull);
		/* The last one that was sent may happen until its bound. */
		crowd_must(vb_ep_sleep(c->ep, c->f->caps.verb_bound_ns) == 0);
		crowd_continue(c, 1);
		crowd_must(read_at_last(c, c->a[1]) == before);
		while (vb_faa64(c->ep, c->a[1], 1, &old) != 0)
			crowd_must(crowd_now() < until);
	}
	crowd_step(c, 1);
}

static void test_silent(void **state)
{
	const crowd_body bodies[] = {silent_driver, serve};

	crowd_end(crowd_run(fabric, with("bound=20ms,silence=200ms,retry=50ms", "grace=20ms"), 2,
			    bodies, CROWD_MAX));
}

/* ---- a peer that computes ---- */

static void compute(struct crowd *c)
{
	crowd_compute(c, 1);
}

static void helped_driver(struct crowd *c)
{
	uint64_t old;

	crowd_await_computing(c, 1);
	for (uint64_t i = 0; i < 50; i++) {
		crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == 0 && old == i);
		if (i % 10 == 9)
			crowd_must(vb_ep_sleep(c->ep, 5000000) == 0);
	}
	crowd_step(c, 1);
}

static void unhelped_driver(struct crowd *c)
{
	uint64_t old;

	crowd_await_computing(c, 1);
	crowd_must(vb_faa64(c->ep, c->a[1], 1, &old) == -VB_EUNKNOWN);
	crowd_step(c, 1);
}

static void test_helper(void **state)
{
	const crowd_body helped[] = {helped_driver, compute};
	const crowd_body unhelped[] = {unhelped_driver, compute};
	struct crowd_page *page = crowd_run(fabric, with(PATIENT, GRACE), 2, helped, CROWD_MAX);

	assert_true(page->stats[1].served_late >= 50);
	crowd_end(page);
	/* That it was the helper, and nobody else. */
	page = crowd_run(fabric,
			 is_ucx() ? "helper=0,bound=100ms,grace=100ms,silence=25s"
				  : "helper=0,bound=100ms,silence=300ms",
			 2, unhelped, CROWD_MAX);
	assert_int_equal(page->stats[1].served_late, 0);
	crowd_end(page);
}

int main(int argc, char **argv)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_order),   cmocka_unit_test(test_replies),
		cmocka_unit_test(test_credits), cmocka_unit_test(test_full),
		cmocka_unit_test(test_long),    cmocka_unit_test(test_killed),
		cmocka_unit_test(test_stopped), cmocka_unit_test(test_silent),
		cmocka_unit_test(test_helper),  cmocka_unit_test(test_late),
		cmocka_unit_test(test_limited), cmocka_unit_test(test_one_write),
		cmocka_unit_test(test_heard),   cmocka_unit_test(test_together),
	};

	fabric = argc > 1 ? argv[1] : "tcp";
	if (crowd_absent(fabric))
		return 77;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
