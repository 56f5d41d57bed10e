#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Histories as others read them: doc/histories.md is all that these readers know, and none of them shares a
# line with verbena.  Lists for Elle are judged by a graph and tsort, registers for PolySI by who wrote
# what is read, and locks by their intervals.  What verbena says of the same history must agree.
. "$(dirname "$0")/lib.sh"

# EDN as JSON: numbers become strings, because jq holds them as doubles.
edn_as_json() {
	sed -E 's/([[ ])([0-9]+)/\1"\2"/g; s/\[:(r|append) ("[^"]*") /["\1",\2,/g; s/ nil\]/null]/g; s/,nil\]/,null]/g
		s/:(type|f) :([a-z]+)/"\1":"\2"/g; s/:(index|process|time|value) /"\1":/g; s/\] \[/],[/g; s/" "/","/g'
}

# The edges between transactions of a list-append history, for tsort; a line of words for what is no graph.
# An order of elements is known only where a list with them was read, as to Elle.
# shellcheck disable=SC2016
graph='
[inputs] as $all
| ($all | map(select(.type != "invoke"))) as $ends
| ($ends | map(select(.type == "ok"))) as $ok
| ($ends | map(. as $t | .value[] | select(.[0] == "append") | {key: (.[1] + " " + .[2]), value: $t}))
	as $appends
| ($appends | from_entries) as $writer
| ($ok | map(. as $t | .value[] | select(.[0] == "r") | {key: .[1], list: .[2], process: $t.process})) as $reads
| ($reads | group_by(.key) | map({key: .[0].key, value: (map(.list) | max_by(length))}) | from_entries) as $longest
| def at($key; $n): $writer[$key + " " + $longest[$key][$n]];
(if ($appends | length) != ($writer | length) then "an element is appended twice" else empty end),
(if ($all | map(.index | tonumber)) != [range($all | length)] then "not in order" else empty end),
($all | [., .[1:]] | transpose[] | select(.[1] != null and (.[0].time | tonumber) > (.[1].time | tonumber))
	| "time goes back at \(.[1].index)"),
($all | group_by(.process)[] | select(map(.type)[0] != "invoke" or length != 2)
	| "process \(.[0].process) does not begin once and end once"),
($reads[] | . as $r | select($longest[.key][:(.list | length)] != .list) | "lists of \(.key) are no prefixes"),
($reads[] | . as $r | .list[] | $writer[$r.key + " " + .] | select(. == null) | "\($r.key) has what nobody wrote"),
($reads[] | . as $r | .list[] | $writer[$r.key + " " + .] | select(. != null and .type == "fail")
	| "G1a: \($r.key) has what process \(.process) wrote and gave up"),
($reads[] | (.list | length) as $n | .process as $p | .key as $k
	| (if $n > 0 then at($k; $n - 1) | select(. != null and .process != $p) | "\(.process) \($p)" else empty end),
	  (if $n < ($longest[$k] | length) then at($k; $n) | select(. != null and .process != $p)
		| "\($p) \(.process)" else empty end)),
($longest | to_entries[] | .key as $k | range(1; .value | length) as $n | [at($k; $n - 1), at($k; $n)]
	| select(.[0] != null and .[1] != null and .[0].process != .[1].process) | "\(.[0].process) \(.[1].process)"),
(if $strict then ($all | map(select(.type == "invoke")) | map({key: .process, value: (.time | tonumber)}) | from_entries) as $begin
	| $ok[] | . as $a | $ok[] | select($begin[.process] > ($a.time | tonumber)) | "\($a.process) \(.process)"
 else empty end)'

# elle FILE true|false: its verdict on standard output; strictly, if true.
elle() {
	edn_as_json <"$1" | jq -nr --argjson strict "$2" "$graph" >"$work/graph" || {
		echo 'does not parse'
		return
	}
	if grep -qvE '^[0-9]+ [0-9]+$' "$work/graph"; then
		grep -vE '^[0-9]+ [0-9]+$' "$work/graph" | head -n 1
	elif tsort "$work/graph" >"$work/order" 2>"$work/cycle"; then
		echo "in order: $(wc -l <"$work/order") transactions"
	else
		echo cycle
	fi
}

# registers FILE: what is wrong with a history for PolySI, in words; or how much of it there is.
registers() {
	awk -F '[(),]' '
		!/^[rw]\([0-9]+,[0-9]+,[0-9]+,[0-9]+\)$/ { print "line " NR " is none: " $0; exit 1 }
		$1 == "w" { if (($2, $3) in writer) { print "key " $2 " is given " $3 " twice"; exit 1 } writer[$2, $3] = $5 }
		$5 == 0 && ($1 != "w" || loaded[$2]++) { print "the loader does more than load key " $2; exit 1 }
		{ if ($5 in session && session[$5] != $4) { print "transaction " $5 " in two sessions"; exit 1 }
		  session[$5] = $4; op[NR] = $1; key[NR] = $2; value[NR] = $3 }
		END {
			for (i = 1; i <= NR; i++)
				if (op[i] == "r" && !((key[i], value[i]) in writer)) {
					print "key " key[i] " has what nobody wrote"
					exit 1
				}
			n = 0
			for (t in session) n++
			print "registers of " n - 1 " transactions"
		}' "$1"
}

