#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The man pages: every public function has one, which names its errors; nothing that a header says of a
# function is missing in it.  Every command has one, with the options of its table and no others, whose ranges
# are those that are taken; its example is one that runs.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$top/tests/cli/lib.sh"
pages=$(dirname "$(dirname "$(realpath "$verbena")")")/doc
if ! command -v scdoc >/dev/null; then
	skip "man pages" "scdoc is not installed"
	finish
	exit 0
fi

sed -n 's/^\t\(vb_[a-z0-9_]*\);$/\1/p' "$top/src/verbena.map" | sort >"$work/exported"
for page in "$pages"/*.3; do
	basename "$page" .3
done | sort >"$work/paged"
# Those that are inline in a header are public, and in no library.
{
	cat "$work/exported"
	sed -n 's/^static inline .*\(vb_[a-z0-9_]*\)(.*/\1/p' "$top"/include/verbena/*.h
} | sort >"$work/public"
is "every public function has a page" diff "$work/public" "$work/paged"
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
done <"$work/public"
is "each says what it is" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$unnamed"

# Which threads may call it: what the header says of the function, in full.
"$top/scripts/man-calls.sh" threads "$top"/include/verbena/*.h >"$work/threads"
is "each has its line on threads in the headers" test "$(wc -l <"$work/threads")" = "$(wc -l <"$work/exported")"
is "every function says which threads may call it" sh -c '! grep -P "\t\$" "$1"' sh "$work/threads"
untold=''
while IFS=$'\t' read -r call words; do
	page=$pages/$call.3
	[ -f "$page" ] || continue
	text "$page" | sed -n '/^.SH THREADS/,/^.SH [^T]/p' | grep -F "$call" >"$work/page"
	case $words in
	"any, alone"*) told="any thread, while no other call" ;;
	"any, one at a time for a "*) told="any thread, but not two at a time for the same" ;;
	any*) told="any thread, several at a time" ;;
	"the "*) told="only the thread that has opened the $(sed "s/^the \([a-z]*\)'s.*/\1/" <<<"$words")" ;;
	*) told=$words ;;
	esac
	grep -qF ": $told" "$work/page" || untold+="$call: $words"$'\n'
	case $words in
	*"; "*) grep -qF "; ${words#*; }." "$work/page" || untold+="$call: ${words#*; }"$'\n' ;;
	esac
done <"$work/threads"
is "a page says which threads may call" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$untold"

is "a page has the constants that it speaks of" \
	sh -c 'grep -q "define VB_FOREVER_NS .*UINT64_MAX" "$1"/vb_lock_acquire.3 && ! grep -q "define VB_PATH_MAX" "$1"/vb_lock_acquire.3' \
	sh "$pages"
is "a page has the examples that call its function" \
	sh -c 'grep "^Examples that call it" "$1"/vb_lock_renew.3 | grep -q "renew.*takeover" &&
		grep "^Examples that call it" "$1"/vb_lock_client_open.3 | grep -q "guard.*cpp"' sh "$pages"
is "what is said of constants is said of no function" \
	sh -c '! grep -l "whose headers a program is compiled with" "$1"/*.3' sh "$pages"
is "a backslash is one" grep -qF 'KEY=VALUE\\n' "$pages/vb_cluster_open.3"

text "$pages/libverbena.7" >"$work/page"
about=''
while read -r call; do
	grep -q "^$call(3)" "$work/page" || about+="$call"$'\n'
