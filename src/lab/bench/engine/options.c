/* SPDX-License-Identifier: Apache-2.0 */
/* Options that mean the same to every benchmark: see options.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/options.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/log.h"
#include "fabric/sim/sim.h"
#include "lab/bench/engine/group.h"
#include "lab/host.h"
#include "seal/seal.h"

#define SEC  1000000000ull
#define HOUR (3600 * SEC)

const char *const vb_bench_fabric_names[] = {
	[VB_BENCH_SHM] = "shm", [VB_BENCH_SIM] = "sim",     [VB_BENCH_TCP] = "tcp",
	[VB_BENCH_UCX] = "ucx", [VB_BENCH_VERBS] = "verbs",
};

#define O struct vb_bench_cluster_opts
static const struct vb_opt cluster_table[] = {
	VB_OPT_STRING(O, join, "join", "HOST:PORT", NULL,
		      "where the processes meet, all --procs of them, each started by somebody; "
		      "the one that can bind it is the root (none: this process forks the others)"),
	VB_OPT_STRING(O, hosts, "hosts", "FILE", NULL,
		      "one process per line HOST[:PORT] of the file; the first is the root"),
	VB_OPT_STRING(O, rank, "rank", "N", NULL,
		      "this process's place: line of --hosts (from 0), or rank for --join"),
	VB_OPT_STRING(O, bind, "bind", "ADDRESS", NULL,
		      "address or interface that this process listens at (loopback)"),
	VB_OPT_STRING(O, auth_key_file, "auth-key-file", "FILE", NULL,
		      "a secret of 32 to 4096 bytes that all processes share, readable by its "
		      "owner only; needed for any address beyond loopback"),
	VB_OPT_CHOICE(O, seal, "seal", VB_SEALING_NAMES, "auto",
		      "whether what they say when they meet is encrypted and authenticated; auto: "
		      "beyond loopback (the fabric tcp has an option seal of its own)"),
	VB_OPT_TIME(O, patience_ns, "patience", "30s", 1000000, 3600 * SEC,
		    "how long processes wait for each other before the missing ones are named"),
	VB_OPT_TIME(O, silence_ns, "silence", "3s", 10000000, 3600 * SEC,
		    "without a sign of life for so long a process is suspect, for 20 times as long "
		    "dead (one that is killed is dead at once)"),
	VB_OPT_END};
#undef O

struct vb_opt_group vb_bench_cluster_group(struct vb_bench_cluster_opts *opts)
{
	return (struct vb_opt_group){"Processes on tcp, ucx and verbs", cluster_table, opts};
}

/* Each process may have its own, or says below what came of it. */
static bool is_own(const char *name)
{
	static const char *const own[] = {
		"procs", "nodes", "segment", "visible", "history-bytes", "warmup",
		"think", "trace", "json",    "hgrm",    "history",
	};

	for (unsigned i = 0; i < VB_ARRAY_SIZE(own); i++)
		if (strcmp(own[i], name) == 0)
			return true;
	return false;
}

static void put_option(FILE *to, const struct vb_opt *o, const void *at)
{
	const char *text;
	int len;

	fprintf(to, "--%s=", o->name);
	switch (o->kind) {
	case VB_OPT_KIND_FLAG:
		fprintf(to, "%d\n", *(const bool *)at);
		break;
	case VB_OPT_KIND_REAL:
		fprintf(to, "%.17g\n", *(const double *)at);
		break;
	case VB_OPT_KIND_STRING:
		text = *(const char *const *)at;
		fprintf(to, "%s\n", text != NULL ? text : "");
		break;
	case VB_OPT_KIND_CHOICE:
		len = vb_opt_chosen(o, at, &text);
		fprintf(to, "%.*s\n", len, text);
		break;
	default:
		fprintf(to, "%" PRIu64 "%s\n", *(const uint64_t *)at,
			o->kind == VB_OPT_KIND_TIME ? "ns" : "");
	}
}

void vb_bench_put_options(FILE *to, const struct vb_opt_group *group)
{
	if (group->table == cluster_table)
		return;
	for (const struct vb_opt *o = group->table; o->kind != VB_OPT_KIND_END; o++)
		if (!is_own(o->name))
			put_option(to, o, (const char *)group->opts + o->offset);
}

static int plan_profile(const char *name)
{
	const char *names[32];
	char hint[VB_HINT_BYTES];
	size_t n = 0;

	for (unsigned i = 0; i < vb_sim_profile_count && n < VB_ARRAY_SIZE(names); i++) {
		if (strcmp(vb_sim_profiles[i].name, name) == 0)
			return 0;
		names[n++] = vb_sim_profiles[i].name;
	}
	return vb_fail(-EINVAL, "no profile is called '%s'%s; `verbena list` shows them all", name,
		       vb_did_you_mean(hint, name, names, n));
}

