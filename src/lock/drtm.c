/* SPDX-License-Identifier: Apache-2.0 */
/*
 * DrTM's lock: CAS for writers, leases by the clock for readers (Wei et al., SOSP 2015; DSLR,
 * section 6, system 2; ShiftLock, table 1 and section 4.1).
 *
 *	 63  62                    40 39             24 23                   0
 *	+---+-----------------------+-----------------+----------------------+
 *	| 1 | claim's number        | owner node + 1  | owner client         |   a writer has it
 *	+---+-----------------------+-----------------+----------------------+
 *	| 0 | end of the readers' lease, common time, ns                     |   readers may have it
 *	+---+----------------------------------------------------------------+
 *	  0 = free
 *
 *   exclusive  acquire    uncontended 1 CAS       contended 1 CAS per attempt, 1 more to replace a
 *                                                 lease that is over
 *              release    always 1 CAS
 *   shared     acquire    uncontended 1 CAS       while a lease runs 1 CAS, which fails and shows
 *                                                 its end
 *              release    nothing
 *              renew      1 CAS, 1 more if another reader has renewed it
 *   holder     1 READ
 *
 * The end of a lease is a common time; a client's idea of it (vb_ep_common_now) may be wrong by
 * `clock_bound`, B, either way.  A reader takes the lease for valid while its own idea is below
 * end - B, and all others take it for over when theirs is above end + B: doc/locks/drtm.md has the
 * drawing, and what leaving B out does.
 *
 * A lease that is over is replaced, by a reader with the next lease or by a writer with its name;
 * that CAS compares the whole word.  Nobody prolongs a lease that still runs but a reader that asks
 * for it (vb_lock_renew): a writer has its chance at each end.
 *
 *   Promises   shared and exclusive; no order, writers wait for the end of the lease although the
 *              readers are long gone, and may then lose against the next reader.  The death of a
 *              reader costs nothing: nobody waits for it.  The death of a writer is never mended:
 *              DrTM does that from its log, and a stand-alone lock has none.
 *
 * Departs from the papers (why: doc/locks/drtm.md):
 *   - readers may renew;
 *   - the owner's name has 40 bits, DrTM's 8, so it shares the word with the lease;
 *   - clients that cannot tell the time to within clock_bound are refused;
 *   - a lost answer to a writer's CAS is looked into as in cas.c; one to a reader's needs none.
 */
#define VB_LOG_ROOM "lock"
#include "lock/drtm.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"

#define DRTM_FREE  0ull
#define DRTM_OWNED VB_OWNER_FLAG
/* CASes of one attempt: one shows what is there, one more replaces a lease that is over. */
#define DRTM_ASKS 2
/* The shortest lease in clock_bounds: two of them are lost at its ends. */
#define DRTM_LEASE_BOUNDS 4

/*
 * A lease that nobody has chosen begins with DrTM's 400 us, or with 8 clock_bounds where clocks are
 * off by more than its 50.  It doubles with each one that was over before its reader was done, up to
 * 64 times that or the space's lease, and shrinks by a 64th with each that was long enough: some two in
 * a hundred are lost then, also where a reader waits longer for a core than for the lock.  Not more:
 * each writer waits for the end of one.
 */
#define DRTM_FIRST_NS     400000ull
#define DRTM_FIRST_BOUNDS 8
#define DRTM_MOST_FIRSTS  64
#define DRTM_SHRINK_SHARE 64

struct drtm_client {
	uint64_t lease_ns;
};

const struct vb_opt drtm_option_table[] = {
	VB_OPT_TIME(struct drtm_options, clock_bound_ns, "clock_bound", "50us", 0, 1000000000ull,
		    "how far a client's idea of the common time is off at most"),
	VB_OPT_TIME(struct drtm_options, read_lease_ns, "read_lease", "auto", 0,
		    3600ull * 1000000000,
		    "how long readers hold; 0: the space's lease; auto: 400us or 8 clock_bounds at "
		    "first, longer where grants are lost"),
	VB_OPT_TIME(struct drtm_options, read_least_ns, "read_least", "0", 0, 3600ull * 1000000000,
		    "a reader joins no lease that has less left than this, and waits for its end"),
	VB_OPT_TIME(struct drtm_options, backoff_base_ns, "backoff_base", "auto", 1, 1000000000ull,
		    "first backoff between two attempts, doubles each time; auto: a round trip"),
	VB_OPT_TIME(struct drtm_options, backoff_cap_ns, "backoff_cap", "auto", 1, 1000000000ull,
		    "longest backoff; auto: 1024 times the first"),
	VB_OPT_END};

static const struct drtm_options *options_of(const struct vb_lock_client *me)
{
	return me->space->options;
}

