/* SPDX-License-Identifier: Apache-2.0 */
/* Explores seeds of one protocol after the other and tells what was found: see check_seeds.h. */
#define VB_LOG_ROOM "check"
#include "cli/check_seeds.h"

#include <errno.h>
#include <inttypes.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "cli/check_named.h"

#define SEEDS_DEFAULT 200

/* ---- which campaigns ---- */

int vb_check_add(struct vb_check *s, struct vb_campaign *c)
{
	if (c == NULL)
		return vb_fail(-ENOMEM, "no memory for what is to be checked");
	if (s->n == VB_CHECK_RUNS) {
		free(c);
		return vb_fail(-EINVAL, "more than %u runs at once", VB_CHECK_RUNS);
	}
	s->run[s->n++] = c;
	return 0;
}

static int add_named(void *ctx, const char *name)
{
	struct vb_check *s = ctx;

	return s->kind->add(s, name);
}

static int plan(struct vb_check *s)
{
	const struct vb_check_opts *o = s->opts;
	int err = vb_check_names(o->protocols, add_named, s);

	if (err == 0 && s->n == 0)
		err = vb_fail(-EINVAL, "%s; `verbena list` shows them all", s->kind->nothing_named);
	for (unsigned i = 0; i < s->n; i++) {
		struct vb_campaign *c = s->run[i];

		c->seeds = o->seeds ? o->seeds : o->seed ? 1 : SEEDS_DEFAULT;
		c->first = o->seed ? o->seed : 1;
		c->keep_going = o->keep_going;
		c->stop = &vb_interrupted;
		if (o->verbose || c->seeds == 1)
			c->tell = s->out;
	}
	return err;
}

/* ---- telling ---- */

/* What is about to be explored, so that also a run which is cut short can be repeated. */
static void tell_begin(FILE *to, const struct vb_campaign *c)
{
	fprintf(to, "%s, seeds %" PRIu64 " to %" PRIu64 "; the first:\n  ", c->protocol, c->first,
		c->first + c->seeds - 1);
	c->kind->describe(c, c->first, to);
	fflush(to);
}

static void tell_find(FILE *to, const struct vb_campaign *c)
{
	char replay[VB_CAMPAIGN_REPLAY];

	if (!c->found)
		return;
	fprintf(to, "%s: %s\n", c->protocol, c->kind->rule_names[c->found_rule]);
	if (c->tell == NULL && c->draw != NULL)
		fprintf(to, "%s", c->draw);
	if (c->stories != NULL)
		fprintf(to, "%s", c->stories);
	fprintf(to, "replay: %s\n\n", vb_campaign_replay(replay, c, c->found_seed));
}

static void tell_unreached(FILE *to, const struct vb_campaign *c)
{
	for (unsigned i = 0; i < c->sites.n; i++) {
		const struct vb_reached *r = &c->sites.site[i];

		if (vb_site_is_unreached(r, c->done))
			fprintf(to,
				"%s: never reached in %" PRIu64
				" seeds, of which %u should do: %s\n",
				c->protocol, c->done, r->site->seeds, r->site->name);
	}
}

static void tell_sites(FILE *to, const struct vb_check *s)
{
	fprintf(to, "\n%-26s %10s %7s %7s %7s  %s\n", "protocol", "reached", "seeds", "first",
		"within", "rare branch");
	for (unsigned i = 0; i < s->n_run; i++) {
		const struct vb_campaign *c = s->run[i];

		for (unsigned j = 0; j < c->sites.n; j++) {
			const struct vb_reached *r = &c->sites.site[j];

			fprintf(to, "%-26s %10" PRIu64 " %7" PRIu64 " %7" PRIu64 " %7u  %s%s\n",
				c->protocol, r->hits, r->seeds, r->first, r->site->seeds,
				vb_site_event(r->site), r->site->is_chance ? " (chance)" : "");
		}
	}
}

static void tell_table(FILE *to, const struct vb_check *s)
{
	fprintf(to, "%s %8s  %s\n", s->kind->head, "seeds/s", "found");
	for (unsigned i = 0; i < s->n_run; i++) {
		const struct vb_campaign *c = s->run[i];
		const char *comma = "";

		s->kind->row(to, c);
		fprintf(to, " %8.0f  ", c->seconds > 0 ? (double)c->done / c->seconds : 0.0);
		for (unsigned r = 0; r < c->kind->n_rules; r++) {
			if (c->by_rule[r] == 0)
				continue;
			fprintf(to, "%s%s", comma, c->kind->rule_names[r]);
			comma = ", ";
		}
		if (c->unreached > 0)
			fprintf(to, "%s%u never reached", comma, c->unreached);
		fprintf(to, "%s\n", c->violations == 0 && c->unreached == 0 ? "nothing" : "");
	}
}

static json_t *violation_json(const struct vb_check_kind *kind, const struct vb_campaign *c)
{
	char replay[VB_CAMPAIGN_REPLAY];
	json_t *v = json_object();

	json_object_set_new(v, "seed", json_integer((json_int_t)c->found_seed));
	json_object_set_new(v, "rule", json_string(c->kind->rule_names[c->found_rule]));
	if (kind->set_violation != NULL)
		kind->set_violation(v, c);
	json_object_set_new(v, "drawn", json_string(c->draw ? c->draw : ""));
	json_object_set_new(v, "story", vb_json_text(c->stories ? c->stories : ""));
	vb_campaign_replay(replay, c, c->found_seed);
	json_object_set_new(v, "replay", json_string(replay));
	return v;
}

