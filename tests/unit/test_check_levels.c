/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The levels of isolation on histories written down by hand: of each, what every level says.  What
 * a level allows must pass, and what it refuses must be found, by this name.
 *
 * A history is its transactions, one after the other, with ";" between them: "r1.8" reads key 1 at
 * version 8, "w1.9<8" makes version 9 out of 8, and "-" behind either says that the version is
 * absent.  They overlap in time unless "@FROM-TO" says when they ran; "a" stands before an aborted
 * one, "u" before one of unknown outcome.  One that has a level of its own has its letter: C read
 * committed, P repeatable read, N snapshot, S serializable, T strictly serializable.
 */
#include "history_fixture.h"

#include <stdio.h>

#include <errno.h>

#include "base/compiler.h"
#include "base/log.h"

#define OPS_MAX 16

struct levels_case {
	const char *what, *history;
	const char *found[5]; /* at each level from read committed on; "": it holds */
};

#define ALL(a) a, a, a, a, a

static const struct levels_case cases[] = {
	/* ---- what is right everywhere ---- */
	{"nothing", "", {ALL("")}},
	{"one after the other", "@1-2 r1.0 w1.8<0 ; @3-4 r1.8 w1.9<8 ; @5-6 r1.9", {ALL("")}},
	{"blind writes", "w1.8<0 w2.9<0 ; w1.10<8 w2.11<9", {ALL("")}},
	{"inserted and deleted again as one version", "w1.8<0 w1.8<0- r1.8- ; r1.8-", {ALL("")}},
	{"own writes read back", "r1.0 w1.8<0 r1.8 w1.9<8 r1.9", {ALL("")}},
	{"the same read twice", "r1.0 r2.0 r1.0 ; w1.8<0", {ALL("")}},
	{"deleted and inserted", "@1-2 r1.0 w1.8<0- ; @3-4 r1.8- w1.9<8 ; @5-6 r1.9", {ALL("")}},
	{"an aborted one may see anything", "a w1.8<0 ; a r1.8 r2.99 ; r1.0", {ALL("")}},
	{"unknown, and nobody has seen it", "u r1.0 w1.8<0 ; r1.0 w1.9<0", {ALL("")}},
	{"older than the newest, in time", "@1-9 w1.8<0 ; @2-3 r1.0 ; @4-8 r1.8", {ALL("")}},
	/* ---- what is wrong everywhere ---- */
	{"G0: two writers", "w1.8<0 w2.11<9 ; w1.10<8 w2.9<0", {ALL("G0")}},
	{"G0: three writers", "w1.8<0 w3.13<12 ; w1.9<8 w2.10<0 ; w2.11<10 w3.12<0", {ALL("G0")}},
	{"G1a: read", "a w1.8<0 ; r1.8", {ALL("G1a")}},
	{"G1a: replaced", "a w1.8<0 ; w1.9<8", {ALL("G1a")}},
	{"G1b", "w1.8<0 w1.9<8 ; r1.8", {ALL("G1b")}},
	{"G1b: and what came last", "w1.8<0 w1.9<8 ; r1.8 r2.0 ; r1.9", {ALL("G1b")}},
	{"G1c: each read the other", "w1.8<0 r2.9 ; w2.9<0 r1.8", {ALL("G1c")}},
	{"G1c: one replaced the other", "w1.8<0 r2.9 ; w1.10<8 w2.9<0", {ALL("G1c")}},
	{"internal: its write is ignored", "w1.11<0 r1.0", {ALL("internal")}},
	{"internal: its last write is ignored", "w1.11<0 w1.12<11 r1.11", {ALL("internal")}},
	{"internal: its own write, before it is made", "r1.8 w1.8<0", {ALL("internal")}},
	{"internal: its own delete is ignored", "w1.8<0- r1.8", {ALL("internal")}},
	{"internal: after another's write", "w1.8<0 ; r1.8 w1.9<8 r1.8", {ALL("internal")}},
	{"ghost", "r1.8", {ALL("ghost")}},
	{"ghost: replaced", "w1.9<8", {ALL("ghost")}},
	{"ghost: a delete that is not seen", "w1.8<0- ; r1.8", {ALL("ghost")}},
	{"ghost: a delete that was an insert", "w1.8<0 ; r1.8-", {ALL("ghost")}},
	{"fork", "w1.8<0 ; w1.9<8 ; w1.10<8", {ALL("fork")}},
	{"duplicate version", "w1.8<0 ; w1.8<0", {ALL("duplicate version")}},
	{"malformed version", "w1.7<0", {ALL("malformed version")}},
	{"unknown, seen, and wrong", "u w1.8<0 r2.9 ; w2.9<0 r1.8", {ALL("G1c")}},
	/* ---- what read committed allows, and nobody else ---- */
	{"lost update",
	 "r1.0 w1.9<8 ; r1.0 w1.8<0",
	 {"", "lost update", "lost update", "lost update", "lost update"}},
	{"lost update by one who saw another's",
	 "r1.8 w1.10<9 ; w1.8<0 ; w1.9<8",
	 {"", "lost update", "lost update", "lost update", "lost update"}},
	{"read skew",
	 "r1.0 r2.9 ; w1.8<0 w2.9<0",
	 {"", "G-single", "G-single", "G-single", "G-single"}},
	{"read skew through a third",
	 "r1.0 r3.10 ; w1.8<0 w2.9<0 ; r2.9 w3.10<0",
	 {"", "G-single", "G-single", "G-single", "G-single"}},
	{"another version at the second look",
	 "r1.0 r1.8 ; w1.8<0",
	 {"", "G-single", "G-single", "G-single", "G-single"}},
	{"back to the older version",
	 "r1.8 r1.0 ; w1.8<0",
	 {"", "G-single", "G-single", "G-single", "G-single"}},
	{"deleted between two looks",
	 "r1.0 r1.8- ; w1.8<0-",
	 {"", "G-single", "G-single", "G-single", "G-single"}},
	{"long fork",
	 "w1.8<0 ; w2.9<0 ; r1.8 r2.0 ; r1.0 r2.9",
	 {"", "long fork", "long fork", "long fork", "long fork"}},
	{"long fork of three",
	 "w1.8<0 ; w2.9<0 ; w3.10<0 ; r1.8 r2.0 ; r2.9 r3.0 ; r3.10 r1.0",
	 {"", "long fork", "long fork", "long fork", "long fork"}},
	{"long fork by writers",
	 "r4.0 w1.8<0 ; r1.0 w2.9<0 ; r2.9 w3.10<0 ; r3.0 w4.11<0 ; r3.10 r4.0 ; r4.11 r1.8 r2.0",
	 {"", "long fork", "long fork", "long fork", "long fork"}},
	/* ---- what snapshot allows, too ---- */
	{"write skew",
	 "r1.0 r2.0 w1.8<0 ; r1.0 r2.0 w2.9<0",
	 {"", "write skew", "", "write skew", "write skew"}},
	{"write skew, and a reader of both",
	 "r1.0 r2.0 w1.8<0 ; r1.0 r2.0 w2.9<0 ; @3000-4000 r1.8 r2.9",
	 {"", "write skew", "", "write skew", "write skew"}},
	{"a ring of three rw edges",
	 "r1.0 w2.8<0 ; r2.0 w3.9<0 ; r3.0 w1.10<0",
	 {"", "G2", "", "G2", "G2"}},
	{"the read-only transaction of Fekete, O'Neil and O'Neil",
	 "r2.0 w2.8<0 ; r1.0 r2.0 w1.9<0 ; r1.0 r2.8",
	 {"", "G2", "", "G2", "G2"}},
	{"two rw edges behind each other, and a wr",
	 "r1.0 r3.10 ; w1.8<0 r2.0 ; w2.9<0 w3.10<0",
	 {"", "G2", "", "G2", "G2"}},
	{"write skew in a ring of four",
	 "r1.0 w4.8<0 ; r2.0 w1.9<0 ; w2.10<0 w3.11<0 ; r3.11 r4.0",
	 {"", "G2", "", "G2", "G2"}},
	/* ---- what repeatable read allows: reads that found nothing ---- */
	{"phantom: both insert", "r1.0- w2.8<0 ; r2.0- w1.9<0", {"", "", "", "phantom", "phantom"}},
	{"phantom: a ring of three",
	 "r1.0- w2.8<0 ; r2.0- w3.9<0 ; r3.0- w1.10<0",
	 {"", "", "", "phantom", "phantom"}},
	{"phantom of one side", "r1.0- w2.8<0 ; r2.0 w1.9<0", {"", "", "", "phantom", "phantom"}},
	{"half of what was inserted",
	 "r1.0- r2.9 ; w1.8<0 w2.9<0",
	 {"", "", "G-single", "G-single", "G-single"}},
	{"it appears between two looks",
	 "r1.0- r1.8 ; w1.8<0",
	 {"", "", "G-single", "G-single", "G-single"}},
	{"both insert the same key",
	 "r1.0- w1.9<8 ; r1.0- w1.8<0",
	 {"", "", "lost update", "lost update", "lost update"}},
	{"long fork of inserts",
	 "w1.8<0 ; w2.9<0 ; r1.8 r2.0- ; r1.0- r2.9",
	 {"", "", "long fork", "long fork", "long fork"}},
	{"a write skew beside a phantom",
	 "r1.0 r2.0- w3.8<0 ; r3.0 w1.9<0 w2.10<0",
	 {"", "write skew", "", "write skew", "write skew"}},
	/* ---- what only strict refuses ---- */
	{"stale read", "@1-2 w1.8<0 ; @3-4 r1.0", {"", "", "", "", "real time"}},
	{"read of the future", "@1-2 r1.8 ; @3-4 w1.8<0", {"", "", "", "", "real time"}},
	{"the two reads of one write",
	 "@0-9 w1.8<0 ; @1-2 r1.8 ; @3-4 r1.0",
	 {"", "", "", "", "real time"}},
	{"replaced before it was there",
	 "@5-6 w1.8<0 ; @1-2 w1.9<8",
	 {"", "", "", "", "real time"}},
	{"as one ends the next begins", "@1-2 w1.8<0 ; @2-3 r1.0", {ALL("")}},
	{"unknown ones have no end", "u @1-2 w1.8<0 ; @3-4 r1.0 ; @5-6 r1.8", {ALL("")}},
	/* ---- the worst is told first ---- */
	{"G1c and write skew",
	 "w1.8<0 r2.9 ; w2.9<0 r1.8 ; r3.0 r4.0 w3.10<0 ; r3.0 r4.0 w4.11<0",
	 {ALL("G1c")}},
	{"lost update and write skew",
	 "r1.0 w1.9<8 ; r1.0 w1.8<0 ; r3.0 r4.0 w3.10<0 ; r3.0 r4.0 w4.11<0",
	 {"", "lost update", "lost update", "lost update", "lost update"}},
	{"write skew and a phantom",
	 "r1.0- w2.8<0 ; r2.0- w1.9<0 ; r3.0 r4.0 w3.10<0 ; r3.0 r4.0 w4.11<0",
	 {"", "write skew", "", "write skew", "write skew"}},
	{"a phantom and a stale read",
	 "r1.0- w2.8<0 ; r2.0- w1.9<0 ; @1-2 w3.8<0 ; @3-4 r3.0",
	 {"", "", "", "phantom", "phantom"}},
};

