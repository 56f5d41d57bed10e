#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# verbena reproduce: the list, a run with its files and verdicts, what is missing, and an early end.
# verbena report: a page of them, and what it refuses.
. "$(dirname "$0")/lib.sh"

ok_json() { # FILE FILTER
	jq -e "$2" "$1"
}

page_has() { # TEXT
	grep -qF -- "$1" "$work/page.html"
}

page_lacks() { # PATTERN
	! grep -qE -- "$1" "$work/page.html"
}

# ---- the list ----

run reproduce
is 'the list: exit status 0' [ "$status" = 0 ]
is 'the list has the papers figures' grep -qx '  shiftlock/fig4' "$work/out"
is 'the list tells claims and their tiers' grep -q 'SHIFT-03 (A)' "$work/out"
is 'the list tells how long a run takes' grep -qE 'runs +[0-9]+, about [0-9]+ s' "$work/out"
refused 'an unknown paper' 2 'drls' reproduce drls/fig8 --out "$work/no"
refused 'an unknown figure' 2 '99 lists' reproduce dslr --figure 99 --out "$work/no"
refused 'a figure of no paper' 2 '--figure 8 which' reproduce --figure 8
touch "$work/file"
refused 'a folder that cannot be made' 2 "$work/file/in" reproduce dslr/sec4.5 --out "$work/file/in"
# Whose name is known comes as far as that.
refused 'the same, of a paper by its long name' 2 "$work/file/in" reproduce locks-of-thousands-of-cores --out "$work/file/in"

# ---- runs ----

run reproduce dslr --figure sec4.5 --quick --out "$work/out.d"
is 'a run: exit status 0' [ "$status" = 0 ]
is 'a run prints the claim with its verdict' grep -qE '^  DSLR-01 .* reproduced' "$work/out"
j=$work/out.d/dslr-sec4.5.json
is 'its JSON is of this kind' ok_json "$j" '.schema == 1 and .kind == "reproduce" and .experiment == "dslr/sec4.5"'
is 'its JSON has the run' ok_json "$j" '.points | length == 1 and .[0].run.lock == "dslr" and .[0].run.audit.violations == 0'
is 'the claim is reproduced' ok_json "$j" '.claims | length == 1 and .[0].id == "DSLR-01" and .[0].verdict == "reproduced"'
is 'and its checks have numbers' ok_json "$j" '[.checks[] | .ours, .paper_lo, .distance] | all(type == "number")'
is 'the CSV has a head and a row' [ "$(wc -l <"$work/out.d/dslr-sec4.5.csv")" = 2 ]
if command -v gnuplot >/dev/null; then
	is 'the figure is an SVG' grep -q '<svg' "$work/out.d/dslr-sec4.5-atomics.svg"
else
	skip 'the figure is an SVG' 'there is no gnuplot here'
fi

run reproduce shiftlock/sec2.3 --quick --jobs 2 --seed 3 --out "$work/out.d"
is 'another, two at once: exit status 0' [ "$status" = 0 ]
s=$work/out.d/shiftlock-sec2.3.json
is 'three runs, all with numbers' ok_json "$s" '[.points[].metrics.goodput] | length == 3 and all(. > 0)'
is 'retries cost what they cost' ok_json "$s" '.points | (map({(.system): .metrics.goodput}) | add) | ."CAS-NB" < ."CAS-B" and ."CAS-NB" < ."no retries"'
is 'as the artifact does: other options, and verdicts of its own' ok_json "$s" '.artifact | .options == "profile=cx5-card" and (.of | keys == ["CAS-B"]) and
	(.points | map({(.system): .options}) | add | ."CAS-B" | test("adapt=1ms") and test("profile=cx5-card")) and
	(.checks | length == 5 and all(.verdict | type == "string"))'
