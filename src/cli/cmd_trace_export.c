/* SPDX-License-Identifier: Apache-2.0 */
/* verbena trace export */
#include "cli/cli.h"

#include <stdio.h>

#include "lab/trace/trace_tool.h"

static struct vb_trace_tool_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_trace_export_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int words, end = vb_cli_parse_words(&vb_command_trace_export, argc, argv, &words);

	if (end >= 0)
		return end;
	if (words != 1) {
		fprintf(stderr, "verbena: give one FILE to write; - is stdout\n");
		return VB_EXIT_USAGE;
	}
	return vb_trace_export(&opts, argv[0]);
}

const struct vb_command vb_command_trace_export = {
	.name = "trace export",
	.summary = "Write a lock trace to a file",
	.about = "Writes the transactions that a trace draws, or those of a file, as text: "
		 "which locks each takes, in which modes. The file can be used as --workload "
		 "trace:FILE of bench lock. - writes to standard output.",
	.run = run,
	.groups = groups,
	.example = "verbena trace export --trace tpcc --hosts 5 --clients 5 --transactions 1m "
		   "tpcc.csv",
	.words = "FILE",
	.ends = VB_ENDS(VB_EXIT_RESOURCES) | VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "traces.md",
};
