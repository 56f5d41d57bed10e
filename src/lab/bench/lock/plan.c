/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `verbena bench lock`, and what can be told about them before anything is made. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/testbed.h"
#include "lab/bench/lock/lock.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/servers.h"
#include "lock/board.h"

#define SEC 1000000000ull

/* Five leases: long enough for every lock's queue to settle and for leases to run out,
 * and a few seconds of work for one core with 240 clients. */
#define SIM_DURATION_NS 50000000ull
#define MICRO_LOCKS     100000u
#define MICRO_DIST      "zipf:0.99"
#define DATA_MAX        65536
#define SCAN_NS         1000000ull
#define SERVERS_MAX     1024u

/* Where every node serves, the clients are as many as its threads or coroutines. */
static const char *const testbeds[] = {
	NULL,
	VB_TESTBED_DSLR,
	VB_TESTBED_SHIFTLOCK,
	VB_TESTBED_RCC " servers=4 server-threads=10 clients=40",
	VB_TESTBED_CORES " servers=8 server-threads=16 clients=128",
	VB_TESTBED_RCBENCH " servers=4 clients=768",
};

#define O struct vb_bench_opts
static const struct vb_opt what_table[] = {
	VB_OPT_STRING(O, lock, "lock", "NAMES", NULL,
		      "locks to run, one after the other: all, or names with commas between them "
		      "(all)"),
	VB_OPT_STRING(O, lock_options, "lock-options", "LIST", NULL,
		      "the protocol's own options, KEY=VALUE,...; `verbena list` shows them"),
	VB_OPT_CHOICE(
		O, fabric, "fabric", "shm|sim|tcp|ucx|verbs", "shm",
		"shm: processes on shared memory; sim: a simulated cluster in virtual time; tcp, "
		"ucx, verbs: processes that reach each other over TCP, through UCX or by an RDMA "
		"card"),
	VB_OPT_PRESET(O, testbed, "testbed", "none|dslr|shiftlock|rcc|thousands-of-cores|rcbench",
		      "none", testbeds, VB_BENCH_TESTBED_HELP),
	VB_OPT_STRING(O, fabric_options, "fabric-options", "LIST", NULL,
		      "the fabric's options, KEY=VALUE,...; `verbena list` shows them"),
	VB_OPT_SIZE(O, locks, "locks", NULL, 1, 1ull << 40,
		    "number of locks (100k; a trace's: as many as it has)"),
	VB_OPT_SIZE(O, clients, "clients", NULL, 1, VB_BENCH_CLIENTS,
		    "number of clients, of all processes or nodes together (8; sim: 240)"),
	VB_OPT_SIZE(O, cluster.procs, "procs", NULL, 1, VB_BENCH_PROCS,
		    "worker processes (2); tcp, ucx, verbs: lock servers and workers together (3)"),
	VB_OPT_STRING(O, segment, "segment", "NAME", NULL,
		      "shm: name of the segment (none: private to this run)"),
	VB_OPT_FLAG(O, visible, "visible",
		    "clients show what they hold and await: on shm to verbena dump and top (with "
		    "--segment), on networks on stderr at SIGUSR1"),
	VB_OPT_STRING(O, profile, "profile", "NAME", NULL, "sim: model of the network (cx5)"),
	VB_OPT_SIZE(
		O, nodes, "nodes", NULL, 1, 4096,
		"number of nodes (1; sim: 6); the first are the servers, clients are spread over "
		"the others"),
	VB_OPT_STRING(
		O, servers_said, "servers", "N", "1",
		"nodes that hold the locks; or who they are, HOST:PORT+HOST:PORT... or a file "
		"(with a / in its name) with a line for each: servers that run already, of "
		"which this run is a client"),
	VB_OPT_SIZE(O, server_threads, "server-threads", "1", 1, 64,
		    "workers of each lock server, for protocols with a server side"),
	VB_OPT_TIME(O, lease_ns, "lease", NULL, 10000, 3600 * SEC,
		    "how long a grant is valid, for protocols with leases (200ms, or four times "
		    "what the fabric lets a verb be late; sim: 10ms)"),
	VB_OPT_FLAG(O, fencing, "fencing", "every exclusive grant has a token that grows"),
	VB_OPT_END};

