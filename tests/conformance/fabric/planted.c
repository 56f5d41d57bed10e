/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The suite on fabrics that are broken on purpose: each bug must be caught by the check that is
 * there for it.  A bug is a hook on shm that does one thing wrong.
 */
#include "fabric/hook/common.h"

#define SUITE_PLANTED
#include "fabric_suite.h"

static int lower_post(struct vb_ep *ep, struct vb_verb *v)
{
	struct vb_batch one = {.verbs = v, .n = 1};

	return ep->lower->ops->post(ep->lower, &one);
}

/* Runs a batch verb by verb, each through `twist`. */
static int post_each(struct vb_ep *ep, struct vb_batch *batch,
		     void (*twist)(struct vb_ep *ep, struct vb_verb *v))
{
	for (unsigned i = 0; i < batch->n; i++)
		twist(ep, &batch->verbs[i]);
	return 0;
}

/* ---- the bugs ---- */

static void twist_carry(struct vb_ep *ep, struct vb_verb *v)
{
	struct vb_u128 bounds = v->compare_mask;

	if (v->op == VB_OP_MFAA64 || v->op == VB_OP_MFAA128)
		v->compare_mask.lo &= v->compare_mask.lo - 1; /* forgets the lowest boundary */
	lower_post(ep, v);
	v->compare_mask = bounds;
}

static void twist_mask(struct vb_ep *ep, struct vb_verb *v)
{
	struct vb_u128 mask = v->compare_mask;

	if (v->op == VB_OP_MCAS64)
		v->compare_mask.lo = UINT64_MAX; /* compares the whole word */
	lower_post(ep, v);
	v->compare_mask = mask;
}

static void twist_half(struct vb_ep *ep, struct vb_verb *v)
{
	struct vb_u128 mask = v->swap_mask;

	if (v->op == VB_OP_MCAS128)
		v->swap_mask.hi = UINT64_MAX; /* swaps the upper half whole */
	lower_post(ep, v);
	v->swap_mask = mask;
}

static void twist_round(struct vb_ep *ep, struct vb_verb *v)
{
	vb_addr addr = v->addr;

	if (v->op == VB_OP_FAA64)
		v->addr &= ~7ull; /* rounds a bad address instead of refusing it */
	lower_post(ep, v);
	v->addr = addr;
}

static void twist_early(struct vb_ep *ep, struct vb_verb *v)
{
	uint64_t until = v->not_after_ns;

	v->not_after_ns = 0; /* posts however late */
	lower_post(ep, v);
	v->not_after_ns = until;
}

/* Fetch-and-add as a READ and a WRITE with another task in between. */
static void twist_two_steps(struct vb_ep *ep, struct vb_verb *v)
{
	uint64_t word = 0;

	if (v->op != VB_OP_FAA64) {
		lower_post(ep, v);
		return;
	}
	v->status = vb_read(ep->lower, v->addr, &word, sizeof(word));
	v->old.lo = word;
	if (v->status != 0)
		return;
	word += v->compare.lo;
	vb_task_yield();
	v->status = vb_write(ep->lower, v->addr, &word, sizeof(word));
}

/* 16 bytes in two halves with another task in between. */
static void twist_torn(struct vb_ep *ep, struct vb_verb *v)
{
	struct vb_verb half = *v;

	if (v->op != VB_OP_WRITE || v->len != 16) {
		lower_post(ep, v);
		return;
	}
	half.len = 8;
	lower_post(ep, &half);
	vb_task_yield();
	half.addr += 8;
	half.buf = (uint8_t *)v->buf + 8;
	lower_post(ep, &half);
	v->status = half.status;
}

static void twist_lost(struct vb_ep *ep, struct vb_verb *v)
{
	v->status = 0;
	if (v->op == VB_OP_SEND && v->msg->imm == 50)
		return; /* one message never leaves */
	lower_post(ep, v);
}

/* The message comes before what it tells of. */
static void twist_notify(struct vb_ep *ep, struct vb_verb *v)
{
	if (v->op == VB_OP_WRITE_NOTIFY)
		v->op = VB_OP_SEND;
	lower_post(ep, v);
}

/* A WRITE that others see only when its client comes with something else than a READ: a store buffer.
 * The client itself reads what it wrote. */
static _Thread_local struct {
	struct vb_ep *ep; /* NULL: there is none */
	struct vb_verb v;
	uint8_t bytes[VB_INLINE_MAX];
} late;

