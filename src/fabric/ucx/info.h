/* SPDX-License-Identifier: Apache-2.0 */
/* What UCX is here, for `verbena doctor`.  Needs no headers of UCX. */
#ifndef VB_FABRIC_UCX_INFO_H
#define VB_FABRIC_UCX_INFO_H

struct ucx_info {
	char version[32];
	char transports[512]; /* "tcp/lo tcp/eth0 ...": as many as fit; "": UCX did not say */
};

/* 0; -ENODEV with the reason in *why (not logged). */
int ucx_info(struct ucx_info *out, const char **why);

#endif
