/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The transport `verbs`: reliable connections between hosts.
 *
 *	verbs.c        options, opening, addresses, closing
 *	bound.c        until when a request may take effect
 *	measure.c      measuring that
 *
 * and, each calling those below it only:
 *
 *	post.c         verbs -> work requests; waiting for room
 *	tick.c         looking at the network, and what time brings
 *	poll.c         completions -> ends of verbs
 *	again.c        new connections for broken ones
 *	msg.c          messages: credits, acknowledgements, control
 *	ud.c           datagrams
 *	ring.c         work requests -> doorbells -> their ends; breaking and emptying a connection
 *	qp.c           making and connecting queue pairs
 *	recv.c         receive buffers, and the ends of queue pairs
 *	sends.c        signalled messages without an answer
 *	done.c         ends of verbs
 *
 * Everything runs with the engine held, but open, connect and close.
 *
 * A queue pair's work requests stand in a ring of `depth` places:
 *
 *	   head            rung            tail          head + depth
 *	     |  in flight    |   built      |   free       |
 *
 * Each place has its request, a scatter entry, a record of what to do at the end, and VERBS_SLOT
 * bytes of registered memory for what is small: atomics' results, READs and WRITEs of up to that
 * size, messages.  What is larger goes through pieces of VERBS_PIECE bytes of a common pool, copied
 * in and out, because tasks' stacks are not registered.
 *
 * Requests of one queue pair end in their order, so a completion ends everything up to its place,
 * and only the last request that somebody waits for asks for one.
 */
#ifndef VB_FABRIC_VERBS_INNER_H
#define VB_FABRIC_VERBS_INNER_H

#include <time.h>

#include "fabric/net/net.h"
#include "fabric/verbs/device.h"
#include "fabric/verbs/ext.h"
#include "fabric/verbs/lib.h"

#define VERBS_LANES_MAX   8u
#define VERBS_SLOT        160u
#define VERBS_PIECE       4096u
#define VERBS_RECV_BYTES  256u /* a receive buffer; with the 40 bytes in front of a datagram */
#define VERBS_SPARE       4u /* places of a ring that verbs leave to acknowledgements and control */
#define VERBS_RESERVE     4u /* credits that messages leave to control */
#define VERBS_CREDITS_MAX 128u
#define VERBS_QUEUE       64u /* control messages that wait for credits, per host */
#define VERBS_GRH         40u
#define VERBS_POLL        32
#define VERBS_SPARE_RECVS 64u /* receive buffers, for those that a device does not give back */
#define VERBS_DYING_MAX   64u

/* What the options make of the timer; see bound.c. */
#define VERBS_FORMULA_NS(timeout, retries) ((1 + (retries)) * 4 * (4096ull << (timeout)))
#define VERBS_RNR_RETRIES                  6
#define VERBS_RNR_NS                       (VERBS_RNR_RETRIES * 640000ull)
/* While a thread sleeps and something is under way, it looks this often. */
#define VERBS_NAP_NS 20000000ull

struct verbs_options {
	const char *device, *addr, *gid;
	uint64_t port, lanes, depth, inline_max, signal_every, credits, bounce, timeout, retries;
	uint64_t measured_ns, lifetime_ns;
	uint64_t datagrams;
	int mtu, signal, doorbell, rpc;
	double drop;
};
enum { VERBS_SIGNAL_LAST, VERBS_SIGNAL_ALL };
enum { VERBS_DOORBELL_BATCH, VERBS_DOORBELL_EACH };
enum { VERBS_RPC_RC, VERBS_RPC_UD };

/* What to do when a request ends. */
struct verbs_rec {
	struct net_thread *owner;
	struct vb_batch *batch; /* NULL: nobody waits */
	struct vb_verb *verb;
	uint8_t op;     /* enum vb_op */
	bool last;      /* the verb ends here; otherwise it is a piece of it */
	bool tell;      /* needs a completion in bounded time */
	bool is_ext;    /* in qp->ext */
	bool asked;     /* its completion will come */
	uint16_t ack;   /* 1 + index into the host's sends, 0: none */
	uint32_t piece; /* 1 + index of a piece of the pool, 0: none */
	uint32_t len;   /* READ: bytes to copy ... */
	uint8_t *to;    /* ... and where to */
	uint64_t rung_ns;
	uint64_t not_after_ns; /* 0, or: not posted when the doorbell rings later than this */
};

