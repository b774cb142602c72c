# SPDX-License-Identifier: GPL-2.0-only
# about: an idle machine for 60 s: the dispatcher sleeps
# topology: 2x2
# clock: virtual
# timeout: 300
# needs: scx_hearth
# suite: test
#
# C20: elsewhere a scheduler kept its CPU busy on an idle machine. IDLE: seconds (60).

idle=${IDLE:-60}
start_hearth || exit 0
sleep "$idle"
check_clean_end c20
sleeps=$(hearth_stat dispatcher.sleeps)
cpu_us=$(hearth_stat dispatcher.cpu_us)
check_at_most c20-wakeups "${sleeps:-none}" $((idle * 20)) "times that the dispatcher slept and woke in $idle s: 20 a second"
check_at_most c20-cpu "${cpu_us:-none}" $((idle * 5000)) "us of CPU time in $idle s: 0.5 % of one CPU"
check_at_most no-takeover "$(hearth_stat shim.takeovers)" 0 "takeovers"
check_at_most no-faults "$(hearth_stat dispatcher.page_faults)" 0 "page faults of the dispatcher"
result_hearth
