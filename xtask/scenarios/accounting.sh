# SPDX-License-Identifier: GPL-2.0-only
# about: every task is forwarded and counted: the counters add up, and agree with the kernel's own
# topology: 1 2 2x4 1x2x2 2x4x2
# clock: real
# timeout: 600
# needs: scx_hearth hackbench stress-ng
# suite: full
#
# SECONDS_EACH: length of each stress-ng load (2). LOOPS: hackbench loops (1000).

TRACING=/sys/kernel/tracing

# count_start NAME EVENT FILTER: counts a kernel event. An instance of its own keeps the counts apart; nobody reads its
# buffers, they only count.
count_start() {
	mkdir "$TRACING/instances/$1"
	echo 16 >"$TRACING/instances/$1/buffer_size_kb"
	echo "$3" >"$TRACING/instances/$1/events/$2/filter" || check "trace-$1" fail "no event $2 with $3"
	echo 1 >"$TRACING/instances/$1/events/$2/enable"
}

count_stop() { echo 0 >"$TRACING/instances/$1/tracing_on"; }

# counted NAME: prints how often the event happened: what is in the buffers, was overwritten, or found no room.
counted() {
	cat "$TRACING/instances/$1"/per_cpu/cpu*/stats |
		awk '/^(entries|overrun|commit overrun|dropped events):/ { sum += $NF } END { print sum + 0 }'
}

# near NAME A B PERCENT EDGE TEXT: whether two counts agree within a percentage of the first, and so many for the edges of the
# window.
near() {
	_near_name=$1 _a=$2 _b=$3 _percent=$4 _edge=$5
	shift 5
	_difference=$((_a - _b))
	check_that "$_near_name" "$_a and $_b agree within $_percent % + $_edge: $*" \
		[ "${_difference#-}" -le $((_a * _percent / 100 + _edge)) ]
}

# --- hackbench: counters against tracepoints --------------------------------------------------------------------------
# scx_do_enqueue_task is where sched_ext sends a task to ops.enqueue, or past it. A call with a sticky CPU (fourth argument)
# only finishes a move to another CPU that was dispatched before.
# A task that runs while its affinity, weight or group changes leaves its queue and comes back the same way (ENQUEUE_RESTORE, 2).
echo 'p:lab/enqueue scx_do_enqueue_task flags=%dx:u64 sticky=%cx:s32' >$TRACING/kprobe_events || check trace fail "no kprobe on scx_do_enqueue_task"
count_start enqueue lab/enqueue 'sticky < 0'
count_start restore lab/enqueue 'sticky >= 0 && flags & 2'
# prio >= 100: not the real-time classes.
count_start wakeup sched/sched_wakeup 'prio >= 100'
count_start new sched/sched_wakeup_new 'prio >= 100'
for name in restore wakeup new; do count_stop "$name"; done

start_hearth || exit 0
for name in restore wakeup new; do echo 1 >"$TRACING/instances/$name/tracing_on"; done
check_that hackbench "hackbench ends" timeout 240 hackbench -g 1 -l "${LOOPS:-1000}"
for name in restore wakeup new; do count_stop "$name"; done
cat $SCX/root/events >/tmp/events
check_clean_end hackbench
count_stop enqueue

# event NAME: prints one of the kernel's own counters as it was before the end.
event() { awk -v n="SCX_EV_$1" '$1 == n { print $2 }' /tmp/events; }
exiting=$(event ENQ_SKIP_EXITING)
pinned=$(event ENQ_SKIP_MIGRATION_DISABLED)
bypass=$(event BYPASS_DISPATCH)
enqueues=$(hearth_stat shim.enqueues)
bypassed=$(hearth_stat shim.bypassed)
runnable=$(hearth_stat shim.runnable)
skipped=$((exiting + pinned))
restored=$(counted restore)
calls=$(counted enqueue)
# sched_wakeup is also written for a task that had not left its queue yet, which enqueues nothing; on the other hand a change of
# affinity or priority calls ops.runnable without a wakeup, and the window of the traces is a little shorter at both ends.
wakeups=$(counted wakeup)
new=$(counted new)
near agrees-with-kprobe "$calls" $((enqueues + skipped + bypass)) 1 50 "calls of scx_do_enqueue_task; enqueues + $skipped passed by"
near agrees-with-wakeups "$runnable" $((wakeups + new)) 3 100 "calls of ops.runnable; sched_wakeup and sched_wakeup_new"
# What the kernel passes by is bypassed unless it was only preempted; a task changed while it runs may be.
check_at_least agrees-with-events "$bypassed" $((skipped * 9 / 10 - 10)) "bypassed by ours; by the kernel's events $exiting exiting, $pinned pinned"
check_at_most agrees-with-events-too "$bypassed" $((skipped + restored + 10)) "bypassed by ours; the same and $restored changed while running"
check_at_most bypassed-share $((bypassed * 1000)) $((enqueues * 10)) "bypassed x 1000, 1 % of $enqueues enqueues x 1000"
result load=hackbench enqueues="$enqueues" runnable="$runnable" bypassed="$bypassed" exiting="$exiting" pinned="$pinned" restored="$restored" bypass="$bypass" \
	calls="$calls" wakeups="$wakeups" new="$new"
result_hearth

# --- stress-ng: the counters add up -----------------------------------------------------------------------------------
start_hearth || exit 0
for load in "cpu 4 --cpu-method int64" "fork 2" "switch 4" "affinity 4" "race-sched 4" "pthread 2" "yield 4"; do
	name=${load%% *}
	if ! stress-ng --help | grep -q -- "--$name N"; then
		skip "stress-$name" "stress-ng here does not have it"
		continue
	fi
	# shellcheck disable=SC2086 # options
	check_that "stress-$name" "stress-ng --$load ends well" \
		timeout 120 stress-ng --$load --timeout "${SECONDS_EACH:-2}" --quiet
done
check_clean_end stress
result_hearth
