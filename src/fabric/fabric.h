/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The verbs interface.
 *
 * A client talks through an *endpoint* (vb_ep): it posts verbs in batches and receives small
 * messages.  An endpoint belongs to one thread's scheduler and to one client.
 *
 * What is ordered, and nothing else is (that of a reliable connection):
 *   - among the verbs of one endpoint to one node, a READ or atomic sees the WRITEs and atomics
 *     posted before it, and WRITEs (and SENDs) land in the order they were posted;
 *   - a WRITE or SEND may overtake an earlier READ or atomic unless it carries VB_FENCE;
 *   - between nodes nothing is ordered;
 *   - a batch that has been waited for (its signalled verbs are complete) is before whatever is
 *     posted afterwards.
 * What is atomic: CAS and FAA with each other, on aligned words, in the scope that caps name.  An
 * aligned READ or WRITE of 8 bytes is whole, one of 16 bytes is whole where caps have MASKED128;
 * anything larger may be torn at those boundaries.  Nothing is promised between a WRITE (or a CPU
 * store) and an atomic on the same word.  What is bounded: a posted verb takes effect within
 * caps.verb_bound_ns of its posting or never, and completes (perhaps with an error) in bounded
 * time; a peer that died does not hang its callers.  After -VB_EUNKNOWN it may still land, too.
 * (On an RDMA card the bound is as good as what was measured of it: fabric/verbs/bound.c.  Soft-RoCE
 * may tear 8 bytes, too: doc/verbs.md.)
 */
#ifndef VB_FABRIC_FABRIC_H
#define VB_FABRIC_FABRIC_H

#include <errno.h>
#include <pthread.h>
#include <string.h>

#include <verbena/fabric.h>

#include "base/compiler.h"
#include "base/opt.h"
#include "base/rng.h"
#include "task/task.h"

#define VB_FABRIC_NODES_MAX     4096
#define VB_FABRIC_ENDPOINTS_MAX 131072

/*
 * A process of this machine, as something that can be asked later whether it lives: pid (upper 32
 * bits) and its start time in clock ticks (lower 32), because pids come round again.  0 is nobody.
 * Processes of different pid namespaces do not see each other so.
 */
uint64_t vb_process_self(void);
/* Takes somebody for dead only if that is certain. */
bool vb_process_alive(uint64_t process);

enum vb_op {
	VB_OP_READ,
	VB_OP_WRITE,
	VB_OP_CAS64,
	VB_OP_FAA64,
	VB_OP_MCAS64, /* masked: compare under a mask, swap under another */
	VB_OP_MFAA64, /* field-bounded: carries stop at the boundary bits */
	VB_OP_MCAS128,
	VB_OP_MFAA128,
	VB_OP_SEND,
	VB_OP_WRITE_NOTIFY, /* a WRITE whose arrival is told to an endpoint of that node */
	VB_OP_COUNT
};

extern const char *const vb_op_names[VB_OP_COUNT];

enum vb_verb_flags {
	VB_SIGNALLED =
		1 << 0, /* the batch is not done before this verb is; `old`, `buf` are valid then */
	VB_FENCE = 1 << 1, /* after the completion of all earlier READs and atomics to the node */
	VB_DATAGRAM =
		1 << 2, /* a SEND that may be lost and may overtake (VB_CAP_DATAGRAM); elsewhere
	                        * it is as any other */
};

/* 128 bits as two words: lo is the word at the lower address.  Aligned to 16 in segments. */
struct vb_u128 {
	uint64_t lo, hi;
};

static inline bool vb_u128_eq(struct vb_u128 a, struct vb_u128 b)
{
	return a.lo == b.lo && a.hi == b.hi;
}

/* 64 bytes: one slot of a ring. */
#define VB_MSG_DATA 40
struct vb_msg {
	vb_peer from;
	uint64_t subject; /* what it is about, for the dispatcher: a lock entry, a request number */
	uint16_t tag;
	uint16_t len; /* bytes of data that count */
	uint32_t imm;
	uint8_t data[VB_MSG_DATA];
};
_Static_assert(sizeof(struct vb_msg) == 64, "a message fills one cache line");

/*
 * One verb.  An unsignalled verb needs nothing of the caller after vb_post returned: a WRITE then
 * carries at most VB_INLINE_MAX bytes (copied), its message is copied, results are dropped.  A
 * signalled verb's buf and the verb itself must stay until the batch is done.
 */
