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

int vb_floor_turns(struct vb_floor *f, const char *section, const struct vb_floor_pair *p,
		   double (*turn)(void *ctx, unsigned what), void *ctx)
{
	double v[VB_FLOOR_REPEATS], base[VB_FLOOR_REPEATS];
	unsigned n = 0;

	for (; n < f->o.repeat && (n == 0 || !vb_interrupted); n++) {
		v[n] = turn(ctx, p->what);
		base[n] = turn(ctx, p->against);
		if (v[n] < 0 || base[n] < 0)
			return (int)(v[n] < 0 ? v[n] : base[n]);
	}
	vb_floor_add_turns(f, section, p->name, v, p->baseline, base, n);
	return 0;
}

void vb_floor_rivals_init(struct vb_floor_rivals *r)
{
	pthread_mutexattr_t ma;
	pthread_rwlockattr_t ra;

	pthread_mutexattr_init(&ma);
	pthread_mutexattr_setpshared(&ma, PTHREAD_PROCESS_SHARED);
	pthread_mutexattr_setrobust(&ma, PTHREAD_MUTEX_ROBUST);
	pthread_mutex_init(&r->mutex, &ma);
	pthread_mutexattr_destroy(&ma);
	pthread_rwlockattr_init(&ra);
	pthread_rwlockattr_setpshared(&ra, PTHREAD_PROCESS_SHARED);
	pthread_rwlock_init(&r->rwlock, &ra);
	pthread_rwlockattr_destroy(&ra);
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
		const bool beside = r->baseline != NULL;

		json_array_append_new(
			runs, json_pack("{s:s,s:s,s:s,s:s,s:f,s:s?,s:o,s:o}", "kind", "fabric",
					"section", r->section, "name", r->name, "unit", r->unit,
					"value", r->value, "baseline", r->baseline,
					"baseline_value", beside ? json_real(r->base) : json_null(),
					"ratio", beside ? json_real(r->ratio) : json_null()));
	}
	root = vb_json_head(f->o.seed);
	vb_json_set(root, "interrupted", (bool)vb_interrupted);
	vb_json_set(root, "runs", runs);
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}
