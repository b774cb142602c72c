/* SPDX-License-Identifier: GPL-2.0-only */
/* What an exit report says of us. */
#ifndef HEARTH_DUMP_BPF_H
#define HEARTH_DUMP_BPF_H

#include "state.bpf.h"

void BPF_STRUCT_OPS(hearth_dump, struct scx_dump_ctx *dctx)
{
	struct hearth_ctl *ctl = ctl_of();
	u32 i;

	if (!ctl)
		return;
	scx_bpf_dump("hearth: takeover=%u asleep=%u lost=%u ring: %llu bytes unread\n", ctl->takeover, ctl->asleep,
		     ctl->lost, bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA));
	bpf_for(i, 0, nr_llcs)
		scx_bpf_dump("hearth: HOLD %u: %d tasks\n", i, scx_bpf_dsq_nr_queued(HEARTH_DSQ_HOLD + i));
	scx_bpf_dump("hearth: FALLBACK: %d tasks\n", scx_bpf_dsq_nr_queued(HEARTH_DSQ_FALLBACK));
}

void BPF_STRUCT_OPS(hearth_dump_cpu, struct scx_dump_ctx *dctx, s32 cpu, bool idle)
{
	struct hearth_cpu *c = cpu_of(cpu);

	if (c)
		scx_bpf_dump("hearth: curr=%d held=%u own queue=%d depth=%u\n", (s32)c->curr_idx, c->held,
			     scx_bpf_dsq_nr_queued(HEARTH_DSQ_CPU + cpu), c->depth);
}

void BPF_STRUCT_OPS(hearth_dump_task, struct scx_dump_ctx *dctx, struct task_struct *p)
{
	struct hearth_task *t = task_of(p);

	if (t)
		scx_bpf_dump("hearth: row=%d/%u seq=%u held=%u waits %llu us\n", (s32)t->idx, t->gen, t->seq, t->held,
			     (bpf_ktime_get_ns() - t->queued_at) / 1000);
}

#endif
