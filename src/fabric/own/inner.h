/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A fabric that the program provides (verbena/provider.h).
 *
 *	own.c       what is provided, checked; opening and closing
 *	region.c    named regions, in the lent memory itself
 *	hold.c      those of them that come and go
 *	ep.c        opening and closing endpoints
 *	post.c      verbs -> pieces
 *	wait.c      how a thread that has such endpoints waits
 *	ends.c      pieces -> ends of verbs; messages
 *	raw.c       an endpoint without a scheduler, one verb at a time
 *
 * and beside them what vb_provider_check does, which calls the provider as these do, and nothing of them:
 *
 *	check.c     the order of the checks; one endpoint's verbs, messages
 *	probe.c     an endpoint that looks at each end
 *	race.c      endpoints against each other
 *
 * A verb becomes one piece, or for more than VB_PROVIDER_VERB_BYTES several.  Each piece has a *place*: as many
 * bytes of the endpoint's buffer, which are the provider's until the piece ends, and a record of what to do then.
 * So nothing that the provider reads or writes late lies on a task's stack, and a place whose verb never ends is
 * not used again.
 *
 *	id of a piece:  | round of the place, 32 | number of the place, 32 |
 */
#ifndef VB_FABRIC_OWN_INNER_H
#define VB_FABRIC_OWN_INNER_H

#include <verbena/provider.h>

#include "fabric/fabric.h"

#define OWN_NAME       32u
#define OWN_NODE_LEAST (64u << 10)
#define OWN_ENDS       32 /* taken from the provider at a time */
#define OWN_PLACES_MAX 256u
#define OWN_PLACES_MIN 4u
#define OWN_NS_MAX     100000000000ull

/*
 * For how long an endpoint has been polled.  A provider's verbs end within end_ns as long as it is: what its thread
 * has spent elsewhere, or standing still, counts for a quarter of that at most.
 */
struct own_watch {
	uint64_t looked_ns, ns;
};

static inline void own_watch(struct own_watch *w, const struct vb_provider *p, uint64_t now)
{
	uint64_t since = now > w->looked_ns ? now - w->looked_ns : 0;

	w->ns += since < p->end_ns / 4 ? since : p->end_ns / 4;
	w->looked_ns = now;
}

/* ---- raw.c ---- */

struct own_raw {
	const struct vb_provider *p;
	struct vb_provider_endpoint at;
	uint64_t next_id;
	bool broken; /* a verb of it never ended */
};

int own_raw_open(const struct vb_provider *p, struct own_raw *out);
void own_raw_close(struct own_raw *r);
/* One verb, awaited without giving way; fills in id and local.  The caller puts what it writes to, and finds what it
 * reads in, r->at.buffer.  0, the provider's error, or -VB_EUNKNOWN. */
int own_raw_run(struct own_raw *r, struct vb_provider_verb *v);

/* What ep_open gave, held against the header: NULL, or what is wrong. */
const char *own_endpoint_wrong(const struct vb_provider_endpoint *at);

/* ---- the fabric ---- */

struct own_fabric {
	struct vb_fabric f;
	struct vb_provider p;
	struct vb_fabric_ops ops; /* with the provider's name */
	char name[OWN_NAME];
	pthread_mutex_t opening; /* ep_open and ep_close, and `control` */
	struct own_raw control;
};

/* 0, or -EINVAL, said. */
int own_provider_check(const struct vb_provider *p);

static inline struct own_fabric *own_of(struct vb_fabric *f)
{
	return (struct own_fabric *)f;
}

/* ---- endpoints ---- */

struct own_place {
	struct vb_batch *batch; /* NULL: nobody waits */
	struct vb_verb *verb;
	uint8_t *to;        /* READ: where the piece goes */
	uint64_t posted_at; /* by the endpoint's watch */
	uint32_t round;
	uint32_t head; /* the place of the verb's first piece */
	uint32_t left; /* there: so many pieces of the verb have not ended */
	uint16_t bytes;
	uint8_t op; /* enum vb_op */
	bool posted;
	bool out;   /* in use */
	bool ended; /* the piece has */
	bool some;  /* of a head: a piece of the verb has taken effect */
};

struct own_thread {
	struct vb_sched *sched;
	struct vb_list eps;  /* own_ep.in_thread */
	struct vb_list busy; /* own_ep.in_busy: verbs are under way */
	uint64_t spin_ns, nap_ns;
	unsigned polls, fruitless; /* times that idle has found nothing, since it last did */
	bool woken; /* an end or a message has made a task ready since it was last looked at */
};

