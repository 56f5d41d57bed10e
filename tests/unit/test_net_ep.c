/* SPDX-License-Identifier: Apache-2.0 */
/* The network core's endpoints: numbers, rings, who gets which message, and what a peer may get
 * wrong. */
#include "net_fake.h"

#define FROM vb_peer_make(1, 4711)

static int deliver(uint32_t client, const struct vb_msg *m)
{
	int err;

	pthread_mutex_lock(&fake.f->engine);
	err = net_deliver(fake.f, client, m);
	pthread_mutex_unlock(&fake.f->engine);
	return err;
}

static uint32_t client_of(const struct vb_ep *e)
{
	return vb_peer_client(e->self);
}

static void numbers_and_places(void **state)
{
	struct vb_ep *a, *b, *c;
	vb_peer gone;

	(void)state;
	fake_open();
	a = fake_ep(0);
	b = fake_ep(3);
	assert_int_equal(vb_peer_node(a->self), 0);
	assert_int_equal(vb_peer_node(b->self), 3);
	assert_int_not_equal(client_of(a), 0);
	assert_int_not_equal(client_of(a), client_of(b));
	assert_true(vb_peer_alive(fake.fabric, a->self));
	FAKE_SAYS(vb_ep_open(fake.fabric, 1, &c), -EINVAL, "lives in process 1");
	FAKE_SAYS(vb_ep_open(fake.fabric, FAKE_NODES, &c), -EINVAL, "no node");
	gone = a->self;
	vb_ep_close(a);
	assert_false(vb_peer_alive(fake.fabric, gone));
	assert_true(vb_peer_alive(fake.fabric, b->self));
	vb_ep_close(b);
}

/* A number is not drawn again as long as others are left, so that a late message for a closed
 * endpoint finds nobody; and one that is in use is passed over when the counter comes round. */
static void numbers_come_late(void **state)
{
	struct vb_msg m = {.tag = 1};
	struct vb_ep *old, *kept;
	uint32_t gone;

	(void)state;
	fake_open();
	kept = fake_ep(0);
	old = fake_ep(0);
	gone = client_of(old);
	for (uint32_t i = 0; i < 2 * NET_CLIENTS_MAX; i++) {
		vb_ep_close(old);
		old = fake_ep(0);
		assert_int_not_equal(client_of(old), gone);
		assert_int_not_equal(client_of(old) % NET_CLIENTS_MAX,
				     client_of(kept) % NET_CLIENTS_MAX);
	}
	assert_int_equal(deliver(gone, &m), -VB_EPEERGONE);
	vb_ep_close(old);
	/* Round the corner of 24 bits: 0 is nobody's number. */
	fake.f->core->next_client = (1u << VB_PEER_CLIENT_BITS) - 2;
	for (unsigned i = 0; i < 4; i++) {
		old = fake_ep(0);
		assert_int_not_equal(client_of(old), 0);
		assert_int_not_equal(client_of(old), client_of(kept));
		vb_ep_close(old);
	}
	vb_ep_close(kept);
}

/* The table is full only when every place is taken, and is of use again when one is free. */
static void table_full(void **state)
{
	struct vb_ep *all[3], *more;
	struct net_ep *const taken = (struct net_ep *)&fake; /* not looked into */

	(void)state;
	fake_open();
	for (unsigned i = 0; i < 3; i++)
		all[i] = fake_ep(0);
	for (uint32_t i = 0; i < NET_CLIENTS_MAX; i++) {
		if (fake.f->core->clients[i] == NULL)
			fake.f->core->clients[i] = taken;
	}
	FAKE_SAYS(vb_ep_open(fake.fabric, 0, &more), -ENOSPC, "endpoints are open");
	vb_ep_close(all[1]);
	all[1] = fake_ep(0);
	for (uint32_t i = 0; i < NET_CLIENTS_MAX; i++) {
		if (fake.f->core->clients[i] == taken)
			fake.f->core->clients[i] = NULL;
	}
	for (unsigned i = 0; i < 3; i++)
		vb_ep_close(all[i]);
}

