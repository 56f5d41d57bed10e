/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The experiments of Barthels et al. (PVLDB 2019): a lock table with six modes on the cores of a
 * Cray XC40, 16 server agents and 16 transaction agents a node, traces of TPC-C with 2,048
 * warehouses, each client at a warehouse of its node (sections 4.1, 4.2).
 *
 * The network is that of cx5, not Aries: of Aries's single verbs we know no measurements that we
 * could check, and a profile of guesses would say less than one that is what it says.  What does
 * not depend on the network are counts of locks and, mostly, ratios between our own runs.
 */
#define VB_LOG_ROOM "reproduce"
#include "lab/reproduce/reproduce.h"

#define SETUP                                                                                      \
	"fabric=sim profile=cx5 lock=table workload=tpcc-rows lease=100ms duration=10ms "          \
	"warmup=1ms server-threads=16"

#define AT_HOME "fixed=yes,warehouses=16,isolation="
static const char differs[] =
	"the network is a ConnectX-5's (profile cx5), not Aries, of which no measurements of "
	"single verbs could be checked, so that transactions and requests per second are those of "
	"another machine; requests to one's own node take the network, where the paper has shared "
	"memory; a warehouse's locks are spread over the 16 agents of its node; data are not read "
	"or written, and there is no two-phase commit; TPC-C's locks are those of its text, "
	"without the secondary indexes and gaps that MySQL's traces have; 16 warehouses a node, "
	"2,048 with 4,096 "
	"cores";

static const struct vb_repro_check checks[] = {
	{"ETH-04", VB_CHECK_RATIO, "txns", VB_AT("BW", "repeatable read", "*"),
	 VB_AT("BW", "serializable", "*"), 1.52, 1.52},
	VB_BESIDE("ETH-05", CLOSE, "goodput", "BW", "*", "*", "*", 0, 0),
	VB_AMOUNT("ETH-05", "goodput", "BW", "serializable", "4096", 1350e3, 1350e3),
	VB_BESIDE("ETH-06", CLOSE, "txns", "BW", "*", "*", "*", 0, 0),
	VB_AMOUNT("ETH-07", "locks", "BW", "serializable", "128", 52.6, 52.6),
	VB_AMOUNT("ETH-07", "locks", "BW", "repeatable read", "128", 27.6, 27.6),
};

static const struct vb_repro_note notes[] = {
	{"ETH-04", NULL, "T/O, 1.55"},
	{"ETH-05", NULL, "T/O"},
	{"ETH-06",
	 "each client has its warehouse: no two meet, and what a lock does with conflicts does not "
	 "come up",
	 NULL},
	{"ETH-07", NULL, "the numbers without intention locks, 46.8 and 22.5"},
	{NULL, NULL, NULL},
};

const struct vb_experiment vb_repro_eth[] = {
	{
		.name = "eth/fig3",
		.title = "TPC-C traces on a lock table, isolation levels and conflict rules",
		.differs = differs,
		.setup = SETUP,
		/* Section 4.1: a request waits 100 ms at most. */
		.systems =
			VB_AXIS({"BW", "lock-options=policy=bounded-wait,wait=100ms,requests=8192"},
				{"WD", "lock-options=policy=wait-die,requests=8192"},
				{"NW", "lock-options=policy=no-wait,requests=8192"}),
		/* Read committed locks what repeatable read does: one series for both, as in the
		 * paper's text. */
		.series =
			VB_AXIS({"serializable", "workload-options=" AT_HOME "serializable"},
				{"repeatable read", "workload-options=" AT_HOME "repeatable-read"}),
		/* Cores: 32 on each node, half of them with transactions. */
		.sweep = VB_AXIS({"128", "nodes=4 servers=4 clients=64"},
				 {"1024", "nodes=32 servers=32 clients=512 duration=3ms"},
				 {"4096", "nodes=128 servers=128 clients=2048 duration=1ms"}),
		.sweep_name = "cores",
		.metrics = VB_NAMES("txns", "goodput", "locks"),
		VB_CHECKS(checks),
		.notes = notes,
		.seconds = 200,
	},
	{.name = NULL},
};
