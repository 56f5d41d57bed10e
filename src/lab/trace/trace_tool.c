/* SPDX-License-Identifier: Apache-2.0 */
/* See trace_tool.h. */
#define VB_LOG_ROOM "trace"
#include "lab/trace/trace_tool.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/json.h"
#include "lab/run.h"
#include "workload/trace_file.h"

#define SCAN_NS      1000000u
#define LOOK_EVERY   4096u /* transactions between two looks whether the user wants an end */
#define CLIENTS_MOST 100000u
#define TXNS_MOST    10000000000ull

#define O struct vb_trace_tool_opts
static const struct vb_opt draw_table[] = {
	VB_OPT_STRING(O, trace, "trace", "NAME", NULL,
		      "a trace's name (`verbena list` shows them all), or " VB_TRACE_FILE "FILE"),
	VB_OPT_STRING(O, workload_options, "workload-options", "LIST", NULL,
		      "the trace's own options, KEY=VALUE,..."),
	VB_OPT_SIZE(O, transactions, "transactions", "100k", 1, TXNS_MOST,
		    "number of transactions"),
	VB_OPT_SIZE(O, clients, "clients", "1", 1, CLIENTS_MOST,
		    "number of clients, who draw transactions in turn"),
	VB_OPT_SIZE(O, hosts, "hosts", "1", 1, 4096, "nodes with clients"),
	VB_OPT_SIZE(O, servers, "servers", "1", 1, 64,
		    "nodes with locks, over which homes are spread"),
	VB_OPT_REAL(O, scan_rate, "scan-rate", "0", 0, 1,
		    "chance that a transaction is a scan of a whole table"),
	VB_OPT_SIZE(O, seed, "seed", "1", 0, INT64_MAX, "decides every random choice"),
	VB_OPT_END};

static const struct vb_opt export_table[] = {
	VB_OPT_FLAG(
		O, head, "head",
		"begin with comments that name the types and the time to think; other readers of "
		"such files may not know comments"),
	VB_OPT_END};

static const struct vb_opt stat_table[] = {
	VB_OPT_STRING(O, json, "json", "FILE", NULL, "write the numbers as JSON; - is stdout"),
	VB_OPT_END};
#undef O

VB_OPT_GROUPS(vb_trace_export_groups, struct vb_trace_tool_opts, {"The trace", draw_table, NULL},
	      {"The file", export_table, NULL})

VB_OPT_GROUPS(vb_trace_stat_groups, struct vb_trace_tool_opts, {"The trace", draw_table, NULL},
	      {"Results", stat_table, NULL})

/* ---- drawing ---- */

struct crowd {
	struct vb_trace trace;
	struct vb_trace_client *client;
	unsigned n;
};

static int crowd_open(struct crowd *c, const struct vb_trace_tool_opts *o)
{
	const struct vb_trace_params p = {
		.options = o->workload_options,
		.clients = (unsigned)o->clients,
		.hosts = (unsigned)o->hosts,
		.servers = (unsigned)o->servers,
		.seed = o->seed,
		.scan_rate = o->scan_rate,
		.scan_ns = o->scan_rate > 0 ? SCAN_NS : 0,
	};
	int err;

	*c = (struct crowd){0};
	if (o->trace == NULL)
		return vb_fail(-EINVAL,
			       "say with --trace which one; `verbena list` shows them all");
	err = vb_trace_open(&c->trace, o->trace, &p);
	if (err)
		return err;
	c->client = calloc(o->clients, sizeof(*c->client));
	if (c->client == NULL)
		return vb_fail(-ENOMEM, "no memory for %" PRIu64 " clients", o->clients);
	for (; c->n < o->clients && err == 0; c->n += err == 0)
		err = vb_trace_client_open(&c->trace, c->n, &c->client[c->n]);
	return err;
}

static void crowd_close(struct crowd *c)
{
	for (unsigned i = 0; i < c->n; i++)
		vb_trace_client_close(&c->client[i]);
	free(c->client);
	vb_trace_close(&c->trace);
}

/* Shows n transactions.  -EINTR: the user wants an end. */
static int draw(struct crowd *c, uint64_t n,
		int (*show)(void *ctx, uint64_t i, const struct vb_trace_txn *txn), void *ctx)
{
	int err = 0;

	for (uint64_t i = 0; i < n && err == 0; i++) {
		err = show(ctx, i, vb_trace_next(&c->client[i % c->n]));
		if (i % LOOK_EVERY == 0 && vb_interrupted)
			err = -EINTR;
	}
	return err;
}

/* ---- export ---- */

/* Numbered from 1: some readers take 0 for none. */
static int write_txn(void *ctx, uint64_t i, const struct vb_trace_txn *txn)
{
	FILE *to = ctx;

	vb_trace_write(to, i + 1, txn);
	return ferror(to) ? -EIO : 0;
}

static int write_all(struct crowd *c, const struct vb_trace_tool_opts *o, int fd)
{
	int copy = dup(fd), err = 0;
	FILE *to = copy >= 0 ? fdopen(copy, "w") : NULL;

	if (to == NULL) {
		err = -errno;
		if (copy >= 0)
			close(copy);
		return err;
	}
	if (o->head)
		vb_trace_write_head(to, &c->trace);
	err = draw(c, o->transactions, write_txn, to);
	if (fclose(to) != 0 && err == 0)
		err = errno != 0 ? -errno : -EIO;
	return err;
}

