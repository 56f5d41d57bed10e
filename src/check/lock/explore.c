/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running one seed.
 *
 * Each client is a *slot*: a supervisor task, which lives as long as the run, and below it *lives*,
 * one after the other.  A life is the task that calls the lock.  It ends when the simulator kills
 * it (the supervisor then opens a new client), when it is cancelled (the next life goes on with the
 * same client) or when it has done everything.
 *
 * Lives and proxies are daemons: the dead among them may lie somewhere in an await for ever.  What
 * is left when the run is over is killed, and clients that nobody could close are buried.
 */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "check/campaign.h"
#include "check/lock/explore_inner.h"

#define SLOT_STREAM   0x51070000
#define CANCEL_STREAM 0x51080000

/* Cycles of the liveness phase after which the clients meet. */
#define BURST 2

/* Time for what is left in the background when the clients are done. */
#define SETTLES   1000u
#define SETTLE_NS 1000000ull

/* ---- lives ---- */

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

	if ((d->colocated && s->index % 3 == 0) || (d->ends_at_once && s->index % 3 != 2))
		node = (uint16_t)(s->index % d->servers);
	err = vb_lock_client_open(s->x->space, node, &s->client);
	if (err) {
		s->client = NULL;
		return err;
	}
	s->client->index = s->index;
	s->client->mail.next_request = d->claims_from;
	vb_sim_ep_mortal(s->client->ep, !s->x->live);
	return 0;
}

/* Where nobody died, was late, or lost an answer there is nothing to recover: whoever does throws
 * out clients that are well.  Nor is a grant lost, but by readers who hold past their lease. */
static void judge_order(struct slot *s, const struct vb_lock_client *me)
{
	const struct explore *x = s->x;
	bool keeps = x->d->p_long == 0 || !(x->ops->caps & VB_LOCK_READ_LEASE);
	uint64_t lost = keeps ? me->lost : 0;
	char text[128];

	if (lossy(x) || me->recoveries + lost == 0)
		return;
	snprintf(text, sizeof(text),
		 "has recovered locks %" PRIu64 " times and lost %" PRIu64
		 " grants although nothing was wrong",
		 me->recoveries, lost);
	vb_audit_violation(s->x->audit, VB_AUDIT_NEEDLESS_RECOVERY, s->index, s->asks_lock, text);
}

static void end_life(struct slot *s, enum life_end end)
{
	s->life = NULL;
	s->end = end;
	vb_task_wake(s->supervisor);
}

/* Closed clients whose places stand in queues. */
static unsigned count_ghosts(const struct explore *x)
{
	unsigned n = 0;

	vb_list_for_each (it, &x->space->ghosts)
		n++;
	return n;
}

/* Where it has just given up, a place of it may stand in a queue.  Behind a lock that is lost such
 * places stay, and with them their endpoints. */
static bool closes(struct slot *s)
{
	const struct vb_explore_draw *d = s->x->d;
	double p = s->gave_up ? 5 * d->p_close : d->p_close;

	return d->p_close > 0 && vb_rng_chance(&s->rng, p) &&
	       s->x->result->ghosts < VB_EXPLORE_GHOSTS_MAX;
}

/* Nobody may cancel it over that: it is no longer there for those who would.  Nor does it die, for
 * then it would not have closed, and that is drawn elsewhere. */
static void close_client(struct slot *s, struct vb_lock_client *me)
{
	unsigned ghosts;

	s->life = NULL;
	vb_sim_ep_mortal(me->ep, false);
	judge_order(s, me);
	vb_lock_client_close(me);
	s->client = NULL;
	s->x->result->closes++;
	ghosts = count_ghosts(s->x);
	if (ghosts > s->x->result->ghosts)
		s->x->result->ghosts = ghosts;
	end_life(s, LIFE_CLOSED);
}

/* Does the first phase go on?  Whoever has stopped it is not waited for. */
static bool goes_on(struct explore *x)
{
	x->all_safe |= vb_campaign_stopped(x->stop);
	return !x->live && x->err == 0;
}

