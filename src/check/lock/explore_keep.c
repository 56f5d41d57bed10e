/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Holds that are kept.  The library renews them in the background (vb_lock_keep_start, whose task is its
 * keeper's in virtual time) while their holder works, stands still for leases, and writes to what the lock
 * guards.  Whoever holds a lock exclusively in such a seed writes there, kept or not:
 *
 *	at once     vb_lock_valid has just said yes.  It may not be refused, nor may anybody have written
 *	            since the holder came
 *	late        it has said yes, and the holder stood still before the write arrived.  Others may have
 *	            the lock by then: the store refuses what is older than the largest token that it has seen
 *
 * A holder presents its token when it comes, as who reads first does; without tokens nobody is late.  Who holds
 * it shared looks there at once, and finds what it found when it came, or what was late: it has no token by which
 * the store would refuse that.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "check/draw.h"
#include "check/lock/explore_inner.h"
#include "check/planted/planted.h"
#include "lock/claim.h"
#include "task/ring.h"

#define KEEP_STREAM 0x6b656570
#define SLOT_STREAM 0x6b650000

/* A lease of orderly seeds, in verbs that are as late as they may be: half of it is enough for a renewal. */
#define ORDERLY_VERBS 24
/* For so long holds of a seed are kept, more or less. */
#define ALL_ROUND_TRIPS 30000.0
/* Of a lease, between two writes. */
#define STEPS 4
/* Before this share of what a lease had left it is told (verbena/async.h). */
#define WARN 4

/* ---- what is drawn ---- */

/* A hold of leases would have others wait for a second lock until the lease of their first is over. */
static void draw_orderly(struct vb_rng *r, struct vb_explore_draw *d)
{
	d->lease_ns =
		vb_draw_between(r, ORDERLY_VERBS * d->bound_ns, 2 * ORDERLY_VERBS * d->bound_ns);
	d->p_two = d->p_path = d->p_convert = 0;
}

/* While one holds for leases the others ask on and on. */
static void bound_keeps(struct vb_explore_draw *d)
{
	double each = (double)d->keep_leases * (double)d->lease_ns / 2;
	double most = ALL_ROUND_TRIPS * (double)vb_sim_rtt_ns(d->profile) /
		      (each * d->attempts * d->clients);

	if (d->p_keep > most)
		d->p_keep = most;
}

/* Those that cannot renew are asked all the same, and refuse: that changes nothing in their seeds. */
void explore_draw_keeps(const struct vb_lock_ops *ops, struct vb_explore_draw *d)
{
	static const double chances[] = {0.03, 0.1, 0.3};
	const bool planted = vb_planted_keeper(ops) != NULL;
	struct vb_rng r;

	vb_rng_seed(&r, d->seed, KEEP_STREAM);
	if (!vb_rng_chance(&r, 0.25) && !planted)
		return;
	d->p_keep = vb_draw_one_of(&r, chances, 3);
	if (ops->renew == NULL)
		return;
	d->keep_leases = (unsigned)vb_draw_between(&r, 2, 6);
	d->keep_late_ns = vb_draw_spread(&r, d->lease_ns / 8, 6);
	if (d->orderly && !(ops->caps & VB_LOCK_READ_LEASE))
		draw_orderly(&r, d);
	bound_keeps(d);
}

void explore_tell_keeps(FILE *to, const struct vb_explore_draw *d)
{
	vb_draw_tell_chance(to, d->keep_leases == 0 ? "ask to keep" : "keep", d->p_keep, 0);
	if (d->keep_leases != 0)
		fprintf(to, " for %u leases", d->keep_leases);
}

/* ---- who renews ---- */

static struct explore *explore_of(const struct vb_lock_client *me)
{
	return vb_container_of((struct vb_lock_watch *)(uintptr_t)me->space->watch, struct explore,
			       watch);
}

static struct kept *kept_of(const struct vb_lock_client *me)
{
	return &explore_of(me)->slots[me->index].kept;
}

static void on_converting(void *ctx, struct vb_lock_client *me, const struct vb_claim *c,
			  enum vb_mode to)
{
	struct explore *x = explore_of(me);
	struct kept *k = kept_of(me);

	k->wanted = c->mode != to || x->slots[me->index].asks || (k->on && !k->stopped);
	x->watched->converting(ctx, me, c, to);
}

static void note_lease(struct kept *k, const struct vb_lock_client *me, const struct vb_claim *c)
{
	k->told_ns = vb_ep_now(me->ep);
	k->until_ns = c->valid_until_ns;
}

/* What was begun for somebody who kept it may end later. */
static void on_converted(void *ctx, struct vb_lock_client *me, const struct vb_claim *c, int err)
{
	struct explore *x = explore_of(me);
	struct kept *k = kept_of(me);

	x->watched->converted(ctx, me, c, err);
	/* The dead come as far as their next verb, when another may have their place. */
	if (err != 0 || x->slots[me->index].client != me)
		return;
	note_lease(k, me, c);
	k->renewals++;
	if (k->on)
		x->result->kept_on++;
	if (!k->wanted)
		vb_audit_violation(
			x->audit, VB_AUDIT_KEPT_ON, me->index, c->lock,
			"its grant was renewed, which it neither renews nor keeps (any more)");
}

void explore_watch_keeps(struct explore *x)
{
	if (x->d->p_keep == 0)
		return;
	x->watched = x->space->watch;
	x->watch = *x->watched;
	x->watch.converting = on_converting;
	x->watch.converted = on_converted;
	x->space->watch = &x->watch;
	for (unsigned i = 0; i < x->d->clients; i++)
		vb_rng_seed(&x->keep_rng[i], x->d->seed, SLOT_STREAM + i);
}

/* ---- what the lock guards ---- */

static struct vb_rng *rng_of(const struct slot *s)
{
	return &s->x->keep_rng[s->index];
}

static void write_is_wrong(struct slot *s, const struct vb_grant *g, const char *what)
{
	const struct explore_store *st = &s->x->store[g->lock];
	char text[256];

	snprintf(text, sizeof(text),
		 "at %.3f us %s: its token is %" PRIu64
		 ", the largest that the store has seen %" PRIu64 "; it came after %" PRIu64
		 " writes, and there are %" PRIu64 ", the last by client %u",
		 (double)vb_sched_now(s->x->sched) / 1e3, what, g->token, st->token, s->kept.saw,
		 st->writes, st->writer);
	vb_audit_violation(s->x->audit, VB_AUDIT_GUARDED_WRITE, s->index, g->lock, text);
}

static bool refuses(const struct slot *s, const struct vb_grant *g)
{
	return s->x->d->fencing && g->token < s->x->store[g->lock].token;
}

/* Where two may hold it for what goes beyond, the store stands still. */
static bool guards(const struct slot *s, const struct vb_grant *g)
{
	return g->mode == VB_EXCLUSIVE && explore_forgiven(s->x->d) == 0;
}

/* The holder comes, and is valid. */
static void come_to_store(struct slot *s, const struct vb_grant *g)
{
	struct explore_store *st = &s->x->store[g->lock];

	s->kept.saw = g->mode == VB_SHARED ? st->prompt : st->writes;
	if (!guards(s, g))
		return;
	if (refuses(s, g))
		write_is_wrong(s, g, "a holder that had just looked was refused");
	else
		st->token = g->token;
}

static void write_down(struct slot *s, const struct vb_grant *g)
{
	struct explore_store *st = &s->x->store[g->lock];

	s->kept.saw = ++st->writes;
	st->writer = s->index;
}

static void read_at_once(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	if (explore_forgiven(s->x->d) == 0 && vb_lock_valid(me, g) &&
	    s->x->store[g->lock].prompt != s->kept.saw)
		write_is_wrong(s, g, "a reader that had just looked found another's write");
}

static void write_at_once(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	if (g->mode == VB_SHARED)
		read_at_once(s, me, g);
	if (!guards(s, g) || !vb_lock_valid(me, g))
		return;
	if (refuses(s, g))
		write_is_wrong(s, g, "a write of a holder that had just looked was refused");
	else if (s->x->store[g->lock].writes != s->kept.saw)
		write_is_wrong(s, g, "a holder that had just looked wrote over another's");
	s->x->store[g->lock].prompt++;
	write_down(s, g);
}

/* ---- the keep ---- */

static void note_end(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
		     int result)
{
	struct kept *k = &s->kept;
	char text[160];
	bool valid = vb_lock_valid(me, g);

	k->on = false;
	k->result = result;
	k->ended_ns = vb_lock_now(me);
	if (valid == (result != -VB_ELOST))
		return;
	snprintf(text, sizeof(text), "a keep ended with %d (%s), and then vb_lock_valid said %s",
		 result, vb_strerror(result), valid ? "yes" : "no");
	explore_answer_is_wrong(s, -EPROTO, g->lock, text);
}

/* For the completion, so long at most.  0, -ETIMEDOUT, or -ECANCELED: the life is. */
static int wait_for_end(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
			uint64_t until_ns)
{
	struct vb_completion done;
	int err = vb_ring_next(s->kept.ring, until_ns, &done);

	stay_alive(me);
	if (err == 0)
		note_end(s, me, g, done.result);
	return err;
}

/* Until then, whatever is told meanwhile.  0, or -ECANCELED. */
static int wait_until(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
		      uint64_t until_ns)
{
	int err = s->kept.on ? wait_for_end(s, me, g, until_ns) : 0;

	if (err == 0)
		err = vb_task_sleep_until(until_ns);
	stay_alive(me);
	return err == -ECANCELED ? err : 0;
}

/* It has looked, and stands still before what it writes is there. */
static int write_late(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	const unsigned renewals = s->kept.renewals;
	int err;

	if (!guards(s, g) || !s->x->d->fencing || !vb_lock_valid(me, g))
		return 0;
	err = wait_until(s, me, g,
			 vb_sched_now(s->x->sched) +
				 vb_rng_below(rng_of(s), s->x->d->keep_late_ns));
	VB_SOMETIMES_IF(s->kept.renewals != renewals, 200,
			"renew: renewed while its holder stands still");
	if (refuses(s, g)) {
		VB_SOMETIMES(2000, "renew: a late write is refused by its token");
		return err;
	}
	if (s->x->store[g->lock].writes != s->kept.saw)
		write_is_wrong(s, g, "a late write was accepted, over another's");
	write_down(s, g);
	return err;
}

/* Works until then, or until it is told, or cancelled. */
static void work(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
		 uint64_t until_ns)
{
	struct explore *x = s->x;
	int err = 0;

	while (err == 0 && s->kept.on && !x->live && x->err == 0 &&
	       vb_sched_now(x->sched) < until_ns) {
		uint64_t step = 1 + x->d->lease_ns / STEPS;

		err = wait_until(s, me, g, vb_sched_now(x->sched) + vb_rng_below(rng_of(s), step));
		if (err == 0 && vb_rng_chance(rng_of(s), 0.3))
			err = write_late(s, me, g);
		else
			write_at_once(s, me, g);
	}
}

/* Whether a client of the seed may be late on its own. */
static bool is_prompt(const struct vb_explore_draw *d)
{
	return d->faults.pause_told == 0 && d->faults.around == 0 &&
	       (d->faults.pause == 0 || d->faults.pause_max_ns < d->bound_ns);
}

/* A verb that is under way at that time ends first; and one of clients that change the words themselves whose
 * answer is lost, when it can land no more. */
static bool is_late(const struct slot *s, uint64_t at_ns, uint64_t due_ns)
{
	const struct vb_explore_draw *d = s->x->d;
	const unsigned verbs = s->x->ops->caps & VB_LOCK_READ_LEASE ? 2 : 1;

	return is_prompt(d) &&
	       at_ns > due_ns + verbs * explore_true_bound_ns(d) + d->faults.pause_max_ns;
}

static void tell_late(struct slot *s, const struct vb_grant *g, const char *what, uint64_t at_ns,
		      uint64_t due_ns)
{
	char text[256];

	if (!is_late(s, at_ns, due_ns))
		return;
	snprintf(text, sizeof(text), "%s at %.3f us, and was due at %.3f us and a verb", what,
		 (double)at_ns / 1e3, (double)due_ns / 1e3);
	vb_audit_violation(s->x->audit, VB_AUDIT_TOLD_LATE, s->index, g->lock, text);
}

/* The completion of what was cancelled comes when the verb that is under way has ended. */
static void stop(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g, uint64_t id)
{
	const uint64_t now = vb_lock_now(me);
	bool shielded;

	if (!s->kept.on)
		return;
	s->kept.stopped = true;
	(void)vb_ring_cancel(s->kept.ring, id);
	shielded = vb_task_shield(true);
	(void)wait_for_end(s, me, g, VB_FOREVER);
	vb_task_shield(shielded);
	tell_late(s, g, "a keep that was cancelled ended", s->kept.ended_ns, now);
	/* Whether it should have been told by now. */
	s->kept.ended_ns = now;
}

/* It is told before the last quarter of what the lease had left. */
static void judge_time(struct slot *s, const struct vb_grant *g)
{
	const struct kept *k = &s->kept;

	tell_late(s, g,
		  k->stopped ? "a keep that could not renew was cancelled untold"
			     : "a keep that could not renew told it",
		  k->ended_ns, k->until_ns - (k->until_ns - k->told_ns) / WARN);
}

void explore_judge_renewal_time(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g,
				uint64_t end_ns)
{
	tell_late(s, g, "vb_lock_renew came back", vb_lock_now(me), end_ns);
}

static void judge_end(struct slot *s, const struct vb_grant *g)
{
	struct explore *x = s->x;

	switch (-s->kept.result) {
	case VB_ELOST:
		VB_SOMETIMES(1000, "renew: a keep tells of a loss");
		x->murky = true;
		x->result->kept_lost++;
		break;
	case ECANCELED:
		if (!s->kept.stopped)
			explore_go_wrong(s, "what vb_lock_keep_start began", -ECANCELED);
		return;
	case ETIMEDOUT:
	case EAGAIN:
	case VB_EUNKNOWN:
	case VB_EPEERGONE:
		VB_SOMETIMES(200, "renew: a keep gives up while the lock is held");
		break;
	default:
		explore_go_wrong(s, "what vb_lock_keep_start began", s->kept.result);
		return;
	}
	if (!lossy(x) && !(x->ops->caps & VB_LOCK_READ_LEASE))
		vb_audit_violation(
			x->audit, VB_AUDIT_NEEDLESS_RECOVERY, s->index, g->lock,
			"a grant that was kept could not be renewed although nothing was "
			"wrong");
}

static int start_keep(struct slot *s, struct vb_lock_client *me, struct vb_grant *g, uint64_t *id)
{
	const vb_ring_fn planted = vb_planted_keeper(s->x->ops);

	s->kept.planted = (struct vb_planted_kept){.me = me, .grant = g};
	return planted != NULL ? vb_ring_call(s->kept.ring, planted, &s->kept.planted, s, id)
			       : vb_lock_keep_start(s->kept.ring, me, g, s, id);
}

/* Of the keep before, whose grant was released long ago: it has told its end, and nothing since. */
static void close_ring(struct slot *s)
{
	struct vb_ring *ring = s->kept.ring;

	s->kept.ring = NULL;
	if (ring != NULL && vb_ring_bury(ring) != 0)
		explore_answer_is_wrong(s, -EPROTO, s->asks_lock,
					"a keep has told its end twice, or after a release");
}

static void keep_for(struct slot *s, struct vb_lock_client *me, struct vb_grant *g, uint64_t ns)
{
	static const struct vb_ring_params params = {.depth = 2};
	struct kept *k = &s->kept;
	uint64_t id;
	int err;

	close_ring(s);
	err = vb_ring_open(&params, &k->ring);
	if (err == 0) {
		note_lease(k, me, g->claim);
		k->on = true;
		k->stopped = false;
		err = start_keep(s, me, g, &id);
		if (err == VB_STARTED) {
			s->x->result->kept++;
			work(s, me, g, vb_sched_now(s->x->sched) + ns);
			stop(s, me, g, id);
			judge_time(s, g);
			judge_end(s, g);
		} else {
			k->on = false;
		}
	}
	if (err != VB_STARTED)
		explore_go_wrong(s, "vb_lock_keep_start", err);
}

/* The refusal is said. */
static void ask_in_vain(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	static const struct vb_ring_params params = {.depth = 1};
	struct vb_ring *ring;
	int err = vb_ring_open(&params, &ring), want = -EOPNOTSUPP;

	if (err == 0) {
		vb_log_mute();
		err = vb_lock_keep_start(ring, me, g, NULL, NULL);
		vb_log_unmute();
		vb_ring_bury(ring);
	}
	if (g->valid_until_ns == VB_FOREVER_NS)
		want = 0;
	if (err != want)
		explore_go_wrong(s, "vb_lock_keep_start", err);
}

void explore_keep_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	const bool keeps = d->p_keep > 0 && vb_rng_chance(rng_of(s), d->p_keep);
	const bool valid = d->p_keep > 0 && vb_lock_valid(me, g);

	if (keeps && (d->keep_leases == 0 || g->valid_until_ns == VB_FOREVER_NS))
		ask_in_vain(s, me, g);
	if (d->keep_leases == 0 || !valid)
		return;
	come_to_store(s, g);
	if (g->valid_until_ns == VB_FOREVER_NS) {
		/* Of drtm's writers, whose readers have leases. */
		write_at_once(s, me, g);
		return;
	}
	if (keeps)
		keep_for(s, me, g,
			 vb_rng_below(rng_of(s),
				      d->keep_leases * (g->valid_until_ns - vb_lock_now(me))));
	write_at_once(s, me, g);
	/* Nobody keeps it any more, for whoever stays beyond its end either. */
	if (keeps && !d->orderly && vb_rng_chance(rng_of(s), 0.3))
		(void)write_late(s, me, g);
}

/* ---- deaths ---- */

/* What it had under way has died with it. */
void explore_lose_keep(struct slot *s)
{
	if (s->kept.ring != NULL)
		s->x->rings[s->x->n_rings++] = s->kept.ring;
	s->kept = (struct kept){0};
}

void explore_judge_keeps(struct explore *x)
{
	for (unsigned i = 0; i < x->d->clients; i++)
		if (!x->slots[i].kept.on)
			close_ring(&x->slots[i]);
}

void explore_bury_keeps(struct explore *x)
{
	for (unsigned i = 0; i < x->n_rings; i++)
		(void)vb_ring_bury(x->rings[i]);
	for (unsigned i = 0; i < x->d->clients; i++)
		if (x->slots[i].kept.ring != NULL)
			(void)vb_ring_bury(x->slots[i].kept.ring);
}
