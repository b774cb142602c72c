// SPDX-License-Identifier: GPL-2.0-only
//! Look-ahead: a CPU that asks takes the first task that is still warm there, among the first few in deadline order.
//!
//! From the LAVD stickiness talk (LPC 2026), which names the depths d2 and d4 without defining them: here, `depth` tasks behind
//! the head. The rest is [`warm`](super::warm) (with `warm_cpu_us=0`: lavd-base and look-ahead alone).
//!
//! The inversion of deadlines is bounded twice: by the depth, and by `max_skips`: a head that was passed over so often is next
//! whatever comes behind it.

use super::lavd::Lavd;
use super::lavd::sticky::{Sticky, WARM_CPU_US};
use super::params::Param;
use super::warm::counted_wait_ns;
use super::{Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::Runnable;
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::MAX_LOOK_AHEAD;
use crate::reason::Reason;
use crate::view::View;

const DEPTH: Param = Param {
    name: "depth",
    about: "how many tasks behind the head are looked at; the talk's d2 and d4, as this project reads them",
    default: 2,
    range: 0..=MAX_LOOK_AHEAD as u64 - 1,
};

const FLOOR: Param = Param {
    name: "floor",
    about: "how warm, of 1024, a task must be to go before others; 1: anything that is left (the talk: \"still warm\")",
    default: 1,
    range: 1..=1024,
};

const MAX_SKIPS: Param = Param {
    name: "max_skips",
    about: "how often a head may be passed over; own choice: 4 is a few runs' time, far below the dispatcher's own bounds",
    default: 4,
    range: 0..=255,
};

/// What can be set.
pub const PARAMS: &[Param] = &[DEPTH, WARM_CPU_US, FLOOR, MAX_SKIPS];

/// Task warmth, and a look ahead when a CPU asks.
#[derive(Clone, Debug)]
pub struct LookAhead {
    lavd: Lavd,
    sticky: Sticky,
    depth: usize,
    floor: u32,
    max_skips: u8,
    /// How often each waiting task was passed over as the head.
    skips: Vec<u8>,
}

impl LookAhead {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            lavd: Lavd::new(config),
            sticky: Sticky::new(config),
            depth: config.params.get(&DEPTH) as usize,
            floor: config.params.get(&FLOOR) as u32,
            max_skips: config.params.get(&MAX_SKIPS) as u8,
            skips: vec![0; config.max_tasks],
        }
    }

    /// The first that is warm enough, if the head may be passed over for it; with how warm it is.
    fn warm_behind(&self, now: Nanos, cpu: CpuId, waiting: &[TaskId]) -> Option<(usize, u32)> {
        let warmth = |&task: &TaskId| self.sticky.warmth(task, cpu, now);
        let at = waiting.iter().position(|task| warmth(task) >= self.floor)?;
        (at > 0 && self.skips[waiting[0].row()] < self.max_skips).then(|| (at, warmth(&waiting[at])))
    }
}

impl Policy for LookAhead {
    fn name(&self) -> &'static str {
        "look-ahead"
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.lavd.charge(now, task, view);
        self.sticky.charge(now, task);
    }

    fn place(&mut self, _now: Nanos, task: &Runnable, view: &View) -> Placement {
        self.skips[task.task.row()] = 0;
        let order = self.lavd.order(task, view);
        let wait_ns = |lavd: &Lavd, cpu: CpuId| counted_wait_ns(lavd, cpu, view);
        self.sticky
            .place(&mut self.lavd, task, order, view, wait_ns)
            .unwrap_or_else(|| self.lavd.place(task, order, view))
    }

    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        match self.warm_behind(now, cpu, waiting) {
            Some((at, warmth)) => {
                self.skips[waiting[0].row()] += 1;
                self.lavd.pick(at, waiting, Some(Reason::LookAhead { passed: at as u32, warmth }), view)
            }
            None => self.lavd.pick(0, waiting, None, view),
        }
    }

    fn look_ahead(&self) -> usize {
        1 + self.depth
    }

    fn may_pull(&self, _now: Nanos, task: TaskId, _from: CpuId, _to: CpuId, _view: &View) -> bool {
        self.sticky.may_pull(task)
    }

    fn work_conserving(&self) -> bool {
        false
    }

    fn forget(&mut self, task: TaskId) {
        self.skips[task.row()] = 0;
        self.lavd.forget(task);
        self.sticky.forget(task);
    }
}
