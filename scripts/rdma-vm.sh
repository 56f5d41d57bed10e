#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: scripts/rdma-vm.sh [--memory MB] [--cpus N] [--timeout S] [--work DIR] [--show DIR]... \
#        -- COMMAND [ARG...]
#
# Runs COMMAND in a virtual machine with two Soft-RoCE devices, rxe0 and rxe1 (VERBENA_VERBS_DEVICE
# and VERBENA_VERBS_DEVICE2 in its environment), which talk to each other over one veth pair.  The
# machine is QEMU's software emulation of Debian's kernel: neither KVM nor root is needed.
#
# The command sees the host's file system read-only and starts in the same folder; /tmp, /run and
# /dev/shm are its own, except for those folders of /tmp which the command, --show or the current
# folder names.  The work DIR (a fresh one, removed afterwards, without --work) is writable under the same path and
# named by VERBENA_WORK.  What changes on the host during a run may or may not be seen.
# VERBENA_*, *SAN_OPTIONS and CMOCKA_* of the environment are passed on.
#
# Exit status: that of the command; 77 when there can be no such machine here (no QEMU, no kernel
# package); 125 when the machine was lost (panic, time-out), with the end of its console.  In both
# latter cases the reason is the last line on stderr.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usage() {
	sed -n '/^# usage: /,/^#$/s/^# \?//p' "$here/rdma-vm.sh" >&2
	exit 2
}

memory=1024 cpus=2 limit=120 work= shown=()
while [ $# -gt 0 ]; do
	case $1 in
	--memory | --cpus | --timeout | --work | --show)
		[ $# -ge 2 ] || usage
		case $1 in
		--memory) memory=$2 ;;
		--cpus) cpus=$2 ;;
		--timeout) limit=$2 ;;
		--work) work=$2 ;;
		--show) shown+=("$(realpath -m "$2")") ;;
		esac
		shift 2
		;;
	--)
		shift
		break
		;;
	*) usage ;;
	esac
done
[ $# -gt 0 ] || usage
for number in "$memory" "$cpus" "$limit"; do
	[[ $number =~ ^[1-9][0-9]{0,6}$ ]] || usage
done

if ! command -v qemu-system-x86_64 >/dev/null; then
	echo "QEMU is not installed (qemu-system-x86)" >&2
	exit 77
fi
kernel=$("$here/rdma/kernel.sh") || exit 77

scratch=$(mktemp -d "${TMPDIR:-/tmp}/verbena-vm.XXXXXX") || exit 125
qemu=
# Whatever ends this script ends the guest.
cleanup() {
	[ -z "$qemu" ] || kill "$qemu" 2>/dev/null
	rm -rf "$scratch"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

[ -n "$work" ] || work=$scratch/work
mkdir -p "$work/.vm" && work=$(cd "$work" && pwd) || exit 125
rm -f "$work/.vm/"*
[[ $work != *[[:space:],]* ]] || {
	echo "the path of the work folder must have no space and no comma: $work" >&2
	exit 2
}
: >"$work/.vm/out"
: >"$work/.vm/err"
{
	echo "cd $(printf %q "$PWD")"
	printf 'export PATH=%q HOME=/tmp LANG=C.UTF-8\n' \
		"$PATH:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
	while IFS='=' read -r -d '' name value; do
		case $name in
		VERBENA_* | *SAN_OPTIONS | CMOCKA_*) printf 'export %s=%q\n' "$name" "$value" ;;
		esac
	done < <(env -0)
	printf 'export VERBENA_VERBS_DEVICE=rxe0 VERBENA_VERBS_DEVICE2=rxe1 VERBENA_WORK=%q\n' "$work"
	printf 'exec'
	printf ' %q' "$@"
	echo
} >"$work/.vm/run"

# The init is made anew each time: the kernel reads archives one after the other, each beginning at a
# multiple of four.
cp "$here/rdma/init.sh" "$scratch/init"
chmod 755 "$scratch/init"
cp "$kernel/base.cpio.gz" "$scratch/initrd" && chmod 644 "$scratch/initrd"
truncate -s %4 "$scratch/initrd"
(cd "$scratch" && echo init | cpio -o -H newc -R 0:0 --quiet) >>"$scratch/initrd"

show=
while IFS= read -r dir; do
	[ ! -d "$dir" ] || show="$show verbena.show=$dir"
done < <(printf '%s\n' "$PWD" "${shown[@]}" "$@" | grep -oE '/tmp/[A-Za-z0-9._+-]+' | sort -u)

# no_timer_check: where the host has too little time for the guest while it boots, the timer's interrupts come too
# late for that check, which then panics.
console=$work/.vm/console
timeout -k 5 "$limit" qemu-system-x86_64 -M q35 -accel tcg,thread=multi -cpu max -smp "$cpus" \
	-m "$memory" -display none -nodefaults -no-user-config -no-reboot -serial stdio -monitor none \
	-kernel "$kernel/kernel" -initrd "$scratch/initrd" \
	-append "console=ttyS0 quiet panic=-1 oops=panic mitigations=off nokaslr tsc=reliable no_timer_check random.trust_cpu=on verbena.work=$work$show" \
	-device isa-debug-exit,iobase=0xf4,iosize=1 \
	-fsdev local,id=f0,path=/,security_model=none,readonly=on,multidevs=remap \
	-device virtio-9p-pci,fsdev=f0,mount_tag=hostroot \
	-fsdev "local,id=f1,path=$work,security_model=none" \
	-device virtio-9p-pci,fsdev=f1,mount_tag=work </dev/null >"$console" 2>&1 &
qemu=$!
tail -c +1 -s 0.2 -f --pid=$qemu "$work/.vm/out" &
out=$!
tail -c +1 -s 0.2 -f --pid=$qemu "$work/.vm/err" >&2 &
err=$!
wait $qemu
status=$?
qemu=
wait $out $err

why=
case $status in
1) [ -s "$work/.vm/status" ] || why="the guest ended without the command's exit status" ;;
0) why="the guest ended before the command did (a kernel panic?)" ;;
124 | 137) why="the guest ran for longer than $limit s" ;;
*) why="the guest could not be set up, or QEMU failed (exit status $status)" ;;
esac
if [ -n "$why" ]; then
	echo "the end of the guest's console:" >&2
	tail -n 30 "$console" | tr -d '\r' | sed 's/^/    /' >&2
	echo "$why" >&2
	exit 125
fi
exit "$(cat "$work/.vm/status")"