#define VB_INLINE_MAX 64
struct vb_verb {
	uint8_t op;
	uint8_t flags;
	uint32_t len;   /* READ, WRITE: bytes */
	int32_t status; /* out: 0 or -error */
	vb_addr addr;
	vb_peer peer;                /* SEND, WRITE_NOTIFY: to whom */
	void *buf;                   /* READ: where to; WRITE: from where */
	const struct vb_msg *msg;    /* SEND, WRITE_NOTIFY; `from` is filled in by the fabric.  An
	                              * unsignalled WRITE_NOTIFY that says nothing but imm < 256
	                              * may arrive with the sender's node alone (client 0) */
	struct vb_u128 compare;      /* CAS: expected.  FAA: what to add */
	struct vb_u128 compare_mask; /* MCAS.  MFAA: bit set = the highest bit of a field */
	struct vb_u128 swap, swap_mask;
	struct vb_u128 old;    /* out: the whole previous value */
	uint64_t not_after_ns; /* 0, or: if the endpoint's clock has passed this when the doorbell
	                          * would ring, the verb is not posted and fails with
	                          * -VB_ETOOLATE; so does one whose node refuses it because it has stood
	                          * still, which is -VB_EUNKNOWN without this (VB_FOREVER: for that alone) */
};

/* Of a batch, those to one node take effect in their order, and behind one that does not happen no later one
 * does, but for those that are refused by what they are (a bad address, their own not_after_ns). */
struct vb_batch {
	struct vb_verb *verbs;
	uint16_t n;
	uint16_t pending;       /* signalled verbs not yet complete; the backend counts it down */
	bool posted;            /* vb_post returned 1 and vb_wait has not seen the end yet */
	struct vb_task *waiter; /* woken when pending reaches 0 */
};
#define VB_BATCH_MAX 64
#define VB_LEN_MAX   65536u /* bytes of one READ or WRITE that every fabric takes; some take more */

enum vb_cap_flags {
	VB_CAP_MASKED64 = 1 << 0,
	VB_CAP_MASKED128 = 1 << 1,
	VB_CAP_SEND = 1 << 2,
	VB_CAP_NOTIFY = 1 << 3,
	VB_CAP_INLINE = 1 << 4, /* verbs complete inside vb_post */
	VB_CAP_CPU_ATOMICS =
		1 << 5,             /* scope is global: the owner's CPU may use __atomic on words */
	VB_CAP_TARGET_CPU = 1 << 6, /* the target's CPU must take part */
	VB_CAP_VIRTUAL = 1 << 7,    /* virtual time */
	VB_CAP_PROCESSES = 1 << 8,  /* reaches other processes */
	VB_CAP_DATAGRAM = 1 << 9,   /* VB_DATAGRAM means something: such a SEND may be lost */
	VB_CAP_CLUSTER = 1 << 10,   /* reaches other machines: takes a cluster, no fork */
	VB_CAP_NO_VIEW = 1 << 11,   /* vb_local is NULL everywhere; vb_ep_open says whose it is */
	VB_CAP_NEAR_INLINE =
		1 << 12, /* where vb_local is not NULL, verbs complete inside vb_post */
};

struct vb_fabric_caps {
	uint32_t flags;
	uint64_t verb_bound_ns;
	/* How long a link that broke goes on refusing verbs although it could be there again: until it
	 * is tried anew, and what that takes.  0: no longer than a verb's bound. */
	uint64_t relink_ns;
	/* 0, or how long a grant may last at most: the memory may begin anew, and whoever brings it back
	 * waits for so long. */
	uint64_t lease_max_ns;
	/* This process has no node: its endpoints are at those of others, who say whether it lives. */
	bool client;
	/* 0, or how many servers have the nodes, node n the server n % servers + 1.  Each may end and begin again, with
	 * its memory or empty. */
	uint32_t servers;
	/* NULL, or what to do where the bound is longer than it need be, for who wants shorter
	 * leases. */
	const char *bound_note;
	/* What a READ of 8 bytes from another node takes when nothing is in its way: of a simulated
	 * machine by its profile, of a real one by experience.  Pauses begin with it. */
	uint64_t rtt_ns;
	const char *atomics; /* how the extended ones are made, for `verbena list` */
	const char *order;   /* what is stronger than the interface promises, for `verbena list` */
};

/* A named region of a node. */
struct vb_region_info {
	char name[96];
	uint64_t bytes;
	uint64_t id; /* on its node, and of no region that was there before: see vb_region_remove */
};

