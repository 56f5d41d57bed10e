/* SPDX-License-Identifier: Apache-2.0 */
/*
 * TPC-C's new-order and payment with all their keys known before they read anything, as protocols want that agree on
 * an order first (cc/calvin.c).  Three keys are not among the inputs:
 *
 *	a new-order's rows    their number is the district's next one
 *	a payment's row       the same, of the district's payments
 *	a payment's customer  by last name, found in an index
 *
 * The customer is looked up beforehand, by a transaction of its own (a reconnaissance).  The numbers are guessed.  All
 * new-orders and payments of a district come from its node, and are asked for in the order in which they guess: so
 * whoever is next takes the next number, and has it unless somebody before him has failed, or another process of the
 * node has guessed before him and asked behind.
 *
 * What was found or guessed is looked at again in the transaction itself, which has the district and the index's row
 * as everybody has them.  If it is something else, that transaction is given up, and the next try goes by what it has
 * seen.  Then all who have guessed before that are wrong, too, and only the first of them says where to go on:
 *
 *	guessed   7 8 9        7 fails: 8 finds 7, says so; takes 7 again
 *	                       9 finds 7, and that it has been said; takes 8
 *
 * A guess is one word, which the processes of a node have in common: 63..32 how often somebody has said where to go
 * on, 31..0 the next number.
 */
#define VB_LOG_ROOM "load"
#include "txn/db.h"
#include "workload/tpcc_calls.h"

static uint64_t *guess_of(struct vb_load_client *c, enum tpcc_numbered what)
{
	const struct tpcc_drawn *d = c->own;

	return &tpcc_db_of(c->load)->guess[d->warehouse * TPCC_DISTRICTS + d->district][what];
}

bool vb_tpcc_guess(struct vb_load_client *c, enum tpcc_numbered what)
{
	uint64_t word = __atomic_fetch_add(guess_of(c, what), 1, __ATOMIC_RELAXED);
	struct tpcc_drawn *d = c->own;

	d->guess = (uint32_t)word;
	d->anew = (uint32_t)(word >> 32);
	return d->guess <= tpcc_db_of(c->load)->orders_max;
}

/* It is no wish of the transaction's: what it went by has changed. */
static int give_up(struct vb_coordinator *me)
{
	VB_SCHED_INSIDE(me->ep->sched);
	return vb_txn_end_by(&me->txn, VB_TXN_CHANGED, 0);
}

int vb_tpcc_guessed(struct vb_load_client *c, struct vb_coordinator *me, enum tpcc_numbered what,
		    uint32_t is)
{
	uint64_t *g = guess_of(c, what), was = __atomic_load_n(g, __ATOMIC_RELAXED);
	const struct tpcc_drawn *d = c->own;

	if (d->guess == is)
		return 0;
	while (was >> 32 == d->anew &&
	       !__atomic_compare_exchange_n(g, &was, (uint64_t)(uint32_t)(d->anew + 1) << 32 | is,
					    false, __ATOMIC_RELAXED, __ATOMIC_RELAXED))
		;
	return give_up(me);
}

int vb_tpcc_guessed_customer(struct vb_load_client *c, struct vb_coordinator *me, uint32_t is)
{
	struct tpcc_drawn *d = c->own;

	if (d->of_name == is)
		return 0;
	d->of_name = is;
	return give_up(me);
}
