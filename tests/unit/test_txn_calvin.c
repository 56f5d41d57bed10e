/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Calvin by hand: what has to be declared; who waits for whom; what is left of one who gives up; servers that are gone
 * and come back; what does not fit where it is forwarded, or in a batch; and what it costs.  On sim, one-sided and by
 * RPC, and on shm.
 */
#include "txn_api.h"

#include "cc/protocols.h"
#include "txn/epoch.h"

#define KEY   2 /* node 0 */
#define OTHER 3 /* node 1 */

static const struct kind kinds_here[] = {
	{&vb_cc_calvin, NULL, "sim"},
	{&vb_cc_calvin, "rpc", "sim"},
	{&vb_cc_calvin, NULL, "shm"},
};

static const struct vb_txn_params soon = {.timeout_ns = 5000000};

static int declare(struct world *w, struct vb_coordinator *me, uint64_t key, bool write)
{
	return vb_txn_declare(me, &(struct vb_txn_key){w->t, key, write}, 1);
}

static int add_one(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	struct record *r;
	int err = vb_txn_update(me, t, key, (void **)&r);

	if (err == 0)
		r->value++;
	return err;
}

static int declare_and_add(struct world *w, struct vb_coordinator *me, uint64_t key)
{
	int err = declare(w, me, key, true);

	return err ? err : add_one(me, w->t, key);
}

static uint64_t value_declared(struct world *w, uint64_t key)
{
	struct record r = {0};
	int err;

	do {
		must(vb_txn_begin(w->a));
		err = declare(w, w->a, key, false);
		if (err == 0)
			err = vb_txn_read(w->a, w->t, key, &r);
		if (err == 0)
			err = vb_txn_commit(w->a);
	} while (err == -EAGAIN);
	must(err);
	return r.value;
}

/* ---- what is declared ---- */

static void declared_first(void **state)
{
	const struct vb_txn_key keys[] = {{NULL, KEY, true}, {NULL, OTHER, false}};
	struct vb_txn_key both[2];
	struct record r = {0};
	const void *got;
	struct world w;
	void *mine;

	open_usual(&w, state, LONG_NS);
	for (unsigned i = 0; i < 2; i++)
		both[i] = (struct vb_txn_key){w.t, keys[i].key, keys[i].write};
	must(vb_txn_begin(w.a));
	refused(vb_txn_get(w.a, w.t, KEY, &got), -EINVAL);
	must(vb_txn_declare(w.a, both, 2));
	refused(vb_txn_declare(w.a, both, 1), -EINVAL);
	refused(vb_txn_get(w.a, w.t, 5, &got), -EINVAL);
	refused(vb_txn_insert(w.a, w.t, 50, &r), -EINVAL);
	refused(vb_txn_update(w.a, w.t, OTHER, &mine), -EINVAL);
	refused(vb_txn_write(w.a, w.t, OTHER, &r), -EINVAL);
	refused(vb_txn_delete(w.a, w.t, OTHER), -EINVAL);
	/* It goes on. */
	must(add_one(w.a, w.t, KEY));
	must(vb_txn_get(w.a, w.t, OTHER, &got));
	assert_int_equal(((const struct record *)got)->value, FIRST + OTHER);
	must(vb_txn_commit(w.a));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 1);
	must(vb_txn_begin(w.a));
	must(vb_txn_commit(w.a));
	must(vb_txn_begin(w.a));
	must(vb_txn_declare(w.a, NULL, 0));
	must(vb_txn_commit(w.a));
	close_world(&w);
}

static void inserts_and_deletes(void **state)
{
	struct record r = {.value = 7};
	struct world w;
	const void *got;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(declare(&w, w.a, 40, true));
	assert_int_equal(vb_txn_get(w.a, w.t, 40, &got), -ENOENT);
	must(vb_txn_insert(w.a, w.t, 40, &r));
	must(vb_txn_commit(w.a));
	must(vb_txn_begin(w.b));
	must(declare(&w, w.b, 40, true));
	assert_int_equal(vb_txn_insert(w.b, w.t, 40, &r), -EEXIST);
	must(vb_txn_delete(w.b, w.t, 40));
	must(vb_txn_commit(w.b));
	must(vb_txn_begin(w.a));
	must(declare(&w, w.a, 40, false));
	assert_int_equal(vb_txn_get(w.a, w.t, 40, &got), -ENOENT);
	must(vb_txn_commit(w.a));
	close_world(&w);
}

