/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is found wrong.  A record's bytes follow from the money in it, so that one that mixes two
 * versions shows it, whatever the protocol says of versions.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdarg.h>

#include "base/log.h"
#include "check/txn/world.h"

#define STORIES_MAX 4u /* of one rule */

const char *const vb_txn_rule_names[VB_TXN_RULES] = {
	[VB_TXN_RULE_NOT_SERIALIZABLE] = "not-serializable",
	[VB_TXN_RULE_TORN_READ] = "torn-read",
	[VB_TXN_RULE_LOST_WRITE] = "lost-write",
	[VB_TXN_RULE_MONEY] = "money",
	[VB_TXN_RULE_LEAKED_LOCK] = "leaked-lock",
	[VB_TXN_RULE_STUCK] = "stuck",
	[VB_TXN_RULE_CONTENTS] = "contents",
	[VB_TXN_RULE_REFUSED] = "refused",
	[VB_TXN_RULE_LOST_LOCK] = "lost-lock",
	[VB_TXN_RULE_NEEDLESS] = "needless-recovery",
	[VB_TXN_RULE_WRONG_ERROR] = "wrong-error",
	[VB_TXN_RULE_WRONG_WAIT] = "wrong-wait",
	[VB_TXN_RULE_HELD_AGAIN] = "held-again",
	[VB_TXN_RULE_UNASKED] = "unasked",
};

/* In a seed that has more in store than is survived: why, says beyond.c. */
static bool holds(const struct txn_world *w, enum vb_txn_rule rule)
{
	static const uint32_t by_halves = 1u << VB_TXN_RULE_NOT_SERIALIZABLE |
					  1u << VB_TXN_RULE_LOST_WRITE | 1u << VB_TXN_RULE_MONEY;
	static const uint32_t two_holders =
		by_halves | 1u << VB_TXN_RULE_CONTENTS | 1u << VB_TXN_RULE_LOST_LOCK;
	uint32_t lost = 0;

	if (w->d->forgotten)
		lost |= by_halves;
	if (w->d->too_late != 0)
		lost |= two_holders;
	/* What is locked is not looked at. */
	if (w->d->too_late != 0 && w->cc->caps & VB_CC_READ_LOCKS)
		lost |= 1u << VB_TXN_RULE_TORN_READ;
	return !(lost >> rule & 1);
}

void txn_found(struct txn_world *w, enum vb_txn_rule rule, const char *format, ...)
{
	va_list args;

	if (!holds(w, rule)) {
		w->out->excused++;
		return;
	}
	w->out->violations++;
	if (w->out->found[rule]++ >= STORIES_MAX)
		return;
	fprintf(w->stories, "%s: ", vb_txn_rule_names[rule]);
	va_start(args, format);
	vfprintf(w->stories, format, args);
	va_end(args);
	fprintf(w->stories, "\n");
}

void txn_wrong(struct txn_slot *s, const char *call, int err)
{
	struct txn_world *w = s->w;

	if (w->err == 0) {
		w->err = err;
		w->wrong = err != -ENOMEM;
		if (w->wrong)
			txn_found(w, VB_TXN_RULE_WRONG_ERROR,
				  "coordinator %u: a %s returned %d (%s), which it may not",
				  s->index, call, err, vb_strerror(err));
	}
	w->all_safe = true;
}

void txn_count(struct txn_world *w, const struct vb_coordinator *me)
{
	w->out->commits += me->commits;
	w->out->recovered += me->recovered;
	w->out->rolled_forward += me->rolled_forward;
	if (me->lost_locks > 0)
		txn_found(w, VB_TXN_RULE_LOST_LOCK,
			  "coordinator %u had committed and let %" PRIu64
			  " locks go that were no longer its own",
			  me->index, me->lost_locks);
	if (me->lost_writes > 0)
		txn_found(w, VB_TXN_RULE_LOST_WRITE,
			  "coordinator %u has found that %" PRIu64
			  " writes are lost, though what wrote them had committed",
			  me->index, me->lost_writes);
	for (unsigned i = 0; i < VB_TXN_CAUSES; i++)
		w->out->aborts[i] += me->aborts[i];
}

/* ---- records ---- */

static uint64_t mix(uint64_t x)
{
	x = (x ^ x >> 31) * 0x9e3779b97f4a7c15ull;
	return x ^ x >> 29;
}

static uint64_t word_of(int64_t money, unsigned i)
{
	return mix((uint64_t)money * 0x2545f4914f6cdd1dull + i);
}

/* Of the word there: the last may be a part of one. */
static size_t width(const struct txn_world *w, unsigned at)
{
	return w->d->record_bytes - at < 8 ? w->d->record_bytes - at : 8;
}

void txn_record_fill(struct txn_world *w, void *record, int64_t money)
{
	unsigned char *bytes = record;

	memcpy(bytes, &money, 8);
	for (unsigned at = 8; at < w->d->record_bytes; at += 8) {
		uint64_t word = word_of(money, at / 8);

		memcpy(bytes + at, &word, width(w, at));
	}
}

int64_t txn_money_in(struct txn_slot *s, const char *table, uint64_t key, const void *record)
{
	const unsigned char *bytes = record;
	int64_t money;

	memcpy(&money, bytes, 8);
	if (txn_beside_has(money))
		txn_found(s->w, VB_TXN_RULE_CONTENTS,
			  "coordinator %u was given a record of %s/%" PRIu64
			  " that is the database's beside",
			  s->index, table, key);
	for (unsigned at = 8; at < s->w->d->record_bytes; at += 8) {
		uint64_t word = word_of(money, at / 8);

		if (memcmp(bytes + at, &word, width(s->w, at)) == 0)
			continue;
		txn_found(s->w, VB_TXN_RULE_TORN_READ,
			  "coordinator %u was given a record of %s/%" PRIu64
			  " that nobody wrote: word %u does not belong to the first",
			  s->index, table, key, at / 8);
		break;
	}
	return money;
}
