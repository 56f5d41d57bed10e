#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench txn on shm, one of three processes killed in the middle of SmallBank: the others go on, what the
# dead held is recovered, and the balance is right; without recovery the run stalls and says on whom.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'txn death' 'jq is not installed'
	finish
	exit 0
fi

# Runs bench txn with one worker killed once it has begun, and worked a little.  On a busy machine a run may
# be over before that, and ends well: it is made again.
kill_one() { # WHICH ARGS...: n the newest, o the oldest
	which=$1 json=$work/killed.json tries=0 status=0
	shift
	while [ "$status" = 0 ] && [ $tries -lt 10 ]; do
		tries=$((tries + 1))
		rm -f "$json"
		: >"$work/err"
		VERBENA_LOG=$loud "$verbena" bench txn --nodes 3 --seed 7 --warmup 1ms --json "$json" \
			"$@" >"$work/out" 2>"$work/err" </dev/null &
		pid=$!
		until_true 'it measures' measures
		victim=$(pgrep "-$which" -P $pid)
		if [ -n "$victim" ]; then
			under_way "$victim" 1
			kill -9 "$victim" 2>/dev/null
		fi
		wait $pid
		status=$?
	done
}

smallbank() { # PROTOCOL
	cc=$1
	kill_one n --cc $cc --workload smallbank --coroutines 8 --accounts 300 --duration 1s --lease 100ms --check
	is "$cc: exit status 1" [ "$status" = 1 ]
	is "$cc: the death is counted, and the others went on" holds '.runs[0] | .workers_killed == 1 and
		.clients_killed == 8 and .commits > 0 and .failed == 0 and .stalled == null and
		.last_commits_of_killed + .last_commits_undone <= 1'
	is "$cc: no lock is left, and the balance is right" holds '.runs[0].invariant.holds == true'
	is "$cc: the history is serializable" holds '.runs[0].check.serializable == true'
	is "$cc: a line about it" grep -q '1 worker killed by signal 9, 8 clients lost' "$work/out"
}

# Rows that are added and removed, in many tables: who is killed serves no node.
tpcc() { # PROTOCOL [--ranges]
	cc=$1$2
	kill_one n --cc $1 --workload tpcc $2 --items 200 --customers 30 --orders 20k --threads 2 --coroutines 4 --duration 1s \
		--lease 100ms --check
	is "tpcc, $cc: exit status 1" [ "$status" = 1 ]
	is "tpcc, $cc: the others went on" holds '.runs[0] | .workers_killed == 1 and .servers_killed == 0 and
		.commits > 0 and .stalled == null'
	is "tpcc, $cc: no lock is left, and every condition holds" holds '.runs[0].invariant.holds == true'
	is "tpcc, $cc: the history is serializable" holds '.runs[0].check.serializable == true'
}

# The server of a node: what needs it fails, and that is said; the balance is right all the same.
server() {
	kill_one o --cc silo --hybrid rpc --workload smallbank --coroutines 2 --accounts 300 --duration 3s --lease 100ms
	is 'a server: exit status 1' [ "$status" = 1 ]
	is 'a server: transactions failed' holds '.runs[0] | .servers_killed == 1 and .failed > 0'
	is 'a server: the balance is right' holds '.runs[0].invariant.holds == true'
	is 'a server: a line about it' grep -q 'what is asked of it by RPC fails' "$work/out"
}

# Without recovery: sooner or later one dies with a lock.  Then nothing commits any more.
no_recovery() {
	round=0
	status=0
	while [ $round -lt 20 ] && { [ $round = 0 ] || [ "$status" = 1 ]; }; do
		kill_one n --cc wound-wait --coroutines 4 --workload ycsb --records 40 --ops 16 --write-ratio 1 \
			--dist uniform --no-declare --duration 4s --stall-after 1s --recovery off
		round=$((round + 1))
	done
	# Twelve clients want 16 of 40 records each, and hold what they have while they wait for the rest: that
	# none of 20 workers that were killed held one is no chance.
	is 'no recovery: exit status 4' [ "$status" = 4 ]
	is 'no recovery: stalled, on whom, and which record' holds '.runs[0] | .stalled |
		test("client [0-9]+ of the killed worker [0-9]+ holds record [0-9]+ of table")'
	is 'no recovery: the invariant is not judged, and why is said' holds '.runs[0].invariant |
		.judged == false and (.why | test("recovery"))'
	is 'no recovery: a line about it' grep -q 'stalled: .*there is no recovery' "$work/out"
}

# Each run lasts its seconds, whatever is beside it.
small() {
	for cc in no-wait-sx wait-die wound-wait silo sundial mvcc to to-cascade; do
		smallbank $cc
	done
}
large() {
	for cc in no-wait silo sundial; do
		tpcc $cc
	done
	tpcc silo --ranges
}
last() {
	server
	no_recovery
}
beside small
beside large
beside last
joined
finish
