#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: stopped.sh VERBENA shm|tcp|ucx
#
# Each process of bench lock, bench txn and bench fabric, on that fabric, killed (KILL), stopped for good
# (STOP), and for the one that was started also stopped for a while (PAUSE): the run ends by itself, names
# who it was, leaves whole JSON, says with its exit status that it failed, and does not blame the lock.
# When it is the first process that dies, nobody is left.  A child may also be killed or stopped as soon
# as it is there, long before anything is measured.  The runs of a group are made side by side, and so are
# locks, transactions and fabrics: what is waited for are silences, and who thinks leaves the processor to others.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'killed and stopped' 'jq is not installed'
	finish
	exit 0
fi

state() { # PID: its letter, Z when it has ended and nobody has looked
	sed 's/.*) \(.\).*/\1/' "/proc/$1/stat" 2>/dev/null
}
gone() { # PID...
	for p in "$@"; do
		case $(state "$p") in '' | Z) ;; *) return 1 ;; esac
	done
}
stands() { # PID: it has been stopped, or is gone
	case $(state "$1") in T | Z | '') ;; *) return 1 ;; esac
}

# A run in the background: N of the group, SIGNAL to process WHICH of COUNT forked ones (0 is the parent), NAME.
launch() { # N SIGNAL WHICH COUNT NAME ARGS...
	id=$1
	eval "sig$id=\$2 which$id=\$3 count$id=\$4 label$id=\"\$5, \$2 of \$([ \$3 = 0 ] && echo the parent || echo child \$3)\""
	shift 5
	rm -f "$work/json$id" "$work/err$id"
	VERBENA_LOG=$loud "$verbena" bench "$@" --json "$work/json$id" >"$work/out$id" 2>"$work/err$id" </dev/null &
	eval "pid$id=$!"
}

# It has $count children, and $skipped times others before; or it has ended.
forked() {
	gone "$pid" && return
	next=$(pgrep -P "$pid") && [ "$(echo "$next" | wc -l)" = "$count" ] || return
	[ "$next" = "$children" ] || seen=$((seen + 1))
	children=$next
	[ $seen -gt "$skipped" ]
}
# A lock and transactions say so; bench fabric has used a little processor time by then.
in_the_middle() { # N
	gone "$pid" && return
	if [ "$judge" = judge_fabric ]; then
		gone "$watched" || [ "0$(ticks "$watched")" -ge 5 ]
	else
		measures "$work/err$1"
	fi
}
take() { # N: its variables without the number
	eval "sig=\$sig$1 which=\$which$1 count=\$count$1 label=\$label$1 pid=\$pid$1 children=\$children$1"
}

strike() { # N: the signal, in the middle
	take "$1"
	children='' seen=0
	until_true "$label: it forks" forked
	eval "children$1=\$children"
	watched=$(echo "$children" | sed -n "$([ "$which" = 0 ] && echo 1 || echo "$which")p")
	[ -z "$watched" ] || [ -n "$early" ] || until_true "$label: it measures" in_the_middle "$1"
	victim=$pid
	[ "$which" = 0 ] || victim=$watched
	case $sig in
	KILL) kill -KILL "$victim" ;;
	*) kill -STOP "$victim" ;;
	esac
	[ "$sig" != PAUSE ] || { sleep "$pause_s" && kill -CONT "$victim"; } # any time will do that is short of a silence
}

settle() { # N FABRIC WORDS: how it ends; sets $status and $json
	take "$1"
	json=$work/json$1 status=
	cp "$work/out$1" "$work/out"
	case $sig-$which in
	# The members of a network miss their root, and end.  The others wait for whoever forked them, or for
	# nobody.
	STOP-0)
		is "$label: it stands" stands "$pid"
		# shellcheck disable=SC2086
		[ "$judge" = judge_fabric ] || [ "$2" = shm ] || until_true "$label: the others end by themselves" gone $children
		kill -KILL "$pid"
		;;
	esac
	until_true "$label: the run ends" gone "$pid"
	gone "$pid" || kill -KILL "$pid"
	wait "$pid"
	status=$?
	cp "$work/err$1" "$work/err"
	# shellcheck disable=SC2086
	until_true "$label: nobody is left" gone $children
	# shellcheck disable=SC2086
	is "$label: nobody is left" gone $children
	case $sig-$which in
	PAUSE-0) ;;
	*-0)
		is "$label: exit status" [ "$status" = 137 ]
		return
		;;
	*)
		is "$label: exit status 1" [ "$status" = 1 ]
		# Who had not come to the cluster yet has no name there but its rank.
		is "$label: it is named" grep -qE "error: .*($(echo "$children" | sed -n "${which}p").*$3${early:+|missing: rank $which|process $which, where (it|node $which) lives, (is gone|has (not answered|taken no control message))})" "$work/err"
		# What a network's processes are in then is left by each of them with a line of its own.
		[ -n "$early" ] && [ "$2" != shm ] || is "$label: once" [ "$(grep -c 'error: ' "$work/err")" = 1 ]
		;;
	esac
	is "$label: whole JSON" jq -e '.schema == 1' "$json"
}
words() { # SIGNAL
	case $1$early in
	KILL*) echo '(killed by signal 9|died)' ;;
	STOP) echo 'stopped' ;;
	*) echo '(stopped|no sign of life)' ;;
	esac
}

