/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The bound: until when a request may still take effect.
 *
 * A request is sent up to 1 + retries times, each time waited for with a timer of
 * 4.096 us * 2^timeout, which devices may let run for up to four times as long (InfiniBand
 * specification, 9.7.6.1.3).  What has not been acknowledged by then never will be: the connection
 * breaks.  To that product come
 *
 *	what the peer may ask for when it has no receive buffer (RNR, qp.c),
 *	the time between two looks at the age of requests (tick.c),
 *	what a packet may stand in the network (option lifetime).
 *
 * The product is the specification's.  Soft-RoCE keeps it.  A card's firmware may have a least timer
 * of its own (several hundred milliseconds on some), or retransmit by another rule, so on a card it
 * says little: verbs_measure() finds out, and the option `measured` brings the result here.  Without
 * it a card's bound is half a second at least, so that no lease is shorter than a second.  Nobody
 * knows whether that is enough for every card.
 *
 * While the process runs, a connection whose oldest request is too old is broken by us
 * (tick.c), whatever the device does.  The measured time is for a process that stands still:
 * the device goes on alone then.
 *
 * The default options, 16.8 ms and 4 retries, make 336 ms.  They are made to last through the
 * scheduling of Soft-RoCE in a loaded, emulated machine, whose timers and answers run as ordinary
 * work of the kernel.
 */
#define VB_LOG_ROOM "verbs"
#include "fabric/verbs/inner.h"

#define CARD_NS 500000000ull

static const char unmeasured[] =
	"how long this card repeats a request was not measured; `verbena doctor` measures it and "
	"prints the option of `verbs`, measured=TIME, with which leases can be shorter";

void verbs_set_bound(struct verbs *w)
{
	uint64_t formula = VERBS_FORMULA_NS(w->o.timeout, w->o.retries);
	uint64_t gives_up = w->o.measured_ns > formula ? w->o.measured_ns : formula;

	w->bound_ns = gives_up + VERBS_RNR_NS + VERBS_NAP_NS + w->o.lifetime_ns;
	w->bound_note = NULL;
	if (w->choice.device.card && w->o.measured_ns == 0) {
		w->bound_note = unmeasured;
		if (w->bound_ns < CARD_NS + w->o.lifetime_ns)
			w->bound_ns = CARD_NS + w->o.lifetime_ns;
	}
	w->age_ns = w->bound_ns - VERBS_NAP_NS - w->o.lifetime_ns;
}
