/* SPDX-License-Identifier: Apache-2.0 */
/* Messages, notifications, waiting for them; part of fabric_suite.h. */

static uint64_t suite_wait_ns = 20000000000ull; /* a message that is not there by then is lost */

/* The next message, or an error after a generous while. */
static inline int suite_take(struct vb_ep *ep, struct vb_msg *m)
{
	uint64_t until = vb_ep_now(ep) + suite_wait_ns;
	int err;

	while ((err = vb_ep_recv(ep, m)) == -EAGAIN) {
		err = vb_ep_wait(ep, until);
		if (err != 0)
			return vb_ep_recv(ep, m) == 0 ? 0 : err; /* this process was held up */
	}
	return err;
}

struct suite_sender {
	struct suite *s;
	vb_peer to, self;
	unsigned n;
	int err;
};

static void suite_send_body(void *arg)
{
	struct suite_sender *me = arg;
	struct vb_ep *ep;

	me->err = vb_ep_open(me->s->f, 1, &ep);
	if (me->err != 0)
		return;
	me->self = ep->self;
	for (unsigned i = 0; i < me->n && me->err == 0; i++) {
		struct vb_msg m = {.from = 12345,
				   .subject = ~(uint64_t)i,
				   .tag = 7,
				   .imm = i,
				   .len = VB_MSG_DATA};

		memset(m.data, (int)(i & 0xff), sizeof(m.data));
		/* Unsignalled ones, and the caller's copy is gone at once. */
		me->err = i % 3 == 0 ? vb_send_wait(ep, me->to, &m) : vb_send(ep, me->to, &m);
		memset(&m, 0xee, sizeof(m));
		if (i % 8 == 7)
			vb_task_yield();
	}
	/* What is under way leaves before the endpoint does. */
	if (me->err == 0)
		me->err = vb_send_wait(ep, me->to, &(struct vb_msg){.tag = 8, .imm = me->n});
	vb_ep_close(ep);
}

static const char *take_sent(struct suite *s, const struct suite_sender *senders)
{
	unsigned next[2] = {0};
	struct vb_msg m;

	while (next[0] + next[1] < 202) {
		unsigned who;

		want(suite_take(s->ep, &m) == 0);
		who = m.from == senders[1].self;
		want(m.from == senders[who].self);
		want(m.imm == next[who]++);
		if (m.tag == 8)
			continue;
		want(m.tag == 7 && m.subject == ~(uint64_t)m.imm && m.len == VB_MSG_DATA);
		for (unsigned j = 0; j < VB_MSG_DATA; j++)
			want(m.data[j] == (m.imm & 0xff));
	}
	want(vb_ep_recv(s->ep, &m) == -EAGAIN);
	return NULL;
}

/* From each sender in the order of posting, whole, and with the sender's true name. */
static const char *check_send_order(struct suite *s)
{
	struct vb_sched *sched = s->ep->sched;
	struct suite_sender senders[2];
	const char *why;

	for (unsigned i = 0; i < 2; i++) {
		senders[i] = (struct suite_sender){.s = s, .to = s->ep->self, .n = 100};
		want(vb_task_spawn(sched, suite_send_body, &senders[i], NULL, NULL) == 0);
	}
	why = take_sent(s, senders);
	want(vb_sched_run(sched, NULL, vb_sched_now(sched) + SUITE_RUN_NS) == 0);
	want(why != NULL || (senders[0].err == 0 && senders[1].err == 0));
	return why;
}

/* Into a receiver that does not look: what does not fit may be lost, is said to be if it was
 * signalled, and what comes is in order, once.  Afterwards everything works again. */
static const char *check_ring_full(struct suite *s)
{
	unsigned sent = 0, came = 0;
	uint64_t last = 0;
	struct vb_msg m = {.len = 0};

	want(vb_ep_open(s->f, 1, &s->to) == 0);
	for (unsigned round = 0; round < 3; round++) {
		for (unsigned i = 0; i < 700; i++) {
			int err;

			m = (struct vb_msg){.subject = ++last};
			err = vb_send_wait(s->ep, s->to->self, &m);
			want(err == 0 || err == -EAGAIN);
			sent += err == 0;
		}
		m = (struct vb_msg){.subject = 0};
		for (uint64_t before = last - 700; vb_ep_recv(s->to, &m) == 0; came++) {
			want(m.subject > before && m.subject <= last);
			before = m.subject;
		}
	}
	want(came == sent && came >= 48);
	m = (struct vb_msg){.imm = 99};
	want(vb_send_wait(s->ep, s->to->self, &m) == 0);
	want(suite_take(s->to, &m) == 0 && m.imm == 99);
	return NULL;
}

