/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What killed processes leave behind on a fabric whose memory outlives them (shm): the commits that
 * they were in, and the locks that they hold.
 *
 * A commit has happened if the status word in the client's place says so.  The dead do not change
 * it any more, and others only from running to something that is not committed: so what it says
 * once the process has been reaped is what happened, until the sweep at the end gives up the place.
 */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <inttypes.h>
#include <string.h>

#include "base/log.h"

void vb_tbench_take_books(struct vb_tbench_tally *t, const struct vb_tbench_state *states,
			  unsigned n)
{
	for (unsigned k = 0; k < n; k++) {
		const struct vb_tbench_book *b = &states[k].book;

		for (unsigned i = 0; i < VB_LOAD_CHANGES_MAX; i++)
			t->change[i] += b->row[b->state & 1][i];
	}
}

bool vb_tbench_has_committed(const struct vb_db *db, uint32_t place, uint64_t ts)
{
	const uint64_t *status = vb_local(db->fabric, vb_db_place(db, place), sizeof(*status));

	return status != NULL &&
	       __atomic_load_n(status, __ATOMIC_ACQUIRE) == (ts | VB_TS_COMMITTED);
}

void vb_tbench_book_close_for(struct vb_tbench_result *r, const struct vb_db *db,
			      struct vb_tbench_state *state)
{
	struct vb_tbench_book *b = &state->book;

	if (!(b->state & VB_BOOK_OPEN))
		return;
	b->state &= 1;
	/* Of servers that run already the parent reaches nothing. */
	if (db == NULL || !db->status) {
		r->last_unclear++; /* it may be half written, too */
		return;
	}
	if (vb_tbench_has_committed(db, b->place, b->ts)) {
		b->state = !b->state;
		r->last_committed++;
	} else {
		r->last_undone++;
	}
}

int vb_tbench_sweep(struct vb_tbench_result *r, struct vb_db *db)
{
	struct vb_coordinator *me;
	int err;

	db->watch = NULL;
	err = vb_coordinator_open(db, 0, &me);
	if (err)
		return err;
	for (uint16_t node = 0; node < db->fabric->nodes && err == 0; node++) {
		uint64_t freed = 0;

		err = vb_db_recover(me, node, &freed);
		r->swept += freed;
		if (err)
			vb_fail(err, "what the dead left on node %u could not be swept up: %s",
				node, vb_strerror(err));
	}
	vb_coordinator_close(me);
	return err;
}

/* ---- whose lock is it? ---- */

struct held {
	const struct vb_db *db;
	const struct vb_tbench_state *states;
	unsigned n_states;
	uint64_t records;                    /* that the dead hold */
	const struct vb_tbench_state *state; /* who holds the first of them, and what that is */
	const struct vb_table *table;
	uint64_t key;
	bool reads;
};

static const struct vb_tbench_state *state_of(const struct held *h, uint32_t place)
{
	for (unsigned i = 0; i < h->n_states && place != VB_NO_PLACE; i++)
		if (h->states[i].common.dead &&
		    place / VB_PLACES_EACH == h->states[i].place / VB_PLACES_EACH)
			return &h->states[i];
	return NULL;
}

static void look_at(struct held *h, const struct vb_table *t, const char *tuple)
{
	const struct vb_tbench_state *state = NULL;
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	unsigned n = vb_words_named(h->db->cc, tuple, named);
	bool reads = false;

	/* The lock word is the last. */
	while (n-- > 0 && state == NULL) {
		state = named[n].kind != VB_WORD_WAITER ? state_of(h, named[n].place) : NULL;
		reads = named[n].kind == VB_WORD_READER;
	}
	if (state == NULL)
		return;
	if (h->records++ != 0)
		return;
	h->state = state;
	h->table = t;
	h->key = vb_tuple_word(tuple, VB_TUPLE_KEY_AT);
	h->reads = reads;
}

static void look_everywhere(struct held *h)
{
	const struct vb_store *store = &h->db->store;

	for (unsigned i = 0; i < store->n_tables; i++) {
		const struct vb_table *t = store->table[i];

		for (uint16_t node = 0; node < h->db->fabric->nodes; node++) {
			vb_addr header = t->node[node].header;
			const struct vb_table_header *head =
				vb_local(h->db->fabric, header, sizeof(*head));
			uint64_t n = head != NULL ? head->tuples : 0;

			for (uint64_t k = 0; k < n; k++) {
				const char *tuple =
					vb_local(h->db->fabric,
						 header + sizeof(*head) + k * t->layout.stride,
						 t->layout.bytes);

				if (tuple != NULL)
					look_at(h, t, tuple);
			}
		}
	}
}

void vb_tbench_name_holders(struct vb_tbench_result *r, const struct vb_db *db,
			    const struct vb_tbench_state *states, unsigned n)
{
	struct held h = {.db = db, .states = states, .n_states = n};
	size_t used = strlen(r->end.stall);

	if (r->end.deaths == 0)
		return;
	look_everywhere(&h);
	if (h.records == 0)
		return;
	snprintf(r->end.stall + used, sizeof(r->end.stall) - used,
		 "; client %u of the killed worker %d holds record %" PRIu64 " of table '%s'%s%s",
		 (unsigned)(h.state - states), (int)h.state->common.pid, h.key, h.table->name,
		 h.reads ? " as a reader" : "", db->recovery ? "" : ", and there is no recovery");
	used = strlen(r->end.stall);
	if (h.records > 1)
		snprintf(r->end.stall + used, sizeof(r->end.stall) - used,
			 "; the killed hold %" PRIu64 " records in all", h.records);
}
