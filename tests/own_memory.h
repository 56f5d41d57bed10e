/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A provider (verbena/provider.h) for tests: memory of this process, and verbs that take effect one by one when their
 * endpoint is polled, so that those of several endpoints of one thread mix.  What the interface allows it does: a WRITE
 * or SEND overtakes READs and atomics before it, now and then.  Which, a seed decides.
 *
 * With a bug it breaks one promise, always in the same way.
 */
#ifndef VB_TESTS_OWN_MEMORY_H
#define VB_TESTS_OWN_MEMORY_H

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include <verbena/provider.h>

#include "base/rng.h"

#define MEMORY_NODES     4u
#define MEMORY_ENDPOINTS 80u
#define MEMORY_PLACES    24u
#define MEMORY_RING      64u

enum memory_bug {
	BUG_NONE,
	BUG_CAS_IN_TWO_STEPS,
	BUG_FAA_IN_TWO_STEPS,
	BUG_CAS_OF_HALF,
	BUG_FAA_CARRIES,
	BUG_TEARS_WORDS,
	BUG_WRITES_TOO_MUCH,
	BUG_WRITE_OVERTAKES_WRITE,
	BUG_SEND_OVERTAKES_WRITE,
	BUG_READ_OVERTAKES_WRITE,
	BUG_IGNORES_FENCES,
	BUG_WRITES_LATE,
	BUG_LOSES_AN_END,
	BUG_ENDS_TWICE,
	BUG_NUMBERS_COME_AGAIN,
	BUG_TAKES_FOR_DEAD,
	BUG_LOSES_A_MESSAGE,
	BUG_SWAPS_MESSAGES,
	BUG_TELLS_ANYBODY,
	BUG_IS_NOT_ZERO,
	BUG_FAILS_A_VERB,
	BUG_LENDS_LESS,
	BUG_SHOWS_ANOTHER,
	BUGS
};

struct memory_verb {
	struct vb_provider_verb v;
	bool begun; /* the first of two steps is done */
	uint64_t seen;
};

struct memory_ep {
	struct memory *m;
	bool open;
	uint16_t node;
	uint32_t client;
	uint8_t *buffer;
	struct vb_rng rng;
	uint32_t verbs, ends; /* in the two queues */
	struct memory_verb verb[MEMORY_PLACES];
	struct vb_provider_end end[2 * MEMORY_PLACES];
	uint64_t executed;
	/* A WRITE that others do not see yet. */
	bool held;
	uint64_t held_offset, held_word;
	uint16_t held_node;
	/* Under the lock. */
	uint32_t head, tail;
	uint8_t message[MEMORY_RING][VB_PROVIDER_MESSAGE_BYTES];
};

struct memory {
	struct vb_provider p; /* what to provide */
	enum memory_bug bug;
	pthread_mutex_t lock;
	uint8_t *node[MEMORY_NODES];
	uint32_t next_client, sent;
	struct memory_ep ep[MEMORY_ENDPOINTS];
};

/* ---- memory ---- */

static inline bool memory_by_words(uint64_t offset, uint32_t left)
{
	return offset % 8 == 0 && left >= 8;
}

static inline void memory_out(uint8_t *to, uint8_t *from, uint64_t offset, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes;) {
		if (memory_by_words(offset + i, bytes - i)) {
			uint64_t w =
				__atomic_load_n((uint64_t *)(from + offset + i), __ATOMIC_SEQ_CST);

			memcpy(to + i, &w, 8);
			i += 8;
		} else {
			to[i] = __atomic_load_n(from + offset + i, __ATOMIC_SEQ_CST);
			i++;
		}
	}
}

static inline void memory_in(uint8_t *to, uint64_t offset, const uint8_t *from, uint32_t bytes)
{
	for (uint32_t i = 0; i < bytes;) {
		if (memory_by_words(offset + i, bytes - i)) {
			uint64_t w;

			memcpy(&w, from + i, 8);
			__atomic_store_n((uint64_t *)(to + offset + i), w, __ATOMIC_SEQ_CST);
			i += 8;
		} else {
			__atomic_store_n(to + offset + i, from[i], __ATOMIC_SEQ_CST);
			i++;
		}
	}
}

/* ---- messages ---- */

static inline struct memory_ep *memory_find(struct memory *m, uint16_t node, uint32_t client)
{
	struct memory_ep *other = NULL;

	for (unsigned i = 0; i < MEMORY_ENDPOINTS; i++) {
		struct memory_ep *e = &m->ep[i];

		if (e->open && e->node == node && e->client == client)
			return e;
		if (e->open && e->node == node)
			other = e;
	}
	return m->bug == BUG_TELLS_ANYBODY ? other : NULL;
}

