#!/bin/bash
# SPDX-License-Identifier: Apache-2.0
# Explores for as long as there is time, and keeps what it finds.  doc/checking.md, "A long run".
#
# Usage: scripts/soak.sh HOURS [OPTION]...		0 hours: only the table of what was done
#
#	--dir DIR         ledger and findings; a run goes on with what is there (build-soak)
#	--jobs N          so many processes at a time (one for each core)
#	--only NAME[,...] these locks and protocols; also planted and published ones
#	--slice N         seeds of one draw (150)
#	--verbena FILE    whom to run; DIR keeps a copy (build/src/verbena)
#
# Again and again it draws a lock, or a protocol of transactions with a hybrid code, and first seeds
# that no campaign uses; what else there is to choose each seed draws itself.  DIR/ledger.tsv has a
# line for each draw, DIR/found a script for each finding that runs it again.  INT and TERM end it with
# its table.  Exit status 3: this run has found something; 130: it has not, and was interrupted.
set -u
top=$(cd "$(dirname "$0")/.." && pwd) || exit 1

# In processor seconds: a draw that takes longer hangs.
check_limit=900
# Of one lock, or protocol and code, so many findings are kept, and further ones counted.
most_kept=20

fail() {
	echo "soak: $*" >&2
	exit 2
}

hours='' dir=build-soak jobs=$(nproc) only='' slice=150 verbena=$top/build/src/verbena
positive() { # OPTION VALUE
	[[ $2 =~ ^[1-9][0-9]{0,6}$ ]] || fail "$1 wants a number from 1 on, not '$2'"
}
while [ $# -gt 0 ]; do
	case $1 in
	--dir | --jobs | --only | --slice | --verbena)
		[ -n "${2-}" ] || fail "$1 wants a value"
		;;
	esac
	case $1 in
	--dir) dir=$2 && shift ;;
	--jobs) positive "$1" "$2" && jobs=$2 && shift ;;
	--only) only=$2 && shift ;;
	--slice) positive "$1" "$2" && slice=$2 && shift ;;
	--verbena) verbena=$2 && shift ;;
	--help)
		sed -n '3,/^set -u/s/^# \{0,1\}//p' "$0" | sed '/^set -u/d'
		exit 0
		;;
	-*) fail "there is no option '$1'; --help says which there are" ;;
	*)
		[ -z "$hours" ] || fail "HOURS is one number, and there are '$hours' and '$1'"
		[[ $1 =~ ^([0-9]{1,5}(\.[0-9]*)?|\.[0-9]+)$ ]] || fail "HOURS is a number, not '$1'"
		hours=$1
		;;
	esac
	shift
done
[ -n "$hours" ] || fail "for how many hours? --help says more"
for tool in flock jq; do
	command -v $tool >/dev/null || fail "$tool is not installed"
done
[ -x "$verbena" ] || fail "there is no $verbena: build it with make, or name one with --verbena"
mkdir -p "$dir/found" || exit 1
dir=$(cd "$dir" && pwd)
ledger=$dir/ledger.tsv

# ---- what is drawn from ----

# Command, name and code of each: 0 of a lock; a digit for each stage, ? where it may be either.
def_code='def code: .hybrid // (.stages | map("?") | add);'
names() {
	jq -r "$def_code"' ((.locks, .planted, .as_published)[] | "lock \(.name) 0"),
		((.cc, .cc_declared, .cc_planted, .cc_as_published)[] | "txn \(.name) \(code)")' "$dir/list.json"
}
real_names() {
	jq -r "$def_code"' (.locks[] | "lock \(.name) 0"), ((.cc, .cc_declared)[] | "txn \(.name) \(code)")' "$dir/list.json"
}

