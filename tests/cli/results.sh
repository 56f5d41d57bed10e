#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Results: tables for people, JSON for programs, also of interrupted and of stalled runs.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'results' 'jq is not installed'
	finish
	exit 0
fi

head_filter='.schema == 1 and .tool == "verbena" and (.version | test("^[0-9]")) and
	(.commit | type == "string") and (.argv | length > 2) and (.host | type == "object")'
run_filter='(.ops | . > 0) and (.goodput_ops_s | . > 0) and .failed == 0 and
	(.duration_s > 0) and (.latency_us.acquire_exclusive | .min <= .p50 and .p50 <= .p99 and
	.p99 <= ."p99.9" and ."p99.9" <= .max) and (.latency_us.release.p50 >= 0) and
	([.verbs_per_op | .atomic, .read, .write, .send, .retry] | all(type == "number")) and
	([.breakdown_us | .IA, .RT, .NP, .WP, .WR, .WW, .NS] | length == 7) and
	.audit.checked_ops > 0 and .audit.violations == 0'

run list --json
locks=$(jq -c '[.locks[].name]' "$work/out")
n_locks=$(echo "$locks" | jq length)
# A machine with other work may give a process no core for longer than a lease, or than a short span: such
# leases are not lost, and such a span is repeated.
for span in 100ms 3s; do
	run bench lock --lock all --fabric shm --procs 2 --clients 4 --locks 1k --dist zipf:0.99 \
		--read-ratio 0.5 --duration $span --lease 2s --seed 7 --json "$json"
	[ "$status" = 0 ] || break
	holds '.runs | all(.ops > 0)' && break
done
is 'shm: exit status 0' [ "$status" = 0 ]
is_json 'shm: the head' "$head_filter and .seed == 7"
is_json 'shm: a run for each lock' "[.runs[].lock] == $locks and $n_locks > 6"
is_json 'shm: what each run has' ".runs | all($run_filter)"
is_json 'shm: the plan' '.runs | all(.kind == "lock" and .fabric == "shm" and .clients == 4 and
	.locks == 1000 and .workload.dist == "zipf" and .workload.theta == 0.99 and
	.workload.read_ratio == 0.5)'
is 'shm: a line for each lock' [ "$(grep -cE "^($(echo "$locks" | jq -r 'join("|")')) " "$work/out")" = "$n_locks" ]
is 'shm: no progress off a terminal' [ "$(grep -vc 'lost: the lease of' "$work/err")" = 0 ]

run bench lock --lock all --fabric sim --profile cx5 --nodes 3 --clients 24 --locks 100k \
	--duration 2ms --seed 7 --json "$json"
is 'sim: exit status 0' [ "$status" = 0 ]
is_json 'sim: what each run has' ".runs | length == $n_locks and all($run_filter)"
is_json 'sim: uncontended costs: 2 atomics, mostly' \
	'.runs | map(select(.lock == "dslr" or .lock == "shiftlock")) |
	all(.verbs_per_op.atomic > 1.9 and .verbs_per_op.atomic < 2.5)'
is_json 'sim: what dslr goes by: omega is auto, an eighth of the round trip' \
	'.runs[] | select(.lock == "dslr") | .lock_options.omega_ns == null and
	.lock_options.count_max > 1000 and .rtt_ns > 500 and .rtt_ns < 10000'
is_json 'sim: a lock without options has none' '.runs[] | select(.lock == "cas") | .lock_options == {}'
cp "$json" "$work/first.json"
run bench lock --lock dslr --fabric sim --clients 4 --lock-options omega=5us,slots=2 --duration 1ms --json "$json"
is_json 'sim: options that were given' '.runs[0].lock_options | .omega_ns == 5000 and .slots == 2'
run bench lock --lock dslr,shiftlock --fabric sim --profile cx5 --nodes 3 --clients 24 --locks 100k \
	--duration 2ms --seed 7 --json "$json"
