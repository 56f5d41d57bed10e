/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The files of a seed's lock servers: real ones, in a folder of the seed's own, behind a disk that
 * the seed rules.  A server dies in the middle of a write, of which some bytes are there; the disk
 * is full for a while; a server begins with another folder, or without one; a machine crashes, and
 * what had not been brought to its disk is lost or torn.  What is in the files,
 * and what becomes of it, does not depend on their names, nor on the machine's disk.
 */
#define VB_LOG_ROOM "check"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "check/lock/explore_inner.h"
#include "lock/table/table.h"

#define FILES_STREAM 0x66696c73
/* More than are in use at a time. */
#define SYNCED_FILES 16u

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

/* In the midst of what it writes. */
static bool falls(struct explore *x, const struct vb_lock_server *server)
{
	return server != NULL && x->ends_soon && x->fallen == NULL && x->d->p_torn > 0 &&
	       vb_rng_chance(&x->disk, x->d->p_torn);
}

/* For a while. */
static bool is_full(struct explore *x)
{
	uint64_t now = vb_sched_now(x->sched);

	if (x->d->p_full > 0 && vb_rng_chance(&x->disk, x->d->p_full))
		x->full_until_ns = now + vb_rng_below(&x->disk, 2 * x->d->serve_max_ns);
	return now < x->full_until_ns;
}

/* How much of the beginning of each file has been brought to the disk, and outlives a crash. */
static __thread struct {
	ino_t ino;
	off_t bytes;
} synced[SYNCED_FILES];

static off_t synced_bytes(ino_t ino)
{
	for (unsigned i = 0; i < SYNCED_FILES; i++)
		if (synced[i].ino == ino)
			return synced[i].bytes;
	return 0;
}

static void note_synced(ino_t ino, off_t bytes)
{
	unsigned i = 0;

	while (i < SYNCED_FILES && synced[i].ino != ino)
		i++;
	/* Of one that is new the oldest makes room: it is in use no more. */
	i = i < SYNCED_FILES ? i : SYNCED_FILES - 1;
	memmove(&synced[1], &synced[0], i * sizeof(synced[0]));
	synced[0].ino = ino;
	synced[0].bytes = bytes;
}

/* An inode may have been another file's. */
static void note_begun(int fd)
{
	struct stat st;

	if (fstat(fd, &st) == 0 && st.st_size == 0)
		note_synced(st.st_ino, 0);
}

static ssize_t write_somehow(int fd, const void *buf, size_t bytes)
{
	struct explore *x = keeping;
	struct vb_lock_server *server = caller(x);

	if (x->d->crashes)
		note_begun(fd);
	if (x->live || !x->disk_is_bad)
		return write(fd, buf, bytes);
	if (falls(x, server)) {
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

/* A server may die before it has got through. */
static int sync_somehow(int fd)
{
	struct explore *x = keeping;
	struct vb_lock_server *server = caller(x);
	struct stat st;

	if (!x->live && falls(x, server))
		fall(x, server);
	if (fstat(fd, &st) != 0)
		return -1;
	note_synced(st.st_ino, st.st_size);
	return 0;
}

/* Of what came since it was brought to the disk some is there, or zeros in its place. */
static void tear(struct explore *x, int fd)
{
	static const char zeros[64];
	struct stat st;
	off_t from, to;

	if (fstat(fd, &st) != 0)
		return;
	from = synced_bytes(st.st_ino);
	if (from >= st.st_size)
		return;
	to = from + (off_t)vb_rng_below(&x->disk, (uint64_t)(st.st_size - from) + 1);
	if (ftruncate(fd, to) != 0)
		return;
	for (off_t at = from; at < to; at += (off_t)sizeof(zeros)) {
		size_t n = to - at < (off_t)sizeof(zeros) ? (size_t)(to - at) : sizeof(zeros);

		if (vb_rng_chance(&x->disk, 0.3) && pwrite(fd, zeros, n, at) < 0)
			return;
	}
}

/* Files by their names, so that a seed draws for each the same again. */
void explore_crash(struct explore *x, unsigned node)
{
	char path[EXPLORE_FOLDER + 64];

	x->boots[node]++;
	for (unsigned i = 0; i < 2 * WORKERS_MAX; i++) {
		int fd;

		snprintf(path, sizeof(path), "%s/%s.%u.%u%s", x->folder[0], x->space->name, node,
			 i / 2, i % 2 ? ".new" : "");
		fd = open(path, O_RDWR | O_CLOEXEC);
		if (fd < 0)
			continue;
		tear(x, fd);
		close(fd);
	}
}

static void name_boot(char *to, size_t size)
{
	const struct explore *x = keeping;
	const struct vb_lock_server *server = caller(x);
	unsigned node = server != NULL ? server->node : x->begins_on;

	snprintf(to, size, "explored %u.%u", node, x->boots[node]);
}

/* ---- folders ---- */

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
	options_of(x)->sync = x->d->crashes;
	memset(synced, 0, sizeof(synced));
	keeping = x;
	vb_locktab_io = (struct vb_locktab_io){.write = write_somehow,
					       .unlink = unlink_somehow,
					       .sync = sync_somehow,
					       .boot = name_boot};
	return 0;
}

void explore_close_files(struct explore *x)
{
	if (!x->d->keeps_files)
		return;
	if (keeping == x)
		vb_locktab_io = vb_locktab_machine;
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
