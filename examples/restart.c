/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A bank whose programs start in any order, are killed in the middle of a transfer, and are started again:
 * the accounts are made once, every transfer happens as a whole or not at all, and no money is lost.
 *
 *	restart NAME [N]   makes N transfers in the bank of segment NAME; run it in several shells, kill some
 *	restart            starts two of those, kills one, starts it again, and counts the money
 *
 * The bank lives as long as one of its programs does.
 */
#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <verbena/txn.h>

#define ACCOUNTS  20
#define EACH      1000
#define TRANSFERS 200

/* How long a transaction may take; what a dead program has locked is free after about two. */
#define LEASE_NS 500000000ull

static struct vb_fabric *fabric;
static struct vb_db *db;
static struct vb_table *accounts;
static struct vb_db_server *server; /* NULL: another process has it */
static struct vb_coordinator *me;

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, vb_strerror(err));
	exit(1);
}

/* ---- transactions: each may run several times until it commits ---- */

/* All accounts, or none: not vb_table_load, which is for before the first transaction, and nobody here
 * knows whether that is now. */
static int make_accounts(struct vb_coordinator *c, void *arg)
{
	const int64_t balance = EACH;
	int err = 0;

	(void)arg;
	for (uint64_t i = 0; i < ACCOUNTS && err == 0; i++)
		err = vb_txn_insert(c, accounts, i, &balance);
	return err; /* -EEXIST: another has made them */
}

struct transfer {
	uint64_t from, to;
	int64_t amount;
};

static int transfer(struct vb_coordinator *c, void *arg)
{
	const struct transfer *x = arg;
	int64_t *from, *to;
	int err = vb_txn_update(c, accounts, x->from, (void **)&from);

	if (err == 0)
		err = vb_txn_update(c, accounts, x->to, (void **)&to);
	if (err != 0)
		return err;
	*from -= x->amount;
	*to += x->amount;
	return 0;
}

static int count(struct vb_coordinator *c, void *arg)
{
	int64_t balance, *sum = arg;
	int err = 0;

	*sum = 0;
	for (uint64_t i = 0; i < ACCOUNTS && err == 0; i++) {
		err = vb_txn_read(c, accounts, i, &balance);
		if (err == 0)
			*sum += balance;
	}
	return err;
}

/* ---- a program of the bank ---- */

/* A server is needed for keys that are new; if the one that has it dies, the next program may start one. */
static void serve(void)
{
	int err = vb_db_server_thread_start(db, 0, &server);

	if (err != -EBUSY)
		must(err, "start the server");
}

static void must_run(vb_txn_body body, void *arg, int but, const char *what)
{
	int err;

	while ((err = vb_txn_run(me, body, arg, 0)) == -VB_EPEERGONE)
		serve();
	/* Committed, or never: who must know writes a record of its own with each (doc/transactions.md). */
	if (err != -VB_EUNKNOWN && err != but)
		must(err, what);
}

static void open_bank(const char *name)
{
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm",
						       .name = name,
						       .attach_or_create = true},
			    &fabric),
	     "open the fabric");
	must(vb_db_open(fabric, &(struct vb_db_params){.cc = "silo", .lease_ns = LEASE_NS}, &db),
	     "open the database");
	must(vb_table_open(db,
			   &(struct vb_table_params){.name = "account",
						     .record_bytes = sizeof(int64_t),
						     .records = ACCOUNTS},
			   &accounts),
	     "open the table");
	serve();
	must(vb_coordinator_open(db, 0, &me), "open a coordinator");
	must_run(make_accounts, NULL, -EEXIST, "make the accounts");
}

static void close_bank(void)
{
	vb_coordinator_close(me);
	vb_db_server_stop(server);
	must(vb_db_close(db), "close the database");
	must(vb_fabric_close(fabric), "close the fabric");
}

static int work(const char *name, long n)
{
	uint64_t x = 0x9e3779b97f4a7c15ull * (uint64_t)getpid();

	open_bank(name);
	puts("open");
	fflush(stdout);
	for (long i = 0; i < n; i++) {
		struct transfer t;

		x = x * 6364136223846793005ull + 1442695040888963407ull;
		t.from = (x >> 33) % ACCOUNTS;
		t.to = (t.from + 1 + (x >> 50) % (ACCOUNTS - 1)) % ACCOUNTS;
		t.amount = (int64_t)(x >> 40 & 15);
		must_run(transfer, &t, 0, "transfer");
	}
	close_bank();
	return 0;
}

/* ---- two of them, one of which is killed ---- */

/* Returns when it is at work. */
static pid_t start(const char *program, const char *name, const char *n)
{
	int ends[2];
	pid_t child;
	char c;

	if (pipe(ends) != 0 || (child = fork()) < 0) {
		perror(program);
		exit(1);
	}
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(program, program, name, n, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	if (read(ends[0], &c, 1) != 1) {
		fprintf(stderr, "%s did not begin\n", program);
		exit(1);
	}
	close(ends[0]);
	return child;
}

static bool ends_well(pid_t child)
{
	int status;

	return waitpid(child, &status, 0) == child && status == 0;
}

static int kill_one(const char *program)
{
	uint64_t freed;
	int64_t sum;
	pid_t one, other;
	char name[40];

	snprintf(name, sizeof(name), "example-restart-%d", (int)getpid());
	one = start(program, name, "1000000000");
	other = start(program, name, "200");
	open_bank(name);
	kill(one, SIGKILL);
	waitpid(one, NULL, 0);
	one = start(program, name, "200");
	if (!ends_well(one) || !ends_well(other))
		return 1;
	/* Who wants what a dead one has locked recovers it.  This does it for what nobody wants, and gives
	 * the dead one's place among the coordinators back. */
	must(vb_db_recover(me, 0, &freed), "recover");
	must_run(count, &sum, 0, "count");
	close_bank();
	printf("%lld in %d accounts\n", (long long)sum, ACCOUNTS);
	return sum != ACCOUNTS * EACH;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return work(argv[1], argc > 2 ? atol(argv[2]) : TRANSFERS);
	return kill_one(argv[0]);
}
