/* SPDX-License-Identifier: Apache-2.0 */
/* The words of a tuple by which transactions are in each other's way. */
#include "txn/db.h"

static unsigned add(struct vb_named_word *out, unsigned n, uint64_t word, uint32_t at, uint8_t kind,
		    struct vb_word_name name)
{
	if (name.shown == 0)
		return n;
	vb_assert(n < VB_NAMED_WORDS_MAX);
	out[n] = (struct vb_named_word){
		.word = word, .place = vb_name_place(name), .at = (uint16_t)at, .kind = kind};
	return n + 1;
}

bool vb_words_at_rest(const struct vb_store *store, const struct vb_tuple_layout *l,
		      const void *tuple, uint64_t common_ns)
{
	const struct vb_cc_ops *cc = vb_container_of(store, const struct vb_db, store)->cc;
	const uint64_t clock = common_ns >> VB_TS_CLOCK_SHIFT;
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	bool past = vb_words_named(cc, tuple, named) == 0;

	for (unsigned i = 0; i < l->slots; i++)
		past &= vb_ts_clock(vb_slot_version(l, tuple, i)) < clock;
	/* Where reads are locked no timestamp says who has read. */
	for (unsigned i = 0; i < cc->n_words && !(cc->caps & VB_CC_READ_LOCKS); i++)
		for (unsigned k = 0; k < cc->words[i].n; k++)
			past &= vb_ts_clock(vb_tuple_word(tuple, cc->words[i].at + k * 8)) < clock;
	return past;
}

unsigned vb_words_named(const struct vb_cc_ops *cc, const void *tuple,
			struct vb_named_word out[VB_NAMED_WORDS_MAX])
{
	uint32_t lock_at = VB_TUPLE_META_AT + cc->meta_bytes;
	uint64_t word;
	unsigned n = 0;

	for (unsigned i = 0; i < cc->n_words; i++) {
		const struct vb_cc_word *w = &cc->words[i];

		for (unsigned k = 0; k < w->n && w->kind != VB_WORD_DATA; k++) {
			word = vb_tuple_word(tuple, w->at + k * 8);
			n = add(out, n, word, w->at + k * 8, w->kind, vb_ts_named(word));
		}
	}
	word = vb_tuple_word(tuple, lock_at);
	return add(out, n, word, lock_at, VB_WORD_LOCK, cc->whose(word));
}
