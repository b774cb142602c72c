# SPDX-License-Identifier: GPL-2.0-only
# The guest library of scenarios, for busybox sh. README.md beside this file explains it; every function says what it needs.
# Results go to file descriptor 3, the second serial port; everything else a script prints goes to the console.

SCX=/sys/kernel/sched_ext
SCHED_PID='' SCHED_RC='' HEARTH_JSON='' HOG_PIDS=''

# --- reporting -------------------------------------------------------------------------------------------------------

# json_value TEXT: the text as a JSON value: a number if it is one, else a string.
json_value() {
	case $1 in
	'' | - | .* | *. | *[!0-9.-]* | *.*.* | ?*-* | 0[0-9]* | -0[0-9]* | -.*) printf '"%s"' "$(printf '%s' "$1" | tr '\n\t\r' '   ' | sed 's/[\\"]/\\&/g')" ;;
	*) printf '%s' "$1" ;;
	esac
}

# result KEY=VALUE...: one measurement; keys keep their order.
result() {
	_json=
	for _pair in "$@"; do
		_json="$_json${_json:+,}\"${_pair%%=*}\":$(json_value "${_pair#*=}")"
	done
	printf 'RESULT {%s}\n' "$_json" >&3
}

# result_json OBJECT: one measurement that is a JSON object on one line already.
result_json() { printf 'RESULT %s\n' "$1" >&3; }

# check NAME ok|fail TEXT: one verdict.
check() {
	_name=$1 _verdict=$2
	shift 2
	printf 'CHECK %s %s %s\n' "$_name" "$_verdict" "$*" >&3
	echo "check $_name: $_verdict ($*)"
}

# check_that NAME TEXT COMMAND...: the verdict is whether the command succeeds.
check_that() {
	_that_name=$1 _that_text=$2
	shift 2
	if "$@"; then check "$_that_name" ok "$_that_text"; else check "$_that_name" fail "not: $_that_text"; fi
}

# check_at_most NAME VALUE LIMIT TEXT: the verdict is whether a whole number is there and within a limit.
check_at_most() {
	_most_name=$1 _value=$2 _limit=$3
	shift 3
	if [ "$_value" -le "$_limit" ] 2>/dev/null; then check "$_most_name" ok "$_value <= $_limit: $*"; else check "$_most_name" fail "'$_value', limit $_limit: $*"; fi
}

# check_at_least NAME VALUE LIMIT TEXT: the same for a lower limit.
check_at_least() {
	_least_name=$1 _value=$2 _limit=$3
	shift 3
	if [ "$_value" -ge "$_limit" ] 2>/dev/null; then check "$_least_name" ok "$_value >= $_limit: $*"; else check "$_least_name" fail "'$_value', at least $_limit: $*"; fi
}

# skip NAME REASON: this part cannot be checked here.
skip() {
	_name=$1
	shift
	printf 'SKIP %s %s\n' "$_name" "$*" >&3
}

# note TEXT: a line for the reader.
note() { printf 'NOTE %s\n' "$*" >&3; }

# allow_log TEXT: lines of the kernel log with this text are provoked on purpose and do not fail the boot.
allow_log() { printf 'ALLOW %s\n' "$*" >&3; }

# show_file FILE [LINES]: the end of a file on the console.
show_file() {
	[ -s "$1" ] || return 0
	echo "--- $1"
	tail -n "${2:-15}" "$1"
}

# --- time and waiting ------------------------------------------------------------------------------------------------

# uptime_cs: sets UPTIME_CS to hundredths of a second since boot, without starting a process.
uptime_cs() {
	read -r _up _ </proc/uptime
	UPTIME_CS=$((${_up%.*} * 100 + 1${_up#*.} - 100))
}

# now_us: prints the guest's wall clock in microseconds. (By full path: the shell prefers busybox's own date.)
now_us() { echo $(($(/usr/bin/date +%s%N) / 1000)); }

# wait_for SECONDS COMMAND...: repeats the command until it succeeds; fails when the time is over.
wait_for() {
	uptime_cs
	_deadline=$((UPTIME_CS + $1 * 100))
	shift
	until "$@"; do
		uptime_cs
		[ "$UPTIME_CS" -lt "$_deadline" ] || return 1
		sleep 0.02
	done
}

# is_gone PID: whether a process has ended (a zombie has).
is_gone() {
	case $(cat "/proc/$1/stat" 2>/dev/null) in
	'' | *') Z '*) return 0 ;;
	esac
	return 1
}

# --- sched_ext -------------------------------------------------------------------------------------------------------

# scx_state: prints enabled, disabled, enabling, ...; `absent` where the kernel has no sched_ext.
scx_state() { cat $SCX/state 2>/dev/null || echo absent; }

# scx_ops: prints the name of the attached scheduler; nothing when there is none.
scx_ops() { cat $SCX/root/ops 2>/dev/null || true; }

# scx_event NAME: prints one counter of the kernel's own sched_ext events, for example SCX_EV_ENQ_SKIP_EXITING.
scx_event() { awk -v n="$1" '$1 == n { print $2 }' $SCX/root/events 2>/dev/null; }

state_is() { [ "$(scx_state)" = "$1" ]; }

# wait_state STATE SECONDS: waits until sched_ext is in this state.
wait_state() { wait_for "$2" state_is "$1"; }

_attached_or_gone() { { state_is enabled && [ -n "$(scx_ops)" ]; } || is_gone "$SCHED_PID"; }

# start_scheduler SECONDS PROGRAM [ARGS...]: starts it (a program that handles SIGINT itself: a shell's background jobs
# ignore it otherwise) in the background and waits until the kernel runs it. Sets SCHED_PID.
# Its output is in /tmp/sched.out and /tmp/sched.log. On failure a failed check `attach` is reported and nothing is left running.
start_scheduler() {
	_limit=$1 _program=$2
	shift
	"$@" >/tmp/sched.out 2>/tmp/sched.log 3>&- &
	SCHED_PID=$!
	if wait_for "$_limit" _attached_or_gone && ! is_gone "$SCHED_PID"; then
		return 0
	fi
	if is_gone "$SCHED_PID"; then
		SCHED_RC=0
		wait "$SCHED_PID" 2>/dev/null || SCHED_RC=$?
		check attach fail "$_program ended with status $SCHED_RC before it was attached (state $(scx_state))"
	else
		check attach fail "$_program is not attached after $_limit s (state $(scx_state))"
		kill -KILL "$SCHED_PID"
	fi
	SCHED_PID=''
	show_file /tmp/sched.log
	show_file /tmp/sched.out
	return 1
}

# stop_scheduler [SIGNAL]: ends it (SIGINT unless told otherwise) and waits for its end; sets SCHED_RC. A scheduler that
# does not end within 20 s is killed and reported as a failed check `stop`.
stop_scheduler() {
	[ -n "$SCHED_PID" ] || return 0
	kill "-${1:-INT}" "$SCHED_PID" 2>/dev/null
	if ! wait_for 20 is_gone "$SCHED_PID"; then
		check stop fail "the scheduler did not end within 20 s of SIG${1:-INT}"
		show_file /tmp/sched.log
		kill -KILL "$SCHED_PID" 2>/dev/null
	fi
	SCHED_RC=0
	wait "$SCHED_PID" 2>/dev/null || SCHED_RC=$?
	SCHED_PID=''
	wait_state disabled 10
}

# start_hearth [ARGS...]: attaches our daemon.
start_hearth() {
	start_scheduler 180 scx_hearth --json "$@" || return 1
	case $(scx_ops) in
	hearth*) return 0 ;;
	esac
	check attach fail "the attached scheduler calls itself '$(scx_ops)'"
	return 1
}

# stop_hearth [SIGNAL]: ends our daemon; HEARTH_JSON is the line of statistics that it printed at its end.
stop_hearth() {
	stop_scheduler "$@"
	_stopped=$?
	HEARTH_JSON=$(grep '^{' /tmp/sched.out | tail -n 1)
	return $_stopped
}

# hearth_stat KEY: prints one number of HEARTH_JSON, `KEY` of the outermost object or `OBJECT.KEY`; nothing if it is not there.
hearth_stat() {
	case $1 in
	*.*) _object=$(printf '%s\n' "$HEARTH_JSON" | sed -e "/\"${1%%.*}\":{/!d" -e "s/.*\"${1%%.*}\":{//" -e ':again' -e 's/:{[^{}]*}/:0/' -e 't again' -e 's/}.*//') ;;
	*) _object=$(printf '%s\n' "$HEARTH_JSON" | sed -e ':again' -e 's/:{[^{}]*}/:0/' -e 't again') ;;
	esac
	printf '%s\n' "$_object" | sed -n "s/.*\"${1#*.}\":\(-\{0,1\}[0-9.]*\).*/\1/p"
}

