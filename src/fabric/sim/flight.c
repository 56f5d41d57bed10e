/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Operations in flight, from the doorbell to the end: the wire, the queue of the target's NIC, busy
 * words, the effect, the answer.  The next event of each is a timer of the scheduler.
 */
#define VB_LOG_ROOM "sim"
#include "fabric/sim/inner.h"

#include <stdlib.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/log.h"

/* ---- its next event ---- */

static void on_event(struct vb_timer *timer);

void sim_at(struct sim *s, struct sim_op *op, enum sim_stage stage, uint64_t at_ns)
{
	op->stage = (uint8_t)stage;
	op->timer.fire = on_event;
	vb_timer_arm(s->sched, &op->timer, sim_max(at_ns, sim_now(s) + 1));
}

/* ---- the wire ----
 *
 * Without faults everything between two places takes the same time, so what an endpoint sends to a
 * node arrives in order by itself.  With faults a verb may be late, and then this part keeps what
 * the interface promises and nothing more: a READ or atomic arrives after the WRITEs and atomics
 * before it, WRITEs and SENDs arrive in order, and a WRITE overtakes an earlier READ or atomic
 * whenever that one is late, unless it is fenced.
 */

/* Torn WRITEs wait for each other.  Who would be late of that alone comes whole: only what loses verbs may
 * keep one from its time. */
static void end_in_time(struct sim_op *op, uint64_t arrive)
{
	if (arrive + op->tear_ns <= op->deadline_ns - op->ep->sim->p.verb_bound_ns / 16)
		return;
	op->pieces = 0;
	op->tear_ns = 0;
}

static void keep_order(struct sim_op *op, uint64_t *arrive)
{
	struct sim_flow *f = op->flow;

	if (sim_answers(op)) {
		uint64_t before = sim_max(f->last_write, f->last_atomic);

		*arrive = sim_max(*arrive, before + 1);
		end_in_time(op, *arrive);
		if (sim_atomic(op))
			f->last_atomic = *arrive;
	} else {
		*arrive = sim_max(*arrive, f->last_write + 1);
		end_in_time(op, *arrive);
		f->last_write = *arrive + op->tear_ns;
	}
}

/* How long a link works on something: its bytes, and a head for each packet. */
static uint64_t wire_ps(uint64_t byte_ps, uint64_t bytes)
{
	uint64_t packets =
		bytes > SIM_PACKET_BYTES ? (bytes + SIM_PACKET_BYTES - 1) / SIM_PACKET_BYTES : 1;

	return (bytes + packets * SIM_PACKET_HEAD) * byte_ps;
}

/*
 * When the last byte of something is through a link, in ns, that would be through at `alone_ns` if it
 * had the link for itself: not before the link has worked on it after all that came before.  So a
 * verb alone takes as long as without the link's effect; many take their wire time each.
 */
static uint64_t through_link(uint64_t *free_ps, uint64_t alone_ns, uint64_t work_ps)
{
	*free_ps = sim_max(*free_ps + work_ps, alone_ns * 1000);
	return (*free_ps + 999) / 1000;
}

/* What a verb carries to its target. */
static uint64_t request_bytes(const struct sim_op *op)
{
	if (op->t.op == VB_OP_SEND)
		return SIM_SEND_BYTES;
	return op->t.op == VB_OP_READ ? 0 : op->t.len;
}

/* What its answer carries: nothing where that is but an acknowledgement. */
static uint64_t answer_bytes(const struct sim_op *op)
{
	if (op->t.op == VB_OP_READ)
		return op->t.len;
	return op->t.op == VB_OP_MCAS128 || op->t.op == VB_OP_MFAA128 ? 16 : 8;
}

/* Whoever chooses will say when it arrives; false: nobody chooses, or it never does. */
static bool take_off(struct sim *s, struct sim_op *op)
{
	struct sim_air *air = &s->air;

	if (air->chooser == NULL || (op->fate & SIM_NEVER) || air->n == SIM_AIR_MAX)
		return false;
	op->number = op->ep->posted++;
	air->op[air->n++] = op;
	if (!vb_timer_armed(&air->tick))
		vb_timer_arm(s->sched, &air->tick, sim_now(s) + air->chooser->step_ns);
	return true;
}

