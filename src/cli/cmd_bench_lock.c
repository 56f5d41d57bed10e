/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench lock */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/bench/lock/lock.h"

static struct vb_bench_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_bench_lock_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_bench_lock, argc, argv);

	return end >= 0 ? end : vb_bench_lock(&opts);
}

const struct vb_command vb_command_bench_lock = {
	.name = "bench lock",
	.summary = "Measure locks between processes or in a simulated cluster, audited",
	.about = "Clients take a lock, hold it, give it back, think and go on; or, with a "
		 "trace, run transactions by strict two-phase locking. Every lock that is "
		 "named is run in turn, with the same load, and has a row in the table: "
		 "cycles per second, latencies, and the verbs of a cycle; retry is those that "
		 "repeated an attempt, which the others count, too.\n\n"
		 "Every grant is audited. A lock that is granted twice, passes a queue by "
		 "more than it promises, or loses a waiter is a violation; its story is told, "
		 "and the exit status is 3. The columns: viol, violations; bypass, the most "
		 "grants that passed one waiter.\n\n"
		 "On sim the run is in virtual time, and the same options and --seed give the "
		 "same numbers. On shm, tcp, ucx and verbs it is in this machine's time, "
		 "between processes.\n\n"
		 "With --servers HOST:PORT+... it is a client of servers that `verbena serve` has "
		 "started: --space is one of their lock spaces, in the words that they were given. "
		 "Its grants are audited among the clients of this run; those of others it does "
		 "not see, and a run that stands still (status 4) is no violation then.",
	.run = run,
	.groups = groups,
	.option = "--lock",
	.example =
		"verbena bench lock --lock dslr,shiftlock --fabric sim --profile cx5 --locks 10m",
	.ends = VB_ENDS(VB_EXIT_VIOLATION) | VB_ENDS(VB_EXIT_STALLED) | VB_ENDS(VB_EXIT_BUSY) |
		VB_ENDS(VB_EXIT_RESOURCES) | VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "measuring.md, traces.md, cluster.md, choosing-a-lock.md",
};
