#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# How fast transactions are on shared memory: `scripts/speed-txn.sh BUILD` prints the tables of
# doc/measuring-transactions.md, "Speed on shared memory".  About eight minutes on two idle cores,
# and 5 GiB: `mvcc` keeps four versions of each record.
#
# Each figure is the median of SPEED_ROUNDS runs (3).  What other work takes from the cores is taken out by
# the CPU share of each run: "per core" is commits a second, divided by the processors that the workers had.
set -eu

build=${1:?usage: scripts/speed-txn.sh BUILD}
verbena=$build/src/verbena
rounds=${SPEED_ROUNDS:-3}
span=${SPEED_DURATION:-1s}
records=${SPEED_RECORDS:-500k}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT INT TERM

# One row: what it is called, then the options.
row() {
	name=$1
	shift
	i=0
	: >"$out/row"
	while [ "$i" -lt "$rounds" ]; do
		"$verbena" bench txn "$@" --fabric shm --duration "$span" --json "$out/run.json" >/dev/null 2>"$out/err" || {
			cat "$out/err" >&2
			exit 1
		}
		jq -r '.runs[0] | [.goodput_txn_s, .cpu_share, (.goodput_txn_s / .cpu_share / (.nodes * .threads)),
			.cycles_per_txn * .cpu_share, .verbs_per_txn.all] | @tsv' "$out/run.json" >>"$out/row"
		i=$((i + 1))
	done
	sort -n -k 3 "$out/row" | sed -n "$(((rounds + 1) / 2))p" | awk -F '\t' -v name="$name" \
		'{ printf "| %s | %.0f | %.2f | %.0f | %.0f | %.0f |\n", name, $1 / 1e3, $2, $3 / 1e3, $4, $5 }'
}

head() {
	echo
	echo "| $1 | ktxn/s | CPU share | ktxn/s per core | cycles | verbs |"
	echo "|---|---:|---:|---:|---:|---:|"
}

common="--workload ycsb --ops 16 --theta 0.6 --write-ratio 0.5"

head "protocol, record, two processes"
for bytes in 8 1024; do
	for cc in silo no-wait sundial mvcc to cicada mocc; do
		# shellcheck disable=SC2086
		row "\`$cc\`, $bytes bytes" --cc $cc $common --nodes 2 --records "$records" --record-bytes $bytes \
			--recovery off --no-breakdown
	done
done

# Two processes share one warehouse, or four; each is as large as in the specification.
head "protocol, warehouses of TPC-C, payment and new-order alone, two processes"
for warehouses in 1 4; do
	for cc in silo no-wait mvcc to cicada mocc; do
		row "\`$cc\`, $warehouses" --cc $cc --workload tpcc --mix payment-new-order --nodes 1 --threads 2 \
			--warehouses $warehouses --recovery off --no-breakdown
	done
done

head "\`silo\`, 8 bytes, one process, coroutines"
for n in 1 2 4 8 16; do
	# shellcheck disable=SC2086
	row "$n" --cc silo $common --nodes 1 --records "$records" --record-bytes 8 --recovery off --no-breakdown \
		--coroutines $n
done

head "\`silo\`, 8 bytes, two processes, what else it does"
# shellcheck disable=SC2086
set -- --cc silo $common --nodes 2 --records "$records" --record-bytes 8
row "nothing" "$@" --recovery off --no-breakdown
row "recovery: a log and a commit point" "$@" --no-breakdown
row "recovery, stages timed" "$@"
row "recovery, history kept for the check" "$@" --no-breakdown --check
