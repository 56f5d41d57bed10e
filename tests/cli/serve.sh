#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Servers of an elastic cluster as programs: they say when they are ready, a client goes on when its server
# was killed and begins again, a signal ends them, and bad input is refused.
. "$(dirname "$0")/lib.sh"

key=$work/key
head -c 32 /dev/urandom >"$key"
chmod 600 "$key"
at=127.0.0.1
# Below those that the kernel gives away.
port=$((9000 + $$ % 200 * 2)) # and up to 501 more
servers=$at:$port

refused 'no servers' 2 '--servers HOST:PORT+' serve --key "$key"
refused 'an empty file of servers' 2 'no server' serve --servers /dev/null --key "$key"
refused 'a file of servers that is not there' 2 "$work/none" serve --servers "$work/none" --key "$key"
{
	printf '# '
	head -c 1020 /dev/zero | tr '\0' x
	printf ' 127.0.0.1:7\n%s\n' "$servers"
} >"$work/long"
refused 'a long comment is no server' 2 '--as 2: there are servers 1 to 1' serve --servers "$work/long" --as 2 --key "$key"
head -c 1020 /dev/zero | tr '\0' x >"$work/long"
refused 'a line that is no address' 2 "$work/long longer" serve --servers "$work/long" --key "$key"
refused 'no key' 2 '--key chmod 600' serve --servers "$servers"
refused 'a key file that is not there' 2 "$work/none" serve --servers "$servers" --key "$work/none"
refused 'which of two' 2 '--as 1 2' serve --servers "$at:1+$at:2" --key "$key"
refused 'a server that there is not' 2 '--as 3' serve --servers "$at:1+$at:2" --as 3 --key "$key"
refused 'a name that none has' 2 "--as $at:3" serve --servers "$at:1+$at:2" --as "$at:3" --key "$key"
refused 'fewer nodes than servers' 2 '--nodes 1' serve --servers "$at:1+$at:2" --as 1 --nodes 1 --key "$key"
refused 'no space' 2 "'orders' NAME:lock=" serve --servers "$servers" --key "$key" orders
refused 'a space without a protocol' 2 "'orders' lock=dslr" serve --servers "$servers" --key "$key" orders:locks=10
refused 'an unknown protocol' 2 "'orders' dslrr 'dslr'" serve --servers "$servers" --key "$key" orders:lock=dslrr
refused 'an unknown word of a space' 2 "'orders' lokcs" serve --servers "$servers" --key "$key" orders:lokcs=1
refused 'two spaces of one name' 2 "'a'" serve --servers "$servers" --key "$key" a:lock=cas a:lock=dslr
refused 'more nodes than there are' 2 "'a' servers=2" serve --servers "$servers" --key "$key" a:lock=cas,servers=2
refused 'clocks that drift apart too far' 2 "'a' drift 10000" serve --servers "$servers" --key "$key" a:lock=dslr,drift=20k
refused 'a database of an unknown protocol' 2 "'bank' 'sillo'" serve --servers "$servers" --key "$key" bank:cc=sillo
refused 'a database that no client could use' 2 "'bank' 'calvin' clients" serve --servers "$servers" --key "$key" --settle 1ms bank:cc=calvin
refused 'an unknown word of a database' 2 "'bank' coordinatros" serve --servers "$servers" --key "$key" bank:cc=silo,coordinatros=1
refused 'two databases of one name' 2 "'bank'" serve --servers "$servers" --key "$key" bank:cc=silo bank:cc=no-wait
refused 'a table before its database' 2 "bank/a DATABASE/NAME:" serve --servers "$servers" --key "$key" bank/a:bytes=8 bank:cc=silo
refused 'an unknown kind of keys' 2 "'bank/a' keys hasch" serve --servers "$servers" --key "$key" bank:cc=silo bank/a:bytes=8,keys=hasch
refused 'two tables of one name' 2 "'bank' 'a'" serve --servers "$servers" --key "$key" bank:cc=silo bank/a:bytes=8 bank/a:bytes=9
refused 'a table without bytes' 2 "'a'" serve --servers "$servers" --key "$key" --settle 1ms bank:cc=silo bank/a:bytes=0
refused 'a database that does not fit' 6 "'bank' node_bytes" serve --servers "$servers" --key "$key" --settle 1ms --node-bytes 1mi bank:cc=silo
refused 'no mark' 2 'fresh' serve --servers "$servers" --key "$key" --settle 0
refused 'a comma' 2 '--fresh a,b' serve --servers "$servers" --key "$key" --fresh a,b
refused 'an option that the fabric has not' 2 'lingre' serve --servers "$servers" --key "$key" --fabric-options lingre=1s
refused 'a lease that is longer than it waits' 2 'settle' serve --servers "$servers" --key "$key" --settle 1ms \
	a:lock=dslr,lease=1s

