/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "check"
#include "check/litmus/engine.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/log.h"

/* ---- which verbs depend on each other ---- */

static bool is_message(const struct vb_sim_verb *v)
{
	return v->op == VB_OP_SEND || v->op == VB_OP_WRITE_NOTIFY;
}

static bool same_words(const struct vb_sim_verb *a, const struct vb_sim_verb *b)
{
	return a->addr / 8 <= (b->addr + b->len - 1) / 8 &&
	       b->addr / 8 <= (a->addr + a->len - 1) / 8;
}

static bool depends(const struct vb_sim_verb *a, const struct vb_sim_verb *b)
{
	const uint16_t at_a = vb_peer_node(a->self), at_b = vb_peer_node(b->self);

	if (at_a == at_b || a->node == at_b || b->node == at_a)
		return true;
	if (a->node != b->node)
		return false;
	if (is_message(a) || is_message(b))
		return true;
	return same_words(a, b) && (a->op != VB_OP_READ || b->op != VB_OP_READ);
}

static bool is_same(const struct vb_sim_verb *a, const struct vb_sim_verb *b)
{
	return a->self == b->self && a->number == b->number;
}

static bool asleep(const struct litmus *l, const struct vb_sim_verb *v)
{
	for (unsigned i = 0; i < l->n_sleep; i++)
		if (is_same(&l->sleep[i], v))
			return true;
	return false;
}

static void put_to_sleep(struct litmus *l, const struct vb_sim_verb *v)
{
	if (l->n_sleep < LITMUS_SLEEP_MAX)
		l->sleep[l->n_sleep++] = *v;
}

/* What depends on a verb that goes is not the same after it. */
static void wake_up(struct litmus *l, const struct vb_sim_verb *goes)
{
	unsigned n = 0;

	for (unsigned i = 0; i < l->n_sleep; i++)
		if (!depends(&l->sleep[i], goes))
			l->sleep[n++] = l->sleep[i];
	l->n_sleep = n;
}

/* ---- polls ---- */

static struct litmus_end *end_of(struct litmus *l, vb_peer self)
{
	for (unsigned i = 0; i < l->n_ends; i++)
		if (l->end[i].self == self)
			return &l->end[i];
	if (l->n_ends == LITMUS_ENDS_MAX)
		return NULL;
	l->end[l->n_ends] = (struct litmus_end){.self = self};
	return &l->end[l->n_ends++];
}

static bool equal(const struct vb_sim_verb *a, const struct vb_sim_verb *b)
{
	return a->op == b->op && a->addr == b->addr && a->len == b->len && a->peer == b->peer &&
	       a->compare.lo == b->compare.lo && a->compare.hi == b->compare.hi &&
	       a->compare_mask.lo == b->compare_mask.lo &&
	       a->compare_mask.hi == b->compare_mask.hi && a->swap.lo == b->swap.lo &&
	       a->swap.hi == b->swap.hi;
}

static bool polls(struct litmus *l, const struct vb_sim_verb *v)
{
	const struct litmus_end *e = end_of(l, v->self);
	unsigned looks = 0;

	for (unsigned i = 0; e != NULL && i < e->n && i < LITMUS_RECENT; i++)
		looks += e->recent[i].changes == l->changes && equal(&e->recent[i].verb, v);
	return looks >= LITMUS_LOOKS;
}

/* Does it change what is in memory, or wake anybody? */
static bool changes(const struct litmus *l, const struct vb_sim_verb *v)
{
	uint64_t old[2] = {0};

	switch (v->op) {
	case VB_OP_READ:
		return false;
	case VB_OP_CAS64:
	case VB_OP_MCAS64:
	case VB_OP_MCAS128:
		memcpy(old, vb_local(l->fabric, v->addr, v->len), v->len);
		if (v->op == VB_OP_CAS64)
			return old[0] == v->compare.lo;
		return ((old[0] ^ v->compare.lo) & v->compare_mask.lo) == 0 &&
		       ((old[1] ^ v->compare.hi) & v->compare_mask.hi) == 0;
	default:
		return true;
	}
}

static void note(struct litmus *l, const struct vb_sim_verb *v)
{
	struct litmus_end *e = end_of(l, v->self);

	if (changes(l, v)) {
		l->changes++;
		return;
	}
	if (e == NULL)
		return;
	e->recent[e->n % LITMUS_RECENT].verb = *v;
	e->recent[e->n % LITMUS_RECENT].changes = l->changes;
	e->n++;
}

/* ---- telling ---- */

void litmus_say(struct litmus *l, const char *format, ...)
{
	va_list args;

	if (l->tell == NULL)
		return;
	va_start(args, format);
	vfprintf(l->tell, format, args);
	va_end(args);
}