/* Who inserts into an ordered table writes a range, which is declared with the key; nobody scans. */
static void ordered(void **state)
{
	static const struct vb_table_params params = {
		.name = "line", .record_bytes = 16, .records = 64, .ordered = true};
	static const struct vb_values_params values = {
		.name = "value", .bytes_max = 100, .records = 4};
	struct vb_table *line;
	struct vb_values *v;
	struct vb_txn_row row;
	struct record r = {.value = 7};
	struct world w;
	unsigned n;

	open_usual(&w, state, LONG_NS);
	must(vb_table_open(w.db, &params, &line));
	stop_servers(&w);
	start_servers(&w);
	must(vb_txn_begin(w.a));
	must(vb_txn_declare(w.a, &(struct vb_txn_key){line, 9, true}, 1));
	refused(vb_txn_insert(w.a, line, 8, &r), -EINVAL);
	must(vb_txn_insert(w.a, line, 9, &r));
	refused(vb_txn_scan(w.a, line, &(struct vb_txn_range){0, 20, false}, &row, 1, &n), -EINVAL);
	must(vb_txn_commit(w.a));
	must(vb_txn_begin(w.b));
	must(vb_txn_declare(w.b, &(struct vb_txn_key){line, 9, false}, 1));
	must(vb_txn_read(w.b, line, 9, &r));
	assert_int_equal(r.value, 7);
	must(vb_txn_commit(w.b));
	refused(vb_values_open(w.db, &values, &v), -EINVAL);
	close_world(&w);
}

/* ---- who waits ---- */

/* Whoever gives up gets nothing later: the next one behind whom it waited has it, and then nobody. */
static void gives_up(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_txn_begin(w.a));
	must(declare_and_add(&w, w.a, KEY));
	must(vb_txn_begin_with(w.b, &soon));
	assert_int_equal(declare(&w, w.b, KEY, true), -ETIMEDOUT);
	must(vb_txn_begin_with(w.b, &soon));
	assert_int_equal(declare(&w, w.b, KEY, false), -ETIMEDOUT);
	must(vb_txn_commit(w.a));
	must(vb_ep_sleep(w.a->ep, 1000000));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 1);
	alone(w.b, declare_and_add(&w, w.b, KEY));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 2);
	close_world(&w);
}

/* ... nor of another node, where it had got what it wanted. */
static void gives_up_elsewhere(void **state)
{
	struct world w;
	struct vb_txn_key both[2];

	open_usual(&w, state, LONG_NS);
	both[0] = (struct vb_txn_key){w.t, KEY, true};
	both[1] = (struct vb_txn_key){w.t, OTHER, true};
	must(vb_txn_begin(w.a));
	must(declare_and_add(&w, w.a, KEY));
	must(vb_txn_begin_with(w.b, &soon));
	assert_int_equal(vb_txn_declare(w.b, both, 2), -ETIMEDOUT);
	/* a has it already, and needs nothing that b had. */
	must(vb_txn_commit(w.a));
	alone(w.a, declare_and_add(&w, w.a, OTHER));
	alone(w.a, declare_and_add(&w, w.a, KEY));
	assert_int_equal(value_declared(&w, OTHER), FIRST + OTHER + 1);
	close_world(&w);
}