/* A region as its holder knows it. */
struct vb_region_held {
	vb_addr at;
	bool fresh;
	uint64_t id; /* of the region, or of this hold of it: the fabric's own */
};

/* What a fabric has done so far, where it counts: one process's view. */
struct vb_fabric_stats {
	uint64_t doorbells;   /* times that work was handed to the device or the network library */
	uint64_t posted;      /* verbs in them */
	uint64_t completions; /* signalled completions, or replies, taken in */
	uint64_t messages;    /* on the wire, both ways; tcp and ucx */
	uint64_t writes;      /* calls of the kernel that took some of them; tcp */
	uint64_t served;      /* verbs executed for others by this process's CPU; tcp and ucx */
	uint64_t served_late; /* of those, by the helper thread */
	uint64_t refused;     /* of those, because their time was over */
	uint64_t waits;       /* posts that had to wait for room (credits, queue depth) */
	uint64_t dropped;     /* unsignalled messages that found no room */
	uint64_t sleeps;      /* times that a thread slept for want of work */
};

struct vb_ep;

struct vb_fabric_ops {
	const char *name, *summary;
	const struct vb_opt *options;
	size_t options_size;
	/* NULL if it can run here, else why not. */
	const char *(*absent)(void);
	/* The static part of caps, for `verbena list`. */
	struct vb_fabric_caps caps;

	int (*open)(const struct vb_fabric_params *params, const void *options,
		    struct vb_fabric **out);
	void (*close)(struct vb_fabric *f);
	void (*after_fork)(struct vb_fabric *f);

	int (*ep_open)(struct vb_fabric *f, uint16_t node, struct vb_ep **out);
	void (*ep_close)(struct vb_ep *ep);

	/* 0: every verb is complete.  1: posted; the backend counts batch->pending down and wakes
	 * batch->waiter.  Negative: nothing was posted. Verb errors go to verb->status, not
	 * here. */
	int (*post)(struct vb_ep *ep, struct vb_batch *batch);
	/* Optional, for hooks: vb_wait has seen the end of a batch whose post returned 1. */
	void (*waited)(struct vb_ep *ep, struct vb_batch *batch);
	/* 0 and a message, or -EAGAIN.  The endpoint's waiters are woken when one arrives. */
	int (*recv)(struct vb_ep *ep, struct vb_msg *out);
	bool (*peer_alive)(struct vb_fabric *f, vb_peer peer);
	/* Optional, see vb_node_gone.  NULL: no node's memory ever goes. */
	bool (*node_gone)(struct vb_fabric *f, uint16_t node);
	/* Optional, see vb_ep_cut_off.  NULL: none ever is. */
	bool (*cut_off)(const struct vb_ep *ep);

	/* Room for named regions in a node's segment: 64-byte aligned, zeroed.  The same name gives
	 * the same region; *fresh says who came first.  -ENOSPC, -EINVAL; -EEXIST, not said: it
	 * has another size, and *out is where it lies. */
	int (*region)(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		      vb_addr *out, bool *fresh);
	/* Optional: a region that is there already; -ENOENT, not said.  NULL: as `region`, which
	 * makes it. */
	int (*region_find)(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
			   vb_addr *out);
	/* See vb_regions; NULL: as the fabric below. */
	int (*regions)(struct vb_fabric *f, uint16_t node, struct vb_region_info *out,
		       unsigned room);
	/* See vb_region_hold and those behind it; NULL: as the fabric below.  `hold`: -EALREADY and who removes
	 * the region in *by.  `take`: *by is who removes it as the caller knows, and then as it is. */
	int (*region_hold)(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
			   struct vb_region_held *out, vb_peer *by);
	/* Optional: where each node's process knows who uses what is there.  NULL: who holds a region of
	 * node 0 is all there is to know, and of other nodes none is held. */
	int (*region_used)(struct vb_fabric *f, uint16_t node, const char *name);
	/* Optional: in a forked child, where its parent holds it.  NULL: nothing is to be done. */
	int (*region_hold_again)(struct vb_fabric *f, const char *name,
				 struct vb_region_held *held);
	void (*region_let_go)(struct vb_fabric *f, const struct vb_region_held *held);
	int (*region_take)(struct vb_fabric *f, const char *name, vb_peer me, vb_peer *by);
	int (*region_remove)(struct vb_fabric *f, uint16_t node, uint64_t id);
	/* Optional, see vb_region_dense. */
	void (*dense)(struct vb_fabric *f, vb_addr addr, uint64_t bytes);
	/* The CPU's view of a node's segment, or NULL where there is none. */
	void *(*local)(struct vb_fabric *f, vb_addr addr, uint64_t bytes);

