#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/man-calls.sh list|threads HEADER.h...
#        scripts/man-calls.sh pages SCDOC DIR HEADER.h...
#        scripts/man-calls.sh about SCDOC HEADER.h... ABOUT.scd
#
# The public functions, one a line; the same with which threads may call them; a man page of each, DIR/NAME.3; the
# page about the library.  What stands in them stands in the headers' comments: man-calls.awk says how it is read.
# A page names the examples that call its function.
set -eu
what=$1
shift
awk=$(dirname "$0")/man-calls.awk
case $what in
list | threads)
	awk -f "$awk" -v what="$what" "$@"
	;;
pages)
	scdoc=$1 dir=$2
	shift 2
	called=$(cd "$(dirname "$0")/../examples" && grep -oE '\<vb_[a-z0-9_]+\(' ./*.c ./*.cpp |
		sed -n 's,^\./\(.*\):\(.*\)($,\2 \1,p' | sort -u)
	awk -f "$awk" -v what=pages -v called="$(echo "$called" | tr '\n' ' ')" "$@" | awk -v dir="$dir" '
		/^\f/ { close(file); file = dir "/" substr($0, 2) ".scd"; next }
		{ print > file }'
	for call in $(awk -f "$awk" -v what=list "$@"); do
		"$scdoc" <"$dir/$call.scd" >"$dir/$call.3"
		rm -f "$dir/$call.scd"
	done
	;;
about)
	scdoc=$1
	shift
	awk -f "$awk" -v what=about "$@" | "$scdoc"
	;;
esac
