#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Histories from files: what is serializable and what is not, by exit status and words.
. "$(dirname "$0")/lib.sh"

one=$work/one.jsonl
two=$work/two.jsonl
skew=$work/skew.jsonl
bad=$work/bad.jsonl
cat >"$one" <<'END'
{"id":1,"client":0,"outcome":"committed","begin_ns":1000,"end_ns":2000,"ops":[{"op":"r","key":5,"version":1},{"op":"w","key":5,"version":8,"prev":1}]}
END
cat >"$two" <<'END'
{"id":2,"client":1,"outcome":"committed","begin_ns":3000,"end_ns":4000,"ops":[{"op":"r","key":5,"version":1}]}
{"id":3,"client":1,"outcome":"aborted","begin_ns":5000,"end_ns":6000,"ops":[{"op":"w","key":5,"version":9,"prev":8}]}
END
cat >"$skew" <<'END'
{"id":11,"outcome":"committed","ops":[{"op":"r","key":1,"version":0},{"op":"w","key":2,"version":8,"prev":0}]}
{"id":12,"outcome":"committed","ops":[{"op":"r","key":2,"version":0},{"op":"w","key":1,"version":9,"prev":0}]}
END
{
	cat "$skew"
	echo '{"id":13,"outcome":"committed","ops":[{"op":"r","key":2}]}'
} >"$bad"

run check history "$one" "$two"
is 'serializable: exit status 0' [ "$status" = 0 ]
is 'serializable: said' grep -qx serializable "$work/out"
is 'serializable: counted' grep -qE '^ +3 +2 +1 +0 +4 +1 +1 ' "$work/out"
run check history --strict "$one"
is 'strictly serializable: said' grep -qx 'strictly serializable' "$work/out"
run check history --strict "$one" "$two"
is 'a stale read: exit status 3' [ "$status" = 3 ]
is 'a stale read: said' grep -qx 'serializable, but not strictly: real time (1)' "$work/out"
is 'a stale read: told' grep -q 'T1 .* ended at 2.000 us, before T2 began' "$work/out"
run check history "$skew"
is 'write skew: exit status 3' [ "$status" = 3 ]
is 'write skew: said' grep -qx 'not serializable: write skew (1)' "$work/out"
is 'write skew: told' grep -q 'read 0/1 at version 0, which T12 replaced with 9; so T11 comes' \
	"$work/out"
timeout 120 "$verbena" check history - <"$skew" >"$work/out" 2>"$work/err"
status=$?
is 'from standard input: exit status 3' [ "$status" = 3 ]

# What a protocol wrote may be nonsense: that is a finding.  What does not parse is none.
internal=$work/internal.jsonl
echo '{"id":1,"outcome":"committed","ops":[{"op":"w","key":1,"version":11,"prev":0},{"op":"r","key":1,"version":0}]}' >"$internal"
run check history "$internal"
is 'internal: exit status 3' [ "$status" = 3 ]
is 'internal: said' grep -qx 'not serializable: internal (1)' "$work/out"
is 'internal: told' grep -q 'read 0/1 at version 0; it had written version 11 of it before' "$work/out"
malformed=$work/malformed.jsonl
cat >"$malformed" <<'END'
{"id":1,"outcome":"committed","ops":[{"op":"w","key":1,"version":4,"prev":1}]}
{"id":2,"outcome":"committed","ops":[{"op":"w","key":2,"version":9,"prev":1}]}
{"id":3,"outcome":"committed","ops":[{"op":"w","key":2,"version":9,"prev":1}]}
END
run check history "$malformed" --json "$work/malformed.json"
is 'nonsense versions: exit status 3' [ "$status" = 3 ]
is 'nonsense versions: said' grep -qx 'not serializable: malformed version (1), duplicate version (1)' \
	"$work/out"
is 'nonsense versions: told' \
	grep -q "replaced version 1 of 0/1 with 4; a version below 8 is the loader's" "$work/out"
run check history "$malformed" --edn "$work/malformed.edn"
is 'nonsense versions for Elle: refused' [ "$status" = 2 ]
is 'nonsense versions for Elle: why' grep -q 'malformed version' "$work/err"
is 'nonsense versions for Elle: judged all the same' grep -q '^not serializable' "$work/out"

