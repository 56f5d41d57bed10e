/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What the traces of TPC-C share: the mix of its transactions, and warehouses.
 *
 * Nodes with clients belong to homes in turn; a home is a group of warehouses on one server, of
 * which each has the same number of locks.
 */
#ifndef VB_WORKLOAD_TPCC_H
#define VB_WORKLOAD_TPCC_H

#include "workload/traces.h"

#define TPCC_HOMES_HELP                                                                            \
	"groups of warehouses, to which the nodes with clients belong in turn; a group lies on "   \
	"one server (0: as many as nodes with clients)"

#define TPCC_NAMES          1000u /* last names of customers */
#define TPCC_CUSTOMER_RUN   1023u /* the A of NURand for customers, and for last names */
#define TPCC_NAME_RUN       255u
#define TPCC_BY_NAME        0.60
#define TPCC_REMOTE_PAYMENT 0.15

/* The first member of a trace's own. */
struct vb_tpcc {
	uint32_t homes, per_home, warehouses, servers;
	bool scans;
};

struct vb_tpcc_txns {
	void (*new_order)(struct vb_trace_client *c, uint32_t w);
	void (*payment)(struct vb_trace_client *c, uint32_t w);
	void (*order_status)(struct vb_trace_client *c, uint32_t w);
	void (*delivery)(struct vb_trace_client *c, uint32_t w);
	void (*stock_level)(struct vb_trace_client *c, uint32_t w);
	void (*table_scan)(struct vb_trace_client *c, uint32_t home);
};

/* t->own, of so many bytes, and types; homes may be 0, `most` bounds the warehouses.  -ENOMEM,
 * -EINVAL, said. */
int vb_tpcc_init(struct vb_trace *t, size_t bytes, uint64_t homes, uint64_t per_home,
		 uint32_t most);
void vb_tpcc_fini(struct vb_trace *t);
/* Lock `which` of the `each` that a warehouse has. */
void vb_tpcc_take(struct vb_trace_client *c, uint32_t warehouse, uint32_t each, uint32_t which,
		  enum vb_mode mode);
/* With this chance any but w. */
uint32_t vb_tpcc_other(struct vb_trace_client *c, uint32_t w, double chance);
/* The client's next transaction; `fixed`: at its own warehouse of its home, else at any. */
void vb_tpcc_next(struct vb_trace_client *c, const struct vb_tpcc_txns *txns, bool fixed);

#endif