same() {
	a=$(jq -S '[.runs[] | select(.lock == "dslr") | .ops, .latency_us, .verbs_per_op]' "$json")
	b=$(jq -S '[.runs[] | select(.lock == "dslr") | .ops, .latency_us, .verbs_per_op]' \
		"$work/first.json")
	[ -n "$a" ] && [ "$a" = "$b" ]
}
is 'sim: the same seed gives the same figures' same
# The same load on the whole card is another one, and with its effects off the same again.
run bench lock --lock dslr,shiftlock --fabric sim --profile cx5-card --nodes 3 --clients 24 --locks 100k \
	--duration 2ms --seed 7 --json "$json"
others() {
	[ "$status" = 0 ] && ! same
}
is 'sim: effects are seen' others
run bench lock --lock dslr,shiftlock --fabric sim --profile cx5-card --nodes 3 --clients 24 --locks 100k \
	--fabric-options without=atomics-unit+answer-wire+port-wire+messages+in-order+busy-word+core+outstanding+own-node --duration 2ms --seed 7 --json "$json"
is 'sim: switched off, they are not' same
is_json 'sim: what was off' '.runs[0].fabric_options == "without=atomics-unit+answer-wire+port-wire+messages+in-order+busy-word+core+outstanding+own-node"'
run bench lock --lock cas --fabric sim --profile cx5 --fabric-options without=atomics-unit
is 'sim: an effect that is not there cannot be off' [ "$status" = 2 ]

# A paper's machines, and what comes behind them.
run bench lock --lock cas --testbed shiftlock --locks 10k --duration 1ms --json "$json"
is_json 'testbed: the machines of the paper' '.runs[0] | .fabric == "sim" and .profile == "cx5-card" and
	.nodes == 6 and .servers == 1 and .clients == 240 and .lease_ns == 10000000'
run bench lock --lock cas --clients 7 --testbed rcbench --nodes 2 --servers 2 --fabric-options cores=3 --locks 10k \
	--duration 1ms --json "$json"
is_json 'testbed: an option behind it counts, one before it does not' '.runs[0] | .nodes == 2 and .servers == 2 and
	.clients == 768 and .fabric_options == "cores=3" and .profile == "cx5-card"'
for testbed in dslr rcc thousands-of-cores; do
	run bench lock --lock cas --testbed $testbed --locks 10k --duration 500us --json "$json"
	is "testbed: locks on $testbed" [ "$status" = 0 ]
done
for testbed in rcc thousands-of-cores rcbench; do
	run bench txn --cc no-wait --testbed $testbed --records 10k --duration 500us --json "$json"
	is "testbed: transactions on $testbed" [ "$status" = 0 ]
done
is_json 'testbed: of transactions' '.runs[0] | .threads == 24 and .coroutines == 8 and .fabric_options == "cores=24"'
run bench txn --testbed dslr
is 'testbed: a paper of locks has none for transactions' [ "$status" = 2 ]

# Each profile beside what has been published: ratios that follow from the two, and every effect off.
run bench fabric --only model --json "$json"
is 'model: exit status 0' [ "$status" = 0 ]
profiles=$("$verbena" list --json | jq -c '[.profiles[].name]')
is_json 'model: every profile, everything measured' "([.runs[].profile] | unique) == ($profiles | sort) and
	(.runs | all(.section == \"model\" and .value > 0))"
is_json 'model: what was published has its source, and a ratio that is so' '[.runs[] |
	select(.published != null)] | length > 40 and all(.published as $p | ($p.source | length > 4) and
	((if .value < $p.low then .value / $p.low elif $p.high != null and .value > $p.high
	then .value / $p.high else 1 end) - $p.ratio | fabs < 1e-6))'
is_json 'model: what was calibrated says by which number' '[.runs[] | select(.profile == "cx5-card") |
	.published.sets // empty] | unique == ["answer_byte_ps", "atomic128_ns", "atomics_unit_ns",
	"hear_ns", "inbound_ns", "port_byte_ps", "word64_busy_ns", "word_ns"]'
is_json 'model: ... and how' '[.runs[] | select(.published.sets != null).published.ground] | unique ==
	["calibrated", "data sheet", "derived", "measured"]'
