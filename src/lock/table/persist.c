/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a lock server agent: which holds there are, for the agent that comes after it.
 *
 *	DIR/SPACE.NODE.WORKER      head (128 bytes) | record | record | ...
 *
 *	record, 72 bytes  +------+--------+------+--------+-------+-----+-----------+-------+------+
 *	                  | peer | number | lock | ticket | token | age | converted | kind  | seal |
 *	                  |      |        |      |        |       |     |           | modes |      |
 *	                  +------+--------+------+--------+-------+-----+-----------+-------+------+
 *
 * Only appended to.  Records are written before the answers that tell of them leave, so all that a
 * client knows of is in the file, even if the agent is killed at that moment.
 *
 * Whole.  An agent takes the file for complete only if the agent right before it wrote it: each
 * agent's life has a mark, drawn at random, in the segment and in the head.  A file of an earlier
 * boot counts only with `sync`, and if this segment has had no agent yet.  An agent that keeps
 * another file or none first marks the one before (HEAD_LEFT): the segment has its path, and the
 * head a number of the segment.  A file that is not whole is followed by a grace period, and the file
 * that is written in one is not whole either (HEAD_PARTIAL), until it is over.  The cases and the
 * reasons are in doc/locks/table.md, "Promises".
 *
 * When the file has grown past a bound, the present holds are written to a new file, which takes
 * its place by rename: at no moment is there none.  One process serves with it: it is locked
 * (fcntl, which a forked child does not inherit and the death of the process ends).
 */
#define VB_LOG_ROOM "lock"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/log.h"
#include "lock/table/table.h"

#define FILE_MAGIC 0x32304c4254425625ull /* "%VBTBL02" */
#define FILE_FIRST 0x31304c4254425625ull /* of a Verbena that had no marks */
#define BUFFER     128u
/* Beyond so many records, and so many for each that a new file begins with, it is written anew. */
#define COMPACT_RECORDS  16384u
#define COMPACT_PER_HOLD 4u
#define OPEN_TRIES       16
/* Between two looks whether the file is still there: a look costs as much as a record. */
#define LOOK_EVERY_NS 10000000ull

#define HEAD_SYNCED 1ull
/* Others have served since, whose grants are not in it. */
#define HEAD_LEFT 2ull
/* Begun in a grace period: there may be grants that are valid and not in it. */
#define HEAD_PARTIAL 4ull

struct head {
	uint64_t magic;
	/* Of the agent that writes it. */
	uint64_t mark;
	/* No ticket above this had been given. */
	uint64_t tickets;
	uint32_t worker, workers;
	uint64_t flags;
	/* The machine's boot in which it was written. */
	char boot[40];
	/* The segment whose agent writes it. */
	uint64_t segment;
	uint64_t reserved[4];
	uint64_t seal;
};
_Static_assert(sizeof(struct head) == 128, "as in the figure");

struct vb_locktab_file {
	struct vb_list in_process;
	const struct vb_lock_server *server;
	struct vb_locktab_keeper keeper;
	struct vb_locktab_life *life;
	char path[VB_LOCKTAB_PATH];
	dev_t dir_dev, dev;
	/* Of the directory; of the file in its place. */
	ino_t dir_ino, ino;
	pid_t pid;
	int fd;
	/* Beside it, while the file is written anew; -1: none. */
	int other;
	bool sync, failed, begins;
	/* In the buffer. */
	unsigned n;
	/* All; those that the file began with. */
	uint64_t records, first;
	/* When to look again whether it is there. */
	uint64_t look_ns;
	struct vb_locktab_record buffer[BUFFER];
};

/* ---- pieces ---- */

static uint64_t seal_record(const struct vb_locktab_record *r)
{
	return XXH3_64bits(r, offsetof(struct vb_locktab_record, seal));
}

static uint64_t seal_head(const struct head *h)
{
	return XXH3_64bits(h, offsetof(struct head, seal));
}

