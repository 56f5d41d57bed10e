/* SPDX-License-Identifier: Apache-2.0 */
/* See reap.h. */
#include "lab/reap.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>

#include <verbena/verbena.h>

#define VB_LOG_ROOM "lab"
#include "base/clock.h"
#include "base/log.h"
#include "lab/run.h"

#define LOOK_NS   2000000
#define PIDS_MOST 256u

/* What became of a child: 0 nothing yet, 1 it has ended well, or why all must end.  `ending`: one of
 * them is the reason already, and the others were killed for it. */
static int look_at(pid_t pid, uint64_t *stopped_ns, bool ending, const char *what)
{
	int status = 0;
	pid_t got = waitpid(pid, &status, WNOHANG | WUNTRACED | WCONTINUED);

	if (got < 0 && errno != EINTR)
		return 1; /* somebody else has reaped it */
	if (got == pid && WIFEXITED(status))
		return WEXITSTATUS(status) == 0 ? 1 : -ECHILD;
	if (ending)
		return got == pid && WIFSIGNALED(status);
	if (got == pid && WIFSIGNALED(status)) {
		if (vb_interrupted)
			return -EINTR;
		return vb_fail(-VB_EPEERGONE, "process %d (%s) was killed by signal %d (%s)", pid,
			       what, WTERMSIG(status), strsignal(WTERMSIG(status)));
	}
	if (got == pid)
		*stopped_ns = WIFSTOPPED(status) ? vb_clock_gettime_ns() : 0;
	if (*stopped_ns != 0 && vb_clock_gettime_ns() - *stopped_ns > VB_REAP_STOPPED_NS)
		return vb_fail(
			-VB_EPEERGONE,
			"process %d (%s) has been stopped for %d s: its run is over; do not stop "
			"(SIGSTOP, a debugger) what is measured",
			pid, what, (int)(VB_REAP_STOPPED_NS / 1000000000));
	return 0;
}

static void look_at_clock(struct vb_reap_stop *stop)
{
	uint64_t now = vb_clock_gettime_ns();

	if (stop == NULL || stop->set_ns != 0 || (now < stop->at_ns && !vb_interrupted))
		return;
	stop->set_ns = now;
	__atomic_store_n(stop->flag, 1, __ATOMIC_RELEASE);
}

int vb_reap(pid_t pids[], unsigned n, const char *what)
{
	return vb_reap_stop(pids, n, what, NULL);
}

int vb_reap_stop(pid_t pids[], unsigned n, const char *what, struct vb_reap_stop *stop)
{
	const struct timespec nap = {.tv_nsec = LOOK_NS};
	uint64_t stopped_ns[PIDS_MOST] = {0};
	unsigned left = 0;
	int err = 0;

	vb_assert(n <= PIDS_MOST);
	for (unsigned i = 0; i < n; i++)
		left += pids[i] > 0;
	while (left > 0) {
		look_at_clock(stop);
		for (unsigned i = 0; i < n; i++) {
			int end =
				pids[i] > 0 ? look_at(pids[i], &stopped_ns[i], err != 0, what) : 0;

			if (end == 0)
				continue;
			if (end == -VB_EPEERGONE && kill(pids[i], SIGKILL) == 0)
				waitpid(pids[i], NULL, 0); /* it may only be stopped */
			pids[i] = 0;
			left--;
			if (end > 0 || err != 0)
				continue;
			err = end;
			for (unsigned k = 0; k < n; k++)
				if (pids[k] > 0)
					kill(pids[k], SIGKILL);
		}
		if (left > 0)
			nanosleep(&nap, NULL);
	}
	return err == -EINTR ? 0 : err;
}
