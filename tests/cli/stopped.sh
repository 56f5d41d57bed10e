#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A process of bench lock or bench txn that is killed, or stopped and not let go on: on every fabric the run
# ends by itself, names it, leaves whole JSON, says with its exit status that it failed, and does not blame
# the lock.  (bench fabric: output.sh.)
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'killed and stopped' 'jq is not installed'
	finish
	exit 0
fi
json=$work/run.json
fabrics=shm
why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "ucx") | .absent // empty')
[ -n "$why" ] || fabrics='shm ucx'
[ -z "$why" ] || skip 'killed and stopped on ucx' "$why"

began() { # it has used a tenth of a second of processor time
	[ "$(awk '{ print $14 + $15 }' "/proc/$victim/stat" 2>/dev/null || echo 0)" -ge 10 ]
}
over() {
	[ "$(awk '{ print $3 }' "/proc/$pid/stat" 2>/dev/null)" = Z ] || ! kill -0 $pid 2>/dev/null
}
children() {
	[ "$(pgrep -c -P $pid)" -ge 2 ]
}

one() { # SIGNAL WHICH NAME ARGS...: n the newest child, o the oldest
	sig=$1 which=$2 label="$3, $1 of the $([ "$2" = n ] && echo last || echo first) child"
	shift 3
	rm -f "$json"
	"$verbena" bench "$@" --json "$json" >"$work/out" 2>"$work/err" </dev/null &
	pid=$!
	until_true "$label: it forks" children
	victim=$(pgrep "-$which" -P $pid)
	until_true "$label: it measures" began
	kill "-$sig" "$victim"
	until_true "$label: the run ends" over
	over || kill -9 $pid
	wait $pid
	status=$?
	is "$label: exit status 1" [ "$status" = 1 ]
	is "$label: whole JSON" jq -e '.schema == 1 and (.runs | length) == 1' "$json"
	is "$label: the process is counted" jq -e '.runs[0].workers_killed >= 1' "$json"
	[ "$sig" = KILL ] || is "$label: it is named" grep -qE "stopped" "$work/err"
	is "$label: nobody is left" [ -z "$(pgrep -P $pid)" ]
}

no_blame='.runs[0] | .audit.violations == 0 and .stalled == null'
for fabric in $fabrics; do
	common="--fabric $fabric --procs 3 --clients 6 --duration 5s --lock dslr --lease 200ms"
	txn="--cc silo --workload smallbank --accounts 1k --duration 5s --nodes 3 --coroutines 2"
	[ "$fabric" = shm ] || common="$common --fabric-options bound=50ms"
	[ "$fabric" = shm ] || txn="--cc silo --workload smallbank --accounts 1k --duration 5s --procs 3 --fabric ucx --fabric-options bound=500ms"
	for sig in KILL STOP; do
		# shellcheck disable=SC2086
		one $sig n "bench lock on $fabric" lock $common
		is "bench lock on $fabric, $sig: the lock is not blamed" jq -e "$no_blame" "$json"
		# shellcheck disable=SC2086
		one $sig n "bench txn on $fabric" txn $txn
		is "bench txn on $fabric, $sig: no verdict against the protocol" jq -e \
			'.runs[0] | .invariant.holds != false' "$json"
	done
done
finish