# At the level that is asked for, or claimed.
claims=$work/claims.jsonl
{
	echo '{"history":"transactions","level":"snapshot"}'
	cat "$skew"
} >"$claims"
run check history "$claims"
is 'a claim: exit status 0' [ "$status" = 0 ]
is 'a claim: said' grep -qx 'snapshot isolated' "$work/out"
run check history "$claims" --level serializable --json "$work/level.json"
is 'more than is claimed: exit status 3' [ "$status" = 3 ]
is 'more than is claimed: said' grep -qx 'not serializable: write skew (1)' "$work/out"
run check history "$skew" --level repeatable-read
is 'repeatable read: refuses it' grep -qx 'not repeatable read: write skew (1)' "$work/out"
run check history "$skew" --level read-committed
is 'read committed: allows it' grep -qx 'read committed' "$work/out"
run check history "$one" "$two" --level strict-serializable
is '--strict is a level' grep -qx 'serializable, but not strictly: real time (1)' "$work/out"
sed 's/snapshot/serializable/; s/"id":1/"id":2/' "$claims" >"$work/other.jsonl"
refused 'two claims' 2 "claims.jsonl snapshot other.jsonl serializable --level" \
	check history "$claims" "$work/other.jsonl"
refused 'two levels' 2 "--strict --level snapshot" check history --strict --level snapshot "$one"
refused 'no level' 2 "level repeatable" check history --level repeatable "$one"

# Each transaction at the level that it was begun at.
mixed=$work/mixed.jsonl
sed '1s/"outcome"/"level":"read-committed","outcome"/' "$skew" >"$mixed"
run check history "$mixed" --json "$work/mixed.json"
is 'mixed: exit status 0' [ "$status" = 0 ]
is 'mixed: said' grep -qx 'each transaction at its own level: 1 serializable, 1 read committed' "$work/out"
is 'mixed: kept' grep -qx 'each keeps it' "$work/out"
tr -d ' \n' <"$work/mixed.json" >"$work/mixed.line"
is 'mixed: counted' grep -q '"levels":{"read-committed":1,"repeatable-read":0,"snapshot":0,"serializable":1' \
	"$work/mixed.line"
run check history "$mixed" --level serializable
is 'mixed: one level for all' grep -qx 'not serializable: write skew (1)' "$work/out"
sed '1s/"outcome"/"level":"repeatable-read","outcome"/' "$skew" >"$mixed"
run check history "$mixed"
is 'mixed: exit status 3' [ "$status" = 3 ]
is 'mixed: not kept' grep -qx 'not so: write skew (1)' "$work/out"
sed '1s/"outcome"/"level":"snapshot","outcome"/' "$skew" >"$mixed"
refused 'snapshot and another' 2 "snapshot --level" check history "$mixed"
sed '1s/"outcome"/"level":"none","outcome"/' "$skew" >"$mixed"
refused 'no such level' 2 "mixed.jsonl line 1 level" check history "$mixed"

run check history "$one" --text -
is 'for PolySI: the verdict on stderr' grep -qx serializable "$work/err"
printf 'w(1,1,0,0)\nr(1,1,1,1)\nw(1,2,1,1)\n' >"$work/expect"
is 'for PolySI: nothing but the history on stdout' cmp -s "$work/expect" "$work/out"

run check history "$skew" --edn -
is 'for Elle: exit status 3' [ "$status" = 3 ]
is 'for Elle: nothing but the history on stdout' [ "$(grep -c '^{:index' "$work/out")" = 4 ]
is 'for Elle: the verdict on stderr' grep -q 'not serializable' "$work/err"

# Histories of locks.
run check lock --lock dslr --seed 3 --history "$work/locks.jsonl"
is 'a lock: exit status 0' [ "$status" = 0 ]
run check history "$work/locks.jsonl"
is 'a lock: is one' [ "$status" = 0 ]
is 'a lock: said' grep -qx 'linearizable to locks' "$work/out"
is 'a lock: counted' grep -qE '^ +[0-9]{3,} +[0-9]{2,} +[1-3]$' "$work/out"
run check lock --lock planted:stale-token --seed 1 --history "$work/planted.jsonl"
is 'a planted lock: is caught where it runs' [ "$status" = 3 ]
run check history "$work/planted.jsonl" --json "$work/planted.json"
is 'a planted lock: and in its history' [ "$status" = 3 ]
is 'a planted lock: said' grep -q '^not linearizable to locks: token-order ([0-9]*)$' "$work/out"
is 'a planted lock: told' grep -q '^token-order: lock 0: a token that is not larger, granted to client' \
	"$work/out"
# Of a run that is measured: in the simulator, and of processes, one of which holds on for ever.
run bench lock --lock shiftlock --fabric sim --clients 8 --locks 4 --duration 1ms --read-ratio 0.5 \
	--history "$work/bench.jsonl"
