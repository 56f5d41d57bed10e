/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machine's monotonic clock in ns, the same for all processes of the machine.
 *
 * Where the kernel itself trusts the CPU's counter, the clock is that counter, whose bare read is a
 * third of what clock_gettime costs.  On x86-64 that is the time stamp counter, if the clocksource is
 * tsc and the CPU says that it ticks at one rate and never stops; on arm64 the virtual counter
 * (cntvct_el0), if the clocksource is arch_sys_counter: it is architected to do both.  Elsewhere the
 * clock is clock_gettime(CLOCK_MONOTONIC).
 *
 * What is promised is an order (below), not a resolution: times that are closer than a tick of the
 * counter are equal.  A tick is less than a ns on x86-64; on arm64 it is what cntfrq_el0 says, tens of ns
 * on many CPUs.
 *
 * Two reads, because a CPU does not read a counter where the program says.  A bare rdtsc runs as
 * soon as it is fetched: while a locked instruction in front of it still waits for its cache line,
 * and another core may take and give back a whole lock before that line comes.  An EPYC has been
 * seen to read 600 ns too early.
 *
 *   vb_clock_ns()        In order.  Loads and atomics before it in the program have taken effect
 *                        when it reads, those after it take effect later.  So, for two reads a and
 *                        b on any two cores: if what follows a took effect before what precedes
 *                        b, then a <= b.
 *                        For every time that is compared with what another core did: grants and
 *                        releases, audit, histories, "since when have I seen it so", whether a
 *                        lease is over.
 *                        A plain store before it may still stand in the store buffer; who stamps
 *                        the end of what may have ended with one puts vb_clock_drain() in front.
 *
 *   vb_clock_early_ns()  A lower bound of the time at this place: not later than the moment at
 *                        which any store or atomic after it takes effect; earlier than its place
 *                        by at most what one instruction in flight takes (about a microsecond; an
 *                        interrupt or page fault in between throws the read away and repeats it).
 *                        Nothing is said of loads after it.
 *                        For what may only err towards early: from when a lease is counted whose
 *                        verb is an atomic that follows; the look of not_after, where the verb
 *                        waits for its outcome (the time between look and effect, verb_bound_ns,
 *                        is large beside it); and wherever nothing is compared:
 *                        pauses, timers, statistics.
 *
 * Why, on x86-64.  lfence does not begin before all instructions before it are done, nor does one
 * after it begin before it is (Intel SDM 2B LFENCE; AMD APM 3 LFENCE, where the kernel switches it
 * so for all CPUs with a choice, as it does for its own vDSO).  A locked instruction is done when
 * others can see it, a store when it is in the store buffer.  The fence behind the counter keeps
 * loads, which may run ahead of it, behind it.  Stores and locked instructions need none there: the
 * CPU lets nobody see them before what is older than they is done, the read of the counter among
 * it.  All reads are barriers for the compiler.
 *
 * On arm64.  A barrier orders memory, and the counter is none.  dsb waits until the loads, atomics and stores
 * before it are done (so the store buffer, too, is empty); isb then keeps the read of the counter, which
 * else is done when it is fetched, behind the dsb.  To keep what follows behind the read there is a load
 * whose address depends on what was read, and dmb ishld, behind which no load, store or atomic is done
 * before that load: what Linux has in its vDSO.  The lower bound is the same without dsb and isb.
 *
 * Where the counter is not trusted, clock_gettime reads it (a virtual machine's kvm-clock does, too) or
 * another one.  On x86-64 it has the fence in front of its counter itself (lfence or rdtscp in the vDSO,
 * a system call elsewhere), so that the lower bound is a bare call, and the read in order lacks only the
 * fence behind.  On other CPUs a full barrier stands before the call (the vDSO of arm64 has the isb and
 * what keeps the rest behind), and both reads are the same.
 *
 * Cycles on an AMD EPYC (family 25, model 17) between two uncontended CAS (`build/bench/bench_clock`),
 * beside 11 for the two without a read: early 25, in order 84, drained 111; clock_gettime 74.
 *
 * The counter's scale is calibrated once per process against CLOCK_MONOTONIC, to within 20 parts
 * per million of its rate at that moment, or the counter is not used; NTP may slew CLOCK_MONOTONIC
 * away from it later, by at most 500.  Processes that compare times therefore agree on one
 * calibration: one calibrates, the others adopt it.
 */
#ifndef VB_BASE_CLOCK_H
#define VB_BASE_CLOCK_H

#include <stdint.h>
#include <time.h>

struct vb_clock {
	uint64_t tsc_base, ns_base;
	uint32_t mult; /* ns = (tsc * mult) >> 24 */
	uint32_t use_tsc;
};

/* Scales of counters from 16 GHz to 8 MHz: another is not used, nor taken over from a segment. */
#define VB_CLOCK_MULT_MIN (1u << 20)
#define VB_CLOCK_MULT_MAX (1u << 31)

extern struct vb_clock vb_clock;

void vb_clock_init(void); /* idempotent; called by vb_fabric_open and the scheduler */
/*
 * From now on a fabric or a cluster goes by the clock, which nobody changes until vb_clock_let has been
 * called as often.  `as`: by another process's calibration, which is taken over, so that times of both
 * compare; NULL: by ours, whichever that is.  -EBUSY, and nothing is held: `as` is another one than
 * ours, and something else goes by ours: its leases would be off, and its threads read the clock.
 */
int vb_clock_hold(const struct vb_clock *as);
void vb_clock_let(void);

static inline uint64_t vb_clock_gettime_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

/* When it is done, the stores before it are where others see them. */
static inline void vb_clock_drain(void)
{
#if defined(__x86_64__)
	__asm__ __volatile__("mfence" : : : "memory");
#elif defined(__aarch64__)
	/* Not dmb, which orders memory alone: the counter has to wait, too. */
	__asm__ __volatile__("dsb ish" : : : "memory");
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

/* vb_tsc and vb_tsc_early are the CPU's counter, whatever it is called there. */
#if defined(__x86_64__) || defined(__aarch64__)
#define VB_CLOCK_COUNTER 1
#else
#define VB_CLOCK_COUNTER 0
#endif

#if defined(__x86_64__)

static inline uint64_t vb_tsc(void)
{
	uint32_t lo, hi;

	__asm__ __volatile__("lfence\n\trdtsc\n\tlfence" : "=a"(lo), "=d"(hi) : : "memory");
	return (uint64_t)hi << 32 | lo;
}

static inline uint64_t vb_tsc_early(void)
{
	uint32_t lo, hi;

	__asm__ __volatile__("rdtsc" : "=a"(lo), "=d"(hi) : : "memory");
	return (uint64_t)hi << 32 | lo;
}

#elif defined(__aarch64__)

#define VB_CNTVCT                                                                                  \
	"mrs %0, cntvct_el0\n\teor %1, %0, %0\n\tadd %1, sp, %1\n\tldr xzr, [%1]\n\tdmb ishld"

static inline uint64_t vb_tsc(void)
{
	uint64_t at, behind;

	__asm__ __volatile__("dsb ish\n\tisb\n\t" VB_CNTVCT
			     : "=&r"(at), "=&r"(behind)
			     :
			     : "memory");
	return at;
}

static inline uint64_t vb_tsc_early(void)
{
	uint64_t at, behind;

	__asm__ __volatile__(VB_CNTVCT : "=&r"(at), "=&r"(behind) : : "memory");
	return at;
}

#endif

#if VB_CLOCK_COUNTER

static inline uint64_t vb_clock_of_tsc(uint64_t tsc)
{
	return vb_clock.ns_base +
	       (uint64_t)(((unsigned __int128)(tsc - vb_clock.tsc_base) * vb_clock.mult) >> 24);
}

#endif

static inline uint64_t vb_clock_ns(void)
{
#if VB_CLOCK_COUNTER
	if (vb_clock.use_tsc)
		return vb_clock_of_tsc(vb_tsc());
#endif
#if defined(__x86_64__)
	uint64_t now = vb_clock_gettime_ns();

	__asm__ __volatile__("lfence" : : : "memory");
	return now;
#else
	vb_clock_drain();
	return vb_clock_gettime_ns();
#endif
}

static inline uint64_t vb_clock_early_ns(void)
{
#if VB_CLOCK_COUNTER
	if (vb_clock.use_tsc)
		return vb_clock_of_tsc(vb_tsc_early());
#endif
#if defined(__x86_64__)
	return vb_clock_gettime_ns();
#else
	return vb_clock_ns();
#endif
}

#endif
