/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions on a fabric.
 *
 * A *database* is a set of tables under one concurrency-control protocol, spread over the nodes of
 * a fabric.  A *table* has fixed-size records with 64-bit keys.  A *coordinator* runs transactions,
 * one at a time.  It belongs to the thread (or the coroutine there) that has opened it, and calls
 * from another are refused (-VB_EFOREIGN).  A process may have any number of coordinators.
 *
 *	vb_db_open(fabric, &(struct vb_db_params){ .cc = "silo" }, &db);
 *	vb_table_open(db, &(struct vb_table_params){ .name = "account", .record_bytes = 8,
 *						     .records = 1000 }, &account);
 *	vb_db_server_thread_start(db, 0, &server);          one for each node that this process has
 *	vb_coordinator_open(db, 0, &me);
 *
 *	do {
 *		err = vb_txn_begin(me);
 *		if (err == 0)
 *			err = vb_txn_update(me, account, 1, (void **)&from);
 *		if (err == 0)
 *			err = vb_txn_update(me, account, 2, (void **)&to);
 *		if (err == 0) {
 *			*from -= 10, *to += 10;
 *			err = vb_txn_commit(me);
 *		}
 *	} while (err == -EAGAIN);
 *	vb_txn_abort(me);                      after another error; else it does nothing
 *
 * Every call of a transaction may find that the protocol has to abort it.  It then returns
 * -EAGAIN, the transaction is over (its locks are given back, nothing was written), and
 * vb_txn_cause() says why; begin again, as vb_txn_run() does.  After that every further call says
 * -EAGAIN until the next vb_txn_begin.  So a body that uses no pointer and no value of a call that
 * failed need check only at its end.
 *
 * What is promised.  Committed transactions are serializable, whatever the protocol: it is as if
 * they had run one after the other.  All protocols but `sundial`, `maat`, `mvcc`, `mvcc-rcc`, `cicada`, `to` and
 * `to-cascade` are strictly serializable: in that order a transaction comes after those that had ended before
 * it began.
 * Who begins with less (vb_txn_begin_with) is promised less, and takes nothing from the others.  What a
 * transaction reads while it runs is whole: no record is ever half of one version and half of another.
 * But with `silo`, `drtm-h`, `mocc`, `sundial`, `maat` and `cicada` two records may be of different moments; such a
 * transaction cannot commit.  At VB_READ_COMMITTED they may, too, and it commits.  With `to-cascade` a record may
 * be one whose writer has yet to commit, and may not; then its readers cannot either.
 *
 * When a coordinator dies.  With recovery (the default), every transaction logs what it will write
 * in its own node's memory before its commit.  A transaction that meets a lock of a coordinator
 * that has not moved for a lease rolls that one's transaction back, or forward if it had
 * committed.  That needs the memory of the coordinator's node: where a process takes its node's
 * memory with it (verbs, tcp, ucx), transactions on that node's records fail with -VB_EPEERGONE, and
 * what its coordinators held elsewhere stays held, unless the database has `copies` of their logs.
 *
 * Clients of an elastic cluster (fabric tcp with `servers`, doc/elastic.md) have no node.  The servers make the
 * database and its tables; a client opens both with the same parameters, and coordinators at a node of its choice,
 * their home: logs and status words lie there, and outlive the client.
 */
#ifndef VERBENA_TXN_H
#define VERBENA_TXN_H

#include <verbena/fabric.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

struct vb_db;
struct vb_table;
struct vb_coordinator;
struct vb_db_server;

/* Tables of a database; bytes of a record (with its header one verb of 64 KiB); records that one
 * transaction touches. */
#define VB_TABLES_MAX       24u
#define VB_RECORD_BYTES_MAX 65024u
#define VB_TXN_ITEMS_MAX    4096u

