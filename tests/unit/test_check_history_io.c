/* SPDX-License-Identifier: Apache-2.0 */
/* Histories as JSON lines and for other tools: what is written is read back, and what is wrong is
 * named. */
#include "history_fixture.h"

#include <errno.h>
#include <stdio.h>

#include "base/log.h"

/* ---- JSON lines ---- */

static char *written(const struct vb_history *const *parts, unsigned n,
		     int (*write)(const struct vb_history *const *parts, unsigned n, FILE *to))
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	assert_non_null(to);
	assert_int_equal(write(parts, n, to), 0);
	fclose(to);
	return text;
}

static int write_unclaimed(const struct vb_history *const *parts, unsigned n, FILE *to)
{
	return vb_history_write_jsonl(parts, n, VB_LEVEL_NONE, to);
}

static int write_claimed(const struct vb_history *const *parts, unsigned n, FILE *to)
{
	return vb_history_write_jsonl(parts, n, vb_history_claimed(parts[0]), to);
}

static int read_text(const char *text, struct vb_history **out)
{
	FILE *from = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	int err;

	assert_non_null(from);
	err = vb_history_read_jsonl(from, "some.jsonl", out);
	fclose(from);
	return err;
}

static void assert_same(const struct vb_history *a, const struct vb_history *b)
{
	const struct vb_history_op *ops[2];
	const struct vb_history_txn *t[2];
	uint64_t at[2] = {0};

	assert_int_equal(vb_history_count(a), vb_history_count(b));
	assert_int_equal(vb_history_claimed(a), vb_history_claimed(b));
	while (vb_history_next(a, &at[0], &t[0], &ops[0])) {
		assert_true(vb_history_next(b, &at[1], &t[1], &ops[1]));
		assert_memory_equal(t[0], t[1], sizeof(*t[0]));
		if (t[0]->n_ops > 0)
			assert_memory_equal(ops[0], ops[1], t[0]->n_ops * sizeof(*ops[0]));
	}
}

static void assert_round_trip(const struct vb_history *h)
{
	char *text = written(&h, 1, write_claimed);
	struct vb_history *back;

	assert_int_equal(read_text(text, &back), 0);
	assert_same(h, back);
	vb_history_close(back);
	free(text);
}

static void test_round_trip(void **state)
{
	struct vb_history *h = open_history(1 << 20);
	struct vb_history_op op = {.kind = VB_HISTORY_WRITE,
				   .key = UINT64_MAX,
				   .version = 1ull << 53,
				   .prev = (1ull << 53) - 1,
				   .table = UINT16_MAX,
				   .absent = 1};

	TXN(h, 1, R(5, 12), W(5, 13, 12), R_ABSENT(6, 0), DELETE(7, 9, 8));
	ABORTED(h, 2, W(1, 8, 0));
	UNKNOWN(h, 3, W(1, 9, 0));
	add_txn(h,
		(struct vb_history_txn){.id = UINT64_MAX,
					.begin_ns = UINT64_MAX - 1,
					.end_ns = UINT64_MAX,
					.client = UINT16_MAX,
					.type = UINT8_MAX},
		&op, 1);
	add_txn(h, (struct vb_history_txn){.id = 4}, NULL, 0);
	assert_round_trip(h);
	vb_history_close(h);
}

/* Larger than the first guess of how large it is. */
static void test_round_trip_large(void **state)
{
	struct store_params p = {.txns = 20000, .keys = 100, .ops = 8, .parts = 1, .seed = 5};
	struct vb_history *h = open_history(64 << 20);

	store_run(&p, &h);
	assert_round_trip(h);
	vb_history_close(h);
}

/* What it claims stands before the transactions, and nowhere else. */
static void test_claims(void **state)
{
	char text[160];
	struct vb_history *h;

	for (int level = VB_LEVEL_READ_COMMITTED; level < VB_LEVELS; level++) {
		h = open_history(1 << 16);
		TXN(h, 1, R(1, 0));
		vb_history_claim(h, (enum vb_level)level);
		assert_round_trip(h);
		vb_history_close(h);
		snprintf(text, sizeof(text), "{\"history\":\"transactions\",\"level\":\"%s\"}",
			 vb_level_names[level]);
		assert_int_equal(read_text(text, &h), 0);
		assert_int_equal(vb_history_claimed(h), level);
		assert_int_equal(vb_history_count(h), 0);
		vb_history_close(h);
	}
	assert_int_equal(read_text("{\"history\":\"transactions\"}", &h), 0);
	assert_int_equal(vb_history_claimed(h), VB_LEVEL_NONE);
	vb_history_close(h);
}

