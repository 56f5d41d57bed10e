/* SPDX-License-Identifier: Apache-2.0 */
/* How the processes of a network benchmark come together, agree and part: see group.h. */
#define VB_LOG_ROOM "bench"
#include "lab/bench/engine/group.h"

#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "lab/bench/engine/process.h"

#define PARTING_NS 10000000000ull /* for forked processes to end by themselves */

static bool launched(void)
{
	return getenv("PMIX_RANK") != NULL;
}

static uint32_t wanted_rank(const struct vb_bench_cluster_opts *o)
{
	uint64_t rank;

	if (o->rank == NULL || vb_parse_size(o->rank, &rank) != 0 || rank > UINT32_MAX)
		return VB_CLUSTER_ANY_RANK;
	return (uint32_t)rank;
}

int vb_bench_group_plan(struct vb_bench_cluster_opts *o)
{
	struct vb_cluster_hosts_file file;
	uint64_t rank;
	int err;

	if (o->join != NULL && o->hosts != NULL)
		return vb_fail(-EINVAL,
			       "--join and --hosts are two ways to start: say one of them");
	if (o->rank != NULL && (vb_parse_size(o->rank, &rank) != 0 || rank >= VB_BENCH_PROCS))
		return vb_fail(-EINVAL, "--rank '%s': a number below %u is needed", o->rank,
			       VB_BENCH_PROCS);
	if (o->rank != NULL && o->join == NULL && o->hosts == NULL)
		return vb_fail(-EINVAL, "--rank is for --hosts and --join");
	if (o->join != NULL && o->procs == 0)
		return vb_fail(-EINVAL,
			       "--join %s: say with --procs how many processes come there in all",
			       o->join);
	if (o->hosts != NULL) {
		if (o->procs != 0)
			return vb_fail(-EINVAL, "--hosts names the processes: leave out --procs");
		err = vb_cluster_read_hosts(o->hosts, wanted_rank(o), &file);
		if (err)
			return err;
		o->procs = file.hosts;
		free(file.meet);
		free(file.bind);
		return 0;
	}
	if (o->join != NULL || !launched())
		return 0;
	if (o->procs != 0)
		return vb_fail(-EINVAL, "a launcher has started this process and says how many "
					"there are: leave out --procs");
	o->launched = true;
	return 0;
}

int vb_bench_group_unwanted(const struct vb_bench_cluster_opts *o)
{
	if (o->join != NULL || o->hosts != NULL || o->rank != NULL || o->bind != NULL ||
	    o->auth_key_file != NULL || o->seal != VB_CLUSTER_SEAL_AUTO)
		return vb_fail(-EINVAL,
			       "--join, --hosts, --rank, --bind, --auth-key-file and --seal "
			       "are for processes that start together, on --fabric "
			       "tcp, ucx and verbs");
	return 0;
}

/* ---- agreement ---- */

int vb_bench_group_agree(struct vb_bench_group *group, const char *what, int err)
{
	struct vb_cluster_parts parts;
	int32_t mine = err;
	int rc = vb_cluster_gather(group->cluster, what, &mine, sizeof(mine), VB_CLUSTER_TO_ALL,
				   false, 0, &parts);

	if (rc)
		return err != 0 ? err : rc;
	for (uint32_t r = 0; r < parts.n && err == 0; r++) {
		if (parts.bytes[r] != sizeof(mine)) {
			err = -EPROTO;
		} else {
			memcpy(&mine, parts.data[r], sizeof(mine));
			err = mine > 0 ? -EPROTO : mine;
		}
		if (err != 0 && group->rank == 0 && err != -EOPNOTSUPP)
			vb_error("%s could not go on at '%s': %s",
				 vb_cluster_name(group->cluster, r), what, vb_strerror(err));
	}
	vb_cluster_parts_free(&parts);
	return err;
}

int vb_bench_group_largest(struct vb_bench_group *group, const char *what, uint64_t mine,
			   uint64_t most, uint64_t *out)
{
	struct vb_cluster_parts parts;
	int err = vb_cluster_gather(group->cluster, what, &mine, sizeof(mine), VB_CLUSTER_TO_ALL,
				    true, 0, &parts);

	*out = 0;
	if (err)
		return err;
	for (uint32_t r = 0; r < parts.n; r++) {
		uint64_t n = 0;

		if (parts.bytes[r] == sizeof(n))
			memcpy(&n, parts.data[r], sizeof(n));
		if (n > *out && n <= most)
			*out = n;
	}
	vb_cluster_parts_free(&parts);
	return 0;
}

int vb_bench_group_refuse(const struct vb_bench_group *group, uint32_t rank, const char *what)
{
	return vb_fail(-EPROTO, "%s sent %s that cannot be", vb_cluster_name(group->cluster, rank),
		       what);
}

bool vb_bench_group_goes_on(struct vb_bench_group *group, bool mine)
{
	struct vb_cluster_parts parts;
	uint8_t word = mine;

	if (vb_cluster_gather(group->cluster, "goes on", &word, 1, VB_CLUSTER_TO_ALL, true, 0,
			      &parts) != 0)
		return false;
	word = parts.n > 0 && parts.bytes[0] == 1 && ((const uint8_t *)parts.data[0])[0] == 1;
	vb_cluster_parts_free(&parts);
	return word;
}