static uint64_t first_lease_ns(const struct vb_lock_space *space)
{
	const struct drtm_options *o = space->options;
	uint64_t ns = DRTM_FIRST_BOUNDS * o->clock_bound_ns;

	if (o->read_lease_ns == 0)
		return space->lease_ns;
	if (o->read_lease_ns != VB_OPT_AUTO)
		return o->read_lease_ns;
	return ns > DRTM_FIRST_NS ? ns : DRTM_FIRST_NS;
}

int drtm_open(struct vb_lock_space *space)
{
	struct drtm_options *o = space->options;

	o->lease_ns = first_lease_ns(space);
	o->margin_ns = o->clock_bound_ns;
	if (o->lease_ns < DRTM_LEASE_BOUNDS * o->clock_bound_ns)
		return vb_fail(-EINVAL,
			       "drtm: a lease of %" PRIu64
			       " ns leaves readers nothing where clocks are off "
			       "by %" PRIu64
			       " ns; take a read_lease of %u times clock_bound or a smaller "
			       "clock_bound",
			       o->lease_ns, o->clock_bound_ns, DRTM_LEASE_BOUNDS);
	if (o->lease_ns <= o->margin_ns + o->read_least_ns)
		return vb_fail(-EINVAL,
			       "drtm: no reader has %" PRIu64 " ns of a lease of %" PRIu64
			       " ns; take a shorter read_least or a longer read_lease",
			       o->read_least_ns, o->lease_ns);
	return 0;
}

int drtm_client_open(struct vb_lock_client *me)
{
	struct drtm_client *d = calloc(1, sizeof(*d));

	if (d == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock client");
	d->lease_ns = options_of(me)->lease_ns;
	me->priv = d;
	return 0;
}

static void learn_lease(struct vb_lock_client *me, bool lost)
{
	struct drtm_client *d = me->priv;
	uint64_t first = options_of(me)->lease_ns, most = DRTM_MOST_FIRSTS * first;

	if (most > me->space->lease_ns)
		most = me->space->lease_ns;
	if (options_of(me)->read_lease_ns != VB_OPT_AUTO || most <= first)
		return;
	VB_SOMETIMES_IF(lost && d->lease_ns < most, 1000, "drtm: readers' leases grow");
	if (lost)
		d->lease_ns = d->lease_ns < most / 2 ? 2 * d->lease_ns : most;
	else
		d->lease_ns -= (d->lease_ns - first) / DRTM_SHRINK_SHARE;
}

/* The common time; an error if this client cannot tell it well enough. */
static int common_now(struct vb_lock_client *me, uint64_t *now_ns)
{
	uint64_t bound = options_of(me)->clock_bound_ns, error;

	*now_ns = vb_ep_common_now(me->ep, &error);
	if (vb_likely(error <= bound))
		return 0;
	return vb_fail(-EOPNOTSUPP,
		       "drtm: this client knows the common time to within %" PRIu64
		       " ns only, and clock_bound is %" PRIu64
		       " ns; raise clock_bound (and read_lease) or take a lock that compares no "
		       "clocks",
		       error, bound);
}

/* Our own clock will have shown `ns` more before the common time has gone on by so much. */
static uint64_t shrink(const struct vb_lock_space *s, uint64_t ns)
{
	uint64_t drift = vb_lock_stretch(s, ns) - ns;

	return ns > drift ? ns - drift : 0;
}

/* 0 granted, -EAGAIN somebody has it. */
static int try_exclusive(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t expect = DRTM_FREE, seen, now;

	for (unsigned i = 0; i < DRTM_ASKS; i++) {
		int err = vb_owner_take(me, c, expect, &seen);

		if (vb_likely(err != -EAGAIN) || seen & DRTM_OWNED || seen == DRTM_FREE)
			return err;
		err = common_now(me, &now);
		if (err)
			return err;
		if (now <= seen + options_of(me)->margin_ns)
			return -EAGAIN;
		/* The lease is over, and stays so whenever the next CAS finds it. */
		expect = seen;
	}
	return -EAGAIN;
}

static int try_shared(struct vb_lock_client *me, struct vb_claim *c)
{
	const uint64_t margin = options_of(me)->margin_ns;
	/* One look at both clocks, our own first.  Every time below counts from here, so the time
	 * until the answer is there only makes the grant shorter. */
	uint64_t local = vb_ep_now(me->ep), expect = DRTM_FREE, now, end, seen;
	int err = common_now(me, &now);

	end = now + ((const struct drtm_client *)me->priv)->lease_ns;
	for (unsigned i = 0; err == 0 && i < DRTM_ASKS; i++) {
		err = vb_cas64(me->ep, c->entry, expect, end, &seen);
		/* A lease that nobody knows of ends like any other. */
		if (vb_unlikely(err != 0))
			return err == -VB_EUNKNOWN ? -EAGAIN : err;
		if (seen == expect)
			seen = end;
		if (seen & DRTM_OWNED || seen == DRTM_FREE)
			return -EAGAIN;
		if (now + margin + options_of(me)->read_least_ns < seen) {
			c->priv[1] = seen;
			return vb_lock_grant(c, local + shrink(me->space, seen - margin - now), 0);
		}
		if (now <= seen + margin)
			return -EAGAIN;
		expect = seen;
	}
	return err ? err : -EAGAIN;
}

static int ask(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? try_shared(me, c) : try_exclusive(me, c);
}

int drtm_try(struct vb_lock_client *me, struct vb_claim *c)
{
	c->priv[0] = vb_owner_word(me, DRTM_OWNED);
	return ask(me, c);
}

int drtm_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const struct drtm_options *o = options_of(me);
	struct vb_backoff b = vb_backoff_of(me, o->backoff_base_ns, o->backoff_cap_ns);
	int err;

	c->priv[0] = vb_owner_word(me, DRTM_OWNED);
	for (;;) {
		err = ask(me, c);
		if (err != -EAGAIN)
			return err;
		vb_phase(me, VB_PHASE_RT);
		err = vb_backoff_wait(me, &b, until_ns);
		if (err)
			return err;
		me->retries++;
	}
}

