/* SPDX-License-Identifier: Apache-2.0 */
/* What a seed holds in store for a transaction protocol: see txn_explore.h. */
#define VB_LOG_ROOM "check"
#include <inttypes.h>

#include "check/txn_explore.h"

#define US 1000ull
#define MS 1000000ull

#define DRAW_STREAM 0x74786e

static uint64_t between(struct vb_rng *r, uint64_t lo, uint64_t hi)
{
	return lo + vb_rng_below(r, hi - lo + 1);
}

static uint64_t spread(struct vb_rng *r, uint64_t lo, uint64_t octaves)
{
	uint64_t base = lo << vb_rng_below(r, octaves);

	return base + vb_rng_below(r, base);
}

static double one_of(struct vb_rng *r, const double *from, unsigned n)
{
	return from[vb_rng_below(r, n)];
}

static void draw_cluster(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const unsigned bytes[] = {16, 24, 56, 120, 256};

	d->profile =
		&vb_sim_profiles[vb_rng_chance(r, 0.6) ? 0 : vb_rng_below(r, vb_sim_profile_count)];
	d->global = vb_rng_chance(r, 0.5);
	d->bound_ns = spread(r, 25 * US, 3);
	d->nodes = (unsigned)between(r, 1, 3);
	d->coordinators = (unsigned)between(r, 2, VB_TXN_EXPLORE_COORDINATORS_MAX);
	d->accounts = (unsigned)between(r, 2, 12);
	d->notes = (unsigned)between(r, 1, 6);
	d->record_bytes = bytes[vb_rng_below(r, VB_ARRAY_SIZE(bytes))];
	d->lease_ns = spread(r, 8 * d->bound_ns, 2);
}

static void draw_load(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double chances[] = {0, 0.1, 0.3};

	d->attempts = (unsigned)between(r, 15, 60);
	d->commits = (unsigned)between(r, 3, 10);
	d->think_max_ns = vb_rng_chance(r, 0.5) ? 0 : spread(r, 1 * US, 4);
	d->p_audit = one_of(r, chances, 3);
	d->p_note = one_of(r, chances, 3);
	d->p_blind = one_of(r, chances, 3);
	d->p_wide = one_of(r, chances, 3);
	d->p_abort = vb_rng_chance(r, 0.5) ? 0.05 : 0;
	d->p_declare = vb_rng_chance(r, 0.5) ? 0.5 : 0;
	d->doorbell = vb_rng_chance(r, 0.8);
	d->outstanding = vb_rng_chance(r, 0.8);
	d->passive_ack = vb_rng_chance(r, 0.3);
	d->cache = vb_rng_chance(r, 0.7);
}

static void draw_faults(struct vb_rng *r, struct vb_txn_draw *d)
{
	static const double mild[] = {0, 0.01, 0.1, 0.5}, rare[] = {0.0005, 0.002, 0.008};
	struct vb_sim_faults *f = &d->faults;

	f->delay = one_of(r, mild, 4);
	f->delay_max_ns = spread(r, 1 * US, 4);
	if (f->delay_max_ns > d->bound_ns / 2)
		f->delay_max_ns = d->bound_ns / 2;
	f->tear = one_of(r, mild, 4);
	f->drift_max_ppb = (int64_t)d->drift_ppm * 500;
	if (d->calm)
		return;
	if (vb_rng_chance(r, 0.7))
		f->die = one_of(r, rare, 3);
	if (vb_rng_chance(r, 0.5)) {
		f->pause = one_of(r, rare, 3) * 2;
		f->pause_max_ns = between(r, d->lease_ns / 2, 3 * d->lease_ns);
	}
	if (vb_rng_chance(r, 0.3))
		f->lose = one_of(r, rare, 3);
	if (vb_rng_chance(r, 0.2)) {
		f->nic_stall = one_of(r, rare, 3) / 4;
		f->nic_stall_max_ns = between(r, 10 * US, d->lease_ns);
	}
	if (vb_rng_chance(r, 0.2)) {
		f->partition = one_of(r, rare, 3) / 8;
		f->partition_max_ns = between(r, 10 * US, d->lease_ns);
	}
}

