# SPDX-License-Identifier: GPL-2.0-only
# about: the allowed CPUs of tasks change between a commit's check and its move
# topology: 2x2
# clock: real
# timeout: 300
# needs: scx_hearth hearth-bench
# suite: full
#
# C21: elsewhere the kernel ejected the scheduler ("target CPU not allowed"), or a task waited for ever in its old CPU's queue.
# DELAY: clock readings between check and move (1000). SECONDS_EACH: 5.

start_hearth --fault-commit-delay "${DELAY:-1000}" || exit 0

code=0
hearth-bench affinity-race -t 8 -r "${SECONDS_EACH:-5}" >/tmp/race.json 2>/tmp/race.txt || code=$?
# race KEY: prints one figure.
race() { sed -n "s/.*\"$1\":\([0-9]*\).*/\1/p" /tmp/race.json; }
check_that c21-allowed "no thread ran on a forbidden CPU (status $code, $(race forbidden) runs, $(race checks) checks)" [ "$code" = 0 ]
check_at_least c21-changes "$(race changes)" 100 "changes of affinity"
check_at_most c21-waits "$(race latest_us)" 1500000 "us, the latest wakeup: nobody waits in a queue of a forbidden CPU until the rescue"
check_clean_end c21
check_at_least c21-raced "$(($(hearth_stat stale) + $(hearth_stat shim.not_allowed)))" 1 "decisions that the race made stale or not allowed"
show_file /tmp/race.txt
result_json "$(cat /tmp/race.json)"
result_hearth