struct own_ep {
	struct vb_ep ep;
	struct vb_provider_endpoint at;
	const struct vb_provider *p;
	struct own_thread *thread;
	struct vb_list in_thread, in_busy;
	bool broken;      /* a verb of it never ended: nothing is posted any more */
	bool have;        /* `message` has come and nobody has taken it */
	uint64_t scan_ns; /* when to look for verbs that never ended */
	struct own_watch watch;
	struct vb_msg message;
	uint32_t n_places, n_free, n_built;
	uint32_t *free;                 /* [n_places]: n_free numbers of places */
	struct own_place *place;        /* [n_places] */
	struct vb_provider_verb *built; /* [n_places]: not posted yet */
};

int own_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out);
void own_ep_close(struct vb_ep *ep);
int own_recv(struct vb_ep *ep, struct vb_msg *out);

/* ---- post.c ---- */

int own_post(struct vb_ep *ep, struct vb_batch *batch);

/* ---- ends.c ---- */

/* A signalled verb of the batch has ended. */
void own_verb_ends(struct own_ep *e, struct vb_batch *b);
/* n pieces of the verb with that head will not end any more, or have. */
void own_pieces_less(struct own_ep *e, uint32_t head_number, uint32_t n);
/* The piece in that place has. */
void own_piece_ends(struct own_ep *e, uint32_t number, int err);
/* Takes the ends that are there: whether there were any. */
bool own_ep_take_ends(struct own_ep *e);
/* Gives the endpoint up if a verb of it is older than it may become. */
void own_ep_look_for_lost(struct own_ep *e, uint64_t now);
/* Whether a message is there: takes it into `message`. */
bool own_ep_take_message(struct own_ep *e);

/* ---- wait.c ---- */

int own_thread_get(struct own_thread **out);
void own_thread_put(struct own_thread *t);

/* ---- region.c ---- */

int own_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	       bool *fresh);
int own_region_find(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    vb_addr *out);
int own_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room);

#define OWN_ENTRY       128u
#define OWN_ENTRIES     128u /* entry 0's place is the header's */
#define OWN_REGION_NAME 80u
#define OWN_GONE        UINT64_MAX  /* own_entry.by: its memory is nobody's, and zeros */
#define OWN_HOLDS       "own.holds" /* the region of hold.c; not listed */

struct own_entry {
	char name[OWN_REGION_NAME];
	uint64_t bytes, offset, before;
	vb_peer by;
	uint64_t unused[2];
};
_Static_assert(sizeof(struct own_entry) == OWN_ENTRY, "an entry fills its place");

/* What is being looked for, and what has been found; the fabric's lock is held. */
struct own_search {
	struct own_raw *raw;
	uint16_t node;
	uint64_t node_bytes;
	const char *name;
	uint64_t bytes;
	uint64_t head;  /* entries from here to `seen` have been looked at */
	uint64_t found; /* the number of the one with the name */
	/* Those that have not gone, newest first. */
	unsigned n;
	struct vb_span span[OWN_ENTRIES];
	uint64_t number[OWN_ENTRIES];
	struct own_entry *all; /* NULL, or [OWN_ENTRIES] for all that they say */
};

static inline struct own_search own_search(struct own_fabric *f, uint16_t node, const char *name,
					   uint64_t bytes)
{
	return (struct own_search){.raw = &f->control,
				   .node = node,
				   .node_bytes = f->f.node_bytes,
				   .name = name,
				   .bytes = bytes};
}

int own_region_check(const char *name, uint64_t bytes);
/* 0, and *e has the name; -ENOENT, not said. */
int own_find(struct own_search *s, struct own_entry *e);
/* 0, whatever the size is. */
int own_find_or_make(struct own_search *s, struct own_entry *e, bool *fresh);
int own_word(struct own_search *s, enum vb_provider_op op, uint64_t offset, uint64_t compare,
	     uint64_t value, uint64_t *old);
int own_entry_move(struct own_search *s, enum vb_provider_op op, uint64_t number,
		   struct own_entry *e);

/* ---- hold.c ---- */

int own_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by);
void own_region_let_go(struct vb_fabric *f, const struct vb_region_held *held);
int own_region_take(struct vb_fabric *f, const char *name, vb_peer me, vb_peer *by);
int own_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id);

#endif
