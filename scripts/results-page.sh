#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/results-page.sh DIR >PAGE.md
#
# doc/results.md, written from the results in DIR (doc/results: what scripts/results.sh keeps).
set -eu
dir=${1:?usage: scripts/results-page.sh DIR}

table() {
	jq -r '
	def us: if . >= 1000 then round elif . >= 100 then (. * 10 | round / 10) else (. * 100 | round / 100) end;
	def kops: . / 1000 | if . >= 1000 then round else (. * 10 | round / 10) end;
	def verbs: . * 100 | round / 100;
	def cell(f): if .count == 0 then "-" else (f | us | tostring) end;
	"`\(["verbena"] + .argv[1:] | map(select(test("json$") | not)) | join(" "))`", "",
	"| lock | kops/s | shared p50 | p99 | exclusive p50 | p99 | p99.9 | atomics | READs | messages | violations |",
	"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
	(.runs[] | .latency_us as $l | .verbs_per_op as $v |
	"| `\(.lock)` | \(.goodput_ops_s | kops) | \($l.acquire_shared | cell(.p50)) | \($l.acquire_shared | cell(.p99)) | \($l.acquire_exclusive | cell(.p50)) | \($l.acquire_exclusive | cell(.p99)) | \($l.acquire_exclusive | cell(."p99.9")) | \($v.atomic | verbs) | \($v.read | verbs) | \($v.send | verbs) | \(.audit.violations) |"),
	"", "(\(.host.cores) cores, commit \(.commit))"
	' "$1"
}

# ShiftLock, table 4 (write-intensive) and figure 6, beside ours.
paper() {
	jq -r '
	def us: . * 100 | round / 100;
	def sum(k): . as $o | [k[] | $o[.]] | add | us;
	{"shiftlock": ["2.50", "42.95", "2.47", "2.87", "2.85"], "dslr": ["7.76", "75.36", "7.76", "74.86", "7.73"],
	 "cas-backoff": ["2.48", "37.23", "2.48", "37.23", "2.34"], "cas": ["38.50", "412.98", "38.50", "412.98", "37.92"]} as $paper |
	"| mean us, ours / paper | exclusive: atomic | its wait | shared: atomic | its wait | release |",
	"|---|---:|---:|---:|---:|---:|",
	(.runs[] | select($paper[.lock]) | $paper[.lock] as $p | .breakdown_by_call_us as $b |
	"| `\(.lock)` | \($b.acquire_exclusive.IA | us) / \($p[0]) | \($b.acquire_exclusive | sum(["NP", "WP", "WR", "RT"])) / \($p[1]) | \($b.acquire_shared.IA | us) / \($p[2]) | \($b.acquire_shared | sum(["NP", "WP", "WW", "RT"])) / \($p[3]) | \($b.release | sum(["IA", "RT", "NS"])) / \($p[4]) |"),
	"",
	(INDEX(.runs[]; .lock) as $r |
	"| | ours | paper |", "|---|---:|---:|",
	"| atomics and READs per cycle, `shiftlock` | \($r.shiftlock.verbs_per_op.atomic | us) + \($r.shiftlock.verbs_per_op.read | us) | 2.01 + 0.36 |",
	"| READs per cycle, `dslr` | \($r.dslr.verbs_per_op.read | us) | 7.92 |",
	"| fewer CAS verbs by backoff | \((1 - $r."cas-backoff".verbs_per_op.atomic / $r.cas.verbs_per_op.atomic) * 1000 | round / 10) % | 73.1 % |",
	"| goodput, `shiftlock` / `mcs` | \($r.shiftlock.goodput_ops_s / $r.mcs.goodput_ops_s | us) | 1.65 |")
	' "$1"
}

transactions() {
	jq -r '
	def us: if . >= 1000 then round elif . >= 100 then (. * 10 | round / 10) else (. * 100 | round / 100) end;
	def most: [.types[]] | max_by(.commits) | .latency_us;
	"`\(["verbena"] + .argv[1:] | map(select(test("json$") | not)) | join(" "))`", "",
	"| protocol | stages | ktxn/s | aborts % | p50 us | p99 | primitives + index READs | verbs | calls | serializable | invariant |",
	"|---|---|---:|---:|---:|---:|---:|---:|---:|---|---|",
	(.runs[] | most as $l |
	"| `\(.cc)` | \(if .hybrid | test("1") then "RPC" else "one-sided" end) | \(.goodput_txn_s / 1000 | us) | \(.abort_rate * 100 | us) | \($l.p50 | us) | \($l.p99 | us) | \([.prims_per_txn[]] | add | us) | \(.verbs_per_txn.all | us) | \(.calls_per_txn | us) | \(if .check.serializable | not then "no" elif .check.strict then "strictly" else "yes" end) | \(if .invariant.holds then "holds" else "broken" end) |"),
	"", "(\(.host.cores) cores, commit \(.commit))"
	' "$1"
}

