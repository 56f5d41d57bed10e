/* SPDX-License-Identifier: Apache-2.0 */
/* Request and response where messages are lost: asked again, answered again, served once. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>

#include <cmocka.h>

#include "fabric/hook/hooks.h"
#include "lock/lock.h"
#include "rpc/mail.h"

#define REQUESTS 60u
#define MANY     3000u /* more than a server remembers */
#define LONG_NS  30000000000ull

struct server {
	struct vb_ep *ep;
	struct vb_answers *answers;
	struct vb_task *task;
	unsigned served, came;
	bool forgets; /* the planted mistake: every copy of a request is served */
};

static void serve_body(void *arg)
{
	struct server *s = arg;
	struct vb_msg m;

	while (vb_ep_wait(s->ep, VB_FOREVER) != -ECANCELED) {
		while (vb_ep_recv(s->ep, &m) == 0) {
			struct vb_msg reply = {.len = sizeof(s->served)};

			s->came++;
			if (!s->forgets && vb_answers_repeat(s->answers, s->ep, &m))
				continue;
			s->served++;
			memcpy(reply.data, m.data, sizeof(unsigned));
			assert_int_equal(vb_rpc_reply(s->answers, s->ep, &m, &reply), 0);
		}
	}
	s->task = NULL;
}

struct world {
	struct vb_fabric *f;
	struct vb_ep *ep;
	struct vb_mail mail;
	struct server server;
};

static void world_open(struct world *w, double drop)
{
	struct vb_fault_params fault = {.drop_datagram = drop, .seed = 5};
	static const struct vb_task_params daemon = {.name = "server", .daemon = true};
	struct vb_fabric *shm;

	*w = (struct world){0};
	assert_int_equal(vb_fabric_open(&(struct vb_fabric_params){.nodes = 2,
								   .node_bytes = 1 << 20,
								   .endpoints = 16},
					&shm),
			 0);
	assert_int_equal(vb_hook_fault(shm, &fault, &w->f), 0);
	assert_int_equal(vb_ep_open(w->f, 0, &w->ep), 0);
	assert_int_equal(vb_ep_open(w->f, 1, &w->server.ep), 0);
	assert_int_equal(vb_answers_open(w->f, &w->server.answers), 0);
	vb_mail_init(&w->mail, w->ep);
	assert_int_equal(
		vb_task_spawn(w->ep->sched, serve_body, &w->server, &daemon, &w->server.task), 0);
}

static void world_close(struct world *w)
{
	vb_task_cancel(w->server.task);
	while (w->server.task != NULL)
		vb_task_yield();
	vb_answers_close(w->server.answers);
	vb_ep_close(w->server.ep);
	vb_ep_close(w->ep);
	vb_fabric_close(w->f);
}

/* Asks for so many answers; each is the one to its own question. */
static void ask(struct world *w, unsigned n)
{
	for (unsigned i = 0; i < n; i++) {
		struct vb_msg request = {.tag = 1, .len = sizeof(i)}, reply;
		unsigned answer;

		memcpy(request.data, &i, sizeof(i));
		assert_int_equal(vb_rpc_call(&w->mail, w->server.ep->self, &request, &reply,
					     vb_ep_now(w->ep) + LONG_NS),
				 0);
		memcpy(&answer, reply.data, sizeof(answer));
		assert_int_equal(answer, i);
	}
}

static void ask_all(struct world *w)
{
	ask(w, REQUESTS);
}

static void test_nothing_is_lost(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, 0);
	assert_null(w.server.answers);
	ask_all(&w);
	assert_int_equal(w.mail.resent, 0);
	assert_int_equal(w.server.served, REQUESTS);
	world_close(&w);
}

/* Of requests and answers, a good third is lost each. */
static void test_lost_datagrams(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, 0.35);
	assert_true(w.f->caps.flags & VB_CAP_DATAGRAM);
	ask_all(&w);
	assert_true(w.mail.resent > REQUESTS / 4);
	assert_true(w.server.came > REQUESTS);
	assert_int_equal(w.server.served, REQUESTS);
	world_close(&w);
}

