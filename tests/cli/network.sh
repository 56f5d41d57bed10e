#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Locks between processes over TCP (the fabrics tcp and ucx): audited, counted, and refused where it makes no sense.
. "$(dirname "$0")/lib.sh"

run bench lock --lock cas --fabric tcp --procs 1
is 'one process is not enough' [ "$status" = 2 ]
run bench lock --lock cas --fabric tcp --nodes 3
is 'nodes are the processes' [ "$status" = 2 ]
run bench lock --lock cas --fabric sim --fabric-options coalesce=no
is 'an option of another fabric' [ "$status" = 2 ]

if ! command -v jq >/dev/null; then
	skip 'networks' 'jq is not installed'
	finish
	exit 0
fi
why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "ucx") | .absent // empty')
nets='tcp ucx'
if [ -n "$why" ]; then
	skip 'ucx' "$why"
	nets=tcp
fi

# Every lock on tcp; on ucx, which has the same engine above it, one of each kind.
# The bound is generous: a lost answer is right on a loaded machine, but not what is tested here.
for net in $nets; do
	locks='["cas","mcs","rpc"]' asked=cas,mcs,rpc
	if [ $net = tcp ]; then
		locks=$("$verbena" list --json | jq -c '[.locks[].name]') asked=all
	fi
	run bench lock --lock $asked --fabric $net --procs 3 --clients 4 --locks 1k --lease 2s \
		--fabric-options bound=500ms --duration 200ms --json "$json"
	is "$net, locks: exit status 0" [ "$status" = 0 ]
	is "$net, locks: each ran" holds "[.runs[].lock] == $locks"
	is "$net, locks: audit clean" holds '.runs | all(.audit.checked_ops > 0 and .audit.violations == 0 and
		.failed == 0 and .ops > 0)'
	is "$net, locks: what the fabric did" holds ".runs | all(.fabric == \"$net\" and .procs == 3 and
		.fabric_stats.doorbells > 0 and .fabric_stats.posted >= .fabric_stats.doorbells)"
done

run bench lock --lock cas-backoff --fabric tcp --procs 2 --clients 16 --locks 100k --lease 2s \
	--fabric-options bound=500ms --dist uniform --duration 200ms --json "$json"
is 'verbs of many clients leave together' holds \
	'.runs[0].fabric_stats | .posted > 1.5 * .doorbells'
run bench lock --lock cas-backoff --fabric tcp --procs 2 --clients 16 --locks 100k --lease 2s \
	--fabric-options bound=500ms,coalesce=no --dist uniform --duration 200ms --json "$json"
is 'and one by one when told so' holds '.runs[0].fabric_stats | .posted <= 1.1 * .doorbells'

# Where the root has clients, too, its own are part of what all have done.
run bench lock --lock cas --fabric tcp --procs 2 --servers 2 --clients 4 --locks 100k --lease 2s \
	--fabric-options bound=500ms --dist uniform --duration 200ms --json "$json"
is 'clients on servers: the sum of their rates' holds \
	'.runs[0] | .goodput_ops_s > 0.95 * .ops / .duration_s'

# Connections that are given up soon are asked for again, never torn up half made: UCX aborts then.  What
# is lost meanwhile is no matter here.
for i in 1 2 3; do
	for net in $nets; do
		run bench lock --lock cas --fabric $net --procs 5 --clients 4 --duration 30ms --warmup 0 \
			--fabric-options bound=500ms,silence=10ms,retry=1ms --json "$json"
		is "impatient connections, $net, $i" [ "$status" = 0 -o "$status" = 4 ]
		is "impatient connections, $net, $i: something was done, and rightly" holds '.runs[0] |
			.audit.violations == 0 and (.ops > 0 or .stalled != null or .failed > 0)'
	done
done

# Sealed frames, and a network of IPv6.
run bench lock --lock dslr --fabric tcp --procs 2 --clients 4 --locks 1k --lease 2s \
	--fabric-options bound=500ms,seal=always --duration 100ms --json "$json"
is 'sealed frames' holds '.runs[0] | .audit.violations == 0 and .ops > 0 and .failed == 0'
if grep -q . /proc/net/if_inet6 2>/dev/null; then
	run bench lock --lock dslr --fabric tcp --procs 2 --clients 4 --locks 1k --lease 2s \
		--fabric-options bound=500ms,bind=::1 --duration 100ms --json "$json"
	is 'IPv6' holds '.runs[0] | .audit.violations == 0 and .ops > 0 and .failed == 0'
else
	skip 'IPv6' 'this machine has none'
fi
run bench lock --lock dslr --fabric tcp --procs 2 --fabric-options bind=192.0.2.1
is "an address that is not this machine's" [ "$status" = 1 -o "$status" = 2 ]
is "an address that is not this machine's: said" grep -q 'cannot listen at 192.0.2.1' "$work/err"

# Against a bare socket, and with a node that computes.  What is slow on a machine with other work is no
# matter here; that each row has both of its sides is.
run bench fabric --only tcp,ucx,busy,verbs --repeat 1 --json "$json"
is 'bench fabric: exit status 0' [ "$status" = 0 ]
for net in $nets; do
	is "bench fabric: $net, each beside its baseline" holds "[.runs[] | select(.section == \"$net\")] |
		length == 8 and all(.value > 0 and .baseline_value > 0 and .unit == \"ns\")"
done
is 'bench fabric: a node that computes' holds '[.runs[] | select(.section == "busy") | .name] |
	length == 4'
[ -n "$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "verbs") | .absent // empty')" ] &&
	is 'bench fabric: why there is no RDMA' grep -q '^  absent: ' "$work/out"
finish
