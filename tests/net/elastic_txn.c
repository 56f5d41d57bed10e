/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of an elastic cluster's clients: they come, commit and go; are killed at any verb, and what they held is
 * free and what they had committed is done within a bound; their places are others' then.  The accounts' sum is kept,
 * also while servers with a state begin again.
 */

#include "elastic_state.h"
#include "txn/db.h"

#define ACCOUNTS 8u
#define MONEY    100u
#define PATIENT  ",bound=100ms,linger=200ms"

static const char *protocol;
static uint32_t coordinators = 4; /* on each node */

static struct vb_db_params bank(void)
{
	return (struct vb_db_params){.name = "bank",
				     .cc = protocol,
				     .coordinators = coordinators,
				     .items_max = ACCOUNTS,
				     .bytes_max = 512,
				     .record_bytes_max = 64};
}

static const struct vb_table_params accounts = {
	.name = "accounts", .record_bytes = 8, .records = ACCOUNTS, .partition = VB_PARTITION_MOD};

/* The others may not be there yet. */
static void serve_bank(struct world *w, struct vb_fabric *f)
{
	const struct vb_db_params p = bank();
	const uint16_t node = (uint16_t)net_of(f)->host;
	const uint64_t money = MONEY;
	struct vb_db_server *server;
	struct vb_table *t;
	struct vb_db *db;
	int err;

	while ((err = vb_db_open(f, &p, &db)) == -VB_EPEERGONE)
		usleep(10000);
	MUST_BE(0, err);
	while ((err = vb_table_open(db, &accounts, &t)) == -VB_EPEERGONE)
		usleep(10000);
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
	uint64_t from, to, sum;
};

static int open_bank(struct world *w, struct teller *c)
{
	const struct vb_db_params p = bank();
	int err = open_client_as(w, w->key, ",retry=20ms", &c->f);

	MUST_BE(0, err);
	err = vb_db_open(c->f, &p, &c->db);
	return err == 0 ? vb_table_open(c->db, &accounts, &c->t) : err;
}

/* Who has been killed keeps his places for `linger`. */
static void come(struct world *w, struct teller *c, uint16_t node)
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	int err;

	MUST_BE(0, open_bank(w, c));
	while ((err = vb_coordinator_open(c->db, node, &c->me)) != 0) {
		MUST(err == -ENOSPC || err == -VB_EUNKNOWN || err == -VB_EPEERGONE);
		MUST(vb_clock_gettime_ns() < end);
		usleep(10000);
	}
}

static void leave(struct teller *c)
{
	vb_coordinator_close(c->me);
	MUST_BE(0, vb_db_close(c->db));
	MUST_BE(0, vb_fabric_close(c->f));
}

static int transfer(struct vb_coordinator *me, void *arg)
{
	struct teller *c = arg;
	uint64_t *from, *to;
	int err = vb_txn_update(me, c->t, c->from, (void **)&from);

	if (err == 0)
		err = vb_txn_update(me, c->t, c->to, (void **)&to);
	if (err != 0)
		return err;
	*from -= 1;
	*to += 1;
	return 0;
}

static int audit(struct vb_coordinator *me, void *arg)
{
	struct teller *c = arg;
	int err = 0;

	c->sum = 0;
	for (uint64_t key = 0; key < ACCOUNTS && err == 0; key++) {
		uint64_t money;

		err = vb_txn_read(me, c->t, key, &money);
		c->sum += err == 0 ? money : 0;
	}
	return err;
}

/* Through lost answers and links that are made anew. */
static void run(struct teller *c, int (*body)(struct vb_coordinator *me, void *arg))
{
	uint64_t end = vb_clock_gettime_ns() + WAIT_NS;
	int err;

	while ((err = vb_txn_run(c->me, body, c, 0)) != 0) {
		MUST(err == -VB_EPEERGONE || err == -VB_EUNKNOWN || err == -ETIMEDOUT ||
		     err == -EAGAIN);
		MUST(vb_clock_gettime_ns() < end);
		(void)vb_ep_sleep(c->me->ep, MS);
	}
}

static void check_sum(struct teller *c)
{
	run(c, audit);
	MUST(c->sum == ACCOUNTS * MONEY);
}

static void transfer_some(struct teller *c, unsigned n)
{
	uint64_t x = (uint64_t)getpid();

	for (unsigned i = 0; i < n; i++) {
		x = x * 6364136223846793005ull + 1442695040888963407ull;
		c->from = (x >> 33) % ACCOUNTS;
		c->to = (c->from + 1 + (x >> 50) % (ACCOUNTS - 1)) % ACCOUNTS;
		run(c, transfer);
	}
}

/* ---- come, commit, go ---- */

static void visits(struct world *w)
{
	struct teller c = {0};

	come(w, &c, (uint16_t)((unsigned)getpid() % w->servers));
	transfer_some(&c, 20);
	check_sum(&c);
	leave(&c);
}

