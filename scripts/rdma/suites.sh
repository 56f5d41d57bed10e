#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/rdma/suites.sh PLAN OUT
#
# Where the RDMA device is (in the guest, or on a machine with a card): runs the suites of PLAN one
# after the other.  A line of PLAN: number, seconds, folder of the build, command (tab separated).
# Suite N leaves OUT/N.out, OUT/N.err, OUT/N.time and, once it has ended, its exit status in OUT/N.status.
set -u
plan=$1 out=$2
export CMOCKA_MESSAGE_OUTPUT=tap

while IFS=$'\t' read -r n seconds build command; do
	export build
	begin=$(date +%s%N)
	timeout -k 5 "$seconds" bash -c "$command" >"$out/$n.out" 2>"$out/$n.err" </dev/null
	status=$?
	echo $((($(date +%s%N) - begin) / 1000000)) >"$out/$n.time"
	echo $status >"$out/$n.status"
done <"$plan"
