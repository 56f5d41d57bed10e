/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Did a call come back in time?  Judged where nothing else makes a client late: nobody stands still
 * for long, dies, or loses an answer.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "check/lock/explore_inner.h"

/* A client's clock may be slow. */
#define DRIFT_SHARE 50

static void judge(struct slot *s, const char *call, uint64_t begun_ns, uint64_t due_ns,
		  const char *why)
{
	const struct explore *x = s->x;
	uint64_t now = vb_sched_now(x->sched);
	char text[256];

	if (x->d->prompt_ns == 0 || now <= due_ns || now - due_ns <= x->d->prompt_ns)
		return;
	snprintf(text, sizeof(text),
		 "%s, called at %.3f us, came back at %.3f us: %.3f us after %s, and %.3f us are "
		 "enough",
		 call, (double)begun_ns / 1e3, (double)now / 1e3, (double)(now - due_ns) / 1e3, why,
		 (double)x->d->prompt_ns / 1e3);
	vb_audit_violation(x->audit, VB_AUDIT_OVERDUE, s->index, s->asks_lock, text);
}

void explore_judge_call_time(struct slot *s, const char *call, uint64_t begun_ns,
			     uint64_t timeout_ns)
{
	uint64_t due = VB_FOREVER, cancelled = s->cancelled_ns;

	if (timeout_ns != VB_FOREVER_NS)
		due = begun_ns + timeout_ns + timeout_ns / DRIFT_SHARE;
	if (cancelled != 0 && cancelled < due)
		judge(s, call, begun_ns, cancelled > begun_ns ? cancelled : begun_ns,
		      "it was cancelled");
	else
		judge(s, call, begun_ns, due, "its time was over");
}

/* Its successor may have to be awaited. */
void explore_judge_release_time(struct slot *s, uint64_t begun_ns)
{
	judge(s, "vb_lock_release", begun_ns, begun_ns + s->x->d->prompt_ns, "its time was over");
}
