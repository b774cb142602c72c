/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The shim: forwards every runnable task to the dispatcher, carries out what it decides, and serves the queues by
 * itself when nobody answers. No policy lives here.
 *
 * A task waits in the HOLD queue of its LLC domain until a commit moves it to a CPU's own queue. FALLBACK takes what
 * cannot be forwarded. Whatever happens to the dispatcher, dispatch() finds every waiting task: that is the invariant
 * each rule below serves.
 */
#include <scx/common.bpf.h>
#include "shim.h"

char _license[] SEC("license") = "GPL";
UEI_DEFINE(uei);

#define PF_KTHREAD 0x00200000
#define MAX_RT_PRIO 100

/* Set by the loader. */
const volatile u32 nr_cpu_ids = 1;
const volatile u32 nr_llcs = 1;
const volatile u32 mask_bytes = 8;
const volatile u32 max_tasks = 1;
const volatile u32 daemon_pid; /* process id; its first thread is the dispatcher */
const volatile bool forward_kthreads;
const volatile u64 takeover_limit_ns = 5000000;
const volatile u64 takeover_slice_ns = 2000000;
const volatile u64 timer_period_ns = 1000000;
const volatile u64 rescue_ns = 1600000000;
const volatile u32 commit_delay_loops; /* fault injection: widen the race between check and move */
const volatile u16 cpu_llc[HEARTH_MAX_CPUS];

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
	u32 waker;
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
	r->waker = t->waker;
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
 * Onto FALLBACK with a short slice; wakes an idle CPU that may run it. The insertion is finished only after enqueue
 * returns: a CPU that looks at the queues in between and then idles is woken by the timer.
 */
static __always_inline void wait_in_fallback(struct task_struct *p, u64 enq_flags)
{
	struct hearth_ctl *ctl = ctl_of();
	s32 cpu;

	if (ctl)
		ctl->fallback_used = 1;
	scx_bpf_dsq_insert(p, HEARTH_DSQ_FALLBACK, takeover_slice_ns, enq_flags);
	cpu = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
	if (cpu < 0)
		cpu = scx_bpf_task_cpu(p);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
	if (ctl)
		arm_timer(ctl);
}

static __always_inline void to_fallback(struct task_struct *p, u64 enq_flags, u32 reason)
{
	count(reason);
	wait_in_fallback(p, enq_flags);
}

/*
 * The in-kernel path: an idle CPU's own queue if there is one, else FALLBACK, which every CPU serves: in the queue of a
 * busy CPU a worker would wait behind whatever holds it.
 */
static __always_inline void in_kernel(struct task_struct *p, u64 enq_flags, u32 reason)
{
	s32 cpu = scx_bpf_task_cpu(p);

	count(reason);
	if (!scx_bpf_test_and_clear_cpu_idle(cpu)) {
		s32 idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);

		if (idle < 0) {
			wait_in_fallback(p, enq_flags);
			return;
		}
		cpu = idle;
	}
	scx_bpf_dsq_insert(p, HEARTH_DSQ_CPU + cpu, takeover_slice_ns, enq_flags);
	scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
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
		in_kernel(p, enq_flags, HEARTH_S_IN_DAEMON);
		return;
	}
	if ((p->flags & PF_KTHREAD) && !forward_kthreads) {
		if (p->nr_cpus_allowed == 1) {
			count(HEARTH_S_IN_PINNED);
			scx_bpf_dsq_insert(p, SCX_DSQ_LOCAL, takeover_slice_ns, enq_flags);
			return;
		}
		in_kernel(p, enq_flags, HEARTH_S_IN_KTHREAD);
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
	t->fresh = 0;
	t->yielded = 0;
	scx_bpf_dsq_insert(p, HEARTH_DSQ_HOLD + llc_of(scx_bpf_task_cpu(p)), takeover_slice_ns, enq_flags);
	arm_timer(ctl);
	submit(r);
}

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

void BPF_STRUCT_OPS(hearth_runnable, struct task_struct *p, u64 enq_flags)
{
	struct hearth_task *t = task_of(p);

	count(HEARTH_S_RUNNABLE);
	if (!t)
		return;
	t->pending = 1;
	t->woken_at = bpf_ktime_get_ns();
	if (t->slept_at) {
		t->slept_ns = t->woken_at - t->slept_at;
		t->slept_at = 0;
	}
	t->waker = (u32)bpf_get_current_pid_tgid();
}

