/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, joining and leaving the segment.
 *
 * A named segment is made without a name (O_TMPFILE), filled in completely, and then linked to its
 * name: nobody ever sees a half-made one, and an open that fails or is killed leaves nothing.  When
 * its name goes is in name.c.
 *
 * A file can be cut short by every process of its user, also while it is mapped, and then kills
 * whoever touches what is gone (SIGBUS).  Nothing can be done about that: Linux seals files that
 * have no name (memfd), and no others.
 */
#define VB_LOG_ROOM "shm"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define SHM_DIR        "/dev/shm"
#define NAME_MAX_CHARS 200
#define LINK_TRIES     16
#define ALLOCATE_CHUNK (64ull << 20)
#define EINTR_TRIES    100

static int set_path(struct shm_fabric *f, const char *name)
{
	if (name == NULL) {
		f->path[0] = '\0';
		return 0;
	}
	if (*name == '\0' || strlen(name) > NAME_MAX_CHARS || strchr(name, '/') != NULL)
		return vb_fail(
			-EINVAL,
			"segment name '%.40s%s': 1 to %d characters without '/' are possible", name,
			strlen(name) > 40 ? "..." : "", NAME_MAX_CHARS);
	snprintf(f->path, sizeof(f->path), SHM_DIR "/verbena.%s", name);
	return 0;
}

/* ---- sizes ---- */

static double mib(uint64_t bytes)
{
	return (double)bytes / (1 << 20);
}

/* What the kernel thinks it can give without swapping; UINT64_MAX where it does not say. */
static uint64_t memory_available(void)
{
	FILE *in = fopen("/proc/meminfo", "re");
	uint64_t kib = 0;
	char line[128];
	bool found = false;

	if (in == NULL)
		return UINT64_MAX;
	while (!found && fgets(line, sizeof(line), in) != NULL)
		found = sscanf(line, "MemAvailable: %" SCNu64, &kib) == 1;
	fclose(in);
	return found ? kib << 10 : UINT64_MAX;
}

static int check_size(const struct vb_fabric_params *p, const struct shm_layout *l, bool named)
{
	uint64_t free_bytes = memory_available();
	struct statvfs fs;

	if (l->total_bytes > free_bytes)
		return vb_fail(
			-ENOMEM,
			"a segment of %.1f MiB (%u nodes of %.1f MiB) does not fit: %.1f MiB of "
			"memory are available; use fewer locks or a smaller node_bytes",
			mib(l->total_bytes), p->nodes, mib(p->node_bytes), mib(free_bytes));
	if (!named || statvfs(SHM_DIR, &fs) != 0)
		return 0;
	free_bytes = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (l->total_bytes > free_bytes)
		return vb_fail(
			-ENOSPC,
			"a segment of %.1f MiB (%u nodes of %.1f MiB) does not fit: " SHM_DIR
			" has %.1f MiB free; use fewer locks or a smaller node_bytes, or enlarge "
			"it (mount -o remount,size=... " SHM_DIR ")",
			mib(l->total_bytes), p->nodes, mib(p->node_bytes), mib(free_bytes));
	return 0;
}

/* Takes the memory now: later a full file system would be a SIGBUS. */
static int allocate(int fd, uint64_t bytes)
{
	if (ftruncate(fd, (off_t)bytes) != 0)
		return vb_fail(-errno, "cannot size the segment to %.1f MiB: %s", mib(bytes),
			       strerror(errno));
	for (uint64_t at = 0; at < bytes; at += ALLOCATE_CHUNK) {
		uint64_t n = bytes - at < ALLOCATE_CHUNK ? bytes - at : ALLOCATE_CHUNK;
		int err = EINTR;

		for (unsigned i = 0; err == EINTR && i < EINTR_TRIES; i++)
			err = posix_fallocate(fd, (off_t)at, (off_t)n);
		if (err != 0)
			return vb_fail(
				err == ENOSPC ? -ENOSPC : -ENOMEM,
				"%.1f MiB of %.1f MiB for the segment could be had from " SHM_DIR
				": %s",
				mib(at), mib(bytes), strerror(err));
	}
	return 0;
}

