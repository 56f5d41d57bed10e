/* SPDX-License-Identifier: Apache-2.0 */
/* Draws from a seed: see draw.h. */
#include "check/draw.h"

uint64_t vb_draw_between(struct vb_rng *r, uint64_t lo, uint64_t hi)
{
	return lo + vb_rng_below(r, hi - lo + 1);
}

uint64_t vb_draw_spread(struct vb_rng *r, uint64_t lo, uint64_t octaves)
{
	uint64_t base = lo << vb_rng_below(r, octaves);

	return base + vb_rng_below(r, base);
}

double vb_draw_one_of(struct vb_rng *r, const double *from, unsigned n)
{
	return from[vb_rng_below(r, n)];
}

void vb_draw_delays(struct vb_rng *r, struct vb_sim_faults *f, uint64_t octaves, uint64_t bound_ns)
{
	static const double chances[] = {0, 0.01, 0.1, 0.5};

	f->delay = vb_draw_one_of(r, chances, VB_ARRAY_SIZE(chances));
	f->delay_max_ns = vb_draw_spread(r, 1000, octaves);
	if (f->delay_max_ns > bound_ns / 2)
		f->delay_max_ns = bound_ns / 2;
	f->tear = vb_draw_one_of(r, chances, VB_ARRAY_SIZE(chances));
}

void vb_draw_tell_chance(FILE *to, const char *name, double chance, uint64_t max_ns)
{
	char t[16];

	if (chance == 0)
		return;
	fprintf(to, ", %s %g", name, chance);
	if (max_ns != 0)
		fprintf(to, " up to %s", vb_format_ns(t, sizeof(t), (double)max_ns));
}

void vb_draw_tell_faults(FILE *to, const struct vb_sim_faults *f)
{
	char t[16];

	vb_draw_tell_chance(to, "die", f->die, 0);
	vb_draw_tell_chance(to, "pause", f->pause, f->pause_max_ns);
	vb_draw_tell_chance(to, "pause before telling", f->pause_told, f->pause_max_ns);
	vb_draw_tell_chance(to, "pause until a word comes round", f->around, f->around_max_ns);
	vb_draw_tell_chance(to, "stalled servers", f->stall, f->stall_max_ns);
	vb_draw_tell_chance(to, "servers die", f->server_die, 0);
	vb_draw_tell_chance(to, "delay", f->delay, f->delay_max_ns);
	vb_draw_tell_chance(to, "tear", f->tear, 0);
	vb_draw_tell_chance(to, "lose", f->lose, 0);
	vb_draw_tell_chance(to, "lose early", f->early, 0);
	for (unsigned op = 0; op < VB_OP_COUNT; op++)
		if (f->lose_ops >> op & 1)
			fprintf(to, ", these of %s alone", vb_op_names[op]);
	vb_draw_tell_chance(to, "deaf", f->deaf, f->deaf_max_ns);
	vb_draw_tell_chance(to, "stall", f->nic_stall, f->nic_stall_max_ns);
	vb_draw_tell_chance(to, "partition", f->partition, f->partition_max_ns);
	vb_draw_tell_chance(to, "of them refuse verbs", f->refuse, 0);
	if (f->drift_edge)
		fprintf(to, ", clocks at the edge of their drift");
	if (f->common_error_max_ns != 0)
		fprintf(to, ", clocks off by up to %s",
			vb_format_ns(t, sizeof(t), (double)f->common_error_max_ns));
	fprintf(to, "\n");
}
