/* SPDX-License-Identifier: Apache-2.0 */
/* The file that a server finds again when it begins again.  See state.h. */
#define VB_LOG_ROOM "net"
#include "fabric/net/state.h"

#include <fcntl.h>
#include <inttypes.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/log.h"
#include "vb_config.h"

#define MAGIC 0x3230455441545356ull /* "VSTATE02" */
#define PAGE  4096u
#define BOOT  40
#define NAME  320
#define PATH  4096

/* The first of it is where it is in every version. */
struct net_state_head {
	uint64_t magic;
	uint32_t servers, self;
	uint64_t session;
	char boot[BOOT], name[NAME];
	/* in this one */
	char verbena[24];
	uint32_t nodes, clients;
	uint64_t node_bytes, bytes;
	struct vb_clock clock;
	uint8_t id[NET_ID];
	uint64_t places, born;
	uint32_t next_client;
	uint32_t settled;
	uint32_t holds;
};
_Static_assert(sizeof(struct net_state_head) <= PAGE, "it has a page");

struct layout {
	size_t seen, former, later, node, hold, member, box, ring, memory, bytes;
};

static size_t behind(size_t at, size_t bytes)
{
	return (at + bytes + PAGE - 1) / PAGE * PAGE;
}

static struct layout lay_out(const struct net_fabric *f)
{
	const struct net_elastic_params *p = &f->elastic->p;
	struct layout l = {.seen = PAGE};

	l.former = behind(l.seen, (size_t)p->servers * NET_ID);
	l.later = behind(l.former, p->servers * sizeof(struct net_former));
	l.node = behind(l.later, p->servers * sizeof(uint64_t));
	l.hold = behind(l.node, (f->local_nodes + 1) * sizeof(struct net_node));
	l.member = behind(l.hold, NET_HOLDS_MAX * sizeof(struct net_hold));
	l.box = behind(l.member, p->clients * sizeof(struct net_state_member));
	l.ring = behind(l.box, NET_CLIENTS_MAX * sizeof(struct net_state_box));
	l.memory = behind(l.ring, NET_STATE_RINGS * sizeof(struct vb_msg[NET_RING]));
	l.bytes = behind(l.memory, f->memory_bytes);
	return l;
}

/* ---- the head ---- */

static int read_boot(char to[BOOT])
{
	const char *path = "/proc/sys/kernel/random/boot_id";
	FILE *file = fopen(path, "re");
	bool ok = file != NULL && fgets(to, BOOT, file) != NULL;

	if (file != NULL)
		fclose(file);
	if (!ok)
		return vb_fail(-ENOTSUP,
			       "%s cannot be read: without it nobody can tell whether a state is "
			       "of this machine's present life (option state)",
			       path);
	to[strcspn(to, "\n")] = '\0';
	return 0;
}

static int head_make(const struct net_fabric *f, size_t bytes, struct net_state_head *h)
{
	const struct net_elastic_params *p = &f->elastic->p;

	*h = (struct net_state_head){
		.magic = MAGIC,
		.servers = p->servers,
		.self = p->rank,
		.session = p->session,
		.verbena = VB_VERSION,
		.nodes = f->f.nodes,
		.clients = p->clients,
		.node_bytes = f->f.node_bytes,
		.bytes = bytes,
	};
	snprintf(h->name, sizeof(h->name), "%s", p->self);
	return read_boot(h->boot);
}

static int differs(const char *path, const char *what, const char *theirs, const char *mine)
{
	return vb_fail(-EPROTO,
		       "%s is the state of another server: its %s is %s, and not %s; name another "
		       "directory (option state), or remove the file when the longest lease is "
		       "over",
		       path, what, theirs, mine);
}

static int differs_number(const char *path, const char *what, uint64_t theirs, uint64_t mine)
{
	char a[24], b[24];

	snprintf(a, sizeof(a), "%" PRIu64, theirs);
	snprintf(b, sizeof(b), "%" PRIu64, mine);
	return differs(path, what, a, b);
}

