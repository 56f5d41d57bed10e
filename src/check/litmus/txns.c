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
#include "check/litmus/world.h"
#include "check/txn/gather.h"
#include "check/txn/serial.h"
#include "txn/db.h"
#include "txn/protocol.h"

#define PARTIES_MAX 4u
#define KEYS        3u
#define STEPS_MAX   8u
#define OPS_MAX     16u

#define LEASE_NS      2000000u
#define PATIENCE_NS   20000000u
#define AGED_NS       20000u
#define HEIR_TRIES    200u
#define HISTORY_BYTES 65536u

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

struct vb_litmus_txn {
	const char *name, *summary;
	uint32_t strikes; /* what may befall the first party, once */
	unsigned leases;  /* for which it then stands still */
	unsigned aged;    /* so often record 2 has been written before */
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

/* Whose time has to come behind the third record's may end behind one that began later. */
static const struct vb_litmus_txn aged_skew = {
	.name = "aged-skew",
	.summary = "two transactions read both records, and write one each; one has read a third, "
		   "which is younger",
	.aged = 3,
	.parties = 2,
	.steps = {{GET(2), GET(0), UPDATE(1)}, {GET(1), UPDATE(0)}},
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
	.strikes = LITMUS_DIES,
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1)}, {UPDATE(0), UPDATE(1)}},
};

static const struct vb_litmus_txn pauses = {
	.name = "stands-still",
	.summary = "two transactions write and read; one coordinator stands still for leases",
	.strikes = LITMUS_PAUSES,
	.leases = 3,
	.parties = 2,
	.steps = {{UPDATE(0), UPDATE(1)}, {GET(0), UPDATE(1)}},
};

static const struct vb_litmus_txn loses = {
	.name = "lost-answer",
	.summary = "two transactions read and write a record; one loses an answer",
	.strikes = LITMUS_LOSES,
	.parties = 2,
	.steps = {{UPDATE(0)}, {UPDATE(0)}},
};

const struct vb_litmus_txn *const vb_litmus_txns[] = {
	&lost_update, &write_skew, &aged_skew,      &read_skew, &blind_writes, &crossed, &gives_up,
	&frees_other, &long_fork,  &comes_and_goes, &dies,      &pauses,       &loses,   NULL,
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
	struct litmus_party is;
	struct vb_coordinator *me;
	uint64_t begin_ns;
	const char *doing; /* for the story of who is stuck */
	/* What it has asked to commit and does not know the fate of. */
	bool asked;
	struct vb_history_txn txn;
	struct vb_history_op op[OPS_MAX];
};

struct world {
	struct litmus_world all;
	const struct vb_litmus_txn *w;
	const struct vb_cc_ops *cc;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_db_server *server[PARTIES_MAX + 1];
	struct vb_history *history;
	struct vb_txn_watch watch;
	uint64_t next_id;
	int heir_err;
	struct party party[PARTIES_MAX + 1]; /* the last: the heir */
};
_Static_assert(PARTIES_MAX <= LITMUS_PARTIES_MAX, "those of a world");

static struct world *world_of(const struct litmus_world *x)
{
	return vb_container_of(x, struct world, all);
}

static struct party *party_of(struct litmus_party *p)
{
	return vb_container_of(p, struct party, is);
}

static void begin(struct litmus_world *all)
{
	struct world *x = world_of(all);

	*x = (struct world){.all = *all, .w = x->w, .cc = x->cc};
	for (unsigned i = 0; i < PARTIES_MAX; i++)
		x->all.party[i] = &x->party[i].is;
	x->party[all->parties].is = (struct litmus_party){.x = all, .index = all->parties};
}

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
		.n_ops = vb_history_gather(t, p->op, OPS_MAX),
		.client = (uint16_t)p->is.index,
		.outcome = (uint8_t)outcome,
	};
}

