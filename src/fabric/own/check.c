/* SPDX-License-Identifier: Apache-2.0 */
/*
 * vb_provider_check: whether a provider keeps the promises of verbena/provider.h.  It calls the provider as the
 * library does, and what it finds it tells by the name of the promise.
 */
#define VB_LOG_ROOM "own"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/own/probe.h"

#define NODES_TRIED 4u
#define ROUNDS      20u
#define ENDPOINTS   8u
#define MESSAGES    10u
#define STILL       64u /* polls after all has ended */

typedef bool (*one_check)(struct own_try *t, struct own_probe *p);

/* ---- endpoints ---- */

static bool is_new(struct own_try *t, const struct own_probe *all, unsigned n, uint32_t gone)
{
	const struct own_probe *p = &all[n];

	if (!t->p->alive(t->p->ctx, t->p->home, p->at.client))
		return own_is_broken(t, "alive", "endpoint %u is open, and taken for dead",
				     p->at.client);
	for (unsigned i = 0; i < n; i++) {
		if (all[i].at.client == p->at.client)
			return own_is_broken(t, "endpoints", "two endpoints have the number %u",
					     p->at.client);
		if (all[i].at.buffer == p->at.buffer)
			return own_is_broken(t, "endpoints", "two endpoints have one buffer");
	}
	if (p->at.client == gone)
		return own_is_broken(t, "endpoints",
				     "the number %u of an endpoint that was closed comes again",
				     gone);
	return true;
}

static bool check_endpoints(struct own_try *t)
{
	struct own_probe p[ENDPOINTS];
	uint32_t gone = 0;
	bool kept = true;

	for (unsigned i = 0; i < ENDPOINTS; i++)
		p[i] = (struct own_probe){.t = t};
	for (unsigned i = 0; kept && i < ENDPOINTS; i++)
		kept = own_probe_open(t, &p[i]) && is_new(t, p, i, gone);
	for (unsigned i = 0; kept && i < ENDPOINTS; i++) {
		gone = p[ENDPOINTS - 1].at.client;
		own_probe_close(&p[ENDPOINTS - 1]);
		kept = own_probe_open(t, &p[ENDPOINTS - 1]) && is_new(t, p, ENDPOINTS - 1, gone);
	}
	for (unsigned i = 0; i < ENDPOINTS; i++)
		own_probe_close(&p[i]);
	return kept;
}

/* ---- what is lent ---- */

static bool all_zero(struct own_probe *p, uint64_t from, uint32_t bytes)
{
	static const uint8_t zero[VB_PROVIDER_VERB_BYTES];

	for (uint32_t at = 0; at < bytes; at += VB_PROVIDER_VERB_BYTES) {
		own_probe_add(p, VB_PROVIDER_READ, 0, VB_PROVIDER_VERB_BYTES)->offset = from + at;
		if (!own_probe_run(p))
			return false;
		if (memcmp(p->verb[0].local, zero, VB_PROVIDER_VERB_BYTES) != 0)
			return own_is_broken(p->t, "zero",
					     "byte %" PRIu64
					     " of node %u, or one behind it, is not zero",
					     from + at, p->t->node);
	}
	return true;
}

static bool check_zero(struct own_try *t, struct own_probe *p)
{
	return all_zero(p, 0, VB_PROVIDER_VERB_BYTES) && all_zero(p, OWN_TRY_AT, OWN_TRY_BYTES) &&
	       all_zero(p, t->p->node_bytes - VB_PROVIDER_VERB_BYTES, VB_PROVIDER_VERB_BYTES);
}

/* ---- one endpoint ---- */

static bool check_ends(struct own_try *t, struct own_probe *p)
{
	static const enum vb_provider_op ops[] = {VB_PROVIDER_READ, VB_PROVIDER_WRITE,
						  VB_PROVIDER_CAS, VB_PROVIDER_FAA};

	(void)t;
	for (unsigned round = 0; round < ROUNDS; round++) {
		for (unsigned i = 0; i < OWN_BATCH; i++)
			memset(own_probe_add(p, ops[i % 4], 8ull * i, 8)->local, 0, 8);
		if (!own_probe_run(p))
			return false;
	}
	for (unsigned i = 0; i < STILL; i++) {
		if (!own_probe_poll(p))
			return false;
	}
	return true;
}

