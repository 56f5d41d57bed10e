/* SPDX-License-Identifier: Apache-2.0 */
/* A process that is forked for a run: see process.h. */
#include "lab/bench/engine/process.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lab/bench/engine/progress.h"
#include "lab/run.h"

void vb_bench_child(pid_t parent)
{
	/* The terminal's Ctrl-C reaches us too, and what timeout(1) or a service manager sends to all of us: the parent
	 * decides what it means. */
	signal(SIGINT, SIG_IGN);
	signal(SIGHUP, SIG_IGN);
	signal(SIGTERM, SIG_IGN);
	signal(SIGPIPE, SIG_DFL);
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(VB_EXIT_FAILED);
	vb_bench_progress.on = false;
}

void *vb_bench_share(size_t bytes)
{
	void *shared = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return shared != MAP_FAILED ? shared : NULL;
}

void vb_bench_unshare(void *shared, size_t bytes)
{
	if (shared != NULL)
		munmap(shared, bytes);
}
