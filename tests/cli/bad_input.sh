#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Bad input ends in one clear line and a documented exit status, and leaves nothing behind.
. "$(dirname "$0")/lib.sh"

refused 'unknown command' 2 "frobnicate" frobnicate
refused 'misspelt command' 2 "bench lock" bench lokc
refused 'unknown option' 2 "clinets clients" bench lock --clinets 3
refused 'unknown lock, with a suggestion' 2 "dslrr 'dslr'" bench lock --lock dslrr
refused 'unknown lock to check' 2 "planted:nope" check lock --lock planted:nope
refused 'unknown fabric' 2 "sin shm|sim" bench lock --fabric sin
refused 'unknown profile' 2 "cx9 'cx5'" bench lock --fabric sim --profile cx9
refused 'a profile among the options' 2 "'bound=9us,profile=cx4' --profile" bench lock --fabric sim \
	--fabric-options bound=9us,profile=cx4
refused 'zero clients' 2 "--clients 0" bench lock --clients 0
refused 'fewer clients than processes' 2 "2 4" bench lock --clients 2 --procs 4
refused 'zero locks' 2 "--locks 0" bench lock --locks 0
refused 'theta below its range' 2 "zipf:-0.5" bench lock --dist zipf:-0.5
refused 'theta above its range' 2 "zipf:99" bench lock --dist zipf:99
refused 'no such distribution' 2 "normal uniform" bench lock --dist normal
refused 'read ratio out of range' 2 "--read-ratio 1.5" bench lock --read-ratio 1.5
refused 'a time without a unit' 2 "--duration 5 ms" bench lock --duration 5
refused 'a size that is none' 2 "--locks many" bench lock --locks many
refused 'a word too many' 2 "surplus words help" doctor surplus
refused 'a lock without its option' 2 "--lock dslr" bench lock dslr
refused 'a lock to check without its option' 2 "--lock dslr" check lock dslr
refused 'a lock for small worlds without its option' 2 "--lock dslr" check litmus dslr
refused 'a small world that is none' 2 "writres 'writers'" check litmus --world writres
refused 'a schedule of many worlds' 2 "--schedule --world" check litmus --schedule 0.1
refused 'an unknown protocol for small worlds' 2 "sillo 'silo'" check litmus --cc sillo
refused 'a lock that no such world is for' 2 "fits" check litmus --lock cas --world convert
refused 'a protocol without its option' 2 "--cc silo" bench txn silo
refused 'a trace without its option' 2 "--trace nosuch" trace stat nosuch
refused 'one name of the list' 2 "dslr everything less" list dslr
refused 'a JSON path that cannot be written' 2 "/nowhere/at/all.json" \
	bench lock --json /nowhere/at/all.json
refused 'locks that do not fit in memory' 6 "MiB" bench lock --locks 100g
refused 'a segment name with a slash' 2 "a/b" bench lock --segment a/b --duration 10ms
refused 'a lease that is too short' 2 "--lease" bench lock --lease 1ns
refused 'no seeds' 2 "--seeds 0" check lock --seeds 0
refused 'beyond what is survived, of a lock that survives nothing' 2 "--beyond" check lock --lock cas --beyond

# A verb that no column has would be missed in none.
run bench lock --lock table --fabric sim --clients 4 --duration 1ms
is 'each kind of verb has its column' grep -qE '^table .* 0\.000  0\.000  2\.[0-9]{3}  0\.000  0\.000 +0 +0$' "$work/out"

# The option of another command's.
refused 'a protocol option that it lacks' 2 "omegaa omega" \
	bench lock --lock dslr --lock-options omegaa=1us --duration 10ms

# Usage goes to stderr when it was not asked for, and to stdout when it was.
run
is 'no command: exit status 2' [ "$status" = 2 ]
is 'no command: usage on stderr' grep -q '^Usage' "$work/err"
run --help
is 'help: exit status 0' [ "$status" = 0 ]
is 'help: usage on stdout' grep -q '^Usage' "$work/out"
run help bench
is 'help of a first word: exit status 0' [ "$status" = 0 ]
is 'help of a first word: its commands' grep -q '^  bench txn ' "$work/out"
refused 'help of no command' 2 "benhc" help benhc
for command in 'bench lock' 'bench txn' 'bench fabric' 'check lock' 'check history' list doctor version; do
	# shellcheck disable=SC2086
	run $command --help
	is "help of $command" grep -q "verbena $command" "$work/out"
done
finish
