/* SPDX-License-Identifier: Apache-2.0 */
/* verbena trace: a lock trace written to a file, or described in numbers. */
#ifndef VB_LAB_TRACE_TRACE_TOOL_H
#define VB_LAB_TRACE_TRACE_TOOL_H

#include "base/opt.h"

struct vb_trace_tool_opts {
	const char *trace, *workload_options;
	uint64_t transactions, clients, hosts, servers, seed;
	double scan_rate;
	bool head;
	const char *json;
};

/* The options of both commands, of export, and of stat. */
const struct vb_opt_group *vb_trace_export_groups(struct vb_trace_tool_opts *opts, unsigned *n);
const struct vb_opt_group *vb_trace_stat_groups(struct vb_trace_tool_opts *opts, unsigned *n);

/* Transaction i is client i mod clients' next one.  Each returns an enum vb_exit. */
int vb_trace_export(const struct vb_trace_tool_opts *opts, const char *path);
int vb_trace_stat(const struct vb_trace_tool_opts *opts);

#endif
