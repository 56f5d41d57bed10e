/* SPDX-License-Identifier: Apache-2.0 */
/* How a run ends: with an exit code that says what came of it, or early when its user wants
 * that. */
#ifndef VB_LAB_RUN_H
#define VB_LAB_RUN_H

#include <stdbool.h>

/* Exit codes; documented in verbena(1). */
enum vb_exit {
	VB_EXIT_OK = 0,
	VB_EXIT_FAILED = 1,    /* something went wrong while running */
	VB_EXIT_USAGE = 2,     /* bad input: nothing was run */
	VB_EXIT_VIOLATION = 3, /* a checker found a violation */
	VB_EXIT_STALLED = 4,   /* a lock without recovery was lost with its holder; results stand */
	VB_EXIT_BUSY = 5,      /* the resource is in use: a segment name, for example */
	VB_EXIT_RESOURCES = 6, /* does not fit in memory or on disk */
	VB_EXIT_STALE = 7,     /* a server that is not to begin again by itself: -ESTALE */
	VB_EXIT_INTERRUPTED = 130, /* stopped by SIGINT or SIGTERM; what was measured is reported */
};

/* A library error as an exit code: -EBUSY is VB_EXIT_BUSY, and so on. */
int vb_exit_of(int err);

/* Set by SIGINT and SIGTERM; drivers look at it and end early with what they have. */
extern volatile bool vb_interrupted;
/* Not NULL: SIGINT, SIGTERM and SIGHUP end the process at once, with status 0, and unlink this file ("": none).  For
 * who waits for what does not look at vb_interrupted, and has nothing yet that had to be taken down. */
extern const char *volatile vb_interrupt_unlinks;
/* Set by SIGUSR1: whoever runs is asked what goes on (bench lock --visible on a network). */
extern volatile bool vb_look_wanted;

#endif
