/* SPDX-License-Identifier: Apache-2.0 */
/* A port of the loopback for a server that is named before it begins. */
#ifndef TEST_PORT_H
#define TEST_PORT_H

#include <stdint.h>
#include <unistd.h>

#include "cluster/cluster.h"

#define TEST_PORTS_EACH 20u

/*
 * One that is free, of some that are this process's: below those that the kernel gives to who calls or asks for
 * any (net.ipv4.ip_local_port_range, from 32768 by default), so that nobody is given it by chance between here
 * and the server's beginning, or while it is gone and begins again; and others than those of tests that run beside
 * this one, whose processes have numbers near by.  0: none was free.
 */
static inline uint16_t test_port(void)
{
	static unsigned next;
	const unsigned first = 10000 + (unsigned)getpid() % 1100 * TEST_PORTS_EACH;

	for (unsigned i = 0; i < TEST_PORTS_EACH; i++) {
		uint16_t port;
		int fd;

		if (vb_cluster_listen("127.0.0.1", (uint16_t)(first + next++ % TEST_PORTS_EACH),
				      &fd, &port) != 0)
			continue;
		close(fd);
		return port;
	}
	return 0;
}

#endif
