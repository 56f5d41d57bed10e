/* SPDX-License-Identifier: Apache-2.0 */
/* Opening a database: what it is made of, how much memory that takes, and what all must agree on.
 */
#define VB_LOG_ROOM "txn"
#include "txn/db.h"

#include <inttypes.h>
#include <stdlib.h>
#include <xxhash.h>

#include "base/log.h"
#include "store/keymap.h"

#define COORDINATORS 64u
#define ITEMS        64u
#define BYTES        (64u << 10)
#define RECORD       1024u
#define BYTES_MOST   (256u << 20)
#define LEASE_NS     50000000ull
#define LEASE_BOUNDS 4u
/* A bounded wait is so much of a lease. */
#define WAITS_OF_LEASE 64u
/* A temperature: where records are hot, and at most. */
#define HOT_FROM       4u
#define HOT_MOST       64u
#define LEASE_MOST_NS  (3600ull * 1000000000ull)
#define CALL_BYTES     (16u << 10)
#define PAGE           4096u
#define CACHE          65536u
#define PLACES_MAX     65534u /* all nodes */
#define DRIFT_PPM      200u   /* of two clocks, against each other */
#define LOOK_MOST_NS   32000ull
#define PATIENCE_NS    10000000000ull
#define EPOCH_SUSPECTS 4u

const char *const vb_txn_cause_names[VB_TXN_CAUSES] = {
	[VB_TXN_COMMITTED] = "committed", [VB_TXN_USER] = "user",
	[VB_TXN_LOCKED] = "locked",       [VB_TXN_DIED] = "died",
	[VB_TXN_WOUNDED] = "wounded",     [VB_TXN_CHANGED] = "changed",
	[VB_TXN_LEASE] = "lease",         [VB_TXN_SLOTS] = "slots",
	[VB_TXN_RECOVERED] = "recovered", [VB_TXN_TIMEOUT] = "timeout",
	[VB_TXN_FABRIC] = "fabric",       [VB_TXN_MISUSE] = "misuse",
	[VB_TXN_REFUSED] = "refused",     [VB_TXN_CASCADE] = "cascade",
};

const char *vb_txn_cause_name(enum vb_txn_cause cause)
{
	return (unsigned)cause < VB_TXN_CAUSES ? vb_txn_cause_names[cause] : "unknown";
}

/* ---- protocols by name ---- */

#define REGISTERED_MAX 4
static const struct vb_cc_ops *const *registered[REGISTERED_MAX];
static unsigned n_registered;

void vb_cc_register(const struct vb_cc_ops *const *more)
{
	for (unsigned i = 0; i < n_registered; i++)
		if (registered[i] == more)
			return;
	vb_assert(n_registered < REGISTERED_MAX);
	registered[n_registered++] = more;
}

static const struct vb_cc_ops *find_in(const struct vb_cc_ops *const *list, const char *name)
{
	for (; *list; list++)
		if (!strcmp((*list)->name, name))
			return *list;
	return NULL;
}

const struct vb_cc_ops *vb_cc_find(const char *name)
{
	const struct vb_cc_ops *ops = find_in(vb_ccs, name);

	if (!ops)
		ops = find_in(vb_ccs_declared, name);
	if (!ops)
		ops = find_in(vb_ccs_published, name);
	for (unsigned i = 0; !ops && i < n_registered; i++)
		ops = find_in(registered[i], name);
	return ops;
}

static int unknown_cc(const char *name)
{
	const char *names[64];
	size_t n = 0;
	char hint[VB_HINT_BYTES];

	for (const struct vb_cc_ops *const *c = vb_ccs; *c; c++)
		names[n++] = (*c)->name;
	for (const struct vb_cc_ops *const *c = vb_ccs_declared; *c; c++)
		names[n++] = (*c)->name;
	for (const struct vb_cc_ops *const *c = vb_ccs_published; *c; c++)
		names[n++] = (*c)->name;
	return vb_fail(-EINVAL, "no protocol is called '%s'%s; `verbena list` shows them all", name,
		       vb_did_you_mean(hint, name, names, n));
}

/* ---- parameters ---- */

