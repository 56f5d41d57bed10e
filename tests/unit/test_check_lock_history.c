/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Histories of locks: what is written is read back, what is wrong is named, and which histories
 * are those of a lock, written down by hand.
 *
 * A line of a case is "PROCESS TYPE F MODE@TIME", with what a grant has behind it; lock 0 unless
 * "/LOCK" stands behind the process.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/log.h"
#include "check/lock/history.h"

#define HEAD "{\"history\":\"locks\"}\n"

/* ---- by hand ---- */

struct lock_case {
	const char *what, *calls;
	const char *rule; /* "": it is a history of a lock */
};

/* a: acquire, c: convert, r: release; ? invoke, + ok, - fail, ~ info, ! lost; x s u: the mode. */
static const struct lock_case cases[] = {
	{"nothing was granted", "1?ax@1 1-a@2 2?ax@3 2~a@9", ""},
	{"one after the other", "1?ax@1 1+ax@2 1?r@3 1+r@4 2?ax@3 2+ax@5 2?r@6 2+r@7", ""},
	{"granted in the middle of a release", "1?ax@1 1+ax@2 1?r@4 2?ax@3 2+ax@5 1+r@9", ""},
	{"two writers", "1?ax@1 1+ax@2 2?ax@1 2+ax@3 1?r@4 1+r@5", "mode-conflict"},
	{"two writers of two locks", "1?ax@1 1+ax@2 2/1?ax@1 2/1+ax@3 1?r@4 1+r@5", ""},
	{"two readers", "1?as@1 1+as@2 2?as@1 2+as@3 1?r@4 1+r@5", ""},
	{"a reader and a writer", "1?as@1 1+as@2 2?ax@1 2+ax@3 1?r@4 1+r@5", "mode-conflict"},
	{"a writer and a reader", "1?ax@1 1+ax@2 2?as@1 2+as@3 1?r@4 1+r@5", "mode-conflict"},
	{"a writer after the first of two readers",
	 "1?as@1 1+as@2 2?as@1 2+as@3 1?r@4 1+r@5 3?ax@4 3+ax@6 2?r@7 2+r@8", "mode-conflict"},
	{"an update lock beside a reader", "1?as@1 1+as@2 2?au@1 2+au@3", ""},
	{"two update locks", "1?au@1 1+au@2 2?au@1 2+au@3", "mode-conflict"},
	{"never given back, without a lease", "1?ax@1 1+ax@2 2?ax@1 2+ax@900", "mode-conflict"},
	{"after the lease", "1?ax@1 1+ax<50@2 2?ax@1 2+ax@50", ""},
	{"before the end of the lease", "1?ax@1 1+ax<50@2 2?ax@1 2+ax@49", "mode-conflict"},
	{"over before it was asked for", "1?ax@10 1+ax<5@12", "expired-grant"},
	{"over as soon as it came", "1?ax@10 1+ax<11@12 2?ax@3 2+ax@13", ""},
	{"a release with success after another's grant",
	 "1?ax@1 1+ax<5@2 2?ax@3 2+ax@6 1?r@7 1+r@8", "foreign-release"},
	{"a release that says that it is lost", "1?ax@1 1+ax<5@2 2?ax@3 2+ax@6 1?r@7 1!r@8", ""},
	{"a release that nobody knows the end of", "1?ax@1 1+ax@2 1?r@3 1~r@9 2?ax@3 2+ax@4", ""},
	{"a release of which nobody knows, and once more", "1?ax@1 1+ax@2 1?r@3 1~r@4 1?r@5 1+r@6",
	 ""},
	{"a release in vain, and once more", "1?ax@1 1+ax@2 1?r@3 1-r@4 1?r@5 1+r@6", ""},
	{"a release in vain, and it is held still", "1?ax@1 1+ax@2 1?r@3 1-r@4 2?ax@3 2+ax@5",
	 "mode-conflict"},
	{"a conversion of what is not held", "1?cx@3 1+cx@4", "foreign-release"},
	{"a conversion of what was given back", "1?ax@1 1+ax@2 1?r@3 1+r@4 1?cs@5 1+cs@6",
	 "foreign-release"},
	{"a release of what is not held", "1?r@3 1+r@4", "foreign-release"},
	{"a release twice", "1?ax@1 1+ax@2 1?r@3 1+r@4 1?r@5 1+r@6", "foreign-release"},
	{"a release twice, refused", "1?ax@1 1+ax@2 1?r@3 1+r@4 1?r@5 1-r@6", ""},
	{"abandoned", "1?ax@1 1+ax@2 1~b@3 2?ax@1 2+ax@4", ""},
	{"a reader becomes a writer", "1?as@1 1+as@2 1?cx@3 1+cx@5 1?r@6 1+r@7", ""},
	{"... beside another reader", "1?as@1 1+as@2 2?as@1 2+as@2 1?cx@3 1+cx@5 2?r@6 2+r@7",
	 "mode-conflict"},
	{"... which leaves in time", "1?as@1 1+as@2 2?as@1 2+as@2 1?cx@3 2?r@4 1+cx@5 2+r@7", ""},
	{"... and meanwhile is one", "1?as@1 1+as@2 1?cx@3 2?ax@1 2+ax@4 1+cx@9", "mode-conflict"},
	{"... in vain", "1?as@1 1+as@2 1?cx@3 1-c@4 2?as@1 2+as@5", ""},
	{"... in vain, and is one still", "1?as@1 1+as@2 1?cx@3 1-c@4 2?ax@1 2+ax@5",
	 "mode-conflict"},
	{"a writer becomes a reader", "1?ax@1 1+ax@2 1?cs@3 2?as@3 2+as@4 1+cs@5", ""},
	{"... and no less", "1?ax@1 1+ax@2 1?cs@3 2?ax@3 2+ax@4 1+cs@5 1?r@6 1+r@7",
	 "mode-conflict"},
	{"... in vain, and is one still", "1?ax@1 1+ax@2 1?cs@3 1-c@4 2?as@3 2+as@5",
	 "mode-conflict"},
	{"tokens that grow", "1?ax@1 1+ax#5@2 1?r@3 1+r@4 2?ax@3 2+ax#7@5", ""},
	{"tokens that fall", "1?ax@1 1+ax#7@2 1?r@3 1+r@4 2?ax@3 2+ax#5@5", "token-order"},
	{"the same token twice", "1?ax@1 1+ax#7@2 1?r@3 1+r@4 2?ax@3 2+ax#7@5", "token-order"},
	{"tokens of two locks", "1?ax@1 1+ax#7@2 1?r@3 1+r@4 2/1?ax@3 2/1+ax#5@5", ""},
	{"a call without an end, and another life", "1?ax@1 2?ax@2 2+ax@3", ""},
};