struct verbs_qp {
	struct ibv_qp *qp; /* NULL: none at the moment */
	uint32_t number;   /* in w->qps */
	uint32_t round;    /* of the queue pairs in this place, so that old completions are known */
	uint32_t host, psn;
	uint32_t mask; /* depth - 1 */
	uint32_t max_inline;
	uint32_t head, rung, tail;
	uint32_t unsignalled; /* rung since the last one with a completion: verbs_unheard sets it */
	bool dirty;           /* in w->dirty */
	bool last;            /* the device takes no more receive buffers for it */
	uint8_t *slots;
	struct verbs_rec *rec;
	struct ibv_send_wr *wr;
	struct ibv_sge *sge;
	struct verbs_ext_wr *ext; /* NULL unless the device has extended atomics */
};

/* A signalled message whose receiver has not yet said what became of it. */
struct verbs_send {
	struct net_thread *owner;
	struct vb_batch *batch; /* NULL: the verb has ended, the place waits for the answer */
	struct vb_verb *verb;
	uint64_t until_ns;
	uint16_t turn; /* of this place, in the answer too */
	bool used;
};

struct verbs_control {
	uint8_t bytes, data[NET_CONTROL_MAX];
};

enum verbs_link_state {
	VERBS_UP,
	VERBS_DOWN,  /* broken: nothing is posted; connected again if the peer lives */
	VERBS_READY, /* new queue pairs are connected, the peer has not said that its are */
	VERBS_GONE,  /* dead, for good */
};

struct verbs_remote_qp {
	uint32_t qpn, psn;
};

struct verbs_host {
	enum verbs_link_state state;
	struct verbs_qp *lane; /* [lanes], in w->qps */
	struct verbs_remote_qp remote[VERBS_LANES_MAX];
	/* As its address said. */
	uint64_t base, bytes;
	uint32_t rkey, ud_qpn, credits_max;
	uint8_t gid[16];
	uint16_t lid;
	uint8_t mtu, rd_atomic;
	struct ibv_ah *ah;
	/* Messages. */
	uint32_t credits; /* messages that we may send */
	uint32_t owed;    /* credits to give back, but for those that go with acks */
	bool due;         /* in w->due */
	uint32_t n_acks;
	uint32_t acks[VERBS_CREDITS_MAX];
	struct verbs_send sends[VERBS_CREDITS_MAX];
	uint32_t q_head, q_tail;
	struct verbs_control queue[VERBS_QUEUE];
	/* Connecting again; see again.c. */
	uint32_t session;
	uint64_t next_ns, emptied_by_ns;
	bool fresh; /* the queue pairs are new, of `session`, and not connected */
	bool said;  /* that it is broken */
};

/* A queue pair that waits for its end; see recv.c. */
struct verbs_dying {
	struct ibv_qp *qp;
	uint64_t until_ns;
	bool last; /* as in verbs_qp */
	bool over; /* to be destroyed at the next reaping */
};

struct verbs {
	struct net_fabric *f;
	struct verbs_options o;
	const struct verbs_lib *lib;
	const struct verbs_ext_ops *ext;
	struct verbs_choice choice;
	struct ibv_context *ctx;
	struct ibv_pd *pd;
	struct ibv_comp_channel *channel;
	struct ibv_cq *cq;
	struct ibv_srq *srq;
	struct ibv_mr *memory_mr, *pool_mr;
	int timer_fd;
	uint32_t events; /* of the completion queue, not yet acknowledged */

