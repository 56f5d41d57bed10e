/* SPDX-License-Identifier: Apache-2.0 */
/* What a call answered and may not, or did and does not say. */
#define VB_LOG_ROOM "check"
#include "base/log.h"
#include "check/lock/explore_inner.h"

/* The first such answer ends the seed.  Without memory it is nobody's fault. */
void explore_answer_is_wrong(struct slot *s, int err, uint64_t lock, const char *text)
{
	struct explore *x = s->x;

	if (x->err == 0) {
		x->err = err;
		x->wrong = err != -ENOMEM;
		if (x->wrong)
			vb_audit_violation(x->audit, VB_AUDIT_WRONG_ERROR, s->index, lock, text);
	}
	x->all_safe = true;
}

void explore_go_wrong(struct slot *s, const char *call, int err)
{
	char text[160];

	snprintf(text, sizeof(text), "%s returned %d (%s), which it may not", call, err,
		 vb_strerror(err));
	explore_answer_is_wrong(s, err, s->asks_lock, text);
}
