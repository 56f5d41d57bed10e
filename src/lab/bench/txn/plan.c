/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `verbena bench txn`, and what can be told about them before anything is made. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/testbed.h"
#include "lab/bench/txn/txn.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/servers.h"

#define SEC 1000000000ull
#define MIB (1ull << 20)

#define SIM_DURATION_NS 10000000ull
#define SNAPSHOT_LAG_NS 200000ull
#define SHM_STALL_NS    (5 * SEC)
#define SIM_STALL_NS    500000000ull /* ten leases */

static const char *const testbeds[] = {
	NULL,
	VB_TESTBED_RCC ",handlers=10 threads=10 coroutines=1",
	VB_TESTBED_CORES ",handlers=16 threads=16 coroutines=1",
	VB_TESTBED_RCBENCH " threads=24 coroutines=8",
};

#define O struct vb_tbench_opts
static const struct vb_opt what_table[] = {
	VB_OPT_STRING(O, cc, "cc", "NAMES", NULL,
		      "concurrency-control protocols to run, one after the other: all, or names "
		      "with commas between them; `verbena list` shows them (all)"),
	VB_OPT_STRING(O, hybrid, "hybrid", "CODE", NULL,
		      "which stages run by RPC and not one-sided: none, rpc (every one), both (one "
		      "run with none and one with rpc), all (a run for each code), or one digit 0 "
		      "or 1 for each stage of the protocol (none; with --cc all: both); with "
		      "--copies there may be one more, for the log's. "
		      "drtm-h is a name for one code, and runs with that one only"),
	VB_OPT_CHOICE(
		O, fabric, "fabric", "shm|sim|tcp|ucx|verbs", "shm",
		"shm: processes on shared memory; sim: a simulated cluster in virtual time; tcp, "
		"ucx, verbs: processes that reach each other over TCP, through UCX or by an RDMA "
		"card, each a "
		"node"),
	VB_OPT_PRESET(O, testbed, "testbed", "none|rcc|thousands-of-cores|rcbench", "none",
		      testbeds, VB_BENCH_TESTBED_HELP),
	VB_OPT_STRING(O, fabric_options, "fabric-options", "LIST", NULL,
		      "the fabric's own options, KEY=VALUE,...; `verbena list` shows them (sim: "
		      "scope=global, atomics of the CPU and of the card know of each other)"),
	VB_OPT_SIZE(O, nodes, "nodes", NULL, 1, 256, "shm, sim: number of nodes (2; sim: 4)"),
	VB_OPT_SIZE(O, cluster.procs, "procs", NULL, 1, 256,
		    "tcp, ucx, verbs: processes, each a node; with --servers, clients' (2)"),
	VB_OPT_SIZE(O, threads, "threads", "1", 1, 256,
		    "workers of each node; on shm each is a process, and the first of each node is "
		    "its server too"),
	VB_OPT_SIZE(O, coroutines, "coroutines", "8", 1, 4096,
		    "clients of each worker, which it runs in turn"),
	VB_OPT_STRING(O, segment, "segment", "NAME", NULL,
		      "shm: name of the segment (none: private to this run)"),
	VB_OPT_STRING(O, profile, "profile", "NAME", NULL, "sim: model of the network (cx5)"),
	VB_OPT_END};

static const struct vb_opt served_table[] = {
	VB_OPT_STRING(O, servers, "servers", "LIST", NULL,
		      "who they are, HOST:PORT+HOST:PORT... or a file (with a / in its name) with "
		      "a line for each: this run is a client of theirs"),
	VB_OPT_STRING(O, database, "database", "DATABASE", NULL,
		      "which of their databases, in the words of `verbena serve`: "
		      "NAME:cc=PROTOCOL,...,workload=NAME,..."),
	VB_OPT_STRING(O, key, "key", "FILE", NULL, VB_BENCH_KEY_HELP), VB_OPT_END};