static const struct vb_opt elastic_table[] = {
	VB_OPT_STRING(O, space, "space", "SPACE", NULL,
		      "which of their lock spaces, in the words of `verbena serve`: "
		      "NAME:lock=PROTOCOL,..."),
	VB_OPT_STRING(O, key, "key", "FILE", NULL, VB_BENCH_KEY_HELP), VB_OPT_END};

static const struct vb_opt load_table[] = {
	VB_OPT_STRING(
		O, workload, "workload", "NAME", "micro",
		"micro: each client takes one lock after the other; or a trace's name (`verbena "
		"list`), or trace:FILE: clients run transactions by strict two-phase locking"),
	VB_OPT_TIME(O, timeout_ns, "timeout", "0", 0, 3600 * SEC,
		    "give an acquire up after so long and count it as failed (0: never)"),
	VB_OPT_REAL(O, fail_rate, "fail-rate", "0", 0, 0.999999,
		    "chance that a client skips its release, or a transaction all of its releases, "
		    "as if "
		    "it had died holding the lock"),
	VB_OPT_SIZE(O, seed, "seed", "1", 0, INT64_MAX, "decides every random choice"), VB_OPT_END};

static const struct vb_opt micro_table[] = {
	VB_OPT_STRING(O, dist, "dist", "DIST", NULL,
		      "which lock: uniform, zipf:THETA or powerlaw:ALPHA (zipf:0.99)"),
	VB_OPT_REAL(O, read_ratio, "read-ratio", "0.5", 0, 1,
		    "share of the cycles that are shared"),
	VB_OPT_STRING(
		O, think, "think", "TIME", NULL,
		"pause between two cycles of a client (0); of a trace: how long a transaction "
		"computes while it has its locks (the trace's own)"),
	VB_OPT_TIME(O, hold_ns, "hold", "0", 0, 3600 * SEC, "how long a lock is held"),
	VB_OPT_SIZE(
		O, rate, "rate", "0", 0, 1000000000000ull,
		"open loop: cycles per second of all clients together, as a Poisson process; adds "
		"response times measured from the intended starts (0: closed loop)"),
	VB_OPT_END};

static const struct vb_opt trace_table[] = {
	VB_OPT_STRING(O, workload_options, "workload-options", "LIST", NULL,
		      "the trace's own options, KEY=VALUE,...; `verbena list` shows them"),
	VB_OPT_STRING(O, trace, "trace", "FILE", NULL, "the same as --workload trace:FILE"),
	VB_OPT_CHOICE(
		O, order, "order", "sorted|trace", "sorted",
		"in which order a transaction takes its locks: by number, or as the trace has "
		"them, which needs --timeout because transactions may wait in a circle"),
	VB_OPT_SIZE(O, retries, "retries", "100", 0, 1000000,
		    "how often an aborted transaction is tried again before it is given up"),
	VB_OPT_TIME(
		O, backoff_ns, "backoff", "10us", 1, SEC,
		"mean span of the pause before that, doubled each time up to 10ms, and jittered"),
	VB_OPT_TIME(O, pause_ns, "pause", "0", 0, 3600 * SEC,
		    "pause between two transactions of a client"),
	VB_OPT_REAL(
		O, scan_rate, "scan-rate", "0", 0, 1,
		"chance that a transaction is a scan of a whole table; the others then lock that "
		"table, too"),
	VB_OPT_SIZE(O, data, "data", "0", 0, DATA_MAX,
		    "sim: while a transaction has its locks it READs so many bytes for each, one "
		    "after the other, and WRITEs them for each exclusive one in the end"),
	VB_OPT_TIME(O, scan_ns, "scan", NULL, 0, 3600 * SEC, "how long a scan has its table (1ms)"),
	VB_OPT_END};

