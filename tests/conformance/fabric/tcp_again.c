/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A connection between two processes breaks with answers under way, and comes again: what was executed is told,
 * and what was not; unknown is what nobody is there to tell.
 */
#include "crowd.h"

#include "fabric/tcp/inner.h"

/* No other thread looks: what has come is not read before the test says so. */
#define PATIENT "helper=0,bound=10s,silence=25s"
#define HASTY   "helper=0,bound=2s,silence=25s,retry=100ms"
#define HASTE   2100000000ull /* relink_ns of it */
#define LONG    (2 * AM_KEPT_EACH)
/* A second message to a host that does not answer is collected, a third waits. */
#define NARROW "helper=0,bound=4s,silence=25s,retry=10ms,window=1,queue=1"

struct way {
	struct crowd *c;
	struct net_fabric *f;
	struct am_host *h;
};

static struct way way_to(struct crowd *c)
{
	struct net_fabric *f = net_of(c->f);

	return (struct way){c, f, &am_of(f)->host[1]};
}

/* The server shows its word. */
static void serve(struct crowd *c)
{
	uint64_t *word = vb_local(c->f, c->a[1], 8);
	uint64_t until = crowd_now() + CROWD_WAIT_NS;

	while (__atomic_load_n(&c->page->step, __ATOMIC_SEQ_CST) == 0) {
		crowd_must(crowd_now() < until);
		__atomic_store_n(&c->page->computing,
				 (uint32_t)__atomic_load_n(word, __ATOMIC_SEQ_CST),
				 __ATOMIC_SEQ_CST);
		crowd_must(vb_ep_sleep(c->ep, 100000) == 0);
	}
}

/* Without a look of ours. */
static void await_word(struct way *w, uint32_t word)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS;

	while (__atomic_load_n(&w->c->page->computing, __ATOMIC_SEQ_CST) != word) {
		crowd_must(crowd_now() < until);
		(void)usleep(100);
	}
}

static struct tcp_conn *conn(struct way *w)
{
	struct tcp_conn *c = w->h->via;

	crowd_must(c != NULL && w->h->state == AM_UP);
	return c;
}

/* What has come is lost, and the connection with it. */
static void cut(struct way *w)
{
	char lost[4096];

	pthread_mutex_lock(&w->f->engine);
	while (recv(conn(w)->fd, lost, sizeof(lost), MSG_DONTWAIT) > 0)
		;
	am_failed(w->h, "the test has cut it");
	am_tend(am_of(w->f));
	crowd_must(w->h->state == AM_DOWN);
	pthread_mutex_unlock(&w->f->engine);
}

struct add {
	struct vb_verb v;
	struct vb_batch b;
};

static void post(struct way *w, struct add *a)
{
	a->v = (struct vb_verb){
		.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = w->c->a[1], .compare.lo = 1};
	a->b = (struct vb_batch){.verbs = &a->v, .n = 1};
	crowd_must(vb_post(w->c->ep, &a->b) == 1);
}

static void ends(struct way *w, struct add *a, int status)
{
	crowd_must(vb_wait(w->c->ep, &a->b) == status);
	crowd_must(a->v.status == status);
}

static uint64_t word_at_last(struct way *w)
{
	uint64_t until = crowd_now() + CROWD_WAIT_NS, word;

	while (vb_read64(w->c->ep, w->c->a[1], &word) != 0) {
		crowd_must(crowd_now() < until);
		crowd_must(vb_ep_sleep(w->c->ep, 1000000) == 0);
	}
	return word;
}

/* Two are executed, the third is not; and the same again over the connection that has come. */
static void told_driver(struct crowd *c)
{
	struct way w = way_to(c);

	for (uint32_t round = 0; round < 3; round++) {
		struct add a[3];

		for (unsigned i = 0; i < 2; i++) {
			post(&w, &a[i]);
			await_word(&w, 2 * round + i + 1);
		}
		crowd_must(shutdown(conn(&w)->fd, SHUT_WR) == 0);
		post(&w, &a[2]);
		cut(&w);
		for (unsigned i = 0; i < 2; i++) {
			ends(&w, &a[i], 0);
			crowd_must(a[i].v.old.lo == 2 * round + i);
		}
		ends(&w, &a[2], -VB_EPEERGONE);
		crowd_must(word_at_last(&w) == 2 * round + 2);
	}
	crowd_step(c, 1);
}