/* A client's connection for messages leads to one other client at a time. */
static uint64_t connect_first(struct sim *s, struct sim_op *op)
{
	if (!sim_message(op) || op->ep->connected == op->t.peer ||
	    !sim_between_clients(op->ep, op->t.peer))
		return 0;
	op->ep->connected = op->t.peer;
	return s->p.connect_ns;
}

/* When what the client's NIC is told at `bell` has left it. */
static uint64_t out_of_nic(struct sim *s, struct sim_op *op, uint64_t bell)
{
	struct sim_nic *nic = &s->nics[op->src];
	uint64_t at, lines = 0;

	if (op->t.op != VB_OP_READ)
		lines = sim_lines_ns(s, op->t.len);
	at = sim_max(bell, nic->out_free_ns) + s->p.outbound_ns + lines;
	nic->out_free_ns = at;
	/* The link counts from the doorbell: what waits for its turn in the NIC keeps no answer from it. */
	if (vb_unlikely(s->p.answer_byte_ps != 0))
		at = sim_max(at, through_link(&nic->out_link_ps, bell + lines,
					      wire_ps(s->p.answer_byte_ps, request_bytes(op))));
	if (vb_unlikely(s->p.connect_ns != 0))
		at += connect_first(s, op);
	return at;
}

/* When it arrives.  gone: when it has left its client. */
static uint64_t under_way(struct sim *s, struct sim_op *op, uint64_t bell, uint64_t *gone)
{
	uint64_t arrive;

	*gone = bell;
	if (vb_unlikely(sim_at_home(s, op)))
		return bell + s->own_ns + (s->faulty ? op->delay_ns : 0);
	*gone = out_of_nic(s, op, bell);
	arrive = *gone + s->p.one_way_ns;
	if (vb_unlikely(s->faulty))
		arrive = sim_fault_wire(s, op->src, op->dst, *gone) + op->delay_ns;
	if (vb_unlikely(s->delay_ns != 0) && op->src != op->dst)
		arrive += s->delay_ns;
	return arrive;
}

static void submit(struct sim *s, struct sim_op *op, uint64_t at)
{
	uint64_t gone, arrive = under_way(s, op, at, &gone);

	op->flow->in_flight++;
	op->flow->answers += sim_answers(op);
	if (vb_unlikely(op->fate & SIM_EARLY)) {
		arrive = sim_max(arrive, sim_max(op->flow->last_write, op->flow->last_atomic) + 1);
		if (op->fate & SIM_BEHIND)
			arrive = sim_max(arrive, op->flow->last_early + 1);
		end_in_time(op, arrive);
		op->flow->last_early = arrive + op->tear_ns;
	} else {
		keep_order(op, &arrive);
	}
	if (vb_unlikely(arrive + op->tear_ns > op->deadline_ns)) {
		op->fate |= SIM_NEVER;
		arrive = sim_min(arrive, op->deadline_ns);
	}
	if (vb_unlikely(op->fate & SIM_EARLY)) {
		op->arrive_ns = arrive;
		sim_at(s, op, SIM_EARLY_END, gone + s->p.poll_ns);
		return;
	}
	if (sim_atomic(op))
		__builtin_prefetch(
			s->memory + op->dst * s->base.node_bytes + vb_addr_offset(op->t.addr), 1);
	if (vb_unlikely(s->faulty) && take_off(s, op))
		return;
	sim_at(s, op, SIM_ARRIVE, arrive);
}

/* A fence waits for all answers; so do READs and atomics for one of those that are under way where there
 * may be no more; behind a lost verb the connection has to be made anew first; and nobody passes one who
 * waits. */
static bool must_wait(const struct sim *s, const struct sim_flow *f, const struct sim_op *op)
{
	if (vb_unlikely(s->p.answers_max != 0) && f->answers >= s->p.answers_max && sim_answers(op))
		return true;
	return f->broken || ((op->verb_flags & VB_FENCE) != 0 && f->answers > 0);
}