static uint8_t mode_of(char c)
{
	return c == 'x' ? VB_EXCLUSIVE : c == 'u' ? VB_UPDATE : VB_SHARED;
}

static const char *read_call(const char *s, struct vb_lock_event *e)
{
	unsigned long long n;
	int used;

	*e = (struct vb_lock_event){.valid_until_ns = VB_FOREVER};
	assert_int_equal(sscanf(s, "%u%n", &e->process, &used), 1);
	e->client = e->process;
	s += used;
	if (*s == '/') {
		assert_int_equal(sscanf(s, "/%llu%n", &n, &used), 1);
		e->lock = n;
		s += used;
	}
	e->lost = *s == '!';
	e->type = *s == '?'   ? VB_LOCK_EVENT_INVOKE
		  : *s == '+' ? VB_LOCK_EVENT_OK
		  : *s == '~' ? VB_LOCK_EVENT_INFO
			      : VB_LOCK_EVENT_FAIL;
	s++;
	e->call = *s == 'a'   ? VB_LOCK_CALL_ACQUIRE
		  : *s == 'c' ? VB_LOCK_CALL_CONVERT
		  : *s == 'b' ? VB_LOCK_CALL_ABANDON
			      : VB_LOCK_CALL_RELEASE;
	for (s++; *s != '@'; s += used) {
		used = 1;
		if (*s == '#' && sscanf(s, "#%llu%n", &n, &used) == 1)
			e->token = n;
		else if (*s == '<' && sscanf(s, "<%llu%n", &n, &used) == 1)
			e->valid_until_ns = n;
		else
			e->mode = mode_of(*s);
	}
	assert_int_equal(sscanf(s, "@%llu%n", &n, &used), 1);
	e->at_ns = n;
	return s + used;
}

