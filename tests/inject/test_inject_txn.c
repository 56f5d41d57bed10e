/* SPDX-License-Identifier: Apache-2.0 */
/* Transactions while calls fail; see sweep.h. */
#include <verbena/txn.h>

#include "sweep.h"
#include "txn/protocol.h"

#define KEYS     8
#define ACCOUNTS 2
#define BYTES    200
#define TRIES    50
#define LEASE_NS 20000000ull

/* Carries on only while nothing has failed. */
#define STEP(call)                                                                                 \
	do {                                                                                       \
		if (err == 0)                                                                      \
			err = (call);                                                              \
	} while (0)

struct record {
	uint64_t value;
};

struct world {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_values *v;
	struct vb_db_server *server[2];
	struct vb_coordinator *a, *b;
};

static int open_world(struct world *w, const char *fabric, const char *cc, const char *hybrid)
{
	int err = vb_fabric_open(
		&(struct vb_fabric_params){
			.fabric = fabric, .nodes = 2, .node_bytes = 4 << 20, .endpoints = 32},
		&w->f);

	STEP(vb_db_open(w->f,
			&(struct vb_db_params){.cc = cc,
					       .hybrid = hybrid,
					       .coordinators = 4,
					       .items_max = 32,
					       .record_bytes_max = 64,
					       .bytes_max = 2048,
					       .lease_ns = LEASE_NS,
					       .cache_entries = 16},
			&w->db));
	STEP(vb_table_open(
		w->db,
		&(struct vb_table_params){.name = "t", .record_bytes = 8, .records = 4 * KEYS},
		&w->t));
	STEP(vb_values_open(w->db,
			    &(struct vb_values_params){.name = "text",
						       .bytes_max = BYTES,
						       .inline_bytes = 24,
						       .piece_bytes = 40,
						       .records = 8},
			    &w->v));
	for (uint64_t key = 0; key < ACCOUNTS; key++)
		STEP(vb_table_load(w->t, key, &(struct record){100}));
	STEP(vb_db_server_start(w->db, 0, &w->server[0]));
	if (strcmp(fabric, "sim") == 0)
		STEP(vb_db_server_start(w->db, 1, &w->server[1]));
	else
		STEP(vb_db_server_thread_start(w->db, 1, &w->server[1]));
	STEP(vb_coordinator_open(w->db, 0, &w->a));
	STEP(vb_coordinator_open(w->db, 1, &w->b));
	return err;
}

static void close_world(struct world *w)
{
	vb_coordinator_close(w->a);
	vb_coordinator_close(w->b);
	for (unsigned i = 0; i < 2; i++)
		vb_db_server_stop(w->server[i]);
	vb_values_close(w->v);
	promise(vb_db_close(w->db) == 0);
	promise(vb_fabric_close(w->f) == 0);
}

/* ---- bodies ---- */

static int move(struct vb_coordinator *me, void *arg)
{
	struct world *w = arg;
	struct record *from, *to;
	int err = vb_txn_update(me, w->t, 0, (void **)&from);

	STEP(vb_txn_update(me, w->t, 1, (void **)&to));
	if (err == 0) {
		from->value--;
		to->value++;
	}
	return err;
}

/* The key is new; one in between is only looked for. */
static int insert(struct vb_coordinator *me, void *arg)
{
	struct world *w = arg;
	struct record r = {1};
	int err = vb_txn_insert(me, w->t, 5, &r), other;

	if (err != 0)
		return err;
	other = vb_txn_read(me, w->t, 6, &r);
	if (other != -ENOENT)
		return other != 0 ? other : -EEXIST;
	return vb_txn_delete(me, w->t, 5);
}

static int put(struct vb_coordinator *me, void *arg)
{
	struct world *w = arg;
	unsigned char value[BYTES];

	memset(value, 7, sizeof(value));
	return vb_values_put(me, w->v, 3, value, sizeof(value));
}

