/* SPDX-License-Identifier: Apache-2.0 */
/*
 * One table per struct of options.  Parsing, defaults, range checks, --help, the man page and shell
 * completions all come from it.
 *
 *	struct my_opts { uint64_t lease_ns; bool fencing; };
 *	static const struct vb_opt my_table[] = {
 *		VB_OPT_TIME(struct my_opts, lease_ns, "lease", "10ms", 1000, 60ull * 1000000000,
 *			    "how long a grant is valid"),
 *		VB_OPT_FLAG(struct my_opts, fencing, "fencing", "give every grant a token"),
 *		VB_OPT_END
 *	};
 */
#ifndef VB_BASE_OPT_H
#define VB_BASE_OPT_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/compiler.h"

enum vb_opt_kind {
	VB_OPT_KIND_END,
	VB_OPT_KIND_FLAG,   /* bool; present means true; "=no" means false */
	VB_OPT_KIND_SIZE,   /* uint64_t; k, m, g (decimal), ki, mi, gi (binary) */
	VB_OPT_KIND_TIME,   /* uint64_t in ns; a unit is required: ns, us, ms, s (0 needs none) */
	VB_OPT_KIND_REAL,   /* double */
	VB_OPT_KIND_STRING, /* const char *, not copied */
	VB_OPT_KIND_CHOICE, /* int, index into the '|' separated list in `choices` */
};

/* Of a TIME option whose default is "auto": whoever uses it finds the value. */
#define VB_OPT_AUTO UINT64_MAX

struct vb_opt {
	enum vb_opt_kind kind;
	const char *name;    /* long name without dashes */
	const char *value;   /* placeholder in help: "N", "TIME", "DIST"; NULL for flags */
	const char *init;    /* default as the user would type it; NULL: the field stays zero */
	const char *help;    /* one sentence, no full stop */
	const char *choices; /* "a|b|c" */
	size_t offset;
	uint64_t min, max; /* SIZE and TIME */
	double real_min, real_max;
	/* Of a CHOICE on a command line: what each of its words sets of all options there, "NAME=VALUE
	 * NAME=VALUE...", as if that stood in its place; or NULL. */
	const char *const *sets;
};

#define VB_OPT_FLAG(type, field, nm, hlp)                                                          \
	{                                                                                          \
		.kind = VB_OPT_KIND_FLAG, .name = nm, .help = hlp, .offset = offsetof(type, field) \
	}
#define VB_OPT_SIZE(type, field, nm, ini, lo, hi, hlp)                                             \
	{                                                                                          \
		.kind = VB_OPT_KIND_SIZE, .name = nm, .value = "N", .init = ini, .help = hlp,      \
		.offset = offsetof(type, field), .min = lo, .max = hi                              \
	}
#define VB_OPT_TIME(type, field, nm, ini, lo, hi, hlp)                                             \
	{                                                                                          \
		.kind = VB_OPT_KIND_TIME, .name = nm, .value = "TIME", .init = ini, .help = hlp,   \
		.offset = offsetof(type, field), .min = lo, .max = hi                              \
	}
#define VB_OPT_REAL(type, field, nm, ini, lo, hi, hlp)                                             \
	{                                                                                          \
		.kind = VB_OPT_KIND_REAL, .name = nm, .value = "X", .init = ini, .help = hlp,      \
		.offset = offsetof(type, field), .real_min = lo, .real_max = hi                    \
	}
#define VB_OPT_STRING(type, field, nm, val, ini, hlp)                                              \
	{                                                                                          \
		.kind = VB_OPT_KIND_STRING, .name = nm, .value = val, .init = ini, .help = hlp,    \
		.offset = offsetof(type, field)                                                    \
	}
#define VB_OPT_CHOICE(type, field, nm, list, ini, hlp)                                             \
	{                                                                                          \
		.kind = VB_OPT_KIND_CHOICE, .name = nm, .value = list, .init = ini, .help = hlp,   \
		.choices = list, .offset = offsetof(type, field)                                   \
	}
