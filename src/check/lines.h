/* SPDX-License-Identifier: Apache-2.0 */
/*
 * JSON lines that may come from anybody: one object a line, every field of which is looked at, and
 * an error names its line.  Fields that nobody knows are refused: one that is misspelt would
 * otherwise be taken for absent.
 */
#ifndef VB_CHECK_LINES_H
#define VB_CHECK_LINES_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct vb_lines {
	FILE *from;
	const char *name; /* of the file, for errors */
	uint64_t line;
	uint32_t op;    /* the operation that is looked at, from 1; 0: the line as a whole */
	json_t *object; /* of the line, until the next */
	char *text;
	size_t room;
	bool again;
};

void vb_lines_open(struct vb_lines *l, FILE *from, const char *name);
void vb_lines_close(struct vb_lines *l);
/* The next line that is not empty, as l->object.  1: there is one, 0: there is none, -EINVAL,
 * -EIO: said. */
int vb_lines_next(struct vb_lines *l);
/* vb_lines_next gives this line once more. */
void vb_lines_again(struct vb_lines *l);

/* "FILE, line 3: the field 'key' of operation 2 WHAT"; -EINVAL. */
int vb_lines_bad(const struct vb_lines *l, const char *field, const char *what);
/* Does the object have other fields than these?  The list ends with NULL. */
int vb_lines_known(const struct vb_lines *l, json_t *o, const char *const *known);
/* A whole number up to `max`, or a string of its digits.  Without `init`, it must be there. */
int vb_lines_number(const struct vb_lines *l, const json_t *o, const char *field, uint64_t max,
		    const uint64_t *init, uint64_t *out);
/* One of these words; *out is its number. */
int vb_lines_word(const struct vb_lines *l, const json_t *o, const char *field,
		  const char *const *words, unsigned n, uint8_t *out);
/* True or false; false if it is missing. */
int vb_lines_truth(const struct vb_lines *l, const json_t *o, const char *field, bool *out);

/* "NAME":N, with N in quotes where a double would not hold it. */
void vb_lines_put_number(FILE *to, const char *name, uint64_t n);

#endif
