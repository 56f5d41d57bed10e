/* SPDX-License-Identifier: Apache-2.0 */
/*
 * More than transactions survive.  In some seeds one thing goes wrong that nobody has promised anything
 * for; transactions may fail then, and be lost, but it is told: every call comes back in a stated time, with
 * an error that its manual has, and nothing crashes.  What holds beside that:
 *
 *	a server that never returns    everything: what needs the server fails
 *	a dead coordinator's memory    what it had committed may have happened by halves, and nobody can
 *	is gone, with its log          know.  No record is torn or other than its transaction wrote it, no
 *	                               lock stays, nobody loses one
 *	verbs are later than the       two may have a lock, and write over each other.  Who reads without a
 *	fabric says                    lock still looks whether what came is whole; no lock stays
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "check/txn/world.h"

uint64_t txn_true_bound_ns(const struct vb_txn_draw *d)
{
	return d->too_late != 0 ? d->too_late * d->bound_ns : d->bound_ns;
}

void txn_beyond_open(struct txn_world *w)
{
	if (w->d->too_late != 0)
		w->fabric->caps.verb_bound_ns = w->d->bound_ns;
}

void txn_beyond_died(struct txn_world *w, const struct vb_coordinator *me)
{
	for (unsigned i = 0; i < VB_PLACES_EACH && w->d->forgotten; i++) {
		uint32_t place = me->lane[i].place, bytes = vb_db_place_bytes(w->db, place);

		memset(vb_local(w->fabric, vb_db_place(w->db, place), bytes), 0, bytes);
	}
}

void txn_beyond_took(struct txn_slot *s, uint64_t ns)
{
	const struct txn_world *w = s->w;
	uint64_t most = VB_TXN_TRY_MOST * w->db->suspect_ns;

	if (txn_is_beyond(w) && ns > most)
		txn_found(s->w, VB_TXN_RULE_STUCK,
			  "coordinator %u: a try took %" PRIu64 " ns since the faults ended, more "
			  "than %" PRIu64,
			  s->index, ns, most);
}
