/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of clients of servers that run already (verbena serve, doc/elastic.md): each worker process is a client
 * of its own, with a fabric of its own, and its coordinators have their homes on all nodes in turn.
 *
 * The parent opens nothing on the network, for who has is not to be forked.  What has to be known before and after the
 * run a process of its own finds out, a client, too, and shows to the parent:
 *
 *	before   which nodes there are, that the tables are those of --database and filled; what dead clients have left
 *	         is recovered, and the records are counted: earlier runs have changed them.  For --check every version
 *	         that they have made becomes a write of a transaction that was over before this run
 *	after    counts them again
 *
 * Both copy the tables from the servers (vb_table_mirror), which is as much as the servers have.
 */
#define VB_LOG_ROOM "bench"
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/servers.h"
#include "lab/bench/txn/txn.h"
#include "lab/run.h"

#define NAP_NS   1000000
#define CLOSE_NS 1000000000ull
#define FORMER   UINT16_MAX /* the client of what was there before, in a history */
/* A READ without an answer is tried again so often, so long after it. */
#define AGAIN     20u
#define AGAIN_NS  50000000ull
#define NODES_MAX 4096u /* of a fabric's */

/* By the process that looks; shared. */
struct vb_tbench_learnt {
	uint64_t nodes, lease_ns, wait_ns, snapshot_lag_ns;
	uint32_t hot_from;
	bool sealed;
	bool looked, others; /* have coordinators there, too, or had some */
	int err;
	struct vb_load_sums sums; /* of the last look */
	int64_t before[VB_LOAD_CHANGES_MAX];
};

/* ---- a client ---- */

int vb_tbench_elastic_join(struct vb_tbench_run *u)
{
	struct vb_tbench_plan *plan = u->plan;
	struct vb_db_params p;
	int err = vb_bench_servers_open(plan->o.elastic, plan->o.key, plan->o.fabric_options,
					&u->run.fabric);

	if (err == 0)
		err = vb_bench_servers_have(u->run.fabric, plan->o.elastic, VB_NAMED_DB, "database",
					    plan->served->name);
	/* Only who looks first does not know how many nodes there are. */
	if (err == 0 && u->load.ops == NULL)
		err = vb_load_init(&u->load, plan->load, plan->load_options, u->run.fabric->nodes,
				   VB_SERVE_SEED);
	if (err != 0)
		return err;
	vb_tbench_db_params(plan, u->one, &u->load, &p);
	err = vb_db_open(u->run.fabric, &p, &u->db);
	if (err == 0)
		err = vb_serve_load_await(plan->served, u->run.fabric);
	if (err == 0)
		err = vb_load_open(&u->load, u->db);
	if (err == 0)
		u->db->timing = !plan->o.no_breakdown;
	return err;
}

void vb_tbench_elastic_leave(struct vb_tbench_run *u)
{
	(void)vb_db_close(u->db);
	u->db = NULL;
	if (u->run.fabric != NULL)
		(void)vb_fabric_close(u->run.fabric);
	u->run.fabric = NULL;
}

/* ---- what was there before, as a history ---- */

struct former {
	struct vb_history *history;
	struct vb_history_txn txn;
	struct vb_history_op op[VB_HISTORY_OPS_MAX];
};

static bool flush_former(struct former *f)
{
	bool added = f->txn.n_ops == 0;

	f->txn.outcome = VB_HISTORY_COMMITTED;
	f->txn.client = FORMER;
	if (!added)
		added = vb_history_add(f->history, &f->txn, f->op);
	/* No worker has so many clients. */
	f->txn.id = UINT64_MAX - vb_history_count(f->history);
	f->txn.begin_ns = f->txn.end_ns = 1 + vb_history_count(f->history);
	f->txn.n_ops = 0;
	return added;
}

/* Of the versions of a tuple the nth, in the order in which they were made; 0: there are fewer.  Those of the loader
 * are one, VB_VERSION_LOADED. */
