#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/choosing.sh BUILD [PART...]
#
# Runs what doc/choosing-a-lock.md and doc/choosing-a-protocol.md show and puts the tables into the pages,
# between their marks, with the commit that was measured.  Needs jq.
#
#   figures       the locks on the simulator, and variants of them
#   deaths        the same, with clients that die
#   machine       the locks on shm and over TCP, on this machine: leave it alone meanwhile
#   transactions  the protocols of transactions on the simulator
#
# Without PART: all but machine, which give the same numbers on every machine.  The results are kept
# as JSON in BUILD/choosing.  CHOOSING_REUSE=1: write from the JSON that is there already, and run only
# what is missing.  CHOOSING_TINY=1: short runs, to see that it works.
# shellcheck disable=SC2016 # what is in quotes is for jq
set -eu
build=${1:?"usage: scripts/choosing.sh BUILD [PART...]"}
shift
verbena=$build/src/verbena
pages=$(dirname "$0")/../doc
out=$build/choosing
[ -x "$verbena" ] || { echo "choosing.sh: no $verbena; build it first" >&2; exit 2; }
command -v jq >/dev/null || { echo "choosing.sh: jq is not installed" >&2; exit 2; }
[ $# -gt 0 ] || set -- figures deaths transactions
for part; do
	case $part in
	figures | deaths | machine | transactions) ;;
	*) echo "choosing.sh: no part '$part'" >&2; exit 2 ;;
	esac
done
short='' many='--locks 10m' rounds=3 second=1s short_txn='' filled='' tpcc='--warehouses 4 --mix payment-new-order'
if [ -n "${CHOOSING_TINY:-}" ]; then
	out=$build/choosing-tiny short='--clients 10 --duration 300us --warmup 100us' many='--locks 10k' rounds=1 second=50ms
	short_txn='--coroutines 1 --duration 300us --warmup 100us' filled='--records 1k'
	tpcc="$tpcc --warehouses 1 --items 100 --customers 30 --orders 100"
fi
mkdir -p "$out"

# run KIND NAME ARGS...: one command, its results in $out/NAME.json.
run() {
	kind=$1 name=$2
	shift 2
	if [ -n "${CHOOSING_REUSE:-}" ] && [ -s "$out/$name.json" ]; then
		return
	fi
	# shellcheck disable=SC2086
	if ! "$verbena" bench "$kind" "$@" --json "$out/$name.json.new" >"$out/$name.txt" 2>&1; then
		echo "choosing.sh: failed: verbena bench $kind $*" >&2
		tail -n 5 "$out/$name.txt" >&2
		exit 1
	fi
	mv "$out/$name.json.new" "$out/$name.json"
}

# sim NAME ARGS...: on the page's simulated cluster.
sim() {
	name=$1
	shift
	# shellcheck disable=SC2086
	run lock "$name" --fabric sim --nodes 6 "$@" $short
}
# sim_txn NAME ARGS...: all protocols but two: calvin, which wants all keys declared in one call and is in no
# `all`, and drtm-h, which has one code alone.  A load that declares so only with --ahead has it for calvin.
sim_txn() {
	load=$1 ahead=''
	shift
	case " $* " in *' tpcc '*) ahead=--ahead ;; esac
	# shellcheck disable=SC2086
	{
		run txn "txn-$load" --fabric sim --nodes 6 --cc all --hybrid none "$@" $short_txn
		run txn "drtm-h-$load" --fabric sim --nodes 6 --cc drtm-h "$@" $short_txn
		run txn "calvin-$load" --fabric sim --nodes 6 --cc calvin "$@" $ahead $short_txn
	}
}

