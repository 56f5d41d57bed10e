/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Only in builds with gcc's counters (b_coverage), where _exit, abort and kill are these (meson.build): a
 * process that leaves by _exit, abort or SIGKILL writes what it has counted before it does.  What is
 * killed from outside our own C, by a shell or the kernel, still counts for nothing.
 */
#undef _exit
#undef abort
#undef kill

#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

void vb_counted_exit(int status) __attribute__((noreturn));
void vb_counted_abort(void) __attribute__((noreturn));
int vb_counted_kill(pid_t pid, int sig);

/* Of libgcov. */
void __gcov_dump(void);

/* Who is to be killed by another is asked by this first to write what it has counted.  One that is just
 * in the allocator cannot, and is killed all the same. */
#define SIG_WRITE (SIGRTMAX - 3)
#define WRITES_MS 1000

void vb_counted_exit(int status)
{
	__gcov_dump();
	_exit(status);
}

void vb_counted_abort(void)
{
	__gcov_dump();
	abort();
}

static void on_write(int sig)
{
	__gcov_dump();
	kill(getpid(), SIGKILL);
}

/* Its tasks' stacks may be small. */
__attribute__((constructor)) static void listen_for_it(void)
{
	static uint8_t stack[65536];
	const stack_t other = {.ss_sp = stack, .ss_size = sizeof(stack)};
	struct sigaction a = {.sa_handler = on_write, .sa_flags = SA_ONSTACK};

	sigfillset(&a.sa_mask);
	sigaltstack(&other, NULL);
	sigaction(SIG_WRITE, &a, NULL);
}

/* As in /proc: R, S, T, Z ...; 0: there is none. */
static char state_of(pid_t pid)
{
	char path[40], text[256];
	ssize_t n;
	int fd;

	snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return 0;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	text[n > 0 ? n : 0] = '\0';
	const char *end = strrchr(text, ')');
	return end != NULL && end[1] == ' ' ? end[2] : 0;
}

int vb_counted_kill(pid_t pid, int sig)
{
	const struct timespec nap = {.tv_nsec = 1000000};
	char state;

	if (sig != SIGKILL || pid <= 0)
		return kill(pid, sig);
	if (pid == getpid())
		__gcov_dump();
	else if (kill(pid, SIG_WRITE) == 0)
		for (int ms = 0; ms < WRITES_MS; ms++) {
			state = state_of(pid);
			if (state == 'Z' || state == 0)
				break;
			if (state == 'T')
				kill(pid, SIGCONT);
			nanosleep(&nap, NULL);
		}
	return kill(pid, SIGKILL);
}
