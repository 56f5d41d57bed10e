/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench txn */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/bench/txn/txn.h"

static struct vb_tbench_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_tbench_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end;

	vb_tbench_prefer(argc, argv);
	end = vb_cli_parse(&vb_command_bench_txn, argc, argv);
	return end >= 0 ? end : vb_bench_txn(&opts);
}

const struct vb_command vb_command_bench_txn = {
	.name = "bench txn",
	.summary = "Measure transactions between processes or in a simulated cluster, checked",
	.about =
		"Clients run transactions of a workload that read and write records. Every "
		"protocol that is named is run in turn, for each hybrid code that is asked "
		"for, and has a row in the table: commits per second, aborts and "
		"latencies.\n\n"
		"After a run the tables are judged by what the workload keeps true: sums, "
		"counters, locks that are left. With --check the history of the run must be "
		"serializable, too.\n\n"
		"With --servers HOST:PORT+... it is a client of servers that `verbena serve` has "
		"started: --database is one of their databases, in the words that they were given, "
		"with a workload, which the servers have filled. It is judged in the same way, "
		"from "
		"what was there when the run began, as long as nobody else has a coordinator open "
		"at the database.",
	.run = run,
	.groups = groups,
	.option = "--cc",
	.example = "verbena bench txn --cc silo,wound-wait --fabric sim --nodes 4 --workload "
		   "smallbank --check",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_STALLED) | VB_ENDS(VB_EXIT_BUSY) |
		VB_ENDS(VB_EXIT_RESOURCES) | VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "measuring-transactions.md, transactions.md, workloads.md, elastic.md",
};
