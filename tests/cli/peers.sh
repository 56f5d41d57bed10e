#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The programs of bench/peers against real servers, where these are installed: cycles complete, nobody
# holds a lock together with another, and the check of that would notice.
peers=$1
shift
. "$(dirname "$0")/lib.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
server=
stop() {
	[ -z "$server" ] || kill "$server" 2>/dev/null
	wait
	server=
} 2>/dev/null
trap 'stop; rm -rf "$work"' EXIT
json=$work/run.json

drive() { # ARGS...: like lib.sh's run, for peers
	timeout 60 "$peers" --port "$port" --json "$json" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

good() {
	jq -e '.runs[0] | .ops > 0 and .goodput_ops_s > 0 and .violations == 0 and .lost == 0 and
		.latency_us.acquire_exclusive.count > 0 and
		(.latency_us.acquire_exclusive | .p50 <= .p99 and .p99 <= .max)' "$json" >/dev/null
}

works() { # NAME ARGS...
	what=$1
	shift
	rm -f "$json"
	drive "$@"
	is "$what: exit status 0" [ "$status" = 0 ]
	is "$what: cycles, one holder at a time" good
}

# What the peer needs, or why it cannot be.
missing() { # PEER PROGRAM PACKAGE
	if ! command -v jq >/dev/null; then
		echo 'jq is not installed'
	elif ! command -v "$2" >/dev/null; then
		echo "$2 is not installed (package $3)"
	else
		"$peers" --peer "$1" --port 1 --connect 1ms 2>&1 | sed -n 's/.*\(built without.*\)/\1/p'
	fi
}

# The port is free now, but not reserved: a few attempts.  The server answers when this is done.
start() { # PEER FUNCTION
	for attempt in 1 2 3; do
		port=$("$peers" --free-port)
		second=$("$peers" --free-port)
		mkdir -p "$work/$1.$attempt"
		"$2" >"$work/log" 2>&1 &
		server=$!
		drive --peer "$1" --clients 1 --duration 10ms --warmup 0 --connect 20s
		[ "$status" != 0 ] || return 0
		stop
	done
	return 1
}

redis() {
	exec redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no \
		--dir "$work/redis.$attempt"
}

etcd_() {
	exec etcd --name test --data-dir "$work/etcd.$attempt/data" --logger zap --log-level error \
		--unsafe-no-fsync --listen-client-urls "http://127.0.0.1:$port" \
		--advertise-client-urls "http://127.0.0.1:$port" \
		--listen-peer-urls "http://127.0.0.1:$second" \
		--initial-advertise-peer-urls "http://127.0.0.1:$second" \
		--initial-cluster "test=http://127.0.0.1:$second"
}

short='--duration 150ms --warmup 20ms'
why=$(missing redis redis-server redis-server)
if [ -n "$why" ]; then
	skip 'a Redis lock' "$why"
elif ! start redis redis; then
	not_ok 'redis-server starts' "$(cat "$work/log" "$work/err")"
else
	# shellcheck disable=SC2086
	for how in loop spin threads; do
		works "redis, $how: many locks" --peer redis --drive $how --clients 4 --locks 1k $short
		works "redis, $how: one lock, held" --peer redis --drive $how --clients 4 --locks 1 \
			--hold 100us --backoff 500us $short
	done
	# shellcheck disable=SC2086
	works 'redis: retries at once' --peer redis --clients 4 --locks 1 --hold 100us $short
	is 'redis: retries are counted' jq -e '.runs[0].tries_per_op > 1' "$json"
	# A grant that ends long before its holder does: others get in, and it is seen.
	for how in loop threads; do
		# shellcheck disable=SC2086
		drive --peer redis --drive $how --clients 4 --locks 1 --lease 2ms --hold 20ms $short
		is "redis, $how: a lease too short is caught: exit status 3" [ "$status" = 3 ]
		is "redis, $how: a lease too short is counted" jq -e \
			'.runs[0] | .violations > 0 and .lost > 0' "$json"
	done
	stop
	drive --peer redis --connect 50ms
	is 'redis: no server: exit status 1' [ "$status" = 1 ]
	is 'redis: no server: is said' grep -q "no answer from redis at 127.0.0.1:$port" "$work/err"
fi

why=$(missing etcd etcd etcd-server)
if [ -n "$why" ]; then
	skip "etcd's lock" "$why"
elif ! start etcd etcd_; then
	not_ok 'etcd starts' "$(cat "$work/log" "$work/err")"
else
	# shellcheck disable=SC2086
	for wire in json grpc; do
		for how in loop threads; do
			works "etcd, $wire, $how: many locks" --peer etcd --wire $wire --drive $how \
				--clients 4 --locks 1k $short
		done
		works "etcd, $wire: one lock, held" --peer etcd --wire $wire --clients 3 --locks 1 \
			--hold 1ms --duration 1s --warmup 20ms
		works "etcd, $wire: Put" --peer etcd-put --wire $wire --clients 4 --locks 1k $short
	done
	stop
fi

# The whole script, as short as can be, with whichever of the servers there are.
if ! command -v jq >/dev/null || ! command -v bash >/dev/null; then
	skip 'run.sh' 'jq or bash is not installed'
else
	json=$work/peers.json
	PEERS_BUSY=many timeout 20 "$top/bench/peers/run.sh" "$(cd "$(dirname "$peers")/../.." && pwd)" \
		>"$work/out" 2>"$work/err" </dev/null
	is 'run.sh: PEERS_BUSY is a number' [ $? = 2 ]
	PEERS_BUSY=1 PEERS_ROUNDS=1 PEERS_SPAN=400ms PEERS_TRIAL=30ms PEERS_CLIENTS=2 PEERS_BACKOFFS='0 200us' \
		PEERS_FABRIC=shm PEERS_OPTIONS= PEERS_LOCKS='dslr mcs' PEERS_JSON=$json TMPDIR=$work \
		timeout 200 "$top/bench/peers/run.sh" "$(cd "$(dirname "$peers")/../.." && pwd)" \
		>"$work/out" 2>"$work/err" </dev/null
	status=$?
	is 'run.sh: exit status 0' [ "$status" = 0 ]
	is 'run.sh: two cases with our locks in each' jq -e '.rounds == 1 and (.cases | length == 2 and
		all(.rows | map(.lock) | contains(["dslr", "mcs"])))' "$json"
	is 'run.sh: a peer has its numbers, or is skipped by name' jq -e '[.skipped[].peer] as $skipped |
		["redis", "etcd"] | all(. as $peer | ($skipped | index($peer)) or
		any($all.cases[].rows[]; .lock == $peer and .ops_s > 0 and .p99_us > 0))' \
		--argjson all "$(cat "$json")" "$json"
	is 'run.sh: ratios where both were measured' jq -e '[.cases[] | (.rows | map(.lock)) as $there |
		.rows[] | select(.against != null) | .against as $a |
		["redis", "etcd"][] | select(. as $p | $there | index($p)) | $a[.].throughput] |
		all(. > 0)' "$json"
	is 'run.sh: the table' grep -q '^2 clients, one hot lock' "$work/out"
	is 'run.sh: other work is told' grep -q 'cores, 1 other process computes all the time' "$work/out"
	is 'run.sh: nothing is left behind' [ -z "$(ls "$work" | grep verbena-peers)" ]
fi

finish