is 'every claim says what became of it there' ok_json "$s" '.claims | all(.as_artifact.verdict | type == "string")'
is 'and the table does' grep -qE '^  SHIFT-01 .* reproduced +(not reproduced|direction only|by construction) ' "$work/out"
cp "$s" "$work/first.json"
run reproduce shiftlock/sec2.3 --quick --jobs 1 --seed 3 --out "$work/out.d"
is 'the same seed gives the same numbers' [ "$(jq -c '[.points[].metrics]' "$s")" = "$(jq -c '[.points[].metrics]' "$work/first.json")" ]

run reproduce dslr/sec4.5 --quick --seeds 2 --seed 7 --markdown --out "$work/seeds.d"
is 'Markdown is a table' grep -qE '^\| DSLR-01 \|.*\| reproduced \|' "$work/out"
is 'two seeds are two runs' ok_json "$work/seeds.d/dslr-sec4.5.json" '.seeds == [7, 8] and (.checks | all(.by_seed | length == 2))'
is 'with their spread' ok_json "$work/seeds.d/dslr-sec4.5.json" '.points[0].spread.atomics == [2, 2] and all(.checks[]; .spread[0] <= .ours and .ours <= .spread[1])'
is 'few seeds are a first look' grep -q 'with 2 seeds: a first look' "$work/out"

# What cannot be run here: leases that are shorter than a verb may be late, in a column of their own.
run reproduce dslr --figure 17 --quick --out "$work/out.d"
is 'what is refused is said, and no error' [ "$status" = 0 ]
is 'and its checks are not run' ok_json "$work/out.d/dslr-fig17.json" '.switches[0].checks | length == 7 and all(.verdict == "not run")'
is 'with the reason' ok_json "$work/out.d/dslr-fig17.json" 'any(.switches[0].points[]; .not_run // "" | test("too short"))'
is 'what a switch finds is listed, and not counted' grep -q '^  DSLR-20 our protocol.*: not run: ' "$work/out"
is 'and the claim is judged as written' ok_json "$work/out.d/dslr-fig17.json" '[.claims[] | .verdict] | length == 1 and all(. != "not run")'

mkdir "$work/bin"
status=0
(PATH=$work/bin && "$verbena" reproduce dslr/sec4.5 --quick --out "$work/plain" >"$work/out" 2>"$work/err") || status=$?
is 'without gnuplot: exit status 0' [ "$status" = 0 ]
is 'without gnuplot: it says so' grep -q 'no gnuplot' "$work/err"
is 'without gnuplot: the numbers are there' [ -s "$work/plain/dslr-sec4.5.csv" ]

# What gnuplot is told.  The paper has 0.992 for CAS-NB, the second of three bars: in the middle.
cat >"$work/bin/gnuplot" <<'EOF'
#!/bin/sh
while IFS= read -r line; do printf '%s\n' "$line"; done >>"$VB_TEST_SCRIPT"
EOF
chmod +x "$work/bin/gnuplot"
status=0
(PATH=$work/bin && VB_TEST_SCRIPT=$work/script && export VB_TEST_SCRIPT &&
	"$verbena" reproduce shiftlock/sec2.3 --quick --seed 3 --out "$work/drawn" >"$work/out" 2>"$work/err") || status=$?
is 'figures: exit status 0' [ "$status" = 0 ]
point_of() { # BLOCK PATTERN: a line of it in the figure of retries
	sed -n '/retried.svg/,$p' "$work/script" | sed -n "/^[$]other$1 /,/^EOD/p" | grep -qE "$2"
}
is 'a figure has the papers point, where its bar is' point_of 1 '^0 0\.99[0-9]* .* 2$'
is 'and what the artifact does' point_of 0 '^0 0\.[0-9]+ .* 2$'
is 'the legend has both' grep -q 'title "as its artifact does"' "$work/script"
is 'and the paper' grep -q 'title "the paper"' "$work/script"
is 'a ratio has no point' [ "$(sed -n '/goodput.svg/,/retried.svg/p' "$work/script" | sed -n '/^$other1 /,/^EOD/p' | wc -l)" = 2 ]

