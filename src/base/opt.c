/* SPDX-License-Identifier: Apache-2.0 */
/* Options from tables; see opt.h.  Every error is one line that names the option, what was given
 * and what is allowed. */
#define VB_LOG_ROOM "options"
#include "base/opt.h"

#include <errno.h>
#include <math.h>
#include <string.h>

#include "base/log.h"

/* ---- one option ---- */

/* What to set, and how the user wrote its name: "--lease" or, in a list, "lease". */
struct target {
	const struct vb_opt *o;
	void *opts;
	const char *dashes;
};

static void put(const struct target *t, const void *value, size_t size)
{
	memcpy((char *)t->opts + t->o->offset, value, size);
}

static int set_flag(const struct target *t, const char *value)
{
	bool on = true;

	if (value) {
		if (!strcmp(value, "no") || !strcmp(value, "false") || !strcmp(value, "0"))
			on = false;
		else if (strcmp(value, "yes") && strcmp(value, "true") && strcmp(value, "1"))
			return vb_fail(-EINVAL, "%s%s: '%s' is neither yes nor no", t->dashes,
				       t->o->name, value);
	}
	put(t, &on, sizeof(on));
	return 0;
}

static int set_number(const struct target *t, const char *value)
{
	const bool is_time = t->o->kind == VB_OPT_KIND_TIME;
	const bool can_auto = is_time && t->o->init != NULL && !strcmp(t->o->init, "auto");
	char lo[24], hi[24];
	uint64_t v;

	if (can_auto && !strcmp(value, "auto")) {
		v = VB_OPT_AUTO;
		put(t, &v, sizeof(v));
		return 0;
	}
	if (is_time ? vb_parse_time_ns(value, &v) : vb_parse_size(value, &v))
		return vb_fail(
			-EINVAL, "%s%s: '%s' is no %s%s", t->dashes, t->o->name, value,
			is_time ? "time; write a number and ns, us, ms or s, as in 10ms"
				: "whole number; k, m, g and ki, mi, gi may follow, as in 100k",
			can_auto ? ", or auto" : "");
	if (v < t->o->min || v > t->o->max) {
		if (is_time)
			return vb_fail(-EINVAL, "%s%s: %s is out of range: %s to %s are allowed",
				       t->dashes, t->o->name, value,
				       vb_format_ns(lo, sizeof(lo), (double)t->o->min),
				       vb_format_ns(hi, sizeof(hi), (double)t->o->max));
		return vb_fail(-EINVAL, "%s%s: %s is out of range: %llu to %llu are allowed",
			       t->dashes, t->o->name, value, (unsigned long long)t->o->min,
			       (unsigned long long)t->o->max);
	}
	put(t, &v, sizeof(v));
	return 0;
}

static int set_real(const struct target *t, const char *value)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(value, &end);
	if (end == value || *end || errno == ERANGE || isnan(v))
		return vb_fail(-EINVAL, "%s%s: '%s' is no number", t->dashes, t->o->name, value);
	if (v < t->o->real_min || v > t->o->real_max)
		return vb_fail(-EINVAL, "%s%s: %s is out of range: %g to %g are allowed", t->dashes,
			       t->o->name, value, t->o->real_min, t->o->real_max);
	put(t, &v, sizeof(v));
	return 0;
}

static int set_choice(const struct target *t, const char *value)
{
	const char *p = t->o->choices;
	size_t len = strlen(value);
	int index = 0;

	while (*p) {
		size_t n = strcspn(p, "|");

		if (n == len && !memcmp(p, value, n)) {
			put(t, &index, sizeof(index));
			return 0;
		}
		p += n + (p[n] == '|');
		index++;
	}
	return vb_fail(-EINVAL, "%s%s: '%s' is none of %s", t->dashes, t->o->name, value,
		       t->o->choices);
}

static int set(const struct target *t, const char *value)
{
	if (t->o->kind == VB_OPT_KIND_FLAG)
		return set_flag(t, value);
	if (!value || !*value)
		return vb_fail(-EINVAL, "%s%s needs a value: %s%s%s%s", t->dashes, t->o->name,
			       t->dashes, t->o->name, *t->dashes ? " " : "=", t->o->value);
	switch (t->o->kind) {
	case VB_OPT_KIND_SIZE:
	case VB_OPT_KIND_TIME:
		return set_number(t, value);
	case VB_OPT_KIND_REAL:
		return set_real(t, value);
	case VB_OPT_KIND_CHOICE:
		return set_choice(t, value);
	default:
		put(t, &value, sizeof(value));
		return 0;
	}
}

