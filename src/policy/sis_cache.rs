// SPDX-License-Identifier: GPL-2.0-only
//! SIS_CACHE: an idle CPU is kept for the task that left it for a moment.
//!
//! The opposite angle to [`warm`](super::warm): instead of letting a task wait for its CPU, others are kept off it while it
//! sleeps. From a series on the kernel's list (Chen Yu, "cache-hot wakee on previous CPU", v2 2023-11): every task has an
//! average of its *short* sleeps; when it goes to sleep and its CPU has nothing else to do, that CPU is hot until then plus the
//! average. Others that look for an idle CPU in the domain pass over hot ones, at most `max_skips` of them, and take the first
//! hot one if there is no colder. The task itself takes its previous CPU if that is idle, hot or not.
//!
//! Simplified: the number of CPUs passed over is fixed here, where the series takes half of a scan budget that shrinks with the
//! utilisation; orders and queues are those of [`lavd-base`](super::lavd_base), so that the two differ in this only.

use super::lavd::Lavd;
use super::params::Param;
use super::{Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::{Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::MAX_CPUS;
use crate::reason::Reason;
use crate::view::View;

const SHORT_US: Param = Param {
    name: "short_us",
    about: "sleeps shorter than this are averaged, longer ones halve the average (sched_migration_cost: 500)",
    default: 500,
    range: 1..=1_000_000,
};

const MAX_SKIPS: Param = Param {
    name: "max_skips",
    about: "hot CPUs passed over at most (v2 of the series: half of the scan budget; 4 is half of a domain of 8)",
    default: 4,
    range: 0..=256,
};

/// What can be set.
pub const PARAMS: &[Param] = &[SHORT_US, MAX_SKIPS];

/// Idle CPUs are kept for those who left them for a moment.
#[derive(Clone, Debug)]
pub struct SisCache {
    lavd: Lavd,
    short_ns: Nanos,
    max_skips: u32,
    /// Per task: the average of its short sleeps.
    sleep_ns: Vec<Nanos>,
    /// Per CPU: until when it is hot.
    hot_until_ns: Vec<Nanos>,
}

impl SisCache {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            lavd: Lavd::new(config),
            short_ns: config.params.get(&SHORT_US) * 1000,
            max_skips: config.params.get(&MAX_SKIPS) as u32,
            sleep_ns: vec![0; config.max_tasks],
            hot_until_ns: vec![0; MAX_CPUS],
        }
    }

    /// An average of which a new value is 1/8, as the kernel has it; a long sleep halves it.
    fn slept(&mut self, task: TaskId, slept_ns: Nanos) {
        let average_ns = &mut self.sleep_ns[task.row()];
        *average_ns = if slept_ns < self.short_ns {
            *average_ns - *average_ns / 8 + slept_ns / 8
        } else {
            *average_ns / 2
        };
    }

    /// The idle CPU of its domain that the task gets, and how many hot ones were passed over.
    fn coldest(&self, now: Nanos, task: &Runnable, view: &View) -> Option<(CpuId, u32)> {
        let llc = view.llc_of(task.prev_cpu)?;
        let (mut first, mut skipped) = (None, 0);
        for cpu in view.idle_in(llc, task) {
            if cpu == task.prev_cpu || self.hot_until_ns[cpu.idx()] <= now {
                return Some((cpu, skipped));
            }
            first = first.or(Some(cpu));
            if skipped == self.max_skips {
                break;
            }
            skipped += 1;
        }
        first.map(|cpu| (cpu, 0))
    }
}

impl Policy for SisCache {
    fn name(&self) -> &'static str {
        "sis-cache"
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.lavd.charge(now, task, view);
        if task.why == Why::Woken && task.slept_ns > 0 {
            self.slept(task.task, task.slept_ns);
        }
    }

    fn idled(&mut self, _now: Nanos, cpu: CpuId, last: TaskId, since_ns: Nanos, view: &View) {
        if view.is_asleep(last) && !view.has_waiters(cpu) {
            let until_ns = since_ns.saturating_add(self.sleep_ns[last.row()]);
            let hot = &mut self.hot_until_ns[cpu.idx()];
            *hot = (*hot).max(until_ns);
        }
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        let order = self.lavd.order(task, view);
        match self.coldest(now, task, view).filter(|&(cpu, _)| !view.has_waiters(cpu)) {
            Some((cpu, skipped)) => {
                let reason = match skipped {
                    0 if cpu == task.prev_cpu => Reason::PrevIdle,
                    0 => Reason::LlcIdle,
                    skipped => Reason::Colder { skipped },
                };
                self.lavd.run(cpu, order, reason, view)
            }
            None => self.lavd.place(task, order, view),
        }
    }

    fn pick(&mut self, _now: Nanos, _cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.lavd.pick(0, waiting, None, view)
    }

    fn forget(&mut self, task: TaskId) {
        self.sleep_ns[task.row()] = 0;
        self.lavd.forget(task);
    }
}