void sim_doorbell(struct sim *s, struct sim_op *op, uint64_t at_ns)
{
	struct sim_flow *f = op->flow;

	if (vb_likely(f->held == NULL && !must_wait(s, f, op))) {
		submit(s, op, at_ns);
		return;
	}
	op->bell_ns = at_ns;
	op->next = NULL;
	if (f->held == NULL)
		f->held = op;
	else
		f->held_last->next = op;
	f->held_last = op;
}

/* It has taken effect, or will not: the end that is still to come changes nothing for anybody. */
static void has_landed(struct sim_op *op)
{
	if (vb_likely(!(op->fate & SIM_ADRIFT)))
		return;
	op->fate &= (uint8_t)~SIM_ADRIFT;
	op->ep->adrift--;
}

/*
 * A held verb goes out at last, if half of its time is left.  If not it fails for itself and
 * leaves the connection whole: else two tasks of one client would break it for each other for ever.
 */
static void resubmit(struct sim *s, struct sim_op *op)
{
	uint64_t at = sim_max(sim_now(s), op->bell_ns);

	if (at + s->p.verb_bound_ns / 2 <= op->deadline_ns) {
		submit(s, op, at);
		return;
	}
	op->flow->in_flight++;
	op->flow->answers += sim_answers(op);
	has_landed(op);
	op->t.status = -VB_EUNKNOWN;
	sim_at(s, op, SIM_COMPLETE, at + s->p.poll_ns);
}

/* The operation is over, whatever became of it. */
static void finish(struct sim *s, struct sim_op *op)
{
	struct sim_ep *ep = op->ep;
	struct sim_flow *f = op->flow;

	if (f != NULL) {
		f->in_flight--;
		f->answers -= sim_answers(op);
		if (f->in_flight == 0)
			f->broken = false;
		while (vb_unlikely(f->held != NULL) && !must_wait(s, f, f->held)) {
			struct sim_op *next = f->held;

			f->held = next->next;
			resubmit(s, next);
		}
	}
	sim_op_put(s, op);
	if (vb_unlikely(ep->closed && ep->ops == 0))
		sim_ep_free(ep);
}

/* ---- what the hash covers ---- */

/* Nothing that goes into the hash may depend on a pointer.  The plain 64-bit atomics, most of all
 * verbs, have few arguments. */
static void trace(struct sim *s, const struct sim_op *op)
{
	const struct sim_args *t = &op->t;
	uint64_t r[16];
	size_t n = 0;

	r[n++] = t->time;
	r[n++] = t->self;
	r[n++] = t->addr;
	r[n++] = (uint64_t)t->status << 32 | t->len << 4 | t->op;
	r[n++] = t->old.lo;
	r[n++] = t->compare.lo;
	r[n++] = t->swap.lo;
	if (t->op != VB_OP_FAA64 && t->op != VB_OP_CAS64) {
		r[n++] = t->peer;
		r[n++] = t->data_hash;
		r[n++] = t->compare.hi;
		r[n++] = t->compare_mask.lo;
		r[n++] = t->compare_mask.hi;
		r[n++] = t->swap.hi;
		r[n++] = t->swap_mask.lo;
		r[n++] = t->swap_mask.hi;
		r[n++] = t->old.hi;
	}
	s->trace_hash = XXH64(r, n * sizeof(r[0]), s->trace_hash);
}

static char *op_data(struct sim_op *op)
{
	if (vb_unlikely(op->big != NULL))
		return op->big;
	return op->t.op == VB_OP_WRITE_NOTIFY ? op->note : op->u.data;
}

static void *op_memory(const struct sim *s, const struct sim_op *op)
{
	return s->memory + op->dst * s->base.node_bytes + vb_addr_offset(op->t.addr);
}

/* ---- busy words ---- */

/*
 * When an access that the NIC takes up at `at` is through.  An atomic waits for its bucket, also
 * when another word made it busy (a false conflict); a READ or WRITE waits only for its own words.
 */