/* Transactions of several levels, each judged at its own; who has none, as serializable. */
static const struct {
	const char *what, *history, *found;
} mixed[] = {
	{"write skew, one of them read committed", "C r1.0 r2.0 w1.8<0 ; S r1.0 r2.0 w2.9<0", ""},
	{"write skew, one of them claims nothing", "C r1.0 w2.8<0 ; r2.0 w1.9<0", ""},
	{"write skew of repeatable reads", "P r1.0 w2.8<0 ; S r2.0 w1.9<0", "write skew"},
	{"an update lost by read committed", "C r1.0 w1.9<8 ; S r1.0 w1.8<0", ""},
	{"an update lost to read committed", "S r1.0 w1.9<8 ; C w1.8<0", "lost update"},
	{"an update lost by a repeatable read", "P r1.0 w1.9<8 ; C w1.8<0", "lost update"},
	{"read skew of read committed", "C r1.0 r2.9 ; T w1.8<0 w2.9<0", ""},
	{"read skew of repeatable reads", "P r1.0 r2.9 ; C w1.8<0 w2.9<0", "G-single"},
	{"another version at the second look, read committed", "C r1.0 r1.8 ; S w1.8<0", ""},
	{"another version at the second look", "S r1.0 r1.8 ; C w1.8<0", "G-single"},
	{"a phantom for a repeatable read", "P r1.0- w2.8<0 ; S r2.0- w1.9<0", ""},
	{"a phantom for read committed", "C r1.0- w2.8<0 ; S r2.0- w1.9<0", ""},
	{"a phantom for both", "S r1.0- w2.8<0 ; T r2.0- w1.9<0", "phantom"},
	{"a ring of three, one of them read committed",
	 "S r1.0 w2.8<0 ; C r2.0 w3.9<0 ; P r3.0 w1.10<0", ""},
	{"a ring of three without it", "S r1.0 w2.8<0 ; P r2.0 w3.9<0 ; P r3.0 w1.10<0", "G2"},
	{"each read the other", "C w1.8<0 r2.9 ; S w2.9<0 r1.8", "G1c"},
	{"two writers", "C w1.8<0 w2.11<9 ; P w1.10<8 w2.9<0", "G0"},
	{"read from an aborted one", "a w1.8<0 ; C r1.8", "G1a"},
	{"its own write is ignored", "C w1.11<0 r1.0 ; S r1.0", "internal"},
	{"stale read of read committed", "T @1-2 w1.8<0 ; C @3-4 r1.0", ""},
	{"stale read of a serializable one", "T @1-2 w1.8<0 ; S @3-4 r1.0", ""},
	{"stale read of what read committed wrote", "C @1-2 w1.8<0 ; T @3-4 r1.0", "real time"},
};

