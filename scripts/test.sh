#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# What `make test` and `make test-all` do, stage by stage; the last line is "N passed, N failed[, N
# skipped]".  A case is one cmocka case, one line of a TAP test, or one check of this script.  Exit
# status 0 only if something ran and nothing failed.
#
# usage: scripts/test.sh [quick|all|STAGE...]
#
#	quick   what `make test` runs (also without arguments): the suites, once, with gcc, but for Spin's, for
#	        calls that fail, for the fuzzers' inputs, and for groups of processes of the tool
#	all     what `make test-all` and CI run: quick, then those, clang, sanitizers, fuzzers, RDMA, and Debian's
#	        packages, made and tried in a clean Debian
#	coverage  by itself only: which lines and branches the suites execute (gcovr), `make coverage`
#	arm64   by itself only: cross-built, and run under qemu-user, `make test-arm64`; not in all, because
#	        an emulator on x86-64 shows little of what CI's hour could show instead
#
# VERBENA_TEST_DIR    where the builds go (build-test)
# VERBENA_TEST_SEEDS  seeds per lock in the stage "seeds" (200)
# VERBENA_FUZZ_SECONDS  how long the stage "fuzz" looks for new inputs, all fuzzers together (60)
# VERBENA_VERBS_DEVICE, VERBENA_VERBS_DEVICE2  RDMA devices of this machine for the stage "rdma", which
#                     otherwise boots a guest that has two (scripts/test-rdma.sh)
set -u
cd "$(dirname "$0")/.." || exit 1

quick='format gcc seeds planted package'
thorough='models net long clang asan tsan rdma mutants fuzz debian'
stages="$quick $thorough"
# These run beside the stage rdma, whose guest waits most of its time, and only take what it leaves.  Packages come when
# what rdma needs has been installed, and before 40 minutes are over.
beside='fuzz debian mutants'
alone='coverage arm64'
out=${VERBENA_TEST_DIR-build-test}
seeds=${VERBENA_TEST_SEEDS-200}
# shellcheck disable=SC2086
all=$*
case "$all" in
'' | quick) set -- $quick ;;
all) set -- $stages ;;
esac
for stage in "$@"; do
	case " $stages $alone " in
	*" $stage "*) ;;
	*)
		echo "verbena: no stage '$stage'; there are: quick, all, or some of: $stages $alone" >&2
		exit 2
		;;
	esac
done

scripts/deps.sh test || exit 1
mkdir -p "$out"
out=$(cd "$out" && pwd)
results=$out/results
summary=$out/summary
: >"$results"
: >"$summary"
rm -f "$summary.beside"
verbena=$out/gcc/src/verbena

# ---- counting ----

record() { # pass|fail|skip NAME REASON
	printf '%s\t%s: %s\t%s\n' "$1" "$stage" "$2" "${3-}" >>"$results"
}

count() { # pass|fail|skip [STAGE]
	grep -c "^$1	${2+$2: }" "$results"
}

# One check: a command that must succeed.  Its output is shown only if it does not.
job=
check() { # NAME COMMAND...
	local name=$1 log=$out/check$job.log
	shift
	if "$@" >"$log" 2>&1 </dev/null; then
		echo "ok: $name"
		record pass "$name"
	else
		local status=$?
		echo "FAILED: $name (exit status $status); its last lines:"
		tail -n 60 "$log" | sed 's/^/    /'
		record fail "$name" "exit status $status"
		return 1
	fi
}

# For each line of the input the function with its words, on each core one; what they say, in that order.
# Files of theirs have $job in their names.
together() { # FUNCTION WORD...
	local words n=0 i
	while IFS= read -r words; do
		while [ "$(jobs -rp | wc -l)" -ge "$(nproc)" ]; do
			wait -n
		done
		job=.$n
		# shellcheck disable=SC2086
		"$@" $words >"$out/said$job" 2>&1 </dev/null &
		n=$((n + 1))
	done
	wait
	job=
	for ((i = 0; i < n; i++)); do
		cat "$out/said.$i"
		rm -f "$out/said.$i" "$out"/{check,found}".$i".{log,json}
	done
}

