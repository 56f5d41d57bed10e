#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What `verbena check txn` has explored can be judged by others: its histories, written to a file.
. "$(dirname "$0")/lib.sh"

history=$work/history.jsonl
edn=$work/history.edn

# Those that keep their name when they are tried again, and those whose versions are logical times.
for cc in wait-die-fair wound-wait-sx sundial maat mvcc mvcc-rcc cicada to to-cascade silo mocc; do
	run check txn --cc "$cc" --seed 34 --history "$history"
	is "$cc: explored" [ "$status" = 0 ]
	is "$cc: with tries that failed" grep -q '"outcome":"aborted".*"op":"w"' "$history"
	run check history "$history" --edn "$edn"
	is "$cc: is judged again" [ "$status" = 0 ]
	grep ':type :invoke' "$edn" | grep -oE ':append "[^"]+" [0-9]+' | sort | uniq -d >"$work/twice"
	is "$cc: no version is written twice" [ ! -s "$work/twice" ]
done

run check txn --cc planted:no-validation --history "$history"
is 'a finding: exit status 3' [ "$status" = 3 ]
run check history --strict "$history"
is 'a finding: and again from the file' [ "$status" = 3 ]

# Numbers that are no versions are the protocol's fault, and no fault of the tool.
run check txn --cc planted:small-numbers
is 'nonsense versions: exit status 3' [ "$status" = 3 ]
is 'nonsense versions: said' grep -q 'not-serializable: malformed version' "$work/out"

refused 'a history of several protocols' 2 "--history one" check txn --cc all --history "$history"
refused 'far places under calvin' 2 "--far 'calvin'" check txn --cc calvin --far
refused 'a history of every code' 2 "--history one" check txn --cc silo --hybrid all --history "$history"
refused 'a history that cannot be written' 2 "/nowhere/at/all" check txn --cc silo --history /nowhere/at/all
finish