int vb_cc_code(const struct vb_cc_ops *cc, const char *code, const char *or_say, uint32_t *by_rpc)
{
	char names[128] = "";

	*by_rpc = 0;
	if (!vb_cc_takes(cc, code))
		return vb_fail(
			-EINVAL,
			"hybrid code '%s': '%s' is '%s' with the code %s and runs with no other; "
			"leave the code out, or take '%s'",
			code, cc->name, cc->code_of, cc->code, cc->code_of);
	for (unsigned i = 0; i < cc->n_stages; i++)
		snprintf(names + strlen(names), sizeof(names) - strlen(names), "%s%s",
			 i > 0 ? ", " : "", cc->stages[i].name);
	if (strlen(code) < cc->n_stages || strlen(code) > cc->n_stages + !vb_cc_at_home(cc) ||
	    strspn(code, "01") != strlen(code))
		return vb_fail(-EINVAL,
			       "hybrid code '%s': '%s' has %u stages (%s), so its codes are %u "
			       "digits, each 0 (one-sided) or 1 (RPC)%s%s",
			       code, cc->name, cc->n_stages, names, cc->n_stages,
			       !vb_cc_at_home(cc) ? ", and one more for the log if that has copies"
						  : "",
			       or_say);
	for (unsigned i = 0; code[i] != '\0'; i++)
		*by_rpc |= (uint32_t)(code[i] - '0') << i;
	return 0;
}

static int hybrid_stages(struct vb_db *db, const struct vb_db_params *p)
{
	const struct vb_cc_ops *cc = db->cc;
	const char *code = p->hybrid != NULL ? p->hybrid : cc->code;
	uint32_t all = (1u << cc->n_stages) - 1, bits = 0;
	int err = 0;

	if (code != NULL && !strcmp(code, "rpc") && vb_cc_takes(cc, code))
		bits = all | (p->copies != 0) << cc->n_stages;
	else if (code != NULL)
		err = vb_cc_code(cc, code, "; or \"rpc\", all of them by RPC", &bits);
	if (err == 0 && p->copies == 0 && (bits > all || (code && strlen(code) > cc->n_stages)))
		return vb_fail(-EINVAL,
			       "hybrid code '%s': its last digit is how the copies of the log are "
			       "written, and there are none (copies, --copies); leave it out",
			       code);
	db->rpc_stages = bits & all;
	db->log_by_rpc = bits > all;
	return err;
}

static bool fetches_by_rpc(const struct vb_cc_ops *cc, uint32_t rpc_stages)
{
	unsigned i = 0;

	while (i + 1 < cc->n_stages && !(cc->stages[i].flags & VB_STAGE_FETCHES))
		i++;
	return rpc_stages >> i & 1;
}

static uint64_t places_of(const struct vb_db_params *p)
{
	return (uint64_t)(p->coordinators ? p->coordinators : COORDINATORS) * VB_PLACES_EACH;
}

static uint64_t lease_of(const struct vb_fabric *f, const struct vb_db_params *p)
{
	const uint64_t least = LEASE_BOUNDS * f->caps.verb_bound_ns;

	if (p->lease_ns != 0)
		return p->lease_ns;
	return LEASE_NS > least ? LEASE_NS : least;
}

static int check_wait(const struct vb_fabric *f, const struct vb_cc_ops *cc,
		      const struct vb_db_params *p)
{
	if (p->wait_ns != 0 && !(cc->caps & VB_CC_BOUNDED))
		return vb_fail(-EINVAL,
			       "wait_ns is for protocols that wait for a bounded time, and '%s' is "
			       "none (`verbena list`)",
			       cc->name);
	if (p->wait_ns > lease_of(f, p))
		return vb_fail(-EINVAL,
			       "a lock would be waited for for up to %" PRIu64
			       " ns (wait_ns, --wait): at most the lease of %" PRIu64 " ns",
			       p->wait_ns, lease_of(f, p));
	return 0;
}

/* All versions of a record are read with one READ, which is no longer than on every fabric. */
static int check_record(const struct vb_cc_ops *cc, const struct vb_db_params *p)
{
	uint32_t most = vb_tuple_record_most(cc->meta_bytes, vb_cc_slots(cc));

	if (p->record_bytes_max > most)
		return vb_fail(-EINVAL,
			       "record_bytes_max is %u: under '%s' a record has at most %u bytes",
			       p->record_bytes_max, cc->name, most);
	return 0;
}

