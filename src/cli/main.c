/* SPDX-License-Identifier: Apache-2.0 */
/* verbena(1): which command, and what signals do. */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <verbena/verbena.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/opt.h"
#include "lab/json.h"

const struct vb_command *const vb_commands[] = {
	&vb_command_list,
	&vb_command_bench_lock,
	&vb_command_bench_txn,
	&vb_command_bench_fabric,
	&vb_command_check_lock,
	&vb_command_check_txn,
	&vb_command_check_litmus,
	&vb_command_check_history,
	&vb_command_reproduce,
	&vb_command_trace_export,
	&vb_command_trace_stat,
	&vb_command_report,
	&vb_command_serve,
	&vb_command_dump,
	&vb_command_top,
	&vb_command_doctor,
	&vb_command_help,
	&vb_command_version,
	NULL,
};

/*
 * The first signal asks for an early end: the driver stops the clients, takes down the segment and
 * reports what it has.  A second one of SIGINT or SIGTERM means it, and kills; but one that comes at once is
 * the first once more: timeout(1) tells its child, and then all of its group.  SIGPIPE (the reader of our
 * output has left) and SIGHUP end a run in the same orderly way, because dying of them would leave shared
 * memory behind; but a SIGHUP that was ignored when we began, as nohup(1) has it, stays so.
 */
#define SAME_SIGNAL_NS 500000000ull

static volatile sig_atomic_t reader_left;
static volatile uint64_t first_signal_ns;

static void on_signal(int sig)
{
	if (sig == SIGPIPE)
		reader_left = 1;
	if (vb_interrupted && (sig == SIGINT || sig == SIGTERM)) {
		if (vb_clock_gettime_ns() - first_signal_ns < SAME_SIGNAL_NS)
			return;
		signal(sig, SIG_DFL);
		raise(sig);
		return;
	}
	if (vb_interrupt_unlinks != NULL && sig != SIGPIPE) {
		(void)unlink(vb_interrupt_unlinks);
		_exit(0);
	}
	if (!vb_interrupted)
		first_signal_ns = vb_clock_gettime_ns();
	vb_interrupted = true;
}

static void on_look(int sig)
{
	vb_look_wanted = true;
}

static void catch_signals(void)
{
	static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGPIPE};
	struct sigaction a = {.sa_handler = on_signal, .sa_flags = SA_RESTART}, before;

	sigemptyset(&a.sa_mask);
	for (size_t i = 0; i < VB_ARRAY_SIZE(signals); i++)
		if (signals[i] != SIGHUP || sigaction(SIGHUP, NULL, &before) != 0 ||
		    before.sa_handler != SIG_IGN)
			sigaction(signals[i], &a, NULL);
	a.sa_handler = on_look;
	sigaction(SIGUSR1, &a, NULL);
}

static void overview(FILE *to)
{
	fprintf(to, "Usage: verbena COMMAND [OPTION]...\n\n"
		    "Distributed locks and transactions over one-sided RDMA: measured, checked and "
		    "explored.\n\n"
		    "Commands:\n");
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		fprintf(to, "  %-14s %s\n", (*c)->name, (*c)->summary);
	fprintf(to,
		"\nverbena COMMAND --help shows a command's options, verbena list the locks and "
		"fabrics.\nSizes take k, m, g (and ki, mi, gi), times ns, us, ms, s.\n\n"
		"Exit codes: 0 done, 1 failed, 2 bad input, 3 a checker found a violation, "
		"4 a lock was lost\nwith its holder, 5 in use, 6 does not fit, "
		"7 a server whose place is another's, 130 interrupted\n(with what was "
		"measured).\n");
}

/* Does the command's name stand at the start of argv?  The number of its words, or 0. */
static int words_of(const struct vb_command *c, int argc, char **argv)
{
	const char *space = strchr(c->name, ' ');
	size_t first = space != NULL ? (size_t)(space - c->name) : strlen(c->name);

	if (argc < 1 || strlen(argv[0]) != first || strncmp(argv[0], c->name, first) != 0)
		return 0;
	if (space == NULL)
		return 1;
	return argc >= 2 && strcmp(argv[1], space + 1) == 0 ? 2 : 0;
}

