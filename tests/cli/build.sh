#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/build.sh: a folder that was set up otherwise is made anew, and what was measured stays in it.
. "$(dirname "$0")/lib.sh"
top=$(cd "$(dirname "$0")/../.." && pwd)
dir=$work/build

# Ninja says what it would do.
set_up() { # OPTION...
	VERBENA_BUILD_TARGETS=-n "$top/scripts/build.sh" "$dir" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

if ! command -v meson >/dev/null || ! command -v ninja >/dev/null; then
	skip 'a folder is made anew' 'meson or ninja is not installed'
	finish
	exit
fi
set_up -Dtests=disabled
is 'set up' [ "$status" = 0 ]
for file in demo-shm.json peers.json peers-busy.json left.txt; do
	echo "$file" >"$dir/$file"
done
set_up -Dtests=disabled
is 'the same options: nothing is made anew' [ -f "$dir/left.txt" ]
set_up -Dtests=disabled -Ddocs=false
is 'other options: made anew' [ "$status" = 0 ]
is 'other options: nothing else is left' [ ! -e "$dir/left.txt" ]
for file in demo-shm.json peers.json peers-busy.json; do
	is "other options: $file is there" grep -qx "$file" "$dir/$file"
done
finish