	/* Optional, for simulated clients that die or stall: every generic await on an endpoint
	 * (vb_wait, vb_ep_wait, vb_ep_sleep_until) calls it before it suspends (before = true: it
	 * does not suspend) and when the task is back (before = false: it may), each time with
	 * nothing on the task's stack linked into the endpoint.  It does not return if the client
	 * is dead. */
	void (*checkpoint)(struct vb_ep *ep, bool before);
	/* Optional, see vb_ep_serve. */
	void (*serve)(struct vb_ep *ep);
	/* Optional, see vb_ep_common_now; NULL: the endpoints' own clock is common to all. */
	uint64_t (*common_now)(struct vb_ep *ep, uint64_t *error_ns);
	/* Optional; may be called at any time from any thread. */
	void (*stats)(struct vb_fabric *f, struct vb_fabric_stats *out);

	/* Optional single-verb entries for fabrics that complete inline: no verb is built. */
	int (*faa64)(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t *old);
	int (*cas64)(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t *old);
	int (*mcas64)(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask,
		      uint64_t value, uint64_t value_mask, uint64_t *old);
	int (*read64)(struct vb_ep *ep, vb_addr a, uint64_t *out);
	/* The memory will be wanted in a moment: no effect but on time. */
	void (*hint)(struct vb_ep *ep, vb_addr a, uint32_t len);
	int (*read)(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len);
	int (*write)(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len);
	int (*mcas128)(struct vb_ep *ep, vb_addr a, struct vb_u128 expect,
		       struct vb_u128 expect_mask, struct vb_u128 value, struct vb_u128 value_mask,
		       struct vb_u128 *old);
	int (*mfaa128)(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
		       struct vb_u128 *old);
	/* Optional, see vb_home; -ENOENT, not said: as if there were no such function. */
	int (*home)(struct vb_fabric *f);
};

/* Backends embed these two at the start of their own structs. */
struct vb_fabric {
	const struct vb_fabric_ops *ops;
	struct vb_fabric_caps caps; /* of this instance */
	struct vb_fabric *lower;    /* what a hook wraps, else NULL */
	uint16_t nodes;
	uint64_t node_bytes;
	uint64_t seed;
	uint32_t forks; /* from the process that opened it to this one */
	uint32_t told;  /* vb_forks of the process that has opened it, or was told of it */
	bool no_keeper; /* what its threads leave behind moves on only while they wait in here */
	pthread_mutex_t opened_lock;
	struct vb_list opened; /* struct vb_opened: what callers have open on it */
};

struct vb_ep {
	const struct vb_fabric_ops *ops;
	struct vb_fabric *fabric;
	struct vb_ep *lower; /* what a hook's endpoint wraps, else NULL */
	struct vb_sched *sched;
	uint32_t forks; /* vb_forks when it was opened */
	vb_peer self;
	/* The client's own clock: local = base + offset + base * drift_ppb / 1e9.  Zero on real
	 * fabrics, where the machine's clock is all there is. */
	int64_t drift_ppb;
	uint64_t offset_ns;
	uint64_t count[VB_OP_COUNT]; /* verbs posted */
	struct vb_list waiters;      /* struct vb_ep_waiter: tasks that wait for a message */
	struct vb_task *caller; /* atomic: whose call on a ring is under way, see verbena/async.h */
	struct vb_host *host;   /* on whose thread it is, or NULL */
	void *user;             /* the client's state; NULL until set */
};

/* Every backend and hook, in the order in which `verbena list` shows them. */
extern const struct vb_fabric_ops *const vb_fabrics[];
const struct vb_fabric_ops *vb_fabric_find(const char *name);

/* ---- endpoints ---- */

int vb_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out);
void vb_ep_close(struct vb_ep *ep);
/* Its user has closed what it is for, and left it to background work: it no longer keeps a host open. */
void vb_ep_leave(struct vb_ep *ep);
/* For backends: what vb_ep has to start with. */
void vb_ep_init(struct vb_ep *ep, struct vb_fabric *f, vb_peer self);

/* The client's own clock and its timers.  A lease is judged with these. */
static inline uint64_t vb_ep_local(const struct vb_ep *ep, uint64_t base_ns)
{
	int64_t parts;

	if (vb_likely(ep->drift_ppb == 0))
		return base_ns + ep->offset_ns;
	/* A division of 128 bits costs more than all the rest; a simulation is seldom that long. */
	if (vb_unlikely(__builtin_mul_overflow(base_ns, ep->drift_ppb, &parts)))
		return base_ns + ep->offset_ns +
		       (uint64_t)(int64_t)((__int128)base_ns * ep->drift_ppb / 1000000000);
	return base_ns + ep->offset_ns + (uint64_t)(parts / 1000000000);
}