/* ---- making and joining ---- */

/* The pointers into the mapping. */
static int settle(struct shm_fabric *f)
{
	struct shm_header *h = f->h;
	uint8_t *start = (uint8_t *)h;

	f->base = calloc(h->nodes, sizeof(*f->base));
	if (f->base == NULL)
		return vb_fail(-ENOMEM, "no memory for a table of %u nodes", h->nodes);
	for (uint32_t i = 0; i < h->nodes; i++)
		f->base[i] = start + h->memory_at + i * h->stride;
	f->directories = (struct shm_node *)(start + h->directories_at);
	f->endpoints = (struct shm_endpoint *)(start + h->endpoints_at);
	f->workers = (struct shm_worker *)(start + h->workers_at);
	f->users = (shm_process *)(start + h->users_at);
	f->held = (uint32_t *)(start + h->held_at);
	f->mail = (uint64_t *)(start + h->mail_at);
	f->rings = (struct shm_slot *)(start + h->rings_at);
	f->f.nodes = (uint16_t)h->nodes;
	f->f.node_bytes = h->node_bytes;
	f->f.seed = h->seed;
	return 0;
}

static int map(struct shm_fabric *f, uint64_t bytes)
{
	int flags = f->fd < 0 ? MAP_SHARED | MAP_ANONYMOUS : MAP_SHARED;
	void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, f->fd, 0);

	if (at == MAP_FAILED)
		return vb_fail(-ENOMEM, "cannot map a segment of %.1f MiB: %s", mib(bytes),
			       strerror(errno));
	f->h = at;
	f->bytes = bytes;
	return 0;
}

/* Above 2, where a program that was started without standard streams would write into it; and
 * remembered, for who closes descriptors that he does not know may get their numbers again. */
static int keep_fd(struct shm_fabric *f, int fd)
{
	struct stat st;
	int high = fcntl(fd, F_DUPFD_CLOEXEC, 3), err = errno;

	close(fd);
	f->fd = high;
	if (high < 0 || fstat(high, &st) != 0)
		return vb_fail(high < 0 ? -err : -EPROTO, "no descriptor for the segment: %s",
			       strerror(err));
	f->dev = st.st_dev;
	f->ino = st.st_ino;
	return 0;
}

static bool fd_is_ours(const struct shm_fabric *f)
{
	struct stat st;

	return f->fd >= 0 && fstat(f->fd, &st) == 0 && st.st_ino == f->ino && st.st_dev == f->dev;
}

static int create_file(struct shm_fabric *f, uint64_t bytes)
{
	int fd = open(SHM_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600), err = errno;

	if (fd < 0)
		return vb_fail(-err,
			       "cannot make a file in " SHM_DIR ": %s; without a name the "
			       "segment needs none",
			       strerror(err));
	err = keep_fd(f, fd);
	if (err != 0)
		return err;
	if (flock(f->fd, LOCK_SH | LOCK_NB) != 0)
		return vb_fail(-errno, "cannot lock a file in " SHM_DIR ": %s", strerror(errno));
	return allocate(f->fd, bytes);
}

/* Makes room for a new segment of that name: 0 if there is none (any more). */
static int clear_name(const char *path)
{
	enum shm_name_state state;
	int fd, err = shm_name_look(path, false, &fd, &state);

	if (err != 0 || state == SHM_NAME_NONE)
		return err;
	if (state == SHM_NAME_LEFT) {
		shm_name_remove(path, fd);
		return 0;
	}
	err = shm_name_fail_busy(path, fd);
	close(fd);
	return err;
}

static int fail_restless(const char *path)
{
	return vb_fail(-EBUSY, "%s keeps coming back: others are opening it too", path);
}

