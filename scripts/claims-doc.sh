#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/claims-doc.sh [BUILD]
#
# Runs the papers' experiments on locks on the simulator (minutes; no other machine gives other
# numbers) and puts the table of claims into doc/claims.md after its mark, with the commit that was
# measured.  CLAIMS_TEXT=FILE: take what `verbena reproduce --markdown` has printed there.
set -eu
cd "$(dirname "$0")/.."
build=${1-build}
out=$build/reproduce
mkdir -p "$out"
text=${CLAIMS_TEXT:-$out/all.md}
[ -n "${CLAIMS_TEXT:-}" ] || "$build/src/verbena" reproduce dslr shiftlock eth --markdown --out "$out" >"$text"
commit=$("$build/src/verbena" --version | sed -n 's/.*(\([0-9a-f]*\).*).*/\1/p')
[ -n "$commit" ] || { echo "claims-doc.sh: $build/src/verbena does not say its commit" >&2; exit 1; }
{
	sed '/^<!-- claims -->$/q' doc/claims.md
	printf '<!-- results of %s -->\n\n' "$commit"
	sed -n '/^### Claims$/,$p' "$text" | sed 1,2d
} >"$out/claims.md"
mv "$out/claims.md" doc/claims.md
