/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The fabric `verbs` between processes, on one device each: verbs both ways, messages to one that
 * sleeps, stands still or dies, connections that break and come back.
 */
#include "verbs_procs.h"

#if !VB_HAVE_IBVERBS
int main(void)
{
	puts("1..1\nok 1 - verbs-two # SKIP built without libibverbs' headers (libibverbs-dev)");
	return 0;
}
#else
#include "fabric/verbs/inner.h"

#define ADDS     400u
#define MESSAGES 150u

static uint64_t read_word(struct proc *me, vb_addr a)
{
	uint64_t v = 0;

	must(vb_read64(me->ep, a, &v) == 0);
	return v;
}

static int add(struct proc *me, vb_addr a)
{
	uint64_t old;

	return vb_faa64(me->ep, a, 1, &old);
}

/* ---- all to all ---- */

static void send_to_all(struct proc *me, unsigned n, unsigned i)
{
	for (unsigned r = 0; r < n; r++) {
		struct vb_msg m = {.imm = i, .tag = (uint16_t)me->rank};

		if (r != me->rank)
			must(vb_send_wait(me->ep, me->b->number[r], &m) == 0);
	}
}

static void everybody(struct proc *me, unsigned n)
{
	unsigned next[PROCS_MAX] = {0};
	uint8_t block[5000];
	struct vb_msg m;

	me->b->number[me->rank] = me->ep->self;
	step(me->b, 0);
	await_step(me, 0, n);
	memset(block, (int)me->rank + 1, sizeof(block));
	for (unsigned i = 0; i < ADDS; i++) {
		for (unsigned r = 0; r < n; r++)
			must(add(me, me->at[r]) == 0);
		if (i % 20 == 0) {
			send_to_all(me, n, i / 20);
			for (unsigned r = 0; r < n; r++)
				must(vb_write(me->ep, me->at[r] + 8192 * (me->rank + 1), block,
					      sizeof(block)) == 0);
		}
	}
	/* From each in order, all of them. */
	for (unsigned got = 0; got < (n - 1) * ADDS / 20; got++) {
		proc_take(me, &m);
		must(m.tag < n && m.tag != me->rank && m.from == me->b->number[m.tag]);
		must(m.imm == next[m.tag]++);
	}
	step(me->b, 1);
	await_step(me, 1, n);
	for (unsigned r = 0; r < n; r++) {
		must(read_word(me, me->at[r]) == n * ADDS);
		for (unsigned who = 0; who < n; who++) {
			must(vb_read(me->ep, me->at[r] + 8192 * (who + 1), block, sizeof(block)) ==
			     0);
			for (unsigned k = 0; k < sizeof(block); k++)
				must(block[k] == who + 1);
		}
	}
	step(me->b, 2);
	await_step(me, 2, n);
}

static void everybody_of_two(struct proc *me)
{
	everybody(me, 2);
}

static void everybody_of_four(struct proc *me)
{
	everybody(me, 4);
}

static void test_two(void **state)
{
	const proc_body body[] = {everybody_of_two, everybody_of_two};
	struct procs ps;

	(void)state;
	procs_start(&ps, 2, "", body);
	procs_end(&ps);
}

static void test_four(void **state)
{
	const proc_body body[] = {everybody_of_four, everybody_of_four, everybody_of_four,
				  everybody_of_four};
	struct procs ps;

	(void)state;
	procs_start(&ps, 4, "lanes=2", body);
	procs_end(&ps);
}

/* ---- a receiver that does not look ---- */

static void sleeper(struct proc *me)
{
	unsigned came = 0;
	uint32_t last = 0;
	struct vb_msg m;

	me->b->number[1] = me->ep->self;
	step(me->b, 0);
	must(doze_until(me->b, 1, 1)); /* its credits run out meanwhile */
	for (;;) {
		proc_take(me, &m);
		must(m.imm > last);
		last = m.imm;
		if (m.tag == 9)
			break;
		came++;
	}
	must(came == me->b->number[2]);
	step(me->b, 2);
	await_step(me, 3, 1);
}