/* `verbena bench` alone, or with a second word that does not exist. */
static bool is_first_word(const char *word)
{
	size_t len = strlen(word);

	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		if (strncmp((*c)->name, word, len) == 0 && (*c)->name[len] == ' ')
			return true;
	return false;
}

bool vb_cli_list_second_words(FILE *to, const char *word)
{
	size_t len = strlen(word);

	if (!is_first_word(word))
		return false;
	fprintf(to, "Usage: verbena %s COMMAND [OPTION]...\n\n", word);
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		if (strncmp((*c)->name, word, len) == 0 && (*c)->name[len] == ' ')
			fprintf(to, "  %-14s %s\n", (*c)->name, (*c)->summary);
	return true;
}

static int unknown(int argc, char **argv)
{
	bool two = is_first_word(argv[0]);
	const char *names[32], *near;
	char asked[128];
	size_t n = 0;

	if (two && argc >= 2 && (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)) {
		vb_cli_list_second_words(stdout, argv[0]);
		return VB_EXIT_OK;
	}
	if (two && argc < 2) {
		vb_cli_list_second_words(stderr, argv[0]);
		return VB_EXIT_USAGE;
	}
	if (argc >= 2 && argv[1][0] != '-')
		snprintf(asked, sizeof(asked), "%s %s", argv[0], argv[1]);
	else
		snprintf(asked, sizeof(asked), "%s", argv[0]);
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++)
		names[n++] = (*c)->name;
	near = vb_nearest(asked, names, n);
	if (near == NULL)
		near = vb_nearest(argv[0], names, n);
	fprintf(stderr, "verbena: there is no command '%s'%s%s%s; `verbena --help` lists them\n",
		two ? asked : argv[0], near ? " (did you mean '" : "", near ? near : "",
		near ? "'?)" : "");
	return VB_EXIT_USAGE;
}

/* A standard stream that is closed would be the next file that is opened, a segment or the JSON perhaps.
 * What takes its place refuses what is written, so that output which is lost is told as lost. */
static void fill_standard_streams(void)
{
	for (int fd = 0; fd <= 2; fd++)
		if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDONLY) != fd)
			_exit(VB_EXIT_FAILED);
}

/* The exit status, if what was printed has arrived.  Whoever reads a pipe may have seen enough. */
static int told(int status)
{
	const bool lost = fflush(stdout) != 0 || ferror(stdout);
	const int why = errno;

	if (!lost || reader_left)
		return status;
	fprintf(stderr,
		"verbena: standard output cannot be written (%s): what was printed is lost\n",
		strerror(why));
	return status == VB_EXIT_OK ? VB_EXIT_FAILED : status;
}

static int dispatch(int argc, char **argv)
{
	if (argc < 2) {
		overview(stderr);
		return VB_EXIT_USAGE;
	}
	if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0) {
		overview(stdout);
		return VB_EXIT_OK;
	}
	if (strcmp(argv[1], "--version") == 0)
		return vb_command_version.run(argc - 2, argv + 2);
	catch_signals();
	for (const struct vb_command *const *c = vb_commands; *c != NULL; c++) {
		int words = words_of(*c, argc - 1, argv + 1);

		if (words > 0)
			return (*c)->run(argc - 1 - words, argv + 1 + words);
	}
	return unknown(argc - 1, argv + 1);
}

int main(int argc, char **argv)
{
	fill_standard_streams();
	/* UCX would take SIGHUP for a wish to debug it. */
	setenv("UCX_DEBUG_SIGNO", "0", 0);
	vb_json_set_argv(argc, argv);
	(void)vb_log_on("bench", VB_LOG_ERROR); /* what is wrong with VERBENA_LOG is said now */
	setvbuf(stdout, NULL, _IOLBF, 0);
	return told(dispatch(argc, argv));
}
