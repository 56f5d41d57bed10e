/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena report: our JSON files as one HTML page that needs nothing else: style and figures are in
 * it, and it has no scripts.
 *
 *   report.c  the command: files in, a page out
 *   html.c    text that is safe in HTML, tables, the page around them
 *   chart.c   bars and lines as SVG
 *   bench.c   results of bench lock and bench txn
 *   repro.c   results of reproduce
 *
 * What is read may come from anywhere: a field that is missing, or not of its kind, is shown as a
 * dash, and every string is escaped.
 */
#ifndef VB_LAB_REPORT_REPORT_H
#define VB_LAB_REPORT_REPORT_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/opt.h"

/* ---- reading ---- */

/* "" if there is none. */
const char *vb_report_string(const json_t *o, const char *key);
/* Through objects by '/'; NAN if there is none. */
double vb_report_number(const json_t *o, const char *path);
/* Of a histogram: NAN also where it has no samples. */
double vb_report_latency(const json_t *o, const char *path);

/* ---- HTML ---- */

void vb_html_text(FILE *to, const char *s);
/* Text between what is HTML already. */
void vb_html_around(FILE *to, const char *before, const char *text, const char *after);
void vb_html_page_begin(FILE *to, const char *title);
void vb_html_page_end(FILE *to);
/* <h2> and the like. */
void vb_html_heading(FILE *to, unsigned level, const char *text);
void vb_html_paragraph(FILE *to, const char *class, const char *text);
/* A table: its head from a list of names that ends with NULL; all but the first column are numbers
 * where `numbers` says so.  Rows begin with VB_HTML_ROW, and at the end stands VB_HTML_END. */
#define VB_HTML_ROW     "<tr>"
#define VB_HTML_ROW_END "</tr>\n"
#define VB_HTML_END     "</table></div>\n"
void vb_html_table_begin(FILE *to, const char *const *head, bool numbers);
void vb_html_cell(FILE *to, const char *text);
void vb_html_cell_class(FILE *to, const char *class, const char *text);
/* About four places, or none for what has been counted; a dash for NAN. */
void vb_html_cell_number(FILE *to, double v);
void vb_html_cell_count(FILE *to, double n);

/* ---- charts ---- */

#define VB_CHART_SERIES 12  /* drawn at most; the table has them all */
#define VB_CHART_POINTS 100 /* likewise, of a series */

/* An axis whose ends are farther from each other than this factor is logarithmic. */
#define VB_CHART_DECADES 100

struct vb_chart {
	const char *title;
	const char *x_title; /* lines only */
	unsigned n_series, n_points;
	const char *series[VB_CHART_SERIES];            /* names */
	const char *points[VB_CHART_POINTS];            /* labels; lines: numbers as text */
	double value[VB_CHART_SERIES][VB_CHART_POINTS]; /* NAN: none */
};

/* Lines if every point's label is a number and there are at least two, bars otherwise. */
void vb_chart_put(FILE *to, const struct vb_chart *c);

/* ---- sections ---- */

void vb_report_locks(FILE *to, const json_t *root);
void vb_report_txns(FILE *to, const json_t *root);
void vb_report_reproduce(FILE *to, const json_t *root);

/* ---- the command ---- */

struct vb_report_opts {
	const char *out, *title;
};

const struct vb_opt_group *vb_report_groups(struct vb_report_opts *opts, unsigned *n);
/* An enum vb_exit. */
int vb_report(const struct vb_report_opts *opts, char *const *files, unsigned n);

#endif
