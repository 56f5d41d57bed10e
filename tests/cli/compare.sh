#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/compare.sh judges what was measured, and scripts/results-age.sh tells results from older code: TAP.
set -u
. "$(dirname "$0")/lib.sh"
scripts=$(cd "$(dirname "$0")/../../scripts" && pwd)

# Figure, then a ratio for each round, in thousandths.
rounds() {
	figure=$1 round=0
	shift
	for ratio in "$@"; do
		round=$((round + 1))
		printf '%s\t%s\trev\t1000\n%s\t%s\thead\t%s\n' "$figure" $round "$figure" $round "$ratio"
	done
}

judge() {
	"$scripts/compare.sh" --judge "$work/list" "$@" >"$work/out" 2>"$work/err"
	status=$?
}

says() {
	grep -q "$1" "$work/out"
}

{
	rounds 'tcp free: dslr' 350 351 349 352 350 348 351
	rounds 'shm hot: mcs' 990 1010 1000 1005 1000 980 1020
} >"$work/list"
judge
is 'slower beyond its noise: exit status 1' [ "$status" = 1 ]
is 'slower: named, with its median' says 'tcp free: dslr  *0.350 .*SLOWER'
is 'as fast: not named' says 'shm hot: mcs  *1.00[0-9]* .* 7  $'
judge 0.3
is 'a lower bound allows it' [ "$status" = 0 ]

rounds 'shm hot: cas' 500 1100 820 1300 950 700 1200 >"$work/list"
judge
is 'noise: the median is above the bound' [ "$status" = 0 ]
rounds 'shm hot: cas' 500 600 550 700 650 800 1100 >"$work/list"
judge
is 'slower, but within its noise: exit status 0' [ "$status" = 0 ]
is '... and it is said' says 'slower, or noise'

rounds 'a' 1000 1000 1000 1000 1000 1000 1000 >"$work/list"
printf 'new\t1\thead\t5\n' >>"$work/list"
judge
is 'what REV lacks is told and no fault' [ "$status" = 0 ]
is '... by name' says 'new .*not in REV'
printf 'old\t1\trev\t5\n' >>"$work/list"
judge
is 'what HEAD lacks is one' [ "$status" = 1 ]
is '... by name, too' says 'old .*NOT IN HEAD'

# Of eleven rounds one may be an accident.
rounds 'shm hot: cas' 500 600 550 700 650 800 600 600 600 600 1100 >"$work/list"
judge
is 'one round of eleven does not acquit' [ "$status" = 1 ]
rounds 'shm hot: cas' 500 500 500 500 500 500 >"$work/list"
judge
is 'six rounds judge nothing: exit status 2' [ "$status" = 2 ]
is '... and say so' says 'too few rounds to tell'

: >"$work/list"
judge
is 'nothing to judge: exit status 2' [ "$status" = 2 ]
"$scripts/compare.sh" --rounds 1 nosuchcommit >"$work/out" 2>"$work/err"
is 'no such commit: exit status 2' [ $? = 2 ]

# ---- what each side has ----

repo=$work/repo
mkdir -p "$repo/scripts" "$repo/src" "$repo/doc"
cp "$scripts/results-age.sh" "$scripts/compare.sh" "$repo/scripts/"
commit() {
	git -C "$repo" add -A
	git -C "$repo" -c user.name=t -c user.email=t@t commit -q -m "$1"
	git -C "$repo" rev-parse --short=12 HEAD
}