static struct vb_lock_history *read_calls(const char *s)
{
	struct vb_lock_history *h;
	struct vb_lock_event e;

	assert_int_equal(vb_lock_history_open(64, 0, &h), 0);
	for (; *s != '\0'; s += strspn(s, " ")) {
		s = read_call(s, &e);
		assert_true(vb_lock_history_add(h, &e));
	}
	return h;
}

static char *written(const struct vb_lock_history *h)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	assert_non_null(to);
	assert_int_equal(vb_lock_history_write(h, false, to), 0);
	fclose(to);
	return text;
}

static int read_what(const char *text, struct vb_lock_history **out, bool *fencing)
{
	FILE *from = fmemopen((void *)(uintptr_t)text, strlen(text), "r");
	struct vb_lines lines;
	int err;

	assert_non_null(from);
	vb_lines_open(&lines, from, "some.jsonl");
	err = vb_lock_history_read(&lines, out, fencing);
	vb_lines_close(&lines);
	fclose(from);
	return err;
}

static int read_text(const char *text, struct vb_lock_history **out)
{
	bool fencing;

	return read_what(text, out, &fencing);
}

/* Judged as it is, and as it is read back. */
static void judge_case(const struct lock_case *c, const struct vb_lock_history *h)
{
	struct vb_lock_verdict v;

	assert_int_equal(vb_lock_history_judge(&h, 1, false, &v), 0);
	if (*c->rule == '\0' && v.audit.violations != 0)
		fail_msg("%s: is no history of a lock:\n%s", c->what, v.story);
	if (*c->rule != '\0' && v.audit.violations == 0)
		fail_msg("%s: %s was not found", c->what, c->rule);
	/* Who had a lock beside another, and gave it back with success, did not have it until then. */
	for (unsigned r = 0; r < VB_AUDIT_RULES; r++)
		if (v.audit.by_rule[r] != 0 && strcmp(vb_audit_rule_names[r], c->rule) != 0 &&
		    (r != VB_AUDIT_FOREIGN_RELEASE || strcmp(c->rule, "mode-conflict") != 0))
			fail_msg("%s: found as %s\n%s", c->what, vb_audit_rule_names[r], v.story);
	assert_int_equal(v.story != NULL, *c->rule != '\0');
	if (v.story != NULL && strncmp(v.story, c->rule, strlen(c->rule)) != 0)
		fail_msg("%s: told as\n%s", c->what, v.story);
	free(v.story);
}

static void test_by_hand(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++) {
		struct vb_lock_history *h = read_calls(cases[i].calls), *back;
		char *text = written(h);

		judge_case(&cases[i], h);
		assert_int_equal(read_text(text, &back), 0);
		judge_case(&cases[i], back);
		vb_lock_history_close(back);
		vb_lock_history_close(h);
		free(text);
	}
}

/* ---- files ---- */

