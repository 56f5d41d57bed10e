/* SPDX-License-Identifier: Apache-2.0 */
/* What ShiftLock's lock server does: recovery, once per era. */
#define VB_LOG_ROOM "shiftlock"
#include "base/log.h"
#include "lock/shiftlock/shiftlock.h"

/* Resets the entry if RelCnt is what the client saw: everything but RelCnt to zero, RelCnt one
 * generation on.  Arrivals in between are wiped with the rest and see the generation change. */
static bool reset_entry(struct vb_lock_server *server, const struct sl_recover *ask)
{
	const struct vb_u128 all = {UINT64_MAX, UINT64_MAX}, seen = {.hi = ask->rel};
	const struct vb_u128 rel = {.hi = UINT64_MAX},
			     next = {.hi = ask->rel + (1ull << SL_GEN_SHIFT)};
	uint64_t guess = 0, posted, retries = 0;
	struct vb_u128 old;
	int err = sl_is_plain(server->space)
			  ? sl_plain_mcas(server->space, server->ep, ask->entry, seen, rel, next,
					  all, &old, &guess, &posted, &retries, SL_TO_THE_END)
			  : vb_mcas128(server->ep, ask->entry, seen, rel, next, all, &old);

	return err == 0 && old.hi == ask->rel;
}

void shiftlock_serve(struct vb_lock_server *server, const struct vb_msg *request)
{
	vb_addr era_addr = vb_lock_header_field(server->space, server->node, era);
	struct vb_msg reply = {.len = sizeof(struct sl_recover)};
	struct sl_recover ask;
	uint64_t era;

	if (request->tag != SL_RECOVER || request->len != sizeof(ask))
		return;
	memcpy(&ask, request->data, sizeof(ask));
	if (!vb_lock_is_entry(server->space, server->node, ask.entry)) {
		vb_warn("a request to recover what is no lock of this node: %#llx",
			(unsigned long long)ask.entry);
		return;
	}
	/* Worker 0 alone recovers: nobody else writes the era. */
	if (vb_read64(server->ep, era_addr, &era) == 0 && era == ask.era) {
		era++;
		if (vb_write(server->ep, era_addr, &era, sizeof(era)) == 0)
			ask.done = reset_entry(server, &ask);
	}
	memcpy(reply.data, &ask, sizeof(ask));
	vb_rpc_reply(server->answers, server->ep, request, &reply);
}
