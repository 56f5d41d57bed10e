/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Is a process alive?  A pid alone does not say: it may have been given to another process, and a
 * killed child that nobody has waited for still answers to signal 0.  /proc knows both.
 */
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "fabric/shm/inner.h"

#define FIELD_THREADS 20 /* as numbered by proc(5) */
#define FIELD_START   22

/* False if there is no such process, or it has ended and waits for its parent.  *start stays 0
 * where it cannot be known: no /proc, no descriptor left. */
static bool process_start(pid_t pid, uint64_t *start)
{
	char path[48], text[1024], *at;
	unsigned long long threads = 0;
	char state;
	ssize_t n;
	int fd;

	*start = 0;
	/* Its first thread's file, which says the same: of the other qemu-user shows a program what it makes
	 * up, in which a forked child has its parent's start. */
	snprintf(path, sizeof(path), "/proc/%d/task/%d/stat", (int)pid, (int)pid);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		return kill(pid, 0) == 0 || errno == EPERM;
	n = read(fd, text, sizeof(text) - 1);
	close(fd);
	if (n <= 0)
		return false; /* it ended between open and read */
	text[n] = '\0';
	at = strrchr(text, ')'); /* the name before it may contain anything */
	if (at == NULL || at[1] == '\0')
		return false;
	at += 2;
	state = *at;
	for (unsigned field = 3; field < FIELD_START; field++) {
		if (field == FIELD_THREADS)
			threads = strtoull(at, NULL, 10);
		at = strchr(at, ' ');
		if (at == NULL)
			return false;
		at++;
	}
	*start = strtoull(at, NULL, 10) & UINT32_MAX;
	/* A process whose first thread has ended shows as Z while its other threads run. */
	return (state != 'Z' && state != 'X') || threads > 1;
}

static shm_process self; /* 0: not yet known; written by whoever asks first, always the same */

/* A forked child is somebody else, also if it never tells a fabric. */
static void forget(void)
{
	__atomic_store_n(&self, 0, __ATOMIC_RELAXED);
}

__attribute__((constructor)) static void forget_after_fork(void)
{
	(void)pthread_atfork(NULL, NULL, forget);
}

uint64_t vb_process_self(void)
{
	shm_process p = __atomic_load_n(&self, __ATOMIC_RELAXED);
	uint64_t start;

	if (p == 0) {
		(void)process_start(getpid(), &start);
		p = (uint64_t)getpid() << 32 | start;
		__atomic_store_n(&self, p, __ATOMIC_RELAXED);
	}
	return p;
}

/* Takes somebody for dead only if that is certain: whoever does so wrongly breaks a ring. */
bool vb_process_alive(uint64_t p)
{
	uint64_t start, meant = p & UINT32_MAX;

	if (p == 0)
		return false;
	if (p == vb_process_self())
		return true;
	return process_start((pid_t)(p >> 32), &start) &&
	       (start == meant || start == 0 || meant == 0);
}