struct vb_db_params {
	/* The protocol: "no-wait", "wait-die", "wound-wait" or "bounded-wait", each also with "-sx" for
	 * shared and exclusive locks; "wait-die-fair"; "votes"; "dslr-2pl"; "silo"; "drtm-h"; "mocc"; "sundial";
	 * "maat"; "mvcc"; "mvcc-rcc"; "cicada"; "to"; "to-cascade"; and "calvin", where all that a transaction touches
	 * is declared (vb_txn_declare).  See `verbena list`. */
	const char *cc;
	/* One digit for each of the protocol's stages, 0 one-sided, 1 by RPC; with `copies` there may be one more,
	 * for the log's, which is the same in all processes.  NULL: all one-sided; "rpc": all by RPC, the log, too.
	 * "drtm-h" is "silo" with one code: NULL or that one, "01111", with or without the log's digit. */
	const char *hybrid;
	/* Lets several databases share a fabric, 1 to 31 characters; NULL: "db". */
	const char *name;
	/* How many coordinators may be open at a time per node, those of an elastic cluster's clients that have
	 * their home there among them; 0: 64.  Times the fabric's nodes at most 16383. */
	uint32_t coordinators;
	/* The most records that one transaction touches, 1 to VB_TXN_ITEMS_MAX; 0: 64. */
	uint32_t items_max;
	/* The bytes of the largest record of any table, 1 to VB_RECORD_BYTES_MAX, under "mvcc", "mvcc-rcc" and
	 * "cicada", where one verb brings four versions, to 16,352; 0: 1024. */
	uint32_t record_bytes_max;
	/* The most bytes of records that one transaction touches, up to 256 MiB; 0: 64 KiB. */
	uint32_t bytes_max;
	/* How long a transaction may take, and how long others wait before they recover it: from 4
	 * times what the fabric lets a verb be late to 1 hour; 0: 50 ms, or those 4 times if that
	 * is more.  On an RDMA card take at least two seconds, until its option `measured` says
	 * more (doc/verbs.md). */
	uint64_t lease_ns;
	/* "bounded-wait", "bounded-wait-sx", "votes", "dslr-2pl": the longest that a transaction waits for a lock, up to
	 * lease_ns; 0: a 64th of that.  How long each wait is at most is drawn from half of it to
	 * all.  Of others, 0. */
	uint64_t wait_ns;
	/* "mvcc", "mvcc-rcc": how old what a transaction at VB_SNAPSHOT sees is, up to lease_ns; and therefore,
	 * within what time from its begin every other has to have locked what it writes, or its commit says
	 * -EAGAIN (cause `timeout`).  0: the lease; with no_recovery there are no snapshots then.  Of
	 * others, 0. */
	uint64_t snapshot_lag_ns;
	/* "mocc": from what temperature on a record is hot, 1 to 64: those that would end each other there wait
	 * for each other before they read it.  It is about the logarithm to base 2 of how many transactions the
	 * record has ended; it does not rise above 32: more than that is never.  0: 4.  Of others, 0. */
	uint32_t hot_from;
	/* No log and no recovery: what a dead coordinator holds is held for good. */
	bool no_recovery;
	/* Each verb with a doorbell of its own. */
	bool no_doorbell;
	/* Each verb is waited for before the next is posted. */
	bool no_outstanding;
	/* A commit does not wait until its writes have arrived.  Its transaction's log is not
	 * overwritten before they have. */
	bool passive_ack;
	/* Entries of the location cache, a power of two; 0: none where verbs complete at once, else
	 * 65536. */
	uint32_t cache_entries;
	/* On how many other nodes each commit writes its log, too, before it is committed: 0 to 3, fewer than
	 * there are nodes.  So many nodes may go with their memory, and what their coordinators have committed is
	 * finished, and what they hold is freed, where the records' own nodes remain.  0: none: when the node goes,
	 * what they have committed may be done in part, and what they hold stays held.  Not with
	 * no_recovery, "maat", "to-cascade" and "calvin". */
	uint32_t copies;
};

/* Which node has a key. */
enum vb_partition {
	/* The key mod nodes: for dense keys. */
	VB_PARTITION_MOD,
	/* By a hash of the key. */
	VB_PARTITION_HASH,
	/* The upper 16 bits of the key, mod nodes. */
	VB_PARTITION_TOP16,
};

