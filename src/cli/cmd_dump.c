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
	.about = "Looks once at a lock space on shared memory while its program runs: which "
		 "locks are held and waited for, by whom and since when, and which clients "
		 "wait in a circle. It disturbs nobody. The space has to be visible: bench "
		 "lock --visible, or an option of vb_lock_space_open(3). A client that waits "
		 "in a circle is no violation here: the exit status is 0.",
	.run = run,
	.groups = groups,
	.example = "verbena dump --segment my-app",
	.ends = VB_ENDS(VB_EXIT_RESOURCES),
	.see = "measuring.md, operating.md",
};
