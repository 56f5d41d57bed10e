/* SPDX-License-Identifier: Apache-2.0 */
/* verbena top: which locks cost their clients most time, again and again. */
#define VB_LOG_ROOM "top"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/log.h"
#include "base/opt.h"
#include "lab/watch/dump.h"

#define O struct vb_look_opts

static const struct vb_opt top_options[] = {
	VB_OPT_STRING(O, segment, "segment", "NAME", NULL,
		      "segment of shared memory to look at: the name that the program, or bench "
		      "lock --segment, has given it"),
	VB_OPT_STRING(O, space, "space", "NAME", "locks", "lock space in it"),
	VB_OPT_SIZE(O, most, "most", "15", 1, 1000, "show at most so many locks"),
	VB_OPT_TIME(O, interval_ns, "interval", "1s", 10000000, 3600000000000ull,
		    "time between two looks"),
	VB_OPT_SIZE(O, times, "times", "0", 0, UINT64_MAX,
		    "look so often (0: until interrupted, or until the clients are gone)"),
	VB_OPT_END};

VB_OPT_GROUPS(vb_top_groups, struct vb_look_opts, {"What to look at", top_options, NULL})

/* What all clients together have waited for one lock. */
struct hot {
	uint64_t lock1, times, wait_ns, longest_ns;
	unsigned waiting; /* now */
};

struct hots {
	struct hot *hot;
	unsigned n;
	uint64_t acquires, wait_ns;
	unsigned waiting;
};

static int by_lock(const void *a, const void *b)
{
	const struct hot *x = a, *y = b;

	return x->lock1 < y->lock1 ? -1 : x->lock1 > y->lock1;
}

static int by_wait(const void *a, const void *b)
{
	const struct hot *x = a, *y = b;

	if (x->wait_ns != y->wait_ns)
		return x->wait_ns > y->wait_ns ? -1 : 1;
	return by_lock(a, b);
}

static int gather(const struct vb_board_view *v, struct hots *out)
{
	unsigned all = 0;

	*out = (struct hots){
		.hot = calloc((size_t)v->n * (VB_BOARD_HOT + 1) + 1, sizeof(*out->hot))};
	if (out->hot == NULL)
		return vb_fail(-ENOMEM, "no memory for the locks of %u clients", v->n);
	for (unsigned i = 0; i < v->n; i++) {
		const struct vb_board_slot *s = &v->slot[i];

		out->acquires += s->acquires;
		out->wait_ns += s->wait_ns;
		for (unsigned k = 0; k < VB_BOARD_HOT; k++)
			if (s->hot[k].lock1 != 0 && s->hot[k].wait_ns >= s->hot[k].owed_ns)
				out->hot[all++] =
					(struct hot){s->hot[k].lock1, s->hot[k].times,
						     s->hot[k].wait_ns - s->hot[k].owed_ns,
						     s->hot[k].longest_ns, 0};
		if (s->wait.lock1 == 0 || !v->alive[i])
			continue;
		out->waiting++;
		out->hot[all++] = (struct hot){.lock1 = s->wait.lock1, .waiting = 1};
	}
	qsort(out->hot, all, sizeof(*out->hot), by_lock);
	for (unsigned i = 0; i < all; i++) {
		struct hot *to = &out->hot[out->n - (out->n != 0)], from = out->hot[i];

		if (out->n == 0 || to->lock1 != from.lock1) {
			out->hot[out->n++] = from;
			continue;
		}
		to->times += from.times;
		to->wait_ns += from.wait_ns;
		to->waiting += from.waiting;
		if (from.longest_ns > to->longest_ns)
			to->longest_ns = from.longest_ns;
	}
	return 0;
}

static uint64_t minus(uint64_t a, uint64_t b)
{
	return a > b ? a - b : 0;
}

/* Leaves what has come since the last look.  An entry that began anew in between counts from its
 * beginning. */