static void sender_to_sleeper(struct proc *me)
{
	struct vb_fabric_stats s;
	uint64_t begin, longest = 0;
	unsigned refused = 0;

	await_step(me, 0, 1);
	for (unsigned i = 1; i <= MESSAGES; i++) {
		struct vb_msg m = {.imm = i};
		int err = vb_send(me->ep, me->b->number[1], &m);

		must(err == 0 || err == -EAGAIN); /* no credit: it is said at once, and dropped */
		refused += err != 0;
		/* The connection is not held up by what nobody takes out. */
		begin = vb_ep_now(me->ep);
		must(add(me, me->at[1]) == 0);
		if (vb_ep_now(me->ep) - begin > longest)
			longest = vb_ep_now(me->ep) - begin;
	}
	must(longest < me->f->caps.verb_bound_ns);
	me->f->ops->stats(me->f, &s);
	must(refused > 0 && s.dropped == refused && refused < MESSAGES && s.waits >= refused);
	must(vb_send_wait(me->ep, me->b->number[1], &(struct vb_msg){.imm = 1}) == -EAGAIN);
	me->b->number[2] = MESSAGES - refused;
	step(me->b, 1);
	/* It looks again, and everything is as before. */
	for (uint64_t until = vb_ep_now(me->ep) + STEP_NS;;) {
		struct vb_msg m = {.imm = MESSAGES + 1, .tag = 9};
		int err = vb_send_wait(me->ep, me->b->number[1], &m);

		if (err == 0)
			break;
		must(err == -EAGAIN && vb_ep_now(me->ep) < until);
	}
	await_step(me, 2, 1);
	must(read_word(me, me->at[1]) == MESSAGES);
	step(me->b, 3);
}

static void test_sleeper(void **state)
{
	const proc_body body[] = {sender_to_sleeper, sleeper};
	struct procs ps;

	(void)state;
	procs_start(&ps, 2, "credits=32", body);
	procs_end(&ps);
}

/* ---- one that is stopped ---- */

static void stopped(struct proc *me)
{
	struct vb_msg m;

	me->b->number[1] = me->ep->self;
	step(me->b, 0);
	do
		proc_take(me, &m);
	while (m.tag != 9);
	must(read_word(me, me->at[1]) >= 1);
	step(me->b, 4);
	await_step(me, 5, 1);
}

static void beside_stopped(struct proc *me)
{
	uint64_t begin;

	await_step(me, 0, 1);
	must(vb_send_wait(me->ep, me->b->number[1], &(struct vb_msg){.imm = 1}) == 0);
	step(me->b, 1);
	must(doze_until(me->b, 2, 1));
	/* Its memory needs nothing of it; its answer does. */
	must(add(me, me->at[1]) == 0);
	begin = vb_ep_now(me->ep);
	must(vb_send_wait(me->ep, me->b->number[1], &(struct vb_msg){.imm = 2}) == -VB_EUNKNOWN);
	must(vb_ep_now(me->ep) - begin >= me->f->caps.verb_bound_ns);
	must(add(me, me->at[1]) == 0);
	step(me->b, 3);
	for (;;) {
		int err = vb_send_wait(me->ep, me->b->number[1], &(struct vb_msg){.tag = 9});

		if (err == 0)
			break;
		must(err == -VB_EUNKNOWN || err == -EAGAIN);
	}
	await_step(me, 4, 1);
	must(read_word(me, me->at[1]) == 2);
	step(me->b, 5);
}

static void test_stopped(void **state)
{
	const proc_body body[] = {beside_stopped, stopped};
	struct procs ps;

	(void)state;
	procs_start(&ps, 2, "", body);
	assert_true(doze_until(ps.b, 1, 1));
	assert_int_equal(kill(ps.pid[1], SIGSTOP), 0);
	step(ps.b, 2);
	assert_true(doze_until(ps.b, 3, 1));
	assert_int_equal(kill(ps.pid[1], SIGCONT), 0);
	procs_end(&ps);
}

/* ---- one that dies ---- */

static void victim(struct proc *me)
{
	step(me->b, 0);
	await_step(me, 15, 1); /* never */
}

