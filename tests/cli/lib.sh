# SPDX-License-Identifier: Apache-2.0
# What the command-line tests share: TAP on stdout, one line a case.  Sourced.

verbena=$1
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-cli.XXXXXX")
trap 'rm -rf "$work"' EXIT
export VERBENA_LOG=warn
n=0

ok() { # NAME
	n=$((n + 1))
	echo "ok $n - $1"
}

not_ok() { # NAME WHY
	n=$((n + 1))
	echo "not ok $n - $1"
	printf '%s\n' "$2" | sed 's/^/# /'
}

skip() { # NAME WHY
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

# Runs verbena; its output is in $work/out and $work/err, its exit status in $status.
run() {
	timeout 120 "$verbena" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}

# A case that is a condition: is NAME CONDITION...
is() {
	name=$1
	shift
	if "$@" >"$work/is" 2>&1; then
		ok "$name"
	else
		not_ok "$name" "failed: $*
$(cat "$work/is")
exit status $status
$(head -n 20 "$work/out")
$(head -n 20 "$work/err")"
	fi
}

# Waits for a condition, for a minute at most; fails the case NAME if it does not come.  Looking costs
# nothing that a verdict depends on.
until_true() { # NAME COMMAND...
	name=$1 looks=0
	shift
	while ! "$@" >/dev/null && [ $looks -lt 1200 ]; do
		sleep 0.05
		looks=$((looks + 1))
	done
	[ $looks -lt 1200 ] || not_ok "$name" "waited for a minute: $*"
}

# A benchmark started with VERBENA_LOG=$loud says when it is past its set-up.
loud=warn,bench:info
measures() { # [ITS-STDERR]
	grep -q 'all clients run: measuring' "${1:-$work/err}"
}
# The processor time that it has used, in hundredths of a second; nothing when it has gone.
ticks() { # PID
	awk '{ print $14 + $15 }' "/proc/$1/stat" 2>/dev/null
}
has_worked() { # PID UNTIL
	now=$(ticks "$1")
	[ "${now:-$2}" -ge "$2" ]
}
# It measures, and one of its processes has worked since, for so long.
under_way() { # PID HUNDREDTHS
	until_true 'it measures' measures
	until_true 'it works' has_worked "$1" $(($(ticks "$1") + $2))
}

# The file of the segment that a command line names, if it names one and the file is there.  Only a
# segment with a name has one; others in /dev/shm belong to tests that run beside this one.
its_segment() { # ARGS...
	while [ $# -gt 1 ]; do
		[ "$1" != --segment ] || ! [ -e "/dev/shm/verbena.$2" ] || echo "/dev/shm/verbena.$2"
		shift
	done
}

# Bad input: an exit status, nothing on stdout, and one line on stderr that has every one of WORDS.
refused() { # NAME STATUS 'WORDS' ARGS...
	name=$1 expect=$2 words=$3
	shift 3
	before=$(its_segment "$@")
	run "$@"
	why=
	[ "$status" = "$expect" ] || why="exit status $status, not $expect"
	[ -s "$work/out" ] && why="$why; something on stdout"
	[ "$(wc -l <"$work/err")" = 1 ] || why="$why; not one line on stderr"
	for word in $words; do
		grep -qF -- "$word" "$work/err" || why="$why; no word of '$word'"
	done
	[ "$(its_segment "$@")" = "$before" ] || why="$why; shared memory is left behind"
	if [ -z "$why" ]; then
		ok "$name"
	else
		not_ok "$name" "$why: verbena $*
$(cat "$work/out" "$work/err")"
	fi
}

# Of JSON, what a filter says of the file $json.
json=$work/run.json
holds() { # FILTER
	jq -e "$1" "$json" >/dev/null
}
is_json() { # NAME FILTER
	is "$1" holds "$2"
}

# Parts that wait for the most part, made side by side: each in a shell and a work directory of its own.
# joined: until all have ended; their cases follow each other in the order in which they were begun.
parts=0
beside() { # FUNCTION ARGS...
	parts=$((parts + 1))
	mkdir "$work/part$parts"
	(
		work=$work/part$parts n=0
		"$@"
		exit 0
	) >"$work/said$parts" 2>&1 &
	eval "part$parts=$!"
}
joined() {
	part=0
	while [ $part -lt $parts ]; do
		part=$((part + 1))
		eval "wait \$part$part" || not_ok "part $part" "ended with status $?"
		awk -v n=$n '/^(not )?ok [0-9]/ { sub(/ok [0-9]+/, "ok " ++n) } 1' "$work/said$part"
		n=$((n + $(grep -cE '^(not )?ok [0-9]' "$work/said$part")))
	done
	parts=0
}

# Of rows of a page's tables on stdin, whose last cell is `path` `case` `case` ..., several paths one after
# the other: the files that are not there, and the cases that their file does not have.  One process: there
# are hundreds of names.
tests_that_are_missing() { # TOP
	awk -v top="$1/" '
	function text_of(file,    text, line) {
		while ((getline line < (top file)) > 0)
			text = text line "\n"
		close(top file)
		return text
	}
	{
		cell = $0
		sub(/\|$/, "", cell)
		sub(/.*\|/, "", cell)
		n = split(cell, word, "`")
		file = ""
		for (i = 2; i <= n; i += 2) {
			if (word[i] ~ /\//) {
				file = word[i]
				if (!(file in text) && (text[file] = text_of(file)) == "")
					print file ": there is no such file"
			} else if (file != "" && text[file] != "" &&
				   text[file] !~ ("(^|[^a-zA-Z0-9_])" word[i] "([^a-zA-Z0-9_]|$)")) {
				print file " has no \047" word[i] "\047"
			}
		}
	}'
}

finish() {
	echo "1..$n"
}
