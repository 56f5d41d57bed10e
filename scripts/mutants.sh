#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# How much do the checkers find?  tests/mutants/*.txt are small mistakes that somebody could make; each
# is made in a copy of the sources, built, and looked for by its checkers, one after the other, until
# one finds it.  doc/checking.md, "Mutation score", has the format and the score.
#
# usage: scripts/mutants.sh [OPTION]...
#
#	--list            say which there are, and build nothing
#	--check           look that each still applies, and build nothing
#	--only ID[,...]   these, in this order
#	--room ROOM       those of a room or protocol: tests/mutants/ROOM*.txt
#	--quick           the few that the stage "mutants" of `make test-all` wants found
#	--jobs N          in so many copies at a time (1)
#	--seeds N         seeds of each `check lock` (300); `check txn` has half as many, `check litmus` none
#	--asks N          only the first N checkers of each
#	--within S        none is begun later than S seconds after the start
#	--out FILE        the results (build-mutants/results.tsv)
#	--continue        go on with that file: leave out what was found, and ask only checkers that were not
#	--all-found       a mutant that survives is an error
#	--dir DIR         where the copies are (build-mutants)
#
# A checker that hangs or crashes has found it, too.  A test counts if it fails twice in a row; who finds
# the same without a mutant is not asked.  Of a mutant is built what its checkers need.
# The exit status is 1 if something does not apply, does not build or, with --all-found, survives.
set -u
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1

# In processor seconds, and in seconds of a machine with nothing else to do: what takes longer hangs.
check_limit=60
test_limit=150

fail() {
	echo "mutants: $*" >&2
	exit 2
}

what=run only='' room='' quick='' jobs=1 seeds=300 asks=99 within='' out='' go_on='' all_found='' dir=build-mutants
positive() { # OPTION VALUE
	[[ $2 =~ ^[1-9][0-9]{0,6}$ ]] || fail "$1 wants a number from 1 on, not '$2'"
}
while [ $# -gt 0 ]; do
	case $1 in
	--only | --room | --jobs | --seeds | --asks | --within | --out | --dir)
		[ -n "${2-}" ] || fail "$1 wants a value"
		;;
	esac
	case $1 in
	--list) what=list ;;
	--check) what=check ;;
	--only) only=$2 && shift ;;
	--room) room=$2 && shift ;;
	--quick) quick=yes ;;
	--jobs) positive "$1" "$2" && jobs=$2 && shift ;;
	--seeds) positive "$1" "$2" && seeds=$2 && shift ;;
	--asks) positive "$1" "$2" && asks=$2 && shift ;;
	--within) positive "$1" "$2" && within=$2 && shift ;;
	--out) out=$2 && shift ;;
	--dir) dir=$2 && shift ;;
	--continue) go_on=yes ;;
	--all-found) all_found=yes ;;
	--help)
		sed -n '3,/^set -u/s/^# \{0,1\}//p' "$0" | sed '/^set -u/d'
		exit 0
		;;
	*) fail "there is no option '$1'; --help says which there are" ;;
	esac
	shift
done

# ---- the list ----