/* -EEXIST, not said, if `yield` and somebody was faster. */
static int give_name(struct shm_fabric *f, bool yield)
{
	char self[32];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", f->fd);
	for (unsigned i = 0; i < LINK_TRIES; i++) {
		int err;

		if (linkat(AT_FDCWD, self, AT_FDCWD, f->path, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		err = errno;
		if (err != EEXIST)
			return vb_fail(-err, "cannot make %s: %s", f->path, strerror(err));
		if (yield)
			return -EEXIST;
		err = clear_name(f->path);
		if (err != 0)
			return err;
	}
	return fail_restless(f->path);
}

static void let_go(struct shm_fabric *f, bool used)
{
	if (f->clock_held)
		vb_clock_let();
	f->clock_held = false;
	if (f->h != NULL) {
		shm_user_leave(f);
		(void)munmap(f->h, f->bytes);
	}
	if (fd_is_ours(f))
		close(f->fd);
	if (f->path[0] != '\0' && f->ino != 0)
		shm_name_leave(f, used);
	free(f->base);
	f->base = NULL;
	f->h = NULL;
	f->fd = -1;
	f->ino = 0;
}

void shm_segment_close(struct shm_fabric *f)
{
	let_go(f, true);
}

/* The name, if there is one, is not ours. */
static int give_up(struct shm_fabric *f, int err)
{
	f->path[0] = '\0';
	let_go(f, false);
	return err;
}

/* There is no such name now; -EEXIST as in give_name. */
static int create(const struct vb_fabric_params *p, const struct shm_options *o,
		  struct shm_fabric *f, bool yield)
{
	bool named = p->name != NULL;
	struct shm_layout l;
	unsigned ring_bits = 0;
	int err;

	while (1ull << ring_bits < o->ring)
		ring_bits++;
	shm_lay_out(p, ring_bits, &l);
	err = check_size(p, &l, named);
	if (err == 0 && named)
		err = create_file(f, l.total_bytes);
	if (err == 0)
		err = map(f, l.total_bytes);
	if (err == 0) {
		/* What is written there now is what it goes by. */
		f->clock_held = vb_clock_hold(NULL) == 0;
		err = shm_header_init(f->h, p, &l);
	}
	if (err == 0)
		err = settle(f);
	if (err == 0 && named) {
		shm_user_join(f);
		err = give_name(f, yield);
	}
	return err;
}

int shm_segment_create(const struct vb_fabric_params *p, const struct shm_options *o,
		       struct shm_fabric *f)
{
	int err;

	f->fd = -1;
	f->user = SHM_NO_USER;
	err = set_path(f, p->name);
	if (err == 0 && p->name != NULL)
		err = clear_name(f->path);
	if (err == 0)
		err = create(p, o, f, false);
	return err != 0 ? give_up(f, err) : 0;
}

static int fail_broken(const struct shm_fabric *f, const char *why)
{
	return vb_fail(-EPROTO,
		       "%s cannot be used: %s; end the programs that use it (fuser %s), remove it, "
		       "or choose another name",
		       f->path, why, f->path);
}

static int check_header(const struct shm_fabric *f, uint64_t *bytes)
{
	struct shm_header h = {0};
	char why[160] = "it is shorter than a header";
	struct stat st;
	int err = -EPROTO;

	if (fstat(f->fd, &st) == 0 && pread(f->fd, &h, sizeof(h), 0) == sizeof(h)) {
		*bytes = (uint64_t)st.st_size;
		err = shm_header_check(&h, *bytes, why, sizeof(why));
	}
	return err == -EPROTO ? fail_broken(f, why) : err;
}

static int join_tables(struct shm_fabric *f)
{
	char why[160];

	if (shm_tables_check(f, why, sizeof(why)) != 0)
		return fail_broken(f, why);
	f->clock_held = vb_clock_hold(&f->h->clock) == 0;
	if (!f->clock_held)
		return vb_fail(
			-EBUSY,
			"%s goes by another clock than the fabric or cluster that this process "
			"has open, whose leases would be off: open this segment first, or let "
			"one process make all segments that are used together",
			f->path);
	shm_user_join(f);
	return 0;
}

/* Joins what shm_name_look has found in use. */
static int join(struct shm_fabric *f)
{
	uint64_t bytes;
	int err = check_header(f, &bytes);

	if (err == 0)
		err = map(f, bytes);
	if (err == 0)
		err = settle(f);
	return err == 0 ? join_tables(f) : err;
}

/* 0: joined.  -ENOENT: there is none, or none that is used; said if `said`. */
static int attach(struct shm_fabric *f, const char *name, bool said)
{
	enum shm_name_state state;
	int fd, err = shm_name_look(f->path, true, &fd, &state);
	uint64_t bytes;

	if (err == 0 && fd >= 0)
		err = keep_fd(f, fd);
	if (err != 0)
		return err;
	switch (state) {
	case SHM_NAME_USED:
		return join(f);
	case SHM_NAME_NONE:
		return !said ? -ENOENT
			     : vb_fail(-ENOENT,
				       "there is no segment '%s' (%s): start its creator first, or "
				       "open it with attach_or_create",
				       name, f->path);
	case SHM_NAME_LEFT:
		break;
	}
	err = said ? check_header(f, &bytes) : 0;
	fd = f->fd;
	f->fd = -1;
	f->ino = 0;
	if (err != 0) {
		close(fd);
	} else if (said) {
		shm_name_remove_closed(f->path, fd);
		err = vb_fail(-ENOENT, "%s is left over: all who used it are gone", f->path);
	} else {
		shm_name_remove(f->path, fd);
		err = -ENOENT;
	}
	return err;
}

int shm_segment_attach(const struct vb_fabric_params *p, struct shm_fabric *f)
{
	int err;

	f->fd = -1;
	f->user = SHM_NO_USER;
	err = set_path(f, p->name);
	if (err == 0)
		err = attach(f, p->name, true);
	if (err != 0)
		let_go(f, false);
	return err;
}

/* What is there must be no less than what was asked for. */
static int compare(const struct shm_fabric *f, const struct vb_fabric_params *p)
{
	const struct shm_header *h = f->h;

	if (h->nodes == p->nodes && h->node_bytes >= p->node_bytes && h->endpoints >= p->endpoints)
		return 0;
	return vb_fail(
		-EPROTO,
		"%s exists with %u nodes of %.1f MiB and %u endpoints, and %u of %.1f MiB and "
		"%u are asked for: ask for what there is, or end all who use it",
		f->path, h->nodes, mib(h->node_bytes), h->endpoints, p->nodes, mib(p->node_bytes),
		p->endpoints);
}

int shm_segment_attach_or_create(const struct vb_fabric_params *p, const struct shm_options *o,
				 struct shm_fabric *f)
{
	for (unsigned i = 0; i < LINK_TRIES; i++) {
		int err;

		f->fd = -1;
		f->user = SHM_NO_USER;
		err = set_path(f, p->name);
		if (err == 0)
			err = attach(f, p->name, false);
		if (err == 0)
			err = compare(f, p);
		else if (err == -ENOENT)
			err = create(p, o, f, true);
		if (err == 0)
			return 0;
		if (err != -EEXIST) {
			let_go(f, false);
			return err;
		}
		/* Somebody was faster: his it is, unless he has gone again. */
		(void)give_up(f, err);
	}
	(void)set_path(f, p->name);
	return fail_restless(f->path);
}

/* A forked child shares its parent's lock; what it adds is its name.  What its parent holds it does not yet. */
void shm_segment_after_fork(struct shm_fabric *f)
{
	memset(f->holds, 0, sizeof(f->holds));
	if (f->path[0] != '\0')
		shm_user_join(f);
}