static inline void memory_put(struct memory_ep *to, uint32_t at, const void *message)
{
	memcpy(to->message[at % MEMORY_RING], message, VB_PROVIDER_MESSAGE_BYTES);
}

static inline int memory_send(struct memory *m, const struct vb_provider_verb *v)
{
	struct memory_ep *to;
	int err = 0;

	pthread_mutex_lock(&m->lock);
	to = memory_find(m, v->node, v->client);
	m->sent++;
	if (to == NULL) {
		err = -VB_EPEERGONE;
	} else if (to->tail - to->head == MEMORY_RING) {
		err = -EAGAIN;
	} else if (m->bug == BUG_LOSES_A_MESSAGE && m->sent == 7) {
	} else if (m->bug == BUG_SWAPS_MESSAGES && to->tail - to->head == 1) {
		memory_put(to, to->tail, to->message[to->head % MEMORY_RING]);
		memory_put(to, to->head, v->local);
		to->tail++;
	} else {
		memory_put(to, to->tail++, v->local);
	}
	pthread_mutex_unlock(&m->lock);
	return err;
}

static inline int memory_recv(void *ctx, void *ep, void *message)
{
	struct memory *m = ctx;
	struct memory_ep *e = ep;
	int err = -EAGAIN;

	pthread_mutex_lock(&m->lock);
	if (e->head != e->tail) {
		memcpy(message, e->message[e->head++ % MEMORY_RING], VB_PROVIDER_MESSAGE_BYTES);
		err = 0;
	}
	pthread_mutex_unlock(&m->lock);
	return err;
}

/* ---- one verb ---- */

static inline void memory_let_go(struct memory_ep *e)
{
	if (e->held)
		__atomic_store_n((uint64_t *)(e->m->node[e->held_node] + e->held_offset),
				 e->held_word, __ATOMIC_SEQ_CST);
	e->held = false;
}

static inline void memory_write(struct memory_ep *e, struct memory_verb *mv)
{
	const struct vb_provider_verb *v = &mv->v;
	uint8_t *base = e->m->node[v->node];
	uint8_t more[VB_PROVIDER_VERB_BYTES + 1] = {0};

	if (e->m->bug == BUG_WRITES_TOO_MUCH && v->bytes == 63) {
		memcpy(more, v->local, v->bytes);
		more[v->bytes] = 0xee;
		memory_in(base, v->offset, more, v->bytes + 1);
	} else if (e->m->bug == BUG_WRITES_LATE && v->bytes == 8 && v->offset % 8 == 0) {
		e->held = true;
		e->held_node = v->node;
		e->held_offset = v->offset;
		memcpy(&e->held_word, v->local, 8);
	} else if (e->m->bug != BUG_LENDS_LESS || v->offset < e->m->p.node_bytes - 64) {
		memory_in(base, v->offset, v->local, v->bytes);
	}
}

