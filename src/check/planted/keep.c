/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Who keeps holds of a lock that is right, each in a way that is not; in place of vb_lock_keep_start's.
 *
 * planted:keep-hopes       what cannot be renewed is tried on, and told a lease after its end
 * planted:keep-goes-on     renews once more when nobody keeps it any more
 * planted:keep-by-itself   takes a renewal that has no answer for done
 */
#include "check/planted/planted.h"

#include "lock/claim.h"

/* Half of what the lease has left, and then. */
static int renew_next(struct vb_planted_kept *k, bool *due)
{
	uint64_t end = k->grant->claim->valid_until_ns, now = vb_ep_now(k->me->ep);
	int err = vb_ep_sleep(k->me->ep, end > now ? (end - now) / 2 : 0);

	*due = err == 0;
	return err != 0 ? err : vb_lock_renew(k->me, k->grant, VB_FOREVER_NS);
}

int vb_planted_keeps_hoping(void *kept)
{
	struct vb_planted_kept *k = kept;
	bool due;
	int err;

	do
		err = renew_next(k, &due);
	while (err == 0 || (err != -ECANCELED && err != -VB_ELOST));
	if (err == -VB_ELOST && vb_ep_sleep(k->me->ep, k->me->space->lease_ns) != 0)
		return -VB_ELOST;
	return vb_lock_valid(k->me, k->grant) ? err : -VB_ELOST;
}

int vb_planted_keeps_past_its_end(void *kept)
{
	struct vb_planted_kept *k = kept;
	bool due, shielded;
	int err;

	do
		err = renew_next(k, &due);
	while (err == 0);
	if (err == -ECANCELED) {
		shielded = vb_task_shield(true);
		(void)vb_lock_renew(k->me, k->grant, VB_FOREVER_NS);
		vb_task_shield(shielded);
	}
	return vb_lock_valid(k->me, k->grant) ? err : -VB_ELOST;
}

int vb_planted_keeps_alone(void *kept)
{
	struct vb_planted_kept *k = kept;
	bool due;
	int err;

	for (;;) {
		err = renew_next(k, &due);
		if (err == -ECANCELED || err == -VB_ELOST)
			break;
		if (err != 0)
			k->grant->claim->valid_until_ns = k->grant->valid_until_ns =
				vb_ep_now(k->me->ep) + k->me->space->lease_ns;
	}
	return vb_lock_valid(k->me, k->grant) ? err : -VB_ELOST;
}