# Builds, then runs the suites named ("-NAME": all but that one) and counts their cases.
suites() { # DIR SUITES MESON-OPTION...
	local dir=$out/$1 wanted=$2 args=() suite
	shift 2
	check "build" scripts/build.sh "$dir" -Dtests=enabled "$@" || return
	for suite in $wanted; do
		case $suite in
		-*) args+=(--no-suite "${suite#-}") ;;
		*) args+=(--suite "$suite") ;;
		esac
	done
	rm -f "$dir/meson-logs/testlog.json"
	# One more than cores: many tests wait for leases and silences most of their time, and some are about
	# time, so more than that would be each other's load.
	# A limit ends what hangs and judges nothing: with much other work a test takes several times its time.
	# Half of it is more than the slowest test has taken under a sanitizer, and all of it is a fraction of
	# what CI has for everything.
	CMOCKA_MESSAGE_OUTPUT=tap meson test -C "$dir" --no-rebuild --print-errorlogs \
		--num-processes $(($(nproc) + 1)) --timeout-multiplier 3 "${args[@]}" </dev/null
	cases "$dir/meson-logs/testlog.json"
}

# Counts the cases of a test log.
cases() { # LOG
	if ! [ -s "$1" ]; then
		record fail "suites" "no test ran"
		return
	fi
	jq -r -f scripts/cases.jq "$1" >"$out/cases" ||
		record fail "suites" "the test log could not be read"
	while IFS=$'\t' read -r verdict name reason; do
		record "$verdict" "$name" "$reason"
	done <"$out/cases"
}

# ---- the stages ----

# -O1 and lines without variables are built in half the time of -O2 -g, and run as fast within 5 %.
sanitized=(-Doptimization=1 -Ddebug=false -Dc_args=-g1 -Db_lundef=false)
asan=(-Db_sanitize=address,undefined "${sanitized[@]}")
tsan=(-Db_sanitize=thread "${sanitized[@]}")

# Meson has malloc fill what it gives with a byte drawn at random, where it is not told otherwise.  Half of the
# time of many tests went into pages that nobody reads, and what it found no second run would have shown; the
# address sanitizer fills the first 4 KiB of each block with the same byte each time.
export MALLOC_PERTURB_=0

# The undefined-behaviour and address sanitizers stop at the first finding; so does the thread one.
export ASAN_OPTIONS=abort_on_error=1:detect_leaks=1:strict_string_checks=1:max_malloc_fill_size=4096
export UBSAN_OPTIONS=halt_on_error=1:abort_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1:die_after_fork=0

# What every stage but the compilers' own takes its tool and tests from.
build_gcc() {
	check "build" env CC=gcc scripts/build.sh "$out/gcc" -Dtests=enabled
}

# The fuzzers' inputs are for a sanitizer.
stage_gcc() {
	CC=gcc suites gcc '-models -net -long -inject -fuzz'
}

# The state spaces of the locks' models.
stage_models() {
	CC=gcc suites gcc models
}

# Links that are cut by the clock: a minute or two, with nothing beside it.
stage_net() {
	CC=gcc suites gcc net
}

# Groups of processes that die and stand still, on networks, too; the commands while calls of the C library
# and the kernel fail; protocols of transactions under more workloads; scripts that print pages' tables; man pages.
stage_long() {
	CC=gcc suites gcc long
}

# What another compiler makes of the C, not of the scripts and of Spin's verifiers; and locks over the
# other network.
stage_clang() {
	VERBENA_TEST_NET=ucx CC=clang suites clang 'unit conformance sim -explorers'
}

# Exploration finds nothing in our locks ...
clean() { # KIND OPTION NAME
	check "$3, $seeds seeds" "$verbena" check "$1" "$2" "$3" --seeds "$seeds" && tail -n 1 "$out/check$job.log"
}

