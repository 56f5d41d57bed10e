/* SPDX-License-Identifier: Apache-2.0 */
/* An address of this machine that is not loopback's: what is sent to it stays on the machine, and is protected as if
 * it did not. */
#ifndef TESTS_BEYOND_H
#define TESTS_BEYOND_H

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stddef.h>

static inline bool beyond_loopback(char to[INET_ADDRSTRLEN])
{
	struct ifaddrs *list;
	bool found = false;

	if (getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *i = list; i != NULL && !found; i = i->ifa_next) {
		if (i->ifa_addr == NULL || i->ifa_addr->sa_family != AF_INET ||
		    (i->ifa_flags & (IFF_LOOPBACK | IFF_UP)) != IFF_UP)
			continue;
		found = inet_ntop(AF_INET, &((const struct sockaddr_in *)i->ifa_addr)->sin_addr, to,
				  INET_ADDRSTRLEN) != NULL;
	}
	freeifaddrs(list);
	return found;
}

#endif
