/* SPDX-License-Identifier: Apache-2.0 */
/* What `verbena reproduce` prints: for a terminal, or as Markdown for a page. */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define CELLS 16
#define WIDE  96

/* A table is written row by row; on a terminal the first column and the others have fixed widths,
 * and what is longer than its column pushes the rest to the right. */
struct table {
	FILE *to;
	bool markdown;
	unsigned widths[CELLS];
	unsigned texts; /* the first columns, and any beyond `numbers`, are words */
	unsigned numbers;
	unsigned column;
};

static bool is_text(const struct table *t, unsigned column)
{
	return column < t->texts || column >= t->texts + t->numbers;
}

static void cell(struct table *t, const char *text)
{
	unsigned width = t->widths[t->column < CELLS ? t->column : CELLS - 1];

	if (t->markdown) {
		fputs(t->column == 0 ? "| " : " | ", t->to);
		for (; *text != '\0'; text++)
			fprintf(t->to, *text == '|' ? "\\%c" : "%c", *text);
	} else
		fprintf(t->to, is_text(t, t->column) ? "  %-*s" : "  %*s", (int)width, text);
	t->column++;
}

static void end(struct table *t)
{
	fputs(t->markdown ? " |\n" : "\n", t->to);
	t->column = 0;
}

char *vb_repro_number(char *buf, size_t size, double v)
{
	if (isnan(v))
		snprintf(buf, size, "-");
	else if (fabs(v) >= 1000 || v == 0)
		snprintf(buf, size, "%.0f", v);
	else
		snprintf(buf, size, fabs(v) >= 100 ? "%.1f" : fabs(v) >= 1 ? "%.2f" : "%.3g", v);
	return buf;
}

static void number_cell(struct table *t, double v)
{
	char text[32];

	cell(t, vb_repro_number(text, sizeof(text), v));
}

/* After the cells of the head: the line below it, in Markdown. */
static void end_head(struct table *t)
{
	unsigned columns = t->column;

	end(t);
	if (!t->markdown)
		return;
	for (unsigned i = 0; i < columns; i++)
		fputs(is_text(t, i) ? "|---" : "|---:", t->to);
	fputs("|\n", t->to);
}

char *vb_repro_range(char *buf, size_t size, const struct vb_repro_check *c)
{
	static const char *const words[] = {
		[VB_CHECK_AHEAD] = "above 1", [VB_CHECK_BEHIND] = "below 1",
		[VB_CHECK_CLOSE] = "about 1", [VB_CHECK_RISES] = "rises",
		[VB_CHECK_FALLS] = "falls",   [VB_CHECK_FLAT] = "flat",
		[VB_CHECK_KEEPS] = "above 1",
	};
	char lo[24], hi[24];

	vb_repro_number(lo, sizeof(lo), c->lo);
	vb_repro_number(hi, sizeof(hi), c->hi);
	if (words[c->kind] != NULL)
		snprintf(buf, size, "%s", words[c->kind]);
	else if (isinf(c->hi))
		snprintf(buf, size, "at least %s", lo);
	else if (c->lo == 0 && c->hi > 0)
		snprintf(buf, size, "at most %s", hi);
	else
		snprintf(buf, size, strcmp(lo, hi) == 0 ? "%s" : "%s to %s", lo, hi);
	return buf;
}

static void put_label(char *buf, size_t size, const char *label)
{
	size_t len = strlen(buf);

	if (label != NULL && strcmp(label, "*") != 0)
		snprintf(buf + len, size - len, "%s%s", len > 0 ? ", " : "", label);
}

static const char *in_words(const char *system)
{
	return strcmp(system, "*") == 0   ? "each other"
	       : strcmp(system, "^") == 0 ? "the best other"
					  : system;
}

