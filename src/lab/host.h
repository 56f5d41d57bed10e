/* SPDX-License-Identifier: Apache-2.0 */
/* What machine a result comes from.  No host name: results are meant to be passed on. */
#ifndef VB_LAB_HOST_H
#define VB_LAB_HOST_H

#include <stdbool.h>
#include <stdint.h>

struct vb_host {
	char cpu[96];
	char kernel[96];
	char clocksource[32];
	unsigned cores;                    /* online */
	uint64_t mem_total, mem_available; /* bytes; 0 if unknown */
	double load1;
	bool cmpxchg16b, constant_tsc;
};

void vb_host_probe(struct vb_host *h);

/* The number after "key:" in /proc/meminfo, in bytes; 0 if there is none. */
uint64_t vb_host_meminfo(const char *key);
/* The first line of a file without its newline; false if it cannot be read. */
bool vb_host_read_line(const char *path, char *buf, unsigned size);

#endif
