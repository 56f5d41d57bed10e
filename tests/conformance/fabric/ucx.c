/* SPDX-License-Identifier: Apache-2.0 */
/* One process with both nodes, and every verb takes the wire to itself. */
#include "fabric/fabric.h"

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	p->fabric = "ucx";
	/* Time and room enough for a loaded machine: what happens without is in ucx_pair.c. */
	p->options = "local=wire,bound=2s,grace=5s,silence=20s";
	return vb_fabric_open(p, out);
}

#include "fabric_suite.h"

int main(void)
{
	const char *absent = vb_fabric_find("ucx")->absent();

	if (absent != NULL) {
		printf("SKIP fabric ucx: %s\n", absent);
		return 77;
	}
	return suite_main("fabric ucx");
}
