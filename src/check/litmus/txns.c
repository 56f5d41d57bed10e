/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Small worlds of transactions: two to four coordinators with one transaction each, at nodes of their
 * own, and the records at another.  When all are through, an heir recovers what the dead have left,
 * and must be able to read and write every record.  Judged is the history, by the checker that judges
 * all of them, and that no lock stands.
 */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "check/litmus/engine.h"
#include "check/txn/serial.h"
#include "txn/db.h"
#include "txn/protocol.h"

#define PARTIES_MAX 4u
#define KEYS        2u
#define STEPS_MAX   8u
#define OPS_MAX     16u

#define STEP_NS        16u
#define BOUND_NS       20000u
#define LEASE_NS       2000000u
#define SHORT_BOUND_NS 2500u /* where somebody is struck */
#define SHORT_LEASE_NS 10000u
#define PATIENCE_NS    20000000u
#define HEIR_TRIES     200u
#define HISTORY_BYTES  65536u

enum call { CALL_END, CALL_GET, CALL_UPDATE, CALL_WRITE, CALL_DELETE, CALL_INSERT, CALL_ABORT };

struct step {
	uint8_t call, key;
};

#define GET(KEY)                                                                                   \
	{                                                                                          \
		CALL_GET, KEY                                                                      \
	}
#define UPDATE(KEY)                                                                                \
	{                                                                                          \
		CALL_UPDATE, KEY                                                                   \
	}
#define WRITE(KEY)                                                                                 \
	{                                                                                          \
		CALL_WRITE, KEY                                                                    \
	}
#define DELETE(KEY)                                                                                \
	{                                                                                          \
		CALL_DELETE, KEY                                                                   \
	}
#define INSERT(KEY)                                                                                \
	{                                                                                          \
		CALL_INSERT, KEY                                                                   \
	}
#define ABORT                                                                                      \
	{                                                                                          \
		CALL_ABORT, 0                                                                      \
	}

#define DIES   (1u << VB_SIM_DIES_BEFORE | 1u << VB_SIM_DIES_AFTER)
#define PAUSES (1u << VB_SIM_PAUSES_BEFORE | 1u << VB_SIM_PAUSES_AFTER)
#define LOSES  (1u << VB_SIM_LOSES_ANSWER | 1u << VB_SIM_LOSES_VERB)

struct vb_litmus_txn {
	const char *name, *summary;
	uint32_t strikes; /* what may befall the first party, once */
	unsigned leases;  /* for which it then stands still */
	unsigned parties;
	struct step steps[PARTIES_MAX][STEPS_MAX];
};

static const struct vb_litmus_txn lost_update = {
	.name = "lost-update",
	.summary = "two transactions read and write one record",
	.parties = 2,
	.steps = {{UPDATE(0)}, {UPDATE(0)}},
};

static const struct vb_litmus_txn write_skew = {
	.name = "write-skew",
	.summary = "two transactions read both records, and write one each",
	.parties = 2,
	.steps = {{GET(0), GET(1), UPDATE(0)}, {GET(0), GET(1), UPDATE(1)}},
};

static const struct vb_litmus_txn read_skew = {
	.name = "read-skew",
	.summary = "one transaction writes both records, another reads them",
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1)}, {GET(0), GET(1)}},
};

static const struct vb_litmus_txn blind_writes = {
	.name = "blind-writes",
	.summary = "two transactions write both records unread, in the other's order",
	.parties = 2,
	.steps = {{WRITE(0), WRITE(1)}, {WRITE(1), WRITE(0)}},
};

static const struct vb_litmus_txn crossed = {
	.name = "crossed-updates",
	.summary = "two transactions read and write both records, in the other's order",
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1)}, {UPDATE(1), UPDATE(0)}},
};

static const struct vb_litmus_txn gives_up = {
	.name = "dirty-read",
	.summary = "one transaction writes and gives up, another reads that and writes",
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1), ABORT}, {GET(0), UPDATE(1)}},
};

static const struct vb_litmus_txn frees_other = {
	.name = "abort-between",
	.summary = "three transactions write one record, and one of them gives up",
	.parties = 3,
	.steps = {{UPDATE(0)}, {UPDATE(0), ABORT}, {UPDATE(0)}},
};