/* Does a higher class hold the CPU? */
static __always_inline void set_held(struct hearth_ctl *ctl, struct hearth_cpu *c, u32 held)
{
	__sync_fetch_and_add(&ctl->held_cpus, held ? 1 : -1);
	status_begin(c);
	c->held = held;
	c->held_since_ns = held ? bpf_ktime_get_ns() : 0;
	status_end(c);
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
		}
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

SEC("tp_btf/sched_process_exec")
int BPF_PROG(hearth_exec, struct task_struct *p)
{
	struct hearth_task *t = task_of(p);

	if (t && t->idx != HEARTH_UNTRACKED)
		tell(HEARTH_EXEC, t->idx, t->gen, p->pid, -1);
	return 0;
}

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
			outcome = HEARTH_NOT_ALLOWED;
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

/* --- The timer: is the dispatcher late, does anybody wait too long? ------------------------------------------- */

u64 timer_last_cons; /* consumer position at the last tick */
u64 timer_progress_at; /* when the ring was last seen empty or moving */
u32 timer_quiet; /* ticks in a row with nothing waiting */
u32 timer_ticks;
u32 last_epoch;

static __always_inline void take_over(struct hearth_ctl *ctl, u64 now)
{
	u32 cpu;

	count(HEARTH_S_TAKEOVERS);
	ctl->takeover_since_ns = now;
	last_epoch++;
	if (!last_epoch)
		last_epoch = 1;
	__sync_lock_test_and_set(&ctl->takeover, last_epoch);
	/* Idle CPUs do not look by themselves; busy ones may be in the middle of a long slice. */
	bpf_for(cpu, 0, nr_cpu_ids) {
		scx_bpf_kick_cpu(cpu, SCX_KICK_IDLE);
		scx_bpf_kick_cpu(cpu, SCX_KICK_PREEMPT);
	}
}

/*
 * Move what has waited far too long out of a queue: a real-time task may hold its CPU, or a dispatcher that is alive does
 * not decide it. It goes to FALLBACK, or, if it may run on one CPU only, to that CPU's own queue.
 */
static __always_inline bool rescue(struct hearth_ctl *ctl, u64 queue, u64 now)
{
	struct task_struct *p;

	if (scx_bpf_dsq_nr_queued(queue) <= 0)
		return false;
	bpf_for_each(scx_dsq, p, queue, 0) {
		struct hearth_task *t = task_of(p);
		u64 target = p->nr_cpus_allowed == 1 ? HEARTH_DSQ_CPU + scx_bpf_task_cpu(p) : HEARTH_DSQ_FALLBACK;
		s32 idle;

		if (!t || now - t->queued_at < rescue_ns)
			break;
		if (target == queue || !scx_bpf_dsq_move(BPF_FOR_EACH_ITER, p, target, 0))
			continue;
		count(HEARTH_S_RESCUED);
		if (target == HEARTH_DSQ_FALLBACK)
			ctl->fallback_used = 1;
		idle = scx_bpf_pick_idle_cpu(p->cpus_ptr, 0);
		if (idle >= 0)
			scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
	}
	return true;
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
		if (now - c->held_since_ns >= timer_period_ns) {
			c->requeued_since_ns = c->held_since_ns;
			scx_bpf_dsq_reenq(SCX_DSQ_LOCAL_ON | cpu, 0);
			count(HEARTH_S_REQUEUED);
		}
	}
	return waiting;
}

/* A CPU may have looked just before the insertion into FALLBACK was finished, and idle now. */
static __always_inline void kick_for_fallback(void)
{
	struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(HEARTH_DSQ_FALLBACK);
	s32 idle = p ? scx_bpf_pick_idle_cpu(p->cpus_ptr, 0) : -1;

	if (idle >= 0)
		scx_bpf_kick_cpu(idle, SCX_KICK_IDLE);
}