static void read_boot(char *to, size_t size)
{
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
	ssize_t n = fd < 0 ? 0 : read(fd, to, size - 1);

	to[n > 0 ? n : 0] = '\0';
	if (fd >= 0)
		close(fd);
}

#define MACHINE                                                                                    \
	{                                                                                          \
		.write = write, .unlink = unlink, .sync = fdatasync, .boot = read_boot             \
	}
const struct vb_locktab_io vb_locktab_machine = MACHINE;
struct vb_locktab_io vb_locktab_io = MACHINE;

static int write_all(int fd, const void *buf, size_t bytes)
{
	const char *at = buf;

	while (bytes > 0) {
		ssize_t n = vb_locktab_io.write(fd, at, bytes);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return n < 0 ? -errno : -EIO;
		at += n;
		bytes -= (size_t)n;
	}
	return 0;
}

/* Bytes read; less than wanted at the end of the file. */
static ssize_t read_some(int fd, void *buf, size_t bytes)
{
	size_t got = 0;

	while (got < bytes) {
		ssize_t n = read(fd, (char *)buf + got, bytes - got);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return -errno;
		if (n == 0)
			break;
		got += (size_t)n;
	}
	return (ssize_t)got;
}

uint64_t vb_locktab_seal_head(const void *head)
{
	return seal_head(head);
}

uint64_t vb_locktab_draw_mark(void)
{
	uint64_t mark = 0;

	while (mark == 0)
		if (getrandom(&mark, sizeof(mark), 0) != sizeof(mark))
			mark = vb_clock_ns();
	return mark;
}

/* ---- reading ---- */

/* A crash leaves a head of zeros, or a short one; anything else is another program's. */
static int check_head(const struct vb_locktab_file *f, const struct head *h, ssize_t n, bool *torn)
{
	const uint64_t magic = FILE_MAGIC;
	size_t begun = n < (ssize_t)sizeof(magic) ? (size_t)n : sizeof(magic);

	*torn = h->magic == 0 || (memcmp(&h->magic, &magic, begun) == 0 &&
				  (n < (ssize_t)sizeof(*h) || h->seal != seal_head(h)));
	if (n >= (ssize_t)sizeof(h->magic) && h->magic == FILE_FIRST)
		return vb_fail(-EINVAL,
			       "%s was written by an earlier version of Verbena, in a format that "
			       "this one does not read: when its grants have run out, remove it",
			       f->path);
	if (!*torn && h->magic != magic)
		return vb_fail(-EINVAL, "%s is no lock table's file: move it away", f->path);
	if (*torn)
		vb_warn("%s: its beginning is torn: nothing is taken from it", f->path);
	return 0;
}

/* *ours: its holds are ours to take; *whole: none can be missing. */
static void judge_head(const struct vb_locktab_file *f, const struct head *h, bool *ours,
		       bool *whole)
{
	const struct vb_locktab_life *life = f->life;
	char boot[sizeof(h->boot)] = "";
	bool same_boot, alike = h->workers == f->server->workers;

	vb_locktab_io.boot(boot, sizeof(boot));
	same_boot = strcmp(boot, h->boot) == 0;
	*ours = !(h->flags & HEAD_LEFT) && (same_boot ? h->mark == life->mark : life->lives == 0);
	*whole = *ours && alike && !(h->flags & HEAD_PARTIAL) &&
		 (same_boot || h->flags & HEAD_SYNCED);
	if (!*ours)
		vb_warn("%s was not written by the agent before this one: no holds are taken from "
			"it",
			f->path);
}

