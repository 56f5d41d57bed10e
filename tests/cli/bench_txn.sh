#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench txn: switches, levels, histories, an end before its time; bad input.  Each workload: bench_txn_each.sh.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'bench txn' 'jq is not installed'
	finish
	exit 0
fi

# What takes no virtual time would never end.
run bench txn --cc silo --fabric sim --workload ycsb --records 1k --span 1 --duration 1ms
is 'only near records on sim: exit status' [ "$status" = 2 ]
is 'only near records on sim: the reason' grep -q 'no virtual time.*--span.*scope=nic' "$work/err"

# The same seed is the same simulation.
for i in 1 2; do
	run bench txn --cc wait-die --hybrid 101 --fabric sim --nodes 3 --coroutines 3 --records 200 \
		--span 2 --duration 1ms --seed 9 --json "$work/same.$i"
done
same() {
	a=$(jq -S '.runs[0] | del(.wall_s, .fill_s)' "$work/same.1")
	b=$(jq -S '.runs[0] | del(.wall_s, .fill_s)' "$work/same.2")
	[ -n "$a" ] && [ "$a" = "$b" ]
}
is 'sim: the same seed gives the same figures' same

# What switches do.
run bench txn --cc no-wait --fabric sim --nodes 2 --no-doorbell --no-outstanding --passive-ack \
	--recovery off --lease 5ms --no-breakdown --blind --no-declare --records 100 --threads 2 \
	--duration 1ms --json "$json"
is 'switches: exit status 0' [ "$status" = 0 ]
is_json 'switches: are in the JSON' '.runs[0] | .doorbell == false and .outstanding == false and
	.passive_ack == true and .recovery == false and .lease_ns == 5000000 and .stages == null and
	.workload.blind == true and .workload."no-declare" == true and .check == null and
	.clients == 32'
run bench txn --cc silo --fabric sim --nodes 4 --copies 2 --threads 1 --coroutines 1 --check --duration 1ms --json "$json"
is_json 'copies of the log: a stage of less than two commit stages' '.runs[0] | .copies == 2 and .check.strict and
	(.stages | map(select(.name == "log" or .name == "commit")) | length == 2 and (map(.mean_us) | max / min) < 2)'
run bench txn --cc maat,to-cascade --hybrid both --fabric sim --nodes 4 --copies 2 --check --duration 1ms --json "$json"
is_json 'copies of the log: of intervals, and of what undoes' '.runs | length == 4 and all(.copies == 2 and .check.serializable)'
run bench txn --cc calvin --fabric sim --nodes 4 --copies 2 --duration 1ms
is 'copies of the log: not under calvin' [ "$status" = 2 ]
run bench txn --cc silo --hybrid all --fabric sim --nodes 2 --records 100 --duration 200us --json "$json"
is_json 'every hybrid code' '([.runs[].hybrid] | unique | length) == 32'
# RCBench, figure 23: a name for one code.  Its reads make no calls, the rest does.
run bench txn --cc silo,drtm-h --fabric sim --nodes 2 --records 100 --check --duration 200us --json "$json"
is_json 'drtm-h beside silo' '([.runs[] | [.cc, .hybrid]] == [["silo", "00000"], ["drtm-h", "01111"]]) and
	(.runs | all(.check.serializable and .check.strict and .commits > 0)) and
	.runs[0].calls_per_txn < 0.1 and .runs[1].calls_per_txn > 1'
is 'drtm-h has a line with its code' grep -qE '^drtm-h +01111 ' "$work/out"
run bench txn --cc drtm-h --hybrid all --fabric sim --nodes 2 --records 100 --duration 200us --json "$json"
is_json 'every code of a name for one' '[.runs[].hybrid] == ["01111"]'
run bench txn --cc silo --fabric sim --fabric-options scope=nic --nodes 2 --records 100 \
	--duration 200us --json "$json"
is_json 'sim: the scope of atomics is an option' \
	'.runs[0] | .near_prims_per_txn == 0 and .fabric_options == "scope=nic"'

# What is asked for is what is judged, and no more is kept.
run bench txn --cc wound-wait --fabric sim --nodes 2 --coroutines 4 --records 40 --no-declare --isolation read-committed \
	--duration 1ms --history "$work/weak.jsonl" --json "$json"