/* Eight read together; one more waits, and so does who writes. */
static void readers_together(void **state)
{
	struct vb_coordinator *reader[8], *more;
	struct world w;

	open_usual(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 0, &more));
	for (unsigned i = 0; i < 8; i++) {
		must(vb_coordinator_open(w.db, (uint16_t)(i < 5 ? 1 : 0), &reader[i]));
		must(vb_txn_begin(reader[i]));
		must(declare(&w, reader[i], KEY, false));
	}
	must(vb_txn_begin_with(more, &soon));
	assert_int_equal(declare(&w, more, KEY, false), -ETIMEDOUT);
	must(vb_txn_begin_with(w.a, &soon));
	assert_int_equal(declare(&w, w.a, KEY, true), -ETIMEDOUT);
	must(vb_txn_commit(reader[3]));
	must(vb_txn_begin(more));
	must(declare(&w, more, KEY, false));
	must(vb_txn_commit(more));
	for (unsigned i = 0; i < 8; i++) {
		if (i != 3)
			must(vb_txn_commit(reader[i]));
		vb_coordinator_close(reader[i]);
	}
	vb_coordinator_close(more);
	alone(w.a, declare_and_add(&w, w.a, KEY));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 1);
	close_world(&w);
}

/* ---- many at once ---- */

#define TASKS  8u
#define ROUNDS 40u

struct group {
	struct world *w;
	struct vb_table *table;
	uint64_t keys, of; /* so many of so many, from one that each round has another of */
	unsigned running, ended;
	int err;
};

struct member {
	struct group *group;
	unsigned number;
};

/* Forwards or backwards, as others do not. */
static int one_round(struct member *m, struct vb_coordinator *me, unsigned round)
{
	struct group *g = m->group;
	struct vb_txn_key *key = calloc(g->keys, sizeof(*key));
	int err = vb_txn_begin(me);

	assert_non_null(key);
	for (uint64_t i = 0; i < g->keys; i++) {
		uint64_t k = m->number % 2 == 0 ? i : g->keys - 1 - i;

		key[i] = (struct vb_txn_key){g->table, (round * 7 + m->number + k) % g->of, true};
	}
	if (err == 0)
		err = vb_txn_declare(me, key, (unsigned)g->keys);
	for (uint64_t i = 0; i < g->keys && err == 0; i++)
		err = add_one(me, g->table, key[i].key);
	if (err == 0)
		err = vb_txn_commit(me);
	free(key);
	return err;
}

static void member_body(void *arg)
{
	struct member *m = arg;
	struct group *g = m->group;
	struct vb_coordinator *me;
	int err = vb_coordinator_open(g->w->db, (uint16_t)(m->number % NODES), &me);

	for (unsigned i = 0; i < ROUNDS && err == 0; i++)
		err = one_round(m, me, i);
	if (err != 0)
		g->err = err;
	for (unsigned i = VB_TXN_USER; err == 0 && i < VB_TXN_CAUSES; i++)
		g->ended += (unsigned)me->aborts[i];
	if (err == 0)
		vb_coordinator_close(me);
	g->running--;
}

static void run_group(struct group *g)
{
	static const struct vb_task_params params = {.name = "member"};
	struct member member[TASKS];

	for (unsigned i = 0; i < TASKS; i++) {
		struct vb_task *task;

		member[i] = (struct member){.group = g, .number = i};
		g->running++;
		must(vb_task_spawn(vb_sched_self(), member_body, &member[i], &params, &task));
	}
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	assert_int_equal(g->running, 0);
	assert_int_equal(g->err, 0);
}

/* However they overlap, nobody ends because of another. */
static void nobody_ends(void **state)
{
	struct world w;
	struct group g = {.w = &w, .keys = 3, .of = 5};
	uint64_t sum = 0;

	open_usual(&w, state, LONG_NS);
	g.table = w.t;
	run_group(&g);
	assert_int_equal(g.ended, 0);
	for (uint64_t k = 0; k < g.of; k++)
		sum += value_declared(&w, k) - FIRST - k;
	assert_int_equal(sum, TASKS * ROUNDS * g.keys);
	close_world(&w);
}