static void tell_step(struct litmus *l, const struct vb_sim_verb *v, unsigned way, unsigned ways)
{
	char text[160], choice[32] = "";

	if (l->tell == NULL)
		return;
	if (ways > 1)
		snprintf(choice, sizeof(choice), "%u of %u", way, ways);
	fprintf(l->tell, "  %10.3f us  %-8s %s\n", (double)vb_sim_now(l->fabric) / 1e3, choice,
		v != NULL ? l->name(l->name_ctx, v, text, sizeof(text)) : "time passes");
}

void litmus_found(struct litmus *l, const char *rule, const char *story)
{
	struct vb_litmus_result *r = l->out;

	if (l->p->rule != NULL && strcmp(l->p->rule, rule) != 0)
		return;
	if (r->rule == NULL) {
		r->rule = rule;
		r->story = strdup(story);
	}
	l->wrong = true;
}

void litmus_enough(struct litmus *l)
{
	l->enough = l->stop = true;
}

/* ---- choices ---- */

/* The next choice of the run, one of `ways` ways, of which the first `allowed` may be tried. */
static unsigned choose(struct litmus *l, unsigned ways, unsigned allowed)
{
	struct litmus_choice *c = &l->choice[l->depth];

	if (ways <= 1)
		return 0;
	if (l->depth == LITMUS_CHOICES_MAX) {
		l->too_long = l->stop = true;
		return 0;
	}
	if (l->depth++ == l->n_choices) {
		*c = (struct litmus_choice){.ways = (uint16_t)allowed};
		l->n_choices++;
	} else if (l->replays && c->taken >= ways) {
		l->stop = true;
		return UINT_MAX;
	}
	return c->taken;
}

/* Ways of one decision: verbs by their index, in the order in which they are tried, and time. */
struct ways {
	unsigned verb[LITMUS_SLEEP_MAX], n;
	bool time, is_poll;
	bool first_sleeps; /* who would go next has gone here before: all ways delay him */
};

/* Who went last goes on, if it can; else who has waited longest. */
static void find_ways(struct litmus *l, const struct vb_sim_verb *v, unsigned n, bool timer_first,
		      struct ways *w)
{
	*w = (struct ways){.is_poll = true};
	for (unsigned round = 0; round < 2; round++) {
		for (unsigned i = 0; i < n && w->n < LITMUS_SLEEP_MAX; i++) {
			bool sleeps;

			if ((v[i].self == l->last) != (round == 0) || polls(l, &v[i]))
				continue;
			sleeps = asleep(l, &v[i]);
			w->first_sleeps |= w->is_poll && sleeps;
			w->is_poll = false;
			if (!sleeps)
				w->verb[w->n++] = i;
		}
	}
	w->time = timer_first && !w->is_poll;
}

static unsigned next(void *ctx, const struct vb_sim_verb *v, unsigned n, bool timer_first)
{
	struct litmus *l = ctx;
	unsigned ways, free, allowed, way;
	struct ways w;

	find_ways(l, v, n, timer_first, &w);
	if (w.is_poll)
		return n;
	ways = w.n + w.time;
	free = w.n > 0 && !w.first_sleeps;
	allowed = l->delayed < l->delays ? ways : free;
	l->out->cut_delays |= allowed < ways;
	if (allowed == 0) {
		l->stop = true;
		return UINT_MAX;
	}
	way = choose(l, ways, allowed);
	if (l->stop)
		return UINT_MAX;
	tell_step(l, way < w.n ? &v[w.verb[way]] : NULL, way, ways);
	l->delayed += way >= free;
	if (way == w.n) {
		l->n_sleep = 0;
		l->last = VB_PEER_NONE;
		return n;
	}
	for (unsigned i = 0; i < way; i++)
		put_to_sleep(l, &v[w.verb[i]]);
	wake_up(l, &v[w.verb[way]]);
	note(l, &v[w.verb[way]]);
	l->last = v[w.verb[way]].self;
	return w.verb[way];
}

static enum vb_sim_strike strike(void *ctx, struct vb_ep *ep)
{
	static const char *const names[VB_SIM_STRIKES] = {
		[VB_SIM_DIES_BEFORE] = "dies before it posts",
		[VB_SIM_DIES_AFTER] = "dies when it has posted",
		[VB_SIM_PAUSES_BEFORE] = "stands still before it posts",
		[VB_SIM_PAUSES_AFTER] = "will stand still when its verb has taken effect",
		[VB_SIM_LOSES_ANSWER] = "will not hear what becomes of its verb, which runs",
		[VB_SIM_LOSES_VERB] = "will not hear what becomes of its verb, which is lost",
	};
	enum vb_sim_strike what[VB_SIM_STRIKES] = {VB_SIM_SPARED};
	struct litmus *l = ctx;
	unsigned n = 1, way;