/* "goodput: ShiftLock / MCS, WI, 240"; "goodput: DSLR / each other, what is left from 1.5 to 3" */
char *vb_repro_check_text(char *buf, size_t size, const struct vb_repro_check *c)
{
	const bool along = c->kind >= VB_CHECK_RISES;
	char at[96] = "", other[96] = "";
	size_t len;

	put_label(at, sizeof(at), c->a.series);
	put_label(at, sizeof(at), c->a.x);
	put_label(other, sizeof(other), c->b.series);
	put_label(other, sizeof(other), c->b.x);
	snprintf(buf, size, "%s: %s", c->metric, in_words(c->a.system));
	len = strlen(buf);
	if (c->b.system != NULL)
		snprintf(buf + len, size - len, " / %s", in_words(c->b.system));
	len = strlen(buf);
	if (at[0] != '\0')
		snprintf(buf + len, size - len, "%s %s%s%s",
			 c->kind == VB_CHECK_KEEPS ? ", what is left from" : ",", at,
			 along                           ? " to "
			 : other[0] && strcmp(at, other) ? " / "
							 : "",
			 along || strcmp(at, other) ? other : "");
	return buf;
}

/* ---- the list ---- */

static void list_claims(FILE *to, const struct vb_experiment *e)
{
	unsigned column = 15;

	fprintf(to, "    claims     ");
	for (unsigned i = 0; i < e->n_checks; i++) {
		const struct vb_paper_claim *c = vb_repro_first_of(e->checks, i);

		if (c == NULL)
			continue;
		if (column > 15 && column + strlen(c->id) + 5 > WIDE)
			column = (unsigned)fprintf(to, "\n               ") - 1;
		column += (unsigned)fprintf(to, "%s (%s) ", c->id, c->tier);
	}
	fputc('\n', to);
}

static void list_one(FILE *to, const struct vb_experiment *e)
{
	unsigned points = vb_repro_length(e->systems), series = vb_repro_length(e->series);
	unsigned sweep = vb_repro_length(e->sweep);

	points *= (series > 0 ? series : 1) * (sweep > 0 ? sweep : 1);
	fprintf(to, "  %s\n    measures   %s\n", e->name, e->title);
	list_claims(to, e);
	fprintf(to, "    runs       %u, about %u s for one seed on two cores\n", points,
		e->seconds);
}

void vb_repro_print_list(FILE *to)
{
	const struct vb_experiment *e;
	const char *paper = "";
	size_t len = 0;

	fprintf(to, "Experiments of the papers, on the simulator.  `verbena reproduce PAPER` or "
		    "PAPER/FIGURE runs them;\nthe letter after a claim is its tier "
		    "(data/README.md).\n");
	for (unsigned i = 0; (e = vb_repro_experiment(i)) != NULL; i++) {
		if (strncmp(e->name, paper, len) != 0 || len == 0) {
			paper = e->name;
			len = (size_t)(strchr(paper, '/') - paper) + 1;
			fprintf(to, "\n%.*s\n\n", (int)len - 1, paper);
		}
		list_one(to, e);
	}
}

/* ---- what was measured ---- */

static const char *row_label(char *buf, size_t size, const struct vb_repro_point *p)
{
	buf[0] = '\0';
	put_label(buf, size, p->series != NULL ? p->series->label : NULL);
	put_label(buf, size, p->x != NULL ? p->x->label : NULL);
	return buf;
}

static unsigned rows(const struct vb_repro_result *r)
{
	return r->n / r->n_systems;
}

static struct table table(FILE *to, bool markdown, const struct vb_repro_result *r)
{
	struct table t = {.to = to, .markdown = markdown, .texts = 1, .numbers = CELLS};
	char label[96];

	t.widths[0] = 8;
	for (unsigned i = 0; i < rows(r); i++) {
		unsigned len = (unsigned)strlen(row_label(label, sizeof(label), &r->point[i]));

		t.widths[0] = len > t.widths[0] ? len : t.widths[0];
	}
	for (unsigned i = 1; i < CELLS; i++)
		t.widths[i] = 11;
	return t;
}

/* Of a column that runs only what is compared. */
static bool is_row_run(const struct vb_repro_result *r, unsigned row)
{
	for (unsigned s = 0; s < r->n_systems; s++)
		if (r->point[s * rows(r) + row].n_seeds > 0)
			return true;
	return false;
}