static inline uint64_t vb_ep_now(const struct vb_ep *ep)
{
	return vb_ep_local(ep, vb_sched_now(ep->sched));
}

/* A lower bound: the time no later than any store or atomic that follows takes effect (clock.h). */
static inline uint64_t vb_ep_now_early(const struct vb_ep *ep)
{
	return vb_ep_local(ep, vb_sched_now_early(ep->sched));
}

/* A lower bound of vb_ep_now without reading a clock. */
static inline uint64_t vb_ep_now_coarse(const struct vb_ep *ep)
{
	return vb_ep_local(ep, vb_sched_now_coarse(ep->sched));
}

/* Local time to the scheduler's time base; VB_FOREVER stays. */
uint64_t vb_ep_base(const struct vb_ep *ep, uint64_t local_ns);
/* 0, -ECANCELED. */
int vb_ep_sleep_until(struct vb_ep *ep, uint64_t local_ns);
static inline int vb_ep_sleep(struct vb_ep *ep, uint64_t ns)
{
	return vb_ep_sleep_until(ep, vb_ep_now(ep) + ns);
}
/* Also in a task that is cancelled: what must get through pauses between its tries there, too. */
void vb_ep_wait_out(struct vb_ep *ep, uint64_t ns);

/*
 * The time that all clients have in common, as far as this one knows it: true to within *error_ns.
 * What a time service (PTP, the cluster's own) makes of a machine's clock; it may be corrected
 * backwards.  On one machine it is the machine's clock and exact.
 */
uint64_t vb_ep_common_now(struct vb_ep *ep, uint64_t *error_ns);

/* Waits until a message may be there (0), the local time is until_ns (-ETIMEDOUT), -ECANCELED.
 * Spurious returns are allowed; every waiter of the endpoint is woken by every message. */
int vb_ep_wait(struct vb_ep *ep, uint64_t until_ns);
/* No message comes there any more, for good: its home is gone.  Who waits for one is woken to see it. */
bool vb_ep_cut_off(struct vb_ep *ep);
void vb_ep_wake(struct vb_ep *ep); /* a message came, or another task has taken out what did */

static inline void vb_ep_checkpoint(struct vb_ep *ep, bool before)
{
	if (vb_unlikely(ep->ops->checkpoint != NULL))
		ep->ops->checkpoint(ep, before);
}

/* Says that this endpoint's messages are requests which a server's CPU works on: where time is
 * virtual, each costs the profile's handler time, and recv says -EAGAIN while the CPU is busy. */
static inline void vb_ep_serve(struct vb_ep *ep)
{
	if (ep->ops->serve != NULL)
		ep->ops->serve(ep);
}

static inline int vb_ep_recv(struct vb_ep *ep, struct vb_msg *out)
{
	return ep->ops->recv(ep, out);
}

/* ---- verbs ---- */

/* Posts a batch of 1..VB_BATCH_MAX verbs; see ops->post for the result. */
int vb_post(struct vb_ep *ep, struct vb_batch *batch);
/* Waits until the signalled verbs are complete; the first error among their statuses, or 0. */
int vb_wait(struct vb_ep *ep, struct vb_batch *batch);
/* Both, for n verbs. */
int vb_post_wait(struct vb_ep *ep, struct vb_verb *verbs, unsigned n);

/* One verb, awaited.  0 or -error: -EINVAL (misaligned, too long), -EOPNOTSUPP (see caps),
 * -VB_EACCESS (outside the segment), -VB_EPEERGONE (node gone, nothing happened), -VB_EUNKNOWN
 * (it may have happened), -VB_ETOOLATE. */
int vb_verb_run(struct vb_ep *ep, struct vb_verb *v);

int vb_read_slow(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len);
int vb_write_slow(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len);

static inline int vb_read(struct vb_ep *ep, vb_addr a, void *buf, uint32_t len)
{
	if (vb_likely(ep->ops->read != NULL)) {
		ep->count[VB_OP_READ]++;
		return ep->ops->read(ep, a, buf, len);
	}
	return vb_read_slow(ep, a, buf, len);
}