int vb_trace_export(const struct vb_trace_tool_opts *o, const char *path)
{
	struct vb_json_out out;
	struct crowd c;
	int err = crowd_open(&c, o);

	if (err == 0)
		err = vb_json_out_open(&out, path);
	if (err == 0) {
		err = write_all(&c, o, out.fd);
		if (err == -EINTR)
			vb_json_out_abandon(&out);
		else
			err = vb_json_out_finish(&out, err);
	}
	crowd_close(&c);
	return err == -EINTR ? VB_EXIT_INTERRUPTED : vb_exit_of(err);
}

/* ---- in numbers ---- */

struct tally {
	uint64_t txns, locks, by_mode[VB_MODES];
	unsigned least, most;
};

struct trace_stat {
	struct tally all, type[VB_TRACE_TYPES_MAX];
	uint64_t highest;
};

static void count(struct tally *t, const struct vb_trace_txn *txn)
{
	if (t->txns++ == 0 || txn->n < t->least)
		t->least = txn->n;
	if (txn->n > t->most)
		t->most = txn->n;
	t->locks += txn->n;
	for (unsigned i = 0; i < txn->n; i++)
		t->by_mode[txn->lock[i].mode]++;
}

static int count_txn(void *ctx, uint64_t i, const struct vb_trace_txn *txn)
{
	struct trace_stat *s = ctx;

	(void)i;
	count(&s->all, txn);
	count(&s->type[txn->type], txn);
	for (unsigned k = 0; k < txn->n; k++)
		if (txn->lock[k].lock > s->highest)
			s->highest = txn->lock[k].lock;
	return 0;
}

static double percent(uint64_t n, uint64_t of)
{
	return of > 0 ? 100.0 * (double)n / (double)of : 0;
}

static void put_tally(FILE *to, const char *name, const struct tally *t, uint64_t txns)
{
	fprintf(to, "%-24s %8.3f %8.3f %6u %6u", name, percent(t->txns, txns),
		t->txns > 0 ? (double)t->locks / (double)t->txns : 0, t->least, t->most);
	for (unsigned mode = 0; mode < VB_MODES; mode++)
		fprintf(to, " %7.3f", percent(t->by_mode[mode], t->locks));
	fputc('\n', to);
}

static void print(FILE *to, const struct crowd *c, const struct trace_stat *s, const char *name)
{
	fprintf(to,
		"%s: %" PRIu64 " locks, the highest that was met is %" PRIu64 "; %" PRIu64
		" transactions\n\n",
		name, c->trace.locks, s->highest, s->all.txns);
	fprintf(to, "%-24s %8s %8s %6s %6s %7s %7s %7s %7s %7s %7s\n%-24s %8s %8s %6s %6s %47s\n",
		"", "", "locks", "", "", "S", "X", "U", "IS", "IX", "SIX", "type", "%", "each",
		"least", "most", "% of its locks");
	for (unsigned i = 0; i < c->trace.n_types; i++)
		put_tally(to, c->trace.types[i], &s->type[i], s->all.txns);
	put_tally(to, "all", &s->all, s->all.txns);
}

static json_t *tally_json(const char *name, const struct tally *t, uint64_t txns)
{
	json_t *j = json_object(), *modes = json_object();

	for (unsigned mode = 0; mode < VB_MODES; mode++)
		json_object_set_new(modes, vb_lock_mode_name((enum vb_mode)mode),
				    vb_json_word(t->by_mode[mode]));
	vb_json_set(j, "type", name);
	vb_json_set(j, "txns", t->txns);
	vb_json_set(j, "share", vb_json_ratio((double)t->txns, (double)txns));
	vb_json_set(j, "locks_per_txn", vb_json_ratio((double)t->locks, (double)t->txns));
	vb_json_set(j, "locks_least", t->least);
	vb_json_set(j, "locks_most", t->most);
	vb_json_set(j, "locks_by_mode", modes);
	return j;
}

static int write_json(struct vb_json_out *out, const struct vb_trace_tool_opts *o,
		      const struct crowd *c, const struct trace_stat *s)
{
	json_t *root = vb_json_head(o->seed), *run = json_object(), *types = json_array();
	int err;

	for (unsigned i = 0; i < c->trace.n_types; i++)
		json_array_append_new(types,
				      tally_json(c->trace.types[i], &s->type[i], s->all.txns));
	vb_json_set(run, "kind", "trace");
	vb_json_set(run, "trace", o->trace);
	vb_json_set(run, "options", o->workload_options ? o->workload_options : "");
	vb_json_set(run, "locks", c->trace.locks);
	vb_json_set(run, "highest_lock", s->highest);
	vb_json_set(run, "think_ns", c->trace.think_ns);
	vb_json_set(run, "all", tally_json("all", &s->all, s->all.txns));
	vb_json_set(run, "types", types);
	vb_json_set(root, "runs", json_pack("[o]", run));
	err = vb_json_out_commit(out, root);
	json_decref(root);
	return err;
}

int vb_trace_stat(const struct vb_trace_tool_opts *o)
{
	bool on_stdout = o->json != NULL && strcmp(o->json, "-") == 0;
	struct vb_json_out out = {.fd = -1};
	struct trace_stat s = {0};
	struct crowd c;
	int err = crowd_open(&c, o);

	if (err == 0)
		err = vb_json_out_open(&out, o->json);
	if (err == 0)
		err = draw(&c, o->transactions, count_txn, &s);
	if (err == 0) {
		print(on_stdout ? stderr : stdout, &c, &s, o->trace);
		err = o->json != NULL ? write_json(&out, o, &c, &s) : 0;
	}
	vb_json_out_abandon(&out);
	crowd_close(&c);
	return err == -EINTR ? VB_EXIT_INTERRUPTED : vb_exit_of(err);
}
