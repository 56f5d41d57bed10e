/* SPDX-License-Identifier: Apache-2.0 */
/* A transaction's items, from its begin on; how it ends: end.c. */
#define VB_LOG_ROOM "txn"

#include <inttypes.h>

#include "base/log.h"
#include "base/sometimes.h"
#include "txn/db.h"

/* ---- begin ---- */

/* Slots of the finder that bear an older stamp are empty; 0 is that of those that never were
 * used. */
static void forget_items(struct vb_coordinator *me)
{
	if (vb_likely(++me->txn_stamp != 0))
		return;
	memset(me->stamp, 0, (me->slot_mask + 1) * sizeof(*me->stamp));
	me->txn_stamp = 1;
}

static int check_params(const struct vb_coordinator *me, const struct vb_txn_params *p)
{
	const struct vb_cc_ops *cc = me->db->cc;

	if (vb_unlikely((unsigned)p->isolation >= VB_ISOLATIONS))
		return vb_fail(-EINVAL, "there is no isolation level %u: see enum vb_isolation",
			       (unsigned)p->isolation);
	if (vb_unlikely(!vb_cc_offers(cc, p->isolation)))
		return vb_fail(-EOPNOTSUPP,
			       "'%s' does not offer such transactions: begin them as others, or "
			       "open the database with a protocol that does (`verbena list`)",
			       cc->name);
	if (p->isolation == VB_SNAPSHOT && vb_unlikely(me->db->snapshot_lag_ns == 0))
		return vb_fail(-EOPNOTSUPP,
			       "without recovery a transaction may take as long as it likes, and "
			       "no snapshot is ever complete: open the database with a "
			       "snapshot_lag_ns, by which those that write must have their locks");
	return 0;
}

/* As the caller wants it; its begin_ns is there. */
static void set_params(struct vb_txn *t, const struct vb_txn_params *p)
{
	uint64_t lease = t->me->db->lease_ns;

	t->isolation = (uint8_t)p->isolation;
	t->read_only = p->read_only;
	t->whole = false;
	t->give_up_ns = 0;
	t->hurried = p->timeout_ns != 0 && p->timeout_ns <= lease;
	t->deadline_ns = t->begin_ns + (t->hurried ? p->timeout_ns : lease);
}

/*
 * The places go round, so that what a commit has left undone is finished when its place comes again.  Who keeps
 * its age keeps its place, and may wait there for one who waits for what it has itself left undone at another:
 * where a living process is waited for (may_still_write of txn/recover.c) for ever.
 */
static void settle_others(struct vb_coordinator *me)
{
	for (unsigned i = 0; i < VB_PLACES_TXN; i++)
		if (i != me->current)
			(void)vb_lane_settle(me, &me->lane[i]);
}

/* The place of the next transaction, which is at rest.  Where a commit waits for a link that is down, the other
 * place will do. */
static int settle_next(struct vb_coordinator *me)
{
	int err = -VB_EPEERGONE;

	if (me->keep_age) {
		settle_others(me);
		return vb_lane_settle(me, vb_txn_lane(me));
	}
	for (unsigned i = 0; i < VB_PLACES_TXN && err == -VB_EPEERGONE; i++) {
		me->current = (me->current + 1) % VB_PLACES_TXN;
		err = vb_lane_settle(me, vb_txn_lane(me));
	}
	return err;
}