is_json 'model: no profile without an effect has its parameter' '[.runs[] | select(.profile == "cx5") |
	.published.sets // empty] | unique == ["atomic128_ns", "inbound_ns", "word64_busy_ns"]'
is_json 'model: each effect of each card, off' '[.runs[] | select(.name | test("^without [^_]*$")) |
	.profile + .name] | length == 24 and (unique | length == 24)'
is_json 'model: ... and each parameter of one that has several, which is less than all of them' \
	'[.runs[] | select(.profile == "cx5-card" and (.name | test("handover|^without .*(messages|_)"))) | [.name, .value]] |
	(map(.[0]) | .[1:] == ["without messages", "without connect_ns", "without hear_ns", "without recv_ns",
	"without send_waits"]) and (map(.[1]) | .[1] < (.[2:] | min) and .[0] >= (.[2:] | max))'
is_json 'model: a delay of a microsecond is one for each request' '([.runs[] | {(.profile + " " + .name): .value}] | add) as $v |
	[.runs[] | select(.name == "READ of 8 B, delay=1us") | .value - $v[.profile + " READ of 8 B"] - 1 | fabs < 1e-6] |
	length > 6 and all'
is_json 'model: a card gets no faster when an effect is on, but for its words and its own memory' '[.runs | . as $r | keys[] |
	select($r[.].name | test("^without [^_]*$")) | select($r[.].name | IN("without busy-word", "without own-node") | not) |
	($r[. - 1].value <= $r[.].value) != ($r[.].unit == "us")] | all'

# A hold of two leases and a half, by default ten milliseconds each.
run bench lock --lock dslr --lock-options slots=4 --fabric sim --profile cx5 --nodes 3 --clients 8 \
	--locks 10 --hold 25ms --duration 300ms --json "$json"
is 'slots: exit status 0' [ "$status" = 0 ]
is_json 'slots: nobody loses a lock that he holds for longer than a lease' \
	'.runs[0] | .ops > 0 and .lost == 0 and .audit.violations == 0'

run bench lock --lock cas --fabric sim --nodes 2 --clients 4 --locks 1k --rate 100k --duration 5ms \
	--json "$json"
is_json 'open loop: service times, and response times that are no shorter' '.runs[0].latency_us |
	.response_exclusive.count > 0 and .response_exclusive.mean >= .acquire_exclusive.mean and
	.response_exclusive.p50 >= .acquire_exclusive.p50'

# Clients that forget to release: recovered from, and nobody is wronged by it.
run bench lock --lock dslr,shiftlock,rpc --fabric sim --nodes 3 --clients 48 --locks 100 \
	--fail-rate 0.001 --lease 2ms --duration 60ms --json "$json"
is 'skipped releases: exit status 0' [ "$status" = 0 ]
is_json 'skipped releases: recovered, without violation' \
	'.runs | length == 3 and all(.skipped_releases > 0 and .audit.violations == 0 and .ops > 0)'

# Interrupted, at whatever moment: what there is, valid, exit status 130.
"$verbena" bench lock --lock cas,dslr --procs 2 --clients 4 --duration 60s --segment "interrupted-$$" \
	--json "$json.int" >"$work/out" 2>"$work/err" </dev/null &
pid=$!
tries=0
while [ "$(pgrep -c -P $pid)" -lt 2 ] && [ $tries -lt 600 ]; do
	sleep 0.1
	tries=$((tries + 1))
done
kill -INT $pid
wait $pid
status=$?
json=$json.int
is 'interrupted: exit status 130' [ "$status" = 130 ]
is_json 'interrupted: the JSON is whole' "$head_filter and .runs[0].lock == \"cas\""
is 'interrupted: no shared memory is left' [ ! -e "/dev/shm/verbena.interrupted-$$" ]

