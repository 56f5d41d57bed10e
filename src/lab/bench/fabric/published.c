/* SPDX-License-Identifier: Apache-2.0 */
/* See published.h.  What the sources are: fabric/sim/sources.c. */
#include "lab/bench/fabric/published.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

#include "base/compiler.h"

#define EDR "EDR's data rate"
#define FDR "FDR's data rate"

static const struct vb_published published[] = {
	{"cx5", VB_MODEL_READ, 0, 2, "ShiftLock section 1: round trips of at most 2 us", NULL},
	{"cx5", VB_MODEL_CAS, 1.8, 1.8,
	 "ShiftLock section 2.3: two in a cycle, 278.3 thousand cycles/s one after the other",
	 NULL},
	{"cx5", VB_MODEL_WIDE, 2.05, 2.05, "ShiftLock table 3, five clients", "atomic128_ns"},
	{"cx5", VB_MODEL_SEND, 2.35, 2.35, "ShiftLock's artifact: a SEND that is waited for", NULL},
	{"cx5", VB_MODEL_HANDOVER, 4.55, 4.63,
	 "ShiftLock's artifact: MCS, 216 to 220 thousand handovers/s of the hottest lock",
	 "hear_ns"},
	{"cx5", VB_MODEL_WORD, 2.24, 2.24, "Kalia ATC'16, of a Connect-IB", "word64_busy_ns"},
	{"cx5", VB_MODEL_WORD, 3.72, 3.84,
	 "ShiftLock section 2.3: a release behind 239 CAS, 15.5 thousand cycles/s", "word_ns"},
	{"cx5", VB_MODEL_WIDE_WORD, 1.63, INFINITY,
	 "ShiftLock's artifact, read-only: the hottest lock", NULL},
	{"cx5", VB_MODEL_WORDS, 32.6, 34.6,
	 "ShiftLock's artifact, uniform: two in a cycle, of ShiftLock and of CAS",
	 "atomics_unit_ns"},
	{"cx5", VB_MODEL_READS_64, 50, INFINITY, "Sherman SIGMOD'22: small WRITEs above 50 M/s",
	 "inbound_ns"},
	{"cx5", VB_MODEL_READS_1K, 0, 100, EDR, "answer_byte_ps"},
	{"cx5", VB_MODEL_READS_4K, 0, 100, EDR, "answer_byte_ps"},
	{"cx5", VB_MODEL_WIRE, 327.7, INFINITY, EDR, "answer_byte_ps"},
	{"cx5", VB_MODEL_INCAST, 0, 100, EDR, "port_byte_ps"},
	{"cx5", VB_MODEL_INCAST_READS, 0, 100, EDR, "port_byte_ps"},

	{"cx4", VB_MODEL_READ, 2.5, 2.7, "RCC's logs: the READ stage, software included", NULL},
	{"cx4", VB_MODEL_WRITE, 2.43, 2.43, "RCC's logs: the log stage, software included", NULL},
	{"cx4", VB_MODEL_READS_1K, 0, 100, EDR, "answer_byte_ps"},
	{"cx4", VB_MODEL_READS_4K, 0, 100, EDR, "answer_byte_ps"},
	{"cx4", VB_MODEL_WIRE, 327.7, INFINITY, EDR, "answer_byte_ps"},
	{"cx4", VB_MODEL_INCAST, 0, 100, EDR, "port_byte_ps"},
	{"cx4", VB_MODEL_INCAST_READS, 0, 100, EDR, "port_byte_ps"},

	{"cx3", VB_MODEL_READ, 2, 2, "HERD SIGCOMM'14, on DSLR's cluster", "one_way_ns"},
	{"cx3", VB_MODEL_READ, 5, 5, "DSLR section 4.6: average RDMA latency", NULL},
	{"cx3", VB_MODEL_CAS, 5, 5, "DSLR section 4.6: average RDMA latency", NULL},
	{"cx3", VB_MODEL_WORD, 1.8, 2.7,
	 "rdma_bench: of a card, memory beyond or in the CPU's cache", NULL},
	{"cx3", VB_MODEL_WORDS, 1.8, 2.7,
	 "rdma_bench: of a card, memory beyond or in the CPU's cache", "atomics_unit_ns"},
	{"cx3", VB_MODEL_READS_64, 26, 26, "HERD SIGCOMM'14", "inbound_ns"},
	{"cx3", VB_MODEL_READS_1K, 0, 54.5, FDR, "answer_byte_ps"},
	{"cx3", VB_MODEL_READS_4K, 0, 54.5, FDR, "answer_byte_ps"},
	{"cx3", VB_MODEL_WIRE, 601, INFINITY, FDR, "answer_byte_ps"},
	{"cx3", VB_MODEL_INCAST, 0, 54.5, FDR, "port_byte_ps"},
	{"cx3", VB_MODEL_INCAST_READS, 0, 54.5, FDR, "port_byte_ps"},
};

static bool is_of(const char *card, const char *profile)
{
	size_t n = strlen(card);

	return strncmp(profile, card, n) == 0 &&
	       (profile[n] == '\0' || strcmp(profile + n, "-card") == 0);
}

const struct vb_published *vb_published_next(const struct vb_published *after, const char *profile,
					     enum vb_model what)
{
	for (const struct vb_published *p = after != NULL ? after + 1 : published;
	     p < published + VB_ARRAY_SIZE(published); p++)
		if (p->what == what && is_of(p->card, profile))
			return p;
	return NULL;
}

const struct vb_sim_source *vb_published_sets(const struct vb_published *p, const char *profile)
{
	const struct vb_sim_profile *s = vb_sim_profile_find(profile);

	for (unsigned i = 0; i < vb_sim_param_count && p->sets != NULL; i++)
		if (strcmp(vb_sim_params[i].name, p->sets) == 0 &&
		    vb_sim_value(s, &vb_sim_params[i]) != 0)
			return vb_sim_source_of(s, p->sets);
	return NULL;
}

double vb_published_ratio(const struct vb_published *p, double value)
{
	if (value < p->low)
		return value / p->low;
	return value > p->high ? value / p->high : 1;
}
