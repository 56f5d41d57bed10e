/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A coordinator passes its commit point, and then nothing of it reaches any record: its commit
 * stage does nothing, and its client is gone.  Others finish what it has left, from its log, which
 * they read with verbs; also where it is longer than what any fabric moves with one verb.  On shm
 * nobody rolls forward while the owner's process lives.
 */
#include <inttypes.h>
#include <xxhash.h>

#include "fabric/hook/hooks.h"
#include "fabric/sim/sim.h"
#include "txn/db.h"
#include "txn_api.h"

#define LEFT_KEYS  6u
#define LARGE_KEYS 70u
#define LARGE      (15u << 10) /* more than 1 MiB together: the most of a READ on sim */

static uint8_t large[LARGE];

/* The protocol with a commit stage that does nothing, here or at a server, nor lets readers go. */
static struct vb_cc_ops mute;
static struct vb_stage_ops stages[VB_STAGES_MAX];

static void do_nothing(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	(void)s;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
}

static void on_prepared(void *ctx, const struct vb_txn *t)
{
	struct vb_db *db = t->me->db;

	(void)ctx;
	mute = *db->cc;
	memcpy(stages, mute.stages, mute.n_stages * sizeof(stages[0]));
	stages[mute.commit].run = do_nothing;
	stages[mute.release].run = do_nothing;
	mute.stages = stages;
	db->cc = &mute;
}

static void on_ended(void *ctx, const struct vb_txn *t, bool committed)
{
	(void)t;
	*(bool *)ctx = committed;
}

static void on_unknown(void *ctx, const struct vb_txn *t)
{
	(void)ctx;
	(void)t;
}

static void die(struct world *w)
{
	vb_coordinator_bury(w->a);
	w->a = NULL;
}

/* Coordinator a of the world commits, as far as its commit point. */
static void commit_by_half(struct world *w)
{
	const struct vb_cc_ops *cc = w->db->cc;
	bool committed = false;
	struct vb_txn_watch watch = {.ctx = &committed,
				     .prepared = on_prepared,
				     .ended = on_ended,
				     .unknown = on_unknown};

	w->db->watch = &watch;
	must(vb_txn_commit(w->a));
	w->db->watch = NULL;
	w->db->cc = cc;
	assert_true(committed);
}

static void commit_and_die(struct world *w)
{
	commit_by_half(w);
	die(w);
}

/* What is of no fabric in particular is played in virtual time alone. */
static bool is_sim(void **state)
{
	return strcmp(fabric_of(state), "sim") == 0;
}

/* To these records. */
static void leave(struct world *w, struct vb_table *t, unsigned keys, const void *record)
{
	must(vb_txn_begin(w->a));
	for (uint64_t key = 0; key < keys; key++)
		must(vb_txn_write(w->a, t, key, record));
	commit_and_die(w);
}

static char *tuple_of(struct world *w, uint64_t key)
{
	struct vb_table *t = w->t;

	return vb_local(w->f, vb_table_find(t, vb_table_node(t, key), key), t->layout.bytes);
}

/* Words by which somebody holds the record, as a writer or as a reader. */
static unsigned held(struct world *w, uint64_t key)
{
	struct vb_named_word named[VB_NAMED_WORDS_MAX];

	return vb_words_named(w->db->cc, tuple_of(w, key), named);
}

/* Where what is committed is in place by then, only the lock words are left. */
static bool is_there(const struct world *w)
{
	return vb_cc_installs(w->db->cc);
}

static void recover_all(struct world *w, unsigned keys)
{
	uint64_t freed;

	for (uint16_t node = 0; node < NODES; node++)
		must(vb_db_recover(w->b, node, &freed));
	assert_int_equal(is_there(w) ? w->b->recovered : w->b->rolled_forward, keys);
}

static void finished_by_others(void **state)
{
	const struct record after = {.value = 7};
	struct world w;

	open_usual(&w, state, SHORT_NS);
	leave(&w, w.t, LEFT_KEYS, &after);
	recover_all(&w, LEFT_KEYS);
	for (uint64_t key = 0; key < LOADED; key++)
		assert_int_equal(value_of(w.b, w.t, key), key < LEFT_KEYS ? 7 : FIRST + key);
	close_world(&w);
}

