/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The shim: forwards every runnable task to the dispatcher, carries out what it decides, and serves the queues by
 * itself when nobody answers. No policy lives here.
 *
 * A task waits in the HOLD queue of its LLC domain until a commit moves it to a CPU's own queue. FALLBACK takes what
 * cannot be forwarded. Whatever happens to the dispatcher, dispatch() finds every waiting task: that is the invariant
 * each rule in its parts serves. They are, in reading order: state, records, enqueue, dispatch, running, tasks, held,
 * commit, timer, dump. Here: start, end, and the table of callbacks.
 */
#include <scx/common.bpf.h>
#include "shim.h"
#include "commit.bpf.h"
#include "dispatch.bpf.h"
#include "dump.bpf.h"
#include "enqueue.bpf.h"
#include "held.bpf.h"
#include "records.bpf.h"
#include "running.bpf.h"
#include "state.bpf.h"
#include "tasks.bpf.h"
#include "timer.bpf.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

/* A CPU's row begins anew, but for what sched_switch keeps true from one attachment to the next. */
static __always_inline void forget(struct hearth_cpu *c)
{
	c->curr_idx = HEARTH_NO_TASK;
	c->curr_gen = 0;
	c->since_ns = 0;
	c->slice_ns = 0;
	c->busy_ns = 0;
	c->switches = 0;
	c->extended = 0;
	c->depth = 0;
	c->looking = 0;
}

s32 BPF_STRUCT_OPS_SLEEPABLE(hearth_init)
{
	u32 zero = 0, i;
	struct hearth_timer *t = bpf_map_lookup_elem(&timer_map, &zero);
	struct hearth_ctl *ctl = ctl_of();
	s32 err;

	if (!t || !ctl)
		return -ENOENT;
	bpf_for(i, 0, nr_llcs) {
		err = scx_bpf_create_dsq(HEARTH_DSQ_HOLD + i, -1);
		if (err)
			return err;
	}
	bpf_for(i, 0, nr_cpu_ids) {
		struct hearth_cpu *c = cpu_of(i);

		if (c)
			forget(c);
		err = scx_bpf_create_dsq(HEARTH_DSQ_CPU + i, -1);
		if (err)
			return err;
	}
	err = scx_bpf_create_dsq(HEARTH_DSQ_FALLBACK, -1);
	if (err)
		return err;
	/* After an earlier attachment the timer is there already. */
	bpf_timer_init(&t->timer, &timer_map, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, hearth_tick);
	ctl->takeover = 0;
	ctl->lost = 0;
	ctl->fallback_used = 0;
	ctl->enabled = 1;
	return 0;
}

void BPF_STRUCT_OPS(hearth_exit, struct scx_exit_info *ei)
{
	struct hearth_ctl *ctl = ctl_of();

	/* The timer, if it runs, stops at its next tick. */
	if (ctl)
		ctl->enabled = 0;
	UEI_RECORD(uei, ei);
	tell(HEARTH_DETACHED, HEARTH_NO_TASK, 0, 0, -1);
}

SCX_OPS_DEFINE(hearth_ops,
	       .select_cpu = (void *)hearth_select_cpu,
	       .enqueue = (void *)hearth_enqueue,
	       .dispatch = (void *)hearth_dispatch,
	       .runnable = (void *)hearth_runnable,
	       .running = (void *)hearth_running,
	       .stopping = (void *)hearth_stopping,
	       .quiescent = (void *)hearth_quiescent,
	       .yield = (void *)hearth_yield,
	       .set_cpumask = (void *)hearth_set_cpumask,
	       .init_task = (void *)hearth_init_task,
	       .exit_task = (void *)hearth_exit_task,
	       .disable = (void *)hearth_disable,
	       .init = (void *)hearth_init,
	       .exit = (void *)hearth_exit,
	       .dump = (void *)hearth_dump,
	       .dump_cpu = (void *)hearth_dump_cpu,
	       .dump_task = (void *)hearth_dump_task,
	       .flags = SCX_OPS_ENQ_LAST | SCX_OPS_KEEP_BUILTIN_IDLE,
	       .name = "hearth");
