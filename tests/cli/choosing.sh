#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/choosing.sh and scripts/papers-doc.sh: short runs, put into copies of their pages: TAP.
. "$(dirname "$0")/lib.sh"

if ! command -v jq >/dev/null; then
	skip 'choosing' 'jq is not installed'
	finish
	exit 0
fi

top=$(cd "$(dirname "$0")/../.." && pwd)
mkdir -p "$work/build/src" "$work/top/doc" "$work/top/scripts"
case $verbena in
/*) ln -s "$verbena" "$work/build/src/verbena" ;;
*) ln -s "$PWD/$verbena" "$work/build/src/verbena" ;;
esac
cp "$top/scripts/choosing.sh" "$top/scripts/papers-doc.sh" "$work/top/scripts/"
cp "$top"/doc/choosing-a-*.md "$top/doc/papers-transactions.md" "$work/top/doc/"
page=$work/top/doc/choosing-a-lock.md
commit=$("$verbena" --version | sed -n 's/.*(\(.*\)).*/\1/p')

choosing() { # ARGS...
	CHOOSING_TINY=1 timeout 250 "$work/top/scripts/choosing.sh" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

# Lines of the page between the marks of PART that match PATTERN.
lines() { # PART PATTERN
	sed -n "/^<!-- $1 -->\$/,/^<!-- .$1 -->\$/p" "$page" | grep -cE "$2"
}

# A page without what stands between its marks.
text() {
	sed '/^<!-- figures -->$/,/^<!-- .figures -->$/d; /^<!-- deaths -->$/,/^<!-- .deaths -->$/d
		/^<!-- machine -->$/,/^<!-- .machine -->$/d; /^<!-- transactions -->$/,/^<!-- .transactions -->$/d' "$1"
}

locks=$("$verbena" list --json | jq '.locks | length')
choosing "$work/build" figures deaths machine
is 'every table: exit status 0' [ "$status" = 0 ]
is 'nothing on stderr' [ ! -s "$work/err" ]
is 'a row for each lock' [ "$(lines figures '^. \[`')" = "$locks" ]
is '... and for each variant' [ "$(lines figures '^. `')" = 14 ]
is 'those that survive deaths' [ "$(lines deaths '^. `')" = 7 ]
is 'on the machine: a row for each lock' [ "$(lines machine '^. `[^|]*([|] +[0-9][^|]*){6}[|]$')" = "$locks" ]
is 'no number is missing' [ "$(grep -c '^|.*null' "$page")" = 0 ]
is 'the tables name their commit' [ "$(grep -cE "^<!-- results of $commit -->|cores, commit $commit\)\$" "$page")" = 3 ]
is 'outside of the marks nothing is changed' [ "$(text "$page")" = "$(text "$top/doc/choosing-a-lock.md")" ]
page=$work/top/doc/choosing-a-protocol.md
choosing "$work/build" transactions
is 'transactions: exit status 0' [ "$status" = 0 ]
is 'a row for each protocol' [ "$(lines transactions '^. `[^|]*([|] +[0-9][^|]*){15}[|]$')" = \
	"$("$verbena" list --json | jq '.cc + .cc_declared | length')" ]
for cc in calvin drtm-h; do
	is "... $cc, too" [ "$(lines transactions "^. .$cc. [|]")" = 1 ]
done
is 'its table names its commit' [ "$(grep -c "^<!-- results of $commit -->" "$page")" = 1 ]
is 'outside of its marks nothing is changed' [ "$(text "$page")" = "$(text "$top/doc/choosing-a-protocol.md")" ]
choosing "$work/build" nonesuch
is 'no such part: exit status 2' [ "$status" = 2 ]
choosing "$work/nowhere"
is 'no build: exit status 2' [ "$status" = 2 ]

page=$work/top/doc/papers-transactions.md
papers() {
	PAPERS_TEXT=$work/text "$work/top/scripts/papers-doc.sh" "$work/build" >"$work/out" 2>"$work/err"
	status=$?
}
printf '## Nodes of each transaction\n\nnew lines\n\n(1 s of processor time, 2 s in all)\n\n' >"$work/text"
papers
is 'one table of the papers is put into its page: exit status 0' [ "$status" = 0 ]
is '... under its heading' [ "$(grep -cx 'new lines' "$page")" = 1 ]
is '... what stood there is gone' [ "$(grep -c '^verbena bench txn .*--nodes 15' "$page")" = 0 ]
is '... the other tables stay' [ "$(grep -c '^verbena bench txn ' "$page")" = "$(($(grep -c '^verbena bench txn ' "$top/doc/papers-transactions.md") - 8))" ]
is '... and so does the text' grep -q '^## What is not compared' "$page"
is '... with the commit' grep -qx "<!-- results of $commit -->" "$page"
finish
