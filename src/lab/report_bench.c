/* SPDX-License-Identifier: Apache-2.0 */
/* Results of bench lock and bench txn as sections of the page. */
#include "lab/report.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"

/* A column of a table of runs: where its number is, and what it is multiplied with. */
struct column {
	const char *head, *path;
	double scale;
};

static void put_runs(FILE *to, const json_t *root, const char *kind, const char *name,
		     const struct column *columns, unsigned n)
{
	const char *head[32] = {name};
	size_t i;
	json_t *run;

	for (unsigned k = 0; k < n && k < VB_ARRAY_SIZE(head) - 2; k++)
		head[k + 1] = columns[k].head;
	vb_html_table_begin(to, head, true);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		if (strcmp(vb_report_string(run, "kind"), kind) != 0)
			continue;
		vb_html_row_begin(to);
		vb_html_cell(to, vb_report_string(run, name));
		for (unsigned k = 0; k < n; k++)
			vb_html_cell_number(to, vb_report_number(run, columns[k].path) *
							columns[k].scale);
		vb_html_row_end(to);
	}
	vb_html_table_end(to);
}

/* One bar for each run, or one in each group for each of the columns. */
static void chart_runs(FILE *to, const json_t *root, const char *kind, const char *name,
		       const char *title, const struct column *columns, unsigned n)
{
	static struct vb_chart c;
	size_t i;
	json_t *run;

	c = (struct vb_chart){.title = title, .n_series = n};
	for (unsigned k = 0; k < n; k++)
		c.series[k] = columns[k].head;
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		if (strcmp(vb_report_string(run, "kind"), kind) != 0 ||
		    c.n_points == VB_CHART_POINTS)
			continue;
		for (unsigned k = 0; k < n; k++)
			c.value[k][c.n_points] =
				vb_report_number(run, columns[k].path) * columns[k].scale;
		c.points[c.n_points++] = vb_report_string(run, name);
	}
	vb_chart_put(to, &c);
}

/* What ended early, and what was found. */
static void put_notes(FILE *to, const json_t *root)
{
	size_t i;
	json_t *run, *skipped;

	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		const char *stalled = vb_report_string(run, "stalled");
		double violations = vb_report_number(run, "audit/violations");
		const char *name = vb_report_string(run, "lock");
		char text[512];

		if (name[0] == '\0')
			name = vb_report_string(run, "cc");
		if (stalled[0] != '\0') {
			snprintf(text, sizeof(text), "%.60s stalled: %.400s", name, stalled);
			vb_html_paragraph(to, "failed", text);
		}
		if (violations > 0) {
			snprintf(text, sizeof(text), "%.60s: %.0f violations", name, violations);
			vb_html_paragraph(to, "failed", text);
		}
	}
	json_array_foreach(json_object_get(root, "skipped"), i, skipped)
	{
		char text[512];

		snprintf(text, sizeof(text), "%.60s%.60s was not run: %.300s",
			 vb_report_string(skipped, "lock"), vb_report_string(skipped, "cc"),
			 vb_report_string(skipped, "why"));
		vb_html_paragraph(to, "dim", text);
	}
}

/* What the runs have in common, from the first of them. */
static void put_setting(FILE *to, const json_t *root, const char *const *keys)
{
	json_t *run = json_array_get(json_object_get(root, "runs"), 0);

	fputs("<p>", to);
	for (; *keys != NULL; keys++) {
		const json_t *v = json_object_get(run, *keys);
		char *text = v != NULL ? json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT) : NULL;

		if (text == NULL)
			continue;
		vb_html_text(to, *keys);
		fputs(" <code>", to);
		vb_html_text(to, text);
		fputs("</code> ", to);
		free(text);
	}
	fputs("</p>\n", to);
}

/* Of runs of a trace: its transactions. */
static void put_traced(FILE *to, const json_t *root)
{
	static const struct column numbers[] = {
		{"ktxn/s", "txns/committed_tps", 1e-3},
		{"locks each", "txns/locks_per_txn", 1},
		{"aborts %", "txns/abort_share", 100},
		{"given up", "txns/given_up", 1},
	};
	static const struct column goodput[] = {{"ktxn/s", "txns/committed_tps", 1e-3}};
	const json_t *first = json_array_get(json_object_get(root, "runs"), 0);

	if (!json_is_object(json_object_get(first, "txns")))
		return;
	put_runs(to, root, "lock", "lock", numbers, VB_ARRAY_SIZE(numbers));
	chart_runs(to, root, "lock", "lock", "transactions, thousands a second", goodput,
		   VB_ARRAY_SIZE(goodput));
}

