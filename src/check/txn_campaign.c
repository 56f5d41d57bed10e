/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Seed after seed of a transaction protocol.  While a seed runs its command line is kept ready, so
 * that an assertion that ends the process says how to come back to it.
 */
#define VB_LOG_ROOM "check"
#include "check/txn_campaign.h"

#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"

static char last_words[192];

static void on_abort(int sig)
{
	ssize_t n = write(STDERR_FILENO, last_words, strlen(last_words));

	(void)n;
	(void)sig;
}

char *vb_txn_campaign_replay(char *buf, size_t size, const struct vb_txn_campaign *c, uint64_t seed)
{
	snprintf(buf, size, "verbena check txn --cc %s%s%s --seed %" PRIu64, c->cc->name,
		 c->hybrid != NULL ? " --hybrid " : "", c->hybrid != NULL ? c->hybrid : "", seed);
	return buf;
}

/* Is it what was planted, by the name of its rule or of its anomaly?  Of a real protocol everything
 * counts. */
static bool is_wanted(const struct vb_cc_ops *cc, enum vb_txn_rule rule, enum vb_anomaly anomaly)
{
	if (cc->planted == NULL || !strcmp(cc->planted, vb_txn_rule_names[rule]))
		return true;
	return rule == VB_TXN_RULE_NOT_SERIALIZABLE &&
	       !strcmp(cc->planted, vb_anomaly_names[anomaly]);
}

static char *describe(const struct vb_txn_draw *d)
{
	char *text = NULL;
	size_t size;
	FILE *f = open_memstream(&text, &size);

	if (f == NULL)
		return NULL;
	vb_txn_draw_describe(d, f);
	fclose(f);
	return text;
}

static void add(struct vb_txn_campaign *c, const struct vb_txn_explored *r)
{
	c->done++;
	c->violations += r->violations;
	c->bad_seeds += r->violations > 0;
	c->commits += r->commits;
	c->deaths += r->deaths;
	c->unknown += r->unknown;
	c->recovered += r->recovered;
	c->rolled_forward += r->rolled_forward;
	c->verbs += r->verbs;
	for (unsigned i = 0; i < VB_TXN_CAUSES; i++)
		c->aborts += r->aborts[i];
	for (unsigned i = 0; i < VB_TXN_RULES; i++)
		c->by_rule[i] += r->found[i];
}

static bool find(struct vb_txn_campaign *c, const struct vb_txn_draw *d, struct vb_txn_explored *r)
{
	for (unsigned i = 0; i < VB_TXN_RULES; i++) {
		if (r->found[i] == 0 || !is_wanted(c->cc, i, r->anomaly))
			continue;
		if (c->found)
			return true;
		c->found = true;
		c->found_seed = d->seed;
		c->found_rule = i;
		c->found_anomaly = r->anomaly;
		c->draw = describe(d);
		c->stories = r->stories;
		r->stories = NULL;
		return true;
	}
	return false;
}

static void tell_end(FILE *to, const struct vb_txn_draw *d, const struct vb_txn_explored *r)
{
	fprintf(to,
		"seed %" PRIu64 ": trace %016" PRIx64 ", %" PRIu64 " commits, %" PRIu64
		" deaths, %" PRIu64 " unknown, %" PRIu64 " locks recovered, %" PRIu64
		" tuples rolled forward, %" PRIu64 " verbs, %.3f ms: %" PRIu64 " violations\n",
		d->seed, r->trace_hash, r->commits, r->deaths, r->unknown, r->recovered,
		r->rolled_forward, r->verbs, (double)r->virtual_ns / 1e6, r->violations);
}

static int run_seed(struct vb_txn_campaign *c, uint64_t seed, bool *hit)
{
	struct vb_txn_explored r;
	struct vb_txn_draw d;
	char replay[128], line[512] = "";
	int err;

	vb_txn_campaign_replay(replay, sizeof(replay), c, seed);
	snprintf(last_words, sizeof(last_words), "verbena: check: this was: %s\n", replay);
	vb_txn_draw(c->cc, seed, c->hybrid, &d);
	if (c->tell != NULL)
		vb_txn_draw_describe(&d, c->tell);
	else
		vb_log_capture_begin(line, sizeof(line));
	err = vb_txn_explore(c->cc, &d, &r);
	if (c->tell == NULL)
		vb_log_capture_end();
	if (err) {
		free(r.stories);
		return vb_fail(err, "seed %" PRIu64 " of '%s' failed%s%s; again with: %s", seed,
			       c->cc->name, line[0] ? ": " : "", line, replay);
	}
	if (c->tell != NULL)
		tell_end(c->tell, &d, &r);
	add(c, &r);
	*hit = find(c, &d, &r);
	free(r.stories);
	return 0;
}

int vb_txn_campaign_run(struct vb_txn_campaign *c)
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

void vb_txn_campaign_end(struct vb_txn_campaign *c)
{
	free(c->draw);
	free(c->stories);
	c->draw = c->stories = NULL;
}