static int get(struct vb_coordinator *me, void *arg)
{
	struct world *w = arg;
	unsigned char value[BYTES] = {0};
	uint32_t bytes = 0;
	int err = vb_values_get(me, w->v, 3, value, sizeof(value), &bytes);

	if (err == 0)
		promise(bytes == BYTES && value[0] == 7 && value[BYTES - 1] == 7);
	return err;
}

struct sum {
	struct world *w;
	uint64_t money, moved;
};

static int add_up(struct vb_coordinator *me, void *arg)
{
	struct sum *s = arg;
	const struct record *r;
	int err = 0;

	s->money = 0;
	for (uint64_t key = 0; key < ACCOUNTS; key++) {
		err = vb_txn_get(me, s->w->t, key, (const void **)&r);
		if (err != 0)
			return err;
		s->money += r->value;
		s->moved = r->value - 100;
	}
	return err;
}

static int transactions(struct world *w)
{
	struct sum sum = {.w = w};
	uint64_t freed;
	int err = 0, moved;

	moved = vb_txn_run(w->a, move, w, TRIES);
	err = moved;
	STEP(vb_txn_run(w->b, insert, w, TRIES));
	STEP(vb_txn_run(w->a, put, w, TRIES));
	STEP(vb_txn_run(w->b, get, w, TRIES));
	STEP(vb_db_recover(w->a, 1, &freed));
	/* Whatever was in the way: what was said to be committed is, and only that, and all of it. */
	if (vb_txn_run(w->b, add_up, &sum, TRIES) == 0) {
		promise(sum.money == 100 * ACCOUNTS);
		if (moved == 0)
			promise(sum.moved == 1);
		else if (moved != -VB_EUNKNOWN)
			promise(sum.moved == 0);
	}
	return err;
}

static int txns(const char *fabric, const char *cc, const char *hybrid)
{
	struct world w = {0};
	int err = open_world(&w, fabric, cc, hybrid);

	if (err == 0)
		err = transactions(&w);
	close_world(&w);
	return err;
}

static int sim(const char *cc)
{
	return txns("sim", cc, NULL);
}

static int sim_rpc(const char *cc)
{
	return txns("sim", cc, "rpc");
}

static int shm(const char *cc)
{
	return txns("shm", cc, NULL);
}

static int shm_rpc(const char *cc)
{
	return txns("shm", cc, "rpc");
}

/* A coordinator's place is there again, however far its opening came. */
static int one_place(const char *fabric)
{
	struct vb_fabric *f = NULL;
	struct vb_db *db = NULL;
	int err = vb_fabric_open(
		&(struct vb_fabric_params){.fabric = fabric, .node_bytes = 4 << 20, .endpoints = 8},
		&f);

	STEP(vb_db_open(f, &(struct vb_db_params){.cc = "no-wait", .coordinators = 1}, &db));
	for (unsigned i = 0; i < 3 && db != NULL; i++) {
		struct vb_coordinator *me = NULL;
		int now = vb_coordinator_open(db, 0, &me);

		promise(now != -ENOSPC);
		vb_coordinator_close(me);
		err = err != 0 ? err : now;
	}
	promise(vb_db_close(db) == 0);
	promise(vb_fabric_close(f) == 0);
	return err;
}

int main(int argc, char **argv)
{
	static const struct {
		const char *name;
		int (*run)(const char *);
	} ways[] = {{"sim", sim}, {"shm", shm}, {"sim, by RPC", sim_rpc}, {"shm, by RPC", shm_rpc}};
	static struct scenario s[128] = {{"a place on sim", one_place, "sim"},
					 {"a place on shm", one_place, "shm"}};
	static char names[128][48];
	size_t n = 2;

	for (const struct vb_cc_ops *const *c = vb_ccs; *c != NULL; c++)
		for (unsigned i = 0; i < (vb_cc_takes(*c, "rpc") ? 4 : 2); i++) {
			snprintf(names[n], sizeof(names[n]), "%s on %s", (*c)->name, ways[i].name);
			s[n] = (struct scenario){names[n], ways[i].run, (*c)->name};
			n++;
		}
	return sweep_all(s, n, argc > 1 ? argv[1] : NULL);
}
