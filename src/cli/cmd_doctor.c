/* SPDX-License-Identifier: Apache-2.0 */
/* verbena doctor */
#include "cli/cli.h"

#include <stdio.h>

#include "lab/doctor.h"

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_doctor, argc, argv);

	return end >= 0 ? end : vb_doctor(stdout);
}

const struct vb_command vb_command_doctor = {
	.name = "doctor",
	.summary = "Check that this machine is fit, and say what mends it if not",
	.run = run,
};
