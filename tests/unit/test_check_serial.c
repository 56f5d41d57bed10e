/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The serializability checker on histories written down by hand: each anomaly is found under its
 * name and told, and what is serializable is called so.
 */
#include "history_fixture.h"

#include <errno.h>

#include "base/log.h"

/* ---- what is expected ---- */

static struct vb_serial_result check(struct vb_history *h, bool strict)
{
	const struct vb_history *const parts[] = {h};
	struct vb_serial_result r = check_parts(parts, 1, strict);

	vb_history_close(h);
	return r;
}

static void assert_clean(struct vb_history *h, bool strict)
{
	struct vb_serial_result r = check(h, strict);

	if (r.story != NULL)
		fail_msg("%s", r.story);
	assert_int_equal(r.first, VB_ANOMALY_NONE);
	for (int i = 0; i < VB_ANOMALIES; i++)
		assert_int_equal(r.found[i], 0);
	vb_serial_result_free(&r);
}

static void assert_found_as(struct vb_history *h, bool strict, enum vb_anomaly what,
			    const char *said)
{
	struct vb_serial_result r = check(h, strict);

	assert_string_equal(vb_anomaly_names[r.first], vb_anomaly_names[what]);
	assert_true(r.found[what] > 0);
	assert_int_equal(strncmp(r.story, vb_anomaly_names[what], strlen(vb_anomaly_names[what])),
			 0);
	if (strstr(r.story, said) == NULL)
		fail_msg("not in the story: %s\n%s", said, r.story);
	vb_serial_result_free(&r);
	assert_null(r.story);
}

static void assert_found(struct vb_history *h, enum vb_anomaly what, const char *said)
{
	assert_found_as(h, false, what, said);
}

static void assert_refused(struct vb_history *h, const char *said)
{
	const struct vb_history *const parts[] = {h};
	struct vb_serial_params p = {.parts = parts, .n_parts = 1};
	struct vb_serial_result r;
	char log[256] = "";

	vb_log_capture_begin(log, sizeof(log));
	assert_int_equal(vb_serial_check(&p, &r), -EINVAL);
	vb_log_capture_end();
	if (strstr(log, said) == NULL)
		fail_msg("not in the error: %s\n%s", said, log);
	assert_null(r.story);
	vb_history_close(h);
}

/* ---- every anomaly ---- */

static void test_g0(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), W(2, 11, 9));
	TXN(h, 2, W(1, 10, 8), W(2, 9, 0));
	assert_found(h, VB_ANOMALY_G0,
		     "T1 (transfer, client 1) wrote version 8 of account/1, which T2 replaced with "
		     "10; so T1 comes before T2");
}

/* Three transactions, each before the next by another key, and two more with nothing wrong. */
static void test_g0_of_three(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), W(3, 13, 12));
	TXN(h, 2, W(1, 9, 8), W(2, 10, 0));
	TXN(h, 3, W(2, 11, 10), W(3, 12, 0));
	TXN(h, 4, W(4, 14, 0));
	TXN(h, 5, R(4, 14));
	assert_found(h, VB_ANOMALY_G0, "a cycle of 3 transactions");
}

static void test_g1a(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	ABORTED(h, 1, W(1, 8, 0));
	TXN(h, 2, R(1, 8));
	assert_found(h, VB_ANOMALY_G1A,
		     "T2 (transfer, client 2) read account/1 at version 8; that version is T1's, "
		     "which aborted");
}

static void test_g1a_by_replacing(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	ABORTED(h, 1, W(1, 8, 0));
	TXN(h, 2, W(1, 9, 8));
	assert_found(h, VB_ANOMALY_G1A, "T2 (transfer, client 2) replaced version 8 of account/1");
}

static void test_g1b(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), W(1, 9, 8));
	TXN(h, 2, R(1, 8));
	assert_found(h, VB_ANOMALY_G1B, "T1 wrote that version and replaced it with 9 itself");
}

static void test_g1c(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), R(2, 9));
	TXN(h, 2, W(2, 9, 0), R(1, 8));
	assert_found(h, VB_ANOMALY_G1C,
		     "wrote version 8 of account/1, which T2 read; so T1 comes before T2");
}

