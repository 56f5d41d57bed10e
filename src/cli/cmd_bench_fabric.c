/* SPDX-License-Identifier: Apache-2.0 */
/* verbena bench fabric */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/bench/fabric/fabric.h"
#include "lab/bench/lock/lock.h"

static struct vb_floor_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_bench_fabric_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_bench_fabric, argc, argv);

	return end >= 0 ? end : vb_bench_fabric(&opts, vb_bench_hot_lock);
}

const struct vb_command vb_command_bench_fabric = {
	.name = "bench fabric",
	.summary = "Measure verbs, locks and the simulator beside the bare things they stand on",
	.about = "Measures what the fabric, the locks, the lock table and the simulator cost "
		 "on this machine, each beside the bare thing that it stands on, in turn and "
		 "in the same run: a fetch-and-add beside the bare instruction, a lock beside "
		 "a pthread lock, a switch of coroutines, messages beside a bare socket. The "
		 "medians of the repetitions are shown. The section model needs no machine: it is "
		 "what each simulated network does in virtual time, beside what has been "
		 "published of such cards.\n\n"
		 "With --servers HOST:PORT+... it is a client of servers that `verbena serve` has "
		 "started, and measures verbs to each of them, and one lock at each, beside a READ "
		 "of 8 bytes. It needs nothing that they serve: the memory for that it makes, and "
		 "gives back.",
	.run = run,
	.groups = groups,
	.example = "verbena bench fabric --only faa,locks",
	.ends = VB_ENDS(VB_EXIT_RESOURCES) | VB_ENDS(VB_EXIT_INTERRUPTED),
	.see = "measuring.md, elastic.md",
};
