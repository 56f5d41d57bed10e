/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sundial to the letter of RCC (section 4.5): a lease that is renewed stands in a word of its own, beside the lock's,
 * and the CAS that renews it does not see a lock that was taken since the reader has looked.
 *
 *	rts word   the end of the lease, where it was renewed; 0: it never was       (the first meta word)
 *
 *	 R looks: x is free, rts = 5
 *	 W locks x, and takes its commit time from rts: 6
 *	 R: CAS rts 5 -> 9 succeeds.  R commits at 9 with the old x
 *	 W commits x at 6: at time 9 the new x was valid, and R has not seen it
 *
 * Beside that it is cc/sundial.c: the rts of the lock word, which there is the lease, is only that which the record
 * was written or unlocked with last, and a lease ends at the later of the two.
 */
#include "cc/sundial.h"

#define RENEW_TRIES 4u

struct own {
	uint64_t rts, unused;
};

static struct own *own(const struct vb_item *it)
{
	return vb_item_own(it, sizeof(struct own));
}

static vb_addr rts_word(const struct vb_item *it)
{
	return it->at + VB_TUPLE_META_AT;
}

static uint64_t later(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

/* The rts of an older version, if not of the one that was read, is shorter and does no harm. */
static void read_apart(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t version[VB_STAGE_ITEMS];

	sundial_read(s, items, n);
	for (unsigned i = 0; i < n; i++)
		if (items[i]->status == 0)
			vb_acc_read(s->acc, VB_READ_DI,
				    items[i]->at + vb_item_layout(items[i])->version_at,
				    &version[i], 8);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		if (items[i]->status == 0)
			own(items[i])->rts =
				version[i] == items[i]->version
					? vb_tuple_word(items[i]->image, VB_TUPLE_META_AT)
					: 0;
}

static void lock_apart(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t rts[VB_STAGE_ITEMS];

	sundial_lock(s, items, n);
	for (unsigned i = 0; i < n; i++)
		if (items[i]->status == 0)
			vb_acc_read(s->acc, VB_READ_DI, rts_word(items[i]), &rts[i], 8);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		if (items[i]->status == 0)
			s->commit_ts = later(s->commit_ts, rts[i] + 1);
}

/* Puts those first that nobody holds and nobody has written since they were read: how many. */
static unsigned look(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t lock[VB_STAGE_ITEMS], version[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct vb_tuple_layout *l = vb_item_layout(items[i]);

		vb_acc_read(s->acc, VB_READ_DI, items[i]->at + l->lock_at, &lock[i], 8);
		vb_acc_read(s->acc, VB_READ_DI, items[i]->at + l->version_at, &version[i], 8);
	}
	if (!vb_stage_go(s, items, n))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		items[i]->seen = lock[i];
		items[i]->seen_slot = 0;
		if (sundial_whose(lock[i]).shown != 0)
			items[i]->status = VB_TXN_LEASE;
		else if (version[i] != items[i]->version)
			items[i]->status = VB_TXN_CHANGED;
		else
			items[m++] = items[i];
	}
	return m;
}

static unsigned too_short(const struct vb_stage *s, struct vb_item **items, unsigned n)
{
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++)
		if (later(items[i]->lease, own(items[i])->rts) < s->commit_ts)
			items[m++] = items[i];
	return m;
}

static void renew_apart(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	unsigned m;

	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		some[i] = items[i];
	}
	m = too_short(s, some, n);
	if (m > 0)
		m = look(s, some, m);
	for (unsigned tries = 0; m > 0; tries++) {
		uint64_t was[VB_STAGE_ITEMS];

		for (unsigned i = 0; i < m; i++)
			vb_acc_cas(s->acc, VB_AMOD_IM, rts_word(some[i]), own(some[i])->rts,
				   s->commit_ts, &was[i]);
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < m; i++) {
			bool renewed = was[i] == own(some[i])->rts;

			own(some[i])->rts = renewed ? s->commit_ts : was[i];
		}
		m = too_short(s, some, m);
		for (unsigned i = 0; i < m && tries == RENEW_TRIES; i++)
			some[i]->status = VB_TXN_LEASE;
		if (tries == RENEW_TRIES)
			return;
	}
}

static const struct vb_cc_word words[1] = {
	{.at = VB_TUPLE_META_AT, .kind = VB_WORD_DATA, .n = 1},
};

static const struct vb_stage_ops stages[] =
	SUNDIAL_STAGE_TABLE(read_apart, lock_apart, renew_apart);

const struct vb_cc_ops vb_cc_sundial_as_published = {
	.name = "sundial-as-published",
	.summary = "sundial whose renewals look at the lock first, and then at the lease alone",
	.source = "RCC section 4.5, to the letter",
	.caps = VB_CC_LOGICAL | VB_CC_TIME_ENDS,
	.planted = "not-serializable",
	.meta_bytes = 16,
	.words = words,
	.n_words = 1,
	.item_bytes = sizeof(struct own),
	SUNDIAL_OPS(stages),
};