/* Who has not opened the table cannot finish it, and does not forget it. */
static void table_not_open(void **state)
{
	const struct record after = {.value = 7};
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct vb_coordinator *c;
	uint64_t freed;
	struct vb_db *db;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	leave(&w, w.t, LEFT_KEYS, &after);
	must(vb_db_open(w.f, &p, &db));
	must(vb_coordinator_open(db, 1, &c));
	refused(vb_db_recover(c, 0, &freed), -EPROTO);
	vb_coordinator_close(c);
	vb_db_close(db);
	recover_all(&w, LEFT_KEYS);
	for (uint64_t key = 0; key < LEFT_KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 7);
	close_world(&w);
}

/* Of what was read before it was written, a reader's place is left, too, or its mark. */
static void upgraded(void **state)
{
	const struct record after = {.value = 7};
	const struct kind *k = *state;
	const bool marks = k->ops->caps & VB_CC_SHARED || strcmp(k->ops->name, "maat") == 0;
	struct record before;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	for (uint64_t key = 0; key < LEFT_KEYS; key++) {
		must(vb_txn_read(w.a, w.t, key, &before));
		must(vb_txn_write(w.a, w.t, key, &after));
	}
	commit_and_die(&w);
	for (uint64_t key = 0; key < LEFT_KEYS; key++)
		assert_int_equal(held(&w, key), marks ? 2 : 1);
	recover_all(&w, LEFT_KEYS);
	for (uint64_t key = 0; key < LEFT_KEYS; key++) {
		assert_int_equal(held(&w, key), 0);
		/* Where there are several versions, it does not take the place of the one before. */
		assert_int_equal(vb_tuple_newest(&w.t->layout, tuple_of(&w, key)),
				 w.t->layout.slots > 1);
		assert_int_equal(value_of(w.b, w.t, key), 7);
	}
	close_world(&w);
}

/*
 * Who keeps its age stays at its place, and finishes what it has left undone at the other one all the same: on shm
 * nobody else does, and whoever A waits for may wait for that.
 */
static void of_the_other_place(void **state)
{
	static const struct vb_txn_params hurried = {.timeout_ns = 1};
	const struct record after = {.value = 7};
	struct world w;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, 0, &after));
	commit_by_half(&w);
	assert_int_equal(held(&w, 0), 1);
	must(vb_txn_begin_with(w.a, &hurried));
	must(vb_ep_sleep(w.a->ep, 1000));
	assert_int_equal(vb_txn_commit(w.a), -ETIMEDOUT);
	assert_int_equal(held(&w, 0), 1);
	must(vb_txn_begin(w.a));
	assert_int_equal(held(&w, 0), 0);
	vb_txn_abort(w.a);
	assert_int_equal(value_of(w.b, w.t, 0), 7);
	close_world(&w);
}

/* ---- over a link that is down ---- */

/* So many posts to node 1 are refused, which are not executed then; but for the first CASes, which are, and whose
 * answers are lost. */
static struct {
	const struct vb_fabric_ops *real;
	struct vb_fabric_ops ops;
	unsigned left, refused, unheard;
} link_;

static int end_refused(struct vb_batch *batch)
{
	for (unsigned i = 0; i < batch->n; i++)
		batch->verbs[i].status = -VB_EPEERGONE;
	batch->pending = 0;
	return 0;
}

/* One verb is executed, and its answer is lost. */
static int end_unheard(const struct vb_fabric_ops *real, struct vb_ep *ep, struct vb_batch *batch)
{
	struct vb_verb v = batch->verbs[0];
	struct vb_batch heard = {.verbs = &v, .n = 1};

	assert_int_equal(batch->n, 1);
	assert_true(real->post(ep, &heard) >= 0);
	must(vb_wait(ep, &heard));
	batch->verbs[0].status = -VB_EUNKNOWN;
	batch->pending = 0;
	return 0;
}

