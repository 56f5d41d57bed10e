/* SPDX-License-Identifier: Apache-2.0 */
/*
 * verbena reproduce: the papers' experiments on the simulator, with a verdict on each claim.
 *
 *   dslr.c, ...  the experiments of one paper, as constant tables
 *   papers.c     what the papers claim, and all experiments together
 *   point.c      one point: options of `bench lock` in, one JSON object out
 *   column.c     the columns of an experiment: as written, as its artifact does, with a switch
 *   pool.c       points in forked worker processes
 *   rules.c      when a number agrees with a paper's
 *   judge.c      checks against the numbers of the points
 *   claim.c      claims, of their checks and of what is said of them
 *   print.c      tables for people, as text or Markdown
 *   files.c      JSON, CSV, and figures by gnuplot
 *   reproduce.c  which experiments, in turn, and how it all ends
 *
 * An experiment is systems x series x sweep: every combination is a *point*, one run of
 * `bench lock` for each seed.  Its options are those of the setup, the sweep, the series and the
 * system, in this order; a later one replaces an earlier one.  They are words of `verbena bench
 * lock`, looked up when they are used, so that a lock or a workload that is not there makes its
 * points *not run*, by name, and no error.
 *
 * It is run in several *columns*: as the paper is written; where the code is known that the paper
 * was measured with, and does something else, as that code does; and with one thing changed that
 * may be why a claim is missed.  Only the first runs every point, the others what is compared.
 */
#ifndef VB_LAB_REPRODUCE_REPRODUCE_H
#define VB_LAB_REPRODUCE_REPRODUCE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/types.h>

#include "base/opt.h"

/* Pauses as the papers have them, on whichever network; without, locks take them from the model's. */
#define VB_REPRO_OMEGA   "omega=5us"
#define VB_REPRO_BACKOFF "backoff_base=1.7us,backoff_cap=1740.8us"

/* What a paper claims: a line of data/claims.tsv, built in. */
struct vb_paper_claim {
	const char *id, *seed, *where, *systems, *setting, *metric, *claim, *value, *kind, *tier;
	const char *artifact, *artifact_range,
		*source; /* of the authors' own runs; "": none known */
};
extern const struct vb_paper_claim vb_paper_claims[];
extern const unsigned vb_paper_claim_count;
/* NULL: no such claim. */
const struct vb_paper_claim *vb_paper_claim_find(const char *id);

/* One value of an axis.  A list of them ends with a NULL label. */
struct vb_repro_value {
	const char *label;
	const char *options; /* "KEY=VALUE KEY=VALUE" */
};

/*
 * What is taken from a run: a sum of its JSON's numbers, divided by another such sum.  A path goes
 * through objects by '/', '+' adds another: "breakdown/NP+breakdown/WP".
 */
struct vb_repro_metric {
	const char *name;  /* for checks */
	const char *title; /* with its unit, for tables */
	const char *of, *per;
	double scale;
	double floor; /* differences below this are none: what the papers' tables can show */
	bool share;   /* of 1: near 1 it is what is missing that counts */
};
extern const struct vb_repro_metric vb_repro_metrics[];
const struct vb_repro_metric *vb_repro_metric_find(const char *name);

/* A point of the experiment by its labels; NULL where the experiment has no such axis. */
struct vb_repro_at {
	const char *system; /* "*": every other one that is run; "^": the best (largest) of these */
	const char *series; /* "*": every one, the same on both sides */
	const char *x;      /* likewise */
};

#define VB_AT(...) VB_AT_PADDED(__VA_ARGS__, NULL, NULL, NULL)
#define VB_AT_PADDED(system, series, x, ...)                                                       \
	{                                                                                          \
		system, series, x                                                                  \
	}

enum vb_repro_kind {
	VB_CHECK_RATIO,  /* a / b lies in the paper's range, and on its side of 1 */
	VB_CHECK_AMOUNT, /* a lies in the paper's range */
	VB_CHECK_CELL,  /* a of a row of microseconds: the claim is about the time of all of them */
	VB_CHECK_AHEAD, /* a > b */
	VB_CHECK_BEHIND, /* a < b */
	VB_CHECK_CLOSE,  /* a is about b */
	VB_CHECK_RISES,  /* clearly larger at b's x than at a's */
	VB_CHECK_FALLS,
	VB_CHECK_FLAT,  /* from a's x to b's, no value is far from another */
	VB_CHECK_KEEPS, /* from a's x to b's, a's system keeps more of its value than b's */
};

/* What a claim says of the numbers of one experiment.  A claim may need several checks, all of
 * them in one experiment. */
