/* SPDX-License-Identifier: Apache-2.0 */
/* What we ask of the compiler, in one place: branch hints, checks, sanitizer detection. */
#ifndef VB_BASE_COMPILER_H
#define VB_BASE_COMPILER_H

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#define vb_likely(x)   __builtin_expect(!!(x), 1)
#define vb_unlikely(x) __builtin_expect(!!(x), 0)

#define VB_PRINTF(fmt, args) __attribute__((format(printf, fmt, args)))
#define VB_NORETURN          __attribute__((noreturn))
#define VB_NOINLINE          __attribute__((noinline))
/* Whoever calls it has something to complain of: what leads there is kept apart from what is run every time,
 * and does not take its place in the instruction cache. */
#define VB_COLD       __attribute__((cold, noinline))
#define VB_CACHELINE  64
#define VB_ALIGNED(n) __attribute__((aligned(n)))

#define VB_ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

#define vb_container_of(ptr, type, member) ((type *)((char *)(ptr)-offsetof(type, member)))

/* What must hold in every build, also the released one: a lock manager that goes on after its
 * invariants broke hands out the same lock twice. */
#define vb_assert(cond)                                                                            \
	do {                                                                                       \
		if (vb_unlikely(!(cond)))                                                          \
			vb_assert_failed(#cond, __FILE__, __LINE__);                               \
	} while (0)

VB_NORETURN VB_COLD void vb_assert_failed(const char *cond, const char *file, int line);

#if defined(__SANITIZE_ADDRESS__)
#define VB_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define VB_ASAN 1
#endif
#endif

#if defined(__SANITIZE_THREAD__)
#define VB_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define VB_TSAN 1
#endif
#endif

static inline void vb_cpu_relax(void)
{
#if defined(__x86_64__) || defined(__i386__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ __volatile__("yield");
#endif
}

#endif
