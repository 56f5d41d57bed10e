/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The inside of the simulator, for this folder only.
 *
 * The life of a verb, with the times that the profile gives:
 *
 *   client's CPU      sender's NIC        wire       target's NIC       word        wire    CPU
 *   |-- post_ns --|D|-- outbound_ns --|-- one_way --|A|-- inbound --|-- *_ns --|-- one_way --|- poll -|C
 *
 * D is the doorbell, A the arrival and C the completion.  A and C are events; D is one only where
 * it lies further away than post_ns (a busy CPU, a paused client).  Waits stand between: for the
 * queue of the sender's NIC, for that of the target's, for a word whose atomics are under way.  A
 * profile with effects (doc/model.md) has more of them: for the NIC's atomics unit, and for the links,
 * where an answer takes two more events, one at the link by which it leaves and one at the port to
 * which it comes.
 *
 * A verb's effect on memory happens in the event A, although the model says that it queues for a
 * while there: verbs leave these queues in the order in which they came, so nobody can tell the
 * difference by what he reads, and one event is saved.  The time in the trace is the model's.
 * Messages are another matter, their receiver wakes up: they are delivered at the model's time.
 */
#ifndef VB_FABRIC_SIM_INNER_H
#define VB_FABRIC_SIM_INNER_H

#include "fabric/sim/sim.h"

/* ConnectX serialises atomics per bucket of a direct-mapped table, chosen by the low 12 address
 * bits: 512 words of 8 bytes (see profiles.c). */
#define SIM_BUCKETS 512u

#define SIM_INLINE       64u        /* data kept in the operation itself */
#define SIM_LEN_MAX      (1u << 20) /* bytes of one READ or WRITE; at least VB_LEN_MAX */
#define SIM_PIECES       4u         /* into which a torn access falls */
#define SIM_HANDLERS_MAX 16u        /* server threads of one endpoint */
#define SIM_CORES_MAX    1024u      /* of a node */
#define SIM_INBOX_FIRST  16u
#define SIM_INBOX_MAX    65536u /* messages; beyond it the receiver is "not ready" */
#define SIM_REGIONS_MAX  4096u
#define SIM_CUTS_MAX     64u /* partitions at a time */
#define SIM_POOL_CHUNK   256u

/* What a packet has besides its data, where wires are modelled: LRH 8, BTH 12, AETH 4, ICRC 4 and
 * VCRC 2 bytes (InfiniBand Architecture Specification, volume 1); and the data in one, InfiniBand's
 * largest MTU. */
#define SIM_PACKET_HEAD  30u
#define SIM_PACKET_BYTES 4096u
#define SIM_SEND_BYTES   64u /* of a SEND's message */

enum sim_stage {
	SIM_DOORBELL,
	SIM_EARLY_END,
	SIM_ARRIVE,
	SIM_PIECE,
	SIM_DELIVER,
	SIM_LEAVE,  /* the answer is ready for its link; only where answers take wire time */
	SIM_RETURN, /* ... and is at its client's port; only where ports do */
	SIM_HEAR, /* of a message of its own: its receiver has it at last; only where that takes time */
	SIM_COMPLETE,
	SIM_RESUME /* its client's core has come to it; only where cores are shared */
};

enum sim_fate {
	SIM_NEVER = 1 << 0, /* takes no effect: lost on the way, and the sender learns "unknown" */
	SIM_LOSE = 1 << 1,  /* the completion is lost */
	SIM_DOWNWARDS = 1 << 2, /* pieces are handled from the end */
	SIM_EARLY = 1 << 3,     /* the sender learns "unknown" before it arrives */
	SIM_BEHIND = 1 << 4,    /* ... and lands behind what was early before it */
	SIM_ADRIFT = 1 << 5     /* ... and has been told: it may change memory all the same */
};

/* What the trace hash covers. */
struct sim_args {
	uint64_t time;
	vb_peer self, peer;
	vb_addr addr;
	uint32_t op, len;
	int64_t status;
	uint64_t data_hash;
	struct vb_u128 compare, compare_mask, swap, swap_mask, old;
};

struct sim_ep;

/* The connection of one endpoint to one node. */
struct sim_flow {
	uint64_t last_write;  /* arrival of the latest WRITE or SEND */
	uint64_t last_atomic; /* and of the latest atomic */
	uint64_t last_early;  /* and of the latest that was given up early */
	uint32_t in_flight;   /* submitted and not finished */
	uint32_t answers;     /* of them, READs and atomics: what a fence waits for */
	bool broken; /* a verb was lost: what was behind it is lost too, until all are finished */
	struct sim_op *held, *held_last;
};

