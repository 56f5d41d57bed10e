#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The README: every command in it runs, its program compiles, and its results are those that are kept.
# (`make demo` and `make test` are CI's own.)
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$top/tests/cli/lib.sh"
verbena=$(realpath "$verbena")
readme=$top/README.md build=$(dirname "$(dirname "$verbena")")

blocks() { # LANGUAGE: what stands in the README's blocks of that language
	awk -v fence="\`\`\`$1" '$0 == fence { inside = 1; next } /^```/ { inside = 0 } inside' "$readme"
}

commands=$(blocks sh | sed 's/  *#.*//' | sed -n 's/^\(build\/src\/\)\{0,1\}verbena //p')
is "the README has commands" test "$(wc -l <<<"$commands")" -ge 6
while read -r line; do
	expected=0
	[[ $line != *planted:* ]] || expected=3
	# shellcheck disable=SC2086
	(cd "$work" && timeout 240 "$verbena" $line >"$work/out" 2>"$work/err" </dev/null)
	status=$?
	is "verbena $line" test "$status" = "$expected"
done <<<"$commands"

# How many there are, in words.
words=(no one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
	seventeen eighteen nineteen twenty twenty-one twenty-two twenty-three twenty-four)
if command -v jq >/dev/null; then
	locks=$("$verbena" list --json | jq '.locks | length') ccs=$("$verbena" list --json | jq '.cc | length')
	is "the README counts locks and protocols" \
		grep -qF "${words[locks]} lock protocols and ${words[ccs]} concurrency-control protocols" "$readme"
else
	skip "the README counts locks and protocols" "jq is not installed"
fi

# The story in the README is the one that the checker tells today.
story=$(blocks text | sed -n 's/^replay: verbena //p')
is "the README shows one replay" test "$(wc -l <<<"$story")" = 1
# shellcheck disable=SC2086
run $story
is "which finds the violation again" test "$status" = 3
while read -r line; do
	is "as it says: ${line:0:40} ..." grep -qF -- "${line%;}" "$work/out" "$work/err"
done < <(blocks text | grep -v '^replay' | sed 's/^ *//')

# The program, against the library as it stands in the build.
blocks c >"$work/program.c"
sanitizer=
! nm -D "$build/src/libverbena.so" | grep -q '__asan_init\|__tsan_init' || sanitizer=yes
if [ -n "$sanitizer" ]; then
	skip "the README's program compiles" 'the library has a sanitizer, which a program linked as the README says has not'
else
	is "the README's program compiles" gcc -std=c11 -Wall -Wextra -Werror -I"$top/include" "$work/program.c" \
		-o "$work/program" -L"$build/src" -lverbena "-Wl,-rpath,$build/src"
	# Who has not installed it may ask the build for its flags.
	flags=$(PKG_CONFIG_PATH=$build/meson-uninstalled pkg-config --cflags --libs verbena 2>&1)
	# shellcheck disable=SC2086
	is "it compiles with what verbena-uninstalled.pc says" gcc -std=c11 -Wall -Wextra -Werror \
		"$work/program.c" -o "$work/other" $flags
	is "and takes its lock" sh -c "'$work/program' | grep -q 'fencing token is 1$'"
fi

# By hand, it wants the packages that `make demo` installs.
packages=$(blocks sh | sed -n 's/^sudo apt-get install //p')
is "the packages are those of scripts/deps.sh" grep -qxF "build='$packages'" "$top/scripts/deps.sh"

# What was measured is in doc/results; the page and the picture say what stands there.
if command -v jq >/dev/null; then
	is "doc/results.md is written from doc/results" sh -c "'$top/scripts/results-page.sh' '$top/doc/results' | cmp - '$top/doc/results.md'"
	is "the picture is drawn from doc/results" sh -c "'$top/scripts/picture.sh' '$top/doc/results' | cmp - '$top/doc/results/picture.svg'"
else
	skip "doc/results.md is written from doc/results" "jq is not installed"
	skip "the picture is drawn from doc/results" "jq is not installed"
fi
is "the README fits on a few screens" test "$(wc -l <"$readme")" -le 130
finish
