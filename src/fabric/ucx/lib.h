/* SPDX-License-Identifier: Apache-2.0 */
/* libucp and libucs, loaded at run time, once, and kept for good. */
#ifndef VB_FABRIC_UCX_LIB_H
#define VB_FABRIC_UCX_LIB_H

#include "vb_config.h"

/* Why `ucx` cannot run here, or NULL. */
const char *ucx_absent(void);

#if VB_HAVE_UCP
#include <stdio.h>

#include <ucp/api/ucp.h>

/* The functions that are used, called as lib->name(...); those that the headers define inline call
 * one of these themselves and are not used. */
#define UCX_CALLS(X)                                                                               \
	X(void, ucp_get_version, (unsigned *, unsigned *, unsigned *))                             \
	X(void, ucp_context_print_info, (const ucp_context_h, FILE *))                             \
	X(ucs_status_t, ucp_config_read, (const char *, const char *, ucp_config_t **))            \
	X(ucs_status_t, ucp_config_modify, (ucp_config_t *, const char *, const char *))           \
	X(void, ucp_config_release, (ucp_config_t *))                                              \
	X(ucs_status_t, ucp_init_version,                                                          \
	  (unsigned, unsigned, const ucp_params_t *, const ucp_config_t *, ucp_context_h *))       \
	X(void, ucp_cleanup, (ucp_context_h))                                                      \
	X(ucs_status_t, ucp_worker_create,                                                         \
	  (ucp_context_h, const ucp_worker_params_t *, ucp_worker_h *))                            \
	X(void, ucp_worker_destroy, (ucp_worker_h))                                                \
	X(ucs_status_t, ucp_worker_get_address, (ucp_worker_h, ucp_address_t **, size_t *))        \
	X(void, ucp_worker_release_address, (ucp_worker_h, ucp_address_t *))                       \
	X(unsigned, ucp_worker_progress, (ucp_worker_h))                                           \
	X(ucs_status_t, ucp_worker_get_efd, (ucp_worker_h, int *))                                 \
	X(ucs_status_t, ucp_worker_arm, (ucp_worker_h))                                            \
	X(ucs_status_t, ucp_worker_set_am_recv_handler,                                            \
	  (ucp_worker_h, const ucp_am_handler_param_t *))                                          \
	X(ucs_status_ptr_t, ucp_am_send_nbx,                                                       \
	  (ucp_ep_h, unsigned, const void *, size_t, const void *, size_t,                         \
	   const ucp_request_param_t *))                                                           \
	X(ucs_status_ptr_t, ucp_am_recv_data_nbx,                                                  \
	  (ucp_worker_h, void *, void *, size_t, const ucp_request_param_t *))                     \
	X(ucs_status_t, ucp_ep_create, (ucp_worker_h, const ucp_ep_params_t *, ucp_ep_h *))        \
	X(ucs_status_ptr_t, ucp_ep_close_nbx, (ucp_ep_h, const ucp_request_param_t *))             \
	X(ucs_status_t, ucp_request_check_status, (void *))                                        \
	X(void, ucp_request_free, (void *))                                                        \
	X(const char *, ucs_status_string, (ucs_status_t))

struct ucx_lib {
#define UCX_MEMBER(ret, name, args) ret(*name) args;
	UCX_CALLS(UCX_MEMBER)
#undef UCX_MEMBER
};

/* NULL: ucx_absent says why. */
const struct ucx_lib *ucx_lib(void);

#endif
#endif
