/* SPDX-License-Identifier: Apache-2.0 */
/* Options: every kind, its range and its errors, lists, command lines, help, units, nearest
 * names. */
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
	bool fencing;
	uint64_t locks, lease_ns;
	double ratio;
	const char *json;
	int fabric;
};

static const struct vb_opt table[] = {
	VB_OPT_FLAG(struct opts, fencing, "fencing", "give every grant a token"),
	VB_OPT_SIZE(struct opts, locks, "locks", "100k", 1, 1000000, "number of locks"),
	VB_OPT_TIME(struct opts, lease_ns, "lease", "10ms", 1000, 60000000000ull,
		    "how long a grant is valid"),
	VB_OPT_REAL(struct opts, ratio, "ratio", "0.5", 0, 1, "share of reads"),
	VB_OPT_STRING(struct opts, json, "json", "FILE", NULL, "write the results as JSON"),
	VB_OPT_CHOICE(struct opts, fabric, "fabric", "shm|sim", "shm", "where it runs"),
	VB_OPT_END,
};

struct more_opts {
	uint64_t seed;
	int preset;
};

static const struct vb_opt more_table[] = {
	VB_OPT_SIZE(struct more_opts, seed, "seed", "1", 0, UINT64_MAX, "decides everything"),
	VB_OPT_END,
};

static const char *const presets[] = {NULL, "fabric=sim locks=7 json=a=b,c seed=9 fencing",
				      "lokcs=7", "locks=none"};

static const struct vb_opt preset_table[] = {
	VB_OPT_PRESET(struct more_opts, preset, "preset", "none|one|two|three", "none", presets,
		      "all at once"),
	VB_OPT_END,
};

static struct opts o;
static struct more_opts more;
static const struct vb_opt_group groups[] = {{"What runs", table, &o}, {"More", more_table, &more}};
static char said[512];

static int setup(void **state)
{
	memset(&o, 0xff, sizeof(o));
	o.json = NULL;
	o.fencing = false;
	vb_opt_defaults(table, &o);
	vb_opt_defaults(more_table, &more);
	said[0] = '\0';
	return 0;
}

static int set(const char *name, const char *value)
{
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = vb_opt_set(table, &o, name, value);
	vb_log_capture_end();
	return err;
}

/* Refused, the words (with spaces between) said, and nothing written. */
static void refused(const char *name, const char *value, const char *words)
{
	struct opts before = o;
	char copy[128], *save = NULL;

	assert_int_equal(set(name, value), -EINVAL);
	assert_memory_equal(&before, &o, sizeof(o));
	snprintf(copy, sizeof(copy), "%s", words);
	for (char *w = strtok_r(copy, " ", &save); w; w = strtok_r(NULL, " ", &save))
		if (!strstr(said, w))
			fail_msg("'%s' is not said: %s", w, said);
}

static void test_defaults(void **state)
{
	assert_int_equal(o.locks, 100000);
	assert_int_equal(o.lease_ns, 10000000);
	assert_true(o.ratio == 0.5);
	assert_int_equal(o.fabric, 0);
	assert_null(o.json);
	assert_false(o.fencing);
	assert_int_equal(more.seed, 1);
}

static void test_set(void **state)
{
	assert_int_equal(set("fencing", NULL), 0);
	assert_true(o.fencing);
	assert_int_equal(set("fencing", "no"), 0);
	assert_false(o.fencing);
	assert_int_equal(set("fencing", "true"), 0);
	assert_true(o.fencing);
	assert_int_equal(set("locks", "1m"), 0);
	assert_int_equal(o.locks, 1000000);
	assert_int_equal(set("lease", "1.5ms"), 0);
	assert_int_equal(o.lease_ns, 1500000);
	assert_int_equal(set("ratio", "1"), 0);
	assert_true(o.ratio == 1);
	assert_int_equal(set("json", "-"), 0);
	assert_string_equal(o.json, "-");
	assert_int_equal(set("fabric", "sim"), 0);
	assert_int_equal(o.fabric, 1);
	assert_string_equal(said, "");
}

static void test_chosen(void **state)
{
	static const struct vb_opt list =
		VB_OPT_CHOICE(struct opts, fabric, "fabric", "shm|sim|ucx", "shm", "where it runs");
	static const char *const words[] = {"shm", "sim", "ucx"};

	for (int i = 0; i < 3; i++) {
		const char *word;

		assert_int_equal(vb_opt_chosen(&list, &i, &word), strlen(words[i]));
		assert_int_equal(strncmp(word, words[i], strlen(words[i])), 0);
	}
}

