/* SPDX-License-Identifier: Apache-2.0 */
/* See fabric.h: what was measured, in rows; their table and JSON. */
#include "lab/bench/fabric/fabric.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/fabric/published.h"
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

/* "2.05", "2.5 to 2.7", "<= 100". */
static const char *range(char *buf, size_t size, const struct vb_published *p)
{
	if (p->low == 0)
		snprintf(buf, size, "<= %.4g", p->high);
	else if (isinf(p->high))
		snprintf(buf, size, ">= %.4g", p->low);
	else if (p->high > p->low)
		snprintf(buf, size, "%.4g to %.4g", p->low, p->high);
	else
		snprintf(buf, size, "%.4g", p->low);
	return buf;
}

static void print_model(FILE *to, const struct vb_floor_row *r, const char *profile_before)
{
	const struct vb_published *p = r->published;
	char buf[32];

	if (profile_before == NULL || strcmp(profile_before, r->profile) != 0)
		fprintf(to, "  %s: %s\n", r->profile, vb_sim_profile_find(r->profile)->summary);
	fprintf(to, "    %-29s %10.2f %s", r->name, r->value, r->unit);
	if (p != NULL)
		fprintf(to, "%*s %-12s %6.2fx  %s", (int)(7 - strlen(r->unit)), "",
			range(buf, sizeof(buf), p), vb_published_ratio(p, r->value), p->source);
	if (p != NULL && vb_published_sets(p, r->profile) != NULL)
		fprintf(to, "; sets %s (%s)", p->sets,
			vb_sim_ground_names[vb_published_sets(p, r->profile)->ground]);
	fputc('\n', to);
}

void vb_floor_print(FILE *to, const struct vb_floor *f, unsigned first, const char *title)
{
	fprintf(to, "%s\n", title);
	for (unsigned i = first; i < f->n; i++) {
		const struct vb_floor_row *r = &f->row[i];

		if (r->profile != NULL) {
			print_model(to, r, i > first ? r[-1].profile : NULL);
			continue;
		}
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

static void put_published(json_t *run, const struct vb_floor_row *r)
{
	const struct vb_published *p = r->published;
	json_t *o = json_null();

	vb_json_set(run, "profile", r->profile);
	if (p != NULL) {
		const struct vb_sim_source *sets = vb_published_sets(p, r->profile);

		o = json_object();
		vb_json_set(o, "low", p->low);
		json_object_set_new(o, "high", isinf(p->high) ? json_null() : json_real(p->high));
		vb_json_set(o, "source", p->source);
		vb_json_set(o, "ratio", vb_published_ratio(p, r->value));
		vb_json_set(o, "sets", sets != NULL ? p->sets : NULL);
		vb_json_set(o, "ground", sets != NULL ? vb_sim_ground_names[sets->ground] : NULL);
	}
	vb_json_set(run, "published", o);
}

int vb_floor_write_json(const struct vb_floor *f, struct vb_json_out *out)
{
	json_t *root, *runs = json_array();
	int err;

	for (unsigned i = 0; i < f->n; i++) {
		const struct vb_floor_row *r = &f->row[i];
		const bool beside = r->baseline != NULL;
		json_t *run = json_pack("{s:s,s:s,s:s,s:s,s:f,s:s?,s:o,s:o}", "kind", "fabric",
					"section", r->section, "name", r->name, "unit", r->unit,
					"value", r->value, "baseline", r->baseline,
					"baseline_value", beside ? json_real(r->base) : json_null(),
					"ratio", beside ? json_real(r->ratio) : json_null());
		if (r->profile != NULL)
			put_published(run, r);
		json_array_append_new(runs, run);
	}
	root = vb_json_head(f->o.seed);
	vb_json_set(root, "interrupted", (bool)vb_interrupted);
	vb_json_set(root, "runs", runs);
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}
