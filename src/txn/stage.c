/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Running a stage: here or at the owners, again for the items that have to wait, until all are done
 * or one says that the transaction must end.
 */
#define VB_LOG_ROOM "txn"
#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

/* Between two tries for a lock that another has: from a bare look around to the database's look_ns, or to such a share of
 * what has been waited, up to so many look_ns (longest_pause). */
#define WAIT_FIRST_NS 500ull
#define WAIT_SHARE    8u
#define LOOKS_MOST    16u

bool vb_stage_sealed(const struct vb_stage *s)
{
	return s->db->store.sealed;
}

/* They are aligned to 16 bytes (store/store.h). */
bool vb_stage_pair_whole(const struct vb_stage *s)
{
	return s->acc->ep->fabric->caps.flags & VB_CAP_MASKED128;
}

uint64_t vb_stage_look_ns(const struct vb_stage *s)
{
	return s->db->look_ns;
}

vb_addr vb_stage_status_addr(const struct vb_stage *s, uint32_t place)
{
	return vb_status_word(s->db, place);
}

bool vb_stage_place_gone(const struct vb_stage *s, uint32_t place)
{
	return vb_copies_home_gone(s->db, s->acc->node, place);
}

bool vb_stage_has_place(const struct vb_stage *s, uint32_t place)
{
	return place < s->db->coordinators * VB_PLACES_EACH * s->db->fabric->nodes;
}

bool vb_stage_go(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	int err = vb_acc_go(s->acc);

	if (vb_likely(err == 0))
		return true;
	s->err = err;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = VB_TXN_FABRIC;
	return false;
}

void vb_stage_hint(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n && n > 1; i++)
		if (!(items[i]->flags & VB_ITEM_FETCHED))
			vb_acc_hint(s->acc, items[i]->at, vb_item_layout(items[i])->bytes);
}

void vb_stage_read_tuple(struct vb_stage *s, struct vb_item *it)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);

	vb_acc_read(s->acc, VB_READ_DI, it->at, it->image,
		    it->flags & VB_ITEM_BLIND ? l->blind_bytes : l->bytes);
}

bool vb_item_is_key(const struct vb_item *it)
{
	return vb_tuple_word(it->image, VB_TUPLE_KEY_AT) == it->key;
}

static void write_tuple(struct vb_stage *s, struct vb_item *it, uint64_t mark)
{
	const struct vb_tuple_layout *l = vb_item_layout(it);
	vb_addr to = it->at + vb_slot_behind(l, it->to_slot);

	vb_tuple_set_word(it->image, l->version_at, it->next);
	if (vb_stage_sealed(s)) {
		vb_tuple_set_word(it->image, l->seal_at, vb_tuple_seal(l, it->image));
	} else if (mark != 0) {
		/* Three WRITEs, which land in this order. */
		it->lease = it->next | mark;
		vb_acc_write(s->acc, VB_WRITE_DI, to + l->version_at, &it->lease, 8);
		vb_acc_write(s->acc, VB_WRITE_DI, to + l->record_at, it->image + l->record_at,
			     l->record_bytes);
		vb_acc_write(s->acc, VB_WRITE_DI, to + l->version_at, it->image + l->version_at, 8);
		return;
	}
	vb_acc_write(s->acc, VB_WRITE_DI, to + l->version_at, it->image + l->version_at,
		     l->one_bytes - l->version_at);
}

/*
 * The words of tuples whose holder may have been given up, for a stage that runs for another: those
 * that it has no longer are done by whoever has taken them over.  What follows this look is fenced
 * in time from before it: see txn/recover.c, "The last holder's server".
 */
static unsigned still_held(struct vb_stage *s, struct vb_item **items, unsigned n,
			   struct vb_item **out)
{
	uint64_t word[VB_BATCH_MAX];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++)
		vb_acc_read(s->acc, VB_AMOD_IM, items[i]->at + vb_item_layout(items[i])->lock_at,
			    &word[i], 8);
	if (!vb_stage_go(s, items, n))
		return 0;
	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		VB_SOMETIMES_IF(word[i] != items[i]->held, 1000,
				"txn: a server finds a lock taken over");
		if (word[i] == items[i]->held)
			out[m++] = items[i];
	}
	return m;
}

void vb_stage_write_tuple(struct vb_stage *s, struct vb_item *it)
{
	write_tuple(s, it, 0);
}

