/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions of an elastic cluster's clients (doc/elastic.md): the tables are the servers', a client comes, moves
 * money between accounts, and goes.
 *
 *	verbena serve --servers a:7000 --key FILE bank:cc=silo bank/accounts:bytes=8,records=1k     on machine a
 *	ledger a:7000 FILE N       commits N transfers, says what all accounts have together; start as many as you like
 *
 *	ledger                     does all of it on this machine, and kills one of the clients in the middle
 *
 * What the killed one had under way happens as a whole or not at all, and who meets its locks goes on after two
 * leases.
 */
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <verbena/txn.h>

#define ACCOUNTS 10u
#define MONEY    100u
#define PATIENT  60 /* seconds without one commit, and a client gives up */

static const struct vb_db_params bank = {.name = "bank", .cc = "silo"};
static const struct vb_table_params accounts = {
	.name = "accounts", .record_bytes = 8, .records = 1000};

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, vb_strerror(err));
	exit(1);
}

/* ---- a client ---- */

struct client {
	struct vb_fabric *fabric;
	struct vb_db *db;
	struct vb_table *table;
	struct vb_coordinator *me;
	uint64_t from, to, sum;
};

static void come(struct client *c, const char *servers, const char *key)
{
	char options[400];

	snprintf(options, sizeof(options), "servers=%s,key=%s", servers, key);
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp", .options = options},
			    &c->fabric),
	     "come");
	must(vb_db_open(c->fabric, &bank, &c->db), "open the database");
	must(vb_table_open(c->db, &accounts, &c->table), "open the table");
	must(vb_coordinator_open(c->db, 0, &c->me), "open a coordinator");
}

static void leave(struct client *c)
{
	vb_coordinator_close(c->me);
	vb_db_close(c->db);
	vb_fabric_close(c->fabric);
}

/* All accounts in one transaction, or none: who comes later finds them. */
static int fill(struct vb_coordinator *me, void *arg)
{
	struct client *c = arg;
	const uint64_t money = MONEY;
	int err = 0;

	for (uint64_t i = 0; i < ACCOUNTS && err == 0; i++)
		err = vb_txn_insert(me, c->table, i, &money);
	return err;
}

static int transfer(struct vb_coordinator *me, void *arg)
{
	struct client *c = arg;
	uint64_t *from, *to;
	int err = vb_txn_update(me, c->table, c->from, (void **)&from);

	if (err == 0)
		err = vb_txn_update(me, c->table, c->to, (void **)&to);
	if (err == 0) {
		*from -= 1;
		*to += 1;
	}
	return err;
}

static int audit(struct vb_coordinator *me, void *arg)
{
	struct client *c = arg;
	uint64_t money;
	int err = 0;

	c->sum = 0;
	for (uint64_t i = 0; i < ACCOUNTS && err == 0; i++) {
		err = vb_txn_read(me, c->table, i, &money);
		if (err == 0)
			c->sum += money;
	}
	return err;
}

/* Until it has committed: a link may have to be made anew. */
static void run(struct client *c, int (*body)(struct vb_coordinator *me, void *arg))
{
	struct timespec pause = {.tv_nsec = 1000000};
	time_t began = time(NULL);
	int err;

	while ((err = vb_txn_run(c->me, body, c, 0)) == -VB_EPEERGONE || err == -VB_EUNKNOWN) {
		if (time(NULL) - began > PATIENT)
			break;
		nanosleep(&pause, NULL);
	}
	if (err != -EEXIST)
		must(err, "a transaction");
}

static int client(const char *servers, const char *key, unsigned long transfers)
{
	struct client c = {.me = NULL};

	come(&c, servers, key);
	run(&c, fill);
	srand((unsigned)getpid());
	for (unsigned long i = 0; i < transfers; i++) {
		c.from = (uint64_t)rand() % ACCOUNTS;
		c.to = (c.from + 1 + (uint64_t)rand() % (ACCOUNTS - 1)) % ACCOUNTS;
		run(&c, transfer);
	}
	run(&c, audit);
	printf("%lu transfers; all accounts have %" PRIu64 "\n", transfers, c.sum);
	leave(&c);
	return c.sum == ACCOUNTS * MONEY ? 0 : 1;
}

/* ---- all of it here ---- */

static void serve(const char *servers, const char *key, int ready)
{
	struct vb_fabric *fabric;
	struct vb_db_server *server;
	struct vb_table *table;
	struct vb_db *db;
	char options[400];

	snprintf(options, sizeof(options), "servers=%s,serve=1,key=%s,linger=500ms", servers, key);
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp",
						       .options = options,
						       .node_bytes = 16 << 20},
			    &fabric),
	     "serve");
	must(vb_db_open(fabric, &bank, &db), "make the database");
	must(vb_table_open(db, &accounts, &table), "make the table");
	must(vb_db_server_start(db, 0, &server), "serve the database");
	if (write(ready, "r", 1) != 1)
		exit(1);
	alarm(120); /* it is killed before */
	for (;;)
		pause();
}

static pid_t start_server(const char *servers, const char *key)
{
	int ends[2];
	char word;
	pid_t pid;

	if (pipe(ends) != 0 || (pid = fork()) < 0) {
		perror("start a server");
		exit(1);
	}
	if (pid == 0) {
		close(ends[0]);
		serve(servers, key, ends[1]);
	}
	close(ends[1]);
	if (read(ends[0], &word, 1) != 1) {
		fprintf(stderr, "the server has not begun\n");
		exit(1);
	}
	close(ends[0]);
	return pid;
}

static void make_key(char path[64])
{
	unsigned char key[32];
	int from = open("/dev/urandom", O_RDONLY | O_CLOEXEC), fd;

	snprintf(path, 64, "/tmp/ledger-key.XXXXXX");
	fd = mkstemp(path); /* that nobody else can read */
	if (from < 0 || fd < 0 || read(from, key, sizeof(key)) != (ssize_t)sizeof(key) ||
	    write(fd, key, sizeof(key)) != (ssize_t)sizeof(key)) {
		perror("make a key");
		exit(1);
	}
	close(from);
	close(fd);
}

static pid_t start_client(const char *servers, const char *key, unsigned long transfers)
{
	pid_t pid = fork();

	if (pid == 0)
		exit(client(servers, key, transfers));
	return pid;
}

static int all(void)
{
	struct timespec while_it_runs = {.tv_nsec = 300000000};
	int status = -1, failed = 0;
	char key[64], servers[64];
	pid_t server, doomed, other[2];

	make_key(key);
	snprintf(servers, sizeof(servers), "127.0.0.1:%d", 7000 + (int)getpid() % 1000);
	server = start_server(servers, key);
	doomed = start_client(servers, key, 1000000000);
	for (int i = 0; i < 2; i++)
		other[i] = start_client(servers, key, 200);
	nanosleep(&while_it_runs, NULL);
	kill(doomed, SIGKILL);
	waitpid(doomed, NULL, 0);
	for (int i = 0; i < 2; i++)
		failed += waitpid(other[i], &status, 0) != other[i] || status != 0;
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
	unlink(key);
	return failed;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return all();
	if (argc != 4) {
		fprintf(stderr, "usage: ledger [SERVERS KEY-FILE TRANSFERS]\n");
		return 2;
	}
	return client(argv[1], argv[2], strtoul(argv[3], NULL, 10));
}
