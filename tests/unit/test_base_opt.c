/* SPDX-License-Identifier: Apache-2.0 */
/* Options: parsing, ranges, texts, and that every refusal is one line that says what and why. */
#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/log.h"
#include "base/opt.h"
#include "base/rng.h"

struct opts {
	bool flag;
	uint64_t size, time_ns;
	double real;
	const char *text;
	int choice;
};

static const struct vb_opt table[] = {
	VB_OPT_FLAG(struct opts, flag, "flag", "a flag"),
	VB_OPT_SIZE(struct opts, size, "size", "10k", 1, 1000000, "a size"),
	VB_OPT_TIME(struct opts, time_ns, "time", "10ms", 1000, 1000000000, "a time"),
	VB_OPT_REAL(struct opts, real, "real", "0.5", 0, 1, "a number"),
	VB_OPT_STRING(struct opts, text, "text", "TEXT", NULL, "a text"),
	VB_OPT_CHOICE(struct opts, choice, "choice", "red|green|blue", "green", "a colour"),
	VB_OPT_END};

static char line[512];

static int set(struct opts *o, const char *name, const char *value)
{
	int err;

	vb_log_capture_begin(line, sizeof(line));
	err = vb_opt_set(table, o, name, value);
	vb_log_capture_end();
	assert_null(strchr(line, '\n'));
	return err;
}

static void test_defaults(void **state)
{
	struct opts o = {0};

	(void)state;
	vb_opt_defaults(table, &o);
	assert_false(o.flag);
	assert_int_equal(o.size, 10000);
	assert_int_equal(o.time_ns, 10000000);
	assert_true(o.real == 0.5);
	assert_null(o.text);
	assert_int_equal(o.choice, 1);
}

static void test_set(void **state)
{
	struct opts o = {0};

	(void)state;
	assert_int_equal(set(&o, "flag", NULL), 0);
	assert_true(o.flag);
	assert_int_equal(set(&o, "flag", "no"), 0);
	assert_false(o.flag);
	assert_int_equal(set(&o, "size", "4ki"), 0);
	assert_int_equal(o.size, 4096);
	assert_int_equal(set(&o, "time", "1.5ms"), 0);
	assert_int_equal(o.time_ns, 1500000);
	assert_int_equal(set(&o, "real", "0.25"), 0);
	assert_true(o.real == 0.25);
	assert_int_equal(set(&o, "text", "x=y"), 0);
	assert_string_equal(o.text, "x=y");
	assert_int_equal(set(&o, "choice", "blue"), 0);
	assert_int_equal(o.choice, 2);
}

/* A refusal names the option, what was given and what is allowed, and changes nothing. */
static void refused(const char *name, const char *value, const char *says)
{
	struct opts o = {0}, before;

	vb_opt_defaults(table, &o);
	before = o;
	assert_int_equal(set(&o, name, value), -EINVAL);
	assert_memory_equal(&o, &before, sizeof(o));
	assert_non_null(strstr(line, name));
	if (value && !strstr(line, value))
		fail_msg("'%s' does not say '%s'", line, value);
	if (!strstr(line, says))
		fail_msg("'%s' does not say '%s'", line, says);
}

static void test_refusals(void **state)
{
	(void)state;
	refused("flag", "maybe", "yes nor no");
	refused("size", "0", "1 to 1000000");
	refused("size", "2m", "1 to 1000000");
	refused("size", "-3", "whole number");
	refused("size", "1.5", "whole number");
	refused("size", "0x10", "whole number");
	refused("size", "ten", "whole number");
	refused("size", "99999999999999999999", "whole number");
	refused("time", "5", "ns, us, ms or s");
	refused("time", "1ns", "1.00us to 1.00s");
	refused("time", "2s", "1.00us to 1.00s");
	refused("real", "1.01", "0 to 1");
	refused("real", "nan", "no number");
	refused("real", "0.5x", "no number");
	refused("choice", "mauve", "red|green|blue");
	refused("sise", NULL, "'size'");
	refused("size", NULL, "needs a value");
}

static void test_lists(void **state)
{
	struct opts o = {0};

	(void)state;
	vb_opt_defaults(table, &o);
	assert_int_equal(vb_opt_parse_list(table, &o, NULL), 0);
	assert_int_equal(vb_opt_parse_list(table, &o, "size=7,flag,text=abc"), 0);
	assert_int_equal(o.size, 7);
	assert_true(o.flag);
	assert_string_equal(o.text, "abc");
	vb_log_capture_begin(line, sizeof(line));
	assert_int_equal(vb_opt_parse_list(table, &o, "size=8,nope=1"), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(line, "nope"));
}

static int parse(struct opts *o, int argc, char **argv, int *words)
{
	const struct vb_opt_group group = {.title = "Options", .table = table, .opts = o};
	int r;

	vb_log_capture_begin(line, sizeof(line));
	r = vb_opt_parse_args(&group, 1, argc, argv, words);
	vb_log_capture_end();
	return r;
}