static void life_body(void *arg)
{
	struct slot *s = arg;
	struct explore *x = s->x;
	struct vb_task *self = vb_task_self();
	struct vb_lock_client *me = s->client;

	s->started = true;
	/* A proxy of the client may have been struck since its last life. */
	stay_alive(me);
	while (goes_on(x) && s->attempts < x->d->attempts && !vb_task_cancelled(self)) {
		explore_attempt(s, me);
		if (!x->live && x->err == 0 && !vb_task_cancelled(self) && closes(s)) {
			close_client(s, me);
			return;
		}
	}
	if (!vb_task_cancelled(self))
		wait_for_liveness(s, me);
	if (vb_task_cancelled(self)) {
		end_life(s, LIFE_CANCELLED);
		return;
	}
	while (x->err == 0 && s->cycles < x->d->cycles)
		if (explore_cycle(s, me) && s->cycles % BURST == 0)
			meet(x);
	if (x->err == 0) {
		judge_order(s, me);
		vb_lock_client_close(me);
		s->client = NULL;
	}
	end_life(s, LIFE_DONE);
}

static struct slot *slot_of(struct explore *first, const struct vb_ep *ep)
{
	for (struct explore *x = first; x != NULL; x = x->beside)
		for (unsigned i = 0; i < x->d->clients; i++)
			if (x->slots[i].client != NULL && x->slots[i].client->ep == ep)
				return &x->slots[i];
	vb_assert(false);
	return NULL;
}