static void let_go(struct vb_stage *s, struct vb_item *it,
		   uint64_t (*freed)(const struct vb_item *it))
{
	vb_acc_cas(s->acc, VB_AMOD_IM, it->at + vb_item_layout(it)->lock_at, it->held, freed(it),
		   &it->seen);
}

/* What was asked ends with words being let go.  True: it has happened. */
static bool end_commit(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	if (s->passive)
		vb_acc_post(s->acc);
	else if (!vb_stage_go(s, items, n))
		return false;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = 0;
	return !s->passive;
}

static void commit_items(struct vb_stage *s, struct vb_item **items, unsigned n, uint64_t mark,
			 uint64_t (*freed)(const struct vb_item *it))
{
	for (unsigned i = 0; i < n; i++) {
		write_tuple(s, items[i], mark);
		if (s->acc->doorbell)
			let_go(s, items[i], freed);
	}
	/* Doorbells of their own have no promise in common: the second may ring when the first verb
	 * is lost. */
	if (!s->acc->doorbell) {
		if (!vb_stage_go(s, items, n))
			return;
		for (unsigned i = 0; i < n; i++)
			let_go(s, items[i], freed);
	}
	if (!end_commit(s, items, n))
		return;
	/* What a server had when it looked (still_held) may have been taken over since, by one who
	 * waits until the server has written. */
	for (unsigned i = 0; i < n; i++)
		if (vb_unlikely(items[i]->seen != items[i]->held) && !s->for_other)
			items[i]->flags |= VB_ITEM_LOST;
}

static void sleep_until(struct vb_ep *ep, uint64_t at_ns)
{
	uint64_t now = vb_ep_now(ep);

	if (now < at_ns)
		(void)vb_ep_sleep(ep, at_ns - now);
}

/* For another: those that are still his, which may be written until not_after_ns. */
static unsigned look_first(struct vb_stage *s, struct vb_item **items, unsigned n,
			   struct vb_item **mine)
{
	uint64_t bound = s->db->fabric->caps.verb_bound_ns;

	if (bound != 0)
		s->acc->not_after_ns = vb_ep_now(s->acc->ep) + bound;
	n = still_held(s, items, n, mine);
	/* It may be nearly too late, and what it has found may be taken over meanwhile. */
	if (bound != 0 && VB_CHANCE(400, "txn: a server is slow behind its look"))
		sleep_until(s->acc->ep, s->acc->not_after_ns - bound / 8);
	return n;
}

void vb_stage_commit(struct vb_stage *s, struct vb_item **items, unsigned n, uint64_t mark,
		     uint64_t (*freed)(const struct vb_item *it))
{
	struct vb_item *mine[VB_BATCH_MAX];

	if (!s->for_other) {
		commit_items(s, items, n, mark, freed);
		return;
	}
	n = look_first(s, items, n, mine);
	commit_items(s, mine, n, mark, freed);
	s->acc->not_after_ns = 0;
}

static void install_items(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		write_tuple(s, items[i], 0);
	if (!vb_stage_go(s, items, n))
		return;
	for (unsigned i = 0; i < n; i++)
		items[i]->status = 0;
}

void vb_stage_install(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *mine[VB_BATCH_MAX];
	unsigned m;

	if (!s->for_other) {
		install_items(s, items, n);
		return;
	}
	m = look_first(s, items, n, mine);
	for (unsigned i = 0; i < n && s->err == 0; i++)
		items[i]->status = VB_TXN_RECOVERED;
	install_items(s, mine, m);
	s->acc->not_after_ns = 0;
}

void vb_stage_let_go(struct vb_stage *s, struct vb_item **items, unsigned n,
		     uint64_t (*freed)(const struct vb_item *it))
{
	for (unsigned i = 0; i < n; i++)
		let_go(s, items[i], freed);
	(void)end_commit(s, items, n);
}

/* ---- why it must end ---- */

int vb_txn_doom(struct vb_txn *t, enum vb_txn_cause cause, int error)
{
	if (t->cause == VB_TXN_COMMITTED) {
		t->cause = (uint8_t)cause;
		t->error = error;
		if (vb_unlikely(error == -VB_EPEERGONE))
			vb_parts_tell_gone(t->me->db);
	}
	return -EAGAIN;
}

/* ---- where the tuples are ---- */