static void test_written_lines(void **state)
{
	struct vb_lock_history *h = read_calls(
		"1?ax@10 1+ax#9<50@20 1?cs@25 1+cs@26 1?r@30 1!r@40 2?as@15 2~a@45 2~b@50");
	char *text = written(h);

	/* In the order of time. */
	assert_string_equal(
		text,
		"{\"history\":\"locks\",\"fencing\":false}\n"
		"{\"process\":1,\"client\":1,\"type\":\"invoke\",\"f\":\"acquire\",\"lock\":0,"
		"\"time\":10,\"mode\":\"exclusive\"}\n"
		"{\"process\":2,\"client\":2,\"type\":\"invoke\",\"f\":\"acquire\",\"lock\":0,"
		"\"time\":15,\"mode\":\"shared\"}\n"
		"{\"process\":1,\"client\":1,\"type\":\"ok\",\"f\":\"acquire\",\"lock\":0,"
		"\"time\":20,\"mode\":\"exclusive\",\"token\":9,\"valid_until\":50}\n"
		"{\"process\":1,\"client\":1,\"type\":\"invoke\",\"f\":\"convert\",\"lock\":0,"
		"\"time\":25,\"mode\":\"shared\"}\n"
		"{\"process\":1,\"client\":1,\"type\":\"ok\",\"f\":\"convert\",\"lock\":0,"
		"\"time\":26,\"mode\":\"shared\"}\n"
		"{\"process\":1,\"client\":1,\"type\":\"invoke\",\"f\":\"release\",\"lock\":0,"
		"\"time\":30}\n"
		"{\"process\":1,\"client\":1,\"type\":\"fail\",\"f\":\"release\",\"lock\":0,"
		"\"time\":40,\"lost\":true}\n"
		"{\"process\":2,\"client\":2,\"type\":\"info\",\"f\":\"acquire\",\"lock\":0,"
		"\"time\":45}\n"
		"{\"process\":2,\"client\":2,\"type\":\"info\",\"f\":\"abandon\",\"lock\":0,"
		"\"time\":50}\n");
	free(text);
	vb_lock_history_close(h);
}

static void test_malformed(void **state)
{
#define LINE(type, f, more)                                                                        \
	"{\"process\":1,\"type\":\"" type "\",\"f\":\"" f "\",\"lock\":0,\"time\":1" more "}"
	static const struct {
		const char *text, *said;
	} wrong[] = {
		{"{", "some.jsonl, line 2, column 1 is no JSON"},
		{"{\"history\":\"transactions\"}", "'history' must be one of: \"locks\""},
		{"{\"history\":\"locks\",\"fencing\":1}", "'fencing' must be true or false"},
		{"{\"type\":\"ok\"}", "line 2: the field 'process' is missing"},
		{LINE("nok", "release", ""), "'type' must be one of: \"invoke\" \"ok\" \"fail\""},
		{LINE("ok", "free", ""), "'f' must be one of: \"acquire\" \"convert\" \"release\""},
		{LINE("invoke", "acquire", ""), "the field 'mode' is missing"},
		{LINE("invoke", "acquire", ",\"mode\":\"X\""), "must be one of: \"shared\""},
		{LINE("invoke", "release", ",\"mode\":\"shared\""), "'mode' is for calls"},
		{LINE("invoke", "release", ",\"token\":1"), "'token' is for grants"},
		{LINE("fail", "acquire", ",\"valid_until\":1"), "'valid_until' is for grants"},
		{LINE("ok", "release", ",\"lost\":true"), "'lost' is for failures"},
		{LINE("ok", "abandon", ""), "'type' of an abandon must be \"info\""},
		{LINE("ok", "release", ",\"tokn\":1"), "the field 'tokn' is not known"},
		{LINE("ok", "release", ",\"client\":4294967296"), "'client' must not be above"},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		char text[512], log[512] = "";
		struct vb_lock_history *h;

		snprintf(text, sizeof(text), HEAD "%s\n", wrong[i].text);
		vb_log_capture_begin(log, sizeof(log));
		assert_int_equal(read_text(text, &h), -EINVAL);
		vb_log_capture_end();
		if (strstr(log, wrong[i].said) == NULL)
			fail_msg("not in the error: %s\n%s", wrong[i].said, log);
	}
}