struct vb_table_params {
	/* 1 to 31 characters. */
	const char *name;
	/* 1 to VB_RECORD_BYTES_MAX. */
	uint32_t record_bytes;
	/* How many records the table has room for, all nodes together, and a sixteenth and 64 on each node
	 * more.  Beyond the number asked for, keys without a record lose their places to others, some ten
	 * leases after they were last wanted; with "sundial", "maat" and no_recovery they keep them. */
	uint64_t records;
	/* Which node has a key. */
	enum vb_partition partition;
	/* It can be scanned (vb_txn_scan).  Its name has up to 24 characters, and it counts as two
	 * tables: the other, "NAME.ranges", has a tuple for each range of 2^range_shift keys in which a
	 * key was inserted or looked for by a scan.  All keys of a range lie on one node: `partition`
	 * goes by the key divided by that (VB_PARTITION_TOP16 by the key as ever).  Of two transactions
	 * that insert in one range, or of which one inserts and the other scans there, one waits for
	 * the other or ends, as with a record.  The keys in order are in the memory of the node's
	 * server, some 9 to 18 bytes each, which makes them when it starts. */
	bool ordered;
	/* 1 to 32; 0: 6, 64 keys.  With 10 or less a scan can always be one-sided.  Of tables that are not
	 * ordered, 0. */
	uint32_t range_shift;
	/* How many ranges there is room for, all nodes together; 0: `records`.  Beyond that those of which no
	 * key has a place lose theirs, as keys without a record do. */
	uint64_t ranges;
};

/* Bytes of each node's segment that a table takes, and that the rest of a database takes: for
 * vb_fabric_params.node_bytes.  `nodes` is the fabric's, the other parameters are those of
 * vb_db_open and vb_table_open.
 * Threads: any. */
uint64_t vb_table_node_bytes(const struct vb_db_params *db, const struct vb_table_params *table,
			     uint16_t nodes);
uint64_t vb_db_node_bytes(const struct vb_db_params *db, uint16_t nodes);

/*
 * Opens the database on this process's view of the fabric, making it if it is not there yet (a client of an
 * elastic cluster makes none, and waits for the servers for up to 10 s).  Every later open must ask for the
 * same protocol and sizes.
 *
 *   -EINVAL      unknown protocol, a hybrid code that is none of its, a number out of range, or
 *                another database than the one that exists
 *   -EOPNOTSUPP  the fabric lacks a verb that the protocol needs, which the log names; `copies` are asked
 *                for, and the protocol's logs have none; or to a client of an elastic cluster: "calvin" in
 *                both cases, which keeps more in the coordinator's memory than a log
 *   -ENOENT      to such a client: a server has not made it
 *   -ESTALE      of an elastic cluster: a server that has a part of it has come back empty, or with another
 *                state.  The log names it
 *   -ETIMEDOUT   a server does not say whether it has made it: it is stopped
 *   -VB_EPEERGONE
 *                another process, which has a node, cannot be reached
 *   -ENOSPC      it does not fit in the nodes' segments; the log says how much is needed
 *
 * Threads: any.
 */
int vb_db_open(struct vb_fabric *fabric, const struct vb_db_params *params, struct vb_db **out);

/*
 * Closes the database; NULL does nothing.
 *
 *   -EBUSY        coordinators, servers or tables of values are open on it: the log names them.
 *                 Nothing is closed
 *   -VB_EFOREIGN  a forked child that has not called vb_fabric_after_fork
 *
 * Threads: any, alone.
 */
int vb_db_close(struct vb_db *db);

/* Opens a table as vb_db_open does a database.  Every process opens the tables in the same order, and
 * before its coordinators.
 * -EINVAL, -ENOSPC, -ENOENT, -VB_EPEERGONE; -EBUSY: another thread is just opening one of this database.
 * Threads: any, one at a time for a database. */
int vb_table_open(struct vb_db *db, const struct vb_table_params *params, struct vb_table **out);

/* The node that has a key, and the size of a record.
 * Threads: any. */
uint16_t vb_table_node(const struct vb_table *table, uint64_t key);
uint32_t vb_table_record_bytes(const struct vb_table *table);

/*
 * Puts a record in place without a transaction, before anybody runs transactions on the node.  Only
 * for keys of nodes whose memory this process reaches (shm, sim: all; verbs, tcp, ucx: its own).
 * Programs that start in any order do not know whether they are first, and insert in a transaction
 * instead: all records in one, or none (examples/restart.c).
 *
 *   -EEXIST  the key is there already, or a transaction has looked for it; nothing is changed
 *   -ENOSPC  the table is full
 *   -EXDEV   the key's node is another process's: load it there
 *   -EBUSY   another thread is just loading a record of the table there
 *
 * Threads: any, one at a time for a node; of all processes.
 */
int vb_table_load(struct vb_table *table, uint64_t key, const void *record);