"$verbena" list --json >"$dir/list.json" || fail "$verbena does not say what there is"
commit=$(jq -r .commit "$dir/list.json")
mapfile -t drawn_from < <(real_names)
if [ -n "$only" ]; then
	drawn_from=()
	for name in ${only//,/ }; do
		one=$(names | grep -F " $name " | head -n 1)
		[ -n "$one" ] || fail "no lock or protocol is called '$name'; \`verbena list\` shows them all"
		drawn_from+=("$one")
	done
fi

# ---- the table ----

table() {
	awk -F '\t' '
	NR > 1 && NF == 8 && $6 ~ /^[0-9]+$/ {
		if (!($3 in seeds)) { order[++n] = $3; codes[$3] = 0 }
		if ($4 != "-" && !(($3, $4) in seen)) { seen[$3, $4]; codes[$3]++ }
		seeds[$3] += $6; s[$3] += $7; found[$3] += $8
		all += $6; all_s += $7; all_found += $8
	}
	function line(name, codes, seeds, s, found) {
		printf "%-26s %6s %12d %10.2f %8.0f %9d\n", name, codes, seeds, s / 3600,
			(s > 0 ? seeds / s : 0), found
	}
	END {
		printf "%-26s %6s %12s %10s %8s %9s\n", "protocol", "codes", "seeds", "hours", "seeds/s", "findings"
		for (i = 1; i <= n; i++)
			line(order[i], codes[order[i]] ? codes[order[i]] : "-", seeds[order[i]], s[order[i]],
				found[order[i]])
		line("all", "", all, all_s, all_found)
	}' "$ledger"
	echo
	echo "hours and seeds/s: of a processor; ledger: $ledger"
	kept=$(find "$dir/found" -name '*.sh' | sort)
	[ -z "$kept" ] || printf 'kept:\n%s\n' "$kept"
}

exec 9>"$dir/lock" || exit 1
flock -n 9 || fail "another run is under way in $dir: --dir names a folder of its own"
[ -s "$ledger" ] || printf 'time\tcommit\tprotocol\thybrid\tfirst\tseeds\tseconds\tfindings\n' >"$ledger"
seconds=$(awk -v h="$hours" 'BEGIN { s = h * 3600; printf "%d", s + (s > int(s)) }')
if [ "$seconds" = 0 ]; then
	table
	exit 0
fi
# A build beside it does not change whom it runs.
bin=$dir/verbena.$commit
if ! cmp -s "$verbena" "$bin"; then
	cp "$verbena" "$bin.new" && mv "$bin.new" "$bin" || exit 1
fi

# ---- one draw ----

# A number of 48 bits, none of a campaign's.
draw_seed() {
	echo $((1000000 + (SRANDOM << 16 ^ (SRANDOM & 65535))))
}

draw_code() { # CODE
	local code=$1
	while [[ $code == *\?* ]]; do
		code=${code/\?/$((SRANDOM % 2))}
	done
	echo "$code"
}

# Sets args: what the command line has beside seeds.
set_args() { # COMMAND NAME CODE
	args=(check "$1")
	case $1 in
	lock) args+=(--lock "$2") ;;
	txn) args+=(--cc "$2" --hybrid "$3") ;;
	esac
}

# So that a signal is heard while it runs; it then ends with what it has.
run_check() { # WORK ARGS...
	local work=$1 status
	shift
	rm -f "$work/found.json"
	(ulimit -c 0; ulimit -t $check_limit; exec "$bin" "$@" --json "$work/found.json") \
		>"$work/out" 2>&1 </dev/null 9>&- &
	child=$!
	[ -z "$ending" ] || kill -TERM $child 2>/dev/null
	wait $child
	status=$?
	while kill -0 $child 2>/dev/null; do
		wait $child
		status=$?
	done
	child=''
	return $status
}

# Sets spent: processor seconds of all that this worker has waited for.
set_spent() { # WORK
	times >"$1/times"
	spent=$(awk 'NR == 2 {
		for (i = 1; i <= 2; i++) {
			split($i, t, /[ms]/)
			s += 60 * t[1] + t[2]
		}
		print s
	}' "$1/times")
}

