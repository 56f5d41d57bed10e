#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# The rooms of src/ as doc/architecture.md draws them: a room includes headers of itself and of rooms below
# it, no folders include each other in a circle, the files of a folder call one way, and the map "I want to
# change" leads to what is there.  Besides, how tests fork.
top=$(cd "$(dirname "$0")/../.." && pwd)
# shellcheck source=tests/cli/lib.sh
. "$top/tests/cli/lib.sh"
status=-
: >"$work/out" >"$work/err"
page=$top/doc/architecture.md

# From the ground up, as the build has them.
rooms=$(sed -n "s/^foreach room : \[\(.*\)\]/\1/p" "$top/src/meson.build" | tr -d "',")

# "FILE FOLDER INCLUDED-FOLDER", one for each include of ours.
includes() { # SRC
	(cd "$1" && grep -rnoE '^ *# *include "[a-z0-9_]+/[^"]+"' --include='*.[ch]' . |
		sed -E 's|^\./([^:]+):[0-9]+: *# *include "(.*)/[^/"]+"$|\1 \2|' |
		awk '{ folder = $1; sub(/\/[^\/]*$/, "", folder); print $1, folder, $2 }' | sort -u)
}

# Includes that lead to a room further up, or to none.
upwards() { # SRC
	includes "$1" | awk -v rooms="$rooms" '
		BEGIN { n = split(rooms, name, " "); for (i = 1; i <= n; i++) floor[name[i]] = i }
		{ split($2, from, "/"); split($3, to, "/") }
		!(to[1] in floor) || floor[to[1]] > floor[from[1]] { print $1 " includes of " $3 }'
}

# Folders that include each other in a circle.
circles() { # SRC
	includes "$1" | awk '$2 != $3 { print $2, $3 }' | sort -u | tsort 2>&1 >/dev/null | grep -v 'loop:$'
}

# Includes from one folder to the next one: backends, protocols of locks and subjects of the benchmark stand
# apart, but for what networks share and the engine.
beside() { # SRC
	includes "$1" | awk '
		function above(f) { return sub(/\/[^\/]*$/, "", f) ? f : "" }
		$2 != $3 && above($2) == above($3) && above($2) ~ /^(fabric|lock|lab\/bench)$/ &&
			$3 != "fabric/net" && $3 != "lab/bench/engine" { print $1 " includes of " $3 }'
}

# "OBJECT SYMBOL TYPE" of what was built, where the objects tell: with -flto they do not.
symbols() {
	for archive in "${verbena%/*}"/libverbena_{objects,tools}.a; do
		nm -P -A "$archive" | sed -nE 's|^.*[[/]([^[/]*)\.o\]: ([^ ]+) ([A-Za-z]).*$|\1 \2 \3|p'
	done
}

