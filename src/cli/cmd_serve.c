/* SPDX-License-Identifier: Apache-2.0 */
/* verbena serve */
#include "cli/cli.h"

#include "base/opt.h"
#include "lab/serve/serve.h"

static struct vb_serve_opts opts;

static const struct vb_opt_group *groups(unsigned *n)
{
	return vb_serve_groups(&opts, n);
}

static int run(int argc, char **argv)
{
	int words, end = vb_cli_parse_words(&vb_command_serve, argc, argv, &words);

	return end >= 0 ? end : vb_serve(&opts, (unsigned)words, argv);
}

const struct vb_command vb_command_serve = {
	.name = "serve",
	.summary = "Be one server of an elastic cluster, with the lock spaces and databases that "
		   "are named",
	.about =
		"Runs in the foreground until SIGINT, SIGTERM or SIGHUP, which end it with status "
		"0; under nohup SIGHUP does not. Each "
		"server of the cluster is such a process; all have the same --servers, --key, "
		"--nodes, --node-bytes and --settle, and name the same lock spaces and "
		"databases. Clients are "
		"programs of their own, which need the servers' addresses and the key.\n\n"
		"A lock space is NAME:KEY=VALUE,...: lock=PROTOCOL, locks=N (1k), servers=N (1: "
		"the first node has all its locks), lease=TIME, drift=PPM (100: between two "
		"clocks; 1000 where NTP corrects them), fencing, and "
		"options=KEY=VALUE+KEY=VALUE, those of the protocol. Clients open it with the "
		"same values. Without a space, a server has memory only, and clients make the "
		"spaces that need no server.\n\n"
		"A database is NAME:cc=PROTOCOL,KEY=VALUE,...: coordinators=N (64: so many may be "
		"open at a node), items=N (64) and bytes=N (64ki) that a transaction touches, "
		"record-bytes=N (1ki: of the largest record), lease=TIME, snapshot-lag=TIME, "
		"copies=N, no-recovery. Its tables are words behind it, in their order: "
		"NAME/TABLE:bytes=N,KEY=VALUE,... with the bytes of a record, records=N (1k), "
		"keys=mod, hash or top16 (which node has a key), ordered, range-shift=N, ranges=N. "
		"They are empty; clients open both with the same values, and insert. Or, last in a "
		"database's word, workload=NAME,KEY=VALUE,... has the tables of a workload of "
		"`verbena bench txn`, with that workload's options, filled.\n\n"
		"A server waits for no other one, unless it has a database. When its part is "
		"served, it says "
		"so: in a line on standard output, with --json, and to a service manager that has "
		"set NOTIFY_SOCKET. A server that begins again comes back "
		"empty, but with --state as it was.",
	.run = run,
	.groups = groups,
	.words = "SPACE|DATABASE|TABLE...",
	.example = "verbena serve --servers a:7000+b:7000+c:7000 --as 2 --key /etc/verbena.key "
		   "orders:lock=dslr,locks=1m,servers=3,fencing",
	.ends = VB_ENDS(VB_EXIT_BUSY) | VB_ENDS(VB_EXIT_RESOURCES) | VB_ENDS(VB_EXIT_STALE),
	.see = "elastic.md, operating.md, security.md",
};
