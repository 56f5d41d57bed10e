#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/claims-doc.sh [BUILD]
#
# Runs the papers' experiments on locks on the simulator (minutes; no other machine gives other
# numbers) and puts the table of claims into doc/claims.md after its mark.
set -eu
cd "$(dirname "$0")/.."
build=${1-build}
out=$build/reproduce
mkdir -p "$out"
"$build/src/verbena" reproduce dslr shiftlock eth --markdown --out "$out" >"$out/all.md"
{
	sed '/^<!-- claims -->$/q' doc/claims.md
	printf '<!-- results of %s -->\n\n' "$(git rev-parse --short=12 HEAD)"
	sed -n '/^### Claims$/,$p' "$out/all.md" | sed 1,2d
} >"$out/claims.md"
mv "$out/claims.md" doc/claims.md
