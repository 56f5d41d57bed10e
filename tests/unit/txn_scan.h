/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of scans share: an ordered table of few keys, and what a scan must give of it. */
#ifndef VB_TESTS_TXN_SCAN_H
#define VB_TESTS_TXN_SCAN_H

#include "txn_api.h"

#define LINE_RECORDS 512
#define LINE_ITEMS   256
#define SOON_NS      5000000ull /* a transaction that waits for so long gives up */

static inline struct vb_table_params line(uint32_t shift)
{
	return (struct vb_table_params){.name = "line",
					.record_bytes = sizeof(struct record),
					.records = LINE_RECORDS,
					.ordered = true,
					.range_shift = shift};
}

/* Keys that lie a little apart, in ranges of four. */
static const uint64_t keys[] = {1, 2, 5, 9, 10, 11, 20, 21, 22, 23, 40};
#define N_KEYS VB_ARRAY_SIZE(keys)

static inline void open_line(struct world *w, void **state, const struct vb_table_params *lp,
			     uint64_t step, uint64_t n)
{
	const struct kind *k = *state;
	struct vb_db_params p = usual_db(k, LONG_NS);

	p.items_max = LINE_ITEMS;
	p.bytes_max = LINE_ITEMS * sizeof(struct record);
	*w = (struct world){0};
	open_fabric(&w->f, k->fabric, on_verbs(k->fabric) ? 4 << 20 : 16 << 20);
	must(vb_db_open(w->f, &p, &w->db));
	must(vb_table_open(w->db, lp, &w->t));
	for (uint64_t i = 0; i < n; i++) {
		uint64_t key = step != 0 ? i * step : keys[i];

		must(vb_table_load(w->t, key, &(struct record){.value = FIRST + key}));
	}
	start_servers(w);
	must(vb_coordinator_open(w->db, 0, &w->a));
	must(vb_coordinator_open(w->db, 1, &w->b));
}

static inline void open_keys(struct world *w, void **state)
{
	const struct vb_table_params lp = line(2);

	open_line(w, state, &lp, 0, N_KEYS);
}

/* Exactly these keys, each with its own record. */
static inline int gives(struct vb_coordinator *me, struct vb_table *t, struct vb_txn_range range,
			unsigned room, const uint64_t *expect, unsigned n_expect)
{
	struct vb_txn_row row[LINE_ITEMS];
	unsigned n = 999;
	int err = vb_txn_scan(me, t, &range, row, room, &n);

	if (err)
		return err;
	assert_int_equal(n, n_expect);
	for (unsigned i = 0; i < n; i++) {
		const struct record *r = row[i].record;

		assert_int_equal(row[i].key, expect[i]);
		assert_int_equal(r->value, FIRST + expect[i]);
	}
	return 0;
}

#define KEYS(...)                                                                                  \
	(const uint64_t[]){__VA_ARGS__}, sizeof((const uint64_t[]){__VA_ARGS__}) / sizeof(uint64_t)

static const struct vb_txn_range all_keys = {0, 63, false}, all_down = {0, 63, true};

static inline int add(struct vb_coordinator *me, struct vb_table *t, uint64_t key)
{
	return vb_txn_insert(me, t, key, &(struct record){.value = FIRST + key});
}

#endif
