#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# dump and top, on a bench that runs: what they show, as JSON too, and bad input.
. "$(dirname "$0")/lib.sh"

refused 'dump without a segment' 2 "--segment NAME" dump
refused 'top without a segment' 2 "--segment NAME" top
refused 'dump of a segment that is not there' 2 "no-such start its creator" dump --segment no-such
refused 'visible to nobody' 2 "--visible --segment" bench lock --visible
refused 'a segment for a simulation' 2 "--segment shm" bench lock --fabric sim --segment x --visible

# A client holds its lock for long, the others wait for it: runs until it is interrupted.
segment=verbena-dump-$$
"$verbena" bench lock --lock cas --fabric shm --procs 2 --clients 4 --locks 1 --read-ratio 0 --hold 50ms \
	--duration 60s --segment "$segment" --visible >"$work/bench.out" 2>"$work/bench.err" &
bench=$!
trap 'kill $bench 2>/dev/null; wait $bench 2>/dev/null; rm -rf "$work"' EXIT

# Until all four have been seen in a row: one has it, three wait.
tries=0
until run dump --segment "$segment" --json "$work/dump.json" && [ "$status" = 0 ] &&
	[ "$(jq '.clients == 4 and (.awaited | length) == 3' "$work/dump.json")" = true ]; do
	tries=$((tries + 1))
	[ $tries -lt 200 ] || break
	kill -0 $bench 2>/dev/null || break
done
is 'dump: exit status 0' [ "$status" = 0 ]
is 'dump: three wait for the one lock' jq -e \
	'.schema == 1 and .kind == "dump" and .lock_protocol == "cas" and .cycles == [] and
	(.awaited | length == 3 and all(.lock == 0 and .mode == "exclusive" and .for_us >= 0 and .alive))' \
	"$work/dump.json"
is 'dump: for people' grep -q "lock space 'locks': 1 locks of 'cas'; 4 clients" "$work/out"
is 'dump: who waits' [ "$(grep -c 'awaited exclusive by client [0-3] (node 0' "$work/out")" = 3 ]

run top --segment "$segment" --interval 400ms --times 2
is 'top: exit status 0' [ "$status" = 0 ]
is 'top: two pictures' [ "$(grep -c "^lock space 'locks' of 'cas': 4 clients" "$work/out")" = 2 ]
is 'top: the lock' [ "$(grep -cE '^ +0 +[0-9]+ .*%$' "$work/out")" = 2 ]
run dump --segment "$segment" --space other
is 'another space: exit status' [ "$status" = 2 ]
is 'another space: the reason' grep -q "'other'.*--visible" "$work/err"
is 'another space: those that can be looked at' grep -q "look at one that is: 'locks'" "$work/err"

# Copies of it, each with one field bent.  Offsets as in struct shm_header (src/fabric/shm/inner.h).
copy=verbena-bent-$$
file=/dev/shm/verbena.$copy
trap 'kill $bench 2>/dev/null; wait $bench 2>/dev/null; rm -rf "$work" "$file"' EXIT
le() { # BYTES VALUE: little-endian
	i=0
	while [ $i -lt "$1" ]; do
		printf "\\$(printf %o $(($2 >> (8 * i) & 255)))"
		i=$((i + 1))
	done
}
at() { # OFFSET: the 64-bit number that is there
	od -An -t u8 -j "$1" -N 8 "$file" | tr -d ' '
}
bent() { # FIELD OFFSET BYTES VALUE
	cp "/dev/shm/verbena.$segment" "$file"
	le "$3" "$4" | dd of="$file" bs=1 seek="$2" conv=notrunc 2>/dev/null
	# As if somebody used it: what nobody uses is not even mapped.
	refused_here "dump: $1 = $4" "$1" flock -s "$file" "$verbena" dump --segment $copy
}
refused_here() { # NAME WORD COMMAND...
	name=$1 word=$2
	shift 2
	timeout 60 "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
	is "$name" sh -c '[ "$1" = 2 ] && [ ! -s "$2" ] && [ "$(wc -l <"$3")" = 1 ] && grep -qF "$4" "$3" && [ -e "$5" ]' \
		sh $status "$work/out" "$work/err" "$word" "$file"
}
if command -v flock >/dev/null; then
	bent memory_at 128 8 $((0x7fffffff0000))
	bent nodes 80 4 $((0xffffffff))
	bent nodes 80 4 0
	bent directories_at 96 8 $((1 << 40))
	bent endpoints_at 104 8 $((1 << 40))
	bent rings_at 120 8 $((-(1 << 30)))
	bent slot_bits 92 4 63
	bent endpoints 84 4 $((0xffffffff))
	bent 'another version' 8 4 99
	bent 'regions of node 0' "$(at 96)" 4 $((0xffffffff))
	head -c 5000 "/dev/shm/verbena.$segment" >"$file"
	refused_here 'dump: cut short' "the file's size" flock -s "$file" "$verbena" dump --segment $copy
	head -c 10 "/dev/shm/verbena.$segment" >"$file"
	refused_here 'dump: nearly nothing' 'shorter than a header' flock -s "$file" "$verbena" dump --segment $copy
else
	skip 'dump: bent segments' 'flock (util-linux) is not installed'
fi
echo 'something else' >"$file"
refused_here 'dump: no segment' "$file is no segment" "$verbena" dump --segment $copy
refused_here 'bench: no segment' "$file is no segment" "$verbena" bench lock --lock cas --segment $copy --duration 10ms
rm -f "$file"

refused 'two with one name' 5 "$segment" bench lock --segment "$segment"

kill -INT $bench
wait $bench
is 'the bench ends as interrupted' [ $? = 130 ]

# On a network the root tells, of all nodes, at SIGUSR1.
if ! "$verbena" doctor --need ucx >/dev/null 2>&1; then
	skip 'dump of a network' 'UCX does not work here (verbena doctor)'
	finish
	exit
fi
"$verbena" bench lock --lock mcs --fabric ucx --procs 3 --clients 4 --locks 1 --read-ratio 0 --hold 50ms \
	--fabric-options bound=2s --duration 60s --stall-after 60s --visible >"$work/bench.out" 2>"$work/net.err" </dev/null &
bench=$!
# Not before it catches the signal (bit 9): one that comes earlier kills.
catches() {
	caught=$(awk '/^SigCgt/ {print $2}' /proc/$bench/status)
	[ $((0x${caught:-0} & 0x200)) != 0 ]
}
tries=0
until grep -q 'awaited exclusive by client [0-3] (node [12]' "$work/net.err"; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || break
	kill -0 $bench 2>/dev/null || break
	catches && kill -USR1 $bench
	sleep 0.1
done
is 'network: 4 clients' grep -q "lock space 'locks': 1 locks of 'mcs'; 4 clients" "$work/net.err"
is 'network: who waits, and where' grep -q 'awaited exclusive by client [0-3] (node [12]' "$work/net.err"
kill -INT $bench
wait $bench
is 'network: the run goes on until it is interrupted' [ $? = 130 ]
finish