static int hearth_tick(void *map, int *key, struct hearth_timer *timer)
{
	struct hearth_ctl *ctl = ctl_of();
	u64 now = bpf_ktime_get_ns(), oldest = ~0ULL, avail, cons;
	bool waiting = scx_bpf_dsq_nr_queued(HEARTH_DSQ_FALLBACK) > 0;
	u32 i;

	if (!ctl)
		return 0;
	count(HEARTH_S_TIMER);
	/* Whoever wants the timer from here on is looked after by this tick or keeps it from stopping. */
	if (__sync_val_compare_and_swap(&ctl->timer_armed, TIMER_WANTED, TIMER_ON) == TIMER_WANTED)
		timer_quiet = 0;
	/* Whoever comes in meanwhile finds it set again by the next tick, or is found by a CPU with nothing else to do. */
	ctl->fallback_used = waiting;
	avail = bpf_ringbuf_query(&ring, BPF_RB_AVAIL_DATA);
	cons = bpf_ringbuf_query(&ring, BPF_RB_CONS_POS);
	if (!avail || cons != timer_last_cons)
		timer_progress_at = now;
	timer_last_cons = cons;
	bpf_for(i, 0, nr_llcs) {
		struct task_struct *p = __COMPAT_scx_bpf_dsq_peek(HEARTH_DSQ_HOLD + i);
		struct hearth_task *t = p ? task_of(p) : NULL;

		if (!t)
			continue;
		if (t->queued_at < oldest)
			oldest = t->queued_at;
		/*
		 * Read, but not decided: perhaps on purpose (it waits its turn), perhaps the notice was lost or the
		 * dispatcher is gone. Tell again: a living dispatcher knows, an absent one is found out.
		 */
		if (!avail && !ctl->takeover && t->queued_at + takeover_limit_ns / 2 <= now) {
			count(HEARTH_S_PINGS);
			tell_held(p, t, true);
		}
	}
	if (oldest != ~0ULL && !ctl->takeover && avail && oldest + takeover_limit_ns <= now &&
	    timer_progress_at + takeover_limit_ns / 2 <= now)
		take_over(ctl, now);
	if (waiting)
		kick_for_fallback();
	if (ctl->takeover && oldest != ~0ULL) {
		bpf_for(i, 0, nr_cpu_ids)
			scx_bpf_kick_cpu(i, SCX_KICK_IDLE);
	}
	if (!(timer_ticks++ & 63) || timer_quiet) {
		bpf_for(i, 0, nr_cpu_ids)
			waiting |= rescue(ctl, HEARTH_DSQ_CPU + i, now);
		bpf_for(i, 0, nr_llcs)
			waiting |= rescue(ctl, HEARTH_DSQ_HOLD + i, now);
	} else {
		waiting = true; /* not looked: stay */
	}
	waiting |= oldest != ~0ULL || ctl->takeover || avail;
	if (ctl->held_cpus && bpf_ksym_exists(scx_bpf_dsq_reenq___compat))
		waiting |= leave_held_cpus(now);
	timer_quiet = waiting ? 0 : timer_quiet + 1;
	if (timer_quiet > 4) {
		timer_quiet = 0;
		if (__sync_val_compare_and_swap(&ctl->timer_armed, TIMER_ON, TIMER_OFF) == TIMER_ON)
			return 0;
	}
	if (bpf_timer_start(&timer->timer, timer_period_ns, 0))
		__sync_lock_test_and_set(&ctl->timer_armed, TIMER_OFF);
	return 0;
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
			c->curr_idx = HEARTH_NO_TASK;
		err = scx_bpf_create_dsq(HEARTH_DSQ_CPU + i, -1);
		if (err)
			return err;
	}
	err = scx_bpf_create_dsq(HEARTH_DSQ_FALLBACK, -1);
	if (err)
		return err;
	bpf_timer_init(&t->timer, &timer_map, CLOCK_MONOTONIC);
	bpf_timer_set_callback(&t->timer, hearth_tick);
	ctl->enabled = 1;
	return 0;
}

void BPF_STRUCT_OPS(hearth_exit, struct scx_exit_info *ei)
{
	struct hearth_ctl *ctl = ctl_of();

	if (ctl)
		ctl->enabled = 0;
	UEI_RECORD(uei, ei);
	tell(HEARTH_DETACHED, HEARTH_NO_TASK, 0, 0, -1);
}

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