struct sim_op {
	struct vb_timer timer; /* its next event */
	struct sim_op *next;   /* in the pool or among a flow's held ones */
	uint64_t bell_ns;      /* held: when the doorbell rang */
	struct sim_ep *ep;
	struct sim_flow *flow; /* NULL: never submitted */
	struct vb_verb *verb;  /* NULL: nobody waits for it, or who did is gone */
	struct vb_batch *batch;
	uint64_t deadline_ns; /* effect by then or never */
	uint64_t done_ns;     /* the model's time of the effect */
	uint64_t arrive_ns;   /* lost early: when it is at the target */
	uint64_t number;      /* for a chooser */
	uint64_t stall_ns, pause_ns, delay_ns, tear_ns;
	uint64_t piece_ns;    /* from piece to piece */
	uint64_t around_mask; /* bits of `left` that its client will wait for; 0: it will not */
	uint64_t left;        /* what stands in the word behind it */
	uint16_t src, dst;
	uint8_t stage, fate, verb_flags;
	uint8_t piece, pieces;
	uint32_t cut[SIM_PIECES + 1];
	char *big; /* data that does not fit below */
	struct sim_args t;
	union {
		char data[SIM_INLINE];
		struct vb_msg msg;
	} u;
	char note[SIM_INLINE]; /* data of a WRITE_NOTIFY, whose message is in u */
};

struct sim_bucket {
	uint64_t free_ns;
	uint64_t word; /* offset of the word whose atomic made it busy */
};

struct sim_nic {
	uint64_t out_free_ns, in_free_ns;
	uint64_t unit_free_ns;
	uint64_t out_link_ps, in_link_ps; /* when the last byte so far is through */
	struct sim_bucket buckets[SIM_BUCKETS];
};

/* Of a node.  A core does what comes up in the order in which it does. */
struct sim_cores {
	unsigned next; /* the next endpoint's */
	uint64_t *free_ns;
	vb_peer *last; /* who ran on it */
};

/* What a client that stands still waits for. */
struct sim_around {
	const uint64_t *word; /* NULL: nothing but the time */
	uint64_t value, mask;
	bool differed; /* it has been otherwise since */
};

struct sim_ep {
	struct vb_ep base;
	struct sim *sim;
	uint32_t slot;
	uint32_t ops;    /* allocated for it; a closed endpoint stays until they are gone */
	uint32_t adrift; /* of them, given up, and may still change memory */
	bool mortal, stalls, dead, closed, server;
	bool disowned; /* by this node */
	uint16_t disowner;
	uint64_t paused_until_ns, deaf_until_ns;
	struct sim_around around;
	uint64_t last_doorbell_ns;
	uint64_t posted; /* verbs, for a chooser */
	unsigned cpu;    /* a server's: the one that works on the latest message */
	unsigned first_cpu;
	uint64_t *cpu_free_ns; /* its own, or its node's cores */
	uint64_t own_cpu_ns[SIM_HANDLERS_MAX];
	uint64_t turn_ns;  /* of a server: when its next messages are worked on ... */
	uint32_t turns;    /* ... and how many of them; 0: not known */
	vb_peer connected; /* to whom its latest message to a client went */
	uint64_t wander_ns, wander_period_ns,
		wander_phase_ns;   /* of the common time as it knows it */
	struct vb_timer cpu_timer; /* a server's CPU becomes free while messages wait */
	struct vb_timer death;     /* tells of it on the scheduler's stack */
	struct vb_msg *inbox;      /* a ring of 2^n */
	uint32_t inbox_size, inbox_head, inbox_n;
	struct sim_flow *flows; /* one a node; pages are touched as they are used */
};

struct sim_region {
	char *name;
	uint16_t node;
	vb_addr addr;
	uint64_t bytes, id;
	unsigned holds;
	vb_peer by; /* who removes it; VB_PEER_NONE: nobody */
};

struct sim_cut {
	uint16_t a, b;
	bool refuses; /* what is posted meanwhile, at once */
	uint64_t from_ns, until_ns;
};

#define SIM_AIR_MAX 64u

/* Verbs that are on their way until a chooser says so (choose.c). */
struct sim_air {
	const struct vb_sim_chooser *chooser; /* NULL: nobody chooses */
	struct vb_timer tick;                 /* when it is asked next */
	struct sim_op *op[SIM_AIR_MAX];       /* in the order of their doorbells */
	unsigned n;
};

