// SPDX-License-Identifier: GPL-2.0-only
//! What a scheduling policy is: it answers where a task goes and for how long, with a reason, and nothing else.
//!
//! Lifecycle, legality, queues and transactions belong to the [`crate::dispatcher::Dispatcher`]: a policy cannot lose
//! a task, run one twice or place one on a forbidden CPU. See [`fifo`] for the template.

pub mod fifo;
pub mod registry;
pub mod vtime;

use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
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
    /// Wait in the task's domain (its LLC, or a single CPU if its affinity is narrower) until a CPU asks; smallest `order` first,
    /// ties in order of arrival.
    Queue {
        /// The sort key.
        order: u64,
    },
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
    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> (usize, Nanos) {
        let _ = (now, cpu, waiting, view);
        (0, crate::limits::DEFAULT_SLICE_NS)
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
