/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database of which one server has come back empty, or with a state that is not its own, is refused: by that server,
 * by who comes new, and to coordinators that were open when it happened.  One whose servers come back with their states
 * is as it was, and one that all servers have made anew is another.
 */
#include "elastic_state.h"
#include "txn/db.h"

#define ACCOUNTS 8u
#define MONEY    100u
#define PATIENT  ",bound=100ms,settle=1ms,linger=300ms"

static const char *hybrid;
static bool lazy; /* a server that begins again serves no database */

static const struct vb_table_params accounts = {
	.name = "accounts", .record_bytes = 8, .records = ACCOUNTS, .partition = VB_PARTITION_MOD};

static int open_bank(struct vb_fabric *f, struct vb_db **db, struct vb_table **t)
{
	const struct vb_db_params p = {.name = "bank",
				       .cc = "silo",
				       .hybrid = hybrid,
				       .coordinators = 4,
				       .items_max = ACCOUNTS,
				       .bytes_max = 512,
				       .record_bytes_max = 64};
	int err = vb_db_open(f, &p, db);

	return err == 0 ? vb_table_open(*db, &accounts, t) : err;
}

/* With a word of its own that says which server it is, and what to do. */
static void names(const char *said, unsigned server)
{
	char name[40];

	snprintf(name, sizeof(name), "server %u (node %u)", server + 1, server);
	if (strstr(said, name) == NULL || strstr(said, "load it anew") == NULL ||
	    strstr(said, "option state") == NULL) {
		fprintf(stderr, "names not '%s': %s\n", name, said);
		_exit(1);
	}
}

/* word[node]: what opening it came to; word[4]: which server it is not whole by, from 1 on. */
static void serve_bank(struct world *w, struct vb_fabric *f)
{
	const uint16_t node = (uint16_t)net_of(f)->host;
	const uint64_t money = MONEY;
	struct vb_db_server *server;
	char said[1024] = "";
	struct vb_table *t;
	struct vb_db *db;
	int err;

	if (lazy && get(&w->b->step[0]))
		return;
	do {
		vb_log_capture_begin(said, sizeof(said));
		err = open_bank(f, &db, &t);
		vb_log_capture_end();
	} while (err == -VB_EPEERGONE && usleep(10000) == 0);
	set(&w->b->word[node], (uint64_t)-err);
	if (err == -ESTALE) {
		names(said, (unsigned)get(&w->b->word[4]) - 1);
		return;
	}
	MUST_BE(0, err);
	for (uint64_t key = node; key < ACCOUNTS; key += w->servers) {
		err = vb_table_load(t, key, &money);
		MUST(err == 0 || err == -EEXIST);
	}
	MUST_BE(0, vb_db_server_start(db, node, &server));
}

struct teller {
	struct vb_fabric *f;
	struct vb_db *db;
	struct vb_table *t;
	struct vb_coordinator *me;
};

static void come(struct world *w, struct teller *c, uint16_t node)
{
	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &c->f));
	MUST_BE(0, open_bank(c->f, &c->db, &c->t));
	MUST_BE(0, vb_coordinator_open(c->db, node, &c->me));
}

static void leave(struct teller *c)
{
	vb_coordinator_close(c->me);
	MUST_BE(0, vb_db_close(c->db));
	MUST_BE(0, vb_fabric_close(c->f));
}

static int add_one(struct teller *c, uint64_t key)
{
	uint64_t *money;
	int err = vb_txn_begin(c->me);

	if (err == 0)
		err = vb_txn_update(c->me, c->t, key, (void **)&money);
	if (err != 0) {
		vb_txn_abort(c->me);
		return err;
	}
	*money += 1;
	return vb_txn_commit(c->me);
}

/* Through answers that are late. */
static void adds(struct teller *c, uint64_t key)
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	int err;

	while ((err = add_one(c, key)) != 0) {
		MUST(err == -VB_EUNKNOWN || err == -EAGAIN || err == -VB_EPEERGONE);
		MUST(vb_clock_gettime_ns() < end);
		MUST_BE(0, vb_ep_sleep(c->me->ep, MS));
	}
}

static void visit(struct world *w)
{
	struct teller c;

	come(w, &c, 0);
	for (uint64_t key = 0; key < w->servers; key++)
		adds(&c, key);
	leave(&c);
}

