/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Verbs on memory that this CPU reaches: how every fabric executes them that does so by CPU.
 *
 * Order.  The interface wants a READ or atomic to see the WRITEs and atomics before it as the
 * target does: after them in one global order, so that of two clients that each write one word and
 * then read the other's, one sees the other.  Atomics are locked instructions and full barriers; so
 * the last piece of every WRITE is stored by an exchange (sequentially consistent), and READs are
 * sequentially consistent loads.  Nothing runs before an earlier READ or atomic either, so
 * VB_FENCE has nothing left to do.
 *
 * In C11's terms: where every piece of a WRITE is a sequentially consistent store and every piece of a
 * READ such a load, the language promises this, whatever the CPU (7.17.3: one order of them all).  So it is
 * everywhere but on x86-64, and costs nothing there: on arm64 the release store is the same stlr, and a
 * load, ldar, never overtakes one.  On x86-64 such a store is an exchange, and only the last piece is one:
 * the pieces before it are release stores, which for another CPU are in their order anyway, and no load
 * overtakes the exchange, which is a full barrier.  What the language promises of these, too, is that who
 * sees a piece sees all that was before it.
 *
 * Pieces.  Up to the first 16-byte boundary and after the last one in 8-byte words and bytes, in
 * between in 16-byte pieces that are whole: with AVX an aligned 16-byte load or store is atomic
 * (Intel SDM 3A 9.1.1, AMD APM 2 7.3.2), elsewhere cmpxchg16b does it; on arm64 a compare-and-swap of a
 * pair, which is one instruction from Armv8.1 on (caspal) and a loop of exclusives before, and from
 * Armv8.4 on an aligned load of a pair is whole, too.
 *
 * The 16-byte instructions are invisible to the thread sanitizer, which is told what they order.
 *
 * Nothing here checks an address: callers have.
 */
#ifndef VB_FABRIC_CPU_H
#define VB_FABRIC_CPU_H

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "fabric/fabric.h"

#ifdef VB_TSAN
void __tsan_acquire(void *addr);
void __tsan_release(void *addr);
#define cpu_told_acquire(p) (__tsan_acquire(p), __tsan_acquire((uint64_t *)(p) + 1))
#define cpu_told_release(p) (__tsan_release(p), __tsan_release((uint64_t *)(p) + 1))
#else
#define cpu_told_acquire(p) ((void)(p))
#define cpu_told_release(p) ((void)(p))
#endif

/* ---- 16 bytes at once ---- */

#if defined(__aarch64__)
extern bool vb_cpu_casp
	__attribute__((visibility("hidden"))); /* it has FEAT_LSE, as from Armv8.1 on */

/* Acquire and release, which among these and ldar and stlr are in one order (Arm ARM B2.3). */
static inline struct vb_u128 cpu_casp(struct vb_u128 *at, struct vb_u128 expect,
				      struct vb_u128 value)
{
	/* Pairs of registers that begin with an even one. */
	register uint64_t lo __asm__("x0") = expect.lo;
	register uint64_t hi __asm__("x1") = expect.hi;
	register uint64_t value_lo __asm__("x2") = value.lo;
	register uint64_t value_hi __asm__("x3") = value.hi;

	__asm__ __volatile__(".arch_extension lse\n\tcaspal %0, %1, %3, %4, %2"
			     : "+r"(lo), "+r"(hi), "+Q"(*at)
			     : "r"(value_lo), "r"(value_hi)
			     : "memory");
	return (struct vb_u128){.lo = lo, .hi = hi};
}

/* A pair that was loaded is whole only if a store to it succeeds (Arm ARM B2.2.1): one that is not what was
 * expected is stored as it was.  The libraries' own loop does not, and may return half of each of two. */
static inline struct vb_u128 cpu_exclusive16(struct vb_u128 *at, struct vb_u128 expect,
					     struct vb_u128 value)
{
	struct vb_u128 found;
	uint64_t lo, hi;
	uint32_t failed;

	__asm__ __volatile__("1:\tldaxp %0, %1, %5\n\t"
			     "cmp %0, %6\n\t"
			     "ccmp %1, %7, #0, eq\n\t"
			     "csel %2, %8, %0, eq\n\t"
			     "csel %3, %9, %1, eq\n\t"
			     "stlxp %w4, %2, %3, %5\n\t"
			     "cbnz %w4, 1b"
			     : "=&r"(found.lo), "=&r"(found.hi), "=&r"(lo), "=&r"(hi),
			       "=&r"(failed), "+Q"(*at)
			     : "r"(expect.lo), "r"(expect.hi), "r"(value.lo), "r"(value.hi)
			     : "memory", "cc");
	return found;
}
#endif