pids=
trap 'kill -9 $pids 2>/dev/null; rm -rf "$work"' EXIT
start() { # NAME OPTIONS...: a server, in the background
	who=$1
	shift
	# Whatever became of SIGHUP where these tests run.
	env "--${hup-default}-signal=HUP" \
		"$verbena" serve --key "$key" --settle 400ms "$@" >"$work/$who.out" 2>"$work/$who.err" </dev/null &
	pid=$!
	pids="$pids $pid"
}
ready() { # NAME
	grep -q '^ready: ' "$work/$1.out"
}

# ---- one server ----

space=orders:lock=dslr,locks=100,lease=200ms,drift=1000
start one --servers "$servers" --json "$work/one.json" "$space"
one=$pid
until_true 'a server is ready' ready one
is 'what it says' grep -qF "ready: server 1 of 1, $servers, nodes 1, lock spaces: orders (100 of 'dslr')" "$work/one.out"
if command -v jq >/dev/null; then
	json=$work/one.json
	is_json 'and as JSON' '.kind == "serve" and .server == 1 and .servers == 1 and .nodes == 1 and
		.settle_ns == 400000000 and (.spaces | length == 1 and .[0].name == "orders" and
		.[0].lock == "dslr" and .[0].lease_ns == 200000000 and .[0].drift_ppm == 1000 and .[0].here)'
else
	skip 'and as JSON' 'jq is not installed'
fi
refused 'one server at a port' 5 "$servers" serve --servers "$servers" --key "$key"

# The example is beside the tool that was built.
client=$(dirname "$verbena")/../examples/example-elastic
if [ -x "$client" ]; then
	timeout 120 "$client" "$servers" "$key" 200 >"$work/client.out" 2>"$work/client.err" </dev/null &
	other=$!
	pids="$pids $other"
	has_taken() {
		[ "$(grep -c '^[0-9]' "$work/client.out")" -ge "$1" ]
	}
	until_true 'a client takes locks' has_taken 10
	kill -9 $one
	wait $one 2>/dev/null
	export VERBENA_LOG=info
	start again --servers "$servers" "$space"
	unset VERBENA_LOG
	one=$pid
	until_true 'the server is ready again' ready again
	before=$(grep -c '^[0-9]' "$work/client.out")
	wait $other
	status=$?
	is 'a client goes on when its server has begun again' [ $status = 0 ]
	is 'it did not have all before' [ "$before" -lt 200 ]
	is 'and was told that the server was gone' grep -q '^not now: ' "$work/client.out"
	until_true 'the log says who comes' grep -q 'info: client 1 has come' "$work/again.err"
	until_true 'the log says who goes' grep -q 'info: client 1 is gone' "$work/again.err"
else
	skip 'a client goes on when its server has begun again' "there is no $client"
fi
kill -TERM $one
wait $one
is 'TERM ends a server with 0' [ $? = 0 ]

start settling --servers "$servers" --settle 7200s --json "$work/settling.json"
one=$pid
listens() {
	grep -q ":$(printf %04X $port) 00000000:0000 0A" /proc/net/tcp
}
until_true 'it has its port, and settles' listens
kill -TERM $one
wait $one
is 'TERM ends it at once, with 0' [ $? = 0 ]
is 'and leaves nothing' [ -z "$(find "$work" -name 'settling.json*')" ]

# ---- one that keeps its state ----

mkdir -m 700 "$work/state"
refused 'a state without a directory' 2 "$work/nowhere" serve --servers "$servers" --key "$key" --state "$work/nowhere"
start kept --servers "$servers" --state "$work/state" --settle 3s "$space"
one=$pid
until_true 'a server with a state is ready' ready kept
if [ -x "$client" ]; then
	timeout 120 "$client" "$servers" "$key" 200 >"$work/client.out" 2>"$work/client.err" </dev/null &
	other=$!
	pids="$pids $other"
	until_true 'a client takes locks' has_taken 10
	kill -9 $one
	wait $one 2>/dev/null
	start kept2 --servers "$servers" --state "$work/state" --settle 3s "$space"
	one=$pid
	until_true 'it is ready again' ready kept2
	wait $other
	status=$?
	is 'a client goes on with a server that has kept its state' [ $status = 0 ]
