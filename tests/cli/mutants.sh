#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# scripts/mutants.sh: its list, and what it says of mutants that do not apply, of bad input, and of what its
# checkers find.  Nothing is built: who builds here only pretends.
set -u
. "$(dirname "$0")/lib.sh"
script=$(cd "$(dirname "$0")/../../scripts" && pwd)/mutants.sh

mutants() {
	timeout 120 "$script" "$@" >"$work/out" 2>"$work/err" </dev/null
	status=$?
}
says() {
	grep -qF -- "$1" "$work/out"
}
complains() {
	grep -qF -- "$1" "$work/err"
}

mutants --check
is 'every mutant applies to these sources' [ "$status" = 0 ]
mutants --list
is 'there are 120 at least' [ "$(wc -l <"$work/out")" -ge 120 ]
"$verbena" list --json | jq -r '.locks[].name, .cc[].name' >"$work/names"
without=$(while read -r name; do
	grep -qE "^ask: check (lock --lock|txn --cc) ([a-z-]+,)*$name(,|$)" \
		"$(dirname "$script")"/../tests/mutants/*.txt || echo "$name"
done <"$work/names")
is 'every lock and every protocol has some' [ -z "$without" ]
mutants --list --room cc-silo
is 'those of one room' [ "$(cut -d ' ' -f 1 "$work/out" | grep -vc '^silo-')" = 0 ]
mutants --list --quick
is 'some are for every day' [ "$(wc -l <"$work/out")" -ge 10 ]

for bad in '--seeds 0' '--jobs many' '--asks -1' '--within soon'; do
	# shellcheck disable=SC2086
	mutants $bad
	is "$bad: exit status 2" [ "$status" = 2 ]
	is "$bad: it says what it wants" complains 'wants a number from 1 on'
done
mutants --only nonsense
is 'an unknown mutant is named' complains "no mutant is called 'nonsense'"
mutants --room nonsense
is 'an unknown room is named, and which there are' complains 'there are: base-alloc'
mutants --out
is 'an option without its value' complains '--out wants a value'
mutants --nonsense
is 'an unknown option' complains "there is no option '--nonsense'"
touch "$work/there"
mutants --out "$work/there"
is 'results that are there are not written over' complains 'is there already'

# A tree of its own.
mkdir -p "$work/tree/scripts" "$work/tree/tests/mutants" "$work/tree/src"
cp "$script" "$work/tree/scripts"
script=$work/tree/scripts/mutants.sh
mutants --check
is 'without mutants it says where they should be' complains '/tests/mutants/*.txt'
cat >"$work/tree/src/a.c" <<'C'
int f(int a)
{
	if (a > 3)
		return 1;

	if (a > 3)
		return 2;
	return 0;
}
C
mutant() { # NAME TEXT-THAT-IS-THERE, TEXT-INSTEAD
	printf '== %s\nfile: src/a.c\nclass: liveness\nbreaks: f is wrong\nask: check lock\n%s\n\n' "$1" "$2"
}
{
	mutant good '-return 2;
+	return 3;'
	mutant across '-    return 1;

 	if (a > 3)
+		return 5;'
} >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'indentation does not matter, empty lines do' says '2 mutants apply'
mutant twice '-	if (a > 3)
+	if (a > 4)' >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'a text that is there twice' says 'mutant twice no longer applies: src/a.c has that text twice'
is '... exit status 1' [ "$status" = 1 ]
mutant gone '-	return 7;
+	return 8;' >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'a text that is not there' says 'mutant gone no longer applies: src/a.c has no such text'
mutant idle ' 	return 0;' >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'a mutant that changes nothing' says 'mutant idle changes nothing in src/a.c'
mutant gone '-	return 0;' | sed 's|src/a.c|src/b.c|' >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'a file that is not there' says 'there is no src/b.c'
mutant dull '-	return 0;' | grep -v '^breaks' >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'a mutant that does not say what it breaks' says 'mutant dull of a: it says not what it breaks'
{
	mutant same '-	return 0;'
	mutant same '-	return 2;'
} >"$work/tree/tests/mutants/a.txt"
mutants --check
is 'two of one name' complains 'two mutants have the same name: same'

# Its checkers: a verbena that says with the mutant what a real one has said, with a build that is none.
pretend() { # COMMAND
	cat >"$work/bin/$1"
	chmod +x "$work/bin/$1"
}
found_as() { # EXIT-STATUS-OF-THE-CHECK
	echo "$1" >"$work/ends"
	mutants --only good --seeds 3 --dir "$work/copies" --out "$work/$n.tsv"
	result=$(cut -f 4-7 "$work/$n.tsv" | tr '\t' ';')
}
mkdir "$work/bin"
pretend git <<SH
#!/bin/sh
cd "$work/tree" && find . -type f | sed 's|^[.]/||'
SH
pretend meson <<'SH'
#!/bin/sh
[ "$1" = setup ] || { [ "$2" = --tests ] && cat "$3/../../../../tests.json" || echo '[]'; exit; }
mkdir -p "$2/src" && touch "$2/build.ninja"
SH
pretend ninja <<SH
#!/bin/sh
[ "\$1" != --version ] || exec echo 1
! grep -q 'return 4' "\$2/../src/a.c" || exit 1
cp "$work/bin/a-verbena" "\$2/src/verbena"
SH
pretend a-verbena <<SH
#!/bin/sh
[ -e "$work/always" ] || grep -qs 'return 3' "\$(dirname "\$0")/../../src/a.c" || exit 0
while [ "\$1" != --json ]; do shift; done
[ ! -s "$work/said.json" ] || cp "$work/said.json" "\$2"
exit "\$(cat "$work/ends")"
SH
echo '[]' >"$work/tests.json"
PATH=$work/bin:$PATH
mutant good '-return 2;
+	return 3;' >"$work/tree/tests/mutants/a.txt"
if command -v jq >/dev/null; then
	run check lock --lock mcs --seeds 3 --json "$work/said.json"
	found_as 0
	is 'nothing is found' [ "$status;$result" = '0;survived;-;-;-' ]
	cp "$work/said.json" "$work/clean.json"
	jq '.runs[0] |= (.never_reached = 1 |
		(.sites[] | select(.reached == 0)) |= (.site = "mcs: a rare branch" | .within = 3))' \
		"$work/clean.json" >"$work/said.json"
	found_as 3
	is 'a branch that is never reached' \
		[ "$status;$result" = '0;found;check lock --seeds 3;3;never reached: mcs: a rare branch' ]
	jq -s '.[0].runs += .[1].runs | .[0]' "$work/said.json" "$work/clean.json" >"$work/two.json"
	run check lock --lock planted:double-grant --seeds 40 --json "$work/planted.json"
	jq -s '.[0].runs += .[1].runs | .[0]' "$work/two.json" "$work/planted.json" >"$work/said.json"
	rule=$(jq -r '.runs[0].first_violation | "\(.seed);\(.rule)"' "$work/planted.json")
	found_as 3
	is 'a violation is more than that' [ "$result" = "found;check lock --seeds 3;$rule" ]
	: >"$work/said.json"
	found_as 3
	is 'one that says nothing' [ "$result" = 'found;check lock --seeds 3;-;exit status 3' ]
	found_as 1
	is 'one that fails' [ "$result" = 'found;check lock --seeds 3;-;exit status 1' ]
	sed -i 's/^ask: .*/ask: check litmus --lock cas --runs 9/' "$work/tree/tests/mutants/a.txt"
	run check litmus --lock planted:double-grant --world writers --json "$work/said.json"
	rule=$(jq -r '.runs[0] | "\(.runs);\(.rule)"' "$work/said.json")
	found_as 3
	is 'small worlds have no seeds' [ "$result" = "found;check litmus --lock cas --runs 9;$rule" ]
	touch "$work/always"
	found_as 3
	is 'one that finds the same without a mutant is not asked' [ "$result" = 'survived;-;-;-' ]
	is '... and it is said' complains "'check litmus --lock cas --runs 9' finds something without a mutant"
	rm "$work/always"

	# A test that fails with the mutant, and one that fails in any case.
	sed -i 's/^ask: .*/ask: test unit broken\nask: test unit a/' "$work/tree/tests/mutants/a.txt"
	for t in a broken; do
		jq -n --arg name $t --arg cmd "$work/bin/test-$t" \
			'{$name, suite: ["verbena:unit"], env: {}, cmd: [$cmd], depends: []}'
	done | jq -s . >"$work/tests.json"
	pretend test-broken <<'SH'
#!/bin/sh
exit 1
SH
	pretend test-a <<'SH'
#!/bin/sh
! grep -q 'return 3' ../src/a.c || { echo 'not ok 1 - f is right'; exit 1; }
SH
	found_as 0
	is 'a test finds it' [ "$result" = 'found;test unit a;-;f is right' ]
	is '... and not one that fails without a mutant' complains "'test unit broken' fails without a mutant"
	sed -i 's/return 3/return 4/' "$work/tree/tests/mutants/a.txt"
	found_as 0
	is 'one that does not build' [ "$status;$result" = '1;did not build;-;-;-' ]
else
	skip 'what is found' 'jq is not installed'
fi
echo "1..$n"
