/* SPDX-License-Identifier: Apache-2.0 */
/*
 * usage: unloaded LIBRARY
 *
 * A plugin is unloaded while a keeper of its thread waits: the library stays, for its threads are
 * in it.
 */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <verbena/lock.h>

static void *get(void *library, const char *name)
{
	void *at = dlsym(library, name);

	if (at != NULL)
		return at;
	fprintf(stderr, "%s\n", dlerror());
	exit(1);
}

#define GET(name) __typeof__(name) *name##_ = get(library, #name)

static void leave_behind(void *library)
{
	const struct vb_fabric_params fp = {.node_bytes = 1 << 20};
	const struct vb_lock_space_params sp = {.lock = "mcs", .locks = 8};
	GET(vb_fabric_open);
	GET(vb_lock_space_open);
	GET(vb_lock_client_open);
	GET(vb_lock_acquire);
	struct vb_lock_client *a, *b;
	struct vb_lock_space *space;
	struct vb_fabric *f;
	struct vb_grant g;

	if (vb_fabric_open_(&fp, &f) == 0 && vb_lock_space_open_(f, &sp, &space) == 0 &&
	    vb_lock_client_open_(space, 0, &a) == 0 && vb_lock_client_open_(space, 0, &b) == 0 &&
	    vb_lock_acquire_(a, 5, VB_EXCLUSIVE, VB_FOREVER_NS, &g) == 0 &&
	    vb_lock_acquire_(b, 5, VB_EXCLUSIVE, 1000000, &g) != 0)
		return;
	fprintf(stderr, "no place in a queue was left behind\n");
	exit(1);
}

int main(int argc, char **argv)
{
	void *library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;

	if (library == NULL) {
		fprintf(stderr, "%s\n", argc == 2 ? dlerror() : "usage: unloaded LIBRARY");
		return 1;
	}
	leave_behind(library);
	dlclose(library);
	/* The keeper looks around every 10 ms. */
	nanosleep(&(struct timespec){.tv_nsec = 100000000}, NULL);
	return 0;
}