fi
orders=orders:lock=dslr,locks=100,lease=200ms
as_client() { # OPTIONS...: a benchmark, a client of the server
	refused "$1" "$2" "$3" bench lock --servers "$servers" --key "$key" --space "$4" --duration 100ms
}
as_client 'a space that is not there' 2 "'ordres' orders" ordres:lock=dslr,locks=100
as_client 'another number of locks' 2 "'orders' 100 200" orders:lock=dslr,locks=200,lease=200ms
as_client 'another lock' 2 "'orders' 'dslr' 'cas'" orders:lock=cas,locks=100,lease=200ms
as_client 'another lease' 2 "'orders' 200000000 100000000" orders:lock=dslr,locks=100,lease=100ms
refused 'a space is said by --space' 2 '--lock --space' bench lock --servers "$servers" --key "$key" --space $orders \
	--lock dslr
refused 'no space' 2 '--space' bench lock --servers "$servers" --key "$key"
refused 'no key file' 2 '--key' bench lock --servers "$servers" --space $orders
refused 'a space, and no servers' 2 '--space --servers' bench lock --space $orders
refused 'another fabric' 2 'ucx tcp' bench lock --servers "$servers" --key "$key" --space $orders --fabric ucx
refused 'no number of servers' 2 '--servers 0 1024' bench lock --servers 0
refused 'servers that are not there' 1 "$at:1 patience" bench lock --servers "$at:1" --key "$key" --space $orders \
	--fabric-options patience=100ms

# A benchmark as a client, whose server is killed meanwhile.
VERBENA_LOG=$loud timeout 120 "$verbena" bench lock --servers "$servers" --key "$key" --space $orders --clients 4 \
	--duration 3s --stall-after 30s --json "$work/run.json" >"$work/out" 2>"$work/err" </dev/null &
bench=$!
pids="$pids $bench"
until_true 'a benchmark measures' measures
kill -9 $one
wait $one 2>/dev/null
start kept3 --servers "$servers" --state "$work/state" --settle 3s "$space"
one=$pid
until_true 'the server is there again' ready kept3
wait $bench
status=$?
is 'a benchmark as a client goes on with the server' [ $status = 0 ]
if command -v jq >/dev/null; then
	json=$work/run.json
	is_json 'what it says' '.runs[0] | .elastic == "'"$servers"'" and .space == "orders" and .fabric == "tcp" and
		.lock == "dslr" and .locks == 100 and .lease_ns == 200000000 and .nodes == 1 and .ops > 0 and
		.audit.clients == "of this run" and .audit.checked_ops > 0 and .audit.violations == 0'
fi
refused 'two servers with one state' 5 'in use' serve --servers "$at:$((port + 500))" --key "$key" --state "$work/state"
kill -TERM $one
wait $one
is 'TERM ends it with 0' [ $? = 0 ]
refused 'the state of another server' 2 'name' serve --servers "$at:$((port + 500))" --key "$key" --state "$work/state"
refused 'a state of another size' 2 'size' serve --servers "$servers" --key "$key" --state "$work/state" --node-bytes 1mi

# ---- two, whose spaces are served ----

list=$work/list
printf '# two\n%s\n\n%s\n' "$at:$((port + 1))" "$at:$port" >"$list"
spaces="a:lock=rpc,locks=10,servers=2,lease=100ms,fencing b:lock=table,locks=10,lease=100ms,options=policy=wait-die+slots=64"
hup=ignore
# shellcheck disable=SC2086
start first --servers "$list" --as 1 $spaces
unset hup
first=$pid
until_true 'a server is ready without another one' ready first
# shellcheck disable=SC2086
start second --servers "$list" --as "$at:$port" $spaces
second=$pid
until_true 'and the other one is' ready second
is 'whose locks are elsewhere' grep -qF "a (10 of 'rpc'), b (10 of 'table', elsewhere)" "$work/second.out"
kill -HUP $first
kill -HUP $second
wait $second
is 'HUP ends a server with 0' [ $? = 0 ]
is 'and not where it is ignored, as under nohup' grep -q '^SigIgn:.*[13579bdf]$' /proc/$first/status
kill -INT $first
wait $first
is 'INT, too' [ $? = 0 ]

# ---- tables ----