static uint8_t pattern(unsigned round, uint32_t i)
{
	return (uint8_t)(1 + (round * 37 + i * 11) % 255);
}

/* A WRITE of some bytes at some offset, and what a READ from 8 bytes before it shows. */
static bool write_and_read(struct own_probe *p, unsigned round, uint64_t at, uint32_t bytes)
{
	struct vb_provider_verb *v = own_probe_add(p, VB_PROVIDER_WRITE, at, bytes);
	const uint32_t seen =
		bytes + 16 < VB_PROVIDER_VERB_BYTES ? bytes + 16 : VB_PROVIDER_VERB_BYTES;
	const uint8_t *b;

	for (uint32_t i = 0; i < bytes; i++)
		((uint8_t *)v->local)[i] = pattern(round, i);
	if (!own_probe_run(p))
		return false;
	own_probe_add(p, VB_PROVIDER_READ, at - 8, seen);
	if (!own_probe_run(p))
		return false;
	b = p->verb[0].local;
	for (uint32_t i = 0; i < seen; i++) {
		const bool inside = i >= 8 && i - 8 < bytes;

		if (b[i] != (inside ? pattern(round, i - 8) : 0))
			return own_is_broken(p->t, "read-write",
					     "after a WRITE of %u bytes at offset %" PRIu64
					     " a READ shows %#x %s it",
					     bytes, OWN_TRY_AT + at, b[i],
					     inside ? "in" : "beside");
	}
	memset(own_probe_add(p, VB_PROVIDER_WRITE, at, bytes)->local, 0, bytes);
	return own_probe_run(p);
}

static bool check_last_word(struct own_try *t, struct own_probe *p)
{
	const uint64_t last = (t->p->node_bytes & ~7ull) - 8 - OWN_TRY_AT,
		       value = 0x1122334455667788;
	uint64_t now;

	if (!own_probe_set(p, last, value) || !own_probe_get(p, last, &now))
		return false;
	if (now != value)
		return own_is_broken(
			t, "read-write",
			"after a WRITE of the last word that is lent (node_bytes) a READ "
			"shows %#" PRIx64,
			now);
	return own_probe_set(p, last, 0);
}

static bool check_read_write(struct own_try *t, struct own_probe *p)
{
	static const uint16_t lengths[] = {1, 3, 8, 9, 16, 63, 64, 100, 255, 256};
	unsigned round = 0;

	for (unsigned i = 0; i < VB_ARRAY_SIZE(lengths); i++) {
		for (uint64_t at = 512; at < 512 + 9; at++) {
			if (!write_and_read(p, ++round, at, lengths[i]))
				return false;
		}
	}
	return check_last_word(t, p);
}

/* What the CPU sees, where it does. */
static bool check_local(struct own_try *t, struct own_probe *p)
{
	uint8_t *base = t->p->local != NULL ? t->p->local(t->p->ctx, t->node) : NULL;
	uint64_t *word, now;

	if (base == NULL)
		return true;
	if ((uintptr_t)base % VB_CACHELINE != 0)
		return own_is_broken(t, "local", "node %u is seen at %p: not aligned to 64",
				     t->node, (void *)base);
	word = (uint64_t *)(base + OWN_TRY_AT);
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		if (!own_probe_set(p, 0, i))
			return false;
		if (__atomic_load_n(word, __ATOMIC_ACQUIRE) != i)
			return own_is_broken(t, "local",
					     "a WRITE to node %u is not seen by its CPU", t->node);
		__atomic_store_n(word, i + ROUNDS, __ATOMIC_RELEASE);
		if (!own_probe_get(p, 0, &now))
			return false;
		if (now != i + ROUNDS)
			return own_is_broken(
				t, "local",
				"what the CPU of node %u has written a READ does not show",
				t->node);
	}
	return own_probe_set(p, 0, 0);
}