static const struct vb_opt engine_table[] = {
	VB_OPT_CHOICE(O, recovery, "recovery", "on|off", "on",
		      "log every commit, so that others can finish or undo what a dead coordinator "
		      "has left"),
	VB_OPT_CHOICE(
		O, isolation, "isolation", "serializable|repeatable-read|read-committed|snapshot",
		"serializable",
		"what every transaction asks for; with less than serializable, which only some "
		"protocols offer (`verbena list`), sums that transactions keep by what they "
		"have read need not hold: only locks that are left are judged"),
	VB_OPT_TIME(O, lease_ns, "lease", NULL, 1000, 3600 * SEC,
		    "how long a transaction may take before others recover it (50ms, or four times "
		    "what the fabric lets a verb be late)"),
	VB_OPT_TIME(O, snapshot_lag_ns, "snapshot-lag", NULL, 1000, 3600 * SEC,
		    "mvcc, mvcc-rcc: how old a snapshot is, and so how long who writes may take "
		    "(200us with "
		    "--isolation snapshot, else the lease)"),
	VB_OPT_TIME(O, wait_ns, "wait", NULL, 1000, 3600 * SEC,
		    "bounded-wait, votes, dslr-2pl: the longest that a lock is waited for (a 64th "
		    "of the "
		    "lease)"),
	VB_OPT_SIZE(O, hot_from, "hot-from", NULL, 1, 64,
		    "mocc: from what temperature on a record is waited for before it is read (4)"),
	VB_OPT_SIZE(O, copies, "copies", "0", 0, VB_COPIES_MAX,
		    "on how many other nodes each commit writes its log before it is committed"),
	VB_OPT_FLAG(O, no_doorbell, "no-doorbell", "each verb rings a doorbell of its own"),
	VB_OPT_FLAG(O, no_outstanding, "no-outstanding",
		    "each verb is waited for before the next is posted"),
	VB_OPT_FLAG(O, passive_ack, "passive-ack",
		    "a commit does not wait until its writes have arrived"),
	VB_OPT_END};

static const struct vb_opt load_table[] = {
	VB_OPT_STRING(O, workload, "workload", "NAME", NULL,
		      "what the transactions do: ycsb, ycsb-e, smallbank, bank, tatp or "
		      "tpcc (ycsb)"),
	VB_OPT_SIZE(O, seed, "seed", "1", 0, INT64_MAX, "decides every random choice"), VB_OPT_END};

static const struct vb_opt measure_table[] = {
	VB_OPT_TIME(O, duration_ns, "duration", NULL, 1000, 24 * 3600 * SEC,
		    "measured span of each run (2s; sim: 10ms of virtual time)"),
	VB_OPT_STRING(O, warmup, "warmup", "TIME", NULL,
		      "span before it that does not count (a tenth of the duration)"),
	VB_OPT_TIME(
		O, stall_ns, "stall-after", NULL, 1000000, 3600 * SEC,
		"no commit of any client for so long ends the run as stalled (5s; sim: 500ms of "
		"virtual time)"),
	VB_OPT_FLAG(O, no_breakdown, "no-breakdown",
		    "do not time the stages, which costs shm some reads of the clock"),
	VB_OPT_FLAG(O, check, "check",
		    "record what every transaction has read and written, and check that they were "
		    "serializable; a history that has no more room ends the run"),
	VB_OPT_SIZE(O, history_bytes, "history-bytes", "512mi", 1u << 16, 1ull << 40,
		    "room of each worker's history, for --check"),
	VB_OPT_STRING(O, history, "history", "FILE", NULL,
		      "write the history, for `verbena check history`; only for one run at a time; "
		      "implies --check"),
	VB_OPT_STRING(O, json, "json", "FILE", NULL, "write the results as JSON; - is stdout"),
	VB_OPT_END};
#undef O

/* ---- the workloads' own options ---- */

#define OPTIONS_MAX 256
static union {
	char bytes[OPTIONS_MAX];
	uint64_t align;
} load_options[VB_TBENCH_LOADS_MAX];
static unsigned preferred;

void vb_tbench_prefer(int argc, char **argv)
{
	static const char option[] = "--workload";
	const size_t len = sizeof(option) - 1;

	for (int i = 0; i < argc; i++) {
		const char *name = NULL;

		if (strncmp(argv[i], option, len) != 0)
			continue;
		if (argv[i][len] == '=')
			name = argv[i] + len + 1;
		else if (argv[i][len] == '\0' && i + 1 < argc)
			name = argv[i + 1];
		for (unsigned k = 0; name != NULL && vb_loads[k] != NULL; k++)
			if (strcmp(vb_loads[k]->name, name) == 0)
				preferred = k;
	}
}

