/* SPDX-License-Identifier: Apache-2.0 */
/* Results of bench lock and bench txn as sections of the page. */
#include "lab/report/report.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/compiler.h"
#include "base/opt.h"

/* A column of a table of runs: where its number is, what it is multiplied with, and what it is.  The
 * last has no head. */
struct column {
	const char *head, *path;
	double scale;
	enum { RATIO, COUNT, LATENCY } what;
};

static double value_of(const json_t *run, const struct column *c)
{
	return (c->what == LATENCY ? vb_report_latency(run, c->path)
				   : vb_report_number(run, c->path)) *
	       c->scale;
}

#define NAME 96

/* "silo 00000": a protocol with the stages that are done by RPC; "dslr". */
static const char *name_of(const json_t *run, char name[NAME])
{
	const char *lock = vb_report_string(run, "lock"), *hybrid = vb_report_string(run, "hybrid");

	if (lock[0] != '\0')
		snprintf(name, NAME, "%.60s", lock);
	else
		snprintf(name, NAME, "%.60s%s%.20s", vb_report_string(run, "cc"),
			 hybrid[0] != '\0' ? " " : "", hybrid);
	return name;
}

static void put_cells(FILE *to, const json_t *run, const struct column *c)
{
	for (; c->head != NULL; c++)
		if (c->what == COUNT)
			vb_html_cell_count(to, value_of(run, c));
		else
			vb_html_cell_number(to, value_of(run, c));
}

/* `more` puts the last cells, of which the names are in `words`. */
static void put_runs(FILE *to, const json_t *root, const char *kind, const struct column *columns,
		     void (*more)(FILE *to, const json_t *run), const char *const *words)
{
	const char *head[40] = {kind[0] == 't' ? "cc, stages by RPC" : "lock"};
	unsigned n_head = 1;
	char name[NAME];
	size_t i;
	json_t *run;

	for (unsigned k = 0; columns[k].head != NULL && n_head < VB_ARRAY_SIZE(head) - 1; k++)
		head[n_head++] = columns[k].head;
	for (; words != NULL && *words != NULL && n_head < VB_ARRAY_SIZE(head) - 1; words++)
		head[n_head++] = *words;
	vb_html_table_begin(to, head, true);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		if (strcmp(vb_report_string(run, "kind"), kind) != 0)
			continue;
		fputs(VB_HTML_ROW, to);
		vb_html_cell(to, name_of(run, name));
		put_cells(to, run, columns);
		if (more != NULL)
			more(to, run);
		fputs(VB_HTML_ROW_END, to);
	}
	fputs(VB_HTML_END, to);
}

/* One bar for each run, or one in each group for each of the columns. */
static void chart_runs(FILE *to, const json_t *root, const char *kind, const char *title,
		       const struct column *columns, unsigned n)
{
	static char names[VB_CHART_POINTS][NAME];
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
			c.value[k][c.n_points] = value_of(run, &columns[k]);
		c.points[c.n_points] = name_of(run, names[c.n_points]);
		c.n_points++;
	}
	vb_chart_put(to, &c);
}

/* ---- verdicts ---- */

static bool is_false(const json_t *run, const char *object, const char *key)
{
	return json_is_false(json_object_get(json_object_get(run, object), key));
}

static void put_verdict(FILE *to, const json_t *verdict, const char *good, const char *bad,
			const char *none)
{
	if (json_is_boolean(verdict))
		vb_html_cell_class(to, json_is_true(verdict) ? "reproduced" : "failed",
				   json_is_true(verdict) ? good : bad);
	else
		vb_html_cell_class(to, "notrun", none);
}

static const char *const verdict_heads[] = {"serializable", "invariant", NULL};

static void put_verdicts(FILE *to, const json_t *run)
{
	put_verdict(to, json_object_get(json_object_get(run, "check"), "serializable"), "yes", "no",
		    "not checked");
	put_verdict(to, json_object_get(json_object_get(run, "invariant"), "holds"), "holds",
		    "broken", "not judged");
}

static void VB_PRINTF(3, 4) put_note(FILE *to, const char *class, const char *fmt, ...)
{
	char text[640];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	vb_html_paragraph(to, class, text);
}