/* Makes `at` known for items whose owner's index has to be asked. */
static int find_items(struct vb_txn *t, struct vb_item **items, unsigned n, uint32_t epoch)
{
	struct vb_acc *acc = &vb_txn_lane(t->me)->acc;
	struct vb_cache *cache = t->me->db->cache;
	struct vb_find find[VB_BATCH_MAX], *want[VB_BATCH_MAX];
	int err;

	for (unsigned i = 0; i < n; i++) {
		find[i] = (struct vb_find){.table = items[i]->table, .key = items[i]->key};
		want[i] = &find[i];
	}
	err = vb_store_find(acc, want, n);
	for (unsigned i = 0; i < n && err == 0; i++) {
		items[i]->at = find[i].at;
		if (cache != NULL && find[i].at != 0)
			vb_cache_put(cache, find[i].table, find[i].key, find[i].at, epoch);
	}
	return err;
}

/* Those of the items from *from on whose address is not known, up to VB_BATCH_MAX: their number. */
static unsigned without_address(struct vb_txn *t, struct vb_item **items, unsigned n,
				unsigned *from, uint32_t epoch, struct vb_item **out)
{
	const struct vb_cache *cache = t->me->db->cache;
	unsigned m = 0;

	for (; *from < n && m < VB_BATCH_MAX; ++*from) {
		struct vb_item *it = items[*from];

		if (it->at != 0)
			continue;
		if (cache != NULL)
			it->at = vb_cache_get(cache, it->table, it->key, epoch);
		if (it->at == 0)
			out[m++] = it;
	}
	return m;
}

/* Before a one-sided stage: every item knows its address; a key that is nowhere gets a tuple. */
int vb_txn_place_items(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_BATCH_MAX];
	uint32_t epoch = vb_txn_epoch(t->me);
	unsigned from = 0, m, none;
	int err;

	while ((m = without_address(t, items, n, &from, epoch, some)) > 0) {
		err = find_items(t, some, m, epoch);
		if (err)
			return vb_txn_doom(t, VB_TXN_FABRIC, err);
		none = 0;
		for (unsigned i = 0; i < m; i++)
			if (some[i]->at == 0)
				some[none++] = some[i];
		if (none == 0)
			continue;
		vb_call_stage(t, VB_STAGE_PLACE, some, none);
		for (unsigned i = 0; i < none; i++)
			if (some[i]->status != 0)
				return vb_txn_doom(t, (enum vb_txn_cause)some[i]->status,
						   some[i]->status == VB_TXN_MISUSE ? -ENOSPC
										    : t->error);
	}
	return 0;
}

/* ---- how long ---- */

/* From half of the bound to all of it: of those that begin to wait together one gives up first. */
static void bound_wait(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	uint64_t half = (me->db->wait_ns + 1) / 2;

	if (me->db->wait_ns != 0)
		t->give_up_ns = vb_ep_now(me->ep) + half + vb_rng_below(&me->rng, half + 1);
}

/* ---- one try ---- */

static void run_here(struct vb_txn *t, struct vb_lane *lane, const struct vb_stage_ops *ops,
		     struct vb_item **items, unsigned n)
{
	struct vb_stage s = {
		.db = t->me->db,
		.acc = &lane->acc,
		.ts = t->ts,
		.commit_ts = t->commit_ts,
		.snapshot = t->snapshot,
		.passive = t->passive,
		.impatient = t->give_up_ns != 0 && vb_txn_patience(t) == 0,
		.isolation = vb_txn_reads_at(t),
	};

	for (unsigned from = 0; from < n; from += VB_STAGE_ITEMS) {
		unsigned some = n - from < VB_STAGE_ITEMS ? n - from : VB_STAGE_ITEMS;

		ops->run(&s, items + from, some);
	}
	t->commit_ts = s.commit_ts;
	t->saw = s.saw > t->saw ? s.saw : t->saw;
	if (s.err != 0) {
		t->tainted = true;
		t->error = s.err;
	}
}

/* Some of the items are near or far, all of them are done when it comes back. */
void vb_stage_run(struct vb_txn *t, struct vb_lane *lane, unsigned stage, struct vb_item **items,
		  unsigned n)
{
	const struct vb_db *db = t->me->db;
	uint64_t begin = db->timing ? vb_ep_now_early(t->me->ep) : 0;

	if (db->rpc_stages & 1u << stage)
		vb_call_stage(t, stage, items, n);
	else
		run_here(t, lane, &db->cc->stages[stage], items, n);
	if (db->timing) {
		struct vb_stage_time *timed = &t->me->timed[stage];

		timed->ns += vb_ep_now_early(t->me->ep) - begin;
		timed->runs++;
		timed->items += n;
	}
}

/* ---- until it is done ---- */