static inline int vb_write(struct vb_ep *ep, vb_addr a, const void *buf, uint32_t len)
{
	if (vb_likely(ep->ops->write != NULL)) {
		ep->count[VB_OP_WRITE]++;
		return ep->ops->write(ep, a, buf, len);
	}
	return vb_write_slow(ep, a, buf, len);
}

/* Field-bounded FAA on 64 bits, and its rarely used kin, go through vb_verb_run. */
int vb_mfaa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t bounds, uint64_t *old);
/* Posted, not awaited (unsignalled).  -VB_EPEERGONE, -EAGAIN: it was refused, and has not left; that it is lost on
 * its way is not reported. */
int vb_send(struct vb_ep *ep, vb_peer to, const struct vb_msg *m);
/* Awaited: -VB_EPEERGONE if the endpoint is known to be gone; -EAGAIN if it is there but has had no
 * room for a message for as long as the fabric waits (shm: 1 ms). */
int vb_send_wait(struct vb_ep *ep, vb_peer to, const struct vb_msg *m);

int vb_faa64_slow(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t not_after, uint64_t *old);
int vb_cas64_slow(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value, uint64_t not_after,
		  uint64_t *old);
int vb_mcas64_slow(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask,
		   uint64_t value, uint64_t value_mask, uint64_t not_after, uint64_t *old);
int vb_mcas128_slow(struct vb_ep *ep, vb_addr a, struct vb_u128 expect, struct vb_u128 expect_mask,
		    struct vb_u128 value, struct vb_u128 value_mask, uint64_t not_after,
		    struct vb_u128 *old);
int vb_mfaa128_slow(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
		    uint64_t not_after, struct vb_u128 *old);

static inline int vb_faa64(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t *old)
{
	if (vb_likely(ep->ops->faa64 != NULL)) {
		ep->count[VB_OP_FAA64]++;
		return ep->ops->faa64(ep, a, add, old);
	}
	return vb_faa64_slow(ep, a, add, 0, old);
}

/* Not posted once the endpoint's clock has passed not_after (-VB_ETOOLATE).  The look may be early:
 * what follows takes effect within verb_bound_ns of it or stands still with this machine, and the
 * callers' leases have room for both. */
static inline int vb_faa64_before(struct vb_ep *ep, vb_addr a, uint64_t add, uint64_t not_after,
				  uint64_t *old)
{
	if (vb_likely(ep->ops->faa64 != NULL)) {
		if (not_after != VB_FOREVER && vb_ep_now_early(ep) > not_after)
			return -VB_ETOOLATE;
		ep->count[VB_OP_FAA64]++;
		return ep->ops->faa64(ep, a, add, old);
	}
	return vb_faa64_slow(ep, a, add, not_after, old);
}

static inline int vb_cas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value,
			   uint64_t *old)
{
	if (vb_likely(ep->ops->cas64 != NULL)) {
		ep->count[VB_OP_CAS64]++;
		return ep->ops->cas64(ep, a, expect, value, old);
	}
	return vb_cas64_slow(ep, a, expect, value, 0, old);
}

static inline int vb_cas64_before(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t value,
				  uint64_t not_after, uint64_t *old)
{
	if (vb_likely(ep->ops->cas64 != NULL)) {
		if (not_after != VB_FOREVER && vb_ep_now_early(ep) > not_after)
			return -VB_ETOOLATE;
		ep->count[VB_OP_CAS64]++;
		return ep->ops->cas64(ep, a, expect, value, old);
	}
	return vb_cas64_slow(ep, a, expect, value, not_after, old);
}

static inline int vb_mcas64(struct vb_ep *ep, vb_addr a, uint64_t expect, uint64_t expect_mask,
			    uint64_t value, uint64_t value_mask, uint64_t *old)
{
	if (vb_likely(ep->ops->mcas64 != NULL)) {
		ep->count[VB_OP_MCAS64]++;
		return ep->ops->mcas64(ep, a, expect, expect_mask, value, value_mask, old);
	}
	return vb_mcas64_slow(ep, a, expect, expect_mask, value, value_mask, 0, old);
}

static inline int vb_mcas64_before(struct vb_ep *ep, vb_addr a, uint64_t expect,
				   uint64_t expect_mask, uint64_t value, uint64_t value_mask,
				   uint64_t not_after, uint64_t *old)
{
	if (vb_likely(ep->ops->mcas64 != NULL)) {
		if (not_after != VB_FOREVER && vb_ep_now_early(ep) > not_after)
			return -VB_ETOOLATE;
		ep->count[VB_OP_MCAS64]++;
		return ep->ops->mcas64(ep, a, expect, expect_mask, value, value_mask, old);
	}
	return vb_mcas64_slow(ep, a, expect, expect_mask, value, value_mask, not_after, old);
}

