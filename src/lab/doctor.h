/* SPDX-License-Identifier: Apache-2.0 */
/* verbena doctor: is this machine fit for it, and if not, what mends it? */
#ifndef VB_LAB_DOCTOR_H
#define VB_LAB_DOCTOR_H

#include <stdio.h>

/* Prints one line for each check: "ok", "warn" or "fail", what was found and, unless it is ok, what to
 * do.  Returns an enum vb_exit: VB_EXIT_FAILED if anything failed, else VB_EXIT_OK. */
int vb_doctor(FILE *to);

#endif