static int begin(struct vb_coordinator *me, const struct vb_txn_params *params)
{
	struct vb_txn *t = &me->txn;
	uint64_t old_ts = t->ts;
	struct vb_lane *lane;
	int err;

	if (t->phase == VB_TXN_OPEN)
		return vb_fail(-EBUSY, "a transaction is under way: commit or abort it first");
	err = check_params(me, params);
	if (err)
		return err;
	if (vb_unlikely(me->ripe > 0))
		vb_txn_recover_ripe(me);
	err = vb_unlikely(me->fenced) ? -VB_EPEERGONE : settle_next(me);
	if (err == 0)
		err = vb_txn_tell_loss(me);
	lane = vb_txn_lane(me);
	t->snapshot = 0;
	if (err == 0 && params->isolation == VB_SNAPSHOT)
		vb_snapshot_take(t);
	else if (err == 0)
		err = vb_lane_name(me, lane, old_ts);
	if (err) {
		t->phase = VB_TXN_OVER;
		t->cause = VB_TXN_FABRIC;
		t->error = err;
		if (err == -VB_EPEERGONE)
			vb_parts_tell_gone(me->db);
		return err;
	}
	t->phase = VB_TXN_OPEN;
	t->cause = VB_TXN_COMMITTED;
	t->error = 0;
	t->tainted = t->kept = false;
	t->installed = VB_TXN_NOT_INSTALLED;
	t->commit_ts = t->saw = 0;
	t->n = 0;
	t->bytes = 0;
	t->item = lane->item;
	t->image = lane->arena;
	if (vb_unlikely(t->own != NULL))
		memset(t->own, 0, me->db->cc->txn_bytes);
	/* Whoever watches compares it with the ends of others; a deadline may only be early. */
	t->begin_ns =
		vb_unlikely(me->db->watch != NULL) ? vb_ep_now(me->ep) : vb_ep_now_early(me->ep);
	set_params(t, params);
	me->keep_age = false;
	forget_items(me);
	return 0;
}

static const struct vb_txn_params as_usual;

int vb_txn_begin(struct vb_coordinator *me)
{
	return vb_txn_begin_with(me, &as_usual);
}

int vb_txn_begin_with(struct vb_coordinator *me, const struct vb_txn_params *params)
{
	if (vb_any_null(me, params))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	return begin(me, params);
}

/* ---- items ---- */

static uint32_t slot_of(const struct vb_coordinator *me, const struct vb_table *t, uint64_t key)
{
	uint64_t x = (key + t->id) * 0x9e3779b97f4a7c15ull;

	return (uint32_t)(x >> 32) & me->slot_mask;
}

static struct vb_item *find_item(struct vb_txn *t, const struct vb_table *table, uint64_t key,
				 uint32_t *slot)
{
	struct vb_coordinator *me = t->me;

	for (*slot = slot_of(me, table, key); me->stamp[*slot] == me->txn_stamp;
	     *slot = (*slot + 1) & me->slot_mask) {
		struct vb_item *it = &t->item[me->slot[*slot] - 1];

		if (it->key == key && it->table == table)
			return it;
	}
	return NULL;
}

static VB_COLD void end_too_large(struct vb_txn *t)
{
	const struct vb_db *db = t->me->db;

	if (t->n == db->items_max)
		vb_error("a transaction touches more than %u records; open the database with a "
			 "larger items_max",
			 db->items_max);
	else
		vb_error("a transaction touches more than %u bytes of records; open the database "
			 "with a larger bytes_max",
			 db->bytes_max);
	vb_txn_doom(t, VB_TXN_MISUSE, -E2BIG);
	vb_txn_clean(t);
}

static bool fits(const struct vb_txn *t, const struct vb_table *table)
{
	const struct vb_db *db = t->me->db;

	return t->n < db->items_max && t->bytes + table->layout.record_bytes <= db->bytes_max;
}

static unsigned char *take_image(struct vb_txn *t, const struct vb_table *table)
{
	unsigned char *image = t->image;
	uint32_t bytes = vb_image_bytes(table);

	if (vb_unlikely(vb_cc_installs(t->me->db->cc)))
		bytes *= 2;
	t->image += bytes + t->me->item_own;
	return image;
}

/* Others may have written the key since: what comes now is another read of it, or a write, or has to be of one
 * moment with all that the call reads besides. */
static bool is_over(const struct vb_txn *t, const struct vb_item *it, bool write)
{
	return it->flags & VB_ITEM_LET_GO && (write || t->whole || it->flags & VB_ITEM_GIVEN);
}