/* Lines that are right, and no history all the same. */
static void test_contradictions(void **state)
{
	static const struct {
		const char *calls, *said;
	} wrong[] = {
		{"7+ax@3", "process 7, lock 0, at 3 ns: an answer to what was not called"},
		{"7?ax@1 7+r@3", "an answer to what was not called"},
		{"7?ax@1 7?ax@3", "a call while another is under way"},
	};

	for (size_t i = 0; i < VB_ARRAY_SIZE(wrong); i++) {
		struct vb_lock_history *h = read_calls(wrong[i].calls);
		const struct vb_lock_history *part = h;
		struct vb_lock_verdict v;
		char log[256] = "";

		vb_log_capture_begin(log, sizeof(log));
		assert_int_equal(vb_lock_history_judge(&part, 1, false, &v), -EINVAL);
		vb_log_capture_end();
		assert_non_null(strstr(log, wrong[i].said));
		vb_lock_history_close(h);
	}
}

/* More than the reader's first guess, in several parts; and a history that is full is the first
 * events and says so. */
static void test_many(void **state)
{
	const struct vb_lock_history *parts[2];
	struct vb_lock_history *h, *back;
	struct vb_lock_verdict v;
	struct vb_lock_event e;
	char call[64], *text;
	bool full;

	assert_int_equal(vb_lock_history_open(20000, 0, &h), 0);
	for (unsigned i = 0; i < 5001; i++)
		for (unsigned k = 0; k < 4; k++) {
			static const char *const of[] = {"?ax", "+ax", "?r", "+r"};

			snprintf(call, sizeof(call), "%u%s@%u", i, of[k], 4 * i + k);
			(void)read_call(call, &e);
			assert_int_equal(vb_lock_history_add(h, &e), i < 5000);
		}
	assert_int_equal(vb_lock_history_count(h, &full), 20000);
	assert_true(full);
	text = written(h);
	assert_int_equal(read_text(text, &back), 0);
	assert_int_equal(vb_lock_history_count(back, &full), 20000);
	assert_false(full);
	parts[0] = back;
	parts[1] = read_calls("5000?ax@20000 5000+ax@20001");
	assert_int_equal(vb_lock_history_judge(parts, 2, false, &v), 0);
	assert_int_equal(v.audit.violations, 0);
	assert_int_equal(v.events, 20002);
	assert_int_equal(v.grants, 5001);
	assert_int_equal(v.locks, 1);
	free(text);
	vb_lock_history_close(h);
	vb_lock_history_close(back);
	vb_lock_history_close((struct vb_lock_history *)(uintptr_t)parts[1]);
}

/* Every exclusive grant has a token where the history says so. */
static void test_fencing(void **state)
{
	struct vb_lock_history *h = read_calls("1?ax@1 1+ax@2 1?r@3 1+r@4");
	const struct vb_lock_history *part = h;
	struct vb_lock_verdict v;

	assert_int_equal(vb_lock_history_judge(&part, 1, true, &v), 0);
	assert_int_equal(v.audit.by_rule[VB_AUDIT_TOKEN_ORDER], 1);
	assert_non_null(strstr(v.story, "granted without a token"));
	free(v.story);
	vb_lock_history_close(h);
}

/* Also where the file of a lock without fencing stands behind it. */
static void test_fencing_of_several(void **state)
{
	struct vb_lock_history *h;
	bool fencing;

	assert_int_equal(read_what("{\"history\":\"locks\",\"fencing\":true}\n" HEAD, &h, &fencing),
			 0);
	assert_true(fencing);
	vb_lock_history_close(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_by_hand),
		cmocka_unit_test(test_written_lines),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_contradictions),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_fencing),
		cmocka_unit_test(test_fencing_of_several),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