static void test_written_lines(void **state)
{
	struct vb_history *h = open_history(1 << 20);
	const struct vb_history *const parts[] = {h, h};
	char *text;

	TXN(h, 17, R_ABSENT(5, 12), W(5, 1ull << 60, 12));
	text = written(parts, 2, write_unclaimed);
#define LINE                                                                                       \
	"{\"id\":17,\"client\":17,\"type\":0,\"outcome\":\"committed\",\"begin_ns\":1000,"         \
	"\"end_ns\":2000,\"ops\":[{\"op\":\"r\",\"table\":0,\"key\":5,\"version\":12,"             \
	"\"absent\":true},{\"op\":\"w\",\"table\":0,\"key\":5,\"version\":\"1152921504606846976\"" \
	",\"prev\":12}]}\n"
	assert_string_equal(text, LINE LINE);
	free(text);
	vb_history_close(h);
}

/* What others write need not have what only stories and real time want. */
static void test_least_fields(void **state)
{
	struct vb_history *expect = open_history(1 << 16), *h;

	TXN_AT(expect, 0, VB_HISTORY_ABORTED, 0, 0, R(5, 8), W(5, 9, 8));
	assert_int_equal(read_text("\n{\"ops\": [{\"op\": \"r\", \"key\": 5, \"version\": 8}, "
				   "{\"key\": \"5\", \"version\": 9, \"prev\": 8, \"op\": \"w\"}], "
				   "\"outcome\": \"aborted\", \"id\": 0}\n  \r\n",
				   &h),
			 0);
	assert_same(expect, h);
	vb_history_close(h);
	vb_history_close(expect);
}

static void test_empty(void **state)
{
	struct vb_history *h;

	assert_int_equal(read_text("\n", &h), 0);
	assert_int_equal(vb_history_count(h), 0);
	vb_history_close(h);
}

#define HEAD      "{\"id\":1,\"outcome\":\"committed\","
#define OP(inner) HEAD "\"ops\":[{\"op\":\"r\",\"key\":1,\"version\":8},{" inner "}]}"