static int replay(struct vb_locktab_file *f, bool *whole, uint64_t *tickets)
{
	struct vb_locktab_record rec;
	bool torn = true, ours;
	struct head h = {0};
	ssize_t n = read_some(f->fd, &h, sizeof(h));
	int err = n < 0 ? (int)n : check_head(f, &h, n, &torn);

	if (err != 0 || torn)
		return err;
	judge_head(f, &h, &ours, whole);
	*tickets = h.tickets;
	while ((n = read_some(f->fd, &rec, sizeof(rec))) == sizeof(rec)) {
		if (rec.seal != seal_record(&rec))
			break;
		*tickets = rec.ticket > *tickets ? rec.ticket : *tickets;
		*tickets = rec.token > *tickets ? rec.token : *tickets;
		if (ours)
			f->keeper.found(f->keeper.ctx, &rec);
	}
	if (n < 0)
		return (int)n;
	if (n != 0) {
		*whole = false;
		vb_warn("%s: its end is torn; what stands before it is taken", f->path);
	}
	return 0;
}

/* ---- one at a time ---- */

static pthread_mutex_t served_mutex = PTHREAD_MUTEX_INITIALIZER;
static struct vb_list served = {.next = &served, .prev = &served};

static int busy(const struct vb_locktab_file *f)
{
	return vb_fail(-EBUSY,
		       "%s is another agent's, which serves with it now: give each application a "
		       "directory, or each space a name, of its own",
		       f->path);
}

/* The file lock below is a process's, and does not tell two agents in one process apart. */
static int enter(struct vb_locktab_file *f, bool tell)
{
	const char *name = strrchr(f->path, '/');
	int err = 0;

	f->pid = getpid();
	pthread_mutex_lock(&served_mutex);
	vb_list_for_each (it, &served) {
		struct vb_locktab_file *o = vb_container_of(it, struct vb_locktab_file, in_process);

		/* Inherited from a parent, it is the parent's. */
		if (o->pid == f->pid && o->dir_dev == f->dir_dev && o->dir_ino == f->dir_ino &&
		    strcmp(strrchr(o->path, '/'), name) == 0)
			err = -EBUSY;
	}
	if (err == 0)
		vb_list_push(&served, &f->in_process);
	pthread_mutex_unlock(&served_mutex);
	return err != 0 && tell ? busy(f) : err;
}

static void leave(struct vb_locktab_file *f)
{
	pthread_mutex_lock(&served_mutex);
	vb_list_remove(&f->in_process);
	pthread_mutex_unlock(&served_mutex);
}

static int lock_whole(int fd)
{
	struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};

	if (fcntl(fd, F_SETLK, &l) == 0)
		return 0;
	return errno == EACCES || errno == EAGAIN ? -EBUSY : -errno;
}

static bool in_place(struct vb_locktab_file *f, int fd)
{
	struct stat mine, there;

	if (fstat(fd, &mine) != 0 || stat(f->path, &there) != 0)
		return false;
	f->dev = mine.st_dev;
	f->ino = mine.st_ino;
	return mine.st_dev == there.st_dev && mine.st_ino == there.st_ino;
}

