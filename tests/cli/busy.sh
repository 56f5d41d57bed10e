#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a bench says when grants were lost, and when the machine was too busy for its times to be trusted.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'busy' 'jq is not installed'
	finish
	exit 0
fi

load_filter='.cores >= 1 and (.load_1min_begin | . >= 0) and (.load_1min_end | . >= 0) and
	(.others | . >= 0 and . <= 1) and (.steal | . >= 0 and . <= 1) and
	(.queued | . == null or (. >= 0 and . <= 1)) and (.heavy | type == "boolean")'
said='load [0-9.]+ on [0-9]+ cores?'

# Every hold outlives its lease twenty times, and three others wait: grants are lost on any machine.
run bench lock --lock dslr,cas --fabric shm --procs 2 --clients 4 --locks 1 --lease 100us --hold 2ms \
	--duration 300ms --json "$json"
is 'lost grants: exit status 0' [ "$status" = 0 ]
is 'lost grants: counted' holds '.runs[0].lock == "dslr" and .runs[0].lost > 0'
lost=$(jq '.runs[0].lost' "$json")
is 'lost grants: a warning names lock, number, hold, lease and the way out' \
	grep -Eq "dslr: $lost grants? lost: --hold, 2.00ms, is longer than the lease of 100us.*--lease" "$work/err"
is 'lost grants: ... and no cores, which have no part in it' sh -c "! grep -Eq '$said' '$work/err'"
is 'lost grants: the table has them, too' grep -q "grants lost $lost" "$work/out"
is 'no grants lost: no warning' [ "$(grep -c '^.*cas: .*lost' "$work/err")" = 0 ]
is 'the load of each run' holds ".runs | length == 2 and all(.load | $load_filter)"

# In virtual time there is no load, and a lost grant is the plan's.
run bench lock --lock dslr --fabric sim --clients 4 --locks 1 --lease 4ms --hold 50ms \
	--duration 1s --json "$json"
is 'sim: lost grants are warned of, without a load' sh -c "grep -q 'dslr: .* lost' '$work/err' &&
	! grep -Eq '$said' '$work/err'"
is 'sim: the hold is said to be longer' grep -q 'lost: --hold, 50.0ms, is longer than the lease of 4.00ms' "$work/err"
is 'sim: it names no other lock'"'"'s option' sh -c "! grep -q read_lease '$work/err'"
is 'sim: no load' holds '.runs[0].load == null and .runs[0].lost > 0'

# Whose readers have a lease that is the lock's own option.
run bench lock --lock drtm --fabric sim --clients 4 --locks 1 --read-ratio 1 --hold 5ms \
	--duration 100ms --json "$json"
is 'drtm: the warning names read_lease' grep -q 'drtm: .* lost.*read_lease' "$work/err"

# As many busy loops as there are cores.
hogs=
for _ in $(seq "$(nproc)"); do
	(while :; do :; done) &
	hogs="$hogs $!"
done
run bench lock --lock cas --fabric shm --procs 2 --clients 2 --duration 1s --json "$json"
cp "$work/out" "$work/lock.out"
# A hold of nearly a lease: whoever has to wait for a core loses some.
run bench lock --lock dslr --fabric shm --procs 2 --clients 4 --locks 1 --lease 300us --hold 290us \
	--duration 1s --json "$work/lost.json"
cp "$work/err" "$work/lost.err"
is 'a busy machine: lost grants are told with the load' \
	grep -Eq "dslr: [0-9]+ grants? lost: the lease of 300us was over.*; $said.*--lease" "$work/lost.err"
is 'a busy machine: told as such' holds '.runs[0].load.heavy'
is 'a busy machine: a line below the numbers' grep -Eq "$said.*latenc" "$work/lock.out"
run bench txn --cc no-wait --threads 1 --duration 1s --json "$json"
kill $hogs
wait $hogs 2>/dev/null
is 'a busy machine: no commit lost a lock' holds '.runs | all(.lost_locks == 0)'
is 'a busy machine: transactions, too' holds ".runs | all(.load | $load_filter and .heavy)"
is 'a busy machine: a line below the transactions' grep -Eq "$said.*latenc" "$work/out"

finish
