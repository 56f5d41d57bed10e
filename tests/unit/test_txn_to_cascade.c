/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Timestamp ordering with cascading aborts, by hand: what others see between an install and its decision, who
 * ends with whom, and what is put back, by whom.  On sim, one-sided and by RPC, and on shm.  A is the writer,
 * and stands between its install and its decision while B does something.
 */
#include "txn_api.h"

#include "cc/protocols.h"
#include "cc/to_cascade.h"
#include "txn/db.h"

#define KEY     2 /* node 0 */
#define NEXT    4 /* the same node */
#define KEYS    12u
#define HOLD_NS 300000ull

static const struct kind kinds_here[] = {
	{&vb_cc_to_cascade, NULL, "sim"},
	{&vb_cc_to_cascade, "rpc", "sim"},
	{&vb_cc_to_cascade, "010100", "sim"},
	{&vb_cc_to_cascade, NULL, "shm"},
};
/* Where the verbs of a stage are those of the test's endpoint, and time is virtual. */
static const struct kind kinds_looks[] = {{&vb_cc_to_cascade, NULL, "sim"}};
static const struct kind kinds_served[] = {{&vb_cc_to_cascade, "rpc", "sim"}};
/* Of a dead one, where time is virtual. */
static const struct kind kinds_dead[] = {
	{&vb_cc_to_cascade, NULL, "sim"},
	{&vb_cc_to_cascade, "rpc", "sim"},
};

/* What happens once behind the next install of A, and how A goes on: 0, or why it does not. */
static struct {
	struct world *w;
	void (*happens)(struct world *w);
	int goes_on;
} meanwhile;
static struct vb_cc_ops watched;

static int decide(struct vb_txn *t)
{
	void (*happens)(struct world * w) = meanwhile.happens;

	if (t->me != meanwhile.w->a || happens == NULL)
		return to_cascade_decide(t);
	meanwhile.happens = NULL;
	happens(meanwhile.w);
	if (meanwhile.goes_on == -EAGAIN)
		return vb_txn_doom(t, VB_TXN_LOCKED, 0);
	return meanwhile.goes_on != 0 ? meanwhile.goes_on : to_cascade_decide(t);
}

static void open_watched(struct world *w, void **state, uint64_t lease_ns)
{
	open_usual(w, state, lease_ns);
	watched = *w->db->cc;
	watched.decide = decide;
	w->db->cc = &watched;
	meanwhile.w = w;
	meanwhile.happens = NULL;
}

static const char *tuple_of(const struct world *w, uint64_t key)
{
	return vb_local(w->f, vb_table_find(w->t, vb_table_node(w->t, key), key),
			w->t->layout.bytes);
}

static uint64_t lock_of(const struct world *w, uint64_t key)
{
	return vb_tuple_word(tuple_of(w, key), w->t->layout.lock_at);
}

static uint64_t there(const struct world *w, uint64_t key)
{
	struct record r;

	memcpy(&r, tuple_of(w, key) + w->t->layout.record_at, sizeof(r));
	return r.value;
}

static int read_one(struct vb_coordinator *me, struct vb_table *t, uint64_t *value)
{
	struct record r = {0};
	int err = vb_txn_read(me, t, KEY, &r);

	*value = r.value;
	return err;
}

static int write_one(struct vb_coordinator *me, struct vb_table *t, uint64_t key, uint64_t value)
{
	return vb_txn_write(me, t, key, &(struct record){.value = value});
}

/* A writes the record, and commits or not, with something between install and decision. */
static int a_writes(struct world *w, uint64_t value, void (*happens)(struct world *w), int goes_on)
{
	tick(w->a);
	must(vb_txn_begin(w->a));
	must(write_one(w->a, w->t, KEY, value));
	tick(w->b);
	meanwhile.happens = happens;
	meanwhile.goes_on = goes_on;
	return vb_txn_commit(w->a);
}

static uint64_t waits;

static void b_reads(struct world *w)
{
	uint64_t value;

	assert_int_equal(there(w, KEY), 7);
	assert_int_equal(lock_of(w, KEY), w->a->txn.ts);
	must(vb_txn_begin(w->b));
	waits = w->b->waits;
	must(read_one(w->b, w->t, &value));
	assert_int_equal(value, 7);
	assert_int_equal(w->b->waits, waits);
}