/* More than is forwarded, and more than a batch has room for. */
static void large(void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);
	static const struct vb_table_params params = {
		.name = "large", .record_bytes = 104, .records = 1024};
	char record[104];
	struct world w;
	struct group g = {.w = &w, .keys = 500, .of = 520};
	uint64_t sum = 0;

	p.items_max = 512;
	p.record_bytes_max = 104;
	p.bytes_max = 64 << 10;
	open_db(&w, k->fabric, &p);
	must(vb_table_open(w.db, &params, &g.table));
	memset(record, 0, sizeof(record));
	for (uint64_t key = 0; key < g.of; key++)
		must(vb_table_load(g.table, key, record));
	start_servers(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	must(vb_coordinator_open(w.db, 1, &w.b));
	assert_true(g.keys / NODES * 104 > VB_SEQ_TUPLES);
	assert_true(TASKS * (g.keys / NODES) * sizeof(struct vb_seq_key) > w.db->batch_bytes);
	run_group(&g);
	assert_int_equal(g.ended, 0);
	for (uint64_t key = 0; key < g.of; key++) {
		struct record r;

		must(vb_txn_begin(w.a));
		must(vb_txn_declare(w.a, &(struct vb_txn_key){g.table, key, false}, 1));
		must(vb_txn_read(w.a, g.table, key, record));
		must(vb_txn_commit(w.a));
		memcpy(&r, record, sizeof(r));
		sum += r.value;
	}
	assert_int_equal(sum, (uint64_t)TASKS * ROUNDS * g.keys);
	close_world(&w);
}

/* ---- servers ---- */

/* Who needs it is told; the others wait half a lease, once.  What it had given stands, and is given back. */
static void server_is_gone(void **state)
{
	const struct kind *k = *state;
	struct world w;
	uint64_t begin;
	int err;

	open_usual(&w, state, SHORT_NS);
	alone(w.a, declare_and_add(&w, w.a, KEY));
	alone(w.a, declare_and_add(&w, w.a, OTHER));
	vb_db_server_stop(w.server[1]);
	begin = vb_ep_now(w.a->ep);
	vb_log_mute();
	alone(w.a, declare_and_add(&w, w.a, KEY));
	if (strcmp(k->fabric, "sim") == 0)
		assert_in_range(vb_ep_now(w.a->ep) - begin, SHORT_NS / 2, SHORT_NS);
	begin = vb_ep_now(w.a->ep);
	alone(w.a, declare_and_add(&w, w.a, KEY));
	if (strcmp(k->fabric, "sim") == 0)
		assert_in_range(vb_ep_now(w.a->ep) - begin, 0, SHORT_NS / 8);
	must(vb_txn_begin(w.a));
	assert_int_equal(declare(&w, w.a, OTHER, true), -VB_EPEERGONE);
	must(vb_txn_begin(w.b));
	assert_int_equal(declare(&w, w.b, OTHER, true), -VB_EPEERGONE);
	must(vb_db_server_start(w.db, 1, &w.server[1]));
	vb_log_unmute();
	alone(w.b, declare_and_add(&w, w.b, OTHER));
	alone(w.b, declare_and_add(&w, w.b, KEY));
	alone(w.a, declare_and_add(&w, w.a, OTHER));
	err = (int)value_declared(&w, OTHER);
	assert_int_equal(err, FIRST + OTHER + 3);
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 4);
	close_world(&w);
}

/* All at once: their epochs go on from where they were, and nothing that was asked before is given. */
static void all_servers_anew(void **state)
{
	uint64_t taken = 0;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	for (unsigned i = 0; i < 100; i++)
		alone(w.b, declare_and_add(&w, w.b, 4));
	for (unsigned i = 0; i < 5; i++) {
		taken = vb_seq_line(w.db, 0)->epochs;
		alone(w.a, declare_and_add(&w, w.a, KEY));
		alone(w.b, declare_and_add(&w, w.b, OTHER));
		/* None that has been is taken again. */
		assert_in_range(vb_seq_line(w.db, 0)->epochs - taken, 2, 40);
		stop_servers(&w);
		start_servers(&w);
	}
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 5);
	assert_int_equal(value_declared(&w, OTHER), FIRST + OTHER + 5);
	close_world(&w);
}

