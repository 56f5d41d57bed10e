#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Links of the pages: files and headings that they lead to exist, and files of the source that they name.
. "$(dirname "$0")/lib.sh"
status=-
: >"$work/out" >"$work/err"
top=$(cd "$(dirname "$0")/../.." && pwd)
export LC_ALL=C

# The text of a page without its code blocks.
prose() {
	awk '/^ *```/ { code = !code; next } !code' "$1"
}

# Where the links of a page lead, one a line.
links() {
	prose "$1" | sed 's/`[^`]*`//g' | grep -oE '\]\([^) ]+\)' | sed 's/^](//; s/)$//'
}

# The anchors of a page's headings, as GitHub and most others make them: small letters, no punctuation,
# a hyphen for each space; the second of a name has -1 behind it.
anchors() {
	prose "$1" | sed -n 's/^##* *//p' | sed 's/\[\([^]]*\)\]([^)]*)/\1/g' |
		tr 'A-Z' 'a-z' | sed "s/[^a-z0-9 _\x80-\xff-]//g; s/ /-/g" |
		awk '{ print $0 (seen[$0]++ ? "-" seen[$0] - 1 : "") }'
}

# Files of the source that a page names, in backticks.
named() {
	prose "$1" | grep -oE '`(src|tests|scripts|include|examples|bench|doc)/[^` ]*`' | tr -d '`'
}

# What is dead in a page, one a line.
dead() {
	page=$1 dir=$(dirname "$1")
	links "$page" | while read -r link; do
		case $link in *://* | mailto:*) continue ;; esac
		file=${link%%#*} anchor=
		case $link in *'#'*) anchor=${link#*#} ;; esac
		to=$page
		[ -z "$file" ] || to=$dir/$file
		if [ ! -e "$to" ]; then
			echo "$link: there is no such file"
		elif [ -n "$anchor" ] && ! anchors "$to" | grep -qxF -- "$anchor"; then
			echo "$link: $to has no such heading"
		fi
	done
	# The walk-throughs name the file that the reader is to make.
	case $page in */adding-a-*) return ;; esac
	named "$page" | while read -r file; do
		found=
		for path in "$top"/${file%%:*}; do # a pattern is as good as a name
			[ -e "$path" ] || [ -e "$path.c" ] && found=1
		done
		[ -n "$found" ] || echo "$file: there is no such file in the source"
	done
}

# A check that cannot fail is a defect.
mkdir -p "$work/pages"
cat >"$work/pages/a.md" <<'END'
# A page: its `name`, and more
[good](a.md#a-page-its-name-and-more) [good](#again-1) [good](https://example.invalid/)
[dead](b.md) [dead](#nowhere) [dead](a.md#again-2) `src/no/such_file.c` `src/lock/cas.c`
```
[not a link](c.md)
```
## Again
## Again
END
dead "$work/pages/a.md" >"$work/dead"
is 'what is dead is found, and nothing else' test "$(cut -d: -f1 "$work/dead" | tr '\n' ' ')" = \
	'b.md #nowhere a.md#again-2 src/no/such_file.c '

for page in "$top"/README.md $(find "$top/doc" -name '*.md' | sort) "$top/bench/peers/README.md"; do
	dead "$page" >"$work/dead"
	name="links of ${page#"$top"/}"
	if [ -s "$work/dead" ]; then
		not_ok "$name" "$(cat "$work/dead")"
	else
		ok "$name"
	fi
done

# Papers have names; data/ has numbers for them, which the glossary explains.
numbered=$(grep -rnE '[sS]eeds? 00[0-4]' "$top/README.md" "$top/doc" "$top/src" "$top/include" "$top/tests" \
	--include='*.md' --include='*.[ch]' --include='*.scd' --include='*.pml')
is 'no page and no comment calls a paper by its number' sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$numbered"
run list
is 'list: papers have names' sh -c "grep -q 'ShiftLock' '$work/out' && ! grep -qi 'seed 00' '$work/out'"
is 'list: and where they are' grep -q '^Papers: DSLR (SIGMOD 2018), ShiftLock (FAST 2025)' "$work/out"
run bench lock --lock dslr --fabric sim --duration 1ms
is 'bench lock: papers have names' sh -c "grep -q 'ShiftLock' '$work/out' && ! grep -qi 'seed 00' '$work/out'"
run bench txn --cc silo --fabric sim --duration 1ms
is 'bench txn: papers have names' sh -c "grep -q 'RCC' '$work/out' && ! grep -qi 'seed 00' '$work/out'"
finish