stage_seeds() {
	local names
	build_gcc || return
	names=$("$verbena" list --json | jq -r '.locks[].name')
	[ -n "$names" ] || record fail "seeds" "verbena list names no lock"
	together clean lock --lock <<<"$names"
	names=$("$verbena" list --json | jq -r '(.cc + .cc_declared)[].name')
	[ -n "$names" ] || record fail "seeds" "verbena list names no protocol of transactions"
	together clean txn --cc <<<"$names"
	check "far places" "$verbena" check txn --cc all --far --seeds "$seeds"
	check "every hybrid code" "$verbena" check txn --cc all --hybrid all --seeds 3 &&
		tail -n 1 "$out/check.log"
}

# ... but the bug in each planted lock and in the locks as published, under the rule that it breaks
# (empty: any), with the exit status for a violation and a replay that finds it again.
found() { # LOCK RULE
	local log=$out/found$job.log replay first=1
	# Found by 158; of those before it some in which nobody gets on take half a minute each.
	[ "$1" != planted:reset-clears-bar ] || first=141
	"$verbena" check lock --lock "$1" --seed $first --seeds "$seeds" >"$log" 2>&1
	local status=$?
	cat "$log"
	[ $status = 3 ] && grep -q "^$2.*: lock " "$log" || return 1
	replay=$(grep -oE 'verbena check lock .*--seed[= ][0-9]+' "$log" | head -n 1)
	[ -n "$replay" ] || return 1
	echo "\$ $replay"
	# shellcheck disable=SC2086
	"$verbena" ${replay#verbena }
	[ $? = 3 ]
}

# The same of protocols of transactions: by the name of the rule or of the anomaly.
found_txn() { # PROTOCOL
	local json=$out/found$job.json replay code=()
	# Only a server can do what this one does wrong, and only where logs have copies these.
	[ "$1" != planted:late-server ] || code=(--hybrid 010)
	# And these votes are servers' votes.
	[ "$1" != votes-as-published ] || code=(--hybrid 0100)
	case $1 in planted:no-fence | planted:no-copies) code=(--copies) ;; esac
	"$verbena" check txn --cc "$1" "${code[@]}" --seeds $((2 * seeds)) --json "$json"
	[ $? = 3 ] || return 1
	jq -e '.runs[0] | .planted == .first_violation.rule or .planted == .first_violation.anomaly' \
		"$json" >/dev/null || return 1
	replay=$(jq -r '.runs[0].first_violation.replay' "$json")
	echo "\$ $replay"
	# shellcheck disable=SC2086
	"$verbena" ${replay#verbena }
	[ $? = 3 ]
}

planted_lock() { # LOCK [RULE...]
	local name=$1
	shift
	check "$name is found${1:+ as $*}" found "$name" "$*"
}

planted_txn() { # PROTOCOL
	check "$1 is found" found_txn "$1"
}

stage_planted() {
	local names
	build_gcc || return
	names=$("$verbena" list --json |
		jq -r '(.planted[] | [.name, .planted_for]), (.as_published[] | [.name]) | join(" ")')
	[ -n "$names" ] || record fail "planted bugs" "verbena list names none"
	together planted_lock <<<"$names"
	names=$("$verbena" list --json | jq -r '(.cc_planted + .cc_as_published)[].name')
	[ -n "$names" ] || record fail "planted bugs" "verbena list names no protocol that has one"
	together planted_txn <<<"$names"
}

# A few mistakes in our own locks and protocols, as somebody could make them, are each found by the
# first checker that is asked.  CI has an hour: on a slow machine the last of them are skipped.
stage_mutants() {
	local tsv=$out/mutants.tsv id verdict within=()
	rm -f "$tsv"
	if [ "$all" = all ]; then
		within=(--within $((SECONDS - begin < 2940 ? 3000 - SECONDS + begin : 60)))
	fi
	CC=gcc scripts/mutants.sh --quick --asks 1 "${within[@]}" --dir "$out/mutants" --out "$tsv"
	[ $? -le 1 ] || {
		record fail "mutants" "they could not be measured"
		return
	}
	while read -r id; do
		verdict=$(awk -F '\t' -v id="$id" '$1 == id { print $4 }' "$tsv")
		case $verdict in
		found) record pass "$id is found" ;;
		'') record skip "$id is found" "50 minutes are over before it: scripts/test.sh mutants" ;;
		*) record fail "$id is found" "$verdict" ;;
		esac
	done < <(scripts/mutants.sh --quick --list | awk 'NF > 1 { print $1 }')
	[ -s "$tsv" ] || [ "$all" = all ] || record fail "mutants" "none was measured"
}

