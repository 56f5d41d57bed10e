/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks that are right as long as there is one space of them: what belongs to one is the other's, too.
 *
 * planted:one-register     cas that notes its holder in a register beside the lock, whose name is the
 *                          protocol's and not the space's: at its release it takes the other space's
 *                          holder for one that has robbed it
 * planted:borrowed-name    cas that keeps the names of its claims by client and lock in memory that all
 *                          spaces have in common: it gives back under the name of another claim
 */
#include "check/planted/planted.h"

static int take(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	uint64_t seen;
	int err;

	c->priv[0] = vb_owner_word(me, 0);
	while ((err = vb_owner_take(me, c, 0, &seen)) == -EAGAIN) {
		err = vb_poll_pause(me, until_ns);
		if (err)
			break;
	}
	return err;
}

static int take_at_once(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;

	c->priv[0] = vb_owner_word(me, 0);
	return vb_owner_take(me, c, 0, &seen);
}

#define PLAIN_LOCK                                                                                 \
	.source = "planted bug", .caps = VB_LOCK_EXCLUSIVE, .entry_bytes = 8,                      \
	.verbs_uncontended = "2 CAS and more", .verbs_contended = "1 CAS per attempt"

/* ---- a register that two spaces share ---- */

static int find_register(struct vb_lock_client *me, const struct vb_claim *c, vb_addr *out)
{
	bool fresh;
	int err = vb_region(me->ep->fabric, 0, "one-register", 8 * 64, out, &fresh);

	*out += 8 * (c->lock % 64);
	return err;
}

static int note(struct vb_lock_client *me, struct vb_claim *c, int err)
{
	vb_addr at;

	if (err == 0 && find_register(me, c, &at) == 0)
		(void)vb_write(me->ep, at, &c->priv[0], sizeof(c->priv[0]));
	return err;
}

static int noted_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	return note(me, c, take(me, c, until_ns));
}

static int noted_try(struct vb_lock_client *me, struct vb_claim *c)
{
	return note(me, c, take_at_once(me, c));
}

static int noted_release(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t holder = c->priv[0];
	vb_addr at;
	int err = find_register(me, c, &at);

	if (err == 0)
		(void)vb_read64(me->ep, at, &holder);
	err = vb_owner_give_back(me, c);
	return err == 0 && holder != c->priv[0] ? -VB_ELOST : err;
}

const struct vb_lock_ops vb_planted_one_register = {
	.name = "planted:one-register",
	.summary = "cas with a register that all spaces share",
	.planted = "needless-recovery",
	PLAIN_LOCK,
	.acquire = noted_acquire,
	.try_acquire = noted_try,
	.release = noted_release,
};

/* ---- a name that two spaces share ---- */

#define CLIENTS 16
#define LOCKS   3

static uint64_t names[CLIENTS][LOCKS];

static uint64_t *name_of(const struct vb_lock_client *me, const struct vb_claim *c)
{
	return &names[me->index % CLIENTS][c->lock % LOCKS];
}

static int named_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns)
{
	int err = take(me, c, until_ns);

	*name_of(me, c) = c->priv[0];
	return err;
}

static int named_try(struct vb_lock_client *me, struct vb_claim *c)
{
	int err = take_at_once(me, c);

	*name_of(me, c) = c->priv[0];
	return err;
}

static int named_release(struct vb_lock_client *me, struct vb_claim *c)
{
	uint64_t seen;
	bool unsure = false;

	return vb_lock_change_back(me, c->entry, *name_of(me, c), 0, &seen, &unsure);
}

const struct vb_lock_ops vb_planted_borrowed_name = {
	.name = "planted:borrowed-name",
	.summary = "cas that keeps its claims' names where all spaces do",
	.planted = "stuck",
	PLAIN_LOCK,
	.acquire = named_acquire,
	.try_acquire = named_try,
	.release = named_release,
};
