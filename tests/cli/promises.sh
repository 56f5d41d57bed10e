#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# doc/promises.md names a test for each promise of the headers: the tests that it names exist, and no public
# call is without a row.  What the tests check is for their reader to judge.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$top/tests/cli/lib.sh"
page=$top/doc/promises.md

# The last cell of a row is `path` `case` `case` ..., several paths one after the other.
# shellcheck disable=SC2016 # the backticks are the page's
rows=$(grep -E '^\|.*`[^`]*/[^`]*`[^|]*\|$' "$page")
is "there are promises" test "$(wc -l <<<"$rows")" -ge 100
# shellcheck disable=SC2016
untested=$(grep -E '^\| [^|]+\|[^|]*\|$' "$page" | grep -vE '`[^`]*/[^`]*`|^\| promise|^\|[- |]*$')
is "each has a test" test -z "$untested"

# One process: there are hundreds of names.
missing=$(awk -v top="$top/" '
	function text_of(file,    text, line) {
		while ((getline line < (top file)) > 0)
			text = text line "\n"
		close(top file)
		return text
	}
	{
		cell = $0
		sub(/\|$/, "", cell)
		sub(/.*\|/, "", cell)
		n = split(cell, word, "`")
		file = ""
		for (i = 2; i <= n; i += 2) {
			if (word[i] ~ /\//) {
				file = word[i]
				if (!(file in text) && (text[file] = text_of(file)) == "")
					print file ": there is no such file"
			} else if (file != "" && text[file] != "" &&
				   text[file] !~ ("(^|[^a-zA-Z0-9_])" word[i] "([^a-zA-Z0-9_]|$)")) {
				print file " has no \047" word[i] "\047"
			}
		}
	}' <<<"$rows")
is "every test that is named exists" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$missing"

forgotten=
for header in "$top"/include/verbena/*.h; do
	for call in $(gcc -fpreprocessed -dD -E -P "$header" | grep -v '^#' | tr '\n' ' ' | tr ';' '\n' |
		sed 's/.*}//' | grep -v '{' | grep -oE 'vb_[a-z0-9_]+\([^()]*\) *$' | grep -oE '^vb_[a-z0-9_]+'); do
		grep -qF "\`$call\`" "$page" || forgotten+="$call (${header##*/})"$'\n'
	done
done
is "every public call has its promises" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$forgotten"
finish
