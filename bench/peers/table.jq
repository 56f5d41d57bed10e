# SPDX-License-Identifier: Apache-2.0
# BUILD/peers.json -> the table.
def digits: if . == null then "-" elif . >= 100 then (round | tostring)
	elif . >= 10 then (. * 10 | round / 10 | tostring) else (. * 100 | round / 100 | tostring) end;
def pad($n): tostring | (" " * ([$n - length, 0] | max) // "") + .;
def left($n): . + (" " * ([$n - length, 0] | max) // "");
def times: if . == null then ("-" | pad(8)) + ("-" | pad(8)) else (.throughput | digits | pad(8)) + (.p99 | digits | pad(8)) end;

. as $all
| "\(.rounds) rounds of \(.span), medians; ours over \(.fabric), two processes; \(.host.cores // "?") cores\(if (.busy // 0) > 0 then ", \(.busy) other process\(if .busy > 1 then "es compute" else " computes" end) all the time" else "" end).",
  "Times: how many times as many cycles, and how many times as short a p99 of the acquire, as the peer;",
  "longest: the longest wait of any client in any round.",
  (.skipped[] | "\(.peer): skipped: \(.reason)"),
  (.cases[] | . as $case
    | "",
      "\(.clients) client\(if .clients > 1 then "s" else "" end), \(if .locks == 1 then "one hot lock" else "\(.locks) locks, uniform" end)",
      (("lock" | left(14)) + ("cycles/s" | pad(10)) + ("p50 us" | pad(10)) + ("p99 us" | pad(10)) + ("p99.9" | pad(10)) + ("longest" | pad(10)) + "  times redis      etcd            etcd, no fsync"),
      (.rows[] | (.lock | left(14)) + (.ops_s | digits | pad(10)) + (.p50_us | digits | pad(10)) + (.p99_us | digits | pad(10)) + (.p999_us | digits | pad(10)) + (.longest_us | digits | pad(10))
        + (if .against then (.against.redis | times) + (.against.etcd | times) + (.against["etcd-nosync"] | times)
           else "  \(.setting)" end))),
  "",
  "violations of mutual exclusion: \(.violations)",
  (.cases[] | . as $case | .rows[] | select(.lost > 0)
    | "\(.lock): \(.lost) locks lost by their holders before the release (\($case.clients) clients, \($case.locks) locks)")