	uint8_t *pool; /* slots, pieces, receive buffers of the connections, of datagrams */
	size_t pool_bytes;
	uint8_t *pieces, *recvs, *ud_recvs;
	uint32_t n_pieces, free_pieces, *piece_stack;
	uint32_t n_recvs, n_ud_recvs;
	/* Of the connections' receive buffers: when each was put in, in their order; 0: it is not. */
	uint64_t *recv_turn, recv_turns;
	uint64_t doubt_turn; /* what was in by then may be lost, if `doubt` */
	bool doubt;
	uint32_t n_spares, recvs_lost;
	uint32_t n_dying;
	struct verbs_dying dying[VERBS_DYING_MAX];

	uint32_t lanes, depth, n_qps;
	struct verbs_qp *qps; /* [hosts * lanes], then the one for datagrams */
	struct verbs_qp *ud;
	struct verbs_host *hosts;
	uint32_t *by_qpn, by_qpn_mask; /* 1 + number of a queue pair, by hash of its name */
	uint32_t *dirty, n_dirty, *due, n_due;
	uint32_t qkey;
	struct vb_rng rng;

	uint64_t bound_ns, age_ns; /* age: of a request whose connection is broken off */
	const char *bound_note;    /* as in caps */
	uint64_t tick_ns;
	/* Completions to come, unanswered messages, hosts not up, and connections whose last
	 * requests tell nothing. */
	uint32_t n_asked, n_sends, n_down, n_unheard;
	/* Ends of verbs, collected until the batch changes. */
	struct net_thread *done_owner;
	struct vb_batch *done_batch;
	unsigned done_n;
	bool settling;
	bool news; /* verbs have ended since it was last looked at */
};

static inline struct verbs *verbs_of(struct net_fabric *f)
{
	return f->wire;
}

static inline uint32_t verbs_room(const struct verbs_qp *q)
{
	return q->mask + 1 - (q->tail - q->head);
}

static inline uint8_t *verbs_slot(const struct verbs_qp *q, uint32_t at)
{
	return q->slots + (size_t)(at & q->mask) * VERBS_SLOT;
}

static inline bool verbs_idle(const struct verbs_qp *q)
{
	return q->tail == q->head;
}

/* q has n requests behind the last one that tells when it is done. */
static inline void verbs_unheard(struct verbs *w, struct verbs_qp *q, uint32_t n)
{
	if (q != w->ud) {
		w->n_unheard += n > 0;
		w->n_unheard -= q->unsignalled > 0;
	}
	q->unsignalled = n;
}

/* Names of work requests in completions. */
#define VERBS_HANDSHAKE 0u /* the immediate of a datagram of again.c's: no client has this number */
enum verbs_id { VERBS_ID_SEND = 1, VERBS_ID_RECV, VERBS_ID_UD_RECV };

static inline uint64_t verbs_id(enum verbs_id what, uint32_t round, uint32_t number, uint32_t at)
{
	return (uint64_t)what << 60 | (uint64_t)(round & 0xfff) << 48 |
	       (uint64_t)(number & 0xffff) << 32 | at;
}

extern const struct vb_opt verbs_options[];

/* verbs.c: chooses, opens; the protection domain and the channel.  Closing takes any part of it. */
int verbs_device_open(struct verbs *w);
void verbs_device_close(struct verbs *w);
uint8_t verbs_mtu(const struct verbs *w);

/* bound.c: once the device is chosen */
void verbs_set_bound(struct verbs *w);

/* done.c */
void verbs_done(struct verbs *w, struct net_thread *owner, struct vb_batch *b);
void verbs_done_flush(struct verbs *w);

/* sends.c */
/* A place for a signalled message, or -EAGAIN. */
int verbs_send_begin(struct verbs *w, struct verbs_host *h, struct net_ep *e, struct vb_batch *b,
		     struct vb_verb *v);
void verbs_send_end(struct verbs *w, struct verbs_host *h, unsigned i, int err);
void verbs_sends_end(struct verbs *w, struct verbs_host *h, int err);
void verbs_sends_expire(struct verbs *w, struct verbs_host *h, uint64_t now);
void verbs_credits_reset(struct verbs_host *h);