const struct vb_opt_group *vb_tbench_groups(struct vb_tbench_opts *opts, unsigned *n)
{
	static struct vb_opt_group groups[6 + VB_TBENCH_LOADS_MAX];
	static char titles[VB_TBENCH_LOADS_MAX][64];

	*n = 0;
	groups[(*n)++] = (struct vb_opt_group){"What runs", what_table, opts};
	groups[(*n)++] = vb_bench_cluster_group(&opts->cluster);
	groups[(*n)++] = (struct vb_opt_group){"Servers that run already", served_table, opts};
	groups[(*n)++] = (struct vb_opt_group){"Engine", engine_table, opts};
	groups[(*n)++] = (struct vb_opt_group){"Load", load_table, opts};
	for (unsigned turn = 0; turn < 2; turn++) {
		for (unsigned k = 0; vb_loads[k] != NULL; k++) {
			if ((k == preferred) != (turn == 0))
				continue;
			vb_assert(k < VB_TBENCH_LOADS_MAX &&
				  vb_loads[k]->options_bytes <= OPTIONS_MAX);
			snprintf(titles[k], sizeof(titles[k]), "Load '%s'", vb_loads[k]->name);
			groups[(*n)++] = (struct vb_opt_group){titles[k], vb_loads[k]->options,
							       load_options[k].bytes};
		}
	}
	groups[(*n)++] = (struct vb_opt_group){"Measuring and results", measure_table, opts};
	return groups;
}

static size_t size_of(enum vb_opt_kind kind)
{
	switch (kind) {
	case VB_OPT_KIND_FLAG:
		return sizeof(bool);
	case VB_OPT_KIND_CHOICE:
		return sizeof(int);
	case VB_OPT_KIND_REAL:
		return sizeof(double);
	case VB_OPT_KIND_STRING:
		return sizeof(char *);
	default:
		return sizeof(uint64_t);
	}
}

/* An option that only another workload has would be ignored: refused; and any of one that --database names. */
static int refuse_others(const struct vb_load_ops *chosen, bool served)
{
	for (unsigned k = 0; vb_loads[k] != NULL; k++) {
		char plain[OPTIONS_MAX] VB_ALIGNED(16) = {0};

		if (vb_loads[k] == chosen && !served)
			continue;
		vb_opt_defaults(vb_loads[k]->options, plain);
		for (const struct vb_opt *o = vb_loads[k]->options; o->kind != VB_OPT_KIND_END; o++)
			if (memcmp(plain + o->offset, load_options[k].bytes + o->offset,
				   size_of(o->kind)) != 0)
				return served ? vb_fail(-EINVAL,
							"leave out --%s: --database says it, "
							"behind workload=%s",
							o->name, chosen->name)
					      : vb_fail(-EINVAL,
							"--%s is an option of --workload %s, and "
							"this is '%s'",
							o->name, vb_loads[k]->name, chosen->name);
	}
	return 0;
}

static int plan_load(struct vb_tbench_plan *p)
{
	char hint[VB_HINT_BYTES];

	for (unsigned k = 0; vb_loads[k] != NULL; k++) {
		if (strcmp(vb_loads[k]->name, p->o.workload) != 0)
			continue;
		p->load = vb_loads[k];
		p->load_options = p->served != NULL ? (const void *)p->served->load_options.bytes
						    : load_options[k].bytes;
		return refuse_others(p->load, p->served != NULL);
	}
	return vb_fail(-EINVAL,
		       "no workload is called '%s'%s; `verbena list` shows "
		       "them all",
		       p->o.workload, vb_did_you_mean_any(hint, p->o.workload, vb_loads));
}

/* ---- which runs ---- */

/* Of a hybrid code. */
static unsigned digits_of(const struct vb_tbench_plan *p, const struct vb_cc_ops *cc)
{
	return cc->n_stages + (p->o.copies != 0 && !vb_cc_at_home(cc));
}

static int add_run(struct vb_tbench_plan *p, const struct vb_cc_ops *cc, uint32_t code)
{
	struct vb_tbench_one *more = realloc(p->run, (p->o.runs + 1) * sizeof(*more)), *one;
	const unsigned digits = digits_of(p, cc);

	if (more == NULL)
		return vb_fail(-ENOMEM, "no memory for a plan of %u runs", p->o.runs + 1);
	p->run = more;
	one = &more[p->o.runs++];
	*one = (struct vb_tbench_one){.cc = cc};
	vb_assert(digits < sizeof(one->code));
	for (unsigned i = 0; i < digits; i++)
		one->code[i] = code >> i & 1 ? '1' : '0';
	return 0;
}