static void right_client(void **state)
{
	struct vb_ep *e[3];
	struct vb_msg m = {.from = FROM, .len = 1}, got;

	(void)state;
	fake_open();
	for (unsigned i = 0; i < 3; i++)
		e[i] = fake_ep((uint16_t)(3 * i));
	for (unsigned i = 0; i < 9; i++) {
		m.subject = i;
		assert_int_equal(deliver(client_of(e[i % 3]), &m), 0);
	}
	for (unsigned i = 0; i < 9; i++) {
		assert_int_equal(vb_ep_recv(e[i % 3], &got), 0);
		assert_int_equal(got.subject, i);
		assert_int_equal(got.from, FROM);
	}
	for (unsigned i = 0; i < 3; i++) {
		assert_int_equal(vb_ep_recv(e[i], &got), -EAGAIN);
		vb_ep_close(e[i]);
	}
}

/* Numbers that nobody has, among them each that shares a place of the table with one that somebody
 * has, and those of more than 24 bits. */
static void unknown_client(void **state)
{
	struct vb_msg m = {.from = FROM}, got;
	struct vb_ep *e;
	uint32_t client;

	(void)state;
	fake_open();
	e = fake_ep(0);
	client = client_of(e);
	assert_int_equal(deliver(0, &m), -VB_EPEERGONE);
	assert_int_equal(deliver(NET_CLIENTS_MAX, &m), -VB_EPEERGONE);
	assert_int_equal(deliver(UINT32_MAX, &m), -VB_EPEERGONE);
	for (uint32_t i = 1; i < 1u << 8; i++)
		assert_int_equal(deliver(client + i * NET_CLIENTS_MAX, &m), -VB_EPEERGONE);
	assert_int_equal(vb_ep_recv(e, &got), -EAGAIN);
	vb_ep_close(e);
	assert_int_equal(deliver(client, &m), -VB_EPEERGONE);
}

/* A length that a peer made up is cut to what a message has. */
static void made_up_length(void **state)
{
	struct vb_msg m = {.from = FROM, .len = UINT16_MAX}, got;
	struct vb_ep *e;

	(void)state;
	fake_open();
	e = fake_ep(0);
	assert_int_equal(deliver(client_of(e), &m), 0);
	assert_int_equal(vb_ep_recv(e, &got), 0);
	assert_int_equal(got.len, VB_MSG_DATA);
	vb_ep_close(e);
}

/* A full ring refuses; what it holds is whole and in order; one taken makes room for one. */
static void ring_full(void **state)
{
	struct vb_msg m = {.from = FROM}, got;
	uint64_t next = 0;
	struct vb_ep *e;

	(void)state;
	fake_open();
	e = fake_ep(0);
	/* Several times round. */
	for (unsigned turn = 0; turn < 5; turn++) {
		uint64_t first = m.subject;

		while (deliver(client_of(e), &m) == 0)
			m.subject++;
		assert_int_equal(m.subject - next, NET_RING);
		assert_int_equal(deliver(client_of(e), &m), -EAGAIN);
		for (unsigned i = 0; i < NET_RING / 3; i++) {
			assert_int_equal(vb_ep_recv(e, &got), 0);
			assert_int_equal(got.subject, next++);
		}
		assert_true(m.subject > first);
	}
	while (vb_ep_recv(e, &got) == 0)
		assert_int_equal(got.subject, next++);
	assert_int_equal(next, m.subject);
	vb_ep_close(e);
}

/* What a sender of this process sees of it: signalled, -EAGAIN; else the message is dropped and
 * counted.  The sender's own name is put in, whatever he wrote. */
static void ring_full_here(void **state)
{
	struct vb_msg m = {.from = FROM, .len = 1}, got;
	struct vb_ep *a, *b;
	vb_peer gone;

	(void)state;
	fake_open();
	a = fake_ep(0);
	b = fake_ep(3);
	for (unsigned i = 0; i < NET_RING; i++)
		assert_int_equal(vb_send_wait(a, b->self, &m), 0);
	assert_int_equal(vb_send_wait(a, b->self, &m), -EAGAIN);
	assert_int_equal(fake_stats().dropped, 0);
	assert_int_equal(vb_send(a, b->self, &m), -EAGAIN);
	assert_int_equal(fake_stats().dropped, 1);
	assert_int_equal(vb_ep_recv(b, &got), 0);
	assert_int_equal(got.from, a->self);
	assert_int_equal(vb_send(a, b->self, &m), 0);
	assert_int_equal(fake_stats().dropped, 1);
	gone = b->self;
	vb_ep_close(b);
	assert_int_equal(vb_send_wait(a, gone, &m), -VB_EPEERGONE);
	assert_false(vb_peer_alive(fake.fabric, gone));
	assert_int_equal(fake.posts, 0);
	vb_ep_close(a);
}