static void add(struct party *p)
{
	struct world *x = world_of(p->is.x);

	p->asked = false;
	p->txn.id = ++x->next_id;
	p->txn.end_ns = vb_sched_now(x->all.sched);
	(void)vb_history_add(x->history, &p->txn, p->op);
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

/* Whether it has happened shows in what others read. */
static void died(struct litmus_party *p)
{
	if (party_of(p)->asked)
		add(party_of(p));
}

static void say(const struct party *p, const char *what, int err)
{
	const struct litmus_party *is = &p->is;

	litmus_say(is->x->l, "  %10.3f us           coordinator %u: %s%s%s\n",
		   (double)vb_sched_now(is->x->sched) / 1e3, is->index, what, err == 0 ? "" : ": ",
		   err == 0 ? "" : vb_strerror(err));
}

static int do_step(struct party *p, const struct step *s)
{
	const struct world *x = world_of(p->is.x);
	const uint64_t key = key_of(x, s->key), value = 100 + p->is.index;
	struct vb_table *t = x->table;
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

	p->begin_ns = vb_sched_now(p->is.x->sched);
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
		litmus_found(p->is.x->l, "refused",
			     "refused: what a commit has is not what may be written\n");
	return err;
}

static void live(struct litmus_party *is)
{
	struct party *p = party_of(is);
	int err = transact(p, world_of(is->x)->w->steps[is->index]);
	char story[128];

	p->doing = NULL;
	if (litmus_world_starves(is->x, err))
		return;
	if (err != 0 && err != -EAGAIN && err != -EPROTO && !is->x->l->struck) {
		snprintf(story, sizeof(story), "answer: coordinator %u was told %s\n", is->index,
			 vb_strerror(err));
		litmus_found(is->x->l, "answer", story);
	}
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
	p->me->index = p->is.index;
	for (uint16_t n = 0; n <= x->w->parties && x->w->strikes != 0; n++)
		x->heir_err = x->heir_err ? x->heir_err : vb_db_recover(p->me, n, &freed);
	for (unsigned i = 0; i < HEIR_TRIES && (i == 0 || x->heir_err == -EAGAIN); i++) {
		x->heir_err = transact(p, heirs_steps);
		if (x->heir_err == -EAGAIN)
			vb_ep_sleep(p->me->ep, x->all.lease_ns / 8);
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
		const unsigned char *tuple = at != 0 ? vb_local(x->all.fabric, at, l->bytes) : NULL;
		struct vb_named_word named[VB_NAMED_WORDS_MAX];

		if (tuple == NULL || vb_words_named(x->cc, tuple, named) == 0)
			continue;
		snprintf(story, sizeof(story),
			 "leaked-lock: record %u is held by %#" PRIx64
			 " although nobody runs any more\n",
			 k, named[0].word);
		litmus_found(x->all.l, "leaked-lock", story);
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
	const char *rule = x->all.l->p->rule;
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
	is_planted = err == 0 && rule != NULL && !strcmp(rule, vb_anomaly_names[r.first]);
	f = open_memstream(&story, &size);
	if (f != NULL) {
		fprintf(f, "not-serializable: %s\n%s\n",
			err == 0 ? vb_anomaly_names[r.first] : "no history at all",
			err == 0 && r.story != NULL ? r.story : "");
		fclose(f);
		litmus_found(x->all.l, is_planted ? rule : "not-serializable", story);
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

		if (p->is.ended || p->doing == NULL)
			continue;
		snprintf(story, sizeof(story),
			 "stuck: coordinator %u does not come out of its %s\n", i, p->doing);
		litmus_found(x->all.l, "stuck", story);
	}
}

/* Where nobody was struck a lease ends only for who waits in a circle. */
static void judge_recoveries(struct world *x)
{
	char story[160];

	for (unsigned i = 0; i < x->w->parties && !x->all.l->struck; i++) {
		const struct vb_coordinator *me = x->party[i].me;

		/* Or is about to, with its next transaction. */
		if (me->recovered + me->rolled_forward + me->ripe == 0)
			continue;
		snprintf(
			story, sizeof(story),
			"needless-recovery: coordinator %u took another for dead, and nobody was\n",
			i);
		litmus_found(x->all.l, "needless-recovery", story);
	}
}

static void judge_heir(struct world *x)
{
	static const struct vb_task_params params = {.name = "heir"};
	struct vb_task *t;
	char story[128];
	int err = vb_task_spawn(x->all.sched, heir_body, x, &params, &t);

	if (err == 0)
		err = vb_sched_run(x->all.sched, NULL, vb_sched_now(x->all.sched) + PATIENCE_NS);
	if (err == 0)
		err = x->heir_err;
	if (err == 0 || litmus_world_starves(&x->all, err))
		return;
	snprintf(story, sizeof(story),
		 "stuck: who came when all were through cannot write every record: %s\n",
		 vb_strerror(err));
	litmus_found(x->all.l, "stuck", story);
}

/* ---- a run ---- */

static void elder_body(void *arg)
{
	static const struct step steps[] = {UPDATE(2), {CALL_END, 0}};
	struct world *x = arg;
	struct party *p = &x->party[x->w->parties];

	x->heir_err = vb_coordinator_open(x->db, (uint16_t)x->w->parties, &p->me);
	if (x->heir_err != 0) {
		p->me = NULL;
		return;
	}
	p->me->index = p->is.index;
	for (unsigned i = 0; i < x->w->aged && x->heir_err == 0; i++)
		x->heir_err = transact(p, steps);
	/* Until the clocks of those who come are past what it has written. */
	vb_ep_sleep(p->me->ep, AGED_NS);
	vb_coordinator_close(p->me);
	p->me = NULL;
}

/* Before anybody is there. */
static int age(struct world *x)
{
	static const struct vb_task_params params = {.name = "elder"};
	struct vb_task *t;
	int err;

	if (x->w->aged == 0)
		return 0;
	err = vb_task_spawn(x->all.sched, elder_body, x, &params, &t);
	if (err == 0)
		err = vb_sched_run(x->all.sched, NULL, vb_sched_now(x->all.sched) + PATIENCE_NS);
	return err != 0 ? err : x->heir_err;
}

static int open_db(struct litmus_world *all)
{
	struct world *x = world_of(all);
	const struct vb_db_params p = {
		.cc = x->cc->name,
		.hybrid = all->l->p->hybrid,
		.coordinators = 2,
		.items_max = 8,
		.bytes_max = 256,
		.record_bytes_max = 16,
		.lease_ns = all->lease_ns,
		.wait_ns = x->cc->caps & VB_CC_BOUNDED ? all->lease_ns / 8 : 0,
		.cache_entries = 1,
	};
	const struct vb_table_params t = {
		.name = "record", .record_bytes = 8, .records = 4 * (x->w->parties + 1)};
	const uint64_t value = 1;
	int err = vb_db_open(all->fabric, &p, &x->db);

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
	return age(x);
}

static int open_party(struct litmus_party *is, struct vb_ep **ep)
{
	struct party *p = party_of(is);
	int err = vb_coordinator_open(world_of(is->x)->db, (uint16_t)is->index, &p->me);

	if (err) {
		p->me = NULL;
		return err;
	}
	p->me->index = is->index;
	*ep = p->me->ep;
	return 0;
}

static void close_party(struct litmus_party *is)
{
	struct party *p = party_of(is);

	vb_coordinator_close(p->me);
	p->me = NULL;
}

static void judge(struct litmus_world *all, int err)
{
	struct world *x = world_of(all);

	if (all->l->stop)
		return;
	judge_recoveries(x);
	if (err != 0) {
		judge_stuck(x);
		judge_history(x);
		return;
	}
	litmus_world_leave(all);
	judge_heir(x);
	judge_history(x);
	look_for_locks(x);
}

static void tear_down(struct litmus_world *all)
{
	struct world *x = world_of(all);

	for (unsigned n = 0; n <= x->w->parties; n++)
		if (x->server[n] != NULL)
			vb_db_server_stop(x->server[n]);
	if (all->sched != NULL)
		vb_sched_kill_all(all->sched);
	for (unsigned i = 0; i <= x->w->parties; i++)
		vb_coordinator_bury(x->party[i].me);
	vb_db_close(x->db);
	if (all->fabric != NULL)
		vb_fabric_close(all->fabric);
	vb_history_close(x->history);
}

static int tell_verb(const struct litmus_world *all, const struct vb_sim_verb *v, char *buf,
		     size_t size)
{
	(void)all;
	return snprintf(buf, size, ", %u bytes", v->len);
}

static const struct litmus_kind kind = {
	.nodes_more = 1,
	.node_bytes = 384 << 10,
	.endpoints = 32,
	.patience_ns = PATIENCE_NS,
	.begin = begin,
	.open = open_db,
	.open_party = open_party,
	.close_party = close_party,
	.live = live,
	.died = died,
	.judge = judge,
	.tear_down = tear_down,
	.tell_verb = tell_verb,
};

int vb_litmus_txn_run(const struct vb_litmus_txn *w, const struct vb_cc_ops *cc,
		      const struct vb_litmus_params *p, struct vb_litmus_result *out)
{
	struct world *x = calloc(1, sizeof(*x));
	int err;

	*out = (struct vb_litmus_result){0};
	if (x == NULL)
		return vb_fail(-ENOMEM, "no memory for a small world");
	x->all = (struct litmus_world){
		.kind = &kind,
		.protocol = cc->name,
		.name = w->name,
		.parties = w->parties,
		.strikes = w->strikes,
		.leases = w->leases,
		.short_leases = w->strikes != 0,
		.lease_ns = LEASE_NS,
	};
	x->w = w;
	x->cc = cc;
	err = litmus_world_explore(&x->all, p, out);
	free(x);
	return err;
}
