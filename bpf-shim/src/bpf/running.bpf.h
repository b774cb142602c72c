/* SPDX-License-Identifier: GPL-2.0-only */
/* A task wakes, runs, stops, sleeps: its times, and the status words of its CPU. */
#ifndef HEARTH_RUNNING_BPF_H
#define HEARTH_RUNNING_BPF_H

#include "held.bpf.h"

void BPF_STRUCT_OPS(hearth_runnable, struct task_struct *p, u64 enq_flags)
{
	struct hearth_task *t = task_of(p), *waker;

	count(HEARTH_S_RUNNABLE);
	if (!t)
		return;
	t->pending = 1;
	t->woken_at = bpf_ktime_get_ns();
	if (t->slept_at) {
		t->slept_ns = t->woken_at - t->slept_at;
		t->slept_at = 0;
	}
	waker = task_of(bpf_get_current_task_btf());
	t->waker_row = waker ? waker->idx : HEARTH_UNTRACKED;
}

void BPF_STRUCT_OPS(hearth_running, struct task_struct *p)
{
	struct hearth_task *t = task_of(p);
	struct hearth_ctl *ctl = ctl_of();
	s32 cpu = scx_bpf_task_cpu(p);
	struct hearth_cpu *c = cpu_of(cpu);
	u64 now = bpf_ktime_get_ns();

	if (t) {
		if (t->pending) {
			t->pending = 0;
			count(HEARTH_S_BYPASSED);
		} else if (!t->started) {
			t->waited_ns = now - t->queued_at;
		}
		t->started = 1;
		t->held = 0;
		t->run_since = now;
		if (t->last_cpu == cpu)
			count(HEARTH_S_MIG_SAME);
		else if (t->last_cpu >= 0)
			count(llc_of(t->last_cpu) == llc_of(cpu) ? HEARTH_S_MIG_LLC : HEARTH_S_MIG_CROSS);
		t->last_cpu = cpu;
	}
	if (ctl && ctl->takeover && p->scx.slice > takeover_slice_ns)
		scx_bpf_task_set_slice(p, takeover_slice_ns);
	if (!c)
		return;
	c->looking = 0;
	if (c->held && ctl)
		set_held(ctl, c, 0);
	status_begin(c);
	c->curr_idx = t ? t->idx : HEARTH_UNTRACKED;
	c->curr_gen = t ? t->gen : 0;
	c->since_ns = now;
	c->slice_ns = p->scx.slice;
	c->switches++;
	status_end(c);
}

void BPF_STRUCT_OPS(hearth_stopping, struct task_struct *p, bool runnable)
{
	struct hearth_task *t = task_of(p);
	struct hearth_cpu *c = cpu_of(scx_bpf_task_cpu(p));
	u64 now = bpf_ktime_get_ns();

	if (t) {
		t->ran_ns += now - t->run_since;
		t->slept_at = runnable ? 0 : now;
	}
	if (!c)
		return;
	status_begin(c);
	c->busy_ns += now - c->since_ns;
	if (t)
		t->left_busy_ns = c->busy_ns;
	c->since_ns = now;
	c->curr_idx = HEARTH_NO_TASK;
	status_end(c);
}

void BPF_STRUCT_OPS(hearth_quiescent, struct task_struct *p, u64 deq_flags)
{
	struct hearth_task *t = task_of(p);

	if (!t)
		return;
	/* It sleeps, or leaves its queue for a change of affinity, priority or class: decisions under way are stale. */
	t->held = 0;
	t->seq++;
	if (t->pending) {
		t->pending = 0;
		count(HEARTH_S_DROPPED);
	}
}

bool BPF_STRUCT_OPS(hearth_yield, struct task_struct *from, struct task_struct *to)
{
	struct hearth_task *t = task_of(from);

	if (t)
		t->yielded = 1;
	scx_bpf_task_set_slice(from, 0);
	return false;
}

#endif