/* What stands there from before is not taken again: it would be given to one who has ended. */
static void first_epochs_anew(void **state)
{
	struct world w;

	open_usual(&w, state, LONG_NS);
	alone(w.b, declare_and_add(&w, w.b, KEY));
	assert_in_range(vb_seq_line(w.db, 0)->closed, 1, 2);
	stop_servers(&w);
	start_servers(&w);
	must(vb_txn_begin_with(w.a, &soon));
	must(declare_and_add(&w, w.a, KEY));
	must(vb_txn_commit(w.a));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 2);
	close_world(&w);
}

/* Who finds that others are far ahead joins them, and does not go there one epoch after the other. */
static void far_behind(void **state)
{
	struct vb_seq_batch *batch;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	batch = vb_local(w.f, vb_seq_batch(w.db, 0, 1, 1000), w.db->batch_bytes);
	*batch = (struct vb_seq_batch){.epoch = 1000};
	batch->seal = vb_seq_batch_seal(batch);
	alone(w.a, declare_and_add(&w, w.a, KEY));
	assert_in_range(vb_seq_line(w.db, 0)->epochs, 1, 40);
	assert_true(vb_seq_line(w.db, 0)->closed > 1000);
	alone(w.b, declare_and_add(&w, w.b, KEY));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 2);
	close_world(&w);
}

/* ---- verbs of a server, and what happens beside them ---- */

/* On shm behind a hook, where each verb is posted by itself. */
static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct world *w;
	const struct vb_ep *server;
	/* The CAS by which the server takes a lock; DAWDLE: what it forwards. */
	enum { NOTHING, LOSE, GIVE_UP, DAWDLE } beside;
	struct vb_verb late; /* the one that was lost */
	uint64_t left;       /* what stands there when the client lets go */
	unsigned let_go;
} tampered;

static uint64_t *lock_word(struct world *w)
{
	char *tuple = vb_local(w->f, vb_table_find(w->t, 0, KEY), w->t->layout.bytes);

	return (uint64_t *)(void *)(tuple + w->t->layout.lock_at);
}

static bool is_lock(const struct vb_verb *v)
{
	struct world *w = tampered.w;

	return v->op == VB_OP_CAS64 &&
	       v->addr == vb_table_find(w->t, 0, KEY) + w->t->layout.lock_at;
}

static bool is_forward(const struct vb_batch *b)
{
	const struct vb_verb *last = &b->verbs[b->n - 1];

	return last->op == VB_OP_SEND && last->msg->tag == VB_TAG_FORWARD;
}

static int post_tampered(struct vb_ep *ep, struct vb_batch *batch)
{
	struct vb_verb *v = &batch->verbs[0];
	struct world *w = tampered.w;
	bool takes = ep == tampered.server && is_lock(v) && v->compare.lo == 0 && v->swap.lo != 0;

	if (ep == w->a->ep && is_lock(v) && v->swap.lo == 0 && tampered.let_go++ == 0)
		tampered.left = *lock_word(w);
	if (takes && tampered.beside == LOSE) {
		tampered.late = *v;
		tampered.beside = NOTHING;
		v->status = -VB_EUNKNOWN;
		return 0;
	}
	if (takes && tampered.beside == GIVE_UP) {
		vb_addr floor = vb_seq_floor(w->db, 0, vb_ts_place(v->swap.lo));

		*(uint64_t *)vb_local(w->f, floor, 8) = v->swap.lo;
		tampered.beside = NOTHING;
	}
	/* Nobody is given the thread meanwhile. */
	if (ep == tampered.server && tampered.beside == DAWDLE && is_forward(batch)) {
		tampered.beside = NOTHING;
		while (vb_ep_now(ep) <= w->a->txn.begin_ns + SHORT_NS)
			;
	}
	return tampered.real->post(ep, batch);
}

static void open_tampered(struct world *w, void **state, int beside)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, SHORT_NS);

	if (strcmp(k->fabric, "shm") != 0)
		skip();
	open_hooked(w, state, &p);
	tampered.real = w->a->ep->ops;
	tampered.ops = *tampered.real;
	tampered.ops.post = post_tampered;
	tampered.w = w;
	tampered.server = vb_db_server_ep(w->server[0]);
	tampered.let_go = 0;
	vb_db_server_ep(w->server[0])->ops = &tampered.ops;
	w->a->ep->ops = &tampered.ops;
	tampered.beside = beside;
}