static const struct vb_litmus_txn long_fork = {
	.name = "long-fork",
	.summary = "two transactions write a record each, two read both",
	.parties = 4,
	.steps = {{UPDATE(0)}, {UPDATE(1)}, {GET(0), GET(1)}, {GET(1), GET(0)}},
};

static const struct vb_litmus_txn comes_and_goes = {
	.name = "delete-insert",
	.summary = "one transaction deletes a record, another inserts it",
	.parties = 2,
	.steps = {{DELETE(0), UPDATE(1)}, {GET(1), INSERT(0)}},
};

static const struct vb_litmus_txn dies = {
	.name = "dies",
	.summary = "two transactions read and write both records; one coordinator dies",
	.strikes = DIES,
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1)}, {UPDATE(0), UPDATE(1)}},
};

static const struct vb_litmus_txn pauses = {
	.name = "stands-still",
	.summary = "two transactions write and read; one coordinator stands still for leases",
	.strikes = PAUSES,
	.leases = 3,
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1)}, {GET(0), UPDATE(1)}},
};

static const struct vb_litmus_txn loses = {
	.name = "lost-answer",
	.summary = "two transactions read and write a record; one loses an answer",
	.strikes = LOSES,
	.parties = 2,
	.steps = {{UPDATE(0)}, {UPDATE(0)}},
};

const struct vb_litmus_txn *const vb_litmus_txns[] = {
	&lost_update, &write_skew,     &read_skew, &blind_writes, &crossed, &gives_up, &frees_other,
	&long_fork,   &comes_and_goes, &dies,      &pauses,       &loses,   NULL,
};

const char *vb_litmus_txn_name(const struct vb_litmus_txn *w)
{
	return w->name;
}

const char *vb_litmus_txn_summary(const struct vb_litmus_txn *w)
{
	return w->summary;
}

/* ---- a world ---- */

struct party {
	struct world *x;
	unsigned index;
	struct vb_coordinator *me;
	bool ended, dead;
	uint64_t begin_ns;
	const char *doing; /* for the story of who is stuck */
	/* What it has asked to commit and does not know the fate of. */
	bool asked;
	struct vb_history_txn txn;
	struct vb_history_op op[OPS_MAX];
};

struct world {
	const struct vb_litmus_txn *w;
	const struct vb_cc_ops *cc;
	struct litmus *l;
	struct vb_fabric *fabric;
	struct vb_sched *sched;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_db_server *server[PARTIES_MAX + 1];
	struct vb_history *history;
	struct vb_txn_watch watch;
	struct vb_task *waiter;
	uint64_t next_id, lease_ns;
	unsigned n_ended;
	int heir_err;
	struct party party[PARTIES_MAX + 1]; /* the last: the heir */
};

/* All records are on the last node. */
static uint64_t key_of(const struct world *x, unsigned key)
{
	return x->w->parties + (uint64_t)key * (x->w->parties + 1);
}

/* ---- the history ---- */

static void gather(struct party *p, const struct vb_txn *t, enum vb_history_outcome outcome)
{
	p->txn = (struct vb_history_txn){
		.begin_ns = p->begin_ns,
		.client = (uint16_t)p->index,
		.outcome = (uint8_t)outcome,
	};
	for (unsigned i = 0; i < t->n && p->txn.n_ops + 2 <= OPS_MAX; i++) {
		const struct vb_item *it = &t->item[i];
		uint64_t made = it->next != 0 ? it->next : t->version;

		if (!(it->flags & VB_ITEM_NOTED))
			continue;
		if (it->flags & VB_ITEM_READ)
			p->op[p->txn.n_ops++] = (struct vb_history_op){
				.key = it->key,
				.version = it->fetched,
				.table = it->table->id,
				.kind = VB_HISTORY_READ,
				.absent = (it->fetched & VB_VERSION_ABSENT) != 0,
			};
		if (it->flags & VB_ITEM_WRITE)
			p->op[p->txn.n_ops++] = (struct vb_history_op){
				.key = it->key,
				.version = made,
				.prev = it->fetched,
				.table = it->table->id,
				.kind = VB_HISTORY_WRITE,
				.absent = (made & VB_VERSION_ABSENT) != 0,
			};
	}
}

