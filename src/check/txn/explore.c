/* SPDX-License-Identifier: Apache-2.0 */
/* Running one seed of a transaction protocol: who is in the world, its phases, its end. */
#define VB_LOG_ROOM "check"
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "cc/sundial.h"
#include "check/campaign.h"
#include "check/txn/world.h"

#define HISTORY_BYTES (16u << 20)
#define SETTLE_NS     1000000ull

/* ---- setting up and tearing down ---- */

static int open_fabric(struct txn_world *w)
{
	const struct vb_txn_draw *d = w->d;
	char options[96];
	struct vb_fabric_params p = {
		.fabric = "sim",
		.options = options,
		.nodes = (uint16_t)(d->nodes + d->homes),
		.node_bytes = d->homes != 0 ? 48 << 20 : 24 << 20,
		.endpoints = 128,
		.seed = d->seed,
	};
	int err;

	snprintf(options, sizeof(options), "profile=%s,bound=%" PRIu64 "ns,scope=%s",
		 d->profile->name, txn_true_bound_ns(d), d->global ? "global" : "nic");
	err = vb_fabric_open(&p, &w->fabric);
	if (err)
		return err;
	if (d->memory)
		vb_sim_as_memory(w->fabric);
	txn_beyond_open(w);
	w->sched = vb_sched_self();
	return 0;
}

/* Records whose leases are as long as they can be, but for a few. */
static void end_time(struct txn_world *w, struct vb_table *t, uint64_t keys)
{
	for (uint64_t k = 0; k < keys; k++) {
		vb_addr at = vb_table_find(t, vb_table_node(t, k), k);
		unsigned char *tuple = at != 0 ? vb_local(w->fabric, at, t->layout.bytes) : NULL;

		if (tuple != NULL)
			vb_tuple_set_word(tuple, t->layout.lock_at, SUNDIAL_LAST - w->d->time_left);
	}
}

/* As many coordinators as a node may have: so many as are there at a time, and who comes has to take the places of who
 * has gone; or as many as ever come. */
static uint32_t places_each(const struct vb_txn_draw *d)
{
	return d->tight ? (d->coordinators + d->nodes - 1) / d->nodes : TXN_DEATHS_MAX + 16;
}

static int open_db(struct txn_world *w)
{
	const struct vb_txn_draw *d = w->d;
	const unsigned items = d->p_scan > 0 ? 64 : 16;
	const struct vb_db_params p = {
		.cc = w->cc->name,
		.hybrid = d->hybrid,
		.coordinators = places_each(d),
		.items_max = items,
		.bytes_max = items * d->record_bytes,
		.record_bytes_max = d->record_bytes,
		.lease_ns = d->lease_ns,
		.wait_ns = d->wait_ns,
		.hot_from = d->hot_from,
		.snapshot_lag_ns = d->lag_ns,
		.no_recovery = !d->recovery,
		.no_doorbell = !d->doorbell,
		.no_outstanding = !d->outstanding,
		.passive_ack = d->passive_ack,
		.cache_entries = d->cache ? 0 : 1,
		.copies = d->copies,
	};
	const struct vb_table_params account = {
		.name = "account", .record_bytes = d->record_bytes, .records = d->accounts};
	const struct vb_table_params note = {
		.name = "note", .record_bytes = d->record_bytes, .records = d->notes};
	unsigned char record[256];
	int err = vb_db_open(w->fabric, &p, &w->db);

	if (err == 0)
		w->db->store.nodes = (uint16_t)d->nodes;
	/* Where no place is given away, where a key was is as good as where it is. */
	if (err == 0 && (!d->scarce || d->p_scan == 0))
		w->db->epoch_ns = VB_FOREVER;
	if (err == 0)
		err = vb_table_open(w->db, &account, &w->account);
	if (err == 0)
		err = vb_table_open(w->db, &note, &w->note);
	txn_record_fill(w, record, TXN_MONEY);
	for (uint64_t k = 0; k < d->accounts && err == 0; k++)
		err = vb_table_load(w->account, k, record);
	for (uint64_t k = 0; k < d->notes && err == 0; k += 2)
		err = vb_table_load(w->note, k, record);
	if (err == 0 && d->time_left != 0) {
		end_time(w, w->account, d->accounts);
		end_time(w, w->note, d->notes);
	}
	if (err == 0)
		err = txn_line_open(w);
	return err == 0 ? txn_servers_start(w) : err;
}