/* recv.c */
int verbs_recv_post(struct verbs *w, bool ud, const uint32_t *at, uint32_t n);
/* A connection's buffer came: false if it is not to be posted again. */
bool verbs_recv_is_back(struct verbs *w, uint32_t at);
void verbs_look_for_lost(struct verbs *w);
bool verbs_may_bury(const struct verbs *w);
void verbs_bury(struct verbs *w, struct ibv_qp *qp, bool last, bool soon);
void verbs_last_wqe(struct verbs *w, const struct ibv_qp *qp);
/* Whether queue pairs have come to their end: verbs_reap destroys them, once the completion queue has
 * been polled until it was empty. */
bool verbs_dying_over(struct verbs *w, uint64_t now);
void verbs_reap(struct verbs *w);

/* qp.c */
int verbs_qp_init(struct verbs *w, struct ibv_qp *qp, enum ibv_qp_type type);
int verbs_qp_make(struct verbs *w, struct verbs_qp *q, enum ibv_qp_type type);
/* Without a queue pair from now on.  `soon`: it is stuck, and need not be waited for. */
void verbs_qp_unmake(struct verbs *w, struct verbs_qp *q, bool soon);
int verbs_qp_connect(struct verbs *w, struct verbs_qp *q, const struct verbs_remote_qp *to);
int verbs_ud_start(struct verbs *w);
struct verbs_qp *verbs_by_qpn(struct verbs *w, uint32_t qpn);
int verbs_ah_make(struct verbs *w, struct verbs_host *h);
void verbs_address_fill(struct verbs *w, const struct verbs_host *h, struct ibv_ah_attr *ah);

/* ring.c */
/* The next place, which the caller fills; there is room.  A message of `bytes` bytes from its
 * slot. */
uint32_t verbs_build(struct verbs *w, struct verbs_qp *q);
uint32_t verbs_build_send(struct verbs *w, struct verbs_qp *q, uint32_t bytes, uint32_t imm);
void verbs_ring(struct verbs *w, struct verbs_qp *q);
void verbs_ring_all(struct verbs *w);
/* A request that does nothing but tell, behind those that do not, if there are any. */
void verbs_ask(struct verbs *w, struct verbs_qp *q);
/* The request in place `at` has ended. */
void verbs_rec_end(struct verbs *w, struct verbs_qp *q, uint32_t at, int err);
/* Ends the connection: what was not rung ends with -VB_EPEERGONE, what was, soon. */
void verbs_break(struct verbs *w, struct verbs_host *h, enum verbs_link_state next);
bool verbs_host_emptied(struct verbs *w, struct verbs_host *h);

/* msg.c */
int verbs_put_message(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
		      struct verbs_qp *q);
bool verbs_notify_is_bare(const struct vb_verb *v);
void verbs_message_came(struct verbs *w, uint32_t host, const uint8_t *data, uint32_t bytes,
			uint32_t imm);
void verbs_bare_came(struct verbs *w, uint32_t host, uint32_t imm);
void verbs_settle(struct verbs *w);
int verbs_control(struct net_fabric *f, uint32_t host, const void *data, size_t bytes);

/* ud.c */
void verbs_put_datagram(struct verbs *w, struct net_ep *e, struct vb_batch *b, struct vb_verb *v,
			uint32_t host);
void verbs_datagram_came(struct verbs *w, uint32_t src_qp, const uint8_t *data, uint32_t bytes,
			 uint32_t imm);
/* A message of the handshake; may be lost. */
void verbs_ud_send(struct verbs *w, uint32_t host, const void *data, uint32_t bytes, uint32_t imm);

/* again.c */
void verbs_again_tick(struct verbs *w, uint32_t host, uint64_t now);
void verbs_again_came(struct verbs *w, uint32_t src_qp, const uint8_t *data, uint32_t bytes);
void verbs_again_heard(struct verbs *w, uint32_t host);
void verbs_host_gone(struct net_fabric *f, uint32_t host);

/* poll.c */
bool verbs_poll(struct verbs *w);

/* tick.c */
bool verbs_progress(struct net_fabric *f);
int verbs_arm(struct net_fabric *f);
void verbs_tick(struct verbs *w);

/* post.c */
int verbs_post(struct net_fabric *f, struct net_ep *e, struct vb_batch *b);

#endif
