/* SPDX-License-Identifier: Apache-2.0 */
/* The server of a node, as the file that starts it and the one that serves see it. */
#ifndef VB_TXN_SERVE_H
#define VB_TXN_SERVE_H

#include <pthread.h>

#include "txn/epoch.h"

#define LOOK_NS     2000ull /* between two looks at the list */
#define WAITING_MAX 64u
#define REPLIES     64u /* answers on their way */
#define ITEMS_MAX   VB_STAGE_ITEMS

struct request {
	struct vb_wire_call head;
	uint64_t subject;
	vb_peer from;
	uint64_t until_ns;
	uint64_t saw;         /* by the last try of its stage */
	unsigned char *items; /* as they came, and what has become of them */
};

struct reply {
	struct vb_batch batch;
	struct vb_verb verb[2];
	struct vb_msg msg;
	unsigned char *buf;
};

struct vb_db_server {
	struct vb_db *db;
	uint16_t node;
	struct vb_ep *ep;
	struct vb_task *task;
	struct vb_acc acc;
	struct vb_sequencer *sequencer; /* of VB_CC_SEQUENCED */
	bool stop;
	pthread_t *thread;
	struct vb_opened opened; /* of the one that the caller has */
	unsigned char *image;
	struct request now;
	struct request waiting[WAITING_MAX];
	unsigned n_waiting;
	struct reply reply[REPLIES];
	unsigned next_reply;
	uint64_t requests, refused;
};

/* A task's: serves until it is told to stop. */
void vb_server_body(void *arg);

#endif
