# SPDX-License-Identifier: GPL-2.0-only
# about: the lab itself, under the kernel's own scheduler: topology, clock, tools
# topology: 2x2 1 1x2x2
# clock: virtual
# timeout: 300
# suite: test quick

check_that cpus "$LAB_CPUS CPUs" [ "$(nproc)" = "$LAB_CPUS" ]
llcs=$(cat /sys/devices/system/cpu/cpu[0-9]*/cache/index3/shared_cpu_list | sort -u | wc -l)
check_that llcs "$LAB_LLCS LLC domains" [ "$llcs" = "$LAB_LLCS" ]
check_that sched-ext "sched_ext is there and disabled" state_is disabled
check_that btf "the kernel describes its types" [ -s /sys/kernel/btf/vmlinux ]
check_that config "the kernel's configuration is there" grep -q CONFIG_SCHED_CLASS_EXT=y "/boot/config-$(uname -r)"

hogs "$LAB_CPUS" taskset -c 0
hogs 1 chrt -i 0
check_that hogs "$LAB_CPUS+1 loops run" [ "$(echo "$HOG_PIDS" | wc -w)" = $((LAB_CPUS + 1)) ]
stop_hogs

before=$(now_us)
sleep 0.5
slept_us=$(($(now_us) - before))
check_that clock "0.5 s of sleep took $slept_us us" [ "$slept_us" -ge 490000 ]
result slept_us="$slept_us" cpus="$(nproc)" llcs="$llcs"