/* Opens and locks the file, and makes it if there is none. */
static int open_locked(struct vb_locktab_file *f, bool *found)
{
	int err;

	for (int i = 0; i < OPEN_TRIES; i++) {
		*found = true;
		f->fd = open(f->path, O_RDWR | O_CLOEXEC);
		if (f->fd < 0 && errno == ENOENT) {
			*found = false;
			f->fd = open(f->path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
		}
		if (f->fd < 0 && errno == EEXIST)
			continue;
		if (f->fd < 0)
			return -errno;
		err = lock_whole(f->fd);
		/* Its owner may have put another in its place meanwhile. */
		if (err != 0 || in_place(f, f->fd))
			return err;
		close(f->fd);
		f->fd = -1;
	}
	return -EBUSY;
}

/* The file's absolute path: the next agent may have another working directory. */
static int name_file(const struct vb_lock_server *s, char path[VB_LOCKTAB_PATH])
{
	const char *dir = ((const struct vb_locktab_options *)s->space->options)->persist;
	char *whole = realpath(dir, NULL);
	int n;

	if (whole == NULL)
		return vb_fail(-errno, "persist=%s: %s; make that directory", dir, strerror(errno));
	n = snprintf(path, VB_LOCKTAB_PATH - 4, "%s/%s.%u.%u", whole, s->space->name, s->node,
		     s->worker);
	(free)(whole);
	if (n >= (int)VB_LOCKTAB_PATH - 4 || strchr(s->space->name, '/') != NULL)
		return vb_fail(-EINVAL,
			       "persist=%s: the path is too long, or the space's name '%s' is no "
			       "file's name",
			       dir, s->space->name);
	return 0;
}

static void directory_of(const char *path, char dir[VB_LOCKTAB_PATH])
{
	size_t n = (size_t)(strrchr(path, '/') - path);

	memcpy(dir, path, n);
	strcpy(dir + n, n > 0 ? "" : "/");
}

static int look_at_directory(struct vb_locktab_file *f)
{
	char dir[VB_LOCKTAB_PATH];
	struct stat st;

	directory_of(f->path, dir);
	if (stat(dir, &st) != 0)
		return -errno;
	f->dir_dev = st.st_dev;
	f->dir_ino = st.st_ino;
	return 0;
}

/* The name, too, is on the disk only when its directory is. */
static int sync_directory(const char *path)
{
	char dir[VB_LOCKTAB_PATH];
	int fd, err = 0;

	directory_of(path, dir);
	fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (fd < 0 || fsync(fd) != 0)
		err = -errno;
	if (fd >= 0)
		close(fd);
	return err;
}

/* ---- the file of an agent before ---- */

/* An agent that finds the mark knows that the file is not complete, whatever has become of the
 * segment.  If the head is torn over that, nothing is taken from the file. */
static int mark_left(int fd, struct head *h)
{
	int err;

	h->flags |= HEAD_LEFT;
	h->seal = seal_head(h);
	err = lseek(fd, 0, SEEK_SET) != 0 ? -errno : write_all(fd, h, sizeof(*h));
	if (err == 0 && h->flags & HEAD_SYNCED && vb_locktab_io.sync(fd) != 0)
		err = -errno;
	return err;
}

/* 0 also if this segment's agents have not written it, or others have written over it. */
static int leave_ours(struct vb_locktab_file *f)
{
	struct head h = {0};
	int err;

	f->fd = open(f->path, O_RDWR | O_CLOEXEC);
	if (f->fd < 0)
		return -errno;
	err = lock_whole(f->fd);
	if (err == -EBUSY || (err == 0 && !in_place(f, f->fd)))
		return 0; /* another agent serves with it */
	if (err == 0 && read_some(f->fd, &h, sizeof(h)) < 0)
		err = -EIO;
	if (err == 0 && h.seal == seal_head(&h) && h.segment == f->life->segment)
		err = mark_left(f->fd, &h);
	return err;
}

int vb_locktab_file_forget(const struct vb_lock_server *s)
{
	bool keeps = ((const struct vb_locktab_options *)s->space->options)->persist != NULL;
	struct vb_locktab_file f = {.server = s, .life = vb_locktab_life_of(s), .fd = -1};
	char own[VB_LOCKTAB_PATH];
	int err = keeps ? name_file(s, own) : 0;

	if (err != 0 || !f.life->kept || (keeps && strcmp(f.life->path, own) == 0))
		return err;
	memcpy(f.path, f.life->path, sizeof(f.path));
	err = look_at_directory(&f);
	if (err == 0 && enter(&f, false) == 0) {
		err = leave_ours(&f);
		if (f.fd >= 0)
			close(f.fd);
		leave(&f);
	}
	if (err != 0 && err != -ENOENT)
		return vb_fail(
			err,
			"%s, which agents before this one have kept, cannot be removed (%s): "
			"what follows will not stand in it; remove it, or begin with it",
			f.path, strerror(-err));
	f.life->kept = 0;
	return 0;
}

/* Before a file of ours is in place. */
static void remember(struct vb_locktab_file *f)
{
	struct vb_locktab_life *life = f->life;

	if (life->segment == 0)
		life->segment = vb_locktab_draw_mark();
	if (life->kept)
		return;
	memcpy(life->path, f->path, sizeof(f->path));
	__atomic_store_n(&life->kept, 1, __ATOMIC_RELEASE);
}

/* ---- opening ---- */

int vb_locktab_file_open(const struct vb_lock_server *s, const struct vb_locktab_keeper *k,
			 struct vb_locktab_found *found, struct vb_locktab_file **out)
{
	struct vb_locktab_file *f = calloc(1, sizeof(*f));
	bool there;
	int err;

	*found = (struct vb_locktab_found){0};
	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock server's file");
	f->server = s;
	f->keeper = *k;
	f->life = vb_locktab_life_of(s);
	f->fd = f->other = -1;
	f->sync = ((const struct vb_locktab_options *)s->space->options)->sync;
	f->begins = true;
	vb_list_init(&f->in_process);
	err = name_file(s, f->path);
	if (err == 0)
		err = look_at_directory(f);
	if (err == 0)
		err = enter(f, true);
	if (err != 0) {
		free(f);
		return err;
	}
	err = open_locked(f, &there);
	if (err == -EBUSY)
		busy(f);
	else if (err != 0)
		vb_error("%s cannot be opened: %s", f->path, vb_strerror(err));
	if (err == 0 && there) {
		found->earlier = true;
		err = replay(f, &found->whole, &found->tickets);
	}
	if (err != 0) {
		vb_locktab_file_close(f);
		return err;
	}
	*out = f;
	return 0;
}

void vb_locktab_file_bury(struct vb_locktab_file *f)
{
	if (f == NULL)
		return;
	if (f->fd >= 0)
		close(f->fd);
	if (f->other >= 0)
		close(f->other);
	leave(f);
	free(f);
}

void vb_locktab_file_close(struct vb_locktab_file *f)
{
	vb_locktab_file_commit(f);
	vb_locktab_file_bury(f);
}

/* ---- writing ---- */

/* Grants go on, since their leases make them safe.  Nobody may take the file for complete: it is
 * marked, or else removed; and if that fails, the segment gets another mark. */
static void give_up(struct vb_locktab_file *f, int err)
{
	struct head h;
	struct stat st;

	if (f->failed)
		return;
	f->failed = true;
	f->n = 0;
	/* Before an agent has begun, the file of the one before it stays. */
	if (f->begins) {
		vb_error("%s cannot be written: %s", f->path, vb_strerror(err));
		return;
	}
	vb_error("%s cannot be written any more (%s): from now on no file is kept, and the next "
		 "agent begins with a grace period of one lease; see to the directory, and begin "
		 "the agent again",
		 f->path, vb_strerror(err));
	__atomic_store_n(&f->life->mark, vb_locktab_draw_mark(), __ATOMIC_RELEASE);
	if (stat(f->path, &st) != 0 || st.st_dev != f->dev || st.st_ino != f->ino)
		return;
	/* What is being written may not be in its place yet. */
	if (fstat(f->fd, &st) == 0 && st.st_dev == f->dev && st.st_ino == f->ino &&
	    pread(f->fd, &h, sizeof(h), 0) == sizeof(h) && mark_left(f->fd, &h) == 0)
		return;
	if (vb_locktab_io.unlink(f->path) != 0 && f->sync)
		vb_error("%s can be neither marked nor removed: remove it before this machine "
			 "boots again, or the agent will take it for all there is",
			 f->path);
}

/* A file without a name takes all that is written to it, and nobody finds it again. */
static bool was_removed(struct vb_locktab_file *f)
{
	uint64_t now = vb_ep_now_coarse(f->server->ep);
	struct stat st;

	if (now < f->look_ns)
		return false;
	f->look_ns = now + LOOK_EVERY_NS;
	return fstat(f->fd, &st) == 0 && st.st_nlink == 0;
}

static int write_out(struct vb_locktab_file *f)
{
	int err = write_all(f->fd, f->buffer, f->n * sizeof(f->buffer[0]));

	f->records += f->n;
	f->n = 0;
	return err;
}

void vb_locktab_file_commit(struct vb_locktab_file *f)
{
	int err;

	if (f == NULL || f->n == 0 || f->failed || f->fd < 0)
		return;
	err = write_out(f);
	if (err == 0 && was_removed(f))
		err = -ENOENT;
	if (err == 0 && f->sync && vb_locktab_io.sync(f->fd) != 0)
		err = -errno;
	if (err != 0)
		give_up(f, err);
}

void vb_locktab_file_put(struct vb_locktab_file *f, const struct vb_locktab_record *rec)
{
	struct vb_locktab_record *to;
	int err;

	if (f->failed)
		return;
	to = &f->buffer[f->n++];
	*to = *rec;
	to->seal = seal_record(to);
	if (f->n < BUFFER)
		return;
	err = write_out(f);
	if (err != 0)
		give_up(f, err);
}

bool vb_locktab_file_grown(const struct vb_locktab_file *f, unsigned holds)
{
	uint64_t least = f->first > holds ? f->first : holds;

	return !f->failed && f->records > COMPACT_RECORDS && f->records > COMPACT_PER_HOLD * least;
}

static void close_other(struct vb_locktab_file *f)
{
	close(f->other);
	f->other = -1;
}

/* Beside the one that there is. */
static int begin_new(struct vb_locktab_file *f, const char *path, const struct vb_locktab_start *as)
{
	struct head h = {.magic = FILE_MAGIC,
			 .mark = as->mark,
			 .tickets = as->tickets,
			 .worker = f->server->worker,
			 .workers = f->server->workers,
			 .segment = f->life->segment,
			 .flags = (f->sync ? HEAD_SYNCED : 0) | (as->partial ? HEAD_PARTIAL : 0)};
	int err;

	f->other = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
	if (f->other < 0)
		return -errno;
	vb_locktab_io.boot(h.boot, sizeof(h.boot));
	h.seal = seal_head(&h);
	err = lock_whole(f->other);
	if (err == 0)
		err = write_all(f->other, &h, sizeof(h));
	if (err == 0)
		return 0;
	close_other(f);
	(void)unlink(path);
	return err;
}

/* What is written to the new file is in its place: errors are told by the caller. */
static int fill_and_place(struct vb_locktab_file *f, const char *fresh)
{
	struct stat st;
	int err;

	f->keeper.all(f->keeper.ctx, f);
	err = f->failed ? -EIO : write_out(f);
	if (err == 0 && ((f->sync && vb_locktab_io.sync(f->fd) != 0) || fstat(f->fd, &st) != 0 ||
			 rename(fresh, f->path) != 0))
		err = -errno;
	if (err == 0) {
		f->dev = st.st_dev;
		f->ino = st.st_ino;
		err = f->sync ? sync_directory(f->path) : 0;
	}
	return err;
}

int vb_locktab_file_compact(struct vb_locktab_file *f, const struct vb_locktab_start *as)
{
	char fresh[sizeof(f->path) + 4];
	int old, err;

	if (f == NULL || f->failed)
		return 0;
	snprintf(fresh, sizeof(fresh), "%s.new", f->path);
	remember(f);
	err = begin_new(f, fresh, as);
	if (err != 0) {
		give_up(f, err);
		return err;
	}
	old = f->fd;
	f->fd = f->other;
	f->other = old;
	/* What has not been committed yet is among the present holds. */
	f->n = 0;
	f->records = 0;
	err = fill_and_place(f, fresh);
	close_other(f);
	if (err != 0) {
		(void)unlink(fresh);
		give_up(f, err);
		return err;
	}
	f->first = f->records;
	f->begins = false;
	return 0;
}
