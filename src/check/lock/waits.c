/* SPDX-License-Identifier: Apache-2.0 */
#define VB_LOG_ROOM "check"
#include "check/lock/waits.h"

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

static int by_awaited(const void *a, const void *b)
{
	const struct vb_waits_wait *x = a, *y = b;

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

/* Those who wait for a lock and have for long enough: *n of them, from the one returned. */
static const struct vb_waits_wait *waiters(const struct vb_waits *w, uint64_t lock, unsigned *n)
{
	unsigned from = 0, to = w->n_queued;

	while (from < to) {
		unsigned middle = from + (to - from) / 2;

		if (w->queued[middle].lock < lock)
			from = middle + 1;
		else
			to = middle;
	}
	for (to = from; to < w->n_queued && w->queued[to].lock == lock; to++)
		;
	*n = to - from;
	return w->queued + from;
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
		if (w->settled[i])
			w->queued[w->n_queued++] = (struct vb_waits_wait){is->wait.lock1 - 1, i};
	}
	qsort(w->queued, w->n_queued, sizeof(*w->queued), by_awaited);
	qsort(w->hold, w->n_holds, sizeof(*w->hold), by_lock);
}

/* ---- cycles ---- */

/* The holders of a lock that `client` wants, and who else waits for it: those whom it may wait
 * for. */
struct ways {
	const struct vb_waits_hold *hold;
	const struct vb_waits_wait *wait;
	unsigned n_holds, n;
};

static struct ways ways_from(const struct vb_waits *w, unsigned client)
{
	uint64_t lock = w->view->slot[client].wait.lock1 - 1;
	struct ways k = {0};

	k.hold = vb_waits_holders(w, lock, &k.n_holds);
	if (w->fifo != NULL)
		k.wait = waiters(w, lock, &k.n);
	k.n += k.n_holds;
	return k;
}

/* Holds the lock that it waits for: converts it. */
static bool converts(const struct vb_waits *w, unsigned client)
{
	uint64_t lock = w->view->slot[client].wait.lock1 - 1;
	unsigned n;
	const struct vb_waits_hold *h = vb_waits_holders(w, lock, &n);

	for (unsigned i = 0; i < n; i++)
		if (h[i].client == client)
			return true;
	return false;
}

/* Both wait for one lock: does the queue serve `other` first, for certain? */
static bool is_ahead(const struct vb_waits *w, unsigned other, unsigned client)
{
	const struct vb_board_lock *his = &w->view->slot[other].wait;
	const struct vb_board_lock *mine = &w->view->slot[client].wait;
	bool he_converts = converts(w, other), i_convert = converts(w, client);

	/* Whom nobody passes who excludes him. */
	if (w->fifo->bypass_bound(w->view->n, (enum vb_mode)his->mode) != 0)
		return false;
	if (i_convert && !he_converts)
		return false;
	if (he_converts && !i_convert && (w->fifo->caps & VB_LOCK_INTENT))
		return true;
	return his->since_ns + VB_WAITS_APART_NS < mine->since_ns;
}

/* Does `client` wait for the kth of them, and who is that? */
static bool way_to(const struct vb_waits *w, unsigned client, const struct ways *k, unsigned i,
		   unsigned *to)
{
	enum vb_mode mode = (enum vb_mode)w->view->slot[client].wait.mode;

	if (i < k->n_holds) {
		const struct vb_waits_hold *h = &k->hold[i];

		*to = h->client;
		return *to != client && h->settled && vb_modes_exclude(mode, h->mode);
	}
	*to = k->wait[i - k->n_holds].client;
	return *to != client &&
	       vb_modes_exclude(mode, (enum vb_mode)w->view->slot[*to].wait.mode) &&
	       is_ahead(w, *to, client);
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
			bool for_one = false;
			struct ways k;
			unsigned to;

			if (!in[i])
				continue;
			k = ways_from(w, i);
			for (unsigned n = 0; n < k.n && !for_one; n++)
				for_one = way_to(w, i, &k, n, &to) && in[to];
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
		unsigned at = queue[head++], to;
		struct ways k = ways_from(w, at);

		for (unsigned n = 0; n < k.n; n++) {
			if (!way_to(w, at, &k, n, &to) || !in[to] || came[to] != UINT32_MAX)
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

/* The protocol, if its waiters wait for each other. */
static const struct vb_lock_ops *queue_of(const struct vb_board_view *view)
{
	const struct vb_lock_ops *ops = vb_lock_find(view->head.protocol);

	return ops != NULL && (ops->caps & VB_LOCK_FIFO) && ops->bypass_bound != NULL ? ops : NULL;
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
		.queued = calloc(n, sizeof(*out->queued)),
		.fifo = queue_of(view),
		.waits = calloc(n, sizeof(*out->waits)),
		.settled = calloc(n, sizeof(*out->settled)),
		.next = calloc(n, sizeof(*out->next)),
		.cycle = calloc(n, sizeof(*out->cycle)),
	};
	if (queue == NULL || came == NULL || in == NULL || out->hold == NULL ||
	    out->queued == NULL || out->waits == NULL || out->settled == NULL ||
	    out->next == NULL || out->cycle == NULL) {
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
	free(w->queued);
	free(w->waits);
	free(w->settled);
	free(w->next);
	free(w->cycle);
	*w = (struct vb_waits){0};
}
