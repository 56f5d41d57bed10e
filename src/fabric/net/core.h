/* SPDX-License-Identifier: Apache-2.0 */
/* What the files of the network core share; transports use net.h. */
#ifndef VB_FABRIC_NET_CORE_H
#define VB_FABRIC_NET_CORE_H

#include "fabric/net/net.h"

#define NET_REGIONS     64
#define NET_ANSWER_NS   10000000000ull
#define NET_REGION_NAME 80
/* Leases are longer than this; sums with it must not overflow. */
#define NET_BOUND_MAX    86400000000000ull
#define NET_REGION_START 64 /* offset 0 is nobody's */

#define NET_NOBODY UINT32_MAX /* as a host's number */

/* Control messages are told apart by their sizes and kinds. */
enum net_control_kind {
	CONTROL_ASK = 1,
	CONTROL_ANSWER,
	CONTROL_LIST,
	CONTROL_NAMED,
	/* Of elastic clusters: questions of which control_answer brings the answer, */
	CONTROL_NUMBER, /* for an endpoint with its home at `node`: offset is its number */
	CONTROL_LIVES,  /* of the peer in `bytes`: fresh says whether it does */
	/* what a client says of its endpoints (control_count), */
	CONTROL_HAVE,      /* it has this one */
	CONTROL_HAVE_ALL,  /* and no others */
	CONTROL_TAKEN,     /* so many messages have come and were taken */
	CONTROL_GIVE_BACK, /* it is closed */
	CONTROL_UNASK, /* nobody waits any more for the number that the question `client` asked for */
	CONTROL_LEAVE, /* all are, and the client ends */
	/* and a message to one of them; */
	CONTROL_LETTER,
	/* what server 0's clock shows (control_ask: asked for, and in `bytes`). */
	CONTROL_CLOCK,
	CONTROL_TIME,
	/* Of regions that come and go, questions of which control_answer brings the answer: */
	CONTROL_HOLD,   /* as ASK, and it is held from then on, under the question's number */
	CONTROL_LET_GO, /* what was held under the number in `bytes` */
	CONTROL_TAKE,   /* by the peer in `bytes` (control_take) */
	CONTROL_REMOVE, /* of the node the region with the id in `bytes` */
	CONTROL_USED,   /* is it held? */
	/* When servers have begun, as far as it is known (later.c). */
	CONTROL_LATER,
};
#define CONTROL_VERSION 2

/* ASK; LIST: bytes is which one, the name empty; NUMBER, LIVES: no name. */
struct control_ask {
	uint8_t kind, version;
	uint16_t node;
	uint32_t number;
	uint64_t bytes;
	char name[NET_REGION_NAME];
};
_Static_assert(sizeof(struct control_ask) <= NET_CONTROL_MAX, "a question fits");

/* The same head, for the name of a lock space's region. */
struct control_take {
	struct control_ask ask;
	uint64_t was; /* who has it taken as the asker knows, and is dead */
};
_Static_assert(sizeof(struct control_take) <= NET_CONTROL_MAX, "it fits, too");

struct control_answer {
	uint8_t kind, version, fresh, pad;
	uint32_t number;
	int32_t err;
	uint32_t pad2;
	uint64_t offset;
};

struct net_region_entry {
	char name[NET_REGION_NAME];
	uint64_t bytes, offset, id;
	vb_peer by; /* who removes it; VB_PEER_NONE: nobody */
	uint32_t maker,
		number; /* the host that made it (NET_NOBODY: it is gone), and with which question */
};

/* Somebody uses a region of this host's first node: `host` under that number of its own. */
struct net_hold {
	uint64_t id;
	uint32_t host, number;
};

#define NET_HOLDS_MAX  65536u
#define NET_HOLDS_EACH 1024u /* of one host: it cannot take all */

struct net_node {
	unsigned used;
	uint64_t made; /* regions so far: the last one's id */
	struct net_region_entry region[NET_REGIONS];
};

struct net_host {
	bool gone; /* atomic: the cluster says so */
	bool anew; /* atomic: it has begun again; there are messages to it, but what it had is gone */
	bool told; /* under the engine: the transport knows */
};

/* Somebody who waits for another host's answer; on his stack, in core->asks under the engine. */
struct net_ask {
	struct vb_list link;
	struct net_thread *thread;
	uint32_t host, number;
	int32_t err;
	uint64_t offset;
	bool fresh, answered;
	uint64_t patience_ns;  /* 0: core->answer_ns */
	uint64_t unreached_ns; /* so long without a connection are enough; 0: patience_ns is */
	uint64_t down_ns;      /* since when there has been none; 0: there is */
	uint64_t was;          /* TAKE: goes with the question */
	struct vb_region_info *named; /* NULL, or where one of the node's names goes; then */
	uint32_t count;               /* how many names there are */
	struct vb_batch batch;        /* its pending goes from 1 to 0: net_done's way to wake him */
};

/* What one thread waits with: its scheduler's environment. */
struct net_env {
	struct vb_sched *sched;
	struct vb_list links; /* net_thread.in_env */
	uint64_t spin_ns;
	uint64_t taken_until_ns; /* the core has been taken away: no spinning before */
	uint64_t calm_ns;        /* so long */
	long cores_lost;         /* how often that has happened, as the kernel counts */
	bool looks;              /* between rounds, or idle */
	bool has_looked;         /* what has ended its wait */
	bool owes;               /* a fabric is unflushed, since tasks had their turn last */
	bool woken; /* since it went idle a pass has made a task of this thread ready */
};

struct net_inbox_item {
	struct vb_batch *batch;
	unsigned n;
};

