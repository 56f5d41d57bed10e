/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An elastic cluster: clients that come before their servers, talk to each other through them, lose their
 * connections, and come and go by the hundred.
 */
#include "elastic.h"

/* A verb that is late because the machine is busy does not happen, and it is not what is looked at here. */
#define PATIENT ",bound=2s"

/* ---- coming ---- */

static void test_before_the_server(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 2, PATIENT);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		uint64_t begun = vb_clock_gettime_ns(), old = 77;
		struct vb_ep *ep;
		vb_addr a;
		bool fresh;

		MUST_BE(-ETIMEDOUT, open_client_as(&w, w.key, ",patience=50ms", &f));
		MUST(vb_clock_gettime_ns() - begun >= 50 * MS);
		add(&w.b->step[0]);
		MUST_BE(0, open_client(&w, &f));
		/* What it was not told when it was opened. */
		MUST(f->nodes == 2 && f->node_bytes == NODE_BYTES);
		MUST_BE(0, vb_ep_open(f, 1, &ep));
		MUST_BE(0, vb_region(f, 1, "word", 64, &a, &fresh));
		MUST(fresh);
		MUST_BE(0, vb_faa64(ep, a, 5, &old));
		MUST(old == 0);
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	servers_start(&w, NULL);
	ended(pid);
	world_close(&w);
	(void)state;
}

static void test_without_the_key(void **state)
{
	struct world w, other;
	pid_t pid;

	world_open(&w, 1, PATIENT);
	world_open(&other, 1, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;

		MUST_BE(-ETIMEDOUT, open_client_as(&w, other.key, ",patience=300ms", &f));
		MUST_BE(-EINVAL,
			vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
								  .options = "servers=127.0.0.1:1"},
				       &f));
		MUST_BE(-EACCES, open_client_as(&w, "/nowhere/key", "", &f));
		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	look_again(&w, 0);
	assert_true(get(&w.b->server[0].refused) > 0);
	world_close(&w);
	world_close(&other);
	(void)state;
}