/*
 * Starts a node's server, and stops it.  Each node needs one: it adds keys to the node's index, and
 * does what is asked by RPC.  The first call starts it as a task on this thread's scheduler: it
 * runs whenever the thread awaits something, and while the thread is outside Verbena on its keeper
 * (verbena/fabric.h, "Background work").  The second starts it on a thread of its own.
 *
 *   -EBUSY   the node has a server that is alive
 *   -EINVAL  there is no such node
 *   -EXDEV   the node is another process's
 *
 * Threads: any; a server that is a task is that thread's.
 * Threads of vb_db_server_stop: the server's; any, of one that has a thread of its own.
 */
int vb_db_server_start(struct vb_db *db, uint16_t node, struct vb_db_server **out);
int vb_db_server_thread_start(struct vb_db *db, uint16_t node, struct vb_db_server **out);
void vb_db_server_stop(struct vb_db_server *server);

/*
 * Opens a coordinator at `node`: one of this process, or, by a client of an elastic cluster, any.  There it takes one
 * of the database's `coordinators`; a client that finds none free takes over that of a process which its home says is
 * no more, and finishes what that has left: a little more than a lease.  In an elastic cluster none is opened where
 * a node is gone for this process: a server has come back empty, or could not be reached for its `linger`.
 *
 *   -EINVAL  there is no such node
 *   -EXDEV   the node is another process's, and this one is no such client
 *   -ENOSPC  as many are open there as the database allows; a client that was lost counts for the option
 *            `linger` more
 *   -EPROTO  there is a commit to finish, of a table that this process has not opened; the log says which
 *   -ENOMEM
 *   -VB_EPEERGONE, -VB_EUNKNOWN
 *            the node's memory does not answer.  Its place has been given back all the same, or the
 *            log says that it could not be.  Of a database with `copies` also: the nodes that have those of
 *            its log do not answer, or others have taken this node for gone
 *
 * Threads: any; the coordinator is that thread's.
 */
int vb_coordinator_open(struct vb_db *db, uint16_t node, struct vb_coordinator **out);
/* Closes the coordinator.  A transaction that is under way is aborted.  What it has committed and cannot bring
 * into place, because the link to a node is down, is left to vb_db_recover, which then gives its place up, too: the
 * log says so.
 * Threads: the coordinator's. */
void vb_coordinator_close(struct vb_coordinator *me);

/* Why a transaction ended. */
enum vb_txn_cause {
	/* No abort. */
	VB_TXN_COMMITTED,
	/* vb_txn_abort. */
	VB_TXN_USER,
	/* A record was locked by another transaction. */
	VB_TXN_LOCKED,
	/* wait-die: the holder was older. */
	VB_TXN_DIED,
	/* wound-wait: an older transaction wanted what this one had. */
	VB_TXN_WOUNDED,
	/* A record that was read has changed since; mvcc, mvcc-rcc, cicada, to, to-cascade: it came too late for
	 * a record, which a younger one has read or written. */
	VB_TXN_CHANGED,
	/* sundial: a lease could not be extended.  maat: between those that it had to come behind, and those
	 * that it had to come before, no time was left. */
	VB_TXN_LEASE,
	/* One record had more readers than it has room for; mvcc, mvcc-rcc, cicada: more versions since the
	 * transaction began. */
	VB_TXN_SLOTS,
	/* It took longer than its lease, and others rolled it back. */
	VB_TXN_RECOVERED,
	/* It waited for a lock until its lease, its timeout_ns or the database's wait_ns had passed; or
	 * its commit came after the lease or the timeout_ns. */
	VB_TXN_TIMEOUT,
	/* A verb or a server failed: vb_txn_error says how. */
	VB_TXN_FABRIC,
	/* A bound was passed: vb_txn_error says which, by -E2BIG, -ENOSPC or -EOVERFLOW. */
	VB_TXN_MISUSE,
	/* The protocol left a record half locked or fetched: vb_txn_commit, -EPROTO. */
	VB_TXN_REFUSED,
	/* to-cascade: what it had read of another was not committed after all, or can no longer be told. */
	VB_TXN_CASCADE,
	VB_TXN_CAUSES
};
/* A cause in words: "locked", "wounded", ...; "unknown" for a number that is none of them.  The
 * string is static.
 * Threads: any. */
