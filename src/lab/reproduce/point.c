/* SPDX-License-Identifier: Apache-2.0 */
/* One point of an experiment: options of `bench lock` in, one JSON object out. */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lab/bench/lock/lock.h"

#define WORDS 64 /* options of a point, every one of its parts together */

struct words {
	struct {
		char key[32];
		char value[96];
	} w[WORDS];
	unsigned n;
};

static void set(struct words *s, const char *key, size_t key_len, const char *value,
		size_t value_len)
{
	unsigned i = 0;

	while (i < s->n && (strlen(s->w[i].key) != key_len || strncmp(s->w[i].key, key, key_len)))
		i++;
	vb_assert(i < WORDS && key_len < sizeof(s->w[i].key) && value_len < sizeof(s->w[i].value));
	snprintf(s->w[i].key, sizeof(s->w[i].key), "%.*s", (int)key_len, key);
	snprintf(s->w[i].value, sizeof(s->w[i].value), "%.*s", (int)value_len, value);
	s->n += i == s->n;
}

static void add(struct words *s, const char *text)
{
	while (text != NULL && *text != '\0') {
		size_t len = strcspn(text, " "), key = strcspn(text, "=");

		if (len > 0) {
			vb_assert(key < len);
			set(s, text, key, text + key + 1, len - key - 1);
		}
		text += len + strspn(text + len, " ");
	}
}

static const char *get(const struct words *s, const char *key)
{
	for (unsigned i = 0; i < s->n; i++)
		if (strcmp(s->w[i].key, key) == 0)
			return s->w[i].value;
	return NULL;
}

static int by_key(const void *a, const void *b)
{
	return strcmp(a, b); /* the key is first, and no two are the same */
}

/* Less time to measure; the warm-up stays what it is. */
static void shorten(struct words *s, double scale)
{
	uint64_t ns;
	char text[48];
	const char *duration = get(s, "duration");

	if (duration == NULL || vb_parse_time_ns(duration, &ns) != 0 || scale == 1)
		return;
	snprintf(text, sizeof(text), "duration=%.0fns", fmax((double)ns * scale, 1e6));
	add(s, text);
}

static void add_of(struct words *s, const struct vb_repro_variant *variant,
		   const struct vb_repro_value *of)
{
	const struct vb_repro_value *v = variant != NULL ? variant->values : NULL;

	for (; v != NULL && v->label != NULL; v++)
		if (of != NULL && strcmp(v->label, of->label) == 0)
			add(s, v->options);
}

char *vb_repro_options(const struct vb_experiment *e, const struct vb_repro_variant *variant,
		       const struct vb_repro_value *system, const struct vb_repro_value *series,
		       const struct vb_repro_value *x, double scale, uint64_t seed)
{
	struct words s = {0};
	char number[32], *text = NULL;
	size_t size;
	FILE *f;

	add(&s, e->setup);
	add(&s, variant != NULL ? variant->options : NULL);
	add(&s, x != NULL ? x->options : NULL);
	add(&s, series != NULL ? series->options : NULL);
	add(&s, system != NULL ? system->options : NULL);
	add_of(&s, variant, x);
	add_of(&s, variant, series);
	add_of(&s, variant, system);
	shorten(&s, scale);
	if (system != NULL) {
		snprintf(number, sizeof(number), "seed=%" PRIu64, seed);
		add(&s, number);
	}
	qsort(s.w, s.n, sizeof(s.w[0]), by_key);
	f = open_memstream(&text, &size);
	if (f == NULL)
		return NULL;
	for (unsigned i = 0; i < s.n; i++)
		fprintf(f, "%s%s=%s", i > 0 ? " " : "", s.w[i].key, s.w[i].value);
	fclose(f);
	return text;
}

static const struct vb_opt *option(const struct vb_opt_group *groups, unsigned n, const char *key,
				   void **opts)
{
	for (unsigned g = 0; g < n; g++)
		for (const struct vb_opt *o = groups[g].table; o->kind != VB_OPT_KIND_END; o++)
			if (strcmp(o->name, key) == 0) {
				*opts = groups[g].opts;
				return o;
			}
	return NULL;
}

/* What is missing here is told by its name; what is wrong, by the one who looks at it. */
char *vb_repro_cannot(const char *options)
{
	struct vb_bench_opts opts;
	const struct vb_opt_group *groups;
	struct words s = {0};
	unsigned n;
	void *into;
	char *why = NULL;
	const char *profile;
	bool found = false;

	add(&s, options);
	groups = vb_bench_lock_groups(&opts, &n);
	for (unsigned i = 0; i < s.n; i++)
		if (option(groups, n, s.w[i].key, &into) == NULL)
			return asprintf(&why, "bench lock has no --%s", s.w[i].key) > 0 ? why
											: NULL;
	if (vb_lock_find(get(&s, "lock")) == NULL)
		return asprintf(&why, "no lock '%s'", get(&s, "lock")) > 0 ? why : NULL;
	profile = get(&s, "profile");
	for (unsigned i = 0; i < vb_sim_profile_count && profile != NULL; i++)
		found |= strcmp(vb_sim_profiles[i].name, profile) == 0;
	if (profile != NULL && !found)
		return asprintf(&why, "no profile '%s'", profile) > 0 ? why : NULL;
	return NULL;
}