static uint64_t through_atomic(struct sim *s, struct sim_nic *nic, const struct sim_op *op,
			       uint64_t at)
{
	uint64_t word = vb_addr_offset(op->t.addr) / 8;
	struct sim_bucket *b = &nic->buckets[word % SIM_BUCKETS];
	bool wide = op->t.op == VB_OP_MCAS128 || op->t.op == VB_OP_MFAA128;
	bool has_unit = s->p.atomics_unit_ns != 0 || s->p.in_order;
	uint64_t busy = wide ? s->p.word128_busy_ns : s->p.word64_busy_ns, start;

	if (vb_unlikely(s->p.word_ns != 0))
		busy = s->p.word_ns;
	if (vb_unlikely(has_unit))
		at = sim_max(at, nic->unit_free_ns);
	start = sim_max(at, b[0].free_ns);
	if (wide)
		start = sim_max(start, b[1].free_ns);
	/* The unit takes atomics up in turn.  Who waits for a busy word lets those behind him pass, or,
	 * in order, keeps the unit until he has it. */
	if (vb_unlikely(has_unit))
		nic->unit_free_ns = (s->p.in_order ? start : at) + s->p.atomics_unit_ns;
	b[0] = (struct sim_bucket){.free_ns = start + busy, .word = word};
	if (!wide)
		return start + s->p.atomic64_ns;
	b[1] = (struct sim_bucket){.free_ns = b[0].free_ns, .word = word + 1};
	return start + s->p.atomic128_ns;
}

static uint64_t through_plain(struct sim *s, const struct sim_nic *nic, const struct sim_op *op,
			      uint64_t at)
{
	uint64_t first = vb_addr_offset(op->t.addr) / 8;
	uint64_t last = (vb_addr_offset(op->t.addr) + op->t.len - 1) / 8;
	uint64_t start = at;

	for (uint64_t w = first; w <= last; w++) {
		const struct sim_bucket *b = &nic->buckets[w % SIM_BUCKETS];

		if (b->word == w)
			start = sim_max(start, b->free_ns);
	}
	return start + (op->t.op == VB_OP_READ ? s->p.read_ns : s->p.write_ns);
}

static uint64_t through(struct sim *s, struct sim_op *op, uint64_t now)
{
	struct sim_nic *nic = &s->nics[op->dst];
	uint64_t at;

	if (vb_unlikely(sim_at_home(s, op)))
		return now;
	if (vb_unlikely(s->p.port_byte_ps != 0))
		now = through_link(&nic->in_link_ps, now,
				   wire_ps(s->p.port_byte_ps, request_bytes(op)));
	at = sim_max(now, nic->in_free_ns) + op->stall_ns + s->p.inbound_ns;
	nic->in_free_ns = at;
	if (sim_atomic(op))
		return through_atomic(s, nic, op, at);
	if (op->t.op == VB_OP_SEND)
		return at + s->p.write_ns;
	return through_plain(s, nic, op, at);
}

/* ---- effects ---- */

static void effect64(struct sim_op *op, uint64_t *word)
{
	const struct sim_args *t = &op->t;
	uint64_t old = *word;

	op->t.old.lo = old;
	switch (t->op) {
	case VB_OP_CAS64:
		if (old == t->compare.lo)
			*word = t->swap.lo;
		break;
	case VB_OP_FAA64:
		*word = old + t->compare.lo;
		break;
	case VB_OP_MCAS64:
		if (((old ^ t->compare.lo) & t->compare_mask.lo) == 0)
			*word = vb_mask_apply64(old, t->swap.lo, t->swap_mask.lo);
		break;
	default:
		*word = vb_field_add64(old, t->compare.lo, t->compare_mask.lo);
	}
}

static void effect128(struct sim_op *op, struct vb_u128 *word)
{
	const struct sim_args *t = &op->t;
	struct vb_u128 old = *word;

	op->t.old = old;
	if (t->op == VB_OP_MFAA128) {
		*word = vb_field_add128(old, t->compare, t->compare_mask);
	} else if (((old.lo ^ t->compare.lo) & t->compare_mask.lo) == 0 &&
		   ((old.hi ^ t->compare.hi) & t->compare_mask.hi) == 0) {
		word->lo = vb_mask_apply64(old.lo, t->swap.lo, t->swap_mask.lo);
		word->hi = vb_mask_apply64(old.hi, t->swap.hi, t->swap_mask.hi);
	}
}

