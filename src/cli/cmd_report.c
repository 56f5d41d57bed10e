/* SPDX-License-Identifier: Apache-2.0 */
/* verbena report */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/report/report.h"

static struct vb_report_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_report_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int n, end = vb_cli_parse_words(&vb_command_report, argc, argv, &n);

	return end >= 0 ? end : vb_report(&opts, argv, (unsigned)n);
}

const struct vb_command vb_command_report = {
	.name = "report",
	.summary = "Show results (JSON) as one HTML page that needs nothing else",
	.about = "Makes one HTML page of results that bench lock, bench txn and reproduce "
		 "have written as JSON. It has its style and figures in it, and no scripts.",
	.run = run,
	.groups = groups,
	.example = "verbena report --out results.html reproduce/*.json",
	.words = "FILE...",
	.ends = VB_ENDS(VB_EXIT_RESOURCES),
	.see = "measuring.md",
};