static void test_lost_update(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 17, R(5, 0), W(5, 14, 13));
	TXN(h, 21, R(5, 0), W(5, 13, 0));
	assert_found(h, VB_ANOMALY_LOST_UPDATE,
		     "T17 (transfer, client 17) read account/5 at version 0, which T21 replaced "
		     "with 13; so T17 comes before T21");
}

/* Both replaced the very same version: it is also a fork, and the lost update is worse. */
static void test_lost_update_in_a_fork(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	TXN(h, 1, R(5, 0), W(5, 13, 0));
	TXN(h, 2, R(5, 0), W(5, 14, 0));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_LOST_UPDATE);
	assert_int_equal(r.found[VB_ANOMALY_LOST_UPDATE], 1);
	assert_int_equal(r.found[VB_ANOMALY_FORK], 1);
	vb_serial_result_free(&r);
}

static void test_write_skew(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, R(1, 0), R(2, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 0), R(2, 0), W(2, 9, 0));
	assert_found(h, VB_ANOMALY_WRITE_SKEW,
		     "T2 (transfer, client 2) read account/1 at version 0, which T1 replaced with "
		     "8; so T2 comes before T1");
}

static void test_g_single(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), W(2, 9, 0));
	TXN(h, 2, R(1, 8), R(2, 0));
	assert_found(h, VB_ANOMALY_G_SINGLE, "which T2 read; so T1 comes before T2");
}

/* Its own write of the key, read back, is no lost update. */
static void test_g_single_after_own_write(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), R(1, 8), W(2, 10, 0));
	TXN(h, 2, W(1, 9, 8), W(3, 11, 0));
	TXN(h, 3, R(3, 11), R(2, 0));
	assert_found(h, VB_ANOMALY_G_SINGLE, "a cycle of 3 transactions");
}

static void test_g2(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, R(1, 0), W(2, 8, 0));
	TXN(h, 2, R(2, 0), W(3, 9, 0));
	TXN(h, 3, R(3, 0), W(1, 10, 0));
	assert_found(h, VB_ANOMALY_G2, "a cycle of 3 transactions");
}

/* The read-only transaction anomaly of Fekete, O'Neil and O'Neil (2004). */
static void test_read_only_anomaly(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, R(2, 0), W(2, 8, 0));
	TXN(h, 2, R(1, 0), R(2, 0), W(1, 9, 0));
	TXN(h, 3, R(1, 0), R(2, 8));
	assert_found(h, VB_ANOMALY_G2, "T3 (transfer, client 3) read account/1 at version 0");
}

static struct vb_history *stale_read(void)
{
	struct vb_history *h = open_history(1 << 16);

	TXN_AT(h, 1, VB_HISTORY_COMMITTED, 1000, 2000, W(1, 8, 0));
	TXN_AT(h, 2, VB_HISTORY_COMMITTED, 2500, 3000, R(2, 0));
	TXN_AT(h, 3, VB_HISTORY_COMMITTED, 3500, 4000, R(1, 0));
	return h;
}

static void test_real_time(void **state)
{
	assert_clean(stale_read(), false);
	assert_found_as(stale_read(), true, VB_ANOMALY_REAL_TIME,
			"T1 (transfer, client 1) ended at 2.000 us, before T3 began at 3.500 us; "
			"so T1 comes before T3");
}

/* Each of two reads is stale by what the other had seen when it ended. */
static void test_real_time_of_four(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN_AT(h, 1, VB_HISTORY_COMMITTED, 0, 9000, W(1, 8, 0));
	TXN_AT(h, 2, VB_HISTORY_COMMITTED, 1000, 2000, R(1, 8));
	TXN_AT(h, 3, VB_HISTORY_COMMITTED, 3000, 4000, R(1, 0));
	assert_found_as(h, true, VB_ANOMALY_REAL_TIME, "a cycle of 3 transactions");
}