bank="bank:cc=silo bank/accounts:bytes=8,records=1000 bank/log:bytes=100,records=10k,keys=top16,ordered"
# shellcheck disable=SC2086
start bank1 --servers "$list" --as 1 --json "$work/bank.json" $bank
first=$pid
waits() {
	grep -q "database 'bank' waits for $at:$port" "$work/bank1.err"
}
until_true 'a database waits for the other server' waits
is 'and is not ready before' sh -c "! grep -q ^ready: '$work/bank1.out'"
# shellcheck disable=SC2086
start bank2 --servers "$list" --as 2 $bank
second=$pid
until_true 'one server is ready' ready bank1
until_true 'and the other one' ready bank2
is 'what they say' grep -qF "lock spaces: none, databases: bank ('silo', 2 tables)" "$work/bank1.out"
if command -v jq >/dev/null; then
	json=$work/bank.json
	is_json 'and as JSON' '.databases | length == 1 and .[0].name == "bank" and .[0].cc == "silo" and
		.[0].coordinators == 64 and (.[0].tables | length == 2 and .[1].name == "log" and
		.[1].record_bytes == 100 and .[1].records == 10000 and .[1].keys == "top16" and .[1].ordered)'
else
	skip 'and as JSON' 'jq is not installed'
fi
client=$(dirname "$verbena")/../examples/example-ledger
if [ -x "$client" ]; then
	timeout 120 "$client" "$list" "$key" 100 >"$work/ledger.out" 2>"$work/ledger.err" </dev/null
	status=$?
	is 'a client opens what they have made, and moves money' [ $status = 0 ]
	is 'none of which is lost' grep -q 'all accounts have 1000' "$work/ledger.out"
else
	skip 'a client opens what they have made' "there is no $client"
fi
kill -TERM $first
kill -TERM $second
wait $first
is 'TERM ends a server of tables with 0' [ $? = 0 ]
wait $second
is 'and the other one' [ $? = 0 ]

# What one that has come back empty had of the database is lost: to start it once more would help nobody.
# shellcheck disable=SC2086
start again1 --servers "$list" --as 1 $bank
first=$pid
# shellcheck disable=SC2086
start again2 --servers "$list" --as 2 $bank
second=$pid
until_true 'both begin anew' ready again1
until_true 'the other one, too' ready again2
kill -9 $second
wait $second
# shellcheck disable=SC2086
start empty --servers "$list" --as 2 $bank
wait $pid
is 'one of them that comes back empty ends with 7' [ $? = 7 ]
is 'and says why' grep -q "database 'bank' is not whole: server 2" "$work/empty.err"
unit=$(dirname "$0")/../../examples/verbena-serve@.service
is 'with which a service manager lets it be' grep -qx 'RestartPreventExitStatus=7' "$unit"
kill -TERM $first
wait $first

# ---- a service manager ----

if command -v python3 >/dev/null; then
	timeout 60 python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
print("bound", flush=True)
print(s.recv(64).decode(), s.recv(64).decode(), flush=True)' "$work/notify" >"$work/notified" &
	manager=$!
	bound() {
		grep -q bound "$work/notified"
	}
	until_true 'the manager listens' bound
	NOTIFY_SOCKET=$work/notify
	export NOTIFY_SOCKET
	start told --servers "$servers"
	told=$pid
	unset NOTIFY_SOCKET
	until_true 'it is ready' ready told
	is 'a server without spaces' grep -qF 'lock spaces: none' "$work/told.out"
	kill -TERM $told
	wait $told
	wait $manager
	is 'a service manager is told' grep -qx 'READY=1 STOPPING=1' "$work/notified"
	timeout 60 python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
c = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
c.setblocking(False)
try:
    while True:
        c.sendto(b"x", sys.argv[1])
except BlockingIOError:
    print("bound", flush=True)
time.sleep(60)' "$work/deaf" >"$work/notified" &
	manager=$!
	pids="$pids $manager"
	until_true 'one that does not read listens' bound
	NOTIFY_SOCKET=$work/deaf
	export NOTIFY_SOCKET
	start deaf --servers "$servers"
	told=$pid
	unset NOTIFY_SOCKET
	cannot_tell() {
		grep -q 'cannot be told READY=1' "$work/deaf.err"
	}
	until_true 'a manager that does not read holds no server up' cannot_tell
	kill -TERM $told
	wait $told
	is 'and it ends' [ $? = 0 ]
	kill -9 $manager
else
	skip 'a service manager is told' 'python3 is not installed'
fi
finish
