/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Names of segments: what is there, who uses it, and who removes it.
 *
 * In use means: somebody holds a shared flock on the file, or is in the segment's table of users and
 * lives.  The lock is the one that counts while a segment is opened and left: the kernel gives it
 * back whenever and however a process ends, and forked children inherit it with the descriptor.
 * The table says who they are, and stands in for the lock where a program has closed a descriptor
 * that it did not know (daemons close all of them).
 *
 *	who joins     takes the shared lock, then sees that the name is still this file's
 *	who creates   has the shared lock before the name appears
 *	who leaves    gives its own lock back first, then tries for the exclusive one; whoever gets
 *	              it is the last, and unlinks the name while he holds it
 *	who finds one gets the exclusive lock only if nobody uses it: his to unlink
 *
 * So a name goes when the last user has gone, whoever created it, and while anybody uses a segment
 * no other can have its name.  Of two who leave at once the second to try gets the lock.  A leaver
 * can fail only because of somebody who looks at that moment; he finds the table of users empty, and
 * removes the name in the leaver's stead.  Users who were killed stay in the table, which is how a
 * segment that crashed users left is told from one that all have closed.
 */
#define VB_LOG_ROOM "shm"
#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define LOOK_TRIES  200 /* of a millisecond: somebody holds the exclusive lock to remove the name */
#define USERS_NAMED 4

/* ---- users ---- */

/* Without the table's mutex: who looks at the users of a name has no mapping yet.  A place is free,
 * or a dead process's, whose name cannot come again; what the dead one held seems to be held until
 * it is wiped, which keeps a region for a moment longer. */
void shm_user_join(struct shm_fabric *f)
{
	if (f->user != SHM_NO_USER && f->users[f->user] == shm_self())
		return; /* told twice */
	f->user = SHM_NO_USER;
	for (uint32_t i = 0; i < f->h->endpoints; i++) {
		shm_process was = __atomic_load_n(&f->users[i], __ATOMIC_RELAXED);

		if (was != 0 && shm_process_alive(was))
			continue;
		if (__atomic_compare_exchange_n(&f->users[i], &was, shm_self(), false,
						__ATOMIC_SEQ_CST, __ATOMIC_RELAXED)) {
			f->user = i;
			__atomic_store_n(&f->held[i], 0, __ATOMIC_SEQ_CST);
			return;
		}
	}
	vb_info("%s has more users than endpoints: this one is not listed", f->path);
}

void shm_user_leave(struct shm_fabric *f)
{
	shm_process self = shm_self();

	/* A forked child that nobody told has its parent's place, and leaves it alone. */
	if (f->user != SHM_NO_USER && f->users[f->user] == self)
		__atomic_store_n(&f->held[f->user], 0, __ATOMIC_SEQ_CST);
	if (f->user != SHM_NO_USER)
		__atomic_compare_exchange_n(&f->users[f->user], &self, 0, false, __ATOMIC_SEQ_CST,
					    __ATOMIC_RELAXED);
	f->user = SHM_NO_USER;
}

struct users {
	bool known; /* the table could be read */
	unsigned listed, live;
	pid_t pid[USERS_NAMED]; /* of those who live */
};

static void count_users(const shm_process *at, unsigned n, struct users *u)
{
	for (unsigned i = 0; i < n; i++) {
		if (at[i] == 0)
			continue;
		u->listed++;
		if (!shm_process_alive(at[i]))
			continue;
		if (u->live < USERS_NAMED)
			u->pid[u->live] = (pid_t)(at[i] >> 32);
		u->live++;
	}
}

/* Of a file whose header cannot be believed nothing is known but the lock. */
static void users_of(int fd, struct users *u)
{
	struct shm_header h;
	struct stat st;
	char why[160];
	shm_process some[512];

	*u = (struct users){0};
	if (fstat(fd, &st) != 0 || pread(fd, &h, sizeof(h), 0) != sizeof(h) ||
	    shm_header_check(&h, (uint64_t)st.st_size, why, sizeof(why)) != 0)
		return;
	u->known = true;
	for (uint32_t i = 0; i < h.endpoints; i += VB_ARRAY_SIZE(some)) {
		uint32_t n = h.endpoints - i;
		ssize_t got;

		if (n > VB_ARRAY_SIZE(some))
			n = VB_ARRAY_SIZE(some);
		got = pread(fd, some, n * sizeof(*some), (off_t)(h.users_at + i * sizeof(*some)));
		if (got > 0)
			count_users(some, (unsigned)((size_t)got / sizeof(*some)), u);
	}
}

int shm_name_fail_busy(const char *path, int fd)
{
	char text[128] = "", more[48] = "";
	struct users u;
	size_t at = 0;

	users_of(fd, &u);
	if (u.live == 0)
		return vb_fail(-EBUSY,
			       "%s is in use, by a child of a process that is gone or by another "
			       "version (fuser %s names it): choose another name or end it",
			       path, path);
	for (unsigned i = 0; i < u.live && i < USERS_NAMED; i++)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%s%d", i ? ", " : "",
				       (int)u.pid[i]);
	if (u.live > USERS_NAMED)
		snprintf(more, sizeof(more), " and %u more", u.live - USERS_NAMED);
	return vb_fail(-EBUSY,
		       "%s is in use by process %s%s: join it (attach, attach_or_create), choose "
		       "another name or end them",
		       path, text, more);
}

/* ---- names ---- */

