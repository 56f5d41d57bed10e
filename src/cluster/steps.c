/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Collective calls.  Each process counts its calls; the n-th of one belongs to the n-th of all
 * others.  The root keeps the last CL_STEPS of them: what has come for those that are open, and how
 * the others ended, for processes that come late.  A process that has gone on without an answer (it
 * gave the root up for a while) may be a few ahead of the root: what is too far behind then ends.
 */
#define VB_LOG_ROOM "cluster"
#include "cluster/inner.h"

#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "base/log.h"
#include "base/opt.h"

/* ---- the root's steps ---- */

static void tell_result(struct vb_cluster *c, uint32_t rank, struct cluster_result *r)
{
	struct cluster_bulk b = {.kind = BULK_RESULT, .result = r};
	struct cluster_conn *k = c->peers[rank].conn;
	struct cluster_call *call;

	if (rank == 0) {
		call = cluster_call_find(c, r->verdict.seq);
		if (call == NULL)
			return;
		r->refs++;
		call->result = r;
		cluster_call_ends(c, call, &r->verdict);
	} else if (k != NULL && k->phase == CONN_GOING) {
		r->refs++;
		if (conn_bulk(k, &b) != 0) {
			r->refs--;
			conn_starve(k, "there is no memory left for what it is sent");
		}
	}
}

static struct cluster_result *result_new(const struct cluster_step *s, uint32_t n)
{
	struct cluster_result *r = calloc(1, sizeof(*r) + n * sizeof(r->parts[0]));

	if (r == NULL)
		return NULL;
	r->refs = 1;
	r->n = n;
	r->verdict = s->verdict;
	return r;
}

/* The step ends: who came is told, with the parts if all is well. */
static void step_ends(struct vb_cluster *c, struct cluster_step *s, int err, const char *text)
{
	struct cluster_result *all = NULL, *bare = NULL;

	s->verdict = (struct cl_verdict){.seq = s->seq, .err = err};
	snprintf(s->verdict.text, sizeof(s->verdict.text), "%s", text);
	all = result_new(s, err == 0 ? c->hosts : 0);
	bare = result_new(s, 0);
	for (uint32_t r = 0; r < c->hosts && all != NULL && err == 0; r++) {
		all->parts[r] = s->blobs[r];
		if (s->blobs[r] != NULL)
			s->blobs[r]->refs++;
	}
	for (uint32_t r = 0; r < c->hosts; r++) {
		if (s->blobs[r] == NULL)
			continue;
		if (all == NULL || bare == NULL) /* no answer is what a time-out is for */
			vb_error("no memory for the answer to %s", c->peers[r].name);
		else
			tell_result(c, r, r == 0 || s->part.to == VB_CLUSTER_TO_ALL ? all : bare);
		cluster_blob_put(s->blobs[r]);
	}
	cluster_result_put(all);
	cluster_result_put(bare);
	free(s->blobs);
	s->blobs = NULL;
	s->state = STEP_OVER;
	if (err == 0) { /* for whoever comes now */
		s->verdict.err = -ETIMEDOUT;
		snprintf(s->verdict.text, sizeof(s->verdict.text),
			 "step '%s' was over before this process came to it", s->part.what);
	}
}

static void VB_PRINTF(4, 5)
	step_fails(struct vb_cluster *c, struct cluster_step *s, int err, const char *fmt, ...)
{
	char text[CL_TEXT + 1];
	va_list args;

	va_start(args, fmt);
	vsnprintf(text, sizeof(text), fmt, args);
	va_end(args);
	step_ends(c, s, err, text);
}

static struct cluster_step *slot_of(struct vb_cluster *c, uint64_t seq)
{
	return &c->steps[seq % CL_STEPS];
}

bool steps_wanted(struct vb_cluster *c, uint64_t seq)
{
	const struct cluster_step *s = slot_of(c, seq);

	return s->state == STEP_FREE || seq > s->seq || (seq == s->seq && s->state == STEP_OPEN);
}

/* The step that `seq` names, opened if nobody was there yet; NULL: no memory. */
static struct cluster_step *step_get(struct vb_cluster *c, uint32_t rank, const struct cl_part *p)
{
	struct cluster_step *s = slot_of(c, p->seq);
	struct cluster_blob **blobs;

	if (s->state != STEP_FREE && s->seq >= p->seq)
		return s;
	blobs = calloc(c->hosts, sizeof(blobs[0]));
	if (blobs == NULL)
		return NULL;
	if (s->state == STEP_OPEN)
		step_fails(c, s, -ETIMEDOUT, "step '%s': %s has gone on by %d steps", s->part.what,
			   c->peers[rank].name, CL_STEPS);
	*s = (struct cluster_step){.state = STEP_OPEN,
				   .seq = p->seq,
				   .first = rank,
				   .part = *p,
				   .blobs = blobs,
				   .deadline_ns = cluster_later(cluster_now(), p->timeout_ns)};
	return s;
}