/* 1: it is ours and of this boot; 0: it counts no more; -EPROTO. */
static int head_check(const char *path, size_t bytes, struct net_state_head *h,
		      const struct net_state_head *mine)
{
	h->name[NAME - 1] = h->boot[BOOT - 1] = '\0';
	h->verbena[sizeof(h->verbena) - 1] = '\0';
	/* Made when the machine's end was near: the page was never written. */
	if (h->magic == 0)
		return 0;
	if ((h->magic ^ MAGIC) << 16 != 0) /* what is before the version */
		return vb_fail(-EPROTO,
			       "%s is no state of a server (option state): it is not touched",
			       path);
	if (h->session != mine->session)
		return differs(path, "cluster", "that of another key", "that of this one");
	if (strcmp(h->name, mine->name) != 0)
		return differs(path, "name", h->name, mine->name);
	if (h->servers != mine->servers)
		return differs_number(path, "number of servers", h->servers, mine->servers);
	if (h->self != mine->self)
		return differs_number(path, "place in the list of servers", h->self + 1,
				      mine->self + 1);
	if (strcmp(h->boot, mine->boot) != 0)
		return 0;
	if (h->magic != MAGIC || strcmp(h->verbena, mine->verbena) != 0)
		return differs(path, "version", h->verbena, mine->verbena);
	if (h->nodes != mine->nodes)
		return differs_number(path, "number of nodes", h->nodes, mine->nodes);
	if (h->node_bytes != mine->node_bytes)
		return differs_number(path, "nodes' size", h->node_bytes, mine->node_bytes);
	if (h->clients != mine->clients)
		return differs_number(path, "option clients", h->clients, mine->clients);
	if (h->bytes != mine->bytes || bytes != mine->bytes)
		return differs_number(path, "size", bytes, mine->bytes);
	if (h->clock.use_tsc > 1 || (h->clock.use_tsc && (h->clock.mult < VB_CLOCK_MULT_MIN ||
							  h->clock.mult > VB_CLOCK_MULT_MAX)))
		return vb_fail(-EPROTO, "%s is damaged: its clock is none (option state)", path);
	return h->settled != 0;
}

/* ---- the file ---- */

static int map(struct net_state *s, int fd, const char *path)
{
	s->map = mmap(NULL, s->bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	if (s->map == MAP_FAILED) {
		s->map = NULL;
		return vb_fail(-errno, "%s cannot be mapped (option state): %s", path,
			       strerror(errno));
	}
	(void)madvise(s->map, s->bytes, MADV_HUGEPAGE);
	(void)madvise(s->map, s->bytes, MADV_DONTFORK);
	s->head = (struct net_state_head *)s->map;
	return 0;
}

/* A copy may have holes. */
static int allocate(int fd, size_t bytes, const char *path)
{
	int err = posix_fallocate(fd, 0, (off_t)bytes);

	return err == 0 ? 0
			: vb_fail(-err, "%s: no room for %zu bytes (option state): %s", path, bytes,
				  strerror(err));
}

/* 1: mapped, as it was; 0: there is none that counts. */
static int resume(struct net_state *s, const char *path, const struct net_state_head *mine)
{
	struct net_state_head h;
	struct stat st;
	int fd = open(path, O_RDWR | O_CLOEXEC | O_NOFOLLOW), err;

	if (fd < 0 && errno == ENOENT)
		return 0;
	if (fd < 0)
		return vb_fail(-errno, "%s cannot be opened (option state): %s", path,
			       strerror(errno));
	if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid())
		err = vb_fail(-EACCES, "%s is no file of this user's (option state)", path);
	else if (pread(fd, &h, sizeof(h), 0) != (ssize_t)sizeof(h))
		err = vb_fail(-EPROTO,
			      "%s is no state of a server (option state): it is not touched", path);
	else
		err = head_check(path, (size_t)st.st_size, &h, mine);
	if (err == 0)
		vb_warn("%s is of another boot of this machine, or of a server that had not begun: "
			"this one comes back empty",
			path);
	if (err == 1) {
		int full = allocate(fd, s->bytes, path);

		err = full != 0 ? full : map(s, fd, path);
		if (err == 0)
			err = 1;
	}
	close(fd);
	return err;
}

