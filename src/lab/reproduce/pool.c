/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Points in forked worker processes: a simulation is one thread, and there are more cores.  A
 * worker runs one point, writes its JSON into a file that both have open, and ends.
 */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"
#include "lab/bench/engine/progress.h"
#include "lab/run.h"

#define LOOK_EVERY_NS 5000000

struct vb_repro_job *vb_repro_job(struct vb_repro_jobs *jobs, char *options)
{
	struct vb_repro_job *j, **grown;

	if (options == NULL)
		return NULL;
	for (unsigned i = 0; i < jobs->n; i++)
		if (strcmp(jobs->job[i]->options, options) == 0) {
			free(options);
			return jobs->job[i];
		}
	grown = realloc(jobs->job, (jobs->n + 1) * sizeof(*jobs->job));
	jobs->job = grown != NULL ? grown : jobs->job;
	j = grown != NULL ? calloc(1, sizeof(*j)) : NULL;
	if (j == NULL) {
		free(options);
		return NULL;
	}
	j->options = options;
	j->fd = -1;
	jobs->job[jobs->n++] = j;
	return j;
}

static void fail(struct vb_repro_job *j, const char *why)
{
	j->why = strdup(why);
	j->state = VB_JOB_DONE;
}

static VB_NORETURN void worker(const struct vb_repro_job *j, pid_t parent)
{
	json_t *run;
	int err;

	vb_bench_child(parent);
	run = vb_repro_run(j->options);
	err = json_dumpfd(run, j->fd, JSON_COMPACT | JSON_REAL_PRECISION(10));
	_exit(err == 0 ? VB_EXIT_OK : VB_EXIT_FAILED);
}

static void start(struct vb_repro_job *j)
{
	pid_t parent = getpid();
	char *why = vb_repro_cannot(j->options);

	if (why != NULL) {
		fail(j, why);
		free(why);
		return;
	}
	j->fd = memfd_create("point", MFD_CLOEXEC);
	fflush(NULL);
	j->pid = j->fd < 0 ? -1 : fork();
	if (j->pid == 0)
		worker(j, parent);
	if (j->pid < 0) {
		fail(j, strerror(errno));
		return;
	}
	j->state = VB_JOB_RUNS;
}

static void take(struct vb_repro_job *j, int status)
{
	const char *why;
	char text[64];

	j->state = VB_JOB_DONE;
	if (WIFSIGNALED(status)) {
		snprintf(text, sizeof(text), "its worker ended with signal %d", WTERMSIG(status));
		j->broke = !vb_interrupted;
		fail(j, vb_interrupted ? "interrupted" : text);
	} else if (lseek(j->fd, 0, SEEK_SET) == 0) {
		j->run = json_loadfd(j->fd, 0, NULL);
	}
	close(j->fd);
	j->fd = -1;
	why = json_string_value(json_object_get(j->run, "why"));
	if (why != NULL || j->run == NULL) {
		j->broke |= why == NULL && !vb_interrupted;
		if (j->why == NULL)
			fail(j, why != NULL ? why : "its worker left no result");
		json_decref(j->run);
		j->run = NULL;
	}
}

/* Takes those that have ended; how many still run. */
static unsigned reap(struct vb_repro_jobs *jobs)
{
	unsigned running = 0;

	for (unsigned i = 0; i < jobs->n; i++) {
		struct vb_repro_job *j = jobs->job[i];
		int status;

		if (j->state != VB_JOB_RUNS)
			continue;
		if (waitpid(j->pid, &status, WNOHANG) == 0)
			running++;
		else
			take(j, status);
	}
	return running;
}

static void show(const struct vb_repro_jobs *jobs, const char *name)
{
	static unsigned last;
	unsigned done = 0;

	for (unsigned i = 0; i < jobs->n; i++)
		done += jobs->job[i]->state == VB_JOB_DONE;
	if (!vb_bench_progress.on || done == last)
		return;
	last = done;
	fprintf(stderr, "\r\033[K%s: %u of %u runs", name, done, jobs->n);
	fflush(stderr);
}

/* The workers ignore the terminal's Ctrl-C, and a point that is half done is worth nothing. */
static void stop(struct vb_repro_jobs *jobs)
{
	for (unsigned i = 0; i < jobs->n; i++) {
		struct vb_repro_job *j = jobs->job[i];
		int status;

		if (j->state == VB_JOB_RUNS) {
			kill(j->pid, SIGKILL);
			if (waitpid(j->pid, &status, 0) == j->pid)
				take(j, status);
		} else if (j->state == VB_JOB_WAITS) {
			fail(j, "interrupted");
		}
	}
}

void vb_repro_pool(struct vb_repro_jobs *jobs, unsigned at_once, const char *name)
{
	const struct timespec nap = {.tv_nsec = LOOK_EVERY_NS};
	unsigned next = 0, running;

	do {
		running = reap(jobs);
		for (; next < jobs->n && running < at_once; next++) {
			if (jobs->job[next]->state != VB_JOB_WAITS)
				continue;
			start(jobs->job[next]);
			running += jobs->job[next]->state == VB_JOB_RUNS;
		}
		show(jobs, name);
		if (running > 0)
			nanosleep(&nap, NULL);
	} while ((running > 0 || next < jobs->n) && !vb_interrupted);
	if (vb_interrupted)
		stop(jobs);
	vb_bench_progress_clear();
}

void vb_repro_jobs_free(struct vb_repro_jobs *jobs)
{
	for (unsigned i = 0; i < jobs->n; i++) {
		json_decref(jobs->job[i]->run);
		free(jobs->job[i]->why);
		free(jobs->job[i]->options);
		free(jobs->job[i]);
	}
	free(jobs->job);
	*jobs = (struct vb_repro_jobs){0};
}
