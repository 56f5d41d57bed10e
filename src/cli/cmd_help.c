/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena help [COMMAND], and verbena help --man: every command with its options as scdoc text,
 * from the same tables that parse them, for the man page.
 */
#include "cli/cli.h"

#include <stdio.h>
#include <string.h>

#include "base/opt.h"

/* scdoc takes _ and * for emphasis and a backslash for an escape. */
static void put_scdoc(const char *s)
{
	for (; *s != '\0'; s++) {
		if (strchr("_*\\<>#[]~", *s) != NULL)
			putchar('\\');
		putchar(*s);
	}
}

static void put_option(const struct vb_opt *o)
{
	printf("*--");
	put_scdoc(o->name);
	printf("*");
	if (o->value != NULL) {
		printf(" _");
		put_scdoc(o->value);
		printf("_");
	}
	printf("\n\t");
	put_scdoc(o->help);
	printf(".");
	if (o->init != NULL) {
		printf(" Default: ");
		put_scdoc(o->init);
		printf(".");
	}
	printf("\n\n");
}

static void put_command(const struct vb_command *c)
{
	const struct vb_opt_group *groups = NULL;
	unsigned n = 0;

	if (c->groups != NULL)
		groups = c->groups(&n);
	printf("## verbena %s%s%s%s\n\n", c->name, n > 0 ? " [OPTION]..." : "", c->words ? " " : "",
	       c->words ? c->words : "");
	put_scdoc(c->summary);
	printf(".\n\n");
	for (unsigned i = 0; i < n; i++) {
		if (groups[i].title != NULL && n > 1) {
			put_scdoc(groups[i].title);
			printf(":\n\n");
		}
		for (const struct vb_opt *o = groups[i].table; o->kind != VB_OPT_KIND_END; o++)
			put_option(o);
	}
	if (c->example != NULL) {
		printf("Example:\n\n```\n%s\n```\n\n", c->example);
	}
}

static int help_for(int argc, char **argv)
{
	char name[64], *ask[] = {(char *)"--help", NULL};

	snprintf(name, sizeof(name), "%s%s%s", argv[0], argc > 1 ? " " : "",
		 argc > 1 ? argv[1] : "");
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		if (strcmp((*c)->name, name) == 0)
			return (*c)->run(1, ask);
	fprintf(stderr, "verbena: there is no command '%s'; `verbena --help` lists them\n", name);
	return VB_EXIT_USAGE;
}

static struct help_opts {
	bool man;
} opts;

static const struct vb_opt table[] = {
	VB_OPT_FLAG(struct help_opts, man, "man",
		    "print every command and its options as scdoc text, for the man page"),
	VB_OPT_END};

static const struct vb_opt_group *groups(unsigned *n)
{
	static const struct vb_opt_group g[] = {{"Options", table, &opts}};

	*n = 1;
	return g;
}

static int run(int argc, char **argv)
{
	int end;

	if (argc > 0 && argv[0][0] != '-' && argc <= 2)
		return help_for(argc, argv);
	end = vb_cli_parse(&vb_command_help, argc, argv);
	if (end >= 0)
		return end;
	if (!opts.man) {
		printf("Usage: verbena help COMMAND\n\n");
		for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
			printf("  %-14s %s\n", (*c)->name, (*c)->summary);
		return VB_EXIT_OK;
	}
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		put_command(*c);
	return VB_EXIT_OK;
}

const struct vb_command vb_command_help = {
	.name = "help",
	.summary = "Show the options of a command",
	.run = run,
	.groups = groups,
	.example = "verbena help bench lock",
};
