/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A server of an elastic cluster begins again: the others go on with it, and nothing that was meant for the one before
 * happens to it.
 */
#include "elastic.h"

#define LEASE_NS (250 * MS)
#define LOCKS    16
/* What such a lease allows, and how long a server waits for it. */
#define PATIENT ",bound=100ms,settle=600ms,retry=40ms"

static struct vb_lock_space_params locks(void)
{
	return (struct vb_lock_space_params){
		.lock = "rpc", .locks = LOCKS, .servers = 2, .lease_ns = LEASE_NS};
}

static unsigned goes; /* the server that begins again, and its node */

/* ---- the other server ---- */

/* On a busy machine there may be no connection yet. */
static void first_verb(struct vb_ep *ep, vb_addr at)
{
	uint64_t old, end = vb_ep_now(ep) + WAIT_NS;

	while (vb_faa64(ep, at, 1, &old) != 0) {
		MUST(vb_ep_now(ep) < end);
		MUST_BE(0, vb_ep_sleep(ep, MS));
	}
}

/* Whether it has a connection or none. */
static void is_refused(struct vb_fabric *f, struct vb_ep *ep, vb_addr at)
{
	struct vb_msg m = {.tag = 4};
	struct vb_verb v[2] = {
		{.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = at, .compare.lo = 1},
		{.op = VB_OP_SEND,
		 .flags = VB_SIGNALLED,
		 .peer = vb_peer_make((uint16_t)goes, 1),
		 .msg = &m}};
	struct vb_batch b = {.verbs = v, .n = 2};
	uint64_t old;

	MUST(vb_node_gone(f, (uint16_t)goes));
	MUST_BE(-VB_EPEERGONE, vb_faa64(ep, at, 1, &old));
	MUST_BE(0, vb_post(ep, &b));
	MUST(v[0].status == -VB_EPEERGONE && v[1].status == -VB_EPEERGONE);
}

struct witness {
	struct world *w;
	struct vb_fabric *f;
};

static void witness_body(void *arg)
{
	struct witness *x = arg;
	struct board *b = x->w->b;
	struct vb_msg m = {.tag = 3};
	struct vb_ep *ep;
	vb_addr at, again;
	uint64_t end;
	bool fresh;

	MUST_BE(0, vb_ep_open(x->f, (uint16_t)(1 - goes), &ep));
	MUST_BE(0, vb_region(x->f, (uint16_t)goes, "word", 64, &at, &fresh));
	first_verb(ep, at);
	add(&b->step[0]);
	end = vb_ep_now(ep) + WAIT_NS;
	while (!vb_node_gone(x->f, (uint16_t)goes)) {
		MUST(vb_ep_now(ep) < end);
		MUST_BE(0, vb_ep_sleep(ep, MS));
	}
	MUST_BE(-VB_EPEERGONE, vb_region(x->f, (uint16_t)goes, "word", 64, &again, &fresh));
	while (!get(&b->step[2])) {
		is_refused(x->f, ep, at);
		MUST_BE(0, vb_ep_sleep(ep, MS));
	}
	is_refused(x->f, ep, at);
	/* A client whose home it is, and one whose home its predecessor was. */
	MUST(vb_peer_alive(x->f, get(&b->word[1])));
	MUST(!vb_peer_alive(x->f, get(&b->word[2])));
	MUST_BE(-VB_EPEERGONE, vb_send_wait(ep, get(&b->word[2]), &m));
	MUST_BE(0, vb_send_wait(ep, get(&b->word[1]), &m));
	add(&b->step[3]);
	vb_ep_close(ep);
}

/* Both lives of it put the same question, with the same number. */
static void make(struct world *w, struct vb_fabric *f)
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	bool fresh;
	vb_addr at;

	while (vb_region(f, (uint16_t)(1 - goes), "made", 64, &at, &fresh) != 0)
		MUST(vb_clock_gettime_ns() < end);
	MUST(fresh == (get(&w->b->step[4]) == 0));
	add(&w->b->step[4]);
}

static void serve(struct world *w, struct vb_fabric *f)
{
	static struct witness x;
	static const struct vb_task_params named = {.name = "witness"};
	struct vb_lock_space_params p = locks();
	uint16_t node = (uint16_t)net_of(f)->host;
	struct vb_lock_server *server;
	struct vb_lock_space *space;
	struct vb_task *task;

	if (node == goes)
		make(w, f);
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_server_start(space, node, 0, 1, &server));
	if (node == goes)
		return;
	x = (struct witness){.w = w, .f = f};
	MUST_BE(0, vb_task_spawn(vb_sched_self(), witness_body, &x, &named, &task));
}

/* ---- clients ---- */

