/* SPDX-License-Identifier: Apache-2.0 */
/*
 * ShiftLock's entry in one word of 64 bits, for fabrics without 128-bit masked atomics.  The word
 * and what its narrow fields ask of others are in shiftlock.h; here it is only read, changed, and
 * turned into the wide form and back.
 */
#define VB_LOG_ROOM "shiftlock"
#include "lock/shiftlock/shiftlock.h"

#include "base/sometimes.h"

#define GEN_BITS    8
#define RDR_BITS    18
#define EPOCH_BIT   SL_PLAIN_TAIL_BITS
#define GEN_SHIFT   (EPOCH_BIT + 1)
#define RDR_SHIFT   (GEN_SHIFT + GEN_BITS)
#define COUNT_SHIFT (RDR_SHIFT + RDR_BITS)

#define BITS(n) ((1ull << (n)) - 1)

_Static_assert(COUNT_SHIFT + SL_PLAIN_COUNT_BITS == 64, "one word");
_Static_assert(RDR_BITS >= SL_PLAIN_TAIL_BITS, "whoever has a name can read");

unsigned sl_plain_client_bits(const struct vb_lock_space *s)
{
	unsigned node_bits = 64u - (unsigned)__builtin_clzll(s->fabric->nodes);

	return SL_PLAIN_TAIL_BITS - node_bits;
}

static uint64_t narrow_tail(const struct vb_lock_space *s, vb_peer peer)
{
	return peer >> 24 << sl_plain_client_bits(s) | (peer & BITS(24));
}

static vb_peer wide_tail(const struct vb_lock_space *s, uint64_t tail)
{
	unsigned bits = sl_plain_client_bits(s);

	return tail >> bits << 24 | (tail & BITS(bits));
}

static uint64_t narrow(const struct vb_lock_space *s, const struct vb_u128 *e)
{
	return (e->hi & BITS(SL_PLAIN_COUNT_BITS)) << COUNT_SHIFT |
	       (sl_readers(e->lo) & BITS(RDR_BITS)) << RDR_SHIFT |
	       (sl_gen(e->hi) & BITS(GEN_BITS)) << GEN_SHIFT |
	       (uint64_t) !!(e->lo & SL_EPOCH) << EPOCH_BIT | narrow_tail(s, e->lo & SL_TAIL_MASK);
}

static struct vb_u128 wide(const struct vb_lock_space *s, uint64_t word)
{
	return (struct vb_u128){
		.hi = (word >> GEN_SHIFT & BITS(GEN_BITS)) << SL_GEN_SHIFT | word >> COUNT_SHIFT,
		.lo = (word >> EPOCH_BIT & 1 ? SL_EPOCH : 0) |
		      (word >> RDR_SHIFT & BITS(RDR_BITS)) << SL_RDR_SHIFT |
		      wide_tail(s, word & BITS(SL_PLAIN_TAIL_BITS)),
	};
}

uint64_t sl_plain_word(const struct vb_lock_space *s, uint64_t rel)
{
	return narrow(s, &(struct vb_u128){.hi = rel});
}

int sl_plain_read(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		  struct vb_u128 *out, uint64_t *guess)
{
	int err = vb_read64(ep, entry, guess);

	if (err == 0)
		*out = wide(s, *guess);
	return err;
}

/* A look changes nothing, whatever has become of it. */
static int look(struct vb_ep *ep, vb_addr entry, uint64_t *word)
{
	int err = vb_read64(ep, entry, word);

	return vb_unlikely(err == -VB_EUNKNOWN) ? -VB_ETOOLATE : err;
}

/* Each CAS that fails shows another client's that has succeeded.  How often that happens has no
 * bound. */
int sl_plain_mcas(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		  struct vb_u128 compare, struct vb_u128 compare_mask, struct vb_u128 swap,
		  struct vb_u128 swap_mask, struct vb_u128 *old, uint64_t *guess,
		  uint64_t *posted_ns, uint64_t *retries, uint64_t until_ns)
{
	uint64_t word = VB_CHANCE(200, "shiftlock: has forgotten the entry") ? 0 : *guess, seen,
		 next;
	bool looked = word == 0;
	int err = looked ? look(ep, entry, &word) : 0;

	while (err == 0) {
		struct vb_u128 e = wide(s, word), n;

		*old = e;
		if (((e.lo ^ compare.lo) & compare_mask.lo) ||
		    ((e.hi ^ compare.hi) & compare_mask.hi)) {
			if (looked)
				return 0;
			/* That is what we remember: look whether it is still so. */
			looked = true;
			err = look(ep, entry, &word);
			continue;
		}
		n.lo = (e.lo & ~swap_mask.lo) | (swap.lo & swap_mask.lo);
		n.hi = (e.hi & ~swap_mask.hi) | (swap.hi & swap_mask.hi);
		next = narrow(s, &n);
		*posted_ns = vb_ep_now_early(ep);
		err = vb_cas64_before(ep, entry, word, next, VB_FOREVER, &seen);
		if (err == 0 && seen == word) {
			*guess = next;
			return 0;
		}
		word = seen;
		looked = true;
		++*retries;
		if (err != 0 || until_ns == SL_TO_THE_END)
			continue;
		if (vb_task_cancelled(vb_task_self()))
			return -ECANCELED;
		if (until_ns != VB_FOREVER && vb_ep_now(ep) >= until_ns)
			return -ETIMEDOUT;
	}
	return err;
}

int sl_plain_enter(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		   struct vb_u128 *old)
{
	uint64_t word;
	int err = vb_faa64_before(ep, entry, 1ull << RDR_SHIFT, VB_FOREVER, &word);

	if (err == 0)
		*old = wide(s, word);
	return err;
}

/* One reader less and one release more, in one addition.  If a recovery has wiped the reader away
 * meanwhile, RdrCnt borrows from the count and leaves the generation alone. */
int sl_plain_leave(const struct vb_lock_space *s, struct vb_ep *ep, vb_addr entry,
		   uint64_t not_after, struct vb_u128 *old)
{
	uint64_t word;
	int err = vb_faa64_before(ep, entry, (1ull << COUNT_SHIFT) - (1ull << RDR_SHIFT), not_after,
				  &word);

	if (err == 0)
		*old = wide(s, word);
	return err;
}
