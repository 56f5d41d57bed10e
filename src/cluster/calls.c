/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the program's threads wait for, the opening and their collective calls, and how the cluster's
 * thread is woken for them.
 */
#include "cluster/inner.h"

#include <stdarg.h>
#include <string.h>
#include <unistd.h>

void cluster_wake(struct vb_cluster *c)
{
	uint64_t one = 1;

	(void)!write(c->wake_fd, &one, sizeof(one)); /* it fails when it is awake anyway */
}

/* ---- the opening ---- */

void cluster_open_ends(struct vb_cluster *c, int err, const char *fmt, ...)
{
	va_list args;

	if (c->open_done)
		return;
	va_start(args, fmt);
	vsnprintf(c->open_verdict.text, sizeof(c->open_verdict.text), fmt, args);
	va_end(args);
	c->open_verdict.err = err;
	c->open_done = true;
	pthread_cond_broadcast(&c->opened);
}

/* ---- collective calls ---- */

struct cluster_call *cluster_call_find(struct vb_cluster *c, uint64_t seq)
{
	vb_list_for_each (it, &c->calls) {
		struct cluster_call *call = vb_container_of(it, struct cluster_call, link);

		if (call->seq == seq)
			return call;
	}
	return NULL;
}

void cluster_call_ends(struct vb_cluster *c, struct cluster_call *call, const struct cl_verdict *v)
{
	(void)c;
	vb_list_remove(&call->link);
	call->verdict = *v;
	__atomic_store_n(&call->done, 1, __ATOMIC_RELEASE);
}

void cluster_calls_fail(struct vb_cluster *c, int err, const char *text)
{
	struct cl_verdict v = {.err = err};

	snprintf(v.text, sizeof(v.text), "%s", text);
	vb_list_for_each (it, &c->calls)
		cluster_call_ends(c, vb_container_of(it, struct cluster_call, link), &v);
}
