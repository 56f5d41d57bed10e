/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory fabric from the inside: what lies in the segment, and who may write it.
 *
 *	header | nodes' region directories | endpoints | workers | users | mail | rings | memory of node 0, ...
 *
 * Processes may be killed at any instruction.  Two kinds of state follow from that:
 *   - tables (endpoints, workers, regions) change under one robust mutex, and every change has one
 *     store that makes it count, so that whoever inherits the mutex finds the old state or the new;
 *   - rings are lock-free; their protocol is in ring.c.
 */
#ifndef VB_FABRIC_SHM_INNER_H
#define VB_FABRIC_SHM_INNER_H

#include <pthread.h>
#include <sys/types.h>

#include "fabric/fabric.h"
#include "fabric/shm/shm.h"

#define SHM_MAGIC       0x6d68732d626576ull /* "veb-shm" */
#define SHM_VERSION     4
#define SHM_REGIONS     32
#define SHM_REGION_NAME 48

/*
 * A process: pid (upper 32) and its start time in clock ticks (lower 32), because pids come round
 * again.  0 is nobody.  Processes of different pid namespaces must not share a segment.
 */
typedef uint64_t shm_process;

/* `bytes` is the store that makes a region count, and not count any more (0). */
struct shm_region {
	char name[SHM_REGION_NAME];
	uint64_t bytes, offset, id;
	vb_peer by; /* who removes it; VB_PEER_NONE: nobody */
};

/* A node's directory: `used` entries have been regions at some time. */
struct shm_node {
	uint32_t used;
	uint64_t made; /* regions so far: the last one's id */
	struct shm_region region[SHM_REGIONS];
};

/*
 * An endpoint.  `word` says who lives here: state, node and incarnation in one, so that a sender
 * checks a peer with one load.  The incarnation survives in the free state.
 */
enum shm_ep_state { SHM_EP_FREE, SHM_EP_OPEN, SHM_EP_DEAD };

struct shm_endpoint {
	uint64_t word; /* incarnation << 18 | node << 2 | state */
	shm_process owner;
	uint32_t worker;
	uint32_t mail;                /* senders note that it has some: mail.c */
	uint64_t head VB_ALIGNED(64); /* next to receive; written by the receiver only */
	uint64_t tail VB_ALIGNED(64); /* hint: no earlier position is free */
};

static inline uint64_t shm_ep_word(uint32_t incarnation, uint16_t node, enum shm_ep_state state)
{
	return (uint64_t)incarnation << 18 | (uint64_t)node << 2 | state;
}

static inline uint32_t shm_ep_incarnation(uint64_t word)
{
	return (uint32_t)(word >> 18);
}

static inline enum shm_ep_state shm_ep_state(uint64_t word)
{
	return (enum shm_ep_state)(word & 3);
}

/*
 * A slot of a ring: one cache line.  The state takes the place of vb_msg.from:
 *
 *	63      42 41 40 39                0
 *	[  lap   ][phase][ peer that sends ]
 */
#define SHM_MSG_BODY (sizeof(struct vb_msg) - sizeof(vb_peer))
struct shm_slot {
	uint64_t state;
	uint8_t body[SHM_MSG_BODY];
};
_Static_assert(SHM_REGIONS <= 32, "a bit of shm_fabric.held for each");
_Static_assert(sizeof(struct shm_slot) == VB_CACHELINE, "a slot fills one cache line");
_Static_assert(offsetof(struct vb_msg, from) == 0, "the state replaces `from`");

enum shm_phase { SHM_SLOT_FREE, SHM_SLOT_WRITING, SHM_SLOT_FULL, SHM_SLOT_VOID };

/* An OS thread that receives.  `bell`: bit 0 says that it sleeps, the rest counts messages. */
struct shm_worker {
	uint32_t bell VB_ALIGNED(64);
	uint32_t spare;
	shm_process owner; /* 0: free */
};

struct shm_header {
	uint64_t magic;
	uint32_t version, header_bytes;
	shm_process creator;
	struct vb_clock clock; /* the creator's: attachers adopt it, so that times compare */
	uint64_t total_bytes, node_bytes, stride, seed;
	uint32_t nodes, endpoints, ring_bits, slot_bits;
	uint64_t directories_at, endpoints_at, workers_at, rings_at, memory_at, users_at, mail_at,
		held_at;
	pthread_mutex_t mutex;
	uint32_t held_unlisted;                 /* as shm_fabric.held, of users without a place */
	uint32_t next_endpoint;                 /* where the search for a free one begins */
	uint32_t workers_active VB_ALIGNED(64); /* workers that are claimed */
	uint32_t workers_asleep; /* those of them whose bell says so; off by one for each killed in
				  * the middle of saying it, which costs spinning, nothing else */
};