/* Of one metric: a column for each system.  Without: of the only system, one for each metric. */
static void print_numbers(FILE *to, const struct vb_repro_result *r, bool markdown,
			  const struct vb_repro_metric *m)
{
	struct table t = table(to, markdown, r);
	char text[96];

	if (m != NULL)
		fprintf(to, markdown ? "\n%s:\n\n" : "\n  %s\n", m->title);
	cell(&t, m != NULL ? "" : r->e->systems->label);
	for (unsigned s = 0; m != NULL && s < r->n_systems; s++)
		cell(&t, r->e->systems[s].label);
	for (const char *const *name = r->e->metrics; m == NULL && *name != NULL; name++)
		cell(&t, *name);
	end_head(&t);
	for (unsigned i = 0; i < rows(r); i++) {
		const struct vb_repro_point *p = &r->point[i];

		if (!is_row_run(r, i))
			continue;
		cell(&t, row_label(text, sizeof(text), p));
		for (unsigned s = 0; m != NULL && s < r->n_systems; s++)
			number_cell(&t, vb_repro_metric_of(m, &p[s * rows(r)]).median);
		for (const char *const *name = r->e->metrics; m == NULL && *name != NULL; name++)
			number_cell(&t, vb_repro_metric_of(vb_repro_metric_find(*name), p).median);
		end(&t);
	}
}

/* Why there are gaps: each reason once, with the systems it holds for. */
static void print_gaps(FILE *to, const struct vb_repro_result *r)
{
	for (unsigned i = 0; i < r->n; i++) {
		const char *why = vb_repro_why(&r->point[i]);
		bool told = false;

		if (why == NULL)
			continue;
		for (unsigned k = 0; k < i && !told; k++)
			told = r->point[k].system == r->point[i].system &&
			       vb_repro_why(&r->point[k]) != NULL &&
			       strcmp(vb_repro_why(&r->point[k]), why) == 0;
		if (!told)
			fprintf(to, "\n  %s not run: %s\n", r->point[i].system->label, why);
	}
}

/* ---- what became of the claims ---- */

/* "1.20 to 1.31"; with one seed there is no spread. */
static char *in_seeds(char *buf, size_t size, const struct vb_repro_result *r,
		      struct vb_repro_span v)
{
	char lo[32], hi[32];

	if (r->n_seeds < 2 || isnan(v.lo))
		snprintf(buf, size, "-");
	else
		snprintf(buf, size, "%s to %s", vb_repro_number(lo, sizeof(lo), v.lo),
			 vb_repro_number(hi, sizeof(hi), v.hi));
	return buf;
}

/* "1.25 (1.20 to 1.31)" */
static char *with_spread(char *buf, size_t size, const struct vb_repro_result *r,
			 struct vb_repro_span v)
{
	char number[32], span[80];

	vb_repro_number(number, sizeof(number), v.median);
	if (r->n_seeds < 2)
		snprintf(buf, size, "%s", number);
	else
		snprintf(buf, size, "%s (%s)", number, in_seeds(span, sizeof(span), r, v));
	return buf;
}

static void finding_verdict(char *text, size_t size, const struct vb_repro_finding *f)
{
	const bool gap = f->why[0] != '\0' && f->verdict != VB_NOT_REPRODUCED;
	size_t len;

	snprintf(text, size, "%s%s%s%s", vb_verdict_names[f->verdict], f->tie ? ": a tie" : "",
		 gap ? ": " : "", gap ? f->why : "");
	len = strlen(text);
	if (f->compared > 1)
		snprintf(text + len, size - len, " (%u of %u hold; here %s)", f->held, f->compared,
			 f->at);
}

static void print_findings(FILE *to, const struct vb_repro_result *r, bool markdown)
{
	struct table t = {.to = to,
			  .markdown = markdown,
			  .texts = 2,
			  .numbers = 4,
			  .widths = {20, 48, 8, 16, 12, 6, 1}};
	const char *const head[] = {"claim",  "what",   "ours",   "over the seeds",
				    r->whose, "off by", "verdict"};
	char text[512], range[64];

	fputc('\n', to);
	for (unsigned i = 0; i < VB_ARRAY_SIZE(head); i++)
		cell(&t, head[i]);
	end_head(&t);
	for (unsigned i = 0; i < r->n_checks; i++) {
		const struct vb_repro_finding *f = &r->finding[i];

		cell(&t, f->check->claim);
		cell(&t, vb_repro_check_text(text, sizeof(text), f->check));
		number_cell(&t, f->ours.median);
		cell(&t, in_seeds(text, sizeof(text), r, f->ours));
		cell(&t, vb_repro_range(range, sizeof(range), f->check));
		snprintf(text, sizeof(text), "x");
		vb_repro_number(text + 1, sizeof(text) - 1, f->distance);
		cell(&t, f->compared == 0 ? "-" : text);
		finding_verdict(text, sizeof(text), f);
		cell(&t, text);
		end(&t);
	}
}

