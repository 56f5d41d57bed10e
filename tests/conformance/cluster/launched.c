/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What launcher.sh starts under mpirun: opens a cluster through PMIx, twice, each with a gather and
 * a barrier, and says who it is.  Exit status: 0, or 1 with the error's name on stderr.
 *
 * usage: test_cluster_launched [HOSTS [die RANK]]
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/compiler.h"
#include "cluster/cluster.h"

#ifdef VB_ASAN
#define SEEN __attribute__((visibility("default")))

/* libpmix keeps some of what it has allocated after its end.  Whole call chains, so that those of
 * its allocations that libc makes for it are known as its own; what is not its own still counts. */
SEEN const char *__lsan_default_suppressions(void);
SEEN const char *__asan_default_options(void);

const char *__lsan_default_suppressions(void)
{
	return "leak:libpmix\n";
}

const char *__asan_default_options(void)
{
	return "fast_unwind_on_malloc=0";
}
#endif

static int meet(unsigned round, uint32_t hosts)
{
	struct vb_cluster_params p = {.hosts = hosts, .pmix = true, .timeout_ns = 60000000000ull};
	struct vb_cluster_parts parts;
	struct vb_cluster *c;
	uint32_t mine, sum = 0;
	int err = vb_cluster_open(&p, &c);

	if (err != 0)
		return err;
	mine = vb_cluster_rank(c);
	err = vb_cluster_gather(c, "ranks", &mine, sizeof(mine), VB_CLUSTER_TO_ALL, false, 0,
				&parts);
	for (uint32_t r = 0; err == 0 && r < parts.n; r++)
		sum += parts.bytes[r] == sizeof(mine) && *(uint32_t *)parts.data[r] == r;
	if (err == 0) {
		vb_cluster_parts_free(&parts);
		err = vb_cluster_barrier(c);
	}
	if (err == 0)
		printf("round %u: %u of %u, %u right, %s\n", round, mine, vb_cluster_hosts(c), sum,
		       getenv("PMIX_RANK") != NULL ? "launched" : "alone");
	vb_cluster_close(c);
	return err;
}

int main(int argc, char **argv)
{
	uint32_t hosts = argc > 1 ? (uint32_t)atoi(argv[1]) : 0;
	const char *rank = getenv("PMIX_RANK");
	int err;

	alarm(200);
	if (argc > 3 && rank != NULL && strcmp(rank, argv[3]) == 0)
		return 7; /* never comes */
	for (unsigned round = 0; round < 2; round++) {
		err = meet(round, hosts);
		if (err != 0) {
			fprintf(stderr, "failed: %s\n", vb_strerror(err));
			return 1;
		}
	}
	return 0;
}
