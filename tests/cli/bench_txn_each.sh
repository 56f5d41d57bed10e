#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# bench txn: every protocol, one-sided and by RPC, on both fabrics, checked, with each workload that is named.
#
# usage: bench_txn_each.sh VERBENA WORKLOAD...		also ycsb-e and tpcc-ranges
. "$(dirname "$0")/lib.sh"
shift
wanted=$*

if ! command -v jq >/dev/null; then
	skip "bench txn, $wanted" 'jq is not installed'
	finish
	exit 0
fi

wants() { # WORKLOAD
	case " $wanted " in
	*" $1 "*) ;;
	*) return 1 ;;
	esac
}

head_filter='.schema == 1 and .tool == "verbena" and (.argv | length > 2) and
	(.host | type == "object") and .interrupted == false'
# What every run has, whatever it is.
run_filter='.kind == "txn" and .commits > 0 and .goodput_txn_s > 0 and .duration_s > 0 and
	(.hybrid | test("^[01]+$")) and .clients == 8 and .isolation == "serializable" and
	(.wait_ns == (if .cc | startswith("bounded-wait") or . == "dslr-2pl" or . == "votes" then 100000 else null end)) and
	(.abort_rate >= 0 and .abort_rate < 1) and
	(.aborts | has("locked") and has("changed") and has("wounded") and has("timeout")) and
	(.types | length > 0) and (.types | all(.latency_us | has("p50"))) and
	([.types[].commits] | add) == .commits and
	([.types[] | select(.commits > 0) | .latency_us] | all(.min <= .p50 and .p50 <= .p90 and
	.p90 <= .p99 and .p99 <= ."p99.9" and ."p99.9" <= .max)) and
	(.stages | last.name == "commit-point" and all(.us_per_txn >= 0)) and
	(.stages | length) == (.hybrid | length) + 1 and
	([.prims_per_txn[]] | length == 7 and add > 0) and (.verbs_per_txn | has("all")) and
	(.effective_cpu > 0 and .effective_cpu <= 1) and (.calls_per_txn | type == "number") and
	.check.serializable == true and .check.story == null and .check.committed >= .commits and
	.invariant.judged == true and .invariant.holds == true and .failed == 0 and
	.stalled == null and .workers_killed == 0'
