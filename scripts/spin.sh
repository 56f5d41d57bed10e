#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/spin.sh MODEL...     (mcs, dslr, shiftlock, relayed)
#
# Lets Spin explore the models of tests/spin, in TAP: as they are, each must be explored to the end
# without an error; with a bug planted, Spin must find it and as the kind of error that it is.
set -u
cd "$(dirname "$0")/.." || exit 2

models=$PWD/tests/spin
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-spin.XXXXXX") || exit 2
trap 'rm -rf "$work"' EXIT
n=0 failed=0

# How to look: the compiler's options for the verifier, then its own.
safety='-DSAFETY -DNOCLAIM;-m100000'
progress='-DNP -DNOCLAIM -DNFAIR=3;-m100000 -l -f' # cycles in which nobody gets on, under weak fairness
formula='-DNFAIR=3;-m1000000 -a -f'                # the model's ltl formula, under weak fairness

# Explores; its output is in $work/out.
explore() { # MODEL HOW OPTIONS
	rm -f "$work"/pan* "$work"/*.trail
	# shellcheck disable=SC2086
	(
		cd "$work" && spin -a $3 "$models/$1.pml" &&
			${CC:-cc} -O1 -w -DCOLLAPSE -DMEMLIM=2000 ${2%;*} -o pan pan.c &&
			timeout 300 ./pan ${2#*;}
	) >"$work/out" 2>&1
}

# WANT: what Spin must say, or "none" for a search to the end that finds nothing.
case_of() { # MODEL NAME HOW WANT OPTIONS
	local verdict=ok
	n=$((n + 1))
	explore "$1" "$3" "$5"
	if [ "$4" = none ]; then
		grep -q 'errors: 0$' "$work/out" || verdict='not ok'
		! grep -qE 'Search not completed|max search depth|DMEMLIM|^pan:[0-9]+:' "$work/out" ||
			verdict='not ok'
	else
		grep -qE "^pan:[0-9]+: $4" "$work/out" || verdict='not ok'
	fi
	echo "$verdict $n - $1: $2"
	if [ "$verdict" = ok ]; then
		sed -n 's/^ *\([0-9]*\) states, stored.*/# \1 states/p' "$work/out"
	else
		failed=1
		echo "# spin -a $5 tests/spin/$1.pml; cc -DCOLLAPSE ${3%;*} pan.c; ./a.out ${3#*;}; wanted: $4"
		grep -v '^[[:space:]]*$' "$work/out" | cut -c1-200 | head -n 40 | sed 's/^/# /'
	fi
}

model_mcs() {
	case_of mcs 'as it is' "$safety" none ''
	case_of mcs 'two clients, four rounds' "$safety" none '-DN=2 -DROUNDS=4 -DLOST=3'
	case_of mcs 'every run ends' "$progress" none '-DLOST=1'
	case_of mcs 'found: messages without a number, as published' "$safety" 'assertion violated' -DMUTATE=1
	case_of mcs 'found: release by WRITE' "$safety" 'invalid end state' -DMUTATE=2
	case_of mcs 'found: release does not wait for NEXT' "$safety" 'invalid end state' -DMUTATE=3
}

model_dslr() {
	# Two rounds of three clients, from {2, 2, 2, 2} on: the counters run full at 4.
	local two='-DROUNDS=2 -DBEGIN=8738 -DREADERS=6 -DWRITERS=3' endless='-DN=2 -DCOUNT_MAX=3'

	case_of dslr 'three clients, nobody paused' "$safety" none '-DROUNDS=2 -DBEGIN=8738 -DPAUSES=0'
	case_of dslr 'two writers, a reader, one is paused' "$safety" none \
		'-DROUNDS=2 -DBEGIN=8738 -DREADERS=4 -DWRITERS=3'
	case_of dslr 'a writer, two readers, one is paused' "$safety" none \
		'-DROUNDS=2 -DBEGIN=8738 -DREADERS=6 -DWRITERS=1'
	case_of dslr 'two clients for ever' "$safety" none "$endless"
	case_of dslr 'two for ever: a ticket is served' "$formula" none "$endless"
	case_of dslr 'two for ever, one dies: a ticket is served' "$formula" none "$endless -DPAUSES=0 -DDEATHS=1"
	case_of dslr 'three clients: every run ends' "$progress" none "$two -DROUNDS=1"
	case_of dslr 'found: decrement after overflow, as published' "$safety" 'invalid end state' \
		"$two -DPAUSES=0 -DMUTATE=1"
	case_of dslr 'found: unguarded late release, as published' "$safety" 'assertion violated' \
		"$two -DMUTATE=2"
	case_of dslr 'found: reset behind the own ticket, as published' "$safety" 'assertion violated' \
		"$two -DPAUSES=0 -DMUTATE=3"
	case_of dslr 'found: a ticket of the past' "$safety" 'assertion violated' "$two -DMUTATE=4"
	case_of dslr 'found: nobody resets' "$formula" 'acceptance cycle' \
		"$endless -DPAUSES=0 -DDEATHS=1 -DMUTATE=5"
	case_of dslr 'found: writer late by a round' "$safety" 'assertion violated' "$two -DMUTATE=6"
	case_of dslr 'found: reset late by a round' "$safety" 'assertion violated' \
		'-DPAUSES=2 -DROUNDS=4 -DCOUNT_MAX=3 -DREADERS=0 -DMUTATE=7'
	case_of dslr 'found: refused client blind for a round' "$safety" 'assertion violated' \
		"$endless -DMUTATE=8"
	case_of dslr 'found: reader late by a round' "$safety" 'assertion violated' "$two -DMUTATE=9"
}

