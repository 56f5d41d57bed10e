/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes and times as people write them: 100k, 4mi, 1.5ms; see opt.h. */
#include "base/opt.h"

#include <ctype.h>
#include <errno.h>
#include <math.h>
#include <strings.h>

struct unit {
	const char *suffix;
	uint64_t factor;
};

static const struct unit size_units[] = {
	{"", 1},
	{"k", 1000},
	{"m", 1000000},
	{"g", 1000000000},
	{"ki", 1ull << 10},
	{"mi", 1ull << 20},
	{"gi", 1ull << 30},
};
static const struct unit time_units[] = {
	{"ns", 1},
	{"us", 1000},
	{"ms", 1000000},
	{"s", 1000000000},
};

#define FRACTION_MAX 18 /* digits after the point; 10^18 fits */

/* digits[.digits] as a whole number of 10^-*scale; returns the rest of the text, NULL if there is
 * no such number.  Not strtod: its 1.005 times 1000 is not 1005. */
static const char *parse_decimal(const char *p, uint64_t *number, unsigned *scale)
{
	bool any = false, point = false;

	*number = 0;
	*scale = 0;
	for (;; p++) {
		if (*p == '.' && !point) {
			point = true;
			continue;
		}
		if (!isdigit((unsigned char)*p))
			break;
		if ((point && ++*scale > FRACTION_MAX) ||
		    __builtin_mul_overflow(*number, 10, number) ||
		    __builtin_add_overflow(*number, (uint64_t)(*p - '0'), number))
			return NULL;
		any = true;
	}
	return any ? p : NULL;
}

static int parse_with_units(const char *text, const struct unit *units, size_t n, bool zero_bare,
			    uint64_t *out)
{
	unsigned __int128 v;
	uint64_t number, one = 1;
	unsigned scale;
	const char *rest = parse_decimal(text, &number, &scale);

	if (!rest)
		return -EINVAL;
	if (zero_bare && *rest == '\0' && number == 0) {
		*out = 0;
		return 0;
	}
	while (scale--)
		one *= 10;
	for (size_t i = 0; i < n; i++) {
		if (strcasecmp(rest, units[i].suffix))
			continue;
		v = (unsigned __int128)number * units[i].factor;
		if (v % one || v / one > UINT64_MAX)
			return -EINVAL;
		*out = (uint64_t)(v / one);
		return 0;
	}
	return -EINVAL;
}

int vb_parse_size(const char *text, uint64_t *out)
{
	return parse_with_units(text, size_units, VB_ARRAY_SIZE(size_units), false, out);
}

int vb_parse_time_ns(const char *text, uint64_t *out)
{
	return parse_with_units(text, time_units, VB_ARRAY_SIZE(time_units), true, out);
}

static char *format_scaled(char *buf, size_t size, double v, const char *const *suffixes,
			   unsigned n)
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