is 'read committed: exit status 0' [ "$status" = 0 ]
is_json 'read committed: judged at that' '.runs[0].check | .level == "read-committed" and .kept and .serializable == null'
is 'read committed: said' grep -qE '^wound-wait .* as asked +-$' "$work/out"
is_json 'read committed: in the JSON' '.runs[0] | .isolation == "read-committed" and .wait_ns == null and
	.invariant.judged == false'
is 'read committed: locks are looked at' grep -q 'not judged: .* no lock was left$' "$work/out"
run check history "$work/weak.jsonl"
is 'read committed: so does its history' grep -qx 'read committed' "$work/out"
run check history "$work/weak.jsonl" --level repeatable-read
is 'read committed: no repeatable reads' grep -q '^not repeatable read: ' "$work/out"
# Write skew occurs, and is what the level permits.
run bench txn --cc mvcc --hybrid both --fabric sim --nodes 2 --records 100 --isolation snapshot --check --duration 3ms --json "$json"
is_json 'snapshot isolation: judged at that' '(.runs | length) == 2 and (.runs | all(.isolation == "snapshot" and
	.snapshot_lag_ns == 200000 and .commits > 20 and .check.level == "snapshot" and .check.kept))'
run bench txn --cc mvcc --fabric sim --nodes 2 --records 40 --isolation snapshot --snapshot-lag 100us --duration 3ms \
	--history "$work/skew.jsonl"
is 'snapshot isolation: exit status 0' [ "$status" = 0 ]
is 'snapshot isolation: said' grep -q ', snapshot isolation,' "$work/out"
run check history "$work/skew.jsonl"
is 'snapshot isolation: so does its history' grep -qx 'snapshot isolated' "$work/out"
run check history "$work/skew.jsonl" --level serializable
is 'snapshot isolation: not serializable' [ "$status" = 3 ]
is 'snapshot isolation: for write skew' grep -q '^not serializable: .*write skew' "$work/out"
run bench txn --cc mocc --fabric sim --nodes 2 --records 40 --hot-from 1 --check --duration 1ms --json "$json"
is_json 'a temperature: strict, and told' '.runs[0] | .check.strict and .invariant.holds and .hot_from == 1 and .wait_ns == null'
refused 'a temperature where records have none' 2 "--hot-from" bench txn --cc silo --hot-from 2
refused 'a lag without snapshots' 2 "--snapshot-lag" bench txn --cc silo --snapshot-lag 1ms

run bench txn --cc all --hybrid none --fabric sim --nodes 2 --records 100 --isolation repeatable-read --check --duration 200us \
	--json "$json"
is_json 'repeatable read: of all, those that offer it' '([.runs[].cc] | any(. == "no-wait-sx") and any(. == "to")) and
	([.runs[].cc] | all(. != "silo" and . != "sundial")) and (.runs | all(.check.kept))'
run bench txn --cc bounded-wait-sx --fabric sim --nodes 2 --records 40 --wait 100us --check --duration 1ms --json "$json"
is_json 'a bounded wait: strict' '.runs[0] | .check.serializable and .check.strict and .invariant.holds'
run bench txn --cc bounded-wait --fabric sim --nodes 2 --records 40 --duration 200us --json "$json"
is_json 'a bounded wait: the default is told' '.runs[0] | .lease_ns == 50000000 and .wait_ns == 781250'
# Barthels et al., section 4.3: 1.1 agents, and a vote of those who write at another home.
run bench txn --cc votes,bounded-wait-sx --hybrid none --fabric sim --nodes 2 --workload tpcc --fixed --items 200 --customers 30 \
	--threads 1 --coroutines 1 --mix payment-new-order --duration 5ms --json "$json"
is_json 'votes: agents are told, of votes alone' '(.runs[0].agents_per_txn | . > 1.03 and . < 1.25) and (.runs[1] | has("agents_per_txn") | not)'
is_json 'votes: a share of them votes' '.runs[0].stages | map(select(.name == "vote"))[0].runs_per_txn | . > 0.03 and . < 0.25'
refused 'a wait beyond the lease' 2 "--wait lease 1000000000 50000000" bench txn --cc bounded-wait --fabric sim --wait 1s
refused 'a wait without a bound' 2 "--wait wait-die" bench txn --cc wait-die --wait 1ms
refused 'a level that is not offered' 2 "--isolation silo" bench txn --cc silo --isolation read-committed

# A history that is full ends the run; what is in it is still right.
run bench txn --cc silo --nodes 2 --coroutines 2 --records 1k --duration 20s --warmup 1ms --check \
	--history-bytes 1m --json "$json"