model_shiftlock() {
	case_of shiftlock 'three writers, a reader, nobody paused' "$safety" none \
		'-DPAUSES=0 -DWRITERS=3 -DN=4 -DOTHERS=1'
	case_of shiftlock 'two writers, a reader, one is paused' "$safety" none -DOTHERS=1
	case_of shiftlock 'three writers, one is paused' "$safety" none '-DWRITERS=3 -DOTHERS=1'
	case_of shiftlock 'a writer, two readers, one is paused' "$safety" none '-DWRITERS=1 -DOTHERS=1'
	case_of shiftlock 'two pauses' "$safety" none '-DROUNDS=1 -DPAUSES=2'
	case_of shiftlock 'a pause and a death' "$safety" none '-DROUNDS=1 -DDEATHS=1'
	case_of shiftlock 'every run ends, with a death' "$progress" none '-DROUNDS=1 -DPAUSES=0 -DDEATHS=1'
	case_of shiftlock 'every run ends, with a pause' "$progress" none -DROUNDS=1
	case_of shiftlock 'found: stale epoch, as published' "$safety" 'assertion violated' \
		'-DPAUSES=0 -DWRITERS=3 -DN=4 -DOTHERS=1 -DMUTATE=1'
	case_of shiftlock 'found: message from before a recovery, as published' "$safety" \
		'assertion violated' '-DWRITERS=3 -DROUNDS=1 -DMUTATE=2'
	case_of shiftlock 'found: release without a look at RelCnt, as published' "$safety" \
		'assertion violated' '-DMUTATE=3 -DOTHERS=1'
	case_of shiftlock 'found: recovery by era alone, as published' "$safety" 'assertion violated' \
		'-DMUTATE=4 -DROUNDS=1'
	case_of shiftlock 'found: nobody asks for recovery' "$progress" 'non-progress cycle' \
		'-DROUNDS=1 -DPAUSES=0 -DDEATHS=1 -DMUTATE=5'
}

# Of shiftlock with handover=relayed: what is handed over is not counted.
model_relayed() {
	local relayed='-DRELAYED=1 -DOTHERS=1'
	# Two are paused while they hold the lock, and whoever waits is less patient than the code.
	local chain="$relayed -DPAUSES=2 -DHOLDERS -DWRITERS_MAX=4 -DLIMIT=2 -DPATIENCE=3"

	case_of shiftlock 'relayed: three writers, a reader, nobody paused' "$safety" none \
		"$relayed -DPAUSES=0 -DWRITERS=3 -DN=4"
	case_of shiftlock 'relayed: two writers, a reader, one is paused' "$safety" none "$relayed"
	case_of shiftlock 'relayed: three writers, one is paused' "$safety" none "$relayed -DWRITERS=3"
	case_of shiftlock 'relayed: a writer, two readers, one is paused' "$safety" none "$relayed -DWRITERS=1"
	case_of shiftlock 'relayed: two pauses' "$safety" none '-DRELAYED=1 -DROUNDS=1 -DPAUSES=2'
	case_of shiftlock 'relayed: a pause and a death' "$safety" none '-DRELAYED=1 -DROUNDS=1 -DDEATHS=1'
	case_of shiftlock 'relayed: two pauses of holders' "$safety" none "$chain"
	case_of shiftlock 'relayed: every run ends, with a death' "$progress" none \
		'-DRELAYED=1 -DROUNDS=1 -DPAUSES=0 -DDEATHS=1'
	case_of shiftlock 'relayed: every run ends, with a pause' "$progress" none '-DRELAYED=1 -DROUNDS=1'
	case_of shiftlock 'found: a handover whose age nobody looks at' "$safety" 'assertion violated' \
		"$relayed -DWRITERS=3 -DMUTATE=6"
	case_of shiftlock 'found: handed over uncounted behind the lease' "$safety" 'assertion violated' \
		"$relayed -DLIMIT=9"
	case_of shiftlock 'found: its age counts from when it came' "$safety" 'assertion violated' \
		"$relayed -DWRITERS=3 -DMUTATE=7"
	case_of shiftlock 'found: its age is not handed on' "$safety" 'assertion violated' "$chain -DMUTATE=8"
	case_of shiftlock 'found: what is not counted is forgotten' "$safety" 'assertion violated' \
		"$relayed -DWRITERS=3 -DMUTATE=9"
	case_of shiftlock 'found: too late, and counts without a look' "$safety" 'assertion violated' \
		"$relayed -DWRITERS=3 -DMUTATE=10"
}

[ $# -gt 0 ] || {
	sed -n 's/^# usage: /usage: /p' scripts/spin.sh >&2
	exit 2
}
for model in "$@"; do
	[ "$(type -t "model_$model")" = function ] || {
		echo "verbena: no model '$model'; there are mcs, dslr, shiftlock and relayed" >&2
		exit 2
	}
	if command -v spin >/dev/null; then
		"model_$model"
	else
		n=$((n + 1))
		echo "ok $n - $model # SKIP spin is not installed"
	fi
done
echo "1..$n"
exit $failed