static bool one_atomic(struct own_probe *p, enum vb_provider_op op, uint64_t compare,
		       uint64_t value, uint64_t was, uint64_t then)
{
	struct vb_provider_verb *v = own_probe_add(p, op, 0, 8);
	const char *name = op == VB_PROVIDER_CAS ? "cas" : "faa";
	uint64_t old, now;

	v->compare = compare;
	v->value = value;
	if (!own_probe_run(p))
		return false;
	old = own_probe_word(p, 0);
	if (!own_probe_get(p, 0, &now))
		return false;
	if (old != was || now != then)
		return own_is_broken(p->t, name,
				     "of %#" PRIx64 " to %#" PRIx64 " on a word that was %#" PRIx64
				     ": says it was %#" PRIx64 ", and it is %#" PRIx64,
				     compare, value, was, old, now);
	return true;
}

static bool check_words(struct own_try *t, struct own_probe *p)
{
	const uint64_t big = 0x8877665544332211ull;

	(void)t;
	return one_atomic(p, VB_PROVIDER_CAS, 0, big, 0, big) &&
	       one_atomic(p, VB_PROVIDER_CAS, 1, 2, big, big) &&
	       one_atomic(p, VB_PROVIDER_CAS, big + (1ull << 32), 2, big, big) &&
	       one_atomic(p, VB_PROVIDER_CAS, big, UINT64_MAX, big, UINT64_MAX) &&
	       one_atomic(p, VB_PROVIDER_FAA, 0, 5, UINT64_MAX, 4) &&
	       one_atomic(p, VB_PROVIDER_FAA, 0, 1ull << 40, 4, (1ull << 40) + 4) &&
	       one_atomic(p, VB_PROVIDER_FAA, 0, -(uint64_t)4, (1ull << 40) + 4, 1ull << 40) &&
	       one_atomic(p, VB_PROVIDER_CAS, 1ull << 40, 0, 1ull << 40, 0);
}

/* In one batch, nothing awaited in between. */
static bool check_read_after_write(struct own_try *t, struct own_probe *p)
{
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct vb_provider_verb *v = own_probe_add(p, VB_PROVIDER_WRITE, 0, 8);

		memcpy(v->local, &i, sizeof(i));
		own_probe_add(p, VB_PROVIDER_FAA, 0, 8)->value = 100;
		v = own_probe_add(p, VB_PROVIDER_CAS, 0, 8);
		v->compare = i + 100;
		v->value = i + 200;
		own_probe_add(p, VB_PROVIDER_READ, 0, 8);
		if (!own_probe_run(p))
			return false;
		if (own_probe_word(p, 1) != i || own_probe_word(p, 2) != i + 100 ||
		    own_probe_word(p, 3) != i + 200)
			return own_is_broken(t, "read-after-write",
					     "WRITE, FAA, CAS and READ of a word, posted at once, "
					     "have not each seen the one before");
	}
	return own_probe_set(p, 0, 0);
}

static bool check_write_order(struct own_try *t, struct own_probe *p)
{
	const uint64_t last = OWN_BATCH - 1;
	uint64_t now;

	for (unsigned round = 0; round < ROUNDS; round++) {
		for (uint64_t i = 0; i <= last; i++) {
			/* Long ones among the short, for who has a way of its own for either. */
			struct vb_provider_verb *v =
				own_probe_add(p, VB_PROVIDER_WRITE, 0, i % 3 == 0 ? 128 : 8);

			memset(v->local, 0, v->bytes);
			memcpy(v->local, &i, sizeof(i));
		}
		if (!own_probe_run(p) || !own_probe_get(p, 0, &now))
			return false;
		if (now != last)
			return own_is_broken(t, "write-order",
					     "of %u WRITEs to a word, posted at once, number "
					     "%" PRIu64 " has stayed",
					     OWN_BATCH, now);
	}
	return own_probe_set(p, 0, 0);
}

