#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/doc-code.sh PAGE.md FILE
#
# Prints the code block of a page that is marked "file=FILE" after its opening fence.  Fails if there
# is none, so that a renamed block is noticed.
set -eu
awk -v want="file=$2" '
	inside && /^```$/ { exit }
	inside { print; lines++ }
	/^```/ && $2 == want { inside = 1 }
	END { if (!lines) { print "no block " want > "/dev/stderr"; exit 1 } }
' "$1"
