/* SPDX-License-Identifier: GPL-2.0-only */
/* Decisions are carried out: the batch of one system call. */
#ifndef HEARTH_COMMIT_BPF_H
#define HEARTH_COMMIT_BPF_H

#include "dispatch.bpf.h"
#include "enqueue.bpf.h"

/*
 * Wake the CPU, unless it is certain that it will look at its queue by itself. A kick costs an interrupt here, and most
 * decisions under load are for CPUs that are busy. The barrier pairs with the one in dispatch(): either that CPU sees
 * the task that was queued just now, or we see that it is looking.
 */
static __always_inline void kick_unless_busy(struct hearth_cpu *c, u32 cpu)
{
	if (!__sync_fetch_and_add(&c->looking, 0) && c->curr_idx != HEARTH_NO_TASK)
		return;
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
}

/*
 * Move a task to a CPU's own queue, or straight to the CPU if it is idle: it starts at once then, without a kick and
 * without a look at the queues. Should a real-time task take the CPU in that very moment, the task waits behind it and
 * cannot be recalled, like any that real time preempts.
 */
static __always_inline u32 move_to_cpu(struct bpf_iter_scx_dsq *it, struct task_struct *p, struct hearth_task *t,
				       struct hearth_txn *x, struct hearth_cpu *c)
{
	u32 cpu = x->cpu, i;
	bool straight = x->flags & HEARTH_T_IDLE && c->curr_idx == HEARTH_NO_TASK && !c->held && !c->depth;
	u64 target = straight ? SCX_DSQ_LOCAL_ON | cpu : HEARTH_DSQ_CPU + cpu;

	bpf_for(i, 0, commit_delay_loops)
		bpf_ktime_get_ns();
	scx_bpf_dsq_move_set_slice(it, x->slice_ns);
	if (!scx_bpf_dsq_move(it, p, target, 0))
		/* Not in the queue: its insertion is still under way, or somebody took it. */
		return t->held && t->seq == x->seq ? HEARTH_RETRY : HEARTH_STALE;
	count(HEARTH_S_COMMITTED);
	if (straight) {
		struct hearth_ctl *ctl = ctl_of();

		count(HEARTH_S_STARTED);
		if (c->held && ctl)
			arm_timer(ctl);
		return HEARTH_DONE;
	}
	refresh_depth(c, target);
	if (x->flags & HEARTH_T_PREEMPT)
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	else
		kick_unless_busy(c, cpu);
	return HEARTH_DONE;
}

/*
 * The dispatcher learns that the CPU is forbidden. It need not be for ever (before Linux 6.14 a task whose migration is
 * disabled for a moment comes to us as well), so its next record tells the whole mask again.
 */
static __always_inline u32 refuse(struct hearth_task *t)
{
	t->mask_dirty = 1;
	return HEARTH_NOT_ALLOWED;
}

/* Carry out one decision. The order is the safety: see the numbered steps. */
static __always_inline u32 commit_one(struct hearth_txn *x)
{
	struct bpf_iter_scx_dsq it;
	struct scx_dispatch_q *queue;
	struct task_struct *p;
	struct hearth_task *t;
	struct hearth_cpu *c;
	u32 outcome = HEARTH_GONE;

	p = bpf_task_from_pid(x->pid);
	if (!p)
		return HEARTH_GONE;
	t = task_of(p);
	if (!t || t->idx != x->idx || t->gen != x->gen)
		goto out;
	/*
	 * 1. Open an iterator on the queue that it waits in: from here on any re-queue of the task makes the move fail.
	 * The kernel knows the queue; a note of our own could be written after the task has gone on to another.
	 */
	queue = p->scx.dsq;
	if (!queue) {
		/* Its insertion is still under way, or it runs. */
		outcome = t->held && t->seq == x->seq ? HEARTH_RETRY : HEARTH_STALE;
		goto out;
	}
	outcome = HEARTH_STALE; /* also if it is on a CPU's local queue, which cannot be iterated: it has as good as started */
	if (!bpf_iter_scx_dsq_new(&it, BPF_CORE_READ(queue, id), 0)) {
		/* 2. Then check that the decision still fits. 3. Then move. */
		c = cpu_of(x->cpu);
		if (t->seq != x->seq || !t->held)
			outcome = HEARTH_STALE;
		else if (!c || x->cpu >= nr_cpu_ids || !bpf_cpumask_test_cpu(x->cpu, p->cpus_ptr))
			outcome = refuse(t);
		else
			outcome = move_to_cpu(&it, p, t, x, c);
	}
	bpf_iter_scx_dsq_destroy(&it);
	if (outcome == HEARTH_DONE && x->flags & HEARTH_T_RECALL)
		count(HEARTH_S_RECALLED);
out:
	bpf_task_release(p);
	return outcome;
}

SEC("syscall")
int hearth_commit(void *ctx)
{
	u32 zero = 0, i;
	struct hearth_batch *b = bpf_map_lookup_elem(&batch_map, &zero);
	struct hearth_ctl *ctl = ctl_of();

	if (!b || !ctl || !ctl->enabled)
		return -ENODEV;
	bpf_for(i, 0, b->nr) {
		u32 outcome;

		if (i >= HEARTH_MAX_BATCH)
			break;
		bpf_rcu_read_lock();
		outcome = commit_one(&b->txn[i]);
		bpf_rcu_read_unlock();
		b->txn[i].outcome = outcome;
		if (outcome == HEARTH_STALE)
			count(HEARTH_S_STALE);
		else if (outcome == HEARTH_GONE)
			count(HEARTH_S_GONE);
		else if (outcome == HEARTH_NOT_ALLOWED)
			count(HEARTH_S_NOT_ALLOWED);
		else if (outcome == HEARTH_RETRY)
			count(HEARTH_S_RETRY);
	}
	return 0;
}

#endif
