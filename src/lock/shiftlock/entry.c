/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Changes of ShiftLock's entry that are refused.  A change that a node has refused because it had stood still, or
 * to which the link was down, has not happened.  Before a claim stands in the entry that is an answer, but for the
 * first, which is asked again.  A release is asked again behind both: else its lock would stand still until it is
 * recovered.  One whose answer was lost is left to the recovery: RelCnt says that somebody has released, and not
 * who.
 */
#define VB_LOG_ROOM "shiftlock"
#include "lock/shiftlock/shiftlock.h"

int sl_change_on(struct vb_lock_client *me, vb_addr entry, const struct sl_change *change,
		 uint64_t *word, struct vb_u128 *old, uint64_t *posted_ns, uint64_t until_ns,
		 int err)
{
	for (unsigned asks = 1; err == -VB_ETOOLATE && asks < vb_lock_asks(me->space); asks++) {
		if (until_ns != SL_TO_THE_END)
			err = vb_poll_pause(me, until_ns);
		if (err != 0 && err != -VB_ETOOLATE)
			return err;
		err = sl_change_once(me, entry, change, word, old, posted_ns, until_ns);
	}
	return vb_lock_refusal(err);
}

int sl_change_back_on(struct vb_lock_client *me, vb_addr entry, const struct sl_change *change,
		      uint64_t *word, struct vb_u128 *old, int err)
{
	unsigned refused = 0;

	while (vb_lock_ask_again(me, vb_lock_refusal(err), &refused))
		err = sl_change_once(me, entry, change, word, old, NULL, SL_TO_THE_END);
	return vb_lock_unknown_if_refused(vb_lock_refusal(err));
}