_Static_assert(VB_LAT_ACQ_X == VB_LAT_ACQ_S + 1, "merged together");

static json_t *run_plan(struct vb_bench_plan *plan)
{
	struct vb_bench_result r;
	json_t *run = NULL;

	if (vb_bench_run_lock(plan, NULL, plan->lock[0], &r) == 0 && r.end.ran) {
		run = vb_bench_run_json(plan, &r);
		/* The papers have acquires of both modes in one. */
		json_object_set_new(json_object_get(run, "latency_us"), "acquire",
				    vb_json_hist_of(&r.tally->lat[VB_LAT_ACQ_S], 2));
	}
	vb_bench_result_free(&r);
	return run;
}

json_t *vb_repro_run(const char *options)
{
	static struct vb_bench_plan plan;
	struct vb_bench_opts opts = {0};
	const struct vb_opt_group *groups;
	struct words s = {0};
	char line[512] = "it did not run";
	json_t *run = NULL;
	unsigned n;
	int err = 0;

	add(&s, options);
	groups = vb_bench_lock_groups(&opts, &n);
	for (unsigned g = 0; g < n; g++)
		vb_opt_defaults(groups[g].table, groups[g].opts);
	vb_log_capture_begin(line, sizeof(line));
	for (unsigned i = 0; i < s.n && err == 0; i++) {
		void *into = NULL;
		const struct vb_opt *o = option(groups, n, s.w[i].key, &into);

		err = o == NULL ? -EINVAL : vb_opt_set(o, into, s.w[i].key, s.w[i].value);
	}
	if (err == 0)
		err = vb_bench_plan(&opts, &plan);
	if (err == 0)
		run = run_plan(&plan);
	vb_bench_plan_close(&plan);
	vb_log_capture_end();
	return run != NULL ? run : json_pack("{s:o}", "why", vb_json_text(line));
}

/* ---- what is taken from a run ---- */

static double at_path(const json_t *o, const char *path, size_t len)
{
	const char *end = path + len;

	while (path < end && o != NULL) {
		const char *slash = memchr(path, '/', (size_t)(end - path));
		size_t part = (size_t)((slash != NULL ? slash : end) - path);
		char key[64];

		snprintf(key, sizeof(key), "%.*s", (int)part, path);
		o = json_object_get(o, key);
		path += part + 1;
	}
	return json_is_number(o) ? json_number_value(o) : NAN;
}

static double sum(const json_t *run, const char *terms)
{
	double total = 0;

	for (;;) {
		size_t len = strcspn(terms, "+");

		total += at_path(run, terms, len);
		if (terms[len] == '\0')
			return total;
		terms += len + 1;
	}
}

