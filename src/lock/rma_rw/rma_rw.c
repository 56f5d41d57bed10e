/* SPDX-License-Identifier: Apache-2.0 */
/*
 * RMA-RW: topology-aware distributed MCS with readers (Schmid, Besta and Hoefler, HPDC 2016;
 * ShiftLock, table 1 and section 4.1).  Here the writers' queues; the words are in rma_rw.h.
 *
 *   Nodes are in groups.  A writer stands in its group's queue; the first there enters its group
 *   into the root's queue.  Inside a group the lock is handed over T_L times, then the next group
 *   has its turn, and the next writer of the group enters the root's queue again.  The writer that
 *   has the root bars the readers' counters and waits until nobody is inside.  The bar stays while
 *   the lock goes from group to group; after T_W writers in a row, or when no group is waiting, the
 *   readers have a turn.
 *
 *   exclusive acquire   1 swap, 1 WRITE + 1 swap, C FAA
 *                       behind somebody of the group: 1 swap + 1 SEND, nothing at the root
 *                       behind another group: + 1 WRITE; C FAA only if the readers had a turn
 *                       behind readers: + up to C FAA, and READs
 *   exclusive release   1 READ, 1 READ + C CAS, 2 CAS
 *                       in the group: 1 SEND and nothing else
 *                       to another group: 1 READ + 1 SEND, 1 READ + C CAS if it is the readers'
 *                       turn, and 1 SEND or CAS in the group
 *   shared acquire      1 FAA                                + READs until the next turn
 *   shared release      1 FAA
 *
 *   NEXT      to the predecessor in the group: the name of its successor
 *   YOURS     to the successor in the group: the lock is its, or it must go to the root itself
 *   ROOT      to the claim that has entered the next group: the root is its, readers barred or not
 *
 *   Promises  shared and exclusive.  A waiting reader is passed by at most T_W writers.  Writers
 *             are FIFO inside a group, and groups at the root; how many of other groups pass a
 *             writer while its group is on the way to the root is bounded by that time only.
 *             Readers that come when T_R have been let in wait for the writers.  Does not survive
 *             the death of a holder or waiter.
 *
 * Departs from the paper, as far as it is known here (why, with the interleavings:
 * doc/locks/rma-rw.md):
 *
 *   1. a reader that is left out does not take its arrival back: the next turn lets it in;
 *   2. a writer bars the readers first and waits for those inside then;
 *   3. a turn begins with a CAS of the counter, not with a READ and a later subtraction;
 *   4. a reader for which there is no room in its turn looks for writers again and again;
 *   5. claims tell each other by messages, and a group's place at the root is a word of the entry;
 *   6. two levels, groups and the root, or one; all words of a lock lie on the lock's node.
 */
#define VB_LOG_ROOM "lock"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "lock/protocols.h"
#include "lock/rma_rw/rma_rw.h"

enum rw_tag { RW_NEXT = 1, RW_YOURS = 2, RW_ROOT_YOURS = 3 };

struct rw_yours {
	/* The receiver's. */
	uint32_t in_group, writers;
	/* YOURS: it must go to the root; ROOT_YOURS: the counters must be barred. */
	uint32_t go_up;
};

const struct vb_opt rw_option_table[] = {
	VB_OPT_SIZE(struct rw_options, group, "group", "0", 0, 65535,
		    "nodes in a group; 0: one, or as many as make at most 64 groups"),
	VB_OPT_SIZE(struct rw_options, t_dc, "t_dc", "0", 0, 65535,
		    "nodes that share a counter of readers; 0: a group's"),
	VB_OPT_SIZE(struct rw_options, t_l, "t_l", "4", 0, 1000000,
		    "handovers inside a group before others have a turn"),
	VB_OPT_SIZE(struct rw_options, t_r, "t_r", "4000", 1, RW_T_R_MAX,
		    "readers let in at a counter before writers have a turn"),
	VB_OPT_SIZE(struct rw_options, t_w, "t_w", "16", 1, 1000000,
		    "writers in a row before readers have a turn"),
	VB_OPT_TIME(
		struct rw_options, successor_wait, "successor_wait", "1s", 1000000,
		3600ull * 1000000000,
		"how long a release waits for the message of a successor that it knows is there"),
	VB_OPT_END,
};

