/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Locks by name.  Threads that know nothing of each other's numbers take locks called "orders/0",
 * "orders/1", ...: each name has one lock, whoever asks, and no two names have the same.
 */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <verbena/names.h>

#define THREADS 3
#define ORDERS  20
#define ROUNDS  5

static struct vb_lock_space *space;
static struct vb_names *names;
static unsigned served[ORDERS]; /* guarded by the locks of that name */

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

static void *work(void *arg)
{
	struct vb_lock_client *me;
	struct vb_grant grant;
	uint64_t lock;
	char name[32];
	int err;

	(void)arg;
	must(vb_lock_client_open(space, 0, &me), "open a client");
	for (int i = 0; i < ROUNDS * ORDERS; i++) {
		int order = i % ORDERS;

		/* The first time it is looked for, or given its lock; later it is known. */
		snprintf(name, sizeof(name), "orders/%d", order);
		must(vb_names_lock(names, me, name, strlen(name), &lock), name);
		must(vb_lock_acquire(me, lock, VB_EXCLUSIVE, VB_FOREVER_NS, &grant), name);
		served[order]++;
		err = vb_lock_release(me, &grant);
		if (err != -VB_ELOST) /* lost: held for longer than its lease */
			must(err, "release");
	}
	vb_lock_client_close(me);
	return NULL;
}

/* Bytes, with no zero behind them. */
static int list(void *user, uint64_t lock, const void *name, size_t bytes)
{
	printf("lock %3llu  %.*s\n", (unsigned long long)lock, (int)bytes, (const char *)name);
	++*(int *)user;
	return 0;
}

int main(void)
{
	struct vb_fabric *fabric;
	struct vb_lock_client *me;
	pthread_t thread[THREADS];
	uint64_t lock;
	int n = 0;

	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric),
	     "open the fabric");
	must(vb_lock_space_open(fabric,
				&(struct vb_lock_space_params){
					.lock = "dslr",
					.locks = 1000,
					.lease_ns = 60000000000,
				},
				&space),
	     "open the lock space");
	/* Room for as many names as there are locks, and for more than there will be: names stay. */
	must(vb_names_open(space, NULL, &names), "open the names");

	for (int i = 0; i < THREADS; i++)
		if (pthread_create(&thread[i], NULL, work, NULL) != 0)
			return 1;
	for (int i = 0; i < THREADS; i++)
		pthread_join(thread[i], NULL);
	for (int i = 0; i < ORDERS; i++)
		if (served[i] != THREADS * ROUNDS)
			return 1;

	must(vb_lock_client_open(space, 0, &me), "open a client");
	must(vb_names_each(names, me, list, &n), "list the names");
	if (n != ORDERS || vb_names_find(names, me, "orders/99", 9, &lock) != -ENOENT)
		return 1;
	printf("%d names; nobody has asked for orders/99\n", n);

	vb_lock_client_close(me);
	vb_names_close(names);
	must(vb_lock_space_close(space), "close the lock space");
	must(vb_fabric_close(fabric), "close the fabric");
	return 0;
}