/* ---- reading them ---- */

static const char *behind_blanks(const char *s)
{
	return s + strspn(s, " ");
}

static const char *read_op(const char *s, struct vb_history_op *op)
{
	unsigned long long key, version, prev;
	int used = 0;

	*op = (struct vb_history_op){.kind = *s == 'w' ? VB_HISTORY_WRITE : VB_HISTORY_READ};
	if (*s == 'w')
		assert_int_equal(sscanf(s, "w%llu.%llu<%llu%n", &key, &version, &prev, &used), 3);
	else
		assert_int_equal(sscanf(s, "r%llu.%llu%n", &key, &version, &used), 2);
	op->key = key;
	op->version = version;
	op->prev = *s == 'w' ? prev : 0;
	s += used;
	op->absent = *s == '-';
	return s + op->absent;
}

static const char *read_txn(const char *s, uint64_t id, struct vb_history *h)
{
	struct vb_history_txn t = {.id = id, .begin_ns = 1000, .end_ns = 2000};
	struct vb_history_op ops[OPS_MAX];
	unsigned long long from, to;
	size_t n = 0;
	int used;

	for (s = behind_blanks(s); *s != '\0' && *s != ';'; s = behind_blanks(s)) {
		if (*s == 'a' || *s == 'u') {
			t.outcome = *s++ == 'a' ? VB_HISTORY_ABORTED : VB_HISTORY_UNKNOWN;
		} else if (strchr("CPNST", *s) != NULL) {
			static const char letters[] = " CPNST";

			t.level = (uint8_t)(strchr(letters, *s++) - letters);
		} else if (*s == '@') {
			assert_int_equal(sscanf(s, "@%llu-%llu%n", &from, &to, &used), 2);
			t.begin_ns = from;
			t.end_ns = to;
			s += used;
		} else {
			assert_true(n < OPS_MAX);
			s = read_op(s, &ops[n++]);
		}
	}
	add_txn(h, t, ops, n);
	return *s == ';' ? s + 1 : s;
}

