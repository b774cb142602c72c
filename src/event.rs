// SPDX-License-Identifier: GPL-2.0-only
//! The whole interface of the core: kernel facts come in as [`Event`]s, decisions go out as [`Command`]s, and what
//! became of a decision comes back as an [`Outcome`].
//!
//! The live daemon translates ring records and status words into these; the simulator makes them; a recorded stream
//! of them replays to the same decisions, byte for byte.

use crate::cpuset::CpuSet;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::reason::Reason;
use serde::{Deserialize, Serialize};

/// Why a task became runnable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Why {
    /// First time ever: just forked, or first seen when the scheduler attached.
    New,
    /// It had slept and something woke it.
    Woken,
    /// It ran and a task of a higher class or a preempting decision took the CPU.
    Preempted,
    /// It ran until its slice was used up.
    SliceUsed,
    /// It gave the CPU away (sched_yield).
    Yielded,
    /// Found waiting in a HOLD queue by a rescan (after a takeover, a lost event, or at attach).
    Rescan,
}

/// No row of any table.
pub const NO_ROW: u32 = u32::MAX;

fn no_row() -> u32 {
    NO_ROW
}

/// A task wants a CPU and waits in the HOLD queue of its LLC domain until a decision moves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Runnable {
    /// Who.
    pub task: TaskId,
    /// Kernel thread id, for commits and for people.
    pub pid: u32,
    /// The shim's count of this task's enqueues. A decision made for an older one is stale.
    pub seq: u32,
    /// Why now.
    pub why: Why,
    /// The CPU it ran on last.
    pub prev_cpu: CpuId,
    /// CPU time used since the previous record of this task.
    pub ran_ns: Nanos,
    /// How long it had slept before this wakeup (0 unless [`Why::Woken`]).
    pub slept_ns: Nanos,
    /// How long it had waited for a CPU before it ran: from its previous record to the start of its first run after
    /// it (0: it has not run since).
    #[serde(default)]
    pub waited_ns: Nanos,
    /// The busy clock of `prev_cpu` ([`CpuStatus::busy_ns`]) at the moment the task left it: what that clock shows beyond
    /// this is run time of others.
    #[serde(default)]
    pub left_busy_ns: Nanos,
    /// The row of the task that woke it ([`NO_ROW`]: none, an interrupt, or not tracked).
    #[serde(default = "no_row")]
    pub waker_row: u32,
    /// Scheduling weight: 100 is nice 0.
    pub weight: u32,
    /// Id of the task's cgroup in the default hierarchy (0: unknown).
    pub cgroup: u64,
}

/// One reading of a CPU's status words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuStatus {
    /// Which CPU.
    pub cpu: CpuId,
    /// The task on it, if it is one of ours.
    pub curr: Option<TaskId>,
    /// Something of ours runs that is not tracked (kernel thread on the in-kernel path, untracked task).
    pub other: bool,
    /// A higher scheduling class (real time, deadline) holds the CPU. It looks idle to sched_ext, and is not.
    pub held: bool,
    /// Since when the present occupant runs.
    pub since_ns: Nanos,
    /// The slice it was given.
    pub slice_ns: Nanos,
    /// Busy time of this CPU under this scheduler, up to `since_ns`.
    pub busy_ns: Nanos,
    /// Tasks in the CPU's own queue.
    pub depth: u32,
}

/// A fact from the kernel (or the simulated kernel).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Event {
    /// A task wants a CPU.
    Runnable(Runnable),
    /// A CPU's status words changed.
    Cpu(CpuStatus),
    /// A CPU found nothing to run although tasks wait somewhere.
    Ask(CpuId),
    /// A task may run on these CPUs from now on (comes before the first [`Event::Runnable`] of a restricted task;
    /// a task without one may run anywhere).
    Affinity(TaskId, CpuSet),
    /// A task's weight changed.
    Weight(TaskId, u32),
    /// A task moved to another cgroup.
    Group(TaskId, u64),
    /// A task started another program: what it kept in caches is gone.
    Exec(TaskId),
    /// A task is gone; its row may be handed out again.
    Exit(TaskId),
    /// What the core believes to be queued is no longer true (takeover, lost event): forget it. Everything
    /// that still waits follows as [`Event::Runnable`] with [`Why::Rescan`].
    Resync,
    /// The time that [`crate::dispatcher::Dispatcher::deadline`] asked for has come.
    Timer,
}

/// A decision: move a waiting task to a CPU's own queue.
///
/// The task waits in a HOLD queue, or (a recall) in the own queue of another CPU; the kernel side knows which.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Command {
    /// Who.
    pub task: TaskId,
    /// Its kernel thread id.
    pub pid: u32,
    /// The enqueue this decision answers.
    pub seq: u32,
    /// Where to.
    pub cpu: CpuId,
    /// For how long.
    pub slice_ns: Nanos,
    /// Take the CPU from whoever runs there now.
    pub preempt: bool,
    /// It waited in this CPU's own queue and is called back from there.
    pub recalled_from: Option<CpuId>,
    /// Why.
    pub reason: Reason,
}

/// What became of a [`Command`]. All of these are normal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Outcome {
    /// The task was moved.
    Done,
    /// The world moved on (it ran, it was queued anew): a newer fact is on its way or already here.
    Stale,
    /// The task has exited.
    Gone,
    /// The CPU is no longer allowed for the task.
    NotAllowed,
    /// The task's insertion into its HOLD queue is still under way: ask again.
    Retry,
}
