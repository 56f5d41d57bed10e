#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/package.sh [--out DIR] [STEP...]
#
# Debian packages of what is committed (HEAD), and what becomes of them in a clean Debian, step by step;
# without STEPs all of them, in this order:
#
#	build    source and binary packages, into DIR (build-debian)
#	lintian  what Debian's own checker says of them: an error or a warning is a failure
#	chroot   a clean Debian of this machine's release in DIR/root, which has only what all have, and apt
#	install  the library and the tool there, with what they depend on and no more
#	test     debian/tests there, by autopkgtest; DIR/tests/summary has a line for each
#	purge    all removed again, and nothing left of it; DIR/root is removed, too
#
# The last four want root.  What the chroot is made from is kept for a week, with the packages that the
# tests want, under ${XDG_CACHE_HOME:-~/.cache}/verbena/debian/.
#
# Exit status 77 if a step cannot be done on this machine: the last line says why, and what to install.
set -u
export LC_ALL=C
cd "$(dirname "$0")/.." || exit 1

usage() {
	sed -n 's/^# usage: /usage: /p' scripts/package.sh >&2
	exit 2
}

steps='build lintian chroot install test purge'
out=build-debian
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
root=$out/root
source=$out/verbena
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/verbena/debian

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

# ---- packages ----

step_build() {
	local missing
	need dpkg-buildpackage 'dpkg-dev, build-essential'
	need dh debhelper
	[ -z "$(git status --porcelain 2>/dev/null)" ] ||
		echo "what is not committed is not in the packages"
	rm -rf "$source" "$out"/*.{deb,dsc,changes,buildinfo,tar.*}
	mkdir "$source" && git archive HEAD | tar -x -C "$source" || fail "HEAD cannot be unpacked"
	missing=$(dpkg-checkbuilddeps "$source/debian/control" 2>&1) || cannot "${missing#*error: }"
	# As on another's machine: no repository above it, and its own flags.
	(cd "$source" && env -u CC -u CFLAGS -u LDFLAGS -u MAKEFLAGS -u MFLAGS -u DESTDIR \
		GIT_CEILING_DIRECTORIES="$out" DEB_BUILD_OPTIONS="parallel=$(nproc)" \
		dpkg-buildpackage --build=full --unsigned-source --unsigned-changes --no-pre-clean) ||
		fail "dpkg-buildpackage failed"
	(cd "$out" && ls -l ./*.deb)
}

step_lintian() {
	need lintian lintian
	lintian --allow-root --fail-on error,warning --info "$out"/*.changes
}

# ---- a clean Debian ----

# What the packages and their tests depend on beyond each other: fetched once.
depended() {
	local field package
	for field in Depends Pre-Depends; do
		dpkg-deb -f "$out"/lib*0_*.deb $field
		dpkg-deb -f "$out"/lib*-dev_*.deb $field
		dpkg-deb -f "$out"/verbena_*.deb $field
		dpkg-deb -f "$out"/python3-verbena_*.deb $field
	done | cat - <(sed -n 's/^Depends: //p' debian/tests/control) |
		tr ',' '\n' | sed 's/[(|].*//; s/ //g' | sort -u | while read -r package; do
		case $package in
		'' | *verbena*) ;;
		*) echo "$package" ;;
		esac
	done
}

# The lines of this machine's apt that are Debian's own, however they are written.
sources() {
	apt-get indextargets --format "deb \$(REPO_URI) \$(CODENAME) \$(COMPONENT)" \
		'Identifier: Packages' 'Origin: Debian' 'Component: main' 2>/dev/null | sort -u
}