	if (l->struck || l->strikes == 0)
		return VB_SIM_SPARED;
	for (unsigned k = 1; k < VB_SIM_STRIKES; k++)
		if (l->strikes & 1u << k)
			what[n++] = k;
	way = choose(l, n, n);
	if (l->stop || way == 0)
		return VB_SIM_SPARED;
	l->struck = true;
	l->n_sleep = 0;
	litmus_say(l, "  %10.3f us  %u of %u   client of node %u %s\n",
		   (double)vb_sim_now(l->fabric) / 1e3, way, n, vb_peer_node(ep->self),
		   names[what[way]]);
	return what[way];
}

/* ---- all runs ---- */

static int parse(struct litmus *l, const char *text)
{
	const char *at = text;

	while (*at != '\0') {
		char *end;
		unsigned long taken = strtoul(at, &end, 10);

		if (end == at || taken > UINT16_MAX || l->n_choices == LITMUS_CHOICES_MAX ||
		    (*end != '.' && *end != '\0'))
			return vb_fail(-EINVAL, "'%s' is no schedule: numbers with a point between",
				       text);
		l->choice[l->n_choices++] = (struct litmus_choice){.taken = (uint16_t)taken};
		at = *end == '.' ? end + 1 : end;
	}
	return 0;
}

static char *schedule_of(const struct litmus *l)
{
	unsigned n = l->n_choices;
	size_t size;
	char *text;
	FILE *f = open_memstream(&text, &size);

	if (f == NULL)
		return NULL;
	while (n > 1 && l->choice[n - 1].taken == 0)
		n--;
	for (unsigned i = 0; i < n; i++)
		fprintf(f, "%s%u", i > 0 ? "." : "", l->choice[i].taken);
	if (n == 0)
		fputc('0', f);
	fclose(f);
	return text;
}

static int run_once(struct litmus *l, litmus_run_fn run, void *ctx)
{
	l->stop = l->enough = l->struck = l->wrong = false;
	l->depth = l->delayed = l->n_sleep = l->n_ends = 0;
	l->last = VB_PEER_NONE;
	l->changes = 0;
	return run(l, ctx);
}

/* The deepest choice with a way that was not tried; false: there is none. */
static bool advance(struct litmus *l)
{
	l->n_choices = l->depth;
	while (l->n_choices > 0) {
		struct litmus_choice *c = &l->choice[l->n_choices - 1];

		if (++c->taken < c->ways)
			return true;
		l->n_choices--;
	}
	return false;
}

/* The first finding once more, told step by step. */
static int tell_find(struct litmus *l, litmus_run_fn run, void *ctx)
{
	size_t size;
	char *text = NULL, *story;
	FILE *f = open_memstream(&text, &size);
	int err;

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a schedule");
	story = l->out->story;
	l->out->schedule = schedule_of(l);
	l->tell = f;
	err = run_once(l, run, ctx);
	l->tell = NULL;
	fprintf(f, "%s", story != NULL ? story : "");
	fclose(f);
	free(story);
	l->out->story = text;
	return err;
}

static int replay(struct litmus *l, litmus_run_fn run, void *ctx)
{
	int err = parse(l, l->p->schedule);
	unsigned given = l->n_choices;

	if (err)
		return err;
	l->replays = true;
	l->delays = UINT_MAX;
	l->tell = l->p->tell;
	err = run_once(l, run, ctx);
	l->out->runs = 1;
	l->out->found = l->wrong;
	l->out->cut_runs = true;
	l->out->schedule = strdup(l->p->schedule);
	if (err == 0 && ((l->stop && !l->enough) || l->depth < given))
		err = vb_fail(-EINVAL, "choice %u of the schedule is none that this world has",
			      l->depth);
	return err;
}

int litmus_explore(struct litmus *l, litmus_run_fn run, void *ctx)
{
	const uint64_t begin = vb_clock_gettime_ns();
	struct vb_litmus_result *r = l->out;
	int err = 0;

	l->chooser.next = next;
	l->chooser.strike = strike;
	l->chooser.ctx = l;
	if (l->p->schedule != NULL)
		return replay(l, run, ctx);
	do {
		if (r->runs == l->p->runs || (l->p->stop != NULL && *l->p->stop)) {
			r->cut_runs = true;
			break;
		}
		err = run_once(l, run, ctx);
		r->runs++;
		r->pruned += l->stop && !l->too_long && !l->enough;
		r->cut_length |= l->too_long;
		r->found += l->wrong;
		if (l->depth > r->longest)
			r->longest = l->depth;
		if (err == 0 && l->wrong && r->schedule == NULL)
			err = tell_find(l, run, ctx);
		if (r->found > 0 && !l->p->keep_going) {
			r->cut_found = true;
			break;
		}
		l->too_long = false;
	} while (err == 0 && advance(l));
	r->seconds = (double)(vb_clock_gettime_ns() - begin) / 1e9;
	return err;
}

void vb_litmus_end(struct vb_litmus_result *r)
{
	free(r->schedule);
	free(r->story);
	r->schedule = r->story = NULL;
}
