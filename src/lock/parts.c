/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What of a lock space lies on a node, each as a region of its own: who makes one names it here, and who removes the
 * space knows it by that name.  A space's name may have any characters, a colon among them: so a number is digits to
 * the end, behind a colon, and a region that has none is no numbered one.
 */
#include <stdio.h>
#include <string.h>

#include "lock/lock.h"

static const struct {
	const char *begin;
	bool numbered;
} parts[] = {
	[VB_LOCK_LOCKS] = {"lock:", false},      /* space.c */
	[VB_LOCK_NAMES] = {"name:", false},      /* names.c */
	[VB_LOCK_BOARD] = {"board:", false},     /* board.c */
	[VB_LOCK_ANSWERS] = {"answers:", false}, /* table/mail.c */
	[VB_LOCK_PLACES] = {"names:", true},     /* shiftlock/names.c */
};

const char *vb_lock_part_begin(enum vb_lock_part part)
{
	return parts[part].begin;
}

void vb_lock_part_region(enum vb_lock_part part, const char *space, unsigned number,
			 char to[static VB_LOCK_REGION])
{
	int n = snprintf(to, VB_LOCK_REGION, "%s%.60s", parts[part].begin, space);

	if (parts[part].numbered)
		snprintf(to + n, VB_LOCK_REGION - (size_t)n, ":%u", number);
}

static bool is_number(const char *text)
{
	return text[0] == ':' && text[1] != '\0' &&
	       text[1 + strspn(text + 1, "0123456789")] == '\0';
}

bool vb_lock_part_is(const char *region, const char *space)
{
	size_t n = strlen(space);

	for (size_t i = 0; i < VB_ARRAY_SIZE(parts); i++) {
		size_t begin = strlen(parts[i].begin);
		const char *rest = region + begin + n;

		if (strncmp(region, parts[i].begin, begin) == 0 &&
		    strncmp(region + begin, space, n) == 0 &&
		    (parts[i].numbered ? is_number(rest) : *rest == '\0'))
			return true;
	}
	return false;
}