static struct vb_history *read_history(const char *s)
{
	struct vb_history *h = open_history(1 << 14);

	for (uint64_t id = 1; *s != '\0'; id++)
		s = read_txn(s, id, h);
	return h;
}

static void judge_case(const struct levels_case *c, enum vb_level level, bool each,
		       const char *expect)
{
	struct vb_history *h = read_history(c->history);
	const struct vb_history *const parts[] = {h};
	struct vb_serial_params p = {.parts = parts, .n_parts = 1, .level = level, .each = each};
	struct vb_serial_result r;

	assert_int_equal(vb_serial_check(&p, &r), 0);
	if (*expect == '\0' && r.first != VB_ANOMALY_NONE)
		fail_msg("%s: %s refuses it:\n%s", c->what, vb_level_names[level], r.story);
	if (*expect != '\0' && strcmp(vb_anomaly_names[r.first], expect) != 0)
		fail_msg("%s: %s calls it '%s', not '%s'", c->what, vb_level_names[level],
			 vb_anomaly_names[r.first], expect);
	if (*expect != '\0' && strncmp(r.story, expect, strlen(expect)) != 0)
		fail_msg("%s: %s tells it as\n%s", c->what, vb_level_names[level], r.story);
	assert_true(*expect == '\0' || r.found[r.first] > 0);
	vb_serial_result_free(&r);
	vb_history_close(h);
}

