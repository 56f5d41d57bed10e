/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "check"
#include "check/waits.h"

#include <errno.h>
#include <stdlib.h>

#include "base/log.h"

static int by_lock(const void *a, const void *b)
{
	const struct vb_waits_hold *x = a, *y = b;

	if (x->lock != y->lock)
		return x->lock < y->lock ? -1 : 1;
	return x->client < y->client ? -1 : x->client > y->client;
}

const struct vb_waits_hold *vb_waits_holders(const struct vb_waits *w, uint64_t lock, unsigned *n)
{
	unsigned from = 0, to = w->n_holds;

	while (from < to) {
		unsigned middle = from + (to - from) / 2;

		if (w->hold[middle].lock < lock)
			from = middle + 1;
		else
			to = middle;
	}
	for (to = from; to < w->n_holds && w->hold[to].lock == lock; to++)
		;
	*n = to - from;
	return w->hold + from;
}

/* ---- what was so in both views ---- */

static const struct vb_board_slot *same_client(const struct vb_board_view *v, uint64_t peer)
{
	for (unsigned i = 0; i < v->n; i++)
		if (v->slot[i].peer == peer)
			return &v->slot[i];
	return NULL;
}

static bool is_lock(const struct vb_board_lock *l)
{
	return l->lock1 != 0 && l->mode < VB_MODES;
}

static bool equal(const struct vb_board_lock *a, const struct vb_board_lock *b)
{
	return a->lock1 == b->lock1 && a->mode == b->mode && a->since_ns == b->since_ns;
}

static void take_holds(struct vb_waits *w, unsigned client, const struct vb_board_slot *was)
{
	const struct vb_board_slot *is = &w->view->slot[client];

	for (unsigned i = 0; i < VB_BOARD_HELD; i++) {
		const struct vb_board_lock *l = &is->held[i];

		if (!is_lock(l))
			continue;
		w->hold[w->n_holds++] =
			(struct vb_waits_hold){.lock = l->lock1 - 1,
					       .since_ns = l->since_ns,
					       .mode = (enum vb_mode)l->mode,
					       .client = client,
					       .settled = was != NULL && equal(l, &was->held[i])};
	}
}

static void take(struct vb_waits *w, const struct vb_board_view *before)
{
	for (unsigned i = 0; i < w->view->n; i++) {
		const struct vb_board_slot *is = &w->view->slot[i];
		const struct vb_board_slot *was = same_client(before, is->peer);

		w->next[i] = i;
		take_holds(w, i, was);
		/* The dead wait for nothing, though what they hold is held. */
		w->waits[i] = w->view->alive[i] && is_lock(&is->wait);
		w->settled[i] = w->waits[i] && was != NULL && equal(&is->wait, &was->wait);
		w->n_waits += w->waits[i];
	}
	qsort(w->hold, w->n_holds, sizeof(*w->hold), by_lock);
}

/* ---- cycles ---- */

/* The holders whom `client` waits for are among the *n from the one returned: see excludes. */
static const struct vb_waits_hold *wanted(const struct vb_waits *w, unsigned client, unsigned *n)
{
	return vb_waits_holders(w, w->view->slot[client].wait.lock1 - 1, n);
}

static bool excludes(const struct vb_waits *w, unsigned client, const struct vb_waits_hold *h)
{
	return h->client != client && h->settled &&
	       vb_modes_exclude((enum vb_mode)w->view->slot[client].wait.mode, h->mode);
}

/* Who waits for nobody that waits is in no cycle; nor is who waits for such clients only. */
static void peel(const struct vb_waits *w, bool *in)
{
	bool again = true;

	for (unsigned i = 0; i < w->view->n; i++)
		in[i] = w->settled[i];
	while (again) {
		again = false;
		for (unsigned i = 0; i < w->view->n; i++) {
			const struct vb_waits_hold *h;
			bool for_one = false;
			unsigned n;

			if (!in[i])
				continue;
			h = wanted(w, i, &n);
			for (unsigned k = 0; k < n && !for_one; k++)
				for_one = excludes(w, i, &h[k]) && in[h[k].client];
			again |= !for_one;
			in[i] = for_one;
		}
	}
}

/* The shortest way from `start` back to itself, breadth first; true if there is one: then each
 * client on it has its `next`. */
static bool find_from(struct vb_waits *w, const bool *in, unsigned start, unsigned *queue,
		      unsigned *came)
{
	unsigned head = 0, tail = 0;

	for (unsigned i = 0; i < w->view->n; i++)
		came[i] = UINT32_MAX;
	queue[tail++] = start;
	while (head < tail) {
		unsigned at = queue[head++], n;
		const struct vb_waits_hold *h = wanted(w, at, &n);

		for (unsigned k = 0; k < n; k++) {
			unsigned to = h[k].client;

			if (!excludes(w, at, &h[k]) || !in[to] || came[to] != UINT32_MAX)
				continue;
			came[to] = at;
			queue[tail++] = to;
			if (to != start)
				continue;
			do {
				w->next[came[to]] = to;
				to = came[to];
			} while (to != start);
			return true;
		}
	}
	return false;
}

static void find_cycles(struct vb_waits *w, bool *in, unsigned *queue, unsigned *came)
{
	peel(w, in);
	for (unsigned i = 0; i < w->view->n; i++) {
		unsigned at = i;

		if (!in[i] || !find_from(w, in, i, queue, came))
			continue;
		w->cycle[w->n_cycles++] = i;
		do {
			in[at] = false;
			at = w->next[at];
		} while (at != i);
	}
}

int vb_waits_find(const struct vb_board_view *before, const struct vb_board_view *view,
		  struct vb_waits *out)
{
	size_t n = view->n + 1;
	unsigned *queue = calloc(n, sizeof(*queue)), *came = calloc(n, sizeof(*came));
	bool *in = calloc(n, sizeof(*in));
	int err = 0;

	*out = (struct vb_waits){
		.view = view,
		.hold = calloc(n * VB_BOARD_HELD, sizeof(*out->hold)),
		.waits = calloc(n, sizeof(*out->waits)),
		.settled = calloc(n, sizeof(*out->settled)),
		.next = calloc(n, sizeof(*out->next)),
		.cycle = calloc(n, sizeof(*out->cycle)),
	};
	if (queue == NULL || came == NULL || in == NULL || out->hold == NULL ||
	    out->waits == NULL || out->settled == NULL || out->next == NULL || out->cycle == NULL) {
		vb_waits_free(out);
		err = vb_fail(-ENOMEM, "no memory for the waits of %u clients", view->n);
	} else {
		take(out, before);
		find_cycles(out, in, queue, came);
	}
	free(queue);
	free(came);
	free(in);
	return err;
}

void vb_waits_free(struct vb_waits *w)
{
	free(w->hold);
	free(w->waits);
	free(w->settled);
	free(w->next);
	free(w->cycle);
	*w = (struct vb_waits){0};
}
