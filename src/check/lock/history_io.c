/* SPDX-License-Identifier: Apache-2.0 */
/* Histories of locks as JSON lines: doc/histories.md has the fields. */
#define VB_LOG_ROOM "check"
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "check/lock/history.h"

#define EVENTS_FIRST 4096u

static const char *const types[] = {
	[VB_LOCK_EVENT_INVOKE] = "invoke",
	[VB_LOCK_EVENT_OK] = "ok",
	[VB_LOCK_EVENT_FAIL] = "fail",
	[VB_LOCK_EVENT_INFO] = "info",
};
static const char *const calls[] = {
	[VB_LOCK_CALL_ACQUIRE] = "acquire",
	[VB_LOCK_CALL_CONVERT] = "convert",
	[VB_LOCK_CALL_RELEASE] = "release",
	[VB_LOCK_CALL_ABANDON] = "abandon",
};

/* ---- writing ---- */

static bool has_mode(const struct vb_lock_event *e)
{
	return e->call <= VB_LOCK_CALL_CONVERT &&
	       (e->type == VB_LOCK_EVENT_INVOKE || e->type == VB_LOCK_EVENT_OK);
}

static void put_event(FILE *to, const struct vb_lock_event *e)
{
	fprintf(to, "{\"process\":%u,\"client\":%u,\"type\":\"%s\",\"f\":\"%s\",", e->process,
		e->client, types[e->type], calls[e->call]);
	vb_lines_put_number(to, "lock", e->lock);
	fputc(',', to);
	vb_lines_put_number(to, "time", e->at_ns);
	if (has_mode(e))
		fprintf(to, ",\"mode\":\"%s\"", vb_lock_mode_name(e->mode));
	if (e->token != 0) {
		fputc(',', to);
		vb_lines_put_number(to, "token", e->token);
	}
	if (e->valid_until_ns != VB_FOREVER) {
		fputc(',', to);
		vb_lines_put_number(to, "valid_until", e->valid_until_ns);
	}
	if (e->lost)
		fprintf(to, ",\"lost\":true");
	if (e->err != 0 && e->type == VB_LOCK_EVENT_FAIL)
		fprintf(to, ",\"error\":\"%s\"", vb_strerror(e->err));
	fprintf(to, "}\n");
}

/* In the order in which they happened: a client that was interrupted between looking at the clock
 * and writing may have written late. */
static int by_time(const void *a, const void *b)
{
	const struct vb_lock_event *x = *(const struct vb_lock_event *const *)a;
	const struct vb_lock_event *y = *(const struct vb_lock_event *const *)b;

	if (x->at_ns != y->at_ns)
		return x->at_ns < y->at_ns ? -1 : 1;
	return x < y ? -1 : x > y;
}

int vb_lock_history_write(const struct vb_lock_history *h, bool fencing, FILE *to)
{
	const struct vb_lock_event *e, **events;
	uint64_t at = 0, n = 0;
	bool full;

	events = malloc((vb_lock_history_count(h, &full) + 1) * sizeof(*events));
	if (events == NULL)
		return vb_fail(-ENOMEM, "no memory to write a history of locks");
	while ((e = vb_lock_history_next(h, &at)) != NULL)
		events[n++] = e;
	qsort(events, n, sizeof(*events), by_time);
	fprintf(to, "{\"history\":\"locks\",\"fencing\":%s}\n", fencing ? "true" : "false");
	for (uint64_t i = 0; i < n && !ferror(to); i++)
		put_event(to, events[i]);
	free(events);
	if (fflush(to) != 0 || ferror(to))
		return vb_fail(errno != 0 ? -errno : -EIO, "cannot write the history: %s",
			       strerror(errno != 0 ? errno : EIO));
	return 0;
}

/* ---- reading ---- */

bool vb_lock_history_is_next(const struct vb_lines *lines)
{
	const json_t *what = json_object_get(lines->object, "history");

	return json_is_string(what) && strcmp(json_string_value(what), "locks") == 0;
}

/* In files that were put together there are several of these; one that says it is enough. */
static int read_claim(const struct vb_lines *l, bool *fencing)
{
	static const char *const known[] = {"history", "fencing", NULL};
	static const char *const what[] = {"locks"};
	bool said = false;
	uint8_t word;
	int err = vb_lines_known(l, l->object, known);

	if (err == 0)
		err = vb_lines_word(l, l->object, "history", what, 1, &word);
	if (err == 0)
		err = vb_lines_truth(l, l->object, "fencing", &said);
	*fencing |= said;
	return err;
}

