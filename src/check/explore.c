/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running one seed.
 *
 * Each client is a *slot*: a supervisor task, which lives as long as the run, and below it *lives*,
 * one after the other.  A life is the task that calls the lock.  It ends when the simulator kills
 * it (the supervisor then opens a new client), when it is cancelled (the next life goes on with the
 * same client) or when it has done everything.
 *
 * Lives and husks are daemons: the dead among them may lie somewhere in an await for ever.  What is
 * left when the run is over is killed, and clients that nobody could close are buried.
 */
#define VB_LOG_ROOM "check"
#include "check/explore.h"

#include <inttypes.h>

#include "base/log.h"

/* Per seed; then nobody dies any more. */
#define DEATHS_MAX 48

#define SERVERS_MAX 2
#define WORKERS_MAX 2

#define SLOT_STREAM   0x51070000
#define CANCEL_STREAM 0x51080000

/* Cycles of the liveness phase after which the clients meet. */
#define BURST 2

/* Time for what is left in the background when the clients are done. */
#define SETTLE_NS 1000000ull

enum life_end { LIFE_RUNS, LIFE_DIED, LIFE_CANCELLED, LIFE_DONE };

struct slot {
	struct explore *x;
	unsigned index;
	struct vb_rng rng;
	struct vb_task *supervisor;
	struct vb_task *life; /* NULL: none that may be cancelled */
	struct vb_lock_client *client;
	bool started; /* the life has run */
	enum life_end end;
	unsigned attempts, cycles; /* done so far */
	bool safe;                 /* the attempts are done: waits for the liveness phase */
	bool holds_one;            /* asks for a second lock */
	uint64_t age;              /* of a transaction that was turned down; 0: none */
	/* For the story of who is stuck. */
	uint64_t asks_since_ns, asks_lock;
	enum vb_mode asks_mode;
	bool asks;
};

struct explore {
	const struct vb_lock_ops *ops;
	const struct vb_explore_draw *d;
	struct vb_explore_result *result;
	struct vb_fabric *fabric;
	struct vb_sched *sched;
	struct vb_lock_space *space;
	struct vb_audit *audit;
	struct vb_lock_server *servers[SERVERS_MAX * WORKERS_MAX];
	unsigned n_servers;
	struct vb_lock_client *dead[DEATHS_MAX];
	unsigned n_dead;
	unsigned n_safe;
	bool all_safe;            /* every slot has done its attempts, or gone wrong */
	unsigned n_met, meetings; /* at the present meeting; meetings so far */
	bool live;                /* the liveness phase has begun */
	int err;                  /* a call returned what it may not */
	struct slot slots[VB_EXPLORE_CLIENTS_MAX];
};

/* ---- one client ---- */

static bool lossy(const struct explore *x)
{
	return !x->d->orderly;
}

static void go_wrong(struct slot *s, const char *call, int err)
{
	struct explore *x = s->x;

	if (x->err == 0)
		x->err = vb_fail(err,
				 "%s: seed %" PRIu64
				 ": client %u: %s returned %d (%s), which it may not",
				 x->ops->name, x->d->seed, s->index, call, err, vb_strerror(err));
	x->all_safe = true;
}

/* Was that a possible answer?  Granted only with 0. */
static bool judge_answer(struct slot *s, int err, bool timed, bool tried)
{
	struct vb_explore_result *r = s->x->result;
	bool denies = (s->x->ops->caps & VB_LOCK_DENIES) != 0;

	switch (-err) {
	case 0:
		return true;
	case ETIMEDOUT:
		r->timeouts++;
		/* Cancelled between a grant that came too late and the next attempt: either answer.
		 */
		if (timed || vb_task_cancelled(vb_task_self()) || (denies && s->holds_one))
			return true;
		break;
	case EAGAIN:
		if (tried || denies)
			return true;
		break;
	case ECANCELED:
		if (vb_task_cancelled(vb_task_self()))
			return true;
		break;
	case VB_EUNKNOWN:
	case VB_EPEERGONE:
		r->unknown++;
		if (lossy(s->x))
			return true;
		break;
	}
	go_wrong(s, tried ? "vb_lock_try" : "vb_lock_acquire", err);
	return false;
}