static void test_no_real_time_between_neighbours(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	/* The one ends as the other begins: they count as overlapping. */
	TXN_AT(h, 1, VB_HISTORY_COMMITTED, 1000, 2000, W(1, 8, 0));
	TXN_AT(h, 2, VB_HISTORY_COMMITTED, 2000, 3000, R(1, 0));
	assert_clean(h, true);

	/* A commit that nobody saw end may have come after the read. */
	h = open_history(1 << 16);
	TXN_AT(h, 1, VB_HISTORY_UNKNOWN, 1000, 2000, W(1, 8, 0));
	TXN_AT(h, 2, VB_HISTORY_COMMITTED, 3000, 4000, R(1, 0));
	TXN_AT(h, 3, VB_HISTORY_COMMITTED, 5000, 6000, R(1, 8));
	assert_clean(h, true);
}

static void test_anomaly_in_strict_is_no_real_time(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	TXN_AT(h, 1, VB_HISTORY_COMMITTED, 1000, 2000, R(1, 0), R(2, 0), W(1, 8, 0));
	TXN_AT(h, 2, VB_HISTORY_COMMITTED, 3000, 4000, R(1, 0), R(2, 0), W(2, 9, 0));
	r = check(h, true);
	assert_int_equal(r.first, VB_ANOMALY_WRITE_SKEW);
	assert_int_equal(r.found[VB_ANOMALY_REAL_TIME], 0);
	vb_serial_result_free(&r);
}

static void test_fork(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0));
	TXN(h, 2, W(1, 9, 8));
	TXN(h, 3, W(1, 10, 8));
	assert_found(h, VB_ANOMALY_FORK, "replaced version 8 of account/1 with 10");
}

static void test_fork_of_the_loaders(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	/* Whichever number the loader's version has. */
	TXN(h, 1, W(1, 8, 1));
	TXN(h, 2, W(1, 9, 2));
	assert_found(h, VB_ANOMALY_FORK, "replaced version 2 of account/1 with 9");
}

static void test_the_same_version_twice(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	TXN(h, 1, W(1, 8, 0));
	TXN(h, 2, W(1, 9, 8));
	TXN(h, 3, W(1, 9, 8));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_DUPLICATE);
	assert_int_equal(r.found[VB_ANOMALY_DUPLICATE], 1);
	assert_int_equal(r.found[VB_ANOMALY_FORK], 0);
	assert_non_null(strstr(r.story, "T3 (transfer, client 3) replaced version 8"));
	vb_serial_result_free(&r);

	/* ... and the loader's was replaced by two of them. */
	h = open_history(1 << 16);
	TXN(h, 1, W(1, 8, 0));
	TXN(h, 2, W(1, 9, 8));
	TXN(h, 3, W(1, 9, 0));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_DUPLICATE);
	assert_int_equal(r.found[VB_ANOMALY_FORK], 1);
	vb_serial_result_free(&r);

	/* Only one of them happened, whichever came first in the history. */
	h = open_history(1 << 16);
	ABORTED(h, 1, W(1, 8, 0));
	TXN(h, 2, W(1, 8, 0));
	UNKNOWN(h, 3, W(1, 8, 0));
	TXN(h, 4, R(1, 8));
	assert_clean(h, true);
}

static void test_ghost(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, R(1, 8));
	assert_found(h, VB_ANOMALY_GHOST, "no transaction of the history made version 8");

	h = open_history(1 << 16);
	TXN(h, 1, W(1, 9, 8));
	assert_found(h, VB_ANOMALY_GHOST, "no transaction of the history made version 8");
}

/* Nobody comes between a transaction's own operations. */
static void test_internal(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	TXN(h, 1, W(1, 11, 0), R(1, 0));
	assert_found(h, VB_ANOMALY_INTERNAL,
		     "T1 (transfer, client 1) read account/1 at version 0; it had written version "
		     "11 of it before");
	h = open_history(1 << 16);
	TXN(h, 1, W(1, 11, 0), W(1, 12, 11), R(1, 11));
	assert_found(h, VB_ANOMALY_INTERNAL, "it had written version 12 of it before");
	h = open_history(1 << 16);
	TXN(h, 1, W(1, 11, 0));
	TXN(h, 2, R(1, 11), R(2, 0), R(1, 0));
	r = check(h, false);
	assert_int_equal(r.found[VB_ANOMALY_INTERNAL], 1);
	vb_serial_result_free(&r);
}

