#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# doc/promises.md names a test for each promise of the headers, doc/findings.md one for each finding of a
# review: the tests that they name exist, and no public call is without a row.  What the tests check is for
# their reader to judge.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$top/tests/cli/lib.sh"
page=$top/doc/promises.md

says_nothing() { # TEXT
	printf %s "$1"
	test -z "$1"
}

each_has_a_test() { # PAGE LEAST HEAD
	local rows untested missing

	# shellcheck disable=SC2016 # the backticks are the page's
	rows=$(grep -E '^\|.*`[^`]*/[^`]*`[^|]*\|$' "$1")
	is "${1##*/}: there are rows" test "$(wc -l <<<"$rows")" -ge "$2"
	# shellcheck disable=SC2016
	untested=$(grep -E '^\|' "$1" | grep -vE '`[^`]*/[^`]*`[^|]*\|$|^\|[- |]*$' | grep -vF "| $3 |")
	is "${1##*/}: each has a test" says_nothing "$untested"
	missing=$(tests_that_are_missing "$top" <<<"$rows")
	is "${1##*/}: every test that is named exists" says_nothing "$missing"
}
each_has_a_test "$page" 100 promise
each_has_a_test "$top/doc/findings.md" 35 program

# A check that cannot fail is a defect.
# shellcheck disable=SC2016
missing=$(tests_that_are_missing "$top" <<<'| a | `tests/cli/lib.sh` `finish` `fini` `tests/none.c` `a` |')
is "a case and a file that are not there are told" test "$missing" = "tests/cli/lib.sh has no 'fini'
tests/none.c: there is no such file"

forgotten=
for header in "$top"/include/verbena/*.h; do
	for call in $(gcc -fpreprocessed -dD -E -P "$header" | grep -v '^#' | tr '\n' ' ' | tr ';' '\n' |
		sed 's/.*}//' | grep -v '{' | grep -oE 'vb_[a-z0-9_]+\([^()]*\) *$' | grep -oE '^vb_[a-z0-9_]+'); do
		grep -qF "\`$call\`" "$page" || forgotten+="$call (${header##*/})"$'\n'
	done
done
is "every public call has its promises" says_nothing "$forgotten"
finish