static void must_cascade(struct world *w)
{
	assert_int_equal(vb_txn_commit(w->b), -EAGAIN);
	assert_int_equal(vb_txn_cause(w->b), VB_TXN_CASCADE);
}

/* ---- who reads what is not committed yet ---- */

static void reads_and_commits(void **state)
{
	struct world w;

	open_watched(&w, state, LONG_NS);
	must(a_writes(&w, 7, b_reads, 0));
	must(vb_txn_commit(w.b));
	assert_int_equal(w.b->waits, waits);
	assert_int_equal(lock_of(&w, KEY), 0);
	assert_int_equal(value_of(w.b, w.t, KEY), 7);
	close_world(&w);
}

static void ends_with_its_writer(void **state)
{
	struct world w;

	open_watched(&w, state, LONG_NS);
	assert_int_equal(a_writes(&w, 7, b_reads, -EAGAIN), -EAGAIN);
	assert_int_equal(there(&w, KEY), FIRST + KEY);
	assert_int_equal(lock_of(&w, KEY), 0);
	must_cascade(&w);
	assert_int_equal(value_of(w.b, w.t, KEY), FIRST + KEY);
	close_world(&w);
}

static void b_reads_writes_and_commits(struct world *w)
{
	b_reads(w);
	must(write_one(w->b, w->t, KEY + 1, 8));
	assert_int_equal(vb_txn_commit(w->b), -EAGAIN);
	assert_int_equal(vb_txn_cause(w->b), VB_TXN_TIMEOUT);
	assert_true(w->b->waits > waits);
	assert_int_equal(there(w, KEY + 1), FIRST + KEY + 1);
	assert_int_equal(lock_of(w, KEY + 1), 0);
}

/* It does not commit before its writer, and what it has installed itself meanwhile is undone. */
static void waits_for_its_writer(void **state)
{
	struct world w;

	open_watched(&w, state, SHORT_NS);
	must(a_writes(&w, 7, b_reads_writes_and_commits, 0));
	assert_int_equal(value_of(w.b, w.t, KEY), 7);
	assert_int_equal(value_of(w.b, w.t, KEY + 1), FIRST + KEY + 1);
	close_world(&w);
}

/* What was read and is then written must still be what was read. */
static void then_writes(void **state)
{
	struct record *r;
	struct world w;

	open_watched(&w, state, LONG_NS);
	must(a_writes(&w, 7, b_reads, 0));
	must(vb_txn_update(w.b, w.t, KEY, (void **)&r));
	assert_int_equal(r->value, 7);
	r->value = 8;
	must(vb_txn_commit(w.b));
	assert_int_equal(value_of(w.b, w.t, KEY), 8);
	tick(w.b);
	assert_int_equal(a_writes(&w, 7, b_reads, -EAGAIN), -EAGAIN);
	assert_int_equal(vb_txn_update(w.b, w.t, KEY, (void **)&r), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_CASCADE);
	assert_int_equal(lock_of(&w, KEY), 0);
	assert_int_equal(value_of(w.b, w.t, KEY), 8);
	close_world(&w);
}

/* Each of A's places has another name by now. */
static void a_goes_on(struct world *w, uint64_t key)
{
	for (unsigned i = 0; i < VB_PLACES_TXN; i++)
		alone(w->a, write_one(w->a, w->t, key, 9 + i));
}

/* Then the record says what has become of its writer. */
static void a_name_is_gone(void **state)
{
	struct world w;

	open_watched(&w, state, LONG_NS);
	must(a_writes(&w, 7, b_reads, 0));
	a_goes_on(&w, KEY + 1);
	must(vb_txn_commit(w.b));
	alone(w.a, write_one(w.a, w.t, KEY, 6));
	assert_int_equal(a_writes(&w, 7, b_reads, -EAGAIN), -EAGAIN);
	a_goes_on(&w, KEY + 1);
	must_cascade(&w);
	assert_int_equal(value_of(w.b, w.t, KEY), 6);
	close_world(&w);
}

/* What it says may be too little: somebody else has written since. */
static void nobody_knows(void **state)
{
	struct world w;

	open_watched(&w, state, LONG_NS);
	must(a_writes(&w, 7, b_reads, 0));
	a_goes_on(&w, KEY);
	must_cascade(&w);
	close_world(&w);
}

