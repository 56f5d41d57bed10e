#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/man.sh list CMD.c...
#        scripts/man.sh pages SCDOC VERBENA DIR
#        scripts/man.sh about SCDOC VERBENA PAGE.scd
#
# The commands, one a line, with a dash between two words; a man page of each, DIR/verbena-COMMAND.1, which
# the tool itself writes from the tables that parse its options; verbena(1): the hand-written part, with the
# commands and exit statuses put in by the tool.
set -eu
what=$1
shift
case $what in
list)
	sed -n 's/^\t\.name = "\(.*\)",$/\1/p' "$@" | tr ' ' -
	;;
pages)
	"$2" help --man | sed -n 's/^\*verbena-\(.*\)\*(1)$/\1/p' | while read -r name; do
		# shellcheck disable=SC2046
		page=$("$2" help --man $(echo "$name" | tr - ' '))
		printf '%s\n' "$page" | "$1" >"$3/verbena-$name.1"
	done
	;;
about)
	commands=$("$2" help --man)
	[ -n "$commands" ]
	while IFS= read -r line; do
		if [ "$line" = '@COMMANDS@' ]; then
			printf '%s\n' "$commands"
		else
			printf '%s\n' "$line"
		fi
	done <"$3" | "$1"
	;;
esac
