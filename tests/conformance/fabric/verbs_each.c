/* SPDX-License-Identifier: Apache-2.0 */
/* A doorbell and a completion for every verb, nothing inlined. */
#define VERBS_OPTIONS "doorbell=each,signal=all,inline=0"
#include "verbs_suite.h"

int main(void)
{
	return verbs_suite_main("fabric verbs_each");
}