struct vb_repro_check {
	const char *claim; /* id in data/claims.tsv */
	enum vb_repro_kind kind;
	const char *metric;
	struct vb_repro_at a, b;
	double lo, hi; /* the paper's; RATIO, AMOUNT, and CELL, whose range is one number */
};

/* What must be known of a claim before anyone counts it. */
struct vb_repro_note {
	const char *claim;
	/* The parameter, the choice of ours or the definition that its result follows from. */
	const char *by_construction;
	const char *unchecked; /* what it says besides and no check looks at */
};

/* What another column than the first has on top of the experiment's own options. */
struct vb_repro_variant {
	const char *name;    /* "a lock for each row" */
	const char *options; /* of all runs, after the setup's; NULL: none */
	/* Of what has this label, system, series or x, after its own; NULL: none. */
	const struct vb_repro_value *values;
	const char *about;  /* what it still lacks, of an artifact; what it shows, of a switch */
	const char *claims; /* whose checks it is for: "DSLR-02 DSLR-03"; NULL: all */
};

struct vb_experiment {
	const char *name;    /* "shiftlock/fig4": paper and figure */
	const char *figures; /* what it may be called besides: "4 5" */
	const char *title;   /* what is measured */
	const char *differs; /* from the paper's set-up, and why; NULL: in nothing that we know */
	const char *setup;
	const struct vb_repro_value *systems;
	const struct vb_repro_value *series; /* NULL: none */
	const struct vb_repro_value *sweep;  /* NULL: none */
	const char *sweep_name;
	const char *const *metrics; /* names, shown and plotted; ends with NULL */
	const struct vb_repro_check *checks;
	unsigned n_checks;
	const struct vb_repro_note *notes; /* NULL: none; ends with a NULL claim */
	/* As the code does that the paper was measured with; NULL: not known, or as the text. */
	const struct vb_repro_variant *artifact;
	/* Of the same claims, with what that code gave its authors when they ran it again. */
	const struct vb_repro_check *own_checks;
	unsigned n_own_checks;
	const struct vb_repro_note *artifact_notes; /* what counts in that column besides `notes` */
	const struct vb_repro_variant *switches;    /* NULL: none; ends with a NULL name */
	unsigned seconds;                           /* about how long one seed takes on two cores */
};

/* For the papers' tables: an axis, names of metrics, checks; a lock with its label. */
#define VB_AXIS(...)        ((const struct vb_repro_value[]){__VA_ARGS__, {NULL, NULL}})
#define VB_NAMES(...)       ((const char *const[]){__VA_ARGS__, NULL})
#define VB_NOTES(...)       ((const struct vb_repro_note[]){__VA_ARGS__, {NULL, NULL, NULL}})
#define VB_CHECKS(list)     .checks = list, .n_checks = VB_ARRAY_SIZE(list)
#define VB_OWN_CHECKS(list) .own_checks = list, .n_own_checks = VB_ARRAY_SIZE(list)
#define VB_SWITCHES(...)    ((const struct vb_repro_variant[]){__VA_ARGS__, {.name = NULL}})
#define VB_LOCK(label, name)                                                                       \
	{                                                                                          \
		label, "lock=" name                                                                \
	}
/* Checks: a system at one point; two at the same point; one along the sweep, and what it keeps. */
#define VB_AMOUNT(claim, metric, system, series, x, lo, hi)                                        \
	{                                                                                          \
		claim, VB_CHECK_AMOUNT, metric, VB_AT(system, series, x), {0}, lo, hi              \
	}
#define VB_CELL(claim, metric, system, series, x, us)                                              \
	{                                                                                          \
		claim, VB_CHECK_CELL, metric, VB_AT(system, series, x), {0}, us, us                \
	}
#define VB_BESIDE(claim, kind, metric, a, b, series, x, lo, hi)                                    \
	{                                                                                          \
		claim, VB_CHECK_##kind, metric, VB_AT(a, series, x), VB_AT(b, series, x), lo, hi   \
	}
#define VB_RATIO(claim, metric, a, b, series, lo, hi)                                              \
	VB_BESIDE(claim, RATIO, metric, a, b, series, NULL, lo, hi)
#define VB_ALONG(claim, kind, metric, a, b, series, from, to)                                      \
	{                                                                                          \
		claim, VB_CHECK_##kind, metric, VB_AT(a, series, from), VB_AT(b, NULL, to), 0, 0   \
	}

/* 0 without the axis. */
unsigned vb_repro_length(const struct vb_repro_value *axis);