static bool offers(const struct vb_tbench_plan *p, const struct vb_cc_ops *cc)
{
	return vb_cc_offers(cc, (enum vb_isolation)p->o.isolation);
}

static bool every_code(const struct vb_tbench_plan *p)
{
	return p->o.hybrid != NULL && strcmp(p->o.hybrid, "all") == 0;
}

static int add_protocol(struct vb_tbench_plan *p, const struct vb_cc_ops *cc)
{
	const char *code = p->o.hybrid != NULL ? p->o.hybrid : p->o.all ? "both" : "none";
	uint32_t every = (1u << digits_of(p, cc)) - 1, mask = 0;
	int err = 0;

	if (cc->code != NULL && (p->o.hybrid == NULL || every_code(p)))
		code = cc->code;
	if (!vb_cc_takes(cc, code))
		return vb_cc_code(cc, code, "", &mask);
	if (strcmp(code, "none") == 0)
		return add_run(p, cc, 0);
	if (strcmp(code, "rpc") == 0)
		return add_run(p, cc, every);
	if (strcmp(code, "both") == 0) {
		err = add_run(p, cc, 0);
		return err ? err : add_run(p, cc, every);
	}
	if (strcmp(code, "all") == 0) {
		for (mask = 0; mask <= every && err == 0; mask++)
			err = add_run(p, cc, mask);
		return err;
	}
	err = vb_cc_code(cc, code, "; or say none, rpc, both or all", &mask);
	if (err == 0 && strlen(code) > digits_of(p, cc))
		return vb_fail(-EINVAL,
			       "--hybrid %s: its last digit is how the copies of the log are "
			       "written, and there are none; leave it out, or say --copies",
			       code);
	return err ? err : add_run(p, cc, mask);
}

/* An option that no run of the plan heeds would be ignored: refused. */
static int check_wait(const struct vb_tbench_plan *p)
{
	for (unsigned i = 0; i < p->o.runs; i++)
		if (p->run[i].cc->caps & VB_CC_BOUNDED)
			return 0;
	if (p->o.wait_ns == 0)
		return 0;
	return vb_fail(-EINVAL,
		       "--wait is for bounded-wait, bounded-wait-sx, votes and dslr-2pl, and --cc "
		       "is '%s'",
		       p->o.cc);
}

static int check_heat(const struct vb_tbench_plan *p)
{
	for (unsigned i = 0; i < p->o.runs; i++)
		if (p->run[i].cc->caps & VB_CC_HEATS)
			return 0;
	if (p->o.hot_from == 0)
		return 0;
	return vb_fail(-EINVAL, "--hot-from is for mocc, and --cc is '%s'", p->o.cc);
}

static int check_lag(const struct vb_tbench_plan *p)
{
	for (unsigned i = 0; i < p->o.runs; i++)
		if (p->run[i].cc->caps & VB_CC_SNAPSHOTS)
			return 0;
	if (p->o.snapshot_lag_ns == 0)
		return 0;
	return vb_fail(-EINVAL, "--snapshot-lag is for mvcc and mvcc-rcc, and --cc is '%s'",
		       p->o.cc);
}

/* How the copies of the log are written all processes of a database agree on, and its servers know of no code. */
static int check_copies(const struct vb_tbench_plan *p)
{
	if (p->served == NULL || p->o.copies == 0)
		return 0;
	for (unsigned i = 0; i < p->o.runs; i++)
		if (p->run[i].code[p->run[i].cc->n_stages] == '1')
			return vb_fail(-EINVAL,
				       "--hybrid: the copies of the log of '%s' are written "
				       "one-sided; give a code of %u digits, or one that ends "
				       "with 0",
				       p->served->name, p->run[i].cc->n_stages);
	return 0;
}

