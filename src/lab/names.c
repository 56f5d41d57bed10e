/* SPDX-License-Identifier: Apache-2.0 */
/* See names.h.  Levenshtein distance, one row at a time. */
#include "lab/names.h"

#include <string.h>

#include "base/compiler.h"

#define WORD_MAX 63

static size_t distance(const char *a, const char *b)
{
	size_t la = strlen(a), lb = strlen(b);
	size_t row[WORD_MAX + 1];

	if (la > WORD_MAX || lb > WORD_MAX)
		return SIZE_MAX;
	for (size_t j = 0; j <= lb; j++)
		row[j] = j;
	for (size_t i = 1; i <= la; i++) {
		size_t corner = row[0];

		row[0] = i;
		for (size_t j = 1; j <= lb; j++) {
			size_t best = corner + (a[i - 1] != b[j - 1]);

			corner = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[lb];
}

void vb_nearest_begin(struct vb_nearest *n, const char *word)
{
	/* More than a third wrong (and more than two letters) is another word, not a slip. */
	size_t bound = strlen(word) / 3;

	*n = (struct vb_nearest){.word = word, .distance = (bound > 2 ? bound : 2) + 1};
}

void vb_nearest_offer(struct vb_nearest *n, const char *name)
{
	size_t d = distance(n->word, name);

	/* A beginning of the name counts as one slip: "shift" for "shiftlock". */
	if (d > 1 && n->word[0] != '\0' && strncmp(n->word, name, strlen(n->word)) == 0)
		d = 1;
	if (d < n->distance) {
		n->distance = d;
		n->best = name;
	}
}
