/* SPDX-License-Identifier: Apache-2.0 */
/* What can be asked of an open cluster, and collective calls. */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#include "base/log.h"

#define NAP_LEAST_NS 50000ull /* of a call that waits */
#define NAP_MOST_NS  1000000ull
#define GRACE_NS     500000000ull /* the root's word on a time-out is better than our own */

uint32_t vb_cluster_rank(const struct vb_cluster *c)
{
	return c != NULL ? c->rank : 0;
}

uint32_t vb_cluster_hosts(const struct vb_cluster *c)
{
	return c != NULL ? c->hosts : 0;
}

const char *vb_cluster_name(const struct vb_cluster *c, uint32_t rank)
{
	return c != NULL && rank < c->hosts ? c->peers[rank].name : "nobody";
}

void vb_cluster_post(struct vb_cluster *c, const void *notice)
{
	struct cluster_peer *me = &c->peers[c->rank];

	pthread_mutex_lock(&c->lock);
	memcpy(me->notice, notice, VB_CLUSTER_NOTICE);
	me->noticed = true;
	vb_list_for_each (it, &c->conns)
		vb_container_of(it, struct cluster_conn, link)->notice_due = true;
	pthread_mutex_unlock(&c->lock);
	cluster_wake(c);
}

bool vb_cluster_read(struct vb_cluster *c, uint32_t rank, void *notice)
{
	bool there;

	vb_assert(rank < c->hosts);
	pthread_mutex_lock(&c->lock);
	memcpy(notice, c->peers[rank].notice, VB_CLUSTER_NOTICE);
	there = c->peers[rank].noticed;
	pthread_mutex_unlock(&c->lock);
	return there;
}

uint32_t vb_cluster_local_hosts(const struct vb_cluster *c)
{
	uint32_t n = 0;

	for (uint32_t r = 0; r < c->hosts; r++)
		n += c->peers[r].local || r == c->rank;
	return n;
}

const char *vb_cluster_bind(const struct vb_cluster *c)
{
	return c->bind;
}

const uint8_t *vb_cluster_secret(const struct vb_cluster *c)
{
	return c->secret;
}

uint64_t vb_cluster_number(const struct vb_cluster *c, const char purpose[8])
{
	return auth_number(c->secret, purpose);
}

uint16_t vb_cluster_port(const struct vb_cluster *c)
{
	return c->port;
}

void vb_cluster_clock(const struct vb_cluster *cluster, int64_t *offset_ns, uint64_t *error_ns)
{
	struct vb_cluster *c = (struct vb_cluster *)cluster; /* its lock is not part of its value */
	uint64_t age;

	*offset_ns = 0;
	*error_ns = 0;
	if (c->is_root || c->same_clock)
		return;
	pthread_mutex_lock(&c->lock);
	age = vb_clock_ns() - c->sampled_ns;
	*offset_ns = c->offset_ns;
	*error_ns = c->rtt_ns / 2 + age / 1000000 * CL_DRIFT_PPM + 1;
	pthread_mutex_unlock(&c->lock);
}

int cluster_check(const struct vb_cluster *c)
{
	if (c->forks == vb_forks)
		return 0;
	return vb_fail(-VB_EFOREIGN, "this process was forked from one that has the cluster open: "
				     "its connections are the parent's; open one of its own");
}

/* ---- collective calls ---- */

void vb_cluster_parts_free(struct vb_cluster_parts *p)
{
	for (uint32_t r = 0; r < p->n && p->data != NULL; r++)
		free(p->data[r]);
	free(p->data);
	free(p->bytes);
	*p = (struct vb_cluster_parts){0};
}

static int parts_init(struct vb_cluster_parts *p, uint32_t n)
{
	p->n = n;
	p->data = calloc(n, sizeof(p->data[0]));
	p->bytes = calloc(n, sizeof(p->bytes[0]));
	return p->data != NULL && p->bytes != NULL ? 0 : -ENOMEM;
}

/* Hands this process's part in; the verdict comes to `call`. */
static void hand_in(struct vb_cluster *c, struct cluster_call *call, struct cl_part *p,
		    struct cluster_blob *blob)
{
	struct cluster_bulk b = {.kind = BULK_PART, .blob = blob};
	struct cl_verdict v = {.err = -VB_EPEERGONE};

	pthread_mutex_lock(&c->lock);
	call->seq = p->seq = c->next_seq++;
	b.part = *p;
	vb_list_push(&c->calls, &call->link);
	if (c->is_root) {
		steps_came(c, 0, p, blob);
	} else if (c->peers[0].conn == NULL) {
		snprintf(v.text, sizeof(v.text), "%s, the root, is gone", c->peers[0].name);
		cluster_call_ends(c, call, &v);
		cluster_blob_put(blob);
	} else if (conn_bulk(c->peers[0].conn, &b) != 0) {
		/* The count of our calls is now another than that of our parts. */
		conn_starve(c->peers[0].conn, "there is no memory left for what it is sent");
		v.err = -ENOMEM;
		snprintf(v.text, sizeof(v.text), "no memory for a part");
		cluster_call_ends(c, call, &v);
		cluster_blob_put(blob);
	} else if (vb_cluster_suspect(c, 0)) {
		v.err = -ETIMEDOUT;
		snprintf(v.text, sizeof(v.text), "%s, the root, gives no sign of life",
			 c->peers[0].name);
		cluster_call_ends(c, call, &v);
	}
	pthread_mutex_unlock(&c->lock);
	cluster_wake(c);
}