/* The dead do nothing more, not even what needs no verb. */
static void stay_alive(const struct vb_lock_client *me)
{
	if (vb_sim_ep_dead(me->ep))
		vb_task_die();
}

static void ask(struct slot *s, uint64_t lock, enum vb_mode mode)
{
	s->asks = true;
	s->asks_lock = lock;
	s->asks_mode = mode;
	s->asks_since_ns = vb_sched_now(s->x->sched);
}

static enum vb_mode draw_mode(struct slot *s)
{
	static const enum vb_mode reads[] = {VB_SHARED, VB_SHARED, VB_INTENT_SHARED, VB_UPDATE},
				  writes[] = {VB_EXCLUSIVE, VB_EXCLUSIVE, VB_INTENT_EXCLUSIVE,
					      VB_SHARED_INTENT_EXCLUSIVE};
	bool read = vb_rng_chance(&s->rng, s->x->d->read_ratio);

	if (!s->x->d->all_modes)
		return read ? VB_SHARED : VB_EXCLUSIVE;
	return (read ? reads : writes)[vb_rng_below(&s->rng, 4)];
}

/* A transaction that was turned down may begin again as old as it was. */
static void note_age(struct slot *s, struct vb_lock_client *me, int err)
{
	if (err == -EAGAIN && s->x->d->keeps_age)
		s->age = vb_lock_client_age(me);
	else if (err == 0)
		s->age = 0;
}

/* Instead of an exclusive lock an update lock, of protocols that have no more modes than these. */
static enum vb_mode or_update(struct slot *s, enum vb_mode mode)
{
	double p = s->x->d->p_update;

	return p > 0 && mode == VB_EXCLUSIVE && vb_rng_chance(&s->rng, p) ? VB_UPDATE : mode;
}

/* For how many leases. */
static uint64_t draw_hold_ns(struct slot *s)
{
	const struct vb_explore_draw *d = s->x->d;

	if (d->leases == 1 || !vb_rng_chance(&s->rng, d->p_leases))
		return 0;
	return d->lease_ns * (1 + vb_rng_below(&s->rng, d->leases));
}

/* One call that may or may not grant: how is drawn. */
static int ask_somehow(struct slot *s, struct vb_lock_client *me, uint64_t lock, struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	enum vb_mode mode = or_update(s, draw_mode(s));
	double how = vb_rng_unit(&s->rng);
	uint64_t timeout = VB_FOREVER_NS;
	bool tried = how < d->p_try;
	int err;

	if (!tried && how < d->p_try + d->p_timeout)
		timeout = vb_rng_below(&s->rng, 1 + (1000ull << vb_rng_below(&s->rng, 8)));
	ask(s, lock, mode);
	if (tried)
		err = vb_lock_try(me, lock, mode, g);
	else
		err = vb_lock_acquire_for(me, lock, mode, draw_hold_ns(s), timeout, g);
	stay_alive(me);
	s->asks = false;
	judge_answer(s, err, timeout != VB_FOREVER_NS, tried);
	return err;
}

static void give_back(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	int err = vb_lock_release(me, g);

	stay_alive(me);
	if (err == 0 || err == -VB_ELOST)
		return;
	if ((err == -VB_EUNKNOWN || err == -VB_EPEERGONE) && lossy(s->x))
		return;
	go_wrong(s, "vb_lock_release", err);
}

static void hold(struct slot *s, struct vb_lock_client *me)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t ns = d->hold_max_ns ? vb_rng_below(&s->rng, d->hold_max_ns) : 0;

	if (vb_rng_chance(&s->rng, d->p_long))
		ns = d->lease_ns + vb_rng_below(&s->rng, 3 * d->lease_ns);
	if (ns != 0)
		vb_ep_sleep(me->ep, ns);
}

