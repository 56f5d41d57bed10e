/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary text as a history in JSON lines, of transactions or of locks.
 *
 * It is refused, or it is a history: then what is written of it is read back as the same, and the
 * checker and the writers for other tools come to an end, with a verdict or a reason.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/lock/history.h"
#include "check/txn/serial.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_history: %s\n", what);
	abort();
}

static struct vb_history *read_text(const void *text, size_t size)
{
	struct vb_history *h = NULL;
	FILE *from = fmemopen((void *)(uintptr_t)text, size, "r");

	must(from != NULL, "no stream");
	if (vb_history_read_jsonl(from, "input", &h) != 0)
		h = NULL;
	fclose(from);
	return h;
}

static void must_be_same(const struct vb_history *a, const struct vb_history *b)
{
	const struct vb_history_op *ops[2];
	const struct vb_history_txn *t[2];
	uint64_t at[2] = {0};

	must(vb_history_count(a) == vb_history_count(b), "not as many transactions are read back");
	must(vb_history_claimed(a) == vb_history_claimed(b), "it claims another level");
	while (vb_history_next(a, &at[0], &t[0], &ops[0])) {
		must(vb_history_next(b, &at[1], &t[1], &ops[1]), "a transaction is lost");
		must(memcmp(t[0], t[1], sizeof(*t[0])) == 0, "a transaction is read back changed");
		must(memcmp(ops[0], ops[1], t[0]->n_ops * sizeof(*ops[0])) == 0,
		     "an operation is read back changed");
	}
}

static void round_trip(const struct vb_history *h)
{
	struct vb_history *back;
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	must(to != NULL, "no stream");
	must(vb_history_write_jsonl(&h, 1, vb_history_claimed(h), to) == 0, "it cannot be written");
	fclose(to);
	if (size > 0) {
		back = read_text(text, size);
		must(back != NULL, "what we have written is refused");
		must_be_same(h, back);
		vb_history_close(back);
	}
	free(text);
}

static void check(const struct vb_history *h, enum vb_level level)
{
	struct vb_serial_params p = {.parts = &h, .n_parts = 1, .level = level};
	struct vb_serial_result r;

	if (vb_serial_check(&p, &r) == 0)
		must((r.story != NULL) == (r.first != VB_ANOMALY_NONE),
		     "a verdict without a story");
	vb_serial_result_free(&r);
}

static void write_for_others(const struct vb_history *h)
{
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	must(to != NULL, "no stream");
	(void)vb_history_write_edn(&h, 1, to);
	(void)vb_history_write_text(&h, 1, to);
	fclose(to);
	free(text);
}

/* ---- of locks ---- */

/* NULL: it is refused, or it is none. */
static struct vb_lock_history *read_locks(const void *text, size_t size)
{
	struct vb_lock_history *h = NULL;
	FILE *from = fmemopen((void *)(uintptr_t)text, size, "r");
	struct vb_lines lines;
	bool fencing;

	must(from != NULL, "no stream");
	vb_lines_open(&lines, from, "input");
	if (vb_lines_next(&lines) == 1 && vb_lock_history_is_next(&lines)) {
		vb_lines_again(&lines);
		if (vb_lock_history_read(&lines, &h, &fencing) != 0)
			h = NULL;
	}
	vb_lines_close(&lines);
	fclose(from);
	return h;
}

static void check_locks(const struct vb_lock_history *h)
{
	struct vb_lock_history *back;
	struct vb_lock_verdict v;
	char *text;
	size_t size;
	bool full;
	FILE *to = open_memstream(&text, &size);

	must(to != NULL, "no stream");
	must(vb_lock_history_write(h, false, to) == 0, "it cannot be written");
	fclose(to);
	back = read_locks(text, size);
	must(back != NULL, "what we have written is refused");
	must(vb_lock_history_count(h, &full) == vb_lock_history_count(back, &full),
	     "not as many events are read back");
	vb_lock_history_close(back);
	free(text);
	if (vb_lock_history_judge(&h, 1, true, &v) == 0)
		must((v.story != NULL) == (v.audit.violations != 0), "a verdict without a story");
	free(v.story);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_lock_history *locks;
	struct vb_history *h;
	char said[256];

	if (size == 0)
		return 0;
	vb_log_capture_begin(said, sizeof(said)); /* refusals are what is wanted here */
	h = read_text(data, size);
	if (h != NULL) {
		round_trip(h);
		for (int level = VB_LEVEL_READ_COMMITTED; level < VB_LEVELS; level++)
			check(h, (enum vb_level)level);
		write_for_others(h);
		vb_history_close(h);
	}
	locks = read_locks(data, size);
	if (locks != NULL) {
		check_locks(locks);
		vb_lock_history_close(locks);
	}
	vb_log_capture_end();
	return 0;
}
