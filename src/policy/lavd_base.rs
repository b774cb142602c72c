// SPDX-License-Identifier: GPL-2.0-only
//! lavd without stickiness: work-conserving, deadline-ordered domain queues.
//!
//! An idle CPU near the previous one, or else the domain's queue, ordered by a deadline that comes sooner the more
//! latency-critical a task is. [`super::lavd`] has the formulas and says what is simplified.

use super::lavd::Lavd;
use super::{Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::view::View;

/// lavd without stickiness.
#[derive(Clone, Debug)]
pub struct LavdBase {
    lavd: Lavd,
}

impl LavdBase {
    /// With the slice of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self { lavd: Lavd::new(config) }
    }
}

impl Policy for LavdBase {
    fn name(&self) -> &'static str {
        "lavd-base"
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.lavd.charge(now, task, view);
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        let order = self.lavd.order(task, view);
        self.lavd.place(task, order, view)
    }

    fn pick(&mut self, _now: Nanos, _cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.lavd.pick(0, waiting, None, view)
    }

    fn forget(&mut self, task: TaskId) {
        self.lavd.forget(task);
    }
}