/* The word's old value; false: this was the first of two steps. */
static inline bool memory_atomic(struct memory_ep *e, struct memory_verb *mv)
{
	const struct vb_provider_verb *v = &mv->v;
	uint64_t *w = (uint64_t *)(e->m->node[v->node] + v->offset), old = v->compare;
	const bool cas = v->op == VB_PROVIDER_CAS;

	if (e->m->bug == (cas ? BUG_CAS_IN_TWO_STEPS : BUG_FAA_IN_TWO_STEPS)) {
		if (!mv->begun) {
			mv->seen = __atomic_load_n(w, __ATOMIC_SEQ_CST);
			mv->begun = true;
			return false;
		}
		old = mv->seen;
		if (!cas || old == v->compare)
			__atomic_store_n(w, cas ? v->value : old + v->value, __ATOMIC_SEQ_CST);
	} else if (cas && e->m->bug == BUG_CAS_OF_HALF) {
		old = __atomic_load_n(w, __ATOMIC_SEQ_CST);
		if ((uint32_t)old == (uint32_t)v->compare)
			__atomic_store_n(w, v->value, __ATOMIC_SEQ_CST);
	} else if (cas) {
		__atomic_compare_exchange_n(w, &old, v->value, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
	} else if (e->m->bug == BUG_FAA_CARRIES) {
		old = __atomic_fetch_add((uint32_t *)w, (uint32_t)v->value, __ATOMIC_SEQ_CST);
	} else {
		old = __atomic_fetch_add(w, v->value, __ATOMIC_SEQ_CST);
	}
	memcpy(v->local, &old, sizeof(old));
	return true;
}

/* False: it takes another step. */
static inline bool memory_do(struct memory_ep *e, struct memory_verb *mv, int *err)
{
	struct vb_provider_verb *v = &mv->v;
	const bool own = v->op == VB_PROVIDER_READ && e->held && v->node == e->held_node &&
			 v->offset <= e->held_offset && e->held_offset < v->offset + v->bytes;

	*err = 0;
	/* A store buffer: only READs of other words may pass what is held. */
	if (e->held && (v->op != VB_PROVIDER_READ || own))
		memory_let_go(e);
	switch (v->op) {
	case VB_PROVIDER_READ:
		memory_out(v->local, e->m->node[v->node], v->offset, v->bytes);
		return true;
	case VB_PROVIDER_WRITE:
		if (e->m->bug == BUG_TEARS_WORDS && v->bytes == 8 && !mv->begun) {
			memory_in(e->m->node[v->node], v->offset, v->local, 4);
			mv->begun = true;
			return false;
		}
		memory_write(e, mv);
		return true;
	case VB_PROVIDER_SEND:
		*err = memory_send(e->m, v);
		return true;
	default:
		return memory_atomic(e, mv);
	}
}

/* ---- which verb comes next ---- */

static inline bool memory_lands(const struct vb_provider_verb *v)
{
	return v->op == VB_PROVIDER_WRITE || v->op == VB_PROVIDER_SEND;
}

/* Whether verb i may take effect before all those in front of it. */
static inline bool memory_may_pass(const struct memory_ep *e, uint32_t i)
{
	const enum memory_bug bug = e->m->bug;
	const struct vb_provider_verb *v = &e->verb[i].v;

	for (uint32_t k = 0; k < i; k++) {
		const struct vb_provider_verb *u = &e->verb[k].v;

		if (u->node != v->node || e->verb[k].begun)
			return false;
		if (bug == BUG_WRITE_OVERTAKES_WRITE && v->op == VB_PROVIDER_WRITE &&
		    u->op == VB_PROVIDER_WRITE)
			continue;
		if (bug == BUG_SEND_OVERTAKES_WRITE && v->op == VB_PROVIDER_SEND &&
		    u->op == VB_PROVIDER_WRITE)
			continue;
		if (bug == BUG_READ_OVERTAKES_WRITE && v->op == VB_PROVIDER_READ)
			continue;
		if (!memory_lands(v) || memory_lands(u) || (v->fence && bug != BUG_IGNORES_FENCES))
			return false;
	}
	return true;
}

static inline uint32_t memory_next(struct memory_ep *e)
{
	const bool always = e->m->bug != BUG_NONE;

	if (e->verb[0].begun || (!always && !vb_rng_chance(&e->rng, 0.25)))
		return 0;
	for (uint32_t i = 1; i < e->verbs; i++) {
		if (memory_may_pass(e, i))
			return i;
	}
	return 0;
}

static inline void memory_step(struct memory_ep *e)
{
	const uint32_t i = memory_next(e);
	struct vb_provider_end end = {.id = e->verb[i].v.id};

	if (!memory_do(e, &e->verb[i], &end.err))
		return;
	e->verbs--;
	memmove(&e->verb[i], &e->verb[i + 1], (e->verbs - i) * sizeof(e->verb[0]));
	e->executed++;
	if (e->m->bug == BUG_LOSES_AN_END && e->executed == 10)
		return;
	if (e->m->bug == BUG_FAILS_A_VERB && e->executed == 10)
		end.err = -VB_EUNKNOWN;
	e->end[e->ends++] = end;
	if (e->m->bug == BUG_ENDS_TWICE && e->executed == 10)
		e->end[e->ends++] = end;
}

/* ---- what is provided ---- */

static inline int memory_ep_open(void *ctx, uint16_t node, struct vb_provider_endpoint *out)
{
	struct memory *m = ctx;
	struct memory_ep *e = NULL;

	pthread_mutex_lock(&m->lock);
	for (unsigned i = 0; i < MEMORY_ENDPOINTS && e == NULL; i++) {
		if (!m->ep[i].open)
			e = &m->ep[i];
	}
	if (e == NULL) {
		pthread_mutex_unlock(&m->lock);
		return -ENOSPC;
	}
	*e = (struct memory_ep){.m = m, .node = node};
	e->client = m->bug == BUG_NUMBERS_COME_AGAIN ? (uint32_t)(e - m->ep) + 1 : ++m->next_client;
	e->buffer = aligned_alloc(64, MEMORY_PLACES * VB_PROVIDER_VERB_BYTES);
	vb_rng_seed(&e->rng, m->p.seed, e->client);
	e->open = e->buffer != NULL;
	pthread_mutex_unlock(&m->lock);
	if (!e->open)
		return -ENOMEM;
	*out = (struct vb_provider_endpoint){
		.ep = e,
		.client = e->client,
		.buffer = e->buffer,
		.buffer_bytes = MEMORY_PLACES * VB_PROVIDER_VERB_BYTES,
	};
	return 0;
}

static inline void memory_ep_close(void *ctx, void *ep)
{
	struct memory *m = ctx;
	struct memory_ep *e = ep;

	memory_let_go(e);
	pthread_mutex_lock(&m->lock);
	e->open = false;
	free(e->buffer);
	pthread_mutex_unlock(&m->lock);
}

static inline int memory_post(void *ctx, void *ep, const struct vb_provider_verb *verbs, unsigned n)
{
	struct memory_ep *e = ep;

	(void)ctx;
	if (n > MEMORY_PLACES - e->verbs)
		return -ENOSPC;
	for (unsigned i = 0; i < n; i++)
		e->verb[e->verbs++] = (struct memory_verb){.v = verbs[i]};
	return 0;
}

static inline int memory_poll(void *ctx, void *ep, struct vb_provider_end *out, unsigned n)
{
	struct memory_ep *e = ep;
	unsigned steps = 1 + (unsigned)vb_rng_below(&e->rng, 3), taken;

	(void)ctx;
	if (e->m->bug != BUG_NONE)
		steps = 1;
	for (; steps > 0 && e->verbs > 0; steps--)
		memory_step(e);
	taken = e->ends < n ? e->ends : n;
	memcpy(out, e->end, taken * sizeof(*out));
	e->ends -= taken;
	memmove(e->end, e->end + taken, e->ends * sizeof(*out));
	return (int)taken;
}

static inline bool memory_alive(void *ctx, uint16_t node, uint32_t client)
{
	struct memory *m = ctx;
	bool alive;

	pthread_mutex_lock(&m->lock);
	alive = memory_find(m, node, client) != NULL;
	pthread_mutex_unlock(&m->lock);
	return alive && m->bug != BUG_TAKES_FOR_DEAD;
}

static inline void *memory_local(void *ctx, uint16_t node)
{
	struct memory *m = ctx;

	return m->node[node] + (m->bug == BUG_SHOWS_ANOTHER ? 64 : 0);
}

/* NULL: no memory. */
static inline struct memory *memory_new(uint16_t nodes, uint64_t node_bytes, enum memory_bug bug)
{
	struct memory *m = calloc(1, sizeof(*m));

	if (m == NULL)
		return NULL;
	m->bug = bug;
	pthread_mutex_init(&m->lock, NULL);
	for (unsigned i = 0; i < nodes; i++) {
		m->node[i] = aligned_alloc(64, node_bytes);
		if (m->node[i] == NULL)
			abort();
		memset(m->node[i], 0, node_bytes);
	}
	if (bug == BUG_IS_NOT_ZERO)
		m->node[nodes - 1][17000] = 1;
	m->p = (struct vb_provider){
		.bytes = sizeof(m->p),
		.name = "memory",
		.ctx = m,
		.nodes = nodes,
		.node_bytes = node_bytes,
		/* As long as a thread may be held up: verbs take effect when it polls. */
		.verb_bound_ns = 4000000000ull,
		.end_ns = 60000000000ull,
		.seed = 1,
		.ep_open = memory_ep_open,
		.ep_close = memory_ep_close,
		.post = memory_post,
		.poll = memory_poll,
		.recv = memory_recv,
		.alive = memory_alive,
		.local = memory_local,
	};
	return m;
}

static inline void memory_free(struct memory *m)
{
	for (unsigned i = 0; i < MEMORY_NODES; i++)
		free(m->node[i]);
	/* What a broken promise has left open. */
	for (unsigned i = 0; i < MEMORY_ENDPOINTS; i++) {
		if (m->ep[i].open)
			free(m->ep[i].buffer);
	}
	pthread_mutex_destroy(&m->lock);
	free(m);
}

#endif
