/* SPDX-License-Identifier: Apache-2.0 */
/* Clients and queues of a traditional lock server: see traditional.h. */
#define VB_LOG_ROOM "lock"
#include "lock/traditional/traditional.h"

static uint32_t bucket(const struct trad_memory *m, uint64_t key)
{
	return (uint32_t)((key * 0x9e3779b97f4a7c15ull) >> 32) & (m->size - 1);
}

static struct trad_memory *memory_new(uint32_t size)
{
	size_t each = sizeof(struct trad_client) + sizeof(struct trad_queue) + 2 * sizeof(uint32_t);
	struct trad_memory *m = calloc(1, sizeof(*m) + size * each);

	if (!m)
		return NULL;
	m->size = size;
	m->fresh_client = m->fresh_queue = 1;
	m->client = (struct trad_client *)(m + 1);
	m->queue = (struct trad_queue *)(m->client + size);
	m->by_name = (uint32_t *)(m->queue + size);
	m->by_lock = m->by_name + size;
	return m;
}

struct trad_memory *trad_memory_first(void)
{
	return memory_new(TRAD_CLIENTS_MIN);
}

static void link_client(struct trad_memory *m, uint32_t i)
{
	uint32_t *b = &m->by_name[bucket(m, m->client[i].from)];

	m->client[i].chain = *b;
	*b = i;
}

static void link_queue(struct trad_memory *m, uint32_t i)
{
	uint32_t *b = &m->by_lock[bucket(m, m->queue[i].lock)];

	m->queue[i].chain = *b;
	*b = i;
}

/* The same in twice the room: indices stay, buckets are made anew. */
static struct trad_memory *memory_grow(struct trad_memory *old)
{
	struct trad_memory *m = memory_new(2 * old->size);

	if (!m)
		return NULL;
	m->fresh_client = old->fresh_client;
	m->fresh_queue = old->fresh_queue;
	m->free_client = old->free_client;
	m->free_queue = old->free_queue;
	memcpy(m->client, old->client, old->size * sizeof(*m->client));
	memcpy(m->queue, old->queue, old->size * sizeof(*m->queue));
	for (uint32_t i = 1; i < m->fresh_client; i++)
		if (m->client[i].from != VB_PEER_NONE)
			link_client(m, i);
	for (uint32_t i = 1; i < m->fresh_queue; i++)
		if (m->queue[i].first)
			link_queue(m, i);
	free(old);
	return m;
}

static void forget_client(struct trad_memory *m, uint32_t i)
{
	uint32_t *at = &m->by_name[bucket(m, m->client[i].from)];

	if (m->client[i].waits)
		trad_queue_remove(m, &m->client[i]);
	while (*at != i)
		at = &m->client[*at].chain;
	*at = m->client[i].chain;
	m->client[i] = (struct trad_client){.chain = m->free_client};
	m->free_client = i;
}

/*
 * Makes room: forgets clients that have not been heard of for so long that they cannot be repeating
 * an old request, and doubles the tables if most of them are recent.  False at the bound.
 */
static bool make_room(struct trad_memory **m, uint64_t now, uint64_t keep_ns)
{
	struct trad_memory *old = *m, *grown;
	uint32_t recent = 0;

	for (uint32_t i = 1; i < old->fresh_client; i++) {
		if (old->client[i].from == VB_PEER_NONE)
			continue;
		if (now < old->client[i].heard_ns + keep_ns)
			recent++;
		else
			forget_client(old, i);
	}
	if (recent <= old->size / 2 || old->size == TRAD_CLIENTS_MAX)
		return old->free_client != 0;
	grown = memory_grow(old);
	if (grown)
		*m = grown;
	return grown || old->free_client;
}

static uint32_t find_client(const struct trad_memory *m, vb_peer from)
{
	uint32_t i = m->by_name[bucket(m, from)];

	while (i && m->client[i].from != from)
		i = m->client[i].chain;
	return i;
}

struct trad_client *trad_client_of(struct trad_memory **m, vb_peer from, uint64_t now,
				   uint64_t keep_ns)
{
	uint32_t i = find_client(*m, from);

	if (i)
		return &(*m)->client[i];
	if (!(*m)->free_client && (*m)->fresh_client == (*m)->size && !make_room(m, now, keep_ns))
		return NULL;
	i = (*m)->free_client;
	if (i)
		(*m)->free_client = (*m)->client[i].chain;
	else
		i = (*m)->fresh_client++;
	(*m)->client[i] = (struct trad_client){.from = from};
	link_client(*m, i);
	return &(*m)->client[i];
}

struct trad_queue *trad_queue_of(struct trad_memory *m, uint64_t lock)
{
	uint32_t i = m->by_lock[bucket(m, lock)];

	while (i && m->queue[i].lock != lock)
		i = m->queue[i].chain;
	return i ? &m->queue[i] : NULL;
}

/* There is one for each client that waits, and never more. */
static struct trad_queue *new_queue(struct trad_memory *m, uint64_t lock)
{
	uint32_t i = m->free_queue;

	if (i)
		m->free_queue = m->queue[i].chain;
	else
		i = m->fresh_queue++;
	vb_assert(i < m->size);
	m->queue[i] = (struct trad_queue){.lock = lock};
	link_queue(m, i);
	return &m->queue[i];
}

static void drop_queue(struct trad_memory *m, struct trad_queue *q)
{
	uint32_t i = (uint32_t)(q - m->queue), *at = &m->by_lock[bucket(m, q->lock)];

	while (*at != i)
		at = &m->queue[*at].chain;
	*at = q->chain;
	*q = (struct trad_queue){.chain = m->free_queue};
	m->free_queue = i;
}

void trad_queue_push(struct trad_memory *m, struct trad_client *c)
{
	struct trad_queue *q = trad_queue_of(m, c->lock);
	uint32_t i = (uint32_t)(c - m->client);

	if (!q)
		q = new_queue(m, c->lock);
	c->waits = true;
	c->passed = 0;
	c->next = 0;
	c->prev = q->last;
	if (q->last)
		m->client[q->last].next = i;
	else
		q->first = i;
	q->last = i;
	q->readers += trad_is_shared(c->tag);
}

void trad_queue_remove(struct trad_memory *m, struct trad_client *c)
{
	struct trad_queue *q = trad_queue_of(m, c->lock);

	vb_assert(q != NULL && c->waits);
	c->waits = false;
	if (c->prev)
		m->client[c->prev].next = c->next;
	else
		q->first = c->next;
	if (c->next)
		m->client[c->next].prev = c->prev;
	else
		q->last = c->prev;
	q->readers -= trad_is_shared(c->tag);
	if (!q->first)
		drop_queue(m, q);
}