static int post_over_link(struct vb_ep *ep, struct vb_batch *batch)
{
	bool there = false;

	for (unsigned i = 0; i < batch->n; i++)
		there |=
			batch->verbs[i].op != VB_OP_SEND && vb_addr_node(batch->verbs[i].addr) == 1;
	if (!there || link_.left == 0)
		return link_.real->post(ep, batch);
	if (link_.unheard > 0 && batch->verbs[0].op == VB_OP_CAS64) {
		link_.unheard--;
		return end_unheard(link_.real, ep, batch);
	}
	link_.left--;
	link_.refused++;
	return end_refused(batch);
}

/* Of coordinator a, on node 0; the simulator has its own ops back before it is closed. */
static void cut_link(struct world *w, unsigned posts, unsigned unheard)
{
	link_.real = w->a->ep->ops;
	link_.ops = *link_.real;
	link_.ops.post = post_over_link;
	link_.left = posts;
	link_.refused = 0;
	link_.unheard = unheard;
	w->a->ep->ops = &link_.ops;
}

/* It commits these keys, and nothing of that is in place yet. */
static void commit_some(struct world *w, uint64_t from)
{
	const struct record after = {.value = 7};

	must(vb_txn_begin(w->a));
	for (uint64_t key = from; key < from + LEFT_KEYS; key++)
		must(vb_txn_write(w->a, w->t, key, &after));
	commit_by_half(w);
}

/* Until all that it has committed is in place.  How often that is refused. */
static unsigned use_places(struct world *w)
{
	unsigned told = 0;

	for (unsigned tries = 0; w->a->lane[0].unacknowledged || w->a->lane[1].unacknowledged;
	     tries++) {
		int err = vb_txn_begin(w->a);

		assert_true(tries < 100);
		if (err == 0)
			vb_txn_abort(w->a);
		else
			assert_int_equal(err, -VB_EPEERGONE);
		told += err != 0;
	}
	return told;
}

/* However long the link is down: what waits for it at both places is told, and not forgotten.  Where time is real,
 * one length will do. */
static void over_a_link_that_is_down(void **state)
{
	const unsigned first = is_sim(state) ? 1 : 3, last = is_sim(state) ? 9 : 3;
	unsigned told = 0;
	struct world w;

	for (unsigned posts = first; posts <= last; posts++) {
		open_usual(&w, state, SHORT_NS);
		commit_some(&w, 0);
		commit_some(&w, LEFT_KEYS);
		cut_link(&w, posts, is_sim(state) ? posts % 2 : 0);
		told += use_places(&w);
		w.a->ep->ops = link_.real;
		assert_int_equal(link_.refused, posts);
		for (uint64_t key = 0; key < 2 * LEFT_KEYS; key++)
			assert_int_equal(held(&w, key), 0);
		for (uint64_t key = 0; key < LOADED; key++)
			assert_int_equal(value_of(w.b, w.t, key),
					 key < 2 * LEFT_KEYS ? 7 : FIRST + key);
		close_world(&w);
	}
	assert_true(told >= last / 2);
}

/* The other place is of use meanwhile, each time. */
static void beside_a_link_that_is_down(void **state)
{
	struct world w;

	if (!is_sim(state))
		skip();
	open_usual(&w, state, SHORT_NS);
	commit_some(&w, 0);
	cut_link(&w, 100, 0);
	for (unsigned i = 1; i <= 3; i++) {
		must(vb_txn_begin(w.a));
		vb_txn_abort(w.a);
		assert_true(link_.refused >= i - 1);
	}
	link_.left = 0;
	assert_int_equal(use_places(&w), 0);
	w.a->ep->ops = link_.real;
	for (uint64_t key = 0; key < LEFT_KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 7);
	close_world(&w);
}