static void write_late(void)
{
	if (late.ep != NULL)
		lower_post(late.ep, &late.v);
	late.ep = NULL;
}

static void twist_late(struct vb_ep *ep, struct vb_verb *v)
{
	const bool own = v->op != VB_OP_READ || v->addr - late.v.addr < sizeof(late.bytes) ||
			 late.v.addr - v->addr < v->len;

	if (late.ep != ep || own)
		write_late();
	if (v->op != VB_OP_WRITE || v->len > sizeof(late.bytes)) {
		lower_post(ep, v);
		return;
	}
	late.ep = ep;
	late.v = *v;
	late.v.buf = memcpy(late.bytes, v->buf, v->len);
	v->status = 0;
}

/* A masked CAS as a READ and a CAS that may lose to another field's change, and does not look. */
static void twist_loses(struct vb_ep *ep, struct vb_verb *v)
{
	uint64_t word = 0, found;

	if (v->op != VB_OP_MCAS64) {
		lower_post(ep, v);
		return;
	}
	v->status = vb_read64(ep->lower, v->addr, &word);
	v->old.lo = word;
	if (v->status != 0 || ((word ^ v->compare.lo) & v->compare_mask.lo) != 0)
		return;
	sched_yield();
	v->status = vb_cas64(ep->lower, v->addr, word,
			     vb_mask_apply64(word, v->swap.lo, v->swap_mask.lo), &found);
}

/* A READ that overtakes the WRITEs before it: reads first, then the rest. */
static int post_reads_first(struct vb_ep *ep, struct vb_batch *batch)
{
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < batch->n; i++) {
			if ((batch->verbs[i].op == VB_OP_READ) == (pass == 0))
				lower_post(ep, &batch->verbs[i]);
		}
	}
	return 0;
}

/* WRITEs first, fence or not. */
static int post_writes_first(struct vb_ep *ep, struct vb_batch *batch)
{
	for (unsigned pass = 0; pass < 2; pass++) {
		for (unsigned i = 0; i < batch->n; i++) {
			if ((batch->verbs[i].op == VB_OP_WRITE) == (pass == 0))
				lower_post(ep, &batch->verbs[i]);
		}
	}
	return 0;
}

static int post_backwards(struct vb_ep *ep, struct vb_batch *batch)
{
	for (unsigned i = batch->n; i-- > 0;)
		lower_post(ep, &batch->verbs[i]);
	return 0;
}

/* The first error ends the batch, and nobody hears of the rest. */
static int post_gives_up(struct vb_ep *ep, struct vb_batch *batch)
{
	int err = 0;

	for (unsigned i = 0; i < batch->n; i++) {
		batch->verbs[i].status = 0;
		if (err == 0)
			lower_post(ep, &batch->verbs[i]);
		err = err != 0 ? err : batch->verbs[i].status;
	}
	return 0;
}

