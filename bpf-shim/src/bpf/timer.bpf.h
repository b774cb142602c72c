/* SPDX-License-Identifier: GPL-2.0-only */
/* The timer: is the dispatcher late, does anybody wait too long? */
#ifndef HEARTH_TIMER_BPF_H
#define HEARTH_TIMER_BPF_H

#include "enqueue.bpf.h"
#include "held.bpf.h"

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

		/* Others go on queueing: a stamp may be younger than `now`. */
		if (!t || t->queued_at + rescue_ns > now)
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
	if (!ctl->enabled) {
		__sync_lock_test_and_set(&ctl->timer_armed, TIMER_OFF);
		return 0;
	}
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
	waiting |= oldest != ~0ULL || ctl->takeover || avail;
	if (!(timer_ticks++ & 63) || !waiting) {
		bpf_for(i, 0, nr_cpu_ids)
			waiting |= rescue(ctl, HEARTH_DSQ_CPU + i, now);
		bpf_for(i, 0, nr_llcs)
			waiting |= rescue(ctl, HEARTH_DSQ_HOLD + i, now);
	}
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

#endif
