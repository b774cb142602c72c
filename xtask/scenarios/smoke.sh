# SPDX-License-Identifier: GPL-2.0-only
# about: attach, run load, detach: no stall, nothing left behind
# topology: 2x2
# clock: real
# timeout: 240
# needs: scx_hearth hearth-bench stress-ng
# suite: test quick

start_hearth || exit 0
check attach ok "$(scx_ops) is attached"
schbench_run hearth 4 1
check_that stress "stress-ng cpu and switch end well" \
	stress-ng --cpu 4 --cpu-method int64 --switch 4 --timeout 3 --quiet
check_that still-attached "sched_ext is still enabled after the load" state_is enabled
stop_hearth
check_that exit-code "the daemon ended with $SCHED_RC" [ "$SCHED_RC" = 0 ]
check_that detached "sched_ext is disabled" wait_state disabled 10
result_hearth
check_that statistics "the daemon decided $(hearth_stat decided) wakeups" [ "0$(hearth_stat decided)" -gt 0 ]
