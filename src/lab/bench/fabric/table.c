/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table alone: one server agent on one thread, clients on another, shared memory, beside
 * the same two notified WRITEs for each turn with nothing done in between.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/fabric/fabric.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/run.h"

#define CLIENTS_MAX  16
#define TURNS        2000u /* requests of all clients together, in a slice */
#define ASK_BYTES    64u   /* as the lock table's */
#define ANSWER_BYTES 40u
/* How often the echoing thread looks whether it should stop; messages wake it at once. */
#define STOP_POLL_NS 20000000ull

struct bench {
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *client[CLIENTS_MAX];
	struct vb_ep *ep[CLIENTS_MAX];
	vb_addr asks, answers; /* a slot for each client */
	pthread_t echo;
	bool echoes;
	vb_peer echo_peer; /* written once by its thread */
	uint32_t stop;
};

/* ---- the bare ping-pong ---- */

static void echo_one(struct bench *b, struct vb_ep *ep, const struct vb_msg *m)
{
	struct vb_msg note = {.imm = m->imm};
	unsigned char buf[ASK_BYTES];
	struct vb_verb v = {
		.op = VB_OP_WRITE_NOTIFY,
		.addr = b->answers + m->imm * ASK_BYTES,
		.buf = buf,
		.len = ANSWER_BYTES,
		.peer = m->from,
		.msg = &note,
	};
	struct vb_batch batch = {.verbs = &v, .n = 1};

	memcpy(buf, vb_local(b->fabric, b->asks + m->imm * ASK_BYTES, ASK_BYTES), ASK_BYTES);
	(void)vb_post(ep, &batch);
}

static void *echo_body(void *arg)
{
	struct bench *b = arg;
	struct vb_sched *sched = vb_sched_self();
	struct vb_ep *ep = NULL;
	struct vb_msg m;

	if (vb_ep_open(b->fabric, 0, &ep) == 0) {
		__atomic_store_n(&b->echo_peer, ep->self, __ATOMIC_RELEASE);
		while (!__atomic_load_n(&b->stop, __ATOMIC_ACQUIRE)) {
			if (vb_ep_recv(ep, &m) == 0)
				echo_one(b, ep, &m);
			else
				(void)vb_ep_wait(ep, vb_sched_now(sched) + STOP_POLL_NS);
		}
		vb_ep_close(ep);
	}
	vb_sched_destroy(sched);
	return NULL;
}

static int ping(struct bench *b, unsigned i)
{
	static const unsigned char ask[ASK_BYTES];
	struct vb_msg note = {.imm = i}, m;
	struct vb_verb v = {
		.op = VB_OP_WRITE_NOTIFY,
		.addr = b->asks + i * ASK_BYTES,
		.buf = (void *)ask,
		.len = ASK_BYTES,
		.peer = b->echo_peer,
		.msg = &note,
	};
	struct vb_batch batch = {.verbs = &v, .n = 1};
	int err = vb_post(b->ep[i], &batch);

	if (err == 0)
		err = v.status;
	while (err == 0 && vb_ep_recv(b->ep[i], &m) != 0)
		err = vb_ep_wait(b->ep[i], VB_FOREVER);
	return err;
}

/* ---- turns of n clients that are tasks of this thread ---- */

struct turns {
	struct bench *b;
	unsigned i, requests;
	bool locks;
	int err;
};

