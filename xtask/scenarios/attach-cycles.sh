# SPDX-License-Identifier: GPL-2.0-only
# about: attached and detached 20 times under load (CYCLES)
# topology: 2x2
# clock: real
# timeout: 600
# needs: scx_hearth hearth-bench
# suite: full

cycles=${CYCLES:-20}
hogs 1
hearth-bench schbench -m 1 -t 4 -r 10000 -n 1 -F 16 -s 2000 -i 0 >/tmp/load.txt 2>&1 3>&- &
load=$!

clean=0 led=0
for cycle in $(seq "$cycles"); do
	start_hearth || break
	sleep 0.2
	stop_hearth && [ "$SCHED_RC" = 0 ] && clean=$((clean + 1))
	[ "0$(hearth_stat committed)" -gt 0 ] && led=$((led + 1))
done
check_that cycles "$clean of $cycles attachments ended with 0 and left sched_ext disabled" [ "$clean" = "$cycles" ]
check_that led "$led of $cycles attachments committed decisions" [ "$led" = "$cycles" ]
check_accounts last
check_that load "the load still runs" eval '! is_gone "$load"'
result_hearth
kill -KILL "$load"
stop_hogs