static void test_refused(void **state)
{
	refused("fencing", "maybe", "fencing 'maybe' yes no");
	refused("locks", "0", "locks: 0 1 to 1000000 allowed");
	refused("locks", "1000001", "locks: 1000001 allowed");
	refused("locks", "many", "locks: 'many' 100k");
	refused("locks", NULL, "locks needs locks=N");
	refused("locks", "", "locks needs");
	refused("lease", "5", "lease: '5' ms");
	refused("lease", "999ns", "lease: 999ns 1.00us 60.0s");
	refused("lease", "61s", "lease: 61s 60.0s");
	refused("ratio", "1.01", "ratio: 1.01 0 to 1");
	refused("ratio", "-0.01", "ratio: -0.01");
	refused("ratio", "nan", "ratio: 'nan' number");
	refused("ratio", "0.5x", "ratio: '0.5x' number");
	refused("ratio", "1e999", "ratio: '1e999'");
	refused("fabric", "verbs", "fabric: 'verbs' shm|sim");
	refused("fabric", "s", "fabric: 's' shm|sim");
	refused("fabric", "shm|sim", "fabric: shm|sim");
	refused("leese", "1ms", "'leese' 'lease'");
	refused("", "1", "''");
	set("entirely-else", "1");
	assert_null(strstr(said, "did you mean"));
}

static int list(const char *text)
{
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = vb_opt_parse_list(table, &o, text);
	vb_log_capture_end();
	return err;
}

static void test_list(void **state)
{
	char text[] = "locks=7,fencing,json=a.json";
	const char *kept;

	assert_int_equal(list(NULL), 0);
	assert_int_equal(list(""), 0);
	assert_int_equal(o.locks, 100000);
	assert_int_equal(list(text), 0);
	memset(text, 'x', sizeof(text) - 1);
	assert_int_equal(o.locks, 7);
	assert_true(o.fencing);
	assert_string_equal(o.json, "a.json");
	kept = o.json;
	assert_int_equal(list("json=b.json"), 0);
	assert_string_equal(o.json, "b.json");
	assert_int_equal(list("json=a.json"), 0);
	assert_ptr_equal(o.json, kept); /* each distinct text is kept once */
	assert_int_equal(list("locks=8,lokcs=9,fencing=no"), -EINVAL);
	assert_non_null(strstr(said, "'locks'"));
	assert_int_equal(o.locks, 8);
	assert_true(o.fencing);
	assert_int_equal(list("locks"), -EINVAL);
	assert_int_equal(list("json="), -EINVAL);
	assert_int_equal(list("=3"), -EINVAL);
}

static int args(int argc, char **argv, int *words)
{
	int err;

	vb_log_capture_begin(said, sizeof(said));
	err = vb_opt_parse_args(groups, 2, argc, argv, words);
	vb_log_capture_end();
	return err;
}

#define ARGS(words, ...)                                                                           \
	args((int)VB_ARRAY_SIZE(((char *[]){__VA_ARGS__})), (char *[]){__VA_ARGS__}, words)

static void test_args(void **state)
{
	char *argv[] = {"first",  "--locks",   "5",    "--seed=18446744073709551615",
			"-",      "--fencing", "last", "--",
			"--json", "-x",        ""};
	int words = -1;

	assert_int_equal(args((int)VB_ARRAY_SIZE(argv), argv, &words), 0);
	assert_int_equal(words, 6);
	assert_string_equal(argv[0], "first");
	assert_string_equal(argv[1], "-");
	assert_string_equal(argv[2], "last");
	assert_string_equal(argv[3], "--json");
	assert_string_equal(argv[4], "-x");
	assert_string_equal(argv[5], "");
	assert_int_equal(o.locks, 5);
	assert_true(o.fencing);
	assert_int_equal(more.seed, UINT64_MAX);
	assert_null(o.json);
	assert_int_equal(args(0, NULL, &words), 0);
	assert_int_equal(words, 0);
}

/* A word that sets others, in any table, where it stands: what is behind it counts. */
static void test_presets(void **state)
{
	char *args[] = {"--locks", "5", "--preset", "one", "--ratio=0.25", "--seed", "3"};
	char *wrong[] = {"--preset", "two"}, *worse[] = {"--preset=three"};
	const struct vb_opt_group with[] = {groups[0], groups[1], {"Presets", preset_table, &more}};
	int words;

	assert_int_equal(vb_opt_parse_args(with, 3, 7, args, &words), 0);
	assert_int_equal(words, 0);
	assert_int_equal(more.preset, 1);
	assert_int_equal(o.fabric, 1);
	assert_int_equal(o.locks, 7);
	assert_string_equal(o.json, "a=b,c");
	assert_true(o.fencing && o.ratio == 0.25 && more.seed == 3);
	assert_int_equal(vb_opt_parse_args(with, 3, 2, wrong, &words), -EINVAL);
	assert_int_equal(vb_opt_parse_args(with, 3, 1, worse, &words), -EINVAL);
	assert_int_equal(o.locks, 7);
}

