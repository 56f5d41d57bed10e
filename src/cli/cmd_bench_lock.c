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
	.run = run,
	.groups = groups,
	.option = "--lock",
	.example =
		"verbena bench lock --lock dslr,shiftlock --fabric sim --profile cx5 --locks 10m",
};
