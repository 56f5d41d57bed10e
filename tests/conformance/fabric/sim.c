/* SPDX-License-Identifier: Apache-2.0 */
#include "fabric/fabric.h"

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	p->fabric = "sim";
	return vb_fabric_open(p, out);
}

#include "fabric_suite.h"

int main(void)
{
	return suite_main("fabric sim");
}