static void add(struct party *p)
{
	p->asked = false;
	p->txn.id = ++p->x->next_id;
	p->txn.end_ns = vb_sched_now(p->x->sched);
	(void)vb_history_add(p->x->history, &p->txn, p->op);
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct party *p = &((struct world *)ctx)->party[t->me->index];

	gather(p, t, VB_HISTORY_UNKNOWN);
	p->asked = true;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	struct party *p = &((struct world *)ctx)->party[t->me->index];

	if (committed)
		p->txn.outcome = VB_HISTORY_COMMITTED;
	else
		gather(p, t, VB_HISTORY_ABORTED);
	add(p);
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	add(&((struct world *)ctx)->party[t->me->index]);
}

/* ---- what a party does ---- */

static void party_ends(struct party *p)
{
	if (p->ended)
		return;
	p->ended = true;
	p->x->n_ended++;
	if (p->x->waiter != NULL)
		vb_task_wake(p->x->waiter);
}

static void on_death(struct vb_ep *ep, void *arg)
{
	struct world *x = arg;

	for (unsigned i = 0; i < x->w->parties; i++) {
		struct party *p = &x->party[i];

		if (p->me == NULL || p->me->ep != ep)
			continue;
		/* Whether it has happened shows in what others read. */
		if (p->asked)
			add(p);
		p->dead = true;
		party_ends(p);
	}
}

static void say(const struct party *p, const char *what, int err)
{
	litmus_say(p->x->l, "  %10.3f us           coordinator %u: %s%s%s\n",
		   (double)vb_sched_now(p->x->sched) / 1e3, p->index, what, err == 0 ? "" : ": ",
		   err == 0 ? "" : vb_strerror(err));
}

static int do_step(struct party *p, const struct step *s)
{
	const uint64_t key = key_of(p->x, s->key), value = 100 + p->index;
	struct vb_table *t = p->x->table;
	const void *seen;
	void *record;
	int err;

	switch ((enum call)s->call) {
	case CALL_GET:
		return vb_txn_get(p->me, t, key, &seen);
	case CALL_UPDATE:
		err = vb_txn_update(p->me, t, key, &record);
		if (err == 0)
			memcpy(record, &value, sizeof(value));
		return err;
	case CALL_WRITE:
		return vb_txn_write(p->me, t, key, &value);
	case CALL_DELETE:
		return vb_txn_delete(p->me, t, key);
	default:
		return vb_txn_insert(p->me, t, key, &value);
	}
}

/* 0: committed; or why not. */
static int transact(struct party *p, const struct step *s)
{
	static const char *const names[] = {
		[CALL_GET] = "get",       [CALL_UPDATE] = "update", [CALL_WRITE] = "write",
		[CALL_DELETE] = "delete", [CALL_INSERT] = "insert", [CALL_ABORT] = "abort"};
	int err;

	p->begin_ns = vb_sched_now(p->x->sched);
	p->doing = "begin";
	err = vb_txn_begin(p->me);
	for (; s->call != CALL_END && s->call != CALL_ABORT && err == 0; s++) {
		p->doing = names[s->call];
		say(p, names[s->call], 0);
		err = do_step(p, s);
		if (err == -ENOENT || err == -EEXIST)
			err = 0;
	}
	if (vb_sim_ep_dead(p->me->ep))
		vb_task_die();
	if (err != 0 || s->call == CALL_ABORT) {
		p->doing = "abort";
		say(p, "abort", err);
		vb_txn_abort(p->me);
		return err;
	}
	p->doing = "commit";
	say(p, "commit", 0);
	err = vb_txn_commit(p->me);
	if (vb_sim_ep_dead(p->me->ep))
		vb_task_die();
	say(p, err == 0 ? "committed" : "not committed", err);
	if (vb_txn_cause(p->me) == VB_TXN_REFUSED)
		litmus_found(p->x->l, "refused",
			     "refused: what a commit has is not what may be written\n");
	return err;
}

