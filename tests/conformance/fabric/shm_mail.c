/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A thread with many endpoints on shm: who has mail is noted, and nothing is waited for in vain.  The
 * looks at all rings, which find what was not noted, are turned off but where they are the matter.
 */
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "base/clock.h"
#include "fabric/shm/inner.h"

#define EPS     100u
#define FEW     10u
#define MS      1000000ull
#define LONG_NS 20000000000ull

#define must(call) assert_int_equal(call, 0)

static struct {
	struct vb_fabric *f;
	struct shm_fabric *shm;
	struct vb_ep *ep[EPS];
	unsigned n;
} w;

static void open_many(unsigned n, uint64_t look_all_ns)
{
	const struct vb_fabric_params p = {
		.fabric = "shm", .node_bytes = 1 << 16, .endpoints = 4 * EPS};

	shm_look_all_ns = look_all_ns;
	must(vb_fabric_open(&p, &w.f));
	w.shm = shm_of(w.f);
	for (w.n = 0; w.n < n; w.n++)
		must(vb_ep_open(w.f, 0, &w.ep[w.n]));
}

static void close_many(void)
{
	while (w.n > 0)
		vb_ep_close(w.ep[--w.n]);
	must(vb_fabric_close(w.f));
	shm_look_all_ns = 1000 * MS;
}

static uint64_t *word_of(unsigned i)
{
	return &w.shm->mail[((struct shm_ep *)w.ep[i])->slot / 64];
}

static bool is_noted(unsigned i)
{
	return __atomic_load_n(word_of(i), __ATOMIC_SEQ_CST) >>
		       ((struct shm_ep *)w.ep[i])->slot % 64 &
	       1;
}

static unsigned noted(void)
{
	unsigned n = 0;

	for (unsigned i = 0; i < w.n; i++)
		n += is_noted(i);
	return n;
}

/* Until the thread has been idle, and has looked. */
static void look(void)
{
	must(vb_ep_sleep(w.ep[0], MS / 5));
}

/* The same, and that many are noted: a thread that is given no core for so long wakes without a look. */
static void look_until(unsigned n)
{
	uint64_t until = vb_clock_ns() + LONG_NS;

	do
		look();
	while (noted() != n && vb_clock_ns() < until);
	assert_int_equal(noted(), n);
}

static void send(unsigned from, unsigned to)
{
	must(vb_send_wait(w.ep[from], w.ep[to]->self, &(struct vb_msg){.tag = 9}));
}

static int take(unsigned i)
{
	struct vb_msg m;

	return vb_ep_recv(w.ep[i], &m);
}

struct waits {
	unsigned at;
	int err;
	bool over;
};

static void wait_body(void *arg)
{
	struct waits *a = arg;

	a->err = vb_ep_wait(w.ep[a->at], VB_FOREVER);
	a->over = true;
}

static void begin_to_wait(struct waits *a, unsigned at)
{
	*a = (struct waits){.at = at, .err = 1};
	must(vb_task_spawn(vb_sched_self(), wait_body, a, NULL, NULL));
	must(vb_ep_sleep(w.ep[0], MS / 5));
	assert_false(a->over);
}

static bool is_woken(const struct waits *a, uint64_t ns)
{
	uint64_t until = vb_clock_ns() + ns;

	while (!a->over && vb_clock_ns() < until)
		must(vb_ep_sleep(w.ep[0], MS / 5));
	return a->over;
}

/* ---- what is noted ---- */

static void test_few(void **state)
{
	struct waits a;

	(void)state;
	open_many(FEW, UINT64_MAX);
	begin_to_wait(&a, 3);
	send(0, 3);
	assert_int_equal(noted(), 0);
	assert_true(is_woken(&a, LONG_NS));
	must(take(3));
	close_many();
}

static void test_noted(void **state)
{
	struct waits a;

	(void)state;
	open_many(EPS, UINT64_MAX);
	look_until(0);
	begin_to_wait(&a, 70);
	send(0, 70);
	assert_true(is_noted(70));
	assert_int_equal(noted(), 1);
	assert_true(is_woken(&a, LONG_NS));
	must(a.err);
	must(take(70));
	look_until(0);
	close_many();
}

