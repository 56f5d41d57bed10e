/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two processes add to one number under a lock, and the storage that keeps the number checks
 * fencing tokens.
 *
 * A lease can run out while its holder is stopped (by the kernel, a debugger, a page fault), and no
 * check that the holder makes himself can prevent him from going on afterwards.  So every access
 * carries the grant's token, and the storage refuses a token smaller than the largest it has seen.
 * Reads count as well: a holder who has read with token 7 must be sure that token 6 writes no more.
 * The lease here is short on purpose; whether or not it ever runs out, the sum is right.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <verbena/lock.h>

#define ROUNDS 5000
#define NUMBER 7 /* the lock that guards the number */

/* Stands for the storage server: it alone decides, one request at a time. */
struct storage {
	pthread_mutex_t one_at_a_time;
	uint64_t largest_token, refused;
	long number;
};

static int storage_access(struct storage *s, uint64_t token, long *read, const long *write)
{
	int err = 0;

	pthread_mutex_lock(&s->one_at_a_time);
	if (token < s->largest_token) {
		s->refused++;
		err = -EPERM;
	} else {
		s->largest_token = token;
		if (read)
			*read = s->number;
		if (write)
			s->number = *write;
	}
	pthread_mutex_unlock(&s->one_at_a_time);
	return err;
}

static struct storage *storage_make(void)
{
	struct storage *s =
		mmap(NULL, sizeof(*s), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	pthread_mutexattr_t shared;

	if (s == MAP_FAILED)
		return NULL;
	pthread_mutexattr_init(&shared);
	pthread_mutexattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
	pthread_mutex_init(&s->one_at_a_time, &shared);
	pthread_mutexattr_destroy(&shared);
	return s;
}

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "process %d: %s: %s\n", (int)getpid(), what, vb_strerror(err));
	exit(1);
}

/* Adds one under the lock; the token it was done with. */
static uint64_t add_one(struct vb_lock_client *me, struct storage *s)
{
	for (;;) {
		struct vb_grant grant;
		long number;
		int err, done;

		must(vb_lock_acquire(me, NUMBER, VB_EXCLUSIVE, VB_FOREVER_NS, &grant), "acquire");
		uint64_t token = grant.token;

		done = storage_access(s, token, &number, NULL);
		number++;
		if (done == 0)
			done = storage_access(s, token, NULL, &number);

		err = vb_lock_release(me, &grant);
		if (err !=
		    -VB_ELOST) /* lost: the storage has judged what we did, not the release */
			must(err, "release");
		if (done == 0)
			return token;
	}
}

static uint64_t work(struct vb_fabric *fabric, struct storage *s)
{
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	uint64_t token = 0;

	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "dslr",
					.locks = 100,
					.lease_ns = 2000000,
					.fencing = true,
				},
				&space),
	     "open the lock space");
	must(vb_lock_client_open(space, 0, &me), "open a client");
	for (int i = 0; i < ROUNDS; i++) {
		uint64_t next = add_one(me, s);

		if (next <= token) {
			fprintf(stderr, "token %llu after %llu\n", (unsigned long long)next,
				(unsigned long long)token);
			exit(1);
		}
		token = next;
	}
	vb_lock_client_close(me);
	vb_lock_space_close(space);
	return token;
}

int main(void)
{
	struct storage *s = storage_make();
	struct vb_fabric *fabric;
	uint64_t refused;
	long number = -1;
	int status;
	pid_t child;

	if (s == NULL) {
		perror("mmap");
		return 1;
	}
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric),
	     "open the fabric");

	child = fork();
	if (child < 0) {
		perror("fork");
		return 1;
	}
	if (child == 0) {
		vb_fabric_after_fork(fabric);
		work(fabric, s);
		vb_fabric_close(fabric);
		return 0;
	}
	work(fabric, s);
	if (waitpid(child, &status, 0) != child || status != 0) {
		fprintf(stderr, "the other process failed\n");
		return 1;
	}
	vb_fabric_close(fabric);

	printf("%ld additions by two processes, %llu accesses refused\n", s->number,
	       (unsigned long long)s->refused);
	if (s->number != 2 * ROUNDS)
		return 1;

	/* Somebody wakes up with the token of long ago. */
	refused = s->refused;
	if (storage_access(s, 1, NULL, &number) != -EPERM || s->refused != refused + 1)
		return 1;
	printf("a write with an old token is refused\n");
	return 0;
}
