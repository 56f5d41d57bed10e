#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# usage: netns.sh VERBENA tcp|ucx
#
# A cluster of three machines, as far as the network goes: three network namespaces on one bridge, one
# process of `verbena bench lock` in each, on that fabric, with every lock (on ucx, which has the same engine
# above it, one of each kind), and a link that is taken down for a while and restored, again and again while
# they run.  The audit stays clean, the run ends with
# results, and whoever was cut off has recovered.  Needs root; all that it makes lies in namespaces of
# its own.
. "$(dirname "$0")/../cli/lib.sh"
trap cleanup EXIT

id=vb$$
switch=$id-sw
port=7531
cut=2 # the namespace whose link is cut
fabric=$2
if [ "$fabric" = tcp ]; then
	names=all locks=$("$verbena" list --json 2>/dev/null | jq -r '.locks | length' 2>/dev/null)
else
	names=cas,dslr,mcs,shiftlock,traditional,table locks=6
fi
# Opening, the runs, and for each a few cuts' worth of waiting; many times over for a slow machine.
patience=$((120 + ${locks:-0} * 30))

cleanup() {
	for i in 1 2 3; do
		[ -z "${pids[i]-}" ] || kill -9 "${pids[i]}" 2>/dev/null
	done
	for ns in $id-1 $id-2 $id-3 $switch; do
		ip netns del "$ns" 2>/dev/null
	done
	rm -rf "$work"
}

give_up() { # WHY
	skip "three network namespaces, $fabric" "$1"
	finish
	exit 0
}

command -v jq >/dev/null || give_up 'jq is not installed'
[ "$(id -u)" = 0 ] || give_up 'needs root (network namespaces)'
command -v ip >/dev/null || give_up 'ip is not installed (package iproute2)'
reason=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "'$fabric'") | .absent // empty')
[ -z "$reason" ] || give_up "$fabric: $reason"

# The bridge has a namespace of its own, so that nothing of this machine's network is touched.
net_up() {
	ip netns add $switch || return
	ip -n $switch link set lo up &&
		ip -n $switch link add br0 type bridge &&
		ip -n $switch link set br0 up || return
	for i in 1 2 3; do
		ip netns add "$id-$i" &&
			ip -n "$id-$i" link set lo up &&
			ip -n $switch link add "p$i" type veth peer name eth0 netns "$id-$i" &&
			ip -n $switch link set "p$i" master br0 up &&
			ip -n "$id-$i" addr add "198.51.100.$i/24" dev eth0 &&
			ip -n "$id-$i" link set eth0 up || return
	done
}
why=$(net_up 2>&1) || give_up "no network namespace, veth or bridge: $why"

head -c 48 /dev/urandom >"$work/key"
chmod 600 "$work/key"

start() { # I
	timeout -k 5 $patience ip netns exec "$id-$1" "$verbena" bench lock --lock $names --fabric $fabric \
		--procs 3 --join 198.51.100.1:$port --bind "198.51.100.$1" --auth-key-file "$work/key" \
		--clients 6 --locks 1k --duration 4s --lease 300ms --stall-after 3s \
		--fabric-options bound=100ms --json "$work/$1.json" \
		>"$work/$1.out" 2>"$work/$1.err" </dev/null &
	pids[$1]=$!
}

traffic() { # bytes that have come out of namespace $cut
	ip netns exec "$id-$cut" cat /sys/class/net/eth0/statistics/tx_bytes
}

# True once another 256 KiB have flowed; false if the run ends first.
flows() {
	local from
	from=$(traffic)
	until [ "$(traffic)" -gt $((from + 262144)) ]; do
		kill -0 "${pids[1]}" 2>/dev/null || return 1
		sleep 0.1
	done
}

# One run with its cuts, to its end.
attempt() {
	pids=() ends=() cuts=0
	for i in 1 2 3; do
		start $i
	done
	while flows; do
		ip -n $switch link set p$cut down
		sleep 0.4
		ip -n $switch link set p$cut up
		cuts=$((cuts + 1))
		sleep 1
	done
	for i in 1 2 3; do
		wait "${pids[i]}"
		ends[i]=$?
		pids[i]=
	done
}

# On ucx alone: UCX 1.13.1 may crash in its TCP transport when both ends connect anew at once (doc/cluster.md): such
# a run says nothing of us and is made again, with the next port, and is counted as skipped.  The kernel
# must say so of each process of this attempt that crashed: a crash of ours, or one that the kernel's log
# does not tell of, stands.
segfaults() { # SINCE: seconds after the machine's start; the log forgets its oldest lines
	dmesg 2>/dev/null | grep 'segfault at' | awk -v since="$1" -F'[][]' '$2 + 0 >= since'
}
ucx_crashed() {
	local new crashed
	[ "$fabric" = ucx ] || return 1
	crashed=$(printf '%s\n' "${ends[@]}" | grep -cx 139)
	[ "$crashed" -gt 0 ] || return 1
	new=$(segfaults "$began" | grep -F verbena)
	[ -n "$new" ] && [ "$(wc -l <<<"$new")" -ge "$crashed" ] && ! grep -vq 'in libuct' <<<"$new"
}

for again in 1 2 3 4 5 6; do
	read -r began _ </proc/uptime
	attempt
	ucx_crashed || break
	skip "attempt $again" 'UCX crashed in its TCP transport (the kernel names libuct); made again'
	port=$((port + 1))
	rm -f "$work"/[123].json
done

# What `is` shows of a failure.
status=${ends[1]}
for i in 1 2 3; do
	echo "namespace $i: exit status ${ends[i]}"
	tail -n 25 "$work/$i.out" "$work/$i.err"
done >"$work/out"
: >"$work/err"

is "the link was cut while they ran, again and again: $cuts times" [ $cuts -ge 5 ]
# 4: a lock without recovery was lost to a cut.
is 'everybody came to an orderly end' [ "$(printf '%s\n' "${ends[@]}" | grep -cvxE '0|4')" = 0 ]
is 'the first is the root: it alone writes' [ -s "$work/1.json" -a ! -e "$work/2.json" -a ! -e "$work/3.json" ]
is 'every lock ran' jq -e --argjson n "${locks:-0}" '.runs | length == $n' "$work/1.json"
# All of a run but its long tables, for whoever reads of a failure.
runs() { # NAME WHAT-IS-WRONG-OF-A-RUN [JQ-OPTIONS...]
	local name=$1 wrong=$2
	shift 2
	is "$name" jq -c -e "$@" "[.runs[] | select($wrong)] | (.[] | with_entries(select(.value |
		type != \"array\"))), length == 0" "$work/1.json"
}
# All wait for whoever holds the hottest lock behind a cut, for 0.4 s, what TCP adds, and a recovery of 8
# leases: a run has to be longer than that.  A lock without recovery may be lost to a cut before anything
# is counted: then the run says so.  And where a verb takes longer than a lease (drtm's readers have
# 400 us), every grant may be lost.
runs 'something was locked in each, or it says why not' '.ops == 0 and .stalled == null and .lost == 0'
survivors=$("$verbena" list --json | jq -c '[.locks[] | select(.caps | index("survives")) | .name]')
runs 'and in each that survives, whatever is cut' \
	'.lock as $l | ($s | index($l)) and (.ops + .lost == 0 or .stalled != null)' --argjson s "$survivors"
runs 'the audit is clean' '.audit.violations != 0 or .audit.checked_ops == 0'
runs 'nobody was lost' '.died != null'
finish