/* Its home is the server that goes, and was the one that is gone. */
static void old_client(struct world *w)
{
	struct vb_fabric *f;
	struct vb_ep *ep;
	uint64_t end;

	MUST_BE(0, open_client_as(w, w->key, ",retry=40ms", &f));
	MUST_BE(0, vb_ep_open(f, (uint16_t)goes, &ep));
	set(&w->b->word[2], ep->self);
	add(&w->b->step[1]);
	end = vb_ep_now(ep) + WAIT_NS;
	while (!vb_node_gone(f, (uint16_t)goes)) {
		MUST(vb_ep_now(ep) < end);
		MUST_BE(0, vb_ep_sleep(ep, MS));
	}
	while (!get(&w->b->step[3]))
		MUST_BE(0, vb_ep_sleep(ep, MS));
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

/* Its home is the new one, and the lock that it takes is served by the other server. */
static void new_client(struct world *w)
{
	struct vb_lock_space_params p = locks();
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_fabric *f;
	struct vb_grant g;
	struct vb_ep *ep;
	struct vb_msg m;
	uint64_t word = 77;
	vb_addr at;
	bool fresh;

	MUST_BE(0, open_client_as(w, w->key, ",retry=40ms", &f));
	MUST_BE(0, vb_lock_space_open(f, &p, &space));
	MUST_BE(0, vb_lock_client_open(space, (uint16_t)goes, &me));
	MUST_BE(0, vb_lock_acquire(me, 1 - goes, VB_EXCLUSIVE, 20000 * MS, &g));
	(void)vb_lock_release(me, &g);
	MUST_BE(0, vb_lock_acquire(me, goes, VB_EXCLUSIVE, 20000 * MS, &g));
	(void)vb_lock_release(me, &g);
	MUST_BE(0, vb_ep_open(f, (uint16_t)goes, &ep));
	set(&w->b->word[1], ep->self);
	add(&w->b->step[2]);
	for (unsigned i = 0; i < 2; i++) {
		while (vb_ep_recv(ep, &m) != 0)
			MUST_BE(0, vb_ep_wait(ep, vb_ep_now(ep) + WAIT_NS));
		MUST(m.tag == 3);
	}
	MUST_BE(0, vb_region(f, (uint16_t)goes, "word", 64, &at, &fresh));
	MUST(fresh);
	MUST_BE(0, vb_read64(ep, at, &word));
	MUST(word == 0);
	vb_ep_close(ep);
	vb_lock_client_close(me);
	MUST_BE(0, vb_lock_space_close(space));
	MUST_BE(0, vb_fabric_close(f));
}

/* Knew the former one, and has its home at the other. */
static void bystander(struct world *w)
{
	uint16_t stays = (uint16_t)(1 - goes);
	struct vb_msg m = {.tag = 3};
	struct vb_fabric *f;
	uint64_t end, old;
	struct vb_ep *ep;
	vb_addr at;
	bool fresh;

	MUST_BE(0, open_client_as(w, w->key, ",retry=40ms", &f));
	MUST_BE(0, vb_ep_open(f, stays, &ep));
	MUST_BE(0, vb_region(f, (uint16_t)goes, "word", 64, &at, &fresh));
	first_verb(ep, at);
	add(&w->b->step[5]);
	while (!get(&w->b->step[2]))
		MUST_BE(0, vb_ep_sleep(ep, MS));
	end = vb_ep_now(ep) + WAIT_NS;
	while (vb_send_wait(ep, get(&w->b->word[1]), &m) != 0) {
		MUST(vb_ep_now(ep) < end);
		MUST_BE(0, vb_ep_sleep(ep, MS));
	}
	MUST(vb_node_gone(f, (uint16_t)goes));
	MUST_BE(-VB_EPEERGONE, vb_faa64(ep, at, 1, &old));
	MUST(vb_home(f) == stays);
	vb_ep_close(ep);
	MUST_BE(0, vb_fabric_close(f));
}

static void begins_again(unsigned which)
{
	struct world w;
	pid_t old, by;

	goes = which;
	world_open(&w, 2, PATIENT);
	servers_start(&w, serve);
	old = client(&w, old_client);
	by = client(&w, bystander);
	await(get(&w.b->step[0]) && get(&w.b->step[1]) && get(&w.b->step[5]));
	server_kill(&w, goes);
	server_start(&w, goes, serve);
	await(get(&w.b->server[goes].up));
	ended(client(&w, new_client));
	await(get(&w.b->step[3]));
	ended(old);
	ended(by);
	assert_int_equal(get(&w.b->step[4]), 2);
	world_close(&w);
}

/* The one that connects, and the one that is connected to. */
static void test_begins_again(void **state)
{
	(void)state;
	begins_again(0);
	begins_again(1);
}

/* ---- a server that is a client, too ---- */

/* Its own fabric reaches the other one's memory no more when that has begun again; one that it opens anew does. */
static void both_body(void *arg)
{
	struct world *w = arg;

	for (uint32_t life = 0; life < 2; life++) {
		struct vb_fabric *f;
		uint64_t old = 77, end;
		struct vb_ep *ep;
		vb_addr at;
		bool fresh;

		MUST_BE(0, open_client_as(w, w->key, ",retry=40ms", &f));
		MUST_BE(0, vb_ep_open(f, 0, &ep));
		MUST_BE(0, vb_region(f, 1, "word", 64, &at, &fresh));
		MUST(fresh);
		MUST_BE(0, vb_faa64(ep, at, 1, &old));
		MUST(old == 0);
		add(&w->b->step[0]);
		end = vb_ep_now(ep) + WAIT_NS;
		while (life == 0 && !vb_node_gone(f, 1)) {
			MUST(vb_ep_now(ep) < end);
			MUST_BE(0, vb_ep_sleep(ep, MS));
		}
		vb_ep_close(ep);
		MUST_BE(0, vb_fabric_close(f));
	}
	add(&w->b->step[1]);
}

static void both(struct world *w, struct vb_fabric *f)
{
	static const struct vb_task_params named = {.name = "both"};
	struct vb_task *task;

	if (net_of(f)->host == 0)
		MUST_BE(0, vb_task_spawn(vb_sched_self(), both_body, w, &named, &task));
}

static void test_both(void **state)
{
	struct world w;

	world_open(&w, 2, PATIENT ",settle=1ms");
	servers_start(&w, both);
	await(get(&w.b->step[0]) == 1);
	server_kill(&w, 1);
	server_start(&w, 1, both);
	await(get(&w.b->step[1]));
	world_close(&w);
	(void)state;
}

/* ---- who has been replaced ---- */

/* step[0]: of server 2, which id it shall show; step[1]: server 1 has a connection to it. */
static void as_another(struct world *w, unsigned i, struct vb_fabric *fab)
{
	struct net_fabric *f = net_of(fab);
	struct net_elastic *e = f->elastic;
	uint32_t want = get(&w->b->step[0]);

	pthread_mutex_lock(&f->engine);
	if (i == 0)
		set(&w->b->step[1], e->up[1]);
	if (i == 1 && want != 0)
		memcpy(e->id, w->b->id[want], NET_ID);
	else if (i == 1)
		memcpy(w->b->id[get(&w->b->step[2])], e->id, NET_ID);
	pthread_mutex_unlock(&f->engine);
	if (i == 1 && want != 0) {
		set(&w->b->step[0], 0);
		set(&w->b->step[2], 3);
		cut_all(fab);
	}
}

static void test_replaced(void **state)
{
	struct world w;
	uint64_t end;

	world_open(&w, 2, PATIENT ",settle=1ms");
	server_each = as_another;
	set(&w.b->step[2], 1);
	servers_start(&w, NULL);
	await(get(&w.b->step[1]));
	server_kill(&w, 1);
	await(!get(&w.b->step[1]));
	set(&w.b->step[2], 2);
	server_start(&w, 1, NULL);
	await(get(&w.b->step[1]));
	look_again(&w, 1);
	/* The former one comes back from behind a cut link. */
	set(&w.b->step[0], 1);
	await(get(&w.b->step[0]) == 0 && !get(&w.b->step[1]));
	end = vb_clock_gettime_ns() + 400 * MS;
	while (vb_clock_gettime_ns() < end) {
		assert_int_equal(get(&w.b->step[1]), 0);
		usleep(1000);
	}
	set(&w.b->step[0], 2);
	await(get(&w.b->step[1]));
	server_each = NULL;
	world_close(&w);
	(void)state;
}

/* ---- a greeting that came to nothing ---- */

/* Who has greeted a client and was gone before the client's own greeting was answered had nothing of it. */
static void test_first_word(void **state)
{
	struct world w;
	pid_t pid;

	world_open(&w, 2, PATIENT ",settle=1ms");
	server_start(&w, 0, NULL);
	await(get(&w.b->server[0].up));
	pid = child();
	if (pid == 0) {
		struct vb_fabric *f;
		vb_addr at;
		bool fresh;

		MUST_BE(0, open_client_as(&w, w.key, ",retry=40ms", &f));
		pthread_mutex_lock(&net_of(f)->engine);
		memset(net_of(f)->elastic->seen[1], 0x55, NET_ID);
		pthread_mutex_unlock(&net_of(f)->engine);
		add(&w.b->step[0]);
		MUST_BE(0, vb_region(f, 1, "word", 64, &at, &fresh));
		MUST_BE(0, vb_fabric_close(f));
		_exit(0);
	}
	await(get(&w.b->step[0]));
	server_start(&w, 1, NULL);
	ended(pid);
	world_close(&w);
	(void)state;
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_begins_again),
		cmocka_unit_test(test_both),
		cmocka_unit_test(test_replaced),
		cmocka_unit_test(test_first_word),
	};

	vb_clock_init();
	return cmocka_run_group_tests(tests, NULL, NULL);
}