static uint64_t nth_version(const struct vb_tuple_layout *l, const char *tuple, unsigned nth,
			    uint64_t *before)
{
	uint64_t version = 0;

	*before = VB_VERSION_LOADED;
	for (unsigned k = 0; k <= nth; k++) {
		uint64_t least = UINT64_MAX;

		for (unsigned i = 0; i < l->slots; i++) {
			const uint64_t v = vb_slot_version(l, tuple, i);

			if (v >= VB_HISTORY_FIRST && v > version && v < least)
				least = v;
		}
		if (least == UINT64_MAX)
			return 0;
		*before = k > 0 ? version : VB_VERSION_LOADED;
		version = least;
	}
	return version;
}

/* A transaction has a version of each key, so the first versions come before the second ones. */
static bool remember_table(struct former *f, const struct vb_table *t, uint16_t node)
{
	const struct vb_table_header *h = t->node[node].index.header;
	bool room = true;

	for (unsigned nth = 0; nth < t->layout.slots && room; nth++) {
		for (uint64_t i = 0; i < h->tuples && room; i++) {
			const char *tuple = (const char *)(h + 1) + i * t->layout.stride;
			uint64_t prev, v = nth_version(&t->layout, tuple, nth, &prev);

			if (v == 0)
				continue;
			f->op[f->txn.n_ops++] = (struct vb_history_op){
				.key = vb_tuple_word(tuple, VB_TUPLE_KEY_AT),
				.version = v,
				.prev = prev,
				.table = t->id,
				.kind = VB_HISTORY_WRITE,
				.absent = (v & VB_VERSION_ABSENT) != 0,
			};
			if (f->txn.n_ops == VB_HISTORY_OPS_MAX)
				room = flush_former(f);
		}
		room = room && flush_former(f);
	}
	return room;
}

/* ---- looking ---- */

static int read_again(struct vb_ep *ep, vb_addr at, void *to, uint32_t bytes)
{
	int err = vb_read(ep, at, to, bytes);

	for (unsigned i = 0; i < AGAIN && err != 0; i++) {
		(void)vb_ep_sleep(ep, AGAIN_NS);
		err = vb_read(ep, at, to, bytes);
	}
	return err;
}

/* Each client's place is there from the beginning of its worker on. */
static bool is_ours(const struct vb_tbench_run *u, uint32_t place)
{
	for (unsigned i = 0; i < u->run.clients; i++) {
		const struct vb_tbench_state *s = vb_bench_state_of(&u->run, i);

		if (s->common.pid != 0 && s->place == place)
			return true;
	}
	return false;
}

/* Whether others than this run have coordinators open, or have had one since the look before: a coordinator names no
 * transaction without moving the clock of its place. */
static int look_for_others(struct vb_tbench_run *u, struct vb_ep *ep)
{
	const struct vb_db *db = u->db;
	const uint32_t all = db->coordinators * (uint32_t)db->fabric->nodes;

	for (uint32_t i = 0; i < all && !u->learnt->others; i++) {
		const uint32_t place = i * VB_PLACES_EACH;
		struct vb_place_head h;
		int err = read_again(ep, vb_db_place(db, place), &h, sizeof(h));

		if (err != 0)
			return err;
		if (!u->learnt->looked)
			u->clocks[i] = h.clock;
		if (is_ours(u, place))
			continue;
		u->learnt->others |= h.clock != u->clocks[i] ||
				     (h.owner != 0 && vb_peer_alive(db->fabric, h.owner));
	}
	u->learnt->looked = true;
	return 0;
}

/* Somebody who has had a place and is gone. */
static bool has_dead(struct vb_tbench_run *u, struct vb_ep *ep)
{
	const struct vb_db *db = u->db;
	const uint32_t all = db->coordinators * (uint32_t)db->fabric->nodes;

	for (uint32_t i = 0; i < all; i++) {
		struct vb_place_head h;

		if (read_again(ep, vb_db_place(db, i * VB_PLACES_EACH), &h, sizeof(h)) == 0 &&
		    h.owner != 0 && !vb_peer_alive(db->fabric, h.owner))
			return true;
	}
	return false;
}

