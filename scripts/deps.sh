#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/deps.sh build|test|packages|arm64|peers
#
# Installs what is missing from Debian's packages; doc/dependencies.md says what each is for.  When
# nothing is missing it does nothing and needs no network.  Without root and without a sudo that asks
# no password it prints the command to run, and stops with status 1.  Without an optional package
# the tests that need it are skipped by name: where it cannot be installed this says so and goes on.
# VERBENA_DEPS=skip trusts the machine as it is, for systems without dpkg.
set -eu

build='gcc libc6-dev meson ninja-build pkgconf libboost-context-dev libjansson-dev libxxhash-dev libsodium-dev libssl-dev'
test='clang clang-format jq libcmocka-dev python3 scdoc'
# The network fabrics and launchers: their headers to build with, their libraries to run.
networks='libucx-dev libibverbs-dev librdmacm-dev libpmix-dev'
# RDMA: the devices' drivers, and the guest of `make test-rdma` (scripts/rdma-vm.sh).
optional="$networks ibverbs-providers rdma-core iproute2
qemu-system-x86 busybox-static cpio gzip xz-utils"
# The model checker (to test).
optional="$optional spin"
# Ranks from a launcher (to test), and the fuzzers.
optional="$optional openmpi-bin libclang-rt-dev"
# An example in its loop.
optional="$optional libuv1-dev"
# Figures of `verbena reproduce`.
optional="$optional gnuplot-nox"
# Debian's packages (scripts/package.sh), and a clean Debian to try them in.
packages='build-essential debhelper dh-python lintian mmdebstrap autopkgtest scdoc'
# Another CPU: its compiler, and what runs its programs here (scripts/test-arm64.sh).
arm64='gcc-aarch64-linux-gnu qemu-user-static'
# The locks that bench/peers/run.sh compares with, and their clients' libraries (build again after).
peers='redis-server libhiredis-dev etcd-server libcurl4-openssl-dev jq'

case "${1-}" in
build) wanted=$build optional=$networks ;;
test) wanted="$build $test" ;;
packages) wanted=$build optional="$networks $packages" ;;
arm64) wanted="$build jq" optional="$arm64" ;;
peers) wanted="$build $peers" optional=$networks ;;
*)
	echo 'usage: scripts/deps.sh build|test|packages|arm64|peers' >&2
	exit 2
	;;
esac

[ "${VERBENA_DEPS-}" != skip ] || exit 0

if ! command -v dpkg-query >/dev/null; then
	echo "verbena: this is no Debian system; install what these packages hold, then set VERBENA_DEPS=skip:" >&2
	echo "    $wanted" >&2
	exit 1
fi

# Those of the packages that are not installed.
missing() { # PACKAGE...
	for package in "$@"; do
		status=$(dpkg-query -W -f='${db:Status-Status} ' "$package" 2>/dev/null) || status=
		case " $status" in
		*' installed '*) ;;
		*) printf ' %s' "$package" ;;
		esac
	done
}

# shellcheck disable=SC2086
missing=$(missing $wanted) also=$(missing $optional)
[ -n "$missing$also" ] || exit 0

without() { # PACKAGES
	echo "verbena: going on without$1: what needs them is left out or skipped by name" >&2
}

if [ "$(id -u)" = 0 ]; then
	sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	sudo='sudo -n'
else
	echo "verbena: packages are missing and this user may not install them.  As root, run:" >&2
	echo "    apt-get update && apt-get install -y --no-install-recommends$missing$also" >&2
	[ -z "$missing" ] || exit 1
	without "$also"
	exit 0
fi

apt() {
	$sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l \
		apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

install() { # PACKAGE...
	apt install -y --no-install-recommends "$@"
}

echo "verbena: installing$missing$also"
apt update || echo 'verbena: apt-get update failed; trying with the lists that are there' >&2
# shellcheck disable=SC2086
if [ -n "$missing" ] && ! install $missing; then
	echo "verbena: apt-get could not install$missing; its messages above say why" >&2
	exit 1
fi
# All at once if that works, else as many as can be had.
# shellcheck disable=SC2086
if [ -n "$also" ] && ! install $also; then
	for package in $also; do
		install "$package" || true
	done
	also=$(missing $also)
	[ -z "$also" ] || without "$also"
fi