/* Of a node's memory: it is there, it is gone, or all others take it for gone. */
enum sim_lost { SIM_THERE, SIM_LOST, SIM_DISOWNED };

struct sim {
	struct vb_fabric base;
	struct vb_sched *sched;
	struct vb_sim_profile p;
	unsigned handlers;
	unsigned cores; /* that the clients of a node share; 0: each has its own */
	struct sim_cores *node_cores;
	uint64_t own_ns; /* of the profile, with the option; 0: the own node is as far as others */
	uint64_t delay_ns; /* added to what goes from one node to another */
	char *memory;      /* of all nodes, one after the other */
	struct sim_nic *nics;
	struct sim_region *regions;
	unsigned n_regions;
	uint64_t regions_made;

	struct sim_ep **eps; /* by slot */
	uint32_t *incarnations;
	uint32_t n_slots, next_slot, slot_bits;

	struct sim_op *free_ops;
	struct sim_op **chunks;
	unsigned n_chunks, max_chunks;

	bool faulty; /* any chance is above zero */
	struct vb_sim_faults faults;
	struct vb_rng fault_rng, clock_rng;
	struct sim_cut cuts[SIM_CUTS_MAX];
	unsigned n_cuts;
	bool any_lost;
	uint8_t lost[VB_FABRIC_NODES_MAX]; /* enum sim_lost */
	uint64_t around_until_ns; /* until then some client waits for a word to come round */
	void (*on_death)(struct vb_ep *ep, void *arg);
	void *on_death_arg;

	struct vb_sim_near near;
	bool is_near; /* some verbs are complete when they are posted */
	struct vb_rng near_rng;

	struct sim_air air;
	uint64_t trace_hash;
	uint64_t verbs, late_verbs;
};

/* Of an endpoint of the simulator, or a hook's on top of it. */
static inline struct sim_ep *sim_ep_of(struct vb_ep *ep)
{
	while (ep->lower != NULL)
		ep = ep->lower;
	return vb_container_of(ep, struct sim_ep, base);
}

static inline uint64_t sim_now(const struct sim *s)
{
	return ((const struct vb_sched_face *)s->sched)->now_ns;
}

static inline uint64_t sim_max(uint64_t a, uint64_t b)
{
	return a > b ? a : b;
}

static inline uint64_t sim_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* READs and atomics bring something back. */
static inline bool sim_answers(const struct sim_op *op)
{
	return op->t.op == VB_OP_READ || (op->t.op >= VB_OP_CAS64 && op->t.op <= VB_OP_MFAA128);
}

static inline bool sim_atomic(const struct sim_op *op)
{
	return op->t.op >= VB_OP_CAS64 && op->t.op <= VB_OP_MFAA128;
}

/* It stays on its node, and nothing of the card befalls it. */
static inline bool sim_at_home(const struct sim *s, const struct sim_op *op)
{
	return s->own_ns != 0 && op->src == op->dst;
}

static inline bool sim_message(const struct sim_op *op)
{
	return op->t.op == VB_OP_SEND || op->t.op == VB_OP_WRITE_NOTIFY;
}

/* ---- sources.c ---- */

extern const struct vb_sim_source sim_sources_cx5[], sim_sources_cx3[], sim_sources_plain64[],
	sim_sources_zero[], sim_sources_cx5_card[], sim_sources_cx4_card[], sim_sources_cx3_card[];

/* Time for what lies beyond the first 64 bytes. */
static inline uint64_t sim_lines_ns(const struct sim *s, uint32_t len)
{
	return len > 64 ? (len - 1) / 64 * s->p.line_ns : 0;
}

/* ---- endpoint.c ---- */

void sim_ep_free(struct sim_ep *ep);
/* The living endpoint of that name, or NULL. */
struct sim_ep *sim_find_peer(const struct sim *s, vb_peer peer);
/* A message from a client to a client, neither of which is a server, by their cards. */
bool sim_between_clients(const struct sim_ep *from, vb_peer to);
/* False: there is no room, nor will there be. */
bool sim_inbox_put(struct sim_ep *ep, const struct vb_msg *msg);
int sim_recv(struct vb_ep *ep, struct vb_msg *out);

/* ---- cores.c: whose CPU it is ---- */

int sim_cores_open(struct sim *s);
void sim_cores_close(struct sim *s);
/* After a fork: time begins anew. */
void sim_cores_forget(struct sim *s);
void sim_cores_attach(struct sim_ep *ep);
/* Something for the client has come, by the time at which a core of its own would have seen it: when its core
 * has.  resumes: and goes on with its task. */
