/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The file of a lock server agent: which holds there are, for the agent that comes after it.
 *
 *	DIR/SPACE.NODE.WORKER      head (64 bytes) | record | record | ...
 *
 *	record, 64 bytes           +------+--------+------+--------+-----+-----------+------+
 *	                           | peer | number | lock | ticket | age | gone mode | seal |
 *	                           +------+--------+------+--------+-----+-----------+------+
 *
 * Only appended to.  Records are written before the answers that tell of them leave, so whatever a
 * client knows of stands in the file although the agent is killed at that moment.  Against the
 * machine's death there is the option `sync`; without it what is found after another boot counts as
 * incomplete, and so does a file whose end is torn: the agent then keeps a grace period as well.
 *
 * When it has grown past a bound the present holds are written to a new file, which takes its
 * place by rename: at no moment is there none.
 */
#define VB_LOG_ROOM "lock"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <xxhash.h>

#include "base/log.h"
#include "lock/table.h"

#define FILE_MAGIC 0x31304c4254425625ull
#define BUFFER     128u
/* Past so many records, and this many for each hold, the file is written anew. */
#define COMPACT_RECORDS  16384u
#define COMPACT_PER_HOLD 4u

struct head {
	uint64_t magic;
	char boot[40]; /* of the machine's run in which it was written */
	uint64_t reserved;
	uint64_t seal;
};
_Static_assert(sizeof(struct head) == 64, "records stay aligned");

