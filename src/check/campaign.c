/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seed after seed.  While a seed runs its command line is kept ready, so that an assertion that
 * ends the process says how to come back to it.
 */
#define VB_LOG_ROOM "check"
#include "check/campaign.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
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

char *vb_campaign_replay(char *buf, const struct vb_campaign *c, uint64_t seed)
{
	char name[96];

	c->kind->name(c, name, sizeof(name));
	snprintf(buf, VB_CAMPAIGN_REPLAY, "verbena check %s --seed %" PRIu64, name, seed);
	return buf;
}

bool vb_campaign_wants(const struct vb_campaign *c, unsigned rule)
{
	return c->planted == NULL || !strcmp(c->planted, c->kind->rule_names[rule]);
}

static char *describe(const struct vb_campaign *c, uint64_t seed)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (f == NULL)
		return NULL;
	c->kind->describe(c, seed, f);
	fclose(f);
	return text;
}

/* Adds a seed to the sums. */
static void add(struct vb_campaign *c, const struct vb_campaign_seed *s)
{
	c->done++;
	c->violations += s->violations;
	c->bad_seeds += s->violations > 0;
	c->verbs += s->verbs;
	c->deaths += s->deaths;
	c->unknown += s->unknown;
	for (unsigned i = 0; i < c->kind->n_rules; i++)
		c->by_rule[i] += s->by_rule[i];
}

/* The first find's story is kept. */
static void keep(struct vb_campaign *c, uint64_t seed, struct vb_campaign_seed *s)
{
	if (c->found)
		return;
	c->found = true;
	c->found_seed = seed;
	c->found_rule = (unsigned)s->rule;
	c->draw = describe(c, seed);
	c->stories = s->stories;
	s->stories = NULL;
}

static int run_seed(struct vb_campaign *c, uint64_t seed, bool *hit)
{
	/* Under the faults that are drawn a protocol has much to report, also where all is well: only
	 * what ends the exploration counts.  Who asks for one seed may ask to hear it. */
	const bool quiet = c->tell == NULL || getenv("VERBENA_LOG") == NULL;
	struct vb_campaign_seed s = {.rule = -1};
	char replay[VB_CAMPAIGN_REPLAY], line[512] = "";
	int err;

	vb_campaign_replay(replay, c, seed);
	snprintf(last_words, sizeof(last_words), "verbena: check: this was: %s\n", replay);
	if (c->tell != NULL)
		c->kind->describe(c, seed, c->tell);
	if (quiet)
		vb_log_capture_begin(line, sizeof(line));
	err = c->kind->explore(c, seed, &s);
	if (quiet)
		vb_log_capture_end();
	if (err == -ECANCELED && vb_campaign_stopped(c->stop)) {
		free(s.stories);
		return 0;
	}
	if (err) {
		free(s.stories);
		return vb_fail(err, "seed %" PRIu64 " of '%s' failed%s%s; again with: %s", seed,
			       c->protocol, line[0] ? ": " : "", line, replay);
	}
	add(c, &s);
	vb_sites_add(&c->sites, seed);
	*hit = s.rule >= 0;
	if (*hit)
		keep(c, seed, &s);
	free(s.stories);
	return 0;
}

/* A branch that no seed takes is checked by none. */
static void judge_sites(struct vb_campaign *c)
{
	for (unsigned i = 0; i < c->sites.n; i++)
		c->unreached += vb_site_is_unreached(&c->sites.site[i], c->done);
}

int vb_campaign_run(struct vb_campaign *c)
{
	struct sigaction tell = {.sa_handler = on_abort, .sa_flags = (int)SA_RESETHAND}, before;
	uint64_t begin = vb_clock_gettime_ns();
	bool hit = false;
	const char *groups =
		c->planted == NULL && c->kind->groups != NULL ? c->kind->groups(c) : "";
	int err = vb_sites_open(&c->sites, groups);

	sigaction(SIGABRT, &tell, &before);
	for (uint64_t i = 0; i < c->seeds && err == 0; i++) {
		if (vb_campaign_stopped(c->stop) || (hit && !c->keep_going))
			break;
		err = run_seed(c, c->first + i, &hit);
		c->seconds = (double)(vb_clock_gettime_ns() - begin) / 1e9;
		if (c->progress != NULL)
			c->progress(c, c->progress_ctx);
	}
	sigaction(SIGABRT, &before, NULL);
	judge_sites(c);
	return err;
}

void vb_campaign_end(struct vb_campaign *c)
{
	free(c->draw);
	free(c->stories);
	vb_sites_close(&c->sites);
	c->draw = c->stories = NULL;
}
