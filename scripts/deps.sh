#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/deps.sh build|test
#
# Installs what is missing from Debian's packages; doc/dependencies.md says what each is for.  When
# nothing is missing it does nothing and needs no network.  Without root and without a sudo that asks
# no password it prints the command to run, and stops with status 1.  VERBENA_DEPS=skip trusts the
# machine as it is, for systems without dpkg.
set -eu

build='gcc libc6-dev meson ninja-build pkgconf libboost-context-dev libjansson-dev libxxhash-dev'
test='clang clang-format jq libcmocka-dev scdoc'

case "${1-}" in
build) wanted=$build ;;
test) wanted="$build $test" ;;
*)
	echo 'usage: scripts/deps.sh build|test' >&2
	exit 2
	;;
esac

[ "${VERBENA_DEPS-}" != skip ] || exit 0

if ! command -v dpkg-query >/dev/null; then
	echo "verbena: this is no Debian system; install what these packages hold, then set VERBENA_DEPS=skip:" >&2
	echo "    $wanted" >&2
	exit 1
fi

missing=
for package in $wanted; do
	status=$(dpkg-query -W -f='${db:Status-Status} ' "$package" 2>/dev/null) || status=
	case " $status" in
	*' installed '*) ;;
	*) missing="$missing $package" ;;
	esac
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" = 0 ]; then
	sudo=
elif command -v sudo >/dev/null && sudo -n true 2>/dev/null; then
	sudo='sudo -n'
else
	echo "verbena: packages are missing and this user may not install them.  As root, run:" >&2
	echo "    apt-get update && apt-get install -y --no-install-recommends$missing" >&2
	exit 1
fi

apt() {
	$sudo env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=l \
		apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null
}

echo "verbena: installing$missing"
apt update || echo 'verbena: apt-get update failed; trying with the lists that are there' >&2
# shellcheck disable=SC2086
if ! apt install -y --no-install-recommends $missing; then
	echo "verbena: apt-get could not install$missing; its messages above say why" >&2
	exit 1
fi