/* Was that a possible end of a conversion? */
static void judge_conversion(struct slot *s, int err, bool timed)
{
	bool denies = (s->x->ops->caps & VB_LOCK_DENIES) != 0;

	switch (-err) {
	case 0:
	case EDEADLK:
	case VB_ELOST:
		return;
	case EAGAIN:
		if (denies)
			return;
		break;
	case ETIMEDOUT:
		if (timed || denies)
			return;
		break;
	case ECANCELED:
		if (vb_task_cancelled(vb_task_self()))
			return;
		break;
	case VB_EUNKNOWN:
	case VB_EPEERGONE:
		s->x->result->unknown++;
		if (lossy(s->x))
			return;
		break;
	}
	go_wrong(s, "vb_lock_convert", err);
}

/* To a mode that permits more, or less; others mean the same as a conversion to X. */
static void convert_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	enum vb_mode mode = draw_mode(s);
	uint64_t timeout = VB_FOREVER_NS;
	int err;

	if (!vb_rng_chance(&s->rng, s->x->d->p_convert))
		return;
	if (vb_rng_chance(&s->rng, s->x->d->p_timeout))
		timeout = vb_rng_below(&s->rng, 1 + (1000ull << vb_rng_below(&s->rng, 8)));
	if (!vb_mode_covers(g->mode, mode) && !vb_mode_covers(mode, g->mode))
		mode = VB_EXCLUSIVE;
	ask(s, g->lock, mode);
	err = vb_lock_convert(me, g, mode, timeout);
	stay_alive(me);
	s->asks = false;
	judge_conversion(s, err, timeout != VB_FOREVER_NS);
	if (err == 0)
		hold(s, me);
}

static void give_back_two(struct slot *s, struct vb_lock_client *me, struct vb_grant g[2])
{
	int err;

	if (!vb_rng_chance(&s->rng, s->x->d->p_end)) {
		give_back(s, me, &g[1]);
		give_back(s, me, &g[0]);
		return;
	}
	err = vb_lock_release_all(me, g, 2);
	stay_alive(me);
	if (err != 0 && err != -VB_ELOST && !(err == -VB_EUNKNOWN && lossy(s->x)))
		go_wrong(s, "vb_lock_release_all", err);
}

/* Locks with a policy against deadlocks, and conversions: what only some protocols have. */
static void attempt_more(struct slot *s, struct vb_lock_client *me, uint64_t lock, bool two)
{
	const struct vb_explore_draw *d = s->x->d;
	struct vb_grant g[2];
	uint64_t other = lock + 1;
	int err;

	if (two && d->any_order)
		other = (lock + 1 + vb_rng_below(&s->rng, d->locks - 1)) % d->locks;
	if (s->age != 0)
		vb_lock_client_begin(me, s->age);
	err = ask_somehow(s, me, lock, &g[0]);
	if (err == 0) {
		hold(s, me);
		convert_somehow(s, me, &g[0]);
		s->holds_one = true;
		if (two)
			err = ask_somehow(s, me, other, &g[1]);
		s->holds_one = false;
		if (two && err == 0) {
			hold(s, me);
			give_back_two(s, me, g);
		} else {
			give_back(s, me, &g[0]);
		}
	}
	note_age(s, me, err);
}

/* Who has a long lease makes use of it, and now and then of more than that. */
static void hold_on(struct slot *s, struct vb_lock_client *me, const struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t left = g->valid_until_ns - vb_lock_now(me);

	if (d->leases == 1 || !vb_lock_valid(me, g) || left <= d->lease_ns)
		return;
	if (vb_rng_chance(&s->rng, d->p_hold_on))
		vb_ep_sleep(me->ep, vb_rng_below(&s->rng, left + left / 8));
}

