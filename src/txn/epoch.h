/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Transactions whose order is agreed on before they begin (VB_CC_SEQUENCED): what lies in memory and goes over
 * the wire for that.  How it works, and why: cc/calvin.c.
 *
 *	sequence.c   a coordinator: asks for its place in the order, and waits for what it has declared
 *	epoch.c      a server: gathers its node's requests to a batch, exchanges batches with the others, and
 *	             takes all of an epoch in one order
 *	queue.c      a server: who waits for its node's tuples, in that order; takes their locks, and forwards
 *	             their records
 *	buffers.c    where all of it lies
 *
 * Behind the outboxes of a node's region (txn/db.h), in this order:
 *
 *	floors     a word for each place of each node: below or at it no name of the place is given a lock
 *	line       the last epoch that the node's server has closed, and what servers there have counted
 *	requests   one for each of this node's coordinators, which writes it for its own node's server
 *	batches    two for each node: what its sequencer WRITEs here, of an even epoch and of an odd one
 *	forwards   one for each of this node's coordinators and each node: what that node's server WRITEs here
 */
#ifndef VB_TXN_EPOCH_H
#define VB_TXN_EPOCH_H

#include "fabric/cpu.h"
#include "txn/db.h"

/* Of a request, and of a batch: what a transaction wants of one node. */
struct vb_seq_part {
	uint64_t ts;
	vb_peer peer;      /* the coordinator's endpoint */
	uint64_t subject;  /* what it listens to */
	uint64_t until_ns; /* it is over by then, in the time that all have in common */
	uint16_t coordinator, from_node, to_node;
	uint16_t n; /* keys behind this, then padded to 8 */
};
_Static_assert(sizeof(struct vb_seq_part) == 40 && VB_TXN_ITEMS_MAX <= UINT16_MAX,
	       "its keys are aligned");

struct vb_seq_key {
	uint32_t key[2]; /* the lower half first */
	uint16_t table;
	uint16_t write;
};
_Static_assert(sizeof(struct vb_seq_key) == 12, "no padding");

/* Before the parts of a batch. */
struct vb_seq_batch {
	uint64_t epoch;
	uint64_t seal; /* of the parts, and of the rest of this */
	uint32_t bytes, parts;
	uint64_t joins; /* the first epoch of a server that was not in those before it; else 0 */
	uint64_t unused[4];
};
_Static_assert(sizeof(struct vb_seq_batch) == 64, "one line");

enum vb_seq_state {
	VB_SEQ_UNKNOWN, /* the server has not heard of the transaction, or has refused to */
	VB_SEQ_WAITS,   /* for what stands in the items' `seen` */
	VB_SEQ_GRANTED,
	VB_SEQ_FULL,    /* a table has no room for a key */
	VB_SEQ_LOST,    /* the answer of a verb that takes its locks */
	VB_SEQ_REFUSED, /* `why`: an enum vb_wire_refusal */
};

#define VB_SEQ_TUPLES (16u << 10) /* bytes of tuples that are forwarded at most */

/* What a server forwards: this, the items in the order of the part, and as many of their tuples as there is
 * room for, each in whole words. */
struct vb_seq_forward {
	uint64_t ts;
	uint64_t seal; /* of what follows, and of the rest of this */
	uint32_t bytes, n;
	uint8_t state; /* enum vb_seq_state */
	uint8_t why;
	uint8_t unused[6];
};
_Static_assert(sizeof(struct vb_seq_forward) == 32, "items are aligned");

struct vb_seq_item {
	vb_addr at;
	uint64_t seen;
	uint32_t bytes; /* of its tuple; 0: it has to be read */
	uint8_t slot, seen_slot;
	uint8_t held;
	uint8_t unused;
};
_Static_assert(sizeof(struct vb_seq_item) == 24, "tuples are aligned");

/* To a node's server: a coordinator's request is there; a node's batch is there (subject: its epoch); how is
 * this transaction (subject)?  To a coordinator: something was forwarded. */