static int read_mode(const struct vb_lines *l, struct vb_lock_event *e)
{
	const char *modes[VB_MODES];

	for (unsigned i = 0; i < VB_MODES; i++)
		modes[i] = vb_lock_mode_name(i);
	if (has_mode(e))
		return vb_lines_word(l, l->object, "mode", modes, VB_MODES, &e->mode);
	return json_object_get(l->object, "mode") == NULL
		       ? 0
		       : vb_lines_bad(l, "mode",
				      "is for calls of acquire and convert, and for "
				      "those that came to a grant");
}

/* A grant's fields are a grant's. */
static int check_grant(const struct vb_lines *l, const struct vb_lock_event *e)
{
	const bool grant = e->type == VB_LOCK_EVENT_OK && e->call <= VB_LOCK_CALL_CONVERT;
	const bool failed = e->type == VB_LOCK_EVENT_FAIL;

	if (!grant && json_object_get(l->object, "token") != NULL)
		return vb_lines_bad(l, "token", "is for grants");
	if (!grant && json_object_get(l->object, "valid_until") != NULL)
		return vb_lines_bad(l, "valid_until", "is for grants");
	if (!failed && json_object_get(l->object, "lost") != NULL)
		return vb_lines_bad(l, "lost", "is for failures");
	if (e->call == VB_LOCK_CALL_ABANDON && e->type != VB_LOCK_EVENT_INFO)
		return vb_lines_bad(l, "type", "of an abandon must be \"info\"");
	return 0;
}

static int read_event(const struct vb_lines *l, struct vb_lock_event *e)
{
	static const char *const known[] = {"process",     "client", "type",  "f",
					    "lock",        "time",   "mode",  "token",
					    "valid_until", "lost",   "error", NULL};
	static const uint64_t none, forever = VB_FOREVER;
	uint64_t process = 0, client = 0;
	bool lost = false;
	int err = vb_lines_known(l, l->object, known);

	*e = (struct vb_lock_event){0};
	if (err == 0)
		err = vb_lines_number(l, l->object, "process", UINT32_MAX, NULL, &process);
	if (err == 0)
		err = vb_lines_number(l, l->object, "client", UINT32_MAX, &process, &client);
	if (err == 0)
		err = vb_lines_word(l, l->object, "type", types, VB_ARRAY_SIZE(types), &e->type);
	if (err == 0)
		err = vb_lines_word(l, l->object, "f", calls, VB_ARRAY_SIZE(calls), &e->call);
	if (err == 0)
		err = vb_lines_number(l, l->object, "lock", UINT64_MAX - 1, NULL, &e->lock);
	if (err == 0)
		err = vb_lines_number(l, l->object, "time", VB_FOREVER - 1, NULL, &e->at_ns);
	if (err == 0)
		err = read_mode(l, e);
	if (err == 0)
		err = vb_lines_number(l, l->object, "token", UINT64_MAX, &none, &e->token);
	if (err == 0)
		err = vb_lines_number(l, l->object, "valid_until", UINT64_MAX, &forever,
				      &e->valid_until_ns);
	if (err == 0)
		err = vb_lines_truth(l, l->object, "lost", &lost);
	e->process = (uint32_t)process;
	e->client = (uint32_t)client;
	e->lost = lost;
	return err ? err : check_grant(l, e);
}

/* Appends, to a history twice as large if it must be. */
static int append(struct vb_lock_history **h, uint64_t *room, const struct vb_lock_event *e)
{
	const struct vb_lock_event *old;
	struct vb_lock_history *more;
	uint64_t at = 0;
	int err;

	while (!vb_lock_history_add(*h, e)) {
		err = vb_lock_history_open(2 * *room, 0, &more);
		if (err)
			return err;
		while ((old = vb_lock_history_next(*h, &at)) != NULL)
			(void)vb_lock_history_add(more, old);
		vb_lock_history_close(*h);
		*h = more;
		*room *= 2;
		at = 0;
	}
	return 0;
}

int vb_lock_history_read(struct vb_lines *lines, struct vb_lock_history **out, bool *fencing)
{
	uint64_t room = EVENTS_FIRST;
	struct vb_lock_history *h;
	struct vb_lock_event e;
	int err = vb_lock_history_open(room, 0, &h);

	if (err)
		return err;
	*fencing = false;
	while (err == 0 && (err = vb_lines_next(lines)) == 1) {
		if (json_object_get(lines->object, "history") != NULL) {
			err = read_claim(lines, fencing);
			continue;
		}
		err = read_event(lines, &e);
		if (err == 0)
			err = append(&h, &room, &e);
	}
	if (err)
		vb_lock_history_close(h);
	else
		*out = h;
	return err;
}
