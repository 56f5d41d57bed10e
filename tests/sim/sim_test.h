/* SPDX-License-Identifier: Apache-2.0 */
/* What the tests of the simulator share: a cluster, tasks in it, running them to the end. */
#ifndef SIM_TEST_H
#define SIM_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "fabric/sim/sim.h"

#define NODE_BYTES (4ull << 20)

static inline const struct vb_sim_profile *profile_named(const char *name)
{
	for (unsigned i = 0; i < vb_sim_profile_count; i++) {
		if (strcmp(vb_sim_profiles[i].name, name) == 0)
			return &vb_sim_profiles[i];
	}
	fail_msg("no profile '%s'", name);
	return NULL;
}

static inline struct vb_fabric *cluster(const char *options, uint16_t nodes, uint64_t seed)
{
	struct vb_fabric_params p = {.fabric = "sim",
				     .options = options,
				     .nodes = nodes,
				     .node_bytes = NODE_BYTES,
				     .endpoints = 6000,
				     .seed = seed};
	struct vb_fabric *f;

	assert_int_equal(vb_fabric_open(&p, &f), 0);
	return f;
}

static inline struct vb_ep *endpoint(struct vb_fabric *f, uint16_t node)
{
	struct vb_ep *ep;

	assert_int_equal(vb_ep_open(f, node, &ep), 0);
	return ep;
}

static inline void spawn(void (*body)(void *), void *arg)
{
	assert_int_equal(vb_task_spawn(vb_sched_self(), body, arg, NULL, NULL), 0);
}

static inline void run_all(void)
{
	assert_int_equal(vb_sched_run(vb_sched_self(), NULL, VB_FOREVER), 0);
}

static inline uint64_t now(void)
{
	return vb_sched_now(vb_sched_self());
}

/* A word of a node, away from the first line. */
static inline vb_addr word(uint16_t node, uint64_t i)
{
	return vb_addr_make(node, 4096 + 8 * i);
}

static inline uint64_t peek(struct vb_fabric *f, vb_addr a)
{
	uint64_t v;

	memcpy(&v, vb_local(f, a, 8), 8);
	return v;
}

#endif