static const struct vb_opt measure_table[] = {
	VB_OPT_TIME(O, duration_ns, "duration", NULL, 1000, 24 * 3600 * SEC,
		    "measured span of each lock (2s; sim: 50ms of virtual time)"),
	VB_OPT_STRING(O, warmup, "warmup", "TIME", NULL,
		      "span before it that does not count (a tenth of the duration)"),
	VB_OPT_TIME(O, stall_ns, "stall-after", "2s", 1000000, 3600 * SEC,
		    "no cycle of any client for so long ends the run as stalled"),
	VB_OPT_FLAG(O, no_audit, "no-audit", "do not watch the grants for violations"),
	VB_OPT_FLAG(O, breakdown, "breakdown",
		    "also print where the time goes (sim: always; shm: of every 32nd cycle)"),
	VB_OPT_STRING(O, json, "json", "FILE", NULL, "write the results as JSON; - is stdout"),
	VB_OPT_STRING(O, history, "history", "FILE", NULL,
		      "write the first 4 million beginnings and ends of calls, for `verbena check "
		      "history`"),
	VB_OPT_STRING(O, hgrm, "hgrm", "PREFIX", NULL,
		      "write each histogram to PREFIX.LOCK.WHAT.hgrm (microseconds)"),
	VB_OPT_END};
#undef O

const struct vb_opt_group *vb_bench_lock_groups(struct vb_bench_opts *opts, unsigned *n)
{
	static struct vb_opt_group groups[7];

	groups[0] = (struct vb_opt_group){"What runs", what_table, opts};
	groups[1] = vb_bench_cluster_group(&opts->cluster);
	groups[2] = (struct vb_opt_group){"Servers that run already", elastic_table, opts};
	groups[3] = (struct vb_opt_group){"Load", load_table, opts};
	groups[4] = (struct vb_opt_group){"Load: micro", micro_table, opts};
	groups[5] = (struct vb_opt_group){"Load: traces", trace_table, opts};
	groups[6] = (struct vb_opt_group){"Measuring and results", measure_table, opts};
	*n = VB_ARRAY_SIZE(groups);
	return groups;
}

static int plan_servers(struct vb_bench_plan *p)
{
	struct vb_bench_opts *o = &p->o;

	if (vb_bench_servers_named(o->servers_said))
		return vb_bench_elastic_plan(p);
	if (o->space != NULL || o->key != NULL)
		return vb_fail(-EINVAL, "--space and --key are for servers that run already: "
					"--servers HOST:PORT+HOST:PORT... says which");
	if (vb_parse_size(o->servers_said, &o->servers) != 0 || o->servers < 1 ||
	    o->servers > SERVERS_MAX)
		return vb_fail(-EINVAL,
			       "--servers %s: a number from 1 to %u is needed, or servers that run "
			       "already, HOST:PORT+HOST:PORT...",
			       o->servers_said, SERVERS_MAX);
	return 0;
}

static int plan_locks(struct vb_bench_plan *p)
{
	char text[1024], *save = NULL, hint[VB_HINT_BYTES];

	if (p->o.lock == NULL)
		p->o.lock = "all";
	if (strcmp(p->o.lock, "all") == 0) {
		p->o.all = true;
		while (vb_locks[p->o.runs] != NULL && p->o.runs < VB_BENCH_LOCKS) {
			p->lock[p->o.runs] = vb_locks[p->o.runs];
			p->o.runs++;
		}
		return 0;
	}
	if (strlen(p->o.lock) >= sizeof(text))
		return vb_fail(-EINVAL, "the list of locks is too long");
	strcpy(text, p->o.lock);
	for (char *name = strtok_r(text, ",", &save); name != NULL;
	     name = strtok_r(NULL, ",", &save)) {
		const struct vb_lock_ops *ops = vb_lock_find(name);

		if (ops == NULL)
			return vb_fail(-EINVAL,
				       "no lock is called '%s'%s; `verbena list` shows them all",
				       name, vb_did_you_mean_any(hint, name, vb_locks));
		if (p->o.runs == VB_BENCH_LOCKS)
			return vb_fail(-EINVAL, "more than %d locks in one run", VB_BENCH_LOCKS);
		if (p->o.fail_rate > 0 && !(ops->caps & VB_LOCK_SURVIVES))
			return vb_fail(
				-EINVAL,
				"'%s' does not survive its holder: with --fail-rate it would "
				"only stall; choose among the locks that do (`verbena list`)",
				name);
		p->lock[p->o.runs++] = ops;
	}
	if (p->o.runs == 0)
		return vb_fail(-EINVAL, "--lock names no lock; `verbena list` shows them all");
	return 0;
}

