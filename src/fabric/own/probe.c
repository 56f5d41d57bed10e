/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "own"
#include "fabric/own/probe.h"

#include <inttypes.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>

/* A verb has not ended in time only if it was asked for so often, too: this thread may have stood still. */
#define POLLS_LEAST 1000u

bool own_is_broken(struct own_try *t, const char *promise, const char *fmt, ...)
{
	va_list ap;

	if (t->broken.promise != NULL)
		return false;
	t->broken.promise = promise;
	va_start(ap, fmt);
	vsnprintf(t->broken.seen, sizeof(t->broken.seen), fmt, ap);
	va_end(ap);
	return false;
}

bool own_probe_open(struct own_try *t, struct own_probe *out)
{
	const char *wrong;
	uint32_t places;
	int err;

	*out = (struct own_probe){.t = t};
	err = t->p->ep_open(t->p->ctx, t->p->home, &out->at);
	if (err != 0)
		return own_is_broken(t, "endpoints", "ep_open at node %u says %d", t->p->home, err);
	out->open = true;
	wrong = own_endpoint_wrong(&out->at);
	if (wrong != NULL)
		return own_is_broken(t, "endpoints", "ep_open gave an endpoint with %s", wrong);
	places = (uint32_t)(out->at.buffer_bytes / VB_PROVIDER_VERB_BYTES);
	out->limit = places < OWN_BATCH ? places : OWN_BATCH;
	return true;
}

void own_probe_close(struct own_probe *p)
{
	if (p->open)
		p->t->p->ep_close(p->t->p->ctx, p->at.ep);
	p->open = false;
}

struct vb_provider_verb *own_probe_add(struct own_probe *p, enum vb_provider_op op, uint64_t offset,
				       uint32_t bytes)
{
	struct vb_provider_verb *v;

	if (p->out == 0 && p->n > 0 && p->ended[p->n - 1]) {
		/* The former batch is over. */
		p->n = 0;
	}
	vb_assert(p->n < OWN_BATCH);
	if (p->n == 0)
		p->round++;
	v = &p->verb[p->n];
	*v = (struct vb_provider_verb){
		.id = (uint64_t)p->round << 32 | p->n,
		.op = op,
		.node = p->t->node,
		.offset = OWN_TRY_AT + offset,
		.bytes = bytes,
		.local = p->data[p->n],
	};
	p->ended[p->n] = false;
	p->err[p->n] = 0;
	p->n++;
	return v;
}

/* The place in the endpoint's buffer of the verb of that number. */
static uint8_t *place_of(const struct own_probe *p, uint32_t i)
{
	return (uint8_t *)p->at.buffer + (size_t)(i % p->limit) * VB_PROVIDER_VERB_BYTES;
}

/* In as many posts as there are places for: who has four has four verbs under way. */
static bool post_some(struct own_probe *p, uint32_t from, uint32_t n)
{
	const struct vb_provider *prov = p->t->p;
	struct vb_provider_verb verbs[OWN_BATCH];
	int err;

	for (uint32_t i = 0; i < n; i++) {
		verbs[i] = p->verb[from + i];
		verbs[i].local = place_of(p, from + i);
		memcpy(verbs[i].local, p->data[from + i], VB_PROVIDER_VERB_BYTES);
	}
	err = prov->post(prov->ctx, p->at.ep, verbs, n);
	if (err != 0)
		return own_is_broken(p->t, "ends", "post of %u verbs says %d", n, err);
	p->out += n;
	return true;
}

static bool await(struct own_probe *p, unsigned n);

bool own_probe_post(struct own_probe *p)
{
	for (uint32_t from = 0; from < p->n; from += p->limit) {
		const uint32_t left = p->n - from;

		if (from > 0 && !await(p, 1))
			return false;
		if (!post_some(p, from, left < p->limit ? left : p->limit))
			return false;
	}
	return true;
}

static bool note_end(struct own_probe *p, const struct vb_provider_end *end)
{
	const uint32_t i = (uint32_t)end->id;

	if ((uint32_t)(end->id >> 32) != p->round || i >= p->n)
		return own_is_broken(p->t, "ends",
				     "poll tells the end of verb %#" PRIx64
				     ", which was not posted "
				     "here or has ended before",
				     end->id);
	if (p->ended[i])
		return own_is_broken(p->t, "ends", "a verb has ended twice");
	p->ended[i] = true;
	p->err[i] = end->err;
	memcpy(p->data[i], place_of(p, i), VB_PROVIDER_VERB_BYTES);
	p->out--;
	return true;
}

bool own_probe_poll(struct own_probe *p)
{
	const struct vb_provider *prov = p->t->p;
	struct vb_provider_end ends[4];
	int n = prov->poll(prov->ctx, p->at.ep, ends, VB_ARRAY_SIZE(ends));

	if (n < 0 || n > (int)VB_ARRAY_SIZE(ends))
		return own_is_broken(p->t, "ends", "poll for %zu ends says %d", VB_ARRAY_SIZE(ends),
				     n);
	for (int i = 0; i < n; i++) {
		if (!note_end(p, &ends[i]))
			return false;
	}
	return true;
}

static bool await(struct own_probe *p, unsigned n)
{
	const uint64_t end_ns = p->t->p->end_ns, until = vb_clock_ns() + end_ns;
	unsigned left = n;

	for (unsigned polls = 0; left > 0; polls++) {
		const bool late = vb_clock_ns() > until && polls > POLLS_LEAST;

		left = 0;
		for (unsigned i = 0; i < n; i++) {
			if (p[i].out > 0 && !own_probe_poll(&p[i]))
				return false;
			left += p[i].out > 0;
		}
		if (left > 0 && late)
			return own_is_broken(p->t, "ends",
					     "a verb to node %u has not ended within %" PRIu64
					     " ns (end_ns)",
					     p->t->node, end_ns);
		if (left > 0 && polls % 64 == 63)
			sched_yield();
	}
	return true;
}

bool own_probes_end(struct own_probe *p, unsigned n)
{
	if (!await(p, n))
		return false;
	for (unsigned i = 0; i < n; i++) {
		for (unsigned k = 0; k < p[i].n; k++) {
			if (p[i].err[k] != 0)
				return own_is_broken(p->t, "ends",
						     "a verb to node %u has ended with %d",
						     p[i].verb[k].node, p[i].err[k]);
		}
	}
	return true;
}

bool own_probe_run(struct own_probe *p)
{
	return own_probe_post(p) && own_probes_end(p, 1);
}

bool own_probe_run_any(struct own_probe *p)
{
	return own_probe_post(p) && await(p, 1);
}

uint64_t own_probe_word(const struct own_probe *p, unsigned i)
{
	uint64_t word;

	memcpy(&word, p->verb[i].local, sizeof(word));
	return word;
}

bool own_probe_get(struct own_probe *p, uint64_t offset, uint64_t *out)
{
	own_probe_add(p, VB_PROVIDER_READ, offset, 8);
	if (!own_probe_run(p))
		return false;
	*out = own_probe_word(p, 0);
	return true;
}

bool own_probe_set(struct own_probe *p, uint64_t offset, uint64_t value)
{
	memcpy(own_probe_add(p, VB_PROVIDER_WRITE, offset, 8)->local, &value, sizeof(value));
	return own_probe_run(p);
}
