#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/soak.sh: what it keeps of a planted bug runs again, it goes on where it was, and ends when it
# is told to.
set -u
. "$(dirname "$0")/lib.sh"
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/soak.sh
case $verbena in /*) ;; *) verbena=$PWD/$verbena ;; esac
dir=$work/soak

soak() {
	timeout 200 "$script" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}
complains() {
	[ "$status" = 2 ] && grep -qF -- "$1" "$work/err"
}
# The sum of a column of the ledger, of one protocol.
sum() { # PROTOCOL COLUMN
	awk -F '\t' -v name="$1" -v c="$2" '$3 == name { n += $c } END { print n + 0 }' "$dir/ledger.tsv"
}

soak
is 'it wants to know for how long' complains 'for how many hours?'
for bad in soon -1 1e3 ''; do
	soak "$bad" --verbena "$verbena" --dir "$dir"
	is "HOURS '$bad'" [ "$status" = 2 ]
done
soak 1 2
is 'two numbers of hours' complains "HOURS is one number, and there are '1' and '2'"
soak 1 --jobs 0
is '--jobs 0' complains 'wants a number from 1 on'
soak 1 --dir
is 'an option without its value' complains '--dir wants a value'
soak 1 --nonsense
is 'an unknown option' complains "there is no option '--nonsense'"
soak 1 --verbena "$work/nobody"
is 'a verbena that is not there' complains 'build it with make, or name one with --verbena'
soak 1 --verbena "$verbena" --dir "$dir" --only nonsense
is 'an unknown lock' complains "no lock or protocol is called 'nonsense'"

# Less than a second: one draw.
soak 0.0001 --verbena "$verbena" --dir "$dir" --jobs 1 --slice 20 --only planted:double-grant
is 'a planted bug is found: exit status 3' [ "$status" = 3 ]
is '... and counted' [ "$(sum planted:double-grant 8)" -ge 1 ]
is '... and all seeds were run' [ "$(sum planted:double-grant 6)" = 20 ]
found=$(find "$dir/found" -name 'planted-double-grant-*.sh' | head -n 1)
is '... and kept, with its rule and its commit' \
	grep -qF "mode-conflict: found on $(date -u +%Y)" "$found"
is '... and its story' grep -q '^#	mode-conflict: lock' "$found"
VERBENA=$verbena "$found" >"$work/out" 2>"$work/err"
status=$?
is '... and it runs again' [ "$status" = 3 ]
run check history "${found%.sh}.history"
is '... and its history can be judged' [ "$status" = 3 ]

soak 0.0001 --verbena "$verbena" --dir "$dir" --jobs 2 --slice 5 --only silo
is 'it goes on in the same folder; nothing found: exit status 0' [ "$status" = 0 ]
is '... with a code for each draw' \
	[ "$(awk -F '\t' '$3 == "silo"' "$dir/ledger.tsv" | cut -f 4 | grep -cvE '^[01]{5}$')" = 0 ]
is '... and the table has both runs' grep -qE "^all +$((20 + $(sum silo 6))) " "$work/out"
is '... and what was kept' grep -qxF "$found" "$work/out"
soak 0 --verbena "$verbena" --dir "$dir"
is '0 hours: the table alone' grep -qE "^silo +[0-9]+ +$(sum silo 6) " "$work/out"
soak 0.0001 --verbena "$verbena" --dir "$dir" --jobs 1 --slice 5 --only drtm-h
is 'a name for one code is drawn with that one' \
	[ "$(awk -F '\t' '$3 == "drtm-h" { print $4 }' "$dir/ledger.tsv" | sort -u)" = 01111 ]

# Nobody has named one: of what there is, which here is only what stands in a list of its own.
cat >"$work/declared" <<SH
#!/bin/sh
[ "\$1" = list ] || exec "$verbena" "\$@"
"$verbena" "\$@" | jq '.locks = [] | .cc = []'
SH
chmod +x "$work/declared"
soak 0.0001 --verbena "$work/declared" --dir "$work/declares" --jobs 1 --slice 5
is 'a protocol whose transactions declare all is drawn, too' \
	[ "$(tail -n +2 "$work/declares/ledger.tsv" | cut -f 3,6 | sort -u)" = "$(printf 'calvin\t5')" ]

# A crash, and at which seed it is.
cat >"$work/crashes" <<SH
#!/bin/sh
[ "\$1" = check ] || exec "$verbena" "\$@"
seeds=1
for a in "\$@"; do
	[ "\$last" != --seed ] || seed=\$a
	[ "\$last" != --seeds ] || seeds=\$a
	last=\$a
done 2>/dev/null
[ \$(((seed + seeds - 1) / 7)) = \$(((seed - 1) / 7)) ] || kill -SEGV \$\$
exec "$verbena" "\$@"
SH
chmod +x "$work/crashes"
soak 0.0001 --verbena "$work/crashes" --dir "$work/crashed" --jobs 1 --slice 10 --only cas
is 'a crash is found' [ "$status" = 3 ]
found=$(find "$work/crashed/found" -name 'cas-*.sh' | head -n 1)
is '... and kept' grep -q '^# crash: found' "$found"
seed=${found##*-}
is '... and its seed is the one that crashes' [ $((${seed%.sh} % 7)) = 0 ]

# By its process id: timeout would be the one that is told.
draws() { # NUMBER
	[ "$(cat "$dir/ledger.tsv" 2>/dev/null | wc -l)" -gt "$1" ]
}
dir=$work/stopped
"$script" 1 --verbena "$verbena" --dir "$dir" --jobs 2 --slice 5 --only cas,no-wait >"$work/long" 2>&1 </dev/null &
pid=$!
until_true 'it draws again and again' draws 4
soak 1 --verbena "$verbena" --dir "$dir"
is 'another run in its folder is refused' complains 'another run is under way'
kill -TERM $pid
wait $pid
status=$?
is 'told to end it ends: exit status 130' [ "$status" = 130 ]
is '... with its table' grep -qE '^all +[1-9]' "$work/long"
is '... and leaves nobody behind' [ -z "$(pgrep -f "$dir/verbena")" ]
is '... and no line is in half' [ -z "$(awk -F '\t' 'NF != 8' "$dir/ledger.tsv")" ]
finish