static void put_run_notes(FILE *to, const json_t *run)
{
	const char *stalled = vb_report_string(run, "stalled"),
		   *died = vb_report_string(run, "died");
	const json_t *check = json_object_get(run, "check");
	const json_t *invariant = json_object_get(run, "invariant");
	const char *why = vb_report_string(invariant, "why");
	double violations = vb_report_number(run, "audit/violations");
	double killed = vb_report_number(run, "workers_killed");
	char name[NAME];

	name_of(run, name);
	if (stalled[0] != '\0')
		put_note(to, "failed", "%s stalled: %.400s", name, stalled);
	if (violations > 0)
		put_note(to, "failed", "%s: %.0f violations", name, violations);
	if (is_false(run, "check", "serializable"))
		put_note(to, "failed", "%s is not serializable: %.100s", name,
			 vb_report_string(check, "first"));
	if (json_is_true(json_object_get(check, "history_full")))
		put_note(to, "direction", "%s: the history was full before the run was over", name);
	if (is_false(run, "invariant", "holds"))
		put_note(to, "failed", "%s: the invariant is broken: %.300s", name, why);
	else if (why[0] != '\0')
		put_note(to, "dim", "%s: the invariant was not judged: %.300s", name, why);
	if (killed > 0)
		put_note(to, "failed", "%s: %.0f processes were killed or stopped%s%.100s", name,
			 killed, died[0] != '\0' ? ": " : "", died);
}

/* What ended early, and what was found. */
static void put_notes(FILE *to, const json_t *root)
{
	size_t i;
	json_t *run, *skipped;

	json_array_foreach(json_object_get(root, "runs"), i, run) put_run_notes(to, run);
	json_array_foreach(json_object_get(root, "skipped"), i, skipped)
		put_note(to, "dim", "%.60s%.60s%.60s was not run: %.300s",
			 vb_report_string(skipped, "lock"), vb_report_string(skipped, "cc"),
			 vb_report_string(skipped, "run"), vb_report_string(skipped, "why"));
}

/* ---- what the runs have in common ---- */

static void put_value(FILE *to, const char *key, const json_t *v)
{
	size_t n = strlen(key);
	bool is_time = n > 3 && strcmp(key + n - 3, "_ns") == 0 && json_is_number(v);
	char time[32], *text;

	if (v == NULL || json_is_null(v))
		return;
	text = is_time ? strdup(vb_format_ns(time, sizeof(time), json_number_value(v)))
	       : json_is_string(v)
		       ? strdup(json_string_value(v))
		       : json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(6));
	if (text == NULL)
		return;
	for (size_t i = 0; i < (is_time ? n - 3 : n); i++)
		vb_html_text(to, (const char[]){key[i], '\0'});
	fputs(" <code>", to);
	vb_html_text(to, text);
	fputs("</code> ", to);
	free(text);
}

/* From the first of them. */
static void put_setting(FILE *to, const json_t *root, const char *const *keys)
{
	json_t *run = json_array_get(json_object_get(root, "runs"), 0);

	fputs("<p>", to);
	for (; *keys != NULL; keys++) {
		json_t *v = json_object_get(run, *keys), *part;
		const char *key;

		if (!json_is_object(v)) {
			put_value(to, *keys, v);
			continue;
		}
		json_object_foreach(v, key, part)
			put_value(to, strcmp(key, "name") == 0 ? *keys : key, part);
	}
	fputs("</p>\n", to);
}

/* Of runs of a trace: its transactions. */
static void put_traced(FILE *to, const json_t *root)
{
	static const struct column numbers[] = {
		{"ktxn/s", "txns/committed_tps", 1e-3, RATIO},
		{"locks each", "txns/locks_per_txn", 1, RATIO},
		{"aborts %", "txns/abort_share", 100, RATIO},
		{"given up", "txns/given_up", 1, COUNT},
		{NULL, NULL, 0, 0},
	};
	const json_t *first = json_array_get(json_object_get(root, "runs"), 0);

	if (!json_is_object(json_object_get(first, "txns")))
		return;
	put_runs(to, root, "lock", numbers, NULL, NULL);
	chart_runs(to, root, "lock", "transactions, thousands a second", numbers, 1);
}