/* The item of the key, made if there is none.  NULL: there is no room for it, and the transaction has ended. */
static inline struct vb_item *item_of(struct vb_txn *t, struct vb_table *table, uint64_t key,
				      bool write)
{
	struct vb_coordinator *me = t->me;
	uint32_t slot;
	struct vb_item *it = find_item(t, table, key, &slot);

	if (it == NULL || vb_unlikely(is_over(t, it, write))) {
		if (vb_unlikely(!fits(t, table))) {
			end_too_large(t);
			return NULL;
		}
		it = &t->item[t->n];
		*it = (struct vb_item){.table = table, .key = key, .image = take_image(t, table)};
		if (vb_unlikely(me->item_own != 0))
			memset(vb_item_own(it, me->item_own), 0, me->item_own);
		t->n++;
		t->bytes += table->layout.record_bytes;
		me->stamp[slot] = me->txn_stamp;
		me->slot[slot] = (uint16_t)t->n;
	}
	return it;
}

/* What is not declared was not in the order in which servers have locked. */
static VB_COLD int undeclared(const struct vb_txn *t, const struct vb_table *table, uint64_t key,
			      bool write)
{
	return vb_fail(-EINVAL,
		       "key %" PRIu64
		       " of table '%s' was not declared to be %s: under '%s' all that "
		       "a transaction touches is, in one call of vb_txn_declare",
		       key, table->name, write ? "written" : "read", t->me->db->cc->name);
}

static int check_declared(struct vb_txn *t, const struct vb_table *table, uint64_t key, bool write)
{
	const struct vb_item *it;
	uint32_t slot;

	if (vb_likely(!vb_cc_sequenced(t->me->db->cc)))
		return 0;
	it = find_item(t, table, key, &slot);
	return it != NULL && (!write || it->flags & VB_ITEM_WRITE)
		       ? 0
		       : undeclared(t, table, key, write);
}

int vb_txn_item(struct vb_txn *t, struct vb_table *table, uint64_t key, bool write,
		struct vb_item **out)
{
	*out = item_of(t, table, key, write);
	return *out != NULL ? 0 : -E2BIG;
}

static int check_open(const struct vb_txn *t)
{
	if (vb_unlikely(t->phase == VB_TXN_OVER && t->cause != VB_TXN_COMMITTED &&
			t->cause != VB_TXN_USER))
		return -EAGAIN;
	if (vb_unlikely(t->phase != VB_TXN_OPEN))
		return vb_fail(-EINVAL, "no transaction is under way: vb_txn_begin comes first");
	return 0;
}

/* Before any call on a transaction that is not as it should be. */
int vb_txn_why_no_call(const struct vb_txn *t, const struct vb_table *table)
{
	int err = check_open(t);

	if (err)
		return err;
	if (vb_any_null(table))
		return -EINVAL;
	if (vb_unlikely(table->store != &t->me->db->store))
		return vb_fail(-EINVAL, "table '%s' is of another database", table->name);
	return 0;
}

static void set_record(struct vb_item *it, bool there)
{
	uint32_t at = it->table->layout.version_at;
	uint64_t v = vb_tuple_word(it->image, at);

	vb_tuple_set_word(it->image, at,
			  there ? v & ~(uint64_t)VB_VERSION_ABSENT : v | VB_VERSION_ABSENT);
}

static void *record_of(struct vb_item *it)
{
	return it->image + it->table->layout.record_at;
}

/* All of it is ours now: nobody need fetch what it was. */
static void put_record(struct vb_item *it, const void *record)
{
	memcpy(record_of(it), record, it->table->layout.record_bytes);
	it->flags &= (uint16_t)~VB_ITEM_BLIND;
}

/* Has the record been fetched, or is there none, or only ours? */
static bool is_known(const struct vb_item *it)
{
	return it->flags & VB_ITEM_FETCHED &&
	       (!(it->flags & VB_ITEM_BLIND) || !vb_item_has_record(it));
}

