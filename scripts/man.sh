#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/man.sh SCDOC VERBENA PAGE.scd
#
# Prints the man page: the hand-written part, with the commands and their options put in by the tool
# itself, from the tables that parse them.
set -eu
commands=$("$2" help --man)
[ -n "$commands" ]
while IFS= read -r line; do
	if [ "$line" = '@COMMANDS@' ]; then
		printf '%s\n' "$commands"
	else
		printf '%s\n' "$line"
	fi
done <"$3" | "$1"