/* Verbs all the time, until they fail; every one of them ends, in time. */
static void survivor(struct proc *me)
{
	struct vb_verb v[16];
	uint64_t begin, end;
	bool unknown = false;
	unsigned done = 0;

	await_step(me, 0, 1);
	do {
		for (unsigned i = 0; i < 16; i++)
			v[i] = (struct vb_verb){.op = VB_OP_FAA64,
						.flags = VB_SIGNALLED,
						.addr = me->at[1],
						.compare.lo = 1};
		begin = vb_ep_now(me->ep);
		(void)vb_post_wait(me->ep, v, 16);
		end = vb_ep_now(me->ep);
		if (done++ == 20)
			step(me->b, 1);
	} while (v[15].status == 0);
	for (unsigned i = 0; i < 16; i++) {
		must(v[i].status == 0 || v[i].status == -VB_EUNKNOWN ||
		     v[i].status == -VB_EPEERGONE);
		unknown |= v[i].status == -VB_EUNKNOWN;
	}
	must(end - begin < 5 * me->f->caps.verb_bound_ns);
	/* Now it is known to be gone, and nothing is tried any more. */
	begin = vb_ep_now(me->ep);
	for (unsigned i = 0; i < 100; i++) {
		must(add(me, me->at[1]) == -VB_EPEERGONE);
		must(vb_send_wait(me->ep, vb_peer_make(1, 1), &(struct vb_msg){0}) ==
		     -VB_EPEERGONE);
	}
	must(vb_ep_now(me->ep) - begin < me->f->caps.verb_bound_ns);
	/* The living are there. */
	must(add(me, me->at[0]) == 0 && read_word(me, me->at[0]) == 1);
	me->b->number[0] = unknown;
}

static void test_killed(void **state)
{
	const proc_body body[] = {survivor, victim};
	struct procs ps;

	(void)state;
	procs_start(&ps, 2, "", body);
	assert_true(doze_until(ps.b, 1, 1));
	procs_kill(&ps, 1);
	procs_end(&ps);
}

/* ---- connections that break while both live ---- */

static void break_off(struct proc *me, unsigned peer)
{
	struct net_fabric *f = net_of(me->f);
	struct verbs *w = verbs_of(f);

	pthread_mutex_lock(&f->engine);
	verbs_break(w, &w->hosts[peer], VERBS_DOWN);
	verbs_done_flush(w);
	pthread_mutex_unlock(&f->engine);
}

/* Adds until it has done so n times, however often the way is gone meanwhile.  An unknown one may
 * have happened, or not. */
static void add_through(struct proc *me, unsigned peer, unsigned n, uint64_t *unknown)
{
	uint64_t until = vb_ep_now(me->ep) + STEP_NS;

	for (unsigned done = 0; done < n;) {
		int err = add(me, me->at[peer] + 64 * me->rank);

		must(err == 0 || err == -VB_EUNKNOWN || err == -VB_EPEERGONE);
		must(vb_ep_now(me->ep) < until);
		done += err == 0;
		*unknown += err == -VB_EUNKNOWN;
		if (err != 0)
			must(vb_ep_sleep(me->ep, 2000000) == 0);
	}
}

static void message_through(struct proc *me, unsigned peer)
{
	struct vb_msg m;
	int err;

	do
		err = vb_send_wait(me->ep, me->b->number[peer], &(struct vb_msg){.tag = 9});
	while (err == -VB_EPEERGONE || err == -VB_EUNKNOWN || err == -EAGAIN);
	must(err == 0);
	do
		proc_take(me, &m);
	while (m.tag != 9);
}

/* Rank 0 breaks it in the first round, rank 1 in the second, both in the third. */
static void breaker(struct proc *me)
{
	unsigned peer = 1 - me->rank;
	uint64_t unknown = 0, sum;

	me->b->number[me->rank] = me->ep->self;
	step(me->b, 0);
	await_step(me, 0, 2);
	for (unsigned round = 0; round < 6; round++) {
		add_through(me, peer, 20, &unknown);
		if (round % 3 == me->rank || round % 3 == 2)
			break_off(me, peer);
		add_through(me, peer, 20, &unknown);
		step(me->b, 1);
		await_step(me, 1, 2 * (round + 1));
	}
	message_through(me, peer);
	sum = read_word(me, me->at[peer] + 64 * me->rank);
	must(sum >= 240 && sum <= 240 + unknown);
	step(me->b, 2);
	await_step(me, 2, 2);
}

static void test_breaks(void **state)
{
	const proc_body body[] = {breaker, breaker};
	struct procs ps;

	(void)state;
	procs_start(&ps, 2, "lanes=2", body);
	procs_end(&ps);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_two),     cmocka_unit_test(test_four),
		cmocka_unit_test(test_sleeper), cmocka_unit_test(test_stopped),
		cmocka_unit_test(test_killed),  cmocka_unit_test(test_breaks),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
#endif