static bool check_fence(struct own_try *t, struct own_probe *p)
{
	for (uint64_t i = 1; i <= ROUNDS; i++) {
		struct vb_provider_verb *v;

		own_probe_add(p, VB_PROVIDER_READ, 0, 8);
		own_probe_add(p, VB_PROVIDER_FAA, 64, 8)->value = 1;
		for (uint64_t at = 0; at <= 64; at += 64) {
			v = own_probe_add(p, VB_PROVIDER_WRITE, at, 8);
			v->fence = true;
			memcpy(v->local, &i, sizeof(i));
		}
		if (!own_probe_run(p))
			return false;
		if (own_probe_word(p, 0) != i - 1 || own_probe_word(p, 1) != i - 1)
			return own_is_broken(t, "fence",
					     "a WRITE with a fence was seen by a READ or FAA "
					     "posted before it");
	}
	return own_probe_set(p, 0, 0) && own_probe_set(p, 64, 0);
}

/* ---- messages ---- */

static void add_message(struct own_probe *from, uint32_t to, uint64_t serial)
{
	struct vb_provider_verb *v =
		own_probe_add(from, VB_PROVIDER_SEND, 0, VB_PROVIDER_MESSAGE_BYTES);
	uint64_t words[VB_PROVIDER_MESSAGE_BYTES / 8];

	for (unsigned i = 0; i < VB_ARRAY_SIZE(words); i++)
		words[i] = (uint64_t)from->at.client << 32 | serial;
	memcpy(v->local, words, sizeof(words));
	v->node = from->t->p->home;
	v->client = to;
	v->offset = 0;
}

/* The next message within end_ns: false: there is none. */
static bool take_message(struct own_probe *to, uint64_t *words)
{
	const struct vb_provider *p = to->t->p;
	const uint64_t until = vb_clock_ns() + p->end_ns;

	while (p->recv(p->ctx, to->at.ep, words) != 0) {
		if (vb_clock_ns() > until)
			return p->recv(p->ctx, to->at.ep, words) == 0;
	}
	return true;
}

static bool take_serial(struct own_probe *to, const struct own_probe *from, uint64_t *next)
{
	uint64_t words[VB_PROVIDER_MESSAGE_BYTES / 8];
	unsigned who;

	if (!take_message(to, words))
		return own_is_broken(to->t, "messages",
				     "a message whose SEND has ended well has not come within "
				     "%" PRIu64 " ns (end_ns)",
				     to->t->p->end_ns);
	for (unsigned i = 1; i < VB_ARRAY_SIZE(words); i++) {
		if (words[i] != words[0])
			return own_is_broken(to->t, "messages", "a message has come damaged");
	}
	who = words[0] >> 32 == from[1].at.client;
	if (words[0] >> 32 != from[who].at.client || (uint32_t)words[0] != next[who])
		return own_is_broken(to->t, "messages",
				     "message %u has come where %" PRIu64 " was next of its sender",
				     (uint32_t)words[0], next[who]);
	next[who]++;
	return true;
}

/* Two send to one, and what each has sent comes in its order, once. */
static bool check_order_of_messages(struct own_try *t, struct own_probe *p)
{
	uint64_t next[2] = {0}, words[VB_PROVIDER_MESSAGE_BYTES / 8];

	for (uint64_t i = 0; i < MESSAGES; i++) {
		for (unsigned who = 0; who < 2; who++) {
			add_message(&p[who], p[2].at.client, 2 * i);
			add_message(&p[who], p[2].at.client, 2 * i + 1);
			/* Both at a time, or one after the other. */
			if (!own_probe_post(&p[who]) || (i % 2 != 0 && !own_probes_end(&p[who], 1)))
				return false;
		}
		if (!own_probes_end(p, 2))
			return false;
		for (unsigned k = 0; k < 4; k++) {
			if (!take_serial(&p[2], p, next))
				return false;
		}
	}
	if (t->p->recv(t->p->ctx, p[2].at.ep, words) == 0)
		return own_is_broken(t, "messages", "a message has come twice");
	return true;
}

/* The message that was just posted, as early as it can be had: its SEND may not have ended. */
static bool take_at_once(struct own_probe *to, struct own_probe *from, uint64_t *words)
{
	const struct vb_provider *p = to->t->p;

	while (p->recv(p->ctx, to->at.ep, words) != 0) {
		if (from->out == 0)
			return take_message(to, words) ||
			       own_is_broken(to->t, "messages", "a message has not come");
		if (!own_probe_poll(from))
			return false;
	}
	return true;
}