# The holds of a history of locks, shared or exclusive: pairs that must not overlap and do, by their intervals.
# A grant begins where its call ended, and ends where its release began or its lease ended.
holds='
[inputs | select(.history == null)] | group_by(.lock)[]
| [group_by(.process)[] | . as $calls | range(length) as $i | $calls[$i]
	| select(.f == "acquire" and .type == "ok")
	| {process, mode, from: .time, to: ([(.valid_until // infinite),
		($calls[$i + 1:] | map(select(.type == "invoke" or .f == "abandon"))[0].time // infinite)] | min)}]
| sort_by(.from) | . as $grants | length as $n
| "grants \($n)",
  (range($n) as $i | $grants[$i] as $a
	| first(range($i + 1; $n) as $j | $grants[$j] | select(.from < $a.to and (.mode == "exclusive" or $a.mode == "exclusive")))
	| "overlap at \(.from)")'

# history_of PROTOCOL [OPTION...]: what the last seed did that was explored, in all formats; what verbena says.
history_of() {
	cc=$1
	shift
	run check txn --cc "$cc" "$@" --history "$work/txns.jsonl"
	run check history "$work/txns.jsonl" --edn "$work/txns.edn" --text "$work/txns.txt"
}

# Sundial, mvcc, to and to-cascade do not promise to agree with time.
for protocol in silo sundial mvcc to to-cascade no-wait-sx wait-die-fair wound-wait; do
	seed=5
	# Some of its transactions ask for snapshot isolation, and it is judged by that.
	if [ $protocol = mvcc ]; then seed=1; fi
	history_of $protocol --seed $seed
	said='strictly serializable' strict=true
	case $protocol in sundial | mvcc | to | to-cascade) said=serializable strict=false ;; esac
	is "$protocol: verbena says $said" grep -qx "$said" "$work/out"
	elle "$work/txns.edn" $strict >"$work/verdict"
	is "$protocol: so does a reader of lists" grep -qE '^in order: [0-9]{2,} ' "$work/verdict"
	registers "$work/txns.txt" >"$work/verdict"
	committed=$(grep -c '"outcome":"committed"' "$work/txns.jsonl")
	is "$protocol: a reader of registers finds all $committed" \
		grep -qx "registers of $committed transactions" "$work/verdict"
done

# What is wrong there is wrong here: by a cycle, by what was given up, by two who replaced one version.
for bug in no-validation early-unlock lost-undo; do
	history_of "planted:$bug" --seeds 200
	is "$bug: verbena refuses it" [ "$status" = 3 ]
	elle "$work/txns.edn" false >"$work/verdict"
	is "$bug: so does a reader of lists ($(cat "$work/verdict"))" \
		grep -qE '^(cycle|G1a: .*|lists of .* are no prefixes)$' "$work/verdict"
done
is 'lost-undo: a reader of registers misses who was given up' \
	grep -q 'has what nobody wrote$' <<END
$(registers "$work/txns.txt")
END

# locks_of LOCK SEED: what its clients called for; what verbena and the reader of intervals say.
locks_of() {
	run check lock --lock "$1" --seed "$2" --history "$work/locks.jsonl"
	run check history "$work/locks.jsonl"
	jq -nr "$holds" "$work/locks.jsonl" >"$work/verdict"
}

for lock in cas mcs dslr shiftlock traditional; do
	locks_of $lock 7
	is "$lock: verbena says linearizable" grep -qx 'linearizable to locks' "$work/out"
	is "$lock: a reader of intervals finds grants" grep -qE '^grants [1-9]' "$work/verdict"
	is "$lock: and no overlap" [ "$(grep -c overlap "$work/verdict")" = 0 ]
done
# The seed that finds it is the last that is explored.
for bug in double-grant late-lease hasty-writer; do
	run check lock --lock "planted:$bug" --seeds 200 --json "$work/found.json"
	locks_of "planted:$bug" "$(jq '.runs[0].seeds' "$work/found.json")"
	is "$bug: verbena refuses it" grep -q '^not linearizable to locks: .*mode-conflict' "$work/out"
	is "$bug: a reader of intervals sees an overlap" grep -q '^overlap at ' "$work/verdict"
done
finish
