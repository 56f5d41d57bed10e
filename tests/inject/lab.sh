#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: lab.sh VERBENA-INJECT [ONLY-SCENARIOS-WITH-THIS-IN-THEIR-NAME]
#
# The commands while calls fail (inject.h): each must end with a status of its own and words on stderr,
# or do its work; leave no half a file; and do its work when asked again.
#
# Each place that calls fails once alone, and every other one for good; with VERBENA_INJECT_SWEEP=all every call
# does, and some by chance for VERBENA_INJECT_SEEDS seeds (20).
. "$(dirname "$0")/../cli/lib.sh"
verbena=$(realpath "$verbena") # it is run elsewhere
only=${2-}
all=${VERBENA_INJECT_SWEEP-}
seeds=${VERBENA_INJECT_SEEDS-2}
[ "$all" != all ] || seeds=${VERBENA_INJECT_SEEDS-20}
tried=$work/tried
: >"$tried"

# What is wrong with a run in the directory $at that has ended with $status, if anything.
wrong() {
	case $status in
	0) ;;
	124) echo 'it hangs' ;;
	# The doctor's report is what it says.
	1 | 2 | 4 | 5 | 6) [ -s "$at/err" ] || grep -q '^fail ' "$at/out" || echo "it ends with $status and says nothing" ;;
	*) echo "it ends with $status" ;;
	esac
	if ls "$at/place"/*.?????? >/dev/null 2>&1; then
		echo 'half a file is left'
	fi
	[ "$status" = 0 ] || [ -z "$file" ] || [ ! -e "$at/place/$file" ] || told_so
	[ "$status" != 0 ] || [ -z "$file" ] || [ -s "$at/place/$file" ] ||
		echo "$file is not there although it went well"
}

# What was measured or explored until then is reported, and nothing that was not judged is called good.
told_so() {
	case $file in
	*.json) ;;
	*)
		echo "$file is there although it failed"
		return
		;;
	esac
	command -v jq >/dev/null || return
	jq -e 'any(.runs[]?; .check.serializable? == true) | not' "$at/place/$file" >"$at/is" 2>&1 ||
		echo "$file: $(head -c 200 "$at/is")"
}

once() { # PLAN WORKER: sets $status
	at=$work/$2
	told=$at/told
	rm -rf "$at/place"
	mkdir -p "$at/place"
	: >"$told"
	(cd "$at/place" && VERBENA_INJECT=$1 VERBENA_INJECT_TOLD=$told \
		timeout 60 "$verbena" "${args[@]}") >"$at/out" 2>"$at/err" </dev/null
	status=$?
	rm -f "$at/place"/core*
	why=$(wrong)
	[ -n "$why" ] || return 0
	echo "$1" >>"$at/bad"
	echo "# $name, $1: $why: $(head -n 1 "$told")"
	addr2line -fpe "$verbena" "$(head -n 1 "$told" | cut -d ' ' -f 4)" 2>/dev/null | sed 's/^/#     at /'
	head -n 5 "$at/err" | sed 's/^/#     | /'
}

# Each plan once.  Who fails waits, for answers that do not come: some at a time.
at_once=6
every() { # PLAN...
	local plans=("$@") workers=() worker i
	for ((worker = 0; worker < at_once; worker++)); do
		for ((i = worker; i < ${#plans[@]}; i += at_once)); do
			once "${plans[i]}" "$worker"
		done >"$work/said$worker" &
		workers+=($!)
	done
	wait "${workers[@]}"
	for ((worker = 0; worker < at_once; worker++)); do
		cat "$work/said$worker"
	done
}

# The numbers of the calls at places that have not failed yet.
fresh() {
	tail -n +2 "$told" | awk -v tried="$tried" '
		BEGIN { while ((getline line < tried) > 0) seen[line] = 1 }
		!($0 in seen) { seen[$0] = 1; print NR; print >>tried }'
}

# The file that a good run leaves in its directory; '' if none.
scenario() { # NAME FILE ARGS...
	local plans=()
	name=$1 file=$2
	shift 2
	args=("$@")
	case "$name" in
	*"$only"*) ;;
	*) return ;;
	esac
	rm -f "$work"/*/bad
	once count 0
	calls=$(head -n 1 "$told" | cut -d ' ' -f 1)
	if [ "$status" != 0 ] || [ "${calls:-0}" = 0 ]; then
		not_ok "$name" "without a fault: exit status $status, ${calls:-no} calls