/* The test above would notice a server that serves twice. */
static void test_forgetful_server_is_caught(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, 0.35);
	w.server.forgets = true;
	ask_all(&w);
	assert_true(w.server.served > REQUESTS);
	world_close(&w);
}

/* What is remembered where a new question would be is an answer to another one of the same client. */
static void test_more_than_are_remembered(void **state)
{
	struct world w;

	(void)state;
	world_open(&w, 1e-9);
	assert_non_null(w.server.answers);
	ask(&w, MANY);
	assert_int_equal(w.server.served, MANY);
	world_close(&w);
}

static void test_deadline(void **state)
{
	struct vb_msg request = {.tag = 1}, reply;
	struct world w;
	uint64_t until;

	(void)state;
	world_open(&w, 1.0);
	until = vb_ep_now(w.ep) + 30000000;
	assert_int_equal(vb_rpc_call(&w.mail, w.server.ep->self, &request, &reply, until),
			 -ETIMEDOUT);
	assert_true(vb_ep_now(w.ep) >= until);
	assert_true(w.mail.resent >= 1);
	assert_int_equal(w.server.came, 0);
	world_close(&w);
}

/* A lock whose server hears everything twice or not at all. */
static void try_lock(const char *name)
{
	struct vb_lock_space_params sp = {
		.lock = name, .locks = 4, .servers = 2, .lease_ns = LONG_NS};
	struct vb_lock_space *space;
	struct vb_lock_server *server[2];
	struct vb_lock_client *me, *other;
	struct world w;

	world_open(&w, 0.35);
	assert_int_equal(vb_lock_space_open(w.f, &sp, &space), 0);
	for (uint16_t n = 0; n < 2; n++)
		assert_int_equal(vb_lock_server_start(space, n, 0, 1, &server[n]), 0);
	assert_int_equal(vb_lock_client_open(space, 0, &me), 0);
	assert_int_equal(vb_lock_client_open(space, 1, &other), 0);
	for (unsigned i = 0; i < 30; i++) {
		struct vb_grant grant, none;
		uint64_t lock = i % 4;

		assert_int_equal(vb_lock_acquire(me, lock, VB_EXCLUSIVE, LONG_NS, &grant), 0);
		assert_int_equal(vb_lock_try(other, lock, VB_EXCLUSIVE, &none), -EAGAIN);
		assert_int_equal(vb_lock_release(me, &grant), 0);
	}
	vb_lock_client_close(other);
	vb_lock_client_close(me);
	for (unsigned n = 0; n < 2; n++)
		vb_lock_server_stop(server[n]);
	vb_lock_space_close(space);
	world_close(&w);
}

static void test_locks(void **state)
{
	(void)state;
	try_lock("rpc");
	try_lock("traditional");
}

/* ---- what is piled up ---- */

#define PILED 100u

static void send_word(struct world *w, uint16_t tag, uint64_t word)
{
	struct vb_msg m = {.subject = 7, .tag = tag, .len = sizeof(word)};

	memcpy(m.data, &word, sizeof(word));
	assert_int_equal(vb_send_wait(w->server.ep, w->ep->self, &m), 0);
	vb_mail_sort(&w->mail);
}

static void expect_piled(struct world *w, struct vb_box *box, uint64_t word)
{
	struct vb_piled p;

	assert_int_equal(vb_box_take_piled(box, &p), 0);
	assert_true(p.word == word && p.from == w->server.ep->self);
}

static void test_pile(void **state)
{
	struct vb_piled none;
	struct vb_box box;
	struct vb_msg m;
	struct world w;
	uint64_t taken = 0;

	world_open(&w, 0);
	vb_box_open(&w.mail, &box, 7);
	vb_box_pile_up(&box, 3);
	assert_int_equal(vb_box_take_piled(&box, &none), -EAGAIN);
	for (uint64_t i = 0; i < PILED; i++) {
		send_word(&w, 3, i);
		/* Of the other classes the last one stays, as ever. */
		send_word(&w, 1, i);
		if (i % 3 == 0)
			expect_piled(&w, &box, taken++);
		assert_int_equal(vb_box_piled(&box), i + 1 - taken);
	}
	assert_int_equal(vb_box_wait(&w.mail, &box, 1u << 3, 0), 0);
	while (taken < PILED)
		expect_piled(&w, &box, taken++);
	assert_int_equal(vb_box_take_piled(&box, &none), -EAGAIN);
	assert_int_equal(vb_box_wait(&w.mail, &box, 1u << 3, 0), -ETIMEDOUT);
	assert_int_equal(vb_box_take(&box, 1, &m), 0);
	assert_int_equal(m.data[0], PILED - 1);
	/* It can fill again, and be closed full. */
	send_word(&w, 3, 4711);
	assert_int_equal(vb_box_wait(&w.mail, &box, 1u << 3, 0), 0);
	vb_box_close(&box);
	assert_true(w.mail.dropped == 0);
	world_close(&w);
}