/* When the message is there, the data is. */
static const char *check_notify(struct suite *s)
{
	uint64_t data[5], seen[5];
	struct vb_msg m;

	want(vb_ep_open(s->f, 1, &s->to) == 0);
	for (uint64_t i = 1; i <= 100; i++) {
		struct vb_msg note = {.imm = (uint32_t)i, .tag = 3};
		struct vb_verb v = {.op = VB_OP_WRITE_NOTIFY,
				    .flags = i % 2 == 0 ? VB_SIGNALLED : 0,
				    .addr = s->b + 8,
				    .buf = data,
				    .len = sizeof(data),
				    .peer = s->to->self,
				    .msg = &note};

		for (unsigned j = 0; j < 5; j++)
			data[j] = i;
		if (!(s->f->caps.flags & VB_CAP_NOTIFY)) {
			want(vb_verb_run(s->ep, &v) == -EOPNOTSUPP);
			return NULL;
		}
		want(vb_post_wait(s->ep, &v, 1) == 0);
		want(suite_take(s->to, &m) == 0);
		want(m.imm == i && m.tag == 3 && m.from == s->ep->self);
		want(vb_read(s->to, s->b + 8, seen, sizeof(seen)) == 0);
		for (unsigned j = 0; j < 5; j++)
			want(seen[j] == i);
	}
	return NULL;
}

struct suite_waiter {
	struct vb_ep *ep;
	int err;
	struct vb_task *task;
};

static void suite_wait_body(void *arg)
{
	struct suite_waiter *me = arg;

	me->err = vb_ep_wait(me->ep, VB_FOREVER);
}

/* A deadline, a message that wakes every waiter, a cancellation. */
static const char *check_waiting(struct suite *s)
{
	struct vb_sched *sched = s->ep->sched;
	struct suite_waiter w[3];
	uint64_t until = vb_ep_now(s->ep) + 2000000;
	struct vb_msg m = {.imm = 5};
	int err;

	while ((err = vb_ep_wait(s->ep, until)) == 0)
		want(vb_ep_recv(s->ep, &m) == -EAGAIN);
	want(err == -ETIMEDOUT && vb_ep_now(s->ep) >= until);
	want(vb_ep_open(s->f, 1, &s->to) == 0);
	for (unsigned i = 0; i < 3; i++) {
		w[i] = (struct suite_waiter){.ep = s->ep, .err = 1};
		want(vb_task_spawn(sched, suite_wait_body, &w[i], NULL, &w[i].task) == 0);
	}
	vb_task_yield();
	vb_task_cancel(w[2].task);
	want(vb_send_wait(s->to, s->ep->self, &m) == 0);
	want(vb_sched_run(sched, NULL, vb_sched_now(sched) + SUITE_RUN_NS) == 0);
	want(w[0].err == 0 && w[1].err == 0 && w[2].err == -ECANCELED);
	want(suite_take(s->ep, &m) == 0 && m.imm == 5);
	return NULL;
}

/* A closed endpoint is gone, and who comes after it does not get its messages. */
static const char *check_closed_peer(struct suite *s)
{
	struct vb_msg m = {.imm = 1};
	vb_peer gone;
	int err;

	want(vb_ep_open(s->f, 1, &s->to) == 0);
	gone = s->to->self;
	want(vb_peer_node(gone) == 1);
	want(vb_peer_alive(s->f, gone));
	want(vb_send_wait(s->ep, gone, &m) == 0);
	vb_ep_close(s->to);
	s->to = NULL;
	want(!vb_peer_alive(s->f, gone));
	want(vb_send_wait(s->ep, gone, &m) == -VB_EPEERGONE);
	want(!vb_peer_alive(s->f, VB_PEER_NONE));
	want(vb_send_wait(s->ep, VB_PEER_NONE, &m) < 0);
	for (unsigned i = 0; i < 200; i++) {
		want(vb_ep_open(s->f, 1, &s->to) == 0);
		want(s->to->self != gone);
		/* Known at once, or never; or not sent for want of room. */
		err = vb_send(s->ep, gone, &m);
		want(err == 0 || err == -VB_EPEERGONE || err == -EAGAIN);
		want(vb_ep_recv(s->to, &m) == -EAGAIN);
		vb_ep_close(s->to);
		s->to = NULL;
	}
	return NULL;
}
