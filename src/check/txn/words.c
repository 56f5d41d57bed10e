/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A held lock word names one hold: once it was let go it never comes back (txn/protocol.h).  Verbs that are late, and
 * those who look at a word twice, go by that:
 *
 *	A   has the record as w; lets it go                    has it as w again
 *	B                              finds w: since when?                        finds w: all the time, so takes it over
 *
 * Harm comes of it once in many hundred seeds, when all of that falls together.  Here the words are noted as
 * transactions had them, and one that two of them have had is found wherever it occurs.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/txn/world.h"

static void add(struct txn_world *w, const struct vb_txn *t, const struct vb_item *it)
{
	if (w->n_words == w->words_room) {
		size_t room = w->words_room != 0 ? 2 * w->words_room : 1024;
		void *more = realloc(w->words, room * sizeof(*w->words));

		if (more == NULL) {
			w->err = w->err != 0
					 ? w->err
					 : vb_fail(-ENOMEM, "no memory for the words of a seed");
			return;
		}
		w->words = more;
		w->words_room = room;
	}
	w->words[w->n_words++] = (struct txn_held){
		.at = it->at, .word = it->held, .ts = t->ts, .table = it->table, .key = it->key};
}

void txn_words_note(struct txn_world *w, const struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++) {
		const struct vb_item *it = &t->item[i];

		/* Two-phase locking has in `held` what it found when it let go. */
		if (it->flags & VB_ITEM_HELD_X && it->at != 0 &&
		    vb_name_fits(w->cc->whose(it->held), t->ts))
			add(w, t, it);
	}
}

static int by_word(const void *a, const void *b)
{
	const struct txn_held *x = a, *y = b;

	if (x->at != y->at)
		return x->at < y->at ? -1 : 1;
	if (x->word != y->word)
		return x->word < y->word ? -1 : 1;
	return x->ts < y->ts ? -1 : x->ts > y->ts;
}

void txn_words_judge(struct txn_world *w)
{
	if (w->n_words > 0)
		qsort(w->words, w->n_words, sizeof(*w->words), by_word);
	for (size_t i = 1; i < w->n_words; i++) {
		const struct txn_held *a = &w->words[i - 1], *b = &w->words[i];

		if (a->at == b->at && a->word == b->word && a->ts != b->ts)
			txn_found(w, VB_TXN_RULE_HELD_AGAIN,
				  "%s/%" PRIu64 " was held as %#" PRIx64 " by %#" PRIx64
				  ", and again by %#" PRIx64
				  ": what is late for the first meets the second",
				  b->table->name, b->key, a->word, a->ts, b->ts);
	}
}
