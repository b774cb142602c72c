// SPDX-License-Identifier: GPL-2.0-only
//! Task warmth as published (scx pull request 3714): lavd, and a task waits for its previous CPU if that is free soon.
//!
//! The rule is in [`super::lavd::sticky`]: an idle previous CPU is taken even if its SMT sibling is busy; for a busy one a
//! latency-tolerant task waits if the predicted wait is within a budget of `warm_cpu_us` (cold) to twice that (fully warm). It
//! waits in that CPU's own queue, from which no other CPU takes it until its bound; the CPU serves its own queue and its
//! domain's as one, by deadline, so that a warm waiter has no priority.
//!
//! The predicted wait is the published one, with its errors: what is left of the running task's *average* run (nothing once it
//! has outrun it), plus a whole base slice for each task in the CPU's own queue. Tasks in the CPU's line are not counted; a CPU
//! whose occupant has not been seen yet is no place to wait.
//!
//! Simplified: the own queue belongs to a CPU, not to a core; every CPU is in the active set.

use super::lavd::Lavd;
use super::lavd::sticky::{Sticky, WARM_CPU_US};
use super::params::Param;
use super::{Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::view::View;

/// What can be set.
pub const PARAMS: &[Param] = &[WARM_CPU_US];

/// Task warmth as published.
#[derive(Clone, Debug)]
pub struct Warm {
    lavd: Lavd,
    sticky: Sticky,
}

impl Warm {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { lavd: Lavd::new(config), sticky: Sticky::new(config) }
    }
}

/// The published prediction: the rest of an average run, and a slice for each task in the CPU's own queue.
pub fn counted_wait_ns(lavd: &Lavd, cpu: CpuId, view: &View) -> Option<Nanos> {
    let (stop_ns, _) = lavd.expected_stop(cpu, view)?;
    Some(stop_ns.saturating_sub(view.now()) + u64::from(view.own_queue(cpu)) * lavd.slice_ns())
}

impl Policy for Warm {
    fn name(&self) -> &'static str {
        "warm"
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.lavd.charge(now, task, view);
        self.sticky.charge(now, task);
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        let order = self.lavd.order(task, view);
        let wait_ns = |lavd: &Lavd, cpu: CpuId| counted_wait_ns(lavd, cpu, view);
        self.sticky
            .place(&mut self.lavd, task, order, view, wait_ns)
            .unwrap_or_else(|| self.lavd.place(task, order, view))
    }

    fn pick(&mut self, _now: Nanos, _cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.lavd.pick(0, waiting, None, view)
    }

    fn may_pull(&self, _now: Nanos, task: TaskId, _from: CpuId, _to: CpuId, _view: &View) -> bool {
        self.sticky.may_pull(task)
    }

    fn work_conserving(&self) -> bool {
        false
    }

    fn forget(&mut self, task: TaskId) {
        self.lavd.forget(task);
        self.sticky.forget(task);
    }
}