/* What a reader must know of its claims beside the numbers. */
static void print_notes(FILE *to, const struct vb_repro_note *notes, bool markdown)
{
	const char *bullet = markdown ? "- " : "  ";

	if (notes != NULL)
		fputc('\n', to);
	for (const struct vb_repro_note *n = notes; n != NULL && n->claim != NULL; n++) {
		if (n->by_construction != NULL)
			fprintf(to, "%s%s by construction: %s\n", bullet, n->claim,
				n->by_construction);
		if (n->unchecked != NULL)
			fprintf(to, "%s%s partly run, not checked: %s\n", bullet, n->claim,
				n->unchecked);
	}
}

static void print_all_numbers(FILE *to, const struct vb_repro_result *r, bool markdown)
{
	if (r->n_systems == 1)
		print_numbers(to, r, markdown, NULL);
	else
		for (const char *const *m = r->e->metrics; *m != NULL; m++)
			print_numbers(to, r, markdown, vb_repro_metric_find(*m));
	print_gaps(to, r);
}

/* "With profile=cx5-card; DSLR: lock-options=omega=1862ns." */
static void print_variant(FILE *to, const struct vb_repro_result *r, bool markdown)
{
	const struct vb_repro_variant *v = r->variant;
	const char *tick = markdown ? "`" : "", *between = "";

	fprintf(to, "%s", markdown ? "With " : "  with ");
	if (v->options != NULL) {
		fprintf(to, "%s%s%s", tick, v->options, tick);
		between = "; ";
	}
	for (const struct vb_repro_value *o = v->values; o != NULL && o->label != NULL; o++) {
		if (!vb_repro_is_label(r->e, o->label))
			continue;
		fprintf(to, "%s%s: %s%s%s", between, o->label, tick, o->options, tick);
		between = "; ";
	}
	fprintf(to, ".\n");
}

static void print_column(FILE *to, const struct vb_repro_result *r, const char *title,
			 const char *about, bool markdown)
{
	fprintf(to, markdown ? "\n#### %s: %s\n\n" : "\n%s: %s\n", r->e->name, title);
	print_variant(to, r, markdown);
	if (r->variant->about != NULL)
		fprintf(to, markdown ? "\n%s%s.\n" : "  %s%s\n", about, r->variant->about);
}

static void print_artifact(FILE *to, const struct vb_repro_outcome *o, bool markdown)
{
	print_column(to, &o->artifact, "as its artifact does", "It still lacks: ", markdown);
	print_all_numbers(to, &o->artifact, markdown);
	print_findings(to, &o->artifact, markdown);
	if (o->own.n_checks > 0)
		print_findings(to, &o->own, markdown);
	print_notes(to, o->e->artifact_notes, markdown);
}

void vb_repro_print(FILE *to, const struct vb_repro_outcome *o, bool markdown)
{
	const struct vb_experiment *e = o->e;
	const struct vb_repro_result *r = &o->written;

	fprintf(to, markdown ? "### %s\n\n%s.\n\n" : "%s: %s\n", e->name, e->title);
	fprintf(to, markdown ? "`%s`" : "  %s", r->common);
	if (r->n_seeds > 1)
		fprintf(to, ", seeds %" PRIu64 " to %" PRIu64, r->seed, r->seed + r->n_seeds - 1);
	else
		fprintf(to, ", seed %" PRIu64, r->seed);
	fputs(markdown ? "\n\n" : "\n", to);
	if (e->differs != NULL)
		fprintf(to, markdown ? "Differs from the paper: %s.\n\n" : "  differs: %s\n",
			e->differs);
	print_all_numbers(to, r, markdown);
	print_findings(to, r, markdown);
	print_notes(to, e->notes, markdown);
	if (e->artifact != NULL)
		print_artifact(to, o, markdown);
	for (unsigned i = 0; i < o->n_switches; i++) {
		print_column(to, &o->switched[i], o->switched[i].variant->name,
			     "It shows: ", markdown);
		print_gaps(to, &o->switched[i]);
		print_findings(to, &o->switched[i], markdown);
	}
	fputc('\n', to);
	fflush(to);
}

