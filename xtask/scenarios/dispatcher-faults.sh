# SPDX-License-Identifier: GPL-2.0-only
# about: a ring of one page, a dispatcher that is late, a policy that panics
# topology: 2x2
# clock: real
# timeout: 400
# needs: scx_hearth hearth-bench hackbench
# suite: full
#
# C17: with a full ring, elsewhere, events were lost without a trace.

# progress NAME: every loop gets CPU time.
progress() {
	hogs 2
	for pid in $HOG_PIDS; do eval "before_$pid=$(cpu_ns "$pid")"; done
	sleep 2
	least_us=1000000000
	for pid in $HOG_PIDS; do
		eval "us=\$((($(cpu_ns "$pid") - before_$pid) / 1000))"
		[ "$us" -ge "$least_us" ] || least_us=$us
	done
	stop_hogs
	check_at_least "$1" "$least_us" 1000 "us of CPU time in 2 s for the loop that got least"
}

if start_hearth --ring-kib 4; then
	check_that small-ring-load "hackbench ends" timeout 120 hackbench -g 2 -l 50
	progress small-ring-progress
	check_clean_end c17-small-ring
	check_at_least c17-small-ring-full "$(hearth_stat shim.fallback_ring_full)" 1 "tasks to FALLBACK since the ring was full"
	result_hearth
fi

if start_hearth --fault-late-us 50000; then
	check_that late-load "hackbench ends" timeout 120 hackbench -g 1 -l 50
	progress late-progress
	check_clean_end late
	check_at_least late-counted "$(($(hearth_stat taken_over) + $(hearth_stat shim.fallback_takeover)))" 1 "tasks served without the dispatcher"
	result_hearth
fi

if start_hearth --policy panic-after; then
	# It panics at its 1000th placement.
	hackbench -g 1 -l 5000 >/dev/null 2>&1 3>&- &
	load=$!
	check_that panic-ends "the daemon ends by itself" wait_for 60 is_gone "$SCHED_PID"
	kill -KILL "$SCHED_PID" 2>/dev/null
	SCHED_RC=0
	wait "$SCHED_PID" || SCHED_RC=$?
	SCHED_PID=''
	check_that panic-code "the exit code is 6 ($SCHED_RC)" [ "$SCHED_RC" = 6 ]
	check_that panic-reason "the reason is on standard error" grep -q 'policy panic-after failed: .*this is the panic that was asked for' /tmp/sched.log
	check_that panic-detached "sched_ext is disabled" wait_state disabled 2
	kill -KILL "$load"
fi
