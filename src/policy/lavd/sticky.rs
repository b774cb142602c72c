// SPDX-License-Identifier: GPL-2.0-only
//! The published rule of task warmth (scx pull request 3714): wait for the previous CPU if it is free soon enough.

use super::Lavd;
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::policy::params::Param;
use crate::policy::{At, Placement};
use crate::reason::{Reason, short};
use crate::view::View;
use crate::warmth::published::Published;

/// The parameter of the rule.
pub const WARM_CPU_US: Param = Param {
    name: "warm_cpu_us",
    about: "how long a cold task may wait for its previous CPU, a warm one up to twice that; 0: off. 10 to 20 is the talk's best",
    default: 20,
    range: 0..=10_000,
};

/// The rule, and the heat of all tasks.
#[derive(Clone, Debug)]
pub struct Sticky {
    warm_cpu_ns: Nanos,
    at_most_ns: Nanos,
    heat: Vec<Published>,
    /// Who waits for its CPU by this rule: decided once, when the task is placed.
    waits: Vec<bool>,
}

impl Sticky {
    /// With the budget of `config`'s parameters, and its bound on waiting.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            warm_cpu_ns: config.params.get(&WARM_CPU_US) * 1000,
            at_most_ns: config.line_wait_ns,
            heat: vec![Published::COLD; config.max_tasks],
            waits: vec![false; config.max_tasks],
        }
    }

    /// The task stopped and is runnable again.
    pub fn charge(&mut self, now: Nanos, task: &Runnable) {
        if task.ran_ns > 0 {
            let stopped_ns = now.saturating_sub(task.slept_ns);
            self.heat[task.task.row()].stop(task.prev_cpu, task.ran_ns, stopped_ns);
        }
    }

    /// How warm the task is on a CPU, of 1024.
    #[must_use]
    pub fn warmth(&self, task: TaskId, cpu: CpuId, now: Nanos) -> u32 {
        self.heat[task.row()].warmth(cpu, now)
    }

    /// Where the rule puts the task; none: it does not apply. `wait_ns` is the expected wait for a CPU that is not idle (none: not
    /// known).
    pub fn place(
        &mut self,
        lavd: &mut Lavd,
        task: &Runnable,
        order: u64,
        view: &View,
        wait_ns: impl FnOnce(&Lavd, CpuId) -> Option<Nanos>,
    ) -> Option<Placement> {
        let (row, prev) = (task.task.row(), task.prev_cpu);
        self.waits[row] = false;
        let pinned = view.narrowness(task.task).0;
        if self.warm_cpu_ns == 0 || pinned || !view.is_usable(task.task, prev) {
            return None;
        }
        if view.is_idle(prev) {
            return (!view.has_waiters(prev)).then(|| lavd.run(prev, order, Reason::PrevIdle, view));
        }
        if !lavd.is_tolerant(task.task) {
            return None;
        }
        let wait_ns = wait_ns(lavd, prev)?;
        let budget_ns = self.heat[row].budget_ns(self.warm_cpu_ns, prev, view.now());
        if wait_ns > budget_ns {
            return None;
        }
        self.waits[row] = true;
        let reason = Reason::WarmWait { wait_ns: short(wait_ns), budget_ns: short(budget_ns) };
        let at = At::Cpu { cpu: prev, at_most_ns: self.at_most_ns };
        Some(Placement::Queue { at, order, reason: Some(reason) })
    }

    /// Who waits for its CPU is not taken by another (until its bound).
    #[must_use]
    pub fn may_pull(&self, task: TaskId) -> bool {
        !self.waits[task.row()]
    }

    /// The task is gone.
    pub fn forget(&mut self, task: TaskId) {
        self.heat[task.row()] = Published::COLD;
        self.waits[task.row()] = false;
    }
}
