#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmarks between processes that somebody starts: they find each other, agree or say what differs,
# and a run that loses one of them ends with its name and the others' results.
. "$(dirname "$0")/lib.sh"

json=$work/run.json
bench='bench lock --fabric ucx --locks 1k --clients 4 --lease 2s --stall-after 30s --fabric-options bound=500ms'

for options in '--join 127.0.0.1:1' '--join 127.0.0.1:1 --hosts x --procs 2' '--rank 1 --procs 2' \
	'--hosts /nonexistent' '--procs 4 --servers 5'; do
	# shellcheck disable=SC2086
	run $bench $options
	is "$options: exit status 2" [ "$status" = 2 ]
done
run bench lock --fabric shm --bind 127.0.0.1
is '--bind is for networks: exit status 2' [ "$status" = 2 ]

why=$(command -v jq >/dev/null || echo 'jq is not installed')
[ -n "$why" ] || why=$("$verbena" list --json | jq -r '.fabrics[] | select(.name == "ucx") | .absent // empty')
if [ -n "$why" ]; then
	skip 'a cluster' "$why"
	finish
	exit 0
fi

port() { # a free one, as far as one can know
	if [ -n "$ports" ]; then
		port=$((port + 1))
	else
		port=$((20000 + $$ % 10000))
		ports=1
	fi
}

start() { # N OPTIONS...: in the background, with its own files
	who=$1
	shift
	# shellcheck disable=SC2086
	timeout -k 5 120 "$verbena" $bench "$@" >"$work/$who.out" 2>"$work/$who.err" </dev/null &
	eval "pid$who=$!"
}

ends() { # N: waits for it; sets $status, $out and $err are what it said
	eval "wait \$pid$1"
	status=$?
	cp "$work/$1.out" "$work/out"
	cp "$work/$1.err" "$work/err"
}

# Says which run is not as it must be, and in what.
audited() { # RUNS
	jq -r --argjson runs "$1" '
		def wrong(is; what): if is then what else empty end;
		wrong(.runs | length != $runs; "\(.runs | length) runs, not \($runs)"),
		(.runs[] | .lock + ": " + (
			wrong(.audit.violations != 0; "violations: \(.audit.by_rule)"),
			wrong(.audit.checked_ops == 0; "no operation was checked"),
			wrong(.ops == 0; "no operation while it was measured"),
			wrong(.audit.unaudited_ops != 0; "\(.audit.unaudited_ops) operations not audited"),
			wrong(.died != null; "died: \(.died)"),
			wrong(.audit == null; "not audited")))' "$json" >"$work/wrong" || return 1
	cat "$work/wrong"
	! [ -s "$work/wrong" ]
}

# A machine that is busy with other things may need longer than 100 ms for an operation.
until_measured() { # COMMAND: gets the duration
	for duration in 100ms 1s 10s; do
		rm -f "$json"
		"$1" $duration
		jq -e 'all(.runs[]; .ops > 0)' "$json" >/dev/null && break
	done
}

# Three of them, the first to bind is the root; only that one prints and writes.
by_join() { # DURATION
	port
	for i in 1 2 3; do
		start $i --join 127.0.0.1:$port --procs 3 --lock cas,dslr --duration "$1" --json "$json"
	done
	for i in 1 2 3; do
		ends $i
		is "--join: process $i: exit status 0" [ "$status" = 0 ]
	done
}
until_measured by_join
is '--join: audit clean' audited 2
is '--join: one of them prints' [ "$(cat "$work"/[123].out | grep -c '^dslr ')" = 1 ]

# By a file; two servers.
by_hosts() { # DURATION
	port
	printf '# the root\n127.0.0.1:%s\n\n127.0.0.1\n127.0.0.1\n' $port >"$work/hosts"
	for i in 1 2; do
		start $i --hosts "$work/hosts" --rank $i --servers 2 --lock shiftlock,rpc --duration "$1"
	done
	start 3 --hosts "$work/hosts" --rank 0 --servers 2 --lock shiftlock,rpc --duration "$1" --json "$json"
	for i in 1 2 3; do
		ends $i
		is "--hosts: process $i: exit status 0" [ "$status" = 0 ]
	done
}
until_measured by_hosts
is '--hosts: audit clean' audited 2
is '--hosts: two servers' jq -e 'all(.runs[]; .servers == 2 and .nodes == 3)' "$json"
start 1 --hosts "$work/hosts" --lock cas
ends 1
is '--hosts: which line is this?' [ "$status" = 2 ]
is '--hosts: the lines are named' grep -q 'lines 2 .* and 4' "$work/err"

