/* SPDX-License-Identifier: Apache-2.0 */
/* One process with both nodes, and every verb takes the wire to itself.  The argument names the fabric. */
#include "fabric/fabric.h"

static const char *fabric;

static int suite_open(struct vb_fabric_params *p, struct vb_fabric **out)
{
	p->fabric = fabric;
	/* Time and room enough for a loaded machine: what happens without is in net_pair.c. */
	p->options = strcmp(fabric, "ucx") == 0 ? "local=wire,bound=2s,grace=5s,silence=20s"
						: "local=wire,bound=2s,silence=20s";
	return vb_fabric_open(p, out);
}

#include "fabric_suite.h"

int main(int argc, char **argv)
{
	const char *absent;
	char name[32];

	fabric = argc > 1 ? argv[1] : "tcp";
	absent = vb_fabric_find(fabric)->absent();

	if (absent != NULL) {
		printf("SKIP fabric %s: %s\n", fabric, absent);
		return 77;
	}
	snprintf(name, sizeof(name), "fabric %s", fabric);
	return suite_main(name);
}