/* What has been done until here was done by until_ns.  A clock in order costs five times as much as an early
 * one, which is early by a microsecond (base/clock.h). */
#define EARLY_NS 100000ull
static bool is_done_by(const struct vb_txn *t, uint64_t until_ns)
{
	const struct vb_ep *ep = t->me->ep;

	return vb_likely(vb_ep_now_early(ep) + EARLY_NS <= until_ns) || vb_ep_now(ep) <= until_ns;
}

int vb_txn_in_time(struct vb_txn *t)
{
	if (is_done_by(t, t->deadline_ns))
		return 0;
	return vb_txn_doom(t, VB_TXN_TIMEOUT, t->hurried ? -ETIMEDOUT : 0);
}

/* May the transaction go on?  Somebody may have wounded or recovered it. */
int vb_txn_alive(struct vb_txn *t)
{
	struct vb_coordinator *me = t->me;
	struct vb_lane *lane = vb_txn_lane(me);
	uint64_t status = 0;
	int err;

	if (me->db->cc->caps & VB_CC_BLIND_WAIT)
		return 0;
	err = vb_txn_in_time(t);
	if (err || !me->db->status || t->ts == 0)
		return err;
	vb_acc_read(&lane->acc, VB_READ_TM, vb_db_place(me->db, lane->place), &status, 8);
	err = vb_acc_go(&lane->acc);
	if (err)
		return vb_txn_doom(t, VB_TXN_FABRIC, err);
	if (status == (t->ts | VB_TS_RUNNING))
		return 0;
	lane->status = status;
	return vb_txn_doom(
		t, (status & VB_TS_STATE) == VB_TS_ABORTED ? VB_TXN_WOUNDED : VB_TXN_RECOVERED, 0);
}

/* Somebody's lock is in its way. */
void vb_txn_note_met(struct vb_txn *t, const struct vb_item *it)
{
	const struct vb_txn_watch *watch = t->me->db->watch;

	if (watch != NULL && watch->met != NULL && it->seen != 0)
		watch->met(watch->ctx, t, it);
	vb_txn_suspect(t, it);
}

/* One that is not done.  True: it waits; else *doom is why the transaction must end. */
static bool must_wait(struct vb_txn *t, struct vb_item *it, enum vb_txn_cause *doom)
{
	if (it->status == VB_ITEM_WAIT) {
		/* What the cache said was another key's tuple: it is not to say so again. */
		if (it->at == 0)
			vb_cache_drop(t->me->db->cache, it->table, it->key);
		vb_txn_note_met(t, it);
		return true;
	}
	if (it->status == VB_TXN_LOCKED || it->status == VB_TXN_DIED ||
	    it->status == VB_TXN_SLOTS || it->status == VB_TXN_LEASE ||
	    it->status == VB_TXN_TIMEOUT || it->status == VB_TXN_CASCADE)
		vb_txn_note_met(t, it);
	if (*doom == VB_TXN_COMMITTED)
		*doom = (enum vb_txn_cause)it->status;
	return false;
}

static void note_fetched(struct vb_item *it)
{
	it->fetched = vb_tuple_word(it->image, vb_item_layout(it)->version_at);
	it->flags |= VB_ITEM_NOTED;
}

void vb_txn_note_fetched(struct vb_txn *t, struct vb_item *it)
{
	if (t->me->db->watch != NULL)
		note_fetched(it);
	if (!(t->me->db->cc->caps & VB_CC_LOGICAL))
		vb_coordinator_saw(t->me, vb_ts_clock(it->version));
}

/*
 * Moves the items that have to wait to the front; how many they are.  *doom: why it must end.
 *
 * Of the versions, of the words in the way, which are timestamps, and of what else the stage saw, the
 * largest pushes our clock on: what this transaction's next try, or the next transaction, is named is
 * larger.  And what has been fetched is noted for histories, whatever the protocol makes of `version`
 * later.
 */
static unsigned still_waiting(struct vb_txn *t, struct vb_item **items, unsigned n,
			      enum vb_txn_cause *doom)
{
	const bool watched = t->me->db->watch != NULL;
	uint64_t most = t->saw;
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = items[i];

		most = it->version > most ? it->version : most;
		most = it->seen > most ? it->seen : most;
		if (watched && (it->flags & (VB_ITEM_FETCHED | VB_ITEM_NOTED)) == VB_ITEM_FETCHED)
			note_fetched(it);
		if (vb_likely(it->status == 0) || !must_wait(t, it, doom))
			continue;
		items[i] = items[m];
		items[m++] = it;
	}
	if (!(t->me->db->cc->caps & VB_CC_LOGICAL))
		vb_coordinator_saw(t->me, vb_ts_clock(most));
	return m;
}