# Every process is a server and has clients.
all_serve() { # DURATION
	# shellcheck disable=SC2086
	run $bench --procs 3 --servers 3 --lock mcs --duration "$1" --json "$json"
	is 'all serve: exit status 0' [ "$status" = 0 ]
}
until_measured all_serve
is 'all serve: audit clean' audited 1

# Who differs is refused, with the difference, on both sides.
port
start 1 --join 127.0.0.1:$port --procs 2 --patience 2s --seed 6
start 2 --join 127.0.0.1:$port --procs 2 --patience 2s --seed 7
for i in 1 2; do
	ends $i
	is "another seed: process $i: exit status 2" [ "$status" = 2 ]
	is "another seed: process $i: is said" grep -q -- '--seed: .* has [67], the root has [67]' "$work/err"
done

# What each has for itself, and another word for the same time, do not differ; a choice does.
port
start 1 --join 127.0.0.1:$port --procs 2 --duration 100ms --warmup 10ms --lock cas --json "$json"
start 2 --join 127.0.0.1:$port --procs 2 --duration 0.1s --warmup 10000us --lock cas --think 0
for i in 1 2; do
	ends $i
	is "the same in other words: process $i: exit status 0" [ "$status" = 0 ]
done
port
start 1 --join 127.0.0.1:$port --procs 2 --patience 2s --locks 1m --workload tatp --timeout 1ms --order trace
start 2 --join 127.0.0.1:$port --procs 2 --patience 2s --locks 1m --workload tatp --timeout 1ms --order sorted
for i in 1 2; do
	ends $i
	is "another order: process $i: exit status 2" [ "$status" = 2 ]
	is "another order: process $i: is said" grep -qE -- '--order: .* has (trace|sorted), the root has (trace|sorted)' "$work/err"
done

# Who never comes is named.
port
# shellcheck disable=SC2086
run $bench --join 127.0.0.1:$port --procs 3 --patience 300ms
is 'who does not come: exit status 1' [ "$status" = 1 ]
is 'who does not come: is named' grep -q 'only 1 of 3 processes came .* rank 1 rank 2' "$work/err"

# Beyond loopback: not without a key, and not with another one.
run bench lock --fabric ucx --procs 2 --join 192.0.2.1:7531
is 'beyond loopback without a key: exit status 2' [ "$status" = 2 ]
is 'beyond loopback without a key: is said' grep -q 'key' "$work/err"
port
for key in a b; do
	head -c 48 /dev/urandom >"$work/$key.key"
	chmod 600 "$work/$key.key"
done
start 1 --join 127.0.0.1:$port --rank 0 --procs 2 --patience 2s --auth-key-file "$work/a.key"
start 2 --join 127.0.0.1:$port --rank 1 --procs 2 --patience 2s --auth-key-file "$work/b.key"
ends 2
is 'another key: exit status 2' [ "$status" = 2 ]
is 'another key: is said' grep -q 'key' "$work/err"
ends 1
is 'another key: the root logs it' grep -q 'another key' "$work/err"

# Sealed when they meet, also on loopback; and one that never is does not meet one that always is.
port
start 1 --join 127.0.0.1:$port --procs 2 --duration 100ms --lock cas --seal always --json "$json"
start 2 --join 127.0.0.1:$port --procs 2 --duration 100ms --lock cas
for i in 1 2; do
	ends $i
	is "--seal always: process $i: exit status 0" [ "$status" = 0 ]
done
port
start 1 --join 127.0.0.1:$port --rank 0 --procs 2 --patience 2s --seal always
start 2 --join 127.0.0.1:$port --rank 1 --procs 2 --patience 20s --seal never-on-a-trusted-network
ends 2
is '--seal never meets always: exit status 2' [ "$status" = 2 ]
is '--seal never meets always: is said' grep -q 'give every process the same option seal' "$work/err"
ends 1
is '--seal always meets never: is said' grep -q 'do not agree whether frames are sealed' "$work/err"

