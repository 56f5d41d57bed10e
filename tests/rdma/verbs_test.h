/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the tests of the fabric `verbs` share: which devices to use, and skipping where there is
 * none.  VERBENA_VERBS_DEVICE names the first process's device (default: what the fabric chooses),
 * VERBENA_VERBS_DEVICE2 the others' (default: the same).
 */
#ifndef VERBS_TEST_H
#define VERBS_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "fabric/fabric.h"
#include "fabric/verbs/lib.h"

static inline const char *verbs_test_device(unsigned i)
{
	const char *first = getenv("VERBENA_VERBS_DEVICE"),
		   *second = getenv("VERBENA_VERBS_DEVICE2");

	return i > 0 && second != NULL ? second : first;
}

/* "device=rxe0,more", with `pair` "device=rxe0+rxe1,more"; valid until the next call. */
static inline const char *verbs_test_options(bool pair, const char *more)
{
	static char text[256];
	const char *device = verbs_test_device(0), *second = verbs_test_device(1);
	int n = 0;

	text[0] = '\0';
	if (device != NULL)
		n = snprintf(text, sizeof(text), "device=%s%s%s%s", device, pair ? "+" : "",
			     pair ? second : "", more[0] != '\0' ? "," : "");
	snprintf(text + n, sizeof(text) - (size_t)n, "%s", more);
	return text;
}

/* Ends the test as skipped where no device is; one that was named must be there. */
static inline void verbs_test_need_device(void)
{
	const char *why = verbs_absent();

	if (why == NULL || getenv("VERBENA_VERBS_DEVICE") != NULL)
		return;
	print_message("%s\n", why);
	skip();
}

#endif