static int plan_nodes(struct vb_bench_opts *o)
{
	bool sim = o->fabric == VB_BENCH_SIM, net = vb_bench_in_group(&o->common);
	uint64_t workers;

	if (net)
		o->nodes = o->cluster.procs;
	if (o->nodes == 0)
		o->nodes = sim ? 6 : 1;
	workers = vb_bench_with_clients(o->cluster.procs, net ? o->servers : 0);
	if (o->clients < workers)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " clients in %" PRIu64 " processes: each process "
			       "needs a client",
			       o->clients, workers);
	if (o->servers > o->nodes)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " lock servers on %" PRIu64 " nodes: give more "
			       "--nodes or fewer --servers",
			       o->servers, o->nodes);
	if (o->locks != 0 && o->locks < o->servers)
		return vb_fail(-EINVAL, "%" PRIu64 " locks on %" PRIu64 " servers: each needs one",
			       o->locks, o->servers);
	return 0;
}

/* The same for what only this subject has. */
static int plan_fabric(struct vb_bench_plan *p)
{
	struct vb_bench_opts *o = &p->o;
	bool sim = o->fabric == VB_BENCH_SIM, net = vb_bench_in_group(&o->common);
	int err = vb_bench_plan_common(&o->common, SIM_DURATION_NS);

	if (err)
		return err;
	if (net && o->cluster.procs == 1)
		return vb_fail(-EINVAL,
			       "--procs 1: a lock server and at least one worker are needed");
	if (sim && o->cluster.procs != 0)
		return vb_fail(-EINVAL,
			       "--procs is for --fabric shm: a simulation has one process");
	if (o->visible && !net && o->segment == NULL)
		return vb_fail(-EINVAL, "--visible needs a segment with a name to be looked at by: "
					"--fabric shm --segment NAME");
	if (o->lease_ns == 0 && !vb_bench_is_net(o->fabric))
		o->lease_ns = sim ? VB_LEASE_VIRTUAL_NS : VB_LEASE_REAL_NS;
	if (o->clients == 0)
		o->clients = sim ? 240 : 8;
	if (o->cluster.procs == 0 && !o->cluster.launched)
		o->cluster.procs = (sim || o->clients < 2 ? 1 : 2) + (net ? o->servers : 0);
	if (o->elastic != NULL)
		return vb_bench_elastic_plan_nodes(p);
	return o->cluster.launched ? 0 : plan_nodes(o);
}

static int plan_think(struct vb_bench_plan *p)
{
	return vb_bench_plan_time("think", p->o.think, &p->o.think_ns);
}

uint64_t vb_bench_node_bytes(const struct vb_bench_plan *plan, const struct vb_lock_ops *ops)
{
	uint16_t nodes = plan->o.nodes != 0 ? (uint16_t)plan->o.nodes : 1;
	uint32_t entry = vb_lock_entry_bytes(ops, plan->o.lock_options, nodes);
	/* Room for a token as well; none for a lock that its protocol keeps elsewhere. */
	uint64_t each = entry != 0 ? (entry + sizeof(uint64_t) + 15) & ~15ull : 0;
	uint64_t locks = plan->o.locks / plan->o.servers + 1;

	/* The header, other regions of the protocol, and the fabric's own alignment. */
	return (locks * (each + plan->o.data) + (1 << 20) + (plan->o.visible ? VB_BOARD_BYTES : 0) +
		4095) &
	       ~4095ull;
}

