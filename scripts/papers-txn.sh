#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/papers-txn.sh BUILD [TABLE...]
#
# Simulates transactions as RCBench and RCC have measured them, and prints tables with
# the papers' numbers beside ours, as Markdown; doc/papers-transactions.md has them with what we think of
# the differences.  Nothing is tuned to the papers.  Needs jq.
#
#   records     what fewer records than the papers' change
#   sigma       primitives of each transaction, counted as RCBench does (its table 2)
#   primitives  which primitives they are, with recovery and without
#   plain       one-sided against RPC, one coroutine, nothing batched (the same table)
#   switches    coroutines, doorbell batching, outstanding requests, passive ack (RCBench, table 3)
#   locks       exclusive against shared and exclusive locks (RCBench, section 6.3.2)
#   rpc         one-sided against RPC (RCC, figure 15), and CAS and READ in one doorbell (section 4.2)
#   stages      where the time goes (RCC, figure 13), and the best mixture for Sundial
#   log         stages of one record, the log with them (RCC, figure 13), and what its copies cost
#   execute     time that a transaction computes (RCC, figure 19)
#   span        nodes that a transaction touches (RCBench, section 6.6.1)
#   others      beside DrTM+H (RCBench, figure 23)
#   tickets     beside DSLR (RCBench, figure 23)
#
# Without TABLE: all of them.  The results are kept as JSON in BUILD/papers-txn.
# PAPERS_TINY=1: a small set-up, to see that it works; in BUILD/papers-txn-tiny.
# PAPERS_REUSE=1: print from the JSON that is there already, and run only what is missing.
# shellcheck disable=SC2016 # what is in quotes is for jq
set -eu
build=${1:?"usage: scripts/papers-txn.sh BUILD [TABLE...]"}
shift
verbena=$build/src/verbena
[ -x "$verbena" ] || { echo "papers-txn.sh: no $verbena; build it first" >&2; exit 2; }
command -v jq >/dev/null || { echo "papers-txn.sh: jq is not installed" >&2; exit 2; }
[ $# -gt 0 ] || set -- records sigma primitives plain switches locks rpc stages log execute span others tickets
for table; do
	case $table in
	records | sigma | primitives | plain | switches | locks | rpc | stages | log | execute | span | others | tickets) ;;
	*) echo "papers-txn.sh: no table '$table'" >&2; exit 2 ;;
	esac
done

if [ -n "${PAPERS_TINY:-}" ]; then
	out=$build/papers-txn-tiny
	few='1 2' threads=2 servers=2 coroutines=2 rcc_threads=2 rcc_coroutines=2 wide_threads=1 wide_coroutines=2
	sizes='1k 2k' records=2k rcc_records=2k wide_records=1k span=200us computed='1 16'
else
	out=$build/papers-txn
	few='4 8 16 24' threads=24 servers=16 coroutines=8 rcc_threads=10 rcc_coroutines=10 wide_threads=8 wide_coroutines=4
	sizes='20k 100k 400k 1m' records=400k rcc_records=100k wide_records=100k span=2ms computed='1 4 16 64 256'
fi
mkdir -p "$out"
all=no-wait,wait-die,wound-wait,silo,sundial
# Those of RCBench's table 2, in its order, and others that have verbs alone.
table2=no-wait,wait-die,wound-wait,to,mvcc,silo
table2_and=$table2,mvcc-rcc,cicada,maat,bounded-wait,sundial,dslr-2pl
# RCBench, section 6.1; how many operations a transaction has is not said there, we take 10.
sim="--fabric sim --nodes 4"
rcb="--workload ycsb --ops 10 --record-bytes 1024 --write-ratio 0.2"
# RCC, section 6.1, without the 5 us of computation.
rcc_ycsb="--workload ycsb --ops 10 --records $rcc_records --record-bytes 64 --write-ratio 0.2 --hot-chance 0.1 --hot-fraction 0.001"
# Mix and hot accounts of RCC's published configuration.
rcc_bank="--workload smallbank --accounts $rcc_records --mix rcc --hot-accounts 100 --hot-chance 0.1"
# One record on the own node, where a stage takes no time one-sided, and one on another.
one_far="--workload ycsb --ops 2 --span 2 --records $rcc_records --record-bytes 64 --write-ratio 1 --dist uniform"

title() {
	printf '## %s\n\n' "$1"
	began=$(date +%s)
	times >"$out/times"
	user_began=$(user)
}