is 'a full history: exit status 0' [ "$status" = 0 ]
is_json 'a full history: ended early, and says so' \
	'.runs[0].check | .history_full == true and .serializable == true'
is 'a full history: a line about it' grep -q 'history-bytes' "$work/out"

# Districts that are full end the run; what they hold is still right.
run bench txn --cc no-wait --workload tpcc --items 100 --customers 30 --orders 20 --mix new-order --fixed --nodes 2 \
	--coroutines 2 --duration 20s --warmup 1ms --check --json "$json"
is 'full districts: exit status 0' [ "$status" = 0 ]
is_json 'full districts: ended early, and says so' '.runs[0] | .tables_full == true and .invariant.holds == true and
	.check.history_full == false and .check.serializable == true and .workload.orders == 20'
is 'full districts: a line about it' grep -q 'more --orders' "$work/out"

# A history is written, and read back with the same verdict.
run bench txn --cc sundial --fabric sim --nodes 2 --records 50 --duration 1ms \
	--history "$work/history.jsonl"
is 'a history: exit status 0' [ "$status" = 0 ]
run check history "$work/history.jsonl"
is 'a history: is checked again' [ "$status" = 0 ]
is 'a history: says what it claims' \
	[ "$(head -1 "$work/history.jsonl")" = '{"history":"transactions","level":"serializable"}' ]

# Interrupted, at whatever moment: what there is, valid, exit status 130.
VERBENA_LOG=$loud "$verbena" bench txn --cc silo,no-wait --nodes 2 --records 1k --duration 60s \
	--warmup 10ms --json "$json.int" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
until_true 'it measures' measures
kill -INT $pid
wait $pid
status=$?
json=$json.int
is 'interrupted: exit status 130' [ "$status" = 130 ]
is_json 'interrupted: the JSON is whole' '.interrupted == true and .runs[0].cc == "silo" and
	.runs[0].interrupted == true and .runs[0].invariant.holds == true'

refused 'unknown protocol, with a suggestion' 2 "siloo 'silo'" bench txn --cc siloo
refused 'one simulated node' 2 'one simulated node' bench txn --cc silo --fabric sim --nodes 1
refused 'unknown workload, with a suggestion' 2 "ycbs 'ycsb'" bench txn --workload ycbs
refused 'hybrid code of the wrong length' 2 "0101 silo 5 stages lock" bench txn --cc silo --hybrid 0101
refused 'hybrid code of other digits' 2 "00x00 5 digits" bench txn --cc silo --hybrid 00x00
refused 'a hybrid code that fits only some' 2 "00000 no-wait 3" bench txn --cc silo,no-wait --hybrid 00000
refused 'another hybrid code than the one it is a name for' 2 "00000 drtm-h silo 01111" \
	bench txn --cc silo,drtm-h --hybrid 00000
refused '... or every stage by RPC' 2 "rpc drtm-h silo 01111" bench txn --cc drtm-h --hybrid rpc
refused 'a table that does not fit' 6 "MiB" bench txn --records 30g
refused 'an option of another workload' 2 "--accounts ycsb" bench txn --accounts 5
refused 'more records than there are' 2 "--ops" bench txn --records 2 --ops 9
refused 'more nodes than there are' 2 "--span" bench txn --nodes 2 --span 3
refused 'no such distribution' 2 "normal uniform" bench txn --dist normal
refused 'unknown profile' 2 "cx9 'cx5'" bench txn --fabric sim --profile cx9
refused 'a segment on sim' 2 "--segment shm" bench txn --fabric sim --segment x
refused 'a profile on shm' 2 "--profile sim" bench txn --profile cx5
refused 'too many clients' 2 "16000 clients" bench txn --nodes 200 --coroutines 1000
refused 'a history of several runs' 2 "--history --cc" bench txn --cc all --history "$work/h"
refused 'a history that cannot be written' 2 "/nowhere/at/all" \
	bench txn --cc silo --history /nowhere/at/all
refused 'a JSON path that cannot be written' 2 "/nowhere/at/all.json" \
	bench txn --json /nowhere/at/all.json
refused 'a history without room' 2 "--history-bytes" \
	bench txn --cc silo --records 100 --check --history-bytes 65536 --coroutines 100
run bench txn --help
is 'help: each workload has its options' \
	[ "$(grep -cE "^Load '(ycsb|ycsb-e|smallbank|bank|tatp|tpcc)'" "$work/out")" = 6 ]
finish
