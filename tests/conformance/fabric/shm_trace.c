/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/hook/hooks.h"

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	struct vb_fabric *lower;
	int err;

	p->fabric = "shm";
	err = vb_fabric_open(p, &lower);
	return err != 0 ? err : vb_hook_trace(lower, NULL, out);
}

#include "fabric_suite.h"

int main(void)
{
	return suite_main("fabric shm_trace");
}
