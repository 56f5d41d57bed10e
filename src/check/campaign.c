/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seed after seed.  While a seed runs its command line is kept ready, so that an assertion that
 * ends the process says how to come back to it.
 */
#define VB_LOG_ROOM "check"
#include "check/campaign.h"

#include <inttypes.h>
#include <signal.h>
#include <unistd.h>

#include "base/log.h"

/* Of the run under way, for on_abort; ends with a newline. */
static char last_words[192];

static void on_abort(int sig)
{
	ssize_t n = write(STDERR_FILENO, last_words, strlen(last_words));

	/* The signal comes again, with its default action, when we return. */
	(void)n;
	(void)sig;
}

char *vb_campaign_replay(char *buf, size_t size, const struct vb_lock_ops *ops, uint64_t seed)
{
	snprintf(buf, size, "verbena check lock --lock %s --seed %" PRIu64, ops->name, seed);
	return buf;
}

static bool is_planted_rule(const struct vb_lock_ops *ops, unsigned rule)
{
	return ops->planted == NULL || !strcmp(ops->planted, vb_audit_rule_names[rule]);
}

static char *describe(const struct vb_explore_draw *d)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (f == NULL)
		return NULL;
	vb_explore_describe(d, f);
	fclose(f);
	return text;
}

/* Adds a seed to the sums. */
static void add(struct vb_campaign *c, const struct vb_explore_draw *d,
		const struct vb_explore_result *r)
{
	c->done++;
	c->checked_ops += r->audit.checked_ops;
	c->violations += r->audit.violations;
	c->bad_seeds += r->audit.violations > 0;
	c->lost += r->audit.lost;
	c->deaths += r->deaths;
	c->cancels += r->cancels;
	c->timeouts += r->timeouts;
	c->unknown += r->unknown;
	c->cycles += r->cycles;
	c->verbs += r->verbs;
	if (d->orderly && r->audit.max_bypass > c->max_bypass)
		c->max_bypass = r->audit.max_bypass;
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++)
		c->by_rule[i] += r->audit.by_rule[i];
}

/* Is this what we are looking for?  Then its story is kept. */
static bool find(struct vb_campaign *c, const struct vb_explore_draw *d,
		 struct vb_explore_result *r)
{
	for (unsigned i = 0; i < VB_AUDIT_RULES; i++) {
		if (r->audit.by_rule[i] == 0 || !is_planted_rule(c->ops, i))
			continue;
		if (c->found)
			return true;
		c->found = true;
		c->found_seed = d->seed;
		c->found_rule = c->ops->planted != NULL ? i : r->first_rule;
		c->draw = describe(d);
		c->stories = r->stories;
		r->stories = NULL;
		return true;
	}
	return false;
}

static void tell_end(FILE *to, const struct vb_explore_draw *d, const struct vb_explore_result *r)
{
	fprintf(to,
		"seed %" PRIu64 ": trace %016" PRIx64 ", %" PRIu64 " grants, %" PRIu64
		" violations, %" PRIu64 " deaths, %" PRIu64 " cancelled, %" PRIu64
		" timed out, %" PRIu64 " unknown, %" PRIu64 " lost, %" PRIu64 " verbs, %.3f ms\n",
		d->seed, r->trace_hash, r->audit.checked_ops, r->audit.violations, r->deaths,
		r->cancels, r->timeouts, r->unknown, r->audit.lost, r->verbs,
		(double)r->virtual_ns / 1e6);
}

static int run_seed(struct vb_campaign *c, uint64_t seed, bool *hit)
{
	struct vb_explore_result r;
	struct vb_explore_draw d;
	char replay[128], line[512] = "";
	int err;

	vb_campaign_replay(replay, sizeof(replay), c->ops, seed);
	snprintf(last_words, sizeof(last_words), "verbena: check: this was: %s\n", replay);
	vb_explore_draw(c->ops, seed, &d);
	/* Under faults a protocol has much to report; only what ends the exploration counts. */
	if (c->tell != NULL)
		vb_explore_describe(&d, c->tell);
	else
		vb_log_capture_begin(line, sizeof(line));
	err = vb_explore_run(c->ops, &d, &r);
	if (c->tell == NULL)
		vb_log_capture_end();
	if (err) {
		free(r.stories);
		return vb_fail(err, "seed %" PRIu64 " of '%s' failed%s%s; again with: %s", seed,
			       c->ops->name, line[0] ? ": " : "", line, replay);
	}
	if (c->tell != NULL)
		tell_end(c->tell, &d, &r);
	add(c, &d, &r);
	*hit = find(c, &d, &r);
	free(r.stories);
	return 0;
}

int vb_campaign_run(struct vb_campaign *c)
{
	struct sigaction tell = {.sa_handler = on_abort, .sa_flags = (int)SA_RESETHAND}, before;
	uint64_t begin = vb_clock_gettime_ns();
	bool hit = false;
	int err = 0;

	sigaction(SIGABRT, &tell, &before);
	for (uint64_t i = 0; i < c->seeds && err == 0; i++) {
		if ((c->stop != NULL && *c->stop) || (hit && !c->keep_going))
			break;
		err = run_seed(c, c->first + i, &hit);
		c->seconds = (double)(vb_clock_gettime_ns() - begin) / 1e9;
		if (c->progress != NULL)
			c->progress(c);
	}
	sigaction(SIGABRT, &before, NULL);
	return err;
}

void vb_campaign_end(struct vb_campaign *c)
{
	free(c->draw);
	free(c->stories);
	c->draw = c->stories = NULL;
}
