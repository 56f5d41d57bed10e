/* SPDX-License-Identifier: Apache-2.0 */
/* What TPC-C's transactions find by scans of ordered tables, with --ranges; see tpcc_db.h. */
#ifndef VB_WORKLOAD_TPCC_RANGE_H
#define VB_WORKLOAD_TPCC_RANGE_H

#include "workload/tpcc_calls.h"

/* Of the customers of the drawn name the one in the middle, and a customer's last order; *err as with
 * tpcc_get, 0 if it is not 0. */
uint32_t vb_tpcc_range_customer(struct vb_load_client *c, struct vb_coordinator *me, int *err);
uint32_t vb_tpcc_range_last(struct vb_load_client *c, struct vb_coordinator *me, uint32_t customer,
			    int *err);
/* Adds up the amounts of an order's lines, of which there must be so many. */
int vb_tpcc_range_lines(struct vb_load_client *c, struct vb_coordinator *me, uint64_t order,
			unsigned lines);
/* The lines of orders `from` to before `to`, in the client's rows. */
int vb_tpcc_range_recent(struct vb_load_client *c, struct vb_coordinator *me, uint32_t from,
			 uint32_t to, unsigned *n);
/* Takes the oldest order of a district that waits; *order is its key, 0 if none does. */
int vb_tpcc_range_deliver(struct vb_load_client *c, struct vb_coordinator *me, uint32_t district,
			  uint64_t *order);
/* That has committed: who comes later need not look at what it took. */
void vb_tpcc_range_delivered(const struct vb_load_client *c);
/* Adds a new order, which waits, to its customer's. */
int vb_tpcc_range_add(struct vb_load_client *c, struct vb_coordinator *me, uint32_t order);

#endif
