/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Questions to another host, and waiting for the answer.
 *
 * Either may find no room or no way.  A question is then put again, and so is one that has had no answer
 * for a while, with the same number: the owner, who has nowhere to keep an answer, gives it again.
 */
#include "fabric/net/core.h"

#define AGAIN_NS 100000000ull /* an answer takes no longer as a rule; doubled each time */
#define FULL_NS  1000000ull   /* until there may be room for a control message */
#define GONE_NS  100000000ull /* how soon the death of the owner is seen at the latest */

/* A question about what a host had is not for who has begun in its place; who is asked whether somebody lives
 * is. */
static bool is_void(const struct net_fabric *f, const struct net_ask *ask,
		    const struct control_ask *q)
{
	if (q->kind == CONTROL_LIVES)
		return __atomic_load_n(&f->core->host[ask->host].gone, __ATOMIC_ACQUIRE);
	return net_memory_gone(f, ask->host);
}

static int put(struct net_fabric *f, const struct net_ask *ask, const struct control_ask *q)
{
	const struct control_take t = {.ask = *q, .was = ask->was};

	return q->kind == CONTROL_TAKE ? f->t->control(f, ask->host, &t, sizeof(t))
				       : f->t->control(f, ask->host, q, sizeof(*q));
}

/* Engine held by nobody.  0: it is on its way, or was answered meanwhile. */
static int ask_once(struct net_fabric *f, struct net_ask *ask, const struct control_ask *q)
{
	int err = 0;

	pthread_mutex_lock(&f->engine);
	if (!ask->answered) {
		err = is_void(f, ask, q) ? -VB_EPEERGONE : put(f, ask, q);
		if (err == 0)
			f->t->flush(f);
	}
	pthread_mutex_unlock(&f->engine);
	return err;
}

/* There has been no connection for as long as the asker has patience with that. */
static bool is_unreached(struct net_ask *ask, int err)
{
	uint64_t now = vb_clock_ns();

	if (err != -VB_EPEERGONE)
		ask->down_ns = 0;
	else if (ask->down_ns == 0)
		ask->down_ns = now;
	return ask->down_ns != 0 && ask->unreached_ns != 0 &&
	       now - ask->down_ns >= ask->unreached_ns;
}

/* 0: answered, or worth waiting until `until`, after which the question is put again. */
static int ask_on(struct net_fabric *f, struct net_ask *ask, const struct control_ask *q,
		  uint64_t end_ns, uint64_t *pause_ns)
{
	uint64_t again;
	int err;

	if (is_void(f, ask, q))
		return -VB_EPEERGONE;
	err = ask_once(f, ask, q);
	if (vb_clock_ns() >= end_ns || is_unreached(ask, err))
		return err != 0 ? err : -ETIMEDOUT;
	if (err != 0 && err != -EAGAIN && err != -VB_EPEERGONE)
		return err;
	/* No room is soon over, and so may a broken connection be: that a host is gone the cluster
	 * says.  A question that is on its way wants more patience each time. */
	again = vb_clock_ns() + (err == 0 ? *pause_ns : FULL_NS);
	if (err == 0)
		*pause_ns *= 2;
	if (again > end_ns)
		again = end_ns;
	while (ask->batch.pending > 0 && vb_clock_ns() < again && !is_void(f, ask, q)) {
		uint64_t look = vb_clock_ns() + GONE_NS;

		(void)vb_task_suspend_uninterruptible(look < again ? look : again);
	}
	return 0;
}

int net_ask_on_thread(struct net_fabric *f, const struct control_ask *question, struct net_ask *ask)
{
	struct control_ask q = *question;
	uint64_t patience = ask->patience_ns != 0 ? ask->patience_ns : f->core->answer_ns;
	uint64_t end = vb_clock_ns() + patience, pause = AGAIN_NS;
	int err = 0;

	ask->batch = (struct vb_batch){.pending = 1, .waiter = vb_task_self()};
	vb_list_init(&ask->link);
	pthread_mutex_lock(&f->engine);
	q.number = ask->number = ++f->core->next_ask;
	vb_list_push(&f->core->asks, &ask->link);
	pthread_mutex_unlock(&f->engine);
	while (err == 0 && ask->batch.pending > 0)
		err = ask_on(f, ask, &q, end, &pause);
	/* Off the list nobody knows of us any more; an answer that was quicker is taken. */
	pthread_mutex_lock(&f->engine);
	if (ask->answered) {
		err = 0;
	} else {
		vb_list_remove(&ask->link);
		ask->batch.pending = 0;
	}
	pthread_mutex_unlock(&f->engine);
	while (ask->batch.pending > 0)
		(void)vb_task_suspend_uninterruptible(VB_FOREVER);
	return err;
}

int net_ask(struct net_fabric *f, const struct control_ask *question, struct net_ask *ask)
{
	int err = net_thread_get(f, &ask->thread);

	if (err != 0)
		return err;
	err = net_ask_on_thread(f, question, ask);
	net_thread_put(ask->thread);
	return err;
}
