/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Results as JSON files: the head that every result has, and a file that is there whole or not at all.
 *
 * A run may take minutes, so the path is tried before it starts: vb_json_out_open makes the
 * temporary file beside it; commit writes, syncs and renames.  An earlier result of the same name
 * stays until then.  What is not a regular file (a pipe, /dev/stdout) is written in place, and "-"
 * is stdout.
 */
#ifndef VB_LAB_JSON_H
#define VB_LAB_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/hist.h"
#include "base/opt.h"

struct vb_json_out {
	const char *path; /* NULL: no JSON is wanted, the calls below do nothing */
	char *temp;       /* NULL: written in place */
	int fd;
};

/* The whole command line, for the head; kept as a copy of the pointers. */
void vb_json_set_argv(int argc, char **argv);

/* path may be NULL.  -errno, said in one line. */
int vb_json_out_open(struct vb_json_out *o, const char *path);
/* Writes root and closes; does not drop the reference.  -errno, said; then no file is left. */
int vb_json_out_commit(struct vb_json_out *o, const json_t *root);
/* The same for what others have written to o->fd; err: whether they could. */
int vb_json_out_finish(struct vb_json_out *o, int err);
/* What is no JSON: a stream into o->fd, and its end.  err: of who wrote, who has said it.  -errno, said;
 * then no file is left. */
int vb_json_out_stream(struct vb_json_out *o, FILE **to);
/* Opens, and the stream. */
int vb_json_out_begin(struct vb_json_out *o, const char *path, FILE **to);
int vb_json_out_end(struct vb_json_out *o, FILE *to, int err);
/* Closes and leaves nothing behind; harmless after a commit. */
void vb_json_out_abandon(struct vb_json_out *o);

/* {"schema":1,"tool":...,"version":...,"commit":...,"argv":[...],"seed":...,"host":{...}} */
json_t *vb_json_head(uint64_t seed);

/* Adds a member to an object; what it is in C says which kind it becomes there. */
/* clang-format off */
#define vb_json_set(object, name, value)                                                           \
	json_object_set_new(object, name, _Generic((value),                                        \
		uint64_t: vb_json_word, uint32_t: vb_json_word, double: json_real,                 \
		bool: vb_json_bool, char *: vb_json_text, const char *: vb_json_text,              \
		json_t *: vb_json_itself)(value))
/* clang-format on */

/* A string that may not be UTF-8: bytes that JSON cannot carry become '?'.  NULL: null. */
json_t *vb_json_text(const char *s);
json_t *vb_json_word(uint64_t n);
/* Nanoseconds as microseconds. */
json_t *vb_json_us(double ns);
json_t *vb_json_bool(bool is);
json_t *vb_json_itself(json_t *value);
/* num / den, 0 where there is nothing to divide by. */
json_t *vb_json_ratio(double num, double den);
/* {"count":..., "mean", "min", "p50", "p90", "p99", "p99.9", "max"}: of nanoseconds, in us. */
json_t *vb_json_hist(const struct vb_hist *h);
/* The same of n of them together. */
json_t *vb_json_hist_of(const struct vb_hist *parts, unsigned n);
/* {NAME: word, ...}: those numbered `from` up to `to`. */
json_t *vb_json_words(const char *const *names, const uint64_t *words, unsigned from, unsigned to);
/* What is set in opts: {"count_max": 32768, "omega_ns": null}.  Times have _ns behind their names;
 * null: auto, or no text. */
json_t *vb_json_opts(const struct vb_opt *table, const void *opts);

#endif
