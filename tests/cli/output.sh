#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Where results go: streams that are closed or full, and signals.  What is lost is told, and what is written
# is whole.
. "$(dirname "$0")/lib.sh"

full() { # STATUS ARGS...: standard output is /dev/full
	expect=$1
	shift
	timeout 120 "$verbena" "$@" >/dev/full 2>"$work/err" </dev/null
	status=$?
	: >"$work/out"
	is "full: $* ends with $expect" [ "$status" = "$expect" ]
	is "full: $* says so" grep -q 'standard output cannot be written (No space left' "$work/err"
}

full 1 list
full 1 --version
full 1 --help
full 1 bench --help
full 1 doctor
full 1 check lock --lock cas --seeds 2
full 1 bench lock --lock cas --fabric sim --duration 1ms
full 3 check lock --lock planted:double-grant --seeds 50

# The parts that VERBENA_LOG knows are those of the sources, and of the page that has them.
top=$(cd "$(dirname "$0")/../.." && pwd)
VERBENA_LOG=nonsense:debug "$verbena" list >"$work/out" 2>"$work/err" </dev/null
status=$?
is 'VERBENA_LOG: what is no part is named' grep -q "there is no part 'nonsense'" "$work/err"
sed -n 's/^verbena: VERBENA_LOG: the parts are //p' "$work/err" | tr -d ' ' | tr , '\n' | sort >"$work/known"
grep -rhoE '^#define VB_LOG_ROOM +"[^"]+"' "$top/src" | grep -oE '"[^"]+"' | tr -d '"' | sort -u >"$work/used"
is 'VERBENA_LOG: the parts are those of src' diff "$work/used" "$work/known"
sed -n '/^The parts that `VERBENA_LOG` knows/,/^[A-Z#]/p' "$top/doc/operating.md" |
	sed -n '/^| /s/^| [^|]*|//p' | grep -oE '`[^`]+`' | tr -d '`' | sort -u >"$work/page"
is 'VERBENA_LOG: ... and of operating.md' diff "$work/used" "$work/page"

# What the faults cause that a checker draws itself is no news, unless it is asked for.
for what in 'silo --seeds 5' 'silo --hybrid rpc --seed 3'; do
	# shellcheck disable=SC2086
	env -u VERBENA_LOG timeout 120 "$verbena" check txn --cc $what >"$work/out" 2>"$work/err" </dev/null
	status=$?
	is "check txn, $what: clean" [ "$status" = 0 ]
	is "check txn, $what: says nothing beside" [ ! -s "$work/err" ]
done
run check txn --cc silo --hybrid rpc --seed 3
is 'check txn, one seed: VERBENA_LOG lets it be heard' grep -q 'txn: error: the server of node' "$work/err"

# Which rare branches were reached, and how often.
run check lock --lock cas --seeds 20 --sites --json "$work/sites.json"
is 'check lock --sites: told' grep -qE '^cas +[1-9][0-9]* .* a release whose lost answer was yes$' "$work/out"
is 'check lock --sites: written' jq -e '.runs[0] | .never_reached == 0 and
	(.sites[] | select(.site | endswith(": a release whose lost answer was yes")) | .reached > 0)' "$work/sites.json"

# A reader that has seen enough is no failure.
"$verbena" list 2>"$work/err" | head -n 1 >"$work/out"
is 'a pipe that is left: nothing to say' [ ! -s "$work/err" ]

# Closed streams: nothing else takes their place.
timeout 120 "$verbena" bench lock --lock cas --fabric sim --duration 1ms --json "$work/closed.json" \
	>&- 2>"$work/err" </dev/null
status=$?
is 'stdout closed: exit status 1' [ "$status" = 1 ]
is 'stdout closed: it says so' grep -q 'standard output cannot be written' "$work/err"
timeout 120 "$verbena" bench lock --lock cas --procs 2 --duration 50ms --segment "closed.$$" --json "$work/all.json" \
	<&- >&- 2>&-
status=$?
is 'all closed: exit status 1' [ "$status" = 1 ]
if command -v jq >/dev/null; then
	is 'stdout closed: the JSON is whole' jq -e '.runs[0].ops > 0' "$work/closed.json"
	is 'all closed: the JSON is whole' jq -e '.runs[0].audit.violations == 0' "$work/all.json"
else
	skip 'closed: the JSON is whole' 'jq is not installed'
fi

# A full /dev/shm concerns those who want a name in it.
cramped() { # ARGS...: with 64 KiB of /dev/shm, in a mount namespace of its own
	timeout 120 unshare -m sh -c 'mount -t tmpfs -o size=64k none /dev/shm && exec "$@"' sh "$verbena" "$@" \
		>"$work/out" 2>"$work/err" </dev/null
	status=$?
}
if unshare -m mount -t tmpfs -o size=64k none /dev/shm 2>/dev/null; then
	cramped bench lock --lock cas --procs 2 --duration 20ms --locks 1m
	is 'a full /dev/shm that is not used: exit status 0' [ "$status" = 0 ]
	cramped bench txn --cc no-wait --duration 20ms
	is 'a full /dev/shm that transactions do not use: exit status 0' [ "$status" = 0 ]
	cramped bench lock --lock cas --procs 2 --duration 20ms --locks 1m --segment "cramped.$$"
	is 'a full /dev/shm that is used: exit status 6' [ "$status" = 6 ]
	is 'a full /dev/shm that is used: it is named' grep -q '/dev/shm has 0 MiB free' "$work/err"
else
	skip 'a full /dev/shm' 'no mount namespace here (needs root)'
fi

: >"$work/empty.jsonl"
refused 'an empty history' 2 'empty.jsonl no transaction' check history "$work/empty.jsonl"

# ---- signals ----

why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "ucx") | .absent // empty' 2>/dev/null || echo 'jq is not installed')
if [ -n "$why" ]; then
	skip 'SIGHUP to a ucx root' "$why"
	finish
	exit 0
fi

ends() { # NAME STATUS
	until_true "$1: it ends" gone
	kill -9 $pid 2>/dev/null
	wait $pid
	status=$?
	is "$1: exit status $2" [ "$status" = "$2" ]
	is "$1: the JSON is whole" jq -e '.schema == 1' "$work/hup.json"
	is "$1: nobody is left" [ -z "$(pgrep -P $pid)" ]
}
gone() { # a zombie has ended
	[ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" = Z ] || ! kill -0 $pid 2>/dev/null
}

VERBENA_LOG=$loud env --default-signal=HUP "$verbena" bench lock --lock cas --fabric ucx --procs 2 --warmup 1ms --duration 60s \
	--fabric-options bound=500ms --lease 2s --json "$work/hup.json" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
until_true 'it measures' measures
kill -HUP $pid
ends 'SIGHUP to a ucx root' 130
finish