# As timeout(1) does it: its child, and at once the whole group, workers and all.  That is one end, before the run as
# in it; a later attempt meets it later, until one has met it in the run.
for fabric in shm tcp; do
	json=$work/$fabric.both.json
	attempt=0 ends=0 unharmed=0 alone=0
	while :; do
		setsid "$verbena" bench lock --fabric $fabric --lock dslr --procs 2 --clients 4 --duration 60s \
			--json "$json" >"$work/out" 2>"$work/err" </dev/null &
		pid=$!
		tries=0
		while [ "$(pgrep -c -P $pid)" -lt 1 ] && [ $tries -lt 600 ]; do
			sleep 0.1
			tries=$((tries + 1))
		done
		sleep $((attempt / 4)).$((attempt % 4 * 25))
		kill -TERM $pid
		env true # so that the first has arrived
		kill -TERM -$pid
		wait $pid
		[ $? != 130 ] || ends=$((ends + 1))
		attempt=$((attempt + 1))
		if jq -e "$head_filter and .interrupted and (.runs | all(.stalled == null and .workers_killed == 0))" \
			"$json" >/dev/null; then
			unharmed=$((unharmed + 1))
		fi
		[ "$(ls "$json"*)" != "$json" ] || alone=$((alone + 1))
		[ "$(jq '.runs | length' "$json")" = 0 ] && [ $attempt -lt 60 ] || break
	done
	is 'a group is told to end: exit status 130' [ "$ends" = "$attempt" ]
	is 'a group is told to end: nobody has died of it' [ "$unharmed" = "$attempt" ]
	is 'a group is told to end: nothing else is left' [ "$alone" = "$attempt" ]
	is_json 'a group is told to end: in a run, too' '.runs | length == 1'
done

# A lock without recovery whose holder is killed: the dead holder is named, exit status 4.  Which of
# the two workers holds is chance, so a few attempts.
attempt=0
status=0
json=$work/stall.json
# 130: nobody died with the lock, and the run was interrupted in the end.  Anything else stands.
while { [ $attempt = 0 ] || [ "$status" = 130 ]; } && [ $attempt -lt 16 ]; do
	attempt=$((attempt + 1))
	"$verbena" bench lock --lock cas --procs 2 --clients 4 --locks 1 --read-ratio 0 --hold 20ms \
		--duration 20s --stall-after 500ms --json "$json" >"$work/out" 2>"$work/err" \
		</dev/null &
	pid=$!
	tries=0
	while [ "$(pgrep -c -P $pid)" -lt 2 ] && [ $tries -lt 600 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	sleep 0.3 # a head start only: killed too early or late, the attempt is made again
	pkill -9 -n -P $pid
	tries=0
	while kill -0 $pid 2>/dev/null && [ $tries -lt 30 ]; do
		sleep 0.1
		tries=$((tries + 1))
	done
	kill -INT $pid 2>/dev/null
	wait $pid
	status=$?
done
is 'a dead holder: exit status 4' [ "$status" = 4 ]
is 'a dead holder: is named' grep -qE 'client [0-9]+ .*died holding lock 0' "$work/out" "$work/err"
is_json 'a dead holder: the results stand' '.runs[0].stalled == true or .runs[0].stalled != null'

run list --json
cp "$work/out" "$work/list.json"
json=$work/list.json
is_json 'list: locks with their caps' '.locks | length > 0 and all(.name and (.caps | length > 0))'
is 'list: nobody without caps' [ "$("$verbena" list | grep -cE '^ +caps *$')" = 0 ]
# A lock without a page and a page without a lock are both forgotten.
pages=$(cd "$(dirname "$0")/../../doc/locks" && ls | sed -n 's/\.md$//p' | grep -vx README | sort)
listed=$(jq -r '.locks[].name | select(endswith("-as-published") | not)' "$json" | sort)
is 'list: the locks are those with a page in doc/locks' [ "$pages" = "$listed" ]
page=$(cd "$(dirname "$0")/../../doc" && pwd)/checking.md
forgotten=$(jq -r '(.planted + .cc_planted)[].name | ltrimstr("planted:")' "$json" |
	while read -r name; do grep -q "^| \`$name\` |" "$page" || echo "$name"; done)
is 'list: each planted bug has a row in doc/checking.md' [ -z "$forgotten" ]
is 'list: what an entry takes on more nodes' \
	[ "$("$verbena" list | grep -cE 'entry +32 bytes on 1 node, 152 on 6')" -ge 1 ]
is_json 'list: planted bugs and their rules' '.planted | length >= 5 and all(.planted_for)'
is_json 'list: the round trips that pauses begin with' \
	'([.fabrics[] | select(.name == "sim").rtt_ns] == [null]) and (.profiles | all(.rtt_ns > 2 * .one_way_ns)) and
	([.fabrics[] | select(.name != "sim").rtt_ns] | all(. > 0))'
is 'list: options that follow them' [ "$("$verbena" list | grep -c 'eighth of the round trip')" -ge 2 ]
is_json 'list: fabrics and profiles' '([.fabrics[].name] | index("shm") != null and
	index("sim") != null) and (.profiles | all(.sources))'
