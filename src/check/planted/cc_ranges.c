/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Wrong on purpose about the tuples of ranges (txn/scan.c):
 *
 *	planted:range-unread     silo that does not look whether a range that it has scanned has changed
 *	planted:range-unwritten  silo whose inserts leave their range as it was
 */
#include "check/planted/planted.h"

#include "cc/silo.h"
#include "txn/db.h"

static void validate_records(struct vb_stage *s, struct vb_item **items, unsigned n)
{
	struct vb_item *some[VB_STAGE_ITEMS];
	unsigned m = 0;

	for (unsigned i = 0; i < n; i++) {
		items[i]->status = 0;
		if (items[i]->table->ranges_of == NULL)
			some[m++] = items[i];
	}
	if (m > 0)
		silo_validate(s, some, m);
}

static const struct vb_stage_ops unread_stages[] =
	SILO_STAGE_TABLE(silo_read, silo_lock, validate_records);

const struct vb_cc_ops vb_planted_range_unread = {
	.name = "planted:range-unread",
	.summary = "silo that does not validate the ranges it has scanned",
	.source = "on purpose",
	.planted = "phantom",
	.caps = VB_CC_STRICT,
	SILO_OPS(unread_stages),
	.prepare = silo_prepare,
};

static int prepare_records(struct vb_txn *t)
{
	for (unsigned i = 0; i < t->n; i++)
		if (t->item[i].table->ranges_of != NULL)
			t->item[i].flags &= (uint16_t)~VB_ITEM_WRITE;
	return silo_prepare(t);
}

static const struct vb_stage_ops unwritten_stages[] =
	SILO_STAGE_TABLE(silo_read, silo_lock, silo_validate);

const struct vb_cc_ops vb_planted_range_unwritten = {
	.name = "planted:range-unwritten",
	.summary = "silo whose inserts do not change their range",
	.source = "on purpose",
	.planted = "phantom",
	.caps = VB_CC_STRICT,
	SILO_OPS(unwritten_stages),
	.prepare = prepare_records,
};