/* A thread's part in one fabric. */
struct net_thread {
	struct net_fabric *f;
	struct net_env *env;
	struct vb_list in_env, in_core; /* in_core: under the engine */
	struct vb_list eps;
	unsigned users;
	int bell;       /* eventfd */
	bool asleep;    /* atomic */
	bool letters;   /* atomic: an endpoint of ours has waiting_told set */
	uint32_t items; /* atomic: in the inbox */
	pthread_mutex_t inbox_lock;
	struct net_inbox_item *inbox;
	uint32_t inbox_room;
};

struct net_core {
	struct vb_list threads; /* under the engine */
	struct net_thread *opener;
	struct net_ep *clients[NET_CLIENTS_MAX]; /* by client number modulo; under the engine */
	uint32_t next_client, open_clients;
	struct net_node *node; /* [local_nodes]; under the engine */
	struct net_hold *hold; /* [n_holds], of room for holds_room; under the engine */
	unsigned n_holds, holds_room;
	struct net_host *host; /* [hosts] */
	bool news;             /* atomic: somebody is gone and not told */
	struct vb_list asks;
	uint64_t meaningless, meaningless_again_ns; /* control messages; when one is said again */
	uint32_t next_ask;
	uint64_t answer_ns;        /* how long a question waits for its answer */
	bool unflushed;            /* under the engine */
	bool stirred;              /* the same: net_stirred */
	uint64_t last_pass_ns;     /* atomic */
	struct net_thread *poller; /* atomic: who sleeps on the transport's descriptor */
	bool helper_waits;         /* atomic: in net_wait_awake */
	uint32_t awake;            /* atomic, futex: threads that do not sleep in idle; and for
				    * ever one more when the fabric closes */
	uint64_t sleeps;           /* atomic */
	unsigned cores, pollers;   /* of this machine, and who might poll on it */
};

/* ---- thread.c ---- */

int net_thread_get(struct net_fabric *f, struct net_thread **out);
void net_thread_put(struct net_thread *t);
/* Is it the running thread's? */
bool net_is_here(const struct net_thread *t);
/* It is gone for good.  Engine held. */
void net_host_is_gone(struct net_fabric *f, uint32_t host);
/* What it had is gone for good, and it is there.  Engine held. */
void net_host_is_anew(struct net_fabric *f, uint32_t host);
/* One pass of the engine, which the caller holds. */
bool net_pass(struct net_fabric *f);
void net_ring_bell(struct net_thread *t);
/* The fabric closes: whoever is in net_wait_awake returns, and nobody blocks there again. */
void net_end_wait_awake(struct net_fabric *f);

/* ---- ask.c ---- */

/* Puts a question to ask->host and waits: 0, and err, offset and fresh of `ask`; -ETIMEDOUT, -EAGAIN or
 * -VB_EPEERGONE: there was no answer.  Not said. */
int net_ask(struct net_fabric *f, const struct control_ask *question, struct net_ask *ask);
/* The same, of who has ask->thread already. */
int net_ask_on_thread(struct net_fabric *f, const struct control_ask *question,
		      struct net_ask *ask);

/* ---- hold.c ---- */

/* A question about regions that come and go, for this host, is answered; false: it is none. */
bool net_hold_control(struct net_fabric *f, uint32_t from, const void *data, size_t bytes);
/* A host has ended: what it held nobody holds any more.  What it has made stays, and is nobody's: to who has its place
 * next, nothing of it is fresh. */
void net_hold_disown(struct net_fabric *f, uint32_t host);
/* Of a state: nor what is held by no host that there may be, as what was being dropped when its process ended. */
void net_hold_drop_strange(struct net_fabric *f);

/* ---- region.c ---- */

/* A question about regions, or an answer to one of ours; false: it is none. */
bool net_region_control(struct net_fabric *f, uint32_t from, const void *data, size_t bytes);
/* The node's directory.  Engine held; says nothing, since it may be another host that asks. */
int net_region_get(struct net_fabric *f, const struct control_ask *q, uint32_t from,
		   struct net_region_entry **out, bool *fresh);
/* It has no memory any more.  Engine held. */
void net_region_take_out(struct net_node *d, struct net_region_entry *r);
/* What a process has left that ended in the middle of that. */
void net_region_mend(struct net_node *d);
/* Says why a question about a region has failed. */
int net_region_say(struct net_fabric *f, int err, uint16_t node, const char *name, uint64_t bytes);
/* 0; -EINVAL, said. */
int net_region_check(const char *name, uint64_t bytes);

/* ---- ep.c ---- */

/* A client number that nobody has here; 0: there is none.  Engine held. */
uint32_t net_draw_number(struct net_fabric *f);
/* Into its ring: 0, -EAGAIN.  Engine held. */
int net_ep_put(struct net_ep *e, const struct vb_msg *m);
/* Whoever waits there looks again.  Engine held. */
void net_ep_stir(struct net_ep *e);

struct net_ep *net_ep_find(struct net_fabric *f, uint32_t client);

/* No verb reaches its memory any more, nor a question: what is there now, if anything is, is another's. */
static inline bool net_memory_gone(const struct net_fabric *f, uint32_t host)
{
	return __atomic_load_n(&f->core->host[host].gone, __ATOMIC_ACQUIRE) ||
	       __atomic_load_n(&f->core->host[host].anew, __ATOMIC_ACQUIRE);
}

/* So the cluster says. */
static inline bool net_host_gone(const struct net_fabric *f, uint16_t node)
{
	return __atomic_load_n(&f->core->host[net_host_of_node(f, node)].gone, __ATOMIC_ACQUIRE);
}

#endif