/*
 * A reader's.  Only the lease that it knows, or one that began while its own ran, is replaced by a
 * longer one: the CAS compares the whole word, and no end comes twice, so whenever it takes effect
 * nobody has had the lock in between.
 */
int drtm_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	const uint64_t margin = options_of(me)->margin_ns;
	uint64_t local = vb_ep_now(me->ep), expect = c->priv[1], now, end, seen = 0;
	int err = common_now(me, &now);

	if (err)
		return err;
	end = now + ((const struct drtm_client *)me->priv)->lease_ns;
	for (unsigned i = 0; expect < end && i < DRTM_ASKS; i++) {
		err = vb_cas64(me->ep, c->entry, expect, end, &seen);
		/* The lease may be longer than we know, or will be. */
		if (err == -VB_EUNKNOWN)
			vb_lock_let_land(me);
		if (err)
			return err;
		if (seen == expect) {
			expect = end;
			break;
		}
		/* Another reader has prolonged it, unless it was over by then. */
		VB_SOMETIMES(2000, "drtm: a renewal finds another lease");
		if (seen & DRTM_OWNED || seen < expect || vb_ep_now(me->ep) >= c->valid_until_ns)
			return -VB_ELOST;
		expect = seen;
	}
	if (expect <= now + margin)
		return -VB_ELOST;
	c->priv[1] = expect;
	c->valid_until_ns = local + shrink(me->space, expect - margin - now);
	return 0;
}

int drtm_release(struct vb_lock_client *me, struct vb_claim *c)
{
	bool lost;

	if (c->mode != VB_SHARED)
		return vb_owner_give_back(me, c);
	lost = vb_ep_now(me->ep) >= c->valid_until_ns;
	learn_lease(me, lost);
	return lost ? -VB_ELOST : 0;
}

/* A reader takes its lease for valid no longer than to the true end, whatever its clock shows.  So the asker
 * has to allow for its own error alone, also one above clock_bound. */
static int drtm_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	uint64_t word, now, error;
	int err = vb_read64(me->ep, vb_lock_entry(me->space, lock), &word);

	if (err != 0 || word == DRTM_FREE)
		return err;
	if (word & DRTM_OWNED) {
		vb_owner_tell(word, out);
		return 0;
	}
	now = vb_ep_common_now(me->ep, &error);
	out->lapsed = now > word && now - word > error;
	out->held = !out->lapsed;
	out->mode = VB_SHARED;
	return 0;
}

const struct vb_lock_ops vb_lock_drtm = {
	.name = "drtm",
	.summary = "CAS for writers; readers share a lease that ends by the clock",
	.source = "DrTM, SOSP 2015; DSLR, section 6 (2); ShiftLock, section 4.1",
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_READ_LEASE,
	.entry_bytes = 8,
	.options = drtm_option_table,
	.options_size = sizeof(struct drtm_options),
	.verbs_uncontended = "X: 1 CAS + 1 CAS, S: 1 CAS + nothing",
	.verbs_contended = "1 CAS per attempt, 1 more to replace a lease that is over",
	.open = drtm_open,
	.client_open = drtm_client_open,
	.acquire = drtm_acquire,
	.try_acquire = drtm_try,
	.renew = drtm_renew,
	.release = drtm_release,
	.release_now = drtm_release,
	.holder = drtm_holder,
};
