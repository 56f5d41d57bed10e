/* SPDX-License-Identifier: Apache-2.0 */
/* An endpoint without a scheduler, for what is done seldom and from any thread: one verb at a time, and
 * the caller stands still until it has ended. */
#define VB_LOG_ROOM "own"
#include <inttypes.h>
#include <sched.h>

#include "base/log.h"
#include "fabric/own/inner.h"

const char *own_endpoint_wrong(const struct vb_provider_endpoint *at)
{
	if (at->client == 0 || at->client >> VB_PEER_CLIENT_BITS != 0)
		return "a client number that is not 1 to 2^24 - 1";
	if (at->buffer == NULL || (uintptr_t)at->buffer % VB_CACHELINE != 0)
		return "a buffer that is not aligned to 64";
	if (at->buffer_bytes / VB_PROVIDER_VERB_BYTES < OWN_PLACES_MIN)
		return "a buffer of less than 4 verbs";
	return NULL;
}

int own_raw_open(const struct vb_provider *p, struct own_raw *out)
{
	const char *wrong;
	int err;

	*out = (struct own_raw){.p = p};
	err = p->ep_open(p->ctx, p->home, &out->at);
	if (err != 0)
		return vb_fail(err < 0 ? err : -EINVAL, "'%s' opens no endpoint at node %u: %s",
			       p->name, p->home, vb_strerror(err));
	wrong = own_endpoint_wrong(&out->at);
	if (wrong == NULL)
		return 0;
	p->ep_close(p->ctx, out->at.ep);
	return vb_fail(-EINVAL, "'%s' has opened an endpoint with %s", p->name, wrong);
}

void own_raw_close(struct own_raw *r)
{
	r->p->ep_close(r->p->ctx, r->at.ep);
}

static int failed(const struct own_raw *r, const struct vb_provider_verb *v, int err)
{
	return vb_fail(err < 0 ? err : -EIO, "'%s' has failed a verb to node %u: %s", r->p->name,
		       v->node, vb_strerror(err));
}

int own_raw_run(struct own_raw *r, struct vb_provider_verb *v)
{
	struct own_watch watch = {.looked_ns = vb_clock_ns()};
	struct vb_provider_end end;
	int n, err;

	if (r->broken)
		return vb_fail(-VB_EPEERGONE,
			       "a verb of '%s' has never ended: close the fabric and provide it "
			       "anew",
			       r->p->name);
	v->id = ++r->next_id;
	v->local = r->at.buffer;
	err = r->p->post(r->p->ctx, r->at.ep, v, 1);
	if (err != 0)
		return failed(r, v, err);
	for (;;) {
		n = r->p->poll(r->p->ctx, r->at.ep, &end, 1);
		if (n == 1 && end.id == v->id)
			return end.err == 0 ? 0 : failed(r, v, end.err);
		own_watch(&watch, r->p, vb_clock_ns());
		if (n < 0 || (n == 0 && watch.ns > r->p->end_ns))
			break;
		sched_yield();
	}
	/* Its place in the buffer is lost with it. */
	r->broken = true;
	return vb_fail(-VB_EUNKNOWN,
		       "'%s' has not told the end of a verb to node %u within %" PRIu64
		       " ns (end_ns): its endpoint is given up",
		       r->p->name, v->node, r->p->end_ns);
}