# In place of a commit's build: knows LOCKS and FABRICS, words of a list, and as it says fails a run that
# names another one, or has the word FAILS.
stand_in() { # COMMIT LOCKS FABRICS FAILS
	mkdir -p "$work/build/$1"
	cat >"$work/build/$1/verbena" <<-EOF
		#!/bin/bash
		known='$2' fabrics='$3' fails='$4'
		entries() { jq -n --arg w "\$1" '[\$w | split(",")[] | {name: ., absent: null}]'; }
		if [ "\$1" = list ]; then
			jq -n --argjson l "\$(entries "\$known")" --argjson f "\$(entries "\$fabrics")" '{locks: \$l, fabrics: \$f}'
			exit
		fi
		while [ \$# -gt 0 ]; do
			case \$1 in --lock) lock=\$2 ;; --fabric) fabric=\$2 ;; --json) json=\$2 ;; esac
			[ "\$1" != "\$fails" ] || why="fails at \$1"
			shift
		done
		case ,\$fabrics, in *,"\$fabric",*) ;; *) why="no fabric '\$fabric'" ;; esac
		for l in \${lock//,/ }; do
			case ,\$known, in *,"\$l",*) ;; *) why="no lock '\$l'" ;; esac
		done
		[ -z "\$why" ] || { echo "\$why"; exit 2; }
		for l in \${lock//,/ }; do
			runs+=", {\"lock\": \"\$l\", \"goodput_ops_s\": 1000}"
		done
		echo "{\"runs\": [\${runs#, }]}" >"\$json"
	EOF
	chmod +x "$work/build/$1/verbena"
}
between() { # ROUNDS ONLY
	"$repo/scripts/compare.sh" --build "$work/build" --rounds "$1" --only "$2" HEAD~1 >"$work/out" 2>"$work/err"
	status=$?
}
complains() { # TIMES WHAT
	[ "$(grep -c "$2" "$work/err")" = "$1" ]
}
if ! command -v jq >/dev/null; then
	skip 'what each side has' 'jq is not installed'
elif git -C "$repo" init -q 2>/dev/null; then
	old=$(commit old)
	echo new >"$repo/src/new.c"
	new=$(commit new)
	stand_in "$old" mcs,cas-backoff,other shm ''
	stand_in "$new" mcs,cas,cas-backoff,traditional shm,tcp ''
	between 7 shm,tcp,ucx
	is 'REV lacks a lock and a fabric: the figures of the others are there' [ "$status" = 0 ]
	is '... of a lock that both have' says 'shm hot: mcs  *1.000 .* 7  $'
	is '... and one whose name begins as that of one which is not' says 'shm free: cas-backoff  *1.000 .* 7  $'
	is '... the lock is not in REV' says 'shm hot: traditional  .*not in REV'
	is '... nor is the fabric' says 'tcp free: mcs  .*not in REV'
	is '... which is said before' says '^compare: not in REV: fabric tcp, fabric ucx, lock cas, .*lock traditional'
	is '... and nothing is run that must fail' complains 0 .
	is 'both lack a fabric: no figure of it' [ "$(grep -c '^ucx' "$work/out")" = 0 ]
	stand_in "$new" mcs shm,tcp ''
	between 1 shm
	is 'HEAD lacks a lock that REV has: exit status 1' [ "$status" = 1 ]
	is '... by name' says 'shm hot: cas-backoff  .*NOT IN HEAD'
	stand_in "$old" mcs shm 100k
	between 7 shm
	is 'a run that fails ends nothing' [ "$status" = 0 ]
	is '... the other figures are there' says 'shm hot: mcs  *1.000 .* 7  $'
	is '... it is said once, and why' complains 1 "rev: 'verbena bench lock .* ends with 2: fails at 100k"
	is '... and how often it was' says '^compare: 7 rounds, 7 runs failed'
else
	skip 'what each side has' 'no git'
fi

# ---- how old results are ----

age() {
	"$repo/scripts/results-age.sh" >"$work/out" 2>"$work/err"
	status=$?
}
rm -rf "$repo/.git" "$repo/src" && mkdir "$repo/src"
if git -C "$repo" init -q 2>/dev/null; then
	echo one >"$repo/src/a.c"
	echo 'no figures' >"$repo/doc/a.md"
	made=$(commit first)
	printf 'text\n\n(2 cores, commit %s)\n' "$made" >"$repo/README.md"
	commit results >/dev/null
	age
	is 'results of the code that stands beside them' [ "$status" = 0 ]
	echo two >"$repo/src/a.c"
	commit 'dslr: faster' >/dev/null
	age
	is 'the code has changed: exit status 1' [ "$status" = 1 ]
	is '... and the place and the commit are named' says "README.md:3 .*$made.*by 1 commit"
	printf '(2 cores, commit 0123456789ab)\n' >"$repo/README.md"
	age
	is 'a commit that nobody has: exit status 1' [ "$status" = 1 ]
else
	skip 'how old results are' 'no git'
fi

echo "1..$n"
