#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/results-age.sh
#
# Results stand in README.md and doc/ with the commit that made them: "commit HEX" below a table, or
# <!-- results of HEX --> on a page whose tables are made together.  Tells for each place whether src/ or
# include/ has changed since, and by how many commits.  Exit status 1 if it has anywhere, or if a
# commit is not known here; then scripts/results.sh (README.md, doc/results.md), scripts/claims-doc.sh
# (doc/claims.md), scripts/choosing.sh (doc/choosing-a-lock.md) and scripts/papers-doc.sh
# (doc/papers-transactions.md) make them anew.
set -eu
cd "$(dirname "$0")/.."

places() {
	git ls-files -- README.md doc | grep '\.md$' | xargs grep -noE \
		'(cores, commit|^<!-- results of) [0-9a-f]{7,40}' /dev/null | sed -E 's/^([^:]*:[^:]*):.* /\1 /'
}

old=0
list=$(places || true)
[ -n "$list" ] || {
	echo "results-age: no results with a commit"
	exit 0
}
while read -r place made; do
	if ! git cat-file -e "$made^{commit}" 2>/dev/null; then
		echo "$place  of $made: no such commit here"
		old=1
	elif ! git diff --quiet "$made" -- src include; then
		n=$(git rev-list --count "$made..HEAD" -- src include)
		echo "$place  of $made ($(git log -1 --format=%cs "$made")): OLDER than the code by $n commits"
		old=1
	else
		echo "$place  of $made: as the code"
	fi
done <<END
$list
END
exit $old
