/* SPDX-License-Identifier: Apache-2.0 */
/* The end of forked processes that work together: one that is killed or stopped ends all. */
#ifndef VB_LAB_REAP_H
#define VB_LAB_REAP_H

#include <stdint.h>
#include <sys/types.h>

#define VB_REAP_STOPPED_NS 5000000000ull /* a process that stands still for longer ends the run */

/*
 * Waits until n children of this process have ended, and sets each of pids[] to 0 (entries of 0 or less
 * are none).  As soon as one is killed, fails, or has been stopped for VB_REAP_STOPPED_NS, the others
 * are killed: they could wait for it for ever.
 *
 *   0              all have ended well, or the user has interrupted this run
 *   -VB_EPEERGONE  one was killed or stopped; the log names it, with `what` it was
 *   -ECHILD        one has failed, and has said why itself
 */
int vb_reap(pid_t pids[], unsigned n, const char *what);

/* What children look at to learn that they should end: *flag becomes 1 at at_ns (vb_clock_gettime_ns), or as
 * soon as the user interrupts; set_ns is when that was. */
struct vb_reap_stop {
	uint32_t *flag;
	uint64_t at_ns, set_ns;
};
int vb_reap_stop(pid_t pids[], unsigned n, const char *what, struct vb_reap_stop *stop);

#endif