static int plan_memory(struct vb_bench_plan *p)
{
	uint64_t most = 0;
	uint16_t nodes = p->o.nodes != 0 ? (uint16_t)p->o.nodes : 1;
	char what[32];

	if (p->o.elastic != NULL) /* it is there */
		return 0;
	for (unsigned i = 0; i < p->o.runs; i++) {
		const struct vb_lock_ops *ops = p->lock[i];
		uint64_t bytes;

		/* Wrong options are told once, not wherever the entry's size is asked for. */
		if (ops->shape != NULL && vb_lock_entry_bytes(ops, p->o.lock_options, nodes) == 0)
			return -EINVAL;
		bytes = vb_bench_node_bytes(p, ops) * p->o.servers;
		if (bytes > most)
			most = bytes;
	}
	snprintf(what, sizeof(what), "%" PRIu64 " locks", p->o.locks);
	return vb_bench_plan_memory(&p->o.common, most, what, "fewer --locks");
}

/* The histograms are written at the end; that their directory is there can be seen now. */
static int plan_hgrm(struct vb_bench_plan *p)
{
	const char *prefix = p->o.hgrm;

	if (prefix == NULL || vb_bench_can_write_beside(prefix))
		return 0;
	if (errno == ENAMETOOLONG)
		return vb_fail(-ENAMETOOLONG, "--hgrm: the name is too long");
	return vb_fail(-errno, "cannot write %s.*.hgrm: %s", prefix, strerror(errno));
}

/* ---- the workload ---- */

static int plan_micro(struct vb_bench_plan *p)
{
	const struct vb_bench_opts *o = &p->o;

	if (o->workload_options != NULL || o->order != VB_BENCH_SORTED || o->pause_ns != 0 ||
	    o->scan_rate > 0 || o->scan_ns != 0 || o->data != 0)
		return vb_fail(
			-EINVAL,
			"--workload-options, --order, --pause, --scan-rate, --scan and --data are "
			"for traces: choose one with --workload");
	if (p->o.dist == NULL)
		p->o.dist = MICRO_DIST;
	if (p->o.locks == 0)
		p->o.locks = MICRO_LOCKS;
	return 0;
}

/* What can be told before the trace is there. */
static int plan_tracing(struct vb_bench_plan *p)
{
	struct vb_bench_opts *o = &p->o;

	if (o->trace != NULL) {
		if (strcmp(o->workload, "micro") != 0)
			return vb_fail(-EINVAL, "--trace and --workload %s: say one of them",
				       o->workload);
		if ((size_t)snprintf(p->trace_name, sizeof(p->trace_name), VB_TRACE_FILE "%s",
				     o->trace) >= sizeof(p->trace_name))
			return vb_fail(-ENAMETOOLONG, "--trace: the name is too long");
		o->workload = p->trace_name;
	}
	if (strcmp(o->workload, "micro") == 0)
		return plan_micro(p);
	p->tracing = true;
	if (o->dist != NULL || o->hold_ns != 0 || o->rate != 0)
		return vb_fail(-EINVAL, "--dist, --hold and --rate are for --workload micro");
	if (o->order == VB_BENCH_AS_TRACED && o->timeout_ns == 0)
		return vb_fail(-EINVAL, "--order trace: transactions may wait for each other in a "
					"circle; say with --timeout when one gives up");
	if (o->data != 0 && o->fabric != VB_BENCH_SIM)
		return vb_fail(-EINVAL, "--data is for --fabric sim");
	if (o->scan_rate > 0 && o->scan_ns == 0)
		o->scan_ns = SCAN_NS;
	if (!(o->scan_rate > 0) && o->scan_ns != 0)
		return vb_fail(-EINVAL, "--scan: say with --scan-rate how many there are");
	return 0;
}

static bool is_file(const char *workload)
{
	return strncmp(workload, VB_TRACE_FILE, strlen(VB_TRACE_FILE)) == 0;
}

