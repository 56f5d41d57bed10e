/* SPDX-License-Identifier: Apache-2.0 */
/* One line for each generator of traces, and the reader of files. */
#ifndef VB_WORKLOAD_TRACES_H
#define VB_WORKLOAD_TRACES_H

#include "workload/trace.h"

extern const struct vb_trace_ops vb_trace_tpcc, vb_trace_tpcc_rows, vb_trace_tatp,
	vb_trace_smallbank;

#endif
