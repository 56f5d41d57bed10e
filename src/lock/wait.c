/* SPDX-License-Identifier: Apache-2.0 */
/* Waiting between attempts, and asking again after lost answers. */
#define VB_LOG_ROOM "lock"
#include "lock/lock.h"

#include <inttypes.h>
#include <sched.h>

#include "base/log.h"
#include "base/sometimes.h"

struct vb_backoff vb_backoff_of(const struct vb_lock_client *me, uint64_t base_ns, uint64_t cap_ns)
{
	struct vb_backoff b = {.base_ns = base_ns, .cap_ns = cap_ns};

	if (base_ns == VB_OPT_AUTO)
		b.base_ns = me->rtt_ns > 0 ? me->rtt_ns : 1;
	if (cap_ns == VB_OPT_AUTO)
		b.cap_ns = 1024 * b.base_ns;
	return b;
}

int vb_backoff_wait(struct vb_lock_client *me, struct vb_backoff *b, uint64_t until_ns)
{
	uint64_t now = vb_ep_now_early(me->ep);
	uint64_t span =
		b->n < 63 && b->base_ns <= b->cap_ns >> b->n ? b->base_ns << b->n : b->cap_ns;
	uint64_t wake;
	int err;

	if (now >= until_ns)
		return -ETIMEDOUT;
	if (b->n < 63)
		b->n++;
	wake = now + vb_rng_below(&me->rng, span + 1);
	err = vb_ep_sleep_until(me->ep, wake < until_ns ? wake : until_ns);
	if (err)
		return err;
	return wake >= until_ns ? -ETIMEDOUT : 0;
}

void vb_lock_let_land(struct vb_lock_client *me)
{
	bool shielded = vb_task_shield(true);

	vb_ep_sleep(me->ep, vb_lock_stretch(me->space, me->ep->fabric->caps.verb_bound_ns));
	vb_task_shield(shielded);
}

unsigned vb_lock_asks(const struct vb_lock_space *s)
{
	const struct vb_fabric_caps *caps = &s->fabric->caps;

	if (caps->relink_ns == 0)
		return VB_LOCK_ASKS;
	return VB_LOCK_ASKS + (unsigned)(caps->relink_ns / (caps->verb_bound_ns + 1));
}

/* The message is lost or refused and sent again, and the last one takes its time, too. */
uint64_t vb_lock_wait_least(const struct vb_lock_space *s, uint64_t wait_ns)
{
	uint64_t least = vb_lock_stretch(s, (vb_lock_asks(s) + 2) * s->fabric->caps.verb_bound_ns);

	return wait_ns > least ? wait_ns : least;
}

/* *again: how often it has been asked again, 0 at first. */
static int change_until_answered(struct vb_lock_client *me, vb_addr word, uint64_t from,
				 uint64_t to, uint64_t *seen, bool *unsure, int err,
				 unsigned *again)
{
	/* Behind a lost answer a CAS that is refused, because the link is down now, answers nothing. */
	for (; (err == -VB_EUNKNOWN || err == -VB_ETOOLATE || (err != 0 && *unsure)) &&
	       *again + 1 < vb_lock_asks(me->space);
	     ++*again) {
		*unsure |= err != -VB_ETOOLATE;
		vb_lock_let_land(me);
		me->retries++;
		err = vb_cas64_before(me->ep, word, from, to, VB_FOREVER, seen);
	}
	return err != 0 && *unsure ? -VB_EUNKNOWN : vb_lock_refusal(err);
}

int vb_lock_change_on(struct vb_lock_client *me, vb_addr word, uint64_t from, uint64_t to,
		      uint64_t *seen, bool *unsure, int err)
{
	unsigned again = 0;

	return change_until_answered(me, word, from, to, seen, unsure, err, &again);
}

/* ---- links that are down for a moment ---- */

bool vb_lock_ask_again(struct vb_lock_client *me, int err, unsigned *refused)
{
	if (vb_likely(err != -VB_EPEERGONE) || ++*refused >= vb_lock_asks(me->space))
		return false;
	VB_SOMETIMES(1000,
		     "cas cas-backoff drtm mcs ncosed retry-on-fail rma-rw: a refused verb is "
		     "asked again");
	vb_lock_let_land(me);
	me->retries++;
	return true;
}