static void test_told(void **state)
{
	const crowd_body bodies[] = {told_driver, serve};

	crowd_end(crowd_run("tcp", PATIENT, 2, bodies, CROWD_MAX));
}

/* The first that is sent over a connection: its owner has executed nothing of that. */
static void first_driver(struct crowd *c)
{
	struct way w = way_to(c);
	struct add a;

	for (uint32_t round = 0; round < 3; round++) {
		uint32_t epoch = w.h->epoch;

		crowd_must(shutdown(conn(&w)->fd, SHUT_WR) == 0);
		post(&w, &a);
		cut(&w);
		ends(&w, &a, -VB_EPEERGONE);
		crowd_must(w.h->epoch > epoch);
	}
	crowd_must(word_at_last(&w) == 0);
	crowd_step(c, 1);
}

static void test_first(void **state)
{
	const crowd_body bodies[] = {first_driver, serve};

	crowd_end(crowd_run("tcp", PATIENT, 2, bodies, CROWD_MAX));
}

/* The next connection breaks, too, before it has said anything. */
static void twice_driver(struct crowd *c)
{
	struct way w = way_to(c);
	uint64_t until = crowd_now() + CROWD_WAIT_NS;
	struct add a;

	post(&w, &a);
	await_word(&w, 1);
	cut(&w);
	for (unsigned i = 0; i < 2; i++) {
		pthread_mutex_lock(&w.f->engine);
		while (w.h->state != AM_GREETING) {
			crowd_must(crowd_now() < until && w.h->state == AM_DOWN);
			am_look(am_of(w.f));
		}
		am_flush(w.f); /* its HELLO arrives */
		am_failed(w.h, "the test has cut it again");
		am_tend(am_of(w.f));
		pthread_mutex_unlock(&w.f->engine);
		crowd_must(a.b.pending == 1);
	}
	ends(&w, &a, 0);
	crowd_must(a.v.old.lo == 0 && word_at_last(&w) == 1);
	crowd_step(c, 1);
}

static void test_twice(void **state)
{
	const crowd_body bodies[] = {twice_driver, serve};

	crowd_end(crowd_run("tcp", PATIENT, 2, bodies, CROWD_MAX));
}

/* An answer that is too long is not kept, and those beside it in other messages are. */
static void long_driver(struct crowd *c)
{
	struct way w = way_to(c);
	static uint8_t buf[LONG];
	struct vb_verb v[2] = {
		{.op = VB_OP_READ, .flags = VB_SIGNALLED, .addr = c->a[1], .buf = buf, .len = LONG},
		{.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = c->a[1], .compare.lo = 1}};
	struct vb_batch b = {.verbs = v, .n = 2};
	struct add a;

	crowd_must(vb_post(c->ep, &b) == 1);
	await_word(&w, 1);
	post(&w, &a);
	await_word(&w, 2);
	cut(&w);
	crowd_must(vb_wait(c->ep, &b) == -VB_EUNKNOWN);
	crowd_must(v[0].status == -VB_EUNKNOWN && v[1].status == -VB_EUNKNOWN);
	ends(&w, &a, 0);
	crowd_must(a.v.old.lo == 1 && word_at_last(&w) == 2);
	crowd_step(c, 1);
}

static void test_long(void **state)
{
	const crowd_body bodies[] = {long_driver, serve};

	crowd_end(crowd_run("tcp", PATIENT, 2, bodies, CROWD_MAX));
}

/* It does not come in time: unknown, then; and what it says when it comes all the same is nobody's. */
static void late_driver(struct crowd *c)
{
	struct way w = way_to(c);
	struct add a, next;
	uint64_t begin;

	post(&w, &a);
	await_word(&w, 1);
	crowd_stop(c, 1);
	begin = crowd_now();
	cut(&w);
	ends(&w, &a, -VB_EUNKNOWN);
	crowd_must(crowd_now() - begin >= HASTE);
	a.v.status = 1;
	crowd_continue(c, 1);
	crowd_must(word_at_last(&w) == 1);
	crowd_must(a.v.status == 1);
	post(&w, &next);
	ends(&w, &next, 0);
	crowd_must(next.v.old.lo == 1);
	crowd_step(c, 1);
}

static void test_late(void **state)
{
	const crowd_body bodies[] = {late_driver, serve};

	crowd_end(crowd_run("tcp", HASTY, 2, bodies, CROWD_MAX));
}