# Not the suite death: what dies there dies in the suite sim, too, and in more ways.
stage_asan() {
	CC=gcc suites asan 'unit conformance sim threads cli fuzz inject -once' "${asan[@]}"
}

# Not what has one thread, as every simulation, or only processes with one each.
stage_tsan() {
	CC=gcc suites tsan 'unit conformance threads -one-thread' "${tsan[@]}"
}

# Each fuzzer looks for an input that breaks something, beginning with those that are kept; what it
# finds to be new stays in $out/fuzz/corpus, what breaks something in $out/fuzz/found.  Beside the RDMA guest an
# input takes many times its time.
stage_fuzz() {
	local fuzzer name dir=$out/fuzz fuzzers seconds=${VERBENA_FUZZ_SECONDS-60}
	if ! echo 'int LLVMFuzzerTestOneInput(const char *d, long n) { return d && n < 0; }' |
		clang -fsanitize=fuzzer,address -x c -o "$out/fuzzer" - 2>/dev/null; then
		record skip "fuzzing" "clang has no libFuzzer here (Debian: clang, libclang-rt-14-dev)"
		return
	fi
	check "build" env CC=clang VERBENA_BUILD_TARGETS=fuzzers \
		scripts/build.sh "$dir" -Dtests=enabled -Dfuzz=enabled "${asan[@]}" || return
	mkdir -p "$dir/found"
	fuzzers=$(find "$dir/tests/fuzz" -maxdepth 1 -type f -name 'fuzz_*' -perm -100 | sort)
	[ -n "$fuzzers" ] || record fail "fuzzing" "there is no fuzzer"
	for fuzzer in $fuzzers; do
		name=${fuzzer##*/fuzz_}
		mkdir -p "$dir/corpus/$name"
		check "$name" "$fuzzer" -seed=1 -timeout=200 -rss_limit_mb=2048 -print_final_stats=1 \
			"-max_total_time=$((seconds / $(wc -w <<<"$fuzzers") + 1))" \
			"-artifact_prefix=$dir/found/$name-" "$dir/corpus/$name" "tests/fuzz/corpus/$name" &&
			grep '^Done' "$out/check$job.log"
	done
}

# What the suites execute, by room and by file, and that it is not less than tests/coverage.txt says.
# Whoever leaves by _exit or is killed by a test counts, too: src/base/coverage.c.
stage_coverage() {
	local dir=$out/coverage room lines branches
	if ! command -v gcovr >/dev/null; then
		record skip "coverage" "gcovr is not installed (Debian: gcovr)"
		return
	fi
	find "$dir" -name '*.gcda' -delete 2>/dev/null
	CC=gcc suites coverage 'unit conformance sim inject death fuzz cli long' --buildtype=debugoptimized -Db_coverage=true
	check "what was executed" gcovr --root . --object-directory "$dir" --filter src/ --exclude-throw-branches \
		--gcov-ignore-parse-errors --json-summary "$dir/coverage.json" --html-details "$dir/coverage.html" "$dir" ||
		return
	jq -r -f scripts/coverage.jq "$dir/coverage.json" | tee "$dir/rooms" |
		awk -F '\t' '{ printf "%-14s lines %5.1f %% of %5d, branches %5.1f %% of %5d\n", $1, $2, $3, $4, $5 }'
	echo "file by file: $dir/coverage.html"
	while read -r room lines branches; do
		case $room in '#'* | '') continue ;; esac
		check "$room: lines $lines %, branches $branches % at least" awk -F '\t' -v room="$room" \
			-v lines="$lines" -v branches="$branches" \
			'$1 == room { print; good = $2 >= lines && $4 >= branches } END { exit !good }' "$dir/rooms"
	done <tests/coverage.txt
	check "every room has its floor" awk 'NR == FNR { floor[$1]; next } !($1 in floor) { print; bad = 1 }
		END { exit bad }' tests/coverage.txt "$dir/rooms"
}

