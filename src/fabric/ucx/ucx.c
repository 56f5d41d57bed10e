/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric ucx: its options and caps. */
#include "fabric/fabric.h"
#include "fabric/net/am/am.h"
#include "fabric/ucx/lib.h"

extern const struct vb_fabric_ops vb_fabric_ucx;

#if VB_HAVE_UCP

#include "fabric/ucx/inner.h"

static const struct vb_opt ucx_table[] = {
	AM_OPTIONS(struct ucx_options, "4ms"),
	VB_OPT_TIME(struct ucx_options, am.grace_ns, "grace", "20ms", 100000, 60 * AM_S,
		    "how much longer than `bound` an answer is waited for"),
	VB_OPT_SIZE(struct ucx_options, eager, "eager", "64ki", 0, 1 << 20,
		    "messages longer than this are fetched by the receiver (rendezvous)"),
	VB_OPT_STRING(struct ucx_options, tls, "tls", "LIST", "tcp,self",
		      "UCX's transports, as in UCX_TLS"),
	VB_OPT_STRING(struct ucx_options, net_devices, "net_devices", "LIST", NULL,
		      "interfaces, as in UCX_NET_DEVICES; default: that of the cluster's address"),
	VB_OPT_END};

static const struct am_carrier ucx_carrier = {
	.name = "ucx",
	.open = ucx_open,
	.close = ucx_close,
	.link = ucx_link,
	.unlink = ucx_unlink,
	.send = ucx_send,
	.look = ucx_look,
	.arm = ucx_arm,
	.idle = ucx_idle,
	.fetch = ucx_fetch,
};

static int transport_open(struct net_fabric *f, const void *options, void *address, size_t *bytes)
{
	return am_open(f, &ucx_carrier, options, address, bytes);
}

static const struct net_transport ucx_transport = {
	.name = "ucx",
	.open = transport_open,
	AM_TRANSPORT,
};

static int fabric_open(const struct vb_fabric_params *p, const void *options,
		       struct vb_fabric **out)
{
	return net_open(p, options, &vb_fabric_ucx, &ucx_transport, out);
}

#endif

const struct vb_fabric_ops vb_fabric_ucx = {
	.name = "ucx",
	.summary = "processes of any machines through UCX: TCP, and what else it drives",
#if VB_HAVE_UCP
	.options = ucx_table,
	.options_size = sizeof(struct ucx_options),
	.open = fabric_open,
	NET_FABRIC_OPS,
#endif
	.absent = ucx_absent,
	.caps =
		{
			.flags = AM_CAP_FLAGS,
			.verb_bound_ns = 4000000,
			.relink_ns = 204000000,
			.rtt_ns = 20000,
			.atomics = AM_CAP_ATOMICS,
			.order = AM_CAP_ORDER,
		},
};
