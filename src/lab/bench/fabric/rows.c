/* SPDX-License-Identifier: Apache-2.0 */
/* See fabric.h: what was measured, in rows; their table and JSON. */
#include "lab/bench/fabric/fabric.h"

#include <stdio.h>
#include <stdlib.h>

#include "base/log.h"
#include "lab/json.h"
#include "lab/run.h"

void vb_floor_add(struct vb_floor *f, const char *section, const char *name, const char *unit,
		  double value, const char *baseline, double base)
{
	struct vb_floor_row *r;

	vb_assert(f->n < VB_FLOOR_ROWS);
	r = &f->row[f->n++];
	*r = (struct vb_floor_row){.section = section,
				   .unit = unit,
				   .value = value,
				   .baseline = baseline,
				   .base = base,
				   .ratio = base > 0 ? value / base : 0};
	snprintf(r->name, sizeof(r->name), "%s", name);
}

static int compare(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

double vb_floor_median(double *values, unsigned n)
{
	qsort(values, n, sizeof(*values), compare);
	return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

void vb_floor_add_turns(struct vb_floor *f, const char *section, const char *name, double *values,
			const char *baseline, double *bases, unsigned n)
{
	double ratios[VB_FLOOR_REPEATS], ratio;

	for (unsigned i = 0; i < n; i++)
		ratios[i] = values[i] / bases[i];
	ratio = vb_floor_median(ratios, n);
	vb_floor_add(f, section, name, "ns", vb_floor_median(values, n), baseline,
		     vb_floor_median(bases, n));
	f->row[f->n - 1].ratio = ratio;
}

void vb_floor_print(FILE *to, const struct vb_floor *f, unsigned first, const char *title)
{
	fprintf(to, "%s\n", title);
	for (unsigned i = first; i < f->n; i++) {
		const struct vb_floor_row *r = &f->row[i];

		fprintf(to, "  %-31s %10.2f %-7s", r->name, r->value, r->unit);
		if (r->baseline != NULL)
			fprintf(to, " %-34s %10.2f   %6.2fx", r->baseline, r->base, r->ratio);
		fputc('\n', to);
	}
	if (f->note[0] != '\0')
		fprintf(to, "  %s\n", f->note);
	fputc('\n', to);
	fflush(to);
}

int vb_floor_write_json(const struct vb_floor *f, struct vb_json_out *out)
{
	json_t *root, *runs = json_array();
	int err;

	for (unsigned i = 0; i < f->n; i++) {
		const struct vb_floor_row *r = &f->row[i];
		json_t *o = json_object();

		json_object_set_new(o, "kind", json_string("fabric"));
		json_object_set_new(o, "section", json_string(r->section));
		json_object_set_new(o, "name", json_string(r->name));
		json_object_set_new(o, "unit", json_string(r->unit));
		json_object_set_new(o, "value", json_real(r->value));
		json_object_set_new(o, "baseline",
				    r->baseline ? json_string(r->baseline) : json_null());
		json_object_set_new(o, "baseline_value",
				    r->baseline ? json_real(r->base) : json_null());
		json_object_set_new(o, "ratio", r->baseline ? json_real(r->ratio) : json_null());
		json_array_append_new(runs, o);
	}
	root = vb_json_head(f->o.seed);
	json_object_set_new(root, "interrupted", json_boolean(vb_interrupted));
	json_object_set_new(root, "runs", runs);
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}
