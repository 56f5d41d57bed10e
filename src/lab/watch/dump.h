/* SPDX-License-Identifier: Apache-2.0 */
/* What runs on a segment of shared memory now: verbena dump, verbena top. */
#ifndef VB_LAB_WATCH_DUMP_H
#define VB_LAB_WATCH_DUMP_H

#include <stdio.h>

#include <jansson.h>

#include "check/lock/waits.h"
#include "lab/run.h"

struct vb_opt_group;

struct vb_look_opts {
	const char *segment, *space;
	uint64_t most; /* lines */
	/* dump */
	const char *json;
	/* top */
	uint64_t interval_ns, times;
};

const struct vb_opt_group *vb_dump_groups(struct vb_look_opts *o, unsigned *n);
const struct vb_opt_group *vb_top_groups(struct vb_look_opts *o, unsigned *n);

/* Return an enum vb_exit; what is wrong has been said. */
int vb_dump(FILE *to, const struct vb_look_opts *o);
int vb_top(FILE *to, const struct vb_look_opts *o);

/* Joins a segment to look at it; close with vb_look_close.  -errno, said. */
struct vb_look {
	struct vb_fabric *fabric;
	struct vb_ep *ep;
};
int vb_look_open(struct vb_look *l, const struct vb_look_opts *o);
void vb_look_close(struct vb_look *l);

/* "850 ns", "1.2 ms", "3.0 s" */
struct vb_span_text {
	char text[24];
};
const char *vb_span(struct vb_span_text *t, uint64_t ns);

/* Looks twice through an endpoint, prints to `to` and fills *root; either may be NULL.  -error,
 * said. */
int vb_dump_look(FILE *to, struct vb_ep *ep, const struct vb_look_opts *o, json_t **root);

/* The report of verbena dump, for whoever has views of their own. */
void vb_dump_print(FILE *to, const char *space, const struct vb_waits *w, uint64_t most);

#endif
