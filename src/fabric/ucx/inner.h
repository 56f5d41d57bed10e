/* SPDX-License-Identifier: Apache-2.0 */
/* The carrier of active messages over UCX, from the inside. */
#ifndef VB_FABRIC_UCX_INNER_H
#define VB_FABRIC_UCX_INNER_H

#include "fabric/net/am/am.h"
#include "fabric/ucx/lib.h"

#define UCX_AM_ID 7u /* of all our active messages; the kind is in the header */

struct ucx_options {
	struct am_options am;
	uint64_t eager;
	const char *tls, *net_devices;
};

struct ucx_via {
	struct am_wire *w;
	const struct ucx_lib *lib;
	struct ucx_options o;
	ucp_context_h context;
	ucp_worker_h worker;
	ucp_address_t *address;
	size_t address_bytes;
	int worker_fd;
	uint64_t setup_until_ns; /* the interface may be down until then */
	char device[16];         /* the interface of the cluster's address */
	const char *devices;     /* those to look at, or NULL: they are UCX's to choose */
	struct vb_list later;    /* messages that were sent from within UCX's progress */
	bool looking;            /* this is within it */
	uint32_t sends;          /* that UCX has not finished */
};

static inline struct ucx_via *ucx_of(const struct am_wire *w)
{
	return w->via;
}

/* setup.c */
int ucx_setup(struct ucx_via *u);
void ucx_teardown(struct ucx_via *u);

/* carrier.c: the calls of struct am_carrier */
int ucx_open(struct am_wire *w, const void *options, void *address, size_t *bytes);
void ucx_close(struct am_wire *w);
int ucx_link(struct am_host *h);
void ucx_unlink(struct am_host *h);
int ucx_send(struct am_msg *m);
void ucx_look(struct am_wire *w);
int ucx_arm(struct am_wire *w);
bool ucx_idle(const struct am_wire *w);
void ucx_fetch(struct am_in *in, void *body);

/* came.c: UCX's handler of messages */
ucs_status_t ucx_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
		      const ucp_am_recv_param_t *param);

#endif
