/* SPDX-License-Identifier: Apache-2.0 */
/* What all commands share: their options, from their tables. */
#include "cli/cli.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <verbena/verbena.h>

#include "base/opt.h"

/* In lines of 80, broken between words as those of the options are. */
static void print_about(const char *text)
{
	int column = 0;

	while (*text != '\0') {
		const int n = (int)strcspn(text, " \n");

		if (column > 0 && column + 1 + n > 80) {
			putchar('\n');
			column = 0;
		}
		column += printf("%s%.*s", column > 0 ? " " : "", n, text);
		for (text += n; *text == ' ' || *text == '\n'; text++) {
			if (*text == '\n') {
				putchar('\n');
				column = 0;
			}
		}
	}
	putchar('\n');
}

static void print_help(const struct vb_command *c, const struct vb_opt_group *groups, unsigned n)
{
	printf("Usage: verbena %s%s%s%s\n\n%s\n\n", c->name, n > 0 ? " [OPTION]..." : "",
	       c->words ? " " : "", c->words ? c->words : "", c->summary);
	print_about(c->about);
	if (n > 0) {
		printf("\n");
		vb_opt_print_help(stdout, groups, n);
	}
	if (c->example != NULL)
		printf("\nExample:\n  %s\n", c->example);
}

int vb_cli_parse_words(const struct vb_command *command, int argc, char **argv, int *n_words)
{
	const struct vb_opt_group *groups = NULL;
	unsigned n = 0;
	int err;

	*n_words = 0;
	if (command->groups != NULL)
		groups = command->groups(&n);
	for (unsigned i = 0; i < n; i++)
		vb_opt_defaults(groups[i].table, groups[i].opts);
	err = vb_opt_parse_args(groups, n, argc, argv, n_words);
	if (err < 0)
		return VB_EXIT_USAGE;
	if (err == 1) {
		print_help(command, groups, n);
		return VB_EXIT_OK;
	}
	return -1;
}

/* A word where the command takes none: what was most probably meant. */
static void say_stray(const struct vb_command *c, const char *word)
{
	fprintf(stderr, "verbena: '%s': `verbena %s` takes no words; ", word, c->name);
	if (c->option != NULL)
		fprintf(stderr, "did you mean '%s %s'? see its --help\n", c->option, word);
	else if (c == &vb_command_list)
		fprintf(stderr, "it shows everything, `verbena list | less` finds '%s' there\n",
			word);
	else
		fprintf(stderr, "see its --help\n");
}

int vb_cli_parse(const struct vb_command *command, int argc, char **argv)
{
	int words, end = vb_cli_parse_words(command, argc, argv, &words);

	if (end < 0 && words > 0) {
		say_stray(command, argv[0]);
		return VB_EXIT_USAGE;
	}
	return end;
}
