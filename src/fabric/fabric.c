/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The part of the verbs interface that no backend needs to know: which fabrics there are, opening
 * one with its parameters checked, single verbs and slow paths on top of batches, waiting for
 * messages, and the client's clock.
 */
#define VB_LOG_ROOM "fabric"
#include "fabric/fabric.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "fabric/opened.h"
#include "task/host.h"

#define NODE_BYTES_MIN 4096ull
#define OPTIONS_MAX    512
#define POLL_ROUNDS    2

/* One task that waits for a message of an endpoint; lies on that task's stack. */
struct vb_ep_waiter {
	struct vb_list link;
	struct vb_task *task;
};

extern const struct vb_fabric_ops vb_fabric_shm;
extern const struct vb_fabric_ops vb_fabric_sim;
extern const struct vb_fabric_ops vb_fabric_verbs;
extern const struct vb_fabric_ops vb_fabric_tcp;
extern const struct vb_fabric_ops vb_fabric_ucx;

const struct vb_fabric_ops *const vb_fabrics[] = {&vb_fabric_shm, &vb_fabric_sim, &vb_fabric_verbs,
						  &vb_fabric_tcp, &vb_fabric_ucx, NULL};

const char *const vb_op_names[VB_OP_COUNT] = {
	[VB_OP_READ] = "read",       [VB_OP_WRITE] = "write",
	[VB_OP_CAS64] = "cas64",     [VB_OP_FAA64] = "faa64",
	[VB_OP_MCAS64] = "mcas64",   [VB_OP_MFAA64] = "mfaa64",
	[VB_OP_MCAS128] = "mcas128", [VB_OP_MFAA128] = "mfaa128",
	[VB_OP_SEND] = "send",       [VB_OP_WRITE_NOTIFY] = "write-notify",
};

/* ---- which fabric ---- */

const struct vb_fabric_ops *vb_fabric_find(const char *name)
{
	for (unsigned i = 0; vb_fabrics[i] != NULL; i++) {
		if (strcmp(vb_fabrics[i]->name, name) == 0)
			return vb_fabrics[i];
	}
	return NULL;
}

static int fail_unknown(const char *name)
{
	char all[128] = "";
	size_t n = 0;

	for (unsigned i = 0; vb_fabrics[i] != NULL && n < sizeof(all); i++)
		n += (size_t)snprintf(all + n, sizeof(all) - n, "%s%s", i > 0 ? ", " : "",
				      vb_fabrics[i]->name);
	return vb_fail(-EINVAL,
		       "there is no fabric '%s': %s are (`verbena list` says what each is for)",
		       name, all);
}

static int check_params(const struct vb_fabric_params *p, const struct vb_fabric_ops *ops)
{
	const char *absent = ops->absent != NULL ? ops->absent() : NULL;
	bool attaches = p->attach || p->attach_or_create;

	if (absent != NULL)
		return vb_fail(-ENODEV, "fabric '%s' cannot run here: %s", ops->name, absent);
	if (p->nodes > VB_FABRIC_NODES_MAX)
		return vb_fail(-EINVAL, "%u nodes: 1 to %u are possible", p->nodes,
			       VB_FABRIC_NODES_MAX);
	if (p->node_bytes < NODE_BYTES_MIN || p->node_bytes > 1ull << VB_ADDR_OFFSET_BITS)
		return vb_fail(-EINVAL,
			       "a node of %" PRIu64 " bytes: 4 KiB to 256 TiB are possible",
			       p->node_bytes);
	if (p->endpoints > VB_FABRIC_ENDPOINTS_MAX)
		return vb_fail(-EINVAL, "%u endpoints: 1 to %u are possible", p->endpoints,
			       VB_FABRIC_ENDPOINTS_MAX);
	if (attaches && !(ops->caps.flags & VB_CAP_PROCESSES))
		return vb_fail(-EINVAL,
			       "fabric '%s' lives in one process: there is nothing to "
			       "attach to",
			       ops->name);
	if (p->cluster != NULL && !(ops->caps.flags & VB_CAP_CLUSTER))
		return vb_fail(-EINVAL,
			       "fabric '%s' does not leave this machine: open it without a cluster",
			       ops->name);
	if ((attaches || p->name != NULL) && ops->caps.flags & VB_CAP_CLUSTER)
		return vb_fail(
			-EINVAL,
			"fabric '%s' has no segments to name or attach to: processes meet in "
			"a cluster",
			ops->name);
	if (attaches && p->name == NULL)
		return vb_fail(-EINVAL, "to attach to a segment, name it");
	if (p->attach && p->attach_or_create)
		return vb_fail(-EINVAL,
			       "attach, or attach_or_create: which of them? the second makes "
			       "the segment if there is none");
	return 0;
}