static void test_args_refused(void **state)
{
	int words = 77;

	assert_int_equal(ARGS(&words, "--help"), 1);
	assert_int_equal(ARGS(&words, "--locks", "5", "-h"), 1);
	assert_int_equal(ARGS(&words, "-l"), -EINVAL);
	assert_non_null(strstr(said, "'-l'"));
	assert_int_equal(ARGS(&words, "--clinets", "5"), -EINVAL);
	assert_int_equal(ARGS(&words, "--lokcs=5"), -EINVAL);
	assert_non_null(strstr(said, "'lokcs'"));
	assert_non_null(strstr(said, "'locks'"));
	assert_int_equal(ARGS(&words, "--locks"), -EINVAL);
	assert_non_null(strstr(said, "--locks N"));
	assert_int_equal(ARGS(&words, "--json", "--fencing"), -EINVAL);
	assert_non_null(strstr(said, "--json FILE"));
	assert_null(o.json);
	assert_int_equal(ARGS(&words, "--json="), -EINVAL);
	assert_int_equal(words, 77); /* written only on success */
	assert_int_equal(ARGS(&words, "--json=--odd"), 0);
	assert_string_equal(o.json, "--odd");
	/* A flag takes no word. */
	assert_int_equal(ARGS(&words, "--fencing", "no"), 0);
	assert_int_equal(words, 1);
	assert_true(o.fencing);
}

static void test_help(void **state)
{
	static const struct vb_opt longer[] = {
		VB_OPT_SIZE(struct more_opts, seed, "seed-of-everything-that-is-random", NULL, 0, 9,
			    "a name that has its own line, and a sentence that is so long that it "
			    "must go on in another line below"),
		VB_OPT_END,
	};
	const struct vb_opt_group all[] = {groups[0], {"Long", longer, &more}};
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	assert_non_null(f);
	vb_opt_print_help(f, all, 2);
	assert_int_equal(fclose(f), 0);
	assert_string_equal(
		text,
		"What runs:\n"
		"  --fencing         give every grant a token\n"
		"  --locks N         number of locks [100k]\n"
		"  --lease TIME      how long a grant is valid [10ms]\n"
		"  --ratio X         share of reads [0.5]\n"
		"  --json FILE       write the results as JSON\n"
		"  --fabric shm|sim  where it runs [shm]\n"
		"\n"
		"Long:\n"
		"  --seed-of-everything-that-is-random N\n"
		"                    a name that has its own line, and a sentence that is so long\n"
		"                    that it must go on in another line below\n");
	free(text);
}

static void test_sizes(void **state)
{
	static const struct {
		const char *text;
		uint64_t value;
	} good[] = {
		{"0", 0},
		{"10m", 10000000},
		{"4ki", 4096},
		{"1.5ki", 1536},
		{"2MI", 2097152},
		{"1gi", 1073741824},
		{"3g", 3000000000},
		{"1.005k", 1005},
		{".5k", 500},
		{"5.", 5},
		{"007", 7},
		{"1.000", 1},
		{"18446744073709551615", UINT64_MAX},
		{"9007199254740993", 9007199254740993ull},
		{"18446744073709551.615k", UINT64_MAX},
	};
	static const char *const bad[] = {
		"",
		"k",
		".",
		"1.5",
		"-1",
		"+1",
		"1 k",
		" 1",
		"0x10",
		"1e3",
		"nan",
		"inf",
		"18446744073709551616",
		"1.0005k",
		"1x",
		"1.2.3",
		"1kk",
		"1s",
		"18446744073709551616k",
		"20000000000g",
		"0.0000000000000000001k",
	};
	uint64_t v;

	for (size_t i = 0; i < VB_ARRAY_SIZE(good); i++) {
		assert_int_equal(vb_parse_size(good[i].text, &v), 0);
		assert_int_equal(v, good[i].value);
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++) {
		v = 42;
		if (vb_parse_size(bad[i], &v) != -EINVAL)
			fail_msg("'%s' was taken as %llu", bad[i], (unsigned long long)v);
		assert_int_equal(v, 42);
	}
}

static void test_times(void **state)
{
	static const struct {
		const char *text;
		uint64_t ns;
	} good[] = {
		{"0", 0},           {"0.0", 0},         {"0s", 0},
		{"250ns", 250},     {"1.005us", 1005},  {"4.35us", 4350},
		{"1.5ms", 1500000}, {"2s", 2000000000}, {"0.1s", 100000000},
		{"3MS", 3000000},
	};
	static const char *const bad[] = {"5",    "1.5ns", "ms",          "", "1m", "1h",
					  "-1ms", "1msx",  "20000000000s"};
	uint64_t v;

	for (size_t i = 0; i < VB_ARRAY_SIZE(good); i++) {
		assert_int_equal(vb_parse_time_ns(good[i].text, &v), 0);
		assert_int_equal(v, good[i].ns);
	}
	for (size_t i = 0; i < VB_ARRAY_SIZE(bad); i++)
		assert_int_equal(vb_parse_time_ns(bad[i], &v), -EINVAL);
}

