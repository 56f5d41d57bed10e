/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experiments of seed 003 (PVLDB 2019): a lock table with six modes on the cores of a Cray XC40,
 * 16 server agents and 16 transaction agents a node, traces of TPC-C, each client at its warehouse
 * (sections 4.1, 4.2).
 */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce.h"

#define SETUP                                                                                      \
	"fabric=sim profile=aries lock=table workload=tpcc-rows lease=10ms duration=10ms "         \
	"warmup=2ms"
#define END_OF_AXIS                                                                                \
	{                                                                                          \
		NULL, NULL                                                                         \
	}

static const struct vb_repro_value waits[] = {
	{"BW", "lock-options=conflict=bounded-wait"},
	{"WD", "lock-options=conflict=wait-die"},
	{"NW", "lock-options=conflict=no-wait"},
	END_OF_AXIS,
};

static const struct vb_repro_value levels[] = {
	{"serializable", "workload-options=isolation=serializable"},
	{"repeatable read", "workload-options=isolation=repeatable-read"},
	{"read committed", "workload-options=isolation=read-committed"},
	END_OF_AXIS,
};

/* Cores: 32 on each node, half of them with transactions. */
static const struct vb_repro_value cores[] = {
	{"128", "nodes=4 servers=4 server-threads=16 clients=64"},
	{"512", "nodes=16 servers=16 server-threads=16 clients=256"},
	{"2048", "nodes=64 servers=64 server-threads=16 clients=1024"},
	END_OF_AXIS,
};

static const char *const metrics[] = {"txns", "goodput", "locks", NULL};

static const struct vb_repro_check checks[] = {
	{"ETH-04", VB_CHECK_RATIO, "txns", VB_AT("BW", "repeatable read", "*"),
	 VB_AT("BW", "serializable", "*"), 1.52, 1.52},
	{"ETH-04", VB_CHECK_RATIO, "txns", VB_AT("BW", "read committed", "*"),
	 VB_AT("BW", "serializable", "*"), 1.52, 1.52},
	{"ETH-05", VB_CHECK_CLOSE, "goodput", VB_AT("BW", "*", "*"), VB_AT("*", "*", "*"), 0, 0},
	{"ETH-06", VB_CHECK_CLOSE, "txns", VB_AT("BW", "*", "*"), VB_AT("*", "*", "*"), 0, 0},
	{"ETH-07", VB_CHECK_AMOUNT, "locks", VB_AT("BW", "serializable", "128"), {0}, 52.6, 52.6},
	{"ETH-07",
	 VB_CHECK_AMOUNT,
	 "locks",
	 VB_AT("BW", "repeatable read", "128"),
	 {0},
	 27.6,
	 27.6},
	{"ETH-07", VB_CHECK_AMOUNT, "locks", VB_AT("BW", "read committed", "128"), {0}, 27.6, 27.6},
};

const struct vb_experiment vb_repro_eth[] = {
	{
		.name = "eth/fig3",
		.title = "TPC-C traces on a lock table, isolation levels and conflict rules",
		.differs = "up to 2,048 cores, not 4,096; a warehouse for each of them",
		.setup = SETUP,
		.systems = waits,
		.series = levels,
		.sweep = cores,
		.sweep_name = "cores",
		.metrics = metrics,
		.checks = checks,
		.n_checks = VB_ARRAY_SIZE(checks),
		.seconds = 120,
	},
	{.name = NULL},
};
