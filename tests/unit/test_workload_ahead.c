/* SPDX-License-Identifier: Apache-2.0 */
/* TPC-C with all keys known before anything is read: what is looked up beforehand, what is guessed, and what becomes of
 * those who have guessed wrong. */
#include <sys/wait.h>

#include "child.h"
#include "workload_fixture.h"

#include "workload/tpcc_db.h"

#define AHEAD "items=100,customers=30,orders=100,mix=payment-new-order,ahead"

/* Alone, every guess is right: a transaction that is tried again would end the fixture's. */
static void test_ahead(void **state)
{
	char why[VB_LOAD_WHY] = "";
	struct fixture g;
	struct did did;

	(void)state;
	open_fixture(&g, "tpcc", AHEAD, 2);
	assert_true(g.load.ops->declares(&g.load));
	do_many(&g, 400, &did);
	assert_true(did.done[TPCC_NEW_ORDERS] > 150 && did.done[TPCC_PAYMENT] > 150);
	assert_int_equal(judge_all(&g, did.change, why), 0);
	close_fixture(&g);
	open_fixture(&g, "tpcc", AHEAD ",no-inserts", 2);
	do_many(&g, 100, &did);
	assert_int_equal(judge_all(&g, did.change, why), 0);
	close_fixture(&g);
}

/* Draws a transaction of that type that is not to be rolled back. */
static void draw_type(struct fixture *g, struct ready *r, unsigned type, bool by_name)
{
	const struct tpcc_drawn *d = r->c.own;

	do
		g->load.ops->next(&r->c);
	while (r->c.type != type ||
	       (type == TPCC_PAYMENT ? d->by_name != by_name : d->line[d->lines - 1].item == 100));
}

static uint64_t *guess_for(struct fixture *g, struct ready *r, enum tpcc_numbered what)
{
	const struct tpcc_drawn *d = r->c.own;

	return &tpcc_db_of(&g->load)->guess[d->warehouse * TPCC_DISTRICTS + d->district][what];
}

/* One try fails, and says why; those behind it go by what it has seen. */
static void assert_tried_again(struct fixture *g, struct ready *r, unsigned most)
{
	int err = -EAGAIN;

	for (unsigned tries = 0; err == -EAGAIN; tries++) {
		assert_true(tries < most);
		assert_int_equal(vb_txn_begin(r->me), 0);
		err = g->load.ops->body(&r->c, r->me);
		assert_true(err == 0 || vb_txn_cause(r->me) == VB_TXN_CHANGED);
		if (tries == 0)
			assert_int_equal(err, -EAGAIN);
	}
	assert_int_equal(err, 0);
	assert_int_equal(vb_txn_commit(r->me), 0);
	for (unsigned k = 0; k < VB_LOAD_CHANGES_MAX; k++)
		r->did.change[k] += r->c.change[k];
}

static void test_ahead_wrong(void **state)
{
	const unsigned types[] = {TPCC_NEW_ORDERS, TPCC_PAYMENT};
	const int off[] = {3, -2};
	char why[VB_LOAD_WHY] = "";
	struct tpcc_drawn *d;
	struct ready r;
	struct fixture g;

	(void)state;
	open_fixture(&g, "tpcc", AHEAD, 2);
	get_ready(&g, &r);
	for (unsigned i = 0; i < 4; i++) {
		draw_type(&g, &r, types[i % 2], false);
		*guess_for(&g, &r, i % 2) += (uint64_t)off[i / 2];
		assert_tried_again(&g, &r, 2);
	}
	draw_type(&g, &r, TPCC_PAYMENT, true);
	d = r.c.own;
	assert_int_equal(vb_txn_begin(r.me), 0);
	assert_int_equal(g.load.ops->scout(&r.c, r.me), 0);
	assert_int_equal(vb_txn_commit(r.me), 0);
	d->of_name = (d->of_name + 1) % 30;
	/* That one's number was nobody's. */
	assert_tried_again(&g, &r, 3);
	get_done(&r);
	assert_int_equal(judge_all(&g, r.did.change, why), 0);
	close_fixture(&g);
}