static inline struct vb_u128 cpu_swap_if16(struct vb_u128 *at, struct vb_u128 expect,
					   struct vb_u128 value)
{
	struct vb_u128 found = expect;

	cpu_told_release(at);
	/* Not the builtin: the sanitizer's version of it takes a lock that other processes do not.
	 */
#if defined(__x86_64__)
	__asm__ __volatile__("lock cmpxchg16b %0"
			     : "+m"(*at), "+a"(found.lo), "+d"(found.hi)
			     : "b"(value.lo), "c"(value.hi)
			     : "memory", "cc");
#elif defined(__aarch64__)
	found = vb_likely(vb_cpu_casp) ? cpu_casp(at, expect, value)
				       : cpu_exclusive16(at, expect, value);
#else
	unsigned __int128 e = (unsigned __int128)expect.hi << 64 | expect.lo;
	unsigned __int128 v = (unsigned __int128)value.hi << 64 | value.lo;
	unsigned __int128 r = __sync_val_compare_and_swap((unsigned __int128 *)at, e, v);

	found = (struct vb_u128){.lo = (uint64_t)r, .hi = (uint64_t)(r >> 64)};
#endif
	cpu_told_acquire(at);
	return found;
}

#if defined(__x86_64__) || defined(__aarch64__)
extern bool vb_cpu_whole16
	__attribute__((visibility("hidden"))); /* aligned 16-byte moves are atomic */
#endif

static inline struct vb_u128 cpu_load16(struct vb_u128 *at)
{
#if defined(__x86_64__)
	if (vb_likely(vb_cpu_whole16)) {
		struct vb_u128 v;
		__m128i x;

		__asm__ __volatile__("movdqa %1, %0" : "=x"(x) : "m"(*at) : "memory");
		_mm_storeu_si128((__m128i *)&v, x);
		cpu_told_acquire(at);
		return v;
	}
#elif defined(__aarch64__)
	if (vb_likely(vb_cpu_whole16)) {
		struct vb_u128 v;

		/* The ldar, which is for its order alone, is behind every release before it, and the pair
		 * behind the ldar. */
		__asm__ __volatile__("ldar %0, %2\n\tldp %0, %1, %2\n\tdmb ishld"
				     : "=&r"(v.lo), "=&r"(v.hi)
				     : "Q"(*at)
				     : "memory");
		cpu_told_acquire(at);
		return v;
	}
#endif
	return cpu_swap_if16(at, (struct vb_u128){0}, (struct vb_u128){0});
}

static inline void cpu_store16(struct vb_u128 *at, struct vb_u128 v)
{
	struct vb_u128 expect, found = {0};

#if defined(__x86_64__)
	if (vb_likely(vb_cpu_whole16)) {
		__m128i x = _mm_loadu_si128((const __m128i *)&v);

		cpu_told_release(at);
		__asm__ __volatile__("movdqa %1, %0" : "=m"(*at) : "x"(x) : "memory");
		return;
	}
#endif
	/* Loses to atomics only, each of which has then taken effect. */
	do {
		expect = found;
		found = cpu_swap_if16(at, expect, v);
	} while (!vb_u128_eq(found, expect));
}

/* ---- READ and WRITE ---- */

/*
 * Whole lines, from and to memory that is aligned to 16 on the shared side.  Each 16 bytes are
 * moved as one; through a register and not through the stack, which is what makes the difference.
 */
#if defined(__x86_64__) && !defined(VB_TSAN)
static inline uint64_t cpu_lines_out(uint8_t *to, const uint8_t *from, uint64_t n)
{
	uint64_t done = 0;

	if (vb_unlikely(!vb_cpu_whole16))
		return 0;
	for (; n - done >= 64; done += 64) {
		const __m128i *f = (const __m128i *)(const void *)(from + done);
		__m128i *t = (__m128i *)(void *)(to + done);
		__m128i a, b, c, d;

		__asm__ __volatile__(
			"movdqa %4, %0\n\tmovdqa %5, %1\n\tmovdqa %6, %2\n\tmovdqa %7, %3"
			: "=&x"(a), "=&x"(b), "=&x"(c), "=&x"(d)
			: "m"(f[0]), "m"(f[1]), "m"(f[2]), "m"(f[3])
			: "memory");
		_mm_storeu_si128(t, a);
		_mm_storeu_si128(t + 1, b);
		_mm_storeu_si128(t + 2, c);
		_mm_storeu_si128(t + 3, d);
	}
	return done;
}

