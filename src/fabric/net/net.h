/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the fabrics that reach other machines share: hosts and their memory, threads and how they
 * wait, endpoints and their rings, named regions, control messages.  A *transport* (verbs, ucx)
 * brings the wire.
 *
 * Hosts.  A *host* is a process of the cluster (its rank).  Node n lives in host n % hosts, and all
 * nodes of a host lie in one block of memory, so that one registration and one key per host do.
 * Without a cluster there is one host with all nodes, and every verb still takes the wire if the
 * transport says so.
 *
 * The engine.  All that touches the wire (posting, ringing, looking for completions) happens under
 * one mutex per fabric, the engine, by whichever thread comes along.  What an engine pass finds for
 * another thread goes into that thread's *inbox* and rings its bell; batches, endpoints' waiters
 * and tasks are touched by their own thread only.
 *
 * Doorbells.  post() hands verbs to the transport; if other tasks of the thread are ready and
 * `coalesce` is on, the doorbell waits for the end of the scheduler's round, and the verbs of
 * several tasks leave together.  A batch in which nothing is signalled leaves at once, because
 * nobody will wait for it; so does everything when nobody else is ready to run.  A verb whose time is
 * limited shares the doorbell like any other: the transport looks at the time again when it rings,
 * and what is too late then ends with -VB_ETOOLATE without having been posted.
 *
 * Waiting.  One idle thread at a time is the *poller*: it looks at the engine, spins for as long as
 * that has paid (fabric/spin.h), then arms the transport's descriptor and sleeps on it.  The other
 * idle threads sleep on their bells, and look at the engine every millisecond, so that a poller
 * that has got work is stood in for.
 */
#ifndef VB_FABRIC_NET_NET_H
#define VB_FABRIC_NET_NET_H

#include <pthread.h>

#include "cluster/cluster.h"
#include "fabric/fabric.h"

struct net_fabric;
struct net_thread;

#define NET_RING 256 /* messages that an endpoint holds; what comes beyond is refused */

struct net_ep {
	struct vb_ep ep;
	struct net_thread *thread;
	uint32_t client; /* the low 24 bits of ep.self, never 0; NET_CLIENTS_MAX at a time */
	uint32_t lane;   /* endpoint number modulo the transport's lanes: one order per endpoint */
	struct vb_list in_thread;
	/* Of a client of an elastic cluster, under the engine: messages come through its home, which was
	 * told how many have come and how many were taken. */
	struct vb_list in_away;
	uint32_t told_tail, told_head;
	bool waiting_told; /* atomic: a message came and the owner has not been told yet */
	/* Filled under the engine, emptied by the owner: one producer at a time, one consumer. */
	uint32_t head, tail; /* atomic; tail - head messages are in it */
	struct vb_msg *ring; /* [NET_RING] */
};