/* From update to exclusive, and sometimes back. */
static void upgrade_somehow(struct slot *s, struct vb_lock_client *me, struct vb_grant *g)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t timeout = VB_FOREVER_NS;
	int err;

	if (d->p_update == 0 || g->mode != VB_UPDATE || !vb_rng_chance(&s->rng, d->p_upgrade))
		return;
	if (vb_rng_chance(&s->rng, d->p_timeout))
		timeout = vb_rng_below(&s->rng, 1 + (1000ull << vb_rng_below(&s->rng, 8)));
	ask(s, g->lock, VB_EXCLUSIVE);
	err = vb_lock_convert(me, g, VB_EXCLUSIVE, timeout);
	stay_alive(me);
	s->asks = false;
	judge_conversion(s, err, timeout != VB_FOREVER_NS);
	if (err != 0)
		return;
	hold(s, me);
	if (vb_rng_chance(&s->rng, 0.2))
		judge_conversion(s, vb_lock_convert(me, g, VB_UPDATE, 0), false);
}

/* Locks are taken in ascending order, so that two at a time make no deadlock. */
static void attempt(struct slot *s, struct vb_lock_client *me)
{
	const struct vb_explore_draw *d = s->x->d;
	uint64_t lock = vb_rng_below(&s->rng, d->locks);
	bool two = vb_rng_chance(&s->rng, d->p_two) && lock + 1 < d->locks;
	struct vb_grant first, second;

	s->attempts++;
	if (d->think_max_ns != 0 &&
	    vb_ep_sleep(me->ep, vb_rng_below(&s->rng, d->think_max_ns)) != 0)
		return;
	if (s->x->ops->caps & (VB_LOCK_INTENT | VB_LOCK_DENIES)) {
		attempt_more(s, me, lock, two || (d->any_order && d->locks > 1 && d->p_two > 0));
		return;
	}
	if (ask_somehow(s, me, lock, &first) != 0)
		return;
	hold(s, me);
	hold_on(s, me, &first);
	upgrade_somehow(s, me, &first);
	if (two && ask_somehow(s, me, lock + 1, &second) == 0) {
		hold(s, me);
		upgrade_somehow(s, me, &second);
		give_back(s, me, &second);
	}
	give_back(s, me, &first);
}

/* True when it came to a grant and its release. */
static bool cycle(struct slot *s, struct vb_lock_client *me)
{
	uint64_t lock = vb_rng_below(&s->rng, s->x->d->locks);
	enum vb_mode mode = or_update(s, draw_mode(s));
	struct vb_grant g;
	int err;

	ask(s, lock, mode);
	if (s->age != 0)
		vb_lock_client_begin(me, s->age);
	err = vb_lock_acquire(me, lock, mode, VB_FOREVER_NS, &g);
	note_age(s, me, err);
	/* A verb that was under way when the faults stopped may still come back unknown. */
	if (!judge_answer(s, err, false, false) || err != 0)
		return false;
	s->asks = false;
	if (s->x->d->hold_max_ns != 0)
		vb_ep_sleep(me->ep, vb_rng_below(&s->rng, s->x->d->hold_max_ns));
	upgrade_somehow(s, me, &g);
	give_back(s, me, &g);
	s->cycles++;
	s->x->result->cycles++;
	return true;
}

/*
 * Everybody waits for everybody: each meeting is an end of the world, after which nobody comes by
 * to wake a sleeper that was forgotten.
 */
static void meet(struct explore *x)
{
	unsigned meeting = x->meetings;

	if (++x->n_met == x->d->clients) {
		x->n_met = 0;
		x->meetings++;
		for (unsigned i = 0; i < x->d->clients; i++)
			if (x->slots[i].life != NULL)
				vb_task_wake(x->slots[i].life);
	}
	while (x->meetings == meeting && x->err == 0)
		vb_task_suspend(VB_FOREVER);
}

/* The last slot to be through with its attempts ends the phase. */
static void wait_for_liveness(struct slot *s, const struct vb_lock_client *me)
{
	struct explore *x = s->x;

	if (!s->safe) {
		s->safe = true;
		if (++x->n_safe == x->d->clients)
			x->all_safe = true;
	}
	while (!x->live && vb_task_suspend(VB_FOREVER) == 0)
		;
	stay_alive(me);
}

