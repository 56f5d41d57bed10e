/* SPDX-License-Identifier: Apache-2.0 */
/* HTML: what is safe in it, tables, and the page around them. */
#include "lab/report/report.h"

#include <math.h>
#include <string.h>

#include <verbena/verbena.h>

/* Light and dark after the reader's wish; the colours of series c0, c1, ... differ in both. */
static const char style[] =
	":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#59636e;--line:#d4d9de;"
	"--head:#f3f5f7;--good:#0a6b2d;--part:#8a5a00;--bad:#b3261e}\n"
	"@media(prefers-color-scheme:dark){:root{--bg:#14171a;--fg:#e3e6e9;--dim:#9aa4ae;"
	"--line:#363c43;--head:#1f2429;--good:#5bd07f;--part:#e3b341;--bad:#ff8a80}}\n"
	"body{background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif;"
	"max-width:72rem;margin:2rem auto;padding:0 1rem}\n"
	"h1,h2,h3{line-height:1.25}h2{margin-top:2.5rem;border-bottom:1px solid var(--line)}\n"
	"table{border-collapse:collapse;margin:.8rem 0;font-variant-numeric:tabular-nums}\n"
	".wide{overflow-x:auto}\n"
	"th,td{padding:.2rem .6rem;border-bottom:1px solid var(--line);text-align:left;"
	"vertical-align:top}\n"
	"th{background:var(--head)}table.num td:not(:first-child),"
	"table.num th:not(:first-child){text-align:right}\n"
	"code{overflow-wrap:anywhere}.dim{color:var(--dim)}\n"
	".reproduced{color:var(--good)}.direction{color:var(--part)}.failed{color:var(--bad)}"
	".notrun{color:var(--dim)}\n"
	"figure{margin:1rem 0}figcaption{color:var(--dim);font-size:.9em}\n"
	"svg{max-width:100%;height:auto}svg text{fill:var(--fg);font:12px system-ui,sans-serif}"
	"svg .grid{stroke:var(--line)}\n"
	".key span{white-space:nowrap;margin-right:1em}.key i{display:inline-block;width:.8em;"
	"height:.8em;margin-right:.3em;border-radius:2px}\n";

/* Of series 0 to 11: fill and stroke, and the mark in the key. */
static const char *const colours[VB_CHART_SERIES] = {
	"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b58900", "#56b4e9",
	"#7f4fc9", "#8c564b", "#6b8e23", "#e377c2", "#708090", "#17a2a2",
};

void vb_html_text(FILE *to, const char *s)
{
	static const char special[] = "&<>\"'";
	static const char *const names[] = {"&amp;", "&lt;", "&gt;", "&quot;", "&#39;"};

	for (; *s != '\0'; s++) {
		const char *found = strchr(special, *s);

		/* Control characters are not allowed in HTML, nor of use. */
		if (found != NULL)
			fputs(names[found - special], to);
		else
			fputc((unsigned char)*s < 0x20 && *s != '\n' && *s != '\t' ? ' ' : *s, to);
	}
}

void vb_html_around(FILE *to, const char *before, const char *text, const char *after)
{
	fputs(before, to);
	vb_html_text(to, text);
	fputs(after, to);
}

void vb_html_page_begin(FILE *to, const char *title)
{
	fputs("<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
	      "<meta name=\"viewport\" content=\"width=device-width\">\n",
	      to);
	vb_html_around(to, "<title>", title, "</title>\n<style>\n");
	fputs(style, to);
	for (unsigned i = 0; i < VB_CHART_SERIES; i++)
		fprintf(to, ".c%u{fill:%s;stroke:%s;background:%s}\n", i, colours[i], colours[i],
			colours[i]);
	fputs("polyline{fill:none!important;stroke-width:2}\n</style>\n</head>\n<body>\n", to);
	vb_html_heading(to, 1, title);
}

void vb_html_page_end(FILE *to)
{
	fprintf(to, "<p class=\"dim\">Made by verbena %s (%s).</p>\n</body>\n</html>\n",
		vb_version(), vb_commit());
}

void vb_html_heading(FILE *to, unsigned level, const char *text)
{
	fprintf(to, "<h%u>", level);
	vb_html_text(to, text);
	fprintf(to, "</h%u>\n", level);
}

void vb_html_paragraph(FILE *to, const char *class, const char *text)
{
	fprintf(to, "<p class=\"%s\">", class);
	vb_html_around(to, "", text, "</p>\n");
}

void vb_html_table_begin(FILE *to, const char *const *head, bool numbers)
{
	fprintf(to, "<div class=\"wide\"><table%s>\n<tr>", numbers ? " class=\"num\"" : "");
	for (; *head != NULL; head++)
		vb_html_around(to, "<th>", *head, "</th>");
	fputs("</tr>\n", to);
}

void vb_html_cell(FILE *to, const char *text)
{
	vb_html_around(to, "<td>", text, "</td>");
}

void vb_html_cell_class(FILE *to, const char *class, const char *text)
{
	fprintf(to, "<td class=\"%s\">", class);
	vb_html_around(to, "", text, "</td>");
}

void vb_html_cell_number(FILE *to, double v)
{
	if (!isfinite(v))
		fputs("<td>-</td>", to);
	else if (fabs(v) >= 1000 || v == 0)
		fprintf(to, "<td>%.0f</td>", v);
	else
		fprintf(to, fabs(v) >= 1 ? "<td>%.2f</td>" : "<td>%.3g</td>", v);
}

void vb_html_cell_count(FILE *to, double n)
{
	if (!isfinite(n))
		fputs("<td>-</td>", to);
	else
		fprintf(to, "<td>%.0f</td>", n);
}

/* ---- reading ---- */

const char *vb_report_string(const json_t *o, const char *key)
{
	const char *s = json_string_value(json_object_get(o, key));

	return s != NULL ? s : "";
}

double vb_report_number(const json_t *o, const char *path)
{
	while (*path != '\0') {
		size_t len = strcspn(path, "/");
		char key[64];

		snprintf(key, sizeof(key), "%.*s", (int)len, path);
		o = json_object_get(o, key);
		path += len + (path[len] == '/');
	}
	return json_is_number(o) ? json_number_value(o) : NAN;
}

double vb_report_latency(const json_t *o, const char *path)
{
	const char *slash = strrchr(path, '/');
	char count[128];

	snprintf(count, sizeof(count), "%.*scount", slash != NULL ? (int)(slash - path) + 1 : 0,
		 path);
	return vb_report_number(o, count) > 0 ? vb_report_number(o, path) : NAN;
}
