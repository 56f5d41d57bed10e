#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# A day in the life of an elastic cluster (doc/elastic.md), by the word of a judge outside of it.
#
# Usage: scripts/day.sh [MINUTES] [OPTION]...		30 minutes
#
#	--clients N       at most so many at a time (200)
#	--dir DIR         logs, kept if anything was found (a new folder in the temporary one)
#	--build DIR       whose programs (build)
#	--seed N          of what clients do, and which link or server is next (1)
#
# Three servers of `verbena serve`, each with a state, have five lock spaces (dslr, shiftlock, table, rpc,
# traditional) with fencing tokens.  Clients are processes that come, take locks for some seconds and go; a fifth is
# killed, more than a tenth stopped for up to 9 s.  Meanwhile links of servers and clients, and between two of them,
# are cut and healed, servers are stopped and go on, and end one after the other, by kill -9 and by SIGTERM in turn,
# now and then two at once, and begin again; the clock of server 2 is fast and that of some clients slow by what NTP
# slews at most, and their calendar jumps.  Every grant is entered in a file outside of
# Verbena (tests/net/day.h): two at a time, a token that goes back, a call that hangs, a lock that cannot be had in
# the end and a count on a server that is less than what its clients know are findings.  In the second half no
# server ends: its descriptors and memory are in the evening as they were at noon, with no client there.
#
# Links are those of network namespaces, which need root; without, none is cut, and the last line says so.
# Exit status 0: nothing was found; 1: something was, or a process failed; 2: bad input; 130: interrupted (what
# there was until then is said, and its logs are kept).
set -u
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1

fail() {
	echo "day: $*" >&2
	exit 2
}

minutes=30 most=200 dir='' build=$top/build seed=1
while [ $# -gt 0 ]; do
	case $1 in
	--clients | --dir | --build | --seed)
		[ -n "${2-}" ] || fail "$1 wants a value"
		;;
	esac
	case $1 in
	--clients)
		[[ $2 =~ ^([1-9][0-9]|[1-4][0-9]{2}|500)$ ]] || fail "--clients is a number from 10 to 500, not '$2'"
		most=$2 && shift
		;;
	--dir) dir=$2 && shift ;;
	--build) build=$(cd "$2" 2>/dev/null && pwd) || fail "there is no folder $2" && shift ;;
	--seed)
		[[ $2 =~ ^[0-9]{1,9}$ ]] || fail "--seed is a number, not '$2'"
		seed=$((10#$2)) && shift
		;;
	--help)
		sed -n '3,/^set -u/s/^# \{0,1\}//p' "$0" | sed '/^set -u/d'
		exit 0
		;;
	-*) fail "there is no option '$1'; --help says which there are" ;;
	*)
		[[ $1 =~ ^([0-9]{1,4}(\.[0-9]*)?|\.[0-9]+)$ ]] || fail "MINUTES is a number, not '$1'"
		minutes=$1
		;;
	esac
	shift
done
verbena=$build/src/verbena day=$build/tests/net/day slew=$build/tests/net/libslew.so
for file in "$verbena" "$day" "$slew"; do
	[ -e "$file" ] || fail "there is no $file: build it with make, or name the folder with --build"
done
span=$(awk -v m="$minutes" 'BEGIN { printf "%d", m * 60 }')
[ "$span" -ge 30 ] || fail "a day of less than half a minute says nothing"
if [ -n "$dir" ]; then
	mkdir -p "$dir" || exit 2
	dir=$(cd "$dir" && pwd)
	[ ! -e "$dir/board" ] || fail "$dir has had a day: name another folder"
else
	dir=$(mktemp -d "${TMPDIR:-/tmp}/verbena-day.XXXXXX") || exit 1
fi

RANDOM=$seed
id=vbd$$
switch=$id-sw
server=() crowd=() findings=0 cuts=0 stops=0 kills=0 terms=0
export VERBENA_LOG=${VERBENA_LOG-warn}

