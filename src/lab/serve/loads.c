/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A database whose tables are those of a workload of `bench txn`, which each server fills on its own nodes before it
 * serves them.  A region of the node says that its part is filled: a server that begins again with its state leaves
 * the records alone then, and a client waits for it.
 */
#define VB_LOG_ROOM "serve"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "fabric/fabric.h"
#include "lab/run.h"
#include "lab/serve/serve.h"
#include "txn/db.h"

#define MARK_BYTES  64u
#define PATIENCE_NS 10000000000ull /* a client's, with a node that is not filled yet */
#define STEP_NS     1000u

static void mark_of(const struct vb_serve_db *s, char name[VB_REGION_NAME])
{
	snprintf(name, VB_REGION_NAME, "filled:%.31s", s->name);
}

/* ---- words ---- */

static int none_is_called(const struct vb_serve_db *s, const char *name)
{
	const char *names[16];
	char hint[VB_HINT_BYTES];
	size_t n = 0;

	for (; vb_loads[n] != NULL && n < VB_ARRAY_SIZE(names); n++)
		names[n] = vb_loads[n]->name;
	return vb_fail(-EINVAL, "database '%s': no workload is called '%s'%s", s->name, name,
		       vb_did_you_mean(hint, name, names, n));
}

int vb_serve_load_read(struct vb_serve_db *s, const char *text)
{
	const size_t bytes = strcspn(text, ",");
	char name[64], why[256] = "";
	struct vb_load probe;
	int err;

	snprintf(name, sizeof(name), "%.*s", (int)bytes, text);
	s->workload = vb_load_find(name);
	if (s->workload == NULL)
		return none_is_called(s, name);
	vb_assert(s->workload->options_bytes <= sizeof(s->load_options));
	vb_log_capture_begin(why, sizeof(why));
	vb_opt_defaults(s->workload->options, s->load_options.bytes);
	err = vb_opt_parse_list(s->workload->options, s->load_options.bytes,
				text[bytes] == ',' ? text + bytes + 1 : "");
	if (err == 0)
		err = vb_load_init(&probe, s->workload, s->load_options.bytes, 1, VB_SERVE_SEED);
	if (err == 0)
		vb_load_close(&probe);
	vb_log_capture_end();
	if (err != 0)
		return vb_fail(err, "database '%s': workload=%s: %s", s->name, name, why);
	return 0;
}

/* ---- at a server ---- */

/* Others are answered meanwhile. */
static bool step(void *ctx, uint64_t done)
{
	struct vb_ep *ep = ctx;

	(void)done;
	(void)vb_ep_sleep(ep, STEP_NS);
	return !vb_interrupted;
}

/* 1, 0, or -error, said. */
static int has_mark(struct vb_fabric *f, uint16_t node, const char *mark)
{
	struct vb_region_info *all;
	int n = vb_regions_all(f, node, &all), found = 0;

	if (n < 0)
		return n;
	for (int i = 0; i < n; i++)
		found |= strcmp(all[i].name, mark) == 0;
	free(all);
	return found;
}

static bool has_records(const struct vb_load *l, uint16_t node)
{
	bool any = false;

	for (unsigned i = 0; i < l->n_tables; i++)
		any |= l->table[i]->node[node].index.header->tuples != 0;
	return any;
}

int vb_serve_load_fill(struct vb_serve_db *s, struct vb_ep *ep, uint16_t node)
{
	const struct vb_load_progress progress = {.step = step, .ctx = ep};
	char mark[VB_REGION_NAME];
	vb_addr at;
	bool fresh;
	int err;

	mark_of(s, mark);
	err = has_mark(ep->fabric, node, mark);
	if (err != 0)
		return err < 0 ? err : 0;
	if (has_records(&s->load, node))
		return vb_fail(-ESTALE,
			       "database '%s': the server ended while it filled the tables of node "
			       "%u: end all servers, remove their states, and start them",
			       s->name, node);
	err = s->workload->fill(&s->load, node, &progress);
	if (err == 0)
		err = vb_region(ep->fabric, node, mark, MARK_BYTES, &at, &fresh);
	return err;
}

/* ---- at a client ---- */

int vb_serve_load_await(const struct vb_serve_db *s, struct vb_fabric *f)
{
	char mark[VB_REGION_NAME];
	vb_addr at;
	int err = 0;

	mark_of(s, mark);
	for (unsigned node = 0; node < f->nodes && err == 0; node++) {
		err = vb_region_made(f, (uint16_t)node, mark, MARK_BYTES, PATIENCE_NS, &at);
		if (err == -ENOENT)
			return vb_fail(
				err,
				"node %u has no tables of a workload in database '%s': its "
				"server still fills them, or was started without workload=%s",
				node, s->name, s->workload->name);
	}
	return err;
}
