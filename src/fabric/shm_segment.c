/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Making, finding and giving back the segment.
 *
 * A named segment is made without a name (O_TMPFILE), filled in completely, and then linked to its
 * name: nobody ever sees a half-made one, and an open that fails or is killed leaves nothing.
 *
 * In use means: somebody holds a shared flock on it.  The creator takes it before the name appears,
 * attachers take it, forked children inherit it with the descriptor.  So whoever gets the exclusive
 * lock on a name's segment knows that its users are all gone without having closed it; he unlinks
 * it while he holds the lock, and nobody can have attached in between.
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
#include "fabric/shm_internal.h"

#define SHM_DIR        "/dev/shm"
#define NAME_MAX_CHARS 200
#define LINK_TRIES     16
#define ATTACH_TRIES   100 /* of 1 ms: somebody may be looking whether the segment is stale */
#define ALLOCATE_CHUNK (64ull << 20)
#define EINTR_TRIES    100

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

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

static void lay_out(const struct vb_fabric_params *p, const struct shm_options *o,
		    struct shm_layout *l)
{
	uint64_t at = round_up(sizeof(struct shm_header), 4096);

	memset(l, 0, sizeof(*l));
	while (1ull << l->ring_bits < o->ring)
		l->ring_bits++;
	while (1ull << l->slot_bits < p->endpoints)
		l->slot_bits++;
	l->stride = round_up(p->node_bytes, 4096);
	l->directories_at = at;
	at = round_up(at + (uint64_t)p->nodes * sizeof(struct shm_node), 4096);
	l->endpoints_at = at;
	at = round_up(at + (uint64_t)p->endpoints * sizeof(struct shm_endpoint), 4096);
	l->workers_at = at;
	at = round_up(at + (uint64_t)p->endpoints * sizeof(struct shm_worker), 4096);
	l->rings_at = at;
	at = round_up(at + ((uint64_t)p->endpoints << l->ring_bits) * sizeof(struct shm_slot),
		      4096);
	l->memory_at = at;
	/* nodes <= 4096 and node_bytes <= 2^48: no overflow. */
	l->total_bytes = at + p->nodes * l->stride;
}

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

/* ---- the name ---- */

static bool same_file(int fd, const char *path)
{
	struct stat a, b;

	return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_ino == b.st_ino &&
	       a.st_dev == b.st_dev;
}

static int fail_busy(int fd, const char *path)
{
	struct shm_header h = {0};

	if (pread(fd, &h, sizeof(h), 0) == sizeof(h) && h.magic == SHM_MAGIC)
		return vb_fail(-EBUSY,
			       "%s is in use by process %u or its children: choose another name or "
			       "end it",
			       path, (unsigned)(h.creator >> 32));
	return vb_fail(-EBUSY, "%s is in use: choose another name", path);
}

/* Makes room for a new segment of that name: 0 if there is none (any more), -EBUSY. */
static int clear_stale(const char *path)
{
	for (unsigned i = 0; i < LINK_TRIES; i++) {
		int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
		int err = 0;

		if (fd < 0 && errno == ENOENT)
			return 0;
		if (fd < 0)
			return vb_fail(-EBUSY, "%s exists and cannot be opened: %s", path,
				       strerror(errno));
		if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
			err = fail_busy(fd, path);
		} else if (same_file(fd, path)) {
			/* The name cannot change under us: only a holder of this lock unlinks. */
			vb_warn("%s is left over from a run that crashed: taking it over", path);
			(void)unlink(path);
		}
		close(fd);
		if (err != 0)
			return err;
	}
	return vb_fail(-EBUSY, "%s keeps coming back: others are opening it too", path);
}

static int give_name(int fd, const char *path)
{
	char self[32];

	snprintf(self, sizeof(self), "/proc/self/fd/%d", fd);
	for (unsigned i = 0; i < LINK_TRIES; i++) {
		int err;

		if (linkat(AT_FDCWD, self, AT_FDCWD, path, AT_SYMLINK_FOLLOW) == 0)
			return 0;
		if (errno != EEXIST)
			return vb_fail(-errno, "cannot make %s: %s", path, strerror(errno));
		err = clear_stale(path);
		if (err != 0)
			return err;
	}
	return vb_fail(-EBUSY, "%s keeps coming back: others are opening it too", path);
}

/* ---- making and joining ---- */

static int init_mutex(pthread_mutex_t *m)
{
	pthread_mutexattr_t a;
	int err = pthread_mutexattr_init(&a);

	if (err != 0)
		return -err;
	pthread_mutexattr_setpshared(&a, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&a, PTHREAD_MUTEX_ROBUST);
	err = pthread_mutex_init(m, &a);
	pthread_mutexattr_destroy(&a);
	return -err;
}

