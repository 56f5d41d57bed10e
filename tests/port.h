/* SPDX-License-Identifier: Apache-2.0 */
/* A port of the loopback for a server that is named before it begins. */
#ifndef TEST_PORT_H
#define TEST_PORT_H

#include <stdint.h>
#include <sys/random.h>
#include <unistd.h>

#include "cluster/cluster.h"

/*
 * One that is free, drawn from below those that the kernel gives to who calls or asks for any
 * (net.ipv4.ip_local_port_range, from 32768 by default): between here and the server's beginning nobody is
 * given it by chance.  0: none of many was free.
 */
static inline uint16_t test_port(void)
{
	for (unsigned i = 0; i < 1000; i++) {
		uint16_t drawn, port;
		int fd;

		if (getrandom(&drawn, sizeof(drawn), 0) != sizeof(drawn))
			return 0;
		drawn = (uint16_t)(10000 + drawn % 22000);
		if (vb_cluster_listen("127.0.0.1", drawn, &fd, &port) != 0)
			continue;
		close(fd);
		return port;
	}
	return 0;
}

#endif
