/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that work in turns, under a lock that its holder renews, and that go on when one of them is
 * killed: whether it held the lock, served it for the others, or both.
 *
 *	takeover NAME [TURNS]   takes turns at the lock of segment NAME; run it in several shells, kill some
 *	takeover                starts one of those, then another, kills the first with the lock in its hand,
 *	                        and looks at what the other does
 *
 * A turn is a line with its token: larger than that of every turn before it, whoever had that one.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <verbena/lock.h>

#define TURNS    3
#define STEPS    4
#define JOB      7 /* the lock */
#define LEASE_NS 500000000ull
#define WAIT_NS  1000000000ull

static struct vb_lock_space *space;
static struct vb_lock_server *server; /* NULL: another process serves */

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, vb_strerror(err));
	exit(1);
}

static void pause_ms(long ms)
{
	nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL);
}

/* The same in every program: whoever comes first makes what the others join. */
static struct vb_fabric *open_segment(const char *name)
{
	struct vb_fabric *fabric;

	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm",
						       .name = name,
						       .attach_or_create = true,
						       .node_bytes = 1 << 20},
			    &fabric),
	     "open the fabric");
	return fabric;
}

/* Nobody answers: then this process does, unless another one was faster.  The library says on standard
 * error why it was called; that is no news here. */
static void serve(void)
{
	int err = vb_lock_server_thread_start(space, 0, &server);

	if (err == -EBUSY)
		pause_ms(1);
	else
		must(err, "serve the locks");
}

static void take(struct vb_lock_client *me, struct vb_grant *grant)
{
	for (;;) {
		int err = vb_lock_acquire(me, JOB, VB_EXCLUSIVE, WAIT_NS, grant);

		if (err == 0)
			return;
		/* The server has died.  Or it is not known whether the lock was granted: then its lease
		 * frees it. */
		if (err == -VB_EPEERGONE || err == -VB_EUNKNOWN)
			serve();
		else if (err != -ETIMEDOUT)
			must(err, "take the lock");
	}
}

/* Much shorter than a lease. */
static void step(void)
{
	pause_ms(40);
}

/* Works as long as the lock is ours; what is not done then is for the next turn. */
static void turn(struct vb_lock_client *me)
{
	struct vb_grant grant;
	int err;

	take(me, &grant);
	printf("%llu\n", (unsigned long long)grant.token);
	fflush(stdout);
	for (int i = 0; i < STEPS && vb_lock_valid(me, &grant); i++) {
		step();
		if (grant.valid_until_ns > vb_lock_now(me) + LEASE_NS / 2)
			continue;
		err = vb_lock_renew(me, &grant, WAIT_NS);
		if (err == -VB_EPEERGONE || err == -VB_EUNKNOWN)
			serve(); /* and told what we hold, if it begins in time */
	}
	err = vb_lock_release(me, &grant);
	if (err == -VB_EUNKNOWN)
		serve();           /* the lock is free again when its lease is over */
	else if (err != -VB_ELOST) /* lost: what guards the data refuses the token, see fencing.c */
		must(err, "release");
}

static int work(const char *name, int turns)
{
	struct vb_fabric *fabric = open_segment(name);
	struct vb_lock_client *me;
	int err;

	/* Who has no answer for `ask_for` is told that the server is gone, or may be. */
	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "table",
					.options = "ask_for=500ms",
					.locks = 100,
					.lease_ns = LEASE_NS,
					.fencing = true,
				},
				&space),
	     "open the lock space");
	while ((err = vb_lock_client_open(space, 0, &me)) == -VB_EPEERGONE)
		serve();
	must(err, "open a client");
	for (int i = 0; i < turns; i++)
		turn(me);
	vb_lock_client_close(me);
	vb_lock_server_stop(server); /* the others notice, and serve themselves */
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return 0;
}

/* ---- two of them ---- */

static pid_t start(const char *program, const char *name, const char *turns, FILE **lines)
{
	int ends[2];
	pid_t child;

	if (pipe(ends) != 0 || (child = fork()) < 0) {
		perror(program);
		exit(1);
	}
	if (child == 0) {
		dup2(ends[1], STDOUT_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(program, program, name, turns, (char *)NULL);
		_exit(127);
	}
	close(ends[1]);
	*lines = fdopen(ends[0], "r");
	return child;
}

static int kill_one(const char *program)
{
	unsigned long long dead = 0, token, last;
	struct vb_fabric *fabric;
	FILE *first, *second;
	pid_t victim, heir;
	char name[40];
	int status, n = 0;

	snprintf(name, sizeof(name), "example-takeover-%d", (int)getpid());
	/* As long as somebody uses the segment, tokens go on growing. */
	fabric = open_segment(name);
	victim = start(program, name, "100000", &first);
	if (fscanf(first, "%llu", &dead) != 1)
		return 1;
	heir = start(program, name, "3", &second);
	kill(victim, SIGKILL);
	waitpid(victim, &status, 0);
	while (fscanf(first, "%llu", &token) == 1) /* of its last turns */
		dead = token;
	for (last = 0; fscanf(second, "%llu", &token) == 1; last = token, n++)
		if (token <= last)
			return 1;
	if (waitpid(heir, &status, 0) != heir || status != 0 || n != TURNS || last <= dead)
		return 1;
	fclose(first);
	fclose(second);
	must(vb_fabric_close(fabric), "close the fabric");
	printf("one was killed at token %llu, the other has gone on to %llu\n", dead, last);
	return 0;
}

int main(int argc, char **argv)
{
	if (argc > 1)
		return work(argv[1], argc > 2 ? atoi(argv[2]) : TURNS);
	return kill_one(argv[0]);
}
