/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Programs that know nothing of each other but a name share locks: whoever comes first makes the
 * segment, the others join it, and it lives as long as one of them uses it.
 *
 *	shared NAME     takes a lock of segment NAME a hundred times; run it in several shells
 *	shared          starts two of those and checks what they print
 *
 * Each grant comes with a token larger than that of every grant before it, whichever program had it.
 * What the lock guards should refuse a token smaller than the largest it has seen (fencing.c).
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include <verbena/lock.h>

#define ROUNDS   100
#define PROGRAMS 2
#define ACCOUNT  42

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

/* All say the same: a segment or a lock space that exists with something else is refused. */
static struct vb_fabric *open_fabric(const char *name)
{
	const struct vb_fabric_params params = {
		.fabric = "shm",
		.name = name,
		.attach_or_create = true,
		.node_bytes = 1 << 20,
	};
	struct vb_fabric *fabric;

	must(vb_fabric_open(&params, &fabric), "open the fabric");
	return fabric;
}

static int work(const char *name)
{
	const struct timespec busy = {.tv_nsec = 200000};
	struct vb_fabric *fabric = open_fabric(name);
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant grant;
	int err;

	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "dslr",
					.locks = 1000,
					.fencing = true,
				},
				&space),
	     "open the lock space");
	must(vb_lock_client_open(space, 0, &me), "open a client");

	for (int i = 0; i < ROUNDS; i++) {
		must(vb_lock_acquire(me, ACCOUNT, VB_EXCLUSIVE, VB_FOREVER_NS, &grant), "acquire");
		printf("%llu\n", (unsigned long long)grant.token);
		nanosleep(&busy, NULL); /* what the lock is for */
		err = vb_lock_release(me, &grant);
		if (err != -VB_ELOST) /* lost: held for longer than its lease */
			must(err, "release");
	}

	vb_lock_client_close(me);
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return 0;
}

/* Each program's tokens grow, and no two grants have the same. */
static int check(FILE *from[])
{
	static bool seen[100 * PROGRAMS * ROUNDS];
	unsigned long long token, before;
	int n = 0;

	for (int i = 0; i < PROGRAMS; i++) {
		for (before = 0; fscanf(from[i], "%llu", &token) == 1; before = token, n++) {
			if (token <= before || token >= sizeof(seen) || seen[token]) {
				fprintf(stderr, "token %llu after %llu\n", token, before);
				return 1;
			}
			seen[token] = true;
		}
		if (pclose(from[i]) != 0)
			return 1;
	}
	printf("%d grants to %d programs, each with a token of its own\n", n, PROGRAMS);
	return n != PROGRAMS * ROUNDS;
}

int main(int argc, char **argv)
{
	FILE *from[PROGRAMS];
	char name[40], command[5000];
	struct vb_fabric *fabric;
	int failed;

	if (argc > 1)
		return work(argv[1]);
	snprintf(name, sizeof(name), "example-shared-%d", (int)getpid());
	snprintf(command, sizeof(command), "'%s' %s", argv[0], name);
	/* Tokens begin anew when nobody uses the segment any more: one may end before the other begins. */
	fabric = open_fabric(name);
	for (int i = 0; i < PROGRAMS; i++) {
		from[i] = popen(command, "r");
		if (from[i] == NULL) {
			perror("popen");
			return 1;
		}
	}
	failed = check(from);
	must(vb_fabric_close(fabric), "close the fabric");
	return failed;
}
