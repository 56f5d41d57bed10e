/* SPDX-License-Identifier: Apache-2.0 */
/* Where operations come from, and what befalls all those of an endpoint or a node. */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

void sim_pool_destroy(struct sim *s)
{
	for (unsigned c = 0; c < s->n_chunks; c++) {
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			vb_timer_disarm(s->sched, &s->chunks[c][i].timer);
			free(s->chunks[c][i].big);
		}
		free(s->chunks[c]);
	}
	free(s->chunks);
}

void sim_pool_forget(struct sim *s)
{
	s->free_ops = NULL;
	for (unsigned c = 0; c < s->n_chunks; c++) {
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			struct sim_op *op = &s->chunks[c][i];

			free(op->big);
			*op = (struct sim_op){.next = s->free_ops};
			s->free_ops = op;
		}
	}
}

static int pool_grow(struct sim *s)
{
	struct sim_op *chunk;

	if (s->n_chunks == s->max_chunks) {
		unsigned max = s->max_chunks == 0 ? 16 : 2 * s->max_chunks;
		struct sim_op **chunks = realloc(s->chunks, max * sizeof(chunks[0]));

		if (chunks == NULL)
			return -ENOMEM;
		s->chunks = chunks;
		s->max_chunks = max;
	}
	chunk = calloc(SIM_POOL_CHUNK, sizeof(chunk[0]));
	if (chunk == NULL)
		return -ENOMEM;
	s->chunks[s->n_chunks++] = chunk;
	for (unsigned i = SIM_POOL_CHUNK; i-- > 0;) {
		chunk[i].next = s->free_ops;
		s->free_ops = &chunk[i];
	}
	return 0;
}

struct sim_op *sim_op_get(struct sim *s, struct sim_ep *ep)
{
	struct sim_op *op;

	if (vb_unlikely(s->free_ops == NULL) && pool_grow(s) != 0) {
		vb_error("no memory for another verb in flight");
		return NULL;
	}
	op = s->free_ops;
	s->free_ops = op->next;
	op->ep = ep;
	ep->ops++;
	return op;
}

void sim_op_put(struct sim *s, struct sim_op *op)
{
	if (vb_unlikely(op->big != NULL)) {
		free(op->big);
		op->big = NULL;
	}
	op->ep->ops--;
	op->ep = NULL;
	op->verb = NULL;
	op->batch = NULL;
	op->next = s->free_ops;
	s->free_ops = op;
}

void sim_ops_detach(struct sim *s, const struct sim_ep *ep)
{
	for (unsigned c = 0; c < s->n_chunks; c++) {
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			struct sim_op *op = &s->chunks[c][i];

			if (op->ep != ep || op->batch == NULL)
				continue;
			/* Who closes may have killed his tasks: their stacks are gone. */
			if (!ep->closed) {
				op->batch->pending = 0;
				if (op->batch->waiter != NULL)
					vb_task_wake(op->batch->waiter);
			}
			op->verb = NULL;
			op->batch = NULL;
		}
	}
}

void sim_ops_drop(struct sim *s, const struct sim_ep *ep)
{
	for (unsigned c = 0; c < s->n_chunks; c++)
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++)
			if (s->chunks[c][i].ep == ep)
				s->chunks[c][i].fate |= SIM_NEVER;
}

void sim_ops_lose(struct sim *s, uint16_t node, uint64_t to)
{
	for (unsigned c = 0; c < s->n_chunks; c++)
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			struct sim_op *op = &s->chunks[c][i];

			if (op->ep != NULL && op->src == node && op->dst < 64 && to >> op->dst & 1)
				op->fate |= SIM_NEVER;
		}
}

void sim_ops_refuse(struct sim *s, const struct sim_ep *ep, uint16_t node)
{
	for (unsigned c = 0; c < s->n_chunks; c++)
		for (unsigned i = 0; i < SIM_POOL_CHUNK; i++) {
			struct sim_op *op = &s->chunks[c][i];

			if (op->ep == ep && op->dst == node)
				op->fate |= SIM_NEVER;
		}
}