/* ---- the shape ---- */

static uint32_t divide_up(uint32_t a, uint32_t b)
{
	return (a + b - 1) / b;
}

static uint32_t at_most(uint64_t n, uint16_t nodes)
{
	return n < nodes ? (uint32_t)n : nodes;
}

static void plan(struct rw_options *o, uint16_t nodes)
{
	o->group_nodes = o->group ? at_most(o->group, nodes) : divide_up(nodes, RW_GROUPS_MAX);
	o->counter_nodes = o->t_dc ? at_most(o->t_dc, nodes) : o->group_nodes;
	o->groups = divide_up(nodes, o->group_nodes);
	o->counters = divide_up(nodes, o->counter_nodes);
}

int rw_shape(const void *options, uint16_t nodes, struct vb_lock_shape *out)
{
	struct rw_options o = *(const struct rw_options *)options;
	uint64_t same = 0;

	plan(&o, nodes);
	if (o.groups > RW_GROUPS_MAX || o.counters > RW_COUNTERS_MAX)
		return vb_fail(-EINVAL,
			       "rma-rw: %u groups and %u counters for %u nodes; at most %u of each "
			       "are possible, take a larger %s=",
			       o.groups, o.counters, nodes, RW_GROUPS_MAX,
			       o.groups > RW_GROUPS_MAX ? "group" : "t_dc");
	/* A process that counts differently would let clients in where others are inside. */
	for (unsigned i = 0; i < 5; i++)
		same = (same ^
			(uint64_t[]){o.group_nodes, o.counter_nodes, o.t_l, o.t_r, o.t_w}[i]) *
		       0x9e3779b97f4a7c15ull;
	out->entry_bytes = 8 * (1 + 2 * o.groups + o.counters);
	out->variant = (uint32_t)(same >> 32) | 1;
	return 0;
}

int rw_open(struct vb_lock_space *space)
{
	plan(space->options, space->fabric->nodes);
	return 0;
}

/* ---- waiting for our turn ---- */

static bool has_root(const struct vb_lock_client *me)
{
	return rw_options_of(me)->groups > 1;
}

static int writer_granted(struct vb_claim *c)
{
	c->queued = false;
	return vb_lock_grant(c, VB_FOREVER_NS, 0);
}

static void wait_at(struct vb_lock_client *me, struct vb_claim *c, enum rw_stage stage)
{
	vb_claim_as(struct rw_claim, c)->stage = stage;
	if (!c->queued)
		vb_lock_mark_queued(me, c);
}

/* The root is ours, and the readers have their turn: a row of writers begins with us. */
static int begin_row(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	int err = rw_bar(me, c);

	if (err)
		return err;
	p->in_group = 0;
	p->writers = 1;
	if (p->draining) {
		VB_SOMETIMES(200, "rma-rw: a writer waits for readers inside");
		wait_at(me, c, RW_DRAIN);
		err = rw_drain(me, c, until_ns);
	}
	return err ? err : writer_granted(c);
}

/* Goes on after the group that was before ours at the root. */
static int await_root(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	struct rw_yours m;
	int err;

	vb_phase(me, VB_PHASE_WP);
	err = vb_handover_hear(me, c, p->self, RW_ROOT_YOURS, &m, sizeof(m), until_ns);
	if (err)
		return err;
	if (m.go_up)
		return begin_row(me, c, until_ns);
	p->in_group = 0;
	p->writers = m.writers;
	return writer_granted(c);
}

static int root_lost(const struct vb_claim *c, int cleared)
{
	return vb_fail(-VB_EUNKNOWN,
		       "lock %" PRIu64 " may be lost: its group's place at the root could not be "
		       "cleared (%s)",
		       c->lock, vb_strerror(cleared));
}