/* Nor does it keep what others have left where no link is down. */
static void sweeps_beside_a_link_that_is_down(void **state)
{
	const struct record after = {.value = 8};
	struct world w;
	uint64_t freed;

	if (!is_sim(state))
		skip();
	open_usual(&w, state, SHORT_NS);
	assert_int_equal(vb_table_node(w.t, 0), 0);
	leave(&w, w.t, 1, &after);
	must(vb_coordinator_open(w.db, 0, &w.a));
	commit_some(&w, LEFT_KEYS);
	cut_link(&w, 100, 0);
	assert_int_equal(vb_db_recover(w.a, 0, &freed), -VB_EPEERGONE);
	assert_true(freed > 0 && link_.refused > 0);
	assert_int_equal(held(&w, 0), 0);
	link_.left = 0;
	must(vb_db_recover(w.a, 0, &freed));
	w.a->ep->ops = link_.real;
	assert_int_equal(value_of(w.b, w.t, 0), 8);
	for (uint64_t key = LEFT_KEYS; key < 2 * LEFT_KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 7);
	close_world(&w);
}

/* What is not there any more is not waited for, be it that the link was down first and a lock there may be a
 * recovery's.  Only sim can lose a node of a process that lives. */
static void of_a_node_that_is_gone_and(void **state, bool cut_off)
{
	const struct vb_db_params p = usual_db(*state, SHORT_NS);
	unsigned there = 0;
	struct world w;

	if (!is_sim(state))
		skip();
	open_hooked(&w, state, &p);
	commit_some(&w, 0);
	if (cut_off) {
		cut_link(&w, 1, 1);
		while (link_.left > 0) {
			(void)vb_txn_begin(w.a);
			vb_txn_abort(w.a);
		}
		w.a->ep->ops = link_.real;
		assert_int_equal(w.a->owed != NULL, !is_there(&w));
	}
	vb_coordinator_bury(w.b); /* with it */
	w.b = NULL;
	vb_sim_lose_node(w.f->lower, 1);
	assert_int_equal(use_places(&w), 0);
	assert_null(w.a->owed);
	for (uint64_t key = 0; key < LEFT_KEYS; key++) {
		bool on = vb_table_node(w.t, key) == 0;

		there += on;
		if (on || !cut_off)
			assert_int_equal(held(&w, key), !on);
		if (on)
			assert_int_equal(value_of(w.a, w.t, key), 7);
	}
	assert_true(there > 0 && there < LEFT_KEYS);
	close_world(&w);
}

static void of_a_node_that_is_gone(void **state)
{
	of_a_node_that_is_gone_and(state, false);
}

static void of_a_node_that_is_gone_later(void **state)
{
	of_a_node_that_is_gone_and(state, true);
}

/* ---- what is another's, or another time's ---- */

/* A lock of an earlier name of a place that goes on is set back, and that is all. */
static void of_an_earlier_name(void **state)
{
	struct world w;
	uint64_t *word, *status, earlier, freed;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	status = vb_local(w.f, vb_db_place(w.db, vb_txn_lane(w.a)->place), 8);
	earlier = vb_ts_make(vb_ts_clock(w.a->txn.ts) - 1, vb_txn_lane(w.a)->place);
	word = (uint64_t *)(tuple_of(&w, 1) + w.t->layout.lock_at);
	*word = w.db->cc->locked(earlier, *word);
	assert_int_equal(held(&w, 1), 1);
	must(vb_db_recover(w.b, vb_table_node(w.t, 1), &freed));
	assert_int_equal(freed, 1);
	assert_int_equal(held(&w, 1), 0);
	assert_int_equal(*status, w.a->txn.ts | VB_TS_RUNNING);
	close_world(&w);
}

/*
 * A lock word with a part of a name may fit a transaction of the place that has committed, and whose log has the
 * record, and not be the word by which that one held it: nothing of the commit is owed there, and it is set back.
 */
static void of_another_lock(void **state)
{
	const struct record after = {.value = 7};
	struct world w;
	uint64_t *word, freed;

	open_usual(&w, state, SHORT_NS);
	must(vb_txn_begin(w.a));
	if (w.db->cc->locked(w.a->txn.ts, 4) == w.db->cc->locked(w.a->txn.ts, 8)) {
		/* All of it is in the word. */
		close_world(&w);
		return;
	}
	must(vb_txn_write(w.a, w.t, 1, &after));
	must(vb_txn_commit(w.a));
	word = (uint64_t *)(tuple_of(&w, 1) + w.t->layout.lock_at);
	*word = w.db->cc->locked(w.a->txn.ts, *word);
	assert_int_not_equal(*word, w.a->txn.item[0].held);
	assert_int_equal(held(&w, 1), 1);
	must(vb_db_recover(w.b, vb_table_node(w.t, 1), &freed));
	assert_int_equal(freed, 1);
	assert_int_equal(w.b->recovered, 1);
	assert_int_equal(w.b->rolled_forward, 0);
	assert_int_equal(held(&w, 1), 0);
	assert_int_equal(value_of(w.b, w.t, 1), 7);
	close_world(&w);
}

