/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a server worker of the traditional locks keeps in mind: its clients' last requests, and who
 * waits for which lock, in order.  A lock that nobody waits for takes no room here.
 *
 *	clients   the last request of each, found by name
 *	queues    one for each lock that somebody waits for, found by the lock's number; a list of
 *	          clients in the order of their requests
 *
 * A client waits for one lock at a time, so there are never more queues than clients, and no queue
 * is ever full: the bound is that of the clients.  All of it is one piece of memory, whose parts
 * name each other by index (0: none), so that it can be copied when it grows.
 */
#ifndef VB_LOCK_TRADITIONAL_TRADITIONAL_H
#define VB_LOCK_TRADITIONAL_TRADITIONAL_H

#include "lock/served.h"

/* Clients that a worker remembers at most; beyond that it says "busy" to new ones. */
#define TRAD_CLIENTS_MIN 256u
#define TRAD_CLIENTS_MAX 65536u

struct trad_client {
	vb_peer from;
	/* Of its last request. */
	uint64_t number, lock;
	/* When the last copy of that was heard, on the server's clock. */
	uint64_t heard_ns;
	/* When the client posted that copy, on the client's clock. */
	uint64_t asked_ns;
	struct vb_answer answer;
	uint16_t tag;
	/* It is in the queue of `lock`. */
	bool waits;
	/* A waiting writer: how many readers have passed it. */
	uint32_t passed;
	uint32_t next, prev;
	/* The next of the bucket, or of the free list. */
	uint32_t chain;
};

struct trad_queue {
	uint64_t lock;
	uint32_t first, last;
	/* How many of the waiters are readers. */
	uint32_t readers;
	uint32_t chain;
};

struct trad_memory {
	/* Of each array; the first element of `client` and `queue` is never used. */
	uint32_t size;
	uint32_t free_client, free_queue;
	/* From here on never used. */
	uint32_t fresh_client, fresh_queue;
	struct trad_client *client;
	struct trad_queue *queue;
	uint32_t *by_name, *by_lock;
};

/* That of a server which begins, one malloc; NULL: there is no memory. */
struct trad_memory *trad_memory_first(void);

/* The record of a client, made if it is new; NULL if there is no room.  Clients that have not been
 * heard of for keep_ns are forgotten first.  *m may move. */
struct trad_client *trad_client_of(struct trad_memory **m, vb_peer from, uint64_t now,
				   uint64_t keep_ns);

/* NULL: nobody waits for the lock. */
struct trad_queue *trad_queue_of(struct trad_memory *m, uint64_t lock);
void trad_queue_push(struct trad_memory *m, struct trad_client *c);
/* With its last client the queue goes, too. */
void trad_queue_remove(struct trad_memory *m, struct trad_client *c);

static inline struct trad_client *trad_at(struct trad_memory *m, uint32_t i)
{
	return i ? &m->client[i] : NULL;
}

/* ---- also for the planted bug, which differs by one rule ---- */

enum trad_tag {
	TRAD_ACQUIRE_X = 1,
	TRAD_ACQUIRE_S,
	TRAD_TRY_X,
	TRAD_TRY_S,
	TRAD_RELEASE_X,
	TRAD_RELEASE_S,
	/* A waiter's: it leaves the queue, or has been granted the lock meanwhile. */
	TRAD_LEAVE_X,
	TRAD_LEAVE_S,
	/* What the last request has brought is given back; no answer. */
	TRAD_WITHDRAW,
	TRAD_RENEW_X,
	TRAD_RENEW_S,
	/* The same as TRAD_WITHDRAW for what a reader's renewal has brought, if it was the last request:
	 * the client holds the lock by an earlier one, too. */
	TRAD_FORGO,
	/* Asks who has it; nothing is remembered of that. */
	TRAD_HOLDER,
};

static inline bool trad_is_shared(uint16_t tag)
{
	return tag == TRAD_ACQUIRE_S || tag == TRAD_TRY_S || tag == TRAD_RELEASE_S ||
	       tag == TRAD_LEAVE_S || tag == TRAD_RENEW_S;
}

struct trad_options {
	uint64_t ask_for, ask_again, readers_pass;
};

int trad_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int trad_try(struct vb_lock_client *me, struct vb_claim *c);
int trad_renew(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int trad_release(struct vb_lock_client *me, struct vb_claim *c);
int trad_holder(struct vb_lock_client *me, uint64_t lock, struct vb_holder *out);
int trad_server_open(struct vb_lock_server *s);
/* readers_pass: how many readers may pass a waiting writer. */
void trad_serve(struct vb_lock_server *s, const struct vb_msg *request, uint64_t readers_pass);

extern const struct vb_opt trad_ro_options[];

/* What all of them have. */
#define TRAD_LOCK                                                                                  \
	.caps = VB_LOCK_SHARED | VB_LOCK_EXCLUSIVE | VB_LOCK_FIFO | VB_LOCK_SURVIVES |             \
		VB_LOCK_TOKEN | VB_LOCK_SERVER,                                                    \
	.needs = VB_CAP_SEND, .entry_bytes = sizeof(struct vb_served_entry), .recovery_leases = 3, \
	.options_size = sizeof(struct trad_options), .verbs_uncontended = "2 SEND + 2 SEND",       \
	.verbs_contended = "2 SEND (2 more when a waiter asks again) + 2 SEND",                    \
	.acquire = trad_acquire, .try_acquire = trad_try, .renew = trad_renew,                     \
	.release = trad_release, .holder = trad_holder

#endif