static int check_heat(const struct vb_cc_ops *cc, const struct vb_db_params *p)
{
	if (p->hot_from != 0 && !(cc->caps & VB_CC_HEATS))
		return vb_fail(
			-EINVAL,
			"hot_from is for protocols whose records have a temperature, and '%s' is "
			"none (`verbena list`)",
			cc->name);
	if (p->hot_from > HOT_MOST)
		return vb_fail(-EINVAL,
			       "records would be hot from %u on (hot_from, --hot-from): at most %u",
			       p->hot_from, HOT_MOST);
	return 0;
}

static int check_lag(const struct vb_fabric *f, const struct vb_cc_ops *cc,
		     const struct vb_db_params *p)
{
	if (p->snapshot_lag_ns != 0 && !(cc->caps & VB_CC_SNAPSHOTS))
		return vb_fail(-EINVAL,
			       "snapshot_lag_ns is for protocols that offer snapshots, and '%s' "
			       "does not (`verbena list`)",
			       cc->name);
	if (p->snapshot_lag_ns > lease_of(f, p))
		return vb_fail(-EINVAL,
			       "snapshots would lag %" PRIu64
			       " ns (snapshot_lag_ns, --snapshot-lag): at most the lease of "
			       "%" PRIu64 " ns",
			       p->snapshot_lag_ns, lease_of(f, p));
	return 0;
}

static int check_params(const struct vb_fabric *f, const struct vb_db_params *p)
{
	if (p->cc == NULL)
		return vb_fail(-EINVAL, "no protocol was named");
	if (p->name != NULL && (p->name[0] == 0 || strlen(p->name) > 31))
		return vb_fail(-EINVAL, "a database's name has 1 to 31 characters");
	if (places_of(p) * f->nodes > PLACES_MAX)
		return vb_fail(
			-EINVAL,
			"%" PRIu64 " coordinators on each of %u nodes are too many: together at "
			"most %u",
			places_of(p) / VB_PLACES_EACH, f->nodes, PLACES_MAX / VB_PLACES_EACH);
	if (p->items_max > VB_TXN_ITEMS_MAX)
		return vb_fail(-EINVAL, "items_max is %u: a transaction touches at most %u records",
			       p->items_max, VB_TXN_ITEMS_MAX);
	if (p->record_bytes_max > VB_RECORD_BYTES_MAX)
		return vb_fail(-EINVAL, "record_bytes_max is %u: a record has at most %u bytes",
			       p->record_bytes_max, VB_RECORD_BYTES_MAX);
	if (p->bytes_max > BYTES_MOST)
		return vb_fail(-EINVAL, "bytes_max is %u: a transaction touches at most %u bytes",
			       p->bytes_max, BYTES_MOST);
	if (p->lease_ns != 0 &&
	    (p->lease_ns < LEASE_BOUNDS * f->caps.verb_bound_ns || p->lease_ns > LEASE_MOST_NS))
		return vb_fail(-EINVAL,
			       "a lease of %" PRIu64 " ns: from %" PRIu64
			       " (%u times the time within which a verb takes effect here) to one "
			       "hour%s%s",
			       p->lease_ns, LEASE_BOUNDS * f->caps.verb_bound_ns, LEASE_BOUNDS,
			       f->caps.bound_note != NULL ? ": " : "",
			       f->caps.bound_note != NULL ? f->caps.bound_note : "");
	if ((p->cache_entries & (p->cache_entries - 1)) != 0)
		return vb_fail(-EINVAL, "a location cache of %u entries: take a power of two",
			       p->cache_entries);
	return 0;
}

static int check_copies(const struct vb_fabric *f, const struct vb_cc_ops *cc,
			const struct vb_db_params *p)
{
	if (p->copies == 0)
		return 0;
	if (p->copies > VB_COPIES_MAX || p->copies >= f->nodes)
		return vb_fail(-EINVAL,
			       "%u copies of each log (copies, --copies): at most %u, and each on "
			       "another node than the log, of which this fabric has %u",
			       p->copies, VB_COPIES_MAX, f->nodes);
	if (p->no_recovery)
		return vb_fail(-EINVAL, "without recovery there is no log to have copies of "
					"(copies, no_recovery)");
	if (vb_cc_at_home(cc))
		return vb_fail(-EOPNOTSUPP,
			       "'%s' has no copies of its logs (`verbena list`): what becomes of "
			       "its transactions stands in their own nodes' memory alone; open it "
			       "with copies 0, or take another protocol",
			       cc->name);
	return 0;
}