/* What had been taken without its record is fetched after all: it must be the same version. */
static int fetch_after_all(struct vb_txn *t, struct vb_item *it)
{
	uint64_t version = it->version;
	int err;

	it->flags &= (uint16_t) ~(VB_ITEM_BLIND | VB_ITEM_FETCHED | VB_ITEM_NOTED);
	err = t->me->db->cc->read(t, &it, 1);
	VB_SOMETIMES_IF(err == 0 && it->version != version, 500,
			"silo: what was left out is another version by now");
	if (err == 0 && it->version != version)
		err = vb_txn_doom(t, VB_TXN_CHANGED, 0);
	return err;
}

static int make_readable(struct vb_txn *t, struct vb_item *it)
{
	uint16_t was = it->flags;

	it->flags |= VB_ITEM_READ;
	if (is_known(it))
		return 0;
	if (was & VB_ITEM_FETCHED)
		return fetch_after_all(t, it);
	return t->me->db->cc->read(t, &it, 1);
}

/* The caller may change the image from now on. */
static void keep_before(struct vb_item **items, unsigned n)
{
	for (unsigned i = 0; i < n; i++)
		memcpy(vb_item_before(items[i]), items[i]->image, items[i]->table->layout.bytes);
}

static int take_for_writing(struct vb_txn *t, struct vb_item **items, unsigned n)
{
	const struct vb_cc_ops *cc = t->me->db->cc;
	int err = cc->write(t, items, n);

	if (err == 0 && vb_unlikely(vb_cc_installs(cc)))
		keep_before(items, n);
	return err;
}

/*
 * blind: the record that is there is not wanted.  The item says that it is to be written before it
 * is known whether the call stands, because the protocol must know for what it fetches or locks
 * it; see stands_not.  Who may have to undo what he writes wants the record all the same.
 */
static int make_writable(struct vb_txn *t, struct vb_item *it, bool blind)
{
	uint16_t was = it->flags;
	int err = 0;

	it->flags |= VB_ITEM_WRITE;
	if (blind && !(was & VB_ITEM_FETCHED) && !vb_cc_installs(t->me->db->cc))
		it->flags |= VB_ITEM_BLIND;
	if (!(was & VB_ITEM_WRITE))
		err = take_for_writing(t, &it, 1);
	if (err == 0 && !blind && !is_known(it))
		err = fetch_after_all(t, it);
	return err;
}

static int read_only(void)
{
	return vb_fail(-EROFS, "the transaction was begun as read_only, and the call would write");
}

/* A call on an item, and what the item was before it.  insert: of a range's item, the key that is to be inserted
 * there. */
struct reach {
	struct vb_item *it;
	uint64_t insert;
	uint16_t was;
};

/* One call of the node's server makes the tuples of both, where there are none. */
static int place_both(struct vb_txn *t, struct vb_item *range, uint64_t key)
{
	struct vb_item *both[2] = {range};
	int err;

	if (t->me->db->fetch_by_rpc)
		return 0;
	err = vb_txn_item(t, range->table->ranges_of, key, true, &both[1]);
	return err ? err : vb_txn_place_items(t, both, 2);
}

/* The item has been declared, or an earlier call has made it what this one wants; of a read that was over with
 * its call (txn/reads.c) it is not. */
static inline bool is_reached(struct vb_txn *t, const struct vb_table *table, uint64_t key,
			      bool write, struct reach *r)
{
	const uint16_t wanted = VB_ITEM_READ | VB_ITEM_FETCHED | (write ? VB_ITEM_WRITE : 0);
	uint32_t slot;

	r->it = find_item(t, table, key, &slot);
	if (r->it == NULL || table->ranges_of != NULL ||
	    (r->it->flags & (wanted | VB_ITEM_BLIND | VB_ITEM_LET_GO)) != wanted)
		return false;
	r->was = r->it->flags;
	return true;
}

