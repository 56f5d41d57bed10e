#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: bench_txn_net.sh VERBENA tcp|ucx
#
# bench txn between processes over TCP, on that fabric: checked, interrupted, killed, and refused.
. "$(dirname "$0")/lib.sh"
fabric=$2

refused 'nodes are the processes' 2 "--procs --nodes" bench txn --fabric $fabric --nodes 3
refused 'a node has one thread' 2 "--threads --coroutines" bench txn --fabric $fabric --threads 2
refused 'processes on shm' 2 "--procs ucx" bench txn --procs 3
refused 'a meeting point on shm' 2 "--join ucx" bench txn --join 127.0.0.1:7531

if ! command -v jq >/dev/null; then
	skip "$fabric" 'jq is not installed'
	finish
	exit 0
fi
why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "'$fabric'") | .absent // empty')
if [ -n "$why" ]; then
	skip "$fabric" "$why"
	finish
	exit 0
fi

refused 'on more nodes than there are processes' 2 '--span 4 nodes' bench txn --fabric $fabric --procs 3 --ops 4 --span 4
refused 'or than there are if nobody says' 2 '--span 3 nodes' bench txn --fabric $fabric --ops 4 --span 3

# The bound is generous: a lost answer is right on a loaded machine, but not what is tested here.
for load in 'ycsb --records 2k --dist uniform' 'smallbank --accounts 500 --hot-accounts 500' \
	'bank --accounts 12' 'tatp --subscribers 300' 'tpcc --items 200 --customers 30 --orders 5k' \
	'tpcc --ranges --items 200 --customers 30 --orders 5k'; do
	what="$fabric, ${load%% --*}"
	[ "${load#* --ranges}" = "$load" ] || what="$what by range"
	protocols=no-wait,wait-die,silo,sundial
	# Every protocol with two loads, and one of each kind with those that insert and delete; on ucx, which
	# has the same engine above it, fewer.
	case "$fabric ${load%% *}" in
	'tcp ycsb' | 'tcp smallbank') protocols=all ;;
	'tcp tatp' | 'tcp tpcc') protocols=no-wait-sx,silo,maat,mvcc,cicada,to ;;
	esac
	# A machine that is busy with other things may need longer for a transaction.
	for duration in 150ms 1s 10s; do
		# shellcheck disable=SC2086
		run bench txn --cc $protocols --hybrid both --fabric $fabric --procs 3 \
			--coroutines 2 --workload $load --fabric-options bound=500ms --duration $duration \
			--check --json "$json"
		if [ "$status" != 0 ] || holds 'all(.runs[]; .commits > 0)'; then
			break
		fi
	done
	is "$what: exit status 0" [ "$status" = 0 ]
	is "$what: every run, checked" holds '.runs | length >= 8 and all(.fabric == "'$fabric'" and
		.nodes == 3 and .clients == 6 and .commits > 0 and .failed == 0 and .died == null and
		.check.serializable == true and .invariant.holds == true)'
done

# What --cc all is without: here with a load, and two more on tcp in calvin.sh.
run bench txn --cc calvin --hybrid both --fabric $fabric --procs 3 --coroutines 2 --workload ycsb --records 2k \
	--dist uniform --fabric-options bound=500ms --duration 500ms --check --json "$json"
is "$fabric, calvin: exit status 0" [ "$status" = 0 ]
is "$fabric, calvin: checked" holds '.runs | length == 2 and all(.commits > 0 and .failed == 0 and
	.died == null and .check.strict and .check.serializable and .invariant.holds)'

# Each transaction has a record on each node, or all but one far away: the processes are the nodes.
for span in '--span 3' '--span 2 --far 3'; do
	# shellcheck disable=SC2086
	run bench txn --cc no-wait --fabric $fabric --procs 3 --coroutines 2 --workload ycsb --records 2k --ops 4 $span \
		--fabric-options bound=500ms --duration 150ms --check --json "$json"
	is "$fabric, $span: exit status 0" [ "$status" = 0 ]
	is "$fabric, $span: checked" holds '.runs[0] | .failed == 0 and .check.serializable and .invariant.holds'
done

# Interrupted: the root has everybody's results.
VERBENA_LOG=$loud "$verbena" bench txn --cc silo,no-wait --fabric $fabric --procs 2 --coroutines 2 --records 1k \
	--fabric-options bound=500ms --duration 60s --warmup 1ms --json "$json" >"$work/out" \
	2>"$work/err" </dev/null &
pid=$!
under_way $pid 10
kill -INT $pid
wait $pid
status=$?
is 'interrupted: exit status 130' [ "$status" = 130 ]
is 'interrupted: the JSON is whole, with the run that was cut' holds '.interrupted == true and
	(.runs | length) == 1 and .runs[0].commits > 0'

# A process that is killed: the others stop with its name, at once, and leave their results and nothing else.
# The children are ranks 1 and 2.
gone() { # PID...: within ten seconds
	tries=0
	while [ $tries -lt 100 ]; do
		left=
		for p in "$@"; do
			kill -0 "$p" 2>/dev/null && left="$left $p"
		done
		[ -z "$left" ] && return 0
		sleep 0.1
		tries=$((tries + 1))
	done
	return 1
}

for cc in silo wound-wait; do
	rm -f "$json" "$work/err"
	VERBENA_LOG=$loud "$verbena" bench txn --cc $cc --fabric $fabric --procs 3 --coroutines 2 --workload smallbank \
		--accounts 1k --fabric-options bound=500ms --duration 60s --warmup 1ms --check \
		--json "$json" >"$work/out" 2>"$work/err" </dev/null &
	pid=$!
	under_way $pid 10
	others=$(pgrep -P $pid)
	victim=$(pgrep -n -P $pid)
	kill -9 "$victim"
	before=$(date +%s)
	wait $pid
	status=$?
	took=$(($(date +%s) - before))
	is "$cc, killed: exit status 1" [ "$status" = 1 ]
	is "$cc, killed: the others stop within 10 s" [ $took -le 10 ]
	is "$cc, killed: one error, with the name" \
		[ "$(grep -c 'error: rank 2 .* died' "$work/err")" = 1 ]
	# Who waits for an answer of the dead process's server may say so before the death is known.
	silent='txn: error: the server of node 2 does not answer'
	is "$cc, killed: and no other" [ "$(grep 'error:' "$work/err" | grep -vcF "$silent")" = 1 ]
	# shellcheck disable=SC2086
	is "$cc, killed: no process is left" gone $others
	is "$cc, killed: what was measured stands, unjudged" holds '.runs[0] | .commits > 0 and
		.workers_killed == 1 and (.died | test("rank 2")) and .invariant.judged == false and
		(.invariant.why | test("records"))'
done
finish