peers() {
	jq -r '
	def digits: if . == null then "-" elif . >= 100 then (round | tostring) elif . >= 10 then (. * 10 | round / 10 | tostring)
		else (. * 100 | round / 100 | tostring) end;
	def times: if . == null then "- | -" else "\(.throughput | digits) | \(.p99 | digits)" end;
	"| | cycles/s | p50 us | p99 us | p99.9 | longest | x Redis | p99 | x etcd | p99 |",
	"|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
	(.cases[] | "| **\(.clients) client\(if .clients > 1 then "s" else "" end), \(if .locks == 1 then "one hot lock" else "\(.locks / 1000)k locks" end)** | | | | | | | | | |",
	(.rows[] | "| `\(.lock)` | \(.ops_s | digits) | \(.p50_us | digits) | \(.p99_us | digits) | \(.p999_us | digits) | \(.longest_us | digits) | \(if .against then .against.redis | times else " | " end) | \(if .against then .against.etcd | times else " | " end) |")),
	"", "(\(.host.cores) cores, commit \(.commit))"
	' "$1"
}

section() { # TITLE TEXT
	printf '\n## %s\n\n%s\n\n' "$1" "$2"
}

cat <<'END'
# Results

Written by `scripts/results.sh` from runs of `make demo`, `bench/peers/run.sh` and `verbena bench fabric`, which are kept beside this page ([results/](results/)). Each table names its command and the commit that it measured. The machine has two cores: compare the rows of one table, not microseconds with those of other machines. [Measuring](measuring.md) and [measuring transactions](measuring-transactions.md) say what each number means.

On shared memory, over TCP and on the simulated cluster each row is a lock under the same load: half of the acquires shared, Zipf 0.99, given back at once, every grant audited. Latencies are of the call, in us; verbs are per cycle of acquire and release. `table` asks by notified WRITEs, which have no column.
END
section 'Locks between processes on shared memory' 'Two processes, eight clients, 100,000 locks. `drtm` is slow by design here: its writers wait until the leases of readers have run out.'
table "$dir/shm.json"
if [ -f "$dir/tcp.json" ]; then
	section 'Locks between processes over TCP' "Fabric \`$(jq -r '.runs[0].fabric' "$dir/tcp.json")\`, loopback: a lock server and two processes with clients."
	table "$dir/tcp.json"
fi
if [ -f "$dir/peers.json" ]; then
	section 'Beside Redis and etcd' 'Over TCP, exclusive cycles, medians of rounds in turns. "x Redis" is our cycles per second divided by theirs; the p99 behind it is theirs divided by ours. [What is compared](../bench/peers/README.md).'
	echo '`bench/peers/run.sh build`'
	echo
	peers "$dir/peers.json"
fi
if [ -f "$dir/peers-busy.json" ]; then
	section 'Beside Redis and etcd on a busy machine' 'The same while another process computes all the time: three busy processes, ours or theirs and that one, share two cores.'
	echo '`PEERS_BUSY=1 PEERS_JSON=build/peers-busy.json bench/peers/run.sh build`'
	echo
	peers "$dir/peers-busy.json"
fi
section 'Locks on a simulated cluster' 'ConnectX-5 cards, one lock server, 240 clients on five nodes, ten million locks.'
table "$dir/sim.json"
echo
echo 'The same beside the paper of ShiftLock (its table 4 and figures 4 and 6), which measured this load on real cards. One number of the model was set by this paper: the latency of a 16-byte atomic, by the first atomic of its table 3 with five clients ([the model](model.md#where-each-number-is-from)). [Measuring](measuring.md#beside-the-paper) says where the two differ, and what their agreement is worth.'
echo
paper "$dir/sim.json"
section 'Transactions on shared memory' 'YCSB, 10 operations on records of 64 bytes, half of them writes, theta 0.6. Every history is checked for serializability.'
transactions "$dir/txn-shm.json"
section 'Transactions on a simulated cluster' 'Four nodes with ConnectX-5, the same load and checks ([beside the papers](papers-transactions.md)).'
transactions "$dir/txn-sim.json"
section 'The parts' 'Each beside the bare thing that it stands on. The two take turns: the times are medians, and the factor is the median of the turns, not the quotient of the two.'
echo '```'
echo '$ verbena bench fabric'
cat "$dir/fabric.txt"
echo '```'
echo
jq -r '"(2 cores, commit \(.commit))"' "$dir/locks.json"
