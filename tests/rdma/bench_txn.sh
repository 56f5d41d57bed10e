#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Transactions over RDMA: processes on two devices, checked; the largest record; one process killed.
. "$(dirname "$0")/../cli/lib.sh"
device=${VERBENA_VERBS_DEVICE-}
second=${VERBENA_VERBS_DEVICE2-$device}
json=$work/run.json

if [ -z "$device" ]; then
	skip 'transactions over verbs' 'VERBENA_VERBS_DEVICE names no RDMA device'
	finish
	exit
fi

# Ranks 0 and 2 are on the first device, 1 on the second.
common="--fabric verbs --coroutines 2 --fabric-options device=$device+$second"

holds() { # FILTER
	jq -e "$1" "$json" >/dev/null || {
		jq -c '.runs[] | {cc, hybrid, commits, failed, died, stalled, check, invariant}' "$json"
		false
	}
}

# A span in which nothing commits shows nothing: then a longer one, for a machine with other work.
bench() { # PROCESSES ARGS...
	procs=$1
	shift
	for span in 250ms 3s; do
		rm -f "$json"
		# shellcheck disable=SC2086
		run bench txn $common --procs "$procs" --check --duration $span --json "$json" "$@"
		[ "$status" = 0 ] || break
		jq -e '.runs | all(.commits > 0)' "$json" >/dev/null && break
	done
}

right() { # RUNS
	holds ".runs | length == $1 and all(.fabric == \"verbs\" and .nodes == $procs and .commits > 0 and
		.failed == 0 and .died == null and .check.serializable == true and .invariant.holds == true)"
}

# A protocol for one hybrid code is no other's: it has no run wholly one-sided, nor wholly by RPC.
protocols=$("$verbena" list --json | jq '[.cc[] | select(.hybrid == null)] | length')
bench 3 --cc all --hybrid none --workload ycsb --records 1k --dist uniform --ops 6
is 'ycsb, one-sided: exit status 0' [ "$status" = 0 ]
is 'ycsb, one-sided: every protocol, checked' right "$protocols"

# With more processes than cores a call takes many of the kernel's turns.
bench 2 --cc all --hybrid rpc --workload ycsb --records 1k --dist uniform --ops 6
is 'ycsb, by RPC: exit status 0' [ "$status" = 0 ]
is 'ycsb, by RPC: every protocol, checked' right "$protocols"

bench 3 --cc wait-die-fair,wound-wait-sx,silo,sundial --hybrid both --workload smallbank --accounts 300 \
	--hot-accounts 300
is 'smallbank: exit status 0' [ "$status" = 0 ]
is 'smallbank: every run, checked' right 8
# Soft-RoCE's atomics know nothing of the CPU's: a node's own records, too, are reached through it.
case $device in
rxe*) is 'smallbank: nothing passes the device by' holds '.runs | all(.near_prims_per_txn == 0)' ;;
esac

# One of each kind, with the loads that insert and delete.
kinds=no-wait-sx,silo,mvcc,to
bench 2 --cc $kinds --hybrid none --workload tatp --subscribers 200
is 'tatp: exit status 0' [ "$status" = 0 ]
is 'tatp: every run, checked' right 4
tpcc='--workload tpcc --items 200 --customers 30 --orders 5k'
# shellcheck disable=SC2086
bench 2 --cc $kinds --hybrid none $tpcc
is 'tpcc: exit status 0' [ "$status" = 0 ]
is 'tpcc: every run, checked' right 4

# What --cc all is without, since it wants all declared.
bench 2 --cc calvin --workload ycsb --records 1k --dist uniform --ops 6
is 'calvin, ycsb: exit status 0' [ "$status" = 0 ]
is 'calvin, ycsb: checked' right 1
# shellcheck disable=SC2086
bench 2 --cc calvin $tpcc --mix payment-new-order --ahead
is 'calvin, tpcc: exit status 0' [ "$status" = 0 ]
is 'calvin, tpcc: checked' right 1

# A record that, with what stands beside it, is as long as a verb may be.
bench 2 --cc silo --hybrid both --workload ycsb --record-bytes 65024 --records 8 --dist uniform --ops 2
is 'the largest record: exit status 0' [ "$status" = 0 ]
is 'the largest record: every run, checked' right 2

# A process that is killed: the others stop with its name and leave what they have measured.
within() { # SECONDS COMMAND...: it holds before that
	tries=$(($1 * 10))
	shift
	until "$@"; do
		tries=$((tries - 1))
		[ $tries -gt 0 ] || return 1
		sleep 0.1
	done
}

gone() { # PID...
	for p in "$@"; do
		! kill -0 "$p" 2>/dev/null || return 1
	done
}

# Some stages are one-sided, some by RPC.
rm -f "$json"
# shellcheck disable=SC2086
VERBENA_LOG=$loud "$verbena" bench txn --cc silo --hybrid 01001 $common --procs 3 --workload smallbank --accounts 1k \
	--duration 300s --warmup 1ms --check --json "$json" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
under_way $pid 50
others=$(pgrep -P $pid)
victim=$(pgrep -n -P $pid)
kill -9 "$victim"
is 'killed: the others stop within 30 s' within 30 gone $pid
gone $pid || kill -9 $pid
wait $pid
status=$?
is 'killed: exit status 1' [ "$status" = 1 ]
is 'killed: one error, with the name' [ "$(grep -c 'error: rank 2 .* died' "$work/err")" = 1 ]
# Who waits for an answer of the dead process's server may say so before the death is known.
silent='txn: error: the server of node 2 does not answer'
is 'killed: and no other' [ "$(grep 'error:' "$work/err" | grep -vcF "$silent")" = 1 ]
# shellcheck disable=SC2086
is 'killed: no process is left' within 10 gone $others
is 'killed: what was measured stands, unjudged' holds '.runs[0] | .commits > 0 and
	.workers_killed == 1 and (.died | test("rank 2")) and .invariant.judged == false'
finish