/* Whatever comes in: no crash, and what is taken is taken the same way again. */
static void test_random_text(void **state)
{
	static const char letters[] = "0123456789.eE+-kmgiunsxX ";
	struct vb_rng r;

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
	static const struct {
		double v;
		const char *ns, *count;
	} cases[] = {
		{0, "0ns", "0"},
		{0.5, "0.50ns", "0.50"},
		{7, "7ns", "7"},
		{999, "999ns", "999"},
		{999.6, "1.00us", "1.00k"},
		{1500, "1.50us", "1.50k"},
		{9996, "10.0us", "10.0k"},
		{12345, "12.3us", "12.3k"},
		{99960, "100us", "100k"},
		{1234567, "1.23ms", "1.23M"},
		{60e9, "60.0s", "60.0G"},
		{4e15, "4000000s", "4000T"},
	};
	char buf[16];

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		assert_string_equal(vb_format_ns(buf, sizeof(buf), cases[i].v), cases[i].ns);
		assert_string_equal(vb_format_count(buf, sizeof(buf), cases[i].v), cases[i].count);
	}
}

static void test_nearest(void **state)
{
	static const char *const names[] = {"cas",  "cas-backoff", "mcs",
					    "dslr", "shiftlock",   "retry-on-fail"};
	static const struct named {
		const char *name;
		int more;
	} mcs = {.name = "mcs"}, dslr = {.name = "dslr"};
	static const struct named *const list[] = {&mcs, &dslr, NULL};
	const size_t n = VB_ARRAY_SIZE(names);
	char endless[300], hint[VB_HINT_BYTES];

	assert_string_equal(vb_nearest("dsrl", names, n), "dslr");
	assert_string_equal(vb_nearest("shiftlok", names, n), "shiftlock");
	assert_string_equal(vb_nearest("shift-lock", names, n), "shiftlock");
	assert_string_equal(vb_nearest("mcs", names, n), "mcs");
	assert_string_equal(vb_nearest("retryonfail", names, n), "retry-on-fail");
	assert_null(vb_nearest("postgres", names, n));
	assert_null(vb_nearest("", names, n));
	assert_null(vb_nearest("dslr", names, 0));
	memset(endless, 'd', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	assert_null(vb_nearest(endless, names, n));
	assert_string_equal(vb_did_you_mean(hint, "dsrl", names, n), " (did you mean 'dslr'?)");
	assert_string_equal(vb_did_you_mean(hint, "postgres", names, n), "");
	assert_string_equal(vb_did_you_mean_any(hint, "dsrl", list), " (did you mean 'dslr'?)");
	assert_string_equal(vb_did_you_mean_any(hint, "postgres", list), "");
}

/* A time that whoever uses it finds; only where that is the default. */
static void test_auto(void **state)
{
	struct pause {
		uint64_t ns;
	} o;
	const struct vb_opt table[] = {
		VB_OPT_TIME(struct pause, ns, "pause", "auto", 1, 1000, "between two looks"),
		VB_OPT_END};
	struct opts plain;

	(void)state;
	vb_opt_defaults(table, &o);
	assert_true(o.ns == VB_OPT_AUTO);
	assert_int_equal(vb_opt_set(table, &o, "pause", "7ns"), 0);
	assert_int_equal(o.ns, 7);
	assert_int_equal(vb_opt_set(table, &o, "pause", "auto"), 0);
	assert_true(o.ns == VB_OPT_AUTO);
	assert_int_equal(vb_opt_set(table, &o, "pause", "2us"), -EINVAL);
	assert_int_equal(vb_opt_set(table, &o, "pause", "often"), -EINVAL);
	vb_opt_defaults(table, &plain);
	assert_int_equal(vb_opt_set(table, &plain, "lease", "auto"), -EINVAL);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(test_defaults, setup),
		cmocka_unit_test_setup(test_set, setup),
		cmocka_unit_test_setup(test_chosen, setup),
		cmocka_unit_test_setup(test_refused, setup),
		cmocka_unit_test_setup(test_list, setup),
		cmocka_unit_test_setup(test_args, setup),
		cmocka_unit_test_setup(test_presets, setup),
		cmocka_unit_test_setup(test_args_refused, setup),
		cmocka_unit_test_setup(test_help, setup),
		cmocka_unit_test(test_auto),
		cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_random_text),
		cmocka_unit_test(test_formats),
		cmocka_unit_test(test_nearest),
	};

	return cmocka_run_group_tests_name("base opt", tests, NULL, NULL);
}