found() {
	findings=$((findings + 1))
	echo "FOUND at $SECONDS s: $*" | tee -a "$dir/day.log" >&2
}
say() {
	echo "$SECONDS s: $*" >>"$dir/day.log"
}

cleanup() {
	# A second signal, as timeout(1) sends it to the whole group, would end this half done.
	trap '' INT TERM HUP
	for pid in "${crowd[@]}" "${server[@]}"; do
		[ -z "$pid" ] || kill -9 "$pid" 2>/dev/null
	done
	wait 2>/dev/null
	[ -n "$no_net" ] || for ns in "$id-1" "$id-2" "$id-3" "$id-4" "$id-5" "$switch"; do
		ip netns del "$ns" 2>/dev/null
	done
	rm -rf "$dir/state1" "$dir/state2" "$dir/state3" "$dir/key"
}

# ---- five machines, as far as the network goes: servers 1 to 3, and clients on two more ----

net_up() {
	ip netns add "$switch" || return
	ip -n "$switch" link set lo up &&
		ip -n "$switch" link add br0 type bridge &&
		ip -n "$switch" link set br0 up || return
	for i in 1 2 3 4 5; do
		ip netns add "$id-$i" &&
			ip -n "$id-$i" link set lo up &&
			ip -n "$switch" link add "p$i" type veth peer name eth0 netns "$id-$i" &&
			ip -n "$switch" link set "p$i" master br0 up &&
			ip -n "$id-$i" addr add "198.51.100.$i/24" dev eth0 &&
			ip -n "$id-$i" link set eth0 up || return
	done
}
no_net=
trap cleanup EXIT
interrupted() {
	trap '' INT TERM HUP
	echo "day: interrupted at $SECONDS s, with $findings findings: $("$day" show "$dir/board" 2>&1 | tail -n 1); its logs are in $dir" >&2
	exit 130
}
trap interrupted INT TERM HUP
if [ "$(id -u)" != 0 ]; then
	no_net='not root'
elif ! command -v ip >/dev/null; then
	no_net='ip is not installed'
elif ! why=$(net_up 2>&1); then
	for ns in "$id-1" "$id-2" "$id-3" "$id-4" "$id-5" "$switch"; do
		ip netns del "$ns" 2>/dev/null
	done
	no_net="no network namespaces: $(tail -n 1 <<<"$why")"
fi
if [ -z "$no_net" ]; then
	servers=198.51.100.1:7531+198.51.100.2:7531+198.51.100.3:7531
	at() { # MACHINE COMMAND...
		exec ip netns exec "$id-$1" "${@:2}"
	}
else
	port=$((9500 + $$ % 150 * 3))
	servers=127.0.0.1:$port+127.0.0.1:$((port + 1))+127.0.0.1:$((port + 2))
	at() {
		exec "${@:2}"
	}
fi

# ---- its processes ----

