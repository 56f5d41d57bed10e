#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The man pages: every public function has one, which names its errors; nothing that a header says of a
# function is missing in it.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$top/tests/cli/lib.sh"
pages=$(dirname "$(dirname "$verbena")")/doc
if ! command -v scdoc >/dev/null; then
	skip "man pages" "scdoc is not installed"
	finish
	exit 0
fi

sed -n 's/^\t\(vb_[a-z0-9_]*\);$/\1/p' "$top/src/verbena.map" | sort >"$work/exported"
for page in "$pages"/*.3; do
	basename "$page" .3
done | sort >"$work/paged"
is "every exported function has a page" diff "$work/exported" "$work/paged"
sed -n 's/^ \(vb_[a-z0-9_]*\)@.*/\1/p' "$top/debian/libverbena0.symbols" | sort >"$work/packaged"
is "debian/libverbena0.symbols has every exported function" diff "$work/exported" "$work/packaged"

# What stands in a page, without markup.
text() { # PAGE
	sed -e 's/\\f[A-Z]//g; s/\\-/-/g; s/\\&//g; s/\\//g' "$1"
}

# Each function with the errors above it in its header, down from the last empty line that no comment has.
errors='
/^$/ || /^\/\*/ { said = "" }
{
	rest = $0
	while (match(rest, /-(VB_)?E[A-Z0-9][A-Z0-9]+/)) {
		said = said " " substr(rest, RSTART, RLENGTH)
		rest = substr(rest, RSTART + RLENGTH)
	}
}
/^[a-z].*[ *]vb_[a-z0-9_]+\(/ && !/^static|^typedef/ {
	match($0, /vb_[a-z0-9_]+\(/)
	print ($0 ~ /^int / ? "int" : "other"), substr($0, RSTART, RLENGTH - 1) said
}'
awk "$errors" "$top"/include/verbena/*.h >"$work/said"
is "each has its line in the headers" test "$(wc -l <"$work/said")" = "$(wc -l <"$work/exported")"

without='' missing=''
while read -r type call said; do
	page=$pages/$call.3
	[ -f "$page" ] || continue
	text "$page" >"$work/page"
	for error in $said; do
		grep -qE -- "$error([^A-Z0-9]|\$)" "$work/page" || missing+="$call: $error"$'\n'
	done
	[ "$type" = int ] || continue
	grep -qE -- '-(VB_)?E[A-Z0-9]{2,}' "$work/page" || without+="$call"$'\n'
done <"$work/said"
is "a page has every error of its header" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$missing"
is "who can fail names an error" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$without"

unnamed=''
while read -r call; do
	page=$pages/$call.3
	[ -f "$page" ] || continue
	text "$page" >"$work/page"
	grep -qE "^$call.* - [a-z\"].{9,}" "$work/page" || unnamed+="$call has no line that says what it is"$'\n'
	grep -qF "#include <verbena/" "$work/page" || unnamed+="$call does not say which header it is in"$'\n'
	[ "$(sed -n '/^.SH DESCRIPTION/,$p' "$work/page" | wc -w)" -ge 20 ] || unnamed+="$call has no description"$'\n'
done <"$work/exported"
is "each says what it is" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$unnamed"

text "$pages/libverbena.7" >"$work/page"
about=''
while read -r call; do
	grep -q "^$call(3)" "$work/page" || about+="$call"$'\n'
done <"$work/exported"
is "libverbena(7) has every function" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$about"
is "libverbena(7) has what stands at the top of the headers" \
	sh -c 'grep -q "Background work" "$1" && grep -q "What is known after a call" "$1"' sh "$work/page"

if command -v groff >/dev/null; then
	is "groff has nothing to say" sh -c 'said=$(groff -man -ww -z "$@" 2>&1); printf %s "$said"; test -z "$said"' \
		sh "$pages"/*.3 "$pages"/libverbena.7
else
	skip "groff has nothing to say" "groff is not installed"
fi
finish
