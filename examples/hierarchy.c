/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Multi-level locking with the six-mode lock table: a database contains tables, a table ranges, a
 * range rows.  Whoever locks a row says so further up, with intention locks; so one lock on a
 * table excludes all who work on its rows, and nobody has to look at the rows for that.
 *
 * A reporter reads a whole table, a clerk changes one row of it; the two exclude each other at the
 * table.  Two clerks at different rows do not.  Then a transaction that is turned down by the
 * deadlock policy lets go of everything and tries again, as old as it was.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <verbena/lock.h>

/* Numbers for what can be locked: any numbering does that gives each a number of its own. */
#define DATABASE      0ull
#define TABLE(t)      (1 + (t))
#define RANGE(t, r)   (100 + (t)*100 + (r))
#define ROW(t, r, id) (100000 + (t)*100000 + (r)*1000 + (id))
#define LOCKS         10000000

#define MS 1000000ull

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

static void show(const char *who, const struct vb_grant *g, int n)
{
	printf("%s:", who);
	for (int i = 0; i < n; i++)
		printf(" %llu %s", (unsigned long long)g[i].lock, vb_lock_mode_name(g[i].mode));
	printf("\n");
}

/* Reads the table; who wants to change a row of it waits meanwhile. */
static void report(struct vb_lock_client *reporter, struct vb_lock_client *clerk)
{
	const uint64_t table[] = {DATABASE, TABLE(3)};
	const uint64_t row[] = {DATABASE, TABLE(3), RANGE(3, 7), ROW(3, 7, 42)};
	struct vb_grant whole[2], mine[4];
	int err;

	must(vb_lock_acquire_path(reporter, table, 2, VB_SHARED, 100 * MS, whole), "the table");
	show("reporter", whole, 2);
	err = vb_lock_acquire_path(clerk, row, 4, VB_EXCLUSIVE, 5 * MS, mine);
	printf("clerk, while the table is read: %s\n", vb_strerror(err));
	/* One message for all that a client holds at a server. */
	must(vb_lock_release_all(reporter, whole, 2), "release the table");
	must(vb_lock_acquire_path(clerk, row, 4, VB_EXCLUSIVE, 100 * MS, mine), "the row");
	show("clerk", mine, 4);
	must(vb_lock_release_all(clerk, mine, 4), "release the row");
}

/* Two at different rows, and one that finds out while it reads that it has to write. */
static void change_rows(struct vb_lock_client *a, struct vb_lock_client *b)
{
	const uint64_t first[] = {DATABASE, TABLE(3), RANGE(3, 7), ROW(3, 7, 42)};
	const uint64_t second[] = {DATABASE, TABLE(3), RANGE(3, 7), ROW(3, 7, 43)};
	struct vb_grant of_a[4], of_b[4], more[4];

	must(vb_lock_acquire_path(a, first, 4, VB_EXCLUSIVE, 100 * MS, of_a), "the first row");
	must(vb_lock_acquire_path(b, second, 4, VB_SHARED, 100 * MS, of_b), "the second row");
	/* What is held already is converted, the rest is taken: here nothing but conversions. */
	must(vb_lock_acquire_path(b, second, 4, VB_EXCLUSIVE, 100 * MS, more), "write it");
	show("side by side", more, 4);
	must(vb_lock_release_all(b, of_b, 4), "release the second row");
	must(vb_lock_release_all(a, of_a, 4), "release the first row");
}

/* Two rows in any order: what may end in a deadlock elsewhere is turned down here. */
static int transfer(struct vb_lock_client *me, uint64_t from, uint64_t to)
{
	for (int attempt = 1; attempt <= 10; attempt++) {
		struct vb_grant g[2];
		int n = 0, err = vb_lock_acquire(me, from, VB_EXCLUSIVE, 100 * MS, &g[n]);

		n += err == 0;
		if (err == 0)
			err = vb_lock_acquire(me, to, VB_EXCLUSIVE, 100 * MS, &g[n]);
		n += n == 1 && err == 0;
		if (err == 0)
			printf("transfer from %llu to %llu\n", (unsigned long long)from,
			       (unsigned long long)to);
		must(vb_lock_release_all(me, g, (unsigned)n), "end the transaction");
		if (err != -EAGAIN && err != -ETIMEDOUT)
			return err;
		/* The next attempt is as old as this one was: it gets its turn in the end. */
		vb_lock_client_begin(me, vb_lock_client_age(me));
	}
	return -EAGAIN;
}

int main(void)
{
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *a, *b;

	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric),
	     "open the fabric");
	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "table",
					.options = "policy=wait-die",
					.locks = LOCKS,
					.lease_ns = 10000 * MS,
				},
				&space),
	     "open the lock space");
	must(vb_lock_server_thread_start(space, 0, &server), "start the server agent");
	must(vb_lock_client_open(space, 0, &a), "open a client");
	must(vb_lock_client_open(space, 0, &b), "open a client");
	report(a, b);
	change_rows(a, b);
	must(transfer(a, ROW(3, 7, 42), ROW(3, 7, 43)), "transfer");
	must(transfer(b, ROW(3, 7, 43), ROW(3, 7, 42)), "transfer back");
	vb_lock_client_close(b);
	vb_lock_client_close(a);
	vb_lock_server_stop(server);
	vb_lock_space_close(space);
	vb_fabric_close(fabric);
	return 0;
}
