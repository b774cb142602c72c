#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# First process of a lab guest: mounts what programs expect, runs one scenario, reports how it ended, powers off.
export PATH=/usr/bin:/bin HOME=/root
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev 2>/dev/null
mkdir -p /dev/shm /dev/pts
mount -t tmpfs none /dev/shm
mount -t devpts none /dev/pts
mount -t tmpfs none /tmp
mount -t tmpfs none /run
mount -t debugfs none /sys/kernel/debug
mount -t tracefs none /sys/kernel/tracing
mount -t bpf none /sys/fs/bpf
mount -t cgroup2 none /sys/fs/cgroup
ip link set lo up
ulimit -l unlimited
[ -f /boot/config ] && ln -s config "/boot/config-$(uname -r)"

# File descriptor 3 is the second serial port, for results only: console noise cannot reach it.
stty -F /dev/ttyS1 115200 raw -echo
exec 3>/dev/ttyS1
echo "BEGIN $(uname -r)" >&3
. /lab/env
cd /root
sh -u -c '. /lab/lib.sh; . /lab/scenario.sh'
status=$?
# Not every line of interest reaches a quiet console.
dmesg | grep -E 'sched_ext|stall|BUG|Oops|WARNING|fault|rcu:|LOCKUP|lockup|starved|blocked for|watchdog|failed to run|memory' |
	grep -v 'rcu: .*RCU\|Memory: ' | sed 's/^/KLOG /' >&3
echo "END $status" >&3
# Closing waits until the port has sent everything.
exec 3>&-
poweroff -f
