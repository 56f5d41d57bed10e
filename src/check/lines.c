/* SPDX-License-Identifier: Apache-2.0 */
/* JSON lines: see lines.h. */
#define VB_LOG_ROOM "check"
#include "check/lines.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>

#include "base/log.h"

/* Readers of JSON that hold numbers as doubles have them exactly up to here; larger ones are
 * strings. */
#define EXACT_MAX ((1ull << 53) - 1)

void vb_lines_open(struct vb_lines *l, FILE *from, const char *name)
{
	*l = (struct vb_lines){.from = from, .name = name};
}

void vb_lines_close(struct vb_lines *l)
{
	json_decref(l->object);
	free(l->text);
}

static int parse(struct vb_lines *l, size_t length)
{
	json_error_t why;

	l->object = json_loadb(l->text, length, JSON_REJECT_DUPLICATES, &why);
	if (l->object == NULL)
		return vb_fail(-EINVAL, "%s, line %" PRIu64 ", column %d is no JSON: %s", l->name,
			       l->line, why.column, why.text);
	if (!json_is_object(l->object))
		return vb_fail(-EINVAL, "%s, line %" PRIu64 " is no object", l->name, l->line);
	return 1;
}

int vb_lines_next(struct vb_lines *l)
{
	ssize_t length;

	if (l->again) {
		l->again = false;
		return 1;
	}
	json_decref(l->object);
	l->object = NULL;
	l->op = 0;
	while ((length = getline(&l->text, &l->room, l->from)) >= 0) {
		l->line++;
		/* Or a column at the end would be counted in the next line. */
		while (length > 0 && strchr(" \t\r\n", l->text[length - 1]) != NULL)
			length--;
		if (length > 0)
			return parse(l, (size_t)length);
	}
	if (ferror(l->from))
		return vb_fail(-EIO, "cannot read %s after line %" PRIu64, l->name, l->line);
	return 0;
}

void vb_lines_again(struct vb_lines *l)
{
	l->again = l->object != NULL;
}

int vb_lines_bad(const struct vb_lines *l, const char *field, const char *what)
{
	char op[32] = "";

	if (l->op > 0)
		snprintf(op, sizeof(op), " of operation %u", l->op);
	return vb_fail(-EINVAL, "%s, line %" PRIu64 ": the field '%s'%s %s", l->name, l->line,
		       field, op, what);
}

int vb_lines_known(const struct vb_lines *l, json_t *o, const char *const *known)
{
	const char *field;
	json_t *value;

	json_object_foreach(o, field, value)
	{
		const char *const *k = known;

		while (*k != NULL && strcmp(*k, field) != 0)
			k++;
		if (*k == NULL)
			return vb_lines_bad(l, field,
					    "is not known; doc/histories.md has them all");
	}
	return 0;
}

static bool parse_digits(const char *s, uint64_t *out)
{
	char *end;

	if (*s < '0' || *s > '9')
		return false;
	errno = 0;
	*out = strtoull(s, &end, 10);
	return errno == 0 && *end == '\0';
}

int vb_lines_number(const struct vb_lines *l, const json_t *o, const char *field, uint64_t max,
		    const uint64_t *init, uint64_t *out)
{
	const json_t *j = json_object_get(o, field);
	char what[64];

	if (j == NULL && init != NULL) {
		*out = *init;
		return 0;
	}
	if (j == NULL)
		return vb_lines_bad(l, field, "is missing");
	if (json_is_integer(j) && json_integer_value(j) >= 0)
		*out = (uint64_t)json_integer_value(j);
	else if (!json_is_string(j) || !parse_digits(json_string_value(j), out))
		return vb_lines_bad(l, field, "must be a whole number, or a string of digits");
	if (*out <= max)
		return 0;
	snprintf(what, sizeof(what), "must not be above %" PRIu64, max);
	return vb_lines_bad(l, field, what);
}

int vb_lines_word(const struct vb_lines *l, const json_t *o, const char *field,
		  const char *const *words, unsigned n, uint8_t *out)
{
	const json_t *j = json_object_get(o, field);
	char what[160] = "must be one of:";

	if (j == NULL)
		return vb_lines_bad(l, field, "is missing");
	for (unsigned i = 0; i < n; i++) {
		size_t used = strlen(what);

		if (json_is_string(j) && strcmp(json_string_value(j), words[i]) == 0) {
			*out = (uint8_t)i;
			return 0;
		}
		snprintf(what + used, sizeof(what) - used, " \"%s\"", words[i]);
	}
	return vb_lines_bad(l, field, what);
}

int vb_lines_truth(const struct vb_lines *l, const json_t *o, const char *field, bool *out)
{
	const json_t *j = json_object_get(o, field);

	if (j != NULL && !json_is_boolean(j))
		return vb_lines_bad(l, field, "must be true or false");
	*out = j != NULL && json_is_true(j);
	return 0;
}

void vb_lines_put_number(FILE *to, const char *name, uint64_t n)
{
	const char *quote = n > EXACT_MAX ? "\"" : "";

	fprintf(to, "\"%s\":%s%" PRIu64 "%s", name, quote, n, quote);
}