/* It has its name when it is whole. */
static int make(struct net_state *s, const char *path, const struct net_state_head *head)
{
	char new[PATH + 8];
	int fd, err;

	snprintf(new, sizeof(new), "%s.new", path);
	(void)unlink(new);
	fd = open(new, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
	if (fd < 0)
		return vb_fail(-errno, "%s cannot be made (option state): %s", new,
			       strerror(errno));
	err = allocate(fd, s->bytes, new);
	if (err == 0)
		err = map(s, fd, new);
	close(fd);
	if (err == 0) {
		*s->head = *head;
		if (rename(new, path) != 0)
			err = vb_fail(-errno, "%s cannot be renamed: %s", new, strerror(errno));
	}
	if (err != 0)
		(void)unlink(new);
	return err;
}

/* Of the directory itself: a file in it could be removed, and made anew, under who has it locked. */
static int take_lock(struct net_state *s, const char *dir)
{
	struct stat st;

	s->lock_fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	if (s->lock_fd < 0 || fstat(s->lock_fd, &st) != 0)
		return vb_fail(-errno,
			       "the directory %s (option state): %s; it has to be there, on a file "
			       "system of this machine, and this user's own (chmod 700)",
			       dir, strerror(errno));
	/* Whoever may write there can put another memory in the place of this one. */
	if (st.st_uid != geteuid() || (st.st_mode & 022) != 0)
		return vb_fail(-EACCES,
			       "%s (option state) is no directory of this user's that nobody else "
			       "may write to (chmod 700)",
			       dir);
	if (flock(s->lock_fd, LOCK_EX | LOCK_NB) != 0)
		return vb_fail(errno == EWOULDBLOCK ? -EBUSY : -errno,
			       "%s is in use by another server (option state): name another "
			       "directory, or end that server",
			       dir);
	return 0;
}

/* ---- what is found in it ---- */

static bool is_sane(const struct net_fabric *f, const struct net_state *s, const struct layout *l)
{
	const struct net_node *node = (const struct net_node *)(s->map + l->node);

	if (s->head->holds > NET_HOLDS_MAX)
		return false;
	for (uint32_t n = 0; n < f->local_nodes; n++) {
		if (node[n].used > NET_REGIONS)
			return false;
		for (unsigned i = 0; i < node[n].used; i++) {
			const struct net_region_entry *r = &node[n].region[i];

			if (memchr(r->name, '\0', sizeof(r->name)) == NULL ||
			    r->bytes > f->f.node_bytes || r->offset > f->f.node_bytes - r->bytes)
				return false;
		}
	}
	return true;
}

/* Where everything is from now on; what there was of it has been empty. */
static void adopt(struct net_fabric *f, struct net_state *s, const struct layout *l)
{
	struct net_elastic *e = f->elastic;

	s->member = (struct net_state_member *)(s->map + l->member);
	s->box = (struct net_state_box *)(s->map + l->box);
	s->ring = (struct vb_msg(*)[NET_RING])(s->map + l->ring);
	free(e->seen);
	free(e->former);
	free(e->later);
	e->seen = (uint8_t(*)[NET_ID])(s->map + l->seen);
	e->former = (struct net_former *)(s->map + l->former);
	e->later = (uint64_t *)(s->map + l->later);
	f->core->node = (struct net_node *)(s->map + l->node);
	for (uint32_t n = 0; n < f->local_nodes; n++)
		net_region_mend(&f->core->node[n]);
	f->core->hold = (struct net_hold *)(s->map + l->hold);
	f->core->holds_room = NET_HOLDS_MAX;
	f->core->n_holds = s->head->holds;
	f->memory = s->map + l->memory;
	if (s->resumed) {
		memcpy(e->id, s->head->id, NET_ID);
		e->places = s->head->places;
		e->born = s->head->born;
		f->core->next_client = s->head->next_client;
	} else {
		memcpy(s->head->id, e->id, NET_ID);
		s->head->born = e->born;
		s->head->next_client = f->core->next_client;
	}
}

int net_state_open(struct net_fabric *f)
{
	const char *dir = f->elastic->p.state;
	struct net_state *s = calloc(1, sizeof(*s));
	struct layout l = lay_out(f);
	struct net_state_head head;
	char path[PATH];
	int err;

	if (s == NULL)
		return vb_fail(-ENOMEM, "no memory for a server's state");
	f->elastic->state = s;
	s->lock_fd = -1;
	s->bytes = l.bytes;
	if ((size_t)snprintf(path, sizeof(path), "%s/state", dir) >= sizeof(path))
		return vb_fail(-ENAMETOOLONG, "the directory's name is too long (option state)");
	err = take_lock(s, dir);
	if (err == 0)
		err = head_make(f, l.bytes, &head);
	if (err == 0)
		err = resume(s, path, &head);
	if (err < 0)
		return err;
	s->resumed = err == 1;
	/* Times in its memory go on: by the same reading of the counter. */
	err = vb_clock_hold(s->resumed ? &s->head->clock : NULL);
	if (err != 0)
		return vb_fail(err,
			       "%s goes by another clock than what this process has open "
			       "(option state): open it first",
			       path);
	s->clock_held = true;
	head.clock = vb_clock;
	if (!s->resumed)
		err = make(s, path, &head);
	else if (!is_sane(f, s, &l))
		err = vb_fail(-EPROTO, "%s is damaged: its list of regions is none (option state)",
			      path);
	if (err == 0)
		adopt(f, s, &l);
	return err;
}

void net_state_close(struct net_fabric *f)
{
	struct net_state *s = f->elastic != NULL ? f->elastic->state : NULL;

	if (s == NULL)
		return;
	/* Nothing that is taken down from now on is told of. */
	f->elastic->state = NULL;
	if (s->member != NULL) {
		f->elastic->seen = NULL;
		f->elastic->former = NULL;
		f->elastic->later = NULL;
		f->core->node = NULL;
		f->core->hold = NULL;
		f->core->n_holds = f->core->holds_room = 0;
		f->memory = NULL;
	}
	if (s->map != NULL)
		munmap(s->map, s->bytes);
	if (s->clock_held)
		vb_clock_let();
	if (s->lock_fd >= 0)
		close(s->lock_fd);
	free(s);
}

void net_state_settled(struct net_fabric *f)
{
	if (f->elastic->state != NULL)
		__atomic_store_n(&f->elastic->state->head->settled, 1, __ATOMIC_RELEASE);
}

/* ---- what is changed ---- */

void net_state_member(struct net_fabric *f, uint32_t place)
{
	const struct net_member *m = &f->elastic->member[place];
	struct net_state *s = f->elastic->state;
	struct net_state_member *to;

	if (s == NULL)
		return;
	to = &s->member[place];
	__atomic_store_n(&to->used, 0, __ATOMIC_RELEASE);
	if (!m->used)
		return;
	__atomic_store_n(&s->head->places, f->elastic->places, __ATOMIC_RELEASE);
	memcpy(to->id, m->id, NET_ID);
	to->number = m->number;
	__atomic_store_n(&to->used, 1, __ATOMIC_RELEASE);
}

void net_state_holds(struct net_fabric *f)
{
	if (net_state_is(f))
		__atomic_store_n(&f->elastic->state->head->holds, f->core->n_holds,
				 __ATOMIC_RELEASE);
}

void net_state_number(struct net_fabric *f)
{
	if (f->elastic != NULL && f->elastic->state != NULL)
		__atomic_store_n(&f->elastic->state->head->next_client, f->core->next_client,
				 __ATOMIC_RELEASE);
}

void net_state_box(struct net_fabric *f, const struct net_box *b)
{
	struct net_state_box *to;

	if (f->elastic->state == NULL)
		return;
	to = &f->elastic->state->box[b->client % NET_CLIENTS_MAX];
	to->place = b->place;
	to->client = b->client;
	to->asked = b->asked;
	to->node = b->node;
	to->taken = b->taken;
	to->begin = b->begin;
	to->ring = b->ring;
	/* The letter is in its ring. */
	__atomic_store_n(&to->end, b->end, __ATOMIC_RELEASE);
	__atomic_store_n(&to->used, 1, __ATOMIC_RELEASE);
}

void net_state_box_gone(struct net_fabric *f, const struct net_box *b)
{
	if (f->elastic->state != NULL)
		__atomic_store_n(&f->elastic->state->box[b->client % NET_CLIENTS_MAX].used, 0,
				 __ATOMIC_RELEASE);
}

bool net_state_ring_take(struct net_fabric *f, struct net_box *b)
{
	struct net_state *s = f->elastic->state;

	for (uint32_t i = 0; i < NET_STATE_RINGS; i++)
		if (!s->ring_used[i]) {
			s->ring_used[i] = true;
			b->ring = i + 1;
			b->letter = s->ring[i];
			b->room = NET_RING;
			return true;
		}
	return false;
}

void net_state_ring_give(struct net_fabric *f, struct net_box *b)
{
	f->elastic->state->ring_used[b->ring - 1] = false;
	b->ring = 0;
	b->letter = NULL;
	b->room = 0;
}