bool shm_name_is(const char *path, int fd)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && lstat(path, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

static int fail_foreign(const char *path, uid_t owner)
{
	return vb_fail(-EPERM,
		       "%s belongs to user %u, not to %u who asks: only the processes of one user "
		       "share a segment; choose another name",
		       path, (unsigned)owner, (unsigned)geteuid());
}

/* A file that somebody else has put there is neither used nor removed. */
static int check_file(const char *path, int fd)
{
	uint64_t magic = 0;
	struct stat st;

	if (fstat(fd, &st) != 0)
		return vb_fail(-EPROTO, "%s cannot be looked at: %s", path, strerror(errno));
	if (st.st_uid != geteuid())
		return fail_foreign(path, st.st_uid);
	if (S_ISREG(st.st_mode) && pread(fd, &magic, sizeof(magic), 0) == sizeof(magic) &&
	    magic == SHM_MAGIC)
		return 0;
	return vb_fail(
		-EPROTO, "%s is no segment of verbena: %s; remove it, or choose another name", path,
		!S_ISREG(st.st_mode)                   ? "it is no regular file"
		: st.st_size < (off_t)sizeof(uint64_t) ? "it has no header (was it truncated?)"
						       : "its magic is another");
}

/* Errors of open or fcntl are in errno.  Not blocking: a FIFO may lie there.  And never one of the
 * first three, which a program may have closed: its log would be written into the file. */
static int open_high(const char *path)
{
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), high, err;

	if (fd < 0 || fd > STDERR_FILENO)
		return fd;
	high = fcntl(fd, F_DUPFD_CLOEXEC, STDERR_FILENO + 1);
	err = errno;
	close(fd);
	errno = err;
	return high;
}

/* A descriptor, -ENOENT (not said), or an error. */
static int open_file(const char *path)
{
	int fd = open_high(path), err = errno;
	struct stat st;

	if (fd < 0 && err == ENOENT)
		return -ENOENT;
	if (fd < 0 && lstat(path, &st) == 0 && st.st_uid != geteuid())
		return fail_foreign(path, st.st_uid);
	if (fd < 0)
		return vb_fail(err == EMFILE || err == ENFILE || err == ENOMEM ? -err : -EPROTO,
			       "%s exists and cannot be opened: %s", path, strerror(err));
	err = check_file(path, fd);
	if (err == 0)
		return fd;
	close(fd);
	return err;
}

/*
 * 0 as soon as it can be said what it is; -EAGAIN while that changes.  Who does not want to join
 * takes no shared lock: it would keep the last user from removing the name.
 */
static int take_lock(const char *path, int fd, bool join, enum shm_name_state *out)
{
	struct users u;

	if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
		/* The name cannot change under us now: only a holder of this lock unlinks it. */
		if (!shm_name_is(path, fd))
			return -EAGAIN;
		users_of(fd, &u);
		*out = u.live == 0 ? SHM_NAME_LEFT : SHM_NAME_USED;
		if (u.live == 0)
			return 0;
		(void)flock(fd, LOCK_UN);
		if (!join)
			return 0;
	}
	/* Between the locks somebody else may have had the exclusive one, and removed the name. */
	*out = SHM_NAME_USED;
	if (join)
		return flock(fd, LOCK_SH | LOCK_NB) == 0 && shm_name_is(path, fd) ? 0 : -EAGAIN;
	users_of(fd, &u);
	return u.live != 0 && shm_name_is(path, fd) ? 0 : -EAGAIN;
}

int shm_name_look(const char *path, bool join, int *fd, enum shm_name_state *out)
{
	for (unsigned i = 0;; i++) {
		int err = *fd = open_file(path);

		if (err < 0) {
			*fd = -1;
			*out = SHM_NAME_NONE;
			return err == -ENOENT ? 0 : err;
		}
		err = take_lock(path, *fd, join, out);
		if (err == 0 || (i == LOOK_TRIES && !join))
			return 0; /* somebody has it, whoever that is */
		close(*fd);
		*fd = -1;
		if (i == LOOK_TRIES)
			return vb_fail(
				-EBUSY,
				"%s is being removed by another process, which does not come "
				"to an end: is it stopped? (fuser %s names it)",
				path, path);
		usleep(1000);
	}
}

bool vb_shm_left_over(int fd)
{
	struct users u;

	users_of(fd, &u);
	return u.live == 0;
}

void shm_name_remove(const char *path, int fd)
{
	struct users u;

	users_of(fd, &u);
	if (u.listed != 0 || !u.known)
		vb_warn("%s is left over from a run that crashed: taking it over", path);
	(void)unlink(path);
	close(fd);
}

void shm_name_remove_closed(const char *path, int fd)
{
	struct users u;

	users_of(fd, &u);
	if (u.known && u.listed == 0)
		(void)unlink(path);
	close(fd);
}

void shm_name_leave(const struct shm_fabric *f, bool used)
{
	int fd = open_high(f->path);
	struct users u;
	struct stat st;

	if (fd < 0)
		return;
	if (fstat(fd, &st) == 0 && st.st_ino == f->ino && st.st_dev == f->dev &&
	    flock(fd, LOCK_EX | LOCK_NB) == 0 && shm_name_is(f->path, fd)) {
		users_of(fd, &u);
		if (used ? u.live == 0 : u.known && u.listed == 0)
			(void)unlink(f->path);
	}
	close(fd);
}