/* In short naps, so that this thread's other tasks run; deaf to cancellation, because the answer
 * comes to this stack. */
static void await(struct vb_cluster *c, struct cluster_call *call, uint64_t timeout_ns)
{
	uint64_t until = cluster_later(cluster_now(), cluster_later(timeout_ns, GRACE_NS));
	uint64_t nap = NAP_LEAST_NS;
	struct cl_verdict v = {.err = -ETIMEDOUT};
	bool tasks = vb_sched_here() != NULL; /* or there was no memory for any */
	bool shield = tasks && vb_task_shield(true);

	while (!__atomic_load_n(&call->done, __ATOMIC_ACQUIRE) && cluster_now() < until) {
		if (tasks)
			vb_task_sleep_until(vb_sched_now(vb_sched_self()) + nap);
		else
			nanosleep(&(struct timespec){.tv_nsec = (long)nap}, NULL);
		nap = nap * 2 < NAP_MOST_NS ? nap * 2 : NAP_MOST_NS;
	}
	if (tasks)
		vb_task_shield(shield);
	pthread_mutex_lock(&c->lock);
	if (!call->done) {
		snprintf(v.text, sizeof(v.text), "no answer of the root in time");
		cluster_call_ends(c, call, &v);
	}
	pthread_mutex_unlock(&c->lock);
}

/* At the root the parts are still everybody's: copies. */
static void copy_parts(struct cluster_call *call)
{
	const struct cluster_result *r = call->result;

	for (uint32_t i = 0; i < r->n; i++) {
		if (r->parts[i] == NULL)
			continue;
		call->parts.data[i] = malloc(r->parts[i]->bytes > 0 ? r->parts[i]->bytes : 1);
		if (call->parts.data[i] == NULL) {
			call->verdict.err = -ENOMEM;
			snprintf(call->verdict.text, sizeof(call->verdict.text), "%s",
				 "no memory for the parts of others");
			return;
		}
		memcpy(call->parts.data[i], r->parts[i]->data, r->parts[i]->bytes);
		call->parts.bytes[i] = r->parts[i]->bytes;
	}
}

static int collective(struct vb_cluster *c, struct cl_part *p, const void *mine, size_t bytes,
		      struct vb_cluster_parts *out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	bool told = p->to == VB_CLUSTER_TO_ALL || c->is_root;
	struct cluster_call call = {0};
	struct cluster_blob *blob = NULL;

	vb_list_init(&call.link);
	if (vb_sched_ready() != 0)
		p->err = -ENOMEM;
	else if (vb_sched_env(vb_sched_self())->is_virtual)
		return vb_fail(-EINVAL, "this thread lives in virtual time: use another one for "
					"collective calls");
	if (bytes > VB_CLUSTER_PART_MAX)
		p->err = -E2BIG;
	else if (p->err == 0 && bytes > 0 && (blob = cluster_blob_new(mine, bytes)) == NULL)
		p->err = -ENOMEM;
	p->bytes = p->err == 0 ? bytes : 0;
	if (told && parts_init(&call.parts, c->hosts) != 0)
		p->err = -ENOMEM;
	/* Also without a part to give: the others must hear of it, and calls are counted. */
	if (p->err != 0) {
		cluster_blob_put(blob);
		blob = NULL;
		p->bytes = 0;
	}
	hand_in(c, &call, p, blob);
	await(c, &call, p->timeout_ns);
	if (call.result != NULL) {
		copy_parts(&call);
		pthread_mutex_lock(&c->lock);
		cluster_result_put(call.result);
		pthread_mutex_unlock(&c->lock);
	}
	if (call.verdict.err == 0) {
		*out = call.parts;
		return 0;
	}
	vb_cluster_parts_free(&call.parts);
	return vb_fail(call.verdict.err, "%s", call.verdict.text);
}

int vb_cluster_gather(struct vb_cluster *c, const char *what, const void *mine, size_t bytes,
		      enum vb_cluster_to to, bool partial, uint64_t timeout_ns,
		      struct vb_cluster_parts *out)
{
	struct cl_part p = {.to = (uint8_t)to,
			    .partial = partial,
			    .timeout_ns = timeout_ns != 0 ? timeout_ns : c->timeout_ns};

	vb_assert(strlen(what) <= CL_WHAT);
	snprintf(p.what, sizeof(p.what), "%s", what);
	return collective(c, &p, mine, bytes, out);
}

int vb_cluster_barrier(struct vb_cluster *c)
{
	struct cl_part p = {.to = VB_CLUSTER_TO_ROOT, .barrier = true, .what = "barrier"};
	struct vb_cluster_parts parts;
	int err;

	if (vb_any_null(c))
		return -EINVAL;
	err = cluster_check(c);
	if (err)
		return err;
	p.timeout_ns = c->timeout_ns;
	err = collective(c, &p, NULL, 0, &parts);
	if (err == 0)
		vb_cluster_parts_free(&parts);
	return err;
}