int vb_fabric_open(const struct vb_fabric_params *params, struct vb_fabric **out)
{
	_Alignas(16) unsigned char options[OPTIONS_MAX];
	const struct vb_fabric_ops *ops;
	struct vb_fabric_params p;
	const char *name;
	int err;

	if (vb_any_null(params, out))
		return -EINVAL;
	p = *params;
	name = p.fabric != NULL ? p.fabric : "shm";
	ops = vb_fabric_find(name);
	if (ops == NULL)
		return fail_unknown(name);
	p.fabric = ops->name;
	p.nodes = p.nodes != 0 ? p.nodes : 1;
	p.node_bytes = p.node_bytes != 0 ? p.node_bytes : 64ull << 20;
	p.endpoints = p.endpoints != 0 ? p.endpoints : 1024;
	err = check_params(&p, ops);
	if (err != 0)
		return err;

	vb_assert(ops->options_size <= sizeof(options));
	memset(options, 0, sizeof(options));
	if (ops->options != NULL) {
		vb_opt_defaults(ops->options, options);
		err = vb_opt_parse_list(ops->options, options, p.options);
		if (err != 0)
			return err;
	}
	vb_clock_init();
	err = ops->open(&p, options, out);
	if (err)
		return err;
	(*out)->no_keeper = p.no_keeper;
	vb_opened_init(*out);
	if (!((*out)->caps.flags & VB_CAP_VIRTUAL))
		(void)vb_clock_hold(NULL);
	return 0;
}

int vb_fabric_close(struct vb_fabric *fabric)
{
	VB_SCHED_INSIDE(vb_sched_here());
	bool timed;
	int err;

	if (fabric == NULL)
		return 0;
	err = vb_fabric_check(fabric);
	if (err == 0)
		err = vb_opened_check(fabric, NULL, "fabric", fabric->ops->name);
	if (err)
		return err;
	if ((fabric->caps.flags & VB_CAP_VIRTUAL) && vb_sched_calls_open(vb_sched_self()) > 0)
		return vb_fail(-EBUSY,
			       "calls on rings are under way in this simulation, and their time "
			       "ends with it: wait for them, then close it again");
	pthread_mutex_destroy(&fabric->opened_lock);
	/* A hook is no fabric of its own. */
	timed = fabric->lower == NULL && !(fabric->caps.flags & VB_CAP_VIRTUAL);
	fabric->ops->close(fabric);
	if (timed)
		vb_clock_let();
	return 0;
}

void vb_fabric_after_fork(struct vb_fabric *fabric)
{
	if (fabric == NULL || fabric->told == vb_forks)
		return;
	fabric->forks++;
	fabric->ops->after_fork(fabric);
	for (; fabric != NULL; fabric = fabric->lower)
		vb_opened_init(fabric);
}

void vb_poll(void)
{
	struct vb_sched *s = vb_sched_here();
	VB_SCHED_INSIDE(s);

	if (s == NULL)
		return;
	/* Whom the first round has woken, the second runs. */
	for (unsigned i = 0; i < POLL_ROUNDS; i++)
		vb_task_yield();
}

/* ---- endpoints ---- */

int vb_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out)
{
	struct vb_host *host;
	int err;

	if (node >= f->nodes)
		return vb_fail(-EINVAL, "no node %u: the fabric has 0 to %u", node, f->nodes - 1u);
	err = vb_sched_ready();
	if (err)
		return err;
	host = vb_sched_host(vb_sched_self());
	if (host != NULL && (f->caps.flags & VB_CAP_VIRTUAL))
		return vb_fail(-EOPNOTSUPP,
			       "'%s' lives in the thread that has opened it: nothing of it can be "
			       "opened on a host",
			       f->ops->name);
	err = f->ops->ep_open(f, node, out);
	if (err == 0 && host != NULL) {
		(*out)->host = host;
		vb_host_hold(host);
	}
	return err;
}

void vb_ep_close(struct vb_ep *ep)
{
	/* Its thread's fabric state goes with it: not while a keeper has that. */
	VB_SCHED_INSIDE(ep != NULL ? ep->sched : NULL);

	if (ep == NULL)
		return;
	if (ep->host != NULL)
		vb_host_drop(ep->host);
	ep->ops->ep_close(ep);
}

/* And those that it wraps. */
void vb_ep_leave(struct vb_ep *ep)
{
	for (; ep != NULL; ep = ep->lower) {
		if (ep->host != NULL)
			vb_host_drop(ep->host);
		ep->host = NULL;
	}
}

