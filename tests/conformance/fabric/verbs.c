/* SPDX-License-Identifier: Apache-2.0 */
/* As it comes. */
#define VERBS_OPTIONS ""
#include "verbs_suite.h"

int main(void)
{
	return verbs_suite_main("fabric verbs");
}