/* Who names other servers would look for nodes where they are not. */
static void test_another_list(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct world other = w;
		struct vb_fabric *f;

		snprintf(other.list + strlen(other.list), sizeof(other.list) - strlen(other.list),
			 "+127.0.0.1:1");
		MUST_BE(-EPROTO, open_client(&other, &f));
		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

/* ---- letters ---- */

#define LETTERS 1500u

/* Numbered messages to the endpoint in word[0], all of them; -EAGAIN is counted. */
static void send_all(struct world *w, struct vb_ep *ep, uint32_t n, bool all)
{
	vb_peer to = get(&w->b->word[0]);
	struct vb_msg m = {.tag = 3, .len = 4};

	for (m.imm = 0; m.imm < n;) {
		int err = vb_send_wait(ep, to, &m);

		if (err == -EAGAIN) {
			add(&w->b->step[2]);
			if (!all)
				return;
			MUST_BE(0, vb_ep_sleep(ep, MS));
			continue;
		}
		/* The link to the home was cut: it says that nothing was done, or that it may have been. */
		if (err == -VB_EPEERGONE) {
			MUST_BE(0, vb_ep_sleep(ep, MS));
			continue;
		}
		if (err == -VB_EUNKNOWN) {
			add(&w->b->step[3]);
			continue;
		}
		MUST_BE(0, err);
		m.imm++;
	}
}

/* Each, in order; one whose sender did not know may come twice in a row. */
static void receive_all(struct world *w, struct vb_ep *ep, uint32_t n)
{
	uint32_t next = 0, twice = 0;
	struct vb_msg m;

	while (next < n) {
		int err = vb_ep_recv(ep, &m);

		if (err == -EAGAIN) {
			MUST_BE(0, vb_ep_wait(ep, vb_ep_now(ep) + WAIT_NS));
			continue;
		}
		MUST_BE(0, err);
		MUST(m.tag == 3 && m.len == 4);
		if (m.imm + 1 == next)
			twice++;
		else
			MUST(m.imm == next++);
	}
	MUST(twice <= get(&w->b->step[3]));
}

/* Two clients; the one that receives waits until the other's box is full. */
static void test_letters(void **state)
{
	struct world w;
	pid_t from, to;

	world_open(&w, 2, PATIENT);
	servers_start(&w, NULL);
	to = child();
	if (to == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 1, &ep));
		set(&w.b->word[0], ep->self);
		add(&w.b->step[0]);
		while (!get(&w.b->step[2]))
			MUST_BE(0, vb_ep_sleep(ep, MS));
		receive_all(&w, ep, NET_RING);
		add(&w.b->step[1]);
		receive_all(&w, ep, LETTERS);
		vb_ep_close(ep);
		add(&w.b->step[4]);
		while (!get(&w.b->step[5]))
			usleep(1000);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	from = child();
	if (from == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;
		int err;

		while (!get(&w.b->step[0]))
			usleep(1000);
		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		send_all(&w, ep, 2 * NET_RING, false);
		MUST(get(&w.b->step[2]) == 1);
		while (!get(&w.b->step[1]))
			MUST_BE(0, vb_ep_sleep(ep, MS));
		send_all(&w, ep, LETTERS, true);
		while (!get(&w.b->step[4]))
			MUST_BE(0, vb_ep_sleep(ep, MS));
		/* Its home says that the endpoint is no more, as soon as it has heard, while its process
		 * lives. */
		while ((err = vb_send_wait(ep, get(&w.b->word[0]), &(struct vb_msg){.tag = 3})) ==
		       0)
			MUST_BE(0, vb_ep_sleep(ep, MS));
		MUST_BE(-VB_EPEERGONE, err);
		MUST(!vb_peer_alive(f, get(&w.b->word[0])));
		MUST(vb_peer_alive(f, ep->self));
		vb_ep_close(ep);
		add(&w.b->step[5]);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(from);
	ended(to);
	await(get(&w.b->server[0].members) == 0 && get(&w.b->server[1].members) == 0);
	look_again(&w, 1);
	assert_int_equal(get(&w.b->server[1].boxes), 0);
	world_close(&w);
	(void)state;
}

/* The network breaks while messages are under way, again and again. */
static void test_cut(void **state)
{
	struct world w;
	pid_t from, to;

	world_open(&w, 2, PATIENT ",retry=8ms");
	servers_start(&w, NULL);
	to = child();
	if (to == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;

		MUST_BE(0, open_client_as(&w, w.key, ",retry=8ms", &f));
		MUST_BE(0, vb_ep_open(f, 1, &ep));
		set(&w.b->word[0], ep->self);
		add(&w.b->step[0]);
		receive_all(&w, ep, LETTERS);
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		add(&w.b->step[1]);
		_exit(0);
	}
	from = child();
	if (from == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;

		while (!get(&w.b->step[0]))
			usleep(1000);
		MUST_BE(0, open_client_as(&w, w.key, ",retry=8ms", &f));
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		send_all(&w, ep, LETTERS, true);
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	for (unsigned i = 0; i < 12 && !get(&w.b->step[1]); i++) {
		set(&w.b->cut[i % 2], 1);
		await(!get(&w.b->cut[i % 2]));
		usleep(20000);
	}
	ended(from);
	ended(to);
	await(get(&w.b->server[0].members) == 0 && get(&w.b->server[1].members) == 0);
	world_close(&w);
	(void)state;
}

/* ---- away for too long ---- */

/* Whom a server has given up the others know for dead, and so it is there, although it has its home elsewhere. */
static void test_given_up(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 2, PATIENT ",linger=200ms");
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;
		uint64_t begun, old;
		vb_addr a;
		bool fresh;

		/* It tries again after an eighth of that. */
		MUST_BE(0, open_client_as(&w, w.key, ",retry=4s", &f));
		MUST_BE(0, vb_ep_open(f, 1, &ep));
		MUST_BE(0, vb_region(f, 0, "word", 64, &a, &fresh));
		begun = vb_ep_now(ep);
		/* A server that was held up for longer than that has not given us up: once more. */
		for (uint64_t i = 0; !vb_node_gone(f, 0); i++) {
			if (i % 1000 == 0)
				set(&w.b->cut[0], 1);
			MUST(vb_ep_now(ep) < begun + WAIT_NS);
			MUST_BE(0, vb_ep_sleep(ep, MS));
		}
		MUST_BE(-VB_EPEERGONE, vb_faa64(ep, a, 1, &old));
		MUST(!vb_node_gone(f, 1));
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		MUST_BE(0, vb_faa64(ep, a, 1, &old));
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

/* A server that has had no WELCOME for a while greets again, over the same connection: to a client that is
 * up by then nothing has happened. */
static void test_greeted_twice(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		struct vb_ep *ep;
		uint64_t old;
		vb_addr a;
		bool fresh;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		MUST_BE(0, vb_region(f, 0, "word", 64, &a, &fresh));
		set(&w.b->greet[0], 1);
		while (get(&w.b->greet[0])) {
			MUST(!vb_node_gone(f, 0));
			MUST_BE(0, vb_ep_sleep(ep, MS));
		}
		MUST(!vb_node_gone(f, 0));
		MUST_BE(0, vb_faa64(ep, a, 1, &old));
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

/* ---- time ---- */

/* All processes here have one clock, but for their calibrations; what a client is told of it is true to
 * within the error that it is told. */
static void test_common_time(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 2, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		uint64_t error = UINT64_MAX, before, common, after, begun;
		struct vb_fabric *f;
		struct vb_ep *ep;

		MUST_BE(0, open_client(&w, &f));
		MUST_BE(0, vb_ep_open(f, 1, &ep));
		begun = vb_ep_now(ep);
		/* Two seconds make it worse by 2 ms, if nobody asks again. */
		for (;;) {
			before = vb_ep_now(ep);
			common = vb_ep_common_now(ep, &error);
			after = vb_ep_now(ep);
			MUST(common + error + MS >= before && common <= after + error + MS);
			if (before > begun + 2500 * MS && error < 1500000)
				break;
			MUST(before < begun + WAIT_NS);
			MUST_BE(0, vb_ep_sleep(ep, 10 * MS));
		}
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

/* ---- what they cost ---- */

#define MANY 48u

/* What a server keeps for a client that is there and has an endpoint. */
static void test_many(void **state)
{
	struct shown before, after;
	struct world w;
	pid_t pid;

	world_open(&w, 1, PATIENT);
	servers_start(&w, NULL);
	look_again(&w, 0);
	before = w.b->server[0];
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f[MANY];
		struct vb_ep *ep[MANY];
		uint64_t old;
		vb_addr a;
		bool fresh;

		for (unsigned i = 0; i < MANY; i++) {
			MUST_BE(0, open_client(&w, &f[i]));
			MUST_BE(0, vb_ep_open(f[i], 0, &ep[i]));
			MUST_BE(0, vb_region(f[i], 0, "word", 64, &a, &fresh));
			MUST_BE(0, vb_faa64(ep[i], a, 1, &old));
			MUST(old == i);
		}
		add(&w.b->step[0]);
		while (!get(&w.b->step[1]))
			usleep(1000);
		for (unsigned i = 0; i < MANY; i++) {
			vb_ep_close(ep[i]);
			MUST_BE(0, vb_fabric_close(f[i]));
		}
		_exit(0);
	}
	await(get(&w.b->step[0]));
	look_again(&w, 0);
	after = w.b->server[0];
	add(&w.b->step[1]);
	ended(pid);
	print_message("%u clients cost %u descriptors and %llu bytes, %llu each\n", MANY,
		      after.descriptors - before.descriptors,
		      (unsigned long long)(after.kept - before.kept),
		      (unsigned long long)(after.kept - before.kept) / MANY);
	assert_int_equal(after.members, MANY);
	assert_int_equal(after.descriptors, before.descriptors + MANY);
	assert_true(after.kept - before.kept < MANY * 65536ull);
	world_close(&w);
	(void)state;
}

/* A client that is let in by one server is not yet known to the others: what it sends them at once arrives. */
static void test_at_once(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, SERVERS, PATIENT);
	servers_start(&w, NULL);
	pid = child();
	if (pid == 0) {
		vb_addr a[SERVERS];

		for (unsigned i = 0; i < 40; i++) {
			struct vb_fabric *f;
			struct vb_ep *ep;
			uint64_t old;
			bool fresh;

			MUST_BE(0, open_client(&w, &f));
			/* Its home has answered; the others are asked for nothing before. */
			MUST_BE(0, vb_ep_open(f, (uint16_t)net_home(f), &ep));
			for (uint16_t n = 0; n < SERVERS; n++) {
				if (i == 0)
					MUST_BE(0, vb_region(f, n, "word", 64, &a[n], &fresh));
				MUST_BE(0, vb_faa64(ep, a[n], 1, &old));
				MUST(old == i);
			}
			vb_ep_close(ep);
			MUST_BE(0, vb_fabric_close(f));
		}
		_exit(0);
	}
	ended(pid);
	world_close(&w);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_before_the_server),
		cmocka_unit_test(test_without_the_key),
		cmocka_unit_test(test_another_list),
		cmocka_unit_test(test_letters),
		cmocka_unit_test(test_cut),
		cmocka_unit_test(test_given_up),
		cmocka_unit_test(test_greeted_twice),
		cmocka_unit_test(test_common_time),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_at_once),
	};

	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