/* Parts of a transport's life; every call but open, connect and close with the engine held. */
struct net_transport {
	const char *name;
	/* Verbs to this host's own memory are done on the spot by the CPU (scope: global). */
	bool (*local_cpu)(const struct net_fabric *f);
	/* Makes what is needed to be called, f->memory registered; what others must know of it goes
	 * to address[*bytes] (NET_ADDRESS_MAX at first).  Sets f->f.caps. */
	int (*open)(struct net_fabric *f, const void *options, void *address, size_t *bytes);
	/* All hosts' addresses by rank; untrusted: check every length and number.  After it, verbs
	 * flow (the core holds a barrier behind it). */
	int (*connect)(struct net_fabric *f, const struct vb_cluster_parts *addresses);
	void (*close)(struct net_fabric *f);
	/* The verbs of b with status 0 (others failed the checks); VB_IS_LOCAL ones are done
	 * already where local_cpu says so, and have status NET_DONE.  Counts nothing itself; each
	 * signalled verb that it takes is answered by one net_done later.  The core has compared
	 * not_after_ns with the clock before it took the engine; the transport compares again when
	 * the doorbell rings, a round later perhaps.  0, or -error: nothing was taken.  `b` of which nothing is
	 * signalled may be gone after the call. */
	int (*post)(struct net_fabric *f, struct net_ep *e, struct vb_batch *b);
	/* Everything posted leaves, but for what is too late by its own time: that ends with
	 * -VB_ETOOLATE, if it was signalled; otherwise it is dropped. */
	void (*flush)(struct net_fabric *f);
	/* Looks once; true if something came. */
	bool (*progress)(struct net_fabric *f);
	/* Before sleeping on fd: 0, or -EBUSY if there is something to be seen. */
	int (*arm)(struct net_fabric *f);
	/* fd is readable as long as there is something to take in: nobody has to look before arm. */
	bool level;
	/* Sends a control message (NET_CONTROL_MAX bytes at most), ordered with nothing.  -EAGAIN:
	 * no room now; -VB_EPEERGONE.  It may be lost with its connection. */
	int (*control)(struct net_fabric *f, uint32_t host, const void *data, size_t bytes);
	/* The cluster says so: fail what is in flight to it (-VB_EUNKNOWN if it may have been
	 * executed, -VB_EPEERGONE if not), and fail at once what is posted from now on. */
	void (*host_gone)(struct net_fabric *f, uint32_t host);
	/* Elastic clusters (elastic.h), of transports that have them: a host's number begins anew with
	 * nothing known of it; net_elastic_tick is called at that time or before. */
	void (*host_new)(struct net_fabric *f, uint32_t host);
	void (*due)(struct net_fabric *f, uint64_t at_ns);
	/* A host was sent a question at since_ns.  0: something has come since; else when to ask this again.  One
	 * that has been silent for too long has lost its connection (VB_FOREVER). */
	uint64_t (*silent)(struct net_fabric *f, uint32_t host, uint64_t since_ns, uint64_t now);
};

/* A verb done by the core before the transport sees the batch. */
#define NET_DONE        1
#define NET_ADDRESS_MAX 65536
#define NET_CONTROL_MAX 128
#define NET_CLIENTS_MAX 65536

struct net_fabric {
	struct vb_fabric f;
	const struct net_transport *t;
	void *wire;                  /* the transport's state */
	struct vb_cluster *cluster;  /* NULL: alone */
	struct net_elastic *elastic; /* NULL: the processes begin together, or there is one */
	uint32_t host, hosts;
	uint32_t local_nodes; /* nodes of this host */
	uint8_t *
		memory; /* [local_nodes * node_bytes], page aligned, zeroed, huge pages if possible */
	size_t memory_bytes;
	int fd;        /* the transport's descriptor, -1: none */
	bool coalesce; /* set by the transport from its options */
	bool pinned;   /* set by the transport: the pages of `memory` are known to a card */
	uint32_t verb_bytes_max; /* set by the transport: of one verb; longer ones are refused */
	uint32_t awaited; /* atomic: messages that hosts have not answered yet (net_awaits) */
	uint64_t spin_ns; /* set by the transport: see "Waiting"; 0: by the number of cores */
	uint64_t wait_ns; /* set by the transport: how long a signalled verb may take before
	                    * it is given up as unknown */
	struct vb_fabric_stats stats; /* under the engine */
	pthread_mutex_t engine;
	struct net_core *core; /* net.c's own: threads, endpoints, regions, hosts' states */
};

/* ---- for the backends' vb_fabric_ops: all entries but open and the inline ones ---- */

int net_open(const struct vb_fabric_params *p, const void *options, const struct vb_fabric_ops *ops,
	     const struct net_transport *t, struct vb_fabric **out);
void net_close(struct vb_fabric *f);
void net_after_fork(struct vb_fabric *f); /* refuses: a process opens its own */
int net_ep_open(struct vb_fabric *f, uint16_t node, struct vb_ep **out);
void net_ep_close(struct vb_ep *ep);
int net_post(struct vb_ep *ep, struct vb_batch *b);
int net_recv(struct vb_ep *ep, struct vb_msg *out);
bool net_peer_alive(struct vb_fabric *f, vb_peer peer);
bool net_node_gone(struct vb_fabric *f, uint16_t node);
bool net_ep_cut_off(const struct vb_ep *ep);
int net_home(struct vb_fabric *f); /* see vb_home */
int net_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	       bool *fresh);
int net_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room);
int net_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by);
int net_region_used(struct vb_fabric *f, uint16_t node, const char *name);
void net_region_let_go(struct vb_fabric *f, const struct vb_region_held *held);
int net_region_take(struct vb_fabric *f, const char *name, vb_peer me, vb_peer *by);
int net_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id);
void *net_local(struct vb_fabric *f, vb_addr addr, uint64_t bytes); /* own nodes; else NULL */
void net_stats(struct vb_fabric *f, struct vb_fabric_stats *out);
uint64_t net_common_now(struct vb_ep *ep, uint64_t *error_ns); /* the root's clock */

