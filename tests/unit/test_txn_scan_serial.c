/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Scans beside inserts and deletes, by brute force: what small histories on few keys have given is compared
 * with every order in which their transactions could have run one after the other.
 *
 * A history is three transactions of some calls each, which begin at drawn moments of simulated time and pause
 * between their calls for drawn times.  What each call of a committed try has answered, and what all keys hold in
 * the end, must be what one of the orders of the committed ones gives.  Each history has keys of its own, that
 * nobody has touched before: some are loaded, some are loaded and deleted again, and some have no tuple.
 *
 * The history checker (check/txn) knows versions and edges, and has to be told which keys a scan has gone
 * through.  This knows neither.  What it finds of itself: what the planted bugs about ranges leave, and the
 * phantoms that levels below serializable allow.
 */
#include "txn_api.h"

#include "base/rng.h"
#include "check/planted/planted.h"

#define KEYS      8u /* of a history, in ranges of four */
#define CLIENTS   3u
#define CALLS     3u
#define HISTORIES 500u
#define SEARCHED  4000u /* histories, in which what is wrong must show */
#define TRIES     40u

enum what { SCAN, INSERT, DELETE };

/* A call, and what the last try was answered. */
struct call {
	enum what what;
	unsigned key, most; /* the key, or both ends of a scan */
	bool down;
	unsigned room;
	uint64_t value, pause_ns;
	int err;
	unsigned n;
	uint64_t row[KEYS][2];
};

struct client {
	struct history *h;
	struct vb_coordinator *me;
	struct vb_rng rng;
	uint64_t begin_ns;
	unsigned calls;
	struct call call[CALLS];
	bool committed, done;
};

/* What the keys hold; 0: nothing. */
struct content {
	uint64_t value[KEYS];
};

struct history {
	struct vb_table *t;
	enum vb_isolation isolation;
	uint64_t first; /* key */
	struct content before, after;
	struct client client[CLIENTS];
};

/* ---- drawing ---- */

static void draw_call(struct vb_rng *r, struct call *c, uint64_t value)
{
	unsigned what = (unsigned)vb_rng_below(r, 10);

	*c = (struct call){
		.what = what < 5   ? SCAN
			: what < 8 ? INSERT
				   : DELETE,
		.key = (unsigned)vb_rng_below(r, KEYS),
		.down = vb_rng_chance(r, 0.5),
		.room = vb_rng_chance(r, 0.3) ? 1 + (unsigned)vb_rng_below(r, 3) : KEYS,
		.value = value,
		.pause_ns = vb_rng_below(r, 3000),
	};
	c->most = c->key + (unsigned)vb_rng_below(r, KEYS - c->key);
}

static void draw(struct history *h, struct vb_rng *r)
{
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct client *c = &h->client[i];

		c->h = h;
		c->rng = *r;
		c->committed = c->done = false;
		c->begin_ns = vb_rng_below(r, 8000);
		c->calls = 2 + (unsigned)vb_rng_below(r, CALLS - 1);
		for (unsigned k = 0; k < c->calls; k++)
			draw_call(r, &c->call[k], 10 * (i + 1) + k);
	}
}

/* ---- running ---- */

static int scan_keys(struct history *h, struct vb_coordinator *me, struct call *c)
{
	const struct vb_txn_range range = {h->first + c->key, h->first + c->most, c->down};
	struct vb_txn_row row[KEYS];
	int err = vb_txn_scan(me, h->t, &range, row, c->room, &c->n);

	for (unsigned i = 0; err == 0 && i < c->n; i++) {
		c->row[i][0] = row[i].key - h->first;
		c->row[i][1] = ((const struct record *)row[i].record)->value;
	}
	return err;
}

/* 0, with what there is to know in the call; else the try is over. */
static int do_call(struct history *h, struct vb_coordinator *me, struct call *c)
{
	int err;

	switch (c->what) {
	case SCAN:
		err = scan_keys(h, me, c);
		break;
	case INSERT:
		err = vb_txn_insert(me, h->t, h->first + c->key,
				    &(struct record){.value = c->value});
		break;
	default:
		err = vb_txn_delete(me, h->t, h->first + c->key);
		break;
	}
	c->err = err;
	return err == -EEXIST || err == -ENOENT ? 0 : err;
}

static int try_once(struct client *c)
{
	const struct vb_txn_params params = {.isolation = c->h->isolation};
	int err = vb_txn_begin_with(c->me, &params);

	for (unsigned k = 0; k < c->calls && err == 0; k++) {
		err = do_call(c->h, c->me, &c->call[k]);
		if (err == 0)
			must(vb_ep_sleep(c->me->ep, c->call[k].pause_ns));
	}
	return err ? err : vb_txn_commit(c->me);
}