/* The simulator has struck an endpoint: its tasks end wherever they are. */
static void on_death(struct vb_ep *ep, void *arg)
{
	struct slot *s = slot_of(arg, ep);
	struct explore *x = s->x;

	vb_assert(x->n_dead < DEATHS_MAX);
	vb_audit_client_died(x->audit, s->index);
	if (x->history != NULL)
		vb_lock_history_client_died(x->history, s->index);
	x->result->deaths++;
	x->murky = true;
	/* A proxy may have been struck before the life has begun. */
	if (s->life != NULL && !s->started)
		vb_task_kill(s->life);
	x->dead[x->n_dead++] = s->client;
	explore_lose_keep(s);
	explore_lose_call(s);
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

static bool servers_may_be_gone(const struct explore *x)
{
	return x->d->serve_max_ns != 0 || x->d->faults.refuse > 0;
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
		s->cancelled_ns = 0;
		err = s->client == NULL ? open_client(s) : 0;
		if ((err == -VB_EUNKNOWN || (err == -VB_EPEERGONE && servers_may_be_gone(x))) &&
		    lossy(x)) {
			/* The answer of the server's node was lost, or there is no server or no link
			 * to it at the moment: a client would try again, too. */
			s->end = LIFE_DIED;
			continue;
		}
		if (err == 0)
			err = vb_task_spawn(x->sched, life_body, s, &params, &s->life);
		if (err) {
			explore_go_wrong(s, "vb_lock_client_open", err);
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
		if (s->cancelled_ns == 0)
			s->cancelled_ns = vb_sched_now(x->sched);
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
		.node_bytes = d->beside != NULL ? 512 << 10 : 256 << 10,
		.endpoints = d->beside != NULL ? 256 : 128,
		.seed = d->seed,
	};
	int err;

	snprintf(options, sizeof(options), "profile=%s,bound=%" PRIu64 "ns", d->profile->name,
		 explore_true_bound_ns(d));
	err = vb_fabric_open(&p, &x->fabric);
	if (err)
		return err;
	explore_beyond_fabric(x);
	if (d->ends_at_once)
		vb_sim_complete_near(x->fabric, &d->near);
	x->sched = vb_sched_self();
	if (d->begins_ns != 0)
		vb_task_sleep_until(d->begins_ns);
	vb_sim_set_faults(x->fabric, &d->faults);
	vb_sim_on_death(x->fabric, on_death, x);
	return 0;
}

static int open_space(struct explore *x, const char *name)
{
	const struct vb_explore_draw *d = x->d;
	const struct vb_lock_space_params p = {
		.lock = x->ops->name,
		.options = d->options[0] ? d->options : NULL,
		.name = name,
		.locks = d->locks,
		.servers = (uint16_t)d->servers,
		.lease_ns = d->lease_ns,
		.drift_ppm = d->drift_ppm,
		.fencing = d->fencing,
	};
	int err = vb_audit_open_space(x->fabric, &p, d->clients, d->orderly && !d->loses, &x->space,
				      &x->audit);

	if (err)
		return err;
	vb_audit_forgive(x->audit, explore_forgiven(d));
	explore_wrap(x);
	x->space->watch = vb_audit_watch(x->audit);
	if (x->history != NULL)
		x->space->watch = vb_lock_history_watch(x->history, x->space->watch);
	explore_watch_keeps(x);
	err = explore_open_files(x);
	return err ? err : explore_start_servers(x);
}

static int start_clients(struct explore *x)
{
	static const struct vb_task_params supervisor = {.name = "supervisor"},
					   canceller = {.name = "canceller", .daemon = true};
	struct vb_task *t;
	int err = explore_open_rings(x);

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

static void stop_servers(struct explore *x)
{
	if (x->space == NULL || x->space->ops->serve == NULL)
		return;
	x->over = true;
	/* A server in the middle of a request needs time to come to its end; and one that is about to begin is not
	 * yet among those that are stopped. */
	for (unsigned i = 0; i == 0 || (x->begins && i < SETTLES); i++)
		vb_task_sleep_until(vb_sched_now(x->sched) + SETTLE_NS + x->d->faults.stall_max_ns);
	explore_stop_servers(x);
}

static void close_space(struct explore *x)
{
	if (x->space != NULL)
		vb_lock_space_bury(x->space);
	explore_bury_keeps(x);
	explore_bury_rings(x);
	for (unsigned i = 0; i < x->d->clients; i++)
		bury(x->slots[i].client);
	for (unsigned i = 0; i < x->n_dead; i++)
		bury(x->dead[i]);
	vb_lock_space_close(x->space);
	explore_close_files(x);
}

/* What stays open is of this seed, and would keep the next one from its time. */
static int tear_down(struct explore *first)
{
	int err;

	if (first->sched != NULL) {
		for (struct explore *x = first; x != NULL; x = x->beside)
			stop_servers(x);
		vb_sched_kill_all(first->sched);
	}
	for (struct explore *x = first; x != NULL; x = x->beside)
		close_space(x);
	err = vb_fabric_close(first->fabric);
	for (struct explore *x = first; x != NULL; x = x->beside)
		vb_audit_close(x->audit);
	return err;
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

static void end_faults(struct explore *x)
{
	const struct vb_sim_faults *f = &x->d->faults;
	/* Clocks are no fault. */
	const struct vb_sim_faults none = {.drift_max_ppb = f->drift_max_ppb,
					   .node_clocks = f->node_clocks,
					   .drift_edge = f->drift_edge,
					   .common_error_max_ns = f->common_error_max_ns};

	vb_sim_set_faults(x->fabric, &none);
}

static void heal(struct explore *x)
{
	x->live = true;
	for (unsigned i = 0; i < x->d->clients; i++) {
		struct slot *s = &x->slots[i];

		if (s->client != NULL)
			vb_sim_ep_mortal(s->client->ep, false);
		if (s->life != NULL)
			vb_task_wake(s->life);
	}
}

/* Somebody may wait for ever, and may do so: for a lock that is lost, or that a place left behind in
 * its queue has lost without anybody hearing of it. */
static bool may_be_lost(const struct explore *x)
{
	bool leaves_proxies = explore_leaves_places(x->ops) &&
			      (x->d->p_timeout > 0 || x->d->cancel_every_ns != 0);

	return x->forsaken != 0 || (x->d->loses && leaves_proxies);
}

static bool is_over(const struct explore *first)
{
	bool wrong = false;

	for (const struct explore *x = first; x != NULL; x = x->beside)
		wrong |= x->wrong;
	return wrong || vb_campaign_stopped(first->stop);
}

/* Until every client of every space has done its attempts. */
static int run_safety(struct explore *first)
{
	uint64_t until = 0;
	int err = 0;

	for (struct explore *x = first; x != NULL; x = x->beside)
		until = x->d->safety_ns > until ? x->d->safety_ns : until;
	until += vb_sched_now(first->sched);
	for (struct explore *x = first; x != NULL && err == 0; x = x->beside)
		err = vb_sched_run(first->sched, &x->all_safe, until);
	return err;
}

static void run_phases(struct explore *first)
{
	int err = run_safety(first);
	uint64_t begin, most = 0;
	bool lost = false;

	for (struct explore *x = first; x != NULL; x = x->beside) {
		lost |= may_be_lost(x);
		most = x->d->liveness_ns > most ? x->d->liveness_ns : most;
	}
	if (lost || is_over(first))
		return;
	for (struct explore *x = first; x != NULL; x = x->beside)
		end_faults(x);
	explore_let_land(first);
	begin = vb_sched_now(first->sched);
	for (struct explore *x = first; x != NULL; x = x->beside)
		heal(x);
	if (err != -EDEADLK)
		err = vb_sched_run(first->sched, (const bool *)first->stop, begin + most);
	if (is_over(first))
		return;
	for (struct explore *x = first; x != NULL; x = x->beside) {
		/* A verb that was under way when the faults ended may have been lost all the same. */
		if (err && x->err == 0 && x->forsaken == 0)
			tell_stuck(x, begin, err);
		for (unsigned i = 0; i < x->d->clients; i++)
			if (x->slots[i].client != NULL)
				judge_order(&x->slots[i], x->slots[i].client);
	}
}

static void add_counts(struct vb_explore_result *r, const struct vb_audit_counts *c)
{
	r->audit.checked_ops += c->checked_ops;
	r->audit.violations += c->violations;
	r->audit.lost += c->lost;
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++) {
		r->audit.by_rule[i] += c->by_rule[i];
		r->audit.forgiven[i] += c->forgiven[i];
		r->forgiven += c->forgiven[i];
	}
	if (c->max_bypass > r->audit.max_bypass)
		r->audit.max_bypass = c->max_bypass;
}

static int keep_stories(struct explore *first)
{
	struct vb_explore_result *r = first->result;
	struct vb_audit_counts c;
	size_t size;
	FILE *f;

	for (struct explore *x = first; x != NULL; x = x->beside) {
		vb_audit_counts(x->audit, &c);
		add_counts(r, &c);
	}
	if (r->audit.violations == 0)
		return 0;
	f = open_memstream(&r->stories, &size);
	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for the story of a violation");
	vb_audit_print(first->audit, f);
	if (first->beside != NULL) {
		vb_audit_counts(first->beside->audit, &c);
		vb_audit_print(first->beside->audit, f);
		if (c.violations != 0)
			fprintf(f, "the last %" PRIu64 " in the second space, of %s\n",
				c.violations, first->beside->ops->name);
	}
	fclose(f);
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		if (!strncmp(r->stories, vb_audit_rule_names[i], strlen(vb_audit_rule_names[i])))
			r->first_rule = i;
	return 0;
}

/* The space beside the first, which shares its fabric. */
static int open_beside(struct explore *first, struct vb_explore_draw *d,
		       struct vb_explore_result *result)
{
	struct explore *x;

	if (first->d->beside == NULL)
		return 0;
	x = calloc(1, sizeof(*x));
	if (x == NULL)
		return vb_fail(-ENOMEM, "no memory for a second lock space");
	explore_draw_beside(first->d, d);
	x->ops = d->ops;
	x->d = d;
	x->result = result;
	x->stop = first->stop;
	x->fabric = first->fabric;
	x->sched = first->sched;
	first->beside = x;
	return open_space(x, "beside");
}

int vb_explore_run(const struct vb_lock_ops *ops, const struct vb_explore_draw *d,
		   struct vb_explore_result *out)
{
	return vb_explore_record(ops, d, NULL, NULL, out);
}

int vb_explore_record(const struct vb_lock_ops *ops, const struct vb_explore_draw *d,
		      struct vb_lock_history *history, const volatile bool *stop,
		      struct vb_explore_result *out)
{
	struct explore *x = calloc(1, sizeof(*x));
	struct vb_explore_result result = {0};
	struct vb_explore_draw drawn;
	int err, closed;

	*out = (struct vb_explore_result){0};
	if (x == NULL)
		return vb_fail(-ENOMEM, "no memory to explore a seed");
	x->ops = ops;
	x->d = d;
	x->result = out;
	x->history = history;
	x->stop = stop;
	vb_sites_begin(d->seed);
	err = open_fabric(x);
	if (err == 0)
		err = open_space(x, NULL);
	if (err == 0)
		err = open_beside(x, &drawn, &result);
	for (struct explore *e = x; e != NULL && err == 0; e = e->beside)
		err = start_clients(e);
	if (err == 0) {
		run_phases(x);
		err = vb_campaign_stopped(x->stop) ? -ECANCELED : 0;
		out->verbs = vb_sim_verbs(x->fabric);
		out->late_verbs = vb_sim_late_verbs(x->fabric);
		out->virtual_ns = vb_sim_now(x->fabric);
		out->trace_hash = vb_sim_trace_hash(x->fabric);
		for (struct explore *e = x; e != NULL; e = e->beside)
			explore_judge_keeps(e);
		if (err == 0)
			err = keep_stories(x);
	}
	for (struct explore *e = x; e != NULL && err == 0; e = e->beside)
		err = e->wrong ? 0 : e->err;
	vb_sites_end();
	closed = tear_down(x);
	free(x->beside);
	free(x);
	return err != 0 ? err : closed;
}
