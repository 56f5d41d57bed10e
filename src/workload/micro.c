/* SPDX-License-Identifier: Apache-2.0 */
/* See micro.h. */
#define VB_LOG_ROOM "micro"
#include "workload/micro.h"

#include <errno.h>
#include <math.h>

#include "base/log.h"

int vb_micro_init(struct vb_micro *m, const struct vb_micro_params *p)
{
	int err;

	if (!(p->read_ratio >= 0 && p->read_ratio <= 1))
		return vb_fail(-EINVAL, "a read ratio of %g: 0 to 1 are possible", p->read_ratio);
	if (!(p->fail_rate >= 0 && p->fail_rate < 1))
		return vb_fail(-EINVAL, "a fail rate of %g: at least 0 and below 1 are possible",
			       p->fail_rate);
	if (!(p->rate >= 0) || isinf(p->rate))
		return vb_fail(-EINVAL, "a rate of %g cycles per second is not possible", p->rate);
	if (p->clients == 0)
		return vb_fail(-EINVAL, "0 clients: there must be one");
	err = vb_dist_init(&m->dist, p->dist, p->locks);
	if (err)
		return err;
	m->p = *p;
	vb_scatter_init(&m->scatter, p->locks);
	m->mean_gap_ns = p->rate > 0 ? 1e9 * p->clients / p->rate : 0;
	return 0;
}

uint64_t vb_micro_lock_of_rank(const struct vb_micro *m, uint64_t rank)
{
	return vb_scatter(&m->scatter, rank);
}

void vb_micro_client_init(struct vb_micro_client *c, const struct vb_micro *m, uint64_t seed,
			  unsigned client, uint64_t start_ns)
{
	c->m = m;
	vb_rng_seed(&c->rng, seed, 0x6d6963726f000000ull + client);
	c->due_ns = (double)start_ns;
}

void vb_micro_next(struct vb_micro_client *c, struct vb_micro_op *op)
{
	const struct vb_micro *m = c->m;

	op->lock = vb_micro_lock_of_rank(m, vb_dist_next(&m->dist, &c->rng));
	op->mode = vb_rng_chance(&c->rng, m->p.read_ratio) ? VB_SHARED : VB_EXCLUSIVE;
	op->skip_release = m->p.fail_rate > 0 && vb_rng_chance(&c->rng, m->p.fail_rate);
}

uint64_t vb_micro_arrival(struct vb_micro_client *c)
{
	/* 1 - u is in (0, 1]: the logarithm is finite. */
	c->due_ns -= log(1.0 - vb_rng_unit(&c->rng)) * c->m->mean_gap_ns;
	return (uint64_t)c->due_ns;
}
