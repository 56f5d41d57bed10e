#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/papers-doc.sh BUILD [TABLE...]
#
# Runs scripts/papers-txn.sh and puts what it prints into doc/papers-transactions.md, each table under
# its heading with the commit that was measured.  What the page says of the tables is for a person to
# look at again.  PAPERS_TEXT=FILE: take what papers-txn.sh has printed there, and run nothing.
set -eu
build=${1:?"usage: scripts/papers-doc.sh BUILD [TABLE...]"}
here=$(dirname "$0")
page=$here/../doc/papers-transactions.md
text=${PAPERS_TEXT:-$build/papers-txn.md}
[ -n "${PAPERS_TEXT:-}" ] || "$here/papers-txn.sh" "$@" >"$text"
commit=$("$build/src/verbena" --version | sed -n 's/.*(\([0-9a-f]*\).*).*/\1/p')
[ -n "$commit" ] || { echo "papers-doc.sh: $build/src/verbena does not say its commit" >&2; exit 1; }

# A table ends with its times, here as there.
awk -v text="$text" -v commit="$commit" '
BEGIN {
	while ((getline line <text) > 0) {
		if (line ~ /^## /)
			title = line
		else if (title != "")
			table[title] = table[title] line "\n"
		if (line ~ /^\([0-9]+ s of processor time/)
			title = ""
	}
}
$0 in table { print; printf "\n<!-- results of %s -->\n%s", commit, table[$0]; skip = 1; next }
skip { if ($0 ~ /^\([0-9]+ s of processor time/) skip = 0; else if (/^## /) bad = $0; next }
{ print }
END { if (bad) { print "papers-doc.sh: a table without its times before " bad >"/dev/stderr"; exit 1 } }
' "$page" >"$build/papers-transactions.md"
cat "$build/papers-transactions.md" >"$page"