static int find_large(struct vb_coordinator *me, struct vb_table *t, uint64_t key, bool *same)
{
	const void *here;
	int err = vb_txn_get(me, t, key, &here);

	*same = err == 0 && memcmp(here, large, LARGE) == 0;
	return err;
}

static void long_log(void **state)
{
	const struct vb_table_params tp = {
		.name = "large", .record_bytes = LARGE, .records = LARGE_KEYS};
	struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct world w = {0};
	bool same = false;

	p.coordinators = 2;
	p.items_max = LARGE_KEYS;
	p.record_bytes_max = LARGE;
	p.bytes_max = LARGE_KEYS * LARGE;
	open_fabric(&w.f, fabric_of(state),
		    vb_db_node_bytes(&p, NODES) + vb_table_node_bytes(&p, &tp, NODES));
	must(vb_db_open(w.f, &p, &w.db));
	must(vb_table_open(w.db, &tp, &w.t));
	for (uint64_t key = 0; key < LARGE_KEYS; key++)
		must(vb_table_load(w.t, key, large));
	start_servers(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	must(vb_coordinator_open(w.db, 1, &w.b));
	for (unsigned i = 0; i < LARGE; i++)
		large[i] = (uint8_t)(i * 7 + i / 256);
	leave(&w, w.t, LARGE_KEYS, large);
	recover_all(&w, LARGE_KEYS);
	for (uint64_t key = 0; key < LARGE_KEYS; key++) {
		alone(w.b, find_large(w.b, w.t, key, &same));
		assert_true(same);
	}
	memset(large, 0, LARGE);
	close_world(&w);
}

/* ---- what does not bear its seal is no log ---- */

enum spoiled { RECORD, NEXT, SHORTER, SEAL, ANOTHERS, SPOILS };

static void spoil(struct world *w, uint32_t place, enum spoiled how)
{
	struct vb_place_head *head = vb_local(w->f, vb_db_place(w->db, place), w->db->place_bytes);
	struct vb_log_entry *first = (void *)(head + 1);
	unsigned char *log = (unsigned char *)first;
	uint64_t name = head->status & ~(uint64_t)VB_TS_STATE;

	assert_int_equal(head->status & VB_TS_STATE, VB_TS_COMMITTED);
	assert_int_equal(head->log_bytes, LEFT_KEYS * (sizeof(*first) + sizeof(struct record)));
	assert_int_equal(head->log_seal, XXH3_64bits_withSeed(log, head->log_bytes, name));
	switch (how) {
	case RECORD:
		log[head->log_bytes - 1] ^= 1;
		break;
	case NEXT:
		first->next += 4;
		break;
	case SHORTER:
		head->log_bytes -= sizeof(*first) + sizeof(struct record);
		break;
	case SEAL:
		head->log_seal ^= 1ull << 63;
		break;
	default: /* whole, and of the same place's next transaction */
		head->log_seal = XXH3_64bits_withSeed(log, head->log_bytes,
						      vb_ts_make(vb_ts_clock(name) + 1, place));
	}
}

/* Half of one log and half of the next, or all of the next: nothing of it may reach a record, nor undo one. */
static void wrong_seal(void **state)
{
	const struct record after = {.value = 7}, later = {.value = 8};

	for (enum spoiled how = RECORD; how < SPOILS; how++) {
		uint64_t freed;
		struct world w;
		uint32_t place;

		open_usual(&w, state, SHORT_NS);
		/* The place of the transaction that begins next. */
		place = w.a->lane[(w.a->current + 1) % VB_PLACES_TXN].place;
		leave(&w, w.t, LEFT_KEYS, &after);
		spoil(&w, place, how);
		for (uint16_t node = 0; node < NODES; node++)
			must(vb_db_recover(w.b, node, &freed));
		assert_int_equal(w.b->rolled_forward, 0);
		for (uint64_t key = 0; key < LOADED; key++)
			assert_int_equal(value_of(w.b, w.t, key),
					 is_there(&w) && key < LEFT_KEYS ? 7 : FIRST + key);
		alone(w.b, vb_txn_write(w.b, w.t, 0, &later));
		assert_int_equal(value_of(w.b, w.t, 0), 8);
		close_world(&w);
	}
}

/* ---- in what time ---- */

#define RETRY_NS 10000u
#define TRIES_NS 300000u /* tries that wait for a while, and a recovery's own verbs */

/* Until b has written the first key, from when it first wanted to. */
static uint64_t time_to_write(struct world *w)
{
	const struct record later = {.value = 8};
	uint64_t begin = vb_ep_now(w->b->ep);
	int err;

	for (;;) {
		must(vb_txn_begin(w->b));
		err = vb_txn_write(w->b, w->t, 0, &later);
		if (err == 0)
			err = vb_txn_commit(w->b);
		if (err == 0)
			return vb_ep_now(w->b->ep) - begin;
		assert_int_equal(err, -EAGAIN);
		must(vb_ep_sleep(w->b->ep, RETRY_NS));
	}
}

/* A record of the dead is had when its holder has stood still twice in a row for the time after which
 * he is suspected, and what he had committed when none of his servers can write any more: not
 * sooner, and not later. */
static void in_time(void **state, bool committed)
{
	const struct record record = {.value = 7};
	uint64_t took, least, more;
	struct world w;

	open_usual(&w, state, SHORT_NS);
	if (committed) {
		leave(&w, w.t, 1, &record);
	} else {
		must(vb_txn_begin(w.a));
		must(vb_txn_write(w.a, w.t, 0, &record));
		/* Some lock as late as the commit. */
		if (held(&w, 0) == 0)
			must(w.db->cc->prepare(&w.a->txn));
		die(&w);
	}
	assert_int_equal(held(&w, 0), 1);
	committed &= !is_there(&w);
	least = 2 * w.db->suspect_ns + (committed ? w.db->suspect_ns - w.db->lease_ns : 0);
	/* Where a machine's time is in it, as much again. */
	more = w.f->caps.flags & VB_CAP_VIRTUAL ? TRIES_NS : least;
	took = time_to_write(&w);
	assert_int_equal(w.b->rolled_forward, committed);
	if (took < least || took > least + more)
		fail_msg("it took %" PRIu64 " ns, not %" PRIu64 " and a little", took, least);
	close_world(&w);
}

static void in_time_back(void **state)
{
	in_time(state, false);
}

static void in_time_forward(void **state)
{
	in_time(state, true);
}

/* ---- who recovers stands still himself ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	vb_addr at;    /* of a word, or where a WRITE begins */
	enum vb_op op; /* with it */
	uint64_t ns;   /* that the first of these is late */
	unsigned seen;
	vb_addr lock, name; /* behind that, CASes of these words */
	unsigned down;      /* are refused, so many */
	unsigned
		unheard; /* or: such CASes of the first are executed, their answers are lost, and then */
	bool cut;
} still;