# Every process of a run with COUNT children, at once.
group() { # FABRIC COUNT NAME JUDGE ARGS...
	fabric=$1 total=$2 what=$3 judge=$4 members=0
	shift 4
	for s in $signals; do
		for w in $(seq "$first" "$total"); do
			[ "$s" = PAUSE ] && [ "$w" != 0 ] && continue
			members=$((members + 1))
			launch $members "$s" "$w" "$total" "$what on $fabric" "$@"
			strike $members
		done
	done
	for i in $(seq $members); do
		settle "$i" "$fabric" "$(eval words \$sig"$i")"
		[ ! -e "$json" ] || $judge
	done
}

# Killed or stopped at the beginning: it has not come to run, or it counts.
judge_early() {
	is "$label: the JSON says it" jq -e '.runs[0].workers_killed == 1 or
		((.runs | length) == 0 and (.skipped[0].why | test("died, was stopped or came too late before")))' "$json"
}
judge_lock() {
	is "$label: one run, the lock is not blamed" jq -e \
		'(.runs | length) == 1 and (.runs[0] | .audit.violations == 0 and .stalled == null)' "$json"
	judge_count
}
judge_txn() {
	is "$label: one run, no verdict against the protocol" jq -e \
		'(.runs | length) == 1 and .runs[0].invariant.holds != false' "$json"
	judge_count
}
# A pause is no failure.  On a network it may be one of single calls, and then of transactions.
judge_count() {
	if [ "$sig" != PAUSE ]; then
		is "$label: the process is counted" jq -e '.runs[0].workers_killed == 1' "$json"
	elif [ "$fabric" = shm ]; then
		is "$label: exit status 0" [ "$status" = 0 ]
	else
		is "$label: exit status 0, or 1 of calls that failed" \
			[ "$status" = 0 -o "$status $(jq '.runs[0].failed > 0' "$json")" = '1 true' ]
	fi
}

judge_fabric() {
	[ "$sig" != PAUSE ] || is "$label: exit status 0, and there are rows" \
		[ "$status $(jq '.runs | length > 0' "$json")" = '0 true' ]
}

lock='lock --lock dslr --procs 3 --clients 6 --lease 200ms --think 5ms --duration 6s --stall-after 20s'
txn='txn --cc silo --workload smallbank --accounts 1k --coroutines 2 --duration 6s'
first=0 skipped=0 early='' pause_s=1
# A run may come to begin all the same.
at_once() { # FABRIC COUNT NAME ARGS...
	early=early first=$2 signals='KILL STOP'
	fabric=$1 total=$2 name=$3
	shift 3
	group "$fabric" "$total" "$name" judge_early "$@"
}

locks() { # FABRIC COUNT OPTION...
	fabric=$1 total=$2
	shift 2
	signals='KILL STOP PAUSE'
	# shellcheck disable=SC2086
	group "$fabric" "$total" 'bench lock' judge_lock $lock --fabric "$fabric" "$@"
	# shellcheck disable=SC2086
	at_once "$fabric" "$total" 'bench lock, at once' $lock --fabric "$fabric" "$@"
}
transactions() { # FABRIC COUNT OPTION...
	fabric=$1 total=$2
	shift 2
	signals='KILL STOP PAUSE'
	# shellcheck disable=SC2086
	group "$fabric" "$total" 'bench txn' judge_txn $txn "$@"
	# shellcheck disable=SC2086
	at_once "$fabric" "$total" 'bench txn, at once' $txn "$@"
}
fabric_shm() {
	# Rivals of pthread come first, then workers of our locks.
	signals=PAUSE
	group shm 2 'bench fabric' judge_fabric fabric --only hot --repeat 1 --span 200ms
	signals='KILL STOP'
	group shm 2 'bench fabric' judge_fabric fabric --only hot --repeat 1 --span 60s
	signals=KILL first=2 skipped=2
	group shm 2 'bench fabric, a lock' judge_fabric fabric --only hot --repeat 1 --span 3s
}
fabric_net() {
	signals=PAUSE
	group $net 2 'bench fabric' judge_fabric fabric --only $net --repeat 3
	signals='KILL STOP'
	group $net 2 'bench fabric' judge_fabric fabric --only $net --repeat 101
}
# A holder is stopped for longer than --stall-after: nobody says that the lock stands still.  Nor does who
# goes on and first needs his connections again.
holder() {
	judge=judge_lock pause_s=4
	launch 1 PAUSE 1 2 'bench lock, a holder' lock --lock cas --procs 3 --clients 4 --locks 1 --read-ratio 0 \
		--hold 20ms --duration 10s --stall-after 3s --fabric $net
	strike 1
	take 1
	wait "$pid"
	status=$?
	json=$work/json1
	is "$label: exit status 0" [ "$status" = 0 ]
	is "$label: nothing stands still" jq -e '.runs[0] | .stalled == null and .audit.violations == 0 and .ops > 0' "$json"
}

if [ "$2" = shm ]; then
	beside locks shm 3
	beside transactions shm 3 --nodes 3
	beside fabric_shm
	joined
	finish
	exit 0
fi

net=$2
why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "'$net'") | .absent // empty')
if [ -n "$why" ]; then
	skip "killed and stopped on $net" "$why"
	finish
	exit 0
fi
beside locks $net 2 --fabric-options bound=50ms
beside transactions $net 2 --procs 3 --fabric $net --fabric-options bound=500ms
beside fabric_net
beside holder
joined
finish
