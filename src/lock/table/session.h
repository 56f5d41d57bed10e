/* SPDX-License-Identifier: Apache-2.0 */
/* A server agent of the lock table, its sessions and answers: what server.c and session.c share. */
#ifndef VB_LOCK_TABLE_SESSION_H
#define VB_LOCK_TABLE_SESSION_H

#include "lock/table/table.h"

/* How many answers leave together. */
#define VB_LOCKTAB_OUTBOX 32u

struct vb_locktab_session {
	struct vb_list in_bucket;
	/* In one of the agent's two lists. */
	struct vb_list by_use;
	struct vb_tq_owner owner;
	uint64_t number, heard_ns;
	/* The number of the last release that ended holds, and how many. */
	uint64_t ended_by;
	uint32_t ended;
	struct vb_locktab_answer answer;
	/* 0: by SEND. */
	vb_addr reply;
	uint32_t lane;
	uint8_t kind;
	bool waits;
};

struct vb_locktab_outbox {
	unsigned n;
	struct vb_verb verb[VB_LOCKTAB_OUTBOX];
	struct vb_msg msg[VB_LOCKTAB_OUTBOX];
	struct vb_locktab_answer_slot slot[VB_LOCKTAB_OUTBOX];
};

struct vb_locktab_agent {
	struct vb_lock_server *server;
	struct vb_tq *q;
	/* NULL: none. */
	struct vb_locktab_file *file;
	struct vb_locktab_life *life;
	struct vb_locktab_session *sessions;
	struct vb_list *buckets;
	struct vb_list free;
	/* Sessions without a request, the longest unheard of first. */
	struct vb_list idle;
	/* Sessions that had a request when they were last heard of. */
	struct vb_list busy;
	unsigned n_sessions, fresh_sessions, bucket_mask;
	/* The one whose release is being done; NULL: none. */
	struct vb_locktab_session *ending;
	/* The file had more than there is room for. */
	bool dropped;
	/* The segment knows of us. */
	bool begun;
	/* 0: over. */
	uint64_t grace_until_ns;
	/* A session that was not heard of for so long repeats nothing any more. */
	uint64_t forget_ns;
	struct vb_locktab_outbox out;
};

/* ---- answers ---- */

/* Sends what was put. */
void vb_locktab_flush(struct vb_locktab_agent *a);
/* `reply` 0: by SEND. */
void vb_locktab_put_answer(struct vb_locktab_agent *a, vb_peer to, vb_addr reply, uint32_t lane,
			   const struct vb_locktab_answer *answer);
void vb_locktab_answer_session(struct vb_locktab_agent *a, const struct vb_locktab_session *ss);

/* ---- sessions ---- */

/* Room for n of them; -ENOMEM. */
int vb_locktab_open_sessions(struct vb_locktab_agent *a, unsigned n);
/* That of a client, which has just been heard of: a new one if it has none; NULL: there is no room. */
struct vb_locktab_session *vb_locktab_make_session(struct vb_locktab_agent *a, vb_peer from,
						   uint64_t now);
/* Puts a session into one of the lists in which forget_somebody looks for a place: those that have
 * requests are not in its way. */
void vb_locktab_sort_session(struct vb_locktab_agent *a, struct vb_locktab_session *ss);

#endif
