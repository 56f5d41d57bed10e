# SPDX-License-Identifier: Apache-2.0
# run.sh's rows -> one object.  Ratios are taken within a round and are then the median over rounds,
# so that a change of the machine's speed between rounds is in none of them.  Of a peer that ran with
# several settings the one with the most cycles (median) counts.
def median: sort | if length == 0 then null elif length % 2 == 1 then .[length / 2 | floor]
	else (.[length / 2 - 1] + .[length / 2]) / 2 end;
def by_round: map({key: .round, value: .}) | from_entries;
# How many times as many cycles, and how many times as short a p99, as the peer.
def against($peer): by_round as $mine | ($peer | by_round) as $theirs
	| [$mine | keys[] | select($theirs[.] != null and $theirs[.].ops_s > 0 and $mine[.].p99_us > 0 and $mine[.].ops_s > 0)] as $rounds
	| if $rounds == [] then null else
		{throughput: ([$rounds[] | $mine[.].ops_s / $theirs[.].ops_s] | median),
		 p99: ([$rounds[] | $theirs[.].p99_us / $mine[.].p99_us] | median)} end;

. as $rows
| map(select(.round != "trial" and .round != "check")) as $measured
| $head[0] + {tool: "peers",
   span: $span, fabric: $fabric, busy: $busy, disk: $disk, servers: {redis: $redis, etcd: $etcd}, skipped: $skipped,
   rounds: ([$measured[].round] | unique | length),
   violations: ([$rows[] | .violations] | add // 0),
   cases: [$measured | group_by([.locks, .clients])[]
     | (group_by(.lock) | map({key: .[0].lock, value: (group_by(.setting) | max_by(map(.ops_s) | median))})
        | from_entries) as $by
     | {locks: .[0].locks, clients: .[0].clients,
        rows: [["redis", "etcd", "etcd-nosync", "etcd-json", "etcd-put"] as $peers
          | ($peers + ([.[].lock] | unique - $peers))[] | $by[.] // empty
          | .[0].lock as $lock
          | {lock: $lock, setting: .[0].setting, rounds: length, ops_s: (map(.ops_s) | median),
             p50_us: (map(.p50_us) | median), p99_us: (map(.p99_us) | median), p999_us: (map(.p999_us) | median),
             longest_us: (map(.longest_us) | max),
             tries_per_op: (map(.tries // empty) | median), lost: (map(.lost) | add)}
            + (if $peers | index($lock) then {} else
                {against: (. as $mine | [$peers[] | select($by[.] != null and . != "etcd-put")
                  | {key: ., value: (. as $p | $mine | against($by[$p]))}] | from_entries)} end)]}],
   trials: map(select(.round == "trial") | del(.round, .violations, .lost)),
   checks: map(select(.round == "check"))}
