/* SPDX-License-Identifier: Apache-2.0 */
#include "check/txn/gather.h"

#include "txn/db.h"
#include "txn/protocol.h"

enum vb_level vb_history_gather_level(const struct vb_txn *t)
{
	static const enum vb_level levels[VB_ISOLATIONS] = {
		[VB_SERIALIZABLE] = VB_LEVEL_NONE,
		[VB_REPEATABLE_READ] = VB_LEVEL_REPEATABLE_READ,
		[VB_READ_COMMITTED] = VB_LEVEL_READ_COMMITTED,
		[VB_SNAPSHOT] = VB_LEVEL_SNAPSHOT,
	};

	/* Who only reads at a snapshot has its place among those that are serializable. */
	if (t->isolation == VB_SNAPSHOT && t->ts == 0)
		return VB_LEVEL_NONE;
	return levels[t->isolation];
}

unsigned vb_history_gather(const struct vb_txn *t, struct vb_history_op *op, unsigned most)
{
	unsigned n = 0;

	for (unsigned i = 0; i < t->n && n + 2 <= most; i++) {
		const struct vb_item *it = &t->item[i];
		uint64_t made = it->next != 0 ? it->next : t->version;

		if (!(it->flags & VB_ITEM_NOTED))
			continue;
		if (it->flags & VB_ITEM_READ)
			op[n++] = (struct vb_history_op){
				.key = it->key,
				.version = it->fetched,
				.table = it->table->id,
				.kind = VB_HISTORY_READ,
				.absent = (it->fetched & VB_VERSION_ABSENT) != 0,
			};
		if (it->flags & VB_ITEM_WRITE)
			op[n++] = (struct vb_history_op){
				.key = it->key,
				.version = made,
				.prev = it->fetched,
				.table = it->table->id,
				.kind = VB_HISTORY_WRITE,
				.absent = (made & VB_VERSION_ABSENT) != 0,
			};
	}
	return n;
}