/* Its own writes, the same version again, and another key. */
static void test_own_operations(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, R(1, 4), R(1, 0), W(1, 11, 0), R(1, 11), W(1, 12, 11), R(1, 12), R(2, 0));
	TXN(h, 2, R(1, 12), R(2, 0), R(1, 12));
	assert_clean(h, true);
}

/* What an aborted transaction saw proves nothing. */
static void test_aborted_may_see_anything(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	ABORTED(h, 1, W(1, 8, 0), R(2, 0));
	ABORTED(h, 2, R(1, 8), R(3, 99), W(2, 9, 0));
	TXN(h, 3, R(1, 0), R(2, 0));
	assert_clean(h, true);
}

static void test_several_at_once(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	TXN(h, 1, R(1, 0), R(2, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 0), R(2, 0), W(2, 9, 0));
	TXN(h, 3, R(11, 0), R(12, 0), W(11, 8, 0));
	TXN(h, 4, R(11, 0), R(12, 0), W(12, 9, 0));
	TXN(h, 5, W(21, 8, 0), R(22, 9));
	TXN(h, 6, W(22, 9, 0), R(21, 8));
	TXN(h, 7, R(31, 77));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_G1C);
	assert_int_equal(r.found[VB_ANOMALY_WRITE_SKEW], 2);
	assert_int_equal(r.found[VB_ANOMALY_G1C], 1);
	assert_int_equal(r.found[VB_ANOMALY_GHOST], 1);
	assert_non_null(strstr(r.story, "T5"));
	vb_serial_result_free(&r);
}

/* A ring in which each read what the next replaced: all of it is one component. */
static void test_long_cycle(void **state)
{
	struct vb_history *h = open_history(16 << 20);
	struct vb_serial_result r;
	const uint64_t n = 50000;

	for (uint64_t i = 0; i < n; i++)
		TXN(h, i, R(i, 0), W((i + 1) % n, 8, 0));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_G2);
	assert_int_equal(r.found[VB_ANOMALY_G2], 1);
	assert_non_null(strstr(r.story, "a cycle of 50000 transactions"));
	assert_non_null(strstr(r.story, "and 49976 more"));
	vb_serial_result_free(&r);
}

/* Thousands replaced the same version: many edges, but not one for each pair. */
static void test_wide_fork(void **state)
{
	struct vb_history *h = open_history(64 << 20);
	struct vb_serial_result r;
	const uint64_t n = 100000;

	for (uint64_t i = 0; i < n; i++)
		TXN(h, i, R(1, 0), W(1, 8 + i, 0), R(1, 8 + i));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_LOST_UPDATE);
	assert_int_equal(r.found[VB_ANOMALY_FORK], n - 1);
	vb_serial_result_free(&r);
}

/* ---- what is right ---- */

static void test_nothing(void **state)
{
	assert_clean(open_history(1 << 16), true);
}

static void test_serial(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	/* Blind writes, a key twice in a transaction, own writes read back, in the order 2, 1,
	 * 3. */
	TXN(h, 1, R(1, 9), W(1, 10, 9), R(1, 10), W(1, 11, 10), R(1, 11), R(2, 0));
	TXN(h, 2, R(1, 1), W(1, 8, 1), W(1, 9, 8), R(3, 0));
	TXN(h, 3, R(1, 11), W(2, 8, 0), W(3, 8, 3), R(2, 8));
	r = check(h, true);
	assert_int_equal(r.first, VB_ANOMALY_NONE);
	assert_int_equal(r.txns, 3);
	assert_int_equal(r.committed, 3);
	assert_int_equal(r.reads, 8);
	assert_int_equal(r.writes, 6);
	assert_int_equal(r.keys, 3);
	vb_serial_result_free(&r);
}

static void test_deleted_and_inserted(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, R_ABSENT(1, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 8), DELETE(1, 9, 8));
	TXN(h, 3, R_ABSENT(1, 9));
	TXN(h, 4, R_ABSENT(1, 9), W(1, 10, 9));
	assert_clean(h, false);

	/* Who finds nothing comes before who inserts, as with any other version. */
	h = open_history(1 << 16);
	TXN(h, 1, R_ABSENT(1, 0), W(2, 8, 0));
	TXN(h, 2, R_ABSENT(2, 0), W(1, 8, 0));
	assert_found(h, VB_ANOMALY_PHANTOM, "at version 0 (absent)");
}