/* A younger writer, too, waits for the decision, whatever it is: one write at most is to be undone. */
static void b_writes(struct world *w)
{
	static const struct vb_txn_params soon = {.timeout_ns = HOLD_NS};

	must(vb_txn_begin_with(w->b, &soon));
	(void)write_one(w->b, w->t, KEY, 8);
	assert_int_equal(vb_txn_cause(w->b), VB_TXN_TIMEOUT);
}

static void one_at_a_time(void **state)
{
	struct world w;

	open_watched(&w, state, LONG_NS);
	assert_int_equal(a_writes(&w, 7, b_writes, -EAGAIN), -EAGAIN);
	assert_int_equal(value_of(w.b, w.t, KEY), FIRST + KEY);
	close_world(&w);
}

/* Where time is real nobody is in haste: it is refused at once there. */
static void b_reads_in_haste(struct world *w)
{
	const struct vb_txn_params soon = {.timeout_ns = w->db->rpc_stages != 0 ? HOLD_NS : 0};
	uint64_t value;

	must(vb_txn_begin_with(w->b, &soon));
	must(read_one(w->b, w->t, &value));
	assert_int_equal(value, 7);
}

/* What was read is undone, and of the same call another record has to wait, so that a server comes here again:
 * what it has refused stays refused. */
static void refused_stays_refused(void **state)
{
	const struct vb_txn_key *keys;
	struct vb_coordinator *c;
	struct world w;

	open_watched(&w, state, LONG_NS);
	must(vb_coordinator_open(w.db, 1, &c));
	keys = (struct vb_txn_key[]){{w.t, KEY, true}, {w.t, NEXT, true}};
	must(vb_txn_begin(c));
	must(write_one(c, w.t, NEXT, 1));
	assert_int_equal(a_writes(&w, 7, b_reads_in_haste, -EAGAIN), -EAGAIN);
	assert_int_equal(vb_txn_declare(w.b, keys, 2), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.b), VB_TXN_CASCADE);
	assert_int_equal(lock_of(&w, KEY), 0);
	must(vb_txn_commit(c));
	vb_coordinator_close(c);
	close_world(&w);
}

/* ---- what has become of a writer ---- */

/* B looks: its READs happen last first, behind its atomics, and A ends behind the first of them. */
static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct world *w;
	vb_addr version;
	bool armed, installed, ends, ended;
	int err; /* A's */
} look;

static void a_stands(struct world *w)
{
	look.installed = true;
	while (!look.ends)
		(void)vb_ep_sleep(w->a->ep, 1000);
}

static void a_body(void *unused)
{
	struct world *w = look.w;

	(void)unused;
	look.err = vb_txn_begin(w->a);
	if (look.err == 0)
		look.err = write_one(w->a, w->t, KEY, 7);
	meanwhile.happens = a_stands;
	meanwhile.goes_on = -EAGAIN;
	if (look.err == 0)
		look.err = vb_txn_commit(w->a);
	look.ended = true;
}

static void a_ends(void)
{
	look.ends = true;
	while (!look.ended)
		must(vb_ep_sleep(look.w->b->ep, 1000));
}

static int post_look(struct vb_ep *ep, struct vb_batch *b)
{
	bool looks = false;

	for (unsigned i = 0; i < b->n; i++)
		looks |= b->verbs[i].op == VB_OP_READ && b->verbs[i].addr == look.version;
	if (!look.armed || !looks)
		return look.real->post(ep, b);
	look.armed = false;
	for (unsigned i = 0; i < b->n; i++)
		if (b->verbs[i].op != VB_OP_READ)
			must(vb_verb_run(ep, &b->verbs[i]));
	for (unsigned i = b->n; i > 0; i--) {
		if (b->verbs[i - 1].op != VB_OP_READ)
			continue;
		must(vb_verb_run(ep, &b->verbs[i - 1]));
		if (!look.ends)
			a_ends();
	}
	b->pending = 0;
	return 0;
}

static void start_looks(struct world *w, struct vb_task **a)
{
	static const struct vb_task_params params = {.name = "a writer"};

	memset(&look, 0, sizeof(look));
	look.w = w;
	look.version = vb_table_find(w->t, vb_table_node(w->t, KEY), KEY) + w->t->layout.version_at;
	look.real = w->b->ep->ops;
	look.ops = *look.real;
	look.ops.post = post_look;
	must(vb_task_spawn(vb_sched_self(), a_body, NULL, &params, a));
	while (!look.installed && !look.ended)
		must(vb_ep_sleep(w->b->ep, 1000));
}

