/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread pool.  Requests need a lock each, and none has a thread of its own: whichever thread is free goes
 * on with the request whose lock has come, and yet another one may give the lock back.  So their clients are
 * on a host, a thread of the library's, and any thread may call them.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include <verbena/host.h>

#define THREADS  4
#define REQUESTS 32
#define ACCOUNTS 5
#define ROUNDS   20

struct request {
	struct vb_lock_client *client;
	struct vb_grant grant;
	uint64_t account;
	unsigned rounds;
	bool holds;
};

static struct vb_host *host;
static struct vb_ring *ring;
/* Each its lock's holder's. */
static unsigned long balance[ACCOUNTS];

static void must(int err, const char *what)
{
	if (err >= 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

/* On a host's ring all is under way, and comes back to whoever reaps it. */
static void ask(struct request *r)
{
	must(vb_lock_acquire_start(ring, r->client, r->account, VB_EXCLUSIVE, VB_FOREVER_NS,
				   &r->grant, r, NULL),
	     "acquire");
}

/* Something that the request waited for has ended. */
static void go_on(struct request *r)
{
	if (!r->holds) {
		r->holds = true;
		balance[r->account]++;
		must(vb_lock_release_start(ring, r->client, &r->grant, r, NULL), "release");
		return;
	}
	r->holds = false;
	if (++r->rounds < ROUNDS)
		ask(r);
}

static void *work(void *arg)
{
	struct vb_completion done;
	int err, n;

	(void)arg;
	/* Until nothing is under way: all have been served. */
	while ((err = vb_ring_wait(ring, VB_FOREVER_NS)) == 0) {
		n = vb_ring_reap(ring, &done, 1);
		must(n, "reap");
		/* Another thread may have been quicker. */
		if (n == 0)
			continue;
		must(done.result, "a request's lock");
		go_on(done.tag);
	}
	if (err != -ENOENT)
		must(err, "wait");
	return NULL;
}

int main(void)
{
	const struct vb_lock_space_params sp = {.lock = "mcs", .locks = ACCOUNTS};
	static struct request request[REQUESTS];
	pthread_t thread[THREADS];
	struct vb_lock_space *space;
	struct vb_fabric *fabric;
	unsigned long sum = 0;

	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric), "fabric");
	must(vb_lock_space_open(fabric, &sp, &space), "lock space");
	must(vb_host_open(NULL, &host), "host");
	must(vb_host_ring_open(host, NULL, &ring), "ring");
	for (unsigned i = 0; i < REQUESTS; i++) {
		request[i].account = i % ACCOUNTS;
		must(vb_host_client_open(host, space, 0, &request[i].client), "client");
	}
	for (unsigned i = 0; i < REQUESTS; i++)
		ask(&request[i]);
	for (unsigned i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, work, NULL) != 0)
			exit(1);
	for (unsigned i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);

	/* Calls that wait are any thread's as well. */
	for (uint64_t a = 0; a < ACCOUNTS; a++) {
		struct vb_grant g;

		must(vb_lock_acquire(request[0].client, a, VB_EXCLUSIVE, VB_FOREVER_NS, &g),
		     "acquire");
		sum += balance[a];
		must(vb_lock_release(request[0].client, &g), "release");
	}
	printf("%d threads served %d requests, %lu times in all\n", THREADS, REQUESTS, sum);
	for (unsigned i = 0; i < REQUESTS; i++)
		vb_lock_client_close(request[i].client);
	must(vb_ring_close(ring), "close the ring");
	must(vb_host_close(host), "close the host");
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return sum == REQUESTS * ROUNDS ? 0 : 1;
}
