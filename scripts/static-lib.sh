#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/static-lib.sh OBJCOPY AR IN.a OUT.a CC...
#
# One object of all that are in IN.a, whose only global names are those that the headers declare: all others
# have hidden visibility, and become local.  So a program that links OUT.a may use any other name.
set -eu
objcopy=$1 ar=$2 in=$3 out=$4
shift 4
object=$out.o
trap 'rm -f "$object"' EXIT
"$@" -r -nostdlib -o "$object" -Wl,--whole-archive "$in" -Wl,--no-whole-archive
"$objcopy" --localize-hidden "$object"
rm -f "$out"
"$ar" rcs "$out" "$object"
