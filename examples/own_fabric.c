/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks on a fabric of the program's own (verbena/provider.h): here two nodes in memory of this process, which verbs
 * reach by the CPU's atomics as soon as they are posted.  A program that has RDMA connections puts ibv_post_send and
 * ibv_poll_cq in these places (doc/own-fabric.md).
 *
 * The provider is tried, then two threads count under a lock, once with "dslr" and once with "shiftlock", which hands
 * its locks over by messages.
 *
 *	cc own_fabric.c -o own_fabric $(pkg-config --cflags --libs verbena) -pthread
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <verbena/lock.h>
#include <verbena/provider.h>

#define NODES      2
#define NODE_BYTES (1 << 20)
#define ENDPOINTS  64
#define PLACES     16
#define RING       64
#define THREADS    2
#define ROUNDS     500

struct endpoint {
	bool open;
	uint16_t node;
	uint32_t client;
	uint8_t *buffer; /* PLACES verbs */
	unsigned ends;
	struct vb_provider_end end[PLACES];
	unsigned head, tail; /* under the lock */
	uint8_t message[RING][VB_PROVIDER_MESSAGE_BYTES];
};

struct cluster {
	pthread_mutex_t lock;
	uint32_t next_client;
	struct endpoint ep[ENDPOINTS];
	uint8_t *memory[NODES];
};

static struct endpoint *find(struct cluster *c, uint16_t node, uint32_t client)
{
	for (unsigned i = 0; i < ENDPOINTS; i++) {
		if (c->ep[i].open && c->ep[i].node == node && c->ep[i].client == client)
			return &c->ep[i];
	}
	return NULL;
}

static int ep_open(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	struct cluster *c = ctx;
	uint8_t *buffer = aligned_alloc(64, PLACES * VB_PROVIDER_VERB_BYTES);
	struct endpoint *e = NULL;

	if (buffer == NULL)
		return -ENOMEM;
	pthread_mutex_lock(&c->lock);
	for (unsigned i = 0; i < ENDPOINTS && e == NULL; i++) {
		if (!c->ep[i].open)
			e = &c->ep[i];
	}
	if (e != NULL) {
		/* Numbers come again after 16 million. */
		c->next_client = c->next_client % 0xffffff + 1;
		*e = (struct endpoint){
			.open = true, .node = node, .client = c->next_client, .buffer = buffer};
	}
	pthread_mutex_unlock(&c->lock);
	if (e == NULL) {
		free(buffer);
		return -ENOSPC;
	}
	*out = (struct vb_provider_endpoint){.ep = e,
					     .client = e->client,
					     .buffer = buffer,
					     .buffer_bytes = PLACES * VB_PROVIDER_VERB_BYTES};
	return 0;
}

static void ep_close(void *ctx, void *ep)
{
	struct cluster *c = ctx;
	struct endpoint *e = ep;

	pthread_mutex_lock(&c->lock);
	e->open = false;
	free(e->buffer);
	pthread_mutex_unlock(&c->lock);
}

static int send_message(struct cluster *c, const struct vb_provider_verb *v)
{
	struct endpoint *to;
	int err = 0;

	pthread_mutex_lock(&c->lock);
	to = find(c, v->node, v->client);
	if (to == NULL)
		err = -VB_EPEERGONE;
	else if (to->tail - to->head == RING)
		err = -EAGAIN;
	else
		memcpy(to->message[to->tail++ % RING], v->local, VB_PROVIDER_MESSAGE_BYTES);
	pthread_mutex_unlock(&c->lock);
	return err;
}

/* Aligned words of the node are read and written whole, and in one order with the atomics; bytes beside them are too. */
static void copy(uint8_t *node, uint8_t *local, uint32_t bytes, bool in)
{
	for (uint32_t i = 0; i < bytes;) {
		const bool whole = (uintptr_t)(node + i) % 8 == 0 && bytes - i >= 8;
		uint64_t word;

		if (whole && in) {
			memcpy(&word, local + i, 8);
			__atomic_store_n((uint64_t *)(node + i), word, __ATOMIC_SEQ_CST);
		} else if (whole) {
			word = __atomic_load_n((uint64_t *)(node + i), __ATOMIC_SEQ_CST);
			memcpy(local + i, &word, 8);
		} else if (in) {
			__atomic_store_n(node + i, local[i], __ATOMIC_SEQ_CST);
		} else {
			local[i] = __atomic_load_n(node + i, __ATOMIC_SEQ_CST);
		}
		i += whole ? 8 : 1;
	}
}

