#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What Python is there runs the tests of the bindings, in TAP; without any they are skipped by name.
if ! command -v python3 >/dev/null; then
	echo 'ok 1 - the bindings for Python # SKIP python3 is not installed'
	echo '1..1'
	exit 0
fi
exec python3 "$(dirname "$0")/run.py" "$@"
