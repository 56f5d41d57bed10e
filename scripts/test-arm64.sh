#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/test-arm64.sh [--out DIR] [STEP...]
#
# Verbena for arm64, cross-built and run under qemu-user, step by step; without STEPs all of them:
#
#	sysroot  an arm64 Debian's libraries and headers, of this machine's release, in DIR/sysroot
#	build    the library, the tool and the tests, in DIR/build (scripts/arm64.ini)
#	pairs    what is done with 16 bytes at once, as on a CPU before Armv8.1 (cortex-a53)
#	locks    every lock, explored from VERBENA_TEST_SEEDS seeds (20)
#	bench    locks of processes on shared memory, audited
#	suites   unit and conformance; DIR/build/meson-logs/testlog.json has what became of each
#
# qemu-user translates each instruction to this machine's.  On x86-64, whose memory is in a stricter order
# than arm64's, it does not show what a missing barrier would do: that is argued where the code is.
# Nothing is installed for the sysroot, nor is the machine's apt told of another architecture: the
# packages are fetched by an apt of the folder's own, and unpacked.  Kept in DIR/sysroot until removed.
#
# VERBENA_QEMU  the emulator (qemu-aarch64-static): one of version 8.1 or newer has FEAT_LSE2, too
#
# Exit status 77 if a step cannot be done on this machine: the last line says why, and what to install.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1

usage() {
	sed -n 's/^# usage: /usage: /p' scripts/test-arm64.sh >&2
	exit 2
}

steps='sysroot build pairs locks bench suites'
out=build-arm64
while [ $# -gt 0 ]; do
	case $1 in
	--out)
		[ $# -ge 2 ] || usage
		out=$2
		shift 2
		;;
	*)
		[[ " $steps " = *" $1 "* ]] || usage
		break
		;;
	esac
