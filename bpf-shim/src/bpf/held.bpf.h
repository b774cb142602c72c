/* SPDX-License-Identifier: GPL-2.0-only */
/* CPUs that a higher scheduling class holds: noticed, and left by what waits there. */
#ifndef HEARTH_HELD_BPF_H
#define HEARTH_HELD_BPF_H

#include "enqueue.bpf.h"

/* Does a higher class hold the CPU? */
static __always_inline void set_held(struct hearth_ctl *ctl, struct hearth_cpu *c, u32 held)
{
	__sync_fetch_and_add(&ctl->held_cpus, held ? 1 : -1);
	status_begin(c);
	c->held = held;
	c->held_since_ns = held ? bpf_ktime_get_ns() : 0;
	status_end(c);
}

/*
 * Does a real-time or deadline task hold the CPU? sched_ext alone does not tell. The dispatcher is one too, but its own
 * CPU counts as free: what matters there is whether it keeps somebody from running.
 */
SEC("tp_btf/sched_switch")
int BPF_PROG(hearth_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct hearth_cpu *c = cpu_of(bpf_get_smp_processor_id());
	struct hearth_ctl *ctl = ctl_of();
	bool dispatcher = next->pid == daemon_pid, cut_off;
	u32 held = next->prio < MAX_RT_PRIO && !dispatcher;

	if (!c || !ctl)
		return 0;
	cut_off = prev->pid && prev->prio >= MAX_RT_PRIO && (preempt || !prev->__state);
	if (next->prio >= MAX_RT_PRIO) {
		if (c->parked)
			c->parked = 0;
	} else if (dispatcher && cut_off) {
		c->parked = 1;
	}
	if (c->held == held)
		return 0;
	if (held && cut_off && ctl->enabled)
		arm_timer(ctl);
	set_held(ctl, c, held);
	return 0;
}

/* A task leaves us for another class. If it is running, it holds its CPU from now on, and no switch tells. */
void BPF_STRUCT_OPS(hearth_disable, struct task_struct *p)
{
	struct hearth_cpu *c = cpu_of(scx_bpf_task_cpu(p));
	struct hearth_ctl *ctl = ctl_of();

	/* Every class but the idle one goes before ours. Its new priority is not known here yet. */
	if (!c || !ctl || !ctl->enabled || !p->on_cpu || c->held)
		return;
	set_held(ctl, c, 1);
	arm_timer(ctl);
}

/*
 * What a real-time task took the CPU from, and what was started there in that very moment, sits in the kernel's local
 * queue of that CPU: hand it back to enqueue, so that it is decided anew. Once per hold: what is bound to the CPU comes
 * back to the same queue, and the kernel ends a scheduler that hands a task back 256 times in a row. Nothing to call
 * before Linux 7.1.
 */
static __always_inline bool leave_held_cpus(u64 now)
{
	bool waiting = false;
	u32 cpu;

	bpf_for(cpu, 0, nr_cpu_ids) {
		struct hearth_cpu *c = cpu_of(cpu);

		if (!c || !c->held || c->requeued_since_ns == c->held_since_ns ||
		    scx_bpf_dsq_nr_queued(SCX_DSQ_LOCAL_ON | cpu) <= 0)
			continue;
		waiting = true;
		if (c->held_since_ns + timer_period_ns <= now) {
			c->requeued_since_ns = c->held_since_ns;
			scx_bpf_dsq_reenq(SCX_DSQ_LOCAL_ON | cpu, 0);
			count(HEARTH_S_REQUEUED);
		}
	}
	return waiting;
}

#endif