/* A notified WRITE's data is there when its message is. */
static void notified(void **state)
{
	uint64_t word = 31;
	vb_addr a = vb_addr_make(3, 640);
	struct vb_msg m = {.imm = 5}, got;
	struct vb_verb v = {.op = VB_OP_WRITE_NOTIFY, .addr = a, .buf = &word, .len = 8, .msg = &m};
	struct vb_ep *e;

	(void)state;
	fake_open();
	e = fake_ep(3);
	v.peer = e->self;
	assert_int_equal(vb_verb_run(e, &v), 0);
	assert_int_equal(vb_ep_recv(e, &got), 0);
	assert_int_equal(got.imm, 5);
	assert_int_equal(*(uint64_t *)vb_local(fake.fabric, a, 8), 31);
	vb_ep_close(e);
}

/* Every waiter of the endpoint is woken, and those of others are not. */
struct waiting {
	struct vb_ep *ep;
	unsigned woken;
};

static void wait_body(void *arg)
{
	struct waiting *w = arg;

	assert_int_equal(vb_ep_wait(w->ep, VB_FOREVER), 0);
	w->woken++;
}

static void waiters(void **state)
{
	struct vb_msg m = {.from = FROM};
	struct waiting a = {0}, b = {0};
	struct vb_task *t;

	(void)state;
	fake_open();
	a.ep = fake_ep(0);
	b.ep = fake_ep(3);
	for (unsigned i = 0; i < 2; i++)
		assert_int_equal(vb_task_spawn(a.ep->sched, wait_body, &a, NULL, &t), 0);
	assert_int_equal(vb_task_spawn(b.ep->sched, wait_body, &b, NULL, &t), 0);
	vb_task_yield();
	assert_int_equal(deliver(client_of(a.ep), &m), 0);
	vb_task_yield();
	vb_task_yield();
	assert_int_equal(a.woken, 2);
	assert_int_equal(b.woken, 0);
	assert_int_equal(deliver(client_of(b.ep), &m), 0);
	assert_int_equal(vb_sched_run(b.ep->sched, NULL, VB_FOREVER), 0);
	assert_int_equal(b.woken, 1);
	vb_ep_close(a.ep);
	vb_ep_close(b.ep);
}

/* Endpoints of several threads, all of them open and closed while messages arrive for them: each
 * gets what was delivered, in order, and none that is for another. */
#define THREADS 3u
#define ROUNDS  40u
#define EACH    20u

static void *come_and_go(void *arg)
{
	unsigned *wrong = arg;

	for (unsigned round = 0; round < ROUNDS; round++) {
		struct vb_ep *e = fake_ep(0);
		struct vb_msg m = {.from = FROM}, got;

		for (unsigned i = 0; i < EACH; i++) {
			m.subject = (uint64_t)client_of(e) << 32 | i;
			*wrong += deliver(client_of(e), &m) != 0;
		}
		for (unsigned i = 0; i < EACH; i++)
			*wrong += vb_ep_recv(e, &got) != 0 ||
				  got.subject != ((uint64_t)client_of(e) << 32 | i);
		vb_ep_close(e);
	}
	vb_sched_destroy(vb_sched_self());
	return NULL;
}

static void threads_come_and_go(void **state)
{
	unsigned wrong[THREADS] = {0};
	pthread_t thread[THREADS];

	(void)state;
	fake_open();
	for (unsigned i = 0; i < THREADS; i++)
		assert_int_equal(pthread_create(&thread[i], NULL, come_and_go, &wrong[i]), 0);
	for (unsigned i = 0; i < THREADS; i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		assert_int_equal(wrong[i], 0);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		FAKE(numbers_and_places),
		FAKE(numbers_come_late),
		FAKE(table_full),
		FAKE(right_client),
		FAKE(unknown_client),
		FAKE(made_up_length),
		FAKE(ring_full),
		FAKE(ring_full_here),
		FAKE(notified),
		FAKE(waiters),
		FAKE(threads_come_and_go),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
