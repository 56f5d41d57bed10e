#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/test-rdma.sh [--out DIR] [--only NAME[,NAME...]] BUILD=DIR...
#
# Runs the RDMA suites that tests/rdma/suites lists for the builds named (gcc=DIR asan=DIR tsan=DIR):
# all in one boot of the guest (scripts/rdma-vm.sh), or on a card of this machine:
#
# VERBENA_VERBS_DEVICE   run on this device, without a guest
# VERBENA_VERBS_DEVICE2  the device at the other end (default: the same)
# VERBENA_VERBS_MEASURED the card's option `measured`, for timeout=11,retries=2 (doc/verbs.md)
# VERBENA_BREAKS         how often the suite `breaks` breaks its connection (default: 300)
#
# `make test-rdma` makes the builds and calls this.  DIR (build-test/rdma) receives what the suites
# wrote and testlog.json, in the form of Meson's, from which scripts/cases.jq takes the cases.  Exit
# status 1 if a suite failed, 77 if there is neither a guest nor a card: then each suite is skipped
# by name.
set -u
cd "$(dirname "$0")/.." || exit 1

usage() {
	sed -n 's/^# usage: /usage: /p' scripts/test-rdma.sh >&2
	exit 2
}

out=build-test/rdma only=
while [ $# -gt 0 ]; do
	case $1 in
	--out | --only)
		[ $# -ge 2 ] || usage
		if [ "$1" = --out ]; then out=$2; else only=,$2,; fi
		shift 2
		;;
	*=*) break ;;
	*) usage ;;
	esac
done
[ $# -gt 0 ] || usage
mkdir -p "$out/work" && out=$(cd "$out" && pwd) || exit 1
rm -rf "$out/testlog.json" "$out/work/"*

# ---- the plan ----

names=() show=() sum=0 n=0
: >"$out/work/plan"
for pair in "$@"; do
	build=${pair%%=*} dir=$(cd "${pair#*=}" && pwd) || exit 1
	show+=(--show "$dir")
	while read -r name builds seconds command; do
		[[ $name != '' && $name != '#'* && ,$builds, = *,$build,* ]] || continue
		[[ $only = '' || $only = *,$name,* ]] || continue
		[ "$build" = gcc ] || seconds=$((seconds * 3)) name="$name ($build)"
		printf '%d\t%d\t%s\t%s\n' $n "$seconds" "$dir" "$command" >>"$out/work/plan"
		names+=("$name")
		sum=$((sum + seconds)) n=$((n + 1))
	done <tests/rdma/suites
done
if [ $n = 0 ]; then
	echo "verbena: tests/rdma/suites has no such suite for these builds" >&2
	exit 2
fi

# ---- running it ----

why= place=
if [ -n "${VERBENA_VERBS_DEVICE-}" ]; then
	export VERBENA_VERBS_DEVICE VERBENA_VERBS_DEVICE2="${VERBENA_VERBS_DEVICE2-$VERBENA_VERBS_DEVICE}"
	place="on $VERBENA_VERBS_DEVICE and $VERBENA_VERBS_DEVICE2"
	for device in "$VERBENA_VERBS_DEVICE" "$VERBENA_VERBS_DEVICE2"; do
		[ -d "/sys/class/infiniband/$device" ] && continue
		echo "verbena: there is no RDMA device $device; there are: $(ls /sys/class/infiniband 2>/dev/null)" >&2
		exit 1
	done
	export VERBENA_WORK=$out/work
	scripts/rdma/suites.sh "$out/work/plan" "$out/work"
	status=0
else
	place='in the guest'
	[ $sum -lt 1800 ] || sum=1800
	scripts/rdma-vm.sh --timeout $((sum + 60)) --work "$out/work" "${show[@]}" -- \
		scripts/rdma/suites.sh "$out/work/plan" "$out/work" 2>"$out/vm.err" &
	vm=$!
	trap 'kill $vm; exit 130' INT TERM
	wait $vm
	status=$?
	trap - INT TERM
	[ $status = 0 ] || why=$(tail -n 1 "$out/vm.err")
fi

# ---- what came of it ----

word() { # EXIT-STATUS; 77 is a skip, as Meson has it
	case $1 in
	0) echo OK ;;
	77) echo SKIP ;;
	124 | 137) echo TIMEOUT ;;
	*) echo FAIL ;;
	esac
}

worst=0
for ((i = 0; i < n; i++)); do
	file=$out/work/$i
	touch "$file.out" "$file.err"
	if [ -s "$file.status" ]; then
		code=$(cat "$file.status")
		result=$(word "$code")
		took="$(cat "$file.time") ms"
	elif [ $status = 77 ]; then
		result=SKIP code=77 took=$why
		echo "$why" >>"$file.out"
	else
		# The first without a status is the one that ran when the machine was lost.
		result=FAIL code=125 took=${why:-did not run}
	fi
	[ $result = OK ] && grep '^not ok ' "$file.out" | grep -qv '# SKIP' && result=FAIL
	printf '%-8s %-32s %s\n' "$result" "${names[i]}" "$took"
	if [ $result != OK ] && [ $result != SKIP ]; then
		worst=1
		tail -n 40 "$file.out" "$file.err" | sed 's/^/    /'
	fi
	jq -nc --arg name "rdma / ${names[i]}" --arg result $result --argjson code "$code" \
		--rawfile out "$file.out" --rawfile err "$file.err" \
		'{$name, stdout: $out, stderr: $err, $result, returncode: $code}' >>"$out/testlog.json"
done
if [ $status != 0 ]; then
	sed 's/^/    /' "$out/vm.err"
fi
[ $status != 77 ] || worst=77
echo "$n RDMA suites $place"
exit $worst