done
# shellcheck disable=SC2086
[ $# -gt 0 ] || set -- $steps
mkdir -p "$out" && out=$(cd "$out" && pwd) || exit 1
sysroot=$out/sysroot
build=$out/build
verbena=$build/src/verbena
qemu=${VERBENA_QEMU-qemu-aarch64-static}
seeds=${VERBENA_TEST_SEEDS-20}

# Of what Meson looks for, all that is not there for tools alone.  Not PMIx: its headers come with half a desktop.
packages='libc6-dev libboost-context-dev libjansson-dev libxxhash-dev libsodium-dev libssl-dev libcmocka-dev
libucx-dev libibverbs-dev librdmacm-dev'

cannot() { # REASON
	echo "$*"
	exit 77
}

need() { # TOOL PACKAGE
	command -v "$1" >/dev/null || cannot "$1 is not installed (Debian: $2)"
}

fail() { # REASON
	echo "verbena: $*" >&2
	exit 1
}

# ---- libraries ----

# An apt that knows arm64 only, has nothing installed, and writes below the folder.
arm64_apt() {
	apt-get -q -o Dir::State="$sysroot.apt" -o Dir::State::status="$sysroot.apt/status" \
		-o Dir::Cache="$sysroot.apt" -o Dir::Etc::SourceList="$sysroot.apt/sources.list" \
		-o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::TrustedParts=/usr/share/keyrings \
		-o APT::Architecture=arm64 -o APT::Architectures::=arm64 \
		-o APT::Install-Recommends=false -o APT::Sandbox::User="$(id -un)" -o Debug::NoLocking=true "$@"
}

step_sysroot() {
	local lines deb link to
	need apt-get apt
	need dpkg-deb dpkg
	[ ! -e "$sysroot/.whole" ] || return 0
	lines=$(apt-get indextargets --format "deb \$(REPO_URI) \$(CODENAME) \$(COMPONENT)" \
		'Identifier: Packages' 'Origin: Debian' 'Component: main' 2>/dev/null | sort -u)
	[ -n "$lines" ] || cannot "apt has no lists of Debian's packages (apt-get update)"
	rm -rf "$sysroot" "$sysroot.apt"
	mkdir -p "$sysroot" "$sysroot.apt/lists/partial" "$sysroot.apt/archives/partial" || exit 1
	: >"$sysroot.apt/status"
	printf '%s\n' "$lines" >"$sysroot.apt/sources.list"
	arm64_apt update || cannot "apt could not fetch the lists of arm64's packages"
	# shellcheck disable=SC2086
	arm64_apt install -y --download-only $packages || cannot "apt could not fetch arm64's packages"
	for deb in "$sysroot.apt"/archives/*.deb; do
		dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$sysroot" --no-same-owner --exclude='./usr/share/*' \
			--exclude='./usr/bin/*' --exclude='./bin/*' --exclude='./var/*' || fail "$deb cannot be unpacked"
	done
	# A link from the root is from this one.
	find "$sysroot" -type l -lname '/*' -printf '%p %l\n' | while read -r link to; do
		ln -sf "$sysroot$to" "$link" || exit 1
	done || fail "links in $sysroot cannot be set"
	rm -rf "$sysroot.apt"
	touch "$sysroot/.whole"
	du -sh "$sysroot"
}

# ---- building ----

step_build() {
	need aarch64-linux-gnu-gcc gcc-aarch64-linux-gnu
	need "$qemu" qemu-user-static
	[ -e "$sysroot/.whole" ] || fail "the step sysroot comes first"
	printf "[constants]\nsysroot = '%s'\nqemu = '%s'\n" "$sysroot" "$(command -v "$qemu")" >"$out/sysroot.ini"
	# As it is released, without what debuggers read.
	env -u CC scripts/build.sh "$build" --cross-file "$out/sysroot.ini" --cross-file scripts/arm64.ini \
		-Dtests=enabled
}

# ---- running ----

magic='\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\xb7\x00'
mask='\xff\xff\xff\xff\xff\xff\xff\x00\xff\xff\xff\xff\xff\xff\xff\xff\xfe\xff\xff\xff'

# What a test starts by exec is run by the emulator, too: where the kernel has not been told so, in a namespace
# of ours it is (Linux 6.7 or newer), and nowhere else.
emulated() { # COMMAND...
	export QEMU_LD_PREFIX=$sysroot
	if [ "$("$verbena" version 2>/dev/null)" != '' ]; then
		"$@"
		return
	fi
	# shellcheck disable=SC2016
	unshare --user --map-root-user --mount sh -c '
		mount -t binfmt_misc none /proc/sys/fs/binfmt_misc &&
			printf "%s" "$1" >/proc/sys/fs/binfmt_misc/register && shift && exec "$@"' \
		sh ":verbena-arm64:M::$magic:$mask:$(command -v "$qemu"):F" "$@"
}

can_emulate() {
	[ -x "$verbena" ] || fail "the step build comes first"
	emulated "$verbena" version >/dev/null 2>&1 ||
		cannot "the kernel does not start arm64 programs, and no namespace can tell it how (qemu-user-static's own registration with binfmt_misc, or Linux 6.7)"
}

# A limit ends what hangs and judges nothing, as in scripts/test.sh; here everything takes ten times as long.
tests() { # MESON-TEST-ARGUMENT...
	emulated env CMOCKA_MESSAGE_OUTPUT=tap MALLOC_PERTURB_=0 meson test -C "$build" --no-rebuild --print-errorlogs \
		--timeout-multiplier 20 "$@" </dev/null
}

step_suites() {
	can_emulate
	rm -f "$build/meson-logs/testlog.json"
	tests --num-processes $(($(nproc) + 1)) --suite unit --suite conformance
}

step_pairs() {
	can_emulate
	QEMU_CPU=cortex-a53 tests --logbase pairs --suite unit --suite conformance cpu_race fabric_shm shiftlock
}

step_locks() {
	can_emulate
	emulated "$verbena" check lock --lock all --seeds "$seeds"
}

step_bench() {
	can_emulate
	emulated "$verbena" bench lock --fabric shm --lock all --clients 4 --duration 2s
}

for step in "$@"; do
	"step_$step" || exit
done