static void effect_bytes(struct sim *s, struct sim_op *op, uint32_t from, uint32_t to)
{
	char *memory = (char *)op_memory(s, op) + from, *data = op_data(op) + from;

	if (op->t.op == VB_OP_READ)
		memcpy(data, memory, to - from);
	else
		memcpy(memory, data, to - from);
	op->t.data_hash = XXH64(data, to - from, from);
}

static void effect(struct sim *s, struct sim_op *op)
{
	s->verbs++;
	op->t.time = op->done_ns;
	switch (op->t.op) {
	case VB_OP_READ:
	case VB_OP_WRITE:
	case VB_OP_WRITE_NOTIFY:
		effect_bytes(s, op, 0, op->t.len);
		break;
	case VB_OP_MCAS128:
	case VB_OP_MFAA128:
		effect128(op, op_memory(s, op));
		break;
	default:
		effect64(op, op_memory(s, op));
	}
	trace(s, op);
}

/* ---- the way back ---- */

/* The last byte of the answer leaves the target at a time. */
static void answer_at(struct sim *s, struct sim_op *op, uint64_t at)
{
	bool home = sim_at_home(s, op);
	uint64_t way = home ? 0 : s->p.one_way_ns, back = at + way;

	if (vb_unlikely(s->faulty)) {
		uint64_t last = op->deadline_ns + way;

		if (!home)
			back = sim_max(back, sim_fault_wire(s, op->dst, op->src, at));
		if ((op->fate & SIM_LOSE) || back > sim_max(last, at + way)) {
			op->t.status = -VB_EUNKNOWN;
			back = last;
		}
	}
	if (vb_unlikely(s->p.port_byte_ps != 0) && !home && sim_answers(op) && op->t.status == 0)
		sim_at(s, op, SIM_RETURN, back);
	else
		sim_at(s, op, SIM_COMPLETE, back + s->p.poll_ns);
}

static void answer(struct sim *s, struct sim_op *op)
{
	uint64_t at = op->done_ns;

	if (op->batch == NULL && !sim_answers(op)) {
		finish(s, op);
		return;
	}
	if (vb_unlikely(s->p.answer_byte_ps != 0) && sim_answers(op) && !sim_at_home(s, op)) {
		sim_at(s, op, SIM_LEAVE, at);
		return;
	}
	if (op->t.op == VB_OP_READ)
		at += sim_lines_ns(s, op->t.len);
	answer_at(s, op, at);
}

static void leave(struct sim *s, struct sim_op *op)
{
	uint64_t alone = op->done_ns;

	if (op->t.op == VB_OP_READ)
		alone += sim_lines_ns(s, op->t.len);
	answer_at(s, op,
		  through_link(&s->nics[op->dst].out_link_ps, alone,
			       wire_ps(s->p.answer_byte_ps, answer_bytes(op))));
}

static void come_back(struct sim *s, struct sim_op *op)
{
	uint64_t at = through_link(&s->nics[op->src].in_link_ps, sim_now(s),
				   wire_ps(s->p.port_byte_ps, answer_bytes(op)));

	sim_at(s, op, SIM_COMPLETE, at + s->p.poll_ns);
}

/* Fails without effect at a time; what is behind it on its connection fails too. */
static void break_off(struct sim *s, struct sim_op *op, uint64_t at_ns)
{
	if (s->faults.lose_ops == 0 || !(op->fate & SIM_NEVER))
		op->flow->broken = true;
	has_landed(op);
	op->t.status = -VB_EUNKNOWN;
	op->t.time = at_ns;
	trace(s, op);
	sim_at(s, op, SIM_COMPLETE, at_ns + s->p.poll_ns);
}

