#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/rdma/kernel.sh
#
# Prints a folder with what the guest boots: `kernel` and `base.cpio.gz` (busybox and the modules).
# It comes from Debian's kernel package, which is unpacked there and never installed, and is kept for
# the next time under ${XDG_CACHE_HOME:-~/.cache}/verbena/rdma/, by version.  Exit status 77 and one
# line on stderr if it cannot be had.
set -u
export LC_ALL=C

# In the order in which they are loaded.  Those that a kernel has built in, or no more, are left out.
modules='virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci 9pnet 9pnet_virtio
netfs fscache 9p veth crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe configfs
ib_cm iw_cm rdma_cm rdma_ucm'
needed='9p veth ib_uverbs rdma_rxe rdma_ucm'
# Part of the cached folder's name: goes up when what is in there changes.
format=1

cannot() { # REASON
	echo "$*" >&2
	exit 77
}

cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/verbena/rdma
mkdir -p "$cache" || cannot "the folder $cache cannot be made"
exec 9>"$cache/.lock"
flock -w 600 9 || cannot "another run holds $cache/.lock for ten minutes"

# An older kernel serves as well when the newest cannot be had.
older() { # REASON
	local dir
	dir=$(find "$cache" -mindepth 2 -maxdepth 2 -name complete -path "*.$format/*" -printf '%T@ %h\n' |
		sort -n | tail -n 1 | cut -d ' ' -f 2-)
	[ -n "$dir" ] || cannot "$1"
	echo "$1; using ${dir##*/} from the cache" >&2
	echo "$dir"
	exit 0
}

[ "$(uname -m)" = x86_64 ] || cannot "the guest is built for x86_64 only"
for tool in apt-cache apt-get dpkg-deb busybox cpio gzip; do
	command -v $tool >/dev/null || cannot "$tool is not installed"
done

newest() {
	package=$(apt-cache depends --important linux-image-amd64 2>/dev/null |
		sed -n 's/^ *Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
	version=$(apt-cache policy "${package:-none}" 2>/dev/null | sed -n 's/^ *Candidate: //p')
	[ -n "$package" ] && [ -n "$version" ] && [ "$version" != '(none)' ]
}
if ! newest; then
	apt-get -q update >/dev/null 2>&1
	newest || older "apt knows no kernel package (linux-image-amd64)"
fi

dir=$cache/${package#linux-image-}_${version//[^A-Za-z0-9.+~-]/_}.$format
if [ -e "$dir/complete" ]; then
	echo "$dir"
	exit 0
fi

tmp=$(mktemp -d "$cache/tmp.XXXXXX") || cannot "nothing can be written in $cache"
trap 'rm -rf "$tmp"' EXIT
fetch() {
	(cd "$tmp" && timeout 600 apt-get -q -o Acquire::Retries=2 -o APT::Sandbox::User=root \
		download "$package=$version") >"$tmp/log" 2>&1
}
echo "verbena: fetching $package $version (70 MB, once)" >&2
if ! fetch; then
	# The lists may be older than what the mirror still holds.
	apt-get -q update >/dev/null 2>&1
	newest && fetch || older "$package cannot be fetched: $(grep -m 1 '^[EW]:' "$tmp/log")"
	dir=$cache/${package#linux-image-}_${version//[^A-Za-z0-9.+~-]/_}.$format
fi

mkdir -p "$tmp/new/base/modules" "$tmp/new/base/bin" "$tmp/root"
patterns=('./boot/vmlinuz-*')
for module in $modules; do
	patterns+=("*/$module.ko" "*/$module.ko.xz")
done
# tar says so when a pattern finds nothing, which is no error here; what is missing shows below.
dpkg-deb --fsys-tarfile "$tmp"/*.deb |
	tar -x -C "$tmp/root" --wildcards "${patterns[@]}" 2>"$tmp/log"
for module in $modules; do
	file=$(find "$tmp/root" -name "$module.ko" -o -name "$module.ko.xz" | head -n 1)
	to=$tmp/new/base/modules/$module.ko
	case $file in
	*.xz) xz -dc "$file" >"$to" || cannot "$module.ko.xz cannot be unpacked" ;;
	?*) cp "$file" "$to" || cannot "nothing can be written in $cache" ;;
	esac
	[ ! -e "$to" ] || echo "$module" >>"$tmp/new/base/modules/order"
done
for module in $needed; do
	[ -e "$tmp/new/base/modules/$module.ko" ] || cannot "$package has no module $module"
done

# The ELF image inside starts some two seconds sooner under emulation than the one that unpacks itself.
image=$(find "$tmp/root/boot" -name 'vmlinuz-*' | head -n 1)
[ -n "$image" ] || cannot "$package holds no kernel image"
at=$(grep -abo -m 1 -P '\xFD7zXZ\x00' "$image" | head -n 1 | cut -d : -f 1)
if [ -n "$at" ] && command -v xz >/dev/null; then
	tail -c "+$((at + 1))" "$image" | xz -dc >"$tmp/new/kernel" 2>/dev/null
fi
[ "$(head -c 4 "$tmp/new/kernel" 2>/dev/null | tail -c 3)" = ELF ] || cp "$image" "$tmp/new/kernel"

cp "$(command -v busybox)" "$tmp/new/base/bin/busybox"
(cd "$tmp/new/base" && find . | cpio -o -H newc -R 0:0 --quiet | gzip -1) >"$tmp/new/base.cpio.gz" ||
	cannot "the guest's first file system cannot be packed"
rm -rf "$tmp/new/base" "$dir"
touch "$tmp/new/complete"
mv "$tmp/new" "$dir" || cannot "nothing can be written in $cache"
echo "$dir"
