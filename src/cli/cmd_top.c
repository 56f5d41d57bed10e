/* SPDX-License-Identifier: Apache-2.0 */
/* verbena top */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/watch/dump.h"

static struct vb_look_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_top_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_top, argc, argv);

	return end >= 0 ? end : vb_top(stdout, &opts);
}

const struct vb_command vb_command_top = {
	.name = "top",
	.summary = "Show the locks that cost their clients most time, live",
	.about = "Looks again and again at a lock space on shared memory while its program "
		 "runs, and shows the locks for which clients have waited longest. The space "
		 "has to be visible, as for verbena dump. It ends when no client is left, "
		 "after --times looks, or at SIGINT.",
	.run = run,
	.groups = groups,
	.example = "verbena top --segment my-app",
	.ends = VB_ENDS(VB_EXIT_RESOURCES),
	.see = "measuring.md, operating.md",
};
