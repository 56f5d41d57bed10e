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

/* Section 4.1: a request waits 100 ms at most. */
#define BOUNDED_WAIT "lock-options=policy=bounded-wait,wait=100ms,requests=8192"
static const struct vb_repro_value policies[] = {
	{"BW", BOUNDED_WAIT},
	{"WD", "lock-options=policy=wait-die,requests=8192"},
	{"NW", "lock-options=policy=no-wait,requests=8192"},
	{NULL, NULL},
};

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

/* Section 4.4: 64 warehouses whatever the number of nodes, so that from 128 agents on several share
 * one.  They take locks in the trace's order, without which no policy would have anything to do. */
#define CONTENDED                                                                                  \
	"fabric=sim profile=cx5 lock=table workload=tpcc-rows order=trace timeout=100ms "          \
	"lease=100ms duration=1500us warmup=500us server-threads=16"
#define AGENTS(label, nodes, each, clients)                                                        \
	{                                                                                          \
		label, "nodes=" nodes " servers=" nodes " clients=" clients                        \
		       " workload-options=fixed=yes,isolation=serializable,warehouses=" each       \
	}
static const char contended_differs[] =
	"the network is a ConnectX-5's (profile cx5), not Aries; requests to one's own node take "
	"the network; at most 256 agents, four to a warehouse, where the paper has up to 2,048; "
	"the "
	"1,024 warehouses are not run; a warehouse's locks are spread over the 16 agents of its "
	"node from the beginning; there is no timestamp ordering; a transaction that is turned "
	"down backs off at random and is tried again; data are not read or written, and "
	"there is no two-phase commit";

static const struct vb_repro_check contended_checks[] = {
	VB_BESIDE("ETH-11", AHEAD, "txns", "BW", "NW", NULL, "256", 0, 0),
	VB_BESIDE("ETH-11", AHEAD, "txns", "WD", "NW", NULL, "256", 0, 0),
	/* Linear as long as each agent has a warehouse: four times the agents. */
	{"ETH-10", VB_CHECK_RATIO, "txns", VB_AT("BW", NULL, "64"), VB_AT("BW", NULL, "16"), 4, 4},
	{"ETH-10", VB_CHECK_RATIO, "txns", VB_AT("WD", NULL, "64"), VB_AT("WD", NULL, "16"), 4, 4},
	{"ETH-10", VB_CHECK_RATIO, "txns", VB_AT("NW", NULL, "64"), VB_AT("NW", NULL, "16"), 4, 4},
	VB_ALONG("ETH-10", FALLS, "txns", "BW", NULL, NULL, "64", "256"),
	VB_ALONG("ETH-10", FALLS, "txns", "WD", NULL, NULL, "64", "256"),
	VB_ALONG("ETH-10", FALLS, "txns", "NW", NULL, NULL, "64", "256"),
	{"ETH-12", VB_CHECK_RATIO, "mean", VB_AT("BW", NULL, "256"), VB_AT("BW", NULL, "128"), 2,
	 2},
	VB_BESIDE("ETH-13", AHEAD, "aborts", "NW", "WD", NULL, "256", 0, 0),
	VB_BESIDE("ETH-13", BEHIND, "aborts", "BW", "WD", NULL, "256", 0, 0),
	VB_BESIDE("ETH-13", CLOSE, "txns", "WD", "BW", NULL, "256", 0, 0),
};

/* Figure 8: what is added to requests from one node to another alone, so that those to the own
 * node must not take the network: that is an effect of cx5-card. */
#define DELAYED(label, time, more)                                                                 \
	{                                                                                          \
		label, "fabric-options=own=memory,delay=" time more                                \
	}
static const struct vb_repro_check delay_checks[] = {
	{"ETH-14", VB_CHECK_RATIO, "txns", VB_AT("BW", NULL, "0"), VB_AT("BW", NULL, "1"), 1 / 0.92,
	 1 / 0.92},
	{"ETH-14", VB_CHECK_RATIO, "txns", VB_AT("BW", NULL, "0"), VB_AT("BW", NULL, "1000"), 44,
	 44},
};

const struct vb_experiment vb_repro_eth[] = {
	{
		.name = "eth/fig3",
		.title = "TPC-C traces on a lock table, isolation levels and conflict rules",
		.differs = differs,
		.setup = SETUP,
		.systems = policies,
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
	{
		.name = "eth/fig5",
		.figures = "fig7",
		.title = "TPC-C traces with 64 warehouses: contention",
		.differs = contended_differs,
		.setup = CONTENDED,
		.systems = policies,
		.sweep = VB_AXIS(AGENTS("16", "1", "64", "16"), AGENTS("64", "4", "16", "64"),
				 AGENTS("128", "8", "8", "128"), AGENTS("256", "16", "4", "256")),
		.sweep_name = "transaction agents",
		.metrics = VB_NAMES("txns", "mean", "aborts"),
		VB_CHECKS(contended_checks),
		.notes = VB_NOTES({"ETH-10", NULL, "T/O; 1,024 warehouses"},
				  {"ETH-12", NULL, "more than four agents to a warehouse"}),
		.seconds = 14,
	},
	{
		.name = "eth/fig8",
		.title = "TPC-C traces with an added delay between nodes",
		.differs =
			"the network is a ConnectX-5's (profile cx5-card), not Aries; data are not "
			"read or written, and there is no two-phase commit, which would wait for "
			"other nodes as well; a warehouse's locks are spread over the 16 agents "
			"of its node; TPC-C's locks are those of its text; bounded wait alone",
		.setup =
			CONTENDED " profile=cx5-card nodes=8 servers=8 clients=128 "
				  "workload-options=fixed=yes,isolation=serializable,warehouses=16",
		.systems = VB_AXIS({"BW", BOUNDED_WAIT}),
		/* With 1 ms, a transaction that asks another node takes milliseconds. */
		.sweep = VB_AXIS(DELAYED("0", "0", ""), DELAYED("1", "1us", ""),
				 DELAYED("1000", "1ms", " duration=20ms warmup=10ms")),
		.sweep_name = "added delay, us",
		.metrics = VB_NAMES("txns", "txn.mean"),
		VB_CHECKS(delay_checks),
		.seconds = 12,
	},
	{.name = NULL},
};