/* Of each paper; end with a NULL name. */
extern const struct vb_experiment vb_repro_dslr[], vb_repro_shiftlock[], vb_repro_eth[];
/* Experiment i of all papers together; NULL beyond the last. */
const struct vb_experiment *vb_repro_experiment(unsigned i);

/* ---- points ---- */

enum vb_job_state { VB_JOB_WAITS, VB_JOB_RUNS, VB_JOB_DONE };

/* One run.  Points with the same options, of whatever experiment, share it. */
struct vb_repro_job {
	char *options; /* sorted by key: what makes it the same */
	enum vb_job_state state;
	json_t *run; /* as in the JSON of `bench lock`, and acquires of both modes; NULL: no result */
	char *why;   /* it has no result */
	bool broke; /* for no reason that it could tell: not missing, but wrong */
	pid_t pid;
	int fd;
};

struct vb_repro_jobs {
	struct vb_repro_job **job; /* malloc'ed one by one: their addresses stay */
	unsigned n;
};

/* A verdict takes so many seeds; there are at most so many. */
#define VB_REPRO_SEEDS     5
#define VB_REPRO_SEEDS_MAX 16

struct vb_repro_point {
	const struct vb_repro_value *system, *series, *x;
	struct vb_repro_job *job[VB_REPRO_SEEDS_MAX]; /* one for each seed */
	unsigned n_seeds;                             /* 0: no check of its column looks at it */
};

/* What a number has come to over the seeds. */
struct vb_repro_span {
	double median, lo, hi;
};

/* What one column of an experiment has come to, held against one side's numbers. */
struct vb_repro_result {
	const struct vb_experiment *e;
	const struct vb_repro_variant *variant; /* NULL: as written */
	const char *whose;                      /* the checks' numbers are: "paper", "artifact" */
	const struct vb_repro_check *checks;
	unsigned n_checks;
	const struct vb_repro_note *notes[2]; /* NULL: none */
	struct vb_repro_point *point;         /* by system, then series, then x */
	unsigned n, n_systems, n_series, n_x, n_seeds;
	uint64_t seed;                    /* the first; the others follow it */
	struct vb_repro_finding *finding; /* one for each check */
	char *common;                     /* the options of the setup */
};

#define VB_REPRO_SWITCHES 4

/* Everything that one experiment has come to.  A column that there is not has no checks. */
struct vb_repro_outcome {
	const struct vb_experiment *e;
	struct vb_repro_result written;
	struct vb_repro_result artifact; /* as it does, against the paper's numbers */
	struct vb_repro_result own;      /* the same points, against its authors' when run again */
	struct vb_repro_result theirs;   /* these numbers, against the paper's */
	struct vb_repro_result switched[VB_REPRO_SWITCHES];
	unsigned n_switches;
	struct vb_repro_check *picked[VB_REPRO_SWITCHES + 1]; /* checks of switched and theirs */
	double wall_s;
	bool interrupted;
};

/* The options of one run as one canonical line, malloc'ed; NULL: no memory.  Without a system and
 * so on: what all points have in common, and no seed. */
char *vb_repro_options(const struct vb_experiment *e, const struct vb_repro_variant *variant,
		       const struct vb_repro_value *system, const struct vb_repro_value *series,
		       const struct vb_repro_value *x, double scale, uint64_t seed);
/* Why a run with these options cannot be started here ("no lock 'drtm'"), malloc'ed; NULL: it can
 * be. */
char *vb_repro_cannot(const char *options);
/* Runs a point in this process: the run's JSON, or {"why": "..."}. */
json_t *vb_repro_run(const char *options);
/* The job with these options, made if there is none; takes the options over.  NULL: no memory. */
struct vb_repro_job *vb_repro_job(struct vb_repro_jobs *jobs, char *options);
/* Runs those that wait, at most so many at once; until done or vb_interrupted. */
void vb_repro_pool(struct vb_repro_jobs *jobs, unsigned at_once, const char *name);
void vb_repro_jobs_free(struct vb_repro_jobs *jobs);

/* With one seed of the point's.  NAN if that has not run, or its run does not have it. */
double vb_repro_metric_at(const struct vb_repro_metric *m, const struct vb_repro_point *p,
			  unsigned seed);
/* With all of them; NAN unless all have it. */
struct vb_repro_span vb_repro_metric_of(const struct vb_repro_metric *m,
					const struct vb_repro_point *p);
/* NAN if one of them is. */
struct vb_repro_span vb_repro_span_of(const double *values, unsigned n);
/* Why the first of its runs that has no result has none; NULL: all have. */
const char *vb_repro_why(const struct vb_repro_point *p);
const struct vb_repro_point *vb_repro_find(const struct vb_repro_result *r, const char *system,
					   const char *series, const char *x);