static inline int vb_read64(struct vb_ep *ep, vb_addr a, uint64_t *out)
{
	if (vb_likely(ep->ops->read64 != NULL)) {
		ep->count[VB_OP_READ]++;
		return ep->ops->read64(ep, a, out);
	}
	return vb_read(ep, a, out, 8);
}

static inline int vb_mcas128(struct vb_ep *ep, vb_addr a, struct vb_u128 expect,
			     struct vb_u128 expect_mask, struct vb_u128 value,
			     struct vb_u128 value_mask, struct vb_u128 *old)
{
	if (vb_likely(ep->ops->mcas128 != NULL)) {
		ep->count[VB_OP_MCAS128]++;
		return ep->ops->mcas128(ep, a, expect, expect_mask, value, value_mask, old);
	}
	return vb_mcas128_slow(ep, a, expect, expect_mask, value, value_mask, 0, old);
}

static inline int vb_mcas128_before(struct vb_ep *ep, vb_addr a, struct vb_u128 expect,
				    struct vb_u128 expect_mask, struct vb_u128 value,
				    struct vb_u128 value_mask, uint64_t not_after,
				    struct vb_u128 *old)
{
	if (vb_likely(ep->ops->mcas128 != NULL)) {
		if (not_after != VB_FOREVER && vb_ep_now_early(ep) > not_after)
			return -VB_ETOOLATE;
		ep->count[VB_OP_MCAS128]++;
		return ep->ops->mcas128(ep, a, expect, expect_mask, value, value_mask, old);
	}
	return vb_mcas128_slow(ep, a, expect, expect_mask, value, value_mask, not_after, old);
}

static inline int vb_mfaa128(struct vb_ep *ep, vb_addr a, struct vb_u128 add, struct vb_u128 bounds,
			     struct vb_u128 *old)
{
	if (vb_likely(ep->ops->mfaa128 != NULL)) {
		ep->count[VB_OP_MFAA128]++;
		return ep->ops->mfaa128(ep, a, add, bounds, old);
	}
	return vb_mfaa128_slow(ep, a, add, bounds, 0, old);
}

static inline int vb_mfaa128_before(struct vb_ep *ep, vb_addr a, struct vb_u128 add,
				    struct vb_u128 bounds, uint64_t not_after, struct vb_u128 *old)
{
	if (vb_likely(ep->ops->mfaa128 != NULL)) {
		if (not_after != VB_FOREVER && vb_ep_now_early(ep) > not_after)
			return -VB_ETOOLATE;
		ep->count[VB_OP_MFAA128]++;
		return ep->ops->mfaa128(ep, a, add, bounds, old);
	}
	return vb_mfaa128_slow(ep, a, add, bounds, not_after, old);
}

/* A fetch-and-store: natively a masked CAS that compares nothing.  On a fabric without masks a CAS loop:
 * each CAS that fails shows another client's that has succeeded, and for how long it is others' is not
 * bounded.  So it ends when the endpoint's clock is until_ns, or the task is cancelled: -ETIMEDOUT,
 * -ECANCELED, and nothing has changed; nor has it with -VB_ETOOLATE. */
int vb_swap64(struct vb_ep *ep, vb_addr a, uint64_t value, uint64_t until_ns, uint64_t *old);

/* ---- the arithmetic of the extended atomics, shared by every backend that executes them ---- */

static inline uint64_t vb_mask_apply64(uint64_t old, uint64_t value, uint64_t mask)
{
	return (old & ~mask) | (value & mask);
}

/* Adds field by field: a bit set in bounds is the highest bit of a field; its carry is dropped. */
static inline uint64_t vb_field_add64(uint64_t a, uint64_t b, uint64_t bounds)
{
	/* Add with every field's top bit kept out, then put the top bits back in by xor. */
	return ((a & ~bounds) + (b & ~bounds)) ^ ((a ^ b) & bounds);
}

static inline struct vb_u128 vb_field_add128(struct vb_u128 a, struct vb_u128 b,
					     struct vb_u128 bounds)
{
	unsigned __int128 x = (unsigned __int128)a.hi << 64 | a.lo;
	unsigned __int128 y = (unsigned __int128)b.hi << 64 | b.lo;
	unsigned __int128 m = (unsigned __int128)bounds.hi << 64 | bounds.lo;
	unsigned __int128 r = ((x & ~m) + (y & ~m)) ^ ((x ^ y) & m);