/* Who was opened before there were many, and had something already. */
static void test_noted_before(void **state)
{
	struct waits a;

	(void)state;
	open_many(FEW, UINT64_MAX);
	send(0, 3);
	for (; w.n < EPS; w.n++)
		must(vb_ep_open(w.f, 0, &w.ep[w.n]));
	look_until(1);
	a = (struct waits){.at = 3, .err = 1};
	must(vb_task_spawn(vb_sched_self(), wait_body, &a, NULL, NULL));
	assert_true(is_woken(&a, LONG_NS));
	must(take(3));
	close_many();
}

/* Nobody waits when it comes, or not all of it is taken. */
static void test_noted_until_taken(void **state)
{
	struct waits a;

	(void)state;
	open_many(EPS, UINT64_MAX);
	look();
	send(0, 70);
	send(1, 70);
	look();
	assert_true(is_noted(70));
	must(take(70));
	look();
	assert_true(is_noted(70));
	a = (struct waits){.at = 70, .err = 1};
	must(vb_task_spawn(vb_sched_self(), wait_body, &a, NULL, NULL));
	assert_true(is_woken(&a, LONG_NS));
	must(take(70));
	look();
	assert_false(is_noted(70));
	close_many();
}

/* What comes behind a sender who is half-way in is noted while he is. */
static void test_half_way(void **state)
{
	const struct vb_msg m = {.tag = 7};
	struct shm_place place;
	struct waits a;

	(void)state;
	open_many(EPS, UINT64_MAX);
	look();
	must(shm_ring_reserve((struct shm_ep *)w.ep[1], w.ep[70]->self, &place));
	begin_to_wait(&a, 70);
	send(0, 70);
	look();
	look();
	assert_true(is_noted(70));
	assert_false(a.over && take(70) == 0);
	shm_ring_publish((struct shm_ep *)w.ep[1], &place, &m);
	assert_true(is_woken(&a, LONG_NS));
	must(take(70));
	must(take(70));
	close_many();
}

/* As of a sender who was killed behind his message. */
static void test_not_noted(void **state)
{
	struct waits a;

	(void)state;
	open_many(EPS, UINT64_MAX);
	look();
	begin_to_wait(&a, 70);
	send(0, 70);
	__atomic_store_n(word_of(70), 0, __ATOMIC_SEQ_CST);
	assert_false(is_woken(&a, 5 * MS));
	shm_look_all_ns = 10 * MS;
	assert_true(is_woken(&a, LONG_NS));
	must(take(70));
	close_many();
}

/* Who closes is not looked at any more, and whoever has the place next begins without mail. */
static void test_closed(void **state)
{
	(void)state;
	open_many(EPS, UINT64_MAX);
	look();
	send(0, 70);
	assert_true(is_noted(70));
	vb_ep_close(w.ep[70]);
	w.ep[70] = w.ep[--w.n];
	look();
	must(vb_ep_open(w.f, 0, &w.ep[w.n++]));
	look();
	assert_int_equal(take(w.n - 1), -EAGAIN);
	send(0, w.n - 1);
	assert_true(is_noted(w.n - 1));
	must(take(w.n - 1));
	close_many();
}

/* ---- a message comes while the bit of the one before is cleared ---- */

#define RACE_MOST 50000u
#define RACE_NS   (300 * MS)

static struct {
	unsigned sent, taken;
	bool end;
} race;

static bool take_it(struct shm_ep *e, bool *stuck)
{
	struct vb_msg m;

	(void)stuck;
	if (vb_ep_recv(&e->ep, &m) != 0)
		return false;
	__atomic_fetch_add(&race.taken, 1, __ATOMIC_SEQ_CST);
	return true;
}

/* The next one as soon as the last is taken. */
static void *race_thread(void *arg)
{
	uint64_t until = vb_clock_ns() + RACE_NS;
	struct vb_ep *ep;

	(void)arg;
	must(vb_ep_open(w.f, 0, &ep));
	while (race.sent < RACE_MOST && vb_clock_ns() < until) {
		must(vb_send_wait(ep, w.ep[70]->self, &(struct vb_msg){.tag = 9}));
		race.sent++;
		while (__atomic_load_n(&race.taken, __ATOMIC_SEQ_CST) < race.sent &&
		       vb_clock_ns() < until + LONG_NS)
			sched_yield();
	}
	vb_ep_close(ep);
	__atomic_store_n(&race.end, true, __ATOMIC_SEQ_CST);
	return NULL;
}

