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

/*
 * A thread-local variable (initial-exec) in code that awaits, after which a task may be on another thread.
 * On x86-64 each use names the thread's segment.  On arm64 the thread's pointer is a value that the compiler
 * keeps over calls, so that a use behind an await would be of the thread before, which may have ended: here
 * it is read anew, by an instruction that is neither moved over others of its kind nor shared with them.
 */
#if defined(__aarch64__)
#define VB_TLS_AT(var)                                                                             \
	(*({                                                                                       \
		__typeof__(var) *vb_tls_at;                                                        \
		uint64_t vb_tls_off;                                                               \
		__asm__ __volatile__("mrs %0, tpidr_el0\n\t"                                       \
				     "adrp %1, :gottprel:" #var "\n\t"                             \
				     "ldr %1, [%1, :gottprel_lo12:" #var "]\n\t"                   \
				     "add %0, %0, %1"                                              \
				     : "=&r"(vb_tls_at), "=&r"(vb_tls_off));                       \
		vb_tls_at;                                                                         \
	}))
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
