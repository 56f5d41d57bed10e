/* SPDX-License-Identifier: Apache-2.0 */
/*
 * libibverbs and librdmacm, loaded at run time.
 *
 * What the headers define inline goes through the context's own table (ibv_post_send, ibv_poll_cq,
 * ibv_req_notify_cq, ...) and needs no symbol; all the rest is in the table below and is called as
 * lib->name(...), which also keeps the headers' macros of the same names away.
 */
#ifndef VB_FABRIC_VERBS_LIB_H
#define VB_FABRIC_VERBS_LIB_H

#include "vb_config.h"

/* Why `verbs` cannot run on this machine, or NULL: no headers at build time, no library, no
 * device. */
const char *verbs_absent(void);

#if VB_HAVE_IBVERBS
#include <infiniband/verbs.h>

#if VB_HAVE_RDMACM
#include <rdma/rdma_cma.h>
#endif

#define VERBS_CALLS(X)                                                                             \
	X(int, fork_init, (void))                                                                  \
	X(struct ibv_device **, get_device_list, (int *))                                          \
	X(void, free_device_list, (struct ibv_device **))                                          \
	X(const char *, get_device_name, (struct ibv_device *))                                    \
	X(struct ibv_context *, open_device, (struct ibv_device *))                                \
	X(int, close_device, (struct ibv_context *))                                               \
	X(int, query_device, (struct ibv_context *, struct ibv_device_attr *))                     \
	X(int, query_port, (struct ibv_context *, uint8_t, struct _compat_ibv_port_attr *))        \
	X(struct ibv_pd *, alloc_pd, (struct ibv_context *))                                       \
	X(int, dealloc_pd, (struct ibv_pd *))                                                      \
	X(struct ibv_mr *, reg_mr, (struct ibv_pd *, void *, size_t, int))                         \
	X(int, dereg_mr, (struct ibv_mr *))                                                        \
	X(struct ibv_comp_channel *, create_comp_channel, (struct ibv_context *))                  \
	X(int, destroy_comp_channel, (struct ibv_comp_channel *))                                  \
	X(struct ibv_cq *, create_cq,                                                              \
	  (struct ibv_context *, int, void *, struct ibv_comp_channel *, int))                     \
	X(int, destroy_cq, (struct ibv_cq *))                                                      \
	X(int, get_cq_event, (struct ibv_comp_channel *, struct ibv_cq **, void **))               \
	X(void, ack_cq_events, (struct ibv_cq *, unsigned int))                                    \
	X(struct ibv_srq *, create_srq, (struct ibv_pd *, struct ibv_srq_init_attr *))             \
	X(int, destroy_srq, (struct ibv_srq *))                                                    \
	X(struct ibv_qp *, create_qp, (struct ibv_pd *, struct ibv_qp_init_attr *))                \
	X(int, destroy_qp, (struct ibv_qp *))                                                      \
	X(int, modify_qp, (struct ibv_qp *, struct ibv_qp_attr *, int))                            \
	X(struct ibv_ah *, create_ah, (struct ibv_pd *, struct ibv_ah_attr *))                     \
	X(int, destroy_ah, (struct ibv_ah *))                                                      \
	X(int, get_async_event, (struct ibv_context *, struct ibv_async_event *))                  \
	X(void, ack_async_event, (struct ibv_async_event *))                                       \
	X(const char *, wc_status_str, (enum ibv_wc_status))                                       \
	X(const char *, event_type_str, (enum ibv_event_type))

struct verbs_lib {
#define VERBS_MEMBER(ret, name, args) ret(*name) args;
	VERBS_CALLS(VERBS_MEMBER)
#undef VERBS_MEMBER
	/* Not an inline of the header: its size argument is how it stays compatible. */
	ssize_t (*query_gid_table)(struct ibv_context *, struct ibv_gid_entry *, size_t, uint32_t,
				   size_t);
};

/* The library, or NULL with *why.  Loaded once, kept for good.  The first call of all that it gets is
 * ibv_fork_init: it counts for what is registered after it only. */
const struct verbs_lib *verbs_lib(const char **why);

/* What ibv_fork_init said: 0, or an errno.  Then a fork of this process can tear what is registered
 * (kernels before 5.12). */
int verbs_lib_fork_error(void);

/* What to add to an error: what to do where err, an errno, can come of the limit on pinned memory;
 * else "".  Valid until the thread's next call. */
const char *verbs_pin_hint(int err);

/* For tests: these calls from now on; NULL: the library's again. */
void verbs_lib_use(const struct verbs_lib *lib);

int verbs_lib_query_port(const struct verbs_lib *lib, struct ibv_context *ctx, uint8_t port,
			 struct ibv_port_attr *out);

/* Which device and port own an IP address ("192.0.2.1", "fe80::1"): 0; -errno, said. */
int verbs_lib_owner_of(const char *addr, char *device, size_t size, uint8_t *port);

#endif
#endif
