/* SPDX-License-Identifier: Apache-2.0 */
/* A benchmark as a client of servers that run (verbena serve, doc/elastic.md). */
#ifndef VB_LAB_BENCH_ENGINE_SERVERS_H
#define VB_LAB_BENCH_ENGINE_SERVERS_H

#include <stdbool.h>

#include "base/opt.h"
#include "fabric/fabric.h"

/* Who they are: an address or a file, not a number. */
bool vb_bench_servers_named(const char *servers);
/* How many there are, with a key that can be passed on; or -EINVAL, said. */
int vb_bench_servers_count(const char *servers, const char *key);
/* As a client of theirs; `more`: the fabric's options, or NULL.  0 or -error, said. */
int vb_bench_servers_open(const char *servers, const char *key, const char *more,
			  struct vb_fabric **out);
/* Sooner than an open would find out, or make what is of no use to anybody: 0, -ENOENT with what they have instead,
 * or another -error, said.  `what` for people: "lock space". */
int vb_bench_servers_have(struct vb_fabric *f, const char *servers, enum vb_named_kind kind,
			  const char *what, const char *name);

/* The words of the options that every benchmark has for them. */
#define VB_BENCH_KEY_HELP "the key file of the servers and clients"

#endif
