/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What else the machine did while something was measured on it: whether times can be trusted, and
 * why grants ran out.
 *
 * The load average of a minute says little of a run of seconds.  So the kernel's own account of
 * the run itself is taken beside it: the time that CPUs were busy for others than us, that a
 * hypervisor kept from us, and that somebody who could have run had to wait.
 */
#ifndef VB_LAB_BUSY_H
#define VB_LAB_BUSY_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* Counters at one moment, since the machine started; ours since we did. */
struct vb_busy_point {
	double load1;       /* runnable threads, mean of the last minute */
	uint64_t wall_ns;   /* CLOCK_MONOTONIC */
	uint64_t busy_ns;   /* of all CPUs, ours among it */
	uint64_t steal_ns;  /* kept by the hypervisor; of all CPUs */
	uint64_t own_ns;    /* CPU time of this process and of the children it has waited for */
	uint64_t queued_ns; /* that at least one runnable thread waited for a CPU; 0: not known */
};

/* Between two moments. */
struct vb_busy {
	bool known;        /* false: nothing was measured on a real machine */
	unsigned cores;    /* online */
	double begin, end; /* the load average */
	double others; /* CPUs' time spent for others, of all their time: 0 to 1; < 0: not known */
	double steal;  /* the same, kept by the hypervisor */
	double queued; /* of the time, with somebody waiting for a CPU; < 0: not known */
};

void vb_busy_look(struct vb_busy_point *p);
struct vb_busy vb_busy_between(const struct vb_busy_point *begin, const struct vb_busy_point *end,
			       unsigned cores);
/* From a look until now.  group: the measured have processes that are not our children, so that who
 * used the CPUs cannot be told. */
struct vb_busy vb_busy_since(const struct vb_busy_point *begin, bool group);

/* Threads had to wait for a CPU: times are the machine's as much as what was to be measured, and a
 * lease may have ended while its holder was ready to run. */
bool vb_busy_is_heavy(const struct vb_busy *l);
/* "load 15 on 2 cores, 61% of their time for others".  Returns buf. */
const char *vb_busy_text(const struct vb_busy *l, char *buf, unsigned size);
/* null where it is not known. */
json_t *vb_busy_json(const struct vb_busy *l);

#endif
