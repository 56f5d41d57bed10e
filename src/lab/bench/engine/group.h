/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The processes of a benchmark on a network fabric: how they come together, agree and part.
 *
 * There are several ways to start them, and afterwards no difference between them:
 *
 *   --procs N               this process forks the others, all on this machine
 *   --join HOST:PORT        N processes that somebody starts; who can bind the address is the root
 *   --hosts FILE            one for each line, the first line's is the root
 *   mpirun, srun            ranks and the root's address come from the launcher (PMIx)
 *
 * Everybody has the same options, or is refused with the first that differs.  Rank 0 prints and
 * writes what came of it; the others only work, and say on stderr what went wrong with them.
 */
#ifndef VB_LAB_BENCH_ENGINE_GROUP_H
#define VB_LAB_BENCH_ENGINE_GROUP_H

#include "cluster/cluster.h"
#include "lab/bench/engine/options.h"

/* What each process hangs out while it is measured (vb_cluster_post). */
struct vb_bench_notice {
	uint64_t cycles; /* of its clients so far */
	uint32_t run;    /* 1 + the number of the run: an older notice is void */
	uint32_t flags;
	uint64_t quiet; /* notices in a row without a cycle of its clients */
	uint64_t unused;
};
_Static_assert(sizeof(struct vb_bench_notice) == VB_CLUSTER_NOTICE, "fills a notice");

enum vb_bench_notice_flags {
	VB_NOTICE_WAITING = 1,     /* a client waits for others */
	VB_NOTICE_DRAINED = 2,     /* every client has finished */
	VB_NOTICE_INTERRUPTED = 4, /* its user wants an end; of the root: the run ends */
	VB_NOTICE_GIVE_UP = 8,     /* of the root: who waits is not to wait any longer */
};

struct vb_bench_group {
	struct vb_cluster *cluster;
	uint32_t rank, hosts;
	uint32_t run; /* runs begun so far */
	pid_t *children;
	unsigned forked;
};

/*
 * Where the processes come from, as far as that can be told before they meet: o->procs is filled
 * in, 0 where only the launcher knows.  -EINVAL (said): options that exclude each other.
 */
int vb_bench_group_plan(struct vb_bench_cluster_opts *o);
/* On a fabric of one machine: -EINVAL, said, if any of the options is there that say where
 * processes come from. */
int vb_bench_group_unwanted(const struct vb_bench_cluster_opts *o);
/*
 * Returns in every process of the group, also in those that it forks: rank 0 is the root.  `o` is
 * as vb_bench_group_plan has left it, and `config` is what all must have alike.  0 or -error, said;
 * close it either way.
 */
int vb_bench_group_meet(const struct vb_bench_cluster_opts *o, const char *config,
			struct vb_bench_group *group);
/* The root waits for its children. */
void vb_bench_group_close(struct vb_bench_group *group);

/* Collective: 0 if every process says 0, else the first error of one, said with its name. */
int vb_bench_group_agree(struct vb_bench_group *group, const char *what, int err);
/* Collective: the largest of everybody's numbers, those above `most` left out.  -error, said. */
int vb_bench_group_largest(struct vb_bench_group *group, const char *what, uint64_t mine,
			   uint64_t most, uint64_t *out);
/* -EPROTO, said: that process has sent what cannot be. */
int vb_bench_group_refuse(const struct vb_bench_group *group, uint32_t rank, const char *what);
/* Collective: what the root says. */
bool vb_bench_group_goes_on(struct vb_bench_group *group, bool mine);

#endif