static void test_race(void **state)
{
	pthread_t other;
	bool stuck = false;

	(void)state;
	memset(&race, 0, sizeof(race));
	open_many(EPS, UINT64_MAX);
	look();
	must(pthread_create(&other, NULL, race_thread, NULL));
	while (!__atomic_load_n(&race.end, __ATOMIC_SEQ_CST))
		if (!shm_mail_look(((struct shm_ep *)w.ep[70])->link, take_it, &stuck))
			sched_yield();
	pthread_join(other, NULL);
	assert_true(race.sent > 0);
	assert_int_equal(race.taken, race.sent);
	close_many();
}

/* ---- at once from two threads ---- */

#define ASKERS 8u
#define ROUNDS 6u

static struct {
	vb_peer peer[EPS];
	unsigned ready, done;
	bool end;
} echo;

static void echo_body(void *arg)
{
	struct vb_ep *ep = arg;
	struct vb_msg m;

	while (!echo.end) {
		if (vb_ep_recv(ep, &m) == 0)
			must(vb_send_wait(ep, m.from, &m));
		else
			(void)vb_ep_wait(ep, vb_ep_now(ep) + 100 * MS);
	}
}

static void *echo_thread(void *arg)
{
	struct vb_ep *ep[EPS];

	(void)arg;
	for (unsigned i = 0; i < EPS; i++) {
		must(vb_ep_open(w.f, 0, &ep[i]));
		echo.peer[i] = ep[i]->self;
		must(vb_task_spawn(vb_sched_self(), echo_body, ep[i], NULL, NULL));
	}
	__atomic_store_n(&echo.ready, 1, __ATOMIC_SEQ_CST);
	while (__atomic_load_n(&echo.done, __ATOMIC_SEQ_CST) < ASKERS)
		must(vb_ep_sleep(ep[0], 20 * MS));
	echo.end = true;
	must(vb_ep_sleep(ep[0], 300 * MS));
	for (unsigned i = 0; i < EPS; i++)
		vb_ep_close(ep[i]);
	return NULL;
}

static void ask_body(void *arg)
{
	unsigned me = (unsigned)(uintptr_t)arg;
	struct vb_msg m;

	for (unsigned i = 0; i < ROUNDS; i++) {
		unsigned from = me + ASKERS * (i % (EPS / ASKERS));
		uint64_t until = vb_clock_ns() + LONG_NS;

		must(vb_send_wait(w.ep[from], echo.peer[(me * 13 + i * 7) % EPS],
				  &(struct vb_msg){.tag = 9, .imm = i}));
		while (vb_ep_recv(w.ep[from], &m) != 0) {
			assert_true(vb_clock_ns() < until);
			(void)vb_ep_wait(w.ep[from], vb_ep_now(w.ep[from]) + LONG_NS);
		}
		assert_int_equal(m.imm, i);
	}
	__atomic_fetch_add(&echo.done, 1, __ATOMIC_SEQ_CST);
}

static void test_two_threads(void **state)
{
	pthread_t other;

	(void)state;
	memset(&echo, 0, sizeof(echo));
	open_many(EPS, UINT64_MAX);
	must(pthread_create(&other, NULL, echo_thread, NULL));
	while (!__atomic_load_n(&echo.ready, __ATOMIC_SEQ_CST))
		must(vb_ep_sleep(w.ep[0], 20 * MS));
	for (unsigned i = 0; i < ASKERS; i++)
		must(vb_task_spawn(vb_sched_self(), ask_body, (void *)(uintptr_t)i, NULL, NULL));
	while (__atomic_load_n(&echo.done, __ATOMIC_SEQ_CST) < ASKERS)
		must(vb_ep_sleep(w.ep[0], 20 * MS));
	pthread_join(other, NULL);
	close_many();
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_few),          cmocka_unit_test(test_noted),
		cmocka_unit_test(test_noted_before), cmocka_unit_test(test_noted_until_taken),
		cmocka_unit_test(test_half_way),     cmocka_unit_test(test_not_noted),
		cmocka_unit_test(test_closed),       cmocka_unit_test(test_race),
		cmocka_unit_test(test_two_threads),
	};

	return cmocka_run_group_tests_name("shm: who has mail", tests, NULL, NULL);
}
