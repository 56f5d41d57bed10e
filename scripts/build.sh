#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/build.sh DIR [MESON-SETUP-OPTION...]
#
# VERBENA_BUILD_TARGETS  what to build (everything)
#
# Builds into DIR: a release build unless the options say otherwise.  A directory that was set up with
# other options or from another place, or by a setup that did not finish, is made anew; what was measured
# stays in it (demo-*.json, peers*.json).
set -eu
cd "$(dirname "$0")/.."
dir=$1
shift

setup="$PWD --buildtype=release CC=${CC-} $*"
if [ ! -f "$dir/build.ninja" ] || [ "$(cat "$dir/.setup" 2>/dev/null)" != "$setup" ]; then
	[ ! -d "$dir" ] || find "$dir" -mindepth 1 -maxdepth 1 ! -name 'demo-*.json' ! -name 'peers*.json' -exec rm -rf {} +
	meson setup "$dir" --buildtype=release "$@" </dev/null
	printf '%s\n' "$setup" >"$dir/.setup"
fi
# shellcheck disable=SC2086
exec ninja -C "$dir" ${VERBENA_BUILD_TARGETS-}