static void gone_driver(struct crowd *c)
{
	struct way w = way_to(c);
	struct add a;

	post(&w, &a);
	await_word(&w, 1);
	crowd_must(kill(c->page->pid[1], SIGKILL) == 0);
	cut(&w);
	ends(&w, &a, -VB_EUNKNOWN);
}

static void test_gone(void **state)
{
	const crowd_body bodies[] = {gone_driver, serve};

	crowd_end(crowd_run("tcp", PATIENT, 2, bodies, 1));
}

/* While a batch waits for room at another host the connection to the first breaks, and comes again: behind what it
 * took with it the rest to that host does not happen over the new one. */
static void midst_driver(struct crowd *c)
{
	struct way w = way_to(c);
	static uint8_t buf[AM_BODY_SOFT];
	struct vb_verb full[2], v[3];
	struct vb_batch before[2];
	uint32_t epoch = w.h->epoch;

	crowd_stop(c, 2);
	for (unsigned i = 0; i < 2; i++) {
		full[i] = (struct vb_verb){.op = VB_OP_WRITE,
					   .flags = VB_SIGNALLED,
					   .addr = c->a[2],
					   .buf = buf,
					   .len = sizeof(buf)};
		before[i] = (struct vb_batch){.verbs = &full[i], .n = 1};
		crowd_must(vb_post(c->ep, &before[i]) == 1);
	}
	crowd_must(shutdown(conn(&w)->fd, SHUT_RDWR) == 0);
	v[0] = v[2] = (struct vb_verb){
		.op = VB_OP_FAA64, .flags = VB_SIGNALLED, .addr = c->a[1], .compare.lo = 1};
	v[1] = full[1];
	crowd_must(vb_post_wait(c->ep, v, 3) != 0);
	crowd_must(v[0].status == -VB_EPEERGONE && v[1].status == -VB_EUNKNOWN);
	crowd_must(w.h->state == AM_UP && w.h->epoch != epoch); /* it has come again meanwhile */
	crowd_must(v[2].status == -VB_EPEERGONE);
	crowd_must(word_at_last(&w) == 0);
	crowd_continue(c, 2);
	for (unsigned i = 0; i < 2; i++)
		(void)vb_wait(c->ep, &before[i]);
	crowd_step(c, 1);
}

static void other_server(struct crowd *c)
{
	crowd_await(c, 1);
}

static void test_midst(void **state)
{
	const crowd_body bodies[] = {midst_driver, serve, other_server};

	crowd_end(crowd_run("tcp", NARROW, 3, bodies, CROWD_MAX));
}

/* Who awaits answers of what never was, or was somebody else's, is told that nobody knows. */
static void claims_driver(struct crowd *c)
{
	struct am_host h = {.wire = am_of(net_of(c->f))};
	const struct am_header answer = {.epoch = 3, .number = 1};

	am_past_greeted(&h, 2, 1);
	crowd_must(am_past_next(&h) == 0);
	am_past_greeted(&h, 3, 0);
	crowd_must(am_past_next(&h) == 0);
	am_past_keep(&h, &answer, NULL);
	am_past_greeted(&h, 4, 2);
	crowd_must(am_past_next(&h) == 0);
	am_past_greeted(&h, 5, 3); /* that is over */
	crowd_must(am_past_next(&h) == 0);
	am_past_greeted(&h, 6, 5);
	crowd_must(am_past_next(&h) == 1);
	am_past_greeted(&h, 7, 5);
	crowd_must(am_past_next(&h) == 1);
	am_past_greeted(&h, 8, 6);
	crowd_must(am_past_next(&h) == 0);
	am_past_free(&h);
	crowd_step(c, 1);
}

static void test_claims(void **state)
{
	const crowd_body bodies[] = {claims_driver, serve};

	crowd_end(crowd_run("tcp", PATIENT, 2, bodies, CROWD_MAX));
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_told),  cmocka_unit_test(test_first),
		cmocka_unit_test(test_twice), cmocka_unit_test(test_long),
		cmocka_unit_test(test_late),  cmocka_unit_test(test_gone),
		cmocka_unit_test(test_midst), cmocka_unit_test(test_claims),
	};

	return cmocka_run_group_tests_name("fabric tcp: again", tests, NULL, NULL);
}
