#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/results.sh [BUILD]
#
# Puts the results of the last `make demo` (BUILD/demo-*.json), of the last bench/peers/run.sh
# (BUILD/peers.json), and a run of `verbena bench fabric`, into README.md between its two marks.  For
# whoever changes what they show; needs jq.
set -eu
cd "$(dirname "$0")/.."
build=${1-build}

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

# Seed 001, table 4 (write-intensive) and figure 6, beside ours.
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
	"| protocol | stages | ktxn/s | aborts % | p50 us | p99 | primitives, with the index | verbs | calls | serializable | invariant |",
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

{
	sed '/^<!-- results -->$/q' README.md
	echo
	echo '**Between processes on shared memory** (latencies in us of the call; verbs per cycle of acquire and release):'
	echo
	table "$build/demo-shm.json"
	echo
	if [ -f "$build/demo-ucx.json" ]; then
		echo '**Between processes over TCP** (fabric `ucx`, loopback: a lock server and two processes with clients):'
		echo
		table "$build/demo-ucx.json"
		echo
	fi
	if [ -f "$build/peers.json" ]; then
		echo '**Beside Redis and etcd** over TCP, exclusive cycles, medians of rounds in turns; how many times as many cycles per second we do, and how many times as short our p99 is ([what is compared](bench/peers/README.md)):'
		echo
		echo '`bench/peers/run.sh build`'
		echo
		peers "$build/peers.json"
		echo
	fi
	echo '**Simulated cluster**, ConnectX-5, one lock server, 240 clients on five nodes:'
	echo
	table "$build/demo-sim.json"
	echo
	echo 'The same beside the paper of ShiftLock (its table 4 and figures 4 and 6), which measured this load on real cards. Nothing in the model is fitted to it; [measuring](doc/measuring.md#beside-the-paper) says where they differ and what we think of it.'
	echo
	paper "$build/demo-sim.json"
	echo
	echo '**Transactions on shared memory**: YCSB, 10 operations on records of 64 bytes, half of them writes, theta 0.6; every history checked for serializability, one-sided and by RPC:'
	echo
	transactions "$build/demo-txn-shm.json"
	echo
	echo '**Transactions on a simulated cluster** of four nodes with ConnectX-5, the same load and checks ([beside the papers](doc/papers-transactions.md)):'
	echo
	transactions "$build/demo-txn-sim.json"
	echo
	echo '**The parts**, each beside the bare thing that it stands on:'
	echo
	echo '```'
	echo '$ verbena bench fabric'
	"$build/src/verbena" bench fabric
	echo '```'
	echo
	sed -n '/^<!-- end of results -->$/,$p' README.md
} >"$build/README.md"
mv "$build/README.md" README.md
