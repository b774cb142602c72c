/* SPDX-License-Identifier: GPL-2.0-only */
/* Records for the dispatcher: how they are handed over, and what they say. */
#ifndef HEARTH_RECORDS_BPF_H
#define HEARTH_RECORDS_BPF_H

#include "state.bpf.h"

/*
 * Hand a record over. The dispatcher sets `asleep` and then looks at the ring once more before it blocks; here the
 * record is reserved first and `asleep` read after, by an atomic that is a full barrier. So one side always sees the
 * other, and only the first of a burst pays for the notification.
 */
static __always_inline void submit(void *rec)
{
	struct hearth_ctl *ctl = ctl_of();

	if (ctl && __sync_val_compare_and_swap(&ctl->asleep, 1, 0) == 1) {
		count(HEARTH_S_NOTIFIED);
		bpf_ringbuf_submit(rec, BPF_RB_FORCE_WAKEUP);
	} else {
		bpf_ringbuf_submit(rec, BPF_RB_NO_WAKEUP);
	}
}

/* A record that is not about a waiting task. */
static __always_inline void tell(u8 kind, u32 idx, u32 gen, u32 pid, s32 cpu)
{
	struct hearth_record *r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);

	if (!r) {
		struct hearth_ctl *ctl = ctl_of();

		if (ctl && kind != HEARTH_ASK)
			__sync_fetch_and_add(&ctl->lost, 1);
		return;
	}
	__builtin_memset(r, 0, sizeof(*r));
	r->ts_ns = bpf_ktime_get_ns();
	r->kind = kind;
	r->idx = idx;
	r->gen = gen;
	r->pid = pid;
	r->cpu = cpu;
	submit(r);
}

static __always_inline void fill_runnable(struct hearth_record *r, struct task_struct *p, struct hearth_task *t,
					  u8 why)
{
	r->ts_ns = t->queued_at;
	r->idx = t->idx;
	r->gen = t->gen;
	r->pid = p->pid;
	r->seq = t->seq;
	r->kind = HEARTH_RUNNABLE;
	r->why = why;
	r->flags = t->mask_dirty ? HEARTH_R_MASK : 0;
	r->cpu = t->last_cpu >= 0 ? t->last_cpu : scx_bpf_task_cpu(p);
	r->ran_ns = t->ran_ns;
	r->slept_ns = t->slept_ns;
	r->waited_ns = t->waited_ns;
	r->left_busy_ns = t->left_busy_ns;
	r->waker_row = t->waker_row;
	r->weight = p->scx.weight;
	r->cgroup = p->cgroups->dfl_cgrp->kn->id;
}

/* Tell (again) of a task that is held. */
static __always_inline bool tell_held(struct task_struct *p, struct hearth_task *t, bool notify)
{
	struct hearth_record *r;

	if (!t->held || t->idx == HEARTH_UNTRACKED)
		return true;
	r = bpf_ringbuf_reserve(&ring, sizeof(*r), 0);
	if (!r)
		return false;
	fill_runnable(r, p, t, HEARTH_WHY_RESCAN);
	if (notify)
		submit(r);
	else
		bpf_ringbuf_submit(r, BPF_RB_NO_WAKEUP);
	return true;
}

/* Send a record about every task that is held, after a takeover or a lost notice. */
SEC("syscall")
int hearth_rescan(void *ctx)
{
	u32 llc;

	bpf_for(llc, 0, nr_llcs) {
		struct task_struct *p;

		bpf_rcu_read_lock();
		bpf_for_each(scx_dsq, p, HEARTH_DSQ_HOLD + llc, 0) {
			struct hearth_task *t = task_of(p);

			if (t && !tell_held(p, t, false))
				break;
		}
		bpf_rcu_read_unlock();
	}
	return 0;
}

#endif
