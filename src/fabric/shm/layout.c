/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where everything lies in a segment, and whether one that somebody else has made may be believed.
 *
 * The places follow from four numbers: nodes, bytes of a node, endpoints, and the size of a ring.
 * So these are held against their bounds, the rest of the header against what follows from them, and
 * the end of it all against the size of the file: no sum is made of numbers that have not been
 * checked.  Then the tables: whatever is an index, a count or a length in them.
 */
#define VB_LOG_ROOM "shm"
#include <inttypes.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

#define RING_BITS_MIN 4
#define RING_BITS_MAX 16
/* Two calibrations of one counter differ by less. */
#define CLOCK_PPM 2000
#define NS_MAX    (1ull << 62)

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

void shm_lay_out(const struct vb_fabric_params *p, uint32_t ring_bits, struct shm_layout *l)
{
	uint64_t at = round_up(sizeof(struct shm_header), 4096);

	memset(l, 0, sizeof(*l));
	l->ring_bits = ring_bits;
	while (1ull << l->slot_bits < p->endpoints)
		l->slot_bits++;
	l->stride = round_up(p->node_bytes, 4096);
	l->directories_at = at;
	at = round_up(at + (uint64_t)p->nodes * sizeof(struct shm_node), 4096);
	l->endpoints_at = at;
	at = round_up(at + (uint64_t)p->endpoints * sizeof(struct shm_endpoint), 4096);
	l->workers_at = at;
	at = round_up(at + (uint64_t)p->endpoints * sizeof(struct shm_worker), 4096);
	l->users_at = at;
	at = round_up(at + (uint64_t)p->endpoints * sizeof(shm_process), 4096);
	l->held_at = at;
	at = round_up(at + (uint64_t)p->endpoints * sizeof(uint32_t), 4096);
	l->mail_at = at;
	at = round_up(at + (p->endpoints + 63u) / 64 * sizeof(uint64_t), 4096);
	l->rings_at = at;
	at = round_up(at + ((uint64_t)p->endpoints << l->ring_bits) * sizeof(struct shm_slot),
		      4096);
	l->memory_at = at;
	/* nodes <= 4096 and node_bytes <= 2^48: no overflow. */
	l->total_bytes = at + p->nodes * l->stride;
}

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

int shm_header_init(struct shm_header *h, const struct vb_fabric_params *p,
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
	h->users_at = l->users_at;
	h->held_at = l->held_at;
	h->mail_at = l->mail_at;
	h->rings_at = l->rings_at;
	h->memory_at = l->memory_at;
	return init_mutex(&h->mutex);
}

/* ---- may it be believed? ---- */

static int outside(char *why, size_t n, const char *field, uint64_t is, uint64_t least,
		   uint64_t most)
{
	if (is >= least && is <= most)
		return 0;
	snprintf(why, n, "%s is %" PRIu64 ", where %" PRIu64 " to %" PRIu64 " are possible", field,
		 is, least, most);
	return -EPROTO;
}

static int differs(char *why, size_t n, const char *field, uint64_t is, uint64_t should)
{
	if (is == should)
		return 0;
	snprintf(why, n, "%s is %#" PRIx64 ", not %#" PRIx64, field, is, should);
	return -EPROTO;
}

/* What a clock shows now; UINT64_MAX if that is nothing a clock would. */
static uint64_t shown_by(const struct vb_clock *c)
{
	unsigned __int128 ns = 0;
#if VB_CLOCK_COUNTER
	uint64_t tsc = vb_tsc();

	if (tsc < c->tsc_base)
		return UINT64_MAX;
	ns = ((unsigned __int128)(tsc - c->tsc_base) * c->mult) >> 24;
#endif
	ns += c->ns_base;
	return ns < NS_MAX ? (uint64_t)ns : UINT64_MAX;
}

/* A clock that stands still, or is about to overflow, would make every wait endless. */
static int check_clock(const struct vb_clock *c, char *why, size_t n)
{
	uint64_t ours = vb_clock.mult, apart = ours > c->mult ? ours - c->mult : c->mult - ours;
	int err = outside(why, n, "clock.use_tsc", c->use_tsc, 0, 1);

	if (err != 0 || !c->use_tsc)
		return err;
	err = outside(why, n, "clock.mult", c->mult, VB_CLOCK_MULT_MIN, VB_CLOCK_MULT_MAX);
	if (err == 0 && vb_clock.use_tsc && apart > ours / 1000000 * CLOCK_PPM)
		err = differs(why, n, "clock.mult", c->mult, ours);
	if (err == 0 && shown_by(c) == UINT64_MAX) {
		snprintf(why, n,
			 "clock.tsc_base is %#" PRIx64 " and clock.ns_base %#" PRIx64
			 ", which is no time",
			 c->tsc_base, c->ns_base);
		err = -EPROTO;
	}
	return err;
}