void vb_report_locks(FILE *to, const json_t *root)
{
	static const char *const setting[] = {"fabric",  "profile", "nodes",    "servers",  "procs",
					      "clients", "locks",   "lease_ns", "workload", NULL};
	static const struct column numbers[] = {
		{"kops/s", "goodput_ops_s", 1e-3},
		{"shared p50 us", "latency_us/acquire_shared/p50", 1},
		{"p99", "latency_us/acquire_shared/p99", 1},
		{"exclusive p50 us", "latency_us/acquire_exclusive/p50", 1},
		{"p99", "latency_us/acquire_exclusive/p99", 1},
		{"p99.9", "latency_us/acquire_exclusive/p99.9", 1},
		{"release p50", "latency_us/release/p50", 1},
		{"atomics", "verbs_per_op/atomic", 1},
		{"READs", "verbs_per_op/read", 1},
		{"SENDs", "verbs_per_op/send", 1},
		{"failed", "failed", 1},
		{"unfinished", "unfinished", 1},
		{"violations", "audit/violations", 1},
	};
	static const struct column goodput[] = {{"kops/s", "goodput_ops_s", 1e-3}};
	static const struct column tail[] = {
		{"shared", "latency_us/acquire_shared/p99", 1},
		{"exclusive", "latency_us/acquire_exclusive/p99", 1},
	};

	put_setting(to, root, setting);
	put_runs(to, root, "lock", "lock", numbers, VB_ARRAY_SIZE(numbers));
	put_traced(to, root);
	put_notes(to, root);
	chart_runs(to, root, "lock", "lock", "goodput, kops/s", goodput, VB_ARRAY_SIZE(goodput));
	chart_runs(to, root, "lock", "lock", "99th percentile of an acquire, us", tail,
		   VB_ARRAY_SIZE(tail));
}

/* Of each type of transaction. */
static void put_types(FILE *to, const json_t *root)
{
	static const char *const head[] = {"transactions", "commits", "rolled back", "p50 us",
					   "p99",          "p99.9",   "longest",     NULL};
	size_t i;
	json_t *run;

	vb_html_table_begin(to, head, true);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		const char *type;
		json_t *o;

		json_object_foreach(json_object_get(run, "types"), type, o)
		{
			char name[128];

			snprintf(name, sizeof(name), "%.60s: %.60s", vb_report_string(run, "cc"),
				 type);
			vb_html_row_begin(to);
			vb_html_cell(to, name);
			vb_html_cell_number(to, vb_report_number(o, "commits"));
			vb_html_cell_number(to, vb_report_number(o, "rolled_back"));
			vb_html_cell_number(to, vb_report_number(o, "latency_us/p50"));
			vb_html_cell_number(to, vb_report_number(o, "latency_us/p99"));
			vb_html_cell_number(to, vb_report_number(o, "latency_us/p99.9"));
			vb_html_cell_number(to, vb_report_number(o, "latency_us/max"));
			vb_html_row_end(to);
		}
	}
	vb_html_table_end(to);
}

void vb_report_txns(FILE *to, const json_t *root)
{
	static const char *const setting[] = {"fabric",  "profile",    "nodes",
					      "threads", "coroutines", "clients",
					      "records", "workload",   NULL};
	static const struct column numbers[] = {
		{"ktxn/s", "goodput_txn_s", 1e-3},      {"aborts %", "abort_rate", 100},
		{"READs", "verbs_per_txn/read", 1},     {"WRITEs", "verbs_per_txn/write", 1},
		{"atomics", "verbs_per_txn/atomic", 1}, {"SENDs", "verbs_per_txn/send", 1},
		{"calls", "calls_per_txn", 1},          {"recovered", "recovered", 1},
	};
	static const struct column goodput[] = {{"ktxn/s", "goodput_txn_s", 1e-3}};

	put_setting(to, root, setting);
	put_runs(to, root, "txn", "cc", numbers, VB_ARRAY_SIZE(numbers));
	put_notes(to, root);
	chart_runs(to, root, "txn", "cc", "transactions, thousands a second", goodput,
		   VB_ARRAY_SIZE(goodput));
	put_types(to, root);
}
