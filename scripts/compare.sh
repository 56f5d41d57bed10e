#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/compare.sh [OPTION]... REV [BOUND]
#        scripts/compare.sh --judge FILE [BOUND]
#
# Is HEAD as fast as REV?  Builds both, each from its own commit and in its own folder, runs them in
# turns, and prints for each figure the ratio HEAD / REV of its rounds: above 1 is faster.  Exit status
# 1 if the median of a figure lies below BOUND (0.9) by more than its noise, or if HEAD lacks a figure
# that REV has; 0 if not; 2 if there was nothing to judge.  What REV lacks is told.
#
#   --rounds N       rounds (9); each runs both, and who goes first alternates
#   --duration TIME  what each lock, or protocol, runs in a round (200ms)
#   --only WORDS     some of shm,tcp,ucx,bare,txn,sim (all)
#   --build DIR      build there and keep it: the next call finds it done
#   --keep FILE      keep what was measured: "figure<tab>round<tab>rev|head<tab>value" a line
#   --judge FILE     measure nothing: judge such a file
#
# The noise of a figure is the distance from the median of its ratios up to the one below which the
# true median lies for certain but for 1 in 100: of 9 ratios the greatest but one does not do, of 11 it
# does.  Fewer than 7 rounds show ratios and judge nothing.  A build takes 1 to 3 minutes on 2 idle
# cores, less with ccache; a round a minute and a half, or three on a busy machine.
#
# tcp is the library's own transport, ucx the same network by UCX.  Each side runs the locks and
# fabrics that its own `list` has; a run that fails is said the first time.
set -u
cd "$(dirname "$0")/.." || exit 2

usage() {
	sed -n '/^# usage: /,/^set /s/^# \?//p' scripts/compare.sh >&2
	exit 2
}

rounds=9 duration=200ms only=shm,tcp,ucx,bare,txn,sim build='' keep='' judge='' words=()
while [ $# -gt 0 ]; do
	case $1 in
	--rounds | --duration | --only | --build | --keep | --judge)
		[ $# -ge 2 ] || usage
		declare "${1#--}=$2"
		shift 2
		;;
	-*) usage ;;
	*)
		words+=("$1")
		shift
		;;
	esac
done

# ---- judging ----

verdicts() { # FILE BOUND
	LC_ALL=C sort -s -t '	' -k1,1 "$1" | awk -F '\t' -v bound="$2" '
	# The place of the least ratio that the true median is above with a chance of 1 in 100 at most:
	# that it is above k of n, is to throw k or more coins alike; 0: there is none.
	function upper(   k, tail, term) {
		tail = term = 0.5 ^ n
		if (tail > 0.01)
			return 0
		for (k = n; k > 1; k--) {
			term = term * k / (n - k + 1)
			if (tail + term > 0.01)
				break
			tail += term
		}
		return k
	}
	function end(   r, i, j, t, median, noise, verdict, place) {
		if (figure == "")
			return
		n = 0
		for (r in seen)
			if ((r, "rev") in value && (r, "head") in value && value[r, "rev"] > 0)
				ratio[++n] = value[r, "head"] / value[r, "rev"]
		for (i = 2; i <= n; i++)
			for (j = i; j > 1 && ratio[j - 1] > ratio[j]; j--) {
				t = ratio[j]; ratio[j] = ratio[j - 1]; ratio[j - 1] = t
			}
		if (n > 0) {
			median = (ratio[int((n + 1) / 2)] + ratio[int(n / 2) + 1]) / 2
			place = upper()
			noise = place ? ratio[place] - median : "-"
			verdict = ""
			if (median < bound)
				verdict = place && ratio[place] < bound ? "SLOWER" : place ? "slower, or noise" : "too few rounds to tell"
			printf "%-34s %7.3f %7.3f %7.3f %7s %4d  %s\n", figure, median, ratio[1], ratio[n], place ? sprintf("%.3f", noise) : noise, n, verdict
			judged += place > 0
			slower += verdict == "SLOWER"
		} else if (has["head"]) {
			printf "%-34s %40s  not in REV\n", figure, ""
		} else if (has["rev"]) {
			printf "%-34s %40s  NOT IN HEAD\n", figure, ""
			gone++
		}
		delete seen; delete value; delete ratio; delete has
	}
	BEGIN {
		printf "%-34s %7s %7s %7s %7s %4s\n", "HEAD / REV", "median", "least", "most", "noise", "n"
	}
	NF == 4 {
		if ($1 != figure) {
			end()
			figure = $1
		}
		seen[$2] = 1
		has[$3] = 1
		value[$2, $3] = $4
	}
	END {
		end()
		if (slower + gone > 0)
			printf "%d of %d figures below %s by more than their noise, %d missing\n", slower, judged, bound, gone
		exit slower + gone > 0 ? 1 : judged > 0 ? 0 : 2
	}'
}

