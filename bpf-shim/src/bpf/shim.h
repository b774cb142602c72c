/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * The wire between the shim (kernel side) and the dispatcher (user side): ring records, status words, the commit
 * batch and the control page. Both sides check its layout: here by _Static_assert, in Rust by tests/layout.rs.
 *
 * Times are CLOCK_MONOTONIC nanoseconds. All structs are prefixed hearth_: a name that the kernel forward-declares
 * would break relocation.
 */
#ifndef HEARTH_SHIM_H
#define HEARTH_SHIM_H

/* For the bindings generator; vmlinux.h has them already. */
#ifndef __VMLINUX_H__
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef int s32;
typedef unsigned long long u64;
#endif

enum hearth_limits {
	HEARTH_MAX_CPUS = 4096,
	HEARTH_MAX_TASKS = 65536,
	HEARTH_MAX_LLCS = 256,
	HEARTH_MAX_BATCH = 256,
	HEARTH_NO_TASK = 0xffffffff, /* curr_idx: nothing of ours runs */
	HEARTH_UNTRACKED = 0xfffffffe, /* curr_idx: something of ours that is not tracked runs */
};

/* Queue ids are uncommon, so that a stale daemon can never move another scheduler's tasks. */
#define HEARTH_DSQ_HOLD 0x48454152000000ULL /* + LLC domain */
#define HEARTH_DSQ_CPU 0x48454153000000ULL /* + CPU */
#define HEARTH_DSQ_FALLBACK 0x48454154000000ULL

/*
 * What a ring record says. Weight, group and affinity need no record of their own: the kernel re-queues a waiting task
 * when they change, and every RUNNABLE record carries all three.
 */
enum hearth_kind {
	HEARTH_RUNNABLE = 1,
	HEARTH_ASK, /* a CPU ran dry while tasks wait */
	HEARTH_EXIT, /* the task is gone */
	HEARTH_EXEC, /* the task runs another program now */
	HEARTH_DETACHED, /* the scheduler is being taken down */
};

/* Why a task became runnable: hearth_record.why. Order as in the core's enum Why. */
enum hearth_why {
	HEARTH_WHY_NEW,
	HEARTH_WHY_WOKEN,
	HEARTH_WHY_PREEMPTED,
	HEARTH_WHY_SLICE,
	HEARTH_WHY_YIELDED,
	HEARTH_WHY_RESCAN,
	HEARTH_NR_WHYS,
};

enum hearth_record_flags {
	HEARTH_R_MASK = 1, /* the task's row in the mask table was filled or changed since its last record */
};

/* One fact. */
struct hearth_record {
	u64 ts_ns;
	u32 idx; /* stable task key: row ... */
	u32 gen; /* ... and how often the row was handed out */
	u32 pid;
	u32 seq; /* the task's count of enqueues */
	u8 kind;
	u8 why;
	u16 flags;
	s32 cpu; /* previous CPU; ASK: the CPU that asks */
	u64 ran_ns; /* CPU time since the previous RUNNABLE record */
	u64 slept_ns; /* how long it slept before this wakeup */
	u64 waited_ns; /* from its previous RUNNABLE record to the start of its first run after it, 0: it has not run since */
	u64 left_busy_ns; /* hearth_cpu.busy_ns of its previous CPU when it left that */
	u32 waker_row; /* idx of the waker, or HEARTH_UNTRACKED */
	u32 weight;
	u64 cgroup; /* id in the default hierarchy */
};

/*
 * Status words of one CPU. First line: a seqlock whose one writer is the holder of the CPU's run-queue lock.
 * Second line: words with other writers.
 */
struct hearth_cpu {
	u32 seq; /* odd while being written */
	u32 held; /* 1: a real-time or deadline task is on the CPU */
	u32 curr_idx;
	u32 curr_gen;
	u64 since_ns; /* when the present occupant got the CPU */
	u64 slice_ns; /* its slice, counted from since_ns */
	u64 busy_ns; /* CPU time used by finished runs */
	u64 held_since_ns;
	u64 switches;
	u64 extended; /* lone tasks whose slice was extended without a round trip */

	u32 depth; /* tasks in the CPU's own queue */
	u32 looking; /* 1: the CPU looks for work or idles: what is queued for it now needs a kick */
	u32 parked; /* 1: the dispatcher took the CPU from a task that would have gone on */
	u32 pad0;
	u64 requeued_since_ns; /* held_since_ns of the last hold whose victims were handed back */
	u64 pad1[5];
};

/* One decision of a batch. */
struct hearth_txn {
	u32 idx;
	u32 gen;
	u32 pid;
	u32 seq;
	u32 cpu;
	u32 flags;
	u64 slice_ns;
	u32 outcome;
	u32 pad;
};

