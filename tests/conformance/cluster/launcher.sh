#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A cluster whose processes mpirun starts: ranks and the root's address come through PMIx.
# usage: launcher.sh BINARY [WHY-NOT]     WHY-NOT: built without PMIx
bin=$1 why=$2
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-launcher.XXXXXX")
trap 'rm -rf "$work"' EXIT
n=0

# Root may run it, and there may be fewer cores than processes.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
export OMPI_MCA_rmaps_base_oversubscribe=1 OMPI_MCA_hwloc_base_binding_policy=none
export PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1
# Two that begin or end at the same time take a directory in the common one away from each other.
export TMPDIR="$work"
unset PMIX_RANK PMIX_NAMESPACE

case_is() { # NAME CONDITION...
	name=$1
	shift
	n=$((n + 1))
	if "$@" >/dev/null 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		tail -n 30 "$work/out" "$work/err" | sed 's/^/# /'
	fi
}

launch() { # ARGS-OF-MPIRUN-AND-THE-PROGRAM
	timeout 120 mpirun "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

timeout 60 "$bin" >"$work/out" 2>"$work/err" </dev/null
status=$?
case_is 'without a launcher: fails' [ "$status" = 1 ]
if [ -n "$why" ]; then
	case_is 'without PMIx: says what is missing' grep -q 'built without PMIx' "$work/err"
	n=$((n + 1))
	echo "ok $n - mpirun # SKIP $why"
	echo "1..$n"
	exit 0
fi
case_is 'without a launcher: says how to start it' grep -q 'no launcher.*mpirun' "$work/err"

if ! command -v mpirun >/dev/null; then
	n=$((n + 1))
	echo "ok $n - mpirun # SKIP mpirun is not installed (Debian: openmpi-bin)"
	echo "1..$n"
	exit 0
fi

launch -n 3 "$bin"
case_is 'mpirun -n 3: all end well' [ "$status" = 0 ]
for rank in 0 1 2; do
	case_is "mpirun -n 3: rank $rank, both times" [ "$(grep -c "round [01]: $rank of 3, 3 right, launched" "$work/out")" = 2 ]
done
launch -n 1 "$bin"
case_is 'mpirun -n 1' grep -q 'round 1: 0 of 1, 1 right, launched' "$work/out"
launch -n 2 "$bin" 5
case_is 'another number of processes is refused' grep -q '5 processes are wanted, the launcher started 2' "$work/err"
case_is 'and the run fails' [ "$status" != 0 ]
launch -n 3 "$bin" 3 die 1
case_is 'one that ends before it comes: the run fails' [ "$status" != 0 ]
case_is 'and does not wait for ever' [ "$status" != 124 ]
echo "1..$n"