/* ---- who waits, and for what others find ---- */

static void open_box(struct world *w, struct vb_box *box)
{
	vb_box_open(&w->mail, box, 7);
}

static void send_one(struct world *w)
{
	struct vb_msg m = {.subject = 7, .tag = 1};

	assert_int_equal(vb_send_wait(w->server.ep, w->ep->self, &m), 0);
}

struct waiter {
	struct world *w;
	struct vb_box box;
	bool waits, done;
	int err;
};

static void wait_body(void *arg)
{
	struct waiter *me = arg;

	me->waits = true;
	me->err = vb_box_wait(&me->w->mail, &me->box, 1u << 1, vb_ep_now(me->w->ep) + LONG_NS);
	me->done = true;
}

/* Another task of the client takes the message out of the endpoint before the one that waits for it has been
 * told: it is told by that task. */
static void test_another_sorts(void **state)
{
	static const struct vb_task_params params = {.name = "waits"};
	struct waiter me = {0};
	struct vb_task *task;
	struct world w;

	(void)state;
	world_open(&w, 0);
	me.w = &w;
	open_box(&w, &me.box);
	assert_int_equal(vb_task_spawn(w.ep->sched, wait_body, &me, &params, &task), 0);
	while (!me.waits)
		vb_task_yield();
	send_one(&w);
	vb_mail_sort(&w.mail);
	assert_false(me.done);
	for (unsigned i = 0; i < 10 && !me.done; i++)
		vb_task_yield();
	if (!me.done) {
		vb_task_cancel(task);
		while (!me.done)
			vb_task_yield();
		fail_msg("the task that waits for a message which another has sorted was not told");
	}
	assert_int_equal(me.err, 0);
	vb_box_close(&me.box);
	world_close(&w);
}

static struct {
	struct vb_fabric_ops ops;
	const struct vb_fabric_ops *real;
	struct world *w;
	unsigned waits; /* that have ended */
} at_the_end;

/* The wait is over, and a message comes before its task looks. */
static void comes_at_the_end(struct vb_ep *ep, bool before)
{
	at_the_end.real->checkpoint(ep, before);
	if (before || ++at_the_end.waits != 1)
		return;
	send_one(at_the_end.w);
}

static void test_together_with_its_end(void **state)
{
	struct vb_box box;
	struct world w;

	(void)state;
	world_open(&w, 0);
	open_box(&w, &box);
	at_the_end.w = &w;
	at_the_end.waits = 0;
	at_the_end.real = w.ep->ops;
	at_the_end.ops = *w.ep->ops;
	at_the_end.ops.checkpoint = comes_at_the_end;
	w.ep->ops = &at_the_end.ops;
	assert_int_equal(vb_box_wait(&w.mail, &box, 1u << 1, vb_ep_now(w.ep) + 1000000), 0);
	assert_int_equal(at_the_end.waits, 1);
	w.ep->ops = at_the_end.real;
	vb_box_close(&box);
	world_close(&w);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_nothing_is_lost),
		cmocka_unit_test(test_lost_datagrams),
		cmocka_unit_test(test_forgetful_server_is_caught),
		cmocka_unit_test(test_more_than_are_remembered),
		cmocka_unit_test(test_deadline),
		cmocka_unit_test(test_locks),
		cmocka_unit_test(test_pile),
		cmocka_unit_test(test_another_sorts),
		cmocka_unit_test(test_together_with_its_end),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
