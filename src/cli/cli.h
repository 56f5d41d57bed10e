/* SPDX-License-Identifier: Apache-2.0 */
/* verbena(1): one file per subcommand, no logic of its own. */
#ifndef VB_CLI_CLI_H
#define VB_CLI_CLI_H

#include <stdio.h>

#include "lab/run.h"

struct vb_opt_group;

struct vb_command {
	const char *name;    /* "bench lock": one or two words */
	const char *summary; /* one line for the overview */
	/* What it does, for --help and the man page: paragraphs, with an empty line between two. */
	const char *about;
	/* argv[0] is the first word after the command's name. Returns an enum vb_exit. */
	int (*run)(int argc, char **argv);
	/* The option groups of the command, for --help, the man page and completions; NULL:
	 * none. */
	const struct vb_opt_group *(*groups)(unsigned *n);
	const char *example; /* a command line that works, or NULL */
	const char *words;   /* what follows the options, for the usage: "FILE..."; NULL: nothing */
	const char *option;  /* that who writes a word without one means: "--lock"; NULL: none */
	unsigned ends;       /* VB_ENDS(...) of each way it may end beside 0, 1 and 2 */
	const char *see; /* pages in doc/ that say more: "measuring.md, traces.md"; NULL: none */
};

extern const struct vb_command vb_command_list, vb_command_bench_lock, vb_command_bench_txn,
	vb_command_bench_fabric, vb_command_check_lock, vb_command_check_txn,
	vb_command_check_litmus, vb_command_check_history, vb_command_trace_export,
	vb_command_trace_stat, vb_command_reproduce, vb_command_report, vb_command_dump,
	vb_command_top, vb_command_serve, vb_command_doctor, vb_command_version, vb_command_help;

#define VB_ENDS(exit) (1u << ((exit) == VB_EXIT_INTERRUPTED ? 31 : (exit)))

/* All of them, NULL at the end, in the order of the overview. */
extern const struct vb_command *const vb_commands[];

/*
 * What every command does first: sets the defaults of its groups, reads argv into them, and deals
 * with --help and stray words.  Returns -1 if the command is to go on, else the enum vb_exit to end with
 * (the reason has been printed).
 */
int vb_cli_parse(const struct vb_command *command, int argc, char **argv);
/* The same for a command that takes words: *n_words of them are at the front of argv. */
int vb_cli_parse_words(const struct vb_command *command, int argc, char **argv, int *n_words);

/* The commands that begin with this word, of two: "bench".  False: there are none. */
bool vb_cli_list_second_words(FILE *to, const char *word);

/* The man pages as scdoc text: one command's, from the tables that parse it; of verbena(1), the commands
 * and the ways in which they end. */
void vb_cli_man(const struct vb_command *command);
void vb_cli_man_overview(void);

#endif
