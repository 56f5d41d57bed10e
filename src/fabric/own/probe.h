/* SPDX-License-Identifier: Apache-2.0 */
/*
 * An endpoint as vb_provider_check has it: verbs are posted in batches, and each end is looked at.
 *
 * Several probes of one thread have verbs under way at the same time, and are polled in turn: so what a provider does
 * in two steps is met in between, without a second thread and whatever the machine's pace.
 */
#ifndef VB_FABRIC_OWN_PROBE_H
#define VB_FABRIC_OWN_PROBE_H

#include "fabric/own/inner.h"

/* Bytes of each node that are tried, behind what regions' directory has. */
#define OWN_TRY_AT    (16u << 10)
#define OWN_TRY_BYTES 4096u
#define OWN_BATCH     16u

/* One look at a provider; each thread has its own. */
struct own_try {
	const struct vb_provider *p;
	uint16_t node; /* that is tried at present */
	int err;       /* no promise is broken, and it could not be looked at */
	struct vb_provider_broken broken;
};

struct own_probe {
	struct own_try *t;
	struct vb_provider_endpoint at;
	bool open;
	uint32_t n, out;       /* verbs of the batch; those that have not ended */
	uint32_t limit, round; /* verbs that are under way at most; batches so far */
	struct vb_provider_verb verb[OWN_BATCH]; /* in the order of posting */
	bool ended[OWN_BATCH];
	int err[OWN_BATCH];
	/* What the verbs write and have read: a batch may be larger than the endpoint's buffer. */
	_Alignas(8) uint8_t data[OWN_BATCH][VB_PROVIDER_VERB_BYTES];
};

/* Notes the first promise that is broken.  Always false. */
bool own_is_broken(struct own_try *t, const char *promise, const char *fmt, ...) VB_PRINTF(3, 4);

/* These return false when a promise is broken. */
bool own_probe_open(struct own_try *t, struct own_probe *out);
void own_probe_close(struct own_probe *p);
/* The next verb of the batch, to be filled in: its data is at `local`.  The offset counts from OWN_TRY_AT. */
struct vb_provider_verb *own_probe_add(struct own_probe *p, enum vb_provider_op op, uint64_t offset,
				       uint32_t bytes);
bool own_probe_post(struct own_probe *p);
/* Takes ends once. */
bool own_probe_poll(struct own_probe *p);
/* Polls n probes in turn until all that they have posted has ended, and well. */
bool own_probes_end(struct own_probe *p, unsigned n);
/* The same of one, posted before; with an error where that is allowed. */
bool own_probe_run(struct own_probe *p);
bool own_probe_run_any(struct own_probe *p);

/* What verb i of the batch that has ended has read. */
uint64_t own_probe_word(const struct own_probe *p, unsigned i);
/* A word of the node, awaited. */
bool own_probe_get(struct own_probe *p, uint64_t offset, uint64_t *out);
bool own_probe_set(struct own_probe *p, uint64_t offset, uint64_t value);

/* ---- race.c ---- */

bool own_check_atomic(struct own_try *t);
bool own_check_whole_words(struct own_try *t);
bool own_check_seen_in_order(struct own_try *t);
bool own_check_one_sees_the_other(struct own_try *t);
bool own_check_threads(struct own_try *t);

#endif