/* A WRITE before a SEND to the same node is there when the message is. */
static bool check_told_after(struct own_try *t, struct own_probe *p)
{
	uint64_t now, words[VB_PROVIDER_MESSAGE_BYTES / 8];

	for (uint64_t i = 1; i <= MESSAGES; i++) {
		memcpy(own_probe_add(&p[0], VB_PROVIDER_WRITE, 0, 8)->local, &i, sizeof(i));
		add_message(&p[0], p[2].at.client, i);
		if (!own_probe_post(&p[0]) || !take_at_once(&p[2], &p[0], words) ||
		    !own_probe_get(&p[2], 0, &now) || !own_probes_end(p, 1))
			return false;
		if (now != i)
			return own_is_broken(t, "write-order",
					     "a message has come before the WRITE that was posted "
					     "before it");
	}
	return own_probe_set(&p[0], 0, 0);
}

/* What is sent to an endpoint that was closed reaches nobody, and ends. */
static bool check_messages_to_nobody(struct own_try *t, struct own_probe *p)
{
	const uint32_t gone = p[2].at.client;
	uint64_t words[VB_PROVIDER_MESSAGE_BYTES / 8];

	own_probe_close(&p[2]);
	if (!own_probe_open(t, &p[2]))
		return false;
	add_message(&p[0], gone, 1);
	if (!own_probe_run_any(&p[0]))
		return false;
	for (unsigned i = 0; i < STILL; i++) {
		if (t->p->recv(t->p->ctx, p[2].at.ep, words) == 0)
			return own_is_broken(t, "messages",
					     "a message for an endpoint that was closed has come "
					     "to another");
	}
	return true;
}

static bool check_messages(struct own_try *t)
{
	struct own_probe p[3];
	bool kept = true;

	if (t->p->recv == NULL)
		return true;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(p); i++)
		p[i] = (struct own_probe){.t = t};
	for (unsigned i = 0; kept && i < VB_ARRAY_SIZE(p); i++)
		kept = own_probe_open(t, &p[i]);
	kept = kept && check_order_of_messages(t, p) && check_told_after(t, p) &&
	       check_messages_to_nobody(t, p);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(p); i++)
		own_probe_close(&p[i]);
	return kept;
}

/* ---- all of it ---- */

static bool check_node(struct own_try *t)
{
	static const one_check alone[] = {
		check_zero,
		check_ends,
		check_read_write,
		check_words,
		check_read_after_write,
		check_write_order,
		check_fence,
	};
	static bool (*const together[])(struct own_try *) = {
		/* First, since a WRITE that is seen late shows in all others, too. */
		own_check_one_sees_the_other, own_check_atomic,  own_check_whole_words,
		own_check_seen_in_order,      own_check_threads,
	};
	struct own_probe p = {.t = t};
	bool kept = own_probe_open(t, &p);

	for (unsigned i = 0; kept && i < VB_ARRAY_SIZE(alone); i++)
		kept = alone[i](t, &p);
	for (unsigned i = 0; kept && i < VB_ARRAY_SIZE(together); i++)
		kept = together[i](t);
	kept = kept && check_local(t, &p) && check_zero(t, &p);
	own_probe_close(&p);
	return kept;
}

int vb_provider_check(const struct vb_provider *provider, struct vb_provider_broken *out)
{
	struct own_try t = {.p = provider};
	bool kept;
	int err;

	if (vb_any_null(provider, out))
		return -EINVAL;
	err = own_provider_check(provider);
	if (err != 0)
		return err;
	vb_clock_init();
	(void)vb_clock_hold(NULL);
	kept = check_endpoints(&t);
	for (; kept && t.node < provider->nodes && t.node < NODES_TRIED; t.node++)
		kept = check_node(&t);
	t.node = provider->home;
	kept = kept && check_messages(&t);
	vb_clock_let();
	if (kept)
		return 0;
	if (t.broken.promise == NULL)
		return t.err;
	*out = t.broken;
	return vb_fail(-EPROTO, "'%s' has broken the promise '%s': %s", provider->name,
		       t.broken.promise, t.broken.seen);
}