void vb_txn_draw(const struct vb_cc_ops *cc, uint64_t seed, const char *hybrid,
		 struct vb_txn_draw *d)
{
	struct vb_rng r;

	vb_rng_seed(&r, seed, DRAW_STREAM);
	*d = (struct vb_txn_draw){.seed = seed, .drift_ppm = 100};
	draw_cluster(&r, d);
	draw_load(&r, d);
	/* Who waits for ever is not saved by those who recover him. */
	d->recovery = !(cc->caps & VB_CC_BLIND_WAIT);
	d->calm = vb_rng_chance(&r, 0.25) || !d->recovery;
	draw_faults(&r, d);
	for (unsigned i = 0; i < cc->n_stages; i++)
		d->hybrid[i] = vb_rng_chance(&r, 0.5) ? '1' : '0';
	/* All of one kind is what most people run. */
	if (vb_rng_chance(&r, 0.4))
		memset(d->hybrid, vb_rng_chance(&r, 0.7) ? '0' : '1', cc->n_stages);
	if (hybrid != NULL)
		snprintf(d->hybrid, sizeof(d->hybrid), "%s", hybrid);
	d->safety_ns = 50 * MS + 40 * d->lease_ns + d->attempts * d->coordinators * 100 * US;
	d->liveness_ns = 500 * MS + 40 * d->lease_ns +
			 4 * (d->faults.pause_max_ns + d->faults.nic_stall_max_ns +
			      d->faults.partition_max_ns);
	/* Who is stuck waits busily; nobody needs so long. */
	if (!d->recovery) {
		d->safety_ns = 20 * MS;
		d->liveness_ns = 20 * MS;
	}
}

static void describe_chance(FILE *to, const char *name, double chance, uint64_t max_ns)
{
	char t[16];

	if (chance == 0)
		return;
	fprintf(to, ", %s %g", name, chance);
	if (max_ns != 0)
		fprintf(to, " up to %s", vb_format_ns(t, sizeof(t), (double)max_ns));
}

void vb_txn_draw_describe(const struct vb_txn_draw *d, FILE *to)
{
	const struct vb_sim_faults *f = &d->faults;
	char t1[16], t2[16], t3[16];

	fprintf(to,
		"seed %" PRIu64 ": hybrid %s, profile %s%s, verb bound %s, %u coordinators on %u "
		"nodes, %u accounts and %u notes of %u bytes, attempts %u, think %s, lease "
		"%s%s%s%s%s",
		d->seed, d->hybrid, d->profile->name, d->global ? ", global atomics" : "",
		vb_format_ns(t1, sizeof(t1), (double)d->bound_ns), d->coordinators, d->nodes,
		d->accounts, d->notes, d->record_bytes, d->attempts,
		vb_format_ns(t2, sizeof(t2), (double)d->think_max_ns),
		vb_format_ns(t3, sizeof(t3), (double)d->lease_ns),
		d->doorbell ? "" : ", no doorbell batching",
		d->outstanding ? "" : ", no outstanding requests",
		d->passive_ack ? ", passive acknowledgement" : "", d->cache ? "" : ", no cache");
	describe_chance(to, "audits", d->p_audit, 0);
	describe_chance(to, "notes", d->p_note, 0);
	describe_chance(to, "blind writes", d->p_blind, 0);
	describe_chance(to, "wide", d->p_wide, 0);
	describe_chance(to, "user aborts", d->p_abort, 0);
	describe_chance(to, "declared", d->p_declare, 0);
	describe_chance(to, "die", f->die, 0);
	describe_chance(to, "pause", f->pause, f->pause_max_ns);
	describe_chance(to, "delay", f->delay, f->delay_max_ns);
	describe_chance(to, "tear", f->tear, 0);
	describe_chance(to, "lose", f->lose, 0);
	describe_chance(to, "stall", f->nic_stall, f->nic_stall_max_ns);
	describe_chance(to, "partition", f->partition, f->partition_max_ns);
	fprintf(to, "\n");
}
