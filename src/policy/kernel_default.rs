// SPDX-License-Identifier: GPL-2.0-only
//! A model of the kernel's default scheduler: wakeup placement, fair queues per CPU, preemption, idle balancing.
//!
//! For comparison, in the simulator, with what a machine does without Hearth. From the kernel's `fair.c` as of 6.12 and later.
//!
//! - **Placement** (`affine`): pulled to the waker's CPU or not, then an idle CPU that shares its cache, or else there.
//! - **Queues** (`fair`): one per CPU, ordered by virtual deadline (virtual time + slice / weight); of those whose virtual time is
//!   not ahead of the average, the earliest. Lag is kept over a sleep if it is positive.
//! - **Preemption**: a woken task takes the CPU if the running one has had more than its share and the woken one would be
//!   picked; until then the running one keeps it to the end of its slice (run to parity).
//! - **Balancing**: a CPU that falls idle takes a waiting task from elsewhere, unless its idle times are usually shorter than
//!   `migration_cost_us` or the task ran within that time. After `balance_us` any idle CPU may take it.
//!
//! # What is simplified
//!
//! - Loads are numbers of tasks, not decaying averages; cgroups, misfits, NUMA, bandwidth and core scheduling are left out.
//! - Periodic balancing is a bound on how long a task waits beside an idle CPU; queues of busy CPUs are not levelled.
//! - Which queue a CPU takes from first is the dispatcher's order (its domain first), not the busiest.
//! - A slice ends at a tick: slices are whole ticks. The average that eligibility is measured by advances with what ran.
//! - The idle scan is not cut short on busy domains. Whether a wakeup is synchronous is not known: `sync` says it for all.

mod affine;
mod fair;

use super::params::Param;
use super::{At, Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::{Runnable, Why};
use crate::ids::{CpuId, Nanos, TaskId};
use crate::limits::MAX_CPUS;
use crate::reason::Reason;
use crate::view::View;
use affine::Affine;
use fair::Fair;

const SLICE_US: Param = Param {
    name: "slice_us",
    about: "base slice; 0: as the kernel does, 700 us x (1 + log2 of the CPUs, at most 8)",
    default: 0,
    range: 0..=100_000,
};
const TICK_US: Param = Param {
    name: "tick_us",
    about: "a slice ends at a multiple of this (CONFIG_HZ=250: 4000; 1000: 1000)",
    default: 4_000,
    range: 50..=10_000,
};
const MIGRATION_COST_US: Param = Param {
    name: "migration_cost_us",
    about: "a task that ran within this time is not taken by a CPU that falls idle (sched_migration_cost_ns: 500)",
    default: 500,
    range: 0..=1_000_000,
};
const BALANCE_US: Param = Param {
    name: "balance_us",
    about: "after waiting so long, any idle CPU may take a task (idle balancing runs at ticks: 4000)",
    default: 4_000,
    range: 100..=1_000_000,
};
const SYNC: Param = Param {
    name: "sync",
    about: "1: wakers are about to sleep (pipes, sockets: hackbench); 0: they are not (futex: schbench)",
    default: 0,
    range: 0..=1,
};

/// What can be set.
pub const PARAMS: &[Param] = &[SLICE_US, TICK_US, MIGRATION_COST_US, BALANCE_US, SYNC];

/// A CPU that fell idle no longer ago than this is *newly* idle: what a round trip to the dispatcher takes.
const NEWLY_IDLE_NS: Nanos = 100_000;

/// A model of the kernel's default scheduler.
#[derive(Clone, Debug)]
pub struct KernelDefault {
    fair: Fair,
    affine: Affine,
    migration_cost_ns: Nanos,
    balance_ns: Nanos,
    ran_until_ns: Vec<Nanos>,
    idle_since_ns: Vec<Nanos>,
    /// Per CPU: the average idle time.
    avg_idle_ns: Vec<Nanos>,
}

impl KernelDefault {
    /// With the parameters of `config`.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let us = |param| config.params.get(param) * 1000;
        let migration_cost_ns = us(&MIGRATION_COST_US);
        Self {
            fair: Fair::new(config.max_tasks, us(&SLICE_US), us(&TICK_US)),
            affine: Affine::new(config.max_tasks, config.params.get(&SYNC) == 1),
            migration_cost_ns,
            balance_ns: us(&BALANCE_US),
            ran_until_ns: vec![0; config.max_tasks],
            idle_since_ns: vec![0; MAX_CPUS],
            avg_idle_ns: vec![2 * migration_cost_ns; MAX_CPUS],
        }
    }

    /// An idle CPU gets work: its idle time counts, as 1/8 of the average, at most twice the migration cost.
    fn idle_ends(&mut self, now: Nanos, cpu: CpuId) {
        let since_ns = std::mem::take(&mut self.idle_since_ns[cpu.idx()]);
        if since_ns > 0 {
            let idle_ns = now.saturating_sub(since_ns);
            let average_ns = &mut self.avg_idle_ns[cpu.idx()];
            *average_ns = (*average_ns - *average_ns / 8 + idle_ns / 8).min(2 * self.migration_cost_ns);
        }
    }

    /// Where the task goes before anybody asks whether that CPU is free.
    fn select(&mut self, now: Nanos, task: &Runnable, view: &View) -> (CpuId, Reason) {
        let usable = view.is_usable(task.task, task.prev_cpu);
        match task.why {
            Why::Woken if usable => self.affine.select(now, task, view),
            Why::New | Why::Woken | Why::Rescan => idlest(task, view),
            _ if usable => (task.prev_cpu, Reason::PrevIdle),
            _ => idlest(task, view),
        }
    }

    fn run(&mut self, now: Nanos, task: &Runnable, cpu: CpuId, reason: Reason, view: &View) -> Placement {
        self.idle_ends(now, cpu);
        self.fair.starts(task.task, cpu);
        let preempt = matches!(reason, Reason::Preempts { .. });
        Placement::Run { cpu, slice_ns: self.fair.slice_ns(view), preempt, reason }
    }
}