head -c 32 /dev/urandom >"$dir/key"
chmod 600 "$dir/key"
"$day" try "$dir/try" >/dev/null 2>"$dir/try.err" || {
	found "the judge does not judge: $(tail -n 1 "$dir/try.err")"
	exit 1
}
rm -f "$dir/try" "$dir/try.err"
"$day" make "$dir/board" || exit 1
from=$(awk '{ printf "%d", $1 * 1e9 }' /proc/uptime)
slewed=(env "LD_PRELOAD=$slew" "SLEW_FROM=$from")
mapfile -t spaces < <("$day" spaces)
start() { # SERVER
	# What is freed goes back to the machine: its own memory is then what it uses, not what it once did.
	local how=(at "$1" env MALLOC_ARENA_MAX=1 MALLOC_MMAP_THRESHOLD_=16384 MALLOC_TRIM_THRESHOLD_=65536)
	[ -d "$dir/state$1" ] || mkdir -m 700 "$dir/state$1"
	[ "$1" != 2 ] || how+=("${slewed[@]}" SLEW_PPM=480)
	: >"$dir/server$1.out"
	# settle: longer than two leases (dslr) by a clock that is slow by as much as it may be.
	"${how[@]}" "$verbena" serve --servers "$servers" --as "$1" --key "$dir/key" --state "$dir/state$1" \
		--settle 2100ms --node-bytes 4mi "${spaces[@]}" \
		>>"$dir/server$1.out" 2>>"$dir/server$1.err" </dev/null &
	server[$1]=$!
}
is_ready() { # SERVER
	for ((look = 0; look < 600; look++)); do
		! grep -q '^ready' "$dir/server$1.out" || return 0
		kill -0 "${server[$1]}" 2>/dev/null || break
		sleep 0.1
	done
	found "server $1 does not begin: $(tail -n 1 "$dir/server$1.err")"
	return 1
}
begin_crowd() { # MACHINE MOST FIRST COMMAND-BEFORE...
	at "$1" "${@:4}" "$day" crowd "$dir/board" "$servers" "$dir/key" "$2" "$3" $((seed * 10 + ${#crowd[@]})) \
		>>"$dir/clients.err" 2>&1 </dev/null &
	crowd+=($!)
}

# ---- what happens ----

# A machine's, or what is between two: of ports that are isolated none reaches another, and all reach the rest.
links=(4 1 1-2 5 2 2-4 3 1-3 3-5)
cut() { # NUMBER SECONDS
	local link=${links[$1 % ${#links[@]}]}
	say "link $link is cut for $2 s"
	case $link in
	*-*) between "$link" on && sleep "$2" && between "$link" off ;;
	*) ip -n "$switch" link set "p$link" down && sleep "$2" && ip -n "$switch" link set "p$link" up ;;
	esac || found "link $link cannot be cut and healed"
	cuts=$((cuts + 1))
}
between() { # A-B on|off
	ip -n "$switch" link set "p${1%-*}" type bridge_slave isolated "$2" &&
		ip -n "$switch" link set "p${1#*-}" type bridge_slave isolated "$2"
}
stand_still() { # NUMBER SECONDS
	local i=$(($1 % 3 + 1))
	say "server $i is stopped for $2 s"
	kill -STOP "${server[i]}" && sleep "$2" && kill -CONT "${server[i]}"
	stops=$((stops + 1))
}
# A short one, one that a peer may notice, and one after which a client is gone at a server.
cut_for=(0.3 1.4 0.6 7 2.5)

end_server() { # SERVER SIGNAL
	local i=$1 sig=$2 status
	say "server $i: SIG$sig"
	kill -0 "${server[i]}" 2>/dev/null || found "server $i had ended before: $(tail -n 1 "$dir/server$i.err")"
	kill "-$sig" "${server[i]}" 2>/dev/null
	wait "${server[i]}" 2>/dev/null
	status=$?
	if [ "$sig" = KILL ]; then
		kills=$((kills + 1))
	else
		terms=$((terms + 1))
		[ $status = 0 ] || found "server $i ended with status $status at SIGTERM"
	fi
}
# Each fourth time two at once.
again() { # NUMBER
	local i=$(($1 % 3 + 1)) sig=KILL all
	all=("$i")
	[ $(($1 % 4)) != 3 ] || all=("$i" $((i % 3 + 1)))
	[ $(($1 / 3 % 2)) = 0 ] || sig=TERM
	for i in "${all[@]}"; do
		end_server "$i" $sig
	done
	for i in "${all[@]}"; do
		start "$i"
	done
	for i in "${all[@]}"; do
		is_ready "$i" || exit 1
	done
}

# Until SECONDS is $1; with restarts if $2.
happen() {
	local n=0 c=0 r=0 s=0
	while [ $SECONDS -lt "$1" ]; do
		sleep "$((RANDOM % 3)).$((RANDOM % 10))"
		case $((n % 5)) in
		0 | 2) [ -z "$2" ] || again $((r++)) ;;
		1 | 3) [ -n "$no_net" ] || cut $cuts "${cut_for[c++ % ${#cut_for[@]}]}" ;;
		4) stand_still $s "${cut_for[s++ % ${#cut_for[@]}]}" ;;
		esac
		n=$((n + 1))
		alive
	done
}

alive() {
	local i
	for i in 1 2 3; do
		kill -0 "${server[i]}" 2>/dev/null || {
			found "server $i has ended: $(tail -n 1 "$dir/server$i.err")"
			start "$i"
			is_ready "$i" || exit 1
		}
	done
	for i in "${!crowd[@]}"; do
		kill -0 "${crowd[i]}" 2>/dev/null || {
			found "crowd $i has ended"
			exit 1
		}
	done
}

descriptors() { # SERVER
	find "/proc/${server[$1]}/fd" -mindepth 1 2>/dev/null | wc -l
}
memory() { # SERVER: KB that are its own, so not its state's
	awk '$1 == "RssAnon:" { print $2 }' "/proc/${server[$1]}/status"
}
noon_fds=() noon_kb=() evening_fds=() evening_kb=()
# Nobody is there, and places of those who were lost have been given back.
look_at_rest() { # INTO
	local -n fds=$1_fds kb=$1_kb
	"$day" tell "$dir/board" rest
	for ((look = 0; look < 900; look++)); do
		pgrep -P "$(echo "${crowd[*]}" | tr ' ' ',')" >/dev/null || break
		sleep 0.1
	done
	[ $look -lt 900 ] || found "clients do not leave: $(pgrep -P "$(echo "${crowd[*]}" | tr ' ' ',')" | wc -l) are left"
	sleep 9
	for i in 1 2 3; do
		fds[i]=$(descriptors $i) kb[i]=$(memory $i)
	done
	say "at rest: descriptors ${fds[*]}, KB ${kb[*]}"
}

# ---- the day ----

SECONDS=0
for i in 1 2 3; do
	start $i
done
for i in 1 2 3; do
	is_ready $i || exit 1
done
part=$((most * 9 / 20))
begin_crowd 4 $part 0
begin_crowd 5 $part $part
begin_crowd 4 $((most - 2 * part)) $((2 * part)) "${slewed[@]}" SLEW_PPM=-480
happen $((span * 5 / 10)) restarts
# The crowd is there in full once more, so that noon has seen as many at a time as the evening will.
happen $((span * 7 / 10)) ''
look_at_rest noon
"$day" tell "$dir/board" work
happen $((span > SECONDS + 30 ? span - 20 : SECONDS + 10)) ''
look_at_rest evening
for i in 1 2 3; do
	[ "${evening_fds[i]}" -le "${noon_fds[i]}" ] ||
		found "server $i has ${evening_fds[i]} descriptors in the evening, and had ${noon_fds[i]} at noon"
	# Pieces that a crowd leaves behind, and buffers of messages, as many as there once were at a time: half of what
	# a client costs while it is there.
	[ "${evening_kb[i]}" -le $((noon_kb[i] + 1024 + most * 20)) ] ||
		found "server $i has ${evening_kb[i]} KB of its own in the evening, and had ${noon_kb[i]} at noon"
done
at 4 "$day" end "$dir/board" "$servers" "$dir/key" >>"$dir/clients.err" 2>&1 &
wait $! || found "the end of the day failed"
"$day" tell "$dir/board" over
for pid in "${crowd[@]}"; do
	wait "$pid" || found "a crowd ended with status $?"
done
crowd=()
for i in 1 2 3; do
	kill -TERM "${server[i]}"
	wait "${server[i]}" || found "server $i ended with status $? in the evening"
	server[i]=
done
summary=$("$day" show "$dir/board") || findings=$((findings + 1))
echo "a day of $SECONDS s: $summary; $kills servers killed and $terms ended, all begun again, $stops stopped; $cuts links cut${no_net:+ ($no_net)}; descriptors ${noon_fds[*]} at noon, ${evening_fds[*]} in the evening; KB ${noon_kb[*]}, ${evening_kb[*]}" |
	tee -a "$dir/day.log"
if [ $findings != 0 ]; then
	grep -h '^FOUND' "$dir/clients.err" | sort | uniq | head -n 20
	echo "what was found is in $dir"
	exit 1
fi
rm -rf "$dir"