#define TWISTED(name)                                                                              \
	static int post_##name(struct vb_ep *ep, struct vb_batch *batch)                           \
	{                                                                                          \
		return post_each(ep, batch, twist_##name);                                         \
	}
TWISTED(carry)
TWISTED(mask)
TWISTED(half)
TWISTED(round)
TWISTED(early)
TWISTED(two_steps)
TWISTED(torn)
TWISTED(lost)
TWISTED(notify)
TWISTED(late)
TWISTED(loses)

/* Messages come out in pairs the wrong way round. */
static struct vb_msg kept;
static bool have_kept;

static int recv_swapped(struct vb_ep *ep, struct vb_msg *out)
{
	if (have_kept) {
		*out = kept;
		have_kept = false;
		return 0;
	}
	if (vb_ep_recv(ep->lower, &kept) != 0)
		return -EAGAIN;
	if (vb_ep_recv(ep->lower, out) == 0)
		have_kept = true;
	else
		*out = kept;
	return 0;
}

static bool everybody_lives(struct vb_fabric *f, vb_peer peer)
{
	(void)f;
	(void)peer;
	return true;
}

/* ---- the demand ---- */

struct planted {
	const char *bug, *check; /* check: who must catch it */
	int (*post)(struct vb_ep *ep, struct vb_batch *batch);
	int (*recv)(struct vb_ep *ep, struct vb_msg *out);
	bool (*peer_alive)(struct vb_fabric *f, vb_peer peer);
};

static const struct planted bugs[] = {
	{"carries across a field", "masked-faa-64", post_carry, NULL, NULL},
	{"carries across a field of a pair", "masked-faa-128", post_carry, NULL, NULL},
	{"ignores the compare mask", "masked-cas-64", post_mask, NULL, NULL},
	{"ignores half of the swap mask", "masked-cas-128", post_half, NULL, NULL},
	{"rounds addresses", "alignment", post_round, NULL, NULL},
	{"posts however late", "not-after", post_early, NULL, NULL},
	{"adds in two steps", "atomicity", post_two_steps, NULL, NULL},
	{"tears a pair", "whole-pairs", post_torn, NULL, NULL},
	{"reads before earlier writes", "write-then-read", post_reads_first, NULL, NULL},
	{"ignores fences", "fence", post_writes_first, NULL, NULL},
	{"writes backwards", "write-order", post_backwards, NULL, NULL},
	{"gives up after an error", "batches", post_gives_up, NULL, NULL},
	{"writes late for others", "one-sees-the-other", post_late, NULL, NULL},
	{"loses a race for a field", "neighbours", post_loses, NULL, NULL},
	{"loses a message", "send-order", post_lost, NULL, NULL},
	{"tells of a write that did not come", "notify", post_notify, NULL, NULL},
	{"swaps messages", "send-order", NULL, recv_swapped, NULL},
	{"takes the dead for alive", "closed-peer", NULL, NULL, everybody_lives},
};
#define BUGS VB_ARRAY_SIZE(bugs)

static struct vb_fabric_ops broken_ops;

static int pass_post(struct vb_ep *ep, struct vb_batch *batch)
{
	return ep->lower->ops->post(ep->lower, batch);
}

static int open_broken(struct vb_fabric_params *p, struct vb_fabric **out)
{
	struct vb_fabric *lower;
	int err;

	p->fabric = "shm";
	err = vb_fabric_open(p, &lower);
	return err != 0 ? err : vb_hook_make(lower, &broken_ops, sizeof(struct vb_fabric), out);
}

static suite_check find_check(const char *name)
{
	for (unsigned i = 0; i < SUITE_CASES; i++) {
		if (strcmp(suite_cases[i].name, name) == 0)
			return suite_cases[i].check;
	}
	return NULL;
}

static void test_bug(void **state)
{
	const struct planted *b = *state;
	suite_check check = find_check(b->check);
	const char *why;

	assert_non_null(check);
	have_kept = false;
	late.ep = NULL;
	suite_wait_ns = 1000000000ull;
	broken_ops.post = b->post != NULL ? b->post : pass_post;
	broken_ops.recv = b->recv != NULL ? b->recv : vb_hook_recv;
	broken_ops.peer_alive = b->peer_alive != NULL ? b->peer_alive : vb_hook_peer_alive;
	why = suite_run(open_broken, check);
	if (why == NULL)
		fail_msg("a fabric that %s passes the check %s", b->bug, b->check);
	print_message("%s: %s\n", b->check, why);
}

/* The wrapper itself is sound: without a bug every check passes. */
static void test_sound(void **state)
{
	(void)state;
	broken_ops.post = pass_post;
	broken_ops.recv = vb_hook_recv;
	broken_ops.peer_alive = vb_hook_peer_alive;
	for (unsigned i = 0; i < SUITE_CASES; i++) {
		const char *why = suite_run(open_broken, suite_cases[i].check);

		if (why != NULL)
			fail_msg("%s: %s", suite_cases[i].name, why);
	}
}

int main(void)
{
	struct CMUnitTest tests[BUGS + 1] = {cmocka_unit_test(test_sound)};

	broken_ops = (struct vb_fabric_ops){
		.name = "broken",
		.close = vb_hook_close,
		.after_fork = vb_hook_after_fork,
		.ep_open = vb_hook_ep_open,
		.ep_close = vb_hook_ep_close,
		.region = vb_hook_region,
		.local = vb_hook_local,
	};
	for (unsigned i = 0; i < BUGS; i++)
		tests[i + 1] = (struct CMUnitTest){.name = bugs[i].bug,
						   .test_func = test_bug,
						   .initial_state = (void *)&bugs[i]};
	return _cmocka_run_group_tests("planted fabric bugs", tests, BUGS + 1, NULL, NULL);
}