static void test_a_write_told_twice(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 8));
	assert_clean(h, true);
}

static void test_tables_are_apart(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_history_op ops[] = {W(1, 8, 0), W(1, 8, 0)};

	ops[1].table = 1;
	add_txn(h, (struct vb_history_txn){.id = 1}, ops, 2);
	assert_clean(h, true);
}

/* ---- unknown outcomes ---- */

static void test_unknown_and_not_seen(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	/* Had it committed, there would be a fork and a lost update. */
	UNKNOWN(h, 1, R(1, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 0), W(1, 9, 0));
	r = check(h, true);
	assert_int_equal(r.first, VB_ANOMALY_NONE);
	assert_int_equal(r.unknown, 1);
	assert_int_equal(r.committed, 1);
	vb_serial_result_free(&r);
}

static void test_unknown_and_read(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	UNKNOWN(h, 1, R(1, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 0), W(1, 9, 8));
	assert_found(h, VB_ANOMALY_LOST_UPDATE, "but was seen, so it counts as committed");

	h = open_history(1 << 16);
	UNKNOWN(h, 1, W(1, 8, 0));
	TXN(h, 2, R(1, 8));
	assert_clean(h, true);
}

/* T1 was seen only by T2, which was seen only by T3, which committed. */
static void test_unknown_seen_by_unknown(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	UNKNOWN(h, 1, W(1, 8, 0), R(9, 0));
	UNKNOWN(h, 2, W(1, 9, 8));
	TXN(h, 3, R(1, 9), W(9, 8, 0));
	TXN(h, 4, R(9, 8), R(1, 0));
	assert_found(h, VB_ANOMALY_G_SINGLE, "T1 (transfer, client 1)");

	/* The same where nobody saw T2. */
	h = open_history(1 << 16);
	UNKNOWN(h, 1, W(1, 8, 0), R(9, 0));
	UNKNOWN(h, 2, W(1, 9, 8), R(1, 8));
	TXN(h, 3, W(9, 8, 0));
	ABORTED(h, 5, R(1, 9));
	TXN(h, 4, R(9, 8), R(1, 0));
	assert_clean(h, true);
}

/* Its own read of its own version does not make it count. */
static void test_unknown_seen_by_itself(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	UNKNOWN(h, 1, W(1, 8, 0), R(1, 8), W(1, 10, 8));
	TXN(h, 2, R(1, 0), W(1, 9, 0));
	assert_clean(h, true);
}

/* ---- versions that cannot be ---- */

static void test_malformed(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 7, 0));
	assert_found(h, VB_ANOMALY_MALFORMED,
		     "T1 (transfer, client 1) replaced version 0 of account/1 with 7; a version "
		     "below 8 is the loader's");

	h = open_history(1 << 16);
	TXN(h, 1, W(1, 9, 9));
	assert_found(h, VB_ANOMALY_MALFORMED, "a write makes a new version");

	h = open_history(1 << 16);
	TXN(h, 1, W(1, 9, 8), W(1, 9, 7));
	assert_found(h, VB_ANOMALY_MALFORMED, "it also makes it out of another one");

	h = open_history(1 << 16);
	TXN(h, 1, W(1, 9, 10), W(1, 10, 9));
	assert_found(h, VB_ANOMALY_MALFORMED, "it makes that one later");
}

/* It is told whatever became of the transaction, and before what follows from it. */
static void test_malformed_among_others(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_serial_result r;

	TXN(h, 1, R(1, 0), R(2, 0), W(1, 8, 0));
	TXN(h, 2, R(1, 0), R(2, 0), W(2, 9, 0));
	ABORTED(h, 3, R(4, 5), W(3, 4, 0));
	UNKNOWN(h, 4, W(3, 8, 8));
	r = check(h, false);
	assert_int_equal(r.first, VB_ANOMALY_MALFORMED);
	assert_int_equal(r.found[VB_ANOMALY_MALFORMED], 2);
	assert_int_equal(r.found[VB_ANOMALY_WRITE_SKEW], 1);
	assert_non_null(strstr(r.story, "T3"));
	vb_serial_result_free(&r);
}

