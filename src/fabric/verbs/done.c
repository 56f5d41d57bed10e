/* SPDX-License-Identifier: Apache-2.0 */
/* Ends of verbs, collected until the batch changes. */
#include "fabric/verbs/inner.h"

void verbs_done_flush(struct verbs *w)
{
	if (w->done_n == 0)
		return;
	/* net_done may come back here by way of what it wakes: nothing of this may be left. */
	struct vb_batch *b = w->done_batch;
	unsigned n = w->done_n;

	w->done_batch = NULL;
	w->done_n = 0;
	w->news = true;
	net_done(w->f, w->done_owner, b, n);
}

void verbs_done(struct verbs *w, struct net_thread *owner, struct vb_batch *b)
{
	if (w->done_batch != b) {
		verbs_done_flush(w);
		w->done_owner = owner;
		w->done_batch = b;
	}
	w->done_n++;
}
