#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# What `make demo` does: installs, builds, and runs the main jobs, locks and then transactions, on this machine's
# shared memory, between processes over TCP if UCX is there (locks), and on a simulated cluster.  BUILD
# names the build directory.
set -eu
cd "$(dirname "$0")/.."
build=${BUILD-build}

scripts/deps.sh build
# No more than is run: where cmocka is installed the tests would take as long again.
VERBENA_BUILD_TARGETS=src/verbena scripts/build.sh "$build" -Dtests=auto
verbena=$build/src/verbena

run() {
	echo
	echo "\$ $*"
	"$@"
}

run "$verbena" bench lock --lock all --fabric shm --procs 2 --clients 8 --locks 100k \
	--dist zipf:0.99 --read-ratio 0.5 --duration 2s --json "$build/demo-shm.json"
if "$verbena" doctor --need tcp >"$build/doctor.txt" 2>&1; then
	run "$verbena" bench lock --lock all --fabric tcp --procs 3 --clients 8 --locks 100k \
		--dist zipf:0.99 --read-ratio 0.5 --duration 1s --json "$build/demo-tcp.json"
else
	rm -f "$build/demo-tcp.json"
	echo
	echo "No run over TCP: $verbena doctor says why."
fi
run "$verbena" bench lock --lock all --fabric sim --profile cx5 --nodes 6 --clients 240 --locks 10m \
	--dist zipf:0.99 --read-ratio 0.5 --json "$build/demo-sim.json"
run "$verbena" bench txn --cc all --fabric shm --nodes 2 --threads 1 --coroutines 8 --workload ycsb \
	--records 100k --theta 0.6 --write-ratio 0.5 --duration 500ms --check \
	--json "$build/demo-txn-shm.json"
run "$verbena" bench txn --cc all --fabric sim --nodes 4 --threads 4 --coroutines 4 --workload ycsb \
	--records 40k --theta 0.6 --write-ratio 0.5 --duration 1ms --check \
	--json "$build/demo-txn-sim.json"

echo
echo "The same as JSON: $build/demo-*.json."
echo "What the numbers mean: doc/measuring.md, doc/measuring-transactions.md.  What else there is: $verbena --help"
