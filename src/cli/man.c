/* SPDX-License-Identifier: Apache-2.0 */
/* The man pages of the commands, from the tables that parse them, as scdoc text. */
#include "cli/cli.h"

#include <ctype.h>
#include <math.h>
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

/* "bench lock": verbena-bench-lock. */
static void put_page(const char *command)
{
	printf("verbena-");
	for (; *command != '\0'; command++)
		putchar(*command == ' ' ? '-' : *command);
}

/* ---- options ---- */

/* As a user would type it: 60000000000 with the units of time is 60s. */
static void put_amount(uint64_t v, bool is_time)
{
	static const char *const times[] = {"ns", "us", "ms", "s"};
	static const char *const decimal[] = {"", "k", "m", "g"};
	static const char *const binary[] = {"", "ki", "mi", "gi"};
	const bool by_1024 = !is_time && v % 1000 != 0 && v % 1024 == 0;
	const char *const *units = is_time ? times : by_1024 ? binary : decimal;
	const unsigned step = by_1024 ? 1024 : 1000;
	unsigned unit = 0;

	for (; v != 0 && v % step == 0 && unit < 3; unit++)
		v /= step;
	printf("%llu%s", (unsigned long long)v, v == 0 ? "" : units[unit]);
}

/* An upper bound that no number reaches is none. */
static void put_range(const struct vb_opt *o)
{
	const bool is_time = o->kind == VB_OPT_KIND_TIME;

	if (o->kind == VB_OPT_KIND_REAL) {
		printf(isinf(o->real_max) ? " At least %g." : " From %g to %g.", o->real_min,
		       o->real_max);
	} else if (is_time || o->kind == VB_OPT_KIND_SIZE) {
		printf(o->max < INT64_MAX ? " From " : " At least ");
		put_amount(o->min, is_time);
		if (o->max < INT64_MAX) {
			printf(" to ");
			put_amount(o->max, is_time);
		}
		putchar('.');
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
	put_range(o);
	if (o->init != NULL) {
		printf(" Default: ");
		put_scdoc(o->init);
		printf(".");
	}
	printf("\n\n");
}

static void put_options(const struct vb_opt_group *groups, unsigned n)
{
	printf("# OPTIONS\n\n");
	for (unsigned i = 0; i < n; i++) {
		if (n > 1) {
			printf("## ");
			put_scdoc(groups[i].title);
			printf("\n\n");
		}
		for (const struct vb_opt *o = groups[i].table; o->kind != VB_OPT_KIND_END; o++)
			put_option(o);
	}
	printf("*--help*\n\tPrint these options and end.\n\n");
}

/* ---- how it ends ---- */

static const struct {
	enum vb_exit status;
	const char *means;
} ends[] = {
	{VB_EXIT_OK, "Done; nothing was found wrong."},
	{VB_EXIT_FAILED,
	 "Something failed while running: a process of the run was killed or stopped, say, or "
	 "what was printed could not be written."},
	{VB_EXIT_USAGE, "Bad input: nothing was run."},
	{VB_EXIT_VIOLATION,
	 "A checker or the auditor found a violation. The story and, for explorations, a command "
	 "that replays it have been printed."},
	{VB_EXIT_STALLED,
	 "A lock without recovery was lost with its holder, and those who wait for it were "
	 "stopped. What was measured until then is reported."},
	{VB_EXIT_BUSY, "In use: a live process owns a segment of that name, for example."},
	{VB_EXIT_RESOURCES, "Does not fit in memory or on disk."},
	{VB_EXIT_STALE,
	 "Another server has begun in the name of this one, or a part of its database is lost: to "
	 "start it again by itself does harm, or no good."},
	{VB_EXIT_INTERRUPTED,
	 "Interrupted by SIGINT or SIGTERM; what was found until then is reported, and written "
	 "if *--json* says where."},
};

#define ALWAYS (VB_ENDS(VB_EXIT_OK) | VB_ENDS(VB_EXIT_FAILED) | VB_ENDS(VB_EXIT_USAGE))

static void put_ends(unsigned which)
{
	printf("# EXIT STATUS\n\n");
	for (size_t i = 0; i < VB_ARRAY_SIZE(ends); i++)
		if ((which & VB_ENDS(ends[i].status)) != 0)
			printf("*%d*\n\t%s\n\n", (int)ends[i].status, ends[i].means);
}

/* ---- pages ---- */

/* Its neighbours are the commands with the same first word: those of `check lock` are `check txn`, ... */
static void put_neighbours(const struct vb_command *command)
{
	const size_t first = strcspn(command->name, " ");

	if (command->name[first] == '\0')
		return;
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++) {
		if (*c == command || strncmp((*c)->name, command->name, first + 1) != 0)
			continue;
		printf(", *");
		put_page((*c)->name);
		printf("*(1)");
	}
}

void vb_cli_man(const struct vb_command *c)
{
	const struct vb_opt_group *groups = NULL;
	unsigned n = 0;

	if (c->groups != NULL)
		groups = c->groups(&n);
	put_page(c->name);
	printf("(1)\n\n# NAME\n\n");
	put_page(c->name);
	printf(" - %c", tolower(c->summary[0]));
	put_scdoc(c->summary + 1);
	printf("\n\n# SYNOPSIS\n\n*verbena %s*%s", c->name, n > 0 ? " [_OPTION_]..." : "");
	if (c->words != NULL) {
		putchar(' ');
		put_scdoc(c->words);
	}
	printf("\n\n# DESCRIPTION\n\n");
	put_scdoc(c->about);
	printf("\n\nSizes, times and the environment are as in *verbena*(1).\n\n");
	put_options(groups, n);
	put_ends(ALWAYS | c->ends);
	if (c->example != NULL)
		printf("# EXAMPLES\n\n```\n%s\n```\n\n", c->example);
	printf("# SEE ALSO\n\n*verbena*(1)");
	put_neighbours(c);
	putchar('\n');
	if (c->see != NULL) {
		printf("\nIn _share/doc/verbena/doc_ (*verbena*(1)): ");
		put_scdoc(c->see);
		printf(".\n");
	}
}

void vb_cli_man_overview(void)
{
	unsigned all = ALWAYS;

	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++) {
		all |= (*c)->ends;
		putchar('*');
		put_page((*c)->name);
		printf("*(1)\n\t");
		put_scdoc((*c)->summary);
		printf(".\n\n");
	}
	put_ends(all);
}
