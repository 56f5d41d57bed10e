/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-level locking (Gray, Lorie, Putzolu and Traiger 1976): a lock far down in a hierarchy,
 * after intention locks on what contains it.  For every protocol that has the intention modes.
 */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/claim.h"
#include "lock/visit.h"

struct walk {
	struct vb_lock_client *me;
	const uint64_t *path;
	struct vb_grant *grants;
	uint64_t until_ns;
	unsigned n;
	enum vb_mode mode;
	/* The modes of the locks that were held already. */
	enum vb_mode before[VB_PATH_MAX];
};

static bool reads_only(enum vb_mode mode)
{
	return mode == VB_SHARED || mode == VB_INTENT_SHARED;
}

/* Whether holding an ancestor in `held` permits what `mode` is for, of all below it. */
static bool covers_below(enum vb_mode held, enum vb_mode mode)
{
	if (held == VB_EXCLUSIVE)
		return true;
	return reads_only(mode) && vb_mode_covers(held, VB_SHARED);
}

static int check_path(const struct vb_lock_client *me, const uint64_t *path, unsigned n,
		      enum vb_mode mode)
{
	if (n == 0 || n > VB_PATH_MAX)
		return vb_fail(-EINVAL, "a path of %u locks: 1 to %u are possible", n, VB_PATH_MAX);
	if ((unsigned)mode >= VB_MODES)
		return vb_fail(-EINVAL, "there is no lock mode %d", (int)mode);
	if (n > 1 && !(me->space->ops->caps & VB_LOCK_INTENT))
		return vb_fail(-EOPNOTSUPP,
			       "'%s' has no intention locks; `verbena list` says which have",
			       me->space->ops->name);
	for (unsigned i = 0; i < n; i++) {
		for (unsigned j = 0; j < i; j++)
			if (path[i] == path[j])
				return vb_fail(-EINVAL, "lock %" PRIu64 " is on the path twice",
					       path[i]);
	}
	return 0;
}

static uint64_t time_left(const struct walk *w)
{
	uint64_t now;

	if (w->until_ns == VB_FOREVER)
		return VB_FOREVER_NS;
	now = vb_ep_now(w->me->ep);
	return now < w->until_ns ? w->until_ns - now : 0;
}

/* The caller's own grant of the lock stays as it is; this one is for the conversion only. */
static int convert_held(struct walk *w, struct vb_claim *c, enum vb_mode mode, uint64_t timeout_ns)
{
	struct vb_grant g;

	vb_claim_describe(w->me, c, &g);
	return vb_lock_convert(w->me, &g, mode, timeout_ns);
}

static int step(struct walk *w, unsigned i, enum vb_mode mode)
{
	struct vb_claim *c = vb_lock_held(w->me, w->path[i]);
	int err = 0;

	if (c == NULL)
		return vb_lock_acquire(w->me, w->path[i], mode, time_left(w), &w->grants[i]);
	w->before[i] = c->mode;
	if (!vb_mode_covers(c->mode, mode))
		err = convert_held(w, c, vb_mode_join(c->mode, mode), time_left(w));
	vb_claim_describe(w->me, c, &w->grants[i]);
	w->grants[i].claim = NULL;
	return err;
}

/* Are all locks ours at this moment?  The lease of one may have ended while we waited for
 * another. */
static int still_valid(struct walk *w, unsigned n)
{
	uint64_t now = vb_ep_now(w->me->ep);
	int err = 0;

	for (unsigned i = 0; i < n; i++) {
		const struct vb_claim *c = vb_lock_held(w->me, w->path[i]);

		if (c->valid_until_ns == VB_FOREVER || now < c->valid_until_ns)
			continue;
		if (w->grants[i].claim == NULL)
			return -VB_ELOST; /* the caller's own: nobody can undo that */
		err = -ETIMEDOUT;
	}
	return err;
}

/* Restores what was before: releases together what was taken, and then converts back, from the leaf
 * to the root, what was converted. */
static void undo(struct walk *w, unsigned n)
{
	struct vb_grant taken[VB_PATH_MAX];
	unsigned k = 0;

	for (unsigned i = 0; i < n; i++) {
		if (w->grants[i].claim == NULL)
			continue;
		taken[k++] = w->grants[i];
		w->grants[i].claim = NULL;
	}
	(void)vb_lock_release_all(w->me, taken, k);
	while (n-- > 0) {
		struct vb_claim *c = vb_lock_held(w->me, w->path[n]);

		VB_SOMETIMES_IF(c != NULL && c->mode != w->before[n], 200,
				"table: a path that is given up converts back");
		if (c != NULL && c->mode != w->before[n])
			(void)convert_held(w, c, w->before[n], VB_FOREVER_NS);
	}
}

/* A host's client, called by another thread: the call is made there. */
static int run_path(void *arg)
{
	const struct walk *w = arg;

	return vb_lock_acquire_path(w->me, w->path, w->n, w->mode, time_left(w), w->grants);
}

int vb_lock_acquire_path(struct vb_lock_client *me, const uint64_t *path, unsigned n,
			 enum vb_mode mode, uint64_t timeout_ns, struct vb_grant grants[])
{
	enum vb_mode intent = reads_only(mode) ? VB_INTENT_SHARED : VB_INTENT_EXCLUSIVE;
	struct walk w = {.me = me, .path = path, .grants = grants, .n = n, .mode = mode};
	bool outermost;
	unsigned i;
	int err;

	if (vb_any_null(me, path, grants))
		return -EINVAL;
	w.until_ns = vb_lock_visit_until(me, timeout_ns);
	if (vb_ep_is_away(me->ep))
		return vb_host_run(me->ep->host, &me->ep->caller, run_path, &w);
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = check_path(me, path, n, mode);
	if (err)
		return err;
	outermost = vb_lock_join(me);
	for (i = 0; i < n; i++) {
		err = step(&w, i, i + 1 < n ? intent : mode);
		if (err != 0 || covers_below(grants[i].mode, mode))
			break;
	}
	if (err == 0) {
		i = i < n ? i + 1 : n;
		err = still_valid(&w, i);
		VB_SOMETIMES_IF(err == -ETIMEDOUT, 1000, "table: a path came too late for a lease");
	}
	if (err)
		undo(&w, i);
	vb_lock_part(me, outermost);
	if (err)
		return err;
	for (; i < n; i++)
		grants[i] = (struct vb_grant){.lock = path[i], .mode = mode};
	return 0;
}