static void close_tampered(struct world *w)
{
	vb_db_server_ep(w->server[0])->ops = tampered.real;
	w->a->ep->ops = tampered.real;
	close_world(w);
}

/* Whose lock may be taken at any time must not commit: who finds it then would do its commit stage again. */
static void a_lock_is_lost(void **state)
{
	struct vb_batch late = {.verbs = &tampered.late, .n = 1};
	struct world w;

	open_tampered(&w, state, LOSE);
	must(vb_txn_begin(w.a));
	assert_int_equal(declare(&w, w.a, KEY, true), -VB_EUNKNOWN);
	alone(w.b, declare_and_add(&w, w.b, KEY));
	(void)tampered.real->post(vb_db_server_ep(w.server[0]), &late);
	assert_int_not_equal(*lock_word(&w), 0);
	alone(w.b, declare_and_add(&w, w.b, KEY));
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY + 2);
	close_tampered(&w);
}

/* Who gives up between the server's look at the floor and its CAS: the server sets it back. */
static void gives_up_at_the_cas(void **state)
{
	struct world w;

	open_tampered(&w, state, GIVE_UP);
	must(vb_txn_begin_with(w.a, &soon));
	assert_int_equal(declare(&w, w.a, KEY, true), -ETIMEDOUT);
	assert_int_equal(tampered.beside, NOTHING);
	assert_int_not_equal(tampered.let_go, 0);
	assert_int_equal(tampered.left, 0);
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY);
	close_tampered(&w);
}

/* What was read under a lock is not given when the lease is over: others may have had the record. */
static void not_behind_the_lease(void **state)
{
	struct world w;

	open_tampered(&w, state, DAWDLE);
	must(vb_txn_begin(w.a));
	assert_int_equal(declare(&w, w.a, KEY, false), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_TIMEOUT);
	assert_int_equal(tampered.beside, NOTHING);
	assert_int_equal(value_declared(&w, KEY), FIRST + KEY);
	close_tampered(&w);
}

/* ---- the queue of a server, by hand ---- */

struct asked {
	struct vb_seq_part part;
	struct vb_seq_key key;
};

/* By a coordinator that is not there; until_ns: 0: for a lease. */
static struct asked asks(struct world *w, uint32_t coordinator, uint64_t until_ns)
{
	uint32_t place = coordinator * VB_PLACES_EACH;

	return (struct asked){
		.part = {.ts = vb_ts_make(1000 + coordinator, place),
			 .peer = w->a->ep->self,
			 .subject = 1ull << 63 | coordinator,
			 .until_ns = until_ns != 0 ? until_ns : UINT64_MAX,
			 .coordinator = (uint16_t)coordinator,
			 .n = 1},
		.key = {.key = {KEY, 0}, .table = w->t->id, .write = 1},
	};
}

/* Who is past his lease gets nothing, however late he is looked at; and who waits behind another hears what is in
 * that one's way. */
static void by_hand(void **state)
{
	struct asked past, first, second;
	const struct vb_seq_forward *f;
	const struct vb_seq_item *item;
	struct vb_queue *q;
	struct vb_acc acc;
	struct vb_ep *ep;
	struct world w;
	uint64_t holder;

	open_usual(&w, state, LONG_NS);
	must(vb_ep_open(w.f, 0, &ep));
	vb_acc_init(&acc, ep, true, true);
	must(vb_queue_open(w.db, 0, ep, &acc, &q));
	past = asks(&w, 3, 1);
	vb_queue_add(q, &past.part);
	assert_false(vb_queue_turn(q));
	assert_int_equal(*lock_word(&w), 0);
	holder = vb_ts_make(999, 4 * VB_PLACES_EACH);
	*lock_word(&w) = holder;
	first = asks(&w, 5, 0);
	second = asks(&w, 6, 0);
	vb_queue_add(q, &first.part);
	vb_queue_add(q, &second.part);
	assert_true(vb_queue_turn(q));
	second.part.n = 0;
	vb_queue_tell(q, &second.part);
	vb_queue_drain(q);
	f = vb_local(w.f, vb_seq_forward(w.db, 0, 6, 0), w.db->forward_bytes);
	item = (const void *)(f + 1);
	assert_int_equal(f->ts, second.part.ts);
	assert_int_equal(f->state, VB_SEQ_WAITS);
	assert_int_equal(item[0].seen, holder);
	*lock_word(&w) = 0;
	assert_true(vb_queue_turn(q));
	assert_int_equal(*lock_word(&w), first.part.ts);
	*lock_word(&w) = 0;
	assert_false(vb_queue_turn(q));
	assert_int_equal(*lock_word(&w), second.part.ts);
	*lock_word(&w) = 0;
	vb_queue_drain(q);
	vb_queue_close(q);
	vb_ep_close(ep);
	close_world(&w);
}

