# SPDX-License-Identifier: Apache-2.0
# meson-logs/testlog.json -> one line a test case: pass|fail|skip, name, reason (tab separated).
#
# A test that speaks TAP counts for each of its cases, any other for one.  A test that ends badly
# without a failed case of its own (a crash, a time-out, a sanitizer's verdict at exit) is one
# failure under its own name, beside the cases it got through.  The reason of a failure is what was
# printed behind it.  cmocka 1.1 writes a skipped case as "not ok N # SKIP name"; the reason is what the
# case printed before it.
def case_name: sub("^(not )?ok [0-9]+ *(- )?"; "");
def is_skip: test("# *SKIP"; "i");
def last_lines: split("\n") | map(select(. != ""))[-12:] | join("\n");
def skip_name: case_name | capture("^(?<a>.*?) *# *SKIP *(?<b>.*)$"; "i");

. as $t
| ($t.name | sub("^.*[:/] *"; "")) as $test
| (($t.stdout // "") | split("\n")) as $lines
| [range($lines | length) | select($lines[.] | test("^(not )?ok [0-9]+")) as $i
   | $lines[.] as $line
   | if $line | is_skip then
       ($line | skip_name) as $n
       | (if . > 0 then ($lines[. - 1] | sub("^# *"; "")) else "" end) as $before
       | if $n.a == "" then
           ["skip", $n.b, (if $before | test("^((not )?ok |1\\.\\.|$)") then "no reason given" else $before end)]
         else ["skip", $n.a, (if $n.b == "" then "no reason given" else $n.b end)] end
     elif $line | startswith("ok") then ["pass", ($line | case_name), ""]
     else
       (first(range($i + 1; $lines | length) | select($lines[.] | startswith("#") | not)) // ($lines | length)) as $stop
       | ["fail", ($line | case_name), ($lines[$i + 1:$stop] | map(sub("^# ?"; "")) | join("\n"))]
     end] as $cases
| ($t.result | IN("OK", "EXPECTEDFAIL", "SKIP")) as $good
| ([$cases[] | select(.[0] == "fail")] | length) as $failed
| (if $good and ($cases | length) == 0 then
     [[(if $t.result == "SKIP" then "skip" else "pass" end), $test,
       (if $t.result == "SKIP" then ([$lines[] | select(. != "")] | last // "no reason given") else "" end)]]
   elif ($good | not) and $failed == 0 then
     $cases + [["fail", $test, ("\($t.result), exit status \($t.returncode)\n" +
       (($t.stdout // "") | last_lines) + "\n" + (($t.stderr // "") | last_lines))]]
   elif $good and $failed > 0 then
     $cases + [["fail", $test, "reports success although a case failed"]]
   else $cases end)[]
| [.[0], (if .[1] == $test then .[1] else "\($test): \(.[1])" end), .[2]]
| @tsv