void vb_ep_init(struct vb_ep *ep, struct vb_fabric *f, vb_peer self)
{
	memset(ep, 0, sizeof(*ep));
	ep->ops = f->ops;
	ep->fabric = f;
	ep->sched = vb_sched_self();
	ep->self = self;
	ep->forks = vb_forks;
	vb_list_init(&ep->waiters);
}

/*
 * The inverse of vb_ep_local, rounded up, so that a client which sleeps until the result sees its
 * own clock at or past local_ns.  Before the clock's zero there is nothing to wait for.
 */
uint64_t vb_ep_base(const struct vb_ep *ep, uint64_t local_ns)
{
	const int64_t billion = 1000000000;
	uint64_t base;

	if (local_ns == VB_FOREVER)
		return VB_FOREVER;
	if (local_ns <= ep->offset_ns)
		return 0;
	base = local_ns - ep->offset_ns;
	if (vb_likely(ep->drift_ppb == 0))
		return base;
	base = (uint64_t)((__int128)base * billion / (billion + ep->drift_ppb));
	/* Two truncating divisions are off by at most a few ns, either way. */
	while (vb_ep_local(ep, base) < local_ns)
		base++;
	while (base > 0 && vb_ep_local(ep, base - 1) >= local_ns)
		base--;
	return base;
}

int vb_ep_sleep_until(struct vb_ep *ep, uint64_t local_ns)
{
	int err;

	vb_ep_checkpoint(ep, true);
	err = vb_task_sleep_until(vb_ep_base(ep, local_ns));
	vb_ep_checkpoint(ep, false);
	return err;
}

void vb_ep_wait_out(struct vb_ep *ep, uint64_t ns)
{
	bool shielded = vb_task_shield(true);

	(void)vb_ep_sleep(ep, ns);
	(void)vb_task_shield(shielded);
}

/* Messages arrive at the lowest endpoint of a stack of hooks, so that is where the waiters stand.
 */
static struct vb_ep *lowest(struct vb_ep *ep)
{
	while (ep->lower != NULL)
		ep = ep->lower;
	return ep;
}

uint64_t vb_ep_common_now(struct vb_ep *ep, uint64_t *error_ns)
{
	ep = lowest(ep);
	if (ep->ops->common_now != NULL)
		return ep->ops->common_now(ep, error_ns);
	*error_ns = 0;
	return vb_ep_now(ep);
}

int vb_ep_wait(struct vb_ep *ep, uint64_t until_ns)
{
	struct vb_ep_waiter w = {.task = vb_task_self()};
	int err;

	vb_ep_checkpoint(ep, true);
	vb_list_push(&lowest(ep)->waiters, &w.link);
	err = vb_task_suspend(vb_ep_base(ep, until_ns));
	vb_list_remove(&w.link);
	vb_ep_checkpoint(ep, false);
	return err;
}

bool vb_ep_cut_off(struct vb_ep *ep)
{
	ep = lowest(ep);
	return ep->ops->cut_off != NULL && ep->ops->cut_off(ep);
}

void vb_ep_wake(struct vb_ep *ep)
{
	ep = lowest(ep);
	vb_list_for_each (it, &ep->waiters)
		vb_task_wake(vb_container_of(it, struct vb_ep_waiter, link)->task);
}

/* ---- verbs ---- */

static bool unsignalled_too_long(const struct vb_verb *v)
{
	return !(v->flags & VB_SIGNALLED) && v->len > VB_INLINE_MAX &&
	       (v->op == VB_OP_WRITE || v->op == VB_OP_WRITE_NOTIFY);
}

int vb_post(struct vb_ep *ep, struct vb_batch *batch)
{
	int rc;

	if (batch->n == 0 || batch->n > VB_BATCH_MAX)
		return vb_fail(-EINVAL, "a batch of %u verbs: 1 to %u are possible", batch->n,
			       VB_BATCH_MAX);
	batch->pending = 0;
	for (unsigned i = 0; i < batch->n; i++) {
		struct vb_verb *v = &batch->verbs[i];

		if (v->op >= VB_OP_COUNT)
			return vb_fail(-EINVAL, "there is no verb number %u", v->op);
		if (unsignalled_too_long(v))
			return vb_fail(-EINVAL,
				       "an unsignalled WRITE of %u bytes: at most %u are copied, "
				       "signal it",
				       v->len, VB_INLINE_MAX);
		ep->count[v->op]++;
		batch->pending += (v->flags & VB_SIGNALLED) != 0;
	}
	batch->waiter = vb_task_self();
	rc = ep->ops->post(ep, batch);
	if (rc == 0)
		batch->pending = 0;
	batch->posted = rc == 1;
	return rc;
}

