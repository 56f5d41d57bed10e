/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The smallest use: one client takes one lock.  Each thread of the process may open a client of its
 * own, and so may its children (fencing.c has one).
 *
 * The fabric has no name, so nothing is left behind in /dev/shm whatever happens.  Programs that are
 * to share the locks give it one: shared.c.
 */
#include <stdio.h>
#include <stdlib.h>

#include <verbena/lock.h>

#define ACCOUNT 42

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

int main(void)
{
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant grant;
	int err;

	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric),
	     "open the fabric");
	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "dslr",
					.locks = 1000,
					.lease_ns = 1000000000,
				},
				&space),
	     "open the lock space");
	must(vb_lock_client_open(space, 0, &me), "open a client");

	/* Wait for the lock for at most 100 ms. */
	err = vb_lock_acquire(me, ACCOUNT, VB_EXCLUSIVE, 100000000, &grant);
	if (vb_lock_outcome(err) != VB_GRANTED) {
		fprintf(stderr, "account %d is busy: %s\n", ACCOUNT, vb_strerror(err));
		return 1;
	}
	printf("holding lock %d for another %.3f s\n", ACCOUNT,
	       (double)(grant.valid_until_ns - vb_lock_now(me)) / 1e9);

	/* Before each step that must not happen twice: is it still ours?  The answer holds for this
	 * moment only; fencing.c shows how to close the gap. */
	if (vb_lock_valid(me, &grant))
		printf("working on account %d\n", ACCOUNT);

	err = vb_lock_release(me, &grant);
	if (err == -VB_ELOST)
		printf("the lease had run out before the release: somebody else may have worked on "
		       "it\n");
	else
		must(err, "release");

	/* A lock that is free is granted without waiting; several readers may hold it together. */
	must(vb_lock_try(me, ACCOUNT, VB_SHARED, &grant), "try");
	must(vb_lock_release(me, &grant), "release");
	printf("done\n");

	vb_lock_client_close(me);
	vb_lock_space_close(space);
	vb_fabric_close(fabric);
	return 0;
}
