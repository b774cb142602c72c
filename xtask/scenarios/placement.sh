# SPDX-License-Identifier: GPL-2.0-only
# about: a CPU held by a real-time task, waiters behind long slices, shares by weight
# topology: 2x2
# clock: virtual
# timeout: 500
# needs: scx_hearth hearth-bench taskset nice
# suite: full

# --- A SCHED_FIFO loop on CPU 3: nothing new goes there, what waits there moves ---------------------------------------
# The default kernel's own loops and workers leave that CPU within a tick or two; 20 ms says "moved", not "rescued".
# The load is waited for without polling: the processes of a loop take CPUs and time themselves.
start_hearth || exit 0
wakeup_start 4 1
wait "$WAKEUP_PID"
wakeup_start 4 6
sleep 0.5
hogs 1 taskset -c 3 chrt -f 10
hog=${HOG_PIDS# }
sleep 0.2
before=$(cpu_ns "$hog")
sleep 4
held_ms=$((($(cpu_ns "$hog") - before) / 1000000))
stop_hogs
wait "$WAKEUP_PID"
check_at_most rt-hog-wait "$(wakeup_us max)" 20000 "us, the longest wakeup while a real-time task held CPU 3"
check_at_least rt-hog-holds "$held_ms" 500 "ms of CPU time that the real-time loop got (virtual CPUs share one stream of instructions)"
check_clean_end rt-hog
check_at_most rt-hog-no-rescue "$(hearth_stat shim.rescued)" 0 "tasks that the timer had to rescue after 1.7 s"
result case=rt-hog p50_us="$(wakeup_us p50)" p99_us="$(wakeup_us p99)" p999_us="$(wakeup_us p99_9)" max_us="$(wakeup_us max)"
result_hearth

# --- Long slices: CPUs 0 to 2 are held 100 ms at a time, CPU 3 is busy for a short turn now and then --------------------
# Who wakes during such a turn waits behind a long slice; when CPU 3 is free again it is recalled. The bound is the rest of
# the turn (virtual CPUs share one stream of instructions: about 1 ms) and 2 ms.
start_hearth --slice-us 100000 || exit 0
hogs 1 taskset -c 0
hogs 1 taskset -c 1
hogs 1 taskset -c 2
taskset -c 3 hearth-bench schbench -m 1 -t 1 -r 1000 -n 1 -F 16 -s 5000 -i 0 >/tmp/turns.txt 2>&1 3>&- &
HOG_PIDS="$HOG_PIDS $!"
wakeup_start 1 1
wait "$WAKEUP_PID"
wakeup_start 1 4
wait "$WAKEUP_PID"
stop_hogs
check_clean_end overrun
check_at_most overrun-wait "$(wakeup_us max)" 3000 "us, the longest wait behind slices of 100 ms while another CPU frees again and again"
check_at_least overrun-recalls "$(hearth_stat recalled)" 5 "waiting tasks recalled to another CPU"
result case=overrun p50_us="$(wakeup_us p50)" p99_us="$(wakeup_us p99)" p999_us="$(wakeup_us p99_9)" max_us="$(wakeup_us max)"
result_hearth

# --- Weights: nice 0 and nice 5 are 1024 : 335, on one CPU ------------------------------------------------------------
start_hearth --policy vtime || exit 0
hogs 1 taskset -c 2
heavy=${HOG_PIDS# }
hogs 1 nice -n 5 taskset -c 2
light=${HOG_PIDS##* }
sleep 0.5
heavy_before=$(cpu_ns "$heavy") light_before=$(cpu_ns "$light")
sleep 4
heavy_us=$((($(cpu_ns "$heavy") - heavy_before) / 1000)) light_us=$((($(cpu_ns "$light") - light_before) / 1000))
stop_hogs
percent=$((heavy_us * 100 / (light_us + 1)))
check_that weights "weights 3 : 1 get $heavy_us : $light_us us, $percent : 100, within 5 %" \
	eval '[ "$percent" -ge 285 ] && [ "$percent" -le 315 ]'
check_clean_end weights
result_hearth
