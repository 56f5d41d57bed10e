/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where logs have copies: nodes that have no records, and that go.
 *
 * The first slots have a node each for themselves, their *home*.  When such a coordinator dies its home may go with it:
 * its memory is overwritten, and every verb to it is refused from then on.  Or the others take the home for gone, and
 * the coordinator runs on, with its own memory and with what it can do to theirs, until it notices; at any time, right
 * before its log, or as others give up by its status word a transaction that stands still behind it.  No more homes go
 * than there are copies of a log: so many the database survives.  Who has lost his home goes on at a node with
 * records: those nodes stay.
 */
#define VB_LOG_ROOM "check"
#include "check/txn/world.h"

#define CUT_STREAM    0x63757400
#define DISOWN_STREAM 0x64697300

uint16_t txn_home(const struct txn_slot *s)
{
	const struct txn_world *w = s->w;

	if (s->index < w->d->homes && !w->gone[s->index])
		return (uint16_t)(w->d->nodes + s->index);
	return (uint16_t)(s->index % w->d->nodes);
}

static bool is_at_home(const struct txn_slot *s)
{
	return s->me != NULL && s->me->node >= s->w->d->nodes;
}

bool txn_is_outcast(const struct txn_slot *s)
{
	if (s->me != NULL && vb_sim_ep_disowned(s->me->ep))
		return true;
	return is_at_home(s) && s->w->gone[s->me->node - s->w->d->nodes];
}

bool txn_place_is_gone(const struct txn_world *w, uint32_t place)
{
	uint32_t node = place / VB_PLACES_EACH / w->db->coordinators;

	return node >= w->d->nodes && w->gone[node - w->d->nodes];
}

/* Another home may go. */
static bool may_go(const struct txn_slot *s)
{
	const struct txn_world *w = s->w;

	return is_at_home(s) && !txn_is_outcast(s) && !w->live && w->n_gone < w->d->copies;
}

static void go(struct txn_slot *s)
{
	struct txn_world *w = s->w;

	w->gone[s->me->node - w->d->nodes] = true;
	w->n_gone++;
}

/* What the dead had committed stands in their status words, for the last time. */
static void note_committed(struct txn_world *w)
{
	for (unsigned i = 0; i < w->n_last; i++) {
		struct txn_pending *p = &w->last[i];
		const uint64_t *status = vb_local(w->fabric, vb_db_place(w->db, p->place), 8);

		if (txn_place_is_gone(w, p->place) && *status == (p->ts | VB_TS_COMMITTED))
			p->happened = true;
	}
}

/* Its places, and the copies that it had of others'. */
static void overwrite(struct txn_world *w, uint16_t node)
{
	const struct vb_db *db = w->db;
	const uint64_t from = sizeof(struct vb_db_header);

	memset(vb_local(w->fabric, db->region[node] + from, db->copy_bytes), 0xdb, db->copy_bytes);
	memset(vb_local(w->fabric, db->region[node] + db->copies_at, db->copies * db->copy_bytes),
	       0xdb, db->copies * db->copy_bytes);
}

void txn_home_died(struct txn_slot *s)
{
	struct txn_world *w = s->w;
	uint16_t node = s->me->node;

	if (!may_go(s) || !vb_rng_chance(&s->goings, w->d->p_lose))
		return;
	go(s);
	note_committed(w);
	overwrite(w, node);
	vb_sim_lose_sent(w->fabric, node, vb_rng_next(&s->goings));
	vb_sim_lose_node(w->fabric, node);
	w->out->homes_lost++;
}

static void cut_off(struct txn_slot *s)
{
	struct txn_world *w = s->w;

	for (unsigned i = 0; i < VB_PLACES_EACH; i++)
		w->keeps[s->me->lane[i].place] = true;
	go(s);
	vb_sim_disown_node(w->fabric, s->me->node);
	w->out->homes_disowned++;
}

/* How long a log and a commit point take, about; how often who waits for others looks. */
#define COMMIT_NS 6000u
#define LOOK_NS   500u

/* The transaction stands still somewhere between its log and its records, and its home goes while others give it up by
 * its status word. */
static void waylay_body(void *arg)
{
	struct txn_slot *s = arg;
	struct txn_world *w = s->w;
	const struct vb_coordinator *me = s->me;
	const uint64_t name = s->pending.ts;
	const uint64_t *status = vb_local(w->fabric, vb_db_place(w->db, s->pending.place), 8);
	uint64_t until;

	vb_task_sleep_until(vb_sched_now(w->sched) + vb_rng_below(&s->goings, COMMIT_NS));
	until = vb_sched_now(w->sched) + 8 * w->d->lease_ns;
	if (s->me != me || *status != (name | VB_TS_RUNNING) || !may_go(s))
		return;
	vb_sim_ep_pause(s->me->ep, until);
	while (*status == (name | VB_TS_RUNNING) && vb_sched_now(w->sched) < until)
		vb_task_sleep_until(vb_sched_now(w->sched) + LOOK_NS);
	if (s->me == me && *status == (name | VB_TS_RECOVERED) && may_go(s))
		cut_off(s);
}