static void finds_it_refused(struct world *w)
{
	char said[1024] = "";
	struct vb_fabric *f;
	struct vb_table *t;
	struct vb_db *db;
	int err;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	vb_log_capture_begin(said, sizeof(said));
	err = open_bank(f, &db, &t);
	vb_log_capture_end();
	MUST_BE(-ESTALE, err);
	names(said, (unsigned)get(&w->b->word[4]) - 1);
	MUST_BE(0, vb_fabric_close(f));
}

/* ---- with a coordinator open ---- */

/* Its home stays: what is on the other node is refused, what is on its own goes on. */
static void was_open(struct world *w)
{
	const unsigned goes = (unsigned)get(&w->b->word[4]) - 1;
	const uint16_t stays = (uint16_t)(1 - goes);
	char said[1024] = "", name[40];
	struct vb_coordinator *more;
	struct teller c;
	uint64_t end;
	int err;

	snprintf(name, sizeof(name), "server %u, which has node %u,", goes + 1, goes);
	come(w, &c, stays);
	adds(&c, 0);
	adds(&c, 1);
	add(&w->b->step[0]);
	end = vb_clock_gettime_ns() + WAIT_NS;
	while (!vb_node_gone(c.f, (uint16_t)goes)) {
		MUST(vb_clock_gettime_ns() < end);
		MUST_BE(0, vb_ep_sleep(c.me->ep, MS));
	}
	vb_log_capture_begin(said, sizeof(said));
	err = add_one(&c, goes);
	vb_log_capture_end();
	MUST_BE(-VB_EPEERGONE, err);
	MUST(strstr(said, name) != NULL && strstr(said, "made anew") != NULL);
	adds(&c, stays);
	vb_log_capture_begin(said, sizeof(said));
	err = vb_coordinator_open(c.db, stays, &more);
	vb_log_capture_end();
	MUST_BE(-VB_EPEERGONE, err);
	MUST(strstr(said, name) != NULL && strstr(said, "made anew") != NULL);
	leave(&c);
}

/* Its home is the one that goes. */
static void was_at_home(struct world *w)
{
	const uint16_t goes = (uint16_t)(get(&w->b->word[4]) - 1);
	struct teller c;
	uint64_t end;

	come(w, &c, goes);
	adds(&c, 0);
	adds(&c, 1);
	add(&w->b->step[0]);
	end = vb_clock_gettime_ns() + WAIT_NS;
	while (!vb_node_gone(c.f, goes)) {
		MUST(vb_clock_gettime_ns() < end);
		MUST_BE(0, vb_ep_sleep(c.me->ep, MS));
	}
	MUST_BE(-VB_EPEERGONE, vb_txn_begin(c.me));
}

static void comes_back_empty(unsigned goes, const char *code)
{
	struct world w;
	pid_t pid[2];

	hybrid = code;
	world_open(&w, 2, PATIENT);
	set(&w.b->word[4], goes + 1);
	servers_start(&w, serve_bank);
	pid[0] = client(&w, was_open);
	pid[1] = client(&w, was_at_home);
	await(get(&w.b->step[0]) == 2);
	server_kill(&w, goes);
	server_start(&w, goes, serve_bank);
	await(get(&w.b->server[goes].up));
	assert_int_equal(get(&w.b->word[goes]), ESTALE);
	ended(client(&w, finds_it_refused));
	ended(pid[0]);
	ended(pid[1]);
	/* Both are empty: it is another one, and whole. */
	server_kill(&w, 0);
	server_kill(&w, 1);
	servers_start(&w, serve_bank);
	assert_int_equal(get(&w.b->word[0]) | get(&w.b->word[1]), 0);
	ended(client(&w, visit));
	world_close(&w);
}

static void test_one_sided(void **state)
{
	(void)state;
	comes_back_empty(0, NULL);
	comes_back_empty(1, NULL);
}

static void test_rpc(void **state)
{
	(void)state;
	comes_back_empty(0, "rpc");
	comes_back_empty(1, "rpc");
}