int vb_far_check(const struct vb_db *db)
{
	if (!vb_cc_at_home(db->cc))
		return 0;
	return vb_fail(-EOPNOTSUPP,
		       "'%s' is not for clients of an elastic cluster: what others must know of "
		       "its transactions has to be in memory of the coordinator's own process; "
		       "open coordinators in a server, or the database with another protocol",
		       db->cc->name);
}

static int check_caps(const struct vb_fabric *f, const struct vb_cc_ops *cc)
{
	uint32_t missing = (cc->needs | VB_CAP_SEND) & ~f->caps.flags;

	if (missing == 0)
		return 0;
	return vb_fail(-EOPNOTSUPP,
		       "'%s' needs %s, which this '%s' fabric lacks (`verbena list` shows what "
		       "each has)",
		       cc->name, missing & VB_CAP_SEND ? "SEND/RECV" : "extended atomics",
		       f->ops->name);
}

static uint32_t pad8(uint32_t n)
{
	return (n + 7) & ~7u;
}

/* What one verb must move: a tuple, a request or an answer with one item, a recovery's log. */
#define BESIDE_RECORD (256u + sizeof(struct vb_wire_item) + 64u)
_Static_assert(VB_RECORD_BYTES_MAX + BESIDE_RECORD <= VB_LEN_MAX,
	       "the largest record, on every fabric");
_Static_assert(CALL_BYTES <= VB_LEN_MAX, "a request of several items, too");
_Static_assert(sizeof(struct vb_place_head) + sizeof(struct vb_log_entry) <= BESIDE_RECORD,
	       "a log of one record");

static void set_sizes(struct vb_db *db, const struct vb_db_params *p)
{
	uint32_t one;

	db->store.record_bytes_max = p->record_bytes_max ? p->record_bytes_max : RECORD;
	db->coordinators = p->coordinators ? p->coordinators : COORDINATORS;
	db->items_max = p->items_max ? p->items_max : ITEMS;
	db->bytes_max = p->bytes_max ? p->bytes_max : BYTES;
	/* One record of the largest kind, or many small ones. */
	one = pad8(db->store.record_bytes_max) + 256 + (uint32_t)sizeof(struct vb_wire_item);
	db->call_bytes = one > CALL_BYTES ? one : CALL_BYTES;
	db->place_bytes = sizeof(struct vb_place_head);
	db->small_bytes = sizeof(struct vb_place_head);
	if (!p->no_recovery) {
		db->place_bytes += db->items_max * (uint32_t)sizeof(struct vb_log_entry) +
				   pad8(db->bytes_max) + db->items_max * 8;
		db->small_bytes +=
			(uint32_t)sizeof(struct vb_log_entry) + pad8(db->store.record_bytes_max);
	}
	db->place_bytes = (db->place_bytes + 63) & ~63u;
	db->small_bytes = (db->small_bytes + 63) & ~63u;
	db->call_bytes = (db->call_bytes + 63) & ~63u;
}

/* Of one coordinator. */
static uint64_t places_each(const struct vb_db *db)
{
	return (uint64_t)VB_PLACES_TXN * db->place_bytes +
	       (uint64_t)(VB_PLACES_EACH - VB_PLACES_TXN) * db->small_bytes;
}

static uint64_t places_bytes(const struct vb_db *db)
{
	return db->coordinators * places_each(db);
}

static uint64_t boxes_bytes(const struct vb_db *db, uint16_t nodes)
{
	return (uint64_t)db->coordinators * nodes * db->call_bytes;
}

/* What stands behind the outboxes: txn/epoch.h. */
static uint64_t sequence_bytes(struct vb_db *db, const struct vb_cc_ops *cc, uint16_t nodes)
{
	return cc != NULL && vb_cc_sequenced(cc) ? vb_seq_sizes(db, nodes) : 0;
}

