#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# verbena doctor where there is RDMA: finds device, port and GIDs, proves the path, and tells apart
# what can be wrong with them.  What breaks things happens in the guest only.
. "$(dirname "$0")/../cli/lib.sh"
device=${VERBENA_VERBS_DEVICE-}
second=${VERBENA_VERBS_DEVICE2-$device}

line() { # VERDICT WHAT TEXT
	grep -E "^$1  $2 +" "$work/out" | grep -qE "$3"
}

if [ -z "$device" ]; then
	skip 'doctor' 'VERBENA_VERBS_DEVICE names no RDMA device'
	finish
	exit
fi
run doctor --need verbs
is 'exit status 0' [ "$status" = 0 ]
for dev in $(printf '%s\n' "$device" "$second" | sort -u); do
	is "$dev: its atomics" line 'ok  ' "$dev" 'atomic among .*outstanding'
	is "$dev: its port" line 'ok  ' "$dev/1" 'active, MTU [0-9]+ of [0-9]+'
	is "$dev: a GID, its index and type" line 'ok  ' "$dev/1" 'gid [0-9]+: (RoCE v[12]|InfiniBand) [0-9a-f:.]+'
	is "$dev: READ and FAA through it" line 'ok  ' "verbs $dev/1" 'fetch-and-add \([0-9.]+[num]?s\), READ'
	is "$dev: how long it repeats a request, beside the formula" line "ok  " "verbs $dev/1" "gives up after [0-9.]+ ?[mnu]?s \(timeout=12,retries=4: 83.9ms to 336ms .*bound"
done
is 'modules' line 'ok  ' 'rdma kernel' 'ib_uverbs, rdma_ucm'
is 'memory' line 'ok  ' 'rdma memory' 'pinned'

if [ "$device" != rxe0 ] || [ "$second" != rxe1 ] || [ "$(hostname)" != verbena-rdma ]; then
	skip 'a port that is down' 'only in the guest'
	skip 'a limit on pinned memory' 'only in the guest'
	skip 'no right to open the device' 'only in the guest'
	skip 'a port without an address' 'only in the guest'
	finish
	exit
fi

state() { # DEVICE WORD
	tries=0
	until grep -q "$2" "/sys/class/infiniband/$1/ports/1/state"; do
		tries=$((tries + 1))
		[ $tries -lt 200 ] || return 1
		sleep 0.05
	done
}

# A veth's other end loses its carrier too, so both ports are down.
ip link set v1 down
state rxe1 DOWN && state rxe0 DOWN
run doctor
is 'a port that is down: exit status 1' [ "$status" = 1 ]
is 'a port that is down: says so, and what mends it' line fail rxe1/1 'Ethernet, down: .*ip link set'
ip link set v1 up
state rxe1 ACTIVE && state rxe0 ACTIVE

(
	ulimit -l 64
	exec setpriv --bounding-set=-ipc_lock --inh-caps=-ipc_lock "$verbena" doctor
) >"$work/out" 2>"$work/err" </dev/null
status=$?
is 'a limit on pinned memory: exit status 1' [ "$status" = 1 ]
is 'a limit on pinned memory: says so, and what mends it' line fail 'rdma memory' '64 KiB .*ulimit -l unlimited'

chmod 600 /dev/infiniband/uverbs*
setpriv --reuid=65534 --regid=65534 --clear-groups "$verbena" doctor >"$work/out" 2>"$work/err" </dev/null
status=$?
chmod 666 /dev/infiniband/uverbs*
is 'no right to open the device: exit status 1' [ "$status" = 1 ]
is 'no right to open the device: says so, and what mends it' line fail rxe0 '/dev/infiniband/uverbs[0-9]: Permission denied.*the group'

ip addr flush dev v1
run doctor
is 'a port without an address: says what mends it' line warn rxe1/1 'only a link-local GID.*ip addr add'
ip addr add 192.0.2.2/24 dev v1
tries=0
until grep -qs '0000:ffff:c000:0202' /sys/class/infiniband/rxe1/ports/1/gids/* || [ $tries -ge 200 ]; do
	tries=$((tries + 1))
	sleep 0.05
done
run doctor --need verbs
is 'all mended: exit status 0' [ "$status" = 0 ]
finish
