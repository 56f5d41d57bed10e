/* SPDX-License-Identifier: Apache-2.0 */
/* Where the buffers of sequenced transactions lie: see epoch.h. */
#include <xxhash.h>

#include "txn/epoch.h"

#define LINE        64u
#define BATCH_BYTES (16u << 10) /* at least */

static uint64_t pad(uint64_t n)
{
	return (n + LINE - 1) & ~(uint64_t)(LINE - 1);
}

/* A part for each item, or for each node if there are fewer. */
static uint32_t parts_bytes(const struct vb_db *db, uint32_t nodes)
{
	uint32_t parts = db->items_max < nodes ? db->items_max : nodes;

	return parts * ((uint32_t)sizeof(struct vb_seq_part) + 8) +
	       db->items_max * (uint32_t)sizeof(struct vb_seq_key);
}

static uint64_t floors_bytes(const struct vb_db *db, uint32_t nodes)
{
	return pad((uint64_t)nodes * db->coordinators * VB_PLACES_EACH * 8);
}

uint64_t vb_seq_sizes(struct vb_db *db, uint16_t nodes)
{
	uint32_t one = (uint32_t)sizeof(struct vb_seq_batch) + vb_seq_part_bytes(db->items_max);

	db->request_bytes = (uint32_t)pad(parts_bytes(db, nodes));
	db->batch_bytes = (uint32_t)pad(one > BATCH_BYTES ? one : BATCH_BYTES);
	db->forward_bytes =
		(uint32_t)pad(sizeof(struct vb_seq_forward) +
			      db->items_max * sizeof(struct vb_seq_item) + VB_SEQ_TUPLES);
	return floors_bytes(db, nodes) + LINE + (uint64_t)db->coordinators * db->request_bytes +
	       (uint64_t)nodes * 2 * db->batch_bytes +
	       (uint64_t)db->coordinators * nodes * db->forward_bytes;
}
_Static_assert(sizeof(struct vb_seq_batch) + sizeof(struct vb_seq_part) + 8 +
			       VB_TXN_ITEMS_MAX * sizeof(struct vb_seq_key) <=
		       VB_LEN_MAX,
	       "a batch is one WRITE");

vb_addr vb_seq_floor(const struct vb_db *db, uint16_t node, uint32_t place)
{
	return db->region[node] + db->sequence_at + (uint64_t)place * 8;
}

static vb_addr line_of(const struct vb_db *db, uint16_t node)
{
	return db->region[node] + db->sequence_at + floors_bytes(db, db->fabric->nodes);
}

struct vb_seq_line *vb_seq_line(const struct vb_db *db, uint16_t node)
{
	return vb_local(db->fabric, line_of(db, node), sizeof(struct vb_seq_line));
}

vb_addr vb_seq_request(const struct vb_db *db, uint16_t node, uint32_t coordinator)
{
	return line_of(db, node) + LINE + (uint64_t)coordinator * db->request_bytes;
}

vb_addr vb_seq_batch(const struct vb_db *db, uint16_t node, uint16_t from, uint64_t epoch)
{
	return vb_seq_request(db, node, db->coordinators) +
	       (2ull * from + epoch % 2) * db->batch_bytes;
}

vb_addr vb_seq_forward(const struct vb_db *db, uint16_t node, uint32_t coordinator, uint16_t from)
{
	return vb_seq_batch(db, node, db->fabric->nodes, 0) +
	       ((uint64_t)coordinator * db->fabric->nodes + from) * db->forward_bytes;
}

uint64_t vb_seq_batch_seal(const struct vb_seq_batch *b)
{
	uint64_t head = XXH3_64bits_withSeed(
		&b->bytes, sizeof(*b) - offsetof(struct vb_seq_batch, bytes), b->epoch);

	return XXH3_64bits_withSeed(b + 1, b->bytes, head);
}

uint64_t vb_seq_forward_seal(const struct vb_seq_forward *f)
{
	uint64_t head = XXH3_64bits_withSeed(
		&f->bytes, sizeof(*f) - offsetof(struct vb_seq_forward, bytes), f->ts);

	return XXH3_64bits_withSeed(f + 1, f->bytes, head);
}