static const struct vb_opt *find(const struct vb_opt *table, const char *name, size_t len)
{
	for (; table->kind != VB_OPT_KIND_END; table++)
		if (strlen(table->name) == len && !memcmp(table->name, name, len))
			return table;
	return NULL;
}

void vb_opt_defaults(const struct vb_opt *table, void *opts)
{
	for (; table->kind != VB_OPT_KIND_END; table++)
		if (table->init)
			vb_assert(set(&(struct target){table, opts, "--"}, table->init) == 0);
}

#define WORD_MAX  64
#define NAMES_MAX 128

static int unknown(const struct vb_opt_group *groups, size_t n_groups, const char *name, size_t len)
{
	const char *names[NAMES_MAX], *near;
	char copy[WORD_MAX];
	size_t n = 0;

	for (size_t g = 0; g < n_groups; g++)
		for (const struct vb_opt *o = groups[g].table; o->kind != VB_OPT_KIND_END; o++)
			if (n < NAMES_MAX)
				names[n++] = o->name;
	snprintf(copy, sizeof(copy), "%.*s", (int)len, name);
	near = vb_nearest(copy, names, n);
	return vb_fail(-EINVAL, "there is no option '%s'%s%s%s", copy,
		       near ? "; did you mean '" : "", near ? near : "", near ? "'?" : "");
}

int vb_opt_chosen(const struct vb_opt *o, const void *at, const char **word)
{
	*word = o->choices;
	for (int choice = *(const int *)at; choice > 0; choice--)
		*word = strchr(*word, '|') + 1;
	return (int)strcspn(*word, "|");
}

int vb_opt_set(const struct vb_opt *table, void *opts, const char *name, const char *value)
{
	const struct vb_opt_group group = {.table = table, .opts = opts};
	const struct vb_opt *o = find(table, name, strlen(name));

	if (!o)
		return unknown(&group, 1, name, strlen(name));
	return set(&(struct target){o, opts, ""}, value);
}

struct kept {
	struct kept *next;
	char text[];
};

/* The text for as long as the process lives: string options point at it.  Texts are never taken
 * out, so the list is read without a lock; two threads that keep the same text at once keep it
 * twice. */
static const char *keep(const char *text)
{
	static struct kept *all;
	size_t size = strlen(text) + 1;
	struct kept *k = __atomic_load_n(&all, __ATOMIC_ACQUIRE);

	for (; k; k = k->next)
		if (!strcmp(k->text, text))
			return k->text;
	k = malloc(sizeof(*k) + size);
	if (!k)
		return NULL;
	memcpy(k->text, text, size);
	k->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&all, &k->next, k, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	return k->text;
}

static int set_kept(const struct vb_opt *table, void *opts, const char *name, const char *value)
{
	const struct vb_opt *o = find(table, name, strlen(name));

	if (o && o->kind == VB_OPT_KIND_STRING && value) {
		value = keep(value);
		if (!value)
			return vb_fail(-ENOMEM, "no memory for the value of '%s'", name);
	}
	return vb_opt_set(table, opts, name, value);
}

int vb_opt_parse_list(const struct vb_opt *table, void *opts, const char *list)
{
	char *copy, *save = NULL;
	int err = 0;

	if (!list || !*list)
		return 0;
	copy = strdup(list);
	if (!copy)
		return vb_fail(-ENOMEM, "no memory for the options '%s'", list);
	for (char *w = strtok_r(copy, ",", &save); w && !err; w = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(w, '=');

		if (eq)
			*eq = '\0';
		err = set_kept(table, opts, w, eq ? eq + 1 : NULL);
	}
	free(copy);
	return err;
}

/* ---- a command line ---- */

static const struct vb_opt *find_any(const struct vb_opt_group *groups, size_t n_groups,
				     const char *name, size_t len, void **opts)
{
	for (size_t g = 0; g < n_groups; g++) {
		const struct vb_opt *o = find(groups[g].table, name, len);

		if (o) {
			*opts = groups[g].opts;
			return o;
		}
	}
	return NULL;
}