#define DRAIN_NS      100000ull
#define DRAIN_DOUBLES 4u

void vb_lock_let_drain(struct vb_lock_client *me, unsigned refused)
{
	bool shielded;

	/* In virtual time rings are full by chance. */
	if ((me->ep->fabric->caps.flags & (VB_CAP_INLINE | VB_CAP_VIRTUAL)) != VB_CAP_INLINE)
		return;
	shielded = vb_task_shield(true);
	vb_ep_sleep(me->ep, DRAIN_NS << (refused < DRAIN_DOUBLES ? refused : DRAIN_DOUBLES));
	vb_task_shield(shielded);
}

int vb_lock_faa_on(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old, int err)
{
	for (unsigned asks = 1; err == -VB_ETOOLATE && asks < vb_lock_asks(me->space); asks++)
		err = vb_faa64_before(me->ep, word, add, VB_FOREVER, old);
	return vb_lock_refusal(err);
}

int vb_lock_swap(struct vb_lock_client *me, vb_addr word, uint64_t value, uint64_t until_ns,
		 uint64_t *old)
{
	int err = vb_swap64(me->ep, word, value, until_ns, old);

	for (unsigned asks = 1; vb_unlikely(err == -VB_ETOOLATE) && asks < vb_lock_asks(me->space);
	     asks++) {
		err = vb_poll_pause(me, until_ns);
		if (err)
			return err;
		err = vb_swap64(me->ep, word, value, until_ns, old);
	}
	return vb_lock_refusal(err);
}

int vb_lock_change_back_on(struct vb_lock_client *me, vb_addr word, uint64_t from, uint64_t to,
			   uint64_t *seen, bool *unsure, int err)
{
	unsigned again = 0;

	/* Refusals of either kind, and lost answers, are asks of one sum: each takes a verb's bound. */
	err = change_until_answered(me, word, from, to, seen, unsure, err, &again);
	while (vb_lock_ask_again(me, err, &again)) {
		err = vb_cas64_before(me->ep, word, from, to, VB_FOREVER, seen);
		err = change_until_answered(me, word, from, to, seen, unsure, err, &again);
	}
	return vb_lock_unknown_if_refused(err);
}

int vb_lock_add_on(struct vb_lock_client *me, vb_addr word, uint64_t add, uint64_t *old, int err)
{
	unsigned refused = 0;

	while (vb_lock_ask_again(me, vb_lock_refusal(err), &refused))
		err = vb_faa64_before(me->ep, word, add, VB_FOREVER, old);
	return vb_lock_unknown_if_refused(vb_lock_refusal(err));
}

/* ---- words that name their owner ---- */

#define OWNER_MASK ((1ull << VB_OWNER_BITS) - 1)
/* One CAS shows what is there, one more takes over what an earlier claim of ours has left. */
#define OWN_ASKS 2

uint64_t vb_owner_word(struct vb_lock_client *me, uint64_t flag)
{
	return flag | (++me->mail.next_request << VB_OWNER_BITS & ~VB_OWNER_FLAG) | me->ep->self;
}

int vb_owner_take(struct vb_lock_client *me, struct vb_claim *c, uint64_t expect, uint64_t *seen)
{
	const uint64_t self = c->priv[0];

	for (unsigned i = 0; i < OWN_ASKS; i++) {
		bool unsure = false;
		int err = vb_lock_change(me, c->entry, expect, self, seen, &unsure);

		if (vb_unlikely(err != 0))
			return err;
		if (vb_likely(*seen == expect))
			return vb_lock_grant(c, VB_FOREVER_NS, 0);
		if (*seen == self) {
			VB_SOMETIMES(200,
				     "cas cas-backoff drtm: a claim whose lost answer was yes");
			return vb_lock_grant(c, VB_FOREVER_NS, 0);
		}
		/* An earlier claim's of ours, whose end was never known.  A client has one claim of
		 * a lock at a time, and what it posted for that one has landed. */
		if (vb_likely(((*seen ^ self) & (OWNER_MASK | VB_OWNER_FLAG)) != 0))
			return -EAGAIN;
		VB_SOMETIMES(1000,
			     "cas cas-backoff drtm: the word of an earlier claim of one's own");
		expect = *seen;
	}
	return -EAGAIN;
}