# ID, room, class, file, quick, checkers (separated by |), what it breaks; one line each, by tabs.
list_all() {
	awk '
	function flush() {
		if (id != "")
			printf "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", id, room, class, file, quick, asks, breaks
		id = ""
	}
	function last_asks() { # behind the own ones, those of the file
		for (i = 1; i <= n_common; i++)
			if (!index("|" asks "|", "|" common[i] "|"))
				asks = asks (asks == "" ? "" : "|") common[i]
	}
	function finish() { if (id != "") { last_asks(); flush() } }
	FNR == 1 { finish(); n_common = 0; room = FILENAME; sub(/.*\//, "", room); sub(/\.txt$/, "", room) }
	/^== / { finish(); id = $2; class = file = asks = breaks = ""; quick = "-"; next }
	/^ask: / { sub(/^ask: /, ""); if (id == "") common[++n_common] = $0; else asks = asks (asks == "" ? "" : "|") $0 }
	/^class: / && id != "" { class = $2 }
	/^file: / && id != "" { file = $2 }
	/^quick: yes/ && id != "" { quick = "yes" }
	/^breaks: / && id != "" { sub(/^breaks: /, ""); breaks = $0 }
	END { finish() }
	' "$@"
}

shopt -s nullglob
files=("$top"/tests/mutants/*.txt)
[ ${#files[@]} -gt 0 ] || fail "there are no mutants: $top/tests/mutants/*.txt"
all=$(list_all "${files[@]}")
twice=$(cut -f 1 <<<"$all" | sort | uniq -d)
[ -z "$twice" ] || fail "two mutants have the same name: ${twice//$'\n'/, }"
chosen=$all
if [ -n "$room" ]; then
	chosen=$(awk -F '\t' -v room="$room" 'index($2, room) == 1' <<<"$all")
	[ -n "$chosen" ] || fail "no room is called '$room'; there are: $(cut -f 2 <<<"$all" | uniq | paste -sd ' ')"
fi
if [ -n "$only" ]; then
	unknown=$(cut -f 1 <<<"$all" | sort | comm -13 - <(tr ',' '\n' <<<"$only" | sort) | head -n 1)
	[ -z "$unknown" ] || fail "no mutant is called '$unknown'; --list says which there are"
	chosen=$(awk -F '\t' 'NR == FNR { row[$1] = $0; next } $1 in row { print row[$1] }' <(echo "$chosen") \
		<(tr ',' '\n' <<<"$only"))
fi
[ -z "$quick" ] || chosen=$(awk -F '\t' '$5 == "yes"' <<<"$chosen")
[ -n "$chosen" ] || fail "no mutant is all of that"

# ---- applying one ----

# Writes FILE with the mutant's change.  Lines are compared without their indentation; those without a
# mark and those with a "-" must stand in the file in a row, and only once.
apply() { # ID MUTANTS FILE
	awk -v id="$1" -v src="$3" '
	function norm(s) { gsub(/[ \t]+/, " ", s); sub(/^ /, "", s); sub(/ $/, "", s); return s }
	/^== / { mine = $2 == id; next }
	!mine { next }
	/^[a-z]+: / { next }
	{ n++; op[n] = /^[-+]/ ? substr($0, 1, 1) : " "; text[n] = substr($0, 2) }
	END {
		while (n > 0 && op[n] == " " && norm(text[n]) == "")
			n--
		for (i = 1; i <= n; i++)
			if (op[i] != "+")
				key[++m] = norm(text[i])
		while ((getline line < src) > 0) {
			s[++lines] = line
			t[lines] = norm(line)
		}
		for (p = 1; m > 0 && p + m - 1 <= lines; p++) {
			for (i = 1; i <= m && t[p + i - 1] == key[i]; i++)
				;
			if (i > m) {
				found++
				at = p
			}
		}
		if (found != 1)
			exit found > 1 ? 4 : 3
		for (p = 1; p < at; p++)
			print s[p]
		for (i = 1; i <= n; i++)
			if (op[i] == "+")
				print text[i]
			else if (op[i] == " ")
				print s[p++]
			else
				p++
		for (; p <= lines; p++)
			print s[p]
	}' "$2"
}

# Says why it does not apply.
complain() { # ID FILE STATUS
	case $3 in
	4) echo "mutant $1 no longer applies: $2 has that text twice" ;;
	*) echo "mutant $1 no longer applies: $2 has no such text" ;;
	esac
}

known_class() {
	case $1 in
	exclusion | atomicity | recovery | liveness | performance-only | telling) return 0 ;;
	esac
	return 1
}

check_list() {
	local id room class file quick asks breaks status wrong=0 n=0 new=${TMPDIR:-/tmp}/mutants.$$
	while IFS=$'\t' read -r id room class file quick asks breaks; do
		n=$((n + 1))
		if [ -z "$breaks" ] || [ -z "$asks" ] || ! known_class "$class"; then
			echo "mutant $id of $room: it says not what it breaks, or of which class, or who is asked"
			wrong=1
		elif [ ! -f "$top/$file" ]; then
			echo "mutant $id no longer applies: there is no $file"
			wrong=1
		elif apply "$id" "$top/tests/mutants/$room.txt" "$top/$file" >"$new"; then
			if cmp -s "$new" "$top/$file"; then
				echo "mutant $id changes nothing in $file"
				wrong=1
			fi
		else
			status=$?
			complain "$id" "$file" "$status"
			wrong=1
		fi
	done <<<"$chosen"
	rm -f "$new"
	[ $wrong = 0 ] && echo "$n mutants apply"
	return $wrong
}

case $what in
list)
	awk -F '\t' '{ printf "%-34s %-19s %-17s %s\n", $1, $2, $3, $7 }' <<<"$chosen"
	exit 0
	;;
check)
	check_list
	exit
	;;
esac

# ---- copies ----

for tool in git jq meson ninja; do
	command -v $tool >/dev/null || fail "$tool is not installed"
done
case $dir in /*) ;; *) dir=$top/$dir ;; esac
if [ -z "$out" ]; then
	out=$dir/results.tsv
	[ -n "$go_on" ] || rm -f "$out"
elif [ -e "$out" ] && [ -z "$go_on" ]; then
	fail "$out is there already: --continue goes on with it"
fi
mkdir -p "$dir" "$(dirname "$out")" || exit 1
out=$(cd "$(dirname "$out")" && pwd)/$(basename "$out")
touch "$out" || fail "$out cannot be written"

# The sources as they are here, committed or not; what has not changed keeps its time.  The build lies
# where one usually does, so that ccache knows it.
copy_to() { # TREE
	mkdir -p "$1"
	git -C "$top" ls-files -co --exclude-standard | (cd "$top" && while IFS= read -r f; do
		[ ! -f "$f" ] || printf '%s\n' "$f"
	done) | sort >"$1.files" || return
	(cd "$1" && find . -path './build*' -prune -o -type f -print) | sed 's|^\./||' | sort >"$1.have"
	comm -13 "$1.files" "$1.have" | (cd "$1" && xargs -r -d '\n' rm -f)
	(cd "$top" && xargs -r -d '\n' cksum) <"$1.files" | sort >"$1.sums"
	comm -12 "$1.files" "$1.have" | (cd "$1" && xargs -r -d '\n' cksum) | sort |
		comm -23 "$1.sums" - | cut -d ' ' -f 3- |
		(cd "$top" && xargs -r -d '\n' cp --parents -t "$1")
}

build_copy() { # WORK
	local setup="-Dtests=enabled -Dwerror=false"
	if [ ! -f "$1/tree/build/build.ninja" ]; then
		rm -rf "$1/tree/build"
		# shellcheck disable=SC2086
		CC=${CC-gcc} meson setup "$1/tree/build" "$1/tree" --buildtype=release $setup </dev/null || return
	fi
	meson introspect --tests "$1/tree/build" >"$1/tests.json" &&
		meson introspect --targets "$1/tree/build" >"$1/targets.json" || return
	ninja -C "$1/tree/build" src/libverbena_objects.a src/libverbena_tools.a || return
	! cut -f 6 <<<"$chosen" | cut -d '|' -f "-$asks" | tr '|' '\n' | grep -q '^check ' ||
		{ ninja -C "$1/tree/build" src/verbena && cp "$1/tree/build/src/verbena" "$1/plain"; }
}

build() { # WORK TARGET...
	ninja -C "$1/tree/build" "${@:2}" >"$1/build.log" 2>&1
}

# ---- asking ----

# A violation with the number of its seed, or of the run of a small world; or the first rare branch that
# all of the seeds, as many as it takes, have not reached.
what_was_found='
	(.runs[] | select(.kind == "check-litmus" and .found > 0) | "\(.runs) \(.rule)"),
	(.runs[] | select(.violations > 0) |
		"\(.first_violation.seed - .first_seed + 1) \(.first_violation.rule)"),
	(.runs[] | select(.never_reached > 0) | .seeds as $n |
		first(.sites[] | select(.reached == 0 and .within <= $n)) | "\($n) never reached: \(.site)")'

# Sets with and as: after how many seeds something was found, and as what.  1: nothing was found.
run_check() { # WORK VERBENA COMMAND
	local json=$1/found.json status
	rm -f "$json"
	with='' as=''
	# shellcheck disable=SC2086
	(ulimit -v 8000000; ulimit -t $check_limit; timeout -k 5 $((20 * check_limit)) \
		"$2" $3 --json "$json") >"$1/ask.log" 2>&1 </dev/null
	status=$?
	case $status in
	0) return 1 ;;
	3)
		read -r with as < <(jq -r "$what_was_found" "$json")
		[ -n "$as" ] || as='exit status 3'
		;;
	124 | 137 | 152) as=hang ;;
	*) as="exit status $status" && [ $status -gt 128 ] && as=crash ;;
	esac
	return 0
}

# Sets by as well.  2: the mutant does not build.
ask_check() { # WORK COMMAND
	build "$1" src/verbena || return 2
	case $2 in
	"check litmus"*) by=$2 ;;
	"check lock"*) by="$2 --seeds $seeds" ;;
	*) by="$2 --seeds $(((seeds + 1) / 2))" ;;
	esac
	run_check "$1" "$1/tree/build/src/verbena" "$by"
}

# Has it found nothing without the mutant, in as many seeds?
sound_check() { # WORK COMMAND
	local with=$with as=$as plain=$by
	[[ -z $with || $plain != *' --seeds '* ]] || plain="${plain% *} $with"
	grep -qxF -- "$plain" "$dir/sound" 2>/dev/null && return
	run_check "$1" "$1/plain" "$plain" || { echo "$plain" >>"$dir/sound" && return; }
	echo "mutants: '$plain' finds something without a mutant ($as): it is not asked" >&2
	echo "$2" >>"$dir/unasked"
	return 1
}

# Its case that failed first; or, if it crashed, the last that it began.
failed_case() { # LOG
	local name
	name=$(grep -aoE '\[  FAILED  \] [A-Za-z_]\w*|^not ok [0-9]+ - .{1,60}' "$1" | head -n 1)
	[ -n "$name" ] || name=$(grep -aoE '\[ RUN      \] \w+' "$1" | tail -n 1)
	sed 's/.*\] //; s/^not ok [0-9]* - //' <<<"$name"
}

# Runs it as `meson test` would, and ends what it leaves behind: timeout is the first of their group.
run_test() { # WORK COMMAND...
	local work=$1 pid status load
	shift
	read -r load _ </proc/loadavg
	(cd "$work/tree/build" && exec timeout -k 5 $((test_limit * (1 + ${load%.*} / $(nproc)))) "$@") >"$work/ask.log" 2>&1 </dev/null &
	pid=$!
	wait $pid
	status=$?
	kill -KILL -- -$pid 2>/dev/null
	[ $status = 0 ] || return $status
	! grep -qa '^not ok' "$work/ask.log"
}

# As ask_check.  Whom the test runs is built, and whoever depends on it.
ask_test() { # WORK SUITE NAME
	local status cmd targets one='[.[] | select(.name == $name and any(.suite[]; endswith(":" + $suite)))][0]'
	by="test $2 $3" with='' as=''
	mapfile -t cmd < <(jq -r --arg suite "$2" --arg name "$3" \
		"$one"' | (.env | to_entries[] | "\(.key)=\(.value)"), .cmd[]' "$1/tests.json" 2>/dev/null)
	if [ ${#cmd[@]} = 0 ]; then
		echo "mutants: there is no test '$3' in suite '$2'" >&2
		return 1
	fi
	mapfile -t targets < <(jq -r --arg suite "$2" --arg name "$3" --slurpfile all "$1/targets.json" \
		"$one"' | .depends[] as $id | $all[0][] | select(.id == $id) | .filename[0]' "$1/tests.json")
	build "$1" "${targets[@]#"$1/tree/build/"}" || return 2
	run_test "$1" env "${cmd[@]}" && return 1
	run_test "$1" env "${cmd[@]}"
	status=$?
	[ $status != 0 ] && [ $status != 77 ] || return 1
	as=$(failed_case "$1/ask.log")
	[ $status != 124 ] || as=hang
	[ -n "$as" ] || as="exit status $status"
	return 0
}

# Does it pass without the mutant?
sound_test() { # WORK SUITE NAME FILE
	local by with as broken=$1/broken.c sound=0
	grep -qxF -- "test $2 $3" "$dir/sound" 2>/dev/null && return
	cat "$4" >"$broken"
	cat "$1/kept.c" >"$4"
	ask_test "$1" "$2" "$3" && sound=1
	cat "$broken" >"$4"
	[ $sound = 1 ] || { echo "test $2 $3" >>"$dir/sound" && return; }
	echo "mutants: '$by' fails without a mutant ($as): it is not asked" >&2
	echo "$by" >>"$dir/unasked"
	return 1
}

ask() { # WORK COMMAND FILE
	local suite name
	case $2 in
	test\ *)
		read -r _ suite name <<<"$2"
		ask_test "$1" "$suite" "$name" || return
		sound_test "$1" "$suite" "$name" "$3"
		;;
	*)
		ask_check "$1" "$2" || return
		sound_check "$1" "$2"
		;;
	esac
}

# ---- one mutant ----

measure() { # WORK ID ROOM CLASS FILE ASKS FIRST
	local work=$1 begin=$SECONDS n=0 a list verdict=survived by='' with='' as='' status
	local file=$work/tree/$5 kept=$work/kept.c
	cp -p "$file" "$kept"
	if ! apply "$2" "$top/tests/mutants/$3.txt" "$kept" >"$file"; then
		status=$?
		complain "$2" "$5" "$status" >&2
		verdict="no longer applies"
	else
		IFS='|' read -ra list <<<"$6"
		for a in "${list[@]}"; do
			n=$((n + 1))
			[ $n -gt "$asks" ] && n=$asks && break
			[ "$n" -gt "$7" ] || continue
			grep -qxF -- "$a" "$dir/unasked" 2>/dev/null && continue
			ask "$work" "$a" "$file"
			status=$?
			[ $status != 0 ] || verdict=found
			[ $status != 2 ] || verdict="did not build"
			[ $status = 1 ] || break
			by='' with='' as=''
		done
	fi
	[ "$verdict" != "did not build" ] || { by='' with='' as='' && tail -n 20 "$work/build.log" >&2; }
	# A new time: what was built from the mutant is older.
	cat "$kept" >"$file"
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\n' "$2" "$3" "$4" "$verdict" "${by:--}" "${with:--}" \
		"${as:--}" "$n" $((SECONDS - begin)) >>"$out"
	printf '%-34s %-17s %s%s\n' "$2" "$4" "$verdict" "${by:+ by $by${with:+, seed $with}: $as}"
}

work_off() { # WORKER
	local i=0 id room class file quick list breaks first
	while IFS=$'\t' read -r id room class file quick list breaks; do
		i=$((i + 1))
		[ $((i % jobs)) = $(($1 % jobs)) ] || continue
		[ -z "$within" ] || [ "$SECONDS" -lt "$within" ] || break
		first=0
		if [ -n "$go_on" ]; then
			first=$(awk -F '\t' -v id="$id" '$1 == id { n = $4 == "survived" ? $8 : 99 } END { print n + 0 }' "$out")
			[ "$first" -lt "$asks" ] || continue
			[ "$first" -lt "$(awk -F '|' '{ print NF }' <<<"$list")" ] || continue
		fi
		measure "$dir/$1" "$id" "$room" "$class" "$file" "$list" "$first"
	done <<<"$chosen"
}

for k in $(seq "$jobs"); do
	mkdir -p "$dir/$k"
	copy_to "$dir/$k/tree" || fail "the sources cannot be copied to $dir/$k/tree"
	build_copy "$dir/$k" >"$dir/$k/build.log" 2>&1 || {
		tail -n 40 "$dir/$k/build.log"
		fail "the sources do not build in $dir/$k"
	}
done
rm -f "$dir/sound" "$dir/unasked"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; exit 130' INT TERM
for k in $(seq "$jobs"); do
	work_off "$k" &
	pids+=($!)
done
wait "${pids[@]}"

# ---- the score ----

# The last result of each counts; in the order of the list.
awk -F '\t' 'NR == FNR { order[++n] = $1; next } { row[$1] = $0 }
	END { for (i = 1; i <= n; i++) if (order[i] in row) print row[order[i]] }' \
	<(cut -f 1 <<<"$all") "$out" >"$out.new" && mv "$out.new" "$out"

score() { # COLUMN TITLE
	awk -F '\t' -v c="$1" -v title="$2" '
	NR == FNR { if (!($c in total)) order[++n] = $c; total[$c]++; all++; next }
	{ if ($4 == "found") { found[$c]++; f++ } else if ($4 == "survived") { left[$c]++; l++ } else { odd[$c]++; o++ } }
	function line(name, f, l, o, t) {
		printf "%-20s %6d %9d %9d %12d %6d\n", name, f, l, o, t - f - l - o, t
	}
	END {
		printf "%-20s %6s %9s %9s %12s %6s\n", title, "found", "survived", "unusable", "not measured", "all"
		for (i = 1; i <= n; i++)
			line(order[i], found[order[i]], left[order[i]], odd[order[i]], total[order[i]])
		line("all", f, l, o, all)
	}' <(echo "$chosen") <(awk -F '\t' 'NR == FNR { want[$1]; next } $1 in want' <(echo "$chosen") "$out")
}
echo
score 2 room
echo
score 3 class
echo
echo "results: $out"
bad=$(awk -F '\t' -v strict="$all_found" 'NR == FNR { want[$1]; next }
	$1 in want && $4 != "found" && (strict != "" || $4 != "survived") { print $1 " (" $4 ")" }' \
	<(echo "$chosen") "$out")
[ -z "$bad" ] && exit 0
echo "mutants: ${bad//$'\n'/, }" >&2
exit 1
