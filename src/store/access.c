/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "store"
#include "store/access.h"

#include "fabric/cpu.h"

const char *const vb_prim_names[VB_PRIMS] = {
	[VB_READ_DI] = "ReadDI",   [VB_WRITE_DI] = "WriteDI", [VB_AMOD_IM] = "AModIM",
	[VB_READ_TM] = "ReadTM",   [VB_WRITE_TM] = "WriteTM", [VB_AMOD_TM] = "AModTM",
	[VB_INDEX] = "index READ",
};

void vb_acc_init(struct vb_acc *a, struct vb_ep *ep, bool doorbell, bool outstanding)
{
	uint32_t caps = ep->fabric->caps.flags;

	memset(a, 0, offsetof(struct vb_acc, verb));
	a->ep = ep;
	a->node = vb_peer_node(ep->self);
	a->at_once = (caps & VB_CAP_INLINE) != 0;
	a->near_cpu = !a->at_once && (caps & VB_CAP_CPU_ATOMICS) != 0;
	a->doorbell = doorbell;
	a->outstanding = outstanding;
}

static void failed(struct vb_acc *a, int err)
{
	if (err != 0 && a->err == 0)
		a->err = err;
}

/* The CPU's way to memory of this node, if there is one and nothing that was asked of that node
 * before is still to happen. */
static void *near(struct vb_acc *a, vb_addr at, uint32_t len)
{
	void *mine;

	if (!a->near_cpu || vb_addr_node(at) != a->node)
		return NULL;
	if (a->not_after_ns != 0 && vb_ep_now_early(a->ep) > a->not_after_ns) {
		failed(a, -VB_ETOOLATE);
		return NULL;
	}
	mine = vb_local(a->ep->fabric, at, len);
	a->near += mine != NULL;
	return mine;
}

static struct vb_verb *ask(struct vb_acc *a, uint8_t op, vb_addr at)
{
	struct vb_verb *v;

	if (a->n == VB_BATCH_MAX)
		failed(a, vb_acc_go(a));
	a->old[a->n] = NULL;
	v = &a->verb[a->n++];
	memset(v, 0, sizeof(*v));
	v->op = op;
	v->flags = VB_SIGNALLED;
	v->addr = at;
	v->not_after_ns = op == VB_OP_READ ? 0 : a->not_after_ns;
	return v;
}

void vb_acc_read_slow(struct vb_acc *a, vb_addr at, void *buf, uint32_t len)
{
	void *mine;
	struct vb_verb *v;

	mine = near(a, at, len);
	if (mine != NULL) {
		cpu_copy_out(buf, mine, len); /* each word whole, whoever writes it meanwhile */
		return;
	}
	v = ask(a, VB_OP_READ, at);
	v->buf = buf;
	v->len = len;
}

void vb_acc_write_slow(struct vb_acc *a, vb_addr at, const void *buf, uint32_t len)
{
	struct vb_verb *v;
	void *mine;

	if (a->at_once) {
		if (a->not_after_ns != 0 && vb_ep_now_early(a->ep) > a->not_after_ns)
			failed(a, -VB_ETOOLATE);
		else if (a->err == 0)
			failed(a, vb_write(a->ep, at, buf, len));
		return;
	}
	mine = near(a, at, len);
	if (mine != NULL) {
		cpu_copy_in(mine, buf, len);
		return;
	}
	v = ask(a, VB_OP_WRITE, at);
	v->buf = (void *)(uintptr_t)buf;
	v->len = len;
}

void vb_acc_cas_slow(struct vb_acc *a, vb_addr at, uint64_t expect, uint64_t value, uint64_t *old)
{
	uint64_t *mine = near(a, at, 8);
	struct vb_verb *v;

	if (mine != NULL) {
		*old = expect;
		__atomic_compare_exchange_n(mine, old, value, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_SEQ_CST);
		return;
	}
	v = ask(a, VB_OP_CAS64, at);
	v->compare.lo = expect;
	v->swap.lo = value;
	a->old[a->n - 1] = old;
}

void vb_acc_faa_slow(struct vb_acc *a, vb_addr at, uint64_t add, uint64_t *old)
{
	uint64_t *mine = near(a, at, 8);
	struct vb_verb *v;

	if (mine != NULL) {
		*old = __atomic_fetch_add(mine, add, __ATOMIC_SEQ_CST);
		return;
	}
	v = ask(a, VB_OP_FAA64, at);
	v->compare.lo = add;
	a->old[a->n - 1] = old;
}

/* What comes behind a verb that failed is not posted: a lock word must not be let go when the WRITE
 * before it may not have happened.  (In one doorbell, and in several at once, the connection sees
 * to that.) */
static int one_by_one(struct vb_acc *a)
{
	int err = 0;

	for (unsigned i = 0; i < a->n && err == 0; i++)
		err = vb_post_wait(a->ep, &a->verb[i], 1);
	return err;
}

/* A doorbell for each verb, and all of them on their way at once. */
static int bell_by_bell(struct vb_acc *a)
{
	struct vb_batch batch[VB_BATCH_MAX];
	int err = 0;

	for (unsigned i = 0; i < a->n; i++) {
		int e;

		batch[i] = (struct vb_batch){.verbs = &a->verb[i], .n = 1};
		e = vb_post(a->ep, &batch[i]);
		if (e < 0 && err == 0)
			err = e;
	}
	for (unsigned i = 0; i < a->n; i++) {
		int e = vb_wait(a->ep, &batch[i]);

		if (e != 0 && err == 0)
			err = e;
	}
	return err;
}

static void take_results(struct vb_acc *a)
{
	for (unsigned i = 0; i < a->n; i++)
		if (a->old[i] != NULL)
			*a->old[i] = a->verb[i].old.lo;
	a->n = 0;
}

int vb_acc_go(struct vb_acc *a)
{
	int err;

	vb_assert(!a->posted);
	/* Nor what comes behind one that was refused before it was posted. */
	if (a->err != 0)
		a->n = 0;
	if (a->n > 0) {
		if (!a->outstanding)
			err = one_by_one(a);
		else if (!a->doorbell)
			err = bell_by_bell(a);
		else
			err = vb_post_wait(a->ep, a->verb, a->n);
		failed(a, err);
		take_results(a);
	}
	err = a->err;
	a->err = 0;
	return err;
}

void vb_acc_post(struct vb_acc *a)
{
	int err;

	vb_assert(!a->posted);
	if (a->n == 0 || !a->outstanding)
		return;
	a->batch = (struct vb_batch){.verbs = a->verb, .n = (uint16_t)a->n};
	err = vb_post(a->ep, &a->batch);
	if (err < 0) {
		failed(a, err);
		a->n = 0;
		return;
	}
	/* Nobody waits yet, and who finishes may be another task: this one may have ended by then. */
	a->batch.waiter = NULL;
	a->posted = true;
}

int vb_acc_finish(struct vb_acc *a)
{
	if (!a->posted)
		return vb_acc_go(a);
	a->posted = false;
	failed(a, vb_wait(a->ep, &a->batch));
	take_results(a);
	return vb_acc_go(a);
}