uint64_t vb_db_node_bytes(const struct vb_db_params *p, uint16_t nodes)
{
	struct vb_db db = {0};

	if (vb_any_null(p))
		return 0;
	set_sizes(&db, p);
	return sizeof(struct vb_db_header) + places_bytes(&db) + 2 * boxes_bytes(&db, nodes) +
	       sequence_bytes(&db, p->cc != NULL ? vb_cc_find(p->cc) : NULL, nodes) +
	       p->copies * places_bytes(&db) + 4096;
}

uint64_t vb_db_node_touched(const struct vb_db_params *p, uint16_t nodes)
{
	struct vb_db db = {0};
	bool calls = p->hybrid != NULL &&
		     (strchr(p->hybrid, '1') != NULL || strcmp(p->hybrid, "rpc") == 0);
	uint64_t unused;

	set_sizes(&db, p);
	unused = calls ? 0 : 2 * boxes_bytes(&db, nodes) / db.call_bytes * (db.call_bytes - PAGE);
	return vb_db_node_bytes(p, nodes) - unused;
}

vb_addr vb_db_place(const struct vb_db *db, uint32_t place)
{
	uint32_t lane = place % VB_PLACES_EACH, coordinator = place / VB_PLACES_EACH;
	uint64_t at = lane < VB_PLACES_TXN
			      ? (uint64_t)lane * db->place_bytes
			      : (uint64_t)VB_PLACES_TXN * db->place_bytes +
					(uint64_t)(lane - VB_PLACES_TXN) * db->small_bytes;

	return db->region[coordinator / db->coordinators] + sizeof(struct vb_db_header) +
	       coordinator % db->coordinators * places_each(db) + at;
}

vb_addr vb_copy_at(const struct vb_db *db, uint32_t place, unsigned i)
{
	uint16_t home = (uint16_t)(place / VB_PLACES_EACH / db->coordinators);
	uint64_t in_node = vb_db_place(db, place) - db->region[home];

	return db->region[(home + 1u + i) % db->fabric->nodes] + db->copies_at +
	       i * db->copy_bytes + in_node - sizeof(struct vb_db_header);
}

uint32_t vb_db_place_bytes(const struct vb_db *db, uint32_t place)
{
	return place % VB_PLACES_EACH < VB_PLACES_TXN ? db->place_bytes : db->small_bytes;
}

vb_addr vb_db_inbox(const struct vb_db *db, uint16_t node, uint16_t from, uint32_t coordinator)
{
	return db->region[node] + sizeof(struct vb_db_header) + places_bytes(db) +
	       ((uint64_t)from * db->coordinators + coordinator) * db->call_bytes;
}

vb_addr vb_db_outbox(const struct vb_db *db, uint16_t node, uint32_t coordinator, uint16_t from)
{
	return db->region[node] + sizeof(struct vb_db_header) + places_bytes(db) +
	       boxes_bytes(db, db->fabric->nodes) +
	       ((uint64_t)coordinator * db->fabric->nodes + from) * db->call_bytes;
}

/* ---- opening ---- */

static uint64_t layout_hash(const struct vb_db *db)
{
	char text[240];
	int n = snprintf(text, sizeof(text),
			 "%s/%u/%u/%u/%" PRIu64 "/%d/%d/%u/%u/%u/%u/%" PRIu64 "/%u%s", db->cc->name,
			 db->coordinators, db->place_bytes, db->call_bytes, db->lease_ns,
			 db->recovery, db->store.sealed, db->fabric->nodes, db->items_max,
			 db->bytes_max, db->store.record_bytes_max, db->snapshot_lag_ns, db->copies,
			 db->log_by_rpc ? "r" : "");

	return XXH64(text, (size_t)n, 0) | 1;
}

static int differs(const struct vb_db *db, uint16_t node)
{
	return vb_fail(-EINVAL,
		       "database '%s' exists on node %u with another protocol or other parameters",
		       db->name, node);
}

