/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Recording the calls of locks: see history.h.
 *
 * A place is taken with one atomic addition, so that the order of places is one in which the events
 * may have happened.  Who is killed between that and the end of its event leaves the place empty.
 */
#define VB_LOG_ROOM "check"
#include "check/lock/history.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/log.h"
#include "check/lock/watch.h"

#define DEAD UINT32_MAX /* no process: its client has not called again since it died */

struct place {
	struct vb_lock_event event;
	uint32_t whole;
};

struct vb_lock_history {
	size_t bytes;
	uint64_t most, used;
	unsigned clients;
	uint32_t processes;
	struct vb_lock_watch watch;
	const struct vb_lock_watch *next;
	struct place *places; /* behind process[], at the same address in every process */
	uint32_t process[];   /* by client */
};

int vb_lock_history_open(uint64_t most, unsigned clients, struct vb_lock_history **out)
{
	const size_t head =
		(sizeof(struct vb_lock_history) + clients * sizeof(uint32_t) + 63) & ~(size_t)63;
	const size_t bytes = head + most * sizeof(struct place);
	struct vb_lock_history *h;

	h = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE,
		 -1, 0);
	if (h == MAP_FAILED)
		return vb_fail(-ENOMEM, "no memory for a history of %zu MiB: %s", bytes >> 20,
			       strerror(errno));
	h->bytes = bytes;
	h->most = most;
	h->clients = clients;
	h->processes = clients;
	h->places = (struct place *)((unsigned char *)h + head);
	for (unsigned i = 0; i < clients; i++)
		h->process[i] = i;
	*out = h;
	return 0;
}

void vb_lock_history_close(struct vb_lock_history *h)
{
	if (h != NULL)
		munmap(h, h->bytes);
}

bool vb_lock_history_add(struct vb_lock_history *h, const struct vb_lock_event *e)
{
	uint64_t at;

	/* Or the number of places would go on growing, and round in the end. */
	if (__atomic_load_n(&h->used, __ATOMIC_RELAXED) > h->most)
		return false;
	at = __atomic_fetch_add(&h->used, 1, __ATOMIC_ACQ_REL);
	if (at >= h->most)
		return false;
	h->places[at].event = *e;
	__atomic_store_n(&h->places[at].whole, 1, __ATOMIC_RELEASE);
	return true;
}

uint64_t vb_lock_history_count(const struct vb_lock_history *h, bool *full)
{
	uint64_t at = 0, n = 0;

	while (vb_lock_history_next(h, &at) != NULL)
		n++;
	*full = __atomic_load_n(&h->used, __ATOMIC_ACQUIRE) > h->most;
	return n;
}

const struct vb_lock_event *vb_lock_history_next(const struct vb_lock_history *h, uint64_t *at)
{
	uint64_t used = __atomic_load_n(&h->used, __ATOMIC_ACQUIRE);

	while (*at < used && *at < h->most) {
		const struct place *p = &h->places[(*at)++];

		if (__atomic_load_n(&p->whole, __ATOMIC_ACQUIRE))
			return &p->event;
	}
	return NULL;
}

void vb_lock_history_client_died(struct vb_lock_history *h, unsigned client)
{
	vb_assert(client < h->clients);
	h->process[client] = DEAD;
}

/* ---- what the space says ---- */

static void add(struct vb_lock_history *h, const struct vb_lock_client *me, struct vb_lock_event e)
{
	uint32_t *process = &h->process[me->index];

	vb_assert(me->index < h->clients);
	/* A call that the death interrupted may still come to its end. */
	if (*process == DEAD && (e.type != VB_LOCK_EVENT_INVOKE || e.call != VB_LOCK_CALL_ACQUIRE))
		return;
	if (*process == DEAD)
		*process = __atomic_fetch_add(&h->processes, 1, __ATOMIC_RELAXED);
	e.client = me->index;
	e.process = *process;
	e.at_ns = vb_sched_now(me->ep->sched);
	(void)vb_lock_history_add(h, &e);
}

/* A release that failed otherwise may have given the lock back all the same. */
static bool is_unknown(enum vb_lock_call call, int err)
{
	return err == -VB_EUNKNOWN || (call == VB_LOCK_CALL_RELEASE && err != -VB_ELOST);
}