if [ -n "$judge" ]; then
	if [ ${#words[@]} -gt 1 ] || [ ! -r "$judge" ]; then usage; fi
	verdicts "$judge" "${words[0]-0.9}"
	exit
fi
if [ ${#words[@]} -lt 1 ] || [ ${#words[@]} -gt 2 ]; then usage; fi
bound=${words[1]-0.9}

# ---- building ----

rev=$(git rev-parse --verify --quiet "${words[0]}^{commit}") || {
	echo "compare: '${words[0]}' is no commit" >&2
	exit 2
}
head=$(git rev-parse HEAD)
work=$(mktemp -d "${TMPDIR:-/tmp}/verbena-compare.XXXXXX") || exit 2
top=${build:-$work}
mkdir -p "$top" && top=$(cd "$top" && pwd) || exit 2

tidy() {
	git worktree remove --force "$work/rev.src" 2>/dev/null
	git worktree remove --force "$work/head.src" 2>/dev/null
	rm -rf "$work"
	git worktree prune
}
trap tidy EXIT
trap 'exit 2' INT TERM

build_of() { # COMMIT NAME: makes $top/COMMIT/verbena
	local to=$top/${1:0:12} src=$work/$2.src

	[ -x "$to/verbena" ] && return 0
	mkdir -p "$to" && git worktree add --quiet --detach --force "$src" "$1" || return 1
	(cd "$src" && meson setup --buildtype=release "$work/$2.build" >"$to/log" 2>&1 &&
		ninja -C "$work/$2.build" src/verbena >>"$to/log" 2>&1) || {
		echo "compare: ${1:0:12} cannot be built:" >&2
		tail -20 "$to/log" >&2
		return 1
	}
	cp "$work/$2.build/src/verbena" "$to/verbena.new" && mv "$to/verbena.new" "$to/verbena"
}

echo "compare: REV ${rev:0:12}, HEAD ${head:0:12}; $(nproc) cores, load $(cut -d ' ' -f 1 /proc/loadavg)"
[ -z "$(git status --porcelain -uno)" ] || echo "compare: what is not committed is not in HEAD"
build_of "$rev" rev && build_of "$head" head || exit 2

# ---- measuring ----

is_one_of() { # WORD WORDS
	case ",$2," in *",$1,"*) return 0 ;; *) return 1 ;; esac
}

wanted() { # WORD
	is_one_of "$1" "$only"
}

# Who goes first.
sides() {
	[ $((round % 2)) = 1 ] && echo rev head || echo head rev
}

verbena_of() { # SIDE
	local commit=$head

	[ "$1" = head ] || commit=$rev
	echo "$top/${commit:0:12}/verbena"
}

# Runs one side; each figure of its JSON, by the jq program, to the list.
declare -A told=()
failed=0
figures_of() { # SIDE PREFIX PROGRAM ARG...
	local side=$1 prefix=$2 program=$3 status
	shift 3
	timeout 300 "$(verbena_of "$side")" "$@" --json "$work/json" >"$work/out" 2>&1
	status=$?
	if [ $status != 0 ]; then
		failed=$((failed + 1))
		[ -n "${told[$side $*]-}" ] || echo "compare: round $round, $side: 'verbena $*' ends with $status:" \
			"$(tail -1 "$work/out")" >&2
		told[$side $*]=yes
	fi
	[ -s "$work/json" ] && jq -r --arg p "$prefix" --arg r "$round" --arg s "$side" \
		"$program"' | [$p + .[0], $r, $s, .[1]] | @tsv' "$work/json" >>"$list" 2>/dev/null
	rm -f "$work/json"
}

# Runs both, one after the other.
figures() { # PREFIX PROGRAM ARG...
	local side

	for side in $(sides); do
		figures_of "$side" "$@"
	done
}

locks=cas,cas-backoff,retry-on-fail,drtm,mcs,ncosed,rma-rw,dslr,dslr-update,shiftlock,rpc,traditional,table
goodput='.runs[] | select(.goodput_ops_s > 0) | [.lock, .goodput_ops_s]'
commits='.runs[] | select(.goodput_txn_s > 0) | ["\(.cc)\(if .hybrid | test("1") then " rpc" else "" end)", .goodput_txn_s]'
# What takes so long is slower the longer it takes.
bare='[.runs[] | select(.unit == "ns" and .value > 0)] | unique_by(.section, .name)[] |
	["\(.section): \(.name)", 1 / .value]'
rates='[.runs[] | select(.unit != "ns" and (.unit | test("/s")) and .value > 0)] | unique_by(.section, .name)[] |
	["\(.section): \(.name)", .value]'

# Of these locks, and of the fabrics that are wanted, those that a side has on this machine: one that it does
# not know would take the figures of all others with it.
declare -A has_locks=() has_fabrics=()
look_what_it_has() { # SIDE REV|HEAD
	local word lacks=''

	if ! "$(verbena_of "$1")" list --json >"$work/has" 2>"$work/out"; then
		echo "compare: $2: 'verbena list' fails: $(tail -1 "$work/out")" >&2
		exit 2
	fi
	has_fabrics[$1]=$(jq -r '[.fabrics[] | select(.absent == null).name] | join(",")' "$work/has")
	has_locks[$1]=$(jq -r --arg all "$locks" '[.locks[].name] as $has |
		[$all | split(",")[] | select(IN($has[]))] | join(",")' "$work/has")
	for word in shm tcp ucx; do
		! wanted $word || is_one_of $word "${has_fabrics[$1]}" || lacks+=", fabric $word"
	done
	for word in ${locks//,/ }; do
		is_one_of "$word" "${has_locks[$1]}" || lacks+=", lock $word"
	done
	[ -z "$lacks" ] || echo "compare: not in $2: ${lacks#, }"
}

lock_figures() { # PREFIX FABRIC ARG...
	local prefix=$1 fabric=$2 side
	shift 2
	for side in $(sides); do
		if is_one_of "$fabric" "${has_fabrics[$side]}"; then
			figures_of "$side" "$prefix" "$goodput" bench lock --fabric "$fabric" --lock "${has_locks[$side]}" \
				--duration "$duration" --read-ratio 0 --lease 2s --procs 2 "$@"
		fi
	done
}

one_round() {
	local net

	if wanted shm; then
		lock_figures 'shm hot: ' shm --clients 2 --locks 1
		lock_figures 'shm free: ' shm --clients 2 --locks 100k --dist uniform
	fi
	for net in tcp ucx; do
		wanted $net || continue
		lock_figures "$net hot: " $net --fabric-options bound=500ms --clients 8 --locks 1
		lock_figures "$net free: " $net --fabric-options bound=500ms --clients 8 --locks 100k --dist uniform
	done
	if wanted bare; then
		figures '' "$bare" bench fabric --only faa,locks,switch --repeat 5
	fi
	if wanted txn; then
		figures 'txn 8 B: ' "$commits" bench txn --cc silo,no-wait --record-bytes 8 --records 10k \
			--duration "$duration"
		figures 'txn 1 KB: ' "$commits" bench txn --cc silo,no-wait --record-bytes 1024 --records 10k \
			--duration "$duration"
	fi
	if wanted sim; then
		figures '' "$rates" bench fabric --only sim --repeat 3
	fi
}

look_what_it_has rev REV
look_what_it_has head HEAD
list=${keep:-$work/list}
: >"$list"
for ((round = 1; round <= rounds; round++)); do
	one_round
done
echo "compare: $rounds rounds, $failed runs failed; load now $(cut -d ' ' -f 1 /proc/loadavg)"
verdicts "$list" "$bound"