/// A new task goes to the idlest CPU, nearest first.
fn idlest(task: &Runnable, view: &View) -> (CpuId, Reason) {
    view.idle_core_near(task).unwrap_or_else(|| {
        let (cpu, _, reason) = view.shortest_line(task);
        (cpu, reason)
    })
}

impl Policy for KernelDefault {
    fn name(&self) -> &'static str {
        "kernel-default"
    }

    fn charge(&mut self, now: Nanos, task: &Runnable, view: &View) {
        self.affine.woken_by(now, task);
        if task.ran_ns > 0 {
            self.ran_until_ns[task.task.row()] = now.saturating_sub(task.slept_ns);
            self.fair.charge(task, view);
        }
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        let (cpu, reason) = self.select(now, task, view);
        let deadline = self.fair.enter(now, task, cpu, view);
        if view.is_idle(cpu) && view.own_queue(cpu) == 0 {
            return self.run(now, task, cpu, reason, view);
        }
        let wakes = matches!(task.why, Why::Woken | Why::New);
        if let Some(lead_ns) = self.fair.preempts(now, task.task, cpu, view).filter(|_| wakes) {
            let lead_us = (lead_ns / 1000).min(u64::from(u32::MAX)) as u32;
            return self.run(now, task, cpu, Reason::Preempts { lead_us }, view);
        }
        let at = At::Cpu { cpu, at_most_ns: self.balance_ns };
        Placement::Queue { at, order: deadline, reason: None }
    }

    fn pick(&mut self, now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.idle_ends(now, cpu);
        let index = self.fair.pick(cpu, waiting);
        self.fair.starts(waiting[index], cpu);
        Pick { index, slice_ns: self.fair.slice_ns(view), reason: None }
    }

    fn look_ahead(&self) -> usize {
        8
    }

    fn idled(&mut self, _now: Nanos, cpu: CpuId, _last: TaskId, since_ns: Nanos, _view: &View) {
        self.idle_since_ns[cpu.idx()] = since_ns.max(1);
    }

    fn may_pull(&self, now: Nanos, task: TaskId, _from: CpuId, to: CpuId, _view: &View) -> bool {
        let newly_idle = now.saturating_sub(self.idle_since_ns[to.idx()]) <= NEWLY_IDLE_NS;
        let hot = now.saturating_sub(self.ran_until_ns[task.row()]) < self.migration_cost_ns;
        newly_idle && !hot && self.avg_idle_ns[to.idx()] >= self.migration_cost_ns
    }

    fn work_conserving(&self) -> bool {
        false
    }

    fn forget(&mut self, task: TaskId) {
        self.fair.forget(task);
        self.affine.forget(task);
        self.ran_until_ns[task.row()] = 0;
    }
}