/* The version of before the writer's end, and the lock word of behind it, are not of one moment: it is the look at
 * the lock word that comes first. */
static void looks_in_any_order(void **state)
{
	struct vb_task *a;
	struct world w;

	open_watched(&w, state, LONG_NS);
	w.f->caps.flags &= ~(uint64_t)VB_CAP_MASKED128;
	start_looks(&w, &a);
	tick(w.b);
	b_reads(&w);
	look.armed = true;
	w.b->ep->ops = &look.ops;
	must_cascade(&w);
	w.b->ep->ops = look.real;
	assert_true(look.ended && look.err == -EAGAIN);
	must(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER));
	assert_int_equal(value_of(w.b, w.t, KEY), FIRST + KEY);
	close_world(&w);
}

/* ---- what is put back ---- */

static int change_all(struct vb_coordinator *me, struct vb_table *t)
{
	int err = 0;

	for (uint64_t key = 0; key < KEYS && err == 0; key++)
		err = write_one(me, t, key, 100 + key);
	if (err == 0)
		err = vb_txn_delete(me, t, KEYS);
	return err == 0 ? vb_txn_insert(me, t, LOADED + 1, &(struct record){.value = 200}) : err;
}

static void all_is_changed(struct world *w)
{
	for (uint64_t key = 0; key < KEYS; key++)
		assert_int_equal(there(w, key), 100 + key);
	assert_int_equal(there(w, LOADED + 1), 200);
}

/* What a call finds counts if its transaction commits. */
static int find(struct vb_coordinator *me, struct vb_table *t, uint64_t key, uint64_t *value)
{
	struct record r = {0};
	int err, ended;

	do {
		must(vb_txn_begin(me));
		err = vb_txn_read(me, t, key, &r);
		ended = vb_txn_commit(me);
	} while (ended == -EAGAIN);
	must(ended);
	*value = r.value;
	return err;
}

static void all_is_as_before(struct world *w)
{
	uint64_t value;

	for (uint64_t key = 0; key < LOADED; key++) {
		must(find(w->b, w->t, key, &value));
		assert_int_equal(value, FIRST + key);
		assert_int_equal(lock_of(w, key), 0);
	}
	assert_int_equal(find(w->b, w->t, LOADED + 1, &value), -ENOENT);
}

/* B's clock may be ahead: it follows. */
static int change(struct world *w, int goes_on)
{
	int err;

	do {
		must(vb_txn_begin(w->a));
		err = change_all(w->a, w->t);
	} while (err == -EAGAIN);
	must(err);
	meanwhile.happens = all_is_changed;
	meanwhile.goes_on = goes_on;
	return vb_txn_commit(w->a);
}

static void by_oneself(void **state)
{
	struct world w;

	open_watched(&w, state, LONG_NS);
	assert_int_equal(change(&w, -EAGAIN), -EAGAIN);
	assert_false(vb_txn_lane(w.a)->unacknowledged);
	all_is_as_before(&w);
	must(change(&w, 0));
	all_is_changed(&w);
	close_world(&w);
}

/* The install stage does what it is asked, and its answer is lost. */
static struct vb_stage_ops stages[VB_STAGES_MAX];

static void install_unheard(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	to_cascade_install(s, items, n);
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
	s->err = -VB_EUNKNOWN;
}

/* Then it is undone from the own log. */
static void from_the_own_log(void **state)
{
	struct world w;

	open_watched(&w, state, SHORT_NS);
	memcpy(stages, watched.stages, sizeof(stages[0]) * watched.n_stages);
	stages[watched.install].run = install_unheard;
	watched.stages = stages;
	must(vb_txn_begin(w.a));
	must(change_all(w.a, w.t));
	assert_int_equal(vb_txn_commit(w.a), -VB_EUNKNOWN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_FABRIC);
	assert_int_equal(w.a->rolled_forward, KEYS + 2);
	assert_false(vb_txn_lane(w.a)->unacknowledged);
	all_is_as_before(&w);
	close_world(&w);
}

static void nothing_happens(struct world *w)
{
	assert_int_equal(there(w, KEY), 7);
}

static bool undoes_late;