/* Who has no node makes none: the servers do. */
static int join_node(struct vb_db *db, uint16_t node, const char *region, uint64_t bytes)
{
	uint64_t layout = 0;
	int err = vb_region_made(db->fabric, node, region, bytes, VB_HEADER_PATIENCE_NS,
				 &db->region[node]);

	if (err == 0)
		err = vb_header_read(db->fabric, db->region[node], VB_DB_MAGIC, &layout);
	/* Who only has not answered in time may have all of it yet. */
	if (err == -ENOENT) {
		err = vb_parts_missing(db, node, region, bytes);
		return err != 0 ? err
				: vb_fail(-ENOENT,
					  "there is no database '%s' on node %u: its servers make "
					  "it (`verbena serve`, vb_db_server_start), and have not",
					  db->name, node);
	}
	if (err == -ETIMEDOUT)
		return vb_fail(err,
			       "node %u has not shown in time what it has of database '%s': its "
			       "server is stopped or still makes it",
			       node, db->name);
	if (err == -EINVAL || (err == 0 && layout != layout_hash(db)))
		return differs(db, node);
	return err;
}

static int open_node(struct vb_db *db, uint16_t node)
{
	uint64_t bytes = db->copies_at + db->copies * db->copy_bytes;
	char name[VB_REGION_NAME];
	struct vb_db_header *h;
	uint64_t part;
	bool fresh;
	int err;

	snprintf(name, sizeof(name), "db:%.31s", db->name);
	if (db->fabric->caps.client)
		return join_node(db, node, name, bytes);
	err = vb_region(db->fabric, node, name, bytes, &db->region[node], &fresh);
	if (err == -ENOSPC)
		return vb_fail(err,
			       "database '%s' needs %" PRIu64
			       " bytes on node %u for %u coordinators, whose segment has not so "
			       "many left: give the fabric more node_bytes, or the database fewer "
			       "coordinators or a smaller bytes_max",
			       db->name, bytes, node, db->coordinators);
	if (err == -EINVAL)
		return vb_fail(err, "database '%s' exists on node %u with other sizes", db->name,
			       node);
	if (err)
		return err;
	h = vb_local(db->fabric, db->region[node], sizeof(*h));
	if (h == NULL)
		return 0;
	err = vb_parts_draw(db, &part);
	if (err != 0)
		return err;
	err = vb_header_claim(&h->magic);
	if (err == 1) {
		h->part = part;
		h->whole = 0;
		h->layout = layout_hash(db);
		vb_header_filled(&h->magic, VB_DB_MAGIC);
		return 0;
	}
	if (err)
		return vb_fail(err,
			       "who began to make database '%s' on node %u has not come to the end",
			       db->name, node);
	return h->magic == VB_DB_MAGIC && h->layout == layout_hash(db) ? 0 : differs(db, node);
}

/*
 * Whoever waits for a lock asks one round trip, and pauses another: a lock that is free is had soon, and waiters are
 * half of the load that they could be.  On shm a look costs little but the core that it is done on, and the holder
 * may want that: there a pause is one that a core can be given to somebody else for.
 */
static uint64_t look_of(const struct vb_fabric *f)
{
	uint64_t rtt = f->caps.rtt_ns;

	return f->caps.flags & VB_CAP_INLINE || rtt > LOOK_MOST_NS ? LOOK_MOST_NS : rtt;
}

static void tell_placed(const struct vb_store *store, const struct vb_table *t, uint64_t key,
			uint64_t version, bool given)
{
	const struct vb_txn_watch *watch = vb_container_of(store, const struct vb_db, store)->watch;

	if (watch != NULL && watch->placed != NULL)
		watch->placed(watch->ctx, t, key, version, given);
}

/* Two epochs, and a transaction's life with the verbs that it leaves behind; twice, for what clocks differ by. */
static uint64_t grace_of(const struct vb_db *db, const struct vb_db_params *p)
{
	if (p->no_recovery || db->cc->caps & VB_CC_LOGICAL)
		return 0;
	return 2 * db->epoch_ns + 2 * db->suspect_ns;
}

/* Does who only reads leave words in tuples that keep others out? */
static bool leaves_words(const struct vb_cc_ops *cc)
{
	bool some = cc->caps & VB_CC_READ_LOCKS;

	for (unsigned i = 0; i < cc->n_words; i++)
		some |= cc->words[i].kind == VB_WORD_READER || cc->words[i].kind == VB_WORD_WAITER;
	return some;
}

