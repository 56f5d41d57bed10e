/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Arbitrary text as a lock trace.
 *
 * It is refused, and why is said, or it is a trace: then its numbers are within the bounds that it
 * states, and what is written of its transactions is read back as the same.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lock/lock.h"
#include "workload/trace_file.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool ok, const char *what)
{
	if (ok)
		return;
	fprintf(stderr, "fuzz_trace: %s\n", what);
	abort();
}

static void must_be_sane(const struct vb_trace_book *b)
{
	unsigned most = 0;

	must(b->n_txns > 0 && b->n_locks >= b->n_txns, "a trace without locks");
	must(b->first[0] == 0 && b->first[b->n_txns] == b->n_locks, "locks of no transaction");
	must(b->n_types > 0 && b->n_types <= VB_TRACE_TYPES_MAX, "types out of bounds");
	for (uint64_t i = 0; i < b->n_txns; i++) {
		uint64_t n = b->first[i + 1] - b->first[i];

		must(b->first[i] < b->first[i + 1] && n <= b->locks_max, "a length out of bounds");
		must(b->type[i] < b->n_types, "a type out of bounds");
		most = n > most ? (unsigned)n : most;
	}
	must(most == b->locks_max && most <= VB_TRACE_LOCKS_MAX, "the longest is another");
	for (uint64_t i = 0; i < b->n_locks; i++) {
		must(b->lock[i] >> 3 < b->locks, "a lock out of bounds");
		must((b->modes >> (b->lock[i] & 7) & 1) != 0, "a mode that nobody knows of");
	}
	for (unsigned i = 0; i < b->n_types; i++)
		must(strlen(b->types[i]) < VB_TRACE_NAME_MAX, "a name without an end");
}

static void write_txns(FILE *to, const struct vb_trace_book *b)
{
	static struct vb_trace_lock lock[VB_TRACE_LOCKS_MAX];

	for (uint64_t i = 0; i < b->n_txns; i++) {
		struct vb_trace_txn txn = {.type = b->type[i], .lock = lock};

		for (uint64_t at = b->first[i]; at < b->first[i + 1]; at++)
			lock[txn.n++] = (struct vb_trace_lock){
				.lock = b->lock[at] >> 3, .mode = (enum vb_mode)(b->lock[at] & 7)};
		vb_trace_write(to, i, &txn);
	}
}

static void round_trip(const struct vb_trace_book *b)
{
	struct vb_trace_book *back;
	char *text;
	size_t size;
	FILE *to = open_memstream(&text, &size);

	must(to != NULL, "no stream");
	write_txns(to, b);
	fclose(to);
	must(vb_trace_book_read("written", text, size, &back) == 0, "what we wrote is refused");
	must(back->n_txns == b->n_txns && back->n_locks == b->n_locks && back->locks == b->locks,
	     "not as much is read back");
	must(memcmp(back->first, b->first, (b->n_txns + 1) * sizeof(*b->first)) == 0 &&
		     memcmp(back->lock, b->lock, b->n_locks * sizeof(*b->lock)) == 0,
	     "other locks are read back");
	/* Types are numbered anew, in the order in which they are met. */
	for (uint64_t i = 1; i < b->n_txns; i++)
		must((back->type[i] == back->type[i - 1]) == (b->type[i] == b->type[i - 1]),
		     "other types are read back");
	vb_trace_book_close(back);
	free(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct vb_trace_book *b;
	char said[256] = "";
	int err;

	vb_log_capture_begin(said, sizeof(said)); /* refusals are what is wanted here */
	err = vb_trace_book_read("input", (const char *)data, size, &b);
	if (err == 0) {
		must_be_sane(b);
		round_trip(b);
		vb_trace_book_close(b);
	} else {
		must(strstr(said, "input") != NULL, "a refusal that does not name the text");
	}
	vb_log_capture_end();
	return 0;
}