#define VB_TAG_SUBMIT  3
#define VB_TAG_EPOCH   4
#define VB_TAG_HOW     5
#define VB_TAG_FORWARD 1

struct vb_seq_submit {
	uint64_t ts, seal;
	uint32_t bytes, coordinator;
};
_Static_assert(sizeof(struct vb_seq_submit) <= VB_MSG_DATA, "fits in a message");

static inline uint32_t vb_seq_part_bytes(uint32_t n)
{
	return (uint32_t)sizeof(struct vb_seq_part) +
	       ((n * (uint32_t)sizeof(struct vb_seq_key) + 7) & ~7u);
}

static inline const struct vb_seq_key *vb_seq_keys(const struct vb_seq_part *p)
{
	return (const void *)(p + 1);
}

/* Of a node; its server alone writes it.  All but `closed` is counted: of all servers that the node has had. */
struct vb_seq_line {
	uint64_t closed;
	uint64_t epochs;     /* taken */
	uint64_t batched;    /* requests of its coordinators, in them */
	uint64_t told;       /* batches to other nodes, each a WRITE and a message */
	uint64_t forwards;   /* of what transactions have got here, each a WRITE and a message */
	uint64_t barrier_ns; /* from when a batch is closed to when all others' are there */
	uint64_t left_out;   /* times that a server was not waited for any more */
	uint64_t unused;
};
_Static_assert(sizeof(struct vb_seq_line) == 64, "one line");

/* Out of memory of this node where somebody may be writing: each word is whole. */
static inline void vb_seq_copy(void *to, const void *from, uint32_t bytes)
{
	cpu_copy_out(to, (void *)(uintptr_t)from, bytes);
}

/* One more, or several. */
static inline void vb_seq_count(uint64_t *word, uint64_t more)
{
	__atomic_store_n(word, *word + more, __ATOMIC_RELAXED);
}

/* buffers.c */
/* Where it is this process's; else NULL. */
struct vb_seq_line *vb_seq_line(const struct vb_db *db, uint16_t node);
vb_addr vb_seq_floor(const struct vb_db *db, uint16_t node, uint32_t place);
vb_addr vb_seq_request(const struct vb_db *db, uint16_t node, uint32_t coordinator);
vb_addr vb_seq_batch(const struct vb_db *db, uint16_t node, uint16_t from, uint64_t epoch);
vb_addr vb_seq_forward(const struct vb_db *db, uint16_t node, uint32_t coordinator, uint16_t from);
uint64_t vb_seq_batch_seal(const struct vb_seq_batch *b);
uint64_t vb_seq_forward_seal(const struct vb_seq_forward *f);

/* queue.c */
struct vb_queue;
int vb_queue_open(struct vb_db *db, uint16_t node, struct vb_ep *ep, struct vb_acc *acc,
		  struct vb_queue **out);
void vb_queue_close(struct vb_queue *q);
/* Until what it has on its way has arrived. */
void vb_queue_drain(struct vb_queue *q);
/* The next in the order. */
void vb_queue_add(struct vb_queue *q, const struct vb_seq_part *p);
/* Gives out what can be given.  True: somebody waits. */
bool vb_queue_turn(struct vb_queue *q);
/* Its coordinator asks: p without keys. */
void vb_queue_tell(struct vb_queue *q, const struct vb_seq_part *p);
/* Has its coordinator let that transaction go, on this node? */
bool vb_queue_is_over(const struct vb_queue *q, uint64_t ts);

/* epoch.c */
struct vb_sequencer;
int vb_sequencer_open(struct vb_db *db, uint16_t node, struct vb_ep *ep, struct vb_acc *acc,
		      struct vb_sequencer **out);
void vb_sequencer_close(struct vb_sequencer *s);
void vb_sequencer_drain(struct vb_sequencer *s);
/* False: the message is none of its. */
bool vb_sequencer_take(struct vb_sequencer *s, const struct vb_msg *msg);
/* Does what can be done; until when to wait for a message at most. */
uint64_t vb_sequencer_turn(struct vb_sequencer *s);

#endif