# One is killed: the run ends with its name and the results of the others.
rm -f "$work/err"
# shellcheck disable=SC2086
VERBENA_LOG=$loud "$verbena" $bench --procs 3 --lock cas,dslr --warmup 0 --duration 120s --json "$json" \
	>"$work/out" 2>"$work/err" &
root=$!
under_way $root 10
kill -KILL "$(pgrep -n -P $root)"
wait $root
status=$?
is 'killed: exit status 1' [ "$status" = 1 ]
is 'killed: is named' grep -q 'rank 2 (.*) died' "$work/err"
is 'killed: the results of the others' jq -e '(.runs | length == 1) and (.runs[0] |
	(.died | startswith("rank 2")) and .ops > 0 and .audit.violations == 0)' "$json"

# Forked processes have a key of their own, drawn for the run: no neighbour gets in, with a key or without.
meeting() { # sets $port
	port=$(sed -n 's/.*the processes meet at 127.0.0.1:\([0-9]*\)$/\1/p' "$work/root.err")
	[ -n "$port" ]
}
# shellcheck disable=SC2086
VERBENA_LOG=$loud "$verbena" $bench --procs 2 --lock cas --warmup 0 --duration 120s --json "$json" >"$work/root.out" \
	2>"$work/root.err" &
root=$!
until_true 'the forked cluster listens' meeting
# shellcheck disable=SC2086
run $bench --procs 2 --lock cas --join 127.0.0.1:$port --rank 1 --patience 20s
is 'a neighbour without a key: exit status 2' [ "$status" = 2 ]
is 'a neighbour without a key: is refused for it' grep -q 'refused: .* has another key than the root' "$work/err"
# shellcheck disable=SC2086
run $bench --procs 2 --lock cas --join 127.0.0.1:$port --rank 1 --patience 20s --auth-key-file "$work/a.key"
is 'a neighbour with a key: is refused for it' grep -q 'refused: .* has another key than the root' "$work/err"
kill -TERM $root
wait $root

# A key file that is none: said once, whatever the number of processes.
head -c 48 /dev/zero >"$work/zero.key"
chmod 600 "$work/zero.key"
# shellcheck disable=SC2086
run $bench --procs 3 --lock cas --auth-key-file "$work/zero.key"
is 'a key of zeros: exit status 2' [ "$status" = 2 ]
is 'a key of zeros: one line' [ "$(wc -l <"$work/err")" = 1 ]

# Interrupted: results are left.
rm -f "$work/err"
# shellcheck disable=SC2086
VERBENA_LOG=$loud "$verbena" $bench --procs 3 --lock cas,dslr --warmup 0 --duration 120s --json "$json" \
	>"$work/out" 2>"$work/err" &
root=$!
under_way $root 10
kill -TERM $root
wait $root
status=$?
is 'interrupted: exit status 130' [ "$status" = 130 ]
is 'interrupted: results' jq -e '.interrupted and (.runs | length == 1) and .runs[0].interrupted and
	.runs[0].audit.violations == 0' "$json"

if ! command -v mpirun >/dev/null; then
	skip 'mpirun' 'mpirun is not installed (package openmpi-bin)'
else
	echo 'leak:libpmix.so' >"$work/lsan" # some bytes of its own, until the process ends
	by_mpirun() { # DURATION
		# shellcheck disable=SC2086
		LSAN_OPTIONS=suppressions=$work/lsan:print_suppressions=0 OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 timeout -k 5 240 mpirun --oversubscribe \
			-n 3 "$verbena" $bench --lock "$locks" $options --duration "$1" --json "$json" \
			>"$work/out" 2>"$work/err" </dev/null
		status=$?
		is "mpirun -n 3, $what: exit status 0" [ "$status" = 0 ]
	}
	what='every lock but drtm' options=
	locks=$("$verbena" list --json | jq -r '[.locks[].name] - ["drtm"] | join(",")')
	until_measured by_mpirun
	is "mpirun -n 3, $what: audit clean" audited "$("$verbena" list --json | jq '.locks | length - 1')"
	is 'mpirun -n 3: one of them prints' [ "$(grep -c '^dslr ' "$work/out")" = 1 ]
	# Its readers hold by the clock: a lease of theirs must outlast the wait for a core.
	what=drtm locks=drtm options='--lock-options read_lease=200ms'
	until_measured by_mpirun
	is "mpirun -n 3, $what: audit clean" audited 1
fi
finish
