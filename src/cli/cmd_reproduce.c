/* SPDX-License-Identifier: Apache-2.0 */
/* verbena reproduce */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/reproduce/reproduce.h"

static struct vb_repro_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_repro_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int n, end = vb_cli_parse_words(&vb_command_reproduce, argc, argv, &n);

	return end >= 0 ? end : vb_reproduce(&opts, argv, (unsigned)n);
}

const struct vb_command vb_command_reproduce = {
	.name = "reproduce",
	.summary = "Run the papers' experiments on the simulator, and give each claim a verdict",
	.about = "Runs the experiments of the papers on the simulator and holds each number "
		 "beside what the paper claims; every claim has a verdict. Without words all "
		 "experiments are run. Results go to a folder, as JSON and CSV, which verbena "
		 "report shows.",
	.run = run,
	.groups = groups,
	.example = "verbena reproduce shiftlock --figure 6 --quick",
	.words = "[PAPER[/FIGURE]]...",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_RESOURCES) |
		VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "measuring.md, claims.md",
};