/* In one doorbell: a node that refuses the one refuses the other. */
static int clear_and_swap_at_once(struct vb_lock_client *me, struct vb_claim *c,
				  struct vb_verb *clear, uint64_t *prev)
{
	struct vb_verb v[2] = {*clear,
			       {.op = VB_OP_MCAS64,
				.flags = VB_SIGNALLED,
				.addr = rw_root(c),
				.swap = {.lo = rw_group_of(me) + 1},
				.swap_mask = {.lo = UINT64_MAX},
				.not_after_ns = VB_FOREVER}};
	int err = vb_post_wait(me->ep, v, 2);

	*prev = v[1].old.lo;
	if (vb_likely(err == 0))
		return 0;
	/* Nothing was posted. */
	if (v[0].status == 0 && v[1].status == 0)
		return err;
	if (v[0].status == -VB_EUNKNOWN)
		vb_lock_let_land(me);
	return v[1].status == 0 ? root_lost(c, v[0].status) : vb_lock_refusal(v[1].status);
}

/* Verbs that are not done at once, and a swap that is one of them. */
static bool has_doorbells(const struct vb_lock_client *me)
{
	return (me->ep->fabric->caps.flags & (VB_CAP_MASKED64 | VB_CAP_INLINE)) == VB_CAP_MASKED64;
}

/* Our `next` is cleared by a WRITE before the swap: the group behind us writes it later.  One that
 * was refused or lost while the swap was done leaves a root that nobody can hand on. */
static int clear_and_swap(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
			  uint64_t *prev)
{
	uint64_t nobody = 0;
	struct vb_verb clear = {.op = VB_OP_WRITE,
				.flags = VB_SIGNALLED,
				.addr = rw_next(c, rw_group_of(me)),
				.buf = &nobody,
				.len = sizeof(nobody),
				.not_after_ns = VB_FOREVER};
	struct vb_batch b = {.verbs = &clear, .n = 1};
	int err, cleared;

	if (has_doorbells(me))
		return clear_and_swap_at_once(me, c, &clear, prev);
	err = vb_post(me->ep, &b);
	if (err < 0)
		return err;
	if (err == 0 && clear.status != 0)
		return vb_lock_refusal(clear.status);
	err = vb_lock_swap(me, rw_root(c), rw_group_of(me) + 1, until_ns, prev);
	cleared = vb_wait(me->ep, &b);
	/* It may land later, over what the group behind us writes when we have come again. */
	if (cleared == -VB_EUNKNOWN)
		vb_lock_let_land(me);
	return err == 0 && cleared != 0 ? root_lost(c, cleared) : err;
}

static int write_word(struct vb_lock_client *me, vb_addr at, const uint64_t *word)
{
	struct vb_verb v = {.op = VB_OP_WRITE,
			    .addr = at,
			    .buf = (void *)(uintptr_t)word,
			    .len = sizeof(*word),
			    .not_after_ns = VB_FOREVER};
	unsigned refused = 0;
	int err;

	do
		err = vb_lock_refusal(vb_verb_run(me->ep, &v));
	while (vb_lock_ask_again(me, err, &refused));
	return vb_lock_unknown_if_refused(err);
}

/* Enters our group into the root's queue; it is not there now, and no other writer of it is on the
 * way. */
static int enter_root(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	unsigned refused = 0;
	uint64_t prev;
	int err;

	do
		err = clear_and_swap(me, c, until_ns, &prev);
	while (vb_lock_ask_again(me, err, &refused));
	if (err == -ETIMEDOUT || err == -ECANCELED) {
		VB_SOMETIMES(2000, "rma-rw: a deadline on the way to the root");
		wait_at(me, c, RW_UP);
	}
	if (err)
		return vb_lock_unknown_if_refused(err);
	if (prev == 0)
		return begin_row(me, c, until_ns);
	if (prev > rw_options_of(me)->groups)
		return vb_fail(-EPROTO, "lock %" PRIu64 ": there is no group %" PRIu64, c->lock,
			       prev - 1);
	err = write_word(me, rw_next(c, (uint32_t)prev - 1), &p->self);
	if (err)
		return err;
	wait_at(me, c, RW_ROOT);
	return await_root(me, c, until_ns);
}