static int post_late(struct vb_ep *ep, struct vb_batch *b)
{
	for (unsigned i = 0; i < b->n; i++) {
		if (b->verbs[i].op != still.op || b->verbs[i].addr != still.at)
			continue;
		if (still.seen++ == 0)
			must(vb_ep_sleep(ep, still.ns));
		break;
	}
	if (b->verbs[0].op != VB_OP_CAS64 ||
	    (b->verbs[0].addr != still.lock && b->verbs[0].addr != still.name))
		return still.real->post(ep, b);
	if (still.unheard > 0) {
		still.cut |= --still.unheard == 0;
		return end_unheard(still.real, ep, b);
	}
	if (still.down == 0 || !(still.cut || still.seen > 0))
		return still.real->post(ep, b);
	still.down--;
	return end_refused(b);
}

/* B's next verb of this kind at this word of the key, which is not of its node, is late. */
static void be_late(struct world *w, enum vb_op op, uint64_t key, uint32_t word)
{
	assert_int_equal(vb_table_node(w->t, key), 0);
	still.at = vb_table_find(w->t, 0, key) + word;
	still.lock = vb_table_find(w->t, 0, key) + w->t->layout.lock_at;
	still.name = 0;
	still.down = still.unheard = 0;
	still.cut = false;
	still.op = op;
	still.ns = w->db->lease_ns + 1000000;
	still.seen = 0;
	still.real = w->b->ep->ops;
	still.ops = *still.real;
	still.ops.post = post_late;
	w->b->ep->ops = &still.ops;
}

