# SPDX-License-Identifier: GPL-2.0-only
# about: many new tasks and little memory left: no page fault in the dispatcher, nobody ejected
# topology: 2x2
# clock: virtual
# timeout: 300
# memory: 1024
# needs: scx_hearth stress-ng hackbench
# suite: full
#
# C10: a dispatcher that faults can wait for a task that waits for it. C52: a burst of forks. C53: rows of tasks that ended.

start_hearth || exit 0
check_that fork "stress-ng forks 1,500 times and ends well" timeout 120 stress-ng --fork 4 --fork-ops 1500 --quiet
check_that forkheavy "stress-ng forkheavy ends well" stress-ng --forkheavy 2 --timeout 2 --quiet
check_that memory "stress-ng takes and gives back most of the memory" \
	stress-ng --vm 2 --vm-bytes 30% --timeout 2 --quiet
check_clean_end c52
check_at_most c10-faults "$(hearth_stat dispatcher.page_faults)" 0 "page faults of the dispatcher"
check_at_least new-tasks "$(hearth_stat shim.forwarded_new)" 1000 "new tasks forwarded"
check_at_most c53-rows "$(hearth_stat shim.fallback_untracked)" 0 "tasks without a row although 65,536 are there"
result_hearth