# Interrupted: it leaves what it has.
"$verbena" reproduce shiftlock/fig4 --scale 100 --jobs 1 --out "$work/cut" >"$work/out" 2>"$work/err" &
pid=$!
until_true 'a running reproduction makes its folder' test -d "$work/cut"
kill -INT "$pid"
status=0
wait "$pid" || status=$?
is 'interrupted: exit status 130' [ "$status" = 130 ]
is 'interrupted: the JSON is whole and says so' ok_json "$work/cut/shiftlock-fig4.json" '.interrupted and (.claims | all(.verdict == "not run" or .verdict == "not reproduced"))'

# A worker that is killed is no missing lock: the others' results stand, and the exit status tells.
"$verbena" reproduce shiftlock/fig4 --scale 100 --jobs 1 --out "$work/killed" >"$work/out" 2>"$work/err" &
pid=$!
worker=
has_another() { # a child, and not the one before
	next=$(cat "/proc/$pid/task/$pid/children") && [ -n "$next" ] && [ "$next" != "$worker" ]
}
until_true 'it has a worker' has_another
worker=$next
kill -KILL "${worker% }"
until_true 'a killed worker is followed by the next' has_another
kill -INT "$pid"
status=0
wait "$pid" || status=$?
is 'a worker was killed: exit status 1' [ "$status" = 1 ]
is 'a worker was killed: it says with which options' grep -q 'signal 9: .*lock=shiftlock' "$work/err"

# ---- the page ----

"$verbena" bench lock --fabric sim --lock cas,mcs --duration 1ms --json "$work/lock.json" >/dev/null
"$verbena" bench txn --fabric sim --cc silo --records 1k --duration 200us --json "$work/txn.json" >/dev/null 2>&1
"$verbena" bench lock --fabric sim --lock cas --workload tatp --duration 1ms --json "$work/trace.json" >/dev/null
run report --out "$work/page.html" "$j" "$s" "$work/lock.json" "$work/txn.json" "$work/trace.json" --title 'a <b> & "c"'
is 'a page: exit status 0' [ "$status" = 0 ]
is 'it has every file' [ "$(grep -c '^<h2>' "$work/page.html")" = 5 ]
is 'it has transactions of a trace' page_has '<th>locks each</th>'
is 'it has figures' page_has '<svg'
is 'a first look is told' page_has 'Runs of 0.1 of their time with 1 of 5 seeds: a first look, not a verdict.'
is 'it needs nothing else' page_lacks 'src=|href=|<script|<link|@import|url\('
is 'the title is escaped' page_has '<title>a &lt;b&gt; &amp; &quot;c&quot;</title>'
# Runs that were shortened have no verdict, whatever they say.
jq '(.claims, .checks)[].verdict = "not reproduced"' "$j" >"$work/quick.json"
run report --out "$work/page.html" "$work/quick.json"
is 'a first look is no red verdict' page_lacks 'class="failed"|class="reproduced"|<th>verdict'
jq '.scale = 1' "$work/quick.json" >"$work/full.json"
run report --out "$work/page.html" "$work/full.json"
is 'one seed is a first look, too' page_lacks 'class="failed"|class="reproduced"|<th>verdict'
jq '.scale = 1 | .seeds = [1, 2, 3, 4, 5]' "$work/quick.json" >"$work/full.json"
run report --out "$work/page.html" "$work/full.json"
is 'a whole run is' page_has '<td class="failed">not reproduced</td>'
is 'a whole run is no first look' page_lacks 'first look'
jq '.scale = 1 | .seeds = [1, 2, 3, 4, 5]' "$j" >"$work/full.json"
run report --out "$work/page.html" "$work/full.json"
is 'it has verdicts' page_has '<td class="reproduced">reproduced</td>'
jq '.scale = 1 | .seeds = [1, 2, 3, 4, 5] | .claims[0] |= (.verdict = "by construction" | .by_construction = "set by it")' \
	"$j" >"$work/full.json"
