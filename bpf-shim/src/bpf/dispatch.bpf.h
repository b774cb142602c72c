/* SPDX-License-Identifier: GPL-2.0-only */
/* What a CPU takes next, with the dispatcher or without it. */
#ifndef HEARTH_DISPATCH_BPF_H
#define HEARTH_DISPATCH_BPF_H

#include "records.bpf.h"

static __always_inline u64 head_age_stamp(u64 dsq)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(dsq);
	struct hearth_task *t;

	if (!p)
		return ~0ULL;
	t = task_of(p);
	return t ? t->queued_at : 0;
}

/* The same for FALLBACK, if its head may run here. */
static __always_inline u64 fallback_stamp(s32 cpu)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(HEARTH_DSQ_FALLBACK);
	struct hearth_task *t;

	if (!p || !bpf_cpumask_test_cpu(cpu, p->cpus_ptr))
		return ~0ULL;
	t = task_of(p);
	return t ? t->queued_at : 0;
}

/* Dispatch and commit both write the depth: whoever finds that it has changed meanwhile writes it again. */
static __always_inline void refresh_depth(struct hearth_cpu *c, u64 own)
{
	s32 n = scx_bpf_dsq_nr_queued(own);

	__sync_lock_test_and_set(&c->depth, n);
	if (scx_bpf_dsq_nr_queued(own) != n)
		c->depth = scx_bpf_dsq_nr_queued(own);
}

/* Serve one HOLD queue without the dispatcher. */
static __always_inline bool serve_hold(u32 llc)
{
	if (!scx_bpf_dsq_move_to_local(HEARTH_DSQ_HOLD + llc, 0))
		return false;
	count(HEARTH_S_TAKEN_OVER);
	return true;
}

/* Nobody decides: oldest head first among the CPU's own queue, FALLBACK and HOLD, then the other domains' HOLD. */
static __noinline bool serve_takeover(u32 cpu)
{
	u64 own = HEARTH_DSQ_CPU + cpu;
	u32 llc = llc_of(cpu), i;
	u64 a = head_age_stamp(own), b = head_age_stamp(HEARTH_DSQ_FALLBACK), c = head_age_stamp(HEARTH_DSQ_HOLD + llc);

	if (c <= a && c <= b && c != ~0ULL && serve_hold(llc))
		return true;
	if (b <= a && b != ~0ULL && scx_bpf_dsq_move_to_local(HEARTH_DSQ_FALLBACK, 0))
		return true;
	if (scx_bpf_dsq_move_to_local(own, 0) || scx_bpf_dsq_move_to_local(HEARTH_DSQ_FALLBACK, 0) || serve_hold(llc))
		return true;
	bpf_for(i, 1, nr_llcs) {
		if (serve_hold((llc + i) % nr_llcs))
			return true;
	}
	return false;
}

static __always_inline bool anything_held(void)
{
	u32 i;

	bpf_for(i, 0, nr_llcs) {
		if (scx_bpf_dsq_nr_queued(HEARTH_DSQ_HOLD + i) > 0)
			return true;
	}
	return false;
}

/* A lone task whose slice is used up goes on, without a round trip. */
static __always_inline bool extend_lone(struct task_struct *prev, struct hearth_cpu *c)
{
	u64 slice = c->slice_ns;

	if (!prev || !(prev->scx.flags & SCX_TASK_QUEUED) || anything_held())
		return false;
	if (slice > 1000000000)
		slice = takeover_slice_ns;
	scx_bpf_task_set_slice(prev, slice ? slice : takeover_slice_ns);
	status_begin(c);
	c->extended++;
	status_end(c);
	count(HEARTH_S_EXTENDED);
	return true;
}

void BPF_STRUCT_OPS(hearth_dispatch, s32 cpu, struct task_struct *prev)
{
	struct hearth_ctl *ctl = ctl_of();
	struct hearth_cpu *c = cpu_of(cpu);
	u64 own = HEARTH_DSQ_CPU + cpu;
	bool found;

	if (!ctl || !c)
		return;
	/* A full barrier before the queues are looked at; pairs with the one in kick_unless_busy(). */
	__sync_lock_test_and_set(&c->looking, 1);
	if (ctl->takeover)
		found = serve_takeover(cpu);
	else if (ctl->fallback_used && fallback_stamp(cpu) < head_age_stamp(own))
		found = scx_bpf_dsq_move_to_local(HEARTH_DSQ_FALLBACK, 0) || scx_bpf_dsq_move_to_local(own, 0);
	else
		found = scx_bpf_dsq_move_to_local(own, 0) || scx_bpf_dsq_move_to_local(HEARTH_DSQ_FALLBACK, 0);
	if (found) {
		refresh_depth(c, own);
		return;
	}
	refresh_depth(c, own);
	if (ctl->takeover || extend_lone(prev, c))
		return;
	/* A full barrier after the CPU became free and before looking whether anybody wants to know. */
	if (__sync_fetch_and_add(&ctl->wants_asks, 0)) {
		count(HEARTH_S_ASKS);
		tell(HEARTH_ASK, HEARTH_NO_TASK, 0, 0, cpu);
	}
}

#endif
