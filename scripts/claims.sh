#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/claims.sh CLAIMS.TSV
#
# The lines of data/claims.tsv as the initialisers of C's `struct vb_paper_claim`, on stdout.
set -eu
awk -F '\t' '
NR == 1 { columns = NF; next }
NF != columns { printf "%s:%d: %d columns, not %d\n", FILENAME, FNR, NF, columns >"/dev/stderr"; bad = 1; exit }
{
	printf "{"
	for (i = 1; i <= NF; i++) {
		gsub(/\\/, "\\\\", $i)
		gsub(/"/, "\\\"", $i)
		printf "%s\"%s\"", (i > 1 ? ", " : ""), $i
	}
	print "},"
}
END { exit bad }
' "$1"