is 'bench lock: exit status 0' [ "$status" = 0 ]
run check history "$work/bench.jsonl"
is 'bench lock: a lock' grep -qx 'linearizable to locks' "$work/out"
is 'bench lock: all of it' grep -qE '^ +[0-9]{4,} +[0-9]{3,} +4$' "$work/out"
run bench lock --lock dslr --procs 2 --clients 4 --locks 2 --duration 50ms --segment "history.$$" \
	--history "$work/procs.jsonl"
is 'bench lock of processes: exit status 0' [ "$status" = 0 ]
run check history "$work/procs.jsonl"
is 'bench lock of processes: a lock' grep -qx 'linearizable to locks' "$work/out"
is 'bench lock of processes: of all clients' \
	[ "$(grep -o '"client":[0-9]*' "$work/procs.jsonl" | sort -u | wc -l)" = 4 ]
refused 'a history of all locks' 2 "--history --lock" \
	bench lock --lock all --fabric sim --history "$work/h"
refused 'a history of a network' 2 "--history --fabric" \
	bench lock --lock cas --fabric ucx --procs 2 --history "$work/h"
refused 'a history that cannot be written' 2 "/nowhere/at/all" \
	bench lock --lock cas --fabric sim --history /nowhere/at/all

cat >"$work/two.locks" <<'END'
{"history":"locks"}
{"process":1,"type":"invoke","f":"acquire","mode":"exclusive","lock":7,"time":1000}
{"process":2,"type":"invoke","f":"acquire","mode":"shared","lock":7,"time":1000}
{"process":1,"type":"ok","f":"acquire","mode":"exclusive","lock":7,"time":2000,"valid_until":9000}
{"process":2,"type":"ok","f":"acquire","mode":"shared","lock":7,"time":3000}
END
run check history "$work/two.locks"
is 'by hand: exit status 3' [ "$status" = 3 ]
is 'by hand: said' grep -qx 'not linearizable to locks: mode-conflict (1)' "$work/out"
refused 'locks and transactions' 2 "two.locks locks one.jsonl transactions" \
	check history "$work/two.locks" "$one"
refused 'locks have no level' 2 "two.locks --level" check history --strict "$work/two.locks"
head -1 "$work/two.locks" >"$work/empty.locks"
refused 'a history of locks without calls' 2 "empty.locks no call" \
	check history "$work/empty.locks"
refused 'a history of many seeds' 2 "--history seed" \
	check lock --lock dslr --seeds 5 --history "$work/h"
refused 'a history of many locks' 2 "--history lock" \
	check lock --lock all --seed 5 --history "$work/h"
refused 'a history that cannot be written' 2 "/nowhere/at/all" \
	check lock --lock dslr --seed 5 --history /nowhere/at/all

if command -v jq >/dev/null; then
	is 'JSON of a planted lock' jq -e '.runs[0] | .history == "locks" and
		.by_rule["token-order"] == .violations and .violations > 0 and
		(.story | startswith("token-order"))' "$work/planted.json"
	run check history "$skew" --json "$work/result.json"
	is 'JSON' jq -e '.runs[0] | .kind == "check-history" and .transactions == 2 and
		.first == "write skew" and .anomalies["write skew"] == 1 and .anomalies.G0 == 0 and
		(.story | startswith("write skew")) and (.files | length) == 1' "$work/result.json"
	is 'JSON of a level' jq -e '.runs[0] | .level == "serializable" and .strict == false and
		.first == "write skew"' "$work/level.json"
	is 'JSON of nonsense' jq -e '.runs[0] | .first == "malformed version" and
		.anomalies["malformed version"] == 1 and .anomalies["duplicate version"] == 1' \
		"$work/malformed.json"
	run check history "$one" --json -
	is 'JSON of a good one' jq -e '.runs[0] | .first == "none" and has("story") == false' \
		"$work/out"
else
	skip 'JSON' 'jq is not installed'
fi

refused 'a line that is wrong' 2 "bad.jsonl line 3 version operation 1" check history "$bad"
refused 'a file that is not there' 2 "/nowhere.jsonl" check history /nowhere.jsonl
refused 'no file' 2 "files" check history
refused 'the same history twice' 2 "T1 unique" check history "$one" "$one"
refused 'two files to stdout' 2 "--json --edn" check history "$one" --json - --edn -
refused 'text to stdout as well' 2 "--text" check history "$one" --text - --edn -
refused 'EDN where nothing can be written' 2 "/nowhere/at/all.edn" \
	check history "$one" --edn /nowhere/at/all.edn
refused 'an unknown option' 2 "stirct strict" check history --stirct "$one"
run check history --help
is 'help' grep -q 'verbena check history \[OPTION\]... FILE...' "$work/out"
finish