/*
 * Coordinators whose places are far, and whose home says that they are no more while they run on; most stand still
 * then, about until another has their places, or for longer.  Half of them are met as they finish what others have
 * left, if anybody does.
 */
static bool mends(const struct txn_slot *s)
{
	for (unsigned i = VB_PLACES_TXN; i < VB_PLACES_EACH; i++) {
		const uint64_t *status =
			vb_local(s->w->fabric, vb_db_place(s->w->db, s->me->lane[i].place), 8);

		if ((*status & VB_TS_STATE) == VB_TS_COMMITTED && s->me->lane[i].status != *status)
			return true;
	}
	return false;
}

/* It stands still for so long at most; 0: it does not. */
static void disown(struct txn_slot *s, uint64_t most_ns)
{
	struct txn_world *w = s->w;

	for (unsigned i = 0; i < VB_PLACES_EACH; i++)
		w->keeps[s->me->lane[i].place] = true;
	vb_sim_ep_disown(s->me->ep, s->me->node);
	if (most_ns > 0)
		vb_sim_ep_pause(s->me->ep,
				vb_sched_now(w->sched) + vb_rng_below(&s->goings, most_ns));
	w->out->disowned++;
}

static bool may_be_disowned(const struct txn_slot *s)
{
	return s->index < s->w->d->coordinators && s->me != NULL && !txn_is_outcast(s) &&
	       !vb_sim_ep_dead(s->me->ep);
}

/* Right before its log, too: who stands still there comes back when others have decided, or just then. */
void txn_home_prepared(struct txn_slot *s)
{
	static const struct vb_task_params params = {.name = "waylayer", .daemon = true};
	struct txn_world *w = s->w;
	struct vb_task *t;

	if (!may_go(s))
		return;
	if (w->d->cut_every_ns != 0 && vb_rng_chance(&s->goings, 0.05)) {
		cut_off(s);
		vb_sim_ep_pause(s->me->ep, vb_sched_now(w->sched) +
						   vb_rng_below(&s->goings, 4 * w->d->lease_ns));
	}
	if (w->d->p_waylay > 0 && vb_rng_chance(&s->goings, w->d->p_waylay) && w->err == 0)
		w->err = vb_task_spawn(w->sched, waylay_body, s, &params, &t);
}

/* Takes whoever it meets for gone. */
static void cut_body(void *arg)
{
	struct txn_world *w = arg;
	struct vb_rng r;

	vb_rng_seed(&r, w->d->seed, CUT_STREAM);
	while (!w->live && w->n_gone < w->d->copies) {
		struct txn_slot *s = &w->slot[vb_rng_below(&r, w->d->homes)];

		vb_task_sleep_until(vb_sched_now(w->sched) +
				    vb_rng_below(&r, 2 * w->d->cut_every_ns));
		if (s->index >= w->d->coordinators || !may_go(s))
			continue;
		cut_off(s);
	}
}

static struct txn_slot *mender(struct txn_world *w)
{
	for (unsigned i = 0; i < w->d->coordinators; i++)
		if (may_be_disowned(&w->slot[i]) && mends(&w->slot[i]))
			return &w->slot[i];
	return NULL;
}

static void disown_body(void *arg)
{
	struct txn_world *w = arg;
	struct vb_rng r;

	vb_rng_seed(&r, w->d->seed, DISOWN_STREAM);
	while (!w->live) {
		struct txn_slot *s = &w->slot[vb_rng_below(&r, w->d->coordinators)];
		uint64_t until = vb_sched_now(w->sched);

		until += vb_rng_below(&r, 2 * w->d->disown_every_ns);
		if (vb_rng_chance(&r, 0.5)) {
			until += 4 * w->d->disown_every_ns;
			while (!w->live && mender(w) == NULL && vb_sched_now(w->sched) < until)
				vb_task_sleep_until(vb_sched_now(w->sched) + LOOK_NS);
			s = mender(w) != NULL ? mender(w) : s;
		} else {
			vb_task_sleep_until(until);
		}
		if (!w->live && may_be_disowned(s))
			disown(s, vb_rng_chance(&r, 0.8) ? 6 * w->d->lease_ns : 0);
	}
}

int txn_homes_start(struct txn_world *w)
{
	static const struct vb_task_params params = {.name = "cutter", .daemon = true},
					   disowner = {.name = "disowner", .daemon = true};
	struct vb_task *t;
	int err = 0;

	if (w->d->cut_every_ns != 0)
		err = vb_task_spawn(w->sched, cut_body, w, &params, &t);
	if (err == 0 && w->d->disown_every_ns != 0)
		err = vb_task_spawn(w->sched, disown_body, w, &disowner, &t);
	return err;
}