/* ---- verdicts: doc/claims.md defines them ---- */

enum vb_verdict {
	VB_REPRODUCED,
	VB_DIRECTION,
	VB_BY_CONSTRUCTION, /* it holds, and could not have failed: of claims only */
	VB_PARTLY,          /* what was checked of it holds */
	VB_NOT_REPRODUCED,
	VB_NOT_RUN,
	VB_VERDICTS
};
extern const char *const vb_verdict_names[VB_VERDICTS];

/* Values within this factor of each other count as equal. */
#define VB_REPRO_NEAR 1.25
/* A lead of at most this is a tie, whoever has it. */
#define VB_REPRO_TIE 1.05

/* One comparison. */
struct vb_repro_judged {
	enum vb_verdict verdict;
	double distance; /* factor from the paper's range or from what is demanded; 1: none */
	bool tie;        /* there should have been a lead, and there is none */
};

/* The ratio a / b, or the amount a, over the seeds.  Of the check its kind and range are used. */
struct vb_repro_judged vb_repro_judge(const struct vb_repro_check *c,
				      const struct vb_repro_metric *m, struct vb_repro_span v);

struct vb_repro_finding {
	const struct vb_repro_check *check;
	enum vb_verdict verdict;
	struct vb_repro_span
		ours; /* what was judged; of several comparisons, the worst; else NAN */
	double by_seed[VB_REPRO_SEEDS_MAX];
	double distance;
	bool tie;
	unsigned held, compared; /* of its comparisons */
	char at[96];             /* which of several it was */
	char why[160];           /* not run, or not all of it */
};

/* All checks of a column. */
void vb_repro_judge_all(struct vb_repro_result *r);
/* May this check look at a point of these labels? */
bool vb_repro_looks_at(const struct vb_repro_check *c, const struct vb_repro_point *p);

struct vb_repro_ruling {
	enum vb_verdict verdict;
	enum vb_verdict found; /* by its checks, whatever its note says */
	const struct vb_repro_finding *weakest;
	struct vb_repro_span explained; /* of a row of CELLs: the share of the time; else NAN */
	const char *by_construction, *unchecked; /* of its note; NULL: none */
};

/* The claim's verdict from its checks and its note. */
struct vb_repro_ruling vb_repro_claim(const struct vb_repro_result *r, const char *claim);
/* The claim whose check i is the first of these about it; NULL if an earlier one is. */
const struct vb_paper_claim *vb_repro_first_of(const struct vb_repro_check *checks, unsigned i);
bool vb_repro_has_claim(const struct vb_repro_result *r, const char *claim);

/* ---- columns ---- */

/* Is it one of its systems, series or xs?  Variants of several experiments name more. */
bool vb_repro_is_label(const struct vb_experiment *e, const char *label);

/* All columns, their points given a job for each seed.  -errno, said. */
int vb_repro_set_up(struct vb_repro_outcome *o, const struct vb_experiment *e,
		    struct vb_repro_jobs *jobs, double scale, uint64_t seed, unsigned n_seeds);
void vb_repro_judge_columns(struct vb_repro_outcome *o);
void vb_repro_tear_down(struct vb_repro_outcome *o);

/* ---- reports ---- */

void vb_repro_print_list(FILE *to);
void vb_repro_print(FILE *to, const struct vb_repro_outcome *o, bool markdown);
void vb_repro_print_claims(FILE *to, const struct vb_repro_outcome *outcomes, unsigned n,
			   bool markdown);
/* What the paper says, for a table: "1.8 to 2.5". */
char *vb_repro_range(char *buf, size_t size, const struct vb_repro_check *c);
/* What is compared, in words. */
char *vb_repro_check_text(char *buf, size_t size, const struct vb_repro_check *c);
/* A number with about four places. */
char *vb_repro_number(char *buf, size_t size, double v);

json_t *vb_repro_json(const struct vb_repro_outcome *o, double scale);
/* DIR/PAPER-FIGURE.json, .csv and one .svg for each metric.  -errno, said. */
int vb_repro_write(const char *dir, const struct vb_repro_outcome *o, double scale);

/* ---- the command ---- */

struct vb_repro_opts {
	const char *out, *figure;
	uint64_t jobs, seed, seeds;
	double scale;
	bool quick, markdown;
};

const struct vb_opt_group *vb_repro_groups(struct vb_repro_opts *opts, unsigned *n);
/* words: papers ("dslr"), experiments ("dslr/fig8"), "all"; none: a list.  An enum vb_exit. */
int vb_reproduce(const struct vb_repro_opts *opts, char *const *words, unsigned n);

#endif
