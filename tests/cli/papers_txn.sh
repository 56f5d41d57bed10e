#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/papers-txn.sh: a small set-up of every table, and the rows that each must have.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'papers-txn' 'jq is not installed'
	finish
	exit 0
fi

script=$(dirname "$0")/../../scripts/papers-txn.sh
mkdir -p "$work/build/src"
case $verbena in
/*) ln -s "$verbena" "$work/build/src/verbena" ;;
*) ln -s "$PWD/$verbena" "$work/build/src/verbena" ;;
esac
run_script() { # ARGS...
	PAPERS_TINY=1 timeout 250 "$script" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

# Rows of the table under the last heading that has WORDS, that begin with PATTERN.
rows() { # HEADING PATTERN
	awk -v h="## $1" -v p="$2" '$0 == h { on = 1; next } /^## / { on = 0 } on && $0 ~ p { n++ } END { print n + 0 }' \
		"$work/out"
}

has_rows() { # HEADING PATTERN NUMBER
	is "$1: $3 rows '$2'" [ "$(rows "$1" "$2")" = "$3" ]
}

run_script "$work/build"
is 'every table: exit status 0' [ "$status" = 0 ]
is 'nothing on stderr' [ ! -s "$work/err" ]
has_rows 'What fewer records change' '^. [0-9]+ ' 2
has_rows 'Primitives as RCBench counts them' '^. `' 12
has_rows 'Primitives of each transaction' '^. `' 14
has_rows 'One-sided against RPC, nothing batched' '^. `' 5
# These numbers are of this tree's own output: of the simulator's profiles, the workloads' draws and the
# protocols' verbs.  Who changes one of those on purpose changes them, and the pages with them.
has_rows 'Primitives as RCBench counts them' '^[|] `silo` .* 17[.]7 ' 1
has_rows 'Coroutines, doorbells, outstanding requests, passive ack' '^. `' 30
has_rows 'Coroutines, doorbells, outstanding requests, passive ack' '^[|] `no-wait` .* 991[.]1 [|] 1[.]1 [|] 2[.]29 ' 2
has_rows 'Exclusive locks against shared and exclusive ones' '^. 0' 12
has_rows 'One-sided against RPC' '^. (smallbank|ycsb) . [0-9]+ . `' 20
has_rows 'One-sided against RPC' '^. (smallbank|ycsb) . [0-9]+ . [a-z]' 4
has_rows 'One-sided against RPC' '^. (throughput|mean latency) ' 2
has_rows 'Where the time goes, and mixtures' '^. (smallbank|ycsb) . `[a-z]' 38
has_rows 'Where the time goes, and mixtures' '^. (smallbank|ycsb) . `[01]' 2
has_rows 'Stages of one record, and the log in three places' '^. `(read|lock|commit|log)` of .*[0-9.]+ [|] [0-9.]+ [|] [0-9.]+ [|]' 6
has_rows 'Stages of one record, and the log in three places' '^. `(no-wait|silo)` [|] (none|lock|read|all) [|] [0-9]' 6
has_rows 'Time that a transaction computes' '^. (1|16) [|] [0-9]' 2
has_rows 'Nodes of each transaction' '^. `' 10
has_rows 'Beside DrTM+H' '^. [0-9]+ ' 4
has_rows 'Beside DSLR' '^. [0-9]+ ' 2
is 'no number is missing' [ "$(grep -c '^|.*null' "$work/out")" = 0 ]
is 'the commands are shown' [ "$(grep -c '^verbena bench txn ' "$work/out")" = 83 ]
is 'the results are kept' [ -s "$work/build/papers-txn-tiny/prims-on.json" ]

run_script "$work/build" nonesuch
is 'no such table: exit status 2' [ "$status" = 2 ]
is 'no such table: a line about it' grep -q nonesuch "$work/err"
run_script "$work/nowhere"
is 'no build: exit status 2' [ "$status" = 2 ]
finish