static void run_client(void *arg)
{
	struct client *c = arg;
	int err = -EAGAIN;

	must(vb_ep_sleep(c->me->ep, c->begin_ns));
	for (unsigned i = 1; i <= TRIES && err == -EAGAIN; i++) {
		err = try_once(c);
		if (err == -EAGAIN)
			must(vb_ep_sleep(c->me->ep, vb_rng_below(&c->rng, 1000 * i)));
	}
	assert_true(err == 0 || err == -EAGAIN);
	c->committed = err == 0;
	c->done = true;
}

static int remove_some(struct vb_coordinator *me, struct history *h, const bool *gone)
{
	int err = 0;

	for (unsigned k = 0; k < KEYS && err == 0; k++)
		if (gone[k])
			err = vb_txn_delete(me, h->t, h->first + k);
	return err;
}

static void load_some(struct vb_coordinator *me, struct history *h, struct vb_rng *r)
{
	bool gone[KEYS];

	for (unsigned k = 0; k < KEYS; k++) {
		bool there = vb_rng_chance(r, 0.4);

		gone[k] = there && vb_rng_chance(r, 0.3);
		h->before.value[k] = there && !gone[k] ? 1 + k : 0;
		if (there)
			must(vb_table_load(h->t, h->first + k, &(struct record){.value = 1 + k}));
	}
	alone(me, remove_some(me, h, gone));
}

static int look(struct vb_coordinator *me, struct history *h)
{
	for (unsigned k = 0; k < KEYS; k++) {
		struct record r = {0};
		int err = vb_txn_read(me, h->t, h->first + k, &r);

		if (err != 0 && err != -ENOENT)
			return err;
		h->after.value[k] = err == 0 ? r.value : 0;
	}
	return 0;
}

static void run_history(struct vb_coordinator *me, struct history *h)
{
	for (unsigned i = 0; i < CLIENTS; i++)
		must(vb_task_spawn(me->ep->sched, run_client, &h->client[i], NULL, NULL));
	for (unsigned i = 0; i < CLIENTS; i++)
		while (!h->client[i].done)
			must(vb_ep_sleep(me->ep, 1000));
	alone(me, look(me, h));
}

/* ---- judging ---- */

static bool scan_fits(const struct content *now, const struct call *c)
{
	unsigned n = 0;

	for (unsigned i = 0; i <= c->most - c->key && n < c->room; i++) {
		unsigned k = c->down ? c->most - i : c->key + i;

		if (now->value[k] == 0)
			continue;
		if (n == c->n || c->row[n][0] != k || c->row[n][1] != now->value[k])
			return false;
		n++;
	}
	return n == c->n;
}

/* Is this what the transaction was answered, if it ran now, alone? */
static bool fits(struct content *now, const struct client *c)
{
	for (unsigned i = 0; i < c->calls; i++) {
		const struct call *call = &c->call[i];
		uint64_t *value = &now->value[call->key];

		switch (call->what) {
		case SCAN:
			if (!scan_fits(now, call))
				return false;
			break;
		case INSERT:
			if (call->err != (*value != 0 ? -EEXIST : 0))
				return false;
			*value = *value != 0 ? *value : call->value;
			break;
		default:
			if (call->err != (*value != 0 ? 0 : -ENOENT))
				return false;
			*value = 0;
			break;
		}
	}
	return true;
}

/* How many orders of those that are left fit; *orders: of how many. */
static unsigned count_orders(const struct history *h, struct content now, unsigned left,
			     unsigned *orders)
{
	unsigned n = 0;

	if (left == 0) {
		++*orders;
		return memcmp(&now, &h->after, sizeof(now)) == 0;
	}
	for (unsigned i = 0; i < CLIENTS; i++) {
		struct content then = now;

		if (!(left & 1u << i))
			continue;
		if (fits(&then, &h->client[i]))
			n += count_orders(h, then, left & ~(1u << i), orders);
		else
			++*orders;
	}
	return n;
}

static void tell(const struct history *h)
{
	static const char *const what[] = {"scan", "insert", "delete"};

	for (unsigned i = 0; i < CLIENTS; i++) {
		const struct client *c = &h->client[i];

		print_message("# client %u %s:", i, c->committed ? "committed" : "gave up");
		for (unsigned k = 0; k < c->calls; k++) {
			const struct call *call = &c->call[k];

			print_message(" %s %u", what[call->what], call->key);
			if (call->what == SCAN)
				print_message("-%u %s gives", call->most,
					      call->down ? "down" : "up");
			for (unsigned r = 0; call->what == SCAN && r < call->n; r++)
				print_message(" %u", (unsigned)call->row[r][0]);
			print_message(" (%d);", call->err);
		}
		print_message("\n");
	}
	for (unsigned k = 0; k < KEYS; k++)
		print_message("# key %u: %u, then %u\n", k, (unsigned)h->before.value[k],
			      (unsigned)h->after.value[k]);
}