/* What it read before it sets a lock back may not be so any more: it does nothing, and says so. */
static void set_back_late(void **state)
{
	const struct record record = {.value = 7};
	const struct vb_db_params p = usual_db(*state, SHORT_NS);
	struct world w;
	uint64_t freed;

	open_hooked(&w, state, &p);
	must(vb_txn_begin(w.a));
	must(vb_txn_write(w.a, w.t, 0, &record));
	/* Some lock as late as the commit. */
	if (held(&w, 0) == 0)
		must(w.db->cc->prepare(&w.a->txn));
	assert_int_equal(held(&w, 0), 1);
	die(&w);
	be_late(&w, VB_OP_CAS64, 0, w.t->layout.lock_at);
	assert_int_equal(vb_db_recover(w.b, 0, &freed), -VB_ETOOLATE);
	assert_int_equal(still.seen, 1);
	assert_int_equal(freed, 0);
	assert_int_equal(held(&w, 0), 1);
	must(vb_db_recover(w.b, 0, &freed));
	assert_int_equal(freed, 1);
	assert_int_equal(value_of(w.b, w.t, 0), FIRST);
	close_world(&w);
}

/* What it took over, others may have taken over from it: it does not write, but begins again.  If the link is
 * down by then it recovers nothing else before that is done: the lock stands in its name, whose log must not be
 * that of the next one. */
static void redo_late_and(void **state, unsigned down)
{
	const struct record after = {.value = 7};
	const struct vb_db_params p = usual_db(*state, SHORT_NS);
	uint64_t freed;
	struct world w;

	if (vb_cc_installs(((const struct kind *)*state)->ops))
		return;
	open_hooked(&w, state, &p);
	leave(&w, w.t, LEFT_KEYS, &after);
	be_late(&w, VB_OP_WRITE, 0,
		w.t->layout.version_at + vb_slot_behind(&w.t->layout, 1 % w.t->layout.slots));
	still.down = down;
	if (down > 0) /* each of the next keys meets it */
		assert_int_equal(vb_db_recover(w.b, 0, &freed), -VB_EPEERGONE);
	recover_all(&w, LEFT_KEYS);
	assert_int_equal(still.seen, 2);
	assert_int_equal(still.down, 0);
	for (uint64_t key = 0; key < LEFT_KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 7);
	close_world(&w);
}

/*
 * The same, but its own node cannot be reached either when it takes its second name: until the lock is another's, the
 * log under the first name is all that is left of the commit.
 */
static void redo_late_unnamed(void **state)
{
	const struct record after = {.value = 7};
	const struct vb_db_params p = usual_db(*state, SHORT_NS);
	uint64_t freed;
	struct world w;

	if (vb_cc_installs(((const struct kind *)*state)->ops))
		return;
	if (!is_sim(state))
		skip();
	open_hooked(&w, state, &p);
	leave(&w, w.t, 1, &after);
	be_late(&w, VB_OP_WRITE, 0,
		w.t->layout.version_at + vb_slot_behind(&w.t->layout, 1 % w.t->layout.slots));
	still.name = vb_status_word(w.db, w.b->lane[VB_PLACES_TXN + w.b->recovering].place);
	still.down = 100;
	assert_int_equal(vb_db_recover(w.b, 0, &freed), -VB_EPEERGONE);
	assert_in_range(still.down, 1, 99);
	still.down = 0;
	recover_all(&w, 1);
	assert_int_equal(value_of(w.b, w.t, 0), 7);
	close_world(&w);
}

