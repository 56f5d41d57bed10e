/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena help [COMMAND]: what its --help prints.  verbena help --man [COMMAND]: the man pages as scdoc
 * text, from the same tables that parse the options.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/opt.h"

static struct help_opts {
	bool man;
} opts;

static const struct vb_opt table[] = {
	VB_OPT_FLAG(struct help_opts, man, "man",
		    "print the command's man page as scdoc text; without a command, the part of "
		    "verbena(1) that has all commands"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group g[] = {{"Options", table, &opts}};

	*n = 1;
	return g;
}

static int help_for(int words, char **argv)
{
	char name[64], *ask[] = {(char *)"--help", NULL};

	snprintf(name, sizeof(name), "%s%s%s", argv[0], words > 1 ? " " : "",
		 words > 1 ? argv[1] : "");
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++) {
		if (words > 2 || strcmp((*c)->name, name) != 0)
			continue;
		if (!opts.man)
			return (*c)->run(1, ask);
		vb_cli_man(*c);
		return VB_EXIT_OK;
	}
	if (words == 1 && !opts.man && vb_cli_list_second_words(stdout, name))
		return VB_EXIT_OK;
	fprintf(stderr, "verbena: there is no command '%s'; `verbena --help` lists them\n", name);
	return VB_EXIT_USAGE;
}

static int run(int argc, char **argv)
{
	int words, end = vb_cli_parse_words(&vb_command_help, argc, argv, &words);

	if (end >= 0)
		return end;
	if (words > 0)
		return help_for(words, argv);
	if (opts.man) {
		vb_cli_man_overview();
		return VB_EXIT_OK;
	}
	printf("Usage: verbena help COMMAND\n\n");
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		printf("  %-14s %s\n", (*c)->name, (*c)->summary);
	return VB_EXIT_OK;
}

const struct vb_command vb_command_help = {
	.name = "help",
	.summary = "Show the options of a command",
	.about = "Prints what the command's --help prints: what it does, its options with "
		 "their defaults, and an example. The man page verbena-COMMAND(1) says the "
		 "same, with the ranges of the options and the exit statuses.",
	.run = run,
	.groups = groups,
	.example = "verbena help bench lock",
	.words = "[COMMAND]",
};
