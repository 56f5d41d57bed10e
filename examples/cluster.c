/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks between processes on a network: three of them find each other, the first holds the locks, the
 * others take one of them in turns.
 *
 *	cluster [tcp|ucx|verbs]    over TCP, through UCX, or on an RDMA card
 *
 * The same call in every process: whoever can bind the meeting address is the root.  Here one
 * program forks the three, before anything is opened; on three machines each starts its own, with
 * .meet the address of one of them, .bind its own, and an .auth_key_file, which is needed beyond
 * loopback.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <verbena/cluster.h>
#include <verbena/lock.h>

#define PROCESSES 3
#define CYCLES    200
#define ABSENT    77

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

/* Takes one lock again and again. */
static void work(struct vb_lock_space *space, unsigned rank)
{
	struct vb_lock_client *me;
	struct vb_grant grant;
	uint64_t lost = 0;

	/* A client belongs to a node, and node n lives in the process of rank n. */
	must(vb_lock_client_open(space, (uint16_t)rank, &me), "open a client");
	for (unsigned i = 0; i < CYCLES; i++) {
		must(vb_lock_acquire(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &grant), "acquire");
		if (vb_lock_release(me, &grant) != 0)
			lost++;
	}
	printf("rank %u: %u cycles, %llu grants lost\n", rank, CYCLES, (unsigned long long)lost);
	vb_lock_client_close(me);
}

static int process(const char *over, const char *meet)
{
	struct vb_lock_server *server = NULL;
	struct vb_cluster *cluster;
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	unsigned rank;
	int err;

	must(vb_cluster_open(&(struct vb_cluster_params){.hosts = PROCESSES,
							 .meet = meet,
							 .config = "app=example\n"},
			     &cluster),
	     "open the cluster");
	rank = vb_cluster_rank(cluster);
	/* Generous, for a machine with other work: a verb later than `bound` does not happen.  With verbs
	 * the bound follows from the card's retransmissions. */
	err = vb_fabric_open(&(struct vb_fabric_params){.fabric = over,
							.options = strcmp(over, "verbs") == 0
									   ? NULL
									   : "bound=500ms",
							.nodes = PROCESSES,
							.cluster = cluster},
			     &fabric);
	if (err == -ENODEV)
		return ABSENT; /* no UCX, or no card; the log says so */
	must(err, "open the fabric");

	/* The locks lie on node 0, which makes them and serves them before the others come. */
	if (rank != 0)
		must(vb_cluster_barrier(cluster), "wait for the locks");
	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "shiftlock", .locks = 1000, .lease_ns = 2000000000},
				&space),
	     "open the lock space");
	if (rank == 0) {
		must(vb_lock_server_start(space, 0, 0, 1, &server), "start the lock server");
		must(vb_cluster_barrier(cluster), "wait for the others");
	} else {
		work(space, rank);
	}
	/* This thread serves while it waits here. */
	must(vb_cluster_barrier(cluster), "wait for the end");

	if (server != NULL)
		vb_lock_server_stop(server);
	vb_lock_space_close(space);
	vb_fabric_close(fabric);
	vb_cluster_close(cluster);
	return 0;
}

int main(int argc, char **argv)
{
	const char *over = argc > 1 ? argv[1] : "tcp";
	char meet[32];
	int bad = 0;

	snprintf(meet, sizeof(meet), "127.0.0.1:%d", 20000 + (int)getpid() % 10000);
	for (unsigned i = 0; i < PROCESSES; i++) {
		fflush(NULL);
		if (fork() == 0)
			exit(process(over, meet));
	}
	for (unsigned i = 0; i < PROCESSES; i++) {
		int status;

		wait(&status);
		bad |= WIFEXITED(status) ? WEXITSTATUS(status) : 1;
	}
	return bad;
}
