#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: bench/peers/run.sh [BUILD]
#
# Our locks, a Redis lock and etcd's lock under the same load on this machine, in turns; README.md
# beside this file says what is compared.  Starts redis-server and etcd on free ports of the loopback
# with temporary directories (under TMPDIR), and stops them.  Writes BUILD/peers.json, prints the table.
#
#	PEERS_JSON=FILE    instead of BUILD/peers.json
#	PEERS_ROUNDS=5     rounds; what is shown is the median
#	PEERS_SPAN=1s      measured span of each run
#	PEERS_TRIAL=400ms  the same of the trials that choose the peers' settings
#	PEERS_CLIENTS='1 8 32'
#	PEERS_LOCKS='dslr shiftlock cas-backoff mcs rpc'
#	PEERS_FABRIC=tcp   of our locks
#	PEERS_OPTIONS=     of that fabric
#	PEERS_BUSY=0       processes that compute beside it all, from the trials on
#	PEERS_BACKOFFS='0 200us 1ms 5ms 20ms'   longest delays of Redis' retries that are tried
set -u
cd "$(dirname "$0")/../.." || exit 1
build=${1-build}
rounds=${PEERS_ROUNDS-5} span=${PEERS_SPAN-1s} trial=${PEERS_TRIAL-400ms}
clients=${PEERS_CLIENTS-1 8 32} locks=${PEERS_LOCKS-dslr shiftlock cas-backoff mcs rpc}
fabric=${PEERS_FABRIC-tcp} options=${PEERS_OPTIONS-} busy=${PEERS_BUSY-0} backoffs=${PEERS_BACKOFFS-0 200us 1ms 5ms 20ms}
result=${PEERS_JSON-$build/peers.json}
peers=$build/bench/peers/peers verbena=$build/src/verbena

for tool in "$peers" "$verbena"; do
	[ -x "$tool" ] || { echo "peers: there is no $tool; build first: scripts/build.sh $build" >&2; exit 2; }
done
case $busy in
'' | *[!0-9]*) echo "peers: PEERS_BUSY=$busy: a number of processes, such as 1" >&2; exit 2 ;;
esac
command -v jq >/dev/null || { echo 'peers: jq is missing: apt-get install jq' >&2; exit 2; }