const char *vb_txn_cause_name(enum vb_txn_cause cause);

/*
 * Begins a transaction.
 *
 *   -EBUSY         a transaction is under way: commit or abort it first
 *   -VB_EPEERGONE, -VB_EUNKNOWN
 *                  an earlier commit returned -VB_EUNKNOWN, and what became of its transaction can
 *                  still not be learned; or the link to a node is down where earlier transactions have
 *                  committed what is not in place yet, at both of the coordinator's places.  Begin again
 *                  later: nothing of it is lost as long as the node is not.  -VB_EPEERGONE for good, as the
 *                  log says, of a database with copies: others have taken this coordinator's node for gone
 *   -ETIMEDOUT     shm, a commit stage by RPC: what an earlier transaction has committed is not in
 *                  place yet, because a server that lives has not answered for 10 s, and may still
 *                  write it.  Begin again later
 *   -ECANCELED     the same, and the task was cancelled while it waited for that server
 *   -VB_ELOST      a write of a committed transaction, the coordinator's own or one that it has recovered, is
 *                  lost: its record was let go and does not have it, as the log says.  Only a fabric that
 *                  executes what is posted behind a verb which it has refused can do that.  Told once, where
 *                  it is found; the coordinator goes on.  Not looked for under "to-cascade"
 *
 * Threads: the coordinator's.
 */
int vb_txn_begin(struct vb_coordinator *me);

/*
 * What a transaction is promised of what it reads.  Whatever it is, what it reads is committed, at the
 * latest when it is itself ("to-cascade"; of others, from the first); of what it writes nothing is committed
 * before it is; and vb_txn_update gives the record as it is now.
 */
enum vb_isolation {
	VB_SERIALIZABLE,
	/* A record that was read stays as it was until the end.  That there is none may change: another
	 * call looks anew, and what it finds, or does not, counts as one more record. */
	VB_REPEATABLE_READ,
	/* Others may write what was read as soon as the call has ended.  Another call reads anew, into
	 * another copy, which counts as one more record and its bytes (items_max, bytes_max); what was
	 * read beforehand by vb_txn_declare is given by the first call.  But vb_txn_scan reads
	 * that anew, too: what it gives is of one moment, and so is a value of vb_values_get.  ("to":
	 * what these two have read stands until the end; and a record that a younger transaction has
	 * written meanwhile ends this one with -EAGAIN, as at every level.) */
	VB_READ_COMMITTED,
	/* What was committed when it began, less snapshot_lag_ns and what clocks differ by, and no later
	 * transaction can change that.  Who writes nothing is in nobody's way, and has its place among those
	 * that are serializable, not strictly.  Of two that write one record the first to commit wins: the
	 * other ends if that was not in its snapshot yet.  But two may each write what the other has read
	 * (write skew). */
	VB_SNAPSHOT,
	VB_ISOLATIONS
};

struct vb_txn_params {
	/* VB_REPEATABLE_READ and VB_READ_COMMITTED are offered by the two-phase protocols ("no-wait",
	 * "wait-die", "wound-wait", "bounded-wait" and their forms -sx and -fair, and "votes") and by "to",
	 * VB_SNAPSHOT by "mvcc" and "mvcc-rcc"; see `verbena list`. */
	enum vb_isolation isolation;
	/* Calls that write are refused. */
	bool read_only;
	/* Its deadline: so long after it has begun no call of it waits for another transaction any
	 * more.  A call that does then, and vb_txn_commit, abort it and say -ETIMEDOUT, at the latest
	 * when the verbs that are under way have come back.  0, or more than the database's lease_ns:
	 * the lease, at whose end they say -EAGAIN; with no_recovery a commit does not look at it, and
	 * so heeds no timeout_ns beyond it either. */
	uint64_t timeout_ns;
};

/*
 * Begins a transaction that is not as all others; with {0} it is vb_txn_begin.
 *
 *   -EINVAL      there is no such isolation level
 *   -EOPNOTSUPP  the database's protocol does not offer it; or it is VB_SNAPSHOT, and the database has
 *                no_recovery and no snapshot_lag_ns
 *
 * and the errors of vb_txn_begin.
 *
 * Threads: the coordinator's.
 */
int vb_txn_begin_with(struct vb_coordinator *me, const struct vb_txn_params *params);

