# SPDX-License-Identifier: GPL-2.0-only
# about: another scheduler is attached (a second Hearth, and each peer given by --with): refused, the other one untouched
# topology: 2
# clock: real
# timeout: 240
# needs: scx_hearth
# suite: test

# refused NAME: a start of ours ends with 5, names the one that is attached, and leaves it alone.
refused() {
	ops=$(scx_ops)
	code=0
	timeout 60 scx_hearth >/tmp/second.out 2>/tmp/second.log 3>&- || code=$?
	check_that "c57-$1-refused" "the exit code is 5 ($code)" [ "$code" = 5 ]
	check_that "c57-$1-named" "the message names $ops" grep -q "$ops" /tmp/second.log
	check_that "c57-$1-stays" "$ops is still attached and its process runs" \
		eval 'state_is enabled && [ "$(scx_ops)" = "$ops" ] && ! is_gone "$SCHED_PID"'
}

if start_hearth; then
	refused hearth
	check_clean_end first
fi
for peer in $LAB_PEERS; do
	start_peer "$peer" || continue
	refused "$peer"
	stop_peer
done
