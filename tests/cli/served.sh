#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Benchmarks as clients of servers that run: verbs to each of them, and transactions in a database that they have
# filled.  That of locks is in serve.sh.
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

# ---- transactions ----

data=bench:cc=silo,coordinators=16,workload=smallbank,accounts=500
# An answer may be late on a busy machine, and a run that has lost one is not judged.
start_db() { # NUMBER OPTIONS...
	start "$@" --fabric-options bound=1s "$data"
}
client() { # OPTIONS...
	run bench txn --servers "$servers" --key "$key" --database "$data" --procs 2 --coroutines 4 "$@"
}
not_served() { # NAME WORDS OPTIONS...
	name=$1 words=$2
	shift 2
	refused "$name" 2 "$words" bench txn --servers "$servers" --key "$key" "$@"
}
refused 'a workload that there is not' 2 "'bench' smallbnak 'smallbank'" serve --servers "$at:1" --key "$key" \
	bench:cc=silo,workload=smallbnak
refused 'an option that it has not' 2 "'bench' smallbank acounts" serve --servers "$at:1" --key "$key" \
	bench:cc=silo,workload=smallbank,acounts=1
refused 'a table beside those of a workload' 2 "'bench' workload" serve --servers "$at:1" --key "$key" \
	bench:cc=silo,workload=bank bench/more:bytes=8
refused 'a database, and no servers' 2 '--database --servers' bench txn --database "$data"
not_served 'no database' '--database cc='
not_served 'one without a workload' "'bench' workload=" --database bench:cc=silo
not_served 'one that no client can use' "'calvin'" --database bench:cc=calvin,workload=bank
not_served 'what the database says' '--cc --database' --database "$data" --cc silo
not_served 'what its workload says' '--accounts --database' --database "$data" --accounts 7
not_served 'copies of the log by RPC' "--hybrid 'bench' one-sided" --hybrid rpc \
	--database bench:cc=silo,copies=1,workload=bank
not_served 'threads' '--threads --procs' --database "$data" --threads 2
not_served 'another fabric' 'ucx tcp' --database "$data" --fabric ucx

for i in 1 2; do
	mkdir -m 700 "$work/state$i"
done
start_db 1 --state "$work/state1"
one=$pid
start_db 2 --state "$work/state2"
two=$pid
until_true 'a server of tables is ready' grep -q '^ready: .*2 tables of smallbank' "$work/1.out"
until_true 'and the other one' grep -q '^ready: .*2 tables of smallbank' "$work/2.out"
not_served 'a database that is not there' "'bnech' bench" --database bnech:cc=silo,workload=smallbank
not_served 'more clients than it has room for' '40 20 16 coordinators=20' --database "$data" --coroutines 20
judged() { # JSON: a run of 8 clients, all of which is as it should be
	if command -v jq >/dev/null; then
		json=$1
		is_json 'and judged' '.runs[0] | .elastic == "'"$servers"'" and .database == "bench" and .cc == "silo" and
			.fabric == "tcp" and .nodes == 2 and .procs == 2 and .clients == 8 and .commits > 0 and
			.check.serializable and .check.strict and .invariant.holds'
	else
		skip 'and judged' 'jq is not installed'
	fi
}
client --duration 500ms --check --json "$work/first.json"
is 'transactions as clients of servers that run' [ $status = 0 ]
judged "$work/first.json"
client --duration 500ms --check --seed 2 --json "$work/second.json"
is 'and once more, on what the first run has left' [ $status = 0 ]
judged "$work/second.json"
kill -9 $two
wait $two 2>/dev/null
start_db 2 --state "$work/state2"
two=$pid
until_true 'a server begins again with its tables' ready 2
client --duration 500ms --check --json "$work/third.json"
is 'which it has not filled again' [ $status = 0 ]
judged "$work/third.json"
# Beside another run nothing is said, but that.
VERBENA_LOG=$loud "$verbena" bench txn --servers "$servers" --key "$key" --database "$data" --procs 1 --coroutines 2 \
	--duration 60s --check --json "$work/cut.json" >"$work/long.out" 2>"$work/err" </dev/null &
bench=$!
pids="$pids $bench"
until_true 'a run measures' measures
client --duration 100ms --json "$work/beside.json"
is 'beside another one nothing is judged' grep -q 'not judged: others have had coordinators' "$work/out"
kill -INT $bench
wait $bench
is 'Ctrl-C ends it' [ $? = 130 ]
is 'and leaves what was measured' grep -q '^silo' "$work/long.out"
is 'beside who has gone before it ended nothing is judged, either' grep -q 'not judged: others' "$work/long.out"
is 'also as JSON' grep -q '"interrupted": true' "$work/cut.json"
# A process of its clients is killed.
VERBENA_LOG=$loud "$verbena" bench txn --servers "$servers" --key "$key" --database "$data" --procs 2 --coroutines 2 \
	--duration 3s --check --json "$work/killed.json" >"$work/out" 2>"$work/err" </dev/null &
bench=$!
pids="$pids $bench"
until_true 'a run measures' measures
read -r victim _ <"/proc/$bench/task/$bench/children"
kill -9 "$victim"
wait $bench
is 'one whose process is killed fails' [ $? = 1 ]
is 'is not judged' grep -q 'not judged: a process of clients was killed' "$work/out"
is 'nor was that a server' sh -c "! grep -q 'served a node' '$work/out'"
if command -v jq >/dev/null; then
	json=$work/killed.json
	is_json 'and what the others did is serializable' '.runs[0] | .workers_killed == 1 and .clients_killed == 2 and
		.commits > 0 and .check.serializable and .invariant.judged == false'
else
	skip 'and what the others did is serializable' 'jq is not installed'
fi
end $one
end $two
finish
