/* SPDX-License-Identifier: Apache-2.0 */
/* Names that somebody may have meant; see opt.h. */
#include "base/opt.h"

#include <string.h>

#define WORD_MAX 64

static unsigned distance(const char *a, const char *b)
{
	unsigned row[WORD_MAX + 1];
	size_t na = strlen(a), nb = strlen(b);

	if (na > WORD_MAX || nb > WORD_MAX)
		return UINT32_MAX;
	for (size_t j = 0; j <= nb; j++)
		row[j] = (unsigned)j;
	for (size_t i = 1; i <= na; i++) {
		unsigned diagonal = row[0];

		row[0] = (unsigned)i;
		for (size_t j = 1; j <= nb; j++) {
			unsigned best = diagonal + (a[i - 1] != b[j - 1]);

			diagonal = row[j];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j - 1] + 1 < best)
				best = row[j - 1] + 1;
			row[j] = best;
		}
	}
	return row[nb];
}

const char *vb_nearest(const char *word, const char *const *names, size_t n)
{
	unsigned best = UINT32_MAX;
	const char *found = NULL;

	for (size_t i = 0; i < n; i++) {
		unsigned d = distance(word, names[i]);

		if (d < best) {
			best = d;
			found = names[i];
		}
	}
	/* More than a third of it wrong is another word. */
	return best <= strlen(word) / 3 + 1 ? found : NULL;
}

char *vb_did_you_mean(char *buf, const char *word, const char *const *names, size_t n)
{
	const char *near = vb_nearest(word, names, n);

	buf[0] = '\0';
	if (near != NULL)
		snprintf(buf, VB_HINT_BYTES, " (did you mean '%s'?)", near);
	return buf;
}

char *vb_did_you_mean_any(char *buf, const char *word, const void *list)
{
	const char *names[64];
	const void *one;
	size_t n = 0;

	for (; n < VB_ARRAY_SIZE(names); n++) {
		memcpy(&one, (const char *)list + n * sizeof(one), sizeof(one));
		if (one == NULL)
			break;
		memcpy(&names[n], one, sizeof(names[n]));
	}
	return vb_did_you_mean(buf, word, names, n);
}