void vb_report_locks(FILE *to, const json_t *root)
{
	static const char *const setting[] = {"fabric",  "profile", "nodes",    "servers",  "procs",
					      "clients", "locks",   "lease_ns", "workload", NULL};
	static const struct column numbers[] = {
		{"kops/s", "goodput_ops_s", 1e-3, RATIO},
		{"shared samples", "latency_us/acquire_shared/count", 1, COUNT},
		{"p50 us", "latency_us/acquire_shared/p50", 1, LATENCY},
		{"p99", "latency_us/acquire_shared/p99", 1, LATENCY},
		{"exclusive samples", "latency_us/acquire_exclusive/count", 1, COUNT},
		{"p50 us", "latency_us/acquire_exclusive/p50", 1, LATENCY},
		{"p99", "latency_us/acquire_exclusive/p99", 1, LATENCY},
		{"p99.9", "latency_us/acquire_exclusive/p99.9", 1, LATENCY},
		{"release p50", "latency_us/release/p50", 1, LATENCY},
		{"atomics", "verbs_per_op/atomic", 1, RATIO},
		{"READs", "verbs_per_op/read", 1, RATIO},
		{"SENDs", "verbs_per_op/send", 1, RATIO},
		{"failed", "failed", 1, COUNT},
		{"unfinished", "unfinished", 1, COUNT},
		{"grants lost", "lost", 1, COUNT},
		{"recoveries", "recoveries", 1, COUNT},
		{"violations", "audit/violations", 1, COUNT},
		{NULL, NULL, 0, 0},
	};
	static const struct column tail[] = {
		{"shared", "latency_us/acquire_shared/p99", 1, LATENCY},
		{"exclusive", "latency_us/acquire_exclusive/p99", 1, LATENCY},
	};

	put_setting(to, root, setting);
	put_runs(to, root, "lock", numbers, NULL, NULL);
	put_traced(to, root);
	put_notes(to, root);
	chart_runs(to, root, "lock", "goodput, kops/s", numbers, 1);
	chart_runs(to, root, "lock", "99th percentile of an acquire, us", tail, 2);
}

/* Of each type of transaction. */
static void put_types(FILE *to, const json_t *root)
{
	static const char *const head[] = {"transactions", "commits", "rolled back",
					   "samples",      "p50 us",  "p99",
					   "p99.9",        "longest", NULL};
	static const struct column columns[] = {
		{"", "commits", 1, COUNT},          {"", "rolled_back", 1, COUNT},
		{"", "latency_us/count", 1, COUNT}, {"", "latency_us/p50", 1, LATENCY},
		{"", "latency_us/p99", 1, LATENCY}, {"", "latency_us/p99.9", 1, LATENCY},
		{"", "latency_us/max", 1, LATENCY}, {NULL, NULL, 0, 0},
	};
	size_t i;
	json_t *run;

	vb_html_table_begin(to, head, true);
	json_array_foreach(json_object_get(root, "runs"), i, run)
	{
		const char *type;
		json_t *o;

		json_object_foreach(json_object_get(run, "types"), type, o)
		{
			char name[NAME], text[NAME + 64];

			snprintf(text, sizeof(text), "%s: %.60s", name_of(run, name), type);
			fputs(VB_HTML_ROW, to);
			vb_html_cell(to, text);
			put_cells(to, o, columns);
			fputs(VB_HTML_ROW_END, to);
		}
	}
	fputs(VB_HTML_END, to);
}

void vb_report_txns(FILE *to, const json_t *root)
{
	static const char *const setting[] = {"fabric",  "profile",    "nodes",
					      "threads", "coroutines", "clients",
					      "records", "workload",   NULL};
	static const struct column numbers[] = {
		{"ktxn/s", "goodput_txn_s", 1e-3, RATIO},
		{"aborts %", "abort_rate", 100, RATIO},
		{"READs", "verbs_per_txn/read", 1, RATIO},
		{"WRITEs", "verbs_per_txn/write", 1, RATIO},
		{"atomics", "verbs_per_txn/atomic", 1, RATIO},
		{"SENDs", "verbs_per_txn/send", 1, RATIO},
		{"calls", "calls_per_txn", 1, RATIO},
		{"recovered", "recovered", 1, COUNT},
		{"answers lost", "answers_lost", 1, COUNT},
		{"failed", "failed", 1, COUNT},
		{NULL, NULL, 0, 0},
	};

	put_setting(to, root, setting);
	put_runs(to, root, "txn", numbers, put_verdicts, verdict_heads);
	put_notes(to, root);
	chart_runs(to, root, "txn", "transactions, thousands a second", numbers, 1);
	put_types(to, root);
}
