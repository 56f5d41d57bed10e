/* SPDX-License-Identifier: Apache-2.0 */
/* What is open on a fabric, and calls from where it is not at home; see opened.h. */
#define VB_LOG_ROOM "fabric"
#include "fabric/opened.h"

#include "base/log.h"

/* So many are named; the others are counted. */
#define NAMED      4u
#define NAME_BYTES 160u

/* In a child the list may be half of what a thread of the parent's was making of it. */
void vb_opened_init(struct vb_fabric *f)
{
	pthread_mutex_init(&f->opened_lock, NULL);
	vb_list_init(&f->opened);
	f->told = vb_forks;
}

void vb_opened_note(struct vb_fabric *f, struct vb_opened *o)
{
	o->fabric = f;
	o->forks = vb_forks;
	pthread_mutex_lock(&f->opened_lock);
	vb_list_push(&f->opened, &o->link);
	pthread_mutex_unlock(&f->opened_lock);
}

void vb_opened_drop(struct vb_opened *o)
{
	struct vb_fabric *f = o->fabric;

	if (f == NULL || o->forks != vb_forks)
		return;
	pthread_mutex_lock(&f->opened_lock);
	vb_list_remove(&o->link);
	pthread_mutex_unlock(&f->opened_lock);
	o->fabric = NULL;
}

static void name_it(const struct vb_opened *o, char *to, size_t size)
{
	if (o->of == NULL)
		snprintf(to, size, "%s '%.64s'", o->kind, o->name);
	else
		snprintf(to, size, "%s %u of '%.64s' at node %u", o->kind, o->number, o->name,
			 o->node);
}

int vb_opened_check(struct vb_fabric *f, const void *of, const char *what, const char *name)
{
	char list[NAMED * (NAME_BYTES + 2) + 1] = "", one[NAME_BYTES];
	unsigned n = 0;

	pthread_mutex_lock(&f->opened_lock);
	vb_list_for_each (it, &f->opened) {
		const struct vb_opened *o = vb_container_of(it, struct vb_opened, link);

		if ((of != NULL && o->of != of) || n++ >= NAMED)
			continue;
		name_it(o, one, sizeof(one));
		snprintf(list + strlen(list), sizeof(list) - strlen(list), "%s%s",
			 n > 1 ? ", " : "", one);
	}
	pthread_mutex_unlock(&f->opened_lock);
	if (n == 0)
		return 0;
	if (n > NAMED)
		snprintf(one, sizeof(one), " and %u more", n - NAMED);
	return vb_fail(-EBUSY,
		       "%s '%s' stays open: %s%s %s open on it; close what was opened on it first, "
		       "then close it again",
		       what, name, list, n > NAMED ? one : "", n == 1 ? "is" : "are");
}

/* ---- whose call is it? ---- */

int vb_fabric_foreign(const struct vb_fabric *f)
{
	return vb_fail(-VB_EFOREIGN,
		       "this process was forked from one that has the '%s' fabric open: call "
		       "vb_fabric_after_fork on it before anything else",
		       f->ops->name);
}

/* A thread for which something is under way has a keeper, so all its calls come by here. */
static int check_caller(const struct vb_ep *ep)
{
	VB_SCHED_INSIDE(ep->sched);
	const struct vb_task *caller = __atomic_load_n(&ep->caller, __ATOMIC_RELAXED);

	if (caller == NULL || caller == vb_task_self())
		return 0;
	return vb_fail(-EBUSY,
		       "a call of this client or coordinator is under way, on a ring or a host or "
		       "in a function there: it has one at a time; wait for its end, or cancel it");
}

int vb_ep_foreign(const struct vb_ep *ep)
{
	int err = vb_ep_foreign_thread(ep);

	return err != 0 || vb_likely(__atomic_load_n(&ep->caller, __ATOMIC_RELAXED) == NULL)
		       ? err
		       : check_caller(ep);
}

/* Entering may give others a turn: it comes first. */
struct vb_ep_call vb_ep_call_slow(struct vb_ep *ep)
{
	struct vb_ep_call call = {.err = vb_ep_foreign_thread(ep)};

	if (call.err)
		return call;
	call.inside = vb_sched_guard(ep->sched);
	call.err = check_caller(ep);
	if (call.err)
		vb_ep_call_outside(&call);
	else if (__atomic_load_n(&ep->caller, __ATOMIC_RELAXED) == NULL) {
		__atomic_store_n(&ep->caller, vb_task_self(), __ATOMIC_RELAXED);
		call.ep = ep;
	}
	return call;
}

int vb_ep_foreign_thread(const struct vb_ep *ep)
{
	if (vb_sched_is_here(ep->sched))
		return 0;
	if (vb_ep_is_away(ep))
		return vb_fail(-VB_EFOREIGN,
			       "a coordinator or server that is open on a host: it is called "
			       "in a function that runs there (vb_host_call)");
	if (ep->forks == vb_forks)
		return vb_fail(-VB_EFOREIGN,
			       "a client or coordinator of another thread: only the thread that "
			       "has opened it may call it; open one for each thread");
	/* The fabric may have been closed here: nothing of it is looked at. */
	return vb_fail(-VB_EFOREIGN, "a client or coordinator that the process has opened from "
				     "which this one was forked: call vb_fabric_after_fork on its "
				     "fabric before anything else, and open one of its own");
}

int vb_opened_foreign(const struct vb_opened *o)
{
	return vb_fail(-VB_EFOREIGN,
		       "a %s of the process from which this one was forked: it is there that it "
		       "is stopped",
		       o->kind);
}
