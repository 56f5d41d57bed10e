/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What is known of a host's clock.
 */
#include "fabric/net/am/am.h"

#define CLOCK_AGE_NS 500000000ull

static uint64_t there_at(const struct am_clock *c, uint64_t at_ns)
{
	uint64_t d;

	if (at_ns >= c->here) {
		d = at_ns - c->here;
		return c->there + d - d / 1000000 * AM_DRIFT_PPM - AM_DRIFT_PPM;
	}
	d = c->here - at_ns;
	d += d / 1000000 * AM_DRIFT_PPM + AM_DRIFT_PPM;
	return c->there > d ? c->there - d : 0;
}

uint64_t am_clock_there(const struct am_host *h, uint64_t at_ns)
{
	uint64_t best = there_at(&h->best, at_ns), before = there_at(&h->before, at_ns);

	return best > before ? best : before;
}

/* The quickest answer says most; but none is believed for longer than a second if there are others,
 * so that a clock that has stood still (a machine that was suspended) is found out. */
void am_clock_saw(struct am_host *h, uint64_t there, uint64_t here)
{
	const struct am_clock c = {there, here};

	if (here - h->best_since_ns > CLOCK_AGE_NS) {
		h->before = h->best;
		h->best = c;
		h->best_since_ns = here;
	} else if (there >= there_at(&h->best, here)) {
		h->best = c;
	}
}

void am_clock_first(struct am_host *h, uint64_t there, uint64_t here)
{
	h->best = h->before = (struct am_clock){there, here};
	h->best_since_ns = here;
}