/* ---- what it costs ---- */

struct count {
	uint64_t writes, sends;
};

static struct count count_of(const struct vb_ep *ep)
{
	return (struct count){ep->count[VB_OP_WRITE], ep->count[VB_OP_SEND]};
}

/* A transaction of one node: a request, an epoch (a batch from each to each), and what is forwarded. */
static void costs(void **state)
{
	const struct kind *k = *state;
	struct count a, server[NODES];
	struct world w;

	/* There the CPU's stores are not counted. */
	if (strcmp(k->fabric, "sim") != 0 || k->hybrid != NULL)
		skip();
	open_usual(&w, state, LONG_NS);
	alone(w.a, declare_and_add(&w, w.a, KEY));
	a = count_of(w.a->ep);
	for (unsigned i = 0; i < NODES; i++)
		server[i] = count_of(vb_db_server_ep(w.server[i]));
	alone(w.a, declare_and_add(&w, w.a, KEY));
	assert_int_equal(w.a->ep->count[VB_OP_SEND] - a.sends, 1);
	assert_int_equal(w.a->ep->count[VB_OP_WRITE] - a.writes, 1 + 1);
	for (unsigned i = 0; i < NODES; i++) {
		const struct vb_ep *ep = vb_db_server_ep(w.server[i]);
		unsigned forwards = i == 0 ? 1 : 0;

		assert_int_equal(ep->count[VB_OP_SEND] - server[i].sends, NODES - 1 + forwards);
		assert_int_equal(ep->count[VB_OP_WRITE] - server[i].writes, NODES - 1 + forwards);
	}
	close_world(&w);
}

int main(void)
{
	static const struct case_for_all cases[] = {
		{"declared first", declared_first},
		{"inserts and deletes", inserts_and_deletes},
		{"ordered", ordered},
		{"gives up", gives_up},
		{"gives up elsewhere", gives_up_elsewhere},
		{"readers together", readers_together},
		{"nobody ends", nobody_ends},
		{"large", large},
		{"a server is gone", server_is_gone},
		{"all servers anew", all_servers_anew},
		{"the first epochs anew", first_epochs_anew},
		{"far behind", far_behind},
		{"a lock is lost", a_lock_is_lost},
		{"gives up at the CAS", gives_up_at_the_cas},
		{"not behind the lease", not_behind_the_lease},
		{"by hand", by_hand},
		{"costs", costs},
	};
	static struct CMUnitTest tests[VB_ARRAY_SIZE(cases) * VB_ARRAY_SIZE(kinds_here)];
	static char names[VB_ARRAY_SIZE(tests)][96];
	size_t n = 0;

	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++, n++) {
			snprintf(names[n], sizeof(names[n]), "%s %s: %s", kinds_here[k].fabric,
				 kinds_here[k].hybrid != NULL ? "rpc" : "one-sided", cases[i].name);
			tests[n] = (struct CMUnitTest){.name = names[n],
						       .test_func = cases[i].run,
						       .initial_state = (void *)&kinds_here[k]};
		}
	return cmocka_run_group_tests_name("txn_calvin", tests, NULL, NULL);
}
