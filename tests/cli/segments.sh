#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Named segments: busy, stale, and gone afterwards.
. "$(dirname "$0")/lib.sh"

if ! [ -d /dev/shm ] || ! [ -w /dev/shm ]; then
	skip 'segments' '/dev/shm cannot be written'
	finish
	exit 0
fi
segment=verbena-cli-$$
quick="--procs 1 --clients 1 --locks 10 --duration 30ms"

# shellcheck disable=SC2086
run bench lock --lock cas --segment $segment $quick
is 'a named segment: runs' [ "$status" = 0 ]
is 'a named segment: gone afterwards' [ "$(ls /dev/shm | grep -c "$segment")" = 0 ]

# A second run while the first is at it.
"$verbena" bench lock --lock cas --segment $segment --procs 1 --clients 1 --locks 10 --duration 60s \
	>"$work/first" 2>&1 </dev/null &
first=$!
tries=0
while [ "$(ls /dev/shm | grep -c "$segment")" = 0 ] && [ $tries -lt 600 ]; do
	sleep 0.1
	tries=$((tries + 1))
done
# shellcheck disable=SC2086
run bench lock --lock cas --segment $segment $quick
is 'a busy segment: exit status 5' [ "$status" = 5 ]
is 'a busy segment: one line' [ "$(wc -l <"$work/err")" = 1 ]
is 'a busy segment: names it' grep -q "$segment" "$work/err"
is 'a busy segment: and its owner' grep -qE "process [0-9]+|pid [0-9]+" "$work/err"

# The first one crashes with everything it has started.
kill -9 $first
wait $first 2>/dev/null
is 'a crashed run leaves a stale segment' [ "$(ls /dev/shm | grep -c "$segment")" = 1 ]
run doctor
is 'doctor sees the stale segment' grep -q 'left from a crashed run' "$work/out"
tries=0
status=5
while [ $status = 5 ] && [ $tries -lt 100 ]; do
	# The workers of the crashed run die with it, but perhaps not before us.
	# shellcheck disable=SC2086
	run bench lock --lock cas --segment $segment $quick
	[ $status = 5 ] && sleep 0.1
	tries=$((tries + 1))
done
is 'a stale segment: is taken over' [ "$status" = 0 ]
is 'a stale segment: with a notice' grep -q 'left over from a run that crashed' "$work/err"
is 'a stale segment: gone afterwards' [ "$(ls /dev/shm | grep -c "$segment")" = 0 ]
finish
