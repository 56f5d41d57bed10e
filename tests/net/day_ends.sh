#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A day that is interrupted (scripts/day.sh) says what it has, and leaves its logs and nothing else.
#
# Usage: tests/net/day_ends.sh BUILD
set -u
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/day.sh
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-day-ends.XXXXXX") || exit 1
pid=
trap '[ -z "$pid" ] || kill -KILL -$pid 2>/dev/null; rm -rf "$work"' EXIT

fail() {
	echo "day_ends: $*" >&2
	cat "$work/err" >&2
	exit 1
}

# In a session of its own.  A seed that begins with 0 is no octal number.
setsid "$script" 5 --clients 10 --seed 08 --dir "$work/day" --build "$1" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
tries=0
until grep -q ' s: ' "$work/day/day.log" 2>/dev/null; do
	kill -0 $pid 2>/dev/null || fail 'it has ended by itself'
	tries=$((tries + 1))
	[ $tries -lt 600 ] || fail 'nothing happens in it'
	sleep 0.1
done
# As timeout(1) does it.
kill -TERM $pid
env true # so that the first has arrived
kill -TERM -$pid
wait $pid
status=$?
[ $status = 130 ] || fail "exit status $status, not 130"
grep -q "^day: interrupted at .* with 0 findings: .*clients.*; its logs are in $work/day" "$work/err" || fail 'does not say what it has'
! grep -q 'too great for base' "$work/err" "$work/day/clients.err" || fail 'a seed of 08 is taken for an octal number'
! grep -q FOUND "$work/err" || fail 'its own end is a finding'
# Clients end with the crowd that they are of.
tries=0
while left=$(pgrep -s $pid -l); do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || fail "left behind: $left"
	sleep 0.1
done
[ ! -e "$work/day/key" ] || fail 'the key is left'
if command -v ip >/dev/null; then
	! ip netns list 2>/dev/null | grep -q "^vbd$pid-" || fail 'network namespaces are left'
fi