static VB_NOINLINE int reach_now(struct vb_txn *t, struct vb_table *table, uint64_t key, bool write,
				 bool blind, struct reach *r)
{
	int err;

	if (vb_unlikely(write && t->read_only))
		return read_only();
	if (write && vb_unlikely(vb_snapshot_name(t) != 0))
		return vb_txn_fail(t);
	err = check_declared(t, table, key, write);
	if (err)
		return err;
	err = vb_txn_item(t, table, key, write, &r->it);
	if (err)
		return err;
	r->was = r->it->flags;
	if (table->ranges_of != NULL && place_both(t, r->it, r->insert) != 0)
		return vb_txn_fail(t);
	err = write ? make_writable(t, r->it, blind) : make_readable(t, r->it);
	if (err)
		return vb_txn_fail(t);
	/* Whether there is a record has been read, even if what stands in it has not. */
	r->it->flags |= VB_ITEM_READ;
	return !write && vb_txn_end_read(t, r->it) != 0 ? vb_txn_fail(t) : 0;
}

/* The item, read (and for writing, when asked) or the error to return. */
static inline int reach(struct vb_coordinator *me, struct vb_table *table, uint64_t key, bool write,
			bool blind, struct reach *r)
{
	struct vb_txn *t = &me->txn;
	int err = vb_txn_check_call(t, table);

	if (err || is_reached(t, table, key, write, r))
		return err;
	return reach_now(t, table, key, write, blind, r);
}

/*
 * A call that would write is refused, with err, and the transaction goes on: of the refused call
 * only that it has read remains.  Where a lock is already held that its protocol gives up by
 * writing alone (sundial: the release would put the old lease back, and a later writer could
 * commit at a time at which we have read), the item is written as it is, which must then be
 * fetched; unless the read is over with the call.
 */
static int stands_not(struct vb_txn *t, const struct reach *r, int err)
{
	struct vb_item *it = r->it;

	if (!(r->was & VB_ITEM_WRITE) &&
	    (!(it->flags & VB_ITEM_HELD_X) || t->me->db->cc->caps & VB_CC_READ_LOCKS ||
	     vb_txn_reads_short(t, it)))
		it->flags &= (uint16_t)~VB_ITEM_WRITE;
	if (it->flags & VB_ITEM_WRITE && !is_known(it) && fetch_after_all(t, it) != 0)
		return vb_txn_fail(t);
	return vb_txn_end_read(t, it) != 0 ? vb_txn_fail(t) : err;
}

/* ---- the calls ---- */

/* What was declared, or touched before, is given without a further call: the common case of the two that
 * follow.  Who has this thread's scheduler as its quick one need not enter it. */
static inline void *at_hand(struct vb_coordinator *me, const struct vb_table *table, uint64_t key,
			    bool write)
{
	struct reach r;

	if (vb_unlikely(me == NULL || vb_sched_quick != me->ep->sched ||
			!vb_txn_may_call(&me->txn, table)))
		return NULL;
	return is_reached(&me->txn, table, key, write, &r) && vb_item_has_record(r.it)
		       ? record_of(r.it)
		       : NULL;
}

static VB_NOINLINE int give(struct vb_coordinator *me, struct vb_table *table, uint64_t key,
			    bool write, void **out)
{
	VB_EP_CALL(call, me->ep);
	struct reach r;
	int err;

	if (call.err)
		return call.err;
	err = reach(me, table, key, write, false, &r);
	if (err)
		return err;
	if (!vb_item_has_record(r.it))
		return write ? stands_not(&me->txn, &r, -ENOENT) : -ENOENT;
	*out = record_of(r.it);
	return 0;
}

int vb_txn_get(struct vb_coordinator *me, struct vb_table *table, uint64_t key, const void **out)
{
	void *here = out != NULL ? at_hand(me, table, key, false) : NULL;
	int err = 0;

	if (vb_unlikely(here == NULL)) {
		if (vb_any_null(me, table, out))
			return -EINVAL;
		err = give(me, table, key, false, &here);
	}
	if (vb_likely(err == 0))
		*out = here;
	return err;
}

int vb_txn_update(struct vb_coordinator *me, struct vb_table *table, uint64_t key, void **out)
{
	void *here = out != NULL ? at_hand(me, table, key, true) : NULL;

	if (vb_likely(here != NULL)) {
		*out = here;
		return 0;
	}
	return vb_any_null(me, table, out) ? -EINVAL : give(me, table, key, true, out);
}