static void undo_late(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct world *w = meanwhile.w;
	bool late = undoes_late;

	undoes_late = false;
	if (late)
		alone(w->b, write_one(w->b, w->t, KEY, 9));
	to_commit(s, items, n);
}

/* A has ended, and stands still before it undoes what it wrote: others do that, and write. */
static void too_late_to_undo(void **state)
{
	struct world w;

	open_watched(&w, state, SHORT_NS);
	memcpy(stages, watched.stages, sizeof(stages[0]) * watched.n_stages);
	stages[watched.undo].run = undo_late;
	watched.stages = stages;
	undoes_late = true;
	assert_int_equal(a_writes(&w, 7, nothing_happens, -EAGAIN), -EAGAIN);
	assert_false(undoes_late);
	assert_int_equal(lock_of(&w, KEY), 0);
	assert_int_equal(value_of(w.b, w.t, KEY), 9);
	close_world(&w);
}

/* Before the server looks, others have rolled A back, and one of them has written. */
static void install_taken_over(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct world *w = meanwhile.w;
	char *tuple = (char *)(uintptr_t)tuple_of(w, KEY);

	assert_true(s->for_other);
	vb_tuple_set_word(tuple, w->t->layout.lock_at, 0);
	memcpy(tuple + w->t->layout.record_at, &(struct record){.value = 9}, sizeof(struct record));
	to_cascade_install(s, items, n);
}

/* A server installs nothing that is not its coordinator's any more, and says so. */
static void install_too_late(void **state)
{
	struct world w;

	open_watched(&w, state, SHORT_NS);
	memcpy(stages, watched.stages, sizeof(stages[0]) * watched.n_stages);
	stages[watched.install].run = install_taken_over;
	watched.stages = stages;
	assert_int_equal(a_writes(&w, 7, NULL, 0), -EAGAIN);
	assert_int_equal(vb_txn_cause(w.a), VB_TXN_RECOVERED);
	assert_int_equal(there(&w, KEY), 9);
	assert_int_equal(lock_of(&w, KEY), 0);
	close_world(&w);
}

static void open_without_recovery(struct world *w, void **state)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, 0);

	p.no_recovery = true;
	open_world(w, k->fabric, &p);
	watched = *w->db->cc;
	watched.decide = decide;
	w->db->cc = &watched;
	meanwhile.w = w;
}

/* Without recovery there is no log, and nobody else. */
static void without_recovery(void **state)
{
	struct world w;

	open_without_recovery(&w, state);
	assert_int_equal(change(&w, -EAGAIN), -EAGAIN);
	all_is_as_before(&w);
	must(change(&w, 0));
	all_is_changed(&w);
	close_world(&w);
}

static void do_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
}

/* What could not be put back stays locked: nobody else writes there, nor takes it for what was committed. */
static void stays_locked(void **state)
{
	struct world w;

	open_without_recovery(&w, state);
	memcpy(stages, watched.stages, sizeof(stages[0]) * watched.n_stages);
	stages[watched.undo].run = do_nothing;
	watched.stages = stages;
	assert_int_equal(a_writes(&w, 7, nothing_happens, -EAGAIN), -EAGAIN);
	assert_int_equal(there(&w, KEY), 7);
	assert_int_equal(lock_of(&w, KEY), w.a->txn.ts);
	b_writes(&w);
	close_world(&w);
}

/* ---- by others ---- */

static void die(struct world *w)
{
	vb_coordinator_bury(w->a);
	w->a = NULL;
}

/* A installs, and is gone. */
static void install_and_die(struct world *w)
{
	assert_int_equal(change(w, -VB_EUNKNOWN), -VB_EUNKNOWN);
	die(w);
}

/* That of the dead one's node gives his places up, and for that undoes what he has left at the other, too. */
static void by_a_sweep(void **state)
{
	uint64_t freed;
	struct world w;

	open_watched(&w, state, SHORT_NS);
	install_and_die(&w);
	must(vb_db_recover(w.b, 0, &freed));
	assert_int_equal(w.b->rolled_forward, KEYS + 2);
	must(vb_db_recover(w.b, 1, &freed));
	assert_int_equal(freed, 0);
	all_is_as_before(&w);
	close_world(&w);
}