/* Whoever waits is told that the outcome is unknown; the verb goes on alone. */
static void give_up(struct sim *s, struct sim_op *op)
{
	struct vb_batch *batch = op->batch;

	if (op->t.op != VB_OP_READ && op->t.op != VB_OP_SEND) {
		op->fate |= SIM_ADRIFT;
		op->ep->adrift++;
	}
	/* Who posted it may be dead by now. */
	if (batch != NULL) {
		op->verb->status = -VB_EUNKNOWN;
		op->verb = NULL;
		op->batch = NULL;
		if (--batch->pending == 0 && batch->waiter != NULL)
			vb_task_wake(batch->waiter);
	}
	sim_at(s, op, SIM_ARRIVE, op->arrive_ns);
}

/* The first eight bytes that the verb has met; of a wide word the last for its upper half. */
static const uint64_t *word_of(const struct sim *s, const struct sim_op *op)
{
	bool wide = op->t.op == VB_OP_MCAS128 || op->t.op == VB_OP_MFAA128 || op->t.len == 16;
	const uint64_t *memory = op_memory(s, op);

	return wide && !(op->around_mask & 1) ? memory + 1 : memory;
}

static void note_word(const struct sim *s, struct sim_op *op)
{
	if (sim_message(op) || (op->t.addr & 7) != 0 || (!sim_atomic(op) && op->t.len < 8))
		op->around_mask = 0;
	else
		op->left = *word_of(s, op);
}

static void complete(struct sim *s, struct sim_op *op)
{
	struct vb_batch *batch = op->batch;
	struct vb_verb *v = op->verb;

	if (batch != NULL) {
		v->status = (int32_t)op->t.status;
		if (v->status == 0) {
			v->old = op->t.old;
			if (op->t.op == VB_OP_READ)
				memcpy(v->buf, op_data(op), op->t.len);
		}
		if (vb_unlikely(op->pause_ns != 0))
			op->ep->paused_until_ns =
				sim_max(op->ep->paused_until_ns, sim_now(s) + op->pause_ns);
		if (vb_unlikely(op->around_mask != 0) && v->status == 0)
			sim_fault_around(op->ep, word_of(s, op), op->left, op->around_mask);
		if (--batch->pending == 0 && batch->waiter != NULL)
			vb_task_wake(batch->waiter);
	}
	finish(s, op);
}

/* Who shares a core with others sees what has come when the core does. */
static bool waits_for_core(struct sim *s, struct sim_op *op)
{
	uint64_t at;

	if (op->batch == NULL)
		return false;
	at = sim_core_turn(op->ep, op->batch->pending == 1);
	if (at <= sim_now(s))
		return false;
	sim_at(s, op, SIM_RESUME, at);
	return true;
}

/* ---- events ---- */

static void hand_out(struct sim *s, struct sim_op *op)
{
	struct sim_ep *to = sim_find_peer(s, op->t.peer);

	op->t.time = sim_now(s);
	op->t.data_hash = XXH64(&op->u.msg, sizeof(op->u.msg), 0);
	/* A receiver that never makes room is as good as gone: the sender's retries run out. */
	if (to == NULL || !sim_inbox_put(to, &op->u.msg))
		op->t.status = -VB_EPEERGONE;
	trace(s, op);
}

/* The card has it and acknowledges it; its receiver has it later, as an operation of its own.  False:
 * it is not such a message. */
static bool is_heard_later(struct sim *s, const struct sim_op *op)
{
	struct sim_op *m;

	if (!sim_between_clients(op->ep, op->t.peer))
		return false;
	m = sim_op_get(s, op->ep);
	if (m == NULL)
		return false;
	m->t = op->t;
	m->u.msg = op->u.msg;
	m->flow = NULL;
	m->src = op->src;
	m->dst = op->dst;
	m->fate = 0;
	sim_at(s, m, SIM_HEAR, sim_now(s) + s->p.hear_ns);
	return true;
}

static void hear(struct sim *s, struct sim_op *op)
{
	if (vb_likely(!(op->fate & SIM_NEVER)))
		hand_out(s, op);
	finish(s, op);
}

static void deliver(struct sim *s, struct sim_op *op)
{
	if (vb_likely(s->p.hear_ns == 0) || !is_heard_later(s, op))
		hand_out(s, op);
	answer(s, op);
}