static void party_body(void *arg)
{
	struct party *p = arg;
	int err = transact(p, p->x->w->steps[p->index]);
	char story[128];

	p->doing = NULL;
	if (err != 0 && err != -EAGAIN && err != -EPROTO && !p->x->l->struck) {
		snprintf(story, sizeof(story), "answer: coordinator %u was told %s\n", p->index,
			 vb_strerror(err));
		litmus_found(p->x->l, "answer", story);
	}
	party_ends(p);
}

static void wait_for_all(void *arg)
{
	struct world *x = arg;

	while (x->n_ended < x->w->parties)
		vb_task_suspend(VB_FOREVER);
}

/* ---- afterwards ---- */

static const struct step heirs_steps[] = {UPDATE(0), UPDATE(1), {CALL_END, 0}};

/* Recovers what the dead have left, and gets every record. */
static void heir_body(void *arg)
{
	struct world *x = arg;
	struct party *p = &x->party[x->w->parties];
	uint64_t freed;

	x->heir_err = vb_coordinator_open(x->db, (uint16_t)x->w->parties, &p->me);
	if (x->heir_err != 0) {
		p->me = NULL;
		return;
	}
	p->me->index = p->index;
	for (uint16_t n = 0; n <= x->w->parties && x->w->strikes != 0; n++)
		x->heir_err = x->heir_err ? x->heir_err : vb_db_recover(p->me, n, &freed);
	for (unsigned i = 0; i < HEIR_TRIES && (i == 0 || x->heir_err == -EAGAIN); i++) {
		x->heir_err = transact(p, heirs_steps);
		if (x->heir_err == -EAGAIN)
			vb_ep_sleep(p->me->ep, x->lease_ns / 8);
	}
	vb_coordinator_close(p->me);
	p->me = NULL;
}

static void look_for_locks(struct world *x)
{
	const struct vb_tuple_layout *l = &x->table->layout;
	char story[160];

	for (unsigned k = 0; k < KEYS; k++) {
		const uint64_t key = key_of(x, k);
		vb_addr at = vb_table_find(x->table, vb_table_node(x->table, key), key);
		const unsigned char *tuple = at != 0 ? vb_local(x->fabric, at, l->bytes) : NULL;
		uint64_t word = tuple != NULL ? vb_tuple_word(tuple, l->lock_at) : 0;

		if (tuple == NULL || x->cc->holder(word) == VB_NO_PLACE)
			continue;
		snprintf(story, sizeof(story),
			 "leaked-lock: record %u is held by %#" PRIx64
			 " although nobody runs any more\n",
			 k, word);
		litmus_found(x->l, "leaked-lock", story);
	}
}

static void judge_history(struct world *x)
{
	static const char *const tables[] = {"record"};
	const struct vb_history *parts[] = {x->history};
	const struct vb_serial_params p = {
		.parts = parts,
		.n_parts = 1,
		.level = x->cc->caps & VB_CC_STRICT ? VB_LEVEL_STRICT : VB_LEVEL_SERIALIZABLE,
		.table_names = tables,
		.n_tables = 1,
	};
	struct vb_serial_result r;
	char *story = NULL;
	size_t size;
	FILE *f;
	int err = vb_serial_check(&p, &r);
	bool is_planted; /* a bug may be, by the name of its anomaly */

	if (err == 0 && r.first == VB_ANOMALY_NONE) {
		vb_serial_result_free(&r);
		return;
	}
	is_planted = err == 0 && x->l->p->rule != NULL &&
		     !strcmp(x->l->p->rule, vb_anomaly_names[r.first]);
	f = open_memstream(&story, &size);
	if (f != NULL) {
		fprintf(f, "not-serializable: %s\n%s\n",
			err == 0 ? vb_anomaly_names[r.first] : "no history at all",
			err == 0 && r.story != NULL ? r.story : "");
		fclose(f);
		litmus_found(x->l, is_planted ? x->l->p->rule : "not-serializable", story);
	}
	free(story);
	if (err == 0)
		vb_serial_result_free(&r);
}