/* Record by record, as they are met; and who has read one before does not commit. */
static void by_whom_it_meets(void **state)
{
	struct world w;
	uint64_t value;

	open_watched(&w, state, SHORT_NS);
	install_and_die(&w);
	tick(w.b);
	must(vb_txn_begin(w.b));
	must(read_one(w.b, w.t, &value));
	assert_int_equal(value, 100 + KEY);
	assert_int_equal(vb_txn_commit(w.b), -EAGAIN);
	all_is_as_before(&w);
	assert_int_equal(w.b->rolled_forward, KEYS + 2);
	close_world(&w);
}

/* A is past its decision: what is in place stays, and only the lock words go. */
static void committed_and_dead(void **state)
{
	uint64_t freed;
	struct world w;

	open_watched(&w, state, SHORT_NS);
	memcpy(stages, watched.stages, sizeof(stages[0]) * watched.n_stages);
	stages[watched.commit].run = do_nothing;
	watched.stages = stages;
	must(change(&w, 0));
	die(&w);
	stages[watched.commit].run = to_cascade_release;
	for (uint16_t node = 0; node < NODES; node++)
		must(vb_db_recover(w.b, node, &freed));
	assert_int_equal(w.b->rolled_forward, 0);
	all_is_changed(&w);
	for (uint64_t key = 0; key < KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 100 + key);
	close_world(&w);
}

static size_t add(struct CMUnitTest *tests, char (*names)[128], size_t n, const struct kind *k,
		  const struct case_for_all *cases, size_t n_cases)
{
	for (size_t i = 0; i < n_cases; i++, n++) {
		snprintf(names[n], sizeof(names[n]), "%s %s: %s", k->fabric,
			 k->hybrid != NULL ? k->hybrid : "one-sided", cases[i].name);
		tests[n] = (struct CMUnitTest){.name = names[n],
					       .test_func = cases[i].run,
					       .initial_state = (void *)(uintptr_t)k};
	}
	return n;
}

int main(void)
{
	static const struct case_for_all cases[] = {
		{"who reads what is installed commits behind its writer", reads_and_commits},
		{"who has read it ends with its writer", ends_with_its_writer},
		{"who has read it waits for its writer", waits_for_its_writer},
		{"what was read and is then written must be as it was read", then_writes},
		{"what was refused stays refused", refused_stays_refused},
		{"a writer whose name is gone", a_name_is_gone},
		{"a writer whose name is gone, and whose version", nobody_knows},
		{"one write is pending at a time", one_at_a_time},
		{"undone by oneself", by_oneself},
		{"undone from the own log", from_the_own_log},
		{"undone without recovery", without_recovery},
		{"what is not undone stays locked", stays_locked},
	};
	static const struct case_for_all dead[] = {
		{"undone by a sweep", by_a_sweep},
		{"undone by whom it meets", by_whom_it_meets},
		{"a commit that let nothing go", committed_and_dead},
	};
	static const struct case_for_all looks[] = {
		{"who looks at its writer looks in order", looks_in_any_order},
		{"who undoes too late undoes nothing", too_late_to_undo},
	};
	static const struct case_for_all served[] = {
		{"a server that comes too late installs nothing", install_too_late},
	};
	static struct CMUnitTest tests[VB_ARRAY_SIZE(kinds_here) * VB_ARRAY_SIZE(cases) +
				       VB_ARRAY_SIZE(kinds_dead) * VB_ARRAY_SIZE(dead) +
				       VB_ARRAY_SIZE(kinds_looks) * VB_ARRAY_SIZE(looks) +
				       VB_ARRAY_SIZE(kinds_served) * VB_ARRAY_SIZE(served)];
	static char names[VB_ARRAY_SIZE(tests)][128];
	size_t n = 0;

	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_here); k++)
		n = add(tests, names, n, &kinds_here[k], cases, VB_ARRAY_SIZE(cases));
	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_dead); k++)
		n = add(tests, names, n, &kinds_dead[k], dead, VB_ARRAY_SIZE(dead));
	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_looks); k++)
		n = add(tests, names, n, &kinds_looks[k], looks, VB_ARRAY_SIZE(looks));
	for (size_t k = 0; k < VB_ARRAY_SIZE(kinds_served); k++)
		n = add(tests, names, n, &kinds_served[k], served, VB_ARRAY_SIZE(served));
	return cmocka_run_group_tests_name("txn_to_cascade", tests, NULL, NULL);
}