static void visitors(const char *cc)
{
	struct world w;
	pid_t pid[4];

	protocol = cc;
	coordinators = 4;
	world_open(&w, 2, PATIENT);
	servers_start(&w, serve_bank);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(pid); i++)
		pid[i] = client(&w, visits);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(pid); i++)
		ended(pid[i]);
	await(get(&w.b->server[0].members) == 0 && get(&w.b->server[1].members) == 0);
	world_close(&w);
}

static void test_visitors(void **state)
{
	static const char *const cc[] = {
		"no-wait", "silo",     "drtm-h", "wound-wait-sx", "bounded-wait-sx",
		"votes",   "dslr-2pl", "mocc",   "sundial",       "maat",
		"mvcc",    "cicada",   "to",     "to-cascade"};

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(cc); i++)
		visitors(cc[i]);
}

/* What is not there, or is something else, or is not for clients. */
static void asks_for_others(struct world *w)
{
	struct vb_db_params p = bank();
	struct vb_table_params other = accounts;
	struct vb_coordinator *me;
	struct teller c = {0};
	uint64_t money = 1;
	struct vb_db *db;

	MUST_BE(0, open_bank(w, &c));
	MUST_BE(-EINVAL, vb_coordinator_open(c.db, 1, &me));
	MUST_BE(-EXDEV, vb_table_load(c.t, 0, &money));
	p.items_max++;
	MUST_BE(-EINVAL, vb_db_open(c.f, &p, &db));
	p = bank();
	p.cc = "calvin";
	MUST_BE(-EOPNOTSUPP, vb_db_open(c.f, &p, &db));
	p = bank();
	p.name = "another";
	MUST_BE(-ENOENT, vb_db_open(c.f, &p, &db));
	other.name = "another";
	MUST_BE(-ENOENT, vb_table_open(c.db, &other, &c.t));
	MUST_BE(0, vb_db_close(c.db));
	MUST_BE(0, vb_fabric_close(c.f));
}

static void test_refused(void **state)
{
	struct world w;

	(void)state;
	protocol = "silo";
	coordinators = 4;
	world_open(&w, 1, PATIENT);
	servers_start(&w, serve_bank);
	ended(client(&w, asks_for_others));
	world_close(&w);
}

/* ---- killed between any two verbs ---- */

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	unsigned left;
	bool after;
} fuse;

static int fused_post(struct vb_ep *ep, struct vb_batch *batch)
{
	bool end = --fuse.left == 0;
	int rc;

	if (end && !fuse.after)
		(void)kill(getpid(), SIGKILL);
	rc = fuse.real->post(ep, batch);
	if (end)
		(void)kill(getpid(), SIGKILL);
	return rc;
}

static void doomed(struct world *w, unsigned verbs, bool after)
{
	struct teller c = {.to = 1};

	come(w, &c, 0);
	fuse.real = c.me->ep->ops;
	fuse.ops = *c.me->ep->ops;
	fuse.ops.post = fused_post;
	fuse.left = verbs;
	fuse.after = after;
	c.me->ep->ops = &fuse.ops;
	/* Within one transaction: it is killed before its second has begun, or goes. */
	run(&c, transfer);
	c.me->ep->ops = fuse.real;
	leave(&c);
	_exit(0);
}

/* True: it was killed; its places are the next one's, for there are two on the node, and the watcher has one. */
static bool dies_at(struct world *w, unsigned verbs, bool after)
{
	pid_t pid = child();
	int status = 0;

	if (pid == 0)
		doomed(w, verbs, after);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!WIFSIGNALED(status))
		assert_int_equal(status, 0);
	else
		assert_int_equal(WTERMSIG(status), SIGKILL);
	return WIFSIGNALED(status);
}

/* Sees all that was committed, and waits for nobody for longer than two leases and some for each record. */
static void watcher(struct world *w)
{
	struct teller c = {.from = 1};
	uint32_t seen = 0, step;

	come(w, &c, 0);
	set(&w->b->step[1], 1);
	while ((step = get(&w->b->step[0])) != UINT32_MAX) {
		if (step == seen) {
			MUST_BE(0, vb_ep_sleep(c.me->ep, MS));
			continue;
		}
		seen = step;
		check_sum(&c);
		run(&c, transfer); /* what the dead one may hold */
		set(&w->b->step[1], seen + 1);
	}
	leave(&c);
}

/* before: before each verb, and behind it; else the one and the other in turn. */
static void killed(const char *cc, bool before)
{
	struct world w;
	unsigned kills = 0;
	bool died = true;
	pid_t pid;

	protocol = cc;
	coordinators = 2;
	world_open(&w, 2, PATIENT);
	servers_start(&w, serve_bank);
	pid = client(&w, watcher);
	await(get(&w.b->step[1]) == 1);
	for (unsigned verbs = 1; died; verbs++)
		for (unsigned after = before ? 0 : verbs % 2; after < 2; after += before ? 1 : 2) {
			died = dies_at(&w, verbs, after != 0);
			kills += died;
			add(&w.b->step[0]);
			await(get(&w.b->step[1]) == get(&w.b->step[0]) + 1);
		}
	assert_true(kills >= 6);
	print_message("%s: killed at %u moments\n", cc, kills);
	set(&w.b->step[0], UINT32_MAX);
	ended(pid);
	world_close(&w);
}