#define VB_OPT_PRESET(type, field, nm, list, ini, what, hlp)                                       \
	{                                                                                          \
		.kind = VB_OPT_KIND_CHOICE, .name = nm, .value = list, .init = ini, .help = hlp,   \
		.choices = list, .offset = offsetof(type, field), .sets = what                     \
	}
#define VB_OPT_END                                                                                 \
	{                                                                                          \
		.kind = VB_OPT_KIND_END                                                            \
	}

/* Writes every default.  The table must be right: a bad default asserts. */
void vb_opt_defaults(const struct vb_opt *table, void *opts);

/* Sets one option.  -EINVAL with a logged line that names the option, the value and what is
 * allowed; an unknown name suggests the nearest known one. */
int vb_opt_set(const struct vb_opt *table, void *opts, const char *name, const char *value);

/* The word that `at`, the field of a CHOICE, stands for; its length. */
int vb_opt_chosen(const struct vb_opt *o, const void *at, const char **word);

/* "key=value,key,key=value"; NULL or "" sets nothing.  Stops at the first wrong one; those before
 * it are set.  String values are kept for as long as the process lives, each distinct one once. */
int vb_opt_parse_list(const struct vb_opt *table, void *opts, const char *list);

/* Long options "--name value", "--name=value", "--flag".  A value that begins with "--" itself
 * needs the form with "=".  After a lone "--" all are words.  Several tables, each with its struct,
 * are searched in turn.  Words that are not options are put to the front of argv and counted in
 * *n_words.  Returns 0, -EINVAL (said), or 1 when --help or -h was met. */
struct vb_opt_group {
	const char *title;
	const struct vb_opt *table;
	void *opts;
};
int vb_opt_parse_args(const struct vb_opt_group *groups, size_t n_groups, int argc, char **argv,
		      int *n_words);
/* In columns, at most 80 wide as long as no single word of a help text is wider. */
void vb_opt_print_help(FILE *to, const struct vb_opt_group *groups, size_t n_groups);
/* Defines what gives its tables, {"Title", table, NULL}, ..., the struct they are about. */
#define VB_OPT_GROUPS(function, type, ...)                                                         \
	const struct vb_opt_group *function(type *opts, unsigned *n)                               \
	{                                                                                          \
		static struct vb_opt_group groups[] = {__VA_ARGS__};                               \
                                                                                                   \
		*n = VB_ARRAY_SIZE(groups);                                                        \
		for (unsigned i = 0; i < *n; i++)                                                  \
			groups[i].opts = opts;                                                     \
		return groups;                                                                     \
	}

/* Parsers on their own.  "10m" -> 10,000,000; "4ki" -> 4096; "1.5ms" -> 1,500,000.  Decimal digits,
 * taken exactly: what is not a whole number in the end, or does not fit, is -EINVAL, not logged. */
int vb_parse_size(const char *text, uint64_t *out);
int vb_parse_time_ns(const char *text, uint64_t *out);

/* The name most like `word`, for "did you mean"; NULL if none is near. */
const char *vb_nearest(const char *word, const char *const *names, size_t n);
/* " (did you mean 'dslr'?)", or "" if none is near; to stand behind the word in an error.  buf of
 * VB_HINT_BYTES; returns buf. */
#define VB_HINT_BYTES 96
char *vb_did_you_mean(char *buf, const char *word, const char *const *names, size_t n);
/* The same for a list of pointers, NULL behind the last, to structs that begin with their name. */
char *vb_did_you_mean_any(char *buf, const char *word, const void *list);

/* 1500 -> "1.50us"; 1234567 -> "1.23M".  buf of at least 16 bytes; returns buf. */
char *vb_format_ns(char *buf, size_t size, double ns);
char *vb_format_count(char *buf, size_t size, double n);

#endif
