/* SPDX-License-Identifier: Apache-2.0 */
/* Options from tables; see opt.h.  Every error is one line that names the option, what was given and
 * what is allowed. */
#define VB_LOG_ROOM "options"
#include "base/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/log.h"

/* ---- numbers with units ---- */

struct unit {
	const char *suffix;
	double factor;
};

static const struct unit size_units[] = {{"", 1},          {"k", 1e3},           {"m", 1e6},
					 {"g", 1e9},       {"ki", 1024.0},       {"mi", 1048576.0},
					 {"gi", 1073741824.0}};
static const struct unit time_units[] = {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}};

static int parse_with_units(const char *text, const struct unit *units, size_t n, bool zero_bare,
			    uint64_t *out)
{
	char *end;
	double v;

	/* strtod would take "nan", "inf", hexadecimal and leading spaces too. */
	if (!isdigit((unsigned char)text[0]) && text[0] != '.')
		return -EINVAL;
	if (text[0] == '0' && (text[1] == 'x' || text[1] == 'X'))
		return -EINVAL;
	errno = 0;
	v = strtod(text, &end);
	if (end == text || errno == ERANGE)
		return -EINVAL;
	if (zero_bare && *end == '\0' && v == 0) {
		*out = 0;
		return 0;
	}
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(end, units[i].suffix))
			continue;
		v *= units[i].factor;
		if (v >= 0x1p63 || v != floor(v))
			return -EINVAL;
		*out = (uint64_t)v;
		return 0;
	}
	return -EINVAL;
}

int vb_parse_size(const char *text, uint64_t *out)
{
	char *end;

	/* Plain integers exactly, also above 2^53. */
	if (isdigit((unsigned char)text[0])) {
		errno = 0;
		uint64_t v = strtoull(text, &end, 10);

		if (*end == '\0') {
			if (errno == ERANGE)
				return -EINVAL;
			*out = v;
			return 0;
		}
	}
	return parse_with_units(text, size_units, VB_ARRAY_SIZE(size_units), false, out);
}

int vb_parse_time_ns(const char *text, uint64_t *out)
{
	return parse_with_units(text, time_units, VB_ARRAY_SIZE(time_units), true, out);
}

static char *format_scaled(char *buf, size_t size, double v, const char *const *suffixes, unsigned n)
{
	unsigned i = 0;

	while (i + 1 < n && v >= 999.5) {
		v /= 1000;
		i++;
	}
	if (i == 0 && v == floor(v))
		snprintf(buf, size, "%.0f%s", v, suffixes[i]);
	else
		snprintf(buf, size, "%.*f%s", v < 9.995 ? 2 : v < 99.95 ? 1 : 0, v, suffixes[i]);
	return buf;
}

char *vb_format_ns(char *buf, size_t size, double ns)
{
	static const char *const suffixes[] = {"ns", "us", "ms", "s"};

	return format_scaled(buf, size, ns, suffixes, 4);
}

char *vb_format_count(char *buf, size_t size, double v)
{
	static const char *const suffixes[] = {"", "k", "M", "G", "T"};

	return format_scaled(buf, size, v, suffixes, 5);
}

/* ---- one option ---- */

static void *field(void *opts, const struct vb_opt *o)
{
	return (char *)opts + o->offset;
}

static int set_flag(const struct vb_opt *o, void *opts, const char *value)
{
	bool on = true;

	if (value) {
		if (!strcmp(value, "no") || !strcmp(value, "false") || !strcmp(value, "0"))
			on = false;
		else if (strcmp(value, "yes") && strcmp(value, "true") && strcmp(value, "1"))
			return vb_fail(-EINVAL, "--%s: '%s' is neither yes nor no", o->name, value);
	}
	memcpy(field(opts, o), &on, sizeof(on));
	return 0;
}

static int set_number(const struct vb_opt *o, void *opts, const char *value)
{
	const bool is_time = o->kind == VB_OPT_KIND_TIME;
	char lo[24], hi[24];
	uint64_t v;

	if (is_time ? vb_parse_time_ns(value, &v) : vb_parse_size(value, &v))
		return vb_fail(-EINVAL, "--%s: '%s' is no %s", o->name, value,
			       is_time ? "time; write a number and ns, us, ms or s, as in 10ms"
				       : "whole number; k, m, g and ki, mi, gi may follow, as in 100k");
	if (v < o->min || v > o->max) {
		if (is_time)
			return vb_fail(-EINVAL, "--%s: %s is out of range: %s to %s are allowed",
				       o->name, value, vb_format_ns(lo, sizeof(lo), (double)o->min),
				       vb_format_ns(hi, sizeof(hi), (double)o->max));
		return vb_fail(-EINVAL, "--%s: %s is out of range: %llu to %llu are allowed", o->name,
			       value, (unsigned long long)o->min, (unsigned long long)o->max);
	}
	memcpy(field(opts, o), &v, sizeof(v));
	return 0;
}

static int set_real(const struct vb_opt *o, void *opts, const char *value)
{
	char *end;
	double v;

	errno = 0;
	v = strtod(value, &end);
	if (end == value || *end || errno == ERANGE || isnan(v))
		return vb_fail(-EINVAL, "--%s: '%s' is no number", o->name, value);
	if (v < o->real_min || v > o->real_max)
		return vb_fail(-EINVAL, "--%s: %s is out of range: %g to %g are allowed", o->name, value,
			       o->real_min, o->real_max);
	memcpy(field(opts, o), &v, sizeof(v));
	return 0;
}