/*
 * All of these may return -EAGAIN (aborted: verbena/txn.h).  After these errors the transaction
 * goes on:
 *
 *   -ENOENT  there is no such record.  That there is none is part of what the transaction has read.
 *            The key takes a place in the table, from its node's server, until another
 *            key needs it
 *   -EEXIST  insert: there is one.  That there is one is part of what the transaction has read; the
 *            record stays as it is
 *   -EINVAL  no transaction is under way; or the table is of another database; or, "calvin", the key was
 *            not declared, or not to be written
 *   -EROFS   the call writes, and the transaction is read_only
 *
 * and errors by which it is aborted:
 *
 *   -ETIMEDOUT
 *            it has waited until the end of its timeout_ns; from vb_txn_commit also where that
 *            came later, though nobody was waited for
 *   -E2BIG   it touches more records or bytes than the database allows
 *   -ENOSPC  the table has no room for another key, be it one that is only looked for; places of
 *            keys without a record come free some ten leases later
 *   -EPROTO  a node's server refuses what it was asked: it has opened other tables than this
 *            process, as the log says
 *   -EOVERFLOW
 *            sundial, also from vb_txn_commit: the logical time of the database is used up
 *            (doc/cc/sundial.md)
 *   -VB_EPEERGONE, -VB_EUNKNOWN
 *            a node cannot be reached
 *
 * The pointers that they give lead into the transaction's own copy, and are good until it ends.
 */

/* The record as this transaction sees it.  Read-only.
 * Threads: the coordinator's. */
int vb_txn_get(struct vb_coordinator *me, struct vb_table *table, uint64_t key, const void **out);
/* The record as this transaction sees it, to be changed in place until the commit.
 * Threads: the coordinator's. */
int vb_txn_update(struct vb_coordinator *me, struct vb_table *table, uint64_t key, void **out);
/* Copies the record out; replaces it by a copy of `record` without reading it.
 * Threads: the coordinator's. */
int vb_txn_read(struct vb_coordinator *me, struct vb_table *table, uint64_t key, void *record);
int vb_txn_write(struct vb_coordinator *me, struct vb_table *table, uint64_t key,
		 const void *record);
/* Adds a copy of `record` where there is none; removes the record.  In an ordered table an insert also
 * writes the key's range, which counts as one more record; one that is refused has read it.
 * Threads: the coordinator's. */
int vb_txn_insert(struct vb_coordinator *me, struct vb_table *table, uint64_t key,
		  const void *record);
int vb_txn_delete(struct vb_coordinator *me, struct vb_table *table, uint64_t key);

/*
 * Scans an ordered table: the first `room` of the records whose keys lie in the range, both ends
 * included, in order; *n says how many there are, fewer than `room` if there are no more.  What is
 * promised of records holds of what is not there, too: no other transaction inserts a record between
 * those that were given, or takes one away, unless it comes after this one as a whole.  At
 * VB_REPEATABLE_READ and VB_READ_COMMITTED another scan may find others; at VB_SNAPSHOT a transaction
 * that writes does so beside others who insert what it has not found.  The transaction's own inserts and
 * deletes are seen.
 *
 * Who wants more goes on behind the last key, in the same transaction.  Each record, each key without
 * one in between (a deleted record's, or one that was looked for in vain) and each range, but at
 * VB_SNAPSHOT, counts as a record of the transaction (items_max, bytes_max).  So who takes the first
 * record away again and again, as of a queue, begins behind the last that was taken: from a fixed bound
 * all keys that were deleted are read each time, until they are too many.  It goes through up to eight
 * ranges together, no more than fill `room` if they have as much as those before, and of 64 keys each.
 * Which keys they have it reads from afar; by a call of the node's server for each range where the
 * first of the protocol's stages that fetch runs by RPC, and where a range of more than 1024 keys has
 * more than 15 of them.  The records themselves are read as by vb_txn_declare, up to eight too many
 * where others had none.
 *
 *   -EINVAL  the table is not ordered, or the protocol is "calvin"; the transaction goes on
 *   -E2BIG   it goes through more ranges than items_max, or touches too much; aborted
 *   -ENOSPC  a range's tuple has no room, or the node's server no memory for the order; aborted
 *
 * and the errors of vb_txn_update, but for -ENOENT: where nothing is found *n is 0.
 *
 * Threads: the coordinator's.
 */
