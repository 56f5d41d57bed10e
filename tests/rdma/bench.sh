#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Every lock over RDMA: four processes, two on each device.  The audit is clean, and the counts of
# doorbells and signalled completions show that batching works; with batching off they show that too.
. "$(dirname "$0")/../cli/lib.sh"
device=${VERBENA_VERBS_DEVICE-}
second=${VERBENA_VERBS_DEVICE2-$device}
json=$work/run.json

if [ -z "$device" ]; then
	skip 'every lock over verbs' 'VERBENA_VERBS_DEVICE names no RDMA device'
	finish
	exit
fi

# The ranks take turns on the devices: 0 and 2 on the first, 1 and 3 on the second.
bench() { # FABRIC-OPTIONS ARGS...
	options=$1
	shift
	rm -f "$json"
	run bench lock --fabric verbs --procs 4 --fabric-options "device=$device+$second$options" \
		--json "$json" "$@"
}

holds() { # FILTER: of the numbers that a person would look for, too
	jq -e "$1" "$json" >/dev/null || {
		jq -c '.runs[] | {lock, ops, audit: .audit.violations, fabric_stats}' "$json"
		false
	}
}

locks=$("$verbena" list --json | jq -r '.locks | length')
bench '' --lock all --clients 6 --locks 1k --duration 300ms
is 'every lock: exit status 0' [ "$status" = 0 ]
is 'every lock ran' holds ".runs | length == $locks"
is 'every lock: audit clean' holds '.runs | all(.ops > 0 and .audit.violations == 0 and
	.audit.checked_ops > 0 and .audit.unaudited_ops == 0)'

# Many clients of a process post together: one doorbell for several verbs, one completion for several.
load='--lock cas,dslr --clients 48 --locks 100k --dist uniform --duration 500ms'
# shellcheck disable=SC2086
bench '' $load
is 'batching: audit clean' holds '.runs | all(.ops > 0 and .audit.violations == 0)'
is 'batching: verbs share doorbells' holds \
	'.runs | all(.fabric_stats | .posted > 1.5 * .doorbells)'
is 'batching: verbs share completions' holds \
	'.runs | all(.fabric_stats | .posted > 1.5 * .completions)'
# shellcheck disable=SC2086
bench ',doorbell=each' $load
is 'no batching: audit clean' holds '.runs | all(.ops > 0 and .audit.violations == 0)'
is 'no batching: a doorbell for each verb' holds \
	'.runs | all(.fabric_stats | .doorbells >= .posted and .completions >= .posted)'
finish
