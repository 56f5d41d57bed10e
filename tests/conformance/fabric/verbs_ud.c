/* SPDX-License-Identifier: Apache-2.0 */
/* Messages that may be lost go as datagrams; short queues, two connections. */
#define VERBS_OPTIONS "rpc=ud,lanes=2,depth=64,signal_every=3"
#include "verbs_suite.h"

int main(void)
{
	return verbs_suite_main("fabric verbs_ud");
}
