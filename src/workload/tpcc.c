/* SPDX-License-Identifier: Apache-2.0 */
/* What the traces of TPC-C share: see tpcc.h. */
#define VB_LOG_ROOM "trace"
#include "workload/tpcc.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

enum { NEW_ORDER, PAYMENT, ORDER_STATUS, DELIVERY, STOCK_LEVEL, TABLE_SCAN, TYPES };
static const char *const types[TYPES] = {
	[NEW_ORDER] = "new-order", [PAYMENT] = "payment",         [ORDER_STATUS] = "order-status",
	[DELIVERY] = "delivery",   [STOCK_LEVEL] = "stock-level", [TABLE_SCAN] = "table-scan",
};
static const unsigned mix[] = {
	[NEW_ORDER] = 45, [PAYMENT] = 43, [ORDER_STATUS] = 4, [DELIVERY] = 4, [STOCK_LEVEL] = 4};

int vb_tpcc_init(struct vb_trace *t, size_t bytes, uint64_t homes, uint64_t per_home, uint32_t most)
{
	struct vb_tpcc *own = calloc(1, bytes);

	t->own = own;
	if (own == NULL)
		return vb_fail(-ENOMEM, "no memory for a trace");
	if (homes == 0)
		homes = t->p.hosts;
	if (homes * per_home > most)
		return vb_fail(-EINVAL,
			       "%u homes of %u warehouses: at most %u warehouses are possible",
			       (unsigned)homes, (unsigned)per_home, most);
	own->homes = (uint32_t)homes;
	own->per_home = (uint32_t)per_home;
	own->warehouses = own->homes * own->per_home;
	own->servers = t->p.servers;
	own->scans = t->p.scan_rate > 0;
	t->types = types;
	t->n_types = own->scans ? TYPES : TABLE_SCAN;
	return 0;
}

void vb_tpcc_fini(struct vb_trace *t)
{
	free(t->own);
}

void vb_tpcc_take(struct vb_trace_client *c, uint32_t warehouse, uint32_t each, uint32_t which,
		  enum vb_mode mode)
{
	const struct vb_tpcc *own = c->t->own;
	uint32_t home = warehouse / own->per_home;
	uint64_t place =
		(uint64_t)(home / own->servers) * own->per_home + warehouse % own->per_home;

	vb_trace_add(c, (place * each + which) * own->servers + home % own->servers, mode);
}

uint32_t vb_tpcc_other(struct vb_trace_client *c, uint32_t w, double chance)
{
	const struct vb_tpcc *own = c->t->own;

	if (own->warehouses == 1 || !vb_rng_chance(&c->rng, chance))
		return w;
	return (w + 1 + (uint32_t)vb_rng_below(&c->rng, own->warehouses - 1)) % own->warehouses;
}

void vb_tpcc_next(struct vb_trace_client *c, const struct vb_tpcc_txns *txns, bool fixed)
{
	const struct vb_tpcc *own = c->t->own;
	uint32_t home = c->host % own->homes;
	uint32_t at = fixed ? c->number / own->homes % own->per_home
			    : (uint32_t)vb_rng_below(&c->rng, own->per_home);
	uint32_t w = home * own->per_home + at;

	c->txn.home = w;
	if (own->scans && vb_rng_chance(&c->rng, c->t->p.scan_rate)) {
		c->txn.type = TABLE_SCAN;
		c->txn.think_ns = c->t->p.scan_ns;
		txns->table_scan(c, home);
		return;
	}
	c->txn.type = vb_trace_draw_type(&c->rng, mix);
	switch (c->txn.type) {
	case NEW_ORDER:
		txns->new_order(c, w);
		break;
	case PAYMENT:
		txns->payment(c, w);
		break;
	case ORDER_STATUS:
		txns->order_status(c, w);
		break;
	case DELIVERY:
		txns->delivery(c, w);
		break;
	default:
		txns->stock_level(c, w);
		break;
	}
}