int vb_txn_read(struct vb_coordinator *me, struct vb_table *table, uint64_t key, void *record)
{
	const void *here;
	int err;

	if (vb_any_null(record))
		return -EINVAL;
	err = vb_txn_get(me, table, key, &here);
	if (err == 0)
		memcpy(record, here, table->layout.record_bytes);
	return err;
}

int vb_txn_write(struct vb_coordinator *me, struct vb_table *table, uint64_t key,
		 const void *record)
{
	struct reach r;
	int err;

	if (vb_any_null(me, table, record))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = reach(me, table, key, true, true, &r);
	if (err)
		return err;
	if (!vb_item_has_record(r.it))
		return stands_not(&me->txn, &r, -ENOENT);
	put_record(r.it, record);
	return 0;
}

/*
 * Whoever has read the range must not commit as if the key had been there, or we as if he had not: txn/scan.c.
 * No range, no item.
 */
static int write_range(struct vb_coordinator *me, struct vb_table *table, uint64_t key,
		       struct reach *r)
{
	int err;

	*r = (struct reach){.insert = key};
	if (vb_likely(table->ranges == NULL))
		return 0;
	err = me->txn.phase == VB_TXN_OPEN ? check_declared(&me->txn, table, key, true) : 0;
	if (err)
		return err;
	return reach(me, table->ranges, vb_table_range(table, key), true, true, r);
}

static int is_there(struct vb_txn *t, const struct reach *r, const struct reach *range)
{
	int err = stands_not(t, r, -EEXIST);

	return err == -EEXIST && range->it != NULL ? stands_not(t, range, err) : err;
}

int vb_txn_insert(struct vb_coordinator *me, struct vb_table *table, uint64_t key,
		  const void *record)
{
	struct reach r, range;
	int err;

	if (vb_any_null(me, table, record))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	/* In the order in which a scan takes them: else either may wait for the other. */
	err = write_range(me, table, key, &range);
	if (err == 0)
		err = reach(me, table, key, true, true, &r);
	if (err)
		return err;
	if (vb_item_has_record(r.it))
		return is_there(&me->txn, &r, &range);
	set_record(r.it, true);
	put_record(r.it, record);
	return 0;
}

int vb_txn_delete(struct vb_coordinator *me, struct vb_table *table, uint64_t key)
{
	struct reach r;
	int err;

	if (vb_any_null(me, table))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	err = reach(me, table, key, true, true, &r);
	if (err)
		return err;
	if (!vb_item_has_record(r.it))
		return stands_not(&me->txn, &r, -ENOENT);
	set_record(r.it, false);
	return 0;
}

/* Who inserts a key writes its range. */
static bool declare_range(struct vb_txn *t, const struct vb_txn_key *k)
{
	struct vb_item *it;

	if (k->table->ranges == NULL)
		return true;
	it = item_of(t, k->table->ranges, vb_table_range(k->table, k->key), true);
	if (it != NULL)
		it->flags |= VB_ITEM_WRITE | VB_ITEM_READ;
	return it != NULL;
}

/* All of them or none: a key that is refused leaves no item of those before it. */
static int declare_items(struct vb_txn *t, const struct vb_txn_key *keys, unsigned n)
{
	const bool sequenced = vb_cc_sequenced(t->me->db->cc);
	bool writes = false;
	int err = 0;

	if (sequenced && vb_unlikely(t->n > 0))
		return vb_fail(-EINVAL,
			       "under '%s' all that a transaction touches is declared in one call",
			       t->me->db->cc->name);
	for (unsigned i = 0; i < n && err == 0; i++) {
		if (i == 0 || keys[i].table != keys[i - 1].table)
			err = vb_txn_check_call(t, keys[i].table);
		if (err == 0 && keys[i].write && t->read_only)
			err = read_only();
		writes |= keys[i].write;
	}
	if (err == 0 && writes && vb_unlikely(vb_snapshot_name(t) != 0))
		return vb_txn_fail(t);
	if (err)
		return err;
	for (unsigned i = 0; i < n; i++) {
		struct vb_item *it = item_of(t, keys[i].table, keys[i].key, keys[i].write);

		if (it == NULL)
			return -E2BIG;
		it->flags |= keys[i].write ? VB_ITEM_WRITE | VB_ITEM_READ : VB_ITEM_READ;
		if (vb_unlikely(sequenced && keys[i].write) && !declare_range(t, &keys[i]))
			return -E2BIG;
	}
	return 0;
}