struct shm_fabric {
	struct vb_fabric f;
	struct shm_header *h;
	int fd;    /* holds the lock that says the segment is in use; -1: anonymous */
	dev_t dev; /* its file: descriptors may be closed under us, and names given anew */
	ino_t ino;
	char path[256]; /* "": anonymous */
	uint64_t bytes; /* of the mapping; 0: none */
	uint32_t user;  /* this process's place among the users; SHM_NO_USER: it has none */
	unsigned cores;
	bool clock_held;
	uint32_t open;  /* endpoints of this process */
	uint8_t **base; /* memory of each node */
	struct shm_node *directories;
	struct shm_endpoint *endpoints;
	struct shm_worker *workers;
	shm_process *users;
	uint32_t *held; /* of each user: a bit of each region of node 0 that he holds */
	uint32_t holds[SHM_REGIONS]; /* how often this process does; under the mutex */
	uint64_t *mail;              /* a bit of each endpoint */
	struct shm_slot *rings;
};

#define SHM_NO_USER UINT32_MAX

/* A receiver whose full ring was waited for in vain, and how far it was then. */
struct shm_full {
	const struct shm_endpoint *to;
	uint64_t word, head, at_ns;
};

#define SHM_FULL_KEPT 64

/* One thread's part in one fabric: its worker and the endpoints it receives for. */
struct shm_link {
	struct vb_list in_thread;
	struct vb_list eps;
	struct shm_fabric *fabric;
	struct shm_thread *thread;
	uint32_t worker;
	uint32_t seen; /* the bell as of the last look at the rings */
	uint32_t n_eps;
	struct shm_mail *mail; /* NULL: all its rings are looked at */
	uint64_t unsent;       /* messages, for full rings: logged ever more rarely */
	/* By the receiver's number: a crowd asks many servers, and servers' workers, in turn. */
	struct shm_full full[SHM_FULL_KEPT];
};

struct shm_ep {
	struct vb_ep ep;
	uint8_t **base;
	uint64_t node_bytes;
	uint32_t nodes, slot;
	struct shm_endpoint *shared;
	struct shm_slot *ring;
	struct shm_link *link;
	struct vb_list in_link;
	uint64_t looked_ns; /* when a stuck sender was last checked for life */
	uint64_t refused;   /* verbs with a bad address: logged ever more rarely */
};

static inline struct shm_fabric *shm_of(struct vb_fabric *f)
{
	return (struct shm_fabric *)f;
}

static inline struct shm_slot *shm_ring(const struct shm_fabric *f, uint32_t slot)
{
	return f->rings + ((uint64_t)slot << f->h->ring_bits);
}

/* process.c */
#define shm_self          vb_process_self
#define shm_process_alive vb_process_alive

/* layout.c */
struct shm_layout {
	uint64_t total_bytes, stride;
	uint32_t ring_bits, slot_bits;
	uint64_t directories_at, endpoints_at, workers_at, rings_at, memory_at, users_at, mail_at,
		held_at;
};
void shm_lay_out(const struct vb_fabric_params *p, uint32_t ring_bits, struct shm_layout *l);
int shm_header_init(struct shm_header *h, const struct vb_fabric_params *p,
		    const struct shm_layout *l);
/* Whether a header may be believed, in a file of that many bytes: 0; -EPROTO, with what is wrong in
 * `why`. */
int shm_header_check(const struct shm_header *h, uint64_t file_bytes, char *why, size_t n);
/* The same of the tables, once they are mapped. */
int shm_tables_check(const struct shm_fabric *f, char *why, size_t n);

/* name.c */
enum shm_name_state {
	SHM_NAME_NONE, /* there is no such segment */
	SHM_NAME_LEFT, /* there is one that nobody uses: the exclusive lock is held */
	SHM_NAME_USED, /* there is one in use: the shared lock is held, if that was asked for */
};
/*
 * Looks what there is under a name.  *fd is its file, locked as above, or -1.
 *
 *   -EPERM   the file is another user's
 *   -EPROTO  it is no segment of ours, whatever else
 *   -EBUSY   somebody is removing it and does not come to an end
 */
int shm_name_look(const char *path, bool join, int *fd, enum shm_name_state *out);
/* Removes a name that shm_name_look has found to be left, and closes the file. */
void shm_name_remove(const char *path, int fd);
/* The same if all its users have closed it, none has crashed. */
void shm_name_remove_closed(const char *path, int fd);
/* Who has just let go of the segment, or (if !used) could not join it: removes the name if nobody
 * uses it any more; in the second case only if all have closed it. */
void shm_name_leave(const struct shm_fabric *f, bool used);
/* Says who uses it. */
int shm_name_fail_busy(const char *path, int fd);
bool shm_name_is(const char *path, int fd);
void shm_user_join(struct shm_fabric *f);
void shm_user_leave(struct shm_fabric *f);

