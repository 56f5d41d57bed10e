/* SPDX-License-Identifier: Apache-2.0 */
/* verbena doctor: is this machine fit for it, and if not, what mends it? */
#ifndef VB_LAB_DOCTOR_DOCTOR_H
#define VB_LAB_DOCTOR_DOCTOR_H

#include <stdio.h>

struct vb_opt_group;

struct vb_doctor_opts {
	const char *need;  /* fabrics that have to work: "verbs,ucx"; NULL: none */
	const char *verbs; /* options of the fabric `verbs` to try it with; NULL: none */
};

const struct vb_opt_group *vb_doctor_groups(struct vb_doctor_opts *opts, unsigned *n);

/* Prints one line for each check: "ok", "warn", "fail", or "none" for what is absent and not
 * needed; what was found and, unless it is ok, what to do.  Returns an enum vb_exit: VB_EXIT_FAILED
 * if anything failed, VB_EXIT_USAGE if `need` names no fabric, else VB_EXIT_OK. */
int vb_doctor(FILE *to, const struct vb_doctor_opts *opts);

#endif