int vb_owner_give_back(struct vb_lock_client *me, struct vb_claim *c)
{
	const uint64_t self = c->priv[0];
	bool unsure = false;
	uint64_t seen;
	int err = vb_lock_change_back(me, c->entry, self, 0, &seen, &unsure);

	if (err || seen == self)
		return err;
	/* Not our name: a CAS whose answer was lost has freed it, or another client broke the
	 * rules. */
	if (unsure) {
		VB_SOMETIMES(200, "cas cas-backoff drtm: a release whose lost answer was yes");
		return 0;
	}
	return vb_fail(-VB_ELOST,
		       "lock %" PRIu64 ": the word was %016" PRIx64 " when its holder %016" PRIx64
		       " gave it back; somebody wrote to the lock word",
		       c->lock, seen, self);
}

void vb_owner_tell(uint64_t word, struct vb_holder *out)
{
	const vb_peer owner = word & OWNER_MASK;

	*out = (struct vb_holder){
		.held = true, .mode = VB_EXCLUSIVE, .node = vb_peer_node(owner), .client = owner};
}

int vb_owner_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out)
{
	uint64_t word;
	int err = vb_read64(me->ep, vb_lock_entry(me->space, lock), &word);

	if (err == 0 && word != 0)
		vb_owner_tell(word, out);
	return err;
}

/* After so many polls a thread offers its core to other threads.  With at least as many cores as
 * workers nobody takes it, and that costs a system call now and then; with fewer, the client that
 * we wait for may be the one that needs it. */
#define POLLS_PER_OFFER 32

int vb_poll_pause(struct vb_lock_client *me, uint64_t until_ns)
{
	if (until_ns != VB_FOREVER && vb_ep_now(me->ep) >= until_ns)
		return -ETIMEDOUT;
	if (vb_task_cancelled(vb_task_self()))
		return -ECANCELED;
	vb_task_yield();
	if (me->ep->fabric->caps.flags & VB_CAP_VIRTUAL) {
		if (VB_CHANCE(200, "cas retry-on-fail ncosed rma-rw rpc shiftlock: looks late"))
			return vb_ep_sleep(me->ep, me->ep->fabric->caps.verb_bound_ns);
		return 0;
	}
	if (++me->polls % POLLS_PER_OFFER == 0)
		sched_yield();
	else
		vb_cpu_relax();
	return 0;
}

#define POLLS_BEFORE_REST 4096
#define REST_NS           100000
#define REST_SHARE        8 /* of a lease: the holder may be dead */

int vb_poll_rest(struct vb_lock_client *me, uint64_t until_ns)
{
	uint64_t now, rest = me->space->lease_ns / REST_SHARE;

	if (!(me->ep->fabric->caps.flags & VB_CAP_INLINE) || me->polls < POLLS_BEFORE_REST)
		return vb_poll_pause(me, until_ns);
	now = vb_ep_now(me->ep);
	if (now >= until_ns)
		return -ETIMEDOUT;
	if (rest > REST_NS)
		rest = REST_NS;
	return vb_ep_sleep_until(me->ep, rest < until_ns - now ? now + rest : until_ns);
}

#define AT_ONCE_NS  400000
#define WAIT_SHARE  8 /* of what it has waited */
#define ASK_MOST_NS 10000000

int vb_poll_ask(struct vb_lock_client *me, uint64_t since_ns, uint64_t until_ns)
{
	uint64_t now, rest, most = me->space->lease_ns / REST_SHARE;

	if (!(me->ep->fabric->caps.flags & VB_CAP_INLINE))
		return vb_poll_pause(me, until_ns);
	now = vb_ep_now(me->ep);
	if (now < since_ns + AT_ONCE_NS || now >= until_ns)
		return vb_poll_pause(me, until_ns);
	rest = (now - since_ns) / WAIT_SHARE;
	most = most < ASK_MOST_NS ? most : ASK_MOST_NS;
	rest = rest < most ? rest : most;
	return vb_ep_sleep_until(me->ep, rest < until_ns - now ? now + rest : until_ns);
}