# The suites that need RDMA devices, of three builds, in one boot of a guest that has two; or on a card.
stage_rdma() {
	local log=$out/rdma/testlog.json
	build_gcc || return
	check "build asan" env CC=gcc scripts/build.sh "$out/asan" -Dtests=enabled "${asan[@]}" || return
	check "build tsan" env CC=gcc scripts/build.sh "$out/tsan" -Dtests=enabled "${tsan[@]}" || return
	rm -f "$log"
	scripts/test-rdma.sh --out "$out/rdma" "gcc=$out/gcc" "asan=$out/asan" "tsan=$out/tsan"
	cases "$log"
}

# What a user installs: only public symbols, headers that stand alone, examples that build against
# the installed library through pkg-config and run.
exports_match() {
	local so=$1
	nm -D --defined-only "$so" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort >"$out/exported"
	nm -D --defined-only "$so" | awk '$2 != "T" && $2 != "A"' | tee "$out/odd"
	[ ! -s "$out/odd" ] || return 1
	# Declarations end in "name(...)" once comments, bodies and attributes are gone.
	cat include/verbena/*.h | gcc -fpreprocessed -dD -E -P -x c - | grep -v '^#' | tr '\n' ' ' |
		tr ';' '\n' | sed 's/.*}//' | grep -v '{' |
		grep -oE 'vb_[a-z0-9_]+\([^()]*\) *$' | grep -oE '^vb_[a-z0-9_]+' | sort >"$out/declared"
	[ -s "$out/declared" ] && diff "$out/declared" "$out/exported"
}

header_alone() { # HEADER
	printf '#include <verbena/%s>\n' "$1" >"$out/header.c"
	gcc -std=c11 -pedantic -Wall -Wextra -Werror -Iinclude -fsyntax-only "$out/header.c" &&
		clang -x c++ -std=c++14 -Wall -Wextra -Werror -Iinclude -fsyntax-only "$out/header.c"
}

example_cpp() { # FILE
	local std=c++14
	! grep -q co_await "$1" || std=c++20
	example_installed clang++ -std=$std -pedantic "$1"
}

# Whatever a program calls its own functions, the archive's are in nobody's way.
static_names() { # ARCHIVE
	nm -g --defined-only "$1" | awk 'NF == 3 { print $3 }' | sort >"$out/exported"
	[ -s "$out/declared" ] && diff "$out/declared" "$out/exported"
}

pages_installed() {
	find "$out/root" -name '*.3' -size +500c -printf '%f\n' | sed 's/\.3$//' | sort >"$out/found"
	# Those that are inline are in no library, and have pages, too.
	sed -n 's/^static inline .*\(vb_[a-z0-9_]*\)(.*/\1/p' include/verbena/*.h | sort - "$out/declared" >"$out/public"
	find "$out/root" -name libverbena.7 -size +10k | grep . && diff "$out/public" "$out/found"
}

commands_installed() {
	{
		echo verbena
		scripts/man.sh list src/cli/cmd_*.c | sed 's/^/verbena-/'
	} | sort >"$out/commands"
	find "$out/root" -name '*.1' -size +500c -printf '%f\n' | sed 's/\.1$//' | sort | diff "$out/commands" -
}

example_static() { # FILE
	local flags
	flags=$(PKG_CONFIG_PATH=$pc PKG_CONFIG_SYSROOT_DIR=$out/root pkg-config --static --cflags --libs verbena) ||
		return
	# shellcheck disable=SC2086
	gcc -Wall -Wextra -Werror "$1" -o "$out/example" ${flags/-lverbena/-l:libverbena.a} || return
	! ldd "$out/example" | grep verbena && timeout 60 "$out/example"
}