static void set_options(struct vb_db *db, const struct vb_db_params *p)
{
	uint32_t caps = db->fabric->caps.flags;
	uint64_t bound = db->fabric->caps.verb_bound_ns;

	snprintf(db->name, sizeof(db->name), "%s", p->name != NULL ? p->name : "db");
	db->lease_ns = lease_of(db->fabric, p);
	if (db->cc->caps & VB_CC_BOUNDED)
		db->wait_ns = p->wait_ns != 0 ? p->wait_ns : db->lease_ns / WAITS_OF_LEASE;
	if (db->cc->caps & VB_CC_HEATS)
		db->hot_from = p->hot_from != 0 ? p->hot_from : HOT_FROM;
	db->look_ns = look_of(db->fabric);
	/* From the first look at a word to the time when its holder can do nothing any more. */
	db->suspect_ns = db->lease_ns + 2 * bound + db->lease_ns * DRIFT_PPM / 1000000 + 1000;
	if (db->cc->caps & VB_CC_SNAPSHOTS)
		db->snapshot_lag_ns = p->snapshot_lag_ns != 0 ? p->snapshot_lag_ns
				      : p->no_recovery        ? 0
							      : db->lease_ns;
	db->snapshot_back_ns =
		db->snapshot_lag_ns + db->snapshot_lag_ns * DRIFT_PPM / 1000000 + 1000;
	db->patience_ns = PATIENCE_NS;
	db->epoch_ns = EPOCH_SUSPECTS * db->suspect_ns;
	db->recovery = !p->no_recovery;
	db->copies = p->copies;
	db->copy_readers = leaves_words(db->cc);
	db->doorbell = !p->no_doorbell;
	db->outstanding = !p->no_outstanding;
	db->passive_ack = p->passive_ack;
	db->status = db->recovery || (db->cc->caps & VB_CC_STATUS);
	db->store = (struct vb_store){
		.fabric = db->fabric,
		.nodes = db->fabric->nodes,
		.name = db->name,
		.protocol = db->cc->name,
		.meta_bytes = db->cc->meta_bytes,
		.slots = vb_cc_slots(db->cc),
		.record_bytes_max = db->store.record_bytes_max,
		.sealed = !(caps & VB_CAP_INLINE) || vb_cc_installs(db->cc),
		.unlocked = db->cc->unlocked,
		.grace_ns = grace_of(db, p),
		.at_rest = vb_words_at_rest,
		.told = tell_placed,
	};
}

static int open_parts(struct vb_db *db, const struct vb_db_params *p)
{
	uint32_t cache = p->cache_entries;
	int err = 0;

	db->sequence_at = sizeof(struct vb_db_header) + places_bytes(db) +
			  2 * boxes_bytes(db, db->fabric->nodes);
	db->copies_at = db->sequence_at + sequence_bytes(db, db->cc, db->fabric->nodes);
	db->copy_bytes = places_bytes(db);
	db->region = calloc(db->fabric->nodes, sizeof(*db->region));
	db->server = calloc(db->fabric->nodes, sizeof(*db->server));
	db->told = calloc(db->fabric->nodes, sizeof(*db->told));
	if (db->region == NULL || db->server == NULL || db->told == NULL)
		return vb_fail(-ENOMEM, "no memory for a database");
	if (cache == 0 && !(db->fabric->caps.flags & VB_CAP_INLINE))
		cache = CACHE;
	if (cache != 0)
		err = vb_cache_open(cache, &db->cache);
	for (uint16_t node = 0; node < db->fabric->nodes && err == 0; node++)
		err = open_node(db, node);
	return err != 0 ? err : vb_parts_join(db);
}

static void free_db(struct vb_db *db)
{
	for (unsigned i = 0; i < db->store.n_tables; i++)
		vb_table_free(db->store.table[i]);
	vb_cache_close(db->cache);
	free(db->region);
	free(db->server);
	free(db->told);
	free(db);
}