static void test_killed(void **state)
{
	(void)state;
	killed("no-wait", true);
	killed("silo", true);
	killed("drtm-h", false);
}

/* ---- fifty ---- */

#define AT_ONCE   5u
#define LIVES     50u
#define KEPT_MORE 16384u /* malloc's own, per thread; a client takes more while it is there */

static void all_at_once(struct world *w)
{
	struct vb_coordinator *me[3];
	struct teller c = {0};
	uint64_t freed;

	come(w, &c, 0);
	/* What a client has not taken over a sweep gives up, one of a client's, too. */
	MUST_BE(0, vb_db_recover(c.me, 0, &freed));
	for (uint32_t i = 0; i < coordinators; i++) {
		vb_addr owner = vb_db_place(c.db, i * VB_PLACES_EACH) +
				offsetof(struct vb_place_head, owner);
		uint64_t who;

		MUST_BE(0, vb_read64(c.me->ep, owner, &who));
		MUST(who == (i == c.me->number ? c.me->ep->self : 0));
	}
	for (unsigned i = 0; i < VB_ARRAY_SIZE(me); i++)
		MUST_BE(0, vb_coordinator_open(c.db, 0, &me[i]));
	check_sum(&c);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(me); i++)
		vb_coordinator_close(me[i]);
	leave(&c);
}

/* Of five two go, two are killed while they run, and one where it has not begun. */
static void live(struct world *w, unsigned i)
{
	struct teller c = {0};

	come(w, &c, 0);
	if (i % AT_ONCE >= 2)
		add(&w->b->step[0]);
	if (i % AT_ONCE == 4)
		pause();
	transfer_some(&c, i % AT_ONCE >= 2 ? 1000000 : 5);
	leave(&c);
	_exit(0);
}

static void test_fifty(void **state)
{
	struct world w;
	uint64_t before = 0;

	(void)state;
	protocol = "silo";
	coordinators = AT_ONCE;
	world_open(&w, 1, PATIENT ",helper=0");
	servers_start(&w, serve_bank);
	for (unsigned i = 0; i < LIVES; i += AT_ONCE) {
		pid_t pid[AT_ONCE];

		set(&w.b->step[0], 0);
		for (unsigned j = 0; j < AT_ONCE; j++) {
			pid[j] = child();
			if (pid[j] == 0)
				live(&w, i + j);
		}
		await(get(&w.b->step[0]) == 3);
		for (unsigned j = 2; j < AT_ONCE; j++)
			(void)kill(pid[j], SIGKILL);
		for (unsigned j = 0; j < AT_ONCE; j++)
			if (j < 2)
				ended(pid[j]);
			else
				assert_int_equal(waitpid(pid[j], NULL, 0), pid[j]);
		await(get(&w.b->server[0].members) == 0 && get(&w.b->server[0].open) == 0);
		look_again(&w, 0);
		if (i == AT_ONCE)
			before = w.b->server[0].kept;
	}
	print_message("after %u and %u clients: %llu and %llu bytes\n", 2 * AT_ONCE, LIVES,
		      (unsigned long long)before, (unsigned long long)w.b->server[0].kept);
	/* Of a malloc that does not count, less than nothing. */
	assert_true((int64_t)(w.b->server[0].kept - before) <= (int64_t)KEPT_MORE);
	/* None of the places is lost. */
	ended(client(&w, all_at_once));
	world_close(&w);
}

/* ---- servers with a state begin again ---- */

#define ENDS 4u

static void loads(struct world *w)
{
	struct teller c = {0};

	come(w, &c, (uint16_t)((unsigned)getpid() % w->servers));
	while (!get(&w->b->step[0])) {
		transfer_some(&c, 1);
		add(&w->b->word[0]);
	}
	check_sum(&c);
	leave(&c);
}

static void test_restarts(void **state)
{
	struct world w;
	pid_t pid[3];

	(void)state;
	protocol = "silo";
	coordinators = 4;
	state_open_of(&w, 2, ",bound=500ms,linger=20s");
	servers_start(&w, serve_bank);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(pid); i++)
		pid[i] = client(&w, loads);
	for (unsigned i = 0; i <= ENDS; i++) {
		uint64_t before = get(&w.b->word[0]);

		await(get(&w.b->word[0]) > before + 20);
		if (i == ENDS)
			break;
		server_kill(&w, i % w.servers);
		server_start(&w, i % w.servers, serve_bank);
		await(get(&w.b->server[i % w.servers].up));
	}
	set(&w.b->step[0], 1);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(pid); i++)
		ended(pid[i]);
	state_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_visitors), cmocka_unit_test(test_refused),
		cmocka_unit_test(test_killed),   cmocka_unit_test(test_fifty),
		cmocka_unit_test(test_restarts),
	};

	vb_clock_init();
	/* Places that are still a dead one's are asked for again and again. */
	if (vb_log_levels("off") != 0)
		return 1;
	return cmocka_run_group_tests(tests, NULL, NULL);
}