static void test_command_line(void **state)
{
	char *good[] = {"word",     "--size", "5",   "--flag", "other",
			"--real=1", "--",     "--x", "-",      "--choice"};
	char *help[] = {"--size", "5", "--help"};
	char *bad[] = {"--sizes=5"}, *shorty[] = {"-s"}, *last[] = {"--size"};
	struct opts o = {0};
	int words = -1;

	(void)state;
	vb_opt_defaults(table, &o);
	assert_int_equal(parse(&o, 10, good, &words), 0);
	assert_int_equal(words, 5);
	assert_string_equal(good[0], "word");
	assert_string_equal(good[1], "other");
	assert_string_equal(good[2], "--x");
	assert_string_equal(good[3], "-");
	assert_string_equal(good[4], "--choice");
	assert_true(o.flag && o.size == 5 && o.real == 1);
	assert_int_equal(parse(&o, 3, help, &words), 1);
	assert_int_equal(parse(&o, 1, bad, &words), -EINVAL);
	assert_non_null(strstr(line, "'size'"));
	assert_int_equal(parse(&o, 1, shorty, &words), -EINVAL);
	assert_int_equal(parse(&o, 1, last, &words), -EINVAL);
	assert_non_null(strstr(line, "needs a value"));
}

static void test_help(void **state)
{
	const struct vb_opt_group group = {.title = "Things", .table = table};
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	(void)state;
	vb_opt_print_help(f, &group, 1);
	fclose(f);
	assert_non_null(strstr(text, "Things:"));
	for (const struct vb_opt *o = table; o->kind != VB_OPT_KIND_END; o++) {
		assert_non_null(strstr(text, o->name));
		assert_non_null(strstr(text, o->help));
	}
	assert_non_null(strstr(text, "[10ms]"));
	free(text);
}

static void test_sizes_and_times(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} sizes[] = {{"0", 0},       {"7", 7},         {"10k", 10000},
		     {"1.5k", 1500}, {"2M", 2000000},  {"1g", 1000000000},
		     {"4ki", 4096},  {"1mi", 1048576}, {"9223372036854775807", INT64_MAX}},
	  times[] = {{"0", 0},           {"1ns", 1},         {"3us", 3000},
		     {"10ms", 10000000}, {"2s", 2000000000}, {"0.5us", 500}};
	uint64_t v;

	(void)state;
	for (unsigned i = 0; i < VB_ARRAY_SIZE(sizes); i++) {
		assert_int_equal(vb_parse_size(sizes[i].text, &v), 0);
		assert_int_equal(v, sizes[i].value);
	}
	for (unsigned i = 0; i < VB_ARRAY_SIZE(times); i++) {
		assert_int_equal(vb_parse_time_ns(times[i].text, &v), 0);
		assert_int_equal(v, times[i].value);
	}
	assert_int_equal(vb_parse_time_ns("1", &v), -EINVAL);
	assert_int_equal(vb_parse_time_ns("1m", &v), -EINVAL);
	assert_int_equal(vb_parse_size("", &v), -EINVAL);
	assert_int_equal(vb_parse_size("1 k", &v), -EINVAL);
	assert_int_equal(vb_parse_size("inf", &v), -EINVAL);
	assert_int_equal(vb_parse_size("18446744073709551616", &v), -EINVAL);
}

/* Whatever comes in: no crash, and what is taken is taken the same way again. */
static void test_random_text(void **state)
{
	static const char letters[] = "0123456789.eE+-kmgiunsxX ";
	struct vb_rng r;

	(void)state;
	vb_rng_seed(&r, 11, 0);
	for (unsigned i = 0; i < 200000; i++) {
		char text[12], again[32];
		size_t n = vb_rng_below(&r, sizeof(text));
		uint64_t v, w;

		for (size_t k = 0; k < n; k++)
			text[k] = letters[vb_rng_below(&r, sizeof(letters) - 1)];
		text[n] = '\0';
		if (vb_parse_size(text, &v) == 0) {
			snprintf(again, sizeof(again), "%llu", (unsigned long long)v);
			assert_int_equal(vb_parse_size(again, &w), 0);
			assert_int_equal(v, w);
		}
		if (vb_parse_time_ns(text, &v) == 0 && v < 1ull << 53) {
			snprintf(again, sizeof(again), "%lluns", (unsigned long long)v);
			assert_int_equal(vb_parse_time_ns(again, &w), 0);
			assert_int_equal(v, w);
		}
	}
}

static void test_formats(void **state)
{
	char buf[24];

	(void)state;
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 0), "0ns");
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 999), "999ns");
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 1500), "1.50us");
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 9999), "10.0us");
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 123456), "123us");
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 999.7e3), "1.00ms");
	assert_string_equal(vb_format_ns(buf, sizeof(buf), 5e12), "5000s");
	assert_string_equal(vb_format_count(buf, sizeof(buf), 1234567), "1.23M");
	assert_string_equal(vb_format_count(buf, sizeof(buf), 12), "12");
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"dslr", "shiftlock", "mcs"};

	(void)state;
	assert_string_equal(vb_nearest("dlsr", names, 3), "dslr");
	assert_string_equal(vb_nearest("shiftlok", names, 3), "shiftlock");
	assert_null(vb_nearest("something", names, 3));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_defaults),        cmocka_unit_test(test_set),
		cmocka_unit_test(test_refusals),        cmocka_unit_test(test_lists),
		cmocka_unit_test(test_command_line),    cmocka_unit_test(test_help),
		cmocka_unit_test(test_sizes_and_times), cmocka_unit_test(test_random_text),
		cmocka_unit_test(test_formats),         cmocka_unit_test(test_nearest),
	};

	return cmocka_run_group_tests_name("base opt", tests, NULL, NULL);
}
