/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What has become of the verbs whose answers a broken connection took with it.
 *
 *	requester                              owner
 *	  VERBS {epoch 7, number 3} ------->     executes; keeps {3, answer}
 *	                              X <---     ANSWER
 *	  the connection breaks: 3 is parked
 *	  HELLO {epoch 8, awaits 7} ------->     from here on nothing of 7 is executed
 *	                            <-------     ANSWER {epoch 7, number 3}, as it was
 *	                            <-------     WELCOME {next 4}
 *	  what is parked: from 4 on it was not
 *	  executed (-VB_EPEERGONE), what is left
 *	  before has no answer (-VB_EUNKNOWN)
 *
 * Void before it is counted.  What the old connection still brings, in whatever order the two are read, is
 * of an epoch that HELLO has ended, so it is dropped (serve.c), and what has been said of it stays true.
 *
 * All at once.  Answers go before WELCOME over one connection, so with it everything parked has ended, and no
 * verb of the new connection is under way before.  If that breaks in between, the next HELLO awaits the same.
 *
 * Who knows.  An owner speaks only of the last epoch of which it has executed something, or of the one that it was
 * greeted with last, of which it has executed nothing.  One that has begun again has seen neither, and says 0; to a
 * requester that has begun again nothing is parked, so its first HELLO ends what was known.
 *
 * Bounds.  Of a host are kept as many answers as the window allows, AM_KEPT_MAX at most, none longer than
 * AM_KEPT_EACH: a window of 16 costs at most 64 KiB.  What is parked ends after relink_ns as -VB_EUNKNOWN; an
 * answer that comes then is dropped.  When verbs take effect is not changed by any of this: the owner has executed
 * them in their time.
 *
 * Only of carriers that last: on others an answer may be lost without a break.
 */
#define VB_LOG_ROOM "net"
#include "base/log.h"
#include "fabric/net/am/am.h"

#define ROOM_FIRST 64u

static uint32_t kept_n(const struct am_host *h)
{
	uint64_t window = h->wire->o.window;

	return window < AM_KEPT_MAX ? (uint32_t)window : AM_KEPT_MAX;
}

/* False: its requester will not hear more than that it has been executed. */
static bool copy(struct am_kept *k, const uint8_t *body, uint32_t bytes)
{
	uint32_t room = k->room != 0 ? k->room : ROOM_FIRST;

	if (bytes > AM_KEPT_EACH)
		return false;
	while (room < bytes)
		room *= 2;
	if (room != k->room) {
		uint8_t *more = realloc(k->data, room);

		if (more == NULL)
			return false;
		k->data = more;
		k->room = room;
	}
	if (bytes > 0)
		memcpy(k->data, body, bytes);
	return true;
}

void am_past_keep(struct am_host *h, const struct am_header *answer, const uint8_t *body)
{
	struct am_past *p = &h->past;
	struct am_kept *k;

	if (!h->wire->carrier->lasting)
		return;
	p->epoch = answer->epoch;
	p->number = answer->number;
	if (p->kept == NULL)
		p->kept = calloc(kept_n(h), sizeof(*p->kept));
	if (p->kept == NULL)
		return;
	k = &p->kept[answer->number % kept_n(h)];
	k->number = copy(k, body, answer->bytes) ? answer->number : 0;
	k->bytes = answer->bytes;
	k->flags = answer->flags;
}

void am_past_greeted(struct am_host *h, uint32_t epoch, uint32_t awaited)
{
	struct am_past *p = &h->past;

	p->asked = awaited != 0 && (awaited == p->epoch || awaited == p->greeted);
	if (!p->asked) {
		p->epoch = 0;
	} else if (awaited != p->epoch) {
		p->epoch = awaited;
		p->number = 0;
	}
	p->greeted = epoch;
}

static void say(struct am_host *h, const struct am_kept *k)
{
	struct am_msg *m = am_msg_get(h, AM_ANSWER);
	const struct am_header again = {
		.kind = AM_ANSWER,
		.flags = k->flags,
		.session = h->wire->session,
		.host = h->wire->f->host,
		.epoch = h->past.epoch,
		.number = k->number,
		.clock = vb_clock_ns(),
		.bytes = k->bytes,
	};

	if (m == NULL)
		return;
	if (!am_msg_reserve(m, k->bytes)) {
		am_msg_put(m);
		return;
	}
	if (k->bytes > 0)
		memcpy(m->buffer + AM_HEADER, k->data, k->bytes);
	m->bytes = k->bytes;
	m->over = true;
	(void)am_msg_send(m, &again);
}

void am_past_say(struct am_host *h)
{
	const struct am_past *p = &h->past;
	const uint32_t n = kept_n(h);

	if (!p->asked || p->kept == NULL)
		return;
	for (uint64_t i = p->number > n ? p->number - n + 1 : 1; i <= p->number && !h->failed; i++)
		if (p->kept[i % n].number == i)
			say(h, &p->kept[i % n]);
}

uint64_t am_past_next(const struct am_host *h)
{
	return h->past.asked ? h->past.number + 1 : 0;
}

void am_past_free(struct am_host *h)
{
	struct am_past *p = &h->past;

	for (uint32_t i = 0; p->kept != NULL && i < kept_n(h); i++)
		free(p->kept[i].data);
	free(p->kept);
	*p = (struct am_past){0};
}