static void judge_stuck(struct world *x)
{
	char story[128];

	for (unsigned i = 0; i < x->w->parties; i++) {
		const struct party *p = &x->party[i];

		if (p->ended || p->doing == NULL)
			continue;
		snprintf(story, sizeof(story),
			 "stuck: coordinator %u does not come out of its %s\n", i, p->doing);
		litmus_found(x->l, "stuck", story);
	}
}

static void judge_heir(struct world *x)
{
	static const struct vb_task_params params = {.name = "heir"};
	struct vb_task *t;
	char story[128];
	int err = vb_task_spawn(x->sched, heir_body, x, &params, &t);

	if (err == 0)
		err = vb_sched_run(x->sched, NULL, vb_sched_now(x->sched) + PATIENCE_NS);
	if (err == 0)
		err = x->heir_err;
	if (err == 0)
		return;
	snprintf(story, sizeof(story),
		 "stuck: who came when all were through cannot write every record: %s\n",
		 vb_strerror(err));
	litmus_found(x->l, "stuck", story);
}

/* ---- a run ---- */

static int open_fabric(struct world *x)
{
	const bool is_short = x->w->strikes != 0;
	char options[48];
	struct vb_fabric_params p = {
		.fabric = "sim",
		.options = options,
		.nodes = (uint16_t)(x->w->parties + 1),
		.node_bytes = 384 << 10,
		.endpoints = 32,
		.seed = 1,
	};
	int err;

	snprintf(options, sizeof(options), "profile=zero,bound=%uns",
		 is_short ? SHORT_BOUND_NS : BOUND_NS);
	x->lease_ns = is_short ? SHORT_LEASE_NS : LEASE_NS;
	err = vb_fabric_open(&p, &x->fabric);
	if (err)
		return err;
	x->sched = vb_sched_self();
	vb_sim_on_death(x->fabric, on_death, x);
	return 0;
}

static int open_db(struct world *x)
{
	const struct vb_db_params p = {
		.cc = x->cc->name,
		.hybrid = x->l->p->hybrid,
		.coordinators = 2,
		.items_max = 8,
		.bytes_max = 256,
		.record_bytes_max = 16,
		.lease_ns = x->lease_ns,
		.cache_entries = 1,
	};
	const struct vb_table_params t = {
		.name = "record", .record_bytes = 8, .records = 4 * (x->w->parties + 1)};
	const uint64_t value = 1;
	int err = vb_db_open(x->fabric, &p, &x->db);

	if (err == 0)
		err = vb_table_open(x->db, &t, &x->table);
	for (unsigned k = 0; k < KEYS && err == 0; k++)
		err = vb_table_load(x->table, key_of(x, k), &value);
	for (uint16_t n = 0; n <= x->w->parties && err == 0; n++)
		err = vb_db_server_start(x->db, n, &x->server[n]);
	if (err == 0)
		err = vb_history_open(HISTORY_BYTES, &x->history);
	if (err)
		return err;
	x->watch = (struct vb_txn_watch){
		.ctx = x, .prepared = on_prepared, .ended = on_ended, .unknown = on_unknown};
	x->db->watch = &x->watch;
	return 0;
}

static int open_parties(struct world *x)
{
	static const struct vb_task_params params = {.name = "party", .daemon = true},
					   waiter = {.name = "waiter"};
	struct vb_task *t;
	int err = 0;

	for (unsigned i = 0; i <= x->w->parties; i++)
		x->party[i] = (struct party){.x = x, .index = i};
	for (unsigned i = 0; i < x->w->parties && err == 0; i++) {
		struct party *p = &x->party[i];

		err = vb_coordinator_open(x->db, (uint16_t)i, &p->me);
		if (err)
			p->me = NULL;
		else
			p->me->index = i;
	}
	for (unsigned i = 0; i < x->w->parties && err == 0; i++)
		err = vb_task_spawn(x->sched, party_body, &x->party[i], &params, &t);
	return err ? err : vb_task_spawn(x->sched, wait_for_all, x, &waiter, &x->waiter);
}