static void test_malformed(void **state)
{
	static const struct {
		const char *text, *said;
	} cases[] = {
		{"{\"id\":1", "some.jsonl, line 2, column 7 is no JSON"},
		{"[]", "some.jsonl, line 2 is no object"},
		{"{\"id\":1,\"id\":2}", "line 2, column"},
		{"{\"outcome\":\"committed\",\"ops\":[]}", "line 2: the field 'id' is missing"},
		{"{\"id\":1,\"ops\":[]}", "line 2: the field 'outcome' is missing"},
		{HEAD "\"client\":1}", "line 2: the field 'ops' is missing"},
		{HEAD "\"ops\":{}}", "line 2: the field 'ops' must be an array"},
		{"{\"id\":-1,\"outcome\":\"committed\",\"ops\":[]}",
		 "the field 'id' must be a whole"},
		{"{\"id\":1.5,\"outcome\":\"committed\",\"ops\":[]}",
		 "the field 'id' must be a whole"},
		{"{\"id\":\"1x\",\"outcome\":\"committed\",\"ops\":[]}",
		 "the field 'id' must be a"},
		{"{\"id\":\"18446744073709551616\",\"outcome\":\"aborted\",\"ops\":[]}",
		 "the field 'id' must be a whole"},
		{"{\"id\":1,\"outcome\":\"lost\",\"ops\":[]}",
		 "the field 'outcome' must be one of: \"committed\" \"aborted\" \"unknown\""},
		{HEAD "\"client\":65536,\"ops\":[]}", "the field 'client' must not be above 65535"},
		{HEAD "\"type\":256,\"ops\":[]}", "the field 'type' must not be above 255"},
		{HEAD "\"clinet\":1,\"ops\":[]}", "the field 'clinet' is not known"},
		{HEAD "\"begin_ns\":2,\"end_ns\":1,\"ops\":[]}", "the field 'end_ns' must not be"},
		{HEAD "\"ops\":[7]}", "line 2: operation 1 is no object"},
		{OP("\"op\":\"x\""), "the field 'op' of operation 2 must be one of: \"r\" \"w\""},
		{OP("\"op\":7"), "the field 'op' of operation 2 must be one of"},
		{OP("\"op\":\"r\",\"version\":8"), "the field 'key' of operation 2 is missing"},
		{OP("\"op\":\"r\",\"key\":8"), "the field 'version' of operation 2 is missing"},
		{OP("\"op\":\"w\",\"key\":8,\"version\":8"), "the field 'prev' of operation 2 is"},
		{OP("\"op\":\"r\",\"key\":8,\"version\":8,\"prev\":1"),
		 "the field 'prev' of operation"},
		{OP("\"op\":\"r\",\"key\":8,\"version\":8,\"absent\":1"),
		 "'absent' of operation 2 must"},
		{OP("\"op\":\"r\",\"key\":8,\"version\":8,\"table\":65536"),
		 "'table' of operation 2"},
		{OP("\"op\":\"r\",\"key\":null,\"version\":8"), "'key' of operation 2 must be a"},
		{"{\"history\":\"registers\"}", "'history' must be one of: \"transactions\""},
		{"{\"history\":\"transactions\",\"level\":\"none\"}",
		 "line 2: the field 'level' must be one of: \"read-committed\" "
		 "\"repeatable-read\" \"snapshot\" \"serializable\" "
		 "\"strict-serializable\""},
		{"{\"history\":\"transactions\",\"id\":1}", "the field 'id' is not known"},
		{"{\"history\":\"transactions\",\"level\":\"snapshot\"}\n"
		 "{\"history\":\"transactions\",\"level\":\"serializable\"}",
		 "line 3: the field 'level' is not what was claimed before"},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		char text[512], log[512] = "";
		struct vb_history *h = NULL;

		snprintf(text, sizeof(text), HEAD "\"ops\":[]}\n%s\n", cases[i].text);
		vb_log_capture_begin(log, sizeof(log));
		assert_int_equal(read_text(text, &h), -EINVAL);
		vb_log_capture_end();
		assert_null(h);
		if (strstr(log, cases[i].said) == NULL)
			fail_msg("not in the error: %s\n%s", cases[i].said, log);
	}
}

static void test_too_many_operations(void **state)
{
	char *text, log[256] = "";
	size_t size;
	FILE *to = open_memstream(&text, &size);
	struct vb_history *h;

	assert_non_null(to);
	fprintf(to, HEAD "\"ops\":[0");
	for (unsigned i = 0; i < VB_HISTORY_OPS_MAX; i++)
		fprintf(to, ",0");
	fprintf(to, "]}");
	fclose(to);
	vb_log_capture_begin(log, sizeof(log));
	assert_int_equal(read_text(text, &h), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(log, "line 1: the field 'ops' has more than 4096"));
	free(text);
}

static void test_cannot_write(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	const struct vb_history *const parts[] = {h};
	FILE *full = fopen("/dev/full", "w");
	char log[256] = "";

	if (full == NULL)
		skip();
	TXN(h, 1, R(1, 8));
	vb_log_capture_begin(log, sizeof(log));
	assert_int_equal(write_unclaimed(parts, 1, full), -ENOSPC);
	assert_int_equal(vb_history_write_edn(parts, 1, full), -ENOSPC);
	vb_log_capture_end();
	assert_non_null(strstr(log, "cannot write the history"));
	fclose(full);
	vb_history_close(h);
}

/* ---- for Elle ---- */