# hearth_sum PREFIX: prints the sum of the shim's counters whose names begin so.
hearth_sum() {
	printf '%s\n' "$HEARTH_JSON" | sed 's/.*"shim":{\([^{}]*\)}.*/\1/' | tr ',' '\n' |
		awk -F: -v prefix="\"$1" 'index($1, prefix) == 1 { sum += $2 } END { print sum + 0 }'
}

# check_clean_end PREFIX: stops our daemon; checks that it was attached until then, ended with 0 and left nothing behind, that
# every enqueue took exactly one way, and that the core saw nothing impossible.
check_clean_end() {
	check_that "$1-attached" "attached until the end" state_is enabled
	stop_hearth
	[ "$SCHED_RC" = 0 ] || show_file /tmp/sched.log 60
	check_that "$1-detached" "the daemon ended with 0 ($SCHED_RC), sched_ext is disabled" \
		eval '[ "$SCHED_RC" = 0 ] && state_is disabled'
	check_accounts "$1"
}

# check_accounts PREFIX: the two checks of check_clean_end about HEARTH_JSON. Counters are read while CPUs still count, so
# each CPU may be in the middle of one enqueue.
check_accounts() {
	_enqueues=$(hearth_stat shim.enqueues)
	_ways=$(($(hearth_sum forwarded_) + $(hearth_sum fallback_) + $(hearth_sum in_kernel_)))
	_open=$((${_enqueues:--1000000} - _ways))
	check_that "$1-accounts" "$_enqueues enqueues = $(hearth_sum forwarded_) forwarded + $(hearth_sum fallback_) fallback + $(hearth_sum in_kernel_) in the kernel (difference $_open)" \
		[ "${_open#-}" -le "$LAB_CPUS" ]
	check_that "$1-legal" "the core saw $(hearth_stat core.anomalies) impossible steps" [ "x$(hearth_stat core.anomalies)" = x0 ]
}