static void subtract(struct hots *now, const struct hots *last)
{
	now->acquires = minus(now->acquires, last->acquires);
	now->wait_ns = minus(now->wait_ns, last->wait_ns);
	for (unsigned i = 0; i < now->n; i++) {
		struct hot *h = &now->hot[i];
		const struct hot *was = bsearch(h, last->hot, last->n, sizeof(*h), by_lock);

		if (was == NULL || was->times > h->times || was->wait_ns > h->wait_ns)
			continue;
		h->times -= was->times;
		h->wait_ns -= was->wait_ns;
	}
}

static void print(FILE *to, const struct vb_look_opts *o, const struct vb_board_view *v,
		  struct hots *d, double seconds)
{
	struct vb_span_text mean, longest;

	/* On a terminal each picture takes the place of the last. */
	if (isatty(fileno(to)))
		fputs("\033[H\033[J", to);
	fprintf(to,
		"lock space '%s' of '%s': %u clients, %u waiting; %.0f acquires/s, mean wait %s\n",
		o->space, v->head.protocol, v->n, d->waiting, (double)d->acquires / seconds,
		vb_span(&mean, d->acquires != 0 ? d->wait_ns / d->acquires : 0));
	fprintf(to, "%20s %12s %12s %12s %8s %9s\n", "lock", "acquires/s", "mean wait",
		"longest yet", "waiting", "of waits");
	qsort(d->hot, d->n, sizeof(*d->hot), by_wait);
	for (unsigned i = 0; i < d->n && i < o->most; i++) {
		const struct hot *h = &d->hot[i];

		if (h->times == 0 && h->waiting == 0)
			continue;
		fprintf(to, "%20" PRIu64 " %12.0f %12s %12s %8u %8.1f%%\n", h->lock1 - 1,
			(double)h->times / seconds,
			vb_span(&mean, h->times != 0 ? h->wait_ns / h->times : 0),
			vb_span(&longest, h->longest_ns), h->waiting,
			d->wait_ns != 0 ? 100.0 * (double)h->wait_ns / (double)d->wait_ns : 0.0);
	}
	fputc('\n', to);
	fflush(to);
}

static bool anybody(const struct vb_board_view *v)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->alive[i])
			return true;
	return false;
}

/* One look; *last becomes what was seen. */
static int look(FILE *to, struct vb_look *l, const struct vb_look_opts *o, struct hots *last,
		uint64_t *last_ns, bool *gone)
{
	struct vb_board_view view;
	struct hots now, news;
	int err = vb_board_view(l->ep, o->space, &view);

	if (err)
		return err;
	err = gather(&view, &now);
	*gone = !anybody(&view);
	if (err == 0 && *last_ns != 0 && !*gone) {
		err = gather(&view, &news);
		if (err == 0) {
			subtract(&news, last);
			print(to, o, &view, &news, (double)(view.now_ns - *last_ns) / 1e9);
		}
		free(news.hot);
	}
	*last_ns = view.now_ns;
	vb_board_view_free(&view);
	free(last->hot);
	*last = now;
	return err;
}

int vb_top(FILE *to, const struct vb_look_opts *o)
{
	struct hots last = {0};
	uint64_t last_ns = 0;
	struct vb_look l;
	bool gone = false;
	int err = vb_look_open(&l, o);

	if (err)
		return err == -EINVAL ? VB_EXIT_USAGE : vb_exit_of(err);
	for (uint64_t n = 0; err == 0 && !vb_interrupted && (o->times == 0 || n <= o->times); n++) {
		if (n != 0)
			(void)vb_ep_sleep(l.ep, o->interval_ns);
		err = look(to, &l, o, &last, &last_ns, &gone);
		if (err == 0 && gone) {
			fprintf(to, "no client of lock space '%s' is left\n", o->space);
			break;
		}
	}
	free(last.hot);
	vb_look_close(&l);
	return vb_exit_of(err);
}
