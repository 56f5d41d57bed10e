#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Lock traces: described, written and read as text, run by bench lock.
. "$(dirname "$0")/lib.sh"

file=$work/some.csv
sim='bench lock --fabric sim --nodes 6 --clients 24 --duration 2ms --seed 3'

# ---- as text ----

run trace stat --trace tpcc --hosts 5 --clients 5 --transactions 20k
is 'stat: exit status 0' [ "$status" = 0 ]
is 'stat: locks of ShiftLock' grep -q '^tpcc: 60490 locks' "$work/out"
is 'stat: a line for each type' [ "$(grep -cE '^(new-order|payment|order-status|delivery|stock-level|all) ' "$work/out")" = 6 ]

run trace export --trace tpcc --hosts 5 --clients 24 --transactions 5k --seed 3 --head "$file"
is 'export: exit status 0' [ "$status" = 0 ]
is 'export: names' grep -qx '# type 3 order-status' "$file"
is 'export: lines as public traces have them' \
	[ "$(grep -cvE '^(# .*|[0-9]+,0,[1-5],[0-9]+,[12])$' "$file")" = 0 ]
run trace export --trace tpcc --hosts 5 --clients 24 --transactions 100 --seed 3 -
is 'export: to stdout, without a head' [ "$(head -c 4 "$work/out")" = 1,0, ]
run trace export --trace tpcc-rows --transactions 20 "$work/rows.csv"
is 'export: letters for intention modes' grep -qE '^[0-9]+,0,[1-5],[0-9]+,(IX|IS)$' "$work/rows.csv"
run trace stat --trace "trace:$work/rows.csv" --transactions 20
is 'read again: intention modes' [ "$status" = 0 ]

refused 'export: no file' 2 'FILE' trace export --trace tpcc
refused 'export: a folder that is not there' 2 'cannot write' trace export --trace tpcc "$work/no/x"
refused 'stat: no trace' 2 '--trace' trace stat
refused 'stat: a name that is near' 2 'tpcc' trace stat --trace tpc
refused 'stat: an option of another trace' 2 'warehouses' trace stat --trace tatp \
	--workload-options warehouses=3
printf '1,0,1,5,1\n1,0,1,6,9\n' >"$work/bad.csv"
refused 'a bad line is named' 2 'bad.csv line 2 mode' bench lock --lock cas --trace "$work/bad.csv"
refused 'a file that is not there' 2 'no.csv' bench lock --lock cas --workload "trace:$work/no.csv"
refused 'a folder' 2 'regular' bench lock --lock cas --trace "$work"
: >"$work/empty.csv"
refused 'an empty file' 2 'empty.csv transaction' trace stat --trace "trace:$work/empty.csv"

# ---- what cannot be run ----

refused 'a workload that is near' 2 'tatp' bench lock --lock cas --workload tat
refused 'micro: an option of traces' 2 'traces' bench lock --lock cas --order trace --timeout 1ms
refused 'a trace: an option of micro' 2 'micro' bench lock --lock cas --workload tpcc --dist uniform
refused 'the order of the trace: no timeout' 2 '--timeout circle' bench lock --lock cas \
	--workload tpcc --order trace
refused 'scans of a trace without tables' 2 'tatp scanned' bench lock --lock cas --workload tatp \
	--scan-rate 0.1
refused 'too few locks' 2 '60490' bench lock --lock cas --workload tpcc --fabric sim --nodes 6 \
	--locks 1k
refused 'intention modes' 2 'dslr levels=rows' bench lock --lock dslr --fabric sim \
	--workload tpcc-rows

# ---- run ----

if ! command -v jq >/dev/null; then
	skip 'results' 'jq is not installed'
	finish
	exit 0
fi

run $sim --lock all --workload tpcc --json "$json"
is 'tpcc: exit status 0' [ "$status" = 0 ]
# A lock whose readers have short leases lets transactions expire; the others abort nothing here.
is_json 'tpcc: what each run has' '.runs | length >= 7 and all(.locks == 60490 and
	.workload.trace == "tpcc" and .workload.think_ns == 7000 and .workload.order == "sorted" and
	.audit.violations == 0 and .audit.checked_ops > 0 and
	(.txns | .committed > 50 and .committed_tps > 0 and
	.given_up == 0 and .locks_per_txn > 7 and .locks_per_txn < 10.5)) and
	all(.lock == "drtm" or (.txns | .aborts == 0 and .abort_share == 0))'
is_json 'tpcc: locks are those of transactions that committed' '.runs |
	all(.ops > 7 * .txns.committed and .ops < 10.5 * .txns.committed)'
is_json 'tpcc: a latency of each type' '.runs[0].txns.latency_us | keys == ["all", "delivery",
	"new-order", "order-status", "payment", "stock-level"] and
	.all.count > 50 and ([.[].count] | add) == 2 * .all.count and
	(.["new-order"] | .p50 > 7 and .p50 <= .p99 and .p99 <= ."p99.9")'
is 'tpcc: told' grep -qE 'transactions/s with [0-9.]+ locks each; 0% of the attempts aborted' "$work/out"

# The file has the same transactions for the same clients: the same run, to the last verb.
jq -S '[.runs[] | select(.lock == "shiftlock") | .ops, .latency_us, .verbs_per_op, .txns]' "$json" \
	>"$work/drawn"
run $sim --lock shiftlock --trace "$file" --json "$json"
jq -S '[.runs[] | .ops, .latency_us, .verbs_per_op, .txns]' "$json" >"$work/read"
is 'a file: exit status 0' [ "$status" = 0 ]
is 'a file: the same as what was written to it' cmp "$work/drawn" "$work/read"

