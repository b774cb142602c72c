/* SPDX-License-Identifier: GPL-2.0-only */
/* What all parts of the shim share: what the loader sets, the maps, what is kept about a task, and access to it. */
#ifndef HEARTH_STATE_BPF_H
#define HEARTH_STATE_BPF_H

#define PF_KTHREAD 0x00200000
#define MAX_RT_PRIO 100

/* Set by the loader. */
const volatile u32 nr_cpu_ids = 1;
const volatile u32 mask_bytes = 8;
const volatile u32 max_tasks = 1;
const volatile bool forward_kthreads;
const volatile u64 takeover_limit_ns = 5000000;
const volatile u64 takeover_slice_ns = 2000000;
const volatile u64 timer_period_ns = 1000000;
const volatile u64 rescue_ns = 1600000000;
const volatile u32 commit_delay_loops; /* fault injection: widen the race between check and move */
/* The daemon's process id as the kernel knows it; its first thread is the dispatcher. Set by hearth_introduce(). */
u32 daemon_pid;
/* Set before each attachment: LLC domains are numbered anew when a CPU comes or goes. */
u32 nr_llcs = 1;
u16 cpu_llc[HEARTH_MAX_CPUS];

struct {
	__uint(type, BPF_MAP_TYPE_RINGBUF);
	__uint(max_entries, 1 << 20); /* the loader sizes it */
} ring SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hearth_ctl);
} ctl_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hearth_batch);
} batch_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEARTH_MAX_CPUS);
	__type(key, u32);
	__type(value, struct hearth_cpu);
} cpu_map SEC(".maps");

/* Allowed CPUs of each task, one row a task; value size set by the loader. */
struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(map_flags, BPF_F_MMAPABLE);
	__uint(max_entries, HEARTH_MAX_TASKS);
	__uint(key_size, sizeof(u32));
	__uint(value_size, HEARTH_MAX_CPUS / 8);
} mask_map SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, HEARTH_MAX_TASKS);
	__type(key, u32);
	__type(value, u32);
} gen_map SEC(".maps");

/* Rows that were handed out before and are free again. Fresh rows come from next_row. */
struct {
	__uint(type, BPF_MAP_TYPE_QUEUE);
	__uint(max_entries, HEARTH_MAX_TASKS);
	__uint(value_size, sizeof(u32));
} free_rows SEC(".maps");
u32 next_row;

struct hearth_stats {
	u64 n[HEARTH_NR_STATS];
};

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hearth_stats);
} stat_map SEC(".maps");

struct hearth_timer {
	struct bpf_timer timer;
};

struct {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, 1);
	__type(key, u32);
	__type(value, struct hearth_timer);
} timer_map SEC(".maps");

/* What the shim keeps about a task. */
struct hearth_task {
	u32 idx;
	u32 gen;
	u32 seq;
	u8 held; /* forwarded and not running yet */
	u8 pending; /* became runnable, not yet seen in enqueue or running */
	u8 fresh; /* no RUNNABLE record yet */
	u8 mask_dirty; /* its mask row changed since its last RUNNABLE record */
	u8 yielded;
	s32 last_cpu;
	u64 queued_at;
	u64 woken_at;
	u64 slept_at;
	u64 slept_ns;
	u64 run_since;
	u64 ran_ns;
	u64 waited_ns;
	u64 left_busy_ns;
	u32 waker_row;
	u8 started; /* it has run since its last RUNNABLE record */
};

struct {
	__uint(type, BPF_MAP_TYPE_TASK_STORAGE);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, int);
	__type(value, struct hearth_task);
} task_map SEC(".maps");

static __always_inline struct hearth_task *task_of(struct task_struct *p)
{
	return bpf_task_storage_get(&task_map, p, NULL, 0);
}

static __always_inline struct hearth_ctl *ctl_of(void)
{
	u32 zero = 0;

	return bpf_map_lookup_elem(&ctl_map, &zero);
}

static __always_inline struct hearth_cpu *cpu_of(u32 cpu)
{
	return bpf_map_lookup_elem(&cpu_map, &cpu);
}

static __always_inline void count(u32 what)
{
	u32 zero = 0;
	struct hearth_stats *s = bpf_map_lookup_elem(&stat_map, &zero);

	if (s && what < HEARTH_NR_STATS)
		s->n[what]++;
}

static __always_inline u32 llc_of(u32 cpu)
{
	return cpu < HEARTH_MAX_CPUS ? cpu_llc[cpu] : 0;
}

/* The one writer of a CPU's status words holds its run-queue lock, so a plain counter is enough; readers retry. */
static __always_inline void status_begin(struct hearth_cpu *c)
{
	__sync_fetch_and_add(&c->seq, 1);
}

static __always_inline void status_end(struct hearth_cpu *c)
{
	barrier();
	((volatile struct hearth_cpu *)c)->seq = c->seq + 1;
}

#endif
