/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a seed's lock servers: real ones, in a folder of the seed's own, behind a disk that
 * the seed rules.  A server dies in the middle of a write, of which some bytes are there; the disk
 * is full for a while; a server begins with another folder, or without one.  What is in the files,
 * and what becomes of it, does not depend on their names, nor on the machine's disk.
 */
#define VB_LOG_ROOM "check"
#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "check/lock/explore_inner.h"
#include "lock/table/table.h"

#define FILES_STREAM 0x66696c73

/* The run that this thread explores, while its servers keep files. */
static __thread struct explore *keeping;

static struct vb_locktab_options *options_of(const struct explore *x)
{
	return x->space->options;
}

static struct vb_lock_server *caller(const struct explore *x)
{
	for (unsigned i = 0; i < VB_ARRAY_SIZE(x->servers); i++)
		if (x->servers[i] != NULL && x->servers[i]->task == vb_task_self())
			return x->servers[i];
	return NULL;
}

/* Whoever ends servers takes this one, wherever it stands. */
static void fall(struct explore *x, struct vb_lock_server *server)
{
	x->fallen = server;
	vb_task_wake(x->ends);
	for (;;)
		vb_task_suspend_uninterruptible(VB_FOREVER);
}

/* For a while. */
static bool is_full(struct explore *x)
{
	uint64_t now = vb_sched_now(x->sched);

	if (x->d->p_full > 0 && vb_rng_chance(&x->disk, x->d->p_full))
		x->full_until_ns = now + vb_rng_below(&x->disk, 2 * x->d->serve_max_ns);
	return now < x->full_until_ns;
}

static ssize_t write_somehow(int fd, const void *buf, size_t bytes)
{
	struct explore *x = keeping;
	struct vb_lock_server *server = caller(x);

	if (x->live || !x->disk_is_bad)
		return write(fd, buf, bytes);
	if (server != NULL && x->ends_soon && x->d->p_torn > 0 &&
	    vb_rng_chance(&x->disk, x->d->p_torn)) {
		size_t there = vb_rng_below(&x->disk, bytes + 1);

		if (there > 0 && write(fd, buf, there) < 0)
			return -1;
		fall(x, server);
	}
	if (is_full(x)) {
		errno = ENOSPC;
		return -1;
	}
	return write(fd, buf, bytes);
}

static int unlink_somehow(const char *path)
{
	struct explore *x = keeping;

	if (!x->live && x->disk_is_bad && is_full(x) && vb_rng_chance(&x->disk, 0.5)) {
		errno = EROFS;
		return -1;
	}
	return unlink(path);
}

/* Machines do not crash here. */
static int sync_nothing(int fd)
{
	return 0;
}

static int make_folder(char path[EXPLORE_FOLDER])
{
	const char *tmp = getenv("TMPDIR");
	int n = snprintf(path, EXPLORE_FOLDER, "%s/verbena-check-XXXXXX",
			 tmp != NULL && tmp[0] != '\0' ? tmp : "/tmp");

	if (n >= EXPLORE_FOLDER || mkdtemp(path) == NULL) {
		int err = n >= EXPLORE_FOLDER ? -ENAMETOOLONG : -errno;

		path[0] = '\0';
		return vb_fail(err, "no folder for the files of lock servers in %s: %s (TMPDIR?)",
			       tmp != NULL ? tmp : "/tmp", strerror(-err));
	}
	return 0;
}

static void remove_folder(const char *path)
{
	DIR *dir = path[0] != '\0' ? opendir(path) : NULL;
	const struct dirent *e;

	while (dir != NULL && (e = readdir(dir)) != NULL)
		if (e->d_name[0] != '.')
			(void)unlinkat(dirfd(dir), e->d_name, 0);
	if (dir != NULL)
		closedir(dir);
	if (path[0] != '\0')
		(void)rmdir(path);
}

int explore_open_files(struct explore *x)
{
	int err = 0;

	if (!x->d->keeps_files)
		return 0;
	vb_rng_seed(&x->disk, x->d->seed, FILES_STREAM);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(x->folder) && err == 0; i++)
		err = make_folder(x->folder[i]);
	if (err != 0)
		return err;
	options_of(x)->persist = x->folder[0];
	keeping = x;
	vb_locktab_io = (struct vb_locktab_io){
		.write = write_somehow, .unlink = unlink_somehow, .sync = sync_nothing};
	return 0;
}

void explore_close_files(struct explore *x)
{
	if (!x->d->keeps_files)
		return;
	if (keeping == x)
		vb_locktab_io =
			(struct vb_locktab_io){.write = write, .unlink = unlink, .sync = fdatasync};
	keeping = NULL;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(x->folder); i++)
		remove_folder(x->folder[i]);
}

void explore_choose_folder(struct explore *x)
{
	double how;

	if (!x->d->keeps_files || !x->d->moves_files)
		return;
	how = vb_rng_unit(&x->disk);
	options_of(x)->persist = how < 0.6 ? x->folder[0] : how < 0.8 ? x->folder[1] : NULL;
}

void explore_lose_segment(struct explore *x, uint16_t node)
{
	struct vb_locktab_life *all =
		vb_local(x->fabric, x->space->base[node], VB_LOCK_WORKERS_MAX * sizeof(*all));

	memset(all, 0, VB_LOCK_WORKERS_MAX * sizeof(*all));
}
