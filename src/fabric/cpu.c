/* SPDX-License-Identifier: Apache-2.0 */
/* What this CPU can do, found out before main. */
#include "fabric/cpu.h"

#if defined(__x86_64__)
bool vb_cpu_whole16;

__attribute__((constructor)) static void find_whole16(void)
{
	__builtin_cpu_init();
	vb_cpu_whole16 = __builtin_cpu_supports("avx");
}
#endif

#if defined(__aarch64__)
#include <sys/auxv.h>

/* Of the kernel's <asm/hwcap.h>. */
#define HAS_ATOMICS (1ul << 8)  /* FEAT_LSE */
#define HAS_USCAT   (1ul << 25) /* FEAT_LSE2 */

bool vb_cpu_casp, vb_cpu_whole16;

/* Processes that find different things go together: either way a pair is stored at once, or not at all. */
__attribute__((constructor)) static void find_pairs(void)
{
	unsigned long has = getauxval(AT_HWCAP);

	vb_cpu_casp = (has & HAS_ATOMICS) != 0;
	vb_cpu_whole16 = (has & HAS_USCAT) != 0;
}
#endif