step_chroot() {
	local wanted key tarball lines hook
	need mmdebstrap mmdebstrap
	[ "$(id -u)" = 0 ] || cannot "only root can make a chroot"
	unshare --mount --pid --fork true 2>/dev/null || cannot "this machine lets nobody make a mount namespace"
	lines=$(sources)
	[ -n "$lines" ] || cannot "apt has no lists of Debian's packages (apt-get update)"
	mkdir -p "$cache" || fail "the folder $cache cannot be made"
	wanted=$(depended | tr '\n' ' ')
	key=$(printf '%s\n' "$lines" "$wanted" "$(dpkg --print-architecture)" | cksum | cut -d ' ' -f 1)
	tarball=$cache/$key.tar
	find "$cache" -name '*.tar*' -mtime +6 -delete
	if ! [ -e "$tarball" ]; then
		echo "fetching a Debian (once a week)"
		hook="APT_CONFIG=\$MMDEBSTRAP_APT_CONFIG apt-get -q -y --no-install-recommends --download-only install $wanted"
		printf '%s\n' "$lines" |
			timeout 400 mmdebstrap --variant=apt --mode=root --format=tar --skip=cleanup/apt \
				--aptopt='Acquire::Retries "2"' --dpkgopt=force-unsafe-io \
				--customize-hook="$hook" \
				--customize-hook='chroot "$1" useradd --create-home tester' '' "$tarball.new" - ||
			cannot "mmdebstrap could make no chroot: its messages above say why"
		mv "$tarball.new" "$tarball"
	fi
	rm -rf --one-file-system "$root"
	mkdir "$root" && tar -x -p --numeric-owner -C "$root" -f "$tarball" || fail "$tarball cannot be unpacked"
	du -sh "$root"
}

# Runs a function or a command with what a system has below its root, in namespaces of its own: no mount and
# no process of it is left.
mounted() { # COMMAND...
	unshare --mount --pid --fork --kill-child --mount-proc "$BASH" -c '
		mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/dev/shm" && mount -t tmpfs tmpfs "$0/tmp" || exit
		exec "$@"' "$root" "$@"
}

inside() { # COMMAND...
	mounted env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root DEBIAN_FRONTEND=noninteractive \
		chroot "$root" "$@"
}

# Which files and which packages there are, but for what a system writes down for itself.
looked_at() {
	local dir prune=()
	for dir in proc sys dev tmp run var/cache var/log var/lib/apt var/lib/dpkg etc/apt; do
		prune+=(-o -path "$root/$dir")
	done
	find "$root" -mindepth 1 \( -false "${prune[@]}" \) -prune -o -printf '%y %P\n' | sort
	chroot "$root" dpkg-query -W -f 'package ${Package} ${db:Status-Status}\n' | sort
}

need_root() {
	[ -x "$root/usr/bin/apt-get" ] || cannot "there is no chroot: the step chroot comes first"
}

step_install() {
	need_root
	looked_at >"$out/before"
	cp "$out"/libverbena0_*.deb "$out"/verbena_*.deb "$root/var/cache/apt/" || fail "no packages: build comes first"
	inside sh -c 'apt-get -q -y --no-install-recommends install /var/cache/apt/*verbena*.deb' || return
	inside ldd /usr/bin/verbena || return
	inside verbena version && inside verbena list >/dev/null
}

step_test() {
	local status
	need_root
	need autopkgtest autopkgtest
	rm -rf "$out/tests" "$out/tree"
	mkdir "$out/tree" && cp -r "$source/debian" "$out/tree/" || fail "no source: build comes first"
	mounted autopkgtest --no-built-binaries --output-dir "$out/tests" --summary-file "$out/summary" \
		"$out"/*verbena*.deb "$out/tree/" -- chroot "$root"
	status=$?
	mv "$out/summary" "$out/tests/summary"
	# 2: some were skipped, of which the summary says why.
	[ $status = 0 ] || [ $status = 2 ]
}

step_purge() {
	need_root
	local package=()
	# Ours, and what came with them and their tests: autopkgtest has marked some of that as wanted.
	looked_at >"$out/after"
	mapfile -t package < <(comm -13 "$out/before" "$out/after" | sed -n 's/^package \([^ ]*\) .*/\1/p')
	inside apt-get -q -y purge "${package[@]}" || return
	looked_at >"$out/after"
	diff "$out/before" "$out/after" || fail "that is left (>) or gone (<) with the packages purged"
	rm -rf --one-file-system "$root"
}

# Read to its end before it runs, for a build takes minutes in which this file may be edited.
{
	for step in "$@"; do
		begin=$SECONDS
		echo "==== $step ===="
		"step_$step" || exit
		echo "$step: $((SECONDS - begin)) s"
	done
	exit 0
}