/* What dead clients have left.  That looks at every record, so not without need; what cannot be recovered yet who meets
 * it recovers. */
static void recover(struct vb_tbench_run *u, struct vb_ep *ep)
{
	struct vb_coordinator *me;
	char why[256];
	uint64_t freed;

	if (u->plan->o.recovery != 0 || !has_dead(u, ep))
		return;
	vb_log_capture_begin(why, sizeof(why));
	if (vb_coordinator_open(u->db, 0, &me) == 0) {
		for (uint16_t node = 0; node < u->db->fabric->nodes; node++)
			(void)vb_db_recover(me, node, &freed);
		vb_coordinator_close(me);
	}
	vb_log_capture_end();
}

static int look_at_node(struct vb_tbench_run *u, struct vb_ep *ep, uint16_t node, struct former *f)
{
	const struct vb_store *s = &u->db->store;
	bool room = true;
	int err = 0;

	for (unsigned i = 0; i < s->n_tables && err == 0; i++)
		err = vb_table_mirror(s->table[i], node, ep);
	if (err == 0)
		u->load.ops->count(&u->load, node, &u->learnt->sums);
	for (unsigned i = 0; i < s->n_tables && err == 0 && f != NULL && room; i++)
		room = remember_table(f, s->table[i], node);
	for (unsigned i = 0; i < s->n_tables; i++)
		vb_table_unmirror(s->table[i], node);
	if (!room)
		return vb_fail(-ENOSPC,
			       "--history-bytes: no room for what earlier runs have written; give "
			       "more, or begin the servers anew");
	return err;
}

static int look(struct vb_tbench_run *u, struct former *f)
{
	struct vb_ep *ep;
	int err = vb_ep_open(u->run.fabric, 0, &ep);

	if (err != 0)
		return err;
	if (!u->learnt->looked)
		recover(u, ep);
	err = look_for_others(u, ep);
	u->learnt->sums = (struct vb_load_sums){0};
	for (uint16_t node = 0; node < u->load.nodes && err == 0; node++)
		err = look_at_node(u, ep, node, f);
	vb_ep_close(ep);
	if (err != 0)
		return vb_fail(err, "the tables of the servers cannot be read: %s",
			       vb_strerror(err));
	return 0;
}

static int check_places(const struct vb_tbench_run *u)
{
	const uint64_t all = u->run.clients, nodes = u->load.nodes, each = (all - 1) / nodes + 1;

	if (each <= u->db->coordinators)
		return 0;
	return vb_fail(-EINVAL,
		       "%" PRIu64 " clients, %" PRIu64 " of them at a node, and database '%s' has "
		       "room for %u; give the servers coordinators=%" PRIu64
		       " or more, or fewer --procs or --coroutines",
		       all, each, u->plan->served->name, u->db->coordinators, each);
}

static int look_before(struct vb_tbench_run *u)
{
	struct vb_tbench_learnt *l = u->learnt;
	struct former *f = NULL;
	int err = check_places(u);

	if (err != 0)
		return err;
	if (u->before != NULL) {
		f = calloc(1, sizeof(*f));
		if (f == NULL)
			return vb_fail(-ENOMEM, "no memory for a history");
		f->history = u->before;
		(void)flush_former(f);
	}
	l->nodes = u->load.nodes;
	l->lease_ns = u->db->lease_ns;
	l->wait_ns = u->db->wait_ns;
	l->snapshot_lag_ns = u->db->snapshot_lag_ns;
	l->hot_from = u->db->hot_from;
	l->sealed = u->db->store.sealed;
	err = look(u, f);
	if (err == 0 && u->load.ops->moved != NULL)
		u->load.ops->moved(&u->load, &l->sums, l->before);
	free(f);
	return err;
}

static int look_after(struct vb_tbench_run *u)
{
	return look(u, NULL);
}

/* ---- in the parent ---- */