run $sim --lock dslr,shiftlock --workload tpcc --workload-options warehouses=1,homes=1 \
	--order trace --timeout 100us --think 20us --retries 3 --json "$json"
is 'in the order of the trace: exit status 0' [ "$status" = 0 ]
is_json 'in the order of the trace: aborted, and done in the end' '.runs | all(.txns.aborts > 0 and
	.txns.aborts == .txns.aborts_by_cause.timeout and .txns.committed > 0 and
	.workload.think_ns == 20000 and .audit.violations == 0 and
	(.txns | .abort_share > 0 and .abort_share < 1))'
is_json 'retries are bounded' '.runs | all(.txns.given_up > 0)'

# Whose lease has run out does not commit; who scans holds the table for so long.
run $sim --lock dslr --workload tpcc --workload-options warehouses=1 --lease 2ms --scan-rate 0.02 \
	--scan 3ms --retries 1 --duration 40ms --json "$json"
is_json 'scans longer than the lease are aborted' '.runs[0] | .txns.aborts_by_cause.expired > 0 and
	.txns.latency_us["table-scan"].count == 0 and .txns.given_up > 0 and .audit.violations == 0'
run $sim --lock shiftlock --workload tpcc --workload-options warehouses=1 --scan-rate 0.02 \
	--scan 500us --duration 20ms --json "$json"
is_json 'scans within the lease are done' '.runs[0] | .txns.latency_us["table-scan"].count > 0 and
	.txns.latency_us["table-scan"].min >= 500 and .txns.aborts == 0'

# What it has locked is read, and what it has locked exclusively written: so many verbs, and so much longer.
run $sim --lock cas-backoff --workload tatp --clients 1 --json "$json"
jq '.runs[0] | .verbs_per_op.read, .verbs_per_op.write, .txns.latency_us.all.mean' "$json" >"$work/none"
run $sim --lock cas-backoff --workload tatp --clients 1 --data 64 --json "$json"
jq '.runs[0] | .verbs_per_op.read, .verbs_per_op.write, .txns.latency_us.all.mean' "$json" >"$work/data"
is 'without --data nothing is read or written' [ "$(sed -n '1,2p' "$work/none" | tr '\n' ' ')" = '0 0 ' ]
is 'with it each lock is read' awk 'NR == 1 { exit !($1 > 0.97 && $1 < 1.03) }' "$work/data"
is 'and the exclusive ones written' awk 'NR == 2 { exit !($1 > 0.1 && $1 < 0.6) }' "$work/data"
is 'which takes time' awk 'NR == FNR { before = $1; next } END { exit !($1 > before + 1.5) }' \
	"$work/none" "$work/data"
refused '--data on shm' 2 'sim' bench lock --lock cas --workload tatp --data 64
refused '--data of no trace' 2 'traces' bench lock --lock cas --fabric sim --data 64

run $sim --lock dslr,shiftlock --workload tpcc --fail-rate 0.01 --lease 2ms --duration 40ms \
	--json "$json"
is_json 'transactions that die with their locks' '.runs | all(.txns.died > 0 and .txns.committed > 0 and
	.skipped_releases > .txns.died and .audit.violations == 0 and .stalled == null)'

run $sim --lock mcs --workload tpcc-rows --workload-options levels=rows --pause 5us --json "$json"
is_json 'hundreds of locks at a time' '.runs[0] | .txns.latency_us["stock-level"].count > 0 and
	.txns.locks_per_txn > 30 and .audit.violations == 0'
# Each of 350 agents has room for so many; for more it would be 10 GB where memory is filled by a debugging malloc.
run bench lock --fabric sim --nodes 70 --servers 70 --server-threads 5 --clients 70 --lock table \
	--lock-options requests=512 --workload tpcc-rows --workload-options fixed=yes --duration 300us --json "$json"
is 'many lock servers: exit status 0' [ "$status" = 0 ]
is_json 'many lock servers, which keep nothing of a lock that is free' '.runs[0] | .servers == 70 and
	.server_threads == 5 and .txns.committed > 70 and .audit.violations == 0'
run $sim --lock all --workload tpcc-rows --json "$json"
is_json 'intention modes: who has none is skipped' '[.skipped[] | select(.why |
	test("intention modes")) | .lock] | index("dslr") != null'

run bench lock --lock cas-backoff,mcs --fabric shm --procs 2 --clients 4 --workload smallbank \
	--workload-options accounts=100,hot-accounts=10 --duration 100ms --json "$json"
is 'shm: exit status 0' [ "$status" = 0 ]
is_json 'shm: transactions of both processes' '.runs | all(.txns.committed > 100 and
	.audit.violations == 0 and .txns.locks_per_txn > 1.5 and .txns.locks_per_txn < 2.2 and
	.txns.committed_tps < .goodput_ops_s)'

why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "ucx") | .absent // empty')
if [ -n "$why" ]; then
	skip 'ucx: transactions' "$why"
else
	run bench lock --lock cas-backoff --fabric ucx --fabric-options bound=500ms --procs 3 \
		--clients 4 --workload tatp --workload-options subscribers=1k --duration 300ms \
		--json "$json"
	is_json 'ucx: transactions' '.runs[0] | .txns.committed > 50 and .audit.violations == 0 and
		.txns.locks_per_txn > 1 and .txns.locks_per_txn < 1.4'
fi
finish