static int open_world(struct txn_world *w)
{
	int err = open_fabric(w);

	if (err == 0)
		err = open_db(w);
	if (err == 0)
		err = vb_history_open(HISTORY_BYTES, &w->history);
	if (err)
		return err;
	w->stranger = (struct vb_table){.store = &w->strange, .name = "stranger"};
	txn_watch_open(w);
	err = txn_beside_start(w);
	if (err)
		return err;
	w->faults = w->d->faults;
	vb_sim_set_faults(w->fabric, &w->faults);
	vb_sim_on_death(w->fabric, txn_on_death, w);
	return 0;
}

static void tear_down(struct txn_world *w)
{
	if (w->db != NULL)
		vb_task_sleep_until(vb_sched_now(w->sched) + SETTLE_NS + w->d->faults.stall_max_ns);
	txn_servers_stop(w);
	txn_beside_stop(w);
	if (w->sched != NULL)
		vb_sched_kill_all(w->sched);
	txn_servers_bury(w);
	for (unsigned i = 0; i < w->d->coordinators; i++)
		vb_coordinator_bury(w->slot[i].me);
	for (unsigned i = 0; i < w->n_dead; i++)
		vb_coordinator_bury(w->dead[i]);
	txn_beside_bury(w);
	vb_db_close(w->db);
	if (w->fabric != NULL)
		vb_fabric_close(w->fabric);
	vb_history_close(w->history);
}

/* ---- the phases ---- */

static void tell_stuck(struct txn_world *w, int err)
{
	for (unsigned i = 0; i < w->d->coordinators; i++) {
		const struct txn_slot *s = &w->slot[i];

		if (s->end == TXN_DONE)
			continue;
		txn_found(w, VB_TXN_RULE_STUCK,
			  "coordinator %u is at a %s since the faults ended (%u of %u commits, the "
			  "last attempt ended: %s), and %s",
			  i, s->doing != NULL ? s->doing : "loss", s->commits, w->d->commits,
			  s->me != NULL ? vb_txn_cause_names[s->me->txn.cause] : "no coordinator",
			  err == -EDEADLK ? "nothing can wake it any more"
					  : "the bound has passed");
	}
}

static void heal(struct txn_world *w)
{
	static const struct vb_sim_faults none;

	vb_sim_set_faults(w->fabric, &none);
	w->live = true;
	txn_servers_heal(w);
	txn_lives_heal(w);
}

static void sweep_failed(struct txn_world *w, const char *call, int err)
{
	if (err == -ENOMEM)
		w->err = err;
	else
		txn_found(w, VB_TXN_RULE_WRONG_ERROR,
			  "%s returned %d (%s), though nothing is wrong any more", call, err,
			  vb_strerror(err));
}

static void sweep_db(struct txn_world *w, struct vb_db *db)
{
	struct vb_coordinator *me;
	uint64_t freed;
	int err = vb_coordinator_open(db, 0, &me);

	if (err) {
		sweep_failed(w, "vb_coordinator_open", err);
		return;
	}
	for (uint16_t n = 0; n < w->d->nodes + w->d->homes && err == 0; n++)
		if (n < w->d->nodes || !w->gone[n - w->d->nodes])
			err = vb_db_recover(me, n, &freed);
	if (err)
		sweep_failed(w, "vb_db_recover", err);
	txn_count(w, me);
	vb_coordinator_close(me);
}

