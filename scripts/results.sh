#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/results.sh [BUILD]
#
# Keeps the results of the last `make demo` (BUILD/demo-*.json), of the last bench/peers/run.sh
# (BUILD/peers.json, and BUILD/peers-busy.json if there is one) and of a run of `verbena bench fabric` in doc/results, and writes doc/results.md
# and the picture of the README from them.  For whoever changes what they show; needs jq.
set -eu
cd "$(dirname "$0")/.."
build=${1-build}
results=doc/results

mkdir -p "$results"
for name in shm tcp sim txn-shm txn-sim; do
	[ ! -f "$build/demo-$name.json" ] || jq -c . "$build/demo-$name.json" >"$results/$name.json"
done
for name in peers peers-busy; do
	[ ! -f "$build/$name.json" ] || jq -c . "$build/$name.json" >"$results/$name.json"
done
"$build/src/verbena" list --json | jq -c '{commit, locks: [.locks[] | {name, caps}]}' >"$results/locks.json"
"$build/src/verbena" bench fabric >"$build/fabric.txt" 2>"$build/fabric.err" || {
	cat "$build/fabric.err" >&2
	exit 1
}
mv "$build/fabric.txt" "$results/fabric.txt"
scripts/results-page.sh "$results" >doc/results.md
scripts/picture.sh "$results" >"$results/picture.svg"