static void run_parties(struct world *x)
{
	int err;

	x->l->fabric = x->fabric;
	x->l->chooser.pause_ns = x->w->leases * x->lease_ns + x->lease_ns / 4;
	vb_sim_set_chooser(x->fabric, &x->l->chooser);
	vb_sim_ep_mortal(x->party[0].me->ep, true);
	err = vb_sched_run(x->sched, &x->l->stop, vb_sched_now(x->sched) + PATIENCE_NS);
	vb_sim_set_chooser(x->fabric, NULL);
	if (x->l->stop)
		return;
	if (err != 0) {
		judge_stuck(x);
		judge_history(x);
		return;
	}
	for (unsigned i = 0; i < x->w->parties; i++) {
		struct party *p = &x->party[i];

		if (p->dead)
			continue;
		vb_sim_ep_mortal(p->me->ep, false);
		vb_coordinator_close(p->me);
		p->me = NULL;
	}
	judge_heir(x);
	judge_history(x);
	look_for_locks(x);
}

static void tear_down(struct world *x)
{
	for (unsigned n = 0; n <= x->w->parties; n++)
		if (x->server[n] != NULL)
			vb_db_server_stop(x->server[n]);
	if (x->sched != NULL)
		vb_sched_kill_all(x->sched);
	for (unsigned i = 0; i <= x->w->parties; i++)
		vb_coordinator_bury(x->party[i].me);
	vb_db_close(x->db);
	if (x->fabric != NULL)
		vb_fabric_close(x->fabric);
	vb_history_close(x->history);
}

static int run(struct litmus *l, void *ctx)
{
	struct world *x = ctx;
	const struct vb_litmus_txn *w = x->w;
	const struct vb_cc_ops *cc = x->cc;
	char said[256] = "";
	int err;

	*x = (struct world){.w = w, .cc = cc, .l = l};
	vb_log_capture_begin(said, sizeof(said));
	err = open_fabric(x);
	if (err == 0)
		err = open_db(x);
	if (err == 0)
		err = open_parties(x);
	if (err == 0) {
		run_parties(x);
		l->out->verbs += vb_sim_verbs(x->fabric);
	}
	tear_down(x);
	vb_log_capture_end();
	return err ? vb_fail(err, "%s: %s: %s", cc->name, w->name, said) : 0;
}

static const char *name_verb(void *ctx, const struct vb_sim_verb *v, char *buf, size_t size)
{
	const struct world *x = ctx;
	const uint64_t *word;
	int n = snprintf(buf, size, "node %u: %s", vb_peer_node(v->self), vb_op_names[v->op]);

	if (v->len == 0) {
		snprintf(buf + n, size - (size_t)n, " to node %u", v->node);
		return buf;
	}
	word = vb_local(x->fabric, v->addr, 8);
	n += snprintf(buf + n, size - (size_t)n, " node %u +%#" PRIx64 ", %u bytes", v->node,
		      vb_addr_offset(v->addr), v->len);
	if (v->op != VB_OP_READ && v->op != VB_OP_WRITE && v->op != VB_OP_WRITE_NOTIFY)
		snprintf(buf + n, size - (size_t)n, ": %#" PRIx64 ", %#" PRIx64 ", is %#" PRIx64,
			 v->compare.lo, v->swap.lo, *word);
	return buf;
}

int vb_litmus_txn_run(const struct vb_litmus_txn *w, const struct vb_cc_ops *cc,
		      const struct vb_litmus_params *p, struct vb_litmus_result *out)
{
	struct litmus *l = calloc(1, sizeof(*l));
	struct world *x = calloc(1, sizeof(*x));
	int err = -ENOMEM;

	*out = (struct vb_litmus_result){0};
	if (l == NULL || x == NULL) {
		vb_error("no memory for a small world");
	} else {
		x->w = w;
		x->cc = cc;
		l->chooser.step_ns = STEP_NS;
		l->p = p;
		l->strikes = w->strikes;
		l->delays = p->delays;
		l->name = name_verb;
		l->name_ctx = x;
		l->out = out;
		err = litmus_explore(l, run, x);
	}
	free(l);
	free(x);
	return err;
}