# Those that there are; that none is lost, results.sh sees.
protocols=$("$verbena" list --json | jq -c '[.cc[].name]')
# A name for one hybrid code runs once.
mixed=$("$verbena" list --json | jq '[.cc[] | select(.hybrid)] | length')
for fabric in sim shm; do
	# On a machine with other work a short span may be over before anything has committed.
	spans='1ms'
	[ $fabric = shm ] && spans='100ms 600ms 3s'
	for load in 'ycsb --records 2k --dist zipf:0.5' 'smallbank --accounts 200 --hot-accounts 20' \
		'bank --accounts 16' 'tatp --subscribers 300' \
		'tpcc --items 200 --customers 30 --orders 20k'; do
		what="$fabric, ${load%% *}"
		wants "${load%% *}" || continue
		# Keys that are looked for in vain, or added, go through their servers.
		case ${load%% *} in
		tatp) calls=1 ;;
		tpcc) calls=3 ;;
		*) calls=0.1 ;;
		esac
		# Of the larger loads a few on shm: every protocol has run them on sim.
		what_cc='--cc all --wait 100us'
		expected=$protocols
		once=$mixed
		case $fabric,${load%% *} in
		shm,t*)
			what_cc='--cc no-wait-sx,wound-wait,silo,sundial --hybrid both'
			expected='["no-wait-sx","wound-wait","silo","sundial"]'
			once=0
			;;
		esac
		many=$(($(echo "$expected" | jq length) - once))
		for span in $spans; do
			# shellcheck disable=SC2086
			run bench txn $what_cc --fabric $fabric --nodes 2 --threads 1 --coroutines 4 \
				--workload $load --duration $span --check --seed 5 --json "$json"
			[ "$status" = 0 ] || break
			holds '.runs | all(.commits > 0)' && break
		done
		is "$what: exit status 0" [ "$status" = 0 ]
		is_json "$what: the head" "$head_filter and .seed == 5 and .skipped == []"
		is_json "$what: every protocol, one-sided and by RPC" \
			"([.runs[].cc] | unique) == ($expected | sort) and (.runs | length) == 2 * $many + $once and
			([.runs[] | select(.hybrid | test(\"^0+\$\"))] | length) == $many and
			([.runs[] | select(.hybrid | test(\"^1+\$\"))] | length) == $many"
		is_json "$what: what each run has" ".runs | all($run_filter)"
		is_json "$what: calls by RPC only" \
			".runs | all((.hybrid | test(\"1\")) == (.calls_per_txn > $calls))"
		is_json "$what: strict, but for sundial, maat, mvcc, mvcc-rcc, cicada, to and to-cascade" \
			'.runs | all(.check.strict == (.cc | IN("sundial", "maat", "mvcc", "mvcc-rcc", "cicada", "to", "to-cascade") | not))'
		is "$what: a line for each run" \
			[ "$(grep -cE '^[a-z0-9-]+ +[01]+ .*(strictly|yes) +holds$' "$work/out")" = $((2 * many + once)) ]
		is "$what: no progress off a terminal" [ "$(grep -vc 'lost: not done within the lease' "$work/err")" = 0 ]
	done
done

# Scans ask the owners of the keys where reads do: by the hybrid code's first digit.
scans() {
	run bench txn --cc all --wait 100us --fabric sim --nodes 2 --threads 1 --coroutines 4 --workload ycsb-e \
		--records 1k --scan-max 20 --duration 2ms --check --seed 5 --json "$json"
	is 'scans: exit status 0' [ "$status" = 0 ]
	is_json 'scans: every protocol' "([.runs[].cc] | unique) == ($protocols | sort)"
	is_json 'scans: serializable, and nothing is left out' '.runs | all(.commits > 50 and .failed == 0 and
		.check.serializable and .invariant.holds)'
	is_json 'scans: of servers by RPC' '.runs | all((.hybrid | test("^1")) == (.calls_per_txn > 3))'
	run bench txn --cc no-wait-sx,silo,mvcc --hybrid both --fabric shm --nodes 2 --threads 1 --coroutines 2 \
		--workload ycsb-e --records 1k --scan-max 20 --duration 600ms --check --json "$json"
	is 'scans on shm: exit status 0' [ "$status" = 0 ]
	is_json 'scans on shm: the same' '.runs | length == 6 and all(.commits > 0 and .check.serializable and .invariant.holds)'
}

# TPC-C by range, and what was delivered by others lies between.
by_range() {
	run bench txn --cc all --fabric sim --nodes 2 --threads 1 --coroutines 4 --workload tpcc --ranges --items 200 \
		--customers 30 --orders 20k --duration 1ms --check --seed 5 --json "$json"
	is 'tpcc by range: exit status 0' [ "$status" = 0 ]
	is_json 'tpcc by range: every protocol' "([.runs[].cc] | unique) == ($protocols | sort)"
	is_json 'tpcc by range: serializable, and all conditions hold' '.runs | all(.commits > 10 and .failed == 0 and
		.calls_per_txn > 1 and .workload.ranges and .check.serializable and .invariant.holds)'
	run bench txn --cc no-wait-sx,silo,mvcc --hybrid both --fabric shm --nodes 2 --threads 2 --coroutines 2 \
		--workload tpcc --ranges --items 200 --customers 30 --orders 20k --duration 600ms --check --json "$json"
	is 'tpcc by range on shm: exit status 0' [ "$status" = 0 ]
	is_json 'tpcc by range on shm: the same' '.runs | length == 6 and all(.commits > 0 and .check.serializable and .invariant.holds)'
	# Whatever is one-sided and whatever is not.
	run bench txn --cc no-wait-sx --hybrid all --fabric sim --nodes 2 --threads 1 --coroutines 4 --workload tpcc --ranges \
		--items 200 --customers 30 --orders 20k --duration 1ms --check --seed 6 --json "$json"
	is 'tpcc by range, every code: exit status 0' [ "$status" = 0 ]
	is_json 'tpcc by range, every code: serializable, and all conditions hold' '.runs | length == 8 and
		all(.commits > 10 and .failed == 0 and .check.serializable and .invariant.holds)'
	is_json 'tpcc by range: scans of servers take more calls' '[.runs[] | {(.hybrid): .calls_per_txn}] | add |
		.["100"] > .["000"] + 1'
	run bench txn --cc no-wait-sx,wait-die-sx --isolation read-committed --fabric sim --nodes 2 --threads 1 --coroutines 4 \
		--workload tpcc --ranges --items 200 --customers 30 --orders 20k --duration 2ms --check --seed 3 --json "$json"
	is 'tpcc by range, read committed: exit status 0' [ "$status" = 0 ]
	is_json 'tpcc by range, read committed: nothing is missing' '.runs | all(.commits > 10 and .failed == 0)'
}

if wants ycsb-e; then
	scans
fi
if wants tpcc-ranges; then
	by_range
fi
finish