done <"$work/public"
is "libverbena(7) has every function" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$about"
unnamed=''
for example in "$top"/examples/*.c "$top"/examples/*.cpp; do
	grep -qE "(^|[^a-z_])${example##*/}" "$work/page" || unnamed+="${example##*/}"$'\n'
done
is "libverbena(7) names every example" sh -c "printf %s \"\$1\"; test -z \"\$1\"" sh "$unnamed"
is "libverbena(7) has what stands at the top of the headers" \
	sh -c 'grep -q "Background work" "$1" && grep -q "What is known after a call" "$1"' sh "$work/page"

# ---- the commands ----

"$verbena" --help | sed -n '/^Commands:/,/^$/s/^  \(.\{14\}\).*/\1/p' | sed 's/ *$//' >"$work/commands"
tr ' ' - <"$work/commands" | sed 's/^/verbena-/' | sort >"$work/named"
for page in "$pages"/verbena-*.1; do
	basename "$page" .1
done | sort >"$work/paged"
is "every command has a page" diff "$work/named" "$work/paged"
text "$pages/verbena.1" >"$work/page"
is "verbena(1) has every command" sh -c 'grep -o "^verbena-[a-z-]*(1)" "$1" | sed "s/(1)//" | sort | diff "$2" -' \
	sh "$work/page" "$work/named"

# The options of a page that are numbers, each with the one end of its range or the other.
at_bounds() { # lowest|highest PAGE
	awk -v which="$1" '
		/^--/ { option = $1; next }
		/ From [^ ]+ to [^ ]+\.|At least [^ ]+\./ {
			if (which == "highest" && !match($0, / to [0-9.e+]+[a-z]*\./)) next
			if (which == "lowest" && !match($0, /(From|At least) [0-9.e+]+[a-z]*[. ]/)) next
			value = substr($0, RSTART, RLENGTH)
			sub(/^ *(From|At least|to) /, "", value)
			sub(/[. ]$/, "", value)
			if (!(option in seen)) print option "=" value
			seen[option] = 1
		}' "$2"
}
# A number that its option takes for one: nothing is run, for --help ends it.
parses() { # WORDS...
	"$verbena" "$@" --help >"$work/out" 2>"$work/err"
}

options='' ranges='' described=''
while read -r command; do
	name=verbena-${command// /-}
	text "$pages/$name.1" >"$work/page"
	# shellcheck disable=SC2086
	{
		echo --help
		"$verbena" $command --help | sed -n 's/^  \(--[a-z0-9-]*\).*/\1/p'
	} | sort >"$work/has"
	sed -n 's/^\(--[a-z0-9-]*\).*/\1/p' "$work/page" | sort >"$work/told"
	diff "$work/has" "$work/told" >"$work/diff" || options+="$name: $(cat "$work/diff")"$'\n'
	for which in lowest highest; do
		mapfile -t bounds < <(at_bounds $which "$work/page")
		# shellcheck disable=SC2086
		parses $command "${bounds[@]}" || ranges+="$name, $which: $(cat "$work/err")"$'\n'
		counted=$((${counted:-0} + ${#bounds[@]}))
	done
	[ "$(sed -n '/^.SH DESCRIPTION/,/^.SH OPTIONS/p' "$work/page" | wc -w)" -ge 25 ] || described+="$name "
	for status in 0 1 2; do
		grep -q "^$status\$" "$work/page" || described+="$name: $status "
	done
done <"$work/commands"
is "a page has the options of its table, and no others" sh -c 'printf %s "$1"; test -z "$1"' sh "$options"
is "the ranges are those that are taken" sh -c 'printf %s "$1"; test -z "$1"' sh "$ranges"
is "there are ranges" test "$counted" -ge 100
is "each says what it does and how it ends" sh -c 'printf %s "$1"; test -z "$1"' sh "$described"

# The examples: parsed as they stand, and run with smaller numbers behind them, in whose favour the last word
# is.  What needs another program or minutes is parsed only.
verbena=$(realpath "$verbena")
cd "$work" && mkdir reproduce
smaller() { # COMMAND
	case $1 in
	'bench lock') echo --locks 10k --duration 1ms ;;
	'bench txn') echo --cc silo --accounts 1k --duration 1ms ;;
	'check lock') echo --seeds 3 ;;
	'check txn') echo --hybrid rpc --seeds 2 ;;
	'check litmus') echo --runs 10 ;;
	'trace '*) echo --transactions 1k ;;
	'bench fabric' | reproduce | serve | dump | top | doctor) return 1 ;;
	esac
}
"$verbena" check txn --cc silo --seed 1 --history history.jsonl >/dev/null
"$verbena" bench lock --lock cas --fabric sim --duration 1ms --json reproduce/cas.json >/dev/null
while read -r command; do
	example=$(sed -n '/^.SH EXAMPLES/,/^.SH SEE/p' "$pages/verbena-${command// /-}.1" | text /dev/stdin |
		sed -n 's/^verbena //p')
	if [ -z "$example" ]; then
		is "$command: no example because there are no options" test "$command" = version
		continue
	fi
	is "$command: its example is of it" test "${example#"$command"}" != "$example"
	eval "parses $example"
	status=$?
	is "verbena $example: parses" test $status = 0
	more=$(smaller "$command") || continue
	eval "run $example $more"
	is "verbena $example: runs" test "$status" = 0
done <"$work/commands"

if command -v groff >/dev/null; then
	is "groff has nothing to say" sh -c 'said=$(groff -man -ww -z "$@" 2>&1); printf %s "$said"; test -z "$said"' \
		sh "$pages"/*.[137]
else
	skip "groff has nothing to say" "groff is not installed"
fi
finish