# "FILE FILE", for each pair of one folder of which the first uses what the second defines.
calls() { # SRC SYMBOLS
	(cd "$1" && find . -name '*.c' | sed 's|^\./||') | awk '
		FNR == NR { object = $1; gsub(/\//, "_", object); file[object] = $1; next }
		$3 ~ /[TDRB]/ { maker[$2] = file[$1] }
		$3 == "U" { uses[file[$1] " " $2] }
		function folder(f) { sub(/\/[^\/]*$/, "", f); return f }
		END {
			for (u in uses) {
				split(u, part, " ")
				from = part[1]; to = maker[part[2]]
				if (from != "" && to != "" && from != to && folder(from) == folder(to))
					print from, to
			}
		}' - "$2" | sort -u
}

# Files of one folder that call one another in a ring.
rings() { # SRC SYMBOLS
	calls "$1" "$2" | tsort 2>&1 >/dev/null | grep -v 'loop:$'
}

# Calls for memory that go past base/alloc.c, but for what other libraries have allocated.
foreign_memory() { # SYMBOLS
	awk '$3 == "U" && $1 !~ /^base_alloc\.c$/ &&
		$2 ~ /^(malloc|calloc|realloc|reallocarray|aligned_alloc|posix_memalign|memalign|valloc|str(n)?dup|v?asprintf|free)$/ &&
		!($2 == "free" && $1 ~ /^(cluster_pmix|fabric_ucx_info|lock_table_persist)\.c$/) { print $1, $2 }' "$1"
}

# Rows of the map: "| what | where | tests |".
map() { # PAGE
	awk '/^\| I want to change/ { inside = 1; getline; next } inside && !/^\|/ { exit } inside' "$1"
}

# What a row has wrong, one a line: nothing named, or something that is not there.
astray() { # PAGE
	map "$1" | while IFS='|' read -r _ what where tests _; do
		for cell in "$where" "$tests"; do
			names=$(grep -oE '`[a-z]+/[^` ]*`' <<<"$cell" | tr -d '`')
			[ -n "$names" ] || echo "$what: nothing is named in '$cell'"
			for name in $names; do
				compgen -G "$top/$name" >/dev/null || echo "$what: there is no $name"
			done
		done
	done
}

# Tests that fork in a way of their own: a child of a failed test stays, and with it the end of its output.
# Where faults are injected fork() itself may be one.
forks() { # TESTS
	(cd "$1" && grep -rnE '= v?fork\(' --include='*.[ch]' . | grep -vE '^\./(child\.h|inject/)')
}

# A check that cannot fail is a defect.
mkdir -p "$work/src/base" "$work/src/lock/a" "$work/src/lock/b"
echo '#include "lock/a/x.h"' >"$work/src/base/up.c"
echo '#include "lock/b/x.h"' >"$work/src/lock/a/x.h"
echo '#include "lock/a/x.h"' >"$work/src/lock/b/x.h"
is 'an include that leads upwards is found' test "$(upwards "$work/src")" = 'base/up.c includes of lock/a'
is 'a circle is found' grep -q lock/b <(circles "$work/src")
is 'an include of what should stand apart is found' test "$(beside "$work/src" | wc -l)" = 2
touch "$work/src/lock/a/"{x,y,z}.c
printf '%s\n' 'lock_a_x.c f T' 'lock_a_y.c f U' 'lock_a_y.c g T' 'lock_a_z.c g U' >"$work/symbols"
is 'calls that go one way are no ring' test -z "$(rings "$work/src" "$work/symbols")"
printf '%s\n' 'lock_a_z.c h D' 'lock_a_x.c h U' >>"$work/symbols"
is 'a ring of calls is found' test "$(rings "$work/src" "$work/symbols" | wc -l)" = 3
printf '| I want to change | where | tests |\n|---|---|---|\n| a | `src/no.c` | none |\n\n' >"$work/page.md"
is 'a row that leads nowhere is found' test "$(astray "$work/page.md" | wc -l)" = 2

mkdir -p "$work/tests/unit"
echo '	pid = fork();' >"$work/tests/unit/x.c"
is 'a fork that is not fork_child is found' test "$(forks "$work/tests" | wc -l)" = 1

printf '%s\n' 'lock_a_x.c malloc U' 'base_alloc.c malloc U' 'cluster_pmix.c free U' >"$work/symbols"
is 'memory from elsewhere is found' test "$(foreign_memory "$work/symbols")" = 'lock_a_x.c malloc'

# Names stand in one column, beside the line to the tool or below it.
drawn=$(awk '/^```/ { code++ } code == 1' "$page" | grep -oE '^ {15}\| {17}[a-z]+ |^ {17}[a-z]+ ' |
	tr -d '| ' | tac | xargs)
is 'the picture has the rooms of the build, in their order' test "$drawn" = "$(xargs <<<"$rooms")"
there=$(cd "$top/src" && find . -mindepth 1 -maxdepth 1 -type d | sed 's|^\./||' | sort | xargs)
is 'every folder of src/ is a room' test "$there" = "$(xargs -n 1 <<<"$rooms" | sort | xargs)"
is 'no room includes one above it' test -z "$(upwards "$top/src" | tee "$work/out")"
is 'no folders include each other in a circle' test -z "$(circles "$top/src" | tee "$work/out")"
is 'backends, protocols and subjects stand apart' test -z "$(beside "$top/src" | tee "$work/out")"
symbols >"$work/symbols" 2>"$work/err"
if [ "$(calls "$top/src" "$work/symbols" | wc -l)" -ge 200 ]; then
	is 'the files of a folder call one way' \
		test -z "$(rings "$top/src" "$work/symbols" | tee "$work/out")"
else
	skip 'the files of a folder call one way' 'these objects do not tell who calls whom'
fi
# In the library: what only the tools have may do as it likes.
awk -v dirs="$(cd "$top/src" && ls -d base task cluster fabric rpc lock store txn cc | xargs)" '
	BEGIN { n = split(dirs, d); for (i = 1; i <= n; i++) in_library[d[i]] }
	{ split($1, part, "_") } part[1] in in_library' "$work/symbols" >"$work/library"
if [ "$(grep -c ' vb_\(malloc\|calloc\|free\) U' "$work/library")" -ge 50 ]; then
	is 'the library asks for memory in one place' test -z "$(foreign_memory "$work/library" | tee "$work/out")"
else
	skip 'the library asks for memory in one place' 'these objects do not tell what they call'
fi
is 'children of tests end with them' test -z "$(forks "$top/tests" | tee "$work/out")"
is 'the map has its rows' test "$(map "$page" | wc -l)" -ge 10
is 'the map leads to what is there' test -z "$(astray "$page" | tee "$work/out")"
finish
