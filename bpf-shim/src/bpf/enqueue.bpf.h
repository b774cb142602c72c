/* SPDX-License-Identifier: GPL-2.0-only */
/* Where a runnable task goes first: HOLD and a record, FALLBACK, or the path inside the kernel. */
#ifndef HEARTH_ENQUEUE_BPF_H
#define HEARTH_ENQUEUE_BPF_H

#include "records.bpf.h"

/* States of the timer: off; running; running, and somebody wanted it since the last tick, so that it must not stop yet. */
enum { TIMER_OFF, TIMER_ON, TIMER_WANTED };

static __always_inline void arm_timer(struct hearth_ctl *ctl)
{
	u32 zero = 0;
	struct hearth_timer *t;

	if (ctl->timer_armed == TIMER_WANTED || __sync_lock_test_and_set(&ctl->timer_armed, TIMER_WANTED) != TIMER_OFF)
		return;
	t = bpf_map_lookup_elem(&timer_map, &zero);
	/* Refused (for one, before hearth_init): the next who needs it tries again. */
	if (!t || bpf_timer_start(&t->timer, timer_period_ns, 0))
		__sync_lock_test_and_set(&ctl->timer_armed, TIMER_OFF);
}

/*
 * Onto FALLBACK, which every CPU serves, with a short slice; wakes an idle CPU that may run it, the task's last one if
 * it can. The insertion is finished only after enqueue returns: a CPU that looks at the queues in between and then idles
 * is woken by the timer, and so is another if a real-time task takes the CPU that was woken here.
 */
static __always_inline void to_fallback(struct task_struct *p, u64 enq_flags, u32 reason)
{
	struct hearth_ctl *ctl = ctl_of();
	s32 cpu = scx_bpf_task_cpu(p);

	count(reason);
	if (ctl)
		ctl->fallback_used = 1;
	scx_bpf_dsq_insert(p, HEARTH_DSQ_FALLBACK, takeover_slice_ns, enq_flags);
	if (!scx_bpf_test_and_clear_cpu_idle(cpu)) {
		s32 idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

		if (idle >= 0)
			cpu = idle;
	}
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	if (ctl)
		arm_timer(ctl);
}

s32 BPF_STRUCT_OPS(hearth_select_cpu, struct task_struct *p, s32 prev_cpu, u64 wake_flags)
{
	/* No placement here: the dispatcher places. Staying put is the cheapest answer. */
	return prev_cpu;
}

void BPF_STRUCT_OPS(hearth_enqueue, struct task_struct *p, u64 enq_flags)
{
	struct hearth_task *t = task_of(p);
	struct hearth_ctl *ctl = ctl_of();
	struct hearth_record *r;
	u8 why;

	count(HEARTH_S_ENQUEUE);
	if (!t || !ctl) {
		to_fallback(p, enq_flags, HEARTH_S_FB_UNTRACKED);
		return;
	}
	/* A wakeup was stamped a moment ago in runnable(). */
	t->queued_at = t->pending ? t->woken_at : bpf_ktime_get_ns();
	t->pending = 0;

	if (p->tgid == daemon_pid) {
		if (p->pid == daemon_pid) {
			count(HEARTH_S_IN_DAEMON);
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, takeover_slice_ns, enq_flags);
			return;
		}
		to_fallback(p, enq_flags, HEARTH_S_IN_DAEMON);
		return;
	}
	if ((p->flags & PF_KTHREAD) && !forward_kthreads) {
		if (p->nr_cpus_allowed == 1) {
			count(HEARTH_S_IN_PINNED);
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, takeover_slice_ns, enq_flags);
			return;
		}
		to_fallback(p, enq_flags, HEARTH_S_IN_KTHREAD);
		return;
	}
	if (ctl->takeover) {
		to_fallback(p, enq_flags, HEARTH_S_FB_TAKEOVER);
		return;
	}
	if (t->idx == HEARTH_UNTRACKED) {
		to_fallback(p, enq_flags, HEARTH_S_FB_UNTRACKED);
		return;
	}

	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r) {
		to_fallback(p, enq_flags, HEARTH_S_FB_RING);
		return;
	}
	if (t->fresh)
		why = HEARTH_WHY_NEW;
	else if (enq_flags & SCX_ENQ_WAKEUP)
		why = HEARTH_WHY_WOKEN;
	else if (t->yielded)
		why = HEARTH_WHY_YIELDED;
	else if (!p->scx.slice)
		why = HEARTH_WHY_SLICE;
	else
		why = HEARTH_WHY_PREEMPTED;
	count(HEARTH_S_FWD_NEW + why);
	t->seq++;
	t->held = 1;
	fill_runnable(r, p, t, why);
	/* Only here, under the task's lock: a record from elsewhere must not swallow a change that comes in meanwhile. */
	t->mask_dirty = 0;
	t->ran_ns = 0;
	t->slept_ns = 0;
	t->waited_ns = 0;
	t->started = 0;
	t->fresh = 0;
	t->yielded = 0;
	scx_bpf_dsq_insert(p, HEARTH_DSQ_HOLD + llc_of(scx_bpf_task_cpu(p)), takeover_slice_ns, enq_flags);
	arm_timer(ctl);
	submit(r);
}

#endif
