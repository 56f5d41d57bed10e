/* SPDX-License-Identifier: Apache-2.0 */
/* verbena doctor */
#include "cli/cli.h"

#include <stdio.h>

#include "base/opt.h"
#include "lab/doctor/doctor.h"

static struct vb_doctor_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_doctor_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_doctor, argc, argv);

	return end >= 0 ? end : vb_doctor(stdout, &opts);
}

const struct vb_command vb_command_doctor = {
	.name = "doctor",
	.summary = "Check that this machine is fit, and say what mends it if not",
	.about = "Looks at this machine with the library's eyes: processor, memory, limits and "
		 "each fabric, "
		 "tried with one verb of each kind. Each finding is a line: ok; warn or fail, and "
		 "what mends "
		 "it; or none, for what is absent and has not been asked for. With a fail among "
		 "them the exit "
		 "status is 1.",
	.run = run,
	.groups = groups,
	.example = "verbena doctor --need verbs,ucx",
	.see = "operating.md, verbs.md",
};