static inline void take_effect(struct sim *s, struct sim_op *op)
{
	if (op->t.op != VB_OP_SEND)
		effect(s, op);
	else
		s->verbs++;
	if (vb_unlikely(op->around_mask != 0))
		note_word(s, op);
}

void sim_land_now(struct sim *s, struct sim_op *op, struct vb_verb *v)
{
	op->done_ns = sim_now(s);
	take_effect(s, op);
	if (sim_message(op))
		hand_out(s, op);
	v->status = (int32_t)op->t.status;
	v->old = op->t.old;
	if (op->t.op == VB_OP_READ)
		memcpy(v->buf, op_data(op), op->t.len);
	if (vb_unlikely(op->around_mask != 0) && v->status == 0)
		sim_fault_around(op->ep, word_of(s, op), op->left, op->around_mask);
	sim_op_put(s, op);
}

static void after_effect(struct sim *s, struct sim_op *op)
{
	has_landed(op);
	if (sim_message(op))
		sim_at(s, op, SIM_DELIVER, op->done_ns + s->p.poll_ns);
	else
		answer(s, op);
}

/* One piece of a torn access; the others follow, with time for everybody else in between. */
static void piece(struct sim *s, struct sim_op *op)
{
	unsigned i = op->fate & SIM_DOWNWARDS ? op->pieces - 1u - op->piece : op->piece;

	if (vb_unlikely(op->fate & SIM_NEVER)) {
		break_off(s, op, sim_now(s));
		return;
	}
	op->t.time = sim_now(s);
	effect_bytes(s, op, op->cut[i], op->cut[i + 1]);
	trace(s, op);
	op->piece++;
	if (op->piece < op->pieces) {
		sim_at(s, op, SIM_PIECE, sim_now(s) + op->piece_ns);
		return;
	}
	s->verbs++;
	op->done_ns = sim_max(op->done_ns, sim_now(s));
	after_effect(s, op);
}

/* Of memory nothing is promised (vb_sim_as_memory). */
static void count_late(struct sim *s, const struct sim_op *op)
{
	uint64_t said = s->base.caps.verb_bound_ns, early = s->p.verb_bound_ns - said;

	s->late_verbs += said != 0 && op->t.op != VB_OP_READ &&
			 op->done_ns + op->tear_ns + early > op->deadline_ns;
}

void sim_arrive(struct sim *s, struct sim_op *op)
{
	if (vb_unlikely((op->fate & SIM_NEVER) || op->flow->broken)) {
		break_off(s, op, op->deadline_ns);
		return;
	}
	op->done_ns = through(s, op, sim_now(s));
	if (vb_unlikely(op->done_ns + op->tear_ns > op->deadline_ns)) {
		break_off(s, op, op->deadline_ns);
		return;
	}
	if (vb_unlikely(s->base.caps.verb_bound_ns < s->p.verb_bound_ns))
		count_late(s, op);
	if (vb_unlikely(op->pieces > 1)) {
		op->around_mask = 0;
		piece(s, op);
		return;
	}
	take_effect(s, op);
	after_effect(s, op);
}

static void on_event(struct vb_timer *timer)
{
	struct sim_op *op = vb_container_of(timer, struct sim_op, timer);
	struct sim *s = op->ep->sim;

	switch ((enum sim_stage)op->stage) {
	case SIM_DOORBELL:
		sim_doorbell(s, op, sim_now(s));
		break;
	case SIM_EARLY_END:
		give_up(s, op);
		break;
	case SIM_ARRIVE:
		sim_arrive(s, op);
		break;
	case SIM_PIECE:
		piece(s, op);
		break;
	case SIM_DELIVER:
		deliver(s, op);
		break;
	case SIM_LEAVE:
		leave(s, op);
		break;
	case SIM_RETURN:
		come_back(s, op);
		break;
	case SIM_HEAR:
		hear(s, op);
		break;
	case SIM_COMPLETE:
		if (vb_likely(s->cores == 0) || !waits_for_core(s, op))
			complete(s, op);
		break;
	case SIM_RESUME:
		complete(s, op);
		break;
	}
}
