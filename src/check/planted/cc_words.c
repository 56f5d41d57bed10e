/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Sundial whose lock words name a place and no transaction, and the rules that then keep a word from
 * being taken for an earlier one, one broken in each:
 *
 *	planted:adopts         takes a lock that it finds under its own place for its own
 *	planted:same-release   leaves the lease as it was when it lets a record go, so that the same word
 *	                       may be had again: what was meant for the first hold ends the second
 *	planted:same-recovery  the same of those who recover a lock
 */
#include "cc/sundial.h"
#include "check/planted/planted.h"

static uint64_t place_only(uint64_t ts)
{
	return vb_ts_make(0, vb_ts_place(ts));
}

static uint64_t locked_by_place(uint64_t ts, uint64_t was)
{
	return sundial_locked(place_only(ts), was);
}

static struct vb_word_name whose_by_place(uint64_t word)
{
	struct vb_word_name name = sundial_whose(word);

	name.shown &= place_only(~0ull);
	return name;
}

static void lock_by_place(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	uint64_t ts = s->ts;

	s->ts = place_only(ts);
	sundial_lock(s, items, n);
	s->ts = ts;
}

static bool unsure(const struct vb_item *it)
{
	return it->flags & VB_ITEM_MAYBE && !(it->flags & VB_ITEM_HELD_X) && it->at != 0;
}

static vb_addr lock_word(const struct vb_item *it)
{
	return it->at + vb_item_layout(it)->lock_at;
}

/* Of a lock whose answer was lost the place tells whose it is.  longer: by so much the lease grows when
 * the record is let go; if not at all, the word that was held may be had again. */
static void let_go(struct vb_stage *s, struct vb_item **items, unsigned n, unsigned longer)
{
	uint64_t word[VB_STAGE_ITEMS];

	for (unsigned i = 0; i < n; i++)
		if (unsure(items[i]))
			vb_acc_read(s->acc, VB_READ_DI, lock_word(items[i]), &word[i], 8);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		it->status = 0;
		if (unsure(it) && vb_name_fits(whose_by_place(word[i]), s->ts)) {
			it->held = word[i];
			it->flags |= VB_ITEM_HELD_X;
		}
		if (it->at != 0 && it->flags & VB_ITEM_HELD_X)
			vb_acc_cas(s->acc, VB_AMOD_IM, lock_word(it), it->held,
				   (it->held & SUNDIAL_RTS) + longer, &it->seen);
	}
	(void)vb_stage_go(s, items, n);
}

static void release_by_place(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	let_go(s, items, n, 1);
}

static void release_to_same(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	let_go(s, items, n, 0);
}

static uint64_t unlocked_to_same(uint64_t version, uint64_t was)
{
	return was != 0 ? was & SUNDIAL_RTS : sundial_unlocked(version, was);
}

static void lock_and_adopt(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	lock_by_place(s, items, n);
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		if (it->status != VB_TXN_LOCKED || it->seen != it->held)
			continue;
		it->flags |= VB_ITEM_HELD_X;
		it->status = 0;
		if (s->commit_ts <= it->lease)
			s->commit_ts = it->lease + 1;
	}
}

#define BY_PLACE(lock_fn, release_fn)                                                              \
	{                                                                                          \
		[SUNDIAL_READ] = {.name = "read",                                                  \
				  .flags = VB_STAGE_FETCHES | VB_STAGE_MAKES,                      \
				  .run = sundial_read},                                            \
		[SUNDIAL_LOCK] = {.name = "lock", .run = lock_fn},                                 \
		[SUNDIAL_RENEW] = {.name = "renew", .run = sundial_renew},                         \
		[SUNDIAL_COMMIT] = {.name = "commit",                                              \
				    .flags = VB_STAGE_WRITES,                                      \
				    .run = sundial_commit},                                        \
		[SUNDIAL_RELEASE] = {.name = "release", .run = release_fn},                        \
	}

#define BY_PLACE_OPS(table, unlocked_fn)                                                           \
	.stages = table, .n_stages = SUNDIAL_STAGES, .commit = SUNDIAL_COMMIT,                     \
	.release = SUNDIAL_RELEASE, .read = sundial_access, .write = sundial_write,                \
	.prepare = sundial_prepare, .unlocked = unlocked_fn, .locked = locked_by_place,            \
	.whose = whose_by_place

static const struct vb_stage_ops adopting_stages[] = BY_PLACE(lock_and_adopt, release_by_place);
static const struct vb_stage_ops same_release_stages[] = BY_PLACE(lock_by_place, release_to_same);
static const struct vb_stage_ops same_recovery_stages[] = BY_PLACE(lock_by_place, release_by_place);

const struct vb_cc_ops vb_planted_adopts = {
	.name = "planted:adopts",
	.summary = "sundial that takes a lock of its own place for its own",
	.source = "on purpose",
	.planted = "not-serializable",
	BY_PLACE_OPS(adopting_stages, sundial_unlocked),
};

const struct vb_cc_ops vb_planted_same_release = {
	.name = "planted:same-release",
	.summary = "sundial whose release leaves the word that the same place can take again",
	.source = "on purpose",
	.planted = "held-again",
	BY_PLACE_OPS(same_release_stages, sundial_unlocked),
};

const struct vb_cc_ops vb_planted_same_recovery = {
	.name = "planted:same-recovery",
	.summary = "sundial whose recovery leaves the word that the same place can take again",
	.source = "on purpose",
	.planted = "held-again",
	BY_PLACE_OPS(same_recovery_stages, unlocked_to_same),
};