uint64_t sim_core_turn(struct sim_ep *ep, bool resumes);
/* A server's next message: is there a core for it now?  If not its timer says when. */
bool sim_server_turn(struct sim_ep *ep);

/* ---- fault.c: what the seed holds in store ---- */

/* For a batch that is about to be posted: may pause the endpoint.  Says how long the client stands
 * still after the completion, how long the target's NIC does, and whether the client dies before
 * the doorbell or right after it. */
struct sim_luck {
	uint64_t after_ns, stall_ns, around_mask;
	bool dies_before, dies_after;
	uint8_t fate; /* of each of its verbs: enum sim_fate */
};
void sim_fault_batch(struct sim_ep *ep, struct vb_batch *batch, struct sim_luck *luck);
/* early: of the same batch, the latest before it that was given up early, or NULL. */
void sim_fault_verb(struct sim *s, struct sim_op *op, const struct sim_op *early);
/* The calling task stands still for as long as its endpoint does. */
void sim_stand_still(struct sim_ep *ep);
/* The endpoint stands still until the word is `value` under the mask once more. */
void sim_fault_around(struct sim_ep *ep, const uint64_t *word, uint64_t value, uint64_t mask);
/* When something that leaves a at `at` can be at b, one_way_ns included. */
uint64_t sim_fault_wire(struct sim *s, uint16_t a, uint16_t b, uint64_t at);
/* Whether a verb from a to b that is posted now is refused. */
bool sim_fault_refuses(const struct sim *s, uint16_t a, uint16_t b);

/* ---- pool.c: where operations come from ---- */

void sim_pool_destroy(struct sim *s);
/* After a fork: nothing is in flight any more. */
void sim_pool_forget(struct sim *s);
struct sim_op *sim_op_get(struct sim *s, struct sim_ep *ep); /* NULL: out of memory (said) */
void sim_op_put(struct sim *s, struct sim_op *op);
/* Nobody waits any more for what this endpoint has posted: from here on nothing in flight points to
 * a task's stack.  Those who wait on a dead endpoint wake up. */
void sim_ops_detach(struct sim *s, const struct sim_ep *ep);
/* Nothing more of what this endpoint has posted takes effect. */
void sim_ops_drop(struct sim *s, const struct sim_ep *ep);
/* From the node's clients to these. */
void sim_ops_lose(struct sim *s, uint16_t node, uint64_t to);
/* Of this endpoint, to that node. */
void sim_ops_refuse(struct sim *s, const struct sim_ep *ep, uint16_t node);

/* ---- flight.c: from the doorbell to the end ---- */

void sim_arrive(struct sim *s, struct sim_op *op);
/* Puts the operation's next stage at a time; never before the next ns. */
void sim_at(struct sim *s, struct sim_op *op, enum sim_stage stage, uint64_t at_ns);
void sim_doorbell(struct sim *s, struct sim_op *op, uint64_t at_ns);
/* All of it at once, and the verb has what comes of it. */
void sim_land_now(struct sim *s, struct sim_op *op, struct vb_verb *v);

/* ---- client.c: who dies or stands still ---- */

void sim_ep_die(struct sim_ep *ep);
void sim_checkpoint(struct vb_ep *ep, bool before);

/* ---- post.c: from the client to the wire ---- */

int sim_post(struct vb_ep *ep, struct vb_batch *batch);

/* ---- verb.c ---- */

/* The operation of a verb; batch: whose signalled verbs are counted, NULL: nobody waits for it. */
int sim_op_make(struct sim_ep *ep, struct vb_batch *batch, struct vb_verb *v, struct sim_op **out);

/* ---- near.c: what is complete when it is posted ---- */

bool sim_is_near(const struct sim_ep *ep, const struct vb_batch *batch);
int sim_post_near(struct sim_ep *ep, struct vb_batch *batch, struct sim_luck *luck);

/* region.c */
int sim_region(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes, vb_addr *out,
	       bool *fresh);
int sim_regions(struct vb_fabric *f, uint16_t node, struct vb_region_info *out, unsigned room);
int sim_region_hold(struct vb_fabric *f, uint16_t node, const char *name, uint64_t bytes,
		    struct vb_region_held *out, vb_peer *by);
void sim_region_let_go(struct vb_fabric *f, const struct vb_region_held *held);
int sim_region_take(struct vb_fabric *f, const char *name, vb_peer me, vb_peer *by);
int sim_region_remove(struct vb_fabric *f, uint16_t node, uint64_t id);

#endif
