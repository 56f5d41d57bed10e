/* SPDX-License-Identifier: Apache-2.0 */
/* verbena trace stat */
#include "cli/cli.h"

#include "lab/trace/trace_tool.h"

static struct vb_trace_tool_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_trace_stat_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_trace_stat, argc, argv);

	return end >= 0 ? end : vb_trace_stat(&opts);
}

const struct vb_command vb_command_trace_stat = {
	.name = "trace stat",
	.summary = "Describe a lock trace: its transactions, locks and modes",
	.about = "Draws the transactions of a trace, or reads those of a file, and describes "
		 "them: how many locks they take, in which modes, how far they spread and how "
		 "hot the hottest locks are.",
	.run = run,
	.groups = groups,
	.option = "--trace",
	.example = "verbena trace stat --trace tatp --transactions 1m",
	.ends = VB_ENDS(VB_EXIT_RESOURCES) | VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "traces.md",
};