int vb_bench_plan_time(const char *option, const char *text, uint64_t *ns)
{
	if (text != NULL && vb_parse_time_ns(text, ns) != 0)
		return vb_fail(-EINVAL, "--%s '%s': a time with its unit (ns, us, ms, s) is needed",
			       option, text);
	if (*ns > HOUR)
		return vb_fail(-EINVAL, "--%s %s: at most one hour is possible", option, text);
	return 0;
}

/* What the results say of the profile is what --profile says. */
static bool names_profile(const char *fabric_options)
{
	return fabric_options != NULL && (strncmp(fabric_options, "profile=", 8) == 0 ||
					  strstr(fabric_options, ",profile=") != NULL);
}

int vb_bench_plan_common(struct vb_bench_common *o, uint64_t sim_ns)
{
	bool sim = o->fabric == VB_BENCH_SIM, net = vb_bench_in_group(o);
	int err;

	if (o->elastic != NULL && o->nodes != 0)
		return vb_fail(-EINVAL, "leave out --nodes: the servers say how many there are");
	if (net && o->nodes != 0)
		return vb_fail(-EINVAL, "on '%s' each process is a node: say --procs, not --nodes",
			       vb_bench_fabric_names[o->fabric]);
	if (o->fabric != VB_BENCH_SHM && o->segment != NULL)
		return vb_fail(-EINVAL, "--segment is for --fabric shm");
	if (!sim && o->profile != NULL)
		return vb_fail(-EINVAL, "--profile is for --fabric sim");
	if (sim && names_profile(o->fabric_options))
		return vb_fail(-EINVAL, "--fabric-options '%s': the profile is named by --profile",
			       o->fabric_options);
	err = net ? vb_bench_group_plan(&o->cluster) : vb_bench_group_unwanted(&o->cluster);
	if (err)
		return err;
	if (sim && o->profile == NULL)
		o->profile = "cx5";
	if (sim && plan_profile(o->profile) != 0)
		return -EINVAL;
	if (o->duration_ns == 0)
		o->duration_ns = sim ? sim_ns : 2 * SEC;
	o->warmup_ns = o->duration_ns / 10 < HOUR ? o->duration_ns / 10 : HOUR;
	return vb_bench_plan_time("warmup", o->warmup, &o->warmup_ns);
}

int vb_bench_sim_options(const struct vb_bench_common *o, const char *more, char *buf, size_t size)
{
	const char *said = o->fabric_options;
	int n = snprintf(buf, size, "profile=%s%s%s%s", o->profile, more, said != NULL ? "," : "",
			 said != NULL ? said : "");

	if (n < 0 || (size_t)n >= size)
		return vb_fail(-EINVAL, "--fabric-options is too long");
	return 0;
}

bool vb_bench_can_write_beside(const char *path)
{
	const char *slash = strrchr(path, '/');
	char dir[4096] = ".";

	if (slash != NULL && (size_t)(slash - path) >= sizeof(dir)) {
		errno = ENAMETOOLONG;
		return false;
	}
	if (slash != NULL)
		snprintf(dir, sizeof(dir), "%.*s", slash == path ? 1 : (int)(slash - path), path);
	return access(dir, W_OK | X_OK) == 0;
}

int vb_bench_plan_memory(const struct vb_bench_common *o, uint64_t bytes, const char *what,
			 const char *fewer)
{
	uint64_t have = vb_host_meminfo("MemAvailable"), room = UINT64_MAX;
	struct statvfs fs;

	/* A segment without a name lies in no file system. */
	if (o->fabric == VB_BENCH_SHM && o->segment != NULL && statvfs("/dev/shm", &fs) == 0)
		room = (uint64_t)fs.f_bavail * fs.f_frsize;
	if (bytes > room)
		return vb_fail(-ENOSPC,
			       "%s need %" PRIu64 " MiB and /dev/shm has %" PRIu64
			       " MiB free; use %s%s or enlarge it (mount -o remount,size=...)",
			       what, bytes >> 20, room >> 20, fewer,
			       strstr(fewer, " or ") != NULL ? "," : "");
	if (have != 0 && bytes > have)
		return vb_fail(-ENOMEM,
			       "%s need %" PRIu64 " MiB and %" PRIu64
			       " MiB of memory are available; use %s",
			       what, bytes >> 20, have >> 20, fewer);
	return 0;
}