static inline uint64_t cpu_lines_in(uint8_t *to, const uint8_t *from, uint64_t n)
{
	uint64_t done = 0;

	if (vb_unlikely(!vb_cpu_whole16))
		return 0;
	for (; n - done >= 64; done += 64) {
		const __m128i *f = (const __m128i *)(const void *)(from + done);
		__m128i *t = (__m128i *)(void *)(to + done);
		__m128i a = _mm_loadu_si128(f), b = _mm_loadu_si128(f + 1);
		__m128i c = _mm_loadu_si128(f + 2), d = _mm_loadu_si128(f + 3);

		__asm__ __volatile__(
			"movdqa %4, %0\n\tmovdqa %5, %1\n\tmovdqa %6, %2\n\tmovdqa %7, %3"
			: "=m"(t[0]), "=m"(t[1]), "=m"(t[2]), "=m"(t[3])
			: "x"(a), "x"(b), "x"(c), "x"(d)
			: "memory");
	}
	return done;
}
#else
static inline uint64_t cpu_lines_out(uint8_t *to, const uint8_t *from, uint64_t n)
{
	(void)to;
	(void)from;
	(void)n;
	return 0;
}

static inline uint64_t cpu_lines_in(uint8_t *to, const uint8_t *from, uint64_t n)
{
	(void)to;
	(void)from;
	(void)n;
	return 0;
}
#endif

static inline void cpu_copy_out(uint8_t *to, uint8_t *from, uint64_t n)
{
	while (n > 0) {
		uint64_t piece = 1;

		if (((uintptr_t)from & 15) == 0 && n >= 16) {
			struct vb_u128 v;

			piece = n >= 64 ? cpu_lines_out(to, from, n) : 0;
			if (piece > 0) {
				to += piece;
				from += piece;
				n -= piece;
				continue;
			}
			v = cpu_load16((struct vb_u128 *)from);
			piece = 16;
			memcpy(to, &v, 16);
		} else if (((uintptr_t)from & 7) == 0 && n >= 8) {
			uint64_t v = __atomic_load_n((uint64_t *)from, __ATOMIC_SEQ_CST);

			piece = 8;
			memcpy(to, &v, 8);
		} else {
			*to = __atomic_load_n(from, __ATOMIC_SEQ_CST);
		}
		to += piece;
		from += piece;
		n -= piece;
	}
}

/* Of a WRITE's pieces that are not the last; see the top of the file. */
#if defined(__x86_64__)
#define CPU_PIECE __ATOMIC_RELEASE
#else
#define CPU_PIECE __ATOMIC_SEQ_CST
#endif

/* Stores of up to 8 bytes; `last` makes it a cpu_barrier, see the top of the file. */
static inline void cpu_store_small(uint8_t *to, const uint8_t *from, uint64_t piece, bool last)
{
	uint64_t v;

	if (piece == 8) {
		memcpy(&v, from, 8);
		if (last)
			(void)__atomic_exchange_n((uint64_t *)to, v, __ATOMIC_SEQ_CST);
		else
			__atomic_store_n((uint64_t *)to, v, CPU_PIECE);
	} else if (last) {
		(void)__atomic_exchange_n(to, *from, __ATOMIC_SEQ_CST);
	} else {
		__atomic_store_n(to, *from, CPU_PIECE);
	}
}

/* Behind a last piece of 16 bytes.  On x86-64 any locked instruction is one, and costs less than mfence; a
 * word that nobody else sees orders nothing in C11, nor on arm64. */
static inline void cpu_barrier(void)
{
#if defined(__x86_64__)
	uint64_t word = 0;

	(void)__atomic_exchange_n((volatile uint64_t *)&word, 1, __ATOMIC_SEQ_CST);
#else
	__atomic_thread_fence(__ATOMIC_SEQ_CST);
#endif
}

static inline void cpu_copy_in(uint8_t *to, const uint8_t *from, uint64_t n)
{
	while (n > 0) {
		uint64_t piece = 1;

		if (((uintptr_t)to & 15) == 0 && n >= 16) {
			struct vb_u128 v;

			/* The last piece is left for the barrier. */
			piece = n > 64 ? cpu_lines_in(to, from, n - 1) : 0;
			if (piece > 0) {
				to += piece;
				from += piece;
				n -= piece;
				continue;
			}
			piece = 16;
			memcpy(&v, from, 16);
			cpu_store16((struct vb_u128 *)to, v);
			if (n == 16)
				cpu_barrier();
		} else {
			if (((uintptr_t)to & 7) == 0 && n >= 8)
				piece = 8;
			cpu_store_small(to, from, piece, n == piece);
		}
		to += piece;
		from += piece;
		n -= piece;
	}
}

/* ---- atomics ---- */

