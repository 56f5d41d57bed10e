/* SPDX-License-Identifier: Apache-2.0 */
/* What the parts of `verbena doctor` share. */
#ifndef VB_LAB_DOCTOR_INNER_H
#define VB_LAB_DOCTOR_INNER_H

#include <stdbool.h>
#include <stdio.h>

#include "base/compiler.h"
#include "lab/host.h"

enum doctor_verdict {
	DOCTOR_OK,
	DOCTOR_WARN,
	DOCTOR_FAIL,
	DOCTOR_NONE, /* not there, and nobody has asked for it */
	DOCTOR_VERDICTS
};

struct doctor {
	FILE *to;
	struct vb_host host;
	const char *need;  /* fabrics that have to work: "verbs,ucx"; NULL: none */
	const char *verbs; /* options of the fabric `verbs`; NULL: none */
	unsigned count[DOCTOR_VERDICTS];
};

/* Prints and counts one line.  What is neither OK nor NONE ends with what mends it. */
void doctor_say(struct doctor *d, enum doctor_verdict v, const char *what, const char *fmt, ...)
	VB_PRINTF(4, 5);

/* The next fabric of the list *rest, which it moves on; its length, 0 at the end. */
size_t doctor_next_name(const char **rest, const char **name);

/* The verdict on a fabric that is not there: DOCTOR_FAIL if it is needed, else DOCTOR_NONE. */
enum doctor_verdict doctor_absent(const struct doctor *d, const char *fabric);

/* Opens the fabric with these options (NULL: defaults) and runs one of each kind of verb. */
void doctor_fabric(struct doctor *d, const char *label, const char *fabric, const char *options);

/* RDMA: library, kernel, devices, ports and GIDs, limits, a READ and a FAA through each port, and
 * how long each repeats what nobody answers. */
void doctor_rdma(struct doctor *d);
/* UCX and its transports, a READ and a FAA over TCP; PMIx. */
void doctor_ucx(struct doctor *d);

#endif
