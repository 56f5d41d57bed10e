/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What does a lock cost on a network, and what does it cost to lose a holder?
 *
 * On the `sim` fabric the same calls run against a model of ConnectX-5 cards in virtual time: the
 * answers come at once, and the same seed gives the same answers on every machine.  One client
 * takes and gives back a free lock; then it takes the lock and says nothing any more, and another
 * waits.
 *
 * usage: simulate [SEED]
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <verbena/lock.h>

#define LOCK     3
#define PATIENCE 1000000000ull /* one virtual second */
#define SERVER   0             /* the node that holds the locks */

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

static void run(const char *lock, uint64_t seed)
{
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_server *server;
	struct vb_lock_client *first, *second;
	struct vb_grant grant, next;
	uint64_t t0, t1, t2;
	int err;

	must(vb_fabric_open(
		     &(struct vb_fabric_params){
			     .fabric = "sim", .options = "profile=cx5", .nodes = 3, .seed = seed},
		     &fabric),
	     "open the fabric");
	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = lock, .locks = 1000, .lease_ns = 10000000},
				&space),
	     "open the lock space");
	must(vb_lock_server_start(space, SERVER, 0, 1, &server), "start the lock server");
	must(vb_lock_client_open(space, 1, &first), "open a client");
	must(vb_lock_client_open(space, 2, &second), "open a client");

	t0 = vb_lock_now(first);
	must(vb_lock_acquire(first, LOCK, VB_EXCLUSIVE, PATIENCE, &grant), "acquire");
	t1 = vb_lock_now(first);
	must(vb_lock_release(first, &grant), "release");
	t2 = vb_lock_now(first);
	printf("%-14s  acquire %6.2f us  release %6.2f us  ", lock, (double)(t1 - t0) / 1e3,
	       (double)(t2 - t1) / 1e3);

	must(vb_lock_acquire(first, LOCK, VB_EXCLUSIVE, PATIENCE, &grant), "acquire");
	t0 = vb_lock_now(second);
	err = vb_lock_acquire(second, LOCK, VB_EXCLUSIVE, PATIENCE, &next);
	t1 = vb_lock_now(second);
	if (err == 0) {
		printf("holder lost: next grant after %.1f ms\n", (double)(t1 - t0) / 1e6);
		err = vb_lock_release(second, &next);
		if (err != -VB_ELOST)
			must(err, "release");
	} else if (err == -ETIMEDOUT) {
		printf("holder lost: so is the lock\n");
	} else {
		must(err, "acquire after the loss of the holder");
	}

	vb_lock_client_close(first); /* releases what it holds, or learns that it was lost */
	vb_lock_client_close(second);
	vb_lock_server_stop(server);
	vb_lock_space_close(space);
	vb_fabric_close(fabric);
}

int main(int argc, char **argv)
{
	static const char *const locks[] = {"cas", "cas-backoff", "retry-on-fail",  "drtm",
					    "mcs", "ncosed",      "dslr",           "shiftlock",
					    "rpc", "traditional", "traditional-ro", "rma-rw"};
	uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;

	for (size_t i = 0; i < sizeof(locks) / sizeof(locks[0]); i++)
		run(locks[i], seed);
	return 0;
}