enum hearth_txn_flags {
	HEARTH_T_PREEMPT = 1,
	HEARTH_T_RECALL = 2, /* it is believed to wait in a CPU's own queue */
	HEARTH_T_IDLE = 4, /* the CPU is believed to be idle */
};

enum hearth_outcome {
	HEARTH_PENDING,
	HEARTH_DONE,
	HEARTH_STALE,
	HEARTH_GONE,
	HEARTH_NOT_ALLOWED,
	HEARTH_RETRY,
};

struct hearth_batch {
	u32 nr;
	u32 pad[15];
	struct hearth_txn txn[HEARTH_MAX_BATCH];
};

/* The control page. Each line has one kind of writer. */
struct hearth_ctl {
	/* Written by the dispatcher. */
	u32 asleep; /* 1: it blocks, or is about to: a record must wake it */
	u32 wants_asks; /* 1: a CPU that runs dry should say so */
	u32 pad0[14];
	/* Written by the shim. */
	u32 takeover; /* epoch of the takeover in force, 0: none. The dispatcher resumes by changing epoch to 0. */
	u32 enabled; /* 0: commits do nothing */
	u32 lost; /* EXIT and EXEC records that found the ring full */
	u32 timer_armed;
	u32 fallback_used; /* 1: something may wait in FALLBACK */
	u32 held_cpus; /* CPUs that a real-time or deadline task holds */
	u64 takeover_since_ns;
	u32 pad1[8];
};

/* Counters, one array per CPU. Names for people: bpf-shim/src/stats.rs. */
enum hearth_stat {
	HEARTH_S_RUNNABLE, /* wakeups and first appearances (ops.runnable) */
	HEARTH_S_ENQUEUE, /* calls of ops.enqueue */
	HEARTH_S_FWD_NEW, /* forwarded, by reason: same order as enum hearth_why */
	HEARTH_S_FWD_WOKEN,
	HEARTH_S_FWD_PREEMPTED,
	HEARTH_S_FWD_SLICE,
	HEARTH_S_FWD_YIELDED,
	HEARTH_S_FB_RING, /* to FALLBACK: the ring was full */
	HEARTH_S_FB_UNTRACKED, /* to FALLBACK: more tasks than are tracked */
	HEARTH_S_FB_TAKEOVER, /* to FALLBACK: enqueued while the kernel side was in charge */
	HEARTH_S_IN_KTHREAD, /* in-kernel path: kernel threads */
	HEARTH_S_IN_PINNED, /* in-kernel path: per-CPU kernel threads, local queue */
	HEARTH_S_IN_DAEMON, /* in-kernel path: the daemon's own threads */
	HEARTH_S_BYPASSED, /* the kernel placed it by itself (exiting, migration disabled) */
	HEARTH_S_DROPPED, /* was runnable, went to sleep or away again before any enqueue or run */
	HEARTH_S_COMMITTED,
	HEARTH_S_STARTED, /* of those: straight to an idle CPU */
	HEARTH_S_RECALLED, /* of those: from another CPU's own queue */
	HEARTH_S_STALE,
	HEARTH_S_GONE,
	HEARTH_S_NOT_ALLOWED,
	HEARTH_S_RETRY,
	HEARTH_S_TAKEN_OVER, /* tasks served from HOLD without the dispatcher */
	HEARTH_S_TAKEOVERS, /* how often the mode was entered */
	HEARTH_S_RESCUED, /* had waited far too long in a HOLD queue or a CPU's own: moved by the timer */
	HEARTH_S_REQUEUED, /* times that the local queue of a CPU held by real time was handed back */
	HEARTH_S_EXTENDED, /* slices of lone tasks extended in the kernel */
	HEARTH_S_ASKS,
	HEARTH_S_PINGS, /* the timer told again of a task that had waited in HOLD for long */
	HEARTH_S_NOTIFIED, /* records that had to wake the dispatcher */
	HEARTH_S_MIG_SAME, /* runs on the CPU of the run before */
	HEARTH_S_MIG_LLC, /* on another CPU of the same LLC domain */
	HEARTH_S_MIG_CROSS, /* in another LLC domain */
	HEARTH_S_TIMER,
	HEARTH_NR_STATS,
};

#define HEARTH_ASSERT(e) _Static_assert(e, #e)
HEARTH_ASSERT(sizeof(struct hearth_record) == 80);
HEARTH_ASSERT(sizeof(struct hearth_cpu) == 128);
HEARTH_ASSERT(__builtin_offsetof(struct hearth_cpu, depth) == 64);
HEARTH_ASSERT(sizeof(struct hearth_txn) == 40);
HEARTH_ASSERT(sizeof(struct hearth_batch) == 64 + 40 * HEARTH_MAX_BATCH);
HEARTH_ASSERT(sizeof(struct hearth_ctl) == 128);

#endif