# result_hearth: HEARTH_JSON as a RESULT of kind `hearth`.
result_hearth() { [ -z "$HEARTH_JSON" ] || result_json "{\"kind\":\"hearth\",${HEARTH_JSON#\{}"; }

# start_peer NAME [ARGS...]: attaches another scheduler. Some need half a minute to pass the verifier.
start_peer() { start_scheduler 180 "$@"; }

# stop_peer: ends it.
stop_peer() { stop_scheduler INT; }

# --- load ------------------------------------------------------------------------------------------------------------

# hogs N [PREFIX...]: starts N endless loops, each behind a prefix such as `taskset -c 1` or `chrt -f 10`.
hogs() {
	_count=$1
	shift
	while [ "$_count" -gt 0 ]; do
		"$@" sh -c 'while :; do :; done' 3>&- &
		HOG_PIDS="$HOG_PIDS $!"
		_count=$((_count - 1))
	done
}

# cpu_ns PID: prints the CPU time that a process's first thread has used.
cpu_ns() { awk '{ print $1 }' "/proc/$1/schedstat" 2>/dev/null; }

# stop_hogs: ends them all.
stop_hogs() {
	# shellcheck disable=SC2086 # a list of process ids
	[ -z "$HOG_PIDS" ] || { kill -KILL $HOG_PIDS; wait $HOG_PIDS; } 2>/dev/null
	HOG_PIDS=''
}

# The load generator; anything that prints schbench's text will do.
SCHBENCH=${SCHBENCH:-hearth-bench schbench}

# wakeup_start THREADS SECONDS [ARGS...]: the same load in the background; wakeup_wait for its end, then wakeup_us.
wakeup_start() {
	_threads=$1 _seconds=$2
	shift 2
	hearth-bench schbench -m 1 -t "$_threads" -r "$_seconds" -n 1 -F 16 -s 2000 -i 0 --summary-json "$@" \
		>/tmp/wakeup.json 2>/tmp/wakeup.txt 3>&- &
	WAKEUP_PID=$!
}

# wakeup_wait SECONDS: fails if the load is not done by then, or failed.
wakeup_wait() {
	wait_for "$1" is_gone "$WAKEUP_PID" || { kill -KILL "$WAKEUP_PID"; return 1; }
	wait "$WAKEUP_PID"
}

# wakeup_us KEY: prints one figure of the wakeup latencies: p50, p99, p99_9, max (us), samples.
wakeup_us() { sed -n "s/.*\"wakeup_us\":{[^}]*\"$1\":\([0-9]*\).*/\1/p" /tmp/wakeup.json; }

# request_us KEY: the same of the request latencies: a sleep of 2 ms and a short work.
request_us() { sed -n "s/.*\"request_us\":{[^}]*\"$1\":\([0-9]*\).*/\1/p" /tmp/wakeup.json; }

# schbench_run SCHEDULER THREADS RUN [SECONDS]: one run of wakeup latencies as a RESULT of kind `schbench`. Run 0 is a
# warm-up that tables leave out.
schbench_run() {
	# shellcheck disable=SC2086 # a command with arguments
	$SCHBENCH -m 1 -t "$2" -r "${4:-3}" -n 1 -F 16 -s 2000 >/tmp/schbench.txt 2>&1 3>&-
	_rc=$?
	# Interim reports repeat the headings: the last block counts.
	# shellcheck disable=SC2046 # four words
	set -- "$1" "$2" "$3" $(awk '
		/^Wakeup Latencies/ { on = 1; a = b = c = ""; next }
		/^[A-Z]/ { on = 0 }
		on { for (i = 1; i < NF; i++) { if ($i == "50.0th:") a = $(i + 1); if ($i == "99.0th:") b = $(i + 1); if ($i == "99.9th:") c = $(i + 1) } }
		END { print a, b, c }' /tmp/schbench.txt)
	if [ $_rc -ne 0 ] || [ $# -ne 6 ]; then
		check schbench fail "$1, $2 threads, run $3: status $_rc, no percentiles"
		show_file /tmp/schbench.txt
		return 1
	fi
	result kind=schbench sched="$1" threads="$2" run="$3" p50_us="$4" p99_us="$5" p999_us="$6"
}