/*
 * Under wound-wait the younger wait, too, a hundred perhaps for one record, and as long as a lease.  Their looks delay
 * whom they wait for: a card does atomics on one word one after the other, and who gives the record back stands in line
 * behind them.  So who waits for an older one looks the less often the longer it has waited.  The older have wounded
 * whom they wait for, which ends soon, and look as often as ever: a younger one that came first would be in their way
 * again.  A server that waits for others has the word in its own memory.
 */
static uint64_t longest_pause(const struct vb_txn *t, unsigned stage, struct vb_item *const *items,
			      unsigned n, uint64_t *since_ns)
{
	const struct vb_db *db = t->me->db;
	uint64_t now, share;

	if (vb_likely((db->cc->caps & (VB_CC_AGE | VB_CC_WAIT_DIE)) != VB_CC_AGE) ||
	    db->fabric->caps.flags & VB_CAP_INLINE || db->rpc_stages & 1u << stage)
		return db->look_ns;
	now = vb_ep_now_early(t->me->ep);
	if (*since_ns == 0)
		*since_ns = now;
	for (unsigned i = 0; i < n; i++)
		if (items[i]->seen == 0 || items[i]->seen > t->ts)
			return db->look_ns;
	share = (now - *since_ns) / WAIT_SHARE;
	share = share < LOOKS_MOST * db->look_ns ? share : LOOKS_MOST * db->look_ns;
	return share > db->look_ns ? share : db->look_ns;
}

static int wait_a_little(struct vb_txn *t, unsigned tries, uint64_t longest_ns)
{
	uint64_t ns = WAIT_FIRST_NS << (tries < 10 ? tries : 10);
	uint64_t most = vb_txn_patience(t);

	t->me->waits++;
	if (t->me->ripe > 0)
		return vb_txn_doom(t, VB_TXN_LOCKED, 0);
	most = most < longest_ns ? most + 1 : longest_ns;
	vb_ep_sleep(t->me->ep, ns < most ? ns : most);
	if (vb_task_cancelled(vb_task_self()))
		return vb_txn_doom(t, VB_TXN_TIMEOUT, -ECANCELED);
	return vb_txn_alive(t);
}

/*
 * Others take a lock over when the lease of its holder is over, and a holder may stand still between the CAS
 * that locks and the READ behind it; or B knows A's word from an earlier read of A's, which was let go:
 *
 *	A: CAS 0 -> A;                                        READ: half of it old, half of it B's
 *	B:             A has not moved for a lease: CAS, WRITE
 *
 * So what was read under a lock is given only when the lease was not over behind the READ.
 */
int vb_txn_fetched_in_time(struct vb_txn *t, unsigned stage)
{
	const struct vb_db *db = t->me->db;

	if (!db->recovery || !(db->cc->caps & VB_CC_READ_LOCKS) ||
	    !(db->cc->stages[stage].flags & VB_STAGE_FETCHES) ||
	    is_done_by(t, t->begin_ns + db->lease_ns))
		return 0;
	return vb_txn_in_time(t);
}

int vb_txn_stage(struct vb_txn *t, unsigned stage, struct vb_item **items, unsigned n)
{
	const struct vb_db *db = t->me->db;
	enum vb_txn_cause doom = VB_TXN_COMMITTED;
	uint64_t since_ns = 0;
	int err = 0;

	bound_wait(t);
	for (unsigned tries = 0; err == 0; tries++) {
		if (!(db->rpc_stages & 1u << stage))
			err = vb_txn_place_items(t, items, n);
		if (err)
			return err;
		vb_stage_run(t, vb_txn_lane(t->me), stage, items, n);
		n = still_waiting(t, items, n, &doom);
		/* The deadline may be what has made it impatient. */
		if (doom == VB_TXN_TIMEOUT)
			(void)vb_txn_in_time(t);
		if (doom != VB_TXN_COMMITTED) {
			t->me->timed[stage].ended++;
			return vb_txn_doom(t, doom,
					   doom == VB_TXN_FABRIC   ? t->error
					   : doom == VB_TXN_MISUSE ? -ENOSPC
								   : 0);
		}
		if (n == 0)
			return vb_txn_fetched_in_time(t, stage);
		err = wait_a_little(t, tries, longest_pause(t, stage, items, n, &since_ns));
	}
	return err;
}
