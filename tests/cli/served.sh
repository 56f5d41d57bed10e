#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmarks as clients of servers that run: verbs to each of them.  That of locks is in serve.sh.
. "$(dirname "$0")/lib.sh"

key=$work/key
head -c 32 /dev/urandom >"$key"
chmod 600 "$key"
at=127.0.0.1
# Below those that the kernel gives away, and those of serve.sh.
port=$((8000 + $$ % 400 * 2))
servers=$at:$port+$at:$((port + 1))

pids=
trap 'kill -9 $pids 2>/dev/null; rm -rf "$work"' EXIT
start() { # NUMBER OPTIONS...: a server, in the background
	who=$1
	shift
	"$verbena" serve --servers "$servers" --as "$who" --key "$key" --settle 400ms "$@" >"$work/$who.out" \
		2>"$work/$who.err" </dev/null &
	pid=$!
	pids="$pids $pid"
}
ready() { # NUMBER
	grep -q '^ready: ' "$work/$1.out"
}
end() { # PID: and its status is 0
	kill -TERM "$1"
	wait "$1"
	is 'a server ends' [ $? = 0 ]
}

# ---- verbs ----

refused 'a key, and no servers' 2 '--key --servers' bench fabric --key "$key"
refused 'servers, and no key' 2 '--key' bench fabric --servers "$servers"
refused 'no server' 2 'no server' bench fabric --servers /dev/null --key "$key"
refused 'servers, and a section' 2 '--only --servers' bench fabric --servers "$servers" --key "$key" --only tcp
start 1
one=$pid
start 2
two=$pid
until_true 'a server is ready' ready 1
until_true 'and the other one' ready 2
run bench fabric --servers "$servers" --key "$key" --repeat 1 --json "$work/run.json"
is 'verbs to servers that run' [ $status = 0 ]
is 'to the first' grep -q 'server 1: READ, 8 bytes' "$work/out"
is 'and to the last' grep -q "server 2: lock 'cas', a cycle" "$work/out"
is 'and to no other' sh -c "! grep -q 'server 3' '$work/out'"
if command -v jq >/dev/null; then
	json=$work/run.json
	is_json 'as JSON' '.interrupted == false and (.runs | length == 14 and
		all(.section == "servers" and .value > 0)) and
		any(.runs[]; .name == "server 2: WRITE, 64 bytes" and .baseline == "READ, 8 bytes" and .ratio > 0)'
else
	skip 'as JSON' 'jq is not installed'
fi
refused 'it leaves nothing there' 2 'none' bench lock --servers "$servers" --key "$key" --space a:lock=cas
"$verbena" bench fabric --servers "$servers" --key "$key" --repeat 101 \
	--json "$work/cut.json" >"$work/out" 2>"$work/err" </dev/null &
bench=$!
pids="$pids $bench"
until_true 'it works' has_worked $bench 15
kill -INT $bench
wait $bench
is 'Ctrl-C ends it' [ $? = 130 ]
is 'and leaves what was measured' grep -q 'READ, 8 bytes' "$work/out"
is 'also as JSON' grep -q '"interrupted": true' "$work/cut.json"
end $one
end $two
finish
