/* SPDX-License-Identifier: Apache-2.0 */
/* Options that mean the same to every benchmark, and what can be told about them. */
#ifndef VB_LAB_BENCH_ENGINE_OPTIONS_H
#define VB_LAB_BENCH_ENGINE_OPTIONS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "base/opt.h"

enum vb_bench_fabric { VB_BENCH_SHM, VB_BENCH_SIM, VB_BENCH_TCP, VB_BENCH_UCX, VB_BENCH_VERBS };
extern const char *const vb_bench_fabric_names[];

/* Between processes that each have their own memory. */
static inline bool vb_bench_is_net(int fabric)
{
	return fabric >= VB_BENCH_TCP;
}

#define VB_BENCH_PROCS 1024u

/* How many processes there are, and on a network how they are started and meet. */
struct vb_bench_cluster_opts {
	uint64_t procs; /* each benchmark has --procs in a table of its own */
	const char *join, *hosts, *rank, *bind, *auth_key_file;
	uint64_t patience_ns, silence_ns;
	int seal;      /* enum vb_cluster_seal */
	bool launched; /* by mpirun or srun, which knows ranks and number */
};

/* What every subject's options begin with: its fields as they are, and as one for the engine. */
#define VB_BENCH_COMMON_FIELDS                                                                     \
	int fabric;  /* enum vb_bench_fabric */                                                    \
	int testbed; /* a choice of the subject's: what it set is in the other fields */           \
	const char *profile, *segment, *fabric_options, *warmup, *json;                            \
	uint64_t nodes, seed;                                                                      \
	uint64_t duration_ns, warmup_ns, stall_ns;                                                 \
	uint64_t lease_ns;   /* 0: chosen for the fabric when it is open */                        \
	unsigned runs;       /* by the plan */                                                     \
	bool all;            /* asked for as "all": what cannot run is skipped with its reason */  \
	const char *elastic; /* by the plan: the servers whose client this is; NULL: none */       \
	struct vb_bench_cluster_opts cluster
struct vb_bench_common {
	VB_BENCH_COMMON_FIELDS;
};
#define VB_BENCH_COMMON                                                                            \
	union {                                                                                    \
		struct vb_bench_common common;                                                     \
		struct {                                                                           \
			VB_BENCH_COMMON_FIELDS;                                                    \
		};                                                                                 \
	}

/* Between processes that start together. */
static inline bool vb_bench_in_group(const struct vb_bench_common *o)
{
	return vb_bench_is_net(o->fabric) && o->elastic == NULL;
}

/* The option table's group; opts is where it writes. */
struct vb_opt_group vb_bench_cluster_group(struct vb_bench_cluster_opts *opts);
/* What must be the same in every process of a run, as it is set now, a line for each option. */
void vb_bench_put_options(FILE *to, const struct vb_opt_group *group);
/* Refuses what the fabric would ignore, and fills in what was not said: where processes come from,
 * profile, duration (2 s, of virtual time sim_ns) and warm-up.  -error, said. */
int vb_bench_plan_common(struct vb_bench_common *o, uint64_t sim_ns);
/* Options of the simulated fabric: the profile, `more` ("" or ",KEY=VALUE...") and what the user says,
 * which comes last and counts.  -EINVAL, said: it is too long. */
int vb_bench_sim_options(const struct vb_bench_common *o, const char *more, char *buf, size_t size);
/* Whether files can be made in the folder of `path`; else errno says why not. */
bool vb_bench_can_write_beside(const char *path);
/* A time that may be left out: NULL leaves *ns as it is.  At most an hour; -EINVAL, said. */
int vb_bench_plan_time(const char *option, const char *text, uint64_t *ns);
/* What plainly cannot fit is told before minutes are spent on it; the fabric has the last word.
 * "WHAT need so many bytes; use FEWER".  -error, said. */
int vb_bench_plan_memory(const struct vb_bench_common *o, uint64_t bytes, const char *what,
			 const char *fewer);

#endif