struct vb_locktab_file {
	const struct vb_lock_server *server;
	char path[512];
	int fd;
	bool sync, failed;
	unsigned n; /* in the buffer */
	uint64_t records;
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

static int write_all(int fd, const void *buf, size_t bytes)
{
	const char *at = buf;

	while (bytes > 0) {
		ssize_t n = write(fd, at, bytes);

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

/* ---- reading ---- */

static int replay(struct vb_locktab_file *f, int fd, bool *whole,
		  void (*found)(void *ctx, const struct vb_locktab_record *rec), void *ctx)
{
	struct vb_locktab_record rec;
	struct head h;
	char boot[sizeof(h.boot)] = "";
	ssize_t n = read_some(fd, &h, sizeof(h));

	if (n < 0)
		return (int)n;
	if (n != sizeof(h) || h.magic != FILE_MAGIC || h.seal != seal_head(&h)) {
		vb_warn("%s is no lock table's file, or its beginning is torn: nothing is taken "
			"from it",
			f->path);
		return 0;
	}
	read_boot(boot, sizeof(boot));
	while ((n = read_some(fd, &rec, sizeof(rec))) == sizeof(rec)) {
		if (rec.seal != seal_record(&rec))
			break;
		found(ctx, &rec);
	}
	if (n < 0)
		return (int)n;
	*whole = n == 0 && strcmp(boot, h.boot) == 0;
	if (n != 0)
		vb_warn("%s: its end is torn; what stands before it is taken", f->path);
	return 0;
}

int vb_locktab_file_open(const struct vb_lock_server *s, struct vb_locktab_file **out,
			 bool *earlier, bool *whole,
			 void (*found)(void *ctx, const struct vb_locktab_record *rec), void *ctx)
{
	const struct vb_locktab_options *o = s->space->options;
	struct vb_locktab_file *f = calloc(1, sizeof(*f));
	int n, fd, err = 0;

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a lock server's file");
	f->server = s;
	f->fd = -1;
	f->sync = o->sync;
	n = snprintf(f->path, sizeof(f->path) - 4, "%s/%s.%u.%u", o->persist, s->space->name,
		     s->node, s->worker);
	if (n >= (int)sizeof(f->path) - 4 || strchr(s->space->name, '/') != NULL) {
		free(f);
		return vb_fail(-EINVAL,
			       "persist=%s: the path is too long, or the space's name '%s' is no "
			       "file's name",
			       o->persist, s->space->name);
	}
	fd = open(f->path, O_RDONLY | O_CLOEXEC);
	if (fd >= 0) {
		*earlier = true;
		err = replay(f, fd, whole, found, ctx);
		close(fd);
	} else if (errno != ENOENT) {
		err = -errno;
	}
	if (err != 0) {
		err = vb_fail(err, "%s cannot be read: %s", f->path, vb_strerror(err));
		free(f);
		return err;
	}
	*out = f;
	return 0;
}

void vb_locktab_file_close(struct vb_locktab_file *f)
{
	if (f == NULL)
		return;
	vb_locktab_file_commit(f);
	if (f->fd >= 0)
		close(f->fd);
	free(f);
}

/* ---- writing ---- */

/* A disk that is full or gone: grants go on, for they are safe by their leases; the file is taken
 * away, so that nobody takes it for complete. */
static void give_up(struct vb_locktab_file *f, int err)
{
	if (f->failed)
		return;
	f->failed = true;
	f->n = 0;
	vb_error("%s cannot be written (%s): an agent that comes back will do without it", f->path,
		 vb_strerror(err));
	(void)unlink(f->path);
}

void vb_locktab_file_commit(struct vb_locktab_file *f)
{
	int err;

	if (f == NULL || f->n == 0 || f->failed || f->fd < 0)
		return;
	err = write_all(f->fd, f->buffer, f->n * sizeof(f->buffer[0]));
	if (err == 0 && f->sync && fdatasync(f->fd) != 0)
		err = -errno;
	f->records += f->n;
	f->n = 0;
	if (err != 0)
		give_up(f, err);
}

static void append(struct vb_locktab_file *f, const struct vb_tq_req *r, bool gone)
{
	struct vb_locktab_record *rec = &f->buffer[f->n++];

	*rec = (struct vb_locktab_record){
		.peer = r->owner->name,
		.number = r->number,
		.lock = vb_tq_lock_number(r),
		.ticket = r->ticket,
		.age = r->age,
		.gone = gone,
		.mode = (uint8_t)r->mode,
	};
	rec->seal = seal_record(rec);
	if (f->n == BUFFER)
		vb_locktab_file_commit(f);
}

void vb_locktab_file_note(struct vb_locktab_file *f, const struct vb_tq *q,
			  const struct vb_tq_req *r, bool gone)
{
	if (f->failed)
		return;
	append(f, r, gone);
	if (f->records > COMPACT_RECORDS &&
	    f->records > (uint64_t)COMPACT_PER_HOLD * vb_tq_holds(q))
		(void)vb_locktab_file_compact(f, q);
}

static void append_hold(void *ctx, const struct vb_tq_req *r)
{
	append(ctx, r, false);
}

static int begin_new(const char *path)
{
	struct head h = {.magic = FILE_MAGIC};
	int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), err;

	if (fd < 0)
		return -errno;
	read_boot(h.boot, sizeof(h.boot));
	h.seal = seal_head(&h);
	err = write_all(fd, &h, sizeof(h));
	if (err == 0)
		return fd;
	close(fd);
	return err;
}

int vb_locktab_file_compact(struct vb_locktab_file *f, const struct vb_tq *q)
{
	char fresh[sizeof(f->path) + 4];
	int fd, err = 0;

	if (f == NULL || f->failed)
		return 0;
	snprintf(fresh, sizeof(fresh), "%s.new", f->path);
	fd = begin_new(fresh);
	if (fd < 0)
		return vb_fail(fd, "%s cannot be written: %s", fresh, vb_strerror(fd));
	/* What has not been committed yet is among the present holds, or gone again. */
	f->n = 0;
	f->records = 0;
	if (f->fd >= 0)
		close(f->fd);
	f->fd = fd;
	vb_tq_each_hold(q, append_hold, f);
	vb_locktab_file_commit(f);
	if (f->failed)
		return -EIO;
	if ((f->sync && fsync(fd) != 0) || rename(fresh, f->path) != 0)
		err = -errno;
	if (err != 0)
		give_up(f, err);
	return err;
}