run report --out "$work/page.html" "$work/full.json"
is 'what could not fail has no colour, and its reason' page_has '<td class="notrun">by construction</td><td>set by it</td>'

# What tells runs apart, and what was found.
"$verbena" bench txn --fabric sim --cc silo --hybrid both --records 1k --duration 200us --check \
	--json "$work/both.json" >/dev/null 2>&1
run report --out "$work/page.html" "$work/both.json"
is 'stages by RPC are in the name' page_has '<td>silo 00000</td>'
is 'in both' page_has '<td>silo 11111</td>'
is 'and in the figures' [ "$(grep -c '>ktxn/s, silo 11111: ' "$work/page.html")" = 1 ]
is 'it was serializable' page_has '<td class="reproduced">yes</td><td class="reproduced">holds</td>'
jq '.runs[0].check |= (.serializable = false | .first = "G2") | .runs[0].invariant |= (.holds = false | .why = "a sum") |
	.runs[1].check = null | .runs[1].invariant |= (.holds = null | .judged = false | .why = "who knows")' \
	"$work/both.json" >"$work/found.json"
run report --out "$work/page.html" "$work/found.json"
is 'it was not' page_has '<td class="failed">no</td><td class="failed">broken</td>'
is 'it was not: what was found' page_has '<p class="failed">silo 00000 is not serializable: G2</p>'
is 'it was not: the invariant' page_has 'silo 00000: the invariant is broken: a sum'
is 'nobody looked' page_has '<td class="notrun">not checked</td><td class="notrun">not judged</td>'
is 'nobody looked: why' page_has 'silo 11111: the invariant was not judged: who knows'
jq '.runs[0] |= (.lost = 97 | .recoveries = 31 | .unfinished = 228 | .workload.theta = 0.98999999999999999 |
	.latency_us.acquire_shared |= (.count = 0 | .p50 = 0 | .p99 = 0) | .latency_us.acquire_exclusive.count = 52)' \
	"$work/lock.json" >"$work/counts.json"
run report --out "$work/page.html" "$work/counts.json"
is 'lost grants and recoveries' page_has '<td>228</td><td>97</td><td>31</td>'
is 'lost grants and recoveries: columns' page_has '<th>unfinished</th><th>grants lost</th><th>recoveries</th>'
is 'percentiles of no sample are dashes' page_has '<td>0</td><td>-</td><td>-</td><td>52</td>'
is 'numbers are rounded' page_has 'theta <code>0.99</code>'
is 'and have their unit' page_lacks 'lease_ns'
jq '.runs[0].lock = "<script>alert(1)</script>" | .argv += ["<img onerror=x>"]' "$work/lock.json" >"$work/evil.json"
run report --out "$work/page.html" "$work/evil.json"
is 'what comes in a file is escaped' page_has '&lt;script&gt;alert(1)'
is 'in the command line, too' page_lacks '<script|<img'
jq '.runs[0].latency_us = "?" | .runs[0].goodput_ops_s = [] | .host = 3 | .argv = {}' "$work/lock.json" >"$work/odd.json"
run report --out - "$work/odd.json"
is 'fields of another kind are dashes' [ "$status" = 0 ]
is 'the page may go to stdout' grep -q '^</html>' "$work/out"

echo '{"schema": 1,' >"$work/bad.json"
refused 'a file that is no JSON' 2 "bad.json line no" report --out "$work/x.html" "$work/bad.json"
echo '{"schema": 1, "tool": "verbena", "runs": []}' >"$work/none.json"
refused 'a file without results' 2 "none.json no" report --out "$work/x.html" "$work/none.json"
jq '.schema = 2' "$work/lock.json" >"$work/later.json"
refused 'a schema of the future' 2 "later.json schema" report --out "$work/x.html" "$work/later.json"
refused 'a file that is not there' 2 "$work/nowhere.json" report --out "$work/x.html" "$work/nowhere.json"
refused 'no file' 2 'which' report
is 'and no page was written' [ ! -e "$work/x.html" ]
finish
