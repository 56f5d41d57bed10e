/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Coordinators of processes that have no node, the clients of an elastic cluster (doc/elastic.md): their places are
 * *far*.  They lie at the client's home, a node of a server, among those that the database has there for whomever
 * (vb_db_params.coordinators), and are claimed as ever, by a CAS of their owner word.  All that a coordinator does to
 * its places it then does by verbs: status words as ever, the log and the clock see lane.c, answers of servers see
 * call.c.  Memory and owner have lives of their own, and either may end first:
 *
 *	the home ends      so do its places, as those of any node do: doc/transactions.md
 *	the owner ends     its home says so (vb_peer_alive).  Transactions that others meet they recover as ever.  The
 *	                   places are *adopted*: by who needs one and finds none free, here, or they are given up by
 *	                   a sweep (sweep.c)
 *
 * Who is said to be no more may only have been cut off, and not know it.  That nothing of it does harm:
 *
 *	at its home       The word that a client is no more and the end of its connection are one step of its home,
 *	                  which executes none of its verbs any more; should it connect anew it is told that it was
 *	                  given up, and posts nothing there (fabric/net/elastic.c: bury, changed).  So behind that
 *	                  word its status words, logs, clock and owner word are changed by others only, and nothing
 *	                  of it is committed that was not by then
 *	at other nodes    What it had committed it may still write there for as long as a commit may be written at all:
 *	                  a lease from its commit point, and what it has posted by then lands a bound later.  So who
 *	                  gives its places up waits for suspect_ns between that word and the first verb that counts on
 *	                  its silence, as between two looks at a status word.  The same holds of what it was writing
 *	                  for others, in the name of its recovery places: it takes no lock over for them when that
 *	                  is over (recover.c, take_over); and of its logs' copies (lane.c, vb_lane_log_by)
 *	locks             that it takes late are left behind by a name which its place has no longer: suspect.c
 *
 * An endpoint that was closed while its owner lives, and left its places claimed since its home could not be reached,
 * is no more in the same sense: it posts nothing, and what it has posted lands within a bound.
 *
 * The places come with what they were left with.  Of the two for transactions each may have one that is committed, and
 * has to be finished in the name of a place for recovery.  Of those two one at most has something left: either names
 * another's tuple only when the last that it had named is done, but when it takes over from the other, and then the
 * tuple's lock word says whose it is.  That one is finished first, in the name of the other: so it is not forgotten
 * if whoever adopts them dies as well.  It dies as their owner, and all begins again.
 */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "txn/db.h"

static vb_addr owner_word(const struct vb_coordinator *me, uint32_t number)
{
	uint32_t place = ((uint32_t)me->node * me->db->coordinators + number) * VB_PLACES_EACH;

	return vb_db_place(me->db, place) + offsetof(struct vb_place_head, owner);
}

/* 0: *number is of places whose owner is gone, and that is its name; -ENOSPC: there are none. */
static int find_left(struct vb_coordinator *me, uint32_t *number, uint64_t *who)
{
	for (*number = 0; *number < me->db->coordinators; ++*number) {
		int err = vb_read64(me->ep, owner_word(me, *number), who);

		if (err != 0)
			return err;
		if (*who != 0 && !vb_peer_alive(me->db->fabric, *who))
			return 0;
	}
	return -ENOSPC;
}

int vb_adopt_number(struct vb_coordinator *me)
{
	uint64_t who = 0, old = 0;
	uint32_t number;
	int err = find_left(me, &number, &who);

	if (err == 0)
		err = vb_ep_sleep(me->ep, me->db->suspect_ns);
	if (err == 0)
		err = vb_cas64(me->ep, owner_word(me, number), who, me->ep->self, &old);
	/* If that lands it is left once more, by an endpoint that is closed. */
	if (err != 0)
		return err;
	if (old != who)
		return -EAGAIN;
	me->number = number;
	me->adopts = true;
	return 0;
}

/* Does the tuple's lock stand in the name of this place, which is for recovery? */
static int is_pending(struct vb_coordinator *me, const struct vb_lane *lane, bool *pending)
{
	const struct vb_log_entry *e;
	const struct vb_table *t;
	uint32_t bytes, at = 0;
	unsigned char *log;
	uint64_t word = 0;
	int err = 0;

	*pending = false;
	if ((lane->status & VB_TS_STATE) != VB_TS_COMMITTED)
		return 0;
	err = vb_recovery_log(me, lane->place, vb_ts_name(lane->status), &log, &bytes);
	if (err != 0 || log == NULL)
		return err;
	while (err == 0 &&
	       (e = vb_log_next(log + sizeof(struct vb_place_head), bytes, &at)) != NULL) {
		t = e->table < me->db->store.n_tables ? me->db->store.table[e->table] : NULL;
		/* vb_lane_finish says what is missing. */
		if (t != NULL)
			err = vb_recovery_read(me, VB_AMOD_IM, e->at + t->layout.lock_at, &word);
		if (err == -VB_EPEERGONE && vb_node_gone(me->db->fabric, vb_addr_node(e->at)))
			err = 0;
		else
			*pending |= err == 0 && (t == NULL || word == e->held);
	}
	vb_recovery_let_go(log);
	return err;
}

static int settle(struct vb_coordinator *me, unsigned lane)
{
	uint32_t place = me->lane[lane].place;
	uint64_t still = 0;
	int err = vb_place_free(me, place, owner_word(me, me->number), me->ep->self, &still);

	if (err == 0 && still != me->ep->self)
		return -VB_EPEERGONE; /* by now it is we who are said to be no more */
	me->lane[lane].copies_known = false;
	if (err == 0)
		err = vb_recovery_read(me, VB_READ_TM, vb_status_word(me->db, place),
				       &me->lane[lane].status);
	return err;
}

int vb_adopt_settle(struct vb_coordinator *me)
{
	unsigned first = VB_PLACES_TXN;
	bool pending;
	int err = is_pending(me, &me->lane[VB_PLACES_TXN + 1], &pending);

	if (err != 0)
		return err;
	if (pending)
		first++;
	/* What is finished next is so in the name of the other one. */
	me->recovering = first - VB_PLACES_TXN;
	err = settle(me, first);
	if (err == 0)
		err = settle(me, first == VB_PLACES_TXN ? first + 1 : VB_PLACES_TXN);
	for (unsigned i = 0; i < VB_PLACES_TXN && err == 0; i++)
		err = settle(me, i);
	me->adopts = err != 0;
	return err;
}