# put PAGE MARK FILTER FILE...: what FILTER prints of the FILEs stands between the page's <!-- MARK --> and
# <!-- /MARK -->.  $all[NAME][LOCK OR PROTOCOL] is a run.
put() {
	page=$pages/$1 mark=$2 filter=$3
	shift 3
	if [ "$(grep -cxE "<!-- /?$mark -->" "$page")" != 2 ]; then
		echo "choosing.sh: $page has not the two marks of '$mark'" >&2
		exit 1
	fi
	jq -nr '
	def fixed(d): (. * pow(10; d) | round | tostring) | if length <= d then "0" * (d + 1 - length) + . else . end |
		.[:-d] + "." + .[-d:];
	def million: . / 1e6 | if . >= 10 then fixed(1) elif . >= 0.1 then fixed(2) else fixed(3) end;
	def thousand: . / 1000 | round;
	def us: if . >= 10000 then "\(. / 1000 | round) ms" else "\(round)" end;
	def ms: . / 1000 | if . >= 9.95 then round else fixed(1) end;
	def call: if . >= 10 then round elif . >= 1 then fixed(1) else fixed(2) end;
	def both(f): .latency_us | "\(.acquire_shared | f) / \(.acquire_exclusive | f)";
	def median: sort | .[length / 2 | floor];
	def goodput: .goodput_ops_s;
	def lock: "[`\(.)`](locks/\(.).md)";
	def row: "| " + (map(tostring) | join(" | ")) + " |";
	def head: row, (["---"] + [.[1:][] | "---:"] | row);
	(reduce inputs as $j ({}; (input_filename | sub("^.*/"; "") | sub("\\.json$"; "") |
		sub("^(calvin|drtm-h)-"; "txn-")) as $n |
		.commit += [$j.commit] | .cores = $j.host.cores | .names[$n] += [$j.runs[] | .lock // .cc] |
		.[$n] += INDEX($j.runs[]; .lock // .cc))) as $all |
	if $all.commit | unique | length > 1 then error("results of several commits in one folder") else . end |
	def made: "<!-- results of \($all.commit[0]) -->", "";
	'"$filter" "$@" >"$out/$mark.md"
	awk -v mark="$mark" -v file="$out/$mark.md" '
	$0 == "<!-- /" mark " -->" { skip = 0 }
	!skip { print }
	$0 == "<!-- " mark " -->" { skip = 1; while ((getline line <file) > 0) print line }' "$page" >"$out/page.md"
	cat "$out/page.md" >"$page"
}

figures() {
	all="--lock all --clients"
	half='--dist zipf:0.99 --read-ratio 0.5'
	# shellcheck disable=SC2086
	{
		sim idle $all 5 $many --dist uniform --read-ratio 0.5
		sim uniform $all 240 $many --dist uniform --read-ratio 0.5
		sim half $all 240 $many $half
		sim readers $all 240 $many --dist zipf:0.99 --read-ratio 0.95
		sim one $all 240 --locks 1 --read-ratio 0
		sim tpcc $all 240 --workload tpcc --duration 40ms --warmup 10ms
		sim group-uniform --lock rma-rw --lock-options group=65535,t_dc=65535 --clients 240 $many --dist uniform --read-ratio 0.5
		sim group-half --lock rma-rw --lock-options group=65535,t_dc=65535 --clients 240 $many $half
		for omega in 0 1us 5us; do
			sim omega-$omega --lock dslr --lock-options omega=$omega --clients 240 $many $half
		done
		sim guarded --lock shiftlock --lock-options handover=guarded --clients 240 $many $half
		sim served --lock traditional,table --server-threads 8 --clients 240 $many $half
		sim hold --lock cas-backoff,mcs,rma-rw,dslr,shiftlock,traditional,table --clients 24 --locks 100 --dist uniform --read-ratio 0.5 --hold 100us
	}
	put choosing-a-lock.md figures '
	made, (["lock", "idle", "uniform", "half read", "p99", "95 % read", "p99", "one lock", "longest", "TPC-C", "p99"] | head),
	($all.names.half[] as $l | $all.half[$l] as $h | $all.readers[$l] as $r | $all.one[$l] as $o | $all.tpcc[$l].txns as $t |
	[($l | lock), ($all.idle[$l] | both(.p50 | fixed(2))), ($all.uniform[$l] | goodput | million), ($h | (goodput | million), both(.p99 | us)),
	($r | (goodput | million), both(.p99 | us)), ($o | goodput | million),
	([$o.unfinished_max_us, $o.latency_us.acquire_exclusive.max] | max | us), ($t.committed_tps | million), ($t.latency_us.all.p99 | us)] | row),
	"", "With other options, columns as above:", "",
	(["lock", "with", "uniform", "half read", "p99"] | head),
	([["rma-rw", "--lock-options group=65535,t_dc=65535", "group-half"], ["dslr", "--lock-options omega=0", "omega-0"],
	["dslr", "--lock-options omega=1us", "omega-1us"], ["dslr", "--lock-options omega=5us", "omega-5us"],
	["shiftlock", "--lock-options handover=guarded", "guarded"],
	["traditional", "--server-threads 8", "served"], ["table", "--server-threads 8", "served"]][] | . as [$l, $with, $n] |
	$all[$n][$l] as $h | ["`\($l)`", "`\($with)`", (if $n == "group-half" then $all."group-uniform"[$l] | goodput | million else "-" end),
	($h | (goodput | million), both(.p99 | us))] | row),
	"", "Held for 100 us, 24 clients on 100 locks (`verbena bench lock --fabric sim --nodes 6 --clients 24 --locks 100 --dist uniform --read-ratio 0.5 --hold 100us --lock cas-backoff,mcs,rma-rw,dslr,shiftlock,traditional,table`):", "",
	(["lock", "thousand cycles a second", "p99 of acquire, shared / exclusive, us"] | head),
	($all.names.hold[] as $l | $all.hold[$l] | ["`\($l)`", (goodput | thousand), both(.p99 | us)] | row)' \
		"$out/idle.json" "$out/uniform.json" "$out/half.json" "$out/readers.json" "$out/one.json" "$out/tpcc.json" \
		"$out"/group-*.json "$out"/omega-*.json "$out/guarded.json" "$out/served.json" "$out/hold.json"
}

deaths() {
	# shellcheck disable=SC2086
	sim deaths --lock table,traditional,traditional-ro,dslr,dslr-update,rpc,shiftlock --clients 240 $many --dist zipf:0.99 --read-ratio 0.5 --fail-rate 0.001 --duration 300ms --warmup 50ms
	put choosing-a-lock.md deaths '
	made, (["lock", "thousand cycles a second", "p99 of acquire, shared / exclusive, ms"] | head),
	([$all.deaths[]] | sort_by(-goodput)[] | ["`\(.lock)`", (goodput | thousand), both(.p99 | ms)] | row)' "$out/deaths.json"
}

machine() {
	load='--lock all --clients 8 --locks 100k --dist zipf:0.99 --read-ratio 0.5'
	round=0
	while [ $((round += 1)) -le $rounds ]; do
		# shellcheck disable=SC2086
		{
			run lock "shm-$round" --fabric shm --procs 2 $load --duration $second
			run lock "tcp-$round" --fabric tcp --procs 3 $load --duration $second
		}
	done
	put choosing-a-lock.md machine '
	def of(fabric; l; f): [$all | to_entries[] | select(.key | startswith(fabric)) | .value[l] | f] | median;
	(["lock", "`shm`: thousand cycles a second", "p50", "p99", "`tcp`: thousand cycles a second", "p50", "p99"] | head),
	($all.names."shm-1"[] as $l | ["`\($l)`", (("shm-", "tcp-") as $f | (of($f; $l; goodput) | thousand),
	of($f; $l; .latency_us.acquire_exclusive.p50 | call), of($f; $l; .latency_us.acquire_exclusive.p99 | call))] | row),
	"", "(\($all.cores) cores, commit \($all.commit[0]))"' "$out"/shm-[1-9].json "$out"/tcp-[1-9].json
}

transactions() {
	# shellcheck disable=SC2086
	{
		sim_txn idle --coroutines 1 --dist uniform $filled
		sim_txn uniform --coroutines 16 --dist uniform $filled
		sim_txn half --coroutines 16 --dist zipf:0.9 $filled
		sim_txn hot --coroutines 16 --dist zipf:0.99 $filled
		sim_txn readers --coroutines 16 --dist zipf:0.99 --write-ratio 0.05 $filled
		sim_txn tpcc --coroutines 16 --workload tpcc $tpcc
	}
	put choosing-a-protocol.md transactions '
	def tps: .goodput_txn_s | . / 1000 | if . >= 99.5 then round elif . >= 9.95 then fixed(1) else fixed(2) end;
	def ended: .abort_rate * 100 | fixed(1);
	def read_write: [.types[] | .latency_us] | max_by(.count);
	def prims: .prims_per_txn | [to_entries[] | select(.key | startswith("index") | not) | .value] | add | fixed(1);
	made, (["protocol", "idle", "primitives", "uniform", "%", "0.9", "%", "p99", "primitives", "0.99", "%", "p99", "95 % read", "%", "TPC-C", "%"] | head),
	($all.names."txn-half"[] as $p | $all."txn-idle"[$p] as $i |
	["`\($p)`", ($i | (read_write.p50 | fixed(1)), prims), ($all."txn-uniform"[$p] | tps, ended),
	($all."txn-half"[$p] | tps, ended, (read_write.p99 | us), prims), ($all."txn-hot"[$p] | tps, ended, (read_write.p99 | us)),
	($all."txn-readers"[$p], $all."txn-tpcc"[$p] | tps, ended)] | row)' "$out"/txn-*.json "$out"/drtm-h-*.json "$out"/calvin-*.json
}

for part; do
	$part
done
