# SPDX-License-Identifier: GPL-2.0-only
# about: the daemon is killed 20 times under load (CYCLES) and starts again at once
# topology: 2x2
# clock: real
# timeout: 600
# needs: scx_hearth hearth-bench
# suite: full
#
# C58: elsewhere a restart after a crash failed as "busy" until leftovers were removed by hand.

cycles=${CYCLES:-20}
hogs 1
hearth-bench schbench -m 1 -t 4 -r 10000 -n 1 -F 16 -s 2000 -i 0 >/tmp/load.txt 2>&1 3>&- &
load=$!

attached=0 slowest_ms=0
for cycle in $(seq "$cycles"); do
	start_hearth || break
	attached=$((attached + 1))
	sleep 0.2
	before=$(now_us)
	kill -KILL "$SCHED_PID"
	wait_state disabled 20 || break
	took_ms=$((($(now_us) - before) / 1000))
	[ "$took_ms" -le "$slowest_ms" ] || slowest_ms=$took_ms
	wait "$SCHED_PID" 2>/dev/null
done
[ "$attached" -gt 0 ] || slowest_ms=none
check_that c58-restarts "$attached of $cycles starts after a kill attached, without a step by hand" [ "$attached" = "$cycles" ]
check_that disabled "sched_ext is disabled" state_is disabled
# A grace period of RCU and a few forks of this script on two emulated CPUs a core: the bound is no measure of a real machine.
check_at_most falls-back "$slowest_ms" 3000 "ms until the kernel was on its own again, slowest of $cycles"
check_that load "the load still runs" eval '! is_gone "$load"'

start_hearth && check_clean_end after
result slowest_ms="$slowest_ms" cycles="$cycles"
kill -KILL "$load"
stop_hogs