/* Several have guessed wrong: the first says where to go on, and the others believe him. */
static void test_ahead_together(void **state)
{
	uint64_t *guess;
	struct tpcc_drawn *d;
	struct ready r;
	struct fixture g;
	uint32_t first, late[2];

	(void)state;
	open_fixture(&g, "tpcc", AHEAD, 2);
	get_ready(&g, &r);
	draw_type(&g, &r, TPCC_NEW_ORDERS, false);
	d = r.c.own;
	guess = guess_for(&g, &r, TPCC_ORDERS);
	first = (uint32_t)*guess;
	assert_int_equal(first, 31);
	/* One fails, and two are behind it. */
	for (unsigned i = 0; i < 3; i++)
		assert_true(vb_tpcc_guess(&r.c, TPCC_ORDERS));
	late[0] = d->guess;
	late[1] = d->anew;
	d->guess = first + 1;
	assert_int_equal(vb_txn_begin(r.me), 0);
	assert_int_equal(vb_tpcc_guessed(&r.c, r.me, TPCC_ORDERS, first), -EAGAIN);
	assert_true(vb_tpcc_guess(&r.c, TPCC_ORDERS));
	assert_int_equal(d->guess, first);
	/* That is not there yet when the last one looks. */
	d->guess = late[0];
	d->anew = late[1];
	assert_int_equal(vb_txn_begin(r.me), 0);
	assert_int_equal(vb_tpcc_guessed(&r.c, r.me, TPCC_ORDERS, first), -EAGAIN);
	assert_true(vb_tpcc_guess(&r.c, TPCC_ORDERS));
	assert_int_equal(d->guess, first + 1);
	get_done(&r);
	close_fixture(&g);
}

/* Of two processes of a node each number is guessed once, and each hears what the other has found. */
static void test_ahead_apart(void **state)
{
	const unsigned most = 2000;
	struct fixture g;
	struct ready r;
	uint64_t *guess;
	uint32_t first;
	int status;
	pid_t pid;

	(void)state;
	open_fixture(&g, "tpcc", "items=100,customers=30,orders=5k,mix=new-order,ahead", 2);
	get_ready(&g, &r);
	draw_type(&g, &r, TPCC_NEW_ORDERS, false);
	guess = guess_for(&g, &r, TPCC_ORDERS);
	first = (uint32_t)*guess;
	pid = fork_child();
	assert_true(pid >= 0);
	for (unsigned i = 0; i < most; i++)
		(void)vb_tpcc_guess(&r.c, TPCC_ORDERS);
	if (pid == 0)
		_exit(0);
	assert_int_equal(waitpid(pid, &status, 0), pid);
	assert_int_equal(status, 0);
	assert_int_equal((uint32_t)*guess, first + 2 * most);
	assert_int_equal(vb_txn_begin(r.me), 0);
	assert_int_equal(vb_tpcc_guessed(&r.c, r.me, TPCC_ORDERS, first), -EAGAIN);
	assert_true(*guess == (1ull << 32 | first));
	get_done(&r);
	close_fixture(&g);
}

/* The room ends the run, and no key beyond it is asked for. */
static void test_ahead_no_room(void **state)
{
	uint64_t *guess;
	int err = 0;
	struct ready r;
	struct fixture g;

	(void)state;
	open_fixture(&g, "tpcc", "items=100,customers=30,orders=2,mix=payment-new-order,ahead", 2);
	get_ready(&g, &r);
	for (unsigned i = 0; i < 400 && err != VB_LOAD_FULL; i++) {
		g.load.ops->next(&r.c);
		err = run_drawn(&g, r.me, &r.c, &r.did);
	}
	assert_int_equal(err, VB_LOAD_FULL);
	draw_type(&g, &r, TPCC_NEW_ORDERS, false);
	guess = guess_for(&g, &r, TPCC_ORDERS);
	*guess = 32;
	assert_true(vb_tpcc_guess(&r.c, TPCC_ORDERS));
	assert_false(vb_tpcc_guess(&r.c, TPCC_ORDERS));
	get_done(&r);
	close_fixture(&g);
}

int main(void)
{
	static const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_ahead),          cmocka_unit_test(test_ahead_wrong),
		cmocka_unit_test(test_ahead_together), cmocka_unit_test(test_ahead_apart),
		cmocka_unit_test(test_ahead_no_room),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