static int open_client(struct slot *s)
{
	const struct vb_explore_draw *d = s->x->d;
	uint16_t node = (uint16_t)(d->servers + s->index % d->client_nodes);
	int err;

	if (d->colocated && s->index % 3 == 0)
		node = (uint16_t)(s->index % d->servers);
	err = vb_lock_client_open(s->x->space, node, &s->client);
	if (err) {
		s->client = NULL;
		return err;
	}
	s->client->index = s->index;
	vb_sim_ep_mortal(s->client->ep, !s->x->live);
	return 0;
}

static void end_life(struct slot *s, enum life_end end)
{
	s->life = NULL;
	s->end = end;
	vb_task_wake(s->supervisor);
}

static void life_body(void *arg)
{
	struct slot *s = arg;
	struct explore *x = s->x;
	struct vb_task *self = vb_task_self();
	struct vb_lock_client *me = s->client;

	s->started = true;
	while (!x->live && x->err == 0 && s->attempts < x->d->attempts && !vb_task_cancelled(self))
		attempt(s, me);
	if (!vb_task_cancelled(self))
		wait_for_liveness(s, me);
	if (vb_task_cancelled(self)) {
		end_life(s, LIFE_CANCELLED);
		return;
	}
	while (x->err == 0 && s->cycles < x->d->cycles)
		if (cycle(s, me) && s->cycles % BURST == 0)
			meet(x);
	if (x->err == 0) {
		vb_lock_client_close(me);
		s->client = NULL;
	}
	end_life(s, LIFE_DONE);
}

/* The simulator has struck an endpoint: its tasks end wherever they are. */
static void on_death(struct vb_ep *ep, void *arg)
{
	struct explore *x = arg;
	struct slot *s = NULL;

	for (unsigned i = 0; i < x->d->clients; i++)
		if (x->slots[i].client != NULL && x->slots[i].client->ep == ep)
			s = &x->slots[i];
	vb_assert(s != NULL && x->n_dead < DEATHS_MAX);
	vb_audit_client_died(x->audit, s->index);
	x->result->deaths++;
	/* A husk may have been struck before the life has begun. */
	if (s->life != NULL && !s->started)
		vb_task_kill(s->life);
	x->dead[x->n_dead++] = s->client;
	s->client = NULL;
	s->asks = false;
	if (x->n_dead + x->d->clients > DEATHS_MAX) {
		struct vb_sim_faults f = x->d->faults;

		f.die = 0;
		if (!x->live)
			vb_sim_set_faults(x->fabric, &f);
	}
	end_life(s, LIFE_DIED);
}

static void slot_body(void *arg)
{
	static const struct vb_task_params params = {.name = "client", .daemon = true};
	struct slot *s = arg;
	struct explore *x = s->x;
	int err;

	while (s->end != LIFE_DONE) {
		if (s->end == LIFE_DIED && !x->live)
			vb_task_sleep_until(vb_sched_now(x->sched) +
					    vb_rng_below(&s->rng, 2 * x->d->lease_ns));
		s->end = LIFE_RUNS;
		s->started = false;
		err = s->client == NULL ? open_client(s) : 0;
		if (err == -VB_EUNKNOWN && lossy(x)) {
			/* The answer of the server's node was lost: a client would try again, too.
			 */
			s->end = LIFE_DIED;
			continue;
		}
		if (err == 0)
			err = vb_task_spawn(x->sched, life_body, s, &params, &s->life);
		if (err) {
			go_wrong(s, "vb_lock_client_open", err);
			return;
		}
		while (s->end == LIFE_RUNS)
			vb_task_suspend(VB_FOREVER);
	}
}