/* ---- opening ---- */

/* Forks the members.  In the parent 0 or -errno; a child returns its rank. */
static int fork_members(struct vb_bench_group *group, unsigned procs)
{
	pid_t parent = getpid();

	fflush(stdout);
	fflush(stderr);
	group->children = calloc(procs, sizeof(*group->children));
	if (group->children == NULL)
		return vb_fail(-ENOMEM, "no memory for a list of processes");
	for (unsigned rank = 1; rank < procs; rank++) {
		pid_t pid = fork();

		if (pid < 0)
			return vb_fail(-errno, "cannot fork process %u: %s", rank, strerror(errno));
		if (pid == 0) {
			vb_bench_child(parent);
			free(group->children);
			group->children = NULL;
			group->forked = 0;
			return (int)rank;
		}
		group->children[group->forked++] = pid;
	}
	return 0;
}

static int open_forked(struct vb_bench_group *group, struct vb_cluster_params *p)
{
	struct vb_cluster_key key;
	char meet[32];
	uint16_t port;
	int fd, rank, err = vb_cluster_key_make(&key, p->auth_key_file);

	if (err == 0)
		err = vb_cluster_listen("127.0.0.1", 0, &fd, &port);
	if (err)
		return err;
	snprintf(meet, sizeof(meet), "127.0.0.1:%u", port);
	vb_info("the processes meet at %s", meet);
	rank = fork_members(group, p->hosts);
	if (rank < 0) {
		close(fd);
		return rank;
	}
	if (rank == 0)
		return vb_cluster_open_keyed(p, fd, &key, &group->cluster);
	close(fd);
	p->role = VB_CLUSTER_MEMBER;
	p->rank = (uint32_t)rank;
	p->meet = meet;
	group->rank = (uint32_t)rank;
	return vb_cluster_open_keyed(p, -1, &key, &group->cluster);
}

static int open_listed(const struct vb_bench_cluster_opts *o, struct vb_bench_group *group,
		       struct vb_cluster_params *p)
{
	struct vb_cluster_hosts_file file;
	int err = vb_cluster_read_hosts(o->hosts, wanted_rank(o), &file);

	if (err)
		return err;
	group->rank = file.rank;
	p->hosts = file.hosts;
	p->role = file.rank == 0 ? VB_CLUSTER_ROOT : VB_CLUSTER_MEMBER;
	p->rank = file.rank;
	p->meet = file.meet;
	if (p->bind == NULL)
		p->bind = file.bind;
	err = vb_cluster_open(p, &group->cluster);
	free(file.meet);
	free(file.bind);
	return err;
}

static int open_cluster(const struct vb_bench_cluster_opts *o, struct vb_bench_group *group,
			struct vb_cluster_params *p)
{
	if (o->hosts != NULL)
		return open_listed(o, group, p);
	if (o->join != NULL) {
		p->meet = o->join;
		p->rank = wanted_rank(o);
		p->role = p->rank == 0                     ? VB_CLUSTER_ROOT
			  : p->rank == VB_CLUSTER_ANY_RANK ? VB_CLUSTER_AUTO
							   : VB_CLUSTER_MEMBER;
		return vb_cluster_open(p, &group->cluster);
	}
	if (o->launched) {
		p->pmix = true;
		return vb_cluster_open(p, &group->cluster);
	}
	return open_forked(group, p);
}

int vb_bench_group_meet(const struct vb_bench_cluster_opts *o, const char *config,
			struct vb_bench_group *group)
{
	struct vb_cluster_params p = {
		.hosts = (uint32_t)o->procs,
		.bind = o->bind,
		.auth_key_file = o->auth_key_file,
		.config = config,
		.timeout_ns = o->patience_ns,
		.silence_ns = o->silence_ns,
		.seal = (enum vb_cluster_seal)o->seal,
	};
	int err;

	*group = (struct vb_bench_group){0};
	err = open_cluster(o, group, &p);
	if (err)
		return err;
	group->rank = vb_cluster_rank(group->cluster);
	group->hosts = vb_cluster_hosts(group->cluster);
	return 0;
}

void vb_bench_group_close(struct vb_bench_group *group)
{
	/* Children of a cluster that was never there would wait for it. */
	uint64_t by = group->cluster != NULL ? vb_clock_gettime_ns() + PARTING_NS : 0;

	vb_cluster_close(group->cluster);
	for (unsigned i = 0; i < group->forked; i++) {
		int status;

		pid_t pid = group->children[i], got;

		/* One that is stopped will not end by itself. */
		while ((got = waitpid(pid, &status, WNOHANG | WUNTRACED)) == 0 ||
		       (got == pid && WIFSTOPPED(status))) {
			if (got == pid || vb_clock_gettime_ns() > by)
				kill(pid, SIGKILL);
			usleep(1000);
		}
	}
	free(group->children);
	*group = (struct vb_bench_group){0};
}