static void test_levels(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++)
		for (int level = VB_LEVEL_READ_COMMITTED; level < VB_LEVELS; level++)
			judge_case(&cases[i], (enum vb_level)level, false,
				   cases[i].found[level - VB_LEVEL_READ_COMMITTED]);
}

/* Without a level, as serializable. */
static void test_no_level(void **state)
{
	const struct levels_case stale = {"stale read", "@1-2 w1.8<0 ; @3-4 r1.0", {""}};
	const struct levels_case skew = {"skew", "r1.0 w2.8<0 ; r2.0 w1.9<0", {""}};

	judge_case(&stale, VB_LEVEL_NONE, false, "");
	judge_case(&skew, VB_LEVEL_NONE, false, "write skew");
}

static void test_mixed(void **state)
{
	for (size_t i = 0; i < VB_ARRAY_SIZE(mixed); i++) {
		const struct levels_case c = {mixed[i].what, mixed[i].history, {""}};

		judge_case(&c, VB_LEVEL_SERIALIZABLE, true, mixed[i].found);
	}
}

/* What each claims is looked at only where that is asked for; and how many there are is told. */
static void test_one_for_all(void **state)
{
	const struct levels_case skew = {"skew", "C r1.0 w2.8<0 ; S r2.0 w1.9<0 ; C r3.0", {""}};
	struct vb_history *h = read_history(skew.history);
	const struct vb_history *const parts[] = {h};
	struct vb_serial_params p = {.parts = parts, .n_parts = 1, .each = true};
	struct vb_serial_result r;

	judge_case(&skew, VB_LEVEL_SERIALIZABLE, false, "write skew");
	judge_case(&skew, VB_LEVEL_READ_COMMITTED, false, "");
	assert_int_equal(vb_serial_check(&p, &r), 0);
	assert_int_equal(r.at[VB_LEVEL_READ_COMMITTED], 2);
	assert_int_equal(r.at[VB_LEVEL_SERIALIZABLE], 1);
	assert_int_equal(r.level, VB_LEVEL_SERIALIZABLE);
	vb_history_close(h);
}

static void test_snapshot_alone(void **state)
{
	static const struct levels_case all = {"all", "N r1.0 w2.8<0 ; N r2.0 w1.9<0", {""}};
	struct vb_history *h = read_history("N r1.0 ; C r1.0");
	const struct vb_history *const parts[] = {h};
	struct vb_serial_params p = {.parts = parts, .n_parts = 1, .each = true};
	struct vb_serial_result r;
	char said[512] = "";
	int err;

	judge_case(&all, VB_LEVEL_STRICT, true, "");
	vb_log_capture_begin(said, sizeof(said));
	err = vb_serial_check(&p, &r);
	vb_log_capture_end();
	assert_int_equal(err, -EINVAL);
	assert_non_null(strstr(said, "--level"));
	vb_history_close(h);
}

/* Every anomaly is refused by some case, and every level allows some that the next refuses. */
static void test_all_are_there(void **state)
{
	bool refused[VB_ANOMALIES] = {false};

	for (size_t i = 0; i < VB_ARRAY_SIZE(cases); i++)
		for (int level = 0; level < 5; level++)
			for (int a = 1; a < VB_ANOMALIES; a++)
				refused[a] |= !strcmp(cases[i].found[level], vb_anomaly_names[a]);
	for (int a = 1; a < VB_ANOMALIES; a++)
		if (!refused[a])
			fail_msg("no case shows '%s'", vb_anomaly_names[a]);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_levels),        cmocka_unit_test(test_no_level),
		cmocka_unit_test(test_all_are_there), cmocka_unit_test(test_mixed),
		cmocka_unit_test(test_one_for_all),   cmocka_unit_test(test_snapshot_alone),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