/* We are first in our group's queue.  If there is only one group, that is the root's. */
static int go_up(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return has_root(me) ? enter_root(me, c, until_ns) : begin_row(me, c, until_ns);
}

static int await_group(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	struct rw_yours m;
	int err;

	if (p->stage == RW_TELL) {
		vb_phase(me, VB_PHASE_NP);
		if (vb_handover_tell(me, c, p->prev, RW_NEXT, &p->self, sizeof(p->self), &p->again,
				     until_ns) == -ETIMEDOUT)
			return -ETIMEDOUT;
		p->stage = RW_GROUP;
	}
	vb_phase(me, VB_PHASE_WP);
	err = vb_handover_hear(me, c, p->self, RW_YOURS, &m, sizeof(m), until_ns);
	if (err)
		return err;
	if (m.go_up)
		return go_up(me, c, until_ns);
	p->in_group = m.in_group;
	p->writers = m.writers;
	return writer_granted(c);
}

int rw_resume_by(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns, rw_turn_fn *turn)
{
	int err;

	switch ((enum rw_stage)vb_claim_as(struct rw_claim, c)->stage) {
	case RW_TELL:
	case RW_GROUP:
		return await_group(me, c, until_ns);
	case RW_UP:
		return go_up(me, c, until_ns);
	case RW_ROOT:
		return await_root(me, c, until_ns);
	case RW_DRAIN:
		err = rw_drain(me, c, until_ns);
		return err ? err : writer_granted(c);
	case RW_TURN_WAIT:
		break;
	}
	return rw_reader_resume(me, c, until_ns, turn);
}

static void begin_claim(struct vb_lock_client *me, struct vb_claim *c)
{
	*vb_claim_as(struct rw_claim, c) = (struct rw_claim){.self = vb_handover_word(me, false)};
}

int rw_acquire_by(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns,
		  rw_turn_fn *turn)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	int err;

	begin_claim(me, c);
	if (c->mode == VB_SHARED)
		return rw_reader_acquire(me, c, until_ns, turn);
	err = vb_lock_swap(me, rw_tail(c, rw_group_of(me)), p->self, until_ns, &p->prev);
	if (err)
		return err;
	if (p->prev == VB_HANDOVER_NOBODY)
		return go_up(me, c, until_ns);
	wait_at(me, c, RW_TELL);
	return await_group(me, c, until_ns);
}

/* ---- handing on ---- */

static uint64_t rw_patience(const struct vb_lock_client *me)
{
	return vb_ep_now(me->ep) + vb_lock_wait_least(me->space, rw_options_of(me)->successor_wait);
}

/* The claim behind ours in the group, which is there: its message is here or on its way. */
static int await_next(struct vb_lock_client *me, struct vb_claim *c)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	uint64_t until_ns = rw_patience(me);

	vb_phase(me, VB_PHASE_NS);
	if (p->next != VB_HANDOVER_NOBODY ||
	    vb_handover_hear(me, c, p->self, RW_NEXT, &p->next, sizeof(p->next), until_ns) == 0)
		return 0;
	return vb_fail(-VB_EUNKNOWN,
		       "lock %" PRIu64 " is lost: the client next in its queue has not shown "
		       "itself, it must have died",
		       c->lock);
}

static int yield_in_group(struct vb_lock_client *me, struct vb_claim *c, struct rw_yours m)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);

	vb_phase(me, VB_PHASE_NS);
	return vb_handover_tell(me, c, p->next, RW_YOURS, &m, sizeof(m), NULL, VB_FOREVER)
		       ? -VB_EUNKNOWN
		       : 0;
}

/* The claim that has entered the group behind ours at the root; there is one, or `sure` is
 * false. */