$(cat "$at/err")"
		return
	fi
	if [ "$all" = all ]; then
		numbers=$(seq "$calls")
	else
		numbers=$(fresh)
	fi
	for number in $numbers; do
		plans+=("once:$number")
		[ "$all" = all ] || [ $((number % 2)) = 1 ] || continue
		plans+=("from:$number")
	done
	for seed in $(seq "$seeds"); do
		plans+=("seed:$seed:$((5 + 7 * (seed % 8)))")
	done
	every "${plans[@]}"
	once count 0
	echo "# $name: $calls calls, ${#plans[@]} runs"
	bad=$(cat "$work"/*/bad 2>/dev/null | wc -l)
	if [ "$bad" = 0 ] && [ "$status" = 0 ]; then
		ok "$name"
	else
		not_ok "$name" "$bad runs were wrong"
	fi
}

quick=(--seed 3 --json run.json)
scenario 'list' '' list
scenario 'list, JSON' '' list --json
scenario 'bench lock on sim' run.json bench lock --fabric sim --lock mcs --nodes 2 --clients 4 \
	--locks 4 --duration 50us "${quick[@]}"
scenario 'bench lock on shm' run.json bench lock --fabric shm --lock traditional --clients 4 \
	--locks 4 --duration 5ms "${quick[@]}"
scenario 'bench lock, a trace' run.json bench lock --fabric sim --lock cas --workload smallbank \
	--nodes 2 --clients 4 --duration 50us "${quick[@]}"
scenario 'bench txn on sim' run.json bench txn --fabric sim --cc silo --workload smallbank \
	--nodes 2 --coroutines 2 --accounts 20 --duration 50us --check "${quick[@]}"
scenario 'bench txn on shm' run.json bench txn --fabric shm --cc no-wait --workload smallbank \
	--accounts 20 --coroutines 2 --duration 5ms --check "${quick[@]}"
scenario 'check lock' run.json check lock --lock mcs --seeds 1 --json run.json
scenario 'check txn' run.json check txn --cc silo --seeds 1 --json run.json
scenario 'check lock, a history' one.jsonl check lock --lock mcs --seed 1 --history one.jsonl
scenario 'check txn, a history' one.jsonl check txn --cc silo --seed 1 --history one.jsonl
scenario 'check litmus' run.json check litmus --lock mcs --world writers --runs 20 --json run.json
scenario 'bench lock, a history' one.jsonl bench lock --fabric sim --lock mcs --nodes 2 --clients 4 \
	--locks 4 --duration 50us --history one.jsonl
scenario 'doctor' '' doctor
scenario 'trace stat' '' trace stat --trace smallbank --transactions 20
scenario 'trace export' some.csv trace export --trace tatp --clients 2 --transactions 20 some.csv
if "$verbena" trace export --trace tatp --clients 2 --transactions 20 "$work/some.csv" 2>/dev/null; then
	scenario 'trace import' run.json trace stat --trace "trace:$work/some.csv" --json run.json
fi
cat >"$work/one.jsonl" <<'END'
{"id":1,"client":0,"outcome":"committed","begin_ns":1000,"end_ns":2000,"ops":[{"op":"r","key":5,"version":1},{"op":"w","key":5,"version":8,"prev":1}]}
{"id":2,"client":1,"outcome":"committed","begin_ns":3000,"end_ns":4000,"ops":[{"op":"r","key":5,"version":8}]}
END
scenario 'check history' run.edn check history --strict "$work/one.jsonl" --edn run.edn
cat >"$work/one.locks" <<'END'
{"history":"locks"}
{"process":1,"type":"invoke","f":"acquire","mode":"exclusive","lock":7,"time":1000}
{"process":1,"type":"ok","f":"acquire","mode":"exclusive","lock":7,"time":2000,"token":1}
{"process":1,"type":"invoke","f":"release","lock":7,"time":3000}
{"process":1,"type":"ok","f":"release","lock":7,"time":4000}
END
scenario 'check history, locks' run.json check history "$work/one.locks" --json run.json
if (cd "$work" && "$verbena" bench lock --fabric sim --lock mcs --nodes 2 --clients 4 --locks 4 \
	--duration 50us --json kept.json) >/dev/null 2>&1; then
	scenario 'report' report.html report "$work/kept.json" --out report.html
fi
# Somebody's locks, looked at from outside.
segment=inject-$$
VERBENA_LOG=$loud "$verbena" bench lock --lock mcs --segment "$segment" --visible --procs 1 --clients 2 \
	--locks 2 --think 1ms --warmup 1ms --duration 600s >"$work/bench.out" 2>"$work/bench.err" </dev/null &
bench=$!
until_true 'the bench runs' measures "$work/bench.err"
scenario 'dump' run.json dump --segment "$segment" --json run.json
scenario 'top' '' top --segment "$segment" --interval 10ms --times 2
kill -INT $bench
wait $bench
is 'looked at by those who fail: goes on, and ends as interrupted' [ $? = 130 ]
finish
