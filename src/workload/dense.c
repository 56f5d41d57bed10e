/* SPDX-License-Identifier: Apache-2.0 */
/* Records, those of tables with keys 0, 1, 2, ... first: filled, counted and judged; see load.h. */
#define VB_LOG_ROOM "load"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

#include "base/log.h"
#include "txn/db.h"
#include "workload/load.h"

#define STEP_EVERY 4096u /* records between two looks at the progress */

uint64_t vb_load_mix(uint64_t seed, uint64_t key, uint64_t salt)
{
	uint64_t x = seed + key * 0x9e3779b97f4a7c15ull + salt * 0xd1b54a32d192ed03ull;

	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
	x = (x ^ x >> 27) * 0x94d049bb133111ebull;
	return x ^ x >> 31;
}

void vb_load_stamp(void *record, size_t bytes, uint64_t key, uint64_t w)
{
	uint64_t last = vb_load_mix(w, key, 1);

	memcpy(record, &w, 8);
	if (bytes >= 16)
		memcpy((char *)record + bytes - 8, &last, 8);
}

bool vb_load_is_whole(const void *record, size_t bytes, uint64_t key)
{
	uint64_t first, last;

	memcpy(&first, record, 8);
	memcpy(&last, (const char *)record + bytes - 8, 8);
	return bytes < 16 || last == vb_load_mix(first, key, 1);
}

int vb_load_fill_dense(struct vb_load *l, unsigned table, uint16_t node,
		       void (*make)(const struct vb_load *l, unsigned table, uint64_t key,
				    void *record),
		       const struct vb_load_progress *progress, uint64_t *done)
{
	uint64_t records = l->params[table].records;
	void *record = calloc(1, l->params[table].record_bytes + 8);
	int err = 0;

	if (record == NULL)
		return vb_fail(-ENOMEM, "no memory for a record");
	for (uint64_t key = node; key < records && err == 0; key += l->nodes) {
		make(l, table, key, record);
		err = vb_table_load(l->table[table], key, record);
		if (++*done % STEP_EVERY == 0 && !progress->step(progress->ctx, *done))
			err = -EINTR;
	}
	free(record);
	return err;
}

const void *vb_load_record(const struct vb_load *l, unsigned table, uint64_t key,
			   struct vb_load_sums *sums)
{
	struct vb_table *t = l->table[table];
	const struct vb_tuple_layout *layout = &t->layout;
	const struct vb_db *db = vb_container_of(t->store, struct vb_db, store);
	vb_addr at = vb_table_find(t, vb_table_node(t, key), key);
	const char *tuple =
		at != 0 ? t->node[vb_addr_node(at)].index.segment + vb_addr_offset(at) : NULL;
	struct vb_named_word named[VB_NAMED_WORDS_MAX];
	unsigned slot;

	if (tuple == NULL)
		return NULL;
	sums->locked += vb_words_named(db->cc, tuple, named) != 0;
	slot = vb_tuple_newest(layout, tuple);
	if (vb_slot_version(layout, tuple, slot) & VB_VERSION_ABSENT)
		return NULL;
	sums->records++;
	return tuple + layout->record_at + vb_slot_behind(layout, slot);
}

uint64_t vb_load_present(const struct vb_load *l, unsigned table, uint16_t node)
{
	const struct vb_table *t = l->table[table];
	const struct vb_tuple_layout *layout = &t->layout;
	const struct vb_table_header *h = t->node[node].index.header;
	uint64_t n = 0;

	for (uint64_t i = 0; h != NULL && i < h->tuples; i++) {
		const char *tuple = (const char *)(h + 1) + i * layout->stride;

		n += !(vb_slot_version(layout, tuple, vb_tuple_newest(layout, tuple)) &
		       VB_VERSION_ABSENT);
	}
	return n;
}

void vb_load_count_dense(const struct vb_load *l, unsigned table, uint16_t node,
			 void (*look)(const struct vb_load *l, unsigned table, uint64_t key,
				      const void *record, struct vb_load_sums *sums),
			 struct vb_load_sums *sums)
{
	for (uint64_t key = node; key < l->params[table].records; key += l->nodes) {
		const void *record = vb_load_record(l, table, key, sums);

		if (record == NULL)
			sums->absent++;
		else
			look(l, table, key, record, sums);
	}
}

int vb_load_judge_locks(const struct vb_load_sums *sums, char *why, size_t size)
{
	if (sums->locked == 0)
		return 0;
	snprintf(why, size,
		 "%" PRIu64 " records are still locked, and nobody is left to unlock them",
		 sums->locked);
	return -EBADMSG;
}

int vb_load_judge_records(const struct vb_load_sums *sums, char *why, size_t size)
{
	if (sums->absent != 0)
		snprintf(why, size, "%" PRIu64 " records are gone that no transaction deletes",
			 sums->absent);
	else if (sums->wrong != 0)
		snprintf(why, size, "%" PRIu64 " records hold what no transaction has written",
			 sums->wrong);
	else
		return vb_load_judge_locks(sums, why, size);
	return -EBADMSG;
}

bool vb_load_has_key(const struct vb_load_client *c, unsigned n, const struct vb_table *table,
		     uint64_t key)
{
	for (unsigned i = 0; i < n; i++)
		if (c->key[i].key == key && c->key[i].table == table)
			return true;
	return false;
}
