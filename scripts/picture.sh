#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/picture.sh DIR >PICTURE.svg
#
# The picture of the README, drawn from results: DIR/sim.json (locks on a simulated cluster), DIR/peers.json
# (beside Redis and etcd) and DIR/locks.json (`verbena list --json`: who survives a death).  Bars begin at 0;
# the colours can be told apart by the colour-blind, and follow the reader's light or dark page.
set -eu
dir=${1:?usage: scripts/picture.sh DIR}

jq -rn --slurpfile sim "$dir/sim.json" --slurpfile peers "$dir/peers.json" --slurpfile list "$dir/locks.json" '
($list[0].locks | map({key: .name, value: (if .caps | index("survives") then "safe" else "lost" end)}) | from_entries) as $kinds |
def kind: $kinds[.] // "other";
def px: . * 10 | round / 10 | tostring;
def number: if . >= 1e6 then "\(. / 1e4 | round / 100) M" elif . >= 1e4 then "\(. / 1e3 | round) k"
	elif . >= 1e3 then "\(. / 100 | round / 10) k" else "\(round)" end;
# Rows {name, value}, one below the other; $w is what the longest bar takes.
def bars($x; $y; $w): (map(.value) | max) as $most | to_entries[] |
	($y + .key * 19) as $at | (.value.value / $most * $w) as $len | .value |
	"<text class=\"name\" x=\"\($x - 6)\" y=\"\($at + 11 | px)\" text-anchor=\"end\">\(.name)</text>",
	"<rect class=\"\(.name | kind)\" x=\"\($x)\" y=\"\($at | px)\" width=\"\([$len, 1] | max | px)\" height=\"14\" rx=\"2\"/>",
	"<text class=\"value\" x=\"\($x + $len + 5 | px)\" y=\"\($at + 11 | px)\">\(.value | number)</text>";
def head($x; $y; $title; $below): "<text class=\"head\" x=\"\($x)\" y=\"\($y)\">\($title)</text>",
	"<text class=\"below\" x=\"\($x)\" y=\"\($y + 16)\">\($below)</text>";
def case($locks): $peers[0].cases | map(select(.locks == $locks)) | max_by(.clients);
def rows: .rows | map(select(.lock | IN("etcd-nosync", "etcd-json", "etcd-put") | not) | {name: .lock, value: .ops_s}) | sort_by(-.value);
case(1) as $hot | case(100000) as $many | $sim[0].runs[0] as $run |
($sim[0].runs | map({name: .lock, value: .goodput_ops_s}) | sort_by(-.value)) as $simulated |
([64 + 19 * ($simulated | length), 92 + 19 * (($hot | rows | length) + ($many | rows | length))] | max) as $bottom |
"<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 900 \($bottom + 40)\" role=\"img\" font-family=\"system-ui, sans-serif\" font-size=\"12\">",
"<title>Locks of Verbena on a simulated cluster, and beside Redis and etcd: cycles of acquire and release per second</title>",
"<style>.name,.head{fill:#1f2328}.value,.below{fill:#59636e}.head{font-size:14px;font-weight:600}.safe{fill:#2f6fb0}.lost{fill:#d98a2b}.other{fill:#8c959f}",
"@media(prefers-color-scheme:dark){.name,.head{fill:#e6edf3}.value,.below{fill:#9198a1}.safe{fill:#5ba3e6}.lost{fill:#e0a352}.other{fill:#6e7681}}</style>",
head(8; 20; "Simulated cluster, \($run.clients) clients, \($run.profile) cards"; "acquire-release cycles/s, \($run.workload.read_ratio * 100) % shared, Zipf \($run.workload.theta), \($run.locks | number) locks"),
($simulated | bars(112; 52; 250)),
head(468; 20; "Beside Redis and etcd over TCP, \($hot.clients) clients"; "exclusive cycles/s on one machine; one hot lock"),
($hot | rows | bars(560; 52; 250)),
(52 + 19 * ($hot | rows | length) + 22) as $second |
"<text class=\"below\" x=\"468\" y=\"\($second)\">\($many.locks | number) locks</text>",
($many | rows | bars(560; $second + 12; 250)),
([["safe", "recovered after the death of a holder"], ["lost", "lost with its holder"], ["other", "not ours"]] | to_entries[] |
	[8, 262, 402][.key] as $x |
	"<rect class=\"\(.value[0])\" x=\"\($x)\" y=\"\($bottom + 16)\" width=\"12\" height=\"12\" rx=\"2\"/>",
	"<text class=\"value\" x=\"\($x + 18)\" y=\"\($bottom + 26)\">\(.value[1])</text>"),
"</svg>"'
