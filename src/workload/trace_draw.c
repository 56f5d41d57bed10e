/* SPDX-License-Identifier: Apache-2.0 */
/* What traces draw, and the transactions that they put together; see trace.h. */
#include "lock/lock.h"
#include "workload/trace.h"

enum vb_mode vb_trace_both(enum vb_mode a, enum vb_mode b)
{
	/* Weaker ones first. */
	static const enum vb_mode all[] = {VB_INTENT_SHARED, VB_SHARED, VB_UPDATE,
					   VB_INTENT_EXCLUSIVE, VB_SHARED_INTENT_EXCLUSIVE};

	for (size_t i = 0; i < VB_ARRAY_SIZE(all); i++)
		if (vb_mode_covers(all[i], a) && vb_mode_covers(all[i], b))
			return all[i];
	return VB_EXCLUSIVE;
}

void vb_trace_add(struct vb_trace_client *c, uint64_t lock, enum vb_mode mode)
{
	uint32_t round = (uint32_t)c->drawn, i = (uint32_t)(lock * 0x9e3779b97f4a7c15ull >> 32);
	struct vb_trace_txn *txn = &c->txn;
	struct vb_trace_slot *s;

	vb_assert(lock < c->t->locks && (c->t->modes >> mode & 1) != 0);
	for (s = &c->slot[i & c->mask]; s->round == round && s->lock != lock;
	     s = &c->slot[++i & c->mask])
		;
	if (s->round == round) {
		/* Two modes may come to a third one. */
		txn->lock[s->at].mode = vb_trace_both(txn->lock[s->at].mode, mode);
		return;
	}
	vb_assert(txn->n < c->t->locks_max);
	*s = (struct vb_trace_slot){.lock = lock, .round = round, .at = txn->n};
	txn->lock[txn->n++] = (struct vb_trace_lock){.lock = lock, .mode = mode};
}

unsigned vb_trace_draw_type(struct vb_rng *rng, const unsigned *percent)
{
	uint64_t at = vb_rng_below(rng, 100);
	unsigned type = 0;

	while (at >= percent[type])
		at -= percent[type++];
	return type;
}

uint64_t vb_trace_nurand(struct vb_rng *rng, uint64_t a, uint64_t n)
{
	uint64_t first = vb_rng_below(rng, a + 1);

	return (first | vb_rng_below(rng, n)) % n;
}

/* Shell's sort with the gaps of Ciura: in place, and quick for the few that there are. */
void vb_trace_sort(struct vb_trace_txn *txn)
{
	static const unsigned gaps[] = {1750, 701, 301, 132, 57, 23, 10, 4, 1};

	for (size_t g = 0; g < VB_ARRAY_SIZE(gaps); g++) {
		for (unsigned i = gaps[g]; i < txn->n; i++) {
			struct vb_trace_lock moved = txn->lock[i];
			unsigned j = i;

			for (; j >= gaps[g] && txn->lock[j - gaps[g]].lock > moved.lock;
			     j -= gaps[g])
				txn->lock[j] = txn->lock[j - gaps[g]];
			txn->lock[j] = moved;
		}
	}
}