struct vb_txn_range {
	uint64_t least, most;
	/* From the largest key down. */
	bool descending;
};
struct vb_txn_row {
	uint64_t key;
	const void *record;
};
int vb_txn_scan(struct vb_coordinator *me, struct vb_table *table, const struct vb_txn_range *range,
		struct vb_txn_row *rows, unsigned room, unsigned *n);

/* The interval for vb_txn_scan of all keys that differ from this one in their lowest `bits` at most.
 * Threads: any. */
static inline struct vb_txn_range vb_txn_prefix(uint64_t key, unsigned bits)
{
	uint64_t low = bits < 64 ? ((uint64_t)1 << bits) - 1 : UINT64_MAX;
	struct vb_txn_range range = {key & ~low, key | low, false};

	return range;
}

/*
 * Says beforehand what will be read and written: the records are looked up, locked and fetched
 * together, with few doorbells (ten on three nodes: less than twice the time of one).  What is
 * declared need not be used, and what is not declared may be.  A declared key that has no record
 * is no error here.  If one of the tables is of another database (-EINVAL), or one is to be written
 * in a transaction that is read_only (-EROFS), nothing is declared and the transaction goes on.
 *
 * "calvin" gives every transaction its place in one order by this call, and it waits for its turn here; of
 * transactions nobody ends because of another.  There all that a transaction touches has to be declared, in one
 * call (-EINVAL: the second) and before any other; a key of an ordered table that is to be written counts as two
 * records, with its range.
 *
 * Threads: the coordinator's.
 */
struct vb_txn_key {
	struct vb_table *table;
	uint64_t key;
	/* It will be written, or else only read. */
	bool write;
};
int vb_txn_declare(struct vb_coordinator *me, const struct vb_txn_key *keys, unsigned n);

/*
 * Commits the transaction.
 *
 *   0             committed
 *   -EAGAIN       aborted, now or before; if by an error (a transaction too large, a node that is
 *                 gone), then that error
 *   -VB_EUNKNOWN  the answer was lost: it has been committed, or it will never be.  If the database
 *                 has recovery, what it had locked is recovered: if it is committed, all of it
 *                 becomes visible, at the latest with this coordinator's second vb_txn_begin after
 *                 it, or its close
 *   -EINVAL       no transaction is under way
 *   -EPROTO       a record was not fetched, placed or locked as it must be before it may be
 *                 written: a defect of the protocol or of this library, which the log describes.
 *                 Aborted, nothing was written
 *
 * Threads: the coordinator's.
 */
int vb_txn_commit(struct vb_coordinator *me);
/* Aborts the transaction; never fails.  Without a transaction under way it does nothing.
 * Threads: the coordinator's. */
void vb_txn_abort(struct vb_coordinator *me);

/*
 * Values of any size, up to a bound.  A table has records with the length of a value and its first
 * bytes; a second one, "NAME.more", has the rest in pieces, which lie on the node of the record
 * and are read and written under the same protocol.  A value that fits in the record costs what a
 * record costs; a longer one, one more round of verbs for all of its pieces together.
 */
struct vb_values;

struct vb_values_params {
	/* 1 to 26 characters. */
	const char *name;
	/* Bytes of the largest value, 1 to 1 MiB. */
	uint32_t bytes_max;
	/* Bytes of a value that lie in the record itself, at most bytes_max are taken; 0: 56. */
	uint32_t inline_bytes;
	/* Bytes of each further piece, at most what bytes_max needs is taken; 0: 1016. */
	uint32_t piece_bytes;
	/* How many values there is room for. */
	uint64_t records;
	/* How many pieces there is room for; 0: as many as all values may need. */
	uint64_t pieces;
	/* VB_PARTITION_MOD or VB_PARTITION_HASH. */
	enum vb_partition partition;
};

/* Opens a table of values.  -EINVAL (also under "calvin"), -ENOSPC, -EBUSY as vb_table_open; neither table is open
 * then.  Every later open must ask for the same bytes_max, too.  The database's record_bytes_max must hold
 * inline_bytes + 8 and piece_bytes, its items_max and bytes_max the record and the pieces of the largest
 * value: else -EINVAL.
 * Threads: any, one at a time for a database. */
int vb_values_open(struct vb_db *db, const struct vb_values_params *params, struct vb_values **out);
/* Closes a table of values, before vb_db_close.
 * Threads: any, alone. */
