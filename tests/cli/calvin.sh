#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The protocol that stands in a list of its own, because all that a transaction touches is declared: what runs
# it, what is refused, and what its epochs are said to cost.  On shm also with a worker that is killed.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'calvin' 'jq is not installed'
	finish
	exit 0
fi
json=$work/calvin.json

run list --json
is 'it is listed, beside those that run with any transaction' [ \
	"$(jq -c '[[.cc_declared[].name], ([.cc[].name] | index("calvin"))]' "$work/out")" = '[["calvin"],null]' ]
is '... and says what it wants' [ "$(jq -c '.cc_declared[0].caps | index("declared") != null' "$work/out")" = true ]

for load in tpcc tatp ycsb-e 'ycsb --no-declare'; do
	# shellcheck disable=SC2086
	refused "$load" 2 "wants all that a transaction touches to be declared" \
		bench txn --cc calvin --fabric sim --nodes 2 --workload $load --duration 1ms
done
refused 'small worlds' 2 'declare nothing' check litmus --cc calvin

# The whole of an epoch is a batch from each node to each other one.
for load in ycsb smallbank bank; do
	for fabric in sim shm; do
		span=1ms most=6.5
		# Who is not given a core for long is told again.
		[ $fabric = sim ] || span=500ms most=1000
		run bench txn --cc calvin --hybrid both --fabric $fabric --nodes 3 --workload $load --coroutines 4 --duration $span \
			--check --seed 3 --json "$json"
		is "$load on $fabric: exit status 0" [ "$status" = 0 ]
		is_json "$load on $fabric: strictly serializable, and the sums hold" '.runs | length == 2 and
			all(.commits > 10 and .check.strict and .check.serializable and .invariant.holds)'
		is_json "$load on $fabric: six batches each epoch" ".runs | all(.epochs | .taken > 10 and
			.batches_per_epoch > 5.9 and .batches_per_epoch < $most and .txns_per_epoch > 0.5)"
		is_json "$load on $fabric: forwarded by each node that has a key, and no other" \
			'.runs | all(.epochs.forwards_per_txn | . > 0.9 and . <= 3)'
		is "$load on $fabric: a line of its epochs" grep -qE '^calvin +000( +[0-9.]+){6}$' "$work/out"
	done
done
# All of TPC-C's new-order and payment beforehand: what is guessed is nearly always right where all is in one order, and
# what another protocol guesses wrong is tried again.
small='--items 200 --customers 30 --orders 5k'
for mix in new-order payment-new-order; do
	# shellcheck disable=SC2086
	run bench txn --cc calvin,silo,wait-die-sx --hybrid both --fabric sim --nodes 3 --threads 2 --coroutines 4 --workload tpcc \
		--mix $mix --ahead $small --duration 2ms --check --json "$json"
	is "tpcc, $mix: exit status 0" [ "$status" = 0 ]
	is_json "tpcc, $mix: serializable, and all conditions hold" '.runs | length == 6 and
		all(.commits > 100 and .check.serializable and .invariant.holds)'
	is_json "tpcc, $mix: what is in one order is guessed right" '.runs[:2] | all(.cc == "calvin" and .abort_rate < 0.01)'
done
# shellcheck disable=SC2086
run bench txn --cc calvin --hybrid both --fabric tcp --procs 2 --coroutines 4 --workload tpcc --mix payment-new-order --ahead \
	$small --duration 500ms --check --json "$json"
is 'tpcc on tcp: exit status 0' [ "$status" = 0 ]
is_json 'tpcc on tcp: strictly serializable, and all conditions hold' '.runs | length == 2 and
	all(.commits > 10 and .check.strict and .check.serializable and .invariant.holds)'
refused 'tpcc, the full mix' 2 'known only from what they have read' bench txn --cc calvin --workload tpcc --ahead
# Nobody ends because of another.
run bench txn --cc calvin --fabric sim --nodes 3 --workload ycsb --records 30 --ops 4 --coroutines 8 --duration 1ms --check --json "$json"
is_json 'hot records: nobody is aborted' '.runs[0] | .commits > 100 and .abort_rate == 0 and .invariant.holds'
run bench txn --cc calvin --fabric tcp --procs 3 --workload smallbank --coroutines 4 --duration 500ms --check --json "$json"
is 'smallbank on tcp: exit status 0' [ "$status" = 0 ]
is_json 'smallbank on tcp: strictly serializable' '.runs[0] | .commits > 10 and .check.strict and .check.serializable and
	.epochs.batches_per_epoch > 5.9'

# One of them is killed in the midst of it: the newest, which serves no node, and then a node's server.
kill_one() { # n: the newest, o: the oldest; ARGS...
	which=$1 tries=0 status=0
	shift
	while [ "$status" = 0 ] && [ $tries -lt 10 ]; do
		tries=$((tries + 1))
		rm -f "$json"
		: >"$work/err"
		VERBENA_LOG=$loud "$verbena" bench txn --cc calvin --nodes 3 --seed 7 --warmup 1ms --json "$json" \
			--workload smallbank --accounts 300 --lease 100ms --duration 2s "$@" >"$work/out" 2>"$work/err" </dev/null &
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

kill_one n --threads 2 --coroutines 4 --check
is 'a client is killed: exit status 1' [ "$status" = 1 ]
is_json 'a client is killed: the others go on, and what it had is given back' '.runs[0] | .workers_killed == 1 and
	.servers_killed == 0 and .commits > 0 and .failed == 0 and .invariant.holds and .check.serializable'
kill_one o --coroutines 2
is 'a server is killed: exit status 1' [ "$status" = 1 ]
is_json 'a server is killed: the others leave it out, and what is of its node fails' '.runs[0] | .servers_killed == 1 and
	.failed > 0 and .commits > 0 and .epochs.left_out > 0 and .stalled == null and .invariant.holds'
finish