/* What a word stands for: the options that it sets. */
static int set_all(const struct vb_opt_group *groups, size_t n_groups, const char *list)
{
	char *copy = strdup(list), *save = NULL;
	int err = copy ? 0 : vb_fail(-ENOMEM, "no memory for the options '%s'", list);

	for (char *w = copy ? strtok_r(copy, " ", &save) : NULL; w && !err;
	     w = strtok_r(NULL, " ", &save)) {
		size_t len = strcspn(w, "=");
		void *opts = NULL;
		const struct vb_opt *o = find_any(groups, n_groups, w, len, &opts);
		const char *value = w[len] ? keep(w + len + 1) : NULL;

		if (!o)
			err = unknown(groups, n_groups, w, len);
		else
			err = set(&(struct target){o, opts, "--"}, value);
	}
	free(copy);
	return err;
}

/* The option at argv[*i], which begins with "--", and its value, maybe from the next word. */
static int take_option(const struct vb_opt_group *groups, size_t n_groups, int argc, char **argv,
		       int *i)
{
	const char *name = argv[*i] + 2, *value;
	size_t len = strcspn(name, "=");
	void *opts = NULL;
	const struct vb_opt *o = find_any(groups, n_groups, name, len, &opts);
	const char *sets;
	int err;

	if (!o)
		return unknown(groups, n_groups, name, len);
	value = name[len] == '=' ? name + len + 1 : NULL;
	if (o->kind != VB_OPT_KIND_FLAG && !value && *i + 1 < argc &&
	    strncmp(argv[*i + 1], "--", 2))
		value = argv[++*i];
	err = set(&(struct target){o, opts, "--"}, value);
	if (err || !o->sets)
		return err;
	sets = o->sets[*(const int *)(const void *)((const char *)opts + o->offset)];
	return sets ? set_all(groups, n_groups, sets) : 0;
}

int vb_opt_parse_args(const struct vb_opt_group *groups, size_t n_groups, int argc, char **argv,
		      int *n_words)
{
	bool only_words = false;
	int words = 0;

	for (int i = 0; i < argc; i++) {
		char *w = argv[i];
		int err;

		if (only_words || w[0] != '-' || !w[1]) {
			argv[words++] = w;
		} else if (!strcmp(w, "--")) {
			only_words = true;
		} else if (!strcmp(w, "--help") || !strcmp(w, "-h")) {
			return 1;
		} else if (w[1] != '-') {
			return vb_fail(-EINVAL,
				       "there is no option '%s'; options are long, as in --help",
				       w);
		} else {
			err = take_option(groups, n_groups, argc, argv, &i);
			if (err)
				return err;
		}
	}
	*n_words = words;
	return 0;
}

/* ---- help ---- */

#define HELP_WIDTH 80
#define NAME_WIDTH 28 /* a longer name has a line of its own */

/* The text from column `at` on, broken between words. */
static void print_wrapped(FILE *to, const char *text, int at, int *column)
{
	while (*text) {
		int n = (int)strcspn(text, " ");

		if (*column > at && *column + 1 + n > HELP_WIDTH) {
			fprintf(to, "\n%*s", at, "");
			*column = at;
		} else if (*column > at) {
			fputc(' ', to);
			++*column;
		}
		fprintf(to, "%.*s", n, text);
		*column += n;
		text += n;
		text += strspn(text, " ");
	}
}

static void print_option(FILE *to, const struct vb_opt *o, int at)
{
	int column =
		fprintf(to, "  --%s%s%s", o->name, o->value ? " " : "", o->value ? o->value : "");
	char init[128];

	if (column + 2 > at) {
		fputc('\n', to);
		column = 0;
	}
	fprintf(to, "%*s", at - column, "");
	column = at;
	print_wrapped(to, o->help, at, &column);
	if (o->init && o->kind != VB_OPT_KIND_FLAG) {
		snprintf(init, sizeof(init), "[%s]", o->init);
		print_wrapped(to, init, at, &column);
	}
	fputc('\n', to);
}

void vb_opt_print_help(FILE *to, const struct vb_opt_group *groups, size_t n_groups)
{
	int width = 0;

	for (size_t g = 0; g < n_groups; g++) {
		for (const struct vb_opt *o = groups[g].table; o->kind != VB_OPT_KIND_END; o++) {
			int n = (int)(strlen(o->name) + (o->value ? strlen(o->value) + 1 : 0));

			if (n > width && n <= NAME_WIDTH)
				width = n;
		}
	}
	for (size_t g = 0; g < n_groups; g++) {
		fprintf(to, "%s%s:\n", g ? "\n" : "", groups[g].title);
		for (const struct vb_opt *o = groups[g].table; o->kind != VB_OPT_KIND_END; o++)
			print_option(to, o, width + 6);
	}
}
