/* SPDX-License-Identifier: Apache-2.0 */
/* What has been published of the cards that the simulator's profiles are of. */
#ifndef VB_LAB_BENCH_FABRIC_PUBLISHED_H
#define VB_LAB_BENCH_FABRIC_PUBLISHED_H

#include "fabric/sim/sim.h"

/* What is measured of each profile: model.c says how. */
enum vb_model {
	VB_MODEL_READ,
	VB_MODEL_WRITE,
	VB_MODEL_CAS,
	VB_MODEL_WIDE,
	VB_MODEL_SEND,
	VB_MODEL_HANDOVER,
	VB_MODEL_WORD,
	VB_MODEL_WIDE_WORD,
	VB_MODEL_WORDS,
	VB_MODEL_COLD,
	VB_MODEL_READS_64,
	VB_MODEL_READS_1K,
	VB_MODEL_READS_4K,
	VB_MODEL_WIRE,
	VB_MODEL_INCAST,
	VB_MODEL_INCAST_READS,
	VB_MODEL_CORE,
	VB_MODEL_BATCH,
	VB_MODEL_OWN,
	VB_MODEL_DELAYED,
};

struct vb_published {
	const char *card; /* "cx5": of the profiles "cx5" and "cx5-card" */
	enum vb_model what;
	double low, high; /* in the measure's unit; 0: at most, INFINITY: at least */
	const char *source;
	/* The parameter that was set by this number, or NULL: then the model was not made to agree
	 * with it. */
	const char *sets;
};

/* The first (after NULL) or the next one of a profile's measure; NULL: no more. */
const struct vb_published *vb_published_next(const struct vb_published *after, const char *profile,
					     enum vb_model what);
/* The source of the parameter that was set by the number; NULL: none of this profile was. */
const struct vb_sim_source *vb_published_sets(const struct vb_published *p, const char *profile);
/* A value in the unit, over the nearest that was published: 1 inside of the range. */
double vb_published_ratio(const struct vb_published *p, double value);

#endif