static int set_choice(const struct vb_opt *o, void *opts, const char *value)
{
	const char *p = o->choices;
	size_t len = strlen(value);
	int index = 0;

	while (*p) {
		size_t n = strcspn(p, "|");

		if (n == len && !memcmp(p, value, n)) {
			memcpy(field(opts, o), &index, sizeof(index));
			return 0;
		}
		p += n + (p[n] == '|');
		index++;
	}
	return vb_fail(-EINVAL, "--%s: '%s' is none of %s", o->name, value, o->choices);
}

static int set(const struct vb_opt *o, void *opts, const char *value)
{
	if (o->kind == VB_OPT_KIND_FLAG)
		return set_flag(o, opts, value);
	if (!value || !*value)
		return vb_fail(-EINVAL, "--%s needs a value: --%s %s", o->name, o->name, o->value);
	switch (o->kind) {
	case VB_OPT_KIND_SIZE:
	case VB_OPT_KIND_TIME:
		return set_number(o, opts, value);
	case VB_OPT_KIND_REAL:
		return set_real(o, opts, value);
	case VB_OPT_KIND_CHOICE:
		return set_choice(o, opts, value);
	default:
		memcpy(field(opts, o), &value, sizeof(value));
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
			vb_assert(set(table, opts, table->init) == 0);
}

/* ---- nearest name ---- */

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
	return vb_fail(-EINVAL, "there is no option '%s'%s%s%s", copy, near ? "; did you mean '" : "",
		       near ? near : "", near ? "'?" : "");
}

int vb_opt_set(const struct vb_opt *table, void *opts, const char *name, const char *value)
{
	const struct vb_opt_group group = {.table = table, .opts = opts};
	const struct vb_opt *o = find(table, name, strlen(name));

	return o ? set(o, opts, value) : unknown(&group, 1, name, strlen(name));
}

/* A copy that lives as long as the process: string options point into it. */
static char *keep(const char *text)
{
	static struct kept {
		struct kept *next;
		char text[];
	} *all;
	size_t size = strlen(text) + 1;
	struct kept *k = malloc(sizeof(*k) + size);

	if (!k)
		return NULL;
	memcpy(k->text, text, size);
	k->next = __atomic_load_n(&all, __ATOMIC_RELAXED);
	while (!__atomic_compare_exchange_n(&all, &k->next, k, true, __ATOMIC_RELEASE,
					    __ATOMIC_RELAXED))
		;
	return k->text;
}

int vb_opt_parse_list(const struct vb_opt *table, void *opts, const char *list)
{
	char *copy, *save = NULL;

	if (!list || !*list)
		return 0;
	copy = keep(list);
	if (!copy)
		return vb_fail(-ENOMEM, "no memory for options");
	for (char *w = strtok_r(copy, ",", &save); w; w = strtok_r(NULL, ",", &save)) {
		char *eq = strchr(w, '=');
		int err;

		if (eq)
			*eq = '\0';
		err = vb_opt_set(table, opts, w, eq ? eq + 1 : NULL);
		if (err)
			return err;
	}
	return 0;
}

/* ---- a command line ---- */

int vb_opt_parse_args(const struct vb_opt_group *groups, size_t n_groups, int argc, char **argv,
		      int *n_words)
{
	bool only_words = false;
	int words = 0;

	for (int i = 0; i < argc; i++) {
		const char *name = argv[i] + 2, *value;
		const struct vb_opt *o = NULL;
		size_t len, g;
		int err;

		if (only_words || strncmp(argv[i], "--", 2)) {
			if (!only_words && argv[i][0] == '-' && argv[i][1]) {
				if (!strcmp(argv[i], "-h"))
					return 1;
				return vb_fail(-EINVAL, "there is no option '%s'; options are long, as "
							"in --help", argv[i]);
			}
			argv[words++] = argv[i];
			continue;
		}
		if (!*name) {
			only_words = true;
			continue;
		}
		if (!strcmp(name, "help"))
			return 1;
		len = strcspn(name, "=");
		value = name[len] == '=' ? name + len + 1 : NULL;
		for (g = 0; g < n_groups && !o; g++)
			o = find(groups[g].table, name, len);
		if (!o)
			return unknown(groups, n_groups, name, len);
		if (o->kind != VB_OPT_KIND_FLAG && !value && i + 1 < argc)
			value = argv[++i];
		err = set(o, groups[g - 1].opts, value);
		if (err)
			return err;
	}
	*n_words = words;
	return 0;
}

void vb_opt_print_help(FILE *to, const struct vb_opt_group *groups, size_t n_groups)
{
	size_t width = 0;

	for (size_t g = 0; g < n_groups; g++) {
		for (const struct vb_opt *o = groups[g].table; o->kind != VB_OPT_KIND_END; o++) {
			size_t n = strlen(o->name) + (o->value ? strlen(o->value) + 1 : 0);

			if (n > width && n <= 28)
				width = n;
		}
	}
	for (size_t g = 0; g < n_groups; g++) {
		fprintf(to, "%s%s:\n", g ? "\n" : "", groups[g].title);
		for (const struct vb_opt *o = groups[g].table; o->kind != VB_OPT_KIND_END; o++) {
			int n = fprintf(to, "  --%s%s%s", o->name, o->value ? " " : "",
					o->value ? o->value : "");
			int pad = (int)width + 6 - n;

			if (pad < 1) {
				fputc('\n', to);
				pad = (int)width + 6;
			}
			fprintf(to, "%*s%s", pad, "", o->help);
			if (o->init && o->kind != VB_OPT_KIND_FLAG)
				fprintf(to, " [%s]", o->init);
			fputc('\n', to);
		}
	}
}