/* Who wants all that is touched to be declared, of a workload that does not. */
static int check_declared(const struct vb_tbench_plan *p)
{
	struct vb_load load;
	bool declares;
	/* How many nodes servers have nobody knows yet: the workload was read for one. */
	int err = vb_load_init(&load, p->load, p->load_options,
			       (uint16_t)(p->served == NULL ? p->o.nodes : 1), p->o.seed);

	if (err)
		return err;
	declares = p->load->declares != NULL && p->load->declares(&load);
	vb_load_close(&load);
	for (unsigned i = 0; i < p->o.runs && !declares; i++)
		if (vb_cc_sequenced(p->run[i].cc))
			return vb_fail(
				-EINVAL,
				"'%s' wants all that a transaction touches to be declared in one "
				"call, and the workload '%s' does not do that; bank, smallbank and "
				"ycsb do, without --no-declare, and tpcc with --ahead",
				p->run[i].cc->name, p->load->name);
	return 0;
}

static int plan_runs(struct vb_tbench_plan *p)
{
	char text[1024], *save = NULL, hint[VB_HINT_BYTES];
	int err = 0;

	if (strcmp(p->o.cc, "all") == 0) {
		p->o.all = true;
		for (const struct vb_cc_ops *const *c = vb_ccs; *c != NULL && err == 0; c++)
			if (offers(p, *c) && (vb_cc_takes(*c, p->o.hybrid) || every_code(p)))
				err = add_protocol(p, *c);
		return err;
	}
	if (strlen(p->o.cc) >= sizeof(text))
		return vb_fail(-EINVAL, "the list of protocols is too long");
	strcpy(text, p->o.cc);
	for (char *name = strtok_r(text, ",", &save); name != NULL && err == 0;
	     name = strtok_r(NULL, ",", &save)) {
		const struct vb_cc_ops *cc = vb_cc_find(name);

		if (cc == NULL)
			return vb_fail(-EINVAL,
				       "no protocol is called '%s'%s; `verbena list` shows them "
				       "all",
				       name, vb_did_you_mean_any(hint, name, vb_ccs));
		if (!offers(p, cc))
			return vb_fail(-EINVAL,
				       "--isolation: '%s' does not offer that; `verbena list` "
				       "shows what each protocol offers",
				       name);
		err = add_protocol(p, cc);
	}
	if (err == 0 && p->o.runs == 0)
		return vb_fail(-EINVAL, "--cc names no protocol; `verbena list` shows them all");
	return err;
}

/* ---- fabric, times, memory ---- */

/* How many processes there are, unless only a launcher knows. */
static int plan_procs(struct vb_tbench_opts *o)
{
	if (o->cluster.procs == 1)
		return vb_fail(-EINVAL, "--procs 1: at least two are needed on '%s'",
			       vb_bench_fabric_names[o->fabric]);
	if (o->threads != 1)
		return vb_fail(-EINVAL,
			       "on '%s' a node is one process with one thread: say --procs and "
			       "--coroutines, not --threads",
			       vb_bench_fabric_names[o->fabric]);
	if (o->cluster.launched)
		return 0;
	if (o->cluster.procs == 0)
		o->cluster.procs = 2;
	o->nodes = o->cluster.procs;
	return 0;
}

static int plan_fabric(struct vb_tbench_opts *o)
{
	bool sim = o->fabric == VB_BENCH_SIM, net = vb_bench_in_group(&o->common);
	int err = vb_bench_plan_common(&o->common, SIM_DURATION_NS);

	if (err)
		return err;
	if (o->stall_ns == 0)
		o->stall_ns = sim ? SIM_STALL_NS : SHM_STALL_NS;
	if (net)
		return plan_procs(o);
	if (o->elastic != NULL) /* the servers say how many nodes there are */
		return 0;
	if (o->cluster.procs != 0)
		return vb_fail(-EINVAL,
			       "--procs is for --fabric tcp, ucx and verbs: say --nodes and "
			       "--threads");
	if (o->nodes == 0)
		o->nodes = sim ? 4 : 2;
	if (sim && o->nodes == 1 &&
	    (o->fabric_options == NULL || strstr(o->fabric_options, "scope=nic") == NULL))
		return vb_fail(
			-EINVAL,
			"one simulated node: what a node does with its own records takes no "
			"virtual time, so the run would not end; take more nodes, or "
			"--fabric-options scope=nic, where they are reached through the NIC");
	return 0;
}