	return (struct vb_u128){.lo = (uint64_t)r, .hi = (uint64_t)(r >> 64)};
}

/* ---- regions, peers ---- */

int vb_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	      bool *fresh);
/* The same for who can tell better why the sizes differ: -EEXIST, not said, and *out is the other
 * one's address. */
int vb_region_or_other(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		       vb_addr *out, bool *fresh);
/* As vb_region, for who only looks: -ENOENT, not said, if nobody has made it, where the fabric can tell
 * (shm); elsewhere it is made, and is all zeros. */
int vb_region_find(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   vb_addr *out);
/* The named regions of a node: how many there are, of which the first `room` are in out[]; or what the fabric
 * says, said. */
int vb_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room);
/* All of them, in an array that the caller frees if there was no error. */
int vb_regions_all(struct vb_fabric *f, uint16_t node, struct vb_region_info **out);
/* As vb_region, of a region that others make: waits for them, patience_ns.  -ENOENT (not said): they have not. */
int vb_region_made(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   uint64_t patience_ns, vb_addr *out);

/*
 * Regions that come and go (held.c).  Those of one owner lie on any number of nodes; the one on node 0 stands for
 * all of them: who uses any holds that one, and who removes them takes it first and removes it last.  But a process
 * may be given up by the one that has node 0, or outlive it, and go on with what it has elsewhere; or it has only what
 * lies on its own nodes, whether there is a node 0 or not.  So each is held where it lies, too.
 *
 *	hold     as vb_region_or_other, and this process is known to use it until vb_region_let_go, or until it
 *	         is known to have ended.  On node 0 it fails while the region is taken: -EAGAIN, said, if who has
 *	         taken it lives; -EOWNERDEAD, not said: it is for the caller to end what that one has begun
 *	used     0: nobody is known to, or there is no such region; -EBUSY, said
 *	take     of node 0: `me`, an endpoint of the caller's, removes it from now on, if it is not held: -EBUSY,
 *	         said; -ENOENT, not said: there is none; -EAGAIN, said: another who lives has taken it.  What a
 *	         dead one had taken is taken over
 *	remove   the memory is zeros and free.  Of a region whose owner's on node 0 was taken.  0 if there is
 *	         none with that id any more; -EBUSY, not said: somebody has come to hold it there
 *
 * Between hold and take it is as between two atomics on one word, whatever the fabric does it with: if both succeed,
 * one has seen the other's end.
 */
int vb_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		   struct vb_region_held *out);
int vb_region_used(struct vb_fabric *f, uint16_t node, const char *name);
/* In a forked child, of what its parent held of node 0 at the fork: 0; -ENOENT, not said: it was removed meanwhile. */
int vb_region_hold_again(struct vb_fabric *f, const char *name, struct vb_region_held *held);
void vb_region_let_go(struct vb_fabric *f, const struct vb_region_held *held);
int vb_region_take(struct vb_fabric *f, const char *name, vb_peer me);
int vb_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id);
/* Where `bytes` fit that are at no other's place: the lowest such place from `start` on.  The n spans lie in
 * any order; those of no bytes count for nothing. */
struct vb_span {
	uint64_t at, bytes;
};
uint64_t vb_span_fit(const struct vb_span *spans, unsigned n, uint64_t start, uint64_t bytes);
/* Zeros, and whole pages go back to the machine as `advice` says (MADV_...; 0: they stay). */
void vb_zero_pages(void *at, uint64_t bytes, int advice);
/* What is told of a region by who has made it: all of it will be used, and at random.  Has no effect but on
 * time and memory. */
void vb_region_dense(struct vb_fabric *f, vb_addr at, uint64_t bytes);
void *vb_local(struct vb_fabric *f, vb_addr addr, uint64_t bytes);
/* A node at which this process may open endpoints, or -EINVAL, said: it has none. */
int vb_home(struct vb_fabric *f);
bool vb_peer_alive(struct vb_fabric *f, vb_peer p);
/* Whether it is known that a node's memory has gone for good, with the process that had it.  A verb that ends
 * with -VB_EPEERGONE says less: its link may only be down. */
bool vb_node_gone(struct vb_fabric *f, uint16_t node);
/* Through hooks, too; zeroes where a fabric does not count. */
void vb_fabric_stats_get(struct vb_fabric *f, struct vb_fabric_stats *out);

#endif
