# SPDX-License-Identifier: GPL-2.0-only
# about: CPUs go offline and online under load, the dispatcher's own too: attached again within 2 s
# topology: 2x2
# clock: virtual
# timeout: 400
# needs: scx_hearth hearth-bench
# suite: full
# append: clearcpuid=monitor
#
# C08, C55: elsewhere a CPU that came or went crashed or ended the scheduler. Virtual CPUs share one stream of instructions, so
# the load is one of many short runs: endless loops would only slow the daemon's start down. Without MONITOR an offline CPU
# halts; with it, it spins under emulation, and idle time cannot be skipped.

cpu_online() { echo "$2" >"/sys/devices/system/cpu/cpu$1/online"; }

attach_count() { grep -c 'attached: policy' /tmp/sched.log; }
attached_again() { [ "$(attach_count)" -gt "$1" ] && state_is enabled; }

# plug NAME CPU 0|1: one change; reports how long sched_ext was without us.
plug() {
	count=$(attach_count)
	before=$(now_us)
	cpu_online "$2" "$3"
	wait_for 5 attached_again "$count"
	check_at_most "$1" $((($(now_us) - before) / 1000)) 2000 "ms until attached again (state $(scx_state))"
}

start_hearth --dispatcher-cpu 1 || exit 0
wakeup_start 8 10000
plug c08-offline-other 3 0
plug c08-online-other 3 1
plug c08-offline-dispatcher 1 0
sleep 0.3
plug c08-online-dispatcher 1 1
check_that daemon "the same daemon still runs" eval '! is_gone "$SCHED_PID"'
check_that load "the load still runs" eval '! is_gone "$WAKEUP_PID"'
check_clean_end c55-end
show_file /tmp/sched.log
result_hearth
kill -KILL "$WAKEUP_PID"