#define NET_FABRIC_OPS                                                                             \
	.close = net_close, .after_fork = net_after_fork, .ep_open = net_ep_open,                  \
	.ep_close = net_ep_close, .post = net_post, .recv = net_recv,                              \
	.peer_alive = net_peer_alive, .node_gone = net_node_gone, .region = net_region,            \
	.regions = net_regions, .region_hold = net_region_hold, .region_used = net_region_used,    \
	.region_let_go = net_region_let_go, .region_take = net_region_take,                        \
	.region_remove = net_region_remove, .local = net_local, .stats = net_stats,                \
	.common_now = net_common_now, .home = net_home, .cut_off = net_ep_cut_off

/* ---- for the transports ---- */

static inline struct net_fabric *net_of(struct vb_fabric *f)
{
	return (struct net_fabric *)f;
}

static inline uint32_t net_host_of_node(const struct net_fabric *f, uint16_t node)
{
	return node % f->hosts;
}

/* Where an address lies in its host's block of memory.  The caller has checked it (net_checked). */
static inline uint64_t net_host_offset(const struct net_fabric *f, vb_addr a)
{
	return (uint64_t)(vb_addr_node(a) / f->hosts) * f->f.node_bytes + vb_addr_offset(a);
}

/* How much memory host h has registered. */
static inline uint64_t net_host_bytes(const struct net_fabric *f, uint32_t host)
{
	uint64_t nodes = host < f->f.nodes ? (f->f.nodes - 1u - host) / f->hosts + 1 : 0;

	return nodes * f->f.node_bytes;
}

/* n signalled verbs of b are complete (their status and results are written).  Engine held. */
void net_done(struct net_fabric *f, struct net_thread *owner, struct vb_batch *b, unsigned n);

/* So many more messages have been sent that will be answered, or (negative) fewer wait for that.  Engine held. */
static inline void net_awaits(struct net_fabric *f, int32_t more)
{
	__atomic_store_n(&f->awaited, f->awaited + (uint32_t)more, __ATOMIC_RELAXED);
}

/* A message for an endpoint of this host.  0; -EAGAIN: its ring is full; -VB_EPEERGONE: there is no
 * such endpoint.  Engine held.  `m` is untrusted but for its size. */
int net_deliver(struct net_fabric *f, uint32_t client, const struct vb_msg *m);

/* Has one of those since the last call made a task ready that this very thread runs next?  Engine held. */
bool net_stirred(struct net_fabric *f);
/* What the transport has for others leaves with what those tasks post, or when they have had their turn.  Engine held. */
void net_owe(struct net_fabric *f);

/* A control message came.  Untrusted.  Engine held. */
void net_control_came(struct net_fabric *f, uint32_t from_host, const void *data, size_t bytes);

/* When the engine last looked for progress (vb_clock_ns), and whether a thread sleeps on f->fd and
 * will see what comes.  For a helper that steps in when neither is so. */
uint64_t net_last_pass_ns(const struct net_fabric *f);
bool net_poller_sleeps(const struct net_fabric *f);
/* One pass by a thread that is none of the scheduler's: flush, progress, news of the dead.  False
 * if somebody else is at it. */
bool net_try_pass(struct net_fabric *f);
/* Blocks while every thread sleeps in idle; returns at the latest when the fabric closes. */
void net_wait_awake(struct net_fabric *f);

/* For spin_ns: twice what it costs this machine to wake a thread, measured in a millisecond. */
uint64_t net_spin_of_wake(void);

/* Rings the bell of a thread that may sleep, for transports that have work for it. */
void net_wake_all(struct net_fabric *f);

#endif