static int root_successor(struct vb_lock_client *me, struct vb_claim *c, bool sure, uint64_t *out)
{
	uint64_t until_ns = rw_patience(me);
	unsigned refused = 0;
	int err;

	for (;;) {
		err = vb_read64(me->ep, rw_next(c, rw_group_of(me)), out);
		if (err && err != -VB_EUNKNOWN && !vb_lock_ask_again(me, err, &refused))
			return vb_lock_unknown_if_refused(err);
		if (err == 0 && *out == VB_HANDOVER_NOBODY && !sure)
			return 0;
		if (err == 0 && vb_handover_is_whole(me, *out))
			return 0;
		vb_phase(me, VB_PHASE_NS);
		if (vb_poll_pause(me, until_ns) == -ETIMEDOUT)
			return vb_fail(-VB_EUNKNOWN,
				       "lock %" PRIu64 " is lost: the group next at its root has "
				       "not shown itself, its client must have died",
				       c->lock);
	}
}

/* Our group leaves the root's queue.  The readers' turn begins before another group has the root,
 * which then bars them anew. */
static int leave_root(struct vb_lock_client *me, struct vb_claim *c, bool readers_turn)
{
	const struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	struct rw_yours m = {.writers = p->writers + 1};
	uint64_t successor, seen;
	bool unsure = false;
	int err;

	if (!has_root(me))
		return rw_unbar(me, c);
	err = root_successor(me, c, false, &successor);
	if (err == 0 && (readers_turn || successor == VB_HANDOVER_NOBODY)) {
		m.go_up = 1;
		err = rw_unbar(me, c);
	}
	if (err == 0 && successor == VB_HANDOVER_NOBODY) {
		err = vb_lock_change_back(me, rw_root(c), rw_group_of(me) + 1, 0, &seen, &unsure);
		/* While we have the root nobody else takes our group's name away. */
		if (err || seen == rw_group_of(me) + 1 || (unsure && seen == 0))
			return err;
		VB_SOMETIMES(200, "rma-rw: a group enters the root while another leaves it");
		err = root_successor(me, c, true, &successor);
	}
	if (err)
		return err;
	vb_phase(me, VB_PHASE_NS);
	return vb_handover_tell(me, c, successor, RW_ROOT_YOURS, &m, sizeof(m), NULL, VB_FOREVER)
		       ? -VB_EUNKNOWN
		       : 0;
}

/* We leave our group's queue, which is not at the root any more. */
static int leave_group(struct vb_lock_client *me, struct vb_claim *c)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	bool unsure = false;
	uint64_t seen;
	int err;

	if (p->next == VB_HANDOVER_NOBODY) {
		err = vb_lock_change_back(me, rw_tail(c, rw_group_of(me)), p->self, 0, &seen,
					  &unsure);
		if (err || seen == p->self || (unsure && seen == 0))
			return err;
		err = await_next(me, c);
		if (err)
			return err;
	}
	return yield_in_group(me, c, (struct rw_yours){.go_up = 1});
}

static int writer_release(struct vb_lock_client *me, struct vb_claim *c)
{
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	const struct rw_options *o = rw_options_of(me);
	bool readers_turn = p->writers >= o->t_w;
	int err;

	if ((p->in_group < o->t_l || !has_root(me)) && !readers_turn &&
	    !VB_CHANCE(200, "rma-rw: does not look for its successor first") &&
	    vb_handover_heard(me, c, p->self, RW_NEXT, &p->next, sizeof(p->next)))
		return yield_in_group(
			me, c,
			(struct rw_yours){.in_group = p->in_group + 1, .writers = p->writers + 1});
	err = leave_root(me, c, readers_turn);
	return err ? err : leave_group(me, c);
}

int rw_release(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? rw_reader_release(me, c) : writer_release(me, c);
}

/* A writer lets the readers in before it knows whether it must wait for who is behind it. */
int rw_release_now(struct vb_lock_client *me, struct vb_claim *c)
{
	return c->mode == VB_SHARED ? rw_reader_release(me, c) : -EINPROGRESS;
}

/* ---- without waiting ---- */

