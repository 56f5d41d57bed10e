/* SPDX-License-Identifier: Apache-2.0 */
/* The fabric `verbs` of a build without the headers of libibverbs: it says so. */
#include "fabric/fabric.h"
#include "fabric/verbs/device.h"
#include "fabric/verbs/lib.h"

extern const struct vb_fabric_ops vb_fabric_verbs;

const char *const verbs_gid_type_names[] = {"InfiniBand", "RoCE v1", "RoCE v2"};
const char *const verbs_link_names[] = {"InfiniBand", "Ethernet", "other"};
const char *const verbs_scope_names[] = {"none", "device", "global"};

int verbs_devices(struct verbs_device **list, unsigned *n, const char **why)
{
	*list = NULL;
	*n = 0;
	*why = verbs_absent();
	return -ENODEV;
}

int verbs_measure(const char *options, struct verbs_give_up *out)
{
	(void)options;
	*out = (struct verbs_give_up){0};
	return -ENODEV;
}

char *verbs_gid_text(const struct verbs_gid *g, char *buf, unsigned size)
{
	(void)g;
	if (size > 0)
		buf[0] = '\0';
	return buf;
}

const struct vb_fabric_ops vb_fabric_verbs = {
	.name = "verbs",
	.summary = "RDMA devices: InfiniBand, RoCE, Soft-RoCE (rdma-core)",
	.absent = verbs_absent,
	.caps = {.flags = VB_CAP_SEND | VB_CAP_NOTIFY | VB_CAP_CLUSTER,
		 .atomics = "absent",
		 .order = "absent"},
};
