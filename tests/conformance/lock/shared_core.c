/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Two threads take one lock in turns, for a millisecond each, with the space's defaults.  Who waits
 * must leave its core to who may need it; and no lease may be so short that a holder who was not run
 * for a moment loses the lock, after which the others wait for leases.
 *
 * Nothing here bounds a time, which is the machine's: the kernel says how long a thread ran, and a
 * cycle that took so long that its lease may be over is no evidence.
 */
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/clock.h"
#include "lock/lock.h"

#define MS      1000000ull
#define OTHERS  4
#define CYCLES  100
#define HOLD_US 1000
/* Of processor time, for each cycle.  Who sleeps takes 20 to 100, under the thread sanitizer 230; who spins
 * through the other's hold takes 900 to 1400. */
#define RUN_US 500
/* Half of a default lease: none ends in a shorter cycle, and a recovery takes four of these. */
#define LONG_NS (100 * MS)

struct pair {
	struct vb_lock_space *space;
	unsigned others; /* busy on the core that the two share; none: they share nothing */
	bool over;       /* atomic */
	pthread_barrier_t begin;
};

struct member {
	struct pair *pair;
	pthread_t thread;
	int err;
	unsigned lost;  /* in a cycle shorter than LONG_NS */
	uint64_t longs; /* of LONG_NS, in all cycles */
	uint64_t recoveries, run_ns;
};

static uint64_t run_ns(void)
{
	struct rusage u;

	if (getrusage(RUSAGE_THREAD, &u) != 0)
		return UINT64_MAX;
	return (uint64_t)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) * 1000 * MS +
	       (uint64_t)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) * 1000;
}

static int one_cycle(struct member *m, struct vb_lock_client *me)
{
	uint64_t from = vb_clock_ns();
	struct vb_grant g;
	int err = vb_lock_acquire(me, 0, VB_EXCLUSIVE, VB_FOREVER_NS, &g);
	uint64_t longs;

	if (err)
		return err;
	usleep(HOLD_US);
	err = vb_lock_release(me, &g);
	longs = (vb_clock_ns() - from) / LONG_NS;
	m->longs += longs;
	m->lost += err == -VB_ELOST && longs == 0;
	return err == -VB_ELOST ? 0 : err;
}

/* The first one that this process may have. */
static int stay_on_one_core(void)
{
	cpu_set_t all, one;
	int cpu = 0;

	if (sched_getaffinity(0, sizeof(all), &all) != 0)
		return -errno;
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	return sched_setaffinity(0, sizeof(one), &one) == 0 ? 0 : -errno;
}

static void *member_body(void *arg)
{
	struct member *m = arg;
	struct vb_lock_client *me;
	uint64_t from;

	m->err = m->pair->others == 0 ? 0 : stay_on_one_core();
	if (m->err == 0)
		m->err = vb_lock_client_open(m->pair->space, 0, &me);
	pthread_barrier_wait(&m->pair->begin);
	from = run_ns();
	for (unsigned i = 0; i < CYCLES && m->err == 0; i++)
		m->err = one_cycle(m, me);
	m->run_ns = run_ns() - from;
	if (m->err == 0) {
		m->recoveries = me->recoveries;
		vb_lock_client_close(me);
	}
	return NULL;
}

static void *other_body(void *arg)
{
	struct pair *p = arg;

	(void)stay_on_one_core();
	while (!__atomic_load_n(&p->over, __ATOMIC_RELAXED))
		vb_cpu_relax();
	return NULL;
}

static void play(struct pair *p, struct member member[2])
{
	pthread_t other[OTHERS];

	assert_int_equal(pthread_barrier_init(&p->begin, NULL, 2), 0);
	for (unsigned i = 0; i < p->others; i++)
		assert_int_equal(pthread_create(&other[i], NULL, other_body, p), 0);
	for (unsigned i = 0; i < 2; i++) {
		member[i] = (struct member){.pair = p};
		assert_int_equal(pthread_create(&member[i].thread, NULL, member_body, &member[i]),
				 0);
	}
	for (unsigned i = 0; i < 2; i++)
		pthread_join(member[i].thread, NULL);
	__atomic_store_n(&p->over, true, __ATOMIC_RELAXED);
	for (unsigned i = 0; i < p->others; i++)
		pthread_join(other[i], NULL);
	pthread_barrier_destroy(&p->begin);
}

struct sums {
	uint64_t run_us, recoveries, longs;
	unsigned lost;
};

static struct sums in_turns(const char *lock, unsigned others)
{
	const struct vb_fabric_params fp = {.fabric = "shm", .node_bytes = 1 << 20};
	const struct vb_lock_space_params sp = {.lock = lock, .locks = 1};
	struct pair p = {.others = others};
	struct member member[2];
	struct sums s = {0};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&fp, &f), 0);
	assert_int_equal(vb_lock_space_open(f, &sp, &p.space), 0);
	play(&p, member);
	for (unsigned i = 0; i < 2; i++) {
		assert_int_equal(member[i].err, 0);
		s.run_us += member[i].run_ns / 1000;
		s.recoveries += member[i].recoveries;
		s.lost += member[i].lost;
		s.longs += member[i].longs;
	}
	vb_lock_space_close(p.space);
	vb_fabric_close(f);
	s.run_us /= 2 * CYCLES;
	print_message("%s: ran %llu us a cycle; %u lost, %llu recoveries, long cycles %llu times "
		      "%llu ms\n",
		      lock, (unsigned long long)s.run_us, s.lost, (unsigned long long)s.recoveries,
		      (unsigned long long)s.longs, LONG_NS / MS);
	return s;
}

static const char *const locks[] = {"dslr", "dslr-update"};

static void test_waiting_costs_no_core(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++)
		assert_in_range(in_turns(locks[i], 0).run_us, 0, RUN_US);
}

static void test_no_lease_is_waited_for(void **state)
{
	(void)state;
	for (unsigned i = 0; i < 2; i++) {
		struct sums s = in_turns(locks[i], OTHERS);

		assert_int_equal(s.lost, 0);
		assert_in_range(4 * s.recoveries, 0, s.longs);
	}
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_waiting_costs_no_core),
		cmocka_unit_test(test_no_lease_is_waited_for),
	};

	return cmocka_run_group_tests_name("shared core", tests, NULL, NULL);
}