# Keeps one seed, as a script that runs it again, with its history.
keep() { # WORK RULE SEED ARGS...
	local work=$1 rule=$2 seed=$3 name file status
	shift 3
	name=${4//:/-}
	[ "$2" = txn ] && name+=-${6-}
	[ "$(find "$dir/found" -name "$name-[0-9]*.sh" | wc -l)" -lt $most_kept ] || return
	file=$dir/found/$name-$seed
	(ulimit -c 0; ulimit -t $check_limit; exec "$bin" "$@" --seed "$seed" --history "$file.history") \
		>"$work/story" 2>&1 </dev/null 9>&-
	status=$?
	[ -s "$file.history" ] || rm -f "$file.history"
	{
		echo '#!/bin/sh'
		echo "# $rule: found on $(date -u +%F) by commit $commit, which ends with exit status $status."
		echo '# VERBENA names another verbena to run it with.'
		sed 's/^/#	/' "$work/story"
		printf "exec \"\${VERBENA:-%s}\"" "$bin"
		printf ' %q' "$@" --seed "$seed"
		echo ' "$@"'
	} >"$file.new"
	chmod +x "$file.new" && mv "$file.new" "$file.sh"
	echo "found: $file.sh ($rule)"
}

# Of a draw that crashed or hung: seed by seed, which one it was.  Sets well: those that did not.
look_for() { # WORK RULE FIRST SEEDS ARGS...
	local work=$1 rule=$2 first=$3 seed=$3 end=$(($3 + $4)) status
	shift 4
	for (( ; seed < end; seed++)); do
		run_check "$work" "$@" --seed "$seed"
		status=$?
		well=$((seed - first))
		[ -z "$ending" ] || return
		[ $status = 0 ] || break
	done
	# None alone: then the first is kept, and says so.
	[ "$seed" -lt "$end" ] || { rule+=" of it and the $((end - first - 1)) behind it" && seed=$first; }
	keep "$work" "$rule" "$seed" "$@"
}

slice_of() { # WORK COMMAND NAME STAGES
	local work=$1 code=- first seed at end status found=0 done=0 before spent args rule n well=0
	[ "$4" = 0 ] || code=$(draw_code "$4")
	set_args "$2" "$3" "$code"
	first=$(draw_seed)
	seed=$first end=$((first + slice))
	set_spent "$work"
	before=$spent
	# It ends at each seed that finds something, and goes on behind it.
	while [ "$seed" -lt "$end" ] && [ -z "$ending" ]; do
		run_check "$work" "${args[@]}" --seed "$seed" --seeds $((end - seed))
		status=$?
		n=$(jq '.runs[0].seeds // 0' "$work/found.json" 2>/dev/null)
		done=$((done + ${n:-0}))
		case $status in
		0) break ;;
		3)
			read -r at rule < <(jq -r '.runs[0].first_violation | "\(.seed) \(.rule)"' "$work/found.json")
			# A planted bug goes by the name of one rule; it may have broken only others until now.
			[ "$at" != null ] || break
			found=$((found + 1))
			keep "$work" "$rule" "$at" "${args[@]}"
			seed=$((at + 1))
			;;
		*)
			[ -z "$ending" ] || break
			found=$((found + 1))
			case $status in
			137 | 152) rule=hang ;;
			*) rule="exit status $status" && [ $status -gt 128 ] && rule=crash ;;
			esac
			look_for "$work" "$rule" "$seed" $((end - seed)) "${args[@]}"
			done=$((done - ${n:-0} + well))
			break
			;;
		esac
	done
	set_spent "$work"
	printf '%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n' "$(date -u +%FT%TZ)" "$commit" "$3" "$code" "$first" "$done" \
		"$(awk -v a="$before" -v b="$spent" 'BEGIN { printf "%.2f", b - a }')" "$found" >>"$ledger"
}

work_on() { # WORKER
	local work=$dir/$1 one
	ending='' child=''
	trap 'ending=yes; [ -z "$child" ] || kill -TERM $child 2>/dev/null' TERM
	mkdir -p "$work"
	while [ -z "$ending" ]; do
		read -ra one <<<"${drawn_from[SRANDOM % ${#drawn_from[@]}]}"
		slice_of "$work" "${one[@]}"
		[ $SECONDS -lt "$seconds" ] && [ ! -e "$dir/ending" ] || break
		# Not beyond whoever started it.
		kill -0 $$ 2>/dev/null || break
	done
}

# ---- all of them ----

before=$(wc -l <"$ledger")
interrupted='' pids=()
# A shell can miss a signal that comes just before it begins to wait.  So there is a file besides, for
# the workers to look at between two draws, and who waits looks again each second.
rm -f "$dir/ending"
trap 'interrupted=yes; : >"$dir/ending"; kill -TERM "${pids[@]}" 2>/dev/null' INT TERM
echo "soak: commit $commit, $jobs at a time, for $hours hours; $dir"
SECONDS=0
for k in $(seq "$jobs"); do
	work_on "$k" &
	pids+=($!)
done
# A signal ends a wait, and not those that are waited for.
[ -z "$interrupted" ] || kill -TERM "${pids[@]}" 2>/dev/null
for pid in "${pids[@]}"; do
	while kill -0 "$pid" 2>/dev/null; do
		sleep 1 9>&- &
		wait -n "$pid" $!
	done
done
rm -f "$dir/ending"
echo
table
found=$(tail -n +$((before + 1)) "$ledger" | awk -F '\t' '{ n += $8 } END { print n + 0 }')
[ "$found" = 0 ] || exit 3
[ -z "$interrupted" ] || exit 130
exit 0