int vb_wait(struct vb_ep *ep, struct vb_batch *batch)
{
	if (batch->pending > 0) {
		vb_ep_checkpoint(ep, true);
		batch->waiter = vb_task_self();
		/* A permit from before may wake us early, hence the loop. */
		while (batch->pending > 0)
			(void)vb_task_suspend_uninterruptible(VB_FOREVER);
		vb_ep_checkpoint(ep, false);
	}
	if (batch->posted) {
		batch->posted = false;
		if (ep->ops->waited != NULL)
			ep->ops->waited(ep, batch);
	}
	for (unsigned i = 0; i < batch->n; i++) {
		const struct vb_verb *v = &batch->verbs[i];

		if ((v->flags & VB_SIGNALLED) && v->status != 0)
			return v->status;
	}
	return 0;
}

int vb_post_wait(struct vb_ep *ep, struct vb_verb *verbs, unsigned n)
{
	struct vb_batch b = {.verbs = verbs, .n = (uint16_t)(n <= UINT16_MAX ? n : 0)};
	int rc = vb_post(ep, &b);

	return rc < 0 ? rc : vb_wait(ep, &b);
}

int vb_verb_run(struct vb_ep *ep, struct vb_verb *v)
{
	v->flags |= VB_SIGNALLED;
	return vb_post_wait(ep, v, 1);
}

int vb_read_slow(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	struct vb_verb v = {.op = VB_OP_READ, .addr = a, .buf = buf, .len = len};

	return vb_verb_run(ep, &v);
}

int vb_write_slow(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	struct vb_verb v = {.op = VB_OP_WRITE, .addr = a, .buf = (void *)buf, .len = len};

	return vb_verb_run(ep, &v);
}

/* Runs a verb whose result is a word; the output is written only on success. */
static int run_word(struct vb_ep *ep, struct vb_verb *v, uint64_t *old)
{
	int err = vb_verb_run(ep, v);

	if (err == 0)
		*old = v->old.lo;
	return err;
}

static int run_pair(struct vb_ep *ep, struct vb_verb *v, struct vb_u128 *old)
{
	int err = vb_verb_run(ep, v);

	if (err == 0)
		*old = v->old;
	return err;
}

int vb_mfaa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t bounds, uint64_t *old)
{
	struct vb_verb v = {
		.op = VB_OP_MFAA64, .addr = a, .compare.lo = add, .compare_mask.lo = bounds};

	return run_word(ep, &v, old);
}

int vb_faa64_slow(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t not_after, uint64_t *old)
{
	struct vb_verb v = {
		.op = VB_OP_FAA64, .addr = a, .compare.lo = add, .not_after_ns = not_after};

	return run_word(ep, &v, old);
}

int vb_cas64_slow(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t not_after,
		  uint64_t *old)
{
	struct vb_verb v = {.op = VB_OP_CAS64,
			    .addr = a,
			    .compare.lo = expect,
			    .swap.lo = value,
			    .not_after_ns = not_after};

	return run_word(ep, &v, old);
}

int vb_mcas64_slow(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask,
		   uint64_t value, uint64_t value_mask, uint64_t not_after, uint64_t *old)
{
	struct vb_verb v = {.op = VB_OP_MCAS64,
			    .addr = a,
			    .compare.lo = expect,
			    .compare_mask.lo = expect_mask,
			    .swap.lo = value,
			    .swap_mask.lo = value_mask,
			    .not_after_ns = not_after};

	return run_word(ep, &v, old);
}

int vb_mcas128_slow(struct vb_ep *ep, vb_addr a, struct vb_u128 expect, struct vb_u128 expect_mask,
		    struct vb_u128 value, struct vb_u128 value_mask, uint64_t not_after,
		    struct vb_u128 *old)
{
	struct vb_verb v = {.op = VB_OP_MCAS128,
			    .addr = a,
			    .compare = expect,
			    .compare_mask = expect_mask,
			    .swap = value,
			    .swap_mask = value_mask,
			    .not_after_ns = not_after};

	return run_pair(ep, &v, old);
}

int vb_mfaa128_slow(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
		    uint64_t not_after, struct vb_u128 *old)
{
	struct vb_verb v = {.op = VB_OP_MFAA128,
			    .addr = a,
			    .compare = add,
			    .compare_mask = bounds,
			    .not_after_ns = not_after};

	return run_pair(ep, &v, old);
}

