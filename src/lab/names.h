/* SPDX-License-Identifier: Apache-2.0 */
/* "Did you mean ...": the nearest of a set of names, by edit distance. */
#ifndef VB_LAB_NAMES_H
#define VB_LAB_NAMES_H

#include <stddef.h>

struct vb_nearest {
	const char *word;
	const char *best; /* NULL: nothing is near enough to be worth naming */
	size_t distance;
};

/* Words longer than 63 characters are near to nothing. */
void vb_nearest_begin(struct vb_nearest *n, const char *word);
void vb_nearest_offer(struct vb_nearest *n, const char *name);

#endif
