# SPDX-License-Identifier: GPL-2.0-only
# about: the dispatcher stops for 10 s under load: the kernel side takes over, then hands back
# topology: 2x2
# clock: virtual
# timeout: 600
# needs: scx_hearth hearth-bench
# suite: test
#
# The bound on any wait: the takeover limit (5 ms), two periods of the timer (1 ms each), and one takeover slice (2 ms) for
# each of the tasks that share a CPU. STOPPED: seconds (10).

stopped=${STOPPED:-10}
hogs_n=$((LAB_CPUS * 2))
threads=4
start_hearth || exit 0
hogs "$hogs_n"
wakeup_start "$threads" 2
wakeup_wait 120
result phase=before p50_us="$(wakeup_us p50)" p99_us="$(wakeup_us p99)" max_us="$(wakeup_us max)"

# --- Under load: a loop or two a CPU more than it can serve. The load of wakeups lies within the stop. ---
kill -STOP "$SCHED_PID"
for pid in $HOG_PIDS; do eval "before_$pid=$(cpu_ns "$pid")"; done
uptime_cs
from_cs=$UPTIME_CS
wakeup_start "$threads" "$((stopped - 1))"
wakeup_wait 120
while uptime_cs && [ $((UPTIME_CS - from_cs)) -lt $((stopped * 100)) ]; do sleep 0.1; done
least_ms=1000000
for pid in $HOG_PIDS; do
	eval "ms=\$((($(cpu_ns "$pid") - before_$pid) / 1000000))"
	[ "$ms" -ge "$least_ms" ] || least_ms=$ms
done
check_that attached "the kernel keeps us attached while the dispatcher is stopped" state_is enabled
kill -CONT "$SCHED_PID"
result phase=stopped p50_us="$(wakeup_us p50)" p99_us="$(wakeup_us p99)" max_us="$(wakeup_us max)"

# limit_us LOOPS: the bound; FALLBACK is one line for all CPUs: the loops, the workers, their messenger.
limit_us() { echo $((5000 + 2 * 1000 + ($1 + threads + 1 + LAB_CPUS - 1) / LAB_CPUS * 2000)); }
check_at_most longest-wait "$(wakeup_us max)" "$(limit_us "$hogs_n")" "us, the longest of $(wakeup_us samples) wakeups during the stop"
# An equal share would be stopped x CPUs / loops; the load takes some of it.
check_at_least every-task-runs "$least_ms" $((stopped * 1000 * LAB_CPUS / hogs_n / 4)) \
	"ms of CPU time for the loop that got least in $stopped s"

wakeup_start "$threads" 2
wakeup_wait 120
result phase=after p50_us="$(wakeup_us p50)" p99_us="$(wakeup_us p99)" max_us="$(wakeup_us max)"

# --- Without the loops, so that the waits of the stop and the return themselves show ---
stop_hogs
wakeup_start "$threads" 3
sleep 0.7
kill -STOP "$SCHED_PID"
sleep 1
kill -CONT "$SCHED_PID"
wakeup_wait 120
check_at_most longest-wait-across "$(wakeup_us max)" "$(limit_us 0)" "us, the longest of $(wakeup_us samples) wakeups across a stop and the return"
# Who is asleep when the stop comes meets the takeover at the end of that sleep, which is part of the request.
check_at_most longest-request-across "$(request_us max)" $((2000 + $(limit_us 0) + 2000)) "us, the longest request (2 ms of sleep, less than 2 ms of work) across both"
check_at_least takeover-seen "$(request_us max)" 6000 "us, the longest request: somebody did wait for the takeover"
result phase=across request_max_us="$(request_us max)" p50_us="$(wakeup_us p50)" p99_us="$(wakeup_us p99)" max_us="$(wakeup_us max)"
check_clean_end end
check_at_least counted "$(($(hearth_stat taken_over) + $(hearth_stat shim.fallback_takeover)))" 100 "tasks served without the dispatcher"
check_at_least leads-again "$(hearth_stat dispatcher.resumes)" 2 "takeovers that the dispatcher ended"
check_at_most leads-again-soon "$(hearth_stat dispatcher.resume_max_us)" 50000 "us to lead again, the longest"
result_hearth