/* Cancels whoever it meets. */
static void cancel_body(void *arg)
{
	struct explore *x = arg;
	struct vb_rng r;

	vb_rng_seed(&r, x->d->seed, CANCEL_STREAM);
	while (!x->live) {
		struct slot *s = &x->slots[vb_rng_below(&r, x->d->clients)];

		vb_task_sleep_until(vb_sched_now(x->sched) +
				    vb_rng_below(&r, 2 * x->d->cancel_every_ns));
		if (x->live || s->life == NULL || s->safe)
			continue;
		vb_task_cancel(s->life);
		x->result->cancels++;
	}
}

/* ---- setting up and tearing down ---- */

static int open_fabric(struct explore *x)
{
	const struct vb_explore_draw *d = x->d;
	char options[64];
	struct vb_fabric_params p = {
		.fabric = "sim",
		.options = options,
		.nodes = (uint16_t)(d->servers + d->client_nodes),
		.node_bytes = 256 << 10,
		.endpoints = 128,
		.seed = d->seed,
	};
	int err;

	snprintf(options, sizeof(options), "profile=%s,bound=%" PRIu64 "ns", d->profile->name,
		 d->bound_ns);
	err = vb_fabric_open(&p, &x->fabric);
	if (err)
		return err;
	x->sched = vb_sched_self();
	vb_sim_set_faults(x->fabric, &d->faults);
	vb_sim_on_death(x->fabric, on_death, x);
	return 0;
}

static int open_space(struct explore *x)
{
	const struct vb_explore_draw *d = x->d;
	struct vb_lock_space_params p = {
		.lock = x->ops->name,
		.options = d->options[0] ? d->options : NULL,
		.locks = d->locks,
		.servers = (uint16_t)d->servers,
		.lease_ns = d->lease_ns,
		.drift_ppm = d->drift_ppm,
		.fencing = d->fencing,
	};
	struct vb_audit_params a = {
		.locks = d->locks,
		.clients = d->clients,
		.ops = x->ops,
		.fencing = d->fencing,
		.bypass = d->orderly,
	};
	int err = vb_lock_space_open(x->fabric, &p, &x->space);

	a.space = x->space;
	if (err == 0)
		err = vb_audit_open(&a, &x->audit);
	if (err)
		return err;
	x->space->watch = vb_audit_watch(x->audit);
	for (unsigned node = 0; node < d->servers; node++) {
		for (unsigned w = 0; w < d->workers && err == 0; w++) {
			struct vb_lock_server *server;

			err = vb_lock_server_start(x->space, (uint16_t)node, w, d->workers,
						   &server);
			if (err == 0 && server != NULL)
				x->servers[x->n_servers++] = server;
		}
	}
	return err;
}

static int start_clients(struct explore *x)
{
	static const struct vb_task_params supervisor = {.name = "supervisor"},
					   canceller = {.name = "canceller", .daemon = true};
	struct vb_task *t;
	int err = 0;

	for (unsigned i = 0; i < x->d->clients && err == 0; i++) {
		struct slot *s = &x->slots[i];

		*s = (struct slot){.x = x, .index = i};
		vb_rng_seed(&s->rng, x->d->seed, SLOT_STREAM + i);
		err = vb_task_spawn(x->sched, slot_body, s, &supervisor, &s->supervisor);
	}
	if (err == 0 && x->d->cancel_every_ns != 0)
		err = vb_task_spawn(x->sched, cancel_body, x, &canceller, &t);
	return err;
}

/* Nobody closes it: its tasks are gone, its locks are for others to recover. */
static void bury(struct vb_lock_client *c)
{
	if (c != NULL)
		vb_lock_client_bury(c);
}

static void tear_down(struct explore *x)
{
	if (x->sched != NULL && x->n_servers > 0) {
		/* A server in the middle of a request needs time to come to its end. */
		vb_task_sleep_until(vb_sched_now(x->sched) + SETTLE_NS);
		for (unsigned i = 0; i < x->n_servers; i++)
			vb_lock_server_stop(x->servers[i]);
	}
	if (x->sched != NULL)
		vb_sched_kill_all(x->sched);
	for (unsigned i = 0; i < x->d->clients; i++)
		bury(x->slots[i].client);
	for (unsigned i = 0; i < x->n_dead; i++)
		bury(x->dead[i]);
	vb_lock_space_close(x->space);
	if (x->fabric != NULL)
		vb_fabric_close(x->fabric);
	vb_audit_close(x->audit);
}