static inline uint64_t cpu_mcas64(uint64_t *w, uint64_t expect, uint64_t expect_mask,
				  uint64_t value, uint64_t value_mask)
{
	uint64_t old;

	if (expect_mask == 0 && value_mask == UINT64_MAX)
		return __atomic_exchange_n(w, value, __ATOMIC_SEQ_CST);
	old = __atomic_load_n(w, __ATOMIC_SEQ_CST);
	/* Each lost race is another client's success. */
	while (((old ^ expect) & expect_mask) == 0 &&
	       !__atomic_compare_exchange_n(w, &old, vb_mask_apply64(old, value, value_mask), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

static inline uint64_t cpu_mfaa64(uint64_t *w, uint64_t add, uint64_t bounds)
{
	uint64_t old = __atomic_load_n(w, __ATOMIC_SEQ_CST);

	while (!__atomic_compare_exchange_n(w, &old, vb_field_add64(old, add, bounds), false,
					    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
		;
	return old;
}

/* The first guess may be torn or old: then the swap fails and brings the whole value.  Two 8-byte
 * loads cost less than a first swap that is likely to fail. */
static inline struct vb_u128 cpu_guess16(const struct vb_u128 *w)
{
	return (struct vb_u128){.lo = __atomic_load_n(&w->lo, __ATOMIC_RELAXED),
				.hi = __atomic_load_n(&w->hi, __ATOMIC_RELAXED)};
}

static inline struct vb_u128 cpu_mcas128(struct vb_u128 *w, struct vb_u128 expect,
					 struct vb_u128 expect_mask, struct vb_u128 value,
					 struct vb_u128 value_mask)
{
	struct vb_u128 old = cpu_guess16(w), found;

	for (;;) {
		bool match = (((old.lo ^ expect.lo) & expect_mask.lo) |
			      ((old.hi ^ expect.hi) & expect_mask.hi)) == 0;
		struct vb_u128 next = old;

		if (match) {
			next.lo = vb_mask_apply64(old.lo, value.lo, value_mask.lo);
			next.hi = vb_mask_apply64(old.hi, value.hi, value_mask.hi);
		}
		/* Also a value that does not match is swapped with itself: that proves it was
		 * whole. */
		found = cpu_swap_if16(w, old, next);
		if (vb_u128_eq(found, old))
			return old;
		old = found;
	}
}

static inline struct vb_u128 cpu_mfaa128(struct vb_u128 *w, struct vb_u128 add,
					 struct vb_u128 bounds)
{
	struct vb_u128 old = cpu_guess16(w), found;

	for (;;) {
		found = cpu_swap_if16(w, old, vb_field_add128(old, add, bounds));
		if (vb_u128_eq(found, old))
			return old;
		old = found;
	}
}

/* ---- any verb but the messages ---- */

/* The memory that an atomic touches, which is also its alignment; 0: not an atomic. */
static inline uint32_t cpu_atomic_bytes(uint8_t op)
{
	switch (op) {
	case VB_OP_CAS64:
	case VB_OP_FAA64:
	case VB_OP_MCAS64:
	case VB_OP_MFAA64:
		return 8;
	case VB_OP_MCAS128:
	case VB_OP_MFAA128:
		return 16;
	default:
		return 0;
	}
}

static inline uint64_t cpu_cas64(uint64_t *w, uint64_t expect, uint64_t value)
{
	__atomic_compare_exchange_n(w, &expect, value, false, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
	return expect;
}

/* Executes an atomic; `at` has room for it and is aligned.  Writes v->old. */
static inline void cpu_atomic(struct vb_verb *v, void *at)
{
	switch (v->op) {
	case VB_OP_CAS64:
		v->old.lo = cpu_cas64(at, v->compare.lo, v->swap.lo);
		break;
	case VB_OP_FAA64:
		v->old.lo = __atomic_fetch_add((uint64_t *)at, v->compare.lo, __ATOMIC_SEQ_CST);
		break;
	case VB_OP_MCAS64:
		v->old.lo = cpu_mcas64(at, v->compare.lo, v->compare_mask.lo, v->swap.lo,
				       v->swap_mask.lo);
		break;
	case VB_OP_MFAA64:
		v->old.lo = cpu_mfaa64(at, v->compare.lo, v->compare_mask.lo);
		break;
	case VB_OP_MCAS128:
		v->old = cpu_mcas128(at, v->compare, v->compare_mask, v->swap, v->swap_mask);
		break;
	case VB_OP_MFAA128:
		v->old = cpu_mfaa128(at, v->compare, v->compare_mask);
		break;
	default:
		vb_assert(!"an atomic");
	}
}

#endif