void vb_values_close(struct vb_values *values);

/*
 * Reads, writes and removes a value in a transaction.  get copies at most `room_bytes` (a call that fails
 * may have copied some), *bytes is the size of the whole value; put inserts the value or replaces it; remove
 * deletes it.  Keys are below 2^64 divided by the pieces of the largest value.
 *
 *   -EINVAL  the key is too large; and as for vb_txn_update
 *   -ENOENT  get, remove: there is no value
 *   -E2BIG   put: a value larger than bytes_max.  The transaction goes on
 *
 * Other errors as for records.
 *
 * Threads: the coordinator's.
 */
int vb_values_get(struct vb_coordinator *me, struct vb_values *values, uint64_t key, void *buf,
		  uint32_t room_bytes, uint32_t *bytes);
int vb_values_put(struct vb_coordinator *me, struct vb_values *values, uint64_t key,
		  const void *value, uint32_t bytes);
int vb_values_remove(struct vb_coordinator *me, struct vb_values *values, uint64_t key);

/* Why the last transaction ended, and with what error: that behind VB_TXN_FABRIC, VB_TXN_MISUSE and
 * VB_TXN_REFUSED, and -ETIMEDOUT behind VB_TXN_TIMEOUT if it was the caller's; else 0.  After
 * vb_txn_run_with has given up between two tries (-ETIMEDOUT), those of the last try.
 * Threads: the coordinator's. */
enum vb_txn_cause vb_txn_cause(const struct vb_coordinator *me);
int vb_txn_error(const struct vb_coordinator *me);

/*
 * Runs body(me, arg) as a transaction, again and again with growing pauses in between until it
 * commits, at most `tries` times (0: without end).  A pause is at most half a millisecond, or, where tries
 * take long, as long as all of them have taken, up to two seconds: of more transactions than can be done
 * within a lease some give way until others are through.  The body returns 0 to commit; anything else
 * aborts and is returned, except -EAGAIN, which is tried again.  The second begins each try as
 * vb_txn_begin_with does; its timeout_ns is for all tries and pauses together, 0 or UINT64_MAX
 * without end; it may be longer than the lease, which each try has at most.
 *
 *   0           committed
 *   -EAGAIN     not in so many tries; vb_txn_cause has the last one's cause
 *   -ETIMEDOUT  not within timeout_ns
 *   others      the body's own, or an error of the calls in it
 *
 * Threads: the coordinator's.
 */
typedef int (*vb_txn_body)(struct vb_coordinator *me, void *arg);
int vb_txn_run(struct vb_coordinator *me, vb_txn_body body, void *arg, unsigned tries);
int vb_txn_run_with(struct vb_coordinator *me, const struct vb_txn_params *params, vb_txn_body body,
		    void *arg, unsigned tries);

/*
 * Recovers a node.  Looks at every record of it for locks of transactions that have not moved for a
 * lease, and rolls those back or forward, as a transaction that meets them would.  Then it gives up
 * the places of coordinators on the node whose process is gone.  Takes a lease and some; *freed
 * counts the locks, also beside an error of what was left.
 *
 *   -EBUSY       a transaction is under way
 *   -EINVAL      there is no such node
 *   -EOPNOTSUPP  the database has no recovery
 *   -ETIMEDOUT   shm: a server of the records of such a coordinator, which commits by RPC, lives
 *                and has not answered for 10 s (each such coordinator costs that)
 *   -EPROTO      such a coordinator has committed to a table that this process has not opened
 *   -VB_EUNKNOWN, -VB_EPEERGONE, -VB_EACCESS  where a lock's holder has its place is out of reach,
 *                or the node itself is; or the link to another node is down where the caller itself
 *                has committed what is not in place yet
 *   -VB_ETOOLATE the caller stood still for a lease where it was about to free a lock
 *   -VB_ELOST    a committed write is lost, as for vb_txn_begin
 *   others       the fabric's
 *
 * A lock or place that cannot be recovered keeps none of the others: the first error is returned
 * when the rest is done, and what was left stands until somebody can finish it.  When the node
 * itself cannot be read, nothing more is tried.
 *
 * Threads: the coordinator's.
 */
int vb_db_recover(struct vb_coordinator *me, uint16_t node, uint64_t *freed);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop
#endif
