// SPDX-License-Identifier: GPL-2.0-only
//! [`warm`](super::warm) with an honest wait: what is left of the running task, and the service time of all that wait.
//!
//! Budget, sticky rule and deadlines are those of `warm`. The predicted wait is by completion time, as the talk has it and scx
//! pull request 3806 computes it: `residual + queued service / capacity`. It counts the CPU's line too (tasks that are decided
//! but have not started), not only its ordered queue. `estimate=0` is the published residual: the rest of the *average* run,
//! and for a task that has outrun it a charge of a quarter of the average or as long as it is over already, at most the rest of
//! its slice. `estimate=1` takes the estimates of [`crate::completion`], conditional on how long the task has run.
//!
//! Simplified: service is per CPU, not per core, so an idle SMT sibling does not halve it.

use super::lavd::Lavd;
use super::lavd::sticky::{Sticky, WARM_CPU_US};
use super::params::Param;
use super::{Needs, Pick, Placement, Policy};
use crate::completion::published;
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::view::View;

const ESTIMATE: Param = Param {
    name: "estimate",
    about: "0: averages and overrun charge as published (scx 3806); 1: the run-length histograms of this project",
    default: 0,
    range: 0..=1,
};

/// What can be set.
pub const PARAMS: &[Param] = &[WARM_CPU_US, ESTIMATE];

/// Task warmth with completion time.
#[derive(Clone, Debug)]
pub struct Completion {
    lavd: Lavd,
    sticky: Sticky,
    own_estimates: bool,
}

impl Completion {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            lavd: Lavd::new(config),
            sticky: Sticky::new(config),
            own_estimates: config.params.get(&ESTIMATE) == 1,
        }
    }
}

/// The published wait: overrun-charged residual, and average runs of all that wait for the CPU, over its capacity.
fn timed_wait_ns(lavd: &Lavd, cpu: CpuId, view: &View) -> Option<Nanos> {
    let (stop_ns, since_ns) = lavd.expected_stop(cpu, view)?;
    let (now, slice_ns) = (view.now(), lavd.slice_ns().max(1));
    // A lone task gets its slice again and again.
    let slice_left_ns = slice_ns - now.saturating_sub(since_ns) % slice_ns;
    let residual_ns = published::residual_ns(now, since_ns, stop_ns, slice_left_ns);
    let queued_ns = view.waiters_of(cpu).map(|task| lavd.run_ns(task)).sum();
    let capacity = view.topology().cpu(cpu).map_or(published::SCALE, |cpu| u64::from(cpu.capacity));
    Some(residual_ns.saturating_add(published::queued_wait_ns(queued_ns, capacity)))
}

impl Policy for Completion {
    fn name(&self) -> &'static str {
        "completion"
    }

    fn needs(&self) -> Needs {
        Needs { completion: self.own_estimates, ..Needs::default() }
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.lavd.charge(now, task, view);
        self.sticky.charge(now, task);
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        let order = self.lavd.order(task, view);
        let own = self.own_estimates;
        let wait_ns = |lavd: &Lavd, cpu: CpuId| {
            if own { Some(view.wait_ns(cpu)) } else { timed_wait_ns(lavd, cpu, view) }
        };
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