/* A lock's cycle is two requests; each client has its own lock. */
static void turns_body(void *arg)
{
	struct turns *t = arg;
	struct vb_lock_client *me = t->b->client[t->i];
	struct vb_grant g;

	for (unsigned k = 0; k < t->requests && t->err == 0; k++) {
		if (!t->locks)
			t->err = ping(t->b, t->i);
		else if (k % 2 == 0)
			t->err = vb_lock_acquire(me, t->i, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
		else
			t->err = vb_lock_release(me, &g);
	}
}

/* ns of each request of `clients`, of locks or of the bare thing: 2 * clients + locks. */
static double slice(void *ctx, unsigned what)
{
	static const struct vb_task_params params = {.name = "bench client"};
	const unsigned clients = what / 2, each = TURNS / clients & ~1u;
	struct vb_sched *s = vb_sched_self();
	struct turns t[CLIENTS_MAX];
	uint64_t start = vb_clock_gettime_ns();
	int err = 0;

	for (unsigned i = 0; i < clients && err == 0; i++) {
		struct vb_task *task;

		t[i] = (struct turns){.b = ctx, .i = i, .requests = each, .locks = what % 2};
		err = vb_task_spawn(s, turns_body, &t[i], &params, &task);
	}
	if (err == 0)
		err = vb_sched_run(s, NULL, VB_FOREVER);
	for (unsigned i = 0; i < clients && err == 0; i++)
		err = t[i].err;
	return err != 0 ? err : (double)(vb_clock_gettime_ns() - start) / (each * clients);
}

static int one_pair(struct vb_floor *f, struct bench *b, unsigned clients, const char *name)
{
	const struct vb_floor_pair p = {name, 2 * clients + 1, "bare mailbox ping-pong",
					2 * clients};
	int err = vb_floor_turns(f, "table", &p, slice, b);
	double rate, base;
	char text[48];

	if (err)
		return vb_fail(err, "the lock table, %u clients: %s", clients, vb_strerror(err));
	rate = 1e6 / f->row[f->n - 1].value;
	base = 1e6 / f->row[f->n - 1].base;
	snprintf(text, sizeof(text), "%s, rate", name);
	vb_floor_add(f, "table", text, "kops/s", rate, p.baseline, base);
	/* Two threads: the agent's and the clients'. */
	snprintf(text, sizeof(text), "%s, a core", name);
	vb_floor_add(f, "table", text, "kops/s", rate / 2, p.baseline, base / 2);
	return 0;
}

/* ---- setting up ---- */

static int open_bench(struct bench *b)
{
	const struct vb_fabric_params fp = {.no_keeper = true, /* who measures stays inside */
					    .fabric = "shm",
					    .node_bytes = 1 << 20,
					    .endpoints = 64};
	const struct vb_lock_space_params sp = {
		.lock = "table", .locks = 64, .lease_ns = 10000000000ull};
	bool fresh;
	int err = vb_fabric_open(&fp, &b->fabric);

	if (err == 0)
		err = vb_lock_space_open(b->fabric, &sp, &b->space);
	if (err == 0)
		err = vb_region(b->fabric, 0, "bench asks", CLIENTS_MAX * ASK_BYTES, &b->asks,
				&fresh);
	if (err == 0)
		err = vb_region(b->fabric, 0, "bench answers", CLIENTS_MAX * ASK_BYTES, &b->answers,
				&fresh);
	if (err == 0)
		err = vb_lock_server_thread_start(b->space, 0, &b->server);
	for (unsigned i = 0; i < CLIENTS_MAX && err == 0; i++) {
		err = vb_lock_client_open(b->space, 0, &b->client[i]);
		if (err == 0)
			err = vb_ep_open(b->fabric, 0, &b->ep[i]);
	}
	if (err == 0)
		err = -pthread_create(&b->echo, NULL, echo_body, b);
	b->echoes = err == 0;
	while (err == 0 && __atomic_load_n(&b->echo_peer, __ATOMIC_ACQUIRE) == VB_PEER_NONE)
		(void)vb_ep_sleep(b->ep[0], 100000);
	return err;
}

static void close_bench(struct bench *b)
{
	__atomic_store_n(&b->stop, 1, __ATOMIC_RELEASE);
	if (b->echoes)
		pthread_join(b->echo, NULL);
	for (unsigned i = 0; i < CLIENTS_MAX; i++) {
		vb_lock_client_close(b->client[i]);
		vb_ep_close(b->ep[i]);
	}
	vb_lock_server_stop(b->server);
	vb_lock_space_close(b->space);
	vb_fabric_close(b->fabric);
}

int vb_floor_table(struct vb_floor *f)
{
	struct bench b = {0};
	int err = open_bench(&b);

	if (err == 0)
		err = one_pair(f, &b, 1, "1 client");
	if (err == 0 && !vb_interrupted)
		err = one_pair(f, &b, CLIENTS_MAX, "16 clients");
	close_bench(&b);
	return err;
}
