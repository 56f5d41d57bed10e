/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What hosts say to each other: the format of messages, and what the owner of memory does with the
 * verbs in them.  Pure functions of their arguments; the wire itself is the carrier's.
 *
 * A message is a header of AM_HEADER bytes and a body.  All numbers are little-endian.
 *
 *	 0  u32  magic "Vbux"            16  u32  host that sends
 *	 4  u16  version                 20  u32  epoch: which connection of the sender's
 *	 6  u8   kind                    24  u64  number: of the message within the epoch
 *	 7  u8   flags                   32  u64  clock
 *	 8  u64  session                 40  u32  verbs
 *	                                 44  u32  bytes of the body
 *
 * `number` of HELLO: its lower half says which connection of the receiver's its sender has heard of, the upper
 * half of which earlier one of its own it awaits answers; 0: none.  Of WELCOME: the first message of that one
 * which was not executed, and will not be; 0: that is not known.
 *
 * `clock`: of VERBS the time at the receiver after which nothing of it may happen; of everything
 * else the sender's clock when it left.
 *
 * The body of VERBS: verbs one behind the other, in the order in which they take effect; those of
 * several batches, tasks and endpoints of the sending host may be in it.  Each is
 *
 *	u8 op   u8 flags (VB_SIGNALLED)   u16 0   u32 len   u64 addr (SEND: 0)
 *	CAS64          compare, swap                            16 bytes
 *	FAA64          what to add                               8
 *	MCAS64         compare, its mask, swap, its mask        32
 *	MFAA64         what to add, bounds                      16
 *	MCAS128        compare, its mask, swap, its mask        64
 *	MFAA128        what to add, bounds                      32
 *	WRITE          len bytes
 *	SEND           u64 to, u64 from, u64 subject, u16 tag, u16 n, u32 imm, n bytes
 *	WRITE_NOTIFY   len bytes, and what SEND has
 *
 * The op AM_OP_NONE stands where a verb was taken back before the message left; len then says how
 * many bytes to pass over.
 *
 * The body of ANSWER, which has the number and the epoch of the VERBS it answers: for each
 * signalled verb in order
 *
 *	u16 error (0, or an errno or enum vb_error)
 *	if 0: CAS64, FAA64, MCAS64, MFAA64 8 bytes, MCAS128, MFAA128 16, READ len; else nothing
 *
 * With AM_REFUSED the body is empty and nothing of the message has happened or ever will: it was
 * malformed, or there was no memory for it.
 */
#ifndef VB_FABRIC_NET_AM_WIRE_H
#define VB_FABRIC_NET_AM_WIRE_H

#include "fabric/fabric.h"

#define AM_MAGIC     0x78756256u
#define AM_VERSION   2
#define AM_HEADER    48
#define AM_VERB_MAX  (1u << 20) /* bytes of one READ or WRITE */
#define AM_VERBS_MAX 1024u      /* in one message */
#define AM_OP_NONE   0xff
/* A message is closed before it, or its answer, gets longer than this; one verb may. */
#define AM_BODY_SOFT (16u << 10)
#define AM_BODY_MAX  (AM_BODY_SOFT + AM_VERB_MAX + 256u)

enum am_kind {
	AM_HELLO = 1, /* a new connection */
	AM_WELCOME,   /* its answer */
	AM_VERBS,
	AM_ANSWER,
	AM_CONTROL, /* the core's, as it is */
	AM_KINDS
};

#define AM_REFUSED 1 /* flag of ANSWER */

struct am_header {
	uint8_t kind, flags;
	uint32_t host, epoch, verbs, bytes;
	uint64_t session, number, clock;
};

void am_header_put(uint8_t to[AM_HEADER], const struct am_header *h);
/* -EBADMSG: not ours, another version, or numbers beyond the limits; *why says it. */
int am_header_get(const void *from, size_t bytes, struct am_header *out, const char **why);

/* ---- the sender ---- */

/* How much room a verb takes, in the message and (0 if unsignalled) in its answer. */
uint32_t am_verb_bytes(const struct vb_verb *v);
uint32_t am_verb_answer(const struct vb_verb *v);
/* Writes am_verb_bytes(v). */
void am_verb_put(uint8_t *to, const struct vb_verb *v, vb_peer from);
/* Takes back a verb of n bytes that am_verb_put has written. */
void am_verb_drop(uint8_t *at, uint32_t n);

/* Bytes that came, and how far they are read. */
struct am_cursor {
	const uint8_t *at, *end;
};

/* The next part of an answer into status, old and buf of the signalled verb that it is for.
 * -EBADMSG: cut short; the verb is not touched. */
int am_answer_get(struct am_cursor *c, struct vb_verb *v);

/* ---- the owner ---- */

struct am_owner {
	uint8_t *memory; /* the nodes of this host, one behind the other */
	uint64_t node_bytes;
	uint32_t nodes, hosts, host;
	/* A message for an endpoint here: 0 or -error. */
	int (*deliver)(void *ctx, uint32_t client, const struct vb_msg *m);
	void *ctx;
	uint64_t (*now)(void); /* the clock that not_after_ns below is of */
};

/* Whether a body of VERBS is well-formed: then nothing of it needs checking again but addresses.
 * *answer: the most that its answer's body takes.  -EBADMSG. */
int am_body_check(const uint8_t *body, uint32_t bytes, uint32_t verbs, uint32_t *answer);
/* Executes the checked body of message h, which came from h->host; returns the bytes written to
 * `answer`.  A verb that fails does not stop those behind it.  One whose turn comes after h->clock
 * does not happen, its error is VB_ETOOLATE; *late counts them. */
uint32_t am_body_execute(const struct am_owner *o, const struct am_header *h, const uint8_t *body,
			 uint8_t *answer, uint32_t *late);

#endif
