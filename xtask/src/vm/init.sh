#!/bin/busybox sh
# The first process of the emulated machine (see vm.rs). Its root is the host's file system, read
# only, below a layer in memory; /tmp is a local disk (ext4). It runs /command there, prints the
# exit status and switches the machine off. If a step fails, the kernel panics, which ends the
# machine without an exit status.
set -e
/bin/busybox --install -s /bin
export PATH=/bin
mkdir -p /proc /sys /dev /host /memory /new
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs devtmpfs /dev
for module in /modules/*; do
    insmod "$module" 2>/dev/null || echo "vm: the kernel does not load $module"
done

mount -t 9p -o trans=virtio,version=9p2000.L,ro,msize=262144,cache=loose host /host
mount -t tmpfs -o size=80% tmpfs /memory
mkdir /memory/upper /memory/work
mount -t overlay -o lowerdir=/host,upperdir=/memory/upper,workdir=/memory/work overlay /new
mount -t proc proc /new/proc
mount -t sysfs sysfs /new/sys
mount -t devtmpfs devtmpfs /new/dev
mkdir -p /new/dev/pts /new/dev/shm
mount -t devpts devpts /new/dev/pts
mount -t tmpfs tmpfs /new/dev/shm
mount -t tmpfs tmpfs /new/run
truncate -s 1G /memory/disk
losetup /dev/loop0 /memory/disk
chroot /new /sbin/mkfs.ext4 -q /dev/loop0
mount -t ext4 /dev/loop0 /new/tmp
chmod 1777 /new/tmp
ifconfig lo 127.0.0.1 up

cp /command /new/run/command
status=0
chroot /new /bin/sh /run/command </dev/null 2>&1 || status=$?
echo "vm: exit status $status"
sync
poweroff -f