static int execute(struct cluster *c, const struct vb_provider_verb *v)
{
	uint8_t *at = c->memory[v->node] + v->offset;
	uint64_t old = v->compare;

	switch (v->op) {
	case VB_PROVIDER_READ:
	case VB_PROVIDER_WRITE:
		copy(at, v->local, v->bytes, v->op == VB_PROVIDER_WRITE);
		return 0;
	case VB_PROVIDER_CAS:
		__atomic_compare_exchange_n((uint64_t *)at, &old, v->value, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		break;
	case VB_PROVIDER_FAA:
		old = __atomic_fetch_add((uint64_t *)at, v->value, __ATOMIC_SEQ_CST);
		break;
	case VB_PROVIDER_SEND:
		return send_message(c, v);
	}
	memcpy(v->local, &old, sizeof(old));
	return 0;
}

static int post(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n)
{
	struct endpoint *e = ep;

	for (unsigned i = 0; i < n; i++)
		e->end[e->ends++] =
			(struct vb_provider_end){.id = verbs[i].id, .err = execute(ctx, &verbs[i])};
	return 0;
}

static int poll(void *ctx, void *ep, struct vb_provider_end *out, unsigned n)
{
	struct endpoint *e = ep;

	(void)ctx;
	if (n > e->ends)
		n = e->ends;
	memcpy(out, e->end, n * sizeof(*out));
	e->ends -= n;
	memmove(e->end, e->end + n, e->ends * sizeof(*out));
	return (int)n;
}

static int recv(void *ctx, void *ep, void *message)
{
	struct cluster *c = ctx;
	struct endpoint *e = ep;
	int err = -EAGAIN;

	pthread_mutex_lock(&c->lock);
	if (e->head != e->tail) {
		memcpy(message, e->message[e->head++ % RING], VB_PROVIDER_MESSAGE_BYTES);
		err = 0;
	}
	pthread_mutex_unlock(&c->lock);
	return err;
}

static bool alive(void *ctx, uint16_t node, uint32_t client)
{
	struct cluster *c = ctx;
	bool open;

	pthread_mutex_lock(&c->lock);
	open = find(c, node, client) != NULL;
	pthread_mutex_unlock(&c->lock);
	return open;
}

static void *local(void *ctx, uint16_t node)
{
	return ((struct cluster *)ctx)->memory[node];
}

/* ---- what uses it ---- */

struct worker {
	struct vb_lock_space *space;
	uint16_t node;
	uint64_t *count;
	int err;
	pthread_t thread;
};

static void *work(void *arg)
{
	struct worker *w = arg;
	struct vb_lock_client *me;
	struct vb_grant grant;

	w->err = vb_lock_client_open(w->space, w->node, &me);
	if (w->err != 0)
		return NULL;
	for (int i = 0; i < ROUNDS && w->err == 0; i++) {
		w->err = vb_lock_acquire(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &grant);
		if (w->err != 0)
			break;
		++*w->count;
		w->err = vb_lock_release(me, &grant);
	}
	vb_lock_client_close(me);
	return NULL;
}

static int count_under(struct vb_fabric *fabric, const char *lock)
{
	struct vb_lock_space_params p = {
		.lock = lock,
		.name = lock,
		.locks = 100,
		.servers = NODES,
		/* A thread may be held up for long without losing the lock. */
		.lease_ns = 10000000000ull};
	struct vb_lock_server *server[NODES] = {NULL};
	struct worker w[THREADS];
	struct vb_lock_space *space;
	uint64_t count = 0;
	int err = vb_lock_space_open(fabric, &p, &space);

	if (err != 0)
		return err;
	/* For "shiftlock", which has them for its recovery; "dslr" has none. */
	for (uint16_t n = 0; n < NODES; n++) {
		if (vb_lock_server_thread_start(space, n, &server[n]) != 0)
			exit(1);
	}
	for (int i = 0; i < THREADS; i++) {
		w[i] = (struct worker){
			.space = space, .node = (uint16_t)(i % NODES), .count = &count};
		if (pthread_create(&w[i].thread, NULL, work, &w[i]) != 0)
			exit(1);
	}
	for (int i = 0; i < THREADS; i++) {
		pthread_join(w[i].thread, NULL);
		err = err != 0 ? err : w[i].err;
	}
	printf("%s: %llu\n", lock, (unsigned long long)count);
	if (err == 0 && count != THREADS * ROUNDS)
		err = -EPROTO;
	for (int i = 0; i < NODES; i++)
		vb_lock_server_stop(server[i]);
	vb_lock_space_close(space);
	return err;
}

int main(void)
{
	static struct cluster c = {.lock = PTHREAD_MUTEX_INITIALIZER};
	const struct vb_provider mine = {
		.bytes = sizeof(mine),
		.name = "mine",
		.ctx = &c,
		.nodes = NODES,
		.node_bytes = NODE_BYTES,
		.verb_bound_ns = 0, /* a verb takes effect when it is posted */
		.end_ns = 1000000000,
		.ep_open = ep_open,
		.ep_close = ep_close,
		.post = post,
		.poll = poll,
		.recv = recv,
		.alive = alive,
		.local = local,
	};
	struct vb_provider_broken broken;
	struct vb_fabric *fabric;
	int err = 0;

	for (int i = 0; i < NODES; i++) {
		c.memory[i] = aligned_alloc(64, NODE_BYTES);
		if (c.memory[i] == NULL)
			return 1;
		memset(c.memory[i], 0, NODE_BYTES);
	}
	if (vb_provider_check(&mine, &broken) != 0) {
		fprintf(stderr, "%s: %s\n", broken.promise, broken.seen);
		return 1;
	}
	if (vb_fabric_provide(&mine, &fabric) != 0)
		return 1;
	err = count_under(fabric, "dslr");
	if (err == 0)
		err = count_under(fabric, "shiftlock");
	vb_fabric_close(fabric);
	for (int i = 0; i < NODES; i++)
		free(c.memory[i]);
	if (err != 0)
		fprintf(stderr, "%s\n", vb_strerror(err));
	return err != 0;
}