static int plan_trace(struct vb_bench_plan *p)
{
	struct vb_bench_opts *o = &p->o;
	struct vb_trace_params t = {
		.options = o->workload_options,
		.clients = (unsigned)o->clients,
		.hosts = (unsigned)vb_bench_with_clients(o->nodes, o->servers),
		.servers = (unsigned)o->servers,
		.seed = o->seed,
		.scan_rate = o->scan_rate,
		.scan_ns = o->scan_ns,
	};
	int err;

	if (!p->tracing || p->trace.ops != NULL)
		return 0;
	/* Only the launcher knows how many processes, and so nodes, there are; a file does not
	 * ask. */
	if (o->nodes == 0 && !is_file(o->workload))
		return 0;
	err = vb_trace_open(&p->trace, o->workload, &t);
	if (err)
		return err;
	if (o->locks != 0 && o->locks < p->trace.locks)
		return vb_fail(-EINVAL,
			       "--locks %" PRIu64 ": the trace '%s' needs %" PRIu64
			       "; leave it out, or give more",
			       o->locks, o->workload, p->trace.locks);
	for (unsigned i = 0; i < o->runs && !o->all; i++)
		if (vb_bench_lacks_modes(p, p->lock[i]) != NULL)
			return vb_fail(-EOPNOTSUPP, "'%s' %s", p->lock[i]->name,
				       vb_bench_lacks_modes(p, p->lock[i]));
	if (o->locks == 0)
		o->locks = p->trace.locks > o->servers ? p->trace.locks : o->servers;
	if (o->think != NULL)
		p->trace.think_ns = o->think_ns;
	o->think_ns = p->trace.think_ns;
	return 0;
}

const char *vb_bench_lacks_modes(const struct vb_bench_plan *p, const struct vb_lock_ops *ops)
{
	const uint32_t intent = 1u << VB_INTENT_SHARED | 1u << VB_INTENT_EXCLUSIVE |
				1u << VB_SHARED_INTENT_EXCLUSIVE;

	if (!p->tracing || !(p->trace.modes & intent) || ops->caps & VB_LOCK_INTENT)
		return NULL;
	return "has no intention modes, which this trace has (tpcc-rows also does without: "
	       "--workload-options levels=rows)";
}

void vb_bench_plan_close(void *plan)
{
	struct vb_bench_plan *p = plan;

	vb_trace_close(&p->trace);
	free(p->space_options);
}

static int plan_history(struct vb_bench_plan *p)
{
	if (p->o.history == NULL)
		return 0;
	if (p->o.runs > 1)
		return vb_fail(
			-EINVAL,
			"--history is for one run, and this is %u: name one lock with --lock",
			p->o.runs);
	if (vb_bench_is_net(p->o.fabric))
		return vb_fail(-EINVAL, "--history is of one machine: --fabric sim or shm");
	return 0;
}

static int init_micro(struct vb_bench_plan *p)
{
	struct vb_micro_params micro = {
		.dist = p->o.dist,
		.locks = p->o.locks,
		.read_ratio = p->o.read_ratio,
		.fail_rate = p->o.fail_rate,
		.rate = (double)p->o.rate,
		.clients = (unsigned)p->o.clients,
	};

	return p->tracing ? 0 : vb_micro_init(&p->micro, &micro);
}

int vb_bench_plan(const void *opts, void *plan)
{
	static int (*const steps[])(struct vb_bench_plan *) = {
		plan_servers, plan_locks,  plan_tracing, plan_fabric,  plan_think,
		plan_trace,   plan_memory, plan_hgrm,    plan_history, init_micro,
	};
	struct vb_bench_plan *p = plan;
	int err = 0;

	*p = (struct vb_bench_plan){.o = *(const struct vb_bench_opts *)opts};
	for (unsigned i = 0; i < VB_ARRAY_SIZE(steps) && err == 0; i++)
		err = steps[i](p);
	return err;
}

/* ---- on a network ---- */

void vb_bench_plan_put(FILE *to, void *plan)
{
	struct vb_bench_plan *p = plan;
	unsigned n;
	const struct vb_opt_group *groups = vb_bench_lock_groups(&p->o, &n);

	for (unsigned g = 0; g < n; g++)
		vb_bench_put_options(to, &groups[g]);
	fprintf(to, "--warmup=%" PRIu64 "ns\n--think=%" PRIu64 "ns\n", p->o.warmup_ns,
		p->o.think_ns);
	fprintf(to, "what the trace says=%016" PRIx64 "\n", p->trace.digest);
}

int vb_bench_plan_nodes(void *plan)
{
	struct vb_bench_plan *p = plan;
	int err = plan_nodes(&p->o);

	return err != 0 ? err : plan_trace(p);
}
