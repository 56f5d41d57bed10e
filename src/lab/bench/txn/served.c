/* SPDX-License-Identifier: Apache-2.0 */
/* Which servers that run already a run is a client of, and which database of theirs. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

#include "base/log.h"
#include "lab/bench/engine/servers.h"

#define EACH_MAX 1000u /* clients of a process: a server gives one 1024 endpoints */

/* Said by the database, or what such a run has not. */
static int refuse_others(const struct vb_tbench_opts *o)
{
	const struct {
		bool said;
		const char *name, *why;
	} others[] = {
		{o->cc != NULL, "cc", "--database says it"},
		{o->workload != NULL, "workload", "--database says it"},
		{o->lease_ns != 0, "lease", "--database says it"},
		{o->snapshot_lag_ns != 0, "snapshot-lag", "--database says it"},
		{o->copies != 0, "copies", "--database says it"},
		{o->recovery != 0, "recovery", "--database says it"},
		{o->threads != 1, "threads", "each of --procs has one"},
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(others); i++)
		if (others[i].said)
			return vb_fail(-EINVAL, "leave out --%s: %s", others[i].name,
				       others[i].why);
	if (o->fabric != VB_BENCH_SHM && o->fabric != VB_BENCH_TCP)
		return vb_fail(-EINVAL,
			       "--fabric %s: the servers of an elastic cluster are reached by tcp",
			       vb_bench_fabric_names[o->fabric]);
	return 0;
}

static int read_database(const char *word, const struct vb_serve_db **out)
{
	static struct vb_serve_dbs dbs;
	int err = 0;

	dbs.n = 0;
	if (word == NULL || vb_serve_word_of(word) != VB_SERVE_DB)
		return vb_fail(-EINVAL,
			       "which database of the servers? --database says it, in the words of "
			       "`verbena serve`: NAME:cc=PROTOCOL,workload=WORKLOAD,...");
	err = vb_serve_db_read(&dbs, word);
	if (err == 0 && dbs.db[0].workload == NULL)
		return vb_fail(-EINVAL,
			       "database '%s': a benchmark needs to know what is in its tables; "
			       "give it a workload, here and to `verbena serve`: %s,workload=NAME",
			       dbs.db[0].name, word);
	*out = &dbs.db[0];
	return err;
}

/* What is read again after it was let go is another record: so much room the servers have to know of. */
static int check_isolation(const struct vb_tbench_plan *p)
{
	const struct vb_serve_db *d = p->served;
	struct vb_load load;
	uint64_t items, bytes;
	int err;

	if (p->o.isolation == VB_SERIALIZABLE || p->o.isolation == VB_SNAPSHOT)
		return 0;
	err = vb_load_init(&load, d->workload, d->load_options.bytes, 1, VB_SERVE_SEED);
	if (err != 0)
		return err;
	items = 2 * (uint64_t)load.items;
	bytes = 2 * (uint64_t)load.bytes;
	vb_load_close(&load);
	if (d->items >= items && d->bytes >= bytes)
		return 0;
	return vb_fail(-EINVAL,
		       "--isolation: a transaction touches more then than '%s' has room for; give "
		       "the servers items=%" PRIu64 ",bytes=%" PRIu64 " before its workload",
		       d->name, items, bytes);
}

int vb_tbench_served_plan(struct vb_tbench_plan *p)
{
	struct vb_tbench_opts *o = &p->o;
	int err = refuse_others(o);

	if (err == 0)
		err = read_database(o->database, &p->served);
	if (err != 0)
		return err;
	err = vb_bench_servers_count(o->servers, o->key);
	if (err < 0)
		return err;
	o->elastic = o->servers;
	o->fabric = VB_BENCH_TCP;
	o->cc = p->served->cc;
	o->workload = p->served->workload->name;
	o->copies = p->served->copies;
	o->recovery = p->served->no_recovery;
	if (o->cluster.procs == 0)
		o->cluster.procs = 2;
	if (o->coroutines > EACH_MAX)
		return vb_fail(-EINVAL,
			       "--coroutines %" PRIu64 ": a process has %u clients at most; give "
			       "more --procs",
			       o->coroutines, EACH_MAX);
	return check_isolation(p);
}
