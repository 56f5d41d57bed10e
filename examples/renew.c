/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Work of which nobody knows beforehand how long it takes, under a lock whose lease is short: if the
 * program dies the others wait for a lease or two, and while it lives it renews.
 *
 * Messages of the library go to a function of the program.
 */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <verbena/lock.h>

#define STEPS    8
#define LEASE_NS 200000000ull

static void say(void *user, const struct vb_log_message *m)
{
	fprintf(user, "(%s) %s\n", m->part, m->text);
}

static void must(int err, const char *what)
{
	if (err == 0)
		return;
	fprintf(stderr, "%s: %s\n", what, vb_strerror(err));
	exit(1);
}

/* A part of the work, much shorter than a lease. */
static void step(int i)
{
	const struct timespec some = {.tv_nsec = 40000000};

	nanosleep(&some, NULL);
	printf("step %d\n", i);
}

int main(void)
{
	struct vb_lock_server *server;
	struct vb_fabric *fabric;
	struct vb_lock_space *space;
	struct vb_lock_client *me;
	struct vb_grant grant;
	int err;

	must(vb_log_set(say, stdout), "take the log");
	must(vb_fabric_open(&(struct vb_fabric_params){.fabric = "shm"}, &fabric), "open a fabric");
	must(vb_lock_space_open(
		     fabric,
		     &(struct vb_lock_space_params){
			     .lock = "table", .locks = 100, .lease_ns = LEASE_NS, .fencing = true},
		     &space),
	     "open a lock space");
	must(vb_lock_server_thread_start(space, 0, &server), "start its server");
	must(vb_lock_client_open(space, 0, &me), "open a client");

	must(vb_lock_acquire(me, 7, VB_EXCLUSIVE, VB_FOREVER_NS, &grant), "acquire");
	for (int i = 0; i < STEPS; i++) {
		/* Enough is left for two steps, or there will be. */
		if (grant.valid_until_ns < vb_lock_now(me) + LEASE_NS / 2) {
			err = vb_lock_renew(me, &grant, VB_FOREVER_NS);
			if (err == -VB_ELOST)
				break;
			if (err != 0)
				printf("not renewed, %s; again before the next step\n",
				       vb_strerror(err));
		}
		/* The token goes with whatever is written: see fencing.c. */
		if (!vb_lock_valid(me, &grant))
			break;
		step(i);
	}
	err = vb_lock_release(me, &grant);
	if (err == -VB_ELOST)
		printf("this program was held up for longer than its lease\n");
	else
		must(err, "release");

	vb_lock_client_close(me);
	vb_lock_server_stop(server);
	must(vb_lock_space_close(space), "close the space");
	must(vb_fabric_close(fabric), "close the fabric");
	return 0;
}