work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-peers.XXXXXX") || exit 1
memory=$work/memory # where nothing waits for a disk, if there is such a place
[ ! -w /dev/shm ] || memory=$(mktemp -d /dev/shm/verbena-peers.XXXXXX)
servers=()
stop() {
	[ ${#servers[@]} = 0 ] || kill "${servers[@]}" 2>/dev/null
	wait
	rm -rf "$work" "$memory"
}
trap stop EXIT
trap 'exit 130' INT TERM
failed=0
touch "$work/rows" "$work/skipped"

fail() {
	echo "peers: $*" >&2
	failed=1
}

# ---- servers ----

skip() { # PEER WHY
	echo "$1: skipped: $2"
	jq -cn --arg peer "$1" --arg why "$2" '{peer: $peer, reason: $why}' >>"$work/skipped"
}

# A free port may be taken by another before the server has it, so there are a few attempts.
# Sets $port and $pid; the server is answering then.
start() { # NAME PEER COMMAND...
	local name=$1 peer=$2 attempt second
	shift 2
	for attempt in 1 2 3; do
		port=$("$peers" --free-port) && second=$("$peers" --free-port) || return 1
		mkdir -p "$work/$name.$attempt" "$memory/$name.$attempt"
		attempt=$attempt "$@" >"$work/$name.log" 2>&1 &
		pid=$!
		if "$peers" --peer "$peer" --port "$port" --clients 1 --duration 10ms --warmup 0 \
			>"$work/trial" 2>&1; then
			servers+=("$pid")
			return 0
		fi
		kill "$pid" 2>/dev/null
		wait "$pid" 2>/dev/null
		grep -q 'built without' "$work/trial" && break
	done
	skip "$name" "$(head -n 1 "$work/trial")"
	return 1
}

run_redis() {
	exec redis-server --port "$port" --bind 127.0.0.1 --save '' --appendonly no \
		--dir "$work/redis.$attempt"
}

run_etcd() { # DIRECTORY OPTION...
	local dir=$1
	shift
	exec etcd --name peers --data-dir "$dir/data" --logger zap --log-level error \
		--listen-client-urls "http://127.0.0.1:$port" \
		--advertise-client-urls "http://127.0.0.1:$port" \
		--listen-peer-urls "http://127.0.0.1:$second" \
		--initial-advertise-peer-urls "http://127.0.0.1:$second" \
		--initial-cluster "peers=http://127.0.0.1:$second" "$@"
}
run_etcd_disk() { run_etcd "$work/etcd.$attempt"; }
run_etcd_memory() { run_etcd "$memory/etcd-nosync.$attempt" --unsafe-no-fsync; }

redis='' etcd='' nosync=''
if ! command -v redis-server >/dev/null; then
	skip redis 'redis-server is not installed: apt-get install redis-server'
elif start redis redis run_redis; then
	redis=$port redis_pid=$pid
fi
if ! command -v etcd >/dev/null; then
	skip etcd 'etcd is not installed: apt-get install etcd-server'
else
	start etcd etcd run_etcd_disk && etcd=$port
	start etcd-nosync etcd run_etcd_memory && nosync=$port
fi

# ---- one run ----

# Where Redis and its clients run.  On one core each wakes the other without an interrupt, on two they
# work at once: which is better depends on the number of clients, and the scheduler does not know.
cores=$(taskset -cp $$ 2>/dev/null | sed 's/.*: *//')
first=${cores%%[,-]*} last=${cores##*[,-]}
if [ -z "$cores" ]; then
	places='free'
elif [ "$first" = "$last" ]; then
	places='same'
else
	places='same apart'
fi

place() { # free|same|apart COMMAND...: Redis, and the command
	local where=$1
	shift
	if [ "$where" = free ]; then
		"$@"
	else
		taskset -acp "$first" "$redis_pid" >/dev/null
		taskset -c "$([ "$where" = same ] && echo "$first" || echo "$last")" "$@"
	fi
}

load() { # CLIENTS LOCKS SPAN
	printf '%s ' --clients "$1" --locks "$2" --dist uniform --duration "$3" --warmup \
		"$([ "$3" = "$span" ] && echo 200ms || echo 50ms)"
}

# A result as rows: the fields that result.jq reads.
keep() { # FILE ROUND NAME SETTING
	[ -f "$work/head" ] || jq 'del(.runs, .argv, .seed)' "$1" >"$work/head"
	jq -c --arg round "$2" --arg name "$3" --arg setting "$4" '.runs[] | .latency_us.acquire_exclusive as $l |
		{round: $round, clients, locks, lock: (if $name == "" then .lock else $name end), setting: $setting,
		 ops_s: .goodput_ops_s, p50_us: $l.p50, p99_us: $l.p99, p999_us: $l."p99.9",
		 longest_us: ([$l.max, .unfinished_max_us // 0] | max), tries: (.tries_per_op // null),
		 violations: (.violations // .audit.violations // 0), lost: (.lost // 0)}' "$1"
}

peer() { # ROUND NAME PORT PEER CLIENTS LOCKS SPAN SETTING: appends to $work/rows
	[ -n "$3" ] || return 0
	# shellcheck disable=SC2046,SC2086
	if place "${8%% *}" "$peers" --peer "$4" --port "$3" $(load "$5" "$6" "$7") ${8#* } --json "$work/run.json" \
		>"$work/out" 2>&1; then
		keep "$work/run.json" "$1" "$2" "$8" >>"$work/rows"
	else
		fail "$2 with $5 clients: $(tail -n 1 "$work/out")"
	fi
}

ours() { # ROUND CLIENTS LOCKS
	# shellcheck disable=SC2046
	if "$verbena" bench lock --lock "${locks// /,}" --fabric "$fabric" --procs 2 \
		$(load "$2" "$3" "$span") --read-ratio 0 ${options:+--fabric-options "$options"} --json "$work/run.json" \
		>"$work/out" 2>&1; then
		keep "$work/run.json" "$1" '' "$fabric" >>"$work/rows"
	else
		fail "verbena with $2 clients: $(tail -n 1 "$work/out")"
	fi
}

# The N settings of a peer that gave it the most cycles in a case.
best() { # N NAME CLIENTS LOCKS
	jq -rs --argjson n "$1" --arg name "$2" --argjson clients "$3" --argjson locks "$4" \
		'map(select(.round == "trial" and .lock == $name and .clients == $clients and .locks == $locks)) |
		sort_by(-.ops_s)[:$n][].setting' "$work/rows"
}

# ---- other work ----

for _ in $(seq "$busy"); do
	(while :; do :; done) &
	servers+=("$!")
done

# ---- trials: each peer shows the settings that suit it ----

echo "mutual exclusion: 8 clients hold one lock for 200us each"
for one in "redis $redis redis" "etcd $etcd etcd"; do
	read -r name port kind <<<"$one"
	[ -n "$kind" ] || continue
	peer check "$name" "$port" "$kind" 8 1 "$trial" 'free --hold 200us'
done
declare -A setting
for n in $clients; do
	for l in 1 100000; do
		echo "trials: $n clients, $l locks"
		for drive in loop spin threads; do
			for at in $places; do
				# Who spins leaves nothing of its core to the server.
				[ "$drive$at" != spinsame ] || continue
				for backoff in $([ "$l" = 1 ] && [ "$n" -gt 1 ] && echo "$backoffs" || echo 200us); do
					peer trial redis "$redis" redis "$n" "$l" "$trial" \
						"$at --drive $drive --backoff $backoff"
				done
			done
			for wire in json grpc; do
				peer trial etcd "${nosync:-$etcd}" etcd "$n" "$l" "$trial" \
					"free --drive $drive --wire $wire"
			done
		done
		# Redis' settings differ much, and a short trial may be misled: two go on.
		setting[redis.$n.$l]=$(best 2 redis "$n" "$l")
		setting[etcd.$n.$l]=$(best 1 etcd "$n" "$l")
	done
done

# ---- rounds ----

theirs() { # ROUND CLIENTS LOCKS
	local one
	while read -r one; do
		[ -z "$one" ] || peer "$1" redis "$redis" redis "$2" "$3" "$span" "$one"
	done <<<"${setting[redis.$2.$3]}"
	peer "$1" etcd "$etcd" etcd "$2" "$3" "$span" "${setting[etcd.$2.$3]}"
	peer "$1" etcd-nosync "$nosync" etcd "$2" "$3" "$span" "${setting[etcd.$2.$3]}"
	if [ "$3" != 1 ]; then
		peer "$1" etcd-json "$etcd" etcd "$2" "$3" "$span" 'free --wire json'
		peer "$1" etcd-put "$etcd" etcd-put "$2" "$3" "$span" 'free --wire json'
	fi
}

for round in $(seq "$rounds"); do
	for n in $clients; do
		for l in 1 100000; do
			echo "round $round of $rounds: $n clients, $l locks"
			# Whoever comes first has the machine as the last one left it.
			[ $((round % 2)) = 1 ] || theirs "$round" "$n" "$l"
			ours "$round" "$n" "$l"
			[ $((round % 2)) = 0 ] || theirs "$round" "$n" "$l"
		done
	done
done

[ -f "$work/head" ] || { echo 'peers: nothing could be measured' >&2; exit 1; }
jq -s -f bench/peers/result.jq --slurpfile skipped "$work/skipped" --slurpfile head "$work/head" \
	--arg span "$span" --arg fabric "$fabric" --argjson busy "$busy" --arg disk "$(stat -f -c %T "$work")" \
	--arg redis "$(redis-server --version 2>/dev/null | sed 's/ sha=.*//')" \
	--arg etcd "$(etcd --version 2>/dev/null | head -n 1)" "$work/rows" >"$work/peers.json" &&
	cp "$work/peers.json" "$result" || exit 1
echo
jq -r -f bench/peers/table.jq "$result"
echo
echo "The same as JSON: $result"
[ "$(jq '.violations' "$result")" = 0 ] || exit 3
exit $failed
