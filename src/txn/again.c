/* SPDX-License-Identifier: Apache-2.0 */
/* A body that runs again and again until its transaction has committed. */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "txn/db.h"

static const struct vb_txn_params as_usual;

#define PAUSE_NS      2000ull
#define PAUSE_DOUBLES 8u  /* for those whose tries are short */
#define DOUBLES_MOST  20u /* two seconds */

/*
 * What the pause before the next try is drawn from.  Tries that meet others are short, and so are their pauses.
 * But where what all ask for is more than a server can do within a lease, no try gets through, each has been
 * work in vain, and those that are back at once keep it so:
 *
 *	nine ask one server for eleven records each, one after the other: each request waits for those of eight
 *	others, and the lease is over before the eleventh has come
 *
 * There tries take as long as the queue.  So all of them together may be paused for once more, the more the
 * longer it goes on, until those that are at it get through.
 */
uint64_t vb_txn_pause_most(unsigned tries, uint64_t spent_ns)
{
	const uint64_t usual = PAUSE_NS << PAUSE_DOUBLES,
		       doubled = PAUSE_NS << (tries < DOUBLES_MOST ? tries : DOUBLES_MOST);

	if (spent_ns < usual)
		spent_ns = usual;
	return doubled < spent_ns ? doubled : spent_ns;
}

/* No longer than there is time for a try behind it. */
static void pause_before(struct vb_coordinator *me, unsigned tries, uint64_t spent_ns,
			 uint64_t until_ns)
{
	uint64_t most = vb_txn_pause_most(tries, spent_ns), now = vb_ep_now(me->ep),
		 left = until_ns > now ? until_ns - now : 1;

	vb_ep_sleep(me->ep,
		    vb_txn_least_pause(me) + vb_rng_below(&me->rng, most < left ? most : left));
}

int vb_txn_run(struct vb_coordinator *me, vb_txn_body body, void *arg, unsigned tries)
{
	return vb_txn_run_with(me, &as_usual, body, arg, tries);
}

/* What is left of the time for all tries. */
static int time_left(struct vb_coordinator *me, uint64_t until_ns, struct vb_txn_params *p)
{
	uint64_t now = vb_ep_now(me->ep);

	/* Asked for, and no error to be logged: as from a call. */
	if (now >= until_ns)
		return -ETIMEDOUT;
	p->timeout_ns = until_ns - now;
	return 0;
}

int vb_txn_run_with(struct vb_coordinator *me, const struct vb_txn_params *params, vb_txn_body body,
		    void *arg, unsigned tries)
{
	struct vb_txn_params p;
	uint64_t until = UINT64_MAX, spent = 0;

	if (vb_any_null(me, params, body))
		return -EINVAL;
	/* Also between its calls, where the body waits for something else. */
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	vb_ep_call_outside(&call);
	p = *params;
	for (unsigned i = 0; tries == 0 || i < tries; i++) {
		int err = 0;

		if (i > 0)
			pause_before(me, i, spent, until);
		if (i > 0 && p.timeout_ns != 0)
			err = time_left(me, until, &p);
		if (err == 0)
			err = vb_txn_begin_with(me, &p);
		if (err)
			return err;
		if (i == 0 && p.timeout_ns != 0 && UINT64_MAX - p.timeout_ns > me->txn.begin_ns)
			until = me->txn.begin_ns + p.timeout_ns;
		err = body(me, arg);
		if (err == 0)
			err = vb_txn_commit(me);
		if (err != 0 && me->txn.phase == VB_TXN_OPEN)
			vb_txn_abort(me);
		/* A body that looked at its end only has not seen what went wrong before. */
		if (err == -EAGAIN && me->txn.error != 0)
			err = me->txn.error;
		if (err != -EAGAIN)
			return err;
		if (vb_task_cancelled(vb_task_self()))
			return -ECANCELED;
		spent += vb_ep_now(me->ep) - me->txn.begin_ns;
	}
	return -EAGAIN;
}