/* Its checks: those that are reproduced, or all. */
static unsigned of_claim(const struct vb_repro_result *r, const char *claim, bool reproduced)
{
	unsigned n = 0;

	for (unsigned i = 0; i < r->n_checks; i++)
		n += strcmp(r->checks[i].claim, claim) == 0 &&
		     (!reproduced || r->finding[i].verdict == VB_REPRODUCED);
	return n;
}

/* What decided, "goodput: a / b: 1.20 (1.18 to 1.22), paper 1.30", and what else is to be said. */
static void decided(char *text, size_t size, const struct vb_repro_result *r,
		    const struct vb_repro_ruling *u)
{
	const struct vb_repro_finding *f = u->weakest;
	char ours[128], range[64];
	size_t len;

	if (f->compared == 0) {
		snprintf(text, size, "%s", f->why);
		return;
	}
	text[0] = '\0';
	if (!isnan(u->explained.median))
		snprintf(text, size, "%s of the time explained; ",
			 with_spread(ours, sizeof(ours), r, u->explained));
	len = strlen(text);
	vb_repro_check_text(text + len, size - len, f->check);
	len = strlen(text);
	snprintf(text + len, size - len, ": %s, %s %s%s",
		 with_spread(ours, sizeof(ours), r, f->ours), r->whose,
		 vb_repro_range(range, sizeof(range), f->check), f->tie ? ": a tie" : "");
	len = strlen(text);
	if (u->verdict == VB_BY_CONSTRUCTION)
		snprintf(text + len, size - len, "; %s", u->by_construction);
	else if (u->unchecked != NULL)
		snprintf(text + len, size - len, "; not checked: %s", u->unchecked);
}

/* What became of a claim in one column; a column that does not have it says nothing. */
struct heading {
	const char *title, *decides; /* of its verdicts; before what decided them */
	unsigned counts[VB_VERDICTS], claims;
};

enum { WRITTEN, ARTIFACT, OWN, COLUMNS };

static const struct vb_repro_result *column_of(const struct vb_repro_outcome *o, unsigned column)
{
	return column == WRITTEN ? &o->written : column == ARTIFACT ? &o->artifact : &o->own;
}

/* true: it is reproduced in one of them. */
static bool claim_row(struct table *t, const struct vb_repro_outcome *o,
		      const struct vb_paper_claim *claim, struct heading *headings)
{
	char text[2048] = "";
	bool reproduced = false;

	cell(t, claim->id);
	cell(t, claim->tier);
	cell(t, o->e->name);
	cell(t, claim->value[0] != '\0' ? claim->value : claim->claim);
	cell(t, claim->artifact);
	for (unsigned i = 0; i < COLUMNS; i++) {
		const struct vb_repro_result *r = column_of(o, i);
		struct vb_repro_ruling u;
		size_t len = strlen(text);

		if (!vb_repro_has_claim(r, claim->id)) {
			cell(t, "-");
			continue;
		}
		u = vb_repro_claim(r, claim->id);
		headings[i].counts[u.verdict]++;
		headings[i].claims++;
		reproduced |= u.verdict == VB_REPRODUCED;
		snprintf(text + len, sizeof(text) - len, "%s%s(%u of %u) ", len > 0 ? ". " : "",
			 headings[i].decides, of_claim(r, claim->id, true),
			 of_claim(r, claim->id, false));
		len = strlen(text);
		decided(text + len, sizeof(text) - len, r, &u);
		cell(t, vb_verdict_names[u.verdict]);
	}
	cell(t, text);
	end(t);
	return reproduced;
}