# For who has one machine: without libsodium, UCX and RDMA.
without_networks() {
	local dir=$out/plain
	CC=gcc VERBENA_BUILD_TARGETS='src/libverbena.so.0.1.0 src/libverbena.a examples/example-hold examples/example-cluster' \
		scripts/build.sh "$dir" -Dtests=disabled -Dsodium=disabled -Ducx=disabled -Dverbs=disabled || return
	! ldd "$dir/src/libverbena.so" | grep sodium || return
	"$dir/examples/example-hold" || return
	"$dir/examples/example-cluster" >"$out/found" 2>&1 && return 1
	grep 'built without libsodium' "$out/found"
}

example_installed() { # COMPILER... FILE
	local flags
	flags=$(PKG_CONFIG_PATH=$pc PKG_CONFIG_SYSROOT_DIR=$out/root pkg-config --cflags --libs verbena) ||
		return
	case ${!#} in
	*libuv.c) flags+=" $(pkg-config --cflags --libs libuv)" || return ;;
	*own_fabric_rdma.c) flags+=" $(pkg-config --cflags --libs libibverbs)" || return ;;
	esac
	# shellcheck disable=SC2086
	"${@:1:$#-1}" -Wall -Wextra -Werror "${@: -1}" -o "$out/example" $flags || return
	ldd "$out/example" | grep verbena
	LD_LIBRARY_PATH=$(dirname "$pc") timeout 60 "$out/example"
	local status=$?
	# It runs in the RDMA guest (tests/rdma/suites); here it is built, and says that there is no device.
	case ${!#} in *own_fabric_rdma.c) [ $status != 77 ] || return 0 ;; esac
	return $status
}

docs_installed() {
	{
		echo README.md
		find doc examples -name '*.md' -o -name '*.svg' -o -name '*.[ch]' -o -name '*.cpp' -o -name '*.py' \
			-o -name '*.service'
	} | sort >"$out/readable"
	(cd "$docs" && find . -type f) | sed 's,^\./,,' | sort | diff "$out/readable" -
}

# What is in Python, with the package and the library as they are installed.
python_installed() { # EXAMPLE
	local package
	package=$(dirname "$(find "$out/root" -path '*/verbena/_api.py')")
	[ -f "$package/__init__.py" ] || return
	# Debian's own Python finds it without being told.
	python3 -c 'import site, sys; sys.exit(sys.prefix == "/usr" and sys.argv[1] not in site.getsitepackages())' \
		"$(dirname "${package#"$out/root"}")" || return
	LD_LIBRARY_PATH=$(dirname "$pc") PYTHONPATH=$(dirname "$package") timeout 60 python3 "$docs/examples/$1"
}

stage_package() {
	local file pc docs
	build_gcc || return
	rm -rf "$out/root"
	check "install" env DESTDIR="$out/root" meson install -C "$out/gcc" --no-rebuild || return
	pc=$(dirname "$(find "$out/root" -name verbena.pc)")
	check "only what the headers declare is exported" exports_match "$(dirname "$pc")/libverbena.so"
	check "the archive has no other names" static_names "$(dirname "$pc")/libverbena.a"
	check "an example against the archive" example_static examples/bank.c
	check "without libsodium and networks" without_networks
	for file in include/verbena/*.h; do
		check "$file stands alone in C and C++" header_alone "$(basename "$file")"
	done
	check "verbena.hpp in C++14" example_installed clang++ -std=c++14 -pedantic -fno-exceptions -fno-rtti \
		tests/cpp/test_hpp.cpp
	check "verbena.hpp in C++20, with coroutines" example_installed clang++ -std=c++20 -pedantic \
		-fno-exceptions -fno-rtti tests/cpp/test_hpp.cpp
	check "verbena.hpp in C++20, with exceptions" example_installed clang++ -std=c++20 -pedantic \
		tests/cpp/test_hpp.cpp
	docs=$(find "$out/root" -path '*/share/doc/verbena')
	check "the pages and the examples are installed" docs_installed
	for file in "$docs"/examples/*.c; do
		if [ "${file##*/}" = libuv.c ] && ! pkg-config --exists libuv; then
			record skip "examples/libuv.c against the installed library" "libuv is not installed (Debian: libuv1-dev)"
			continue
		fi
		if [ "${file##*/}" = own_fabric_rdma.c ] && ! pkg-config --exists libibverbs; then
			record skip "examples/own_fabric_rdma.c against the installed library" "libibverbs is not installed (Debian: libibverbs-dev)"
			continue
		fi
		check "examples/${file##*/} against the installed library" example_installed gcc "$file"
	done
	for file in "$docs"/examples/*.cpp; do
		check "examples/${file##*/} against the installed library" example_cpp "$file"
	done
	if command -v python3 >/dev/null; then
		for file in "$docs"/examples/*.py; do
			check "examples/${file##*/} against what is installed" python_installed "${file##*/}"
		done
	else
		record skip "the examples in Python" "python3 is not installed"
	fi
	check "a man page is installed for each function" pages_installed
	check "a man page is installed for each command" commands_installed
}