/* Versions out of thin air in a ring of three writers: a G0, and no walk without an end. */
static void test_ring_of_writers(void **state)
{
	struct vb_history *h = open_history(1 << 16);

	TXN(h, 1, W(1, 8, 10));
	TXN(h, 2, W(1, 9, 8));
	TXN(h, 3, W(1, 10, 9), R(1, 10));
	assert_found(h, VB_ANOMALY_G0, "a cycle of 3 transactions");
}

/* ---- what is no history ---- */

static void test_refused(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	struct vb_history_op op = R(1, 0);

	TXN(h, 3, R(1, 0));
	TXN(h, 3, R(2, 0));
	assert_refused(h, "two transactions are called T3");

	h = open_history(1 << 16);
	TXN_AT(h, 1, VB_HISTORY_COMMITTED, 2, 1, R(1, 0));
	assert_refused(h, "T1 ends before it begins");

	h = open_history(1 << 16);
	TXN_AT(h, 1, 3, 1, 2, R(1, 0));
	assert_refused(h, "outcome");

	h = open_history(1 << 16);
	op.kind = 2;
	add_txn(h, (struct vb_history_txn){.id = 1}, &op, 1);
	assert_refused(h, "no read and no write");
}

static void test_without_names(void **state)
{
	struct vb_history *h = open_history(1 << 16);
	const struct vb_history *const parts[] = {h};
	struct vb_serial_params p = {.parts = parts, .n_parts = 1};
	struct vb_serial_result r;

	TXN(h, 1, R(1, 8));
	assert_int_equal(vb_serial_check(&p, &r), 0);
	assert_non_null(strstr(r.story, "T1 (type 0, client 1) read 0/1 at version 8"));
	vb_serial_result_free(&r);
	vb_history_close(h);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_g0),
		cmocka_unit_test(test_g0_of_three),
		cmocka_unit_test(test_g1a),
		cmocka_unit_test(test_g1a_by_replacing),
		cmocka_unit_test(test_g1b),
		cmocka_unit_test(test_g1c),
		cmocka_unit_test(test_lost_update),
		cmocka_unit_test(test_lost_update_in_a_fork),
		cmocka_unit_test(test_write_skew),
		cmocka_unit_test(test_g_single),
		cmocka_unit_test(test_g_single_after_own_write),
		cmocka_unit_test(test_g2),
		cmocka_unit_test(test_read_only_anomaly),
		cmocka_unit_test(test_real_time),
		cmocka_unit_test(test_real_time_of_four),
		cmocka_unit_test(test_no_real_time_between_neighbours),
		cmocka_unit_test(test_anomaly_in_strict_is_no_real_time),
		cmocka_unit_test(test_fork),
		cmocka_unit_test(test_fork_of_the_loaders),
		cmocka_unit_test(test_the_same_version_twice),
		cmocka_unit_test(test_ghost),
		cmocka_unit_test(test_internal),
		cmocka_unit_test(test_own_operations),
		cmocka_unit_test(test_aborted_may_see_anything),
		cmocka_unit_test(test_several_at_once),
		cmocka_unit_test(test_long_cycle),
		cmocka_unit_test(test_wide_fork),
		cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_serial),
		cmocka_unit_test(test_deleted_and_inserted),
		cmocka_unit_test(test_a_write_told_twice),
		cmocka_unit_test(test_tables_are_apart),
		cmocka_unit_test(test_unknown_and_not_seen),
		cmocka_unit_test(test_unknown_and_read),
		cmocka_unit_test(test_unknown_seen_by_unknown),
		cmocka_unit_test(test_unknown_seen_by_itself),
		cmocka_unit_test(test_malformed),
		cmocka_unit_test(test_malformed_among_others),
		cmocka_unit_test(test_ring_of_writers),
		cmocka_unit_test(test_refused),
		cmocka_unit_test(test_without_names),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