int vb_send(struct vb_ep *ep, vb_peer to, const struct vb_msg *m)
{
	struct vb_verb v = {.op = VB_OP_SEND, .peer = to, .msg = m};
	struct vb_batch b = {.verbs = &v, .n = 1};
	int rc = vb_post(ep, &b);

	return rc < 0 ? rc : v.status;
}

int vb_send_wait(struct vb_ep *ep, vb_peer to, const struct vb_msg *m)
{
	struct vb_verb v = {.op = VB_OP_SEND, .peer = to, .msg = m};

	return vb_verb_run(ep, &v);
}

static int may_go_on(const struct vb_ep *ep, uint64_t until_ns)
{
	if (vb_task_cancelled(vb_task_self()))
		return -ECANCELED;
	return until_ns != VB_FOREVER && vb_ep_now(ep) >= until_ns ? -ETIMEDOUT : 0;
}

int vb_swap64(struct vb_ep *ep, vb_addr a, uint64_t value, uint64_t until_ns, uint64_t *old)
{
	uint64_t expect, found;
	int err;

	if (ep->fabric->caps.flags & VB_CAP_MASKED64)
		return vb_mcas64_before(ep, a, 0, 0, value, UINT64_MAX, VB_FOREVER, old);
	err = vb_read64(ep, a, &expect);
	if (err == -VB_EUNKNOWN)
		return -VB_ETOOLATE;
	while (err == 0) {
		err = vb_cas64_before(ep, a, expect, value, VB_FOREVER, &found);
		if (err != 0 || found == expect)
			break;
		expect = found;
		err = may_go_on(ep, until_ns);
	}
	if (err == 0)
		*old = expect;
	return err;
}

/* ---- regions, peers ---- */

int vb_region_or_other(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		       vb_addr *out, bool *fresh)
{
	if (node >= f->nodes)
		return vb_fail(-EINVAL, "no node %u: the fabric has 0 to %u", node, f->nodes - 1u);
	return f->ops->region(f, node, name, bytes, out, fresh);
}

int vb_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	      bool *fresh)
{
	vb_addr at;
	int err = vb_region_or_other(f, node, name, bytes, &at, fresh);

	if (err == -EEXIST)
		return vb_fail(-EINVAL,
			       "region '%s' exists on node %u with another size than %" PRIu64
			       " bytes: it was made with other parameters, or by another version",
			       name, node, bytes);
	if (err == 0)
		*out = at;
	return err;
}

int vb_region_find(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   vb_addr *out)
{
	bool fresh;

	if (node < f->nodes && f->ops->region_find != NULL)
		return f->ops->region_find(f, node, name, bytes, out);
	return vb_region(f, node, name, bytes, out, &fresh);
}

int vb_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room)
{
	if (node >= f->nodes)
		return vb_fail(-EINVAL, "no node %u: the fabric has 0 to %u", node, f->nodes - 1u);
	while (f->ops->regions == NULL)
		f = f->lower;
	return f->ops->regions(f, node, out, room);
}

void vb_region_dense(struct vb_fabric *f, vb_addr at, uint64_t bytes)
{
	while (f->lower != NULL)
		f = f->lower;
	if (f->ops->dense != NULL)
		f->ops->dense(f, at, bytes);
}

void *vb_local(struct vb_fabric *f, vb_addr addr, uint64_t bytes)
{
	return f->ops->local(f, addr, bytes);
}

int vb_home(struct vb_fabric *f)
{
	struct vb_fabric *lowest = f;
	int home = -ENOENT;

	while (lowest->lower != NULL)
		lowest = lowest->lower;
	if (lowest->ops->home != NULL)
		home = lowest->ops->home(lowest);
	if (home >= 0)
		return home;
	for (uint16_t n = 0; n < f->nodes; n++) {
		if (vb_local(f, vb_addr_make(n, 0), 8) != NULL)
			return n;
	}
	return vb_fail(-EINVAL,
		       "no node of the '%s' fabric lives in this process: give it more nodes",
		       f->ops->name);
}

void vb_fabric_stats_get(struct vb_fabric *f, struct vb_fabric_stats *out)
{
	while (f->lower != NULL)
		f = f->lower;
	memset(out, 0, sizeof(*out));
	if (f->ops->stats != NULL)
		f->ops->stats(f, out);
}

bool vb_peer_alive(struct vb_fabric *f, vb_peer p)
{
	return f->ops->peer_alive(f, p);
}

bool vb_node_gone(struct vb_fabric *f, uint16_t node)
{
	while (f->lower != NULL)
		f = f->lower;
	return f->ops->node_gone != NULL && f->ops->node_gone(f, node);
}
