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
	uint64_t number, lock; /* of its last request */
	uint64_t heard_ns;     /* server's clock: the latest copy of it */
	uint64_t asked_ns;     /* client's clock: when it posted that copy */
	struct vb_answer answer;
	uint16_t tag;
	bool waits;      /* in the queue of `lock` */
	uint32_t passed; /* waiting writer: readers that have passed it */
	uint32_t next, prev;
	uint32_t chain; /* of the bucket; of the free list */
};

struct trad_queue {
	uint64_t lock;
	uint32_t first, last;
	uint32_t readers; /* of those who wait */
	uint32_t chain;
};

struct trad_memory {
	uint32_t size; /* of each array; the first element of the first two is never used */
	uint32_t free_client, free_queue;
	uint32_t fresh_client, fresh_queue; /* from here on never used */
	struct trad_client *client;
	struct trad_queue *queue;
	uint32_t *by_name, *by_lock;
};

/* What is known of a client, made if it is new; NULL if there is no room: clients that have not
 * been heard of for keep_ns are forgotten first.  *m may move. */
struct trad_client *trad_client_of(struct trad_memory **m, vb_peer from, uint64_t now,
				   uint64_t keep_ns);

/* NULL: nobody waits for the lock. */
struct trad_queue *trad_queue_of(struct trad_memory *m, uint64_t lock);
void trad_queue_push(struct trad_memory *m, struct trad_client *c);
/* The queue is gone with the last one in it. */
void trad_queue_remove(struct trad_memory *m, struct trad_client *c);

static inline struct trad_client *trad_at(struct trad_memory *m, uint32_t i)
{
	return i ? &m->client[i] : NULL;
}

/* ---- for the planted bug, which is the same lock but for one rule ---- */

enum trad_tag {
	TRAD_ACQUIRE_X = 1,
	TRAD_ACQUIRE_S,
	TRAD_TRY_X,
	TRAD_TRY_S,
	TRAD_RELEASE_X,
	TRAD_RELEASE_S,
	TRAD_LEAVE_X, /* a waiter's: out of the queue, or what it was granted meanwhile */
	TRAD_LEAVE_S,
	TRAD_WITHDRAW, /* whatever the last request has brought is nobody's; no answer */
};

static inline bool trad_is_shared(uint16_t tag)
{
	return tag == TRAD_ACQUIRE_S || tag == TRAD_TRY_S || tag == TRAD_RELEASE_S ||
	       tag == TRAD_LEAVE_S;
}

struct trad_options {
	uint64_t ask_for, ask_again, readers_pass;
};

int trad_acquire(struct vb_lock_client *me, struct vb_claim *c, uint64_t until_ns);
int trad_try(struct vb_lock_client *me, struct vb_claim *c);
int trad_release(struct vb_lock_client *me, struct vb_claim *c);
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
	.acquire = trad_acquire, .try_acquire = trad_try, .release = trad_release

#endif
