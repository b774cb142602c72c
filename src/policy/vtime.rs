// SPDX-License-Identifier: GPL-2.0-only
//! Weighted fair sharing by virtual time.
//!
//! Every task has a clock of its own, its *virtual time*: it advances by the CPU time the task uses, slower for a heavy
//! task (`ran * 100 / weight`). Whoever is furthest behind runs next. Two tasks of weights 1 and 3 that always want to
//! run therefore get CPU time 1 : 3, since that is when their clocks advance side by side.
//!
//! Three details make it work for tasks that do not always want to run, and on more than one CPU:
//!
//! - **Sleep credit.** A task that slept for an hour is an hour behind. It may keep only one slice of that, or it would
//!   hold a CPU until everybody else is an hour behind too. "Behind" is measured against the first task that waits in
//!   the queue it joins, or the domain's clock if that is earlier.
//! - **A clock per domain.** Each LLC domain has a clock: the latest virtual time that was given a CPU there. A task that
//!   changes domains keeps its distance from the clock, not its absolute time, since a crowded domain's clock runs slower.
//! - **Preemption.** A task that wakes more than a slice behind the one that runs on its previous CPU takes that CPU.
//!
//! Slices have one length for all; weights act through the order alone.

use super::{At, Pick, Placement, Policy};
use crate::dispatcher::Config;
use crate::event::{Runnable, Why};
use crate::ids::{CpuId, LlcId, Nanos, TaskId};
use crate::limits::MAX_CPUS;
use crate::reason::Reason;
use crate::view::{QueueView, View};

/// Where the clocks start: far enough from 0 that a lag can be subtracted.
const START_NS: u64 = 1 << 40;

/// The weight at which virtual time runs like real time.
const NICE_0_WEIGHT: u64 = 100;

/// How many slices a task may be behind when it was kept from running (say, by a real-time task on its only CPU).
const MAX_LAG_SLICES: u64 = 20;

#[derive(Clone, Copy, Debug)]
struct Account {
    virtual_ns: u64,
    /// The domain whose clock `virtual_ns` is on; none: the task has not run yet.
    llc: Option<LlcId>,
}

const NEW: Account = Account { virtual_ns: START_NS, llc: None };

/// Weighted fair sharing by virtual time.
#[derive(Clone, Debug)]
pub struct Vtime {
    slice_ns: Nanos,
    accounts: Vec<Account>,
    clocks: Vec<u64>,
}

impl Vtime {
    /// With the slice of `config`, and an account for each of its tasks.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        Self {
            slice_ns: config.slice_ns,
            accounts: vec![NEW; config.max_tasks],
            clocks: vec![START_NS; MAX_CPUS],
        }
    }

    /// The virtual time of a task, on the clock of its domain.
    #[must_use]
    pub fn virtual_ns(&self, task: TaskId) -> u64 {
        self.accounts[task.row()].virtual_ns
    }

    /// Puts a task on the clock of a domain: its distance from the clock stays. Returns its virtual time there.
    fn enter(&mut self, task: TaskId, llc: LlcId) -> u64 {
        let account = &mut self.accounts[task.row()];
        if let Some(old) = account.llc.replace(llc) {
            let ahead = account.virtual_ns.wrapping_sub(self.clocks[old.idx()]) as i64;
            account.virtual_ns = self.clocks[llc.idx()].saturating_add_signed(ahead);
        }
        account.virtual_ns
    }

    /// A task is given a CPU: the clock of its domain is at least there.
    pub(super) fn starts(&mut self, task: TaskId, cpu: CpuId, view: &View) {
        let Some(llc) = view.llc_of(cpu) else { return };
        let virtual_ns = self.enter(task, llc);
        let clock = &mut self.clocks[llc.idx()];
        *clock = (*clock).max(virtual_ns);
    }

    /// The placement of a task that waits.
    pub(super) fn join(&mut self, task: &Runnable, view: &View) -> Placement {
        let slept = matches!(task.why, Why::Woken | Why::New);
        let order = self.order(task, &view.queue_of(task), slept);
        Placement::Queue { at: At::Home, order, reason: None }
    }

    /// Where a task stands among those it will wait with.
    fn order(&mut self, task: &Runnable, queue: &QueueView, slept: bool) -> u64 {
        let llc = queue.llc();
        let clock = self.clocks[llc.idx()];
        let virtual_ns = if self.accounts[task.task.row()].llc.is_none() {
            // New: behind all who wait already, so that a storm of forks goes before nobody.
            clock.min(queue.last_order().unwrap_or(u64::MAX))
        } else {
            let credit_slices = if slept { 1 } else { MAX_LAG_SLICES };
            let reference = clock.min(queue.first_order().unwrap_or(u64::MAX));
            let earliest = reference.saturating_sub(self.slice_ns * credit_slices);
            self.enter(task.task, llc).max(earliest)
        };
        self.accounts[task.task.row()] = Account { virtual_ns, llc: Some(llc) };
        virtual_ns
    }

    /// How far the task that runs on `cpu` will be ahead of `virtual_ns` by now.
    fn lead_ns(&self, now: Nanos, cpu: CpuId, virtual_ns: u64, view: &View) -> Option<u64> {
        let (running, since_ns) = view.running(cpu)?;
        let used_ns = now.saturating_sub(since_ns) * NICE_0_WEIGHT / u64::from(view.weight(running));
        self.virtual_ns(running).saturating_add(used_ns).checked_sub(virtual_ns)
    }
}

impl Policy for Vtime {
    fn name(&self) -> &'static str {
        "vtime"
    }

    fn charge(&mut self, _now: Nanos, task: &Runnable, _view: &View) {
        let used_ns = task.ran_ns * NICE_0_WEIGHT / u64::from(task.weight.max(1));
        self.accounts[task.task.row()].virtual_ns += used_ns;
    }

    fn place(&mut self, now: Nanos, task: &Runnable, view: &View) -> Placement {
        let queue = view.queue_of(task);
        let first = queue.first_order().unwrap_or(u64::MAX);
        let slept = matches!(task.why, Why::Woken | Why::New);
        let order = self.order(task, &queue, slept);

        let (prev, slice_ns) = (task.prev_cpu, self.slice_ns);
        if let Some((cpu, reason)) = view.idle_near(task).filter(|&(cpu, _)| !view.has_waiters(cpu)) {
            self.starts(task.task, cpu, view);
            return Placement::Run { cpu, slice_ns, preempt: false, reason };
        }
        let lead_ns = self.lead_ns(now, prev, order, view).unwrap_or(0);
        if slept && order < first && lead_ns > slice_ns && view.is_usable(task.task, prev) {
            self.starts(task.task, prev, view);
            let lead_us = (lead_ns / 1000).min(u64::from(u32::MAX)) as u32;
            return Placement::Run {
                cpu: prev,
                slice_ns,
                preempt: true,
                reason: Reason::Preempts { lead_us },
            };
        }
        Placement::Queue { at: At::Home, order, reason: None }
    }

    fn pick(&mut self, _now: Nanos, cpu: CpuId, waiting: &[TaskId], view: &View) -> Pick {
        self.starts(waiting[0], cpu, view);
        Pick::first(self.slice_ns)
    }

    fn forget(&mut self, task: TaskId) {
        self.accounts[task.row()] = NEW;
    }
}
