/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The shared memory fabric: nodes of one machine, reached by threads and processes.  It is the
 * embedded default and the physical limit: a verb is the CPU's own atomic plus the check of its
 * address.  This file ties the parts together; see inner.h.
 */
#define VB_LOG_ROOM "shm"
#include <sched.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/shm/inner.h"

extern const struct vb_fabric_ops vb_fabric_shm;

static const struct vb_opt shm_table[] = {
	VB_OPT_SIZE(struct shm_options, ring, "ring", "256", 16, 65536,
		    "messages that an endpoint's ring holds, rounded up to a power of two"),
	VB_OPT_END,
};

static unsigned count_cores(void)
{
	cpu_set_t set;
	long n;

	if (sched_getaffinity(0, sizeof(set), &set) == 0)
		return (unsigned)CPU_COUNT(&set);
	n = sysconf(_SC_NPROCESSORS_ONLN);
	return n > 0 ? (unsigned)n : 1;
}

static int fabric_open(const struct vb_fabric_params *p, const void *options,
		       struct vb_fabric **out)
{
	struct shm_fabric *f = calloc(1, sizeof(*f));
	int err;

	if (f == NULL)
		return vb_fail(-ENOMEM, "no memory for a fabric");
	f->f.ops = &vb_fabric_shm;
	f->f.caps = vb_fabric_shm.caps;
	f->cores = count_cores();
	if (p->attach)
		err = shm_segment_attach(p, f);
	else if (p->attach_or_create)
		err = shm_segment_attach_or_create(p, options, f);
	else
		err = shm_segment_create(p, options, f);
	if (err != 0) {
		free(f);
		return err;
	}
	*out = &f->f;
	return 0;
}

static void fabric_close(struct vb_fabric *fabric)
{
	struct shm_fabric *f = shm_of(fabric);

	vb_assert(__atomic_load_n(&f->open, __ATOMIC_RELAXED) == 0);
	shm_segment_close(f);
	free(f);
}

static void after_fork(struct vb_fabric *fabric)
{
	__atomic_store_n(&shm_of(fabric)->open, 0, __ATOMIC_RELAXED);
	shm_segment_after_fork(shm_of(fabric));
}

static void *local(struct vb_fabric *fabric, vb_addr addr, uint64_t bytes)
{
	struct shm_fabric *f = shm_of(fabric);
	uint64_t offset = vb_addr_offset(addr);
	uint16_t node = vb_addr_node(addr);

	if (node >= fabric->nodes || bytes > fabric->node_bytes ||
	    offset > fabric->node_bytes - bytes)
		return NULL;
	return f->base[node] + offset;
}

const struct vb_fabric_ops vb_fabric_shm = {
	.name = "shm",
	.summary = "threads and processes of one machine on shared memory",
	.options = shm_table,
	.options_size = sizeof(struct shm_options),
	.caps =
		{
			.flags = VB_CAP_MASKED64 | VB_CAP_MASKED128 | VB_CAP_SEND | VB_CAP_NOTIFY |
				 VB_CAP_INLINE | VB_CAP_CPU_ATOMICS | VB_CAP_PROCESSES,
			.verb_bound_ns = 0, /* a verb lands at once or, if its client dies, never */
			.rtt_ns = 100,      /* a line that another core has written */
			.atomics = "CPU instructions; masked ones by a compare-and-swap loop "
				   "(cmpxchg16b, on arm64 caspal, for 128 bits)",
			.order = "every verb is complete before the next one begins",
		},
	.open = fabric_open,
	.close = fabric_close,
	.after_fork = after_fork,
	.ep_open = shm_ep_open,
	.ep_close = shm_ep_close,
	.post = shm_post,
	.recv = shm_recv,
	.peer_alive = shm_peer_alive,
	.region = shm_region,
	.region_find = shm_region_find,
	.regions = shm_regions,
	.region_hold = shm_region_hold,
	.region_hold_again = shm_region_hold_again,
	.region_let_go = shm_region_let_go,
	.region_take = shm_region_take,
	.region_remove = shm_region_remove,
	.local = local,
	.faa64 = shm_faa64,
	.cas64 = shm_cas64,
	.mcas64 = shm_mcas64,
	.read64 = shm_read64,
	.hint = shm_hint,
	.read = shm_read,
	.write = shm_write,
	.mcas128 = shm_mcas128,
	.mfaa128 = shm_mfaa128,
};
