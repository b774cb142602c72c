// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduling policy is: it answers where a task goes and for how long, with a reason, and nothing else.
//!
//! Lifecycle, legality, queues and transactions belong to the [`crate::dispatcher::Dispatcher`]: a policy cannot lose
//! a task, run one twice or place one on a forbidden CPU. See [`fifo`] for the template.

pub mod completion;
pub mod fifo;
pub mod hearth;
pub mod inter_domain;
pub mod kernel_default;
pub mod lavd;
pub mod lavd_base;
pub mod look_ahead;
pub mod nest;
pub mod params;
pub mod registry;
pub mod sis_cache;
pub mod vtime;
pub mod warm;

use crate::event::Runnable;
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::reason::Reason;
use crate::view::View;

/// Where a waiting task goes, from [`Policy::place`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// Run on this CPU now: it is idle, or (`preempt`) it is taken from whoever runs there.
    Run {
        /// Where.
        cpu: CpuId,
        /// For how long.
        slice_ns: Nanos,
        /// Take the CPU from the running task.
        preempt: bool,
        /// Why.
        reason: Reason,
    },
    /// Wait in line for this CPU; after `at_most_ns` the dispatcher looks for a better place.
    Wait {
        /// Where.
        cpu: CpuId,
        /// For how long it will run.
        slice_ns: Nanos,
        /// How long it may wait before it is recalled if another CPU is free.
        at_most_ns: Nanos,
        /// Why.
        reason: Reason,
    },
    /// Wait in an ordered queue until a CPU asks; smallest `order` first, ties in order of arrival. A CPU that asks is
    /// offered its own queue and its domain's as one, by order; then those of others.
    Queue {
        /// In which queue.
        at: At,
        /// The sort key.
        order: u64,
        /// Why there; none: the reason is made when it is served (first in order, stolen ...).
        reason: Option<Reason>,
    },
}

/// An ordered queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum At {
    /// That of the task's domain: its LLC, or a single CPU if its affinity is narrower.
    Home,
    /// That of this LLC domain (where the task may use all of it; else as `Home`). CPUs of other domains have to ask
    /// [`Policy::may_steal`] before they take it from there.
    Llc(LlcId),
    /// That of a single CPU.
    Cpu {
        /// Which.
        cpu: CpuId,
        /// How long other CPUs have to ask [`Policy::may_pull`] before they take it from there.
        at_most_ns: Nanos,
    },
}

/// Which of the tasks that wait a CPU gets, from [`Policy::pick`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Its place among those offered.
    pub index: usize,
    /// For how long it runs.
    pub slice_ns: Nanos,
    /// Why; none: the reason it was queued with, or that it is the first in order.
    pub reason: Option<Reason>,
}

impl Pick {
    /// The first, for `slice_ns`.
    #[must_use]
    pub fn first(slice_ns: Nanos) -> Self {
        Self { index: 0, slice_ns, reason: None }
    }
}

/// What the dispatcher shall keep for a policy. What is not needed costs nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Needs {
    /// How warm CPUs are for tasks: [`View::refill_ns`](crate::view::View) and the like.
    pub warmth: bool,
    /// When CPUs will be free: [`View::wait_ns`](crate::view::View) and the like.
    pub completion: bool,
}

/// A scheduling policy.
///
/// `view` is the machine as the dispatcher knows it at `now`: idle CPUs, lines, tasks, topology.
pub trait Policy {
    /// The name that `--policy` takes.
    fn name(&self) -> &'static str;

    /// A task became runnable: where does it go?
    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement;

    /// `cpu` asks for work and these tasks wait, best first (never empty): which one, and for how long?
    /// The default takes the first.
    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        let _ = (now, cpu, waiting, view);
        Pick::first(crate::limits::DEFAULT_SLICE_NS)
    }

    /// CPU `to` has nothing to do and `task` waits for CPU `from` alone (in its line or its ordered queue): may `to` have it?
    /// Not asked once the task has waited longer than its bound: then it may.
    fn may_pull(&self, now: Nanos, task: TaskId, from: CpuId, to: CpuId, view: &View) -> bool {
        let _ = (now, task, from, to, view);
        true
    }

    /// CPU `to` has nothing to do and `task` waits in the queue of domain `from` by the policy's wish ([`At::Llc`]): may `to`,
    /// which is in another domain, have it? Not asked once the task has waited for `line_wait_ns`: then it may.
    fn may_steal(&self, now: Nanos, task: TaskId, from: LlcId, to: CpuId, view: &View) -> bool {
        let _ = (now, task, from, to, view);
        true
    }

    /// `cpu` has nothing to do since `since_ns`, when `last` left it (to sleep, for good, or for another CPU).
    fn idled(&mut self, now: Nanos, cpu: CpuId, last: TaskId, since_ns: Nanos, view: &View) {
        let _ = (now, cpu, last, since_ns, view);
    }

    /// What the dispatcher shall keep for this policy.
    fn needs(&self) -> Needs {
        Needs::default()
    }

    /// How many waiting tasks [`Policy::pick`] wants to choose from: 1 to [`crate::limits::MAX_LOOK_AHEAD`].
    fn look_ahead(&self) -> usize {
        1
    }

    /// Does the policy promise that no task waits while a CPU that it may use is idle?
    fn work_conserving(&self) -> bool {
        true
    }

    /// A task has used `ran_ns` of CPU time since its last record (called before [`Policy::place`]).
    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        let _ = (now, task, view);
    }

    /// A task is gone, or the row was handed out anew: forget what is kept about it.
    fn forget(&mut self, task: TaskId) {
        let _ = task;
    }
}
