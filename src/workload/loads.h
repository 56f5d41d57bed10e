/* SPDX-License-Identifier: Apache-2.0 */
/* One line for each workload file. */
#ifndef VB_WORKLOAD_LOADS_H
#define VB_WORKLOAD_LOADS_H

#include "workload/load.h"

extern const struct vb_load_ops vb_load_ycsb, vb_load_ycsb_e, vb_load_smallbank, vb_load_bank,
	vb_load_tatp, vb_load_tpcc;

#endif