/* In a process of its own.  `early`: the user may end it. */
static int apart(struct vb_tbench_run *u, int (*work)(struct vb_tbench_run *u), bool early)
{
	const struct timespec nap = {.tv_nsec = NAP_NS};
	pid_t parent = getpid(), pid;
	int status, err;

	u->learnt->err = -ECHILD;
	fflush(stdout);
	fflush(stderr);
	pid = fork();
	if (pid < 0)
		return vb_fail(-errno, "cannot fork: %s", strerror(errno));
	if (pid == 0) {
		vb_bench_child(parent);
		err = vb_tbench_elastic_join(u);
		if (err == 0)
			err = work(u);
		vb_tbench_elastic_leave(u);
		u->learnt->err = err;
		_exit(VB_EXIT_OK);
	}
	while (waitpid(pid, &status, WNOHANG) == 0) {
		if (early && vb_interrupted) {
			(void)kill(pid, SIGKILL);
			(void)waitpid(pid, &status, 0);
			return -EINTR;
		}
		nanosleep(&nap, NULL);
	}
	return u->learnt->err;
}

static size_t clocks_bytes(const struct vb_tbench_run *u)
{
	return NODES_MAX * u->plan->served->coordinators * sizeof(*u->clocks);
}

int vb_tbench_elastic_begin(struct vb_tbench_run *u)
{
	struct vb_tbench_plan *plan = u->plan;
	struct vb_tbench_learnt *l = vb_bench_share(sizeof(*l));
	int err = 0;

	u->learnt = l;
	if (l == NULL)
		return vb_fail(-ENOMEM, "no memory to share with a process");
	/* How many nodes there are is not known yet; what is not used takes no memory. */
	u->clocks = mmap(NULL, clocks_bytes(u), PROT_READ | PROT_WRITE,
			 MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (u->clocks == MAP_FAILED) {
		u->clocks = NULL;
		return vb_fail(-ENOMEM, "no memory to share with a process");
	}
	if (plan->o.check)
		err = vb_history_open(plan->o.history_bytes, &u->before);
	if (err == 0)
		err = apart(u, look_before, true);
	if (err == 0)
		err = vb_load_init(&u->load, plan->load, plan->load_options, (uint16_t)l->nodes,
				   VB_SERVE_SEED);
	if (err != 0)
		return err;
	u->load.drawn_by = plan->o.seed;
	plan->o.nodes = l->nodes;
	u->r->records = plan->load->records(&u->load);
	u->r->lease_ns = l->lease_ns;
	u->r->wait_ns = l->wait_ns;
	u->r->snapshot_lag_ns = l->snapshot_lag_ns;
	u->r->hot_from = l->hot_from;
	u->r->sealed = l->sealed;
	u->run.stall_ns = plan->o.stall_ns;
	u->run.close_ns = CLOSE_NS + 4 * l->lease_ns;
	return 0;
}

bool vb_tbench_elastic_judge(struct vb_tbench_run *u)
{
	struct vb_tbench_result *r = u->r;
	bool read = apart(u, look_after, false) == 0;

	if (!read)
		r->unjudged = "the servers' tables could not be read at the end";
	else if (u->learnt->others)
		r->unjudged = "others have had coordinators open at the database";
	else if (r->end.deaths != 0)
		r->unjudged = "a process of clients was killed: what became of its last commits is "
			      "known at their homes only";
	for (unsigned i = 0; i < VB_LOAD_CHANGES_MAX; i++)
		r->tally->change[i] += u->learnt->before[i];
	if (r->unjudged == NULL)
		vb_tbench_judge_sums(r, &u->load, &u->learnt->sums);
	return read && !u->learnt->others;
}

void vb_tbench_elastic_end(struct vb_tbench_run *u)
{
	vb_history_close(u->before);
	vb_bench_unshare(u->learnt, sizeof(*u->learnt));
	if (u->clocks != NULL)
		(void)munmap(u->clocks, clocks_bytes(u));
	u->clocks = NULL;
	u->before = NULL;
	u->learnt = NULL;
}
