/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Money moves between accounts in several threads, and audits look whether any of it is lost.
 *
 * The accounts lie on two nodes, so most transfers write to both.  Each thread has a coordinator of
 * its own.  An audit reads every account in one transaction: if transactions are what they promise,
 * its sum is the same each time, however many transfers are under way.
 *
 * usage: bank [PROTOCOL [HYBRID]]
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <verbena/txn.h>

#define NODES    2
#define THREADS  4
#define ACCOUNTS 60
#define EACH     1000  /* in each account, to begin with */
#define ROUNDS   300   /* of each thread */
#define AUDITS   20    /* one round in so many is an audit */
#define LOW      900   /* no account is to have less: transfers that would are given up */
#define PAUSE_NS 2000u /* before the first retry; each further one doubles it, up to 2^6 times */

/* Long: on a busy machine a server may not get its turn for a while. */
#define LEASE_NS 5000000000ull

struct account {
	int64_t balance;
	uint64_t transfers;
};

static struct vb_db *db;
static struct vb_table *accounts;

struct teller {
	pthread_t thread;
	uint16_t node;
	uint64_t random;
	uint64_t commits, aborts[VB_TXN_CAUSES];
	int err;
};

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

static uint64_t draw(struct teller *t, uint64_t below)
{
	/* xorshift */
	t->random ^= t->random << 13;
	t->random ^= t->random >> 7;
	t->random ^= t->random << 17;
	return t->random % below;
}

/* ---- what a transaction does ---- */

struct transfer {
	uint64_t from, to;
	int64_t amount;
};

static int transfer(struct vb_coordinator *me, void *arg)
{
	const struct transfer *x = arg;
	struct account *from, *to;
	int err = vb_txn_update(me, accounts, x->from, (void **)&from);

	if (err == 0)
		err = vb_txn_update(me, accounts, x->to, (void **)&to);
	if (err)
		return err;
	if (from->balance - x->amount < LOW) {
		vb_txn_abort(me);
		return 0;
	}
	from->balance -= x->amount;
	to->balance += x->amount;
	from->transfers++;
	to->transfers++;
	return vb_txn_commit(me);
}

static int audit(struct vb_coordinator *me, void *arg)
{
	struct vb_txn_key all[ACCOUNTS];
	int64_t *sum = arg;
	int err;

	/* Everything at once: one round of verbs for each node, not one for each account. */
	for (unsigned i = 0; i < ACCOUNTS; i++)
		all[i] = (struct vb_txn_key){.table = accounts, .key = i};
	err = vb_txn_declare(me, all, ACCOUNTS);
	*sum = 0;
	for (unsigned i = 0; i < ACCOUNTS && err == 0; i++) {
		const struct account *a;

		err = vb_txn_get(me, accounts, i, (const void **)&a);
		if (err == 0)
			*sum += a->balance;
	}
	return err ? err : vb_txn_commit(me);
}

/* ---- until it has happened ---- */

/* As vb_txn_run, in short; here each abort is counted by its cause. */
static int until_done(struct teller *t, struct vb_coordinator *me,
		      int (*body)(struct vb_coordinator *me, void *arg), void *arg)
{
	for (unsigned tries = 0;; tries++) {
		struct timespec pause = {0};
		int err = vb_txn_begin(me);

		if (err == 0)
			err = body(me, arg);
		if (err != 0 && err != -EAGAIN) {
			vb_txn_abort(me);
			return err;
		}
		if (vb_txn_cause(me) == VB_TXN_COMMITTED)
			t->commits++;
		else
			t->aborts[vb_txn_cause(me)]++;
		if (err == 0)
			return 0;
		pause.tv_nsec = (long)draw(t, PAUSE_NS << (tries < 6 ? tries : 6));
		nanosleep(&pause, NULL);
	}
}

static void *work(void *arg)
{
	struct teller *t = arg;
	struct vb_coordinator *me;

	t->err = vb_coordinator_open(db, t->node, &me);
	if (t->err)
		return NULL;
	for (unsigned i = 0; i < ROUNDS && t->err == 0; i++) {
		struct transfer x = {.from = draw(t, ACCOUNTS), .amount = (int64_t)draw(t, 50)};
		int64_t sum;

		/* Another than the one that it comes from. */
		x.to = (x.from + 1 + draw(t, ACCOUNTS - 1)) % ACCOUNTS;
		if (i % AUDITS != 0) {
			t->err = until_done(t, me, transfer, &x);
			continue;
		}
		t->err = until_done(t, me, audit, &sum);
		if (t->err == 0 && sum != ACCOUNTS * EACH) {
			fprintf(stderr, "an audit found %lld instead of %lld\n", (long long)sum,
				(long long)ACCOUNTS * EACH);
			t->err = -EIO;
		}
	}
	vb_coordinator_close(me);
	return NULL;
}

/* ---- the bank ---- */

static void open_bank(struct vb_fabric *fabric, const char *protocol, const char *hybrid)
{
	must(vb_db_open(
		     fabric,
		     &(struct vb_db_params){.cc = protocol, .hybrid = hybrid, .lease_ns = LEASE_NS},
		     &db),
	     "open the database");
	must(vb_table_open(db,
			   &(struct vb_table_params){.name = "account",
						     .record_bytes = sizeof(struct account),
						     .records = ACCOUNTS},
			   &accounts),
	     "open the table");
	for (uint64_t i = 0; i < ACCOUNTS; i++)
		must(vb_table_load(accounts, i, &(struct account){.balance = EACH}),
		     "load an account");
}

static int report(const char *protocol, const struct teller *teller)
{
	uint64_t commits = 0, aborts[VB_TXN_CAUSES] = {0};
	int failed = 0;

	for (unsigned i = 0; i < THREADS; i++) {
		if (teller[i].err) {
			fprintf(stderr, "teller %u: %s\n", i, vb_strerror(teller[i].err));
			failed = 1;
		}
		commits += teller[i].commits;
		for (unsigned c = 0; c < VB_TXN_CAUSES; c++)
			aborts[c] += teller[i].aborts[c];
	}
	printf("%s: %llu commits", protocol, (unsigned long long)commits);
	for (unsigned c = 0; c < VB_TXN_CAUSES; c++)
		if (aborts[c] > 0)
			printf(", %llu aborts (%s)", (unsigned long long)aborts[c],
			       vb_txn_cause_name(c));
	printf("\n");
	return failed;
}

int main(int argc, char **argv)
{
	const char *protocol = argc > 1 ? argv[1] : "silo";
	struct vb_fabric *fabric;
	struct vb_db_server *server[NODES];
	struct teller teller[THREADS] = {0};
	int failed;

	if (argc > 3) {
		fprintf(stderr, "usage: bank [PROTOCOL [HYBRID]]\n");
		return 2;
	}
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm", .nodes = NODES}, &fabric),
	     "open the fabric");
	open_bank(fabric, protocol, argc > 2 ? argv[2] : NULL);
	for (uint16_t i = 0; i < NODES; i++)
		must(vb_db_server_thread_start(db, i, &server[i]), "start a server");

	for (unsigned i = 0; i < THREADS; i++) {
		teller[i].node = (uint16_t)(i % NODES);
		teller[i].random = 0x9e3779b97f4a7c15ull * (i + 1);
		must(-pthread_create(&teller[i].thread, NULL, work, &teller[i]), "make a thread");
	}
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(teller[i].thread, NULL);
	failed = report(protocol, teller);

	for (uint16_t i = 0; i < NODES; i++)
		vb_db_server_stop(server[i]);
	vb_db_close(db);
	vb_fabric_close(fabric);
	return failed;
}