/* The artifact's own numbers, by the same rules: whom they contradict. */
static void print_contradictions(FILE *to, const struct vb_repro_outcome *outcomes, unsigned n,
				 bool markdown)
{
	bool any = false;

	for (unsigned i = 0; i < n; i++) {
		const struct vb_repro_result *r = &outcomes[i].theirs;

		for (unsigned k = 0; k < r->n_checks; k++) {
			const struct vb_paper_claim *claim = vb_repro_first_of(r->checks, k);
			struct vb_repro_ruling u;
			char text[1024];

			if (claim == NULL)
				continue;
			u = vb_repro_claim(r, claim->id);
			if (u.verdict == VB_REPRODUCED)
				continue;
			if (!any)
				fprintf(to, "\nThe authors' own later runs, judged against their "
					    "paper by the same rules:\n\n");
			any = true;
			decided(text, sizeof(text), r, &u);
			fprintf(to, "%s%s %s: %s (%s)\n", markdown ? "- " : "  ", claim->id,
				vb_verdict_names[u.verdict], text, claim->source);
		}
	}
}

static void print_switches(FILE *to, const struct vb_repro_outcome *outcomes, unsigned n,
			   bool markdown)
{
	bool any = false;

	for (unsigned i = 0; i < n; i++)
		for (unsigned w = 0; w < outcomes[i].n_switches; w++) {
			const struct vb_repro_result *r = &outcomes[i].switched[w];

			for (unsigned k = 0; k < r->n_checks; k++) {
				const struct vb_paper_claim *c = vb_repro_first_of(r->checks, k);
				struct vb_repro_ruling u;
				char text[1024];

				if (c == NULL)
					continue;
				u = vb_repro_claim(r, c->id);
				decided(text, sizeof(text), r, &u);
				if (!any)
					fprintf(to,
						"\nWith a switch, as an experiment on the cause "
						"(not counted above):\n\n");
				any = true;
				fprintf(to, "%s%s %s: %s: %s\n", markdown ? "- " : "  ", c->id,
					r->variant->name, vb_verdict_names[u.verdict], text);
			}
		}
}

static void print_counts(FILE *to, const struct heading *h)
{
	if (h->claims == 0)
		return;
	fprintf(to, "\n%u claims %s:", h->claims, h->title);
	for (unsigned v = 0; v < VB_VERDICTS; v++)
		fprintf(to, "%s %u %s", v > 0 ? "," : "", h->counts[v], vb_verdict_names[v]);
	fputc('\n', to);
}

void vb_repro_print_claims(FILE *to, const struct vb_repro_outcome *outcomes, unsigned n,
			   bool markdown)
{
	static const char *const head[] = {"claim",
					   "tier",
					   "experiment",
					   "paper says",
					   "artifact says",
					   "as written",
					   "as its artifact does",
					   "the same, against the artifact",
					   "what decides"};
	struct heading headings[COLUMNS] = {
		[WRITTEN] = {.title = "as written", .decides = ""},
		[ARTIFACT] = {.title = "as the artifact does, against the paper",
			      .decides = "As its artifact does: "},
		[OWN] = {.title = "as the artifact does, against its own numbers",
			 .decides = "Against these: "},
	};
	struct table t = {.to = to,
			  .markdown = markdown,
			  .texts = CELLS,
			  .widths = {20, 4, 16, 40, 24, 15, 20, 30, 1}};
	unsigned reproduced = 0;

	fprintf(to, markdown ? "### Claims\n\n" : "Claims\n");
	for (unsigned i = 0; i < VB_ARRAY_SIZE(head); i++)
		cell(&t, head[i]);
	end_head(&t);
	for (unsigned i = 0; i < n; i++)
		for (unsigned k = 0; k < outcomes[i].e->n_checks; k++) {
			const struct vb_paper_claim *claim =
				vb_repro_first_of(outcomes[i].e->checks, k);

			if (claim != NULL)
				reproduced += claim_row(&t, &outcomes[i], claim, headings);
		}
	for (unsigned i = 0; i < COLUMNS; i++)
		print_counts(to, &headings[i]);
	fprintf(to, "\n%u of %u reproduced in one of the columns.\n", reproduced,
		headings[WRITTEN].claims);
	print_contradictions(to, outcomes, n, markdown);
	print_switches(to, outcomes, n, markdown);
}