/* What the dead hold where nobody came by, and those who could not finish. */
static void sweep_body(void *arg)
{
	struct txn_world *w = arg;
	struct vb_db *beside = txn_beside_db(w);

	sweep_db(w, w->db);
	if (beside != NULL && w->err == 0)
		sweep_db(w, beside);
}

static void sweep(struct txn_world *w)
{
	static const struct vb_task_params params = {.name = "sweeper"};
	struct vb_task *t;
	int err = vb_task_spawn(w->sched, sweep_body, w, &params, &t);

	if (err == 0)
		err = vb_sched_run(w->sched, (const bool *)w->stop,
				   vb_sched_now(w->sched) + w->d->liveness_ns * 4);
	if (vb_campaign_stopped(w->stop))
		w->err = -ECANCELED;
	if (err && w->err == 0)
		txn_found(w, VB_TXN_RULE_STUCK, "vb_db_recover does not come to its end");
}

/* What was given up before the faults ended. */
static void let_land(struct txn_world *w)
{
	vb_task_sleep_until(vb_sched_now(w->sched) + txn_true_bound_ns(w->d));
}

static void run_phases(struct txn_world *w)
{
	uint64_t begin = vb_sched_now(w->sched);
	int err = vb_sched_run(w->sched, &w->all_safe, begin + w->d->safety_ns);

	if (vb_campaign_stopped(w->stop)) {
		w->err = -ECANCELED;
		return;
	}
	begin = vb_sched_now(w->sched);
	heal(w);
	if (err == -EDEADLK) {
		txn_settle_pending(w);
		tell_stuck(w, err);
		return;
	}
	if (w->err == 0)
		err = vb_sched_run(w->sched, (const bool *)w->stop, begin + w->d->liveness_ns);
	if (vb_campaign_stopped(w->stop))
		w->err = -ECANCELED;
	if (w->err != 0)
		return;
	let_land(w);
	txn_settle_pending(w);
	if (err) {
		tell_stuck(w, err);
		return;
	}
	if (w->d->calm)
		txn_look_for_locks(w, "nobody has died or lost an answer");
	if (w->d->recovery)
		sweep(w);
}

static int write_history(const struct txn_world *w, FILE *to)
{
	const struct vb_history *parts[] = {w->history};

	return vb_history_write_jsonl(parts, 1, txn_level(w), to);
}

int vb_txn_explore_to(const struct vb_cc_ops *cc, const struct vb_txn_draw *d, FILE *history,
		      const volatile bool *stop, struct vb_txn_explored *out)
{
	struct txn_world *w = calloc(1, sizeof(*w));
	int err;

	*out = (struct vb_txn_explored){0};
	if (w == NULL)
		return vb_fail(-ENOMEM, "no memory to explore a seed");
	w->cc = cc;
	w->d = d;
	w->out = out;
	w->stop = stop;
	vb_sites_begin(d->seed);
	w->stories = open_memstream(&w->story_text, &w->story_size);
	err = w->stories == NULL ? -ENOMEM : open_world(w);
	if (err == 0)
		err = txn_lives_start(w);
	if (err == 0) {
		run_phases(w);
		out->verbs = vb_sim_verbs(w->fabric);
		out->virtual_ns = vb_sim_now(w->fabric);
		out->trace_hash = vb_sim_trace_hash(w->fabric);
		if (w->err == 0)
			txn_judge(w);
		/* A call that returned what it may not has ended it: that is found, and no more. */
		err = w->wrong ? 0 : w->err;
		if (err == 0 && history != NULL)
			err = write_history(w, history);
	}
	vb_sites_end();
	tear_down(w);
	if (w->stories != NULL)
		fclose(w->stories);
	if (out->violations > 0)
		out->stories = w->story_text;
	else
		free(w->story_text);
	free(w->ledger);
	free(w->words);
	free(w->place);
	free(w);
	return err;
}

int vb_txn_explore(const struct vb_cc_ops *cc, const struct vb_txn_draw *d,
		   struct vb_txn_explored *out)
{
	return vb_txn_explore_to(cc, d, NULL, NULL, out);
}