/* ---- the two phases ---- */

/* Those who wait for a lock; if nobody does, those who are not through for another reason. */
static void tell_stuck(struct explore *x, uint64_t since_ns, int err)
{
	const char *why = err == -EDEADLK ? "nothing can wake it any more" : "the bound has passed";
	bool anybody_asks = false;

	for (unsigned i = 0; i < x->d->clients; i++)
		anybody_asks |= x->slots[i].asks;
	for (unsigned i = 0; i < x->d->clients; i++) {
		const struct slot *s = &x->slots[i];
		char text[256], does[64] = "waits for nothing, but is not through";

		if (s->end == LIFE_DONE || s->asks != anybody_asks)
			continue;
		if (s->asks)
			snprintf(does, sizeof(does), "waits for %s since %.3f us",
				 vb_lock_mode_name(s->asks_mode), (double)s->asks_since_ns / 1e3);
		snprintf(text, sizeof(text),
			 "%s; faults ended at %.3f us, now it is %.3f us and %s (%u of %u cycles "
			 "done)",
			 does, (double)since_ns / 1e3, (double)vb_sched_now(x->sched) / 1e3, why,
			 s->cycles, x->d->cycles);
		vb_audit_violation(x->audit, VB_AUDIT_STUCK, i, s->asks_lock, text);
	}
}

static void heal(struct explore *x)
{
	static const struct vb_sim_faults none;

	vb_sim_set_faults(x->fabric, &none);
	x->live = true;
	for (unsigned i = 0; i < x->d->clients; i++) {
		struct slot *s = &x->slots[i];

		if (s->client != NULL)
			vb_sim_ep_mortal(s->client->ep, false);
		if (s->life != NULL)
			vb_task_wake(s->life);
	}
}

static void run_phases(struct explore *x)
{
	uint64_t begin = vb_sched_now(x->sched);
	int err = vb_sched_run(x->sched, &x->all_safe, begin + x->d->safety_ns);

	begin = vb_sched_now(x->sched);
	heal(x);
	if (err == -EDEADLK) {
		tell_stuck(x, begin, err);
		return;
	}
	err = vb_sched_run(x->sched, NULL, begin + x->d->liveness_ns);
	if (err && x->err == 0)
		tell_stuck(x, begin, err);
}

static int keep_stories(struct explore *x)
{
	struct vb_explore_result *r = x->result;
	size_t size;
	FILE *f;

	vb_audit_counts(x->audit, &r->audit);
	if (r->audit.violations == 0)
		return 0;
	f = open_memstream(&r->stories, &size);
	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for the story of a violation");
	vb_audit_print(x->audit, f);
	fclose(f);
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		if (!strncmp(r->stories, vb_audit_rule_names[i], strlen(vb_audit_rule_names[i])))
			r->first_rule = i;
	return 0;
}

int vb_explore_run(const struct vb_lock_ops *ops, const struct vb_explore_draw *d,
		   struct vb_explore_result *out)
{
	struct explore *x = calloc(1, sizeof(*x));
	int err;

	*out = (struct vb_explore_result){0};
	if (x == NULL)
		return vb_fail(-ENOMEM, "no memory to explore a seed");
	x->ops = ops;
	x->d = d;
	x->result = out;
	err = open_fabric(x);
	if (err == 0)
		err = open_space(x);
	if (err == 0)
		err = start_clients(x);
	if (err == 0) {
		run_phases(x);
		out->verbs = vb_sim_verbs(x->fabric);
		out->virtual_ns = vb_sim_now(x->fabric);
		out->trace_hash = vb_sim_trace_hash(x->fabric);
		err = keep_stories(x);
	}
	if (err == 0)
		err = x->err;
	tear_down(x);
	free(x);
	return err;
}