static int plan_clients(const struct vb_tbench_plan *p)
{
	const struct vb_tbench_opts *o = &p->o;

	if (vb_tbench_workers(p) > VB_TBENCH_WORKERS_MAX)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " nodes with %" PRIu64
			       " threads each: at most %u workers are possible",
			       o->nodes, o->threads, VB_TBENCH_WORKERS_MAX);
	if (p->served != NULL && vb_tbench_clients(p) > VB_TBENCH_CLIENTS_MAX)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " processes with %" PRIu64
			       " coroutines each are too many: at most %u clients are possible",
			       o->cluster.procs, o->coroutines, VB_TBENCH_CLIENTS_MAX);
	if (vb_tbench_clients(p) > VB_TBENCH_CLIENTS_MAX)
		return vb_fail(-EINVAL,
			       "%" PRIu64 " nodes, %" PRIu64 " threads each and %" PRIu64
			       " coroutines on each are too many: at most %u clients are possible",
			       o->nodes, o->threads, o->coroutines, VB_TBENCH_CLIENTS_MAX);
	return 0;
}

/* The history is written at the end; that it can be is seen now. */
static bool can_write(const char *path)
{
	if (access(path, W_OK) == 0)
		return true;
	return errno == ENOENT && vb_bench_can_write_beside(path);
}

static int plan_history(struct vb_tbench_plan *p)
{
	if (p->o.history == NULL)
		return 0;
	p->o.check = true;
	if (p->o.runs > 1)
		return vb_fail(-EINVAL,
			       "--history is for one run, and this is %u: name one protocol with "
			       "--cc, and one --hybrid code",
			       p->o.runs);
	if (strcmp(p->o.history, "-") != 0 && !can_write(p->o.history))
		return vb_fail(-errno, "cannot write %s: %s", p->o.history, strerror(errno));
	if (strcmp(p->o.history, "-") == 0 && p->o.json != NULL && strcmp(p->o.json, "-") == 0)
		return vb_fail(-EINVAL, "--json and --history cannot both write to stdout");
	return 0;
}

/* A lease would be longer than a simulated run, in which nobody could then write a record twice. */
static uint64_t lag_of(const struct vb_tbench_opts *o)
{
	if (o->snapshot_lag_ns != 0 || o->isolation != VB_SNAPSHOT)
		return o->snapshot_lag_ns;
	return SNAPSHOT_LAG_NS;
}

void vb_tbench_db_params(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
			 const struct vb_load *load, struct vb_db_params *p)
{
	const struct vb_tbench_opts *o = &plan->o;

	*p = (struct vb_db_params){
		.cc = one->cc->name,
		.coordinators = (uint32_t)(o->threads * o->coroutines),
		.lease_ns = o->lease_ns,
		.snapshot_lag_ns = one->cc->caps & VB_CC_SNAPSHOTS ? lag_of(o) : 0,
		.no_recovery = o->recovery != 0,
		.copies = (uint32_t)o->copies,
	};
	if (plan->served != NULL)
		vb_serve_db_params(plan->served, load, p);
	p->hybrid = one->code;
	p->wait_ns = one->cc->caps & VB_CC_BOUNDED ? o->wait_ns : 0;
	p->hot_from = one->cc->caps & VB_CC_HEATS ? (uint32_t)o->hot_from : 0;
	p->no_doorbell = o->no_doorbell;
	p->no_outstanding = o->no_outstanding;
	p->passive_ack = o->passive_ack;
	if (plan->served != NULL)
		return;
	/* One more, for who sweeps up after the dead; without it there is no place for him if all
	 * of node 0 have died. */
	if (o->fabric == VB_BENCH_SHM &&
	    p->coordinators * o->nodes + o->nodes <= VB_TBENCH_CLIENTS_MAX)
		p->coordinators++;
	vb_load_db_params(load, p);
	/* What is read again, or written, after it was read and let go is another record. */
	if (o->isolation != VB_SERIALIZABLE && o->isolation != VB_SNAPSHOT) {
		p->items_max =
			p->items_max < VB_TXN_ITEMS_MAX / 2 ? 2 * p->items_max : VB_TXN_ITEMS_MAX;
		p->bytes_max *= 2;
	}
}

uint64_t vb_tbench_node_bytes(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
			      const struct vb_load *load)
{
	struct vb_db_params p;

	vb_tbench_db_params(plan, one, load, &p);
	/* The header of the segment, and what the fabric rounds up. */
	return (vb_db_node_bytes(&p, load->nodes) + vb_load_node_bytes(load, &p) + MIB + 4095) &
	       ~4095ull;
}

