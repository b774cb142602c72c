# SPDX-License-Identifier: GPL-2.0-only
# about: what `cargo xtask demo` shows: one load under the kernel's default and under ours
# topology: 2x2
# clock: virtual
# timeout: 300
# needs: scx_hearth hearth-bench
#
# The demo also runs this script on the host itself, so it uses nothing that only a guest has.

schbench_run default 4 1 1
start_hearth || exit 0
schbench_run hearth 4 1 1
stop_hearth
check_that detached "sched_ext is disabled again" state_is disabled
result_hearth
