/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Keys of the ordered table that lose their places and get others (store/places.h).
 *
 * In the place that it gets a key finds that there is no record, at a version that was another key's, or at
 * VB_VERSION_NONE where the place is new: while no place is free the table still has room that nobody has used.
 * For the history either is the version that it had when it lost its last place, or none if it never had one:
 * nobody has written it since.  Nobody who may still commit knows of an earlier place, so that one translation for
 * each key is enough.  A key loses its place only where it has no record: what is lost with one would else be taken
 * for what is there.
 */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "check/txn/world.h"

/* Of a key: what it had when it lost its last place; and what stands in the one that it has now, which means that. */
struct txn_place {
	uint64_t last, stands;
};

static struct txn_place *place_of(const struct txn_world *w, const struct vb_table *t, uint64_t key)
{
	if (w->place == NULL || (t != w->line && t != w->line->ranges) || key >= TXN_LINE_KEYS)
		return NULL;
	return &w->place[(t == w->line ? 0 : TXN_LINE_KEYS) + key];
}

int txn_places_open(struct txn_world *w)
{
	w->place = calloc(2ul * TXN_LINE_KEYS, sizeof(*w->place));
	return w->place != NULL ? 0 : -ENOMEM;
}

uint64_t txn_place_last(const struct txn_world *w, const struct vb_table *t, uint64_t key)
{
	const struct txn_place *p = place_of(w, t, key);

	return p != NULL && p->last != 0 ? p->last : VB_VERSION_NONE;
}

uint64_t txn_place_means(const struct txn_world *w, const struct vb_table *t, uint64_t key,
			 uint64_t version)
{
	const struct txn_place *p = place_of(w, t, key);

	if (p == NULL || p->stands == 0 || p->stands != version)
		return version;
	if (p->last == 0)
		return VB_VERSION_NONE;
	w->out->places_anew += version == VB_VERSION_NONE;
	return p->last;
}

void txn_placed(void *ctx, const struct vb_table *t, uint64_t key, uint64_t version, bool given)
{
	struct txn_world *w = ctx;
	struct txn_place *p = place_of(w, t, key);

	if (p == NULL)
		return;
	if (given) {
		p->stands = version;
		w->out->places_given++;
		return;
	}
	if (!(version & VB_VERSION_ABSENT))
		txn_found(w, VB_TXN_RULE_LOST_WRITE,
			  "%s/%" PRIu64 " has a record, of version %" PRIu64
			  ", and has lost its place",
			  t->name, key, version);
	p->last = txn_place_means(w, t, key, version);
	p->stands = VB_VERSION_NONE;
}