int vb_db_open(struct vb_fabric *fabric, const struct vb_db_params *p, struct vb_db **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	struct vb_db *db;
	int err;

	if (vb_any_null(fabric, p, out))
		return -EINVAL;
	err = vb_fabric_check(fabric);
	if (err == 0)
		err = check_params(fabric, p);
	if (err)
		return err;
	db = calloc(1, sizeof(*db));
	if (db == NULL)
		return vb_fail(-ENOMEM, "no memory for a database");
	db->fabric = fabric;
	db->cc = vb_cc_find(p->cc);
	err = db->cc == NULL ? unknown_cc(p->cc) : check_caps(fabric, db->cc);
	if (err == 0)
		err = hybrid_stages(db, p);
	if (err == 0)
		db->fetch_by_rpc = fetches_by_rpc(db->cc, db->rpc_stages);
	if (err == 0)
		err = check_wait(fabric, db->cc, p);
	if (err == 0)
		err = check_heat(db->cc, p);
	if (err == 0)
		err = check_lag(fabric, db->cc, p);
	if (err == 0)
		err = check_record(db->cc, p);
	if (err == 0)
		err = check_copies(fabric, db->cc, p);
	if (err == 0 && fabric->caps.client)
		err = vb_far_check(db);
	if (err == 0) {
		set_sizes(db, p);
		set_options(db, p);
		err = open_parts(db, p);
	}
	if (err) {
		free_db(db);
		return err;
	}
	db->opened = (struct vb_opened){.kind = "database", .name = db->name};
	vb_opened_note(fabric, &db->opened);
	*out = db;
	return 0;
}

int vb_db_close(struct vb_db *db)
{
	int err;

	if (db == NULL)
		return 0;
	err = vb_fabric_check(db->fabric);
	if (err == 0)
		err = vb_opened_check(db->fabric, db, "database", db->name);
	if (err)
		return err;
	vb_opened_drop(&db->opened);
	free_db(db);
	return 0;
}

/* Both tables or none. */
static int open_ordered(struct vb_store *store, const struct vb_table_params *params,
			struct vb_table **out)
{
	const unsigned shift = vb_ranges_shift(params);
	struct vb_table *t, *ranges;
	char name[32];
	struct vb_table_params p;
	int err;

	if (params->name == NULL)
		return vb_store_table_check(store, params);
	p = vb_ranges_params(params, name);
	err = vb_store_table_check(store, &p);
	if (err == 0)
		err = vb_store_table_open(store, params, 1ull << shift, 0, 0, &t);
	if (err)
		return err;
	err = vb_store_table_open(store, &p, 1ull << shift, vb_keymap_bytes(shift), 0, &ranges);
	if (err) {
		vb_store_table_undo(store, t);
		return err;
	}
	t->range_shift = ranges->range_shift = shift;
	t->ranges = ranges;
	ranges->ranges_of = t;
	*out = t;
	return 0;
}

int vb_table_open(struct vb_db *db, const struct vb_table_params *params, struct vb_table **out)
{
	VB_SCHED_INSIDE(vb_sched_here());
	int err;

	if (vb_any_null(db, params, out))
		return -EINVAL;
	err = vb_fabric_check(db->fabric);
	if (err == 0)
		err = vb_ranges_check(params);
	if (err == 0)
		err = vb_store_open_begin(&db->store);
	if (err)
		return err;
	err = params->ordered ? open_ordered(&db->store, params, out)
			      : vb_store_table_open(&db->store, params, 1, 0, 0, out);
	vb_store_open_end(&db->store);
	return err;
}

uint64_t vb_table_node_bytes(const struct vb_db_params *db, const struct vb_table_params *table,
			     uint16_t nodes)
{
	const struct vb_cc_ops *cc;
	uint32_t meta, slots;
	uint64_t bytes;

	if (vb_any_null(db, table))
		return 0;
	cc = db->cc != NULL ? vb_cc_find(db->cc) : NULL;
	meta = cc != NULL ? cc->meta_bytes : 0;
	slots = cc != NULL ? vb_cc_slots(cc) : 1;
	bytes = vb_store_table_bytes(table, meta, slots, 0, nodes);
	if (table->ordered) {
		char name[32];
		struct vb_table_params p = vb_ranges_params(table, name);

		bytes += vb_store_table_bytes(&p, meta, slots,
					      vb_keymap_bytes(vb_ranges_shift(table)), nodes);
	}
	return bytes;
}
