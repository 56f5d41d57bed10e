/* SPDX-License-Identifier: Apache-2.0 */
/* What traces have in common; see trace.h. */
#define VB_LOG_ROOM "trace"
#include "workload/trace.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "lock/lock.h"
#include "workload/trace_file.h"
#include "workload/traces.h"

#define CLIENT_STREAM 0x7472616365000000ull

const struct vb_trace_ops *const vb_traces[] = {
	&vb_trace_tpcc, &vb_trace_tpcc_rows, &vb_trace_tatp, &vb_trace_smallbank, NULL,
};

const struct vb_trace_ops *vb_trace_find(const char *name)
{
	for (const struct vb_trace_ops *const *t = vb_traces; *t != NULL; t++)
		if (strcmp((*t)->name, name) == 0)
			return *t;
	return NULL;
}

static int unknown(const char *name)
{
	char hint[VB_HINT_BYTES];

	return vb_fail(-EINVAL,
		       "no trace is called '%s'%s; `verbena list` shows them all, "
		       "and " VB_TRACE_FILE "FILE reads one",
		       name, vb_did_you_mean_any(hint, name, vb_traces));
}

static int parse_options(struct vb_trace *t)
{
	if (t->ops->options_bytes == 0)
		return t->p.options == NULL || t->p.options[0] == '\0'
			       ? 0
			       : vb_fail(-EINVAL, "the trace '%s' has no options", t->ops->name);
	t->options = calloc(1, t->ops->options_bytes);
	if (t->options == NULL)
		return vb_fail(-ENOMEM, "no memory for a trace");
	vb_opt_defaults(t->ops->options, t->options);
	return vb_opt_parse_list(t->ops->options, t->options, t->p.options);
}

int vb_trace_open(struct vb_trace *t, const char *name, const struct vb_trace_params *p)
{
	int err;

	vb_assert(p->clients > 0 && p->hosts > 0 && p->servers > 0);
	*t = (struct vb_trace){.ops = vb_trace_find(name), .p = *p};
	if (strncmp(name, VB_TRACE_FILE, strlen(VB_TRACE_FILE)) == 0) {
		t->ops = &vb_trace_file;
		t->file = name + strlen(VB_TRACE_FILE);
	}
	if (t->ops == NULL)
		return unknown(name);
	if (p->scan_rate > 0 && !t->ops->scans)
		return vb_fail(-EINVAL,
			       "the trace '%s' has no table that is scanned: leave out the "
			       "scans, or take another one",
			       name);
	err = parse_options(t);
	if (err == 0)
		err = t->ops->init(t);
	if (err) {
		vb_trace_close(t);
		return err;
	}
	vb_assert(t->n_types > 0 && t->n_types <= VB_TRACE_TYPES_MAX);
	vb_assert(t->locks > 0 && t->locks_max > 0 && t->locks_max <= VB_TRACE_LOCKS_MAX);
	return 0;
}

void vb_trace_close(struct vb_trace *t)
{
	if (t->ops != NULL && t->ops->fini != NULL)
		t->ops->fini(t);
	free(t->options);
	*t = (struct vb_trace){0};
}

int vb_trace_client_open(const struct vb_trace *t, unsigned number, struct vb_trace_client *c)
{
	uint32_t slots = 4;

	vb_assert(number < t->p.clients);
	/* At most half full: a search ends soon. */
	while (slots < 2 * t->locks_max)
		slots *= 2;
	*c = (struct vb_trace_client){
		.t = t, .number = number, .host = number % t->p.hosts, .mask = slots - 1};
	vb_rng_seed(&c->rng, t->p.seed, CLIENT_STREAM + number);
	c->txn.lock = calloc(t->locks_max, sizeof(c->txn.lock[0]));
	c->slot = calloc(slots, sizeof(c->slot[0]));
	if (c->txn.lock != NULL && c->slot != NULL)
		return 0;
	vb_trace_client_close(c);
	return vb_fail(-ENOMEM, "no memory for the transactions of a client");
}

void vb_trace_client_close(struct vb_trace_client *c)
{
	free(c->txn.lock);
	free(c->slot);
	c->txn.lock = NULL;
	c->slot = NULL;
}

struct vb_trace_txn *vb_trace_next(struct vb_trace_client *c)
{
	c->drawn++;
	c->txn.n = 0;
	c->txn.home = 0;
	c->txn.think_ns = c->t->think_ns;
	c->t->ops->next(c);
	vb_assert(c->txn.type < c->t->n_types);
	return &c->txn;
}
