/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A client of an elastic cluster (doc/elastic.md) that outlives its server: the server is killed and begins
 * again, and the client goes on.
 *
 *	verbena serve --servers a:7000 --key FILE orders:lock=dslr,locks=100      on machine a
 *	elastic a:7000 FILE N      takes N locks, one after the other; start as many of these as you like
 *
 *	elastic                    does all of it on this machine: serves, is a client, kills the server in the
 *	                           middle, and serves again
 *
 * A server that begins again is empty: what it has granted is over, since it was there for nobody until its
 * option `settle` was over, and no lease is longer.  Who has known it is told -VB_EPEERGONE, and opens everything
 * anew.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <verbena/lock.h>

#define LOCKS   100
#define WAIT_NS 1000000000ull
#define PATIENT 60 /* seconds without one lock, and a client gives up */

static const struct vb_lock_space_params orders = {
	.lock = "dslr", .name = "orders", .locks = LOCKS, .lease_ns = 200000000};

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, vb_strerror(err));
	exit(1);
}

/* ---- a client ---- */

struct client {
	char options[400];
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
};

static void leave(struct client *c)
{
	vb_lock_client_close(c->me);
	vb_lock_space_close(c->space);
	vb_fabric_close(c->fabric);
	c->me = NULL;
	c->space = NULL;
	c->fabric = NULL;
}

/* Waits for a server as long as the fabric's option `patience` says. */
static int come(struct client *c)
{
	int err = vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp", .options = c->options},
				 &c->fabric);

	if (err == 0)
		err = vb_lock_space_open(c->fabric, &orders, &c->space);
	if (err == 0)
		err = vb_lock_client_open(c->space, 0, &c->me);
	if (err != 0)
		leave(c);
	return err;
}

/* 0, or why it was not to be had now. */
static int take_one(struct client *c, unsigned long lock)
{
	struct vb_grant grant;
	int err = c->me == NULL ? come(c) : 0;

	if (err == 0)
		err = vb_lock_acquire(c->me, lock, VB_EXCLUSIVE, WAIT_NS, &grant);
	if (err != 0)
		return err;
	/* The work that needs the lock would be here. */
	err = vb_lock_release(c->me, &grant);
	return err == -VB_ELOST ? 0 : err;
}

static int client(const char *servers, const char *key, unsigned long wanted)
{
	struct timespec pause = {.tv_nsec = 5000000};
	struct client c = {.me = NULL};
	time_t last = time(NULL);
	unsigned long done = 0;

	snprintf(c.options, sizeof(c.options), "servers=%s,key=%s,retry=50ms", servers, key);
	while (done < wanted && time(NULL) - last < PATIENT) {
		int err = take_one(&c, done % LOCKS);

		if (err == 0) {
			last = time(NULL);
			printf("%lu\n", ++done);
			fflush(stdout);
		} else {
			printf("not now: %s\n", vb_strerror(err));
			fflush(stdout);
		}
		/* The server, and with it what was opened there, may be gone for good. */
		if (err == -VB_EPEERGONE || err == -VB_EUNKNOWN)
			leave(&c);
		nanosleep(&pause, NULL);
	}
	leave(&c);
	return done == wanted ? 0 : 1;
}

/* ---- all of it here ---- */

static void serve(const char *servers, const char *key, int ready)
{
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	char options[400];

	snprintf(options, sizeof(options), "servers=%s,serve=1,key=%s", servers, key);
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "tcp", .options = options},
			    &fabric),
	     "serve");
	must(vb_lock_space_open(fabric, &orders, &space), "open the space");
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

static void stop(pid_t server)
{
	kill(server, SIGKILL);
	waitpid(server, NULL, 0);
}

static void make_key(char path[64])
{
	unsigned char key[32];
	int from = open("/dev/urandom", O_RDONLY | O_CLOEXEC), fd;

	snprintf(path, 64, "/tmp/elastic-key.XXXXXX");
	fd = mkstemp(path); /* that nobody else can read */
	if (from < 0 || fd < 0 || read(from, key, sizeof(key)) != (ssize_t)sizeof(key) ||
	    write(fd, key, sizeof(key)) != (ssize_t)sizeof(key)) {
		perror("make a key");
		exit(1);
	}
	close(from);
	close(fd);
}

static int all(void)
{
	struct timespec while_it_runs = {.tv_nsec = 300000000};
	char key[64], servers[64];
	pid_t server, other;
	int status = -1;

	make_key(key);
	snprintf(servers, sizeof(servers), "127.0.0.1:%d", 8000 + (int)getpid() % 1000);
	server = start_server(servers, key);
	other = fork();
	if (other == 0)
		exit(client(servers, key, 100));
	nanosleep(&while_it_runs, NULL);
	stop(server);
	server = start_server(servers, key);
	if (waitpid(other, &status, 0) != other || status != 0)
		fprintf(stderr, "the client has failed\n");
	stop(server);
	unlink(key);
	return status == 0 ? 0 : 1;
}

int main(int argc, char **argv)
{
	if (argc == 1)
		return all();
	if (argc != 4) {
		fprintf(stderr, "usage: elastic [SERVERS KEY-FILE LOCKS-TO-TAKE]\n");
		return 2;
	}
	return client(argv[1], argv[2], strtoul(argv[3], NULL, 10));
}