/* B takes the first key's lock over, does not hear of it, and then the link is down. */
static void be_cut_off(struct world *w, void **state)
{
	const struct record after = {.value = 7};
	const struct vb_db_params p = usual_db(*state, SHORT_NS);
	uint64_t freed;

	open_hooked(w, state, &p);
	leave(w, w->t, LEFT_KEYS, &after);
	be_late(w, VB_OP_WRITE, 0,
		w->t->layout.version_at + vb_slot_behind(&w->t->layout, 1 % w->t->layout.slots));
	still.ns = 0;
	still.unheard = 1;
	still.down = 100;
	assert_int_equal(vb_db_recover(w->b, 0, &freed), -VB_EPEERGONE);
	assert_in_range(still.down, 1, 99);
	assert_int_equal(still.seen, 0);
	assert_int_equal(held(w, 0), 1);
}

/* In the name that it had then it writes no more: others may have recovered that meanwhile. */
static void redo_cut_off(void **state)
{
	struct world w;

	if (vb_cc_installs(((const struct kind *)*state)->ops))
		return;
	if (!is_sim(state))
		skip();
	be_cut_off(&w, state);
	still.down = 0;
	recover_all(&w, LEFT_KEYS);
	assert_int_equal(still.seen, 2);
	for (uint64_t key = 0; key < LEFT_KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 7);
	close_world(&w);
}

/* Who closes ends it first, or leaves its places to others. */
static void closed_cut_off_and(void **state, bool down)
{
	struct vb_place_head *first;
	struct world w;

	if (vb_cc_installs(((const struct kind *)*state)->ops))
		return;
	if (!is_sim(state))
		skip();
	be_cut_off(&w, state);
	first = vb_local(w.f, vb_db_place(w.db, w.b->lane[0].place), sizeof(*first));
	assert_true(first->owner != 0);
	still.down = down ? 100 : 0;
	vb_coordinator_close(w.b);
	assert_int_equal(first->owner != 0, down);
	assert_int_equal(held(&w, 0), down);
	must(vb_coordinator_open(w.db, 1, &w.b));
	recover_all(&w, down ? LEFT_KEYS : LEFT_KEYS - 1);
	assert_int_equal(first->owner == 0, down);
	for (uint64_t key = 0; key < LEFT_KEYS; key++)
		assert_int_equal(value_of(w.b, w.t, key), 7);
	close_world(&w);
}

static void closed_cut_off(void **state)
{
	closed_cut_off_and(state, true);
}

static void closed_after_that(void **state)
{
	closed_cut_off_and(state, false);
}

static void redo_late(void **state)
{
	redo_late_and(state, 0);
}

static void redo_late_and_cut_off(void **state)
{
	redo_late_and(state, 3);
}

int main(int argc, char **argv)
{
	static const struct case_for_all cases[] = {
		{"finished by others", finished_by_others},
		{"in a table that is not open", table_not_open},
		{"upgraded", upgraded},
		{"of the other place", of_the_other_place},
		{"over a link that is down", over_a_link_that_is_down},
		{"beside a link that is down", beside_a_link_that_is_down},
		{"swept beside a link that is down", sweeps_beside_a_link_that_is_down},
		{"of a node that is gone", of_a_node_that_is_gone},
		{"of a node that is cut off, and gone", of_a_node_that_is_gone_later},
		{"of an earlier name", of_an_earlier_name},
		{"of another lock", of_another_lock},
		{"from a log longer than a verb", long_log},
		{"a log without its seal", wrong_seal},
		{"set back in time", in_time_back},
		{"redone in time", in_time_forward},
		{"set back late", set_back_late},
		{"redone late", redo_late},
		{"redone late and cut off", redo_late_and_cut_off},
		{"redone late and without a name", redo_late_unnamed},
		{"redone when it was cut off for long", redo_cut_off},
		{"closed when it is cut off", closed_cut_off},
		{"closed when it is no more", closed_after_that},
	};
	static const char *const fabrics[] = {"sim", NULL};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	return _cmocka_run_group_tests("transactions: what is left", tests, n, NULL, NULL);
}
