/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The lock table (src/lock/table/table.c) with one rule of it wrong: see struct vb_tq_rules.
 *
 * Most of them would be mended by the leases, as a death is; they have none, so that what goes
 * wrong stays wrong.
 */
#include "check/planted/planted.h"
#include "lock/table/table.h"

/* An entry of the matrix that table 1 of Barthels et al. does not have. */
static bool shared_beside_six(enum vb_mode a, enum vb_mode b)
{
	if ((a == VB_SHARED && b == VB_SHARED_INTENT_EXCLUSIVE) ||
	    (b == VB_SHARED && a == VB_SHARED_INTENT_EXCLUSIVE))
		return false;
	return vb_modes_exclude(a, b);
}

/* Compares with those who hold the lock and forgets those who stand ahead in the queue: the young
 * wait for the old there, the old for the young elsewhere, and so round. */
static bool waits_behind_anybody(const struct vb_tq_req *r, const struct vb_tq_req *other)
{
	return other->state == VB_TQ_WAITING || vb_tq_rules.may_wait(r, other);
}

/* No cycle comes of it, but whoever tries again for long enough is the oldest and dies each
 * time. */
static bool younger_waits(const struct vb_tq_req *r, const struct vb_tq_req *other)
{
	return !vb_tq_rules.may_wait(r, other);
}

/* Who gives up is taken out, and nobody looks who may go now. */
static void leave_silently(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	vb_tq_unlink(q, r);
}

/* Who gives up is taken out of the queue; but he was granted the lock a moment ago. */
static void leave_the_queue_only(struct vb_tq *q, struct vb_tq_req *r, uint64_t now_ns)
{
	if (r->state == VB_TQ_WAITING)
		vb_tq_leave(q, r, now_ns);
}

/* A conversion that is given up, refused or not, takes back all those before it. */
static void back_to_the_first(struct vb_tq_req *r, uint64_t number)
{
	if (r->converted == 0)
		r->before = r->mode;
	r->converted = number;
}

static struct vb_tq_rules with_six, with_queue, with_youth, with_silence, with_rest, with_past;

static int open_with(struct vb_lock_space *space, struct vb_tq_rules *rules,
		     const struct vb_tq_rules *wrong)
{
	struct vb_locktab_options *o = space->options;

	*rules = vb_tq_rules;
	if (wrong->exclude != NULL)
		rules->exclude = wrong->exclude;
	if (wrong->may_wait != NULL)
		rules->may_wait = wrong->may_wait;
	if (wrong->withdraw != NULL)
		rules->withdraw = wrong->withdraw;
	if (wrong->converts != NULL)
		rules->converts = wrong->converts;
	o->rules = rules;
	o->no_leases = true;
	return 0;
}

static int open_six(struct vb_lock_space *s)
{
	return open_with(s, &with_six, &(struct vb_tq_rules){.exclude = shared_beside_six});
}

static int open_queue(struct vb_lock_space *s)
{
	struct vb_locktab_options *o = s->options;

	o->policy = VB_LOCKTAB_WAIT_DIE;
	return open_with(s, &with_queue, &(struct vb_tq_rules){.may_wait = waits_behind_anybody});
}

static int open_youth(struct vb_lock_space *s)
{
	struct vb_locktab_options *o = s->options;

	o->policy = VB_LOCKTAB_WAIT_DIE;
	return open_with(s, &with_youth, &(struct vb_tq_rules){.may_wait = younger_waits});
}

static int open_silence(struct vb_lock_space *s)
{
	return open_with(s, &with_silence, &(struct vb_tq_rules){.withdraw = leave_silently});
}

static int open_rest(struct vb_lock_space *s)
{
	return open_with(s, &with_rest, &(struct vb_tq_rules){.withdraw = leave_the_queue_only});
}

static int open_past(struct vb_lock_space *s)
{
	return open_with(s, &with_past, &(struct vb_tq_rules){.converts = back_to_the_first});
}

#define TABLE(name_, rule_, summary_, open_)                                                       \
	{                                                                                          \
		.name = "planted:" name_, .summary = summary_, .source = "planted bug",            \
		.planted = rule_,                                                                  \
		.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_TOKEN |        \
			VB_LOCK_SERVER | VB_LOCK_UPDATE | VB_LOCK_INTENT | VB_LOCK_DENIES,         \
		.verbs_uncontended = "2 WRITE+notify + 2 WRITE+notify",                            \
		.verbs_contended = "the same", .open = open_, VB_LOCKTAB_CALLS                     \
	}

const struct vb_lock_ops vb_planted_six_beside_shared =
	TABLE("six-beside-shared", "mode-conflict", "grants shared beside shared-intent-exclusive",
	      open_six);
const struct vb_lock_ops vb_planted_wait_die_holders =
	TABLE("wait-die-holders", "stuck",
	      "Wait-Die that compares with the holders and not with those ahead in the queue",
	      open_queue);
const struct vb_lock_ops vb_planted_wait_die_inverted = TABLE(
	"wait-die-inverted", "oldest-denied", "Wait-Die upside down: the older dies", open_youth);
const struct vb_lock_ops vb_planted_lost_waiter =
	TABLE("lost-waiter", "stuck", "wakes nobody when somebody gives up", open_silence);
const struct vb_lock_ops vb_planted_grant_left_behind =
	TABLE("grant-left-behind", "stuck", "keeps what was granted to a client that had given up",
	      open_rest);
const struct vb_lock_ops vb_planted_undone_twice =
	TABLE("undone-twice", "mode-conflict",
	      "undoes the conversions before the one that was given up", open_past);