/* What the C library relies on in a mutex that it is given: its kind. */
static int check_mutex(const pthread_mutex_t *m, char *why, size_t n)
{
#ifdef __GLIBC__
	pthread_mutex_t fresh;
	int err = init_mutex(&fresh);

	if (err != 0)
		return err;
	return differs(why, n, "mutex.kind", (uint32_t)m->__data.__kind,
		       (uint32_t)fresh.__data.__kind);
#else
	(void)m;
	(void)why;
	(void)n;
	return 0;
#endif
}

static int check_places(const struct shm_header *h, uint64_t file_bytes, char *why, size_t n)
{
	struct vb_fabric_params p = {.nodes = (uint16_t)h->nodes,
				     .node_bytes = h->node_bytes,
				     .endpoints = h->endpoints};
	struct shm_layout l;

	shm_lay_out(&p, h->ring_bits, &l);
	const struct {
		const char *field;
		uint64_t is, should;
	} places[] = {
		{"slot_bits", h->slot_bits, l.slot_bits},
		{"stride", h->stride, l.stride},
		{"directories_at", h->directories_at, l.directories_at},
		{"endpoints_at", h->endpoints_at, l.endpoints_at},
		{"workers_at", h->workers_at, l.workers_at},
		{"users_at", h->users_at, l.users_at},
		{"held_at", h->held_at, l.held_at},
		{"mail_at", h->mail_at, l.mail_at},
		{"rings_at", h->rings_at, l.rings_at},
		{"memory_at", h->memory_at, l.memory_at},
		{"total_bytes", h->total_bytes, l.total_bytes},
		{"the file's size", file_bytes, l.total_bytes},
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(places); i++) {
		int err = differs(why, n, places[i].field, places[i].is, places[i].should);

		if (err != 0)
			return err;
	}
	return 0;
}

int shm_header_check(const struct shm_header *h, uint64_t file_bytes, char *why, size_t n)
{
	int err;

	if (h->version != SHM_VERSION || h->header_bytes != sizeof(*h)) {
		snprintf(
			why, n,
			"it was made by another version of verbena (layout %u of %u bytes, ours is "
			"%u of %zu)",
			h->version, h->header_bytes, SHM_VERSION, sizeof(*h));
		return -EPROTO;
	}
	err = outside(why, n, "nodes", h->nodes, 1, VB_FABRIC_NODES_MAX);
	if (err == 0)
		err = outside(why, n, "node_bytes", h->node_bytes, 4096,
			      1ull << VB_ADDR_OFFSET_BITS);
	if (err == 0)
		err = outside(why, n, "endpoints", h->endpoints, 1, VB_FABRIC_ENDPOINTS_MAX);
	if (err == 0)
		err = outside(why, n, "ring_bits", h->ring_bits, RING_BITS_MIN, RING_BITS_MAX);
	if (err == 0)
		err = check_places(h, file_bytes, why, n);
	if (err == 0)
		err = check_clock(&h->clock, why, n);
	if (err == 0)
		err = check_mutex(&h->mutex, why, n);
	return err;
}

static int check_directory(const struct shm_fabric *f, uint32_t node, char *why, size_t n)
{
	const struct shm_node *d = &f->directories[node];
	uint32_t used = __atomic_load_n(&d->used, __ATOMIC_ACQUIRE);
	char field[64];

	snprintf(field, sizeof(field), "the number of regions of node %u", node);
	if (outside(why, n, field, used, 0, SHM_REGIONS) != 0)
		return -EPROTO;
	for (uint32_t i = 0; i < used; i++) {
		const struct shm_region *r = &d->region[i];

		if (memchr(r->name, '\0', sizeof(r->name)) == NULL) {
			snprintf(why, n, "the name of region %u of node %u has no end", i, node);
			return -EPROTO;
		}
		if (r->bytes > f->h->node_bytes || r->offset > f->h->node_bytes - r->bytes ||
		    r->offset % 64 != 0) {
			snprintf(why, n,
				 "region %u of node %u has %" PRIu64 " bytes at %#" PRIx64
				 ", in a node of %" PRIu64,
				 i, node, r->bytes, r->offset, f->h->node_bytes);
			return -EPROTO;
		}
	}
	return 0;
}

int shm_tables_check(const struct shm_fabric *f, char *why, size_t n)
{
	int err = 0;

	for (uint32_t i = 0; err == 0 && i < f->h->nodes; i++)
		err = check_directory(f, i, why, n);
	for (uint32_t i = 0; err == 0 && i < f->h->endpoints; i++) {
		char field[64];

		snprintf(field, sizeof(field), "the worker of endpoint %u", i);
		err = outside(why, n, field, f->endpoints[i].worker, 0, f->h->endpoints - 1);
	}
	return err;
}
