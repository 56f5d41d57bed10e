/* SPDX-License-Identifier: Apache-2.0 */
/* verbena version */
#include "cli/cli.h"

#include <stdio.h>

#include <verbena/verbena.h>

static int run(int argc, char **argv)
{
	int end = vb_cli_parse(&vb_command_version, argc, argv);

	if (end >= 0)
		return end;
	printf("verbena %s (%s)\n", vb_version(), vb_commit());
	return VB_EXIT_OK;
}

const struct vb_command vb_command_version = {
	.name = "version",
	.summary = "Print the version and the commit it was built from",
	.about = "Prints the version of the tool, and of the library that it is built with, "
		 "and the commit of the source that they were built from.",
	.run = run,
};