static void add_end(struct vb_lock_history *h, const struct vb_lock_client *me,
		    enum vb_lock_call call, uint64_t lock, int err)
{
	add(h, me,
	    (struct vb_lock_event){
		    .type = err == 0                ? VB_LOCK_EVENT_OK
			    : is_unknown(call, err) ? VB_LOCK_EVENT_INFO
						    : VB_LOCK_EVENT_FAIL,
		    .call = (uint8_t)call,
		    .lock = lock,
		    .lost = err == -VB_ELOST,
		    .err = err,
		    .valid_until_ns = VB_FOREVER,
	    });
}

static void add_grant(struct vb_lock_history *h, const struct vb_lock_client *me,
		      enum vb_lock_call call, const struct vb_claim *c)
{
	add(h, me,
	    (struct vb_lock_event){
		    .type = VB_LOCK_EVENT_OK,
		    .call = (uint8_t)call,
		    .lock = c->lock,
		    .mode = (uint8_t)c->mode,
		    .token = c->token,
		    .valid_until_ns = vb_ep_base(me->ep, c->valid_until_ns),
	    });
}

static void add_call(struct vb_lock_history *h, const struct vb_lock_client *me,
		     enum vb_lock_call call, uint64_t lock, enum vb_mode mode)
{
	add(h, me,
	    (struct vb_lock_event){.type = VB_LOCK_EVENT_INVOKE,
				   .call = (uint8_t)call,
				   .lock = lock,
				   .mode = (uint8_t)mode,
				   .valid_until_ns = VB_FOREVER});
}

#define PASS_ON(h, call, ...)                                                                      \
	do {                                                                                       \
		if ((h)->next != NULL)                                                             \
			(h)->next->call((h)->next->ctx, __VA_ARGS__);                              \
	} while (0)

static void on_called(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct vb_lock_history *h = ctx;

	add_call(h, me, VB_LOCK_CALL_ACQUIRE, lock, mode);
	PASS_ON(h, called, me, lock, mode);
}

static void on_queued(void *ctx, struct vb_lock_client *me, uint64_t lock, enum vb_mode mode)
{
	struct vb_lock_history *h = ctx;

	PASS_ON(h, queued, me, lock, mode);
}

static void on_granted(void *ctx, struct vb_lock_client *me, const struct vb_claim *c)
{
	struct vb_lock_history *h = ctx;

	add_grant(h, me, VB_LOCK_CALL_ACQUIRE, c);
	PASS_ON(h, granted, me, c);
}

static void on_not_granted(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	struct vb_lock_history *h = ctx;

	add_end(h, me, VB_LOCK_CALL_ACQUIRE, lock, err);
	PASS_ON(h, not_granted, me, lock, err);
}

static void on_abandoned(void *ctx, struct vb_lock_client *me, const struct vb_claim *c)
{
	struct vb_lock_history *h = ctx;

	add(h, me,
	    (struct vb_lock_event){.type = VB_LOCK_EVENT_INFO,
				   .call = VB_LOCK_CALL_ABANDON,
				   .lock = c->lock,
				   .valid_until_ns = VB_FOREVER});
	PASS_ON(h, abandoned, me, c);
}

static void on_releasing(void *ctx, struct vb_lock_client *me, const struct vb_claim *c)
{
	struct vb_lock_history *h = ctx;

	add_call(h, me, VB_LOCK_CALL_RELEASE, c->lock, c->mode);
	PASS_ON(h, releasing, me, c);
}

static void on_released(void *ctx, struct vb_lock_client *me, uint64_t lock, int err)
{
	struct vb_lock_history *h = ctx;

	add_end(h, me, VB_LOCK_CALL_RELEASE, lock, err);
	PASS_ON(h, released, me, lock, err);
}

static void on_converting(void *ctx, struct vb_lock_client *me, const struct vb_claim *c,
			  enum vb_mode to)
{
	struct vb_lock_history *h = ctx;

	add_call(h, me, VB_LOCK_CALL_CONVERT, c->lock, to);
	PASS_ON(h, converting, me, c, to);
}

static void on_converted(void *ctx, struct vb_lock_client *me, const struct vb_claim *c, int err)
{
	struct vb_lock_history *h = ctx;

	if (err == 0)
		add_grant(h, me, VB_LOCK_CALL_CONVERT, c);
	else
		add_end(h, me, VB_LOCK_CALL_CONVERT, c->lock, err);
	PASS_ON(h, converted, me, c, err);
}

const struct vb_lock_watch *vb_lock_history_watch(struct vb_lock_history *h,
						  const struct vb_lock_watch *next)
{
	h->next = next;
	h->watch = (struct vb_lock_watch)VB_LOCK_WATCH(h);
	return &h->watch;
}