int vb_txn_read_keys(struct vb_txn *t, struct vb_table *table, const uint64_t *keys, unsigned n,
		     struct vb_item **out)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	unsigned m = 0;
	int err = 0;

	vb_assert(n <= VB_STAGE_ITEMS);
	for (unsigned i = 0; i < n; i++) {
		err = check_declared(t, table, keys[i], false);
		if (err)
			return err;
		err = vb_txn_item(t, table, keys[i], false, &out[i]);
		if (err)
			return err;
		out[i]->flags |= VB_ITEM_READ;
		if (!(out[i]->flags & VB_ITEM_FETCHED))
			some[m++] = out[i];
	}
	if (m > 0)
		err = t->me->db->cc->read(t, some, m);
	for (unsigned i = 0; i < n && err == 0; i++)
		if (!is_known(out[i]))
			err = fetch_after_all(t, out[i]);
	return err ? vb_txn_fail(t) : 0;
}

static unsigned pick(struct vb_txn *t, uint16_t all, uint16_t none)
{
	struct vb_item *it = t->item, *end = it + t->n, **some = t->some;

	for (; it < end; it++)
		if ((it->flags & (all | none)) == all)
			*some++ = it;
	return (unsigned)(some - t->some);
}

int vb_txn_declare(struct vb_coordinator *me, const struct vb_txn_key *keys, unsigned n)
{
	struct vb_txn *t;
	unsigned some = 0;
	int err;

	if (vb_any_null(me) || (n > 0 && vb_any_null(keys)))
		return -EINVAL;
	VB_EP_CALL(call, me->ep);
	if (call.err)
		return call.err;
	t = &me->txn;
	err = check_open(t);
	if (err == 0)
		err = declare_items(t, keys, n);
	if (err)
		return err;
	if (vb_cc_sequenced(me->db->cc)) {
		err = vb_txn_sequence(t);
		return err ? vb_txn_fail(t) : 0;
	}
	/* What was read before, too, if it is not ours to write yet. */
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].flags & VB_ITEM_WRITE &&
		    (~t->item[i].flags & (VB_ITEM_FETCHED | VB_ITEM_HELD_X)) != 0)
			t->some[some++] = &t->item[i];
	if (some > 0)
		err = take_for_writing(t, t->some, some);
	some = err == 0 ? pick(t, VB_ITEM_READ, VB_ITEM_FETCHED | VB_ITEM_WRITE) : 0;
	if (some > 0)
		err = me->db->cc->read(t, t->some, some);
	/* What an earlier call has taken without its record may not be written so. */
	for (unsigned i = 0; i < t->n && err == 0; i++)
		if (t->item[i].flags & VB_ITEM_WRITE && !is_known(&t->item[i]))
			err = fetch_after_all(t, &t->item[i]);
	if (err == 0)
		err = vb_txn_end_declared(t);
	return err ? vb_txn_fail(t) : 0;
}

int vb_txn_stage_all(struct vb_txn *t, unsigned stage, uint16_t all, uint16_t none)
{
	unsigned n = pick(t, all, none);

	return n > 0 ? vb_txn_stage(t, stage, t->some, n) : 0;
}

void vb_txn_begin_whole(struct vb_txn *t)
{
	t->whole = true;
}

int vb_txn_end_whole(struct vb_txn *t)
{
	t->whole = false;
	return t->phase == VB_TXN_OPEN && vb_txn_end_given(t) != 0 ? vb_txn_fail(t) : 0;
}