static uint64_t untouched_bytes(const struct vb_tbench_plan *plan, const struct vb_tbench_one *one,
				const struct vb_load *load)
{
	struct vb_db_params p;

	vb_tbench_db_params(plan, one, load, &p);
	return vb_db_node_bytes(&p, load->nodes) - vb_db_node_touched(&p, load->nodes);
}

static int plan_memory(const struct vb_tbench_plan *p)
{
	uint64_t most = 0;
	/* How many of a network's processes are on this machine is not known yet: one is. */
	uint64_t here = vb_bench_is_net(p->o.fabric) ? 1 : p->o.nodes;
	struct vb_load load;
	char what[48];
	int err = vb_load_init(&load, p->load, p->load_options, (uint16_t)p->o.nodes, p->o.seed);

	if (err)
		return err;
	for (unsigned i = 0; i < p->o.runs; i++) {
		uint64_t bytes = vb_tbench_node_bytes(p, &p->run[i], &load);

		/* There nothing is taken before it is touched, and clients are many. */
		if (p->o.fabric == VB_BENCH_SIM)
			bytes -= untouched_bytes(p, &p->run[i], &load);
		bytes *= here;
		most = bytes > most ? bytes : most;
	}
	vb_load_close(&load);
	snprintf(what, sizeof(what), "the tables on %" PRIu64 " nodes", p->o.nodes);
	return vb_bench_plan_memory(&p->o.common, most, what, "fewer or smaller records");
}

static int plan_servers(struct vb_tbench_plan *p)
{
	struct vb_tbench_opts *o = &p->o;
	int err = 0;

	if (o->servers != NULL)
		err = vb_tbench_served_plan(p);
	else if (o->database != NULL || o->key != NULL)
		err = vb_fail(-EINVAL, "--database and --key are for servers that run already: "
				       "--servers HOST:PORT+HOST:PORT... says which");
	if (o->cc == NULL)
		o->cc = "all";
	if (o->workload == NULL)
		o->workload = "ycsb";
	return err;
}

int vb_tbench_plan(const void *opts, void *plan)
{
	struct vb_tbench_plan *p = plan;
	int err;

	*p = (struct vb_tbench_plan){.o = *(const struct vb_tbench_opts *)opts};
	err = plan_servers(p);
	if (err == 0)
		err = plan_load(p);
	if (err == 0)
		err = plan_runs(p);
	if (err == 0)
		err = check_wait(p);
	if (err == 0)
		err = check_heat(p);
	if (err == 0)
		err = check_lag(p);
	if (err == 0)
		err = check_copies(p);
	if (err == 0)
		err = plan_fabric(&p->o);
	if (err == 0)
		err = plan_history(p);
	if (err == 0 && p->served != NULL)
		err = check_declared(p);
	if (err == 0 && p->served != NULL)
		err = plan_clients(p);
	else if (err == 0 && p->o.nodes != 0)
		err = vb_tbench_plan_nodes(p);
	if (err)
		vb_tbench_plan_free(p);
	return err;
}

int vb_tbench_plan_nodes(void *plan)
{
	struct vb_tbench_plan *p = plan;
	int err;

	if (vb_bench_is_net(p->o.fabric))
		p->o.nodes = p->o.cluster.procs;
	err = check_declared(p);
	if (err == 0)
		err = plan_clients(p);
	return err ? err : plan_memory(p);
}

static bool is_other_load(const struct vb_tbench_plan *p, const struct vb_opt_group *group)
{
	for (unsigned k = 0; vb_loads[k] != NULL; k++)
		if (group->table == vb_loads[k]->options)
			return vb_loads[k] != p->load;
	return false;
}

void vb_tbench_plan_put(FILE *to, void *plan)
{
	struct vb_tbench_plan *p = plan;
	unsigned n;
	const struct vb_opt_group *groups = vb_tbench_groups(&p->o, &n);

	for (unsigned g = 0; g < n; g++)
		if (!is_other_load(p, &groups[g]))
			vb_bench_put_options(to, &groups[g]);
	fprintf(to, "--warmup=%" PRIu64 "ns\n", p->o.warmup_ns);
}

void vb_tbench_plan_free(void *plan)
{
	struct vb_tbench_plan *p = plan;

	free(p->run);
	p->run = NULL;
	p->o.runs = 0;
}