# Seconds of processor time of the simulations so far.
user() {
	sed -n '2{s/m/ /g;s/s//g;p;}' "$out/times" | awk '{ printf "%d\n", $1 * 60 + $2 + $3 * 60 + $4 }'
}

# run NAME ARGS...: one command, its results in $out/NAME.json; its line is printed.
run() {
	name=$1
	shift
	echo "verbena bench txn $*"
	if [ -n "${PAPERS_REUSE:-}" ] && [ -s "$out/$name.json" ]; then
		return
	fi
	if ! "$verbena" bench txn "$@" --json "$out/$name.json.new" >"$out/$name.txt" 2>&1; then
		echo "papers-txn.sh: failed: verbena bench txn $*" >&2
		tail -n 5 "$out/$name.txt" >&2
		exit 1
	fi
	mv "$out/$name.json.new" "$out/$name.json"
}

# table PREFIX FILTER: prints lines.  $all[NAME][PROTOCOL, PROTOCOL/rpc or PROTOCOL/CODE] is a run.
table() {
	files=
	for f in "$out/$1"*.json; do
		files="$files $f"
	done
	# shellcheck disable=SC2086
	jq -nr '
	def r0: . + 0.5 | floor;
	def r1: . * 10 | round / 10;
	def r2: . * 100 | round / 100;
	def k: . / 1000 | if . >= 100 then round else r1 end;
	def prims: [.prims_per_txn | to_entries[] | select(.key != "index READ") | .value] | add;
	def tps: .goodput_txn_s;
	def latency: ([.types[] | select(.commits > 0) | .commits * .latency_us.mean] | add) / .commits;
	# Near ones and index READs are in one count; keys fall on all nodes alike.
	def far: .verbs_per_txn.all - .prims_per_txn."index READ" * (.nodes - 1) / .nodes;
	def row: "| " + (map(tostring) | join(" | ")) + " |";
	def head: row, (["---"] + [.[1:][] | "---:"] | row);
	def protocols: ["no-wait", "wait-die", "wound-wait", "silo", "sundial"];
	def table2: "'"$table2"'" | split(",");
	(reduce inputs as $j ({};
		.[input_filename | sub("^.*/"; "") | sub("\\.json$"; "")] =
		([$j.runs[] | {key: (.cc + (if .hybrid | test("1") | not then "" elif .hybrid | test("0") | not
		then "/rpc" else "/" + .hybrid end)), value: .}] | from_entries))) as $all |
	'"$2" $files
}

took() {
	times >"$out/times"
	printf '\n(%s s of processor time, %s s in all)\n\n' $(($(user) - user_began)) $(($(date +%s) - began))
}

code() {
	echo '```'
}

records() {
	title "What fewer records change"
	code
	for n in $sizes; do
		# shellcheck disable=SC2086
		run "records-$n" --cc no-wait,silo $sim --threads $threads --coroutines $coroutines $rcb --theta 0.2 --records "$n" --duration $span
	done
	code
	echo
	table records- '
	(["records of each node", "`no-wait` ktxn/s", "aborts %", "prims", "index READs", "`silo` ktxn/s", "aborts %", "prims", "index READs"] | head),
	([$all[]] | sort_by(.silo.records)[] | ["\(.silo.records / .silo.nodes)"] +
	([."no-wait", .silo] | map((tps | k), (.abort_rate * 100 | r2), (prims | r2), (.prims_per_txn."index READ" | r2))) | row)'
	took
}