/* ---- many ---- */

struct tally {
	unsigned histories, committed, told; /* told: not every order fits */
	unsigned wrong;                      /* none does */
};

static struct vb_table_params keys_of(unsigned histories)
{
	return (struct vb_table_params){
		.name = "line",
		.record_bytes = sizeof(struct record),
		.records = (histories + 2ull) * KEYS,
		.ordered = true,
		.range_shift = 2,
		.ranges = (histories + 2ull) * KEYS >> 2,
	};
}

/* Until one is wrong, or so many. */
static void run_many(const struct kind *k, enum vb_isolation isolation, unsigned most,
		     struct tally *y)
{
	const struct vb_table_params lp = keys_of(most);
	struct vb_db_params p = usual_db(k, LONG_NS);
	struct vb_coordinator *client[CLIENTS];
	static struct history h;
	struct vb_rng rng;
	struct world w = {0};

	p.items_max = 64;
	if (k->ops->caps & VB_CC_BOUNDED)
		p.wait_ns = 100000;
	p.bytes_max = p.items_max * sizeof(struct record);
	open_fabric(&w.f, k->fabric, 16 << 20);
	must(vb_db_open(w.f, &p, &w.db));
	must(vb_table_open(w.db, &lp, &w.t));
	start_servers(&w);
	must(vb_coordinator_open(w.db, 0, &w.a));
	for (uint16_t i = 0; i < CLIENTS; i++)
		must(vb_coordinator_open(w.db, i % NODES, &client[i]));
	vb_rng_seed(&rng, 15, 1);
	for (*y = (struct tally){0}; y->histories < most && y->wrong == 0; y->histories++) {
		unsigned orders = 0, fit, left = 0;

		h = (struct history){
			.t = w.t, .isolation = isolation, .first = (uint64_t)y->histories * KEYS};
		load_some(w.a, &h, &rng);
		draw(&h, &rng);
		for (unsigned i = 0; i < CLIENTS; i++)
			h.client[i].me = client[i];
		run_history(w.a, &h);
		for (unsigned i = 0; i < CLIENTS; i++) {
			left |= h.client[i].committed ? 1u << i : 0;
			y->committed += h.client[i].committed;
		}
		fit = count_orders(&h, h.before, left, &orders);
		y->told += fit < orders;
		y->wrong += fit == 0;
		if (fit == 0)
			tell(&h);
	}
	for (unsigned i = 0; i < CLIENTS; i++)
		vb_coordinator_close(client[i]);
	close_world(&w);
}

static void one_after_the_other(void **state)
{
	struct tally y;

	run_many(*state, VB_SERIALIZABLE, HISTORIES, &y);
	assert_int_equal(y.wrong, 0);
	/* Nearly all commit, and most of what they were answered tells one order from another. */
	assert_true(y.committed >= 9 * CLIENTS * HISTORIES / 10);
	assert_true(y.told >= HISTORIES / 3);
}

/* ---- what must be found ---- */

static void must_be_found(const char *cc, enum vb_isolation isolation)
{
	const struct kind k = {.ops = vb_cc_find(cc), .fabric = "sim"};
	struct tally y;

	assert_non_null(k.ops);
	run_many(&k, isolation, SEARCHED, &y);
	print_message("# %s: history %u\n", cc, y.histories);
	assert_int_equal(y.wrong, 1);
}

static void planted_ranges(void **state)
{
	(void)state;
	vb_cc_register(vb_planted_ccs);
	must_be_found("planted:range-unread", VB_SERIALIZABLE);
	must_be_found("planted:range-unwritten", VB_SERIALIZABLE);
}

/* Their scans lock no range beyond the call. */
static void phantoms_that_are_allowed(void **state)
{
	(void)state;
	must_be_found("no-wait-sx", VB_REPEATABLE_READ);
	must_be_found("wait-die-sx", VB_READ_COMMITTED);
	must_be_found("mvcc", VB_SNAPSHOT);
}

int main(int argc, char **argv)
{
	static const char *const fabrics[] = {"sim", NULL};
	static const struct case_for_all cases[] = {{"one after the other", one_after_the_other}};
	static struct CMUnitTest tests[TESTS_MAX];
	size_t n = tests_for_all(argc, argv, fabrics, cases, VB_ARRAY_SIZE(cases), tests);

	if (argc <= 1) {
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(planted_ranges);
		tests[n++] = (struct CMUnitTest)cmocka_unit_test(phantoms_that_are_allowed);
	}
	return _cmocka_run_group_tests("txn_scan_serial", tests, n, NULL, NULL);
}
