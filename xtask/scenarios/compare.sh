# SPDX-License-Identifier: GPL-2.0-only
# about: wakeup latencies of the kernel's default, ours and each peer given by --with, in one boot
# topology: 2x2
# clock: virtual
# timeout: 1800
# needs: scx_hearth hearth-bench
#
# Set by --env: RUNS (5), THREADS ("1 4 16"), SECONDS_EACH (3), HEARTH_ARGS ("--policy fifo").

# measure SCHEDULER: for each load one warm-up and the runs.
measure() {
	for threads in ${THREADS:-1 4 16}; do
		for run in $(seq 0 "${RUNS:-5}"); do
			schbench_run "$1" "$threads" "$run" "${SECONDS_EACH:-3}"
		done
	done
}

measure default
# shellcheck disable=SC2086 # arguments
if start_hearth ${HEARTH_ARGS:---policy fifo}; then
	measure hearth
	stop_hearth
	result_hearth
fi
for peer in $LAB_PEERS; do
	if start_peer "$peer"; then
		measure "$peer"
		stop_peer
	fi
done
