/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric `tcp` of a build without libsodium and OpenSSL: it says so. */
#include "fabric/fabric.h"

extern const struct vb_fabric_ops vb_fabric_tcp;

static const char *absent(void)
{
	return "this verbena was built without libsodium and OpenSSL, which prove and seal its "
	       "connections";
}

const struct vb_fabric_ops vb_fabric_tcp = {
	.name = "tcp",
	.summary = "processes of any machines over TCP, closed to strangers",
	.absent = absent,
	.caps = {.flags = VB_CAP_SEND | VB_CAP_NOTIFY | VB_CAP_CLUSTER,
		 .atomics = "absent",
		 .order = "absent"},
};