static json_t *sites_json(const struct vb_campaign *c)
{
	json_t *sites = json_array();

	for (unsigned i = 0; i < c->sites.n; i++) {
		const struct vb_reached *r = &c->sites.site[i];

		json_array_append_new(sites, json_pack("{s:s, s:b, s:I, s:I, s:I, s:I}", "site",
						       r->site->name, "chance", r->site->is_chance,
						       "reached", (json_int_t)r->hits, "seeds",
						       (json_int_t)r->seeds, "first_seed",
						       (json_int_t)r->first, "within",
						       (json_int_t)r->site->seeds));
	}
	return sites;
}

static json_t *run_json(const struct vb_check_kind *kind, const struct vb_campaign *c)
{
	json_t *run = kind->run_json(c), *by_rule = json_object();

	for (unsigned r = 0; r < c->kind->n_rules; r++)
		json_object_set_new(by_rule, c->kind->rule_names[r],
				    json_integer((json_int_t)c->by_rule[r]));
	json_object_set_new(run, "by_rule", by_rule);
	json_object_set_new(run, "faults", kind->faults_json(c));
	json_object_set_new(run, "sites", sites_json(c));
	json_object_set_new(run, "never_reached", json_integer((json_int_t)c->unreached));
	json_object_set_new(run, "seeds_per_s", vb_json_ratio((double)c->done, c->seconds));
	if (c->planted != NULL)
		json_object_set_new(run, "planted", json_string(c->planted));
	if (c->found)
		json_object_set_new(run, "first_violation", violation_json(kind, c));
	return run;
}

static int write_json(struct vb_json_out *out, const struct vb_check *s)
{
	json_t *runs;

	if (out->path == NULL)
		return 0;
	runs = json_array();
	for (unsigned i = 0; i < s->n_run; i++)
		json_array_append_new(runs, run_json(s->kind, s->run[i]));
	return vb_check_write(out, s->run[0]->first, runs);
}

/* ---- running ---- */

/* On a terminal only, ten times a second. */
static void show_progress(const struct vb_campaign *c, void *ctx)
{
	struct vb_check *s = ctx;
	char label[64];

	if (c->done == 1)
		s->shown_s = 0;
	if (c->seconds - s->shown_s < 0.1)
		return;
	s->shown_s = c->seconds;
	s->kind->label(c, label, sizeof(label));
	fprintf(stderr, "\r%s seed %" PRIu64 " of %" PRIu64 ", %" PRIu64 " violations \033[K",
		label, c->done, c->seeds, c->violations);
}

/* An error ends the session; what was explored until then is reported. */
static int run_all(struct vb_check *s)
{
	bool terminal = isatty(STDERR_FILENO) == 1;
	int err = 0;

	for (unsigned i = 0; i < s->n && err == 0 && !vb_interrupted; i++) {
		struct vb_campaign *c = s->run[i];

		if (s->kind->tell_begin && c->tell == NULL)
			tell_begin(s->out, c);
		if (terminal && c->tell == NULL)
			c->progress = show_progress;
		c->progress_ctx = s;
		err = vb_campaign_run(c);
		if (c->progress != NULL)
			fprintf(stderr, "\r\033[K");
		s->n_run++;
		tell_find(s->out, c);
		tell_unreached(s->out, c);
	}
	return err;
}

static int conclude(const struct vb_check *s, int err)
{
	bool violated = false;

	for (unsigned i = 0; i < s->n_run; i++)
		violated |= s->run[i]->violations > 0 || s->run[i]->unreached > 0;
	if (err)
		return vb_exit_of(err) == VB_EXIT_USAGE ? VB_EXIT_FAILED : vb_exit_of(err);
	if (violated)
		return VB_EXIT_VIOLATION;
	return vb_interrupted ? VB_EXIT_INTERRUPTED : VB_EXIT_OK;
}

static int run_planned(struct vb_check *s, struct vb_json_out *out)
{
	int err = run_all(s), json_err;

	tell_table(s->out, s);
	if (s->opts->sites)
		tell_sites(s->out, s);
	json_err = write_json(out, s);
	vb_json_out_abandon(out);
	return conclude(s, err ? err : json_err);
}

static int run_campaigns(struct vb_check *s)
{
	struct vb_json_out out = {0};
	int err = plan(s);

	if (err == 0)
		err = vb_json_out_open(&out, s->opts->json);
	return err ? vb_exit_of(err) : run_planned(s, &out);
}

/* What was explored to an end leaves its history, whatever was found in it. */
static int run_recorded(struct vb_check *s)
{
	struct vb_json_out out;
	int err = vb_json_out_begin(&out, s->opts->history, &s->history), end;

	if (err)
		return vb_exit_of(err);
	end = run_campaigns(s);
	if (end != VB_EXIT_OK && end != VB_EXIT_VIOLATION && end != VB_EXIT_INTERRUPTED)
		err = -ECANCELED;
	err = vb_json_out_end(&out, s->history, err);
	return err == 0 || err == -ECANCELED ? end : vb_exit_of(err);
}

int vb_check_seeds(const struct vb_check_kind *kind, const struct vb_check_opts *opts)
{
	struct vb_check *s = calloc(1, sizeof(*s));
	int end;

	if (s == NULL)
		return vb_exit_of(vb_fail(-ENOMEM, "no memory for what is checked"));
	/* What a lock server has room for is much and hardly used, and a seed may start several: new
	 * pages cost nothing until they are touched, memory that was freed is set to zero again. */
	(void)mallopt(M_MMAP_THRESHOLD, 1 << 20);
	s->kind = kind;
	s->opts = opts;
	s->out = opts->json != NULL && !strcmp(opts->json, "-") ? stderr : stdout;
	end = opts->history != NULL ? run_recorded(s) : run_campaigns(s);
	for (unsigned i = 0; i < s->n; i++) {
		vb_campaign_end(s->run[i]);
		free(s->run[i]);
	}
	free(s);
	return end;
}