ended() { # STATUS LOG
	cat "$2"
	return "$1"
}

# Debian's packages, step by step, and what they do in a clean Debian; their own tests one by one.
stage_debian() {
	local dir=$out/debian log=$out/debian.log step name status verdict
	# CI has an hour.
	if [ "$all" = all ] && [ $((SECONDS - begin)) -gt 2400 ]; then
		record skip "Debian packages" "40 minutes are over before them: make test-packages"
		return
	fi
	scripts/deps.sh packages || {
		record skip "Debian packages" "what makes them cannot be installed here"
		return
	}
	while read -r step name; do
		scripts/package.sh --out "$dir" "$step" >"$log" 2>&1 </dev/null
		status=$?
		if [ $status = 77 ]; then
			record skip "$name" "$(tail -n 1 "$log")"
			[ "$step" = lintian ] && continue || break
		fi
		check "$name" ended $status "$log" && tail -n 1 "$log"
		if [ "$step" = test ] && [ -s "$dir/tests/summary" ]; then
			while read -r name verdict; do
				check "the packages' test $name" test "$verdict" = PASS
			done <"$dir/tests/summary"
		fi
		[ $status = 0 ] || [ "$step" = lintian ] || break
	done <<-END
		build the packages are built
		lintian lintian has nothing to say
		chroot a clean Debian
		install the library and the tool are installed there
		test the packages are tested there
		purge nothing is left when they are removed
	END
}

# Everything for another CPU, step by step (scripts/test-arm64.sh); the suites' cases one by one.
stage_arm64() {
	local dir=$out/arm64 log=$out/arm64.log step name status
	scripts/deps.sh arm64 || return
	while read -r step name; do
		if [ "$step" = suites ]; then
			rm -f "$dir/build/meson-logs/testlog.json"
			scripts/test-arm64.sh --out "$dir" suites </dev/null
			cases "$dir/build/meson-logs/testlog.json"
			continue
		fi
		scripts/test-arm64.sh --out "$dir" "$step" >"$log" 2>&1 </dev/null
		status=$?
		if [ $status = 77 ]; then
			record skip "$name" "$(tail -n 1 "$log")"
			break
		fi
		check "$name" ended $status "$log" && tail -n 1 "$log"
		[ $status = 0 ] || [ "$step" = pairs ] || [ "$step" = locks ] || break
	done <<-END
		sysroot arm64's libraries are there
		build the library, the tool and the tests are built for arm64
		locks every lock, explored on arm64
		pairs 16 bytes at once as before Armv8.1
		bench locks of processes on arm64, audited
		suites unit and conformance
	END
}

formatted() {
	find src tests examples bench include -name '*.[ch]' -print0 |
		xargs -0 -n 16 -P "$(nproc)" clang-format --dry-run -Werror
}