/* segment.c */
struct shm_options {
	uint64_t ring;
};
int shm_segment_create(const struct vb_fabric_params *p, const struct shm_options *o,
		       struct shm_fabric *f);
int shm_segment_attach(const struct vb_fabric_params *p, struct shm_fabric *f);
int shm_segment_attach_or_create(const struct vb_fabric_params *p, const struct shm_options *o,
				 struct shm_fabric *f);
void shm_segment_after_fork(struct shm_fabric *f);
void shm_segment_close(struct shm_fabric *f);

/* table.c */
int shm_lock(struct shm_fabric *f);
void shm_unlock(struct shm_fabric *f);
/* The endpoint that `peer` names if it is open, else NULL. */
struct shm_endpoint *shm_endpoint_find(struct shm_fabric *f, vb_peer peer, uint32_t *slot);
/* Its owner is found to be gone. */
void shm_endpoint_bury(struct shm_endpoint *e, uint64_t word);
uint64_t shm_peer_word(const struct shm_fabric *f, vb_peer peer, uint32_t *slot);
bool shm_sender_dead(struct shm_fabric *f, vb_peer sender);

/* region.c */
int shm_region_find(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    vb_addr *out);
int shm_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room);
int shm_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	       bool *fresh);
int shm_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by);
int shm_region_hold_again(struct vb_fabric *f, const char *name, struct vb_region_held *held);
void shm_region_let_go(struct vb_fabric *f, const struct vb_region_held *held);
int shm_region_take(struct vb_fabric *f, const char *name, vb_peer me, vb_peer *by);
int shm_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id);

/* worker.c */
void shm_ring_bell(struct shm_fabric *f, uint32_t worker);
/* Clears "asleep"; true if it was set. */
bool shm_bell_awake(struct shm_fabric *f, uint32_t worker);
int shm_worker_claim(struct shm_fabric *f, uint32_t *worker);
void shm_worker_release(struct shm_fabric *f, uint32_t worker);
/* Of somebody else, who is gone. */
void shm_worker_free(struct shm_fabric *f, struct shm_worker *w, shm_process owner);

/* ring.c */
struct shm_place {
	struct shm_slot *slot;
	uint64_t state;      /* as reserved */
	uint32_t to, worker; /* endpoint */
	bool mail;
};
int shm_ring_reserve(struct shm_ep *e, vb_peer to, struct shm_place *out);
void shm_ring_publish(struct shm_ep *e, const struct shm_place *p, const struct vb_msg *m);
int shm_recv(struct vb_ep *ep, struct vb_msg *out);
bool shm_ring_ready(struct shm_ep *e, bool *stuck);
/* Takes everything out, for a new owner: false if a live sender is half-way in. */
bool shm_ring_drain(struct shm_fabric *f, uint32_t slot);

/* mail.c */
/* An endpoint that has been opened, and one that is about to be closed. */
void shm_mail_add(struct shm_link *l, struct shm_ep *e);
void shm_mail_drop(struct shm_link *l, struct shm_ep *e);
void shm_mail_end(struct shm_link *l);
/* An endpoint has some: after the message, and before the bell. */
static inline void shm_mail_note(struct shm_fabric *f, uint32_t slot)
{
	__atomic_fetch_or(&f->mail[slot / 64], 1ull << slot % 64, __ATOMIC_SEQ_CST);
}
/* Calls look for each endpoint that has, or may have, something; true: one of them was true. */
bool shm_mail_look(struct shm_link *l, bool (*look)(struct shm_ep *e, bool *stuck), bool *stuck);

/* wait.c */
/* How often all rings are looked at for mail that nobody has noted; the tests'. */
extern uint64_t shm_look_all_ns;
int shm_link_get(struct shm_fabric *f, struct shm_link **out);
void shm_link_put(struct shm_link *l);

/* endpoint.c */
int shm_ep_open(struct vb_fabric *fabric, uint16_t node, struct vb_ep **out);
void shm_ep_close(struct vb_ep *ep);
bool shm_peer_alive(struct vb_fabric *fabric, vb_peer peer);

/* verbs.c */
int shm_post(struct vb_ep *ep, struct vb_batch *batch);
int shm_faa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t *old);
int shm_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old);
int shm_mcas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask, uint64_t value,
	       uint64_t value_mask, uint64_t *old);
void shm_hint(struct vb_ep *ep, vb_addr a, uint32_t len);
int shm_read(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len);
int shm_write(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len);
int shm_read64(struct vb_ep *ep, vb_addr a, uint64_t *out);
int shm_mcas128(struct vb_ep *ep, vb_addr a, struct vb_u128 expect, struct vb_u128 expect_mask,
		struct vb_u128 value, struct vb_u128 value_mask, struct vb_u128 *old);
int shm_mfaa128(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
		struct vb_u128 *old);

#endif