sigma() {
	title "Primitives as RCBench counts them"
	code
	# shellcheck disable=SC2086
	run "sigma" --cc $table2_and $sim --threads $threads --coroutines $coroutines $rcb --theta 0.2 --records $records --duration $span --span 2 --recovery off
	code
	echo
	# The records of five operations, one of which writes, are on the other node; near and far index READs are in
	# one count, and keys fall on both nodes alike.
	table sigma '
	def sigma: {"no-wait": 23.5, "wait-die": 30.2, "wound-wait": 31.2, "to": 25.4, "mvcc": 22.8, "mvcc-rcc": 22.8, "silo": 17.7, "cicada": 32.2, "maat": 51.3};
	def printed: {"no-wait": 15, "wait-die": 20, "wound-wait": 20, "to": 18, "mvcc": 17, "silo": 13, "cicada": 21, "maat": 30};
	(["protocol", "READ", "WRITE", "atomic", "together", "as RCBench prints it", "index READs", "all far", "near atomics", "aborts %", "paper: σ", "far / σ"] | head),
	("'"$table2_and"'" | split(",")[] as $p | $all.sigma[$p] | .verbs_per_txn as $v | .prims_per_txn as $n | ($n."index READ" / 2) as $index |
	["`\($p)`", ($v.read - $index | r2), ($v.write | r2), ($v.atomic | r2), ($v.all - $index | r2), (printed[$p] // "-"), ($index | r2), ($v.all | r2),
	($n.AModIM + $n.AModTM - $v.atomic | r2), (.abort_rate * 100 | r2), (sigma[$p] // "-"), (if sigma[$p] then $v.all / sigma[$p] | r2 else "-" end)] | row)'
	took
}

primitives() {
	title "Primitives of each transaction"
	code
	for recovery in on off; do
		# shellcheck disable=SC2086
		run "prims-$recovery" --cc $table2,sundial $sim --threads $threads --coroutines $coroutines $rcb --theta 0.2 --records $records --duration $span --recovery $recovery
	done
	code
	table prims- '
	(("on", "off") as $recovery |
	"", "Recovery \($recovery), for each committed transaction:", "",
	(["protocol", "ReadDI", "WriteDI", "AModIM", "ReadTM", "AModTM", "all prims", "of them far", "index READs", "aborts %"] | head),
	((table2 + ["sundial"])[] as $p | $all["prims-" + $recovery][$p] | .prims_per_txn as $n |
	["`\($p)`", ($n.ReadDI | r2), ($n.WriteDI | r2), ($n.AModIM | r2), ($n.ReadTM | r2), ($n.AModTM | r2), (prims | r2), (far | r2),
	($n."index READ" | r2), (.abort_rate * 100 | r2)] | row))'
	took
}

plain() {
	title "One-sided against RPC, nothing batched"
	code
	# shellcheck disable=SC2086
	run "plain-one-sided" --cc $all $sim --threads $threads --coroutines 1 $rcb --theta 0.2 --records $records --duration $span --hybrid none --no-doorbell --no-outstanding
	# shellcheck disable=SC2086
	run "plain-rpc" --cc $all $sim --threads $threads --coroutines 1 $rcb --theta 0.2 --records $records --duration $span --hybrid rpc
	# shellcheck disable=SC2086
	run "plain-served" --cc $all $sim --threads $threads --coroutines 1 $rcb --theta 0.2 --records $records --duration $span --hybrid rpc --fabric-options handlers=$servers
	code
	echo
	table plain- '
	"One server thread on each node, and \($all["plain-served"]["silo/rpc"].fabric_options):", "",
	({"no-wait": [991.07, 85.36], "wait-die": [807.78, 85.64], "wound-wait": [714.57, 85.02], "silo": [1071.59, 69.57]} as $paper |
	(["protocol", "one-sided ktxn/s", "RPC, 1 server thread", "times", "RPC, many", "times", "paper: one-sided", "two-sided", "times"] | head),
	(protocols[] as $p | $all["plain-one-sided"][$p] as $a | ["`\($p)`", ($a | tps | k)] +
	([$all["plain-rpc", "plain-served"][$p + "/rpc"] | (tps | k), (($a | tps) / tps | r2)]) +
	(if $paper[$p] then $paper[$p] + [$paper[$p][0] / $paper[$p][1] | r1] else ["-", "-", "-"] end) | row))'
	took
}

switches() {
	title "Coroutines, doorbells, outstanding requests, passive ack"
	code
	for declare in '' --no-declare; do
		for c in 1 $coroutines; do
			n=one
			[ "$c" = 1 ] || n=many
			for switch in '' '--no-doorbell' '--no-outstanding' '--passive-ack' '--no-doorbell --no-outstanding'; do
				# shellcheck disable=SC2086
				run "switch-$n$(echo "$declare$switch" | tr -d ' ')" --cc $all $sim --threads $threads --coroutines $c $rcb --theta 0.2 --records $records --duration $span $declare $switch
			done
		done
	done
	code
	table switch- '
	def paper: {"no-wait": [991.1, 1091.0, 2274.3, 2145.6], "wait-die": [807.8, 928.9, 1909.7, 1749.6], "wound-wait": [714.5, 907.7, 1803.1, 1771.7], "silo": [1071.5, 1184.3, 2383.4, 2385.0]};
	def factors: .[1:][] as $x | $x / .[0] | r2;
	(("", "--no-declare") as $d |
	"", (if $d == "" then "Declared: all records of a transaction together." else "Interactive (`--no-declare`): one record after the other." end) + " Factors over one coroutine with nothing batched:", "",
	(["protocol", "plain ktxn/s", "+ db, pa, or", "+ coroutines", "+ both", "paper: plain", "+ db, pa, or", "+ coroutines", "+ both"] | head),
	(protocols[] as $p | def of(n): $all["switch-" + n][$p] | tps;
	[of("one\($d)--no-doorbell--no-outstanding"), of("one\($d)--passive-ack"), of("many\($d)--no-doorbell--no-outstanding"), of("many\($d)--passive-ack")] as $ours |
	["`\($p)`", ($ours[0] | k), ($ours | factors)] +
	(if paper[$p] then [paper[$p][0], (paper[$p] | factors)] else ["-", "-", "-", "-"] end) | row),
	"", (if $d == "" then "Declared" else "Interactive" end) + ", each switch alone, on over off, the others as by default (doorbells batched, requests outstanding, acknowledgements waited for):", "",
	(["protocol", "coroutines", "ktxn/s", "doorbell", "outstanding", "passive ack", "effective CPU %"] | head),
	(protocols[] as $p | ("one", "many") as $c | def of(n): $all["switch-" + $c + $d + n][$p];
	of("") as $r | [ "`\($p)`", $r.coroutines, ($r | tps | k), (($r | tps) / (of("--no-doorbell") | tps) | r2), (($r | tps) / (of("--no-outstanding") | tps) | r2), ((of("--passive-ack") | tps) / ($r | tps) | r2), ($r.effective_cpu * 100 | r0)] | row))'
	took
}

locks() {
	title "Exclusive locks against shared and exclusive ones"
	code
	for theta in 0.2 0.6 0.8 0.95; do
		# shellcheck disable=SC2086
		run "locks-$theta" --cc no-wait,no-wait-sx,wait-die,wait-die-sx,wound-wait,wound-wait-sx $sim --threads $threads --coroutines $coroutines $rcb --theta $theta --records $records --duration $span
	done
	code
	echo
	table locks- '
	(["theta", "protocol", "exclusive only ktxn/s", "aborts %", "prims", "shared and exclusive ktxn/s", "aborts %", "prims", "exclusive / shared", "paper: ahead"] | head),
	(("0.2", "0.6", "0.8", "0.95") as $t | ("no-wait", "wait-die", "wound-wait") as $p | $all["locks-" + $t][$p] as $x | $all["locks-" + $t][$p + "-sx"] as $s |
	[$t, "`\($p)`", ($x, $s | (tps | k), (.abort_rate * 100 | r2), (prims | r2)), (($x | tps) / ($s | tps) | r2), (if ($t | tonumber) <= 0.6 then "exclusive, up to 1.3" else "shared" end)] | row)'
	took
}

rpc() {
	title "One-sided against RPC"
	code
	for c in 1 $rcc_coroutines; do
		n=one
		[ "$c" = 1 ] || n=many
		# shellcheck disable=SC2086
		run "rpc-smallbank-$n" --cc $all --hybrid both $sim --threads $rcc_threads --coroutines $c $rcc_bank --duration $span
		# shellcheck disable=SC2086
		run "rpc-ycsb-$n" --cc $all --hybrid both $sim --threads $rcc_threads --coroutines $c $rcc_ycsb --duration $span
		# shellcheck disable=SC2086
		run "rpc-served-smallbank-$n" --cc $all --hybrid rpc $sim --threads $rcc_threads --coroutines $c $rcc_bank --duration $span --fabric-options handlers=$rcc_threads
		# shellcheck disable=SC2086
		run "rpc-served-ycsb-$n" --cc $all --hybrid rpc $sim --threads $rcc_threads --coroutines $c $rcc_ycsb --duration $span --fabric-options handlers=$rcc_threads
	done
	for switch in '' '--no-doorbell --no-outstanding'; do
		# shellcheck disable=SC2086
		run "rpc-doorbell$(echo "$switch" | tr -d ' ')" --cc no-wait $sim --threads $rcc_threads --coroutines 1 $rcc_bank --no-declare --duration $span $switch
	done
	code
	echo
	table rpc- '
	(["workload", "coroutines", "protocol", "one-sided ktxn/s", "mean us", "aborts %", "RPC, 1 server thread", "mean us", "RPC, many", "mean us", "aborts %", "one-sided / RPC, 1", "one-sided / RPC, many", "paper: ahead"] | head),
	(("smallbank", "ycsb") as $w | ("one", "many") as $c | protocols[] as $p | $all["rpc-\($w)-\($c)"] as $f | $f[$p] as $o | $f[$p + "/rpc"] as $r |
	$all["rpc-served-\($w)-\($c)"][$p + "/rpc"] as $m |
	[$w, $o.coroutines, "`\($p)`", ($o | (tps | k), (latency | r1), (.abort_rate * 100 | r2)), ($r | (tps | k), (latency | r1)), ($m | (tps | k), (latency | r1), (.abort_rate * 100 | r2)),
	(($o | tps) / ($r, $m | tps) | r2), (if $p == "wound-wait" then "-" else "one-sided" end)] | row),
	"", "Rank by throughput (in brackets: first over last):", "",
	(["workload", "coroutines", "one-sided", "RPC, many server threads"] | head),
	(("smallbank", "ycsb") as $w | ("one", "many") as $c | $all["rpc-\($w)-\($c)"] as $f | $all["rpc-served-\($w)-\($c)"] as $m |
	[$w, $f.silo.coroutines, (($f, $m) as $x | (if $x == $f then "" else "/rpc" end) as $s | [protocols[] as $p | {$p, t: ($x[$p + $s] | tps)}] | sort_by(-.t) | "\(map(.p) | join(", ")) (\(.[0].t / .[-1].t | r2))")] | row),
	"", "`no-wait`, SmallBank, interactive: CAS and READ of a record in one doorbell, over one after the other:", "",
	($all["rpc-doorbell"]["no-wait"] as $a | $all["rpc-doorbell--no-doorbell--no-outstanding"]["no-wait"] as $b |
	(["", "ours", "paper (section 4.2)"] | head),
	(["throughput", "\((($a | tps) / ($b | tps) - 1) * 100 | r1) %", "+25.1 %"] | row),
	(["mean latency", "\((($a | latency) / ($b | latency) - 1) * 100 | r1) %", "-22.7 %"] | row))'
	took
}

stages() {
	title "Where the time goes, and mixtures"
	code
	# shellcheck disable=SC2086
	run "stages-smallbank" --cc $all --hybrid both $sim --threads $rcc_threads --coroutines 1 $rcc_bank --duration $span --fabric-options handlers=$rcc_threads
	# shellcheck disable=SC2086
	run "stages-ycsb" --cc $all --hybrid both $sim --threads $rcc_threads --coroutines 1 $rcc_ycsb --duration $span --fabric-options handlers=$rcc_threads
	# shellcheck disable=SC2086
	run "stages-hybrid-smallbank" --cc sundial --hybrid all $sim --threads $rcc_threads --coroutines 1 $rcc_bank --duration $span --fabric-options handlers=$rcc_threads
	# shellcheck disable=SC2086
	run "stages-hybrid-ycsb" --cc sundial --hybrid all $sim --threads $rcc_threads --coroutines 1 $rcc_ycsb --duration $span --fabric-options handlers=$rcc_threads
	code
	table stages- '
	def says(p): if . == "commit" or . == "release" then "one-sided" elif p == "sundial" and . == "renew" then "RPC"
		elif p == "sundial" and (. == "read" or . == "lock") then "RPC can be" else "-" end;
	"", "us of each stage for each committed transaction, one coroutine, as many server threads as transaction threads:", "",
	(["workload", "protocol", "stage", "one-sided", "RPC", "shorter", "paper: shorter"] | head),
	(("smallbank", "ycsb") as $w | protocols[] as $p | $all["stages-" + $w] as $f | range($f[$p].stages | length) as $i |
	$f[$p].stages[$i] as $o | $f[$p + "/rpc"].stages[$i] as $r | select($o.name != "commit-point") |
	[$w, "`\($p)`", $o.name, ($o.us_per_txn | r2), ($r.us_per_txn | r2),
	(if $o.us_per_txn < $r.us_per_txn then "one-sided" elif $o.us_per_txn > $r.us_per_txn then "RPC" else "-" end), ($o.name | says($p))] | row),
	"", "`sundial`, all 32 mixtures, one coroutine (code: read, lock, renew, commit, release; 1 is RPC):", "",
	({"smallbank": ["14.8 %", "8.6 %"], "ycsb": ["51.6 %", "4.5 %"]} as $paper |
	(["workload", "best", "ktxn/s", "over RPC", "over one-sided", "RPC read and renew (10100), over one-sided", "paper: over RPC", "over one-sided"] | head),
	(("smallbank", "ycsb") as $w | $all["stages-hybrid-" + $w] as $f | [$f[]] | max_by(tps) as $best |
	def over(x): (tps / (x | tps) - 1) * 100 | "\(r1) %";
	[$w, "`\($best.hybrid)`", ($best | tps | k), ($best | over($f."sundial/rpc")), ($best | over($f.sundial)), ($f."sundial/10100" | over($f.sundial)), $paper[$w][]] | row))'
	took
}

log() {
	title "Stages of one record, and the log in three places"
	code
	# shellcheck disable=SC2086
	{
		run "log-stage-one" --cc no-wait,silo --hybrid both --copies 2 $sim --threads 1 --coroutines 1 $one_far --no-declare --duration $span --fabric-options handlers=$rcc_threads
		run "log-stage-testbed" --testbed rcc --cc no-wait,silo --hybrid both --copies 2 --threads 1 --coroutines 1 $one_far --no-declare --duration $span
		run "log-stage-bank" --cc no-wait,silo --hybrid both --copies 2 $sim --threads 1 --coroutines 1 $rcc_bank --no-declare --duration $span --fabric-options handlers=$rcc_threads
	}
	for cc in no-wait silo; do
		case $cc in
		no-wait) codes='000 100 111' ;;
		silo) codes='00000 10000 11111' ;;
		esac
		for hybrid in $codes; do
			# shellcheck disable=SC2086
			{
				run "log-cost-$cc-$hybrid" --cc $cc --hybrid "$hybrid" $sim --threads $rcc_threads --coroutines $rcc_coroutines $rcc_bank --duration $span --fabric-options handlers=$rcc_threads
				for digit in 0 1; do
					run "log-cost-$cc-$hybrid-$digit" --cc $cc --hybrid "$hybrid$digit" --copies 2 $sim --threads $rcc_threads --coroutines $rcc_coroutines $rcc_bank --duration $span --fabric-options handlers=$rcc_threads
				done
			}
		done
	done
	code
	echo
	table log- '
	# A call to the own node is as far as any other; a verb there takes no time.
	def took(name; p; s): $all["log-stage-" + name][p].stages[] | select(.name == s) | if .rpc then .mean_us else .us_per_txn end;
	"us of each stage, idle: one client on each of four nodes, one record after the other.", "",
	(["stage", "is", "one far record", "the same, `--testbed rcc`", "SmallBank, for each transaction", "paper: idle SmallBank, its logs"] | head),
	([["READ", "silo", "read", "2.5 to 2.7"], ["CAS and READ", "no-wait", "lock", "3.75"], ["WRITE and CAS; paper: two WRITEs", "no-wait", "commit", "2.25"],
	["log, WRITE and CAS to two nodes; paper: WRITE", "no-wait", "log", "2.43"], ["lock by RPC", "no-wait/rpc", "lock", "3.56"], ["log by RPC", "no-wait/rpc", "log", "4.8"]][] |
	. as [$is, $p, $s, $paper] | ["`\($s)` of `\($p)`", $is, (("one", "testbed") as $n | took($n; $p; $s) | r2),
	($all["log-stage-bank"][$p].stages[] | select(.name == $s) | .us_per_txn | r2), $paper] | row),
	"", "Throughput without copies of the log and with two, SmallBank, \($all["log-cost-silo-00000"].silo | "\(.threads) threads of \(.coroutines) coroutines") on each node:", "",
	(["protocol", "stages by RPC", "no copies ktxn/s", "log one-sided", "less by %", "log by RPC", "less by %"] | head),
	((["no-wait", "000", "none"], ["no-wait", "100", "lock"], ["no-wait", "111", "all"], ["silo", "00000", "none"], ["silo", "10000", "read"], ["silo", "11111", "all"]) as [$p, $code, $by] |
	def of(n): $all["log-cost-\($p)-\($code)" + n] | .[] | tps;
	["`\($p)`", $by, (of("") | k), (("-0", "-1") as $d | (of($d) | k), ((1 - of($d) / of("")) * 100 | r1))] | row)'
	took
}

execute() {
	title "Time that a transaction computes"
	code
	for us in $computed; do
		# shellcheck disable=SC2086
		run "execute-$us" --cc $all --hybrid both $sim --threads $rcc_threads --coroutines $rcc_coroutines $rcc_ycsb --no-declare --execute "${us}us" --duration $span --fabric-options handlers=$rcc_threads
	done
	code
	echo
	table execute- '
	(["computes, us", (protocols[] | "`\(.)` one-sided ktxn/s", "RPC", "one-sided / RPC")] | head),
	([$all | to_entries[] | {us: (.key | sub("execute-"; "") | tonumber), runs: .value}] | sort_by(.us)[] | .runs as $r |
	[.us, (protocols[] | ($r[.], $r[. + "/rpc"] | tps | k), (($r[.] | tps) / ($r[. + "/rpc"] | tps) | r2))] | row)'
	took
}

span() {
	title "Nodes of each transaction"
	code
	for n in 2 3 4; do
		# shellcheck disable=SC2086
		run "span-4-$n" --cc $all $sim --threads $threads --coroutines $coroutines $rcb --theta 0.2 --records $records --duration $span --span $n
	done
	for n in 3 6 9 12 15; do
		# shellcheck disable=SC2086
		run "span-15-$n" --cc $all --fabric sim --nodes 15 --threads $wide_threads --coroutines $wide_coroutines --workload ycsb --ops 15 --record-bytes 1024 --write-ratio 0.2 --theta 0.2 --records $wide_records --duration $span --span $n --far 14
	done
	code
	table span- '
	(("4", "15") as $n | (if $n == "4" then [2, 3, 4] else [3, 6, 9, 12, 15] end) as $spans | "", "\($n) nodes, \(if $n == "15" then "14 of 15 records on others, " else "" end)ktxn/s, and verbs to other nodes of each transaction, index READs included:", "",
	(["protocol", ($spans[] | "\(.) nodes", "verbs"), "last / first"] | head),
	(protocols[] as $p | [$spans[] | $all["span-\($n)-\(.)"][$p]] as $r |
	["`\($p)`", ($r[] | (tps | k), (.verbs_per_txn.all | r1)), (($r[-1] | tps) / ($r[0] | tps) | r2)] | row))'
	took
}

others() {
	title "Beside DrTM+H"
	code
	for c in 1 $coroutines; do
		for n in $few; do
			# shellcheck disable=SC2086
			run "others-$c-$n" --cc silo,drtm-h $sim --threads "$n" --coroutines $c $rcb --theta 0.2 --records $records --duration $span --fabric-options handlers=$servers
		done
	done
	code
	echo
	table others- '
	(["coroutines", "threads of each node", "`silo` ktxn/s", "aborts %", "prims", "calls", "`drtm-h` ktxn/s", "aborts %", "prims", "calls", "`silo` / `drtm-h`", "paper: ahead"] | head),
	([$all[]] | sort_by(.silo.coroutines, .silo.threads)[] | [.silo, .["drtm-h/01111"]] as $two |
	[.silo.coroutines, .silo.threads] + [$two[] | (tps | k), (.abort_rate * 100 | r2), (prims | r2), (.calls_per_txn | r2)] +
	[($two | map(tps) | .[0] / .[1] | r2), "`silo`, more with threads"] | row)'
	took
}

tickets() {
	title "Beside DSLR"
	code
	for n in $few; do
		# shellcheck disable=SC2086
		run "tickets-$n" --cc no-wait-sx,wait-die-sx,wound-wait-sx,dslr-2pl $sim --threads "$n" --coroutines $coroutines $rcb --theta 0.2 --records $records --duration $span
	done
	code
	echo
	table tickets- '
	def all: ["no-wait-sx", "wait-die-sx", "wound-wait-sx", "dslr-2pl"];
	(["threads of each node", (all[] | "`\(.)` ktxn/s", "aborts %", "prims"), (all[:3][] | "`\(.)` / `dslr-2pl`"), "paper: ahead"] | head),
	([$all[]] | sort_by(.["dslr-2pl"].threads)[] | [.[all[]]] as $r | [$r[3].threads] +
	[$r[] | (tps | k), (.abort_rate * 100 | r2), (prims | r2)] + [$r[:3][] | tps / ($r[3] | tps) | r2] +
	["`no-wait`; the others alike"] | row)'
	took
}

for table; do
	$table
done
