#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# verbena doctor: every line has a verdict, what is absent says why and what mends it, and only what is
# needed and absent is a failure.
. "$(dirname "$0")/lib.sh"

lines() { # VERDICT
	grep -c "^$1  " "$work/out" || true
}

line() { # VERDICT WHAT TEXT
	grep -E "^$1  $2 +" "$work/out" | grep -qE "$3"
}

run doctor
is 'exit status 0 when nothing needed fails' [ "$status" = 0 ]
is 'every line has a verdict' [ "$(sed '1,2d' "$work/out" | grep -cvE '^(ok  |warn|fail|none)  |^$|absent$')" = 0 ]
is 'the last line counts them' grep -qx \
	"$(lines 'ok  ') ok, $(lines warn) to watch, $(lines fail) failed, $(lines none) absent" "$work/out"

if [ -d /sys/class/infiniband ] && [ -n "$(ls /sys/class/infiniband)" ]; then
	skip 'no RDMA: says why' 'this machine has an RDMA device'
	skip 'no RDMA: says what mends it' 'this machine has an RDMA device'
	skip 'no RDMA, but needed: exit status 1' 'this machine has an RDMA device'
else
	is 'no RDMA: says why' line none rdma 'kernel|librar|headers|device'
	is 'no RDMA: says what mends it' line none 'rdma kernel' 'modprobe|stock kernel|rdma link add'
	run doctor --need shm,verbs
	is 'no RDMA, but needed: exit status 1' [ "$status" = 1 ]
	is 'no RDMA, but needed: a failure that says why' line fail rdma 'kernel|librar|headers|device'
fi

run doctor
if line none ucx 'libucp|UCX headers'; then
	skip 'UCX: version and transports' "$(grep '^none  ucx' "$work/out")"
	skip 'UCX: a fetch-and-add over TCP' "$(grep '^none  ucx' "$work/out")"
else
	is 'UCX: version and transports' line 'ok  ' 'ucx library' 'UCX [0-9.]+; transports: .*tcp/lo'
	is 'UCX: a fetch-and-add over TCP' line 'ok  ' 'ucx tcp' 'fetch-and-add \([0-9.]+[num]?s\), READ'
fi
is 'PMIx: there or not' grep -qE '^(ok  |none)  pmix ' "$work/out"
run doctor --need shm,sim
is 'needed and there: exit status 0' [ "$status" = 0 ]
refused 'an unknown fabric is needed' 2 "vrbs verbena list" doctor --need vrbs
finish
