/* SPDX-License-Identifier: Apache-2.0 */
/* What UCX hands up. */
#include "fabric/ucx/inner.h"

ucs_status_t ucx_came(void *arg, const void *header, size_t header_bytes, void *data, size_t bytes,
		      const ucp_am_recv_param_t *param)
{
	struct ucx_via *u = arg;
	bool later = (param->recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;

	return am_came(u->w, header, header_bytes, data, bytes, later) ? UCS_INPROGRESS : UCS_OK;
}