static void came_late(struct vb_cluster *c, uint32_t rank, uint64_t seq,
		      const struct cluster_step *s)
{
	struct cl_verdict v = {.seq = seq, .err = -ETIMEDOUT};
	struct cluster_conn *k = c->peers[rank].conn;
	struct cluster_call *call;
	uint8_t *to;

	if (s != NULL && s->seq == seq)
		v = s->verdict;
	else
		snprintf(v.text, sizeof(v.text), "this step was over long ago");
	if (rank == 0) {
		call = cluster_call_find(c, seq);
		if (call != NULL)
			cluster_call_ends(c, call, &v);
	} else if (k != NULL && (to = conn_room(k, CL_CONTROL_MAX)) != NULL) {
		conn_put(k, cl_put_end(to, &v));
	}
}

void steps_came(struct vb_cluster *c, uint32_t rank, const struct cl_part *p,
		struct cluster_blob *blob)
{
	struct cluster_step *s = step_get(c, rank, p);

	if (s == NULL || s->state == STEP_OVER || s->seq != p->seq) {
		cluster_blob_put(blob);
		came_late(c, rank, p->seq, s);
		return;
	}
	if (blob == NULL)
		blob = cluster_blob_new(NULL, 0);
	if (blob == NULL || s->blobs[rank] != NULL) {
		cluster_blob_put(blob);
		step_fails(c, s, -ENOMEM, "no memory for step '%s'", s->part.what);
		came_late(c, rank, p->seq, s);
		return;
	}
	s->blobs[rank] = blob;
	if (p->err != 0)
		step_fails(c, s, p->err, "step '%s': %s could not take part: %s", p->what,
			   c->peers[rank].name, vb_strerror(p->err));
	else if (strcmp(p->what, s->part.what) != 0 || p->to != s->part.to ||
		 p->partial != s->part.partial || p->barrier != s->part.barrier)
		step_fails(c, s, -EPROTO,
			   "the processes are not at the same step: %s is at '%s', %s at '%s'%s",
			   c->peers[rank].name, p->what, c->peers[s->first].name, s->part.what,
			   strcmp(p->what, s->part.what) == 0 ? " of another kind" : "");
}

/* ---- when a step ends ---- */

/* Names of those who have not come, as many as fit. */
static void say_missing(const struct vb_cluster *c, const struct cluster_step *s, char *to,
			size_t size)
{
	unsigned more = 0;
	size_t n = 0;

	to[0] = '\0';
	for (uint32_t r = 0; r < c->hosts; r++) {
		if (s->blobs[r] != NULL || !vb_cluster_alive(c, r))
			continue;
		if (n + CL_NAME + 20 < size)
			n += (size_t)snprintf(to + n, size - n, "%s%s", n > 0 ? ", " : "",
					      c->peers[r].name);
		else
			more++;
	}
	if (more > 0)
		snprintf(to + n, size - n, " and %u more", more);
}

/* Whether r, who has not come, is waited for; false with *failed: the step cannot end well. */
static bool waits_for(struct vb_cluster *c, struct cluster_step *s, uint32_t r, bool *failed)
{
	bool died = __atomic_load_n(&c->peers[r].state, __ATOMIC_ACQUIRE) == PEER_DIED;
	char span[16];

	*failed = false;
	if (!vb_cluster_alive(c, r)) {
		*failed = !s->part.partial && (died || !s->part.barrier);
		if (*failed)
			step_fails(c, s, -VB_EPEERGONE, "step '%s': %s %s before it came",
				   s->part.what, c->peers[r].name, died ? "died" : "left");
		return false;
	}
	if (!vb_cluster_suspect(c, r))
		return true;
	*failed = !s->part.partial;
	if (*failed)
		step_fails(c, s, -ETIMEDOUT, "step '%s': %s has given no sign of life for %s",
			   s->part.what, c->peers[r].name,
			   vb_format_ns(span, sizeof(span), (double)c->silence_ns));
	return false;
}

static void step_look(struct vb_cluster *c, struct cluster_step *s, uint64_t now)
{
	char missing[CL_TEXT - 64];
	bool waits = false, failed = false;

	for (uint32_t r = 0; r < c->hosts; r++) {
		if (s->blobs[r] == NULL && waits_for(c, s, r, &failed))
			waits = true;
		if (failed)
			return;
	}
	if (waits && now < s->deadline_ns)
		return;
	if (waits && !s->part.partial) {
		say_missing(c, s, missing, sizeof(missing));
		step_fails(c, s, -ETIMEDOUT, "step '%s': did not come in time: %s", s->part.what,
			   missing);
		return;
	}
	step_ends(c, s, 0, "");
}

void steps_look(struct vb_cluster *c, uint64_t now)
{
	for (unsigned i = 0; i < CL_STEPS; i++)
		if (c->steps[i].state == STEP_OPEN)
			step_look(c, &c->steps[i], now);
}

uint64_t steps_deadline(const struct vb_cluster *c)
{
	uint64_t first = VB_FOREVER;

	for (unsigned i = 0; i < CL_STEPS; i++)
		if (c->steps[i].state == STEP_OPEN && c->steps[i].deadline_ns < first)
			first = c->steps[i].deadline_ns;
	return first;
}

void steps_free(struct vb_cluster *c)
{
	for (unsigned i = 0; i < CL_STEPS; i++) {
		for (uint32_t r = 0; c->steps[i].blobs != NULL && r < c->hosts; r++)
			cluster_blob_put(c->steps[i].blobs[r]);
		free(c->steps[i].blobs);
	}
}