# A script is read as far as it is run: that its own shell can read all of it is looked at here.
scripts_parse() {
	local file shell bad=0
	while read -r file; do
		read -r shell <"$file"
		case $shell in
		*[/\ ]bash) bash -n "$file" || bad=1 ;;
		'#!'*) sh -n "$file" || bad=1 ;;
		*) bash -n "$file" || bad=1 ;; # sourced
		esac
	done < <(git ls-files '*.sh' .ci/run)
	return $bad
}

stage_format() {
	check "scripts parse" scripts_parse
	if ! command -v clang-format >/dev/null; then
		record skip "clang-format" "clang-format is not installed"
		return
	fi
	check "clang-format" formatted
}

# ---- running them ----

begin=$SECONDS done=0

run_stage() { # STAGE TABLE
	local since=$SECONDS
	stage=$1
	"stage_$stage"
	printf '%-10s %8d %8d %8d %6d s\n' "$stage" "$(count pass "$stage")" "$(count fail "$stage")" \
		"$(count skip "$stage")" $((SECONDS - since)) >>"$2"
}

run_beside() { # STAGE...
	local name
	renice -n 19 -p "$BASHPID" >/dev/null
	job=.beside
	for name in "$@"; do
		echo
		echo "==== $name, beside the stage before ===="
		run_stage "$name" "$summary$job"
	done
}

waiting=
for stage in "$@"; do
	done=$((done + 1))
	if [ "$all" = all ] && [[ " $beside " = *" $stage "* ]]; then
		continue
	fi
	echo
	echo "==== $stage: stage $done of $#; so far $(count pass) passed, $(count fail) failed, $((SECONDS - begin)) s ===="
	if [ "$all" = all ] && [ "$stage" = rdma ]; then
		# A group of its own, for whoever is interrupted takes it along.
		set -m
		# shellcheck disable=SC2086
		run_beside $beside >"$out/beside.log" 2>&1 </dev/null &
		waiting=$!
		set +m
		trap 'kill -- "-$waiting" 2>/dev/null' EXIT
	fi
	run_stage "$stage" "$summary"
	if [ "$all" = all ] && [ "$stage" = "${quick##* }" ]; then
		echo
		echo "That was \`make test\`: $(count pass) passed, $(count fail) failed in $((SECONDS - begin)) s; the rest follows."
	fi
done
if [ -n "$waiting" ]; then
	wait "$waiting"
	trap - EXIT
	cat "$out/beside.log"
	cat "$summary.beside" >>"$summary"
fi

passed=$(count pass) failed=$(count fail) skipped=$(count skip)
echo
if [ "$skipped" -gt 0 ]; then
	echo 'skipped (in which stages):'
	awk -F '\t' '$1 == "skip" {
		stage = name = $2
		sub(/:.*/, "", stage)
		sub(/^[^:]*: /, "", name)
		sub(/^skipped: /, "", $3)
		line = "  " name " (" $3 ")"
		if (!(line in stages))
			order[++n] = line
		stages[line] = stages[line] " " stage
	}
	END { for (i = 1; i <= n; i++) print order[i] stages[order[i]] }' "$results"
	echo
fi
printf '%-10s %8s %8s %8s %8s\n' stage passed failed skipped time
cat "$summary"
echo
# Last, because of a long run often only the end is kept.
if [ "$failed" -gt 0 ]; then
	echo 'failed:'
	awk -F '\t' '$1 == "fail" {
		gsub(/\\t/, " ", $3)
		n = split($3, why, /\\n/)
		print "  " $2 (n == 1 && $3 != "" ? " (" $3 ")" : "")
		for (i = 1; n > 1 && i <= n && i <= 24; i++)
			if (why[i] != "")
				print "    | " why[i]
	}' "$results"
	echo
fi
if [ "$skipped" -gt 0 ]; then
	echo "$passed passed, $failed failed, $skipped skipped"
else
	echo "$passed passed, $failed failed"
fi
[ "$passed" -gt 0 ] && [ "$failed" = 0 ]
