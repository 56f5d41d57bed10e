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