static void test_edn(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	const struct vb_history *const parts[] = {h};
	char *text;

	TXN_AT(h, 1, VB_HISTORY_COMMITTED, 10, 20, W(5, 9, 2), W(5, 8, 9), W(5, 8, 9));
	TXN_AT(h, 2, VB_HISTORY_COMMITTED, 20, 30, R(5, 8), R(6, 2), DELETE(5, 12, 8), R(5, 12));
	TXN_AT(h, 3, VB_HISTORY_ABORTED, 15, 25, R(5, 2), W(5, 13, 2));
	TXN_AT(h, 4, VB_HISTORY_UNKNOWN, 40, 50, W(6, 14, 0));
	text = written(parts, 1, vb_history_write_edn);
	assert_string_equal(
		text,
		"{:index 0, :type :invoke, :process 0, :time 10, :f :txn, :value "
		"[[:append \"0/5\" 9] [:append \"0/5\" 8]]}\n"
		"{:index 1, :type :invoke, :process 2, :time 15, :f :txn, :value "
		"[[:r \"0/5\" nil] [:append \"0/5\" 13]]}\n"
		"{:index 2, :type :invoke, :process 1, :time 20, :f :txn, :value "
		"[[:r \"0/5\" nil] [:r \"0/6\" nil] [:append \"0/5\" 12] [:r \"0/5\" nil]]}\n"
		"{:index 3, :type :ok, :process 0, :time 20, :f :txn, :value "
		"[[:append \"0/5\" 9] [:append \"0/5\" 8]]}\n"
		"{:index 4, :type :fail, :process 2, :time 25, :f :txn, :value "
		"[[:r \"0/5\" nil] [:append \"0/5\" 13]]}\n"
		"{:index 5, :type :ok, :process 1, :time 30, :f :txn, :value "
		"[[:r \"0/5\" [9 8]] [:r \"0/6\" []] [:append \"0/5\" 12] [:r \"0/5\" [9 8 12]]]}\n"
		"{:index 6, :type :invoke, :process 3, :time 40, :f :txn, :value "
		"[[:append \"0/6\" 14]]}\n"
		"{:index 7, :type :info, :process 3, :time 50, :f :txn, :value "
		"[[:append \"0/6\" 14]]}\n");
	free(text);
	vb_history_close(h);
}

/* By hand: the loader wrote all keys; sessions are transactions; T3 aborted, and nobody saw T4. */
static void test_text(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	const struct vb_history *const parts[] = {h};
	char *text;

	TXN(h, 17, R(500, 2), W(500, 9, 2), W(500, UINT64_MAX, 9), W(500, UINT64_MAX, 9));
	TXN(h, 21, R(500, UINT64_MAX), R_ABSENT(6, 3), DELETE(500, 12, UINT64_MAX), R(500, 12));
	ABORTED(h, 3, R(500, 2), W(500, 13, 2));
	UNKNOWN(h, 4, W(6, 14, 0));
	UNKNOWN(h, 5, W(7, 14, 0));
	TXN(h, 6, R(7, 14));
	text = written(parts, 1, vb_history_write_text);
	/* Key 500 is 1, with versions 1 (the loader's), 2 (9), 3 (the largest) and 5 (12); 6 is 2,
	 * with 4; 7 is 3, with 8 and 9. */
	assert_string_equal(text, "w(1,1,0,0)\n"
				  "w(2,4,0,0)\n"
				  "w(3,8,0,0)\n"
				  "r(1,1,1,1)\n"
				  "w(1,2,1,1)\n"
				  "w(1,3,1,1)\n"
				  "r(1,3,2,2)\n"
				  "r(2,4,2,2)\n"
				  "w(1,5,2,2)\n"
				  "r(1,5,2,2)\n"
				  "w(3,9,5,5)\n"
				  "r(3,9,6,6)\n");
	free(text);
	vb_history_close(h);
}

static void test_edn_of_a_ring(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	const struct vb_history *const parts[] = {h};
	char *text, log[256] = "";
	size_t size;
	FILE *to = open_memstream(&text, &size);

	TXN(h, 1, W(1, 8, 9));
	TXN(h, 2, W(1, 9, 8), R(1, 9));
	vb_log_capture_begin(log, sizeof(log));
	assert_int_equal(vb_history_write_edn(parts, 1, to), -EINVAL);
	vb_log_capture_end();
	assert_non_null(strstr(log, "key 1 replace each other in a ring"));
	fclose(to);
	free(text);
	vb_history_close(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),   cmocka_unit_test(test_round_trip_large),
		cmocka_unit_test(test_claims),       cmocka_unit_test(test_written_lines),
		cmocka_unit_test(test_least_fields), cmocka_unit_test(test_empty),
		cmocka_unit_test(test_malformed),    cmocka_unit_test(test_too_many_operations),
		cmocka_unit_test(test_cannot_write), cmocka_unit_test(test_edn),
		cmocka_unit_test(test_text),         cmocka_unit_test(test_edn_of_a_ring),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