double vb_repro_metric_at(const struct vb_repro_metric *m, const struct vb_repro_point *p,
			  unsigned seed)
{
	const json_t *run = p->job[seed] != NULL ? p->job[seed]->run : NULL;
	double v;

	if (run == NULL)
		return NAN;
	v = sum(run, m->of) * m->scale;
	if (m->per != NULL) {
		double per = sum(run, m->per);

		v = per > 0 ? v / per : NAN;
	}
	return v;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

struct vb_repro_span vb_repro_span_of(const double *values, unsigned n)
{
	double sorted[VB_REPRO_SEEDS_MAX];

	vb_assert(n > 0 && n <= VB_REPRO_SEEDS_MAX);
	for (unsigned i = 0; i < n; i++) {
		if (isnan(values[i]))
			return (struct vb_repro_span){NAN, NAN, NAN};
		sorted[i] = values[i];
	}
	qsort(sorted, n, sizeof(sorted[0]), by_size);
	return (struct vb_repro_span){(sorted[(n - 1) / 2] + sorted[n / 2]) / 2, sorted[0],
				      sorted[n - 1]};
}

struct vb_repro_span vb_repro_metric_of(const struct vb_repro_metric *m,
					const struct vb_repro_point *p)
{
	double v[VB_REPRO_SEEDS_MAX];

	if (p->n_seeds == 0)
		return (struct vb_repro_span){NAN, NAN, NAN};
	for (unsigned s = 0; s < p->n_seeds; s++)
		v[s] = vb_repro_metric_at(m, p, s);
	return vb_repro_span_of(v, p->n_seeds);
}

const char *vb_repro_why(const struct vb_repro_point *p)
{
	for (unsigned s = 0; s < p->n_seeds; s++)
		if (p->job[s] == NULL || p->job[s]->run == NULL)
			return p->job[s] == NULL || p->job[s]->why == NULL ? "no memory"
									   : p->job[s]->why;
	return NULL;
}

#define X(phase) "breakdown_by_call_us/acquire_exclusive/" phase
#define S(phase) "breakdown_by_call_us/acquire_shared/" phase
#define R(phase) "breakdown_by_call_us/release/" phase
#define PLAIN(nm, ttl, path)                                                                       \
	{                                                                                          \
		.name = nm, .title = ttl, .of = path, .scale = 1, .floor = 0.1                     \
	}
#define SHARE(nm, ttl, part, whole)                                                                \
	{                                                                                          \
		.name = nm, .title = ttl, .of = part, .per = whole, .scale = 1, .floor = 0.001,    \
		.share = true                                                                      \
	}

/* The papers' tables give hundredths of microseconds and of verbs: a tenth is no difference.  They
 * give tenths of percents: one of these is none. */
const struct vb_repro_metric vb_repro_metrics[] = {
	{"goodput", "goodput, kops/s", "goodput_ops_s", NULL, 1e-3, 0, false},
	PLAIN("mean", "acquire, mean us", "latency_us/acquire/mean"),
	PLAIN("p50", "acquire, p50 us", "latency_us/acquire/p50"),
	PLAIN("p99", "acquire, p99 us", "latency_us/acquire/p99"),
	PLAIN("p99.9", "acquire, p99.9 us", "latency_us/acquire/p99.9"),
	PLAIN("max", "acquire, longest us", "latency_us/acquire/max"),
	PLAIN("atomics", "atomics per cycle", "verbs_per_op/atomic"),
	PLAIN("reads", "READs per cycle", "verbs_per_op/read"),
	PLAIN("messages", "SENDs per cycle", "verbs_per_op/send"),
	PLAIN("one-sided", "atomics and READs per cycle", "verbs_per_op/atomic+verbs_per_op/read"),
	/* Of all CAS that the server receives, releases included: ShiftLock, section 2.3. */
	SHARE("retried", "share of the CAS verbs that are retries", "verbs_per_op/retry",
	      "verbs_per_op/atomic"),
	PLAIN("X.IA", "exclusive: IA us", X("IA")),
	PLAIN("X.NP", "exclusive: NP us", X("NP")),
	PLAIN("X.WP", "exclusive: WP us", X("WP")),
	PLAIN("X.WR", "exclusive: WR us", X("WR")),
	PLAIN("X.RT", "exclusive: RT us", X("RT")),
	PLAIN("X.wait", "exclusive: NP+WP+WR us", X("NP") "+" X("WP") "+" X("WR")),
	PLAIN("S.IA", "shared: IA us", S("IA")),
	PLAIN("S.WW", "shared: WW us", S("WW")),
	PLAIN("S.RT", "shared: RT us", S("RT")),
	PLAIN("R.IA", "release: IA us", R("IA")),
	PLAIN("R.NS", "release: NS us", R("NS")),
	{"txns", "transactions, k/s", "txns/committed_tps", NULL, 1e-3, 0, false},
	PLAIN("txn.mean", "transaction, mean us", "txns/latency_us/all/mean"),
	PLAIN("txn.p50", "transaction, p50 us", "txns/latency_us/all/p50"),
	PLAIN("txn.p99", "transaction, p99 us", "txns/latency_us/all/p99"),
	PLAIN("txn.p99.9", "transaction, p99.9 us", "txns/latency_us/all/p99.9"),
	PLAIN("GSD.p50", "get-subscriber-data, p50 us", "txns/latency_us/get-subscriber-data/p50"),
	PLAIN("UL.p50", "update-location, p50 us", "txns/latency_us/update-location/p50"),
	SHARE("aborts", "share of attempts that abort", "txns/abort_share", NULL),
	PLAIN("locks", "locks per transaction", "txns/locks_per_txn"),
	{NULL, NULL, NULL, NULL, 0, 0, false},
};

unsigned vb_repro_length(const struct vb_repro_value *axis)
{
	unsigned n = 0;

	while (axis != NULL && axis[n].label != NULL)
		n++;
	return n;
}

const struct vb_repro_metric *vb_repro_metric_find(const char *name)
{
	for (const struct vb_repro_metric *m = vb_repro_metrics; m->name != NULL; m++)
		if (strcmp(m->name, name) == 0)
			return m;
	return NULL;
}
