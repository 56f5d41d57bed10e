/* SPDX-License-Identifier: Apache-2.0 */
/* verbena dump */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/watch/dump.h"

static struct vb_look_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_dump_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_dump, argc, argv);

	return end >= 0 ? end : vb_dump(stdout, &opts);
}

const struct vb_command vb_command_dump = {
	.name = "dump",
	.summary = "Show who holds locks, who waits for whom, and who waits in a circle",
	.run = run,
	.groups = groups,
	.example = "verbena dump --segment my-app",
};