is_json 'list: each number of a profile with its source' '.profiles | all(. as $p | .grounds |
	length >= 16 and all(.ground and .source) and (keys | all($p[.] != null)))'
is 'list: effects by name' [ "$("$verbena" list | grep -c 'atomics-unit: ')" = 3 ]

is_json 'list: protocols with their stages, and workloads' '([.cc[].name] | index("silo") != null) and
	(.cc | length >= 9 and all(.stages | length > 0)) and
	([.workloads[].name] == ["ycsb", "ycsb-e", "smallbank", "bank", "tatp", "tpcc"])'

json=$work/check.json
run check lock --lock dslr --seeds 5 --json "$json"
is 'check: exit status 0 when nothing is found' [ "$status" = 0 ]
is_json 'check: JSON' "$head_filter"' and .runs[0].violations == 0 and .runs[0].seeds == 5'
run check lock --lock planted:double-grant --seeds 200 --json "$json"
is 'check: exit status 3 when something is found' [ "$status" = 3 ]
is_json 'check: the rule and the replay' '.runs[0].first_violation |
	.rule == "mode-conflict" and (.replay | startswith("verbena check lock"))'
seed=$(jq -r '.runs[0].first_violation.seed' "$json")
run check lock --lock planted:double-grant --seed "$seed"
is 'check: the replay finds it again' [ "$status" = 3 ]
run check lock --lock planted:never-too-late --beyond --seeds 20 --json "$json"
is 'check: exit status 3 when something is found beyond what is survived' [ "$status" = 3 ]
is_json 'check: late verbs are counted, and the replay goes beyond, too' '.runs[0] | .faults.late_verbs > 0 and
	(.first_violation | .rule == "wrong-error" and (.replay | test("never-too-late --beyond --seed")))'

run check litmus --lock mcs --world writers --json "$json"
is 'litmus: exit status 0 when nothing is found' [ "$status" = 0 ]
is_json 'litmus: all orders of a small world' '.runs[0] | .exhausted and .found == 0 and .runs > 3'
run check litmus --lock planted:double-grant --world writers --json "$json"
is 'litmus: exit status 3 when something is found' [ "$status" = 3 ]
is_json 'litmus: the rule' '.runs[0].rule == "mode-conflict"'
# shellcheck disable=SC2046 # a line of words, the first of which is the program
run $(jq -r '.runs[0].replay | sub("^verbena "; "")' "$json")
is 'litmus: the replay finds it again' [ "$status" = 3 ]
is 'litmus: and tells it step by step' grep -q '0 of 2 *node 1: read' "$work/out"
# A bug is planted by the name of a rule, or of an anomaly.
run check litmus --cc planted:lost-undo --world dirty-read --json "$json"
is 'litmus: an anomaly: exit status 3' [ "$status" = 3 ]
is_json 'litmus: an anomaly, by its name' '.runs[0] | .rule == "G1a" and .planted == .rule'

run doctor
is 'doctor: runs' [ "$status" = 0 ]
run version
is 'version' grep -qE '^verbena [0-9]+\.[0-9]+\.[0-9]+' "$work/out"
finish
