/* SPDX-License-Identifier: GPL-2.0-only */
/* Tasks come, go, run another program, change their CPUs: rows of the tables. */
#ifndef HEARTH_TASKS_BPF_H
#define HEARTH_TASKS_BPF_H

#include "records.bpf.h"

static __always_inline void copy_mask(struct hearth_task *t, const struct cpumask *mask)
{
	u32 idx = t->idx;
	void *row = bpf_map_lookup_elem(&mask_map, &idx);

	if (row)
		bpf_probe_read_kernel(row, mask_bytes, mask);
	t->mask_dirty = 1;
}

void BPF_STRUCT_OPS(hearth_set_cpumask, struct task_struct *p, const struct cpumask *mask)
{
	struct hearth_task *t = task_of(p);

	if (t)
		copy_mask(t, mask);
}

s32 BPF_STRUCT_OPS(hearth_init_task, struct task_struct *p, struct scx_init_task_args *args)
{
	struct hearth_task *t = bpf_task_storage_get(&task_map, p, NULL, BPF_LOCAL_STORAGE_GET_F_CREATE);
	u32 row, *gen;

	/* Never fail a fork: without storage or a free row the task runs untracked, by FALLBACK. */
	if (!t)
		return 0;
	/* What an earlier attachment knew is outdated. */
	__builtin_memset(t, 0, sizeof(*t));
	t->fresh = 1;
	t->last_cpu = -1;
	t->idx = HEARTH_UNTRACKED;
	if (bpf_map_pop_elem(&free_rows, &row)) {
		if (next_row >= max_tasks)
			return 0;
		row = __sync_fetch_and_add(&next_row, 1);
		if (row >= max_tasks)
			return 0;
	}
	gen = bpf_map_lookup_elem(&gen_map, &row);
	if (!gen)
		return 0;
	t->gen = ++*gen;
	t->idx = row;
	copy_mask(t, p->cpus_ptr);
	return 0;
}

void BPF_STRUCT_OPS(hearth_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct hearth_task *t = task_of(p);
	u32 row;

	if (!t || t->idx == HEARTH_UNTRACKED)
		return;
	tell(HEARTH_EXIT, t->idx, t->gen, p->pid, -1);
	row = t->idx;
	t->idx = HEARTH_UNTRACKED;
	bpf_map_push_elem(&free_rows, &row, 0);
}

/* The daemon says who it is, before it attaches: what it knows of its own id holds in its pid namespace only. */
SEC("syscall")
int hearth_introduce(void *ctx)
{
	daemon_pid = bpf_get_current_pid_tgid() >> 32;
	return 0;
}

SEC("tp_btf/sched_process_exec")
int BPF_PROG(hearth_exec, struct task_struct *p)
{
	struct hearth_task *t = task_of(p);

	if (t && t->idx != HEARTH_UNTRACKED)
		tell(HEARTH_EXEC, t->idx, t->gen, p->pid, -1);
	return 0;
}

#endif
