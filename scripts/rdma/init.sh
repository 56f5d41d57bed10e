#!/bin/busybox sh
# SPDX-License-Identifier: Apache-2.0
#
# First process of the guest that scripts/rdma-vm.sh boots: loads the modules, mounts the host's file
# system (read-only) and the work folder, makes two Soft-RoCE devices on the two ends of one veth
# pair, and runs WORK/.vm/run in there.  The command's exit status goes to WORK/.vm/status.  What is
# written to port 0xf4 ends the guest: 0 says that there is a status, anything else which step failed.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
/bin/busybox mkdir -p /proc /sys /dev
/bin/busybox --install -s /bin

leave() { # BYTE
	# shellcheck disable=SC3037
	echo -ne "\\x$(printf %02x "$1")" | dd of=/dev/port bs=1 seek=244 conv=notrunc 2>/dev/null
	poweroff -f
}

give_up() { # BYTE WHAT
	echo "verbena-guest: $2"
	leave "$1"
}

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts /host /saved
mount -t devpts devpts /dev/pts

# A module that this kernel has built in is not in the list's folder.
while read -r module; do
	[ ! -f "/modules/$module.ko" ] || insmod "/modules/$module.ko" ||
		give_up 1 "insmod $module failed"
done </modules/order

# work= and show= (folders below /tmp that stay visible under the guest's own /tmp).
work= show=
# shellcheck disable=SC2013
for word in $(cat /proc/cmdline); do
	case $word in
	verbena.work=*) work=${word#*=} ;;
	verbena.show=*) show="$show ${word#*=}" ;;
	esac
done

mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=512000,cache=loose hostroot /host ||
	give_up 2 "the host's file system cannot be mounted"
mount -t proc proc /host/proc
mount --rbind /sys /host/sys
mount --rbind /dev /host/dev
mount -t tmpfs tmpfs /host/dev/shm
mount -t tmpfs tmpfs /host/run
mount --bind /host/tmp /saved
mount -t tmpfs -o mode=1777 tmpfs /host/tmp
for dir in $show; do
	mkdir -p "/host$dir"
	mount --bind "/saved${dir#/tmp}" "/host$dir" || give_up 3 "$dir cannot be shown"
done
mkdir -p "/host$work" 2>/dev/null
mount -t 9p -o trans=virtio,version=9p2000.L,msize=512000,cache=none work "/host$work" ||
	give_up 4 "the work folder $work cannot be mounted"

# Two devices, each with an address of its own, one process per device: what goes from one to the
# other passes through the wire (the veth pair) although both ends are this machine's.
network() {
	local dev
	hostname verbena-rdma
	ip link set lo up
	# By the host's tools: busybox knows neither veth nor rdma.
	chroot /host /bin/bash -c 'ip link add v0 type veth peer name v1' || return
	for dev in all default v0 v1; do
		echo 0 >"/proc/sys/net/ipv4/conf/$dev/rp_filter"
		echo 1 >"/proc/sys/net/ipv4/conf/$dev/accept_local"
	done
	ip addr add 192.0.2.1/24 dev v0 && ip addr add 192.0.2.2/24 dev v1 || return
	ip link set v0 mtu 4200 up && ip link set v1 mtu 4200 up || return
	chroot /host /bin/bash -c \
		'rdma link add rxe0 type rxe netdev v0 && rdma link add rxe1 type rxe netdev v1'
}

# A port is ready once it is active and has the GID of its IPv4 address.
ready() { # DEVICE
	grep -q ACTIVE "/sys/class/infiniband/$1/ports/1/state" 2>/dev/null &&
		grep -qs '0000:0000:0000:0000:0000:ffff:' "/sys/class/infiniband/$1/ports/1/gids/"*
}

network || give_up 5 "the Soft-RoCE devices cannot be made"
tries=0
until ready rxe0 && ready rxe1; do
	tries=$((tries + 1))
	[ $tries -lt 300 ] || give_up 6 "the Soft-RoCE devices do not become active"
	sleep 0.05
done
# gcc 12's thread sanitizer wants no more random bits in addresses than this.
echo 28 >/proc/sys/vm/mmap_rnd_bits 2>/dev/null
ulimit -l unlimited
ulimit -c 0
ulimit -n 4096
echo "verbena-guest: ready after $(cut -d ' ' -f 1 /proc/uptime) s"
chroot /host /bin/bash "$work/.vm/run" >"/host$work/.vm/out" 2>"/host$work/.vm/err" </dev/null
echo $? >"/host$work/.vm/status"
sync
leave 0