static int init_header(struct shm_header *h, const struct vb_fabric_params *p,
		       const struct shm_layout *l)
{
	h->magic = SHM_MAGIC;
	h->version = SHM_VERSION;
	h->header_bytes = sizeof(*h);
	h->creator = shm_self();
	h->clock = vb_clock;
	h->total_bytes = l->total_bytes;
	h->node_bytes = p->node_bytes;
	h->stride = l->stride;
	h->seed = p->seed;
	h->nodes = p->nodes;
	h->endpoints = p->endpoints;
	h->ring_bits = l->ring_bits;
	h->slot_bits = l->slot_bits;
	h->directories_at = l->directories_at;
	h->endpoints_at = l->endpoints_at;
	h->workers_at = l->workers_at;
	h->rings_at = l->rings_at;
	h->memory_at = l->memory_at;
	return init_mutex(&h->mutex);
}

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
	return 0;
}

static int create_file(struct shm_fabric *f, uint64_t bytes)
{
	f->fd = open(SHM_DIR, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
	if (f->fd < 0)
		return vb_fail(-errno,
			       "cannot make a file in " SHM_DIR ": %s; without a name the "
			       "segment needs none",
			       strerror(errno));
	if (flock(f->fd, LOCK_SH | LOCK_NB) != 0)
		return vb_fail(-errno, "cannot lock a file in " SHM_DIR ": %s", strerror(errno));
	return allocate(f->fd, bytes);
}

int shm_segment_create(const struct vb_fabric_params *p, const struct shm_options *o,
		       struct shm_fabric *f)
{
	bool named = p->name != NULL;
	struct shm_layout l;
	int err;

	f->fd = -1;
	err = set_path(f, p->name);
	if (err != 0)
		return err;
	lay_out(p, o, &l);
	if (named)
		err = clear_stale(f->path);
	if (err == 0)
		err = check_size(p, &l, named);
	if (err == 0 && named)
		err = create_file(f, l.total_bytes);
	if (err == 0)
		err = map(f, l.total_bytes);
	if (err == 0)
		err = init_header(f->h, p, &l);
	if (err == 0)
		err = settle(f);
	if (err == 0 && named)
		err = give_name(f->fd, f->path);
	if (err != 0) {
		f->path[0] = '\0'; /* the name, if there is one, is not ours */
		shm_segment_close(f);
	}
	return err;
}

static int open_existing(struct shm_fabric *f, const char *name)
{
	f->fd = open(f->path, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
	if (f->fd < 0)
		return vb_fail(errno == ENOENT ? -ENOENT : -errno,
			       "there is no segment '%s' (%s): %s; start its creator first", name,
			       f->path, strerror(errno));
	/* Another process may hold the exclusive lock for a moment, to look whether it is stale. */
	for (unsigned i = 0; flock(f->fd, LOCK_SH | LOCK_NB) != 0; i++) {
		if (i == ATTACH_TRIES)
			return vb_fail(-ENOENT, "%s is being taken over by another process",
				       f->path);
		usleep(1000);
	}
	return 0;
}

static int check_existing(const struct shm_fabric *f)
{
	struct shm_header h = {0};
	struct stat st;

	if (fstat(f->fd, &st) != 0 || pread(f->fd, &h, sizeof(h), 0) != sizeof(h) ||
	    h.magic != SHM_MAGIC || h.version != SHM_VERSION || h.header_bytes != sizeof(h) ||
	    h.total_bytes != (uint64_t)st.st_size)
		return vb_fail(-EPROTO,
			       "%s was made by another version of verbena (layout %u, ours is "
			       "%u)",
			       f->path, h.version, SHM_VERSION);
	if (!same_file(f->fd, f->path) || !shm_process_alive(h.creator))
		return vb_fail(-ENOENT, "%s is left over: its creator, process %u, is gone",
			       f->path, (unsigned)(h.creator >> 32));
	return 0;
}

int shm_segment_attach(const struct vb_fabric_params *p, struct shm_fabric *f)
{
	struct stat st = {0};
	int err;

	f->fd = -1;
	err = set_path(f, p->name);
	if (err == 0)
		err = open_existing(f, p->name);
	if (err == 0)
		err = check_existing(f);
	if (err == 0 && fstat(f->fd, &st) != 0)
		err = -errno;
	if (err == 0)
		err = map(f, (uint64_t)st.st_size);
	if (err == 0)
		err = settle(f);
	if (err != 0) {
		f->path[0] = '\0';
		shm_segment_close(f);
		return err;
	}
	vb_clock = f->h->clock;
	return 0;
}

void shm_segment_close(struct shm_fabric *f)
{
	/* A forked child that closes leaves the name to its parent. */
	if (f->path[0] != '\0' && f->h->creator == shm_self() && same_file(f->fd, f->path))
		(void)unlink(f->path);
	if (f->h != NULL)
		(void)munmap(f->h, f->h->total_bytes);
	if (f->fd >= 0)
		close(f->fd);
	free(f->base);
	f->base = NULL;
	f->h = NULL;
	f->fd = -1;
}