/* A server that makes no part at all: whoever waits for it is told that there was one, also where it is the first. */
static void test_missing(void **state)
{
	struct world w;

	(void)state;
	hybrid = NULL;
	lazy = true;
	for (unsigned goes = 0; goes < 2; goes++) {
		world_open(&w, 2, PATIENT);
		set(&w.b->word[4], goes + 1);
		servers_start(&w, serve_bank);
		add(&w.b->step[0]);
		server_kill(&w, goes);
		server_start(&w, goes, serve_bank);
		await(get(&w.b->server[goes].up));
		ended(client(&w, finds_it_refused));
		world_close(&w);
	}
	lazy = false;
}

/* step[1]: the last server stands still. */
static void finds_it_silent(struct world *w)
{
	char said[1024] = "";
	struct vb_fabric *f;
	struct vb_table *t;
	struct vb_db *db;
	int err;

	MUST_BE(0, open_client_as(w, w->key, ",retry=20ms", &f));
	add(&w->b->step[0]);
	while (get(&w->b->step[1]) == 0)
		usleep(1000);
	vb_log_capture_begin(said, sizeof(said));
	err = open_bank(f, &db, &t);
	vb_log_capture_end();
	if (err != -ETIMEDOUT && err != -VB_EPEERGONE)
		fprintf(stderr, "%d: %s\n", err, said);
	MUST(err == -ETIMEDOUT || err == -VB_EPEERGONE);
	MUST(strstr(said, "load it anew") == NULL);
}

/* One that does not answer has lost nothing: nobody is told to remove its state. */
static void test_silent(void **state)
{
	struct world w;
	pid_t pid;

	(void)state;
	hybrid = NULL;
	world_open(&w, 2, PATIENT);
	servers_start(&w, serve_bank);
	pid = client(&w, finds_it_silent);
	await(get(&w.b->step[0]));
	assert_int_equal(kill(w.pid[1], SIGSTOP), 0);
	set(&w.b->step[1], 1);
	ended(pid);
	assert_int_equal(kill(w.pid[1], SIGCONT), 0);
	world_close(&w);
}

/* ---- with states ---- */

static void path_of(const struct world *w, unsigned i, const char *name, char path[96])
{
	snprintf(path, 96, "%s/s%u/%s", w->dir, i, name);
}

static void states_open(struct world *w)
{
	state_open_of(w, 2, ",bound=500ms,linger=20s,settle=1ms");
}

static void states_close(struct world *w)
{
	static const char *const moved[] = {"old", "older"};
	char path[96];

	for (unsigned i = 0; i < w->servers; i++)
		for (unsigned k = 0; k < VB_ARRAY_SIZE(moved); k++) {
			path_of(w, i, moved[k], path);
			(void)unlink(path);
		}
	state_close(w);
}

static void moves(struct world *w, unsigned i, const char *from, const char *to)
{
	char a[96], b[96];

	path_of(w, i, from, a);
	path_of(w, i, to, b);
	assert_int_equal(rename(a, b), 0);
}

static void restart(struct world *w, unsigned i)
{
	server_start(w, i, serve_bank);
	await(get(&w->b->server[i].up));
}

static void test_states(void **state)
{
	struct world w;

	(void)state;
	hybrid = NULL;
	states_open(&w);
	set(&w.b->word[4], 2);
	servers_start(&w, serve_bank);
	ended(client(&w, visit));
	/* With them all is as it was. */
	for (unsigned i = 0; i < 2; i++) {
		server_kill(&w, i);
		restart(&w, i);
		ended(client(&w, visit));
	}
	server_kill(&w, 0);
	server_kill(&w, 1);
	servers_start(&w, serve_bank);
	ended(client(&w, visit));
	/* One is without. */
	server_kill(&w, 1);
	moves(&w, 1, "state", "old");
	restart(&w, 1);
	assert_int_equal(get(&w.b->word[1]), ESTALE);
	ended(client(&w, finds_it_refused));
	/* All is made anew. */
	server_kill(&w, 0);
	server_kill(&w, 1);
	moves(&w, 0, "state", "old");
	moves(&w, 1, "state", "older");
	servers_start(&w, serve_bank);
	assert_int_equal(get(&w.b->word[0]) | get(&w.b->word[1]), 0);
	ended(client(&w, visit));
	states_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_one_sided), cmocka_unit_test(test_rpc),
		cmocka_unit_test(test_missing),   cmocka_unit_test(test_silent),
		cmocka_unit_test(test_states),
	};

	vb_clock_init();
	/* What is said is looked at. */
	if (vb_log_levels("error") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
