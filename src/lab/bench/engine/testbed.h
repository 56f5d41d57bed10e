/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The machines of the papers, by name: what `--testbed` sets of the other options.  The load is not
 * in it, for that differs from figure to figure.  What cannot be as in the paper: doc/model.md.
 */
#ifndef VB_LAB_BENCH_ENGINE_TESTBED_H
#define VB_LAB_BENCH_ENGINE_TESTBED_H

#define VB_BENCH_TESTBED_HELP                                                                      \
	"the machines of a paper, on sim: sets --fabric, --profile, --nodes, who serves and "      \
	"clients, where no option behind it says otherwise"

/* 16 lock managers, 16 nodes with 4 threads each; ConnectX-3 (section 6.1). */
#define VB_TESTBED_DSLR "fabric=sim profile=cx3-card nodes=32 servers=16 clients=64 lease=10ms"
/* One lock server, 5 nodes with 48 clients each; ConnectX-5 (section 4.1). */
#define VB_TESTBED_SHIFTLOCK "fabric=sim profile=cx5-card nodes=6 servers=1 clients=240 lease=10ms"
/* Four nodes of 10 threads, which serve, too; ConnectX-4 (section 6.1). */
#define VB_TESTBED_RCC "fabric=sim profile=cx4-card nodes=4 fabric-options=cores=10"
/* 16 cores of each node serve, 16 have transactions, one at a time; 8 nodes of up to 128 (section 4.1). */
#define VB_TESTBED_CORES "fabric=sim profile=cx5-card nodes=8 fabric-options=own=memory"
/* Four nodes of 24 threads with 8 coroutines each; ConnectX-5 (section 6.1). */
#define VB_TESTBED_RCBENCH "fabric=sim profile=cx5-card nodes=4 fabric-options=cores=24"

#endif