/* 0 and *seen: the root's tail, which is ours if it was 0. */
static int try_root(struct vb_lock_client *me, struct vb_claim *c, uint64_t *seen)
{
	const uint64_t nobody = 0, ours = rw_group_of(me) + 1;
	bool unsure = false;
	int err = write_word(me, rw_next(c, rw_group_of(me)), &nobody);

	if (err)
		return err;
	/* While we have our group's queue nobody else enters it there. */
	err = vb_lock_change_back(me, rw_root(c), 0, ours, seen, &unsure);
	if (err == 0 && unsure && *seen == ours)
		*seen = 0;
	return err;
}

/* Only if there is no writer and no reader: looks at the words first, and takes them one by one. */
static int writer_try(struct vb_lock_client *me, struct vb_claim *c)
{
	const struct rw_options *o = rw_options_of(me);
	struct rw_claim *p = vb_claim_as(struct rw_claim, c);
	uint64_t words[RW_WORDS_MAX], seen;
	uint32_t group = rw_group_of(me);
	bool unsure = false;
	int err = rw_read_entry(me, c, words);

	if (err)
		return err;
	for (uint32_t i = 0; i < o->counters; i++) {
		uint64_t w = words[1 + 2 * o->groups + i];

		if (w & RW_BAR || rw_standing(w) != 0)
			return -EAGAIN;
	}
	if (rw_has_writers(o, words))
		return -EAGAIN;
	err = vb_lock_change(me, rw_tail(c, group), 0, p->self, &seen, &unsure);
	if (err == 0 && unsure && seen == p->self)
		seen = 0;
	/* Somebody may stand behind us already. */
	if (err == 0 && seen != 0)
		err = unsure ? -VB_EUNKNOWN : -EAGAIN;
	if (err)
		return err;
	if (has_root(me)) {
		err = try_root(me, c, &seen);
		if (err)
			return err;
	}
	if (seen != 0) {
		VB_SOMETIMES(200, "rma-rw: a try that has its group but not the root");
		err = leave_group(me, c);
		return err ? err : -EAGAIN;
	}
	err = rw_bar(me, c);
	if (err)
		return err;
	p->writers = 1;
	if (!p->draining)
		return writer_granted(c);
	/* A reader came in between. */
	VB_SOMETIMES(200, "rma-rw: a reader comes while a writer tries");
	err = leave_root(me, c, true);
	if (err == 0)
		err = leave_group(me, c);
	return err ? err : -EAGAIN;
}

int rw_try(struct vb_lock_client *me, struct vb_claim *c)
{
	bool shielded;
	int err;

	begin_claim(me, c);
	if (c->mode == VB_SHARED)
		return rw_reader_try(me, c);
	/* What it takes it must be able to give back. */
	shielded = vb_task_shield(true);
	err = writer_try(me, c);
	vb_task_shield(shielded);
	return err;
}

/* ---- the protocol ---- */

static int rw_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return rw_acquire_by(me, c, until_ns, rw_begin_turn);
}

static int rw_resume(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return rw_resume_by(me, c, until_ns, rw_begin_turn);
}

#define RW_T_W 16

static unsigned rw_bypass(unsigned clients, enum vb_mode mode)
{
	(void)clients;
	return mode == VB_SHARED ? RW_T_W : UINT_MAX;
}

static unsigned rw_bypass_of(const struct vb_lock_space *s, unsigned clients, enum vb_mode mode)
{
	const struct rw_options *o = s->options;

	(void)clients;
	return mode == VB_SHARED ? (unsigned)o->t_w : UINT_MAX;
}

const struct vb_lock_ops vb_lock_rma_rw = {
	.name = "rma-rw",
	.summary = "writers queue in groups of nodes, readers count at their group's counter",
	.source = "Schmid, Besta and Hoefler 2016; ShiftLock, table 1",
	RW_LOCK,
	.bypass_bound = rw_bypass,
	.bypass_bound_of = rw_bypass_of,
	.acquire = rw_acquire,
	.resume = rw_resume,
};
